"""The same door from the inside: the agent's own `Memory`, in the agent's own process, through a shallow copy of it.

The agent goes on with its `Memory` meanwhile: nothing of it is swapped. mem0 is not imported here: it is the caller's.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import platform
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final

from mem0audit.core.errors import Failed, Refused, UsageProblem
from mem0audit.stores.mem0api import ServerAccess, Unlinked, WorkerVersions

_TRIES: Final = 5
_AGAIN_S: Final = 0.05
_OF_CLIENTS: Final = frozenset({"qdrant_client", "httpx", "httpcore", "grpc"})


class ModelAsked(BaseException):
    """mem0 wanted a model. Not an Exception: mem0 swallows those and would go on."""


class _NoModel:
    """Stands where the embedder and the language model would be; telemetry looks at the configuration."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def __getattr__(self, name: str) -> Any:
        raise ModelAsked(f"mem0 asked a model ({name})")


@dataclass(frozen=True)
class LiveStores:
    """Where a `Memory` keeps things, as it was given them: its log, its collection, and either the folder of the
    vectors or, with `server`, the Qdrant server."""

    history: str
    vectors: str
    collection: str
    server: ServerAccess | None = None


def stores_of(memory: Any) -> LiveStores:
    """Where this `Memory` (or `AsyncMemory`) keeps its memories. Raises UsageProblem where it is none, Refused where
    its store is neither an embedded Qdrant folder nor a Qdrant server."""
    store, log = getattr(memory, "vector_store", None), getattr(memory, "db", None)
    if store is None or log is None or not hasattr(memory, "collection_name"):
        raise UsageProblem("this is no open mem0 Memory")
    # qdrant_client: QdrantClient._client is a QdrantLocal, which knows its folder, or a QdrantRemote
    client = getattr(getattr(store, "client", None), "_client", None)
    location, url = getattr(client, "location", None), getattr(client, "rest_uri", None)
    history = getattr(log, "db_path", None)
    if not isinstance(history, str) or history == ":memory:":
        raise Refused("this Memory keeps no log on the disk")
    if isinstance(url, str):
        key = getattr(client, "_api_key", None)
        server = ServerAccess(url, key if isinstance(key, str) and key else None)
        return LiveStores(history, url, str(memory.collection_name), server)
    if not isinstance(location, str) or location == ":memory:":
        raise Refused("this Memory's vector store is neither an embedded Qdrant folder nor a Qdrant server")
    return LiveStores(history, location, str(memory.collection_name))


def is_async(memory: Any) -> bool:
    """Whether it is an `AsyncMemory`."""
    return inspect.iscoroutinefunction(getattr(type(memory), "delete", None))


def versions_here() -> WorkerVersions:
    """What this process runs."""
    mem0, client = (
        next((d.version for d in metadata.distributions(name=name)), None)
        for name in ("mem0ai", "qdrant-client")
    )
    return WorkerVersions(platform.python_version(), mem0, client)


class LiveMemory:
    """Deletions through a `Memory` that is in use. A context manager: inside it, SQLite overwrites what is deleted.

    The methods are those of `Mem0Worker`. Other threads of the agent use the same connections: what fails on that
    account is tried again. Raises Failed.
    """

    def __init__(self, memory: Any) -> None:
        self._memory = copy.copy(memory)
        for name in ("embedding_model", "llm"):
            setattr(self._memory, name, _NoModel(getattr(getattr(memory, name, None), "config", None)))
        # mem0 1.0.8 to 1.0.11 ask the graph's own language model what to delete there
        self.has_graph = bool(getattr(memory, "enable_graph", False))
        if self.has_graph:
            self._memory.enable_graph = False
        # what is open already is the agent's
        self._memory._entity_store = None
        self._is_async = is_async(memory)
        self.versions = versions_here()
        self.overwrites = False
        self._before: list[tuple[sqlite3.Connection, int]] = []

    @contextmanager
    def opened(self) -> Iterator[LiveMemory]:
        """Itself; the connections are given back as they were."""
        connections = self._connections()
        try:
            for connection in connections.values():
                (was,) = connection.execute("PRAGMA secure_delete").fetchone()
                self._before.append((connection, was))
                connection.execute("PRAGMA secure_delete = ON").fetchall()
            self.overwrites = {"history", str(self._memory.collection_name)} <= set(connections)
            yield self
        except ModelAsked as asked:
            raise Failed(f"{asked}, and was stopped there", "the same call finishes it") from None
        finally:
            for connection, was in self._before:
                connection.execute(f"PRAGMA secure_delete = {int(was)}").fetchall()

    def _connections(self) -> dict[str, sqlite3.Connection]:
        found = {}
        connection = getattr(self._memory.db, "connection", None)
        if isinstance(connection, sqlite3.Connection):
            found["history"] = connection
        local = getattr(getattr(self._memory.vector_store, "client", None), "_client", None)
        for name, collection in (getattr(local, "collections", None) or {}).items():
            connection = getattr(getattr(collection, "storage", None), "storage", None)
            if isinstance(connection, sqlite3.Connection):
                found[str(name)] = connection
        return found

    def delete(self, memory_id: str | int, still: Callable[[Mapping[str, Any]], bool] | None = None) -> bool:
        """Deletes one memory by id; False where there is none, or where `still` says of its payload that it stays.

        Threads that meet on Qdrant's one connection lose writes, a deletion too: the client then knows the memory no
        more, and its row stays on the disk. mem0's vector store takes that away without a look at what it knows."""
        # with it open each deletion looks through every entity
        self._memory._entity_store = None
        problem: Exception | None = None
        for _ in range(_TRIES):
            with self._served("delete"):
                there = self._memory.vector_store.get(vector_id=memory_id)
            if there is None:
                problem = self._again(self._memory.vector_store, memory_id)
                if problem is None:
                    return False
                time.sleep(_AGAIN_S)
                continue
            if not (still is None or still(there.payload or {})):
                return False
            problem = self._try(memory_id)
            if problem is None:
                return True
            time.sleep(_AGAIN_S)
        raise Failed(f"mem0 {self.versions.mem0} failed at delete: {type(problem).__name__}")

    def delete_each(self, memory_ids: Iterable[str | int]) -> Iterator[bool]:
        """As `delete`, of one after the other."""
        return map(self.delete, memory_ids)

    def unlink_each(self, links: Iterable[tuple[str | int, Collection[str]]]) -> Iterator[Unlinked]:
        """As `unlink`, of one entity after the other."""
        return (self.unlink(*one) for one in links)

    def _try(self, memory_id: str | int) -> Exception | None:
        """One deletion. What it returns was raised where two threads met on one connection, or another one deleted
        the memory between."""
        try:
            with self._served("delete"):
                done = self._memory.delete(memory_id)
                if self._is_async:
                    asyncio.run(_awaited(done))
        except (ValueError, sqlite3.Error, SystemError) as error:
            return error
        return None

    @contextmanager
    def _served(self, what: str) -> Iterator[None]:
        """What a server's client raises may hold what the server answered: only its kind is said."""
        try:
            yield
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _OF_CLIENTS:
                raise
            raise Failed(
                f"mem0 {self.versions.mem0} failed at {what}: {type(error).__name__}",
                "the same call finishes it",
            ) from None

    @staticmethod
    def _again(store: Any, point_id: str | int) -> Exception | None:
        """Takes a row from the disk that the client does not know any more. KeyError: it never did."""
        try:
            store.delete(vector_id=point_id)
        except KeyError:
            return None
        except (sqlite3.Error, SystemError) as error:
            return error
        return None

    def unlink(self, entity_id: str | int, memory_ids: Collection[str]) -> Unlinked:
        """Takes links to these memories from one entity; one that links nothing then is deleted."""
        problem: Exception | None = None
        for _ in range(_TRIES):
            try:
                with self._served("unlink"):
                    return self._unlinked(entity_id, memory_ids)
            except (sqlite3.Error, SystemError) as error:
                problem = error
            time.sleep(_AGAIN_S)
        raise Failed(f"mem0 {self.versions.mem0} failed at unlink: {type(problem).__name__}")

    def _unlinked(self, entity_id: str | int, memory_ids: Collection[str]) -> Unlinked:
        store = self._memory.entity_store
        row = store.get(vector_id=entity_id)
        if row is None:
            self._again(store, entity_id)
            return Unlinked(0, False)
        payload = dict(row.payload or {})
        links = list(payload.get("linked_memory_ids") or [])
        left = [one for one in links if str(one) not in set(memory_ids)]
        if not left:
            store.delete(vector_id=entity_id)
            return Unlinked(len(links), True)
        # also where the client has them no more: on the disk they were
        payload["linked_memory_ids"] = left
        store.update(vector_id=entity_id, vector=None, payload=payload)
        return Unlinked(len(links) - len(left), False)


async def _awaited(done: Any) -> Any:
    return await done
