// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commands to a drive as the strategies of fua-dsync; see passthrough.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "nvme-fua.h"
#include "passthrough.h"
#include "scsi-fua.h"

/* Returns 0, or -errno with @d->error. */
static int identify(struct drive *d, enum passthrough_kind kind,
		    const char *path)
{
	int fd, ret;

	d->path = path;
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return drive_error(d, errno, "%s: %s", path, strerror(errno));
	ret = kind == PASSTHROUGH_NVME ? nvme_fua_identify(d, fd) :
					 scsi_fua_identify(d, fd);
	close(fd);
	return ret;
}

int passthrough_get_file_size(enum passthrough_kind kind,
			      const struct ioengine_ops *ops,
			      struct thread_data *td, struct fio_file *f)
{
	const struct engine_job j = { .engine = ops->name };
	struct drive d = { 0 };

	if (fio_file_size_known(f))
		return 0;
	if (identify(&d, kind, f->file_name)) {
		/* The clones of a job (numjobs=) would all say the same. */
		if (!td->subjob_number)
			engine_error(&j, td, "%s", d.error);
		engine_refused(td, "drive");
		return 1;
	}
	f->real_file_size = d.size;
	fio_file_set_size_known(f);
	return 0;
}

/* Can the job write to it? Returns 0, or -errno with @d->error. */
static int check_writes(struct drive *d)
{
	if (d->no_fua)
		return drive_error(d, EOPNOTSUPP,
				   "%s: the drive takes no FUA writes (DPOFUA is 0; for a SATA drive the kernel can allow them: libata.fua=1); take strategy=write-flush on its block device",
				   d->path);
	if (d->write_protected)
		return drive_error(d, EROFS, "%s: the drive is write protected",
				   d->path);
	return 0;
}

/* What became of an NVMe command: bytes or -errno. */
static ssize_t nvme_result(void *data, const struct io_u *io_u, int res);

int passthrough_init(struct passthrough *p, enum passthrough_kind kind,
		     struct engine_job *j, struct uring *u,
		     struct thread_data *td)
{
	struct drive *d = &p->drive;
	int ret;

	p->kind = kind;
	p->job = j;
	p->uring = u;

	if (td->o.nr_files != 1) {
		engine_error(j, td,
			     "strategy=%s is for one drive; give one filename=, and further drives to jobs of their own",
			     j->strategy);
		return EINVAL;
	}
	ret = identify(d, kind, td->files[0]->file_name);
	if (!ret && engine_writes(td))
		ret = check_writes(d);
	if (!ret && td_read(td))
		ret = drive_check_bs(d, td->o.min_bs[DDIR_READ],
				     td->o.max_bs[DDIR_READ]);
	if (!ret && td_write(td))
		ret = drive_check_bs(d, td->o.min_bs[DDIR_WRITE],
				     td->o.max_bs[DDIR_WRITE]);
	if (ret) {
		engine_error(j, td, "%s", d->error);
		return -ret;
	}
	if (kind == PASSTHROUGH_NVME) {
		ret = uring_init(u, j, td, false,
				 IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
		u->result = nvme_result;
		u->data = p;
	}
	return ret;
}

/* Say once why a command failed. */
static void tell(struct passthrough *p)
{
	if (!p->job->told)
		engine_error(p->job, NULL, "%s", p->drive.error);
	p->job->told = true;
}

static ssize_t nvme_result(void *data, const struct io_u *io_u, int res)
{
	struct passthrough *p = data;
	int ret;

	ret = nvme_fua_result(&p->drive, io_u->ddir == DDIR_WRITE ? "Write" :
			      "Read", res);
	if (!ret)
		return io_u->xfer_buflen;
	tell(p);
	return ret;
}

static enum fio_q_status queue_nvme(struct passthrough *p, struct io_u *io_u)
{
	struct io_uring_sqe *sqe = uring_next(p->uring, io_u);

	if (!sqe)
		return FIO_Q_BUSY;
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, io_u->file->fd, NULL, 0, 0);
	sqe->cmd_op = NVME_URING_CMD_IO;
	io_uring_sqe_set_data(sqe, io_u);
	nvme_fua_command((struct nvme_uring_cmd *)sqe->cmd, &p->drive,
			 io_u->ddir == DDIR_WRITE, io_u->xfer_buf,
			 io_u->xfer_buflen, io_u->offset);
	return FIO_Q_QUEUED;
}

static void transfer_scsi(struct passthrough *p, struct io_u *io_u)
{
	ssize_t ret = scsi_fua_transfer(&p->drive, io_u->file->fd,
					io_u->ddir == DDIR_WRITE,
					io_u->xfer_buf, io_u->xfer_buflen,
					io_u->offset);

	if (ret < 0)
		tell(p);
	engine_complete(p->job, io_u, ret);
}

static void flush(struct passthrough *p, struct io_u *io_u)
{
	int fd = io_u->file->fd;
	int ret = p->kind == PASSTHROUGH_NVME ?
		nvme_fua_flush(&p->drive, fd) : scsi_fua_flush(&p->drive, fd);

	p->job->flush_calls++;
	if (!ret) {
		p->job->syncs++;
		return;
	}
	tell(p);
	io_u->error = -ret;
}

enum fio_q_status passthrough_queue(struct thread_data *td, struct io_u *io_u,
				    struct passthrough *p)
{
	bool nvme = p->kind == PASSTHROUGH_NVME;
	struct drive *d = &p->drive;

	if (!ddir_rw(io_u->ddir)) {
		if (nvme) {
			/* What was queued before it belongs before it. */
			uring_commit(p->uring, p->job, td);
			fio_gettime(&io_u->issue_time, NULL);
		}
		flush(p, io_u);
	} else if (!drive_takes(d, io_u->offset, io_u->xfer_buflen)) {
		drive_error(d, EINVAL,
			    "%s: %llu bytes at %llu: not multiples of its logical block size of %u, or more than the %u that one command carries",
			    d->path, io_u->xfer_buflen, io_u->offset,
			    1U << d->lba_shift, d->max_transfer);
		tell(p);
		engine_complete(p->job, io_u, -EINVAL);
	} else if (nvme) {
		return queue_nvme(p, io_u);
	} else {
		transfer_scsi(p, io_u);
	}

	if (!nvme) {
		/* fio does so itself for an engine without ->commit(). */
		io_u_mark_submit(td, 1);
		io_u_mark_complete(td, 1);
	}
	return FIO_Q_COMPLETED;
}
