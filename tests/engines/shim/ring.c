// SPDX-License-Identifier: GPL-2.0-only
/*
 * An io_uring of plain memory; see shim.h. liburing's inline functions find in
 * struct io_uring what they would find in a ring of the kernel's, and those
 * that would enter the kernel are here. The requests are carried out one by
 * one by system calls, which the rules for faults apply to.
 *
 * It does what io_uring_enter(2) says that a kernel may do, and what one does
 * under load: it completes in any order and late, takes less than is submitted,
 * wants requests to complete before it takes more (EAGAIN, EBUSY), and is
 * interrupted (EINTR). The seed decides when; 0 is a ring that does none of
 * that, the same as an idle machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <liburing.h>

#include "shim.h"

#define ARRAY_SIZE(x)	(sizeof(x) / sizeof((x)[0]))

struct request {
	struct io_uring_sqe sqe;
	uint64_t chain;		/* of requests that are linked */
	bool first;		/* of its chain, of those left */
};

struct ring {
	unsigned int sq_head, sq_tail, sq_flags, sq_dropped;
	unsigned int cq_head, cq_tail, cq_flags, cq_overflow;
	unsigned int sq_entries, cq_entries, cq_mask, sq_mask;
	unsigned int *array;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;

	struct request *requests;	/* submitted, not complete */
	unsigned int nr;
	uint64_t chains;

	int *files;		/* registered */
	unsigned int nr_files;

	uint64_t random;	/* 0: an idle machine */
	bool refusing;		/* until another request completes */
	unsigned int refused_at;	/* cq_tail then */
	unsigned long submitted, refused, reordered;
};

/* Those that are, by their descriptors. */
static struct ring *_Atomic rings[4096];

static struct ring *ring_of(const struct io_uring *r)
{
	return r->sq.ring_ptr;
}

/* Emulated? The kernel's ring has its own memory there. */
static bool emulated(void)
{
	return getenv("DURABENCH_SHIM_RING") != NULL;
}

/* Once in @n, by the seed; never on an idle machine. */
static bool once_in(struct ring *r, unsigned int n)
{
	if (!r->random)
		return false;
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return r->random % n == 0;
}

static unsigned int below(struct ring *r, unsigned int n)
{
	once_in(r, 1);
	return r->random % n;
}

/* ---- requests ------------------------------------------------------------ */

static int fd_of(const struct ring *r, const struct io_uring_sqe *sqe)
{
	if (!(sqe->flags & IOSQE_FIXED_FILE))
		return sqe->fd;
	return (unsigned int)sqe->fd < r->nr_files ? r->files[sqe->fd] : -1;
}

static int transfer(struct ring *r, const struct io_uring_sqe *sqe, bool write,
		    const struct iovec *iov)
{
	const char *name = write ? "IORING_OP_WRITE" : "IORING_OP_READ";
	struct iovec cut = *iov;
	int fd = fd_of(r, sqe);
	ssize_t ret;

	shim_count(name);
	if (shim_fault_fd(write ? "write" : "read", name, fd, &cut.iov_len))
		return -errno;
	ret = write ? pwritev2(fd, &cut, 1, sqe->off, sqe->rw_flags) :
		preadv2(fd, &cut, 1, sqe->off, sqe->rw_flags);
	return ret < 0 ? -errno : ret;
}

static int flush(struct ring *r, const struct io_uring_sqe *sqe)
{
	int fd = fd_of(r, sqe);

	shim_count("IORING_OP_FSYNC");
	if (shim_fault_fd("flush", "IORING_OP_FSYNC", fd, NULL))
		return -errno;
	if (sqe->fsync_flags & IORING_FSYNC_DATASYNC ? fdatasync(fd) :
	    fsync(fd))
		return -errno;
	return 0;
}

/* Carry @sqe out. Sets @failed if that breaks the chain. Returns its result. */
static int carry_out(struct ring *r, const struct io_uring_sqe *sqe,
		     bool *failed)
{
	struct iovec iov = {
		.iov_base = (void *)(uintptr_t)sqe->addr,
		.iov_len = sqe->len,
	};
	int ret;

	switch (sqe->opcode) {
	case IORING_OP_READV:
	case IORING_OP_WRITEV:
		iov = *(struct iovec *)(uintptr_t)sqe->addr;
		/* fall through */
	case IORING_OP_READ:
	case IORING_OP_WRITE:
	case IORING_OP_READ_FIXED:
	case IORING_OP_WRITE_FIXED:
		ret = transfer(r, sqe, sqe->opcode == IORING_OP_WRITEV ||
			       sqe->opcode == IORING_OP_WRITE ||
			       sqe->opcode == IORING_OP_WRITE_FIXED, &iov);
		*failed = ret < 0 || (size_t)ret != iov.iov_len;
		return ret;
	case IORING_OP_NOP:
		*failed = false;
		return 0;
	case IORING_OP_FSYNC:
		ret = flush(r, sqe);
		*failed = ret < 0;
		return ret;
	default:
		*failed = true;
		return -EINVAL;
	}
}

static void post(struct ring *r, uint64_t user_data, int res)
{
	struct io_uring_cqe *cqe = &r->cqes[r->cq_tail & r->cq_mask];

	memset(cqe, 0, sizeof(*cqe));
	cqe->user_data = user_data;
	cqe->res = res;
	/* The engine runs in the same thread. */
	r->cq_tail++;
}

static struct request *next_of(struct ring *r, uint64_t chain)
{
	struct request *q, *next = NULL;

	for (q = r->requests; q < r->requests + r->nr; q++)
		if (q->chain == chain && (!next || q->first))
			next = q;
	return next;
}

/*
 * Complete one request that does not wait for another, and what is linked to
 * it if it fails.
 */
static void complete_one(struct ring *r)
{
	unsigned int i = r->random ? below(r, r->nr) : 0;
	struct io_uring_sqe sqe;
	struct request *q;
	bool failed;
	int res;

	while (!r->requests[i].first)
		i = (i + 1) % r->nr;
	r->reordered += i != 0;
	q = &r->requests[i];
	for (res = carry_out(r, &q->sqe, &failed);; res = -ECANCELED) {
		uint64_t chain = q->chain;

		sqe = q->sqe;
		memmove(q, q + 1, (r->requests + --r->nr - q) * sizeof(*q));
		post(r, sqe.user_data, res);
		if (!(sqe.flags & IOSQE_IO_LINK))
			return;
		q = next_of(r, chain);
		if (!q)
			return;
		if (!failed) {
			q->first = true;
			return;
		}
	}
}

/* ---- the ring ------------------------------------------------------------ */

static unsigned int unreaped(const struct ring *r)
{
	return r->cq_tail - r->cq_head;
}

/* With IORING_SETUP_TASKRUN_FLAG: there may be more if the kernel is entered. */
static void update_flags(struct ring *r)
{
	r->sq_flags = r->nr ? IORING_SQ_TASKRUN : 0;
}

/* Complete what has to be by now, and what happens to be. */
static void work(struct ring *r, unsigned int at_least)
{
	while (r->nr && (unreaped(r) < at_least ||
			 (r->random ? once_in(r, 3) : true)))
		complete_one(r);
	if (unreaped(r) < at_least) {
		/* A kernel would wait for ever. */
		shim_log("ring hangs 1\n");
		abort();
	}
	update_flags(r);
}

static int submit(struct io_uring *ring)
{
	struct ring *r = ring_of(ring);
	unsigned int n = ring->sq.sqe_tail - r->sq_head, taken = 0, limit = n;
	struct io_uring_sqe *sqe;
	bool linked = false;

	r->sq_tail = ring->sq.sqe_tail;
	if (!n)
		return 0;
	if (once_in(r, 16))
		return -EINTR;
	if (!r->refusing && r->nr && once_in(r, 6)) {
		r->refusing = true;
		r->refused_at = r->cq_tail;
	} else if (r->cq_tail != r->refused_at) {
		r->refusing = false;
	}
	if (r->refusing) {
		r->refused++;
		return r->refused % 2 ? -EAGAIN : -EBUSY;
	}
	if (r->nr + unreaped(r) + n > r->cq_entries) {
		shim_log("ring overcommitted 1\n");
		abort();
	}
	if (once_in(r, 4))
		limit = 1 + below(r, n);

	/* What is cut off a chain is not linked any more, as in the kernel. */
	while (taken < limit) {
		sqe = &r->sqes[r->sq_head++ & r->sq_mask];
		if (!linked)
			r->chains++;
		r->requests[r->nr++] = (struct request) {
			.sqe = *sqe, .chain = r->chains, .first = !linked,
		};
		linked = sqe->flags & IOSQE_IO_LINK;
		taken++;
	}
	ring->sq.sqe_head = r->sq_head;
	r->submitted += taken;
	if (once_in(r, 2))
		work(r, 0);
	update_flags(r);
	return taken;
}

int __io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe,
		       unsigned int to_submit, unsigned int wait_nr,
		       sigset_t *signals)
{
	struct ring *r;
	int ret;

	if (!emulated())
		return NEXT(__io_uring_get_cqe)(ring, cqe, to_submit, wait_nr,
						signals);
	r = ring_of(ring);
	*cqe = NULL;
	if (to_submit) {
		ret = submit(ring);
		if (ret < 0)
			return ret;
	}
	if (wait_nr && once_in(r, 8))
		return -EINTR;
	work(r, wait_nr);
	if (!unreaped(r))
		return -EAGAIN;
	*cqe = &r->cqes[r->cq_head & r->cq_mask];
	return 0;
}

int io_uring_submit(struct io_uring *ring)
{
	return emulated() ? submit(ring) : NEXT(io_uring_submit)(ring);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned int wait_nr)
{
	int ret;

	if (!emulated())
		return NEXT(io_uring_submit_and_wait)(ring, wait_nr);
	ret = submit(ring);
	/* The kernel waits only if it took everything. */
	if (ret >= 0 && ring->sq.sqe_tail == ring_of(ring)->sq_head)
		work(ring_of(ring), wait_nr);
	return ret;
}

/* Here only to wait. */
int io_uring_enter(unsigned int fd, unsigned int to_submit,
		   unsigned int min_complete, unsigned int flags,
		   sigset_t *signals)
{
	struct ring *r = fd < ARRAY_SIZE(rings) ? rings[fd] : NULL;

	if (!r)
		return NEXT(io_uring_enter)(fd, to_submit, min_complete, flags,
					    signals);
	if (to_submit)
		abort();
	if (once_in(r, 8))
		return -EINTR;
	work(r, min_complete);
	return 0;
}

int io_uring_get_events(struct io_uring *ring)
{
	if (!emulated())
		return NEXT(io_uring_get_events)(ring);
	work(ring_of(ring), 0);
	return 0;
}

int io_uring_submit_and_get_events(struct io_uring *ring)
{
	return emulated() ? io_uring_submit_and_wait(ring, 0) :
		NEXT(io_uring_submit_and_get_events)(ring);
}

static unsigned int power_of_two(unsigned int n)
{
	return n < 2 ? 1 : 1U << (32 - __builtin_clz(n - 1));
}

static int set_up(unsigned int entries, struct io_uring *ring,
		  struct io_uring_params *p)
{
	struct ring *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->sq_entries = power_of_two(entries);
	r->cq_entries = p->flags & IORING_SETUP_CQSIZE ?
		power_of_two(p->cq_entries) : 2 * r->sq_entries;
	r->sq_mask = r->sq_entries - 1;
	r->cq_mask = r->cq_entries - 1;
	r->array = calloc(r->sq_entries, sizeof(*r->array));
	r->sqes = calloc(r->sq_entries, sizeof(*r->sqes));
	r->cqes = calloc(r->cq_entries, sizeof(*r->cqes));
	r->requests = calloc(r->cq_entries, sizeof(*r->requests));
	if (!r->array || !r->sqes || !r->cqes || !r->requests)
		abort();
	r->random = strtoull(getenv("DURABENCH_SHIM_RING"), NULL, 10) *
		0x9e3779b97f4a7c15;

	*ring = (struct io_uring) {
		.sq = {
			.khead = &r->sq_head, .ktail = &r->sq_tail,
			.kring_mask = &r->sq_mask,
			.kring_entries = &r->sq_entries,
			.kflags = &r->sq_flags, .kdropped = &r->sq_dropped,
			.array = r->array, .sqes = r->sqes, .ring_ptr = r,
			.ring_mask = r->sq_mask,
			.ring_entries = r->sq_entries,
		},
		.cq = {
			.khead = &r->cq_head, .ktail = &r->cq_tail,
			.kring_mask = &r->cq_mask,
			.kring_entries = &r->cq_entries,
			.kflags = &r->cq_flags, .koverflow = &r->cq_overflow,
			.cqes = r->cqes, .ring_mask = r->cq_mask,
			.ring_entries = r->cq_entries,
		},
		.flags = p->flags,
	};
	ring->ring_fd = ring->enter_ring_fd = eventfd(0, EFD_CLOEXEC);
	if (ring->ring_fd < 0 || (size_t)ring->ring_fd >= ARRAY_SIZE(rings))
		abort();
	rings[ring->ring_fd] = r;
	p->sq_entries = r->sq_entries;
	p->cq_entries = r->cq_entries;
	return 0;
}

int io_uring_queue_init_params(unsigned int entries, struct io_uring *ring,
			       struct io_uring_params *p)
{
	if (BY_ENGINE) {
		shim_count("io_uring_queue_init_params");
		if (shim_fault("ring", "io_uring_queue_init_params",
			       shim_job(), NULL))
			return -errno;
	}
	return emulated() ? set_up(entries, ring, p) :
		NEXT(io_uring_queue_init_params)(entries, ring, p);
}

static void drop_files(struct ring *r)
{
	while (r->nr_files)
		if (r->files[--r->nr_files] >= 0)
			close(r->files[r->nr_files]);
	free(r->files);
	r->files = NULL;
}

void io_uring_queue_exit(struct io_uring *ring)
{
	struct ring *r;

	if (BY_ENGINE)
		shim_count("io_uring_queue_exit");
	if (!emulated()) {
		NEXT(io_uring_queue_exit)(ring);
		return;
	}
	r = ring_of(ring);
	shim_log("ring submitted %lu\n", r->submitted);
	shim_log("ring reaped %u\n", r->cq_head);
	shim_log("ring refused %lu\n", r->refused);
	shim_log("ring reordered %lu\n", r->reordered);
	rings[ring->ring_fd] = NULL;
	close(ring->ring_fd);
	drop_files(r);
	free(r->array);
	free(r->sqes);
	free(r->cqes);
	free(r->requests);
	free(r);
}

/* ---- what may be registered ---------------------------------------------- */

int io_uring_register_buffers(struct io_uring *ring, const struct iovec *iov,
			      unsigned int nr)
{
	return emulated() ? 0 : NEXT(io_uring_register_buffers)(ring, iov, nr);
}

int io_uring_unregister_buffers(struct io_uring *ring)
{
	return emulated() ? 0 : NEXT(io_uring_unregister_buffers)(ring);
}

int io_uring_register_files_update(struct io_uring *ring, unsigned int off,
				   const int *files, unsigned int nr)
{
	struct ring *r;
	unsigned int i;

	if (!emulated())
		return NEXT(io_uring_register_files_update)(ring, off, files,
							    nr);
	r = ring_of(ring);
	if (off + nr > r->nr_files)
		return -EINVAL;
	for (i = 0; i < nr; i++) {
		int *file = &r->files[off + i];

		/* The kernel's reference outlives the descriptor. */
		if (*file >= 0)
			close(*file);
		*file = files[i] < 0 ? -1 :
			fcntl(files[i], F_DUPFD_CLOEXEC, 0);
	}
	return nr;
}

int io_uring_register_files_sparse(struct io_uring *ring, unsigned int nr)
{
	struct ring *r;

	if (!emulated())
		return NEXT(io_uring_register_files_sparse)(ring, nr);
	r = ring_of(ring);
	r->files = malloc(nr * sizeof(*r->files));
	if (!r->files)
		abort();
	memset(r->files, 0xff, nr * sizeof(*r->files));
	r->nr_files = nr;
	return 0;
}

int io_uring_register_files(struct io_uring *ring, const int *files,
			    unsigned int nr)
{
	if (!emulated())
		return NEXT(io_uring_register_files)(ring, files, nr);
	io_uring_register_files_sparse(ring, nr);
	return io_uring_register_files_update(ring, 0, files, nr) < 0 ?
		-EINVAL : 0;
}

int io_uring_unregister_files(struct io_uring *ring)
{
	if (!emulated())
		return NEXT(io_uring_unregister_files)(ring);
	drop_files(ring_of(ring));
	return 0;
}

/* Only saves the kernel a look-up. */
int io_uring_register_ring_fd(struct io_uring *ring)
{
	return emulated() ? 1 : NEXT(io_uring_register_ring_fd)(ring);
}
