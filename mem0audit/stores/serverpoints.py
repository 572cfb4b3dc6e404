"""Points written to a Qdrant server with all that they have, and read back to prove it.

The text of a request is made here: `json.dumps` takes a millisecond for 1,536 floats, this a third of that. A server
keeps floats of 32 bits, and of a collection with cosine distance each vector divided by its length (lib/segment,
`cosine_preprocess`); so what is read back is compared up to that.
"""

from __future__ import annotations

import json
import math
import re
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeVar

from mem0audit.core.errors import Failed, ServerProblem
from mem0audit.core.model import PointId
from mem0audit.stores.pickles import Opaque, PointVectors, WholePoint
from mem0audit.stores.server import ANSWER_S, Connection, agreed_path, collection_path, result_of
from mem0audit.stores.serverpages import IDS_A_PAGE, PATIENCE_S, pages

T = TypeVar("T")

dumps: Callable[[Any], bytes] | None = None
with suppress(ImportError):
    import orjson

    dumps = orjson.dumps

AT_ONCE: Final = 256
"""Points a request; fewer where the vectors are long: see `at_once`."""
REQUEST_BYTES: Final = 8 << 20
"""A server takes 32 MB a request unless told otherwise (`max_request_size_mb`)."""
WRITE_S: Final = 180.0
SAME: Final = 2e-6
"""How far apart two vectors of length 1 may be that are the same in floats of 32 bits: a server leaves one as it is
whose square is within a millionth of 1."""
OWNER_FIELDS: Final = ("user_id", "agent_id", "run_id", "actor_id")
"""The payload fields that mem0 has a server index (mem0/vector_stores/qdrant.py, `_create_filter_indexes`)."""
DISTANCES: Final = ("Cosine", "Dot", "Euclid", "Manhattan")
FILLED_IN: Final = ("optimizer_config", "wal_config")
"""Parts of a collection's `config` in which a server fills in what it was not told."""
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_LONG_NUMBER = re.compile(r"\d{19}")
_TEXTS: Final = frozenset({str})
_formats: dict[int, str] = {}


def at_once(dims: int | None) -> int:
    """Points a request for vectors of so many dimensions."""
    return max(1, min(AT_ONCE, REQUEST_BYTES // (14 * (dims or 0) + 4096)))


def limit_of(connection: Connection, name: str, limit: str) -> int | None:
    """A limit in points that strict mode sets to requests for a collection; None where there is none. Raises
    ServerProblem."""
    strict = connection.get(collection_path(name))["config"].get("strict_mode_config") or {}
    most = strict.get(limit) if strict.get("enabled") else None
    return most if type(most) is int and most > 0 else None


def patiently(ask: Callable[[], T], pause: Callable[[float], None]) -> T:
    """What `ask` returns, asked again after a while where the server says that it was asked too often. Raises
    ServerProblem."""
    for wait in PATIENCE_S:
        try:
            return ask()
        except ServerProblem as problem:
            if problem.status != 429:
                raise
        pause(wait)
    return ask()


# --- What a server takes ---------------------------------------------------------------------------------


def refused_id(point_id: PointId) -> bool:
    """Whether a server has no such id: it knows UUIDs, and numbers of 64 bits without a sign."""
    if isinstance(point_id, int):
        return not 0 <= point_id < 1 << 64
    return _UUID.fullmatch(point_id) is None


def refused_payload(payload: Mapping[str, Any]) -> str | None:
    """Why a server would not keep a payload as it is; None where it would."""
    if _TEXTS.issuperset(map(type, payload.values())):  # as nearly every one is
        try:
            "".join([*payload, *payload.values()]).encode()
        except UnicodeEncodeError:
            return "half a character"
        return None
    try:
        text = json.dumps(payload, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        return "half a character"
    except (ValueError, TypeError, RecursionError):
        return "a number that is none, or what no JSON has"
    if any(type(one) is Opaque for one in _leaves(payload)):
        return "an object that is no JSON"
    if _LONG_NUMBER.search(text) and any(
        type(one) is int and not -(1 << 63) <= one < 1 << 64 for one in _leaves(payload)
    ):
        return "a number of more than 64 bits"
    return None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


# --- Requests --------------------------------------------------------------------------------------------


def create_as_mem0(
    connection: Connection, name: str, dims: int, distance: str, *, keyword_slot: bool, on_disk: bool = False
) -> None:
    """A collection as mem0's `create_col` makes one (vectors in memory unless `on_disk`, `bm25` with the IDF modifier
    from mem0 2.0 on), with its payload indexes. One that is there already gets the indexes only. Raises
    ServerProblem."""
    if not connection.get(collection_path(name, "exists"))["exists"]:
        body: dict[str, Any] = {"vectors": {"size": dims, "distance": distance, "on_disk": on_disk}}
        if keyword_slot:
            body["sparse_vectors"] = {"bm25": {"modifier": "idf"}}
        connection.put(agreed_path(name), body, timeout=WRITE_S)
    for field in OWNER_FIELDS:
        body = {"field_name": field, "field_schema": "keyword"}
        connection.put(collection_path(name, "index"), body, timeout=WRITE_S, wait="true")


@dataclass(frozen=True)
class Kind:
    """How a collection is made: its `config` and its payload `indexes` (by field) as the server says them."""

    config: Mapping[str, Any]
    indexes: Mapping[str, Mapping[str, Any]]

    def same(self, other: Kind) -> bool:
        """Whether another one is made alike."""
        one, its = ({k: v for k, v in of.config.items() if k not in FILLED_IN} for of in (self, other))
        return one == its and self.indexes == other.indexes

    @property
    def vectors(self) -> Mapping[str, Any] | None:
        """The size and distance of its vectors; None where it has others than mem0 makes."""
        params = self.config["params"]
        vectors = params.get("vectors") or {}
        if set(vectors) == {""}:
            vectors = vectors[""]
        if type(vectors.get("size")) is not int or vectors.get("distance") not in DISTANCES:
            return None
        if vectors.get("multivector_config") or set(params.get("sparse_vectors") or {}) - {"bm25"}:
            return None
        found: Mapping[str, Any] = vectors
        return found


def kind_of(connection: Connection, name: str) -> Kind:
    """How a collection is made. Raises ServerProblem."""
    return kind_in(connection.get(collection_path(name)))


def kind_in(info: Any) -> Kind:
    """How a collection is made, in what a server answers of it."""
    indexes = {
        str(field): {key: value for key, value in said.items() if key != "points"}
        for field, said in (info.get("payload_schema") or {}).items()
    }
    return Kind(info["config"], indexes)


def create_alike(connection: Connection, name: str, kind: Kind) -> None:
    """A new, empty collection that is made as another one is. Raises ServerProblem."""
    config = dict(kind.config)
    body = {**config.pop("params"), "optimizers_config": config.pop("optimizer_config", None), **config}
    body = {key: value for key, value in body.items() if value is not None}
    connection.put(agreed_path(name), body, timeout=WRITE_S)
    index_alike(connection, name, kind)


def index_alike(connection: Connection, name: str, kind: Kind) -> None:
    """Gives a collection the payload indexes of another one. Raises ServerProblem."""
    for field, said in kind.indexes.items():
        index = {"field_name": field, "field_schema": said.get("params") or said["data_type"]}
        connection.put(collection_path(name, "index"), index, timeout=WRITE_S, wait="true")


def ids_in(connection: Connection, name: str) -> set[PointId]:
    """The ids of all points. Raises ServerProblem."""
    return {point["id"] for page in pages(connection, name, IDS_A_PAGE, payload=False) for point in page}


def whole_pages(
    connection: Connection, name: str, at_once: int = AT_ONCE, pause: Callable[[float], None] = time.sleep
) -> Iterator[list[dict[str, Any]]]:
    """Every point as the server gives it, with vectors and payload, a page at a time (see `pages`). Raises
    ServerProblem."""
    return pages(connection, name, at_once, vectors=True, pause=pause)


def whole_of(point: Mapping[str, Any]) -> WholePoint | None:
    """A point as the server gives it; None where it has vectors that mem0 does not make."""
    vectors = vectors_in(point.get("vector"))
    return None if vectors is None else WholePoint(point["id"], point.get("payload") or {}, vectors)


def digests(connection: Connection, name: str) -> dict[str, bytes]:
    """Of every point its id as text and a digest of all that it has. Raises ServerProblem."""
    return {
        str(point["id"]): blake2b(json.dumps(point, sort_keys=True).encode(), digest_size=16).digest()
        for page in whole_pages(connection, name)
        for point in page
    }


def vectors_on(connection: Connection, name: str, point_id: PointId) -> PointVectors | None:
    """The vectors of one point; None where there is no such point, or it has others than mem0 makes. Raises
    ServerProblem."""
    body = {"ids": [point_id], "with_payload": False, "with_vector": True}
    found = connection.post(collection_path(name, "points"), body)
    return vectors_in(found[0].get("vector")) if found else None


def vectors_of(
    connection: Connection, name: str, ids: Sequence[PointId]
) -> dict[PointId, PointVectors | None]:
    """The vectors of these points, without those that are not there. Raises ServerProblem."""
    found: dict[PointId, PointVectors | None] = {}
    for start in range(0, len(ids), AT_ONCE):
        body = {"ids": ids[start : start + AT_ONCE], "with_payload": False, "with_vector": True}
        for point in connection.post(collection_path(name, "points"), body, timeout=WRITE_S):
            found[point["id"]] = vectors_in(point.get("vector"))
    return found


def body_of(texts: Sequence[str]) -> bytes:
    """The request that writes these points, each as `text_of` it."""
    return f'{{"points":[{",".join(texts)}]}}'.encode()


def text_of(point: WholePoint) -> str:
    """A point as JSON, in ASCII."""
    vectors = ["" if point.vectors.dense is None else f'"":{_floats(point.vectors.dense)}']
    if point.vectors.keyword is not None:
        indices, values = point.vectors.keyword
        vectors.append(f'"bm25":{json.dumps({"indices": indices, "values": values})}')
    payload = json.dumps(point.payload, allow_nan=False, separators=(",", ":"))
    said = ",".join(filter(None, vectors))
    return f'{{"id":{json.dumps(point.id)},"vector":{{{said}}},"payload":{payload}}}'


def _floats(vector: Sequence[float]) -> str:
    """Nine digits are enough for a float of 32 bits; orjson writes more, in a fifth of the time."""
    if dumps is not None:
        return str(dumps(list(vector)), "ascii")
    size = len(vector)
    if size not in _formats:
        _formats[size] = "[" + ",".join(["%.9g"] * size) + "]"
    return _formats[size] % tuple(vector)


class Carrier:
    """Writes batches of points and reads each back, one batch in flight on either connection meanwhile.

    `written` counts what was proven, `found` what was there and the same; `digest` is over all of it. Raises
    ServerProblem; Failed where a point that was read back is another one.
    """

    def __init__(
        self,
        writing: Connection,
        reading: Connection,
        name: str,
        distance: str,
        there: Collection[PointId] = (),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.writing = writing
        self.reading = reading
        self.name = name
        self.cosine = distance == "Cosine"
        self.there = there
        """Ids that a run that was cut off may have written: they are read first."""
        self.pause = pause
        self.written = 0
        self.found = 0
        self._most = limit_of(writing, name, "upsert_max_batchsize") or AT_ONCE
        self._sum = 0
        self._sent: tuple[list[WholePoint], bytes] | None = None
        self._asked: list[WholePoint] | None = None

    def take(self, points: Sequence[WholePoint]) -> None:
        """More points."""
        some: list[WholePoint] = []
        texts: list[str] = []
        size = 0
        for point in points:
            text = text_of(point)
            if some and (size + len(text) > REQUEST_BYTES or len(some) == self._most):
                self._take(some, texts)
                some, texts, size = [], [], 0
            some.append(point)
            texts.append(text)
            size += len(text)
        if some:
            self._take(some, texts)

    def _take(self, points: list[WholePoint], texts: list[str]) -> None:
        if self.there:
            same = self._there_and_the_same(points)
            texts = [text for point, text in zip(points, texts, strict=True) if point.id not in same]
            points = [point for point in points if point.id not in same]
        if points:
            self._send(points, body_of(texts))

    def end(self) -> None:
        """Everything is on the server, and proven."""
        self._send()
        self._send()

    def _send(self, points: list[WholePoint] | None = None, body: bytes = b"") -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            self._answer_to(partial(self._put, sent[1]), self.writing, WRITE_S)
        if points is not None:
            self._put(body)
            self._sent = points, body
        self._prove_asked()
        if sent is not None:
            self._ask(sent[0])
            self._asked = sent[0]

    def _put(self, body: bytes) -> None:
        self.writing.send("PUT", f"{collection_path(self.name, 'points')}?wait=true", body, WRITE_S)

    def _ask(self, points: Sequence[WholePoint]) -> None:
        body = {"ids": [point.id for point in points], "with_payload": True, "with_vector": True}
        self.reading.send("POST", collection_path(self.name, "points"), body, ANSWER_S)

    def _answer_to(self, ask: Callable[[], object], connection: Connection, timeout: float) -> Any:
        """`result` of the answer to what was asked; asked again where it was too much at once for the server."""
        asked = True

        def answer() -> Any:
            nonlocal asked
            if not asked:
                ask()
            asked = False
            return result_of(connection.receive(timeout), connection.address)

        return patiently(answer, self.pause)

    def _answered(self, points: Sequence[WholePoint]) -> dict[PointId, Mapping[str, Any]]:
        found = self._answer_to(partial(self._ask, points), self.reading, ANSWER_S)
        return {one["id"]: one for one in found}

    def _prove_asked(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            self._prove(asked, self._answered(asked))

    def _prove(self, points: Sequence[WholePoint], found: Mapping[PointId, Mapping[str, Any]]) -> None:
        for point in points:
            got = found.get(point.id)
            wrong = "is not there" if got is None else difference(point, got, cosine=self.cosine)
            if got is None or wrong is not None:
                raise Failed(f"{self.name}: the point {point.id}, read back, {wrong}")
            self._sum += _digest(got)
        self.written += len(points)

    @property
    def digest(self) -> str:
        """Of every point as the server gave it, in whatever order."""
        return f"{self._sum % (1 << 128):032x}"

    def _there_and_the_same(self, points: Sequence[WholePoint]) -> set[PointId]:
        maybe = [point for point in points if point.id in self.there]
        if not maybe:
            return set()
        self._prove_asked()
        self._ask(maybe)
        found = self._answered(maybe)
        same = {
            point.id
            for point in maybe
            if point.id in found and difference(point, found[point.id], cosine=self.cosine) is None
        }
        self.found += len(same)
        self._sum += sum(_digest(found[one]) for one in same)
        return same


def _digest(point: Mapping[str, Any]) -> int:
    text = json.dumps([point["id"], point.get("payload")], sort_keys=True)
    vectors = vectors_in(point.get("vector"))
    dense = b"" if vectors is None or vectors.dense is None else array("f", vectors.dense).tobytes()
    return int.from_bytes(blake2b(text.encode() + dense, digest_size=16).digest(), "big")


# --- Proof -----------------------------------------------------------------------------------------------


def difference(point: WholePoint, got: Mapping[str, Any], *, cosine: bool) -> str | None:
    """What is another in a point as a server gives it; None where nothing is."""
    there = vectors_in(got.get("vector"))
    if there is None:
        return "has vectors that nobody gave it"
    if not same_vector(point.vectors.dense, there.dense, cosine=cosine):
        return "has another vector"
    if not _same_keyword(point.vectors.keyword, there.keyword):
        return "has another keyword vector"
    return None if same_value(point.payload, got.get("payload") or {}) else "has another payload"


def vectors_in(vector: Any) -> PointVectors | None:
    """A point's vectors as a server gives them; None where there are others than mem0 makes."""
    if vector is None or isinstance(vector, list):
        return PointVectors(vector or None)
    if not isinstance(vector, Mapping) or not set(vector) <= {"", "bm25"}:
        return None
    dense, keyword = vector.get(""), vector.get("bm25")
    if keyword is not None and not isinstance(keyword, Mapping):
        return None
    if dense is not None and not (isinstance(dense, list) and not (dense and isinstance(dense[0], list))):
        return None
    return PointVectors(dense, None if keyword is None else (keyword["indices"], keyword["values"]))


def same_vector(one: Sequence[float] | None, other: Sequence[float] | None, *, cosine: bool) -> bool:
    """Whether two dense vectors are the same in floats of 32 bits; with `cosine`, of the same direction."""
    if one is None or other is None:
        return one is None and other is None
    if len(one) != len(other):
        return False
    length, its = math.hypot(*one), math.hypot(*other)
    if cosine and length > 0 and its > 0:
        # that of a server is of length 1, and as a rule the other one is
        return math.dist(_unit(one, length), _unit(other, its)) <= SAME
    return math.dist(one, other) <= SAME * length


def _unit(vector: Sequence[float], length: float) -> Sequence[float]:
    return vector if abs(length - 1.0) < 2e-7 else [x / length for x in vector]


def _same_keyword(
    one: tuple[list[int], list[float]] | None, other: tuple[list[int], list[float]] | None
) -> bool:
    """A server keeps the indices in their order."""
    if one is None or other is None:
        return (one is None or not one[0]) and (other is None or not other[0])
    a, b = (dict(zip(k[0], k[1], strict=True)) for k in (one, other))
    return a.keys() == b.keys() and all(math.isclose(a[i], b[i], rel_tol=SAME) for i in a)


def same_value(one: Any, other: Any) -> bool:
    """Whether two payload values are the same, types too; of two floats the last bit may be another one, as a parser
    rounds."""
    if type(one) is float and type(other) is float:
        return one == other or math.isclose(one, other, rel_tol=1e-15)
    if isinstance(one, dict) and isinstance(other, dict):
        if _TEXTS.issuperset(map(type, one.values())):  # as nearly every payload is; a text equals only texts
            return one == other
        return one.keys() == other.keys() and all(same_value(v, other[k]) for k, v in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return type(one) is type(other) and bool(one == other)
