// SPDX-License-Identifier: GPL-2.0-only
/*
 * The block devices that are observed; see blockdev.h.
 *
 * All is found in sysfs: /sys/class/block/NAME and /sys/dev/block/MAJOR:MINOR
 * link to the device's folder, in which a partition has a file `partition`
 * and stands in the folder of its disk; `slaves` of a dm, md or bcache device
 * links to what it stands on; loop/backing_file of a loop device names its
 * file. The paths of an NVMe multipath head nvmeXnY are the hidden disks
 * nvmeXcCnY.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "blockdev.h"
#include "file.h"

/* Name of the disk whose folder, or a partition's of it, @link leads to. */
static int disk_name(int sysfd, const char *link, char *name)
{
	char target[PATH_MAX], path[PATH_MAX];
	char *last, *base;
	ssize_t length;

	length = readlinkat(sysfd, link, target, sizeof(target) - 1);
	if (length < 0)
		return -ENODEV;
	target[length] = '\0';

	last = strrchr(target, '/');
	if (!last)
		return -ENODEV;
	base = last + 1;
	if (snprintf(path, sizeof(path), "%s/partition", link) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	if (!faccessat(sysfd, path, F_OK, 0)) {
		*last = '\0';
		last = strrchr(target, '/');
		if (!last)
			return -ENODEV;
		base = last + 1;
	}
	if (strlen(base) >= BLOCKDEV_NAME)
		return -ENAMETOOLONG;
	strcpy(name, base);
	return 0;
}

/* Name of the disk of a node or of the file system of a file. */
static int disk_of_path(int sysfd, const char *path, char *name)
{
	char link[64];
	struct stat st;
	dev_t dev;

	if (stat(path, &st))
		return -errno;
	if (S_ISBLK(st.st_mode))
		dev = st.st_rdev;
	else if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		dev = st.st_dev;
	else
		return -ENOTBLK;
	if (!major(dev))	/* an anonymous one: no block device has it */
		return -ENXIO;

	snprintf(link, sizeof(link), "dev/block/%u:%u", major(dev), minor(dev));
	return disk_name(sysfd, link, name);
}

static int disk_of_spec(int sysfd, const char *spec, char *name)
{
	char link[BLOCKDEV_NAME + 16];

	if (*spec && *spec != '.' && !strchr(spec, '/') &&
	    strlen(spec) < BLOCKDEV_NAME) {
		snprintf(link, sizeof(link), "class/block/%s", spec);
		if (!disk_name(sysfd, link, name))
			return 0;
	}
	return disk_of_path(sysfd, spec, name);
}

/* Path of @file of a disk, below sysfs. */
static const char *disk_file(const char *name, const char *file,
			     char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "block/%s/%s", name, file);
	return path;
}

static int read_flag(int sysfd, const char *path)
{
	char buf[16];

	if (file_read(sysfd, path, buf, sizeof(buf)) != 1 ||
	    (buf[0] != '0' && buf[0] != '1'))
		return -1;
	return buf[0] - '0';
}

/* "none [mq-deadline] kyber": the chosen one is in brackets, or alone. */
static void read_scheduler(int sysfd, const char *path, char *name, size_t size)
{
	char buf[256], *begin, *end;

	name[0] = '\0';
	if (file_read(sysfd, path, buf, sizeof(buf)) < 0)
		return;
	begin = strchr(buf, '[');
	begin = begin ? begin + 1 : buf;
	end = strpbrk(begin, "] ");
	if (end)
		*end = '\0';
	if (strlen(begin) < size)
		strcpy(name, begin);
}

static int find_disk(const struct blockdevs *devs, const char *name)
{
	unsigned int i;

	for (i = 0; i < devs->nr; i++)
		if (!strcmp(devs->dev[i].name, name))
			return i;
	return -ENOENT;
}

/* Returns the disk's index, be it new or not, or -errno. */
static int add_disk(struct blockdevs *devs, const char *name)
{
	int fd, sysfd = devs->sysfd, index = find_disk(devs, name);
	char path[PATH_MAX];
	struct blockdev *dev;

	if (index >= 0)
		return index;
	if (strlen(name) >= sizeof(dev->name))
		return -ENAMETOOLONG;

	fd = openat(sysfd, disk_file(name, "stat", path), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENODEV : -errno;
	dev = realloc(devs->dev, (devs->nr + 1) * sizeof(*dev));
	if (!dev) {
		close(fd);
		return -ENOMEM;
	}
	devs->dev = dev;
	dev += devs->nr;
	memset(dev, 0, sizeof(*dev));

	strcpy(dev->name, name);
	dev->fd = fd;
	dev->gone = -1;
	/* only queues of blk-mq have this folder */
	dev->bio_based = faccessat(sysfd, disk_file(name, "mq", path), F_OK, 0);
	if (file_read(sysfd, disk_file(name, "queue/write_cache", path),
		      dev->write_cache, sizeof(dev->write_cache)) < 0)
		dev->write_cache[0] = '\0';
	dev->fua = read_flag(sysfd, disk_file(name, "queue/fua", path));
	dev->rotational = read_flag(sysfd,
				    disk_file(name, "queue/rotational", path));
	read_scheduler(sysfd, disk_file(name, "queue/scheduler", path),
		       dev->scheduler, sizeof(dev->scheduler));
	return devs->nr++;
}

int blockdevs_add(struct blockdevs *devs, const char *spec)
{
	char name[BLOCKDEV_NAME];
	int index, err;

	err = disk_of_spec(devs->sysfd, spec, name);
	if (err)
		return err;
	index = add_disk(devs, name);
	if (index < 0)
		return index;
	if (!devs->dev[index].argument)
		devs->dev[index].argument = spec;
	return 0;
}

/* Add @name as one directly below the device @upper. */
static int add_lower(struct blockdevs *devs, unsigned int upper,
		     const char *name)
{
	unsigned int i, *above;
	struct blockdev *dev;
	int index;

	index = add_disk(devs, name);
	if (index == -ENODEV)	/* gone while we looked */
		return 0;
	if (index < 0)
		return index;

	dev = &devs->dev[index];
	for (i = 0; i < dev->nr_above; i++)
		if (dev->above[i] == upper)
			return 0;
	above = realloc(dev->above, (dev->nr_above + 1) * sizeof(*above));
	if (!above)
		return -ENOMEM;
	dev->above = above;
	above[dev->nr_above++] = upper;
	return 0;
}

static int add_slave(struct blockdevs *devs, unsigned int upper,
		     const char *entry)
{
	char path[PATH_MAX], name[BLOCKDEV_NAME];

	snprintf(path, sizeof(path), "block/%s/slaves/%s",
		 devs->dev[upper].name, entry);
	if (disk_name(devs->sysfd, path, name))
		return 0;
	return add_lower(devs, upper, name);
}

static int add_nvme_path(struct blockdevs *devs, unsigned int upper,
			 const char *entry)
{
	unsigned int subsystem, namespace, s, controller, n;
	int end = 0;

	sscanf(devs->dev[upper].name, "nvme%un%u%n", &subsystem, &namespace,
	       &end);
	if (!end || devs->dev[upper].name[end])
		return 0;
	end = 0;
	sscanf(entry, "nvme%uc%un%u%n", &s, &controller, &n, &end);
	if (!end || entry[end] || s != subsystem || n != namespace)
		return 0;
	return add_lower(devs, upper, entry);
}

static int for_each_entry(struct blockdevs *devs, unsigned int upper,
			  const char *folder,
			  int (*add)(struct blockdevs *devs, unsigned int upper,
				     const char *entry))
{
	int fd, err = 0;
	struct dirent *entry;
	DIR *dir;

	fd = openat(devs->sysfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while (!err && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			err = add(devs, upper, entry->d_name);
	closedir(dir);
	return err;
}

/*
 * A file that is not found by its name (it was deleted, or is in another
 * mount namespace) or has no device of its own ends the way down.
 */
static int add_backing(struct blockdevs *devs, unsigned int upper)
{
	char path[PATH_MAX], file[PATH_MAX], name[BLOCKDEV_NAME];

	disk_file(devs->dev[upper].name, "loop/backing_file", path);
	if (file_read(devs->sysfd, path, file, sizeof(file)) <= 0 ||
	    disk_of_path(devs->sysfd, file, name))
		return 0;
	return add_lower(devs, upper, name);
}

int blockdevs_add_below(struct blockdevs *devs)
{
	char path[PATH_MAX];
	unsigned int i;
	int err = 0;

	for (i = 0; i < devs->nr && !err; i++) {
		disk_file(devs->dev[i].name, "slaves", path);
		err = for_each_entry(devs, i, path, add_slave);
		if (!err)
			err = for_each_entry(devs, i, "block", add_nvme_path);
		if (!err)
			err = add_backing(devs, i);
	}
	return err;
}

/*
 * The kernel prints counts as unsigned long and times as unsigned int, so a
 * time wraps after 49.7 days of it (which many requests in flight reach in
 * one), and on 32 bits a count wraps too. A step back that is no wrap is a
 * device whose counters began again at 0.
 */
uint64_t blockdev_delta(uint64_t last, uint64_t now)
{
	if (now >= last)
		return now - last;
	if (last <= UINT32_MAX && (uint32_t)(now - last) <= INT32_MAX)
		return (uint32_t)(now - last);
	if (now - last <= INT64_MAX)
		return now - last;
	return now;
}

static void sample(struct blockdev *dev, double t)
{
	bool first = !dev->fields;
	uint64_t now[BLOCKDEV_FIELDS];
	char buf[512], *at = buf, *end;
	unsigned int i, fields;

	if (dev->fd < 0)
		return;
	if (file_reread(dev->fd, buf, sizeof(buf)) <= 0) {
		close(dev->fd);
		dev->fd = -1;
		dev->gone = t;
		return;
	}
	for (fields = 0; fields < BLOCKDEV_FIELDS; fields++, at = end) {
		now[fields] = strtoull(at, &end, 10);
		if (end == at)
			break;
	}
	if (first)
		dev->fields = fields;

	for (i = 0; i < fields; i++) {
		if (!first && i != BLOCKDEV_IN_FLIGHT)
			dev->total[i] += blockdev_delta(dev->last[i], now[i]);
		dev->last[i] = now[i];
	}
}

void blockdevs_sample(struct blockdevs *devs, double t)
{
	unsigned int i;

	for (i = 0; i < devs->nr; i++)
		sample(&devs->dev[i], t);
}

void blockdevs_free(struct blockdevs *devs)
{
	unsigned int i;

	for (i = 0; i < devs->nr; i++) {
		if (devs->dev[i].fd >= 0)
			close(devs->dev[i].fd);
		free(devs->dev[i].above);
	}
	free(devs->dev);
	devs->dev = NULL;
	devs->nr = 0;
}

bool blockdev_counts(const struct blockdev *dev, enum blockdev_field field)
{
	if (field >= dev->fields)
		return false;
	/* a kernel that has counted one since boot does count them */
	return field < BLOCKDEV_FLUSHES || !dev->bio_based ||
	       dev->last[BLOCKDEV_FLUSHES];
}
