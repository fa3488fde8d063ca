// SPDX-License-Identifier: GPL-2.0-only
/*
 * The command line of observe/main.c, a word a line: what is not refused is
 * within what the program can do.
 */
#include <err.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdbool.h>

#include "fuzz.h"

static jmp_buf ended;
static int status;

static void __attribute__((noreturn)) fake_exit(int with)
{
	status = with;
	longjmp(ended, 1);
}

#define main(argc, argv)	observe_main(argc, argv)
#define exit			fake_exit
#define vwarnx(format, args)	((void)(args))
#define fprintf(...)		((void)0)
#define puts(text)		((void)0)
#define fputs(text, out)	((void)0)
int observe_main(int argc, char **argv);
#include "observe/main.c"

#define MOST	32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	static struct options o;
	static char *argv[MOST + 2], *words[MOST + 2];
	static int argc;
	unsigned int i;

	argv[0] = words[0] = strdup("durabench-observe");
	for (argc = 1; argc <= MOST && (words[argc] = input_text(&in, '\n'));
	     argc++)
		argv[argc] = words[argc];	/* which getopt reorders */
	argv[argc] = NULL;

	optind = 0;
	opterr = 0;
	o = (struct options){ 0 };
	status = -1;
	if (!setjmp(ended)) {
		parse_options(&o, argc, argv);
		MUST(o.interval >= 1e-3 && o.interval <= 3600);
		MUST(*o.argv && o.nr_devices < (unsigned int)argc);
		for (i = 0; i < o.nr_devices; i++)
			MUST(o.device[i]);
	} else {
		MUST(status == EXIT_USAGE || status == EXIT_SUCCESS);
	}
	free(o.device);
	while (argc)
		free(words[--argc]);
	return 0;
}
