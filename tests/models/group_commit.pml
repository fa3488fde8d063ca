/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The protocol of engines/group-commit.c, for every order of its steps.
 *
 * JOBS jobs write and sync ROUNDS times each. A step is one access to what
 * they share, or one system call. Proved, by assertions and by the absence of
 * states in which nothing can go on:
 *
 *   - a sync that reports success has made durable what the job wrote,
 *   - a write that was lost is reported to its job by the next sync, and
 *     nothing is reported if no flush ever failed,
 *   - every job that is not killed comes to its end.
 *
 * KILL: one job is killed at any step, or none. Without it there is no time
 * limit, so that a lost wake-up is a deadlock; with it, one a job must do.
 * FAIL: one flush fails, or none: pages can't be written back and are lost, or
 * the device refuses the flush.
 *
 * Mistakes that tests/CMakeLists.txt has found by it: BEGUN, READ_EARLY,
 * COUNT_LATE, DONE_EARLY, WAITERS_ONLY, NO_WAKE, SILENT_LOOK, SEQ_LATE,
 * SEQ_BEFORE_UNLOCK, NOT_ROBUST, NO_TIME_LIMIT.
 */
#ifndef JOBS
#define JOBS	3
#endif
#ifndef ROUNDS
#define ROUNDS	2
#endif
#define NOBODY	JOBS

/*
 * The group. Numbers of flushes are counted from the last one done, so that
 * states which differ in the past alone are one. For the same reason there is
 * neither seq nor the number of the last failed flush, but whether they have
 * changed since a job took note of them.
 */
byte begun, done;
byte want[JOBS];
bool failed[JOBS];
bool changed[JOBS];
byte leader = NOBODY;		/* who holds the mutex */

/* The kernel's. */
bool asleep[JOBS];		/* in FUTEX_WAIT */
bool killed[JOBS];
mtype = { DIRTY, IN_DEVICE, FLUSHING, DURABLE, LOST };
mtype data[JOBS];		/* where the last write of each job is */
bool lost_pages;		/* errseq_t of the page cache, */
bool reported[JOBS];		/* and how much of it each descriptor told */

bool failures;			/* has any flush failed? */
byte i;				/* inside of steps only */

#ifdef FAIL
bool may_fail = true;
#else
bool may_fail;
#endif
#if defined(KILL) && !defined(NO_TIME_LIMIT)
#define TIME_LIMIT	(timeout && !limited)	/* late, and once */
#else
#define TIME_LIMIT	false
#endif
#ifdef NOT_ROBUST
#define FREE	(leader == NOBODY)
#else
#define FREE	(leader == NOBODY || killed[leader])
#endif

#define for_all_jobs	i = 0; do :: i < JOBS ->
#define end_for_all	i++ :: else -> break od; i = 0

/*
 * The leader's fdatasync(2), in two steps. Dirty pages go to the device, or
 * are lost, and it begins to make durable what it has.
 */
inline begin_flush(dirty_go_to)
{
	d_step {
		for_all_jobs
			if
			:: data[i] == DIRTY && dirty_go_to == LOST ->
				data[i] = LOST;
				may_fail = false;
				lost_pages = true;
				failures = true
			:: data[i] == DIRTY && dirty_go_to != LOST ->
				data[i] = FLUSHING
			:: data[i] == IN_DEVICE -> data[i] = FLUSHING
			:: else
			fi;
		end_for_all
	}
}

/* It has done so, or not. The call tells also of pages that were lost. */
inline end_flush(to)
{
	d_step {
		for_all_jobs
			if
			:: data[i] == FLUSHING -> data[i] = to
			:: else
			fi;
		end_for_all;
		if
		:: to == IN_DEVICE ->
			may_fail = false;
			failures = true;
			error = true
		:: else ->
			error = (reported[me] != lost_pages)
		fi;
		reported[me] = lost_pages
	}
}

inline count_from_done()
{
	begun = begun - done;
	for_all_jobs
		want[i] = (want[i] > done -> want[i] - done : 0);
		end_for_all;
	done = 0
}

inline flush()
{
#ifndef COUNT_LATE
	d_step { begun++; number = begun };
#endif
#ifdef DONE_EARLY
	done = number;
#endif
	if
	:: begin_flush(FLUSHING)
	:: may_fail -> begin_flush(LOST)
	fi;
#ifdef COUNT_LATE
	d_step { begun++; number = begun };
#endif
	if
	:: end_flush(DURABLE)
	:: may_fail -> end_flush(IN_DEVICE)
	fi;
	if
	:: error ->
		d_step {
			for_all_jobs
#ifdef WAITERS_ONLY
				failed[i] = failed[i] ||
					(want[i] && want[i] <= number);
#else
				failed[i] = true;
#endif
			end_for_all;
			error = false
		}
	:: else
	fi;
	d_step {
		done = number;
		number = 0;
		count_from_done()
	}
}

inline change_seq()
{
	d_step { for_all_jobs changed[i] = true; end_for_all }
}

inline unlock_and_wake()
{
#ifdef SEQ_BEFORE_UNLOCK
	change_seq();
	leader = NOBODY;
#else
	leader = NOBODY;
	change_seq();
#endif
#ifndef NO_WAKE
	d_step { for_all_jobs asleep[i] = false; end_for_all }
#endif
}

inline lead()
{
	if
	:: done < want[me] ->
		flush();
		unlock_and_wake()
	:: else ->
#ifdef SILENT_LOOK
		leader = NOBODY
#else
		unlock_and_wake()
#endif
	fi
}

inline wait()
{
	if
	:: atomic { !changed[me] -> asleep[me] = true };
		if
		:: !asleep[me]
		:: TIME_LIMIT ->
			d_step { asleep[me] = false; limited = true }
		fi
	:: changed[me]
	fi
}

proctype job(byte me)
{
	byte round, number;
	bool error, limited;

	{
		do
		:: round < ROUNDS ->
#ifdef READ_EARLY
			want[me] = begun + 1;
#endif
			d_step { data[me] = DIRTY; round++ };
#ifndef READ_EARLY
#ifdef BEGUN
			want[me] = begun;
#else
			want[me] = begun + 1;
#endif
#endif
			do
			::
#ifndef SEQ_LATE
				changed[me] = false;
#endif
				if
				:: done >= want[me] -> break
				:: else
				fi;
				if
				:: atomic { FREE -> leader = me };
					lead()
				:: else ->
#ifdef SEQ_LATE
					changed[me] = false;
#endif
					wait()
				fi
			od;

			atomic {
				if
				:: failed[me] -> assert(failures)
				:: else -> assert(data[me] == DURABLE)
				fi;
				failed[me] = false;
				data[me] = DURABLE;
				changed[me] = true;
				want[me] = 0
			}
		:: else -> break
		od
	} unless {
		killed[me]
	}
}

#ifdef KILL
/*
 * At any time, and after its end it matters no more. Jobs differ in nothing, so
 * the first stands for all.
 */
active proctype killer()
{
	killed[0] = true
}
#endif

init {
	byte n;

	atomic {
		do
		:: n < JOBS -> data[n] = DURABLE; run job(n); n++
		:: else -> break
		od
	}
}
