"""`mem0audit delete` as a user runs it: the plan, the word to type, JSON, exit codes, and no memory text."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.snapshot import checksum_text
from tests.builders import RawHistory, RawPoints, StoreCopy, copy_store
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
        (("--user", "carol", "--receipt", "no/such/folder"), "--receipt no/such/folder: no folder"),
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


def test_a_receipt_is_not_written_into_the_install(tmp_path: Path, store: StoreCopy) -> None:
    target = store.vectors / "receipt.json"
    ran = delete(tmp_path, store, "--user", "carol", "--yes", "--receipt", str(target))
    assert (ran.code, f"--receipt {target}: lies inside the vector store" in ran.err) == (4, True), ran.err
    assert not target.exists() and RawPoints(store.vectors).points()


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
    assert said["removed"] == {"memories": 8, "entities": 3, "links": 0, "facts": 0}
    assert said["left"] == {"history_rows": 17, "messages": 2}
    assert {one["kind"]: one["count"] for one in said["residue"]["rows"]}["history"] == 17
    assert "Type carol to go on" in err.decode()
    assert not [secret for secret in SECRETS if secret in out.decode() + err.decode()]
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert (receipt["removed"], receipt["left"]) == (said["removed"], said["left"])
    assert {p.payload["user_id"] for p in RawPoints(store.vectors).points().values()} == {"alice", "bob"}
    ran = delete(tmp_path, store, "--user", "carol", "--yes", "--dry-run")
    assert "0 memories of user carol" in ran.out


def test_redacted_with_a_short_lived_snapshot(tmp_path: Path, store: StoreCopy) -> None:
    """Said before, done, counted as readable until its time, and then removed by the next command."""
    ran = delete(tmp_path, store, "--user", "carol", "--yes", "--snapshot-for", "1h")
    assert (ran.code, "snapshot_dir" in ran.err) == (2, True)
    assert delete(tmp_path, store, "--user", "carol", "--snapshot-for", "soon").code == 2
    folder = tmp_path / "snapshots"
    (tmp_path / "mem0audit.toml").write_text(f'snapshot_dir = "{folder}"\n')
    flags = ("--user", "carol", "--redact", "--snapshot-for", "1h")
    ran = delete(tmp_path, store, *flags, "--dry-run")
    assert "the text of 17 history rows and 2 chat messages" in " ".join(ran.out.split())
    assert "after 1 hour removes it" in " ".join(ran.out.split())
    assert ran.out.splitlines()[-1].endswith("--redact --snapshot-for 1h")
    plan = check(delete(tmp_path, store, *flags, "--dry-run", "--format", "json").out, "delete-plan")
    assert plan["redact"]["history_rows"] == 17 and plan["short_lived_snapshot"]["seconds"] == 3600
    assert not folder.exists()

    ran = delete(tmp_path, store, *flags, "--yes", "--receipt", "receipt.json")
    said = " ".join(ran.out.split())
    assert ran.code == 1 and "Erased" not in ran.out  # the snapshot has it all
    assert "Emptied the text of 17 history rows and 2 chat messages; rebuilt 3 files." in said
    assert "1 hold something of theirs" in said and "short-lived: the first command after" in said
    receipt = check((tmp_path / "receipt.json").read_text(), "erasure-receipt")
    (taken,) = receipt["snapshots"]
    assert (receipt["short_lived_snapshot"], receipt["erased"], taken["memories"]) == (
        taken["path"],
        False,
        8,
    )
    (copy,) = receipt["searched"]["copies"]
    assert copy["memories"] == 8 and any(one["whole"] for one in copy["files"])

    path = Path(taken["path"])
    text = (path / "manifest.json").read_text()
    over = re.sub(r'"until": "[^"]*"', '"until": "2026-01-01 00:00:00Z"', text).encode()
    (path / "manifest.json").write_bytes(over)
    (path / "manifest.json.sha256").write_text(checksum_text(over))
    assert delete(tmp_path, store, *flags, "--dry-run").code == 3 and path.exists()  # it only looks
    words = "--history", str(store.history), "--qdrant-path", str(store.vectors), "--user", "carol"
    ran = call(tmp_path, "residue", *words)
    assert f"Removed the short-lived snapshot {path}" in ran.err
    assert not path.exists()
    assert (ran.code, "delete" in ran.out) == (3, False), ran.out  # no text of hers is known any more


def test_erased_is_said_after_the_search(tmp_path: Path, store: StoreCopy) -> None:
    """Of a memory that is there, and of one that mem0 deleted long ago, as the page of S804 has it."""
    there = next(i for i, p in RawPoints(store.vectors).points().items() if p.payload["user_id"] == "carol")
    log = [dict(row) for row in RawHistory(store.history).rows()]
    gone = next(row["memory_id"] for row in reversed(log) if row["event"] == "DELETE")
    assert gone not in RawPoints(store.vectors).points()
    line = next(x for x in CATALOGUE["S804"].to_do.splitlines() if "--memory" in x).split()
    flags = [gone if word == "MEMORY_ID" else word for word in line[2:] if word != "--dry-run"]
    ran = delete(tmp_path, store, *flags, "--memory", there, "--yes", "--format", "json")
    said = check(ran.out, "delete")
    assert (ran.code, said["erased"]) == (0, True), ran.err
    emptied = [dict(r) for r in RawHistory(store.history).rows() if r["memory_id"] in (gone, there)]
    assert said["redacted"]["history_rows"] == len(emptied) > 3
    assert {row[name] for row in emptied for name in ("old_memory", "new_memory")} == {"", None}
    assert {one["after"] for one in said["places"]} == {0}
