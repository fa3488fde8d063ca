// SPDX-License-Identifier: GPL-2.0-only
/*
 * util/json.c: whatever is written, in whatever order a writer may have, is
 * JSON in UTF-8, and text that was UTF-8 is what it was.
 */
#include <math.h>
#include <stdbool.h>

#include "fuzz.h"
#include "util/json.h"

#define DEPTH	16

/* A strict reader, of RFC 8259. */
struct reader {
	const unsigned char *at, *end;
	char decoded[8192];	/* the last string */
	size_t length;
	bool replaced;		/* U+FFFD stands in it */
};

static void take(struct reader *r, const char *what)
{
	size_t length = strlen(what);

	MUST((size_t)(r->end - r->at) >= length);
	MUST(!memcmp(r->at, what, length));
	r->at += length;
}

/* The bytes of a well-formed character after its first one. */
static unsigned int following(const unsigned char *s)
{
	static const struct { unsigned char first, last, low, high; } table[] = {
		{ 0x00, 0x7f, 0x00, 0x00 }, { 0xc2, 0xdf, 0x80, 0xbf },
		{ 0xe0, 0xe0, 0xa0, 0xbf }, { 0xe1, 0xec, 0x80, 0xbf },
		{ 0xed, 0xed, 0x80, 0x9f }, { 0xee, 0xef, 0x80, 0xbf },
		{ 0xf0, 0xf0, 0x90, 0xbf }, { 0xf1, 0xf3, 0x80, 0xbf },
		{ 0xf4, 0xf4, 0x80, 0x8f },
	};
	unsigned int i, more;

	for (i = 0; *s > table[i].last; i++)
		MUST(i + 1 < sizeof(table) / sizeof(table[0]));
	MUST(*s >= table[i].first);
	more = (*s >= 0xc0) + (*s >= 0xe0) + (*s >= 0xf0);
	if (more)
		MUST(s[1] >= table[i].low && s[1] <= table[i].high);
	return more;
}

static void read_string(struct reader *r)
{
	unsigned int code, more;
	char *out = r->decoded;

	r->replaced = false;
	take(r, "\"");
	for (; r->at < r->end && *r->at != '"'; r->at++) {
		MUST(*r->at >= 0x20 && out < r->decoded + sizeof(r->decoded) - 4);
		if (*r->at == '\\') {
			MUST(++r->at < r->end);
			if (*r->at == 'u') {
				MUST(r->end - r->at > 4);
				MUST(sscanf((char *)r->at + 1, "%4x", &code) == 1);
				r->at += 4;
				MUST(code < 0x20 || code == 0xfffd);
				r->replaced |= code == 0xfffd;
				*out++ = code;
			} else {
				MUST(*r->at == '"' || *r->at == '\\');
				*out++ = *r->at;
			}
			continue;
		}
		more = following(r->at);
		*out++ = *r->at;
		for (; more; more--) {
			r->at++;
			MUST(*r->at >= 0x80 && *r->at <= 0xbf);
			*out++ = *r->at;
		}
	}
	take(r, "\"");
	r->length = out - r->decoded;
}

static void read_value(struct reader *r, unsigned int depth)
{
	bool object = *r->at == '{';
	char *end;

	MUST(depth <= DEPTH && r->at < r->end);
	switch (*r->at) {
	case '{':
	case '[':
		r->at++;
		while (r->at < r->end && *r->at != (object ? '}' : ']')) {
			if (object) {
				read_string(r);
				take(r, ":");
			}
			read_value(r, depth + 1);
			MUST(r->at < r->end);
			if (*r->at != ',')
				break;
			r->at++;
			MUST(*r->at != '}' && *r->at != ']');
		}
		take(r, object ? "}" : "]");
		break;
	case '"':
		read_string(r);
		break;
	case 'n':
		take(r, "null");
		break;
	default:
		MUST(strchr("-0123456789", *r->at));
		MUST(isfinite(strtod((char *)r->at, &end)));
		r->at = (unsigned char *)end;
	}
}

/* Is it UTF-8, as the reader sees it? */
static bool well_formed(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	struct json j = { 0 };
	struct reader r;
	char *out;
	size_t size;

	j.out = open_memstream(&out, &size);
	MUST(j.out);
	json_string(&j, text);
	MUST(!fclose(j.out));
	r.at = (unsigned char *)out;
	r.end = r.at + size;
	read_string(&r);
	MUST(r.at == r.end);
	if (!r.replaced)
		MUST(r.length == strlen(text) &&
		     !memcmp(r.decoded, s, r.length));
	free(out);
	return !r.replaced;
}

/* One value, or a bracket. */
static void write_one(struct json *j, struct input *in, char *stack,
		      unsigned int *depth)
{
	bool object = *depth && stack[*depth - 1] == '}';
	uint8_t op = input_byte(in) % 7;
	uint64_t bits;
	double number;
	char *text;

	if (op == 0 && *depth > 1) {
		json_close(j, stack[--*depth]);
		return;
	}
	if (object) {
		text = input_text(in, '\0');
		json_key(j, text ? text : "");
		free(text);
	}
	if (op <= 2 && *depth < DEPTH) {
		json_open(j, op == 1 ? '{' : '[');
		stack[(*depth)++] = op == 1 ? '}' : ']';
	} else if (op == 3) {
		text = input_text(in, '\0');
		if (text && strlen(text) < 4000)
			well_formed(text);
		json_string(j, text ? text : "");
		free(text);
	} else if (op == 4) {
		json_uint(j, input_u64(in));
	} else if (op == 5) {
		bits = input_u64(in);
		memcpy(&number, &bits, sizeof(number));
		json_double(j, number);
	} else {
		json_null(j);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size > 4000 ? 4000 : size };
	char stack[DEPTH] = { ']' }, *out;
	struct json j = { 0 };
	unsigned int depth = 1;
	struct reader r;
	size_t length;

	j.out = open_memstream(&out, &length);
	MUST(j.out);
	json_open(&j, '[');
	while (in.left)
		write_one(&j, &in, stack, &depth);
	while (depth)
		json_close(&j, stack[--depth]);
	MUST(!fclose(j.out));

	r.at = (unsigned char *)out;
	r.end = r.at + length;
	read_value(&r, 0);
	MUST(r.at == r.end);
	free(out);
	return 0;
}
