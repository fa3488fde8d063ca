// SPDX-License-Identifier: GPL-2.0-only
/*
 * A drive that is spoken to directly; see drive.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "drive.h"

int drive_error(struct drive *d, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(d->error, sizeof(d->error), fmt, ap);
	va_end(ap);
	return -err;
}

int drive_find_name(struct drive *d, int fd)
{
	char link[64], target[512];
	const char *name;
	struct stat st;
	ssize_t len;

	if (fstat(fd, &st))
		return drive_error(d, errno, "%s: %s", d->path,
				   strerror(errno));
	if (!S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode))
		return drive_error(d, ENODEV, "%s: not a device", d->path);

	snprintf(link, sizeof(link), "/sys/dev/%s/%u:%u",
		 S_ISCHR(st.st_mode) ? "char" : "block", major(st.st_rdev),
		 minor(st.st_rdev));
	len = readlink(link, target, sizeof(target) - 1);
	if (len < 0)
		return drive_error(d, errno, "%s: %s: %s", d->path, link,
				   strerror(errno));
	target[len] = '\0';
	name = strrchr(target, '/');
	snprintf(d->name, sizeof(d->name), "%.31s",
		 name ? name + 1 : target);
	return 0;
}

bool drive_attribute(const struct drive *d, const char *attribute,
		     unsigned long *value)
{
	char path[128], text[32];
	char *end;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/sys/class/block/%s/%s", d->block,
		 attribute);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return false;
	text[len] = '\0';
	*value = strtoul(text, &end, 10);
	return end != text;
}

int drive_check_bs(struct drive *d, uint64_t min, uint64_t max)
{
	uint32_t lba_size = 1U << d->lba_shift;

	if (min % lba_size || max % lba_size)
		return drive_error(d, EINVAL,
				   "%s: bs= must be a multiple of its logical block size of %u",
				   d->path, lba_size);
	if (max > d->max_transfer)
		return drive_error(d, EINVAL,
				   "%s: bs=%llu is more than one command can carry there; take at most %u",
				   d->path, (unsigned long long)max,
				   d->max_transfer & ~(lba_size - 1));
	return 0;
}
