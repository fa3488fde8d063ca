// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kick; see kick.h.
 *
 * Writer and flusher share a ring of ranges. The writer alone moves head, the
 * flusher alone moves tail and done, when the ranges before it are clean. The
 * bit is the flusher's state:
 *
 *   writer                              flusher
 *     ring[head++] = range                state = AWAKE
 *     if (exchange(state, ASKED)          take all before head, in steps:
 *                      == ASLEEP)           start writeback of a step,
 *       post(wake)                          wait for the one before, drop it
 *                                         if (state == AWAKE) state = ASLEEP,
 *                                           wait(wake)
 *
 * A range is in the ring before its kick, and the flusher looks at head after
 * it cleared the bit, so no kick is lost: the range is seen, or the bit is set
 * again. Each post answers one ASLEEP, so neither semaphore ever counts above
 * one.
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

/* Ranges that may be queued: 64 MiB in writes of 4 KiB. A power of two. */
#define RING_RANGES	16384U
/* Steps of a full queue. Two are in writeback while the others fill. */
#define STEPS		4
#define STEP_RANGES	(RING_RANGES / STEPS)

/*
 * How many flushers a file system has, in all jobs: mapped when the engine is
 * loaded, before fio forks them.
 */
static struct share {
	_Atomic uint64_t dev;		/* 0: free */
	_Atomic unsigned int flushers;
} *shares;
#define SHARES	256

enum state { ASLEEP, AWAKE, ASKED };

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

struct step {
	unsigned int slots;	/* of the ring */
	uint64_t bytes;		/* of these, before merging */
	unsigned int nr;
	struct range ranges[STEP_RANGES];
};

struct kick_flusher {
	struct kick *kick;
	struct kick_flusher *next;
	struct share *share;
	dev_t dev;
	pthread_t thread;
	sem_t wake, room;

	/* the writer's */
	_Alignas(64) uint64_t given;	/* bytes queued so far */
	struct kick_stats stats;	/* but for the bytes */
	_Atomic unsigned int head;

	/* both write these */
	_Alignas(64) _Atomic int state;
	_Atomic bool waiting;		/* writer, for room */

	/* the flusher's */
	_Alignas(64) _Atomic unsigned int tail;
	_Atomic uint64_t done;		/* bytes clean so far, of given */
	_Atomic int error;		/* errno of the first failure */
	char *failed;			/* the file it was of, set before */
	unsigned int taken;		/* tail, once this is clean */
	bool last;
	uint64_t writeback_bytes, dropped_bytes;
	struct step steps[2];

	struct range ring[RING_RANGES];
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

/* Take the oldest ranges before @head, up to a step, into @s. */
static void take(struct kick_flusher *f, struct step *s, unsigned int head)
{
	uint64_t enough = f->kick->backlog / f->share->flushers / STEPS;
	struct range *last = NULL, *r;

	do {
		r = &f->ring[f->taken++ % RING_RANGES];
		s->slots++;
		if (!r->file) {
			f->last = true;
			break;
		}
		s->bytes += r->end - r->start;
		if (last && r->file == last->file && r->start == last->end) {
			last->end = r->end;
		} else {
			last = &s->ranges[s->nr++];
			*last = *r;
		}
	} while (f->taken != head && s->nr < STEP_RANGES && s->bytes < enough);
	if (s->nr > 1)
		merge(s);
}

static void start_writeback(struct kick_flusher *f, struct step *s)
{
	struct range *r;

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

	f->tail += s->slots;
	f->done += s->bytes;
	s->slots = s->bytes = s->nr = 0;
	if (atomic_exchange(&f->waiting, false))
		sem_post(&f->room);
}

/* Write back and drop what is queued until nothing is asked any more. */
static void work(struct kick_flusher *f)
{
	struct step *now = &f->steps[0], *before = &f->steps[1], *swap;
	unsigned int head;
	int awake;

	do {
		atomic_store(&f->state, AWAKE);
		head = f->head;
		while (f->taken != head) {
			take(f, now, head);
			start_writeback(f, now);
			finish(f, before);
			swap = before;
			before = now;
			now = swap;
		}
		/* While writes go on, a step is always in writeback. */
		if (f->state == AWAKE)
			finish(f, before);
		awake = AWAKE;
	} while (!atomic_compare_exchange_strong(&f->state, &awake, ASLEEP));
}

static void *flusher(void *data)
{
	struct kick_flusher *f = data;

	do {
		sem_wait(&f->wake);
		work(f);
	} while (!f->last);
	return NULL;
}

/* ---- the writer ------------------------------------------------------- */

static inline bool has_room(struct kick_flusher *f)
{
	return (f->given - f->done) * f->share->flushers <= f->kick->backlog &&
		f->head - f->tail < RING_RANGES;
}

static void wait_for_room(struct kick_flusher *f)
{
	do {
		f->waiting = true;
		/* The flusher posts once for each time it finds this set. */
		if (has_room(f) && atomic_exchange(&f->waiting, false))
			return;
		while (sem_wait(&f->room) < 0)
			; /* a signal */
	} while (!has_room(f));
}

/*
 * Queue a range and kick the flusher. There is room: every caller leaves some.
 * Returns true if the flusher had to be woken.
 */
static inline bool queue(struct kick_flusher *f, struct kick_file *file,
			 uint64_t start, uint64_t end)
{
	unsigned int head = f->head;

	f->ring[head % RING_RANGES] = (struct range) { file, start, end };
	f->given += end - start;
	atomic_store_explicit(&f->head, head + 1, memory_order_release);
	if (atomic_exchange(&f->state, ASKED) != ASLEEP)
		return false;
	sem_post(&f->wake);
	return true;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

int kick_write(struct kick_file *file, uint64_t offset, uint64_t bytes)
{
	struct kick_flusher *f = file->flusher;
	uint64_t start;

	if (queue(f, file, offset, offset + bytes))
		f->stats.kicks++;
	else
		f->stats.kicks_coalesced++;

	if (!has_room(f)) {
		start = now_ns();
		wait_for_room(f);
		f->stats.throttled++;
		f->stats.throttled_ns += now_ns() - start;
	}
	return f->error;
}

void kick_close(struct kick_file *file)
{
	struct kick_flusher *f = file->flusher;

	queue(f, file, CLOSE, CLOSE);
	if (!has_room(f))
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
	sigset_t all, old;
	int ret;

	f = aligned_alloc(64, sizeof(*f));
	if (!f)
		return ENOMEM;
	memset(f, 0, sizeof(*f));
	f->kick = k;
	f->dev = dev;
	f->state = ASLEEP;
	sem_init(&f->wake, 0, 0);
	sem_init(&f->room, 0, 0);

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
		stats->kicks_coalesced += f->stats.kicks_coalesced;
		stats->writeback_bytes += f->writeback_bytes;
		stats->dropped_bytes += f->dropped_bytes;
		stats->throttled += f->stats.throttled;
		stats->throttled_ns += f->stats.throttled_ns;
		if (f->failed != k->failed)
			free(f->failed);
		sem_destroy(&f->wake);
		sem_destroy(&f->room);
		free(f);
	}
	return k->error;
}
