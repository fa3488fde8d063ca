/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The law of a modelled storage device: when a request is done, and what would
 * survive if the power failed. No clock, no I/O and no data are in it: the
 * time comes with each call, in nanoseconds from when the device was switched
 * on, and nothing but the calls, their times and the seed decides the result.
 *
 * What Linux asks of a device with a volatile write cache (Documentation/
 * block/writeback_cache_control.rst) is three things, which cost differently:
 * a write is done when the cache has it, a FUA write when it is durable, and a
 * flush when all that was written before it is durable. model.c is this cache,
 * the same for all devices; the medium behind it is in hdd.c and nvme.c.
 */
#ifndef DURABENCH_LAB_MODEL_H
#define DURABENCH_LAB_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/queue.h>

#include "lab/model/config.h"
#include "lab/model/dirty.h"

enum model_op {
	MODEL_READ,
	MODEL_WRITE,
	MODEL_FLUSH,
};

struct model_request {
	enum model_op op;
	bool fua;		/* of a write */
	uint64_t sector, nr;	/* sectors of the device, any touched */
};

/* What the device did. Times and orders of requests don't matter to these. */
struct model_stats {
	uint64_t reads, read_sectors;
	uint64_t writes, write_sectors;	/* FUA writes among them */
	uint64_t fua_writes, flushes;
	uint64_t empty_flushes;		/* nothing was dirty */
	uint64_t destages, destaged_sectors;	/* from cache to medium */
	uint64_t waits;			/* writes that found the cache full */
	uint64_t retries;		/* revolutions lost: hdd.c */
};

/*
 * Sectors that become durable at a time. Those that come from the cache hold
 * their place in it until then.
 */
enum model_source { FROM_VOLATILE, FROM_SAFE, FROM_HOST };

struct model_event {
	TAILQ_ENTRY(model_event) list;
	uint64_t time;
	uint64_t start, nr;	/* sectors */
	uint64_t seq;		/* of the last write that this includes */
	enum model_source source;
};

struct model;

/* A kind of medium. */
struct medium {
	const char *name;
	bool rotational;

	/* Take the parameters; config_finish() tells of errors. 0 or -errno. */
	int (*init)(struct model *m, struct config *c);
	void (*exit)(struct model *m);

	/* It was switched off and is on again at @now: it does nothing. */
	void (*reset)(struct model *m, uint64_t now);

	/* When can it begin with something more? */
	uint64_t (*ready)(const struct model *m);

	/* Transfer from @t on; returns when that is done. */
	uint64_t (*access)(struct model *m, uint64_t t, uint64_t sector,
			   uint64_t nr, bool write);

	/*
	 * Of the dirty sectors, of which there are some, the first one and
	 * the number of those to write next, at @t. They are of one run.
	 */
	uint64_t (*choose)(struct model *m, uint64_t t, uint64_t *nr);
};

extern const struct medium hdd_medium, nvme_medium, null_medium;

struct model {
	const struct medium *medium;
	void *private;		/* the medium's */

	uint64_t capacity;	/* sectors */
	uint32_t sector;	/* bytes */
	uint64_t command;	/* ns for a read or write, besides the rest */
	uint64_t flush;		/* ns for a flush, likewise */
	double link;		/* ns a byte takes between host and device */
	uint64_t cache[2];	/* sectors that are held: volatile, safe */
	uint64_t idle;		/* ns without a request before destaging */

	/* Told for each time at which sectors became durable; may be NULL. */
	void (*persist)(void *data, uint64_t start, uint64_t nr, uint64_t seq);
	void *persist_data;

	struct dirty dirty;
	TAILQ_HEAD(model_event_list, model_event) events;	/* by time */
	uint64_t in_flight[3];	/* sectors in events, by source */
	uint64_t link_free[2];	/* by MODEL_READ, MODEL_WRITE: when it is */
	uint64_t changed;	/* when the cache last got something */
	uint64_t asked;		/* when the last request came */
	uint64_t seq;		/* of the last write */
	uint64_t committed;	/* highest seq of an event so far */
	uint64_t random;	/* state of model_random() */
	struct model_stats stats;
};

/*
 * Make a device of what @c says (its "model" names the kind). Returns it, or
 * NULL with c->error set.
 */
struct model *model_new(struct config *c, uint64_t seed);
void model_free(struct model *m);

/*
 * A request that comes at @now, which no call may turn back. *@done is when
 * it completes. Returns 0 or -ENOMEM. For the write that this was, m->seq is
 * its number, and before the call m->committed tells whether an older write
 * of the same sectors may still be on its way to the medium.
 */
int model_submit(struct model *m, uint64_t now,
		 const struct model_request *rq, uint64_t *done);

/* Let the time pass: the device works, what becomes durable is told. */
int model_advance(struct model *m, uint64_t now);

/*
 * The power fails at @now and comes back. The cache forgets what is volatile
 * and what was on its way. Returns 0 or -ENOMEM.
 */
int model_cut(struct model *m, uint64_t now);

/* For a medium's init: the parameters of the cache and of the host's link. */
void model_cache_init(struct model *m, struct config *c);

/* From 0 to below 1, from the seed. */
double model_random(uint64_t *state);

#endif
