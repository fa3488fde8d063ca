/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The data of a modelled device: an image that has what was written last, and,
 * if it is to be cut off power, what each sector had before, until the model
 * says that the newer data is durable (model.h, persist).
 *
 * A sector is written as a whole or not at all; a request of several may be
 * torn between them, and sectors survive in any order. Where a smaller unit
 * shall tear, the model's sector has to be smaller.
 */
#ifndef DURABENCH_LAB_STORE_H
#define DURABENCH_LAB_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bsd/sys/tree.h>

RB_HEAD(store_versions, store_version);

struct store {
	uint8_t *image;		/* NULL: no data is kept, all is zeroes */
	uint64_t size;		/* bytes */
	uint32_t sector;	/* bytes */
	bool undo;		/* older versions are kept */
	struct store_versions versions;
};

/*
 * @size bytes of zeroes in memory, or of the file @path (NULL: none), which is
 * made where it isn't there, grows to @size, and may be sparse. With @undo the
 * store can be cut. Returns 0 or -errno. A store that was never opened, and is
 * all zeroes itself, keeps no data.
 */
int store_open(struct store *s, const char *path, uint64_t size,
	       uint32_t sector, bool undo);
void store_close(struct store *s);

void store_read(const struct store *s, void *buffer, uint64_t offset,
		size_t count);

/*
 * Write number @seq. @committed: the highest number that was on its way to
 * the medium when it came (struct model). Returns 0 or -ENOMEM.
 */
int store_write(struct store *s, const void *buffer, uint64_t offset,
		size_t count, uint64_t seq, uint64_t committed);

/* Writes of these sectors up to number @seq are durable. */
void store_persist(struct store *s, uint64_t start, uint64_t nr, uint64_t seq);

/*
 * The power fails: each sector that isn't durable keeps its newest data with
 * probability @survive, and has otherwise an older version, by @seed. Returns
 * how many have an older one.
 */
uint64_t store_cut(struct store *s, uint64_t seed, double survive);

#endif
