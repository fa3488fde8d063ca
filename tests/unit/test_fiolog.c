// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reader of fio's logs: the same whatever the size of its blocks, and
 * what is no log is refused at the right line.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "util/fiolog.h"

#define BLOCK	4096

static struct fiolog *text(const char *t, size_t block)
{
	struct fiolog *log;

	assert_int_equal(fiolog_open_text(t, strlen(t), block, &log), 0);
	return log;
}

static void check_rows(const char *t, enum fiolog_columns columns,
		       size_t block, int n, const struct fiolog_row *expected)
{
	struct fiolog *log = text(t, block);
	struct fiolog_row rows[16];
	int got, i = 0;

	/* In parts, so that each begins where the last has ended. */
	while ((got = fiolog_rows(log, columns, rows + i, 2)) > 0)
		i += got;
	assert_int_equal(got, 0);
	assert_int_equal(i, n);
	assert_memory_equal(rows, expected, n * sizeof(*rows));
	fiolog_close(log);
}

static void test_rows_in_blocks_of_any_size(void **state)
{
	static const struct fiolog_row expected[] = {
		{ 1, 22, 0, 4096 }, { 10, 333, 1, 512 }, { 100, 0, 2, 0 },
		{ 1LL << 53, 1LL << 53, 1, 16 },
	};
	static const char all[] =
		"1, 22, 0, 4096\n"
		"10,333 ,1, 512, 8192, 0x1004, 18446744073709551615\r\n"
		"\n \t\r\n"
		"  100, 000, 2, 0, 99999999999999999999\n"
		"9007199254740992, 9007199254740992, 1, 0x10";
	size_t block;

	for (block = 53; block <= sizeof(all) + 1; block++)
		check_rows(all, FIOLOG_VALUE, block, 4, expected);
}

static void test_columns(void **state)
{
	static const struct fiolog_row mean = { 5, 20, 1, 0 };
	static const struct fiolog_row two[] = { { 5, 0, 1, 0 },
						 { 9, 20, 1, 0 } };

	check_rows("5, 20, 1, 0, 7\n", FIOLOG_ANY, BLOCK, 1, &mean);
	check_rows("5, 20, 99, 1, 0\n", FIOLOG_ANY, BLOCK, 1, &mean);
	check_rows("5, 20, 99, 1, 0\n", FIOLOG_BOTH, BLOCK, 1, &mean);
	/* The first line alone would be one of writes without block size. */
	check_rows("5, 0, 1, 1, 0\n9, 20, 99, 1, 0\n", FIOLOG_ANY, BLOCK, 2,
		   two);
	check_rows("", FIOLOG_ANY, BLOCK, 0, two);
	check_rows("\n\n", FIOLOG_ANY, BLOCK, 0, two);
}

static const struct fiolog_fault *fault(struct fiolog *log,
					enum fiolog_columns columns, int what)
{
	struct fiolog_summary *summary = malloc(sizeof(*summary));
	const struct fiolog_fault *fault = fiolog_fault(log);

	assert_non_null(summary);
	assert_int_equal(fiolog_summarize(log, columns, summary), -EBADMSG);
	free(summary);
	assert_int_equal(fault->what, what);
	return fault;
}

static void test_what_is_no_line(void **state)
{
	static const char *const wrong[] = {
		"x", "1", "1, 2, 1", "1, 2, 1,", "1, , 1, 0", ", 2, 1, 0",
		"-1, 2, 1, 0", "+1, 2, 1, 0", "1.5, 2, 1, 0", "1; 2; 1; 0",
		"1 2 1 0", "1, 2, 3, 0", "1, 2, 1, 0 0", "1, 2, 1, 0, 0x",
		"1, 2, 1, 0, 0xG", "1, 2, 1, 0, 0X1", "0x1, 2, 1, 0",
		"1, 2, 1, 0, 0x12345678901234567",
		"9007199254740993, 2, 1, 0", "1, 9007199254740993, 1, 0",
		"1, 2, 1, 9007199254740993", "1, 18446744073709551617, 1, 0",
		"1, 2, 1, 0, 999999999999999999999", "1, 2, 1, 0 \xc2\xa0",
	};
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		const struct fiolog_fault *f;
		struct fiolog *log;
		char all[100];

		snprintf(all, sizeof(all), "\n7, 7, 1, 0\n  %s\n7, 7, 1, 0\n",
			 wrong[i]);
		log = text(all, BLOCK);
		f = fault(log, FIOLOG_VALUE, FIOLOG_NO_LINE);
		assert_int_equal(f->line, 3);
		assert_int_equal(f->length, strlen(wrong[i]));
		assert_memory_equal(f->text, wrong[i], f->length);
		/* It stays. */
		fault(log, FIOLOG_VALUE, FIOLOG_NO_LINE);
		fiolog_close(log);
	}
}

static void test_a_maximum_below_its_mean(void **state)
{
	struct fiolog *log = text("5, 20, 20, 1, 0\n5, 20, 19, 1, 0\n", BLOCK);

	assert_int_equal(fault(log, FIOLOG_BOTH, FIOLOG_NO_LINE)->line, 2);
	fiolog_close(log);
}

static void test_other_faults(void **state)
{
	char endless[200];
	struct fiolog *log = text("1, 2, 1, 0, 0, 0, 0, 0, 0\n", BLOCK);

	assert_int_equal(fault(log, FIOLOG_ANY, FIOLOG_MANY_COLUMNS)->columns,
			 9);
	fiolog_close(log);

	memset(endless, '7', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	memcpy(endless, "1, 2, 1, 0\n", 11);
	log = text(endless, 100);
	assert_int_equal(fault(log, FIOLOG_ANY, FIOLOG_ENDLESS_LINE)->line, 2);
	fiolog_close(log);
}

static void test_a_long_text_is_cut(void **state)
{
	char line[1000];
	struct fiolog *log;
	const struct fiolog_fault *f;

	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	log = text(line, BLOCK);
	f = fault(log, FIOLOG_ANY, FIOLOG_NO_LINE);
	assert_int_equal(f->length, sizeof(f->text));
	fiolog_close(log);
}

static void test_a_summary(void **state)
{
	struct fiolog_summary *s = malloc(sizeof(*s));
	size_t size = 100000, length = 0;
	char *all = malloc(size);
	struct fiolog *log;
	int i;

	assert_non_null(s);
	assert_non_null(all);
	/* 3,001 reads of 1,000,000,000 to 1,000,003,000 ns, so that a mean
	 * that is not exact is seen. */
	for (i = 0; i <= 3000; i++)
		length += snprintf(all + length, size - length,
				   "%d, %d, 0, 4096\n", 10 + i,
				   1000000000 + i * 1237 % 3001);
	snprintf(all + length, size - length, "2909, 5, 2, 0\n2910, 7, 2, 0\n");

	log = text(all, BLOCK);
	assert_int_equal(fiolog_summarize(log, FIOLOG_ANY, s), 0);
	fiolog_close(log);
	free(all);

	assert_int_equal(s->lines, 3003);
	assert_int_equal(s->sized, 3001);
	/* By 101 ms; 100 are none. */
	assert_int_equal(s->resets, 1);
	assert_int_equal(s->series[0].lines, 3001);
	assert_int_equal(s->series[0].min, 1000000000);
	assert_int_equal(s->series[0].max, 1000003000);
	assert_int_equal(s->series[0].start_msec, 10);
	assert_int_equal(s->series[0].end_msec, 3010);
	assert_true(s->series[0].mean == 1000001500);
	/* Of the numbers from 0 to n - 1: sqrt((n^2 - 1) / 12). */
	assert_true(fabs(s->series[0].stddev - sqrt(3000 * 3002 / 12.)) < 1e-6);
	assert_int_equal(s->series[0].counts[fiolog_bucket(1000001500)], 3001);
	assert_int_equal(s->series[1].lines, 0);
	assert_int_equal(s->series[2].lines, 2);
	assert_true(s->series[2].mean == 6 && s->series[2].stddev == 1);
	assert_int_equal(s->series[2].counts[5], 1);
	free(s);
}

static void test_time_goes_back(void **state)
{
	struct fiolog_summary *s = malloc(sizeof(*s));
	struct fiolog *log = text("200, 1, 1, 0\n100, 1, 1, 0\n99, 1, 1, 0\n"
				  "500, 1, 1, 0\n399, 1, 1, 0\n", BLOCK);

	assert_non_null(s);
	assert_int_equal(fiolog_summarize(log, FIOLOG_ANY, s), 0);
	assert_int_equal(s->resets, 1);
	assert_int_equal(s->series[1].start_msec, 99);
	fiolog_close(log);
	free(s);
}

static void test_buckets(void **state)
{
	uint64_t v, low = 0;
	unsigned int last = 0;

	/* Each is as wide as fio's, and none is left out. */
	for (v = 0; v < 1 << 16; v++) {
		unsigned int bucket = fiolog_bucket(v);

		if (bucket != last) {
			uint64_t wide = low < 128 ? 1 : 1 << (last / 64 - 1);

			assert_int_equal(bucket, last + 1);
			assert_int_equal(v - low, wide);
			low = v;
			last = bucket;
		}
	}
	assert_true(fiolog_bucket(FIOLOG_MAX) < FIOLOG_BUCKETS);
}

/* A line of a histogram whose counts are 0 but the two that are given. */
static size_t histogram(char *to, int msec, int direction, int buckets,
			int first, long long last)
{
	size_t length = sprintf(to, "%d, %d, 4096, %d", msec, direction, first);
	int i;

	for (i = 1; i < buckets - 1; i++)
		length += sprintf(to + length, ", 0");
	return length + sprintf(to + length, ", %lld\n", last);
}

static void test_histograms(void **state)
{
	static const int buckets[] = { 1856, 928, 29, 1216, 19 };
	struct fiolog_histograms *sum = malloc(sizeof(*sum));
	char *all = malloc(65536);
	int64_t row[3 + FIOLOG_HISTOGRAM];
	size_t i;

	assert_non_null(sum);
	assert_non_null(all);
	for (i = 0; i < sizeof(buckets) / sizeof(*buckets); i++) {
		int n = buckets[i];
		size_t end = histogram(all, 1000, 1, n, 7, 10);
		struct fiolog *log;

		end += histogram(all + end, 2000, 0, n, 5, FIOLOG_MAX_IOS);
		histogram(all + end, 1500, 1, n, 3, 0);
		log = text(all, 8192);
		assert_int_equal(fiolog_next_histogram(log, row), n);
		assert_int_equal(row[0], 1000);
		assert_int_equal(row[1], 1);
		assert_int_equal(row[2], 4096);
		assert_int_equal(row[3], 7);
		assert_int_equal(row[4], 0);
		assert_int_equal(row[2 + n], 10);
		assert_int_equal(fiolog_next_histogram(log, row), n);
		assert_int_equal(fiolog_next_histogram(log, row), n);
		assert_int_equal(fiolog_next_histogram(log, row), 0);
		fiolog_close(log);

		log = text(all, 8192);
		assert_int_equal(fiolog_sum_histograms(log, sum), 0);
		assert_int_equal(sum->lines, 3);
		assert_int_equal(sum->resets, 1);
		assert_int_equal(sum->of[1].lines, 2);
		assert_int_equal(sum->of[1].buckets, n);
		assert_int_equal(sum->of[1].start_msec, 1000);
		assert_int_equal(sum->of[1].end_msec, 1500);
		assert_int_equal(sum->of[1].counts[0], 10);
		assert_int_equal(sum->of[1].counts[n - 1], 10);
		assert_int_equal(sum->of[0].counts[n - 1], FIOLOG_MAX_IOS);
		fiolog_close(log);
	}
	free(all);
	free(sum);
}

static void check_no_histogram(const char *t, int what, unsigned int line)
{
	struct fiolog_histograms *sum = malloc(sizeof(*sum));
	struct fiolog *log = text(t, 16384);

	assert_non_null(sum);
	assert_int_equal(fiolog_sum_histograms(log, sum), -EBADMSG);
	assert_int_equal(fiolog_fault(log)->what, what);
	assert_int_equal(fiolog_fault(log)->line, line);
	fiolog_close(log);
	free(sum);
}

static void test_what_is_no_histogram(void **state)
{
	char *all = malloc(32768);
	size_t end;

	assert_non_null(all);
	end = histogram(all, 1, 1, 29, 1, 1);
	histogram(all + end, 1, 3, 29, 1, 1);
	check_no_histogram(all, FIOLOG_NO_LINE, 2);
	histogram(all + end, 1, 1, 29, -1, 1);
	check_no_histogram(all, FIOLOG_NO_LINE, 2);
	histogram(all + end, 1, 1, 29, 1, FIOLOG_MAX_IOS + 1);
	check_no_histogram(all, FIOLOG_NO_LINE, 2);
	histogram(all + end, 1, 1, 30, 1, 1);
	check_no_histogram(all, FIOLOG_NO_LINE, 2);
	histogram(all + end, 1, 1, 1857, 1, 1);
	check_no_histogram(all, FIOLOG_NO_LINE, 2);
	histogram(all + end, 1, 1, 4000, 1, 1);
	check_no_histogram(all, FIOLOG_NO_LINE, 2);
	histogram(all + end, 1, 1, 58, 1, 1);
	check_no_histogram(all, FIOLOG_OTHER_BUCKETS, 2);
	strcpy(all + end, "1, 1, 4096\n");
	check_no_histogram(all, FIOLOG_NO_LINE, 2);
	strcpy(all + end, "1, 1, 4096, 0, 0,\n");
	check_no_histogram(all, FIOLOG_NO_LINE, 2);
	free(all);
}

static void test_files(void **state)
{
	struct fiolog_row row;
	struct fiolog *log;
	FILE *file = tmpfile();
	char path[32];

	assert_int_equal(fiolog_open("/nonexistent/x.log", BLOCK, &log),
			 -ENOENT);
	assert_int_equal(fiolog_open("/", BLOCK, &log), 0);
	assert_int_equal(fiolog_rows(log, FIOLOG_ANY, &row, 1), -EISDIR);
	fiolog_close(log);

	assert_non_null(file);
	fputs("5, 6, 1, 0\n7, 8, 1, 0\n", file);
	fflush(file);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(file));
	assert_int_equal(fiolog_open(path, 16, &log), 0);
	assert_int_equal(fiolog_rows(log, FIOLOG_ANY, &row, 1), 1);
	assert_int_equal(fiolog_rows(log, FIOLOG_ANY, &row, 1), 1);
	assert_int_equal(row.msec, 7);
	assert_int_equal(fiolog_rows(log, FIOLOG_ANY, &row, 1), 0);
	fiolog_close(log);
	fclose(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_in_blocks_of_any_size),
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_what_is_no_line),
		cmocka_unit_test(test_a_maximum_below_its_mean),
		cmocka_unit_test(test_other_faults),
		cmocka_unit_test(test_a_long_text_is_cut),
		cmocka_unit_test(test_a_summary),
		cmocka_unit_test(test_time_goes_back),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_histograms),
		cmocka_unit_test(test_what_is_no_histogram),
		cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
