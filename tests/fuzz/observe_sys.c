// SPDX-License-Identifier: GPL-2.0-only
/*
 * observe/blockdev.c: a /sys whose folders, links and files say anything. The
 * input is a line for each: PATH=CONTENT, or PATH>TARGET of a link; then, behind
 * an empty line, the devices asked for, and behind one more what the files are
 * overwritten with before the second sample.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "observe/blockdev.h"

#define MOST	64	/* files, and devices asked for */

static char root[] = "/dev/shm/durabench-fuzz-XXXXXX";
static int rootfd = -1;

static int remove_entry(const char *path, const struct stat *st, int type,
			struct FTW *ftw)
{
	return ftw->level ? remove(path) : 0;
}

static void empty(void)
{
	MUST(!nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS));
}

static void unmake(void)
{
	empty();
	rmdir(root);
}

/* Below the root, and no link on the way there. */
static bool make_folders(char *path)
{
	char *slash = path;
	struct stat st;

	if (*path == '/' || strstr(path, ".."))
		return false;
	while ((slash = strchr(slash, '/'))) {
		*slash = '\0';
		mkdirat(rootfd, path, 0777);
		if (fstatat(rootfd, path, &st, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISDIR(st.st_mode))
			return false;
		*slash++ = '/';
	}
	return true;
}

static void make_entry(char *line)
{
	char *sign = strpbrk(line, "=>");
	int fd;

	if (!sign)
		return;
	if (*sign == '>') {
		*sign = '\0';
		if (make_folders(line) && symlinkat(sign + 1, rootfd, line))
			return;
		return;
	}
	*sign = '\0';
	if (!make_folders(line))
		return;
	fd = openat(rootfd, line, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW |
		    O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	MUST(write(fd, sign + 1, strlen(sign + 1)) ==
	     (ssize_t)strlen(sign + 1));
	close(fd);
}

static void make_tree(struct input *in)
{
	unsigned int i;
	char *line;

	for (i = 0; i < MOST && (line = input_text(in, '\n')); i++) {
		bool end = !*line;

		make_entry(line);
		free(line);
		if (end)
			break;
	}
}

static void check(const struct blockdevs *devs)
{
	unsigned int i, j;

	for (i = 0; i < devs->nr; i++) {
		const struct blockdev *dev = &devs->dev[i];

		MUST(memchr(dev->name, '\0', sizeof(dev->name)));
		MUST(memchr(dev->scheduler, '\0', sizeof(dev->scheduler)));
		MUST(memchr(dev->write_cache, '\0', sizeof(dev->write_cache)));
		MUST(dev->fields <= BLOCKDEV_FIELDS);
		MUST(dev->fua >= -1 && dev->fua <= 1);
		for (j = 0; j < dev->nr_above; j++)
			MUST(dev->above[j] < devs->nr);
		for (j = 0; j < i; j++)
			MUST(strcmp(devs->dev[j].name, dev->name));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct blockdevs devs = { 0 };
	unsigned int i, nr;
	char *spec[MOST];

	if (rootfd < 0) {
		MUST(mkdtemp(root));
		rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		MUST(rootfd >= 0);
		atexit(unmake);
	}
	make_tree(&in);
	devs.sysfd = rootfd;
	for (nr = 0; nr < MOST && (spec[nr] = input_text(&in, '\n')); nr++) {
		if (!*spec[nr]) {
			free(spec[nr]);
			break;
		}
		blockdevs_add(&devs, spec[nr]);
	}
	MUST(blockdevs_add_below(&devs) <= 0);
	check(&devs);
	blockdevs_sample(&devs, 0);
	make_tree(&in);
	blockdevs_sample(&devs, 1);
	check(&devs);
	blockdevs_free(&devs);
	for (i = 0; i < nr; i++)
		free(spec[i]);
	empty();
	return 0;
}
