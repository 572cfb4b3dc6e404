"""A log that is held: its writer waits, for so long and no longer, and one row comes after the other."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mem0audit.stores.heldlog import held_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE history (id INTEGER PRIMARY KEY)")
    return path


class Writer:
    """Writes row after row, as fast as it can, until it is stopped."""

    def __init__(self, path: Path) -> None:
        self.path, self.stop, self.count, self.slowest = path, threading.Event(), 0, 0.0
        self.thread = threading.Thread(target=self.write)

    def write(self) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=5)) as log:
            while not self.stop.wait(0.01):  # what mem0 does between two rows
                began = time.monotonic()
                log.execute("INSERT INTO history DEFAULT VALUES")
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.count += 1


@pytest.fixture
def writer(log: Path) -> Iterator[Writer]:
    made = Writer(log)
    made.thread.start()
    yield made
    made.stop.set()
    made.thread.join()


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as copy:
        return int(copy.execute("SELECT count(*) FROM history").fetchone()[0])


def test_one_row_after_the_other(log: Path, writer: Writer, tmp_path: Path) -> None:
    with held_log(str(log)) as held:
        assert held is not None and held.hold(2.0)
        time.sleep(0.1)  # the next row waits now
        counts = []
        for number in range(5):
            target = tmp_path / f"copy-{number}"
            assert held.copy(target)
            counts.append(rows(target))
            assert held.hold_next(2.0, 1.0)
        assert held.let_go() and not held.let_go()
        assert counts == list(range(counts[0], counts[0] + 5))
        assert 0.1 <= held.longest_s < 1


def test_it_is_let_go_in_time(log: Path, writer: Writer, tmp_path: Path) -> None:
    with held_log(str(log)) as held:
        assert held is not None and held.hold(0.1)
        time.sleep(0.3)
        seen = writer.count
        time.sleep(0.2)
        assert writer.count > seen
        assert not held.copy(tmp_path / "copy") and not (tmp_path / "copy").exists()
        assert not held.let_go()
        assert 0.1 <= held.longest_s < 0.3
    assert writer.slowest < 1


def test_nothing_comes(log: Path) -> None:
    before = log.read_bytes()
    with held_log(str(log)) as held:
        assert held is not None and held.hold(2.0)
        assert not held.hold_next(2.0, 0.05)
    assert log.read_bytes() == before
    with closing(sqlite3.connect(log, timeout=0)) as free:
        free.execute("INSERT INTO history DEFAULT VALUES")
    with closing(sqlite3.connect(log)) as wal:
        wal.execute("PRAGMA journal_mode = wal")
    for path in (log, log.parent / "none"):
        with held_log(str(path)) as held:
            assert held is None
