/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Submission by io_uring for the engines: a ring a job, any iodepth, one or
 * two requests an io_u.
 *
 * An engine's ->queue() gets its requests with uring_get() and says whether
 * the io_u takes one (a transfer) or two linked ones (a transfer, then a flush
 * that runs only if the transfer was complete).
 */
#ifndef DURABENCH_URING_H
#define DURABENCH_URING_H

#include <liburing.h>

#include "engine.h"

struct uring {
	struct io_uring ring;
	unsigned int per_io;	/* requests an io_u, 1 or 2 */
	struct io_u **prepared;	/* queued, not submitted yet */
	unsigned int nr_prepared;
	struct io_u **done;	/* what ->event() hands to fio */
};

/*
 * Returns 0 or a positive errno after one message that says what io_uring
 * lacks here and what to do.
 */
int uring_init(struct uring *u, struct engine_job *j, struct thread_data *td,
	       unsigned int per_io);
void uring_exit(struct uring *u);

/*
 * Queue the transfer of @io_u with @rw_flags (RWF_*), followed by an
 * fdatasync where per_io is 2 and it is a write. FIO_Q_BUSY when the ring is
 * full.
 */
enum fio_q_status uring_queue(struct uring *u, struct io_u *io_u,
			      int rw_flags);

/* The ->commit() hook: submit what was queued. Returns 0 or -errno. */
int uring_commit(struct uring *u, struct thread_data *td);

/*
 * The ->getevents() hook. Returns the number of io_us completed, or -errno. A
 * write of a pair is counted as durable when its flush has succeeded.
 */
int uring_getevents(struct uring *u, struct engine_job *j,
		    unsigned int min, unsigned int max);

#endif
