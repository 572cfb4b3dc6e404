"""Snapshots of a Qdrant server's collections, over its REST interface: taken, brought here, removed there, put back.

What experiments with 1.16.3 say (a writer at full speed beside them): the server's snapshot of a collection of one
shard is one instant (8 of 8 equal to an exact prefix of the writes); its name has the second in it, and a second one
within the same second replaces the first under its name, so the digest of what comes over is compared with the one
that the server gave; a snapshot put over a collection replaces it in one step of the server's, which answers reads
with an error meanwhile, and which a kill in the middle leaves as a shard that is "not fully initialized" until it is
put back again: never half of two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mem0audit.core.errors import Refused, ServerProblem
from mem0audit.core.snapshot import CollectionCopy, PayloadDigest
from mem0audit.stores import files
from mem0audit.stores.server import ANSWER_S, Connection, agreed_path, clean, collection_path
from mem0audit.stores.serverpages import odd_answer, pages
from mem0audit.stores.serverpoints import Kind, create_alike, index_alike, kind_in, kind_of

WORK_S: Final = 3600.0
"""How long a server may work at a snapshot before it answers."""
NODE_S: Final = 10.0
"""How long a node of a cluster that is named may think about what it has; one that is silent is not asked again."""
KNOWN_S: Final = 10.0
"""How long the nodes of a cluster may take until all of them know a collection that was made."""
DOWNLOADS: Final = 3
UPLOADED: Final = "mem0audit.snapshot"
"""How an upload is named. A server keeps what it made a collection of, whole, in the folder of that collection's
snapshots, also when the collection is removed; and lists there only what ends like a snapshot (1.16.3). What it made a
shard of it removes by itself."""


@dataclass(frozen=True)
class Described:
    """A collection as a server says it: how it is made, `elsewhere` the shards that lie only on nodes of a cluster that
    are not named (or do not answer), `busy` what the server does with its shards just now.

    `shards` says of one that is spread over nodes which of them have an active copy of each shard; it is empty of one
    that lies on one node alone, whose shards are `local`. `silent` is what the nodes that do not answer say."""

    name: str
    points: int
    kind: Kind
    elsewhere: int
    busy: str | None
    shards: Mapping[int, tuple[Connection, ...]] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    local: tuple[int, ...] = ()

    @property
    def params(self) -> Mapping[str, Any]:
        """Its vectors, shards and copies."""
        found: Mapping[str, Any] = self.kind.config["params"]
        return found

    @property
    def config(self) -> Mapping[str, Any]:
        """The rest of how it is configured."""
        return {key: value for key, value in self.kind.config.items() if key != "params"}

    @property
    def payload_schema(self) -> dict[str, str]:
        """Field -> type of index."""
        return {field: str(said["data_type"]) for field, said in self.kind.indexes.items()}


@dataclass(frozen=True)
class Remote:
    """A snapshot on the server; of one `shard`, where it is not of a whole collection."""

    collection: str
    name: str
    size: int
    checksum: str
    shard: int | None = None


def names(connection: Connection) -> tuple[str, ...]:
    """The names of all collections, sorted. Raises ServerProblem."""
    try:
        return tuple(sorted(str(one["name"]) for one in connection.get("/collections")["collections"]))
    except (TypeError, KeyError):
        raise odd_answer(connection) from None


def alias_of(connection: Connection, name: str) -> str | None:
    """The collection that a name stands for which is an alias; None for any other. Every call that names an alias is
    of that collection, also one that writes (1.16.3). Raises ServerProblem."""
    if name in names(connection) or not connection.get(collection_path(name, "exists"))["exists"]:
        return None
    known = {one["alias_name"]: one["collection_name"] for one in connection.get("/aliases")["aliases"]}
    return clean(known.get(name, "another collection"), 200)


def described(connection: Connection, name: str) -> Described | None:
    """A collection, None where there is none of that name. Raises ServerProblem."""
    try:
        info = connection.get(collection_path(name))
        cluster = connection.get(collection_path(name, "cluster"))
    except ServerProblem as problem:
        if problem.kind == "missing":
            return None
        if "read operations failed" in problem.message:  # of nodes that are away, in words for its developers
            raise ServerProblem(
                "server",
                f"{connection.address.url}: shards of {name} do not answer: every node that has a copy is away",
                "bring one of those nodes back; what is wrong with the cluster: mem0audit audit --select Q",
                problem.status,
            ) from None
        raise
    if cluster.get("remote_shards"):
        return _spread(connection, name, info, cluster)
    local = cluster.get("local_shards", ())
    busy = "shards are moved" if cluster.get("shard_transfers") else None
    states = sorted({str(one.get("state")) for one in local} - {"Active"})
    if busy is None and states:
        busy = f"a shard is {', '.join(states)}"
    shards = tuple(sorted(int(one["shard_id"]) for one in local))
    return Described(name, int(info.get("points_count") or 0), kind_in(info), 0, busy, local=shards)


def _spread(connection: Connection, name: str, info: Any, cluster: Any) -> Described:
    """One that is spread over nodes: each of those that are named is asked what it has. (A node makes a snapshot of
    its own shards only, and no node knows another's REST address: 1.16.3.)"""
    wanted = {int(one["shard_id"]) for which in ("local_shards", "remote_shards") for one in cluster[which]}
    active: dict[int, list[Connection]] = {}
    silent: list[str] = []
    for node, said in _nodes(connection, name, silent):
        for one in said["local_shards"]:
            if one["state"] == "Active":
                active.setdefault(int(one["shard_id"]), []).append(node)
    busy = "shards are moved" if cluster.get("shard_transfers") else None
    return Described(
        name,
        int(info.get("points_count") or 0),
        kind_in(info),
        len(wanted - set(active)),
        busy,
        {shard: tuple(active[shard]) for shard in sorted(wanted & set(active))},
        tuple(silent),
    )


def _nodes(connection: Connection, name: str, silent: list[str]) -> Iterator[tuple[Connection, Any]]:
    """Every node that is named, the first one first, and what it says of a collection's shards; those that do not
    answer are said in `silent`. Raises Refused for one of another cluster, ServerProblem for the first."""
    peers = set(connection.get("/cluster").get("peers") or {})
    for node in (connection, *connection.others):
        if node.silent is not None:
            silent.append(node.silent)
            continue
        try:
            said = node.get(
                collection_path(name, "cluster"), timeout=ANSWER_S if node is connection else NODE_S
            )
            if str(said["peer_id"]) not in peers:
                raise Refused(
                    f"{node.address.url} is no node of the cluster of {connection.address.url}",
                    "name the other nodes of that cluster with --node",
                )
        except ServerProblem as problem:
            if node is connection:
                raise
            if problem.kind == "timeout":
                node.silent = problem.message
            silent.append(problem.message)
            continue
        yield node, said


def peers_unnamed(connection: Connection) -> tuple[str, ...]:
    """The nodes of a cluster that are not among those that are named, by the address that they have for each other;
    () where the server is of no cluster. Raises ServerProblem, also where a node that is named does not answer."""
    said = connection.get("/cluster")
    peers = dict(said.get("peers") or {})
    for node in (connection, *connection.others):
        peers.pop(str(node.get("/cluster", timeout=NODE_S).get("peer_id")), None)
    return tuple(sorted(clean(one.get("uri"), 100) for one in peers.values()))


# --- Taken, brought here, removed there --------------------------------------------------------------


def snapshots_path(collection: str, shard: int | None, *rest: str) -> str:
    """Where a server has its snapshots of a collection, or of one shard."""
    if shard is None:
        return collection_path(collection, "snapshots", *rest)
    return collection_path(collection, "shards", shard, "snapshots", *rest)


def there(connection: Connection, collection: str, shard: int | None = None) -> frozenset[str]:
    """The names of the snapshots of a collection, or of one shard, that lie on the server. Raises ServerProblem."""
    return frozenset(str(one["name"]) for one in connection.get(snapshots_path(collection, shard)))


@contextmanager
def taken(
    connection: Connection, collection: str, before: frozenset[str], shard: int | None = None
) -> Iterator[Remote]:
    """A snapshot that the server takes of a collection or of one shard now, and that is removed there at the end,
    whatever comes.

    Where the removal itself fails nothing is raised: `left_behind` finds what stayed. One that was there `before` under
    the same name is somebody else's, and is not removed. Raises ServerProblem.
    """
    said = connection.post(snapshots_path(collection, shard), timeout=WORK_S, wait="true")
    remote = Remote(collection, str(said["name"]), int(said["size"]), str(said.get("checksum") or ""), shard)
    files.step("server.snapshot")
    try:
        yield remote
    finally:
        if remote.name not in before:
            with suppress(ServerProblem):
                removed(connection, collection, remote.name, shard)


def removed(connection: Connection, collection: str, name: str, shard: int | None = None) -> bool:
    """Removes a snapshot on the server; False where there is none. Raises ServerProblem."""
    try:
        connection.delete(snapshots_path(collection, shard, name), wait="true")
    except ServerProblem as problem:
        if problem.kind != "missing":
            raise
        return False
    return True


def left_behind(connection: Connection, remote: Remote) -> bool | None:
    """Whether a snapshot is still on the server; None where that cannot be asked."""
    try:
        return remote.name in there(connection, remote.collection, remote.shard)
    except ServerProblem:
        return None


class NotWhole(Exception):
    """What came over is not what the server says it has; one line."""


class _CannotWrite(Exception):
    """What kept a piece from being written, told from what the network does."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _taking(file: files.NewFile) -> Callable[[bytes], None]:
    def take(piece: bytes) -> None:
        try:
            file.take(piece)
        except OSError as error:
            raise _CannotWrite(error) from None

    return take


def bring(connection: Connection, remote: Remote, target: Path, *, kept: bool = True) -> tuple[int, str]:
    """Downloads a snapshot into a new file, on the disk then where it is `kept`; its size and SHA-256. A download that
    is cut or comes with other bytes is begun anew twice. Raises NotWhole, ServerProblem, OSError."""
    path = snapshots_path(remote.collection, remote.shard, remote.name)
    for attempt in range(1, DOWNLOADS + 1):
        try:
            with files.NewFile(target, kept=kept) as file:
                done = connection.download(path, _taking(file))
        except _CannotWrite as failed:
            raise failed.error from None
        except ServerProblem as problem:
            if problem.kind not in ("cut", "timeout") or attempt == DOWNLOADS:
                raise
        else:
            if done.size and (not remote.checksum or done.sha256 == remote.checksum):
                return done.size, done.sha256
        files.remove_new(target)
    raise NotWhole("it came over with other bytes than the server says it has, each time")


# --- Put back ----------------------------------------------------------------------------------------------


def put_back(
    connection: Connection, name: str, one: CollectionCopy, folder: Path, shas: Mapping[str, str]
) -> None:
    """Has the server make a collection of a snapshot's files under a name, in place of the one there is: of one file
    in one step of its own; of one file for each shard, on every node that has a copy of it, one after the other.

    The copies are each given the file, and not made of one another ("no_sync"): a server that was given one copy each
    of six shards in a row (priority "snapshot") left two of the six others empty and called them active (1.16.3).
    Raises Refused where not every copy can be reached, ServerProblem, OSError.
    """
    if not one.shards:
        put(connection, name, folder / one.path, shas[one.path])
        return
    indexes = one.indexes or {key: {"data_type": kind} for key, kind in one.payload_schema.items()}
    kind = Kind({**one.config, "params": one.params}, indexes)
    if name not in names(connection):
        files.step("server.make")
        create_alike(connection, name, kind)
    elif kind_of(connection, name).indexes != indexes:
        index_alike(connection, name, kind)
    having = _having(connection, name)
    for shard in one.shards:
        for node in having.get(shard.shard, ()):
            put(node, name, folder / shard.path, shas[shard.path], shard.shard)


def _having(connection: Connection, name: str) -> dict[int, list[Connection]]:
    """The nodes that have a copy of each shard, once all of them know the collection. Raises Refused, ServerProblem."""
    end = time.monotonic() + KNOWN_S
    while True:
        said = connection.get(collection_path(name, "cluster"))
        copies = len(said["local_shards"]) + len(said["remote_shards"])
        found: dict[int, list[Connection]] = {}
        silent: list[str] = []
        nodes = [(connection, said)] if not said["remote_shards"] else _nodes(connection, name, silent)
        for node, has in nodes:
            for one in has["local_shards"]:
                found.setdefault(int(one["shard_id"]), []).append(node)
        if sum(map(len, found.values())) == copies:
            return found
        if time.monotonic() > end:
            reason = silent[0] if silent else f"{connection.address.url}: copies of {name} lie on other nodes"
            raise Refused(reason, "every node of the cluster must be named with --node, and answer")
        time.sleep(0.05)


def put(connection: Connection, collection: str, source: Path, sha256: str, shard: int | None = None) -> None:
    """Has the server make a collection of a snapshot's file, in place of the one of that name where there is one, in
    one step of its own; or a node its copy of a shard. Raises ServerProblem, OSError."""
    files.step("server.put")
    with source.open("rb") as file:
        size = source.stat().st_size
        try:
            connection.upload(
                snapshots_path(collection, shard, "upload"),
                file,
                size,
                name=UPLOADED,
                answer_timeout=WORK_S,
                priority="snapshot" if shard is None else "no_sync",
                checksum=sha256,
                wait="true",
            )
        except ServerProblem as problem:
            # where the connection was cut it may be at work at it still: see `dropped`
            if shard is None and problem.kind in ("refused", "server"):
                with suppress(ServerProblem):
                    forget_upload(connection, collection)
            raise
    if shard is None:
        removed(connection, collection, UPLOADED)
    files.step("server.put.done")


def forget_upload(connection: Connection, collection: str) -> None:
    """Removes what a server keeps of an upload, also where there is no collection of that name: then one is made for a
    moment, since no call reaches the file otherwise. Raises ServerProblem."""
    if collection in names(connection):
        removed(connection, collection, UPLOADED)
        return
    connection.put(agreed_path(collection), {"vectors": {"size": 1, "distance": "Dot"}}, timeout=WORK_S)
    try:
        removed(connection, collection, UPLOADED)
    finally:
        connection.delete(agreed_path(collection), timeout=WORK_S)


def dropped(connection: Connection, collection: str, wait_s: float = 0.0, *, snapshots: bool = False) -> bool:
    """Removes a collection that a run of ours made, and that may appear within `wait_s` seconds only; whether it is
    gone. With `snapshots` those of it go first: a server keeps the files of a collection that is gone, and lists them
    only when there is one of that name again (1.16.3). Raises nothing."""
    files.step("server.drop")
    end = time.monotonic() + wait_s
    while True:
        try:
            is_there = collection in names(connection)
            if is_there or (wait_s and time.monotonic() >= end):
                forget_upload(connection, collection)
            if is_there:
                if snapshots:
                    _remove_snapshots_of(connection, collection)
                connection.delete(agreed_path(collection), timeout=WORK_S)
        except ServerProblem:
            return False
        if is_there or time.monotonic() >= end:
            return True
        time.sleep(0.1)


def _remove_snapshots_of(connection: Connection, collection: str) -> None:
    """Removes every snapshot of a collection that is ours, on every node that is named and answers: that one is away
    keeps no collection."""
    for node in (connection, *connection.others):
        with suppress(ServerProblem):
            shards = node.get(collection_path(collection, "cluster"))["local_shards"]
            for shard in (None, *(int(one["shard_id"]) for one in shards)):
                for one in there(node, collection, shard):
                    removed(node, collection, one, shard)


# --- What is in one -----------------------------------------------------------------------------------------


def read_digest(connection: Connection, collection: str, *, every_copy: bool = False) -> PayloadDigest:
    """The number of points of a collection and the digest of their ids and payloads, page by page.

    While somebody writes that is no instant. Of every copy that a cluster has only what all of them have is read, and
    each must answer. Raises ServerProblem.
    """
    digest = PayloadDigest()
    for page in pages(connection, collection, every_copy=every_copy):
        for point in page:
            digest.add(point["id"], point.get("payload") or {})
    return digest


def wait_until_ready(connection: Connection, collection: str, most_s: float = 30.0) -> str | None:
    """Waits until a collection that was put back can be read; what it says where it cannot."""
    end = time.monotonic() + most_s
    while True:
        try:
            connection.post(collection_path(collection, "points", "count"), {"exact": False})
            return None
        except ServerProblem as problem:
            if problem.kind != "server" or time.monotonic() > end:
                return clean(problem.message)
        time.sleep(0.05)
