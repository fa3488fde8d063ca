// SPDX-License-Identifier: GPL-2.0-only
/*
 * durabench-observe: what the kernel and its block devices do while a command
 * runs, as perf stat does it for the processor.
 *
 * How a write is made durable shows in no system call: the kernel decides
 * whether it becomes an FUA write, a flush, both or several. The kernel
 * counts the flushes of every disk, and the memory that waits for one; this
 * program reads the counters before, during and after a command. It needs
 * /proc and /sys and nothing else, so that it also runs in an initramfs.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "file.h"
#include "report.h"
#include "sample.h"
#include "util/printable.h"

/* Exit codes of its own; the last three as env(1) has them. */
enum {
	EXIT_USAGE = 64,
	EXIT_MISSING = 69,
	EXIT_OBSERVER = 125,
	EXIT_NO_EXEC = 126,
	EXIT_NOT_FOUND = 127,
};

struct options {
	const char **device;
	unsigned int nr_devices;
	double interval;		/* s */
	uint64_t write_size;		/* bytes, 0: not given */
	const char *samples, *summary;
	bool die_with_parent;
	char **argv;
};

static void usage(void)
{
	fputs("\n"
"Usage:\n"
" durabench-observe [options] [--] <command> [<argument>...]\n"
"\n"
"Count the flushes and writes of block devices, dirty memory and CPU time\n"
"while a command runs.\n"
"\n"
"Options:\n"
" -d, --device <device>      block device, or file or directory on one; may be\n"
"                              given more than once\n"
" -i, --interval <time>      between samples: 100ms (the default), 1s, 500us\n"
" -o, --samples <file>       write every sample, as JSON lines\n"
" -j, --summary <file>       write the summary, as JSON\n"
" -b, --write-size <bytes>   size of the command's writes (4096, 4k, 1M), to\n"
"                              count flushes and requests per write\n"
"     --die-with-parent      stop when the process that started this one dies\n"
"\n"
" -h, --help                 display this help\n"
" -V, --version              display version\n"
"\n"
"For more details see durabench-observe(1).\n", stdout);
}

static void __attribute__((noreturn, format(printf, 1, 2)))
bad_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vwarnx(format, args);
	va_end(args);
	fprintf(stderr, "Try '%s --help' for more information.\n",
		program_invocation_short_name);
	exit(EXIT_USAGE);
}

static double parse_interval(const char *text)
{
	static const struct { const char *unit; double s; } units[] = {
		{ "", 1e-3 }, { "us", 1e-6 }, { "ms", 1e-3 }, { "s", 1 },
	};
	size_t i, digits = strspn(text, "0123456789.");
	char *end;
	double value = strtod(text, &end);

	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (!digits || end != text + digits ||
		    strcmp(end, units[i].unit))
			continue;
		value *= units[i].s;
		if (value < 1e-3 || value > 3600)
			bad_usage("interval '%s' is not from 1ms to 3600s",
				  shown(text));
		return value;
	}
	bad_usage("interval '%s' is not a number with us, ms or s",
		  shown(text));
}

static uint64_t parse_size(const char *text)
{
	static const char suffixes[] = "kmgt";
	size_t digits = strspn(text, "0123456789");
	unsigned int shift = 0;
	const char *suffix;
	uint64_t value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (digits && *end && !end[1]) {
		suffix = strchr(suffixes, *end | 0x20);
		if (suffix) {
			shift = 10 * (suffix - suffixes + 1);
			end++;
		}
	}
	if (!digits || *end || errno || !value || value > UINT64_MAX >> shift)
		bad_usage("write size '%s' is not a number of bytes such as 4096 or 4k",
			  shown(text));
	return value << shift;
}

static void parse_options(struct options *o, int argc, char **argv)
{
	enum { DIE_WITH_PARENT = 256 };
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "interval", required_argument, NULL, 'i' },
		{ "samples", required_argument, NULL, 'o' },
		{ "summary", required_argument, NULL, 'j' },
		{ "write-size", required_argument, NULL, 'b' },
		{ "die-with-parent", no_argument, NULL, DIE_WITH_PARENT },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ }
	};
	int c;

	memset(o, 0, sizeof(*o));
	o->interval = 0.1;
	o->device = calloc(argc, sizeof(*o->device));
	if (!o->device)
		err(EXIT_OBSERVER, NULL);

	while ((c = getopt_long(argc, argv, "+d:i:o:j:b:hV", options,
				NULL)) != -1) {
		switch (c) {
		case 'd':
			o->device[o->nr_devices++] = optarg;
			break;
		case 'i':
			o->interval = parse_interval(optarg);
			break;
		case 'o':
			o->samples = optarg;
			break;
		case 'j':
			o->summary = optarg;
			break;
		case 'b':
			o->write_size = parse_size(optarg);
			break;
		case DIE_WITH_PARENT:
			o->die_with_parent = true;
			break;
		case 'h':
			usage();
			exit(EXIT_SUCCESS);
		case 'V':
			puts("durabench-observe from durabench "
			     DURABENCH_VERSION);
			exit(EXIT_SUCCESS);
		default:
			fprintf(stderr,
				"Try '%s --help' for more information.\n",
				program_invocation_short_name);
			exit(EXIT_USAGE);
		}
	}
	o->argv = argv + optind;
	if (!*o->argv)
		bad_usage("no command to observe");
	if (o->samples && o->summary && !strcmp(o->samples, o->summary))
		bad_usage("samples and summary can't both be '%s'",
			  shown(o->samples));
}

static void find_devices(struct blockdevs *devs, const struct options *o)
{
	unsigned int i;
	int ret;

	memset(devs, 0, sizeof(*devs));
	devs->sysfd = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (i = 0; i < o->nr_devices; i++) {
		const char *spec = o->device[i];

		ret = blockdevs_add(devs, spec);
		switch (ret) {
		case 0:
			continue;
		case -ENXIO:
			errx(EXIT_MISSING,
			     "'%s': no block device stands behind its file system (tmpfs, overlay, a network), or it does not tell which (btrfs); name the devices themselves with -d, or leave it out to observe memory and CPU alone",
			     shown(spec));
		case -ENOTBLK:
			errx(EXIT_MISSING,
			     "'%s' is neither a block device nor a file or directory on one",
			     shown(spec));
		case -ENODEV:
			errx(EXIT_MISSING,
			     "'%s': its block device is not in /sys; is that mounted?",
			     shown(spec));
		default:
			errno = -ret;
			err(EXIT_MISSING, "'%s'", shown(spec));
		}
	}
	ret = blockdevs_add_below(devs);
	if (ret) {
		errno = -ret;
		err(EXIT_OBSERVER, "the devices below");
	}
}

/* Before the command runs, so that a wrong name costs no measurement. */
static void open_results(const struct options *o, struct outfile *samples,
			 struct outfile *summary)
{
	const char *path = o->samples;
	int ret = path ? outfile_open(samples, path) : 0;

	if (!ret && o->summary) {
		path = o->summary;
		ret = outfile_open(summary, path);
	}
	if (!ret)
		return;
	outfile_discard(samples);
	errno = -ret;
	err(EXIT_OBSERVER, "'%s' can't be written", shown(path));
}

static int commit_result(struct outfile *f)
{
	const char *suffix = f->part ? ".part" : "";
	int ret = f->out ? outfile_commit(f) : 0;

	if (ret) {
		errno = -ret;
		warn("'%s' could not be completed; what there is stays in '%s%s'",
		     shown(f->path), f->path, suffix);
	}
	return ret;
}

static void start_time(char *buf, size_t size)
{
	struct timespec now;
	char seconds[24];
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf, size, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
}

/* Seconds since @start, in whole microseconds. */
static double elapsed(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return ((int64_t)(now.tv_sec - start->tv_sec) * 1000000 +
		(now.tv_nsec - start->tv_nsec) / 1000) / 1e6;
}

static int start_timer(double interval)
{
	struct itimerspec spec;
	int fd;

	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	spec.it_interval.tv_sec = interval;
	spec.it_interval.tv_nsec = (interval - (time_t)interval) * 1e9;
	spec.it_value = spec.it_interval;
	timerfd_settime(fd, 0, &spec, NULL);
	return fd;
}

static double cpu_seconds(const struct rusage *usage)
{
	return usage->ru_utime.tv_sec + usage->ru_stime.tv_sec +
	       (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

/* Sample until the command has ended, and once more. */
static void observe(struct sampler *s, struct command *c, FILE *samples,
		    const struct timespec *start, int signals, int timer)
{
	struct pollfd fds[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = timer, .events = POLLIN },
	};
	struct signalfd_siginfo si;
	uint64_t expirations;
	bool tick;

	while (!c->ended) {
		if (poll(fds, 2, -1) < 0)
			continue;
		tick = fds[1].revents && read(timer, &expirations,
					      sizeof(expirations)) > 0;
		if (fds[0].revents &&
		    read(signals, &si, sizeof(si)) == sizeof(si))
			command_signal(c, &si);
		if (tick || c->ended) {
			sampler_take(s, elapsed(start), c->ended);
			if (samples)
				report_sample(samples, s);
		}
	}
}

int main(int argc, char **argv)
{
	struct outfile samples = { }, summary = { };
	struct blockdevs devs;
	struct command command;
	struct sampler sampler;
	struct timespec start;
	struct rusage usage;
	struct options o;
	struct run run;
	int procfd, signals, timer, ret, failed;
	unsigned int i;

	parse_options(&o, argc, argv);
	if (o.die_with_parent) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		command_adopt();
	}

	find_devices(&devs, &o);
	procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = sampler_open(&sampler, procfd, &devs);
	if (ret) {
		errno = -ret;
		err(EXIT_MISSING, "/proc/meminfo and /proc/stat; is /proc mounted?");
	}
	signals = command_signals(&command);
	if (signals < 0) {
		errno = -signals;
		err(EXIT_OBSERVER, "signals");
	}
	open_results(&o, &samples, &summary);

	run = (struct run) {
		.argv = o.argv,
		.interval = o.interval,
		.write_size = o.write_size,
		.sampler = &sampler,
	};
	start_time(run.start, sizeof(run.start));
	clock_gettime(CLOCK_MONOTONIC, &start);
	sampler_take(&sampler, 0, false);
	if (samples.out) {
		report_header(samples.out, &run);
		report_sample(samples.out, &sampler);
	}
	timer = start_timer(o.interval);
	ret = timer < 0 ? timer : command_start(&command, o.argv);
	if (ret) {
		outfile_discard(&samples);
		outfile_discard(&summary);
		errno = abs(ret);
		err(ret < 0 ? EXIT_OBSERVER :
		    ret == ENOENT ? EXIT_NOT_FOUND : EXIT_NO_EXEC,
		    "'%s' can't be run", shown(o.argv[0]));
	}

	observe(&sampler, &command, samples.out, &start, signals, timer);
	if (o.die_with_parent)
		command_end_rest();

	getrusage(RUSAGE_SELF, &usage);
	run.status = command.status;
	run.command_cpu = cpu_seconds(&command.usage);
	run.observer_cpu = cpu_seconds(&usage);
	failed = commit_result(&samples);
	if (summary.out)
		report_summary(summary.out, &run);
	failed |= commit_result(&summary);
	for (i = 0; i < o.nr_devices; i++)
		printable((char *)o.device[i]);
	for (i = 0; o.argv[i]; i++)
		printable(o.argv[i]);
	report_text(stderr, &run);

	sampler_close(&sampler);
	blockdevs_free(&devs);
	free(o.device);
	if (failed && WIFEXITED(command.status) && !WEXITSTATUS(command.status))
		exit(EXIT_OBSERVER);
	command_exit_alike(&command);
}
