"""Snapshots of real stores: what goes in comes out, nothing half is ever listed, and verify names every change."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core import snapshot as core
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.snapshot import Taken
from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations import verify as operation
from mem0audit.operations.snapshot import create, plan_create
from mem0audit.operations.verify import NoSnapshot, find_snapshots, list_snapshots, verify
from mem0audit.stores import files, pair
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store, fork

ROOT = Path(__file__).parents[2]
STORES = ("0.1.40", "1.0.0", "1.0.11", "2.2.1", "2.2.1-nlp")


def installed(store: Any) -> Any:
    given: dict[str, Any] = {f.name: None for f in dataclasses.fields(Flags)}
    given.update(history=str(store.history), qdrant_path=str(store.vectors))
    return locate(Flags(**given), this_host())


def take(store: Any, folder: Path) -> Taken:
    host = this_host()
    return create(plan_create(installed(store), host, str(folder)), host)


def rows_of(path: Path | str, table: str = "history") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def scrolled(folder: Path, scratch: Path) -> dict[str, dict[str, Any]]:
    """Every collection's points with payload and vector, as QdrantClient reads them from a copy."""
    from qdrant_client import QdrantClient

    shutil.copytree(folder, scratch)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = QdrantClient(path=str(scratch))
        for one in client.get_collections().collections:
            points, _ = client.scroll(one.name, limit=10_000, with_vectors=True)
            found[one.name] = {str(p.id): (p.payload, p.vector) for p in points}
        client.close()
    return found


def tree(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def to_wal(*paths: Path | str) -> None:
    for path in paths:
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode = wal").fetchone() == ("wal",)


def in_child(work: Callable[[], Any]) -> int:
    """Runs `work` in a child process; its exit code, or minus the signal that ended it."""
    pid = fork()
    if pid == 0:
        code = 99
        try:
            code = int(work() or 0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(name: str, work: Callable[[], Any]) -> int:
    """The same, killed at its first step of that name."""

    def stepping() -> int:
        files.step = lambda this: os.kill(os.getpid(), signal.SIGKILL) if this == name else None
        return 0 if work() else 1

    return in_child(stepping)


# --- round trip --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("name", STORES)
def test_what_goes_in_comes_out(tmp_path: Path, name: str, wal: bool) -> None:
    store = copy_store(name, tmp_path)
    if wal:
        to_wal(store.history, *store.vectors.glob("collection/*/storage.sqlite"))
    before = tree(store.folder)
    done = take(store, tmp_path / "snapshots")
    assert tree(store.folder) == before
    path = Path(done.path)
    assert done.manifest.settled
    assert core.NAME.fullmatch(path.name)
    assert {f.journal_mode for f in done.manifest.files} - {None} == {"wal" if wal else "rollback"}
    assert rows_of(path / "history.db") == rows_of(store.history)
    live = scrolled(store.vectors, tmp_path / "one")
    assert scrolled(path / "qdrant", tmp_path / "two") == live
    assert "mem0" in live
    for depth in ("quick", "default", "deep"):
        told = verify(done.path, depth)  # type: ignore[arg-type]
        assert told.good, (depth, told.problems, told.not_checked)
    assert done.manifest.counts["memories"] == len(live["mem0"])
    for file in path.rglob("*"):
        assert file.stat().st_mode & 0o777 == (0o700 if file.is_dir() else 0o600)
    # nothing of the journals, the locks and the pages as copied is left
    assert {p.name for p in path.iterdir()} == {
        "manifest.json",
        "manifest.json.sha256",
        "history.db",
        "qdrant",
    }
    assert not [p for p in path.rglob("*") if p.name.endswith(("-wal", "-shm", "-journal"))]


@pytest.fixture
def by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store is too large to be copied page by page."""
    monkeypatch.setattr(pair, "BY_PAGES_BYTES", 0)


@pytest.mark.usefixtures("by_rows")
@pytest.mark.parametrize("name", STORES)
def test_what_goes_in_by_rows_comes_out(tmp_path: Path, name: str) -> None:
    store = copy_store(name, tmp_path)
    before = tree(store.folder)
    done = take(store, tmp_path / "snapshots")
    assert tree(store.folder) == before
    assert {f.way for f in done.manifest.files if f.collection is not None} == {"rows"}
    assert verify(done.path, "deep").good
    assert rows_of(f"{done.path}/history.db") == rows_of(store.history)
    assert scrolled(Path(done.path, "qdrant"), tmp_path / "two") == scrolled(store.vectors, tmp_path / "one")


ROW_STEPS = ("snapshot.rows.create", "snapshot.rows.put", "snapshot.rows.drop")


@pytest.mark.usefixtures("by_rows")
@pytest.mark.parametrize("kind", [errno.EIO, errno.ENOSPC, signal.SIGKILL])
@pytest.mark.parametrize("name", ROW_STEPS)
def test_faults_of_the_copy_by_rows(tmp_path: Path, name: str, kind: int) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    first = take(store, folder).path
    before, live = tree(Path(first)), tree(store.folder)
    if kind == signal.SIGKILL:
        assert killed_at(name, lambda: take(store, folder)) == -signal.SIGKILL
    else:
        fired = []

        def fail(step: str) -> None:
            if step == name:
                fired.append(step)
                raise OSError(kind, os.strerror(kind))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "step", fail)
            with pytest.raises(Failed, match=os.strerror(kind).lower()):
                take(store, folder)
        assert fired
    check_after_a_fault(store, folder, first, before, name)
    assert tree(store.folder) == live


def test_deleted_text_is_not_carried_along(tmp_path: Path) -> None:
    """Free pages hold what was deleted (SQLite without secure_delete): the rebuilt copy has none."""
    with MemoryBuilder(tmp_path / "install") as agent:
        agent.add("stays", user_id="alice")
    log = agent.history
    with closing(sqlite3.connect(log, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = 0")
        connection.execute("CREATE TABLE other (x)")
        connection.executemany("INSERT INTO other VALUES (?)", [("SECRETCAROL" * 300,)] * 50)
        connection.execute("DROP TABLE other")
    assert b"SECRETCAROL" in log.read_bytes()
    done = take(agent, tmp_path / "snapshots")
    assert b"SECRETCAROL" not in (Path(done.path) / "history.db").read_bytes()
    assert verify(done.path).good


def test_the_installs_own_faults_are_copied_and_are_no_fault_of_the_copy(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    gone = next(iter(RawPoints(store.vectors).points()))
    RawPoints(store.vectors).remove(gone)
    done = take(store, tmp_path / "snapshots")
    assert done.manifest.settled
    assert done.manifest.findings["D302"] == 1
    assert verify(done.path, "deep").good


def test_an_orphaned_folder_and_odd_names_come_along(tmp_path: Path) -> None:
    """A collection that meta.json lacks (its points come back when it is created again), blanks, a folder in a
    folder."""
    store = copy_store("2.2.1", tmp_path)
    for name in ("orphan", "sp ace é", "a/b"):
        shutil.copytree(store.vectors / "collection/mem0", store.vectors / "collection" / name)
    done = take(store, tmp_path / "snapshots")
    assert {f.collection for f in done.manifest.files} == {"mem0", "orphan", "sp ace é", "a/b", None}
    assert verify(done.path, "deep").good


def test_several_in_one_second(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    host = this_host()
    plan = plan_create(installed(store), host, str(tmp_path / "snapshots"))
    made = [create(plan, host, now=lambda: 1_796_000_000.0).path for _ in range(3)]
    assert [Path(p).name for p in made] == [f"2026-11-30T005320Z{end}" for end in ("", "-2", "-3")]
    assert [one.name for one in list_snapshots(str(tmp_path / "snapshots"))] == [
        Path(p).name for p in made[::-1]
    ]
    assert all(verify(p).good for p in made)


# --- refused -----------------------------------------------------------------------------------------


def test_refused_inside_the_store_and_on_what_is_no_folder(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    before = tree(tmp_path)
    (tmp_path / "link").symlink_to(store.vectors)
    for folder in (store.vectors, store.vectors / "x/y", tmp_path / "link" / "z"):
        with pytest.raises(Refused, match="inside the vector store"):
            take(store, folder)
    with pytest.raises(Refused):
        take(store, store.history)
    (tmp_path / "link").unlink()
    assert tree(tmp_path) == before


@pytest.mark.parametrize("missing", ["history", "vectors"])
def test_half_an_install_is_no_pair(tmp_path: Path, missing: str) -> None:
    store = copy_store("2.2.1", tmp_path)
    shutil.move(getattr(store, missing), tmp_path / "away")
    with pytest.raises(CouldNotRead, match="is not there"):
        take(store, tmp_path / "snapshots")
    assert not (tmp_path / "snapshots").exists()


def test_a_log_that_is_too_large(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    os.truncate(store.history, 3_000_000_000)  # sparse
    with pytest.raises(Refused, match=r"3\.0 GB"):
        take(store, tmp_path / "snapshots")


def test_another_run_is_named(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    with files.snapshot_folder(folder), pytest.raises(Refused, match=f"another mem0audit.*pid {os.getpid()}"):
        take(store, folder)
    assert verify(take(store, folder).path).good


def test_a_damaged_store_is_no_snapshot(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    file = store.vectors / "collection/mem0/storage.sqlite"
    with file.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * 4096)
    with pytest.raises(Failed, match="damaged"):
        take(store, tmp_path / "snapshots")
    assert list_snapshots(str(tmp_path / "snapshots")) == ()


def needs_root() -> None:
    if os.geteuid():
        pytest.fail("mounting needs root") if os.environ.get("CI") else pytest.skip("mounting needs root")


@contextlib.contextmanager
def mounted(point: Path, *words: str) -> Iterator[Path]:
    needs_root()
    point.mkdir()
    subprocess.run(["mount", *words, str(point)], check=True, capture_output=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


@pytest.mark.root
def test_a_tmpfs_is_no_place_for_a_snapshot(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    with mounted(tmp_path / "memory", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as point:
        with pytest.raises(Refused, match="in memory"):
            take(store, point / "snapshots")
        assert list(point.iterdir()) == []


@pytest.mark.root
def test_from_a_tmpfs_to_a_disk(durable: Path) -> None:
    store = copy_store("2.2.1-nlp", durable)
    with mounted(durable / "memory", "-t", "tmpfs", "tmpfs") as point:
        shutil.move(store.vectors, point / "qdrant")
        store.vectors = point / "qdrant"
        done = take(store, durable / "snapshots")
    assert done.manifest.filesystems["vectors"] == "tmpfs"
    assert {f.way for f in done.manifest.files if f.collection} == {"read and write"}
    assert verify(done.path, "deep").good


HOLDING = """
import os, sqlite3, sys, time
if sys.argv[2] == "chroot":
    os.chroot(sys.argv[1]); at = "/"
else:
    at = sys.argv[1]
paths = [f"{at}/qdrant/collection/mem0/storage.sqlite", f"{at}/history.db"]
open_ = [sqlite3.connect(p, isolation_level=None) for p in paths]
for c in open_:
    c.execute(f"PRAGMA journal_mode = {sys.argv[3]}")
    c.execute("CREATE TABLE extra (x)"); c.execute("DROP TABLE extra")
    c.execute("SELECT * FROM sqlite_master").fetchall()
print("open", flush=True)
time.sleep(600)
"""


@pytest.mark.root
@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("root", ["same", "chroot"])
def test_out_of_an_agents_own_root(durable: Path, root: str, mode: str) -> None:
    """PrivateTmp=, a container: the stores are there for one process alone, and die with it."""
    needs_root()
    theirs = copy_store("2.2.1", durable / "theirs")
    before = rows_of(theirs.history)
    seen = durable / "seen"
    seen.mkdir()
    copying = f"mount -t tmpfs tmpfs {seen} && cp -r {theirs.vectors} {theirs.history} {seen}"
    script = f'{copying} && exec "{os.path.realpath(sys.executable)}" -c "$1" "{seen}" {root} {mode}'
    agent = subprocess.Popen(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", HOLDING],
        stdout=subprocess.PIPE,
    )
    here = Path.cwd()

    def mounts() -> list[str]:
        return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(durable) in line]

    assert mounts() == []
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline().strip() == b"open"
        named = "" if root == "chroot" else str(seen)
        base = f"/proc/{agent.pid}/root" if root == "chroot" else ""
        host = this_host()
        given: dict[str, Any] = {f.name: None for f in dataclasses.fields(Flags)}
        given.update(history=f"{base}{named}/history.db", qdrant_path=f"{base}{named}/qdrant")
        taken = create(plan_create(locate(Flags(**given), host), host, str(durable / "snapshots")), host)
    finally:
        agent.kill()
        agent.wait()
        assert agent.stdout is not None
        agent.stdout.close()
    assert verify(taken.path, "deep").good
    assert rows_of(f"{taken.path}/history.db") == before
    manifest = taken.manifest
    assert (manifest.settled, manifest.counts["memories"]) == (True, 19)
    assert (manifest.history.value, manifest.vectors.value) == (f"{named}/history.db", f"{named}/qdrant")
    assert manifest.files[0].source == f"{named}/history.db"
    assert {f.journal_mode for f in manifest.files} == {"wal" if mode == "wal" else "rollback", None}
    assert mounts() == []
    assert Path.cwd() == here


@pytest.mark.root
def test_a_real_filesystem_that_runs_full(durable: Path) -> None:
    """1 MB of ext4, filled a little more each time: whatever does not fit leaves nothing, and the next run is whole."""
    needs_root()
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    store = copy_store("2.2.1-nlp", durable)
    image = durable / "image"
    image.write_bytes(b"\0" * (1 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", str(image)], check=True)
    failed = 0
    with mounted(durable / "small", "-o", "loop", str(image)) as point:
        folder = point / "snapshots"
        host = this_host()
        plan = plan_create(installed(store), host, str(durable / "elsewhere"))
        with pytest.raises(Refused, match="free"):
            plan_create(installed(store), host, str(folder))
        forced = dataclasses.replace(plan, folder=str(folder))
        first = create(forced, host)
        before = tree(Path(first.path))
        filler = point / "filler"
        room = os.statvfs(point)
        free = room.f_bavail * room.f_frsize
        for left in range(0, min(free, 240_000), 24_000):
            with contextlib.suppress(OSError):
                filler.write_bytes(b"x" * (free - left))
            try:
                made = create(forced, host)
            except Failed as problem:
                failed += 1
                assert "no space left" in problem.message.lower(), problem.message
            else:
                shutil.rmtree(made.path)
            assert [one.name for one in list_snapshots(str(folder))] == [Path(first.path).name]
            assert tree(Path(first.path)) == before
        assert failed >= 3
        filler.unlink()
        assert verify(create(forced, host).path).good
        assert not list(folder.glob(".taking-*"))


# --- faults ------------------------------------------------------------------------------------------


def steps_of(store: Any, folder: Path) -> list[str]:
    """The steps of one whole run, with a leftover to clear away."""
    seen: list[str] = []
    leave_a_leftover(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "step", seen.append)
        take(store, folder)
    return seen


def leave_a_leftover(folder: Path) -> None:
    left = folder / ".taking-2026-11-01T000000Z"
    (left / "raw").mkdir(parents=True)
    (left / "raw/0.db").write_bytes(b"half")


def places(seen: list[str]) -> list[tuple[str, int]]:
    """The first, the second and the last time of every step."""
    wanted = set()
    for name in set(seen):
        count = seen.count(name)
        wanted |= {(name, n) for n in (1, 2, count) if n <= count}
    return sorted(wanted)


NAMED = {
    "folder.create",
    *("snapshot.folder", "snapshot.lock", "snapshot.lock.write", "snapshot.clean", "snapshot.begin"),
    *(
        "snapshot.create",
        "snapshot.copy",
        "snapshot.copy.chunk",
        "snapshot.rebuild",
        "snapshot.rebuild.remove",
    ),
    *("snapshot.write", "snapshot.write.fsync", "snapshot.fsync", "snapshot.fsync.hidden", "snapshot.raw"),
    *("snapshot.publish", "snapshot.published"),
}
"""What a run in rollback mode goes through; `snapshot.backup` is WAL's, `snapshot.abandon` a failure's."""


def check_after_a_fault(store: Any, folder: Path, first: str, before: dict[str, str], where: str) -> None:
    listed = list_snapshots(str(folder))
    assert Path(first).name in [one.name for one in listed]
    for one in listed:
        assert verify(one.path).good, where
    assert tree(Path(first)) == before, where
    done = take(store, folder)
    assert verify(done.path).good
    assert not list(folder.glob(".taking-*")), where
    for one in list_snapshots(str(folder)):
        if one.path != first:
            shutil.rmtree(one.path)


@pytest.mark.thorough
@pytest.mark.parametrize(("code", "wal"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_an_error_at_every_step(tmp_path: Path, code: int, wal: bool) -> None:
    store = copy_store("2.2.1", tmp_path)
    if wal:
        to_wal(store.history, *store.vectors.glob("collection/*/storage.sqlite"))
    live = tree(store.folder)
    folder = tmp_path / "snapshots"
    first = take(store, folder).path
    before = tree(Path(first))
    seen = steps_of(store, folder)
    copying = {"snapshot.copy", "snapshot.copy.chunk", "snapshot.create"}
    assert set(seen) == ((NAMED - copying) | {"snapshot.backup"} if wal else NAMED)
    wanted = places(seen)
    if wal:
        wanted = [place for place in wanted if place[1] == 1]
    for name, number in wanted:
        leave_a_leftover(folder)
        listed = len(list_snapshots(str(folder)))
        left = number
        fired = False

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
                take(store, folder)
        assert fired, (name, number)
        assert os.strerror(code).lower() in problem.value.message
        # the last thing a run does is to sync the folder: an error there comes after the rename, and says so
        there = len(list_snapshots(str(folder))) > listed
        assert ("was published" in problem.value.message) is there, (name, number)
        check_after_a_fault(store, folder, first, before, f"{name} {number}")
    assert tree(store.folder) == live


def test_an_error_while_clearing_up_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    first = take(store, folder).path
    before = tree(Path(first))

    def fail(name: str) -> None:
        if name in ("snapshot.publish", "snapshot.abandon"):
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(files, "step", fail)
        with pytest.raises(Failed, match="input/output error"):
            take(store, folder)
    assert list(folder.glob(".taking-*"))
    check_after_a_fault(store, folder, first, before, "abandon")


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_kill_at_every_step(tmp_path: Path, name: str) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    first = take(store, folder).path
    before, live = tree(Path(first)), tree(store.folder)
    leave_a_leftover(folder)
    assert killed_at(name, lambda: take(store, folder)) == -signal.SIGKILL
    check_after_a_fault(store, folder, first, before, name)
    assert tree(store.folder) == live


def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = copy_store("2.2.1", tmp_path)
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
    done = take(store, tmp_path / "snapshots")
    monkeypatch.undo()
    assert counted["write"] > 10
    assert counted["copy"] > 10 or {f.way for f in done.manifest.files} == {"reflink", "bytes"}
    assert verify(done.path, "deep").good


# --- verify: nothing goes unnoticed ------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two snapshots of one install, some writes apart."""
    folder = tmp_path_factory.mktemp("two")
    store = copy_store("2.2.1-nlp", folder)
    one = take(store, folder / "snapshots").path
    RawHistory(store.history).run("UPDATE history SET role = 'other' WHERE rowid = 3")
    gone = next(iter(RawPoints(store.vectors).points()))
    RawPoints(store.vectors).remove(gone)
    return Path(one), Path(take(store, folder / "snapshots").path)


def copied(snapshot: Path, folder: Path) -> Path:
    return Path(shutil.copytree(snapshot, folder / snapshot.name))


def test_every_flipped_byte_is_named(tmp_path: Path, two: tuple[Path, Path]) -> None:
    seed = int(os.environ.get("MEM0AUDIT_SEED", random.randrange(1 << 32)))
    print(f"MEM0AUDIT_SEED={seed}")
    rng = random.Random(seed)
    snapshot = copied(two[0], tmp_path)
    assert verify(str(snapshot)).good
    tried = 0
    for file in sorted(p for p in snapshot.rglob("*") if p.is_file()):
        name = file.relative_to(snapshot).as_posix()
        data = file.read_bytes()
        offsets = {0, 1, len(data) - 1, *(rng.randrange(len(data)) for _ in range(20))}
        for offset in sorted(offsets):
            changed = bytearray(data)
            changed[offset] ^= 1 << rng.randrange(8)
            file.write_bytes(changed)
            told = verify(str(snapshot))
            # a flip in the checksum's own file shows as a manifest that is not the one it was made of
            named = "manifest.json" if name.startswith("manifest.json") else name
            assert [p for p in told.problems if p.path == named], (name, offset, seed)
            tried += 1
        file.write_bytes(data)
    assert tried > 100
    assert verify(str(snapshot)).good


def files_of(snapshot: Path) -> list[str]:
    return sorted(p.relative_to(snapshot).as_posix() for p in snapshot.rglob("*") if p.is_file())


@pytest.mark.parametrize("depth", ["quick", "default"])
def test_missing_cut_longer_and_other_files_are_named(
    tmp_path: Path, two: tuple[Path, Path], depth: Any
) -> None:
    for name in files_of(two[0]):
        for change in ("delete", "cut", "append", "link", "empty"):
            snapshot = copied(two[0], tmp_path)
            file = snapshot / name
            data = file.read_bytes()
            if change == "delete":
                file.unlink()
            elif change == "link":
                file.unlink()
                file.symlink_to(two[0] / name)
            else:
                file.write_bytes({"cut": data[:-1], "append": data + b"\0", "empty": b""}[change])
            told = verify(str(snapshot), depth)
            named = {p.path for p in told.problems}
            assert name in named or (name.startswith("manifest") and "manifest.json" in named), (name, change)
            shutil.rmtree(snapshot)


def test_added_files_are_named(tmp_path: Path, two: tuple[Path, Path]) -> None:
    for name in ("x", "qdrant/.lock", "qdrant/collection/mem0/storage.sqlite-journal", "history.db-wal"):
        snapshot = copied(two[0], tmp_path)
        (snapshot / name).write_bytes(b"x")
        assert [p.path for p in verify(str(snapshot), "quick").problems] == [name]
        shutil.rmtree(snapshot)
    snapshot = copied(two[0], tmp_path)
    (snapshot / "qdrant/collection/other").mkdir()
    assert [p.path for p in verify(str(snapshot), "quick").problems] == ["qdrant/collection/other"]


@pytest.mark.parametrize("half", ["history.db", "qdrant"])
def test_swapped_halves_are_named(tmp_path: Path, two: tuple[Path, Path], half: str) -> None:
    snapshot = copied(two[0], tmp_path)
    if half == "qdrant":
        shutil.rmtree(snapshot / half)
        shutil.copytree(two[1] / half, snapshot / half)
    else:
        shutil.copy(two[1] / half, snapshot / half)
    told = verify(str(snapshot))
    assert any(p.path.startswith(half) for p in told.problems)


def forged(snapshot: Path, change: Callable[[dict[str, Any]], None], *, checksum: bool) -> None:
    """An edited manifest; with `checksum` by somebody who also made its checksum anew."""
    raw = json.loads((snapshot / "manifest.json").read_text())
    change(raw)
    text = (json.dumps(raw, indent=2) + "\n").encode()
    (snapshot / "manifest.json").write_bytes(text)
    if checksum:
        (snapshot / "manifest.json.sha256").write_text(core.checksum_text(text))


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "settled": lambda raw: raw.update(settled=not raw["settled"]),
    "created_at": lambda raw: raw.update(created_at="2020-01-01 00:00:00Z"),
    "memories": lambda raw: raw["counts"].update(memories=7),
    "points": lambda raw: raw.update(points_digest="0" * 64),
    "rows": lambda raw: raw.update(history_digest="0" * 64),
    "findings": lambda raw: raw["findings"].update(D301=3),
    "size": lambda raw: raw["files"][0].update(size_bytes=1),
    "sha": lambda raw: raw["files"][0].update(sha256="0" * 64),
    "dropped": lambda raw: raw["files"].pop(1),
    "outside": lambda raw: raw["files"][0].update(path="../history.db"),
    "field": lambda raw: raw.update(more=1),
    "lost": lambda raw: raw.pop("hostname"),
    "type": lambda raw: raw.update(tries="1"),
    "name": lambda raw: raw.update(name="2020-01-01T000000Z"),
}
UNSEEN = {"settled", "created_at"}
"""What nothing else in a snapshot repeats: with a checksum made anew it cannot be told."""


@pytest.mark.parametrize(
    ("edit", "checksum"), [(e, c) for e in EDITS for c in (False, True) if not (c and e in UNSEEN)]
)
def test_an_edited_manifest_is_named(
    tmp_path: Path, two: tuple[Path, Path], edit: str, checksum: bool
) -> None:
    snapshot = copied(two[0], tmp_path)
    forged(snapshot, EDITS[edit], checksum=checksum)
    assert verify(str(snapshot)).problems


def test_a_newer_format_is_one_line(tmp_path: Path, two: tuple[Path, Path]) -> None:
    snapshot = copied(two[0], tmp_path)
    forged(snapshot, lambda raw: raw.update(format=2), checksum=True)
    told = verify(str(snapshot))
    assert [p.detail for p in told.problems] == [
        "has format 2, of a newer mem0audit: this one reads format 1"
    ]
    (listed,) = list_snapshots(str(tmp_path))
    assert listed.problem is not None and "newer mem0audit" in listed.problem


def test_other_files_with_the_right_sums_are_no_pair(tmp_path: Path, two: tuple[Path, Path]) -> None:
    """The log of another snapshot, entered into the manifest with its size and sum: the rows give it away."""
    snapshot = copied(two[0], tmp_path)
    shutil.copy(two[1] / "history.db", snapshot / "history.db")
    data = (snapshot / "history.db").read_bytes()

    def enter(raw: dict[str, Any]) -> None:
        (entry,) = (f for f in raw["files"] if f["path"] == "history.db")
        entry.update(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    forged(snapshot, enter, checksum=True)
    assert [p.path for p in verify(str(snapshot)).problems] == ["history.db"]


def test_verify_changes_nothing(tmp_path: Path, two: tuple[Path, Path]) -> None:
    def stats(folder: Path) -> dict[str, tuple[int, ...]]:
        return {
            str(p): (p.stat().st_size, p.stat().st_mtime_ns, p.stat().st_ctime_ns) for p in folder.rglob("*")
        }

    snapshot = copied(two[0], tmp_path)
    before = stats(tmp_path)
    for depth in ("quick", "default", "deep"):
        assert verify(str(snapshot), depth).good  # type: ignore[arg-type]
    assert stats(tmp_path) == before


def test_a_snapshot_of_another_versions_rules_is_still_good(
    tmp_path: Path, two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version finds more in the same files: that is no fault of the snapshot."""
    snapshot = copied(two[0], tmp_path)
    forged(snapshot, lambda raw: raw["findings"].update(D301=3), checksum=True)
    assert not verify(str(snapshot)).good
    monkeypatch.setattr(operation, "__version__", "99.0")
    assert verify(str(snapshot)).good


# --- what is no snapshot ------------------------------------------------------------------------------


def test_what_is_no_snapshot_is_told_from_one(tmp_path: Path, two: tuple[Path, Path]) -> None:
    store = copy_store("2.2.1", tmp_path)
    for folder in (store.vectors, store.mem0_dir, store.folder):
        with pytest.raises(NoSnapshot, match="no snapshot lies there"):
            find_snapshots(None, str(folder))
    with pytest.raises(CouldNotRead, match="there is no such snapshot"):
        find_snapshots(None, str(tmp_path / "nowhere"))
    assert find_snapshots(None, str(two[0])) == (str(two[0]),)
    assert find_snapshots(str(two[0].parent), two[0].name) == (str(two[0]),)
    assert find_snapshots(str(two[0].parent), None) == (str(two[0]), str(two[1]))


def test_leftovers_and_other_things_are_not_listed(tmp_path: Path, two: tuple[Path, Path]) -> None:
    folder = tmp_path / "snapshots"
    folder.mkdir()
    copied(two[0], folder)
    leave_a_leftover(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "2026-11-29").mkdir()
    (folder / "2026-11-29T000000Z").write_text("a file")
    assert [one.name for one in list_snapshots(str(folder))] == [two[0].name]


def test_only_our_own_leftovers_are_removed(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    leave_a_leftover(folder)
    (folder / ".taking-mine").mkdir()
    (tmp_path / "kept").mkdir()
    (folder / ".taking-2026-11-02T000000Z").symlink_to(tmp_path / "kept")
    done = take(store, folder)
    assert done.removed == (".taking-2026-11-01T000000Z",)
    assert (folder / ".taking-mine").is_dir()
    assert (tmp_path / "kept").is_dir()


# --- beside a living agent -----------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_short_soak() -> None:
    """mem0 at full speed, batches of five too; the real soak is `scripts/soak --snapshots` for a minute, and without
    `--wal`. Here a machine may be slow: that no write fails, after SQLite's own 5 s, is what counts."""
    words = ["--snapshots", "--wal", "--seconds", "2", "--slowest", "60", "--settled", "1"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/soak"), *words], capture_output=True, text=True
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_pair_that_never_settles_is_published_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mem0audit.stores import pair

    monkeypatch.setattr(pair, "TRIES", 2)
    with MemoryBuilder(tmp_path / "install") as agent:
        agent.add("fact", user_id="alice")
        with agent.crash_between_writes():
            agent.add("in flight", user_id="alice")
        done = take(agent, tmp_path / "snapshots")
    assert not done.manifest.settled
    assert done.manifest.unsettled_why == "a memory is stored and not logged yet"
    assert verify(done.path, "deep").good


def test_errors_are_ours(tmp_path: Path) -> None:
    """Whatever the manifest holds, no other exception comes out."""
    rng = random.Random(11)
    store = copy_store("2.2.1", tmp_path)
    snapshot = Path(take(store, tmp_path / "snapshots").path)
    data = (snapshot / "manifest.json").read_bytes()
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] = rng.choice(b'0{}[]",:x\xff-')
        (snapshot / "manifest.json").write_bytes(changed)
        (snapshot / "manifest.json.sha256").write_text(core.checksum_text(bytes(changed)))
        with contextlib.suppress(Mem0auditError):
            verify(str(snapshot), "quick")
