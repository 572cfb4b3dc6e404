"""`as-of` and `show --timeline` as typed: what is printed, for people and machines, and the exit codes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders import StoreCopy, copy_store
from tests.cli.program import call as run
from tests.cli.test_commands import fingerprint, flags
from tests.report.test_json import check


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    """mem0 0.1.40's: Pacific times, deletions without a time."""
    return copy_store("0.1.40", tmp_path / "old")


def moment_of(store: StoreCopy, rowid: int) -> str:
    with closing(sqlite3.connect(store.history)) as db:
        ((when,),) = db.execute("SELECT created_at FROM history WHERE rowid = ?", (rowid,)).fetchall()
    return str(when)


def test_one_persons_memories_then(tmp_path: Path, store: StoreCopy) -> None:
    before = fingerprint(store.folder)
    at = moment_of(store, 29)
    ran = run(tmp_path, "as-of", at, "--user", "bob", *flags(store))
    assert (ran.code, ran.err) == (0, "")
    assert "of user bob, by the log" in ran.out
    assert "    │ Bob lives in Oslo" in ran.out
    assert "Alice" not in ran.out
    assert "nobody knows whose" in ran.out  # carol's, deleted since
    now = run(tmp_path, "as-of", "now", "--user", "bob", *flags(store)).out
    assert "    │ Bob lives in Bergen" in now
    assert fingerprint(store.folder) == before


def test_a_date_a_length_and_now_mean_the_same_later(tmp_path: Path) -> None:
    store = copy_store("1.0.11", tmp_path / "timed")
    said = {
        run(tmp_path, "as-of", when, *flags(store)).out.partition(": ")[2]
        for when in ("2026-11-29", "now", "1h", "-1h", "2026-11-29T14:10-08:00")
    }
    assert len(said) == 1


def test_what_is_different(tmp_path: Path, store: StoreCopy) -> None:
    ran = run(tmp_path, "as-of", moment_of(store, 29), "--diff", "now", *flags(store))
    assert ran.code == 0
    assert "      - Bob lives in Oslo\n      + Bob lives in Bergen" in ran.out
    document = check(
        run(tmp_path, "as-of", moment_of(store, 29), "--diff", "now", *flags(store), "--format", "json").out,
        "as-of-diff",
    )
    assert document["counts"]["changed"] > 0
    assert "Bergen" not in json.dumps(document)


def test_for_machines_texts_only_when_asked_for(tmp_path: Path, store: StoreCopy) -> None:
    ran = run(tmp_path, "as-of", "now", *flags(store), "--format", "json")
    document = check(ran.out, "as-of")
    assert document["memories"] == len(document["remembered"]) == 18
    assert document["rows_without_time"] == 12
    assert "Bob" not in ran.out
    asked = check(run(tmp_path, "as-of", "now", *flags(store), "--format", "json", "--text").out, "as-of")
    assert {one["text"] for one in asked["remembered"]} >= {"Bob lives in Bergen"}


def test_what_is_doubtful_is_apart(tmp_path: Path, store: StoreCopy) -> None:
    with closing(sqlite3.connect(store.history)) as db:
        db.execute("DELETE FROM history WHERE rowid > 37")  # the last one is a DELETE without a time
        db.commit()
    ran = run(tmp_path, "as-of", "2026-11-29T14:10-08:00", *flags(store))
    assert "Not known for sure: 1 memory" in ran.out
    assert "may have been deleted by then (between 2026-11-29 22:08:30Z and" in " ".join(ran.out.split())
    document = check(
        run(tmp_path, "as-of", "2026-11-29T14:10-08:00", *flags(store), "--format", "json").out, "as-of"
    )
    assert [one["doubt"] for one in document["doubtful"]] == ["deleted"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("as-of", "soon"), "soon: no time"),
        (("as-of", "2126-01-01"), "is in the future"),
        (("as-of", "now", "--user", "*"), "nobody's id"),
        (("as-of",), "missing argument"),
        (("as-of", "now", "--diff", "later"), "later: no time"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, store: StoreCopy, words: tuple[str, ...], said: str) -> None:
    ran = run(tmp_path, *words, *flags(store))
    assert ran.code == 2
    assert said in ran.err.lower()


def test_a_log_that_is_not_there(tmp_path: Path, store: StoreCopy) -> None:
    store.history.unlink()
    ran = run(tmp_path, "as-of", "now", *flags(store))
    assert ran.code == 3
    assert "does not exist" in ran.err or "no such file" in ran.err.lower()


def test_the_timeline_of_one(tmp_path: Path, store: StoreCopy) -> None:
    with closing(sqlite3.connect(store.history)) as db:
        ((memory_id,),) = db.execute("SELECT memory_id FROM history WHERE rowid = 1").fetchall()
    ran = run(tmp_path, "show", memory_id, "--timeline", *flags(store))
    assert ran.code == 0
    lines = ran.out.splitlines()
    events = [line.split("  ")[2] for line in lines if "  row " in line]
    assert events == ["ADD", "UPDATE", "DELETE"]
    assert lines.index("    │ Alice lives in Lisbon") < lines.index("    │ Alice lives in Porto now")
    assert "  now  not in the store" in lines
    document = check(
        run(tmp_path, "show", memory_id, "--timeline", *flags(store), "--format", "json").out, "show"
    )
    assert [step["event"] for step in document["timeline"]] == ["ADD", "UPDATE", "DELETE"]
    assert "Lisbon" not in json.dumps(document)


def test_texts_cannot_forge_a_line(tmp_path: Path, store: StoreCopy) -> None:
    with closing(sqlite3.connect(store.history)) as db:
        db.execute("UPDATE history SET new_memory = ?", ("x\x1b[2J\n  forged  ADD  row 9 \u202e",))
        db.commit()
    ran = run(tmp_path, "as-of", "now", *flags(store), "--verbose")
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert not [line for line in ran.out.splitlines() if line.startswith("  forged")]
