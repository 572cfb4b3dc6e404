"""When this process is forked to read on a second processor, and when it is not: never beside an agent."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

import mem0audit
from mem0audit.stores.child import worthwhile
from mem0audit.stores.history import HELPED_BYTES
from tests.builders import StoreCopy, copy_store

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two processors"
    ),
    pytest.mark.usefixtures("own_threads"),
]


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    """One whose log is so large that a child helps to read it."""
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("CREATE TABLE pad (x)")
        log.execute("INSERT INTO pad VALUES (zeroblob(?))", (HELPED_BYTES + 1,))
        log.commit()
    return store


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    made: list[int] = []
    real = os.fork

    def fork() -> int:
        made.append(1)
        return real()

    monkeypatch.setattr(os, "fork", fork)
    yield made


def test_a_progress_bar_is_no_agent(store: StoreCopy) -> None:
    path = str(store.history)
    assert worthwhile(path, HELPED_BYTES)
    with Progress(console=Console(file=sys.__stderr__, force_terminal=True)):
        assert worthwhile(path, HELPED_BYTES)
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        assert not worthwhile(path, HELPED_BYTES)
    finally:
        ended.set()
        other.join()


def test_what_is_open_here_is_read_here(store: StoreCopy) -> None:
    path = str(store.history)
    with closing(sqlite3.connect(path)) as log:
        log.execute("SELECT 1 FROM history").fetchone()
        assert not worthwhile(path, HELPED_BYTES)
    assert worthwhile(path, HELPED_BYTES)


def test_an_audit_inside_the_agent_while_one_thread_writes(store: StoreCopy, forks: list[int]) -> None:
    """A fork in the middle of a transaction would leave the child with a lock that nobody gives back."""

    def audited() -> object:
        report = mem0audit.audit(history=str(store.history), qdrant_path=str(store.vectors), ledger=False)
        return sorted((f.code, str(f.memory_id)) for f in report.findings), report.not_checked

    alone = audited()
    assert forks
    forks.clear()
    ready, stop = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(store.history, isolation_level=None)) as log:
            while not stop.is_set():
                log.execute("BEGIN EXCLUSIVE")
                ready.set()
                stop.wait(0.3)
                log.execute("ROLLBACK")
                stop.wait(0.2)

    agent = threading.Thread(target=write)
    agent.start()
    try:
        assert ready.wait(10)
        beside = audited()
    finally:
        stop.set()
        agent.join()
    assert not forks
    assert beside == alone
