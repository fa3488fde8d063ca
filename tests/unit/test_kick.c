// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/kick.c: what the flusher is given, in which order it writes back and
 * drops, and how the writer waits for it. sync_file_range(2) and
 * posix_fadvise(2) are wrapped: they are recorded, can fail, and the start of
 * writeback can be held, so that what is queued meanwhile is known exactly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines/kick.h"

#define KIB	1024ULL
#define MIB	(1024 * KIB)

enum { START, WAIT, DROP };

struct call {
	int op, fd;
	uint64_t offset, bytes;
	pthread_t thread;
};

static struct {
	pthread_mutex_t lock;
	struct call *calls;
	size_t nr, max;
	_Atomic uint64_t dropped;
	_Atomic bool hold;	/* the flusher stops in the next START */
	sem_t held, go;
	int fail_op, fail_errno;
} kernel = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int called(int op, int fd, off_t offset, off_t bytes)
{
	pthread_mutex_lock(&kernel.lock);
	if (kernel.nr == kernel.max) {
		kernel.max = 2 * kernel.max + 64;
		kernel.calls = realloc(kernel.calls,
				       kernel.max * sizeof(*kernel.calls));
	}
	kernel.calls[kernel.nr++] = (struct call) {
		op, fd, offset, bytes, pthread_self(),
	};
	pthread_mutex_unlock(&kernel.lock);

	if (op == START && atomic_exchange(&kernel.hold, false)) {
		sem_post(&kernel.held);
		sem_wait(&kernel.go);
	}
	return op == kernel.fail_op ? kernel.fail_errno : 0;
}

int __wrap_sync_file_range(int fd, off_t offset, off_t bytes,
			   unsigned int flags);
int __wrap_posix_fadvise64(int fd, off_t offset, off_t bytes, int advice);

int __wrap_sync_file_range(int fd, off_t offset, off_t bytes,
			   unsigned int flags)
{
	int op = flags == SYNC_FILE_RANGE_WRITE ? START : WAIT;

	errno = called(op, fd, offset, bytes);
	return errno ? -1 : 0;
}

int __wrap_posix_fadvise64(int fd, off_t offset, off_t bytes, int advice)
{
	kernel.dropped += bytes;
	return called(DROP, fd, offset, bytes);
}

static int new_kernel(void **state)
{
	kernel.nr = 0;
	kernel.dropped = 0;
	kernel.fail_errno = 0;
	sem_init(&kernel.held, 0, 0);
	sem_init(&kernel.go, 0, 0);
	return 0;
}

static struct kick_file *open_file(struct kick *k, const char *name)
{
	struct kick_file *file;
	int fd = memfd_create(name, MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(kick_open(k, fd, name, &file), 0);
	return file;
}

/* Write 4 KiB at 0 of @file; return when the flusher is held in its START. */
static void hold_flusher(struct kick_file *file)
{
	kernel.hold = true;
	assert_int_equal(kick_write(file, 0, 4 * KIB), 0);
	sem_wait(&kernel.held);
}

static void release_flusher(void)
{
	sem_post(&kernel.go);
}

static void *release_later(void *unused)
{
	usleep(20000);
	release_flusher();
	return NULL;
}

/* Most tests: one file, whose flusher is held while they write. */
static struct {
	struct kick kick;
	struct kick_file *file;
	struct kick_stats stats;
} t;

static void begin(uint64_t backlog)
{
	memset(&t, 0, sizeof(t));
	kick_init(&t.kick, backlog);
	t.file = open_file(&t.kick, "a");
	hold_flusher(t.file);
}

static void end(void)
{
	kick_close(t.file);
	assert_int_equal(kick_exit(&t.kick, &t.stats), 0);
}

/* "offset+bytes" in KiB of the calls @op, in order. */
static const char *calls(int op)
{
	static char text[1024];
	char *to = text;
	size_t i;

	*to = '\0';
	for (i = 0; i < kernel.nr; i++) {
		const struct call *c = &kernel.calls[i];

		if (c->op == op && to < text + sizeof(text) - 64)
			to += sprintf(to, "%s%g+%g", to == text ? "" : " ",
				      c->offset / 1024.0, c->bytes / 1024.0);
	}
	return text;
}

static size_t count(int op)
{
	size_t n = 0, i;

	pthread_mutex_lock(&kernel.lock);
	for (i = 0; i < kernel.nr; i++)
		n += kernel.calls[i].op == op;
	pthread_mutex_unlock(&kernel.lock);
	return n;
}

static void sequential_writes_are_one_range(void **state)
{
	int i;

	begin(64 * MIB);
	for (i = 1; i < 11; i++)
		kick_write(t.file, i * 4 * KIB, 4 * KIB);
	release_flusher();
	end();

	assert_string_equal(calls(START), "0+4 4+40");
	assert_string_equal(calls(WAIT), "0+4 4+40");
	assert_string_equal(calls(DROP), "0+4 4+40");
	assert_int_equal(t.stats.kicks, 1);
	assert_int_equal(t.stats.kicks_coalesced, 10);
	assert_int_equal(t.stats.writeback_bytes, 44 * KIB);
	assert_int_equal(t.stats.dropped_bytes, 44 * KIB);
	assert_int_equal(t.stats.throttled, 0);
}

static void a_step_is_sorted_and_merged(void **state)
{
	begin(64 * MIB);
	kick_write(t.file, 64 * KIB, 4 * KIB);
	kick_write(t.file, 16 * KIB, 8 * KIB);
	kick_write(t.file, 20 * KIB, 8 * KIB);	/* overlaps */
	kick_write(t.file, 12 * KIB, 4 * KIB);	/* touches */
	kick_write(t.file, 64 * KIB, 4 * KIB);	/* again */
	release_flusher();
	end();

	assert_string_equal(calls(START), "0+4 12+16 64+4");
	assert_int_equal(t.stats.writeback_bytes, 24 * KIB);
	assert_int_equal(t.stats.dropped_bytes, 24 * KIB);
}

/* A step is full with a sixteenth of the backlog. */
static void steps_go_oldest_first(void **state)
{
	begin(128 * KIB);
	kick_write(t.file, 96 * KIB, 4 * KIB);
	kick_write(t.file, 80 * KIB, 4 * KIB);
	kick_write(t.file, 32 * KIB, 4 * KIB);
	kick_write(t.file, 16 * KIB, 4 * KIB);
	release_flusher();
	end();

	assert_string_equal(calls(START), "0+4 80+4 96+4 16+4 32+4");
	assert_string_equal(calls(WAIT), "0+4 80+4 96+4 16+4 32+4");
}

/* A full step is started before the last is waited for, another is not. */
static void full_steps_do_not_wait(void **state)
{
	static const struct {
		int op;
		uint64_t offset;
	} order[] = {
		{ START, 0 },
		{ START, 8 * KIB }, { START, 32 * KIB },
		{ WAIT, 0 }, { DROP, 0 },
		{ WAIT, 8 * KIB }, { DROP, 8 * KIB },
		{ WAIT, 32 * KIB }, { DROP, 32 * KIB },
		{ START, 64 * KIB }, { WAIT, 64 * KIB }, { DROP, 64 * KIB },
	};
	size_t i;

	/* A close and the end count as a page each. */
	begin(256 * KIB);
	kick_write(t.file, 8 * KIB, 16 * KIB);
	kick_write(t.file, 32 * KIB, 16 * KIB);
	kick_write(t.file, 64 * KIB, 4 * KIB);
	release_flusher();
	end();

	assert_int_equal(kernel.nr, sizeof(order) / sizeof(order[0]));
	for (i = 0; i < kernel.nr; i++) {
		assert_int_equal(kernel.calls[i].op, order[i].op);
		assert_int_equal(kernel.calls[i].offset, order[i].offset);
	}
}

/* Most steps in writeback at once, as started before they are waited for. */
static unsigned int most_in_writeback(void)
{
	unsigned int now = 0, most = 0;
	size_t i;

	for (i = 0; i < kernel.nr; i++) {
		if (kernel.calls[i].op == START && ++now > most)
			most = now;
		else if (kernel.calls[i].op == DROP)
			now--;
	}
	return most;
}

/*
 * A job alone may have its whole backlog in writeback; the first step here is
 * of one page. Of many jobs, each has two steps.
 */
static void jobs_share_what_is_in_writeback(void **state)
{
	struct kick_stats stats = { 0 };
	struct kick_file *file[15];
	struct kick k[15];
	unsigned int i;

	begin(128 * KIB);
	for (i = 1; i < 16; i++)
		kick_write(t.file, i * 16 * KIB, 8 * KIB);
	release_flusher();
	end();
	assert_int_equal(most_in_writeback(), 16);

	new_kernel(state);
	begin(128 * KIB);
	for (i = 1; i < 16; i++)
		kick_write(t.file, i * 16 * KIB, 8 * KIB);
	for (i = 0; i < 15; i++) {
		kick_init(&k[i], 128 * KIB);
		file[i] = open_file(&k[i], "other");
	}
	release_flusher();
	end();
	assert_int_equal(most_in_writeback(), 2);
	for (i = 0; i < 15; i++) {
		kick_close(file[i]);
		assert_int_equal(kick_exit(&k[i], &stats), 0);
	}
}

/* Of a page that is dirtied in its writeback, the second write counts too. */
static void an_overwrite_is_written_back_again(void **state)
{
	begin(64 * MIB);
	kick_write(t.file, 0, 4 * KIB);
	release_flusher();
	end();

	assert_string_equal(calls(START), "0+4 0+4");
	assert_string_equal(calls(WAIT), "0+4 0+4");
	assert_int_equal(t.stats.writeback_bytes, 8 * KIB);
}

static void pages_written_in_part_are_dropped_whole(void **state)
{
	begin(64 * MIB);
	kick_write(t.file, 5 * KIB, 10 * KIB);
	release_flusher();
	end();

	assert_string_equal(calls(WAIT), "0+4 5+10");
	if (sysconf(_SC_PAGESIZE) == 4096)
		assert_string_equal(calls(DROP), "0+4 4+12");
	assert_int_equal(t.stats.dropped_bytes, 14 * KIB);
}

static void writers_wait_at_the_backlog(void **state)
{
	pthread_t thread;

	begin(8 * KIB);
	kick_write(t.file, 4 * KIB, 4 * KIB);	/* just fits */
	pthread_create(&thread, NULL, release_later, NULL);
	kick_write(t.file, 8 * KIB, 4 * KIB);
	/* It did not return before something was written back. */
	assert_true(count(DROP) > 0);
	pthread_join(thread, NULL);
	end();

	assert_int_equal(t.stats.throttled, 1);
	assert_true(t.stats.throttled_ns > 0);
	assert_int_equal(t.stats.writeback_bytes, 12 * KIB);
}

/* However small, writes queue up to a fixed number only. */
static void writers_wait_when_the_queue_is_full(void **state)
{
	const unsigned int writes = 100000;
	pthread_t thread;
	unsigned int i;

	begin(64 * MIB);
	pthread_create(&thread, NULL, release_later, NULL);
	for (i = 1; i <= writes; i++)
		kick_write(t.file, i * 8 * KIB, 1);
	pthread_join(thread, NULL);
	end();

	assert_true(t.stats.throttled > 0);
	assert_int_equal(t.stats.writeback_bytes, 4 * KIB + writes);
	assert_int_equal(t.stats.kicks + t.stats.kicks_coalesced, writes + 1);
	assert_int_equal(count(START), writes + 1);
	assert_int_equal(count(DROP), writes + 1);
}

/*
 * Two jobs, forked or not, have half of the backlog each. Other writes of this
 * one wait at half, then.
 */
static void jobs_share_the_backlog(void **state)
{
	int ready[2], done[2], status;
	struct kick_stats stats = { 0 };
	struct kick_file *file;
	struct kick k;
	pthread_t thread;
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(ready) + pipe(done), 0);
	pid = fork();
	if (!pid) {
		close(done[1]);
		kick_init(&k, 16 * KIB);
		file = open_file(&k, "other");
		if (write(ready[1], &byte, 1) != 1 ||
		    read(done[0], &byte, 1) != 1)
			_exit(1);
		kick_close(file);
		_exit(kick_exit(&k, &stats));
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);

	begin(16 * KIB);
	kick_write(t.file, 4 * KIB, 4 * KIB);
	pthread_create(&thread, NULL, release_later, NULL);
	kick_write(t.file, 8 * KIB, 4 * KIB);
	assert_true(count(DROP) > 0);
	pthread_join(thread, NULL);
	end();
	assert_int_equal(t.stats.throttled, 1);

	assert_int_equal(write(done[1], &byte, 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(ready[0]), close(ready[1]), close(done[0]), close(done[1]);

	/* The other is gone: all of it again. */
	new_kernel(state);
	begin(16 * KIB);
	kick_write(t.file, 4 * KIB, 4 * KIB);
	kick_write(t.file, 8 * KIB, 4 * KIB);
	kick_write(t.file, 12 * KIB, 4 * KIB);
	release_flusher();
	end();
	assert_int_equal(t.stats.throttled, 0);
}

static void a_closed_file_stays_open_for_the_flusher(void **state)
{
	struct kick_stats stats = { 0 };
	struct kick_file *a, *b;
	struct kick k;
	int fd_a, fd_b;

	kick_init(&k, 64 * MIB);
	a = open_file(&k, "a");
	hold_flusher(a);
	fd_a = kernel.calls[0].fd;
	kick_write(a, 8 * KIB, 4 * KIB);
	kick_close(a);
	assert_true(fcntl(fd_a, F_GETFD) >= 0);

	b = open_file(&k, "b");
	kick_write(b, 32 * KIB, 4 * KIB);
	release_flusher();
	kick_close(b);
	assert_int_equal(kick_exit(&k, &stats), 0);

	fd_b = kernel.calls[kernel.nr - 1].fd;
	assert_int_not_equal(fd_a, fd_b);
	assert_int_equal(fcntl(fd_a, F_GETFD), -1);
	assert_int_equal(fcntl(fd_b, F_GETFD), -1);
	assert_string_equal(calls(START), "0+4 8+4 32+4");
	assert_string_equal(calls(DROP), "0+4 8+4 32+4");
}

static void a_failure_is_reported_with_its_file(void **state)
{
	static const int ops[] = { START, WAIT, DROP };
	size_t i;

	for (i = 0; i < 3; i++) {
		struct kick_stats stats = { 0 };
		struct kick_file *file;
		struct kick k;
		size_t before;
		int fd, n;

		new_kernel(state);
		kernel.fail_op = ops[i];
		kernel.fail_errno = EIO;
		kick_init(&k, 8 * KIB);
		assert_int_equal(kick_error(&k), 0);
		file = open_file(&k, "/a/b");
		/* The writer hears of it, and is not held up for ever. */
		for (n = 0; !kick_write(file, n * 4 * KIB, 4 * KIB); n++)
			;
		assert_int_equal(kick_error(&k), EIO);
		assert_string_equal(k.failed, "/a/b");

		before = kernel.nr;
		fd = kernel.calls[0].fd;
		assert_int_equal(kick_write(file, 0, 4 * KIB), EIO);
		kick_close(file);
		assert_int_equal(kick_exit(&k, &stats), EIO);
		assert_string_equal(k.failed, "/a/b");
		assert_int_equal(kernel.nr, before);
		assert_int_equal(fcntl(fd, F_GETFD), -1);
		free(k.failed);
	}
}

static void a_failure_at_the_end_is_reported_by_exit(void **state)
{
	struct kick_stats stats = { 0 };
	struct kick_file *file;
	struct kick k;

	kick_init(&k, 64 * MIB);
	file = open_file(&k, "a");
	hold_flusher(file);
	kernel.fail_op = WAIT;
	kernel.fail_errno = ENOSPC;
	kick_close(file);
	release_flusher();
	assert_int_equal(kick_exit(&k, &stats), ENOSPC);
	assert_string_equal(k.failed, "a");
	assert_int_equal(stats.dropped_bytes, 0);
	free(k.failed);
}

static void each_file_system_has_its_flusher(void **state)
{
	char path[] = "/tmp/test_kick.XXXXXX";
	struct kick_stats stats = { 0 };
	struct kick_file *a, *b, *c;
	struct kick k;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	kick_init(&k, 64 * MIB);
	assert_int_equal(kick_open(&k, fd, path, &a), 0);
	b = open_file(&k, "b");
	c = open_file(&k, "c");
	/* The flusher of one may be stuck: the others go on. */
	hold_flusher(a);
	kick_write(b, 8 * KIB, 4 * KIB);
	while (!count(DROP))
		usleep(1000);
	kick_write(c, 16 * KIB, 4 * KIB);
	while (count(DROP) < 2)
		usleep(1000);
	release_flusher();
	kick_close(a);
	kick_close(b);
	kick_close(c);
	assert_int_equal(kick_exit(&k, &stats), 0);

	assert_string_equal(calls(START), "0+4 8+4 16+4");
	assert_string_equal(calls(DROP), "8+4 16+4 0+4");
	assert_false(pthread_equal(kernel.calls[0].thread,
				   kernel.calls[1].thread));
	assert_true(stats.kicks >= 2);
	assert_int_equal(stats.kicks + stats.kicks_coalesced, 3);
}

static void nothing_opened_nothing_done(void **state)
{
	struct kick_stats stats = { 0 };
	struct kick k;

	kick_init(&k, 64 * MIB);
	assert_int_equal(kick_exit(&k, &stats), 0);
	assert_int_equal(kernel.nr, 0);
}

/* A waiting write meets the flusher in every state; nobody wakes it again. */
static void the_last_wake_up_is_not_lost(void **state)
{
	const unsigned int writes = 50000;
	struct kick_stats stats = { 0 };
	struct kick_file *file;
	struct kick k;
	unsigned int i;

	kick_init(&k, 1);
	file = open_file(&k, "a");
	for (i = 0; i < writes; i++)
		kick_write(file, i * 4 * KIB, 4 * KIB);
	kick_close(file);
	assert_int_equal(kick_exit(&k, &stats), 0);
	assert_true(stats.throttled > 0);
	assert_int_equal(stats.writeback_bytes, writes * 4 * KIB);
}

/* A burst of writes meets the flusher in every state; nobody kicks after it. */
static void the_last_kick_is_not_lost(void **state)
{
	struct kick_stats stats = { 0 };
	struct kick_file *file;
	uint64_t written = 0;
	volatile int pause;
	struct kick k;
	int i, burst;

	kick_init(&k, 64 * MIB);
	file = open_file(&k, "a");
	for (i = 0; i < 50000; i++) {
		for (burst = 0; burst <= i % 4; burst++) {
			for (pause = 0; pause < i % 512; pause++)
				;
			kick_write(file, written, 4 * KIB);
			written += 4 * KIB;
		}
		while (kernel.dropped < written)
			sched_yield();
	}
	kick_close(file);
	assert_int_equal(kick_exit(&k, &stats), 0);
	assert_int_equal(stats.writeback_bytes, written);
}

/* Full and empty by turns. */
static void nothing_is_lost_at_full_speed(void **state)
{
	const unsigned int writes = 200000;
	struct kick_stats stats = { 0 };
	struct kick_file *file;
	struct kick k;
	unsigned int i;
	uint64_t sum = 0;

	kick_init(&k, 256 * KIB);
	file = open_file(&k, "a");
	for (i = 0; i < writes; i++) {
		kick_write(file, i * 8 * KIB, 4 * KIB);
		if (i % 10000 == 0)
			usleep(1000);
	}
	kick_close(file);
	assert_int_equal(kick_exit(&k, &stats), 0);

	assert_int_equal(stats.kicks + stats.kicks_coalesced, writes);
	assert_int_equal(stats.writeback_bytes, writes * 4 * KIB);
	assert_int_equal(stats.dropped_bytes, writes * 4 * KIB);
	for (i = 0; i < kernel.nr; i++)
		if (kernel.calls[i].op == START)
			sum += kernel.calls[i].offset / (8 * KIB);
	assert_int_equal(sum, (uint64_t)writes * (writes - 1) / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(sequential_writes_are_one_range,
				       new_kernel),
		cmocka_unit_test_setup(a_step_is_sorted_and_merged, new_kernel),
		cmocka_unit_test_setup(steps_go_oldest_first, new_kernel),
		cmocka_unit_test_setup(full_steps_do_not_wait, new_kernel),
		cmocka_unit_test_setup(jobs_share_what_is_in_writeback,
				       new_kernel),
		cmocka_unit_test_setup(an_overwrite_is_written_back_again,
				       new_kernel),
		cmocka_unit_test_setup(pages_written_in_part_are_dropped_whole,
				       new_kernel),
		cmocka_unit_test_setup(writers_wait_at_the_backlog, new_kernel),
		cmocka_unit_test_setup(writers_wait_when_the_queue_is_full,
				       new_kernel),
		cmocka_unit_test_setup(jobs_share_the_backlog, new_kernel),
		cmocka_unit_test_setup(a_closed_file_stays_open_for_the_flusher,
				       new_kernel),
		cmocka_unit_test_setup(a_failure_is_reported_with_its_file,
				       new_kernel),
		cmocka_unit_test_setup(a_failure_at_the_end_is_reported_by_exit,
				       new_kernel),
		cmocka_unit_test_setup(each_file_system_has_its_flusher,
				       new_kernel),
		cmocka_unit_test_setup(nothing_opened_nothing_done, new_kernel),
		cmocka_unit_test_setup(the_last_wake_up_is_not_lost,
				       new_kernel),
		cmocka_unit_test_setup(the_last_kick_is_not_lost, new_kernel),
		cmocka_unit_test_setup(nothing_is_lost_at_full_speed,
				       new_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
