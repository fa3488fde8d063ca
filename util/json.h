/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writing JSON, as little as observer and engines need. The observer runs in
 * an initramfs, where a library for this would weigh more than it does, and
 * an engine lives in a fio that has one of its own.
 *
 * Commas are put by the writer, so a key or a value may be written wherever
 * JSON has one. Errors stay with the stream: look at ferror(j->out).
 */
#ifndef DURABENCH_JSON_H
#define DURABENCH_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out;
	bool comma;	/* the next key or value needs one before it */
};

/* @bracket is one of { [ } ] */
void json_open(struct json *j, char bracket);
void json_close(struct json *j, char bracket);
void json_key(struct json *j, const char *name);

/* Any bytes: each that are not UTF-8 become U+FFFD. */
void json_string(struct json *j, const char *s);
void json_uint(struct json *j, uint64_t value);
/* Infinity and NaN, which JSON does not have, become null. */
void json_double(struct json *j, double value);
void json_null(struct json *j);

#endif
