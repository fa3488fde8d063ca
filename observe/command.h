/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The command that is observed: starting it, passing signals on to it, and
 * ending as it ended.
 */
#ifndef DURABENCH_COMMAND_H
#define DURABENCH_COMMAND_H

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/types.h>

struct command {
	sigset_t mask;			/* as they were at the start, for it */
	struct sigaction on_child;
	pid_t pid;
	bool ended;
	int status;			/* of wait(2), once it has ended */
	struct rusage usage;		/* likewise */
};

/*
 * Block the signals that are passed on, SIGPIPE, which would end the observer
 * before its results are written, and SIGCHLD. Returns a signalfd(2)
 * descriptor or -errno.
 */
int command_signals(struct command *c);

/*
 * Run @argv; it gets SIGTERM if the observer dies. Returns 0, -errno if it could not be tried, or a positive errno if it could
 * not be executed.
 */
int command_start(struct command *c, char **argv);

/* Act on a signal: notice the command's end, or pass the signal on. */
void command_signal(struct command *c, const struct signalfd_siginfo *si);

/*
 * Be the parent of all that the command leaves behind: what is in a session of
 * its own, as a job of fio's, no signal to the command reaches.
 */
void command_adopt(void);

/* Kill what was adopted, until there is nothing. */
void command_end_rest(void);

/* Exit with the command's status, or die of the signal it died of. */
void command_exit_alike(const struct command *c) __attribute__((noreturn));

#endif
