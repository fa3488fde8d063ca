// SPDX-License-Identifier: GPL-2.0-only
/*
 * SCSI writes with the FUA bit; see scsi-fua.h.
 *
 * A write by SG_IO reaches the drive as it was made: no page cache, no
 * splitting or merging, no I/O scheduler, no flush that the block layer would
 * add. So it shows what the drive itself takes for a durable write. By sdX the
 * buffer is mapped; by sgN the kernel copies it, unless allow_dio of the sg
 * module is set.
 *
 * Layouts and codes are those of SBC-4 (commands, capacity, Block Limits),
 * SPC-5 (INQUIRY, mode parameters, sense data) and SAM-5 (status), which have
 * big-endian numbers.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "scsi-fua.h"

enum {
	INQUIRY			= 0x12,
	MODE_SENSE_6		= 0x1a,
	READ_CAPACITY_10	= 0x25,
	READ_10			= 0x28,
	WRITE_10		= 0x2a,
	SYNCHRONIZE_CACHE_10	= 0x35,
	MODE_SENSE_10		= 0x5a,
	READ_16			= 0x88,
	WRITE_16		= 0x8a,
	SERVICE_ACTION_IN_16	= 0x9e,
	READ_CAPACITY_16	= 0x10,		/* service action */

	CDB1_FUA		= 1 << 3,
	CDB1_EVPD		= 1 << 0,	/* INQUIRY */
	CDB1_DBD		= 1 << 3,	/* MODE SENSE */
	CACHING_PAGE		= 0x08,
	VPD_SUPPORTED		= 0x00,
	VPD_BLOCK_LIMITS	= 0xb0,

	/* Status */
	GOOD			= 0x00,
	CHECK_CONDITION		= 0x02,
	CONDITION_MET		= 0x04,
	BUSY			= 0x08,
	RESERVATION_CONFLICT	= 0x18,
	TASK_SET_FULL		= 0x28,
	ACA_ACTIVE		= 0x30,
	TASK_ABORTED		= 0x40,

	/* Sense keys */
	NO_SENSE		= 0x0,
	RECOVERED_ERROR		= 0x1,
	NOT_READY		= 0x2,
	ILLEGAL_REQUEST		= 0x5,
	UNIT_ATTENTION		= 0x6,
	DATA_PROTECT		= 0x7,
	ABORTED_COMMAND		= 0xb,

	DRIVER_SENSE		= 0x08,		/* the kernel's */
};

#define TIMEOUT_MS 60000
#define RETRIES 5		/* as Linux' sd driver */
#define RETRY_US 20000
#define SENSE_SIZE 96

static const char *const sense_keys[16] = {
	"NO SENSE", "RECOVERED ERROR", "NOT READY", "MEDIUM ERROR",
	"HARDWARE ERROR", "ILLEGAL REQUEST", "UNIT ATTENTION", "DATA PROTECT",
	"BLANK CHECK", "VENDOR SPECIFIC", "COPY ABORTED", "ABORTED COMMAND",
	"reserved", "VOLUME OVERFLOW", "MISCOMPARE", "COMPLETED",
};

/* The common ones of the assignments in SPC-5, annex F. */
static const struct {
	uint16_t code;		/* ASC and ASCQ */
	const char *name;
} additional_senses[] = {
	{ 0x0000, "no additional sense information" },
	{ 0x0006, "I/O process terminated" },
	{ 0x0300, "peripheral device write fault" },
	{ 0x0400, "logical unit not ready, cause not reportable" },
	{ 0x0401, "logical unit is in process of becoming ready" },
	{ 0x0402, "logical unit not ready, initializing command required" },
	{ 0x0404, "logical unit not ready, format in progress" },
	{ 0x041b, "logical unit not ready, sanitize in progress" },
	{ 0x0c00, "write error" },
	{ 0x0c01, "write error - recovered with auto reallocation" },
	{ 0x0c02, "write error - auto reallocation failed" },
	{ 0x1001, "logical block guard check failed" },
	{ 0x1100, "unrecovered read error" },
	{ 0x1104, "unrecovered read error - auto reallocate failed" },
	{ 0x1501, "mechanical positioning error" },
	{ 0x1900, "defect list error" },
	{ 0x2000, "invalid command operation code" },
	{ 0x2100, "logical block address out of range" },
	{ 0x2104, "unaligned write command" },
	{ 0x2400, "invalid field in CDB" },
	{ 0x2500, "logical unit not supported" },
	{ 0x2600, "invalid field in parameter list" },
	{ 0x2700, "write protected" },
	{ 0x2707, "space allocation failed write protect" },
	{ 0x2800, "not ready to ready change, medium may have changed" },
	{ 0x2900, "power on, reset, or bus device reset occurred" },
	{ 0x2901, "power on occurred" },
	{ 0x2902, "SCSI bus reset occurred" },
	{ 0x2903, "bus device reset function occurred" },
	{ 0x2a01, "mode parameters changed" },
	{ 0x2a09, "capacity data has changed" },
	{ 0x2f00, "commands cleared by another initiator" },
	{ 0x3200, "no defect spare location available" },
	{ 0x3a00, "medium not present" },
	{ 0x3f0e, "reported LUNs data has changed" },
	{ 0x4400, "internal target failure" },
	{ 0x4700, "SCSI parity error" },
	{ 0x4703, "information unit iuCRC error detected" },
	{ 0x5d00, "failure prediction threshold exceeded" },
};

/* Of the kernel (include/scsi/scsi_status.h), by number. */
static const char *const host_statuses[] = {
	"DID_OK", "DID_NO_CONNECT", "DID_BUS_BUSY", "DID_TIME_OUT",
	"DID_BAD_TARGET", "DID_ABORT", "DID_PARITY", "DID_ERROR", "DID_RESET",
	"DID_BAD_INTR", "DID_PASSTHROUGH", "DID_SOFT_ERROR", "DID_IMM_RETRY",
	"DID_REQUEUE", "DID_TRANSPORT_DISRUPTED", "DID_TRANSPORT_FAILFAST",
	"DID_TARGET_FAILURE", "DID_NEXUS_FAILURE", "DID_ALLOC_FAILURE",
	"DID_MEDIUM_ERROR", "DID_TRANSPORT_MARGINAL",
};

static uint16_t be16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}

static uint32_t be32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static uint64_t be64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static void put_be16(uint8_t *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, sizeof(v));
}

static void put_be32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static void put_be64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

unsigned int scsi_fua_cdb(uint8_t cdb[SCSI_CDB_SIZE], bool write, uint64_t lba,
			  uint32_t blocks)
{
	memset(cdb, 0, SCSI_CDB_SIZE);
	cdb[1] = write ? CDB1_FUA : 0;
	if (lba <= UINT32_MAX && blocks <= UINT16_MAX) {
		cdb[0] = write ? WRITE_10 : READ_10;
		put_be32(cdb + 2, lba);
		put_be16(cdb + 7, blocks);
		return 10;
	}
	cdb[0] = write ? WRITE_16 : READ_16;
	put_be64(cdb + 2, lba);
	put_be32(cdb + 10, blocks);
	return 16;
}

struct sense {
	bool deferred;		/* it is about an earlier command */
	uint8_t key;
	uint16_t code;		/* ASC and ASCQ */
};

/* Returns false if there is no sense data. */
static bool parse_sense(struct sense *s, const uint8_t *data, size_t len)
{
	uint8_t response = len ? data[0] & 0x7f : 0;

	*s = (struct sense){ .deferred = response & 1 };
	switch (response) {
	case 0x70:	/* fixed format */
	case 0x71:
		if (len < 3)
			return false;
		s->key = data[2] & 0xf;
		if (len >= 14 && data[7] >= 6)
			s->code = be16(data + 12);
		return true;
	case 0x72:	/* descriptor format */
	case 0x73:
		if (len < 4)
			return false;
		s->key = data[1] & 0xf;
		s->code = be16(data + 2);
		return true;
	}
	return false;
}

static const char *sense_name(uint16_t code)
{
	size_t i;

	for (i = 0; i < sizeof(additional_senses) /
			sizeof(additional_senses[0]); i++)
		if (additional_senses[i].code == code)
			return additional_senses[i].name;
	return "no name for it here; see the list of T10";
}

static enum scsi_verdict check_condition(struct drive *d, const char *command,
					 const struct sg_io_hdr *h, int *err)
{
	struct sense s;

	*err = EIO;
	if (!parse_sense(&s, h->sbp, h->sb_len_wr)) {
		drive_error(d, EIO, "%s: SCSI %s: CHECK CONDITION without sense data",
			    d->path, command);
		return SCSI_FAILED;
	}
	drive_error(d, EIO, "%s: SCSI %s: %s%s, %s (ASC %02xh, ASCQ %02xh)",
		    d->path, command, s.deferred ? "deferred: " : "",
		    sense_keys[s.key], sense_name(s.code), s.code >> 8,
		    s.code & 0xff);
	if (s.key == DATA_PROTECT && s.code == 0x2707)
		*err = ENOSPC;
	/* What a deferred error was told instead of has not been done. */
	if (s.key == NO_SENSE || s.key == RECOVERED_ERROR)
		return s.deferred ? SCSI_RETRY : SCSI_GOOD;
	if (s.deferred)
		return SCSI_FAILED;
	if (s.key == UNIT_ATTENTION || s.key == ABORTED_COMMAND ||
	    (s.key == NOT_READY && s.code == 0x0401))
		return SCSI_RETRY;
	return SCSI_FAILED;
}

enum scsi_verdict scsi_fua_verdict(struct drive *d, const char *command,
				   const struct sg_io_hdr *h, int *err)
{
	const char *name = "unknown status";

	*err = EIO;
	if (h->host_status) {
		drive_error(d, EIO, "%s: SCSI %s: host status %02xh (%s)",
			    d->path, command, h->host_status,
			    h->host_status < sizeof(host_statuses) /
			    sizeof(host_statuses[0]) ?
			    host_statuses[h->host_status] : "unknown");
		return SCSI_FAILED;
	}

	switch (h->status) {
	case GOOD:
	case CONDITION_MET:
		/* But for DRIVER_SENSE: there is sense data. */
		if (!(h->driver_status & ~DRIVER_SENSE))
			return SCSI_GOOD;
		drive_error(d, EIO, "%s: SCSI %s: driver status %02xh",
			    d->path, command, h->driver_status);
		return SCSI_FAILED;
	case CHECK_CONDITION:
		return check_condition(d, command, h, err);
	case BUSY:
		drive_error(d, EIO, "%s: SCSI %s: BUSY", d->path, command);
		return SCSI_RETRY;
	case TASK_SET_FULL:
		drive_error(d, EIO, "%s: SCSI %s: TASK SET FULL", d->path,
			    command);
		return SCSI_RETRY;
	case RESERVATION_CONFLICT:
		name = "RESERVATION CONFLICT, it is reserved for another host";
		*err = EBADE;
		break;
	case ACA_ACTIVE:
		name = "ACA ACTIVE";
		break;
	case TASK_ABORTED:
		name = "TASK ABORTED";
		break;
	}
	drive_error(d, *err, "%s: SCSI %s: status %02xh (%s)", d->path,
		    command, h->status, name);
	return SCSI_FAILED;
}

/*
 * Carry out a command, again if it is worth it. Returns bytes transferred, or
 * -errno with @d->error; *@sense_key is that of a command that failed, or 0.
 */
static ssize_t execute(struct drive *d, int fd, const char *command,
		       uint8_t *cdb, unsigned int cdb_len, int direction,
		       void *buf, uint32_t len, uint8_t *sense_key)
{
	uint8_t sense[SENSE_SIZE];
	struct sense s;
	int tries, err;

	for (tries = 0; ; tries++) {
		struct sg_io_hdr h = {
			.interface_id = 'S',
			.dxfer_direction = direction,
			.cmd_len = cdb_len,
			.mx_sb_len = sizeof(sense),
			.dxfer_len = len,
			.dxferp = buf,
			.cmdp = cdb,
			.sbp = sense,
			.timeout = TIMEOUT_MS,
			.flags = SG_FLAG_DIRECT_IO,
		};

		*sense_key = 0;
		if (ioctl(fd, SG_IO, &h) < 0) {
			if (errno == EINTR)
				continue;
			return drive_error(d, errno, "%s: SCSI %s: %s%s",
					   d->path, command, strerror(errno),
					   errno == EPERM || errno == EACCES ?
					   "; it needs root (CAP_SYS_RAWIO)" :
					   "");
		}
		switch (scsi_fua_verdict(d, command, &h, &err)) {
		case SCSI_GOOD:
			if (h.resid < 0 || (uint32_t)h.resid > len)
				h.resid = len;
			return len - h.resid;
		case SCSI_RETRY:
			if (tries < RETRIES) {
				usleep(RETRY_US);
				continue;
			}
			break;
		case SCSI_FAILED:
			break;
		}
		if (h.status == CHECK_CONDITION &&
		    parse_sense(&s, sense, h.sb_len_wr))
			*sense_key = s.key;
		return -err;
	}
}

/* A command that reads at least @min bytes of @data. */
static int inquire(struct drive *d, int fd, const char *command, uint8_t *cdb,
		   unsigned int cdb_len, void *data, size_t size, ssize_t min,
		   uint8_t *sense_key)
{
	ssize_t ret;

	memset(data, 0, size);
	ret = execute(d, fd, command, cdb, cdb_len, SG_DXFER_FROM_DEV, data,
		      size, sense_key);
	if (ret < 0)
		return ret;
	if (ret < min)
		return drive_error(d, EIO, "%s: SCSI %s: %zd bytes, where %zd or more are due",
				   d->path, command, ret, min);
	return 0;
}

static int set_blocks(struct drive *d, uint64_t last, uint32_t size)
{
	unsigned int shift = size ? __builtin_ctz(size) : 0;

	if (size < 512 || size != 1U << shift)
		return drive_error(d, EOPNOTSUPP,
				   "%s: its logical blocks have %u bytes, which Linux has no block device for; format it with 512 or 4096 (sg_format, which destroys its content)",
				   d->path, size);
	if (last >= UINT64_MAX >> shift)
		return drive_error(d, EIO, "%s: SCSI READ CAPACITY: last block %llu",
				   d->path, (unsigned long long)last);
	d->lba_shift = shift;
	d->size = (last + 1) << shift;
	/* The kernel's type for a length, and whole blocks. */
	d->max_transfer = INT32_MAX & ~(size - 1);
	return 0;
}

int scsi_fua_parse_capacity10(struct drive *d, const uint8_t *data)
{
	if (be32(data) == UINT32_MAX)
		return -EFBIG;
	return set_blocks(d, be32(data), be32(data + 4));
}

int scsi_fua_parse_capacity16(struct drive *d, const uint8_t *data)
{
	/* PROT_EN and P_TYPE, whose types count from 1 */
	if (data[12] & 1)
		return drive_error(d, EOPNOTSUPP,
				   "%s: it is formatted with protection information, type %u, which strategy=scsi-fua does not carry; take strategy=fua on its block device, or format it without (sg_format --fmtpinfo=0, which destroys its content)",
				   d->path, (data[12] >> 1 & 0x7) + 1);
	return set_blocks(d, be64(data), be32(data + 8));
}

void scsi_fua_parse_mode(struct drive *d, uint8_t parameter)
{
	d->write_protected = parameter & 0x80;	/* WP */
	d->no_fua = !(parameter & 0x10);	/* DPOFUA */
}

void scsi_fua_parse_limits(struct drive *d, const uint8_t *page, size_t len)
{
	uint64_t blocks;

	if (len < 12 || page[1] != VPD_BLOCK_LIMITS)
		return;
	blocks = be32(page + 8);	/* MAXIMUM TRANSFER LENGTH; 0: none */
	if (blocks && blocks << d->lba_shift < d->max_transfer)
		d->max_transfer = blocks << d->lba_shift;
}

static int read_capacity(struct drive *d, int fd, bool protect)
{
	uint8_t cdb10[10] = { READ_CAPACITY_10 };
	uint8_t cdb16[16] = { SERVICE_ACTION_IN_16, READ_CAPACITY_16 };
	uint8_t data[32], key;
	int ret;

	ret = inquire(d, fd, "READ CAPACITY(10)", cdb10, sizeof(cdb10), data,
		      8, 8, &key);
	if (!ret)
		ret = scsi_fua_parse_capacity10(d, data);
	/* Only (16) tells whether protection information is enabled. */
	if (ret != -EFBIG && (ret || !protect))
		return ret;

	put_be32(cdb16 + 10, sizeof(data));
	ret = inquire(d, fd, "READ CAPACITY(16)", cdb16, sizeof(cdb16), data,
		      sizeof(data), 13, &key);
	return ret ? ret : scsi_fua_parse_capacity16(d, data);
}

/* Like sd: (10), and (6) where the drive has no (10). */
static int mode_sense(struct drive *d, int fd)
{
	uint8_t cdb10[10] = { MODE_SENSE_10, CDB1_DBD, CACHING_PAGE };
	uint8_t cdb6[6] = { MODE_SENSE_6, CDB1_DBD, CACHING_PAGE };
	uint8_t data[64], key;
	int ret;

	put_be16(cdb10 + 7, sizeof(data));
	ret = inquire(d, fd, "MODE SENSE(10)", cdb10, sizeof(cdb10), data,
		      sizeof(data), 8, &key);
	if (!ret) {
		scsi_fua_parse_mode(d, data[3]);
	} else if (key == ILLEGAL_REQUEST) {
		cdb6[4] = sizeof(data);
		ret = inquire(d, fd, "MODE SENSE(6)", cdb6, sizeof(cdb6), data,
			      sizeof(data), 4, &key);
		if (!ret)
			scsi_fua_parse_mode(d, data[2]);
	}
	return ret;
}

/* A drive need not have the page, and one that has not may choke on it. */
static void read_limits(struct drive *d, int fd)
{
	uint8_t cdb[6] = { INQUIRY, CDB1_EVPD, VPD_SUPPORTED };
	uint8_t data[64], key;
	unsigned int i, n;

	cdb[4] = sizeof(data);
	if (inquire(d, fd, "INQUIRY", cdb, sizeof(cdb), data, sizeof(data), 4,
		    &key) || data[1] != VPD_SUPPORTED)
		return;
	n = data[3] < sizeof(data) - 4 ? data[3] : sizeof(data) - 4;
	for (i = 0; i < n && data[4 + i] != VPD_BLOCK_LIMITS; i++)
		;
	if (i == n)
		return;
	cdb[2] = VPD_BLOCK_LIMITS;
	if (!inquire(d, fd, "INQUIRY", cdb, sizeof(cdb), data, sizeof(data), 12,
		     &key))
		scsi_fua_parse_limits(d, data, sizeof(data));
}

/* The most that the kernel sends in one command. */
static void kernel_limit(struct drive *d, int fd, bool generic)
{
	unsigned short sectors;
	uint64_t limit = 0;
	int bytes;

	/* One request, of two types and units. */
	if (generic) {
		if (!ioctl(fd, BLKSECTGET, &bytes) && bytes > 0)
			limit = bytes;
	} else if (!ioctl(fd, BLKSECTGET, &sectors)) {
		limit = sectors * 512ULL;
	}
	if (limit && limit < d->max_transfer)
		d->max_transfer = limit & ~((1U << d->lba_shift) - 1);
}

/*
 * The name of its block device. A generic device has none where the drive is
 * not bound to sd.
 */
static void find_block(struct drive *d, bool generic)
{
	char path[sizeof(d->name) + sizeof("/sys/class/scsi_generic//device/block")];
	struct dirent *e;
	DIR *dir;

	if (!generic) {
		memcpy(d->block, d->name, sizeof(d->block));
		return;
	}
	snprintf(path, sizeof(path), "/sys/class/scsi_generic/%s/device/block",
		 d->name);
	dir = opendir(path);
	if (!dir)
		return;
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			snprintf(d->block, sizeof(d->block), "%.31s",
				 e->d_name);
	closedir(dir);
}

int scsi_fua_identify(struct drive *d, int fd)
{
	uint8_t cdb[6] = { INQUIRY }, data[36], key;
	unsigned long partition;
	bool generic;
	int ret, version;

	ret = drive_find_name(d, fd);
	if (ret && ret != -ENODEV)
		return ret;
	generic = !strncmp(d->name, "sg", 2);
	/* Not by way of dm either, which would lose the offset. */
	if (ret || (!generic && strncmp(d->name, "sd", 2)) ||
	    ioctl(fd, SG_GET_VERSION_NUM, &version) || version < 30000)
		return drive_error(d, ENODEV,
				   "%s is not a SCSI disk; strategy=scsi-fua takes /dev/sdX or /dev/sgN (listed by lsscsi -g)",
				   d->path);
	find_block(d, generic);
	if (!generic && drive_attribute(d, "partition", &partition))
		return drive_error(d, ENODEV,
				   "%s is a partition, and a SCSI command goes to the whole disk; take the disk, or strategy=fua",
				   d->path);

	cdb[4] = sizeof(data);
	ret = inquire(d, fd, "INQUIRY", cdb, sizeof(cdb), data, sizeof(data), 6,
		      &key);
	if (ret)
		return ret;
	if (data[0])
		return drive_error(d, ENODEV,
				   "%s: peripheral device type %02xh is no disk that takes writes anywhere (00h)",
				   d->path, data[0] & 0x1f);
	ret = read_capacity(d, fd, data[5] & 1);
	if (!ret)
		ret = mode_sense(d, fd);
	if (ret)
		return ret;
	read_limits(d, fd);
	kernel_limit(d, fd, generic);
	return 0;
}

ssize_t scsi_fua_transfer(struct drive *d, int fd, bool write, void *buf,
			  uint32_t len, uint64_t offset)
{
	uint8_t cdb[SCSI_CDB_SIZE], key;
	unsigned int cdb_len;

	cdb_len = scsi_fua_cdb(cdb, write, offset >> d->lba_shift,
			       len >> d->lba_shift);
	return execute(d, fd, write ? "WRITE" : "READ", cdb, cdb_len,
		       write ? SG_DXFER_TO_DEV : SG_DXFER_FROM_DEV, buf, len,
		       &key);
}

int scsi_fua_flush(struct drive *d, int fd)
{
	/* From block 0, of number 0: to the end. */
	uint8_t cdb[10] = { SYNCHRONIZE_CACHE_10 }, key;

	return execute(d, fd, "SYNCHRONIZE CACHE(10)", cdb, sizeof(cdb),
		       SG_DXFER_NONE, NULL, 0, &key);
}
