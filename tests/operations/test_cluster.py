"""Snapshots of a collection that is spread over a cluster of three real servers, and their way back."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import RECORD, erasures_text, make_erasure
from mem0audit.core.errors import Failed, Mem0auditError, Refused, ServerProblem
from mem0audit.core.model import Install
from mem0audit.core.restore import Restored
from mem0audit.core.snapshot import Taken, parse_manifest
from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.leftonserver import LEFT
from mem0audit.operations.serverrestore import apply_server_restore, plan_server_restore
from mem0audit.operations.serversnapshot import create_of_server, plan_server_create
from mem0audit.operations.verify import list_snapshots, verify
from mem0audit.stores import files, serversnapshots
from mem0audit.stores.server import connection_to
from tests.operations.test_snapshot import in_child, killed_at
from tests.qdrant_server import QdrantCluster, QdrantServer
from tests.rules.onserver import make_collection

pytestmark = pytest.mark.usefixtures("quick")

MANY = 60
MOST = 100
SETTINGS: dict[str, Any] = {
    "hnsw_config": {"m": 8, "ef_construct": 64},
    "optimizers_config": {"indexing_threshold": 777},
    "quantization_config": {"scalar": {"type": "int8", "always_ram": True}},
    "strict_mode_config": {"enabled": True, "max_query_limit": MOST},
    "metadata": {"team": "a"},
}


def memory_id(number: int) -> str:
    return f"{number:08d}-0000-4000-8000-000000000000"


class Live:
    """An install whose memories are spread over the cluster: six shards, two copies of each; entities in two."""

    def __init__(self, cluster: QdrantCluster, folder: Path) -> None:
        self.cluster = cluster
        folder.mkdir()
        self.log = folder / "history.db"
        self.snapshots = folder / "snapshots"
        with closing(sqlite3.connect(self.log)) as log:
            log.execute(
                "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, "
                "event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
            )
        cluster.drop(("mem0", "mem0_entities"))
        make_collection(cluster[0], "mem0", shard_number=6, replication_factor=2, **SETTINGS)
        make_collection(cluster[0], "mem0_entities", indexes=False, shard_number=2, replication_factor=2)
        index = {"field_name": "run_id", "field_schema": {"type": "keyword", "is_tenant": True}}
        cluster[0].result("PUT", "/collections/mem0_entities/index?wait=true", index)
        for name in ("mem0", "mem0_entities"):
            cluster.settle(name)
        self.write(0, MANY)
        point = {"id": memory_id(0), "vector": [1.0] * 8}
        payload = {"data": "thing", "linked_memory_ids": [memory_id(1)]}
        body = {"points": [{**point, "payload": payload}]}
        cluster[0].result("PUT", "/collections/mem0_entities/points?wait=true", body)
        self.were = self._there()

    def write(self, first: int, count: int) -> None:
        points = []
        with closing(sqlite3.connect(self.log, isolation_level=None)) as log:
            log.execute("BEGIN")
            for number in range(first, first + count):
                text = f"memory {number}"
                vector = {"": [1.0] * 7 + [float(number)], "bm25": {"indices": [number], "values": [1.0]}}
                payload = {"data": text, "user_id": "alice", "hash": text}
                points.append({"id": memory_id(number), "vector": vector, "payload": payload})
                log.execute(
                    "INSERT INTO history (id, memory_id, new_memory, event, created_at, is_deleted) "
                    "VALUES (?, ?, ?, 'ADD', '2026-11-30T00:00:00+00:00', 0)",
                    (f"row {number}", memory_id(number), text),
                )
            log.execute("COMMIT")
        self.cluster[0].result("PUT", "/collections/mem0/points?wait=true", {"points": points})

    def install(
        self, *, first: int = 0, nodes: tuple[int, ...] = (1, 2), collection: str | None = None
    ) -> Install:
        urls = self.cluster.urls
        flags = Flags(
            history=str(self.log),
            qdrant_url=urls[first],
            nodes=tuple(urls[node] for node in nodes),
            collection=collection,
        )
        return locate(flags, this_host())

    def take(self, install: Install | None = None) -> Taken:
        host = this_host()
        plan = plan_server_create(install or self.install(), host, str(self.snapshots))
        return create_of_server(plan, host, ledger=False)

    def restore(self, snapshot: str, install: Install | None = None, to: Path | None = None) -> Restored:
        host, install = this_host(), install or self.install()
        plan = plan_server_restore(snapshot, host, install, to=None if to is None else str(to), ledger=False)
        return apply_server_restore(plan, host, install)

    def names(self) -> list[str]:
        return [one.name for one in list_snapshots(str(self.snapshots))] if self.snapshots.is_dir() else []

    def state(self, memories: str = "mem0", log: Path | None = None) -> tuple[Any, ...]:
        """Everything in both stores, as every node has it of every copy: rows, points with their vectors, indexes."""
        with closing(sqlite3.connect(log or self.log)) as file:
            found: list[Any] = [file.execute("SELECT * FROM history ORDER BY rowid").fetchall()]
        for name in (memories, f"{memories}_entities"):
            body = {"limit": MOST, "with_payload": True, "with_vector": True}
            each = [
                sorted(
                    node.result("POST", f"/collections/{name}/points/scroll?consistency=all", body)["points"],
                    key=lambda p: str(p["id"]),
                )
                for node in self.cluster.nodes
            ]
            assert each[0] == each[1] == each[2]
            info = self.cluster[0].result("GET", f"/collections/{name}")
            indexes = {field: {**said, "points": None} for field, said in info["payload_schema"].items()}
            found += [each[0], info["config"], indexes]
        return tuple(found)

    def left(self) -> list[str]:
        """What lies on the nodes that is none of the install's: snapshots of shards, scratch collections. What another
        test left there is not counted."""
        return sorted(self._there() - self.were)

    def collections_left(self) -> set[str]:
        """Collections that are none of the install's."""
        return self.cluster[0].collections() - {"mem0", "mem0_entities"}

    def _there(self) -> set[str]:
        """Collections, and what lies in the nodes' own folders of snapshots, be it listed or not."""
        nodes = self.cluster.nodes
        found = [one for node in nodes for one in node.snapshots.rglob("*") if one.is_file()]
        kept = {str(one) for one in found if one.suffix != ".checksum"}
        return kept | self.collections_left()


@pytest.fixture
def live(cluster: QdrantCluster, tmp_path: Path) -> Live:
    return Live(cluster, tmp_path / "live")


@pytest.mark.thorough
def test_every_shard_is_in_it_and_comes_back_into_new_collections(
    live: Live, qdrant: QdrantServer, tmp_path: Path
) -> None:
    before = live.state()
    done = live.take()
    manifest = done.manifest
    assert (manifest.settled, done.notes) == (True, ())
    assert manifest.counts == {"memories": MANY, "entities": 1, "changes": MANY, "live": MANY}
    assert manifest.server is not None
    memories, entities = manifest.server.collections
    assert [one.shard for one in memories.shards] == list(range(6)) and len(entities.shards) == 2
    assert {one.path for one in memories.shards} == {f"server/mem0/shard-{n}.snapshot" for n in range(6)}
    assert parse_manifest((Path(done.path) / "manifest.json").read_bytes()) == manifest
    assert live.left() == []
    assert live.state() == before
    assert verify(done.path).good
    # on a server of one node
    host = this_host()
    verdict = verify(done.path, "deep", server=(locate(Flags(qdrant_url=qdrant.url), host), host))
    assert verdict.good, verdict
    assert live.left() == [] and qdrant.collections() == set()
    to = tmp_path / "new"
    restored = live.restore(done.path, live.install(first=1, nodes=(0, 2), collection="again"), to)
    assert restored.collection == "again" and not restored.between
    assert live.state("again", to / "history.db") == before
    assert live.state() == before


@pytest.mark.thorough
def test_who_was_erased_since_is_erased_in_a_copy(live: Live) -> None:
    """Of every copy of every shard; the others are as they were, and nothing is left on any node."""
    before, path, gone = live.state(), live.take().path, {memory_id(1), memory_id(3)}

    def held(files: Iterable[Path]) -> set[bytes]:
        return {one for file in files for one in re.findall(rb"memory [1-4](?!\d)", file.read_bytes())}

    assert {b"memory 1", b"memory 3"} <= held(Path(path).rglob("*.snapshot"))
    record = erasures_text((make_erasure(this_host().now + 60, "0" * 32, None, gone),))
    (live.snapshots / RECORD).write_text(record)
    done = live.restore(path)
    assert done.erased is not None and (done.erased.memories, done.erased.entities) == (2, 1)
    now = live.state()
    assert now[1] == [point for point in before[1] if point["id"] not in gone]
    assert (now[2:4], now[4], now[5:]) == (before[2:4], [], before[5:])
    assert live.left() == []
    assert not [p for node in live.cluster.nodes for p in node.snapshots.rglob("*scratch*.snapshot")]
    after = live.take()
    assert after.manifest.counts["memories"] == MANY - 2
    assert held(Path(after.path).rglob("*.snapshot")) == {b"memory 2", b"memory 4"}


@pytest.mark.thorough
def test_in_place(live: Live) -> None:
    before = live.state()
    path = live.take().path
    host = this_host()
    verdict = verify(path, "deep", server=(live.install(first=1, nodes=(2, 0)), host))
    assert verdict.good and live.left() == []
    live.write(MANY, 7)
    live.cluster[0].result(
        "POST", "/collections/mem0/points/delete?wait=true", {"points": [memory_id(3), memory_id(9)]}
    )
    later = live.state()
    done = live.restore(path)
    assert not done.between and done.kept is not None
    assert live.state() == before
    assert live.left() == []
    live.restore(done.kept)
    assert live.state() == later


def test_what_one_node_has_is_not_published_and_nodes_of_another_cluster_are_refused(
    live: Live, qdrant: QdrantServer
) -> None:
    with pytest.raises(Refused, match="of the shards of mem0 lie on other nodes") as refused:
        live.take(live.install(nodes=()))
    assert "--node URL" in str(refused.value.hint)
    make_collection(qdrant, "mem0")
    flags = Flags(history=str(live.log), qdrant_url=live.cluster.urls[0], nodes=(qdrant.url,))
    with pytest.raises(Refused, match="is no node of the cluster"):
        live.take(locate(flags, this_host()))
    assert live.names() == []
    path = live.take(live.install(nodes=(1, 2))).path
    with pytest.raises(Refused, match="of its other nodes 1 are not named"):
        live.restore(path, live.install(nodes=(1,)))


# --- A node goes, and comes back -----------------------------------------------------------------------------


def at(name: str, do: Callable[[], None], times: int = 1) -> Callable[[str], None]:
    """A `files.step` that does it at the so many-th step of that name."""
    seen: list[str] = []

    def step(this: str) -> None:
        if this == name:
            seen.append(this)
            if len(seen) == times:
                do()

    return step


def back(live: Live) -> None:
    live.cluster.start()
    for name in ("mem0", "mem0_entities"):
        live.cluster.settle(name)


@pytest.mark.thorough
def test_a_node_is_away_while_a_snapshot_is_taken(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = live.cluster
    # away from the start: every shard has a copy elsewhere, and the snapshot is whole and says so
    cluster[2].stop()
    done = live.take()
    assert done.manifest.settled and done.manifest.counts["memories"] == MANY
    assert any("not every copy of mem0 answers" in note for note in done.notes)
    # two are: shards are missing
    cluster[1].stop()
    with pytest.raises(Mem0auditError):
        live.take()
    assert len(live.names()) == 1
    back(live)
    # one goes in the middle: nothing is published, nothing stays but what is said
    with monkeypatch.context() as patch:
        patch.setattr(files, "step", at("server.snapshot", cluster[1].kill, 6))
        with pytest.raises(Failed, match="nothing was taken"):
            live.take()
    assert len(live.names()) == 1
    back(live)
    assert live.left()
    done = live.take()
    assert done.manifest.settled and done.manifest.server is not None
    assert [one.points for one in done.manifest.server.collections] == [MANY, 1]
    assert len(live.names()) == 2
    assert live.left() == [] and not (live.snapshots / LEFT).exists()


@pytest.mark.thorough
def test_a_frozen_node_is_waited_for_once(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serversnapshots, "NODE_S", 0.3)
    live.cluster[2].freeze()
    try:
        with connection_to(live.install()) as connection:
            began = time.monotonic()
            found = [serversnapshots.described(connection, name) for name in ("mem0", "mem0_entities") * 5]
            took = time.monotonic() - began
            with pytest.raises(ServerProblem, match="no answer in time"):
                serversnapshots.peers_unnamed(connection)
    finally:
        live.cluster[2].thaw()
    assert all(one is not None and not one.elsewhere and len(one.silent) == 1 for one in found)
    assert took < 2 * serversnapshots.NODE_S + 1.5
    back(live)


@pytest.mark.thorough
def test_a_kill_while_a_snapshot_is_taken_leaves_nothing_on_any_node(live: Live) -> None:
    def work() -> Taken:
        files.step = at("server.taken", lambda: os.kill(os.getpid(), signal.SIGKILL), 5)
        return live.take()

    assert in_child(lambda: 0 if work() else 1) == -signal.SIGKILL
    assert live.names() == [] and len(live.left()) == 5
    done = live.take()
    assert done.manifest.settled and live.left() == [] and len(live.names()) == 1


@pytest.mark.thorough
def test_a_node_is_away_at_a_restore(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = live.cluster
    path = live.take().path
    then = live.state()
    live.write(MANY, 5)
    before = live.state()
    cluster[2].stop()
    for to in (None, tmp_path / "new"):
        with pytest.raises(Mem0auditError, match="connection refused"):
            live.restore(path, live.install(collection=None if to is None else "new"), to)
    back(live)
    assert live.state() == before and live.left() == []
    # into new collections, and a node dies in the middle
    with monkeypatch.context() as patch:
        patch.setattr(files, "step", at("server.put", cluster[2].kill, 4))
        with pytest.raises(Failed, match="nothing was restored"):
            live.restore(path, live.install(collection="new"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    back(live)
    assert live.state() == before and live.left() == []
    # in place, and a node dies when half of the shards are put over
    scratch = 16
    with monkeypatch.context() as patch:
        patch.setattr(files, "step", at("server.put", cluster[2].kill, scratch + 5))
        with pytest.raises(Failed, match="neither finished nor taken back"):
            live.restore(path)
    back(live)
    done = live.restore(path)
    assert done.resumed and not done.between
    assert live.state() == then and live.left() == []


@pytest.mark.thorough
@pytest.mark.parametrize("times", [24, 32])
def test_a_kill_at_a_restore_in_place_is_finished(live: Live, times: int) -> None:
    path = live.take().path
    then = live.state()
    live.write(MANY, 5)

    def work() -> Restored:
        files.step = at("server.put.done", lambda: os.kill(os.getpid(), signal.SIGKILL), times)
        return live.restore(path)

    assert in_child(lambda: 0 if work() else 1) == -signal.SIGKILL
    done = live.restore(path)
    assert done.resumed and live.state() == then and live.left() == []


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["server.make", "server.put.done"])
def test_a_kill_at_a_restore_into_new_collections(live: Live, tmp_path: Path, step: str) -> None:
    path = live.take().path
    before = live.state()
    install = live.install(collection="new")
    assert killed_at(step, lambda: live.restore(path, install, tmp_path / "new")) == -signal.SIGKILL
    assert not (tmp_path / "new").exists() and live.state() == before
    assert (step == "server.put.done") == (live.collections_left() == {"new"})
    done = live.restore(path, install, tmp_path / "new")
    assert not done.between and live.state("new", tmp_path / "new/history.db") == before
    assert live.collections_left() == {"new", "new_entities"}
