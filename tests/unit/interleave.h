/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Run threads in every order that matters.
 *
 * The code under test is compiled with -fsanitize=thread and linked without
 * its runtime: the compiler then calls a function for each access to an
 * _Atomic, which is here. Those functions, and what stands in for futexes,
 * robust mutexes, semaphores and threads (linked with --wrap), are the points
 * at which another thread may go on. Threads are coroutines, so that an order
 * is a list of choices, and orders are tried one after the other, depth first,
 * with a limit to how often a thread is stopped that could go on (CHESS: most
 * mistakes need one or two of those). Memory is sequentially consistent, as
 * the accesses to it are; that all that is shared is accessed in this way is
 * for ThreadSanitizer to say.
 *
 * A thread may also be killed at any of these points. Its mutexes are marked
 * then, as the kernel does, and nobody is woken.
 */
#ifndef TESTS_UNIT_INTERLEAVE_H
#define TESTS_UNIT_INTERLEAVE_H

#include <stdbool.h>

struct interleave {
	unsigned int preemptions;	/* the limit */
	unsigned int kills;		/* at any point */
	unsigned int deaths;		/* where a thread says it may die */
	unsigned int signals;		/* each ends a wait on a futex */
	unsigned int most_posts;	/* of a semaphore; 0: any */
	void (*start)(void);		/* before each order; starts threads */
	void (*check)(void);		/* after each */
};

/*
 * Try all orders. Returns if nothing is wrong in any of them; else the process
 * ends with status 1, after what is wrong and the steps that led there. Says
 * how many there were.
 */
void interleave_all(const char *what, const struct interleave *how);

/* For ->start(): a thread that runs @run(@data). */
void interleave_thread(void (*run)(void *data), void *data);

/* Another thread may go on here. @what is for the list of steps. */
void interleave_point(const char *what);

/* As that, and the thread goes on only after another one has. */
void interleave_pause(const char *what);

/* One of @n, each in turn. */
unsigned int interleave_choose(const char *what, unsigned int n);

/* In some orders the thread dies here, as long as how->deaths allows. */
void interleave_may_die(void);

/* Has the thread that was started as the @nth been killed? */
bool interleave_killed(unsigned int nth);

/* End with a message, and the steps. */
void interleave_fail(const char *fmt, ...)
	__attribute__((format(printf, 1, 2), noreturn));

#define interleave_assert(condition)					\
	do {								\
		if (!(condition))					\
			interleave_fail("%s:%d: %s", __FILE__, __LINE__,\
					#condition);			\
	} while (0)

#endif
