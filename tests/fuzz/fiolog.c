// SPDX-License-Identifier: GPL-2.0-only
/*
 * util/fiolog.c: logs of any bytes. Whole or in small blocks they say the same,
 * row by row as much as summed up.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>

#include "fuzz.h"
#include "util/fiolog.h"

#define ROWS	7	/* at a time */

/* A log for reading once; @block is more than the longest line, or not. */
static struct fiolog *opened(const struct input *in, size_t block)
{
	struct fiolog *log;

	MUST(!fiolog_open_text(in->at, in->left, block, &log));
	return log;
}

static void check_fault(const struct fiolog *log)
{
	const struct fiolog_fault *fault = fiolog_fault(log);

	MUST(fault->what >= FIOLOG_NO_LINE &&
	     fault->what <= FIOLOG_OTHER_BUCKETS);
	MUST(fault->line && fault->length <= sizeof(fault->text));
}

static int rows_of(const struct input *in, enum fiolog_columns columns,
		   uint64_t lines[FIOLOG_DIRECTIONS])
{
	struct fiolog *log = opened(in, 256);
	struct fiolog_row rows[ROWS];
	int ret, i;

	memset(lines, 0, FIOLOG_DIRECTIONS * sizeof(*lines));
	while ((ret = fiolog_rows(log, columns, rows, ROWS)) > 0) {
		MUST(ret <= ROWS);
		for (i = 0; i < ret; i++) {
			MUST(rows[i].direction >= 0 &&
			     rows[i].direction < FIOLOG_DIRECTIONS);
			MUST(rows[i].value >= 0 && rows[i].msec >= 0);
			lines[rows[i].direction]++;
		}
	}
	if (ret == -EBADMSG)
		check_fault(log);
	else
		MUST(!ret);
	fiolog_close(log);
	return ret;
}

static int summary_of(const struct input *in, enum fiolog_columns columns,
		      size_t block, struct fiolog_summary *s)
{
	struct fiolog *log = opened(in, block);
	int ret, i;

	ret = fiolog_summarize(log, columns, s);
	if (ret == -EBADMSG)
		check_fault(log);
	else
		MUST(!ret);
	for (i = 0; !ret && i < FIOLOG_DIRECTIONS; i++) {
		const struct fiolog_series *one = &s->series[i];
		uint64_t counted = 0;
		unsigned int bucket;

		MUST(one->min <= one->max);
		MUST(isfinite(one->mean) && one->stddev >= 0);
		MUST(one->mean >= one->min * (1 - 1e-12));
		MUST(one->mean <= one->max * (1 + 1e-12));
		for (bucket = 0; bucket < FIOLOG_BUCKETS; bucket++)
			counted += one->counts[bucket];
		MUST(counted == one->lines);
	}
	fiolog_close(log);
	return ret;
}

static void check_rows(const struct input *in, enum fiolog_columns columns)
{
	static struct fiolog_summary whole, parts;
	uint64_t lines[FIOLOG_DIRECTIONS];
	int ret, i;

	ret = summary_of(in, columns, 1 << 16, &whole);
	/* A block may be shorter than a line. */
	if (!summary_of(in, columns, 256, &parts))
		MUST(!ret && !memcmp(&whole, &parts, sizeof(whole)));
	if (!rows_of(in, columns, lines)) {
		MUST(!ret);
		for (i = 0; i < FIOLOG_DIRECTIONS; i++)
			MUST(lines[i] == whole.series[i].lines);
	}
}

static void check_histograms(const struct input *in)
{
	static int64_t row[3 + FIOLOG_HISTOGRAM];
	static struct fiolog_histograms sum;
	struct fiolog *log = opened(in, 1 << 16);
	uint64_t lines = 0;
	int ret, i;

	while ((ret = fiolog_next_histogram(log, row)) > 0) {
		MUST(ret <= FIOLOG_HISTOGRAM);
		for (i = 0; i < ret; i++)
			MUST(row[3 + i] >= 0 && row[3 + i] <= FIOLOG_MAX_IOS);
		lines++;
	}
	if (ret)
		check_fault(log);
	fiolog_close(log);

	log = opened(in, 1 << 16);
	if (!fiolog_sum_histograms(log, &sum))
		MUST(!ret && sum.lines == lines);
	fiolog_close(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t how = input_byte(&in) % 4;

	if (how == 3)
		check_histograms(&in);
	else
		check_rows(&in, how);
	return 0;
}
