/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A library to preload into fio. It stands between an engine and the system:
 * it makes calls fail as they do on a bad day, counts them, and tells at the
 * end what the engine did not give back. Only calls out of an engine's shared
 * object are touched, never those of fio or of another library.
 *
 *   DURABENCH_SHIM_LOG=FILE      where the lines below go; needed
 *   DURABENCH_SHIM_RING=SEED     emulate io_uring: see ring.c
 *   DURABENCH_SHIM_FAULTS=RULES  separated by ";", each of key=value separated
 *                                by ",":
 *       call=    write, read, flush, sync_file_range, fadvise, open, close,
 *                alloc, thread or ring
 *       file=    the last part of the file's name, or for the last three
 *                job-N in the Nth process that fio forked; without it any
 *       nth=     the first of these calls that fails; 1 without it
 *       times=   how many fail from there on; 1 without it
 *       error=   errno, by name
 *       short=   instead of error=: the bytes that are transferred
 *
 * Lines, most when a process ends in which an engine did something:
 *   fault CALL FUNCTION FILE     a fault was injected, when it is
 *   ring WHAT NUMBER             of an emulated ring, when it is given up
 *   count FUNCTION NUMBER        calls out of the engine
 *   leak WHAT WHERE              what it did not give back, and who took it
 */
#ifndef DURABENCH_SHIM_H
#define DURABENCH_SHIM_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The function that @name stands in front of. */
#define NEXT(name)							\
	({								\
		static __typeof__(&name) next;				\
		if (!next)						\
			next = (__typeof__(&name))shim_next(#name);	\
		next;							\
	})
void *shim_next(const char *name);

/* Was the function that has this in it called by an engine? */
#define BY_ENGINE	shim_is_engine(__builtin_return_address(0))
bool shim_is_engine(const void *caller);

/* One line of the log. */
void shim_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What stands for a file in the rules for calls that are about none. */
const char *shim_job(void);

/* Count a call of @function. */
void shim_count(const char *function);

/*
 * @function is about to do @call on @path (or on @fd). Returns false if it is
 * to go on, perhaps with @len cut; true if it is to fail with errno.
 */
bool shim_fault(const char *call, const char *function, const char *path,
		size_t *len);
bool shim_fault_fd(const char *call, const char *function, int fd,
		   size_t *len);

#endif
