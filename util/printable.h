/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Text by anybody, as a name, a label or a path, for a message: it must neither
 * break a line nor act on a terminal.
 */
#ifndef DURABENCH_UTIL_PRINTABLE_H
#define DURABENCH_UTIL_PRINTABLE_H

/*
 * Make question marks of control characters, of those of UTF-8 (U+0080 to
 * U+009F) too, in place.
 */
void printable(char *text);

/*
 * A word of the command line for a message: made printable where it stands, as
 * nothing else is done with it any more.
 */
static inline const char *shown(const char *word)
{
	printable((char *)word);
	return word;
}

#endif
