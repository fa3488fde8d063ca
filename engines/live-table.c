// SPDX-License-Identifier: GPL-2.0-only
/*
 * The live table of a device-mapper device; see live-table.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <libdevmapper.h>

#include "live-table.h"

/* Our one message says it; libdevmapper would print up to three of its own. */
static void no_log(int level, const char *file, int line, int err_or_class,
		   const char *fmt, ...)
{
}

static int __attribute__((format(printf, 3, 4)))
fail(struct linear_table *t, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->error, sizeof(t->error), fmt, ap);
	va_end(ap);
	return -err;
}

/* The number of the dm device that @t->name names. */
static int dm_number(struct linear_table *t, dev_t *dev)
{
	char dir[64];
	struct stat st;

	if (stat(t->name, &st))
		return fail(t, errno, "%s: %s", t->name, strerror(errno));
	snprintf(dir, sizeof(dir), "/sys/dev/block/%u:%u/dm",
		 major(st.st_rdev), minor(st.st_rdev));
	if (!S_ISBLK(st.st_mode) || access(dir, F_OK))
		return fail(t, ENODEV,
			    "%s is not a device-mapper device; name one in filename=, or give a table=",
			    t->name);
	*dev = st.st_rdev;
	return 0;
}

static int read_targets(struct linear_table *t, struct dm_task *task)
{
	uint64_t start, length;
	char *type, *params;
	void *next = NULL;
	int ret;

	do {
		next = dm_get_next_target(task, next, &start, &length, &type,
					  &params);
		if (!type)
			return fail(t, ENODATA,
				    "%s has no live table; load and resume one with dmsetup",
				    t->name);
		t->line++;
		ret = linear_table_add(t, start, length, type, params);
	} while (!ret && next);
	return ret;
}

int live_table_read(struct linear_table *t)
{
	/* libdevmapper keeps its control device in a global. */
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct dm_task *task;
	dev_t dev = 0;
	int ret, err;

	ret = dm_number(t, &dev);
	if (ret)
		return ret;

	pthread_mutex_lock(&lock);
	dm_log_with_errno_init(no_log);
	task = dm_task_create(DM_DEVICE_TABLE);
	if (!task || !dm_task_set_major(task, major(dev)) ||
	    !dm_task_set_minor(task, minor(dev)) || !dm_task_run(task)) {
		/* 0 if the kernel could not even be asked. */
		err = task ? dm_task_get_errno(task) : 0;
		ret = fail(t, err ? err : EACCES,
			   "the live table of %s can't be read: %s%s", t->name,
			   err ? strerror(err) : "no access to device-mapper",
			   geteuid() ? "; this needs root" : "");
	} else {
		ret = read_targets(t, task);
	}
	if (task)
		dm_task_destroy(task);
	dm_lib_release();
	pthread_mutex_unlock(&lock);
	return ret;
}
