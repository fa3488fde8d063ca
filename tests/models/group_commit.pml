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
 * KILL=1, KILL=2: so many jobs are killed, each at any step. Without it there
 * is no time limit, so that a lost wake-up is a deadlock; with it, one a job
 * must do.
 * FAIL: one flush fails, or none: pages can't be written back and are lost, or
 * the device refuses the flush.
 *
 * Mistakes that tests/CMakeLists.txt has found by it: BEGUN, READ_EARLY,
 * COUNT_LATE, DONE_EARLY, WAITERS_ONLY, NO_WAKE, SEQ_LATE, SEQ_BEFORE_UNLOCK,
 * NOT_ROBUST, NO_TIME_LIMIT.
 */
#ifndef JOBS
#define JOBS	3
#endif
#ifndef ROUNDS
#define ROUNDS	2
#endif
#define NOBODY	JOBS
#define LEADERS	2

/*
 * The group. Numbers of flushes are counted from the last one done, so that
 * states which differ in the past alone are one. For the same reason there is
 * neither seq nor the count of failed flushes, but whether they have changed
 * since a job took note of them.
 */
byte begun, done;
byte want[JOBS];
byte number[JOBS];		/* of the flush that a job leads */
bool failed[JOBS];
bool changed[JOBS];
byte leader[LEADERS] = NOBODY;	/* who holds each mutex */

/* The kernel's. */
bool asleep[JOBS];		/* in FUTEX_WAIT */
bool killed[JOBS];
mtype = { DIRTY, IN_DEVICE, DURABLE, LOST };
mtype data[JOBS];		/* where the last write of each job is */
bool flushing[LEADERS * JOBS];	/* whose, by which leader's flush */
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
#define FREE(l)	(leader[l] == NOBODY)
#else
#define FREE(l)	(leader[l] == NOBODY || killed[leader[l]])
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
			:: data[i] == DIRTY ->
				data[i] = dirty_go_to;
				if
				:: dirty_go_to == LOST ->
					lost_pages = true;
					failures = true
				:: else
				fi
			:: else
			fi;
			flushing[l * JOBS + i] = (data[i] == IN_DEVICE);
		end_for_all
	}
}

/* It has done so, or not. The call tells also of pages that were lost. */
inline end_flush(well)
{
	d_step {
		for_all_jobs
			if
			:: flushing[l * JOBS + i] && well -> data[i] = DURABLE
			:: else
			fi;
			flushing[l * JOBS + i] = false;
		end_for_all;
		if
		:: well -> error = (reported[me] != lost_pages)
		:: else ->
			failures = true;
			error = true
		fi;
		reported[me] = lost_pages
	}
}

inline count_from_done()
{
	begun = begun - done;
	for_all_jobs
		want[i] = (want[i] > done -> want[i] - done : 0);
		number[i] = (number[i] > done -> number[i] - done : 0);
	end_for_all;
	done = 0
}

inline flush()
{
#ifndef COUNT_LATE
	d_step { begun++; number[me] = begun };
#endif
#ifdef DONE_EARLY
	done = number[me];
#endif
	if
	:: begin_flush(IN_DEVICE)
	:: atomic { may_fail -> may_fail = false; begin_flush(LOST) }
	fi;
#ifdef COUNT_LATE
	d_step { begun++; number[me] = begun };
#endif
	if
	:: end_flush(true)
	:: atomic { may_fail -> may_fail = false; end_flush(false) }
	fi;
	if
	:: error ->
		d_step {
			for_all_jobs
#ifdef WAITERS_ONLY
				failed[i] = failed[i] ||
					(want[i] && want[i] <= number[me]);
#else
				failed[i] = true;
#endif
			end_for_all;
			error = false
		}
	:: else
	fi;
	d_step {
		done = number[me];
		number[me] = 0;
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
	leader[l] = NOBODY;
#else
	leader[l] = NOBODY;
	change_seq();
#endif
#ifndef NO_WAKE
	d_step { for_all_jobs asleep[i] = false; end_for_all }
#endif
}

inline lead()
{
	if
	:: done < want[me] -> flush()
	:: else
	fi;
	unlock_and_wake()
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
	byte round, l;
	bool error, limited;

	{
		do
		:: round < ROUNDS ->
#ifdef READ_EARLY
			want[me] = begun + 1;
#endif
			d_step {
				data[me] = DIRTY;
				flushing[me] = false;
				flushing[JOBS + me] = false;
				round++
			};
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
				:: atomic { FREE(0) -> leader[0] = me; l = 0 };
					lead()
				:: atomic {
						!FREE(0) && FREE(1) ->
						leader[1] = me;
						l = 1
					};
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
 * the first ones stand for any.
 */
active proctype killer()
{
	killed[0] = true;
#if KILL > 1
	killed[1] = true
#endif
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
