"""`mem0audit audit --memory-db`: a plain SQLite store of facts, beside its writers, and what `config/` ships for it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import Ran, call
from tests.operations.test_read_only import tree
from tests.report.test_json import check

CONFIG = Path(__file__).parents[2] / "config"
DAY = 86_400
SAYS = "the cache of the build server is at /var/cache"


def connected(path: Path, *, keys: bool = True) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA foreign_keys = {int(keys)}")
    return connection


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """Three live facts (one confirmed today, one never, one long ago), one expired, one superseded."""
    path = tmp_path / "store/memory.db"
    path.parent.mkdir()
    now = int(time.time())
    with closing(connected(path)) as db:
        db.executescript((CONFIG / "memory.sql").read_text())
        rows = [
            ("fresh", "a message", now - DAY, now, None, None, None),
            ("never", None, now - 400 * DAY, None, None, None, None),
            ("long-ago", "a file", now - 400 * DAY, now - 200 * DAY, None, None, None),
            ("over", "a message", now - 9 * DAY, now - 9 * DAY, now - DAY, None, None),
            ("old", "a message", now - 300 * DAY, now - 300 * DAY, None, "fresh", now - DAY),
        ]
        db.executemany(
            "INSERT INTO memory (id, subject, fact, source, created_at, confirmed_at, expires_at, superseded_by,"
            f" superseded_at) VALUES (?, 'build', '{SAYS}', ?, ?, ?, ?, ?, ?)",
            rows,
        )
    return path


def audit(home: Path, path: Path, *words: str) -> Ran:
    ran = call(home, "audit", "--memory-db", str(path), *words)
    assert SAYS not in ran.out + ran.err
    assert "Traceback" not in ran.err
    return ran


def found(ran: Ran) -> dict[str, list[str | None]]:
    codes: dict[str, list[str | None]] = {}
    for one in json.loads(ran.out)["findings"]:
        codes.setdefault(one["code"], []).append(one["memory_id"])
    return codes


def test_what_holds_and_what_does_not(tmp_path: Path, facts: Path) -> None:
    before = tree(facts.parent)
    ran = audit(tmp_path, facts, "--format", "json")
    said = check(ran.out, "fact-file")
    assert (ran.code, said["exit_code"]) == (1, 1)
    assert said["counts"] == {
        "all": 5,
        "live": 3,
        "expired": 1,
        "superseded": 1,
        "unconfirmed": 2,
        "without a source": 1,
    }
    assert found(ran) == {"T701": [None], "T702": [None], "T703": [None]}
    assert said["file"]["journal_mode"] == "wal"
    text = audit(tmp_path, facts, "--fail-on", "high")
    assert text.code == 0
    assert "5 facts" in text.out
    assert max(map(len, text.out.splitlines()[1:])) <= 100
    assert tree(facts.parent) == before


def test_a_clean_one(tmp_path: Path, facts: Path) -> None:
    with closing(connected(facts)) as db:
        db.execute("DELETE FROM memory WHERE id IN ('never', 'long-ago', 'over', 'old')")
    ran = audit(tmp_path, facts)
    assert ran.code == 0
    assert "Nothing is wrong with it." in ran.out
    assert audit(tmp_path, facts, "--quiet").out == ""


def test_a_successor_deleted_with_foreign_keys_off(tmp_path: Path, facts: Path) -> None:
    with closing(connected(facts, keys=False)) as db:
        db.execute("DELETE FROM memory WHERE id = 'fresh'")
    ran = audit(tmp_path, facts, "--format", "json")
    assert found(ran)["T705"] == ["old"]
    assert "T702" not in found(ran)
    assert any("leaves them off" in note for note in json.loads(ran.out)["notes"])
    # and a clean-up script that empties such pointers brings nothing back
    with closing(connected(facts, keys=False)) as db:
        db.execute("UPDATE memory SET superseded_by = NULL WHERE id = 'old'")
        assert [i for (i,) in db.execute("SELECT id FROM live_memory ORDER BY id")] == ["long-ago", "never"]
    again = audit(tmp_path, facts, "--format", "json")
    assert found(again)["T705"] == ["old"]
    assert json.loads(again.out)["counts"]["live"] == 2


def test_facts_that_replace_each_other(tmp_path: Path, facts: Path) -> None:
    """None of them is live again; what one of them replaced is no part of the circle."""
    with closing(connected(facts)) as db:
        db.execute("UPDATE memory SET superseded_by = 'never', superseded_at = 1 WHERE id = 'fresh'")
        db.execute("UPDATE memory SET superseded_by = 'fresh', superseded_at = 1 WHERE id = 'never'")
    ran = audit(tmp_path, facts, "--format", "json")
    assert sorted(map(str, found(ran)["T705"])) == ["fresh", "never"]
    assert [one["evidence"]["ids"] for one in json.loads(ran.out)["findings"] if one["code"] == "T702"] == [
        "old"
    ]
    text = audit(tmp_path, facts)
    assert "never  replaced by fresh, why they replace each other, and none is live" in text.out


def test_another_table_without_keys_or_some_columns(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with closing(connected(path)) as db:
        db.execute(
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, expires_at TEXT, superseded_by INTEGER)"
        )
        db.execute(
            "INSERT INTO notes VALUES (1, 'x', '2020-01-01', NULL), (2, 'y', NULL, 9), (3, 'z', NULL, NULL)"
        )
    ran = audit(tmp_path, path, "--format", "json")
    assert found(ran) == {"T705": ["2"], "T701": [None]}
    said = json.loads(ran.out)
    assert said["table"] == "notes"
    assert {"T703", "T704"} == {n["what"] for n in said["not_checked"]}
    assert any("no foreign key" in note for note in said["notes"])
    assert "superseded_by reference" in next(f["help"] for f in said["findings"] if f["code"] == "T705")
    assert any("rollback journal" in note for note in said["notes"])


@pytest.mark.parametrize("what", ["missing", "no database", "other tables", "damaged", "folder"])
def test_what_cannot_be_read_is_never_clean(tmp_path: Path, facts: Path, what: str) -> None:
    path = tmp_path / "it.db"
    if what == "no database":
        path.write_text("x" * 5_000)
    elif what == "folder":
        path.mkdir()
    elif what == "other tables":
        with closing(connected(path)) as db:
            db.execute("CREATE TABLE a (b)")
    elif what == "damaged":
        with closing(connected(facts)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(facts, path)
        raw = bytearray(path.read_bytes())
        raw[4096 : len(raw)] = b"\xff" * (len(raw) - 4096)
        path.write_bytes(raw)
    ran = audit(tmp_path, path)
    assert ran.code in (1, 3), ran.out + ran.err
    assert "Nothing is wrong" not in ran.out
    headed = ran.out.splitlines()[1:2] and ran.out.splitlines()[1].startswith("  table memory")
    assert bool(headed) is (what == "damaged" and ran.code == 1)


def test_it_stands_alone(tmp_path: Path, facts: Path) -> None:
    for words in (("--history", "x"), ("--seal",), ("--select", "D"), ("--snapshot", "x")):
        ran = audit(tmp_path, facts, *words)
        assert (ran.code, "--memory-db" in ran.err) == (2, True)


needs_sqlite3 = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs the sqlite3 program")


@needs_sqlite3
def test_the_pruning_that_is_shipped(facts: Path) -> None:
    assert (CONFIG / "memory-prune.sql").read_text().startswith("PRAGMA foreign_keys = ON;\n")
    done = subprocess.run(
        ["sqlite3", "-bail", str(facts)],
        input=(CONFIG / "memory-prune.sql").read_bytes(),
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    with closing(connected(facts)) as db:
        assert [i for (i,) in db.execute("SELECT id FROM memory ORDER BY id")] == [
            "fresh",
            "long-ago",
            "never",
        ]


@needs_sqlite3
def test_the_backup_that_is_shipped(tmp_path: Path, facts: Path) -> None:
    to = tmp_path / "it's kept"
    to.mkdir()
    command = [str(CONFIG / "memory-backup.sh"), str(facts), str(to)]
    with closing(connected(facts)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        writer.execute("COMMIT")
    assert (done.returncode, done.stderr) == (0, "")
    (copy,) = to.iterdir()
    assert str(copy) == done.stdout.strip()
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(connected(copy)) as db:
        assert db.execute("SELECT count(*) FROM memory").fetchone() == (5,)
    # a fact that points nowhere is told, and no reason to have no copy
    with closing(connected(facts, keys=False)) as db:
        db.execute("DELETE FROM memory WHERE id = 'fresh'")
    time.sleep(1.1)  # its name is of a second
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "point to one that is gone" in done.stderr
    copies = set(to.iterdir())
    assert len(copies) == 2
    with closing(connected(facts)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("UPDATE memory SET superseded_by = id")
    time.sleep(1.1)
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "does not check" in failed.stderr
    assert set(to.iterdir()) == copies


def test_a_backup_of_nothing_or_to_nowhere_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "facts.db").touch()
    for words in (("none.db", "."), ("facts.db", "nowhere")):
        ran = subprocess.run(
            [str(CONFIG / "memory-backup.sh"), *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        missing = next(word for word in words if word in ("none.db", "nowhere"))
        assert (ran.returncode, ran.stderr) == (1, f"memory-backup: {missing}: is not there\n")
    assert [one.name for one in tmp_path.iterdir()] == ["facts.db"]
