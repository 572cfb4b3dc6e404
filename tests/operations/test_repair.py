"""What repair does about findings through mem0, what it leaves, and what a kill leaves to be done."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import make_erasure
from mem0audit.core.errors import CouldNotRead, Refused
from mem0audit.core.model import Install
from mem0audit.core.repair import RepairPlan, Wanted, repair_steps
from mem0audit.install.host import Host, this_host
from mem0audit.operations import changes
from mem0audit.operations import ledger as ledgers
from mem0audit.operations import repair as operation
from mem0audit.operations.audit import audit
from mem0audit.operations.repair import apply_repair, plan_repair
from mem0audit.report.repair import repair_plan_text
from mem0audit.report.screen import Screen
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.ledger import Ledger
from tests.builders import MemoryBuilder, RawHistory, RawPoints
from tests.operations.test_mem0door import install_at
from tests.operations.test_restore import in_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

ALL = Wanted(frozenset({"D301", "D305", "C601", "E501", "E502", "T701"}))


@dataclass(frozen=True)
class Built:
    """An install with a fault of every kind, and the ids by name."""

    folder: Path
    ids: dict[str, str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("faults")
    agent = MemoryBuilder(folder)
    texts = (
        "back",
        "lost",
        "stale",
        "gone",
        "other",
        "sound",
        "copy",
        "copy",
        "copy",
        "copied otherwise",
        "expired",
    )
    names = (
        "back",
        "lost",
        "stale",
        "gone",
        "other",
        "sound",
        "copy",
        "linked copy",
        "late copy",
        "tagged",
        "old",
    )
    ids = {}
    for name, text in zip(names, texts, strict=True):
        said = "copied otherwise" if name == "tagged" else text
        ids[name] = agent.add(f"SECRET {said}", user_id="alice", metadata={"tag": "x", "n": 1})
    ids["bare"] = agent.add("SECRET copied otherwise", user_id="alice")
    ids["bob"] = agent.add("SECRET sound", user_id="bob")
    for name, linked in (
        ("of back", ["back"]),
        ("of back and sound", ["back", "sound"]),
        ("orphan", ["gone"]),
        ("dangling", ["gone", "sound"]),
        ("of lost", ["lost"]),
        ("of copy", ["linked copy", "copy"]),
        ("of linked copy", ["linked copy"]),
        ("sound entity", ["sound", "other"]),
    ):
        ids[name] = agent.plant_entity(name, [ids[one] for one in linked], user_id="alice")
    agent.reopen()
    with agent.crash_between_writes():
        agent.add("SECRET never logged", user_id="alice")
    agent.close()
    back = RawPoints(agent.vectors).row_of(ids["back"])
    agent.open()
    agent.delete(ids["back"])
    agent.delete(ids["gone"])
    agent.close()
    raw = RawPoints(agent.vectors)
    raw.put_row(*back)
    raw.remove(ids["lost"])
    raw.edit(ids["stale"], lambda p: p.update(hash="0" * 32))
    raw.edit(ids["old"], lambda p: p.update(expiration_date="2020-01-01"))
    (ids["unlogged"],) = set(raw.points()) - set(ids.values())
    return Built(folder, ids)


@dataclass
class Store:
    folder: Path
    ids: dict[str, str]
    install: Install
    host: Host

    @property
    def vectors(self) -> Path:
        return self.folder / "qdrant"

    def plan(self, wanted: Wanted = ALL, folder: str | None = "") -> RepairPlan:
        to = str(self.folder.parent / "snapshots") if folder == "" else folder
        return plan_repair(self.install, self.host, wanted, folder=to)

    def codes(self) -> Counter[str]:
        found = audit(self.install, self.host, keep=False, pause=lambda _: None).findings
        return Counter(f.code for f in found if f.code[0] in "DHEC" or f.code == "T701")

    def blobs(self, collection: str = "mem0") -> dict[str, bytes]:
        points = RawPoints(self.vectors, collection)
        return {str(key): blob for _, key, blob in points.rows()}

    def log(self) -> list[dict[str, Any]]:
        return [dict(row) for row in RawHistory(self.folder / "mem0_dir" / "history.db").rows()]


@pytest.fixture
def store(built: Built, tmp_path: Path, own_home: Path) -> Store:
    folder = tmp_path / "install"
    shutil.copytree(built.folder, folder)
    host = replace(this_host(), now=time.time() + 3600)
    return Store(folder, built.ids, install_at(folder, sys.executable), host)


def test_the_plan_of_everything(store: Store) -> None:
    before = store.blobs(), store.log()
    plan = store.plan(Wanted())
    ids = store.ids
    assert plan.blocked is None
    assert {(s.code, s.kind, s.id) for s in plan.todo.steps} == {
        ("D301", "delete", ids["back"]),
        ("D305", "rewrite", ids["stale"]),
        ("C601", "delete", ids["copy"]),
        ("C601", "delete", ids["late copy"]),
        ("E501", "unlink", ids["orphan"]),
        ("E502", "unlink", ids["dangling"]),
        ("T701", "delete", ids["old"]),
    }
    # the copy that most entities link stays, although it is not the oldest
    assert {s.keeps for s in plan.todo.steps if s.code == "C601"} == {ids["linked copy"]}
    left = {(one.code, one.id): one.why for one in plan.todo.left}
    assert set(left) == {
        ("D302", ids["lost"]),
        ("D303", ids["unlogged"]),
        ("C601", ids["tagged"]),
        ("E501", ids["of lost"]),
    }
    assert left[("D302", ids["lost"])] == "looks like a loss, or a delete cut short before its log row"
    assert "other metadata" in left[("C601", ids["tagged"])]
    assert "not deleted (D302)" in left[("E501", ids["of lost"])]
    assert plan.todo.unlink == {
        ids["of back"]: (ids["back"],),
        ids["of back and sound"]: (ids["back"],),
        ids["orphan"]: (ids["gone"],),
        ids["dangling"]: (ids["gone"],),
        ids["of copy"]: (ids["copy"],),
    }
    assert plan.todo.emptied == {ids["of back"], ids["orphan"]}
    assert (store.blobs(), store.log()) == before
    # one is enough of a group of copies, and what nobody asks for is not in the plan
    some = store.plan(Wanted(ids=frozenset({ids["linked copy"], ids["stale"], ids["sound"]})))
    assert {s.id for s in some.todo.steps} == {ids["copy"], ids["late copy"], ids["stale"]}
    assert (some.unknown, some.todo.left) == ((ids["sound"],), ())


class Killed:
    """A progress callback that kills its process when it is told of a phase, at the nth word of it."""

    def __init__(self, phase: str, nth: int = 1) -> None:
        self.phase, self.left = phase, nth

    def __call__(self, phase: str, _done: int | None, _total: int | None) -> None:
        self.left -= phase == self.phase
        if self.left == 0:
            os._exit(9)


@pytest.mark.thorough
def test_cut_off_gone_on_with_and_then_nothing(store: Store) -> None:
    """Killed after the links and one deletion, the same command does the rest. Nothing else changed in either run,
    the seal knows of it, and a third run finds nothing to do."""
    ids, host = store.ids, store.host
    audit(store.install, host, seal=True, pause=lambda _: None)
    raw, entities = RawPoints(store.vectors), RawPoints(store.vectors, "mem0_entities")
    blobs, entity_blobs, log = store.blobs(), store.blobs("mem0_entities"), store.log()
    was, entities_were = raw.points(), entities.points()

    plan = store.plan()
    assert in_child(lambda: apply_repair(plan, host, progress=Killed("deleting memories", 2)) and 0) == 9
    rest = store.plan()
    assert len(rest.todo.of("delete")) == 3 and not rest.todo.unlink
    done = apply_repair(rest, host).changed
    assert (done.deleted, done.rewritten, done.entities, done.links, done.remaining) == (3, 1, 0, 0, ())
    assert done.snapshot is not None and Path(done.snapshot, "manifest.json").exists()

    gone = {ids[name] for name in ("back", "copy", "late copy", "old")}
    now, entities_now = raw.points(), entities.points()
    assert set(now) == set(was) - gone
    stale = raw.row_of(ids["stale"])[0]
    assert {k: b for k, b in store.blobs().items() if k != stale}.items() <= blobs.items()
    before, after = was[ids["stale"]], now[ids["stale"]]
    assert after.vector == before.vector and after.payload["hash"] != "0" * 32
    ours = {"hash", "updated_at", "text_lemmatized"}
    assert {k: v for k, v in after.payload.items() if k not in ours} == {
        k: v for k, v in before.payload.items() if k not in ours
    }
    assert set(entities_now) == set(entities_were) - {ids["of back"], ids["orphan"]}
    links = {name: entities_now[ids[name]].payload["linked_memory_ids"] for name in ("dangling", "of copy")}
    assert links == {"dangling": [ids["sound"]], "of copy": [ids["linked copy"]]}
    changed = {entities.row_of(ids[name])[0] for name in ("dangling", "of copy", "of back and sound")}
    kept = {k: b for k, b in store.blobs("mem0_entities").items() if k not in changed}
    assert kept.items() <= entity_blobs.items()
    rows = store.log()
    assert rows[: len(log)] == log
    assert Counter((r["memory_id"], r["event"]) for r in rows[len(log) :]) == Counter(
        [*((one, "DELETE") for one in gone), (ids["stale"], "UPDATE")]
    )

    assert store.codes() == {"D302": 1, "D303": 1, "C601": 1, "E501": 1}  # as planned, and no D310 or H408
    again = store.plan()
    assert again.todo.steps == ()
    taken = list((store.folder.parent / "snapshots").iterdir())
    assert apply_repair(again, host).changed.snapshot is None
    assert list((store.folder.parent / "snapshots").iterdir()) == taken


def test_refused(store: Store) -> None:
    before = store.blobs(), store.log()
    for folder, why in (
        (None, "no folder for snapshots"),
        (str(store.vectors / "x"), "inside the vector store"),
    ):
        plan = store.plan(folder=folder)
        assert plan.blocked is not None and why in plan.blocked[0]
        with pytest.raises(Refused, match=why):
            apply_repair(plan, store.host)
    # planned of other stores than there are now
    plan = store.plan(Wanted(frozenset({"T701"})))
    RawPoints(store.vectors).edit(store.ids["other"], lambda p: p.update(expiration_date="2020-01-01"))
    changed = store.blobs()
    with pytest.raises(Refused, match="not as they were when this was planned"):
        apply_repair(plan, store.host)
    assert (store.blobs(), store.log()) == (changed, before[1])
    (store.folder / "mem0_dir" / "history.db").unlink()
    with pytest.raises(CouldNotRead, match="the log could not be read whole"):
        store.plan()


def test_what_happened_is_said_first(store: Store) -> None:
    """Who put an older copy of the vectors back, say, may have wanted what is in it."""
    raw = RawPoints(store.vectors)
    back = [raw.row_of(store.ids[one]) for one in ("other", "linked copy")]
    with MemoryBuilder(store.folder) as agent:
        for one in ("other", "linked copy"):
            agent.delete(store.ids[one])
    for row in back:
        raw.put_row(*row)
    plan = store.plan(Wanted(frozenset({"D301"})))
    assert {step.id for step in plan.todo.steps} == {
        store.ids[one] for one in ("back", "other", "linked copy")
    }
    assert [event[:45] for event in plan.events] == ["a bulk deletion did not reach the disk of 202"]
    assert "See first what happened: a bulk deletion" in repair_plan_text(plan, Screen())
    assert store.plan(Wanted(frozenset({"T701"}))).events == ()


def test_what_was_erased_is_for_delete(store: Store) -> None:
    """A snapshot taken first would keep it."""
    with ledgers.opened(store.install, store.host, make=True) as book:
        assert isinstance(book, Ledger)
        book.add_erasure(make_erasure(1.0, "0" * 32, None, [store.ids["back"]]))
    RawPoints(store.vectors).edit(store.ids["back"], lambda p: p.update(expiration_date="2020-01-01"))
    plan = store.plan(Wanted(frozenset({"D301"}), frozenset({store.ids["back"]})))
    assert plan.todo.steps == () and [one.code for one in plan.todo.left] == ["D301", "T701"]
    assert f"mem0audit delete --memory {store.ids['back']}" in plan.todo.left[0].why


def test_an_old_mem0_writes_nothing_again(store: Store) -> None:
    """Before 2.0.7 an update loses metadata; 1.x knows no entities."""
    reading, findings = operation._findings(store.install, store.host, lambda *_: None)
    old = repair_steps(reading, findings, ALL, mem0="1.0.11", payloads={})
    assert {step.code for step in old.steps} == {"D301", "T701"}
    assert {one.code for one in old.left} == {"D305", "E501", "E502", "C601"}


def test_every_other_change_is_seen(store: Store) -> None:
    vectors, history = EmbeddedStore(str(store.vectors)), store.folder / "mem0_dir" / "history.db"
    door = changes.find_door(store.install, store.host)
    before = changes._picture(vectors, door, None)
    todo = store.plan(Wanted(frozenset({"T701"}))).todo

    def seen(expected: Counter[tuple[str, str]] | None = None) -> str | None:
        after = changes._picture(vectors, door, before)
        return changes._other_changes(before, after, todo, expected or Counter(), door)

    assert seen() is None
    raw = RawPoints(store.vectors)
    raw.remove(store.ids["old"])
    assert seen() is None  # that was to go
    assert (
        seen(Counter({(store.ids["old"], "DELETE"): 1}))
        == "the log has other new rows than these changes make"
    )
    log = RawHistory(history)
    log.add(store.ids["old"], "x", None, "DELETE")
    assert seen(Counter({(store.ids["old"], "DELETE"): 1})) is None
    assert seen() == "the log has other new rows than these changes make"
    log.run("DELETE FROM history WHERE rowid = (SELECT max(rowid) FROM history)")
    log.run("UPDATE history SET role = 'x' WHERE rowid = 1")
    assert seen() == "rows of the log that were there before"
    log.run("UPDATE history SET role = NULL WHERE rowid = 1")
    key, blob = raw.row_of(store.ids["bob"])
    raw.edit(store.ids["bob"], lambda p: p.update(n=2))
    assert seen() == "1 points of mem0"
    raw.put_row(key, blob)
    RawPoints(store.vectors, "mem0_entities").remove(store.ids["sound entity"])
    assert seen() == "1 points of mem0_entities"
