// SPDX-License-Identifier: GPL-2.0-only
/*
 * Submission by io_uring; see uring.h.
 */
#include <errno.h>
#include <string.h>

#include "uring.h"

/*
 * user_data is the io_u. The transfer of a linked pair has the low bit set;
 * the io_u is complete with the request that has not.
 */
#define FIRST_OF_PAIR 1UL

int uring_init(struct uring *u, struct engine_job *j, struct thread_data *td,
	       unsigned int per_io)
{
	unsigned int depth = td->o.iodepth;
	struct io_uring_params p = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
			 IORING_SETUP_TASKRUN_FLAG,
	};
	int ret;

	memset(u, 0, sizeof(*u));
	u->ring.ring_fd = -1;
	u->per_io = per_io;

	u->prepared = calloc(depth, sizeof(*u->prepared));
	u->done = calloc(depth, sizeof(*u->done));
	if (!u->prepared || !u->done)
		return ENOMEM;

	ret = io_uring_queue_init_params(depth * per_io, &u->ring, &p);
	if (ret == -EINVAL) {
		/* Linux before 6.0 knows none of these hints. */
		memset(&p, 0, sizeof(p));
		ret = io_uring_queue_init_params(depth * per_io, &u->ring, &p);
	}
	if (!ret)
		return 0;

	u->ring.ring_fd = -1;
	if (ret == -EPERM || ret == -ENOSYS)
		engine_error(j, td,
			     "strategy=%s needs io_uring, which is not allowed here (%s); look at sysctl kernel.io_uring_disabled and the container's seccomp profile",
			     j->strategy, strerror(-ret));
	else
		engine_error(j, td,
			     "strategy=%s: io_uring with iodepth=%u: %s",
			     j->strategy, depth, strerror(-ret));
	return -ret;
}

void uring_exit(struct uring *u)
{
	if (u->ring.ring_fd >= 0)
		io_uring_queue_exit(&u->ring);
	free(u->prepared);
	free(u->done);
}

static bool is_pair(const struct uring *u, const struct io_u *io_u)
{
	return u->per_io == 2 && io_u->ddir == DDIR_WRITE;
}

enum fio_q_status uring_queue(struct uring *u, struct io_u *io_u,
			      int rw_flags)
{
	struct io_uring_sqe *sqe, *flush;
	int fd = io_u->file->fd;

	if (io_uring_sq_space_left(&u->ring) < u->per_io)
		return FIO_Q_BUSY;

	sqe = io_uring_get_sqe(&u->ring);
	if (io_u->ddir == DDIR_READ) {
		io_uring_prep_read(sqe, fd, io_u->xfer_buf, io_u->xfer_buflen,
				   io_u->offset);
	} else {
		io_uring_prep_write(sqe, fd, io_u->xfer_buf, io_u->xfer_buflen,
				    io_u->offset);
	}
	sqe->rw_flags = rw_flags;
	io_uring_sqe_set_data(sqe, io_u);

	if (is_pair(u, io_u)) {
		sqe->flags |= IOSQE_IO_LINK;
		sqe->user_data |= FIRST_OF_PAIR;
		flush = io_uring_get_sqe(&u->ring);
		io_uring_prep_fsync(flush, fd, IORING_FSYNC_DATASYNC);
		io_uring_sqe_set_data(flush, io_u);
	}

	u->prepared[u->nr_prepared++] = io_u;
	return FIO_Q_QUEUED;
}

int uring_commit(struct uring *u, struct thread_data *td)
{
	unsigned int left = io_uring_sq_ready(&u->ring), i;
	struct timespec now;
	int ret;

	if (!u->nr_prepared)
		return 0;

	fio_gettime(&now, NULL);
	for (i = 0; i < u->nr_prepared; i++)
		memcpy(&u->prepared[i]->issue_time, &now, sizeof(now));

	while (left) {
		ret = io_uring_submit(&u->ring);
		if (ret > 0)
			left -= ret;
		else if (ret != -EINTR && ret != -EAGAIN && ret != -EBUSY)
			return ret ? ret : -EIO;
	}

	io_u_mark_submit(td, u->nr_prepared);
	u->nr_prepared = 0;
	return 0;
}

/* Take one completion. Returns its io_u if that is complete now. */
static struct io_u *take(struct uring *u, struct engine_job *j,
			 const struct io_uring_cqe *cqe)
{
	struct io_u *io_u = (void *)(uintptr_t)(cqe->user_data & ~FIRST_OF_PAIR);

	if (cqe->user_data & FIRST_OF_PAIR) {
		engine_complete(j, io_u, cqe->res);
		return NULL;
	}
	if (!is_pair(u, io_u)) {
		engine_complete(j, io_u, cqe->res);
		return io_u;
	}

	/* A failed or short write cancels its flush and reports for both. */
	if (!cqe->res) {
		j->flush_calls++;
		j->durable_writes++;
	} else if (!io_u->error && !io_u->resid) {
		io_u->error = -cqe->res;
		if (!j->error)
			j->error = -cqe->res;
	}
	return io_u;
}

int uring_getevents(struct uring *u, struct engine_job *j,
		    unsigned int min, unsigned int max)
{
	struct io_uring_cqe *cqe;
	unsigned int events = 0;
	struct io_u *io_u;
	int ret;

	while (events < max) {
		/*
		 * fio passes a time limit of zero with min of zero only, so
		 * waiting for what is missing is right in every case.
		 */
		if (events < min)
			ret = io_uring_wait_cqe(&u->ring, &cqe);
		else
			ret = io_uring_peek_cqe(&u->ring, &cqe);
		if (ret == -EAGAIN && events >= min)
			break;
		if (ret == -EINTR || ret == -EAGAIN)
			continue;
		if (ret < 0)
			return ret;

		io_u = take(u, j, cqe);
		io_uring_cqe_seen(&u->ring, cqe);
		if (io_u)
			u->done[events++] = io_u;
	}
	return events;
}
