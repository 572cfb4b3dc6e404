"""Two databases that nobody writes, compared row by row through SQLite itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

from mem0audit.stores.sqlitefiles import problem_of


def first_difference(one: Path, other: Path) -> str | None:
    """Where two databases differ, in a few words without anything that they hold; None where every table has the same
    rows, in the same order and with the same rowids.

    Both are opened as immutable, so that nothing is made beside them: nobody may write them meanwhile, and what a
    journal beside them holds is not seen. Where one of the two cannot be read, that is the difference.
    """
    try:
        with closing(_opened(one)) as first, closing(_opened(other)) as second:
            names = [_tables(connection) for connection in (first, second)]
            if names[0] != names[1]:
                return "other tables"
            for name in (row[0] for row in names[0]):
                for number, (was, now) in enumerate(zip_longest(_rows(first, name), _rows(second, name)), 1):
                    if was != now:
                        return f"row {number:,} of another content"
    except sqlite3.Error as error:
        return f"not read: {problem_of(error, str(other)).detail}"
    return None


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = bytes
    connection.execute("PRAGMA trusted_schema = 0")
    return connection


def _tables(connection: sqlite3.Connection) -> list[tuple[str, bytes | None]]:
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [(name.decode("utf-8", "surrogateescape"), sql) for name, sql in found]


def _rows(connection: sqlite3.Connection, table: str) -> sqlite3.Cursor:
    quoted = '"' + table.replace('"', '""') + '"'
    try:
        return connection.execute(f"SELECT rowid, * FROM {quoted} ORDER BY rowid")  # noqa: S608 - quoted
    except sqlite3.OperationalError:  # a table without rowids
        return connection.execute(f"SELECT * FROM {quoted}")  # noqa: S608 - quoted
