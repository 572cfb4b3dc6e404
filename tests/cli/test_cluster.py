"""The commands as a user types them, where the points are spread over a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import copy_store
from tests.cli.program import Ran, call
from tests.qdrant_server import QdrantCluster
from tests.rules.onserver import load


@pytest.mark.thorough
def test_from_one_node_to_the_next(cluster: QdrantCluster, tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path / "store")
    load(store.vectors, cluster[0], shard_number=3, replication_factor=1)
    for each in ("mem0", "mem0_entities"):
        cluster.settle(each)
    urls = cluster.urls
    named = ("--history", str(store.history), "--qdrant-url", urls[0])
    others = ("--node", urls[1], "--node", urls[2])
    folder = str(tmp_path / "snapshots")

    def run(*words: str, code: int = 0) -> Ran:
        done = call(tmp_path, *words)
        assert done.code == code, (done.out, done.err)
        return done

    assert json.loads(run("users", *named, "--format", "json").out)
    memory = next(iter(cluster[0].result("POST", "/collections/mem0/points/scroll", {"limit": 1})["points"]))[
        "id"
    ]
    assert str(memory) in run("show", str(memory), *named).out
    assert urls[0] in run("status", *named).out
    refused = run("snapshot", "create", *named, "--to", folder, code=4)
    assert "of the shards of mem0 lie on other nodes" in refused.err and "--node URL" in refused.err
    assert "server/mem0/" in run("snapshot", "create", *named, *others, "--to", folder, "--dry-run").out
    taken = json.loads(run("snapshot", "create", *named, *others, "--to", folder, "--format", "json").out)
    assert len(list(Path(taken["path"]).glob("server/mem0/shard-*.snapshot"))) == 3
    assert "mem0: 19 points" in run("snapshot", "show", Path(taken["path"]).name, "--to", folder).out
    run("snapshot", "verify", "--deep", "--to", folder, "--qdrant-url", urls[2], *others[:2], code=4)
    run("snapshot", "verify", "--deep", "--to", folder, "--qdrant-url", urls[0], *others)
    name = Path(taken["path"]).name
    into = "snapshot", "restore", name, "--from", folder, "--to", str(tmp_path / "new"), *others
    assert "made on the server, 19 points" in run(*into, "--dry-run").out
    run(*into)
    assert any(each.startswith("mem0-20") for each in cluster[1].collections())
    run("snapshot", "restore", name, "--from", folder, *named, *others, "--in-place", "--yes")
    # a node that is away
    cluster[2].stop()
    run("audit", *named, "--select", "D,Q", code=3)
    run("users", *named, code=3)
    away = "snapshot", "create", *named, *others, "--to", folder
    assert "shards of mem0 do not answer: every node that has a copy is away" in run(*away, code=3).err
    assert len(list(Path(folder).glob("20*"))) == 2
