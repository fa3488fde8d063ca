// SPDX-License-Identifier: GPL-2.0-only
/* A modelled device for the tests; see model_device.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/unit/model_device.h"

#define SECTORS	256

struct model *model_of(const char *file, uint64_t seed, ...)
{
	char path[256], name[64];
	struct config c = { 0 };
	const char *text, *equals;
	struct model *m;
	va_list args;

	snprintf(path, sizeof(path), "%s%s", MODELS, file);
	config_read(&c, path);
	va_start(args, seed);
	while ((text = va_arg(args, const char *))) {
		equals = strchr(text, '=');
		snprintf(name, sizeof(name), "%.*s", (int)(equals - text),
			 text);
		config_set(&c, name, equals + 1);
	}
	va_end(args);
	assert_string_equal(c.error, "");
	m = model_new(&c, seed);
	assert_string_equal(c.error, "");
	assert_non_null(m);
	return m;
}

static void persist(void *data, uint64_t start, uint64_t nr, uint64_t seq)
{
	store_persist(data, start, nr, seq);
}

void device_open(struct device *d, struct model *m)
{
	d->model = m;
	m->persist = persist;
	m->persist_data = &d->store;
	assert_int_equal(store_open(&d->store, NULL, SECTORS * m->sector,
				    m->sector, true), 0);
}

void device_close(struct device *d)
{
	store_close(&d->store);
	model_free(d->model);
}

static uint64_t submit(struct device *d, uint64_t now,
		       const struct model_request *rq)
{
	uint64_t done;

	assert_int_equal(model_submit(d->model, now, rq, &done), 0);
	assert_true(done >= now);
	return done;
}

uint64_t device_write(struct device *d, uint64_t now, uint64_t sector,
		      uint64_t nr, uint8_t byte, bool fua)
{
	const struct model_request rq = {
		.op = MODEL_WRITE, .fua = fua, .sector = sector, .nr = nr,
	};
	const uint64_t committed = d->model->committed;
	const uint32_t size = d->model->sector;
	const uint64_t done = submit(d, now, &rq);
	uint8_t data[16 * 4096];

	assert_true(nr * size <= sizeof(data));
	memset(data, byte, nr * size);
	assert_int_equal(store_write(&d->store, data, sector * size, nr * size,
				     d->model->seq, committed), 0);
	return done;
}

uint64_t device_read(struct device *d, uint64_t now, uint64_t sector,
		     uint64_t nr)
{
	return submit(d, now, &(struct model_request){
		.op = MODEL_READ, .sector = sector, .nr = nr,
	});
}

uint64_t device_flush(struct device *d, uint64_t now)
{
	return submit(d, now, &(struct model_request){ .op = MODEL_FLUSH });
}

uint64_t device_cut(struct device *d, uint64_t now, uint64_t seed,
		    double survive)
{
	assert_int_equal(model_cut(d->model, now), 0);
	return store_cut(&d->store, seed, survive);
}

uint8_t device_byte(const struct device *d, uint64_t sector)
{
	const uint32_t size = d->model->sector;
	uint8_t data[4096];
	uint32_t i;

	store_read(&d->store, data, sector * size, size);
	for (i = 1; i < size; i++)
		assert_int_equal(data[i], data[0]);
	return data[0];
}
