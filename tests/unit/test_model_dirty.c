// SPDX-License-Identifier: GPL-2.0-only
/* lab/model/dirty.c, compared with a plain array of what each sector is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "lab/model/dirty.h"

#define SECTORS	64

enum { CLEAN, VOLATILE, SAFE };

static char expected[SECTORS];

static unsigned int count(char what)
{
	unsigned int i, n = 0;

	for (i = 0; i < SECTORS; i++)
		n += expected[i] == what;
	return n;
}

static void assert_as_expected(struct dirty *d)
{
	struct dirty_run *r, *first = dirty_from(d, 0);
	char found[SECTORS] = { 0 };
	uint64_t end = 0;
	bool safe = false;

	assert_int_equal(d->sectors[false], count(VOLATILE));
	assert_int_equal(d->sectors[true], count(SAFE));
	r = first;
	while (r) {
		/* In order, and neighbours of one kind are one run. */
		assert_true(r == first || r->start > end ||
			    (r->start == end && r->safe != safe));
		end = r->start + r->nr;
		safe = r->safe;
		assert_true(r->nr && end <= SECTORS);
		memset(found + r->start, safe ? SAFE : VOLATILE, r->nr);
		r = dirty_next(d, r);
		if (r == first)
			break;
	}
	assert_memory_equal(found, expected, SECTORS);
}

static void is_as_an_array_would_be(void **state)
{
	unsigned int i, start, nr, what, sector;
	struct dirty d;
	struct dirty_run *r;

	dirty_init(&d);
	memset(expected, CLEAN, SECTORS);
	srand(1);
	for (i = 0; i < 20000; i++) {
		start = rand() % SECTORS;
		nr = 1 + rand() % (i % 2 ? 3 : SECTORS - start);
		if (start + nr > SECTORS)
			nr = SECTORS - start;
		what = rand() % 3;
		if (what == CLEAN)
			assert_int_equal(dirty_remove(&d, start, nr), 0);
		else
			assert_int_equal(dirty_add(&d, start, nr,
						   what == SAFE), 0);
		memset(expected + start, what, nr);
		assert_as_expected(&d);

		start = rand() % SECTORS;
		nr = 1 + rand() % (SECTORS - start);
		assert_int_equal(dirty_covers(&d, start, nr),
				 !memchr(expected + start, CLEAN, nr));

		/* The next dirty sector from a place, else the first. */
		for (sector = start; sector < SECTORS && !expected[sector];)
			sector++;
		r = dirty_from(&d, start);
		if (sector < SECTORS)
			assert_true(r->start <= sector &&
				    sector < r->start + r->nr);
		else
			assert_ptr_equal(r, dirty_from(&d, 0));
	}
	dirty_exit(&d);
}

static void without_any_there_is_no_run(void **state)
{
	struct dirty d;

	dirty_init(&d);
	assert_null(dirty_from(&d, 0));
	assert_false(dirty_covers(&d, 0, 1));
	assert_int_equal(dirty_remove(&d, 0, 100), 0);
	assert_int_equal(d.sectors[false] + d.sectors[true], 0);
	dirty_exit(&d);
}

static void addresses_may_be_as_large_as_a_disk(void **state)
{
	const uint64_t last = 20000588955648 / 512 - 1;
	struct dirty d;

	dirty_init(&d);
	assert_int_equal(dirty_add(&d, last, 1, false), 0);
	assert_int_equal(dirty_add(&d, 0, 1, false), 0);
	assert_int_equal(dirty_from(&d, 1)->start, last);
	assert_int_equal(dirty_next(&d, dirty_from(&d, 1))->start, 0);
	dirty_exit(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_as_an_array_would_be),
		cmocka_unit_test(without_any_there_is_no_run),
		cmocka_unit_test(addresses_may_be_as_large_as_a_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
