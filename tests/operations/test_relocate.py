"""Moves of real stores: both or neither, at any fault, kill and place; and nothing lost when the agent stops."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.relocate import CutOff, Relocated, RelocatePlan
from mem0audit.install.host import this_host
from mem0audit.operations import relocate as operation
from mem0audit.operations.discard import apply_discard, plan_discard
from mem0audit.operations.moves import cut_off
from mem0audit.operations.relocate import apply_relocate, plan_relocate
from mem0audit.operations.status import status
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store
from tests.operations.test_restore import AGENTS, agent, die, failing, halves, in_child, steps, undisturbed
from tests.operations.test_snapshot import installed, mounted, needs_root, scrolled, to_wal


@dataclasses.dataclass
class At:
    """Both stores at some place."""

    history: Path
    vectors: Path


class World:
    """An install at one place, and the place that it moves to."""

    def __init__(self, folder: Path, *, wal: bool = False, with_history: bool = True) -> None:
        self.folder = folder
        self.with_history = with_history
        self.store = copy_store("2.2.1-nlp", folder)
        if wal:
            to_wal(self.store.history, *self.store.vectors.glob("collection/*/storage.sqlite"))
        self.content = halves(self.store)
        self.to = folder / "srv/qdrant"
        self.to.parent.mkdir()
        log = self.to.parent / "history.db" if with_history else self.store.history
        self.new = At(log, self.to)

    def plan(self, **options: Any) -> RelocatePlan:
        options.setdefault("with_history", self.with_history)
        options.setdefault("ledger", False)  # it would look at it all once more: it has tests of its own
        return undisturbed(lambda: plan_relocate(installed(self.store), this_host(), str(self.to), **options))

    def move(self, **options: Any) -> Relocated:
        return undisturbed(lambda: apply_relocate(self.plan(**options), this_host()))

    def cut_off(self) -> CutOff | None:
        return cut_off(self.plan_of_places().staging)

    def plan_of_places(self) -> Any:
        return operation.core.destination(str(self.to), self.with_history)

    def is_old(self) -> bool:
        there = self.store.history.exists() and self.store.vectors.exists()
        untaken = not self.to.exists() and (not self.with_history or not self.new.history.exists())
        return there and untaken and halves(self.store) == self.content

    def is_new(self) -> bool:
        gone = not self.store.vectors.exists() and not (self.with_history and self.store.history.exists())
        return gone and self.to.exists() and halves(self.new) == self.content

    def check_moved(self, where: Any = None) -> None:
        assert self.is_new(), where
        allowed = {"qdrant", "history.db", ".history.db.mem0audit-replaced.json"}
        assert {p.name for p in self.to.parent.iterdir()} <= allowed, where
        kept = [
            *self.store.folder.glob("qdrant.replaced-*"),
            *self.store.mem0_dir.glob("history.db.replaced-*"),
        ]
        assert len(kept) == (2 if self.with_history else 1), where
        assert (self.to / ".lock").read_bytes() == b"tmp lock file", where


# --- the agent stopped ------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_history", [True, False])
@pytest.mark.parametrize("wal", [False, True])
def test_a_store_moves(tmp_path: Path, durable: Path, wal: bool, with_history: bool) -> None:
    world = World(durable, wal=wal, with_history=with_history)
    points = scrolled(world.store.vectors, tmp_path / "before")
    done = world.move()
    assert (done.state, done.resumed, done.settled) == ("moved", False, None)
    world.check_moved()
    assert (done.vectors, done.history) == (str(world.to), str(world.new.history))
    for path in (world.new.history, *world.to.glob("collection/*/storage.sqlite")):
        assert path.read_bytes()[18] == (2 if wal else 1)
    assert scrolled(world.to, tmp_path / "after") == points
    assert [Path(path).exists() for path in done.replaced] == [True] * (2 if with_history else 1)
    assert done.manifest.counts["memories"] == 19


def test_what_was_put_aside_is_discarded(durable: Path) -> None:
    world = World(durable)
    done = world.move()
    install, host = installed(world.new), this_host()
    assert set(status(install, host).moved_aside) == set(done.replaced)
    with pytest.raises(CouldNotRead, match="no restore of this install"):
        plan_discard(install, host)
    removed = apply_discard(plan_discard(install, host, "move"))
    assert set(removed) == set(done.replaced)
    assert not any(Path(path).exists() for path in removed)
    assert halves(world.new) == world.content
    with pytest.raises(CouldNotRead, match="no move of this install"):
        plan_discard(install, host, "move")


def test_the_ledger_comes_along(durable: Path, own_home: Path) -> None:
    from mem0audit.operations.audit import audit
    from mem0audit.operations.ledger import opened

    world = World(durable, with_history=False)
    host = this_host()
    assert audit(installed(world.store), host, ledger=True, seal=True).seal is not None
    with agent(world.store):
        assert world.move(ledger=True).state == "waiting"
    with opened(installed(world.store), host) as book:
        assert book.folders() == (world.plan_of_places().pair,)  # type: ignore[union-attr]
    world.move(ledger=True)
    with opened(installed(world.new), host) as book:
        assert [seal.kind for seal in book.seals()] == ["seal", "relocate"]  # type: ignore[union-attr]
        assert book.folders() == ()  # type: ignore[union-attr]
    found = audit(installed(world.new), host, ledger=True)
    assert not {f.code for f in found.findings} & {"D310", "D311", "H408"}
    assert {"D310", "D311", "H408"} <= set(found.checked)
    assert len(list((own_home / ".local/state/mem0audit").glob("*.sqlite"))) == 1


@pytest.mark.root
def test_owners_modes_and_attributes_stay(durable: Path) -> None:
    needs_root()
    world = World(durable)
    store = world.store
    for path, mode in ((store.vectors, 0o750), (store.vectors / "meta.json", 0o640), (store.history, 0o660)):
        os.chown(path, 4242, 4343)
        path.chmod(mode)
    os.setxattr(store.vectors, "user.note", b"kept")
    os.setxattr(store.history, "user.note", b"kept too")
    world.move()
    for path, mode in ((world.to, 0o750), (world.to / "meta.json", 0o640), (world.new.history, 0o660)):
        there = path.stat()
        assert (there.st_uid, there.st_gid, there.st_mode & 0o777) == (4242, 4343, mode), path
    assert os.getxattr(world.to, "user.note") == b"kept"
    assert os.getxattr(world.new.history, "user.note") == b"kept too"


def test_places_that_are_refused(durable: Path) -> None:
    world = World(durable)
    store = world.store
    (durable / "full").mkdir()
    (durable / "full/x").write_text("")
    (durable / "file").write_text("")
    (durable / "link").symlink_to(store.vectors)
    for target, says in (
        (durable / "full", "is not empty"),
        (durable / "file", "is no folder"),
        (durable / "file/new", "a parent is a file"),
        (store.vectors, "lies there already"),
        (durable / "link", "lies there already"),
        (store.vectors / "new", "inside the vector store"),
        (store.folder, "holds the vector store itself"),
        (Path("/dev/shm/mem0audit-new"), "in memory: the next reboot"),
        (Path("/proc/1/root/srv/new"), "under another process's root"),
    ):
        before = sorted(durable.rglob("*"))
        world.to = target
        with pytest.raises(Refused, match=says):
            world.plan()
        assert sorted(durable.rglob("*")) == before
        assert not Path("/dev/shm/mem0audit-new").exists()
    world.to = durable / "srv/qdrant"
    world.new.history.write_text("")
    with pytest.raises(Refused, match=r"history\.db is there already"):
        world.plan()
    shutil.rmtree(store.vectors)
    with pytest.raises(CouldNotRead, match="no pair of it was taken before"):
        world.plan(with_history=False)


def test_a_cleaned_place_is_refused(durable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mem0audit.core.model import Cleaning

    world = World(durable)
    look_at = operation.look_at
    rule = Cleaning("/usr/lib/tmpfiles.d/tmp.conf", "D /tmp 1777 root root -", "at boot")
    for change, says in (
        ({"cleaned": rule}, "systemd-tmpfiles cleans up"),
        ({"container_layer": True}, "container's own layer"),
        ({"free_bytes": 1000}, "1,000 bytes are free"),
    ):
        monkeypatch.setattr(
            operation,
            "look_at",
            lambda path, host, change=change: dataclasses.replace(look_at(path, host), **change),
        )
        with pytest.raises(Refused, match=says):
            world.plan()
    assert world.is_old()


def test_an_agent_that_deletes_its_folder_at_every_start(
    durable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mem0audit.core.model import Agent

    world = World(durable)
    for version, on_disk, says in (
        ("1.0.7", None, "unless on_disk is true"),
        ("1.0.7", True, ""),
        ("1.0.8", None, ""),
    ):
        agent = Agent(None, version, "1.15.1", "a test")
        monkeypatch.setattr(operation, "whose_mem0", lambda *_, agent=agent: agent)
        install = dataclasses.replace(installed(world.store), on_disk=on_disk)
        plan = plan_relocate(install, this_host(), str(world.to))
        assert (says in " ".join(plan.warnings)) and bool(says) == bool(plan.warnings)
    agent = Agent(None, "0.0.12", "1.12.1", "a test")
    monkeypatch.setattr(operation, "whose_mem0", lambda *_: agent)
    with pytest.raises(Refused, match="deletes its vector folder each time it starts"):
        world.plan()


@pytest.mark.root
def test_a_place_that_its_owner_cannot_use(durable: Path) -> None:
    needs_root()
    world = World(durable)
    for path in (world.store.history, world.store.vectors):
        os.chown(path, 4242, 4343)
    closed = [p for p in world.to.parents if not p.stat().st_mode & 1]
    (said,) = world.plan().warnings
    assert ("may not enter" if closed else "where SQLite makes its journals") in said


def test_a_damaged_store_is_moved_as_it_is(durable: Path) -> None:
    world = World(durable)
    storage = world.store.vectors / "collection/mem0/storage.sqlite"
    data = bytearray(storage.read_bytes())
    data[8192:12288] = b"\xff" * 4096
    storage.write_bytes(data)
    done = world.move()
    assert done.state == "moved"
    assert (world.to / "collection/mem0/storage.sqlite").read_bytes() == bytes(data)
    assert "I202" in done.manifest.findings


def test_an_empty_folder_is_filled(durable: Path) -> None:
    world = World(durable)
    world.to.mkdir()
    world.move()
    world.check_moved()


@pytest.mark.root
def test_out_of_a_folder_that_is_a_mount_point(durable: Path) -> None:
    needs_root()
    world = World(durable)
    with mounted(durable / "memory", "-t", "tmpfs", "tmpfs") as point:
        shutil.copytree(world.store.vectors, point, dirs_exist_ok=True)
        shutil.rmtree(world.store.vectors)
        world.store.vectors = point
        done = world.move()
        assert halves(world.new) == world.content
        assert sorted(Path(path).name.split(".replaced")[0] for path in done.replaced) == [
            "collection",
            "history.db",
            "meta.json",
        ]
    (durable / "disk").mkdir()
    with mounted(durable / "volume", "--bind", str(durable / "disk")) as point:
        with pytest.raises(Refused, match=r"is a mount point") as problem:
            plan_relocate(installed(world.new), this_host(), str(point))
        assert problem.value.hint == f"name a folder in it: --to {point}/qdrant"


# --- faults -------------------------------------------------------------------------------------------------


TELLING = {"restore.put", "restore.aside", "restore.write.rename", "restore.intent.remove"}
"""Steps after each of which something else lies on the disk that the next run goes by."""
STEPS = {
    *(
        "restore.staging",
        "restore.stage",
        "restore.stage.fsync",
        "folder.create",
        "restore.owner",
        "restore.mode",
    ),
    *("snapshot.write", "snapshot.write.fsync", "snapshot.fsync", "restore.lock", "restore.fsync"),
    *("restore.write", "restore.write.fsync", "restore.write.rename", "restore.put", "restore.aside"),
    *("restore.intent.remove", "restore.staging.remove"),
}


class Copies:
    """The same world again and again, without building it each time."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.world = World(folder / "live", **options)
        self.kept = folder / "kept"
        shutil.copytree(self.world.folder, self.kept)

    def again(self) -> World:
        shutil.rmtree(self.world.folder)
        shutil.copytree(self.kept, self.world.folder)
        return self.world

    def places(self) -> list[tuple[str, int]]:
        """The first time of every step, and every time of those that tell."""
        seen: list[str] = []
        with steps(seen.append):
            self.again().move()
        assert set(seen) - {"restore.attribute"} == STEPS
        return sorted(
            (n, i) for n in set(seen) for i in range(1, seen.count(n) + 1) if i == 1 or n in TELLING
        )


def at(name: str, number: int, do: Callable[[], None]) -> Callable[[str], None]:
    left = itertools.count(1)
    return lambda this: do() if this == name and next(left) == number else None


def check_settled(world: World, where: Any) -> None:
    """After a fault: old or new, or a mix that is known to be one; and the same command makes it whole."""
    found = world.cut_off()
    if not world.is_old() and not world.is_new():
        assert found is not None and found.course in ("finish", "back"), (where, found)
    if world.is_new() and found is None:
        return
    done = world.move()
    assert (done.settled is None) == (found is None), where
    world.check_moved(where)
    plan_discard(installed(world.new), this_host(), "move")  # it is on record, whoever finished it


@pytest.mark.thorough
@pytest.mark.parametrize("code", [errno.ENOSPC])
def test_an_error_at_every_step(durable: Path, code: int) -> None:
    copies = Copies(durable)
    for name, number in copies.places():
        world = copies.again()
        fired: list[bool] = []
        with steps(at(name, number, failing(code, fired))), contextlib.suppress(Failed):
            world.move()
        assert fired, (name, number)
        # An error is handled in the same run: never mixed, not even until the next.
        assert world.is_old() or world.is_new(), (name, number)
        if world.is_old():
            assert world.cut_off() is None or name in ("restore.intent.remove", "restore.staging.remove")
            assert [p.name for p in world.to.parent.iterdir()] == [], (name, number)
            continue  # as if nothing had been begun
        check_settled(world, (name, number))


@pytest.mark.thorough
def test_a_kill_at_every_step(durable: Path) -> None:
    copies = Copies(durable, wal=True)
    courses = set()
    for name, number in copies.places():
        world = copies.again()
        with steps(at(name, number, die)):
            assert in_child(lambda world=world: world.move() and 0) == -signal.SIGKILL, (name, number)  # type: ignore[misc]
        found = world.cut_off()
        courses.add(found.course if found else None)
        check_settled(world, (name, number))
    assert courses == {None, "clean", "finish"}


def cut(world: World, name: str, number: int) -> None:
    with steps(at(name, number, die)):
        assert in_child(lambda: world.move() and 0) == -signal.SIGKILL


def test_a_reboot_after_a_kill_loses_nothing(durable: Path) -> None:
    """Killed when the copies were proven, then the place that was in memory is gone: the copy is the last one."""
    copies = Copies(durable)
    for name, number in (("restore.put", 1), ("restore.put", 2), ("restore.aside", 1), ("restore.aside", 2)):
        world = copies.again()
        cut(world, name, number)
        shutil.rmtree(world.store.folder)
        found = world.cut_off()
        assert found is not None and found.course == "finish", (name, number)
        done = world.move()
        assert done.resumed
        assert halves(world.new) == world.content, (name, number)


def written(history: Path) -> None:
    with closing(sqlite3.connect(history)) as log:
        log.execute("INSERT INTO history (id, memory_id, event) VALUES ('x', 'y', 'ADD')")
        log.commit()


def test_an_old_store_that_was_written_to_after_a_kill_is_not_left_behind(durable: Path) -> None:
    copies = Copies(durable)
    for name, number in (("restore.put", 1), ("restore.put", 2), ("restore.aside", 1)):
        world = copies.again()
        cut(world, name, number)
        written(world.store.history)
        found = world.cut_off()
        assert found is not None and found.course == "back", (name, number)
        now = halves(world.store)
        done = world.move()
        assert done.settled == found and not done.resumed
        assert halves(world.new) == now, (name, number)
        assert "x" in [row[0] for row in now[0]]
        world.content = now
        world.check_moved()


def test_what_was_written_to_one_half_after_a_kill_is_named(durable: Path) -> None:
    """One old store has its dated name already: nothing can be taken back as it was, and nothing is thrown away."""
    world = World(durable)
    cut(world, "restore.aside", 2)
    assert not world.store.vectors.exists() and world.store.history.exists()
    written(world.store.history)
    done = world.move()
    assert done.resumed and halves(world.new) == world.content
    (said,) = done.warnings
    (kept,) = (path for path in done.replaced if "history.db" in path)
    assert kept in said and "x" in [row[0] for row in halves(At(Path(kept), world.to))[0]]


def test_a_pair_that_anybody_could_have_made_is_not_taken(durable: Path) -> None:
    world = World(durable, with_history=False)
    with agent(world.store):
        world.move()
    shutil.rmtree(world.store.vectors)
    folder = Path(world.plan_of_places().pair)
    assert world.plan().way == "publish"
    folder.chmod(0o777)
    with pytest.raises(CouldNotRead, match="no pair of it was taken before"):
        world.plan()


def test_where_both_places_were_written_to_nothing_is_decided(durable: Path) -> None:
    world = World(durable)
    cut(world, "restore.aside", 1)
    written(world.store.history)
    written(world.new.history)
    both = halves(world.store), halves(world.new)
    with pytest.raises(Refused, match="cannot be told which of them"):
        world.move()
    assert (halves(world.store), halves(world.new)) == both


def test_a_writer_that_comes_back_is_noticed(durable: Path) -> None:
    copies = Copies(durable)
    storage = copies.world.store.vectors / "collection/mem0/storage.sqlite"

    def write() -> None:
        with closing(sqlite3.connect(storage)) as points:
            points.execute("INSERT INTO points VALUES ('late', 'late')")
            points.commit()

    for name, number, do in (
        ("restore.stage", 2, write),
        ("restore.stage", 4, write),
        ("snapshot.fsync", 1, write),
        ("restore.stage", 4, lambda: written(copies.world.store.history)),
        ("snapshot.fsync", 1, lambda: written(copies.world.store.history)),
    ):
        world = copies.again()
        fired: list[object] = []
        with (
            steps(at(name, number, lambda do=do, fired=fired: fired.append(do()))),  # type: ignore[misc]
            pytest.raises((Refused, Failed)) as problem,
        ):
            world.move()
        assert fired and "nothing was changed" in problem.value.message, (name, number)
        assert not world.to.exists() and not world.new.history.exists()
        assert not list(world.to.parent.glob(".*"))
        assert len(halves(world.store)[1]) == len(world.content[1])
        world.content = halves(world.store)
        world.move()
        world.check_moved()
        copies.world = World.__new__(World)
        copies.world.__dict__.update(world.__dict__)


@pytest.mark.thorough
def test_no_agent_gets_in_between(durable: Path) -> None:
    """At every name that is given a starting client fails at both places, and the old log is locked."""
    from qdrant_client import QdrantClient

    world = World(durable)
    tried: list[tuple[int, ...]] = []

    def start(path: Path) -> int:
        try:
            QdrantClient(path=str(path))
        except (RuntimeError, sqlite3.OperationalError):  # its databases are locked too while names are given
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
        old = [world.store.vectors] if name == "restore.put" and not tried else []  # it waits 5 s for SQLite
        places = [path for path in (*old, world.to) if (path / ".lock").exists()]
        if name in ("restore.put", "restore.aside") or (name == "restore.write" and world.to.exists()):
            log = [in_child(write)] if world.store.history.exists() else []
            tried.append((*(in_child(lambda p=p: start(p)) for p in places), *log))  # type: ignore[misc]

    with steps(look):
        world.move()
    assert len(tried) == 5 and {code for codes in tried for code in codes} == {0}
    world.check_moved()


# --- the agent running ----------------------------------------------------------------------------------------


def test_a_pair_first_and_then_what_changed_since(durable: Path) -> None:
    world = World(durable, with_history=False)
    with agent(world.store) as pid:
        done = world.move()
        assert done.state == "waiting" and [h.pid for h in done.holders] == [pid]
        assert world.is_old()
        assert done.pair is not None and Path(done.pair).parent == durable / "srv/qdrant.pair"
        assert done.manifest.counts["memories"] == 19
        again = world.move()  # it may be run as often as one likes
        assert again.since is not None and again.since.vanished == 0
    with MemoryBuilder(world.store.folder, history=world.store.history, vectors=world.store.vectors) as mem0:
        added = mem0.add("tea in the morning", user_id="ann")
        mem0.delete(next(i for i in mem0.points() if i != added))
    world.content = halves(world.store)
    done = world.move()
    assert done.since is not None
    assert (done.since.added, done.since.removed, done.since.vanished) == (1, 1, 0)
    world.check_moved()
    assert done.pair is None and not (durable / "srv/qdrant.pair").exists()


def test_it_waits_and_goes_on(durable: Path) -> None:
    world = World(durable)
    told: list[Relocated] = []
    with contextlib.ExitStack() as stack:
        pid = stack.enter_context(agent(world.store))
        pauses = itertools.count(1)

        def pause(_seconds: float) -> None:
            if next(pauses) == 3:
                stack.close()

        done = apply_relocate(world.plan(), this_host(), wait=told.append, pause=pause)
    assert [h.pid for h in told[0].holders] == [pid]
    assert done.state == "moved" and next(pauses) >= 4
    world.check_moved()


def test_an_emptied_store_is_not_taken_for_the_one_that_moves(durable: Path) -> None:
    world = World(durable, with_history=False)
    with agent(world.store):
        pair = world.move().pair
    shutil.rmtree(world.store.vectors)
    with MemoryBuilder(world.store.folder, history=world.store.history, vectors=world.store.vectors) as mem0:
        mem0.add("tea", user_id="ann")
    with pytest.raises(Refused, match="was emptied meanwhile, or begun anew") as problem:
        world.move()
    assert problem.value.hint is not None and f"snapshot restore {pair} --to NEWDIR" in problem.value.hint
    with agent(world.store), pytest.raises(Refused, match="was emptied meanwhile"):
        world.move()
    assert pair is not None and Path(pair).is_dir()
    assert not world.to.exists()


@pytest.mark.parametrize("log", ["there", "gone"])
def test_stores_that_went_with_the_agent(durable: Path, log: str) -> None:
    world = World(durable, with_history=False, wal=log == "there")
    with agent(world.store):
        pair = world.move().pair
    with MemoryBuilder(world.store.folder, history=world.store.history, vectors=world.store.vectors) as mem0:
        added = mem0.add("tea", user_id="ann")
        mem0.delete(next(i for i in mem0.points() if i != added))
    shutil.rmtree(world.store.vectors)
    if log == "gone":
        world.store.history.unlink()
        world.new.history = world.to.parent / "history.db"
    plan = world.plan()
    assert (plan.way, plan.with_history) == ("publish", log == "gone")
    done = world.move()
    assert (done.state, done.pair, done.replaced) == ("published", pair, ())
    assert halves(world.new)[1] == world.content[1]
    for path in world.to.glob("collection/*/storage.sqlite"):
        assert path.read_bytes()[18] == (2 if log == "there" else 1)
    assert done.lost is not None
    if log == "gone":
        assert halves(world.new) == world.content and done.lost.rows is None
    else:
        assert (done.lost.rows, done.lost.memories, done.lost.deleted) == (2, 1, 1)
        assert len(RawHistory(world.new.history).rows()) == len(world.content[0]) + 2
    with MemoryBuilder(world.folder / "agent", history=world.new.history, vectors=world.new.vectors) as mem0:
        assert len(mem0.points()) == 19
    assert pair is not None and Path(pair).is_dir()  # it stays, as a snapshot


def test_a_kill_while_the_pair_is_published(durable: Path) -> None:
    copies = Copies(durable, with_history=False)
    with agent(copies.again().store):
        copies.world.move()
    shutil.rmtree(copies.kept)
    shutil.copytree(copies.world.folder, copies.kept)
    shutil.rmtree(copies.kept / copies.world.store.vectors.relative_to(copies.world.folder))
    later: list[str] = []
    with steps(later.append):
        assert copies.again().move().state == "published"
    for name in sorted(
        TELLING | {"restore.stage", "restore.owner", "restore.lock", "restore.staging.remove"}
    ):
        if name not in later:
            assert name == "restore.aside"  # no old store is there to be put aside
            continue
        world = copies.again()
        with steps(at(name, 1, die)):
            assert in_child(lambda world=world: world.move() and 0) == -signal.SIGKILL, name  # type: ignore[misc]
        if not (halves(world.new)[1] == world.content[1] and world.cut_off() is None):
            state = world.move().state
            assert state == ("moved" if name == "restore.staging.remove" else "published"), name
        assert halves(world.new)[1] == world.content[1], name


PRIVATE = """
import fcntl, os, sqlite3, sys, time
lock = open(f"{sys.argv[1]}/.lock", "r+"); fcntl.flock(lock, fcntl.LOCK_EX)  # as qdrant-client does
stores = [sqlite3.connect(p) for p in (f"{sys.argv[1]}/collection/mem0/storage.sqlite", sys.argv[2])]
for one in stores:
    one.execute("SELECT count(*) FROM sqlite_master").fetchone()
print("open", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def private(world: World, seen: Path, *, log: bool) -> Iterator[subprocess.Popen[bytes]]:
    """An agent whose vectors, or both stores, lie in a tmpfs of its own mount namespace, as with PrivateTmp=."""
    seen.mkdir()
    old = world.store.vectors
    script = f"mount -t tmpfs tmpfs {seen} && cp -a {old} {seen}/qdrant && rm -r {old}"
    if log:
        script += f" && mv {world.store.history} {seen}/history.db"
        world.store.history = seen / "history.db"
    words = [os.path.realpath(sys.executable), "-c", PRIVATE, f"{seen}/qdrant", str(world.store.history)]
    process = subprocess.Popen(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", f'{script} && exec "$@"', "sh", *words],
        stdout=subprocess.PIPE,
    )
    AGENTS.add(process.pid)
    try:
        assert process.stdout is not None and process.stdout.readline().strip() == b"open"
        world.store.vectors = seen / "qdrant"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.root
@pytest.mark.parametrize("kind", ["run twice", "waits", "both stores, by /proc"])
def test_a_store_in_the_agents_own_root_whose_holder_is_killed(durable: Path, kind: str) -> None:
    """Right after the first pair: it is put in the place of what is gone, and opens."""
    needs_root()
    waits, log = kind == "waits", kind.startswith("both")
    world = World(durable, with_history=log)
    os.chown(world.store.vectors, 4242, 4343)
    with private(world, durable / "seen", log=log) as process:
        if log:
            root = Path(f"/proc/{process.pid}/root")
            world.store.history, world.store.vectors = (
                root / str(path)[1:] for path in (world.store.history, world.store.vectors)
            )
        plan = world.plan()
        assert (plan.way, [h.pid for h in plan.holders]) == ("pair", [process.pid])
        assert plan.dies
        if waits:

            def stop(_done: Relocated) -> None:
                process.kill()
                process.wait()

            done = apply_relocate(plan, this_host(), wait=stop)
        else:
            assert world.move().state == "waiting"
            assert log or not world.store.vectors.exists()
    if not waits:
        done = world.move()
    assert (done.state, done.replaced) == ("published", ())
    assert done.lost is not None and done.lost.rows == (None if log else 0)
    assert halves(world.new) == world.content
    assert (world.to.stat().st_uid, world.to.stat().st_gid) == (4242, 4343)
    with MemoryBuilder(durable / "agent", history=world.new.history, vectors=world.new.vectors) as mem0:
        assert len(mem0.points()) == 19


@pytest.mark.root
def test_off_a_real_tmpfs_with_mem0(durable: Path) -> None:
    """Built there by mem0, moved with the agent running and then stopped, unmounted: nothing is lost, and mem0 opens
    the new place and answers the same searches."""
    needs_root()
    questions = ("tea", "where does ann live", "coffee")
    log = durable / "home/history.db"
    to = durable / "srv/qdrant"

    def answers(mem0: MemoryBuilder) -> list[Any]:
        found = [mem0.memory.search(q, filters={"user_id": "ann"}) for q in questions]
        return [[(r["id"], r["memory"], round(r["score"], 6)) for r in one["results"]] for one in found]

    with mounted(durable / "tmp", "-t", "tmpfs", "tmpfs") as point:
        old = At(log, point / "qdrant")
        with MemoryBuilder(durable / "home", history=log, vectors=old.vectors) as mem0:
            for text in ("likes tea", "lives in Quito", "drinks no coffee"):
                mem0.add(text, user_id="ann")
        with agent(old):
            plan = plan_relocate(installed(old), this_host(), str(to))
            assert apply_relocate(plan, this_host()).state == "waiting"
        with MemoryBuilder(durable / "home", history=log, vectors=old.vectors) as mem0:
            mem0.add("has a dog", user_id="ann")
            expected = answers(mem0)
        done = apply_relocate(plan_relocate(installed(old), this_host(), str(to)), this_host())
        assert done.state == "moved" and done.since is not None and done.since.added == 1
    from mem0audit.operations.audit import audit

    new = At(log, to)
    found = audit(installed(new), this_host())
    assert found.counts["memories"] == 4
    assert not [f for f in found.findings if f.code[0] in "DHLE" and f.severity > 1]
    with MemoryBuilder(durable / "home", history=log, vectors=to) as mem0:
        assert answers(mem0) == expected
        assert len(RawPoints(to).points()) == 4
