/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kick: buffered writes whose dirty pages a thread of their own writes
 * back and drops, as Linux >= 7.2 does for RWF_DONTCACHE.
 *
 * There, a write sets one bit of its backing device and wakes the flusher,
 * which writes back as many pages as are dirty, oldest first; further writes
 * find the bit set and do nothing. Here the same happens in user space for
 * the files of one job: each file system that they are on has a flusher.
 *
 * The writer calls kick_write() after each write: that puts the range into a
 * queue and kicks the flusher, without a lock, and without a system call
 * unless the flusher sleeps or is too far behind. How far that may be, jobs on
 * the same file system share. All functions are for the one thread that writes.
 */
#ifndef DURABENCH_KICK_H
#define DURABENCH_KICK_H

#include <stdint.h>

struct kick_file;
struct kick_flusher;

struct kick_stats {
	uint64_t kicks;			/* flushers woken */
	uint64_t kicks_coalesced;	/* flushers found awake */
	uint64_t writeback_bytes;	/* given to writeback */
	uint64_t dropped_bytes;		/* of these, dropped when written */
	uint64_t throttled;		/* writes that waited for a flusher */
	uint64_t throttled_ns;		/* how long in all */
};

struct kick {
	uint64_t backlog;
	struct kick_flusher *flushers;
	int error;		/* errno of a failed writeback */
	char *failed;		/* the file it was of */
};

/*
 * @backlog: bytes that may be dirty or in writeback on a file system. The jobs
 * that write to it, of all processes that fio forked, have equal parts of it.
 */
void kick_init(struct kick *k, uint64_t backlog);

/*
 * Write back and drop all that is queued, end the flushers, add what they did
 * to @stats. Returns as kick_error(). The caller frees k->failed.
 */
int kick_exit(struct kick *k, struct kick_stats *stats);

/*
 * 0, or the positive errno of a failed writeback, which is k->error from now
 * on, with its file in k->failed.
 */
int kick_error(struct kick *k);

/*
 * Take on the file open as @fd. @name is for messages. Returns 0 or a
 * positive errno.
 */
int kick_open(struct kick *k, int fd, const char *name,
	      struct kick_file **file);

/*
 * @bytes (not 0) at @offset were written to the page cache. Waits while the
 * flusher is more than the job's part of the backlog behind. Returns 0, or the
 * positive errno of a failed writeback on the same file system.
 */
int kick_write(struct kick_file *file, uint64_t offset, uint64_t bytes);

/* Close the descriptor and free @file once all of it is written back. */
void kick_close(struct kick_file *file);

/*
 * Write back what is dirty in @bytes at @offset (0: to the end), wait for it,
 * and drop the pages. Returns 0 or a positive errno.
 */
int kick_flush_and_drop(int fd, uint64_t offset, uint64_t bytes);

#endif
