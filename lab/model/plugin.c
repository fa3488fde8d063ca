// SPDX-License-Identifier: GPL-2.0-only
/*
 * The nbdkit plugin that makes a device of a model: it asks the model when a
 * request is done and answers then. Run in a guest behind the guest's own nbd
 * driver, where it gets FUA writes and flushes as the kernel sends them: an
 * emulated SCSI or NVMe disk would get them as something else.
 *
 *	nbdkit nbdkit-devicemodel-plugin.so FILE [seed=N] [overhead=NS]
 *		[file=IMAGE | keep=false] [stats=FILE]
 *		[control=SOCKET [ignore_fua=true]] [PARAMETER=VALUE]...
 *
 * Requests are decided in the order in which they come and wait side by side.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "lab/model/model.h"
#include "lab/model/power.h"
#include "lab/model/store.h"
#include "util/json.h"

#define THREAD_MODEL	NBDKIT_THREAD_MODEL_PARALLEL

/* nbdkit has one instance of a plugin and hands nothing to its callbacks. */
static struct {
	struct config config;
	char *image, *stats, *control;	/* file names or NULL */
	uint64_t seed, overhead;
	bool keep;		/* the data */
	bool ignore_fua;	/* a device that is not what it says */

	struct store store;
	struct model *model;
	struct power power;	/* and the lock of all that */
} plugin = { .keep = true, .power = POWER_INIT };

/* Returns 0, or -1 after a message. */
static int parse_bool(const char *value, bool *to)
{
	const int ret = nbdkit_parse_bool(value);

	*to = ret > 0;
	return ret < 0 ? -1 : 0;
}

static int plugin_config(const char *key, const char *value)
{
	char **path = NULL;

	if (!strcmp(key, "conf")) {
		if (!config_read(&plugin.config, value))
			return 0;
	} else if (!strcmp(key, "seed")) {
		return nbdkit_parse_uint64_t(key, value, &plugin.seed);
	} else if (!strcmp(key, "overhead")) {
		return nbdkit_parse_uint64_t(key, value, &plugin.overhead);
	} else if (!strcmp(key, "keep")) {
		return parse_bool(value, &plugin.keep);
	} else if (!strcmp(key, "ignore_fua")) {
		return parse_bool(value, &plugin.ignore_fua);
	} else if (!strcmp(key, "file")) {
		path = &plugin.image;
	} else if (!strcmp(key, "stats")) {
		path = &plugin.stats;
	} else if (!strcmp(key, "control")) {
		path = &plugin.control;
	} else if (!config_set(&plugin.config, key, value)) {
		return 0;
	}
	if (path) {
		free(*path);
		*path = nbdkit_absolute_path(value);
		return *path ? 0 : -1;
	}
	nbdkit_error("%s", plugin.config.error);
	return -1;
}

static int plugin_config_complete(void)
{
	if (!plugin.config.nr) {
		nbdkit_error("conf=FILE is missing, the model's parameters");
		return -1;
	}
	if (plugin.image && !plugin.keep) {
		nbdkit_error("file=IMAGE keeps the data, keep=false does not");
		return -1;
	}
	/* What is durable is so at the end of a request, not before it. */
	if (plugin.control && (plugin.overhead || !plugin.keep)) {
		nbdkit_error("control=SOCKET goes neither with overhead=NS, which answers early, nor with keep=false");
		return -1;
	}
	return 0;
}

static void persist(void *data, uint64_t start, uint64_t nr, uint64_t seq)
{
	store_persist(data, start, nr, seq);
}

static int plugin_get_ready(void)
{
	struct model *m = model_new(&plugin.config, plugin.seed);
	int ret;

	if (!m) {
		nbdkit_error("%s", plugin.config.error);
		return -1;
	}
	plugin.model = m;
	if (!plugin.keep)
		return 0;
	ret = store_open(&plugin.store, plugin.image, m->capacity * m->sector,
			 m->sector, plugin.control);
	if (ret) {
		nbdkit_error("%s: %s", plugin.image ? plugin.image : "memory",
			     strerror(-ret));
		return -1;
	}
	if (plugin.control) {
		m->persist = persist;
		m->persist_data = &plugin.store;
	}
	return 0;
}

static int plugin_after_fork(void)
{
	int ret = 0;

	/* Waits end when they should; the threads to come inherit it. */
	if (prctl(PR_SET_TIMERSLACK, 1)) {
		nbdkit_error("prctl: %m");
		return -1;
	}
	plugin.power.model = plugin.model;
	plugin.power.store = &plugin.store;
	plugin.power.start = power_clock();
	if (plugin.control)
		ret = power_listen(&plugin.power, plugin.control);
	if (ret)
		nbdkit_error("%s: %s", plugin.control, strerror(-ret));
	return ret ? -1 : 0;
}

static void plugin_unload(void)
{
	store_close(&plugin.store);
	if (plugin.model)
		model_free(plugin.model);
	free(plugin.image);
	free(plugin.stats);
	free(plugin.control);
}

static void *plugin_open(int readonly)
{
	return NBDKIT_HANDLE_NOT_NEEDED;
}

/* docs/formats.md, "A modelled device" */
static int write_stats(const struct model_stats *s)
{
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{ "reads", s->reads },
		{ "read_bytes", s->read_sectors * plugin.model->sector },
		{ "writes", s->writes },
		{ "write_bytes", s->write_sectors * plugin.model->sector },
		{ "fua_writes", s->fua_writes },
		{ "flushes", s->flushes },
		{ "empty_flushes", s->empty_flushes },
		{ "destages", s->destages },
		{ "destaged_bytes",
		  s->destaged_sectors * plugin.model->sector },
		{ "cache_waits", s->waits },
		{ "retries", s->retries },
	};
	struct json j = { 0 };
	bool failed;
	size_t i;

	j.out = fopen(plugin.stats, "we");
	if (!j.out)
		return -errno;
	json_open(&j, '{');
	json_key(&j, "schema");
	json_string(&j, "durabench-device/1");
	json_key(&j, "model");
	json_string(&j, plugin.model->medium->name);
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		json_key(&j, numbers[i].name);
		json_uint(&j, numbers[i].value);
	}
	json_close(&j, '}');
	fputc('\n', j.out);
	failed = ferror(j.out);
	return fclose(j.out) || failed ? -EIO : 0;
}

/* Whenever a client has gone: the counts since the beginning. */
static void plugin_close(void *handle)
{
	int ret = 0;

	pthread_mutex_lock(&plugin.power.lock);
	if (plugin.stats)
		ret = write_stats(&plugin.model->stats);
	pthread_mutex_unlock(&plugin.power.lock);
	if (ret)
		nbdkit_error("%s: %s", plugin.stats, strerror(-ret));
}

static int64_t plugin_get_size(void *handle)
{
	return plugin.model->capacity * plugin.model->sector;
}

static int plugin_block_size(void *handle, uint32_t *minimum,
			     uint32_t *preferred, uint32_t *maximum)
{
	*minimum = 512;
	*preferred = plugin.model->sector;
	*maximum = 32 << 20;
	return 0;
}

static int plugin_is_rotational(void *handle)
{
	return plugin.model->medium->rotational;
}

static int plugin_can_fua(void *handle)
{
	return NBDKIT_FUA_NATIVE;
}

/* All connections are of one device, whose flush is for all of them. */
static int plugin_can_multi_conn(void *handle)
{
	return 1;
}

/* Carry out @rq, with the data for or from the host, and wait for its end. */
static int carry_out(struct model_request *rq, const void *from, void *to,
		     uint64_t offset, uint32_t count)
{
	struct power *p = &plugin.power;
	struct model *m = plugin.model;
	uint64_t now, done, committed;
	int ret;

	if (count) {
		rq->sector = offset / m->sector;
		rq->nr = (offset + count - 1) / m->sector - rq->sector + 1;
	}
	pthread_mutex_lock(&p->lock);
	ret = power_begin(p);
	if (ret)
		goto off;
	now = power_clock() - p->start;
	committed = m->committed;
	ret = model_submit(m, now, rq, &done);
	if (!ret && from)
		ret = store_write(&plugin.store, from, offset, count, m->seq,
				  committed);
	if (!ret && to)
		store_read(&plugin.store, to, offset, count);
	if (ret) {
		nbdkit_error("request of %u bytes at %llu: %s", count,
			     (unsigned long long)offset, strerror(-ret));
		done = now;
	}

	/* What the way here and back takes is in the time already. */
	if (done > now + plugin.overhead) {
		pthread_mutex_unlock(&p->lock);
		power_sleep(p->start + done - plugin.overhead);
		pthread_mutex_lock(&p->lock);
	}
	if (power_end(p, done) && !ret)
		ret = -EIO;
off:
	pthread_mutex_unlock(&p->lock);
	if (ret)
		nbdkit_set_error(-ret);
	return ret ? -1 : 0;
}

static int plugin_pread(void *handle, void *buffer, uint32_t count,
			uint64_t offset, uint32_t flags)
{
	struct model_request rq = { .op = MODEL_READ };

	return carry_out(&rq, NULL, buffer, offset, count);
}

static int plugin_pwrite(void *handle, const void *buffer, uint32_t count,
			 uint64_t offset, uint32_t flags)
{
	struct model_request rq = {
		.op = MODEL_WRITE,
		.fua = flags & NBDKIT_FLAG_FUA && !plugin.ignore_fua,
	};

	return carry_out(&rq, buffer, NULL, offset, count);
}

static int plugin_flush(void *handle, uint32_t flags)
{
	struct model_request rq = { .op = MODEL_FLUSH };

	return carry_out(&rq, NULL, NULL, 0, 0);
}

static struct nbdkit_plugin descriptor = {
	.name = "devicemodel",
	.version = DURABENCH_VERSION,
	.longname = "durabench device models",
	.description = "A disk that answers when a modelled one would.",
	.magic_config_key = "conf",
	.config_help =
		"conf=FILE        the model's parameters (required)\n"
		"seed=N           what is random about it\n"
		"overhead=NS      the way here and back, to be subtracted\n"
		"file=IMAGE       keep the data in this sparse file\n"
		"keep=false       keep none: what is read is zeroes\n"
		"stats=FILE       write the counts there when a client leaves\n"
		"control=SOCKET   the power is cut and switched on from there\n"
		"ignore_fua=true  a FUA write is treated as any other\n"
		"PARAMETER=VALUE  over that of the file",
	.config = plugin_config,
	.config_complete = plugin_config_complete,
	.get_ready = plugin_get_ready,
	.after_fork = plugin_after_fork,
	.unload = plugin_unload,
	.open = plugin_open,
	.close = plugin_close,
	.get_size = plugin_get_size,
	.block_size = plugin_block_size,
	.is_rotational = plugin_is_rotational,
	.can_fua = plugin_can_fua,
	.can_multi_conn = plugin_can_multi_conn,
	.pread = plugin_pread,
	.pwrite = plugin_pwrite,
	.flush = plugin_flush,
	.errno_is_preserved = 1,
};

struct nbdkit_plugin *plugin_init(void);

NBDKIT_REGISTER_PLUGIN(descriptor)
