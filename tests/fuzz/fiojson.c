// SPDX-License-Identifier: GPL-2.0-only
/*
 * util/fiojson.c: results of fio of any bytes, in arrays no larger than it says
 * it needs. What it takes out is ascending and adds up.
 */
#include <errno.h>

#include "fuzz.h"
#include "util/fiojson.h"

/* Memory of its own, so that writing beyond its end is seen. */
static void *array(size_t nr, size_t size)
{
	void *memory = calloc(nr, size);

	MUST(memory);
	return memory;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t most = size / 4 + 1;
	struct fiojson_bins bins = {
		.buckets = array(most, sizeof(*bins.buckets)),
		.counts = array(most, sizeof(*bins.counts)),
		.reached = array(most, sizeof(*bins.reached)),
		.ends = array(most, sizeof(*bins.ends)),
	};
	char *text = malloc(size ? size : 1), *rest = malloc(size ? size : 1);
	size_t length = 0;
	uint32_t at = 0;
	uint64_t sum;
	int ret, i;

	MUST(text && rest);
	memcpy(text, data, size);
	ret = fiojson_cut(text, size, rest, &length, &bins);
	MUST(ret >= 0 || ret == -EBADMSG);
	for (i = 0; i < ret; i++) {
		MUST(bins.ends[i] >= at && bins.ends[i] <= most);
		for (sum = 0; at < bins.ends[i]; at++) {
			MUST(bins.counts[at]);
			MUST(!sum || bins.buckets[at] > bins.buckets[at - 1]);
			sum += bins.counts[at];
			MUST(bins.reached[at] == sum);
		}
	}
	if (ret >= 0)
		MUST(length <= size);
	free(text);
	free(rest);
	free(bins.buckets);
	free(bins.counts);
	free(bins.reached);
	free(bins.ends);
	return 0;
}
