"""What a deletion costs beside the bare calls: `scripts/bench erase`, which describes it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import make_big_store

OPEN = """
import hashlib, json, os, random, sqlite3, sys, time, uuid
from mem0 import Memory
folder, dims = sys.argv[1], int(sys.argv[2])
memory = Memory.from_config({
    "vector_store": {"provider": "qdrant", "config": {
        "collection_name": "mem0", "embedding_model_dims": dims, "path": folder + "/qdrant"}},
    "llm": {"provider": "openai", "config": {"api_key": "sk-offline"}},
    "embedder": {"provider": "openai", "config": {"api_key": "sk-offline", "embedding_dims": dims}},
    "history_db_path": folder + "/history.db",
})
"""
ENTITIES = (
    OPEN
    + """
import numpy
count = int(sys.argv[3])
rng, floats = random.Random(11), numpy.random.default_rng(11)
con = sqlite3.connect(folder + "/history.db")
ids = [one for one, in con.execute("SELECT memory_id FROM history WHERE event = 'ADD'")]
con.close()
store = memory.entity_store
for first in range(0, count, 500):
    size = min(500, count - first)
    payloads = []
    for number in range(first, first + size):
        text = " ".join(f"Name{rng.randrange(10**6)}" for _ in range(2))
        links = rng.sample(ids, rng.choice((1, 1, 1, 2, 3, 5)))
        payloads.append({"data": text, "entity_type": "PROPER", "linked_memory_ids": links, "user_id": "user0"})
    vectors = floats.standard_normal((size, dims)).astype(numpy.float32).astype(float).tolist()
    store.insert(vectors=vectors, ids=[str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in payloads],
                 payloads=payloads)
with memory.db.connection as connection:
    connection.executemany("INSERT INTO messages VALUES (?, 'user_id=user0', 'user', ?, NULL, '2026-01-01')",
                           [(str(n), f"message number {n} of the conversation") for n in range(10)])
memory.vector_store.client.close()
memory.db.close()
"""
)
BARE = (
    OPEN
    + """
import resource
con = sqlite3.connect(folder + "/history.db")
texts = dict(con.execute("SELECT memory_id, new_memory FROM history ORDER BY rowid"))
con.close()

def spent():
    own = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), own.ru_utime + own.ru_stime

began = spent()
for one, text in texts.items():
    memory.vector_store.delete(one)
    memory.db.add_history(one, text, None, "DELETE", created_at="2026-01-01T00:00:00+00:00",
                          updated_at="2026-01-01T00:00:00+00:00", is_deleted=1)
ended = spent()
print(json.dumps([then - now for now, then in zip(began, ended)]))
"""
)

Cost = tuple[float, float]
"""Seconds of the clock and of the processor."""


def built(options: Namespace, say: Callable[[str], None]) -> Path:
    """The install: one user's memories and entities, made once."""
    memories, entities, dims = options.memories, options.entities, options.dims
    store = Path(options.folder) / f"erase-{memories}-{entities}x{dims}"
    if not (store / "ready").exists():
        say(f"building {store}")
        shutil.rmtree(store, ignore_errors=True)
        make_big_store.make(memories, dims, store, users=1)
        python = options.python
        words = [str(store), str(dims), str(entities)]
        subprocess.run(
            [python, "-c", ENTITIES, *words], check=True, env=environment(store), stdout=subprocess.DEVNULL
        )
        shutil.rmtree(store / "home")
        (store / "ready").touch()
    return store


def environment(store: Path) -> dict[str, str]:
    home = store / "home"
    home.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "XDG_"))}
    return {**kept, "HOME": str(home), "MEM0_DIR": str(home), "MEM0_TELEMETRY": "False"}


def spent_by(command: list[str], store: Path) -> tuple[Cost, str]:
    """What a command and its children took, and what it printed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment(store), capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{command[:5]}: exit {done.returncode}\n{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (wall, cpu), done.stdout


def ours(python: str, store: Path) -> tuple[Cost, float]:
    """The whole command, and of it what it says that the deletion took."""
    flags = [
        "--history",
        str(store / "history.db"),
        "--qdrant-path",
        str(store / "qdrant"),
        "--only-this-store",
    ]
    command = [python, "-m", "mem0audit", "delete", "--user", "user0", "--yes", "--agent-python", python]
    cost, out = spent_by([*command, *flags, "--format", "json"], store)
    said = json.loads(out)
    return cost, said["seconds"]


def bare(python: str, store: Path, dims: int) -> Cost:
    """The bare calls alone, without the time to import mem0 and open the store."""
    _, out = spent_by([python, "-c", BARE, str(store), str(dims)], store)
    wall, cpu = json.loads(out.splitlines()[-1])
    return wall, cpu


def measure(options: Namespace) -> None:
    """Both in turn, each on a fresh copy of the same files."""
    python, dims, runs = options.python, options.dims, options.runs
    made = built(options, lambda text: print(text, file=sys.stderr))
    work = made.with_name("erase-work")
    theirs: list[Cost] = []
    whole: list[Cost] = []
    within: list[float] = []
    for _ in range(runs):
        for name in ("bare", "ours"):
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(made, work)
            if name == "bare":
                theirs.append(bare(python, work, dims))
            else:
                cost, said = ours(python, work)
                whole.append(cost)
                within.append(said)
    shutil.rmtree(work)
    wall, cpu = (statistics.median(one[i] for one in theirs) for i in (0, 1))
    all_wall, all_cpu = (statistics.median(one[i] for one in whole) for i in (0, 1))
    memories, entities = options.memories, options.entities
    print(f"\n{memories:,} memories of one user, {entities:,} entities, {dims} dimensions")
    print(f"{'way':26}{'wall s':>10}{'processor s':>14}")
    print(f"{'bare calls':26}{wall:10.2f}{cpu:14.2f}")
    print(f"{'delete, from start to end':26}{all_wall:10.2f}{all_cpu:14.2f}")
    print(f"{'  of it until deleted':26}{statistics.median(within):10.2f}")
    print(f"delete takes {all_wall / wall:.2f} times the bare calls ({all_cpu / cpu:.2f} of the processor)")
