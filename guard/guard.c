// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guard; see guard.h.
 *
 * A device is opened with O_EXCL first and looked at then, by its number and
 * that descriptor: nothing can take it meanwhile, and no path is followed
 * twice.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "device.h"
#include "guard.h"
#include "util/printable.h"

#define VARIABLE "DURABENCH_CLAIMS"

/* Descriptors that one message can carry: SCM_MAX_FD of the kernel. */
#define MESSAGE_FDS 253

/* Devices behind each other that a claim holds: loop devices on devices. */
#define MAX_BEHIND 8

/* Of the table: a device that is claimed, as it was then. */
struct record {
	uint64_t dev;
	uint64_t generic;	/* dev is a character device, without a block one */
	uint64_t diskseq, size;
};

/* A device on its way to be claimed. */
struct claim {
	struct guard *g;
	const char *path;	/* as it was given */
	struct device device;
	dev_t generic;		/* without a block device */
	bool none;		/* no device at all */
	struct record record;
	int fds[MAX_BEHIND];
	unsigned int nr_fds;
};

static int __attribute__((format(printf, 3, 4)))
fail(struct guard *g, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(g->error, sizeof(g->error), fmt, ap);
	va_end(ap);
	printable(g->error);
	return -err;
}

static int out_of_memory(struct guard *g)
{
	return fail(g, ENOMEM, "out of memory");
}

/* ---- what is shared ------------------------------------------------------- */

/* Take what the environment names, if this process has it. */
static bool join(struct guard *g)
{
	const char *value = getenv(VARIABLE);
	unsigned long long inode;
	struct stat st;
	int fds[3];

	if (!value || sscanf(value, "%d,%d,%d,%llu", &fds[0], &fds[1], &fds[2],
			     &inode) != 4)
		return false;
	/* The numbers may be of other files by now. */
	if (fstat(fds[0], &st) || st.st_ino != inode || !S_ISREG(st.st_mode) ||
	    fcntl(fds[0], F_GET_SEALS) < 0 ||
	    fstat(fds[1], &st) || !S_ISSOCK(st.st_mode) ||
	    fstat(fds[2], &st) || !S_ISSOCK(st.st_mode))
		return false;
	g->table = fds[0];
	g->sockets[0] = fds[1];
	g->sockets[1] = fds[2];
	return true;
}

int guard_open(struct guard *g)
{
	char value[80];
	struct stat st;
	int err;

	if (join(g))
		return 0;
	g->sockets[0] = g->sockets[1] = -1;
	g->table = memfd_create("durabench-guard", MFD_CLOEXEC);
	if (g->table < 0 || fstat(g->table, &st) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, g->sockets))
		goto fail;
	snprintf(value, sizeof(value), "%d,%d,%d,%llu", g->table,
		 g->sockets[0], g->sockets[1], (unsigned long long)st.st_ino);
	if (!setenv(VARIABLE, value, 1))
		return 0;
fail:
	err = errno;
	guard_close(g);
	return fail(g, err, "block devices can't be claimed: %s",
		    strerror(err));
}

void guard_close(struct guard *g)
{
	int *fds[] = { &g->table, &g->sockets[0], &g->sockets[1] };
	size_t i;

	for (i = 0; i < 3; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

/*
 * Open the table anew: a lock on it is then of this call alone, whatever
 * process or thread makes it. Returns the descriptor or -errno.
 */
static int lock_table(struct guard *g)
{
	char path[32];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", g->table);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && !flock(fd, LOCK_EX))
		return fd;
	err = errno;
	if (fd >= 0)
		close(fd);
	return fail(g, err, "block devices can't be claimed: %s: %s", path,
		    strerror(err));
}

/* Look for the device of @r in the table; 0: there is none. */
static int find_record(int table, const struct record *r, struct record *found)
{
	off_t pos;

	for (pos = 0; pread(table, found, sizeof(*found), pos) ==
		      sizeof(*found); pos += sizeof(*found))
		if (found->dev == r->dev && found->generic == r->generic)
			return 1;
	return 0;
}

/* Let the sockets keep @nr descriptors. Returns 0 or -errno. */
static int keep(const struct guard *g, const int *fds, unsigned int nr)
{
	union {
		char buf[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr msg = {
		.msg_iov = &(struct iovec){ .iov_base = "", .iov_len = 1 },
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = CMSG_SPACE(nr * sizeof(int)),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	memset(&control, 0, sizeof(control));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(nr * sizeof(int));
	memcpy(CMSG_DATA(c), fds, nr * sizeof(int));
	return sendmsg(g->sockets[0], &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ?
		-errno : 0;
}

/* ---- a claim -------------------------------------------------------------- */

/* Tell in @r which device @d is, and which medium is in it. */
static void identify(struct record *r, const struct device *d)
{
	char text[32];

	*r = (struct record){ .dev = d->dev };
	if (device_attribute(d, "size", text, sizeof(text)))
		r->size = strtoull(text, NULL, 10) * 512;
	if (device_attribute(d, d->partition ? "../diskseq" : "diskseq", text,
			     sizeof(text)))
		r->diskseq = strtoull(text, NULL, 10);
}

/*
 * Find the device that @st is of. Returns 0 with c->none if it is none, or
 * -errno with an error.
 */
static int find_device(struct claim *c, const struct stat *st, char *node,
		       size_t len)
{
	dev_t block = st->st_rdev;
	char name[40];
	int ret;

	snprintf(node, len, "%s", c->path);
	if (S_ISCHR(st->st_mode)) {
		ret = device_of_generic(st->st_rdev, &block, name,
					sizeof(name));
		if (ret == -ENXIO) {
			c->generic = st->st_rdev;
			c->record = (struct record){
				.dev = st->st_rdev, .generic = 1,
			};
			return 0;
		}
		c->none = ret;
		snprintf(node, len, "/dev/%s", name);
	} else {
		c->none = !S_ISBLK(st->st_mode);
	}
	if (c->none)
		return 0;
	ret = device_find(&c->device, block);
	if (ret)
		return fail(c->g, -ret, "%s: sysfs does not know it: %s",
			    c->path, strerror(-ret));
	identify(&c->record, &c->device);
	return 0;
}

/* device_users() or device_own_users() */
typedef void users_fn(const struct device *d, dev_t above, FILE *out);

/* Refuse @d if @users tells of any, or if it is @busy with what none can see. */
static int refuse_users(struct claim *c, const struct device *d, dev_t above,
			users_fn *users, bool busy)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int ret = 0;

	if (!out)
		return out_of_memory(c->g);
	users(d, above, out);
	if (fclose(out))
		ret = out_of_memory(c->g);
	else if (*text || busy)
		ret = fail(c->g, EBUSY,
			   "%s is in use: %.700s. Release it first, or take another device",
			   c->path, *text ? text :
			   "the kernel holds it for something (a mount that can't be seen from here, a volume, another measurement)");
	free(text);
	return ret;
}

static int check_below(struct claim *c, const struct device *d);

/*
 * Open @d, by @node, so that nothing else can have it; refuse it if something
 * has, if it is read-only, or if that is so of what is below it. @above is a loop
 * device of this claim that stands on it, or 0.
 */
static int hold(struct claim *c, const struct device *d, const char *node,
		dev_t above)
{
	struct guard *g = c->g;
	int fd, err, ro = 0;
	struct stat st;

	if (c->nr_fds == MAX_BEHIND)
		return fail(g, ELOOP, "%s: too many devices behind each other",
			    c->path);
	fd = open(node, O_RDONLY | O_EXCL | O_CLOEXEC);
	err = fd < 0 ? errno : 0;
	if (err && err != EBUSY)
		return fail(g, err, "%s: %s can't be opened: %s%s", c->path,
			    node, strerror(err),
			    err == EACCES || err == EPERM ?
			    "; measuring on a block device needs root" : "");
	if (fd >= 0) {
		c->fds[c->nr_fds++] = fd;
		if (fstat(fd, &st) || !S_ISBLK(st.st_mode) ||
		    st.st_rdev != d->dev)
			return fail(g, ESTALE,
				    "%s is no longer the device that it was a moment ago; try again",
				    c->path);
		if (ioctl(fd, BLKROGET, &ro))
			return fail(g, errno, "%s: %s: %s", c->path, node,
				    strerror(errno));
		if (ro)
			return fail(g, EROFS, "%s is read-only", c->path);
	}

	err = refuse_users(c, d, above, device_users, fd < 0);
	return err ? err : check_below(c, d);
}

static bool check_slave(const struct device *d, void *data)
{
	struct claim *c = data;

	/* What is made of it holds it, and the kernel lets no one else. */
	return !refuse_users(c, d, 0, device_own_users, false) &&
	       !check_below(c, d);
}

/* What a loop device stands on; what a dm or md device is made of. */
static int check_below(struct claim *c, const struct device *d)
{
	struct device behind;
	char path[64];
	dev_t dev;

	if (device_behind_loop(d, &dev) && !device_find(&behind, dev)) {
		snprintf(path, sizeof(path), "/dev/%s", behind.name);
		return hold(c, &behind, path, d->dev);
	}
	c->g->error[0] = '\0';
	snprintf(path, sizeof(path), "%s/slaves", d->sys);
	device_for_each(path, false, check_slave, c);
	return c->g->error[0] ? -EBUSY : 0;
}

/*
 * Find the device that c->path leads to, refuse it for what no one can
 * confirm, and tell in @info what is on it.
 */
static int prepare(struct claim *c, int table, struct guard_device *info,
		   const struct claim *others, unsigned int nr)
{
	struct guard *g = c->g;
	struct record found;
	struct stat st;
	char node[4096];
	size_t size;
	FILE *holds;
	int ret;

	info->path = c->path;
	/* What is not there yet is no device. */
	c->none = stat(c->path, &st);
	if (c->none)
		return 0;
	ret = find_device(c, &st, node, sizeof(node));
	if (ret || c->none)
		return ret;
	info->dev = c->record.dev;
	info->diskseq = c->record.diskseq;
	info->size = c->record.size;
	if (!c->generic)
		snprintf(info->node, sizeof(info->node), "/dev/%s",
			 c->device.name);

	if (find_record(table, &c->record, &found)) {
		if (memcmp(&found, &c->record, sizeof(found)))
			return fail(g, ESTALE,
				    "%s: another medium is in it than when it was checked",
				    c->path);
		info->claimed_before = true;
		return 0;
	}
	for (; nr; nr--, others++)
		if (!others->none && others->record.dev == c->record.dev &&
		    others->record.generic == c->record.generic) {
			c->none = true;
			return 0;
		}

	info->names = c->generic ? device_generic_names(c->generic) :
				   device_names(&c->device);
	if (!info->names)
		return out_of_memory(g);

	if (!c->generic) {
		ret = hold(c, &c->device, node, 0);
		if (ret)
			return ret;
		if (!info->size)
			return fail(g, ENOMEDIUM, "%s has no size", c->path);
	}

	holds = open_memstream(&info->holds, &size);
	if (!holds)
		return out_of_memory(g);
	ret = 0;
	if (c->generic)
		fputs("what can't be seen, as it has no block device", holds);
	else
		ret = device_contents(&c->device, c->fds[0], holds);
	if (fclose(holds))
		return out_of_memory(g);
	printable(info->holds);
	if (ret)
		return fail(g, -ret,
			    "%s can't be read, so what is on it can't be seen: %s",
			    c->path, strerror(-ret));
	return 0;
}

/* ---- confirmation --------------------------------------------------------- */

static bool is_name(const struct guard_device *info, const char *given)
{
	static const char *const folders[] = {
		"", "/dev/disk/by-id/", "/dev/disk/by-partuuid/", "/dev/mapper/",
	};
	size_t i, len;
	char **name;

	for (i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		len = strlen(folders[i]);
		if (strncmp(given, folders[i], len))
			continue;
		for (name = info->names; name && *name; name++)
			if (!strcmp(*name, given + len))
				return true;
	}
	return false;
}

/* How a person can confirm the device, as a text that has to be freed. */
static char *way_out(const struct guard_device *info, const char *option)
{
	char **name = info->names;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	if (!*name)
		fprintf(out, "it has no serial number or other name that no other device has, to confirm it by; wipe it yourself (wipefs -a %s)",
			info->node[0] ? info->node : info->path);
	else
		fprintf(out, "confirm it by name: %s%s", option, *name++);
	if (info->names[0] && *name) {
		fprintf(out, " (or %s", *name);
		while (*++name)
			fprintf(out, ", %s", *name);
		fputc(')', out);
	}
	fclose(out);
	return text;
}

/*
 * Which devices the names in @confirm are of: each must be of one. Those that
 * were claimed before have none here, as no one asks for them any more.
 */
static int confirm_names(struct guard *g, struct guard_device *devices,
			 unsigned int nr, const char *const *confirm,
			 const char *option)
{
	unsigned int i, unmatched;
	bool found;
	char *way;

	for (; confirm && *confirm; confirm++) {
		found = false;
		unmatched = nr;
		for (i = 0; i < nr; i++) {
			if (devices[i].claimed_before)
				found = true;
			else if (!devices[i].names)
				continue;
			else if (is_name(&devices[i], *confirm))
				found = devices[i].confirmed = true;
			else if (unmatched == nr)
				unmatched = i;
		}
		if (found || unmatched == nr)
			continue;
		way = way_out(&devices[unmatched], option);
		fail(g, EPERM, "%s%s is no name of %s: %s", option, *confirm,
		     devices[unmatched].path, way ? way : "");
		free(way);
		return -EPERM;
	}
	return 0;
}

static void human(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = bytes;
	size_t i;

	for (i = 0; value >= 1024 && i < 4; i++)
		value /= 1024;
	snprintf(buf, len, i ? "%.1f %s" : "%.0f %s", value, units[i]);
}

/* Refuse what holds something and is not confirmed. */
static int refuse_contents(struct guard *g, const struct claim *c,
			   const struct guard_device *info, const char *option)
{
	char size[32], model[64] = "";
	char *way;

	if (!info->holds || !*info->holds || info->confirmed)
		return 0;
	human(info->size, size, sizeof(size));
	if (!c->generic && device_attribute(&c->device, "device/model", model,
					    sizeof(model) - 2))
		strcat(model, ", ");
	way = way_out(info, option);
	fail(g, EPERM,
	     "%s (%s%s) holds %.300s, which would be written over. If that may be lost: %s",
	     info->path, model, size, info->holds, way ? way : "");
	free(way);
	return -EPERM;
}

/* ---- claims --------------------------------------------------------------- */

/* Let the claims be kept and known. */
static int commit(struct guard *g, struct claim *claims, unsigned int nr,
		  int table, struct guard_device *devices)
{
	unsigned int i;
	int ret;

	for (i = 0; i < nr; i++) {
		struct claim *c = &claims[i];

		if (c->none || devices[i].claimed_before)
			continue;
		ret = c->nr_fds ? keep(g, c->fds, c->nr_fds) : 0;
		if (ret)
			return fail(g, -ret, "%s can't be claimed: %s",
				    c->path, strerror(-ret));
		if (lseek(table, 0, SEEK_END) < 0 ||
		    write(table, &c->record, sizeof(c->record)) !=
		    sizeof(c->record))
			return fail(g, errno, "%s can't be claimed: %s",
				    c->path, strerror(errno));
	}
	return 0;
}

int guard_claim(struct guard *g, const char *const *paths, unsigned int nr,
		const char *const *confirm, const char *option,
		struct guard_device *devices)
{
	struct guard_device *own = NULL;
	struct claim *claims;
	unsigned int i, n;
	int table, ret;

	claims = calloc(nr, sizeof(*claims));
	if (!devices)
		devices = own = calloc(nr, sizeof(*own));
	if (!claims || !devices) {
		ret = out_of_memory(g);
		goto free;
	}
	memset(devices, 0, nr * sizeof(*devices));

	table = ret = lock_table(g);
	if (ret < 0)
		goto free;
	for (n = 0, ret = 0; n < nr && !ret; n++) {
		claims[n].g = g;
		claims[n].path = paths[n];
		ret = prepare(&claims[n], table, &devices[n], claims, n);
	}
	if (!ret)
		ret = confirm_names(g, devices, nr, confirm, option);
	for (i = 0; i < nr && !ret; i++)
		ret = refuse_contents(g, &claims[i], &devices[i], option);
	if (!ret)
		ret = commit(g, claims, nr, table, devices);
	for (i = 0; i < n; i++)
		while (claims[i].nr_fds)
			close(claims[i].fds[--claims[i].nr_fds]);
	close(table);
free:
	if (own)
		guard_free_devices(own, nr);
	free(own);
	free(claims);
	return ret;
}

void guard_free_devices(struct guard_device *devices, unsigned int nr)
{
	unsigned int i;
	char **name;

	for (i = 0; i < nr; i++) {
		for (name = devices[i].names; name && *name; name++)
			free(*name);
		free(devices[i].names);
		free(devices[i].holds);
		devices[i].names = NULL;
		devices[i].holds = NULL;
	}
}

int guard_check(struct guard *g, int fd, const char *path)
{
	struct claim c = { .g = g, .path = path };
	struct record found;
	char node[4096];
	struct stat st;
	int ret, table;

	if (fstat(fd, &st))
		return fail(g, errno, "%s: %s", path, strerror(errno));
	if (!S_ISBLK(st.st_mode) && !S_ISCHR(st.st_mode))
		return 0;
	ret = find_device(&c, &st, node, sizeof(node));
	if (ret || c.none)
		return ret;
	table = lock_table(g);
	if (table < 0)
		return table;
	ret = find_record(table, &c.record, &found);
	close(table);
	if (!ret)
		return fail(g, ENOENT, "%s is not the device that was checked",
			    path);
	if (memcmp(&found, &c.record, sizeof(found)))
		return fail(g, ESTALE,
			    "%s: another medium is in it than when it was checked",
			    path);
	return 0;
}
