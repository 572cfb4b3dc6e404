"""One look at an install: both stores, what they stand on, who holds them. Nothing is changed.

Points are read before the log: the other way round, almost every write in flight would look like a
fault (mem0 writes the vector store first, the log second).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from mem0audit.core.errors import ServerProblem
from mem0audit.core.model import (
    Agent,
    CollectionInfo,
    FileState,
    HistoryFile,
    HistoryRow,
    Install,
    NotChecked,
    Origin,
    Place,
    PointStore,
    StoreLayout,
)
from mem0audit.core.points import (
    MEM0_SHAPE,
    TELEMETRY,
    MemoryKeeper,
    entity_keeper,
    keep_entity,
    owners_of,
)
from mem0audit.core.reading import ENTITIES_SUFFIX as ENTITIES_SUFFIX
from mem0audit.core.reading import TELEMETRY_COLLECTIONS, Entities, Memories, Reading
from mem0audit.core.seal import NO_SEAL, SealedRows, Sealing, SealKeeper
from mem0audit.core.server import PAYLOADS, ServerRead
from mem0audit.core.signs import FindSecrets, MessageSecrets
from mem0audit.core.timeline import Timeline
from mem0audit.install.agents import whose_mem0
from mem0audit.install.candidates import find_candidates
from mem0audit.install.host import Host
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.operations.stores import store_of_copy
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history, secrets_in_messages

T = TypeVar("T")

Progress = Callable[[str, int | None, int | None], None]
"""Called with (phase, done, total); done and total are None where they are not known."""


NO_INSTANT = NotChecked(
    "one instant", "a server is read in pages, and what is written meanwhile may be in them or not", gap=False
)


LEFT_THERE = "may be left there by a run of this: HTTP DELETE removes it"


def no_progress(phase: str, done: int | None, total: int | None) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class _Vectors:
    """The embedded folder, or the server, as read."""

    collection: Origin
    layout: StoreLayout
    memories: tuple[Memories, ...] = ()
    entities: tuple[Entities, ...] = ()
    telemetry: tuple[CollectionInfo, ...] = ()
    not_read: tuple[NotChecked, ...] = ()


@dataclass(frozen=True)
class _Log:
    """The history file as read; `timeline` is None where its rows could not be read whole."""

    history: HistoryFile
    timeline: Timeline | None
    sealed_rows: SealedRows | None = None
    in_messages: tuple[MessageSecrets, ...] = ()


class _BesideSeal:
    """Takes history rows (a `model.RowSink`) for a timeline and for a seal, as of the same instant."""

    def __init__(self, sealed_rows: SealedRows, timeline: Timeline) -> None:
        self.timeline = timeline
        self.sealed_rows = sealed_rows

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows."""
        self.timeline.rows(page)
        self.sealed_rows.rows(page)


@contextmanager
def no_collector() -> Iterator[None]:
    """Reading makes a million small objects and no cycles: the collector would only walk them again and again
    (a sixth of the time of an audit of 100,000 memories)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_vectors(
    store: PointStore,
    wanted: Origin,
    progress: Progress,
    sealing: Sealing | None = None,
    find: FindSecrets | None = None,
) -> _Vectors:
    """Every collection of the folder; of a server those of mem0, since it serves others too.

    Where the configuration names no collection and mem0's default is not there, the only collection is taken; the
    returned origin says so.
    """
    layout = store.layout()
    collection = chosen_collection(wanted, layout)
    memories: list[Memories] = []
    entities: list[Entities] = []
    telemetry: list[CollectionInfo] = []
    not_read: list[NotChecked] = []
    others = [info for info in layout.collections if info.foreign]
    if others:
        not_read.append(NotChecked("other collections", f"{_named(others)}: left alone", gap=False))
    for info in layout.collections:
        if not info.has_folder or info.legacy or info.foreign:
            continue
        progress(f"reading {info.name}", None, None)
        configured = info.name == collection.value
        if not configured and info.name.endswith(ENTITIES_SUFFIX):
            base = info.name[: -len(ENTITIES_SUFFIX)]
            keep = keep_entity if find is None else entity_keeper(find)
            entities.append(Entities(info, store.points(info, keep, helped=True), base))
            continue
        keeper = MemoryKeeper(find) if sealing is None else SealKeeper(sealing.key, sealing.known, find)
        read = store.points(info, keeper, helped=True)
        rows = read.rows.values()
        found = Memories(info, read, configured, owners_of(rows))
        # What did not read or decode can be anything, and a hostile blob anywhere runs when the store is opened.
        other = not configured and not (found.read.file.problem or found.read.bad or found.read.unsafe)
        if other and info.name in TELEMETRY_COLLECTIONS and all(p.flags & TELEMETRY for p in rows):
            telemetry.append(info)
        elif other and not any(p.flags & MEM0_SHAPE for p in rows):
            not_read.append(NotChecked(info.name, "no collection of mem0's: left alone", gap=False))
        else:
            memories.append(found)
    return _Vectors(collection, layout, tuple(memories), tuple(entities), tuple(telemetry), tuple(not_read))


def _read_server(
    install: Install,
    progress: Progress,
    sealing: Sealing | None,
    find: FindSecrets | None,
    how: ServerRead,
) -> _Vectors:
    """Mem0's collections of a server: page by page, or each shard as of one instant."""
    # http.client and ssl take longer to load than a small folder to read
    from mem0audit.operations import scratch
    from mem0audit.stores.server import connection_to
    from mem0audit.stores.serverstore import ServerStore
    from mem0audit.stores.shardsnapshots import InstantStore

    wanted = install.collection
    with connection_to(install) as connection:
        if not how.instant:
            pages = ServerStore(connection, wanted.value, vectors=how.vectors)
            vectors = _read_vectors(pages, wanted, progress, sealing, find)
            left: list[NotChecked] = []
            notes = [NO_INSTANT] if vectors.layout.problem is None else []
        else:
            with scratch.folder() as folder:
                store = InstantStore(connection, folder, wanted.value, vectors=how.vectors)
                vectors = _read_vectors(store, wanted, progress, sealing, find)
            why = f"of {', '.join(store.several)} each shard is read as of an instant of its own"
            notes = [NotChecked("one instant", why, gap=False)] if store.several else []
            left = [NotChecked(one, LEFT_THERE) for one in store.left]
    return replace(vectors, not_read=(*vectors.not_read, *notes, *left))


def _named(collections: Sequence[CollectionInfo], most: int = 10) -> str:
    names = ", ".join(info.name for info in collections[:most])
    return names + (f" and {len(collections) - most:,} more" if len(collections) > most else "")


def _read_log(
    path: str,
    sealing: Sealing | None = None,
    find: FindSecrets | None = None,
    alone: bool = False,
    vectors: _Vectors | None = None,
) -> _Log:
    """`vectors` were read before, with the same `find`."""
    clean = frozenset[bytes]() if find is None or vectors is None else _without_secrets(vectors)
    if sealing is None:
        log = _Log(*read_history(path, lambda: Timeline(find, clean), alone))
    else:
        history, both = read_history(
            path, lambda: _BesideSeal(sealing.beside(), Timeline(find, clean)), alone
        )
        log = _Log(history, None) if both is None else _Log(history, both.timeline, both.sealed_rows)
    if find is None or log.timeline is None or not log.history.message_scopes:
        return log
    return replace(log, in_messages=secrets_in_messages(path, find, alone))


def _without_secrets(vectors: _Vectors) -> frozenset[bytes]:
    """The digests of the memories' texts in which no credentials were found."""
    return frozenset(
        record.text
        for memories in vectors.memories
        for record in memories.read.rows.values()
        if record.text is not None and (record.signs is None or not record.signs.secrets)
    )


def chosen_collection(wanted: Origin, layout: StoreLayout) -> Origin:
    """The collection that is meant: where nobody named one and mem0's default is not there, the only one."""
    names = [c.name for c in layout.collections]
    if wanted.decided_by != "mem0's default" or wanted.value in names:
        return wanted
    own = [
        n
        for n in names
        if n not in TELEMETRY_COLLECTIONS
        and not (n.endswith(ENTITIES_SUFFIX) and n[: -len(ENTITIES_SUFFIX)] in names)
    ]
    return Origin(own[0], "the only collection there") if len(own) == 1 else wanted


def look(
    install: Install,
    host: Host,
    progress: Progress = no_progress,
    sealing: Sealing | None = None,
    find: FindSecrets | None = None,
    how: ServerRead = PAYLOADS,
) -> Reading:
    """Everything the rules judge, as of now. Raises nothing for what cannot be read: it says so.

    Where the configuration names no collection, the only one of the folder is taken: the reading's install
    says which, and why. With `sealing` both stores are read beside the last seal, or for a first one; with `find`
    every text is looked at for credentials and orders. `how` is how a server's points are read.
    """
    paths = [o.value for o in (install.history, install.vectors) if o is not None]
    progress("looking who has the stores open", None, None)
    held = holders(paths, host)
    install = as_the_agent_sees_it(install, held.holders, host)
    vectors: _Vectors | None = None
    not_read: tuple[NotChecked, ...] = ()
    if install.vectors is not None:
        folder, wanted = install.vectors.value, install.collection
        vectors = where_it_lies(
            folder,
            host,
            lambda path: _read_vectors(EmbeddedStore(path), wanted, progress, sealing, find),
            lambda problem: _Vectors(wanted, StoreLayout(folder, exists=True, problem=problem)),
        )
    elif install.server_url is not None:
        vectors = _read_server(install, progress, sealing, find, how)
    else:
        not_read = (
            NotChecked("vector store", f"it is {install.provider}: this version reads the log alone"),
        )
    if vectors is not None:
        install = replace(install, collection=vectors.collection)
        not_read = vectors.not_read
    progress("reading the log", None, None)
    path = install.history.value
    log = where_it_lies(
        path,
        host,
        lambda path: _read_log(path, sealing, find, vectors=vectors),
        lambda problem: _Log(HistoryFile(FileState(path, problem=problem)), None),
    )
    candidates = find_candidates(install, host)
    lost = _missing_ids(vectors, log)
    if lost:
        progress("looking for missing memories in other stores", None, None)
    folders = [c.path for c in candidates if c.kind == "vectors"]
    folders.append(str(Path(install.mem0_dir.value) / "migrations_qdrant"))
    elsewhere = _found_elsewhere(lost, folders, host) if lost else {}
    if lost and install.server_url is not None and vectors is not None:
        elsewhere |= _in_other_collections(lost - elsewhere.keys(), install, vectors)
    return Reading(
        install=install,
        history_place=look_at(install.history.value, host),
        vectors_place=look_at(install.vectors.value, host) if install.vectors is not None else None,
        layout=vectors.layout if vectors is not None else None,
        history=log.history,
        timeline=log.timeline,
        memories=vectors.memories if vectors is not None else (),
        entities=vectors.entities if vectors is not None else (),
        telemetry=vectors.telemetry if vectors is not None else (),
        holders=held.holders,
        holders_unseen=None if held.complete else held.why,
        agent=whose_mem0(install, held.holders, host),
        candidates=candidates,
        elsewhere=elsewhere,
        now=host.now,
        boot_at=host.boot_at,
        # Who else writes to a server cannot be seen from here.
        live=bool(held.holders) or not held.complete or install.server_url is not None,
        not_read=not_read,
        last_seal=NO_SEAL if sealing is None else sealing.last,
        sealed_rows=log.sealed_rows,
        texts_looked_at=find is not None,
        in_messages=log.in_messages,
        vectors_read=install.server_url is None or how.vectors,
    )


def look_at_copy(
    install: Install,
    agent: Agent,
    now: float,
    progress: Progress = no_progress,
    sealing: Sealing | None = None,
    find: FindSecrets | None = None,
) -> Reading:
    """Everything the rules judge about a pair that nobody writes: no process, place or other store is looked for.

    `install` names the copy's own paths, `now` (seconds since 1970) is when it was taken and `agent` whose it
    is, so that the same copy is always judged alike; of a server's
    the points are in a scratch collection. With `sealing` it is read for a seal too, but judged without.
    """
    history = install.history.value
    with no_collector():
        vectors = _read_vectors(store_of_copy(install), install.collection, progress, sealing, find)
        progress("reading the log", None, None)
        log = _read_log(history, sealing, find, alone=True)
    reading = _of_pair(install, agent, now, vectors, log)
    return replace(
        reading,
        not_read=vectors.not_read,
        sealed_rows=log.sealed_rows,
        texts_looked_at=find is not None,
        in_messages=log.in_messages,
    )


def _of_pair(install: Install, agent: Agent, now: float, vectors: _Vectors, log: _Log) -> Reading:
    return Reading(
        install=replace(install, collection=vectors.collection),
        history_place=Place(install.history.value, exists=True),
        vectors_place=None if install.vectors is None else Place(install.vectors.value, exists=True),
        layout=vectors.layout,
        history=log.history,
        timeline=log.timeline,
        memories=vectors.memories,
        entities=vectors.entities,
        telemetry=vectors.telemetry,
        holders=(),
        holders_unseen=None,
        agent=agent,
        candidates=(),
        elsewhere={},
        now=now,
        boot_at=None,
        live=False,
        vectors_read=install.server_url is None,
    )


def points_beside_logs(
    install: Install, agent: Agent, now: float, store: PointStore, sealing: Sealing | None = None
) -> Callable[[str, bool], Reading]:
    """Reads the points now; what it returns reads a log (its path, and whether nobody writes to it) and gives both as
    one reading for the rules that compare them, as of `now` (seconds since 1970); with `sealing` for a seal too."""
    with no_collector():
        vectors = _read_vectors(store, install.collection, no_progress, sealing)

    def beside(history: str, alone: bool) -> Reading:
        with no_collector():
            log = _read_log(history, sealing, alone=alone)
            return replace(_of_pair(install, agent, now, vectors, log), sealed_rows=log.sealed_rows)

    return beside


def _missing_ids(vectors: _Vectors | None, log: _Log) -> frozenset[str]:
    """Memories that the log calls live and the store lacks; none where it was not read whole."""
    if log.timeline is None or vectors is None or vectors.layout.problem is not None:
        return frozenset()
    if any(c.read.file.problem is not None for c in vectors.memories):
        return frozenset()
    there = {i for c in vectors.memories for i in c.by_id}
    return frozenset(i for i, _ in log.timeline.live() if i not in there)


def _found_elsewhere(lost: Collection[str], folders: Collection[str], host: Host) -> dict[str, str]:
    """Which of the ids another store holds: several programs may share one log (the same MEM0_DIR), and
    an agent with a private /tmp keeps its own folder under the same name."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(folders):
        held = where_it_lies(folder, host, lambda path: _holding(path, lost), lambda _: ())
        found.update({i: folder for i in held if i not in found})
    return found


def _in_other_collections(lost: Collection[str], install: Install, vectors: _Vectors) -> dict[str, str]:
    """Which of the ids another collection of the same server has: one log may serve several."""
    found: dict[str, str] = {}
    from mem0audit.stores.server import connection_to
    from mem0audit.stores.serverstore import ServerStore

    with connection_to(install) as connection:
        store = ServerStore(connection)
        for info in vectors.layout.collections:
            if not info.foreign:
                continue
            with suppress(ServerProblem):  # a key for some collections only, or one that is none of mem0's
                found.update(dict.fromkeys(store.holding(info, lost), info.path))
    return found


def _holding(folder: str, lost: Collection[str]) -> tuple[str, ...]:
    """Those of the ids that a collection of the folder has."""
    store = EmbeddedStore(folder)
    collections = [c for c in store.layout().collections if c.has_folder and not c.legacy]
    return tuple(i for info in collections for i in store.holding(info, lost))
