// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/kick.c, as it is compiled, in every order of its steps; what
 * tests/models/kick.pml says of the protocol is asked of the code: all that is
 * written is written back and dropped, once the job has ended, and both end.
 *
 * An argument adds so many preemptions to each: more orders, in longer time.
 */
#include <stdint.h>
#include <string.h>

#include "interleave.h"

#ifndef CODE
#define CODE "engines/kick.c"
#endif
#include CODE

#define PAGE		4096
#define MAX_WRITES	6

static unsigned int writes, backlog;
static bool pauses;			/* a writer waits until all is clean */
static int failing;			/* of the calls that start writeback */
static unsigned int jobs;

/* A job, and its file, a page of which is written once. */
static struct job {
	unsigned int number, started;
	enum { CLEAN, DIRTY, STARTED, WRITTEN, DROPPED } page[MAX_WRITES];
	bool closed;
} job[2];

static struct job *job_of(int fd)
{
	interleave_assert(fd == 100 || fd == 101);
	return &job[fd - 100];
}

int __wrap_sync_file_range(int fd, off_t offset, off_t bytes,
			   unsigned int flags);
int __wrap_sync_file_range(int fd, off_t offset, off_t bytes,
			   unsigned int flags)
{
	bool waits = flags & SYNC_FILE_RANGE_WAIT_AFTER;
	struct job *j = job_of(fd);
	off_t i;

	interleave_point(waits ? "wait for writeback" : "start writeback");
	interleave_assert(!j->closed);
	if (!waits && failing && ++j->started == (unsigned int)failing) {
		errno = EIO;
		return -1;
	}
	for (i = offset / PAGE; i < (offset + bytes) / PAGE; i++) {
		interleave_assert(j->page[i] == (waits ? STARTED : DIRTY));
		j->page[i] = waits ? WRITTEN : STARTED;
	}
	return 0;
}

int __wrap_posix_fadvise64(int fd, off_t offset, off_t bytes, int advice);
int __wrap_posix_fadvise64(int fd, off_t offset, off_t bytes, int advice)
{
	struct job *j = job_of(fd);
	off_t i;

	for (i = offset / PAGE; i < (offset + bytes) / PAGE; i++) {
		interleave_assert(j->page[i] == WRITTEN);
		j->page[i] = DROPPED;
	}
	return 0;
}

int __wrap_fstat64(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
	__attribute__((alias("__wrap_fstat64")));

int __wrap_fstat64(int fd, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_dev = 1;			/* all on one file system */
	return 0;
}

int __wrap_close(int fd);
int __wrap_close(int fd)
{
	job_of(fd)->closed = true;
	return 0;
}

static void run_job(void *data)
{
	struct kick_stats stats = { 0 };
	struct job *me = data;
	struct kick_file *file;
	struct kick k;
	unsigned int i;
	int ret = 0;

	kick_init(&k, backlog);
	interleave_assert(!kick_open(&k, 100 + me->number, "a", &file));
	for (i = 0; i < writes && !ret; i++) {
		me->page[i] = DIRTY;
		ret = kick_write(file, i * PAGE, PAGE);
		interleave_assert(!ret || (failing && ret == EIO));
		/* Until somebody else has had time for all of it. */
		if (pauses && interleave_choose("pause", 2))
			while (me->page[i] != DROPPED)
				interleave_pause("until it is dropped");
	}
	kick_close(file);
	ret = kick_exit(&k, &stats);
	interleave_assert(ret == (failing ? EIO : 0));
	interleave_assert(stats.kicks + stats.kicks_coalesced == i);
	interleave_assert(stats.writeback_bytes ==
			  (failing ? stats.writeback_bytes : i * PAGE));
	free(k.failed);
}

static void start(void)
{
	unsigned int i;

	memset(job, 0, sizeof(job));
	memset(shares, 0, sizeof(*shares));
	for (i = 0; i < jobs; i++) {
		job[i].number = i;
		interleave_thread(run_job, &job[i]);
	}
}

static void check(void)
{
	unsigned int i, n;

	interleave_assert(!shares[0].flushers);
	for (n = 0; n < jobs; n++) {
		interleave_assert(job[n].closed);
		for (i = 0; i < writes && !failing; i++)
			interleave_assert(job[n].page[i] == DROPPED);
	}
}

int main(int argc, char **argv)
{
	struct interleave how = {
		.start = start, .check = check,
		.most_posts = 1,
	};
	unsigned int more = argc > 1 ? atoi(argv[1]) : 0;

	jobs = 1;
	writes = 3;
	backlog = 2 * PAGE;
	pauses = true;
	how.preemptions = 2 + more;
	interleave_all("3 writes", &how);
	failing = 2;
	pauses = false;
	interleave_all("and writeback that fails", &how);
	failing = 0;
	writes = 2;
	backlog = PAGE / 2;		/* where many jobs share it */
	interleave_all("2 writes, with room for less than one", &how);
	jobs = 2;
	writes = 1;
	backlog = 2 * PAGE;
	how.preemptions = 1 + more;
	interleave_all("2 jobs, which share the backlog", &how);
	return 0;
}
