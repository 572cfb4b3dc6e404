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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mem0audit.core.errors import ServerProblem
from mem0audit.core.snapshot import PayloadDigest
from mem0audit.stores import files
from mem0audit.stores.server import Connection, clean, collection_path

WORK_S: Final = 3600.0
"""How long a server may work at a snapshot before it answers."""
DOWNLOADS: Final = 3
PAGE: Final = 1000
FEWEST: Final = 10
"""Points a page, where the payloads are so large that more of them are too much for one answer."""


@dataclass(frozen=True)
class Described:
    """A collection as a server says it: `params` whole, `payload_schema` field -> type of index, `elsewhere` the
    shards that lie on other nodes of a cluster, `busy` what the server does with its shards just now."""

    name: str
    points: int
    params: Mapping[str, Any]
    payload_schema: Mapping[str, str]
    elsewhere: int
    busy: str | None


@dataclass(frozen=True)
class Remote:
    """A snapshot on the server."""

    collection: str
    name: str
    size: int
    checksum: str


def names(connection: Connection) -> tuple[str, ...]:
    """The names of all collections, sorted. Raises ServerProblem."""
    return tuple(sorted(str(one["name"]) for one in connection.get("/collections")["collections"]))


def described(connection: Connection, name: str) -> Described | None:
    """A collection, None where there is none of that name. Raises ServerProblem."""
    try:
        info = connection.get(collection_path(name))
        cluster = connection.get(collection_path(name, "cluster"))
    except ServerProblem as problem:
        if problem.kind == "missing":
            return None
        raise
    remote = {one["shard_id"] for one in cluster.get("remote_shards", ())}
    local = cluster.get("local_shards", ())
    here = {one["shard_id"] for one in local if one.get("state", "Active") == "Active"}
    busy = "shards are moved" if cluster.get("shard_transfers") else None
    states = sorted({str(one.get("state")) for one in local} - {"Active"})
    if busy is None and states:
        busy = f"a shard is {', '.join(states)}"
    schema = info.get("payload_schema") or {}
    return Described(
        name,
        int(info.get("points_count") or 0),
        info["config"]["params"],
        {str(field): str(of.get("data_type")) for field, of in schema.items()},
        len(remote - here),
        busy,
    )


# --- Taken, brought here, removed there --------------------------------------------------------------


def there(connection: Connection, collection: str) -> frozenset[str]:
    """The names of the snapshots of a collection that lie on the server. Raises ServerProblem."""
    return frozenset(str(one["name"]) for one in connection.get(collection_path(collection, "snapshots")))


@contextmanager
def taken(connection: Connection, collection: str, before: frozenset[str]) -> Iterator[Remote]:
    """A snapshot that the server takes of a collection now, and that is removed there at the end, whatever comes.

    Where the removal itself fails nothing is raised: `left_behind` finds what stayed. One that was there `before` under
    the same name is somebody else's, and is not removed. Raises ServerProblem.
    """
    said = connection.post(collection_path(collection, "snapshots"), timeout=WORK_S, wait="true")
    remote = Remote(collection, str(said["name"]), int(said["size"]), str(said.get("checksum") or ""))
    files.step("server.snapshot")
    try:
        yield remote
    finally:
        if remote.name not in before:
            with suppress(ServerProblem):
                removed(connection, collection, remote.name)


def removed(connection: Connection, collection: str, name: str) -> bool:
    """Removes a snapshot on the server; False where there is none. Raises ServerProblem."""
    try:
        connection.delete(collection_path(collection, "snapshots", name), wait="true")
    except ServerProblem as problem:
        if problem.kind != "missing":
            raise
        return False
    return True


def left_behind(connection: Connection, remote: Remote) -> bool | None:
    """Whether a snapshot is still on the server; None where that cannot be asked."""
    try:
        return remote.name in there(connection, remote.collection)
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


def bring(connection: Connection, remote: Remote, target: Path) -> tuple[int, str]:
    """Downloads a snapshot into a new file, on the disk then; its size and SHA-256. A download that is cut or comes
    with other bytes is begun anew twice. Raises NotWhole, ServerProblem, OSError."""
    path = collection_path(remote.collection, "snapshots", remote.name)
    for attempt in range(1, DOWNLOADS + 1):
        try:
            with files.NewFile(target) as file:
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


def put(connection: Connection, collection: str, source: Path, sha256: str) -> None:
    """Has the server make a collection of a snapshot's file, in place of the one of that name where there is one, in
    one step of its own. Raises ServerProblem, OSError."""
    files.step("server.put")
    with source.open("rb") as file:
        size = source.stat().st_size
        connection.upload(
            collection_path(collection, "snapshots", "upload"),
            file,
            size,
            answer_timeout=WORK_S,
            priority="snapshot",
            checksum=sha256,
            wait="true",
        )
    files.step("server.put.done")


def dropped(connection: Connection, collection: str, wait_s: float = 0.0) -> bool:
    """Removes a collection that a run of ours made, and that may appear within `wait_s` seconds only; whether it is
    gone. Raises nothing."""
    files.step("server.drop")
    end = time.monotonic() + wait_s
    while True:
        try:
            there = collection in names(connection)
            if there:
                connection.delete(collection_path(collection), timeout=WORK_S)
        except ServerProblem:
            return False
        if there or time.monotonic() >= end:
            return True
        time.sleep(0.1)


# --- What is in one -----------------------------------------------------------------------------------------


def read_digest(connection: Connection, collection: str) -> PayloadDigest:
    """The number of points of a collection and the digest of their ids and payloads, page by page.

    While somebody writes that is no instant. Raises ServerProblem.
    """
    digest = PayloadDigest()
    body: dict[str, Any] = {"limit": PAGE, "with_payload": True, "with_vector": False}
    while True:
        try:
            page = connection.post(collection_path(collection, "points", "scroll"), body)
        except ServerProblem as problem:
            if problem.kind != "too-large" or body["limit"] <= FEWEST:
                raise
            body["limit"] = max(FEWEST, body["limit"] // 10)
            continue
        for point in page["points"]:
            digest.add(point["id"], point.get("payload") or {})
        offset = page.get("next_page_offset")
        if offset is None:
            return digest
        body["offset"] = offset


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
