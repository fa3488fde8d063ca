// SPDX-License-Identifier: GPL-2.0-only
/*
 * Preloaded into fio: a drive over a regular file, for the passthrough
 * strategies. It takes the place of the device that fio's filename= names, a
 * character device that does nothing (/dev/null) or a loop device: its ioctls,
 * its io_uring commands, and what sysfs says of it.
 *
 *   DRIVE_NAME      the kernel's name for it: ng7n1, sg7, sdq
 *   DRIVE_DATA      the file with its content
 *   DRIVE_SYS       a folder that stands for /sys/class/block/ITS-BLOCK-DEVICE
 *                   and for its own in sysfs, and its "names" for /sys/class/scsi_generic/NAME/device/block
 *   DRIVE_BLOCK     what is opened for its block device, whose number is then
 *                   in "dev" of that folder; default: it has none
 *   DRIVE_LOG       a file that gets a line for each command: NVMe opcode,
 *                   dwords 1 and 10 to 12 and data length, or SCSI CDB, in hex
 *   DRIVE_FAULT     NTH COUNT STATUS [SENSE]: from the NTH read, write or flush
 *                   (from 1) on COUNT of them end with that NVMe or SCSI status
 *                   (in hex) and sense data (hex), and transfer nothing
 *   DRIVE_IDENTIFY  NVMe: OFFSET:BYTE ... (both in hex): bytes of Identify
 *                   Namespace that differ; a 1 as the fifth hex digit of an
 *                   offset means Identify Controller
 *   DRIVE_MODE      SCSI: DEVICE-SPECIFIC PARAMETER in hex; default 10, DPOFUA
 *   DRIVE_PROTECT   SCSI: byte 12 of READ CAPACITY(16) in hex
 *   DRIVE_BLOCKS    SCSI: number of logical blocks, beyond the file's
 *   DRIVE_TYPE      SCSI: first byte of INQUIRY data in hex
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>
#include <linux/nvme_ioctl.h>
#include <scsi/sg.h>

#define NEXT(f) ((__typeof__(&f))dlsym(RTLD_NEXT, #f))

#define LBA_SIZE 512U

static const char *env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static unsigned long hex(const char *name, unsigned long missing)
{
	return env(name) ? strtoul(env(name), NULL, 16) : missing;
}

static __attribute__((format(printf, 1, 2)))
void say(const char *fmt, ...)
{
	char line[256];
	va_list ap;
	int fd, len;

	if (!env("DRIVE_LOG"))
		return;
	va_start(ap, fmt);
	len = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fd = NEXT(open)(env("DRIVE_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (write(fd, line, len) != len)
		abort();
	close(fd);
}

static int data(void)
{
	int fd = NEXT(open)(env("DRIVE_DATA"), O_RDWR);

	if (fd < 0)
		abort();
	return fd;
}

static uint64_t blocks(void)
{
	struct stat st;

	if (env("DRIVE_BLOCKS"))
		return strtoull(env("DRIVE_BLOCKS"), NULL, 10);
	if (stat(env("DRIVE_DATA"), &st))
		abort();
	return st.st_size / LBA_SIZE;
}

/* Count a transfer or flush. Returns the status it has to end with, or 0. */
static unsigned int fault(const char **sense)
{
	static unsigned int nr;
	unsigned int nth, count, status;
	int at = 0;

	*sense = "";
	if (!env("DRIVE_FAULT") ||
	    sscanf(env("DRIVE_FAULT"), "%u %u %x %n", &nth, &count, &status,
		   &at) < 3)
		return 0;
	nr++;
	if (nr < nth || nr >= nth + count)
		return 0;
	*sense = env("DRIVE_FAULT") + at;
	return status;
}

/* A block beyond 4 GiB is kept at its address modulo that. */
static void move(bool to_drive, void *buf, size_t len, uint64_t lba)
{
	off_t pos = (off_t)(lba % (1ULL << 23)) * LBA_SIZE;
	int fd = data();

	if ((to_drive ? pwrite(fd, buf, len, pos) : pread(fd, buf, len, pos)) !=
	    (ssize_t)len)
		abort();
	close(fd);
}

/* ---- sysfs --------------------------------------------------------------- */

static bool is_ours(int fd)
{
	struct stat st;

	/* The null device, or any loop device. */
	return env("DRIVE_NAME") && !fstat(fd, &st) &&
	       ((S_ISCHR(st.st_mode) && st.st_rdev == 0x103) ||
		(S_ISBLK(st.st_mode) && st.st_rdev >> 8 == 7));
}

ssize_t readlink(const char *path, char *buf, size_t size)
{
	char target[64];
	int len;

	if (!env("DRIVE_NAME") || (strcmp(path, "/sys/dev/char/1:3") &&
				   strncmp(path, "/sys/dev/block/7:", 17)))
		return NEXT(readlink)(path, buf, size);
	len = snprintf(target, sizeof(target), "../../devices/a/b/%s",
		       env("DRIVE_NAME"));
	memcpy(buf, target, len);
	return len;
}

DIR *opendir(const char *path)
{
	char buf[512];

	if (env("DRIVE_SYS") && !strncmp(path, "/sys/class/scsi_generic/", 24)) {
		snprintf(buf, sizeof(buf), "%s/names", env("DRIVE_SYS"));
		path = buf;
	}
	return NEXT(opendir)(path);
}

/* The path that stands for @path. */
static const char *instead(const char *path, char *buf, size_t size)
{
	static const char *const devices[] = { "/dev/nvme7n1", "/dev/sdq" };
	static const char generic[] = "/sys/dev/char/1:3/";
	const char *attribute;
	size_t i;

	for (i = 0; i < 2; i++)
		if (env("DRIVE_NAME") && !strcmp(path, devices[i]))
			return env("DRIVE_BLOCK") ? env("DRIVE_BLOCK") : path;
	if (!env("DRIVE_SYS"))
		return path;
	if (!strncmp(path, generic, sizeof(generic) - 1))
		attribute = path + sizeof(generic) - 2;
	else if (!strncmp(path, "/sys/class/block/", 17))
		attribute = strchr(path + 17, '/');
	else
		return path;
	snprintf(buf, size, "%s%s", env("DRIVE_SYS"), attribute);
	return buf;
}

int open64(const char *path, int flags, ...)
{
	char buf[512];
	mode_t mode;
	va_list ap;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	return NEXT(open64)(instead(path, buf, sizeof(buf)), flags, mode);
}

/* ---- NVMe ---------------------------------------------------------------- */

static void identify(uint8_t *page, unsigned int cns)
{
	const uint64_t nsze = blocks();
	const char *s = env("DRIVE_IDENTIFY");
	unsigned int offset, byte;
	int n;

	memset(page, 0, 4096);
	if (cns == 0) {
		memcpy(page, &nsze, sizeof(nsze));
		page[128 + 2] = 9;
	} else {
		page[77] = 5;
	}
	for (; s && sscanf(s, "%x:%x%n", &offset, &byte, &n) == 2; s += n)
		if (offset >> 16 == cns)
			page[offset & 0xfff] = byte;
}

static int admin(const struct nvme_admin_cmd *cmd)
{
	if (cmd->opcode != 0x06 || cmd->data_len != 4096 || cmd->cdw10 > 1 ||
	    cmd->nsid != (cmd->cdw10 ? 0 : 3))
		return 0x2;
	identify((uint8_t *)(uintptr_t)cmd->addr, cmd->cdw10);
	return 0;
}

static unsigned int nvme(uint8_t opcode, uint32_t nsid, uint32_t dw10,
			 uint32_t dw11, uint32_t dw12, uint64_t addr,
			 uint32_t len)
{
	const char *sense;
	unsigned int status = fault(&sense);

	say("%02x %x %x %x %x %u\n", opcode, nsid, dw10, dw11, dw12, len);
	if (!status && opcode)
		move(opcode == 1, (void *)(uintptr_t)addr, len,
		     dw10 | (uint64_t)dw11 << 32);
	return status;
}

/*
 * Carry out what is about to be submitted, and leave to the kernel a request
 * that ends as it did: nothing, or a read of as many bytes as its status says
 * (of /dev/zero it could be short).
 */
static void carry_out(struct io_uring *ring)
{
	static __thread char scratch[65536];
	struct io_uring_sq *sq = &ring->sq;
	unsigned int i, status;

	if (!env("DRIVE_NAME") || !(ring->flags & IORING_SETUP_SQE128))
		return;
	for (i = sq->sqe_head; i != sq->sqe_tail; i++) {
		struct io_uring_sqe *sqe = &sq->sqes[(i & *sq->kring_mask) << 1];
		const struct nvme_uring_cmd *c = (void *)sqe->cmd;
		uint64_t user_data = sqe->user_data;

		if (sqe->opcode != IORING_OP_URING_CMD)
			continue;
		if (sqe->cmd_op != NVME_URING_CMD_IO || !is_ours(sqe->fd) ||
		    !(ring->flags & IORING_SETUP_CQE32))
			status = 0x1;
		else
			status = nvme(c->opcode, c->nsid, c->cdw10, c->cdw11,
				      c->cdw12, c->addr, c->data_len);
		if (status)
			io_uring_prep_read(sqe, data(), scratch, status, 0);
		else
			io_uring_prep_nop(sqe);
		sqe->user_data = user_data;
	}
}

/* The engine brings its library along, which is not next to this one. */
#define URING(f) ((__typeof__(&f))dlsym(dlopen("liburing.so.2", RTLD_LAZY), #f))

int io_uring_submit(struct io_uring *ring)
{
	carry_out(ring);
	return URING(io_uring_submit)(ring);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned int nr)
{
	carry_out(ring);
	return URING(io_uring_submit_and_wait)(ring, nr);
}

/* ---- SCSI ---------------------------------------------------------------- */

static uint64_t be(const uint8_t *p, unsigned int bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | *p++;
	return v;
}

static void put_be(uint8_t *p, uint64_t v, unsigned int bytes)
{
	while (bytes--)
		p[bytes] = v, v >>= 8;
}

/* The data of a command that asks the drive about itself. */
static void answer(struct sg_io_hdr *h, const uint8_t *cdb)
{
	uint8_t page[256] = { 0 };

	switch (cdb[0]) {
	case 0x12:
		page[0] = cdb[1] ? 0 : hex("DRIVE_TYPE", 0);
		page[1] = cdb[1] ? cdb[2] : 0;
		page[5] = hex("DRIVE_PROTECT", 0) & 1;
		if (cdb[1] && cdb[2] == 0) {
			page[3] = 2;
			page[5] = 0xb0;
		} else if (cdb[1]) {
			page[3] = 0x3c;
			put_be(page + 8, 512, 4);
		}
		break;
	case 0x25:
		put_be(page, blocks() > UINT32_MAX ? UINT32_MAX : blocks() - 1,
		       4);
		put_be(page + 4, LBA_SIZE, 4);
		break;
	case 0x9e:
		put_be(page, blocks() - 1, 8);
		put_be(page + 8, LBA_SIZE, 4);
		page[12] = hex("DRIVE_PROTECT", 0);
		break;
	case 0x1a:
		page[2] = hex("DRIVE_MODE", 0x10);
		break;
	}
	memcpy(h->dxferp, page, h->dxfer_len < 256 ? h->dxfer_len : 256);
}

static int end_with(struct sg_io_hdr *h, unsigned int status, const char *sense)
{
	unsigned int byte;
	int n;

	h->status = status;
	for (; sscanf(sense, "%2x%n", &byte, &n) == 1; sense += n)
		h->sbp[h->sb_len_wr++] = byte;
	return 0;
}

static int scsi(struct sg_io_hdr *h)
{
	const uint8_t *cdb = h->cmdp;
	const char *sense;
	unsigned int status, i;
	char text[64];

	h->status = h->host_status = h->driver_status = 0;
	h->sb_len_wr = h->resid = 0;
	for (i = 0; i < h->cmd_len; i++)
		sprintf(text + 2 * i, "%02x", cdb[i]);
	say("%s\n", text);

	switch (cdb[0]) {
	case 0x28: case 0x2a: case 0x88: case 0x8a: case 0x35:
		status = fault(&sense);
		if (status)
			return end_with(h, status, sense);
		if (cdb[0] != 0x35)
			move(cdb[0] & 2, h->dxferp, h->dxfer_len,
			     cdb[0] & 0x80 ? be(cdb + 2, 8) : be(cdb + 2, 4));
		return 0;
	case 0x12: case 0x25: case 0x9e: case 0x1a:
		answer(h, cdb);
		return 0;
	}
	/* MODE SENSE(10), too: this drive has only (6). */
	return end_with(h, 2, "7205200000000000");
}

/* -------------------------------------------------------------------------- */

int ioctl(int fd, unsigned long request, ...)
{
	const struct nvme_passthru_cmd *c;
	struct stat st;
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!is_ours(fd))
		return NEXT(ioctl)(fd, request, arg);

	switch (request) {
	case NVME_IOCTL_ID:
		return 3;
	case NVME_IOCTL_ADMIN_CMD:
		return admin(arg);
	case NVME_IOCTL_IO_CMD:
		c = arg;
		return nvme(c->opcode, c->nsid, c->cdw10, c->cdw11, c->cdw12,
			    c->addr, c->data_len);
	case SG_GET_VERSION_NUM:
		*(int *)arg = 30536;
		return 0;
	case SG_IO:
		return scsi(arg);
	case BLKSECTGET:
		/* sg: an int, in bytes; a block device: a short, in sectors. */
		if (!fstat(fd, &st) && S_ISCHR(st.st_mode))
			*(int *)arg = 131072;
		else
			*(unsigned short *)arg = 256;
		return 0;
	}
	return NEXT(ioctl)(fd, request, arg);
}
