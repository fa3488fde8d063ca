// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finding the disk behind a name and the disks below it, and the counters of
 * a disk, in a /sys made for the purpose.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cmocka.h>

#include "observe/blockdev.h"
#include "observe_tree.h"

#define ZEROS_17 "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"

struct fixture {
	struct tree sys;
	struct blockdevs devs;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	tree_make(&f->sys);
	f->devs.sysfd = f->sys.fd;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	blockdevs_free(&f->devs);
	tree_remove(&f->sys);
	free(f);
	return 0;
}

/* A disk as the kernel shows it, with a request queue unless @bio. */
static void disk(const struct tree *sys, const char *bus, const char *name,
		 bool bio)
{
	char path[256], target[256];

	snprintf(path, sizeof(path), "devices/%s/block/%s/stat", bus, name);
	tree_write(sys, path, ZEROS_17);
	if (!bio) {
		snprintf(path, sizeof(path), "devices/%s/block/%s/mq/0/cpus",
			 bus, name);
		tree_write(sys, path, "0\n");
	}
	snprintf(path, sizeof(path), "block/%s", name);
	snprintf(target, sizeof(target), "../devices/%s/block/%s", bus, name);
	tree_link(sys, path, target);
	snprintf(path, sizeof(path), "class/block/%s", name);
	snprintf(target, sizeof(target), "../../devices/%s/block/%s", bus,
		 name);
	tree_link(sys, path, target);
}

static void partition(const struct tree *sys, const char *bus,
		      const char *disk, const char *name)
{
	char path[256], target[256];

	snprintf(path, sizeof(path), "devices/%s/block/%s/%s/partition", bus,
		 disk, name);
	tree_write(sys, path, "1\n");
	snprintf(path, sizeof(path), "class/block/%s", name);
	snprintf(target, sizeof(target), "../../devices/%s/block/%s/%s", bus,
		 disk, name);
	tree_link(sys, path, target);
}

/* @upper, a virtual disk, stands on @lower, whose folder is @folder. */
static void slave(const struct tree *sys, const char *upper, const char *lower,
		  const char *folder)
{
	char path[256], target[256];

	snprintf(path, sizeof(path), "devices/virtual/block/%s/slaves/%s",
		 upper, lower);
	snprintf(target, sizeof(target), "../../../../%s", folder);
	tree_link(sys, path, target);
}

static const struct blockdev *check_disk(const struct fixture *f,
					  unsigned int i, const char *name)
{
	assert_true(i < f->devs.nr);
	assert_string_equal(f->devs.dev[i].name, name);
	return &f->devs.dev[i];
}

static void test_delta(void **state)
{
	assert_int_equal(blockdev_delta(0, 0), 0);
	assert_int_equal(blockdev_delta(5, 7), 2);
	/* a 32-bit counter wrapped */
	assert_int_equal(blockdev_delta(UINT32_MAX, 0), 1);
	assert_int_equal(blockdev_delta(UINT32_MAX - 9, 10), 20);
	/* a 64-bit one did */
	assert_int_equal(blockdev_delta(UINT64_MAX, 0), 1);
	assert_int_equal(blockdev_delta(UINT64_MAX - 9, 10), 20);
	/* passing 32 bits is no wrap */
	assert_int_equal(blockdev_delta(UINT32_MAX, 1ULL << 32), 1);
	/* counters that began again at 0 */
	assert_int_equal(blockdev_delta(1000, 30), 30);
	assert_int_equal(blockdev_delta(1ULL << 40, 30), 30);
}

static void test_kernel_name_and_partition(void **state)
{
	struct fixture *f = *state;

	disk(&f->sys, "pci0/ata1", "sda", false);
	partition(&f->sys, "pci0/ata1", "sda", "sda1");
	disk(&f->sys, "pci0/cciss", "cciss!c0d0", false);

	assert_int_equal(blockdevs_add(&f->devs, "sda1"), 0);
	assert_int_equal(blockdevs_add(&f->devs, "cciss!c0d0"), 0);
	/* the same disk by another name is the same */
	assert_int_equal(blockdevs_add(&f->devs, "sda"), 0);
	assert_int_equal(blockdevs_add_below(&f->devs), 0);
	assert_int_equal(f->devs.nr, 2);
	assert_string_equal(check_disk(f, 0, "sda")->argument, "sda1");
	assert_int_equal(f->devs.dev[0].nr_above, 0);
	check_disk(f, 1, "cciss!c0d0");
}

static void test_attributes(void **state)
{
	struct fixture *f = *state;
	const struct blockdev *dev;

	disk(&f->sys, "pci0/ata1", "sda", false);
	tree_write(&f->sys, "block/sda/queue/write_cache", "write back\n");
	tree_write(&f->sys, "block/sda/queue/fua", "1\n");
	tree_write(&f->sys, "block/sda/queue/rotational", "0\n");
	tree_write(&f->sys, "block/sda/queue/scheduler",
		   "none [mq-deadline] kyber\n");
	disk(&f->sys, "virtual", "loop0", false);
	tree_write(&f->sys, "block/loop0/queue/scheduler", "none\n");

	assert_int_equal(blockdevs_add(&f->devs, "sda"), 0);
	assert_int_equal(blockdevs_add(&f->devs, "loop0"), 0);
	dev = check_disk(f, 0, "sda");
	assert_string_equal(dev->write_cache, "write back");
	assert_string_equal(dev->scheduler, "mq-deadline");
	assert_int_equal(dev->fua, 1);
	assert_int_equal(dev->rotational, 0);
	/* an old kernel has no queue/fua */
	dev = check_disk(f, 1, "loop0");
	assert_string_equal(dev->write_cache, "");
	assert_string_equal(dev->scheduler, "none");
	assert_int_equal(dev->fua, -1);
	assert_int_equal(dev->rotational, -1);
}

static void test_stack(void **state)
{
	struct fixture *f = *state;
	const struct blockdev *dev;

	/* dm-1 on dm-0 and sdb2; dm-0 on sda1 and sdb1; sdb named too */
	disk(&f->sys, "pci0/ata1", "sda", false);
	partition(&f->sys, "pci0/ata1", "sda", "sda1");
	disk(&f->sys, "pci0/ata2", "sdb", false);
	partition(&f->sys, "pci0/ata2", "sdb", "sdb1");
	partition(&f->sys, "pci0/ata2", "sdb", "sdb2");
	disk(&f->sys, "virtual", "dm-0", true);
	disk(&f->sys, "virtual", "dm-1", true);
	slave(&f->sys, "dm-0", "sda1", "pci0/ata1/block/sda/sda1");
	slave(&f->sys, "dm-0", "sdb1", "pci0/ata2/block/sdb/sdb1");
	slave(&f->sys, "dm-1", "dm-0", "virtual/block/dm-0");
	slave(&f->sys, "dm-1", "sdb2", "pci0/ata2/block/sdb/sdb2");

	assert_int_equal(blockdevs_add(&f->devs, "dm-1"), 0);
	assert_int_equal(blockdevs_add(&f->devs, "sdb"), 0);
	assert_int_equal(blockdevs_add_below(&f->devs), 0);
	assert_int_equal(f->devs.nr, 4);

	/* the named ones stand first */
	dev = check_disk(f, 0, "dm-1");
	assert_non_null(dev->argument);
	assert_int_equal(dev->nr_above, 0);
	dev = check_disk(f, 1, "sdb");
	assert_non_null(dev->argument);
	assert_int_equal(dev->nr_above, 2);
	assert_int_equal(dev->above[0] + dev->above[1], 0 + 2);
	dev = check_disk(f, 2, "dm-0");
	assert_null(dev->argument);
	assert_int_equal(dev->nr_above, 1);
	assert_int_equal(dev->above[0], 0);
	dev = check_disk(f, 3, "sda");
	assert_null(dev->argument);
	assert_int_equal(dev->nr_above, 1);
	assert_int_equal(dev->above[0], 2);
}

static void test_nvme_multipath(void **state)
{
	struct fixture *f = *state;

	disk(&f->sys, "virtual", "nvme0n1", true);
	disk(&f->sys, "pci0/nvme0", "nvme0c0n1", false);
	disk(&f->sys, "pci0/nvme1", "nvme0c1n1", false);
	disk(&f->sys, "pci0/nvme0", "nvme0c0n2", false);
	disk(&f->sys, "pci0/nvme2", "nvme1c2n1", false);

	assert_int_equal(blockdevs_add(&f->devs, "nvme0n1"), 0);
	assert_int_equal(blockdevs_add_below(&f->devs), 0);
	assert_int_equal(f->devs.nr, 3);
	assert_int_equal(strcmp(f->devs.dev[1].name, "nvme0c0n1") *
			 strcmp(f->devs.dev[1].name, "nvme0c1n1"), 0);
	assert_int_equal(strcmp(f->devs.dev[2].name, "nvme0c0n1") *
			 strcmp(f->devs.dev[2].name, "nvme0c1n1"), 0);
	assert_string_not_equal(f->devs.dev[1].name, f->devs.dev[2].name);
}

/* A file stands for the device of its file system, a loop's backing too. */
static void test_file(void **state)
{
	struct fixture *f = *state;
	char link[64], file[128];
	struct stat st;
	int ret;

	tree_write(&f->sys, "image", "");
	snprintf(file, sizeof(file), "%s/image", f->sys.path);
	assert_int_equal(stat(file, &st), 0);
	disk(&f->sys, "pci0/ata1", "sda", false);
	snprintf(link, sizeof(link), "dev/block/%u:%u", major(st.st_dev),
		 minor(st.st_dev));
	tree_link(&f->sys, link, "../../devices/pci0/ata1/block/sda");
	disk(&f->sys, "virtual", "loop3", false);
	tree_write(&f->sys, "block/loop3/loop/backing_file", file);

	ret = blockdevs_add(&f->devs, file);
	assert_int_equal(blockdevs_add(&f->devs, "loop3"), 0);
	assert_int_equal(blockdevs_add_below(&f->devs), 0);
	if (!major(st.st_dev)) {	/* /tmp is a tmpfs or the like */
		assert_int_equal(ret, -ENXIO);
		assert_int_equal(f->devs.nr, 1);
		return;
	}
	assert_int_equal(ret, 0);
	assert_int_equal(f->devs.nr, 2);
	assert_string_equal(check_disk(f, 0, "sda")->argument, file);
	assert_int_equal(f->devs.dev[0].nr_above, 1);
	assert_int_equal(f->devs.dev[0].above[0], 1);
	check_disk(f, 1, "loop3");
}

static void test_lost_backing_file(void **state)
{
	struct fixture *f = *state;

	disk(&f->sys, "virtual", "loop3", false);
	tree_write(&f->sys, "block/loop3/loop/backing_file",
		   "/nonexistent/image (deleted)\n");
	assert_int_equal(blockdevs_add(&f->devs, "loop3"), 0);
	assert_int_equal(blockdevs_add_below(&f->devs), 0);
	assert_int_equal(f->devs.nr, 1);
}

static void test_refusals(void **state)
{
	struct fixture *f = *state;

	tree_write(&f->sys, "class/block/plain-file", "");
	assert_int_equal(blockdevs_add(&f->devs, "no-such-disk"), -ENOENT);
	assert_int_equal(blockdevs_add(&f->devs, ""), -ENOENT);
	assert_int_equal(blockdevs_add(&f->devs, "plain-file"), -ENOENT);
	assert_int_equal(blockdevs_add(&f->devs, "/dev/null"), -ENOTBLK);
	assert_int_equal(blockdevs_add(&f->devs, "/proc/stat"), -ENXIO);
	assert_int_equal(f->devs.nr, 0);
}

static const struct blockdev *add_with_stat(struct fixture *f, bool bio,
					    const char *text)
{
	disk(&f->sys, "pci0/ata1", "sda", bio);
	tree_write(&f->sys, "block/sda/stat", text);
	assert_int_equal(blockdevs_add(&f->devs, "sda"), 0);
	blockdevs_sample(&f->devs, 0);
	return &f->devs.dev[0];
}

static void test_counters(void **state)
{
	struct fixture *f = *state;
	const struct blockdev *dev = add_with_stat(f, false,
		"  10 1 80 4294967290 20 2 160 5 7 50 60 3 0 24 1 100 200\n");

	assert_true(blockdev_counts(dev, BLOCKDEV_FLUSHES));
	assert_int_equal(dev->total[BLOCKDEV_READS], 0);
	tree_write(&f->sys, "block/sda/stat",
		   "11 1 88 4 25 2 200 6 0 51 61 3 0 24 1 110 205\n");
	blockdevs_sample(&f->devs, 0.1);
	tree_write(&f->sys, "block/sda/stat",
		   "11 1 88 4 26 2 208 6 9 51 61 4 0 24 1 111 206\n");
	blockdevs_sample(&f->devs, 0.2);

	assert_int_equal(dev->total[BLOCKDEV_READS], 1);
	assert_int_equal(dev->total[BLOCKDEV_READ_SECTORS], 8);
	assert_int_equal(dev->total[BLOCKDEV_READ_MS], 10);
	assert_int_equal(dev->total[BLOCKDEV_WRITES], 6);
	assert_int_equal(dev->total[BLOCKDEV_WRITE_SECTORS], 48);
	assert_int_equal(dev->total[BLOCKDEV_WRITE_MS], 1);
	assert_int_equal(dev->total[BLOCKDEV_IN_FLIGHT], 0);
	assert_int_equal(dev->total[BLOCKDEV_BUSY_MS], 1);
	assert_int_equal(dev->total[BLOCKDEV_DISCARDS], 1);
	assert_int_equal(dev->total[BLOCKDEV_FLUSHES], 11);
	assert_int_equal(dev->total[BLOCKDEV_FLUSH_MS], 6);
}

static void test_old_kernels(void **state)
{
	struct fixture *f = *state;
	const struct blockdev *dev = add_with_stat(f, false,
		"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n");

	assert_true(blockdev_counts(dev, BLOCKDEV_DISCARDS));
	assert_false(blockdev_counts(dev, BLOCKDEV_FLUSHES));
	assert_false(blockdev_counts(dev, BLOCKDEV_FLUSH_MS));
}

static void test_older_kernels(void **state)
{
	struct fixture *f = *state;
	const struct blockdev *dev = add_with_stat(f, false,
		"1 2 3 4 5 6 7 8 9 10 11\n");

	assert_true(blockdev_counts(dev, BLOCKDEV_BUSY_MS));
	assert_false(blockdev_counts(dev, BLOCKDEV_DISCARDS));
	assert_false(blockdev_counts(dev, BLOCKDEV_FLUSHES));
}

static void test_bio_based(void **state)
{
	struct fixture *f = *state;
	const struct blockdev *dev = add_with_stat(f, true, ZEROS_17);

	assert_true(blockdev_counts(dev, BLOCKDEV_WRITES));
	assert_false(blockdev_counts(dev, BLOCKDEV_FLUSHES));
	assert_false(blockdev_counts(dev, BLOCKDEV_FLUSH_MS));
	/* should a kernel count them, they count */
	tree_write(&f->sys, "block/sda/stat",
		   "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0\n");
	blockdevs_sample(&f->devs, 1);
	assert_true(blockdev_counts(dev, BLOCKDEV_FLUSHES));
	assert_int_equal(dev->total[BLOCKDEV_FLUSHES], 1);
}

static void test_gone(void **state)
{
	struct fixture *f = *state;
	const struct blockdev *dev = add_with_stat(f, false, ZEROS_17);

	tree_write(&f->sys, "block/sda/stat",
		   "0 0 0 0 5 0 40 0 0 0 0 0 0 0 0 6 0\n");
	blockdevs_sample(&f->devs, 1);
	assert_true(dev->gone < 0);
	tree_write(&f->sys, "block/sda/stat", "");
	blockdevs_sample(&f->devs, 2);
	assert_true(dev->gone == 2);
	/* another disk of that name is not it */
	tree_write(&f->sys, "block/sda/stat", ZEROS_17);
	blockdevs_sample(&f->devs, 3);
	assert_true(dev->gone == 2);
	assert_int_equal(dev->total[BLOCKDEV_WRITES], 5);
	assert_int_equal(dev->total[BLOCKDEV_FLUSHES], 6);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delta),
		TEST(test_kernel_name_and_partition),
		TEST(test_attributes),
		TEST(test_stack),
		TEST(test_nvme_multipath),
		TEST(test_file),
		TEST(test_lost_backing_file),
		TEST(test_refusals),
		TEST(test_counters),
		TEST(test_old_kernels),
		TEST(test_older_kernels),
		TEST(test_bio_based),
		TEST(test_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
