"""Everything that both stores, the messages, the entities and the ledger hold of a scope: an access request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mem0audit.core.errors import CouldNotRead, ServerProblem
from mem0audit.core.ledger import LedgerFact
from mem0audit.core.model import (
    CollectionInfo,
    FileProblem,
    HistoryRow,
    Install,
    NotChecked,
    PointId,
    PointStore,
    VectorFacts,
)
from mem0audit.core.points import Owner
from mem0audit.core.scopes import Scope
from mem0audit.core.validity import Fact
from mem0audit.install.host import Host
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.facts import told_of
from mem0audit.operations.look import Progress, no_collector, no_progress
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.operations.residue import Whose, collections_of, owner_in, whose
from mem0audit.operations.stores import store_of
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import MessageRow, TextRow, read_texts, rows_of
from mem0audit.stores.ledger import CannotUse


@dataclass(frozen=True)
class Point:
    """A point as it is stored. Of its vectors only what they are: they are computed from the text."""

    collection: str
    id: str
    payload: Mapping[str, Any]
    vector: VectorFacts


@dataclass(frozen=True)
class Exported:
    """What is held of a scope. `owners` are whose each id is, as the ledger saw it, and `ledger` what it has of each
    memory; `made_at` in seconds since 1970."""

    install: Install
    scope: Scope
    made_at: float
    ids: tuple[str, ...]
    points: tuple[Point, ...]
    history: tuple[HistoryRow, ...]
    stranded: tuple[TextRow, ...]
    messages: tuple[MessageRow, ...]
    entities: tuple[Point, ...]
    owners: Mapping[str, Owner]
    not_read: tuple[NotChecked, ...]
    ledger: Mapping[str, LedgerFact] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    """What the ledger was told of them, or is tied to their memories."""

    @property
    def is_empty(self) -> bool:
        """Nothing was found of them, not even an id."""
        return not (
            self.ids
            or self.points
            or self.history
            or self.stranded
            or self.messages
            or self.entities
            or self.facts
        )

    @property
    def summary(self) -> str:
        """In numbers."""
        return (
            f"{len(self.points):,} memories, {len(self.history):,} log rows, {len(self.messages):,} messages, "
            f"{len(self.entities):,} entities, {len(self.facts):,} facts"
        )


@dataclass(frozen=True)
class _InVectors:
    points: tuple[Point, ...] = ()
    entities: tuple[Point, ...] = ()
    not_read: tuple[NotChecked, ...] = ()


@dataclass(frozen=True)
class _InLog:
    history: tuple[HistoryRow, ...] = ()
    stranded: tuple[TextRow, ...] = ()
    messages: tuple[MessageRow, ...] = ()
    not_read: tuple[NotChecked, ...] = ()


def export(
    install: Install, host: Host, scope: Scope, *, ledger: bool = True, progress: Progress | None = None
) -> Exported:
    """Everything that is held of a scope. Changes nothing. Raises nothing for what cannot be read: it says so."""
    say = progress or no_progress
    book = whose(install, host, scope, (), ledger=ledger)
    held = holders([o.value for o in (install.history, install.vectors) if o is not None], host)
    install = as_the_agent_sees_it(install, held.holders, host)
    who, found = book.whose, _InVectors()
    say("reading the memories", None, None)
    with no_collector():
        if install.vectors is not None:
            folder = install.vectors.value
            found = where_it_lies(
                folder,
                host,
                lambda path: _in_vectors(EmbeddedStore(path), who),
                lambda problem: _InVectors(not_read=_gap(folder, problem)),
            )
        elif install.server_url is not None:
            url = install.server_url.value
            try:
                found = _in_vectors(store_of(install), who)
            except ServerProblem as problem:
                found = _InVectors(not_read=(NotChecked(url, problem.message.removeprefix(f"{url}: ")),))
        else:
            gap = NotChecked("the vector store", "it is no Qdrant: it is not read")
            found = _InVectors(not_read=(gap,))
        who = replace(who, ids=who.ids | {point.id for point in found.points})
        say("reading the log", None, None)
        path = install.history.value
        log = where_it_lies(
            path,
            host,
            lambda path: _in_log(path, who),
            lambda problem: _InLog(not_read=_gap(path, problem)),
        )
    ids = who.ids
    owners, known = _in_ledger(install, host, ids, ledger)
    return Exported(
        install,
        scope,
        host.now,
        tuple(sorted(ids)),
        found.points,
        log.history,
        log.stranded,
        log.messages,
        found.entities,
        owners,
        (*book.not_read, *found.not_read, *log.not_read),
        known,
        told_of(install, host, scope, ids, ledger=ledger and not book.not_read),
    )


def _gap(path: str, problem: FileProblem) -> tuple[NotChecked, ...]:
    return (NotChecked(path, problem.detail),)


def _in_ledger(
    install: Install, host: Host, ids: frozenset[str], ledger: bool
) -> tuple[dict[str, Owner], Mapping[str, LedgerFact]]:
    with ledgers.opened(install, host, wanted=ledger) as book:
        if book is None or isinstance(book, NotChecked):
            return {}, {}
        try:
            owners = {one: owner for one, owner in book.owners().items() if one in ids}
            return owners, book.memories(ids)
        except CannotUse:
            return {}, {}


def _in_vectors(store: PointStore, who: Whose) -> _InVectors:
    memories, entities, gaps = collections_of(store)
    ids = set(who.ids)
    found: list[list[Point]] = [[], []]

    def theirs(_row: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts) -> Point | None:
        if not who.has(point_id, payload):
            return None
        return Point("", str(point_id), dict(payload), vector)

    def linked(_row: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts) -> Point | None:
        links = payload.get("linked_memory_ids")
        of_them = {str(i) for i in links} if isinstance(links, (list, tuple)) else set()
        owned = who.scope is not None and who.scope.covers(owner_in(payload))
        if not owned and ids.isdisjoint(of_them):
            return None
        # what it links of others is theirs, not to be handed out
        shown = {**payload, "linked_memory_ids": sorted(of_them & ids)} if of_them else dict(payload)
        return Point("", str(point_id), shown, vector)

    for number, (infos, keep) in enumerate(((memories, theirs), (entities, linked))):
        for info in infos:
            read = store.points(info, keep)
            some = [replace(point, collection=info.name) for point in read.rows.values() if point is not None]
            if info.server is not None:  # its vectors are read for nobody else
                some = [replace(point, vector=_vector(store, info, point)) for point in some]
            found[number] += some
            if number == 0:
                ids.update(point.id for point in some)
            if read.file.problem is not None:
                gaps.append(NotChecked(read.file.path, read.file.problem.detail))
            if read.bad or read.unsafe:
                gaps.append(NotChecked(info.path, f"{len(read.bad) + len(read.unsafe)} points do not decode"))
    return _InVectors(tuple(found[0]), tuple(found[1]), tuple(gaps))


def _vector(store: PointStore, info: CollectionInfo, point: Point) -> VectorFacts:
    point_id = int(point.id) if point.id.isdigit() else point.id
    return next((one.vector for one in store.find(info, point_id)), point.vector)


def _in_log(path: str, who: Whose) -> _InLog:
    stranded: list[TextRow] = []
    messages: list[MessageRow] = []

    def begin() -> None:
        stranded.clear()
        messages.clear()

    def take(page: list[TextRow]) -> None:
        stranded.extend(r for r in page if r.table != "history" and str(r.memory_id) in who.ids)

    def take_messages(page: list[MessageRow]) -> None:
        scope = who.scope
        messages.extend(r for r in page if scope is not None and scope.covers_messages(str(r.session_scope)))

    said = read_texts(path, take, take_messages, begin)
    gaps = [] if said.file.problem is None else [NotChecked(path, said.file.problem.detail)]
    rows: tuple[HistoryRow, ...] = ()
    try:
        rows = rows_of(path, who.ids)
    except CouldNotRead as problem:
        if not gaps:
            gaps.append(NotChecked(path, problem.message.removeprefix(f"{path}: ")))
    return _InLog(rows, tuple(stranded), tuple(messages), tuple(gaps))


def remember(install: Install, host: Host, path: str) -> str | None:
    """Notes in the ledger where an export lies, for a later `residue`; why it could not be, or None."""
    with ledgers.opened(install, host, make=True) as book:
        if book is None or isinstance(book, NotChecked):
            return book.why if book is not None else "no ledger"
        try:
            book.note_export(os.path.realpath(os.path.join(host.cwd, path)))  # noqa: PTH118
        except CannotUse as error:
            return f"the ledger {error.why}"
    return None
