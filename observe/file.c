// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reading kernel files, writing results; see file.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

ssize_t file_reread(int fd, char *buf, size_t size)
{
	ssize_t length = pread(fd, buf, size - 1, 0);

	if (length < 0)
		return -errno;
	if (length && buf[length - 1] == '\n')
		length--;
	buf[length] = '\0';
	return length;
}

ssize_t file_read(int dirfd, const char *path, char *buf, size_t size)
{
	int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return -errno;
	length = file_reread(fd, buf, size);
	close(fd);
	return length;
}

int outfile_open(struct outfile *f, const char *path)
{
	struct stat st;
	int err;

	f->path = path;
	f->part = NULL;
	if (lstat(path, &st) || S_ISREG(st.st_mode)) {
		if (asprintf(&f->part, "%s.part", path) < 0) {
			f->part = NULL;
			return -ENOMEM;
		}
	}
	f->out = fopen(f->part ? f->part : path, "we");
	if (f->out)
		return 0;

	err = -errno;
	free(f->part);
	f->part = NULL;
	return err;
}

int outfile_commit(struct outfile *f)
{
	int err = 0;

	if (fflush(f->out))
		err = -errno;
	else if (ferror(f->out))	/* an earlier write failed */
		err = -EIO;
	if (fclose(f->out) && !err)
		err = -errno;
	f->out = NULL;
	if (!err && f->part && rename(f->part, f->path))
		err = -errno;
	free(f->part);
	f->part = NULL;
	return err;
}

void outfile_discard(struct outfile *f)
{
	if (!f->out)
		return;
	fclose(f->out);
	f->out = NULL;
	if (f->part)
		unlink(f->part);
	free(f->part);
	f->part = NULL;
}
