"""Backups adopted as snapshots: whole, dated, marked as no pair; nothing half at any fault."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import random
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.backup import Backup
from mem0audit.core.errors import Failed, Mem0auditError, Refused
from mem0audit.core.snapshot import Taken
from mem0audit.install.host import this_host
from mem0audit.operations.adopt import import_backup, plan_import
from mem0audit.operations.backup import find_backup, verify_backup
from mem0audit.operations.copyaudit import audit_snapshot, find_copy
from mem0audit.operations.verify import list_snapshots, verify
from mem0audit.stores import files
from tests.builders import MemoryBuilder, RawPoints, copy_store
from tests.operations import test_read_only
from tests.operations.test_backups import copied, cp, hot, wal_copy
from tests.operations.test_snapshot import (
    STORES,
    killed_at,
    leave_a_leftover,
    mounted,
    needs_root,
    places,
    rows_of,
    scrolled,
    to_wal,
    tree,
)

ROOT = Path(__file__).parents[2]


def backup_of(folder: Path) -> Backup:
    return find_backup(str(folder), this_host())


def adopt(folder: Path, to: Path) -> Taken:
    """Imported, and proven to have changed nothing in the backup."""
    before = test_read_only.tree(folder)
    host = this_host()
    try:
        return import_backup(plan_import(backup_of(folder), host, str(to)), host)
    finally:
        assert test_read_only.tree(folder) == before


# --- what goes in comes out ---------------------------------------------------------------------------


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("name", STORES)
def test_what_goes_in_comes_out(tmp_path: Path, name: str, wal: bool) -> None:
    store = copy_store(name, tmp_path, pre_delete_all=True)
    if wal:
        to_wal(store.history, *store.vectors.glob("collection/*/storage.sqlite"))
    folder = cp(tmp_path / "backup", store.mem0_dir, store.vectors)
    done = adopt(folder, tmp_path / "snapshots")
    path, manifest = Path(done.path), done.manifest
    assert rows_of(path / "history.db") == rows_of(store.history)
    assert scrolled(path / "qdrant", tmp_path / "two") == scrolled(store.vectors, tmp_path / "one")
    assert {f.journal_mode for f in manifest.files} - {None} == {"wal" if wal else "rollback"}
    assert (manifest.pair, manifest.settled, manifest.unsettled_why) == (False, False, "the halves agree")
    newest = max(row["updated_at"] or row["created_at"] or "" for row in _rows(store.history))
    assert manifest.taken_at == pytest.approx(_seconds(newest), abs=1.5)
    for depth in ("quick", "default", "deep"):
        told = verify(done.path, depth)  # type: ignore[arg-type]
        assert told.good, (depth, told.problems, told.not_checked)
    (listed,) = list_snapshots(str(tmp_path / "snapshots"))
    assert listed.manifest == manifest
    for file in path.rglob("*"):
        assert file.stat().st_mode & 0o777 == (0o700 if file.is_dir() else 0o600)
    assert {p.name for p in path.iterdir()} == {
        "manifest.json",
        "manifest.json.sha256",
        "history.db",
        "qdrant",
    }
    assert not [p for p in path.rglob("*") if p.name.endswith(("-wal", "-shm", "-journal"))]


def _rows(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT created_at, updated_at FROM history")]


def _seconds(text: str) -> float:
    from mem0audit.core.times import instant

    return instant(text) or 0.0


def test_halves_apart_are_said(tmp_path: Path) -> None:
    done = adopt(copied(tmp_path, "1.0.11", vectors_of="pre"), tmp_path / "snapshots")
    assert not done.manifest.pair
    assert done.manifest.findings["D301"] == 8
    assert verify(done.path, "deep").good


def test_journals_are_applied(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    before = rows_of(folder / "history.db")
    hot(copy_store("2.2.1", tmp_path / "second").history, folder / "history.db")
    done = adopt(folder, tmp_path / "snapshots")
    assert rows_of(Path(done.path) / "history.db") == before
    assert verify(done.path, "deep").good
    for name, ends, role in (("with", ("-wal",), "other"), ("all", ("-wal", "-shm"), "other")):
        folder = wal_copy(tmp_path / name, *ends)
        done = adopt(folder, tmp_path / name / "snapshots")
        with closing(sqlite3.connect(Path(done.path) / "history.db")) as connection:
            assert connection.execute("SELECT DISTINCT role FROM history").fetchall() == [(role,)]
        assert verify(done.path, "deep").good


def test_deleted_text_is_not_carried_along(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    with closing(sqlite3.connect(folder / "history.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = 0")
        connection.execute("CREATE TABLE other (x)")
        connection.executemany("INSERT INTO other VALUES (?)", [("SECRETOTHER" * 300,)] * 50)
        connection.execute("DROP TABLE other")
    assert b"SECRETOTHER" in (folder / "history.db").read_bytes()
    done = adopt(folder, tmp_path / "snapshots")
    assert b"SECRETOTHER" not in (Path(done.path) / "history.db").read_bytes()


def test_times_in_the_future_date_nothing(tmp_path: Path) -> None:
    with MemoryBuilder(tmp_path / "install") as agent:
        agent.add("fact", user_id="alice")
    folder = cp(tmp_path / "backup", agent.history, agent.vectors)
    for point in RawPoints(folder / "qdrant").points():
        RawPoints(folder / "qdrant").edit(
            point,
            lambda p: p.update(dict.fromkeys(("created_at", "updated_at"), "2999-01-01T00:00:00+00:00")),
        )
    host = this_host()
    plan = plan_import(backup_of(folder), host, str(tmp_path / "snapshots"))
    assert plan.dated_by == "the newest change in its log"
    assert plan.taken_at < host.now
    with closing(sqlite3.connect(folder / "history.db")) as connection:
        connection.execute("UPDATE history SET created_at = NULL, updated_at = NULL")
        connection.commit()
    os.utime(folder / "history.db", (1e9, 1e9))
    os.utime(folder / "qdrant/collection/mem0/storage.sqlite", (1.1e9, 1.1e9))
    plan = plan_import(backup_of(folder), this_host(), str(tmp_path / "snapshots"))
    assert (plan.dated_by, plan.name) == ("the time of its newest file", "2004-11-09T113320Z")
    assert verify(adopt(folder, tmp_path / "snapshots").path).good


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    before = test_read_only.tree(tmp_path)
    plan = plan_import(backup_of(folder), this_host(), str(tmp_path / "snapshots"))
    assert test_read_only.tree(tmp_path) == before
    assert plan.files == (
        ("history.db", "history.db"),
        ("qdrant/collection/mem0/storage.sqlite", "qdrant/collection/mem0/storage.sqlite"),
        ("qdrant/meta.json", "qdrant/meta.json"),
    )


def test_a_wal_that_was_left_behind_is_kept_in_mind(tmp_path: Path) -> None:
    done = adopt(wal_copy(tmp_path, "-shm"), tmp_path / "snapshots")
    why = done.manifest.unsettled_why
    assert (
        why == "the halves agree; history.db: its -wal was not copied with it: the newest changes are missing"
    )
    assert verify(done.path).good


@pytest.mark.thorough
def test_whatever_is_in_it(tmp_path: Path) -> None:
    """Bytes flipped, cut, filled at random: nothing but errors of ours comes out, and what is adopted is good."""
    seed = int(os.environ.get("MEM0AUDIT_SEED", random.randrange(1 << 32)))
    print(f"MEM0AUDIT_SEED={seed}")
    rng = random.Random(seed)
    folder = copied(tmp_path, "2.2.1-nlp", vectors_of="pre")
    shutil.copytree(folder, tmp_path / "whole")
    names = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    host = this_host()
    refused = adopted = 0
    for _ in range(30):
        name = rng.choice(names)
        data = bytearray((tmp_path / "whole" / name).read_bytes())
        for _ in range(rng.randrange(1, 6)):
            at = rng.choice((rng.randrange(100), rng.randrange(len(data))))
            length = rng.choice((1, 1, 4, 300))
            data[at : at + length] = rng.randbytes(length)
        (folder / name).write_bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])
        if rng.random() < 0.3:
            for end in ("-journal", "-wal"):
                (folder / f"{name}{end}").write_bytes(rng.choice((rng.randbytes(600), data, b"")))
        before = test_read_only.tree(folder)
        with contextlib.suppress(Mem0auditError):
            verify_backup(backup_of(folder), host)
        with contextlib.suppress(Mem0auditError):
            audit_snapshot(find_copy(None, str(folder), host), host)
        try:
            done = adopt(folder, tmp_path / "snapshots")
            adopted += 1
            assert verify(done.path).good, (name, seed)
            shutil.rmtree(done.path)
        except Mem0auditError:
            refused += 1
        assert test_read_only.tree(folder) == before, (name, seed)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "whole", folder)
    print(f"refused {refused}, adopted {adopted}")
    assert refused > 5


# --- refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["history.db", "qdrant/collection/mem0/storage.sqlite"])
def test_a_damaged_file_is_named_with_what_still_reads(tmp_path: Path, name: str) -> None:
    folder = copied(tmp_path)
    with (folder / name).open("r+b") as stream:
        stream.seek(8192)
        stream.write(b"\xff" * 4096)
    with pytest.raises(Refused, match=name) as problem:
        adopt(folder, tmp_path / "snapshots")
    assert "fails integrity_check" in problem.value.message
    assert "what still reads: " in problem.value.message
    assert problem.value.hint == f"what still reads: mem0audit audit --snapshot {folder}"
    assert not (tmp_path / "snapshots").exists()


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "qdrant/meta.json").write_text("{")
    with pytest.raises(Refused, match=r"meta\.json: is not JSON"):
        adopt(folder, tmp_path / "snapshots")
    folder = copied(tmp_path / "link")
    shutil.move(folder / "history.db", tmp_path / "aside.db")
    (folder / "history.db").symlink_to(tmp_path / "aside.db")
    with pytest.raises(Refused, match="is a link"):
        adopt(folder, tmp_path / "snapshots")
    folder = copied(tmp_path / "fine")
    for to in (folder, folder / "snapshots", folder / "qdrant/x"):
        with pytest.raises(Refused, match="lies inside the"):
            adopt(folder, to)
    with files.snapshot_folder(tmp_path / "snapshots"), pytest.raises(Refused, match="another mem0audit"):
        adopt(folder, tmp_path / "snapshots")
    assert list_snapshots(str(tmp_path / "snapshots")) == ()
    # the folder above the backup is a good place
    done = adopt(folder, folder.parent)
    assert verify(done.path).good


def test_changed_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied(tmp_path)

    def write(name: str) -> None:
        if name == "snapshot.rebuild":
            os.utime(folder / "history.db")

    monkeypatch.setattr(files, "step", write)
    host = this_host()
    with pytest.raises(Failed, match="changed while it was copied"):
        import_backup(plan_import(backup_of(folder), host, str(tmp_path / "snapshots")), host)
    assert list_snapshots(str(tmp_path / "snapshots")) == ()


def test_a_pickle_that_is_code_comes_along_unrun(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    ran = tmp_path / "ran"
    RawPoints(folder / "qdrant").put_row("x", b"cos\nsystem\n(S'touch " + os.fsencode(ran) + b"'\ntR.")
    done = adopt(folder, tmp_path / "snapshots")
    assert done.manifest.findings["I208"] == 1
    assert not ran.exists()


@pytest.mark.root
def test_a_tmpfs_is_no_place_for_a_snapshot(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    with mounted(tmp_path / "memory", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as point:
        with pytest.raises(Refused, match="in memory"):
            adopt(folder, point / "snapshots")
        assert list(point.iterdir()) == []


@pytest.mark.root
def test_a_real_tmpfs_of_1_mb_that_runs_full(durable: Path) -> None:
    """Whatever does not fit leaves nothing, and the next run is whole."""
    needs_root()
    store = copy_store("2.2.1-nlp", durable)
    folder = cp(durable / "backup", store.history, store.vectors)
    failed = 0
    host = this_host()
    plan = plan_import(backup_of(folder), host, str(durable / "elsewhere"))
    with mounted(durable / "small", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as point:
        to = point / "snapshots"
        forced = dataclasses.replace(plan, folder=str(to))
        first = import_backup(forced, host)
        before = tree(Path(first.path))
        filler = point / "filler"
        room = os.statvfs(point)
        free = room.f_bavail * room.f_frsize
        for left in range(0, min(free, 240_000), 24_000):
            with contextlib.suppress(OSError):
                filler.write_bytes(b"x" * (free - left))
            try:
                made = import_backup(forced, host)
            except Failed as problem:
                failed += 1
                assert "no space left" in problem.message.lower(), problem.message
            else:
                shutil.rmtree(made.path)
            assert [one.name for one in list_snapshots(str(to))] == [Path(first.path).name]
            assert tree(Path(first.path)) == before
        assert failed >= 3
        filler.unlink()
        assert verify(import_backup(forced, host).path).good
        assert not list(to.glob(".taking-*"))


# --- faults -------------------------------------------------------------------------------------------

NAMED = {
    "folder.create",
    *("snapshot.folder", "snapshot.lock", "snapshot.lock.write", "snapshot.clean", "snapshot.begin"),
    *("snapshot.create", "snapshot.copy", "snapshot.copy.chunk", "snapshot.recover"),
    *("snapshot.rebuild", "snapshot.rebuild.remove", "snapshot.write", "snapshot.write.fsync"),
    *("snapshot.fsync", "snapshot.fsync.hidden", "snapshot.raw", "snapshot.publish", "snapshot.published"),
}
"""What an import goes through; `snapshot.abandon` is a failure's."""


def prepared(tmp_path: Path) -> tuple[Path, Path, str, dict[str, str]]:
    """A backup with a hot journal, a folder with one snapshot of it, that one, and its files."""
    folder = copied(tmp_path, vectors_of="pre")
    hot(copy_store("2.2.1", tmp_path / "second").history, folder / "history.db")
    to = tmp_path / "snapshots"
    first = adopt(folder, to).path
    return folder, to, first, tree(Path(first))


def check_after_a_fault(folder: Path, to: Path, first: str, before: dict[str, str], where: str) -> None:
    listed = list_snapshots(str(to))
    assert Path(first).name in [one.name for one in listed]
    for one in listed:
        assert verify(one.path).good, where
    assert tree(Path(first)) == before, where
    done = adopt(folder, to)
    assert verify(done.path).good
    assert not list(to.glob(".taking-*")), where
    for one in list_snapshots(str(to)):
        if one.path != first:
            shutil.rmtree(one.path)


@pytest.mark.thorough
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_at_every_step(tmp_path: Path, code: int) -> None:
    folder, to, first, before = prepared(tmp_path)
    host = this_host()
    plan = plan_import(backup_of(folder), host, str(to))
    seen: list[str] = []
    leave_a_leftover(to)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "step", seen.append)
        import_backup(plan, host)
    assert set(seen) == NAMED
    wanted = [(name, number) for name, number in places(seen) if number in (1, seen.count(name))]
    if code == errno.EIO:
        wanted = [place for place in wanted if place[1] == 1]
    for name, number in wanted:
        leave_a_leftover(to)
        listed = len(list_snapshots(str(to)))
        left, fired = number, False

        def fail(step: str, name: str = name) -> None:
            nonlocal left, fired
            if step == name:
                left -= 1
                if left == 0:
                    fired = True
                    raise OSError(code, os.strerror(code))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "step", fail)
            with pytest.raises(Failed) as problem:
                import_backup(plan, host)
        assert fired, (name, number)
        assert os.strerror(code).lower() in problem.value.message
        there = len(list_snapshots(str(to))) > listed
        assert ("was published" in problem.value.message) is there, (name, number)
        check_after_a_fault(folder, to, first, before, f"{name} {number}")


@pytest.mark.thorough
def test_a_kill_at_every_step(tmp_path: Path) -> None:
    folder, to, first, before = prepared(tmp_path)
    source = test_read_only.tree(folder)
    for name in sorted(NAMED):
        leave_a_leftover(to)
        assert killed_at(name, lambda: adopt(folder, to)) == -signal.SIGKILL, name
        check_after_a_fault(folder, to, first, before, name)
    assert test_read_only.tree(folder) == source


def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied(tmp_path)
    write, copy = os.write, os.copy_file_range
    counted = {"write": 0, "copy": 0}

    def short_write(fd: int, data: Any) -> int:
        counted["write"] += 1
        return write(fd, bytes(data[: max(1, len(data) // 2)]))

    def short_copy(source: int, target: int, count: int, *offsets: int) -> int:
        counted["copy"] += 1
        return copy(source, target, max(1, count // 2), *offsets)

    monkeypatch.setattr(os, "write", short_write)
    monkeypatch.setattr(os, "copy_file_range", short_copy)
    done = adopt(folder, tmp_path / "snapshots")
    monkeypatch.undo()
    assert counted["write"] > 10
    assert counted["copy"] > 10 or {f.way for f in done.manifest.files} <= {"reflink", "bytes"}
    assert verify(done.path, "deep").good
