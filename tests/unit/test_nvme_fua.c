// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/nvme-fua.c: commands as NVM Express Base Specification 2.0 and NVM
 * Command Set Specification 1.0 lay them out, and what is read from Identify
 * data and status codes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "engines/nvme-fua.h"

static struct drive a_drive(unsigned int lba_shift)
{
	return (struct drive){
		.path = "/dev/ng0n1", .lba_shift = lba_shift, .nsid = 7,
	};
}

/* The submission queue entry that the kernel makes of it: 16 dwords. */
static void to_sqe(uint32_t *dw, const struct nvme_uring_cmd *cmd)
{
	memset(dw, 0, 64);
	dw[0] = cmd->opcode | cmd->flags << 8;
	dw[1] = cmd->nsid;
	dw[2] = cmd->cdw2;
	dw[3] = cmd->cdw3;
	dw[10] = cmd->cdw10;
	dw[11] = cmd->cdw11;
	dw[12] = cmd->cdw12;
	dw[13] = cmd->cdw13;
	dw[14] = cmd->cdw14;
	dw[15] = cmd->cdw15;
}

static void assert_command(const struct nvme_uring_cmd *cmd,
			   const uint32_t expected[16])
{
	uint32_t dw[16];

	to_sqe(dw, cmd);
	assert_memory_equal(dw, expected, sizeof(dw));
	assert_int_equal(cmd->rsvd1, 0);
	assert_int_equal(cmd->rsvd2, 0);
	assert_int_equal(cmd->metadata, 0);
	assert_int_equal(cmd->metadata_len, 0);
	assert_int_equal(cmd->timeout_ms, 0);
}

/*
 * NVM Command Set 1.0, 3.2.6: Write is opcode 01h; dwords 10 and 11 hold the
 * starting LBA, dword 12 the 0's based number of blocks in its lower half and
 * FUA in bit 30.
 */
static void a_write_has_fua(void **state)
{
	struct drive d = a_drive(9);
	const uint32_t expected[16] = {
		[0] = 0x01, [1] = 7, [10] = 16, [12] = 7 | 0x40000000,
	};
	struct nvme_uring_cmd cmd;
	char buf[8];

	memset(&cmd, 0xff, sizeof(cmd));
	nvme_fua_command(&cmd, &d, true, buf, 4096, 8192);
	assert_command(&cmd, expected);
	assert_int_equal(cmd.addr, (uintptr_t)buf);
	assert_int_equal(cmd.data_len, 4096);
}

/* 3.2.4: Read is opcode 02h. FUA would only tell where to read from. */
static void a_read_has_no_fua(void **state)
{
	struct drive d = a_drive(12);
	const uint32_t expected[16] = { [0] = 0x02, [1] = 7, [10] = 3 };
	struct nvme_uring_cmd cmd;
	char buf[8];

	memset(&cmd, 0xff, sizeof(cmd));
	nvme_fua_command(&cmd, &d, false, buf, 4096, 3 * 4096);
	assert_command(&cmd, expected);
	assert_int_equal(cmd.addr, (uintptr_t)buf);
	assert_int_equal(cmd.data_len, 4096);
}

static void a_block_address_has_64_bits(void **state)
{
	struct drive d = a_drive(9);
	const uint32_t expected[16] = {
		[0] = 0x01, [1] = 7, [10] = 0x9abcdef0, [11] = 0x00123456,
		[12] = 0xffff | 0x40000000,
	};
	struct nvme_uring_cmd cmd;

	nvme_fua_command(&cmd, &d, true, NULL, 65536 << 9,
			 0x001234569abcdef0ULL << 9);
	assert_command(&cmd, expected);
}

/*
 * Identify Controller: MDTS is byte 77. Identify Namespace: NSZE bytes 7:0,
 * NLBAF 25, FLBAS 26, and from byte 128 on four a format: MS, MS, LBADS, RP.
 */
static uint8_t ctrl[NVME_IDENTIFY_SIZE], ns[NVME_IDENTIFY_SIZE];

static int a_namespace(void **state)
{
	static const uint8_t formats[][4] = {
		{ 0, 0, 9, 2 }, { 8, 0, 9, 3 }, { 0, 0, 12, 0 }, { 0x80, 1, 12 },
	};

	memset(ctrl, 0, sizeof(ctrl));
	memset(ns, 0, sizeof(ns));
	ns[0] = 0x00;
	ns[1] = 0x10;
	ns[4] = 0x02;
	ns[25] = 3;
	memcpy(ns + 128, formats, sizeof(formats));
	ctrl[77] = 5;
	return 0;
}

static void reads_identify_data(void **state)
{
	struct drive d = a_drive(0);

	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), 0);
	assert_int_equal(d.lba_shift, 9);
	assert_int_equal(d.size, 0x200001000ULL * 512);
	assert_int_equal(d.max_transfer, 32 * 4096);

	ns[26] = 2;
	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), 0);
	assert_int_equal(d.lba_shift, 12);
	assert_int_equal(d.size, 0x200001000ULL * 4096);
}

static void without_mdts_a_command_has_65536_blocks(void **state)
{
	struct drive d = a_drive(0);

	ctrl[77] = 0;
	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), 0);
	assert_int_equal(d.max_transfer, 65536 * 512);
	ns[26] = 2;
	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), 0);
	assert_int_equal(d.max_transfer, 65536 * 4096);
	/* What a drive says beyond that changes nothing. */
	ctrl[77] = 255;
	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), 0);
	assert_int_equal(d.max_transfer, 65536 * 4096);
}

/* Base 2.0, FLBAS: bits 6:5 are the upper ones of the index if NLBAF > 15. */
static void a_format_above_16_has_its_index_in_two_parts(void **state)
{
	struct drive d = a_drive(0);
	static const uint8_t format[4] = { 0, 0, 13, 0 };

	memcpy(ns + 128 + 4 * 0x22, format, sizeof(format));
	ns[26] = 0x42;
	ns[25] = 0x22;
	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), 0);
	assert_int_equal(d.lba_shift, 13);

	/* The first drive that has them: 17 formats. */
	memcpy(ns + 128 + 4 * 16, format, sizeof(format));
	ns[26] = 0x20;
	ns[25] = 16;
	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), 0);
	assert_int_equal(d.lba_shift, 13);

	/* Of older drives these bits mean nothing. */
	ns[26] = 0x42;
	ns[25] = 15;
	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), 0);
	assert_int_equal(d.lba_shift, 12);
}

static void assert_refused(int err, const char *part)
{
	struct drive d = a_drive(0);

	assert_int_equal(nvme_fua_parse(&d, ctrl, ns), -err);
	if (!strstr(d.error, part) || !strstr(d.error, "/dev/ng0n1"))
		fail_msg("\"%s\" is not in: %s", part, d.error);
}

static void refuses_metadata(void **state)
{
	ns[26] = 1;
	assert_refused(EOPNOTSUPP, "format 1 has 8 bytes of metadata a block");
	/* Within the block (extended) or apart is the same. */
	ns[26] = 3 | 0x10;
	assert_refused(EOPNOTSUPP, "format 3 has 384 bytes of metadata");
}

static void refuses_what_can_not_be(void **state)
{
	ns[26] = 4;
	assert_refused(EIO, "format 4 of 4");
	a_namespace(NULL);
	ns[128 + 2] = 0;
	assert_refused(EIO, "blocks of 2^0 bytes");
	a_namespace(NULL);
	ns[128 + 2] = 40;
	assert_refused(EIO, "blocks of 2^40 bytes");
	a_namespace(NULL);
	memset(ns, 0xff, 8);
	assert_refused(EIO, "18446744073709551615 blocks");
	a_namespace(NULL);
	memset(ns, 0, 8);
	assert_refused(ENODEV, "not active");
}

static void names_a_status(void **state)
{
	static const struct {
		int result, err;
		const char *error;
	} cases[] = {
		{ 0x080, ENOSPC, "/dev/ng0n1: NVMe Write: status type 0h (generic), code 80h (LBA Out of Range)" },
		{ 0x4281, EIO, "/dev/ng0n1: NVMe Write: status type 2h (media and data integrity), code 81h (Unrecovered Read Error), do not retry" },
		{ 0x280, EIO, "/dev/ng0n1: NVMe Write: status type 2h (media and data integrity), code 80h (Write Fault)" },
		{ 0x6183, EIO, "/dev/ng0n1: NVMe Write: status type 1h (command specific), code 83h (Command Size Limit Exceeded), do not retry" },
		{ 0x083, EBADE, "/dev/ng0n1: NVMe Write: status type 0h (generic), code 83h (Reservation Conflict)" },
		{ 0x371, EIO, "/dev/ng0n1: NVMe Write: status type 3h (path), code 71h (Command Aborted By Host)" },
		{ 0x7c1, EIO, "/dev/ng0n1: NVMe Write: status type 7h (vendor specific), code c1h" },
		{ -ENODEV, ENODEV, "/dev/ng0n1: NVMe Write: No such device" },
	};
	struct drive d = a_drive(9);
	size_t i;

	assert_int_equal(nvme_fua_result(&d, "Write", 0), 0);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(nvme_fua_result(&d, "Write", cases[i].result),
				 -cases[i].err);
		assert_string_equal(d.error, cases[i].error);
	}
	assert_int_equal(nvme_fua_result(&d, "Read", -EACCES), -EACCES);
	assert_non_null(strstr(d.error, "NVMe Read: Permission denied; passthrough needs root"));
}

static struct nvme_passthru_cmd sent;
static int answer;

int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;

	va_start(ap, request);
	assert_int_equal(fd, 42);
	assert_int_equal(request, NVME_IOCTL_IO_CMD);
	sent = *va_arg(ap, struct nvme_passthru_cmd *);
	va_end(ap);
	errno = EIO;
	return answer;
}

/* NVM Command Set 1.0, 7: Flush is opcode 00h and has no other fields. */
static void flushes_the_namespace(void **state)
{
	struct drive d = a_drive(9);
	const struct nvme_passthru_cmd expected = { .opcode = 0, .nsid = 7 };

	memset(&sent, 0xff, sizeof(sent));
	answer = 0;
	assert_int_equal(nvme_fua_flush(&d, 42), 0);
	assert_memory_equal(&sent, &expected, sizeof(sent));

	answer = 0x006;
	assert_int_equal(nvme_fua_flush(&d, 42), -EIO);
	assert_string_equal(d.error,
			    "/dev/ng0n1: NVMe Flush: status type 0h (generic), code 06h (Internal Error)");
	answer = -1;
	assert_int_equal(nvme_fua_flush(&d, 42), -EIO);
	assert_non_null(strstr(d.error, "Input/output error"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_has_fua),
		cmocka_unit_test(a_read_has_no_fua),
		cmocka_unit_test(a_block_address_has_64_bits),
		cmocka_unit_test_setup(reads_identify_data, a_namespace),
		cmocka_unit_test_setup(without_mdts_a_command_has_65536_blocks,
				       a_namespace),
		cmocka_unit_test_setup(a_format_above_16_has_its_index_in_two_parts,
				       a_namespace),
		cmocka_unit_test_setup(refuses_metadata, a_namespace),
		cmocka_unit_test_setup(refuses_what_can_not_be, a_namespace),
		cmocka_unit_test(names_a_status),
		cmocka_unit_test(flushes_the_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
