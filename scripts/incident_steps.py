"""What an agent did, step by step, until its stores were in a given incident.

Run by make_incident_stores under the mem0 version of the step: `python incident_steps.py STEP FOLDER`. The
folder holds `qdrant` and `mem0_dir`; what one step tells the next is in `state.json`. Works with any mem0
from 0.1.40 to 2.2. The clock that mem0 sees is ours, so that events lie days apart as they do in life.
"""

from __future__ import annotations

import asyncio
import datetime as real_time
import hashlib
import json
import math
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

DIMS = 8
STATE: dict[str, Any] = {}


def vector_of(text: str, dims: int = DIMS) -> list[float]:
    digest = hashlib.sha256(text.encode()).digest()
    values = [(digest[i % 32] - 127.5) / 127.5 for i in range(dims)]
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    return [value / norm for value in values]


class Settings:
    def __init__(self, dims: int) -> None:
        self.embedding_dims = dims
        self.model = "offline"


class Embedder:
    """Deterministic, offline. `batch_dims` other than `dims` is a provider whose batches come out wrong."""

    def __init__(self, dims: int) -> None:
        self.dims = self.batch_dims = dims
        self.config = Settings(dims)

    def embed(self, text: str, *_a: Any, **_k: Any) -> list[float]:
        return vector_of(text, self.dims)

    def embed_batch(self, texts: list[str], *_a: Any, **_k: Any) -> list[list[float]]:
        return [vector_of(text, self.batch_dims) for text in texts]


class Model:
    """Gives the answers it was handed, in order."""

    def __init__(self) -> None:
        self.config = Settings(0)
        self.answers: list[Any] = []

    def generate_response(self, *_a: Any, **_k: Any) -> str:
        return json.dumps(self.answers.pop(0))


class Clock:
    """What `datetime.now` says inside mem0: a time that we set and that goes on by half a minute a look."""

    at = real_time.datetime(2026, 4, 1, 9, 0, tzinfo=real_time.timezone.utc)

    @classmethod
    def set(cls, text: str) -> None:
        cls.at = real_time.datetime.fromisoformat(text).replace(tzinfo=real_time.timezone.utc)

    @classmethod
    def install(cls) -> None:
        import mem0.memory.main as main

        class OurDatetime(real_time.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> real_time.datetime:  # type: ignore[override]
                Clock.at += real_time.timedelta(seconds=31)
                return Clock.at.astimezone(tz) if tz else Clock.at.replace(tzinfo=None)

        main.datetime = OurDatetime  # type: ignore[misc]


class Agent:
    """A `Memory` of the installed mem0 on `folder/qdrant` and `folder/mem0_dir/history.db`."""

    def __init__(
        self,
        folder: Path,
        *,
        dims: int = DIMS,
        on_disk: bool | None = None,
        vectors: Path | None = None,
        history: Path | None = None,
        kind: str = "Memory",
    ) -> None:
        import mem0

        store = {
            "collection_name": "mem0",
            "embedding_model_dims": dims,
            "path": str(vectors or folder / "qdrant"),
        }
        if on_disk is not None:
            store["on_disk"] = on_disk
        config = {
            "vector_store": {"provider": "qdrant", "config": store},
            "llm": {"provider": "openai", "config": {"api_key": "sk-offline"}},
            "embedder": {"provider": "openai", "config": {"api_key": "sk-offline", "embedding_dims": dims}},
            "history_db_path": str(history or folder / "mem0_dir" / "history.db"),
        }
        self.memory = getattr(mem0, kind).from_config(config)
        self.ready(dims)

    def ready(self, dims: int) -> None:
        self.memory.embedding_model = Embedder(dims)
        self.memory.llm = Model()

    def add(self, user: str, text: str) -> str:
        """One memory as it is; through the (scripted) model where this mem0 knows no other way."""
        import inspect

        if "infer" in inspect.signature(self.memory.add).parameters:
            result = self.memory.add([{"role": "user", "content": text}], user_id=user, infer=False)
        else:
            self.memory.llm.answers += [
                {"facts": [text]},
                {"memory": [{"id": "", "text": text, "event": "ADD"}]},
            ]
            result = self.memory.add(text, user_id=user)
        return self.noted(user, result)[0]

    def noted(self, user: str, result: Any) -> list[str]:
        added = result["results"] if isinstance(result, dict) else result
        ids = [str(item["id"]) for item in added]
        for memory_id, item in zip(ids, added, strict=True):
            note("add", memory_id, user=user, text=item["memory"])
            STATE["live"][memory_id] = item["memory"]
        return ids

    def update(self, memory_id: str, text: str) -> None:
        self.memory.update(memory_id, text)
        note("update", memory_id, text=text)
        STATE["live"][memory_id] = text

    def delete(self, memory_id: str) -> None:
        self.memory.delete(memory_id)
        note("delete", memory_id)
        del STATE["live"][memory_id]

    def delete_all(self, user: str) -> None:
        self.memory.delete_all(user_id=user)
        note("delete_all", None, user=user)

    def close(self) -> None:
        for name in ("vector_store", "_telemetry_vector_store", "_entity_store"):
            client = getattr(getattr(self.memory, name, None), "client", None)
            if client is not None:
                client.close()
        connection = getattr(self.memory.db, "connection", None)
        if connection is not None:
            connection.close()


def note(op: str, memory_id: str | None, **more: Any) -> None:
    STATE["operations"].append({"at": Clock.at.isoformat(), "op": op, "id": memory_id, **more})


def happened(sentence: str) -> None:
    STATE["what"].append(sentence)


def expect(**ids: Any) -> None:
    STATE["expected"].update({name: sorted(found) for name, found in ids.items()})


FACTS = {
    "alice": [
        "lives in Lisbon",
        "is allergic to peanuts",
        "works as a nurse",
        "owns a cat named Miso",
        "likes tea",
    ],
    "bob": [
        "lives in Oslo",
        "drives a red Volvo",
        "is learning Portuguese",
        "dislikes olives",
        "plays chess",
    ],
    "carol": ["lives in Quito", "is left handed", "collects stamps", "runs marathons", "has a sister, Olga"],
}


def adds(agent: Agent, user: str, count: int, topic: str = "") -> list[str]:
    """`count` memories of a user, each with a text of its own."""
    facts = FACTS[user]
    return [
        agent.add(user, f"{user.title()} {facts[i % 5]}{f', {topic}' if topic else ''} ({i})")
        for i in range(count)
    ]


# --- the incidents --------------------------------------------------------------------------------


def emptied_at_reboot(folder: Path) -> None:
    agent = Agent(folder)
    ids = adds(agent, "alice", 10) + adds(agent, "bob", 8)
    Clock.set("2026-04-20T10:00:00")
    agent.update(ids[0], "Alice lives in Porto")
    agent.delete(ids[3])
    adds(agent, "carol", 5)
    agent.close()
    expect(lost=STATE["live"])
    shutil.rmtree(folder / "qdrant")
    happened("2026-05-02 06:14 UTC: reboot; the folder of the vectors was gone, the log was not")
    STATE["times"]["boot_at"] = "2026-05-02T06:14:00+00:00"
    Clock.set("2026-05-02T06:15:10")
    agent = Agent(folder)
    adds(agent, "alice", 3, "after the reboot")
    agent.close()


def wiped_at_start(folder: Path) -> None:
    agent = Agent(folder)
    adds(agent, "alice", 7)
    adds(agent, "bob", 5)
    agent.close()
    expect(lost=STATE["live"])
    happened(
        "2026-04-09 12:00 UTC: the agent was started again; mem0 1.0.7 deleted the folder (on_disk is false)"
    )
    STATE["times"]["restart_at"] = "2026-04-09T12:00:00+00:00"
    Clock.set("2026-04-09T12:00:00")
    agent = Agent(folder)
    adds(agent, "alice", 4, "after the restart")
    agent.close()


def filtered_delete_dropped_all(folder: Path) -> None:
    agent = Agent(folder, on_disk=True)
    adds(agent, "alice", 8)
    adds(agent, "bob", 6)
    expect(lost=STATE["live"])
    carols = adds(agent, "carol", 5)
    Clock.set("2026-04-11T16:30:00")
    STATE["times"]["delete_all_at"] = Clock.at.isoformat()
    agent.delete_all("carol")
    for memory_id in carols:
        del STATE["live"][memory_id]
    happened(
        "delete_all(user_id='carol') deleted carol's 5, then the whole collection; the log has 5 DELETE rows"
    )
    Clock.set("2026-04-12T08:00:00")
    adds(agent, "alice", 2, "a day later")
    agent.close()


def bulk_delete_stopped_at_100(folder: Path) -> None:
    agent = Agent(folder)
    adds(agent, "bob", 3)
    carols = adds(agent, "carol", 150)
    Clock.set("2026-04-15T18:00:00")
    STATE["times"]["delete_all_at"] = Clock.at.isoformat()
    agent.delete_all("carol")
    left = sorted(
        {str(p.id) for p in agent.memory.vector_store.client.scroll("mem0", limit=1000)[0]} & set(carols)
    )
    STATE["left"] = left
    happened(f"delete_all(user_id='carol') said that it deleted them all; {len(left)} of her 150 are left")
    agent.close()


def _older_half(folder: Path, part: str) -> tuple[dict[str, str], dict[str, str]]:
    """Ten days of work, of which `part` is put back to where it was after five; the live texts then and last."""
    agent = Agent(folder)
    ids = adds(agent, "alice", 8) + adds(agent, "bob", 6)
    agent.close()
    then = dict(STATE["live"])
    saved = folder / "saved"
    if (folder / part).is_dir():
        shutil.copytree(folder / part, saved)
    else:
        shutil.copy2(folder / part, saved)
    STATE["times"]["copied_at"] = Clock.at.isoformat()
    happened(f"{Clock.at:%Y-%m-%d %H:%M} UTC: a copy of {part} was made")
    Clock.set("2026-04-06T09:00:00")
    agent = Agent(folder)
    adds(agent, "carol", 5)
    agent.update(ids[0], "Alice lives in Porto")
    agent.update(ids[8], "Bob lives in Bergen")
    for memory_id in (ids[2], ids[3], ids[10]):
        agent.delete(memory_id)
    agent.close()
    if saved.is_dir():
        shutil.rmtree(folder / part)
    saved.rename(folder / part)
    happened(f"later: that copy of {part} was put back, alone")
    return then, dict(STATE["live"])


def vectors_older(folder: Path) -> None:
    then, last = _older_half(folder, "qdrant")
    expect(
        lost=set(last) - set(then),
        resurrected=set(then) - set(last),
        text={i for i in set(then) & set(last) if then[i] != last[i]},
    )


def log_older(folder: Path) -> None:
    then, last = _older_half(folder, "mem0_dir/history.db")
    expect(
        lost=set(then) - set(last),
        unlogged=set(last) - set(then),
        text={i for i in set(then) & set(last) if then[i] != last[i]},
    )


def log_lost(folder: Path) -> None:
    agent = Agent(folder)
    ids = adds(agent, "alice", 8) + adds(agent, "bob", 6)
    agent.update(ids[0], "Alice lives in Porto")
    agent.delete(ids[5])
    agent.close()
    expect(unlogged=STATE["live"])
    (folder / "mem0_dir" / "history.db").unlink()
    STATE["times"]["lost_at"] = "2026-04-08T07:00:00+00:00"
    happened("2026-04-08 07:00 UTC: history.db was gone; the agent started with an empty one")
    Clock.set("2026-04-08T07:00:00")
    agent = Agent(folder)
    adds(agent, "carol", 3)
    agent.close()


def two_installs(folder: Path) -> None:
    agent = Agent(folder, vectors=folder / "qdrant-of-a")
    adds(agent, "alice", 8)
    agent.close()
    expect(lost=STATE["live"])
    STATE["live"] = {}
    agent = Agent(folder, history=folder / "history-of-b.db")
    adds(agent, "bob", 7)
    agent.close()
    expect(unlogged=STATE["live"])
    happened("the log is one install's and the vectors another's: they share no memory")


def one_write_cut(folder: Path) -> None:
    agent = Agent(folder)
    STATE["ids"] = adds(agent, "alice", 4) + adds(agent, "bob", 3)
    agent.close()


def cut_add(folder: Path) -> None:
    agent = dying(Agent(folder))
    agent.add("alice", "Alice never saw this logged")


def cut_update(folder: Path) -> None:
    agent = dying(Agent(folder))
    agent.memory.update(STATE["ids"][0], "Alice lives in Faro")


def cut_delete(folder: Path) -> None:
    agent = dying(Agent(folder))
    agent.memory.delete(STATE["ids"][5])


def dying(agent: Agent) -> Agent:
    """The process ends, as by a kill, where mem0 would write history."""

    def end(*_a: Any, **_k: Any) -> None:
        save()
        os._exit(9)

    agent.memory.db.add_history = agent.memory.db.batch_add_history = end
    return agent


def one_write_cut_after(folder: Path) -> None:
    agent = Agent(folder)
    there = {str(p.id) for p in agent.memory.vector_store.client.scroll("mem0", limit=1000)[0]}
    expect(unlogged=there - set(STATE["ids"]), text=[STATE["ids"][0]], lost=[STATE["ids"][5]])
    happened("three kills between mem0's two writes: of an add, an update and a delete")
    Clock.set("2026-04-02T09:00:00")
    adds(agent, "bob", 2, "after the kills")
    agent.close()


def dims_changed(folder: Path) -> None:
    agent = Agent(folder)
    adds(agent, "alice", 7)
    adds(agent, "bob", 5)
    expect(lost=STATE["live"])
    agent.memory.vector_store.delete_col()
    agent.close()
    happened("a new embedder with 16 dimensions: the collection was dropped (delete_col) and made anew")
    Clock.set("2026-04-10T10:00:00")
    STATE["times"]["recreated_at"] = Clock.at.isoformat()
    STATE["dims"] = {"before": DIMS, "after": 16}
    agent = Agent(folder, dims=16)
    adds(agent, "alice", 3, "with the new embedder")
    agent.close()


def async_delete_all_resurrected(folder: Path) -> None:
    agent = Agent(folder)
    adds(agent, "bob", 4)
    adds(agent, "carol", 90)
    agent.close()
    Clock.set("2026-04-17T11:00:00")
    STATE["times"]["delete_all_at"] = Clock.at.isoformat()

    async def forget() -> None:
        agent = Agent(folder, kind="AsyncMemory")
        await agent.memory.delete_all(user_id="carol")
        agent.close()

    asyncio.run(forget())
    note("delete_all", None, user="carol")
    measured(folder)
    happened("AsyncMemory.delete_all(user_id='carol') said that it deleted them all")
    if len(STATE["expected"]["resurrected"]) < 2 or STATE["expected"]["lost"]:
        sys.exit(75)


def threads(folder: Path) -> None:
    agent = Agent(folder)

    def add(text: str, user: str) -> None:
        try:
            agent.memory.add([{"role": "user", "content": text}], user_id=user, infer=False)
        except Exception:
            STATE["errors"] = STATE.get("errors", 0) + 1

    def work(number: int) -> None:
        for i in range(18):
            add(f"Note {i} of thread {number}", ("alice", "bob")[number % 2])

    running = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    agent.close()
    measured(folder)
    happened("8 threads added 18 memories each through one Memory on a local folder")
    if len(STATE["expected"]["lost"]) < 2:
        sys.exit(75)


def measured(folder: Path) -> None:
    """For incidents that chance decides: the difference as a fresh client and SQLite see it."""
    import sqlite3

    from qdrant_client import QdrantClient

    client = QdrantClient(path=str(folder / "qdrant"))
    there = {str(p.id) for p in client.scroll("mem0", limit=100_000)[0]}
    client.close()
    log = sqlite3.connect(folder / "mem0_dir" / "history.db")
    last = dict(log.execute("SELECT memory_id, event FROM history ORDER BY rowid"))
    log.close()
    expect(
        lost={i for i, event in last.items() if event != "DELETE"} - there,
        resurrected={i for i, event in last.items() if event == "DELETE"} & there,
        unlogged=there - set(last),
    )


def stranded_first(folder: Path) -> None:
    Clock.set("2026-01-05T09:00:00")
    agent = Agent(folder, on_disk=True)
    adds(agent, "alice", 5)
    adds(agent, "bob", 3)
    agent.close()
    expect(unlogged=STATE["live"])


def stranded_hang(folder: Path) -> None:
    # comes back never: the migration of the log waits for its own lock. make_incident_stores kills it
    Agent(folder, on_disk=True)


def stranded_after(folder: Path) -> None:
    happened(
        "mem0 0.1.100 hung in its migration of the 9-column log and was killed; mem0 2.2.1 began a new log"
    )
    Clock.set("2026-04-03T09:00:00")
    agent = Agent(folder)
    adds(agent, "alice", 2, "after the upgrade")
    agent.close()


def second_memory_in_migrations(folder: Path) -> None:
    from mem0 import Memory
    from mem0.configs.base import MemoryConfig
    from qdrant_client import QdrantClient

    client = QdrantClient(path=str(folder / "qdrant"))
    config = MemoryConfig(
        **{
            "vector_store": {
                "provider": "qdrant",
                "config": {"client": client, "collection_name": "mem0", "embedding_model_dims": DIMS},
            },
            "llm": {"provider": "openai", "config": {"api_key": "sk-offline"}},
            "embedder": {"provider": "openai", "config": {"api_key": "sk-offline", "embedding_dims": DIMS}},
            "history_db_path": str(folder / "mem0_dir" / "history.db"),
        }
    )
    agent = Agent.__new__(Agent)
    agent.memory = Memory(config)
    agent.ready(DIMS)
    adds(agent, "alice", 5)
    Clock.set("2026-04-05T09:00:00")
    second = Agent.__new__(Agent)
    second.memory = Memory(config)
    second.ready(DIMS)
    moved = adds(second, "bob", 4)
    happened("a second Memory() from the same config object wrote bob's memories to mem0migrations")
    STATE["other_collection"] = {"name": "mem0migrations", "ids": moved}
    expect(lost=moved)
    second.close()
    agent.close()


def entities_orphaned(folder: Path) -> None:
    agent = Agent(folder)
    bobs, carols = adds(agent, "bob", 4), adds(agent, "carol", 4)

    def entity(text: str, user: str, ids: list[str]) -> str:
        """As mem0's add inserts one (its step 7e); with spaCy it would find them by itself."""
        import uuid

        entity_id = str(uuid.uuid4())
        agent.memory.entity_store.insert(
            vectors=[vector_of(text)],
            ids=[entity_id],
            payloads=[
                {"data": text, "entity_type": "PROPER", "linked_memory_ids": sorted(ids), "user_id": user}
            ],
        )
        return entity_id

    orphans = [entity("Quito", "carol", carols[:2]), entity("Olga", "carol", [carols[3]])]
    dangling = entity("Volvo", "bob", [bobs[0], bobs[1]])
    STATE["entities"] = {
        "orphan": orphans,
        "dangling": [dangling],
        "whole": [entity("Oslo", "bob", [bobs[0]])],
    }
    agent.close()
    Clock.set("2026-04-13T15:00:00")
    agent = Agent(folder)
    agent.delete_all("carol")
    agent.delete(bobs[1])
    agent.close()
    happened("a process that had used no entities deleted carol and one memory of bob; their entities stayed")


def phantom_add(folder: Path) -> None:
    agent = Agent(folder)
    adds(agent, "alice", 5)
    Clock.set("2026-04-14T13:00:00")
    STATE["times"]["failing_at"] = Clock.at.isoformat()
    agent.memory.embedding_model.batch_dims = 16
    facts = ["Alice bought a bicycle", "Alice sold her car"]
    agent.memory.llm.answers.append({"memory": [{"id": str(i), "text": f} for i, f in enumerate(facts)]})
    result = agent.memory.add([{"role": "user", "content": "; ".join(facts)}], user_id="alice")
    expect(lost=agent.noted("alice", result))
    happened(
        "the vector store refused two memories (wrong dimensions in a batch); mem0 2.2.0 logged and returned them"
    )
    agent.memory.embedding_model.batch_dims = DIMS
    Clock.set("2026-04-14T14:00:00")
    adds(agent, "alice", 2, "later")
    agent.close()


STEPS: dict[str, Callable[[Path], None]] = {
    name: found for name, found in list(globals().items()) if callable(found) and not isinstance(found, type)
}


def save() -> None:
    (Path(sys.argv[2]) / "state.json").write_text(json.dumps(STATE, indent=1))


def main() -> None:
    step, folder = sys.argv[1], Path(sys.argv[2])
    file = folder / "state.json"
    STATE.update(
        json.loads(file.read_text())
        if file.exists()
        else {
            "what": [],
            "times": {},
            "operations": [],
            "live": {},
            "expected": {"lost": [], "unlogged": [], "resurrected": [], "text": []},
            "clock": Clock.at.isoformat(),
        }
    )
    Clock.at = real_time.datetime.fromisoformat(STATE["clock"])
    warnings.simplefilter("ignore")
    Clock.install()
    STEPS[step](folder)
    STATE["clock"] = Clock.at.isoformat()
    save()


if __name__ == "__main__":
    main()
