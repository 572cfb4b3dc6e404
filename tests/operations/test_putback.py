"""A stranded log put back: as mem0 wrote it, below the present rows, all of it or nothing, and never twice."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import Failed, Refused
from mem0audit.core.recover import PutBack
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from mem0audit.operations.putback import apply_put_back, plan_put_back
from mem0audit.stores.putback import NotAsPlanned
from tests.builders import StoreCopy, copy_incident
from tests.operations.test_restore import agent, in_child, steps, undisturbed
from tests.operations.test_snapshot import installed, to_wal

STEPS = ("putback.open", "putback.insert", "putback.check", "putback.commit")
LONG_GONE = ("11111111-0000-4000-8000-00000000000a", "Alice had a dog")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    """mem0 0.1.100 hung in its migration and was killed, 2.2.1 began a new log; and more than that happened."""
    store = copy_incident("stranded-history", tmp_path)
    with closing(sqlite3.connect(store.history)) as log:
        old, text = LONG_GONE
        add = "INSERT INTO history_old VALUES (?, ?, ?, ?, NULL, ?, ?, ?, ?)"
        when = "2026-01-05T01:10:00-08:00"
        log.execute(add, ("r1", old, None, text, "ADD", when, None, 0))
        log.execute(add, ("r2", old, text, text + "s", "UPDATE", when, "2026-01-06T01:10:00-08:00", 0))
        # deleted after the migration: by the log's last word it is gone
        new = "INSERT INTO history VALUES (?, ?, ?, NULL, 'DELETE', NULL, NULL, 1, NULL, NULL)"
        log.execute(new, ("r3", old, text + "s"))
        # a text that is no UTF-8, and a blob where a text should be
        log.execute(
            "INSERT INTO history_old VALUES ('r4', 'x', NULL, CAST(x'ff61' AS TEXT), NULL, 'ADD', x'00', NULL, 0)"
        )
        log.commit()
    return store


def table(path: Path, name: str = "history", columns: str = "*") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as log:
        log.text_factory = bytes
        return log.execute(f"SELECT {columns} FROM {name} ORDER BY rowid").fetchall()


def put_back(store: StoreCopy, folder: Path, *, ledger: bool = False) -> PutBack:
    host = this_host()
    install = installed(store)
    plan = undisturbed(lambda: plan_put_back(install, host, str(folder), ledger=ledger))
    assert plan.tables
    return undisturbed(lambda: apply_put_back(plan, host))


@pytest.mark.parametrize("wal", [False, True])
def test_every_row_is_back_below_the_present_ones(tmp_path: Path, store: StoreCopy, wal: bool) -> None:
    if wal:
        to_wal(store.history)
    there, stranded = table(store.history), table(store.history, "history_old")
    done = put_back(store, tmp_path / "snapshots")
    assert (done.rows_before, done.rows_after) == (3, 14) and done.warnings == ()
    now = table(store.history)
    assert now[-3:] == there
    # id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted; then actor_id and role
    assert [row[:8] for row in now[:11]] == [(*row[:4], *row[5:]) for row in stranded]
    assert {row[8:] for row in now[:11]} == {(None, None)}
    assert table(store.history, "history_old") == stranded
    assert store.history.read_bytes()[18] == (2 if wal else 1)
    with closing(sqlite3.connect(Path(done.snapshot) / "history.db")) as before:
        assert before.execute("SELECT count(*) FROM history").fetchone() == (3,)
        assert before.execute("SELECT count(*) FROM history_old").fetchone() == (11,)
    found = audit(installed(store), this_host(), keep=False, ledger=False).findings
    assert not {f.code for f in found} & {"I205", "D303", "H402", "H403"}
    again = plan_put_back(installed(store), this_host(), str(tmp_path / "snapshots"), ledger=False)
    assert again.tables == () and again.missing == 0


def test_mem0_answers_for_the_old_ids_again(tmp_path: Path, store: StoreCopy, build: Any) -> None:
    put_back(store, tmp_path / "snapshots")
    with build(folder=store.folder) as mem0:
        for operation in store.truth["operations"][:8]:
            (row,) = mem0.memory.history(operation["id"])
            assert row["new_memory"] == operation["text"] and row["event"] == "ADD"
        events = mem0.memory.history(LONG_GONE[0])
        assert sorted(row["event"] for row in events) == ["ADD", "DELETE", "UPDATE"]
        added = mem0.add("Carol is new here", user_id="carol")
    assert table(store.history, columns="memory_id")[-1] == (added.encode(),)
    found = audit(installed(store), this_host(), keep=False, ledger=False)
    assert found.counts["live"] == found.counts["memories"] + 1  # r4, which is a memory of nobody
    assert {f.memory_id for f in found.findings if f.code == "D302"} == {"x"}


@pytest.mark.parametrize(
    ("step", "fault"),
    [(STEPS[0], "ENOSPC"), (STEPS[1], "kill"), (STEPS[2], "ENOSPC"), (STEPS[3], "kill")],
)
def test_all_of_it_or_nothing(tmp_path: Path, store: StoreCopy, step: str, fault: str) -> None:
    before = table(store.history), table(store.history, "history_old")

    def do(name: str) -> None:
        if name == step:
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(28, "No space left on device")

    with steps(do):
        if fault == "kill":
            assert in_child(lambda: put_back(store, tmp_path / "s") and 0) == -signal.SIGKILL
        else:
            with pytest.raises(Failed, match="no space left on device; nothing was changed"):
                put_back(store, tmp_path / "s")
    assert (table(store.history), table(store.history, "history_old")) == before
    assert put_back(store, tmp_path / "s").rows_after == 14


def test_rows_that_do_not_come_out_right_are_taken_back(tmp_path: Path, store: StoreCopy) -> None:
    before = table(store.history)

    def do(name: str) -> None:
        if name == "putback.check":
            raise NotAsPlanned("the rows did not come out as they should")

    with steps(do), pytest.raises(Failed, match="nothing was changed"):
        put_back(store, tmp_path / "s")
    assert table(store.history) == before


def test_refused_while_an_agent_has_it(tmp_path: Path, store: StoreCopy) -> None:
    with agent(store) as pid, pytest.raises(Refused, match=rf"in use by pid {pid} .*"):
        plan_put_back(installed(store), this_host(), str(tmp_path / "s"), ledger=False)
    plan = plan_put_back(installed(store), this_host(), str(tmp_path / "s"), ledger=False)
    with closing(sqlite3.connect(store.history, isolation_level=None)) as other:
        # somebody that /proc did not show: another container
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises((Refused, Failed)):
            apply_put_back(plan, this_host())
    assert len(table(store.history)) == 3


def test_a_downgrade_strands_it_the_other_way_round(tmp_path: Path, store: StoreCopy) -> None:
    """mem0 0.1.99 and older rename a newer log to old_history, and begin one of 9 columns."""
    nine = (
        "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, new_value TEXT,"
        " event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER)"
    )
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("DROP TABLE history_old")
        log.execute("ALTER TABLE history RENAME TO old_history")
        log.execute(nine)
        log.commit()
    # its rows name roles, for which that log has no column: they would be lost
    with pytest.raises(Refused, match="no column for their actor_id, role"):
        plan_put_back(installed(store), this_host(), str(tmp_path / "s"), ledger=False)
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("UPDATE old_history SET role = NULL, actor_id = NULL")
        log.commit()
    stranded = table(store.history, "old_history")
    done = put_back(store, tmp_path / "s")
    assert (done.rows_before, done.rows_after) == (0, 3)
    assert table(store.history, columns="rowid, id") == [(n, row[0]) for n, row in enumerate(stranded, 1)]


def test_a_log_of_7_columns_goes_in_as_mem0_migrates_it(tmp_path: Path, store: StoreCopy) -> None:
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("DROP TABLE history_old")
        log.execute(
            "CREATE TABLE history_old (id TEXT PRIMARY KEY, memory_id TEXT, prev_value TEXT, new_value TEXT,"
            " event TEXT, timestamp DATETIME, is_deleted INTEGER)"
        )
        log.execute(
            "INSERT INTO history_old VALUES ('r9', 'm', 'was', 'is', 'UPDATE', '2024-07-01 08:00:00', 0)"
        )
        log.commit()
    put_back(store, tmp_path / "s")
    when = b"2024-07-01 08:00:00"
    assert table(store.history)[0] == (b"r9", b"m", b"was", b"is", b"UPDATE", when, when, 0, None, None)


def test_two_tables_go_in_by_their_time_and_only_what_is_missing(tmp_path: Path, store: StoreCopy) -> None:
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("CREATE TABLE old_history AS SELECT * FROM history WHERE 0")
        add = (
            "INSERT INTO old_history VALUES"
            " (?, ?, NULL, 'a', 'ADD', '2025-01-01T00:00:00+00:00', NULL, 0, NULL, NULL)"
        )
        log.executemany(add, [("q1", "m1"), ("q2", "m2"), ("r1", "m3"), (None, "m4")])
        log.commit()
    done = put_back(store, tmp_path / "s")
    # r1 is in both, and goes in with the older one; a row without an id is none of mem0's
    assert [(t.name, t.rows, t.missing) for t in done.tables] == [
        ("old_history", 4, 3),
        ("history_old", 11, 10),
    ]
    ids = [row[0] for row in table(store.history, columns="id")]
    assert ids[:3] == [b"q1", b"q2", b"r1"] and len(ids) == len(set(ids)) == 16


def test_rows_from_between_present_ones_stay_where_they_are(tmp_path: Path, store: StoreCopy) -> None:
    columns = "id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted"
    copy = f"INSERT INTO history ({columns}) SELECT {columns} FROM history_old WHERE rowid = ?"
    with closing(sqlite3.connect(store.history)) as log:
        log.execute(copy, (3,))
        log.commit()
    with pytest.raises(Refused, match="in their order"):
        plan_put_back(installed(store), this_host(), str(tmp_path / "s"), ledger=False)


def test_a_trigger_and_a_log_without_its_table_are_refused(tmp_path: Path, store: StoreCopy) -> None:
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("CREATE TRIGGER t AFTER INSERT ON history BEGIN DELETE FROM history_old; END")
        log.commit()
    with pytest.raises(Refused, match="trigger"):
        plan_put_back(installed(store), this_host(), str(tmp_path / "s"), ledger=False)
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("DROP TABLE history")
        log.commit()
    with pytest.raises(Refused, match="no history table yet"):
        plan_put_back(installed(store), this_host(), str(tmp_path / "s"), ledger=False)


def test_the_chain_of_seals_is_told(tmp_path: Path, store: StoreCopy) -> None:
    host = this_host()
    assert audit(installed(store), host, seal=True).seal.extended
    put_back(store, tmp_path / "s", ledger=True)
    report = undisturbed(lambda: audit(installed(store), host))
    assert not {f.code for f in report.findings} & {"H408", "D310", "D311"}
