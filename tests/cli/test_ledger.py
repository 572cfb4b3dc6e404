"""`mem0audit ledger` as a user runs it: what it says, exit codes, JSON, JSON lines, and no memory text."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import Ran, call
from tests.report.test_json import check

SECRETS = ("SECRETCAROL", "Quito", "vegetarian", "allergic")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1", tmp_path)


def run(home: Path, store: StoreCopy, *words: str, width: str = "100") -> Ran:
    stores = "--history", str(store.history), "--qdrant-path", str(store.vectors)
    given = words if words[0] == "audit" else ("ledger", *words)
    ran = call(home, *given, *stores, env={"COLUMNS": width})
    assert not [secret for secret in SECRETS if secret in ran.out + ran.err]
    assert "Traceback" not in ran.err
    return ran


def two(store: StoreCopy) -> tuple[str, str]:
    """Two memories of one user."""
    rows = RawPoints(store.vectors).points().items()
    old, new, *_ = sorted(str(i) for i, p in rows if p.payload["user_id"] == "alice")
    return old, new


def test_foreign_keys_are_on_in_every_connection_to_it(
    tmp_path: Path, store: StoreCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            nonlocal seen
            (_, _, file), *_ = self.execute("PRAGMA database_list").fetchall()
            if f"{os.sep}.local{os.sep}state" in file:
                seen += self.execute("PRAGMA foreign_keys").fetchone()
            super().close()

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **more: connect(*given, **{**more, "factory": Watched})
    )
    old, new = two(store)
    stores = "--history", str(store.history), "--qdrant-path", str(store.vectors)
    for words in (
        ("audit",),
        ("ledger", "supersede", old, new),
        ("ledger", "status"),
        ("facts", "remember", "alice", "home", "Oslo"),
    ):
        before = len(seen)
        assert call(tmp_path, *words, *stores).code in (0, 1)
        assert len(seen) > before, words
    assert set(seen) == {1}


def test_status(tmp_path: Path, store: StoreCopy) -> None:
    assert run(tmp_path, store, "status").code == 3
    run(tmp_path, store, "audit")
    for width in ("60", "100"):
        ran = run(tmp_path, store, "status", width=width)
        assert ran.code == 0
        lines = ran.out.splitlines()
        assert lines[1].split() == ["18", "live,", "of", "19", "memories", "that", "it", "knows"]
        assert "18 of the live from an unknown source" in " ".join(ran.out.split())
        assert max(map(len, lines[1:])) <= int(width)
    said = check(run(tmp_path, store, "status", "--format", "json").out, "ledger-status")
    assert (said["rows"], said["live"], said["expired"], said["unused"]) == (19, 18, 1, None)
    run(tmp_path, store, "source", two(store)[0], "docs/x.md")
    said = check(run(tmp_path, store, "status", "--format", "json").out, "ledger-status")
    assert (said["unknown_source"], said["no_source"]) == (17, 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("expire", "x"), "until when"),
        (("expire", "x", "--in", "7d", "--never"), "until when"),
        (("expire", "x", "--at", "soon"), "no moment"),
        (("expire", "x", "--in", "7"), "no length of time"),
        (("expire", "x", "--in", "9999999999999w"), "no length of time"),
        (("supersede", "x"), "Name NEW"),
        (("supersede", "x", "y", "--none"), "Name NEW"),
        (("source", "x", "y", "--unknown"), "which is it"),
        (("source", "x", "unknown"), "one line of at most"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, store: StoreCopy, words: tuple[str, ...], says: str) -> None:
    ran = run(tmp_path, store, *words)
    assert (ran.code, says in ran.err) == (2, True), ran.err


def test_of_one_memory(tmp_path: Path, store: StoreCopy) -> None:
    old, new = two(store)
    ran = run(tmp_path, store, "source", old)
    assert ran.code == 0
    assert "source      unknown" in ran.out
    assert "confirmed   2026-11-29" in ran.out
    said = check(
        run(tmp_path, store, "source", old, "docs/ports.md", "--format", "json").out, "ledger-memory"
    )
    assert (said["memory"]["source"], said["memory"]["user_id"]) == ("docs/ports.md", "alice")
    ran = run(tmp_path, store, "supersede", old, new)
    assert f"{old} is superseded by {new}." in ran.out
    assert f"--memory {old}" in ran.out
    assert "--history" in ran.out
    said = check(run(tmp_path, store, "source", old, "--format", "json").out, "ledger-memory")
    assert (said["memory"]["superseded_by"], said["memory"]["live"]) == (new, False)
    assert "superseded  2" in run(tmp_path, store, "source", old).out
    assert run(tmp_path, store, "supersede", new, old).code == 4
    assert run(tmp_path, store, "supersede", old, "--none").out == f"{old} holds: nothing replaced it.\n"
    assert run(tmp_path, store, "source", "no-such-id").code == 3


def test_until_when(tmp_path: Path, store: StoreCopy) -> None:
    old, _ = two(store)
    before = {p: p.read_bytes() for p in store.folder.rglob("*") if p.is_file()}
    ran = run(tmp_path, store, "expire", old, "--at", "2026-12-05", "--dry-run")
    assert ran.code == 0
    said = " ".join(ran.out.split())
    assert f"{old} holds until 2026-12-06 00:00:00Z." in said
    if "mem0 2.2.1 gets 2026-12-05" in said:  # only where mem0 is here
        ran = run(tmp_path, store, "expire", old, "--at", "2026-12-05")
        assert (ran.code, "not confirmed" in ran.err) == (4, True)
    doc = check(
        run(tmp_path, store, "expire", old, "--in", "7d", "--dry-run", "--format", "json").out,
        "ledger-expire",
    )
    assert doc["done"] is False
    assert before == {p: p.read_bytes() for p in store.folder.rglob("*") if p.is_file()}
    help_ = call(tmp_path, "ledger", "expire", "--help").out
    for word in ("7 days for travel", "release cadence", "before today in", "UTC"):
        assert word in " ".join(help_.split())


def test_json_lines_in_and_out(tmp_path: Path, store: StoreCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = two(store)
    run(tmp_path, store, "audit")
    run(tmp_path, store, "supersede", old, new)
    answer = {"results": [{"id": old, "memory": "a"}, {"id": new, "memory": "b\u2028", "score": 0.5}]}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(answer) + "\n"))
    ran = run(tmp_path, store, "annotate")
    assert [json.loads(line) for line in ran.out.split("\n")[:-1]] == [
        {"id": new, "memory": "b\u2028", "score": 0.5, "confirmed": "2026-11-29"}
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO(f'"{new}"\n{{"id": "{new}"}}\n"other"\n'))
    said = check(run(tmp_path, store, "used", "--format", "json").out, "ledger-used")
    assert (said["used"], said["unknown"]) == (1, ["other"])
    said = check(run(tmp_path, store, "source", new, "--format", "json").out, "ledger-memory")
    assert said["memory"]["last_used_at"] is not None
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{old}\n7\n"))
    said = check(run(tmp_path, store, "used", "--format", "json").out, "ledger-used")
    assert (said["used"], said["unknown"]) == (1, ["7"])
    for command, line in (("used", "no json\n"), ("annotate", f"{old}\n")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(line))
        assert run(tmp_path, store, command).code == 2
