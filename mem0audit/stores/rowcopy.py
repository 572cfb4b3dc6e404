"""A large storage file copied row by row: most of it unlocked, only what changed since under the lock.

Comparing the pages of a file under its lock takes half a second for a gigabyte; looking through its (rowid, id)
index takes a second for a million rows, however large their vectors are.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from mem0audit.stores import files, sqlitefiles
from mem0audit.stores.sqlitefiles import Changed, Reading

PAGE_ROWS: Final = 64
_NAMES: Final = {"points", "sqlite_autoindex_points_1"}
_COLUMNS: Final = [("id", "TEXT", 1), ("point", "BLOB", 0)]


class NotByRows(Exception):
    """The file holds more than the one table that qdrant-client makes: it cannot be copied this way."""


class RowCopy:
    """One storage file and its copy. `refresh` brings the copy near, without a lock; `look` finds under the lock
    what it still lacks, and `finish` writes that, without it."""

    def __init__(self, target: Path) -> None:
        self._target = files.RowTarget(target)
        self._seen: dict[int, Any] | None = None
        self._gone: set[int] = set()
        self._fresh: list[Any] = []

    def refresh(self, reading: Reading) -> None:
        """Reads what is new in short transactions. Raises NotByRows, Changed, sqlite3.Error, OSError."""
        columns = reading.all("SELECT name, upper(type), pk FROM pragma_table_info('points')")
        names = {name for (name,) in reading.all("SELECT name FROM sqlite_master")}
        if columns != _COLUMNS or names != _NAMES:
            raise NotByRows
        if self._seen is None:
            self._seen = {}
            sqlitefiles.read_pages(
                reading, PAGE_ROWS, sqlitefiles.FIRST, (1 << 63) - 1, self._target.put, self._seen
            )
        self.look(reading, float("inf"))
        self.finish()

    def look(self, reading: Reading, end: float) -> None:
        """What the copy lacks of what the file holds now. Raises TookTooLong at `end` (of time.monotonic)."""
        seen = self._seen
        if seen is None:
            raise Changed
        live = dict(reading.all("SELECT rowid, id FROM points"))
        missing = object()
        again = {rowid for rowid, key in live.items() if seen.get(rowid, missing) != key}
        again.update(_doubtful(seen, live))
        self._gone = {rowid for rowid in seen if rowid in again or rowid not in live}
        self._fresh = []
        for rowid in sorted(again):
            if time.monotonic() > end:
                raise files.TookTooLong
            self._fresh += reading.all("SELECT rowid, id, point FROM points WHERE rowid = ?", (rowid,))

    def finish(self) -> None:
        """Writes what `look` found. Raises sqlite3.Error, OSError."""
        seen = self._seen
        assert seen is not None
        self._target.drop(self._gone)
        for rowid in self._gone:
            del seen[rowid]
        self._target.put(self._fresh)
        seen.update((row[0], row[1]) for row in self._fresh)
        self._gone, self._fresh = set(), []

    def close(self) -> None:
        """The copy is whole, or given up."""
        self._target.close()


def _doubtful(seen: dict[int, Any], live: dict[int, Any]) -> set[int]:
    """Rowids that look the same and may hold another row: SQLite gives a rowid out again once no higher one is left,
    and an update of the newest memory gets the rowid it had. Below the rows that went, as many as a reader of
    whole tables reads again."""
    doubtful: set[int] = set()
    for rowid in sorted(seen, reverse=True):
        if live.get(rowid) == seen[rowid]:
            doubtful.add(rowid)
            if len(doubtful) == sqlitefiles.TAIL:
                break
    return doubtful
