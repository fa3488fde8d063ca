/* SPDX-License-Identifier: GPL-2.0-only */
/* A modelled device for the tests: model and data together. */
#ifndef TESTS_MODEL_DEVICE_H
#define TESTS_MODEL_DEVICE_H

#include "lab/model/model.h"
#include "lab/model/store.h"

#define MODELS	PROJECT_SOURCE_DIR "/lab/model/"
#define MS	1000000ULL

struct device {
	struct model *model;
	struct store store;
};

/* The model of a file in lab/model/, with "NAME=VALUE" ..., NULL over it. */
struct model *model_of(const char *file, uint64_t seed, ...)
	__attribute__((sentinel));

/* The same as a device of 1 MiB that can be cut. */
void device_open(struct device *d, struct model *m);
void device_close(struct device *d);

/* Each returns when the request that came at @now is done. */
uint64_t device_write(struct device *d, uint64_t now, uint64_t sector,
		      uint64_t nr, uint8_t byte, bool fua);
uint64_t device_read(struct device *d, uint64_t now, uint64_t sector,
		     uint64_t nr);
uint64_t device_flush(struct device *d, uint64_t now);

/* Cut the power; returns how many sectors have an older version. */
uint64_t device_cut(struct device *d, uint64_t now, uint64_t seed,
		    double survive);

/* What all bytes of the sector are; fails if they differ. */
uint8_t device_byte(const struct device *d, uint64_t sector);

#endif
