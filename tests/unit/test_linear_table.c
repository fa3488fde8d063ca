// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/linear-table.c: what it reads, what it refuses and how, which
 * devices it opens, and where it finds a byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engines/linear-table.h"

#define SECTOR 512ULL

static int read_text(struct linear_table *t, const char *text, size_t len)
{
	FILE *in = fmemopen((void *)text, len, "r");
	int ret;

	assert_non_null(in);
	*t = (struct linear_table){ .name = "t" };
	ret = linear_table_read(t, in);
	fclose(in);
	return ret;
}

static void assert_reads(struct linear_table *t, const char *text)
{
	if (read_text(t, text, strlen(text)))
		fail_msg("%s", t->error);
}

static void assert_target(const struct linear_table *t, unsigned int i,
			  uint64_t start, uint64_t length, int device,
			  uint64_t offset)
{
	assert_true(i < t->nr_targets);
	assert_int_equal(t->targets[i].start, start * SECTOR);
	assert_int_equal(t->targets[i].length, length * SECTOR);
	assert_int_equal(t->targets[i].offset, offset * SECTOR);
	assert_int_equal(t->targets[i].device, device);
}

static void reads_what_dmsetup_prints(void **state)
{
	struct linear_table t;

	assert_reads(&t, "0 8000 linear 8:2 0\n"
			 "8000 8000 linear 8:2 16384\n"
			 "16000 1 linear 259:6 32768\n"
			 "16001 9 zero \n");
	assert_int_equal(t.nr_targets, 4);
	assert_target(&t, 0, 0, 8000, 0, 0);
	assert_target(&t, 1, 8000, 8000, 0, 16384);
	assert_target(&t, 2, 16000, 1, 1, 32768);
	assert_target(&t, 3, 16001, 9, LINEAR_NO_DEVICE, 0);
	assert_int_equal(t.size, 16010 * SECTOR);
	assert_int_equal(t.nr_devices, 2);
	assert_string_equal(t.devices[0].name, "8:2");
	assert_string_equal(t.devices[1].name, "259:6");
	linear_table_free(&t);
}

static void reads_comments_blanks_and_a_last_line_without_newline(void **state)
{
	struct linear_table t;

	assert_reads(&t, "# a comment\n"
			 "\n"
			 " \t \r\n"
			 "\t0  \t 8 linear\t/dev/a  0  \r\n"
			 "  # another\n"
			 "8 8 linear /dev/a 8");
	assert_int_equal(t.nr_targets, 2);
	assert_target(&t, 0, 0, 8, 0, 0);
	assert_target(&t, 1, 8, 8, 0, 8);
	assert_int_equal(t.targets[0].line, 4);
	assert_int_equal(t.targets[1].line, 6);
	assert_int_equal(t.nr_devices, 1);
	linear_table_free(&t);
}

static void reads_the_largest_device(void **state)
{
	struct linear_table t;

	assert_reads(&t, "0 18014398509481983 linear a 18014398509481983\n");
	assert_int_equal(t.size, INT64_MAX & ~511ULL);
	linear_table_free(&t);
}

static const struct {
	const char *text, *error;
} bad[] = {
	{ "# nothing\n\n",
	  "t:2: the table ends without a linear target: start length linear device offset" },
	{ "0 8 zero\n",
	  "t:1: the table ends without a linear target: start length linear device offset" },
	{ "0\n",
	  "t:1: is not a target; that is: start length linear device offset (numbers in sectors of 512 bytes)" },
	{ "0 8\n",
	  "t:1: is not a target; that is: start length linear device offset (numbers in sectors of 512 bytes)" },
	{ "0 8 linear\n",
	  "t:1: \"linear\" is followed by a device and an offset, and nothing else" },
	{ "0 8 linear a\n",
	  "t:1: \"linear\" is followed by a device and an offset, and nothing else" },
	{ "0 8 linear a 0 1\n",
	  "t:1: \"linear\" is followed by a device and an offset, and nothing else" },
	{ "0 8 linear a b c 0\n",
	  "t:1: \"linear\" is followed by a device and an offset, and nothing else" },
	{ "0 8 zero a\n",
	  "t:1: \"zero\" is followed by nothing, not by \"a\"" },
	{ "x 8 linear a 0\n",
	  "t:1: start \"x\" is not a number of sectors" },
	{ "0 8k linear a 0\n",
	  "t:1: length \"8k\" is not a number of sectors" },
	{ "0 0x8 linear a 0\n",
	  "t:1: length \"0x8\" is not a number of sectors" },
	{ "0 8 linear a -1\n",
	  "t:1: offset \"-1\" is not a number of sectors" },
	{ "0 +8 linear a 0\n",
	  "t:1: length \"+8\" is not a number of sectors" },
	{ "0 18446744073709551616 linear a 0\n",
	  "t:1: length \"18446744073709551616\" is not a number of sectors" },
	{ "0 18014398509481984 linear a 0\n",
	  "t:1: length \"18014398509481984\" is not a number of sectors" },
	{ "0 8 linear a 18014398509481984\n",
	  "t:1: offset \"18014398509481984\" is not a number of sectors" },
	{ "0 8 linear a 0\n8 18014398509481983 linear a 0\n",
	  "t:2: ends beyond the largest device, which has 18014398509481983 sectors" },
	{ "0 0 linear a 0\n",
	  "t:1: has a length of 0; a target has at least one sector" },
	{ "8 8 linear a 0\n",
	  "t:1: starts at sector 8, not at 0; the first target starts at 0, the others where the one before ends" },
	{ "0 8 linear a 0\n# gap\n9 8 linear a 0\n",
	  "t:3: starts at sector 9, not at 8; the first target starts at 0, the others where the one before ends" },
	{ "0 8 linear a 0\n7 8 linear a 0\n",
	  "t:2: starts at sector 7, not at 8; the first target starts at 0, the others where the one before ends" },
	{ "0 8 linear a 0\n8 8 crypt aes-xts-plain64 0 0 a 0\n",
	  "t:2: target type \"crypt\" is not supported; linear and zero are" },
	{ "name: 0 8 linear a 0\n",
	  "t:1: start \"name:\" is not a number of sectors" },
};

static void refuses_each_mistake_with_its_line(void **state)
{
	struct linear_table t;
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(read_text(&t, bad[i].text,
					   strlen(bad[i].text)), -EINVAL);
		assert_string_equal(t.error, bad[i].error);
		linear_table_free(&t);
	}
}

static void refuses_what_is_not_text(void **state)
{
	struct linear_table t;
	FILE *in;

	assert_int_equal(read_text(&t, "0 8 linear a 0\0 \n", 17), -EINVAL);
	assert_string_equal(t.error,
			    "t:1: has a zero byte: this is not a text file");
	linear_table_free(&t);

	in = fopen("/", "r");
	assert_non_null(in);
	t = (struct linear_table){ .name = "/" };
	assert_int_equal(linear_table_read(&t, in), -EISDIR);
	assert_string_equal(t.error, "/:1: Is a directory");
	fclose(in);
	linear_table_free(&t);
}

/* Any text is read or refused, and what is read has no gaps. */
static void survives_random_text(void **state)
{
	static const char *const words[] = {
		"0", "1", "8", "16", "linear", "zero", "a", "b", "#", "\n",
		"\n", "\t", " ", "-1", "18014398509481983", "\0", "\xff", "%s",
		"0 8 linear a 0\n", "8 8 linear b 8\n",
	};
	unsigned int accepted = 0, round, i;
	struct linear_table t;
	char text[256];
	size_t len;

	srandom(1);
	for (round = 0; round < 20000; round++) {
		for (len = 0; len < sizeof(text) - 32; ) {
			const char *word = words[random() % (sizeof(words) /
							     sizeof(words[0]))];
			size_t n = *word ? strlen(word) : 1;

			memcpy(text + len, word, n);
			len += n;
			text[len++] = ' ';
			if (random() % 8 == 0)
				break;
		}
		if (!read_text(&t, text, len)) {
			uint64_t end = 0;

			accepted++;
			for (i = 0; i < t.nr_targets; i++) {
				assert_int_equal(t.targets[i].start, end);
				end += t.targets[i].length;
			}
			assert_int_equal(t.size, end);
		} else {
			assert_true(*t.error);
		}
		linear_table_free(&t);
	}
	assert_true(accepted > 100);
}

/* Every byte position around every border, against a map made by walking. */
static void finds_every_byte(void **state)
{
	static const unsigned int lengths[] = { 1, 7, 2, 1, 1, 30, 3 };
	struct linear_table t = { .name = "t" };
	unsigned int nr, i, walk;
	uint64_t start, pos;

	for (nr = 1; nr <= sizeof(lengths) / sizeof(lengths[0]); nr++) {
		t = (struct linear_table){ .name = "t" };
		for (i = 0, start = 0; i < nr; i++) {
			char params[] = "dev 0";

			assert_int_equal(linear_table_add(&t, start, lengths[i],
							  "linear", params), 0);
			start += lengths[i];
		}
		for (pos = 0, walk = 0; pos < t.size; pos++) {
			if (pos >= t.targets[walk].start + t.targets[walk].length)
				walk++;
			assert_ptr_equal(linear_table_find(&t, pos),
					 &t.targets[walk]);
		}
		linear_table_free(&t);
	}
}

static void read_and_find(unsigned int nr_devices)
{
	const unsigned int nr = 65536;
	struct linear_table t;
	size_t len = 0;
	char *text;
	unsigned int i;

	text = malloc(nr * 64UL);
	assert_non_null(text);
	for (i = 0; i < nr; i++)
		len += sprintf(text + len, "%u 3 linear dev%u %u\n", i * 3,
			       i % nr_devices, i * 16);
	assert_int_equal(read_text(&t, text, len), 0);
	free(text);
	assert_int_equal(t.nr_targets, nr);
	assert_int_equal(t.nr_devices, nr_devices);
	for (i = 0; i < nr; i++) {
		uint64_t first = i * 3ULL * SECTOR, last = first + 3 * SECTOR - 1;

		assert_ptr_equal(linear_table_find(&t, first), &t.targets[i]);
		assert_ptr_equal(linear_table_find(&t, last), &t.targets[i]);
		assert_int_equal(t.targets[i].device, i % nr_devices);
	}
	linear_table_free(&t);
}

static void reads_and_finds_in_a_long_table(void **state)
{
	read_and_find(1);
	read_and_find(5);
	read_and_find(65536);
}

/* ---- devices ------------------------------------------------------------ */

static int truncate_new(const char *name, off_t size)
{
	int fd = creat(name, 0600);

	if (fd < 0)
		return -1;
	close(fd);
	return truncate(name, size);
}

/* A folder with the files a (64 sectors), b (32) and others that can't do. */
static int make_folder(void **state)
{
	static char folder[] = "/tmp/test_linear_table.XXXXXX";

	if (!mkdtemp(folder) || chdir(folder) ||
	    truncate_new("a", 64 * SECTOR) || truncate_new("b", 32 * SECTOR))
		return -1;
	*state = folder;
	return symlink("a", "link") || link("a", "hard") ||
		mkdir("folder", 0700) || mkfifo("fifo", 0600);
}

static int remove_folder(void **state)
{
	static const char *const names[] = { "a", "b", "link", "hard", "fifo" };
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(names[i]);
	rmdir("folder");
	return chdir("/") || rmdir(*state);
}

static unsigned int open_descriptors(void)
{
	unsigned int n = 0;
	int fd;

	for (fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void opens_each_device_once(void **state)
{
	unsigned int before = open_descriptors();
	struct linear_table t;

	assert_reads(&t, "0 8 linear link 8\n"
			 "8 8 linear b 0\n"
			 "16 8 linear ./a 40\n"
			 "24 8 linear hard 0\n"
			 "32 8 zero\n"
			 "40 32 linear ./b 0\n");
	assert_int_equal(t.nr_devices, 5);
	assert_int_equal(linear_table_open(&t, O_RDWR), 0);
	assert_int_equal(t.nr_devices, 2);
	assert_int_equal(open_descriptors(), before + 2);

	assert_target(&t, 0, 0, 8, 0, 8);
	assert_target(&t, 1, 8, 8, 1, 0);
	assert_target(&t, 2, 16, 8, 0, 40);
	assert_target(&t, 3, 24, 8, 0, 0);
	assert_target(&t, 4, 32, 8, LINEAR_NO_DEVICE, 0);
	assert_target(&t, 5, 40, 32, 1, 0);

	assert_string_equal(t.devices[0].name, "link");
	assert_int_equal(t.devices[0].start, 0);
	assert_int_equal(t.devices[0].end, 48 * SECTOR);
	assert_int_equal(t.devices[0].size, 64 * SECTOR);
	assert_false(t.devices[0].block);
	assert_int_equal(t.devices[1].start, 0);
	assert_int_equal(t.devices[1].end, 32 * SECTOR);

	linear_table_free(&t);
	assert_int_equal(open_descriptors(), before);
}

/* Each by two names, in another order. */
static void opens_many_devices(void **state)
{
	const unsigned int nr = 200;
	unsigned int before = open_descriptors(), i;
	char text[64], name[32];
	struct linear_table t;
	FILE *in;

	in = tmpfile();
	assert_non_null(in);
	for (i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "many%u", i);
		assert_int_equal(truncate_new(name, 8 * SECTOR), 0);
		fprintf(in, "%u 8 linear many%u 0\n", i * 8, i);
	}
	for (; i < 2 * nr; i++)
		fprintf(in, "%u 8 linear ./many%u 0\n", i * 8, 2 * nr - 1 - i);
	rewind(in);
	t = (struct linear_table){ .name = "t" };
	assert_int_equal(linear_table_read(&t, in), 0);
	fclose(in);
	assert_int_equal(t.nr_devices, 2 * nr);

	assert_int_equal(linear_table_open(&t, O_RDWR), 0);
	assert_int_equal(t.nr_devices, nr);
	assert_int_equal(open_descriptors(), before + nr);
	for (i = 0; i < nr; i++) {
		snprintf(text, sizeof(text), "many%u", i);
		assert_string_equal(t.devices[i].name, text);
		assert_int_equal(t.targets[i].device, i);
		assert_int_equal(t.targets[2 * nr - 1 - i].device, i);
		unlink(text);
	}
	linear_table_free(&t);
	assert_int_equal(open_descriptors(), before);
}

static const struct {
	const char *text, *error;
	int ret;
} bad_devices[] = {
	{ "0 8 linear a 0\n8 8 linear none 0\n", "t:2: device none: No such file or directory; name a block device or a regular file that is there", -ENOENT },
	{ "0 8 linear folder 0\n", "t:1: folder is neither a block device nor a regular file", -ENOTBLK },
	{ "0 8 linear fifo 0\n", "t:1: fifo is neither a block device nor a regular file", -ENOTBLK },
	{ "0 8 linear /dev/null 0\n", "t:1: /dev/null is neither a block device nor a regular file", -ENOTBLK },
	{ "0 8 linear 4095:77 0\n", "t:1: 4095:77 is not the number of a block device here; see lsblk", -ENODEV },
	{ "0 64 linear a 0\n64 8 linear a 57\n", "t:2: ends at sector 65 of a, which has 64; use a larger device or a shorter table", -ERANGE },
	{ "0 8 linear a 0\n8 33 linear b 0\n", "t:2: ends at sector 33 of b, which has 32; use a larger device or a shorter table", -ERANGE },
	{ "0 8 linear a 18014398509481983\n", "t:1: ends at sector 18014398509481991 of a, which has 64; use a larger device or a shorter table", -ERANGE },
};

static void refuses_each_device_with_its_line(void **state)
{
	unsigned int before = open_descriptors(), i;
	struct linear_table t;

	for (i = 0; i < sizeof(bad_devices) / sizeof(bad_devices[0]); i++) {
		assert_reads(&t, bad_devices[i].text);
		assert_int_equal(linear_table_open(&t, O_RDWR),
				 bad_devices[i].ret);
		assert_string_equal(t.error, bad_devices[i].error);
		linear_table_free(&t);
		assert_int_equal(open_descriptors(), before);
	}
}

static void says_what_open_says(void **state)
{
	struct linear_table t;

	/* Not by mode bits, which root passes by. */
	assert_reads(&t, "0 8 linear a 0\n");
	assert_int_equal(linear_table_open(&t, O_RDONLY | O_DIRECTORY),
			 -ENOTDIR);
	assert_string_equal(t.error, "t:1: open a: Not a directory");
	linear_table_free(&t);
}

int main(void)
{
	const struct CMUnitTest text_tests[] = {
		cmocka_unit_test(reads_what_dmsetup_prints),
		cmocka_unit_test(reads_comments_blanks_and_a_last_line_without_newline),
		cmocka_unit_test(reads_the_largest_device),
		cmocka_unit_test(refuses_each_mistake_with_its_line),
		cmocka_unit_test(refuses_what_is_not_text),
		cmocka_unit_test(survives_random_text),
		cmocka_unit_test(finds_every_byte),
		cmocka_unit_test(reads_and_finds_in_a_long_table),
	};
	const struct CMUnitTest device_tests[] = {
		cmocka_unit_test(opens_each_device_once),
		cmocka_unit_test(opens_many_devices),
		cmocka_unit_test(refuses_each_device_with_its_line),
		cmocka_unit_test(says_what_open_says),
	};

	return cmocka_run_group_tests_name("text", text_tests, NULL, NULL) +
		cmocka_run_group_tests_name("devices", device_tests,
					    make_folder, remove_folder);
}
