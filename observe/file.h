/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Files of /proc and /sys, which are read whole, and files of results, which
 * are written beside their place and renamed when they are complete.
 */
#ifndef DURABENCH_FILE_H
#define DURABENCH_FILE_H

#include <stdio.h>
#include <sys/types.h>

/*
 * Read @path below @dirfd into @buf, without the newline at its end and
 * always NUL-terminated. Returns the length or -errno.
 */
ssize_t file_read(int dirfd, const char *path, char *buf, size_t size);

/* The same of an open file, from its beginning. */
ssize_t file_reread(int fd, char *buf, size_t size);

/*
 * A result: PATH.part until it is complete. A PATH that exists and is not a
 * regular file (a FIFO, /dev/stdout, a link) is written in place.
 */
struct outfile {
	FILE *out;
	const char *path;
	char *part;		/* NULL: written in place */
};

int outfile_open(struct outfile *f, const char *path);
/* Close and rename. On an error what was written stays where it is. */
int outfile_commit(struct outfile *f);
/* Close and remove. */
void outfile_discard(struct outfile *f);

#endif
