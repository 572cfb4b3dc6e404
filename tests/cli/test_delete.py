"""`mem0audit delete` as a user runs it: the plan, the word to type, JSON, exit codes, and no memory text."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import Ran, call, clean_environment
from tests.operations.test_restore import agent
from tests.report.test_json import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")
SECRETS = ("SECRETCAROL", "Quito", "vegetarian")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)


def words(store: StoreCopy, *more: str) -> tuple[str, ...]:
    stores = "--history", str(store.history), "--qdrant-path", str(store.vectors)
    return "delete", *stores, "--only-this-store", *more


def delete(home: Path, store: StoreCopy, *more: str) -> Ran:
    ran = call(home, *words(store, *more))
    assert not [secret for secret in SECRETS if secret in ran.out + ran.err]
    assert "Traceback" not in ran.err
    return ran


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--user", "*"), "is nobody's id"),
        (("--user", " "), "--user: is empty"),
        (("--agent", ""), "--agent: is empty"),
        (("--user", "alice", "--memory", "x"), "names memories by themselves"),
        (("--memory", "*"), "is no id"),
        ((), "whose memories?"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, store: StoreCopy, given: tuple[str, ...], says: str) -> None:
    ran = delete(tmp_path, store, *given, "--yes")
    assert (ran.code, says in ran.err) == (2, True), ran.err
    assert not (tmp_path / ".local").exists()


def test_the_plan(tmp_path: Path, store: StoreCopy) -> None:
    before = store.history.read_bytes()
    ran = delete(tmp_path, store, "--user", "carol", "--dry-run")
    assert ran.code == 0, ran.err
    assert "8 memories of user carol, 3 entities that link nothing else" in ran.out
    assert "the text in 9 history rows, 2 chat messages" in ran.out
    assert "--user carol" in ran.out.splitlines()[-1] and "--only-this-store" in ran.out.splitlines()[-1]
    assert all(len(line) <= 100 for line in ran.out.splitlines()[:-1])
    said = check(
        delete(tmp_path, store, "--user", "carol", "--dry-run", "--format", "json").out, "delete-plan"
    )
    assert len(said["ids"]) == 8
    assert said["left"] == {"history_rows": 9, "messages": 2}
    assert delete(tmp_path, store, "--user", "nobody", "--yes").code == 3
    ran = delete(tmp_path, store, "--user", "carol")
    assert (ran.code, "not confirmed: nothing was changed" in ran.err) == (4, True)
    assert store.history.read_bytes() == before


def test_in_use(tmp_path: Path, store: StoreCopy) -> None:
    with agent(store) as pid:
        ran = delete(tmp_path, store, "--user", "carol", "--yes")
    assert ran.code == 4
    assert f"in use by pid {pid}" in ran.err
    assert f"kill {pid}" in ran.err
    assert 'mem0audit.erase(memory, user_id="carol")' in ran.err


def test_typed_and_done(tmp_path: Path, store: StoreCopy) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mem0audit", *words(store, "--user", "carol", "--format", "json")]
    with subprocess.Popen(
        [*command, "--receipt", "receipt.json"],
        env=clean_environment(tmp_path, TERM="dumb"),
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        os.write(ours, b"carol\n")
        out, err = running.communicate(timeout=300)
    os.close(ours)
    os.close(theirs)
    assert running.returncode == 1, err  # the log keeps its text
    said = check(out.decode(), "delete")
    assert said["removed"] == {"memories": 8, "entities": 3, "links": 0}
    assert said["left"] == {"history_rows": 17, "messages": 2}
    assert {one["kind"]: one["count"] for one in said["residue"]["rows"]}["history"] == 17
    assert "Type carol to go on" in err.decode()
    assert not [secret for secret in SECRETS if secret in out.decode() + err.decode()]
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert (receipt["removed"], receipt["left"]) == (said["removed"], said["left"])
    assert {p.payload["user_id"] for p in RawPoints(store.vectors).points().values()} == {"alice", "bob"}
    ran = delete(tmp_path, store, "--user", "carol", "--yes", "--dry-run")
    assert "0 memories of user carol" in ran.out
