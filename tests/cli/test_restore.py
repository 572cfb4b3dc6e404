"""`mem0audit snapshot restore` as a user runs it: screens, JSON, confirmation, exit codes, and no memory text."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders import StoreCopy, copy_store
from tests.cli.program import Ran, call, clean_environment
from tests.operations.test_restore import agent, halves, in_child, steps
from tests.operations.test_snapshot import needs_root
from tests.report.test_json import check

SECRETS = ("SECRETCAROL", "Quito", "vegetarian")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)


def flags(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


def restore(home: Path, *words: str) -> Ran:
    ran = call(home, "snapshot", "restore", *words)
    assert not [secret for secret in SECRETS if secret in ran.out + ran.err]
    assert "Traceback" not in ran.err
    return ran


@pytest.fixture
def snapshot(tmp_path: Path, store: StoreCopy) -> Path:
    ran = call(tmp_path, "snapshot", "create", "--to", str(tmp_path / "snapshots"), *flags(store))
    assert ran.code == 0, ran.err
    (path,) = (tmp_path / "snapshots").glob("20*")
    return path


def damage(store: StoreCopy) -> None:
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("DELETE FROM history WHERE rowid > 9")
        log.commit()


def printed(ran: Ran, label: str) -> list[str]:
    """The words of the command that is printed after a label, without the program."""
    (line,) = (line for line in ran.out.splitlines() if line.startswith(label))
    return shlex.split(line.partition(":   ")[2])[1:]


def test_where_to_must_be_said(tmp_path: Path, snapshot: Path) -> None:
    ran = restore(tmp_path, str(snapshot))
    assert (ran.code, ran.out) == (2, "")
    assert f"mem0audit snapshot restore {snapshot} --to NEWDIR" in ran.err
    assert f"mem0audit snapshot restore {snapshot} --in-place" in ran.err
    for words in (
        (str(snapshot), "--to", "x", "--in-place"),
        ("--to", "x"),
        ("--in-place",),
        (str(snapshot), "--discard-replaced"),
        (str(snapshot), "--to", ""),
        (str(snapshot), "--to", "x", "--history", "y"),
        (str(snapshot.parent), "--to", "x", "--in-place"),
    ):
        assert restore(tmp_path, *words).code == 2, words
    ran = restore(tmp_path, "2026-11-29T023000Z", "--from", str(snapshot.parent), "--to", "x")
    assert ran.code == 3 and "there is no such snapshot" in ran.err


def test_into_a_new_folder(tmp_path: Path, store: StoreCopy, snapshot: Path) -> None:
    ran = restore(tmp_path, snapshot.name, "--from", "snapshots", "--to", "new", "--dry-run")
    assert ran.code == 0 and "has changed nothing" in ran.out
    # the mem0 that would erase in it who was erased since may be named: nothing else of an install may
    for python, code in ((sys.executable, 0), ("/no/python", 0)):
        ran = restore(tmp_path, str(snapshot), "--to", "new", "--dry-run", "--agent-python", python)
        assert ran.code == code, ran.err
    assert not (tmp_path / "new").exists()
    ran = restore(tmp_path, snapshot.name, "--from", "snapshots", "--to", "new")
    assert (ran.code, ran.err) == (0, "")
    assert "27 memories" in ran.out and "Written by mem0ai" in ran.out
    words = printed(ran, "Look at it")
    assert words[0] == "audit"
    assert call(tmp_path, *words).code in (0, 1)
    assert call(tmp_path, "users", *words[1:]).out == call(tmp_path, "users", *flags(store)).out
    ran = restore(tmp_path, str(snapshot), "--to", "new")
    assert ran.code == 4 and "is not empty" in ran.err
    (tmp_path / "mem0audit.toml").write_text('snapshot_dir = "snapshots"\n')
    document = check(restore(tmp_path, snapshot.name, "--to", "second", "--format", "json").out, "restore")
    assert document["history"] == f"{tmp_path}/second/history.db" and document["replaced"] == []


def test_in_place(tmp_path: Path, store: StoreCopy, snapshot: Path) -> None:
    before = halves(store)
    damage(store)
    wrecked = halves(store)
    places = (store.folder, snapshot.parent)
    stats = {p: p.lstat() for place in places for p in place.rglob("*")}
    ran = restore(tmp_path, str(snapshot), "--in-place", *flags(store), "--dry-run")
    assert ran.code == 0 and "exchanged, the old one is put aside" in ran.out
    assert "To open it the agent needs" in ran.out and "other paths" not in ran.out
    assert printed(ran, "To do it") == ["snapshot", "restore", *flags(store), str(snapshot), "--in-place"]
    known = ("--agent-python", sys.executable)
    ran = restore(tmp_path, str(snapshot), "--in-place", *flags(store), *known, "--dry-run")
    assert ran.code == 0 and "To open it the agent needs" not in ran.out
    after = {p: p.lstat() for place in places for p in place.rglob("*")}
    assert [(p, s.st_mtime_ns, s.st_ctime_ns) for p, s in after.items()] == [
        (p, s.st_mtime_ns, s.st_ctime_ns) for p, s in stats.items()
    ]
    ran = restore(tmp_path, str(snapshot), "--in-place", *flags(store))
    assert ran.code == 4 and "not confirmed" in ran.err and "--yes" in ran.err
    assert halves(store) == wrecked
    ran = restore(tmp_path, str(snapshot), "--in-place", *flags(store), "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert halves(store) == before
    assert f"{store.history}.replaced-" in ran.out and f"{store.vectors}.replaced-" in ran.out
    assert call(tmp_path, *printed(ran, "Look at it")).code in (0, 1)
    discard = printed(ran, "When all is well")
    ran = call(tmp_path, *discard)
    assert ran.code == 4 and "Put aside by restores" in ran.err
    assert list(store.mem0_dir.glob("*.replaced-*"))
    ran = call(tmp_path, *discard, "--yes")
    assert ran.code == 0 and "Removed 2" in ran.out
    assert not list(store.mem0_dir.glob("*replaced*")) and not list(store.folder.glob("*replaced*"))
    assert call(tmp_path, *discard, "--yes").code == 3


def test_json(tmp_path: Path, store: StoreCopy, snapshot: Path) -> None:
    json_ = ("--format", "json")
    words = (str(snapshot), "--in-place", *flags(store), *json_)
    plan = check(restore(tmp_path, *words, "--dry-run").out, "restore-plan")
    assert [t["half"] for t in plan["targets"]] == ["history", "vectors"] and plan["interrupted"] is None
    done = check(restore(tmp_path, *words, "--yes").out, "restore")
    assert done["in_place"] and len(done["replaced"]) == 2 and done["counts"]["memories"] == 27
    listed = check(restore(tmp_path, "--discard-replaced", *flags(store), *json_, "--dry-run").out, "discard")
    assert [one["path"] for one in listed["replaced"]] == done["replaced"] and not listed["removed"]
    listed = check(restore(tmp_path, "--discard-replaced", *flags(store), *json_, "--yes").out, "discard")
    assert listed["removed"]
    plan = check(restore(tmp_path, str(snapshot), "--to", "new", "--dry-run", *json_).out, "restore-plan")
    assert plan["to"] == f"{tmp_path}/new"


def test_cut_off_and_gone_on_with(tmp_path: Path, store: StoreCopy, snapshot: Path) -> None:
    before = halves(store)
    damage(store)
    words = (str(snapshot), "--in-place", *flags(store), "--yes")
    exchanged: list[str] = []

    def die(name: str) -> None:
        exchanged.extend([name] if name == "restore.exchange" else [])
        if len(exchanged) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    with steps(die):
        assert in_child(lambda: restore(tmp_path, *words).code) == -signal.SIGKILL
    plan = restore(tmp_path, "--in-place", *flags(store), "--dry-run")
    assert "was cut off here; first: it is finished" in re.sub(r"\s+", " ", plan.out)
    document = check(restore(tmp_path, *words, "--dry-run", "--format", "json").out, "restore-plan")
    assert [p["state"] for p in document["interrupted"]["places"]] == ["after", "before"]
    ran = restore(tmp_path, "--discard-replaced", *flags(store), "--yes")
    assert ran.code == 4 and "was cut off here" in ran.err
    assert "the same command with --in-place" in ran.err  # it names the install as this one did
    ran = restore(tmp_path, "--in-place", *flags(store), "--yes")  # which one is known
    assert ran.code == 0, ran.err
    assert "Finished the restore of" in ran.out and "this run found it" in re.sub(r"\s+", " ", ran.out)
    assert halves(store) == before


def test_refused(tmp_path: Path, store: StoreCopy, snapshot: Path) -> None:
    words = (str(snapshot), "--in-place", *flags(store), "--yes")
    with agent(store) as pid:
        ran = restore(tmp_path, *words)
        assert (ran.code, ran.out) == (4, "")
        assert f"is in use by pid {pid} " in ran.err and f"kill {pid}" in ran.err
    data = (snapshot / "history.db").read_bytes()
    (snapshot / "history.db").write_bytes(data[:-1] + b"\xff")
    for end in (words, (str(snapshot), "--to", "new")):
        ran = restore(tmp_path, *end)
        assert ran.code == 4
        assert f"mem0audit snapshot verify {snapshot}" in ran.err
    (snapshot / "history.db").write_bytes(data)
    (snapshot.parent / "erasures.json").unlink()
    ran = restore(tmp_path, *words, "--no-ledger")
    assert ran.code == 4 and "--without-erasure-record" in ran.err
    ran = restore(tmp_path, *words, "--without-erasure-record", "--no-ledger")
    assert ran.code == 0 and "not known whether somebody was erased" in re.sub(r"\s+", " ", ran.out)


@pytest.mark.root
def test_an_agent_outside_of_this_pid_namespace(tmp_path: Path, store: StoreCopy, snapshot: Path) -> None:
    """As in a container: no process outside is visible, and the lock that it holds is."""
    needs_root()
    before = halves(store)
    words = ["snapshot", "restore", str(snapshot), "--in-place", *flags(store), "--yes"]
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    with agent(store):
        done = subprocess.run(
            [*inside, sys.executable, "-m", "mem0audit", *words],
            capture_output=True,
            text=True,
            env=clean_environment(tmp_path),
            cwd=tmp_path,
        )
    assert done.returncode == 4, done.stderr
    assert "is locked by a process that is not visible from here" in done.stderr
    assert "outside of this container" in done.stderr
    assert halves(store) == before


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 4)])
def test_it_asks_on_a_terminal(
    tmp_path: Path, store: StoreCopy, snapshot: Path, answer: str, code: int
) -> None:
    before = halves(store)
    damage(store)
    main, side = pty.openpty()
    words = ["snapshot", "restore", str(snapshot), "--in-place", *flags(store)]
    with subprocess.Popen(
        [sys.executable, "-m", "mem0audit", *words],
        stdin=side,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(tmp_path),
        cwd=tmp_path,
    ) as process:
        os.write(main, f"{answer}\n".encode())
        _, err = process.communicate(timeout=300)
    os.close(main)
    os.close(side)
    assert process.returncode == code, err
    assert b"Put 2026" in err or b"in place of both stores?" in err
    assert (halves(store) == before) is (code == 0)


def test_the_help_says_what_it_does(tmp_path: Path) -> None:
    ran = call(tmp_path, "snapshot", "restore", "--help")
    assert ran.code == 0
    for word in ("--to", "--in-place", "--discard-replaced", "--dry-run", "--yes", "--from"):
        assert word in ran.out
    assert json.dumps(ran.out).isascii()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("written", [True, False])
def test_what_was_cut_off_is_settled_without_its_snapshot(
    tmp_path: Path, store: StoreCopy, snapshot: Path, *, named: bool, gone: bool, written: bool
) -> None:
    """Expired, or on a disk that died, meanwhile: no new half may stay beside an old one for that."""
    before = halves(store)
    damage(store)
    wrecked = halves(store)
    exchanged: list[str] = []

    def die(name: str) -> None:
        exchanged.extend([name] if name == "restore.exchange" else [])
        if len(exchanged) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    words = ([str(snapshot)] if named else [], ["--in-place", *flags(store), "--yes"])
    with steps(die):
        assert in_child(lambda: restore(tmp_path, str(snapshot), *words[1]).code) == -signal.SIGKILL
    if gone:
        shutil.rmtree(snapshot)
    else:
        (snapshot / "history.db").write_bytes(b"")
    if written:  # into the new half, so that it is taken back
        with closing(sqlite3.connect(store.history)) as log:
            log.execute("UPDATE history SET new_memory = 'x' WHERE rowid = 1")
            log.commit()
    plan = restore(tmp_path, *words[0], *words[1], "--dry-run")
    assert plan.code == 0 and "what was begun is settled, and not begun again" in re.sub(
        r"\s+", " ", plan.out
    )
    ran = restore(tmp_path, *words[0], *words[1])
    if written:
        assert ran.code == 5 and "is taken back, both stores are as they were before it" in ran.err
        assert halves(store) == wrecked
    else:
        assert (ran.code, ran.err) == (0, ""), ran.err
        assert halves(store) == before
    ran = restore(tmp_path, *words[0], *words[1])
    assert ran.code == ((3 if gone else 4) if named else 2)
    assert not list(store.mem0_dir.glob(".*restoring*")) and not list(store.folder.glob(".*restoring*"))


def test_a_snapshot_of_another_install_is_asked_about(
    tmp_path: Path, store: StoreCopy, snapshot: Path
) -> None:
    other = copy_store("2.2.1", tmp_path / "other")
    ran = restore(tmp_path, str(snapshot), "--in-place", *flags(other), "--dry-run")
    assert ran.code == 0
    said = " ".join(ran.out.split())
    assert f"It was taken from other paths: {store.history}, {store.vectors}." in said
