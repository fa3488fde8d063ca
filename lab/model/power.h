/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The power of a modelled device: cut at a given moment, when the device
 * forgets what was not durable, and switched on again. Whoever cuts it asks by
 * a socket, in lines:
 *
 *	cut TIME SEED SURVIVE	at CLOCK_MONOTONIC TIME, in ns: what was not
 *				durable is lost by SEED, each sector kept with
 *				probability SURVIVE; answers "off SECTORS",
 *				those that are older now than before
 *	on			answers "on"
 *
 * and gets "error WHY" for anything else. While it is off, and for all that was
 * not done when it went off, the device answers with an I/O error.
 */
#ifndef DURABENCH_LAB_POWER_H
#define DURABENCH_LAB_POWER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "lab/model/model.h"
#include "lab/model/store.h"

struct power {
	struct model *model;
	struct store *store;
	uint64_t start;		/* of the model's time, CLOCK_MONOTONIC */

	pthread_mutex_t lock;	/* of the model, the store and what follows */
	pthread_cond_t drained;	/* no request is there */
	unsigned int requests;
	bool off;
	uint64_t cut;		/* when it went off, in the model's time */
};

#define POWER_INIT {						\
	.lock = PTHREAD_MUTEX_INITIALIZER,			\
	.drained = PTHREAD_COND_INITIALIZER,			\
}

/* CLOCK_MONOTONIC in ns: the time, and sleeping until then. */
uint64_t power_clock(void);
void power_sleep(uint64_t until);

/* A request comes, under the lock. Returns 0, or -EIO with the power off. */
int power_begin(struct power *p);

/*
 * The request that was to be done at @done ends, under the lock. Returns 0, or
 * -EIO if the power failed before.
 */
int power_end(struct power *p, uint64_t done);

/*
 * Cut the power at once (store_cut() has @seed and @survive). *@lost: sectors
 * that have an older version. Returns 0, -EALREADY or -ENOMEM.
 */
int power_cut(struct power *p, uint64_t seed, double survive, uint64_t *lost);

/* Once all requests that the cut left are answered, switch on again. */
void power_on(struct power *p);

/*
 * Carry out one line and write the answer, a line too, to @answer of @size
 * bytes. Waits for the moment of a cut.
 */
void power_command(struct power *p, const char *line, char *answer,
		   size_t size);

/*
 * Listen to the socket @path, which is made new, and carry out what one client
 * after the other says, from then on. Returns 0 or -errno.
 */
int power_listen(struct power *p, const char *path);

#endif
