/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guard: a block device with data on it, or in use, is not written.
 *
 * The kernel lets root write over a mounted disk, and a benchmark's job file
 * names its disk by a name that is another's after the next boot. So whoever
 * is about to write, be it an engine in a job that was started by hand or the
 * durabench command, claims its devices here first. A claim
 *
 *  - is on the device that a path leads to, whatever links are in between; for
 *    a generic NVMe or SCSI device (/dev/ngXnY, /dev/sgN) on its block device;
 *  - is refused, always, if the device, a part of it, the disk it is a part of
 *    or the device behind it is in use (mounted, swap, part of a dm, md or
 *    bcache device, behind a loop device, held by another program), or if it
 *    is read-only;
 *  - is refused if libblkid finds something on it, unless a person confirmed
 *    it by a name that this device alone has and keeps: a serial number, a WWN,
 *    a link of /dev/disk/by-id; but never by /dev/sdb;
 *  - keeps the device open with O_EXCL, so that nothing can mount or claim it.
 *
 * Jobs of one fio, and the command that started it, share claims: a second
 * O_EXCL would fail. What they share are three file descriptors that children
 * inherit: a table of what is claimed, and a pair of connected sockets, in
 * whose buffer the O_EXCL descriptors lie. The kernel closes those when the
 * last process that has the sockets is gone, whatever its end is. The
 * environment variable DURABENCH_CLAIMS tells their numbers; without the very
 * descriptors it is worth nothing.
 */
#ifndef DURABENCH_GUARD_H
#define DURABENCH_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct guard {
	int table;		/* file of struct records (guard.c) */
	int sockets[2];		/* what is sent to the first stays unread */
	char error[1024];	/* why a function failed, and the way out */
};

/* A device as a claim found it. */
struct guard_device {
	const char *path;	/* as it was given */
	char node[64];		/* the block device's own: /dev/sda1 */
	dev_t dev;
	uint64_t diskseq;	/* of the medium, 0: unknown to this kernel */
	uint64_t size;		/* bytes */
	char **names;		/* that confirm it, best first, then NULL */
	char *holds;		/* what is on it, as a text; "": nothing */
	bool confirmed;
	bool claimed_before;	/* and not looked at again: no names, no holds */
};

/*
 * Join what DURABENCH_CLAIMS names, or make it anew and set the variable. Has to
 * happen before those who are to share it are forked. Returns 0, or -errno
 * with @g->error.
 */
int guard_open(struct guard *g);
void guard_close(struct guard *g);

/*
 * Claim the @nr block devices that @paths lead to; other files are passed over.
 * @confirm are the names that a person gave for what may be lost, then NULL;
 * each must be a name of one of the devices. @option is what one is given by,
 * for messages: "destroy=". With @devices, an array of @nr, it says what it
 * found; those of other files have no node. To be freed by
 * guard_free_devices(), also after a failure.
 * Returns 0, or -errno with @g->error, and then none is claimed.
 */
int guard_claim(struct guard *g, const char *const *paths, unsigned int nr,
		const char *const *confirm, const char *option,
		struct guard_device *devices);
void guard_free_devices(struct guard_device *devices, unsigned int nr);

/*
 * Is what @fd, opened by @path, writes to claimed, and still the same? Returns
 * 0 if so or if it is no block device, else -errno with @g->error: -ENOENT if
 * it is not claimed, -ESTALE if it has changed since.
 */
int guard_check(struct guard *g, int fd, const char *path);

#endif
