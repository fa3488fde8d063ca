/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Takes the histograms out of fio's JSON+. They are most of a result, and a
 * general reader makes a string and a number of each of their thousands of
 * buckets; what is left is short, and for a general reader.
 */
#ifndef DURABENCH_FIOJSON_H
#define DURABENCH_FIOJSON_H

#include <stddef.h>
#include <stdint.h>

/* Buckets of all histograms, those of one behind those of another. */
struct fiojson_bins {
	uint64_t *buckets;	/* that have samples, ascending in each */
	uint64_t *counts;
	uint64_t *reached;	/* samples of these and of those before it */
	uint32_t *ends;		/* of each histogram, in the arrays above */
};

/*
 * Copies JSON to @rest, in which each histogram, `"bins" : { "322" : 1, ... }`,
 * is replaced by its number, from 0. Returns how many there are, the length of
 * the copy in @rest_length.
 *
 * -EBADMSG: it is not as fio prints one document and nothing else. There is
 * text around it, a key stands twice in one object, or a histogram has other
 * keys, is not ascending, or is too much to be counted. Beyond that, JSON is
 * not checked.
 *
 * @rest has room for @length bytes, and each array for @length / 4 + 1
 * elements, which is more than what can be in a text of that length.
 */
int fiojson_cut(const char *text, size_t length, char *rest,
		size_t *rest_length, const struct fiojson_bins *bins);

#endif
