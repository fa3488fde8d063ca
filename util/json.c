// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writing JSON; see json.h.
 */
#include <inttypes.h>
#include <math.h>

#include "json.h"

static void separate(struct json *j)
{
	if (j->comma)
		fputc(',', j->out);
	j->comma = true;
}

void json_open(struct json *j, char bracket)
{
	separate(j);
	fputc(bracket, j->out);
	j->comma = false;
}

void json_close(struct json *j, char bracket)
{
	fputc(bracket, j->out);
	j->comma = true;
}

void json_key(struct json *j, const char *name)
{
	json_string(j, name);
	fputc(':', j->out);
	j->comma = false;
}

/*
 * Length of the UTF-8 character at @s, or minus the number of bytes that
 * begin one and do not finish it (at least one). What may follow a first
 * byte is table 3-7, "Well-Formed UTF-8 Byte Sequences", of the Unicode
 * Standard; giving the bytes of one broken character one U+FFFD is the
 * practice it recommends.
 */
static int utf8_length(const unsigned char *s)
{
	unsigned char low = 0x80, high = 0xbf;
	int i, length;

	if (s[0] < 0x80)
		return 1;
	else if (s[0] >= 0xc2 && s[0] <= 0xdf)
		length = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		length = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		length = 4;
	else
		return -1;

	switch (s[0]) {
	case 0xe0:	/* no longer than needed */
		low = 0xa0;
		break;
	case 0xed:	/* no surrogates */
		high = 0x9f;
		break;
	case 0xf0:
		low = 0x90;
		break;
	case 0xf4:	/* up to U+10FFFF */
		high = 0x8f;
		break;
	}

	for (i = 1; i < length; i++) {
		if (s[i] < low || s[i] > high)
			return -i;
		low = 0x80;
		high = 0xbf;
	}
	return length;
}

void json_string(struct json *j, const char *string)
{
	const unsigned char *s = (const unsigned char *)string;

	separate(j);
	fputc('"', j->out);
	while (*s) {
		int length = utf8_length(s);

		if (length < 0) {
			fputs("\\ufffd", j->out);
			s -= length;
			continue;
		}
		if (*s == '"' || *s == '\\')
			fprintf(j->out, "\\%c", *s);
		else if (*s < 0x20)
			fprintf(j->out, "\\u%04x", *s);
		else
			fwrite(s, 1, length, j->out);
		s += length;
	}
	fputc('"', j->out);
}

void json_uint(struct json *j, uint64_t value)
{
	separate(j);
	fprintf(j->out, "%" PRIu64, value);
}

void json_double(struct json *j, double value)
{
	if (!isfinite(value)) {
		json_null(j);
		return;
	}
	separate(j);
	fprintf(j->out, "%.15g", value);
}

void json_null(struct json *j)
{
	separate(j);
	fputs("null", j->out);
}
