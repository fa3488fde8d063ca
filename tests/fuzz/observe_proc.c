// SPDX-License-Identifier: GPL-2.0-only
/*
 * observe/kthread.c and sample.c: a /proc whose files say anything. The input
 * has them one behind the other, each up to a byte 0xff: meminfo, stat,
 * 2/stat, 2/task/2/children, 7/stat, 8/stat; then all of them once more, as
 * they are at the second sample.
 */
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "observe/sample.h"

static const char *const paths[] = {
	"meminfo", "stat", "2/stat", "2/task/2/children", "7/stat", "8/stat",
};
#define FILES (sizeof(paths) / sizeof(paths[0]))

static char root[] = "/dev/shm/durabench-fuzz-XXXXXX";
static int rootfd = -1, files[FILES];

static void unmake(void)
{
	static const char *const folders[] = {
		"2/task/2", "2/task", "2", "7", "8",
	};
	unsigned int i;

	for (i = 0; i < FILES; i++)
		unlinkat(rootfd, paths[i], 0);
	for (i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		unlinkat(rootfd, folders[i], AT_REMOVEDIR);
	rmdir(root);
}

static void make(void)
{
	unsigned int i;

	MUST(mkdtemp(root));
	rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(rootfd >= 0);
	mkdirat(rootfd, "2", 0777);
	mkdirat(rootfd, "2/task", 0777);
	mkdirat(rootfd, "2/task/2", 0777);
	mkdirat(rootfd, "7", 0777);
	mkdirat(rootfd, "8", 0777);
	for (i = 0; i < FILES; i++) {
		files[i] = openat(rootfd, paths[i],
				  O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
		MUST(files[i] >= 0);
	}
	atexit(unmake);
}

static void fill(struct input *in)
{
	unsigned int i;

	for (i = 0; i < FILES; i++) {
		const uint8_t *end = memchr(in->at, 0xff, in->left);
		size_t size = end ? (size_t)(end - in->at) : in->left;

		MUST(!ftruncate(files[i], 0));
		MUST(pwrite(files[i], in->at, size, 0) == (ssize_t)size);
		in->at += size + !!end;
		in->left -= size + !!end;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct blockdevs none = { .sysfd = -1 };
	struct input in = { data, size };
	struct sampler s;

	if (!size)
		return 0;
	if (rootfd < 0)
		make();
	fill(&in);
	MUST(!sampler_open(&s, rootfd, &none));
	sampler_take(&s, 0, false);
	if (in.left)
		fill(&in);
	sampler_take(&s, 2, true);
	MUST(s.nr == 2 && s.t == 2);
	MUST(s.cpu.user >= 0 && s.cpu.system >= 0 && s.cpu.iowait >= 0);
	MUST(isnan(s.cpu.kswapd) || s.cpu.kswapd >= 0);
	MUST(isnan(s.cpu.flusher) || s.cpu.flusher >= 0);
	MUST(s.dirty_peak >= s.memory.dirty);
	MUST(s.cached_peak >= s.memory.cached);
	sampler_close(&s);
	return 0;
}
