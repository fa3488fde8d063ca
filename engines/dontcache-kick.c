// SPDX-License-Identifier: GPL-2.0-only
/*
 * dontcache-kick: buffered writes that do not fill the page cache, and what
 * each way of getting their pages written and dropped costs.
 *
 * A write with RWF_DONTCACHE (Linux >= 6.14, where the file system takes part)
 * marks its pages to be dropped when they have been written back. Up to 7.1
 * the writer itself starts that writeback after each write, so many writers
 * contend and wait for the device. Since 7.2 a write only kicks the flusher
 * of its backing device, which writes back as many pages as are dirty, oldest
 * first; kicks that find it asked already are free.
 *
 * Each strategy is one way of doing it:
 *
 *   buffered   pwrite(2): the baseline, pages stay
 *   dontcache  pwritev2(2), preadv2(2) with RWF_DONTCACHE: the kernel's own
 *   inline     pwrite(2), then sync_file_range(2) of its range to start
 *              writeback, and later posix_fadvise(2) to drop it, all in the
 *              writer: Linux 6.16 to 7.1, on every kernel
 *   kick       pwrite(2), and a thread that does the rest (kick.h): Linux
 *              >= 7.2, on every kernel
 *   direct     pwrite(2) on O_DIRECT: the other way out
 *
 * With submit=io_uring the transfers are io_uring requests; what follows a
 * write in the writer is then done when it completes.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "common/engine.h"
#include "common/uring.h"
#include "kick.h"

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE	0x00000080	/* linux/fs.h since 6.14 */
#endif

/*
 * Bytes by which the drop of strategy=inline lags, so that most writeback has
 * ended by then; and the most ranges it can lag by.
 */
#define INLINE_LAG	(64ULL << 20)
#define INLINE_RANGES	(1U << 14)

enum strategy {
	BUFFERED = 1,
	DONTCACHE,
	INLINE,
	KICK,
	DIRECT,
};

static const char *const strategies[] = {
	[BUFFERED]  = "buffered",
	[DONTCACHE] = "dontcache",
	[INLINE]    = "inline",
	[KICK]	    = "kick",
	[DIRECT]    = "direct",
};

enum submit {
	PWRITEV2 = 1,
	IO_URING,
};

struct dontcache_options {
	void *pad;		/* fio keeps td here */
	unsigned int strategy;
	unsigned int submit;
	unsigned long long kick_backlog;
	char *destroy;
	char *counters;
};

static struct fio_option options[] = {
	{
		.name	= "strategy",
		.lname	= "Strategy",
		.type	= FIO_OPT_STR,
		.off1	= offsetof(struct dontcache_options, strategy),
		.help	= "How written pages leave the page cache",
		.def	= "dontcache",
		.posval	= {
			{ .ival = "buffered", .oval = BUFFERED,
			  .help = "pwrite(2): they stay, the baseline" },
			{ .ival = "dontcache", .oval = DONTCACHE,
			  .help = "pwritev2(2) and preadv2(2) with RWF_DONTCACHE: the kernel's own path (6.16 to 7.1: the writer starts writeback; >= 7.2: it kicks the flusher)" },
			{ .ival = "inline", .oval = INLINE,
			  .help = "pwrite(2), then sync_file_range(2) in the writer, later a drop: as 6.16 to 7.1, on every kernel" },
			{ .ival = "kick", .oval = KICK,
			  .help = "pwrite(2), and a flusher thread that writes back and drops: as >= 7.2, on every kernel" },
			{ .ival = "direct", .oval = DIRECT,
			  .help = "pwrite(2) on O_DIRECT: none is used" },
		},
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= "submit",
		.lname	= "Submission",
		.type	= FIO_OPT_STR,
		.off1	= offsetof(struct dontcache_options, submit),
		.help	= "How transfers are submitted",
		.def	= "pwritev2",
		.posval	= {
			{ .ival = "pwritev2", .oval = PWRITEV2,
			  .help = "by a system call, pwrite(2) where the strategy needs no flag; iodepth=1" },
			{ .ival = "io_uring", .oval = IO_URING,
			  .help = "by io_uring, any iodepth" },
		},
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= "kick_backlog",
		.lname	= "Kick backlog",
		.type	= FIO_OPT_STR_VAL,
		.off1	= offsetof(struct dontcache_options, kick_backlog),
		.help	= "strategy=kick: bytes dirty or in writeback on a file system above which a write waits for the flusher; the jobs that write to it have equal parts of them, and a write counts as 4096 at least",
		.def	= "64m",
		.minval	= 4096,
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	ENGINE_DESTROY_OPTION(struct dontcache_options, destroy),
	ENGINE_COUNTERS_OPTION(struct dontcache_options, counters),
	{ .name	= NULL },
};

/* A range whose writeback was started by strategy=inline. */
struct started {
	int fd;
	uint64_t offset, bytes;
};

struct dontcache_job {
	struct engine_job job;
	enum strategy strategy;
	bool async;
	struct uring uring;	/* if async */
	struct kick kick;	/* strategy=kick */

	/* strategy=inline: what is to be dropped, oldest at tail */
	struct started *started;
	unsigned int head, tail;
	uint64_t lag;		/* bytes of these */

	struct kick_stats stats;	/* strategy=kick: at the end */
};

static struct ioengine_ops dontcache_kick;

static int dontcache_init(struct thread_data *td)
{
	struct dontcache_options *o = td->eo;
	struct dontcache_job *dj;
	int ret;

	if (engine_check_layout(td, &dontcache_kick))
		return 1;
	dj = calloc(1, sizeof(*dj));
	if (!dj)
		return 1;
	dj->strategy = o->strategy;
	dj->async = o->submit == IO_URING;

	ret = engine_job_init(&dj->job, td, &dontcache_kick,
			      strategies[o->strategy], o->counters, o->destroy,
			      0);
	if (ret)
		goto free;

	ret = EINVAL;
	if (td->o.odirect && dj->strategy != DIRECT) {
		engine_error(&dj->job, td,
			     "direct=1 and strategy=%s exclude each other; remove direct=1, or take strategy=direct",
			     dj->job.strategy);
		goto abort;
	}
	if (td->o.iodepth > 1 && !dj->async) {
		engine_error(&dj->job, td,
			     "submit=pwritev2 submits one I/O at a time; iodepth=%u needs submit=io_uring, or more jobs (numjobs=)",
			     td->o.iodepth);
		goto abort;
	}

	if (dj->strategy == INLINE) {
		dj->started = calloc(INLINE_RANGES, sizeof(*dj->started));
		if (!dj->started) {
			ret = ENOMEM;
			goto abort;
		}
	}
	kick_init(&dj->kick, o->kick_backlog);

	if (dj->async) {
		ret = uring_init(&dj->uring, &dj->job, td, false, 0);
		if (ret)
			goto uring;
	} else {
		engine_set_flags(td, FIO_SYNCIO);
	}

	td->io_ops_data = dj;
	return 0;
uring:
	uring_exit(&dj->uring);
	free(dj->started);
abort:
	engine_job_abort(&dj->job);
free:
	free(dj);
	td_verror(td, ret, "dontcache-kick init");
	return 1;
}

/* Say once which file's writeback failed in a flusher. */
static int tell_flusher_error(struct dontcache_job *dj)
{
	int err = kick_error(&dj->kick);

	if (!err || dj->job.told)
		return err;
	dj->job.told = true;
	engine_error(&dj->job, NULL, "%s: writeback: %s", dj->kick.failed,
		     strerror(err));
	if (!dj->job.error)
		dj->job.error = err;
	return err;
}

static void dontcache_cleanup(struct thread_data *td)
{
	struct dontcache_job *dj = td->io_ops_data;
	struct kick_stats *stats;
	int err;

	/* Also called after an init that failed. */
	if (!dj)
		return;
	if (dj->async)
		uring_exit(&dj->uring);

	stats = &dj->stats;
	kick_exit(&dj->kick, stats);
	err = tell_flusher_error(dj);
	if (err && !td->error)
		td_verror(td, err, "writeback");

	engine_job_exit(&dj->job, td, (const struct counter[]) {
		{ "kicks", stats->kicks },
		{ "kicks_coalesced", stats->kicks_coalesced },
		{ "writeback_bytes", stats->writeback_bytes },
		{ "dropped_bytes", stats->dropped_bytes },
		{ "throttled", stats->throttled },
		{ "throttled_ns", stats->throttled_ns },
		{ NULL, 0 },
	});
	free(dj->kick.failed);
	free(dj->started);
	free(dj);
	td->io_ops_data = NULL;
}

/* ---- files ------------------------------------------------------------ */

/*
 * File systems by the type of statfs(2): for messages, and because on some
 * sync_file_range(2) succeeds without doing anything.
 */
static const struct filesystem {
	unsigned long type;
	const char *name;
	bool no_writeback;
} filesystems[] = {
	{ TMPFS_MAGIC,		"tmpfs",	true },
	{ RAMFS_MAGIC,		"ramfs",	true },
	{ HUGETLBFS_MAGIC,	"hugetlbfs",	true },
	{ OVERLAYFS_SUPER_MAGIC, "overlayfs",	true },
	{ EXT4_SUPER_MAGIC,	"ext4",		false },	/* and ext2, ext3 */
	{ XFS_SUPER_MAGIC,	"xfs",		false },
	{ BTRFS_SUPER_MAGIC,	"btrfs",		false },
	{ F2FS_SUPER_MAGIC,	"f2fs",		false },
	{ NFS_SUPER_MAGIC,	"nfs",		false },
	{ FUSE_SUPER_MAGIC,	"fuse",		false },
};

/* What @f is on. Another file system is named by its type. */
static struct filesystem filesystem_of(const struct fio_file *f, char *buf,
				       size_t len)
{
	struct filesystem fs = { .name = buf };
	struct statfs st;
	size_t i;

	if (f->filetype == FIO_TYPE_BLOCK) {
		fs.name = "block devices";
		return fs;
	}
	if (fstatfs(f->fd, &st) < 0) {
		fs.name = "its file system";
		return fs;
	}
	for (i = 0; i < ARRAY_SIZE(filesystems); i++)
		if (filesystems[i].type == (unsigned long)st.f_type)
			return filesystems[i];
	snprintf(buf, len, "file systems of type 0x%lx",
		 (unsigned long)st.f_type);
	return fs;
}

/*
 * Refuse here, once, what would fail at each I/O or have no effect. Returns 0
 * or a positive errno after a message.
 */
static int check_file(struct dontcache_job *dj, struct thread_data *td,
		      const struct fio_file *f)
{
	struct iovec iov = { .iov_base = &(char){ 0 }, .iov_len = 1 };
	const off_t nowhere = INT64_MAX - 1;
	struct utsname kernel;
	struct filesystem fs;
	char buf[48];

	fs = filesystem_of(f, buf, sizeof(buf));
	switch (dj->strategy) {
	case DONTCACHE:
		/*
		 * Nothing is there to be read, but the flag is looked at
		 * first; without a byte to read it would not be.
		 */
		if (preadv2(f->fd, &iov, 1, nowhere, RWF_DONTCACHE) >= 0 ||
		    errno != EOPNOTSUPP)
			return 0;
		uname(&kernel);
		engine_error(&dj->job, td,
			     "%s: strategy=dontcache: Linux %s has no RWF_DONTCACHE for %s; take %s",
			     f->file_name, kernel.release, fs.name,
			     fs.no_writeback ? "a file on another file system" :
			     "strategy=kick, which does the same on every kernel");
		return EOPNOTSUPP;
	case INLINE:
	case KICK:
		if (!fs.no_writeback)
			return 0;
		engine_error(&dj->job, td,
			     "%s: strategy=%s: sync_file_range(2) starts no writeback on %s; take a file on another file system, or strategy=buffered",
			     f->file_name, dj->job.strategy, fs.name);
		return EOPNOTSUPP;
	default:
		return 0;
	}
}

/* The first hook that fio calls, or with create_serialize=0 after ->init(). */
static int dontcache_get_file_size(struct thread_data *td, struct fio_file *f)
{
	const struct dontcache_options *o = td->eo;

	if (engine_check_layout(td, &dontcache_kick))
		return 1;
	return engine_get_file_size(td, f, &dontcache_kick, o->destroy);
}

static int dontcache_open_file(struct thread_data *td, struct fio_file *f)
{
	struct dontcache_job *dj = td->io_ops_data;
	struct kick_file *file;
	int ret;

	if (engine_check_layout(td, &dontcache_kick))
		return 1;
	/* Before ->init(): fio asks a device for its size. */
	if (!dj)
		return engine_open_file(NULL, td, f, 0);

	if (engine_open_file(&dj->job, td, f,
			     dj->strategy == DIRECT ? O_DIRECT : 0))
		return 1;

	ret = check_file(dj, td, f);
	if (!ret && dj->strategy == KICK && td_write(td)) {
		ret = kick_open(&dj->kick, f->fd, f->file_name, &file);
		if (!ret)
			FILE_SET_ENG_DATA(f, file);
		else
			engine_error(&dj->job, td,
				     "%s: strategy=kick: the flusher can't be made: %s; take a smaller kick_backlog=, or fewer jobs",
				     f->file_name, strerror(ret));
	}
	if (!ret)
		return 0;
	engine_close_file(td, f);
	td_verror(td, ret, "dontcache-kick open");
	return 1;
}

/* Drop the oldest range of strategy=inline; dirty pages of it stay. */
static void drop_oldest(struct dontcache_job *dj)
{
	struct started *s = &dj->started[dj->tail++ % INLINE_RANGES];

	posix_fadvise(s->fd, s->offset, s->bytes, POSIX_FADV_DONTNEED);
	dj->lag -= s->bytes;
	dj->stats.dropped_bytes += s->bytes;
}

static int dontcache_close_file(struct thread_data *td, struct fio_file *f)
{
	struct dontcache_job *dj = td->io_ops_data;
	int err;

	if (dj && dj->strategy == KICK && td_write(td)) {
		/* It has more to do with the descriptor, then closes it. */
		kick_close(FILE_ENG_DATA(f));
		f->fd = -1;
		return 0;
	}
	if (dj && dj->strategy == INLINE && td_write(td)) {
		while (dj->tail != dj->head)
			drop_oldest(dj);
		/* What was still in writeback when its turn came. */
		err = kick_flush_and_drop(f->fd, 0, 0);
		if (err) {
			engine_error(&dj->job, td, "%s: writeback: %s",
				     f->file_name, strerror(err));
			if (!dj->job.error)
				dj->job.error = err;
			td_verror(td, err, "writeback");
		}
	}
	return engine_close_file(td, f);
}

/* ---- transfers -------------------------------------------------------- */

static int rw_flags(const struct dontcache_job *dj)
{
	return dj->strategy == DONTCACHE ? RWF_DONTCACHE : 0;
}

/* strategy=inline, for what was written. Returns 0 or a positive errno. */
static int start_writeback(struct dontcache_job *dj, struct fio_file *f,
			   uint64_t offset, uint64_t bytes)
{
	if (sync_file_range(f->fd, offset, bytes, SYNC_FILE_RANGE_WRITE) < 0)
		return errno;
	dj->stats.writeback_bytes += bytes;

	dj->started[dj->head++ % INLINE_RANGES] = (struct started) {
		.fd = f->fd, .offset = offset, .bytes = bytes,
	};
	dj->lag += bytes;
	while (dj->lag > INLINE_LAG || dj->head - dj->tail == INLINE_RANGES)
		drop_oldest(dj);
	return 0;
}

/* A transfer is complete: do what the strategy has to do about a write. */
static void completed(struct dontcache_job *dj, struct io_u *io_u)
{
	uint64_t bytes;
	int err;

	if (dj->strategy != INLINE && dj->strategy != KICK)
		return;
	bytes = io_u->xfer_buflen - io_u->resid;
	if (io_u->ddir != DDIR_WRITE || io_u->error || !bytes)
		return;

	if (dj->strategy == INLINE) {
		err = start_writeback(dj, io_u->file, io_u->offset, bytes);
	} else {
		err = kick_write(FILE_ENG_DATA(io_u->file), io_u->offset,
				 bytes);
		if (err)
			tell_flusher_error(dj);
	}
	if (err)
		engine_write_failed(&dj->job, io_u, err);
}

static enum fio_q_status dontcache_queue(struct thread_data *td,
					 struct io_u *io_u)
{
	struct dontcache_job *dj = td->io_ops_data;

	fio_ro_check(td, io_u);

	if (ddir_rw(io_u->ddir) && dj->async)
		return uring_queue(&dj->uring, io_u, rw_flags(dj));

	if (ddir_rw(io_u->ddir)) {
		engine_complete(&dj->job, io_u,
				engine_transfer(io_u, rw_flags(dj)));
		completed(dj, io_u);
	} else {
		if (dj->async) {
			/* What was queued before it belongs before it. */
			uring_commit(&dj->uring, &dj->job, td);
			fio_gettime(&io_u->issue_time, NULL);
		}
		io_u->error = engine_sync(&dj->job, io_u);
	}

	if (!dj->async) {
		/* fio does so itself for an engine without ->commit(). */
		io_u_mark_submit(td, 1);
		io_u_mark_complete(td, 1);
	}
	return engine_completed(&dj->job, td, io_u);
}

static int dontcache_commit(struct thread_data *td)
{
	struct dontcache_job *dj = td->io_ops_data;

	if (dj->async)
		uring_commit(&dj->uring, &dj->job, td);
	return 0;
}

static int dontcache_getevents(struct thread_data *td, unsigned int min,
			       unsigned int max, const struct timespec *t)
{
	struct dontcache_job *dj = td->io_ops_data;
	int events, i;

	events = uring_getevents(&dj->uring, &dj->job, td, min, max);
	for (i = 0; i < events; i++)
		completed(dj, dj->uring.done[i]);
	return events;
}

static struct io_u *dontcache_event(struct thread_data *td, int event)
{
	struct dontcache_job *dj = td->io_ops_data;

	return dj->uring.done[event];
}

static struct ioengine_ops dontcache_kick = {
	.name			= "dontcache-kick",
	.version		= FIO_IOOPS_VERSION,
	/* RAWIO aligns the buffers: strategy=direct opens O_DIRECT itself. */
	.flags			= FIO_RAWIO | FIO_ASYNCIO_SETS_ISSUE_TIME,
	.init			= dontcache_init,
	.cleanup		= dontcache_cleanup,
	.queue			= dontcache_queue,
	.commit			= dontcache_commit,
	.getevents		= dontcache_getevents,
	.event			= dontcache_event,
	.open_file		= dontcache_open_file,
	.close_file		= dontcache_close_file,
	.get_file_size		= dontcache_get_file_size,
	.options		= options,
	.option_struct_size	= sizeof(struct dontcache_options),
};

DURABENCH_ENGINE(dontcache_kick)
