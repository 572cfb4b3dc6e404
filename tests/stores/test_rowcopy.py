"""A storage file copied row by row is what it was at the last look, whatever was written before that."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mem0audit.stores import files, sqlitefiles
from mem0audit.stores.rowcopy import NotByRows, RowCopy


def new_file(path: Path, rows: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO points VALUES (?, ?)", [(f"k{n}", b"first") for n in range(rows)])
    connection.execute("COMMIT")
    return connection


@contextmanager
def opened(path: Path) -> Iterator[sqlitefiles.Reading]:
    with sqlitefiles.opened(str(path), path.stat(), False) as reading:
        yield reading


def all_rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT rowid, id, point FROM points ORDER BY rowid").fetchall()


def write(connection: sqlite3.Connection, rng: random.Random, number: int) -> None:
    """What clients do: replaced rows, deleted ones, and the newest changed in place of itself, which keeps its
    rowid; now and then the table emptied and filled again."""
    draw = rng.random()
    if draw < 0.55:
        row = (f"k{rng.randrange(600)}", f"text {number}".encode())
        connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", row)
    elif draw < 0.75:
        connection.execute("DELETE FROM points WHERE id = ?", (f"k{rng.randrange(600)}",))
    elif draw < 0.99:
        (newest,) = connection.execute("SELECT id FROM points ORDER BY rowid DESC LIMIT 1").fetchone() or (
            "k1",
        )
        connection.execute(
            "INSERT OR REPLACE INTO points VALUES (?, ?)", (newest, f"newest {number}".encode())
        )
    else:
        connection.execute("DELETE FROM points WHERE rowid > ?", (rng.randrange(300),))
        for n in range(rng.randrange(400)):
            connection.execute(
                "INSERT OR REPLACE INTO points VALUES (?, ?)", (f"n{n}", f"again {number}".encode())
            )


@pytest.mark.parametrize("seed", range(6))
def test_the_copy_is_the_file_at_the_last_look(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    with closing(new_file(source, 400)) as writer, opened(source) as reading:
        copy = RowCopy(target)
        for round_ in range(6):
            copy.refresh(reading)
            for number in range(rng.randrange(60)):
                write(writer, rng, 100 * round_ + number)
            writer.execute("BEGIN IMMEDIATE")
            copy.look(reading, float("inf"))
            wanted = writer.execute("SELECT rowid, id, point FROM points ORDER BY rowid").fetchall()
            writer.execute("COMMIT")
            write(writer, rng, 99_999)  # after the look: not in this copy
            copy.finish()
            assert all_rows(target) == wanted
        copy.close()


def test_an_id_that_moves_while_the_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    put = files.RowTarget.put
    moved = []
    with closing(new_file(source, 400)) as writer, opened(source) as reading:

        def move(self: files.RowTarget, rows: Any) -> None:
            if not moved:
                moved.append(True)
                writer.execute("INSERT OR REPLACE INTO points VALUES ('k3', 'moved')")
            put(self, rows)

        monkeypatch.setattr(files.RowTarget, "put", move)
        copy = RowCopy(target)
        copy.refresh(reading)
        copy.close()
    assert moved
    assert all_rows(target) == all_rows(source)


def test_the_time_under_the_lock_is_bounded(tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    with closing(new_file(source, 50)), opened(source) as reading:
        copy = RowCopy(tmp_path / "target.db")
        copy.refresh(reading)
        with pytest.raises(files.TookTooLong):
            copy.look(reading, 0.0)
        copy.close()


@pytest.mark.parametrize("more", ["CREATE TABLE other (x)", "CREATE INDEX i ON points (point)"])
def test_only_what_the_client_makes(tmp_path: Path, more: str) -> None:
    source = tmp_path / "source.db"
    with closing(new_file(source, 5)) as writer:
        writer.execute(more)
        with opened(source) as reading:
            copy = RowCopy(tmp_path / "target.db")
            with pytest.raises(NotByRows):
                copy.refresh(reading)
            copy.close()


def test_a_copy_that_cannot_begin_leaves_no_file_open(tmp_path: Path) -> None:
    """As on a full disk: SQLite cannot write the first page."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(sqlite3.OperationalError) as failed:
            files.RowTarget(tmp_path / "copy.sqlite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert failed.value.__traceback__ is not None  # whose frames would hold what is not closed
    open_ = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    assert str(tmp_path / "copy.sqlite") not in open_
