/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The strategies of fua-dsync that send commands to a drive themselves, by
 * nvme-fua.h or scsi-fua.h: what they have to do with fio.
 */
#ifndef DURABENCH_PASSTHROUGH_H
#define DURABENCH_PASSTHROUGH_H

#include "common/uring.h"
#include "drive.h"

enum passthrough_kind { NOT_PASSTHROUGH, PASSTHROUGH_NVME, PASSTHROUGH_SCSI };

struct passthrough {
	enum passthrough_kind kind;
	struct engine_job *job;
	struct uring *uring;	/* for NVMe commands */
	struct drive drive;
};

/* The ->get_file_size() hook. Needs no ->init() before it. */
int passthrough_get_file_size(enum passthrough_kind kind,
			      const struct ioengine_ops *ops,
			      struct thread_data *td, struct fio_file *f);

/*
 * Look at the drive of the job, and refuse what can't work there. @u is the
 * ring for NVMe commands, which is set up here; of SCSI it is not used.
 * Returns 0 or a positive errno after one message.
 */
int passthrough_init(struct passthrough *p, enum passthrough_kind kind,
		     struct engine_job *j, struct uring *u,
		     struct thread_data *td);

/* The ->queue() hook: SCSI commands complete in it, NVMe reads and writes don't. */
enum fio_q_status passthrough_queue(struct thread_data *td, struct io_u *io_u,
				    struct passthrough *p);

#endif
