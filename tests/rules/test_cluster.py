"""A cluster of three real servers, looked at through one of them: what is missing is said, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.model import Report
from mem0audit.core.server import ServerRead
from tests.builders import copy_store
from tests.qdrant_server import QdrantCluster, QdrantServer
from tests.rules.onserver import load, server_report
from tests.rules.support import gaps, located, of, report_of

SELECT = ("Q", "D", "H", "E", "C", "L106", "I")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return copy_store("2.2.1-nlp", tmp_path)


def spread(store: Any, cluster: QdrantCluster, replicas: int = 2) -> None:
    load(store.vectors, cluster[0], shard_number=6, replication_factor=replicas)
    for name in cluster[0].collections():
        cluster.settle(name)


def report(store: Any, node: QdrantServer) -> Report:
    return server_report(located(store), node.url, select=SELECT)


def test_what_a_folder_has_is_found_through_every_node(store: Any, cluster: QdrantCluster) -> None:
    spread(store, cluster)
    groups = {"D", "H", "E", "C", "Q"}
    wanted = sorted(
        (f.code, f.memory_id) for f in report_of(store, select=SELECT).findings if f.code[0] in groups
    )
    for node in cluster.nodes:
        found = report(store, node)
        assert not gaps(found)
        assert sorted((f.code, f.memory_id) for f in found.findings if f.code[0] in groups) == wanted


@pytest.mark.thorough
def test_every_shard_as_of_one_instant(store: Any, cluster: QdrantCluster) -> None:
    spread(store, cluster)
    how = ServerRead(vectors=True, instant=True)
    groups = {"D", "H", "E", "C", "Q"}
    wanted = sorted(
        (f.code, f.memory_id) for f in report_of(store, select=SELECT).findings if f.code[0] in groups
    )
    install = dataclasses.replace(located(store), nodes=(cluster.urls[2],))
    found = server_report(install, cluster[0].url, select=SELECT, how=how)
    assert not gaps(found) and "I210" in found.checked
    assert sorted((f.code, f.memory_id) for f in found.findings if f.code[0] in groups) == wanted
    assert ("one instant", "of mem0, mem0_entities each shard is read as of an instant of its own") in [
        (n.what, n.why) for n in found.not_checked
    ]
    # no node has all of them
    found = server_report(located(store), cluster[0].url, select=SELECT, how=how)
    assert any("only on nodes of the cluster that are not named with --node" in why for _, why in gaps(found))
    assert not of(found, "D302") and not of(found, "Q951")


@pytest.mark.thorough
def test_a_node_that_is_down_is_said_and_no_memory_is_called_lost(store: Any, cluster: QdrantCluster) -> None:
    spread(store, cluster)
    before = [(f.code, f.memory_id) for f in report(store, cluster[1]).findings if f.code != "Q952"]
    cluster[2].stop()
    for node in (cluster[0], cluster[1]):  # the one that leads, and one that does not
        found = report(store, node)
        assert {f.path and f.path.rpartition("/")[2] for f in of(found, "Q952")} == {"mem0", "mem0_entities"}
        assert all("a copy does not answer" in f.evidence for f in of(found, "Q952"))
        assert not gaps(found)  # every shard has a copy on another node
        assert [(f.code, f.memory_id) for f in found.findings if f.code != "Q952"] == before
    # a write finds out, and the cluster counts its copies as dead
    point = {"id": 7, "vector": {}, "payload": {"data": "x", "user_id": "alice"}}
    many = [{**point, "id": number} for number in range(7, 40)]
    cluster[0].result("PUT", "/collections/mem0/points?wait=true", {"points": many})
    faults = next(f for f in of(report(store, cluster[1]), "Q952") if str(f.path).endswith("mem0"))
    assert "Dead" in faults.evidence["copies that are not active"]
    cluster[0].result("POST", "/collections/mem0/points/delete?wait=true", {"points": list(range(7, 40))})
    # too many are down: parts of the collection are nowhere
    cluster[1].stop()
    found = report(store, cluster[0])
    assert gaps(found) and not of(found, "D301") and not of(found, "D302") and not of(found, "Q951")
    # all is well again when they are back
    cluster.start()
    for name in ("mem0", "mem0_entities"):
        cluster.settle(name)
    found = report(store, cluster[1])
    assert not gaps(found) and [(f.code, f.memory_id) for f in found.findings] == before


def test_fewer_copies_than_asked(store: Any, cluster: QdrantCluster) -> None:
    load(store.vectors, cluster[0], shard_number=2, replication_factor=5)
    found = report(store, cluster[1])
    assert not gaps(found)
    faults = {str(f.path).rpartition("/")[2]: f.evidence for f in of(found, "Q952")}
    assert set(faults) == {"mem0", "mem0_entities"}
    assert faults["mem0"]["copies wanted"] == 5 and "shard 0 has 3" in faults["mem0"]["fewer than that"]
