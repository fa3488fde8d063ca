// SPDX-License-Identifier: GPL-2.0-only
/* The published measurement on a model; see odsync.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lab/model/odsync.h"

#define BLOCK	4096

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The smallest latency that the part @p of all do not exceed. */
static double percentile(const double *latency, uint64_t nr, double p)
{
	const uint64_t i = ceil(p * nr);

	return latency[i ? i - 1 : 0];
}

int odsync_run(struct model *m, const struct odsync *o, uint64_t seed,
	       struct odsync_result *r)
{
	const uint64_t sectors = BLOCK / m->sector ? BLOCK / m->sector : 1;
	const struct model_request flush = { .op = MODEL_FLUSH };
	struct model_request write = {
		.op = MODEL_WRITE, .fua = true, .nr = sectors,
	};
	uint64_t now = 0, begun, nr = 0, room = 0;
	double *latency = NULL, *more, sum = 0;
	int ret = 0;

	while (now < o->seconds * 1e9) {
		if (nr == room) {
			room = room ? 2 * room : 1 << 16;
			more = realloc(latency, room * sizeof(*latency));
			if (!more) {
				ret = -ENOMEM;
				goto out;
			}
			latency = more;
		}
		if (o->span)
			write.sector = (uint64_t)(model_random(&seed) *
						  (o->span / BLOCK)) * sectors;
		begun = now;
		ret = model_submit(m, now, &write, &now);
		if (!ret && o->flush)
			ret = model_submit(m, now, &flush, &now);
		if (ret)
			goto out;
		latency[nr] = (now - begun) / 1e3;
		sum += latency[nr++];
		write.sector += sectors;
	}
	qsort(latency, nr, sizeof(*latency), compare);
	*r = (struct odsync_result){
		.writes = nr,
		.iops = nr / (now / 1e9),
		.mean = sum / nr,
		.p50 = percentile(latency, nr, 0.5),
		.p99 = percentile(latency, nr, 0.99),
		.p999 = percentile(latency, nr, 0.999),
	};
out:
	free(latency);
	return ret;
}
