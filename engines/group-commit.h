/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Group commit: one flush for all jobs that wait for one.
 *
 * A flush makes durable whatever was written before it began, whoever wrote
 * it. So of the jobs that want one at the same time one is enough: it does it,
 * and the others wait for that. Databases do so with their log. The jobs of one
 * fio share flushes here, processes as well as threads.
 *
 * A group is that of the jobs whose flushes do the same thing. group-commit.c
 * has the protocol.
 */
#ifndef DURABENCH_GROUP_COMMIT_H
#define DURABENCH_GROUP_COMMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct commit_group;

/* One job's part in a group. */
struct group_commit {
	struct commit_group *group;
	uint64_t told;		/* failed flushes that it knows of */
	bool led;		/* the last commit was by its own flush */
};

/*
 * Take part in the group of what @dev and @ino name: a block device by its
 * number and 0, a file as stat(2) has it. @kind is the caller's: only flushes
 * of the same kind are shared. @c is zeroed before the first time. Returns 0,
 * ENOSPC if there are too many groups, or ENOMEM if there is no memory that
 * jobs share.
 */
int group_commit_join(struct group_commit *c, dev_t dev, ino_t ino,
		      unsigned int kind);

/*
 * Return once a flush that began after the call has ended: one by another job,
 * or by @flush(@data), which flushes all that any job of the group may have
 * written, and returns 0 or a positive errno. Returns 0, or the errno of a
 * flush of the group that failed since the last call: each job is told of it
 * once, since what it wrote may have been lost then.
 */
int group_commit(struct group_commit *c, int (*flush)(void *data), void *data);

#endif
