"""Who was erased since a snapshot of a Qdrant server was taken is erased in the copy that a restore puts back.

A server alone reads its own snapshots, so the copy is a scratch collection there: it is read for the plan, and again
when it is done. What is theirs is deleted in it through mem0. A server keeps the bytes of a deleted point in its files
for long, so the points that are left are carried into another scratch collection, which never held the others, and of
that the server takes the snapshot that is put back. Both go, whatever comes, or with the next run after a kill.
"""

from __future__ import annotations

import json
import secrets
import time
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.erasures import Erasure
from mem0audit.core.errors import Failed, Refused
from mem0audit.core.model import Install, Origin, PointId, PointStore
from mem0audit.core.restore import RestorePlan, ToErase
from mem0audit.core.snapshot import CollectionCopy, Manifest, SnapshotFile, SnapshotProblem
from mem0audit.install.host import Host
from mem0audit.operations.copied import agent_of, counted, judged
from mem0audit.operations.erasecopy import (
    digest_of_log,
    empty_and_rebuild,
    plan_erasing,
    prove,
    search_copy,
    through_mem0,
)
from mem0audit.operations.look import Progress, look_at_copy, no_progress
from mem0audit.operations.scratch import SCRATCH, removed
from mem0audit.operations.serversnapshot import point_counts
from mem0audit.operations.serververify import compare_points, log_counts, put_as, scratch_names
from mem0audit.operations.snapshot import write_manifest
from mem0audit.operations.stores import served_by
from mem0audit.stores import exchange, files, serverpoints, serversnapshots, snapshots
from mem0audit.stores.pickles import WholePoint
from mem0audit.stores.server import Connection, collection_path, connection_to

COPY: Final = "erased"
"""The folder in the staging folder with what is put back in place of the snapshot."""
SCRATCH_NOTE: Final = "scratch.json"


# --- Scratch collections, noted before they are made -----------------------------------------------------


def note_scratch(folder: Path, connection: Connection, names: Collection[str]) -> None:
    """Notes in a staging folder, for the run after a kill, which scratch collections are made. Raises OSError."""
    noted = json.dumps({"url": connection.address.url, "names": sorted(names)})
    exchange.write_in(folder, SCRATCH_NOTE, noted.encode("ascii"))


def remove_noted_scratch(connection: Connection, folder: Path) -> None:
    """Removes the scratch collections of a run that was killed. Raises Failed where one stays."""
    try:
        noted = json.loads(snapshots.small_file(folder / SCRATCH_NOTE))
        names = [str(name) for name in noted["names"] if str(name).startswith(SCRATCH)]
        url = noted["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if url != connection.address.url:
        return
    stays = [name for name in names if not removed(connection, name)]
    if stays:
        raise Failed(
            f"{stays[0]}, which a run that was cut off left there, cannot be removed; nothing was changed"
        )


# --- Plan ---------------------------------------------------------------------------------------------------


def plan_erasing_on_server(
    snapshot: str,
    manifest: Manifest,
    erasures: Sequence[Erasure],
    of: Install,
    onto: Install,
    host: Host,
    say: Progress,
    *,
    ledger: bool,
    uid: int | None,
) -> ToErase:
    """What of a snapshot of a server these erasures cover, and under which mem0 it is deleted in a copy.

    The collections are put onto the server of `onto` under scratch names to be read, and removed again; nothing else
    changes. `of` is the install that the snapshot is of. Raises Refused where something of theirs is in it and cannot
    be erased in a copy, ServerProblem, Failed where the server does not make of it what the manifest says.
    """
    if not erasures:
        return ToErase()
    with connection_to(onto) as connection:
        copies = _copies(manifest)
        _refuse_one_of_many(snapshot, copies, connection)
        names = scratch_names(copies, secrets.token_hex(6))
        left: list[str] = []
        with put_as(connection, manifest, Path(snapshot), copies, lambda one: names[one.name], say, left):
            _compare(copies, names, connection, say)
            todo = plan_erasing(
                snapshot,
                manifest,
                erasures,
                of,
                host,
                say,
                ledger=ledger,
                uid=uid,
                copy=_install(onto, Path(snapshot, snapshot_core.HISTORY), names[_memories(copies).name]),
                lend=lambda folder, its: lent_memories(folder, its, onto),
            )
            for one in copies if todo.anything else ():
                if serverpoints.kind_of(connection, names[one.name]).vectors is None:
                    raise Refused(
                        f"{snapshot} holds {todo.memories:,} memories of somebody who was erased since (B905), and "
                        f"{one.name} has other vectors than mem0 makes: its points cannot be carried into a copy",
                        "one that was taken since can be restored: mem0audit snapshot list",
                    )
    if left:
        raise Failed(f"the scratch collection {left[0]} could not be removed again; nothing else was changed")
    return _renamed(todo, {scratch: name for name, scratch in names.items()})


def _copies(manifest: Manifest) -> list[CollectionCopy]:
    assert manifest.server is not None
    return [one for one in manifest.server.collections if one.role != "telemetry"]


def _memories(copies: Sequence[CollectionCopy]) -> CollectionCopy:
    return next(one for one in copies if one.role == "memories")


def _refuse_one_of_many(snapshot: str, copies: Sequence[CollectionCopy], connection: Connection) -> None:
    """Raises Refused where a collection that lay on one node would be made anew on a cluster: on which node, that
    decides for itself."""
    if all(one.shards for one in copies) or len(connection.get("/cluster").get("peers") or ()) < 2:
        return
    raise Refused(
        f"{snapshot} is older than an erasure, and was taken of one node: in a cluster nobody is erased in a copy",
        "restore a snapshot that was taken since:  mem0audit snapshot list\n"
        "or onto a server that is no cluster, into new collections:  --to NEWDIR --qdrant-url URL",
    )


def _compare(
    copies: Sequence[CollectionCopy], names: Mapping[str, str], connection: Connection, say: Progress
) -> None:
    """Raises Failed where scratch collections are not what the manifest says, ServerProblem."""
    wrong: list[SnapshotProblem] = []
    for one in copies:
        say(f"reading {one.name} under a scratch name", None, None)
        compare_points(connection, one, names[one.name], wrong)
    if wrong:
        raise Failed(f"{wrong[0].path} {wrong[0].detail}; nothing was changed")


def _install(onto: Install, history: Path, collection: str) -> Install:
    """A log, and a scratch collection with its entities, as an install."""
    return replace(
        onto,
        history=Origin(str(history), "staged"),
        collection=Origin(collection, "staged"),
        mem0_dir=Origin(str(history.parent), "staged"),
    )


@contextmanager
def lent_memories(folder: Path, manifest: Manifest, onto: Install) -> Iterator[PointStore]:
    """The memories of a snapshot of a server, put onto the server of `onto` under a scratch name for as long as this
    lasts. Raises Refused, Failed, ServerProblem."""
    if manifest.server is None:
        raise Refused(f"{folder}: is of a folder")
    copies = [_memories(_copies(manifest))]
    names = scratch_names(copies, secrets.token_hex(6))
    with (
        connection_to(onto) as connection,
        put_as(connection, manifest, folder, copies, lambda one: names[one.name], no_progress, []),
    ):
        why = serversnapshots.wait_until_ready(connection, names[copies[0].name])
        if why is not None:
            raise Refused(f"{folder}: what the server makes of it cannot be read: {why}")
        yield served_by(_install(onto, folder, names[copies[0].name]), alone=True)


def _renamed(todo: ToErase, names: Mapping[str, str]) -> ToErase:
    return replace(
        todo,
        ids={names[name]: ids for name, ids in todo.ids.items()},
        losing={names[name]: losing for name, losing in todo.losing.items()},
        gone={names[name]: gone for name, gone in todo.gone.items()},
    )


# --- Done -----------------------------------------------------------------------------------------------------


def erased_copy(
    plan: RestorePlan,
    history: Path,
    folder: Path,
    of: Install,
    onto: Install,
    connection: Connection,
    host: Host,
    say: Progress,
    owner: tuple[int, int],
) -> Manifest:
    """Makes a copy of a snapshot without who was erased since, in the folder COPY of the staging folder `folder`, and
    of the staged log `history`; gives its manifest, which lies there too.

    Raises Failed (with both stores of the install as they were) where it is not the snapshot less what was erased, or a
    text of theirs is in some byte of it; Refused, ServerProblem, OSError, sqlite3.Error.
    """
    manifest, copies = plan.manifest, _copies(plan.manifest)
    names = scratch_names(copies, secrets.token_hex(6))
    fresh = scratch_names(copies, secrets.token_hex(6))
    note_scratch(folder, connection, {*names.values(), *fresh.values()})
    copy = _install(onto, history, names[_memories(copies).name])
    todo = _renamed(plan.erase, names)
    left: list[str] = []
    with (
        _without_fresh(connection, fresh, left),
        put_as(connection, manifest, Path(plan.snapshot), copies, lambda one: names[one.name], say, left),
    ):
        _compare(copies, names, connection, say)
        kinds = {one.name: serverpoints.kind_of(connection, names[one.name]) for one in copies}
        before = look_at_copy(copy, agent_of(manifest), manifest.taken_at, say)
        points = {one.name: _digests(connection, names[one.name]) for one in copies}
        log = digest_of_log(history, todo.ever)
        through_mem0(todo, copy, [history], of, host, say, ledger=plan.ledger, owner=owner)
        empty_and_rebuild(history, (), todo, say)
        say("reading the copies as a pair", None, None)
        after = look_at_copy(copy, agent_of(manifest), manifest.taken_at, say)
        prove(before, after, history, log, todo)
        losing = todo.losing.get(names[_memories(copies).name], {})
        for one in copies:
            left_points = _digests(connection, names[one.name])
            changed = losing if one.role == "entities" else {}
            _prove_points(one.name, points[one.name], left_points, changed)
            _carry(one, names[one.name], fresh[one.name], kinds[one.name], set(left_points), onto, say)
        brought = {one.path: _brought(one, fresh[one.name], folder, connection, say) for one in copies}
        say("looking for what was erased", None, None)
        search_copy(copy, [str(folder / COPY / snapshot_core.SERVER)], todo, say)
        made = _manifest(manifest, brought, history)
        made = replace(made, findings=counted(judged(after)))
        write_manifest(folder / COPY, made)
        files.sync_tree(folder / COPY)
    if left:
        raise Failed(f"the scratch collection {left[0]} could not be removed again; nothing else was changed")
    return made


def staged_manifest(folder: Path) -> Manifest:
    """The manifest of such a copy in a staging folder. Raises Refused, OSError."""
    path = folder / COPY / snapshot_core.MANIFEST
    try:
        return snapshot_core.parse_manifest(snapshots.small_file(path))
    except (ValueError, snapshot_core.NotAManifest):
        raise Refused(f"{path} does not read", "look at that folder, and move it away by hand") from None


@contextmanager
def _without_fresh(connection: Connection, fresh: Mapping[str, str], left: list[str]) -> Iterator[None]:
    try:
        yield
    finally:
        left += [name for name in fresh.values() if not removed(connection, name)]


@dataclass(frozen=True)
class _Point:
    """Digests of what a point has; `but_links` of its payload without the memories that an entity links."""

    vectors: bytes
    payload: bytes
    but_links: bytes


def _digests(connection: Connection, name: str) -> dict[PointId, _Point]:
    return {
        point["id"]: _digest(point) for page in serverpoints.whole_pages(connection, name) for point in page
    }


def _digest(point: Mapping[str, Any]) -> _Point:
    payload = point.get("payload") or {}
    but_links = {key: value for key, value in payload.items() if key != "linked_memory_ids"}
    said = serverpoints.vectors_in(point.get("vector"))
    vectors = b"" if said is None or said.dense is None else array("f", said.dense).tobytes()
    vectors += json.dumps(point.get("vector") if said is None else said.keyword).encode()
    texts = (json.dumps(one, sort_keys=True).encode() for one in (payload, but_links))
    return _Point(*(blake2b(one, digest_size=16).digest() for one in (vectors, *texts)))


def is_part_of(connection: Connection, name: str, whole: str) -> bool:
    """Whether every point of a collection is one of another's, but for links of entities. Raises ServerProblem."""
    every = _digests(connection, whole)
    return all(
        point_id in every
        and (every[point_id].vectors, every[point_id].but_links) == (one.vectors, one.but_links)
        for point_id, one in _digests(connection, name).items()
    )


def _prove_points(
    name: str,
    before: Mapping[PointId, _Point],
    after: Mapping[PointId, _Point],
    losing: Collection[PointId],
) -> None:
    """Every point that is left has the vectors and the payload that it had, but for links that an entity lost."""
    for point_id, now in after.items():
        was = before.get(point_id)
        same = was is not None and was.vectors == now.vectors
        if was is not None and same:
            same = was.but_links == now.but_links if point_id in losing else was.payload == now.payload
        if not same:
            raise Failed(
                f"the copies are not the snapshot less who was erased since (a point of {name}); nothing was changed"
            )


def _carry(
    one: CollectionCopy,
    source: str,
    target: str,
    kind: serverpoints.Kind,
    ids: set[PointId],
    onto: Install,
    say: Progress,
) -> None:
    """The points that are left into a collection that is made alike, each read back and compared. Raises Failed,
    ServerProblem."""
    vectors = kind.vectors
    assert vectors is not None
    with connection_to(onto) as asking, connection_to(onto) as writing, connection_to(onto) as reading:
        files.step("server.carry")
        serverpoints.create_alike(writing, target, kind)
        if one.shards:
            _wait_for_shards(writing, target, one)
        carrier = serverpoints.Carrier(writing, reading, target, vectors["distance"])
        for page in serverpoints.whole_pages(asking, source, serverpoints.at_once(vectors["size"])):
            say(f"carrying {one.name}", carrier.written, len(ids))
            points = [point for point in map(serverpoints.whole_of, page) if point is not None]
            if len(points) != len(page):
                raise Failed(f"{one.name}: a point has other vectors than mem0 makes; nothing was changed")
            _take(carrier, points)
        carrier.end()
        if serverpoints.ids_in(reading, target) != ids or not kind.same(
            serverpoints.kind_of(reading, target)
        ):
            raise Failed(
                f"the server did not make {one.name} anew as it is without them; nothing was changed"
            )


def _wait_for_shards(connection: Connection, name: str, one: CollectionCopy) -> None:
    """Waits until every copy of every shard of a new collection takes what is written. Raises Failed, ServerProblem."""
    end = time.monotonic() + serversnapshots.KNOWN_S
    while True:
        said = connection.get(collection_path(name, "cluster"))
        states = {copy["state"] for copy in (*said["local_shards"], *said["remote_shards"])}
        found = serversnapshots.described(connection, name)
        if states == {"Active"} and found is not None and found.busy is None and not found.elsewhere:
            return
        if time.monotonic() > end:
            raise Failed(f"{one.name}: not every node makes its shards anew; nothing was changed")
        time.sleep(0.05)


def _take(carrier: serverpoints.Carrier, points: list[WholePoint]) -> None:
    if points:
        carrier.take(points)


def _brought(
    one: CollectionCopy, name: str, folder: Path, connection: Connection, say: Progress
) -> tuple[CollectionCopy, list[SnapshotFile]]:
    """The server's snapshot of a scratch collection, or of each shard, where the collection's lies in the snapshot."""
    say(f"the server takes its snapshot of {one.name}", None, None)
    wanted: list[tuple[Connection, int | None, str]] = [(connection, None, one.path)]
    if one.shards:
        found = serversnapshots.described(connection, name)
        if found is None or found.elsewhere:
            raise Failed(f"{one.name}: not every shard is there anew; nothing was changed")
        # of one that is not spread over nodes it does not say which has what
        nodes = {shard.shard: found.shards.get(shard.shard, (connection,))[0] for shard in one.shards}
        wanted = [(nodes[shard.shard], shard.shard, shard.path) for shard in one.shards]
    listed = []
    for node, number, path in wanted:
        before = serversnapshots.there(node, name, number)
        files.make_folders((folder / COPY / path).parent)
        try:
            with serversnapshots.taken(node, name, before, number) as remote:
                size, sha = serversnapshots.bring(node, remote, folder / COPY / path)
        except serversnapshots.NotWhole as problem:
            raise Failed(f"{one.name}: {problem}; nothing was changed") from None
        source, way = f"{node.address.url}/collections/{one.name}", "server snapshot"
        if number is not None:
            source, way = f"{source}/shards/{number}", "shard snapshot"
        listed.append(SnapshotFile(path, size, sha, source, one.name, None, way))
    read = serversnapshots.read_digest(connection, name, every_copy=bool(one.shards))
    return replace(one, points=read.count, digest=read.hexdigest()), listed


def _manifest(
    manifest: Manifest, brought: Mapping[str, tuple[CollectionCopy, list[SnapshotFile]]], history: Path
) -> Manifest:
    """That of the snapshot, less who was erased."""
    assert manifest.server is not None
    (log,) = (one for one in manifest.files if one.path == snapshot_core.HISTORY)
    size, sha = snapshots.digest(history)
    listed = [
        replace(log, size_bytes=size, sha256=sha),
        *(one for _, files in brought.values() for one in files),
    ]
    collections = tuple(copy for copy, _ in brought.values())
    counts, digest = log_counts(history)
    return replace(
        manifest,
        files=tuple(sorted(listed, key=lambda file: file.path)),
        counts={**point_counts(collections), **counts},
        points_digest=snapshot_core.server_digest(collections),
        history_digest=digest,
        server=replace(manifest.server, collections=collections),
    )
