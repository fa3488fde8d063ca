// SPDX-License-Identifier: GPL-2.0-only
/* The dirty sectors of a write cache; see dirty.h. */
#include <errno.h>
#include <stdlib.h>

#include "lab/model/dirty.h"

static int compare(const struct dirty_run *a, const struct dirty_run *b)
{
	return a->start < b->start ? -1 : a->start > b->start;
}

RB_PROTOTYPE(dirty_tree, dirty_run, node, compare)
RB_GENERATE(dirty_tree, dirty_run, node, compare)

static uint64_t end_of(const struct dirty_run *r)
{
	return r->start + r->nr;
}

void dirty_init(struct dirty *d)
{
	RB_INIT(&d->tree);
	d->sectors[false] = d->sectors[true] = 0;
}

static void drop(struct dirty *d, struct dirty_run *r)
{
	RB_REMOVE(dirty_tree, &d->tree, r);
	free(r);
}

void dirty_exit(struct dirty *d)
{
	struct dirty_run *r;

	while ((r = RB_MIN(dirty_tree, &d->tree)))
		drop(d, r);
	dirty_init(d);
}

/* The first run that ends beyond @sector, or NULL. */
static struct dirty_run *beyond(struct dirty *d, uint64_t sector)
{
	struct dirty_run key = { .start = sector }, *r, *before;

	r = RB_NFIND(dirty_tree, &d->tree, &key);
	before = r ? RB_PREV(dirty_tree, &d->tree, r) :
		     RB_MAX(dirty_tree, &d->tree);
	return before && end_of(before) > sector ? before : r;
}

/* Remove sectors; @spare becomes the second half of a run cut in two. */
static void carve(struct dirty *d, uint64_t start, uint64_t nr,
		  struct dirty_run **spare)
{
	const uint64_t end = start + nr;
	struct dirty_run *r, *next;
	uint64_t from, to;

	for (r = beyond(d, start); r && r->start < end; r = next) {
		next = RB_NEXT(dirty_tree, &d->tree, r);
		from = r->start > start ? r->start : start;
		to = end_of(r) < end ? end_of(r) : end;
		d->sectors[r->safe] -= to - from;

		if (to < end_of(r) && from > r->start) {
			struct dirty_run *half = *spare;

			*spare = NULL;
			half->start = to;
			half->nr = end_of(r) - to;
			half->safe = r->safe;
			r->nr = from - r->start;
			RB_INSERT(dirty_tree, &d->tree, half);
		} else if (to < end_of(r)) {
			/* Its place among the others stays the same. */
			r->nr = end_of(r) - to;
			r->start = to;
		} else if (from > r->start) {
			r->nr = from - r->start;
		} else {
			drop(d, r);
		}
	}
}

int dirty_remove(struct dirty *d, uint64_t start, uint64_t nr)
{
	struct dirty_run *spare = malloc(sizeof(*spare));

	if (!spare)
		return -ENOMEM;
	carve(d, start, nr, &spare);
	free(spare);
	return 0;
}

int dirty_add(struct dirty *d, uint64_t start, uint64_t nr, bool safe)
{
	struct dirty_run *r, *spare, *other;

	r = malloc(sizeof(*r));
	spare = malloc(sizeof(*spare));
	if (!r || !spare) {
		free(r);
		free(spare);
		return -ENOMEM;
	}
	carve(d, start, nr, &spare);
	free(spare);

	r->start = start;
	r->nr = nr;
	r->safe = safe;
	RB_INSERT(dirty_tree, &d->tree, r);
	d->sectors[safe] += nr;

	other = RB_NEXT(dirty_tree, &d->tree, r);
	if (other && other->safe == safe && other->start == end_of(r)) {
		r->nr += other->nr;
		drop(d, other);
	}
	other = RB_PREV(dirty_tree, &d->tree, r);
	if (other && other->safe == safe && end_of(other) == r->start) {
		other->nr += r->nr;
		drop(d, r);
	}
	return 0;
}

bool dirty_covers(struct dirty *d, uint64_t start, uint64_t nr)
{
	const uint64_t end = start + nr;
	struct dirty_run *r;

	for (r = beyond(d, start); r && r->start <= start;
	     r = RB_NEXT(dirty_tree, &d->tree, r)) {
		start = end_of(r);
		if (start >= end)
			return true;
	}
	return false;
}

struct dirty_run *dirty_from(struct dirty *d, uint64_t sector)
{
	struct dirty_run *r = beyond(d, sector);

	return r ? r : RB_MIN(dirty_tree, &d->tree);
}

struct dirty_run *dirty_next(struct dirty *d, struct dirty_run *r)
{
	r = RB_NEXT(dirty_tree, &d->tree, r);
	return r ? r : RB_MIN(dirty_tree, &d->tree);
}
