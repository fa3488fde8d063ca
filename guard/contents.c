// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is on a device, as libblkid knows it; see device.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <blkid/blkid.h>

#include "device.h"

#define found(out, ...) device_append(out, ", ", __VA_ARGS__)

/* Has the device a use that libblkid is silent about? */
static const char *private_use(const struct device *d)
{
	const size_t lvm = strlen("LVM-") + 64;	/* of the group, of the volume */
	char uuid[160];

	if (!device_attribute(d, "dm/uuid", uuid, sizeof(uuid)))
		return NULL;
	if (!strncmp(uuid, "LVM-", 4) && strlen(uuid) > lvm)
		return "an internal volume of LVM";
	if (!strncmp(uuid, "stratis-1-private", 17))
		return "an internal volume of Stratis";
	return NULL;
}

static const char *value(blkid_probe probe, const char *name)
{
	const char *text;

	return blkid_probe_lookup_value(probe, name, &text, NULL) ? NULL : text;
}

static int add_contents(const struct device *d, int fd, FILE *out)
{
	blkid_probe probe = blkid_new_probe();
	const char *type, *label, *use = private_use(d);
	int ret;

	if (!probe)
		return -ENOMEM;
	if (use)
		found(out, "%s on %s", use, d->name);

	errno = 0;
	ret = blkid_probe_set_device(probe, fd, 0, 0);
	if (ret)
		goto free;
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE |
					  BLKID_SUBLKS_LABEL |
					  BLKID_SUBLKS_BADCSUM);
	blkid_probe_enable_partitions(probe, 1);
	blkid_probe_set_partitions_flags(probe, BLKID_PARTS_FORCE_GPT);

	while (!(ret = blkid_do_probe(probe))) {
		type = value(probe, "PTTYPE");
		if (type) {
			found(out, "a %s partition table on %s", type, d->name);
			continue;
		}
		type = value(probe, "TYPE");
		label = value(probe, "LABEL");
		if (label && *label)
			found(out, "%s '%s' on %s", type ? type : "something",
			      label, d->name);
		else
			found(out, "%s on %s", type ? type : "something",
			      d->name);
	}
free:
	blkid_free_probe(probe);
	/* What was read is not for a measurement to find in the page cache. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (ret < 0)
		return errno ? -errno : -EIO;
	return 0;
}

struct part_contents {
	FILE *out;
	int ret;
};

static bool add_part(const struct device *d, void *data)
{
	struct part_contents *p = data;
	char node[64];
	int fd;

	snprintf(node, sizeof(node), "/dev/%s", d->name);
	fd = open(node, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		p->ret = -errno;
		return false;
	}
	p->ret = add_contents(d, fd, p->out);
	close(fd);
	return !p->ret;
}

int device_contents(const struct device *d, int fd, FILE *out)
{
	struct part_contents p = { .out = out };

	p.ret = add_contents(d, fd, out);
	if (!p.ret && !d->partition)
		device_for_each(d->sys, true, add_part, &p);
	return p.ret;
}
