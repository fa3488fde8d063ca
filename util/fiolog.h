/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads fio's logs: bw, iops and latency logs (write_bw_log and its siblings)
 * and logs of latency histograms (write_hist_log). They grow to gigabytes, so
 * they are read in blocks, line by line, in memory that does not grow with
 * them.
 *
 * A line is `msec, value[, maximum], direction, block size[, offset]
 * [, priority][, issue time]`: how many columns there are depends on fio's
 * release and on options, so they are taken by their place from the left and
 * never counted from the right. Of a histogram it is `msec, direction, block
 * size, count, count, ...`. Values are in fio's unit: KiB/s, IOPS or ns.
 *
 * Functions return -errno; -EBADMSG says that the log is none, and struct
 * fiolog_fault what is wrong at which line; -EINTR that a signal came while
 * there was nothing to read yet.
 */
#ifndef DURABENCH_FIOLOG_H
#define DURABENCH_FIOLOG_H

#include <stddef.h>
#include <stdint.h>

/* Beyond it a double is no more exact, and no latency or rate is. */
#define FIOLOG_MAX	(1LL << 53)
/* No interval has as many I/Os. */
#define FIOLOG_MAX_IOS	(1LL << 40)

#define FIOLOG_DIRECTIONS 3	/* read, write, trim */

/* Buckets of all values up to FIOLOG_MAX: 64 for each power of two. */
#define FIOLOG_BUCKETS	(49 * 64)

/* Buckets of a histogram, of fio 3, which no other has more of. */
#define FIOLOG_HISTOGRAM 1856

/* Whether a maximum stands behind each value (log_window_value=both). */
enum fiolog_columns {
	FIOLOG_VALUE,
	FIOLOG_BOTH,
	/* To be told by what stands where the direction would. */
	FIOLOG_ANY,
};

enum fiolog_what {
	FIOLOG_NO_LINE = 1,
	FIOLOG_MANY_COLUMNS,	/* as a histogram has */
	FIOLOG_ENDLESS_LINE,	/* longer than a block */
	FIOLOG_OTHER_BUCKETS,	/* than a line before it */
};

struct fiolog_fault {
	int32_t what;		/* enum fiolog_what */
	int32_t columns;
	int32_t buckets[2];	/* of this line, and of one before it */
	uint64_t line;		/* from 1 */
	uint32_t length;	/* of the text */
	char text[500];		/* how the line begins, any bytes */
};

struct fiolog_row {
	int64_t msec;
	int64_t value;
	int64_t direction;
	int64_t block_size;
};

/* What the lines of one direction say; all 0 where there are none. */
struct fiolog_series {
	uint64_t lines;
	int64_t min, max;
	int64_t start_msec, end_msec;
	double mean, stddev;
	uint64_t counts[FIOLOG_BUCKETS];
};

struct fiolog_summary {
	uint64_t lines;
	uint64_t resets;	/* how often time goes back */
	uint64_t sized;		/* lines with a block size */
	struct fiolog_series series[FIOLOG_DIRECTIONS];
};

/* The I/Os of one direction, all intervals together. */
struct fiolog_histogram {
	uint64_t lines;
	int64_t start_msec, end_msec;
	uint64_t buckets;
	uint64_t counts[FIOLOG_HISTOGRAM];
};

struct fiolog_histograms {
	uint64_t lines;
	uint64_t resets;
	struct fiolog_histogram of[FIOLOG_DIRECTIONS];
};

struct fiolog;

/* Opens a file, to be read in blocks of @block bytes. */
int fiolog_open(const char *path, size_t block, struct fiolog **log);

/* The same of text in memory, which must outlive the log. */
int fiolog_open_text(const void *text, size_t length, size_t block,
		     struct fiolog **log);

void fiolog_close(struct fiolog *log);

/* Why a function returned -EBADMSG. */
const struct fiolog_fault *fiolog_fault(const struct fiolog *log);

/*
 * The next lines of a bw, iops or lat log, at most @most: their number, 0 at
 * the end. @columns must be the same each time.
 */
int fiolog_rows(struct fiolog *log, enum fiolog_columns columns,
		struct fiolog_row *rows, int most);

/* What all lines say. */
int fiolog_summarize(struct fiolog *log, enum fiolog_columns columns,
		     struct fiolog_summary *summary);

/*
 * The next line of a log of histograms, into @row: msec, direction, block
 * size, and the counts, whose number is returned; 0 at the end.
 */
int fiolog_next_histogram(struct fiolog *log,
			  int64_t row[3 + FIOLOG_HISTOGRAM]);

/* What all histograms say. */
int fiolog_sum_histograms(struct fiolog *log,
			  struct fiolog_histograms *histograms);

/* fio's bucket for a value (plat_val_to_idx in its stat.c), with no last one. */
unsigned int fiolog_bucket(uint64_t value);

#endif
