// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPU time of kswapd and of writeback; see kthread.h.
 *
 * A large host has thousands of kernel threads and more processes, so /proc
 * is not searched: all kernel threads are children of kthreadd, which has
 * pid 2, and one file lists them. Only those that can matter are read again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "kthread.h"

#define PF_KTHREAD	0x00200000	/* include/linux/sched.h */

enum kind { OTHER, KSWAPD, UNBOUND_WORKER };

struct kthread {
	int pid;
	enum kind kind;
	uint64_t born, ticks;
};

/* What is used of /proc/PID/stat (proc_pid_stat(5)). */
struct stat_line {
	char name[72];		/* a kworker's can be longer than comm */
	unsigned int flags;
	uint64_t born, ticks;
};

static int read_stat(int procfd, int pid, struct stat_line *line)
{
	uint64_t user, system;
	char path[32], buf[1024], *begin, *end;
	ssize_t length;

	snprintf(path, sizeof(path), "%d/stat", pid);
	length = file_read(procfd, path, buf, sizeof(buf));
	if (length < 0)
		return length;

	/* the name may hold anything, parentheses too */
	begin = strchr(buf, '(');
	end = strrchr(buf, ')');
	if (!begin || !end || end < begin)
		return -EINVAL;
	*end = '\0';
	snprintf(line->name, sizeof(line->name), "%s", begin + 1);
	if (sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %"
		   SCNu64 " %" SCNu64 " %*d %*d %*d %*d %*d %*d %" SCNu64,
		   &line->flags, &user, &system, &line->born) != 4)
		return -EINVAL;
	line->ticks = user + system;
	return 0;
}

/* What a kworker does or did last: what follows the + or - of its name. */
static const char *worker_description(const char *name)
{
	const char *colon = strchr(name, ':');

	if (strncmp(name, "kworker/", 8) || !colon)
		return NULL;
	name = strpbrk(colon, "+-");
	return name ? name + 1 : NULL;
}

/* The work renames its worker; bandwidth estimates keep the queue's name. */
static bool does_writeback(const char *name)
{
	const char *description = worker_description(name);

	return description && (!strncmp(description, "flush-", 6) ||
			       !strcmp(description, "writeback"));
}

static void account(struct kthreads *k, struct kthread *thread,
		    const struct stat_line *line)
{
	uint64_t used = line->ticks - thread->ticks;

	thread->ticks = line->ticks;
	if (thread->kind == KSWAPD)
		k->kswapd += used;
	else if (does_writeback(line->name))
		k->flusher += used;
}

/* Returns false if there is no such thread any more. */
static bool meet(struct kthreads *k, struct kthread *thread, int pid)
{
	struct stat_line line;

	if (read_stat(k->procfd, pid, &line))
		return false;
	thread->pid = pid;
	thread->born = line.born;
	if (!strncmp(line.name, "kswapd", 6)) {
		thread->kind = KSWAPD;
		k->has_kswapd = true;
	} else if (!strncmp(line.name, "kworker/u", 9)) {
		thread->kind = UNBOUND_WORKER;
	} else {
		thread->kind = OTHER;
	}
	/* an older kernel does not say what a kworker does */
	if (worker_description(line.name))
		k->has_flusher = true;

	thread->ticks = line.born < k->begin ? line.ticks : 0;
	if (thread->kind != OTHER)
		account(k, thread, &line);
	return true;
}

static int compare_threads(const void *a, const void *b)
{
	const struct kthread *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* The whole of a file that may be long, for the caller to free. */
static char *read_long(int dirfd, const char *path)
{
	size_t length = 0, size = 0;
	char *buf = NULL;
	ssize_t got;
	int fd;

	fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	do {
		if (size - length < 4096) {
			char *more = realloc(buf, size + 16384);

			if (!more) {
				errno = ENOMEM;
				got = -1;
				break;
			}
			buf = more;
			size += 16384;
		}
		got = read(fd, buf + length, size - length - 1);
		if (got > 0)
			length += got;
	} while (got > 0);
	close(fd);
	if (got < 0) {
		free(buf);
		return NULL;
	}
	buf[length] = '\0';
	return buf;
}

int kthreads_list(struct kthreads *k)
{
	struct kthread *thread, *known;
	char *list, *at, *end;
	struct stat_line line;
	size_t i, listed = 0, nr = 0;
	long pid;

	if (read_stat(k->procfd, 2, &line) || !(line.flags & PF_KTHREAD))
		return -ENOENT;
	list = read_long(k->procfd, "2/task/2/children");
	if (!list)
		return -errno;
	/* a pid takes a digit and a blank at least */
	thread = calloc(strlen(list) / 2 + 1, sizeof(*thread));
	if (!thread) {
		free(list);
		return -ENOMEM;
	}

	for (at = list; (pid = strtol(at, &end, 10)) > 0; at = end)
		thread[listed++].pid = pid;
	free(list);
	qsort(thread, listed, sizeof(*thread), compare_threads);

	for (i = 0; i < listed; i++) {
		if (nr && thread[nr - 1].pid == thread[i].pid)
			continue;	/* a list that changes may repeat one */
		known = k->nr ? bsearch(&thread[i], k->thread, k->nr,
					sizeof(*known), compare_threads) : NULL;
		if (known)
			thread[nr++] = *known;
		else if (meet(k, &thread[nr], thread[i].pid))
			nr++;
	}
	free(k->thread);
	k->thread = thread;
	k->nr = nr;
	return 0;
}

void kthreads_read(struct kthreads *k)
{
	struct stat_line line;
	size_t i;

	for (i = 0; i < k->nr; i++) {
		struct kthread *thread = &k->thread[i];

		if (thread->kind == OTHER ||
		    read_stat(k->procfd, thread->pid, &line))
			continue;
		if (line.born == thread->born)	/* else its pid was used again */
			account(k, thread, &line);
	}
}

void kthreads_free(struct kthreads *k)
{
	free(k->thread);
	k->thread = NULL;
	k->nr = 0;
}
