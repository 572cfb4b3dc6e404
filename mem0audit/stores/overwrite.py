"""Empties texts that mem0's API leaves in its log, and rebuilds a database file over its own free pages.

Both happen in the file, under SQLite's own locks and journal: a kill at any moment leaves it as it was before or as it
is after, to whoever opens it next. Overwriting in place is the point of it: a new file beside the old one would leave
the old one's bytes to the disk. Before a file is rebuilt, a copy of it is made, checked and compared beside it, and
stays until the rebuilt one has passed the same. The steps are named through `files.step`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from mem0audit.stores import files, sqlitefiles
from mem0audit.stores.history import TEXTS
from mem0audit.stores.sqlitefiles import quoted

BUSY_S: Final = 5.0
_PAGE: Final = 500
_TABLES: Final = ("history", "history_old", "old_history")
CLEARING: Final = "mem0audit-clearing"
"""How the folder ends that the proven copy lies in, beside its database."""


class NotAsMem0Writes(Exception):
    """The database holds what no mem0 writes, and a change might do more than is wanted; one line says what."""


class WentWrong(Exception):
    """The rebuilt file is not what it was. `copy` is the proven copy of it, which stays."""

    def __init__(self, copy: Path) -> None:
        super().__init__(str(copy))
        self.copy = copy


@dataclass(frozen=True)
class Emptied:
    """What was emptied: rows of `history`, of tables that a migration left, and of `messages`, and the memories that
    the first two were of."""

    history: int = 0
    stranded: int = 0
    messages: int = 0
    memories: int = 0


def copy_folder(path: Path) -> Path:
    """Where the proven copy of a database lies while it is rebuilt."""
    return path.with_name(f".{path.name[:200]}.{CLEARING}")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)) as connection:
        connection.execute("PRAGMA trusted_schema = 0")
        connection.execute("PRAGMA cell_size_check = 1")
        connection.execute("PRAGMA secure_delete = 1")
        # texts that are no UTF-8 stay as they are
        connection.text_factory = bytes
        yield connection


def empty_texts(path: Path, ids: Collection[str], is_theirs: Callable[[str], bool]) -> Emptied:
    """Makes the texts of these memories' rows of the log, and of the messages whose session scope `is_theirs`, empty.

    One transaction. No row is removed or added, NULL stays NULL, and nothing else changes: that is compared before it
    is committed. Raises NotAsMem0Writes, sqlite3.Error, OSError; then nothing was changed.
    """
    wanted = {one.encode("utf-8", "surrogatepass") for one in ids}
    for one in ids:
        with suppress(UnicodeEncodeError):  # an id that is no UTF-8, as it was read
            wanted.add(one.encode("utf-8", "surrogateescape"))
    with _opened(path) as connection:
        files.step("redact.begin")
        connection.execute("BEGIN IMMEDIATE")
        try:
            done = _emptied(connection, wanted, is_theirs)
            files.step("redact.commit")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    files.step("redact.done")
    return done


def why_not_emptied(path: str) -> str | None:
    """Why `empty_texts` would refuse a log; None where it would not. Changes nothing."""

    def body(reading: sqlitefiles.Reading) -> str | None:
        reading.connection.text_factory = bytes
        try:
            _refuse(reading.connection)
        except NotAsMem0Writes as problem:
            return str(problem)
        return None

    return sqlitefiles.read_file(path, body, check=False)[1]


def _refuse(connection: sqlite3.Connection) -> None:
    """Raises NotAsMem0Writes."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'trigger'").fetchone():
        raise NotAsMem0Writes("has triggers, which no mem0 makes: emptying a row would run them")
    for table in (*_TABLES, "messages"):
        _columns(connection, table)


def _emptied(
    connection: sqlite3.Connection, wanted: Collection[bytes], is_theirs: Callable[[str], bool]
) -> Emptied:
    _refuse(connection)
    counts: dict[str, int] = {}
    memories: set[bytes] = set()
    for table in _TABLES:
        columns = _columns(connection, table)
        texts = [name for name in TEXTS if name in columns]
        if "memory_id" not in columns or not texts:
            continue
        rows = []
        held = " OR ".join(f"coalesce({quoted(name)}, '') != ''" for name in texts)
        select = f"SELECT rowid, memory_id FROM {quoted(table)} WHERE {held}"  # noqa: S608
        for rowid, memory_id in connection.execute(select):
            if _bytes(memory_id) in wanted:
                rows.append(rowid)
                memories.add(_bytes(memory_id))
        counts[table] = _empty(connection, table, texts, columns, rows)
    columns = _columns(connection, "messages")
    if {"session_scope", "content"} <= set(columns):
        rows = [
            rowid
            for rowid, session in connection.execute(
                "SELECT rowid, session_scope FROM messages WHERE coalesce(content, '') != ''"
            )
            if is_theirs(_bytes(session).decode("utf-8", "surrogateescape"))
        ]
        counts["messages"] = _empty(connection, "messages", ["content"], columns, rows)
    history, messages = counts.pop("history", 0), counts.pop("messages", 0)
    return Emptied(history, sum(counts.values()), messages, len(memories))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns of an ordinary table; [] where there is none. Raises NotAsMem0Writes."""
    there = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? AND rootpage > 0", (table,)
    ).fetchone()
    if not there:
        return []
    columns = [row[1].decode("utf-8", "replace") for row in connection.execute(f"PRAGMA table_info({table})")]
    if "rowid" in (name.lower() for name in columns):
        raise NotAsMem0Writes(f"its table {table} has a column rowid, which no mem0 writes")
    return columns


def _empty(
    connection: sqlite3.Connection, table: str, texts: Sequence[str], columns: Sequence[str], rows: list[int]
) -> int:
    """Empties the texts of these rows; how many rows that were. Raises NotAsMem0Writes where anything else changed."""
    if not rows:
        return 0
    files.step("redact.rows")
    theirs = set(rows)
    before = _digest(connection, table, texts, columns, theirs)
    sets = ", ".join(f"{quoted(n)} = CASE WHEN {quoted(n)} IS NULL THEN NULL ELSE '' END" for n in texts)
    connection.executemany(
        f"UPDATE {quoted(table)} SET {sets} WHERE rowid = ?",  # noqa: S608
        [(rowid,) for rowid in rows],
    )
    if _digest(connection, table, texts, columns, theirs) != before:
        raise NotAsMem0Writes(f"its table {table} changed otherwise than it was to: nothing was changed")
    return len(rows)


def _digest(
    connection: sqlite3.Connection, table: str, texts: Sequence[str], columns: Sequence[str], theirs: set[int]
) -> bytes:
    """A digest of all that must stay: the rows of others whole; of theirs which texts are NULL, and the rest."""
    total = sha256()
    listed = ", ".join(map(quoted, columns))
    where = [columns.index(name) for name in texts]
    for rowid, *values in connection.execute(f"SELECT rowid, {listed} FROM {quoted(table)} ORDER BY rowid"):  # noqa: S608
        if rowid in theirs:
            for index in where:
                values[index] = values[index] is None
        total.update(repr((rowid, values)).encode())
    return total.digest()


# --- The whole file ----------------------------------------------------------------------------------


def rebuild(path: Path) -> None:
    """Rebuilds a database that nobody has open over itself (VACUUM with secure_delete): without free pages.

    Its rows and their order stay; it is compared before and after. Raises sqlite3.Error, OSError (its rows are as they
    were), WentWrong.
    """
    clear_left(path)
    folder = copy_folder(path)
    copy = folder / path.name
    files.step("clear.folder")
    folder.mkdir(mode=0o700)
    wanted: bytes | None = None
    try:
        with _opened(path) as connection:
            files.step("clear.copy")
            os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            connection.execute("VACUUM INTO ?", (str(copy),))
            content = _content(connection)
            _proven(copy, content)
            wanted = content
            files.step("clear.vacuum")
            connection.execute("VACUUM")
            files.step("clear.checkpoint")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        files.step("clear.check")
        if not _is(path, wanted):
            raise WentWrong(copy)
    except (sqlite3.Error, OSError):
        if wanted is not None and not _has(path, wanted):
            raise WentWrong(copy) from None
        shutil.rmtree(folder, ignore_errors=True)
        raise
    clear_left(path)


def _has(path: Path, wanted: bytes) -> bool:
    """Whether a database still reads, with what it held."""
    try:
        with _opened(path) as connection:
            return _content(connection) == wanted
    except (sqlite3.Error, OSError):
        return False


def clear_left(path: Path) -> None:
    """Removes the copy that a run left beside a database. Raises OSError."""
    folder = copy_folder(path)
    if os.path.lexists(folder):
        files.step("clear.remove")
        shutil.rmtree(folder)


def _proven(copy: Path, wanted: bytes) -> None:
    """fsyncs the copy and reads it again. Raises sqlite3.DatabaseError where it is not what it should be."""
    descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
    try:
        files.step("clear.fsync")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if not _is(copy, wanted):
        raise sqlite3.DatabaseError("malformed: a copy of it is not the same")


def _is(path: Path, wanted: bytes) -> bool:
    with _opened(path) as connection:
        sound = connection.execute("PRAGMA integrity_check(1)").fetchall() == [(b"ok",)]
        return sound and _content(connection) == wanted and not _number(connection, "freelist_count")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _content(connection: sqlite3.Connection) -> bytes:
    """A digest of the schema and of every row, in their order."""
    total = sha256()
    entries: list[tuple[Any, ...]] = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    ).fetchall()
    total.update(repr((entries, _number(connection, "user_version"))).encode())
    for kind, name, _table, sql in entries:
        if kind != b"table" or sql is None or name.startswith(b"sqlite_"):
            continue
        table = quoted(name.decode())
        cursor = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")  # noqa: S608
        while rows := cursor.fetchmany(_PAGE):
            for row in rows:
                total.update(repr(row).encode())
    return total.digest()
