// SPDX-License-Identifier: GPL-2.0-only
/*
 * guard/device.c: /proc/self/mountinfo and /proc/swaps that say anything. No
 * line may hide another: a mount of the device, and that it is swap, is found
 * behind whatever stands before it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fuzz.h"

#define MOUNT	"\n36 35 8:1 / /the\\040mount rw shared:1 - ext4 /dev/sda1 rw\n"
#define SWAP	"\n/dev/the\\040swap partition 1 0 -2\n"

static char *mounts, *swaps;

static FILE *fake_fopen(const char *path)
{
	char *text = strstr(path, "swaps") ? swaps : mounts;

	return fmemopen(text, strlen(text), "r");
}

static int fake_stat(const char *path, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	if (strcmp(path, "/dev/the swap")) {
		errno = ENOENT;
		return -1;
	}
	st->st_mode = S_IFBLK;
	st->st_rdev = makedev(8, 1);
	return 0;
}

#define fopen(path, mode)		fake_fopen(path)
#define stat(path, st)			fake_stat(path, st)
#define open(path, flags)		(-1)
#define opendir(path)			NULL
#define readlink(path, buf, size)	(-1)
#include "guard/device.c"

/* What @part of the input has before it. */
static char *behind(struct input *in, char end, const char *part)
{
	char *before = input_text(in, end), *text;

	MUST(asprintf(&text, "%s%s", before ? before : "", part) > 0);
	free(before);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct device d = { .dev = makedev(8, 1), .name = "sda1" };
	struct input in = { data, size };
	char *found;
	size_t length;
	FILE *out;

	mounts = behind(&in, '\xff', MOUNT);
	swaps = behind(&in, '\xff', SWAP);
	out = open_memstream(&found, &length);
	MUST(out);
	device_own_users(&d, 0, out);
	MUST(!fclose(out));
	MUST(strstr(found, "sda1 is mounted on /the mount"));
	MUST(strstr(found, "sda1 is swap"));
	free(found);
	free(mounts);
	free(swaps);
	return 0;
}
