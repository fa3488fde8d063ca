// SPDX-License-Identifier: GPL-2.0-only
/*
 * durabench-guard: may these block devices be written over? As the engines and
 * the durabench command ask it, for scripts and for other benchmarks.
 *
 * With a command, the devices are claimed while it runs. It gets the claims by
 * DURABENCH_CLAIMS (guard.h), so an engine under it finds them as its own.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sysexits.h>
#include <unistd.h>

#include "guard.h"
#include "util/json.h"
#include "util/printable.h"

/* Exit codes: docs/formats.md, "Exit status". */
enum { EXIT_REFUSED = 2 };

static void usage(void)
{
	fputs("\n"
"Usage:\n"
" durabench-guard [options] <device>... [-- <command> [<argument>...]]\n"
"\n"
"Check that block devices may be written over, and keep them while a command\n"
"runs.\n"
"\n"
"Options:\n"
" -d, --destroy <name>  what a device holds may be lost: its serial number, WWN\n"
"                         or name in /dev/disk/by-id; may be given more than once\n"
" -J, --json            tell what was found as JSON\n"
"\n"
" -h, --help            display this help\n"
" -V, --version         display version\n"
"\n"
"For more details see durabench-guard(1).\n", stdout);
}

static void print_json(const struct guard_device *devices, unsigned int nr)
{
	struct json j = { .out = stdout };
	const struct guard_device *d;
	char number[32];
	char **name;

	json_open(&j, '{');
	json_key(&j, "schema");
	json_string(&j, "durabench-guard/1");
	json_key(&j, "devices");
	json_open(&j, '[');
	for (d = devices; d < devices + nr; d++) {
		snprintf(number, sizeof(number), "%u:%u", major(d->dev),
			 minor(d->dev));
		json_open(&j, '{');
		json_key(&j, "path");
		json_string(&j, d->path);
		json_key(&j, "node");
		json_string(&j, d->node);
		json_key(&j, "number");
		json_string(&j, number);
		json_key(&j, "diskseq");
		json_uint(&j, d->diskseq);
		json_key(&j, "size_bytes");
		json_uint(&j, d->size);
		json_key(&j, "names");
		json_open(&j, '[');
		for (name = d->names; name && *name; name++)
			json_string(&j, *name);
		json_close(&j, ']');
		json_key(&j, "holds");
		if (d->holds)
			json_string(&j, d->holds);
		else
			json_null(&j);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	json_close(&j, '}');
	putchar('\n');
}

static void print_text(const struct guard_device *devices, unsigned int nr)
{
	const struct guard_device *d;

	for (d = devices; d < devices + nr; d++)
		if (d->holds)
			printf("%s may be written over; it holds %s\n",
			       shown(d->path), *d->holds ? d->holds :
			       "nothing that libblkid knows");
		else
			printf("%s is claimed already\n", shown(d->path));
}

/* Let the command have what is claimed. */
static void run(const struct guard *g, char **command)
{
	const int fds[] = { g->table, g->sockets[0], g->sockets[1] };
	size_t i;

	for (i = 0; i < 3; i++)
		if (fcntl(fds[i], F_SETFD, 0))
			err(EXIT_FAILURE, "fcntl");
	execvp(command[0], command);
	err(errno == ENOENT ? 127 : 126, "%s", shown(command[0]));
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "destroy", required_argument, NULL, 'd' },
		{ "json", no_argument, NULL, 'J' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	struct guard g = { .table = -1, .sockets = { -1, -1 } };
	struct guard_device *devices;
	const char **confirm;
	unsigned int nr, i, nr_confirm = 0;
	bool json = false;
	char **command;
	int c, ret;

	confirm = calloc(argc, sizeof(*confirm));
	if (!confirm)
		err(EXIT_FAILURE, NULL);
	while ((c = getopt_long(argc, argv, "+d:JhV", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			confirm[nr_confirm++] = optarg;
			break;
		case 'J':
			json = true;
			break;
		case 'h':
			usage();
			return EXIT_SUCCESS;
		case 'V':
			puts("durabench-guard " DURABENCH_VERSION);
			return EXIT_SUCCESS;
		default:
			fprintf(stderr, "Try '%s --help' for more information.\n",
				program_invocation_short_name);
			return EX_USAGE;
		}
	}
	argv += optind;
	for (nr = 0; argv[nr] && strcmp(argv[nr], "--"); nr++)
		;
	command = argv[nr] ? argv + nr + 1 : NULL;
	if (!nr || (command && !*command)) {
		warnx("no %s specified", nr ? "command" : "device");
		fprintf(stderr, "Try '%s --help' for more information.\n",
			program_invocation_short_name);
		return EX_USAGE;
	}

	devices = calloc(nr, sizeof(*devices));
	if (!devices)
		err(EXIT_FAILURE, NULL);
	ret = guard_open(&g);
	if (!ret)
		ret = guard_claim(&g, (const char *const *)argv, nr, confirm,
				  "--destroy=", devices);
	if (ret)
		errx(EXIT_REFUSED, "%s. Nothing was written.", g.error);
	for (i = 0; i < nr; i++)
		if (!devices[i].dev)
			errx(EXIT_REFUSED, "%s is no block device. Nothing was written.",
			     shown(devices[i].path));

	if (json)
		print_json(devices, nr);
	else if (!command)
		print_text(devices, nr);
	if (fflush(stdout) || ferror(stdout))
		err(EXIT_FAILURE, "standard output");
	if (command)
		run(&g, command);
	guard_free_devices(devices, nr);
	free(devices);
	free(confirm);
	guard_close(&g);
	return EXIT_SUCCESS;
}
