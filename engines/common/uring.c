// SPDX-License-Identifier: GPL-2.0-only
/*
 * Submission by io_uring; see uring.h.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "uring.h"

/*
 * user_data is the io_u, with a bit set for the transfer of a pair, and one for
 * a request that does nothing.
 */
#define FIRST_OF_PAIR	1UL
#define NOTHING		2UL

/* What a pair waits for, in io_u->index. */
enum {
	BOTH,
	FLUSH,
	TRANSFER,	/* and it has no flush yet: the kernel took it alone */
};

#define MAX_REQUESTS	32768	/* IORING_MAX_ENTRIES of the kernel */

/* Milliseconds to wait for the memory of a request when none is on its way. */
#define PATIENCE	1000

int uring_init(struct uring *u, struct engine_job *j, struct thread_data *td,
	       bool pairs, unsigned int flags)
{
	/* Those of Linux 6.1, as fio's own engine; of 6.0; of earlier ones. */
	const unsigned int hints[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG,
		0,
	};
	struct io_uring_params p;
	unsigned int requests, i;
	int ret = -EINVAL;

	memset(u, 0, sizeof(*u));
	u->ring.ring_fd = -1;
	u->depth = td->o.iodepth;
	u->pairs = pairs;
	u->big = flags & IORING_SETUP_SQE128 ? 1 : 0;

	requests = u->depth * (pairs ? 2 : 1);
	if (requests > MAX_REQUESTS) {
		engine_error(j, td,
			     "strategy=%s: iodepth=%u is too deep for io_uring, %u is the limit",
			     j->strategy, u->depth,
			     MAX_REQUESTS / (pairs ? 2 : 1));
		return EINVAL;
	}

	u->prepared = calloc(u->depth, sizeof(*u->prepared));
	u->early = calloc(u->depth, sizeof(*u->early));
	u->done = calloc(u->depth, sizeof(*u->done));
	if (!u->prepared || !u->early || !u->done)
		return ENOMEM;

	for (i = 0; i < ARRAY_SIZE(hints) && ret == -EINVAL; i++) {
		p = (struct io_uring_params) { .flags = flags | hints[i] };
		ret = io_uring_queue_init_params(requests, &u->ring, &p);
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
			     j->strategy, u->depth, strerror(-ret));
	return -ret;
}

void uring_exit(struct uring *u)
{
	if (u->ring.ring_fd >= 0)
		io_uring_queue_exit(&u->ring);
	free(u->prepared);
	free(u->early);
	free(u->done);
}

static bool is_pair(const struct uring *u, const struct io_u *io_u)
{
	return u->pairs && io_u->ddir == DDIR_WRITE;
}

static void prep_flush(struct io_uring_sqe *sqe, struct io_u *io_u)
{
	io_uring_prep_fsync(sqe, io_u->file->fd, IORING_FSYNC_DATASYNC);
	io_uring_sqe_set_data(sqe, io_u);
}

static __attribute__((noinline)) void
link_flush(struct uring *u, struct io_u *io_u, struct io_uring_sqe *sqe)
{
	struct io_uring_sqe *flush = io_uring_get_sqe(&u->ring);

	sqe->flags |= IOSQE_IO_LINK;
	sqe->user_data |= FIRST_OF_PAIR;
	prep_flush(flush, io_u);
	io_u->index = BOTH;
}

enum fio_q_status uring_queue(struct uring *u, struct io_u *io_u,
			      int rw_flags)
{
	struct io_uring_sqe *sqe = uring_next(u, io_u);

	if (!sqe)
		return FIO_Q_BUSY;

	/* Without a flag or an index the rest of it stays what it was: zero. */
	sqe->opcode = io_u->ddir == DDIR_READ ? IORING_OP_READ :
						IORING_OP_WRITE;
	sqe->flags = 0;
	sqe->fd = io_u->file->fd;
	sqe->off = io_u->offset;
	sqe->addr = (uintptr_t)io_u->xfer_buf;
	sqe->len = io_u->xfer_buflen;
	sqe->rw_flags = rw_flags;
	sqe->user_data = (uintptr_t)io_u;
	if (is_pair(u, io_u))
		link_flush(u, io_u, sqe);
	return FIO_Q_QUEUED;
}

/* The transfer of a pair has completed. Returns true if the pair has. */
static bool take_transfer(struct uring *u, struct engine_job *j,
			  struct io_u *io_u, int res)
{
	bool alone = io_u->index == TRANSFER;

	io_u->index = FLUSH;
	if (res < 0 || (unsigned int)res < io_u->xfer_buflen) {
		engine_complete(j, io_u, res);
		return alone;
	}
	if (alone)
		prep_flush(io_uring_get_sqe(&u->ring), io_u);
	return false;
}

/* Take one completion where there are pairs. Returns true if an io_u has. */
static __attribute__((noinline)) bool
take_in_pairs(struct uring *u, struct engine_job *j, struct io_u *io_u,
	      const struct io_uring_cqe *cqe)
{
	if (cqe->user_data & NOTHING)
		return false;
	if (cqe->user_data & FIRST_OF_PAIR)
		return take_transfer(u, j, io_u, cqe->res);
	if (io_u->ddir == DDIR_READ) {
		engine_complete(j, io_u, cqe->res);
		return true;
	}

	/* Of a transfer that failed or was short it was cancelled. */
	if (io_u->error || io_u->resid)
		return true;
	j->flush_calls++;
	if (cqe->res < 0) {
		engine_failed(j, io_u, -cqe->res);
	} else {
		engine_complete(j, io_u, io_u->xfer_buflen);
		j->durable_writes++;
	}
	return true;
}

/* As reap(), of commands: their results are the driver's, and big. */
static __attribute__((noinline)) unsigned int
reap_commands(struct uring *u, struct engine_job *j, struct io_u **to,
	      unsigned int n, unsigned int max)
{
	unsigned int head, taken = 0;
	struct io_uring_cqe *cqe;
	struct io_u *io_u;

	io_uring_for_each_cqe(&u->ring, head, cqe) {
		if (n == max)
			break;
		io_u = io_uring_cqe_get_data(cqe);
		taken++;
		engine_complete(j, io_u, u->result(u->data, io_u, cqe->res));
		to[n++] = io_u;
	}
	io_uring_cq_advance(&u->ring, taken);
	u->requests -= taken;
	return n;
}

/*
 * Take completions into @to, which has @n of at most @max. Returns how many it
 * has then.
 */
static inline __attribute__((always_inline)) unsigned int
reap(struct uring *u, struct engine_job *j, struct io_u **to, unsigned int n,
     unsigned int max)
{
	unsigned int head = *u->ring.cq.khead, taken = 0;
	unsigned int tail = io_uring_smp_load_acquire(u->ring.cq.ktail);
	struct io_uring_cqe *cqe;
	struct io_u *io_u;

	if (fio_unlikely(u->result))
		return reap_commands(u, j, to, n, max);

	for (; head != tail && n < max; head++) {
		cqe = &u->ring.cq.cqes[(head & u->ring.cq.ring_mask) << u->big];
		io_u = (void *)(uintptr_t)
			(cqe->user_data & ~(FIRST_OF_PAIR | NOTHING));
		taken++;
		if (!u->pairs)
			engine_complete(j, io_u, cqe->res);
		else if (!take_in_pairs(u, j, io_u, cqe))
			continue;
		to[n++] = io_u;
	}
	io_uring_cq_advance(&u->ring, taken);
	u->requests -= taken;
	return n;
}

/*
 * The kernel took nothing: it lacks memory for requests, or wants completions
 * to be taken first. Take one, or wait for that. Returns 0 to try again, or the
 * errno of giving up.
 */
static __attribute__((cold)) int starved(struct uring *u, struct engine_job *j,
					 int err)
{
	struct io_uring_cqe *cqe;

	if (err == EINTR)
		return 0;
	if (err != EAGAIN && err != EBUSY)
		return err;

	if (u->requests && !io_uring_wait_cqe(&u->ring, &cqe)) {
		u->nr_early = reap(u, j, u->early, u->nr_early, u->depth);
		return 0;
	}
	usleep(1000);
	return u->starved++ < PATIENCE ? 0 : err;
}

/*
 * Let the kernel have what was queued, and wait until @wait completions are
 * there. Returns 0, after less than that perhaps, or a positive errno.
 */
static int enter(struct uring *u, struct engine_job *j, unsigned int wait)
{
	int ret = io_uring_submit_and_wait(&u->ring, wait);

	if (fio_unlikely(ret < 0))
		return starved(u, j, -ret);
	u->requests += ret;
	return 0;
}

/*
 * Take back what the kernel refused, and let the io_us complete with @err. One
 * whose transfer it has taken before completes with that.
 */
static __attribute__((cold)) void
withdraw(struct uring *u, struct engine_job *j, int err)
{
	struct io_uring_sq *sq = &u->ring.sq;
	unsigned int head = *sq->khead, i;

	for (i = head; i != sq->sqe_tail; i++) {
		const struct io_uring_sqe *sqe =
			&sq->sqes[(i & sq->ring_mask) << u->big];

		if (sqe->user_data & (FIRST_OF_PAIR | NOTHING))
			continue;
		u->early[u->nr_early] = (void *)(uintptr_t)sqe->user_data;
		engine_failed(j, u->early[u->nr_early++], err);
	}
	sq->sqe_head = sq->sqe_tail = head;
	*sq->ktail = head;
}

/*
 * The kernel may take the transfer of a pair and leave its flush, which is
 * linked to nothing then. It is its turn when the transfer has completed.
 */
static __attribute__((cold)) void part_pair(struct uring *u)
{
	struct io_uring_sq *sq = &u->ring.sq;
	struct io_uring_sqe *next = &sq->sqes[*sq->khead & sq->ring_mask];
	struct io_u *io_u = (void *)(uintptr_t)next->user_data;

	if (next->opcode != IORING_OP_FSYNC || io_u->index != BOTH)
		return;
	io_u->index = TRANSFER;
	io_uring_prep_nop(next);
	next->user_data = NOTHING;
}

/*
 * What the kernel left, after @err or without. Whoever has to wait for
 * completions does so afterwards.
 */
static __attribute__((cold)) void
submit_rest(struct uring *u, struct engine_job *j, int err)
{
	while (!err && io_uring_sq_ready(&u->ring)) {
		part_pair(u);
		err = enter(u, j, 0);
	}
	if (err)
		withdraw(u, j, err);
	u->starved = 0;
}

void uring_submit(struct uring *u, struct engine_job *j,
		  struct thread_data *td, unsigned int wait)
{
	struct timespec now;
	unsigned int i;
	int err;

	if (fio_fill_issue_time(td)) {
		fio_gettime(&now, NULL);
		for (i = 0; i < u->nr_prepared; i++) {
			u->prepared[i]->issue_time = now;
			io_u_queued(td, u->prepared[i]);
		}
	}
	io_u_mark_submit(td, u->nr_prepared);

	err = enter(u, j, wait);
	if (fio_unlikely(err || io_uring_sq_ready(&u->ring)))
		submit_rest(u, j, err);
	u->nr_prepared = 0;
}

/*
 * Completions to wait for where fio has got @events of @min: all, if that is
 * all io_us, else as many as are missing (of pairs, at least).
 */
static unsigned int missing(const struct uring *u, unsigned int events,
			    unsigned int min)
{
	if (min == u->held)
		return u->requests + io_uring_sq_ready(&u->ring);
	return events < min ? min - events : 0;
}

static __attribute__((cold)) unsigned int
take_early(struct uring *u, unsigned int events, unsigned int max)
{
	while (u->nr_early && events < max)
		u->done[events++] = u->early[--u->nr_early];
	return events;
}

/* Is there something for the kernel to do that it waits to be called for? */
static bool has_work(const struct uring *u)
{
	return io_uring_sq_ready(&u->ring) ||
		IO_URING_READ_ONCE(*u->ring.sq.kflags) & IORING_SQ_TASKRUN;
}

int uring_getevents(struct uring *u, struct engine_job *j,
		    struct thread_data *td, unsigned int min, unsigned int max)
{
	unsigned int events = 0;
	int err;

	if (u->nr_prepared)
		uring_submit(u, j, td,
			     u->nr_early ? 0 : missing(u, 0, min));
	else if (!min && has_work(u))
		enter(u, j, 0);

	for (;;) {
		if (fio_unlikely(u->nr_early))
			events = take_early(u, events, max);
		events = reap(u, j, u->done, events, max);
		if (events >= min)
			break;
		err = enter(u, j, missing(u, events, min));
		if (err)
			return -err;
	}
	u->held -= events;
	return events;
}
