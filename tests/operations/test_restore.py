"""Restores of real stores: both or neither, at any fault, kill and place; and nobody's owner, lock or journal lost."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import random
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mem0audit.core import restore as core
from mem0audit.core.erasures import erasures_text, make_erasure
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.restore import Restored
from mem0audit.install.host import Host, this_host
from mem0audit.operations.discard import apply_discard, plan_discard
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.restore import apply_restore, plan_restore
from mem0audit.operations.status import status
from mem0audit.stores import exchange, files
from tests.builders import MemoryBuilder, RawPoints, StoreCopy, copy_store, fork
from tests.operations.test_snapshot import (
    ROOT,
    STORES,
    in_child,
    installed,
    mounted,
    needs_root,
    scrolled,
    take,
    to_wal,
)

T = TypeVar("T")
TABLES = {"history.db": "history", "storage.sqlite": "points"}


def rows(path: Path) -> Any:
    """The rows of a database; "none" where there is no file. A file without a log beside it is not touched."""
    if not path.exists():
        return "none"
    beside = [s for s in ("-wal", "-journal") if Path(f"{path}{s}").exists()]
    uri = f"{path.as_uri()}?mode=rw" if beside else f"{path.as_uri()}?mode=ro&immutable=1"
    table = TABLES.get(path.name, "points" if "storage" in path.name else "history")
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()


def halves(store: Any) -> tuple[Any, Any]:
    """What both stores hold, in content: the rows of the log; the points of each collection and meta.json."""
    vectors = Path(store.vectors)
    found: Any = {
        p.relative_to(vectors).as_posix(): rows(p)
        for p in sorted(vectors.glob("collection/*/storage.sqlite"))
    }
    if (vectors / "meta.json").exists():
        found["meta.json"] = (vectors / "meta.json").read_bytes()
    return rows(Path(store.history)), found or "none"


def litter(store: StoreCopy) -> list[str]:
    """What a restore may not leave: all but the stores, what was replaced and the record of that."""
    allowed = re.compile(
        r"(history\.db|qdrant|meta\.json|collection)"
        r"(\.(replaced|restored)-\d{4}-\d\d-\d\dT\d{6}Z(-\d+)?)?(-wal|-shm|-journal)?"
        r"|config\.json|migrations_qdrant|\.lock|\.history\.db\.mem0audit-replaced\.json|mem0_dir|lost\+found"
    )
    found = [*store.folder.iterdir(), *store.mem0_dir.iterdir(), *store.vectors.iterdir()]
    return [str(p) for p in found if not allowed.fullmatch(p.name)]


AGENTS: set[int] = set()
"""The processes that these tests start as agents."""


def undisturbed(work: Callable[[], T]) -> T:
    """The same again where another test's audit, in another process, just looks into this store."""
    for _ in range(40):
        try:
            return work()
        except Refused as problem:
            pid = re.search(r"is in use by pid (\d+) ", problem.message)
            if pid is None or int(pid[1]) in AGENTS:
                raise
            time.sleep(0.25)
    return work()


class World:
    """An install, a snapshot of it, and what was changed in both halves since."""

    def __init__(self, folder: Path, name: str = "2.2.1-nlp", *, wal: bool = False) -> None:
        self.store = copy_store(name, folder)
        if wal:
            to_wal(self.store.history, *self.store.vectors.glob("collection/*/storage.sqlite"))
        self.snapshots = folder / "snapshots"
        self.snapshot = take(self.store, self.snapshots).path
        self.new = halves(self.store)
        self.change()
        self.old = halves(self.store)
        assert self.old[0] != self.new[0] and self.old[1] != self.new[1]

    def change(self) -> None:
        with closing(sqlite3.connect(self.store.history)) as connection:
            connection.execute("DELETE FROM history WHERE rowid > 7")
            connection.commit()
        points = RawPoints(self.store.vectors)
        for one in list(points.points())[:3]:
            points.remove(one)

    def restore(self, host: Host | None = None, snapshot: str | None = None) -> Restored:
        host = host or this_host()
        install = installed(self.store)
        # the ledger would look at it all once more: it has a test of its own
        path = snapshot or self.snapshot
        plan = undisturbed(lambda: plan_restore(path, host, install=install, ledger=False))
        return undisturbed(lambda: apply_restore(plan, host))

    def interrupted(self) -> core.Interrupted | None:
        return interrupted(installed(self.store), this_host())


@contextlib.contextmanager
def steps(do: Callable[[str], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "step", do)
        yield


# --- round trips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("name", STORES)
def test_a_wrecked_install_is_what_it_was(tmp_path: Path, name: str, wal: bool) -> None:
    store = copy_store(name, tmp_path, pre_delete_all=True)
    if wal:
        to_wal(store.history, *store.vectors.glob("collection/*/storage.sqlite"))
    live, log = scrolled(store.vectors, tmp_path / "one"), rows(store.history)
    assert sum(map(len, live.values())) > 10
    snapshot = take(store, tmp_path / "snapshots").path
    store.history.write_bytes(b"no database at all" * 1000)
    for file in store.vectors.glob("collection/*/storage.sqlite"):
        file.write_bytes(file.read_bytes()[:4096])
    (store.vectors / "meta.json").write_text("{")
    plan = plan_restore(snapshot, this_host(), install=installed(store))
    done = apply_restore(plan, this_host())
    assert rows(store.history) == log
    for path in (store.history, *store.vectors.glob("collection/*/storage.sqlite")):
        assert path.read_bytes()[18] == (2 if wal else 1)
    assert scrolled(store.vectors, tmp_path / "two") == live
    assert len(done.replaced) == 2
    assert Path(done.replaced[0]).read_bytes().startswith(b"no database")
    assert litter(store) == []
    assert interrupted(installed(store), this_host()) is None


@pytest.mark.parametrize("wal", [False, True])
def test_into_a_new_folder(tmp_path: Path, wal: bool) -> None:
    world = World(tmp_path, wal=wal)
    for target in (tmp_path / "deep/er/new", tmp_path / "empty"):
        if target.name == "empty":
            target.mkdir(mode=0o750)
        plan = plan_restore(world.snapshot, this_host(), to=str(target))
        done = apply_restore(plan, this_host())

        class There:
            history = done.history
            vectors = done.vectors

        assert halves(There) == world.new
        assert {p.name for p in target.iterdir()} == {"history.db", "qdrant"}
        assert Path(done.history).read_bytes()[18] == (2 if wal else 1)
        assert target.stat().st_mode & 0o777 == (0o750 if target.name == "empty" else 0o700)
        assert not list(target.parent.glob(".*"))
    assert halves(world.store) == world.old


def test_new_folders_that_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("")
    (tmp_path / "file").write_text("")
    for target, says in (
        (tmp_path / "full", "not empty"),
        (tmp_path / "file", "no folder"),
        (world.store.vectors / "new", "inside the vector store"),
        (world.snapshots / "new", "inside .*, the snapshots"),
        (Path(world.snapshot) / "new", "inside .*, the snapshots"),
        (tmp_path / "file/new", "file is no folder"),
    ):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(Refused, match=says):
            plan_restore(world.snapshot, this_host(), to=str(target))
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("gone", ["history", "vectors", "both", "folders"])
def test_what_is_missing_is_made(tmp_path: Path, gone: str) -> None:
    world = World(tmp_path)
    store = world.store
    if gone in ("history", "both"):
        store.history.unlink()
    if gone in ("vectors", "both"):
        shutil.rmtree(store.vectors)
    if gone == "folders":
        shutil.rmtree(store.folder)
    done = world.restore()
    assert halves(store) == world.new
    assert len(done.replaced) == {"history": 1, "vectors": 1, "both": 0, "folders": 0}[gone]
    assert litter(store) == []


def test_a_second_restore_and_several_in_one_second(tmp_path: Path) -> None:
    world = World(tmp_path)
    host = this_host()
    kept: list[str] = []
    for _ in range(3):
        plan = plan_restore(world.snapshot, host, install=installed(world.store))
        kept += apply_restore(plan, host, now=lambda: 1_796_000_000.0).replaced
    assert len(set(kept)) == 6
    assert all(Path(path).exists() for path in kept)
    assert rows(Path(kept[0])) == world.old[0]


# --- in use ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def agent(store: Any) -> Iterator[int]:
    """Another process with the folder open through the real client, and the log through SQLite."""
    from qdrant_client import QdrantClient

    reading, writing = os.pipe()
    pid = fork()
    if pid == 0:
        warnings.simplefilter("ignore")
        client = QdrantClient(path=str(store.vectors))
        log = sqlite3.connect(store.history)
        log.execute("SELECT count(*) FROM history").fetchone()
        os.write(writing, b"x")
        time.sleep(600)
        os._exit(client is None)
    AGENTS.add(pid)
    try:
        assert os.read(reading, 1) == b"x"
        yield pid
    finally:
        os.close(reading)
        os.close(writing)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_refused_while_an_agent_has_it_open(tmp_path: Path) -> None:
    world = World(tmp_path)
    plan = plan_restore(world.snapshot, this_host(), install=installed(world.store))
    with agent(world.store) as pid:
        with pytest.raises(Refused, match=f"is in use by pid {pid} ") as problem:
            world.restore()
        assert problem.value.hint is not None and f"kill {pid}" in problem.value.hint
        with pytest.raises(Refused, match=f"is in use by pid {pid} "):
            apply_restore(plan, this_host())  # it was started after the plan
        assert halves(world.store) == world.old
        assert litter(world.store) == []
    world.restore()
    assert halves(world.store) == world.new


@pytest.mark.parametrize("which", ["vectors", "history"])
def test_an_agent_that_is_not_visible_is_found_by_its_lock(tmp_path: Path, which: str) -> None:
    """As from inside another PID namespace: /proc shows nobody, the locks decide."""
    world = World(tmp_path)
    (tmp_path / "proc").mkdir()
    blind = dataclasses.replace(this_host(), proc=str(tmp_path / "proc"))
    if which == "vectors":
        with (
            agent(world.store),
            pytest.raises(Refused, match=r"\.lock is locked by a process that is not visible"),
        ):
            world.restore(blind)
    else:
        with closing(sqlite3.connect(world.store.history)) as log:
            log.execute("BEGIN IMMEDIATE")
            code = in_child(lambda: _refused(world, blind, "history.db is locked"))
            assert code == 0
    assert halves(world.store) == world.old
    assert litter(world.store) == []
    assert world.restore(blind).replaced


def _refused(world: World, host: Host, says: str) -> int:
    try:
        world.restore(host)
    except Refused as problem:
        return 0 if says in problem.message else 2
    return 1


def test_an_agent_whose_store_dies_with_it_is_not_to_be_stopped_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mem0audit.operations import targets

    world = World(tmp_path)
    monkeypatch.setattr(targets, "dies_with_agent", lambda *_: True)
    with agent(world.store) as pid:
        with pytest.raises(Refused) as problem:
            world.restore()
        hint = problem.value.hint or ""
        assert "Do not stop it yet" in hint
        assert hint.index("snapshot create") < hint.index(f"kill {pid}")


def test_no_agent_gets_in_between(tmp_path: Path) -> None:
    """At every step from the first exchange to the last name, a starting client fails, and the log is locked
    until both halves are exchanged."""
    from qdrant_client import QdrantClient

    world = World(tmp_path)
    tried: list[tuple[str, int, int]] = []

    def start() -> int:
        try:
            QdrantClient(path=str(world.store.vectors))
        except RuntimeError:
            return 0
        return 1

    def write() -> int:
        with closing(sqlite3.connect(world.store.history, timeout=0)) as log:
            try:
                log.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return 0
        return 1

    def look(name: str) -> None:
        if name in ("restore.exchange", "restore.aside"):
            tried.append((name, in_child(start), in_child(write)))

    with steps(look):
        world.restore()
    assert [(name, started) for name, started, _ in tried] == [
        *[("restore.exchange", 0)] * 2,
        *[("restore.aside", 0)] * 2,
    ]
    assert tried[0][2] == 0  # the old log cannot be written when its turn comes
    assert halves(world.store) == world.new


def test_two_restores_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "proc").mkdir()
    blind = dataclasses.replace(this_host(), proc=str(tmp_path / "proc"))  # else this process is seen
    codes = []

    def other(name: str) -> None:
        if name == "restore.exchange":
            codes.append(in_child(lambda: _refused(world, blind, "another restore works there")))

    with steps(other):
        world.restore()
    assert codes == [0, 0]
    assert halves(world.store) == world.new


# --- faults -----------------------------------------------------------------------------------------------


IN_PLACE = {
    *(
        "restore.staging",
        "restore.stage",
        "restore.stage.fsync",
        "folder.create",
        "restore.owner",
        "restore.mode",
    ),
    *("snapshot.write", "snapshot.write.fsync", "snapshot.fsync", "restore.lock", "restore.exchange"),
    *("restore.write", "restore.write.fsync", "restore.write.rename", "restore.fsync", "restore.aside"),
    *("restore.intent.remove", "restore.staging.remove", "restore.staging.drop"),
}
"""The steps of a restore in place on a filesystem that can exchange two names."""


def steps_of(folder: Path, *, wal: bool = False, to: bool = False) -> list[str]:
    world = World(folder, wal=wal)
    seen: list[str] = []
    with steps(seen.append):
        if to:
            plan = plan_restore(world.snapshot, this_host(), to=str(folder / "new"))
            apply_restore(plan, this_host())
        else:
            world.restore()
    shutil.rmtree(folder)
    folder.mkdir()
    return seen


TELLING = {"restore.exchange", "restore.write.rename", "restore.aside", "restore.intent.remove"}
"""Steps after each of which something else lies on the disk that the next run goes by."""


AGAIN = {"restore.fsync", "restore.write", "restore.write.fsync", "restore.lock"}


def places(seen: list[str], *, wal: bool = False) -> list[tuple[str, int]]:
    """Every time of the steps that tell; in rollback mode also the first of each other, and the last of those that
    come again after the exchange."""
    wanted = set()
    for name in set(seen):
        count = seen.count(name)
        wanted |= {
            (name, n)
            for n in (
                range(1, count + 1)
                if name in TELLING
                else set()
                if wal
                else {1, count}
                if name in AGAIN
                else {1}
            )
        }
    return sorted(wanted)


def at(name: str, number: int, do: Callable[[], None]) -> Callable[[str], None]:
    left = itertools.count(1)
    return lambda this: do() if this == name and next(left) == number else None


def failing(code: int, fired: list[bool]) -> Callable[[], None]:
    def fail() -> None:
        fired.append(True)
        raise OSError(code, os.strerror(code))

    return fail


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Copies:
    """The same world again and again, without building it each time."""

    def __init__(self, folder: Path, *, wal: bool = False) -> None:
        self.world = World(folder / "live", wal=wal)
        self.folder = folder
        shutil.copytree(self.world.store.folder, folder / "kept")

    def again(self) -> World:
        shutil.rmtree(self.world.store.folder)
        shutil.copytree(self.folder / "kept", self.world.store.folder)
        return self.world


def check_settled(world: World, where: Any) -> None:
    """After a fault: the old or the new pair, or a mixed one that is known to be so; and a rerun makes it whole."""
    now = halves(world.store)
    found = world.interrupted()
    if now not in (world.old, world.new):
        assert found is not None and found.course in ("finish", "back"), (where, found)
    done = world.restore()
    assert (done.settled is None) == (found is None), where
    assert halves(world.store) == world.new, where
    assert litter(world.store) == [], where
    assert world.interrupted() is None
    kept = [Path(path) for path in done.replaced]
    if kept:
        assert {rows(p) == world.old[0] or rows(p) == world.new[0] for p in kept if p.is_file()} == {True}, (
            where
        )
    plan_discard(installed(world.store), this_host())  # what was put aside is on record, whoever finished it
    old = [p for p in world.store.mem0_dir.glob("history.db.replaced-*") if rows(p) == world.old[0]]
    assert len(old) == 1, where  # what was there before is never lost


@pytest.mark.thorough
@pytest.mark.parametrize(("code", "wal"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_an_error_at_every_step_in_place(tmp_path: Path, code: int, wal: bool) -> None:
    seen = steps_of(tmp_path / "steps", wal=wal)
    assert set(seen) == (IN_PLACE | {"scratch.mode"} if wal else IN_PLACE)
    copies = Copies(tmp_path, wal=wal)
    for name, number in places(seen, wal=wal):
        world = copies.again()
        fired: list[bool] = []
        with steps(at(name, number, failing(code, fired))), contextlib.suppress(Failed):
            world.restore()
        assert fired, f"{name} {number} did not fire"
        # An error is handled in the same run: never mixed, not even until the next.
        assert halves(world.store) in (world.old, world.new), (name, number)
        check_settled(world, (name, number))


@pytest.mark.thorough
@pytest.mark.parametrize("wal", [False, True])
def test_a_kill_at_every_step_in_place(tmp_path: Path, wal: bool) -> None:
    seen = steps_of(tmp_path / "steps", wal=wal)
    copies = Copies(tmp_path, wal=wal)
    courses = set()
    for name, number in places(seen, wal=wal):
        world = copies.again()
        with steps(at(name, number, die)):
            code = in_child(lambda world=world: world.restore() and 0)  # type: ignore[misc]
        assert code == -signal.SIGKILL, (name, number)
        found = world.interrupted()
        courses.add(found.course if found else None)
        check_settled(world, (name, number))
    assert courses >= ({"clean", "finish"} if wal else {None, "clean", "finish"})


@pytest.mark.thorough
def test_a_kill_and_then_an_error_while_it_is_settled(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    for name, number in (("restore.exchange", 2), ("restore.aside", 2), ("restore.write", 4)):
        world = copies.again()
        with steps(at(name, number, die)):
            assert in_child(lambda world=world: world.restore() and 0) == -signal.SIGKILL  # type: ignore[misc]
        for step in ("restore.lock", "restore.exchange", "restore.fsync", "restore.write", "restore.aside"):
            fired: list[bool] = []
            with steps(at(step, 1, failing(errno.EIO, fired))), contextlib.suppress(Failed):
                world.restore()
        check_settled(world, (name, number))


@pytest.mark.thorough
@pytest.mark.parametrize("flags", ["neither", "noreplace only"])
def test_without_an_exchange_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    """A filesystem or C library that has no RENAME_EXCHANGE: rename twice, killed at each of them."""
    real = exchange._renameat2
    monkeypatch.setattr(
        exchange,
        "_renameat2",
        lambda source, target, flag: flags != "neither" and flag == 1 and real(source, target, flag),
    )
    copies = Copies(tmp_path)
    seen: list[str] = []
    with steps(seen.append):
        copies.world.restore()
    assert halves(copies.world.store) == copies.world.new
    for name in ("restore.exchange", "restore.aside", "restore.put"):
        for number in range(1, 1 + min(seen.count(name), 2)):
            world = copies.again()
            with steps(at(name, number, die)):
                assert in_child(lambda world=world: world.restore() and 0) == -signal.SIGKILL  # type: ignore[misc]
            check_settled(world, (name, number))
            if flags == "neither":
                continue
            world = copies.again()
            fired: list[bool] = []
            with steps(at(name, number, failing(errno.EIO, fired))), contextlib.suppress(Failed):
                world.restore()
            assert fired
            assert halves(world.store) in (world.old, world.new), (name, number)
            check_settled(world, (name, number))


@pytest.mark.thorough
def test_a_fault_and_a_kill_at_every_step_into_a_new_folder(tmp_path: Path) -> None:
    seen = steps_of(tmp_path / "steps", to=True)
    world = World(tmp_path / "live")
    target = tmp_path / "new"
    plan = plan_restore(world.snapshot, this_host(), to=str(target))

    def left() -> str:
        return "whole" if target.exists() else "none"

    if target.exists():
        shutil.rmtree(target)

    for name, number in places(seen):
        for kill in (False, True):
            fired: list[bool] = []
            if kill:
                with steps(at(name, number, die)):
                    code = in_child(lambda: bool(apply_restore(plan, this_host())) and 0)
                assert code == -signal.SIGKILL, (name, number)
            else:
                with steps(at(name, number, failing(errno.EIO, fired))), contextlib.suppress(Failed):
                    apply_restore(plan, this_host())
                assert fired, (name, number)
                assert not list(tmp_path.glob(".new*")), (name, number)
            if left() == "none":
                apply_restore(plan, this_host())

            class There:
                history = target / "history.db"
                vectors = target / "qdrant"

            assert halves(There) == world.new
            assert not list(tmp_path.glob(".*")), (name, number)
            shutil.rmtree(target)


def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    write = os.write
    counted: list[int] = []

    def short(fd: int, data: Any) -> int:
        counted.append(1)
        return write(fd, bytes(data[: max(1, len(data) // 2)]))

    monkeypatch.setattr(os, "write", short)
    world.restore()
    monkeypatch.undo()
    assert len(counted) > 50
    assert halves(world.store) == world.new


def test_a_result_that_is_not_the_manifests_is_taken_back(tmp_path: Path) -> None:
    """Somebody writes to the restored log before it was audited: both go back, and what was written is kept."""
    world = World(tmp_path)

    def meddle() -> None:
        with closing(sqlite3.connect(world.store.history)) as log:
            log.execute("UPDATE history SET role = 'meddled'")
            log.commit()

    with steps(at("restore.write", 3, lambda: None)):
        pass
    from mem0audit.operations import interrupted as module

    differs = module.differs
    from mem0audit.operations import restore as operation

    calls = []

    def then(*words: Any) -> str | None:
        calls.append(words)
        if len(calls) == 2:
            meddle()
        return differs(*words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operation, "differs", then)
        with pytest.raises(Failed, match="it was taken back, both stores are as they were") as problem:
            world.restore()
    assert len(calls) == 2
    assert halves(world.store) == world.old
    (kept,) = world.store.mem0_dir.glob("history.db.restored-*")
    assert str(kept) in problem.value.message
    assert {row[-1] for row in rows(kept)} == {"meddled"}
    assert litter(world.store) == []
    world.restore()
    assert halves(world.store) == world.new


# --- after a kill, somebody worked on ---------------------------------------------------------------------


def cut_off(world: World, name: str, number: int) -> None:
    with steps(at(name, number, die)):
        assert in_child(lambda: world.restore() and 0) == -signal.SIGKILL


def written(history: Path) -> None:
    with closing(sqlite3.connect(history)) as log:
        log.execute("INSERT INTO history (id, memory_id, event) VALUES ('x', 'y', 'ADD')")
        log.commit()


def test_a_half_that_an_agent_wrote_to_is_not_completed(tmp_path: Path) -> None:
    world = World(tmp_path)
    cut_off(world, "restore.exchange", 2)
    assert halves(world.store) == (world.new[0], world.old[1])
    found = world.interrupted()
    assert found is not None and found.course == "finish" and found.snapshot == world.snapshot
    written(world.store.history)
    found = world.interrupted()
    assert found is not None and found.course == "back"
    done = world.restore()
    assert done.settled is not None and done.settled.course == "back"
    assert halves(world.store) == world.new
    (kept,) = world.store.mem0_dir.glob("history.db.restored-*")
    assert "x" in [row[0] for row in rows(kept)]  # what the agent wrote meanwhile is not lost
    assert rows(Path(done.replaced[0])) == world.old[0]
    assert litter(world.store) == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_journal_that_an_agent_left_after_a_kill(tmp_path: Path, number: int) -> None:
    """In write-ahead mode what it wrote is in `-wal` alone, beside the old log or the new: it stays with that one."""
    world = World(tmp_path, wal=True)
    cut_off(world, "restore.exchange", number)
    died_writing(world.store.history, "wal", "late")
    done = world.restore()
    assert done.settled is not None and done.settled.course == ("clean" if number == 1 else "back")
    assert halves(world.store) == world.new
    assert not list(world.store.mem0_dir.glob("history.db-*"))
    kept = Path(done.replaced[0])
    if number == 2:
        assert rows(kept) == world.old[0]
        (kept,) = world.store.mem0_dir.glob("history.db.restored-*")
    assert {row[-1] for row in rows(kept)} == {"late" * 300}
    assert litter(world.store) == []


def test_a_whole_pair_that_an_agent_wrote_to_is_kept(tmp_path: Path) -> None:
    """Killed after both exchanges, then the agent was started: nothing of its is rolled back."""
    for name, number in (("restore.write", 3), ("restore.aside", 1), ("restore.intent.remove", 1)):
        folder = tmp_path / f"{name}{number}"
        world = World(folder)
        cut_off(world, name, number)
        assert halves(world.store) == world.new
        written(world.store.history)
        done = world.restore()
        assert done.resumed
        assert "x" in [row[0] for row in rows(world.store.history)]
        assert (done.not_audited is not None) == (name == "restore.write")
        assert litter(world.store) == []
        assert world.interrupted() is None


def test_another_snapshot_than_the_one_that_was_cut_off(tmp_path: Path) -> None:
    world = World(tmp_path)
    second = take(world.store, world.snapshots).path
    for number in (1, 2):
        cut_off(world, "restore.exchange", number)
        done = world.restore(snapshot=second)
        assert done.settled is not None and not done.resumed
        assert halves(world.store) == world.old  # which the second snapshot is of
        assert litter(world.store) == []
        assert world.interrupted() is None


def test_a_store_that_was_made_anew_after_a_kill(tmp_path: Path) -> None:
    """A missing folder; killed before it was put in place; then the agent made an empty one."""
    world = World(tmp_path)
    shutil.rmtree(world.store.vectors)
    cut_off(world, "restore.put", 1)
    with MemoryBuilder(tmp_path / "other") as other:
        other.add("new", user_id="alice")
    shutil.copytree(other.vectors, world.store.vectors)
    found = world.interrupted()
    assert found is not None and found.course == "back"
    done = world.restore()
    assert halves(world.store) == world.new
    assert any("qdrant.replaced" in path for path in done.replaced)
    assert litter(world.store) == []


def test_what_was_replaced_is_gone_and_a_half_is_new(tmp_path: Path) -> None:
    """Somebody tidied up by hand after a kill: it is said, and nothing is guessed."""
    world = World(tmp_path)
    cut_off(world, "restore.exchange", 2)
    (staged,) = world.store.mem0_dir.glob(".*restoring/history.db")
    staged.unlink()
    written(world.store.history)
    with pytest.raises(Refused, match="what it replaced is not there any more"):
        world.restore()
    assert halves(world.store)[1] == world.old[1]
    world.store.history.rename(tmp_path / "away")
    world.restore()
    assert halves(world.store) == world.new


@pytest.mark.parametrize("where", ["forged", "link", "other", "open", "unreadable"])
def test_a_folder_that_is_not_ours_is_not_believed(tmp_path: Path, where: str) -> None:
    """In /tmp anybody can make a folder of that name."""
    needs_root()
    world = World(tmp_path)
    cut_off(world, "restore.exchange", 2)
    folder = next(world.store.mem0_dir.glob(".*restoring"))
    if where == "forged":
        text = (folder / "intent.json").read_text()
        (folder / "intent.json").write_text(text.replace(str(world.store.history), "/etc/passwd"))
    elif where == "link":
        folder.rename(tmp_path / "there")
        folder.symlink_to(tmp_path / "there")
    elif where == "other":
        os.chown(folder, 12345, 12345)
    elif where == "open":
        folder.chmod(0o777)
    else:
        (folder / "intent.json").write_text("{")
    before = halves(world.store)
    found = world.interrupted()
    assert found is not None and found.course == "stuck" and found.problem
    with pytest.raises(Refused):
        world.restore()
    assert halves(world.store) == before
    assert Path("/etc/passwd").exists()


STRACED = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.operations.test_snapshot import installed
from mem0audit.install.host import this_host
from mem0audit.operations.restore import apply_restore, plan_restore
class Store: history = sys.argv[2]; vectors = sys.argv[3]
plan = plan_restore(sys.argv[4], this_host(), install=installed(Store))
apply_restore(plan, this_host())
"""


@pytest.mark.thorough
def test_a_kill_from_outside(tmp_path: Path) -> None:
    """strace kills at the Nth call of the kernel, whatever our steps are called."""
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    seed = int(os.environ.get("MEM0AUDIT_SEED", random.randrange(1 << 32)))
    print(f"MEM0AUDIT_SEED={seed}")
    rng = random.Random(seed)
    copies = Copies(tmp_path)
    calls = ["renameat2", "rename", "fsync", "write", "unlink"]

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        world = copies.world
        words = [str(ROOT), str(world.store.history), str(world.store.vectors), world.snapshot]
        return subprocess.run(
            ["strace", "-f", *options, sys.executable, "-c", STRACED, *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    done = run("-o", str(tmp_path / "calls"), "-e", f"trace={','.join(calls)}")
    if "ptrace" in done.stderr or "seccomp" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    listed = (tmp_path / "calls").read_text()
    counts = {call: len(re.findall(rf"^\d+ +{call}\(", listed, re.MULTILINE)) for call in calls}
    assert counts["renameat2"] == 4 and counts["fsync"] > 10 and counts["rename"] >= 4
    wanted = [("renameat2", 2), ("unlink", 1)]
    wanted += [(call, rng.randint(1, counts[call])) for call in ("renameat2", "fsync", "write")]
    for call, number in wanted:
        world = copies.again()
        options = ("-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}")
        done = run(*options)
        assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), (call, number, done.stderr)
        check_settled(world, (call, number, seed))


# --- the snapshot ----------------------------------------------------------------------------------------------


def test_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    seed = int(os.environ.get("MEM0AUDIT_SEED", random.randrange(1 << 32)))
    print(f"MEM0AUDIT_SEED={seed}")
    rng = random.Random(seed)
    world = World(tmp_path)
    snapshot = Path(world.snapshot)
    tried = 0
    for file in sorted(p for p in snapshot.rglob("*") if p.is_file()):
        data = file.read_bytes()
        for offset in {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(8))}:
            changed = bytearray(data)
            changed[offset] ^= 1 << rng.randrange(8)
            file.write_bytes(changed)
            for words in ({"to": str(tmp_path / "new")}, {"install": installed(world.store)}):
                with pytest.raises(Refused, match="is not what was written"):
                    plan_restore(world.snapshot, this_host(), **words)
                tried += 1
        file.write_bytes(data)
    assert tried > 50
    assert halves(world.store) == world.old


def test_a_byte_that_flips_after_the_plan(tmp_path: Path) -> None:
    world = World(tmp_path)
    for file in [*sorted(Path(world.snapshot).rglob("*.sqlite")), Path(world.snapshot) / "history.db"]:
        plan = plan_restore(world.snapshot, this_host(), install=installed(world.store))
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(Failed, match="nothing was changed"):
            apply_restore(plan, this_host())
        file.write_bytes(data)
        assert halves(world.store) == world.old
        assert litter(world.store) == []


def test_erasures_on_record(tmp_path: Path) -> None:
    world = World(tmp_path)
    record = world.snapshots / "erasures.json"
    taken = plan_restore(world.snapshot, this_host(), to=str(tmp_path / "new")).manifest.taken_at
    for at_, newer in ((taken - 60, False), (taken + 60, True)):
        one = make_erasure(at_, "ab" * 16, ("nobody", None, None))
        record.write_text(erasures_text([one]))
        for words in ({"to": str(tmp_path / "new")}, {"install": installed(world.store)}):
            plan = undisturbed(lambda words=words: plan_restore(world.snapshot, this_host(), **words))  # type: ignore[misc]
            assert plan.erase.salts == ((one.salt,) if newer else ())
            assert not plan.erase.anything
    # one that came after the plan was made
    record.write_text(erasures_text([make_erasure(taken + 90, "cd" * 16, ("nobody", None, None))]))
    with pytest.raises(Refused, match="somebody was erased just now"):
        undisturbed(lambda: apply_restore(plan, this_host()))
    for damage in ("{", None):
        record.unlink()
        if damage:
            record.write_text(damage)
        with pytest.raises(Refused, match="no record of erasures can be read") as problem:
            plan_restore(world.snapshot, this_host(), install=installed(world.store), ledger=False)
        assert "--without-erasure-record" in (problem.value.hint or "")
        host = this_host()
        plan = plan_restore(
            world.snapshot, host, install=installed(world.store), without_erasure_record=True, ledger=False
        )
        assert plan.not_read
        record.write_text(erasures_text([]))
    assert halves(world.store) == world.old


def test_the_chain_of_seals_knows_of_a_restore(
    tmp_path: Path, durable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stores are older than the last seal then, and that is our own doing; the next seal goes on from there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(durable / "state"))
    from tests.operations.sealed import Install, audited, said

    with Install(tmp_path) as install:
        before = take(install, tmp_path / "snapshots").path
        install.add("later", user_id="alice")
        take(install, tmp_path / "snapshots")
        install.close()
        for number in (0, 2):
            if number:

                def restore() -> int:
                    plan = plan_restore(before, this_host(), install=installed(install))
                    return 0 if apply_restore(plan, this_host()) else 1

                with steps(at("restore.exchange", number, die)):
                    assert in_child(restore) == -signal.SIGKILL
            plan = plan_restore(before, this_host(), install=installed(install))
            done = apply_restore(plan, this_host())
            assert not [warning for warning in done.warnings if "seals" in warning]
            assert said(audited(install)) == set()
        install.open()
        install.add("after", user_id="bob")
        assert said(audited(install)) == set()
        assert take(install, tmp_path / "snapshots").manifest.settled


# --- journals ---------------------------------------------------------------------------------------------------


def died_writing(path: Path, mode: str, role: str) -> None:
    """A writer killed: with a write-ahead log that was not brought in, or with a hot journal."""

    def write() -> int:
        log = sqlite3.connect(path, isolation_level=None)
        log.execute(f"PRAGMA journal_mode = {mode}")
        log.execute("PRAGMA cache_size = 1")
        log.execute("BEGIN")
        log.execute("UPDATE history SET role = ?", (role * 300,))
        if mode == "wal":
            log.execute("COMMIT")
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert in_child(write) == -signal.SIGKILL
    assert Path(f"{path}-wal" if mode == "wal" else f"{path}-journal").stat().st_size > 512


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_journal_is_never_left_beside_the_new_log(tmp_path: Path, mode: str) -> None:
    world = World(tmp_path)
    died_writing(world.store.history, mode, "late")
    done = world.restore()
    assert halves(world.store) == world.new
    assert not list(world.store.mem0_dir.glob("history.db-*"))
    kept = rows(Path(done.replaced[0]))
    if mode == "wal":  # what was committed in it belongs to the old log, and came along
        assert {row[-1] for row in kept} == {"late" * 300}
    else:  # what was not committed is undone
        assert kept == world.old[0]
    assert litter(world.store) == []


@pytest.mark.parametrize("missing", [True, False])
def test_journals_of_a_log_that_is_gone_or_no_database(tmp_path: Path, missing: bool) -> None:
    world = World(tmp_path)
    died_writing(world.store.history, "wal", "late")
    wal = Path(f"{world.store.history}-wal").read_bytes()
    if missing:
        world.store.history.unlink()
    else:
        world.store.history.write_bytes(b"x" * 50_000)
        wal = b"junk" * 5000
        Path(f"{world.store.history}-wal").write_bytes(wal)
    world.restore()
    assert halves(world.store) == world.new
    assert not list(world.store.mem0_dir.glob("history.db-*"))
    (kept,) = world.store.mem0_dir.glob("history.db.replaced-*-wal")
    assert kept.read_bytes() == wal
    assert litter(world.store) == []


def test_journals_and_a_kill(tmp_path: Path) -> None:
    for name, number in (
        *(("restore.aside", n) for n in (1, 2, 3, 4)),
        *(("restore.exchange", n) for n in (1, 2)),
    ):
        world = World(tmp_path / f"{name}{number}")
        world.store.history.write_bytes(b"x" * 50_000)
        for side in ("-wal", "-shm"):
            Path(f"{world.store.history}{side}").write_bytes(b"junk" * 5000)
        cut_off(world, name, number)
        world.restore()
        assert halves(world.store) == world.new, number
        assert not list(world.store.mem0_dir.glob("history.db-*")), number
        assert litter(world.store) == []


def test_a_folder_that_is_not_qdrants(tmp_path: Path) -> None:
    """A wrong --qdrant-path must not put somebody's folder aside."""
    world = World(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/app.py").write_text("")

    class Wrong:
        history = world.store.history
        vectors = tmp_path / "project"

    with pytest.raises(Refused, match=r"is no Qdrant folder: it holds app\.py"):
        plan_restore(world.snapshot, this_host(), install=installed(Wrong))
    (world.store.vectors / "notes.txt").write_text("")
    plan = plan_restore(world.snapshot, this_host(), install=installed(world.store))
    assert any("notes.txt is none of Qdrant's" in said for said in plan.warnings)


def test_one_log_and_two_folders(tmp_path: Path) -> None:
    """A restore that was cut off is settled by one of the same log with another folder, which is then restored too."""
    world = World(tmp_path)
    shutil.copytree(world.store.vectors, tmp_path / "second")

    class Second:
        history = world.store.history
        vectors = tmp_path / "second"

    host = this_host()
    for number in (1, 2):
        world.change()
        cut_off(world, "restore.exchange", number)
        found = interrupted(installed(Second), host)
        assert found is not None and found.course == ("clean" if number == 1 else "finish")
        done = apply_restore(plan_restore(world.snapshot, host, install=installed(Second)), host)
        assert done.settled is not None and not done.resumed
        assert halves(Second) == world.new
        if number == 2:
            assert halves(world.store) == world.new
        assert litter(world.store) == []
        assert world.interrupted() is None


# --- places -----------------------------------------------------------------------------------------------------


def test_links_are_followed_and_stay(tmp_path: Path) -> None:
    world = World(tmp_path)
    store = world.store
    (tmp_path / "real").mkdir()
    shutil.move(store.vectors, tmp_path / "real/vectors")
    shutil.move(store.history, tmp_path / "real/log.db")
    store.vectors.symlink_to(tmp_path / "real/vectors")
    store.history.symlink_to("../../real/log.db")
    done = world.restore()
    assert store.vectors.is_symlink() and store.history.is_symlink()
    assert halves(store) == world.new
    assert {Path(p).parent for p in done.replaced} == {tmp_path / "real"}
    # a link to nothing: what it names is made
    shutil.rmtree(tmp_path / "real/vectors")
    (tmp_path / "real/log.db").unlink()
    world.restore()
    assert store.vectors.is_symlink() and store.history.is_symlink()
    assert halves(store) == world.new


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_folder_that_is_a_mount_point(durable: Path, kind: str) -> None:
    world = World(durable)
    store = world.store
    shutil.move(store.vectors, durable / "content")
    words = ("-t", "tmpfs", "tmpfs") if kind == "tmpfs" else ("--bind", str(durable / "content"))
    with mounted(store.vectors, *words):
        if kind == "tmpfs":
            shutil.copytree(durable / "content", store.vectors, dirs_exist_ok=True)
        (store.vectors / "lost+found").mkdir()
        plan = plan_restore(world.snapshot, this_host(), install=installed(store))
        assert plan.targets[1].way == "inside"
        assert any("in memory" in w for w in plan.warnings) is (kind == "tmpfs")
        seen: list[str] = []
        with steps(seen.append):
            done = apply_restore(plan, this_host())
        assert halves(store) == world.new
        assert len(done.replaced) == 3
        assert all(p.startswith(f"{store.vectors}/") for p in done.replaced[1:])
        assert litter(store) == []
        again = scrolled(store.vectors, durable / "scrolled")
        assert sum(map(len, again.values())) > 10
        # killed at each exchange
        for number in range(1, 1 + seen.count("restore.exchange")):
            world.change()
            before = halves(store)
            cut_off(world, "restore.exchange", number)
            assert world.interrupted() is not None
            world.restore()
            assert halves(store) == world.new != before
            assert litter(store) == []
        # and an empty volume, as after its loss
        for entry in (*store.vectors.glob("meta*"), *store.vectors.glob("coll*"), store.vectors / ".lock"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        world.restore()
        assert halves(store) == world.new


@pytest.mark.root
def test_a_single_file_that_is_mounted_is_refused_with_the_reason(durable: Path) -> None:
    needs_root()
    world = World(durable)
    (durable / "inner").mkdir()
    file = durable / "inner/history.db"
    file.touch()
    subprocess.run(["mount", "--bind", str(world.store.history), str(file)], check=True)
    try:

        class Bound:
            history = file
            vectors = world.store.vectors

        with pytest.raises(Refused, match="is mounted as a single file") as problem:
            plan_restore(world.snapshot, this_host(), install=installed(Bound))
        assert "--to" in (problem.value.hint or "")
    finally:
        subprocess.run(["umount", str(file)], check=True)
    assert halves(world.store) == world.old
    assert litter(world.store) == []


@pytest.mark.root
def test_a_mount_inside_the_folder_is_refused(durable: Path) -> None:
    world = World(durable)
    point = world.store.vectors / "collection/other"
    with (
        mounted(point, "-t", "tmpfs", "tmpfs"),
        pytest.raises(Refused, match="is mounted inside the vector store"),
    ):
        world.restore()


@pytest.mark.root
@pytest.mark.parametrize("number", [0, 1, 2])
def test_halves_on_two_filesystems(durable: Path, number: int) -> None:
    """Whole; and killed before the first and between the two exchanges."""
    world = World(durable)
    with mounted(durable / "memory", "-t", "tmpfs", "tmpfs") as point:
        shutil.move(world.store.vectors, point / "qdrant")
        world.store.vectors = point / "qdrant"
        assert world.store.vectors.stat().st_dev != world.store.history.stat().st_dev
        if number:
            cut_off(world, "restore.exchange", number)
            assert world.interrupted() is not None
        world.restore()
        assert halves(world.store) == world.new
        assert not list(point.glob(".*"))


@pytest.mark.root
def test_the_half_in_memory_went_with_a_power_cut(durable: Path) -> None:
    """Cut off between the exchanges; then the machine started anew, and the tmpfs is empty."""
    for number in (1, 2):
        world = World(durable / str(number))
        point = durable / str(number) / "memory"
        with mounted(point, "-t", "tmpfs", "tmpfs"):
            shutil.move(world.store.vectors, point / "qdrant")
            world.store.vectors = point / "qdrant"
            cut_off(world, "restore.exchange", number)
            for entry in point.iterdir():
                shutil.rmtree(entry)
            found = world.interrupted()
            assert found is not None and found.course == "back"
            done = world.restore()
            assert halves(world.store) == world.new
            assert rows(Path(done.replaced[0])) == world.old[0]
            assert not list(point.glob(".*"))


@pytest.mark.root
def test_a_full_disk_changes_nothing(durable: Path) -> None:
    world = World(durable)
    with mounted(durable / "memory", "-t", "tmpfs", "-o", "size=400k", "tmpfs") as point:
        shutil.move(world.store.vectors, point / "qdrant")
        world.store.vectors = point / "qdrant"
        with pytest.raises(Refused, match="bytes are free"):
            world.restore()
        with pytest.MonkeyPatch.context() as patch:
            from mem0audit.operations import restore as operation

            patch.setattr(operation, "check_room", lambda *_: None)
            (point / "filler").write_bytes(b"x" * (os.statvfs(point).f_bavail * 4096 - 60_000))
            with pytest.raises(Failed, match="no space left") as problem:
                world.restore()
        assert "nothing was changed" in problem.value.message
        assert halves(world.store) == world.old
        assert not list(point.glob(".*")) and litter(world.store) == []


# --- owners ------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach (pytest's own are closed to others)."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.root
@pytest.mark.parametrize("gone", ["nothing", "vectors", "both"])
def test_the_agents_user_can_open_what_root_restored(open_folder: Path, gone: str) -> None:
    needs_root()
    from qdrant_client import QdrantClient

    uid, gid = 12345, 12346
    world = World(open_folder / "home")
    store = world.store
    live = world.new[1]
    for path in (open_folder / "home", store.folder, *store.folder.rglob("*")):
        os.chown(path, uid, gid)
        path.chmod(0o750 if path.is_dir() else 0o640)
    with contextlib.suppress(OSError):
        os.setxattr(store.history, "user.note", b"mine")
    attributes = os.listxattr(store.history)
    if gone in ("vectors", "both"):
        shutil.rmtree(store.vectors)
    if gone == "both":
        store.history.unlink()
    world.restore()
    found = [store.history, store.vectors, *store.vectors.rglob("*")]
    assert {(p.stat().st_uid, p.stat().st_gid) for p in found} == {(uid, gid)}
    if gone == "nothing":
        assert {p.stat().st_mode & 0o777 for p in found} == {0o750, 0o640}
        assert os.listxattr(store.history) == attributes
    elif gone == "both":
        assert {p.stat().st_mode & 0o777 for p in found} == {0o700, 0o600}

    def as_the_agent() -> int:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        warnings.simplefilter("ignore")
        client = QdrantClient(path=str(store.vectors))
        count = len(client.scroll("mem0", limit=1000)[0])
        client.delete("mem0", points_selector=[client.scroll("mem0", limit=1)[0][0].id])
        client.close()
        log = sqlite3.connect(store.history)
        log.execute("INSERT INTO history (id, memory_id, event) VALUES ('x', 'y', 'ADD')")
        log.commit()
        return 0 if count == len(live["collection/mem0/storage.sqlite"]) else 1

    assert in_child(as_the_agent) == 0


@pytest.mark.root
def test_an_ordinary_user_restores_what_is_theirs(open_folder: Path) -> None:
    needs_root()
    world = World(open_folder / "home")
    for path in (open_folder / "home", *(open_folder / "home").rglob("*")):
        os.chown(path, 12345, 12346)

    def as_the_owner(work: Callable[[], Any]) -> int:
        os.setgroups([])
        os.setgid(12346)
        os.setuid(12345)
        work()
        return 0

    with steps(at("restore.exchange", 2, die)):
        assert in_child(lambda: as_the_owner(world.restore)) == -signal.SIGKILL
    assert in_child(lambda: as_the_owner(world.restore)) == 0
    assert halves(world.store) == world.new
    assert litter(world.store) == []
    found = [world.store.history, world.store.vectors, *world.store.vectors.rglob("*")]
    assert {(p.stat().st_uid, p.stat().st_gid) for p in found} == {(12345, 12346)}


@pytest.mark.root
def test_a_new_folder_in_memory_is_said_to_be_one(durable: Path) -> None:
    world = World(durable)
    with mounted(durable / "memory", "-t", "tmpfs", "tmpfs") as point:
        plan = plan_restore(world.snapshot, this_host(), to=str(point / "new"))
        assert any("gone at the next reboot" in said for said in plan.warnings)
        assert Path(apply_restore(plan, this_host()).history).exists()
        with pytest.raises(Refused, match="is a mount point"):
            shutil.rmtree(point / "new")
            plan_restore(world.snapshot, this_host(), to=str(point))


@pytest.mark.root
def test_access_lists_are_kept(open_folder: Path) -> None:
    needs_root()
    world = World(open_folder)
    # version 2; owner, user 12345, group, mask, others (linux/posix_acl_xattr.h)
    entries = [(0x01, 7, -1), (0x02, 7, 12345), (0x04, 5, -1), (0x10, 7, -1), (0x20, 0, -1)]
    wanted = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    both = (world.store.history, world.store.vectors)
    try:
        for path in both:
            os.setxattr(path, "system.posix_acl_access", wanted)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    world.restore()
    assert [os.getxattr(path, "system.posix_acl_access") for path in both] == [wanted, wanted]
    assert halves(world.store) == world.new


@pytest.mark.root
def test_an_ordinary_user_and_anothers_store(open_folder: Path) -> None:
    needs_root()
    world = World(open_folder)
    for path in [open_folder, *open_folder.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)

    def as_another() -> int:
        os.setgroups([])
        os.setgid(12345)
        os.setuid(12345)
        return _refused(world, this_host(), "belongs to root")

    assert in_child(as_another) == 0
    assert halves(world.store) == world.old


# --- what was put aside ---------------------------------------------------------------------------------------


def test_status_names_what_was_put_aside(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert status(installed(world.store), this_host(), ledger=False).put_aside == ()
    world.restore()
    there = status(installed(world.store), this_host(), ledger=False).put_aside
    assert sorted(Path(path).name.split(".replaced-")[0] for path in there) == ["history.db", "qdrant"]
    assert all(Path(path).exists() for path in there)


def test_only_what_is_on_record_is_discarded(tmp_path: Path) -> None:
    world = World(tmp_path)
    install = installed(world.store)
    with pytest.raises(CouldNotRead, match="no restore of this install put anything aside"):
        plan_discard(install, this_host())
    kept = [*world.restore().replaced, *world.restore().replaced]
    mine = world.store.folder / "qdrant.replaced-2020-01-01T000000Z"
    mine.mkdir()
    shutil.rmtree(kept[1])
    shutil.copytree(world.store.vectors, kept[1])  # another folder of that name: no longer what was put aside
    plan = plan_discard(install, this_host())
    assert [one.path for one in plan.kept] == [kept[0], *kept[2:]]
    assert all(size > 1000 for size in plan.sizes)
    apply_discard(plan)
    assert mine.is_dir() and Path(kept[1]).is_dir()
    assert not Path(kept[0]).exists() and not Path(kept[3]).exists()
    assert halves(world.store) == world.new
    with pytest.raises(CouldNotRead):
        plan_discard(install, this_host())


def test_discarding_is_refused_while_a_restore_is_cut_off_or_the_record_is_not_ours(tmp_path: Path) -> None:
    needs_root()
    world = World(tmp_path)
    install = installed(world.store)
    world.restore()
    record = world.store.mem0_dir / ".history.db.mem0audit-replaced.json"
    os.chown(record, 12345, -1)
    with pytest.raises(Refused, match="not this user's own record"):
        plan_discard(install, this_host())
    os.chown(record, 0, -1)
    world.change()
    cut_off(world, "restore.exchange", 2)
    with pytest.raises(Refused, match="a restore was cut off here"):
        plan_discard(install, this_host())
    world.restore()
    assert len(plan_discard(install, this_host()).kept) == 4


def test_a_fault_while_discarding(tmp_path: Path) -> None:
    world = World(tmp_path)
    install = installed(world.store)
    world.restore()
    for name in ("restore.discard", "restore.record.remove"):
        fired: list[bool] = []
        number = 2 if name == "restore.discard" else 1
        plan = plan_discard(install, this_host())
        with steps(at(name, number, failing(errno.EIO, fired))), pytest.raises(Failed):
            apply_discard(plan)
        assert fired
        if name == "restore.discard":
            assert len(plan_discard(install, this_host()).kept) == 1
            world.restore()
    assert halves(world.store) == world.new


# --- other machines and versions -------------------------------------------------------------------------------


def test_to_other_paths(tmp_path: Path) -> None:
    world = World(tmp_path)

    class Elsewhere:
        history = tmp_path / "other home/log.db"
        vectors = tmp_path / "other home/vectors"

    host = this_host()
    shutil.rmtree(world.store.folder)
    plan = plan_restore(world.snapshot, host, install=installed(Elsewhere))
    apply_restore(plan, host)
    assert halves(Elsewhere) == world.new
    assert {p.name for p in (tmp_path / "other home").iterdir()} == {"log.db", "vectors"}


def test_errors_are_ours(tmp_path: Path) -> None:
    """Whatever an intent holds, no other exception comes out, and the stores stay."""
    rng = random.Random(7)
    world = World(tmp_path)
    cut_off(world, "restore.exchange", 1)
    file = next(world.store.mem0_dir.glob(".*restoring/intent.json"))
    data = file.read_bytes()
    shutil.rmtree(next(world.store.folder.glob(".*restoring")))
    for _ in range(100):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 5)):
            changed[rng.randrange(min(len(changed), 2500))] = rng.choice(b'0{}[]",:x\xff-/')
        file.write_bytes(changed)
        with contextlib.suppress(Mem0auditError):
            world.interrupted()
    assert halves(world.store) == world.old


@pytest.mark.thorough
def test_an_expiry_in_the_middle_leaves_both_or_neither(tmp_path: Path) -> None:
    """A restore holds no lock of the folder of snapshots: it may lie on a disk that is only read. It needs none."""
    seen = steps_of(tmp_path / "steps")
    copies = Copies(tmp_path)
    kept = tmp_path / "another"
    shutil.copytree(copies.world.snapshot, kept)
    ended = set()
    for name, number in [(name, 1) for name in sorted(set(seen))]:
        world = copies.again()
        snapshot = Path(world.snapshot)
        if not snapshot.exists():
            shutil.copytree(kept, snapshot)

        def expire(snapshot: Path = snapshot) -> None:
            snapshot.rename(snapshot.with_name(f".removing-{snapshot.name}"))
            shutil.rmtree(snapshot.with_name(f".removing-{snapshot.name}"))

        with steps(at(name, number, expire)):
            try:
                world.restore()
                ended.add("new")
                assert halves(world.store) == world.new, (name, number)
            except Failed as problem:
                ended.add("old")
                assert "nothing was changed" in problem.message, (name, number)
                assert halves(world.store) == world.old, (name, number)
        assert not snapshot.exists() and world.interrupted() is None, (name, number)
        assert not litter(world.store), (name, number)
    assert ended == {"old", "new"}
