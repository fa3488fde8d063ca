/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device-mapper table of linear targets, mapped in user space.
 *
 * The kernel's dm-linear maps a range of a mapped device to a range of
 * another block device (drivers/md/dm-linear.c). This does the same with file
 * descriptors, so that it needs no device-mapper, no root, and maps regular
 * files as well. A table is read with linear_table_read() from dmsetup's
 * format, or target by target with linear_table_add(); then its devices are
 * opened with linear_table_open().
 *
 * Tables count in sectors of 512 bytes; everything here is in bytes, except
 * where a comment says sectors.
 */
#ifndef DURABENCH_LINEAR_TABLE_H
#define DURABENCH_LINEAR_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* A target "zero" has no device: it reads as zeros and drops what is written. */
#define LINEAR_NO_DEVICE -1

struct linear_target {
	uint64_t start, length;	/* range of the mapped device */
	uint64_t offset;	/* where that begins on the device below */
	int device;		/* index of that, or LINEAR_NO_DEVICE */
	unsigned int line;	/* of the table, for messages */
};

/* A device below: once for each device, however many names a table has. */
struct linear_device {
	char *name;		/* as the table has it */
	unsigned int line;	/* where it has it first */
	char *path;		/* the node or file, without symbolic links */
	bool block;
	dev_t dev;		/* which one it is: of a block device its */
	ino_t ino;		/* number and 0, of a file as stat(2) has it */
	int fd;
	uint64_t size;
	uint64_t start, end;	/* the part that the table maps lies inside */
};

struct linear_table {
	const char *name;	/* for messages: set it before anything else */
	char error[1024];	/* why a function failed: one line */
	struct linear_target *targets;	/* in order, without gaps, from 0 */
	unsigned int nr_targets;
	struct linear_device *devices;
	unsigned int nr_devices;
	void *names;		/* tree of them by name, until they are opened */
	uint64_t size;		/* of the mapped device */
	unsigned int line;	/* that is being read, from 1 */
};

/*
 * Read @in to its end: a target a line, blank lines and lines that begin with
 * "#" are passed over. Returns 0, or -errno with @t->error set, as all here.
 */
int linear_table_read(struct linear_table *t, FILE *in);

/*
 * Append a target; @start and @length in sectors, @params as dmsetup has them:
 * "device offset" for the type "linear", nothing for "zero". Cuts @params up.
 */
int linear_table_add(struct linear_table *t, uint64_t start, uint64_t length,
		     const char *type, char *params);

/*
 * Open the devices of a complete table with open(2)'s @flags, each device
 * once, and check that they hold what the table maps.
 */
int linear_table_open(struct linear_table *t, int flags);

/* The target that maps byte @pos, which must be less than @t->size. */
const struct linear_target *linear_table_find(const struct linear_table *t,
					      uint64_t pos);

/* Close and free everything. Accepts a table that was not opened or filled. */
void linear_table_free(struct linear_table *t);

#endif
