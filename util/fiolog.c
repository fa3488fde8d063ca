// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reading fio's logs; see fiolog.h.
 *
 * A block always ends with a newline where it is parsed, so that no number
 * or line runs out of it and nothing but the bytes themselves is looked at.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/fiolog.h"

/* By how many ms fio's lines are out of order where it writes one log. */
#define DISORDER_MSEC	100
/* Columns of a line that is no histogram. */
#define LEAST_COLUMNS	4
#define MOST_COLUMNS	8
#define HISTOGRAM_COLUMNS 3
/* Values of one direction whose mean and squares are taken at once. */
#define AT_ONCE		1024

struct fiolog {
	int fd;			/* -1 where the log is text in memory */
	const char *text;	/* what is left of it */
	size_t left;
	char *block;
	size_t size;		/* of the block, less a byte for a newline */
	size_t at;		/* next line */
	size_t whole;		/* end of the last whole line */
	size_t end;
	bool ended;
	bool known;		/* whether there is a maximum */
	bool both;
	uint64_t line;		/* before the next */
	struct fiolog_fault fault;
};

static int open_log(size_t block, struct fiolog **log)
{
	struct fiolog *l;

	if (!block)
		return -EINVAL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->block = malloc(block + 1);
	if (!l->block) {
		free(l);
		return -ENOMEM;
	}
	l->size = block;
	l->fd = -1;
	*log = l;
	return 0;
}

int fiolog_open(const char *path, size_t block, struct fiolog **log)
{
	int err = open_log(block, log);

	if (err)
		return err;
	(*log)->fd = open(path, O_RDONLY | O_CLOEXEC);
	if ((*log)->fd < 0) {
		err = -errno;
		fiolog_close(*log);
		return err;
	}
	return 0;
}

int fiolog_open_text(const void *text, size_t length, size_t block,
		     struct fiolog **log)
{
	int err = open_log(block, log);

	if (err)
		return err;
	(*log)->text = text;
	(*log)->left = length;
	return 0;
}

void fiolog_close(struct fiolog *log)
{
	if (log->fd >= 0)
		close(log->fd);
	free(log->block);
	free(log);
}

const struct fiolog_fault *fiolog_fault(const struct fiolog *log)
{
	return &log->fault;
}

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r' && c != '\n');
}

static const char *skip_blanks(const char *p)
{
	while (is_blank(*p))
		p++;
	return p;
}

/* The fault of the line at @line, which is the next. */
static int refuse(struct fiolog *log, enum fiolog_what what, const char *line)
{
	struct fiolog_fault *fault = &log->fault;
	const char *text = skip_blanks(line);
	const char *end = memchr(text, '\n', log->block + log->size + 1 - text);
	size_t length = end - text;

	fault->what = what;
	fault->line = log->line + 1;
	fault->length = length < sizeof(fault->text) ? length :
						       sizeof(fault->text);
	memcpy(fault->text, text, fault->length);
	return -EBADMSG;
}

/* Up to @length bytes; 0 at the end. */
static ssize_t take(struct fiolog *log, char *to, size_t length)
{
	ssize_t got;

	if (log->fd < 0) {
		if (!log->left)
			return 0;
		if (length > log->left)
			length = log->left;
		memcpy(to, log->text, length);
		log->text += length;
		log->left -= length;
		return length;
	}
	got = read(log->fd, to, length);
	return got < 0 ? -errno : got;
}

/* Fills the block behind what is left of it; 1 if there are lines, 0 at the
 * end. */
static int fill(struct fiolog *log)
{
	const char *last;

	log->end -= log->at;
	memmove(log->block, log->block + log->at, log->end);
	log->at = log->whole = 0;
	while (!log->ended && log->end < log->size) {
		ssize_t got = take(log, log->block + log->end,
				   log->size - log->end);

		if (got < 0)
			return got;
		log->end += got;
		log->ended = !got;
	}
	if (log->ended && log->end && log->block[log->end - 1] != '\n')
		log->block[log->end++] = '\n';
	if (!log->end)
		return 0;
	last = memrchr(log->block, '\n', log->end);
	if (!last) {
		log->block[log->end] = '\n';
		return refuse(log, FIOLOG_ENDLESS_LINE, log->block);
	}
	log->whole = last + 1 - log->block;
	return 1;
}

/* The next line that is not empty, in @line: 1, or 0 at the end. */
static inline int next_line(struct fiolog *log, const char **line)
{
	for (;;) {
		const char *p;
		int got;

		if (log->at == log->whole) {
			got = fill(log);
			if (got <= 0)
				return got;
		}
		p = log->block + log->at;
		*line = skip_blanks(p);
		if (**line != '\n')
			return 1;
		log->line++;
		log->at += *line + 1 - p;
	}
}

/* Takes the line that ends with the newline at @end. */
static inline void line_is_read(struct fiolog *log, const char *end)
{
	log->line++;
	log->at = end + 1 - log->block;
}

/*
 * A number of at most 20 digits, in @value; what does not fit is UINT64_MAX.
 * Returns what stands behind it, NULL if there is none.
 */
static inline const char *decimal(const char *p, uint64_t *value)
{
	const char *begin = p;
	uint64_t v = 0;
	unsigned int digit;

	while ((digit = (unsigned char)*p - '0') < 10 && p - begin < 19) {
		v = v * 10 + digit;
		p++;
	}
	if (digit < 10) {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, digit, &v))
			v = UINT64_MAX;
		p++;
		if (*p >= '0' && *p <= '9')
			return NULL;
	}
	*value = v;
	return p == begin ? NULL : p;
}

/* A number that begins with 0x, of at most 16 digits. */
static const char *hexadecimal(const char *p, uint64_t *value)
{
	const char *begin = p + 2;
	uint64_t v = 0;

	for (p = begin; p - begin <= 16; p++) {
		if (*p >= '0' && *p <= '9')
			v = v << 4 | (*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			v = v << 4 | (*p - 'a' + 10);
		else
			break;
	}
	*value = v;
	return p == begin || p - begin > 16 ? NULL : p;
}

/* Fields of a line in their order, and what ends it; their number, or 0. */
static inline int parse_fields(const char *p, uint64_t fields[MOST_COLUMNS],
			       const char **end)
{
	int n = 0;

	for (;;) {
		if (n && p[0] == '0' && p[1] == 'x')
			p = hexadecimal(p, &fields[n]);
		else
			p = decimal(p, &fields[n]);
		if (!p)
			return 0;
		n++;
		if (*p != ',')
			p = skip_blanks(p);
		if (*p == '\n')
			break;
		if (*p != ',' || n == MOST_COLUMNS)
			return 0;
		p = skip_blanks(p + 1);
	}
	*end = p;
	return n >= LEAST_COLUMNS ? n : 0;
}

static int refuse_line(struct fiolog *log, const char *line)
{
	const char *p;
	int commas = 0;

	for (p = line; *p != '\n'; p++)
		commas += *p == ',';
	log->fault.columns = commas + 1;
	return refuse(log, commas < MOST_COLUMNS ? FIOLOG_NO_LINE :
						   FIOLOG_MANY_COLUMNS, line);
}

/* Whether a line of the block has no direction where it would be without a
 * maximum. */
static bool has_maximum(const struct fiolog *log)
{
	const char *p = log->block + log->at;

	while (p < log->block + log->whole) {
		uint64_t fields[MOST_COLUMNS];
		const char *end;

		p = skip_blanks(p);
		if (*p != '\n') {
			if (!parse_fields(p, fields, &end))
				return false;
			if (fields[2] >= FIOLOG_DIRECTIONS)
				return true;
			p = end;
		}
		p++;
	}
	return false;
}

/* The next line; 0 at the end. */
static inline int next_row(struct fiolog *log, enum fiolog_columns columns,
			   struct fiolog_row *row)
{
	uint64_t fields[MOST_COLUMNS], value, direction, block_size;
	const char *line, *end;
	int n, got = next_line(log, &line);

	if (got <= 0)
		return got;
	if (!log->known) {
		log->both = columns == FIOLOG_BOTH ||
			    (columns == FIOLOG_ANY && has_maximum(log));
		log->known = true;
	}
	n = parse_fields(line, fields, &end);
	if (n < LEAST_COLUMNS + log->both)
		return refuse_line(log, line);
	value = fields[1];
	direction = fields[2 + log->both];
	block_size = fields[3 + log->both];
	if (fields[0] > FIOLOG_MAX || value > FIOLOG_MAX ||
	    block_size > FIOLOG_MAX || direction >= FIOLOG_DIRECTIONS ||
	    (log->both && value > fields[2]))
		return refuse_line(log, line);
	row->msec = fields[0];
	row->value = value;
	row->direction = direction;
	row->block_size = block_size;
	line_is_read(log, end);
	return 1;
}

int fiolog_rows(struct fiolog *log, enum fiolog_columns columns,
		struct fiolog_row *rows, int most)
{
	int i, got;

	for (i = 0; i < most; i++) {
		got = next_row(log, columns, &rows[i]);
		if (got < 0)
			return got;
		if (!got)
			break;
	}
	return i;
}

unsigned int fiolog_bucket(uint64_t value)
{
	unsigned int shift;

	if (value < 128)
		return value;
	shift = 57 - __builtin_clzll(value);
	return (shift << 6) + (value >> shift);
}

/* What a series takes to make: the sum is exact, the squares are as good as
 * their values allow. */
struct collected {
	unsigned __int128 sum;
	double mean, squares;	/* of those before the waiting ones */
	uint64_t n;
	unsigned int waiting;
	double values[AT_ONCE];
};

/* Means and squares are put together as Chan, Golub and LeVeque do it. */
static void collect(struct collected *c)
{
	double mean = 0, squares = 0, away;
	unsigned int i;

	for (i = 0; i < c->waiting; i++)
		mean += c->values[i];
	mean /= c->waiting;
	for (i = 0; i < c->waiting; i++)
		squares += (c->values[i] - mean) * (c->values[i] - mean);
	away = mean - c->mean;
	c->squares += squares + away * away * c->n * c->waiting /
				(c->n + c->waiting);
	c->mean += away * c->waiting / (c->n + c->waiting);
	c->n += c->waiting;
	c->waiting = 0;
}

int fiolog_summarize(struct fiolog *log, enum fiolog_columns columns,
		     struct fiolog_summary *summary)
{
	struct fiolog_row row;
	struct collected *all;
	int64_t latest = 0;
	int i, got;

	memset(summary, 0, sizeof(*summary));
	all = calloc(FIOLOG_DIRECTIONS, sizeof(*all));
	if (!all)
		return -ENOMEM;
	while ((got = next_row(log, columns, &row)) > 0) {
		struct fiolog_series *s = &summary->series[row.direction];
		struct collected *c = &all[row.direction];

		summary->lines++;
		summary->sized += row.block_size != 0;
		summary->resets += row.msec + DISORDER_MSEC < latest;
		latest = row.msec;

		if (!s->lines++) {
			s->min = s->max = row.value;
			s->start_msec = s->end_msec = row.msec;
		}
		s->min = row.value < s->min ? row.value : s->min;
		s->max = row.value > s->max ? row.value : s->max;
		s->start_msec = row.msec < s->start_msec ? row.msec :
							   s->start_msec;
		s->end_msec = row.msec > s->end_msec ? row.msec : s->end_msec;
		s->counts[fiolog_bucket(row.value)]++;
		c->sum += row.value;
		c->values[c->waiting++] = row.value;
		if (c->waiting == AT_ONCE)
			collect(c);
	}
	for (i = 0; !got && i < FIOLOG_DIRECTIONS; i++) {
		struct fiolog_series *s = &summary->series[i];

		if (!s->lines)
			continue;
		if (all[i].waiting)
			collect(&all[i]);
		s->mean = (double)all[i].sum / s->lines;
		s->stddev = sqrt(all[i].squares / s->lines);
	}
	free(all);
	return got;
}

/*
 * Whether these are all buckets of one of fio's histograms: 29 groups of 64
 * in fio 3, 19 before; each step of log_hist_coarseness halves them.
 */
static bool is_histogram(int buckets)
{
	int step;

	for (step = 0; step < 7; step++)
		if (buckets == 29 * 64 >> step || buckets == 19 * 64 >> step)
			return true;
	return false;
}

int fiolog_next_histogram(struct fiolog *log,
			  int64_t row[HISTOGRAM_COLUMNS + FIOLOG_HISTOGRAM])
{
	const char *line, *p;
	int n = 0, got = next_line(log, &line);

	if (got <= 0)
		return got;
	for (p = line;; p = skip_blanks(p + 1)) {
		uint64_t value;

		/* Nearly all counts. */
		while (n > HISTOGRAM_COLUMNS && p[0] == '0' && p[1] == ',' &&
		       p[2] == ' ' && n < HISTOGRAM_COLUMNS + FIOLOG_HISTOGRAM) {
			row[n++] = 0;
			p += 3;
		}
		p = decimal(p, &value);
		if (!p || n == HISTOGRAM_COLUMNS + FIOLOG_HISTOGRAM)
			return refuse(log, FIOLOG_NO_LINE, line);
		if (value > (n < HISTOGRAM_COLUMNS ? FIOLOG_MAX :
						     FIOLOG_MAX_IOS))
			return refuse(log, FIOLOG_NO_LINE, line);
		row[n++] = value;
		p = skip_blanks(p);
		if (*p == '\n')
			break;
		if (*p != ',')
			return refuse(log, FIOLOG_NO_LINE, line);
	}
	n -= HISTOGRAM_COLUMNS;
	if (!is_histogram(n) || row[1] >= FIOLOG_DIRECTIONS)
		return refuse(log, FIOLOG_NO_LINE, line);
	line_is_read(log, p);
	return n;
}

int fiolog_sum_histograms(struct fiolog *log,
			  struct fiolog_histograms *histograms)
{
	int64_t row[HISTOGRAM_COLUMNS + FIOLOG_HISTOGRAM], latest = 0;
	int i, n;

	memset(histograms, 0, sizeof(*histograms));
	while ((n = fiolog_next_histogram(log, row)) > 0) {
		struct fiolog_histogram *h = &histograms->of[row[1]];

		histograms->lines++;
		histograms->resets += row[0] + DISORDER_MSEC < latest;
		latest = row[0];

		if (!h->lines++) {
			h->buckets = n;
			h->start_msec = h->end_msec = row[0];
		}
		if (h->buckets != (uint64_t)n) {
			log->fault.what = FIOLOG_OTHER_BUCKETS;
			log->fault.line = log->line;
			log->fault.buckets[0] = n;
			log->fault.buckets[1] = h->buckets;
			return -EBADMSG;
		}
		h->start_msec = row[0] < h->start_msec ? row[0] : h->start_msec;
		h->end_msec = row[0] > h->end_msec ? row[0] : h->end_msec;
		for (i = 0; i < n; i++)
			h->counts[i] += row[HISTOGRAM_COLUMNS + i];
	}
	return n;
}
