"""Facts in the ledger: what holds when, what is refused, and writers that meet."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import mem0audit
from mem0audit import facts
from mem0audit.core.errors import Failed, Refused, UsageProblem
from mem0audit.core.model import Install
from mem0audit.core.points import PointRecord
from mem0audit.core.times import instant
from mem0audit.install.host import this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.stores import facts as facts_store
from mem0audit.stores import ledger as store
from mem0audit.stores.ledger import STEPS
from tests.builders import fork


def at(text: str) -> int:
    found = instant(text)
    assert found is not None
    return int(found)


NOW = at("2026-09-15T12:00:00Z")
AUTUMN = "2026-10-01"


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Paths of an install; its stores need not be there."""
    return mem0audit.locate(history=str(tmp_path / "history.db"), qdrant_path=str(tmp_path / "qdrant"))


@pytest.fixture
def where(install: Install) -> Iterator[dict[str, Any]]:
    yield {"install": install}


def ledger_of(install: Install) -> Path:
    with ledgers.opened(install, this_host()) as book:
        assert isinstance(book, store.Ledger)
        return book.path


def values(found: tuple[Any, ...]) -> list[str]:
    return [fact.value for fact in found]


def test_a_value_to_come_holds_when_its_time_comes(where: dict[str, Any]) -> None:
    facts.remember("alice", "employer", "Contoso", now=NOW, **where)
    facts.remember(
        "alice", "employer", "Fabrikam", valid_from=AUTUMN, source="mail of 3 May", now=NOW, **where
    )
    for when, value in (("2026-09-30T23:59:59", "Contoso"), ("2026-10-01T00:00:00", "Fabrikam")):
        assert values(facts.current("alice", "employer", now=at(when + "Z"), **where)) == [value]
        assert values(facts.as_of(when, "alice", "employer", now=NOW, **where)) == [value]
        assert values(facts.as_of(at(when + "Z"), now=NOW, **where)) == [value]
    assert values(facts.as_of("2026-09-30", now=NOW, **where)) == ["Contoso"]
    assert values(facts.as_of("2026-10-01T01:59:59+02:00", now=NOW, **where)) == ["Contoso"]
    assert facts.as_of(NOW - 1, now=NOW, **where) == ()
    first, second = facts.history("alice", **where)
    assert (first.valid_from, first.valid_to, second.valid_from, second.valid_to) == (
        *(NOW, at(AUTUMN), at(AUTUMN)),
        None,
    )
    assert second.source == "mail of 3 May"


def test_a_subject_alone_gives_its_whole_state(where: dict[str, Any]) -> None:
    for attribute, value in (("home", "Oslo"), ("employer", "Contoso"), ("diet", "vegan")):
        facts.remember("alice", attribute, value, now=NOW, **where)
    facts.remember("bob", "home", "Quito", now=NOW, **where)
    facts.revoke("alice", "diet", now=NOW + 10, **where)
    found = facts.current("alice", now=NOW + 10, **where)
    assert [(f.attribute, f.value) for f in found] == [("employer", "Contoso"), ("home", "Oslo")]
    assert values(facts.as_of(NOW + 9, "alice", now=NOW, **where)) == ["vegan", "Contoso", "Oslo"]
    assert len(facts.as_of(NOW + 9, now=NOW, **where)) == 4
    assert len(facts.history(**where)) == 4


def test_what_is_refused_changes_nothing(where: dict[str, Any]) -> None:
    facts.remember("api", "version", "1", valid_from=NOW, now=NOW, **where)
    facts.revoke("api", "version", at=NOW + 100, now=NOW + 50, **where)
    before = facts.history(**where)
    for begins in (NOW - 1, NOW, NOW + 99):
        with pytest.raises(Refused):
            facts.remember("api", "version", "2", valid_from=begins, now=NOW, **where)
    for bad in ((NOW + 100, NOW + 200), (NOW, NOW + 200), (NOW - 5, NOW + 200)):
        with pytest.raises(Refused):
            facts.revoke("api", "version", at=bad[0], now=bad[1], **where)
    for subject, attribute in (("api", "owner"), ("nobody", "version")):
        with pytest.raises(Refused, match="no value is known"):
            facts.revoke(subject, attribute, now=NOW, **where)
    for words in ((" ", "version", "2"), ("api", "", "2"), ("api", "version", "\n")):
        with pytest.raises(UsageProblem):
            facts.remember(*words, now=NOW, **where)
    with pytest.raises(UsageProblem):
        facts.remember("api", "version", "2", valid_from="soon", now=NOW, **where)
    assert facts.history(**where) == before
    facts.remember("api", "version", "2", valid_from=NOW + 100, now=NOW, **where)
    assert values(facts.as_of(NOW + 100, now=NOW, **where)) == ["2"]


def test_the_database_itself_holds_the_line(install: Install, where: dict[str, Any]) -> None:
    facts.remember("api", "version", "1", now=NOW, **where)
    insert = "INSERT INTO facts (subject, attribute, value, valid_from, valid_to, recorded_at) VALUES "
    with closing(store.connect(ledger_of(install))) as db:
        for row in (
            f"('api', 'version', '2', {NOW}, {NOW + 5}, 0)",  # the same start
            f"('api', 'version', '2', {NOW + 9}, NULL, 0)",  # two that are open
            f"('api', 'x', '2', {NOW}, {NOW}, 0)",  # empty
            f"('api', 'x', '2', {NOW}, {NOW - 1}, 0)",
            f"('api', 'x', '2', {NOW}.5, NULL, 0)",
            "('api', 'x', '2', 'soon', NULL, 0)",
            f"('api', 'x', '2', {NOW}, 'soon', 0)",
        ):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(insert + row)
        plan = db.execute(
            "EXPLAIN QUERY PLAN SELECT value FROM facts WHERE subject = 'api' AND attribute = 'version'"
            f" AND valid_from <= {NOW} AND (valid_to IS NULL OR {NOW} < valid_to)"
        ).fetchall()
        assert "USING INDEX" in plan[0][3]
        assert db.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_a_ledger_from_before_gets_the_table(install: Install, where: dict[str, Any]) -> None:
    machine = this_host()
    identity = ledgers.identity_of(install, machine)
    folder = Path(ledgers.ledger_folder(machine))
    folder.mkdir(parents=True)
    path = store.new_path(folder, identity)
    before = [step for step in STEPS if not any("TABLE facts" in line for line in step)]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        store.migrate(db, before[:3])
        columns = (identity.history, identity.vectors, b"k" * 32)
        db.execute("INSERT INTO install VALUES (1, ?, ?, NULL, ?)", columns)
    assert facts.history(**where) == ()
    facts.remember("alice", "home", "Oslo", now=NOW, **where)
    assert ledger_of(install) == path
    assert values(facts.current("alice", now=NOW, **where)) == ["Oslo"]


def test_each_install_has_facts_of_its_own(tmp_path: Path, where: dict[str, Any]) -> None:
    facts.remember("alice", "home", "Oslo", now=NOW, **where)
    assert facts.current("alice", history=str(tmp_path / "other.db"), now=NOW) == ()
    served = {"history": str(tmp_path / "history.db"), "qdrant_url": "http://127.0.0.1:1"}
    assert facts.current("alice", now=NOW, **served) == ()
    facts.remember("alice", "home", "Quito", now=NOW, **served)
    assert values(facts.current("alice", now=NOW, **served)) == ["Quito"]


# --- Two writers ---------------------------------------------------------------------------------------------


def _write(install: Install, number: int, start: Any, told: Any) -> None:
    start.wait()
    for step in range(12):
        try:
            facts.remember(
                "api", "version", f"{number}.{step}", valid_from=NOW + step, now=NOW, install=install
            )
            told.put("put down")
        except Refused:
            told.put("refused")


def test_of_two_writers_one_is_told(install: Install, where: dict[str, Any]) -> None:
    facts.remember("api", "owner", "ann", now=NOW, **where)
    context = multiprocessing.get_context("spawn")
    start, told = context.Event(), context.Queue()
    writers = [context.Process(target=_write, args=(install, n, start, told)) for n in range(3)]
    for writer in writers:
        writer.start()
    start.set()
    answers = [told.get(timeout=60) for _ in range(36)]
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    series = facts.history("api", "version", **where)
    # one value a second at most, each ended by the next, the last open
    assert len(series) == answers.count("put down")
    assert answers.count("refused") == 36 - len(series)
    assert [f.valid_to for f in series] == [*(f.valid_from for f in series[1:]), None]
    assert series[-1].valid_from == NOW + 11


def test_a_writer_that_waits_too_long_is_told(
    install: Install, where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts.remember("api", "version", "1", now=NOW, **where)
    monkeypatch.setattr(store, "BUSY_S", 0.2)
    with closing(sqlite3.connect(ledger_of(install), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Failed, match="another mem0audit is writing to it; nothing changed"):
            facts.remember("api", "version", "2", valid_from=NOW + 1, now=NOW, **where)
        assert values(facts.current("api", now=NOW + 5, **where)) == ["1"]  # a reader waits for nobody
        other.execute("ROLLBACK")
    facts.remember("api", "version", "2", valid_from=NOW + 1, now=NOW, **where)


def test_killed_at_any_statement(where: dict[str, Any]) -> None:
    facts.remember("api", "version", "1", now=NOW, **where)
    connect = store.connect
    for last in range(1, 40):

        def killing(path: Path, *, write: bool = True, left: list[int] = [last]) -> sqlite3.Connection:  # noqa: B006
            db = connect(path, write=write)

            def count(_statement: str) -> None:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

            db.set_trace_callback(count)
            return db

        pid = fork()
        if not pid:
            store.connect = killing
            facts.remember("api", "version", "2", valid_from=NOW + 1, now=NOW, **where)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        series = facts.history("api", "version", **where)
        if len(series) == 2:
            assert [f.valid_to for f in series] == [NOW + 1, None]
            assert last > 5
            break
        assert [(f.value, f.valid_to) for f in series] == [("1", None)]
        assert os.WIFSIGNALED(status)
    else:
        raise AssertionError("it never came to its end")


# --- Tied to a memory ------------------------------------------------------------------------------------------


def in_ledger(install: Install, **owners: tuple[str, str | None]) -> None:
    """Puts memories down as an audit does; of each its user and its run."""
    points = {
        i: PointRecord(1, b"x" * 16, 0, None, None, (user, None, run), None, None)
        for i, (user, run) in owners.items()
    }
    with ledgers.opened(install, this_host(), make=True) as book:
        assert isinstance(book, store.Ledger)
        book.note_memories(points, {}, NOW, rows=len(points))


def superseded(install: Install, at: float) -> dict[str, str | None]:
    with ledgers.opened(install, this_host()) as book:
        assert isinstance(book, store.Ledger)
        kept, rows = book.kept(at), book.memories()
        assert book.successors(at) == kept.successors
        live = {i for i, row in rows.items() if row.is_live(at)}
        assert live == rows.keys() - kept.superseded == book.due(at, at + 1).keys()
        return {old: new for old, (new, _) in kept.superseded.items()}


def test_a_planned_value_marks_the_memory_of_the_one_before_when_its_time_comes(
    install: Install, where: dict[str, Any]
) -> None:
    in_ledger(install, m1=("alice", None), m2=("alice", None))
    facts.remember("alice", "home", "Oslo", memory_id="m1", now=NOW, **where)
    facts.remember("alice", "home", "Bergen", memory_id="m2", valid_from=AUTUMN, now=NOW, **where)
    assert superseded(install, at(AUTUMN) - 1) == {}
    assert superseded(install, at(AUTUMN)) == {"m1": "m2"}
    path = ledger_of(install)
    for moved, live in ((at(AUTUMN), {"m2"}), (int(time.time()) + 500, {"m1", "m2"})):
        with closing(store.connect(path)) as db:
            db.execute("UPDATE memory SET superseded_at = ? WHERE id = 'm1'", (moved,))
            # the view goes by the real clock
            found = {i for (i,) in db.execute("SELECT id FROM live_memory")}
        assert found == (live if moved > at(AUTUMN) or time.time() >= moved else {"m1", "m2"})


def test_a_value_that_holds_again_takes_its_mark_back(install: Install, where: dict[str, Any]) -> None:
    in_ledger(install, m1=("alice", None), m2=("alice", None), m3=("alice", None))
    for step, (name, marked) in enumerate(
        (
            ("m1", {}),
            ("m2", {"m1": "m2"}),
            ("m1", {"m2": "m1"}),
            ("m3", {"m2": "m1", "m1": "m3"}),
            ("m2", {"m3": "m2", "m1": "m3"}),
        )
    ):
        begins = NOW + step
        facts.remember("alice", "home", name, memory_id=name, valid_from=begins, now=begins, **where)
        assert superseded(install, begins) == marked


def test_what_the_ledger_does_not_know_yet_is_marked_when_it_does(
    install: Install, where: dict[str, Any]
) -> None:
    in_ledger(install, m1=("alice", None))
    for step, name in enumerate(("m1", "m2", "m3")):
        begins = NOW + step
        facts.remember("alice", "home", name, memory_id=name, valid_from=begins, now=begins, **where)
    assert superseded(install, NOW + 9) == {}
    in_ledger(install, m1=("alice", None), m2=("alice", None))
    assert superseded(install, NOW + 9) == {"m1": "m2"}
    with ledgers.opened(install, this_host()) as book:
        assert isinstance(book, store.Ledger)
        book.restore_memory("m1")
    in_ledger(install, m1=("alice", None), m2=("alice", None), m3=("alice", None))
    assert superseded(install, NOW + 9) == {"m2": "m3"}  # what somebody said after it stands


def test_a_value_that_is_replaced_marks_its_memory(install: Install, where: dict[str, Any]) -> None:
    facts.remember("alice", "home", "Oslo", memory_id="m1", now=NOW, **where)
    in_ledger(install, m1=("alice", None), m3=("alice", None), m2=("alice", "r"), b1=("bob", None))
    facts.remember("alice", "tea", "green", memory_id="m3", now=NOW, **where)
    facts.remember("alice", "tea", "black", memory_id="b1", valid_from=NOW + 1, now=NOW + 1, **where)
    facts.remember("alice", "home", "Bergen", memory_id="m2", valid_from=NOW + 5, now=NOW + 5, **where)
    facts.remember("alice", "home", "Quito", memory_id="m3", valid_from=NOW + 500, now=NOW + 6, **where)
    facts.remember("alice", "home", "Lima", memory_id="unknown", valid_from=NOW + 900, now=NOW + 900, **where)
    with closing(store.connect(ledger_of(install))) as db:
        rows = db.execute("SELECT id, superseded_by, superseded_at FROM memory ORDER BY id").fetchall()
    # the value to come only then, an id that the ledger does not know none at all, nor one of somebody else
    assert rows == [("b1", None, None), ("m1", "m2", NOW + 5), ("m2", "m3", NOW + 500), ("m3", None, None)]
    assert [f.memory_id for f in facts.history("alice", "home", **where)] == ["m1", "m2", "m3", "unknown"]


def test_what_is_forgotten_leaves_no_byte(install: Install, where: dict[str, Any]) -> None:
    for subject, attribute, tied in (
        ("alice", "home", None),
        ("alice", "tea", "m1"),
        ("api", "port", "m1"),
        ("api", "owner", None),
        ("Alice", "home", "m2"),
    ):
        facts.remember(subject, attribute, f"{subject}'s {attribute} " * 30, memory_id=tied, now=NOW, **where)
    with ledgers.opened(install, this_host()) as book, ledgers.opened(install, this_host()) as other:
        assert isinstance(book, store.Ledger) and isinstance(other, store.Ledger)
        found = facts_store.told_of(book, "alice", {"m1"})
        assert [(f.subject, f.attribute) for f in found] == [
            ("alice", "home"),
            ("alice", "tea"),
            ("api", "port"),
        ]
        assert [f.subject for f in facts_store.told_of(book, None, {"m2", "x"})] == ["Alice"]
        facts_store.forget(book, "alice", {"m1"})
        assert [f.attribute for f in facts_store.every(other, None, None)] == ["home", "owner"]
        data = b"".join(one.read_bytes() for one in book.path.parent.iterdir())
    assert (b"alice's" in data, b"api's port" in data, b"api's owner" in data) == (False, False, True)
