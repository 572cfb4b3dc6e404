"""mem0's change log: `history.db`, read without mem0 and without holding its writer up.

Three schemas exist (all with `id TEXT PRIMARY KEY`, so that every table has rowids): 7 columns up to mem0
0.0.9, 9 up to 0.1.99, 10 since 0.1.100. Rows are read in rowid order, the order of writing in every version
and through every migration; their time strings do not give it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import (
    FileProblem,
    FileState,
    HistoryFile,
    HistoryRow,
    MessageScope,
    RowSink,
    StrandedTable,
)
from mem0audit.core.signs import FindSecrets, MessageSecrets, Secret, may_hold_secret
from mem0audit.core.times import instant
from mem0audit.stores import sqlitefiles
from mem0audit.stores.child import Child, ChildFailed, worthwhile
from mem0audit.stores.sqlitefiles import Changed, ReadFailed, Reading, quoted

S = TypeVar("S", bound=RowSink)
T = TypeVar("T")

_SEVEN: Final = frozenset(("id", "memory_id", "prev_value", "new_value", "event", "timestamp", "is_deleted"))
_NINE: Final = frozenset(
    (
        "id",
        "memory_id",
        "old_memory",
        "new_memory",
        "new_value",
        "event",
        "created_at",
        "updated_at",
        "is_deleted",
    )
)
_TEN: Final = (_NINE - {"new_value"}) | {"actor_id", "role"}
_STRANDED: Final = ("history_old", "old_history")
_FIELDS: Final = HistoryRow._fields[1:]
# Where a 7-column log keeps what later ones call otherwise (mem0 0.0.10 migrates it the same way).
_OLDER_NAMES: Final = {
    "old_memory": "prev_value",
    "new_memory": "new_value",
    "created_at": "timestamp",
    "updated_at": "timestamp",
}
_NEEDED: Final = frozenset(("id", "memory_id", "event"))
PAGE_ROWS: Final = 2_000
ROWS_AT_ONCE: Final = 400
"""So many rows are asked for by their rowids in one statement: every SQLite takes 999 parameters."""


def _lenient(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _columns(reading: Reading, table: str) -> tuple[str, ...]:
    return tuple(str(row[1]) for row in reading.all(f"PRAGMA table_info({quoted(table)})"))


def _schema(columns: tuple[str, ...]) -> str:
    for known, name in ((_SEVEN, "7 columns"), (_NINE, "9 columns"), (_TEN, "10 columns")):
        if set(columns) == known:
            return name
    return "other"


def _row_sql(columns: tuple[str, ...], texts: bool = True) -> str:
    """SELECT list of a HistoryRow for a table with these columns; NULL for what it lacks, and for the memories' texts
    unless they are wanted."""
    there = set(columns)
    if not there >= _NEEDED:
        raise ReadFailed("no-table", "its history table lacks columns that every mem0 writes")
    older = _OLDER_NAMES if "old_memory" not in there and "new_memory" not in there else {}
    picked = []
    for field in _FIELDS:
        name = field if field in there else older.get(field, "")
        wanted = name in there and (texts or field not in ("old_memory", "new_memory"))
        picked.append(quoted(name) if wanted else "NULL")
    return f"SELECT rowid, {', '.join(picked)} FROM history"  # noqa: S608


def _page(reading: Reading, sql: str, args: tuple[Any, ...]) -> tuple[list[Any], bool]:
    """A page; texts that are not UTF-8 are read with surrogate escapes instead of an error."""
    try:
        return reading.page(sql, args)
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    reading.connection.text_factory = _lenient
    try:
        return reading.page(sql, args)
    finally:
        reading.connection.text_factory = str


def _pages(reading: Reading, select: str, take: Callable[[list[Any]], None], last: int = -(1 << 63)) -> int:
    """All rows of a SELECT whose first column is rowid, by pages in rowid order; the last rowid seen."""
    sql = f"{select} WHERE rowid > ? ORDER BY rowid LIMIT {PAGE_ROWS}"
    while True:
        rows, whole = _page(reading, sql, (last,))
        if rows:
            if rows[-1][0] <= last:
                raise sqlite3.DatabaseError("malformed: rowids out of order")
            take(rows)
            last = rows[-1][0]
        if whole and len(rows) < PAGE_ROWS:
            return last


def _require_history(reading: Reading) -> tuple[str, ...]:
    reading.require_table("history")
    return _columns(reading, "history")


# --- What the file is ------------------------------------------------------------------------------


def read_history_file(path: str, alone: bool = False) -> HistoryFile:
    """What a `history.db` is, apart from its rows; never raises for what the file is.

    `create_statements` holds the exact SQL of everything in the schema, `tables` the row count of every
    table (None where counting takes longer than a reader may). Where there is no history table the
    file's problem is "no-table" and the other fields still tell what was found. `alone` as for
    sqlitefiles.read_file.
    """
    made: list[HistoryFile] = []

    def body(reading: Reading) -> HistoryFile:
        found = _describe(reading)
        made[:] = [found]
        return found

    state, found = sqlitefiles.read_file(path, body, alone=alone)
    if found is None:
        return HistoryFile(state)
    return HistoryFile(
        file=state,
        schema=found.schema,
        columns=found.columns,
        tables=found.tables,
        create_statements=found.create_statements,
        stranded=found.stranded,
        message_scopes=found.message_scopes,
        first_row_id=found.first_row_id,
    )


def _describe(reading: Reading) -> HistoryFile:
    reading.connection.text_factory = _lenient
    entries = reading.all("SELECT type, name, sql FROM sqlite_master ORDER BY rowid")
    statements = {str(name): str(sql) for _, name, sql in entries if sql is not None}
    ordinary = [
        str(name)
        for kind, name, sql in entries
        if kind == "table" and not str(name).startswith("sqlite_") and "virtual" not in str(sql)[:20].lower()
    ]
    tables = {name: _count(reading, name) for name in ordinary}
    columns: tuple[str, ...] = ()
    first = None
    if "history" in tables:
        columns = _columns(reading, "history")
        try:
            first = reading.one("SELECT id FROM history ORDER BY rowid LIMIT 1")
        except sqlite3.DatabaseError as error:
            reading.problem = sqlitefiles.problem_of(error, reading.path)
        if tables["history"] is None and reading.problem is None:
            reading.problem = FileProblem("damaged", "the history table cannot be counted")
    else:
        reading.problem = FileProblem("no-table", "has no table history")
    stranded = tuple(
        table for name in _STRANDED if name in tables and (table := _stranded(reading, name, tables[name]))
    )
    return HistoryFile(
        file=FileState(reading.path),
        schema=_schema(columns) if columns else None,
        columns=columns,
        tables=tables,
        create_statements=statements,
        stranded=stranded,
        message_scopes=_message_scopes(reading) if "messages" in tables else (),
        first_row_id=None if first is None else str(first),
    )


def _count(reading: Reading, table: str) -> int | None:
    try:
        return int(reading.one(f"SELECT count(*) FROM {quoted(table)}"))  # noqa: S608
    except sqlite3.DatabaseError:
        return None


def _stranded(reading: Reading, name: str, rows: int | None) -> StrandedTable | None:
    columns = _columns(reading, name)
    if "id" not in columns or "rowid" in columns:
        return None
    has_history = reading.has_table("history") and "id" in _columns(reading, "history")
    memory = '"memory_id"' if "memory_id" in columns else "NULL"
    # A column of our own says it, so that a page of rows that all match is no endless search.
    lacks = "NOT EXISTS (SELECT 1 FROM history h WHERE h.id = o.id)" if has_history else "1"
    missing = 0
    memory_ids: set[str] = set()

    def take(page: list[Any]) -> None:
        nonlocal missing
        for _, memory_id, is_missing in page:
            if is_missing:
                missing += 1
                if memory_id is not None:
                    memory_ids.add(str(memory_id))

    select = f"SELECT rowid, {memory}, {lacks} FROM {quoted(name)} o"  # noqa: S608
    try:
        _pages(reading, select, take)
    except sqlite3.DatabaseError as error:
        reading.problem = reading.problem or sqlitefiles.problem_of(error, reading.path)
    return StrandedTable(name, missing if rows is None else rows, missing, frozenset(memory_ids))


def _message_scopes(reading: Reading) -> tuple[MessageScope, ...]:
    columns = _columns(reading, "messages")
    if "session_scope" not in columns or "rowid" in columns:
        return ()
    scopes: Counter[str] = Counter()
    text = "content IS NOT NULL AND content <> ''" if "content" in columns else "1"

    def take(page: list[Any]) -> None:
        scopes.update("" if scope is None else str(scope) for _, scope, has_text in page if has_text)

    try:
        _pages(reading, f"SELECT rowid, session_scope, {text} FROM messages", take)  # noqa: S608
    except sqlite3.DatabaseError as error:
        reading.problem = reading.problem or sqlitefiles.problem_of(error, reading.path)
    return tuple(MessageScope(scope, count) for scope, count in sorted(scopes.items()))


def secrets_in_messages(path: str, find: FindSecrets, alone: bool = False) -> tuple[MessageSecrets, ...]:
    """The credentials that `find` finds in the `messages` table (mem0 2.0.0 and later), by session scope; nothing
    where it does not read: `read_history_file` says that. `alone` as for sqlitefiles.read_file."""
    found: Counter[tuple[str, Secret]] = Counter()

    def take(page: list[Any]) -> None:
        for _, scope, content in page:
            if type(content) is str and may_hold_secret(content):
                found.update({("" if scope is None else str(scope), secret) for secret in find(content)})

    def body(reading: Reading) -> None:
        found.clear()
        if {"session_scope", "content"} <= set(_columns(reading, "messages")):
            _pages(reading, "SELECT rowid, session_scope, content FROM messages", take)

    sqlitefiles.read_file(path, body, check=False, alone=alone)
    return tuple(
        MessageSecrets(scope, secret, count)
        for (scope, secret), count in sorted(found.items(), key=lambda one: one[0][0])
    )


# --- The rows --------------------------------------------------------------------------------------


def read_rows(
    path: str, start: Callable[[], S], alone: bool = False, *, texts: bool = True
) -> tuple[FileState, S | None]:
    """Every history row as of one instant, in rowid order, through a sink that `start` makes.

    The log only grows, so that pages are handed on as they are read; a closing look finds it unchanged or
    fetches what came since. Where it turns out to have been changed otherwise (mem0's `reset()`, a migration,
    a redaction), `start` is called again for a new sink, at most three times in all. Columns that an older
    schema lacks are None; a value can be of any SQLite type, and a text that is not UTF-8 has surrogate
    escapes. Of a damaged table the rows that read are handed on and `problem` is "damaged". The sink is None
    where nothing could be read. (`integrity` is read_history_file's to say: it would double the time here.)
    `alone` as for sqlitefiles.read_file. Without `texts` the memories' texts are None.
    """

    def body(reading: Reading) -> S:
        columns = _require_history(reading)
        sink = start()
        _stream(reading, _row_sql(columns, texts), sink)
        return sink

    return sqlitefiles.read_file(path, body, check=False, alone=alone)


def _stream(reading: Reading, select: str, sink: RowSink) -> None:
    schema, changes = reading.schema_count(), reading.change_count()
    make = HistoryRow._make
    count = 0
    ends: list[Any] = []

    def take(page: list[Any]) -> None:
        nonlocal count
        if not ends:
            ends.append(page[0][:2])
        ends[1:] = [page[-1][:2]]
        count += len(page)
        sink.rows(list(map(make, page)))

    try:
        last = _pages(reading, select, take)
    except sqlite3.DatabaseError as error:
        problem = sqlitefiles.problem_of(error, reading.path)
        if problem.kind != "damaged":
            raise
        if reading.doubtful:
            raise Changed from None
        count += _salvage(reading, select, ends[-1][0] if ends else -(1 << 63), sink)
        reading.problem = FileProblem("damaged", f"{count} history rows read, the rest is damaged")
        return
    reading.connection.text_factory = _lenient
    try:
        for attempt in range(sqlitefiles.ATTEMPTS):
            fresh = []
            with reading.transaction(sqlitefiles.CLOSING_S):
                if reading.schema_count() != schema:
                    raise Changed
                if reading.change_count() == changes:
                    _compare_count(reading, count)
                    return
                sql = f"{select} WHERE rowid > ? ORDER BY rowid LIMIT {PAGE_ROWS}"
                fresh = reading.all(sql, (last,))
                if len(fresh) < PAGE_ROWS or attempt == sqlitefiles.ATTEMPTS - 1:
                    there = int(reading.one("SELECT count(*) FROM history"))
                    for rowid, row_id in ends:
                        if reading.one("SELECT id FROM history WHERE rowid = ?", (rowid,)) != row_id:
                            raise Changed
                    if there != count + len(fresh):
                        raise Changed
            if fresh:
                take(fresh)
            if len(fresh) < PAGE_ROWS:
                return
            last = _pages(reading, select, take, fresh[-1][0])
        raise Changed
    finally:
        reading.connection.text_factory = str


def _compare_count(reading: Reading, count: int) -> None:
    """The table's own rows and its index agree in number, else the file is damaged."""
    indexed = int(reading.one("SELECT count(*) FROM history"))
    if indexed != count:
        detail = f"the history table holds {count} rows, its index {indexed}"
        reading.problem = FileProblem("damaged", detail)


def _salvage(reading: Reading, select: str, last: int, sink: RowSink) -> int:
    """Rows after `last` one by one, in rowid order, over what does not read; how many there were."""
    reading.connection.text_factory = _lenient
    rows: list[HistoryRow] = []
    end = time.perf_counter() + sqlitefiles.SALVAGE_S
    for rowid in sqlitefiles.surviving_rowids(reading, "history", "id", last):
        if time.perf_counter() > end:
            break
        with suppress(sqlite3.DatabaseError):
            rows += [HistoryRow._make(row) for row in reading.all(f"{select} WHERE rowid = ?", (rowid,))]
    if rows:
        sink.rows(rows)
    return len(rows)


HELPED_BYTES: Final = 8 << 20
"""From this size on a child describes the file while its rows are read."""


def read_history(
    path: str, start: Callable[[], S], alone: bool = False, *, texts: bool = True
) -> tuple[HistoryFile, S | None]:
    """What a `history.db` is and its rows, through a sink that `start` makes: see read_history_file and read_rows.

    The sink is None where the rows could not be read whole; the file's problem says why. `alone` and `texts` as for
    read_rows.
    """
    child = None
    if worthwhile(path, HELPED_BYTES):
        child = Child(lambda _: read_history_file(path, alone), ())
    try:
        history = read_history_file(path, alone) if child is None else None
        if history is not None and (history.file.problem is not None or history.schema is None):
            return history, None
        state, sink = read_rows(path, start, alone, texts=texts)
        if child is not None:
            history = _described(child, path, alone)
        assert history is not None
    finally:
        if child is not None:
            child.stop()
    return _joined(history, state, sink)


def _joined(history: HistoryFile, state: FileState, sink: S | None) -> tuple[HistoryFile, S | None]:
    """What read_history_file and read_rows say together: the second reading's problem, the first's check; the sink
    is None where either has one."""
    if history.file.problem is not None or history.schema is None:
        return history, None
    file = replace(
        history.file,
        problem=state.problem,
        hot_journal=history.file.hot_journal or state.hot_journal,
        longest_hold_s=max(history.file.longest_hold_s, state.longest_hold_s),
    )
    return replace(history, file=file), None if state.problem is not None else sink


def _described(child: Child[HistoryFile], path: str, alone: bool) -> HistoryFile:
    try:
        return child.result()
    except ChildFailed:
        return read_history_file(path, alone)


# --- Questions -------------------------------------------------------------------------------------


def _ask(path: str, body: Callable[[Reading], T]) -> T:
    """The answer, or CouldNotRead naming the file and the cause."""
    state, answer = sqlitefiles.read_file(path, body, check=False)
    if answer is None:
        detail = state.problem.detail if state.problem else "cannot be read"
        raise CouldNotRead(f"{os.fsdecode(os.fsencode(path))}: {detail}")
    return answer


def rows_of(path: str, memory_ids: Collection[str]) -> tuple[HistoryRow, ...]:
    """The history rows of these memories, in rowid order. Raises CouldNotRead."""
    wanted = frozenset(memory_ids)

    def body(reading: Reading) -> tuple[HistoryRow, ...]:
        select = _row_sql(_require_history(reading))
        rowids: list[int] = []
        # The memory's id stands before the long texts in a row: this scan does not read those.
        _pages(
            reading,
            "SELECT rowid, memory_id FROM history",
            lambda page: rowids.extend(rowid for rowid, memory_id in page if memory_id in wanted),
        )
        reading.connection.text_factory = _lenient
        found: list[Any] = []
        for rowid in rowids:
            found += reading.all(f"{select} WHERE rowid = ?", (rowid,))
        return tuple(map(HistoryRow._make, found))

    return _ask(path, body)


def rows_at(path: str, rowids: Collection[int]) -> dict[int, HistoryRow]:
    """The history rows with these rowids, by rowid, those that are there. Raises CouldNotRead."""
    wanted = sorted(rowids)

    def body(reading: Reading) -> dict[int, HistoryRow]:
        select = _row_sql(_require_history(reading))
        reading.connection.text_factory = _lenient
        found: dict[int, HistoryRow] = {}
        for start in range(0, len(wanted), ROWS_AT_ONCE):
            some = wanted[start : start + ROWS_AT_ONCE]
            rows = reading.all(f"{select} WHERE rowid IN ({','.join('?' * len(some))})", tuple(some))
            found.update((row[0], HistoryRow._make(row)) for row in rows)
        return found

    return _ask(path, body)


def newest(path: str, count: int) -> tuple[HistoryRow, ...]:
    """The `count` rows written last, newest first. Raises CouldNotRead."""

    def body(reading: Reading) -> tuple[HistoryRow, ...]:
        select = _row_sql(_require_history(reading))
        found: list[Any] = []
        below = (1 << 63) - 1
        while len(found) < count:
            sql = f"{select} WHERE rowid <= ? ORDER BY rowid DESC LIMIT ?"
            rows, whole = _page(reading, sql, (below, count - len(found)))
            found += rows
            if whole or not rows:
                break
            below = rows[-1][0] - 1
        return tuple(map(HistoryRow._make, found))

    return _ask(path, body)


def end_rows(path: str) -> tuple[tuple[int, Any], tuple[int, Any]] | None:
    """(rowid, id) of the first and of the last row, None where there is no row. Raises CouldNotRead."""

    def body(reading: Reading) -> tuple[tuple[Any, ...], ...]:
        _row_sql(_require_history(reading))
        reading.connection.text_factory = _lenient
        ends = [
            reading.all(f"SELECT rowid, id FROM history ORDER BY rowid {way} LIMIT 1")  # noqa: S608
            for way in ("ASC", "DESC")
        ]
        return tuple(tuple(row) for rows in ends for row in rows)

    found = _ask(path, body)
    return (found[0], found[1]) if len(found) == 2 else None


def event_counts(path: str) -> dict[str, int]:
    """How many rows each event has, most frequent first; an event that is NULL counts as "". Raises
    CouldNotRead."""

    def body(reading: Reading) -> dict[str, int]:
        _row_sql(_require_history(reading))
        events: Counter[str] = Counter()

        def take(page: Sequence[Any]) -> None:
            events.update("" if event is None else str(event) for _, event in page)

        _pages(reading, "SELECT rowid, event FROM history", take)
        return dict(events.most_common())

    return _ask(path, body)


def speakers(path: str) -> frozenset[tuple[Any, Any]]:
    """(session scope, name) of every chat message that names who said it, each once; none where mem0 keeps no
    messages (before 2.0). Raises CouldNotRead."""

    def body(reading: Reading) -> frozenset[tuple[Any, Any]]:
        if not reading.has_table("messages"):
            return frozenset()
        columns = _columns(reading, "messages")
        if not {"session_scope", "name"} <= set(columns) or "rowid" in columns:
            return frozenset()
        found: set[tuple[Any, Any]] = set()

        def take(page: Sequence[Any]) -> None:
            found.update((scope, name) for _, scope, name in page if name is not None)

        _pages(reading, "SELECT rowid, session_scope, name FROM messages", take)
        return frozenset(found)

    return _ask(path, body)


# --- Rows that an interrupted migration left ---------------------------------------------------------


@dataclass(frozen=True)
class StrandedRows:
    """A table of rows that `history` lacks some of. `first_at` is the first time in it, seconds since 1970.

    `mapping` says which of its columns each column of `history` is filled from, as mem0's own migrations do it.
    `problem` is why the rows cannot go back as they were written; None where they can.
    """

    name: str
    rows: int
    missing: int
    memories: int
    first_at: float | None
    mapping: tuple[tuple[str, str], ...]
    problem: str | None = None


@dataclass(frozen=True)
class StrandedLog:
    """`history` and the tables beside it. `lowest` is its lowest rowid, None where it is empty."""

    rows: int
    lowest: int | None
    tables: tuple[StrandedRows, ...]


Each = Callable[[str], Iterable[tuple[Any, ...]]]
"""Every row of a SELECT from one table whose first column is rowid, in rowid order."""


def stranded_log(path: str) -> StrandedLog:
    """What could go back into `history`, with nobody writing the file. Raises CouldNotRead."""

    def body(reading: Reading) -> StrandedLog:
        _row_sql(_require_history(reading))

        def each(select: str) -> Iterable[tuple[Any, ...]]:
            found: list[tuple[Any, ...]] = []
            _pages(reading, select, found.extend)
            return found

        return survey(lambda sql: reading.all(sql), each)

    return _ask(path, body)


def survey(ask: Callable[[str], list[Any]], each: Each) -> StrandedLog:
    """The same through any connection: `ask` gives the rows of a short statement, `each` those of a long one.

    Raises sqlite3.Error.
    """
    tables = {
        str(name) for (name,) in ask("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
    }
    columns = [str(row[1]) for row in ask("PRAGMA table_info(history)")]
    triggers = ask("SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = 'history'")
    present: set[Any] = set()
    lowest: int | None = None
    for rowid, row_id in each("SELECT rowid, id FROM history"):
        lowest = rowid if lowest is None else lowest
        present.add(row_id)
    began = [(_first_at(name, ask), name) for name in _STRANDED if name in tables]
    # the table that begins earlier goes in lower
    began.sort(key=lambda one: (one[0] is None, one[0] or 0.0))
    found = []
    taken: set[Any] = set()
    for first, name in began:
        one = _surveyed(name, first, columns, bool(triggers), present, taken, ask, each)
        if one is not None:
            found.append(one)
    return StrandedLog(len(present), lowest, tuple(found))


def _when_column(there: Collection[str]) -> str:
    """The column with a row's time, quoted; NULL where there is none."""
    name = next((c for c in ("created_at", "updated_at", "timestamp") if c in there), None)
    return "NULL" if name is None else quoted(name)


def _first_at(name: str, ask: Callable[[str], list[Any]]) -> float | None:
    when = _when_column([str(row[1]) for row in ask(f"PRAGMA table_info({quoted(name)})")])
    first = ask(f"SELECT {when} FROM {quoted(name)} WHERE {when} IS NOT NULL ORDER BY rowid LIMIT 1")  # noqa: S608
    return instant(first[0][0]) if first else None


def _surveyed(
    name: str,
    first: float | None,
    columns: Sequence[str],
    triggers: bool,
    present: Collection[Any],
    taken: set[Any],
    ask: Callable[[str], list[Any]],
    each: Each,
) -> StrandedRows | None:
    there = [str(row[1]) for row in ask(f"PRAGMA table_info({quoted(name)})")]
    if not set(there) >= _NEEDED or "rowid" in there:
        return None
    mapping = _mapping(columns, there)
    dropped = [column for column in there if column not in {source for _, source in mapping}]
    # mem0 leaves new_value out too, where it migrates 9 columns: it repeats new_memory
    kept = [column for column in dropped if column != "new_value"]
    lost = " OR ".join(f"{quoted(column)} IS NOT NULL" for column in kept) or "0"
    select = f"SELECT rowid, id, memory_id, ({lost}) FROM {quoted(name)}"  # noqa: S608
    rows = missing = 0
    memories: set[Any] = set()
    between = would_lose = seen_present = False
    for _, row_id, memory_id, loses in each(select):
        rows += 1
        if row_id is None or row_id in taken:
            continue
        if row_id in present:
            seen_present = True
            continue
        taken.add(row_id)
        missing += 1
        memories.add(memory_id)
        between = between or seen_present
        would_lose = would_lose or bool(loses)
    problem = None
    if triggers:
        problem = "history has a trigger, which mem0 never makes"
    elif would_lose:
        problem = f"history has no column for their {', '.join(kept)}: the agent's newer mem0 makes it, start it once"
    elif between:
        problem = "history has some of its rows from before others: they could not go back in their order"
    return StrandedRows(name, rows, missing, len(memories - {None}), first, mapping, problem)


def _mapping(columns: Sequence[str], there: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(column of history, column of the other table), as mem0 0.0.10 to 0.1.99 map a 7-column log, and later ones
    take what both have."""
    older = _OLDER_NAMES if "old_memory" not in there and "new_memory" not in there else {}
    pairs = [(name, name if name in there else older.get(name, "")) for name in columns]
    return tuple((name, source) for name, source in pairs if source in there)


# --- Everything that holds text --------------------------------------------------------------------

TEXTS: Final = ("old_memory", "new_memory", "prev_value", "new_value")
"""The columns of `history`, and of the tables that a migration leaves, that hold memories, in any version."""


class MessageRow(NamedTuple):
    """One row of `messages` (mem0 2.x)."""

    rowid: int
    session_scope: Any
    role: Any
    content: Any
    name: Any
    created_at: Any


class TextRow(NamedTuple):
    """A row of `history`, or of a table that a migration left, by what text it holds."""

    table: str
    rowid: int
    memory_id: Any
    texts: tuple[Any, ...]


@dataclass(frozen=True)
class LogTexts:
    """Every row that holds text. `tables` are those that there are, of `history` and what migrations leave."""

    file: FileState
    tables: tuple[str, ...] = ()
    messages: int | None = None
    """How many messages there are; None where there is no such table."""


def read_texts(
    path: str,
    take: Callable[[list[TextRow]], None],
    take_messages: Callable[[list[MessageRow]], None],
    begin: Callable[[], None],
    alone: bool = False,
) -> LogTexts:
    """Hands on every row of `history`, of the tables that migrations leave, and of `messages`, by pages; `begin` is
    called before the first, and again where the file turns out to be another and all is read anew.

    Never raises for what the file is: its problem says why. `alone` as for sqlitefiles.read_file.
    """

    def body(reading: Reading) -> tuple[tuple[str, ...], int | None]:
        begin()
        reading.connection.text_factory = _lenient
        there = []
        for table in ("history", *_STRANDED):
            columns = _columns(reading, table) if reading.has_table(table) else ()
            picked = [name for name in TEXTS if name in columns]
            if "memory_id" not in columns or "rowid" in columns or not picked:
                continue
            there.append(table)
            listed = ", ".join(map(quoted, picked))
            _pages(
                reading,
                f"SELECT rowid, memory_id, {listed} FROM {quoted(table)}",  # noqa: S608
                lambda page, table=table: take(  # type: ignore[misc]
                    [TextRow(table, row[0], row[1], tuple(row[2:])) for row in page]
                ),
            )
        count = _messages(reading, take_messages)
        return tuple(there), count

    state, found = sqlitefiles.read_file(path, body, check=False, alone=alone)
    return LogTexts(state) if found is None else LogTexts(state, *found)


def _messages(reading: Reading, take: Callable[[list[MessageRow]], None]) -> int | None:
    columns = _columns(reading, "messages") if reading.has_table("messages") else ()
    if not {"session_scope", "content"} <= set(columns) or "rowid" in columns:
        return None
    picked = ", ".join(quoted(name) if name in columns else "NULL" for name in MessageRow._fields[1:])
    count = 0

    def hand_on(page: list[Any]) -> None:
        nonlocal count
        count += len(page)
        take([MessageRow._make(row) for row in page])

    _pages(reading, f"SELECT rowid, {picked} FROM messages", hand_on)  # noqa: S608
    return count
