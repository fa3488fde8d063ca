// SPDX-License-Identifier: GPL-2.0-only
/*
 * Histograms are cut out of JSON+, of what fio prints and of nothing else.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "util/fiojson.h"

struct result {
	char *rest;
	size_t length;
	struct fiojson_bins bins;
};

/* Text and arrays are no larger than they must be, so that a sanitizer sees
 * what is read and written beyond. */
static int cut(struct result *r, const char *text)
{
	size_t length = strlen(text), most = length / 4 + 1;
	char *copy = malloc(length);
	int found;

	r->rest = malloc(length);
	r->bins.buckets = calloc(most, sizeof(uint64_t));
	r->bins.counts = calloc(most, sizeof(uint64_t));
	r->bins.reached = calloc(most, sizeof(uint64_t));
	r->bins.ends = calloc(most, sizeof(uint32_t));
	assert_true(copy && r->rest && r->bins.buckets && r->bins.counts &&
		    r->bins.reached && r->bins.ends);
	memcpy(copy, text, length);
	found = fiojson_cut(copy, length, r->rest, &r->length, &r->bins);
	free(copy);
	return found;
}

static void release(struct result *r)
{
	free(r->rest);
	free(r->bins.buckets);
	free(r->bins.counts);
	free(r->bins.reached);
	free(r->bins.ends);
}

static void check_rest(const char *text, int found, const char *rest)
{
	struct result r;

	assert_int_equal(cut(&r, text), found);
	assert_int_equal(r.length, strlen(rest));
	assert_memory_equal(r.rest, rest, r.length);
	release(&r);
}

static void test_histograms(void **state)
{
	static const uint64_t buckets[] = { 1, 7, 2 }, counts[] = { 5, 6, 9 };
	static const uint64_t reached[] = { 5, 11, 9 };
	static const uint32_t ends[] = { 2, 2, 3 };
	struct result r;

	assert_int_equal(cut(&r, "\n{\"a\": [{\"bins\" : {\n\t\"1\": 5,\r\n"
				 "          \"5\" : 0, \"7\":6 } },\n"
				 "{\"bins\": {\"0\": 0}}], \"bins\":{\"2\":9}}\n"),
			 3);
	assert_memory_equal(r.bins.ends, ends, sizeof(ends));
	assert_memory_equal(r.bins.buckets, buckets, sizeof(buckets));
	assert_memory_equal(r.bins.counts, counts, sizeof(counts));
	assert_memory_equal(r.bins.reached, reached, sizeof(reached));
	release(&r);
}

static void test_what_is_left(void **state)
{
	check_rest("{}", 0, "{}");
	check_rest(" {\"a\": [1, -2.5, null]}\n", 0,
		   " {\"a\": [1, -2.5, null]}\n");
	check_rest("{\"bins\": {\"1\": 2}, \"N\": 2}", 1,
		   "{\"bins\": 0, \"N\": 2}");
	check_rest("{\"a\":{\"bins\":{\"1\":2}},\"b\":{\"bins\":{\"1\":2}}}", 2,
		   "{\"a\":{\"bins\":0},\"b\":{\"bins\":1}}");
	check_rest("{\"bins\": {}}", 0, "{\"bins\": {}}");
	/* Not a key, or not of that name */
	check_rest("{\"a\": \"bins\", \"b\": [\"bins\"], \"binsy\": {}}", 0,
		   "{\"a\": \"bins\", \"b\": [\"bins\"], \"binsy\": {}}");
	check_rest("{\"a\": \"\\\"bins\\\": {}, \\\\\"}", 0,
		   "{\"a\": \"\\\"bins\\\": {}, \\\\\"}");
	/* The same key in other objects */
	check_rest("{\"a\": {\"a\": 1}, \"b\": {\"a\": 1}}", 0,
		   "{\"a\": {\"a\": 1}, \"b\": {\"a\": 1}}");
	/* What is no JSON stays none. */
	check_rest("{\"a\" : x \"bins\" : {\"1\":2}]", 0,
		   "{\"a\" : x \"bins\" : {\"1\":2}]");
}

static void test_other_text_is_not_cut(void **state)
{
	static const char *const texts[] = {
		"", " ", "[]", "x{}", "{}x", "{}{}", "{", "{\"", "{\"a", "{\"a\"",
		"{\"a\\", "{\"a\": \"b", "{\"a\": \"b\\", "{\"a\": \"b\tc\"}",
		"{\"a\\n\": 1}", "{\"a\": 1, \"a\": 1}", "{\"a\" 1}",
		"{\"bins\": {\"1\": 2}, \"bins\": {\"1\": 2}}",
		"{\"bins\"", "{\"bins\":", "{\"bins\": 0}", "{\"bins\": [1]}",
		"{\"bins\": {", "{\"bins\": {\"1", "{\"bins\": {\"1\"",
		"{\"bins\": {\"1\":", "{\"bins\": {\"1\": 2",
		"{\"bins\": {\"1\": 2,", "{\"bins\": {\"1\": 2}",
		"{\"bins\": {\"1\": 2,}}", "{\"bins\": {\"1\": -2}}",
		"{\"bins\": {\"1\": 2.0}}", "{\"bins\": {\"1\": 2e3}}",
		"{\"bins\": {\"1\": \"2\"}}", "{\"bins\": {\"1\": 02}}",
		"{\"bins\": {\"01\": 2}}", "{\"bins\": {\"x\": 2}}",
		"{\"bins\": {\" 1\": 2}}", "{\"bins\": {\"\": 2}}",
		"{\"bins\": {\"2\": 1, \"1\": 1}}",
		"{\"bins\": {\"1\": 1, \"1\": 1}}",
		"{\"bins\": {\"1234567890123456789\": 1}}",
		"{\"bins\": {\"1\": 1234567890123456789}}",
		"{\"bins\": {\"FIO_IO_U_PLAT_BITS\": 6}}",
	};
	struct result r;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		if (cut(&r, texts[i]) != -EBADMSG)
			fail_msg("cut: %s", texts[i]);
		release(&r);
	}
}

static void test_too_much(void **state)
{
	char *text = malloc(100000), *p;
	struct result r;
	int i;

	assert_non_null(text);
	/* Samples that can't be counted */
	p = text + sprintf(text, "{\"bins\": {\"0\": 1");
	for (i = 1; i < 20; i++)
		p += sprintf(p, ", \"%d\": 999999999999999999", i);
	strcpy(p, "}}");
	assert_int_equal(cut(&r, text), -EBADMSG);
	release(&r);

	/* Keys in one object */
	p = text + sprintf(text, "{\"k\": 1");
	for (i = 0; i < 1000; i++)
		p += sprintf(p, ", \"k%d\": 1", i);
	strcpy(p, "}");
	assert_int_equal(cut(&r, text), -EBADMSG);
	release(&r);

	/* Depth */
	memset(text, '[', 100000);
	memcpy(text, "{\"a\":", 5);
	text[1000] = '\0';
	assert_int_equal(cut(&r, text), -EBADMSG);
	release(&r);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_histograms),
		cmocka_unit_test(test_what_is_left),
		cmocka_unit_test(test_other_text_is_not_cut),
		cmocka_unit_test(test_too_much),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
