// SPDX-License-Identifier: GPL-2.0-only
/*
 * The power of a modelled device: what is answered before, at and after a cut,
 * and what is said to whom cuts it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "lab/model/power.h"
#include "tests/unit/model_device.h"

static struct device d;
static struct power p;

static int setup(void **state)
{
	device_open(&d, model_of("nvme.conf", 1, "idle=60000", NULL));
	p = (struct power)POWER_INIT;
	p.model = d.model;
	p.store = &d.store;
	p.start = power_clock();
	return 0;
}

static int teardown(void **state)
{
	device_close(&d);
	return 0;
}

static void what_is_done_by_then_is_answered(void **state)
{
	uint64_t lost, done;

	assert_int_equal(power_begin(&p), 0);
	done = device_write(&d, power_clock() - p.start, 3, 1, 'a', true);
	power_sleep(p.start + done);
	assert_int_equal(power_cut(&p, 1, 0, &lost), 0);
	assert_int_equal(lost, 0);
	assert_int_equal(power_end(&p, done), 0);
	assert_int_equal(device_byte(&d, 3), 'a');
}

static void what_is_not_fails_and_is_lost(void **state)
{
	uint64_t lost, done;

	assert_int_equal(power_begin(&p), 0);
	/* So late that the cut can't be after it. */
	done = device_write(&d, power_clock() - p.start + 60000 * MS, 3, 1,
			    'a', true);
	assert_int_equal(power_cut(&p, 1, 0, &lost), 0);
	assert_int_equal(lost, 1);
	assert_int_equal(power_end(&p, done), -EIO);
	assert_int_equal(device_byte(&d, 3), 0);
}

static void without_power_nothing_is_taken(void **state)
{
	uint64_t lost;

	assert_int_equal(power_cut(&p, 1, 0, &lost), 0);
	assert_int_equal(power_begin(&p), -EIO);
	assert_int_equal(power_cut(&p, 1, 0, &lost), -EALREADY);
	power_on(&p);
	assert_int_equal(power_begin(&p), 0);
	assert_int_equal(power_end(&p, 0), 0);
}

static void *end_late(void *data)
{
	usleep(20000);
	pthread_mutex_lock(&p.lock);
	*(int *)data = power_end(&p, UINT64_MAX);
	pthread_mutex_unlock(&p.lock);
	return NULL;
}

/* An answer that is still to come has to be an error. */
static void it_comes_back_when_all_is_answered(void **state)
{
	pthread_t thread;
	uint64_t lost;
	int ended = 1;

	assert_int_equal(power_begin(&p), 0);
	assert_int_equal(power_cut(&p, 1, 0, &lost), 0);
	assert_int_equal(pthread_create(&thread, NULL, end_late, &ended), 0);
	power_on(&p);
	assert_int_equal(ended, -EIO);
	pthread_join(thread, NULL);
}

static void assert_answer(const char *line, const char *expected)
{
	char answer[128];

	power_command(&p, line, answer, sizeof(answer));
	assert_string_equal(answer, expected);
}

static void commands(void **state)
{
	const char *const bad = "error neither cut TIME SEED SURVIVE nor on\n";
	uint64_t at;
	char line[128];

	assert_answer("", bad);
	assert_answer("off\n", bad);
	assert_answer("cut 1 2\n", bad);
	assert_answer("cut 1 2 1.5\n", bad);
	assert_answer("cut 1 2 0.5 on\n", bad);
	assert_false(p.off);

	device_write(&d, power_clock() - p.start, 3, 2, 'a', false);
	at = power_clock() + MS;
	snprintf(line, sizeof(line), "cut %llu 7 0\n", (unsigned long long)at);
	assert_answer(line, "off 2\n");
	assert_true(p.cut >= at - p.start);
	assert_answer(line, "error Operation already in progress\n");
	assert_answer("on\n", "on\n");
	assert_false(p.off);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_is_done_by_then_is_answered),
		TEST(what_is_not_fails_and_is_lost),
		TEST(without_power_nothing_is_taken),
		TEST(it_comes_back_when_all_is_answered),
		TEST(commands),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
