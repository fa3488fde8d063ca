// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/live-table.c, with a libdevmapper (linked with --wrap) that has the
 * table of the test's choice, and system calls that have a dm device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <libdevmapper.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "engines/live-table.h"

struct target {
	uint64_t start, length;
	const char *type, *params;
};

/* The device-mapper that the code under test talks to. */
static struct {
	const struct target *targets;
	unsigned int nr;
	bool closed;		/* nobody can ask */
	int run_errno;		/* of the ioctl */
	unsigned int tasks;	/* not destroyed yet */
	int major, minor;	/* asked for */
	char params[64];
} dm;

struct dm_task *__wrap_dm_task_create(int type);
int __wrap_dm_task_set_major(struct dm_task *task, int number);
int __wrap_dm_task_set_minor(struct dm_task *task, int number);
int __wrap_dm_task_run(struct dm_task *task);
int __wrap_dm_task_get_errno(struct dm_task *task);
void __wrap_dm_task_destroy(struct dm_task *task);
void *__wrap_dm_get_next_target(struct dm_task *task, void *next,
				uint64_t *start, uint64_t *length,
				char **type, char **params);
int __wrap_stat(const char *path, struct stat *st);
int __wrap_stat64(const char *path, struct stat *st);
int __wrap_access(const char *path, int mode);

struct dm_task *__wrap_dm_task_create(int type)
{
	assert_int_equal(type, DM_DEVICE_TABLE);
	if (dm.closed)
		return NULL;
	dm.tasks++;
	return (struct dm_task *)&dm;
}

int __wrap_dm_task_set_major(struct dm_task *task, int number)
{
	dm.major = number;
	return 1;
}

int __wrap_dm_task_set_minor(struct dm_task *task, int number)
{
	dm.minor = number;
	return 1;
}

int __wrap_dm_task_run(struct dm_task *task)
{
	return !dm.run_errno;
}

int __wrap_dm_task_get_errno(struct dm_task *task)
{
	return dm.run_errno;
}

void __wrap_dm_task_destroy(struct dm_task *task)
{
	dm.tasks--;
}

/* As libdevmapper: the first call has next NULL, the last returns NULL. */
void *__wrap_dm_get_next_target(struct dm_task *task, void *next,
				uint64_t *start, uint64_t *length,
				char **type, char **params)
{
	uintptr_t i = (uintptr_t)next;

	if (!dm.nr) {
		*start = *length = 0;
		*type = *params = NULL;
		return NULL;
	}
	*start = dm.targets[i].start;
	*length = dm.targets[i].length;
	*type = (char *)dm.targets[i].type;
	strcpy(dm.params, dm.targets[i].params);
	*params = dm.params;
	return i + 1 < dm.nr ? (void *)(i + 1) : NULL;
}

int __wrap_stat(const char *path, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	if (!strcmp(path, "/none")) {
		errno = ENOENT;
		return -1;
	}
	st->st_mode = strcmp(path, "/file") ? S_IFBLK : S_IFREG;
	st->st_rdev = strcmp(path, "/dev/loop0") ? makedev(253, 5) :
						   makedev(7, 0);
	return 0;
}

/* What stat() is with _FILE_OFFSET_BITS=64, where that is not its own size. */
int __wrap_stat64(const char *path, struct stat *st)
{
	return __wrap_stat(path, st);
}

int __wrap_access(const char *path, int mode)
{
	if (!strcmp(path, "/sys/dev/block/253:5/dm"))
		return 0;
	errno = ENOENT;
	return -1;
}

static int read_live(struct linear_table *t, const char *path)
{
	*t = (struct linear_table){ .name = path };
	return live_table_read(t);
}

static void reads_a_table(void **state)
{
	static const struct target targets[] = {
		{ 0, 8000, "linear", "8:2 0" },
		{ 8000, 8000, "linear", "259:6 16384" },
		{ 16000, 8, "zero", "" },
	};
	struct linear_table t;

	dm.targets = targets;
	dm.nr = 3;
	if (read_live(&t, "/dev/mapper/m"))
		fail_msg("%s", t.error);
	assert_int_equal(dm.major, 253);
	assert_int_equal(dm.minor, 5);
	assert_int_equal(dm.tasks, 0);
	assert_int_equal(t.nr_targets, 3);
	assert_int_equal(t.nr_devices, 2);
	assert_string_equal(t.devices[1].name, "259:6");
	assert_int_equal(t.targets[1].offset, 16384 * 512);
	assert_int_equal(t.targets[2].device, LINEAR_NO_DEVICE);
	assert_int_equal(t.size, 16008 * 512);
	linear_table_free(&t);
}

static void refuses_other_targets(void **state)
{
	static const struct target targets[] = {
		{ 0, 8000, "linear", "8:2 0" },
		{ 8000, 8000, "crypt", "aes-xts-plain64 :64:logon:k 0 8:2 0" },
	};
	struct linear_table t;

	dm.targets = targets;
	dm.nr = 2;
	assert_int_equal(read_live(&t, "/dev/mapper/m"), -EINVAL);
	assert_string_equal(t.error, "/dev/mapper/m:2: target type \"crypt\" is not supported; linear and zero are");
	assert_int_equal(dm.tasks, 0);
	linear_table_free(&t);
}

static void refuses_a_device_without_a_table(void **state)
{
	struct linear_table t;

	dm.nr = 0;
	assert_int_equal(read_live(&t, "/dev/mapper/m"), -ENODATA);
	assert_string_equal(t.error, "/dev/mapper/m has no live table; load and resume one with dmsetup");
	assert_int_equal(dm.tasks, 0);
	linear_table_free(&t);
}

static void refuses_what_is_not_a_dm_device(void **state)
{
	struct linear_table t;

	assert_int_equal(read_live(&t, "/dev/loop0"), -ENODEV);
	assert_string_equal(t.error, "/dev/loop0 is not a device-mapper device; name one in filename=, or give a table=");
	assert_int_equal(read_live(&t, "/file"), -ENODEV);
	assert_string_equal(t.error, "/file is not a device-mapper device; name one in filename=, or give a table=");
	assert_int_equal(read_live(&t, "/none"), -ENOENT);
	assert_string_equal(t.error, "/none: No such file or directory");
}

static void assert_refused(int err, const char *why)
{
	struct linear_table t;
	char expected[160];

	snprintf(expected, sizeof(expected),
		 "the live table of /dev/mapper/m can't be read: %s%s", why,
		 geteuid() ? "; this needs root" : "");
	assert_int_equal(read_live(&t, "/dev/mapper/m"), -err);
	assert_string_equal(t.error, expected);
	assert_int_equal(dm.tasks, 0);
}

static void says_why_a_table_was_not_read(void **state)
{
	dm.closed = true;
	assert_refused(EACCES, "no access to device-mapper");
	dm.closed = false;

	dm.run_errno = ENXIO;
	assert_refused(ENXIO, "No such device or address");
	dm.run_errno = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_a_table),
		cmocka_unit_test(refuses_other_targets),
		cmocka_unit_test(refuses_a_device_without_a_table),
		cmocka_unit_test(refuses_what_is_not_a_dm_device),
		cmocka_unit_test(says_why_a_table_was_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
