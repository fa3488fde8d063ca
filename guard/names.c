// SPDX-License-Identifier: GPL-2.0-only
/*
 * The names of a device that a person can confirm it by; see device.h.
 *
 * A name must stay with the device and be of no other: namespaces of one NVMe
 * controller have one serial number, and so have cheap disks by the thousand.
 * What two devices have confirms neither.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <blkid/blkid.h>

#include "device.h"

struct names {
	char **list;		/* ends with NULL */
	size_t nr;
};

static void add(struct names *n, const char *name)
{
	char **list;
	size_t i;

	for (i = 0; i < n->nr; i++)
		if (!strcmp(n->list[i], name))
			return;
	list = reallocarray(n->list, n->nr + 2, sizeof(*list));
	if (!list)
		return;
	n->list = list;
	list[n->nr] = strdup(name);
	if (list[n->nr])
		list[++n->nr] = NULL;
}

/* Where drivers tell what a whole disk is called. */
static const char *const attributes[] = {
	"serial",		/* virtio-blk */
	"device/serial",	/* NVMe, MMC */
	"device/vpd_pg80",	/* SCSI, ATA: Unit Serial Number */
	"wwid",			/* NVMe */
	"device/wwid",		/* SCSI, ATA */
};

#define NR_ATTRIBUTES	(sizeof(attributes) / sizeof(attributes[0]))

static bool identity(const struct device *d, const char *attribute, char *buf,
		     size_t len)
{
	char raw[256] = "";
	const char *name = raw;
	size_t i;

	if (!device_attribute(d, attribute, raw, sizeof(raw))) {
		/* A page begins with a NUL, its number and its length. */
		if (strcmp(attribute, "device/vpd_pg80") || raw[1] != '\x80')
			return false;
		name = raw + 4;
		name += strspn(name, " ");
	}
	snprintf(buf, len, "%s", name);
	for (i = strlen(buf); i && buf[i - 1] == ' '; i--)
		buf[i - 1] = '\0';
	return *buf;
}

struct twin_search {
	dev_t self;
	const char *name;
	bool found;
};

static bool is_twin(const struct device *d, void *data)
{
	struct twin_search *s = data;
	char name[256];
	size_t i;

	if (d->dev == s->self)
		return true;
	for (i = 0; i < NR_ATTRIBUTES; i++)
		if (identity(d, attributes[i], name, sizeof(name)) &&
		    !strcmp(name, s->name))
			s->found = true;
	return !s->found;
}

/* Has another disk the same, whatever its driver takes it for? */
static bool is_shared(const struct device *d, const char *name)
{
	struct twin_search s = { d->dev, name, false };

	device_for_each("/sys/block", false, is_twin, &s);
	return s.found;
}

static void add_attributes(struct names *n, const struct device *d)
{
	char name[256];
	size_t i;

	for (i = 0; i < NR_ATTRIBUTES; i++)
		if (identity(d, attributes[i], name, sizeof(name)) &&
		    !is_shared(d, name))
			add(n, name);
}

/* The links in a folder of /dev/disk that lead to the device. */
static void add_links(struct names *n, dev_t dev, const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	struct stat st;

	if (!dir)
		return;
	while ((e = readdir(dir)))
		if (!fstatat(dirfd(dir), e->d_name, &st, 0) &&
		    S_ISBLK(st.st_mode) && st.st_rdev == dev)
			add(n, e->d_name);
	closedir(dir);
}

/* The UUID that the disk's partition table gives it, which udev may not tell. */
static void add_partuuid(struct names *n, const struct device *d)
{
	blkid_partition part = NULL;
	blkid_partlist list;
	struct device disk;
	blkid_probe probe;
	const char *uuid;
	char node[64];

	if (device_disk(d, &disk))
		return;
	snprintf(node, sizeof(node), "/dev/%s", disk.name);
	probe = blkid_new_probe_from_filename(node);
	if (!probe)
		return;
	blkid_probe_enable_partitions(probe, 1);
	list = blkid_probe_get_partitions(probe);
	if (list)
		part = blkid_partlist_devno_to_partition(list, d->dev);
	uuid = part ? blkid_partition_get_uuid(part) : NULL;
	if (uuid && *uuid)
		add(n, uuid);
	blkid_free_probe(probe);
}

char **device_names(const struct device *d)
{
	struct names n = { calloc(1, sizeof(*n.list)), 0 };
	struct device behind;
	char text[4096];
	dev_t dev;

	if (!n.list)
		return NULL;
	if (device_behind_loop(d, &dev) && !device_find(&behind, dev)) {
		free(n.list);
		return device_names(&behind);
	}
	if (d->partition) {
		add_partuuid(&n, d);
	} else {
		add_attributes(&n, d);
		if (device_attribute(d, "loop/backing_file", text,
				     sizeof(text)))
			add(&n, text);
		if (device_attribute(d, "dm/name", text, sizeof(text)))
			add(&n, text);
		if (device_attribute(d, "dm/uuid", text, sizeof(text)))
			add(&n, text);
		if (device_attribute(d, "md/uuid", text, sizeof(text)))
			add(&n, text);
	}
	add_links(&n, d->dev, "/dev/disk/by-id");
	add_links(&n, d->dev, "/dev/disk/by-partuuid");
	return n.list;
}

char **device_generic_names(dev_t dev)
{
	struct names n = { calloc(1, sizeof(*n.list)), 0 };
	struct device d = { .dev = 0 };

	if (!n.list)
		return NULL;
	snprintf(d.sys, sizeof(d.sys), "/sys/dev/char/%u:%u", major(dev),
		 minor(dev));
	add_attributes(&n, &d);
	return n.list;
}
