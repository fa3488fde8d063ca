# SPDX-License-Identifier: GPL-2.0-only
"""What the orders_*.c tests are worth: each line of a protocol that matters is
spoilt in a copy of the code, and they must find that."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import BUILD, ROOT

LOST = "nothing can go on: a wake-up was lost"
WRONG = "orders_"  # an assertion, which is named by its file


@dataclass(frozen=True)
class Mistake:
    code: str
    name: str
    finds: str
    changes: tuple[tuple[str, str], ...]  # what stands there once, and what in its place

    def __str__(self) -> str:
        return f"{self.code}-{self.name}"


def mistake(code: str, name: str, finds: str, *changes: tuple[str, str]) -> Mistake:
    return Mistake(code, name, finds, changes)


WAKE = "	pthread_mutex_unlock(leader);\n	wake_all(g);\n"
COUNT = "		number = atomic_fetch_add(&g->begun, 1) + 1;\n"
FLUSH = "		err = flush(data);\n"
TOLD = "			atomic_fetch_add(&g->failures, 1);\n"
DONE = "		set_done(g, number);\n"
SEQ = "		seq = g->seq;\n"
WAIT = "			wait_while(g, seq);\n"
QUEUE = "	f->head = head + 1;\n	return wake(&f->flusher);\n"
ROOM = "	f->done += s->cost;\n	if (f->done >= f->wanted)\n		wake(&f->writer);\n"
POSTS = "	for (i = 0; i < p->nr_threads; i++)\n		sem_post(&p->start);\n	flush_some(p);\n"
BUSY, NEXT = "	p->busy = p->nr_threads;\n", "	p->next = 0;\n"

MISTAKES = [
    mistake("group-commit", "wants-a-flush-that-has-begun", WRONG, ("atomic_fetch_add(&g->begun, 0) + 1", "atomic_fetch_add(&g->begun, 0)")),
    mistake("group-commit", "counts-late", WRONG, (COUNT, ""), (FLUSH, FLUSH + COUNT)),
    mistake("group-commit", "is-done-early", WRONG, (DONE, ""), (FLUSH, DONE + FLUSH)),
    mistake("group-commit", "is-done-before-it-tells", WRONG, (DONE, ""), (FLUSH, FLUSH + DONE)),
    mistake("group-commit", "tells-nobody", WRONG, (TOLD, "")),
    mistake("group-commit", "tells-the-leader-alone", WRONG, ("if (failures == c->told)", "if (failures == c->told || !c->led)")),
    mistake("group-commit", "wakes-nobody", LOST, (WAKE, "	pthread_mutex_unlock(leader);\n	atomic_fetch_add(&g->seq, 1);\n")),
    mistake("group-commit", "wakes-before-it-unlocks", LOST, (WAKE, "	wake_all(g);\n	pthread_mutex_unlock(leader);\n")),
    mistake("group-commit", "does-not-look-again", LOST, (SEQ, ""), (WAIT, WAIT.replace("seq", "g->seq"))),
    mistake("group-commit", "is-not-robust", "this does not end", ("	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);\n", "")),
    mistake("group-commit", "waits-for-ever", LOST, ("seq, &TIME_LIMIT", "seq, NULL")),
    mistake("group-commit", "repairs-nothing", "without repair", ("? pthread_mutex_consistent(mutex) : ret", "? 0 : ret")),
    mistake("kick", "kicks-first", LOST, (QUEUE, "	bool woken = wake(&f->flusher);\n\n	f->head = head + 1;\n	return woken;\n")),
    mistake("kick", "looks-first", LOST, ("		atomic_store(&(sleeper)->asleep, true);			\\\n		if ((condition) &&", "		bool seen = (condition);					\\\n		atomic_store(&(sleeper)->asleep, true);			\\\n		if (seen &&")),
    mistake("kick", "wakes-the-writer-first", LOST, (ROOM, ROOM.split(";\n", 1)[1].replace("f->done >=", "f->done + s->cost >=") + "	f->done += s->cost;\n")),
    mistake("kick", "takes-the-flag-without-asking", "", ("		    atomic_exchange(&(sleeper)->asleep, false))", "		    ((sleeper)->asleep = false, true))")),
    mistake("kick", "posts-without-asking", "posted 2 times", (" || !atomic_exchange(&s->asleep, false)", "")),
    mistake("kick", "has-too-small-a-ring", WRONG, ("size_t slots = 8;", "size_t slots = 2;"), ("k->backlog / MIN_COST + 1", "k->backlog / MIN_COST")),
    mistake("kick", "tells-no-error", WRONG, ("	f->error = err;\n", "")),
    mistake("kick", "keeps-its-share", WRONG, ("		f->share->flushers--;\n	}\n	kick_error", "	}\n	kick_error")),
    mistake("flush-pool", "counts-threads-late", "", (BUSY, ""), (POSTS, POSTS.replace("	flush_some", BUSY + "	flush_some"))),
    mistake("flush-pool", "begins-anew-late", WRONG, (NEXT, ""), (POSTS, POSTS.replace("	flush_some", NEXT + "	flush_some"))),
    mistake("flush-pool", "waits-for-nobody", WRONG, ("	if (p->nr_threads)\n		wait_for(&p->done);\n", "")),
    mistake("flush-pool", "is-done-before-the-last", LOST, ("atomic_fetch_sub(&p->busy, 1) == 1", "atomic_fetch_sub(&p->busy, 1) == 2")),
    mistake("flush-pool", "takes-one-twice", WRONG, ("(i = atomic_fetch_add(&p->next, 1)) < p->nr", "(i = p->next, p->next = i + 1, i) < p->nr")),
    mistake("flush-pool", "does-not-stop", LOST, ("		if (p->stop)\n			return NULL;\n", "")),
]


@pytest.fixture(scope="module")
def commands() -> dict[str, str]:
    """How the build compiles and links the tests of orders, by their names."""
    if not (BUILD / "tests/orders_kick").exists():
        pytest.skip("this build has no tests of orders: it is sanitized, or the compiler has no ThreadSanitizer")
    return {code: (BUILD / f"tests/CMakeFiles/orders_{code}.dir/link.txt").read_text() for code in ("kick", "group_commit", "flush_pool")}


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_found(mistake: Mistake, commands: dict[str, str], tmp_path: Path) -> None:
    text = (ROOT / f"engines/{mistake.code}.c").read_text()
    for old, new in mistake.changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    code = tmp_path / f"{mistake.code}.c"
    code.write_text(text)

    name = "orders_" + mistake.code.replace("-", "_")
    words = commands[name.removeprefix("orders_")].split()
    wraps = [word for word in words if word.startswith("-Wl,--wrap=")]
    (scheduler,) = [BUILD / "tests" / word for word in words if word.endswith("interleave.c.o")]
    compiler = [words[0], "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-w", f"-I{ROOT}", f"-I{ROOT}/engines", f"-I{ROOT}/tests/unit", f'-DCODE="{code}"']
    built = [tmp_path / f"{name}.o", tmp_path / name]
    subprocess.run([*compiler, "-fsanitize=thread", "-c", f"{ROOT}/tests/unit/{name}.c", "-o", built[0]], check=True)
    subprocess.run([words[0], *wraps, built[0], scheduler, "-o", built[1]], check=True)
    done = subprocess.run(["timeout", "300", built[1]], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert mistake.finds in done.stdout.splitlines()[-1]
