"""Restores that erase, where ids, logs and records are odd."""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import RECORD, erasures_text, make_erasure
from mem0audit.core.errors import Refused
from mem0audit.core.scopes import Scope
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from mem0audit.operations.erase import apply_erase, plan_erase
from mem0audit.operations.restore import apply_restore, plan_restore
from tests.builders import MemoryBuilder, RawHistory, RawPoints
from tests.operations.test_erasecopy import every
from tests.operations.test_residue import plain_count
from tests.operations.test_restore import undisturbed
from tests.operations.test_snapshot import installed, take

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

MARK = "ZEBRA-KUMQUAT-4711"


class World:
    """An install with its snapshots; what is to be erased says MARK."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agent = MemoryBuilder(folder / "install")
        self.history, self.vectors = self.agent.history, self.agent.vectors
        self.snapshots = folder / "snapshots"
        self.state = folder / "state"

    @property
    def install(self) -> Any:
        return replace(installed(self), agent_python=sys.executable)

    def stop(self) -> None:
        self.agent.close()

    def take(self) -> str:
        return take(self, self.snapshots).path

    def audit(self) -> Any:
        return audit(self.install, this_host())

    def erase(self, scope: Scope | None = None, **options: Any) -> Any:
        plan = undisturbed(
            lambda: plan_erase(self.install, this_host(), scope=scope, only_this_store=True, **options)
        )
        return apply_erase(plan, this_host())

    def plan(self, snapshot: str, **options: Any) -> Any:
        wanted = {"install": self.install, **options}
        return undisturbed(lambda: plan_restore(snapshot, this_host(), **wanted))

    def restore(self, snapshot: str, to: Path | None = None, **options: Any) -> tuple[Path, Path]:
        if to is not None:
            options["to"] = str(to)
        plan = self.plan(snapshot, **options)
        undisturbed(lambda: apply_restore(plan, this_host()))
        return (self.history, self.vectors) if to is None else (to / "history.db", to / "qdrant")


def marks(*places: Path, mark: str = MARK) -> list[str]:
    return [str(f) for place in places for f in every(place) if plain_count(f, [mark])]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return World(tmp_path)


NFC = unicodedata.normalize("NFC", "josé")
NFD = unicodedata.normalize("NFD", "josé")


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_odd_ids(world: World, tmp_path: Path) -> None:
    odd = [(" alice", "alice"), (NFC, NFC), ("x" * 300, "x" * 300), ("u=1&v%26", "u=1&v%26")]
    with world.agent as agent:
        for n, (stored, _) in enumerate(odd):
            agent.add_inferred([f"{MARK} number {n} says something here"], user_id=stored)
        other = agent.add(f"something about {NFD} that is not theirs", user_id=NFD)
        seven = agent.add(f"{MARK} of seven", user_id="seven")
        spaced = agent.add(f"{MARK} of a spaced one", user_id="spaced")
        lined = agent.add(f"{MARK} of one with a line in it", user_id="lined")
    RawPoints(world.vectors).edit(seven, lambda p: p.update(user_id=7))
    RawPoints(world.vectors).edit(lined, lambda p: p.update(user_id="a\nb"))
    RawPoints(world.vectors).edit(spaced, lambda p: p.update(user_id="  spaced "))
    snapshot = world.take()
    for _, asked in odd:
        world.erase(Scope(asked))
    world.erase(Scope("7"))
    world.erase(Scope("a\nb"))
    world.erase(Scope("spaced"), redact=True)
    places = world.restore(snapshot, tmp_path / "new")
    assert marks(*places) == []
    assert set(RawPoints(places[1]).points()) == {other}
    assert marks(*world.restore(snapshot), world.snapshots / RECORD) == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_scopes_ids_agents_and_twice(world: World, tmp_path: Path) -> None:
    agent = world.agent
    keep = [agent.add("Bob mows the lawn on each Saturday morning", user_id="bob")]
    agent.add(f"{MARK} first of alice", user_id="alice")
    agent.add(f"{MARK} of alice with the agent", user_id="alice", agent_id="a7")
    agent.add(f"{MARK} of the agent alone", agent_id="a7")
    agent.add(f"{MARK} of a run", user_id="bob", run_id="r1")
    single = agent.add(f"{MARK} single of bob", user_id="bob")
    world.stop()
    s1 = world.take()
    world.erase(Scope("alice"))
    world.erase(Scope(agent="a7"))
    agent.open()
    back = agent.add("Alice is here again and likes tea", user_id="alice")
    world.stop()
    s2 = world.take()
    world.erase(Scope(run="r1"))
    world.erase(None, memory_ids=[single])
    p2 = world.restore(s2, tmp_path / "p2")
    assert set(RawPoints(p2[1]).points()) == {*keep, back}
    p1 = world.restore(s1, tmp_path / "p1")
    assert set(RawPoints(p1[1]).points()) == {*keep}
    assert marks(*p1) == []
    world.erase(Scope("alice"))
    p3 = world.restore(s2, tmp_path / "p3")
    assert set(RawPoints(p3[1]).points()) == {*keep}
    assert marks(*p3, mark="likes tea") == []
    world.restore(s1)
    assert marks(world.history, world.vectors) == []


def stranded(world: World, *tables: str) -> str:
    """A memory of carol's that was deleted long ago, and that only tables of a migration still have; the snapshot."""
    with world.agent as agent:
        old = agent.add(f"{MARK} was told long ago", user_id="carol")
        agent.add("Carol likes the blue bowl in the kitchen", user_id="carol")
    world.audit()
    RawPoints(world.vectors).remove(old)
    raw = RawHistory(world.history)
    for table in tables:
        raw.run(
            f"CREATE TABLE {table} (id TEXT, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT)"
        )
        raw.run(
            f"INSERT INTO {table} SELECT id, memory_id, old_memory, new_memory, event FROM history "
            "WHERE memory_id = ?",
            old,
        )
    raw.run("DELETE FROM history WHERE memory_id = ?", old)
    raw.run("VACUUM")
    return world.take()


def on_record(world: World) -> None:
    """Carol's erasure, by its scope alone."""
    erasure = make_erasure(this_host().now + 60, "ab" * 16, ("carol", None, None))
    (world.snapshots / RECORD).write_text(erasures_text([erasure]))


def test_rows_that_a_migration_left_are_theirs_too(world: World) -> None:
    """Of memories that no other row names any more: their texts go with the rest, or are counted as nobody's."""
    snapshot = stranded(world, "history_old", "old_history")
    on_record(world)
    erase = world.plan(snapshot).erase
    assert (erase.memories, erase.rows, erase.unattributed) == (1, 3, (0, 0))
    assert sum(MARK in text for text in erase.texts) == 1
    erase = world.plan(snapshot, ledger=False).erase
    assert (erase.memories, erase.rows, erase.unattributed) == (1, 1, (2, 1))


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_rows_that_a_migration_left_are_emptied(world: World, tmp_path: Path) -> None:
    snapshot = stranded(world, "history_old", "old_history")
    world.erase(Scope("carol"), redact=True)
    assert marks(*world.restore(snapshot, tmp_path / "new")) == []


def test_a_damaged_record_is_not_passed_over(world: World) -> None:
    """The ledger that is here may be another one, which knows of no erasure."""
    with world.agent as agent:
        agent.add("Bob mows the lawn on each Saturday morning", user_id="bob")
    snapshot = world.take()
    world.audit()
    on_record(world)
    record = world.snapshots / RECORD
    record.write_text(record.read_text()[:-20])
    with pytest.raises(Refused, match="the ledger that is here need not be the one") as problem:
        world.plan(snapshot)
    assert "--without-erasure-record" in (problem.value.hint or "")
    plan = world.plan(snapshot, without_erasure_record=True)
    assert str(record) in plan.not_read[-1]
    record.unlink()
    assert world.plan(snapshot).not_read == ()
