// SPDX-License-Identifier: GPL-2.0-only
/*
 * The load guard.
 *
 * fio accepts an external engine when ops->version equals its own
 * FIO_IOOPS_VERSION. That number stays the same while structures change: fio
 * 3.41, 3.42 and later are all 39 with three layouts, and Debian 13's fio
 * says 3.39 but is a later snapshot. An engine of the wrong layout loads
 * without a word, loses its options and reports wrong numbers.
 *
 * The running fio exports enough to prove the layout, though: its version
 * string, its option table (which holds offsets into struct thread_options),
 * and objects whose symbol size is the size of a structure. All are looked up
 * by name, since a fio that lacks one must be refused, not crash the loader.
 */
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

struct offset {
	const char *option;
	size_t off1;
};

#define OFFSET(option, field) { option, offsetof(struct thread_options, field) }

/*
 * The fields that the engines use, and others spread to the end of the
 * structure so that an insertion anywhere shows; in the structure's order, so
 * that the first to differ is the first one behind the change.
 */
static const struct offset offsets[] = {
	OFFSET("name",			name),
	OFFSET("rw",			td_ddir),
	OFFSET("iodepth",		iodepth),
	OFFSET("size",			size),
	OFFSET("bsrange",		min_bs),
	OFFSET("nrfiles",		nr_files),
	OFFSET("direct",		odirect),
	OFFSET("invalidate",		invalidate_cache),
	OFFSET("create_serialize",	create_serialize),
	OFFSET("create_on_open",	create_on_open),
	OFFSET("sync",			sync_io),
	OFFSET("thread",		use_thread),
	OFFSET("unlink",		unlink),
	OFFSET("log_offset",		log_offset),
	OFFSET("verify_only",		verify_only),
	OFFSET("fsync",			fsync_blocks),
	OFFSET("fdatasync",		fdatasync_blocks),
	OFFSET("disable_clat",		disable_clat),
	OFFSET("disable_slat",		disable_slat),
	OFFSET("disable_bw_measurement", disable_bw),
	OFFSET("read_iolog",		read_iolog_file),
	OFFSET("zonemode",		zone_mode),
	OFFSET("time_based",		time_based),
	OFFSET("io_submit_mode",	io_submit_mode),
	OFFSET("sync_file_range",	sync_file_range),
	OFFSET("latency_run",		latency_run),
	OFFSET("replay_skip",		replay_skip),
	OFFSET("allow_file_create",	allow_create),
	OFFSET("allow_mounted_write",	allow_mounted_write),
	OFFSET("log_prio",		log_prio),
};

/* Size of the object that fio exports as @name; 0: it exports none. */
static size_t symbol_size(const char *name)
{
	void *addr = dlsym(RTLD_DEFAULT, name);
	const ElfW(Sym) *sym = NULL;
	Dl_info info;

	if (!addr || !dladdr1(addr, &info, (void **)&sym, RTLD_DL_SYMENT))
		return 0;
	return sym ? sym->st_size : 0;
}

/* Describe the first difference in @why. Returns true if there is none. */
static bool layout_matches(const char *running, char *why, size_t len)
{
	struct fio_option *(*find)(const char *);
	size_t i, size;

	if (strcmp(running, DURABENCH_FIO_VERSION)) {
		snprintf(why, len, "version \"%s\", expected \"%s\"", running,
			 DURABENCH_FIO_VERSION);
		return false;
	}

	size = symbol_size("fio_options");
	if (size != FIO_MAX_OPTS * sizeof(struct fio_option)) {
		snprintf(why, len, "size of fio_options is %zu, expected %zu",
			 size, FIO_MAX_OPTS * sizeof(struct fio_option));
		return false;
	}

	find = dlsym(RTLD_DEFAULT, "fio_option_find");
	if (!find) {
		snprintf(why, len, "fio_option_find() is not exported");
		return false;
	}

	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		struct fio_option *o = find(offsets[i].option);

		if (!o) {
			snprintf(why, len, "option \"%s\" is missing",
				 offsets[i].option);
			return false;
		}
		if (o->off1 != offsets[i].off1) {
			snprintf(why, len,
				 "option \"%s\" is at offset %u, expected %zu",
				 offsets[i].option, (unsigned int)o->off1,
				 offsets[i].off1);
			return false;
		}
	}

	size = symbol_size("client_ts");
	if (size != sizeof(struct thread_stat)) {
		snprintf(why, len, "size of client_ts is %zu, expected %zu",
			 size, sizeof(struct thread_stat));
		return false;
	}
	return true;
}

bool engine_guard(const char *engine)
{
	const char *running = dlsym(RTLD_DEFAULT, "fio_version_string");
	char why[160], exe[512];
	ssize_t len;

	if (layout_matches(running ? running : "unknown", why, sizeof(why)))
		return true;

	len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	exe[len > 0 ? len : 0] = '\0';

	fprintf(stderr,
		"fio-%s: not built for this fio: running %s (%s), built against the headers of %s; first difference: %s.\n"
		"fio-%s: rebuild it with: make FIO=%s\n",
		engine, running ? running : "an unknown fio", exe,
		DURABENCH_FIO_VERSION, why, engine, exe);
	return false;
}
