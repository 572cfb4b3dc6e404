"""Write a large mem0 install for benchmarks: `make_big_store.py COUNT DIMS FOLDER`.

FOLDER gets `qdrant/` (one collection `mem0`, COUNT points of DIMS dimensions, pickled as
qdrant-client does it) and `history.db` (10 columns, one ADD a point, an UPDATE for every tenth).
The rows go in through SQLite directly: through mem0 itself 100,000 of them would take hours.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import sqlite3
import sys
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
from qdrant_client.http.models import PointStruct
from qdrant_client.local.persistence import CollectionPersistence

SENTENCE = (
    "prefers window seats quiet rooms green tea morning meetings Lisbon Quito winter trains bicycle "
    "allergic peanuts gluten report deadline Friday invoice project garden piano sister brother doctor "
    "appointment passport renewal flat rent coffee oat milk hiking camera lens library novel Spanish lesson"
)
WORDS = SENTENCE.split()
HISTORY_TABLE = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, "
    "created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
)
MESSAGES_TABLE = (
    "CREATE TABLE messages (id TEXT PRIMARY KEY, session_scope TEXT, role TEXT, content TEXT, name TEXT, "
    "created_at DATETIME)"
)
PAGE = 2000


def meta(dims: int) -> str:
    """The `meta.json` that qdrant-client 1.20 writes for a mem0 2.x collection, without its null keys."""
    vectors = {"size": dims, "distance": "Cosine", "on_disk": False}
    collection = {"vectors": vectors, "sparse_vectors": {"bm25": {"index": None, "modifier": "idf"}}}
    return json.dumps({"collections": {"mem0": collection}, "aliases": {}, "text_indexes": {}})


def new_id(rng: random.Random) -> str:
    """A version 4 UUID, the same in every run."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def text(rng: random.Random) -> str:
    """A sentence of about 150 bytes."""
    return " ".join(rng.choices(WORDS, k=22))


def make(count: int, dims: int, folder: Path, users: int = 50) -> None:
    """Write the install; FOLDER must not hold one already."""
    rng = random.Random(7)
    floats = np.random.default_rng(7)
    storage = folder / "qdrant" / "collection" / "mem0"
    storage.mkdir(parents=True)
    (folder / "qdrant" / "meta.json").write_text(meta(dims))
    (folder / "qdrant" / ".lock").write_text("tmp lock file")
    points = sqlite3.connect(storage / "storage.sqlite")
    points.execute("CREATE TABLE IF NOT EXISTS points (id TEXT PRIMARY KEY, point BLOB)")
    history = sqlite3.connect(folder / "history.db")
    history.execute(HISTORY_TABLE)
    history.execute(MESSAGES_TABLE)
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for first in range(0, count, PAGE):
        size = min(PAGE, count - first)
        vectors = floats.standard_normal((size, dims)).astype(np.float32).astype(np.float64).tolist()
        point_rows = []
        history_rows = []
        for offset in range(size):
            number = first + offset
            memory_id = new_id(rng)
            created = (start + timedelta(seconds=number, microseconds=rng.randrange(1, 10**6))).isoformat()
            data = text(rng)
            updated = created
            history_rows.append((new_id(rng), memory_id, None, data, "ADD", created, created, 0, None, None))
            if number % 10 == 9:
                old, data = data, text(rng)
                updated = (datetime.fromisoformat(created) + timedelta(seconds=5)).isoformat()
                history_rows.append(
                    (new_id(rng), memory_id, old, data, "UPDATE", created, updated, 0, None, None)
                )
            payload = {
                "user_id": f"user{number % users}",
                "data": data,
                "text_lemmatized": data.lower(),
                "hash": hashlib.md5(data.encode()).hexdigest(),
                "created_at": created,
                # a text of its own, as in mem0's blobs: a shared one would pickle as a reference
                "updated_at": updated[:-6] + updated[-6:],
                "attributed_to": "user",
            }
            point = PointStruct.model_construct(id=memory_id, vector={"": vectors[offset]}, payload=payload)
            point_rows.append((CollectionPersistence.encode_key(memory_id), pickle.dumps(point)))
        with points, history:
            points.executemany("INSERT INTO points VALUES (?, ?)", point_rows)
            history.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", history_rows)
    points.close()
    history.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    make(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
