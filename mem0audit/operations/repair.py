"""Do what is safe about findings: deletions, links of entities and hashes, through mem0, after a snapshot.

Every change is looked at afterwards, still under mem0's lock: the finding is gone, and no other row of either store is
another one. Cut off at any moment, the same command finds what is left and goes on.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b, md5
from pathlib import Path
from typing import Any

from mem0audit.core.erasures import is_covered
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.incident import incidents
from mem0audit.core.model import (
    CollectionInfo,
    Finding,
    HistoryRow,
    Install,
    NotChecked,
    PointId,
    Severity,
    VectorFacts,
)
from mem0audit.core.points import text_digest
from mem0audit.core.reading import Reading
from mem0audit.core.repair import (
    EXPLAINED,
    OF_ITS_OWN,
    REPAIRED,
    Repaired,
    RepairPlan,
    Step,
    Steps,
    Wanted,
    repair_steps,
)
from mem0audit.core.rules import RULES
from mem0audit.core.rules.content import same_text_and_owner
from mem0audit.core.rules.divergence import standing_key
from mem0audit.core.snapshot import canonical
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.audit import SECOND_LOOK_S, judge
from mem0audit.operations.erasures import erasures_on_record
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, look, no_collector, no_progress
from mem0audit.operations.mem0door import Door, find_door, open_door, refuse_and_remember
from mem0audit.operations.seal import explain
from mem0audit.operations.snapshot import create, plan_create
from mem0audit.operations.targets import refuse_in_use
from mem0audit.operations.whole import Whole, kept_of
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history_file, read_rows
from mem0audit.stores.ledger import CannotUse
from mem0audit.stores.mem0api import Mem0Worker
from mem0audit.stores.pickles import PointVectors, candidate_keys

_JUDGED = tuple(code for code in RULES if code[0] in "DHECT")
_AGAIN = "the same command goes on"
_SAME_DIRECTION = 1e-5


# --- Plan ------------------------------------------------------------------------------------------


def plan_repair(
    install: Install,
    host: Host,
    wanted: Wanted,
    *,
    folder: str | None,
    progress: Progress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> RepairPlan:
    """What a repair would do about what is `wanted`, or about everything where that is empty.

    Reads everything, changes nothing; the agent may be running. `folder` is where the snapshot goes that is taken
    first. Why nothing can be applied now is in the plan (`blocked`). Raises Refused for a vector store that is no
    folder, CouldNotRead where one of the two stores could not be read whole: findings are judged of both.
    """
    say = progress or no_progress
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        raise Refused(f"the vector store is {what}: this version repairs embedded Qdrant folders only")
    blocked, unseen = _in_use(install, host)
    door: Door | None = None
    try:
        door = find_door(install, host)
    except Mem0auditError as error:
        blocked = blocked or (error.message, error.hint)
    blocked = blocked or _cut_off(install, host)
    reading, findings = _findings(install, host, say, pause)
    todo = _todo(reading, findings, wanted, host, door.mem0 if door is not None else None, folder)
    if todo.steps:
        blocked = blocked or _undecodable(reading) or _no_snapshot(install, host, folder)
    seen = (
        {f.memory_id for f in findings}
        | {step.keeps for step in todo.steps}
        | {str(s.id) for s in todo.steps}
    )
    others = Counter(
        f.code
        for f in findings
        if f.code not in (*REPAIRED, *EXPLAINED)
        and f.severity > Severity.INFO
        and (not wanted or f.memory_id in wanted.ids)
    )
    return RepairPlan(
        install=reading.install,
        wanted=wanted,
        todo=todo,
        found=Counter(f.code for f in findings),
        mem0=door.mem0 if door is not None else None,
        interpreter=door.interpreter if door is not None else None,
        how_found=door.source if door is not None else "",
        own=door is not None and door.own,
        folder=folder,
        blocked=blocked,
        unseen=unseen,
        unknown=tuple(sorted(wanted.ids - {i for i in seen if i is not None})),
        others=others,
        events=_events(reading, todo),
    )


def _events(reading: Reading, todo: Steps) -> tuple[str, ...]:
    """What stands behind what would be repaired: vectors that somebody put back are no accident, perhaps."""
    codes = {step.code for step in todo.steps}
    return tuple(
        f"{one.name} ({one.certainty.label})" for one in incidents(reading) if codes.intersection(one.codes)
    )


def _in_use(install: Install, host: Host) -> tuple[tuple[str, str | None] | None, str | None]:
    """Why it is not to be changed now, and why not all processes could be seen."""
    try:
        return None, refuse_and_remember(install, host)
    except Refused as problem:
        return (problem.message, problem.hint), None


def _cut_off(install: Install, host: Host) -> tuple[str, str | None] | None:
    """What was cut off here and comes first."""
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


def _undecodable(reading: Reading) -> tuple[str, str | None] | None:
    for one in reading.collections:
        if one.read.bad or one.read.unsafe:
            count = len(one.read.bad) + len(one.read.unsafe)
            return (
                f"{one.info.path}: {count:,} points do not decode: mem0 is not let at them",
                "mem0audit audit",
            )
    return None


def _no_snapshot(install: Install, host: Host, folder: str | None) -> tuple[str, str | None] | None:
    """Why no snapshot could be taken first."""
    if folder is None:
        return (
            "a snapshot is taken first, and no folder for snapshots is named",
            "name one with --to, or as snapshot_dir in mem0audit.toml",
        )
    try:
        plan_create(install, host, folder)
    except Mem0auditError as error:
        return f"no snapshot can be taken first: {error.message}", error.hint
    return None


def _findings(
    install: Install, host: Host, say: Progress, pause: Callable[[float], None] | None = None
) -> tuple[Reading, list[Finding]]:
    """Both stores as read, and what is wrong with them. With `pause`, where somebody may write meanwhile, only what
    stands at a second look."""
    with no_collector():
        reading = _look(install, host, say)
        findings, _ = judge(reading, _JUDGED)
        if pause is not None and reading.live and findings:
            say("looking again at what disagrees", None, None)
            pause(SECOND_LOOK_S)
            first = {standing_key(f) for f in findings}
            reading = _look(install, host, say)
            findings = [f for f in judge(reading, _JUDGED)[0] if standing_key(f) in first]
    return reading, findings


def _look(install: Install, host: Host, say: Progress) -> Reading:
    with ledgers.opened(install, host) as book:
        reading = replace(
            look(install, host, say),
            recovered=ledgers.recovered(book),
            kept=ledgers.kept(book, host.now),
        )
    place = reading.vectors_place
    if place is None or not place.exists:
        raise CouldNotRead(f"{place.path if place else 'the vector store'} is not there", "mem0audit status")
    if not reading.vectors_readable or not reading.history_readable:
        which = "the log" if reading.vectors_readable else "the vector store"
        raise CouldNotRead(
            f"{which} could not be read whole, and findings are judged of both", "mem0audit audit"
        )
    return reading


def _todo(
    reading: Reading,
    findings: Sequence[Finding],
    wanted: Wanted,
    host: Host,
    mem0: str | None,
    folder: str | None,
) -> Steps:
    erased: set[str] = set()
    both = reading.comparison
    if both is not None and both.resurrected:
        record = erasures_on_record(reading.install, folder, host).erasures
        erased = {
            i for i in both.resurrected if any(is_covered(one, both.points[i].owner, i) for one in record)
        }
    return repair_steps(
        reading, findings, wanted, mem0=mem0, payloads=_payloads_of_copies(reading), erased=erased
    )


def _payloads_of_copies(reading: Reading) -> dict[str, bytes]:
    """A digest of the payload of each memory that has copies, without what each has of its own."""
    home = reading.configured
    ids = {one[0] for group in same_text_and_owner(home) for one in group} if home is not None else set()
    if home is None or not ids:
        return {}

    def keep(_row: int, point_id: PointId, payload: Mapping[str, Any], _vector: VectorFacts) -> bytes | None:
        if str(point_id) not in ids:
            return None
        rest = sorted((key, repr(value)) for key, value in payload.items() if key not in OF_ITS_OWN)
        return blake2b(canonical(rest).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    assert reading.vectors_path is not None
    read = EmbeddedStore(reading.vectors_path).points(home.info, keep)
    return {str(i): digest for i, digest in read.rows.items() if digest is not None}


# --- Apply -----------------------------------------------------------------------------------------


def apply_repair(
    plan: RepairPlan, host: Host, *, progress: Progress | None = None, now: Callable[[], float] = time.time
) -> Repaired:
    """Does what was planned: a snapshot first, then everything through mem0, then the proof.

    Nothing is done where the plan has no steps. Raises Refused where it is blocked, where somebody has the install
    open, or where the stores are not as they were when it was planned; Failed where a step failed (what was done
    before it stands), or where something else than the steps changed meanwhile.
    """
    say = progress or no_progress
    started = time.monotonic()
    if not plan.todo.steps:
        return Repaired(plan)
    if plan.blocked is not None:
        raise Refused(*plan.blocked)
    install = plan.install
    refuse_in_use(install, host)
    door = find_door(install, host)
    assert plan.folder is not None
    taken = create(plan_create(install, host, plan.folder), host, progress=progress, now=now)
    back = f"as it was before: {taken.path}"
    store = EmbeddedStore(door.vectors)
    say("noting what is there", None, None)
    before = _picture(store, door, None)
    with open_door(door, host) as memory:
        # under mem0's lock nobody else writes: what is done is judged of what is there now
        reading, findings = _findings(install, host, say)
        if _todo(reading, findings, plan.wanted, host, door.mem0, plan.folder) != plan.todo:
            raise Refused(
                "the stores are not as they were when this was planned: nothing was changed", "run it again"
            )
        try:
            doing = _Doing(memory, store, door, plan.todo, say)
            doing.do()
        except Mem0auditError as error:
            raise Failed(f"{error.message}; what was done before stands ({back})", _AGAIN) from None
        say("looking at all of it again", None, None)
        problem = _other_changes(before, _picture(store, door, before), plan.todo, doing.expected, door)
        if problem is not None:
            raise Failed(f"something else changed meanwhile: {problem} ({back})", "mem0audit audit")
        remaining = _remaining(install, host, plan.todo, say)
        _forget(install, host, plan.todo)
        say("sealing", None, None)
        outcome = explain(install, host, "repair", _in_short(plan.todo), progress=say)
        python = memory.versions.python
    warnings = list(taken.notes)
    if outcome is not None and not outcome.extended:
        warnings.append(
            f"The chain of seals does not know of this repair ({outcome.why}): the next audit may find a change."
        )
    return Repaired(
        plan,
        snapshot=taken.path,
        deleted=doing.deleted,
        rewritten=doing.rewritten,
        entities=doing.entities,
        links=doing.links,
        remaining=remaining,
        mem0=door.mem0,
        python=python,
        warnings=tuple(warnings),
        seconds=time.monotonic() - started,
    )


def _forget(install: Install, host: Host, todo: Steps) -> None:
    """Drops the rows of what was deleted from the ledger, now that the points are gone. Where it cannot be written,
    the next audit does it."""
    with ledgers.opened(install, host) as book:
        if book is not None and not isinstance(book, NotChecked):
            with suppress(CannotUse):
                book.forget_memories(map(str, todo.of("delete")))


class _Doing:
    """The steps, one after the other, and what came of them. `expected` are the rows that the log gets."""

    def __init__(
        self, memory: Mem0Worker, store: EmbeddedStore, door: Door, todo: Steps, say: Progress
    ) -> None:
        self.memory = memory
        self.store = store
        self.door = door
        self.todo = todo
        self.say = say
        self.expected: Counter[tuple[str, str]] = Counter()
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
            if self.memory.delete(memory_id):
                self.deleted += 1
                self.expected[(str(memory_id), "DELETE")] += 1
        rewrites = self.todo.of("rewrite")
        for number, memory_id in enumerate(rewrites):
            self.say("writing memories again", number, len(rewrites))
            self._rewrite(infos[self.door.collection], memory_id)

    def _unlink(self, info: CollectionInfo, entity_id: PointId, dead: tuple[str, ...]) -> None:
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
        self.memory.rewrite(memory_id, text, was.vectors)
        self.expected[(str(memory_id), "UPDATE")] += 1
        now = Whole.of(self.store, info, memory_id)
        if now.payload.get("hash") != text_digest(text).hex() or now.vectors != was.vectors:
            raise Failed(f"memory {memory_id} was not written as it was")
        if kept_of(was.payload) != kept_of(now.payload):
            raise Failed(f"memory {memory_id} is not as it was but for its hash and its time")
        self.rewritten += 1


def _in_short(todo: Steps) -> str:
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


def _picture(store: EmbeddedStore, door: Door, before: _Picture | None) -> _Picture:
    points = {
        info.name: store.digests(info)
        for info in store.layout().collections
        if info.has_folder and not info.legacy
    }
    known = None if before is None else len(before.log.digests)
    state, log = read_rows(door.history, lambda: _Log(known))
    if log is None or state.problem is not None:
        raise CouldNotRead(f"{door.history}: {state.problem.detail if state.problem else 'was not read'}")
    tables = {
        name: count for name, count in read_history_file(door.history).tables.items() if name != "history"
    }
    meta = md5(Path(door.vectors, "meta.json").read_bytes(), usedforsecurity=False).digest()
    return _Picture(points, log, tables, meta)


def _other_changes(
    before: _Picture, after: _Picture, todo: Steps, expected: Counter[tuple[str, str]], door: Door
) -> str | None:
    """What else is not as it was, in a few words; None where nothing is."""
    memories = (*todo.of("delete"), *todo.of("rewrite"))
    ours = {
        door.collection: {key for one in memories for key in candidate_keys(one)},
        door.collection + ENTITIES_SUFFIX: {key for one in todo.unlink for key in candidate_keys(one)},
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


def _remaining(install: Install, host: Host, todo: Steps, say: Progress) -> tuple[Step, ...]:
    """The steps of which the finding is still there."""
    reading, findings = _findings(install, host, say)
    found = {(f.code, f.memory_id) for f in findings}
    home = reading.configured
    there = {str(i) for i in home.read.rows} if home is not None else set()

    def is_left(step: Step) -> bool:
        if step.kind == "delete":
            return str(step.id) in there
        codes = ("E501", "E502") if step.kind == "unlink" else (step.code,)
        return any((code, str(step.id)) in found for code in codes)

    return tuple(step for step in todo.steps if is_left(step))
