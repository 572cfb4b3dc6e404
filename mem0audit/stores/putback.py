"""The only SQL of ours that writes to mem0's log: puts rows back that an interrupted migration stranded.

Rows are inserted as mem0 wrote them, below the present ones and in their order: behind them a deleted memory's last
event would be its ADD. No row is changed or removed, no event is made up, and the old table stays. It is one
transaction: cut off at any moment, SQLite takes it back when the file is next opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from mem0audit.stores import files
from mem0audit.stores.exchange import InUse
from mem0audit.stores.history import StrandedLog, survey
from mem0audit.stores.sqlitefiles import quoted


class NotAsPlanned(Exception):
    """Nothing was written: one line says why."""


def put_back(path: Path, planned: StrandedLog) -> tuple[int, int]:
    """Inserts the rows that `history` lacks; how many rows it had and has. `planned` is what was found before.

    Raises InUse where somebody has the file open, NotAsPlanned where it is not what was planned or does not come out
    right (it is then as it was), sqlite3.Error, OSError.
    """
    files.step("putback.open")
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)) as log:
        log.execute("PRAGMA trusted_schema = 0")
        log.execute("PRAGMA synchronous = FULL")
        try:
            log.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise InUse(str(path)) from None
            raise
        try:
            counts = _inserted(log, planned)
            files.step("putback.commit")
            log.execute("COMMIT")
        except BaseException:
            if log.in_transaction:
                files.step("putback.rollback")
                log.execute("ROLLBACK")
            raise
    return counts


def _inserted(log: sqlite3.Connection, planned: StrandedLog) -> tuple[int, int]:
    log.text_factory = bytes  # a text that is no UTF-8 is copied and compared as it is
    now = _survey(log)
    if now != planned or any(table.problem for table in now.tables):
        raise NotAsPlanned("the log is not what it was a moment ago")
    before, old = _digest(log, "history"), [_digest(log, table.name) for table in now.tables]
    missing = sum(table.missing for table in now.tables)
    # an empty table begins at 1, as mem0 would number it
    at = 1 if now.lowest is None else now.lowest - missing
    for table in now.tables:
        files.step("putback.insert")
        names = ", ".join(quoted(column) for column, _ in table.mapping)
        values = ", ".join(quoted(source) for _, source in table.mapping)
        lacks = "o.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM history h WHERE h.id = o.id)"
        log.execute(
            f"INSERT INTO history (rowid, {names}) SELECT ? + row_number() OVER (ORDER BY o.rowid) - 1, {values}"  # noqa: S608
            f" FROM {quoted(table.name)} o WHERE {lacks} ORDER BY o.rowid",
            (at,),
        )
        at += table.missing
    files.step("putback.check")
    rows = int(log.execute("SELECT count(*) FROM history").fetchone()[0])
    same = _digest(log, "history", now.lowest) == before if now.lowest is not None else True
    same = same and [_digest(log, table.name) for table in now.tables] == old
    left = sum(table.missing for table in _survey(log).tables)
    if rows != now.rows + missing or left or not same:
        raise NotAsPlanned("the rows did not come out as they should")
    return now.rows, rows


def _survey(log: sqlite3.Connection) -> StrandedLog:
    def each(select: str) -> Iterable[tuple[Any, ...]]:
        return log.execute(f"{select} ORDER BY rowid")

    factory, log.text_factory = log.text_factory, lambda raw: raw.decode("utf-8", "surrogateescape")
    try:
        return survey(lambda sql: log.execute(sql).fetchall(), each)
    finally:
        log.text_factory = factory


def _digest(log: sqlite3.Connection, table: str, lowest: int | None = None) -> str:
    """Of the rows of a table, from `lowest` on, each value with its type."""
    sha = sha256()
    first = -(1 << 63) if lowest is None else lowest
    sql = f"SELECT rowid, * FROM {quoted(table)} WHERE rowid >= ? ORDER BY rowid"  # noqa: S608
    for row in log.execute(sql, (first,)):
        sha.update(repr(row).encode())
    return sha.hexdigest()
