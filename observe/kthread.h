/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPU time of the kernel threads that reclaim and write back memory.
 *
 * kswapdN reclaims. Writeback has no threads of its own: it is work of the
 * unbound workqueue `writeback`, done by whatever kworker is free; while a
 * kworker does it, and after it until its next work, the kernel (4.18 and
 * later) shows it as "kworker/u8:2+flush-7:0" or "-flush-7:0" (for a moment
 * "writeback") in /proc/PID/stat. So the time an unbound kworker used between two readings
 * counts as the flusher's if the worker is so named at the second.
 *
 * It is an estimate: what a worker did earlier in the same interval is taken
 * for its last work's, either way round. It is the submission side only:
 * completion, encryption, loop devices and the like run in other workqueues
 * and are not in it, nor is the workqueue's rescuer, which works when no
 * kworker can be made for want of memory.
 */
#ifndef DURABENCH_KTHREAD_H
#define DURABENCH_KTHREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kthread;

struct kthreads {
	int procfd;		/* /proc, or another one in tests */
	uint64_t begin;		/* boot time at the first reading, ticks */
	struct kthread *thread;	/* by pid */
	size_t nr;
	bool has_kswapd, has_flusher;	/* such threads can be seen */
	uint64_t kswapd, flusher;	/* CPU ticks since the first listing */
};

/*
 * Find the threads there are. Those that came since the last time count from
 * their birth. Returns 0 or -errno, -ENOENT where kernel threads can't be
 * listed: in another pid namespace, or without CONFIG_PROC_CHILDREN.
 */
int kthreads_list(struct kthreads *k);

/* Add what the listed threads used since they were last read. */
void kthreads_read(struct kthreads *k);
void kthreads_free(struct kthreads *k);

#endif
