"""What prune removes of real stores: what mem0 hides and nothing else, whatever cuts it off, inside an agent too."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pickle
import shutil
import signal
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import mem0audit
from mem0audit.cli.prune import ended_gently
from mem0audit.core.erasures import make_erasure
from mem0audit.core.errors import Failed, Refused, UsageProblem
from mem0audit.core.model import Install
from mem0audit.core.prune import PrunePlan, backlog
from mem0audit.install.host import Host, this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.audit import audit
from mem0audit.operations.changes import look_whole
from mem0audit.operations.prune import apply_prune, plan_prune, prune_inside
from mem0audit.stores.ledger import Ledger
from mem0audit.stores.mem0api import Mem0Worker
from mem0audit.stores.mem0live import LiveMemory
from tests.builders import MemoryBuilder, RawHistory, RawPoints
from tests.operations.test_mem0door import install_at
from tests.operations.test_repair import Killed
from tests.operations.test_restore import in_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

STALE = ("old", "yesterday", "unlogged", "shared", "alone", "bob's", "back")


def day(days: int) -> str:
    return (datetime.now(timezone.utc) + timedelta(days=days)).date().isoformat()


@dataclass(frozen=True)
class Built:
    folder: Path
    ids: dict[str, str]
    hidden: frozenset[str]
    """What mem0 itself hides."""


def build_stale(folder: Path) -> Built:
    """An install with all kinds of stale memories, and others, and what the entities link of them."""
    agent = MemoryBuilder(folder)
    ids = {}
    for name, owner, expires in (
        ("old", "alice", "2020-01-01"),
        ("yesterday", "alice", day(-1)),
        ("shared", "alice", "2024-02-29"),
        ("alone", "alice", "2024-02-29"),
        ("bob's", "bob", "2024-02-29"),
        ("back", "alice", "2024-02-29"),
        ("later", "alice", day(2)),
        ("never", "alice", None),
        ("soon", "alice", None),
        ("kept", "bob", None),
    ):
        ids[name] = agent.add(f"SECRET {name}", user_id=owner, expiration_date=expires)
    for name, linked in (
        ("of shared and never", ["shared", "never"]),
        ("of alone", ["alone"]),
        ("of alone and shared", ["alone", "shared"]),
        ("of kept", ["kept", "later"]),
    ):
        ids[name] = agent.plant_entity(name, [ids[one] for one in linked], user_id="alice")
    agent.reopen()
    with agent.crash_between_writes():
        agent.add("SECRET unlogged", user_id="alice", expiration_date="2024-02-29")
    agent.close()
    raw = RawPoints(agent.vectors)
    (ids["unlogged"],) = set(raw.points()) - set(ids.values())
    raw.edit(ids["soon"], lambda p: p.update(expiration_date="soon"))
    back = raw.row_of(ids["back"])
    agent.open()
    agent.delete(ids["back"])
    agent.close()
    raw.put_row(*back)
    agent.open()
    hidden = set()
    for owner in ("alice", "bob"):
        every, shown = (
            {
                m["id"]
                for m in agent.memory.get_all(filters={"user_id": owner}, top_k=100, show_expired=all_)[
                    "results"
                ]
            }
            for all_ in (True, False)
        )
        hidden |= every - shown
    agent.close()
    return Built(folder, ids, frozenset(hidden))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_stale(tmp_path_factory.mktemp("stale"))


@dataclass
class Store:
    folder: Path
    ids: dict[str, str]
    hidden: frozenset[str]
    install: Install
    host: Host

    @property
    def vectors(self) -> Path:
        return self.folder / "qdrant"

    @property
    def snapshots(self) -> Path:
        return self.folder.parent / "snapshots"

    def plan(self, **options: Any) -> PrunePlan:
        return plan_prune(self.install, self.host, folder=str(self.snapshots), **options)

    def blobs(self, collection: str = "mem0") -> dict[str, bytes]:
        return {str(key): blob for _, key, blob in RawPoints(self.vectors, collection).rows()}

    def log(self) -> list[dict[str, Any]]:
        return [dict(row) for row in RawHistory(self.folder / "mem0_dir" / "history.db").rows()]

    def check_pruned(
        self, before: tuple[dict[str, bytes], list[dict[str, Any]]], not_logged: str | None = None
    ) -> None:
        """What was to go is gone from both stores, once each; the rest is as it was, byte by byte."""
        raw, entities, ids = RawPoints(self.vectors), RawPoints(self.vectors, "mem0_entities"), self.ids
        gone = {ids[name] for name in STALE}
        blobs, log = before
        kept = {key: blob for key, blob in blobs.items() if raw_id(blob) not in gone}
        assert self.blobs() == kept and len(kept) == len(blobs) - len(gone)
        assert set(raw.points()) == {ids[name] for name in ("later", "never", "soon", "kept")}
        rows = self.log()
        assert rows[: len(log)] == log
        assert Counter((r["memory_id"], r["event"]) for r in rows[len(log) :]) == Counter(
            (i, "DELETE") for i in gone - {not_logged}
        )
        links = {i: set(p.payload["linked_memory_ids"]) for i, p in entities.points().items()}
        assert links == {
            ids["of shared and never"]: {ids["never"]},
            ids["of kept"]: {ids["kept"], ids["later"]},
        }


def raw_id(blob: bytes) -> str:
    return str(pickle.loads(blob).id)


@pytest.fixture
def store(built: Built, tmp_path: Path, own_home: Path) -> Store:
    folder = tmp_path / "install"
    shutil.copytree(built.folder, folder)
    return Store(folder, built.ids, built.hidden, install_at(folder, sys.executable), this_host())


def test_the_plan_is_what_mem0_hides(store: Store) -> None:
    before = store.blobs(), store.log()
    plan = store.plan()
    ids = store.ids
    assert plan.blocked is None
    assert {step.id for step in plan.todo.steps} == store.hidden == {ids[name] for name in STALE}
    assert {step.why for step in plan.todo.steps} == {
        "expired 2020-01-01",
        "expired 2024-02-29",
        f"expired {day(-1)}",
    }
    assert plan.todo.emptied == {ids["of alone"], ids["of alone and shared"]}
    assert set(plan.todo.unlink) == {*plan.todo.emptied, ids["of shared and never"]}
    older = store.plan(older_than_s=30 * 86400.0)
    assert older.backlog.later == 1
    assert {step.id for step in older.todo.steps} == store.hidden - {ids["yesterday"]}
    # before 2.0.10 that date is somebody's own, and mem0 answers from the memory
    reading = look_whole(store.install, store.host, lambda *_: None)
    old = backlog(reading, store.host.now, mem0="1.0.11")
    assert (old.todo.steps, old.kept_dates) == ((), len(STALE))
    assert (store.blobs(), store.log()) == before and not store.snapshots.exists()


@pytest.mark.thorough
def test_cut_off_at_each_step_and_gone_on_with(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while the snapshot is published, ended while links are taken, mem0 killed between the two writes of a
    deletion, killed before the seal: the next run does the rest."""
    host, one = store.host, store.ids["alone"]
    audit(store.install, host, seal=True, pause=lambda _: None)
    before = store.blobs(), store.log()
    left = []

    def killed(phase: str, nth: int) -> int:
        plan = store.plan()
        left.append((len(plan.todo.steps), len(plan.todo.unlink)))
        kill = Killed(phase, nth)
        return in_child(lambda: apply_prune(plan, host, progress=kill) and 0)

    def dying(self: Mem0Worker, memory_id: str | int) -> bool:
        if memory_id == one:
            self.crash_after_vector("delete", id=memory_id)
            raise Failed("the worker died")
        return real(self, memory_id)

    assert killed("publishing", 1) == 9
    assert in_child(lambda: terminated(store, "clearing entities", 2)) == 143
    real = Mem0Worker.delete
    with monkeypatch.context() as patch:
        patch.setattr(Mem0Worker, "delete", dying)
        with pytest.raises(Failed, match="what was done before stands"):
            apply_prune(store.plan(), host)
    assert killed("sealing", 2) == 9  # the first is the snapshot's
    # of that one memory no row can say what became of it
    assert left[0] == (7, 3) and 0 < left[1][0] < 7 and left[1][1] == 0
    store.check_pruned(before, not_logged=one)
    plan = store.plan()
    assert plan.todo.steps == () and apply_prune(plan, host).changed.snapshot is None
    taken = sorted(store.snapshots.glob("20*"))
    assert len(taken) == 3
    assert set(RawPoints(taken[0] / "qdrant").points()) == set(ids_of(before[0]))
    found = audit(store.install, host, keep=False, pause=lambda _: None).findings
    assert [f.memory_id for f in found if f.code == "D302"] == [one]
    assert not [f for f in found if f.code in ("T701", "D301", "E501", "E502")]


def terminated(store: Store, phase: str, nth: int) -> int:
    """Prunes until a SIGTERM comes, as systemd's for a job that takes too long; then the stores are free."""
    left = nth

    def tell(said: str, _done: int | None, _total: int | None) -> None:
        nonlocal left
        left -= said == phase
        if said == phase and left == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        with ended_gently():
            apply_prune(store.plan(), store.host, progress=tell)
    except SystemExit as end:
        with (store.vectors / ".lock").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert isinstance(end.code, int)
        return end.code
    return 0


def ids_of(blobs: dict[str, bytes]) -> list[str]:
    return [raw_id(blob) for blob in blobs.values()]


def test_what_comes_first(store: Store) -> None:
    """An erased memory is for `delete`; a deletion that was cut off, somebody's lock, no folder."""
    before = store.blobs(), store.log()
    with ledgers.opened(store.install, store.host, make=True) as book:
        assert isinstance(book, Ledger)
        book.add_erasure(make_erasure(1.0, "0" * 32, None, [store.ids["back"]]))
    plan = store.plan()
    (left,) = plan.todo.left
    assert left.id == store.ids["back"] and "mem0audit delete --memory" in left.why
    assert len(plan.todo.steps) == len(STALE) - 1
    assert plan_prune(store.install, store.host, folder=None).blocked is not None
    with ledgers.opened(store.install, store.host) as book:
        assert isinstance(book, Ledger)
        book.begin_erasure(make_erasure(1.0, "1" * 32, None, ["x"]), "{}")
    plan = store.plan()
    assert plan.blocked is not None and plan.blocked[1] == "mem0audit delete"
    with pytest.raises(Refused, match="a deletion was cut off here"):
        apply_prune(plan, store.host)
    with ledgers.opened(store.install, store.host) as book:
        assert isinstance(book, Ledger)
        book.end_erasure()
    assert (store.blobs(), store.log()) == before


# --- Inside the agent --------------------------------------------------------------------------------


def locks_on(paths: list[Path]) -> list[tuple[str, ...]]:
    """What this process holds of POSIX locks on these files, as the kernel says."""
    inodes = {path.stat().st_ino: path.name for path in paths}
    found = []
    for line in Path("/proc/locks").read_text().splitlines():
        part = line.split()
        inode = int(part[5].rpartition(":")[2]) if part[1] == "POSIX" else 0
        if inode in inodes and int(part[4]) == os.getpid():
            found.append((inodes[inode], *part[3:4], *part[6:]))
    return sorted(found)


class Transactions:
    """A progress callback: other connections of this process, mid-transaction on every file of the install, but for the
    time that mem0 writes. `lost` are the phases at whose end a lock of theirs was gone."""

    def __init__(self, paths: list[Path], again: str = "looking at all of it again") -> None:
        self.paths, self.again = paths, again
        self.held: list[sqlite3.Connection] = []
        self.lost: list[str] = []
        self.seen: list[str] = []
        self.begin()

    def begin(self) -> None:
        for path in self.paths:
            connection = sqlite3.connect(path, isolation_level=None, timeout=0)
            connection.execute("BEGIN IMMEDIATE")
            self.held.append(connection)
        self.wanted = locks_on(self.paths)
        assert len(self.wanted) == 2 * len(self.paths)  # RESERVED and SHARED of each

    def end(self) -> None:
        for connection in self.held:
            connection.execute("ROLLBACK")
            connection.close()
        self.held = []

    def __call__(self, phase: str, _done: int | None, _total: int | None) -> None:
        self.seen.append(phase)
        if self.held and locks_on(self.paths) != self.wanted:
            self.lost.append(phase)
        if self.held and phase == "opening the store with mem0":
            self.end()
        elif not self.held and phase == self.again:
            self.begin()


@contextmanager
def agent_of(store: Store) -> Iterator[MemoryBuilder]:
    with MemoryBuilder(store.folder) as agent:
        yield agent


def test_inside_the_agent_no_lock_of_its_own_is_dropped(store: Store) -> None:
    """POSIX drops a process's locks on a file when any descriptor of it is closed: planning, the snapshot and the look
    afterwards all open the agent's own files in its own process."""
    before = store.blobs(), store.log()
    with agent_of(store) as agent:
        paths = [agent.history, *agent.vectors.glob("collection/*/storage.sqlite")]
        held = Transactions(paths)
        done = prune_inside(agent.memory, store.host, folder=str(store.snapshots), progress=held)
        assert held.lost == [] and locks_on(paths) == held.wanted
        held.end()
        assert {"copying both stores", "deleting memories"} <= set(held.seen)
        assert agent.memory.get(store.ids["old"]) is None
        assert agent.memory.get(store.ids["never"])["memory"] == "SECRET never"
    assert (done.changed.deleted, done.changed.entities, done.changed.links, done.changed.remaining) == (
        7,
        2,
        1,
        (),
    )
    store.check_pruned(before)
    assert done.changed.snapshot is not None
    assert set(RawPoints(Path(done.changed.snapshot) / "qdrant").points()) == set(ids_of(before[0]))


def test_inside_the_agent_while_it_goes_on(
    store: Store, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads add meanwhile, and one moves the day of a memory that was about to go: that one stays."""
    (own_home / ".config/mem0audit").mkdir(parents=True, exist_ok=True)
    real = LiveMemory.delete
    moved: list[str] = []

    with agent_of(store) as agent:

        def moving(self: LiveMemory, memory_id: str | int, still: Callable[..., bool] | None = None) -> bool:
            if not moved:
                moved.append(store.ids["bob's"])
                agent.update(moved[0], expiration_date=day(9), metadata={"n": 1})
            return real(self, memory_id, still)

        monkeypatch.setattr(LiveMemory, "delete", moving)
        added: list[str] = []

        def go_on() -> None:
            added.extend(agent.add(f"bob goes on {n}", user_id="bob") for n in range(3))

        other = threading.Thread(target=go_on)
        other.start()
        memory = agent.memory
        parts = memory.embedding_model, memory.llm, memory.vector_store, memory._entity_store
        done = mem0audit.prune(agent.memory, to=str(store.snapshots))
        other.join()
        assert (memory.embedding_model, memory.llm, memory.vector_store, memory._entity_store) == parts
        assert agent.memory.get(store.ids["bob's"])["expiration_date"] == day(9)
        monkeypatch.undo()
        # cut off, the same call goes on
        again = mem0audit.prune(agent.memory, to=str(store.snapshots))
    assert done.changed.deleted == 6 and done.changed.remaining == () and again.changed.deleted == 0
    there = set(RawPoints(store.vectors).points())
    assert store.ids["bob's"] in there and not there & (store.hidden - {store.ids["bob's"]})


def test_inside_an_async_agent(store: Store) -> None:
    from mem0 import AsyncMemory

    with agent_of(store) as agent:
        config = agent.config()

    async def run() -> Any:
        memory = AsyncMemory.from_config(config)
        try:
            with pytest.raises(UsageProblem):
                mem0audit.prune(memory, older_than="30")
            with pytest.raises(Refused, match="no folder for snapshots is named"):
                await mem0audit.prune(memory)
            return await mem0audit.prune(memory, older_than="30d", to=str(store.snapshots))
        finally:
            memory.vector_store.client.close()
            memory.close()

    done = asyncio.run(run())
    assert (done.changed.deleted, done.plan.backlog.later) == (6, 1)
    assert store.ids["yesterday"] in RawPoints(store.vectors).points()


def test_a_killed_agent_goes_on(store: Store) -> None:
    before = store.blobs(), store.log()

    def killed(kill: Killed) -> int:
        def body() -> int:
            with agent_of(store) as agent:
                prune_inside(agent.memory, store.host, folder=str(store.snapshots), progress=kill)
            return 0

        return in_child(body)

    assert killed(Killed("deleting memories", 3)) == 9
    assert killed(Killed("no such phase")) == 0
    store.check_pruned(before)
