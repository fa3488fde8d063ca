// SPDX-License-Identifier: GPL-2.0-only
/*
 * What was observed, as JSON and as text; see report.h.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/json.h"
#include "report.h"

#define SECTOR	512.0
#define MIB	1048576.0

/* Shells show a death by signal so. */
static int exit_status(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) :
				     WEXITSTATUS(status);
}

/* How many writes of the size that was given; NAN if none was. */
static double writes_of_size(const struct run *run, const struct blockdev *dev)
{
	if (!run->write_size || !blockdev_counts(dev, BLOCKDEV_WRITE_SECTORS))
		return NAN;
	return dev->total[BLOCKDEV_WRITE_SECTORS] * SECTOR / run->write_size;
}

static void field(struct json *j, const char *name, const struct blockdev *dev,
		  enum blockdev_field f)
{
	if (name)
		json_key(j, name);
	if (blockdev_counts(dev, f))
		json_uint(j, dev->total[f]);
	else
		json_null(j);
}

static void text(struct json *j, const char *name, const char *value)
{
	json_key(j, name);
	if (value && *value)
		json_string(j, value);
	else
		json_null(j);
}

static void flag(struct json *j, const char *name, int value)
{
	json_key(j, name);
	if (value < 0)
		json_null(j);
	else
		json_uint(j, value);
}

static void number(struct json *j, const char *name, double value)
{
	json_key(j, name);
	json_double(j, value);
}

static void count(struct json *j, const char *name, uint64_t value)
{
	json_key(j, name);
	json_uint(j, value);
}

void report_header(FILE *out, const struct run *run)
{
	const struct blockdevs *devs = run->sampler->devs;
	struct json j = { .out = out };
	unsigned int i;

	json_open(&j, '{');
	text(&j, "schema", "durabench-samples/1");
	number(&j, "interval_ms", run->interval * 1e3);
	text(&j, "start", run->start);
	json_key(&j, "devices");
	json_open(&j, '[');
	for (i = 0; i < devs->nr; i++)
		json_string(&j, devs->dev[i].name);
	json_close(&j, ']');
	json_close(&j, '}');
	fputc('\n', out);
}

void report_sample(FILE *out, const struct sampler *s)
{
	const struct blockdev *dev;
	struct json j = { .out = out };
	unsigned int i;

	json_open(&j, '{');
	number(&j, "t", s->t);
	count(&j, "dirty", s->memory.dirty);
	count(&j, "writeback", s->memory.writeback);
	count(&j, "cached", s->memory.cached);

	json_key(&j, "cpu");
	json_open(&j, '{');
	number(&j, "user", s->cpu.user);
	number(&j, "system", s->cpu.system);
	number(&j, "iowait", s->cpu.iowait);
	number(&j, "kswapd", s->cpu.kswapd);
	number(&j, "flusher", s->cpu.flusher);
	json_close(&j, '}');

	json_key(&j, "dev");
	json_open(&j, '{');
	for (i = 0; i < s->devs->nr; i++) {
		dev = &s->devs->dev[i];
		json_key(&j, dev->name);
		json_open(&j, '[');
		field(&j, NULL, dev, BLOCKDEV_READS);
		field(&j, NULL, dev, BLOCKDEV_READ_SECTORS);
		field(&j, NULL, dev, BLOCKDEV_WRITES);
		field(&j, NULL, dev, BLOCKDEV_WRITE_SECTORS);
		field(&j, NULL, dev, BLOCKDEV_FLUSHES);
		field(&j, NULL, dev, BLOCKDEV_FLUSH_MS);
		json_close(&j, ']');
	}
	json_close(&j, '}');
	json_close(&j, '}');
	fputc('\n', out);
}

static void summary_device(struct json *j, const struct run *run,
			   const struct blockdev *dev)
{
	const struct blockdevs *devs = run->sampler->devs;
	double writes = writes_of_size(run, dev);
	unsigned int i;

	json_open(j, '{');
	text(j, "name", dev->name);
	text(j, "role", dev->argument ? "target" : "below");
	text(j, "argument", dev->argument);
	json_key(j, "of");
	json_open(j, '[');
	for (i = 0; i < dev->nr_above; i++)
		json_string(j, devs->dev[dev->above[i]].name);
	json_close(j, ']');

	field(j, "reads", dev, BLOCKDEV_READS);
	field(j, "read_sectors", dev, BLOCKDEV_READ_SECTORS);
	field(j, "read_ms", dev, BLOCKDEV_READ_MS);
	field(j, "writes", dev, BLOCKDEV_WRITES);
	field(j, "write_sectors", dev, BLOCKDEV_WRITE_SECTORS);
	field(j, "write_ms", dev, BLOCKDEV_WRITE_MS);
	field(j, "busy_ms", dev, BLOCKDEV_BUSY_MS);
	field(j, "discards", dev, BLOCKDEV_DISCARDS);
	field(j, "flushes", dev, BLOCKDEV_FLUSHES);
	field(j, "flush_ms", dev, BLOCKDEV_FLUSH_MS);

	text(j, "write_cache", dev->write_cache);
	flag(j, "fua", dev->fua);
	flag(j, "rotational", dev->rotational);
	text(j, "scheduler", dev->scheduler);
	number(j, "flushes_per_write", blockdev_counts(dev, BLOCKDEV_FLUSHES) ?
	       dev->total[BLOCKDEV_FLUSHES] / writes : NAN);
	number(j, "requests_per_write", dev->total[BLOCKDEV_WRITES] / writes);
	number(j, "gone_s", dev->gone < 0 ? NAN : dev->gone);
	json_close(j, '}');
}

void report_summary(FILE *out, const struct run *run)
{
	const struct sampler *s = run->sampler;
	struct json j = { .out = out };
	struct utsname kernel;
	unsigned int i;
	char **arg;

	uname(&kernel);
	json_open(&j, '{');
	text(&j, "schema", "durabench-observe/1");
	text(&j, "kernel", kernel.release);
	text(&j, "start", run->start);
	json_key(&j, "command");
	json_open(&j, '[');
	for (arg = run->argv; *arg; arg++)
		json_string(&j, *arg);
	json_close(&j, ']');
	count(&j, "exit_status", exit_status(run->status));
	count(&j, "signal", WIFSIGNALED(run->status) ?
	      WTERMSIG(run->status) : 0);
	number(&j, "elapsed_s", s->t);
	number(&j, "interval_ms", run->interval * 1e3);
	count(&j, "samples", s->nr);

	json_key(&j, "devices");
	json_open(&j, '[');
	for (i = 0; i < s->devs->nr; i++)
		summary_device(&j, run, &s->devs->dev[i]);
	json_close(&j, ']');

	json_key(&j, "system");
	json_open(&j, '{');
	count(&j, "dirty_peak_bytes", s->dirty_peak);
	count(&j, "writeback_peak_bytes", s->writeback_peak);
	count(&j, "dirty_writeback_peak_bytes", s->dirty_writeback_peak);
	count(&j, "cached_peak_bytes", s->cached_peak);
	count(&j, "cached_start_bytes", s->cached_first);
	count(&j, "cached_end_bytes", s->memory.cached);
	number(&j, "cpu_user_s", s->cpu.user);
	number(&j, "cpu_system_s", s->cpu.system);
	number(&j, "cpu_iowait_s", s->cpu.iowait);
	count(&j, "cpu_count", sysconf(_SC_NPROCESSORS_ONLN));
	number(&j, "kswapd_cpu_s", s->cpu.kswapd);
	number(&j, "flusher_cpu_s", s->cpu.flusher);
	number(&j, "command_cpu_s", run->command_cpu);
	number(&j, "observer_cpu_s", run->observer_cpu);
	json_close(&j, '}');
	json_close(&j, '}');
	fputc('\n', out);
}

/* The rest of a line whose number is @n, with a comment where it has one. */
static void per(FILE *out, const char *what, double n, double writes,
		const char *write)
{
	if (writes > 0)
		fprintf(out, "  %-24s# %.2f per %s\n", what, n / writes, write);
	else
		fprintf(out, "  %s\n", what);
}

static void text_flushes(FILE *out, const struct run *run,
			 const struct blockdev *dev)
{
	uint64_t flushes = dev->total[BLOCKDEV_FLUSHES];

	if (!blockdev_counts(dev, BLOCKDEV_FLUSHES)) {
		fprintf(out, "%16s  %-24s# %s\n", "<not counted>", "flushes",
			dev->bio_based ?
			"no request queue; see the disks below it" :
			"Linux before 5.5 counts none");
		return;
	}
	fprintf(out, "%16" PRIu64, flushes);
	if (run->write_size)
		per(out, "flushes", flushes, writes_of_size(run, dev), "write");
	else
		per(out, "flushes", flushes, dev->total[BLOCKDEV_WRITES],
		    "write request");
	if (flushes)
		fprintf(out, "%16.3f  ms a flush, mean\n",
			(double)dev->total[BLOCKDEV_FLUSH_MS] / flushes);
}

static void text_device(FILE *out, const struct run *run,
			const struct blockdev *dev)
{
	const struct blockdevs *devs = run->sampler->devs;
	double writes = writes_of_size(run, dev);
	unsigned int i;

	fprintf(out, "\n %s", dev->name);
	if (dev->argument && strcmp(dev->argument, dev->name))
		fprintf(out, ", of %s", dev->argument);
	for (i = 0; i < dev->nr_above; i++)
		fprintf(out, "%s%s", i ? " " : ", below ",
			devs->dev[dev->above[i]].name);
	fprintf(out, " (%s, %s, scheduler %s)\n",
		*dev->write_cache ? dev->write_cache : "write cache unknown",
		dev->fua < 0 ? "FUA unknown" : dev->fua ? "FUA" : "no FUA",
		*dev->scheduler ? dev->scheduler : "unknown");
	if (dev->gone >= 0)
		fprintf(out, "%16.3f  s, when it was found gone; counted up to then\n",
			dev->gone);

	if (run->write_size)
		fprintf(out, "%16.0f  writes of %" PRIu64 " bytes\n", writes,
			run->write_size);
	fprintf(out, "%16" PRIu64, dev->total[BLOCKDEV_WRITES]);
	per(out, "write requests", dev->total[BLOCKDEV_WRITES], writes,
	    "write");
	text_flushes(out, run, dev);
	fprintf(out, "%16.2f  MiB written\n",
		dev->total[BLOCKDEV_WRITE_SECTORS] * SECTOR / MIB);
	fprintf(out, "%16.2f  MiB read\n",
		dev->total[BLOCKDEV_READ_SECTORS] * SECTOR / MIB);
}

static void text_cpu(FILE *out, double s, const char *what, double elapsed)
{
	if (isnan(s))
		fprintf(out, "%16s  %s\n", "<not visible>", what);
	else
		fprintf(out, "%16.3f  s %-22s# %.2f %% of a CPU\n", s, what,
			elapsed > 0 ? 100 * s / elapsed : 0);
}

void report_text(FILE *out, const struct run *run)
{
	const struct sampler *s = run->sampler;
	unsigned int i;
	char **arg;

	fprintf(out, "\n Observed '");
	for (arg = run->argv; *arg; arg++)
		fprintf(out, "%s%s", arg == run->argv ? "" : " ", *arg);
	fprintf(out, "' for %.3f s, %lu samples:\n", s->t, s->nr);

	for (i = 0; i < s->devs->nr; i++)
		text_device(out, run, &s->devs->dev[i]);

	fprintf(out, "\n system, %ld CPUs\n", sysconf(_SC_NPROCESSORS_ONLN));
	fprintf(out, "%16.2f  MiB peak Dirty+Writeback\n",
		s->dirty_writeback_peak / MIB);
	text_cpu(out, s->cpu.user, "CPU user", s->t);
	text_cpu(out, s->cpu.system, "CPU system", s->t);
	text_cpu(out, s->cpu.kswapd, "CPU of kswapd", s->t);
	text_cpu(out, s->cpu.flusher, "CPU of the flusher", s->t);
	text_cpu(out, run->command_cpu, "CPU of the command", s->t);
	text_cpu(out, run->observer_cpu, "CPU of this observer", s->t);
	fputc('\n', out);
}
