// SPDX-License-Identifier: GPL-2.0-only
/*
 * A folder that stands for /sys or /proc; see observe_tree.h.
 */
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "observe_tree.h"

void tree_make(struct tree *t)
{
	strcpy(t->path, "/tmp/observe-test-XXXXXX");
	assert_non_null(mkdtemp(t->path));
	t->fd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(t->fd >= 0);
}

static int remove_entry(const char *path, const struct stat *st, int type,
			struct FTW *ftw)
{
	return remove(path);
}

void tree_remove(struct tree *t)
{
	close(t->fd);
	assert_int_equal(nftw(t->path, remove_entry, 8, FTW_DEPTH | FTW_PHYS),
			 0);
}

static void make_folders(const struct tree *t, const char *path)
{
	const char *slash = path;
	char *folder;

	while ((slash = strchr(slash, '/'))) {
		folder = strndup(path, slash - path);
		mkdirat(t->fd, folder, 0777);
		free(folder);
		slash++;
	}
}

void tree_write(const struct tree *t, const char *path, const char *text)
{
	int fd;

	make_folders(t, path);
	fd = openat(t->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
		    0666);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

void tree_link(const struct tree *t, const char *path, const char *target)
{
	make_folders(t, path);
	assert_int_equal(symlinkat(target, t->fd, path), 0);
}
