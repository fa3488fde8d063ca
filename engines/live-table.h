/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The live table of a device-mapper device, through libdevmapper.
 */
#ifndef DURABENCH_LIVE_TABLE_H
#define DURABENCH_LIVE_TABLE_H

#include "linear-table.h"

/*
 * Fill @t with the live table of the device-mapper device whose path is
 * @t->name. A line number of the table counts its targets from 1, as the lines
 * of `dmsetup table`. Returns 0, or -errno with @t->error set. Needs root.
 */
int live_table_read(struct linear_table *t);

#endif
