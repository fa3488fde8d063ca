// SPDX-License-Identifier: GPL-2.0-only
/* What was written and what was promised; see witness.h. */
#include <string.h>

#include "lab/powercut/witness.h"

#define SECTORS		(WITNESS_BLOCK / WITNESS_SECTOR)

/* Where the two stamps of a sector are. */
static size_t stamp_offset(unsigned int sector, unsigned int i)
{
	return sector * WITNESS_SECTOR +
	       i * (WITNESS_SECTOR - sizeof(struct stamp));
}

void witness_start(struct witness *w, uint32_t nr, void *data)
{
	struct stamp s = {
		.magic = STAMP_MAGIC + w->run,
		.version = atomic_fetch_add(&w->block[nr].started, 1) + 1,
		.generation = w->generation,
	};
	unsigned int i;

	for (i = 0; i < SECTORS; i++) {
		s.sector = (uint64_t)nr * SECTORS + i;
		memcpy((char *)data + stamp_offset(i, 0), &s, sizeof(s));
		memcpy((char *)data + stamp_offset(i, 1), &s, sizeof(s));
	}
}

void witness_acknowledge(struct witness *w, const void *data)
{
	struct witness_block *b;
	uint64_t was;
	struct stamp s;

	memcpy(&s, data, sizeof(s));
	if (s.generation != w->generation)
		return;
	b = &w->block[s.sector / SECTORS];
	was = b->acknowledged;
	while (was < s.version &&
	       !atomic_compare_exchange_weak(&b->acknowledged, &was, s.version))
		;
	atomic_fetch_add(&w->acknowledged, 1);
}

enum finding witness_check(struct witness *w, uint32_t nr, const void *data,
			   uint64_t *oldest)
{
	static const struct stamp none;
	struct witness_block *b = &w->block[nr];
	enum finding found = FOUND_ALL;
	unsigned int i;
	struct stamp s;

	*oldest = UINT64_MAX;
	for (i = 0; i < 2 * SECTORS; i++) {
		memcpy(&s, (const char *)data + stamp_offset(i / 2, i % 2),
		       sizeof(s));
		if (!memcmp(&s, &none, sizeof(s)))
			s.version = 0;
		else if (s.magic != STAMP_MAGIC + w->run ||
			 s.sector != (uint64_t)nr * SECTORS + i / 2 ||
			 !s.version || s.version > b->started)
			found = FOUND_FOREIGN;
		if (s.version < *oldest)
			*oldest = s.version;
	}
	if (found == FOUND_FOREIGN)
		return found;
	if (*oldest < b->acknowledged)
		found = FOUND_OLDER;
	b->acknowledged = *oldest;
	return found;
}
