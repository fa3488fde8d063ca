// SPDX-License-Identifier: GPL-2.0-only
/* The parameters of a device model; see config.h. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/model/config.h"

#define BLANKS	" \t\r\n"

static int __attribute__((format(printf, 2, 3)))
fail(struct config *c, const char *fmt, ...)
{
	va_list args;

	if (!c->error[0]) {
		va_start(args, fmt);
		vsnprintf(c->error, sizeof(c->error), fmt, args);
		va_end(args);
	}
	return -EINVAL;
}

static struct config_entry *find(struct config *c, const char *name)
{
	size_t i;

	for (i = 0; i < c->nr; i++)
		if (!strcmp(c->entry[i].name, name))
			return &c->entry[i];
	return NULL;
}

/* Fill in an entry. @where names the line for messages; may change @text. */
static int fill(struct config *c, struct config_entry *e, char *text,
		const char *where)
{
	const char *value, *unit;
	char *rest;

	value = strtok_r(text, BLANKS, &rest);
	unit = strtok_r(NULL, BLANKS, &rest);
	if (!value || strtok_r(NULL, BLANKS, &rest))
		return fail(c, "%s: write it as NAME = VALUE [UNIT]", where);
	if (!unit)
		unit = "";
	if (strlen(value) >= sizeof(e->value) ||
	    strlen(unit) >= sizeof(e->unit))
		return fail(c, "%s: %s: too long", where, value);
	strcpy(e->value, value);
	strcpy(e->unit, unit);
	return 0;
}

static struct config_entry *add(struct config *c, const char *name,
				const char *where)
{
	struct config_entry *e;

	if (c->nr == CONFIG_MAX) {
		fail(c, "%s: more than %d parameters", where, CONFIG_MAX);
		return NULL;
	}
	if (strlen(name) >= sizeof(e->name)) {
		fail(c, "%s: %s: too long", where, name);
		return NULL;
	}
	e = &c->entry[c->nr++];
	*e = (struct config_entry){ 0 };
	strcpy(e->name, name);
	return e;
}

static int read_line(struct config *c, char *line, const char *where)
{
	char *equals, *name, *rest;
	struct config_entry *e;

	line[strcspn(line, "#")] = '\0';
	if (!line[strspn(line, BLANKS)])
		return 0;
	equals = strchr(line, '=');
	if (!equals)
		return fail(c, "%s: no = in it", where);
	*equals = '\0';
	name = strtok_r(line, BLANKS, &rest);
	if (!name || strtok_r(NULL, BLANKS, &rest))
		return fail(c, "%s: one name has to stand before =", where);
	if (find(c, name))
		return fail(c, "%s: %s is given a second time", where, name);
	e = add(c, name, where);
	return e ? fill(c, e, equals + 1, where) : -EINVAL;
}

int config_read(struct config *c, const char *path)
{
	char line[512], where[128];
	unsigned int nr = 0;
	int ret = 0;
	FILE *f;

	f = fopen(path, "re");
	if (!f) {
		ret = -errno;
		fail(c, "%s: %s", path, strerror(errno));
		return ret;
	}
	while (!ret && fgets(line, sizeof(line), f)) {
		snprintf(where, sizeof(where), "%s:%u", path, ++nr);
		if (!strchr(line, '\n') && !feof(f))
			ret = fail(c, "%s: too long", where);
		else
			ret = read_line(c, line, where);
	}
	if (!ret && ferror(f))
		ret = fail(c, "%s: can't be read", path);
	fclose(f);
	return ret;
}

int config_set(struct config *c, const char *name, const char *text)
{
	struct config_entry *e = find(c, name);
	char copy[64], unit[sizeof(e->unit)];
	int ret;

	if (strlen(text) >= sizeof(copy))
		return fail(c, "%s: too long", name);
	strcpy(copy, text);
	if (!e)
		e = add(c, name, name);
	if (!e)
		return -EINVAL;
	strcpy(unit, e->unit);
	ret = fill(c, e, copy, name);
	if (!ret && !e->unit[0])
		strcpy(e->unit, unit);
	return ret;
}

const char *config_word(struct config *c, const char *name)
{
	struct config_entry *e = find(c, name);

	if (!e) {
		fail(c, "%s is missing", name);
		return NULL;
	}
	e->used = true;
	return e->value;
}

double config_number(struct config *c, const char *name, const char *unit,
		     double min, double max)
{
	struct config_entry *e = find(c, name);
	double value;
	char *end;

	if (!e) {
		fail(c, "%s is missing%s%s", name, *unit ? "; it is in " : "",
		     unit);
		return 0;
	}
	e->used = true;
	if (strcmp(e->unit, unit)) {
		fail(c, "%s = %s %s: it has to be in %s", name, e->value,
		     e->unit, *unit ? unit : "no unit");
		return 0;
	}
	value = strtod(e->value, &end);
	if (end == e->value || *end || !isfinite(value)) {
		fail(c, "%s = %s: not a number", name, e->value);
		return 0;
	}
	if (value < min || value > max) {
		fail(c, "%s = %s: not within %.15g and %.15g", name, e->value,
		     min, max);
		return 0;
	}
	return value;
}

int config_finish(struct config *c)
{
	size_t i;

	for (i = 0; i < c->nr && !c->error[0]; i++)
		if (!c->entry[i].used)
			fail(c, "%s: this model has no such parameter",
			     c->entry[i].name);
	return c->error[0] ? -EINVAL : 0;
}
