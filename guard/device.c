// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the system knows of a block device; see device.h.
 *
 * From sysfs and /proc alone, as there may be no udev: what it knows beyond
 * that are the links in /dev/disk.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/loop.h>

#include "device.h"

/* Devices above each other; a loop of them can't be, but sysfs may change. */
#define MAX_DEPTH 16

/* ---- sysfs ---------------------------------------------------------------- */

/* Without blanks at its ends. Returns its length. */
static size_t trim(char *s)
{
	size_t len = strlen(s), start = 0;

	while (len && isspace((unsigned char)s[len - 1]))
		s[--len] = '\0';
	while (isspace((unsigned char)s[start]))
		start++;
	memmove(s, s + start, len - start + 1);
	return len - start;
}

/* Read a file. Returns bytes, 0 if there is none; ends them with a NUL. */
static size_t read_file(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return 0;
	got = read(fd, buf, len - 1);
	close(fd);
	buf[got > 0 ? got : 0] = '\0';
	return got > 0 ? got : 0;
}

bool device_attribute(const struct device *d, const char *name, char *buf,
		      size_t len)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", d->sys, name);
	return read_file(path, buf, len) && trim(buf);
}

static unsigned long long number(const struct device *d, const char *name)
{
	char text[32];

	return device_attribute(d, name, text, sizeof(text)) ?
		strtoull(text, NULL, 10) : 0;
}

/* The device number in a sysfs file "dev"; 0: there is none. */
static dev_t read_dev(const char *path)
{
	unsigned int maj, min;
	char text[32];

	if (!read_file(path, text, sizeof(text)) ||
	    sscanf(text, "%u:%u", &maj, &min) != 2)
		return 0;
	return makedev(maj, min);
}

/* The last part of where the link @path leads. */
static int link_name(const char *path, char *name, size_t len)
{
	char target[512];
	ssize_t got = readlink(path, target, sizeof(target) - 1);
	char *slash;

	if (got < 0)
		return -errno;
	target[got] = '\0';
	slash = strrchr(target, '/');
	slash = slash ? slash + 1 : target;
	if (strlen(slash) >= len)
		return -ENAMETOOLONG;
	strcpy(name, slash);
	return 0;
}

int device_find(struct device *d, dev_t dev)
{
	char path[64], *mark;
	int ret;

	d->dev = dev;
	snprintf(d->sys, sizeof(d->sys), "/sys/dev/block/%u:%u", major(dev),
		 minor(dev));
	ret = link_name(d->sys, d->name, sizeof(d->name));
	if (ret)
		return ret;
	/* Its name has slashes, where sysfs has another character. */
	for (mark = d->name; (mark = strchr(mark, '!')); )
		*mark = '/';
	snprintf(path, sizeof(path), "%s/partition", d->sys);
	d->partition = !access(path, F_OK);
	return 0;
}

/* The next entry of @dir, past the two that every folder has; NULL: no more. */
static const char *next_entry(DIR *dir)
{
	struct dirent *e;

	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			return e->d_name;
	return NULL;
}

void device_for_each(const char *folder, bool partitions, device_fn *fn,
		     void *data)
{
	DIR *dir = opendir(folder);
	const char *name;
	struct device d;
	char path[512];
	dev_t dev;

	if (!dir)
		return;
	while ((name = next_entry(dir))) {
		snprintf(path, sizeof(path), "%s/%s/dev", folder, name);
		dev = read_dev(path);
		if (!dev || device_find(&d, dev))
			continue;
		if (partitions && !d.partition)
			continue;
		if (!fn(&d, data))
			break;
	}
	closedir(dir);
}

int device_disk(const struct device *d, struct device *disk)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/../dev", d->sys);
	return device_find(disk, read_dev(path));
}

int device_of_generic(dev_t dev, dev_t *block, char *name, size_t len)
{
	char path[128], own[40], blocks[80];
	unsigned int a, b;
	const char *found;
	DIR *dir;
	char end;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u", major(dev),
		 minor(dev));
	if (link_name(path, own, sizeof(own)))
		return -ENODEV;

	if (sscanf(own, "ng%un%u%c", &a, &b, &end) == 2) {
		snprintf(name, len, "nvme%un%u", a, b);
	} else if (sscanf(own, "sg%u%c", &a, &end) == 1) {
		snprintf(blocks, sizeof(blocks),
			 "/sys/class/scsi_generic/sg%u/device/block", a);
		dir = opendir(blocks);
		if (!dir)
			return -ENXIO;
		found = next_entry(dir);
		if (found)
			snprintf(name, len, "%s", found);
		closedir(dir);
		if (!found)
			return -ENXIO;
	} else {
		return -ENODEV;
	}

	snprintf(path, sizeof(path), "/sys/class/block/%s/dev", name);
	*block = read_dev(path);
	return *block ? 0 : -ENXIO;
}

/* ---- loop devices --------------------------------------------------------- */

/* What a loop device stands on. */
struct backing {
	dev_t dev;		/* a file: its file system and inode */
	ino_t ino;
	dev_t block;		/* a block device, else 0 */
};

static bool backing_of(const struct device *d, struct backing *b)
{
	struct loop_info64 info;
	char node[64], path[4096];
	struct stat st;
	int fd, ret = -1;

	if (!device_attribute(d, "loop/backing_file", path, sizeof(path)))
		return false;

	/* The path may be of another mount namespace, or another file's now. */
	snprintf(node, sizeof(node), "/dev/%s", d->name);
	fd = open(node, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0) {
		if (!fstat(fd, &st) && S_ISBLK(st.st_mode) &&
		    st.st_rdev == d->dev)
			ret = ioctl(fd, LOOP_GET_STATUS64, &info);
		close(fd);
	}
	*b = (struct backing){ 0 };
	if (!ret) {
		b->dev = info.lo_device;
		b->ino = info.lo_inode;
		/* Some kernels say of a file what it is on. */
		if (info.lo_rdevice != info.lo_device)
			b->block = info.lo_rdevice;
	} else if (!stat(path, &st)) {
		b->dev = st.st_dev;
		b->ino = st.st_ino;
		b->block = S_ISBLK(st.st_mode) ? st.st_rdev : 0;
	} else {
		return false;
	}
	return true;
}

bool device_behind_loop(const struct device *d, dev_t *behind)
{
	struct backing b;

	if (!backing_of(d, &b) || !b.block)
		return false;
	*behind = b.block;
	return true;
}

/* ---- users ---------------------------------------------------------------- */

void device_append(FILE *out, const char *separator, const char *fmt, ...)
{
	va_list ap;

	if (ftell(out) > 0)
		fputs(separator, out);
	va_start(ap, fmt);
	vfprintf(out, fmt, ap);
	va_end(ap);
}

#define say(out, ...) device_append(out, "; ", __VA_ARGS__)

/* What /proc escapes, a backslash and three octal digits, in place. */
static void unescape(char *s)
{
	unsigned int value;
	char *to = s;

	while (*s) {
		if (sscanf(s, "\\%3o", &value) == 1 && strlen(s) > 3) {
			*to++ = value;
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

static dev_t block_number(const char *path)
{
	struct stat st;

	return *path == '/' && !stat(path, &st) && S_ISBLK(st.st_mode) ?
		st.st_rdev : 0;
}

static void add_mounts(const struct device *d, FILE *out)
{
	FILE *in = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, *rest;
	char point[4096], source[4096];
	unsigned int maj, min;
	size_t size = 0;

	if (!in)
		return;
	while (getline(&line, &size, in) > 0) {
		if (sscanf(line, "%*s %*s %u:%u %*s %4095s", &maj, &min,
			   point) != 3)
			continue;
		rest = strstr(line, " - ");
		if (!rest || sscanf(rest, " - %*s %4095s", source) != 1)
			continue;
		unescape(source);
		/* btrfs gives each subvolume a number of its own. */
		if (makedev(maj, min) != d->dev &&
		    block_number(source) != d->dev)
			continue;
		unescape(point);
		say(out, "%s is mounted on %s", d->name, point);
	}
	free(line);
	fclose(in);
}

/* As swap, itself or the file behind it. */
static void add_swap(const struct device *d, const struct backing *b, FILE *out)
{
	FILE *in = fopen("/proc/swaps", "re");
	char *line = NULL, path[4096];
	struct stat st;
	size_t size = 0;

	if (!in)
		return;
	while (getline(&line, &size, in) > 0) {
		if (sscanf(line, "%4095s", path) != 1 || *path != '/')
			continue;
		unescape(path);
		if (stat(path, &st))
			continue;
		if (S_ISBLK(st.st_mode) && st.st_rdev == d->dev)
			say(out, "%s is swap", d->name);
		else if (b && S_ISREG(st.st_mode) && st.st_dev == b->dev &&
			 st.st_ino == b->ino)
			say(out, "%s, which is behind %s, is swap", path,
			    d->name);
	}
	free(line);
	fclose(in);
}

struct loop_search {
	const struct device *of;
	dev_t above;			/* is not counted */
	const struct backing *file;	/* of it, or NULL */
	FILE *out;
};

static bool add_loop(const struct device *d, void *data)
{
	const struct loop_search *s = data;
	struct backing b;

	if (d->dev == s->of->dev || d->dev == s->above || !backing_of(d, &b))
		return true;
	if (b.block == s->of->dev)
		say(s->out, "%s is behind %s", s->of->name, d->name);
	/* Two loop devices on one file know nothing of each other. */
	else if (s->file && !b.block && b.dev == s->file->dev &&
		 b.ino == s->file->ino)
		say(s->out, "the file behind %s is behind %s", s->of->name,
		    d->name);
	return true;
}

struct user_search {
	FILE *out;
	const struct device *below;
	unsigned int depth;
	dev_t above;
	unsigned long long start, end;	/* of the device, on its disk */
	dev_t self;
};

static void add_users(const struct device *d, dev_t above, FILE *out,
		      unsigned int depth);

static bool add_holder(const struct device *d, void *data)
{
	const struct user_search *s = data;

	say(s->out, "%s is part of %s", s->below->name, d->name);
	add_users(d, s->above, s->out, s->depth + 1);
	return true;
}

void device_own_users(const struct device *d, dev_t above, FILE *out)
{
	struct backing b;
	bool on_file = backing_of(d, &b) && !b.block;
	struct loop_search loops = { d, above, on_file ? &b : NULL, out };

	add_mounts(d, out);
	add_swap(d, on_file ? &b : NULL, out);
	device_for_each("/sys/block", false, add_loop, &loops);
}

/* Of the device, and of those that it is a part of. */
static void add_users(const struct device *d, dev_t above, FILE *out,
		      unsigned int depth)
{
	struct user_search holders = {
		.out = out, .below = d, .depth = depth, .above = above,
	};
	char path[64];

	if (depth > MAX_DEPTH)
		return;
	device_own_users(d, above, out);
	snprintf(path, sizeof(path), "%s/holders", d->sys);
	device_for_each(path, false, add_holder, &holders);
}

static bool add_partition(const struct device *d, void *data)
{
	const struct user_search *s = data;
	unsigned long long start = number(d, "start");

	if (d->dev != s->self && start < s->end &&
	    start + number(d, "size") > s->start)
		add_users(d, s->above, s->out, 0);
	return true;
}

void device_users(const struct device *d, dev_t above, FILE *out)
{
	struct user_search s = {
		.out = out, .above = above, .end = UINT64_MAX, .self = d->dev,
	};
	struct device disk;

	add_users(d, above, out, 0);
	if (!d->partition) {
		device_for_each(d->sys, true, add_partition, &s);
		return;
	}
	s.start = number(d, "start");
	s.end = s.start + number(d, "size");
	if (device_disk(d, &disk))
		return;
	add_users(&disk, above, out, 0);
	device_for_each(disk.sys, true, add_partition, &s);
}
