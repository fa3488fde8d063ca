// SPDX-License-Identifier: GPL-2.0-only
/*
 * A group commit with the classic mistake, for a build of dm-linear-flush that
 * has to lose what it promises: the proof that this would be found. Whoever
 * comes while a flush is under way takes its end for that of one of his own;
 * but that flush began before his writes were there.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engines/group-commit.h"

/* One flush at a time, of whichever job. */
static struct {
	atomic_bool busy;
	atomic_uint ended;
	atomic_int error;	/* of the last that did */
} *shared;

/* Before fio forks its jobs. */
static void __attribute__((constructor)) share(void)
{
	void *map = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	shared = map == MAP_FAILED ? NULL : map;
}

int group_commit_join(struct group_commit *c, dev_t dev, ino_t ino,
		      unsigned int kind)
{
	return shared ? 0 : ENOMEM;
}

int group_commit(struct group_commit *c, int (*flush)(void *data), void *data)
{
	const unsigned int ended = shared->ended;

	c->led = !atomic_exchange(&shared->busy, true);
	if (!c->led) {
		while (shared->ended == ended)
			usleep(100);
		return shared->error;
	}
	shared->error = flush(data);
	shared->busy = false;
	shared->ended++;
	return shared->error;
}
