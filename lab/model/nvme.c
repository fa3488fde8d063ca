// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flash behind an NVMe controller: channels that work at the same time, each
 * on one stripe of the addresses, with one time for reading a page and
 * another for programming one.
 *
 * What comes from the cache is written stripe by stripe in the order of the
 * addresses, each to the channel that is free first, since flash is written
 * where the device likes; reads have to go where the data is, and that is
 * taken to follow from the address.
 */
#include <errno.h>
#include <stdlib.h>

#include "lab/model/model.h"

struct nvme {
	unsigned int channels;
	uint64_t stripe;	/* sectors */
	double read, program;	/* ns a stripe, whatever part of it */
	double byte;		/* ns a channel needs to move one */

	uint64_t *free;		/* by channel: when it is */
	uint64_t next;		/* sector from which destaging goes on */
};

static unsigned int first_free(const struct nvme *n)
{
	unsigned int i, first = 0;

	for (i = 1; i < n->channels; i++)
		if (n->free[i] < n->free[first])
			first = i;
	return first;
}

static void nvme_reset(struct model *m, uint64_t now)
{
	struct nvme *n = m->private;
	unsigned int i;

	for (i = 0; i < n->channels; i++)
		n->free[i] = now;
}

static uint64_t nvme_ready(const struct model *m)
{
	const struct nvme *n = m->private;

	return n->free[first_free(n)];
}

static uint64_t nvme_access(struct model *m, uint64_t from, uint64_t sector,
			    uint64_t nr, bool write)
{
	struct nvme *n = m->private;
	uint64_t part, t, done = from;
	unsigned int channel;

	for (; nr; nr -= part, sector += part) {
		part = n->stripe - sector % n->stripe;
		if (part > nr)
			part = nr;
		channel = write ? first_free(n) :
				  sector / n->stripe % n->channels;
		t = n->free[channel] > from ? n->free[channel] : from;
		t += (write ? n->program : n->read) +
		     part * m->sector * n->byte;
		n->free[channel] = t;
		if (t > done)
			done = t;
	}
	if (write)
		n->next = sector;
	return done;
}

static uint64_t nvme_choose(struct model *m, uint64_t t, uint64_t *nr)
{
	const struct nvme *n = m->private;
	const struct dirty_run *r = dirty_from(&m->dirty, n->next);
	const uint64_t left = n->stripe - r->start % n->stripe;

	*nr = r->nr < left ? r->nr : left;
	return r->start;
}

static int nvme_init(struct model *m, struct config *c)
{
	struct nvme *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	m->private = n;
	model_cache_init(m, c);
	n->channels = config_number(c, "channels", "", 1, 1024);
	n->stripe = config_number(c, "stripe", "KiB", 0.5, 65536) * 1024 /
		    m->sector;
	if (!n->stripe)
		n->stripe = 1;
	n->read = 1e3 * config_number(c, "read", "us", 0, 1e6);
	n->program = 1e3 * config_number(c, "program", "us", 0, 1e6);
	n->byte = config_number(c, "channel_rate", "MB/s", 1, 1e6);
	if (c->error[0])
		return 0;
	n->byte = 1e3 / n->byte;
	n->free = calloc(n->channels, sizeof(*n->free));
	return n->free ? 0 : -ENOMEM;
}

static void nvme_exit(struct model *m)
{
	struct nvme *n = m->private;

	if (n)
		free(n->free);
	free(n);
}

const struct medium nvme_medium = {
	.name = "nvme",
	.init = nvme_init,
	.exit = nvme_exit,
	.reset = nvme_reset,
	.ready = nvme_ready,
	.access = nvme_access,
	.choose = nvme_choose,
};
