"""`prune` with what the ledger records: the line of a night on a store with every kind of stale memory, inside an agent
that goes on, and cut off in between."""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.ledger import DAY_S
from mem0audit.core.times import shown
from mem0audit.install.host import this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations import prune as module
from mem0audit.operations.audit import audit
from mem0audit.operations.changes import look_whole
from mem0audit.operations.prune import apply_prune, plan_prune, prune_inside
from mem0audit.stores.ledger import Ledger, connect
from mem0audit.stores.mem0live import LiveMemory
from tests.builders import MemoryBuilder, RawPoints
from tests.cli.test_schedule import JSON, execute
from tests.cli.test_schedule_prune import Agent, flags, line_of, planned
from tests.operations.test_mem0door import install_at
from tests.operations.test_prune import Store, agent_of, day, raw_id
from tests.operations.test_repair import Killed
from tests.operations.test_restore import agent, in_child
from tests.report.test_json import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

LATELY = ("young", "younger", "plain", "of the expired")
"""Added now; all others were added 300 days ago."""
ALL = (
    *("in mem0", "in the ledger", "first", "second", "third", "young", "younger", "idle", "used", "plain"),
    *("of the expired", "lost"),
)
GO = {
    "in mem0": "T701",
    "in the ledger": "T701",
    "of the expired": "T701",
    "first": "T702",
    "second": "T702",
    "idle": "T704",
    "third": "T704",
}
STAY = ("young", "younger", "used", "plain")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("kinds")
    with MemoryBuilder(folder) as running:
        ids = {
            name: running.add(
                f"SECRET {name}",
                user_id="alice",
                expiration_date="2024-02-29" if name == "in mem0" else None,
            )
            for name in ALL
        }
        ids["entity"] = running.plant_entity("of two", [ids["first"], ids["plain"]], user_id="alice")
        running.delete(ids.pop("lost"))
    raw, then = RawPoints(folder / "qdrant"), shown(time.time() - 300 * DAY_S).replace(" ", "T")
    for name, memory_id in ids.items():
        if name not in (*LATELY, "entity"):
            raw.edit(memory_id, lambda p: p.update(created_at=then, updated_at=then))
    return folder, ids


@pytest.fixture
def store(built: tuple[Path, dict[str, str]], tmp_path: Path, own_home: Path) -> Store:
    """first was replaced by second and that by third; younger by plain; of the expired by in the ledger."""
    folder = tmp_path / "install"
    shutil.copytree(built[0], folder)
    made = Store(folder, built[1], frozenset(), install_at(folder, sys.executable), this_host())
    audit(made.install, made.host, pause=lambda _: None)
    with closing(connect(ledger_of(made))) as db, db:
        db.execute(
            "INSERT INTO marks VALUES ('used since', ?)", (repr(made.host.now - 200 * DAY_S).encode(),)
        )
    with ledgers.opened(made.install, made.host) as book:
        assert isinstance(book, Ledger)
        now, ids = made.host.now, made.ids
        book.expire(ids["in the ledger"], now - DAY_S)
        book.expire(ids["plain"], now + DAY_S)
        for old, new in (("first", "second"), ("second", "third"), ("younger", "plain")):
            book.supersede(ids[old], ids[new], now - DAY_S)
        book.supersede(ids["of the expired"], ids["in the ledger"], now - DAY_S)
        book.note_used({ids["used"]: now - DAY_S})
    return made


def ledger_of(store: Store) -> Path:
    with ledgers.opened(store.install, store.host) as book:
        assert isinstance(book, Ledger)
        return book.path


def rows(store: Store) -> set[str]:
    with ledgers.opened(store.install, store.host) as book:
        assert isinstance(book, Ledger)
        known = {memory_id: name for name, memory_id in store.ids.items()}
        return {known[one] for one in book.memories()}


def stored(store: Store) -> set[str]:
    known = {memory_id: name for name, memory_id in store.ids.items()}
    return {known[one] for one in RawPoints(store.vectors).points()}


def kinds(plan: Any, store: Store) -> dict[str, str]:
    known = {memory_id: name for name, memory_id in store.ids.items()}
    return {known[str(step.id)]: step.code for step in plan.todo.steps}


def test_the_line_of_a_night(own_home: Path, store: Store) -> None:
    """Beside an agent with the lock nothing changes; with the agent stopped what is to go is gone in both stores, its
    rows in the ledger after it, and the rest is as it was."""
    plan = planned(own_home, "--to", str(store.snapshots), "--unused", *flags(store.folder))
    words = line_of(plan["units"][0]["text"], "ExecStart")
    assert "--unused" in words
    before, log = store.blobs(), store.log()
    known = rows(store)
    with agent(Agent(store)) as pid:
        done = execute(own_home, words)
        assert (store.blobs(), store.log(), rows(store)) == (before, log, known)
        assert not store.snapshots.exists()
    assert done.returncode == 4 and f"is in use by pid {pid}" in done.stderr
    said = " ".join(done.stdout.split())
    for heading in ("T701 expired: 3 memories", "T702 superseded: 2 memories", "T704 unused: 2 memories"):
        assert heading in said
    assert all((store.ids[name] in said) is (name in GO) for name in (*GO, *STAY) if name != "third")
    assert f"{store.ids['in the ledger']} replaced it, and goes" in said and "not since" not in said
    done = execute(own_home, words)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "7 memories deleted" in said and "Why: 3 expired, 2 superseded, 2 unused." in said
    assert stored(store) == rows(store) == set(STAY)
    gone = {store.ids[name] for name in GO}
    assert store.blobs() == {key: blob for key, blob in before.items() if raw_id(blob) not in gone}
    new = store.log()
    assert new[: len(log)] == log
    order = [row["memory_id"] for row in new[len(log) :]]
    assert {row["event"] for row in new[len(log) :]} == {"DELETE"} and set(order) == gone
    # each outdated one before what replaced it
    for old, later in (("first", "second"), ("second", "third"), ("of the expired", "in the ledger")):
        assert order.index(store.ids[old]) < order.index(store.ids[later])
    entity = RawPoints(store.vectors, "mem0_entities").points()[store.ids["entity"]]
    assert entity.payload["linked_memory_ids"] == [store.ids["plain"]]


def test_what_goes_without_being_asked_for_and_what_is_said(own_home: Path, store: Store) -> None:
    from tests.cli.program import call

    plan = plan_prune(store.install, store.host, folder=str(store.snapshots))
    assert kinds(plan, store) == {name: code for name, code in GO.items() if code != "T704"}
    words = ("prune", *flags(store.folder), "--dry-run", "--to", str(store.snapshots), "--unused")
    ran = call(own_home, *words)
    assert "not used since" in ran.out and "--unused" in ran.out.splitlines()[-1]
    told = check(call(own_home, *words, *JSON).out, "prune-plan")
    reasons = {step["id"]: step["reason"] for step in told["steps"]}
    assert reasons[store.ids["idle"]] == "unused" and reasons[store.ids["first"]] == "superseded"
    assert (told["unused"], told["left_out"]) == (True, [])
    # an older mem0 knows no such day: what the ledger took over from it is none either
    reading = look_whole(store.install, store.host, lambda *_: None)
    _, known = module._from_ledger(store.install, store.host, reading, unused=False)
    old = module.backlog(reading, store.host.now, mem0="1.0.11", ledger=known)
    assert old.kept_dates == 1
    assert store.ids["in mem0"] not in {step.id for step in old.todo.steps}
    # use that is not on record for six months says nothing of what was not used
    with closing(connect(ledger_of(store))) as db, db:
        db.execute(
            "UPDATE marks SET value = ? WHERE name = 'used since'", (repr(store.host.now - 9).encode(),)
        )
    ran = call(own_home, *words)
    assert "T704" not in ran.out and "None goes for want of use" in ran.out


def test_what_stays_for_somebody_to_decide(own_home: Path, store: Store) -> None:
    """A superseded one whose successor the agent deleted; and a day that was moved in mem0 is the newer word."""
    with agent_of(store) as running:
        running.delete(store.ids["third"])
        running.update(store.ids["in mem0"], expiration_date=day(9))
    plan = plan_prune(store.install, store.host, folder=str(store.snapshots))
    assert kinds(plan, store) == {"in the ledger": "T701", "of the expired": "T701", "first": "T702"}
    left = {one.id: one for one in plan.todo.left}
    assert left.keys() == {store.ids["second"]}
    assert {one.code for one in left.values()} == {"T705"}
    assert "was deleted in mem0" in left[store.ids["second"]].why


def test_inside_an_agent_that_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is used meanwhile stays, what is found to hold after all, and what gets another day."""
    real = LiveMemory.delete
    begun: list[bool] = []

    with agent_of(store) as running:

        def meanwhile(self: LiveMemory, memory_id: str | int, still: Any = None) -> bool:
            if not begun:
                begun.append(True)
                with ledgers.opened(store.install, store.host) as book:
                    assert isinstance(book, Ledger)
                    book.note_used(
                        {store.ids[name]: store.host.now for name in ("idle", "in the ledger", "in mem0")}
                    )
                    book.expire(store.ids["in the ledger"], None)
                running.update(store.ids["in mem0"], expiration_date=day(9))
            return real(self, memory_id, still)

        monkeypatch.setattr(LiveMemory, "delete", meanwhile)
        done = prune_inside(running.memory, store.host, folder=str(store.snapshots), unused=True)
    # what was replaced by one of these goes all the same: it does not hold
    assert done.changed.deleted == 4 and done.changed.remaining == ()
    assert stored(store) == {*STAY, "idle", "in the ledger", "in mem0"} == rows(store)


def test_export_and_show_have_what_the_ledger_has(own_home: Path, store: Store) -> None:
    from tests.cli.program import call

    with ledgers.opened(store.install, store.host) as book:
        assert isinstance(book, Ledger)
        book.confirm(store.ids["first"], store.host.now, "notes/ports.md")
    lines = call(own_home, "export", "--user", "alice", *flags(store.folder)).out.splitlines()
    held = {one["id"]: one["ledger"] for one in map(json.loads, lines) if one["kind"] == "memory"}
    first = held[store.ids["first"]]
    assert (first["source"], first["superseded_by"], first["live"]) == (
        *("notes/ports.md", store.ids["second"]),
        False,
    )
    assert held[store.ids["plain"]]["expires_at"] == shown(store.host.now + DAY_S)
    ran = call(own_home, "show", store.ids["first"], *flags(store.folder))
    assert "ledger, as of the last audit" in ran.out and "notes/ports.md" in ran.out
    assert f"by {store.ids['second']}" in " ".join(ran.out.split())
    told = check(call(own_home, "show", store.ids["first"], *flags(store.folder), *JSON).out, "show")
    assert told["ledger"] == first


@pytest.mark.thorough
@pytest.mark.parametrize("nth", range(1, 8))
def test_killed_before_each_deletion_nothing_outdated_is_live_again(store: Store, nth: int) -> None:
    host = replace(store.host, now=time.time())
    plan = plan_prune(store.install, host, folder=str(store.snapshots), unused=True)
    assert in_child(lambda: apply_prune(plan, host, progress=Killed("deleting memories", nth)) and 0) == 9
    there = stored(store)
    for old, new in (("first", "second"), ("second", "third"), ("of the expired", "in the ledger")):
        assert old not in there or new in there
    audit(store.install, host, pause=lambda _: None)
    with closing(connect(ledger_of(store))) as db:
        live = {i for (i,) in db.execute("SELECT id FROM live_memory")}
    assert not live & {store.ids[name] for name in ("first", "second", "of the expired", "younger")}
    apply_prune(plan_prune(store.install, host, folder=str(store.snapshots), unused=True), host)
    assert stored(store) == rows(store) == set(STAY)
