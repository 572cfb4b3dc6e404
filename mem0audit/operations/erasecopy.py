"""Who was erased since a snapshot was taken is erased in the copy that a restore stages, before anybody can read it.

The record says who by salted digests alone: so every owner and id of the copy is hashed. What is theirs is deleted
through mem0, the texts that mem0 leaves are emptied, the files are rebuilt; then the copy must be what it was less
them, and no byte of it may hold a text of theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from mem0audit.core import snapshot as snapshot_core
from mem0audit.core import versions
from mem0audit.core.erasures import Covering, Erasure, made_at
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused, UsageProblem
from mem0audit.core.model import (
    Finding,
    HistoryRow,
    Install,
    NotChecked,
    Origin,
    PointId,
    PointStore,
    Severity,
    VectorFacts,
)
from mem0audit.core.points import Owner
from mem0audit.core.reading import Reading
from mem0audit.core.restore import ToErase
from mem0audit.core.snapshot import Manifest, canonical
from mem0audit.core.times import instant
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.copied import agent_of, counted, counts, digests, install_of, judged
from mem0audit.operations.erase import delete_in_copy, entities_in_copy
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, look_at_copy, no_collector
from mem0audit.operations.mem0door import Door, find_door_to_copy, open_door
from mem0audit.operations.residue import (
    Whose,
    collections_of,
    owner_in,
    read_log,
    read_vectors,
    search_stores,
    until_when,
)
from mem0audit.operations.stores import store_of_copy
from mem0audit.operations.verify import show_snapshot
from mem0audit.stores import exchange, files, overwrite, snapshots
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import TextRow, read_rows, read_texts
from mem0audit.stores.ledger import CannotUse

SHORT: Final = 12
"""Texts of fewer bytes stand in anybody's bytes: they must be gone from the rows, and are not searched for."""
_STORES: Final = ("D", "H", "E", "I")


# --- What of theirs is in it --------------------------------------------------------------------------

Lend = Callable[[Path, Manifest], AbstractContextManager[PointStore]]
"""The points of a snapshot, to be read; may raise Mem0auditError."""


@contextmanager
def _of_folder(folder: Path, manifest: Manifest) -> Iterator[PointStore]:
    if manifest.server is not None:
        raise Refused(f"{folder}: its points are in a Qdrant server's own format")
    yield EmbeddedStore(str(folder / snapshot_core.VECTORS), alone=True)


def plan_erasing(
    snapshot: str,
    manifest: Manifest,
    erasures: Sequence[Erasure],
    of: Install,
    host: Host,
    say: Progress,
    *,
    ledger: bool = True,
    uid: int | None = None,
    copy: Install | None = None,
    lend: Lend = _of_folder,
) -> ToErase:
    """What of a snapshot these erasures cover, and under which mem0 it is deleted in a copy. Changes nothing.

    `of` is the install whose ledger says whose a row is, and whose agent's mem0 is asked for; `uid` is who will own
    the copy. Of a server's snapshot `copy` says which collections have its points; `lend` gives those of another
    snapshot that lies beside. Raises Refused where something cannot be read (so that it is not known whose it is), or
    no mem0 may change the copy.
    """
    if not erasures:
        return ToErase()
    covering = Covering(erasures)
    say("looking for who was erased since", None, None)
    copy = copy or install_of(manifest, Path(snapshot))
    store = store_of_copy(copy)
    with no_collector():
        found = _found(Path(snapshot), manifest, store, covering, _owners(of, host, ledger), lend)
        ids = frozenset(str(i) for some in found.mine.values() for i in some)
        ever = ids | found.earlier
        entities = {name: entities_in_copy(store, name, covering, ids, ever, say) for name in found.mine}
        who = Whose(covering, ever, frozenset(found.known), frozenset(found.spared))
        vectors = read_vectors(store, who)
        log = read_log(copy.history.value, who, vectors.everybody, alone=True)
    for gap in (*vectors.not_read, *log.not_read):
        raise _unreadable(snapshot, gap)
    number = {kind: sum(r.count or 0 for r in log.rows if r.kind == kind) for kind in _KINDS}
    todo = ToErase(
        erasures=len(covering.met),
        memories=len(ids),
        entities=sum(len(gone) for _, gone in entities.values()),
        links=sum(len(dead) for some, gone in entities.values() for i, dead in some.items() if i not in gone),
        rows=number["history"] + number["stranded"],
        messages=number["messages"],
        unattributed=log.unattributed,
        not_read=tuple(found.not_read),
        covering=covering,
        ids=found.mine,
        ever=ever,
        spared=frozenset(found.spared),
        losing={name: losing for name, (losing, _) in entities.items()},
        gone={name: gone for name, (_, gone) in entities.items()},
        texts=tuple(dict.fromkeys((*vectors.texts, *log.texts))),
    )
    why = overwrite.why_not_emptied(copy.history.value)
    if todo.anything and why is not None:
        raise Refused(
            f"{copy.history.value}: {why}: texts of somebody erased since cannot be emptied in a copy"
        )
    doors = _doors(snapshot, copy, todo, of, host, ledger, uid)
    if not doors:
        return todo
    door = doors[0]
    return replace(
        todo,
        mem0=door.mem0,
        interpreter=door.interpreter,
        how_found=door.source,
        own=door.own,
        user=door.user,
    )


_KINDS: Final = ("history", "stranded", "messages")


def _unreadable(snapshot: str, gap: NotChecked) -> Refused:
    return Refused(
        f"{snapshot}: somebody was erased since it was taken, and whom it holds is not known ({gap.what}: {gap.why})",
        f"everything that is wrong with it: mem0audit snapshot verify {shell_word(snapshot)}",
    )


@dataclass
class _Found:
    """Points of theirs by collection; memories of theirs that are in no collection any more (`earlier`); those whose
    owner is known to be somebody else (`known`); those that they were remembered by after the erasure (`spared`)."""

    mine: dict[str, tuple[PointId, ...]] = field(default_factory=dict)
    earlier: frozenset[str] = frozenset()
    known: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)
    not_read: list[str] = field(default_factory=list)


def _owners(of: Install, host: Host, ledger: bool) -> Mapping[str, Owner]:
    """Whose every memory is that the ledger ever saw; nobody's where there is none to ask."""
    with ledgers.opened(of, host, wanted=ledger) as book:
        if book is None or isinstance(book, NotChecked):
            return {}
        try:
            return book.owners()
        except CannotUse:
            return {}  # what that leaves unattributed is counted


def _found(
    snapshot: Path,
    manifest: Manifest,
    store: PointStore,
    covering: Covering,
    owners: Mapping[str, Owner],
    lend: Lend,
) -> _Found:
    """Whose the points and the rows of the log are: by the points themselves, by the ids on record, by the ledger, by
    the other snapshots that lie beside."""
    found = _Found()
    theirs = _of_points(snapshot, manifest, store, covering, found)
    log = _Log()
    state, rows = read_rows(str(snapshot / snapshot_core.HISTORY), lambda: log.anew(), alone=True)
    if state.problem is not None or rows is None:
        raise _unreadable(str(snapshot), NotChecked(snapshot_core.HISTORY, "its log does not read"))
    stranded = _stranded(str(snapshot / snapshot_core.HISTORY))
    asked = {i: at for i, at in {**stranded, **rows.first}.items() if i not in found.known | found.spared}
    earlier = set()
    unknown = set()
    for memory_id, first in asked.items():
        if memory_id in theirs or covering.has_id(memory_id):
            earlier.add(memory_id)
        elif memory_id in owners:
            # in a pair taken before the erasure every row is older
            at = None if manifest.pair else first
            mine = covering.covers_memory(owners[memory_id], memory_id, at)
            (earlier if mine else found.known).add(memory_id)
        else:
            unknown.add(memory_id)
    for folder in _beside(snapshot) if unknown else ():
        more = _Found()
        try:
            its = show_snapshot(None, str(folder)).manifest
            assert its is not None
            with lend(folder, its) as beside:
                of_it = _of_points(folder, its, beside, covering, more, unknown)
        except Mem0auditError as problem:
            found.not_read.append(problem.message)
            continue
        earlier |= of_it
        found.known |= more.known
        unknown -= of_it | more.known | more.spared
        if not unknown:
            break
    found.earlier = frozenset(earlier)
    return found


def _stranded(path: str) -> dict[str, None]:
    """The memories of the rows that a migration left in tables of their own: old ones, and mem0 reads none."""
    found: dict[str, None] = {}

    def take(page: list[TextRow]) -> None:
        found.update((str(row.memory_id), None) for row in page if row.table != "history")

    read_texts(path, take, lambda _: None, found.clear, alone=True)
    return found  # what does not read is refused where the texts are looked for


def _of_points(
    snapshot: Path,
    manifest: Manifest,
    store: PointStore,
    covering: Covering,
    found: _Found,
    wanted: Collection[str] | None = None,
) -> set[str]:
    """Takes the points of a snapshot (the `wanted` ones): the ids of those that are theirs. Raises Refused."""
    theirs: set[str] = set()

    def keep(_row: int, point_id: PointId, payload: Mapping[str, Any], _vector: VectorFacts) -> str:
        if wanted is not None and str(point_id) not in wanted:
            return ""
        owner = owner_in(payload)
        if covering.covers_memory(owner, point_id, made_at(payload.get("created_at"), manifest)):
            return "mine"
        return "spared" if covering.covers(owner) else "known"

    memories, _, gaps = collections_of(store)
    for info in memories:
        read = store.points(info, keep)
        if read.file.problem is not None:
            gaps.append(NotChecked(info.path, read.file.problem.detail))
        if read.bad or read.unsafe:
            gaps.append(NotChecked(info.path, f"{len(read.bad) + len(read.unsafe):,} points do not decode"))
        mine = tuple(i for i, what in read.rows.items() if what == "mine")
        found.mine[info.name] = mine
        theirs.update(map(str, mine))
        found.known.update(str(i) for i, what in read.rows.items() if what == "known")
        found.spared.update(str(i) for i, what in read.rows.items() if what == "spared")
    if gaps:
        raise _unreadable(str(snapshot), gaps[0])
    return theirs


def _beside(snapshot: Path) -> list[Path]:
    """The other snapshots of the folder, the newest first."""
    real = Path(os.path.realpath(snapshot))
    try:
        names = snapshots.names(real.parent)
    except OSError:
        return []
    return [real.parent / name for name in reversed(names) if name != real.name]


class _Log:
    """Takes history rows (a `model.RowSink`): when each memory was logged first."""

    def __init__(self) -> None:
        self.first: dict[str, float | None] = {}

    def anew(self) -> _Log:
        """From the first row on."""
        self.first = {}
        return self

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows."""
        for row in page:
            if str(row.memory_id) not in self.first:
                self.first[str(row.memory_id)] = instant(row.created_at)


# --- Under which mem0 ---------------------------------------------------------------------------------


def _doors(
    snapshot: str, copy: Install, todo: ToErase, of: Install, host: Host, ledger: bool, uid: int | None
) -> list[Door]:
    """The door to each collection that something is deleted in. Raises Refused."""
    doors = []
    for name, ids in todo.ids.items():
        if not ids and not todo.losing.get(name):
            continue
        one = replace(copy, collection=Origin(name, "the snapshot"))
        try:
            door = find_door_to_copy(one, of, host, ledger=ledger, uid=uid)
            if todo.losing.get(name) and (versions.parse(door.mem0) or (0,)) < (2, 0, 0):
                raise Refused(
                    f"mem0 {door.mem0} knows no entities, and the snapshot has some that mem0 2.x made"
                )
        except (Refused, UsageProblem, CouldNotRead) as problem:
            stays = (
                f"the snapshot stays {until_when(snapshot, host)}; one that was taken since can be restored: "
                "mem0audit snapshot list"
            )
            raise Refused(
                f"{snapshot} holds {len(ids):,} memories of somebody who was erased since (B905), and no mem0 is here "
                f"that may delete them in a copy: {problem.message}",
                "\n".join(filter(None, (problem.hint, stays))),
            ) from None
        doors.append(door)
    return doors


# --- Done in the staged copy --------------------------------------------------------------------------


def erase_in_copy(
    todo: ToErase,
    manifest: Manifest,
    history: Path,
    vectors: Path,
    of: Install,
    host: Host,
    say: Progress,
    *,
    ledger: bool = True,
    owner: tuple[int, int] | None = None,
) -> Manifest:
    """Erases what was planned in staged copies that are proven to be the snapshot's; the manifest of what they hold
    then. `owner` is who they will belong to.

    Raises Failed (with both stores of the install as they were) where the copies are not the snapshot less what was
    erased, or a text of theirs is still in some byte; Refused, OSError, sqlite3.Error.
    """
    collection = manifest.collection
    copy = Install(
        Origin(str(history), "staged"),
        Origin(str(vectors), "staged"),
        collection,
        Origin(str(history.parent), "staged"),
    )
    before = look_at_copy(copy, agent_of(manifest), manifest.taken_at, say)
    log = digest_of_log(history, todo.ever)
    names, meta = _names(history, vectors), _meta(vectors)
    through_mem0(todo, copy, [history, vectors], of, host, say, ledger=ledger, owner=owner)
    left = _names(history, vectors)
    if left != names:
        raise Failed(
            f"{sorted(left ^ names)[0]} came or went as mem0 changed the copies; nothing was changed"
        )
    if meta is not None and _meta(vectors) != meta:
        # a client writes it in its own format, and no collection came or went
        files.write_file(vectors / META, meta)
    empty_and_rebuild(history, sorted(vectors.glob("collection/**/storage.sqlite")), todo, say)
    say("reading the copies as a pair", None, None)
    after = look_at_copy(copy, agent_of(manifest), manifest.taken_at, say)
    prove(before, after, history, log, todo)
    search_copy(copy, (), todo, say)
    points, rows = digests(after)
    return replace(
        manifest,
        counts=counts(after),
        points_digest=points,
        history_digest=rows,
        findings=counted(judged(after)),
    )


def through_mem0(
    todo: ToErase,
    copy: Install,
    places: Sequence[Path],
    of: Install,
    host: Host,
    say: Progress,
    *,
    ledger: bool,
    owner: tuple[int, int] | None,
) -> None:
    """Deletes the memories in a copy through mem0, and takes their links from its entities. `places` are the staged log
    and, of a folder's copy, its vectors; `owner` is who mem0 may be run as. Raises Failed, Refused, OSError."""
    uid = owner[0] if owner is not None else None
    doors = _doors(str(places[0].parent), copy, todo, of, host, ledger, uid)
    user = doors[0].user if doors else None
    try:
        with ExitStack() as stack:
            there = list(places)
            if user is not None and owner is not None:
                there = stack.enter_context(exchange.lent(there, owner))
            for found in doors:
                say("erasing who was erased since", None, None)
                vectors = found.vectors if copy.vectors is None else str(there[1])
                door = replace(found, history=str(there[0]), vectors=vectors)
                with open_door(door, host) as memory:
                    ids = todo.ids[door.collection]
                    delete_in_copy(memory, door, todo.covering, ids, todo.ever, say)
    except Mem0auditError as problem:
        raise Failed(f"{problem.message}; nothing was changed", problem.hint) from None


def empty_and_rebuild(history: Path, others: Sequence[Path], todo: ToErase, say: Progress) -> None:
    """Empties the texts that mem0 leaves in the log, and rebuilds it and the other databases of the copy. Raises
    Failed, OSError, sqlite3.Error."""
    say("emptying texts", None, None)
    try:
        overwrite.empty_texts(history, todo.ever, todo.covering.covers_messages)
    except overwrite.NotAsMem0Writes as problem:
        raise Failed(f"{history}: {problem}; nothing was changed") from None
    say("rebuilding the files", None, None)
    try:
        for path in (history, *others):
            overwrite.rebuild(path)
    except overwrite.WentWrong as problem:
        raise Failed(f"{problem.copy} is not what it was after it was rebuilt; nothing was changed") from None


def prove(before: Reading, after: Reading, history: Path, log: LogDigest, todo: ToErase) -> None:
    """Raises Failed where a copy is not what it was less those who were erased."""
    wrong = _wrong(before, after, todo) or _wrong_log(history, todo, log)
    if wrong is not None:
        raise Failed(
            f"the copies are not the snapshot less who was erased since ({wrong}); nothing was changed"
        )


META: Final = "meta.json"


def _meta(vectors: Path) -> bytes | None:
    """What meta.json holds; None where there is none. Raises OSError, Failed."""
    try:
        return snapshots.small_file(vectors / META)
    except FileNotFoundError:
        return None
    except ValueError as problem:
        raise Failed(f"{vectors / META}: {problem}; nothing was changed") from None


def _names(history: Path, vectors: Path) -> set[str]:
    """Every file of both copies, journals too. Raises OSError."""
    beside = {entry.name for entry in history.parent.iterdir() if entry.name.startswith(history.name)}
    sizes, odd = snapshots.tree(vectors)
    return {*beside, *sizes, *odd}


class LogDigest:
    """Takes history rows (a `model.RowSink`) and digests the first of them in their order, the texts of these memories
    taken as empty, where they are not NULL. What comes after those must be their deletions: the number of others is
    counted."""

    def __init__(self, ids: Collection[str], first: int | None) -> None:
        self.ids = ids
        self.first = first
        self.count = 0
        self.others = 0
        self.sha = sha256()

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows."""
        for row in page:
            mine = str(row.memory_id) in self.ids
            if mine:
                row = row._replace(
                    old_memory=None if row.old_memory is None else "",
                    new_memory=None if row.new_memory is None else "",
                )
            if self.first is None or self.count < self.first:
                self.sha.update((canonical(tuple(row[1:])) + "\n").encode("utf-8", "surrogatepass"))
            elif not mine or row.event != "DELETE":
                self.others += 1
            self.count += 1


def digest_of_log(history: Path, ids: Collection[str], first: int | None = None) -> LogDigest:
    """The first rows of a log (all of them) digested. Raises Failed."""
    state, rows = read_rows(str(history), lambda: LogDigest(ids, first), alone=True)
    if state.problem is not None or rows is None:
        raise Failed(
            f"{history}: {state.problem.detail if state.problem else 'does not read'}; nothing was changed"
        )
    return rows


def _wrong_log(history: Path, todo: ToErase, before: LogDigest) -> str | None:
    """What is different in the log, but that their texts are empty and their deletions logged."""
    after = digest_of_log(history, todo.ever, before.count)
    if after.count < before.count or after.sha.digest() != before.sha.digest():
        return "the rows of the log"
    if after.others:
        return f"{after.others:,} rows of the log are new"
    return None


def _wrong(before: Reading, after: Reading, todo: ToErase) -> str | None:
    """What is different in the points, but that theirs are gone; None where nothing is."""
    if after.not_read:
        return after.not_read[0].why
    was = {one.info.name: one.read.rows for one in before.collections}
    now = {one.info.name: one.read.rows for one in after.collections}
    if set(was) != set(now):
        return "the collections"
    entities = {one.info.name for one in before.entities}
    for name, rows in was.items():
        base = name[: -len(ENTITIES_SUFFIX)] if name in entities else name
        losing = todo.losing.get(base, {}) if name in entities else {}
        gone: Collection[PointId] = todo.gone.get(base, ()) if name in entities else todo.ids.get(name, ())
        if set(now[name]) != set(rows).difference(gone):
            return f"the points of {name}"
        for point_id, record in now[name].items():
            old: Any = rows[point_id]
            if point_id in losing:
                dead = set(losing[point_id])
                links = tuple(link for link in old.links if link not in dead)
                # a client normalises the vector of a point whose payload it changes
                if (record.owner, record.links) != (old.owner, links):  # type: ignore[union-attr]
                    return f"an entity of {name}"
            elif tuple(record[1:]) != tuple(old[1:]):
                return f"a point of {name}"
    found = {_key(f) for f in judged(before)}
    # mem0's own rows of the deletions may be an INFO, as that the log has times with several offsets now
    new = [f for f in judged(after) if f.severity > Severity.INFO and f.code.startswith(_STORES)]
    new = [f for f in new if _key(f) not in found]
    new = [f for f in new if f.memory_id is None or str(f.memory_id) not in todo.ever]
    return f"finding {new[0].code}" if new else None


def _key(found: Finding) -> tuple[object, ...]:
    return found.code, found.memory_id, found.subject


def search_copy(copy: Install, places: Sequence[str], todo: ToErase, say: Progress) -> None:
    """Reads every row and every byte of the copies for what is theirs, and of these other files. Raises Failed where
    something is."""
    who = Whose(todo.covering, todo.ever, frozenset(), todo.spared)
    vectors = read_vectors(store_of_copy(copy), who)
    log = read_log(copy.history.value, who, vectors.everybody, alone=True)
    gaps = [*vectors.not_read, *log.not_read]
    rows = [
        r for r in (*vectors.rows, *log.rows) if r.count and r.kind not in ("entities", "shared entities")
    ]
    texts = [text for text in todo.texts if len(text.encode("utf-8", "surrogatepass")) >= SHORT]
    found, more = search_stores(copy, todo.ever, texts, say, places)
    gaps += more
    if gaps:
        raise Failed(
            f"{gaps[0].what}: {gaps[0].why}: it is not known whether all is erased; nothing was changed"
        )
    left = [f"{r.path} ({r.count:,} rows)" for r in rows]
    left += [
        f"{one.path} ({one.whole + one.pieces + one.short_alone:,} places)" for one in found if one.remains
    ]
    if left:
        raise Failed(f"text of somebody erased is still in the copy: {left[0]}; nothing was changed")
