/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * NVMe writes with the FUA bit, by the generic character device (ngXnY) of a
 * namespace: commands, Identify data and status codes.
 */
#ifndef DURABENCH_NVME_FUA_H
#define DURABENCH_NVME_FUA_H

#include <linux/nvme_ioctl.h>

#include "drive.h"

#define NVME_IDENTIFY_SIZE 4096

/*
 * Find out what drive @fd has open at @d->path: name, block device, namespace,
 * size, logical blocks, limits. Returns 0, or -errno with @d->error.
 */
int nvme_fua_identify(struct drive *d, int fd);

/*
 * The part of it that is in the data of Identify Controller and Identify
 * Namespace, NVME_IDENTIFY_SIZE bytes each.
 */
int nvme_fua_parse(struct drive *d, const uint8_t *ctrl, const uint8_t *ns);

/*
 * A write with FUA, or a read, of @len bytes at @offset, which drive_takes().
 */
void nvme_fua_command(struct nvme_uring_cmd *cmd, const struct drive *d,
		      bool write, void *buf, uint32_t len, uint64_t offset);

/* Flush the namespace. Returns 0, or -errno with @d->error. */
int nvme_fua_flush(struct drive *d, int fd);

/*
 * What the kernel reports of a command: 0, -errno, or the positive status of
 * the drive. Returns 0, or -errno with its words in @d->error.
 */
int nvme_fua_result(struct drive *d, const char *command, int result);

#endif
