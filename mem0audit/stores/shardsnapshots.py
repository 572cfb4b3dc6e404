"""The points of a Qdrant server as of one instant: the server's snapshot of each shard, brought to a scratch folder,
removed there, and read here.

A scroll under writes is no instant (1 of 12), a shard's snapshot is. Streamed (GET) it would leave nothing on the
server, but holds up every write to the shard for as long as the stream takes: 10 s of 87 MB on a busy machine, where
the client that mem0 writes with gives up after 5 (1.16.3). One that the server keeps (POST) held them up for 0.1 to
1.4 s. So it is that one, noted in the scratch folder before it is asked for, and removed there by the next run where
this one is killed.

It is not JSON but the shard's own files: qdrant-edge reads them, an extra of this package, in a child process, so that
files it cannot bear end that process and not this one. 10,000 points of 1,536 dimensions are 120 to 220 MB; the child
takes 0.4 s of the processor for the payloads, 0.8 s with the facts of the vectors.
"""

from __future__ import annotations

import json
import os
import signal
import tarfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from mem0audit.core.errors import Mem0auditError, ServerProblem
from mem0audit.core.model import (
    CollectionInfo,
    FileProblem,
    FileState,
    FoundPoint,
    KeepPoint,
    PointId,
    PointsRead,
    StoreLayout,
    VectorFacts,
)
from mem0audit.stores import files, serversnapshots
from mem0audit.stores.child import Child, ChildFailed
from mem0audit.stores.server import Connection, clean
from mem0audit.stores.serverstore import NO_ROW, NO_VECTOR, ServerStore, vector_facts

T = TypeVar("T")

AT_ONCE: Final = 1000
LEFT_FREE: Final = 64 << 20
"""Bytes that stay free in the scratch folder's file system, whatever comes."""
NOTE: Final = "remote.json"
"""In the scratch folder while a snapshot lies on the server for it, or may."""
_END: Final = bytes(1024)
"""What an archive ends with."""
_NOT_WHOLE: Final = "what the server gave is no snapshot, or not a whole one"
_PR_SET_PDEATHSIG: Final = 1


class NotReadable(Exception):
    """Why a snapshot was not read; one line without memory text."""


class InstantStore:
    """The collections of a server as `ServerStore` has them, but the points of each shard as of one instant (a
    `model.PointStore`). The key must be one that may manage; `folder` is a scratch folder; `vectors` as there.

    `several` are the collections read that have more than one shard, so that each of those is as of its own; `left`
    are the addresses of snapshots that may still lie on the server: the note of it in the folder must stay then.
    """

    def __init__(
        self, connection: Connection, folder: Path, wanted: str | None = None, *, vectors: bool = False
    ) -> None:
        self.connection = connection
        self.folder = folder
        self.vectors = vectors
        self.several: list[str] = []
        self.left: list[str] = []
        self._asked = ServerStore(connection, wanted)

    def layout(self) -> StoreLayout:
        """As `ServerStore` says it."""
        return self._asked.layout()

    def find(self, collection: CollectionInfo, point_id: PointId) -> tuple[FoundPoint, ...]:
        """As `ServerStore` finds it, now."""
        return self._asked.find(collection, point_id)

    def holding(self, collection: CollectionInfo, ids: Collection[str]) -> frozenset[str]:
        """As `ServerStore` says it, now."""
        return self._asked.holding(collection, ids)

    def points(
        self, collection: CollectionInfo, keep: KeepPoint[T], *, helped: bool = False
    ) -> PointsRead[T]:
        """Every point of a collection through `keep`, which is called in children: what it returns must pickle. Never
        raises for what the server does, its files are, or the disk has no room for: `file.problem` says it."""
        rows: dict[PointId, T] = {}
        problem = None
        try:
            with self._asked.waiting():
                self._read(collection, keep, rows)
        except ServerProblem as error:
            problem = self._asked.problem(error, len(rows))
        except Mem0auditError as error:  # a node of another cluster
            problem = FileProblem("server", f"{error.message}; {error.hint}")
        except (NotReadable, OSError) as error:
            detail = str(error) if isinstance(error, NotReadable) else f"{self.folder}: {error.strerror}"
            problem = FileProblem("server", detail)
        return PointsRead(FileState(collection.path, way="shard snapshots", problem=problem), rows)

    def _read(self, collection: CollectionInfo, keep: KeepPoint[T], rows: dict[PointId, T]) -> None:
        name = collection.name
        try:
            found = serversnapshots.described(self.connection, name)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise NotReadable("what the server says of it is not as a Qdrant server writes it") from None
        if found is None:
            raise ServerProblem("missing", f"{self.connection.address.url}: {name} is not there any more")
        if found.elsewhere:
            said = f" ({found.silent[0]})" if found.silent else ""
            raise NotReadable(
                f"{found.elsewhere} of its shards lie only on nodes of the cluster that are not named with --node, "
                f"or do not answer{said}"
            )
        shards = found.shards or dict.fromkeys(found.local, (self.connection,))
        if len(shards) > 1:
            self.several.append(name)
        before = self._asked.ids(collection)
        for shard, nodes in shards.items():
            rows.update(self._shard(name, shard, nodes, keep))
        # Of files of another version a reader may overlook some, and say nothing. A scroll has what stands still.
        after = self._asked.ids(collection)
        missing = len((before & after) - rows.keys())
        others = len(rows.keys() - before) if before == after else 0
        if missing or others:
            raise NotReadable(
                f"qdrant-edge {_version()} finds {len(rows):,} points in its snapshot: {missing:,} of those that the "
                f"server has are not among them, and {others:,} are that it does not have"
            )

    def _shard(
        self, name: str, shard: int, nodes: tuple[Connection, ...], keep: KeepPoint[T]
    ) -> dict[PointId, T]:
        with files.scratch_folder(folder=self.folder / str(shard)) as folder:
            archive, unpacked = folder / "archive", folder / "shard"
            self._bring(name, shard, nodes, archive)
            parent = os.getpid()

            def read(_: Callable[[], Any]) -> dict[PointId, T]:
                _quiet_child_of(parent)
                return _points(archive, unpacked, keep, vectors=self.vectors)

            try:
                return Child(read, (NotReadable,)).result()
            except ChildFailed as failed:
                raise NotReadable(f"reading its snapshot ended: {failed}") from None

    def _bring(self, name: str, shard: int, nodes: tuple[Connection, ...], archive: Path) -> None:
        """Of a node that does not answer the next copy is taken."""
        for number, node in enumerate(nodes, 1):
            if self._brought(node, name, shard, archive, last=number == len(nodes)):
                return

    def _brought(self, node: Connection, name: str, shard: int, archive: Path, *, last: bool) -> bool:
        before = serversnapshots.there(node, name, shard)
        noted = {"url": node.address.url, "collection": name, "shard": shard, "before": sorted(before)}
        remote = None
        self._note({**noted, "name": None})
        try:
            with serversnapshots.taken(node, name, before, shard) as remote:
                self._note({**noted, "name": remote.name})
                files.step("server.taken")
                self._check_room(3 * remote.size)  # itself, the archives of segments in it, and their files
                serversnapshots.bring(node, remote, archive, kept=False)
            return True
        except serversnapshots.NotWhole as problem:
            raise NotReadable(f"its snapshot: {problem}") from None
        except ServerProblem as problem:
            if remote is None and problem.kind in ("key", "forbidden", "missing", "refused"):
                files.remove_new(self.folder / NOTE)  # it was not taken
            if problem.kind in ("key", "forbidden"):  # it was good enough for what was asked before
                raise NotReadable(
                    "the API key may not take its snapshot: --consistent needs one that may manage"
                ) from None
            if last or problem.kind not in ("unreachable", "timeout", "cut"):
                raise
            files.remove_new(archive)
            return False
        finally:
            if remote is not None:
                if remote.name not in before and serversnapshots.left_behind(node, remote) is False:
                    files.remove_new(self.folder / NOTE)
                else:
                    self.left.append(_address(node, name, shard, remote.name))

    def _note(self, noted: dict[str, Any]) -> None:
        files.write_file(self.folder / NOTE, json.dumps(noted).encode("ascii"), ours=True)

    def _check_room(self, needed: int) -> None:
        free = files.free_bytes(self.folder)
        if free is not None and free < needed + LEFT_FREE:
            raise NotReadable(
                f"{self.folder.parent} has {free >> 20:,} MB free, its snapshot needs "
                f"{(needed + LEFT_FREE) >> 20:,} there; TMPDIR names another place"
            )


def _address(node: Connection, name: str, shard: int, snapshot: str) -> str:
    return node.address.url + serversnapshots.snapshots_path(name, shard, snapshot)


def remove_left_there(connection: Connection, folder: Path) -> list[str]:
    """Removes the snapshot that a run which was killed left on the server, by the note in its scratch folder; the note
    goes then, and stays where another server is meant or this one cannot do it. Where the note does not know its name,
    what may be it is not removed, since it may be somebody else's: its address is returned, once. Raises nothing."""
    try:
        age_s = time.time() - (folder / NOTE).stat().st_mtime
        noted = json.loads((folder / NOTE).read_bytes())
        url, name, shard = str(noted["url"]), str(noted["collection"]), int(noted["shard"])
        before, remote = frozenset(map(str, noted["before"])), noted["name"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        files.remove_new(folder / NOTE)  # it was not whole yet, and nothing asked for
        return []
    said: list[str] = []
    for node in (connection, *connection.others):
        if node.address.url != url:
            continue
        with suppress(ServerProblem):
            if remote is not None and remote not in before:
                serversnapshots.removed(node, name, str(remote), shard)
            elif maybe := sorted(serversnapshots.there(node, name, shard) - before):
                said = [_address(node, name, shard, one) for one in maybe]
            elif age_s < serversnapshots.WORK_S:
                break  # the server may still be at it
            files.remove_new(folder / NOTE)
    return said


# --- In the child -------------------------------------------------------------------------------------------


def _quiet_child_of(parent: int) -> None:
    """Ends with its parent, and prints nothing: a panic of qdrant-edge does."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _points(archive: Path, unpacked: Path, keep: KeepPoint[T], *, vectors: bool) -> dict[PointId, T]:
    """Every point of a shard's snapshot through `keep`. Raises NotReadable."""
    try:
        _check_archive(archive)
        import qdrant_edge as edge

        edge.EdgeShard.unpack_snapshot(str(archive), str(unpacked))
        files.remove_new(archive)
        shard = edge.EdgeShard.load(str(unpacked))
        rows: dict[PointId, T] = {}
        offset = None
        while True:
            asked = edge.ScrollRequest(limit=AT_ONCE, offset=offset, with_payload=True, with_vector=vectors)
            page, offset = shard.scroll(asked)
            for point in page:
                found: Any = point.id
                point_id: PointId = found if isinstance(found, int) else str(found)
                facts: VectorFacts = vector_facts(point.vector) if vectors else NO_VECTOR
                rows[point_id] = keep(NO_ROW, point_id, point.payload or {}, facts)
            if offset is None:
                return rows
    except NotReadable:
        raise
    except BaseException as error:  # noqa: BLE001 - its panics are no Exception
        said = str(error).replace(str(unpacked), "").replace(str(archive), "")
        raise NotReadable(f"qdrant-edge {_version()} cannot read its snapshot: {clean(said, 250)}") from None


def _check_archive(archive: Path) -> None:
    """What a server packs are files and folders below one: nothing that would be unpacked elsewhere."""
    try:
        with archive.open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            if file.read() != _END:
                raise NotReadable(_NOT_WHOLE)
        with tarfile.open(archive, "r:") as packed:
            for member in _checked(packed):
                inner = packed.extractfile(member) if member.name.endswith(".tar") else None
                if inner is not None:  # a segment
                    with tarfile.open(fileobj=inner, mode="r:") as segment:
                        for _ in _checked(segment):
                            pass
    except (tarfile.TarError, EOFError, OSError):
        raise NotReadable(_NOT_WHOLE) from None


def _checked(packed: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in packed:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts or not (member.isreg() or member.isdir()):
            raise NotReadable("its snapshot holds what no server packs: a link, or a path out of it")
        yield member


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("qdrant-edge-py")
    except PackageNotFoundError:
        return "(of no known version)"
