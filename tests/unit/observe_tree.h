/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A folder that stands for /sys or /proc in the tests of the observer.
 */
#ifndef OBSERVE_TREE_H
#define OBSERVE_TREE_H

struct tree {
	char path[64];
	int fd;
};

void tree_make(struct tree *t);
void tree_remove(struct tree *t);

/*
 * Write @text to @path below the tree, making the folders; a file that is
 * there keeps its inode, so an open descriptor reads the new text.
 */
void tree_write(const struct tree *t, const char *path, const char *text);
void tree_link(const struct tree *t, const char *path, const char *target);

#endif
