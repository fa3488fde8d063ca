// SPDX-License-Identifier: GPL-2.0-only
/* The data of a modelled device; see store.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/model/model.h"
#include "lab/model/store.h"

/* What a sector had before write number seq. The first is the durable one. */
struct store_version {
	RB_ENTRY(store_version) node;
	uint64_t sector, seq;
	uint8_t data[];
};

static int compare(const struct store_version *a, const struct store_version *b)
{
	if (a->sector != b->sector)
		return a->sector < b->sector ? -1 : 1;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

RB_PROTOTYPE(store_versions, store_version, node, compare)
RB_GENERATE(store_versions, store_version, node, compare)

int store_open(struct store *s, const char *path, uint64_t size,
	       uint32_t sector, bool undo)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd = -1, ret;
	struct stat st;

	if (path) {
		flags = MAP_SHARED;
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (fd < 0)
			return -errno;
		if (fstat(fd, &st) ||
		    ((uint64_t)st.st_size < size && ftruncate(fd, size)))
			goto err_close;
	}
	*s = (struct store){ .size = size, .sector = sector, .undo = undo };
	RB_INIT(&s->versions);
	s->image = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (s->image == MAP_FAILED) {
		s->image = NULL;
		goto err_close;
	}
	/* Of a few scattered blocks, huge pages would be mostly zeroes. */
	madvise(s->image, size, MADV_NOHUGEPAGE);
	if (fd >= 0)
		close(fd);
	return 0;

err_close:
	ret = -errno;
	if (fd >= 0)
		close(fd);
	return ret;
}

static void drop(struct store *s, struct store_version *v)
{
	RB_REMOVE(store_versions, &s->versions, v);
	free(v);
}

void store_close(struct store *s)
{
	struct store_version *v;

	while ((v = RB_MIN(store_versions, &s->versions)))
		drop(s, v);
	if (s->image)
		munmap(s->image, s->size);
}

void store_read(const struct store *s, void *buffer, uint64_t offset,
		size_t count)
{
	if (s->image)
		memcpy(buffer, s->image + offset, count);
	else
		memset(buffer, 0, count);
}

/* The oldest version of @sector that is kept, or one of a sector after it. */
static struct store_version *oldest(struct store *s, uint64_t sector)
{
	struct store_version key = { .sector = sector };

	return RB_NFIND(store_versions, &s->versions, &key);
}

/* The newest version of @sector that is kept, or NULL. */
static struct store_version *newest(struct store *s, uint64_t sector)
{
	struct store_version *v = oldest(s, sector + 1);

	v = v ? RB_PREV(store_versions, &s->versions, v) :
		RB_MAX(store_versions, &s->versions);
	return v && v->sector == sector ? v : NULL;
}

static int keep(struct store *s, uint64_t sector, uint64_t seq,
		uint64_t committed)
{
	struct store_version *v = newest(s, sector);

	/* What never was on its way to the medium can't be found there. */
	if (v && v->seq > committed)
		return 0;
	v = malloc(sizeof(*v) + s->sector);
	if (!v)
		return -ENOMEM;
	v->sector = sector;
	v->seq = seq;
	memcpy(v->data, s->image + sector * s->sector, s->sector);
	RB_INSERT(store_versions, &s->versions, v);
	return 0;
}

int store_write(struct store *s, const void *buffer, uint64_t offset,
		size_t count, uint64_t seq, uint64_t committed)
{
	uint64_t sector;
	int ret;

	if (s->undo && count)
		for (sector = offset / s->sector;
		     sector <= (offset + count - 1) / s->sector; sector++) {
			ret = keep(s, sector, seq, committed);
			if (ret)
				return ret;
		}
	if (s->image)
		memcpy(s->image + offset, buffer, count);
	return 0;
}

void store_persist(struct store *s, uint64_t start, uint64_t nr, uint64_t seq)
{
	struct store_version *v, *next;

	for (v = oldest(s, start); v && v->sector < start + nr; v = next) {
		next = RB_NEXT(store_versions, &s->versions, v);
		if (v->seq <= seq)
			drop(s, v);
	}
}

uint64_t store_cut(struct store *s, uint64_t seed, double survive)
{
	struct store_version *v, *next, *chosen;
	unsigned int seen;
	uint64_t lost = 0;

	for (v = RB_MIN(store_versions, &s->versions); v; v = next) {
		/* Any version of the sector, each as likely as the others. */
		chosen = v;
		seen = 1;
		for (next = RB_NEXT(store_versions, &s->versions, v);
		     next && next->sector == v->sector;
		     next = RB_NEXT(store_versions, &s->versions, next))
			if (model_random(&seed) * ++seen < 1)
				chosen = next;
		if (model_random(&seed) >= survive) {
			memcpy(s->image + v->sector * s->sector, chosen->data,
			       s->sector);
			lost++;
		}
	}
	while ((v = RB_MIN(store_versions, &s->versions)))
		drop(s, v);
	return lost;
}
