"""One memory: what each store holds of it. The one command that shows text, because it is asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mem0audit.core.asof import Step
from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.errors import CouldNotRead
from mem0audit.core.ledger import LedgerFact
from mem0audit.core.model import (
    CollectionInfo,
    Finding,
    HistoryRow,
    Incident,
    Install,
    NotChecked,
    PointId,
    PointStore,
    StoreLayout,
    VectorFacts,
)
from mem0audit.core.points import clipped, normalised
from mem0audit.install.host import Host
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.asof import life_of
from mem0audit.operations.audit import audit
from mem0audit.operations.look import Progress
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history_file, rows_of
from mem0audit.stores.ledger import CannotUse
from mem0audit.stores.server import connection_to
from mem0audit.stores.serverstore import ServerStore


@dataclass(frozen=True)
class Stored:
    """One row of a collection that holds the memory.

    `loads` is False for the losers of several rows for one id: Qdrant loads the highest rowid. `problem`
    says why a row does not decode; then there is no payload. A server has no rows: there `rowid` is 0.
    """

    collection: str
    rowid: int
    payload: Mapping[str, Any]
    vector: VectorFacts
    loads: bool = True
    problem: str | None = None


@dataclass(frozen=True)
class Linking:
    """An entity that links the memory: its id, whose it is, and how many memories it links."""

    collection: str
    entity_id: PointId
    payload: Mapping[str, Any]
    links: int


@dataclass(frozen=True)
class Shown:
    """Everything both stores hold of one memory, and what the audit says of it."""

    memory_id: str
    stored: tuple[Stored, ...]
    history: tuple[HistoryRow, ...]
    entities: tuple[Linking, ...]
    findings: tuple[Finding, ...] = ()
    incidents: tuple[Incident, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    timeline: tuple[Step, ...] | None = None
    """Its changes with when each was written; None where that was not asked for."""
    ledger: LedgerFact | None = None
    """What the ledger has of it; None where it knows nothing of it."""
    now: float = 0.0


def show(
    install: Install, host: Host, word: str, *, timeline: bool = False, progress: Progress | None = None
) -> Shown:
    """Everything both stores hold of the memory `word` names, and the findings about it.

    Every collection of the folder is searched: a memory can be in one that is not configured. Of a server those of
    mem0 are, since it serves others too. With `timeline` its life is told too, for which the whole log is read. Raises
    CouldNotRead where neither store has the id, saying what could not be read.
    """
    memory_id = normalised(word)
    paths = [o.value for o in (install.history, install.vectors) if o is not None]
    install = as_the_agent_sees_it(install, holders(paths, host).holders, host)
    stored: tuple[Stored, ...] = ()
    linking: tuple[Linking, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    if install.vectors is not None:
        folder = install.vectors.value
        stored, linking, not_checked = where_it_lies(
            folder,
            host,
            lambda path: _in_vectors(EmbeddedStore(path), memory_id),
            lambda problem: ((), (), (NotChecked(folder, problem.detail),)),
        )
    elif install.server_url is not None:
        with connection_to(install) as connection:
            store = ServerStore(connection, install.collection.value)
            stored, linking, not_checked = _in_vectors(store, memory_id)
    log = install.history.value
    rows, unread = where_it_lies(
        log,
        host,
        lambda path: _in_log(path, {str(memory_id), word}),
        lambda problem: ((), (NotChecked(log, problem.detail),)),
    )
    not_checked += unread
    if not stored and not rows and not linking:
        where = "; ".join(f"{n.what}: {n.why}" for n in not_checked)
        raise CouldNotRead(
            f"no memory {clipped(word, 200)} in the store or the log" + (f" ({where})" if where else ""),
            "owners and counts: mem0audit users; newest changes: mem0audit log",
        )
    report = audit(install, host, progress=progress, keep=False)
    # Without a finding it is sound only as far as the audit saw.
    known = {n.what for n in not_checked}
    not_checked += tuple(
        n for n in report.not_checked if n.gap and n.what not in known and n.what not in CATALOGUE
    )
    about = {str(memory_id), word}
    steps = life_of(install, host, about) if timeline else None
    return Shown(
        memory_id=str(memory_id),
        stored=stored,
        history=rows,
        entities=linking,
        findings=tuple(f for f in report.findings if f.memory_id in about),
        incidents=tuple(i for i in report.incidents if not about.isdisjoint(i.memory_ids)),
        not_checked=not_checked,
        timeline=steps,
        ledger=_in_ledger(install, host, str(memory_id)),
        now=host.now,
    )


def _in_ledger(install: Install, host: Host, memory_id: str) -> LedgerFact | None:
    with ledgers.opened(install, host) as book:
        if book is None or isinstance(book, NotChecked):
            return None
        try:
            return book.memories([memory_id]).get(memory_id)
        except CannotUse:
            return None


_InVectors = tuple[tuple[Stored, ...], tuple[Linking, ...], tuple[NotChecked, ...]]


def _in_vectors(store: PointStore, memory_id: PointId) -> _InVectors:
    """Its rows in every collection of the store, the entities that link it, and what could not be read."""
    stored: list[Stored] = []
    linking: list[Linking] = []
    not_checked: list[NotChecked] = []
    layout = store.layout()
    if layout.problem is not None:
        not_checked.append(NotChecked(layout.path, layout.problem.detail))
    elif not layout.exists:
        not_checked.append(NotChecked(layout.path, "not there"))
    for info in _readable(layout):
        try:
            stored += _stored(store, info, memory_id)
        except CouldNotRead as problem:
            not_checked.append(NotChecked(info.path, problem.message))
        if info.name.endswith("_entities"):
            linking += _linking(store, info, str(memory_id), not_checked)
    return tuple(stored), tuple(linking), tuple(not_checked)


def _in_log(path: str, ids: Collection[str]) -> tuple[tuple[HistoryRow, ...], tuple[NotChecked, ...]]:
    file = read_history_file(path)
    not_checked: list[NotChecked] = []
    if file.file.problem is not None or file.schema is None:
        detail = file.file.problem.detail if file.file.problem else "no history table"
        not_checked.append(NotChecked(file.file.path, detail))
    rows: tuple[HistoryRow, ...] = ()
    if file.schema is not None:
        try:
            rows = rows_of(path, ids)
        except CouldNotRead as problem:
            not_checked.append(NotChecked(file.file.path, problem.message))
    return rows, tuple(not_checked)


def _readable(layout: StoreLayout) -> list[CollectionInfo]:
    return [info for info in layout.collections if info.has_folder and not info.legacy and not info.foreign]


def _stored(store: PointStore, info: CollectionInfo, memory_id: PointId) -> list[Stored]:
    return [
        Stored(info.name, row.rowid, row.payload, row.vector, loads=row.winner, problem=row.problem)
        for row in store.find(info, memory_id)
    ]


def _linking(
    store: PointStore, info: CollectionInfo, memory_id: str, not_checked: list[NotChecked]
) -> list[Linking]:
    """Entities of one collection that link the memory, in one pass that keeps nothing else."""

    def keep(
        rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts
    ) -> Linking | None:
        links = payload.get("linked_memory_ids")
        if not isinstance(links, (list, tuple)) or memory_id not in map(str, links):
            return None
        return Linking(info.name, point_id, dict(payload), len(links))

    read = store.points(info, keep)
    if read.file.problem is not None:
        not_checked.append(NotChecked(read.file.path, read.file.problem.detail))
    return [link for link in read.rows.values() if link is not None]
