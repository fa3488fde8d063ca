// SPDX-License-Identifier: GPL-2.0-only
/*
 * lab/model/config.c and the models that take their parameters from it: a
 * file, NAME=VALUE arguments behind it (each after a zero byte), and then a few
 * requests, whose times must be neither wild nor in the past.
 */
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "lab/model/model.h"

#define HOUR	3600000000000ULL

static void set(struct config *c, char *argument)
{
	char *equals = strchr(argument, '=');

	if (equals) {
		*equals = '\0';
		MUST(!config_set(c, argument, equals + 1) == !c->error[0]);
	}
}

/* Requests as a host may send them: inside of the device, 32 MiB at most. */
static void use(struct model *m, uint64_t random)
{
	const uint64_t most = (32 << 20) / m->sector;
	struct model_request rq;
	uint64_t now = 0, done = 0;
	unsigned int i;

	for (i = 0; i < 24; i++) {
		rq.op = model_random(&random) * 3;
		rq.fua = rq.op == MODEL_WRITE && model_random(&random) < 0.5;
		rq.sector = model_random(&random) * m->capacity;
		rq.nr = 1 + model_random(&random) *
			(i % 8 ? 8 : most - 1);
		if (rq.op == MODEL_FLUSH)
			rq.sector = rq.nr = 0;
		else if (rq.nr > m->capacity - rq.sector)
			rq.nr = m->capacity - rq.sector;
		MUST(!model_submit(m, now, &rq, &done));
		MUST(done >= now && done - now < 1000 * HOUR);
		if (model_random(&random) < 0.7)
			now = done;
		if (model_random(&random) < 0.05)
			MUST(!model_cut(m, now));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int file = -1;
	struct input in = { data, size };
	struct config c = { 0 };
	struct model *m;
	char *text, path[32];

	if (file < 0)
		file = memfd_create("config", MFD_CLOEXEC);
	text = input_text(&in, '\0');
	if (!text)
		return 0;
	MUST(!ftruncate(file, 0));
	MUST(pwrite(file, text, strlen(text), 0) == (ssize_t)strlen(text));
	free(text);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	MUST(!config_read(&c, path) == !c.error[0]);

	while (!c.error[0] && (text = input_text(&in, '\0'))) {
		set(&c, text);
		free(text);
	}
	if (!c.error[0]) {
		m = model_new(&c, size);
		MUST(!m == !!c.error[0]);
		if (m) {
			use(m, size);
			model_free(m);
		}
	}
	MUST(memchr(c.error, '\0', sizeof(c.error)));
	return 0;
}
