/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Flush many devices, or one device many times, at once.
 *
 * The kernel's device-mapper submits all empty flush bios of a sync, then
 * waits for them; they complete concurrently, and the block layer carries out
 * together what waits for the same device. User space has no flush that does
 * not block: what io_uring and libaio offer is an fsync in a kernel thread.
 * So this is a pool of threads, each of which has one flush in flight.
 */
#ifndef DURABENCH_FLUSH_POOL_H
#define DURABENCH_FLUSH_POOL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

struct flush_pool {
	unsigned int nr;		/* flushes of a run */
	pthread_t *threads;		/* besides the caller */
	unsigned int nr_threads;
	sem_t start, done;

	/* Of the run in progress. */
	int (*flush)(void *data, unsigned int i);
	void *data;
	atomic_uint next;		/* flush that nobody has begun */
	atomic_uint busy;		/* threads that are not done */
	atomic_int error;		/* errno of the first failure */
	atomic_bool stop;
};

/*
 * Make a pool for runs of @nr flushes. A single flush needs no thread but the
 * caller's. Returns 0 or a positive errno, if the threads can't be made; then
 * there is nothing to exit.
 */
int flush_pool_init(struct flush_pool *p, unsigned int nr);
void flush_pool_exit(struct flush_pool *p);

/*
 * Call @flush(@data, i) for each i below the number of flushes, and wait. It
 * returns 0 or a positive errno. Returns 0 or what the first flush that failed
 * returned; the others are done nevertheless.
 */
int flush_pool_run(struct flush_pool *p,
		   int (*flush)(void *data, unsigned int i), void *data);

#endif
