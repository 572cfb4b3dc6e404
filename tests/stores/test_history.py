"""history.db of every schema, live, damaged and odd: every row in the order of writing, none twice."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import HistoryRow, MessageScope
from mem0audit.stores import history
from mem0audit.stores.history import event_counts, newest, read_history, read_history_file, read_rows, rows_of
from tests.speed import Allowance

DATA = Path(__file__).parent.parent / "data"
SEVEN = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, prev_value TEXT, new_value TEXT, event TEXT,"
    " timestamp DATETIME, is_deleted INTEGER)"
)
NINE = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT,"
    " new_value TEXT, event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER)"
)
TEN = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,"
    " created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
)
MESSAGES = (
    "CREATE TABLE messages (id TEXT PRIMARY KEY, session_scope TEXT, role TEXT, content TEXT, name TEXT,"
    " created_at DATETIME)"
)


class Rows:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.pages: list[Sequence[HistoryRow]] = []

    def rows(self, page: Sequence[HistoryRow]) -> None:
        self.pages.append(page)

    @property
    def all(self) -> list[HistoryRow]:
        return [row for page in self.pages for row in page]


def log(path: Path, *statements: str, rows: Sequence[tuple[Any, ...]] = (), schema: str = TEN) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(schema)
    for statement in statements:
        connection.execute(statement)
    if rows:
        marks = ",".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO history VALUES ({marks})", rows)
    connection.commit()
    connection.close()
    return path


def add_row(number: int, memory: Any = None, event: Any = "ADD", text: Any = "text") -> tuple[Any, ...]:
    memory = f"m{number}" if memory is None else memory
    return (f"r{number}", memory, None, text, event, "2026-01-01T00:00:00+00:00", None, 0, None, None)


def fingerprint(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            stat = path.stat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path)] = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, digest)
    return found


# --- The real logs ---------------------------------------------------------------------------------

LOGS = sorted(DATA.rglob("history.db"))


@pytest.mark.parametrize("path", LOGS, ids=[str(p.relative_to(DATA).parent).replace("/", "-") for p in LOGS])
def test_every_real_log_row_for_row(path: Path) -> None:
    before = fingerprint(path.parent)
    found = read_history_file(str(path))
    state, sink = read_rows(str(path), Rows)
    assert fingerprint(path.parent) == before
    assert sink is not None
    assert state.problem is None
    connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    theirs = connection.execute("SELECT rowid AS rowid_, * FROM history ORDER BY rowid").fetchall()
    tables = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    counts = {t: connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}
    sql = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    connection.close()
    assert len(sink.all) == len(theirs)
    for ours, row in zip(sink.all, theirs, strict=True):
        assert ours.rowid == row["rowid_"]
        for field in HistoryRow._fields[1:]:
            assert getattr(ours, field) == (row[field] if field in row.keys() else None)  # noqa: SIM118
    assert dict(found.tables) == counts
    assert dict(found.create_statements) == sql
    assert found.schema == ("9 columns" if "0.1.40" in str(path) else "10 columns")
    assert found.first_row_id == (theirs[0]["id"] if theirs else None)
    assert found.file.integrity == ()
    if "stranded" not in str(path):
        assert found.stranded == ()


def test_message_scopes() -> None:
    found = read_history_file(str(DATA / "stores" / "2.2.1" / "mem0_dir" / "history.db"))
    assert found.message_scopes == (
        MessageScope("agent_id=agent7&user_id=bob", 2),
        MessageScope("run_id=run42&user_id=bob", 2),
        MessageScope("user_id=alice", 4),
        MessageScope("user_id=carol", 2),
    )


# --- Schemas ---------------------------------------------------------------------------------------


def test_seven_columns(tmp_path: Path) -> None:
    rows = [
        ("r1", "m1", None, "new", "ADD", "2024-01-01", 0),
        ("r2", "m1", "new", "newer", "UPDATE", "2024-01-02", 0),
    ]
    path = log(tmp_path / "history.db", rows=rows, schema=SEVEN)
    assert read_history_file(str(path)).schema == "7 columns"
    _, sink = read_rows(str(path), Rows)
    assert sink is not None
    assert sink.all == [
        HistoryRow(1, "r1", "m1", None, "new", "ADD", "2024-01-01", "2024-01-01", 0, None, None),
        HistoryRow(2, "r2", "m1", "new", "newer", "UPDATE", "2024-01-02", "2024-01-02", 0, None, None),
    ]


def test_nine_columns_and_foreign_columns(tmp_path: Path) -> None:
    row = ("r1", "m1", "old", "new", "ignored", "UPDATE", "a", "b", 0)
    path = log(tmp_path / "history.db", rows=[row], schema=NINE)
    assert read_history_file(str(path)).schema == "9 columns"
    assert newest(str(path), 5) == (
        HistoryRow(1, "r1", "m1", "old", "new", "UPDATE", "a", "b", 0, None, None),
    )
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE history ADD COLUMN mine TEXT")
    connection.execute("CREATE INDEX mine_too ON history (memory_id)")
    connection.commit()
    connection.close()
    found = read_history_file(str(path))
    assert found.schema == "other"
    assert found.columns[-1] == "mine"
    assert "mine_too" in found.create_statements
    assert [row.id for row in newest(str(path), 5)] == ["r1"]


def test_other_files(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute('CREATE TABLE "chat ""log""" (x)')
    connection.execute('INSERT INTO "chat ""log""" VALUES (1)')
    connection.commit()
    connection.close()
    found = read_history_file(str(tmp_path / "other.db"))
    assert found.file.problem is not None
    assert found.file.problem.kind == "no-table"
    assert (found.schema, dict(found.tables)) == (None, {'chat "log"': 1})
    state, sink = read_rows(str(tmp_path / "other.db"), Rows)
    assert sink is None
    assert state.problem is not None
    assert state.problem.kind == "no-table"
    for call in (lambda p: newest(p, 1), event_counts, lambda p: rows_of(p, ["m"])):
        with pytest.raises(CouldNotRead, match=r"other\.db.*no table history"):
            call(str(tmp_path / "other.db"))
    odd = log(tmp_path / "odd.db", schema="CREATE TABLE history (a, b)")
    assert read_history_file(str(odd)).schema == "other"
    state, sink = read_rows(str(odd), Rows)
    assert sink is None
    assert state.problem is not None
    assert state.problem.kind == "no-table"
    none = log(tmp_path / "norow.db", schema=TEN + " WITHOUT ROWID", rows=[add_row(1)])
    state, sink = read_rows(str(none), Rows)
    assert state.problem is not None
    assert state.problem.kind == "no-table"
    view = log(
        tmp_path / "view.db", schema="CREATE VIEW history AS SELECT 1 AS id, 2 AS memory_id, 3 AS event"
    )
    assert read_rows(str(view), Rows)[0].problem is not None


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("missing", lambda path: None),
        ("folder", lambda path: path.mkdir()),
        ("empty", lambda path: path.write_bytes(b"")),
        ("not-sqlite", lambda path: path.write_text("hello " * 100)),
        ("link-loop", lambda path: path.symlink_to(path)),
    ],
)
def test_files_that_do_not_read(tmp_path: Path, kind: str, make: Any) -> None:
    path = tmp_path / "history.db"
    make(path)
    found = read_history_file(str(path))
    state, sink = read_rows(str(path), Rows)
    assert sink is None
    for problem in (found.file.problem, state.problem):
        assert problem is not None
        assert problem.kind == kind
    with pytest.raises(CouldNotRead, match=str(path)):
        newest(str(path), 1)


# --- Stranded tables -------------------------------------------------------------------------------


def test_stranded_tables_say_which_rows_history_lacks(tmp_path: Path) -> None:
    path = log(
        tmp_path / "history.db",
        NINE.replace("history", "history_old", 1),
        SEVEN.replace("history", "old_history", 1),
        "INSERT INTO history_old (id, memory_id, event) VALUES ('r1', 'm1', 'ADD'), ('x', 'mx', 'ADD'),"
        " ('y', NULL, 'ADD'), (NULL, 'mz', 'ADD')",
        "INSERT INTO old_history (id, memory_id, event) VALUES ('r1', 'm1', 'ADD')",
        rows=[add_row(1), add_row(2)],
    )
    found = read_history_file(str(path))
    old, older = found.stranded
    assert (old.name, old.rows, old.missing_rows, old.memory_ids) == ("history_old", 4, 3, {"mx", "mz"})
    assert (older.name, older.rows, older.missing_rows, older.memory_ids) == (
        "old_history",
        1,
        0,
        frozenset(),
    )
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE history")
    connection.commit()
    connection.close()
    found = read_history_file(str(path))
    assert found.file.problem is not None
    assert (found.stranded[0].missing_rows, found.stranded[1].missing_rows) == (4, 1)


def test_the_real_stranded_log() -> None:
    path = DATA / "incidents" / "stranded-history" / "mem0_dir" / "history.db"
    found = read_history_file(str(path))
    assert found.stranded
    assert all(table.rows >= table.missing_rows > 0 for table in found.stranded)
    assert all(table.memory_ids for table in found.stranded)


# --- Odd values ------------------------------------------------------------------------------------


def test_values_of_any_type(tmp_path: Path) -> None:
    odd = [None, 5, 1.5, b"\xff\x00", "nul\0inside", "\U0001f600", "", "x" * 10_000_000]
    rows: list[tuple[Any, ...]] = [(f"r{n}", *([value] * 9)) for n, value in enumerate(odd)]
    rows += [(value, "m", None, None, "ADD", None, None, 0, None, None) for value in (7, 2.5, b"id", None)]
    path = log(tmp_path / "history.db", rows=rows)
    state, sink = read_rows(str(path), Rows)
    assert state.problem is None
    assert sink is not None
    connection = sqlite3.connect(path)
    assert [tuple(row) for row in sink.all] == connection.execute("SELECT rowid, * FROM history").fetchall()
    connection.close()
    assert sink.all[4].new_memory == "nul\0inside"
    assert read_history_file(str(path)).first_row_id == "r0"
    assert len(newest(str(path), 100)) == 12
    assert sum(event_counts(str(path)).values()) == 12


def test_texts_that_are_not_utf8(tmp_path: Path) -> None:
    path = log(tmp_path / "history.db", MESSAGES, rows=[add_row(n) for n in range(10)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE history SET new_memory = CAST(x'61ff00ed' AS TEXT) WHERE id = 'r5'")
    connection.execute("UPDATE history SET event = CAST(x'fe' AS TEXT), memory_id = 'mine' WHERE id = 'r6'")
    connection.execute(
        "INSERT INTO messages (id, session_scope, content) VALUES ('a', CAST(x'fe' AS TEXT), 't'), ('b', NULL, 't')"
    )
    connection.commit()
    connection.close()
    state, sink = read_rows(str(path), Rows)
    assert state.problem is None
    assert sink is not None
    assert [row.rowid for row in sink.all] == list(range(1, 11))
    assert sink.all[5].new_memory == "a\udcff\0\udced"
    assert sink.all[4].new_memory == "text"
    assert event_counts(str(path)) == {"ADD": 9, "\udcfe": 1}
    assert rows_of(str(path), ["mine"])[0].event == "\udcfe"
    assert newest(str(path), 5)[-1].new_memory == "a\udcff\0\udced"
    assert read_history_file(str(path)).message_scopes == (MessageScope("", 1), MessageScope("\udcfe", 1))


# --- Questions -------------------------------------------------------------------------------------


def test_questions(tmp_path: Path) -> None:
    rows = [add_row(n, memory=f"m{n % 3}", event="ADD" if n < 3 else "UPDATE") for n in range(9)]
    path = str(log(tmp_path / "history.db", rows=rows))
    assert [row.rowid for row in rows_of(path, ["m1"])] == [2, 5, 8]
    assert [row.rowid for row in rows_of(path, {"m1", "m0"})] == [1, 2, 4, 5, 7, 8]
    assert rows_of(path, []) == rows_of(path, ["none"]) == ()
    assert [row.rowid for row in newest(path, 3)] == [9, 8, 7]
    assert newest(path, 0) == ()
    assert len(newest(path, 100)) == 9
    assert list(event_counts(path).items()) == [("UPDATE", 6), ("ADD", 3)]
    empty = str(log(tmp_path / "empty.db"))
    assert (rows_of(empty, ["m"]), newest(empty, 3), event_counts(empty)) == ((), (), {})
    state, sink = read_rows(empty, Rows)
    assert (state.problem, sink is not None and sink.all) == (None, [])


# --- Live ------------------------------------------------------------------------------------------


class Meddling(Rows):
    """A sink that does something to the file at its first page."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def rows(self, page: Sequence[HistoryRow]) -> None:
        super().rows(page)
        if len(self.pages) == 1:
            self.act()


def starts(act: Any) -> tuple[list[Meddling], Any]:
    """A `start` that meddles in the first run only; and the sinks it made."""
    made: list[Meddling] = []

    def start() -> Meddling:
        made.append(Meddling(act if not made else lambda: None))
        return made[-1]

    return made, start


def run(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


NEW_ROW = "INSERT INTO history (id, memory_id, event) VALUES ('new{0}', 'mnew', 'ADD')"


@pytest.mark.parametrize("rows", [3, 5000])
def test_rows_added_meanwhile_are_given(tmp_path: Path, rows: int) -> None:
    path = log(tmp_path / "history.db", rows=[add_row(n) for n in range(rows)])
    made, start = starts(lambda: run(path, NEW_ROW.format(1), NEW_ROW.format(2)))
    state, sink = read_rows(str(path), start)
    assert state.problem is None
    assert sink is not None
    assert len(made) == 1
    assert [row.rowid for row in sink.all] == list(range(1, rows + 3))


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE history", TEN, NEW_ROW.format(1)),
        ("DELETE FROM history", NEW_ROW.format(1)),
        ("DELETE FROM history WHERE id = 'r2'",),
        ("DELETE FROM history WHERE id = 'r0'", NEW_ROW.format(1)),
        ("ALTER TABLE history RENAME TO history_old", TEN, "INSERT INTO history SELECT * FROM history_old"),
    ],
)
def test_a_log_changed_otherwise_is_read_anew(tmp_path: Path, statements: tuple[str, ...]) -> None:
    path = log(tmp_path / "history.db", rows=[add_row(n) for n in range(5)])
    made, start = starts(lambda: run(path, *statements))
    state, sink = read_rows(str(path), start)
    assert state.problem is None
    assert sink is made[-1]
    assert len(made) == 2
    connection = sqlite3.connect(path)
    expected = connection.execute("SELECT rowid, * FROM history").fetchall()
    connection.close()
    assert [tuple(row) for row in sink.all] == expected


def test_a_log_that_never_holds_still_is_given_up(tmp_path: Path) -> None:
    path = log(tmp_path / "history.db", rows=[add_row(n) for n in range(50)])
    made: list[Meddling] = []

    def start() -> Meddling:
        made.append(Meddling(lambda: run(path, f"DELETE FROM history WHERE id = 'r{len(made) * 3}'")))
        return made[-1]

    state, sink = read_rows(str(path), start)
    assert (sink, len(made)) == (None, 3)
    assert state.problem is not None
    assert state.problem.kind == "gone"


WRITER = """
import select, sqlite3, sys, time
sys.path.insert(0, sys.argv[3])
from tests.speed import kept_waiting
c = sqlite3.connect(sys.argv[1], timeout=5)
c.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
c.execute("PRAGMA synchronous = OFF")
print("ready", flush=True)
n, worst = 0, 0.0
while True:
    n += 1
    waited, begun = kept_waiting(), time.perf_counter()
    with c:
        row = (f"w{n}", "m", "t" * 300)
        c.execute("INSERT INTO history (id, memory_id, event, new_memory) VALUES (?, ?, 'ADD', ?)", row)
    took = time.perf_counter() - begun
    if took > worst:
        worst = max(worst, took - (kept_waiting() - waited))
    if n % 50 == 0 and select.select([sys.stdin], [], [], 0)[0]:
        break
c.close()
print(n, worst)
"""


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_beside_a_writer_at_full_speed(tmp_path: Path, mode: str) -> None:
    path = log(tmp_path / "history.db", rows=[add_row(n) for n in range(20_000)])
    command = [sys.executable, "-c", WRITER, str(path), mode, str(Path(__file__).parents[2])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        lengths = []
        within = Allowance()
        end = time.perf_counter() + 1
        while time.perf_counter() < end or len(set(lengths)) < 3:
            state, sink = read_rows(str(path), Rows)
            assert state.problem is None
            assert sink is not None
            assert [row.rowid for row in sink.all] == list(range(1, len(sink.all) + 1))
            lengths.append(len(sink.all))
            assert state.longest_hold_s < within(0.5)
        out, _ = writer.communicate(b"stop\n", timeout=300)
    written, worst = out.split()
    assert lengths == sorted(lengths)
    assert 20_000 < lengths[-1] <= 20_000 + int(written)
    assert len(set(lengths)) > 1
    assert float(worst) < within(1)


@pytest.mark.thorough
def test_300_000_rows_hold_nobody_up(tmp_path: Path) -> None:
    path = log(tmp_path / "history.db", rows=[add_row(n, text=f"text {n}" * 10) for n in range(300_000)])

    class Count:
        def __init__(self) -> None:
            self.count = 0

        def rows(self, page: Sequence[HistoryRow]) -> None:
            if not self.count:
                run(path, NEW_ROW.format(1))
            self.count += len(page)

    within = Allowance()
    state, sink = read_rows(str(path), Count)
    assert sink is not None
    assert (sink.count, state.problem) == (300_001, None)
    assert state.longest_hold_s < within(0.5)
    found = read_history_file(str(path))
    assert found.tables == {"history": 300_001}
    assert found.file.longest_hold_s < within(0.5 + 0.2)  # an integrity check stops itself after 0.4


def test_hot_journal(tmp_path: Path) -> None:
    path = log(tmp_path / "history.db", rows=[add_row(n, text="t" * 2000) for n in range(200)])
    code = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 2'); c.execute('PRAGMA cache_spill = 1'); c.execute('BEGIN')\n"
        "c.execute(\"UPDATE history SET new_memory = 'torn'\"); c.execute('DELETE FROM history WHERE rowid % 3')\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=300)
    before = fingerprint(tmp_path)
    state, sink = read_rows(str(path), Rows)
    assert fingerprint(tmp_path) == before
    assert sink is not None
    assert (state.hot_journal, state.problem, state.way) == (True, None, "scratch copy")
    assert [row.id for row in sink.all] == [f"r{n}" for n in range(200)]
    assert {row.new_memory for row in sink.all} == {"t" * 2000}
    assert read_history_file(str(path)).file.hot_journal


# --- Damage ----------------------------------------------------------------------------------------


def test_a_damaged_page_costs_its_rows_only(tmp_path: Path) -> None:
    path = log(tmp_path / "history.db", MESSAGES, rows=[add_row(n, text="t" * 300) for n in range(2000)])
    connection = sqlite3.connect(path)
    leaves = [
        r[0]
        for r in connection.execute("SELECT pageno FROM dbstat WHERE name = 'history' AND pagetype = 'leaf'")
    ]
    connection.close()
    with path.open("r+b") as file:
        file.seek((leaves[len(leaves) // 2] - 1) * 4096)
        file.write(b"\0" * 4096)
    state, sink = read_rows(str(path), Rows)
    assert sink is not None
    rowids = [row.rowid for row in sink.all]
    assert 1970 < len(rowids) < 2000
    assert rowids == sorted(set(rowids))
    assert state.problem is not None
    assert state.problem.kind == "damaged"
    assert str(len(rowids)) in state.problem.detail
    found = read_history_file(str(path))
    assert found.file.integrity
    assert found.tables["messages"] == 0


def test_a_truncated_log(tmp_path: Path) -> None:
    path = log(tmp_path / "history.db", rows=[add_row(n, text="t" * 300) for n in range(2000)])
    os.truncate(path, path.stat().st_size // 2)
    state, sink = read_rows(str(path), Rows)
    assert sink is not None
    assert len(sink.all) > 200
    assert state.problem is not None
    assert state.problem.kind == "damaged"
    found = read_history_file(str(path))
    assert found.file.problem is not None
    assert found.file.problem.kind == "damaged"
    assert found.schema == "10 columns"


def test_rows_are_named_tuples_in_pages(tmp_path: Path) -> None:
    path = log(tmp_path / "history.db", rows=[add_row(n) for n in range(history.PAGE_ROWS * 2 + 5)])
    _, sink = read_rows(str(path), Rows)
    assert sink is not None
    sizes = [len(page) for page in sink.pages]  # a page may end early, by the clock
    assert max(sizes) <= history.PAGE_ROWS < sum(sizes) == len(sink.all) == history.PAGE_ROWS * 2 + 5
    assert isinstance(sink.all[0], HistoryRow)


# --- With a child ----------------------------------------------------------------------------------


def shapes(tmp_path: Path) -> list[Path]:
    """Every real log, and files that read in part or not at all."""
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(LOGS[0].read_bytes()[:5000])
    empty = tmp_path / "empty.db"
    with closing(sqlite3.connect(empty)) as connection:
        connection.execute("CREATE TABLE other (id)")
    return [*LOGS, damaged, empty, tmp_path / "missing.db"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_child_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_threads: None, dies: bool
) -> None:
    paths = shapes(tmp_path)
    alone = [read_history(str(path), Rows) for path in paths]
    answers: list[bool] = []
    described, parent = history._described, os.getpid()

    def noted(child: Any, path: str, alone: bool) -> Any:
        answers.append(True)
        return described(child, path, alone)

    def describe(path: str, alone: bool = False) -> Any:
        if dies and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return read_history_file(path, alone)

    monkeypatch.setattr(history, "HELPED_BYTES", 0)
    monkeypatch.setattr(history, "_described", noted)
    monkeypatch.setattr(history, "read_history_file", describe)
    for path, (file, sink) in zip(paths, alone, strict=True):
        again, rows = read_history(str(path), Rows)
        assert replace(again, file=replace(again.file, longest_hold_s=0.0)) == replace(
            file, file=replace(file.file, longest_hold_s=0.0)
        )
        assert (None if rows is None else rows.all) == (None if sink is None else sink.all)
    assert len(answers) == len(paths) - 1  # a file that is not there is no large file
