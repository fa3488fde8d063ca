// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is read of /proc at each sample, and what is kept of all samples.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "observe/sample.h"
#include "observe_tree.h"

struct fixture {
	struct tree proc;
	struct blockdevs devs;
	struct sampler s;
};

static void meminfo(const struct fixture *f, int cached, int dirty,
		    int writeback)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "MemTotal:       16 kB\n"
		 "Cached:         %d kB\n"
		 "SwapCached:     77 kB\n"
		 "Dirty:          %d kB\n"
		 "Writeback:      %d kB\n"
		 "WritebackTmp:   88 kB\n", cached, dirty, writeback);
	tree_write(&f->proc, "meminfo", text);
}

static void cpu(const struct fixture *f, int user, int system, int iowait)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "cpu  %d 1 %d 9999 %d 1 1 0 0 0\n"
		 "cpu0 9 9 9 9 9 9 9 9 0 0\nintr 1 2 3\n", user, system,
		 iowait);
	tree_write(&f->proc, "stat", text);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	tree_make(&f->proc);
	meminfo(f, 1000, 0, 0);
	cpu(f, 500, 600, 700);
	assert_int_equal(sampler_open(&f->s, f->proc.fd, &f->devs), 0);
	f->s.ticks = 100;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	sampler_close(&f->s);
	tree_remove(&f->proc);
	free(f);
	return 0;
}

static void test_meminfo_is_understood(void **state)
{
	struct memory m;

	assert_int_equal(parse_meminfo("MemTotal: 9 kB\nSwapCached: 1 kB\n"
				       "Cached: 2 kB\nDirty: 3 kB\n"
				       "WritebackTmp: 5 kB\n"
				       "Writeback: 4 kB\n", &m), 0);
	assert_int_equal(m.cached, 2 * 1024);
	assert_int_equal(m.dirty, 3 * 1024);
	assert_int_equal(m.writeback, 4 * 1024);
	assert_int_equal(parse_meminfo("MemTotal: 9 kB\nCached: 2 kB\n", &m),
			 -EINVAL);
	assert_int_equal(parse_meminfo("", &m), -EINVAL);
}

static void test_cpu_is_understood(void **state)
{
	uint64_t ticks[3];

	/* user nice system idle iowait irq softirq steal guest guest_nice */
	assert_int_equal(parse_cpu("cpu  1 20 300 4 5000 60000 700000 8 9 9\n",
				   ticks), 0);
	assert_int_equal(ticks[0], 21);
	assert_int_equal(ticks[1], 760300);
	assert_int_equal(ticks[2], 5000);
	assert_int_equal(parse_cpu("cpu  1 2 3\n", ticks), -EINVAL);
	assert_int_equal(parse_cpu("", ticks), -EINVAL);
}

/* Dirty pages move to Writeback: the peaks of the two are not of a time. */
static void test_peak_of_the_sum(void **state)
{
	struct fixture *f = *state;
	struct sampler *s = &f->s;

	sampler_take(s, 0, false);
	meminfo(f, 1500, 100, 5);
	sampler_take(s, 0.1, false);
	meminfo(f, 1400, 10, 80);
	sampler_take(s, 0.2, false);
	meminfo(f, 1200, 0, 0);
	sampler_take(s, 0.3, true);

	assert_int_equal(s->nr, 4);
	assert_int_equal(s->dirty_peak, 100 * 1024);
	assert_int_equal(s->writeback_peak, 80 * 1024);
	assert_int_equal(s->dirty_writeback_peak, 105 * 1024);
	assert_int_equal(s->cached_first, 1000 * 1024);
	assert_int_equal(s->cached_peak, 1500 * 1024);
	assert_int_equal(s->memory.cached, 1200 * 1024);
}

static void test_cpu_since_the_start(void **state)
{
	struct fixture *f = *state;
	struct sampler *s = &f->s;

	sampler_take(s, 0, false);
	assert_true(s->cpu.user == 0 && s->cpu.system == 0);
	cpu(f, 550, 625, 690);	/* iowait may go back */
	sampler_take(s, 1, true);
	assert_true(s->cpu.user == 0.5);
	assert_true(s->cpu.system == 0.25);
	assert_true(s->cpu.iowait == 0);
}

/* Over its budget the CPU is left out, but not at the end. */
static void test_budget(void **state)
{
	struct fixture *f = *state;
	struct sampler *s = &f->s;

	sampler_take(s, 0, false);
	s->next_cpu = 5;
	cpu(f, 600, 600, 700);
	meminfo(f, 1000, 64, 0);
	sampler_take(s, 1, false);
	assert_true(s->cpu.user == 0);
	assert_int_equal(s->memory.dirty, 64 * 1024);
	sampler_take(s, 5, false);
	assert_true(s->cpu.user == 1);
	s->next_cpu = 100;
	cpu(f, 700, 600, 700);
	sampler_take(s, 6, true);
	assert_true(s->cpu.user == 2);
}

static void test_no_kernel_threads(void **state)
{
	struct fixture *f = *state;

	sampler_take(&f->s, 0, true);
	assert_true(isnan(f->s.cpu.kswapd));
	assert_true(isnan(f->s.cpu.flusher));
}

static void test_no_proc(void **state)
{
	struct fixture *f = *state;
	struct sampler s;

	unlinkat(f->proc.fd, "stat", 0);
	assert_int_equal(sampler_open(&s, f->proc.fd, &f->devs), -ENOENT);
	sampler_close(&s);
	unlinkat(f->proc.fd, "meminfo", 0);
	assert_int_equal(sampler_open(&s, f->proc.fd, &f->devs), -ENOENT);
	sampler_close(&s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_meminfo_is_understood),
		cmocka_unit_test(test_cpu_is_understood),
		TEST(test_peak_of_the_sum),
		TEST(test_cpu_since_the_start),
		TEST(test_budget),
		TEST(test_no_kernel_threads),
		TEST(test_no_proc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
