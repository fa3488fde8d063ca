// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device-mapper table of linear targets; see linear-table.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/fs.h>

#include "linear-table.h"

#define SECTOR_SHIFT	9
#define MAX_SECTORS	((uint64_t)INT64_MAX >> SECTOR_SHIFT)
#define BLANKS		" \t\r\n"

/* Say what is wrong with a line. */
static int __attribute__((format(printf, 4, 5)))
fail(struct linear_table *t, int err, unsigned int line, const char *fmt, ...)
{
	va_list ap;
	int len;

	len = snprintf(t->error, sizeof(t->error), "%s:%u: ", t->name, line);
	if (len < (int)sizeof(t->error)) {
		va_start(ap, fmt);
		vsnprintf(t->error + len, sizeof(t->error) - len, fmt, ap);
		va_end(ap);
	}
	return -err;
}

static int out_of_memory(struct linear_table *t)
{
	return fail(t, ENOMEM, t->line, "out of memory");
}

/*
 * The array of @nr entries with room for one more, or NULL. The room is the
 * next power of two, so it is full when @nr is one.
 */
static void *room_for_one(void *array, unsigned int nr, size_t size)
{
	if (nr & (nr - 1))
		return array;
	return reallocarray(array, nr ? nr * 2UL : 1, size);
}

/* Cut the next word off @rest; NULL if there is none. */
static char *next_word(char **rest)
{
	char *word = *rest + strspn(*rest, BLANKS);
	size_t len = strcspn(word, BLANKS);

	if (!len)
		return NULL;
	*rest = word + len;
	if (**rest)
		*(*rest)++ = '\0';
	return word;
}

/* A number of sectors: decimal digits, and in bytes it fits an off_t. */
static bool parse_sectors(const char *word, uint64_t *sectors)
{
	if (word[strspn(word, "0123456789")])
		return false;
	errno = 0;
	*sectors = strtoull(word, NULL, 10);
	return !errno && *sectors <= MAX_SECTORS;
}

/* A node of the tree of names. */
struct name {
	const char *name;	/* the device's own */
	int device;
};

static int compare_names(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void forget_names(struct linear_table *t)
{
	tdestroy(t->names, free);
	t->names = NULL;
}

/* Append a device. Returns its index or -ENOMEM. */
static int add_device(struct linear_table *t, const char *name)
{
	struct linear_device *d;
	struct name *node;

	d = room_for_one(t->devices, t->nr_devices, sizeof(*d));
	if (!d)
		return -ENOMEM;
	t->devices = d;
	d += t->nr_devices;
	*d = (struct linear_device){ .line = t->line, .fd = -1 };

	node = malloc(sizeof(*node));
	d->name = strdup(name);
	if (node && d->name) {
		*node = (struct name){ d->name, t->nr_devices };
		if (tsearch(node, &t->names, compare_names))
			return t->nr_devices++;
	}
	free(node);
	free(d->name);
	return -ENOMEM;
}

/* The index of the device of that name, which is made if it is new. */
static int find_device(struct linear_table *t, const char *name)
{
	struct name *const *found;

	/* Mostly in runs. */
	if (t->nr_targets) {
		int last = t->targets[t->nr_targets - 1].device;

		if (last >= 0 && !strcmp(t->devices[last].name, name))
			return last;
	}
	found = tfind(&(struct name){ .name = name }, &t->names, compare_names);
	return found ? (*found)->device : add_device(t, name);
}

int linear_table_add(struct linear_table *t, uint64_t start, uint64_t length,
		     const char *type, char *params)
{
	uint64_t expected = t->size >> SECTOR_SHIFT, offset = 0;
	char *name = next_word(&params), *where = NULL, *more = NULL;
	struct linear_target *target;
	int device = LINEAR_NO_DEVICE;

	if (name)
		where = next_word(&params);
	if (where)
		more = next_word(&params);

	if (start != expected)
		return fail(t, EINVAL, t->line,
			    "starts at sector %llu, not at %llu; the first target starts at 0, the others where the one before ends",
			    (unsigned long long)start,
			    (unsigned long long)expected);
	if (!length)
		return fail(t, EINVAL, t->line,
			    "has a length of 0; a target has at least one sector");
	if (length > MAX_SECTORS - start)
		return fail(t, EINVAL, t->line,
			    "ends beyond the largest device, which has %llu sectors",
			    (unsigned long long)MAX_SECTORS);

	if (!strcmp(type, "linear")) {
		if (!where || more)
			return fail(t, EINVAL, t->line,
				    "\"linear\" is followed by a device and an offset, and nothing else");
		if (!parse_sectors(where, &offset))
			return fail(t, EINVAL, t->line,
				    "offset \"%s\" is not a number of sectors",
				    where);
		device = find_device(t, name);
		if (device < 0)
			return out_of_memory(t);
	} else if (!strcmp(type, "zero")) {
		if (name)
			return fail(t, EINVAL, t->line,
				    "\"zero\" is followed by nothing, not by \"%s\"",
				    name);
	} else {
		return fail(t, EINVAL, t->line,
			    "target type \"%s\" is not supported; linear and zero are",
			    type);
	}

	target = room_for_one(t->targets, t->nr_targets, sizeof(*target));
	if (!target)
		return out_of_memory(t);
	t->targets = target;
	target[t->nr_targets++] = (struct linear_target) {
		.start	= start << SECTOR_SHIFT,
		.length	= length << SECTOR_SHIFT,
		.offset	= offset << SECTOR_SHIFT,
		.device	= device,
		.line	= t->line,
	};
	t->size += length << SECTOR_SHIFT;
	return 0;
}

static int add_line(struct linear_table *t, char *line)
{
	const char *words[3];
	uint64_t range[2];
	unsigned int i;

	for (i = 0; i < 3; i++) {
		words[i] = next_word(&line);
		if (!i && (!words[i] || *words[i] == '#'))
			return 0;
		if (!words[i])
			return fail(t, EINVAL, t->line,
				    "is not a target; that is: start length linear device offset (numbers in sectors of 512 bytes)");
	}
	for (i = 0; i < 2; i++)
		if (!parse_sectors(words[i], &range[i]))
			return fail(t, EINVAL, t->line,
				    "%s \"%s\" is not a number of sectors",
				    i ? "length" : "start", words[i]);
	return linear_table_add(t, range[0], range[1], words[2], line);
}

int linear_table_read(struct linear_table *t, FILE *in)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t len;
	int ret = 0;

	while (!ret && (errno = 0, len = getline(&line, &size, in)) >= 0) {
		t->line++;
		if (strlen(line) != (size_t)len)
			ret = fail(t, EINVAL, t->line,
				   "has a zero byte: this is not a text file");
		else
			ret = add_line(t, line);
	}
	if (!ret && errno)
		ret = fail(t, errno, t->line + 1, "%s", strerror(errno));
	if (!ret && !t->nr_devices)
		ret = fail(t, EINVAL, t->line,
			   "the table ends without a linear target: start length linear device offset");
	free(line);
	return ret;
}

/*
 * The node of the block device that has the number @dev, by the name that the
 * kernel has for it: /dev/block/ is there only where udev runs.
 */
static char *node_of(dev_t dev)
{
	char uevent[64], line[PATH_MAX], *node = NULL;
	FILE *in;

	snprintf(uevent, sizeof(uevent), "/sys/dev/block/%u:%u/uevent",
		 major(dev), minor(dev));
	in = fopen(uevent, "re");
	if (!in)
		return NULL;
	while (!node && fgets(line, sizeof(line), in)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "DEVNAME=", 8) &&
		    asprintf(&node, "/dev/%s", line + 8) < 0)
			node = NULL;
	}
	fclose(in);
	return node;
}

/* Find out which device, of what kind, @d->name names. */
static int identify(struct linear_table *t, struct linear_device *d)
{
	unsigned int maj, min;
	bool by_number;
	struct stat st;
	char end;

	by_number = sscanf(d->name, "%u:%u%c", &maj, &min, &end) == 2;
	if (by_number) {
		char *node = node_of(makedev(maj, min));

		if (!node)
			return fail(t, ENODEV, d->line,
				    "%s is not the number of a block device here; see lsblk",
				    d->name);
		d->path = realpath(node, NULL);
		free(node);
	} else {
		d->path = realpath(d->name, NULL);
	}
	if (!d->path || stat(d->path, &st))
		return fail(t, errno, d->line,
			    "device %s: %s; name a block device or a regular file that is there",
			    d->name, strerror(errno));

	d->block = S_ISBLK(st.st_mode);
	if (!d->block && !S_ISREG(st.st_mode))
		return fail(t, ENOTBLK, d->line,
			    "%s is neither a block device nor a regular file",
			    d->name);
	d->dev = d->block ? st.st_rdev : st.st_dev;
	d->ino = d->block ? 0 : st.st_ino;
	d->size = st.st_size;
	if (by_number && d->dev != makedev(maj, min))
		return fail(t, ENODEV, d->line,
			    "%s is not the device %s; name it by its path",
			    d->path, d->name);
	return 0;
}

static int compare_devices(const void *a, const void *b)
{
	const struct linear_device *x = a, *y = b;

	if (x->block != y->block)
		return x->block - y->block;
	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int open_device(struct linear_table *t, struct linear_device *d,
		       int flags)
{
	d->fd = open(d->path, flags | O_CLOEXEC);
	if (d->fd < 0)
		return fail(t, errno, d->line, "open %s: %s", d->name,
			    strerror(errno));
	if (d->block && ioctl(d->fd, BLKGETSIZE64, &d->size))
		return fail(t, errno, d->line, "size of %s: %s", d->name,
			    strerror(errno));
	d->start = UINT64_MAX;
	return 0;
}

static void free_device(struct linear_device *d)
{
	if (d->fd >= 0)
		close(d->fd);
	free(d->path);
	free(d->name);
	*d = (struct linear_device){ .fd = -1 };
}

static void keep(void *device)
{
}

/*
 * Open each device once. The table may have several names of one: keep the
 * first, and let @joined tell for each name which device it is now.
 */
static int open_devices(struct linear_table *t, int flags, int *joined)
{
	struct linear_device *d, **same;
	unsigned int nr = 0, i;
	void *known = NULL;
	int ret = 0;

	for (i = 0; i < t->nr_devices; i++) {
		d = &t->devices[i];
		ret = identify(t, d);
		if (ret)
			break;

		same = tfind(d, &known, compare_devices);
		if (same) {
			joined[i] = *same - t->devices;
			free_device(d);
			continue;
		}

		ret = open_device(t, d, flags);
		if (ret)
			break;
		if (nr < i) {
			t->devices[nr] = *d;
			*d = (struct linear_device){ .fd = -1 };
		}
		joined[i] = nr;
		if (!tsearch(&t->devices[nr++], &known, compare_devices)) {
			ret = out_of_memory(t);
			break;
		}
	}
	tdestroy(known, keep);
	if (!ret)
		t->nr_devices = nr;
	return ret;
}

int linear_table_open(struct linear_table *t, int flags)
{
	struct linear_target *target;
	struct linear_device *d;
	unsigned int i;
	int *joined;
	int ret;

	forget_names(t);
	joined = calloc(t->nr_devices, sizeof(*joined));
	if (!joined)
		return out_of_memory(t);
	ret = open_devices(t, flags, joined);

	for (i = 0; !ret && i < t->nr_targets; i++) {
		target = &t->targets[i];
		if (target->device == LINEAR_NO_DEVICE)
			continue;
		target->device = joined[target->device];
		d = &t->devices[target->device];
		if (target->offset > d->size ||
		    target->length > d->size - target->offset) {
			ret = fail(t, ERANGE, target->line,
				   "ends at sector %llu of %s, which has %llu; use a larger device or a shorter table",
				   (unsigned long long)(target->offset +
					target->length) >> SECTOR_SHIFT,
				   d->name,
				   (unsigned long long)d->size >> SECTOR_SHIFT);
			break;
		}
		if (target->offset < d->start)
			d->start = target->offset;
		if (target->offset + target->length > d->end)
			d->end = target->offset + target->length;
	}
	free(joined);
	return ret;
}

const struct linear_target *linear_table_find(const struct linear_table *t,
					      uint64_t pos)
{
	unsigned int low = 0, high = t->nr_targets;

	/* The answer is in [low, high). */
	while (high - low > 1) {
		unsigned int middle = low + (high - low) / 2;

		if (t->targets[middle].start <= pos)
			low = middle;
		else
			high = middle;
	}
	return &t->targets[low];
}

void linear_table_free(struct linear_table *t)
{
	unsigned int i;

	forget_names(t);
	for (i = 0; i < t->nr_devices; i++)
		free_device(&t->devices[i]);
	free(t->devices);
	free(t->targets);
	t->devices = NULL;
	t->targets = NULL;
	t->nr_devices = t->nr_targets = 0;
}
