// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who compares what is left after a power cut with what was promised: what is
 * lost, torn, old or not of this place has to be found, and nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "lab/powercut/witness.h"

#define BLOCKS	4

static struct witness *w;
/* The disk, and what was written in this order. */
static uint8_t disk[BLOCKS][WITNESS_BLOCK], data[8][WITNESS_BLOCK];

static int setup(void **state)
{
	w = calloc(1, witness_size(BLOCKS));
	w->blocks = BLOCKS;
	memset(disk, 0, sizeof(disk));
	memset(data, 'x', sizeof(data));
	return !w;
}

static int teardown(void **state)
{
	free(w);
	return 0;
}

static void start(uint32_t nr, unsigned int i)
{
	witness_start(w, nr, data[i]);
}

static void on_disk(uint32_t nr, unsigned int i)
{
	memcpy(disk[nr], data[i], WITNESS_BLOCK);
}

static void assert_found(uint32_t nr, enum finding expected, uint64_t oldest)
{
	uint64_t version;

	assert_int_equal(witness_check(w, nr, disk[nr], &version), expected);
	assert_int_equal(version, oldest);
}

static void nothing_was_promised(void **state)
{
	assert_found(1, FOUND_ALL, 0);
	start(1, 0);
	assert_found(1, FOUND_ALL, 0);
	on_disk(1, 0);
	assert_found(1, FOUND_ALL, 1);
}

static void what_was_promised_is_there(void **state)
{
	start(2, 0);
	start(2, 1);
	witness_acknowledge(w, data[0]);
	on_disk(2, 0);
	assert_found(2, FOUND_ALL, 1);
	/* And may be newer. */
	on_disk(2, 1);
	assert_found(2, FOUND_ALL, 2);
	assert_int_equal(w->acknowledged, 1);
}

static void a_loss(void **state)
{
	start(2, 0);
	witness_acknowledge(w, data[0]);
	assert_found(2, FOUND_OLDER, 0);
	/* It is lost once. */
	assert_found(2, FOUND_ALL, 0);
}

static void a_stale_block(void **state)
{
	start(0, 0);
	start(0, 1);
	witness_acknowledge(w, data[0]);
	witness_acknowledge(w, data[1]);
	on_disk(0, 0);
	assert_found(0, FOUND_OLDER, 1);
}

/* Acknowledgements may come in another order than the writes. */
static void a_later_promise_is_not_taken_back(void **state)
{
	start(0, 0);
	start(0, 1);
	witness_acknowledge(w, data[1]);
	witness_acknowledge(w, data[0]);
	on_disk(0, 0);
	assert_found(0, FOUND_OLDER, 1);
}

static void a_torn_block(void **state)
{
	unsigned int sector;

	start(3, 0);
	start(3, 1);
	for (sector = 0; sector < 8; sector++) {
		witness_acknowledge(w, data[1]);
		on_disk(3, 1);
		memcpy(&disk[3][512 * sector], &data[0][512 * sector], 512);
		assert_found(3, FOUND_OLDER, 1);
	}
}

/* So it may be, where only the older one was promised. */
static void a_torn_block_that_was_not_promised(void **state)
{
	start(3, 0);
	start(3, 1);
	witness_acknowledge(w, data[0]);
	on_disk(3, 0);
	memcpy(&disk[3][512 * 5], &data[1][512 * 5], 512);
	assert_found(3, FOUND_ALL, 1);
}

static void a_sector_that_is_torn_itself(void **state)
{
	start(3, 0);
	start(3, 1);
	witness_acknowledge(w, data[1]);
	on_disk(3, 1);
	memcpy(&disk[3][512 + 256], &data[0][512 + 256], 256);
	assert_found(3, FOUND_OLDER, 1);
}

static void what_survived_has_to_stay(void **state)
{
	start(1, 0);
	on_disk(1, 0);
	assert_found(1, FOUND_ALL, 1);
	memset(disk[1], 0, sizeof(disk[1]));
	assert_found(1, FOUND_OLDER, 0);
}

static void what_was_never_written_there(void **state)
{
	uint64_t version;

	start(1, 0);
	start(2, 1);
	witness_acknowledge(w, data[0]);
	/* Garbage, and the right block with a bit too many. */
	memset(disk[1], 'x', sizeof(disk[1]));
	assert_int_equal(witness_check(w, 1, disk[1], &version), FOUND_FOREIGN);
	on_disk(1, 0);
	disk[1][8] ^= 1;
	assert_int_equal(witness_check(w, 1, disk[1], &version), FOUND_FOREIGN);
	/* Another place's, a version that never was, another run's. */
	on_disk(1, 1);
	assert_int_equal(witness_check(w, 1, disk[1], &version), FOUND_FOREIGN);
	start(1, 2);
	on_disk(1, 2);
	w->block[1].started = 1;
	assert_int_equal(witness_check(w, 1, disk[1], &version), FOUND_FOREIGN);
	on_disk(1, 0);
	w->run++;
	assert_int_equal(witness_check(w, 1, disk[1], &version), FOUND_FOREIGN);
}

/* What a job hears of a write from before the cut is no promise any more. */
static void a_promise_counts_while_the_power_is_on(void **state)
{
	start(1, 0);
	w->generation++;
	witness_acknowledge(w, data[0]);
	assert_int_equal(w->acknowledged, 0);
	assert_found(1, FOUND_ALL, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(nothing_was_promised),
		TEST(what_was_promised_is_there),
		TEST(a_loss),
		TEST(a_stale_block),
		TEST(a_later_promise_is_not_taken_back),
		TEST(a_torn_block),
		TEST(a_torn_block_that_was_not_promised),
		TEST(a_sector_that_is_torn_itself),
		TEST(what_survived_has_to_stay),
		TEST(what_was_never_written_there),
		TEST(a_promise_counts_while_the_power_is_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
