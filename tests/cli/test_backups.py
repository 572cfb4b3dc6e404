"""`snapshot verify | import | diff` and `audit --snapshot` on backups, as a user runs them."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import run
from tests.cli.test_snapshot import flags, snapshot
from tests.operations.test_backups import copied, cp
from tests.operations.test_read_only import tree
from tests.report.test_json import check

JSON = ("--format", "json")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)


@pytest.fixture
def backup(tmp_path: Path, store: StoreCopy) -> Path:
    return cp(tmp_path / "monday", store.mem0_dir, store.vectors)


def test_the_screen_of_a_backup_made_with_cp(tmp_path: Path) -> None:
    folder = copied(tmp_path, "2.2.1", vectors_of="pre")
    file = folder / "qdrant/collection/mem0/storage.sqlite"
    ran = snapshot(tmp_path, "verify", "backup")
    assert (ran.code, ran.err) == (1, "")
    assert "Restoring this would bring back 8 deleted memories. It is not a pair." in ran.out
    assert ran.out.splitlines()[-2:] == [
        f"A pair:        mem0audit snapshot create --to {tmp_path}",
        f"Every night:   mem0audit schedule snapshot --to {tmp_path}",
    ]
    with file.open("r+b") as stream:
        stream.seek(8192)
        stream.write(b"\xff" * 4096)
    ran = snapshot(tmp_path, "verify", str(folder))
    assert ran.code == 1
    said = " ".join(ran.out.split())
    assert "qdrant/collection/mem0/storage.sqlite: damaged: fails integrity_check" in said
    assert "As far as it reads, restoring this would bring back 8 deleted memories." in said
    assert "copied while it was written" in said
    assert f"history {folder}/history.db ok" in said
    assert max(map(len, ran.out.splitlines()[:-1])) <= 100 or str(tmp_path) in ran.out


def test_halves_that_agree_are_exit_0(tmp_path: Path, backup: Path) -> None:
    before = tree(backup)
    ran = snapshot(tmp_path, "verify", str(backup))
    assert (ran.code, ran.err) == (0, "")
    assert "The halves agree." in ran.out
    told = check(snapshot(tmp_path, "verify", str(backup), *JSON).out, "verify")
    assert told["snapshots"] == []
    assert told["backups"][0]["good"] is True
    assert told["backups"][0]["halves"]["agree"] is True
    assert tree(backup) == before
    link = tmp_path / "latest"
    link.symlink_to(backup)
    assert snapshot(tmp_path, "verify", str(link)).code == 0


def test_what_could_not_be_read_is_exit_3_or_1(tmp_path: Path, backup: Path) -> None:
    for words in (("--quick",), ("--deep",)):
        ran = snapshot(tmp_path, "verify", str(backup), *words)
        assert ran.code == 2
        assert "need a manifest" in ran.err
    ran = snapshot(tmp_path, "verify", str(backup / "mem0_dir"))
    assert (ran.code, ran.out) == (3, "")
    assert "name the other half with --qdrant-path" in ran.err
    ran = snapshot(tmp_path, "verify", str(backup / "mem0_dir"), "--qdrant-path", str(backup / "qdrant"))
    assert ran.code == 0
    shutil.copytree(backup, backup / "again")
    ran = snapshot(tmp_path, "verify", str(backup))
    assert ran.code == 2
    assert "again/mem0_dir/history.db" in ran.err and "name one with --history" in ran.err


def test_an_output_inside_it_is_refused(tmp_path: Path, backup: Path) -> None:
    before = tree(backup)
    for words in (
        ("snapshot", "verify", str(backup)),
        ("audit", "--snapshot", str(backup)),
        ("snapshot", "diff", str(backup), str(backup)),
        ("snapshot", "import", str(backup), "--to", str(tmp_path / "s")),
    ):
        ran = run(tmp_path, *words, "-o", str(backup / "report"))
        assert ran.code == 4, words
    assert tree(backup) == before


def test_audit_of_a_backup_and_of_a_snapshot(tmp_path: Path, store: StoreCopy, backup: Path) -> None:
    RawPoints(backup / "qdrant").remove(next(iter(RawPoints(backup / "qdrant").points())))
    before = tree(backup)
    ran = run(tmp_path, "audit", "--snapshot", str(backup))
    assert (ran.code, ran.err) == (1, "")
    assert "1 memory of its log is not in its vectors: restored, it would lack them." in ran.out
    assert "not a pair" in ran.out and "SECRETCAROL" not in ran.out
    again = [line for line in ran.out.splitlines() if "--verbose" in line]
    assert again and all(f"audit --snapshot {backup} --verbose" in line for line in again)
    assert run(tmp_path, *again[0].rpartition("mem0audit ")[2].split()).code == 1
    told = check(run(tmp_path, "audit", "--snapshot", "monday", *JSON).out, "report")
    assert told["copy"]["path"] == str(backup) and told["copy"]["pair"] is False
    assert "D302" in {f["code"] for f in told["findings"]} and told["holders"] == []
    assert {code[0] for code in told["checked"]} <= set("DHEIC")
    assert tree(backup) == before
    folder = str(tmp_path / "snapshots")
    made = check(snapshot(tmp_path, "create", "--to", folder, *flags(store), *JSON).out, "snapshot")
    (tmp_path / "mem0audit.toml").write_text('snapshot_dir = "snapshots"\n')
    ran = run(tmp_path, "audit", "--snapshot", Path(made["path"]).name)
    assert ran.code == 0, ran.out
    assert "agree" in ran.out
    for words in (("--config", "x"), ("--qdrant-url", "http://x"), ("--history", str(store.history))):
        ran = run(tmp_path, "audit", "--snapshot", made["path"], *words)
        assert ran.code == 2, words
    ran = run(tmp_path, "audit", "--snapshot", str(tmp_path / "nowhere"))
    assert ran.code == 3
    assert "there is no such snapshot" in ran.err


def test_import(tmp_path: Path, store: StoreCopy) -> None:
    folder = copied(tmp_path, "2.2.1", vectors_of="pre")
    before, to = tree(folder), ("--to", str(tmp_path / "snapshots"))
    ran = snapshot(tmp_path, "import", str(folder), *to, "--dry-run")
    assert ran.code == 0
    assert "has changed nothing" in ran.out and not (tmp_path / "snapshots").exists()
    plan = check(snapshot(tmp_path, "import", str(folder), *to, "--dry-run", *JSON).out, "import-plan")
    assert plan["halves"]["returning"] == 8
    ran = snapshot(tmp_path, "import", str(folder), *to)
    assert (ran.code, ran.err) == (0, "")
    (path,) = (tmp_path / "snapshots").glob("20*")
    assert path.name == plan["name"]
    assert "NOT A PAIR" in ran.out and "bring back 8 deleted memories" in ran.out
    assert "the newest change in its log" in ran.out
    assert tree(folder) == before
    listed = snapshot(tmp_path, "list", *to).out.splitlines()
    assert listed[0].endswith("  not a pair  not verified")
    assert listed[1:] == ["    the log is less than 1 s newer than the vectors"]
    assert "NOT A PAIR" in snapshot(tmp_path, "show", str(path)).out
    ran = snapshot(tmp_path, "verify", str(path), "--deep")
    assert ran.code == 0
    assert "good" in ran.out and "not a pair" in ran.out
    made = check(snapshot(tmp_path, "import", str(folder), *to, *JSON).out, "snapshot")
    assert made["manifest"]["pair"] is False
    ran = snapshot(tmp_path, "import", str(path), *to)
    assert ran.code == 4
    assert "is a snapshot already" in ran.err
    os.truncate(folder / "history.db", 5000)
    ran = snapshot(tmp_path, "import", str(folder), *to)
    assert (ran.code, ran.out) == (4, "")
    assert "history.db" in ran.err and "nothing was imported" in ran.err
    assert snapshot(tmp_path, "import", str(folder)).code == 2


def test_an_import_that_cannot_be_written_is_exit_5(tmp_path: Path, backup: Path) -> None:
    """The real program, under a limit on how large a file may grow (RLIMIT_FSIZE), as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    before = tree(backup)
    words = ("snapshot", "import", str(backup), "--to", str(tmp_path / "snapshots"))
    ran = run(tmp_path, *words, preexec_fn=limit)
    assert (ran.code, ran.out) == (5, "")
    assert "no snapshot was taken, earlier ones are as they were" in ran.err and "Traceback" not in ran.err
    assert {p.name for p in (tmp_path / "snapshots").iterdir()} == {".mem0audit.lock"}
    assert run(tmp_path, *words).code == 0
    assert len(list((tmp_path / "snapshots").glob("20*"))) == 1
    assert tree(backup) == before


def test_diff(tmp_path: Path, store: StoreCopy, backup: Path) -> None:
    to = ("--to", str(tmp_path / "snapshots"))
    made = check(snapshot(tmp_path, "create", *to, *flags(store), *JSON).out, "snapshot")
    name = Path(made["path"]).name
    hostile = "SECRETCAROL \x1b[31m red\nuser bob  9 added"
    gone, changed = list(RawPoints(store.vectors).points())[:2]
    RawPoints(store.vectors).remove(gone)
    RawPoints(store.vectors).edit(changed, lambda payload: payload.update(data=hostile))
    ran = snapshot(tmp_path, "diff", name, "live", *to, *flags(store))
    assert (ran.code, ran.err) == (0, "")
    assert "0 added, 1 changed, 1 removed, 25 the same." in ran.out
    assert f"  ~ {changed}  text" in ran.out and f"  - {gone}" in ran.out
    told = check(snapshot(tmp_path, "diff", name, "live", *to, *flags(store), *JSON).out, "diff")
    assert told["counts"] == {"added": 0, "changed": 1, "removed": 1, "unchanged": 25}
    ran = run(tmp_path, "snapshot", "diff", made["path"], "live", "--text", *flags(store))
    assert ran.code == 0
    assert "      + SECRETCAROL \\x1b[31m red\\nuser bob  9 added" in ran.out and "\x1b" not in ran.out
    told = check(
        run(tmp_path, "snapshot", "diff", made["path"], "live", "--text", *flags(store), *JSON).out, "diff"
    )
    (one,) = (c for scope in told["scopes"] for c in scope["changed"])
    assert one["text_after"] == hostile
    ran = snapshot(tmp_path, "diff", "monday", name, *to)
    assert ran.code == 0
    assert "No memory differs; 27 memories the same." in ran.out
    for words, code, says in (
        ((name, "nowhere", *to), 3, "there is no such snapshot"),
        ((name, "monday", *to, *flags(store)), 2, "neither A nor B is live"),
        ((name, "monday"), 2, "no folder for snapshots is named"),
    ):
        ran = snapshot(tmp_path, "diff", *words)
        assert (ran.code, ran.out) == (code, ""), words
        assert says in ran.err
    assert json.loads(snapshot(tmp_path, "diff", "monday", "monday", *JSON).out)["scopes"] == []
