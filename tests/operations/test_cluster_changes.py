"""Moving to a cluster, and deleting and repairing there: as on one server, whichever node is asked."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.server import parse_address
from mem0audit.install.host import this_host
from mem0audit.operations.repair import apply_repair, plan_repair
from mem0audit.operations.residue import residue
from tests.builders import copy_store
from tests.operations.test_repair import ALL, Built, built
from tests.operations.test_server_erase import CAROL, delete, of_carol, served
from tests.operations.test_server_repair import served as served_with_faults
from tests.operations.test_snapshot import scrolled
from tests.operations.test_toserver import check_same, move, on_server
from tests.qdrant_server import QdrantCluster
from tests.rules.onserver import make_collection

__all__ = ["built"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")


def copies(cluster: QdrantCluster, name: str) -> int:
    said = cluster[0].result("GET", f"/collections/{name}/cluster")
    return len(said["local_shards"]) + len(said["remote_shards"])


@pytest.mark.thorough
def test_a_move_spreads_the_points_as_the_cluster_does(cluster: QdrantCluster, tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path)
    points = scrolled(store.vectors, tmp_path / "scrolled")
    done = move(store, parse_address(cluster[1].url))
    assert done.written == {"mem0": 19, "mem0_entities": 10}
    assert (
        copies(cluster, "mem0") == 3
    )  # a shard a node, as the cluster has it for a collection that says nothing
    for node in cluster.nodes:
        check_same(node, points)


def test_a_move_into_collections_made_with_copies(cluster: QdrantCluster, tmp_path: Path) -> None:
    """Who wants more than one copy makes the collections before: they are empty, and taken as they are."""
    store = copy_store("2.2.1-nlp", tmp_path)
    points = scrolled(store.vectors, tmp_path / "scrolled")
    for name in ("mem0", "mem0_entities"):
        make_collection(cluster[0], name, shard_number=6, replication_factor=2)
        cluster.settle(name)
    move(store, parse_address(cluster[2].url))
    assert copies(cluster, "mem0") == 12
    for node in cluster.nodes:
        check_same(node, points)


@pytest.mark.thorough
def test_a_deletion_reaches_every_copy(cluster: QdrantCluster, tmp_path: Path) -> None:
    for name in ("mem0", "mem0_entities"):
        make_collection(cluster[0], name, shard_number=6, replication_factor=2)
        cluster.settle(name)
    _store, install = served(cluster[0], tmp_path)
    before = on_server(cluster[1], "mem0")
    carols = of_carol(before)
    done = delete(install)
    assert done.memories == len(carols) > 0
    for node in cluster.nodes:
        after = on_server(node, "mem0")
        assert after == {i: point for i, point in before.items() if i not in carols}
    # each node keeps what it keeps, and lists its own snapshots
    said = cluster[2].result("GET", "/collections/mem0/cluster")["local_shards"][0]["shard_id"]
    cluster[2].result("POST", f"/collections/mem0/shards/{said}/snapshots")
    found = residue(install, this_host(), scope=CAROL)
    assert "2 other nodes of the cluster" in [one.what for one in found.not_searched]
    found = residue(replace(install, nodes=tuple(cluster.urls[1:])), this_host(), scope=CAROL)
    (copy,) = [one for one in found.copies if one.kind == "snapshot on the server"]
    assert copy.path.startswith(f"{cluster[2].url}/collections/mem0/shards/{said}/snapshots/")
    assert {f"the files of {url}" for url in cluster.urls} < {one.what for one in found.not_searched}


@pytest.mark.thorough
def test_a_deletion_with_a_node_away(cluster: QdrantCluster, tmp_path: Path) -> None:
    """Every shard has another copy: it is done, and the node that comes back does not bring them back. Where a shard
    has none, it ends in one line, and the same command finishes it."""
    for name in ("mem0", "mem0_entities"):
        make_collection(cluster[0], name, shard_number=6, replication_factor=2)
        cluster.settle(name)
    _store, install = served(cluster[0], tmp_path)
    carols = of_carol(on_server(cluster[0], "mem0"))
    cluster[2].stop()
    done = delete(install)
    assert done.memories == len(carols)
    cluster.start()
    for name in ("mem0", "mem0_entities"):
        cluster.settle(name)
    for node in cluster.nodes:
        assert not of_carol(on_server(node, "mem0"))


@pytest.mark.thorough
def test_repair(built: Built, cluster: QdrantCluster, tmp_path: Path) -> None:
    _, install = served_with_faults(built, cluster[0], tmp_path / "install")
    cluster.settle("mem0")
    to = str(tmp_path / "snapshots")
    alone = plan_repair(install, this_host(), ALL, folder=to)
    assert alone.blocked is not None and "lie on other nodes of its cluster only" in alone.blocked[0]
    install = replace(install, nodes=tuple(cluster.urls[1:]))
    plan = plan_repair(install, this_host(), ALL, folder=to)
    assert plan.blocked is None and plan.todo.steps
    done = apply_repair(plan, this_host()).changed
    assert not done.remaining and done.deleted == len(plan.todo.of("delete"))
    assert done.snapshot is not None and list(Path(done.snapshot).glob("server/mem0/shard-*"))
    assert not plan_repair(install, this_host(), ALL, folder=to).todo.steps
