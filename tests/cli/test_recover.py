"""`mem0audit recover` as a user runs it: screens, JSON, JSON lines, confirmation, exit codes, and no memory text."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders import StoreCopy, copy_incident, copy_store
from tests.cli.program import Ran, call
from tests.operations.embedder import serving
from tests.operations.test_restore import agent, undisturbed
from tests.report.test_json import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

SECRETS = ("SECRETCAROL", "Quito", "vegetarian", "Lisbon")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    """A store with ids of its own, since a lost one is looked for in every store that is open on this machine."""
    store = copy_store("2.2.1", tmp_path, pre_delete_all=True)
    with closing(sqlite3.connect(store.history)) as log:
        ids = [row[0] for row in log.execute("SELECT DISTINCT memory_id FROM history")]
        log.executemany(
            "UPDATE history SET memory_id = ? WHERE memory_id = ?", [(str(uuid.uuid4()), i) for i in ids]
        )
        log.commit()
    shutil.rmtree(store.vectors)
    return store


def flags(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


def recover(home: Path, *words: str) -> Ran:
    ran = undisturbed(lambda: call(home, "recover", *words))
    assert not [secret for secret in SECRETS if secret in ran.out + ran.err]
    assert "Traceback" not in ran.err
    return ran


def test_what_it_takes(tmp_path: Path, store: StoreCopy) -> None:
    for words in (
        ("--to", "x"),
        ("--snapshot", "x"),
        ("--assign-user", "u", "--skip-unknown"),
        ("--assign-user", "*"),
        ("--dry-run", "--export", "x"),
        ("--no-ledger",),
        ("--stranded-log", "--memory", "x"),
        ("--stranded-log", "--export", "x"),
        ("--stranded-log",),
    ):
        ran = recover(tmp_path, *flags(store), *words)
        assert (ran.code, ran.out) == (2, ""), words
    assert not store.vectors.exists() and not (tmp_path / "x").exists()
    ran = recover(
        tmp_path, "--dry-run", "--history", str(tmp_path / "none"), "--qdrant-path", str(store.vectors)
    )
    assert ran.code == 3


def test_the_plan(tmp_path: Path, store: StoreCopy) -> None:
    before = store.history.read_bytes(), store.history.stat()
    ran = recover(tmp_path, *flags(store), "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("27 memories are live in the log, and in no store that was found.\n")
    assert "27 memories wait until somebody says whose they are." in ran.out
    assert "None of them can be added back as things are." in ran.out
    assert any(line.endswith("--assign-user U --dry-run") for line in ran.out.splitlines())
    ran = recover(tmp_path, *flags(store), "--assign-user", "zoe", "--dry-run")
    assert "27 memories can be added back from their texts." in ran.out and "user zoe" in ran.out
    # nobody knows the agent's mem0, and the format is gone with the folder
    assert "Not as things are: the agent's mem0 is not known" in ran.out and "--agent-python" in ran.out
    ran = recover(tmp_path, *flags(store), "--assign-user", "zoe", "--dry-run", "--verbose")
    assert ran.out.count(" lost  row ") == 27
    document = check(recover(tmp_path, *flags(store), "--dry-run", "--format", "json").out, "recover-plan")
    assert document["lost"] == len(document["unknown_owner"]) == 27 and document["memories"] == []
    assert document["incidents"][0]["kind"] == "emptied" and document["exported_to"] is None
    assert (store.history.read_bytes(), store.history.stat().st_mtime_ns) == (
        before[0],
        before[1].st_mtime_ns,
    )
    assert not store.vectors.exists()


def test_narrow_screens_wrap(tmp_path: Path, store: StoreCopy) -> None:
    ran = undisturbed(
        lambda: call(
            tmp_path, "recover", *flags(store), "--assign-user", "z" * 30, "--dry-run", env={"COLUMNS": "60"}
        )
    )
    assert max(len(line) for line in ran.out.splitlines() if "mem0audit recover" not in line) <= 60


def test_export_is_for_its_owner_alone(tmp_path: Path, store: StoreCopy) -> None:
    file = tmp_path / "lost.jsonl"
    ran = recover(tmp_path, *flags(store), "--export", str(file))
    assert ran.code == 0 and ran.out.startswith("27 memories with their texts") and str(file) in ran.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 27 and any("SECRETCAROL" in line["memory"] for line in lines)
    assert {line["user_id"] for line in lines} == {None}
    assert [line["log_row"] for line in lines] == sorted(line["log_row"] for line in lines)
    out = recover(tmp_path, *flags(store), "--skip-unknown", "--export", str(file), "--format", "json").out
    document = check(out, "recover-plan")
    assert document["exported_to"] == str(file) and file.read_text() == ""
    assert recover(tmp_path, *flags(store), "--export", str(store.history)).code == 4


def test_adding_back(tmp_path: Path, store: StoreCopy) -> None:
    with serving() as own:
        config = own.write(tmp_path / "mem0.json")
        words = (*flags(store), "--agent-python", sys.executable, "--assign-user", "zoe")
        ran = recover(tmp_path, *words)
        assert ran.code == 2 and "--config FILE" in ran.err
        words += ("--config", str(config))
        ran = recover(tmp_path, *words)
        assert ran.code == 4 and "27 memories can be added back" in ran.err and "not confirmed" in ran.err
        assert "Not as things are" not in recover(tmp_path, *words, "--dry-run").out
        document = check(recover(tmp_path, *words, "--yes", "--format", "json").out, "recover")
        assert len(document["added"]) == len(own.asked) == 27 and document["mem0_version"] == "2.2.1"
        ran = recover(tmp_path, *words, "--yes")
        assert (ran.code, ran.err) == (0, "") and ran.out.startswith("Nothing is lost")
        assert len(own.asked) == 27
    ran = call(tmp_path, "users", *flags(store))
    assert "zoe" in ran.out and "27" in ran.out


# --- a stranded log ---


@pytest.fixture
def stranded(tmp_path: Path) -> StoreCopy:
    return copy_incident("stranded-history", tmp_path)


def test_a_stranded_log(tmp_path: Path, stranded: StoreCopy) -> None:
    to = ("--stranded-log", "--to", str(tmp_path / "snapshots"))
    ran = recover(tmp_path, *flags(stranded), "--dry-run")
    assert ran.code == 0 and "8 rows of the log are stranded" in ran.out
    assert "recover --history" in ran.out and "--stranded-log --dry-run" in ran.out
    ran = recover(tmp_path, *flags(stranded), *to, "--dry-run")
    assert ran.code == 0 and "8 of 8 rows" in ran.out and not (tmp_path / "snapshots").exists()
    document = check(
        recover(tmp_path, *flags(stranded), *to, "--dry-run", "--format", "json").out, "put-back-plan"
    )
    assert document["rows_before"] == 2 and document["tables"][0]["missing"] == 8
    ran = recover(tmp_path, *flags(stranded), *to)
    assert ran.code == 4 and "Put them back?" not in ran.out and "not confirmed" in ran.err
    with agent(stranded) as pid:
        ran = call(tmp_path, "recover", *flags(stranded), *to, "--yes")
        assert ran.code == 4 and f"in use by pid {pid} " in ran.err
    assert not (tmp_path / "snapshots").exists()
    document = check(recover(tmp_path, *flags(stranded), *to, "--yes", "--format", "json").out, "put-back")
    assert (document["rows_before"], document["rows_after"], document["warnings"]) == (2, 10, [])
    assert os.path.isdir(document["snapshot"])
    ran = recover(tmp_path, *flags(stranded), *to, "--yes")
    assert (ran.code, ran.out) == (0, "No row of the log is stranded in another table.\n")
