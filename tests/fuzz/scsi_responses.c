// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/scsi-fua.c: everything that a drive may answer, from INQUIRY to the
 * sense data of a write: lengths that lie, pages that are others than those
 * asked for, sense data that is cut off. The kernel's part of it is kept to
 * what the kernel does.
 */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>
#include <scsi/sg.h>

#include "fuzz.h"

static struct input in;
static bool generic;

static int fake_ioctl(int fd, unsigned long request, void *argument)
{
	struct sg_io_hdr *h = argument;
	uint8_t length;

	switch (request) {
	case SG_GET_VERSION_NUM:
		*(int *)argument = 30536;
		return 0;
	case BLKSECTGET:
		if (generic)
			*(int *)argument = input_u64(&in);
		else
			*(unsigned short *)argument = input_u64(&in);
		return input_byte(&in) % 2 ? -1 : 0;
	case SG_IO:
		break;
	default:
		errno = ENOTTY;
		return -1;
	}

	MUST(h->cmd_len <= 16 && h->interface_id == 'S');
	if (h->dxfer_direction == SG_DXFER_FROM_DEV) {
		length = input_byte(&in);
		if (length > h->dxfer_len)
			length = h->dxfer_len;
		input_bytes(&in, h->dxferp, length);
	}
	h->status = input_byte(&in);
	length = input_byte(&in);
	h->resid = length & 1 ? (int)input_u64(&in) : length / 2;
	h->host_status = length & 0x40 ? input_byte(&in) : 0;
	h->driver_status = length & 0x80 ? input_byte(&in) : 0;
	if (h->status) {
		length = input_byte(&in);
		h->sb_len_wr = length < h->mx_sb_len ? length : h->mx_sb_len;
		input_bytes(&in, h->sbp, h->sb_len_wr);
	}
	errno = EIO;
	return h->status == 0xee ? -1 : 0;
}

static ssize_t fake_readlink(const char *path, char *target, size_t size)
{
	strcpy(target, generic ? "../devices/sg0" : "../devices/sda");
	return strlen(target);
}

static int fake_fstat(int fd, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_mode = generic ? S_IFCHR : S_IFBLK;
	return 0;
}

#define ioctl		fake_ioctl
#define readlink	fake_readlink
#define fstat		fake_fstat
#define usleep(us)	((void)0)
#define opendir(path)	NULL
#include "engines/drive.c"
#include "engines/scsi-fua.c"

static void transfer(struct drive *d)
{
	uint32_t lba = 1U << d->lba_shift, len;
	static uint8_t buf[1];	/* the fake has no data for it */
	uint64_t offset;
	ssize_t ret;

	offset = input_u64(&in) % d->size & ~(uint64_t)(lba - 1);
	len = input_u64(&in) % d->max_transfer & ~(lba - 1);
	if (!drive_takes(d, offset, len))
		return;
	ret = scsi_fua_transfer(d, -1, true, buf, len, offset);
	MUST(ret <= (ssize_t)len && (ret >= 0 || d->error[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct drive d = { .path = "/dev/sg0" };
	uint32_t lba;

	in = (struct input){ data, size };
	generic = input_byte(&in) % 2;
	if (scsi_fua_identify(&d, -1)) {
		MUST(d.error[0]);
	} else {
		lba = 1U << d.lba_shift;
		MUST(d.lba_shift >= 9 && d.size >= lba && !(d.size % lba));
		MUST(d.max_transfer <= INT32_MAX && !(d.max_transfer % lba));
		if (d.max_transfer)
			transfer(&d);
		scsi_fua_flush(&d, -1);
		drive_check_bs(&d, lba, input_u64(&in));
	}
	MUST(memchr(d.error, '\0', sizeof(d.error)));
	return 0;
}
