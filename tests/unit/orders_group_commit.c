// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines/group-commit.c, as it is compiled, in every order of its steps; what
 * tests/models/group_commit.pml says of the protocol is asked of the code.
 *
 * An argument adds so many preemptions to each: more orders, in longer time.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "interleave.h"

#ifndef CODE
#define CODE "engines/group-commit.c"
#endif
#include CODE

#define MAX_JOBS	3

static unsigned int jobs, rounds;
static bool may_fail;

/* Where the last write of a job is. */
enum where { DIRTY, IN_DEVICE, DURABLE, LOST };

static struct job {
	unsigned int number;
	struct group_commit commit;
	unsigned int reported;		/* errseq_t of its descriptor */
} job[MAX_JOBS];

static struct {
	enum where data[MAX_JOBS];
	unsigned int version[MAX_JOBS];	/* of that write */
	unsigned int lost;		/* errseq_t of the page cache */
	bool failed;			/* has any flush? */
	bool will_fail;			/* none has, and one may */
} device;

static bool fails(const char *how)
{
	if (!device.will_fail || !interleave_choose(how, 2))
		return false;
	device.will_fail = false;
	device.failed = true;
	return true;
}

/*
 * fdatasync(2): what is dirty goes to the device, or is lost; then what was
 * there is durable, or the device refuses. It tells also of what was lost by
 * another one.
 */
static int flush(void *data)
{
	struct job *me = data;
	unsigned int version[MAX_JOBS], i;
	bool in_flush[MAX_JOBS], lost;

	interleave_point("flush: write back");
	interleave_may_die();
	lost = fails("pages are lost");
	device.lost += lost;
	for (i = 0; i < jobs; i++) {
		if (device.data[i] == DIRTY)
			device.data[i] = lost ? LOST : IN_DEVICE;
		in_flush[i] = device.data[i] == IN_DEVICE;
		version[i] = device.version[i];
	}

	interleave_point("flush: device");
	if (fails("the flush fails"))
		return EIO;
	for (i = 0; i < jobs; i++)
		if (in_flush[i] && device.version[i] == version[i])
			device.data[i] = DURABLE;
	if (me->reported == device.lost)
		return 0;
	me->reported = device.lost;
	return EIO;
}

static void run_job(void *data)
{
	struct job *me = data;
	unsigned int round;
	int ret;

	for (round = 0; round < rounds; round++) {
		interleave_point("write");
		device.data[me->number] = DIRTY;
		device.version[me->number]++;
		ret = group_commit(&me->commit, flush, me);
		interleave_assert(ret == 0 || ret == EIO);
		interleave_assert(!ret || device.failed);
		interleave_assert(ret ||
				  device.data[me->number] == DURABLE);
		device.data[me->number] = DURABLE;
	}
}

static void start(void)
{
	unsigned int i;

	memset(&groups->group[0], 0, sizeof(groups->group[0]));
	groups->nr = 0;
	memset(&device, 0, sizeof(device));
	device.will_fail = may_fail;
	for (i = 0; i < jobs; i++) {
		device.data[i] = DURABLE;
		job[i] = (struct job) { .number = i };
		interleave_assert(!group_commit_join(&job[i].commit, 1, 0, 0));
		interleave_thread(run_job, &job[i]);
	}
}

static void check(void)
{
	unsigned int i;

	for (i = 0; i < jobs; i++)
		interleave_assert(interleave_killed(i) ||
				  device.data[i] == DURABLE);
}

int main(int argc, char **argv)
{
	struct interleave how = { .start = start, .check = check };
	unsigned int more = argc > 1 ? atoi(argv[1]) : 0;

	jobs = 2;
	rounds = 2;
	may_fail = true;
	how.preemptions = 2 + more;
	interleave_all("2 jobs, 2 syncs each, and a flush that fails", &how);
	jobs = 3;
	rounds = 1;
	may_fail = false;
	how.signals = 1;
	interleave_all("3 jobs, and a signal", &how);
	how.signals = 0;
	how.deaths = 2;
	interleave_all("3 jobs, two of which die in a flush", &how);
	how.deaths = 0;
	how.kills = 1;
	how.preemptions = 1 + more;
	interleave_all("3 jobs, one of which is killed anywhere", &how);
	how.kills = 0;
	/* The longest one, which is not waited for if there is a mistake. */
	how.preemptions = 3 + more;
	interleave_all("3 jobs", &how);
	return 0;
}
