// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/group-commit.c over a device that is two arrays: what is written is
 * in one of them, and durable what a flush has copied to the other.
 *
 * The jobs are processes, some of which are killed; under ThreadSanitizer they
 * are threads. In how many orders they come is chance here: all of them are
 * tried in tests/models/group_commit.pml.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines/group-commit.h"

#define JOBS		256
#define ROUNDS		25
#define FLUSH_US	200
#define TIME_LIMIT_S	60
#define GROUPS		4096	/* what group-commit.c has at most */

static struct device {
	atomic_uint written[JOBS], durable[JOBS];
	atomic_uint flushes, commits, led, lost;
	atomic_int flushing;	/* process that does so */
} *device;

static int flush(void *data)
{
	unsigned int before[JOBS], i;

	atomic_fetch_add(&device->flushes, 1);
	device->flushing = getpid();
	for (i = 0; i < JOBS; i++)
		before[i] = device->written[i];
	usleep(FLUSH_US);
	for (i = 0; i < JOBS; i++)
		if (device->durable[i] < before[i])
			device->durable[i] = before[i];
	device->flushing = 0;
	return 0;
}

static int flush_badly(void *data)
{
	return *(int *)data;
}

static int setup(void **state)
{
	device = mmap(NULL, sizeof(*device), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	alarm(TIME_LIMIT_S);
	return device == MAP_FAILED;
}

static int teardown(void **state)
{
	alarm(0);
	return munmap(device, sizeof(*device));
}

/* Each test has a device of its own. */
static dev_t new_dev(void)
{
	static dev_t last;

	return ++last;
}

/* Write and commit, and look whether that is durable then. */
static void write_and_commit(dev_t dev, unsigned int job)
{
	struct group_commit c = { 0 };
	unsigned int round;

	if (group_commit_join(&c, dev, 0, 0))
		abort();
	for (round = 1; round <= ROUNDS; round++) {
		device->written[job] = round;
		if (group_commit(&c, flush, NULL) ||
		    device->durable[job] < round)
			atomic_fetch_add(&device->lost, 1);
		atomic_fetch_add(&device->commits, 1);
		atomic_fetch_add(&device->led, c.led);
	}
}

static void assert_shared(void)
{
	assert_int_equal(device->lost, 0);
	/* All that wait are answered at once, so most of them by others. */
	assert_true(device->led * 2 < device->commits);
}

#ifdef __SANITIZE_THREAD__

static struct thread {
	pthread_t id;
	dev_t dev;
	unsigned int job;
} threads[64];
#define THREADS	(sizeof(threads) / sizeof(threads[0]))

static void *run_thread(void *data)
{
	struct thread *t = data;

	write_and_commit(t->dev, t->job);
	return NULL;
}

static void threads_share_flushes(void **state)
{
	dev_t dev = new_dev();
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		threads[i].dev = dev;
		threads[i].job = i;
		assert_int_equal(pthread_create(&threads[i].id, NULL,
						run_thread, &threads[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i].id, NULL);
	assert_int_equal(device->commits, THREADS * ROUNDS);
	assert_int_equal(device->flushes, device->led);
	assert_shared();
}

#else

static pid_t start_job(dev_t dev, unsigned int job)
{
	pid_t pid = fork();

	if (!pid) {
		alarm(TIME_LIMIT_S);
		write_and_commit(dev, job);
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

/* Returns how many were killed. Any other end than by itself is an error. */
static unsigned int wait_for_jobs(const pid_t *jobs)
{
	unsigned int killed = 0, i;
	int status;

	for (i = 0; i < JOBS; i++) {
		assert_int_equal(waitpid(jobs[i], &status, 0), jobs[i]);
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			killed++;
		else
			assert_int_equal(status, 0);
	}
	return killed;
}

static void processes_share_flushes(void **state)
{
	dev_t dev = new_dev();
	pid_t jobs[JOBS];
	unsigned int i;

	for (i = 0; i < JOBS; i++)
		jobs[i] = start_job(dev, i);
	assert_int_equal(wait_for_jobs(jobs), 0);
	assert_int_equal(device->commits, JOBS * ROUNDS);
	assert_int_equal(device->flushes, device->led);
	assert_shared();
}

/* Half of those that are killed are in a flush, as far as one can tell. */
static void killed_jobs_block_nobody(void **state)
{
	dev_t dev = new_dev();
	pid_t jobs[JOBS], victim;
	unsigned int i;

	srandom(1);
	for (i = 0; i < JOBS; i++)
		jobs[i] = start_job(dev, i);
	for (i = 0; i < JOBS / 4; i++) {
		victim = i % 2 ? device->flushing : jobs[random() % JOBS];
		if (victim)
			kill(victim, SIGKILL);
		usleep(FLUSH_US * 2);
	}
	assert_in_range(wait_for_jobs(jobs), 1, JOBS / 4);
	assert_shared();
}

static int die(void *data)
{
	raise(SIGKILL);
	return 0;
}

static void a_leader_that_dies_is_replaced(void **state)
{
	struct group_commit c = { 0 };
	dev_t dev = new_dev();
	unsigned int i;
	int status;
	pid_t pid;

	assert_int_equal(group_commit_join(&c, dev, 0, 0), 0);
	for (i = 1; i < 10; i++) {
		pid = fork();
		if (!pid) {
			group_commit(&c, die, NULL);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		/* What it began stands for nothing. */
		assert_int_equal(group_commit(&c, flush, NULL), 0);
		assert_true(c.led);
		assert_int_equal(device->flushes, i);
	}
}

#endif

static void an_error_is_told_to_each_job_once(void **state)
{
	struct group_commit one = { 0 }, two = { 0 }, late = { 0 };
	dev_t dev = new_dev();
	int err = EIO;

	assert_int_equal(group_commit_join(&one, dev, 0, 0), 0);
	assert_int_equal(group_commit_join(&two, dev, 0, 0), 0);
	assert_int_equal(group_commit(&one, flush, NULL), 0);
	assert_int_equal(group_commit(&one, flush_badly, &err), EIO);
	/* What two has written may have been lost by that one. */
	assert_int_equal(group_commit_join(&late, dev, 0, 0), 0);
	assert_int_equal(group_commit_join(&two, dev, 0, 0), 0);
	assert_int_equal(group_commit(&two, flush, NULL), EIO);
	assert_int_equal(group_commit(&two, flush, NULL), 0);
	assert_int_equal(group_commit(&one, flush, NULL), 0);
	assert_int_equal(group_commit(&late, flush, NULL), 0);

	err = ENOSPC;
	assert_int_equal(group_commit(&late, flush_badly, &err), ENOSPC);
	err = EIO;
	assert_int_equal(group_commit(&late, flush_badly, &err), EIO);
	assert_int_equal(group_commit(&two, flush_badly, &err), EIO);
	assert_int_equal(group_commit(&one, flush, NULL), EIO);
	assert_int_equal(group_commit(&one, flush, NULL), 0);
}

static int commit_another(void *data)
{
	return group_commit(data, flush, NULL);
}

/* One of the same group would wait for itself. */
static void groups_are_by_device_file_and_kind(void **state)
{
	struct group_commit c = { 0 }, others[3] = { 0 };
	dev_t dev = new_dev(), another = new_dev();
	unsigned int i;

	assert_int_equal(group_commit_join(&c, dev, 7, 1), 0);
	assert_int_equal(group_commit_join(&others[0], another, 7, 1), 0);
	assert_int_equal(group_commit_join(&others[1], dev, 8, 1), 0);
	assert_int_equal(group_commit_join(&others[2], dev, 7, 0), 0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(group_commit(&c, commit_another, &others[i]),
				 0);
		assert_true(c.led && others[i].led);
		assert_int_equal(device->flushes, i + 1);
	}
}

/* The last test: nothing is left for others. */
static void too_many_groups_are_refused(void **state)
{
	struct group_commit c[GROUPS + 1] = { 0 };
	unsigned int joined = 0;
	dev_t dev = new_dev();
	int ret;

	do {
		ret = group_commit_join(&c[joined], dev, joined, 0);
	} while (!ret && ++joined <= GROUPS);
	assert_int_equal(ret, ENOSPC);
	assert_in_range(joined, GROUPS - 20, GROUPS);
	assert_int_equal(group_commit_join(&c[0], dev, joined - 1, 0), 0);
	assert_int_equal(group_commit(&c[0], flush, NULL), 0);
}

#define test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef __SANITIZE_THREAD__
		test(threads_share_flushes),
#else
		test(processes_share_flushes),
		test(killed_jobs_block_nobody),
		test(a_leader_that_dies_is_replaced),
#endif
		test(an_error_is_told_to_each_job_once),
		test(groups_are_by_device_file_and_kind),
		test(too_many_groups_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
