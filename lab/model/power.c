// SPDX-License-Identifier: GPL-2.0-only
/* The power of a modelled device; see power.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lab/model/power.h"

uint64_t power_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

void power_sleep(uint64_t ns)
{
	const struct timespec until = {
		.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000,
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
		;
}

int power_begin(struct power *p)
{
	if (p->off)
		return -EIO;
	p->requests++;
	return 0;
}

int power_end(struct power *p, uint64_t done)
{
	if (!--p->requests)
		pthread_cond_broadcast(&p->drained);
	return p->off && done > p->cut ? -EIO : 0;
}

int power_cut(struct power *p, uint64_t seed, double survive, uint64_t *lost)
{
	int ret = -EALREADY;

	pthread_mutex_lock(&p->lock);
	if (!p->off) {
		p->off = true;
		p->cut = power_clock() - p->start;
		ret = model_cut(p->model, p->cut);
		*lost = store_cut(p->store, seed, survive);
	}
	pthread_mutex_unlock(&p->lock);
	return ret;
}

void power_on(struct power *p)
{
	pthread_mutex_lock(&p->lock);
	while (p->requests)
		pthread_cond_wait(&p->drained, &p->lock);
	p->off = false;
	pthread_mutex_unlock(&p->lock);
}

void power_command(struct power *p, const char *line, char *answer,
		   size_t size)
{
	uint64_t at, seed, lost = 0;
	double survive;
	int ret, end = 0;

	if (!strcmp(line, "on\n")) {
		power_on(p);
		snprintf(answer, size, "on\n");
	} else if (sscanf(line, "cut %" SCNu64 " %" SCNu64 " %lf\n%n", &at,
			  &seed, &survive, &end) == 3 && end && !line[end] &&
		   survive >= 0 && survive <= 1) {
		power_sleep(at);
		ret = power_cut(p, seed, survive, &lost);
		if (ret)
			snprintf(answer, size, "error %s\n", strerror(-ret));
		else
			snprintf(answer, size, "off %" PRIu64 "\n", lost);
	} else {
		snprintf(answer, size,
			 "error neither cut TIME SEED SURVIVE nor on\n");
	}
}

struct listener {
	struct power *power;
	int fd;
};

static void *serve(void *data)
{
	struct listener *l = data;
	char line[128], answer[128];
	FILE *in;
	int fd;

	for (;;) {
		fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		in = fd < 0 ? NULL : fdopen(fd, "r");
		if (!in)
			break;
		while (fgets(line, sizeof(line), in)) {
			power_command(l->power, line, answer, sizeof(answer));
			if (send(fd, answer, strlen(answer), MSG_NOSIGNAL) < 0)
				break;
		}
		fclose(in);
	}
	return NULL;
}

int power_listen(struct power *p, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct listener *l;
	pthread_t thread;
	int ret;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	l = malloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->power = p;
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l->fd < 0) {
		ret = -errno;
		goto free;
	}
	unlink(path);
	if (bind(l->fd, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(l->fd, 1)) {
		ret = -errno;
		goto close;
	}
	/* It ends with the process. */
	ret = -pthread_create(&thread, NULL, serve, l);
	if (ret)
		goto close;
	pthread_detach(thread);
	return 0;

close:
	close(l->fd);
free:
	free(l);
	return ret;
}
