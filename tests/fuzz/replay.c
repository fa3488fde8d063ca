// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stands in for libFuzzer where there is no clang: calls the target with the
 * seeds, then with mutants of them, always the same. It knows nothing of what
 * code they reach. Takes libFuzzer's options that the tests use.
 */
#include <stdbool.h>
#include <unistd.h>

#include "fuzz.h"

#define MAX_SIZE	4096
#define MAX_SEEDS	512

static struct seed {
	uint8_t *data;
	size_t size;
} seeds[MAX_SEEDS];
static unsigned int nr_seeds;
static uint64_t state;

/* What a sanitizer, or MUST(), ended. */
static uint8_t current[MAX_SIZE];
static size_t current_size;
static const char *artifact = "crash";

/* splitmix64, public domain, Sebastiano Vigna */
static uint64_t below(uint64_t limit)
{
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return limit ? z % limit : 0;
}

static void add_seed(const char *path)
{
	FILE *in = fopen(path, "re");
	struct seed *s = &seeds[nr_seeds];

	if (!in || nr_seeds == MAX_SEEDS) {
		fprintf(stderr, "%s: can't be read, or is one too many\n",
			path);
		exit(1);
	}
	s->data = malloc(MAX_SIZE);
	MUST(s->data);
	s->size = fread(s->data, 1, MAX_SIZE, in);
	fclose(in);
	nr_seeds++;
}

/* PATH,PATH… or, with @ in front, a file of them. */
static void add_seeds(char *list)
{
	static char text[1 << 16];
	char *path, *rest;
	FILE *in;

	if (*list == '@') {
		in = fopen(list + 1, "re");
		MUST(in);
		text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
		fclose(in);
		list = text;
	}
	for (path = strtok_r(list, ",\n", &rest); path;
	     path = strtok_r(NULL, ",\n", &rest))
		add_seed(path);
}

static void insert(size_t at, const uint8_t *data, size_t size)
{
	if (size > MAX_SIZE - current_size)
		size = MAX_SIZE - current_size;
	memmove(current + at + size, current + at, current_size - at);
	memcpy(current + at, data, size);
	current_size += size;
}

static void mutate(void)
{
	static const char interesting[] = "\0\xff\x7f\x80 \n,:=-0919%/\"\\({";
	const struct seed *other = &seeds[below(nr_seeds)];
	size_t at = below(current_size + 1), size = below(current_size - at);
	uint8_t part[MAX_SIZE];

	switch (below(6)) {
	case 0:
		if (at < current_size)
			current[at] ^= 1 << below(8);
		break;
	case 1:
		if (at < current_size)
			current[at] = interesting[below(sizeof(interesting))];
		break;
	case 2:
		part[0] = interesting[below(sizeof(interesting))];
		insert(at, part, 1);
		break;
	case 3:
		memmove(current + at, current + at + size,
			current_size - at - size);
		current_size -= size;
		break;
	case 4:
		memcpy(part, current + at, size);
		insert(at, part, size);
		break;
	case 5:
		size = below(other->size);
		insert(at, other->data + size, below(other->size - size + 1));
		break;
	}
}

static void keep(void)
{
	FILE *out = fopen(artifact, "we");

	if (out) {
		fwrite(current, 1, current_size, out);
		fclose(out);
	}
	fprintf(stderr, "the input is in %s\n", artifact);
}

/* In memory of its own, so that reading beyond its end is seen. */
static void call(void)
{
	uint8_t *copy = malloc(current_size);

	MUST(copy || !current_size);
	if (current_size)
		memcpy(copy, current, current_size);
	LLVMFuzzerTestOneInput(copy, current_size);
	free(copy);
}

extern void __sanitizer_set_death_callback(void (*callback)(void));

int main(int argc, char **argv)
{
	static char path[4096];
	unsigned long runs = 0, done;
	unsigned int i, edits;

	for (i = 1; i < (unsigned int)argc; i++) {
		if (sscanf(argv[i], "-runs=%lu", &runs) == 1 ||
		    sscanf(argv[i], "-seed=%lu", &state) == 1)
			continue;
		if (!strncmp(argv[i], "-seed_inputs=", 13)) {
			add_seeds(argv[i] + 13);
		} else if (!strncmp(argv[i], "-artifact_prefix=", 17)) {
			snprintf(path, sizeof(path), "%scrash", argv[i] + 17);
			artifact = path;
		} else if (argv[i][0] != '-') {
			add_seed(argv[i]);
		}
	}
	if (!nr_seeds) {
		fprintf(stderr, "no seeds\n");
		return 1;
	}
	__sanitizer_set_death_callback(keep);

	for (done = 0; done < runs || done < nr_seeds; done++) {
		const struct seed *s = &seeds[done < nr_seeds ? done :
						      below(nr_seeds)];

		memcpy(current, s->data, s->size);
		current_size = s->size;
		if (done >= nr_seeds)
			for (edits = 1 + below(8); edits; edits--)
				mutate();
		call();
	}
	printf("Done %lu runs without libFuzzer, of %u seeds and their mutants\n",
	       done, nr_seeds);
	return 0;
}
