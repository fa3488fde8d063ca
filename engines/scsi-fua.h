/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SCSI writes with the FUA bit, by SG_IO on a disk (sdX) or its generic
 * character device (sgN): commands, what a drive says of itself, status and
 * sense data.
 */
#ifndef DURABENCH_SCSI_FUA_H
#define DURABENCH_SCSI_FUA_H

#include <scsi/sg.h>
#include <sys/types.h>

#include "drive.h"

#define SCSI_CDB_SIZE 16	/* the longest that is used */

/*
 * Find out what drive @fd has open at @d->path: name, block device, size,
 * logical blocks, limits, FUA and write protection. Returns 0, or -errno with
 * @d->error.
 */
int scsi_fua_identify(struct drive *d, int fd);

/*
 * Write with FUA, or read, @len bytes at @offset, which drive_takes(). Returns
 * bytes transferred, or -errno with @d->error.
 */
ssize_t scsi_fua_transfer(struct drive *d, int fd, bool write, void *buf,
			  uint32_t len, uint64_t offset);

/* Flush the drive's cache. Returns 0, or -errno with @d->error. */
int scsi_fua_flush(struct drive *d, int fd);

/*
 * The parts of these. A READ or WRITE (with FUA) of @blocks at @lba; returns
 * the length of the command, 10 or 16.
 */
unsigned int scsi_fua_cdb(uint8_t cdb[SCSI_CDB_SIZE], bool write, uint64_t lba,
			  uint32_t blocks);

enum scsi_verdict { SCSI_GOOD, SCSI_RETRY, SCSI_FAILED };

/*
 * What became of command @h, which the kernel carried out: good, or worth a
 * retry as the kernel's disk driver would, or failed; if not good @d->error
 * says why and *@err is its errno.
 */
enum scsi_verdict scsi_fua_verdict(struct drive *d, const char *command,
				   const struct sg_io_hdr *h, int *err);

/* READ CAPACITY(10) data, 8 bytes. -EFBIG: only (16) can tell the size. */
int scsi_fua_parse_capacity10(struct drive *d, const uint8_t *data);
/* READ CAPACITY(16) data, 32 bytes. */
int scsi_fua_parse_capacity16(struct drive *d, const uint8_t *data);
/* The DEVICE-SPECIFIC PARAMETER of a mode parameter header. */
void scsi_fua_parse_mode(struct drive *d, uint8_t parameter);
/* The Block Limits VPD page, @len bytes, after the capacity is known. */
void scsi_fua_parse_limits(struct drive *d, const uint8_t *page, size_t len);

#endif
