"""What was remembered at a time, from the log: equal to what really was, or said to be doubtful."""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.asof import AsOf
from mem0audit.core.scopes import Scope
from mem0audit.core.times import instant
from mem0audit.install.config import Settings
from mem0audit.install.host import Host, this_host
from mem0audit.operations.asof import Past, as_of, as_of_diff, life_of, read_past
from tests.builders import MemoryBuilder, RawPoints, copy_store
from tests.rules.support import host, located

USERS = ("alice", "bob", "carol")
STEPS = 70
DATES = ("1999-12-31", "2025-05-06T07:08:09Z", "2030-01-01T00:00:00", "2025-05-06T07:08:09.123456+00:00")
NINE = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, new_value TEXT,"
    " event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER)"
)
SEVEN = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, prev_value TEXT, new_value TEXT, event TEXT,"
    " timestamp DATETIME, is_deleted INTEGER)"
)

Truth = dict[str, tuple[str, str]]
"""Memory id: owner and text."""


@dataclass
class Lived:
    """A store that was written to, and what it held after each step: (a moment just after it, the memories)."""

    folder: Path
    history: Path
    vectors: Path
    moments: list[tuple[float, Truth]] = field(default_factory=list)
    dated: set[str] = field(default_factory=set)
    """Memories added with a created_at of the caller's."""

    def copy(self, target: Path) -> Lived:
        shutil.copytree(self.folder, target)
        return replace(
            self,
            folder=target,
            history=target / self.history.relative_to(self.folder),
            vectors=target / self.vectors.relative_to(self.folder),
        )

    def change(self, *statements: str) -> Lived:
        with closing(sqlite3.connect(self.history)) as db:
            for statement in statements:
                db.execute(statement)
            db.commit()
        return self


def _live(agent: MemoryBuilder, dice: random.Random, *, dated: bool) -> Lived:
    lived = Lived(agent.folder, agent.history, agent.vectors)
    now: Truth = {}
    lived.moments.append((time.time(), {}))
    for number in range(STEPS):
        user, text = dice.choice(USERS), f"fact number {number}"
        there = sorted(now)
        what = dice.choices(
            ("add", "facts", "update", "same", "delete", "delete all", "restart"),
            weights=(6, 2, 4, 1, 3, 0.4, 0.4),
        )[0]
        if what in ("update", "same", "delete") and not there:
            what = "add"
        if what == "add":
            given = None
            # before the first row nothing tells that a date is too early, if it is spelled as mem0 spells it
            if dated and number > 5 and dice.random() < 0.3:
                given = {"created_at": dice.choice(DATES)}
            memory_id = agent.add(text, user_id=user, metadata=given)
            now[memory_id] = (user, text)
            lived.dated |= {memory_id} if given else set()
        elif what == "facts":
            texts = [f"{text}, part {part}" for part in range(3)]
            ids = agent.add_inferred(texts, user_id=user)
            now |= {i: (user, one) for i, one in zip(ids, texts, strict=True)}
        elif what == "restart":
            agent.reopen()
        elif what == "delete all":
            agent.delete_all(user_id=user)
            now = {i: one for i, one in now.items() if one[0] != user}
        else:
            memory_id = dice.choice(there)
            owner, old = now[memory_id]
            if what == "delete":
                agent.delete(memory_id)
                del now[memory_id]
            else:
                agent.update(memory_id, text if what == "update" else None, metadata={"n": number})
                now[memory_id] = (owner, text if what == "update" else old)
        lived.moments.append((time.time(), dict(now)))
    return lived


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """A random life, told by its seed, whose agent is running."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    with MemoryBuilder(tmp_path_factory.mktemp("asof") / "install") as agent:
        yield _live(agent, random.Random(seed), dated=False)


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """The same with memories that a caller dated."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    with MemoryBuilder(tmp_path_factory.mktemp("asof-dated") / "install") as agent:
        return _live(agent, random.Random(seed), dated=True)


def past_of(store: Any, on: Host | None = None, *, ledger: bool = False) -> Past:
    machine = on or this_host()
    return read_past(located(store, machine), machine, Settings(), ledger=ledger)


def texts(memories: Sequence[Any]) -> dict[str, str | None]:
    return {one.memory_id: one.text for one in memories}


def told(past: Past, at: float, scope: Scope | None = None) -> AsOf:
    return as_of(past, this_host(), at, scope)


def is_exact(past: Past, moments: Sequence[tuple[float, Truth]]) -> None:
    for at, truth in moments:
        found = told(past, at)
        assert texts(found.memories) == {i: text for i, (_, text) in truth.items()}
        assert found.maybe == ()


def is_sound(past: Past, moments: Sequence[tuple[float, Truth]]) -> int:
    """What is said for sure is true, and what is true is said, at least as doubtful; how many doubtful ones."""
    doubts = 0
    for at, truth in moments:
        found = told(past, at)
        real = {i: text for i, (_, text) in truth.items()}
        sure = texts(found.memories)
        assert sure.items() <= real.items()
        maybe = {one.memory_id: {one.text, one.other} for one in found.maybe}
        for memory_id in real.keys() - sure.keys():
            assert real[memory_id] in maybe[memory_id]
        assert not sure.keys() & maybe.keys()
        doubts += len(maybe)
    return doubts


def test_it_equals_the_truth_at_every_step(lived: Lived) -> None:
    past = past_of(lived)
    is_exact(past, lived.moments)
    assert not [one for one in past.not_read if one.gap]
    assert told(past, lived.moments[-1][0]).notes == ()


def test_whose_a_memory_was_the_store_knows_and_the_ledger(lived: Lived, tmp_path: Path) -> None:
    early = lived.moments[STEPS // 2]
    last = lived.moments[-1][1]
    there = {i: user for i, (user, _) in early[1].items()}
    now = past_of(lived)
    found = told(now, early[0], Scope("alice"))
    assert {m.memory_id for m in found.memories} == {
        i for i, u in there.items() if u == "alice" and i in last
    }
    assert found.unowned == len([i for i in there if i not in last])
    # the same with a ledger that saw the others before they were deleted
    machine = host()
    install = located(lived, machine)
    from mem0audit.operations import ledger as ledgers

    with ledgers.opened(install, machine, make=True) as book:
        book.note_owners({i: (user, None, None) for i, user in there.items()}, machine.now)  # type: ignore[union-attr]
    for user in USERS:
        found = told(past_of(lived, ledger=True), early[0], Scope(user))
        assert {m.memory_id for m in found.memories} == {i for i, u in there.items() if u == user}
        assert found.unowned == 0
        assert {m.owner_by for m in found.memories if m.memory_id not in last} <= {"the ledger"}


def test_what_is_different_between_two_times(lived: Lived) -> None:
    past = past_of(lived)
    dice = random.Random(1)
    for _ in range(12):
        (a, before), (b, after) = dice.sample(lived.moments, 2)
        found = as_of_diff(past, this_host(), a, b, None, texts=True)
        kinds = {
            what: {c.memory_id: (c.before, c.after) for s in found.scopes for c in getattr(s, what)}
            for what in ("added", "changed", "removed")
        }
        assert kinds["added"] == {i: (None, after[i][1]) for i in after.keys() - before.keys()}
        assert kinds["removed"] == {i: (before[i][1], None) for i in before.keys() - after.keys()}
        assert kinds["changed"] == {
            i: (before[i][1], after[i][1]) for i in before.keys() & after.keys() if before[i] != after[i]
        }
        assert found.unchanged + len(kinds["changed"]) == len(before.keys() & after.keys())
        assert found.doubtful == 0


def test_a_life_of_one_memory(lived: Lived) -> None:
    machine = this_host()
    install = located(lived, machine)
    memory_id = max(
        (i for _, truth in lived.moments for i in truth),
        key=lambda i: len({truth[i] for _, truth in lived.moments if i in truth}),
    )
    steps = life_of(install, machine, {memory_id})
    for at, truth in lived.moments:
        last = [step for step in steps if step.when.latest <= at]
        assert (last[-1].text if last and last[-1].event != "DELETE" else None) == truth.get(
            memory_id, ("", None)
        )[1]


# --- Every shape of a log -------------------------------------------------------------------------------


def _pacific(text: str | None) -> str | None:
    """As mem0 1.0.6 and older write it."""
    at = instant(text)
    return None if at is None else datetime.fromtimestamp(at, timezone(timedelta(hours=-8))).isoformat()


def test_offsets_are_mixed(lived: Lived, tmp_path: Path) -> None:
    copy = lived.copy(tmp_path / "copy")
    with closing(sqlite3.connect(copy.history)) as db:
        db.create_function("pacific", 1, _pacific)
        db.execute("UPDATE history SET created_at = pacific(created_at) WHERE rowid % 3 = 0")
        db.execute("UPDATE history SET updated_at = pacific(updated_at) WHERE rowid % 2 = 0")
        db.commit()
    is_exact(past_of(copy), lived.moments)


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        (
            NINE,
            "id, memory_id, old_memory, new_memory, new_memory, event, created_at, updated_at, is_deleted",
        ),
        (SEVEN, "id, memory_id, old_memory, new_memory, event, coalesce(updated_at, created_at), is_deleted"),
    ],
)
def test_older_schemas(lived: Lived, tmp_path: Path, schema: str, columns: str) -> None:
    copy = lived.copy(tmp_path / "copy").change(
        "ALTER TABLE history RENAME TO old",
        schema,
        f"INSERT INTO history SELECT {columns} FROM old ORDER BY rowid",
        "DROP TABLE old",
    )
    is_exact(past_of(copy), lived.moments)


def test_rows_without_a_time_are_never_guessed(lived: Lived, tmp_path: Path) -> None:
    """DELETE rows of mem0 1.0.7 and older."""
    copy = lived.copy(tmp_path / "copy").change(
        "UPDATE history SET created_at = NULL, updated_at = NULL WHERE event = 'DELETE'"
    )
    past = past_of(copy)
    assert past.changes.untimed > 0
    # right after a deletion, with nothing written since, it is not known whether it was yet
    assert is_sound(past, lived.moments) > 0
    for at, _ in lived.moments:
        for one in told(past, at).maybe:
            assert one.doubt == "deleted"
            assert one.doubt_when is not None
            assert one.doubt_when.earliest <= at < one.doubt_when.latest


def test_a_log_that_lost_every_time(lived: Lived, tmp_path: Path) -> None:
    """mem0 0.0.9's, migrated by a later one."""
    copy = lived.copy(tmp_path / "copy").change("UPDATE history SET created_at = NULL, updated_at = NULL")
    past = past_of(copy)
    for at, truth in lived.moments[:: STEPS // 4]:
        found = told(past, at)
        assert found.memories == ()
        assert truth.keys() <= {one.memory_id for one in found.maybe}
    assert "No row of the log has a time" in found.notes[0]
    # at the end all of them were written
    assert texts(told(past, past.now).memories) == {i: t for i, (_, t) in lived.moments[-1][1].items()}


def test_a_caller_may_date_a_memory(dated: Lived) -> None:
    past = past_of(dated)
    assert dated.dated
    is_sound(past, dated.moments)
    for at, truth in dated.moments:
        found = told(past, at)
        assert {one.memory_id for one in found.maybe} <= dated.dated
        assert {m.memory_id for m in found.memories} - dated.dated == truth.keys() - dated.dated
    # in 1999 nothing was remembered
    assert told(past, 946_700_000.0).memories == ()


def test_a_date_that_fits_its_place_is_believed(build: Callable[..., MemoryBuilder]) -> None:
    """Nothing tells it from one of mem0's own: said in the manual."""
    agent = build()
    agent.add("an old story", user_id="alice", metadata={"created_at": "2025-05-06T07:08:09.123456+00:00"})
    other = agent.add("another", user_id="alice", metadata={"created_at": "2025-05-06"})
    found = told(past_of(agent), 1_750_000_000.0)
    assert [m.text for m in found.memories] == ["an old story"]
    assert [m.memory_id for m in found.maybe] == [other]


# --- What the log does not have ---------------------------------------------------------------------------


def test_texts_that_were_emptied(lived: Lived, tmp_path: Path) -> None:
    at, truth = lived.moments[-1]
    copy = lived.copy(tmp_path / "copy").change(
        "UPDATE history SET old_memory = '', new_memory = '' WHERE new_memory IS NOT NULL"
    )
    found = told(past_of(copy), at)
    assert {m.memory_id for m in found.memories} == truth.keys()
    assert all(m.text is None and m.text_gone for m in found.memories)
    # where only the new text is gone the next row still has it
    copy = lived.copy(tmp_path / "other").change(
        "UPDATE history SET new_memory = '' WHERE new_memory IS NOT NULL"
    )
    past = past_of(copy)
    at, truth = lived.moments[STEPS // 2]
    known = {m.memory_id: m.text for m in told(past, at).memories if m.text is not None}
    assert known
    assert known.items() <= {i: text for i, (_, text) in truth.items()}.items()


def test_a_memory_whose_first_row_is_gone(lived: Lived, tmp_path: Path) -> None:
    at, truth = lived.moments[0]
    with closing(sqlite3.connect(lived.history)) as db:
        ((memory_id, text),) = db.execute(
            "SELECT memory_id, old_memory FROM history WHERE event = 'UPDATE' ORDER BY rowid LIMIT 1"
        ).fetchall()
    copy = lived.copy(tmp_path / "copy").change(
        f"DELETE FROM history WHERE event = 'ADD' AND memory_id = '{memory_id}'"
    )
    found = told(past_of(copy), at)
    assert not truth
    assert [(one.memory_id, one.doubt, one.text) for one in found.maybe] == [(memory_id, "no-add", text)]


def test_a_log_that_was_reset(build: Callable[..., MemoryBuilder]) -> None:
    agent = build()
    agent.add("before", user_id="alice")
    before = time.time()
    # what mem0's own reset does to the log; the vectors' half failed
    with closing(sqlite3.connect(agent.history)) as db:
        db.execute("DELETE FROM history")
        db.commit()
    after = agent.add("after", user_id="alice")
    past = past_of(agent)
    found = told(past, before)
    assert (found.memories, found.maybe) == ((), ())
    assert any("The log begins at" in note for note in found.notes)
    assert any(
        "1 memory of the store without a row" in note and "1 of them there" in note for note in found.notes
    )
    assert texts(told(past, time.time()).memories) == {after: "after"}


def test_a_store_that_was_emptied(build: Callable[..., MemoryBuilder]) -> None:
    agent = build()
    agent.add("gone", user_id="alice")
    at = time.time()
    agent.close()
    shutil.rmtree(agent.vectors)
    agent.open()
    found = told(past_of(agent), at)
    assert len(found.memories) == 1
    assert any("1 of these is gone from the store today" in note for note in found.notes)


def test_what_came_back_is_said(build: Callable[..., MemoryBuilder]) -> None:
    """The log has it as deleted, and the agent answers from it all the same (D301)."""
    agent = build()
    ids = [agent.add(text, user_id="alice") for text in ("back", "gone")]
    before = time.time()
    agent.close()
    raw = RawPoints(agent.vectors)
    row = raw.row_of(ids[0])
    agent.open()
    for one in ids:
        agent.delete(one)
    agent.close()
    raw.put_row(*row)
    past = past_of(agent)
    (note,) = told(past, time.time()).notes
    assert note.startswith("1 memory that the log has as deleted by then, in the store today all the same")
    assert told(past, before).notes == () and told(past, time.time(), Scope("bob")).notes == ()


def test_owners_that_only_a_snapshot_knows(build: Callable[..., MemoryBuilder], tmp_path: Path) -> None:
    from mem0audit.operations.snapshot import create, plan_create

    agent = build()
    kept = agent.add("deleted later", user_id="alice")
    machine = this_host()
    install = located(agent, machine)
    folder = tmp_path / "snapshots"
    create(plan_create(install, machine, str(folder)), machine, ledger=False)
    at = time.time()
    agent.delete(kept)
    never = agent.add("never in a snapshot", user_id="alice")
    agent.delete(never)
    past = read_past(install, this_host(), Settings(snapshot_dir=str(folder)), ledger=False)
    found = told(past, at, Scope("alice"))
    assert [(m.memory_id, m.text) for m in found.memories] == [(kept, "deleted later")]
    assert str(found.memories[0].owner_by).startswith("the snapshot 20")
    assert told(past, time.time(), Scope("alice")).memories == ()


def test_changes_that_mem0_writes_no_row_for(lived: Lived, tmp_path: Path) -> None:
    """NONE events of mem0 1.0.9 to 1.0.11 change agent and run, and updated_at."""
    copy = lived.copy(tmp_path / "copy")
    memory_id = next(iter(lived.moments[-1][1]))
    later = datetime.fromtimestamp(time.time() + 3600, timezone.utc).isoformat()
    RawPoints(copy.vectors).edit(memory_id, lambda payload: payload.update(updated_at=later, agent_id="a7"))
    found = told(past_of(copy), lived.moments[-1][0])
    assert any("1 of these was changed later than the last row" in note for note in found.notes)


# --- Stores of released versions -----------------------------------------------------------------------------


def _by_what_was_done(ops: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Memory id -> text after these calls, by what they returned."""
    there: dict[str, str] = {}
    for op in ops:
        for one in op.get("result") or ():
            if one["event"] == "DELETE":
                there.pop(one["id"], None)
            elif one["event"] != "NONE":
                there[one["id"]] = one["memory"]
        if op["op"] == "update":
            there[op["id"]] = op["text"] or there[op["id"]]
        elif op["op"] == "delete":
            del there[op["id"]]
    return there


@pytest.mark.parametrize("version", ["0.1.40", "1.0.0", "1.0.11", "2.2.1"])
def test_kept_stores(version: str, tmp_path: Path) -> None:
    """After each operation, by what the operations were: exact, except between deletions without a time."""
    store = copy_store(version, tmp_path, pre_delete_all=True)
    with closing(sqlite3.connect(store.history)) as db:
        rows = db.execute(
            "SELECT memory_id, event, coalesce(updated_at, CASE event WHEN 'ADD' THEN created_at END), new_memory"
            " FROM history ORDER BY rowid"
        ).fetchall()
    now: dict[str, str] = {}
    moments: list[tuple[float, Truth]] = []
    for memory_id, event, when, text in rows:
        if event == "DELETE":
            now.pop(memory_id, None)
        else:
            now[memory_id] = text
        at = instant(when)
        if at is not None:
            moments.append((at, {i: ("", one) for i, one in now.items()}))
    final = _by_what_was_done(store.truth["ops"][:-1])
    past = past_of(store)
    assert texts(told(past, past.now).memories) == final
    assert past.seen.points.keys() == final.keys()
    if any(event == "DELETE" and when is None for _, event, when, _ in rows):
        is_sound(past, moments)
        assert past.changes.untimed
    else:
        is_exact(past, moments)
        assert not past.changes.untimed


def test_looking_changes_nothing_beside_a_running_agent(lived: Lived) -> None:
    from tests.cli.test_commands import fingerprint

    before = fingerprint(lived.folder)
    past = past_of(lived)
    told(past, lived.moments[5][0])
    assert fingerprint(lived.folder) == before
