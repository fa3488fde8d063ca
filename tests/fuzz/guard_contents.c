// SPDX-License-Identifier: GPL-2.0-only
/*
 * guard/contents.c: a disk on which is anything. The input is what is where:
 * four bytes of a place, in units of 16 bytes, one of a length, and so many
 * bytes. Nothing on a disk may hide what is behind it: a physical volume of LVM
 * that is put there last is never taken for nothing. What is told fits in a
 * line.
 */
#include <ctype.h>
#include <sys/mman.h>

#include "fuzz.h"
#include "guard/device.h"
#include "util/printable.h"

#define SIZE	(128 << 20)	/* more than any signature needs */
#define LABEL	"LABELONE\1\0\0\0\0\0\0\0\0\0\0\0\40\0\0\0LVM2 001"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct device d = { .name = "sda1", .partition = true };
	struct input in = { data, size };
	static int fd = -1;
	uint8_t content[255];
	size_t length, found_size, i;
	char *found;
	off_t place;
	FILE *out;
	int ret;

	if (fd < 0)
		fd = memfd_create("disk", MFD_CLOEXEC);
	MUST(!ftruncate(fd, 0) && !ftruncate(fd, SIZE));
	while (in.left) {
		place = input_u32(&in) * (off_t)16 % (SIZE - sizeof(content));
		length = input_byte(&in);
		input_bytes(&in, content, length);
		MUST(pwrite(fd, content, length, place) == (ssize_t)length);
	}
	MUST(pwrite(fd, LABEL, sizeof(LABEL) - 1, 512) == sizeof(LABEL) - 1);

	out = open_memstream(&found, &found_size);
	MUST(out);
	ret = device_contents(&d, fd, out);
	MUST(!fclose(out));
	MUST(ret < 0 || found_size);
	printable(found);
	for (i = 0; found[i]; i++)
		MUST(!iscntrl((unsigned char)found[i]));
	free(found);
	return 0;
}
