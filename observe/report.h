/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The three forms of what was observed: a line a sample, a JSON summary and a
 * text for people. docs/formats.md has the first two.
 */
#ifndef DURABENCH_REPORT_H
#define DURABENCH_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "sample.h"

struct run {
	char **argv;
	char start[40];			/* UTC, ISO 8601 */
	double interval;		/* s */
	uint64_t write_size;		/* bytes; 0: not given */
	const struct sampler *sampler;	/* elapsed time is its last sample's */
	int status;			/* of wait(2) */
	double command_cpu, observer_cpu;	/* s */
};

void report_header(FILE *out, const struct run *run);
void report_sample(FILE *out, const struct sampler *s);
void report_summary(FILE *out, const struct run *run);
void report_text(FILE *out, const struct run *run);

#endif
