// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rules for faults, counts, and the log; see shim.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

#define MAX_RULES	1024
#define MAX_COUNTS	64

struct rule {
	const char *call, *file;
	unsigned int nth, times;
	int error;		/* 0: short */
	size_t bytes;
	atomic_uint seen;
};

struct count {
	const char *_Atomic function;
	atomic_ulong nr;
};

static struct rule rules[MAX_RULES];
static unsigned int nr_rules;
static struct count counts[MAX_COUNTS];
static int log_fd = -1;

void *shim_next(const char *name)
{
	void *next = dlsym(RTLD_NEXT, name);

	/* fio keeps what an engine is linked with to the engine. */
	if (!next)
		next = dlsym(dlopen("liburing.so.2", RTLD_LAZY), name);
	if (!next)
		abort();
	return next;
}

bool shim_is_engine(const void *caller)
{
	struct dl_find_object object;
	const char *name;

	if (log_fd < 0 || _dl_find_object((void *)caller, &object))
		return false;
	name = strrchr(object.dlfo_link_map->l_name, '/');
	return name && !strncmp(name, "/fio-", 5) && strstr(name, ".so");
}

void shim_log(const char *fmt, ...)
{
	char line[PATH_MAX];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* Not what may be wrapped itself: it is only for the engines' calls. */
	if (write(log_fd, line, len) != len)
		abort();
}

void shim_count(const char *function)
{
	struct count *c;
	const char *none;

	for (c = counts; c < counts + MAX_COUNTS; c++) {
		none = NULL;
		if (atomic_compare_exchange_strong(&c->function, &none,
						   function) ||
		    !strcmp(none, function)) {
			c->nr++;
			return;
		}
	}
	abort();
}

void shim_report_counts(void)
{
	const struct count *c;

	for (c = counts; c < counts + MAX_COUNTS && c->function; c++)
		shim_log("count %s %lu\n", c->function, c->nr);
}

bool shim_fault(const char *call, const char *function, const char *path,
		size_t *len)
{
	const char *file = strrchr(path, '/');
	struct rule *r;
	unsigned int n;

	file = file ? file + 1 : path;
	for (r = rules; r < rules + nr_rules; r++) {
		if (strcmp(r->call, call) || (r->file && strcmp(r->file, file)))
			continue;
		n = ++r->seen;
		if (n < r->nth || n - r->nth >= r->times)
			continue;
		shim_log("fault %s %s %s\n", call, function, file);
		if (!r->error) {
			if (*len > r->bytes)
				*len = r->bytes;
			return false;
		}
		errno = r->error;
		return true;
	}
	return false;
}

bool shim_fault_fd(const char *call, const char *function, int fd,
		   size_t *len)
{
	char link[32], path[PATH_MAX] = "";

	if (!nr_rules)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path) - 1) < 0)
		path[0] = '\0';
	return shim_fault(call, function, path, len);
}

static int errno_of(const char *name)
{
	const char *known;
	int err;

	for (err = 1; err < 4096; err++) {
		known = strerrorname_np(err);
		if (known && !strcmp(known, name))
			return err;
	}
	return 0;
}

/* A rule of the test that can't be understood must not pass for no fault. */
static void parse_rule(char *text)
{
	struct rule *r = &rules[nr_rules++];
	char *save, *key, *value;

	if (nr_rules == MAX_RULES)
		abort();
	r->nth = r->times = 1;
	for (key = strtok_r(text, ",", &save); key;
	     key = strtok_r(NULL, ",", &save)) {
		value = strchr(key, '=');
		if (!value)
			abort();
		*value++ = '\0';
		if (!strcmp(key, "call"))
			r->call = value;
		else if (!strcmp(key, "file"))
			r->file = value;
		else if (!strcmp(key, "nth"))
			r->nth = atoi(value);
		else if (!strcmp(key, "times"))
			r->times = atoi(value);
		else if (!strcmp(key, "short"))
			r->bytes = atoi(value);
		else if (strcmp(key, "error") || !(r->error = errno_of(value)))
			abort();
	}
	if (!r->call)
		abort();
}

static void __attribute__((constructor)) begin(void)
{
	const char *path = getenv("DURABENCH_SHIM_LOG");
	char *text = getenv("DURABENCH_SHIM_FAULTS"), *rule, *save;

	if (text)
		text = strdup(text);
	for (rule = text ? strtok_r(text, ";", &save) : NULL; rule;
	     rule = strtok_r(NULL, ";", &save))
		parse_rule(rule);
	if (path) {
		log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
			      0666);
		if (log_fd < 0)
			abort();
	}
}
