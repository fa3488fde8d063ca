/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The block devices that are observed: finding the disk behind what a person
 * names, the disks below it, and their counters.
 *
 * The kernel counts flushes for whole disks only, and only where a request
 * queue executes them; so a partition stands for its disk, and a stacked
 * device (dm, md, a loop device, an NVMe multipath head) is observed together
 * with the disks it stands on.
 */
#ifndef DURABENCH_BLOCKDEV_H
#define DURABENCH_BLOCKDEV_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Fields of /sys/block/DISK/stat (Documentation/block/stat.rst), from 0.
 * Kernels before 4.18 have 11 of them, before 5.5 15.
 */
enum blockdev_field {
	BLOCKDEV_READS,
	BLOCKDEV_READ_MERGES,
	BLOCKDEV_READ_SECTORS,
	BLOCKDEV_READ_MS,
	BLOCKDEV_WRITES,
	BLOCKDEV_WRITE_MERGES,
	BLOCKDEV_WRITE_SECTORS,
	BLOCKDEV_WRITE_MS,
	BLOCKDEV_IN_FLIGHT,
	BLOCKDEV_BUSY_MS,
	BLOCKDEV_QUEUE_MS,
	BLOCKDEV_DISCARDS,
	BLOCKDEV_DISCARD_MERGES,
	BLOCKDEV_DISCARD_SECTORS,
	BLOCKDEV_DISCARD_MS,
	BLOCKDEV_FLUSHES,
	BLOCKDEV_FLUSH_MS,
	BLOCKDEV_FIELDS
};

#define BLOCKDEV_NAME 64

struct blockdev {
	char name[BLOCKDEV_NAME];	/* kernel name, "loop0" */
	const char *argument;		/* as the user named it; NULL: below */
	unsigned int *above;		/* indices of the devices directly above */
	unsigned int nr_above;

	char write_cache[24];		/* "write back"; empty: unknown */
	char scheduler[32];		/* empty: unknown */
	int fua, rotational;		/* 0, 1, or -1: unknown */

	int fd;				/* of stat; -1: gone */
	double gone;			/* when it was found gone, s; else -1 */
	bool bio_based;			/* has no queue that counts flushes */
	unsigned int fields;		/* the kernel's number of them */
	uint64_t last[BLOCKDEV_FIELDS];
	uint64_t total[BLOCKDEV_FIELDS];	/* since the first sample */
};

struct blockdevs {
	int sysfd;		/* /sys, or another one in tests */
	struct blockdev *dev;
	unsigned int nr;
};

/*
 * Add the disk behind @spec: a kernel name ("sda1"), a block device node or
 * a link to one, or a file or directory, for the device of its file system.
 * @spec must stay. Returns 0 or
 *   -ENXIO    a file system without a block device of its own
 *   -ENOTBLK  neither a block device nor a file or directory
 *   -ENODEV   sysfs knows no such block device
 *   or another -errno of stat(2) or memory.
 */
int blockdevs_add(struct blockdevs *devs, const char *spec);

/* Add the disks below those there are, to the bottom. Returns 0 or -errno. */
int blockdevs_add_below(struct blockdevs *devs);

/*
 * Read the counters of all; the first time is the beginning. A device that
 * has gone since keeps what was counted; @t says when.
 */
void blockdevs_sample(struct blockdevs *devs, double t);
void blockdevs_free(struct blockdevs *devs);

/* Has the kernel a count of this field for this device? */
bool blockdev_counts(const struct blockdev *dev, enum blockdev_field field);

/* From @last to @now of a counter that may have wrapped or begun again. */
uint64_t blockdev_delta(uint64_t last, uint64_t now);

#endif
