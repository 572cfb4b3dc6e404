"""One look at an install: both stores, what they stand on, who holds them. Nothing is changed.

Points are read before the log: the other way round, almost every write in flight would look like a
fault (mem0 writes the vector store first, the log second).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mem0audit.core.model import (
    CollectionInfo,
    FileState,
    HistoryFile,
    Install,
    NotChecked,
    Origin,
    StoreLayout,
)
from mem0audit.core.points import MEM0_SHAPE, TELEMETRY, MemoryKeeper, keep_entity
from mem0audit.core.reading import TELEMETRY_COLLECTIONS, Entities, Memories, Reading
from mem0audit.core.timeline import Timeline
from mem0audit.install.agents import whose_mem0
from mem0audit.install.candidates import find_candidates
from mem0audit.install.host import Host
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history_file, read_rows

Progress = Callable[[str, int | None, int | None], None]
"""Called with (phase, done, total); done and total are None where they are not known."""

ENTITIES_SUFFIX = "_entities"


def no_progress(phase: str, done: int | None, total: int | None) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Stores:
    """The two stores as read, apart from what they stand on."""

    install: Install
    layout: StoreLayout | None
    history: HistoryFile | None
    timeline: Timeline | None
    memories: tuple[Memories, ...]
    entities: tuple[Entities, ...]
    others: tuple[CollectionInfo, ...]
    telemetry: tuple[CollectionInfo, ...]
    not_read: tuple[NotChecked, ...]


@contextmanager
def _no_collector() -> Iterator[None]:
    """Reading makes a million small objects and no cycles: the collector only walks them again and again
    (a sixth of the time of an audit of 100,000 memories)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_no_collector()
def read_stores(install: Install, progress: Progress = no_progress) -> Stores:
    """Read every collection of the folder, then the log.

    Where the configuration names no collection and mem0's default is not there, the only collection of
    the folder is taken; the returned install says so.
    """
    layout: StoreLayout | None = None
    memories: list[Memories] = []
    entities: list[Entities] = []
    others: list[CollectionInfo] = []
    telemetry: list[CollectionInfo] = []
    not_read: list[NotChecked] = []
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        not_read.append(NotChecked("vector store", f"it is {what}: this version reads the log alone"))
    else:
        store = EmbeddedStore(install.vectors.value)
        layout = store.layout()
        install = replace(install, collection=_collection(install.collection, layout))
        for info in layout.collections:
            if not info.has_folder or info.legacy:
                continue
            progress(f"reading {info.name}", None, None)
            configured = info.name == install.collection.value
            if not configured and info.name.endswith(ENTITIES_SUFFIX):
                base = info.name[: -len(ENTITIES_SUFFIX)]
                entities.append(Entities(info, store.points(info, keep_entity), base))
                continue
            keeper = MemoryKeeper()
            found = Memories(info, store.points(info, keeper), configured, keeper.owners.keys())
            rows = found.read.rows.values()
            if (
                not configured
                and info.name in TELEMETRY_COLLECTIONS
                and all(p.flags & TELEMETRY for p in rows)
            ):
                telemetry.append(info)
            elif not configured and not any(p.flags & MEM0_SHAPE for p in rows):
                others.append(info)
                not_read.append(NotChecked(info.name, "no collection of mem0's: left alone", gap=False))
            else:
                memories.append(found)
    progress("reading the log", None, None)
    history = read_history_file(install.history.value)
    timeline: Timeline | None = None
    if history.file.problem is None and history.schema is not None:
        state, timeline = read_rows(install.history.value, Timeline)
        history = replace(history, file=_joined(history.file, state))
        if state.problem is not None:
            timeline = None
    return Stores(
        install,
        layout,
        history,
        timeline,
        tuple(memories),
        tuple(entities),
        tuple(others),
        tuple(telemetry),
        tuple(not_read),
    )


def _joined(first: FileState, second: FileState) -> FileState:
    """What two openings of one file say together: the second reading's problem, the first's check."""
    return replace(
        first,
        problem=second.problem,
        hot_journal=first.hot_journal or second.hot_journal,
        longest_hold_s=max(first.longest_hold_s, second.longest_hold_s),
    )


def _collection(wanted: Origin, layout: StoreLayout) -> Origin:
    names = [c.name for c in layout.collections]
    if wanted.decided_by != "mem0's default" or wanted.value in names:
        return wanted
    own = [
        n
        for n in names
        if n not in TELEMETRY_COLLECTIONS
        and not (n.endswith(ENTITIES_SUFFIX) and n[: -len(ENTITIES_SUFFIX)] in names)
    ]
    return Origin(own[0], "the only collection in the folder") if len(own) == 1 else wanted


def look(install: Install, host: Host, progress: Progress = no_progress) -> Reading:
    """Everything the rules judge, as of now. Raises nothing for what cannot be read: it says so."""
    paths = [install.history.value]
    if install.vectors is not None:
        paths.append(install.vectors.value)
    progress("looking who has the stores open", None, None)
    held = holders(paths, host)
    stores = read_stores(install, progress)
    candidates = find_candidates(stores.install, host)
    lost = _missing_ids(stores)
    elsewhere: Mapping[str, str] = {}
    if lost:
        progress("looking for missing memories in other stores", None, None)
        folders = [c.path for c in candidates if c.kind == "vectors"]
        folders.append(str(Path(install.mem0_dir.value) / "migrations_qdrant"))
        elsewhere = _found_elsewhere(lost, folders)
    return Reading(
        install=stores.install,
        history_place=look_at(install.history.value, host),
        vectors_place=look_at(install.vectors.value, host) if install.vectors is not None else None,
        layout=stores.layout,
        history=stores.history,
        timeline=stores.timeline,
        memories=stores.memories,
        entities=stores.entities,
        others=stores.others,
        telemetry=stores.telemetry,
        holders=held.holders,
        holders_unseen=None if held.complete else held.why,
        agent=whose_mem0(install, held.holders, host),
        candidates=candidates,
        elsewhere=elsewhere,
        now=host.now,
        boot_at=host.boot_at,
        live=bool(held.holders) or not held.complete,
        not_read=stores.not_read,
    )


def _missing_ids(stores: Stores) -> frozenset[str]:
    """Memories that the log calls live and the folder lacks."""
    if stores.timeline is None or stores.layout is None:
        return frozenset()
    there = {i for c in stores.memories for i, _ in c.real()}
    return frozenset(i for i, _ in stores.timeline.live() if i not in there)


def _found_elsewhere(lost: Collection[str], folders: Collection[str]) -> dict[str, str]:
    """Which of the ids another store holds: several programs may share one log (the same MEM0_DIR)."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(folders):
        store = EmbeddedStore(folder)
        for info in store.layout().collections:
            if info.has_folder and not info.legacy:
                ids = store.points(info, lambda rowid, point_id, payload, vector: None).rows
                found.update({i: folder for i in map(str, ids) if i in lost and i not in found})
    return found
