// SPDX-License-Identifier: GPL-2.0-only
/*
 * The functions that an engine calls; see shim.h. What it takes from the
 * system is remembered until it gives it back: memory, descriptors, threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shim.h"

void shim_report_counts(void);

/* ---- what was taken ------------------------------------------------------ */

#define MAX_TAKEN	65536U	/* a power of two */

/* Memory by its address, a descriptor by its number with the top bit set. */
static struct taken {
	uintptr_t what;		/* 0: never used; GONE: free again */
	const void *by;
} taken[MAX_TAKEN];
#define GONE		UINTPTR_MAX
#define DESCRIPTOR(fd)	((uintptr_t)(fd) | 1UL << 63)

static atomic_flag taken_lock = ATOMIC_FLAG_INIT;
static atomic_int threads;
static bool used;

static void lock(void)
{
	while (atomic_flag_test_and_set(&taken_lock))
		;
}

static void unlock(void)
{
	atomic_flag_clear(&taken_lock);
}

static unsigned int slot_of(uintptr_t what)
{
	return (what >> 4 ^ what >> 20 ^ what) % MAX_TAKEN;
}

static void take(uintptr_t what, const void *by)
{
	unsigned int i = slot_of(what);

	lock();
	used = true;
	while (taken[i].what && taken[i].what != GONE)
		i = (i + 1) % MAX_TAKEN;
	taken[i] = (struct taken) { what, by };
	unlock();
}

/* Returns who took it; NULL if it was no engine. */
static const void *give_back(uintptr_t what)
{
	unsigned int i = slot_of(what);
	const void *by = NULL;

	if (!used)
		return NULL;
	lock();
	while (taken[i].what && taken[i].what != what)
		i = (i + 1) % MAX_TAKEN;
	if (taken[i].what) {
		taken[i].what = GONE;
		by = taken[i].by;
	}
	unlock();
	return by;
}

/* "fio-NAME.so+OFFSET", for addr2line. */
static void report(const char *what, const void *by)
{
	Dl_info info;

	if (by && dladdr(by, &info))
		shim_log("leak %s %s+%#lx\n", what, info.dli_fname,
			 (unsigned long)((const char *)by -
					 (const char *)info.dli_fbase));
	else
		shim_log("leak %s ?\n", what);
}

static void __attribute__((destructor)) end(void)
{
	unsigned int i;

	if (!used)
		return;
	for (i = 0; i < MAX_TAKEN; i++)
		if (taken[i].what && taken[i].what != GONE)
			report(taken[i].what >> 63 ? "descriptor" : "memory",
			       taken[i].by);
	if (threads)
		report("thread", NULL);
	shim_report_counts();
}

/* How the process of a forked job ends. */
void _exit(int status)
{
	end();
	NEXT(_exit)(status);
	__builtin_unreachable();
}

/* ---- memory -------------------------------------------------------------- */

/* dlsym() may want some while the functions here look for their next ones. */
static char early[65536];
static size_t early_used;
static __thread bool looking;

/* Set while a function of another library allocates for an engine. */
static __thread const void *on_behalf;

static void *early_alloc(size_t size)
{
	void *p = early + early_used;

	early_used += (size + 15) & ~15UL;
	if (early_used > sizeof(early))
		abort();
	return p;
}

#define NEXT_ALLOC(name, size, ...)					\
	({								\
		static __typeof__(&name) next;				\
		if (!next && !looking) {				\
			looking = true;					\
			next = (__typeof__(&name))shim_next(#name);	\
			looking = false;				\
		}							\
		next ? next(__VA_ARGS__) : early_alloc(size);		\
	})

/* The engine that an allocation is for, or NULL. */
static const void *whose(const void *caller)
{
	if (on_behalf)
		return on_behalf;
	return shim_is_engine(caller) ? caller : NULL;
}

static bool may_allocate(const void *engine, const char *function)
{
	if (!engine)
		return true;
	shim_count(function);
	return !shim_fault("alloc", function, shim_job(), NULL);
}

static void *allocated(void *p, const void *engine)
{
	if (p && engine)
		take((uintptr_t)p, engine);
	return p;
}

void *malloc(size_t size)
{
	const void *engine = whose(__builtin_return_address(0));

	if (!may_allocate(engine, "malloc"))
		return NULL;
	return allocated(NEXT_ALLOC(malloc, size, size), engine);
}

void *calloc(size_t nr, size_t size)
{
	const void *engine = whose(__builtin_return_address(0));

	if (!may_allocate(engine, "calloc"))
		return NULL;
	return allocated(NEXT_ALLOC(calloc, nr * size, nr, size), engine);
}

void *aligned_alloc(size_t align, size_t size)
{
	const void *engine = whose(__builtin_return_address(0));

	if (!may_allocate(engine, "aligned_alloc"))
		return NULL;
	return allocated(NEXT_ALLOC(aligned_alloc, size, align, size), engine);
}

static void *resize(void *old, size_t size, const void *engine)
{
	void *p;

	if (!may_allocate(engine, "realloc"))
		return NULL;
	/* Whoever resizes it, it stays the engine's that took it. */
	if (old)
		engine = give_back((uintptr_t)old);
	p = NEXT_ALLOC(realloc, size, old, size);
	if (!p && engine)
		take((uintptr_t)old, engine);
	return allocated(p, engine);
}

void *realloc(void *old, size_t size)
{
	return resize(old, size, whose(__builtin_return_address(0)));
}

void *reallocarray(void *old, size_t nr, size_t size)
{
	return resize(old, nr * size, whose(__builtin_return_address(0)));
}

void free(void *p)
{
	static __typeof__(&free) next;

	if ((char *)p >= early && (char *)p < early + sizeof(early))
		return;
	give_back((uintptr_t)p);
	if (!next) {
		/* What is freed during that is lost. */
		if (looking)
			return;
		looking = true;
		next = (__typeof__(&free))shim_next("free");
		looking = false;
	}
	next(p);
}

#define ON_BEHALF(call)							\
	({								\
		__typeof__(call) result;				\
		const void *before = on_behalf;				\
									\
		if (!before && BY_ENGINE)				\
			on_behalf = __builtin_return_address(0);	\
		result = (call);					\
		on_behalf = before;					\
		result;							\
	})

char *strdup(const char *s)
{
	return ON_BEHALF(NEXT(strdup)(s));
}

char *realpath(const char *restrict path, char *restrict resolved)
{
	return ON_BEHALF(NEXT(realpath)(path, resolved));
}

ssize_t __getdelim(char **restrict line, size_t *restrict size, int delimiter,
		   FILE *restrict in)
{
	return ON_BEHALF(NEXT(__getdelim)(line, size, delimiter, in));
}

int asprintf(char **restrict text, const char *restrict fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = ON_BEHALF(vasprintf(text, fmt, ap));
	va_end(ap);
	return ret;
}

FILE *open_memstream(char **text, size_t *size)
{
	return ON_BEHALF(NEXT(open_memstream)(text, size));
}

FILE *fopen64(const char *restrict path, const char *restrict mode)
{
	if (BY_ENGINE) {
		shim_count("fopen64");
		if (shim_fault("open", "fopen64", path, NULL))
			return NULL;
	}
	return ON_BEHALF(NEXT(fopen64)(path, mode));
}

/* ---- files --------------------------------------------------------------- */

int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;
	int fd;

	if (__OPEN_NEEDS_MODE(flags)) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if (!BY_ENGINE)
		return NEXT(open64)(path, flags, mode);
	shim_count("open64");
	if (shim_fault("open", "open64", path, NULL))
		return -1;
	fd = NEXT(open64)(path, flags, mode);
	if (fd >= 0)
		take(DESCRIPTOR(fd), __builtin_return_address(0));
	return fd;
}

int close(int fd)
{
	int ret;

	if (!BY_ENGINE)
		return NEXT(close)(fd);
	shim_count("close");
	/* Whatever close(2) returns, the descriptor is gone. */
	if (shim_fault_fd("close", "close", fd, NULL)) {
		int err = errno;

		NEXT(close)(fd);
		errno = err;
		ret = -1;
	} else {
		ret = NEXT(close)(fd);
	}
	give_back(DESCRIPTOR(fd));
	return ret;
}

#define TRANSFER(call, name, type)					\
ssize_t name(int fd, type buf, size_t len, off64_t pos)			\
{									\
	if (BY_ENGINE) {						\
		shim_count(#name);					\
		if (shim_fault_fd(call, #name, fd, &len))		\
			return -1;					\
	}								\
	return NEXT(name)(fd, buf, len, pos);				\
}
TRANSFER("read", pread64, void *)
TRANSFER("write", pwrite64, const void *)

#define TRANSFER_V(call, name)						\
ssize_t name(int fd, const struct iovec *iov, int nr, off64_t pos,	\
	     int flags)							\
{									\
	struct iovec cut = *iov;					\
									\
	/* A probe for a flag, nowhere near a file's end, is no transfer. */ \
	if (BY_ENGINE && pos < INT64_MAX / 2) {				\
		shim_count(#name);					\
		if (shim_fault_fd(call, #name, fd, &cut.iov_len))	\
			return -1;					\
		if (cut.iov_len < iov->iov_len)				\
			return NEXT(name)(fd, &cut, 1, pos, flags);	\
	}								\
	return NEXT(name)(fd, iov, nr, pos, flags);			\
}
TRANSFER_V("read", preadv64v2)
TRANSFER_V("write", pwritev64v2)

#define FLUSH(name)							\
int name(int fd)							\
{									\
	if (BY_ENGINE) {						\
		shim_count(#name);					\
		if (shim_fault_fd("flush", #name, fd, NULL))		\
			return -1;					\
	}								\
	return NEXT(name)(fd);						\
}
FLUSH(fsync)
FLUSH(fdatasync)

int sync_file_range(int fd, off64_t start, off64_t bytes, unsigned int flags)
{
	if (BY_ENGINE) {
		shim_count("sync_file_range");
		if (shim_fault_fd("sync_file_range", "sync_file_range", fd,
				  NULL))
			return -1;
	}
	return NEXT(sync_file_range)(fd, start, bytes, flags);
}

int posix_fadvise64(int fd, off64_t start, off64_t bytes, int advice)
{
	if (BY_ENGINE) {
		shim_count("posix_fadvise64");
		if (shim_fault_fd("fadvise", "posix_fadvise64", fd, NULL))
			return errno;
	}
	return NEXT(posix_fadvise64)(fd, start, bytes, advice);
}

/* ---- threads and locks --------------------------------------------------- */

int pthread_create(pthread_t *restrict thread,
		   const pthread_attr_t *restrict attr,
		   void *(*run)(void *), void *restrict data)
{
	bool engine = BY_ENGINE;
	int ret;

	if (engine) {
		shim_count("pthread_create");
		if (shim_fault("thread", "pthread_create", shim_job(), NULL))
			return errno;
	}
	ret = NEXT(pthread_create)(thread, attr, run, data);
	threads += engine && !ret;
	return ret;
}

/* fio forks the processes of its jobs one after the other. */
static unsigned int forked;
static char job[16];

const char *shim_job(void)
{
	return job;
}

pid_t fork(void)
{
	pid_t pid = NEXT(fork)();

	forked++;
	if (!pid) {
		/* What jobs that are threads have taken is not this one's. */
		memset(taken, 0, sizeof(taken));
		threads = 0;
		unlock();
		snprintf(job, sizeof(job), "job-%u", forked);
	}
	return pid;
}

int pthread_join(pthread_t thread, void **result)
{
	threads -= BY_ENGINE;
	return NEXT(pthread_join)(thread, result);
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	if (BY_ENGINE)
		shim_count("pthread_mutex_lock");
	return NEXT(pthread_mutex_lock)(mutex);
}
