"""Under which mem0 the memories of an install are changed, and when not at all."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.errors import Failed, Refused
from mem0audit.core.model import Install, Origin
from mem0audit.install.host import Host, this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.mem0door import find_door, open_door
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.ledger import KnownAgent
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")


@pytest.fixture
def host(own_home: Path) -> Host:
    return this_host()


def install_at(folder: Path, python: str | None = None) -> Install:
    return Install(
        Origin(str(folder / "mem0_dir" / "history.db"), "--history"),
        Origin(str(folder / "qdrant"), "--qdrant-path"),
        Origin("mem0", "mem0's default"),
        Origin(str(folder / "mem0_dir"), "MEM0_DIR"),
        agent_python=python,
    )


PACKAGES = "lib/python{}.{}/site-packages".format(*sys.version_info)


def environment_with(folder: Path, mem0: str, client: str) -> str:
    """A Python whose files say that it has these versions; it has none of it."""
    packages = folder / PACKAGES
    for name, version in (("mem0ai", mem0), ("qdrant_client", client)):
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text(f"version = {sys.version.split()[0]}\n")
    return str(folder / "bin" / "python")


def test_ours_only_where_the_format_is_ours(tmp_path: Path, host: Host) -> None:
    ours = find_door(install_at(copy_store("2.2.1-nlp", tmp_path).folder), host)
    assert (ours.own, ours.interpreter, ours.mem0, ours.dims) == (True, sys.executable, "2.2.1", 8)
    for store, why in (
        ("1.0.11", "made by mem0 1.x"),
        ("0.1.40", "not made by qdrant-client 1.20.0"),
    ):
        with pytest.raises(Refused, match=why) as caught:
            find_door(install_at(copy_store(store, tmp_path).folder), host)
        assert "--agent-python" in str(caught.value.hint)
    with pytest.raises(Refused, match="no collection yet"):
        find_door(install_at(tmp_path / "nothing"), host)


@pytest.mark.parametrize(
    ("mem0", "client", "why"),
    [
        ("1.0.7", "1.20.0", "under 1.0.8 or later only"),
        ("2.3.0", "1.20.0", "tried with 1.0.8 to 2.2.x"),
        ("2.0.6", "1.15.1", "was written by qdrant-client 1.20.0 or later"),
    ],
)
def test_a_mem0_that_may_not(mem0: str, client: str, why: str, tmp_path: Path, host: Host) -> None:
    store = copy_store("2.2.1", tmp_path).folder
    python = environment_with(tmp_path / "venv", mem0, client)
    with pytest.raises(Refused, match=why):
        find_door(install_at(store, python), host)


def test_the_agents_own_is_remembered(tmp_path: Path, host: Host) -> None:
    store = copy_store("1.0.11", tmp_path).folder
    python = environment_with(tmp_path / "venv", "1.0.11", "1.19.0")
    install = install_at(store)
    with ledgers.opened(install, host, make=True) as book:
        assert not hasattr(book, "why")
        book.note_agent(KnownAgent(python, "1.0.10", "1.19.0", here=True, seen_at=1.0))  # type: ignore[union-attr]
    # its files are read anew: it was upgraded since; and 1.19.0 cannot read what 1.20.0 wrote
    with pytest.raises(Refused, match=r"mem0 1.0.11 would open it with 1.19.0"):
        find_door(install, host)
    # another one that the agent's client could not read after is refused, by name
    with pytest.raises(Refused, match=r"has qdrant-client 1.20.0, the agent's is 1.19.0"):
        find_door(install_at(store, sys.executable), host)
    assert find_door(install_at(store, sys.executable), host, ledger=False).mem0 == "2.2.1"
    with ledgers.opened(install, host) as book:
        book.note_agent(KnownAgent(python, "1.0.11", "1.20.0", here=False, seen_at=2.0))  # type: ignore[union-attr]
    with pytest.raises(Refused, match="lies in another container"):
        find_door(install, host)


def test_what_its_files_say_is_what_it_must_import(tmp_path: Path, host: Host) -> None:
    store = copy_store("2.2.1", tmp_path).folder
    door = replace(find_door(install_at(store), host), mem0="2.2.0")
    before = RawPoints(store / "qdrant").points()
    with pytest.raises(Refused, match=r"would import mem0 2\.2\.1"), open_door(door, host):
        pass
    assert RawPoints(store / "qdrant").points() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs things for others")
def test_root_runs_nothing_that_others_can_write(tmp_path: Path, host: Host) -> None:
    store = copy_store("2.2.1", tmp_path).folder
    python = environment_with(tmp_path / "venv", "2.2.1", "1.20.0")
    assert find_door(install_at(store, python), host).user is None
    loose = tmp_path / "venv" / PACKAGES / "mem0ai-2.2.1.dist-info"
    loose.chmod(0o777)
    with pytest.raises(Refused, match="can be changed by other users than root"):
        find_door(install_at(store, python), host)
    loose.chmod(0o755)
    os.chown(tmp_path / "venv" / "bin", 4321, -1)
    with pytest.raises(Refused, match="can be changed by other users than root"):
        find_door(install_at(store, python), host)
    for path in (store, *store.rglob("*")):
        os.chown(path, 4321, -1)
    assert find_door(install_at(store, python), host).user == 4321
    os.chown(store / "mem0_dir" / "history.db", 4322, -1)
    with pytest.raises(Refused, match="belong to different users"):
        find_door(install_at(store, python), host)


def test_changes_by_id_and_no_model(tmp_path: Path, host: Host) -> None:
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True).folder
    install = install_at(store)
    points = RawPoints(store / "qdrant").points()
    carols = {i for i, p in points.items() if p.payload["user_id"] == "carol"}
    entities = RawPoints(store / "qdrant", "mem0_entities").points()
    meta = (store / "qdrant" / "meta.json").read_bytes()
    embedded = EmbeddedStore(str(store / "qdrant"))
    info = next(c for c in embedded.layout().collections if c.name == "mem0")
    kept = next(i for i in points if i not in carols)
    vectors = embedded.vectors(info, kept)
    assert vectors is not None and vectors.dense is not None and len(vectors.dense) == 8
    with open_door(find_door(install, host), host) as memory:
        assert memory.overwrites
        assert [memory.delete(i) for i in sorted(carols)] == [True] * len(carols)
        assert not memory.delete(min(carols))
        gone = 0
        for entity, point in entities.items():
            links = set(point.payload["linked_memory_ids"])
            if links & carols:
                said = memory.unlink(entity, carols)
                assert (said.links, said.deleted) == (len(links & carols), links <= carols)
                gone += said.deleted
        memory.rewrite(kept, points[kept].payload["data"], vectors, expiration_date="2031-01-01")
        with pytest.raises(Failed, match="asked an embedder at add"):
            memory.add("a text that would need a vector", {"user_id": "carol"})
    after = RawPoints(store / "qdrant").points()
    assert set(after) == set(points) - carols
    assert {i: p for i, p in after.items() if i != kept} == {
        i: p for i, p in points.items() if i != kept and i not in carols
    }
    assert embedded.vectors(info, kept) == vectors
    assert after[kept].payload["expiration_date"] == "2031-01-01"
    left = RawPoints(store / "qdrant", "mem0_entities").points()
    assert gone and set(left) < set(entities)
    assert not any(set(p.payload["linked_memory_ids"]) & carols for p in left.values())
    assert (store / "qdrant" / "meta.json").read_bytes() == meta


def test_the_keyword_vector_survives_a_rewrite(tmp_path: Path, host: Host) -> None:
    from qdrant_client import models

    agent = MemoryBuilder(tmp_path)
    memory_id = agent.add("Alice lives in Lisbon", user_id="alice")
    client = agent.memory.vector_store.client
    sparse = models.SparseVector(indices=[3, 1, 70000], values=[0.25, 1.5, 0.1])
    point = client.retrieve("mem0", [memory_id], with_vectors=True)[0]
    client.upsert(
        "mem0",
        [models.PointStruct(id=memory_id, vector={"": [0.1] * 8, "bm25": sparse}, payload=point.payload)],
    )
    agent.close()
    embedded = EmbeddedStore(str(tmp_path / "qdrant"))
    info = embedded.layout().collections[0]
    before = embedded.vectors(info, memory_id)
    assert before is not None and before.keyword is not None and len(before.keyword[0]) == 3
    with open_door(find_door(install_at(tmp_path), host), host) as memory:
        memory.rewrite(memory_id, "Alice lives in Lisbon", before)
    assert embedded.vectors(info, memory_id) == before
    assert len(agent_history(tmp_path, memory_id)) == 2


def agent_history(folder: Path, memory_id: str) -> list[object]:
    rows = RawHistory(folder / "mem0_dir" / "history.db").rows()
    return [row for row in rows if row["memory_id"] == memory_id]
