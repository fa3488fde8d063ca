/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The published measurement of O_DSYNC writes, carried out on a model in its
 * own time: 4 KiB writes, one at a time, each with FUA and, as Linux does up
 * to 7.3, each followed by a flush.
 */
#ifndef DURABENCH_LAB_ODSYNC_H
#define DURABENCH_LAB_ODSYNC_H

#include "lab/model/model.h"

struct odsync {
	bool flush;		/* after each write */
	uint64_t span;		/* bytes; 0: sequential from the beginning */
	double seconds;
};

/* Latencies in microseconds. */
struct odsync_result {
	uint64_t writes;
	double iops, mean, p50, p99, p999;
};

/* Returns 0 or -ENOMEM. */
int odsync_run(struct model *m, const struct odsync *o, uint64_t seed,
	       struct odsync_result *r);

#endif
