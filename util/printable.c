// SPDX-License-Identifier: GPL-2.0-only
/*
 * Text for a message; see printable.h.
 */
#include "printable.h"

void printable(char *text)
{
	unsigned char *s = (unsigned char *)text;

	for (; *s; s++) {
		if (*s == 0xc2 && s[1] >= 0x80 && s[1] <= 0x9f)
			s[0] = s[1] = '?';
		else if (*s < 0x20 || *s == 0x7f)
			*s = '?';
	}
}
