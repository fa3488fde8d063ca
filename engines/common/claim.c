// SPDX-License-Identifier: GPL-2.0-only
/*
 * No job writes over data, or to what is in use: the guard (guard/guard.h) as
 * fio's jobs need it.
 *
 * A job claims its block devices when fio asks for their size, which is before
 * any job runs (with create_serialize=0 in the job, before its files are
 * opened), and looks when it opens one for writing whether it is still the one
 * that was claimed. A replayed log opens files that fio asked no size of; they
 * are claimed then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "guard/guard.h"

/*
 * What the jobs of this fio share. Each engine has a copy of this; the one that
 * is loaded first makes what the others join.
 */
static struct guard shared = { .table = -1, .sockets = { -1, -1 } };

void engine_claims_open(void)
{
	/* A job without block devices does not need it. */
	guard_open(&shared);
}

/* Ends a list that is in @text, at its commas. To be freed. */
static const char **names_in(char *text)
{
	const char **names;
	size_t nr = 1;
	char *s;

	for (s = text; *s; s++)
		nr += *s == ',';
	names = calloc(nr + 1, sizeof(*names));
	if (!names)
		return NULL;
	for (nr = 0; (s = strsep(&text, ",")); )
		if (*s)
			names[nr++] = s;
	return names;
}

int engine_claim(const struct thread_data *td, const struct ioengine_ops *ops,
		 const char *destroy, const char *const *paths, unsigned int nr)
{
	const struct engine_job j = { .engine = ops->name };
	struct guard g = shared;
	char *text = strdup(destroy ? destroy : "");
	const char **names = text ? names_in(text) : NULL;
	int ret = -ENOMEM;

	if (!nr || !names) {
		ret = nr ? -ENOMEM : 0;
	} else if (g.table < 0) {
		engine_error(&j, td, "%s", g.error);
		ret = -EBADF;
	} else {
		ret = guard_claim(&g, paths, nr, names, "destroy=", NULL);
		/* The clones of a job (numjobs=) would all say the same. */
		if (ret && !td->subjob_number)
			engine_error(&j, td, "%s. Nothing was written.",
				     g.error);
	}
	free(names);
	free(text);
	return -ret;
}

static bool may_be_device(const struct fio_file *f)
{
	return f->filetype == FIO_TYPE_BLOCK || f->filetype == FIO_TYPE_CHAR;
}

/* fio makes a file of a device's name that is mistyped, and that is memory. */
static bool is_missing_device(const struct fio_file *f)
{
	return f->filetype == FIO_TYPE_FILE && f->file_name &&
	       !strncmp(f->file_name, "/dev/", 5) &&
	       strncmp(f->file_name, "/dev/shm/", 9) &&
	       access(f->file_name, F_OK);
}

void engine_refused(struct thread_data *td, const char *what)
{
	td_vmsg(td, EINVAL, "refused, for what is said above", what);
}

int engine_claim_files(struct thread_data *td, const struct ioengine_ops *ops,
		       const char *destroy, const struct fio_file *asked)
{
	const struct fio_file *first = NULL;
	unsigned int i, nr = 0;
	const char **paths;
	struct fio_file *f;
	int ret;

	if (!engine_writes(td))
		return 0;
	if (is_missing_device(asked)) {
		const struct engine_job j = { .engine = ops->name };

		if (!td->subjob_number)
			engine_error(&j, td, "%s: there is no such device",
				     asked->file_name);
		engine_refused(td, "guard");
		return EINVAL;
	}
	if (!may_be_device(asked))
		return 0;
	paths = calloc(td->o.nr_files, sizeof(*paths));
	if (!paths)
		return ENOMEM;
	for_each_file(td, f, i) {
		if (!may_be_device(f) || nr == td->o.nr_files)
			continue;
		if (!first)
			first = f;
		paths[nr++] = f->file_name;
	}
	/* All at once, as destroy= may name each of them. */
	ret = asked == first ? engine_claim(td, ops, destroy, paths, nr) : 0;
	free(paths);
	if (ret)
		engine_refused(td, "guard");
	return ret;
}

int engine_get_file_size(struct thread_data *td, struct fio_file *f,
			 const struct ioengine_ops *ops, const char *destroy)
{
	if (engine_claim_files(td, ops, destroy, f))
		return 1;
	return generic_get_file_size(td, f);
}

int engine_check_claim(const struct engine_job *j, struct thread_data *td,
		       int fd, const char *path, bool asked)
{
	struct guard g = shared;
	int ret;

	if (!engine_writes(td))
		return 0;
	ret = guard_check(&g, fd, path);
	if (ret == -ENOENT && !asked) {
		ret = -engine_claim(td, td->io_ops, j->destroy, &path, 1);
		if (ret)
			return -ret;
		ret = guard_check(&g, fd, path);
	}
	if (ret)
		engine_error(j, td, "%s. Nothing was written to it.", g.error);
	return -ret;
}
