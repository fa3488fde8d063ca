// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads in every order; see interleave.h.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <linux/futex.h>

#include "interleave.h"

#define MAX_THREADS	8
#define MAX_OBJECTS	16
#define MAX_STEPS	4096
#define STACK_SIZE	(64 << 10)

enum state { READY, PAUSED, FUTEX, SEMAPHORE, JOIN, DONE, KILLED };

static struct thread {
	ucontext_t context;
	char *stack;
	void (*run)(void *data);
	void *(*start)(void *data);	/* of pthread_create(), in its place */
	void *data;
	enum state state;
	const void *on;			/* what it waits for */
	bool timed;			/* for a time only */
	int error;			/* why the wait ended; 0: woken */
} threads[MAX_THREADS];

/* A mutex or a semaphore, by its address. */
static struct object {
	const void *address;
	bool robust;
	bool taken_over;		/* and not made consistent */
	struct thread *owner;
	unsigned int value;
} objects[MAX_OBJECTS];

static const struct interleave *how;
static ucontext_t scheduler;
static struct thread *current;		/* NULL: none, but start() or check() */
static unsigned int nr_threads, nr_objects;
static unsigned int preemptions, kills, deaths, signals;

/* The order: what was chosen, of how many, at each place with a choice. */
static struct {
	unsigned char chosen, of;
} choices[MAX_STEPS];
static unsigned int nr_choices, choice;

static struct {
	int thread;
	const char *what;
} steps[MAX_STEPS];
static unsigned int nr_steps;

void interleave_fail(const char *fmt, ...)
{
	va_list args;
	unsigned int i;

	for (i = 0; i < nr_steps; i++)
		printf("%4u  thread %d: %s\n", i, steps[i].thread,
		       steps[i].what);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

static void step(const struct thread *t, const char *what)
{
	if (nr_steps == MAX_STEPS)
		interleave_fail("this does not end");
	steps[nr_steps].thread = t - threads;
	steps[nr_steps++].what = what;
}

static unsigned int choose(unsigned int n)
{
	if (n == 1)
		return 0;
	if (choice == nr_choices) {
		if (nr_choices == MAX_STEPS)
			interleave_fail("too many choices");
		choices[nr_choices].chosen = 0;
		choices[nr_choices++].of = n;
	} else if (choices[choice].of != n) {
		interleave_fail("the same order came out another way");
	}
	return choices[choice++].chosen;
}

/* The next order. Returns false if there is none. */
static bool next_order(void)
{
	while (nr_choices) {
		if (++choices[nr_choices - 1].chosen <
		    choices[nr_choices - 1].of)
			return true;
		nr_choices--;
	}
	return false;
}

/* ---- threads --------------------------------------------------------- */

static void yield(void)
{
	swapcontext(&current->context, &scheduler);
}

void interleave_point(const char *what)
{
	if (!current)
		return;
	yield();
	step(current, what);
}

unsigned int interleave_choose(const char *what, unsigned int n)
{
	unsigned int chosen = choose(n);

	if (current && chosen)
		step(current, what);
	return chosen;
}

void interleave_may_die(void)
{
	if (deaths == how->deaths || !choose(2))
		return;
	deaths++;
	step(current, "dies");
	current->state = KILLED;
	yield();
}

bool interleave_killed(unsigned int nth)
{
	return threads[nth].state == KILLED;
}

static void wait_on(enum state why, const void *on)
{
	current->state = why;
	current->on = on;
	current->error = 0;
	yield();
}

void interleave_pause(const char *what)
{
	wait_on(PAUSED, NULL);
	step(current, what);
}

static void enter(void)
{
	if (current->start)
		current->start(current->data);
	else
		current->run(current->data);
	current->state = DONE;
	yield();
}

static struct thread *new_thread(void *data)
{
	struct thread *t;

	if (nr_threads == MAX_THREADS)
		interleave_fail("too many threads");
	t = &threads[nr_threads++];
	if (!t->stack)
		t->stack = malloc(STACK_SIZE);
	getcontext(&t->context);
	t->context.uc_stack.ss_sp = t->stack;
	t->context.uc_stack.ss_size = STACK_SIZE;
	t->context.uc_link = NULL;
	makecontext(&t->context, enter, 0);
	t->state = READY;
	t->run = NULL;
	t->start = NULL;
	t->data = data;
	return t;
}

void interleave_thread(void (*run)(void *data), void *data)
{
	new_thread(data)->run = run;
}

static struct object *object(const void *address)
{
	unsigned int i;

	for (i = 0; i < nr_objects; i++)
		if (objects[i].address == address)
			return &objects[i];
	if (nr_objects == MAX_OBJECTS)
		interleave_fail("too many mutexes and semaphores");
	objects[nr_objects] = (struct object) { .address = address };
	return &objects[nr_objects++];
}

static bool can_go_on(const struct thread *t)
{
	switch (t->state) {
	case READY:
		return true;
	case SEMAPHORE:
		return object(t->on)->value;
	case JOIN:
		return ((const struct thread *)t->on)->state == DONE;
	default:
		return false;
	}
}

/* End a wait before its time. */
static void end_wait(struct thread *t, int error, const char *what)
{
	step(t, what);
	t->state = READY;
	t->error = error;
}

enum event { GOES_ON, IS_KILLED, GETS_SIGNAL, IS_LATE };

/* What can happen next. The thread that was running goes on, first of all. */
static struct options {
	unsigned int n;
	struct option {
		struct thread *thread;
		enum event event;
	} of[4 * MAX_THREADS];
} options;

static void add_option(struct thread *t, enum event event)
{
	options.of[options.n++] = (struct option) { t, event };
}

static bool is_alive(const struct thread *t)
{
	return t->state != DONE && t->state != KILLED;
}

static void list_options(struct thread *last)
{
	bool more = preemptions < how->preemptions;
	struct thread *t, *end = threads + nr_threads;

	options.n = 0;
	if (last && can_go_on(last))
		add_option(last, GOES_ON);
	else
		more = true;
	for (t = threads; t < end; t++)
		if (more && t != last && can_go_on(t))
			add_option(t, GOES_ON);
	/*
	 * Time passes when nothing else can happen, and once somebody was
	 * killed: without that nobody may need it.
	 */
	for (t = threads; t < end && !options.n && (kills || deaths);
	     t++)
		if (t->state == FUTEX && t->timed)
			add_option(t, IS_LATE);
	for (t = threads; t < end; t++) {
		if (kills < how->kills && is_alive(t))
			add_option(t, IS_KILLED);
		if (signals < how->signals && t->state == FUTEX)
			add_option(t, GETS_SIGNAL);
	}
}

static bool all_have_ended(void)
{
	const struct thread *t;

	for (t = threads; t < threads + nr_threads; t++)
		if (is_alive(t))
			return false;
	return true;
}

/* The thread that goes on, or NULL if all have ended. */
static struct thread *next_thread(struct thread *last)
{
	struct option next;

	while (!all_have_ended()) {
		list_options(last);
		if (!options.n)
			interleave_fail("nothing can go on: a wake-up was lost");
		next = options.of[choose(options.n)];
		switch (next.event) {
		case GOES_ON:
			preemptions += last && next.thread != last &&
				can_go_on(last);
			return next.thread;
		case IS_KILLED:
			kills++;
			step(next.thread, "is killed");
			next.thread->state = KILLED;
			break;
		case GETS_SIGNAL:
			signals++;
			end_wait(next.thread, EINTR, "a signal");
			break;
		case IS_LATE:
			end_wait(next.thread, ETIMEDOUT, "waited too long");
			break;
		}
	}
	return NULL;
}

static void run_order(void)
{
	struct thread *last = NULL, *t;

	nr_threads = nr_steps = choice = preemptions = 0;
	kills = deaths = signals = 0;
	how->start();
	while ((current = next_thread(last))) {
		if (current->state == SEMAPHORE)
			object(current->on)->value--;
		current->state = READY;
		swapcontext(&scheduler, &current->context);
		last = current;
		/* Something has happened, so those who paused look again. */
		for (t = threads; t < threads + nr_threads; t++)
			if (t != last && t->state == PAUSED)
				t->state = READY;
	}
	how->check();
}

void interleave_all(const char *what, const struct interleave *orders)
{
	unsigned long nr = 0;

	how = orders;
	do {
		run_order();
		nr++;
	} while (next_order());
	printf("%s: %lu orders\n", what, nr);
}

/* ---- what stands in for the system ----------------------------------- */

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	const struct timespec *limit;
	struct thread *t;
	int op, value, n = 0;
	uint32_t *word;
	va_list args;

	va_start(args, number);
	word = va_arg(args, uint32_t *);
	op = va_arg(args, int);
	value = va_arg(args, int);
	limit = va_arg(args, const struct timespec *);
	va_end(args);
	if (number != SYS_futex)
		interleave_fail("system call %ld", number);

	if (op == FUTEX_WAKE) {
		interleave_point("futex wake");
		for (t = threads; t < threads + nr_threads && n < value; t++)
			if (t->state == FUTEX && t->on == word) {
				t->state = READY;
				n++;
			}
		return n;
	}
	interleave_point("futex wait");
	errno = EAGAIN;
	if (*word != (uint32_t)value)
		return -1;
	current->timed = limit;
	wait_on(FUTEX, word);
	errno = current->error;
	return errno ? -1 : 0;
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex,
			      const pthread_mutexattr_t *attr);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex,
			      const pthread_mutexattr_t *attr)
{
	struct object *o = object(mutex);
	int robust = PTHREAD_MUTEX_STALLED;

	if (attr)
		pthread_mutexattr_getrobust(attr, &robust);
	*o = (struct object) {
		.address = mutex, .robust = robust == PTHREAD_MUTEX_ROBUST,
	};
	return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	struct object *o;

	interleave_point("trylock");
	o = object(mutex);
	if (o->owner && !(o->robust && o->owner->state == KILLED))
		return EBUSY;
	o->taken_over = o->owner;
	o->owner = current;
	return o->taken_over ? EOWNERDEAD : 0;
}

int __wrap_pthread_mutex_consistent(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_consistent(pthread_mutex_t *mutex)
{
	object(mutex)->taken_over = false;
	return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	int ret = __wrap_pthread_mutex_trylock(mutex);

	/* Of use only where nobody else runs. */
	if (ret == EBUSY)
		interleave_fail("a mutex that is waited for");
	return ret;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	struct object *o;

	interleave_point("unlock");
	o = object(mutex);
	if (o->owner != current || o->taken_over)
		interleave_fail("unlocked by another, or without repair");
	o->owner = NULL;
	return 0;
}

int __wrap_sem_init(sem_t *sem, int shared, unsigned int value);
int __wrap_sem_init(sem_t *sem, int shared, unsigned int value)
{
	*object(sem) = (struct object) { .address = sem, .value = value };
	return 0;
}

int __wrap_sem_destroy(sem_t *sem);
int __wrap_sem_destroy(sem_t *sem)
{
	/* It moves: no pointer to an object is kept while others run. */
	*object(sem) = objects[nr_objects - 1];
	nr_objects--;
	return 0;
}

int __wrap_sem_post(sem_t *sem);
int __wrap_sem_post(sem_t *sem)
{
	struct object *o;

	interleave_point("post");
	o = object(sem);
	o->value++;
	if (how->most_posts && o->value > how->most_posts)
		interleave_fail("posted %u times", o->value);
	return 0;
}

int __wrap_sem_wait(sem_t *sem);
int __wrap_sem_wait(sem_t *sem)
{
	/* The scheduler takes what was posted. */
	wait_on(SEMAPHORE, sem);
	step(current, "wait");
	return 0;
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr,
			  void *(*start)(void *data), void *data);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr,
			  void *(*start)(void *data), void *data)
{
	struct thread *t = new_thread(data);

	t->start = start;
	*id = t - threads;
	return 0;
}

int __wrap_pthread_join(pthread_t id, void **value);
int __wrap_pthread_join(pthread_t id, void **value)
{
	wait_on(JOIN, &threads[id]);
	step(current, "join");
	return 0;
}

int __wrap_pthread_setname_np(pthread_t id, const char *name);
int __wrap_pthread_setname_np(pthread_t id, const char *name)
{
	return 0;
}

/* ---- what the compiler calls for each access to an _Atomic ------------ */

/* One that makes @value of what is there, @old, and of its argument, @v. */
#define FETCH(bits, type, name, what, value)				\
type __tsan_atomic##bits##_##name(type *p, type v, int order);		\
type __tsan_atomic##bits##_##name(type *p, type v, int order)		\
{									\
	type old;							\
									\
	interleave_point(what);						\
	old = *p;							\
	*p = value;							\
	return old;							\
}

#define ATOMICS(bits, type)						\
type __tsan_atomic##bits##_load(type *p, int order);			\
type __tsan_atomic##bits##_load(type *p, int order)			\
{									\
	interleave_point("load");					\
	return *p;							\
}									\
void __tsan_atomic##bits##_store(type *p, type v, int order);		\
void __tsan_atomic##bits##_store(type *p, type v, int order)		\
{									\
	interleave_point("store");					\
	*p = v;								\
}									\
FETCH(bits, type, exchange, "exchange", v)				\
FETCH(bits, type, fetch_add, "add", old + v)				\
FETCH(bits, type, fetch_sub, "subtract", old - v)			\
FETCH(bits, type, fetch_or, "or", old | v)				\
bool __tsan_atomic##bits##_compare_exchange_strong(type *p, type *old,	\
						   type v, int success,	\
						   int failure);	\
bool __tsan_atomic##bits##_compare_exchange_strong(type *p, type *old,	\
						   type v, int success,	\
						   int failure)		\
{									\
	interleave_point("compare and exchange");			\
	if (*p == *old) {						\
		*p = v;							\
		return true;						\
	}								\
	*old = *p;							\
	return false;							\
}									\
bool __tsan_atomic##bits##_compare_exchange_weak(type *p, type *old,	\
						 type v, int success,	\
						 int failure)		\
	__attribute__((alias("__tsan_atomic" #bits			\
			     "_compare_exchange_strong")));		\
/* clang calls this one. */						\
type __tsan_atomic##bits##_compare_exchange_val(type *p, type old,	\
						type v, int success,	\
						int failure);		\
type __tsan_atomic##bits##_compare_exchange_val(type *p, type old,	\
						type v, int success,	\
						int failure)		\
{									\
	__tsan_atomic##bits##_compare_exchange_strong(p, &old, v,	\
						      success, failure); \
	return old;							\
}

ATOMICS(8, uint8_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

/* And for all others, which no thread shares without one of the above. */
#define NOTHING(name, ...)						\
	void __tsan_##name(__VA_ARGS__);				\
	void __tsan_##name(__VA_ARGS__)					\
	{								\
	}

NOTHING(init, void)
NOTHING(func_entry, void *caller)
NOTHING(func_exit, void)
NOTHING(read1, void *p)
NOTHING(read2, void *p)
NOTHING(read4, void *p)
NOTHING(read8, void *p)
NOTHING(read16, void *p)
NOTHING(write1, void *p)
NOTHING(write2, void *p)
NOTHING(write4, void *p)
NOTHING(write8, void *p)
NOTHING(write16, void *p)
NOTHING(unaligned_read4, void *p)
NOTHING(unaligned_read8, void *p)
NOTHING(unaligned_read16, void *p)
NOTHING(unaligned_write4, void *p)
NOTHING(unaligned_write8, void *p)
NOTHING(unaligned_write16, void *p)
NOTHING(read_range, void *p, unsigned long size)
NOTHING(write_range, void *p, unsigned long size)
