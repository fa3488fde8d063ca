// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/flush-pool.c, as it is compiled, in every order of its steps: each
 * flush is done once a run and is over when the run is, and an error is told.
 *
 * An argument adds so many preemptions to each: more orders, in longer time.
 */
#include <stdint.h>
#include <string.h>

#include "interleave.h"

#ifndef CODE
#define CODE "engines/flush-pool.c"
#endif
#include CODE

#define MAX_FLUSHES	3
#define RUNS		2

static unsigned int flushes;
static unsigned int begun[MAX_FLUSHES], ended[MAX_FLUSHES];
static int failing;			/* in the first run; -1: none */
static unsigned int run;

static int flush(void *data, unsigned int i)
{
	interleave_assert(data == begun && i < flushes);
	begun[i]++;
	interleave_point("flush");
	ended[i]++;
	return run == 1 && (int)i == failing ? EIO : 0;
}

static void caller(void *data)
{
	struct flush_pool p;
	unsigned int i;
	int ret;

	interleave_assert(!flush_pool_init(&p, flushes));
	for (run = 1; run <= RUNS; run++) {
		ret = flush_pool_run(&p, flush, begun);
		interleave_assert(ret == (run == 1 && failing >= 0 ? EIO : 0));
		for (i = 0; i < flushes; i++)
			interleave_assert(begun[i] == run && ended[i] == run);
	}
	flush_pool_exit(&p);
}

static void start(void)
{
	memset(begun, 0, sizeof(begun));
	memset(ended, 0, sizeof(ended));
	interleave_thread(caller, NULL);
}

static void check(void)
{
}

int main(int argc, char **argv)
{
	struct interleave how = {
		.start = start, .check = check,
		.preemptions = 2 + (argc > 1 ? atoi(argv[1]) : 0),
	};

	flushes = 2;
	failing = -1;
	interleave_all("2 flushes", &how);
	flushes = 3;
	failing = 1;
	interleave_all("3 flushes, one of which fails", &how);
	return 0;
}
