"""What every store of points must be able to do, whichever door it has: an embedded folder, a server, a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import CollectionInfo, PointId, PointStore, VectorFacts
from mem0audit.core.server import parse_address
from mem0audit.stores import serverpoints, serversnapshots
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.server import Connection
from mem0audit.stores.serverpages import PAGE
from mem0audit.stores.serverstore import ServerStore
from tests.builders import DIMS, RawPoints, copy_store, key_of
from tests.qdrant_server import QdrantCluster, QdrantServer
from tests.rules.onserver import load


class Doors:
    """One install's points behind one door, and what is really in them."""

    def __init__(self, store: PointStore, vectors: Path, server: QdrantServer | None) -> None:
        self.store = store
        self.vectors = vectors
        self.server = server

    def truth(self, collection: str = "mem0") -> dict[Any, dict[str, Any]]:
        return {i: dict(p.payload) for i, p in RawPoints(self.vectors, collection).points().items()}

    def collection(self, name: str = "mem0") -> CollectionInfo:
        return next(c for c in self.store.layout().collections if c.name == name)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of mem0 2.2.1 with entities, a point with a number for an id, and a collection without a point."""
    folder = copy_store("2.2.1-nlp", tmp_path_factory.mktemp("points")).vectors
    raw = RawPoints(folder)
    raw.put(7, {"data": "a number for an id", "user_id": "alice", "nested": {"a": [1, None, 2.5, "é\u2028"]}})
    (folder / "collection/mem0_none").mkdir()
    (folder / "collection/mem0_none/storage.sqlite").write_bytes(
        (folder / "collection/mem0/storage.sqlite").read_bytes()
    )
    empty = RawPoints(folder, "mem0_none")
    for point_id in list(empty.points()):
        empty.remove(point_id)
    return folder


@pytest.fixture(scope="module")
def loaded(vectors: Path) -> Iterator[QdrantServer]:
    server = QdrantServer()
    try:
        server.start()
        load(vectors, server)
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="module")
def spread(vectors: Path, cluster_processes: QdrantCluster) -> Iterator[QdrantServer]:
    """A node of a cluster over which every collection is spread: six shards, two copies of each."""
    cluster_processes.start()
    node = cluster_processes[1]
    load(vectors, node, shard_number=6, replication_factor=2)
    for name in node.collections():
        cluster_processes.settle(name)
    yield node
    for name in node.collections():
        node.result("DELETE", f"/collections/{name}?timeout=30")


@pytest.fixture(params=["folder", "server", "cluster"])
def doors(request: pytest.FixtureRequest, vectors: Path) -> Iterator[Doors]:
    if request.param == "folder":
        yield Doors(EmbeddedStore(str(vectors)), vectors, None)
        return
    server: QdrantServer = request.getfixturevalue("loaded" if request.param == "server" else "spread")
    with Connection(parse_address(server.url)) as connection:
        yield Doors(ServerStore(connection), vectors, server)


def keep(
    rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts
) -> tuple[PointId, dict[str, Any]]:
    return point_id, dict(payload)


def test_collections(doors: Doors) -> None:
    layout = doors.store.layout()
    assert layout.exists and layout.problem is None
    by_name = {c.name: c for c in layout.collections}
    assert set(by_name) == {"mem0", "mem0_entities", "mem0_none"}
    assert all(c.has_folder for c in layout.collections)
    assert by_name["mem0"].dims == DIMS and by_name["mem0"].keyword_slot


@pytest.mark.parametrize("name", ["mem0", "mem0_entities", "mem0_none"])
def test_points_are_all_there_once_with_their_payloads(doors: Doors, name: str) -> None:
    seen: list[PointId] = []

    def kept(rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts) -> Any:
        seen.append(point_id)
        return keep(rowid, point_id, payload, vector)

    read = doors.store.points(doors.collection(name), kept)
    truth = doors.truth(name)
    assert read.file.problem is None and not read.duplicates and not read.bad and not read.unsafe
    assert dict(read.rows) == {i: (i, payload) for i, payload in truth.items()}
    assert sorted(map(str, seen)) == sorted(map(str, truth))


def test_scopes(doors: Doors) -> None:
    read = doors.store.points(doors.collection(), lambda _row, _id, payload, _vector: payload.get("user_id"))
    counts = {who: list(read.rows.values()).count(who) for who in set(read.rows.values())}
    assert counts == {"alice": 11, "bob": 9}


def test_find(doors: Doors) -> None:
    info, truth = doors.collection(), doors.truth()
    for point_id, payload in truth.items():
        (one,) = doors.store.find(info, point_id)
        assert (one.point_id, dict(one.payload), one.winner, one.problem) == (point_id, payload, True, None)
        assert one.vector.dims == DIMS and one.vector.flaw is None
    some = next(i for i in truth if isinstance(i, str))
    assert doors.store.find(info, some.upper())[0].point_id == some


@pytest.mark.parametrize(
    "unknown",
    [8, -1, 1 << 64, "00000000-0000-0000-0000-000000000000", "", "../mem0", "no id", "7", "a" * 10_000],
)
def test_an_id_that_is_not_there(doors: Doors, unknown: PointId) -> None:
    assert doors.store.find(doors.collection(), unknown) == ()


def test_holding(doors: Doors) -> None:
    ids = [str(i) for i in doors.truth() if isinstance(i, str)]
    absent = ["00000000-0000-0000-0000-000000000000", "no id", ""]
    info = doors.collection()
    assert doors.store.holding(info, [*ids[:5], *absent]) == set(ids[:5])
    assert doors.store.holding(info, absent) == set()
    assert doors.store.holding(info, []) == set()


def test_a_collection_that_is_not_there_any_more(doors: Doors) -> None:
    gone = CollectionInfo("gone", doors.collection().path + "-gone", DIMS, listed=True, has_folder=True)
    read = doors.store.points(gone, keep)
    assert read.file.problem is not None and not read.rows
    with pytest.raises(CouldNotRead):
        doors.store.find(gone, 7)


def test_more_than_a_page(doors: Doors, tmp_path: Path) -> None:
    info = doors.collection("mem0_none")
    many = 2 * PAGE + 1
    ids: list[PointId] = list(range(1, many - 9))
    ids += [f"{i:08x}-0000-4000-8000-000000000000" for i in range(10)]
    if doors.server is not None:
        points = [{"id": i, "vector": {}, "payload": {"data": str(i)}} for i in ids]
        path = "/collections/mem0_none/points"
        doors.server.result("PUT", f"{path}?wait=true", {"points": points})
    else:
        import pickle
        import shutil
        import sqlite3

        from qdrant_client.http.models import PointStruct

        copied = tmp_path / "qdrant"
        shutil.copytree(doors.vectors, copied)
        with sqlite3.connect(copied / "collection/mem0_none/storage.sqlite") as file:
            file.executemany(
                "INSERT INTO points VALUES (?, ?)",
                [
                    (key_of(i), pickle.dumps(PointStruct(id=i, vector={}, payload={"data": str(i)})))
                    for i in ids
                ],
            )
        file.close()
        doors = Doors(EmbeddedStore(str(copied)), copied, None)
        info = doors.collection("mem0_none")
    read = doors.store.points(info, lambda _row, point_id, payload, _vector: payload["data"])
    assert read.file.problem is None
    assert dict(read.rows) == {i: str(i) for i in ids}
    if doors.server is not None:
        doors.server.result("POST", f"{path}/delete?wait=true", {"filter": {}})


def test_a_server_that_limits_reads_is_waited_for(qdrant: QdrantServer) -> None:
    strict = {"enabled": True, "read_rate_limit": 2, "max_query_limit": 2}
    body = {"vectors": {}, "strict_mode_config": strict}
    qdrant.result("PUT", "/collections/slow", body)
    points = [{"id": i, "vector": {}, "payload": {"data": str(i)}} for i in range(9)]
    qdrant.result("PUT", "/collections/slow/points?wait=true", {"points": points})
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            qdrant.result("PATCH", "/collections/slow", {"strict_mode_config": {"enabled": False}})

    with Connection(parse_address(qdrant.url)) as connection:
        store = ServerStore(connection, pause=pause)
        (info,) = store.layout().collections
        assert info.server is not None and info.server.strict["max_query_limit"] == 2
        read = store.points(info, keep)
        assert read.file.problem is None and list(read.rows) == list(range(9))
        assert waited == [1.0, 2.0]
        # but not for ever
        qdrant.result("PATCH", "/collections/slow", {"strict_mode_config": strict})
        waited[:] = [0.0] * 10
        read = store.points(info, keep)
    assert read.file.problem is not None and "Rate limit" in read.file.problem.detail
    assert len(waited) == 16


def test_a_server_that_allows_few_at_once_is_read_whole(qdrant: QdrantServer) -> None:
    strict = {"enabled": True, "max_query_limit": 4}
    qdrant.result("PUT", "/collections/few", {"vectors": {}, "strict_mode_config": strict})
    points = [{"id": i, "vector": {}, "payload": {"data": str(i)}} for i in range(9)]
    qdrant.result("PUT", "/collections/few/points?wait=true", {"points": points})
    with Connection(parse_address(qdrant.url)) as connection:
        assert serversnapshots.read_digest(connection, "few").count == 9
        assert serverpoints.ids_in(connection, "few") == set(range(9))
        whole = list(serverpoints.whole_pages(connection, "few"))
        assert [len(page) for page in whole] == [4, 4, 1]


def test_a_server_that_goes_in_circles_is_not_read_for_ever() -> None:
    """Pages that lead back to one before, and other answers that no Qdrant gives."""

    class Circle:
        address = parse_address("http://localhost")

        def __init__(self, *pages: str) -> None:
            self.pages = list(pages) * 5

        def send(self, *_: object) -> None:
            pass

        def receive(self) -> bytes:
            return self.pages.pop(0).encode()

        def close(self) -> None:
            pass

    def page(points: str, after: str) -> str:
        return f'{{"result":{{"points":[{points}],"next_page_offset":{after}}},"status":"ok","time":0.1}}'

    info = CollectionInfo("c", "http://localhost/collections/c", None, listed=True, has_folder=True)
    for pages in (
        (page('{"id":1,"payload":{}}', "2"), page('{"id":2,"payload":{}}', "1"), page("", "2")),
        (page("", "true"),),
        (page("", '{"a":1}'),),
        (page('{"id":[]}', "null"),),
        (page('{"payload":{}}', "null"),),
        (page('{"id":1,"payload":[1]}', "null"),),
        (page("7", "null"),),
        ('{"result":[]}',),
        ('{"result":{"points":null}}',),
    ):
        read = ServerStore(Circle(*pages)).points(info, keep)  # type: ignore[arg-type]
        assert (
            read.file.problem is not None and "not as a Qdrant server writes it" in read.file.problem.detail
        )
    # text that looks like the end of a page is text
    lure = '"next_page_offset":5},"status":"ok"}'
    text = page(f'{{"id":1,"payload":{{"data":{json.dumps(lure)}}}}}', "null")
    read = ServerStore(Circle(text)).points(info, keep)  # type: ignore[arg-type]
    assert read.file.problem is None and dict(read.rows) == {1: (1, {"data": lure})}


@pytest.mark.parametrize("said", [None, [], {}, {"collections": 5}, {"collections": [7]}])
def test_a_list_of_collections_that_is_none(said: object) -> None:
    class Odd:
        address = parse_address("http://localhost")

        def version(self) -> str:
            return "1.16.3"

        def get(self, path: str) -> object:
            return {"aliases": []} if path == "/aliases" else said

    problem = ServerStore(Odd()).layout().problem  # type: ignore[arg-type]
    assert problem is not None and "not as a Qdrant server writes it" in problem.detail
