// SPDX-License-Identifier: GPL-2.0-only
/* The timing law of an NVMe drive: lab/model/nvme.c behind model.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/model_device.h"

#define US	1000.0
#define STRIPE	4		/* sectors */
#define CHANNELS 8
#define COMMAND	(12 * US)
#define READ	(60 * US)
#define PROGRAM	(600 * US)
/* ns for a sector, through a channel and through the link */
#define CHANNEL	(4096 / 1.2)
#define LINK	(4096 / 3.5)

static struct model *m;

static int setup(void **state)
{
	m = model_of("nvme.conf", 1, NULL);
	return 0;
}

static int teardown(void **state)
{
	model_free(m);
	return 0;
}

static uint64_t submit(uint64_t now, enum model_op op, uint64_t sector,
		       uint64_t nr, bool fua)
{
	const struct model_request rq = {
		.op = op, .sector = sector, .nr = nr, .fua = fua,
	};
	uint64_t done;

	assert_int_equal(model_submit(m, now, &rq, &done), 0);
	return done;
}

static void assert_near(uint64_t time, double expected)
{
	assert_in_range(time, expected - 2, expected + 2);
}

static void a_read_takes_one_of_the_flash(void **state)
{
	assert_near(submit(0, MODEL_READ, 0, 1, false),
		    COMMAND + READ + CHANNEL + LINK);
}

static void channels_read_side_by_side(void **state)
{
	const double one = COMMAND + READ + CHANNEL + LINK;
	unsigned int i;

	for (i = 0; i < CHANNELS; i++)
		assert_near(submit(0, MODEL_READ, i * STRIPE, 1, false), one);
	/* The ninth waits for the first's channel. */
	assert_near(submit(0, MODEL_READ, CHANNELS * STRIPE, 1, false),
		    one + READ + CHANNEL);
}

static void the_link_carries_one_after_the_other(void **state)
{
	unsigned int i;

	m->link = 1000;	/* ns a byte: slower than all else */
	for (i = 1; i <= 4; i++)
		assert_near(submit(0, MODEL_WRITE, i, 1, false),
			    i * 4096e3 + COMMAND);
	/* The other direction is free. */
	for (i = 0; i < 4; i++)
		assert_near(submit(0, MODEL_READ, 100 + i * STRIPE, 1, false),
			    i ? (i + 1) * 4096e3 :
				COMMAND + READ + CHANNEL + 4096e3);
}

static void a_request_does_not_wait_for_another_s_data(void **state)
{
	submit(0, MODEL_READ, 0, 1, false);
	assert_near(submit(0, MODEL_READ, STRIPE, 1, false),
		    COMMAND + READ + CHANNEL + LINK);
	assert_near(submit(0, MODEL_WRITE, 0, 1, false), COMMAND + LINK);
}

static void a_read_of_two_stripes_uses_two_channels(void **state)
{
	assert_near(submit(0, MODEL_READ, STRIPE - 2, 4, false),
		    COMMAND + READ + 2 * CHANNEL + 4 * LINK);
}

static void a_write_is_done_in_the_cache(void **state)
{
	assert_near(submit(0, MODEL_WRITE, 0, 1, false), COMMAND + LINK);
	assert_int_equal(m->stats.destages, 0);
}

static void fua_and_flush_wait_for_the_flash(void **state)
{
	uint64_t t = submit(0, MODEL_WRITE, 0, 1, true), begun;

	assert_near(t, LINK + COMMAND + PROGRAM + CHANNEL);
	t = submit(t + 1000000, MODEL_WRITE, 0, 1, false);
	begun = t;
	t = submit(begun, MODEL_FLUSH, 0, 0, false);
	assert_near(t - begun, COMMAND + PROGRAM + CHANNEL);
	begun = t;
	t = submit(begun, MODEL_FLUSH, 0, 0, false);
	assert_near(t - begun, COMMAND);
	assert_int_equal(m->stats.empty_flushes, 1);
}

static void a_flush_programs_side_by_side(void **state)
{
	uint64_t t = 0, begun;
	unsigned int i;

	for (i = 0; i < 2 * CHANNELS; i++)
		t = submit(t, MODEL_WRITE, i * 1000, 1, false);
	begun = t;
	t = submit(t, MODEL_FLUSH, 0, 0, false);
	assert_near(t - begun, COMMAND + 2 * (PROGRAM + CHANNEL));
}

static void note_order(void *data, uint64_t start, uint64_t nr, uint64_t seq)
{
	uint64_t **next = data;

	*(*next)++ = start;
}

/* What was written last is not written again while others wait. */
static void all_addresses_have_their_turn(void **state)
{
	uint64_t order[3], *next = order, t;

	t = submit(0, MODEL_WRITE, 100, 1, true);
	m->persist = note_order;
	m->persist_data = &next;
	assert_int_equal(model_advance(m, t), 0);
	t = submit(t, MODEL_WRITE, 50, 1, false);
	t = submit(t, MODEL_WRITE, 200, 1, false);
	t = submit(t, MODEL_FLUSH, 0, 0, false);
	assert_int_equal(model_advance(m, t), 0);
	assert_int_equal(order[0], 100);
	assert_int_equal(order[1], 200);
	assert_int_equal(order[2], 50);
}

static void neighbours_share_a_program(void **state)
{
	uint64_t t = 0, begun;
	unsigned int i;

	for (i = 0; i < STRIPE; i++)
		t = submit(t, MODEL_WRITE, i, 1, false);
	begun = t;
	t = submit(t, MODEL_FLUSH, 0, 0, false);
	assert_near(t - begun, COMMAND + PROGRAM + STRIPE * CHANNEL);
	assert_int_equal(m->stats.destages, 1);
}

/* In the long run writes are as fast as all channels program. */
static void a_full_cache_passes_on_what_the_flash_takes(void **state)
{
	const uint64_t nr = (64 << 20) / 4096;	/* as much as the cache */
	const double programs = 1e9 / (PROGRAM + STRIPE * CHANNEL) * CHANNELS;
	uint64_t t = 0, i, begun = 0;

	for (i = 0; i < 4 * nr; i += 16) {
		if (i == 2 * nr)
			begun = t;
		t = submit(t, MODEL_WRITE, i, 16, false);
	}
	/* Sectors a second */
	assert_in_range(2 * nr * 1e9 / (t - begun), programs * STRIPE * 0.98,
			programs * STRIPE * 1.02);
	assert_true(m->stats.waits > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(a_read_takes_one_of_the_flash),
		TEST(channels_read_side_by_side),
		TEST(the_link_carries_one_after_the_other),
		TEST(a_request_does_not_wait_for_another_s_data),
		TEST(a_read_of_two_stripes_uses_two_channels),
		TEST(a_write_is_done_in_the_cache),
		TEST(fua_and_flush_wait_for_the_flash),
		TEST(a_flush_programs_side_by_side),
		TEST(all_addresses_have_their_turn),
		TEST(neighbours_share_a_program),
		TEST(a_full_cache_passes_on_what_the_flash_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
