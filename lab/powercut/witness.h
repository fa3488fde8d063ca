/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What was written and what was promised, kept where a power cut of a modelled
 * device takes nothing away: in shared memory, of fio's jobs (engine.c), which
 * write it down, and of the program that cuts the power (main.c), which
 * compares it with what the device has then (check.c).
 *
 * Each sector of each block carries a stamp at its beginning and at its end, so
 * that what is found says which write it is from. Blocks are numbered over all
 * that a case writes to, and the versions of each from 1; 0 is all zeroes, as
 * before the first.
 */
#ifndef DURABENCH_LAB_WITNESS_H
#define DURABENCH_LAB_WITNESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define WITNESS_SECTOR	512
#define WITNESS_BLOCK	4096

/* How a job knows of it: the environment of fio. */
#define WITNESS_FILE	"DURABENCH_WITNESS"
#define WITNESS_ENGINE	"DURABENCH_WITNESS_ENGINE"	/* path of its .so */

struct stamp {
	uint64_t magic;		/* STAMP_MAGIC plus the run */
	uint64_t sector;	/* of its run */
	uint64_t version;	/* of its block */
	uint64_t generation;	/* how often the power had been switched on */
};

#define STAMP_MAGIC	0x6475726162656e00ULL

struct witness_block {
	_Atomic uint64_t started, acknowledged;		/* versions */
};

/* When a completed write counts as promised to be durable. */
enum promise {
	PROMISE_WRITE,		/* at once */
	PROMISE_SYNC,		/* at the next sync of its job that succeeds */
};

/* What jobs do before their next request. */
enum gate {
	GATE_OPEN,
	GATE_EXIT,		/* exit */
	GATE_CLOSED,		/* this or more: wait until it changes */
};

struct witness {
	_Atomic uint64_t run;
	_Atomic uint64_t generation;
	_Atomic uint64_t acknowledged;	/* writes, of their own generation */
	_Atomic uint64_t errors;	/* of requests without power, and later */
	_Atomic uint32_t gate;		/* a futex: enum gate */
	_Atomic uint32_t waiting;	/* a futex: how many do */
	uint32_t promise;
	uint32_t blocks_per_file;	/* of files; a device has all */
	uint32_t blocks;
	struct witness_block block[];
};

static inline size_t witness_size(uint32_t blocks)
{
	return sizeof(struct witness) + blocks * sizeof(struct witness_block);
}

/* Begin the next version of block @nr, of which @data is the content. */
void witness_start(struct witness *w, uint32_t nr, void *data);

/*
 * The write of this content is promised. It counts if it was begun since the
 * power was switched on last.
 */
void witness_acknowledge(struct witness *w, const void *data);

/* What became of a block. */
enum finding {
	FOUND_ALL,		/* what was promised, or newer */
	FOUND_OLDER,		/* than promised, whole or in part */
	FOUND_FOREIGN,		/* what was never written there */
};

/*
 * Judge content @data of block @nr. Afterwards the block's promise is what was
 * found: it survived a cut, so it will the next. *@oldest is the oldest version
 * of any of its sectors.
 */
enum finding witness_check(struct witness *w, uint32_t nr, const void *data,
			   uint64_t *oldest);

#endif
