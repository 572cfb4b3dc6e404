"""Delete a scope's memories through mem0's own API, by id, and one sweep over the entities that linked them.

Before the first deletion the ids are in the ledger, together with the record of the erasure; after the last step they
go. Whatever cuts it off between, the same command finishes it, also after the last memory is gone. The last steps, the
agent stopped: texts are emptied where that is asked for, and every byte is searched for what is still readable.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mem0audit import __version__
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core import versions
from mem0audit.core.erase import (
    Emptied,
    Emptying,
    Erased,
    ErasePlan,
    HeldBy,
    Intent,
    Left,
    ShortLived,
    before_and_after,
    counted,
    intent_text,
    parse_intent,
)
from mem0audit.core.erasures import Erasure, make_erasure
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused, UsageProblem
from mem0audit.core.ledger import oldest_first, predecessors
from mem0audit.core.model import (
    CollectionInfo,
    HistoryRow,
    Holder,
    Install,
    NotChecked,
    Origin,
    PointId,
    PointStore,
    VectorFacts,
)
from mem0audit.core.points import EntityRecord, Owner, keep_entity, text_digest
from mem0audit.core.reading import TELEMETRY_COLLECTIONS
from mem0audit.core.residue import FileSearch, Residue
from mem0audit.core.scopes import Scope, Whom
from mem0audit.core.times import shown
from mem0audit.core.words import shell_word
from mem0audit.install.candidates import find_candidates
from mem0audit.install.config import Settings
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.erasures import erasures_on_record, keep_beside
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.known import known_snapshots
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, no_collector, no_progress
from mem0audit.operations.mem0door import (
    Door,
    find_door,
    inside,
    open_door,
    refuse_and_remember,
    remember_agent,
)
from mem0audit.operations.pairs import plan_pair, take_pair
from mem0audit.operations.redact import apply_redaction, plan_clearing, plan_redaction
from mem0audit.operations.residue import (
    LogSeen,
    VectorsSeen,
    Whose,
    facts_rows,
    read_log,
    read_vectors,
    residue,
)
from mem0audit.operations.seal import explain
from mem0audit.operations.serverresidue import Beside, in_other_collections
from mem0audit.operations.targets import named, refuse_in_use
from mem0audit.stores import facts, files, overwrite
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import MessageRow, TextRow, read_rows, read_texts
from mem0audit.stores.ledger import CannotUse, Ledger
from mem0audit.stores.mem0api import Mem0Worker
from mem0audit.stores.mem0live import LiveMemory
from mem0audit.stores.pickles import normalise_id
from mem0audit.stores.snapshots import small_file

WAIT_S: Final = 60.0
"""How long the record beside snapshots waits for a snapshot that is being taken there."""
_TIMES: Final = 10
"""So often what a running agent's other threads made Qdrant take back is deleted again."""
_AGAIN: Final = "the same command finishes it"


# --- Plan ------------------------------------------------------------------------------------------


def plan_erase(
    install: Install,
    host: Host,
    *,
    scope: Scope | None = None,
    memory_ids: Sequence[str] = (),
    only_this_store: bool = False,
    redact: bool = False,
    snapshot: ShortLived | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
    door: Door | None = None,
) -> ErasePlan:
    """What a deletion would do, of a scope or of single memories; without both, of the one that was cut off here.

    With `redact` the texts that mem0 leaves are emptied afterwards; where nothing is named, what was cut off is
    finished as it was begun. `snapshot` is taken first, unless some was deleted before. Reads everything, changes
    nothing. Raises Refused while a process has the install open, where no mem0 may change it, where a restore or
    another deletion was cut off here, where no ledger can be kept (it holds the record), where texts could not be
    emptied, and where another store of this machine has memories of the scope too (with `only_this_store` none is
    looked at). CouldNotRead where there is nothing of it, UsageProblem where nothing is named and nothing was cut off.
    `door` is for a caller that has the install open itself (`erase_inside`).
    """
    say = progress or no_progress
    if install.vectors is None and install.server_url is None:
        raise Refused(f"the vector store is {install.provider}: this version deletes in those of Qdrant only")
    refuse_left_moves(install, host)
    left_over = interrupted(install, host)
    if left_over is not None and left_over.course != "clean":
        raise Refused(
            f"a restore was cut off here ({left_over.folder}): it comes first",
            "mem0audit snapshot restore --in-place",
        )
    unseen, served = None, install.vectors is None
    held: tuple[Holder, ...] = ()
    if served and door is None:
        held = remember_agent(install, host)
    elif door is None:
        unseen = _refuse_in_use(install, host, scope, memory_ids)
    with ledgers.opened(install, host) as book:
        if isinstance(book, NotChecked):
            raise Refused(
                f"an erasure is kept on record in the ledger, so that no restore takes it back, and there is none: "
                f"{book.why}",
                "a folder that lasts can be named with XDG_STATE_HOME",
            )
        intent = _intent(book) if book is not None else None
        owners = _owners(book) if book is not None else {}
        successors = _successors(book, host.now) if book is not None else {}
    wanted = tuple(dict.fromkeys(_named_id(one) for one in memory_ids))
    if intent is not None:
        redact = redact or (intent.redact and scope is None and not wanted)
        scope, wanted = _same(intent, scope, wanted)
        if intent.redact and door is not None:
            words = " ".join(map(shell_word, intent.scope.words)) if intent.scope is not None else ""
            raise Refused(
                "a deletion was cut off that empties texts too: it is finished with the agent stopped",
                " ".join(filter(None, ("mem0audit delete", words, "--redact"))),
            )
    elif scope is None and not wanted:
        raise UsageProblem(
            "whose memories? No deletion was cut off here that would be finished",
            "name --user, --agent or --run, or single ones with --memory",
        )
    door = door or find_door(install, host)
    here = replace(install, collection=Origin(door.collection, install.collection.decided_by))
    store = door.store
    ever = frozenset(i for i, owner in owners.items() if scope is not None and scope.covers(owner))
    if intent is not None:
        ever |= frozenset(intent.ever)
    # what these replaced goes with them: it would be live again without them
    older = predecessors({*ever, *map(str, wanted)}, successors)
    ever |= older
    say("reading the memories", None, None)
    with no_collector():
        asked = frozenset(map(str, wanted)) | (frozenset(map(str, intent.ids)) if intent else frozenset())
        memories = _Memories(scope, asked | older)
        for info in store.layout().collections:
            if info.name == door.collection and info.has_folder:
                _read(store, info, memories)
    ever |= frozenset(map(str, memories.mine)) | frozenset(map(str, wanted))
    say("looking at the snapshots", None, None)
    snapshots, in_snapshots = _in_snapshots(here, host, settings or Settings(), scope, ever)
    ever |= in_snapshots  # also those that were deleted before the ledger saw them
    entities, gone, warnings = _entities(store, door, scope, memories, ever, say)
    say("reading the log", None, None)
    left = _left(door.history, scope, ever)
    who = Whose(scope, ever, frozenset(owners))
    seen, log = _seen(door, who)
    told = facts_rows(here, host, scope, ever)
    goes = told and (scope is not None or redact)
    if not (memories.mine or entities or left.history_rows or left.messages or goes or intent):
        said = scope.shown if scope is not None else ", ".join(map(str, wanted))
        raise CouldNotRead(f"nothing of {said} is in this store", "whose memories there are: mem0audit users")
    meanwhile = [f"{named(one)} has the log open, and may write meanwhile." for one in held[:1]]
    if served and door.server is not None:
        meanwhile.insert(
            0,
            f"Who else writes to {door.vectors} cannot be seen from here: what comes in between is looked for at the "
            "end.",
        )
    beside, not_asked = in_other_collections(here, scope, ever) if served else ([], [])
    emptying = None
    if redact:
        emptying = _emptying(here, host, door, memories, seen, log, beside, not_asked)
    if intent is not None and intent.redact and not redact:
        warnings.append(
            "The run that was cut off was to empty texts too; this one does not, without --redact."
        )
    if intent is not None and snapshot is not None:
        snapshot = None
        warnings.append("No snapshot is taken: it would hold the half that the run that was cut off left.")
    elif snapshot is not None:
        plan_pair(here, host, snapshot.folder)  # what would keep it from being taken is said now
    with_them = older & {str(i) for i in memories.mine} - asked - _in_scope(memories, scope)
    if with_them:
        warnings.append(
            f"{_memories(len(with_them))} that these replaced {'goes' if len(with_them) == 1 else 'go'} with them "
            f"(the ledger says so): {', '.join(sorted(with_them)[:3])}{' and more' if len(with_them) > 3 else ''}."
        )
    missing = [str(one) for one in wanted if one not in memories.mine]
    if missing and intent is None:
        warnings.append(
            f"Not in the store: {', '.join(missing[:3])}{' and more' if len(missing) > 3 else ''}."
        )
    # that the others are left alone was said: they are not even read
    others = () if only_this_store else find_candidates(install, host)
    folders = [c.path for c in others if c.kind == "vectors"]
    elsewhere, not_read = _elsewhere(door, scope, ever, folders, say)
    if others_there := sum(one.count for one in beside if not one.entities):
        elsewhere = (HeldBy(door.vectors, others_there, is_here=True), *elsewhere)
    if there := [one for one in elsewhere if not one.is_here]:
        listed = ", ".join(f"{one.path} ({one.memories:,})" for one in there)
        raise Refused(
            f"{scope.shown if scope is not None else 'what was named'} has memories in other stores too: {listed}",
            "delete in each of them (--qdrant-path, --history), or here alone: --only-this-store",
        )
    return ErasePlan(
        install=here,
        scope=scope,
        ids=tuple(oldest_first(list(memories.mine), successors)),
        ever=ever,
        entities=entities,
        entities_deleted=gone,
        left=left,
        owners={str(i): owner for i, owner in memories.mine.items()},
        mem0=door.mem0,
        interpreter=door.interpreter,
        how_found=door.source,
        own=door.own,
        spelled_otherwise=memories.otherwise,
        same_text_elsewhere=memories.same_text(),
        elsewhere=elsewhere,
        snapshots=snapshots,
        not_read=(*not_read, *not_asked),
        resumed=intent,
        warnings=tuple(warnings),
        meanwhile=tuple(meanwhile),
        unseen=unseen,
        places=counted((*seen.rows, *log.rows, *told)),
        texts=tuple(dict.fromkeys((*seen.texts, *log.texts))),
        blank=_blank(door.history, scope, ever) if redact else (0, 0),
        redact=emptying,
        snapshot=snapshot,
        facts=sum(one.count or 0 for one in told),
    )


def _seen(door: Door, who: Whose) -> tuple[VectorsSeen, LogSeen]:
    """Every place that is read as rows, as a residue report has it."""
    vectors = read_vectors(door.store, who)
    return vectors, read_log(door.history, replace(who, ids=who.ids | vectors.mine), vectors.everybody)


def _emptying(
    install: Install,
    host: Host,
    door: Door,
    memories: _Memories,
    seen: VectorsSeen,
    log: LogSeen,
    beside: Sequence[Beside],
    not_asked: Sequence[NotChecked],
) -> Emptying:
    """What is emptied after the deletion. Raises Refused, CouldNotRead where it could not be done then."""
    plan_clearing(install, host)
    why = overwrite.why_not_emptied(door.history)
    if why is not None:
        raise Refused(
            f"{door.history}: {why}: no text can be emptied in it", "without --redact it is left alone"
        )
    for gap in (*seen.not_read, *log.not_read, *not_asked):
        raise CouldNotRead(f"{gap.what}: {gap.why}; nothing was changed")
    found = {one.name: one.count or 0 for one in seen.rows if one.kind == "points"}
    # of other collections of a server those alone that this log tells of: one log may serve several
    found.update({one.name: one.of_ids for one in beside if not one.entities})
    if others := sum(found.values()) - len(memories.mine):
        names = ", ".join(name for name, count in found.items() if count and name != door.collection)
        raise Refused(
            f"{_memories(others)} of it would stay, and lose the texts of their log ({names or door.collection})",
            "delete them first (--collection NAME), or leave --redact out",
        )
    rows = sum(one.count or 0 for one in log.rows if one.kind in ("history", "stranded"))
    messages = sum(one.count or 0 for one in log.rows if one.kind == "messages")
    # mem0 writes each text once more, into the row that logs its deletion
    return Emptying(rows + memories.with_text, messages, log.unattributed)


def _blank(history: str, scope: Scope | None, ids: Collection[str]) -> tuple[int, int]:
    """How many rows of the log (and of what migrations left), and messages, of theirs have an empty text and no other.

    Their number grows by what is emptied, whoever was killed meanwhile.
    """
    rows = messages = 0

    def begin() -> None:
        nonlocal rows, messages
        rows = messages = 0

    def take(page: list[TextRow]) -> None:
        nonlocal rows
        rows += sum("" in row.texts and not any(row.texts) for row in page if str(row.memory_id) in ids)

    def take_messages(page: list[MessageRow]) -> None:
        nonlocal messages
        if scope is not None:
            messages += sum(
                row.content == "" and scope.covers_messages(str(row.session_scope)) for row in page
            )

    read_texts(history, take, take_messages, begin)
    return rows, messages


def _refuse_in_use(
    install: Install, host: Host, scope: Scope | None, memory_ids: Sequence[str]
) -> str | None:
    """As `refuse_in_use`, and the other way is named too."""
    try:
        return refuse_and_remember(install, host)
    except Refused as problem:
        named = [f"{key}={json.dumps(value)}" for key, value in scope.named] if scope is not None else []
        named += [f"memory_ids={json.dumps(list(memory_ids))}"] if memory_ids else []
        inside_it = f"Or inside the agent, while it runs:\n  mem0audit.erase(memory, {', '.join(named)})"
        raise Refused(problem.message, "\n".join(filter(None, (problem.hint, inside_it)))) from None


def _named_id(text: str) -> PointId:
    """An id as Qdrant has it: mem0's are UUIDs; numbers come from other programs."""
    is_number = text.isascii() and text.isdigit() and str(int(text[:30])) == text
    return int(text) if is_number else normalise_id(text)


def _intent(book: Ledger) -> Intent | None:
    try:
        text = book.erasing()
        return None if text is None else parse_intent(text)
    except CannotUse as error:
        raise Refused(f"the ledger {book.path} {error.why}: what was begun is not known") from None
    except ValueError:
        raise Refused(
            f"the ledger {book.path} holds a deletion that was begun by another version of mem0audit",
            "finish it with that version",
        ) from None


def _owners(book: Ledger) -> Mapping[str, Any]:
    try:
        return book.owners()
    except CannotUse as error:
        raise Refused(f"the ledger {book.path} {error.why}") from None


def _successors(book: Ledger, now: float) -> Mapping[str, str]:
    try:
        return book.successors(now)
    except CannotUse as error:
        raise Refused(f"the ledger {book.path} {error.why}") from None


def _in_scope(memories: _Memories, scope: Scope | None) -> set[str]:
    return {str(i) for i, owner in memories.mine.items() if scope is not None and scope.covers(owner)}


def _same(
    intent: Intent, scope: Scope | None, wanted: tuple[PointId, ...]
) -> tuple[Scope | None, tuple[PointId, ...]]:
    """What the deletion that was cut off was of. Raises Refused where another one is asked for."""
    asked = scope is not None or bool(wanted)
    named = {*map(str, intent.ids), *intent.ever}  # also those that were not in the store any more
    if asked and (scope != intent.scope or (scope is None and set(map(str, wanted)) - named)):
        begun = intent.scope.shown if intent.scope is not None else _memories(len(named))
        words = " ".join(map(shell_word, intent.scope.words)) if intent.scope is not None else ""
        redact = "--redact" if intent.redact else ""
        raise Refused(
            f"a deletion of {begun}, begun {shown(intent.at)}, was cut off here: it is finished first",
            " ".join(filter(None, ("mem0audit delete", words, redact))),
        )
    return intent.scope, tuple(wanted) if intent.scope is None else ()


def _memories(count: int) -> str:
    return "1 memory" if count == 1 else f"{count:,} memories"


# --- Reading ---------------------------------------------------------------------------------------


_Point = tuple[bool, "bytes | None", Owner]
"""Of one point: whether it is to go, a digest of its text, whose it is."""


class _Memories:
    """Takes every point of the memories' collection (a `model.KeepPoint`) and keeps which are to go.

    `live` are the ids of all; of the others, digests of their texts.
    """

    def __init__(self, scope: Scope | None, ids: frozenset[str]) -> None:
        self.scope = scope
        self.ids = ids
        self.live: set[str] = set()
        self.mine: dict[PointId, Owner] = {}
        self.otherwise = 0
        self.with_text = 0
        self._texts: set[bytes] = set()
        self._others: list[bytes] = []

    def __call__(
        self, _row: int, point_id: PointId, payload: Mapping[str, Any], _vector: VectorFacts
    ) -> _Point:
        owner = (payload.get("user_id"), payload.get("agent_id"), payload.get("run_id"))
        text = payload.get("data")
        digest = (
            text_digest(" ".join(text.casefold().split())) if type(text) is str and text.strip() else None
        )
        in_scope = self.scope is not None and self.scope.covers(owner)
        if in_scope and self.scope is not None and not self.scope.as_asked(owner):
            self.otherwise += 1
        return in_scope or str(point_id) in self.ids, digest, owner

    def take(self, rows: Mapping[PointId, _Point]) -> None:
        """The points as they were read, each once."""
        for point_id, (is_mine, digest, owner) in rows.items():
            self.live.add(str(point_id))
            if is_mine:
                self.mine[point_id] = owner
            if digest is not None:
                if is_mine:
                    self.with_text += 1
                    self._texts.add(digest)
                else:
                    self._others.append(digest)

    def same_text(self) -> int:
        """How many of the others say what one of these says."""
        return sum(digest in self._texts for digest in self._others)


def _read(store: PointStore, info: CollectionInfo, memories: _Memories) -> None:
    read = store.points(info, memories)
    if read.file.problem is not None:
        raise CouldNotRead(
            f"{read.file.path}: {read.file.problem.detail}: nothing is deleted that could not be read",
            "mem0audit audit",
        )
    if read.bad or read.unsafe:
        raise Refused(
            f"{info.path}: {len(read.bad) + len(read.unsafe):,} points do not decode: whose they are is not known",
            "mem0audit audit",
        )
    memories.take(read.rows)


def _entities(
    store: PointStore,
    door: Door,
    scope: Whom | None,
    memories: _Memories,
    ever: frozenset[str],
    say: Progress,
) -> tuple[dict[PointId, tuple[str, ...]], frozenset[PointId], list[str]]:
    """Which entities lose links to which memories, which of them go, and what is to be said of it."""
    losing, gone = _losing(store, door.collection, scope, memories, ever, say)
    if losing and (versions.parse(door.mem0) or (0,)) < (2, 0, 0):
        said = f"mem0 {door.mem0} knows no entities: {len(losing):,} that mem0 2.x made of them stay."
        return {}, frozenset(), [said]
    return losing, gone, []


def _losing(
    store: PointStore,
    collection: str,
    scope: Whom | None,
    memories: _Memories,
    ever: frozenset[str],
    say: Progress,
) -> tuple[dict[PointId, tuple[str, ...]], frozenset[PointId]]:
    """Links to what is deleted; of the scope's own entities also those to memories that are long gone."""
    name = collection + ENTITIES_SUFFIX
    info = next((c for c in store.layout().collections if c.name == name and c.has_folder), None)
    if info is None:
        return {}, frozenset()
    say("reading the entities", None, None)
    read = store.points(info, keep_entity)
    if read.file.problem is not None:
        raise CouldNotRead(f"{read.file.path}: {read.file.problem.detail}")
    staying = memories.live - set(map(str, memories.mine))
    losing: dict[PointId, tuple[str, ...]] = {}
    gone: set[PointId] = set()
    for entity_id, entity in read.rows.items():
        dead = _dead_links(entity, scope, ever, staying)
        if dead or (not entity.links and scope is not None and scope.covers(entity.owner)):
            losing[entity_id] = dead
            if set(entity.links) <= set(dead):
                gone.add(entity_id)
    return losing, frozenset(gone)


def _dead_links(
    entity: EntityRecord, scope: Whom | None, ever: frozenset[str], staying: set[str]
) -> tuple[str, ...]:
    own = scope is not None and scope.covers(entity.owner)
    return tuple(
        link for link in dict.fromkeys(entity.links) if link not in staying and (own or link in ever)
    )


class _Rows:
    """Takes history rows (a `model.RowSink`): the last event of each of these memories."""

    def __init__(self, ids: Collection[str]) -> None:
        self.ids = ids
        self.last: dict[str, str] = {}

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows."""
        for row in page:
            memory_id = str(row.memory_id)
            if memory_id in self.ids:
                self.last[memory_id] = str(row.event)


def _read_log(history: str, ids: Collection[str]) -> _Rows | None:
    _, rows = read_rows(history, lambda: _Rows(ids))
    return rows


def _left(history: str, scope: Scope | None, ids: Collection[str]) -> Left:
    """What mem0's API leaves of them: rows of the log, and messages, that have text."""
    log = read_log(history, Whose(scope, frozenset(ids), frozenset()), ())
    if log.not_read:
        return Left(None, None)
    found = {one.kind: one.count for one in log.rows}
    return Left(found.get("history", 0), found.get("messages", 0))


def _held(
    store: PointStore, scope: Scope | None, ids: frozenset[str], *, but: str | None = None
) -> list[str]:
    """The memories of the scope, or of these ids, that a vector store holds. Raises CouldNotRead."""
    layout = store.layout()
    if layout.problem is not None:
        raise CouldNotRead(layout.problem.detail)
    names = {c.name for c in layout.collections}
    found: list[str] = []
    for info in layout.collections:
        is_entities = info.name.endswith(ENTITIES_SUFFIX) and info.name[: -len(ENTITIES_SUFFIX)] in names
        if (
            not info.has_folder
            or info.legacy
            or info.foreign
            or is_entities
            or info.name in (*TELEMETRY_COLLECTIONS, but)
        ):
            continue
        memories = _Memories(scope, ids)
        read = store.points(info, memories)
        if read.file.problem is not None:
            raise CouldNotRead(read.file.problem.detail)
        found += [str(i) for i, (is_mine, _, _) in read.rows.items() if is_mine]
    return found


def _elsewhere(
    door: Door,
    scope: Scope | None,
    ids: frozenset[str],
    folders: Sequence[str],
    say: Progress,
) -> tuple[tuple[HeldBy, ...], tuple[NotChecked, ...]]:
    """Other collections of this folder and other folders that hold some of it, and what could not be looked at."""
    found: list[HeldBy] = []
    not_read: list[NotChecked] = []
    places: list[tuple[str, PointStore, str | None]] = [(door.vectors, door.store, door.collection)]
    places += [(folder, EmbeddedStore(folder), None) for folder in folders]
    for number, (folder, there, but) in enumerate(places):
        say("looking at other stores", number, len(places))
        try:
            count = len(_held(there, scope, ids, but=but))
        except (Mem0auditError, OSError) as error:
            why = error.message if isinstance(error, Mem0auditError) else (error.strerror or "cannot be read")
            not_read.append(NotChecked(folder, why))
        else:
            if count:
                found.append(HeldBy(folder, count, is_here=but is not None))
    return tuple(found), tuple(not_read)


def _in_snapshots(
    install: Install, host: Host, settings: Settings, scope: Scope | None, ids: frozenset[str]
) -> tuple[tuple[HeldBy, ...], frozenset[str]]:
    """The snapshots that hold some of it, those that could not be looked into with None; and the ids of what they
    hold."""
    found = []
    every: set[str] = set()
    for one in known_snapshots(install, host, settings).snapshots:
        count = None
        with suppress(Mem0auditError, OSError):
            vectors = Path(one.path, snapshot_core.VECTORS)
            if vectors.is_dir():  # else it is a server's: not looked into
                held = _held(EmbeddedStore(str(vectors), alone=True), scope, ids)
                every.update(held)
                count = len(held)
        if count != 0:
            of_server = count is None and Path(one.path, snapshot_core.SERVER).is_dir()
            found.append(HeldBy(one.path, count, of_server=of_server))
    return tuple(found), frozenset(every)


# --- Apply -----------------------------------------------------------------------------------------


def apply_erase(
    plan: ErasePlan,
    host: Host,
    *,
    settings: Settings | None = None,
    receipt: str | None = None,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
    search: bool = False,
    deleted: Callable[[Erased], None] | None = None,
    inside: tuple[Door, LiveMemory] | None = None,
) -> Erased:
    """Deletes what was planned, through mem0, by id; then takes the links from entities, once, and empties texts where
    that was planned.

    `receipt` is a file for the receipt (JSON, 0600, no text and no plain id). With `search`, and after every emptying,
    all bytes are searched for what is still readable; before that `deleted` is told what was deleted. Raises Refused
    where somebody has the install open meanwhile (nothing was changed), Failed where it did not come to its end: the
    same command finishes it.
    """
    say = progress or no_progress
    started = time.monotonic()
    install = plan.install
    if inside is None and install.vectors is not None:
        refuse_in_use(install, host)
    door = find_door(install, host) if inside is None else inside[0]
    way: AbstractContextManager[Mem0Worker | LiveMemory]
    way = open_door(door, host) if inside is None else inside[1].opened()
    snapshot = _taken_first(plan, host, say, now)
    with ledgers.opened(install, host, make=True) as book:
        if book is None or isinstance(book, NotChecked):
            raise Refused(
                f"there is no ledger for the record: {book.why if book is not None else 'none was made'}"
            )
        say("opening the store with mem0", None, None)
        with way as memory:
            intent = _begin(plan, book, now(), snapshot)
            try:
                _delete(memory, plan.ids, say)
                _unlink(memory, door.store, door, intent, say)
                if inside is not None:
                    _delete_what_came_back(memory, door.store, door, intent, say)
            except Mem0auditError as error:
                raise Failed(f"{error.message}; what was begun is on record", _AGAIN) from None
            # still under mem0's lock: no other process can write between
            done = replace(
                _look_after(plan, door, intent, say, is_live=inside is not None),
                at=now(),
                python=memory.versions.python,
                overwritten=memory.overwrites,
                ledger=str(book.path),
                snapshot=intent.snapshot,
                snapshots=(*plan.snapshots, *((HeldBy(snapshot, len(plan.ids)),) if snapshot else ())),
            )
            say("putting it on record", None, None)
            done = _put_on_record(done, intent, book, host, settings or Settings())
            if plan.facts_go:
                done = _facts_forgotten(done, intent, book)
            if inside is None:
                say("sealing", None, None)
                done = _put_to_the_chain(done, host, say)
        done = replace(done, seconds=time.monotonic() - started)
        if deleted is not None:
            deleted(done)
        done = _finished(done, plan, intent, door, host, settings, say, search=search)
        if receipt is not None:
            say("writing the receipt", None, None)
            _write_receipt(Path(host.cwd, receipt), done)
        try:
            book.forget_memories({*map(str, intent.ids), *intent.ever})
            book.end_erasure()
        except CannotUse as error:
            raise Failed(f"all is deleted, but the ledger {error.why}", _AGAIN) from None
    return done


def _taken_first(plan: ErasePlan, host: Host, say: Progress, now: Callable[[], float]) -> str | None:
    """Takes the short-lived snapshot, where one is wanted; its path. Raises what `create` raises."""
    if plan.snapshot is None or plan.resumed is not None:
        return None
    until = now() + plan.snapshot.seconds
    return take_pair(plan.install, host, plan.snapshot.folder, progress=say, now=now, until=until).path


def _finished(
    done: Erased,
    plan: ErasePlan,
    intent: Intent,
    door: Door,
    host: Host,
    settings: Settings | None,
    say: Progress,
    *,
    search: bool,
) -> Erased:
    """Empties texts where that is wanted, and says of every place what it held and holds. Raises Failed."""
    ids = frozenset(intent.ever) | set(done.ids)
    # the texts of entities that went before this run are in no row any more
    not_known = done.entities - len(plan.entities_deleted) if plan.resumed is not None else 0
    after, emptied = None, None
    if plan.redact is not None:
        emptied, after = _emptied(plan, intent, door, host, settings, say, ids)
        rows, messages = _blank(door.history, intent.scope, ids)
        earlier = rows - intent.blank[0] - emptied.history + messages - intent.blank[1] - emptied.messages
        if earlier > 0:
            not_known += earlier
        emptied = replace(emptied, history=rows - intent.blank[0], messages=messages - intent.blank[1])
        done = replace(done, overwritten=door.server is None, left=_left(door.history, intent.scope, ids))
    elif search:
        after = residue(
            plan.install,
            host,
            scope=intent.scope,
            memory_ids=() if intent.scope is not None else done.ids,
            texts=plan.texts,
            settings=settings,
            progress=say,
        )
    if after is not None:
        places = counted(after.rows)
    else:
        vectors, log = _seen(door, Whose(intent.scope, ids, frozenset()))
        places = counted((*vectors.rows, *log.rows, *facts_rows(plan.install, host, intent.scope, ids)))
    return replace(
        done,
        emptied=emptied,
        after=after,
        places=before_and_after(intent.places, places),
        not_known=max(not_known, 0) if after is not None else 0,
    )


def _emptied(
    plan: ErasePlan,
    intent: Intent,
    door: Door,
    host: Host,
    settings: Settings | None,
    say: Progress,
    ids: frozenset[str],
) -> tuple[Emptied, Residue]:
    try:
        wanted = plan_redaction(plan.install, host, scope=intent.scope, memory_ids=sorted(ids))
        done = apply_redaction(wanted, host, texts=plan.texts, settings=settings, progress=say)
    except Mem0auditError as problem:
        raise Failed(
            f"the memories are deleted, and texts of theirs not all emptied: {problem.message}",
            "\n".join(filter(None, (problem.hint, f"{_AGAIN}; without --redact it ends, and leaves them"))),
        ) from None
    files_rebuilt = len(done.cleared.databases)
    rows = done.history + done.stranded
    return Emptied(rows, done.messages, done.unattributed, files_rebuilt, done.seal), done.after


def _begin(plan: ErasePlan, book: Ledger, at: float, snapshot: str | None) -> Intent:
    """Puts on the disk what is to be done, with what a run that was cut off had begun. Raises Failed."""
    entities = {str(one): len(links) for one, links in plan.entities.items()}
    begun = plan.resumed
    if begun is None:
        salt = secrets.token_hex(16)
        begun = Intent(at, salt, plan.scope, (), (), {}, plan.left, plan.places, snapshot=snapshot)
    intent = replace(
        begun,
        blank=begun.blank if begun.redact else plan.blank,
        redact=begun.redact or plan.redact is not None,
        ids=tuple(dict.fromkeys((*begun.ids, *plan.ids))),
        ever=tuple(sorted({*begun.ever, *plan.ever})),
        entities={**entities, **begun.entities},
    )
    try:
        book.note_owners(plan.owners, at)  # whose the rows of the log are that stay
        book.begin_erasure(_erasure(intent, at), intent_text(intent))
    except CannotUse as error:
        raise Failed(f"the ledger {book.path} {error.why}; nothing was deleted") from None
    return intent


def _erasure(intent: Intent, at: float) -> Erasure:
    owner = intent.scope.owner if intent.scope is not None else None
    return make_erasure(at, intent.salt, owner, {*map(str, intent.ids), *intent.ever})


def _delete(memory: Mem0Worker | LiveMemory, ids: Sequence[PointId], say: Progress) -> None:
    say("deleting memories", 0, len(ids))
    for number, _ in enumerate(memory.delete_each(ids), 1):
        say("deleting memories", number, len(ids))


def _unlink(
    memory: Mem0Worker | LiveMemory, store: PointStore, door: Door, intent: Intent, say: Progress
) -> int:
    """Takes what was deleted from the entities; how many it was for."""
    ever = frozenset(intent.ever) | frozenset(map(str, intent.ids))
    return _sweep(memory, store, door, intent.scope, ever, say)


def _sweep(
    memory: Mem0Worker | LiveMemory,
    store: PointStore,
    door: Door,
    whom: Whom | None,
    ever: frozenset[str],
    say: Progress,
) -> int:
    """The one sweep over the entities, as they are now that the memories are gone; how many it was for."""
    memories = _Memories(None, frozenset())  # what mem0 could not delete stays linked
    for info in store.layout().collections:
        if info.name == door.collection and info.has_folder:
            memories.take(store.points(info, memories).rows)
    losing, _, _ = _entities(store, door, whom, memories, ever, say)
    say("clearing entities", 0, len(losing))
    for number, _ in enumerate(memory.unlink_each(losing.items()), 1):
        say("clearing entities", number, len(losing))
    return len(losing)


def _delete_what_came_back(
    memory: Mem0Worker | LiveMemory, store: PointStore, door: Door, intent: Intent, say: Progress
) -> None:
    """Deletions that a running agent's other threads made Qdrant take back, done again."""
    order = {str(one): number for number, one in enumerate(intent.ids)}
    ids = frozenset(order)
    for _ in range(_TIMES):
        memories = _Memories(None, ids)
        for info in store.layout().collections:
            if info.name == door.collection and info.has_folder:
                memories.take(store.points(info, memories).rows)
        if memories.mine:
            _delete(memory, sorted(memories.mine, key=lambda one: order.get(str(one), 0)), say)
        if not _unlink(memory, store, door, intent, say) and not memories.mine:
            return


def delete_in_copy(
    memory: Mem0Worker, door: Door, whom: Whom, ids: Sequence[PointId], ever: frozenset[str], say: Progress
) -> None:
    """Deletes these memories of a staged copy, by id, and takes the links to all that were `ever` theirs from the
    entities of its collection. Raises what mem0's calls raise."""
    _delete(memory, ids, say)
    _sweep(memory, door.store, door, whom, ever, say)


def entities_in_copy(
    store: PointStore, collection: str, whom: Whom, ids: frozenset[str], ever: frozenset[str], say: Progress
) -> tuple[dict[PointId, tuple[str, ...]], frozenset[PointId]]:
    """Which entities of a collection of a copy lose which links when these memories go, and which of them link nothing
    else and go. Raises CouldNotRead, Refused."""
    memories = _Memories(None, ids)
    for info in store.layout().collections:
        if info.name == collection and info.has_folder:
            _read(store, info, memories)
    return _losing(store, collection, whom, memories, ever, say)


def _look_after(plan: ErasePlan, door: Door, intent: Intent, say: Progress, *, is_live: bool) -> Erased:
    """What is so now, read from the files. Raises Failed where a memory is still there; in a running agent one that
    was added meanwhile stays."""
    say("reading both stores again", None, None)
    store = door.store
    ids = {str(i): i for i in (*intent.ids, *plan.ids)}
    memories = _Memories(None if is_live else intent.scope, frozenset(ids))
    entities: dict[str, int] = {}
    for info in store.layout().collections:
        if info.name == door.collection and info.has_folder:
            _read(store, info, memories)
        elif info.name == door.collection + ENTITIES_SUFFIX and info.has_folder:
            read = store.points(info, keep_entity)
            entities = {str(i): len(e.links) for i, e in read.rows.items()}
    if memories.mine and not memories.mine.keys() & set(ids.values()):
        raise Failed(
            f"all that was there is deleted, but {_memories(len(memories.mine))} of it came "
            "after it was looked at: an agent ran meanwhile",
            f"{_AGAIN}; while more of it comes on and on, stop that agent first",
        )
    if memories.mine:
        some = ", ".join(map(str, list(memories.mine)[:3]))
        raise Failed(
            f"{len(memories.mine):,} memories are still there, although mem0 deleted them or found none: {some}",
            # threads that meet on Qdrant's one connection lose writes, of mem0's own too: the running client does not
            # know these any more, and cannot delete them again
            f"the agent stopped, {_AGAIN}:  mem0audit delete" if is_live else "mem0audit audit",
        )
    rows = _read_log(door.history, ids)
    deleted = [one for one in intent.entities if one not in entities]
    return Erased(
        install=plan.install,
        scope=intent.scope,
        at=intent.at,
        salt=intent.salt,
        # of single memories those too that were named and had gone before: their rows are looked for, and on record
        ids=tuple(sorted({*ids, *(intent.ever if intent.scope is None else ())})),
        memories=len(ids),
        entities=len(deleted),
        links=sum(links for one, links in intent.entities.items() if one in entities),
        not_logged=sum(rows.last.get(one) != "DELETE" for one in ids) if rows is not None else 0,
        before=intent.before,
        left=_left(door.history, intent.scope, frozenset(intent.ever) | set(ids)),
        mem0=door.mem0,
        client=door.client,
        python="",
        overwritten=False,
        resumed=plan.resumed is not None,
        ledger="",
        warnings=plan.warnings,
    )


def _put_on_record(done: Erased, intent: Intent, book: Ledger, host: Host, settings: Settings) -> Erased:
    """The erasure as it ended, in the ledger and beside the snapshots."""
    warnings = list(done.warnings)
    try:
        book.add_erasure(_erasure(intent, done.at))
        folders = list(book.folders())
    except CannotUse as error:
        raise Failed(f"all is deleted, but not on record: the ledger {error.why}", _AGAIN) from None
    if settings.snapshot_dir is not None:
        folders.append(settings.snapshot_dir)
    recorded = []
    for folder in dict.fromkeys(os.path.realpath(one) for one in folders):
        if not Path(folder).is_dir():
            continue
        why = _beside(Path(folder), done.install, host)
        if why is None:
            recorded.append(str(Path(folder, "erasures.json")))
        else:
            warnings.append(f"Not on record beside the snapshots in {folder}: {why}.")
    return replace(done, recorded=tuple(recorded), warnings=tuple(warnings))


def _facts_forgotten(done: Erased, intent: Intent, book: Ledger) -> Erased:
    """Removes what the ledger was told of them; how much, counting a run that was cut off. Raises Failed."""
    subject = None if intent.scope is None else intent.scope.alone
    try:
        facts.forget(book, subject, {*map(str, intent.ids), *intent.ever})
    except CannotUse as error:
        raise Failed(f"all is deleted but what the ledger was told of it: it {error.why}", _AGAIN) from None
    return replace(done, facts=sum(one.count or 0 for one in intent.places if one.kind == "facts"))


def _put_to_the_chain(done: Erased, host: Host, say: Progress) -> Erased:
    """Explains the deletion to the chain of seals, where there is one."""
    outcome = explain(
        done.install,
        host,
        "delete",
        f"{done.memories:,} memories and {done.entities:,} entities",
        progress=say,
    )
    if outcome is not None and not outcome.extended:
        said = f"The chain of seals does not know of this deletion ({outcome.why}): the next audit may find a change."
        return replace(done, warnings=(*done.warnings, said))
    return done


def _beside(folder: Path, install: Install, host: Host) -> str | None:
    try:
        with files.snapshot_folder(folder, WAIT_S):
            return keep_beside(folder, erasures_on_record(install, None, host))
    except Mem0auditError as error:
        return error.message
    except OSError as error:
        return (error.strerror or "it cannot be written").lower()


# --- Inside the agent ------------------------------------------------------------------------------


def erase_inside(
    memory: Any,
    host: Host,
    *,
    scope: Scope | None = None,
    memory_ids: Sequence[str] = (),
    only_this_store: bool = False,
    settings: Settings | None = None,
    receipt: str | None = None,
    progress: Progress | None = None,
) -> Erased:
    """The same deletion through a `Memory` or `AsyncMemory` that is open in this process; its other threads go on.

    An `AsyncMemory` must not have its loop running in this thread. Raises what `plan_erase` and `apply_erase` raise.
    """
    install, door, live = inside(memory, host)
    plan = plan_erase(
        install,
        host,
        scope=scope,
        memory_ids=memory_ids,
        only_this_store=only_this_store,
        settings=settings,
        progress=progress,
        door=door,
    )
    done = apply_erase(plan, host, settings=settings, receipt=receipt, progress=progress, inside=(door, live))
    if live.has_graph:
        done = replace(done, warnings=(*done.warnings, "This mem0 keeps a graph too: it was not looked at."))
    return done


# --- The receipt -------------------------------------------------------------------------------------


def receipt_of(done: Erased) -> dict[str, Any]:
    """The receipt as data: when, by which versions, counts before and after; ids and the scope as salted digests."""
    erasure = make_erasure(done.at, done.salt, done.scope.owner if done.scope is not None else None, done.ids)
    return {
        "at": shown(done.at),
        "mem0audit": __version__,
        "mem0": done.mem0,
        "qdrant_client": done.client,
        "python": done.python,
        "salt": done.salt,
        "scope": erasure.scope or None,
        "ids": list(erasure.ids),
        "removed": {
            "memories": done.memories,
            "entities": done.entities,
            "links": done.links,
            "facts": done.facts,
        },
        "not_logged": done.not_logged,
        "overwritten": done.overwritten,
        "before": {"history_rows": done.before.history_rows, "messages": done.before.messages},
        "left": {"history_rows": done.left.history_rows, "messages": done.left.messages},
        "snapshots": [{"path": one.path, "memories": one.memories} for one in done.snapshots],
        **emptied_and_left(done),
    }


def emptied_and_left(done: Erased) -> dict[str, Any]:
    """What was emptied, and what each place held and holds, as data: counts and paths."""
    emptied, after = done.emptied, done.after
    return {
        "redacted": None
        if emptied is None
        else {
            "history_rows": emptied.history,
            "messages": emptied.messages,
            "unattributed_rows": emptied.unattributed[0],
            "files_rebuilt": emptied.files,
        },
        "places": [
            {"kind": one.kind, "name": one.name, "before": one.count, "after": now}
            for one, now in done.places
        ],
        "short_lived_snapshot": done.snapshot,
        "erased": done.erased,
        "searched": None
        if after is None
        else {
            "texts": after.texts,
            "texts_too_short": after.too_short,
            "texts_not_known": done.not_known,
            "files": [_searched(one) for one in after.files],
            "copies": [
                {
                    "kind": one.kind,
                    "path": one.path,
                    "memories": one.memories,
                    "rows": one.rows,
                    "until": one.until,
                    "files": [_searched(file) for file in one.files],
                }
                for one in after.copies
            ],
            "not_searched": [{"what": one.what, "why": one.why} for one in after.not_searched],
        },
    }


def _searched(one: FileSearch) -> dict[str, Any]:
    return {
        "path": one.path,
        "size_bytes": one.size_bytes,
        "whole": one.whole,
        "pieces": one.pieces,
        "short": one.short,
        "shared_with_others": one.shared,
    }


def _write_receipt(path: Path, done: Erased) -> None:
    emptied = done.emptied is not None and (done.emptied.history or done.emptied.messages)
    if not (done.memories or done.entities or done.links or done.facts or emptied) and _is_receipt_of(
        path, done
    ):
        return  # of the run that did it: this one found nothing left to do, and the same verdict
    document = {"schema": 1, "kind": "erasure-receipt", **receipt_of(done)}
    try:
        files.write_file(path, json.dumps(document, indent=2, ensure_ascii=True).encode("ascii") + b"\n")
    except OSError as error:
        raise Failed(
            f"all is deleted, but {path}: {(error.strerror or 'cannot be written').lower()}", _AGAIN
        ) from None


def _is_receipt_of(path: Path, done: Erased) -> bool:
    """Whether a receipt of the same scope, or of the same memories, with the same verdict lies there."""
    try:
        there = json.loads(small_file(path))
        of = replace(done, salt=str(there["salt"]))
        wanted = receipt_of(of)
        return bool(
            there["kind"] == "erasure-receipt"
            and there["scope"] == wanted["scope"]
            and set(wanted["ids"]) <= set(there["ids"])
            and there["erased"] == wanted["erased"]
        )
    except (OSError, ValueError, TypeError, KeyError):
        return False
