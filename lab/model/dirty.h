/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which sectors a device's write cache holds and the medium does not have yet:
 * runs of sectors, in the order of their addresses. A sector is safe if a
 * power cut would not lose it (a cache that survives one), else volatile.
 * Neighbours of one kind are one run.
 */
#ifndef DURABENCH_LAB_DIRTY_H
#define DURABENCH_LAB_DIRTY_H

#include <stdbool.h>
#include <stdint.h>

#include <bsd/sys/tree.h>

struct dirty_run {
	RB_ENTRY(dirty_run) node;
	uint64_t start, nr;	/* sectors */
	bool safe;
};

RB_HEAD(dirty_tree, dirty_run);

struct dirty {
	struct dirty_tree tree;
	uint64_t sectors[2];	/* volatile, safe */
};

void dirty_init(struct dirty *d);
void dirty_exit(struct dirty *d);

/* The sectors are dirty now, of this kind. Returns 0 or -ENOMEM. */
int dirty_add(struct dirty *d, uint64_t start, uint64_t nr, bool safe);

/* The sectors are clean now. Returns 0 or -ENOMEM (and then they are not). */
int dirty_remove(struct dirty *d, uint64_t start, uint64_t nr);

/* Are all of these sectors dirty? */
bool dirty_covers(struct dirty *d, uint64_t start, uint64_t nr);

/*
 * The first run that reaches beyond @sector, else the first of all; NULL only
 * if there is none. And the one after @r, which is the first after the last.
 */
struct dirty_run *dirty_from(struct dirty *d, uint64_t sector);
struct dirty_run *dirty_next(struct dirty *d, struct dirty_run *r);

#endif
