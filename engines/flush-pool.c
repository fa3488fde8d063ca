// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flush many devices, or one device many times, at once; see flush-pool.h.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "flush-pool.h"

/*
 * Flushes in flight. The more there are, the more of them the block layer
 * carries out together, as it does for bios. Above this it gains little, and
 * where many jobs do it the threads become a burden.
 */
#define MAX_IN_FLIGHT	64
#define STACK_SIZE	(256 << 10)

/* Flush what nobody else has begun, until nothing is left. */
static void flush_some(struct flush_pool *p)
{
	unsigned int i;
	int ret, none;

	while ((i = atomic_fetch_add(&p->next, 1)) < p->nr) {
		ret = p->flush(p->data, i);
		none = 0;
		if (ret)
			atomic_compare_exchange_strong(&p->error, &none, ret);
	}
}

static void wait_for(sem_t *sem)
{
	while (sem_wait(sem))
		;	/* EINTR */
}

static void *flusher(void *data)
{
	struct flush_pool *p = data;

	for (;;) {
		wait_for(&p->start);
		if (p->stop)
			return NULL;
		flush_some(p);
		if (atomic_fetch_sub(&p->busy, 1) == 1)
			sem_post(&p->done);
	}
}

static int start_threads(struct flush_pool *p, unsigned int nr)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int ret;

	ret = pthread_attr_init(&attr);
	if (ret)
		return ret;
	pthread_attr_setstacksize(&attr, STACK_SIZE);

	/* Signals are for fio's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!ret && p->nr_threads < nr) {
		ret = pthread_create(&p->threads[p->nr_threads], &attr,
				     flusher, p);
		if (!ret)
			p->nr_threads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return ret;
}

int flush_pool_init(struct flush_pool *p, unsigned int nr)
{
	unsigned int threads = (nr < MAX_IN_FLIGHT ? nr : MAX_IN_FLIGHT) - 1;
	int ret;

	memset(p, 0, sizeof(*p));
	p->nr = nr;
	p->threads = calloc(threads + 1, sizeof(*p->threads));
	if (!p->threads)
		return ENOMEM;
	sem_init(&p->start, 0, 0);
	sem_init(&p->done, 0, 0);

	ret = start_threads(p, threads);
	if (ret)
		flush_pool_exit(p);
	return ret;
}

void flush_pool_exit(struct flush_pool *p)
{
	unsigned int i;

	p->stop = true;
	for (i = 0; i < p->nr_threads; i++)
		sem_post(&p->start);
	for (i = 0; i < p->nr_threads; i++)
		pthread_join(p->threads[i], NULL);
	sem_destroy(&p->start);
	sem_destroy(&p->done);
	free(p->threads);
	p->threads = NULL;
	p->nr_threads = 0;
}

int flush_pool_run(struct flush_pool *p,
		   int (*flush)(void *data, unsigned int i), void *data)
{
	unsigned int i;

	p->flush = flush;
	p->data = data;
	p->next = 0;
	p->error = 0;
	p->busy = p->nr_threads;

	/* A thread may take two of these, if another has taken none yet. */
	for (i = 0; i < p->nr_threads; i++)
		sem_post(&p->start);
	flush_some(p);
	if (p->nr_threads)
		wait_for(&p->done);
	return p->error;
}
