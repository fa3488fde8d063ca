/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the fuzzed targets share: how they take their input apart, and how they
 * say that what must be so is not. Each target is a LLVMFuzzerTestOneInput(),
 * called with input after input by libFuzzer, or by replay.c without clang.
 */
#ifndef DURABENCH_FUZZ_H
#define DURABENCH_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that does not hold is a find, as what a sanitizer sees is. */
#define MUST(condition) do {						\
	if (!(condition)) {						\
		dprintf(STDERR_FILENO, "%s:%d: must be: %s\n",		\
			__FILE__, __LINE__, #condition);		\
		abort();						\
	}								\
} while (0)

/* What is left of an input. */
struct input {
	const uint8_t *at;
	size_t left;
};

/* The next @size bytes; 0 for what is not there. */
static inline void input_bytes(struct input *in, void *buf, size_t size)
{
	size_t part = in->left < size ? in->left : size;

	memset(buf, 0, size);
	if (part)
		memcpy(buf, in->at, part);
	in->at += part;
	in->left -= part;
}

static inline uint8_t input_byte(struct input *in)
{
	uint8_t byte;

	input_bytes(in, &byte, 1);
	return byte;
}

static inline uint32_t input_u32(struct input *in)
{
	uint32_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

static inline uint64_t input_u64(struct input *in)
{
	uint64_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

/*
 * What is left up to the next @end, which is passed over, as a string in
 * memory of its own, so that reading beyond its end is seen; NULL at the end
 * of the input.
 */
static inline char *input_text(struct input *in, char end)
{
	const uint8_t *found;
	size_t size;
	char *text;

	if (!in->left)
		return NULL;
	found = memchr(in->at, end, in->left);
	size = found ? (size_t)(found - in->at) : in->left;
	text = malloc(size + 1);
	MUST(text);
	memcpy(text, in->at, size);
	text[size] = '\0';
	in->at += size + !!found;
	in->left -= size + !!found;
	return text;
}

#endif
