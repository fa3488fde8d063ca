// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a modelled device has after a power cut: lab/model/model.c and store.c
 * together, on each kind of medium.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tests/unit/model_device.h"

static struct device d;

/* A disk as it is, one whose whole cache is volatile, and an NVMe drive. */
static struct model *make(unsigned int kind, uint64_t seed)
{
	switch (kind) {
	case 0:
		return model_of("st20000nm007d.conf", seed, NULL);
	case 1:
		return model_of("st20000nm007d.conf", seed, "safe_cache=0",
				NULL);
	default:
		return model_of("nvme.conf", seed, NULL);
	}
}

#define KINDS	3

/* Each test runs once for each kind. */
#define FOR_EACH_KIND(name)						\
	static void name##_on(unsigned int kind);			\
	static void name(void **state)					\
	{								\
		unsigned int kind;					\
									\
		for (kind = 0; kind < KINDS; kind++) {			\
			device_open(&d, make(kind, 1));			\
			name##_on(kind);				\
			device_close(&d);				\
		}							\
	}								\
	static void name##_on(unsigned int kind)

FOR_EACH_KIND(what_was_written_is_read)
{
	uint64_t t = device_write(&d, 0, 3, 2, 'a', false);

	assert_int_equal(device_byte(&d, 2), 0);
	assert_int_equal(device_byte(&d, 3), 'a');
	assert_int_equal(device_byte(&d, 4), 'a');
	t = device_write(&d, t, 3, 1, 'b', true);
	assert_int_equal(device_byte(&d, 3), 'b');
	device_flush(&d, t);
	assert_int_equal(device_byte(&d, 4), 'a');
}

FOR_EACH_KIND(a_write_is_volatile)
{
	const uint64_t t = device_write(&d, 0, 3, 1, 'a', false);

	assert_int_equal(device_cut(&d, t, 1, 0), 1);
	assert_int_equal(device_byte(&d, 3), 0);
}

FOR_EACH_KIND(a_flush_makes_all_before_it_durable)
{
	uint64_t t = device_write(&d, 0, 3, 2, 'a', false);

	t = device_write(&d, t, 200, 1, 'b', false);
	t = device_flush(&d, t);
	assert_int_equal(device_cut(&d, t, 1, 0), 0);
	assert_int_equal(device_byte(&d, 3), 'a');
	assert_int_equal(device_byte(&d, 4), 'a');
	assert_int_equal(device_byte(&d, 200), 'b');
}

FOR_EACH_KIND(a_flush_is_not_done_before_its_end)
{
	uint64_t t = device_write(&d, 0, 3, 1, 'a', false);

	t = device_write(&d, t, 200, 1, 'b', false);
	t = device_flush(&d, t);
	assert_true(device_cut(&d, t - 1, 1, 0) >= 1);
}

FOR_EACH_KIND(fua_makes_this_write_durable)
{
	uint64_t t = device_write(&d, 0, 3, 1, 'a', false);

	t = device_write(&d, t, 100, 1, 'b', true);
	assert_int_equal(device_cut(&d, t, 1, 0), 1);
	assert_int_equal(device_byte(&d, 3), 0);
	assert_int_equal(device_byte(&d, 100), 'b');
}

FOR_EACH_KIND(fua_is_not_durable_before_its_end)
{
	const uint64_t t = device_write(&d, 0, 3, 1, 'a', true);

	assert_int_equal(device_cut(&d, t - 1, 1, 0), 1);
	assert_int_equal(device_byte(&d, 3), 0);
}

FOR_EACH_KIND(a_write_over_a_durable_one_loses_only_itself)
{
	uint64_t t = device_write(&d, 0, 3, 1, 'a', true);

	t = device_write(&d, t, 3, 1, 'b', false);
	t = device_write(&d, t, 3, 1, 'c', false);
	assert_int_equal(device_cut(&d, t, 1, 0), 1);
	assert_int_equal(device_byte(&d, 3), 'a');
}

/* The medium gets what was written before the flush, not what came since. */
FOR_EACH_KIND(a_write_during_a_flush_is_not_part_of_it)
{
	const uint64_t t = device_write(&d, 0, 3, 1, 'a', false);
	const uint64_t done = device_flush(&d, t);

	device_write(&d, t + 1, 3, 1, 'b', false);
	assert_true(t + 1 < done);
	assert_int_equal(device_cut(&d, done, 1, 0), 1);
	assert_int_equal(device_byte(&d, 3), 'a');
}

FOR_EACH_KIND(an_idle_device_empties_its_cache)
{
	const uint64_t t = device_write(&d, 0, 3, 1, 'a', false);

	assert_int_equal(device_cut(&d, t + 1000 * MS, 1, 0), 0);
	assert_int_equal(device_byte(&d, 3), 'a');
	assert_int_equal(d.model->stats.destages, 1);
}

FOR_EACH_KIND(it_goes_on_after_a_cut)
{
	uint64_t t = device_write(&d, 0, 3, 1, 'a', true);

	device_write(&d, t, 4, 1, 'b', false);
	assert_int_equal(device_cut(&d, t, 1, 0), 1);
	t = device_flush(&d, t);
	assert_int_equal(device_cut(&d, t, 1, 0), 0);
	assert_int_equal(device_byte(&d, 3), 'a');
	assert_int_equal(device_byte(&d, 4), 0);
	t = device_write(&d, t, 4, 1, 'c', true);
	assert_int_equal(device_cut(&d, t, 1, 0), 0);
	assert_int_equal(device_byte(&d, 4), 'c');
}

FOR_EACH_KIND(after_a_cut_it_has_nothing_to_do)
{
	uint64_t t = 0, done;
	unsigned int i;

	for (i = 0; i < 200; i += 2)
		t = device_write(&d, t, i, 1, 'a', false);
	done = device_flush(&d, t);
	assert_true(done > t + MS);
	device_cut(&d, t + 1, 1, 0);
	assert_int_equal(d.model->medium->ready(d.model), t + 1);
}

FOR_EACH_KIND(a_cut_tears_by_its_seed)
{
	unsigned int i, kept, seen_torn = 0;
	uint8_t first[16], again[16];
	unsigned int seed;
	uint64_t t = 0;

	for (seed = 1; seed <= 20; seed++) {
		t = device_write(&d, t, 0, 16, 'o', true);
		t = device_write(&d, t, 0, 16, 'n', false);
		kept = 16 - device_cut(&d, t, seed, 0.5);
		for (i = 0; i < 16; i++) {
			const uint8_t byte = device_byte(&d, i);

			assert_true(byte == 'o' || byte == 'n');
			kept -= byte == 'n';
		}
		assert_int_equal(kept, 0);
		seen_torn += device_byte(&d, 0) != device_byte(&d, 15);
	}
	assert_in_range(seen_torn, 4, 16);

	for (i = 0; i < 2; i++) {
		t = device_write(&d, t, 0, 16, 'o', true);
		t = device_write(&d, t, 0, 16, 'n', false);
		device_cut(&d, t, 7, 0.5);
		for (kept = 0; kept < 16; kept++)
			(i ? again : first)[kept] = device_byte(&d, kept);
	}
	assert_memory_equal(first, again, 16);

	t = device_write(&d, t, 0, 16, 'o', true);
	t = device_write(&d, t, 0, 16, 'n', false);
	assert_int_equal(device_cut(&d, t, 1, 1), 0);
	assert_int_equal(device_byte(&d, 9), 'n');
}

/*
 * Random requests, some of which overlap in time, and cuts, many times: what
 * was promised is there, what was not is lost sometimes, and what is there
 * was written at some time.
 */
#define PLACES	24
#define MOST	400	/* writes between two cuts */

static struct {
	struct {
		uint8_t byte;
		uint64_t done;		/* when the write was */
		uint64_t durable;	/* when that was promised; 0: never */
	} version[MOST + 1];
	unsigned int nr;
} history[PLACES];

static void note_flush(uint64_t asked, uint64_t done)
{
	unsigned int i, j;

	for (i = 0; i < PLACES; i++)
		for (j = 0; j < history[i].nr; j++)
			if (history[i].version[j].done <= asked &&
			    !history[i].version[j].durable)
				history[i].version[j].durable = done;
}

/* Returns whether the place has lost something. */
static bool check_place(unsigned int place, uint64_t now)
{
	const uint8_t found = device_byte(&d, place);
	unsigned int j, promised = 0, is = 0;

	for (j = 0; j < history[place].nr; j++) {
		if (history[place].version[j].durable &&
		    history[place].version[j].durable <= now)
			promised = j;
		if (history[place].version[j].byte == found)
			is = j + 1;
	}
	assert_true(is > promised);
	j = history[place].nr - 1;
	history[place].version[0].byte = found;
	history[place].version[0].done = history[place].version[0].durable = 1;
	history[place].nr = 1;
	return is <= j;
}

FOR_EACH_KIND(nothing_promised_is_lost)
{
	uint64_t now = 1, done, latest = 1, state = kind;
	unsigned int i, place, round, n, lost = 0;
	uint8_t byte = 0;
	bool fua;

	memset(history, 0, sizeof(history));
	for (i = 0; i < PLACES; i++) {
		history[i].nr = 1;
		history[i].version[0].durable = 1;
	}
	for (round = 0; round < 200; round++) {
		n = 1 + model_random(&state) * (MOST / 2);
		for (i = 0; i < n; i++) {
			/* Before or after the end of earlier ones. */
			if (model_random(&state) < 0.7 && latest > now)
				now = latest;
			else
				now += model_random(&state) * 3 * MS;
			if (model_random(&state) < 0.05) {
				done = device_flush(&d, now);
				note_flush(now, done);
			} else {
				place = model_random(&state) * PLACES;
				fua = model_random(&state) < 0.2;
				if (!++byte)
					byte = 1;
				done = device_write(&d, now, place, 1, byte,
						    fua);
				history[place].version[history[place].nr].byte =
					byte;
				history[place].version[history[place].nr].done =
					done;
				history[place].version[history[place].nr++]
					.durable = fua ? done : 0;
			}
			if (done > latest)
				latest = done;
		}
		/* Some of the last may not be done yet. */
		now += model_random(&state) * 2 * MS;
		device_cut(&d, now, round, 0.3);
		for (place = 0; place < PLACES; place++)
			lost += check_place(place, now);
		latest = now;
	}
	assert_true(lost > 100);
}

static void requests_are_counted_apart(void **state)
{
	struct model_stats *s;
	uint64_t t;

	device_open(&d, make(0, 1));
	s = &d.model->stats;
	t = device_write(&d, 0, 0, 2, 'a', false);
	t = device_write(&d, t, 8, 1, 'b', true);
	t = device_flush(&d, t);
	t = device_flush(&d, t);
	t = device_read(&d, t, 0, 4);
	assert_int_equal(s->writes, 2);
	assert_int_equal(s->write_sectors, 3);
	assert_int_equal(s->fua_writes, 1);
	assert_int_equal(s->flushes, 2);
	assert_int_equal(s->empty_flushes, 1);
	assert_int_equal(s->reads, 1);
	assert_int_equal(s->read_sectors, 4);
	assert_int_equal(s->destages, 2);
	assert_int_equal(s->destaged_sectors, 3);
	assert_int_equal(s->waits, 0);
	device_close(&d);
}

/* On its way to the medium or not, the safe part still has it to write. */
static void what_is_safe_is_there_after_a_cut(void **state)
{
	uint64_t t, done;

	device_open(&d, make(0, 1));
	t = device_write(&d, 0, 3, 1, 'a', true);
	t = device_write(&d, t, 200, 1, 'b', true);
	done = device_flush(&d, t);
	device_cut(&d, done - 1, 1, 0);
	assert_int_equal(d.model->dirty.sectors[true], 1);
	device_flush(&d, done);
	assert_int_equal(d.model->stats.empty_flushes, 0);
	assert_int_equal(d.model->stats.destages, 3);
	device_close(&d);
}

/* What the safe part of the cache holds at @t. */
static uint64_t held_safe(const struct model *m, uint64_t t)
{
	uint64_t held = m->dirty.sectors[true];
	const struct model_event *e;

	TAILQ_FOREACH(e, &m->events, list)
		if (e->source == FROM_SAFE && e->time > t)
			held += e->nr;
	return held;
}

/* Each write waits for room, none for ever, and none is lost. */
static void a_full_cache_makes_writes_wait(void **state)
{
	unsigned int kind, i;
	uint64_t t, slowest, done;

	for (kind = 0; kind < 2; kind++) {
		/* 16 sectors for what is volatile and as many that are safe */
		struct model *m = model_of(kind ? "nvme.conf" :
						  "st20000nm007d.conf", 1,
					   "cache=0.0625", "safe_cache=0.0625",
					   NULL);

		device_open(&d, m);
		for (t = slowest = i = 0; i < 100; i++) {
			done = device_write(&d, t, (i * 37) % 256, 1, i, true);
			if (done - t > slowest)
				slowest = done - t;
			t = done;
			assert_true(held_safe(m, t) <= 16);
		}
		assert_true(m->stats.waits > 0);
		assert_true(m->stats.destages > 60);
		assert_true(slowest > m->command * 2);
		assert_int_equal(device_cut(&d, t, 1, 0), 0);
		for (i = 0; i < 100; i++)
			assert_int_equal(device_byte(&d, (i * 37) % 256), i);
		device_close(&d);
	}
}

static void the_null_model_always_takes_the_same_time(void **state)
{
	struct model *slow = model_of("null.conf", 1, "command=200", NULL);
	struct model *m = model_of("null.conf", 1, NULL);

	device_open(&d, m);
	assert_int_equal(device_write(&d, 5, 0, 8, 'a', false), 5);
	assert_int_equal(device_write(&d, 5, 0, 8, 'a', true), 5);
	assert_int_equal(device_flush(&d, 5), 5);
	assert_int_equal(device_read(&d, 6, 0, 8), 6);
	assert_int_equal(m->stats.flushes, 1);
	assert_int_equal(m->stats.fua_writes, 1);
	device_close(&d);

	device_open(&d, slow);
	assert_int_equal(device_write(&d, 5, 0, 8, 'a', false), 200005);
	assert_int_equal(device_write(&d, 5, 0, 8, 'a', true), 200005);
	assert_int_equal(device_flush(&d, 300000), 500000);
	assert_int_equal(device_read(&d, 300000, 0, 8), 500000);
	device_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_written_is_read),
		cmocka_unit_test(a_write_is_volatile),
		cmocka_unit_test(a_flush_makes_all_before_it_durable),
		cmocka_unit_test(a_flush_is_not_done_before_its_end),
		cmocka_unit_test(fua_makes_this_write_durable),
		cmocka_unit_test(fua_is_not_durable_before_its_end),
		cmocka_unit_test(a_write_over_a_durable_one_loses_only_itself),
		cmocka_unit_test(a_write_during_a_flush_is_not_part_of_it),
		cmocka_unit_test(an_idle_device_empties_its_cache),
		cmocka_unit_test(it_goes_on_after_a_cut),
		cmocka_unit_test(after_a_cut_it_has_nothing_to_do),
		cmocka_unit_test(a_cut_tears_by_its_seed),
		cmocka_unit_test(nothing_promised_is_lost),
		cmocka_unit_test(requests_are_counted_apart),
		cmocka_unit_test(what_is_safe_is_there_after_a_cut),
		cmocka_unit_test(a_full_cache_makes_writes_wait),
		cmocka_unit_test(the_null_model_always_takes_the_same_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
