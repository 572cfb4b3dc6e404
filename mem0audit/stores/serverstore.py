"""A Qdrant server as a store of points to read: read calls only, which do nothing to it."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import starmap
from typing import Any, Final, Literal, TypeVar

from mem0audit.core.errors import ServerProblem
from mem0audit.core.model import (
    CollectionInfo,
    FileProblem,
    FileState,
    FoundPoint,
    KeepPoint,
    PointId,
    PointsRead,
    ServerSide,
    ShardCopy,
    StoreLayout,
    VectorFacts,
)
from mem0audit.core.reading import ENTITIES_SUFFIX, TELEMETRY_COLLECTIONS
from mem0audit.stores import serversnapshots
from mem0audit.stores.pickles import normalise_id
from mem0audit.stores.server import Connection, clean, collection_path
from mem0audit.stores.serverpages import IDS_A_PAGE, PAGE, odd_answer, pages
from mem0audit.stores.serverpoints import at_once

T = TypeVar("T")

IDS_AT_ONCE: Final = 1000
COPIES_S: Final = 10.0
"""How long every copy of a shard may take to answer for one point."""
NO_VECTOR: Final = VectorFacts(None, None)
NO_ROW: Final = 0
"""The row of a point: a server has none."""
_Point = tuple[int, PointId, Mapping[str, Any], VectorFacts]
_IDS: Final = frozenset((str, int))
_PAYLOADS: Final = frozenset((dict,))


class ServerStore:
    """The collections of a server as a store to read (a `model.PointStore`).

    `wanted` is the collection of the install: of that, of its entities and of mem0's telemetry the details are asked,
    others are only named. Where it is not there and only one other could be meant, of that one; None: of all.
    `alone`: no other collection than that one and its entities is looked at.
    `pause` waits so many seconds. With `vectors` the points come with the facts of theirs: 10,000 of 1,536 dimensions
    then take 1.4 s of the processor (about 5 s without orjson), where they take 0.1 s.
    """

    def __init__(
        self,
        connection: Connection,
        wanted: str | None = None,
        pause: Callable[[float], None] = time.sleep,
        *,
        alone: bool = False,
        vectors: bool = False,
    ) -> None:
        self.connection = connection
        self.wanted = wanted
        self.pause = pause
        self.alone = alone
        self.vectors = vectors
        self._silent_since: ServerProblem | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For what asks about one collection: a server that gave no answer in time is not waited for once more, for
        each further one. Raises ServerProblem."""
        if self._silent_since is not None:
            raise self._silent_since
        try:
            yield
        except ServerProblem as problem:
            if problem.kind == "timeout":
                self._silent_since = problem
            raise

    def layout(self) -> StoreLayout:
        """The collections there are; never raises: `problem` says why the server could not be asked."""
        url = self.connection.address.url
        version: str | None = None
        try:
            with suppress(_NotQdrant):
                version = self._version()
            names = serversnapshots.names(self.connection)
            aliases = self._aliases()
            meant = self._meant(names)
            of_mem0 = names if meant is None else (meant, meant + ENTITIES_SUFFIX, *TELEMETRY_COLLECTIONS)
            if self.alone:
                names = tuple(n for n in names if n in (self.wanted, f"{self.wanted}{ENTITIES_SUFFIX}"))
            collections = tuple(self._collection(name, name in of_mem0) for name in names)
        except ServerProblem as problem:
            return StoreLayout(url, exists=False, problem=self.problem(problem), version=version)
        return StoreLayout(
            url,
            True,
            collections,
            aliases,
            version=version,
            read_only_key=self.connection.may_only_read,
            lacks=None if meant is None or meant in names else meant,
        )

    def points(
        self, collection: CollectionInfo, keep: KeepPoint[T], *, helped: bool = False
    ) -> PointsRead[T]:
        """Every point of a collection through `keep`, with row 0, a page at a time. Never raises for what the server
        does: where it fails half-way, `file.problem` says so, and the rows read before are there."""
        rows: dict[PointId, T] = {}
        problem = None
        try:
            with self.waiting():
                for page in self._pages(collection):
                    rows.update(zip([point[1] for point in page], starmap(keep, page), strict=True))
        except ServerProblem as error:
            problem = self.problem(error, len(rows))
        return PointsRead(FileState(collection.path, way="scroll", problem=problem), rows)

    def find(self, collection: CollectionInfo, point_id: PointId) -> tuple[FoundPoint, ...]:
        """The point of this id with its payload and the facts of its vector; () where there is none. Raises
        ServerProblem."""
        wanted = normalise_id(point_id)
        if not _is_point_id(wanted):
            return ()
        body = {"ids": [wanted], "with_payload": True, "with_vector": True}
        with self.waiting():
            found = self.connection.post(collection_path(collection.name, "points"), body)
        return tuple(
            FoundPoint(row, one, payload, facts, winner=True)
            for row, one, payload, facts in self._points_of(found)
            if one == wanted
        )

    def holding(self, collection: CollectionInfo, ids: Collection[str]) -> frozenset[str]:
        """Which of these ids the collection has a point for. Raises ServerProblem."""
        of_id = {normalise_id(int(one) if one.isascii() and one.isdigit() else one): one for one in ids}
        asked = [one for one in of_id if _is_point_id(one)]
        there: set[str] = set()
        for start in range(0, len(asked), IDS_AT_ONCE):
            body = {"ids": asked[start : start + IDS_AT_ONCE], "with_payload": False, "with_vector": False}
            with self.waiting():
                found = self.connection.post(collection_path(collection.name, "points"), body)
            there.update(of_id[one] for _, one, _, _ in self._points_of(found) if one in of_id)
        return frozenset(there)

    def ids(self, collection: CollectionInfo) -> frozenset[PointId]:
        """The ids of the points, read as `points` are. Raises ServerProblem."""
        return frozenset(point[1] for page in self._pages(collection, payload=False) for point in page)

    # --- points ---

    def _pages(self, collection: CollectionInfo, *, payload: bool = True) -> Iterator[list[_Point]]:
        vectors = payload and self.vectors
        limit = IDS_A_PAGE if not payload else at_once(collection.dims) if vectors else PAGE
        for page in pages(
            self.connection, collection.name, limit, payload=payload, vectors=vectors, pause=self.pause
        ):
            yield self._points_of(page)

    def _points_of(self, points: Any) -> list[_Point]:
        """The points of an answer; the facts of their vectors where they came with them."""
        try:
            found: list[_Point] = [
                (
                    NO_ROW,
                    point["id"],
                    point.get("payload") or {},
                    vector_facts(point["vector"]) if "vector" in point else NO_VECTOR,
                )
                for point in points
            ]
        except (TypeError, KeyError, AttributeError):
            raise odd_answer(self.connection) from None
        if not _IDS.issuperset([type(point[1]) for point in found]):
            raise odd_answer(self.connection)
        if not _PAYLOADS.issuperset([type(point[2]) for point in found]):
            raise odd_answer(self.connection)
        return found

    # --- what a collection is ---

    def _version(self) -> str:
        try:
            return self.connection.version()
        except ServerProblem as problem:
            if problem.kind == "not-qdrant":
                raise _NotQdrant from None  # a proxy may pass the API and keep its own front page
            raise

    def _aliases(self) -> dict[str, str]:
        try:
            found = self.connection.get("/aliases")
            return {str(one["alias_name"]): str(one["collection_name"]) for one in found["aliases"]}
        except ServerProblem as problem:
            if problem.kind == "forbidden":
                return {}  # a key for some collections only
            raise
        except (TypeError, KeyError):
            raise odd_answer(self.connection) from None

    def _meant(self, names: Collection[str]) -> str | None:
        """The collection of the install; None: every one."""
        own = [n for n in names if n not in TELEMETRY_COLLECTIONS and not n.endswith(ENTITIES_SUFFIX)]
        return (
            own[0] if self.wanted is not None and self.wanted not in names and len(own) == 1 else self.wanted
        )

    def _collection(self, name: str, details: bool) -> CollectionInfo:
        path = self.connection.address.url + collection_path(name)
        bare = CollectionInfo(name, path, None, listed=True, has_folder=True, foreign=not details)
        if not details:
            return bare
        try:
            found = self.connection.get(collection_path(name))
        except ServerProblem as problem:
            if problem.kind in ("forbidden", "missing", "server", "refused"):
                return bare  # reading its points will say what is wrong with it
            raise
        cluster: Any = {}
        try:
            cluster = self.connection.get(collection_path(name, "cluster"))
        except ServerProblem as problem:
            if problem.kind not in ("forbidden", "missing", "not-qdrant"):
                raise
        silent = self._silent(name) if cluster.get("remote_shards") else None
        try:
            return _described(bare, found, cluster, silent)
        except (TypeError, KeyError, AttributeError, ValueError):
            raise odd_answer(self.connection) from None

    def _silent(self, name: str) -> str | None:
        """What the server says where not every copy of every shard answers. A node that is down stands as active in
        the cluster's own list until a write to it fails, and who but the leader asked is not told that it is away
        (1.16.3): one point read from all copies says it."""
        body = {"limit": 1, "with_payload": False, "with_vector": False}
        try:
            path = collection_path(name, "points", "scroll")
            self.connection.post(path, body, timeout=COPIES_S, consistency="all")
        except ServerProblem as problem:
            if problem.kind == "server":
                said = problem.message.removeprefix(f"{self.connection.address.url}: ")
                return said.removeprefix(f"answers {problem.status}: ")
            if problem.kind == "timeout":
                return "no answer in time"
            if problem.kind not in ("refused", "forbidden"):  # limits of strict mode
                raise
        return None

    def problem(self, problem: ServerProblem, read: int = 0) -> FileProblem:
        """What the server did, in words; `read` points had come before that."""
        detail = problem.message.removeprefix(f"{self.connection.address.url}: ")
        hint = f"; {problem.hint}" if problem.hint else ""
        return FileProblem(
            "server", detail + hint + (f"; {read:,} points were read before that" if read else "")
        )


class _NotQdrant(Exception):
    """What answers for `GET /` is something else."""


def _described(bare: CollectionInfo, found: Any, cluster: Any, silent: str | None) -> CollectionInfo:
    params = found["config"]["params"]
    vectors, sparse = params.get("vectors") or {}, params.get("sparse_vectors") or {}
    size = vectors.get("size")
    if size is None and isinstance(vectors.get(""), dict):
        size = vectors[""].get("size")
    optimizer = found.get("optimizer_status")
    strict = found["config"].get("strict_mode_config") or {}
    copies = [
        ShardCopy(int(one["shard_id"]), str(one["state"])) for one in cluster.get("local_shards") or ()
    ] + [
        ShardCopy(int(one["shard_id"]), str(one["state"]), str(one.get("peer_id")))
        for one in cluster.get("remote_shards") or ()
    ]
    return CollectionInfo(
        name=bare.name,
        path=bare.path,
        dims=size if type(size) is int else None,
        listed=True,
        has_folder=True,
        keyword_slot="bm25" in sparse,
        server=ServerSide(
            status=clean(found["status"], 20),
            error=clean(optimizer["error"]) if isinstance(optimizer, dict) and "error" in optimizer else None,
            points=found.get("points_count"),
            indexed=tuple(sorted(found.get("payload_schema") or {})),
            replicas_wanted=int(params.get("replication_factor") or 1),
            copies=tuple(copies),
            silent=silent,
            strict=strict if strict.get("enabled") else {},
        ),
    )


def _is_point_id(one: PointId) -> bool:
    if isinstance(one, int):
        return 0 <= one < 1 << 64
    try:
        return str(uuid.UUID(one)) == one
    except ValueError:
        return False


def vector_facts(vector: Any) -> VectorFacts:
    """What a point's vectors look like, from the server's JSON: a list, or a dict with the names.

    JSON has no NaN and no infinity: the server writes null for them (1.16.3). It takes either by gRPC, and by REST a
    number too large for 32 bits; a vector of zeros it keeps whatever the distance, one of another length never.
    """
    names: tuple[str, ...] = ()
    if isinstance(vector, dict):
        names = tuple(str(name) for name in vector if name)
        vector = vector.get("")
    if not isinstance(vector, list):
        return VectorFacts(None, None, names)
    try:
        finite = math.isfinite(sum(vector))  # the sum of floats of 32 bits does not overflow
    except (TypeError, OverflowError):
        if not all(value is None or isinstance(value, (int, float)) for value in vector):
            return VectorFacts(None, None, names)
        finite = False
    flaw: Literal["zero", "nan"] | None = None
    if not finite:
        flaw = "nan"
    elif vector and not any(vector):
        flaw = "zero"
    return VectorFacts(len(vector), flaw, names)
