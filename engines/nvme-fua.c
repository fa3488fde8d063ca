// SPDX-License-Identifier: GPL-2.0-only
/*
 * NVMe writes with the FUA bit; see nvme-fua.h.
 *
 * A write by /dev/ngXnY reaches the drive as it was made: no page cache, no
 * splitting or merging, no I/O scheduler, no flush that the block layer would
 * add. So it shows what the drive itself takes for a durable write. Linux has
 * the device since 5.13 and io_uring commands for it since 5.19.
 *
 * Field offsets and status codes are those of the NVM Express Base
 * Specification 2.0 and the NVM Command Set Specification 1.0, which have
 * little-endian numbers.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "nvme-fua.h"

enum {
	ADMIN_IDENTIFY		= 0x06,
	CNS_NAMESPACE		= 0x00,
	CNS_CONTROLLER		= 0x01,

	IO_FLUSH		= 0x00,
	IO_WRITE		= 0x01,
	IO_READ			= 0x02,
	CDW12_FUA		= 1 << 30,

	/* Identify Controller */
	CTRL_MDTS		= 77,

	/* Identify Namespace */
	NS_NSZE			= 0,
	NS_NLBAF		= 25,
	NS_FLBAS		= 26,
	NS_LBAF			= 128,
	LBAF_SIZE		= 4,
	LBAF_MS			= 0,
	LBAF_LBADS		= 2,

	/* Status, without the phase bit */
	STATUS_SC		= 0xff,
	STATUS_SCT_SHIFT	= 8,
	STATUS_SCT		= 0x7,
	STATUS_DNR		= 1 << 14,
};

#define MAX_LBAS 65536		/* of a command: NLB has 16 bits, 0's based */
#define MIN_PAGE 4096		/* the smallest that CAP.MPSMIN can say */

static const char *const status_types[] = {
	"generic", "command specific", "media and data integrity", "path",
	"reserved", "reserved", "reserved", "vendor specific",
};

static const struct {
	uint16_t status;	/* type and code */
	uint16_t err;
	const char *name;
} statuses[] = {
	{ 0x001, EIO, "Invalid Command Opcode" },
	{ 0x002, EIO, "Invalid Field in Command" },
	{ 0x004, EIO, "Data Transfer Error" },
	{ 0x005, EIO, "Commands Aborted due to Power Loss Notification" },
	{ 0x006, EIO, "Internal Error" },
	{ 0x007, EIO, "Command Abort Requested" },
	{ 0x008, EIO, "Command Aborted due to SQ Deletion" },
	{ 0x00b, EIO, "Invalid Namespace or Format" },
	{ 0x00c, EIO, "Command Sequence Error" },
	{ 0x013, EIO, "PRP Offset Invalid" },
	{ 0x015, EIO, "Operation Denied" },
	{ 0x01c, EIO, "Sanitize Failed" },
	{ 0x01d, EIO, "Sanitize In Progress" },
	{ 0x020, EIO, "Namespace is Write Protected" },
	{ 0x021, EIO, "Command Interrupted" },
	{ 0x022, EIO, "Transient Transport Error" },
	{ 0x080, ENOSPC, "LBA Out of Range" },
	{ 0x081, ENOSPC, "Capacity Exceeded" },
	{ 0x082, EIO, "Namespace Not Ready" },
	{ 0x083, EBADE, "Reservation Conflict" },
	{ 0x084, EIO, "Format In Progress" },
	{ 0x180, EIO, "Conflicting Attributes" },
	{ 0x181, EIO, "Invalid Protection Information" },
	{ 0x182, EIO, "Attempted Write to Read Only Range" },
	{ 0x183, EIO, "Command Size Limit Exceeded" },
	{ 0x280, EIO, "Write Fault" },
	{ 0x281, EIO, "Unrecovered Read Error" },
	{ 0x282, EIO, "End-to-end Guard Check Error" },
	{ 0x283, EIO, "End-to-end Application Tag Check Error" },
	{ 0x284, EIO, "End-to-end Reference Tag Check Error" },
	{ 0x286, EIO, "Access Denied" },
	{ 0x287, EIO, "Deallocated or Unwritten Logical Block" },
	{ 0x300, EIO, "Internal Path Error" },
	{ 0x301, EIO, "Asymmetric Access Persistent Loss" },
	{ 0x302, EIO, "Asymmetric Access Inaccessible" },
	{ 0x303, EIO, "Asymmetric Access Transition" },
	{ 0x360, EIO, "Controller Pathing Error" },
	{ 0x370, EIO, "Host Pathing Error" },
	{ 0x371, EIO, "Command Aborted By Host" },
};

int nvme_fua_result(struct drive *d, const char *command, int result)
{
	unsigned int sct = result >> STATUS_SCT_SHIFT & STATUS_SCT;
	unsigned int sc = result & STATUS_SC, i;
	const char *name = "";
	int err = EIO;

	if (!result)
		return 0;
	if (result < 0) {
		const char *why = "";

		switch (result) {
		case -EACCES:
			why = "; passthrough needs root (CAP_SYS_ADMIN), or Linux >= 6.2 and the device opened for writing";
			break;
		case -EINVAL:
			why = "; the kernel could not map the buffer: take a smaller bs=, or iomem=mmaphuge";
			break;
		case -EINTR:
			why = "; the kernel cancelled it, after a timeout or a reset";
			break;
		case -EOPNOTSUPP:
			why = "; Linux has NVMe commands by io_uring since 5.19";
			break;
		}
		return drive_error(d, -result, "%s: NVMe %s: %s%s", d->path,
				   command, strerror(-result), why);
	}

	for (i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		if (statuses[i].status == (sct << STATUS_SCT_SHIFT | sc)) {
			name = statuses[i].name;
			err = statuses[i].err;
		}
	}
	return drive_error(d, err,
			   "%s: NVMe %s: status type %xh (%s), code %02xh%s%s%s%s",
			   d->path, command, sct, status_types[sct], sc,
			   *name ? " (" : "", name, *name ? ")" : "",
			   result & STATUS_DNR ? ", do not retry" : "");
}

static uint64_t le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

int nvme_fua_parse(struct drive *d, const uint8_t *ctrl, const uint8_t *ns)
{
	unsigned int flbas = ns[NS_FLBAS], nlbaf = ns[NS_NLBAF];
	unsigned int format = flbas & 0xf, lbads, ms;
	uint64_t nsze = le64(ns + NS_NSZE), limit;
	const uint8_t *lbaf;

	/* Only with more than 16 formats do two more bits of it count. */
	if (nlbaf >= 16)
		format |= (flbas >> 5 & 0x3) << 4;
	if (format > nlbaf)
		return drive_error(d, EIO,
				   "%s: Identify Namespace: format %u of %u",
				   d->path, format, nlbaf + 1);
	lbaf = ns + NS_LBAF + format * LBAF_SIZE;
	ms = lbaf[LBAF_MS] | lbaf[LBAF_MS + 1] << 8;
	lbads = lbaf[LBAF_LBADS];

	if (!nsze)
		return drive_error(d, ENODEV,
				   "%s: the namespace is not active", d->path);
	if (ms)
		return drive_error(d, EOPNOTSUPP,
				   "%s: its LBA format %u has %u bytes of metadata a block, which strategy=nvme-fua does not carry; take strategy=fua on its block device, or format it without (nvme id-ns -H, nvme format --lbaf=N, which destroys its content)",
				   d->path, format, ms);
	if (lbads < 9 || lbads > 31 || nsze > UINT64_MAX >> lbads)
		return drive_error(d, EIO,
				   "%s: Identify Namespace: %llu blocks of 2^%u bytes",
				   d->path, (unsigned long long)nsze, lbads);

	d->lba_shift = lbads;
	d->size = nsze << lbads;
	limit = (uint64_t)MAX_LBAS << lbads;
	/* Its unit is 2^(12 + CAP.MPSMIN), which only the kernel can read. */
	if (ctrl[CTRL_MDTS] && ctrl[CTRL_MDTS] < 20 &&
	    limit > (uint64_t)MIN_PAGE << ctrl[CTRL_MDTS])
		limit = (uint64_t)MIN_PAGE << ctrl[CTRL_MDTS];
	d->max_transfer = limit < UINT32_MAX ? limit : UINT32_MAX;
	return 0;
}

static int identify(struct drive *d, int fd, uint8_t cns, void *data)
{
	struct nvme_admin_cmd cmd = {
		.opcode = ADMIN_IDENTIFY,
		.nsid = cns == CNS_NAMESPACE ? d->nsid : 0,
		.addr = (uintptr_t)data,
		.data_len = NVME_IDENTIFY_SIZE,
		.cdw10 = cns,
	};
	int ret = ioctl(fd, NVME_IOCTL_ADMIN_CMD, &cmd);

	return nvme_fua_result(d, "Identify", ret < 0 ? -errno : ret);
}

int nvme_fua_identify(struct drive *d, int fd)
{
	uint8_t ctrl[NVME_IDENTIFY_SIZE] __attribute__((aligned(8)));
	uint8_t ns[NVME_IDENTIFY_SIZE] __attribute__((aligned(8)));
	unsigned int subsystem, head;
	unsigned long kib;
	int ret;

	ret = drive_find_name(d, fd);
	if (ret == -ENODEV)
		goto other;
	if (ret)
		return ret;
	if (sscanf(d->name, "nvme%un%u", &subsystem, &head) == 2)
		return drive_error(d, ENODEV,
				   "%s is a block device; strategy=nvme-fua goes around the block layer: take /dev/ng%un%u, or strategy=fua",
				   d->path, subsystem, head);
	if (sscanf(d->name, "ng%un%u", &subsystem, &head) != 2)
		goto other;
	snprintf(d->block, sizeof(d->block), "nvme%un%u", subsystem, head);

	ret = ioctl(fd, NVME_IOCTL_ID);
	if (ret <= 0)
		goto other;
	d->nsid = ret;
	ret = identify(d, fd, CNS_CONTROLLER, ctrl);
	if (!ret)
		ret = identify(d, fd, CNS_NAMESPACE, ns);
	if (!ret)
		ret = nvme_fua_parse(d, ctrl, ns);
	if (ret)
		return ret;

	if (drive_attribute(d, "queue/max_hw_sectors_kb", &kib) &&
	    d->max_transfer > kib * 1024)
		d->max_transfer = kib * 1024;
	return 0;
other:
	return drive_error(d, ENODEV,
			   "%s is not an NVMe namespace; strategy=nvme-fua takes its generic character device (/dev/ng0n1, listed by nvme list)",
			   d->path);
}

void nvme_fua_command(struct nvme_uring_cmd *cmd, const struct drive *d,
		      bool write, void *buf, uint32_t len, uint64_t offset)
{
	uint64_t slba = offset >> d->lba_shift;

	memset(cmd, 0, sizeof(*cmd));
	cmd->opcode = write ? IO_WRITE : IO_READ;
	cmd->nsid = d->nsid;
	cmd->addr = (uintptr_t)buf;
	cmd->data_len = len;
	cmd->cdw10 = (uint32_t)slba;
	cmd->cdw11 = slba >> 32;
	cmd->cdw12 = ((len >> d->lba_shift) - 1) | (write ? CDW12_FUA : 0);
}

int nvme_fua_flush(struct drive *d, int fd)
{
	struct nvme_passthru_cmd cmd = {
		.opcode = IO_FLUSH,
		.nsid = d->nsid,
	};
	int ret = ioctl(fd, NVME_IOCTL_IO_CMD, &cmd);

	return nvme_fua_result(d, "Flush", ret < 0 ? -errno : ret);
}
