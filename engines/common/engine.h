/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the durabench engines share: the load guard, opening files, choosing
 * the file that a sync is for, error messages and counters.
 *
 * fio hands an external engine its own structures and checks one number, the
 * ioops version, which does not follow their layout. So an engine may use a
 * field of struct thread_data or thread_options only if guard.c proves where
 * it is, and it starts with DURABENCH_ENGINE() below.
 */
#ifndef DURABENCH_ENGINE_H
#define DURABENCH_ENGINE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fio.h"
#include "optgroup.h"

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(x) (sizeof(x) / sizeof((x)[0]))
#endif

/*
 * One name and number of a counters line (docs/formats.md, "Counters").
 * A table ends with an entry that has no name.
 */
struct counter {
	const char *name;
	uint64_t value;
};

/*
 * What every engine keeps for a job, first member of its own job data.
 */
struct engine_job {
	const char *engine;	/* name, for messages and counters */
	const char *strategy;	/* likewise */
	int counters_fd;	/* -1: not asked for */
	const char *destroy;	/* its option */
	int error;		/* errno of the first engine error */
	bool told;		/* an error was explained already */
	struct fio_file *last_written;
	uint64_t reads, read_bytes;
	uint64_t writes, write_bytes;
	uint64_t durable_writes;
	uint64_t syncs, flush_calls;
};

/*
 * Prove that the running fio has the layout this engine was compiled for.
 * Returns true, or prints one message to stderr and returns false. Touches
 * no thread_data, so it may run before any exists.
 */
bool engine_guard(const char *engine);

/*
 * Prove the rest of thread_data's layout up to io_ops. Every hook that fio may
 * call first (->init(), and what it needs to know a file's size) does so before
 * it uses @td, and if it fails uses nothing of it.
 * Returns 0, or EINVAL after one message.
 */
int engine_check_layout(const struct thread_data *td,
			const struct ioengine_ops *ops);

/*
 * Set up @j and check what all engines refuse alike: trims, offloaded
 * submission, sync= beside strategy=, a depth above @max_depth (0: any), a
 * counters file that can't be opened.
 * Returns 0 or a positive errno, after one message.
 */
int engine_job_init(struct engine_job *j, struct thread_data *td,
		    const struct ioengine_ops *ops, const char *strategy,
		    const char *counters, const char *destroy,
		    unsigned int max_depth);

/*
 * Make what claims on block devices need (guard/guard.h), before any job is
 * forked.
 */
void engine_claims_open(void);

/*
 * Claim the block devices that @paths lead to, for a job that writes to them.
 * Returns 0 or a positive errno, after one message.
 */
int engine_claim(const struct thread_data *td, const struct ioengine_ops *ops,
		 const char *destroy, const char *const *paths, unsigned int nr);

/*
 * The same for all files of a job that will write, when fio has @asked for the
 * first of them. For the ->get_file_size() hook: 0, or an error.
 */
int engine_claim_files(struct thread_data *td, const struct ioengine_ops *ops,
		       const char *destroy, const struct fio_file *asked);

/*
 * For a ->get_file_size() that fails when its reason was told: fio tells its
 * own error twice, of every clone. It must have one, and not ENOENT, of which
 * it makes a file.
 */
void engine_refused(struct thread_data *td, const char *what);

/* The ->get_file_size() hook, with that done before. */
int engine_get_file_size(struct thread_data *td, struct fio_file *f,
			 const struct ioengine_ops *ops, const char *destroy);

/*
 * If the job writes: is what @fd has open by @path the device that was claimed
 * when fio @asked for its size? Returns 0 or a positive errno after a message.
 */
int engine_check_claim(const struct engine_job *j, struct thread_data *td,
		       int fd, const char *path, bool asked);

/* Undo engine_job_init() of a job that will not run: nothing is counted. */
void engine_job_abort(struct engine_job *j);

/*
 * Append the job's line to its counters file, with @extra after the common
 * counters, and close it. A job that can't be counted has failed.
 */
void engine_job_exit(struct engine_job *j, struct thread_data *td,
		     const struct counter *extra);

/* Add engine flags (FIO_SYNCIO, ...) for this job alone. */
void engine_set_flags(struct thread_data *td, enum fio_ioengine_flags flags);

/* Will the job write, as far as its files are concerned? */
static inline bool engine_writes(const struct thread_data *td)
{
	return td_write(td) && !td->o.verify_only;
}

/*
 * Open @f as the job's direction asks, with @flags (O_DIRECT, O_DSYNC) added.
 * A file that is shared with other jobs gets a descriptor of its own. @j is
 * NULL when fio opens a device for its size, before ->init(): then read-only.
 * For the ->open_file() hook: 0, or 1 after a message.
 */
int engine_open_file(struct engine_job *j, struct thread_data *td,
		     struct fio_file *f, int flags);
int engine_close_file(struct thread_data *td, struct fio_file *f);

/*
 * The file that a sync request is for. fio picks the next file of the job for
 * a periodic sync, which with nrfiles > 1 is not the one just written.
 */
struct fio_file *engine_sync_target(const struct engine_job *j,
				    const struct io_u *io_u);

/*
 * One fdatasync(2), or fsync(2), however often a signal interrupts it. Returns
 * 0 or a positive errno. Counts one flush call.
 */
int engine_flush(struct engine_job *j, int fd, bool datasync);

/*
 * Carry out a sync request with the system call it names. Returns 0 or a
 * positive errno. Counts one sync if it went well.
 */
int engine_sync(struct engine_job *j, struct io_u *io_u);

/*
 * One system call that transfers @len bytes at @buf to or from @pos of @fd,
 * with @flags (RWF_*). Returns bytes, or -1 with errno.
 */
static inline ssize_t engine_rw(enum fio_ddir ddir, int fd, void *buf,
				size_t len, off_t pos, int flags)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };

	if (!flags)
		return ddir == DDIR_READ ? pread(fd, buf, len, pos) :
					   pwrite(fd, buf, len, pos);
	return ddir == DDIR_READ ? preadv2(fd, &iov, 1, pos, flags) :
				   pwritev2(fd, &iov, 1, pos, flags);
}

/* What engine_transfer() does about a system call that failed with errno. */
ssize_t engine_transfer_again(const struct io_u *io_u, int flags)
	__attribute__((cold));

/* Transfer @io_u by a system call. Returns bytes or -errno. */
static inline ssize_t engine_transfer(const struct io_u *io_u, int flags)
{
	ssize_t ret = engine_rw(io_u->ddir, io_u->file->fd, io_u->xfer_buf,
				io_u->xfer_buflen, io_u->offset, flags);

	if (fio_unlikely(ret < 0))
		return engine_transfer_again(io_u, flags);
	return ret;
}

/* What engine_complete() does about a transfer that failed, or did nothing. */
void engine_failed(struct engine_job *j, struct io_u *io_u, int err)
	__attribute__((cold));

/*
 * A write was complete, but what its strategy does after it failed with @err.
 * It is not counted then: fio takes it for one that failed.
 */
void engine_write_failed(struct engine_job *j, struct io_u *io_u, int err)
	__attribute__((cold));

/*
 * Take the result of one transfer, @ret bytes or -errno, into @io_u and the
 * counters; for a caller that has looked at the direction already.
 */
static inline void engine_complete_as(enum fio_ddir ddir, struct engine_job *j,
				      struct io_u *io_u, ssize_t ret)
{
	/*
	 * Nothing transferred is an error, as fio has it for an engine that is
	 * synchronous; of another it would not notice.
	 */
	if (fio_unlikely(ret <= 0)) {
		engine_failed(j, io_u, ret ? -ret : EIO);
		return;
	}

	io_u->resid = io_u->xfer_buflen - ret;
	if (ddir == DDIR_READ) {
		j->reads++;
		j->read_bytes += ret;
		return;
	}
	j->writes++;
	j->write_bytes += ret;
	j->last_written = io_u->file;
}

static inline void engine_complete(struct engine_job *j, struct io_u *io_u,
				   ssize_t ret)
{
	engine_complete_as(io_u->ddir, j, io_u, ret);
}

/* What engine_completed() does about an error. */
void engine_tell(struct engine_job *j, const struct thread_data *td,
		 const struct io_u *io_u) __attribute__((cold));

/*
 * @io_u has completed when it was queued, for the ->queue() hook. The first that
 * failed is told: fio leaves this to the engine, but for what completes later.
 */
static inline enum fio_q_status engine_completed(struct engine_job *j,
						 const struct thread_data *td,
						 const struct io_u *io_u)
{
	if (fio_unlikely(io_u->error))
		engine_tell(j, td, io_u);
	return FIO_Q_COMPLETED;
}

/* One line on stderr: "fio-ENGINE: job NAME: ..."; td may be NULL. */
void engine_error(const struct engine_job *j, const struct thread_data *td,
		  const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The options that every engine has. */
#define ENGINE_COUNTERS_OPTION(opts, field)				\
	{								\
		.name	= "counters",					\
		.lname	= "Counters file",				\
		.type	= FIO_OPT_STR_STORE,				\
		.off1	= offsetof(opts, field),			\
		.help	= "Append what the job did to this file, one JSON line a job", \
		.category = FIO_OPT_C_ENGINE,				\
		.group	= FIO_OPT_G_INVALID,				\
	}

#define ENGINE_DESTROY_OPTION(opts, field)				\
	{								\
		.name	= "destroy",					\
		.lname	= "Destroy",					\
		.type	= FIO_OPT_STR_STORE,				\
		.off1	= offsetof(opts, field),			\
		.help	= "Confirm that what these block devices hold may be lost: the serial number, WWN or name in /dev/disk/by-id of each, with commas between them", \
		.category = FIO_OPT_C_ENGINE,				\
		.group	= FIO_OPT_G_INVALID,				\
	}

/*
 * The one symbol that an engine exports. fio calls it first of all; leaving
 * *ops NULL makes fio say that the engine is not loadable and exit 1.
 */
#define DURABENCH_ENGINE(engine_ops)					\
	__attribute__((visibility("default")))				\
	void get_ioengine(struct ioengine_ops **ops);			\
	void get_ioengine(struct ioengine_ops **ops)			\
	{								\
		engine_claims_open();					\
		*ops = engine_guard((engine_ops).name) ?		\
			&(engine_ops) : NULL;				\
	}

#endif
