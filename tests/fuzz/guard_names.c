// SPDX-License-Identifier: GPL-2.0-only
/*
 * guard/names.c: what drivers and udev call a disk and another one, in any way.
 * The input has, each up to a byte FFh, the attributes of the first and of the
 * second in the order of names.c, then the links in /dev/disk/by-id, of the
 * first and of the second in turn. No name that is an attribute of both
 * confirms either; what confirms is no empty text, and is there once.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

#define DISKS		2
#define ATTRIBUTES	5	/* those of names.c */
#define LINKS		8
#define BY_ID		((DIR *)&links)

static char *values[DISKS][ATTRIBUTES], *links[LINKS];
static unsigned int nr_links, at_link;

static DIR *fake_opendir(const char *path)
{
	at_link = 0;
	return strstr(path, "by-id") ? BY_ID : NULL;
}

static struct dirent *fake_readdir(void)
{
	static struct dirent e;

	if (at_link == nr_links)
		return NULL;
	snprintf(e.d_name, sizeof(e.d_name), "%s", links[at_link++]);
	return &e;
}

/* Of the link that was read last. */
static int fake_fstatat(struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_mode = S_IFBLK;
	st->st_rdev = 1 + (at_link - 1) % DISKS;
	return 0;
}

#define opendir(path)			fake_opendir(path)
#define readdir(dir)			fake_readdir()
#define closedir(dir)			((void)0)
#define dirfd(dir)			(-1)
#define fstatat(fd, name, st, flags)	fake_fstatat(st)
#include "guard/names.c"
#undef opendir
#undef readdir
#undef closedir
#undef dirfd
#undef fstatat

_Static_assert(ATTRIBUTES == NR_ATTRIBUTES, "attributes of names.c");

static const struct device disks[DISKS] = {
	{ .dev = 1, .name = "sda" },
	{ .dev = 2, .name = "sdb" },
};

static unsigned int number_of(const struct device *d)
{
	return d->dev - 1;
}

/* As sysfs has it: what trim() of device.c leaves, if anything. */
bool device_attribute(const struct device *d, const char *name, char *buf,
		      size_t len)
{
	const char *value = NULL;
	size_t i;

	for (i = 0; i < ATTRIBUTES; i++)
		if (!strcmp(name, attributes[i]))
			value = values[number_of(d)][i];
	if (!value)
		return false;
	/* The page of a SCSI disk has a head before its text. */
	if (!strcmp(name, "device/vpd_pg80")) {
		memset(buf, 0, len);
		buf[1] = '\x80';
		snprintf(buf + 4, len - 4, "%s", value);
		return false;
	}
	snprintf(buf, len, "%s", value);
	return *buf;
}

void device_for_each(const char *folder, bool partitions, device_fn *fn,
		     void *data)
{
	unsigned int i;

	for (i = 0; i < DISKS && fn(&disks[i], data); i++)
		;
}

bool device_behind_loop(const struct device *d, dev_t *behind)
{
	return false;
}

int device_find(struct device *d, dev_t dev)
{
	return -ENODEV;
}

int device_disk(const struct device *d, struct device *disk)
{
	return -ENODEV;
}

/* Is it a name of that disk by its driver? */
static bool is_attribute(unsigned int disk, const char *name)
{
	char found[256];
	size_t i;

	for (i = 0; i < ATTRIBUTES; i++)
		if (identity(&disks[disk], attributes[i], found, sizeof(found)) &&
		    !strcmp(found, name))
			return true;
	return false;
}

static bool is_link(unsigned int disk, const char *name)
{
	unsigned int i;

	for (i = disk; i < nr_links; i += DISKS)
		if (!strcmp(links[i], name))
			return true;
	return false;
}

static void check(unsigned int disk)
{
	char **names = device_names(&disks[disk]), **name, **other;

	MUST(names);
	for (name = names; *name; name++) {
		MUST(**name);
		MUST(is_link(disk, *name) ||
		     (is_attribute(disk, *name) && !is_attribute(!disk, *name)));
		for (other = names; other < name; other++)
			MUST(strcmp(*other, *name));
	}
	for (name = names; *name; name++)
		free(*name);
	free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	unsigned int i, j;

	for (i = 0; i < DISKS; i++)
		for (j = 0; j < ATTRIBUTES; j++)
			values[i][j] = input_text(&in, '\xff');
	for (nr_links = 0; nr_links < LINKS; nr_links++) {
		links[nr_links] = input_text(&in, '\xff');
		if (!links[nr_links])
			break;
		/* No file has an empty name, or a longer one. */
		if (!*links[nr_links]) {
			free(links[nr_links]);
			break;
		}
		if (strlen(links[nr_links]) > 255)
			links[nr_links][255] = '\0';
	}
	check(0);
	check(1);
	for (i = 0; i < DISKS; i++)
		for (j = 0; j < ATTRIBUTES; j++)
			free(values[i][j]);
	for (i = 0; i < nr_links; i++)
		free(links[i]);
	return 0;
}
