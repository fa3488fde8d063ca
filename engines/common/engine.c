// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the durabench engines share; see engine.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "engine.h"
#include "util/json.h"
#include "util/printable.h"

void engine_error(const struct engine_job *j, const struct thread_data *td,
		  const char *fmt, ...)
{
	char msg[1024], name[256], line[sizeof(msg) + sizeof(name) + 64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	printable(msg);

	if (td && td->o.name) {
		snprintf(name, sizeof(name), "%s", td->o.name);
		printable(name);
		snprintf(line, sizeof(line), "fio-%s: job %s: %s\n",
			 j->engine, name, msg);
	} else {
		snprintf(line, sizeof(line), "fio-%s: %s\n", j->engine, msg);
	}

	/*
	 * A server's goes to its client. Else not log_err(): with --output it
	 * would land in front of the JSON. One write, so that lines of
	 * concurrent jobs stay whole.
	 */
	if (is_backend)
		log_err("%s", line);
	else
		dprintf(STDERR_FILENO, "%s", line);
}

int engine_check_layout(const struct thread_data *td,
			const struct ioengine_ops *ops)
{
	const struct engine_job j = { .engine = ops->name };

	if (td->io_ops == ops)
		return 0;
	engine_error(&j, NULL,
		     "not built for this fio: struct thread_data differs from the headers of %s; rebuild the engines (make)",
		     DURABENCH_FIO_VERSION);
	return EINVAL;
}

int engine_job_init(struct engine_job *j, struct thread_data *td,
		    const struct ioengine_ops *ops, const char *strategy,
		    const char *counters, const char *destroy,
		    unsigned int max_depth)
{
	j->engine = ops->name;
	j->strategy = strategy;
	j->destroy = destroy;
	j->counters_fd = -1;

	if (td_trim(td)) {
		engine_error(j, td,
			     "trims are not supported; take a rw= of reads and writes");
		return EOPNOTSUPP;
	}
	if (td->o.io_submit_mode == IO_MODE_OFFLOAD) {
		engine_error(j, td,
			     "io_submit_mode=offload is not supported: syncs are lost in it; leave it at inline");
		return EOPNOTSUPP;
	}
	if (td->o.sync_io) {
		engine_error(j, td,
			     "sync= and strategy=%s say two things about durability; remove sync=",
			     strategy);
		return EINVAL;
	}
	if (td->o.sync_file_range) {
		engine_error(j, td,
			     "sync_file_range= makes nothing durable and is not supported; take fdatasync= or fsync=");
		return EOPNOTSUPP;
	}
	if (max_depth && td->o.iodepth > max_depth) {
		engine_error(j, td,
			     "strategy=%s submits one I/O at a time; iodepth=%u needs another strategy, or more jobs (numjobs=)",
			     strategy, td->o.iodepth);
		return EINVAL;
	}

	if (counters && *counters) {
		/* A FIFO that nobody reads is refused, not waited for. */
		j->counters_fd = open(counters, O_WRONLY | O_CREAT | O_APPEND |
				      O_NONBLOCK | O_CLOEXEC, 0666);
		if (j->counters_fd < 0) {
			int err = errno;

			engine_error(j, td, "counters=%s: %s", counters,
				     strerror(err));
			return err;
		}
	}
	return 0;
}

void engine_job_abort(struct engine_job *j)
{
	if (j->counters_fd >= 0)
		close(j->counters_fd);
	j->counters_fd = -1;
}

static void json_text(struct json *json, const char *key, const char *value)
{
	json_key(json, key);
	json_string(json, value);
}

static void json_number(struct json *json, const char *key, uint64_t value)
{
	json_key(json, key);
	json_uint(json, value);
}

void engine_job_exit(struct engine_job *j, struct thread_data *td,
		     const struct counter *extra)
{
	const struct counter common[] = {
		{ "reads", j->reads },
		{ "read_bytes", j->read_bytes },
		{ "writes", j->writes },
		{ "write_bytes", j->write_bytes },
		{ "durable_writes", j->durable_writes },
		{ "syncs", j->syncs },
		{ "flush_calls", j->flush_calls },
		{ NULL, 0 },
	};
	const struct counter *tables[] = { common, extra }, *c;
	size_t len = 0, i;
	struct json json = { 0 };
	char *line = NULL;
	int err = 0;

	if (j->counters_fd < 0)
		return;

	json.out = open_memstream(&line, &len);
	if (!json.out) {
		err = errno;
		goto close;
	}
	json_open(&json, '{');
	json_text(&json, "schema", "durabench-counters/1");
	json_text(&json, "engine", j->engine);
	json_text(&json, "strategy", j->strategy);
	json_text(&json, "fio", DURABENCH_FIO_VERSION);
	json_text(&json, "job", td->o.name ? td->o.name : "");
	json_number(&json, "thread", td->thread_number);
	json_number(&json, "subjob", td->subjob_number);
	json_number(&json, "pid", td->pid);
	json_number(&json, "error", j->error ? j->error : td->error);
	for (i = 0; i < ARRAY_SIZE(tables); i++)
		for (c = tables[i]; c && c->name; c++)
			json_number(&json, c->name, c->value);
	json_close(&json, '}');
	fputc('\n', json.out);
	if (fclose(json.out))
		err = errno;
	/* One write on O_APPEND: lines of concurrent jobs do not mix. */
	else if (write(j->counters_fd, line, len) != (ssize_t)len)
		err = errno ? errno : ENOSPC;
	free(line);
close:
	close(j->counters_fd);
	j->counters_fd = -1;
	if (err) {
		engine_error(j, td, "counters could not be written: %s",
			     strerror(err));
		td_verror(td, err, "counters");
	}
}

void engine_set_flags(struct thread_data *td, enum fio_ioengine_flags flags)
{
	/*
	 * As td_set_ioengine_flags() after a change of ops->flags, which jobs
	 * of other strategies share.
	 */
	td->flags |= (unsigned long long)flags << TD_ENG_FLAG_SHIFT;
}

int engine_open_file(struct engine_job *j, struct thread_data *td,
		     struct fio_file *f, int flags)
{
	char what[FIO_VERROR_SIZE];
	int err;

	if (j && engine_writes(td)) {
		flags |= O_RDWR;
		if (f->filetype == FIO_TYPE_FILE && td->o.allow_create)
			flags |= O_CREAT;
	} else {
		flags |= O_RDONLY;
	}

	f->fd = open(f->file_name, flags | O_CLOEXEC, 0600);
	if (f->fd >= 0) {
		err = j ? engine_check_claim(j, td, f->fd, f->file_name,
					     fio_file_size_known(f)) : 0;
		if (!err)
			return 0;
		engine_close_file(td, f);
		td_verror(td, err, "guard");
		return 1;
	}

	err = errno;
	if (j && err == EINVAL && (flags & O_DIRECT))
		engine_error(j, td,
			     "%s: strategy=%s needs O_DIRECT, which its file system does not support",
			     f->file_name, j->strategy);
	else if (j)
		engine_error(j, td, "open(%s): %s", f->file_name,
			     strerror(err));
	snprintf(what, sizeof(what), "open(%s)", f->file_name);
	td_verror(td, err, what);
	return 1;
}

int engine_close_file(struct thread_data *td, struct fio_file *f)
{
	int ret = close(f->fd) < 0 ? errno : 0;

	f->fd = -1;
	/* fio does not look at what this hook returns, and tells of none. */
	if (ret) {
		log_err("fio: close(%s): %s\n", f->file_name, strerror(ret));
		td_verror(td, ret, "close");
	}
	return ret;
}

struct fio_file *engine_sync_target(const struct engine_job *j,
				    const struct io_u *io_u)
{
	/*
	 * end_fsync and the sync before a verify name their file, and hold
	 * their own reference to it.
	 */
	if ((io_u->flags & IO_U_F_NO_FILE_PUT) || !j->last_written)
		return io_u->file;
	return j->last_written;
}

int engine_flush(struct engine_job *j, int fd, bool datasync)
{
	int ret;

	j->flush_calls++;
	do {
		ret = datasync ? fdatasync(fd) : fsync(fd);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? errno : 0;
}

int engine_sync(struct engine_job *j, struct io_u *io_u)
{
	struct fio_file *f = engine_sync_target(j, io_u);
	int fd = f->fd, ret;

	if (io_u->ddir != DDIR_DATASYNC && io_u->ddir != DDIR_SYNC)
		return EOPNOTSUPP;
	/* Closed since by file_service_type: any descriptor of it will do. */
	if (fd < 0) {
		fd = open(f->file_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return errno;
	}

	ret = engine_flush(j, fd, io_u->ddir == DDIR_DATASYNC);
	if (fd != f->fd)
		close(fd);
	if (!ret)
		j->syncs++;
	else if (!j->error)
		j->error = ret;
	return ret;
}

/*
 * Say what EINVAL from an O_DIRECT transfer means nearly always (fio's own
 * hint is given for the first I/O of direct=1 jobs only), and ENOSPC from a
 * device that is no longer there.
 */
static void explain(struct engine_job *j, struct io_u *io_u, int err)
{
	uint64_t size = 0;
	int lbs = 0;

	if (j->told)
		return;
	if (err == ENOSPC && io_u->file->filetype == FIO_TYPE_BLOCK &&
	    !ioctl(io_u->file->fd, BLKGETSIZE64, &size) && !size) {
		j->told = true;
		engine_error(j, NULL, "%s: the device has disappeared",
			     io_u->file->file_name);
		return;
	}
	if (err != EINVAL)
		return;
	j->told = true;

	if (io_u->file->filetype == FIO_TYPE_BLOCK &&
	    !ioctl(io_u->file->fd, BLKSSZGET, &lbs))
		engine_error(j, NULL,
			     "%s: %llu bytes at %llu refused: bs= and offsets must be multiples of its logical block size of %d",
			     io_u->file->file_name, io_u->xfer_buflen,
			     io_u->offset, lbs);
	else
		engine_error(j, NULL,
			     "%s: %llu bytes at %llu refused: bs= and offsets must be multiples of what its file system needs for O_DIRECT (512 or 4096)",
			     io_u->file->file_name, io_u->xfer_buflen,
			     io_u->offset);
}

ssize_t engine_transfer_again(const struct io_u *io_u, int flags)
{
	ssize_t ret = -1;

	while (ret < 0 && errno == EINTR)
		ret = engine_rw(io_u->ddir, io_u->file->fd, io_u->xfer_buf,
				io_u->xfer_buflen, io_u->offset, flags);
	return ret < 0 ? -errno : ret;
}

void engine_failed(struct engine_job *j, struct io_u *io_u, int err)
{
	io_u->error = err;
	if (!j->error)
		j->error = err;
	explain(j, io_u, err);
}

void engine_tell(struct engine_job *j, const struct thread_data *td,
		 const struct io_u *io_u)
{
	/* Once, and not where the engine knows more. */
	if (j->told)
		return;
	j->told = true;
	if (ddir_rw(io_u->ddir))
		engine_error(j, td, "%s: strategy=%s: %s at %llu: %s",
			     io_u->file->file_name, j->strategy,
			     io_ddir_name(io_u->ddir), io_u->offset,
			     strerror(io_u->error));
	else
		engine_error(j, td, "%s: strategy=%s: %s: %s",
			     engine_sync_target(j, io_u)->file_name,
			     j->strategy, io_ddir_name(io_u->ddir),
			     strerror(io_u->error));
}

void engine_write_failed(struct engine_job *j, struct io_u *io_u, int err)
{
	j->writes--;
	j->write_bytes -= io_u->xfer_buflen - io_u->resid;
	engine_failed(j, io_u, err);
}
