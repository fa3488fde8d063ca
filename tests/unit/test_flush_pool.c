// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/flush-pool.c, with flushes that watch and obstruct, and with
 * pthread_create(3) replaced (linked with --wrap) by one that may fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engines/flush-pool.h"

#define MAX_FLUSHES	200
#define IN_FLIGHT	64	/* what flush-pool.c has at most */

/* What the flushes did. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t entered;
	unsigned int calls[MAX_FLUSHES];
	unsigned int inside, most_inside;
	unsigned int wait_for;		/* none returns before so many entered */
	unsigned int entries;
	int failing;			/* fails with EIO; -1: none does */
	pthread_t last;			/* thread of the last flush */
	unsigned int threads_left;	/* before pthread_create() fails */
} seen = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.entered = PTHREAD_COND_INITIALIZER,
};

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*start)(void *), void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*start)(void *), void *data);

static int flush(void *data, unsigned int i)
{
	pthread_mutex_lock(&seen.lock);
	if (data != &seen)
		abort();
	seen.calls[i]++;
	seen.last = pthread_self();
	seen.entries++;
	if (++seen.inside > seen.most_inside)
		seen.most_inside = seen.inside;
	pthread_cond_broadcast(&seen.entered);
	while (seen.entries < seen.wait_for)
		pthread_cond_wait(&seen.entered, &seen.lock);
	seen.inside--;
	pthread_mutex_unlock(&seen.lock);

	return (int)i == seen.failing ? EIO : 0;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*start)(void *), void *data)
{
	if (!seen.threads_left)
		return EAGAIN;
	seen.threads_left--;
	return __real_pthread_create(thread, attr, start, data);
}

static int reset(void **state)
{
	memset(seen.calls, 0, sizeof(seen.calls));
	seen.inside = seen.most_inside = seen.entries = 0;
	seen.wait_for = 0;
	seen.failing = -1;
	seen.threads_left = MAX_FLUSHES;
	return 0;
}

static void assert_each_called(unsigned int nr, unsigned int times)
{
	unsigned int i;

	for (i = 0; i < MAX_FLUSHES; i++)
		assert_int_equal(seen.calls[i], i < nr ? times : 0);
}

static void a_single_flush_is_the_caller_s(void **state)
{
	struct flush_pool p;

	seen.threads_left = 0;
	assert_int_equal(flush_pool_init(&p, 1), 0);
	assert_int_equal(flush_pool_run(&p, flush, &seen), 0);
	assert_true(pthread_equal(seen.last, pthread_self()));
	assert_each_called(1, 1);
	flush_pool_exit(&p);
}

static void each_flush_is_done_once_a_run(void **state)
{
	static const unsigned int counts[] = { 1, 2, 3, 63, 64, 65, 200 };
	const unsigned int runs = 300;
	struct flush_pool p;
	unsigned int i, run;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		reset(state);
		assert_int_equal(flush_pool_init(&p, counts[i]), 0);
		for (run = 1; run <= runs; run++) {
			assert_int_equal(flush_pool_run(&p, flush, &seen), 0);
			/* All of them, when it returns. */
			assert_int_equal(seen.entries, run * counts[i]);
			assert_int_equal(seen.inside, 0);
		}
		assert_each_called(counts[i], runs);
		flush_pool_exit(&p);
	}
}

/* Would never return if the flushes waited for each other. */
static void flushes_are_in_flight_together(void **state)
{
	static const unsigned int counts[] = { 2, 10, IN_FLIGHT, MAX_FLUSHES };
	struct flush_pool p;
	unsigned int i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		unsigned int together = counts[i] < IN_FLIGHT ? counts[i] :
								IN_FLIGHT;

		reset(state);
		seen.wait_for = together;
		assert_int_equal(flush_pool_init(&p, counts[i]), 0);
		assert_int_equal(flush_pool_run(&p, flush, &seen), 0);
		assert_int_equal(seen.most_inside, together);
		flush_pool_exit(&p);
	}
}

static void a_failure_is_told_and_stops_no_other(void **state)
{
	struct flush_pool p;

	assert_int_equal(flush_pool_init(&p, 100), 0);
	for (seen.failing = 0; seen.failing < 100; seen.failing++)
		assert_int_equal(flush_pool_run(&p, flush, &seen), EIO);
	assert_each_called(100, 100);
	/* The next run starts afresh. */
	seen.failing = -1;
	assert_int_equal(flush_pool_run(&p, flush, &seen), 0);
	flush_pool_exit(&p);
}

static void threads_that_can_t_be_made_leave_nothing(void **state)
{
	struct flush_pool p;
	unsigned int threads;

	for (threads = 0; threads < 20; threads++) {
		seen.threads_left = threads;
		assert_int_equal(flush_pool_init(&p, 100), EAGAIN);
		assert_int_equal(p.nr_threads, 0);
		assert_null(p.threads);
	}
	assert_each_called(0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_single_flush_is_the_caller_s, reset),
		cmocka_unit_test_setup(each_flush_is_done_once_a_run, reset),
		cmocka_unit_test_setup(flushes_are_in_flight_together, reset),
		cmocka_unit_test_setup(a_failure_is_told_and_stops_no_other,
				       reset),
		cmocka_unit_test_setup(threads_that_can_t_be_made_leave_nothing,
				       reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
