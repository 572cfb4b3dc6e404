"""Audits beside a running agent: nothing is reported that only a write in flight made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.audit import audit
from tests.builders import MemoryBuilder, RawHistory, RawPoints

Build = Callable[..., MemoryBuilder]
ROOT = Path(__file__).parents[2]

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(store: MemoryBuilder) -> Iterator[None]:
    """Another process holds Qdrant's lock, as an agent does."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.vectors / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"held\n"
        yield
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def codes(store: MemoryBuilder, meanwhile: Callable[[], object]) -> tuple[list[str], list[str], int]:
    """Codes and incidents of an audit during whose wait `meanwhile` happens, and how often it waited."""
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        meanwhile()

    install = locate(Flags(history=str(store.history), qdrant_path=str(store.vectors)), this_host())
    report = audit(install, this_host(), select=["D", "H"], pause=pause)
    return [f.code for f in report.findings], [i.kind for i in report.incidents], len(waits)


@pytest.fixture
def store(build: Build) -> MemoryBuilder:
    agent = build()
    agent.ids = [agent.add(f"fact {i}", user_id="alice") for i in range(5)]  # type: ignore[attr-defined]
    agent.close()
    return agent


def nothing() -> None:
    """The agent does nothing meanwhile."""


def test_a_fault_that_stands_is_reported(store: MemoryBuilder) -> None:
    RawPoints(store.vectors).remove(store.ids[0])
    with held(store):
        assert codes(store, nothing) == (["D302"], ["write-cut-short"], 1)


def test_an_add_in_flight_is_not(store: MemoryBuilder) -> None:
    """The point is there, its row comes while the audit waits."""
    raw = RawHistory(store.history)
    row = raw.rows()[-1]
    raw.run("delete from history where rowid = ?", row["rowid"])

    def the_row_comes() -> None:
        raw.add(
            row["memory_id"],
            None,
            row["new_memory"],
            "ADD",
            created_at=row["created_at"],
            updated_at=row["updated_at"],
        )

    with held(store):
        assert codes(store, the_row_comes) == ([], [], 1)


def test_another_fault_at_the_second_look_is_not_reported_yet(store: MemoryBuilder) -> None:
    points = RawPoints(store.vectors)
    first = points.row_of(store.ids[0])
    points.remove(store.ids[0])

    def one_comes_another_goes() -> None:
        points.put_row(*first)
        points.remove(store.ids[1])

    with held(store):
        assert codes(store, one_comes_another_goes) == ([], [], 1)


def test_the_same_memory_differing_in_another_row_is_not_reported_yet(store: MemoryBuilder) -> None:
    """A writer that changes one memory again and again: each look finds it in flight, in other rows."""
    points = RawPoints(store.vectors)
    points.edit(store.ids[0], lambda p: p.update(data="in flight 1"))
    with held(store):
        told = codes(store, lambda: points.edit(store.ids[0], lambda p: p.update(data="in flight 2")))
        assert told == ([], [], 1)


def test_a_clean_store_is_looked_at_once(store: MemoryBuilder) -> None:
    with held(store):
        assert codes(store, nothing) == ([], [], 0)


@pytest.mark.thorough
def test_a_short_soak() -> None:
    """The real soak is scripts/soak for a minute, and with `--wal`; its bound on the slowest write is not for a busy
    machine, where no write may fail, after SQLite's own 5 s."""
    words = ["--seconds", "2", "--slowest", "60"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/soak"), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
