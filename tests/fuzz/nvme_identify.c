// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/nvme-fua.c: Identify data that a drive may send, commands for what
 * it says of itself, and status codes.
 */
#include <stdbool.h>

#include "engines/nvme-fua.h"
#include "fuzz.h"

#define CDW12_NLB	0xffff

static void check_command(const struct drive *d, uint64_t offset, uint64_t len)
{
	struct nvme_uring_cmd cmd;
	uint64_t blocks;

	if (offset > d->size || len > d->size - offset ||
	    !drive_takes(d, offset, len))
		return;
	nvme_fua_command(&cmd, d, true, NULL, len, offset);
	blocks = (cmd.cdw12 & CDW12_NLB) + 1;
	MUST(blocks << d->lba_shift == len);
	MUST(((uint64_t)cmd.cdw11 << 32 | cmd.cdw10) << d->lba_shift == offset);
	MUST(cmd.cdw12 >> 30 & 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct drive d = { .path = "/dev/ng0n1" };
	uint8_t *ctrl = malloc(NVME_IDENTIFY_SIZE);
	uint8_t *ns = malloc(NVME_IDENTIFY_SIZE);
	uint32_t lba;
	int16_t status;		/* -errno, or 15 bits of the drive's */

	MUST(ctrl && ns);
	input_bytes(&in, &status, sizeof(status));
	/* What matters of either stands in front. */
	input_bytes(&in, ns, 512);
	memset(ctrl, 0, NVME_IDENTIFY_SIZE);
	input_bytes(&in, ctrl + 64, 64);
	memset(ns + 512, 0, NVME_IDENTIFY_SIZE - 512);

	MUST(!nvme_fua_result(&d, "Write", status) == !status);
	MUST(memchr(d.error, '\0', sizeof(d.error)));
	d.error[0] = '\0';
	if (nvme_fua_parse(&d, ctrl, ns)) {
		MUST(d.error[0]);
	} else {
		lba = 1U << d.lba_shift;
		MUST(d.lba_shift >= 9 && d.size >= lba && !(d.size % lba));
		check_command(&d, input_u64(&in) & ~(uint64_t)(lba - 1),
			      d.max_transfer & ~(lba - 1));
		check_command(&d, input_u64(&in) % d.size, input_u64(&in));
		check_command(&d, d.size - lba, lba);
		drive_check_bs(&d, lba, input_u64(&in));
	}
	free(ctrl);
	free(ns);
	return 0;
}
