/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One reading of everything that is observed, and what is kept of all of
 * them: the first, the last and the peaks.
 */
#ifndef DURABENCH_SAMPLE_H
#define DURABENCH_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "blockdev.h"
#include "kthread.h"

struct memory {
	uint64_t dirty, writeback, cached;	/* bytes */
};

/* Seconds of CPU time since the first sample. NAN: can't be had here. */
struct cpu_times {
	double user, system, iowait;	/* of the whole machine */
	double kswapd, flusher;
};

struct sampler {
	struct blockdevs *devs;
	struct kthreads kthreads;
	int memfd, cpufd;		/* /proc/meminfo, /proc/stat */
	long ticks;			/* a second */
	uint64_t cpu_first[3];

	double next_cpu, next_list;	/* when to read these again, s */

	unsigned long nr;
	double t;			/* of the last sample, s */
	struct memory memory;		/* likewise */
	struct cpu_times cpu;		/* of the last reading, see below */
	uint64_t cached_first;
	uint64_t dirty_peak, writeback_peak, dirty_writeback_peak, cached_peak;
};

/*
 * @procfd is /proc, or another one in tests; it must stay open. Returns 0, or
 * -errno if there is no meminfo or stat in it.
 */
int sampler_open(struct sampler *s, int procfd, struct blockdevs *devs);

/*
 * Take the sample of time @t, in seconds since the first.
 *
 * /proc/stat and the kernel threads take the longer the larger the machine
 * is. They are read again only after 200 times the CPU time their last
 * reading took, so they cost at most 0.5% of a CPU at any interval. A @last
 * sample reads everything.
 */
void sampler_take(struct sampler *s, double t, bool last);
void sampler_close(struct sampler *s);

/* Returns 0, or -EINVAL where a line is missing. For tests: the parsers. */
int parse_meminfo(const char *text, struct memory *memory);
int parse_cpu(const char *text, uint64_t ticks[3]);

#endif
