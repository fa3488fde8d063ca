// SPDX-License-Identifier: GPL-2.0-only
/*
 * Group commit; see group-commit.h.
 *
 * The flushes of a group are numbered, and up to two are under way: a leader,
 * the job that makes one, holds one of two mutexes. With one only, the device
 * would be idle until the next leader has run. The kernel's flush machinery has
 * two as well, one running and one that gathers. A job that has written and
 * wants to be sure of it:
 *
 *   want = begun + 1                    the first flush not yet begun
 *   until done >= want:
 *     s = seq
 *     if done >= want: stop
 *     if trylock(either leader):
 *       if done < want:
 *         n = ++begun
 *         flush
 *         if it failed: error = errno, ++failures
 *         done = max(done, n)
 *       unlock(leader), ++seq, wake all that wait
 *     else wait while seq == s, for a time
 *   if failures != told: told = failures, return error
 *
 * Covered: a flush must have begun after the writes that it stands for. Both
 * "begun + 1" and "++begun" are read-modify-writes of one word, so they have an
 * order. If the leader's comes first, the job sees its number and wants the
 * next flush. If the job's comes first, the leader's synchronizes with it, so
 * the writes happened before the flush. A load could be carried out before the
 * writes are; a read-modify-write with release can't. If the later of two
 * flushes ends first, it answers for both.
 *
 * No wake-up is lost: seq changes after each unlock, so if it still is s, the
 * holders that were in the way are still to come to the wake. That also holds
 * for one who found the work done. If seq changed before the unlock, a job
 * could find the mutexes taken, sleep on the new value, and nobody would come.
 *
 * A job that is killed blocks the others for no longer than its last system
 * call and TIME_LIMIT. The mutexes are robust: the kernel marks one when its
 * holder dies, and the next trylock takes it over. The time limit is for that,
 * as nobody is woken then, and for a death between unlock and wake. A flush
 * that was cut short has a number that is never done; a later one answers both.
 *
 * Errors: what a flush could not write back is lost, and the page cache takes
 * it for clean, so no later flush would fail for it. It may be that of a job
 * which has written and was not yet waiting. So each job compares the count of
 * failed flushes with the one it was told of, as the kernel does for each
 * descriptor (errseq_t). If the leader is killed before it can tell, the
 * descriptors of the others still do.
 *
 * Numbers have 64 bits and do not wrap. seq has 32, and a job would have to
 * sleep through exactly 2^32 flushes to be mistaken, for the time limit.
 *
 * tests/models/group_commit.pml has all this, to be checked in every order.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>

#include "group-commit.h"

#define GROUPS		4096
#define LEADERS		2
#define TIME_LIMIT	(const struct timespec){ .tv_nsec = 100000000 }

struct commit_group {
	dev_t dev;
	ino_t ino;
	unsigned int kind;

	/* All below: a cache line or two for each group. */
	_Alignas(64) pthread_mutex_t leader[LEADERS];
	_Atomic uint64_t begun, done;
	_Atomic uint64_t failures;
	_Atomic int error;		/* errno of the last one, set before */
	_Atomic uint32_t seq;
};

/* Mapped when the engine is loaded, before fio forks the jobs. */
static struct groups {
	pthread_mutex_t lock;
	unsigned int nr;
	struct commit_group group[GROUPS];
} *groups;

static int init_robust(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;
	int ret;

	ret = pthread_mutexattr_init(&attr);
	if (ret)
		return ret;
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	ret = pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return ret;
}

static void __attribute__((constructor)) map_groups(void)
{
	struct groups *map;

	map = mmap(NULL, sizeof(*map), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return;
	if (init_robust(&map->lock)) {
		munmap(map, sizeof(*map));
		return;
	}
	groups = map;
}

/* The outcome of a lock, where a killed holder has left all in order. */
static int recover(pthread_mutex_t *mutex, int ret)
{
	return ret == EOWNERDEAD ? pthread_mutex_consistent(mutex) : ret;
}

int group_commit_join(struct group_commit *c, dev_t dev, ino_t ino,
		      unsigned int kind)
{
	struct commit_group *g;
	unsigned int i;
	int ret;

	if (!groups)
		return ENOMEM;
	ret = recover(&groups->lock, pthread_mutex_lock(&groups->lock));
	if (ret)
		return ret;

	for (g = groups->group; g < groups->group + groups->nr; g++)
		if (g->dev == dev && g->ino == ino && g->kind == kind)
			goto found;
	if (groups->nr == GROUPS) {
		ret = ENOSPC;
		goto unlock;
	}
	for (i = 0; !ret && i < LEADERS; i++)
		ret = init_robust(&g->leader[i]);
	if (ret)
		goto unlock;
	g->dev = dev;
	g->ino = ino;
	g->kind = kind;
	groups->nr++;	/* last: a job killed before has made nothing */
found:
	if (c->group != g) {
		c->group = g;
		c->told = g->failures;
	}
unlock:
	pthread_mutex_unlock(&groups->lock);
	return ret;
}

static void wake_all(struct commit_group *g)
{
	atomic_fetch_add(&g->seq, 1);
	syscall(SYS_futex, &g->seq, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Until a wake, a signal, or TIME_LIMIT; not at all if seq is not @seq. */
static void wait_while(struct commit_group *g, uint32_t seq)
{
	syscall(SYS_futex, &g->seq, FUTEX_WAIT, seq, &TIME_LIMIT, NULL, 0);
}

/* Become a leader, if there is room for one more. */
static pthread_mutex_t *try_to_lead(struct commit_group *g)
{
	unsigned int i;

	for (i = 0; i < LEADERS; i++)
		if (!recover(&g->leader[i], pthread_mutex_trylock(&g->leader[i])))
			return &g->leader[i];
	return NULL;
}

/* The flush with this number has ended, and any before it may count as ended. */
static void set_done(struct commit_group *g, uint64_t number)
{
	uint64_t done = g->done;

	while (done < number &&
	       !atomic_compare_exchange_weak(&g->done, &done, number))
		;
}

/* Lead, unless others do. @c->led if that took a flush. */
static bool lead(struct group_commit *c, uint64_t want,
		 int (*flush)(void *data), void *data)
{
	struct commit_group *g = c->group;
	pthread_mutex_t *leader;
	uint64_t number;
	int err;

	leader = try_to_lead(g);
	if (!leader)
		return false;
	if (g->done < want) {
		number = atomic_fetch_add(&g->begun, 1) + 1;
		err = flush(data);
		if (err) {
			g->error = err;
			atomic_fetch_add(&g->failures, 1);
		}
		set_done(g, number);
		c->led = true;
	}
	pthread_mutex_unlock(leader);
	wake_all(g);
	return true;
}

int group_commit(struct group_commit *c, int (*flush)(void *data), void *data)
{
	struct commit_group *g = c->group;
	uint64_t want, failures;
	uint32_t seq;

	want = atomic_fetch_add(&g->begun, 0) + 1;
	c->led = false;
	for (;;) {
		seq = g->seq;
		if (g->done >= want)
			break;
		if (!lead(c, want, flush, data))
			wait_while(g, seq);
	}

	failures = g->failures;
	if (failures == c->told)
		return 0;
	c->told = failures;
	return g->error;
}
