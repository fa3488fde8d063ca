// SPDX-License-Identifier: GPL-2.0-only
/*
 * fua-dsync: what a durable direct write costs, by each way of asking for it.
 *
 * A write with O_DSYNC or RWF_DSYNC to a block device is sent with the FUA
 * bit, which makes it durable by itself; where the device has no FUA the
 * block layer sends a flush after it. A synchronous write then goes through
 * generic_write_sync() nevertheless, which issues one more flush. Linux up to
 * 7.3 does so always (block/fops.c, blkdev_write_iter()); later kernels do
 * not. An asynchronous write never did. So a sequential 4 KiB O_DSYNC writer
 * on a disk waits a revolution for each write, and the same disk under
 * io_uring does not.
 *
 * Each strategy is one way of asking, whatever the kernel:
 *
 *   dsync        pwrite(2) on O_DIRECT|O_DSYNC: the kernel's own path
 *   rwf-dsync    pwritev2(2) with RWF_DSYNC on O_DIRECT: the same, per write
 *   fua          io_uring write with RWF_DSYNC: FUA alone on every kernel
 *   fua-flush    as fua, then a linked fdatasync: the redundant flush, on
 *                every kernel
 *   write-flush  pwrite(2) on O_DIRECT, then fdatasync(2)
 *   nvme-fua     NVMe Write with the FUA bit by /dev/ngXnY (io_uring command):
 *                what the drive takes without the block layer
 *   scsi-fua     SCSI WRITE with the FUA bit by /dev/sgN or /dev/sdX (SG_IO):
 *                the same
 *   none         io_uring write on O_DIRECT: an upper bound, NOT durable
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/engine.h"
#include "common/uring.h"
#include "passthrough.h"

enum strategy {
	DSYNC = 1,
	RWF_DSYNC_WRITE,
	FUA,
	FUA_FLUSH,
	WRITE_FLUSH,
	NVME_FUA,
	SCSI_FUA,
	NONE,
};

/* How a strategy submits, and what a completed write of it is worth. */
static const struct {
	const char *name;
	int open_flags;
	bool async, pairs;	/* by io_uring; with a flush behind a write */
	int rw_flags;
	bool durable;		/* every write that completes is */
	enum passthrough_kind passthrough;
} strategies[] = {
	[DSYNC] = {
		.name = "dsync", .open_flags = O_DIRECT | O_DSYNC,
		.durable = true,
	},
	[RWF_DSYNC_WRITE] = {
		.name = "rwf-dsync", .open_flags = O_DIRECT,
		.rw_flags = RWF_DSYNC, .durable = true,
	},
	[FUA] = {
		.name = "fua", .open_flags = O_DIRECT, .async = true,
		.rw_flags = RWF_DSYNC, .durable = true,
	},
	[FUA_FLUSH] = {
		.name = "fua-flush", .open_flags = O_DIRECT, .async = true,
		.pairs = true, .rw_flags = RWF_DSYNC,
	},
	[WRITE_FLUSH] = {
		.name = "write-flush", .open_flags = O_DIRECT, .durable = true,
	},
	[NVME_FUA] = {
		.name = "nvme-fua", .async = true, .durable = true,
		.passthrough = PASSTHROUGH_NVME,
	},
	[SCSI_FUA] = {
		.name = "scsi-fua", .durable = true,
		.passthrough = PASSTHROUGH_SCSI,
	},
	[NONE] = {
		.name = "none", .open_flags = O_DIRECT, .async = true,
	},
};

struct fua_options {
	void *pad;		/* fio keeps td here */
	unsigned int strategy;
	char *destroy;
	char *counters;
};

static struct fio_option options[] = {
	{
		.name	= "strategy",
		.lname	= "Strategy",
		.type	= FIO_OPT_STR,
		.off1	= offsetof(struct fua_options, strategy),
		.help	= "How a write is made durable",
		.def	= "dsync",
		.posval	= {
			{ .ival = "dsync", .oval = DSYNC,
			  .help = "pwrite(2) on O_DIRECT|O_DSYNC: the kernel's own path (<= 7.3: FUA + flush; >= 7.4: FUA)" },
			{ .ival = "rwf-dsync", .oval = RWF_DSYNC_WRITE,
			  .help = "pwritev2(2) with RWF_DSYNC on O_DIRECT: as dsync, asked per write" },
			{ .ival = "fua", .oval = FUA,
			  .help = "io_uring write with RWF_DSYNC, any iodepth: FUA alone on every kernel" },
			{ .ival = "fua-flush", .oval = FUA_FLUSH,
			  .help = "as fua, then a linked fdatasync: the redundant flush on every kernel" },
			{ .ival = "write-flush", .oval = WRITE_FLUSH,
			  .help = "pwrite(2) on O_DIRECT, then fdatasync(2): devices without FUA" },
			{ .ival = "nvme-fua", .oval = NVME_FUA,
			  .help = "NVMe Write with the FUA bit by /dev/ngXnY, any iodepth: the drive without the block layer" },
			{ .ival = "scsi-fua", .oval = SCSI_FUA,
			  .help = "SCSI WRITE with the FUA bit by /dev/sgN or /dev/sdX: the drive without the block layer" },
			{ .ival = "none", .oval = NONE,
			  .help = "io_uring write on O_DIRECT, any iodepth: an upper bound, NOT durable" },
		},
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	ENGINE_DESTROY_OPTION(struct fua_options, destroy),
	ENGINE_COUNTERS_OPTION(struct fua_options, counters),
	{ .name	= NULL },
};

struct fua_job {
	struct engine_job job;
	enum strategy strategy;
	int rw_flags;		/* of a write */
	bool async;
	/* In this order one comparison tells them apart. */
	enum { BY_COMMAND = -1, BY_RING, BY_CALL } way;
	struct uring uring;	/* if async */
	struct passthrough passthrough;
};

static struct ioengine_ops fua_dsync;

static int fua_init(struct thread_data *td)
{
	struct fua_options *o = td->eo;
	struct fua_job *fj;
	int ret;

	if (engine_check_layout(td, &fua_dsync))
		return 1;
	fj = calloc(1, sizeof(*fj));
	if (!fj)
		return 1;
	fj->strategy = o->strategy;
	fj->uring.ring.ring_fd = -1;	/* not there yet */
	fj->rw_flags = strategies[o->strategy].rw_flags;
	fj->async = strategies[o->strategy].async;
	fj->way = strategies[o->strategy].passthrough ? BY_COMMAND :
		  fj->async ? BY_RING : BY_CALL;

	ret = engine_job_init(&fj->job, td, &fua_dsync,
			      strategies[o->strategy].name, o->counters,
			      o->destroy, fj->async ? 0 : 1);
	if (ret)
		goto free;

	if (fj->way == BY_COMMAND)
		ret = passthrough_init(&fj->passthrough,
				       strategies[o->strategy].passthrough,
				       &fj->job, &fj->uring, td);
	else if (fj->way == BY_RING)
		ret = uring_init(&fj->uring, &fj->job, td,
				 strategies[o->strategy].pairs, 0);
	if (ret)
		goto uring;
	if (!fj->async)
		engine_set_flags(td, FIO_SYNCIO);

	td->io_ops_data = fj;
	return 0;
uring:
	uring_exit(&fj->uring);
	engine_job_abort(&fj->job);
free:
	free(fj);
	td_verror(td, ret, "fua-dsync init");
	return 1;
}

static void fua_cleanup(struct thread_data *td)
{
	struct fua_job *fj = td->io_ops_data;

	/* Also called after an init that failed. */
	if (!fj)
		return;
	if (fj->async)
		uring_exit(&fj->uring);
	/* A pair's is counted with its flush. */
	if (strategies[fj->strategy].durable)
		fj->job.durable_writes = fj->job.writes;
	engine_job_exit(&fj->job, td, NULL);
	free(fj);
	td->io_ops_data = NULL;
}

static int fua_open_file(struct thread_data *td, struct fio_file *f)
{
	struct fua_job *fj = td->io_ops_data;

	if (engine_check_layout(td, &fua_dsync))
		return 1;
	/* Before ->init(): fio asks a device for its size. */
	if (!fj)
		return engine_open_file(NULL, td, f, 0);
	return engine_open_file(&fj->job, td, f,
				strategies[fj->strategy].open_flags);
}

/* The first hook that fio calls, or with create_serialize=0 after ->init(). */
static int fua_get_file_size(struct thread_data *td, struct fio_file *f)
{
	const struct fua_options *o = td->eo;

	if (engine_check_layout(td, &fua_dsync))
		return 1;
	if (!strategies[o->strategy].passthrough)
		return engine_get_file_size(td, f, &fua_dsync, o->destroy);
	if (engine_claim_files(td, &fua_dsync, o->destroy, f))
		return 1;
	return passthrough_get_file_size(strategies[o->strategy].passthrough,
					 &fua_dsync, td, f);
}

/* One write by system calls. Returns bytes or -errno. */
static ssize_t write_sync(struct fua_job *fj, struct io_u *io_u)
{
	ssize_t ret;
	int err;

	switch (fj->strategy) {
	case DSYNC:
		return engine_transfer(io_u, 0);
	case RWF_DSYNC_WRITE:
		return engine_transfer(io_u, RWF_DSYNC);
	default:
		ret = engine_transfer(io_u, 0);
		if (ret <= 0)
			return ret;
		err = engine_flush(&fj->job, io_u->file->fd, true);
		return err ? -err : ret;
	}
}

/* A sync beside the ring. What was queued before it belongs before it. */
static __attribute__((noinline)) enum fio_q_status
sync_async(struct thread_data *td, struct io_u *io_u, struct fua_job *fj)
{
	uring_commit(&fj->uring, &fj->job, td);
	fio_gettime(&io_u->issue_time, NULL);
	io_u->error = engine_sync(&fj->job, io_u);
	return engine_completed(&fj->job, td, io_u);
}

/* Out of line, as what it keeps in registers is not for strategy=fua to pay. */
static __attribute__((noinline)) enum fio_q_status
queue_sync(struct thread_data *td, struct io_u *io_u, struct fua_job *fj)
{
	if (io_u->ddir == DDIR_WRITE)
		engine_complete_as(DDIR_WRITE, &fj->job, io_u,
				   write_sync(fj, io_u));
	else if (io_u->ddir == DDIR_READ)
		engine_complete_as(DDIR_READ, &fj->job, io_u,
				   engine_transfer(io_u, 0));
	else
		io_u->error = engine_sync(&fj->job, io_u);
	/* fio does so itself for an engine without ->commit(). */
	io_u_mark_submit(td, 1);
	io_u_mark_complete(td, 1);
	return engine_completed(&fj->job, td, io_u);
}

static enum fio_q_status fua_queue(struct thread_data *td, struct io_u *io_u)
{
	struct fua_job *fj = td->io_ops_data;

	fio_ro_check(td, io_u);

	if (fj->way > BY_RING)
		return queue_sync(td, io_u, fj);
	if (fj->way < BY_RING)
		return passthrough_queue(td, io_u, &fj->passthrough);
	if (ddir_rw(io_u->ddir))
		return uring_queue(&fj->uring, io_u, io_u->ddir == DDIR_WRITE ?
				   fj->rw_flags : 0);
	return sync_async(td, io_u, fj);
}

static int fua_commit(struct thread_data *td)
{
	struct fua_job *fj = td->io_ops_data;

	/* Of a strategy without a ring nothing is queued. */
	uring_commit(&fj->uring, &fj->job, td);
	return 0;
}

static int fua_getevents(struct thread_data *td, unsigned int min,
			 unsigned int max, const struct timespec *t)
{
	struct fua_job *fj = td->io_ops_data;

	return uring_getevents(&fj->uring, &fj->job, td, min, max);
}

static struct io_u *fua_event(struct thread_data *td, int event)
{
	struct fua_job *fj = td->io_ops_data;

	return fj->uring.done[event];
}

static struct ioengine_ops fua_dsync = {
	.name			= "fua-dsync",
	.version		= FIO_IOOPS_VERSION,
	/* RAWIO aligns the buffers: the engine opens O_DIRECT by itself. */
	.flags			= FIO_RAWIO | FIO_ASYNCIO_SETS_ISSUE_TIME,
	.init			= fua_init,
	.cleanup		= fua_cleanup,
	.queue			= fua_queue,
	.commit			= fua_commit,
	.getevents		= fua_getevents,
	.event			= fua_event,
	.open_file		= fua_open_file,
	.close_file		= engine_close_file,
	.get_file_size		= fua_get_file_size,
	.options		= options,
	.option_struct_size	= sizeof(struct fua_options),
};

DURABENCH_ENGINE(fua_dsync)
