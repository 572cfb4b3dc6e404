"""What changed between two times: two snapshots, a backup, the live install, compared memory by memory.

Compared are the vectors' memories, which is what the agent answers from, by digests; texts are read in a second
pass, and only those that are needed. The live install is read beside its agent as an audit reads it: each
collection as of one instant, each memory as it was committed. mem0 writes a memory's text, owner and metadata in
one row, so that no difference is half a write; of several facts added in one call some may be there and some not
yet. A second look, as an audit takes to tell a write in flight from a fault, has nothing to tell here.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from mem0audit.core import diff as core
from mem0audit.core.diff import Change, Diff, DiffRecord, Key, ScopeDiff, Side
from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.model import (
    CollectionInfo,
    FileProblem,
    Install,
    NotChecked,
    Origin,
    PointId,
    PointStore,
    VectorFacts,
)
from mem0audit.core.points import text_digest
from mem0audit.core.reading import TELEMETRY_COLLECTIONS
from mem0audit.core.snapshot import canonical
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host
from mem0audit.install.processes import holders
from mem0audit.operations.copyaudit import Copy, odd_in
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, no_collector, no_progress
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.operations.serververify import put_as, scratch_names
from mem0audit.operations.stores import store_of
from mem0audit.stores import serversnapshots
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.server import connection_to

LIVE: Final = "live"


@dataclass(frozen=True)
class Found:
    """Something to compare: a Qdrant folder, whether nobody writes it, and what is known of it.

    With `server`, an install that names one, the points are read there instead: of the collections `names`, which gives
    the names that they have in what is compared.
    """

    what: Literal["snapshot", "backup", "live"]
    path: str
    vectors: str
    taken_at: float | None
    pair: bool
    server: Install | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def of_copy(copy: Copy) -> Found:
    """A snapshot or a backup. Raises CouldNotRead where it holds what is no ordinary file."""
    odd = odd_in(copy.halves)
    if odd is not None:
        raise CouldNotRead(
            f"{copy.halves.folder}: {odd}", f"mem0audit snapshot verify {shell_word(copy.halves.folder)}"
        )
    manifest = copy.manifest
    if manifest is None:
        return Found("backup", copy.halves.folder, copy.halves.vectors.value, None, False)
    return Found("snapshot", copy.halves.folder, copy.halves.vectors.value, manifest.taken_at, manifest.pair)


@contextmanager
def lent(copy: Copy, server: Install | None, progress: Progress | None) -> Iterator[Found]:
    """A snapshot whose points lay on a server, to compare: its collection of memories is put onto `server` under a
    scratch name for as long as this lasts. Raises Refused where no server is named or where it does not do that, Failed
    where it could not be removed again."""
    manifest = copy.manifest
    assert manifest is not None and manifest.server is not None
    folder = copy.halves.folder
    if server is None or server.server_url is None:
        raise Refused(
            f"{folder}: its points are in a Qdrant server's own format, which a server has to read",
            "name one with --qdrant-url: they are put there under a scratch name, and removed again",
        )
    copies = [one for one in manifest.server.collections if one.role == "memories"]
    names = scratch_names(copies, secrets.token_hex(6))
    left: list[str] = []
    say = progress or no_progress
    with (
        connection_to(server) as connection,
        put_as(connection, manifest, Path(folder), copies, lambda one: names[one.name], say, left),
    ):
        for one in copies:
            why = serversnapshots.wait_until_ready(connection, names[one.name])
            if why is not None:
                raise CouldNotRead(f"{folder}: what the server makes of it cannot be read: {why}")
        of = {scratch: name for name, scratch in names.items()}
        yield Found("snapshot", folder, folder, manifest.taken_at, manifest.pair, server, of)
    if left:
        raise Failed(f"the scratch collection {left[0]} could not be removed again: remove it on the server")


def of_live(install: Install, host: Host) -> Found:
    """The install itself. Raises Refused where its vectors are no Qdrant's."""
    if install.vectors is None:
        if install.server_url is None:
            raise Refused(f"the vector store is {install.provider}: no Qdrant that could be compared")
        name, url = install.collection.value, install.server_url.value
        return Found("live", url, url, host.now, True, install, {name: name})
    held = holders([install.history.value, install.vectors.value], host)
    seen = as_the_agent_sees_it(install, held.holders, host).vectors
    assert seen is not None
    return Found("live", seen.value, seen.value, host.now, True)


def diff(a: Found, b: Found, host: Host, *, texts: bool = False, progress: Progress | None = None) -> Diff:
    """The memories that are in `b` and not in `a`, in `a` and not in `b`, and in both with another text, owner or
    other metadata. Changes nothing.

    With `texts` each difference carries its texts. What could not be read is in `not_checked`; raises CouldNotRead
    where a side could not be read at all. Time and memory grow with the number of memories.
    """
    say = progress or no_progress
    started = time.monotonic()
    with no_collector():
        first, second = _read(a, host, say), _read(b, host, say)
        say("comparing", None, None)
        scopes, totals = core.compare(first.records, second.records)
        if texts:
            scopes = _with_texts(scopes, a, b, first.records, second.records, host, say)
    return Diff(
        a=_side(a, first),
        b=_side(b, second),
        scopes=scopes,
        unchanged=totals["unchanged"],
        texts=texts,
        seconds=time.monotonic() - started,
        totals=dict(totals),
    )


# --- Reading ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    records: dict[Key, DiffRecord]
    not_checked: tuple[NotChecked, ...]


def _side(found: Found, read: _Read) -> Side:
    return Side(found.what, found.path, found.taken_at, found.pair, len(read.records), read.not_checked)


def _store(found: Found, path: str) -> PointStore:
    if found.server is None:
        return EmbeddedStore(path, alone=found.what != "live")
    (name,) = found.names
    return store_of(replace(found.server, collection=Origin(name, "compared")))


def _collections(
    store: PointStore, names: Mapping[str, str]
) -> tuple[list[CollectionInfo], list[NotChecked]]:
    """The collections that may hold memories; with `names`, on a server, those. Raises CouldNotRead for the store."""
    layout = store.layout()
    if layout.problem is not None:
        raise CouldNotRead(f"{layout.path}: {layout.problem.detail}")
    if not layout.exists:
        raise CouldNotRead(f"{layout.path}: is not there")
    if names:
        there = [info for info in layout.collections if info.name in names]
        if not there:
            raise CouldNotRead(f"{layout.path}: there is no collection {', '.join(names)}")
        return there, []
    every = {info.name for info in layout.collections}
    wanted, not_checked = [], []
    for info in layout.collections:
        of = info.name[: -len(ENTITIES_SUFFIX)] if info.name.endswith(ENTITIES_SUFFIX) else ""
        if of in every or info.name in TELEMETRY_COLLECTIONS:
            continue
        if info.legacy:
            not_checked.append(NotChecked(info.path, "a storage.dbm of qdrant-client before 1.1.7"))
        elif info.has_folder:
            wanted.append(info)
        else:
            not_checked.append(NotChecked(info.path, "listed in meta.json, and its folder is missing"))
    return wanted, not_checked


def _read(found: Found, host: Host, say: Progress) -> _Read:
    say(f"reading {found.path}", None, None)

    def keep(
        rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts
    ) -> DiffRecord | None:
        return core.record(payload)

    def read(path: str) -> _Read:
        store = _store(found, path)
        collections, not_checked = _collections(store, found.names)
        records: dict[Key, DiffRecord] = {}
        for info in collections:
            points = store.points(info, keep)
            for point_id, one in points.rows.items():
                if one is not None:
                    records[core.key_of(found.names.get(info.name, info.name), point_id)] = one
            if points.file.problem is not None:
                not_checked.append(NotChecked(info.path, points.file.problem.detail))
            undecoded = len(points.bad) + len(points.unsafe)
            if undecoded:
                not_checked.append(NotChecked(info.path, f"{undecoded} points do not decode"))
        if not_checked and not records:
            raise CouldNotRead(f"{not_checked[0].what}: {not_checked[0].why}")
        return _Read(records, tuple(not_checked))

    return where_it_lies(found.vectors, host, read, _fail(found))


def _fail(found: Found) -> Callable[[FileProblem], NoReturn]:
    def fail(problem: FileProblem) -> NoReturn:
        raise CouldNotRead(f"{found.vectors}: {problem.detail}")

    return fail


# --- Texts --------------------------------------------------------------------------------------------


def _with_texts(
    scopes: tuple[ScopeDiff, ...],
    a: Found,
    b: Found,
    before: Mapping[Key, DiffRecord],
    after: Mapping[Key, DiffRecord],
    host: Host,
    say: Progress,
) -> tuple[ScopeDiff, ...]:
    every = {(c.collection, c.memory_id) for c in core.changes_of(scopes)}
    old = _texts(a, {key: before[key] for key in every if key in before}, host, say)
    new = _texts(b, {key: after[key] for key in every if key in after}, host, say)

    def told(changes: tuple[Change, ...]) -> tuple[Change, ...]:
        return tuple(
            replace(
                c, before=old.get((c.collection, c.memory_id)), after=new.get((c.collection, c.memory_id))
            )
            for c in changes
        )

    return tuple(ScopeDiff(s.owner, told(s.added), told(s.changed), told(s.removed)) for s in scopes)


def _texts(found: Found, wanted: Mapping[Key, DiffRecord], host: Host, say: Progress) -> dict[Key, str]:
    """The texts of these memories, of those that are still what was compared (a live one may have changed)."""
    if not wanted:
        return {}
    say(f"reading texts of {found.path}", None, None)
    collections = {collection for collection, _ in wanted}

    def read(path: str) -> dict[Key, str]:
        store = _store(found, path)
        texts: dict[Key, str] = {}
        for info in _collections(store, found.names)[0]:
            named = found.names.get(info.name, info.name)
            if named not in collections:
                continue

            def keep(
                rowid: int,
                point_id: PointId,
                payload: Mapping[str, Any],
                vector: VectorFacts,
                name: str = named,
            ) -> str | None:
                one = wanted.get(core.key_of(name, point_id))
                if one is None or "data" not in payload:
                    return None
                data = payload["data"]
                text = data if type(data) is str else canonical(data)
                return text if text_digest(text) == one.text else None

            for point_id, text in store.points(info, keep).rows.items():
                if text is not None:
                    texts[core.key_of(named, point_id)] = text
        return texts

    return where_it_lies(found.vectors, host, read, _fail(found))
