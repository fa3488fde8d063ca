/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The protocol between writer and flusher of engines/kick.c, for every order
 * of their steps. A step is one access to what they share.
 *
 * A writer makes WRITES writes of the same size and ends. After any of them it
 * may pause until all is clean, so that nobody helps a flusher that sleeps.
 * Its part of the backlog, in writes, changes as other jobs come and go. The
 * flusher takes and finishes as many ranges at a time as it likes. Proved, by
 * assertions and by the absence of states in which nothing can go on:
 *
 *   - what is written gets clean, and both come to their end,
 *   - a slot of the ring is written again only when its range is done,
 *   - neither semaphore ever counts above one.
 *
 * Mistakes that tests/CMakeLists.txt has found by it: KICK_FIRST, LOOK_FIRST,
 * WAKE_FIRST, NO_EXCHANGE, SMALL_RING.
 */
#ifndef WRITES
#define WRITES	5
#endif
#ifndef BACKLOG
#define BACKLOG	2
#endif
#ifdef SMALL_RING
#define SLOTS	BACKLOG
#else
#define SLOTS	(BACKLOG + 1)
#endif

byte head;			/* ranges queued; the last one ends it */
byte done, wanted;
bool flusher_asleep = true, writer_asleep;
byte flusher_posts, writer_posts;

/* atomic_exchange(&asleep, false) */
inline exchange(asleep, was)
{
	atomic {
		was = asleep;
		asleep = false
	}
}

inline wake(asleep, posts)
{
	if
	:: asleep ->
		exchange(asleep, took);
		if
		:: took ->
			posts++;
			assert(posts <= 1)
		:: else
		fi
	:: else
	fi
}

inline wait_for_wake(posts)
{
	atomic {
		posts > 0;
		posts--
	}
}

inline wait_event(asleep, posts, condition)
{
	do
	::
#ifdef LOOK_FIRST
		look = (condition);
		asleep = true;
#else
		asleep = true;
		look = (condition);
#endif
		took = false;
		if
#ifdef NO_EXCHANGE
		:: look ->
			asleep = false;
			took = true
#else
		:: look -> exchange(asleep, took)
#endif
		:: else
		fi;
		if
		:: took -> break
		:: else
		fi;
		wait_for_wake(posts);
		if
		:: condition -> break
		:: else
		fi
	od
}

inline queue()
{
	/* The slot was that of the range so many before. */
	assert(given < SLOTS || done > given - SLOTS);
	given++;
#ifdef KICK_FIRST
	wake(flusher_asleep, flusher_posts);
	head = given
#else
	head = given;
	wake(flusher_asleep, flusher_posts)
#endif
}

inline wait_for_room()
{
	do
	::
		if
		:: mine = 0		/* less than a write */
		:: mine = BACKLOG
		fi;
		limit = done + mine;
		if
		:: given <= limit -> break
		:: else
		fi;
		wanted = given - mine;
		wait_event(writer_asleep, writer_posts, done >= wanted)
	od
}

active proctype writer()
{
	byte given, limit, mine;
	bool took, look;

	do
	:: given < WRITES ->
		queue();
		if
		:: given > limit -> wait_for_room()
		:: else
		fi;
		if
		:: true			/* the next follows at once */
		:: true -> done == given
		fi
	:: else -> break
	od;
	queue()
}

active proctype flusher()
{
	byte taken, seen;
	bool took, look;

	wait_for_wake(flusher_posts);
	do
	::
		do
		::
			seen = head;
			if
			:: taken < seen -> taken++
			:: taken < seen -> taken = seen
			:: done < taken ->
#ifdef WAKE_FIRST
				if
				:: done >= wanted ->
					wake(writer_asleep, writer_posts)
				:: else
				fi;
				done++
#else
				if
				:: done++
				:: done = taken
				fi;
				if
				:: done >= wanted ->
					wake(writer_asleep, writer_posts)
				:: else
				fi
#endif
			:: taken == seen && done == taken -> break
			fi
		od;
		if
		:: taken == WRITES + 1 -> break
		:: else
		fi;
		wait_event(flusher_asleep, flusher_posts, head != taken)
	od;
	assert(done == head)
}
