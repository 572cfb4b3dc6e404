"""Steps done as one change of an install: what `repair` and `prune` have in common.

A snapshot of both stores first, everything through the agent's own mem0 and under its lock, then a look at all of it
again: no other row of either store is another one. Nothing is kept for a next run: cut off at any moment, the same
command finds what is left and goes on.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b, md5
from pathlib import Path
from typing import Any, Final

from mem0audit.core.changes import Changed, Step, Steps
from mem0audit.core.erasures import Covering
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.model import CollectionInfo, HistoryRow, Install, NotChecked, PointId
from mem0audit.core.points import text_digest
from mem0audit.core.reading import Reading
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.erasures import erasures_on_record
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, look
from mem0audit.operations.mem0door import Door, find_door, open_door, refuse_and_remember
from mem0audit.operations.pairs import plan_pair, take_pair
from mem0audit.operations.seal import explain
from mem0audit.operations.stores import Served
from mem0audit.operations.targets import refuse_in_use
from mem0audit.operations.whole import Whole, kept_of
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history_file, read_rows
from mem0audit.stores.ledger import CannotUse
from mem0audit.stores.mem0api import Mem0Worker
from mem0audit.stores.mem0live import LiveMemory
from mem0audit.stores.pickles import PointVectors, candidate_keys

AGAIN: Final = "the same command goes on"
_SAME_DIRECTION = 1e-5

Blocked = tuple[str, "str | None"]
"""Why something cannot be done now, and a hint."""


# --- Before ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WayIn:
    """Under which mem0 an install would be changed (None where that is not known), why it cannot be done now (`in_use`:
    somebody has it open), and why not all processes could be seen."""

    door: Door | None
    blocked: Blocked | None
    unseen: str | None
    in_use: bool = False

    @property
    def mem0(self) -> str | None:
        """Its version."""
        return None if self.door is None else self.door.mem0


def way_in(install: Install, host: Host) -> WayIn:
    """Looks who has the install open, under which mem0 it is changed, and what was cut off here. Changes nothing."""
    blocked, unseen = _in_use(install, host)
    in_use = blocked is not None
    door: Door | None = None
    try:
        door = find_door(install, host)
    except Mem0auditError as error:
        blocked = blocked or (error.message, error.hint)
    return WayIn(door, blocked or cut_off(install, host), unseen, in_use)


def _in_use(install: Install, host: Host) -> tuple[Blocked | None, str | None]:
    """Why it is not to be changed now, and why not all processes could be seen."""
    try:
        return None, refuse_and_remember(install, host)
    except Refused as problem:
        return (problem.message, problem.hint), None


def cut_off(install: Install, host: Host) -> Blocked | None:
    """What was cut off here and comes first."""
    try:
        refuse_left_moves(install, host)
    except Refused as problem:
        return problem.message, problem.hint
    left_over = interrupted(install, host)
    if left_over is not None and left_over.course != "clean":
        where = left_over.folder
        return (
            f"a restore was cut off here ({where}): it comes first",
            "mem0audit snapshot restore --in-place",
        )
    with ledgers.opened(install, host) as book:
        if book is None or isinstance(book, NotChecked):
            return None
        try:
            begun = book.erasing()
        except CannotUse as error:
            return f"the ledger {book.path} {error.why}", None
    return (
        None if begun is None else ("a deletion was cut off here: it is finished first", "mem0audit delete")
    )


def undecodable(reading: Reading) -> Blocked | None:
    """Why mem0 is not let at the stores as they are."""
    for one in reading.collections:
        if one.read.bad or one.read.unsafe:
            count = len(one.read.bad) + len(one.read.unsafe)
            return (
                f"{one.info.path}: {count:,} points do not decode: mem0 is not let at them",
                "mem0audit audit",
            )
    return None


def no_snapshot(install: Install, host: Host, folder: str | None) -> Blocked | None:
    """Why no snapshot could be taken first."""
    if folder is None:
        return (
            "a snapshot is taken first, and no folder for snapshots is named",
            "name one with --to, or as snapshot_dir in mem0audit.toml",
        )
    try:
        plan_pair(install, host, folder)
    except Mem0auditError as error:
        return f"no snapshot can be taken first: {error.message}", error.hint
    return None


def look_whole(install: Install, host: Host, say: Progress) -> Reading:
    """Both stores as read. Raises CouldNotRead where one of them could not be read whole."""
    with ledgers.opened(install, host) as book:
        reading = replace(
            look(install, host, say), recovered=ledgers.recovered(book), kept=ledgers.kept(book, host.now)
        )
    place = reading.vectors_place
    if not reading.on_server and (place is None or not place.exists):
        raise CouldNotRead(f"{place.path if place else 'the vector store'} is not there", "mem0audit status")
    if not reading.vectors_readable or not reading.history_readable:
        which = "the log" if reading.vectors_readable else "the vector store"
        raise CouldNotRead(
            f"{which} could not be read whole, and what is to be changed is judged of both", "mem0audit audit"
        )
    return reading


def erased_and_back(reading: Reading, host: Host, folder: str | None) -> set[str]:
    """The ids of memories that came back after a deletion and that an erasure is on record of: no snapshot may keep
    them."""
    both = reading.comparison
    if both is None or not both.resurrected:
        return set()
    covering = Covering(erasures_on_record(reading.install, folder, host).erasures)
    return {i for i in both.resurrected if covering.covers_memory(both.points[i].owner, i, None)}


# --- Doing it ----------------------------------------------------------------------------------------


def apply_steps(
    install: Install,
    host: Host,
    todo: Steps,
    folder: str,
    kind: str,
    *,
    again: Callable[[Door], Steps],
    remaining: Callable[[], tuple[Step, ...]],
    progress: Progress,
    now: Callable[[], float] = time.time,
) -> Changed:
    """A snapshot into `folder`, then these steps through mem0, the agent stopped, then the proof.

    `again` plans them once more, of what is there under mem0's lock; `remaining` gives the steps after which what they
    were about is still there; `kind` is the word for the chain of seals. Raises Refused where somebody has the install
    open, or where the stores are not as they were when it was planned; Failed where a step failed (what was done before
    it stands), or where something else than the steps changed meanwhile.
    """
    say = progress
    started = time.monotonic()
    refuse_in_use(install, host)
    door = find_door(install, host)
    taken = take_pair(install, host, folder, progress=progress, now=now)
    back = f"as it was before: {taken.path}"
    store = door.store
    say("noting what is there", None, None)
    before = _picture(store, door, None)
    with open_door(door, host) as memory:
        # under mem0's lock nobody else writes (a server has none): what is done is judged of what is there now
        if again(door) != todo:
            raise Refused(
                "the stores are not as they were when this was planned: nothing was changed", "run it again"
            )
        doing = _Doing(memory, store, door, todo, say)
        try:
            doing.do()
        except Mem0auditError as error:
            raise Failed(f"{error.message}; what was done before stands ({back})", AGAIN) from None
        say("looking at all of it again", None, None)
        problem = _other_changes(before, _picture(store, door, before), todo, doing.expected, door)
        if problem is not None:
            raise Failed(f"something else changed meanwhile: {problem} ({back})", "mem0audit audit")
        left = remaining()
        _forget(install, host, doing.gone, left)
        say("sealing", None, None)
        outcome = explain(install, host, kind, in_short(todo), progress=say)
        python = memory.versions.python
    warnings = list(taken.notes)
    if outcome is not None and not outcome.extended:
        warnings.append(
            f"The chain of seals does not know of this {kind} ({outcome.why}): the next audit may find a change."
        )
    return _changed(doing, taken.path, left, door, python, warnings, started)


def apply_inside(
    install: Install,
    host: Host,
    inside: tuple[Door, LiveMemory],
    todo: Steps,
    folder: str,
    *,
    again: Callable[[], Steps],
    still: Callable[[PointId, Mapping[str, Any]], bool],
    progress: Progress,
    now: Callable[[], float] = time.time,
) -> Changed:
    """The same deletions through a `Memory` that is open in this process, and whose other threads go on.

    What was planned is done as far as `again` plans it still, after the snapshot; and a memory is deleted only where
    `still` says so of its payload as mem0 has it then. The chain of seals is not told: what the agent changed meanwhile
    would be let stand with it. Raises Failed.
    """
    started = time.monotonic()
    door, live = inside
    taken = take_pair(install, host, folder, progress=progress, now=now)
    in_snapshot = set(todo.of("delete"))
    fresh = again()
    wanted = tuple(step for step in fresh.steps if step.id in in_snapshot)
    dead = {str(step.id) for step in wanted}
    losing = {
        one: kept for one, links in fresh.unlink.items() if (kept := tuple(i for i in links if i in dead))
    }
    todo = Steps(wanted, (), losing)
    store = door.store
    progress("opening the store with mem0", None, None)
    with live.opened() as memory:
        doing = _Doing(memory, store, door, todo, progress, still)
        try:
            doing.do()
        except Mem0auditError as error:
            raise Failed(
                f"{error.message}; what was done before stands (as it was before: {taken.path})",
                "the same call goes on",
            ) from None
    progress("looking at all of it again", None, None)
    stands = {step.id for step in again().steps}
    left = tuple(step for step in todo.steps if step.id in stands)
    _forget(install, host, doing.gone, left)
    python = live.versions.python
    return _changed(doing, taken.path, left, door, python, list(taken.notes), started)


def _forget(install: Install, host: Host, gone: Collection[PointId], left: Sequence[Step]) -> None:
    """Drops the rows of what was deleted, and is not there again, from the ledger: the points are gone. Where it cannot
    be written, the next audit does it."""
    stay = {step.id for step in left}
    with ledgers.opened(install, host) as book:
        if book is not None and not isinstance(book, NotChecked):
            with suppress(CannotUse):
                book.forget_memories(str(one) for one in gone if one not in stay)


def _changed(
    doing: _Doing,
    snapshot: str,
    left: tuple[Step, ...],
    door: Door,
    python: str,
    warnings: Sequence[str],
    started: float,
) -> Changed:
    return Changed(
        snapshot=snapshot,
        deleted=doing.deleted,
        rewritten=doing.rewritten,
        entities=doing.entities,
        links=doing.links,
        remaining=left,
        mem0=door.mem0,
        python=python,
        warnings=tuple(warnings),
        seconds=time.monotonic() - started,
    )


class _Doing:
    """The steps, one after the other, and what came of them. `expected` are the rows that the log gets."""

    def __init__(
        self,
        memory: Mem0Worker | LiveMemory,
        store: EmbeddedStore | Served,
        door: Door,
        todo: Steps,
        say: Progress,
        still: Callable[[PointId, Mapping[str, Any]], bool] | None = None,
    ) -> None:
        self.memory = memory
        self.store = store
        self.door = door
        self.todo = todo
        self.say = say
        self.still = still
        self.outdated = {step.id for step in todo.steps if step.replaced_by is not None}
        self.expected: Counter[tuple[str, str]] = Counter()
        self.gone: list[PointId] = []
        self.deleted = self.rewritten = self.entities = self.links = 0

    def do(self) -> None:
        """Links first: cut off then, what was to be deleted is still found."""
        infos = {info.name: info for info in self.store.layout().collections if info.has_folder}
        entities = infos.get(self.door.collection + ENTITIES_SUFFIX)
        for number, (entity_id, dead) in enumerate(self.todo.unlink.items()):
            self.say("clearing entities", number, len(self.todo.unlink))
            if entities is not None:
                self._unlink(entities, entity_id, dead)
        deletes = self.todo.of("delete")
        for number, memory_id in enumerate(deletes):
            self.say("deleting memories", number, len(deletes))
            if self._delete(memory_id):
                self.deleted += 1
                self.gone.append(memory_id)
                self.expected[(str(memory_id), "DELETE")] += 1
        rewrites = self.todo.of("rewrite")
        for number, memory_id in enumerate(rewrites):
            self.say("writing memories again", number, len(rewrites))
            self._rewrite(infos[self.door.collection], memory_id)

    def _delete(self, memory_id: PointId) -> bool:
        if isinstance(self.memory, LiveMemory):
            # an outdated one goes with what replaced it, whatever it says of itself
            still = None if self.still is None else partial(self.still, memory_id)
            return self.memory.delete(memory_id, None if memory_id in self.outdated else still)
        return self.memory.delete(memory_id)

    def _unlink(self, info: CollectionInfo, entity_id: PointId, dead: tuple[str, ...]) -> None:
        if isinstance(self.memory, LiveMemory):  # whose other threads may link it to more meanwhile
            said = self.memory.unlink(entity_id, dead)
            self.entities += said.deleted
            self.links += 0 if said.deleted else said.links
            return
        was = None if entity_id in self.todo.emptied else Whole.of(self.store, info, entity_id)
        said = self.memory.unlink(entity_id, dead)
        if said.deleted != (was is None):
            raise Failed(f"entity {entity_id} links other memories than before")
        self.entities += said.deleted
        self.links += 0 if said.deleted else said.links
        if was is not None:
            left = [one for one in _links(was.payload) if str(one) not in set(dead)]
            now = Whole.of(self.store, info, entity_id)
            kept = {**was.payload, "linked_memory_ids": left} == dict(now.payload)
            if not kept or not _same_direction(was.vectors, now.vectors):
                raise Failed(f"entity {entity_id} is not as it was but for its links")

    def _rewrite(self, info: CollectionInfo, memory_id: PointId) -> None:
        was = Whole.of(self.store, info, memory_id)
        text = was.payload["data"]
        assert isinstance(self.memory, Mem0Worker)
        self.memory.rewrite(memory_id, text, was.vectors)
        self.expected[(str(memory_id), "UPDATE")] += 1
        now = Whole.of(self.store, info, memory_id)
        kept = now.vectors == was.vectors
        if not kept and self.door.server is not None:  # which may normalise once more
            kept = _same_direction(was.vectors, now.vectors)
        if now.payload.get("hash") != text_digest(text).hex() or not kept:
            raise Failed(f"memory {memory_id} was not written as it was")
        if kept_of(was.payload) != kept_of(now.payload):
            raise Failed(f"memory {memory_id} is not as it was but for its hash and its time")
        self.rewritten += 1


def in_short(todo: Steps) -> str:
    """How many steps there are of each rule."""
    counts = Counter(step.code for step in todo.steps)
    return ", ".join(f"{code}: {count:,}" for code, count in sorted(counts.items()))


# --- Proof -----------------------------------------------------------------------------------------


def _links(payload: Mapping[str, Any]) -> Sequence[Any]:
    links = payload.get("linked_memory_ids")
    return links if isinstance(links, (list, tuple)) else ()


def _same_direction(one: PointVectors, other: PointVectors) -> bool:
    """A change of a payload has a local Qdrant write the vector as it holds it: normalised."""
    if (one.dense is None) != (other.dense is None) or one.keyword != other.keyword:
        return False
    if one.dense is None or other.dense is None:
        return True
    a, b = _unit(one.dense), _unit(other.dense)
    return len(a) == len(b) and all(abs(x - y) < _SAME_DIRECTION for x, y in zip(a, b, strict=True))


def _unit(vector: Sequence[float]) -> list[float]:
    norm = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / norm for x in vector]


class _Log:
    """Takes history rows (a `model.RowSink`): a digest of each of the first `known`, and what the others log."""

    def __init__(self, known: int | None) -> None:
        self.known = known
        self.digests: list[bytes] = []
        self.new: Counter[tuple[str, str]] = Counter()

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows."""
        for row in page:
            if self.known is None or len(self.digests) < self.known:
                data = repr(row[1:]).encode("utf-8", "surrogatepass")
                self.digests.append(blake2b(data, digest_size=16).digest())
            else:
                self.new[(str(row.memory_id), str(row.event))] += 1


@dataclass(frozen=True)
class _Picture:
    """A digest of every row of both stores. `tables` are the numbers of rows of the other tables of the log."""

    points: Mapping[str, Mapping[str, bytes]]
    log: _Log
    tables: Mapping[str, int | None]
    meta: bytes


def _picture(store: EmbeddedStore | Served, door: Door, before: _Picture | None) -> _Picture:
    points = {
        info.name: store.digests(info)
        for info in store.layout().collections
        if info.has_folder and not info.legacy and not info.foreign
    }
    known = None if before is None else len(before.log.digests)
    state, log = read_rows(door.history, lambda: _Log(known))
    if log is None or state.problem is not None:
        raise CouldNotRead(f"{door.history}: {state.problem.detail if state.problem else 'was not read'}")
    tables = {
        name: count for name, count in read_history_file(door.history).tables.items() if name != "history"
    }
    if door.server is not None:
        return _Picture(points, log, tables, b"")
    meta = md5(Path(door.vectors, "meta.json").read_bytes(), usedforsecurity=False).digest()
    return _Picture(points, log, tables, meta)


def _other_changes(
    before: _Picture, after: _Picture, todo: Steps, expected: Counter[tuple[str, str]], door: Door
) -> str | None:
    """What else is not as it was, in a few words; None where nothing is."""
    memories = (*todo.of("delete"), *todo.of("rewrite"))
    ours = {
        door.collection: {key for one in memories for key in (*candidate_keys(one), str(one))},
        door.collection + ENTITIES_SUFFIX: {
            key for one in todo.unlink for key in (*candidate_keys(one), str(one))
        },
    }
    for name in sorted(before.points.keys() | after.points.keys()):
        was, now = before.points.get(name, {}), after.points.get(name, {})
        changed = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
        others = changed - ours.get(name, set())
        if others:
            return f"{len(others):,} points of {name}"
        if name not in before.points or name not in after.points:
            return f"the collection {name}"
    if before.log.digests != after.log.digests:
        return "rows of the log that were there before"
    if after.log.new != expected:
        return "the log has other new rows than these changes make"
    # opening a log, a newer mem0 makes tables that it lacks, and drops empty ones that a migration left
    if any(after.tables.get(name) != count for name, count in before.tables.items() if count):
        return "another table of the log"
    return "meta.json" if before.meta != after.meta else None
