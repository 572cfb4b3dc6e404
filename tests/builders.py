"""Builds and reads real mem0 installs for tests: mem0 itself writes, offline, with a deterministic embedder.

`MemoryBuilder` writes through the installed mem0; `RawPoints` and `RawHistory` plant faults in the files of a
store that nobody has open. None of it is part of the product.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gc
import hashlib
import json
import math
import os
import pickle
import shutil
import sqlite3
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
STORES = DATA / "stores"
INCIDENTS = DATA / "incidents"
QDRANT_STORES = DATA / "qdrant-stores"

DIMS = 8


def vector_of(text: str, dims: int = DIMS) -> list[float]:
    """A unit vector of `dims` floats that depends on the text alone."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    values = [(digest[i % 32] - 127.5) / 127.5 for i in range(dims)]
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    return [value / norm for value in values]


class OfflineEmbedder:
    """What mem0 asks for vectors, answered without a model."""

    class _Config:
        model = "offline"

        def __init__(self, dims: int) -> None:
            self.embedding_dims = dims

    def __init__(self, dims: int = DIMS) -> None:
        self.dims = dims
        self.config = self._Config(dims)

    def embed(self, text: str, *_args: Any, **_kwargs: Any) -> list[float]:
        return vector_of(text, self.dims)

    def embed_batch(self, texts: Sequence[str], *_args: Any, **_kwargs: Any) -> list[list[float]]:
        return [vector_of(text, self.dims) for text in texts]


class ScriptedModel:
    """What mem0 asks to extract facts: gives the answers pushed before, and fails when there is none."""

    class _Config:
        model = "scripted"

    def __init__(self) -> None:
        self.config = self._Config()
        self.answers: list[dict[str, Any]] = []

    def push_facts(self, facts: Sequence[str]) -> None:
        self.answers.append(
            {
                "memory": [
                    {"id": str(i), "text": fact, "attributed_to": "user"} for i, fact in enumerate(facts)
                ]
            }
        )

    def generate_response(self, *_args: Any, **_kwargs: Any) -> str:
        if not self.answers:
            raise AssertionError("mem0 asked the model for something that the test did not script")
        return json.dumps(self.answers.pop(0))


def fork() -> int:
    """`os.fork`, without the warning that Python 3.12 and later give of any fork beside threads: here those of
    pytest-xdist and numpy, which hold nothing that a child needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Crash(BaseException):
    """Stands for a process that dies: mem0 swallows Exception, and must not swallow this."""


@functools.cache
def _import_mem0() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mem0
    gc.collect()
    gc.freeze()  # its million objects stay, and need not be looked through again and again
    return mem0


class MemoryBuilder:
    """A real install under `folder`, written by the installed mem0: `folder/qdrant` and `folder/mem0_dir`.

    A context manager; `close()` lets go of every file, so that the store can then be edited or moved.
    `history` and `vectors` place the two stores elsewhere; with `server` (its url) the points go there.
    Unless `synced`, SQLite does not wait for the disk:
    locks, journals and what a kill leaves are the same, and only a power cut would tell.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        dims: int = DIMS,
        collection: str = "mem0",
        history: Path | str | None = None,
        vectors: Path | str | None = None,
        on_disk: bool | None = None,
        synced: bool = False,
        server: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self.server = server
        self.api_key = api_key
        self.folder = Path(folder)
        self.dims = dims
        self.collection = collection
        self.mem0_dir = self.folder / "mem0_dir"
        self.history = Path(history) if history else self.mem0_dir / "history.db"
        self.vectors = Path(vectors) if vectors else self.folder / "qdrant"
        self.on_disk = on_disk
        self.synced = synced
        self.memory: Any = None
        self.open()

    def __enter__(self) -> MemoryBuilder:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- the life of the Memory ------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """The dict that an agent gives to `Memory.from_config` for this install."""
        store: dict[str, Any] = {
            "collection_name": self.collection,
            "embedding_model_dims": self.dims,
        }
        if self.server is None:
            store["path"] = str(self.vectors)
        else:
            store["url"] = self.server
            if self.api_key is not None:
                store["api_key"] = self.api_key
        if self.on_disk is not None:
            store["on_disk"] = self.on_disk
        return {
            "vector_store": {"provider": "qdrant", "config": store},
            "llm": {"provider": "openai", "config": {"api_key": "sk-offline"}},
            "embedder": {
                "provider": "openai",
                "config": {"api_key": "sk-offline", "embedding_dims": self.dims},
            },
            "history_db_path": str(self.history),
        }

    def open(self) -> None:
        """Starts the agent (again): a new `Memory()` on the same paths."""
        self.mem0_dir.mkdir(parents=True, exist_ok=True)
        self.history.parent.mkdir(parents=True, exist_ok=True)
        mem0 = _import_mem0()
        with _quiet():
            self.memory = mem0.Memory.from_config(self.config())
        self.memory.embedding_model = OfflineEmbedder(self.dims)
        self.memory.llm = ScriptedModel()
        if not self.synced:
            folder = self.memory.vector_store.client._client
            local = [] if self.server is not None else folder.collections.values()
            for connection in (
                self.memory.db.connection,
                *(collection.storage.storage for collection in local),
            ):
                connection.execute("PRAGMA synchronous = OFF")

    def close(self) -> None:
        """Stops the agent: every file of the install is let go."""
        memory, self.memory = self.memory, None
        if memory is None:
            return
        memory.vector_store.client.close()
        if memory.db is not None:
            memory.db.close()

    def reopen(self) -> None:
        """Stops and starts the agent, as a restart does: `entity_store` is untouched again."""
        self.close()
        self.open()

    # -- what an agent does ----------------------------------------------------------------------

    def add(
        self,
        text: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        role: str = "user",
        name: str | None = None,
        expiration_date: str | None = None,
        infer: bool = False,
    ) -> str:
        """Adds one memory and returns its id; with `infer=True` through the (scripted) model."""
        scope = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        if infer:
            return self.add_inferred([text], metadata=metadata, **scope)[0]
        message = {"role": role, "content": text}
        if name:
            message["name"] = name
        extra = {"expiration_date": expiration_date} if expiration_date else {}
        with _quiet():
            result = self.memory.add([message], metadata=metadata, infer=False, **scope, **extra)
        return str(result["results"][0]["id"])

    def add_inferred(
        self,
        facts: Sequence[str],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> list[str]:
        """Adds facts in one call, as facts of one conversation; fills `messages` too."""
        self.memory.llm.push_facts(facts)
        conversation = [
            {"role": "user", "content": "; ".join(facts)},
            {"role": "assistant", "content": "noted"},
        ]
        with _quiet():
            result = self.memory.add(
                conversation, user_id=user_id, agent_id=agent_id, run_id=run_id, metadata=metadata
            )
        return [str(item["id"]) for item in result["results"]]

    def update(self, memory_id: str, text: str | None = None, **kwargs: Any) -> None:
        """mem0's `update`; `metadata=` and `expiration_date=` pass through."""
        with _quiet():
            self.memory.update(memory_id, text, **kwargs)

    def delete(self, memory_id: str) -> None:
        with _quiet():
            self.memory.delete(memory_id)

    def delete_all(self, **scope: str) -> None:
        with _quiet():
            self.memory.delete_all(**scope)

    def reset(self) -> None:
        with _quiet():
            self.memory.reset()

    def plant_entity(
        self, text: str, memory_ids: Sequence[str], *, entity_type: str = "PROPER", **scope: str
    ) -> str:
        """Inserts one entity through mem0's own `entity_store`, with the payload that mem0's add gives it
        (Memory._add_to_vector_store, step 7e), and returns its id. Like mem0, it then cleans entities in
        this process: `reopen()` to be an agent that has not used them."""
        entity_id = str(uuid.uuid4())
        payload = {
            "data": text,
            "entity_type": entity_type,
            "linked_memory_ids": sorted(memory_ids),
            **scope,
        }
        with _quiet():
            self.memory.entity_store.insert(
                vectors=[vector_of(text, self.dims)], ids=[entity_id], payloads=[payload]
            )
        return entity_id

    # -- faults that need a living agent ---------------------------------------------------------

    @contextlib.contextmanager
    def crash_between_writes(self) -> Iterator[None]:
        """The agent dies after the vector was written and before history was: the first write to history
        inside the block ends the block. Restarts nothing; `reopen()` to go on as after a restart."""

        def die(*_args: Any, **_kwargs: Any) -> None:
            raise Crash

        database = self.memory.db
        add_one, add_many = database.add_history, database.batch_add_history
        database.add_history = database.batch_add_history = die
        try:
            yield
        except Crash:
            pass
        else:
            raise AssertionError("the block wrote nothing to history, so nothing was cut")
        finally:
            database.add_history, database.batch_add_history = add_one, add_many

    # -- what is there, as mem0's own libraries see it -------------------------------------------

    def points(self, collection: str | None = None) -> dict[str, dict[str, Any]]:
        """id -> payload of every point, as the running client has it."""
        rows, _next = self.memory.vector_store.client.scroll(collection or self.collection, limit=1_000_000)
        return {str(row.id): dict(row.payload or {}) for row in rows}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """mem0 and qdrant-client warn about things that tests do on purpose (payload indexes of local stores)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- stores kept as data ----------------------------------------------------------------------------


class StoreCopy:
    """A private copy of an install kept as test data: `.folder`, `.history`, `.vectors`, `.truth`."""

    def __init__(self, source: Path, target: Path, truth: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for part in ("qdrant", "mem0_dir"):
            if (source / part).is_dir():
                shutil.copytree(source / part, target / part)
        self.folder = target
        self.mem0_dir = target / "mem0_dir"
        self.history = self.mem0_dir / "history.db"
        self.vectors = target / "qdrant"
        self.truth: dict[str, Any] = json.loads(truth.read_text())


def copy_store(name: str, target: Path, *, pre_delete_all: bool = False) -> StoreCopy:
    """Copies `tests/data/stores/<name>` (or its state just before `delete_all(carol)`) into a new folder
    under `target`. See tests/data/stores/README.md for what each one is."""
    source = STORES / name
    label = f"{name}-pre" if pre_delete_all else name
    return StoreCopy(
        source / "pre_delete_all" if pre_delete_all else source, target / label, source / "truth.json"
    )


def copy_incident(name: str, target: Path) -> StoreCopy:
    """Copies `tests/data/incidents/<name>`, a store that a released mem0 brought into that incident."""
    source = INCIDENTS / name
    return StoreCopy(source, target / name, source / "truth.json")


def incident_names() -> list[str]:
    """The incidents kept as data."""
    return sorted(path.parent.name for path in INCIDENTS.glob("*/truth.json"))


# --- faults planted in the files of a closed store ----------------------------------------------------


class RawPoints:
    """The rows of one collection's storage.sqlite, read and changed with SQLite alone.

    Only for a store that nobody has open. Blobs are pickles of qdrant-client's real `PointStruct`.
    """

    def __init__(self, vectors: Path | str, collection: str = "mem0") -> None:
        self.file = Path(vectors) / "collection" / collection / "storage.sqlite"

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.file)
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    def rows(self) -> list[tuple[int, str, bytes]]:
        """(rowid, key, blob) in rowid order."""
        with self._connection() as connection:
            return list(connection.execute("SELECT rowid, id, point FROM points ORDER BY rowid"))

    def points(self) -> dict[Any, Any]:
        """id -> `PointStruct`, the highest rowid of an id winning."""
        found = {}
        with _quiet():
            for _rowid, _key, blob in self.rows():
                point = pickle.loads(blob)
                found[point.id] = point
        return found

    def row_of(self, point_id: Any) -> tuple[str, bytes]:
        """(key, blob) of a point, to be put back later with `put_row`."""
        with _quiet():
            for _rowid, key, blob in reversed(self.rows()):
                if pickle.loads(blob).id == point_id:
                    return key, blob
        raise KeyError(point_id)

    def put_row(self, key: str, blob: bytes) -> None:
        """INSERT OR REPLACE, as qdrant-client does it: the row gets the highest rowid."""
        with self._connection() as connection:
            connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", (key, blob))

    def put(
        self,
        point_id: Any,
        payload: dict[str, Any],
        vector: Any = None,
        *,
        key: str | None = None,
        protocol: int = 4,
    ) -> None:
        """Writes one point. `vector` defaults to the vector of its text, in the shape of mem0 2.x; `key` to
        what qdrant-client computes."""
        from qdrant_client.http.models import PointStruct

        if vector is None:
            vector = {"": vector_of(str(payload.get("data", "")))}
        # model_construct: faults include ids and vectors that the model refuses
        point = PointStruct.model_construct(id=point_id, vector=vector, payload=payload)
        self.put_row(key or key_of(point_id, protocol), pickle.dumps(point, protocol=protocol))

    def edit(self, point_id: Any, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the payload of a point in place, as a foreign tool would."""
        point = self.points()[point_id]
        payload = dict(point.payload)
        change(payload)
        key, _blob = self.row_of(point_id)
        self.put(point_id, payload, point.vector, key=key)

    def remove(self, point_id: Any) -> None:
        """Removes every row of a point."""
        with self._connection() as connection, _quiet():
            for rowid, _key, blob in connection.execute("SELECT rowid, id, point FROM points").fetchall():
                if pickle.loads(blob).id == point_id:
                    connection.execute("DELETE FROM points WHERE rowid = ?", (rowid,))


def key_of(point_id: Any, protocol: int = 4) -> str:
    """The key under which qdrant-client stores a point: base64 of the pickled id."""
    return base64.b64encode(pickle.dumps(point_id, protocol=protocol)).decode()


class RawHistory:
    """history.db, read and changed with SQLite alone. Only for a store that nobody has open."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """One statement with bound parameters, committed; the rows it gives."""
        connection = sqlite3.connect(self.path)
        try:
            rows = list(connection.execute(sql, parameters))
            connection.commit()
        finally:
            connection.close()
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """Every row of `history` in rowid order, as dicts with `rowid`."""
        connection = sqlite3.connect(self.path)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute("SELECT rowid, * FROM history ORDER BY rowid")]
        finally:
            connection.close()

    def last_events(self) -> dict[str, tuple[str, str | None]]:
        """memory id -> (last event, text after it)."""
        return {row["memory_id"]: (row["event"], row["new_memory"]) for row in self.rows()}

    def add(self, memory_id: Any, old: Any, new: Any, event: Any, **columns: Any) -> None:
        """Appends a row as mem0 2.x shapes it; other columns by name."""
        values: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "memory_id": memory_id,
            "old_memory": old,
            "new_memory": new,
            "event": event,
            "created_at": None,
            "updated_at": None,
            "is_deleted": int(event == "DELETE"),
            "actor_id": None,
            "role": None,
            **columns,
        }
        names = ", ".join(values)
        marks = ", ".join("?" for _ in values)
        self.run(f"INSERT INTO history ({names}) VALUES ({marks})", *values.values())


def difference(history: Path | str, vectors: Path | str, collection: str = "mem0") -> dict[str, set[str]]:
    """Where the two stores disagree, told the slow and simple way: {"lost", "unlogged", "resurrected",
    "text"} -> memory ids. What an audit must find, from code that shares nothing with it."""
    last = RawHistory(history).last_events()
    points = {str(i): p.payload or {} for i, p in RawPoints(vectors, collection).points().items()}
    return {
        "lost": {i for i, (event, _t) in last.items() if event != "DELETE" and i not in points},
        "unlogged": {i for i in points if i not in last},
        "resurrected": {i for i, (event, _t) in last.items() if event == "DELETE" and i in points},
        "text": {
            i
            for i, (event, text) in last.items()
            if event != "DELETE" and i in points and points[i].get("data") != text
        },
    }
