// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kick; see kick.h.
 *
 * Writer and flusher share a ring of ranges. The writer alone moves head. The
 * flusher alone moves done, by what is clean; what was given and is not done
 * is limited, so that the ring never overflows.
 *
 *   writer                              flusher
 *     ring[head++] = range                take what is before head
 *     if (asleep && exchange(asleep,      if there is nothing:
 *                            false))        asleep = true
 *       post(wake)                          if (nothing before head ||
 *                                               !exchange(asleep, false))
 *                                             wait(wake)
 *
 * A range is in the ring before the writer looks at asleep, and the flusher
 * looks at the ring after it set that. So no kick is lost: the range is seen,
 * or the flag is. Whoever takes the flag back owes or has the one post, so the
 * semaphore never counts above one. A writer waits for room in the same way.
 *
 * Ranges go in steps, oldest first: writeback of a step is started when it is
 * full, or when there is none to wait for. The flusher waits for the oldest
 * when there is no more to start, so that the device always has as much to do
 * as other writers give it, and lets the writer go on by as much. Small steps
 * make short waits.
 *
 * A page that is written again while it is in writeback is skipped by
 * SYNC_FILE_RANGE_WRITE alone. Its range is queued again too, and the wait at
 * the end of each step writes whatever is dirty by then; dropping a range
 * spares dirty pages. So every write reaches the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kick.h"

/* A write dirties a page at least, and counts as that much. */
#define MIN_COST	4096U

/*
 * A job's part of the backlog is this many steps; and so many are in writeback
 * at once, of all jobs, but two of each. A job alone has all of the backlog in
 * the device's queue, where its share is by what it has there, of that of other
 * writers. Were there much more than the device takes, flushers would wait for
 * their turn to start some, while what they started is done and writers wait.
 */
#define STEPS		16U

/*
 * How many flushers a file system has, in all jobs: mapped when the engine is
 * loaded, before fio forks them.
 */
static struct share {
	_Atomic uint64_t dev;		/* 0: free */
	_Atomic unsigned int flushers;
} *shares;
#define SHARES	256

struct sleeper {
	_Atomic bool asleep;
	sem_t wake;
};

struct kick_file {
	struct kick_flusher *flusher;
	int fd;
	char name[];
};

/* Bytes start to end; CLOSE to CLOSE: the file is closed after this. */
struct range {
	struct kick_file *file;	/* NULL: the flusher ends after this */
	uint64_t start, end;
};
#define CLOSE	UINT64_MAX

/* Slots of the ring, the first of which hold the ranges, merged. */
struct step {
	struct range *ranges;
	unsigned int slots, nr;
	uint64_t cost;
};

struct kick_flusher {
	struct kick *kick;
	struct kick_flusher *next;
	struct share *share;
	dev_t dev;
	pthread_t thread;
	unsigned int mask;	/* slots of the ring - 1 */

	/* the writer's */
	_Alignas(64) uint64_t given;	/* cost of all that was queued */
	uint64_t limit;			/* given may be, without a look */
	_Atomic unsigned int head;
	unsigned int closes;		/* of head */
	struct kick_stats stats;	/* but for the bytes */

	/* both write these */
	_Alignas(64) struct sleeper writer, flusher;
	_Atomic uint64_t wanted;	/* of done, by a writer that waits */

	/* the flusher's */
	_Alignas(64) _Atomic uint64_t done;	/* cost clean, of given */
	_Atomic int error;		/* errno of the first failure */
	char *failed;			/* the file it was of, set before */
	unsigned int taken;		/* up to head */
	bool last;
	uint64_t writeback_bytes, dropped_bytes;
	struct step steps[STEPS + 1];

	struct range ring[];
};

int kick_flush_and_drop(int fd, uint64_t offset, uint64_t bytes)
{
	const uint64_t page = sysconf(_SC_PAGESIZE);
	uint64_t end = bytes ? (offset + bytes + page - 1) & -page : 0;

	if (sync_file_range(fd, offset, bytes, SYNC_FILE_RANGE_WAIT_BEFORE |
			    SYNC_FILE_RANGE_WRITE |
			    SYNC_FILE_RANGE_WAIT_AFTER) < 0)
		return errno;

	/* Pages written in part go as well: what is dirty of them stays. */
	offset &= -page;
	return posix_fadvise(fd, offset, end ? end - offset : 0,
			     POSIX_FADV_DONTNEED);
}

static void wait_for_wake(struct sleeper *s)
{
	while (sem_wait(&s->wake) < 0)
		; /* a signal */
}

/* Sleep until @condition, which the other makes true before it wakes. */
#define wait_event(sleeper, condition)					\
	do {								\
		atomic_store(&(sleeper)->asleep, true);			\
		if ((condition) &&					\
		    atomic_exchange(&(sleeper)->asleep, false))		\
			break;						\
		wait_for_wake(sleeper);					\
	} while (!(condition))

/* Returns true if it slept. */
static inline bool wake(struct sleeper *s)
{
	if (!s->asleep || !atomic_exchange(&s->asleep, false))
		return false;
	sem_post(&s->wake);
	return true;
}

/* Of the backlog, what this job has. */
static uint64_t part(const struct kick_flusher *f)
{
	return f->kick->backlog / f->share->flushers;
}

/* ---- the flusher ------------------------------------------------------ */

static void set_error(struct kick_flusher *f, const char *name, int err)
{
	if (f->error)
		return;
	f->failed = strdup(name);
	f->error = err;
}

static int compare(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->start < y->start ? -1 : x->start > y->start;
}

/* Sort the ranges of @s and merge those that touch. */
static void merge(struct step *s)
{
	struct range *last = s->ranges, *r;

	qsort(s->ranges, s->nr, sizeof(s->ranges[0]), compare);
	for (r = last + 1; r < s->ranges + s->nr; r++) {
		if (r->file != last->file || r->start > last->end)
			*++last = *r;
		else if (r->end > last->end)
			last->end = r->end;
	}
	s->nr = last + 1 - s->ranges;
}

static inline uint64_t cost(uint64_t bytes)
{
	return bytes > MIN_COST ? bytes : MIN_COST;
}

/* Take queued ranges into @s. Returns true if it is full. */
static bool take(struct kick_flusher *f, struct step *s)
{
	const uint64_t enough = part(f) / STEPS;
	unsigned int head = f->head;
	struct range *last, *r;

	while (f->taken != head) {
		r = &f->ring[f->taken & f->mask];
		if (!s->slots)
			s->ranges = r;
		else if (s->cost >= enough || r == f->ring)
			return true;
		f->taken++;
		s->slots++;
		s->cost += cost(r->end - r->start);
		if (!r->file) {
			f->last = true;
			continue;
		}
		last = &s->ranges[s->nr - 1];
		if (s->nr && r->file == last->file && r->start == last->end)
			last->end = r->end;
		else
			s->ranges[s->nr++] = *r;
	}
	return s->slots && s->cost >= enough;
}

static void start_writeback(struct kick_flusher *f, struct step *s)
{
	struct range *r;

	if (s->nr > 1)
		merge(s);
	for (r = s->ranges; r < s->ranges + s->nr && !f->error; r++) {
		if (r->start == CLOSE)
			continue;
		if (sync_file_range(r->file->fd, r->start, r->end - r->start,
				    SYNC_FILE_RANGE_WRITE) < 0)
			set_error(f, r->file->name, errno);
		else
			f->writeback_bytes += r->end - r->start;
	}
}

/* Wait for the writeback of @s, drop its pages, and make room for others. */
static void finish(struct kick_flusher *f, struct step *s)
{
	struct range *r;
	int err;

	for (r = s->ranges; r < s->ranges + s->nr; r++) {
		if (r->start == CLOSE) {
			if (close(r->file->fd) < 0)
				set_error(f, r->file->name, errno);
			free(r->file);
			continue;
		}
		if (f->error)
			continue;
		err = kick_flush_and_drop(r->file->fd, r->start,
					  r->end - r->start);
		if (err)
			set_error(f, r->file->name, err);
		else
			f->dropped_bytes += r->end - r->start;
	}

	f->done += s->cost;
	if (f->done >= f->wanted)
		wake(&f->writer);
	memset(s, 0, sizeof(*s));
}

/* Write back and drop all that is queued. */
static void work(struct kick_flusher *f)
{
	unsigned int first = 0, open = 0;	/* between: in writeback */
	unsigned int most;
	struct step *s;
	bool full;

	for (;;) {
		s = &f->steps[open % (STEPS + 1)];
		full = take(f, s);
		most = STEPS / f->share->flushers;
		if (most < 2)
			most = 2;
		if (open - first >= (full ? most : 1)) {
			finish(f, &f->steps[first++ % (STEPS + 1)]);
		} else if (s->slots) {
			start_writeback(f, s);
			open++;
		} else {
			break;
		}
	}
}

static void *flusher(void *data)
{
	struct kick_flusher *f = data;

	wait_for_wake(&f->flusher);
	for (;;) {
		work(f);
		if (f->last)
			return NULL;
		wait_event(&f->flusher, f->head != f->taken);
	}
}

/* ---- the writer ------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/* Returns true if it had to wait. */
static bool wait_for_room(struct kick_flusher *f)
{
	bool waited = false;
	uint64_t mine, room;

	for (;;) {
		mine = part(f);
		room = f->done + mine;
		if (f->given <= room) {
			/* Others may come meanwhile. */
			f->limit = f->given + mine / STEPS;
			if (f->limit > room)
				f->limit = room;
			return waited;
		}
		f->wanted = f->given - mine;
		wait_event(&f->writer, f->done >= f->wanted);
		waited = true;
	}
}

/*
 * Queue a range and kick the flusher. There is room: every caller leaves some.
 * Returns true if the flusher had to be woken.
 */
static inline bool queue(struct kick_flusher *f, struct kick_file *file,
			 uint64_t start, uint64_t end)
{
	unsigned int head = f->head;

	f->ring[head & f->mask] = (struct range) { file, start, end };
	f->given += cost(end - start);
	f->head = head + 1;
	return wake(&f->flusher);
}

static void __attribute__((noinline)) throttle(struct kick_flusher *f)
{
	uint64_t start = now_ns();

	if (!wait_for_room(f))
		return;
	f->stats.throttled++;
	f->stats.throttled_ns += now_ns() - start;
}

int kick_write(struct kick_file *file, uint64_t offset, uint64_t bytes)
{
	struct kick_flusher *f = file->flusher;

	if (queue(f, file, offset, offset + bytes))
		f->stats.kicks++;
	if (f->given > f->limit)
		throttle(f);
	return f->error;
}

void kick_close(struct kick_file *file)
{
	struct kick_flusher *f = file->flusher;

	f->closes++;
	queue(f, file, CLOSE, CLOSE);
	wait_for_room(f);
}

static void __attribute__((constructor)) map_shares(void)
{
	shares = mmap(NULL, SHARES * sizeof(*shares), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static struct share *find_share(dev_t dev)
{
	struct share *s;
	uint64_t key;

	if (shares == MAP_FAILED)
		return NULL;
	for (s = shares; s < shares + SHARES; s++) {
		key = 0;
		if (atomic_compare_exchange_strong(&s->dev, &key, dev) ||
		    key == dev)
			return s;
	}
	return NULL;
}

void kick_init(struct kick *k, uint64_t backlog)
{
	memset(k, 0, sizeof(*k));
	k->backlog = backlog;
}

static int start_flusher(struct kick *k, dev_t dev, struct kick_flusher **new)
{
	struct kick_flusher *f;
	size_t slots = 8;
	sigset_t all, old;
	int ret;

	/* What the backlog allows, and a range that the writer waits with. */
	while (slots < k->backlog / MIN_COST + 1)
		slots *= 2;
	f = aligned_alloc(64, sizeof(*f) + slots * sizeof(f->ring[0]));
	if (!f)
		return ENOMEM;
	memset(f, 0, sizeof(*f));
	f->kick = k;
	f->dev = dev;
	f->mask = slots - 1;
	f->flusher.asleep = true;
	sem_init(&f->writer.wake, 0, 0);
	sem_init(&f->flusher.wake, 0, 0);

	ret = ENOMEM;
	f->share = find_share(dev);
	if (!f->share)
		goto free;
	f->share->flushers++;

	/* Signals are the writer's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&f->thread, NULL, flusher, f);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		goto unshare;
	pthread_setname_np(f->thread, "dontcache-kick");

	f->next = k->flushers;
	k->flushers = f;
	*new = f;
	return 0;
unshare:
	f->share->flushers--;
free:
	free(f);
	return ret;
}

int kick_open(struct kick *k, int fd, const char *name,
	      struct kick_file **file)
{
	struct kick_flusher *f;
	struct stat st;
	dev_t dev;
	int ret;

	if (fstat(fd, &st) < 0)
		return errno;
	/* A device's own node may be on any file system. */
	dev = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;

	*file = malloc(sizeof(**file) + strlen(name) + 1);
	if (!*file)
		return ENOMEM;

	for (f = k->flushers; f && f->dev != dev; f = f->next)
		;
	if (!f) {
		ret = start_flusher(k, dev, &f);
		if (ret) {
			free(*file);
			return ret;
		}
	}
	(*file)->flusher = f;
	(*file)->fd = fd;
	strcpy((*file)->name, name);
	return 0;
}

int kick_error(struct kick *k)
{
	struct kick_flusher *f;

	for (f = k->flushers; f && !k->error; f = f->next) {
		k->error = f->error;
		if (k->error)
			k->failed = f->failed;
	}
	return k->error;
}

int kick_exit(struct kick *k, struct kick_stats *stats)
{
	struct kick_flusher *f;

	for (f = k->flushers; f; f = f->next) {
		queue(f, NULL, 0, 0);
		pthread_join(f->thread, NULL);
		f->share->flushers--;
	}
	kick_error(k);

	while ((f = k->flushers)) {
		k->flushers = f->next;
		stats->kicks += f->stats.kicks;
		/* All that was queued, but what closes and ends. */
		stats->kicks_coalesced += f->head - f->closes - 1 -
			f->stats.kicks;
		stats->writeback_bytes += f->writeback_bytes;
		stats->dropped_bytes += f->dropped_bytes;
		stats->throttled += f->stats.throttled;
		stats->throttled_ns += f->stats.throttled_ns;
		if (f->failed != k->failed)
			free(f->failed);
		sem_destroy(&f->writer.wake);
		sem_destroy(&f->flusher.wake);
		free(f);
	}
	return k->error;
}
