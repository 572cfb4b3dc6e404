"""What is still readable of a scope or of deleted memories: read row by row, and searched for in every byte.

The ids are those that the ledger ever saw with that owner, and those of the points that are there; the texts are what
any row still holds of these ids, in the stores and in every copy of them that is known. Only then are the bytes
searched for all of these texts. Nothing is changed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.errors import Mem0auditError, UsageProblem
from mem0audit.core.model import (
    CollectionInfo,
    FileProblem,
    Install,
    NotChecked,
    PointId,
    PointStore,
    SeenSnapshot,
    VectorFacts,
)
from mem0audit.core.needles import Hits, Needles, narrow_spellings
from mem0audit.core.points import normalised
from mem0audit.core.residue import LAST_MESSAGES, Copy, FileSearch, Residue, Rows, goes_on
from mem0audit.core.restore import Interrupted
from mem0audit.core.scopes import Scope, Whom
from mem0audit.core.times import shown
from mem0audit.install.candidates import find_candidates
from mem0audit.install.config import Settings
from mem0audit.install.host import Host
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.discard import put_aside
from mem0audit.operations.expire import plan_expire
from mem0audit.operations.facts import told_of
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.known import known_snapshots
from mem0audit.operations.leftmoves import left_moves
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, no_collector, no_progress
from mem0audit.operations.moved import places_before
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.operations.scheduled import policies
from mem0audit.operations.serverresidue import kept_by_server
from mem0audit.operations.stores import store_of, store_of_copy
from mem0audit.stores import rawfiles
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.exchange import SIDES
from mem0audit.stores.history import MessageRow, TextRow, read_texts
from mem0audit.stores.ledger import CannotUse
from mem0audit.stores.overwrite import copy_folder
from mem0audit.stores.rawfiles import FreePages, Moved
from mem0audit.stores.sqlitefiles import secure_delete_here

ELSEWHERE = NotChecked(
    "everything else",
    "free blocks of the disk, swap, and copies that mem0audit was never told of are not searched",
    gap=False,
)


# --- Whose ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whose:
    """What is looked for: a scope, or single memories; `ids` are all that are known to be of it, `known` everybody's
    that the ledger knows. `spared` are points that are not meant, whoever owns them."""

    scope: Whom | None
    ids: frozenset[str]
    known: frozenset[str]
    spared: frozenset[str] = frozenset()

    def has(self, point_id: object, payload: Mapping[str, Any]) -> bool:
        """Whether a point is of it."""
        if str(point_id) in self.ids:
            return True
        return (
            self.scope is not None
            and self.scope.covers(owner_in(payload))
            and str(point_id) not in self.spared
        )


def owner_in(payload: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """The owner that a payload names."""
    return payload.get("user_id"), payload.get("agent_id"), payload.get("run_id")


@dataclass
class FromLedger:
    """What the ledger says of it."""

    whose: Whose
    exports: tuple[str, ...] = ()
    not_read: tuple[NotChecked, ...] = ()


def whose(
    install: Install, host: Host, scope: Scope | None, memory_ids: Sequence[str], *, ledger: bool = True
) -> FromLedger:
    """Who is meant, with every id that the ledger ever saw there. Raises UsageProblem where nobody is named."""
    if (scope is None) == (not memory_ids):
        raise UsageProblem("whose? one of --user, --agent, --run (also together), or --memory ID")
    ids = {str(normalised(one)) for one in memory_ids} | {one.strip() for one in memory_ids}
    known: set[str] = set()
    with ledgers.opened(install, host, wanted=ledger) as book:
        if isinstance(book, NotChecked):
            return FromLedger(Whose(scope, frozenset(ids), frozenset()), not_read=(replace(book, gap=True),))
        if book is None:
            gap = NotChecked(
                "ledger", "none is kept of this install: whose a deleted memory was is not known"
            )
            return FromLedger(Whose(scope, frozenset(ids), frozenset()), not_read=(gap,) if scope else ())
        try:
            for memory_id, owner in book.owners().items():
                known.add(memory_id)
                if scope is not None and scope.covers(owner):
                    ids.add(memory_id)
            exports = book.exports()
        except CannotUse as error:
            gap = replace(ledgers.unusable(book.path, error), gap=True)
            return FromLedger(Whose(scope, frozenset(ids), frozenset(known)), not_read=(gap,))
    return FromLedger(Whose(scope, frozenset(ids), frozenset(known)), exports)


def facts_rows(
    install: Install, host: Host, scope: Scope | None, ids: Collection[str], *, ledger: bool = True
) -> list[Rows]:
    """The facts that the ledger was told of them, or that are tied to their memories; no row where there are none.
    Raises CouldNotRead."""
    count = len(told_of(install, host, scope, ids, ledger=ledger))
    return [Rows("facts", "facts", ledgers.ledger_folder(host), count)] if count else []


# --- Rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    """A point of theirs, or what is needed of another one."""

    mine: bool
    texts: tuple[str, ...] = ()


@dataclass
class VectorsSeen:
    """What a vector folder holds of it. `everybody` are the ids of all memories, `mine` theirs."""

    rows: list[Rows] = field(default_factory=list)
    mine: set[str] = field(default_factory=set)
    everybody: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    not_read: list[NotChecked] = field(default_factory=list)


def strings_in(value: object) -> Iterator[str]:
    """Every text in a payload."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from strings_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from strings_in(one)


def _texts_of(payload: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(v for key in ("data", "text_lemmatized") if isinstance(v := payload.get(key), str))


def collections_of(
    store: PointStore,
) -> tuple[list[CollectionInfo], list[CollectionInfo], list[NotChecked]]:
    """The collections of memories, those of entities, and what cannot be read."""
    layout = store.layout()
    if layout.problem is not None:
        return [], [], [NotChecked(layout.path, layout.problem.detail)]
    if not layout.exists:
        return [], [], [NotChecked(layout.path, "does not exist")]
    names = {info.name for info in layout.collections}
    memories: list[CollectionInfo] = []
    entities: list[CollectionInfo] = []
    gaps: list[NotChecked] = []
    if layout.lacks is not None:
        gaps.append(NotChecked(f"the collection {layout.lacks}", f"is not there, on {layout.path}"))
    for info in layout.collections:
        if info.legacy:
            gaps.append(
                NotChecked(info.path, "is of a format before qdrant-client 1.1.7: its rows are not read")
            )
        if not info.has_folder or info.legacy or info.foreign:
            continue
        base = info.name.removesuffix(ENTITIES_SUFFIX)
        (entities if base != info.name and base in names else memories).append(info)
    return memories, entities, gaps


def read_vectors(store: PointStore, who: Whose) -> VectorsSeen:
    """What the rows of a vector store hold of it, and every text of theirs."""
    seen = VectorsSeen()
    memories, entities, gaps = collections_of(store)
    seen.not_read += gaps

    def keep(_row: int, point_id: PointId, payload: Mapping[str, Any], _vector: VectorFacts) -> _Point:
        mine = who.has(point_id, payload)
        return _Point(mine, _texts_of(payload) if mine else ())

    for info in memories:
        read = store.points(info, keep)
        _gaps(read, info, seen)
        mine = {str(i): p for i, p in read.rows.items() if p.mine}
        seen.everybody.update(map(str, read.rows))
        seen.mine.update(mine)
        seen.texts += [text for point in mine.values() for text in point.texts]
        count = None if read.file.problem is not None and not mine else len(mine)
        seen.rows.append(Rows("points", info.name, info.path, count, len(mine)))
        older = sum(len(d.loser_rowids) for d in read.duplicates if str(d.point_id) in mine)
        if older:
            seen.rows.append(Rows("older rows", info.name, info.path, older))
    ids = who.ids | seen.mine

    def keep_entity(
        _row: int, _id: PointId, payload: Mapping[str, Any], _vector: VectorFacts
    ) -> tuple[bool, bool, tuple[str, ...]]:
        links = payload.get("linked_memory_ids")
        linked = {str(i) for i in links} if isinstance(links, (list, tuple)) else set()
        owned = who.scope is not None and who.scope.covers(owner_in(payload))
        owned = owned or (bool(linked) and linked <= ids)
        return owned, not ids.isdisjoint(linked), _texts_of(payload) if owned else ()

    for info in entities:
        read_entities = store.points(info, keep_entity)
        _gaps(read_entities, info, seen)
        found = list(read_entities.rows.values())
        owned = sum(1 for own, _, _ in found if own)
        unread = read_entities.file.problem is not None and not owned
        seen.rows.append(Rows("entities", info.name, info.path, None if unread else owned))
        linking = sum(1 for own, links, _ in found if links and not own)
        if linking:
            seen.rows.append(Rows("shared entities", info.name, info.path, linking))
        seen.texts += [text for _, _, texts in found for text in texts]
    return seen


def _gaps(read: Any, info: CollectionInfo, seen: VectorsSeen) -> None:
    if read.file.problem is not None:
        seen.not_read.append(NotChecked(read.file.path, read.file.problem.detail))
    bad = len(read.bad) + len(read.unsafe)
    if bad:
        seen.not_read.append(NotChecked(info.path, f"{bad} points do not decode: their bytes are searched"))


@dataclass
class LogSeen:
    """What a log holds of it."""

    rows: list[Rows] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    fed_back: int = 0
    unattributed: tuple[int, int] = (0, 0)
    not_read: list[NotChecked] = field(default_factory=list)


class _LogRows:
    """Takes the rows of a log, and keeps what is of it."""

    def __init__(self, who: Whose, everybody: Collection[str]) -> None:
        self.who = who
        self.attributed = who.ids | who.known | frozenset(everybody)
        self.begin()

    def begin(self) -> None:
        """From the first row on."""
        self.texts: list[str] = []
        self.counts: Counter[str] = Counter()
        self.ids: dict[str, set[str]] = {}
        self.sessions: Counter[str] = Counter()
        self.unknown_rows = 0
        self.unknown: set[str] = set()
        self.stranded_rows = 0
        self.stranded: set[str] = set()

    def take(self, page: list[TextRow]) -> None:
        """Rows of `history`, or of a table that a migration left."""
        for row in page:
            memory_id = str(row.memory_id)
            texts = [text for text in row.texts if isinstance(text, str) and text]
            if not texts:
                continue
            if memory_id in self.who.ids:
                self.texts += texts
                self.counts[row.table] += 1
                self.ids.setdefault(row.table, set()).add(memory_id)
            elif memory_id in self.attributed:
                continue
            elif row.table == "history":
                self.unknown_rows += 1
                self.unknown.add(memory_id)
            elif memory_id not in self.unknown:  # the others stand in `history` too, and were counted there
                self.stranded_rows += 1
                self.stranded.add(memory_id)

    def take_messages(self, page: list[MessageRow]) -> None:
        """Rows of `messages`."""
        scope = self.who.scope
        for row in page:
            if scope is None or not isinstance(row.content, str) or not row.content:
                continue
            if scope.covers_messages(str(row.session_scope)):
                self.texts.append(row.content)
                self.sessions[str(row.session_scope)] += 1


def read_log(path: str, who: Whose, everybody: Collection[str], alone: bool = False) -> LogSeen:
    """What the rows of a log hold of it, and every text of theirs."""
    taken = _LogRows(who, everybody)
    said = read_texts(path, taken.take, taken.take_messages, taken.begin, alone)
    seen = LogSeen(texts=taken.texts)
    problem = said.file.problem
    if problem is not None:
        seen.not_read.append(NotChecked(path, problem.detail))
    elif "history" not in said.tables:
        seen.not_read.append(NotChecked(path, "has no history table that could be read"))
    for table in said.tables or ("history",):
        count = None if problem is not None else taken.counts[table]
        kind = "history" if table == "history" else "stranded"
        seen.rows.append(Rows(kind, table, path, count, len(taken.ids.get(table, ()))))
    if said.messages is not None and who.scope is not None:
        seen.rows.append(Rows("messages", "messages", path, sum(taken.sessions.values())))
    seen.fed_back = sum(min(count, LAST_MESSAGES) for count in taken.sessions.values())
    seen.ids = taken.ids.get("history", set())
    if who.scope is not None:
        rows, memories = taken.unknown_rows + taken.stranded_rows, len(taken.unknown) + len(taken.stranded)
        seen.unattributed = (rows, memories)
    return seen


# --- Bytes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """What was found in one file, before it is judged: (text or bytes, whether it lies in free pages)."""

    path: str
    size: int
    whole: tuple[tuple[int, bool], ...] = ()
    short: tuple[tuple[int, bool], ...] = ()
    pieces: tuple[tuple[bytes, bool], ...] = ()
    free: FreePages | None = None
    packed: str | None = None

    @property
    def anything(self) -> bool:
        return bool(self.whole or self.short or self.pieces)


def _search_file(path: str, needles: Needles, tell: Callable[[int], object]) -> _Found:
    """`tell` is called with how many bytes were searched so far. Raises Moved, OSError."""

    def look(read: Callable[[int, int], bytes], size: int) -> _Found:
        hits, free = needles.search(read, size, tell), rawfiles.free_pages(read, size)

        def is_free(start: int, end: int) -> bool:
            return free is not None and free.has(start, end)

        return _Found(
            path,
            size,
            tuple((w.text, is_free(w.start, w.end)) for w in hits.whole),
            tuple((w.text, is_free(w.start, w.end)) for w in hits.short),
            tuple((read(start, min(end - start, 65_536)), is_free(start, end)) for start, end in hits.pieces),
            free,
            rawfiles.packed_by(read(0, 8)),
        )

    return rawfiles.searched(path, look)[1]


@dataclass
class Others:
    """What of these texts stands in what others own as well."""

    whole: set[int] = field(default_factory=set)
    pieces: set[bytes] = field(default_factory=set)
    _joined: bytes = b""

    def add(self, data: bytes, hits: Hits) -> None:
        """What was found in something of others."""
        self.whole.update(w.text for w in (*hits.whole, *hits.short))
        self.pieces.update(data[start:end] for start, end in hits.pieces)
        # a text of others may hold a whole text of theirs, and go on with a piece of another one
        self.pieces.update(data[w.start : w.end] for w in hits.whole)

    def join(self, other: Others) -> None:
        """With what another look found."""
        self.whole |= other.whole
        self.pieces |= other.pieces
        self._joined = b""

    def have(self, piece: bytes) -> bool:
        """Whether others own these bytes too."""
        if piece in self.pieces:
            return True
        self._joined = self._joined or b"\0\xff\0".join(sorted(self.pieces))
        return piece in self._joined


def _encoded(texts: Sequence[str]) -> bytes:
    return b"\0\xff\0".join(way for text in texts for way in narrow_spellings(text))


_TEXTS_AT_ONCE = 2000


def _others_in_vectors(store: PointStore, who: Whose, ids: Collection[str], needles: Needles) -> Others:
    others = Others()
    memories, entities, _ = collections_of(store)
    texts: list[str] = []  # of several points: a search of a few hundred bytes costs as one of many thousand

    def search() -> None:
        data = _encoded(texts)
        others.add(data, needles.search_bytes(data))
        texts.clear()

    def keep(_row: int, point_id: PointId, payload: Mapping[str, Any], _vector: VectorFacts) -> None:
        if who.has(point_id, payload):
            return
        links = payload.get("linked_memory_ids")
        if isinstance(links, (list, tuple)) and links and {str(i) for i in links} <= set(ids):
            return
        texts.extend(strings_in(payload))
        if len(texts) > _TEXTS_AT_ONCE:
            search()

    for info in (*memories, *entities):
        store.points(info, keep)
        search()
    return others


def _others_in_log(path: str, who: Whose, ids: Collection[str], needles: Needles) -> Others:
    found = Others()

    def begin() -> None:
        found.whole.clear()
        found.pieces.clear()

    def take_texts(texts: list[str]) -> None:
        data = _encoded(texts)
        found.add(data, needles.search_bytes(data))

    def take(page: list[TextRow]) -> None:
        take_texts(
            [t for row in page if str(row.memory_id) not in ids for t in row.texts if isinstance(t, str)]
        )

    def take_messages(page: list[MessageRow]) -> None:
        take_texts(
            [
                row.content
                for row in page
                if isinstance(row.content, str)
                and not (who.scope is not None and who.scope.covers_messages(str(row.session_scope)))
            ]
        )

    read_texts(path, take, take_messages, begin)
    return found


def _judged(found: _Found, others: Others) -> FileSearch:
    whole = [(text, free) for text, free in found.whole if text not in others.whole]
    pieces = [free for piece, free in found.pieces if not others.have(piece)]
    shared = len(found.whole) - len(whole) + len(found.pieces) - len(pieces)
    return FileSearch(
        path=found.path,
        size_bytes=found.size,
        texts=len({text for text, _ in whole}),
        whole=len(whole),
        pieces=len(pieces),
        free=sum(free for _, free in whole) + sum(pieces),
        shared=shared,
        short=len(found.short),
        short_alone=sum(1 for text, _ in found.short if text not in others.whole),
        free_pages=None if found.free is None else len(found.free.pages),
        filled_pages=0 if found.free is None else found.free.filled,
    )


def search_stores(
    install: Install, ids: frozenset[str], texts: Collection[str], say: Progress, also: Sequence[str] = ()
) -> tuple[tuple[FileSearch, ...], tuple[NotChecked, ...]]:
    """Every byte of both stores, which nobody has open, and of `also` searched for these texts; what could not be
    searched. What another row holds than those of these ids is shared."""
    say("making the texts ready to be searched for", None, None)
    needles = Needles(texts)
    found, gaps = _search_places((*_places(install), *also), needles, say, "searching the files")
    others = Others()
    if any(one.anything for one in found):
        who = Whose(None, ids, frozenset())
        others.join(_others_in_vectors(store_of_copy(install), who, ids, needles))
        others.join(_others_in_log(install.history.value, who, ids, needles))
    return tuple(_judged(one, others) for one in found), tuple(gaps)


# --- All of it ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CopySeen:
    """A copy of the stores, before its bytes are searched."""

    kind: str
    path: str
    places: tuple[str, ...]
    memories: int | None
    rows: int | None
    until: str


def residue(
    install: Install,
    host: Host,
    *,
    scope: Scope | None = None,
    memory_ids: Sequence[str] = (),
    texts: Collection[str] = (),
    settings: Settings | None = None,
    ledger: bool = True,
    progress: Progress | None = None,
) -> Residue:
    """What is still readable of a scope, or of single memories. Changes nothing, beside a running agent.

    `texts` are searched for too: those of rows that were emptied since. `ledger` False: the record of whose a deleted
    memory was is not asked. Raises UsageProblem where nobody is named; for what cannot be read it says so.
    """
    started, say = time.monotonic(), progress or no_progress
    book = whose(install, host, scope, memory_ids, ledger=ledger)
    held = holders([o.value for o in (install.history, install.vectors) if o is not None], host)
    named, install = install, as_the_agent_sees_it(install, held.holders, host)
    not_searched = list(book.not_read)
    everything = list(texts)
    say("reading the memories", None, None)
    with no_collector():
        vectors = _vectors_of(install, host, book.whose)
        who = replace(book.whose, ids=book.whose.ids | vectors.mine)
        say("reading the log", None, None)
        log = _log_of(install, host, who, vectors.everybody)
        say("reading the copies that are known", None, None)
        copies, more = _copies(named, host, who, book.exports, settings or Settings(), ledger, not_searched)
    not_searched += [*vectors.not_read, *log.not_read]
    told = facts_rows(named, host, scope, who.ids, ledger=ledger and not book.not_read)
    if install.vectors is None and install.server_url is not None:
        say("looking what else the server keeps", None, None)
        of_scope = who.scope if isinstance(who.scope, Scope) else None
        kept = kept_by_server(install, of_scope, who.ids)
        vectors.rows += kept.rows
        not_searched += kept.not_searched
        server_copies = kept.copies
    else:
        server_copies = ()
    everything += [*vectors.texts, *log.texts, *more]
    say("making the texts ready to be searched for", None, None)
    needles = Needles(everything)
    found, unread = _search_places(_places(install), needles, say, "searching the files")
    in_copies = []
    for copy in copies:
        some, gaps = _search_places(copy.places, needles, say, "searching the copies")
        in_copies.append((copy, some))
        unread += gaps
    not_searched += unread
    others = Others()
    if any(one.anything for one in (*found, *(f for _, some in in_copies for f in some))):
        say("comparing with what others own", None, None)
        others = _others_of(install, host, who, who.ids, needles)
    if not needles.texts:
        not_searched.append(
            NotChecked("the bytes of every file", "no text of theirs is known any more to search for")
        )
    elif needles.left_out:
        why = "too short to be searched for: their bytes are in any file"
        not_searched.append(
            NotChecked(f"{needles.left_out:,} of {len(needles.texts):,} texts of theirs", why)
        )
    if scope is None:
        why = "they name no memory, only whose they are: --user"
        not_searched.append(NotChecked("messages", why, gap=False))
    not_searched += _other_stores(install, host)
    return Residue(
        install=install,
        scope=scope,
        memory_ids=tuple(memory_ids),
        ids=len(who.ids | log.ids),
        texts=len(needles.texts) - needles.left_out,
        piece=needles.piece,
        too_short=needles.left_out,
        rows=(*vectors.rows, *log.rows, *told),
        fed_back=log.fed_back,
        unattributed=log.unattributed,
        files=tuple(_judged(one, others) for one in found),
        copies=tuple(
            Copy(c.kind, c.path, c.memories, c.rows, c.until, tuple(_judged(one, others) for one in some))
            for c, some in in_copies
        )
        + server_copies,
        own_secure_delete=secure_delete_here(),
        not_searched=(*not_searched, ELSEWHERE),
        seconds=time.monotonic() - started,
    )


def _vectors_of(install: Install, host: Host, who: Whose) -> VectorsSeen:
    if install.vectors is None and install.server_url is None:
        gap = NotChecked("the vector store", f"it is {install.provider}, and no Qdrant: it is not read")
        return VectorsSeen(not_read=[gap])
    if install.vectors is None:
        return read_vectors(store_of(install), who)
    folder = install.vectors.value

    def failed(problem: FileProblem) -> VectorsSeen:
        return VectorsSeen(not_read=[NotChecked(folder, problem.detail)])

    return where_it_lies(folder, host, lambda path: read_vectors(EmbeddedStore(path), who), failed)


def _log_of(install: Install, host: Host, who: Whose, everybody: Collection[str]) -> LogSeen:
    path = install.history.value

    def failed(problem: FileProblem) -> LogSeen:
        return LogSeen(not_read=[NotChecked(path, problem.detail)])

    return where_it_lies(path, host, lambda path: read_log(path, who, everybody), failed)


def _others_of(install: Install, host: Host, who: Whose, ids: Collection[str], needles: Needles) -> Others:
    others = Others()
    if install.vectors is not None:
        others.join(
            where_it_lies(
                install.vectors.value,
                host,
                lambda path: _others_in_vectors(EmbeddedStore(path), who, ids, needles),
                lambda _: Others(),
            )
        )
    elif install.server_url is not None:
        others.join(_others_in_vectors(store_of(install), who, ids, needles))
    path = install.history.value
    others.join(
        where_it_lies(path, host, lambda path: _others_in_log(path, who, ids, needles), lambda _: Others())
    )
    return others


def _places(install: Install) -> tuple[str, ...]:
    """Every path of both stores, mem0's own collection beside the log, and a copy that a rebuilding cut off left."""
    history = install.history.value
    vectors = () if install.vectors is None else (install.vectors.value,)
    telemetry = rawfiles.in_folder(install.mem0_dir.value, "migrations_qdrant")
    left = str(copy_folder(Path(history)))
    return (history, *(history + side for side in SIDES), left, *vectors, telemetry)


def _search_places(
    places: Sequence[str], needles: Needles, say: Progress, phase: str
) -> tuple[list[_Found], list[NotChecked]]:
    paths: list[str] = []
    gaps: list[NotChecked] = []
    for place in places:
        files, odd = rawfiles.every_file(place)
        paths += [one for one in files if one not in paths]
        gaps += [NotChecked(path, why) for path, why in odd]
    found = []
    sizes = [rawfiles.size_of(path) for path in paths]
    before, total = 0, sum(sizes)
    for path, size in zip(paths, sizes, strict=True):

        def tell(done: int, before: int = before) -> None:
            say(phase, before + done, total)

        tell(0)
        before += size
        try:
            found.append(_search_file(path, needles, tell))
        except FileNotFoundError:
            continue  # a journal that its writer was done with
        except Moved:
            why = "was written to again and again while it was searched: once more at a quieter minute"
            gaps.append(NotChecked(path, why))
        except OSError as error:
            gaps.append(NotChecked(path, (error.strerror or "cannot be read").lower()))
    gaps += [
        NotChecked(one.path, f"is compressed ({one.packed}): what is in it is not searched")
        for one in found
        if one.packed is not None
    ]
    return found, gaps


# --- Copies -------------------------------------------------------------------------------------------


def _copies(
    install: Install,
    host: Host,
    who: Whose,
    exports: Sequence[str],
    settings: Settings,
    ledger: bool,
    not_searched: list[NotChecked],
) -> tuple[list[_CopySeen], list[str]]:
    """Snapshots, what restores put aside or left, and exports; and every text of theirs in them."""
    texts: list[str] = []
    found: list[_CopySeen] = []
    known = known_snapshots(install, host, settings, ledger=ledger)
    not_searched += known.not_read
    until = _until(known.folders, host)
    for one in known.snapshots:
        history = rawfiles.in_folder(one.path, snapshot_core.HISTORY)
        folder = rawfiles.in_folder(one.path, snapshot_core.VECTORS)
        memories, rows = _read_copy(folder, history, who, texts, not_searched)
        if not rawfiles.exists(folder):
            not_searched.append(NotChecked(one.path, "its vectors are in a server's own snapshots: not read"))
        kind = "snapshot" if one.pair else "imported backup"
        found.append(_CopySeen(kind, one.path, (one.path,), memories, rows, _goes(one, until)))
    found += [
        _CopySeen("unfinished snapshot", path, (path,), None, None, "until the next snapshot create")
        for path in known.unfinished
    ]
    for path in places_before(install, host) if ledger else ():
        if "://" in path:
            why = "the store was moved from there, and left there as it was: it is not searched"
            not_searched.append(NotChecked(path, why))
        elif rawfiles.exists(rawfiles.in_folder(path, "collection")) and not _leads_here(path, install):
            memories, rows = _read_copy(path, None, who, texts, not_searched)
            said = "until you remove it: the store was moved from there"
            found.append(_CopySeen("left by a move", path, (path,), memories, rows, said))
    for kept in put_aside(install, host):
        path = kept.path
        discard = f"until mem0audit {'snapshot restore' if kept.work == 'restore' else 'relocate'} --discard-replaced"
        is_folder = rawfiles.exists(rawfiles.in_folder(path, "collection"))
        memories, rows = _read_copy(
            path if is_folder else None, None if is_folder else path, who, texts, not_searched
        )
        places = (path,) if is_folder else (path, *(path + side for side in SIDES))
        found.append(_CopySeen(f"put aside by a {kept.work}", path, places, memories, rows, discard))
    cut = interrupted(install, host)
    if cut is not None:
        found += _cut_off(cut)
    for move in left_moves(install, host):
        if move.to_server:
            why = "a move there was cut off, and what it carried lies there: it is not searched"
            not_searched.append(NotChecked(move.to, why))
            continue
        path = move.cut.folder
        found.append(
            _CopySeen("left by a move that was cut off", path, (path,), None, None, "until that is settled")
        )
    for path in exports:
        if rawfiles.exists(path):
            found.append(_CopySeen("export", path, (path,), None, None, "until you remove it"))
    return found, texts


def until_when(path: str, host: Host) -> str:
    """When a snapshot goes, in words: "until 2026-12-14, as scheduled"."""
    real = str(Path(path).resolve())
    return _until((str(Path(real).parent),), host).get(real, _NO_SCHEDULE)


def _leads_here(path: str, install: Install) -> bool:
    """Whether a link at an old place leads to where the store is now."""
    return install.vectors is not None and Path(path).resolve() == Path(install.vectors.value).resolve()


def _goes(one: SeenSnapshot, until: Mapping[str, str]) -> str:
    if one.until is not None:
        return f"short-lived: the first command after {shown(one.until)} removes it"
    return until.get(one.path, _NO_SCHEDULE)


_NO_SCHEDULE = "until you remove it: no schedule that expires it is known"


def _cut_off(cut: Interrupted) -> list[_CopySeen]:
    folders = list(dict.fromkeys(path for path in (cut.folder, *(p for p, _ in cut.places)) if path))
    return [
        _CopySeen("left by a restore that was cut off", path, (path,), None, None, "until that is settled")
        for path in folders
        if path.endswith(".mem0audit-restoring")
    ]


def _read_copy(
    folder: str | None, history: str | None, who: Whose, texts: list[str], gaps: list[NotChecked]
) -> tuple[int | None, int | None]:
    """(memories of theirs, rows of the log with text of theirs) in a copy; adds their texts."""
    memories = rows = None
    ids = who
    if folder is not None and rawfiles.exists(folder):
        seen = read_vectors(EmbeddedStore(folder, alone=True), who)
        gaps += seen.not_read
        texts += seen.texts
        memories = None if any(r.count is None for r in seen.rows) else len(seen.mine)
        ids = replace(who, ids=who.ids | seen.mine)
    if history is not None and rawfiles.exists(history):
        log = read_log(history, ids, (), alone=True)
        gaps += log.not_read
        texts += log.texts
        counts = [r.count for r in log.rows]
        rows = None if None in counts else sum(c for c in counts if c is not None)
    return memories, rows


def _until(folders: Sequence[str], host: Host) -> dict[str, str]:
    """Path of a snapshot -> when it goes, where a policy is kept to on this machine."""
    found: dict[str, str] = {}
    for folder, policy in policies(host).items():
        if folder not in folders or policy.empty:
            continue
        try:
            standings = [one.snapshot for one in plan_expire(folder, policy, host.now).decisions]
        except Mem0auditError:
            continue
        days = goes_on(policy, standings, host.now)
        for one in standings:
            day = days[one.name]
            said = (
                f"until {day}, as scheduled"
                if day is not None
                else "until you remove it: the schedule keeps it"
            )
            if one.kept is not None:
                said = f"until you remove it: it is marked to be kept ({one.kept})"
            found[rawfiles.in_folder(folder, one.name)] = said
    return found


def _other_stores(install: Install, host: Host) -> list[NotChecked]:
    return [
        NotChecked(one.path, f"another store of this machine ({one.found_by}): not searched", gap=False)
        for one in find_candidates(install, host)
    ]
