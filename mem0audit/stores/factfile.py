"""A plain SQLite store of facts, read beside its writers: nothing of it is changed."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any, Final

from mem0audit.core.factfile import COLUMNS, TABLE, Fact, FactFile
from mem0audit.stores import sqlitefiles
from mem0audit.stores.sqlitefiles import ReadFailed, Reading, quoted

PAGE_ROWS: Final = 5_000


def read_fact_file(path: str) -> FactFile:
    """The table `memory` of a file, or its only table with a column `expires_at` or `superseded_by`.

    Rows are read in pages in the order of their key; what points nowhere is looked up again as of one instant. Never
    raises for what the file is: `FactFile.file.problem` says it.
    """
    state, found = sqlitefiles.read_file(path, _read, check=True)
    if found is None:
        return FactFile(state, TABLE, frozenset())
    table, columns, facts, dangling, unchecked, violations = found
    return FactFile(state, table, columns, facts, dangling, unchecked, violations)


_Found = tuple[str, frozenset[str], tuple[Fact, ...], tuple[tuple[Any, Any], ...], bool, int]


def _read(reading: Reading) -> _Found:
    table, columns = _table(reading)
    key = _key(reading, table, columns)
    picked = ", ".join(quoted(c) if c in columns else "NULL" for c in ("id", *COLUMNS))
    facts: dict[Any, Fact] = {}
    last: Any = None
    while True:
        after = "" if last is None else f"WHERE {key} > ?"
        sql = f"SELECT {key}, {picked} FROM {quoted(table)} {after} ORDER BY {key} LIMIT {PAGE_ROWS}"  # noqa: S608
        rows, whole = reading.page(sql, () if last is None else (last,))
        for row in rows:
            facts[row[0]] = Fact(*row[1:])
        if whole and len(rows) < PAGE_ROWS:
            break
        last = rows[-1][0]
    there = {fact.id for fact in facts.values()}
    missing = [(f.id, f.superseded_by) for f in facts.values() if f.superseded_by is not None]
    dangling = _still_missing(reading, table, [pair for pair in missing if pair[1] not in there])
    unchecked = "superseded_by" in columns and not _has_key(reading, table)
    violations = 0
    with suppress(sqlite3.OperationalError):  # takes too long beside a writer: what was read says it as well
        violations = len(reading.all(f"PRAGMA foreign_key_check({quoted(table)})"))
    return table, columns, tuple(facts.values()), tuple(dangling), unchecked, violations


def _table(reading: Reading) -> tuple[str, frozenset[str]]:
    names = [
        str(n) for (n,) in reading.all("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    ]
    having = {n: _columns(reading, n) for n in names}
    fitting = [
        n for n, columns in having.items() if "id" in columns and columns & {"expires_at", "superseded_by"}
    ]
    if TABLE in having and "id" in having[TABLE]:
        return TABLE, having[TABLE]
    if len(fitting) != 1:
        why = "no table memory, and none" if not fitting else f"no table memory, and {len(fitting)} tables"
        raise ReadFailed("no-table", f"has {why} with the columns id and expires_at or superseded_by")
    return fitting[0], having[fitting[0]]


def _columns(reading: Reading, table: str) -> frozenset[str]:
    return frozenset(str(row[1]) for row in reading.all(f"PRAGMA table_info({quoted(table)})"))


def _key(reading: Reading, table: str, columns: frozenset[str]) -> str:
    """What rows are read in the order of: the rowid, or `id` where the table has none."""
    if "rowid" in columns:
        return quoted("id")
    try:
        reading.all(f"SELECT rowid FROM {quoted(table)} LIMIT 1")  # noqa: S608
    except sqlite3.OperationalError:
        return quoted("id")
    return "rowid"


def _has_key(reading: Reading, table: str) -> bool:
    keys = reading.all(f"PRAGMA foreign_key_list({quoted(table)})")
    return any(str(row[3]) == "superseded_by" for row in keys)


def _still_missing(reading: Reading, table: str, pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Those that point nowhere as of one instant: pages are of several."""
    found = []
    sql = (
        f"SELECT o.id, o.superseded_by FROM {quoted(table)} o WHERE o.id = ? AND o.superseded_by IS NOT NULL"  # noqa: S608
        f" AND NOT EXISTS (SELECT 1 FROM {quoted(table)} n WHERE n.id = o.superseded_by)"
    )
    for one, _ in pairs:
        found += [(row[0], row[1]) for row in reading.all(sql, (one,))]
    return found
