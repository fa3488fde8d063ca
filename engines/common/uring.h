/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Submission by io_uring for the engines: a ring a job, any iodepth, one or
 * two requests an io_u.
 *
 * The ring holds all io_us of a job, so it is never full, and its completion
 * queue has room for all of them. Where every io_u is on its way, fio's next
 * step is to wait: then ->commit() leaves the submission to ->getevents(),
 * which does both in one system call.
 */
#ifndef DURABENCH_URING_H
#define DURABENCH_URING_H

#include <liburing.h>

#include "engine.h"

/* What the result of a driver's command means: bytes or -errno. */
typedef ssize_t uring_result(void *data, const struct io_u *io_u, int res);

struct uring {
	struct io_uring ring;
	unsigned int depth;	/* io_us of the job */
	unsigned int held;	/* of these, those that fio waits for */
	unsigned int requests;	/* submitted, and not completed */
	bool pairs;		/* a write is two requests, see uring_queue() */
	unsigned int big;	/* 1: of double size, as their completions */
	struct io_u **prepared;	/* queued and not submitted, in ring order */
	unsigned int nr_prepared;
	struct io_u **early;	/* complete, before fio asked */
	unsigned int nr_early;
	struct io_u **done;	/* what ->event() hands to fio */
	unsigned int starved;	/* waits for memory, since it was there last */
	uring_result *result;	/* of commands, set after uring_init() */
	void *data;		/* for it */
};

/*
 * @pairs: each write is followed by an fdatasync. @flags: IORING_SETUP_SQE128
 * and IORING_SETUP_CQE32, or 0.
 * Returns 0 or a positive errno after one message that says what io_uring
 * lacks here and what to do.
 */
int uring_init(struct uring *u, struct engine_job *j, struct thread_data *td,
	       bool pairs, unsigned int flags);
void uring_exit(struct uring *u);

/*
 * Take the next request for @io_u, which the caller prepares. Returns NULL
 * when the ring is full.
 */
static inline struct io_uring_sqe *uring_next(struct uring *u,
					      struct io_u *io_u)
{
	struct io_uring_sq *sq = &u->ring.sq;

	if (fio_unlikely(u->held == u->depth))
		return NULL;
	u->held++;
	u->prepared[u->nr_prepared++] = io_u;
	/* As io_uring_get_sqe(), but for its look for room: there is. */
	return &sq->sqes[(sq->sqe_tail++ & sq->ring_mask) << u->big];
}

/*
 * Queue the transfer of @io_u with @rw_flags (RWF_*). With pairs, a write is
 * linked to an fdatasync, which runs only if it was complete.
 */
enum fio_q_status uring_queue(struct uring *u, struct io_u *io_u,
			      int rw_flags);

/* Let the kernel have what was queued, and wait for @wait completions. */
void uring_submit(struct uring *u, struct engine_job *j,
		  struct thread_data *td, unsigned int wait);

/*
 * The ->commit() hook. An io_u that can't be submitted completes with the
 * error, so this does not fail.
 */
static inline void uring_commit(struct uring *u, struct engine_job *j,
				struct thread_data *td)
{
	if (u->nr_prepared && u->held < u->depth)
		uring_submit(u, j, td, 0);
}

/*
 * The ->getevents() hook. Returns the number of io_us completed, or -errno. A
 * write of a pair is counted as durable when its flush has succeeded.
 */
int uring_getevents(struct uring *u, struct engine_job *j,
		    struct thread_data *td, unsigned int min, unsigned int max);

#endif
