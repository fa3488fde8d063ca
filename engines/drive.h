/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A drive that is spoken to directly, by NVMe or SCSI commands: what the two
 * ways share. See nvme-fua.h and scsi-fua.h.
 */
#ifndef DURABENCH_DRIVE_H
#define DURABENCH_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct drive {
	const char *path;	/* as the user named it */
	char name[32];		/* the kernel's name: ng0n1, sg3, sdb */
	char block[32];		/* of its block device; "" if it has none */
	uint64_t size;		/* bytes */
	unsigned int lba_shift;	/* a logical block has 1 << lba_shift bytes */
	uint32_t max_transfer;	/* bytes a command */
	uint32_t nsid;		/* of an NVMe namespace */
	bool no_fua;		/* it can't do FUA writes */
	bool write_protected;
	char error[512];	/* why a call failed, and the way out */
};

/* Set @d->error. Returns -@err. */
int drive_error(struct drive *d, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Find out by which @name the kernel knows what @fd has open. Returns 0, or
 * -errno with @d->error.
 */
int drive_find_name(struct drive *d, int fd);

/*
 * Read a number from /sys/class/block/@d->block/@attribute. Returns false if
 * there is none.
 */
bool drive_attribute(const struct drive *d, const char *attribute,
		     unsigned long *value);

/* Can one command carry @len bytes at @offset? */
static inline bool drive_takes(const struct drive *d, uint64_t offset,
			       uint64_t len)
{
	return len && len <= d->max_transfer &&
	       !((offset | len) & ((1ULL << d->lba_shift) - 1));
}

/*
 * Can commands carry blocks of @min to @max bytes? Returns 0, or -EINVAL with
 * @d->error.
 */
int drive_check_bs(struct drive *d, uint64_t min, uint64_t max);

#endif
