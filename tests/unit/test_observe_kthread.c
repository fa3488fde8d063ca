// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPU time of kswapd and of the kworkers that write back, in a /proc made
 * for the purpose.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "observe/kthread.h"
#include "observe_tree.h"

#define BEGIN	5000	/* ticks since boot when the observer starts */

struct fixture {
	struct tree proc;
	struct kthreads k;
};

static void thread(const struct tree *proc, int pid, const char *name,
		   unsigned int ticks, unsigned int born)
{
	char path[32], text[512];

	snprintf(path, sizeof(path), "%d/stat", pid);
	snprintf(text, sizeof(text),
		 "%d (%s) I 2 0 0 0 -1 69238880 0 0 0 0 %u %u 0 0 20 0 1 0 %u 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
		 pid, name, ticks / 3, ticks - ticks / 3, born);
	tree_write(proc, path, text);
}

static void children(const struct tree *proc, const char *pids)
{
	tree_write(proc, "2/task/2/children", pids);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	tree_make(&f->proc);
	f->k.procfd = f->proc.fd;
	f->k.begin = BEGIN;
	thread(&f->proc, 2, "kthreadd", 0, 0);
	thread(&f->proc, 9, "kworker/0:1-events", 70, 10);
	thread(&f->proc, 33, "kworker/u8:1-flush-254:0", 100, 10);
	thread(&f->proc, 34, "kworker/R-writeback", 0, 10);
	thread(&f->proc, 45, "kswapd0", 200, 10);
	children(&f->proc, "9 33 34 45 ");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	kthreads_free(&f->k);
	tree_remove(&f->proc);
	free(f);
	return 0;
}

static void check(const struct fixture *f, unsigned int kswapd,
		   unsigned int flusher)
{
	assert_int_equal(f->k.kswapd, kswapd);
	assert_int_equal(f->k.flusher, flusher);
}

static void test_counts_from_the_beginning(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(kthreads_list(&f->k), 0);
	assert_true(f->k.has_kswapd);
	assert_true(f->k.has_flusher);
	kthreads_read(&f->k);
	check(f, 0, 0);

	thread(&f->proc, 9, "kworker/0:1-events", 99, 10);
	thread(&f->proc, 33, "kworker/u8:1+flush-254:0", 107, 10);
	thread(&f->proc, 45, "kswapd0", 203, 10);
	kthreads_read(&f->k);
	check(f, 3, 7);
}

static void test_only_writeback_counts(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(kthreads_list(&f->k), 0);
	thread(&f->proc, 33, "kworker/u8:1+loop0", 110, 10);
	kthreads_read(&f->k);
	check(f, 0, 0);
	thread(&f->proc, 33, "kworker/u8:1-xfs-flush-sda", 120, 10);
	kthreads_read(&f->k);
	check(f, 0, 0);
	thread(&f->proc, 33, "kworker/u8:1", 130, 10);
	kthreads_read(&f->k);
	check(f, 0, 0);
	thread(&f->proc, 33, "kworker/u8:1-flush-btrfs-1", 135, 10);
	kthreads_read(&f->k);
	check(f, 0, 5);
	thread(&f->proc, 33, "kworker/u8:1-writeback", 136, 10);
	kthreads_read(&f->k);
	check(f, 0, 6);
}

static void test_new_worker_counts_from_birth(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(kthreads_list(&f->k), 0);
	thread(&f->proc, 12, "kworker/u8:5+flush-7:0", 4, BEGIN + 20);
	children(&f->proc, "9 33 34 45 12 ");
	kthreads_read(&f->k);
	check(f, 0, 0);
	assert_int_equal(kthreads_list(&f->k), 0);
	check(f, 0, 4);
	kthreads_read(&f->k);
	check(f, 0, 4);
}

/* The kernel may leave one out of a list that changes, or name it twice. */
static void test_unsteady_list(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(kthreads_list(&f->k), 0);
	children(&f->proc, "9 45 ");
	assert_int_equal(kthreads_list(&f->k), 0);
	thread(&f->proc, 12, "kworker/u8:5+flush-7:0", 4, BEGIN + 20);
	children(&f->proc, "9 33 12 34 45 33 12 ");
	assert_int_equal(kthreads_list(&f->k), 0);
	/* not the 100 ticks that it had before the run */
	check(f, 0, 4);
	thread(&f->proc, 33, "kworker/u8:1-flush-254:0", 101, 10);
	kthreads_read(&f->k);
	check(f, 0, 5);
}

static void test_ends_and_pid_used_again(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(kthreads_list(&f->k), 0);
	unlinkat(f->proc.fd, "45/stat", 0);
	thread(&f->proc, 33, "kworker/u8:7+flush-7:0", 1000, BEGIN + 9);
	kthreads_read(&f->k);
	check(f, 0, 0);
	/* it is still listed, so its stat is what tells */
	assert_int_equal(kthreads_list(&f->k), 0);
	kthreads_read(&f->k);
	check(f, 0, 0);
}

static void test_names_with_anything(void **state)
{
	struct fixture *f = *state;

	thread(&f->proc, 50, "odd) R 1 (kswapd", 5, 10);
	children(&f->proc, "9 33 45 50 ");
	assert_int_equal(kthreads_list(&f->k), 0);
	thread(&f->proc, 50, "odd) R 1 (kswapd", 50, 10);
	thread(&f->proc, 45, "kswapd0", 201, 10);
	kthreads_read(&f->k);
	check(f, 1, 0);
}

static void test_kernel_that_does_not_describe(void **state)
{
	struct fixture *f = *state;

	thread(&f->proc, 9, "kworker/0:1", 70, 10);
	thread(&f->proc, 33, "kworker/u8:1", 100, 10);
	assert_int_equal(kthreads_list(&f->k), 0);
	assert_true(f->k.has_kswapd);
	assert_false(f->k.has_flusher);
}

/* In a pid namespace process 2 is anything, or nothing. */
static void test_no_kernel_threads(void **state)
{
	struct fixture *f = *state;

	tree_write(&f->proc, "2/stat",
		   "2 (kthreadd) S 1 2 2 0 -1 4194560 0 0 0 0 1 1 0 0 20 0 1 0 10 0\n");
	assert_int_equal(kthreads_list(&f->k), -ENOENT);
	unlinkat(f->proc.fd, "2/stat", 0);
	assert_int_equal(kthreads_list(&f->k), -ENOENT);
	assert_false(f->k.has_kswapd);
	assert_false(f->k.has_flusher);
	kthreads_read(&f->k);
	check(f, 0, 0);
}

static void test_kernel_without_children(void **state)
{
	struct fixture *f = *state;

	unlinkat(f->proc.fd, "2/task/2/children", 0);
	assert_int_equal(kthreads_list(&f->k), -ENOENT);
}

static void test_long_list(void **state)
{
	struct fixture *f = *state;
	size_t length = 0, size = 8 * 6000;
	char *pids = malloc(size);
	int i;

	/* most have gone since: no stat */
	for (i = 0; i < 6000; i++)
		length += snprintf(pids + length, size - length, "%d ",
				   100000 + i);
	snprintf(pids + length, size - length, "45 ");
	children(&f->proc, pids);
	free(pids);
	assert_int_equal(kthreads_list(&f->k), 0);
	assert_int_equal(f->k.nr, 1);
	assert_true(f->k.has_kswapd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_counts_from_the_beginning),
		TEST(test_only_writeback_counts),
		TEST(test_new_worker_counts_from_birth),
		TEST(test_unsteady_list),
		TEST(test_ends_and_pid_used_again),
		TEST(test_names_with_anything),
		TEST(test_kernel_that_does_not_describe),
		TEST(test_no_kernel_threads),
		TEST(test_kernel_without_children),
		TEST(test_long_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
