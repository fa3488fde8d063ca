// SPDX-License-Identifier: GPL-2.0-only
/*
 * A hard disk's medium: where the heads and the platters are, and how long it
 * takes until a sector passes under a head.
 *
 * Tracks are numbered through cylinders, then heads; zones of cylinders have
 * fewer sectors a track from the outside in. Each track begins as much later
 * than the one before it as the heads need, so that a sequential transfer goes
 * on without losing a revolution. To the next track or another head it takes
 * track_switch, and further, over the part d of the stroke,
 * settle + a sqrt(d) + b d (Ruemmler and Wilkes, "An introduction to disk
 * drive modeling", IEEE Computer 27(3), 1994, has the two parts one after the
 * other); a and b follow from the average and the full seek. Then the sector
 * has to come round.
 *
 * From the cache the heads sweep over the disk in one direction, and of the
 * next destage_window runs in it that comes first which can be reached first.
 *
 * A write after a seek fails with a probability that grows with the distance,
 * because the head is not yet on the middle of the track, and succeeds one
 * revolution later.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/model/model.h"

/* ns that a track begins later than the heads need, against rounding */
#define SKEW_MARGIN	1e4

struct zone {
	uint64_t sector;	/* first of the zone */
	uint64_t track;		/* likewise */
	uint64_t per_track;	/* sectors */
};

struct hdd {
	double revolution;	/* ns */
	double track_switch;	/* ns */
	double settle, a, b;	/* ns, of the seek */
	double cylinders;
	unsigned int heads;
	unsigned int window;
	double retry_slope, retry_max;

	struct zone *zones;
	unsigned int nr_zones;

	uint64_t track;		/* that the heads are on */
	uint64_t sweep;		/* the sector from which they go on */
	uint64_t free;		/* when they are */
};

/* A sector, as far as the mechanics are concerned. */
struct place {
	uint64_t track;
	double angle;		/* ns from the index to its beginning */
	double sector;		/* ns it takes to pass */
	uint64_t left;		/* sectors from it to the end of the track */
};

static struct place place_of(const struct hdd *h, uint64_t sector)
{
	unsigned int low = 0, high = h->nr_zones, middle;
	const struct zone *z;
	struct place p;
	uint64_t track, on_track;

	while (high - low > 1) {
		middle = (low + high) / 2;
		if (h->zones[middle].sector <= sector)
			low = middle;
		else
			high = middle;
	}
	z = &h->zones[low];
	track = (sector - z->sector) / z->per_track;
	on_track = (sector - z->sector) % z->per_track;

	p.track = z->track + track;
	p.sector = h->revolution / z->per_track;
	p.angle = on_track * p.sector +
		  p.track * (h->track_switch + SKEW_MARGIN);
	p.left = z->per_track - on_track;
	return p;
}

/* The part of the stroke between the heads and @track. */
static double distance(const struct hdd *h, uint64_t track)
{
	const double from = h->track / h->heads, to = track / h->heads;

	return fabs(to - from) / h->cylinders;
}

static double seek(const struct hdd *h, uint64_t track)
{
	const double d = distance(h, track);

	if (track == h->track)
		return 0;
	if (track / h->heads == h->track / h->heads || track == h->track + 1)
		return h->track_switch;
	return h->settle + h->a * sqrt(d) + h->b * d;
}

/* From @t until the head is at the beginning of the sector at @p. */
static double position(const struct hdd *h, double t, const struct place *p)
{
	const double moved = seek(h, p->track);
	double wait = fmod(p->angle - (t + moved), h->revolution);

	return moved + (wait < 0 ? wait + h->revolution : wait);
}

static void hdd_reset(struct model *m, uint64_t now)
{
	struct hdd *h = m->private;

	h->free = now;
}

static uint64_t hdd_ready(const struct model *m)
{
	const struct hdd *h = m->private;

	return h->free;
}

static uint64_t hdd_access(struct model *m, uint64_t from, uint64_t sector,
			   uint64_t nr, bool write)
{
	struct hdd *h = m->private;
	double t = from, retry;
	struct place p;
	uint64_t part;

	for (; nr; nr -= part, sector += part) {
		p = place_of(h, sector);
		part = nr < p.left ? nr : p.left;
		t += position(h, t, &p);
		if (write && p.track != h->track) {
			retry = fmin(h->retry_slope * distance(h, p.track),
				     h->retry_max);
			if (model_random(&m->random) < retry) {
				t += h->revolution;
				m->stats.retries++;
			}
		}
		t += part * p.sector;
		h->track = p.track;
	}
	h->sweep = sector;
	h->free = ceil(t);
	return h->free;
}

static uint64_t hdd_choose(struct model *m, uint64_t t, uint64_t *nr)
{
	struct hdd *h = m->private;
	struct dirty_run *first = dirty_from(&m->dirty, h->sweep), *r = first;
	double best = INFINITY, time;
	uint64_t chosen = 0;
	struct place p;
	unsigned int i;

	for (i = 0; i < h->window; i++) {
		p = place_of(h, r->start);
		time = position(h, t, &p);
		if (time < best) {
			best = time;
			chosen = r->start;
			*nr = r->nr < p.left ? r->nr : p.left;
		}
		r = dirty_next(&m->dirty, r);
		if (r == first)
			break;
	}
	return chosen;
}

/*
 * Cut the disk into zones, each of as many cylinders. The rates, in MB/s, are
 * those of long transfers, in which each track has its switch to the next.
 */
static int make_zones(struct model *m, struct hdd *h, double outer,
		      double inner)
{
	const double track = h->revolution + h->track_switch + SKEW_MARGIN;
	const double sectors_per_rate = track / 1e3 / m->sector;
	uint64_t sector = 0, first = 0, end;
	unsigned int i;
	double rate;

	h->zones = calloc(h->nr_zones, sizeof(*h->zones));
	if (!h->zones)
		return -ENOMEM;
	h->cylinders = ceil(m->capacity / (h->heads * sectors_per_rate *
					   (outer + inner) / 2));
	for (i = 0; i < h->nr_zones; i++) {
		rate = outer + (inner - outer) * (i + 0.5) / h->nr_zones;
		end = llrint(h->cylinders * (i + 1) / h->nr_zones) * h->heads;
		h->zones[i] = (struct zone){
			.sector = sector,
			.track = first,
			.per_track = fmax(1, rate * sectors_per_rate),
		};
		sector += (end - first) * h->zones[i].per_track;
		first = end;
	}
	return 0;
}

static int hdd_init(struct model *m, struct config *c)
{
	struct hdd *h = calloc(1, sizeof(*h));
	double average, full, outer, inner;

	if (!h)
		return -ENOMEM;
	m->private = h;
	model_cache_init(m, c);
	h->revolution = config_number(c, "speed", "rpm", 100, 100000);
	h->heads = config_number(c, "heads", "", 1, 64);
	h->nr_zones = config_number(c, "zones", "", 1, 1000);
	outer = config_number(c, "outer_rate", "MB/s", 1, 10000);
	inner = config_number(c, "inner_rate", "MB/s", 1, 10000);
	h->track_switch = 1e3 * config_number(c, "track_switch", "us", 0, 1e5);
	h->settle = 1e3 * config_number(c, "settle", "us", 0, 1e5);
	average = 1e3 * config_number(c, "seek_average", "us", 0, 1e6);
	full = 1e3 * config_number(c, "seek_full", "us", 0, 1e6);
	h->window = config_number(c, "destage_window", "", 1, 1 << 20);
	h->retry_slope = config_number(c, "retry_slope", "", 0, 1e6);
	h->retry_max = config_number(c, "retry_max", "", 0, 1);
	if (c->error[0])
		return 0;

	h->revolution = 60e9 / h->revolution;
	/*
	 * Over two random places of the stroke the mean of sqrt(d) is 8/15,
	 * that of d is 1/3.
	 */
	h->a = ((average - h->settle) - (full - h->settle) / 3) /
	       (8.0 / 15 - 1.0 / 3);
	h->b = full - h->settle - h->a;
	/* Else a longer way would take less, and some way less than nothing. */
	if (h->a < 0 || h->a / 2 + h->b < 0) {
		strcpy(c->error,
		       "seek_average: less settle it has to be between 1/3 and 11/15 of seek_full less settle");
		return 0;
	}
	return make_zones(m, h, outer, inner);
}

static void hdd_exit(struct model *m)
{
	struct hdd *h = m->private;

	if (h)
		free(h->zones);
	free(h);
}

const struct medium hdd_medium = {
	.name = "hdd",
	.rotational = true,
	.init = hdd_init,
	.exit = hdd_exit,
	.reset = hdd_reset,
	.ready = hdd_ready,
	.access = hdd_access,
	.choose = hdd_choose,
};
