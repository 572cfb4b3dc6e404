"""The ledger's table of memories: what an audit puts in, what is live, what goes, two writers, and a kill."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.ledger import (
    DAY_S,
    UNUSED_S,
    LedgerFact,
    day_for_mem0,
    hidden_from,
    idle_since,
    oldest_first,
    predecessors,
)
from mem0audit.core.points import PointRecord
from mem0audit.core.timeline import MemoryLog
from mem0audit.core.times import instant
from mem0audit.stores.ledger import STEPS, Ledger, connect, migrate, new_path
from tests.builders import fork
from tests.stores.test_ledger import HERE, ROOT, ledger, only_file

NOW = 1_780_000_000.0  # 2026-05-28
MAY, JUNE = "2026-05-02T10:00:00+00:00", "2026-06-02T10:00:00-07:00"


def point(text: str, created: Any = MAY, expires: Any = None, said: Any = (None, None, None)) -> PointRecord:
    digest = hashlib.md5(text.encode()).digest()
    return PointRecord(1, digest, 0, created, created, ("alice", None, None), expires, None, said=said)  # type: ignore[arg-type]


def log(last: str, updated: Any = None, created: Any = MAY) -> MemoryLog:
    made = MemoryLog("ADD", 1, created, updated)
    made.last, made.added_at = last, created
    return made


def note(book: Ledger, points: dict[str, PointRecord], rows: int = 1, **logs: MemoryLog) -> int:
    return book.note_memories(points, logs, NOW, rows=rows)


def test_odd_ids_and_texts(tmp_path: Path) -> None:
    points = {"\ud800": point("x"), "7": point("y"), "none": point("z")._replace(text=None)}
    with ledger(tmp_path) as book:
        assert note(book, points) == 3
        book.confirm("\ud800", NOW, "a file")
        note(book, points, rows=2)
        assert only(book, "\ud800").source == "a file"
        note(book, {}, rows=3, **{i: log("DELETE") for i in points})
        assert book.memories() == {}


def only(book: Ledger, memory_id: str) -> LedgerFact:
    return book.memories([memory_id])[memory_id]


def live(path: Path) -> set[str]:
    with contextlib.closing(connect(path)) as db:
        return {i for (i,) in db.execute("SELECT id FROM live_memory")}


def test_confirmed_as_of_the_log_and_never_now(tmp_path: Path) -> None:
    points = {
        "added": point("a", said=("user", "ann", None)),
        "updated": point("b"),
        "back": point("c"),  # the log's last word is DELETE
        "unlogged": point("d", created="2026-04-01T00:00:00Z"),
        "no time": point("e", created=None),
        "ahead": point("f", created="2099-01-01"),
    }
    with ledger(tmp_path) as book:
        assert (
            note(book, points, added=log("ADD"), updated=log("UPDATE", JUNE), back=log("DELETE", JUNE)) == 6
        )
        found = book.memories()
        assert (
            note(book, points, added=log("ADD"), updated=log("UPDATE", JUNE), back=log("DELETE", JUNE)) == 0
        )
    assert {i: f.confirmed_at for i, f in found.items()} == {
        "added": instant(MAY),
        "updated": None if instant(JUNE) > NOW + DAY_S else instant(JUNE),  # type: ignore[operator]
        "back": instant(MAY),
        "unlogged": instant("2026-04-01T00:00:00Z"),
        "no time": None,
        "ahead": None,
    }
    added = found["added"]
    assert (added.source, added.role, added.actor_id, added.attributed_to) == (None, "user", "ann", None)
    assert (added.owner, added.created_at, added.expires_at) == (("alice", None, None), instant(MAY), None)
    assert added.fact == hashlib.md5(b"a").digest()


def test_another_text_is_another_fact(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        note(book, {"a": point("x"), "b": point("y")})
        book.confirm("a", NOW, "README.md")
        book.expire("a", NOW + 5)
        book.supersede("a", "b", NOW)
        note(book, {"a": point("x"), "b": point("y")}, rows=2)
        assert (only(book, "a").source, only(book, "a").confirmed_at) == ("README.md", NOW)
        note(book, {"a": point("x2"), "b": point("y")}, rows=3, a=log("UPDATE", "2026-05-05T00:00:00Z"))
        a = only(book, "a")
    assert (a.source, a.confirmed_at) == (None, instant("2026-05-05T00:00:00Z"))
    assert (a.superseded_by, a.expires_at) == ("b", NOW + 5)


def test_another_owner_is_anothers_at_once(tmp_path: Path) -> None:
    points = {i: point(i) for i in "ab"}
    with ledger(tmp_path) as book:
        note(book, points)
        book.note_owners(dict.fromkeys("ab", ("alice", None, None)), NOW)
        book.note_owners({"a": ("bob", None, "r"), "b": ("alice", None, None)}, NOW)
        assert note(book, points) == 0  # neither store changed but for that
        assert (only(book, "a").owner, only(book, "b").owner) == (("bob", None, "r"), ("alice", None, None))


def test_what_mem0_says_of_expiry_is_taken_over(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        note(book, {"a": point("x", expires="2026-12-05"), "b": point("y", expires="soon"), "c": point("z")})
        assert only(book, "a").expires_at == instant("2026-12-06T00:00:00Z")
        assert only(book, "b").expires_at is only(book, "c").expires_at is None
        noon = instant("2026-12-05T12:00:00Z")
        book.expire("a", noon)
        book.expire("c", noon)
        note(book, {"a": point("x", expires="2026-12-05"), "c": point("z")}, rows=2)
        assert only(book, "a").expires_at == only(book, "c").expires_at == noon
        note(book, {"a": point("x", expires="2027-01-01"), "c": point("z", expires="2026-12-05")}, rows=3)
        assert only(book, "a").expires_at == instant("2027-01-02T00:00:00Z")
        assert only(book, "c").expires_at == noon  # the same day, to the second
        book.expire("a", noon)  # cut off before mem0 had it
        note(book, {"a": point("x", expires="2027-01-01"), "c": point("z")}, rows=4)
        assert only(book, "a").expires_at == noon
        assert only(book, "c").expires_at is None  # cleared in mem0


@pytest.mark.parametrize(
    ("at", "day"),
    [
        ("2026-12-05T00:00:00Z", "2026-12-04"),  # from this midnight on, mem0 hides it at once
        ("2026-12-05T00:00:01Z", "2026-12-05"),
        ("2026-12-05T23:59:59Z", "2026-12-05"),
        ("2026-12-05T20:00:00-07:00", "2026-12-06"),
    ],
)
def test_the_day_for_mem0_is_never_early(at: str, day: str) -> None:
    seconds = instant(at)
    assert seconds is not None
    assert day_for_mem0(seconds) == day
    hidden = hidden_from(day)
    assert hidden is not None
    assert 0 <= hidden - seconds < DAY_S
    assert hidden_from("no day") is hidden_from(None) is hidden_from("9999-12-31") is None


def test_live_is_neither_expired_nor_superseded(tmp_path: Path) -> None:
    now = time.time()
    with ledger(tmp_path) as book:
        note(book, {i: point(i) for i in ("old", "new", "past", "future", "plain")})
        book.supersede("old", "new", now)
        book.expire("past", now - 1)
        book.expire("future", now + 1_000)
        seen = {i for i, fact in book.memories().items() if fact.is_live(now)}
        kept = book.kept(now)
    assert live(only_file(tmp_path)) == seen == {"new", "future", "plain"}
    assert (kept.rows, kept.live, kept.expired, kept.successors) == (5, 3, {"past"}, {"old": "new"})


def test_supersession_has_to_make_sense(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        note(book, {i: point(i) for i in "abc"})
        book.supersede("a", "b", NOW)
        for old, new, why in (("a", "a", "itself"), ("b", "a", "superseded itself"), ("c", "x", "not in")):
            with pytest.raises(ValueError, match=why):
                book.supersede(old, new, NOW)
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            book._connection.execute("UPDATE memory SET superseded_by = 'b' WHERE id = 'c'")
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            book._connection.execute(
                "UPDATE memory SET superseded_by = 'zz', superseded_at = 1 WHERE id = 'c'"
            )


def test_a_row_goes_after_its_point_and_takes_what_it_replaced(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        points = {i: point(i) for i in ("a", "b", "c", "lost", "deleted")}
        note(book, points)
        book.supersede("a", "b", NOW)
        book.supersede("b", "c", NOW)
        gone = {i: log("DELETE") for i in ("b", "c", "deleted")}
        # the agent deleted both successors: a is still stored, and is not to come back
        note(book, {"a": points["a"]}, rows=2, **gone)
        assert set(book.memories()) == {"a", "b", "c", "lost"}
        assert live(only_file(tmp_path)) == {"c", "lost"}
        note(book, {"lost": points["lost"]}, rows=3, **gone, a=log("DELETE"))
        assert set(book.memories()) == {"lost"}
        note(book, points, rows=4)
        assert live(only_file(tmp_path)) == {"c", "lost", "deleted"}
        for some in (["c"], ["a", "c"]):
            book.forget_memories(some)
            assert {"b", "c"} <= set(book.memories())
        book.forget_memories(["b", "c", "x"])
        assert set(book.memories()) == {"lost", "deleted"}
        note(book, points, rows=5)
        book._connection.execute("DELETE FROM memory WHERE id = 'b'")  # what the schema itself does
        assert set(book.memories()) == {"c", "lost", "deleted"}


def test_what_ended_has_ended_when_a_restore_brings_it_back(tmp_path: Path) -> None:
    points = {i: point(i) for i in ("old", "new", "over", "plain")}
    with ledger(tmp_path) as book:
        note(book, points)
        book.supersede("old", "new", NOW)
        book.expire("over", NOW - 5)
        book.note_source("over", "a mail")
        book.forget_memories(points)
        assert book.memories() == {}
        note(book, points, rows=2)
        assert live(only_file(tmp_path)) == {"new", "plain"}
        assert only(book, "old").superseded_by == "new"
        assert (only(book, "over").expires_at, only(book, "over").source) == (NOW - 5, None)
        # set in mem0 too, and then deleted there; the snapshot is from before
        note(book, {**points, "plain": point("plain", expires="2026-01-01")}, rows=11)
        note(book, {i: p for i, p in points.items() if i != "plain"}, rows=12, plain=log("DELETE"))
        note(book, points, rows=13)
        assert live(only_file(tmp_path)) == {"new"}
        note(book, {**points, "plain": point("plain", expires="2099-01-01")}, rows=14)
        note(book, points, rows=15)  # cleared in mem0
        assert live(only_file(tmp_path)) == {"new", "plain"}
        book.restore_memory("old")
        book.expire("over", None)
        book.forget_memories(points)
        note(book, points, rows=3)
        assert live(only_file(tmp_path)) == set(points)
        book.supersede("old", "new", NOW)
        book.forget_memories(points)
        note(book, {"old": points["old"]}, rows=4)  # the newer one was not in the snapshot
        assert live(only_file(tmp_path)) == set()
        assert only(book, "old").superseded_by is None


def test_a_clean_up_with_foreign_keys_off_brings_nothing_back(tmp_path: Path) -> None:
    points = {i: point(i) for i in ("old", "new", "hangs")}
    with ledger(tmp_path) as book:
        note(book, points)
        book.supersede("old", "new", NOW)
        book.supersede("hangs", "new", NOW)
    path = only_file(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db:  # foreign keys are off, as SQLite has it
        db.execute("DELETE FROM memory WHERE id = 'new'")
        db.execute("UPDATE memory SET superseded_by = NULL WHERE id = 'old'")
        db.commit()
    assert live(path) == set()
    with ledger(tmp_path) as book:
        note(book, points, rows=2)
        assert live(path) == {"new"}
        book.forget_memories(["new", "old"])  # "hangs" points to it
        assert live(path) == {"new"}
        kept = book.kept(NOW)
    assert kept.superseded == {"hangs": ("new", NOW)}
    with contextlib.closing(connect(path)) as db:
        assert db.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_what_is_added_back_under_another_id_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    points = {i: point(i) for i in ("old", "new")}
    with ledger(tmp_path) as book:
        note(book, points)
        book.supersede("old", "new", NOW)
        book.note_source("new", "a file")
        for lost, again in (("old", "old2"), ("new", "new2"), ("never seen", "other")):
            book.note_recovered(lost, again, NOW)
            assert live(only_file(tmp_path)) <= {"new", "new2"}
        assert {i: f.superseded_by for i, f in book.memories().items()} == {"old2": "new2", "new2": None}
        assert only(book, "new2").source == "a file"
        note(book, {"old2": points["old"], "new2": points["new"]}, rows=2)
        assert only(book, "new2").source == "a file"
        assert live(only_file(tmp_path)) == {"new2"}


def test_use_is_recorded_and_what_was_never_used_shows_after_six_months(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        note(book, {i: point(i) for i in "abc"})
        assert book.unused(NOW + 400 * DAY_S) == ()  # nobody records use
        book.note_used({"a": NOW, "none": NOW})
        book.note_used({"a": NOW - 5})
        assert only(book, "a").last_used_at == NOW
        assert book.unused(NOW + 100 * DAY_S) == ()
        book.note_used({"b": NOW + 100 * DAY_S})
        assert book.unused(NOW + 184 * DAY_S) == ("a", "c")
        assert book.kept(NOW + 184 * DAY_S).unused == 2
        rows = book.memories()
        for days in range(180, 300, 5):
            now = NOW + days * DAY_S
            idle = tuple(i for i in "abc" if now - (idle_since(rows[i]) or now) > UNUSED_S)
            assert book.unused(now) == (idle if days >= 183 else ())


def test_a_ledger_of_before_gets_the_table_and_its_memories(tmp_path: Path) -> None:
    path = new_path(tmp_path, HERE)
    path.touch()
    with contextlib.closing(connect(path)) as db:
        migrate(db, STEPS[:3])
        db.execute("INSERT INTO scopes VALUES (1, '\"alice\"', 'null', 'null')")
        db.execute("INSERT INTO owners VALUES ('a', 1, 1.0)")
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'memory'").fetchall()
    with ledger(tmp_path) as book:
        assert book.memories() == {}
        note(book, {"a": point("x")})
        assert only(book, "a").owner == ("alice", None, None)
        assert book.owners() == {"a": ("alice", None, None)}


@pytest.mark.parametrize("version", range(5, len(STEPS)))
def test_a_ledger_of_before_keeps_its_marks(tmp_path: Path, version: int) -> None:
    path = new_path(tmp_path, HERE)
    path.touch()
    with contextlib.closing(connect(path)) as db:
        migrate(db, STEPS[:version])
        db.execute("INSERT INTO scopes VALUES (1, '\"alice\"', 'null', 'null')")
        db.executemany(
            "INSERT INTO memory (id, subject, fact, superseded_by, superseded_at, expires_at)"
            " VALUES (?, 1, x'00', ?, ?, ?)",
            [("new", None, None, None), ("old", "new", NOW, None), ("over", None, None, 5.0)],
        )
        db.execute("INSERT INTO facts VALUES (1, 'alice', 'home', 'Oslo', 5, NULL, NULL, 'old', 5)")
    with ledger(tmp_path) as book:
        assert only(book, "old").superseded_by == "new"
        assert live(path) == {"new"}
        assert book.all("SELECT value FROM facts") == [("Oslo",)]
        book.forget_memories(["new", "old", "over"])
        note(book, {i: point(i) for i in ("new", "old", "over")})
        assert live(path) == {"new"}


def test_what_goes_with_a_memory_and_in_which_order() -> None:
    successors = {"a": "b", "b": "c", "x": "c", "y": "z"}
    assert predecessors(["c"], successors) == {"a", "b", "x"}
    assert predecessors(["a"], successors) == set()
    for ids in itertools.permutations(["c", "b", "a", "x"]):
        order = oldest_first(ids, successors)
        assert order.index("a") < order.index("b") < order.index("c") > order.index("x")
    assert predecessors(["a"], {"a": "b", "b": "a"}) == {"a", "b"}  # nobody can write that, and it ends
    assert sorted(oldest_first(["a", "b"], {"a": "b", "b": "a"})) == ["a", "b"]


def _before(book: Ledger) -> None:
    note(book, {i: point(i) for i in ("old", "new", "third")})
    book.supersede("old", "new", NOW)


STEPS_OF_A_LIFE: dict[str, Callable[[Ledger], object]] = {
    "the successor goes": lambda book: book.forget_memories(["new"]),
    "both go": lambda book: book.forget_memories(["new", "old"]),
    "both are deleted in mem0": lambda book: note(
        book, {"third": point("third")}, rows=2, old=log("DELETE"), new=log("DELETE")
    ),
    "the older has another text": lambda book: note(
        book, {i: point(f"{i}2") for i in ("old", "new", "third")}, rows=2
    ),
    "added back under another id": lambda book: book.note_recovered("new", "again", NOW),
    "superseded anew": lambda book: book.supersede("old", "third", NOW),
}


@pytest.mark.parametrize("what", STEPS_OF_A_LIFE)
def test_killed_at_any_statement_nothing_outdated_is_live(tmp_path: Path, what: str) -> None:
    with ledger(tmp_path) as book:
        _before(book)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    for last in range(1, 60):
        for one in tmp_path.iterdir():
            one.unlink()
        path.write_bytes(whole)
        pid = fork()
        if not pid:
            left = [last]

            def count(_statement: str, left: list[int] = left) -> None:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

            with ledger(tmp_path) as book:
                book._connection.set_trace_callback(count)
                STEPS_OF_A_LIFE[what](book)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert "old" not in live(path)
        with contextlib.closing(connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        if not os.WIFSIGNALED(status):
            assert (status, last > 3) == (0, True)
            return
    raise AssertionError("it never came to its end")


WRITER = """
import sys, time
from pathlib import Path
from tests.stores.test_ledger import ledger
n, who = 0, sys.argv[2]
print("ready", flush=True)
while True:
    with ledger(Path(sys.argv[1])) as book:
        for _ in range(5):
            old, new = ("old", "new") if who == "0" else ("old2", "new2")
            book.supersede(old, new, float(n))
            book.confirm(new, float(n), f"said {n}")
            book.note_used({old: float(n), new: float(n)})
            n += 1
    time.sleep(0.01)
"""


def test_two_writers_and_a_kill(tmp_path: Path) -> None:
    """Both wait for each other, and after kills the file is whole and nothing outdated is live."""
    with ledger(tmp_path) as book:
        note(book, {i: point(i) for i in ("old", "new", "old2", "new2")})
        book.supersede("old", "new", 0.0)
        book.supersede("old2", "new2", 0.0)
    for _ in range(2):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(tmp_path), str(number)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for number in range(2)
        ]
        for one in writers:
            assert one.stdout is not None
            assert one.stdout.readline() == b"ready\n"
        time.sleep(0.3)
        assert live(only_file(tmp_path)) == {"new", "new2"}
        for one in writers:
            assert one.poll() is None, one.communicate()
            one.send_signal(signal.SIGKILL)
            one.communicate()
        assert live(only_file(tmp_path)) == {"new", "new2"}
        with contextlib.closing(connect(only_file(tmp_path))) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    with ledger(tmp_path) as book:
        assert only(book, "new2").source is not None
