// SPDX-License-Identifier: GPL-2.0-only
/*
 * durabench-powercut: in a guest of the lab, have fio write to a modelled
 * device, cut its power at seeded moments, and compare what it has then with
 * what was promised.
 *
 * A cut needs no reboot: the device forgets and is switched on again. Around it
 * fio's jobs wait at the gate, so that all acknowledgements that the engine got
 * are written down before anyone looks: they were of requests that had been
 * done by then.
 *
 * On a device fio goes on after each cut. A file system does not outlive one:
 * there fio is killed, the file system is shut down, unmounted and, with the
 * power on, mounted again, which recovers its log; and the files are new for
 * each cut, so that their blocks have to be allocated durably, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engines/linear-table.h"
#include "lab/model/model.h"
#include "lab/powercut/witness.h"
#include "util/json.h"

#define MAX_DEVICES	4
#define SHARED		"/dev/shm/durabench-powercut"
#define PATIENCE	60		/* s until something must have happened */
/* XFS_IOC_GOINGDOWN and EXT4_IOC_SHUTDOWN, and the flag that loses the log. */
#define SHUTDOWN	_IOR('X', 125, uint32_t)
#define NOLOGFLUSH	2

struct cutter {
	/* what is asked for */
	const char *power[MAX_DEVICES], *image[MAX_DEVICES];
	unsigned int nr_power, nr_images;
	const char *table;	/* where each block is found after a cut */
	const char *device, *directory, *filesystem;	/* NULL: no files */
	uint64_t cuts, seed, jobs, blocks;
	uint64_t least, most;	/* us from switching on to the cut */
	enum promise promise;
	char **fio;

	struct witness *w;
	int sockets[MAX_DEVICES];
	pid_t pid;		/* fio's */
	uint32_t closings;	/* of the gate */
	/* what came of it */
	uint64_t done, dropped, lost, foreign;
	uint64_t first[3];	/* loss: cut, block, promised */
	uint64_t found;		/* there */
};

static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *fmt, ...)
{
	va_list ap;

	fputs("durabench-powercut: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value,
		  const struct timespec *limit)
{
	return syscall(SYS_futex, word, op, value, limit, NULL, 0);
}

/* ---- power ------------------------------------------------------------ */

static int connect_to(const char *path)
{
	const struct timeval limit = { .tv_sec = PATIENCE };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		die("%s: %s", path, strerror(ENAMETOOLONG));
	strcpy(address.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		die("%s: %s", path, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

/* Say the same to all devices, and add the numbers of their answers up. */
static uint64_t say(struct cutter *c, const char *line, const char *answer)
{
	uint64_t number, sum = 0;
	char buf[128];
	unsigned int i;
	ssize_t len;

	for (i = 0; i < c->nr_power; i++)
		if (send(c->sockets[i], line, strlen(line), MSG_NOSIGNAL) < 0)
			die("%s: %s", c->power[i], strerror(errno));
	for (i = 0; i < c->nr_power; i++) {
		len = recv(c->sockets[i], buf, sizeof(buf) - 1, 0);
		if (len <= 0)
			die("%s: no answer to %s", c->power[i], line);
		buf[len] = '\0';
		if (strncmp(buf, answer, strlen(answer)))
			die("%s: %s%s", c->power[i], line, buf);
		if (sscanf(buf + strlen(answer), "%" SCNu64, &number) == 1)
			sum += number;
	}
	return sum;
}

/* ---- fio -------------------------------------------------------------- */

/* By another number each time: a job may not have noticed that it was open. */
static void close_gate(struct cutter *c)
{
	c->w->gate = GATE_CLOSED + ++c->closings;
}

static void start_fio(struct cutter *c)
{
	c->w->waiting = 0;
	close_gate(c);
	c->pid = fork();
	if (c->pid < 0)
		die("fork: %s", strerror(errno));
	if (!c->pid) {
		/* What fails is told on stderr. */
		if (!freopen("/dev/null", "w", stdout))
			_exit(127);
		execvp(c->fio[0], c->fio);
		_exit(127);
	}
}

/* Until all jobs wait at the gate. */
static void await_jobs(struct cutter *c)
{
	const uint64_t until = now_ns() + PATIENCE * 1000000000ULL;
	const struct timespec step = { .tv_nsec = 20000000 };
	uint32_t waiting;
	int status;

	while ((waiting = c->w->waiting) < c->jobs) {
		if (waitpid(c->pid, &status, WNOHANG) == c->pid)
			die("fio ended with status %d", status);
		if (now_ns() > until)
			die("%u of fio's %" PRIu64 " jobs are at the gate",
			    waiting, c->jobs);
		futex(&c->w->waiting, FUTEX_WAIT, waiting, &step);
	}
}

/* Its jobs wait at the gate, in sessions of their own. */
static void kill_fio(struct cutter *c)
{
	c->w->gate = GATE_EXIT;
	futex(&c->w->gate, FUTEX_WAKE, INT32_MAX, NULL);
	kill(c->pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

/* ---- what is left ----------------------------------------------------- */

static void judge(struct cutter *c, uint32_t nr, const void *data)
{
	const uint64_t promised = c->w->block[nr].acknowledged;
	enum finding found;
	uint64_t oldest;

	found = witness_check(c->w, nr, data, &oldest);
	if (found == FOUND_ALL)
		return;
	if (!c->lost && !c->foreign) {
		c->first[0] = c->done + 1;
		c->first[1] = nr;
		c->first[2] = promised;
		c->found = oldest;
	}
	if (found == FOUND_FOREIGN)
		c->foreign++;
	else
		c->lost++;
}

static void read_all(int fd, void *to, size_t len, off_t from)
{
	ssize_t ret;

	for (; len; len -= ret, from += ret) {
		ret = pread(fd, to, len, from);
		if (ret <= 0)
			die("reading what is left: %s",
			    ret ? strerror(errno) : "it is too short");
		to = (char *)to + ret;
	}
}

static void look(struct cutter *c)
{
	struct linear_table t = { .name = c->table };
	const struct linear_target *target;
	static char data[WITNESS_BLOCK];
	FILE *in = fopen(c->table, "re");
	uint64_t pos;

	if (!in)
		die("%s: %s", c->table, strerror(errno));
	if (linear_table_read(&t, in) || linear_table_open(&t, O_RDONLY))
		die("%s", t.error);
	fclose(in);
	if (t.size < c->blocks * WITNESS_BLOCK)
		die("%s has less than %" PRIu64 " blocks", c->table, c->blocks);
	target = t.targets;
	for (pos = 0; pos < c->blocks * WITNESS_BLOCK; pos += sizeof(data)) {
		if (pos >= target->start + target->length)
			target++;
		read_all(t.devices[target->device].fd, data, sizeof(data),
			 pos - target->start + target->offset);
		judge(c, pos / WITNESS_BLOCK, data);
	}
	linear_table_free(&t);
}

/* ---- before and after -------------------------------------------------- */

static void open_witness(struct cutter *c)
{
	const size_t size = witness_size(c->blocks);
	const int fd = open(SHARED, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
			    0600);

	if (fd < 0 || ftruncate(fd, size))
		die("%s: %s", SHARED, strerror(errno));
	c->w = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (c->w == MAP_FAILED)
		die("%s: %s", SHARED, strerror(errno));
	close(fd);
	c->w->blocks = c->blocks;
	c->w->blocks_per_file = c->blocks / c->jobs;
	c->w->promise = c->promise;
	setenv(WITNESS_FILE, SHARED, 1);
}

/* The device that no one has open is as new. */
static void empty(const char *image)
{
	const int fd = open(image, O_RDWR | O_CLOEXEC);
	const off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);

	if (size < 0 || fallocate(fd, FALLOC_FL_PUNCH_HOLE |
				  FALLOC_FL_KEEP_SIZE, 0, size))
		die("%s: %s", image, strerror(errno));
	close(fd);
}

static void new_files(struct cutter *c)
{
	const off_t size = (off_t)c->w->blocks_per_file * WITNESS_BLOCK;
	char path[256];
	unsigned int i;
	int fd = -1;

	for (i = 0; i < c->jobs; i++) {
		snprintf(path, sizeof(path), "%s/%u", c->directory, i);
		unlink(path);
		if (fd >= 0)
			close(fd);
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || fallocate(fd, 0, 0, size))
			die("%s: %s", path, strerror(errno));
	}
	if (syncfs(fd))
		die("%s: %s", c->directory, strerror(errno));
	close(fd);
	memset(c->w->block, 0, c->blocks * sizeof(c->w->block[0]));
	c->w->run++;
}

/* Nothing more gets to the device from a file system without power. */
static void unmount_dead(struct cutter *c)
{
	uint32_t how = NOLOGFLUSH;
	const int fd = open(c->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* It may have found out by itself. */
	if ((fd < 0 || ioctl(fd, SHUTDOWN, &how)) && errno != EIO)
		die("%s: %s", c->directory, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (umount(c->directory))
		die("umount of %s: %s", c->directory, strerror(errno));
}

/* ---- a cut -------------------------------------------------------------- */

static void cut(struct cutter *c)
{
	const uint64_t seed = c->seed + c->done;
	uint64_t random = seed;
	double after = model_random(&random), survive = model_random(&random);
	char line[128];

	/* Every other time all is lost that can be. */
	if (c->done % 2)
		survive = 0;
	if (c->directory) {
		new_files(c);
		start_fio(c);
	}
	await_jobs(c);
	c->w->waiting = 0;
	c->w->gate = GATE_OPEN;
	futex(&c->w->gate, FUTEX_WAKE, INT32_MAX, NULL);
	snprintf(line, sizeof(line), "cut %" PRIu64 " %" PRIu64 " %.6f\n",
		 now_ns() + 1000 * (c->least +
				    (uint64_t)((c->most - c->least) * after)),
		 seed, survive);
	c->dropped += say(c, line, "off ");
	close_gate(c);
	await_jobs(c);
	if (c->directory) {
		kill_fio(c);
		unmount_dead(c);
	} else {
		look(c);
	}
	c->w->generation++;
	say(c, "on\n", "on");
	if (c->directory) {
		if (mount(c->device, c->directory, c->filesystem, 0, NULL))
			die("mount of %s: %s", c->directory, strerror(errno));
		look(c);
	}
	c->done++;
}

static void report(struct cutter *c)
{
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{ "cuts", c->done },
		{ "acknowledged", c->w->acknowledged },
		{ "lost", c->lost },
		{ "foreign", c->foreign },
		{ "dropped_sectors", c->dropped },
		{ "errors", c->w->errors },
	};
	static const char *const first[] = { "cut", "block", "promised" };
	struct json j = { .out = stdout };
	size_t i;

	json_open(&j, '{');
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		json_key(&j, numbers[i].name);
		json_uint(&j, numbers[i].value);
	}
	json_key(&j, "first");
	if (c->lost || c->foreign) {
		json_open(&j, '{');
		for (i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
			json_key(&j, first[i]);
			json_uint(&j, c->first[i]);
		}
		json_key(&j, "found");
		json_uint(&j, c->found);
		json_close(&j, '}');
	} else {
		json_null(&j);
	}
	json_close(&j, '}');
	putchar('\n');
	if (fflush(stdout))
		die("%s", strerror(errno));
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end)
		die("%s is no number", text);
	return value;
}

static void add(const char **list, unsigned int *nr, const char *path)
{
	if (*nr == MAX_DEVICES)
		die("%s: too many devices", path);
	list[(*nr)++] = path;
}

static const struct option options[] = {
	{ "power", required_argument, NULL, 'p' },
	{ "image", required_argument, NULL, 'i' },
	{ "table", required_argument, NULL, 't' },
	{ "device", required_argument, NULL, 'd' },
	{ "directory", required_argument, NULL, 'x' },
	{ "filesystem", required_argument, NULL, 'f' },
	{ "cuts", required_argument, NULL, 'n' },
	{ "seed", required_argument, NULL, 's' },
	{ "jobs", required_argument, NULL, 'j' },
	{ "blocks", required_argument, NULL, 'b' },
	{ "least", required_argument, NULL, 'l' },
	{ "most", required_argument, NULL, 'm' },
	{ "promise", required_argument, NULL, 'r' },
	{ }
};

static void parse(struct cutter *c, int argc, char *argv[])
{
	int option;

	while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		switch (option) {
		case 'p': add(c->power, &c->nr_power, optarg); break;
		case 'i': add(c->image, &c->nr_images, optarg); break;
		case 't': c->table = optarg; break;
		case 'd': c->device = optarg; break;
		case 'x': c->directory = optarg; break;
		case 'f': c->filesystem = optarg; break;
		case 'n': c->cuts = number(optarg); break;
		case 's': c->seed = number(optarg); break;
		case 'j': c->jobs = number(optarg); break;
		case 'b': c->blocks = number(optarg); break;
		case 'l': c->least = number(optarg); break;
		case 'm': c->most = number(optarg); break;
		case 'r':
			c->promise = strcmp(optarg, "sync") ? PROMISE_WRITE :
							      PROMISE_SYNC;
			break;
		default:
			exit(64);
		}
	}
	c->fio = argv + optind;
	if (!c->nr_power || !c->table || !c->jobs || c->blocks < c->jobs ||
	    c->least > c->most || !*c->fio || !c->device != !c->directory || !c->device != !c->filesystem)
		die("--power SOCKET... --table FILE --jobs N --blocks N [--image FILE]... [--device DEVICE --directory DIR --filesystem TYPE] [--cuts N] [--seed N] [--least US] [--most US] [--promise write|sync] -- fio...");
}

int main(int argc, char *argv[])
{
	struct cutter c = { .least = 1000, .most = 20000 };
	unsigned int i;

	parse(&c, argc, argv);
	/* The jobs of a fio that was killed are to be waited for. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		die("prctl: %s", strerror(errno));
	open_witness(&c);
	for (i = 0; i < c.nr_power; i++)
		c.sockets[i] = connect_to(c.power[i]);
	for (i = 0; i < c.nr_images; i++)
		empty(c.image[i]);
	if (!c.directory)
		start_fio(&c);
	while (c.done < c.cuts)
		cut(&c);
	if (!c.directory)
		kill_fio(&c);
	report(&c);
	unlink(SHARED);
	return 0;
}
