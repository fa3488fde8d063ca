// SPDX-License-Identifier: GPL-2.0-only
/*
 * The write cache of a modelled device, between the host and a medium.
 *
 * A write that is not FUA is done when the volatile cache has it. A FUA write
 * is done when the part of the cache that survives a power cut has it, or,
 * without one, the medium. A flush is done when the medium has all that was
 * dirty, in either part: that is what SYNCHRONIZE CACHE is documented to do
 * and what the published measurement shows (st20000nm007d.conf).
 *
 * Destaging starts when three quarters of a part are dirty or the device has
 * been idle for a while. It is computed when its start time is reached, and
 * ahead of time only where a request has to wait for it, so what comes later
 * can't change what was promised.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/model/model.h"

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* splitmix64, public domain, Sebastiano Vigna */
double model_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return ((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int add_event(struct model *m, uint64_t time, uint64_t start,
		     uint64_t nr, enum model_source source)
{
	struct model_event *e = malloc(sizeof(*e)), *before;

	if (!e)
		return -ENOMEM;
	*e = (struct model_event){
		.time = time,
		.start = start,
		.nr = nr,
		.seq = m->seq,
		.source = source,
	};
	before = TAILQ_LAST(&m->events, model_event_list);
	while (before && before->time > time)
		before = TAILQ_PREV(before, model_event_list, list);
	if (before)
		TAILQ_INSERT_AFTER(&m->events, before, e, list);
	else
		TAILQ_INSERT_HEAD(&m->events, e, list);
	m->in_flight[source] += nr;
	m->committed = m->seq;
	return 0;
}

static void drop_event(struct model *m, struct model_event *e)
{
	TAILQ_REMOVE(&m->events, e, list);
	m->in_flight[e->source] -= e->nr;
	free(e);
}

/* Write out the run that the medium prefers, from @t on. */
static int destage(struct model *m, uint64_t t)
{
	struct dirty_run *r;
	uint64_t start, nr, end;
	bool safe;
	int ret;

	start = m->medium->choose(m, t, &nr);
	r = dirty_from(&m->dirty, start);
	safe = r->safe;
	ret = dirty_remove(&m->dirty, start, nr);
	if (ret)
		return ret;
	end = m->medium->access(m, t, start, nr, true);
	m->stats.destages++;
	m->stats.destaged_sectors += nr;
	return add_event(m, end, start, nr, safe ? FROM_SAFE : FROM_VOLATILE);
}

static bool is_dirty(const struct model *m)
{
	return m->dirty.sectors[false] || m->dirty.sectors[true];
}

static bool nearly_full(const struct model *m, bool safe)
{
	return m->dirty.sectors[safe] > m->cache[safe] / 4 * 3;
}

/* Start what the device would have started by @t; @force: without delay. */
static int work(struct model *m, uint64_t t, bool force)
{
	uint64_t start;
	int ret;

	while (is_dirty(m)) {
		start = later(m->medium->ready(m), m->changed);
		if (!force && !nearly_full(m, false) && !nearly_full(m, true))
			start = later(start, m->asked + m->idle);
		if (start > t)
			break;
		ret = destage(m, start);
		if (ret)
			return ret;
	}
	return 0;
}

int model_advance(struct model *m, uint64_t now)
{
	struct model_event *e;
	int ret = work(m, now, false);

	while (!ret && (e = TAILQ_FIRST(&m->events)) && e->time <= now) {
		if (m->persist)
			m->persist(m->persist_data, e->start, e->nr, e->seq);
		drop_event(m, e);
	}
	return ret;
}

/* Sectors of the cache that are held at @t, and when the next are let go. */
static uint64_t held(struct model *m, bool safe, uint64_t t, uint64_t *next)
{
	const enum model_source source = safe ? FROM_SAFE : FROM_VOLATILE;
	uint64_t gone = 0;
	struct model_event *e;

	*next = m->medium->ready(m);
	TAILQ_FOREACH(e, &m->events, list) {
		if (e->source != source)
			continue;
		if (e->time > t) {
			*next = e->time;
			break;
		}
		gone += e->nr;
	}
	return m->dirty.sectors[safe] + m->in_flight[source] - gone;
}

/* Wait from *@t on until the cache has room for @nr more. */
static int wait_for_room(struct model *m, uint64_t *t, uint64_t nr, bool safe)
{
	bool waited = false;
	uint64_t next;
	int ret;

	while (held(m, safe, *t, &next) + nr > m->cache[safe]) {
		ret = work(m, *t, true);
		if (ret)
			return ret;
		held(m, safe, *t, &next);
		*t = later(next, *t + 1);
		waited = true;
	}
	m->stats.waits += waited;
	return 0;
}

/* @t: when the device has command and data. */
static int do_write(struct model *m, uint64_t t, const struct model_request *rq,
		    uint64_t *done)
{
	int ret;

	m->seq++;
	m->stats.writes++;
	m->stats.write_sectors += rq->nr;
	m->stats.fua_writes += rq->fua;

	/* What can't be cached goes straight to the medium. */
	if (rq->nr > m->cache[rq->fua]) {
		ret = dirty_remove(&m->dirty, rq->sector, rq->nr);
		if (ret)
			return ret;
		t = later(t + m->command, m->medium->ready(m));
		*done = m->medium->access(m, t, rq->sector, rq->nr, true);
		return add_event(m, *done, rq->sector, rq->nr, FROM_HOST);
	}

	ret = wait_for_room(m, &t, rq->nr, rq->fua);
	if (!ret)
		ret = dirty_add(&m->dirty, rq->sector, rq->nr, rq->fua);
	if (ret)
		return ret;
	m->changed = t;
	*done = t + m->command;
	return rq->fua ? add_event(m, *done, rq->sector, rq->nr, FROM_HOST) : 0;
}

static int do_flush(struct model *m, uint64_t t, uint64_t *done)
{
	struct model_event *last;
	int ret;

	t += m->flush;
	m->stats.flushes++;
	m->stats.empty_flushes += !is_dirty(m);
	while (is_dirty(m)) {
		ret = destage(m, later(t, m->medium->ready(m)));
		if (ret)
			return ret;
	}
	last = TAILQ_LAST(&m->events, model_event_list);
	*done = last ? later(t, last->time) : t;
	return 0;
}

/*
 * The link is kept busy in the order of the requests, each direction by itself:
 * when @nr sectors are through that could be sent from @now on.
 */
static uint64_t transfer(struct model *m, enum model_op op, uint64_t now,
			 uint64_t nr)
{
	m->link_free[op] = later(now, m->link_free[op]) +
			   llrint(m->link * m->sector * nr);
	return m->link_free[op];
}

static uint64_t do_read(struct model *m, uint64_t now,
			const struct model_request *rq)
{
	const uint64_t sent = transfer(m, MODEL_READ, now, rq->nr);
	uint64_t t = now + m->command;

	m->stats.reads++;
	m->stats.read_sectors += rq->nr;
	if (!dirty_covers(&m->dirty, rq->sector, rq->nr)) {
		t = later(t, m->medium->ready(m));
		t = m->medium->access(m, t, rq->sector, rq->nr, false);
	}
	/* Others don't wait for this one's data to come from the medium. */
	return later(sent, t + llrint(m->link * m->sector * rq->nr));
}

int model_submit(struct model *m, uint64_t now,
		 const struct model_request *rq, uint64_t *done)
{
	int ret = model_advance(m, now);

	if (ret)
		return ret;
	switch (rq->op) {
	case MODEL_READ:
		*done = do_read(m, now, rq);
		break;
	case MODEL_WRITE:
		ret = do_write(m, transfer(m, MODEL_WRITE, now, rq->nr), rq,
			       done);
		break;
	case MODEL_FLUSH:
		ret = do_flush(m, now, done);
		break;
	}
	m->asked = now;
	return ret;
}

int model_cut(struct model *m, uint64_t now)
{
	struct model_event *e, *next;
	struct dirty kept;
	struct dirty_run *r;
	int ret = model_advance(m, now);

	dirty_init(&kept);
	/* What was leaving the safe part has not left it. */
	for (e = TAILQ_FIRST(&m->events); e; e = next) {
		next = TAILQ_NEXT(e, list);
		if (!ret && e->source == FROM_SAFE)
			ret = dirty_add(&kept, e->start, e->nr, true);
		drop_event(m, e);
	}
	while (!ret && is_dirty(m)) {
		r = dirty_from(&m->dirty, 0);
		if (r->safe)
			ret = dirty_add(&kept, r->start, r->nr, true);
		if (!ret)
			ret = dirty_remove(&m->dirty, r->start, r->nr);
	}
	dirty_exit(&m->dirty);
	m->dirty = kept;
	m->medium->reset(m, now);
	m->changed = now;
	m->link_free[MODEL_READ] = m->link_free[MODEL_WRITE] = now;
	return ret;
}

/* A cache's size in sectors. */
static uint64_t cache_size(struct model *m, struct config *c, const char *name)
{
	return config_number(c, name, "MiB", 0, 1 << 20) * (1 << 20) /
	       m->sector;
}

void model_cache_init(struct model *m, struct config *c)
{
	m->command = 1e3 * config_number(c, "command", "us", 0, 1e6);
	m->flush = 1e3 * config_number(c, "flush", "us", 0, 1e6);
	m->link = config_number(c, "link", "MB/s", 1, 1e6);
	if (m->link)
		m->link = 1e3 / m->link;
	m->cache[false] = cache_size(m, c, "cache");
	m->cache[true] = cache_size(m, c, "safe_cache");
	m->idle = 1e6 * config_number(c, "idle", "ms", 0, 1e6);
}

struct model *model_new(struct config *c, uint64_t seed)
{
	static const struct medium *const media[] = {
		&hdd_medium, &nvme_medium, &null_medium,
	};
	struct model *m = calloc(1, sizeof(*m));
	const char *kind;
	size_t i;

	if (!m) {
		strcpy(c->error, "out of memory");
		return NULL;
	}
	dirty_init(&m->dirty);
	TAILQ_INIT(&m->events);
	m->random = seed;

	kind = config_word(c, "model");
	for (i = 0; kind && i < sizeof(media) / sizeof(media[0]); i++)
		if (!strcmp(media[i]->name, kind))
			m->medium = media[i];
	if (!m->medium) {
		if (kind)
			snprintf(c->error, sizeof(c->error),
				 "model = %s: it has to be hdd, nvme or null",
				 kind);
		goto err_free;
	}

	m->sector = config_number(c, "sector", "bytes", 512, 65536);
	m->capacity = config_number(c, "capacity", "bytes", 1 << 20, 0x1p62);
	if (c->error[0])
		goto err_free;
	if (m->sector & (m->sector - 1)) {
		strcpy(c->error, "sector: it has to be a power of two");
		goto err_free;
	}
	m->capacity /= m->sector;
	if (m->medium->init(m, c)) {
		strcpy(c->error, "out of memory");
		goto err_exit;
	}
	if (config_finish(c))
		goto err_exit;
	return m;

err_exit:
	m->medium->exit(m);
err_free:
	free(m);
	return NULL;
}

void model_free(struct model *m)
{
	struct model_event *e;

	while ((e = TAILQ_FIRST(&m->events)))
		drop_event(m, e);
	dirty_exit(&m->dirty);
	m->medium->exit(m);
	free(m);
}

/*
 * No medium at all: whatever is asked takes the same time. What a guest
 * measures beyond it is the guest's own overhead.
 */
static int null_init(struct model *m, struct config *c)
{
	m->command = 1e3 * config_number(c, "command", "us", 0, 1e6);
	m->flush = m->command;
	m->cache[false] = m->cache[true] = UINT64_MAX;
	return 0;
}

static void null_exit(struct model *m)
{
}

static void null_reset(struct model *m, uint64_t now)
{
}

static uint64_t null_ready(const struct model *m)
{
	return 0;
}

static uint64_t null_access(struct model *m, uint64_t t, uint64_t sector,
			    uint64_t nr, bool write)
{
	return t;
}

static uint64_t null_choose(struct model *m, uint64_t t, uint64_t *nr)
{
	struct dirty_run *r = dirty_from(&m->dirty, 0);

	*nr = r->nr;
	return r->start;
}

const struct medium null_medium = {
	.name = "null",
	.init = null_init,
	.exit = null_exit,
	.reset = null_reset,
	.ready = null_ready,
	.access = null_access,
	.choose = null_choose,
};
