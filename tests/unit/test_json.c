// SPDX-License-Identifier: GPL-2.0-only
/*
 * The JSON writer of the observer: any bytes in, valid JSON out.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "util/json.h"

struct output {
	struct json j;
	char *text;
	size_t length;
};

static void begin(struct output *o)
{
	memset(o, 0, sizeof(*o));
	o->j.out = open_memstream(&o->text, &o->length);
	assert_non_null(o->j.out);
}

static void check(struct output *o, const char *text)
{
	fclose(o->j.out);
	assert_string_equal(o->text, text);
	free(o->text);
}

static void check_string(const char *in, const char *out)
{
	struct output o;

	begin(&o);
	json_string(&o.j, in);
	check(&o, out);
}

static void test_structure(void **state)
{
	struct output o;

	begin(&o);
	json_open(&o.j, '{');
	json_key(&o.j, "a");
	json_open(&o.j, '[');
	json_close(&o.j, ']');
	json_key(&o.j, "b");
	json_open(&o.j, '[');
	json_uint(&o.j, UINT64_MAX);
	json_double(&o.j, 0.1);
	json_open(&o.j, '{');
	json_close(&o.j, '}');
	json_string(&o.j, "");
	json_null(&o.j);
	json_close(&o.j, ']');
	json_key(&o.j, "c");
	json_null(&o.j);
	json_close(&o.j, '}');
	check(&o, "{\"a\":[],\"b\":[18446744073709551615,0.1,{},\"\",null],\"c\":null}");
}

static void test_numbers(void **state)
{
	struct output o;

	begin(&o);
	json_open(&o.j, '[');
	json_double(&o.j, NAN);
	json_double(&o.j, INFINITY);
	json_double(&o.j, -INFINITY);
	json_double(&o.j, 0.0);
	json_double(&o.j, 2.0);
	json_double(&o.j, 123456.789012);
	json_close(&o.j, ']');
	check(&o, "[null,null,null,0,2,123456.789012]");
}

static void test_escapes(void **state)
{
	check_string("", "\"\"");
	check_string("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
	check_string("\t\n\x01\x1f\x7f", "\"\\u0009\\u000a\\u0001\\u001f\x7f\"");
	check_string("grün \xe2\x82\xac \xf0\x9f\x92\xbe",
		      "\"grün \xe2\x82\xac \xf0\x9f\x92\xbe\"");
}

/* The examples of tables 3-8 to 3-11 of the Unicode Standard 15.0. */
static void test_broken_utf8(void **state)
{
#define U "\\ufffd"
	check_string("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82" "A",
		      "\"" U U U U U U U U "A\"");
	check_string("\xed\xa0\x80\xed\xbf\xbf\xed\xaf" "A",
		      "\"" U U U U U U U U "A\"");
	check_string("\xf4\x91\x92\x93\xff" "A\x80\xbf" "B",
		      "\"" U U U U U "A" U U "B\"");
	check_string("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf" "A",
		      "\"" U U U U "A\"");
	/* the end of the string ends a character */
	check_string("\xc3", "\"" U "\"");
	check_string("\xf0\x9f\x92", "\"" U "\"");
#undef U
}

static size_t encode(uint32_t c, char *s)
{
	if (c < 0x80) {
		s[0] = c;
		return 1;
	} else if (c < 0x800) {
		s[0] = 0xc0 | c >> 6;
		s[1] = 0x80 | (c & 0x3f);
		return 2;
	} else if (c < 0x10000) {
		s[0] = 0xe0 | c >> 12;
		s[1] = 0x80 | (c >> 6 & 0x3f);
		s[2] = 0x80 | (c & 0x3f);
		return 3;
	}
	s[0] = 0xf0 | c >> 18;
	s[1] = 0x80 | (c >> 12 & 0x3f);
	s[2] = 0x80 | (c >> 6 & 0x3f);
	s[3] = 0x80 | (c & 0x3f);
	return 4;
}

/* All there are pass as they are; surrogates and what is above do not. */
static void test_every_character(void **state)
{
	char in[8], out[16];
	struct output o;
	uint32_t c;

	for (c = 0x20; c < 0x110100; c++) {
		in[encode(c, in)] = '\0';
		begin(&o);
		json_string(&o.j, in);
		fclose(o.j.out);
		if (c == '"' || c == '\\')
			snprintf(out, sizeof(out), "\"\\%c\"", (char)c);
		else
			snprintf(out, sizeof(out), "\"%s\"", in);
		if ((c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
			assert_int_equal(strncmp(o.text, "\"\\ufffd", 7), 0);
		else
			assert_string_equal(o.text, out);
		free(o.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_structure),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_escapes),
		cmocka_unit_test(test_broken_utf8),
		cmocka_unit_test(test_every_character),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
