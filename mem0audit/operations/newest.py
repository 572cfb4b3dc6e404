"""What was remembered since a time, with where it came from. Beside a running agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mem0audit.core.asof import SLACK_S, Changes, When
from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import Install, NotChecked, PointId, PointStore, VectorFacts
from mem0audit.core.newest import Added, New, named
from mem0audit.core.scopes import Scope
from mem0audit.core.timeline import ADD
from mem0audit.core.times import instant
from mem0audit.install.host import Host
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.asof import read_log
from mem0audit.operations.look import Progress, no_collector, no_progress
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.operations.residue import collections_of, owner_in
from mem0audit.operations.stores import place_of, store_of
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.ledger import CannotUse


@dataclass
class _Found:
    """The new memories that are in the store, and what could not be read."""

    memories: list[Added] = field(default_factory=list)
    there: set[str] = field(default_factory=set)
    not_read: list[NotChecked] = field(default_factory=list)


def new(
    install: Install,
    host: Host,
    since: float,
    scope: Scope | None = None,
    *,
    ledger: bool = True,
    progress: Progress | None = None,
) -> New:
    """The memories added since a time (seconds since 1970), oldest first; with a scope, those of it.

    The log says when each was added; one without a row there counts by its own `created_at`. Changes nothing. Raises
    CouldNotRead where the log, or the vector store, cannot be read.
    """
    say = progress or no_progress
    place_of(install)
    held = holders([o.value for o in (install.history, install.vectors) if o is not None], host)
    install = as_the_agent_sees_it(install, held.holders, host)
    with no_collector():
        say("reading the log", None, None)
        _, changes = read_log(install, host)
        changes.weigh(host.now)
        added = _added(changes, since)
        say("reading the memories", None, None)
        keep = _keeper(changes, added, since, host.now, scope)
        found = _in_vectors(install, host, keep)
    if found.not_read and not found.there:
        raise CouldNotRead(f"{found.not_read[0].what}: {found.not_read[0].why}")
    sources, gaps = _sources(install, host, ledger)
    live = set(changes.live_at_end())
    missing = [i for i in added if i not in found.there] if scope is None else []
    memories = [replace(one, source=sources.get(one.memory_id)) for one in found.memories]
    memories.sort(key=_order)
    return New(
        install=install,
        since=since,
        until=host.now,
        memories=tuple(memories),
        deleted=sum(1 for i in missing if i not in live),
        gone=sum(1 for i in missing if i in live),
        not_read=(*found.not_read, *gaps),
    )


def _order(one: Added) -> float:
    if one.added is not None:
        return one.added.latest
    return one.created_at or 0.0


def _added(changes: Changes, since: float) -> dict[str, When]:
    """The memories that have an ADD row since then, or may have, with when it was written."""
    found = {}
    for i, place in enumerate(changes.of):
        if changes.event(i) == ADD:
            when = changes.when(i)
            if when.latest >= since:
                found[changes.memories[place]] = when
    return found


_Keep = Callable[[int, PointId, Mapping[str, Any], VectorFacts], Added | None]


def _keeper(
    changes: Changes, added: Mapping[str, When], since: float, now: float, scope: Scope | None
) -> _Keep:
    def keep(_row: int, point_id: PointId, payload: Mapping[str, Any], _vector: VectorFacts) -> Added | None:
        memory_id = str(point_id)
        if "data" not in payload:
            return None
        when, created_at = added.get(memory_id), instant(payload.get("created_at"))
        if when is None:
            # one whose row comes in a moment is in the log the next time
            unlogged = changes.place(memory_id) is None
            if not unlogged or created_at is None or not since <= created_at <= now - SLACK_S:
                return None
        owner = owner_in(payload)
        if scope is not None and not scope.covers(owner):
            return None
        text = payload["data"]
        return Added(
            memory_id,
            owner,
            when,
            created_at,
            text if isinstance(text, str) else None,
            role=named(payload, "role"),
            actor_id=named(payload, "actor_id"),
            attributed_to=named(payload, "attributed_to"),
            sure=when is None or when.earliest >= since,
        )

    return keep


def _in_vectors(install: Install, host: Host, keep: _Keep) -> _Found:
    if install.vectors is None:
        return _in_store(store_of(install), keep)
    folder = install.vectors.value
    return where_it_lies(
        folder,
        host,
        lambda path: _in_store(EmbeddedStore(path), keep),
        lambda problem: _Found(not_read=[NotChecked(folder, problem.detail)]),
    )


def _in_store(store: PointStore, keep: _Keep) -> _Found:
    memories, _entities, gaps = collections_of(store)
    found = _Found(not_read=list(gaps))
    for info in memories:
        read = store.points(info, keep)
        found.memories += [one for one in read.rows.values() if one is not None]
        found.there.update(map(str, read.rows))
        if read.file.problem is not None:
            found.not_read.append(NotChecked(read.file.path, read.file.problem.detail))
        if read.bad or read.unsafe:
            found.not_read.append(
                NotChecked(info.path, f"{len(read.bad) + len(read.unsafe)} points do not decode")
            )
    return found


def _sources(install: Install, host: Host, wanted: bool) -> tuple[dict[str, str], list[NotChecked]]:
    """Where memories came from, as the ledger has it."""
    with ledgers.opened(install, host, wanted=wanted) as book:
        if book is None or isinstance(book, NotChecked):
            return {}, [] if book is None else [book]
        try:
            return book.sources(), []
        except CannotUse as error:
            return {}, [ledgers.unusable(book.path, error)]
