"""What was remembered at a time, from mem0's own log; whose it was, from whoever knows. Beside a running agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mem0audit.core import asof as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.asof import NEVER, AsOf, AsOfDiff, Changes, Remembered, State, Step
from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import (
    FileProblem,
    HistoryFile,
    HistoryRow,
    Install,
    NotChecked,
    PointId,
    PointStore,
    VectorFacts,
)
from mem0audit.core.points import Owner
from mem0audit.core.scopes import Scope
from mem0audit.core.timeline import ADD, DELETE
from mem0audit.core.times import instant, shown
from mem0audit.install.config import Settings
from mem0audit.install.host import Host
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.known import known_snapshots
from mem0audit.operations.look import Progress, no_collector, no_progress
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.operations.residue import collections_of, owner_in
from mem0audit.operations.stores import store_of
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history, rows_at
from mem0audit.stores.ledger import CannotUse

IN_STORE: Final = "the store"
IN_LEDGER: Final = "the ledger"
TAKING_S: Final = 600.0
"""A snapshot is dated by the second it was begun in, and holds what was there when its locks were had."""


@dataclass(frozen=True)
class _Point:
    """What is kept of a memory that is in the store now."""

    owner: Owner
    created_at: float | None
    updated_at: float | None


@dataclass
class _Seen:
    """The memories in the store now, by id, and what could not be read."""

    points: dict[str, _Point] = field(default_factory=dict)
    not_read: list[NotChecked] = field(default_factory=list)
    whole: bool = False


@dataclass(frozen=True)
class Past:
    """The log, the store, and who knows whose each memory was: what every question about the past is answered from."""

    install: Install
    history: HistoryFile
    changes: Changes
    seen: _Seen
    owners: Mapping[str, tuple[Owner, str]]
    not_read: tuple[NotChecked, ...]
    now: float


def read_past(
    install: Install,
    host: Host,
    settings: Settings,
    *,
    ledger: bool = True,
    snapshots: bool = True,
    progress: Progress | None = None,
) -> Past:
    """Reads the store, then the whole log without its texts (some 100 MB for a million rows), then the ledger and,
    for the memories that neither knows the owner of, the snapshots. Changes nothing.

    Raises CouldNotRead where the log cannot be read whole: a part of it would tell another past.
    """
    say = progress or no_progress
    held = holders([o.value for o in (install.history, install.vectors) if o is not None], host)
    install = as_the_agent_sees_it(install, held.holders, host)
    with no_collector():
        seen = _Seen()
        if install.vectors is not None:
            folder = install.vectors.value
            say("reading the memories", None, None)
            seen = where_it_lies(
                folder,
                host,
                lambda path: _in_store(EmbeddedStore(path)),
                lambda p: _Seen(not_read=[NotChecked(folder, p.detail)]),
            )
        elif install.server_url is not None:
            say("reading the memories", None, None)
            seen = _in_store(store_of(install))
        else:
            seen.not_read.append(
                NotChecked("the vector store", f"it is {install.provider}, and no Qdrant: it is not read")
            )
        say("reading the log", None, None)
        history, changes = read_log(install, host)
        changes.weigh(host.now)
        not_read = list(seen.not_read)
        owners = {i: (point.owner, IN_STORE) for i, point in seen.points.items()}
        not_read += _from_ledger(install, host, ledger, owners)
        if snapshots:
            say("looking for owners in the snapshots", None, None)
            not_read += _from_snapshots(install, host, settings, changes, owners, ledger)
    return Past(install, history, changes, seen, owners, tuple(not_read), host.now)


def _in_store(store: PointStore) -> _Seen:
    memories, _entities, gaps = collections_of(store)
    seen = _Seen(not_read=list(gaps), whole=not gaps)

    def keep(_row: int, _id: PointId, payload: Mapping[str, Any], _vector: VectorFacts) -> _Point | None:
        if "data" not in payload:
            return None
        return _Point(
            owner_in(payload), instant(payload.get("created_at")), instant(payload.get("updated_at"))
        )

    for info in memories:
        read = store.points(info, keep)
        seen.points.update((str(i), point) for i, point in read.rows.items() if point is not None)
        if read.file.problem is not None:
            seen.not_read.append(NotChecked(read.file.path, read.file.problem.detail))
            seen.whole = False
        if read.bad or read.unsafe:
            seen.not_read.append(
                NotChecked(info.path, f"{len(read.bad) + len(read.unsafe)} points do not decode")
            )
            seen.whole = False
    return seen


def read_log(install: Install, host: Host) -> tuple[HistoryFile, Changes]:
    """What the log is, and its rows without their texts. Raises CouldNotRead where it cannot be read whole."""
    path = install.history.value

    def failed(problem: FileProblem) -> tuple[HistoryFile, Changes | None]:
        raise CouldNotRead(f"{path}: {problem.detail}")

    def read(inner: str) -> tuple[HistoryFile, Changes | None]:
        return read_history(inner, Changes, texts=False)

    history, changes = where_it_lies(path, host, read, failed)
    if changes is None:
        problem = history.file.problem
        why = problem.detail if problem is not None else "cannot be read"
        missing = problem is not None and problem.kind == "missing"
        raise CouldNotRead(
            f"{path}: {why}", "other logs on this machine: mem0audit status" if missing else None
        )
    return history, changes


def _from_ledger(
    install: Install, host: Host, wanted: bool, owners: dict[str, tuple[Owner, str]]
) -> list[NotChecked]:
    with ledgers.opened(install, host, wanted=wanted) as book:
        if book is None or isinstance(book, NotChecked):
            return [] if book is None else [book]
        try:
            for memory_id, owner in book.owners().items():
                owners.setdefault(memory_id, (owner, IN_LEDGER))
        except CannotUse as error:
            return [ledgers.unusable(book.path, error)]
    return []


def _from_snapshots(
    install: Install,
    host: Host,
    settings: Settings,
    changes: Changes,
    owners: dict[str, tuple[Owner, str]],
    ledger: bool,
) -> list[NotChecked]:
    """Owners that only a snapshot knows: the newest that has the memory. Those taken when none of them lived are not
    opened."""
    unknown = {i for i in changes.memories if i not in owners}
    if not unknown:
        return []
    not_read = []
    lives = changes.lives(unknown)
    for one in reversed(known_snapshots(install, host, settings, ledger=ledger).snapshots):
        if not unknown:
            break
        if one.taken_at is None or one.problems:
            continue
        first, last = one.taken_at - TAKING_S, one.taken_at + TAKING_S
        there = {i for i in unknown if lives[i].earliest <= last and lives[i].latest >= first}
        if not there:
            continue
        if Path(one.path, snapshot_core.SERVER).is_dir():
            why = "holds the points as its server wrote them, which only a server reads"
            not_read.append(NotChecked(one.path, why, gap=False))
            continue
        try:
            found = _owners_in(one.path, there)
        except CouldNotRead as problem:
            not_read.append(NotChecked(one.path, problem.message))
            continue
        owners.update((i, (owner, f"the snapshot {one.name}")) for i, owner in found.items())
        unknown -= found.keys()
    return not_read


def _owners_in(path: str, ids: Collection[str]) -> dict[str, Owner]:
    store = EmbeddedStore(str(Path(path, snapshot_core.VECTORS)), alone=True)
    memories, _entities, gaps = collections_of(store)
    if gaps:
        raise CouldNotRead(gaps[0].why)
    found: dict[str, Owner] = {}

    def keep(_row: int, point_id: PointId, payload: Mapping[str, Any], _vector: VectorFacts) -> None:
        if str(point_id) in ids:
            found[str(point_id)] = owner_in(payload)

    for info in memories:
        read = store.points(info, keep)
        if read.file.problem is not None:
            raise CouldNotRead(read.file.problem.detail)
    return found


# --- As of -----------------------------------------------------------------------------------------


def as_of(past: Past, host: Host, at: float, scope: Scope | None, *, texts: int | None = None) -> AsOf:
    """What was remembered at `at` (seconds since 1970), by the log; with a scope, what was of it.

    The texts of the first `texts` memories of each owner are read, all with None, none with 0. Raises CouldNotRead.
    """
    changes = past.changes
    certain, doubtful = changes.at(at)
    unowned = 0
    if scope is not None:
        unowned = sum(1 for s in (*certain, *doubtful) if s.memory_id not in past.owners)
        certain = [s for s in certain if _is_of(past, s, scope)]
        doubtful = [s for s in doubtful if _is_of(past, s, scope)]
    memories = [_remembered(past, state) for state in certain]
    maybe = [_remembered(past, state) for state in doubtful]
    states = {s.memory_id: s for s in (*certain, *doubtful)}
    if texts != 0:
        shown_ones = {
            one.memory_id
            for some in (memories, maybe)
            for _, group in core.by_owner(some)
            for one in group[:texts]
        }
        rows, following = _rows(past, host, [states[i] for i in shown_ones])
        memories = [_with_texts(past, one, states, rows, following, shown_ones) for one in memories]
        maybe = [_with_texts(past, one, states, rows, following, shown_ones) for one in maybe]
    return AsOf(
        install=past.install,
        at=at,
        memories=tuple(memories),
        maybe=tuple(maybe),
        rows=len(changes),
        untimed=changes.untimed,
        begins=changes.begins,
        ends=changes.ends,
        unowned=unowned,
        notes=_notes(past, at, memories, maybe, scope),
        not_read=past.not_read,
    )


def _is_of(past: Past, state: State, scope: Scope) -> bool:
    known = past.owners.get(state.memory_id)
    return known is not None and scope.covers(known[0])


def _remembered(past: Past, state: State) -> Remembered:
    changes = past.changes
    owner, by = past.owners.get(state.memory_id, (None, None))
    added = changes.when(state.first) if changes.event(state.first) == ADD else None
    row = state.row
    return Remembered(
        memory_id=state.memory_id,
        owner=owner,
        owner_by=by,
        rowid=None if row == NEVER else changes.rowids[row],
        since=None if row == NEVER else changes.when(row),
        added=added,
        doubt=state.doubt,
        doubt_when=None if state.other == NEVER else changes.when(state.other),
    )


def _rows(past: Past, host: Host, states: Sequence[State]) -> tuple[dict[int, HistoryRow], dict[int, int]]:
    """The rows, by their place, that the texts of these states are in, and the next row of the same memory of each."""
    places = {i for state in states for i in (state.row, state.other, state.first) if i != NEVER}
    following = past.changes.following(places)
    places |= set(following.values())
    return _fetched(past, host, places), following


def _fetched(past: Past, host: Host, places: Collection[int]) -> dict[int, HistoryRow]:
    changes = past.changes
    if not places:
        return {}
    path = past.install.history.value
    rowids = [changes.rowids[i] for i in places]

    def failed(problem: FileProblem) -> dict[int, HistoryRow]:
        raise CouldNotRead(f"{path}: {problem.detail}")

    rows = where_it_lies(path, host, lambda inner: rows_at(inner, rowids), failed)
    found = {}
    for i in places:
        row = rows.get(changes.rowids[i])
        if row is None or str(row.memory_id) != changes.memories[changes.of[i]]:
            raise CouldNotRead(f"{path}: was made anew while it was read", "run it again")
        found[i] = row
    return found


def _with_texts(
    past: Past,
    one: Remembered,
    states: Mapping[str, State],
    rows: Mapping[int, HistoryRow],
    following: Mapping[int, int],
    wanted: Collection[str],
) -> Remembered:
    if one.memory_id not in wanted:
        return one
    state = states[one.memory_id]

    def of(place: int) -> str | None:
        if place == NEVER:
            return None
        after = following.get(place)
        return core.text_of(rows[place], None if after is None else rows[after])

    if state.doubt == "no-add":
        old = rows[state.first].old_memory
        return core.with_texts(one, old if isinstance(old, str) and old else None, None)
    if state.doubt == "added":
        return core.with_texts(one, of(state.other), None)
    text = of(state.row)
    return core.with_texts(one, text, of(state.other) if state.doubt == "text" else None)


def _notes(
    past: Past, at: float, memories: Sequence[Remembered], maybe: Sequence[Remembered], scope: Scope | None
) -> tuple[str, ...]:
    """What the log cannot tell of that time."""
    changes, seen = past.changes, past.seen
    notes = []
    if changes.begins is None:
        notes.append("No row of the log has a time: of no moment is it known what was remembered.")
    elif at < changes.begins:
        notes.append(
            f"The log begins at {shown(changes.begins)}: of what was before it knows nothing, also where an earlier "
            "log was reset or lost."
        )
    notes += [
        f"{_count(table.missing_rows, 'row', 'rows')} of the log in its table {table.name}, where an interrupted "
        "migration left them, not in this (mem0audit explain I205)."
        for table in past.history.stranded
        if table.missing_rows
    ]
    unlogged = [
        point
        for i, point in seen.points.items()
        if changes.place(i) is None and (scope is None or scope.covers(point.owner))
    ]
    if unlogged:
        then = sum(1 for p in unlogged if p.created_at is not None and p.created_at <= at)
        notes.append(
            f"{_count(len(unlogged), 'memory', 'memories')} of the store without a row in the log (reset, lost, or a "
            f"write cut short), not in this; {then:,} of them there then, by created_at."
        )
    live = set(changes.live_at_end()) if seen.points or seen.whole else set()
    if seen.whole:
        gone = sum(1 for one in memories if one.memory_id in live and one.memory_id not in seen.points)
        if gone:
            notes.append(
                f"{_count(gone, 'of these is', 'of these are')} gone from the store today without a row that says so, "
                "and may have been gone then (mem0audit audit)."
            )
    back = _back(past, at, scope, live)
    if back:
        notes.append(
            f"{_count(back, 'memory', 'memories')} that the log has as deleted by then, in the store today all the "
            "same, and maybe then (mem0audit audit --select D301)."
        )
    moved = _changed_without_row(past, memories)
    if moved:
        notes.append(
            f"{_count(moved, 'of these was', 'of these were')} changed later than the last row says (mem0 1.0.9 to "
            "1.0.11 change agent and run so): whose then is not sure."
        )
    return tuple(notes)


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _back(past: Past, at: float, scope: Scope | None, live: Collection[str]) -> int:
    """How many memories of the store the log has as deleted at `at`, and for good."""
    deleted = [
        i
        for i, point in past.seen.points.items()
        if i not in live and (scope is None or scope.covers(point.owner))
    ]
    lives = past.changes.lives(deleted).values() if deleted else ()
    return sum(1 for one in lives if one.latest <= at)


def _changed_without_row(past: Past, memories: Sequence[Remembered]) -> int:
    last: dict[int, float] = {}
    changes = past.changes
    for i, place in enumerate(changes.of):
        last[place] = changes.when(i).latest
    count = 0
    for one in memories:
        point = past.seen.points.get(one.memory_id)
        at = changes.place(one.memory_id)
        if point is None or at is None or point.updated_at is None:
            continue
        count += point.updated_at > last[at] + core.SLACK_S
    return count


def as_of_diff(past: Past, host: Host, a: float, b: float, scope: Scope | None, *, texts: bool) -> AsOfDiff:
    """What was added, changed and removed from `a` to `b`, by the log. Raises CouldNotRead."""
    first, second = as_of(past, host, a, scope, texts=0), as_of(past, host, b, scope, texts=0)
    doubtful = frozenset(one.memory_id for side in (first, second) for one in side.maybe)
    before, after = ({m.memory_id: m for m in side.memories} for side in (first, second))
    differ = {
        i
        for i in (*before, *after)
        if i not in doubtful and (i not in before or i not in after or before[i].rowid != after[i].rowid)
    }
    needed = {i for i in differ if texts or (i in before and i in after)}
    place = {rowid: i for i, rowid in enumerate(past.changes.rowids)} if needed else {}
    for side in (before, after):
        states = {
            i: State(i, place[side[i].rowid], NEVER, NEVER)  # type: ignore[index]
            for i in needed
            if i in side
        }
        rows, following = _rows(past, host, list(states.values()))
        for i in states:
            side[i] = _with_texts(past, side[i], states, rows, following, needed)
    scopes, unchanged = core.compare(before, after, doubtful)
    return AsOfDiff(first, second, scopes, unchanged, len(doubtful), texts)


# --- One memory ------------------------------------------------------------------------------------


def life_of(install: Install, host: Host, ids: Collection[str]) -> tuple[Step, ...]:
    """Every row of a memory (under any of these spellings of its id) with when it was written. Raises CouldNotRead."""
    with no_collector():
        history, changes = read_log(install, host)
    changes.weigh(host.now)
    past = Past(install, history, changes, _Seen(), {}, (), host.now)
    places = sorted(i for one in set(ids) for i in changes.rows_of(one))
    rows = _fetched(past, host, places)
    following = changes.following(places)
    steps = []
    for i in places:
        after = following.get(i)
        text = None
        if changes.event(i) != DELETE:
            text = core.text_of(rows[i], None if after is None else rows[after])
        actor, role = rows[i].actor_id, rows[i].role
        steps.append(
            Step(
                changes.rowids[i],
                changes.event(i),
                changes.when(i),
                text,
                actor if isinstance(actor, str) else None,
                role if isinstance(role, str) else None,
            )
        )
    return tuple(steps)
