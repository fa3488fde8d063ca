// SPDX-License-Identifier: GPL-2.0-only
/*
 * A fio engine that is another one, watched: each block that is written gets a
 * stamp when it is queued, and is acknowledged in the instant in which the
 * engine reports it, or a sync after it, to be done. So engines are judged by
 * what they tell fio, as they are.
 *
 * Around a power cut the jobs wait, at the gate, before their next request,
 * once all of theirs have ended. What fails for want of power (EIO, and EROFS
 * of ext4 after it) is no error for fio, which goes on afterwards.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fio.h"

#include "lab/powercut/witness.h"

static struct witness *witness;
/* The engine's own hooks. */
static struct ioengine_ops own;

/* A job's writes since its last sync, of which only the stamps are kept. */
static __thread struct {
	struct stamp *written;
	size_t nr, room;
	unsigned int in_flight;
} job;

static uint32_t block_of(const struct io_u *io_u)
{
	const char *name = strrchr(io_u->file->file_name, '/');
	uint32_t nr = io_u->offset / WITNESS_BLOCK;

	/* Files are named by their number. */
	if (io_u->file->filetype == FIO_TYPE_FILE && name)
		nr += atoi(name + 1) * witness->blocks_per_file;
	return nr;
}

/* The data of @io_u is done, for what the strategy promises of a write. */
static void written(const struct io_u *io_u)
{
	struct stamp *more;

	if (witness->promise == PROMISE_WRITE) {
		witness_acknowledge(witness, io_u->xfer_buf);
		return;
	}
	if (job.nr == job.room) {
		more = realloc(job.written,
			       (2 * job.room + 64) * sizeof(*more));
		/* It is not acknowledged then. */
		if (!more)
			return;
		job.written = more;
		job.room = 2 * job.room + 64;
	}
	memcpy(&job.written[job.nr++], io_u->xfer_buf, sizeof(*more));
}

/* A sync has ended that began when the first @nr were written. */
static void synced(const struct io_u *io_u, size_t nr)
{
	size_t i;

	for (i = 0; !io_u->error && i < nr; i++)
		witness_acknowledge(witness, &job.written[i]);
	job.nr -= nr;
	memmove(job.written, job.written + nr, job.nr * sizeof(*job.written));
}

/* A transfer has ended: take its result, and hide what the cut did. */
static void ended(struct io_u *io_u)
{
	if (io_u->ddir == DDIR_WRITE && !io_u->error && !io_u->resid)
		written(io_u);
	if (io_u->error == EIO || io_u->error == EROFS) {
		witness->errors++;
		io_u->error = 0;
		io_u->resid = 0;
		/* Leave the CPU to who closes the gate. */
		usleep(1000);
	}
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

/* Wait while it is closed. Returns false where others have to end first. */
static bool pass_gate(const struct io_u *io_u)
{
	uint32_t told = GATE_OPEN, gate;

	while ((gate = witness->gate)) {
		if (gate == GATE_EXIT)
			_exit(0);
		if (job.in_flight)
			return !ddir_rw(io_u->ddir);
		if (told != gate) {
			atomic_fetch_add(&witness->waiting, 1);
			futex(&witness->waiting, FUTEX_WAKE, 1);
			told = gate;
		}
		futex(&witness->gate, FUTEX_WAIT, gate);
	}
	return true;
}

static enum fio_q_status watched_queue(struct thread_data *td,
				       struct io_u *io_u)
{
	const size_t before = job.nr;
	enum fio_q_status ret;

	if (!pass_gate(io_u))
		return FIO_Q_BUSY;
	if (io_u->ddir == DDIR_WRITE)
		witness_start(witness, block_of(io_u), io_u->xfer_buf);
	ret = own.queue(td, io_u);
	if (ret == FIO_Q_QUEUED)
		job.in_flight++;
	if (ret != FIO_Q_COMPLETED)
		return ret;
	if (ddir_sync(io_u->ddir))
		synced(io_u, before);
	ended(io_u);
	return ret;
}

static int watched_getevents(struct thread_data *td, unsigned int min,
			     unsigned int max, const struct timespec *t)
{
	int events = own.getevents(td, min, max, t), i;

	for (i = 0; i < events; i++)
		ended(own.event(td, i));
	if (events > 0)
		job.in_flight -= events;
	return events;
}

static struct witness *open_witness(void)
{
	const char *path = getenv(WITNESS_FILE);
	const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *map = MAP_FAILED;
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st))
		map = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return map == MAP_FAILED ? NULL : map;
}

__attribute__((visibility("default")))
void get_ioengine(struct ioengine_ops **ops);
void get_ioengine(struct ioengine_ops **ops)
{
	const char *path = getenv(WITNESS_ENGINE);
	void (*engine)(struct ioengine_ops **ops) = NULL;
	void *library = path ? dlopen(path, RTLD_LAZY) : NULL;

	*ops = NULL;
	witness = open_witness();
	if (library)
		engine = (void (*)(struct ioengine_ops **))
			dlsym(library, "get_ioengine");
	if (!witness || !engine) {
		log_err("witness: no memory in %s, or no engine in %s: %s\n",
			WITNESS_FILE, WITNESS_ENGINE, library ? "" : dlerror());
		return;
	}
	engine(ops);
	/* In place: the engine looks whether fio has its own structure. */
	if (*ops && (*ops)->queue != watched_queue) {
		own = **ops;
		(*ops)->queue = watched_queue;
		if (own.getevents)
			(*ops)->getevents = watched_getevents;
	}
}
