// SPDX-License-Identifier: GPL-2.0-only
/*
 * The command that is observed; see command.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"

int command_signals(struct command *c)
{
	const struct sigaction standard = { .sa_handler = SIG_DFL };
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd < 0)
		return -errno;

	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, &c->mask);
	/* ignored, as a parent may leave it, it would hide the command's end */
	sigaction(SIGCHLD, &standard, &c->on_child);
	return fd;
}

static void run(const struct command *c, char **argv, pid_t parent, int errors)
{
	int err;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)	/* it died before that */
		_exit(EXIT_FAILURE);
	sigaction(SIGCHLD, &c->on_child, NULL);
	sigprocmask(SIG_SETMASK, &c->mask, NULL);
	execvp(argv[0], argv);

	err = errno;
	if (write(errors, &err, sizeof(err)) < 0)
		_exit(EXIT_FAILURE);
	_exit(127);
}

int command_start(struct command *c, char **argv)
{
	pid_t parent = getpid();
	int pipes[2], err = 0;

	c->ended = false;
	if (pipe2(pipes, O_CLOEXEC))
		return -errno;
	c->pid = fork();
	if (c->pid < 0) {
		err = -errno;
		close(pipes[0]);
		close(pipes[1]);
		return err;
	}
	if (!c->pid)
		run(c, argv, parent, pipes[1]);

	/* a successful exec closes the pipe */
	close(pipes[1]);
	if (read(pipes[0], &err, sizeof(err)) != sizeof(err))
		err = 0;
	close(pipes[0]);
	if (err)
		waitpid(c->pid, NULL, 0);
	return err;
}

void command_signal(struct command *c, const struct signalfd_siginfo *si)
{
	if (si->ssi_signo == SIGCHLD) {
		if (wait4(c->pid, &c->status, WNOHANG, &c->usage) == c->pid)
			c->ended = true;
		return;
	}

	/* The terminal sends its signals to the whole process group itself. */
	if (si->ssi_code == SI_KERNEL && getpgid(c->pid) == getpgrp())
		return;
	kill(c->pid, si->ssi_signo);
}

void command_adopt(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void command_end_rest(void)
{
	bool left = true;
	FILE *children;
	pid_t pid;

	while (left) {
		left = false;
		children = fopen("/proc/thread-self/children", "re");
		if (!children)
			return;
		while (fscanf(children, "%d", &pid) == 1) {
			kill(pid, SIGKILL);
			left = true;
		}
		fclose(children);
		/* With the end of one come its own, which are to be ended, too. */
		if (left)
			waitpid(-1, NULL, 0);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

void command_exit_alike(const struct command *c)
{
	const struct rlimit no_core = { 0, 0 };
	sigset_t set;
	int sig;

	if (WIFEXITED(c->status))
		exit(WEXITSTATUS(c->status));

	sig = WTERMSIG(c->status);
	setrlimit(RLIMIT_CORE, &no_core);	/* the command had its own */
	signal(sig, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	raise(sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	exit(128 + sig);	/* init outlives a signal */
}
