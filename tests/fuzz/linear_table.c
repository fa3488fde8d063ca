// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/linear-table.c: a table as text, or as the kernel hands its targets
 * out; then its devices, which are not opened but stand for what the names'
 * last characters say.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

/* The kind of what a path leads to, and its size. */
static char kind;
static uint64_t size_of;

static char *fake_realpath(const char *path, char *resolved)
{
	size_t length = strlen(path);

	errno = ENOENT;
	return length && path[length - 1] == '!' ? NULL : strdup(path);
}

static int fake_stat(const char *path, struct stat *st)
{
	size_t length = strlen(path);

	kind = length ? path[length - 1] : '?';
	memset(st, 0, sizeof(*st));
	st->st_mode = kind == 'c' ? S_IFCHR : kind & 1 ? S_IFBLK : S_IFREG;
	st->st_dev = st->st_rdev = kind >> 2;
	st->st_ino = length;
	st->st_size = size_of;
	return 0;
}

static int fake_ioctl(int fd, unsigned long request, uint64_t *bytes)
{
	*bytes = size_of;
	return 0;
}

#define realpath	fake_realpath
#define stat(path, st)	fake_stat(path, st)
#define open(path, flags) dup(STDERR_FILENO)
#define ioctl		fake_ioctl
#include "engines/linear-table.c"

static void check(const struct linear_table *t)
{
	uint64_t end = 0;
	unsigned int i;

	for (i = 0; i < t->nr_targets; i++) {
		const struct linear_target *target = &t->targets[i];

		MUST(target->start == end && target->length);
		MUST(target->length <= INT64_MAX - end);
		end += target->length;
		MUST(target->offset <= INT64_MAX);
		MUST(target->device == LINEAR_NO_DEVICE ||
		     (unsigned int)target->device < t->nr_devices);
		MUST(linear_table_find(t, target->start) == target);
		MUST(linear_table_find(t, end - 1) == target);
	}
	MUST(t->size == end);
}

/* start, length and whether the type is linear, then the parameters */
static int add_live(struct linear_table *t, struct input *in)
{
	uint64_t start, length;
	char *params;
	bool linear;
	int ret = 0;

	while (!ret && in->left) {
		/* Mostly where the one before ended. */
		start = input_byte(in) ? t->size >> SECTOR_SHIFT :
					 input_u64(in);
		length = input_u64(in) >> (input_byte(in) & 63);
		linear = input_byte(in) & 1;
		params = input_text(in, '\n');
		if (!params)
			break;
		t->line++;
		ret = linear_table_add(t, start, length,
				       linear ? "linear" : "zero", params);
		free(params);
	}
	return ret;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct linear_table t = { .name = "table" };
	uint8_t how = input_byte(&in);
	unsigned int i;
	FILE *file;
	int ret;

	size_of = input_u64(&in) >> (how & 63);
	if (how & 0x80) {
		ret = add_live(&t, &in);
	} else {
		file = in.left ? fmemopen((void *)in.at, in.left, "r") : NULL;
		ret = file ? linear_table_read(&t, file) : -EINVAL;
		if (file) {
			fclose(file);
			MUST(!ret == !t.error[0]);
		}
	}
	MUST(ret <= 0 && memchr(t.error, '\0', sizeof(t.error)));
	if (!ret && t.nr_targets) {
		check(&t);
		ret = linear_table_open(&t, O_RDONLY);
		MUST(!ret == !t.error[0]);
	}
	if (!ret && t.nr_targets) {
		check(&t);
		for (i = 0; i < t.nr_targets; i++) {
			const struct linear_target *target = &t.targets[i];
			const struct linear_device *d;

			if (target->device == LINEAR_NO_DEVICE)
				continue;
			d = &t.devices[target->device];
			MUST(target->offset + target->length <= d->size);
			MUST(d->start <= target->offset);
			MUST(d->end >= target->offset + target->length);
		}
	}
	linear_table_free(&t);
	return 0;
}
