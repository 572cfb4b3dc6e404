"""Deleting inside the running agent, through its own `Memory`: the same result, and the agent goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mem0audit
from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.scopes import scope_of
from mem0audit.install.host import this_host
from mem0audit.operations.erase import erase_inside
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store
from tests.operations.test_prune import Transactions, locks_on

Build = Callable[..., MemoryBuilder]


def test_the_agent_goes_on_meanwhile(build: Build) -> None:
    agent = build()
    carols = [agent.add(f"carol SECRET {n}", user_id="carol") for n in range(15)]
    kept = agent.add("alice plays the cello", user_id="alice")
    memory = agent.memory
    parts = memory.embedding_model, memory.llm, memory.vector_store, memory._entity_store
    log_mode = memory.db.connection.execute("PRAGMA secure_delete").fetchone()
    added: list[str] = []

    def go_on() -> None:
        added.extend(agent.add(f"alice adds {n}", user_id="alice") for n in range(5))

    other = threading.Thread(target=go_on)
    other.start()
    done = mem0audit.erase(memory, user_id="carol", only_this_store=True)
    other.join()
    assert (done.memories, done.not_logged, done.overwritten, set(done.ids)) == (15, 0, True, set(carols))
    assert done.left.history_rows == 30
    assert (memory.embedding_model, memory.llm, memory.vector_store, memory._entity_store) == parts
    assert memory.db.connection.execute("PRAGMA secure_delete").fetchone() == log_mode
    assert all(memory.get(i) is None for i in carols)
    assert memory.get(kept)["memory"] == "alice plays the cello"
    assert memory.history(carols[0])[-1]["event"] == "DELETE"
    later = agent.add("alice goes on", user_id="alice")
    agent.close()
    # of what threads add while they meet on one connection, Qdrant's local mode loses some, whoever deletes
    assert {kept, later} <= set(RawPoints(agent.vectors).points()) <= {kept, later, *added}
    assert b"SECRET" not in (agent.vectors / "collection/mem0/storage.sqlite").read_bytes()
    events = [row["event"] for row in RawHistory(agent.history).rows() if row["memory_id"] in carols]
    assert events.count("DELETE") == 15


def test_entities_of_a_running_agent(tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)
    agent = MemoryBuilder(store.folder)
    assert agent.memory._entity_store is None
    done = mem0audit.erase(agent.memory, user_id="carol", only_this_store=True)
    assert agent.memory._entity_store is None
    agent.close()
    assert (done.memories, done.entities) == (8, 3)
    left = RawPoints(store.vectors, "mem0_entities").points()
    assert not any(set(p.payload["linked_memory_ids"]) & set(done.ids) for p in left.values())


def test_a_question_to_a_model_ends_it(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mem0 that would ask its embedder, and swallow what an `except Exception` can."""
    agent = build()
    one = agent.add("carol", user_id="carol")

    def asking(self: Any, memory_id: str) -> None:
        try:
            self.embedding_model.embed("x", "add")
        except Exception:
            return

    monkeypatch.setattr(type(agent.memory), "delete", asking)
    with pytest.raises(Failed, match="asked a model"):
        mem0audit.erase(agent.memory, memory_ids=[one], only_this_store=True)
    monkeypatch.undo()
    assert mem0audit.erase(agent.memory, memory_ids=[one], only_this_store=True).memories == 1


def test_an_async_memory(tmp_path: Path) -> None:
    from mem0 import AsyncMemory

    agent = MemoryBuilder(tmp_path / "install")
    carols = [agent.add(f"carol {n}", user_id="carol") for n in range(5)]
    kept = agent.add("alice", user_id="alice")
    config = agent.config()
    agent.close()

    async def run() -> Any:
        memory = AsyncMemory.from_config(config)
        try:
            return await mem0audit.erase(memory, user_id="carol", only_this_store=True)
        finally:
            memory.vector_store.client.close()
            memory.close()

    done = asyncio.run(run())
    assert (done.memories, set(done.ids), done.not_logged) == (5, set(carols), 0)
    assert set(RawPoints(agent.vectors).points()) == {kept}


def test_what_is_refused(build: Build) -> None:
    agent = build()
    agent.add("alice", user_id="alice")
    for wrong in ({}, {"user_id": "*"}, {"user_id": " "}, {"user_id": "a", "memory_ids": ["b"]}):
        with pytest.raises(UsageProblem):
            mem0audit.erase(agent.memory, **wrong)
    with pytest.raises(UsageProblem, match="no open mem0 Memory"):
        mem0audit.erase(object(), user_id="alice")
    with pytest.raises(CouldNotRead, match="nothing of user bob"):
        mem0audit.erase(agent.memory, user_id="bob", only_this_store=True)
    agent.memory.vector_store.client._client.location = ":memory:"
    with pytest.raises(Refused, match="neither an embedded Qdrant folder"):
        mem0audit.erase(agent.memory, user_id="alice")


def test_no_lock_of_the_agents_own_is_dropped(build: Build, own_home: Path) -> None:
    """While it reads, the agent's other connections are mid-transaction; other stores are looked for too."""
    agent = build()
    ids = [agent.add(f"zora {n}", user_id="zora-of-the-locks") for n in range(2)]
    agent.add("alice", user_id="alice")
    paths = [agent.history, *agent.vectors.glob("collection/*/storage.sqlite")]
    held = Transactions(paths, again="reading both stores again")
    done = erase_inside(
        agent.memory, this_host(), scope=scope_of("zora-of-the-locks", None, None), progress=held
    )
    assert held.lost == [] and locks_on(paths) == held.wanted
    held.end()
    assert set(done.ids) == set(ids) and "looking at other stores" in held.seen


@pytest.mark.parametrize("names", [("mem0", "mem0_entities"), ("mem0_entities",)])
def test_a_deletion_that_another_thread_made_qdrant_take_back(tmp_path: Path, names: tuple[str, ...]) -> None:
    """The client knows the point no more, its row is still on the disk, and mem0 would call it not found."""
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)
    agent = MemoryBuilder(store.folder)
    collections = agent.memory.vector_store.client._client.collections
    assert agent.memory.entity_store is not None
    lost: list[Any] = []
    for name in names:
        storage = collections[name].storage
        really = storage.delete

        def loses_the_first(point_id: Any, name: str = name, really: Any = really) -> None:
            if name in lost:
                really(point_id)
            else:
                lost.append(name)

        storage.delete = loses_the_first
    done = mem0audit.erase(agent.memory, user_id="carol", only_this_store=True)
    agent.close()
    assert lost == list(names)
    assert (done.memories, done.entities, done.not_logged) == (8, 3, 0)
    assert not set(RawPoints(store.vectors).points()) & set(done.ids)
    left = RawPoints(store.vectors, "mem0_entities").points()
    assert not any(set(p.payload["linked_memory_ids"]) & set(done.ids) for p in left.values())
    events = [row["event"] for row in RawHistory(store.history).rows() if row["memory_id"] in done.ids]
    assert events.count("DELETE") == 8
