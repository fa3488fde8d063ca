/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the system knows of a block device: who uses it, by what it can be
 * told from others, what is on it.
 */
#ifndef DURABENCH_GUARD_DEVICE_H
#define DURABENCH_GUARD_DEVICE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

struct device {
	dev_t dev;
	char name[40];		/* the kernel's: sda1 */
	char sys[48];		/* its folder in sysfs */
	bool partition;
};

/* Returns 0, or -errno if the kernel has no such block device. */
int device_find(struct device *d, dev_t dev);

/* The disk that a partition is a part of. Returns 0 or -errno. */
int device_disk(const struct device *d, struct device *disk);

/* Read a sysfs attribute without blanks at its ends; false: there is none. */
bool device_attribute(const struct device *d, const char *name, char *buf,
		      size_t len);

/*
 * Call @fn for every block device that has an entry in a folder of sysfs, or
 * only for partitions. It returns true to go on.
 */
typedef bool device_fn(const struct device *d, void *data);
void device_for_each(const char *folder, bool partitions, device_fn *fn,
		     void *data);

/*
 * The block device of a generic NVMe or SCSI device (ngXnY, sgN) of that
 * number, with its kernel's @name. Returns 0 with *@block, -ENODEV if @dev is
 * none of these, -ENXIO if it has no block device.
 */
int device_of_generic(dev_t dev, dev_t *block, char *name, size_t len);

/*
 * The block device that a loop device stands on; false: it is no loop device,
 * or stands on a file.
 */
bool device_behind_loop(const struct device *d, dev_t *behind);

/* Append a text to @out, with @separator before it if there is something. */
void device_append(FILE *out, const char *separator, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Append to @out who uses the device, its partitions, or what overlaps it on
 * its disk, as texts with "; " between them. @above, a loop device on it, is not
 * counted; 0: none.
 */
void device_users(const struct device *d, dev_t above, FILE *out);

/*
 * The same of the device alone, without what it is a part of: mounts, swap,
 * loop devices.
 */
void device_own_users(const struct device *d, dev_t above, FILE *out);

/*
 * The names that tell this device from all others and stay with it, best
 * first, then NULL; NULL if out of memory. Of a generic device without a block
 * device by device_generic_names().
 */
char **device_names(const struct device *d);
char **device_generic_names(dev_t dev);

/*
 * Append to @out what libblkid finds on the device, which @fd has open, and on
 * its partitions. Returns 0, or -errno if it can't be read.
 */
int device_contents(const struct device *d, int fd, FILE *out);

#endif
