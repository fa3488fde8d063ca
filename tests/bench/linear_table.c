// SPDX-License-Identifier: GPL-2.0-only
/*
 * bench_linear_table TABLE LOOKUPS: read the table and open its devices, print
 * how many seconds that took, and look up so many bytes of the mapped device,
 * evenly spread in an order without pattern.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

#include "engines/linear-table.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct linear_table t = { .name = argv[1] };
	double start = now();
	unsigned long i;
	FILE *in;

	in = argc == 3 ? fopen(argv[1], "re") : NULL;
	if (!in)
		return 64;
	if (linear_table_read(&t, in) || linear_table_open(&t, O_RDONLY)) {
		fprintf(stderr, "%s\n", t.error);
		return 1;
	}
	printf("%f\n", now() - start);

	srandom(1);
	for (i = strtoul(argv[2], NULL, 10); i; i--)
		linear_table_find(&t, (random() * 2147483648ULL + random()) %
				  t.size);
	linear_table_free(&t);
	fclose(in);
	return 0;
}
