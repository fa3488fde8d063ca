// SPDX-License-Identifier: GPL-2.0-only
/* lab/model/config.c and what model.c takes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/model/model.h"
#include "tests/unit/model_device.h"

static char path[] = "/tmp/durabench-model-XXXXXX";

static int setup(void **state)
{
	int fd = mkstemp(path);

	if (fd >= 0)
		close(fd);
	return fd < 0;
}

static int teardown(void **state)
{
	return unlink(path);
}

/* What is said of a file with this text. */
static const char *error_of(const char *text)
{
	static struct config c;
	struct model *m = NULL;
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	memset(&c, 0, sizeof(c));
	if (!config_read(&c, path))
		m = model_new(&c, 1);
	if (m)
		model_free(m);
	assert_int_equal(!m, c.error[0] != '\0');
	return c.error;
}

#define NULL_MODEL "model = null\nsector = 4096 bytes\ncommand = 0 us\n"
#define GOOD	NULL_MODEL "capacity = 1048576 bytes\n"

static void assert_says(const char *text, const char *expected)
{
	const char *error = error_of(text);

	if (!strstr(error, expected))
		fail_msg("%s: said '%s', not '%s'", text, error, expected);
}

static void a_file_may_have_comments_and_spaces(void **state)
{
	assert_string_equal(error_of(GOOD), "");
	assert_string_equal(error_of("# a\n\n \tmodel=null # b\n"
				     "sector =4096   bytes\n"
				     "command = 1.5 us\n"
				     "capacity= 1048576 bytes"), "");
}

static void each_error_is_told(void **state)
{
	assert_says(GOOD "x", ":5: no = in it");
	assert_says(GOOD "a b = 1", ":5: one name has to stand before =");
	assert_says(GOOD "= 1", ":5: one name");
	assert_says(GOOD "a =", ":5: write it as NAME = VALUE");
	assert_says(GOOD "a = 1 us 2", ":5: write it as NAME = VALUE");
	assert_says(GOOD "model = hdd", ":5: model is given a second time");
	assert_says(GOOD "a = 1", "a: this model has no such parameter");
	assert_says("model = floppy", "model = floppy: it has to be hdd");
	assert_says("", "model is missing");
	assert_says(NULL_MODEL, "capacity is missing; it is in bytes");
	assert_says(NULL_MODEL "capacity = 1048576",
		    "capacity = 1048576 : it has to be in bytes");
	assert_says(NULL_MODEL "capacity = 1 MiB",
		    "capacity = 1 MiB: it has to be in bytes");
	assert_says(NULL_MODEL "capacity = much bytes",
		    "capacity = much: not a number");
	assert_says(NULL_MODEL "capacity = nan bytes", "not a number");
	assert_says(NULL_MODEL "capacity = 100 bytes",
		    "not within 1048576 and");
	assert_says("model = null\nsector = 1000 bytes\n"
		    "capacity = 1048576 bytes\n", "a power of two");
	/* Of a disk, with nothing of what it needs */
	assert_says("model = hdd\nsector = 4096 bytes\n"
		    "capacity = 1048576 bytes\n", "command is missing");
	assert_says("model = nvme\nsector = 4096 bytes\n"
		    "capacity = 1048576 bytes\n", "command is missing");
}

/* The heads would be there before they left. */
static void seeks_that_go_back_in_time_are_refused(void **state)
{
	static const char *const wrong[] = { "5000 us", "13600 us" };
	struct config c;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		c = (struct config){ 0 };
		assert_int_equal(config_read(&c, PROJECT_SOURCE_DIR
				"/lab/model/st20000nm007d.conf"), 0);
		assert_int_equal(config_set(&c, "seek_average", wrong[i]), 0);
		assert_null(model_new(&c, 1));
		assert_non_null(strstr(c.error, "between 1/3 and 11/15"));
	}
}

static void too_long_is_an_error_too(void **state)
{
	char text[2000] = GOOD;

	memset(text + strlen(text), 'a', 100);
	assert_says(strcat(text, " = 1"), "too long");
	memset(text, 'a', 1000);
	assert_says(text, ":1: too long");
	strcpy(text, GOOD "a = ");
	memset(text + strlen(text), '1', 100);
	assert_says(text, "too long");
}

static void a_missing_file_is_named(void **state)
{
	struct config c = { 0 };

	assert_true(config_read(&c, "/none/such") < 0);
	assert_string_equal(c.error, "/none/such: No such file or directory");
}

static void a_value_can_be_set_over_that_of_the_file(void **state)
{
	struct config c = { 0 };

	config_read(&c, MODELS "st20000nm007d.conf");
	assert_int_equal(config_set(&c, "speed", "5400"), 0);
	assert_true(config_number(&c, "speed", "rpm", 1, 10000) == 5400);
	assert_int_equal(config_set(&c, "speed", "5900 rpm"), 0);
	assert_true(config_number(&c, "speed", "rpm", 1, 10000) == 5900);
	assert_int_equal(config_set(&c, "speed", "90 Hz"), 0);
	config_number(&c, "speed", "rpm", 1, 10000);
	assert_string_equal(c.error, "speed = 90 Hz: it has to be in rpm");
}

static void each_file_that_is_shipped_is_good(void **state)
{
	model_free(model_of("st20000nm007d.conf", 1, NULL));
	model_free(model_of("nvme.conf", 1, NULL));
	model_free(model_of("null.conf", 1, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_may_have_comments_and_spaces),
		cmocka_unit_test(each_error_is_told),
		cmocka_unit_test(seeks_that_go_back_in_time_are_refused),
		cmocka_unit_test(too_long_is_an_error_too),
		cmocka_unit_test(a_missing_file_is_named),
		cmocka_unit_test(a_value_can_be_set_over_that_of_the_file),
		cmocka_unit_test(each_file_that_is_shipped_is_good),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
