// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taking the histograms out of fio's JSON+; see fiojson.h.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "util/fiojson.h"

/* fio nests seven deep, and has some 60 keys in one object. */
#define MOST_DEPTH	32
#define MOST_KEYS	512
/* So that its number is no longer than a histogram. */
#define MOST_HISTOGRAMS	999999

struct key {
	const char *at;
	size_t length;
	uint32_t hash;
};

struct cutter {
	const char *p, *end;
	const char *from;	/* first that is not copied yet */
	char *rest;
	const struct fiojson_bins *bins;
	size_t used;		/* of the arrays */
	int found;
	/* Objects and arrays that are open, those in others behind them. */
	int depth;
	struct {
		bool object;
		int keys;	/* first of its keys */
	} open[MOST_DEPTH];
	int n_keys;
	struct key keys[MOST_KEYS];
};

static inline const char *skip_blanks(const char *p, const char *end)
{
	/* fio indents by up to 16. */
	while (end - p >= 8 && !memcmp(p, "        ", 8))
		p += 8;
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' ||
			   *p == '\t'))
		p++;
	return p;
}

/* What stands behind @wanted and blanks around it; NULL if it is not there. */
static inline const char *skip(const char *p, const char *end, char wanted)
{
	p = skip_blanks(p, end);
	if (p == end || *p != wanted)
		return NULL;
	return skip_blanks(p + 1, end);
}

/* What stands behind a number of up to 18 digits, without sign or leading
 * zeros. */
static inline const char *count(const char *p, const char *end, uint64_t *value)
{
	const char *begin = p;
	uint64_t v = 0;

	for (; p < end && *p >= '0' && *p <= '9'; p++)
		v = v * 10 + (*p - '0');
	*value = v;
	if (p == begin || p - begin > 18 || (*begin == '0' && p > begin + 1))
		return NULL;
	return p;
}

/* Whether a histogram could be taken, which begins behind its brace. */
static bool take_histogram(struct cutter *c)
{
	const struct fiojson_bins *b = c->bins;
	const char *p = c->p, *next, *end = c->end;
	uint64_t bucket, samples, least = 0, reached = 0;
	size_t used = c->used;

	for (;; p = next) {
		if (p == end || *p != '"')
			return false;
		p = count(p + 1, end, &bucket);
		if (!p || p == end || *p != '"')
			return false;
		p = skip(p + 1, end, ':');
		p = p ? count(p, end, &samples) : NULL;
		if (!p || bucket < least || reached > UINT64_MAX - samples)
			return false;
		least = bucket + 1;
		if (samples) {
			reached += samples;
			b->buckets[used] = bucket;
			b->counts[used] = samples;
			b->reached[used++] = reached;
		}
		next = skip(p, end, ',');
		if (!next)
			break;
	}
	p = skip(p, end, '}');
	if (!p)
		return false;
	c->p = p;
	c->used = used;
	return true;
}

static void copy(struct cutter *c, const char *to)
{
	memcpy(c->rest, c->from, to - c->from);
	c->rest += to - c->from;
}

/* The value of "bins", which begins at c->p. */
static bool cut_histogram(struct cutter *c)
{
	const char *begin = c->p;
	char digits[12];
	int n = 0, number = c->found;

	if (c->p == c->end || *c->p != '{')
		return false;
	c->p = skip_blanks(c->p + 1, c->end);
	if (c->p < c->end && *c->p == '}') {	/* stays */
		c->p++;
		return true;
	}
	if (number == MOST_HISTOGRAMS || !take_histogram(c))
		return false;
	c->bins->ends[c->found++] = c->used;

	copy(c, begin);
	do {
		digits[n++] = '0' + number % 10;
		number /= 10;
	} while (number);
	while (n)
		*c->rest++ = digits[--n];
	c->from = c->p;
	return true;
}

/* Takes a string, which begins behind its quote; NULL if it has an escape or
 * has no end. */
static const char *take_string(struct cutter *c, bool *plain)
{
	const char *begin = c->p;

	*plain = true;
	for (; c->p < c->end; c->p++) {
		if (*c->p == '"') {
			c->p++;
			return begin;
		}
		if ((unsigned char)*c->p < 0x20)
			return NULL;
		if (*c->p == '\\') {
			*plain = false;
			if (++c->p == c->end)
				return NULL;
		}
	}
	return NULL;
}

/* Whether a key is the first of its name in the innermost object. */
static bool add_key(struct cutter *c, const char *at, size_t length)
{
	struct key *key = &c->keys[c->n_keys];
	uint32_t hash = 2166136261u;
	size_t i;
	int k;

	if (c->n_keys == MOST_KEYS)
		return false;
	for (i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)at[i]) * 16777619u;
	for (k = c->open[c->depth - 1].keys; k < c->n_keys; k++)
		if (c->keys[k].hash == hash && c->keys[k].length == length &&
		    !memcmp(c->keys[k].at, at, length))
			return false;
	*key = (struct key){ at, length, hash };
	c->n_keys++;
	return true;
}

/* A key and what stands behind it, up to its value, or all of a histogram. */
static bool take_key(struct cutter *c)
{
	const char *key;
	size_t length;
	bool plain;

	key = take_string(c, &plain);
	if (!key || !plain)
		return false;
	length = c->p - 1 - key;
	if (!add_key(c, key, length))
		return false;
	c->p = skip(c->p, c->end, ':');
	if (!c->p)
		return false;
	return length != 4 || memcmp(key, "bins", 4) || cut_histogram(c);
}

static bool enter(struct cutter *c, bool object)
{
	if (c->depth == MOST_DEPTH)
		return false;
	c->open[c->depth].object = object;
	c->open[c->depth++].keys = c->n_keys;
	return true;
}

/* All of the outermost object, which begins at c->p. */
static bool take_document(struct cutter *c)
{
	bool key = false, plain;

	do {
		if (c->p == c->end)
			return false;
		switch (*c->p++) {
		case '{':
		case '[':
			if (!enter(c, c->p[-1] == '{'))
				return false;
			key = c->open[c->depth - 1].object;
			break;
		case '}':
		case ']':
			c->n_keys = c->open[--c->depth].keys;
			key = false;
			break;
		case ',':
			key = c->open[c->depth - 1].object;
			break;
		case '"':
			if (key ? !take_key(c) : !take_string(c, &plain))
				return false;
			key = false;
			break;
		}
	} while (c->depth);
	return true;
}

int fiojson_cut(const char *text, size_t length, char *rest,
		size_t *rest_length, const struct fiojson_bins *bins)
{
	struct cutter c = {
		.end = text + length, .from = text, .rest = rest, .bins = bins,
	};

	if (length > INT32_MAX)
		return -EBADMSG;
	c.p = skip_blanks(text, c.end);
	if (c.p == c.end || *c.p != '{' || !take_document(&c))
		return -EBADMSG;
	if (skip_blanks(c.p, c.end) != c.end)
		return -EBADMSG;
	copy(&c, c.end);
	*rest_length = c.rest - rest;
	return c.found;
}
