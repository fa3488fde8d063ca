// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-linear-flush: what a flush costs when a table of linear targets lies
 * between the file system and the disk.
 *
 * An fdatasync(2) on a device-mapper device writes back the page cache of that
 * device, then sends an empty flush bio down the table. Linux up to 6.10 sends
 * one to every target, all at once (drivers/md/dm.c, __send_empty_flush()), so
 * that a device which maps a thousand extents of one disk flushes that disk a
 * thousand times. Since 6.11 it sends one to every device of the table, if all
 * targets say that they can do with that; linear and stripe do.
 *
 * Writes are buffered, fio's fdatasync= or fsync= asks for the flushes, and
 * each strategy is one way of doing them, whatever the kernel:
 *
 *   kernel      fdatasync(2) on the device-mapper device: the kernel's own way
 *   per-target  write back, then one flush to the device below for every
 *               target of the table, concurrently
 *   per-device  write back, then one flush for every device below
 *
 * The table is the live one of a device-mapper device, or comes from table=.
 * That one is mapped here, by splitting the I/O at the borders of targets, so
 * it needs no device-mapper, no root, and maps regular files as well.
 *
 * A flush is an fdatasync(2) of the device below (fsync(2) for fsync=), by a
 * pool of threads where there are several. It also writes back what other jobs
 * have dirtied in the page cache of that device meanwhile, which an empty flush
 * bio does not.
 *
 * With coalesce=1 the jobs that wait for the same flushes share them
 * (group-commit.h):
 *
 *   kernel      the fdatasync(2), by the jobs of one device or file
 *   per-target  all flushes of a sync, by the jobs of one table or
 *               device-mapper device
 *   per-device  each flush, by the jobs whose tables have its device
 *
 * One flush does for all, since a device or file has one page cache, whatever
 * it was opened by, and O_DIRECT writes are in the device's cache when they
 * complete. With table= the data is in the page cache of the devices below,
 * which their flushes write back, so nothing else does then. An fsync(2) is
 * shared apart from an fdatasync(2), which writes less of a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/engine.h"
#include "flush-pool.h"
#include "group-commit.h"
#include "linear-table.h"
#include "live-table.h"

enum strategy {
	KERNEL = 1,
	PER_TARGET,
	PER_DEVICE,
};

static const char *const strategies[] = {
	[KERNEL]	= "kernel",
	[PER_TARGET]	= "per-target",
	[PER_DEVICE]	= "per-device",
};

struct dm_options {
	void *pad;		/* fio keeps td here */
	unsigned int strategy;
	char *table;
	unsigned int coalesce;
	char *destroy;
	char *counters;
};

static struct fio_option options[] = {
	{
		.name	= "strategy",
		.lname	= "Strategy",
		.type	= FIO_OPT_STR,
		.off1	= offsetof(struct dm_options, strategy),
		.help	= "How fdatasync= and fsync= flush the devices below the table",
		.def	= "kernel",
		.posval	= {
			{ .ival = "kernel", .oval = KERNEL,
			  .help = "fdatasync(2) on the device-mapper device: the kernel's own way (<= 6.10: a flush a target; >= 6.11: a flush a device)" },
			{ .ival = "per-target", .oval = PER_TARGET,
			  .help = "write back, then one concurrent flush for every target of the table" },
			{ .ival = "per-device", .oval = PER_DEVICE,
			  .help = "write back, then one flush for every device of the table" },
		},
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= "table",
		.lname	= "Table",
		.type	= FIO_OPT_STR_STORE,
		.off1	= offsetof(struct dm_options, table),
		.help	= "Table in dmsetup's format, mapped by the engine: lines of \"start length linear device offset\" (or \"start length zero\"), numbers in sectors of 512 bytes, device a block device or regular file by path, or major:minor; filename= then only names the mapped device",
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= "coalesce",
		.lname	= "Coalesce flushes",
		.type	= FIO_OPT_BOOL,
		.off1	= offsetof(struct dm_options, coalesce),
		.help	= "Share flushes with the other jobs that wait for the same ones (group commit): one that began after a job's writes completed is enough for it",
		.def	= "0",
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	ENGINE_DESTROY_OPTION(struct dm_options, destroy),
	ENGINE_COUNTERS_OPTION(struct dm_options, counters),
	{ .name	= NULL },
};

struct dm_job {
	struct engine_job job;
	enum strategy strategy;
	bool mapped;			/* I/O goes by the table */
	struct linear_table table;	/* but for strategy=kernel */
	int *flush_fds;			/* one for each flush of a sync */
	unsigned int nr_flushes;
	struct flush_pool pool;
	bool datasync;			/* the sync in progress */
	struct group_commit *commits[2]; /* by datasync, with coalesce=1 */
	unsigned int nr_commits;	/* of a sync */
	uint64_t flushes_shared;
};

static struct ioengine_ops dm_linear_flush;

static const char *table_option(const struct thread_data *td)
{
	const struct dm_options *o = td->eo;

	return o->table && *o->table ? o->table : NULL;
}

static int open_flags(const struct thread_data *td)
{
	return td->o.odirect ? O_DIRECT : 0;
}

/*
 * Read and open the table of table=. Returns 0, or -errno with the reason in
 * @t->error.
 */
static int load_table(const struct thread_data *td, struct linear_table *t,
		      int flags)
{
	FILE *in;
	int ret;

	t->name = table_option(td);
	in = fopen(t->name, "re");
	if (!in) {
		ret = -errno;
		snprintf(t->error, sizeof(t->error), "table=%s: %s", t->name,
			 strerror(-ret));
		return ret;
	}
	ret = linear_table_read(t, in);
	fclose(in);
	return ret ? ret : linear_table_open(t, flags);
}

/*
 * Claim the block devices of an open table, if the job writes. Returns 0 or a
 * positive errno, after a message.
 */
static int claim_table(const struct thread_data *td,
		       const struct linear_table *t)
{
	const struct dm_options *o = td->eo;
	unsigned int i, nr = 0;
	const char **paths;
	int ret;

	if (!engine_writes(td))
		return 0;
	paths = calloc(t->nr_devices + 1UL, sizeof(*paths));
	if (!paths)
		return ENOMEM;
	for (i = 0; i < t->nr_devices; i++)
		if (t->devices[i].block)
			paths[nr++] = t->devices[i].path;
	ret = engine_claim(td, &dm_linear_flush, o->destroy, paths, nr);
	free(paths);
	return ret;
}

/*
 * With table= fio's file is a name for the mapped device. Make fio take it for
 * a block device, even if there is a regular file of that name: then it is
 * neither extended nor truncated nor removed. And make fio leave it alone: no
 * invalidation, no hints, no disk statistics.
 */
static void take_files(struct thread_data *td)
{
	struct fio_file *f;
	unsigned int i;

	for_each_file(td, f, i)
		f->filetype = FIO_TYPE_BLOCK;
	engine_set_flags(td, FIO_DISKLESSIO);
}

/*
 * The first hook that fio calls, before any job runs, or with
 * create_serialize=0 after ->init().
 */
static int dm_get_file_size(struct thread_data *td, struct fio_file *f)
{
	const struct engine_job j = { .engine = dm_linear_flush.name };
	const struct dm_options *o = td->eo;
	struct linear_table t = { 0 };
	int ret;

	if (engine_check_layout(td, &dm_linear_flush))
		return 1;
	if (!table_option(td))
		return engine_get_file_size(td, f, &dm_linear_flush,
					    o->destroy);

	take_files(td);
	ret = load_table(td, &t, O_RDONLY);
	/* The clones of a job (numjobs=) would all say the same. */
	if (ret && !td->subjob_number)
		engine_error(&j, td, "%s", t.error);
	if (!ret)
		ret = claim_table(td, &t);
	if (ret) {
		engine_refused(td, "table");
	} else {
		f->real_file_size = t.size;
		fio_file_set_size_known(f);
	}
	linear_table_free(&t);
	return ret;
}

/* Is what the table was opened on claimed? Returns 0 or a positive errno. */
static int check_table(const struct dm_job *dj, struct thread_data *td)
{
	const struct linear_table *t = &dj->table;
	unsigned int i;
	int ret = 0;

	if (!fio_file_size_known(td->files[0]))
		ret = claim_table(td, t);
	for (i = 0; !ret && i < t->nr_devices; i++)
		if (t->devices[i].block)
			ret = engine_check_claim(&dj->job, td,
						 t->devices[i].fd,
						 t->devices[i].path, true);
	return ret;
}

/* The table by which a sync flushes, and I/O is mapped if it is from table=. */
static int init_table(struct dm_job *dj, struct thread_data *td)
{
	struct engine_job *j = &dj->job;
	int ret;

	if (dj->mapped)
		take_files(td);
	if (dj->mapped && dj->strategy == KERNEL) {
		engine_error(j, td,
			     "strategy=kernel is about a table in the kernel; with table= take per-target or per-device, or name a device-mapper device in filename= and remove table=");
		return EINVAL;
	}
	if (td->o.nr_files > 1) {
		engine_error(j, td,
			     "%s%s is for one mapped device; give one filename=, and further devices to jobs of their own",
			     dj->strategy == KERNEL ? "coalesce=1 with strategy=" :
			     "strategy=", j->strategy);
		return EINVAL;
	}
	if (dj->strategy == KERNEL)
		return 0;

	if (dj->mapped) {
		ret = load_table(td, &dj->table, open_flags(td) |
				 (engine_writes(td) ? O_RDWR : O_RDONLY));
	} else {
		dj->table.name = td->files[0]->file_name;
		ret = live_table_read(&dj->table);
		if (!ret)
			ret = linear_table_open(&dj->table, O_RDONLY);
	}
	if (ret)
		engine_error(j, td, "strategy=%s: %s", j->strategy,
			     dj->table.error);
	else if (dj->mapped)
		return check_table(dj, td);
	return -ret;
}

/* List the flushes of a sync, and make the threads that do them. */
static int init_flushes(struct dm_job *dj, struct thread_data *td)
{
	const struct linear_table *t = &dj->table;
	unsigned int i;
	int ret;

	/* strategy=kernel flushes the file that is open, and no table. */
	dj->flush_fds = calloc(1UL + t->nr_targets + t->nr_devices,
			       sizeof(*dj->flush_fds));
	if (!dj->flush_fds)
		return ENOMEM;
	if (dj->strategy == KERNEL) {
		dj->flush_fds[dj->nr_flushes++] = -1;
	} else if (dj->strategy == PER_DEVICE) {
		for (i = 0; i < t->nr_devices; i++)
			dj->flush_fds[dj->nr_flushes++] = t->devices[i].fd;
	} else {
		for (i = 0; i < t->nr_targets; i++) {
			int d = t->targets[i].device;

			if (d != LINEAR_NO_DEVICE)
				dj->flush_fds[dj->nr_flushes++] =
					t->devices[d].fd;
		}
	}

	ret = flush_pool_init(&dj->pool, dj->nr_flushes);
	if (ret)
		engine_error(&dj->job, td,
			     "strategy=%s: the threads for concurrent flushes can't be made: %s; raise the limits on processes (ulimit -u, pids.max), or take fewer jobs",
			     dj->job.strategy, strerror(ret));
	return ret;
}

/* Share the commit @i of each sync with the jobs that name the same. */
static int join(struct dm_job *dj, struct thread_data *td, unsigned int i,
		dev_t dev, ino_t ino)
{
	unsigned int datasync;
	int ret = 0;

	for (datasync = 0; !ret && datasync < 2; datasync++)
		ret = group_commit_join(&dj->commits[datasync][i], dev, ino,
					dj->strategy * 2 + datasync);
	if (ret)
		engine_error(&dj->job, td, "coalesce=1: %s",
			     ret == ENOSPC ?
			     "the jobs flush too many devices to share it; take fewer, or coalesce=0" :
			     strerror(ret));
	return ret;
}

static int join_by_stat(struct dm_job *dj, struct thread_data *td,
			const struct stat *st)
{
	return S_ISBLK(st->st_mode) ? join(dj, td, 0, st->st_rdev, 0) :
				      join(dj, td, 0, st->st_dev, st->st_ino);
}

/* What the job shares of a sync. A file may not be there yet. */
static int init_commits(struct dm_job *dj, struct thread_data *td)
{
	const struct linear_table *t = &dj->table;
	struct stat st;
	unsigned int i;
	int ret = 0;

	dj->nr_commits = dj->strategy == PER_DEVICE ? t->nr_devices : 1;
	for (i = 0; i < 2; i++) {
		dj->commits[i] = calloc(dj->nr_commits,
					sizeof(*dj->commits[i]));
		if (!dj->commits[i])
			return ENOMEM;
	}

	if (dj->strategy == PER_TARGET)
		return stat(t->name, &st) ? errno : join_by_stat(dj, td, &st);
	if (dj->strategy == PER_DEVICE)
		for (i = 0; !ret && i < t->nr_devices; i++)
			ret = join(dj, td, i, t->devices[i].dev,
				   t->devices[i].ino);
	return ret;
}

static void free_job(struct dm_job *dj)
{
	if (dj->pool.threads)
		flush_pool_exit(&dj->pool);
	free(dj->flush_fds);
	free(dj->commits[0]);
	free(dj->commits[1]);
	linear_table_free(&dj->table);
	free(dj);
}

static int dm_init(struct thread_data *td)
{
	struct dm_options *o = td->eo;
	struct dm_job *dj;
	int ret;

	if (engine_check_layout(td, &dm_linear_flush))
		return 1;
	dj = calloc(1, sizeof(*dj));
	if (!dj)
		return 1;
	dj->strategy = o->strategy;

	ret = engine_job_init(&dj->job, td, &dm_linear_flush,
			      strategies[o->strategy], o->counters, o->destroy,
			      1);
	if (ret)
		goto free;

	dj->mapped = table_option(td);
	if (dj->mapped || dj->strategy != KERNEL || o->coalesce) {
		ret = init_table(dj, td);
		if (!ret)
			ret = init_flushes(dj, td);
		if (!ret && o->coalesce)
			ret = init_commits(dj, td);
		if (ret)
			goto abort;
	}

	td->io_ops_data = dj;
	return 0;
abort:
	engine_job_abort(&dj->job);
free:
	free_job(dj);
	td_verror(td, ret, "dm-linear-flush init");
	return 1;
}

static void dm_cleanup(struct thread_data *td)
{
	struct dm_job *dj = td->io_ops_data;

	/* Also called after an init that failed. */
	if (!dj)
		return;
	engine_job_exit(&dj->job, td, (const struct counter[]) {
		{ "flushes_shared", dj->flushes_shared },
		{ NULL, 0 },
	});
	free_job(dj);
	td->io_ops_data = NULL;
}

/* With strategy=kernel and coalesce=1, the file is what is shared. */
static int share_file(struct dm_job *dj, struct thread_data *td,
		      struct fio_file *f)
{
	struct stat st;
	int ret;

	if (dj->strategy != KERNEL || !dj->nr_commits)
		return 0;
	dj->flush_fds[0] = f->fd;
	ret = fstat(f->fd, &st) ? errno : join_by_stat(dj, td, &st);
	if (!ret)
		return 0;
	engine_close_file(td, f);
	td_verror(td, ret, "coalesce");
	return 1;
}

static int dm_open_file(struct thread_data *td, struct fio_file *f)
{
	struct dm_job *dj = td->io_ops_data;
	unsigned int i;

	/* Before ->init(): fio asks a device for its size. */
	if (!dj)
		return engine_open_file(NULL, td, f, 0);
	if (!dj->mapped)
		return engine_open_file(&dj->job, td, f, open_flags(td)) ||
			share_file(dj, td, f);

	for (i = 0; td->o.invalidate_cache && i < dj->table.nr_devices; i++) {
		struct linear_device *d = &dj->table.devices[i];

		posix_fadvise(d->fd, d->start, d->end - d->start,
			      POSIX_FADV_DONTNEED);
	}
	return 0;
}

static int dm_close_file(struct thread_data *td, struct fio_file *f)
{
	return table_option(td) ? 0 : engine_close_file(td, f);
}

/*
 * Transfer target by target, and at the end of the table as at the end of a
 * block device, which a replayed log may reach. Returns bytes, as many as went
 * well before an error (fio asks for the rest again, and gets it then), or
 * -errno. Out of line, so that a write that is not mapped costs no registers.
 */
static __attribute__((noinline)) ssize_t
transfer_mapped(const struct linear_table *t, struct io_u *io_u)
{
	uint64_t pos = io_u->offset, size = io_u->xfer_buflen;
	const struct linear_target *target;
	uint64_t done = 0, skip, len;
	ssize_t ret;

	if (pos >= t->size)
		return io_u->ddir == DDIR_READ ? 0 : -ENOSPC;
	size = min(size, t->size - pos);

	for (target = linear_table_find(t, pos); done < size; target++) {
		skip = pos + done - target->start;
		len = min(target->length - skip, size - done);
		if (target->device == LINEAR_NO_DEVICE) {
			if (io_u->ddir == DDIR_READ)
				memset((char *)io_u->xfer_buf + done, 0, len);
			done += len;
			continue;
		}
		do {
			ret = engine_rw(io_u->ddir,
					t->devices[target->device].fd,
					(char *)io_u->xfer_buf + done, len,
					target->offset + skip, 0);
		} while (ret < 0 && errno == EINTR);
		if (ret < 0)
			return done ? (ssize_t)done : -errno;
		done += ret;
		if ((uint64_t)ret < len)
			break;
	}
	return done;
}

/*
 * Write back the page cache above the flushes. All devices are started before
 * one is waited for, as for the one page cache of a device-mapper device.
 */
static int write_back(const struct dm_job *dj, const struct fio_file *f)
{
	const unsigned int flags[] = {
		SYNC_FILE_RANGE_WRITE,
		SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			SYNC_FILE_RANGE_WAIT_AFTER,
	};
	const struct linear_device *d = dj->table.devices;
	unsigned int pass, i;

	if (!dj->mapped)
		return sync_file_range(f->fd, 0, 0, flags[1]) ? errno : 0;

	for (pass = 0; pass < ARRAY_SIZE(flags); pass++)
		for (i = 0; i < dj->table.nr_devices; i++)
			if (sync_file_range(d[i].fd, d[i].start,
					    d[i].end - d[i].start, flags[pass]))
				return errno;
	return 0;
}

static int flush_one(void *data, unsigned int i)
{
	const struct dm_job *dj = data;
	int fd = dj->flush_fds[i];

	while (dj->datasync ? fdatasync(fd) : fsync(fd))
		if (errno != EINTR)
			return errno;
	return 0;
}

static int flush_all(void *data)
{
	struct dm_job *dj = data;

	return flush_pool_run(&dj->pool, flush_one, dj);
}

/* One flush of a sync, as the leader of those who share it. */
struct one_flush {
	struct dm_job *dj;
	unsigned int i;
};

static int lead_one(void *data)
{
	const struct one_flush *one = data;

	return flush_one(one->dj, one->i);
}

static int commit_one(void *data, unsigned int i)
{
	struct dm_job *dj = data;

	return group_commit(&dj->commits[dj->datasync][i], lead_one,
			    &(struct one_flush) { dj, i });
}

/* Flush, or let others flush, and count who did. */
static int commit(struct dm_job *dj)
{
	struct group_commit *c = dj->commits[dj->datasync];
	unsigned int i;
	int ret;

	if (dj->nr_commits == dj->nr_flushes)
		ret = flush_pool_run(&dj->pool, commit_one, dj);
	else
		ret = group_commit(c, flush_all, dj);

	for (i = 0; i < dj->nr_commits; i++) {
		uint64_t *who = c[i].led ? &dj->job.flush_calls :
					   &dj->flushes_shared;

		*who += dj->nr_flushes / dj->nr_commits;
	}
	return ret;
}

static int sync_by_table(struct dm_job *dj, const struct io_u *io_u)
{
	bool coalesce = dj->nr_commits;
	int ret = 0;

	dj->datasync = io_u->ddir == DDIR_DATASYNC;
	/* A shared flush does so for all, where it is of what was written to. */
	if (!coalesce || (!dj->mapped && dj->strategy != KERNEL))
		ret = write_back(dj, io_u->file);
	if (ret)
		return ret;
	if (coalesce) {
		ret = commit(dj);
	} else {
		ret = flush_all(dj);
		dj->job.flush_calls += dj->nr_flushes;
	}
	if (!ret)
		dj->job.syncs++;
	return ret;
}

static enum fio_q_status dm_queue(struct thread_data *td, struct io_u *io_u)
{
	struct dm_job *dj = td->io_ops_data;

	fio_ro_check(td, io_u);

	if (ddir_rw(io_u->ddir)) {
		engine_complete(&dj->job, io_u, dj->mapped ?
				transfer_mapped(&dj->table, io_u) :
				engine_transfer(io_u, 0));
	} else if (dj->strategy == KERNEL && !dj->nr_commits) {
		io_u->error = engine_sync(&dj->job, io_u);
	} else {
		io_u->error = sync_by_table(dj, io_u);
	}
	return engine_completed(&dj->job, td, io_u);
}

static struct ioengine_ops dm_linear_flush = {
	.name			= "dm-linear-flush",
	.version		= FIO_IOOPS_VERSION,
	.flags			= FIO_SYNCIO,
	.init			= dm_init,
	.cleanup		= dm_cleanup,
	.queue			= dm_queue,
	.open_file		= dm_open_file,
	.close_file		= dm_close_file,
	.get_file_size		= dm_get_file_size,
	.options		= options,
	.option_struct_size	= sizeof(struct dm_options),
};

DURABENCH_ENGINE(dm_linear_flush)
