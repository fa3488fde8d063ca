/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parameters of a device model: a file of lines
 *
 *	NAME = VALUE [UNIT]	# where the value comes from
 *
 * A unit has to be written as the model asks for it, so that a number can't
 * be taken for microseconds that meant milliseconds. The first line that is
 * wrong makes the whole file wrong; c->error then says which and why.
 */
#ifndef DURABENCH_LAB_CONFIG_H
#define DURABENCH_LAB_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#define CONFIG_MAX	64	/* parameters a file may have */

struct config_entry {
	char name[32];
	char value[32];
	char unit[16];		/* "": none was given */
	bool used;
};

struct config {
	struct config_entry entry[CONFIG_MAX];
	size_t nr;
	char error[256];	/* "": no error so far */
};

/* Read @path into @c, which is empty. Returns 0 or -errno, error set. */
int config_read(struct config *c, const char *path);

/*
 * Set @name to @text, "VALUE" or "VALUE UNIT", over what a file said; without
 * a UNIT it is in that of the file.
 * Returns 0 or -EINVAL, error set.
 */
int config_set(struct config *c, const char *name, const char *text);

/* The value of @name as it was written, or NULL, error set. */
const char *config_word(struct config *c, const char *name);

/*
 * The number @name, given in @unit ("": a plain number) and within @min and
 * @max. On an error 0, with error set unless it was already.
 */
double config_number(struct config *c, const char *name, const char *unit,
		     double min, double max);

/*
 * To be called when a model has taken all its parameters: one that is left
 * is an error too. Returns 0 or -EINVAL.
 */
int config_finish(struct config *c);

#endif
