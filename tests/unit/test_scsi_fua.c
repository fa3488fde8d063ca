// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/scsi-fua.c: commands as SBC-4 and SPC-5 lay them out, what is read
 * from the data of a drive, its status and its sense data, and what is tried
 * again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "engines/scsi-fua.h"

static struct drive a_drive(unsigned int lba_shift)
{
	return (struct drive){
		.path = "/dev/sg1", .lba_shift = lba_shift,
		.max_transfer = 1 << 20,
	};
}

static void assert_cdb(bool write, uint64_t lba, uint32_t blocks,
		       const uint8_t *expected, unsigned int len)
{
	uint8_t cdb[SCSI_CDB_SIZE], rest[SCSI_CDB_SIZE] = { 0 };

	memset(cdb, 0xff, sizeof(cdb));
	assert_int_equal(scsi_fua_cdb(cdb, write, lba, blocks), len);
	assert_memory_equal(cdb, expected, len);
	assert_memory_equal(cdb + len, rest, sizeof(cdb) - len);
}

/*
 * SBC-4, WRITE (10): 2Ah; WRPROTECT, DPO, FUA (bit 3); logical block address;
 * group number; transfer length; control. READ (10) is 28h.
 */
static void short_commands(void **state)
{
	static const uint8_t write[10] = {
		0x2a, 0x08, 0x12, 0x34, 0x56, 0x78, 0, 0x9a, 0xbc, 0,
	};
	static const uint8_t read[10] = {
		0x28, 0x00, 0x12, 0x34, 0x56, 0x78, 0, 0x9a, 0xbc, 0,
	};
	static const uint8_t last[10] = {
		0x2a, 0x08, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0,
	};

	assert_cdb(true, 0x12345678, 0x9abc, write, sizeof(write));
	assert_cdb(false, 0x12345678, 0x9abc, read, sizeof(read));
	assert_cdb(true, 0xffffffff, 0xffff, last, sizeof(last));
}

/*
 * SBC-4, WRITE (16): 8Ah; WRPROTECT, DPO, FUA; logical block address in 8
 * bytes; transfer length in 4; group number; control. READ (16) is 88h.
 */
static void long_commands(void **state)
{
	static const uint8_t write[16] = {
		0x8a, 0x08, 0, 0, 0, 0x01, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0,
	};
	static const uint8_t read[16] = {
		0x88, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
		0x12, 0x34, 0x56, 0x78, 0, 0,
	};
	static const uint8_t longer[16] = {
		0x8a, 0x08, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0,
	};

	assert_cdb(true, 0x100000000ULL, 8, write, sizeof(write));
	assert_cdb(false, 0x0123456789abcdefULL, 0x12345678, read,
		   sizeof(read));
	assert_cdb(true, 1, 0x10000, longer, sizeof(longer));
}

/* SBC-4, READ CAPACITY (10) data: last block address, block length. */
static void reads_a_small_capacity(void **state)
{
	static const uint8_t data[8] = { 0x00, 0x1f, 0xff, 0xff, 0, 0, 2, 0 };
	struct drive d = a_drive(0);

	assert_int_equal(scsi_fua_parse_capacity10(&d, data), 0);
	assert_int_equal(d.size, 1 << 30);
	assert_int_equal(d.lba_shift, 9);
	assert_int_equal(d.max_transfer, INT32_MAX - 511);
}

static void a_capacity_that_does_not_fit_is_asked_for_again(void **state)
{
	static const uint8_t data[8] = { 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0 };
	struct drive d = a_drive(0);

	assert_int_equal(scsi_fua_parse_capacity10(&d, data), -EFBIG);
}

/*
 * SBC-4, READ CAPACITY (16) data: last block address in 8 bytes, block length
 * in 4, then P_TYPE in bits 3:1 and PROT_EN in bit 0 of byte 12.
 */
static void reads_a_large_capacity(void **state)
{
	static const uint8_t data[32] = {
		0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0x10, 0,
	};
	static const uint8_t disabled[32] = {
		[7] = 0xff, [10] = 2, [12] = 1 << 1,
	};
	struct drive d = a_drive(0);

	assert_int_equal(scsi_fua_parse_capacity16(&d, data), 0);
	assert_int_equal(d.size, 0x200000001ULL * 4096);
	assert_int_equal(d.lba_shift, 12);

	/* A type that is not enabled means nothing. */
	assert_int_equal(scsi_fua_parse_capacity16(&d, disabled), 0);
}

static void refuses_protection_information(void **state)
{
	static const uint8_t data[32] = {
		[7] = 0xff, [10] = 2, [12] = 1 << 1 | 1,
	};
	struct drive d = a_drive(0);

	assert_int_equal(scsi_fua_parse_capacity16(&d, data), -EOPNOTSUPP);
	assert_non_null(strstr(d.error, "protection information, type 2"));
	assert_non_null(strstr(d.error, "strategy=fua"));
}

static void refuses_odd_blocks(void **state)
{
	static const uint8_t data[8] = { 0, 0, 0xff, 0xff, 0, 0, 2, 8 };
	static const uint8_t none[8] = { 0, 0, 0xff, 0xff, 0, 0, 0, 0 };
	struct drive d = a_drive(0);

	assert_int_equal(scsi_fua_parse_capacity10(&d, data), -EOPNOTSUPP);
	assert_non_null(strstr(d.error, "520 bytes"));
	assert_int_equal(scsi_fua_parse_capacity10(&d, none), -EOPNOTSUPP);
}

/* SBC-4, mode parameter header: WP is bit 7, DPOFUA bit 4. */
static void reads_the_mode_parameter(void **state)
{
	struct drive d = a_drive(0);

	scsi_fua_parse_mode(&d, 0x10);
	assert_false(d.no_fua);
	assert_false(d.write_protected);
	scsi_fua_parse_mode(&d, 0x80);
	assert_true(d.no_fua);
	assert_true(d.write_protected);
}

/* SBC-4, Block Limits: MAXIMUM TRANSFER LENGTH, bytes 8 to 11, in blocks. */
static void reads_block_limits(void **state)
{
	uint8_t page[64] = {
		0x00, 0xb0, 0, 0x3c, 0, 0, 0, 0, 0, 0, 0x00, 0x40,
	};
	struct drive d = a_drive(12);

	scsi_fua_parse_limits(&d, page, sizeof(page));
	assert_int_equal(d.max_transfer, 0x40 * 4096);
	/* 0: not reported. More than there was before: no news. */
	page[11] = 0;
	scsi_fua_parse_limits(&d, page, sizeof(page));
	assert_int_equal(d.max_transfer, 0x40 * 4096);
	memset(page + 8, 0xff, 4);
	scsi_fua_parse_limits(&d, page, sizeof(page));
	assert_int_equal(d.max_transfer, 0x40 * 4096);
	/* Another page, or too little of it. */
	page[11] = 1;
	memset(page + 8, 0, 3);
	page[1] = 0xb1;
	scsi_fua_parse_limits(&d, page, sizeof(page));
	page[1] = 0xb0;
	scsi_fua_parse_limits(&d, page, 8);
	assert_int_equal(d.max_transfer, 0x40 * 4096);
}

/* SPC-5: fixed format is 70h (71h: deferred), descriptor format 72h (73h). */
static const uint8_t medium_error[18] = {
	0x70, 0, 0x03, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0x02,
};
static const uint8_t with_address[18] = {
	0xf0, 0, 0x03, 0, 0, 0, 9, 10, 0, 0, 0, 0, 0x11, 0x00,
};
static const uint8_t deferred[18] = {
	0x71, 0, 0x04, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x03, 0x00,
};
static const uint8_t descriptor[8] = { 0x72, 0x05, 0x21, 0x00 };
static const uint8_t deferred_descriptor[8] = { 0x73, 0x03, 0x0c, 0x00 };
static const uint8_t deferred_attention[8] = { 0x73, 0x06, 0x29, 0x00 };
static const uint8_t deferred_recovered[8] = { 0x73, 0x01, 0x0c, 0x01 };
static const uint8_t cut_short[18] = {
	0x70, 0, 0x03, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0x0c, 0x02,
};
static const uint8_t no_space[8] = { 0x72, 0x07, 0x27, 0x07 };
static const uint8_t recovered[8] = { 0x72, 0x01, 0x18, 0x00 };
static const uint8_t was_reset[18] = {
	0x70, 0, 0x06, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0x00,
};
static const uint8_t becoming_ready[8] = { 0x72, 0x02, 0x04, 0x01 };
static const uint8_t needs_start[8] = { 0x72, 0x02, 0x04, 0x02 };
static const uint8_t aborted[8] = { 0x72, 0x0b, 0x47, 0x03 };
static const uint8_t nameless[8] = { 0x72, 0x04, 0x99, 0xee };
static const uint8_t key_alone[8] = { 0x70, 0, 0x03 };

struct answer {
	uint8_t status;
	uint16_t host_status, driver_status;
	const uint8_t *sense;
	uint8_t sense_len;
};

#define SENSE(s) .status = 2, .driver_status = 8, .sense = s, .sense_len = sizeof(s)

static void decodes_status_and_sense(void **state)
{
	static const struct {
		struct answer a;
		enum scsi_verdict verdict;
		int err;
		const char *error;
	} cases[] = {
		{ { 0 }, SCSI_GOOD, 0, NULL },
		{ { .status = 4 }, SCSI_GOOD, 0, NULL },
		{ { SENSE(recovered) }, SCSI_GOOD, 0, NULL },
		{ { .driver_status = 8 }, SCSI_GOOD, 0, NULL },
		{ { SENSE(medium_error) }, SCSI_FAILED, EIO,
		  "MEDIUM ERROR, write error - auto reallocation failed (ASC 0ch, ASCQ 02h)" },
		{ { SENSE(with_address) }, SCSI_FAILED, EIO,
		  "MEDIUM ERROR, unrecovered read error (ASC 11h, ASCQ 00h)" },
		{ { SENSE(deferred) }, SCSI_FAILED, EIO,
		  "deferred: HARDWARE ERROR, peripheral device write fault (ASC 03h, ASCQ 00h)" },
		{ { SENSE(descriptor) }, SCSI_FAILED, EIO,
		  "ILLEGAL REQUEST, logical block address out of range (ASC 21h, ASCQ 00h)" },
		{ { SENSE(deferred_descriptor) }, SCSI_FAILED, EIO,
		  "deferred: MEDIUM ERROR, write error (ASC 0ch, ASCQ 00h)" },
		{ { SENSE(deferred_attention) }, SCSI_FAILED, EIO,
		  "deferred: UNIT ATTENTION, power on, reset, or bus device reset occurred (ASC 29h, ASCQ 00h)" },
		{ { SENSE(deferred_recovered) }, SCSI_RETRY, EIO,
		  "deferred: RECOVERED ERROR, write error - recovered with auto reallocation (ASC 0ch, ASCQ 01h)" },
		{ { SENSE(cut_short) }, SCSI_FAILED, EIO,
		  "MEDIUM ERROR, no additional sense information (ASC 00h, ASCQ 00h)" },
		{ { SENSE(no_space) }, SCSI_FAILED, ENOSPC,
		  "DATA PROTECT, space allocation failed write protect (ASC 27h, ASCQ 07h)" },
		{ { SENSE(nameless) }, SCSI_FAILED, EIO,
		  "HARDWARE ERROR, no name for it here; see the list of T10 (ASC 99h, ASCQ eeh)" },
		{ { SENSE(key_alone) }, SCSI_FAILED, EIO,
		  "MEDIUM ERROR, no additional sense information (ASC 00h, ASCQ 00h)" },
		{ { .status = 2 }, SCSI_FAILED, EIO,
		  "CHECK CONDITION without sense data" },
		{ { SENSE(was_reset) }, SCSI_RETRY, EIO,
		  "UNIT ATTENTION, power on, reset, or bus device reset occurred (ASC 29h, ASCQ 00h)" },
		{ { SENSE(becoming_ready) }, SCSI_RETRY, EIO,
		  "NOT READY, logical unit is in process of becoming ready (ASC 04h, ASCQ 01h)" },
		{ { SENSE(needs_start) }, SCSI_FAILED, EIO,
		  "NOT READY, logical unit not ready, initializing command required (ASC 04h, ASCQ 02h)" },
		{ { SENSE(aborted) }, SCSI_RETRY, EIO,
		  "ABORTED COMMAND, information unit iuCRC error detected (ASC 47h, ASCQ 03h)" },
		{ { .status = 0x08 }, SCSI_RETRY, EIO, "BUSY" },
		{ { .status = 0x28 }, SCSI_RETRY, EIO, "TASK SET FULL" },
		{ { .status = 0x18 }, SCSI_FAILED, EBADE,
		  "status 18h (RESERVATION CONFLICT, it is reserved for another host)" },
		{ { .status = 0x40 }, SCSI_FAILED, EIO,
		  "status 40h (TASK ABORTED)" },
		{ { .status = 0x77 }, SCSI_FAILED, EIO,
		  "status 77h (unknown status)" },
		{ { .host_status = 1 }, SCSI_FAILED, EIO,
		  "host status 01h (DID_NO_CONNECT)" },
		{ { .host_status = 0x14 }, SCSI_FAILED, EIO,
		  "host status 14h (DID_TRANSPORT_MARGINAL)" },
		{ { .host_status = 0x15 }, SCSI_FAILED, EIO,
		  "host status 15h (unknown)" },
		{ { .driver_status = 6 }, SCSI_FAILED, EIO,
		  "driver status 06h" },
	};
	struct drive d = a_drive(9);
	char expected[512];
	size_t i;
	int err;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct answer *a = &cases[i].a;
		struct sg_io_hdr h = {
			.status = a->status, .host_status = a->host_status,
			.driver_status = a->driver_status,
			.sbp = (uint8_t *)a->sense, .sb_len_wr = a->sense_len,
		};

		assert_int_equal(scsi_fua_verdict(&d, "WRITE", &h, &err),
				 cases[i].verdict);
		if (cases[i].verdict == SCSI_GOOD)
			continue;
		assert_int_equal(err, cases[i].err);
		snprintf(expected, sizeof(expected), "/dev/sg1: SCSI WRITE: %s",
			 cases[i].error);
		assert_string_equal(d.error, expected);
	}
}

/* A drive that gives its answers one after the other, the last for ever. */
static const struct answer *answers;
static unsigned int nr_answers, nr_sent;
static struct sg_io_hdr sent;
static uint8_t sent_cdb[SCSI_CDB_SIZE];
static int resid;

int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	const struct answer *a;
	struct sg_io_hdr *h;
	va_list ap;

	va_start(ap, request);
	h = va_arg(ap, struct sg_io_hdr *);
	va_end(ap);
	assert_int_equal(fd, 42);
	assert_int_equal(request, SG_IO);
	sent = *h;
	memcpy(sent_cdb, h->cmdp, h->cmd_len);

	a = &answers[nr_sent < nr_answers ? nr_sent : nr_answers - 1];
	nr_sent++;
	h->status = a->status;
	h->host_status = a->host_status;
	h->driver_status = a->driver_status;
	if (a->sense)
		memcpy(h->sbp, a->sense, a->sense_len);
	h->sb_len_wr = a->sense_len;
	h->resid = resid;
	return 0;
}

static void will_answer(const struct answer *a, unsigned int nr)
{
	answers = a;
	nr_answers = nr;
	nr_sent = 0;
	resid = 0;
}

static void transfers(void **state)
{
	static const struct answer good = { 0 };
	static const uint8_t cdb[10] = {
		0x2a, 0x08, 0, 0, 0, 0x10, 0, 0, 0x08, 0,
	};
	struct drive d = a_drive(9);
	char buf[4096];

	will_answer(&good, 1);
	assert_int_equal(scsi_fua_transfer(&d, 42, true, buf, 4096, 8192),
			 4096);
	assert_int_equal(sent.interface_id, 'S');
	assert_int_equal(sent.dxfer_direction, SG_DXFER_TO_DEV);
	assert_int_equal(sent.dxfer_len, 4096);
	assert_ptr_equal(sent.dxferp, buf);
	assert_int_equal(sent.iovec_count, 0);
	assert_int_equal(sent.cmd_len, 10);
	assert_memory_equal(sent_cdb, cdb, sizeof(cdb));

	assert_int_equal(scsi_fua_transfer(&d, 42, false, buf, 4096, 1ULL << 42),
			 4096);
	assert_int_equal(sent.dxfer_direction, SG_DXFER_FROM_DEV);
	assert_int_equal(sent.cmd_len, 16);
	assert_int_equal(sent_cdb[0], 0x88);

	resid = 512;
	assert_int_equal(scsi_fua_transfer(&d, 42, true, buf, 4096, 0), 3584);
	assert_int_equal(nr_sent, 3);
}

/* SBC-4, SYNCHRONIZE CACHE (10): 35h; no blocks are all from the address on. */
static void flushes_the_cache(void **state)
{
	static const struct answer good = { 0 }, bad = { SENSE(medium_error) };
	static const uint8_t cdb[10] = { 0x35 };
	struct drive d = a_drive(9);

	will_answer(&good, 1);
	assert_int_equal(scsi_fua_flush(&d, 42), 0);
	assert_int_equal(sent.dxfer_direction, SG_DXFER_NONE);
	assert_int_equal(sent.dxfer_len, 0);
	assert_int_equal(sent.cmd_len, 10);
	assert_memory_equal(sent_cdb, cdb, sizeof(cdb));

	will_answer(&bad, 1);
	assert_int_equal(scsi_fua_flush(&d, 42), -EIO);
	assert_non_null(strstr(d.error, "SYNCHRONIZE CACHE(10): MEDIUM ERROR"));
}

static void tries_again_what_may_pass(void **state)
{
	static const struct answer passing[] = {
		{ SENSE(was_reset) }, { .status = 0x08 }, { .status = 0x28 },
		{ SENSE(aborted) }, { SENSE(becoming_ready) }, { 0 },
	};
	static const struct answer busy = { .status = 0x08 };
	static const struct answer broken = { SENSE(medium_error) };
	struct drive d = a_drive(9);
	char buf[512];

	will_answer(passing, 6);
	assert_int_equal(scsi_fua_transfer(&d, 42, true, buf, 512, 0), 512);
	assert_int_equal(nr_sent, 6);

	will_answer(&busy, 1);
	assert_int_equal(scsi_fua_transfer(&d, 42, true, buf, 512, 0), -EIO);
	assert_int_equal(nr_sent, 6);
	assert_string_equal(d.error, "/dev/sg1: SCSI WRITE: BUSY");

	will_answer(&broken, 1);
	assert_int_equal(scsi_fua_transfer(&d, 42, true, buf, 512, 0), -EIO);
	assert_int_equal(nr_sent, 1);
}

static void checks_block_sizes(void **state)
{
	struct drive d = a_drive(12);

	assert_int_equal(drive_check_bs(&d, 4096, 1 << 20), 0);
	assert_int_equal(drive_check_bs(&d, 512, 4096), -EINVAL);
	assert_string_equal(d.error,
			    "/dev/sg1: bs= must be a multiple of its logical block size of 4096");
	assert_int_equal(drive_check_bs(&d, 4096, (1 << 20) + 4096), -EINVAL);
	assert_string_equal(d.error,
			    "/dev/sg1: bs=1052672 is more than one command can carry there; take at most 1048576");
	/* A limit that is no multiple of a block. */
	d.max_transfer = 10000;
	assert_int_equal(drive_check_bs(&d, 4096, 12288), -EINVAL);
	assert_non_null(strstr(d.error, "at most 8192"));

	assert_true(drive_takes(&d, 4096, 8192));
	assert_false(drive_takes(&d, 4096, 12288));
	assert_false(drive_takes(&d, 512, 4096));
	assert_false(drive_takes(&d, 0, 4608));
	assert_false(drive_takes(&d, 0, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_commands),
		cmocka_unit_test(long_commands),
		cmocka_unit_test(reads_a_small_capacity),
		cmocka_unit_test(a_capacity_that_does_not_fit_is_asked_for_again),
		cmocka_unit_test(reads_a_large_capacity),
		cmocka_unit_test(refuses_protection_information),
		cmocka_unit_test(refuses_odd_blocks),
		cmocka_unit_test(reads_the_mode_parameter),
		cmocka_unit_test(reads_block_limits),
		cmocka_unit_test(decodes_status_and_sense),
		cmocka_unit_test(transfers),
		cmocka_unit_test(flushes_the_cache),
		cmocka_unit_test(tries_again_what_may_pass),
		cmocka_unit_test(checks_block_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
