// SPDX-License-Identifier: GPL-2.0-only
/* The timing law of a hard disk: lab/model/hdd.c behind model.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lab/model/odsync.h"
#include "tests/unit/model_device.h"

#define REVOLUTION	(60e9 / 7200)	/* ns */
#define SPAN		(100ULL << 30)

static struct model *disk(void)
{
	return model_of("st20000nm007d.conf", 1, NULL);
}

static uint64_t submit(struct model *m, uint64_t now, enum model_op op,
		       uint64_t sector, uint64_t nr, bool fua)
{
	const struct model_request rq = {
		.op = op, .sector = sector, .nr = nr, .fua = fua,
	};
	uint64_t done;

	assert_int_equal(model_submit(m, now, &rq, &done), 0);
	return done;
}

/* O_DSYNC up to Linux 7.3: the head has just passed where it has to write. */
static void a_flush_after_each_write_costs_a_revolution(void **state)
{
	struct model *m = disk();
	unsigned int i, late = 0;
	uint64_t t = 0, begun;

	for (i = 0; i < 1000; i++) {
		begun = t;
		t = submit(m, t, MODEL_WRITE, i, 1, true);
		t = submit(m, t + 5000, MODEL_FLUSH, 0, 0, false);
		if (!i)
			continue;
		/* A revolution and a sector, but for a switch of tracks. */
		late += t - begun > REVOLUTION + 20000;
		assert_in_range(t - begun, REVOLUTION, REVOLUTION + 470000);
	}
	assert_in_range(late, 1, 2);
	assert_int_equal(m->stats.destages, 1000);
	model_free(m);
}

/* Nor does a FUA write alone where nothing but the medium is safe. */
static void without_a_safe_cache_fua_costs_a_revolution(void **state)
{
	struct model *m = model_of("st20000nm007d.conf", 1, "safe_cache=0",
				   NULL);
	uint64_t t = submit(m, 0, MODEL_WRITE, 0, 1, true), begun;
	unsigned int i;

	for (i = 1; i < 100; i++) {
		begun = t;
		t = submit(m, t, MODEL_WRITE, i, 1, true);
		assert_in_range(t - begun, REVOLUTION, REVOLUTION + 20000);
	}
	model_free(m);
}

static void with_one_a_fua_write_costs_what_a_write_does(void **state)
{
	struct model *m = disk();
	uint64_t t = submit(m, 0, MODEL_WRITE, 0, 1, false);
	const uint64_t plain = t;
	unsigned int i;

	assert_in_range(plain, m->command, m->command + 10000);
	/* Sequential ones never wait: the disk writes them faster. */
	for (i = 1; i < 20000; i++) {
		const uint64_t begun = t;

		t = submit(m, t, MODEL_WRITE, i, 1, true);
		assert_in_range(t - begun, plain - 1, plain + 1);
	}
	assert_true(m->stats.destages < 200);
	model_free(m);
}

/* The shortest time to a sector, over all angles: the seek alone. */
static uint64_t seek_to(uint64_t sector)
{
	uint64_t best = UINT64_MAX, begin, done;
	struct model *m = disk();
	unsigned int i;

	for (i = 0; i < 1000; i++) {
		begin = m->medium->access(m, m->medium->ready(m), 0, 1, false);
		begin += REVOLUTION / 1000 * i;
		done = m->medium->access(m, begin, sector, 1, false);
		if (done - begin < best)
			best = done - begin;
	}
	model_free(m);
	return best;
}

static void a_longer_seek_takes_longer(void **state)
{
	/* Bytes from the first sector */
	static const uint64_t places[] = {
		3ULL << 20, 100ULL << 20, 1ULL << 30, 10ULL << 30, SPAN,
		1000ULL << 30, 5000ULL << 30, 10000ULL << 30, 18000ULL << 30,
	};
	uint64_t before = 0, now;
	unsigned int i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		now = seek_to(places[i] / 4096);
		assert_true(now > before);
		before = now;
	}
	/* The next track, the shortest seek further, and all over. */
	assert_in_range(seek_to((3ULL << 20) / 4096), 440000, 480000);
	assert_in_range(seek_to((100ULL << 20) / 4096), 1200000, 1350000);
	assert_in_range(seek_to(20000588955648 / 4096 - 1), 17900000, 18100000);
}

static void the_average_seek_is_that_of_the_sheet(void **state)
{
	struct model *m = disk();
	uint64_t random = 1, t = 0, done;
	double sum = 0;
	unsigned int i;

	for (i = 0; i < 20000; i++) {
		done = m->medium->access(m, t, model_random(&random) *
					 m->capacity, 1, false);
		sum += done - t;
		t = done;
	}
	/*
	 * And half a revolution on top. More of the sectors are outside, so
	 * that their seeks are a little shorter than those over the tracks.
	 */
	sum = sum / i - REVOLUTION / 2;
	assert_in_range(sum, 8.6e6 * 0.95, 8.6e6 * 1.02);
	model_free(m);
}

/* MB/s of one long transfer that begins at @sector */
static double rate_at(uint64_t sector)
{
	const uint64_t nr = 1000000000 / 4096;
	struct model *m = disk();
	uint64_t begin, done;
	double rate;

	begin = m->medium->access(m, 0, sector - 1, 1, true);
	done = m->medium->access(m, begin, sector, nr, true);
	rate = nr * 4096e3 / (done - begin);
	model_free(m);
	return rate;
}

static void long_transfers_have_the_rates_of_the_sheet(void **state)
{
	assert_in_range(rate_at(1), 280, 285);
	assert_in_range(rate_at(20000588955648 / 4096 - 300000), 139, 143);
	assert_in_range(rate_at(20000588955648 / 4096 / 2), 200, 240);
}

static void odsync(struct model *m, bool flush, uint64_t seed,
		   struct odsync_result *r)
{
	const struct odsync o = { .flush = flush, .span = SPAN, .seconds = 30 };

	assert_int_equal(odsync_run(m, &o, seed, r), 0);
	model_free(m);
}

/* Half a revolution on the average, and any part of one alike. */
static void a_random_flush_waits_for_its_angle(void **state)
{
	struct odsync_result r;

	odsync(model_of("st20000nm007d.conf", 1, "retry_slope=0",
			"settle=440", "seek_average=440", "seek_full=440",
			NULL), true, 1, &r);
	/* write, flush, seek */
	assert_in_range(r.p50, 247 + 440 + REVOLUTION / 2e3 - 150,
			247 + 440 + REVOLUTION / 2e3 + 150);
	assert_in_range(r.mean, 247 + 440 + REVOLUTION / 2e3 - 100,
			247 + 440 + REVOLUTION / 2e3 + 100);
	assert_in_range(r.p99, 247 + 440 + REVOLUTION / 1e3 * 0.98,
			247 + 440 + REVOLUTION / 1e3);
}

static void a_retry_costs_one_revolution(void **state)
{
	struct model *m = model_of("st20000nm007d.conf", 1, "retry_max=1",
				   "retry_slope=1000000", NULL), *never;
	uint64_t with, without;

	never = model_of("st20000nm007d.conf", 1, "retry_slope=0", NULL);
	with = m->medium->access(m, 0, 1 << 20, 1, true);
	without = never->medium->access(never, 0, 1 << 20, 1, true);
	assert_in_range(with - without, REVOLUTION - 1, REVOLUTION + 1);
	assert_int_equal(m->stats.retries, 1);
	assert_int_equal(never->stats.retries, 0);

	/* Not in reading, and not where the head is already. */
	m->medium->access(m, with, 5, 1, false);
	m->medium->access(m, with, 6, 1, true);
	assert_int_equal(m->stats.retries, 1);
	model_free(m);
	model_free(never);
}

/* Microseconds until @nr scattered writes are on the medium. */
static double destage_time(const char *window, unsigned int nr)
{
	struct model *m = model_of("st20000nm007d.conf", 1, window,
				   "retry_slope=0", NULL);
	uint64_t random = 1, t = 0, begun;
	unsigned int i;

	for (i = 0; i < nr; i++)
		t = submit(m, t, MODEL_WRITE,
			   model_random(&random) * (SPAN / 4096), 1, false);
	begun = t;
	t = submit(m, t, MODEL_FLUSH, 0, 0, false);
	model_free(m);
	return (t - begun) / 1e3;
}

static void the_cache_is_emptied_in_a_good_order(void **state)
{
	const double swept = destage_time("destage_window=1", 500);
	const double chosen = destage_time("destage_window=96", 500);

	/* In one sweep: a short seek and half a revolution each */
	assert_in_range(swept / 500, 1200 + 4000, 1400 + 4400);
	/* and with a choice of angles, little more than the seek. */
	assert_in_range(chosen / 500, 1200, 1900);
}

static void note_order(void *data, uint64_t start, uint64_t nr, uint64_t seq)
{
	uint64_t **next = data;

	*(*next)++ = start;
}

static void the_heads_sweep_on_from_where_they_are(void **state)
{
	struct model *m = model_of("st20000nm007d.conf", 1, "destage_window=1",
				   NULL);
	static const uint64_t expected[] = { 800000, 900000, 500000, 600000 };
	uint64_t order[4], *next = order, t = 0;
	unsigned int i;

	m->persist = note_order;
	m->persist_data = &next;
	for (i = 0; i < 4; i++)
		t = submit(m, t, MODEL_WRITE, expected[3 - i], 1, false);
	t = submit(m, t, MODEL_READ, 700000, 1, false);
	t = submit(m, t, MODEL_FLUSH, 0, 0, false);
	assert_int_equal(model_advance(m, t), 0);
	assert_ptr_equal(next, order + 4);
	assert_memory_equal(order, expected, sizeof(order));
	model_free(m);
}

static void neighbours_are_written_together(void **state)
{
	struct model *m = disk();
	uint64_t t = 0, begun;
	unsigned int i;

	for (i = 0; i < 100; i++)
		t = submit(m, t, MODEL_WRITE, 1000 + (i * 37) % 100, 1, false);
	begun = t;
	t = submit(m, t, MODEL_FLUSH, 0, 0, false);
	assert_int_equal(m->stats.destages, 1);
	assert_int_equal(m->stats.destaged_sectors, 100);
	/* A seek, at most a revolution, and a sixth of one for the data */
	assert_true(t - begun < 2 * REVOLUTION);
	model_free(m);
}

static void what_the_cache_has_is_read_at_once(void **state)
{
	struct model *m = disk();
	uint64_t t = submit(m, 0, MODEL_WRITE, 1000, 4, false), done;

	done = submit(m, t, MODEL_READ, 1001, 2, false);
	assert_in_range(done - t, m->command, m->command + 20000);
	t = done;
	done = submit(m, t, MODEL_READ, 1002, 4, false);
	assert_true(done - t > m->command + 440000);
	model_free(m);
}

/* More than the safe part can have goes to the medium as it comes. */
static void a_large_fua_write_is_one_of_the_medium(void **state)
{
	struct model *m = disk();
	const uint64_t nr = (8 << 20) / 4096;
	uint64_t t;

	t = submit(m, 0, MODEL_WRITE, 5000, nr, true);
	assert_true(t > (8 << 20) / 285e-3);
	assert_int_equal(m->dirty.sectors[true], 0);
	model_free(m);
}

static void the_seed_decides(void **state)
{
	struct odsync_result a, b, c;

	odsync(model_of("st20000nm007d.conf", 1, NULL), true, 1, &a);
	odsync(model_of("st20000nm007d.conf", 1, NULL), true, 1, &b);
	odsync(model_of("st20000nm007d.conf", 2, NULL), true, 1, &c);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_true(a.mean != c.mean);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flush_after_each_write_costs_a_revolution),
		cmocka_unit_test(without_a_safe_cache_fua_costs_a_revolution),
		cmocka_unit_test(with_one_a_fua_write_costs_what_a_write_does),
		cmocka_unit_test(a_longer_seek_takes_longer),
		cmocka_unit_test(the_average_seek_is_that_of_the_sheet),
		cmocka_unit_test(long_transfers_have_the_rates_of_the_sheet),
		cmocka_unit_test(a_random_flush_waits_for_its_angle),
		cmocka_unit_test(a_retry_costs_one_revolution),
		cmocka_unit_test(the_cache_is_emptied_in_a_good_order),
		cmocka_unit_test(the_heads_sweep_on_from_where_they_are),
		cmocka_unit_test(neighbours_are_written_together),
		cmocka_unit_test(what_the_cache_has_is_read_at_once),
		cmocka_unit_test(a_large_fua_write_is_one_of_the_medium),
		cmocka_unit_test(the_seed_decides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
