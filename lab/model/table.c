// SPDX-License-Identifier: GPL-2.0-only
/*
 * durabench-model-table: what the published measurement of O_DSYNC writes
 * gives on a model, without waiting for it: TAB separated, in the cases and
 * metrics of results/published/seagate-odsync.toml.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/model/odsync.h"

static const struct {
	const char *name;
	uint64_t span;
} cases[] = {
	{ "seq", 0 },
	{ "rand", 100ULL << 30 },
};

/* The model that the arguments describe, new for each measurement. */
static struct model *make(int argc, char *argv[], uint64_t seed)
{
	struct config c = { 0 };
	struct model *m = NULL;
	char *equals, *copy;
	int i, ret;

	ret = config_read(&c, argv[0]);
	for (i = 1; !ret && i < argc; i++) {
		copy = strdup(argv[i]);
		equals = copy ? strchr(copy, '=') : NULL;
		if (equals) {
			*equals = '\0';
			ret = config_set(&c, copy, equals + 1);
		} else {
			snprintf(c.error, sizeof(c.error),
				 "%s: write it as NAME=VALUE", argv[i]);
			ret = -1;
		}
		free(copy);
	}
	if (!ret)
		m = model_new(&c, seed);
	if (!m)
		fprintf(stderr, "durabench-model-table: %s\n", c.error);
	return m;
}

int main(int argc, char *argv[])
{
	const uint64_t seed = 1;
	struct odsync_result r[2];
	struct model *m;
	unsigned int i;
	int side, ret;

	if (argc < 2 || argv[1][0] == '-') {
		fprintf(stderr,
			"Usage: durabench-model-table FILE [NAME=VALUE]...\n");
		return 64;
	}
	printf("case\tmetric\tunit\tbefore\tafter\n");
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (side = 0; side < 2; side++) {
			const struct odsync o = {
				.flush = !side,
				.span = cases[i].span,
				.seconds = 60,
			};

			m = make(argc - 1, argv + 1, seed);
			if (!m)
				return 65;
			ret = odsync_run(m, &o, seed, &r[side]);
			model_free(m);
			if (ret) {
				fprintf(stderr,
					"durabench-model-table: %s\n",
					strerror(-ret));
				return 71;
			}
		}
#define ROW(metric, unit, field) \
		printf("%s\t%s\t%s\t%.1f\t%.1f\n", cases[i].name, metric, \
		       unit, r[0].field, r[1].field)
		ROW("write.iops", "IOPS", iops);
		ROW("write.clat.mean", "us", mean);
		ROW("write.clat.p50", "us", p50);
		ROW("write.clat.p99", "us", p99);
		ROW("write.clat.p99.9", "us", p999);
#undef ROW
	}
	return 0;
}
