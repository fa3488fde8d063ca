// SPDX-License-Identifier: GPL-2.0-only
/*
 * One reading of everything that is observed; see sample.h.
 *
 * Pages under writeback are not Dirty any more, so the memory that waits for
 * a disk is Dirty + Writeback, and its peak has to be found in sums of values
 * read together.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "sample.h"

/* CPU reading: at most 1/200 of a CPU; new kernel threads: once a second. */
#define CPU_COST	200
#define LIST_INTERVAL	1.0

static int meminfo_line(const char *text, const char *name, uint64_t *bytes)
{
	const char *at = strstr(text, name);
	uint64_t kib;

	if (!at || sscanf(at + strlen(name), "%" SCNu64, &kib) != 1)
		return -EINVAL;
	*bytes = kib * 1024;
	return 0;
}

int parse_meminfo(const char *text, struct memory *memory)
{
	/* the newline tells Cached from SwapCached */
	if (meminfo_line(text, "\nCached:", &memory->cached) ||
	    meminfo_line(text, "\nDirty:", &memory->dirty) ||
	    meminfo_line(text, "\nWriteback:", &memory->writeback))
		return -EINVAL;
	return 0;
}

/* User (with nice), system (with interrupts) and iowait, in ticks. */
int parse_cpu(const char *text, uint64_t ticks[3])
{
	uint64_t v[7];

	if (sscanf(text, "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %" SCNu64 " %" SCNu64 " %" SCNu64, &v[0], &v[1], &v[2],
		   &v[3], &v[4], &v[5], &v[6]) != 7)
		return -EINVAL;
	ticks[0] = v[0] + v[1];
	ticks[1] = v[2] + v[5] + v[6];
	ticks[2] = v[4];
	return 0;
}

static double thread_cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static uint64_t boot_ticks(long ticks)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * ticks + ts.tv_nsec / (1000000000 / ticks);
}

int sampler_open(struct sampler *s, int procfd, struct blockdevs *devs)
{
	memset(s, 0, sizeof(*s));
	s->devs = devs;
	s->ticks = sysconf(_SC_CLK_TCK);
	s->kthreads.procfd = procfd;
	s->kthreads.begin = boot_ticks(s->ticks);
	s->cpufd = -1;

	s->memfd = openat(procfd, "meminfo", O_RDONLY | O_CLOEXEC);
	if (s->memfd < 0)
		return -errno;
	s->cpufd = openat(procfd, "stat", O_RDONLY | O_CLOEXEC);
	if (s->cpufd < 0)
		return -errno;
	return 0;
}

static void read_memory(struct sampler *s)
{
	struct memory *m = &s->memory, now;
	uint64_t sum;
	char buf[8192];

	if (file_reread(s->memfd, buf, sizeof(buf)) < 0 ||
	    parse_meminfo(buf, &now))
		return;
	*m = now;
	if (!s->nr)
		s->cached_first = m->cached;
	sum = m->dirty + m->writeback;
	if (m->dirty > s->dirty_peak)
		s->dirty_peak = m->dirty;
	if (m->writeback > s->writeback_peak)
		s->writeback_peak = m->writeback;
	if (sum > s->dirty_writeback_peak)
		s->dirty_writeback_peak = sum;
	if (m->cached > s->cached_peak)
		s->cached_peak = m->cached;
}

/* iowait may go back: a CPU that wakes elsewhere takes it along. */
static double seconds(const struct sampler *s, uint64_t from, uint64_t to)
{
	return to > from ? (double)(to - from) / s->ticks : 0;
}

static void read_cpu(struct sampler *s, double t, bool last)
{
	struct kthreads *k = &s->kthreads;
	uint64_t now[3];
	char buf[512];

	if (file_reread(s->cpufd, buf, sizeof(buf)) >= 0 &&
	    !parse_cpu(buf, now)) {
		if (!s->nr)
			memcpy(s->cpu_first, now, sizeof(now));
		s->cpu.user = seconds(s, s->cpu_first[0], now[0]);
		s->cpu.system = seconds(s, s->cpu_first[1], now[1]);
		s->cpu.iowait = seconds(s, s->cpu_first[2], now[2]);
	}

	if (last || t >= s->next_list) {
		kthreads_list(k);	/* an error leaves those known */
		s->next_list = t + LIST_INTERVAL;
	}
	kthreads_read(k);
	s->cpu.kswapd = k->has_kswapd ? seconds(s, 0, k->kswapd) : NAN;
	s->cpu.flusher = k->has_flusher ? seconds(s, 0, k->flusher) : NAN;
}

void sampler_take(struct sampler *s, double t, bool last)
{
	double begin;

	read_memory(s);
	blockdevs_sample(s->devs, t);
	if (last || t >= s->next_cpu) {
		begin = thread_cpu_time();
		read_cpu(s, t, last);
		s->next_cpu = t + (thread_cpu_time() - begin) * CPU_COST;
	}
	s->t = t;
	s->nr++;
}

void sampler_close(struct sampler *s)
{
	kthreads_free(&s->kthreads);
	if (s->memfd >= 0)
		close(s->memfd);
	if (s->cpufd >= 0)
		close(s->cpufd);
}
