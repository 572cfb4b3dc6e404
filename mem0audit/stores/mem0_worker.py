"""The worker: runs the agent's own mem0 for us, in the agent's own Python.

It is run as a program, by an interpreter that has mem0 (any 0.1 to 2.2) and nothing of ours: so it keeps to
the standard library and to what Python 3.8 understands, and imports nothing of this project. It reads one
JSON object a line from standard input, one operation each, and writes one JSON object a line to the
descriptor named by `--answers`; whatever mem0 prints goes to standard error. Requests, in this order:

    {"op": "hello"}
    {"op": "open", "history": PATH, "vectors": PATH, "collection": NAME, "mem0_dir": PATH, "dims": 8,
     "embedder": "none"}
    {"op": "add", "text": TEXT, "owner": {"user_id": "alice"}, "metadata": {}, "expiration_date": null}
    ...
    {"op": "close"}

With `"server": {"url": URL, "api_key": KEY}` in the request to open, the vector store is that Qdrant server and
`vectors` names nothing; the key comes this way only, and is never printed.

An answer is {"ok": true, ...} or {"ok": false, "error": CLASS, "detail": SHORT}, without memory text. A line may be a
list of operations too: each is answered by a line of its own as it is done, and none is done after one that failed.

No language model is ever called, and with `"embedder": "none"` no embedder either: anything asked of one, and any
connection to a network but to that server, ends the process by an exception that mem0's `except Exception` cannot
swallow. `"offline"`
gives each text a vector computed from the text (the demo and tests); `"config"` embeds with what `"config"` (the dict
that the user gives to `Memory.from_config`) says, over whatever network that needs.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # The current folder comes first in sys.path: its files must not stand in for anything of mem0's.
    del sys.path[0]

import hashlib
import importlib
import inspect
import json
import math
import os
import socket
import warnings
from importlib import metadata
from typing import Any, Callable, Dict, Optional  # noqa: UP035 - Python 3.8
from urllib.parse import urlsplit

Request = Dict[str, Any]  # noqa: UP006 - Python 3.8

VERSION = 1
EXIT_MODEL_ASKED = 3
EXIT_CRASHED_ON_PURPOSE = 9


class ModelAsked(BaseException):
    """mem0 wanted a model or the network. Not an Exception: mem0 swallows those and would go on."""


def vector_of(text: object, dims: int) -> list[float]:
    """A unit vector of `dims` floats that depends on the text alone."""
    digest = hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).digest()
    values = [(digest[i % 32] - 127.5) / 127.5 + i * 1e-6 for i in range(dims)]
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    return [value / norm for value in values]


class _Config:
    """mem0's telemetry and some of its stores look at these of a model's configuration."""

    def __init__(self, dims: int) -> None:
        self.embedding_dims = dims
        self.model = "offline"


class OfflineEmbedder:
    """Answers what mem0 asks an embedder, in all versions: `embed(text, action)` and `embed_batch`."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self.config = _Config(dims)

    def embed(self, text: object, *_args: Any, **_kwargs: Any) -> list[float]:
        """The vector of one text."""
        return vector_of(text, self.dims)

    def embed_batch(self, texts: list[object], *_args: Any, **_kwargs: Any) -> list[list[float]]:
        """The vectors of several texts."""
        return [vector_of(text, self.dims) for text in texts]


class NoModel:
    """Stands where the language model would be."""

    def __init__(self) -> None:
        self.config = _Config(0)

    def generate_response(self, *_args: Any, **_kwargs: Any) -> str:
        """Ends the run."""
        raise ModelAsked("mem0 asked a language model")


class KnownVectors:
    """Stands where the embedder would be: knows the vectors that it was given, and ends the run for any other text."""

    def __init__(self, dims: int) -> None:
        self.config = _Config(dims)
        self.vectors: Dict[str, Any] = {}  # noqa: UP006 - Python 3.8

    def embed(self, text: object, *_args: Any, **_kwargs: Any) -> Any:
        """The vector of one text."""
        if text not in self.vectors:
            raise ModelAsked("mem0 asked an embedder")
        return self.vectors[str(text)]

    def embed_batch(self, texts: list[object], *_args: Any, **_kwargs: Any) -> Any:
        """The vectors of several texts."""
        return [self.embed(text) for text in texts]


def refuse_network(event: str, _args: Any) -> None:
    """An audit hook (sys.addaudithook) under which no connection is made and no name is looked up."""
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        raise ModelAsked("mem0 asked the network")


QDRANT_PORT = 6333
"""Where qdrant-client looks for a server whose URL names no port, with http and with https alike."""


def refuse_network_but(url: str) -> Callable[[str, Any], None]:
    """The same hook with one server let through: its name may be looked up, and a connection made to what it means."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or QDRANT_PORT
    try:
        allowed = {found[4][0] for found in socket.getaddrinfo(host, port)}
    except OSError:
        raise Refusal("the name of the Qdrant server cannot be looked up") from None

    def hook(event: str, args: Any) -> None:
        if event == "socket.connect":
            address = args[1]
            if isinstance(address, tuple) and address[0] in allowed and address[1] == port:
                return
        if event == "socket.getaddrinfo" and args[0] in (host, host.encode(), *allowed):
            return
        refuse_network(event, args)

    return hook


class Refusal(Exception):
    """This mem0 cannot do what was asked; the text is ours and safe to show."""


def _version_tuple(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split(".")[:3]:
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        numbers.append(int(digits or 0))
    return tuple(numbers + [0] * (3 - len(numbers)))


def installed_version(name: str) -> Optional[str]:  # noqa: UP045 - Python 3.8
    """The version of an installed package, from its metadata, without importing it; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class Worker:
    """One `Memory` of the installed mem0 and what is asked of it."""

    def __init__(self) -> None:
        self.memory: Any = None
        self.known: Any = None
        self.folder: Any = None
        self.parameters: dict[str, set[str]] = {}

    # -- the life of the Memory ------------------------------------------------------------------

    def op_hello(self, _request: Request) -> Request:
        """Versions, without importing mem0."""
        return {
            "worker": VERSION,
            "python": ".".join(map(str, sys.version_info[:3])),
            "mem0": installed_version("mem0ai"),
            "client": installed_version("qdrant-client"),
        }

    def op_open(self, request: Request) -> Request:
        """Constructs `Memory` on the given paths. Up to mem0 1.0.7 a local folder must be opened with
        on_disk=True, or its constructor deletes the folder (vector_stores/qdrant.py, `shutil.rmtree`)."""
        if self.memory is not None:
            raise Refusal("already open")
        embedder = request.get("embedder", "none")
        self._environment(request, keep=embedder == "config")
        if embedder != "config":
            server = request.get("server")
            sys.addaudithook(refuse_network if server is None else refuse_network_but(server["url"]))
            # urllib3 opens a socket when it is imported, to see whether this machine has IPv6
            setattr(importlib.import_module("socket"), "has_ipv6", False)  # noqa: B010 - the types call it a constant
        warnings.simplefilter("ignore")
        memory_class = importlib.import_module("mem0").Memory
        self.memory = memory_class.from_config(self._config(request, embedder))
        dims = int(request.get("dims") or 0)
        if embedder == "offline":
            self.memory.embedding_model = OfflineEmbedder(dims)
        elif embedder == "none":
            self.known = self.memory.embedding_model = KnownVectors(dims)
        self.memory.llm = NoModel()
        for name in ("add", "update"):
            self.parameters[name] = set(inspect.signature(getattr(memory_class, name)).parameters)
        answer = self.op_hello(request)
        answer["overwrites"] = self._overwrite_what_is_deleted()
        return answer

    @staticmethod
    def _config(request: Request, embedder: str) -> Request:
        """What `Memory.from_config` is given: every path is ours, and of the user's own only the embedder is kept."""
        dims = request.get("dims")
        given = request.get("config") or {}
        theirs = (given.get("vector_store") or {}).get("config") or {}
        store: Request = {"collection_name": request["collection"], "path": request["vectors"]}
        server = request.get("server")
        if server is not None:
            # mem0 takes a url without a key only beside a path, which it then does not use
            store.update(path=request["mem0_dir"], url=server["url"])
            if server.get("api_key"):
                store["api_key"] = server["api_key"]
        size = dims or theirs.get("embedding_model_dims")
        if size:
            store["embedding_model_dims"] = int(size)
        if server is None and _version_tuple(installed_version("mem0ai") or "0") <= (1, 0, 7):
            store["on_disk"] = True
        # a made-up key lets the constructors pass; the clients they make are replaced before any use
        config: Request = {
            "vector_store": {"provider": "qdrant", "config": store},
            "llm": {"provider": "openai", "config": {"api_key": "sk-offline"}},
            "history_db_path": request["history"],
        }
        if embedder != "config":
            config["embedder"] = {
                "provider": "openai",
                "config": {"api_key": "sk-offline", "embedding_dims": int(dims or 0)},
            }
        elif given.get("embedder"):
            config["embedder"] = given["embedder"]
        return config

    @staticmethod
    def _environment(request: Request, keep: bool) -> None:
        """Where mem0 writes beside the two stores, set before its import: config.json and, in 0.1.89 to
        1.0.5, a `migrations_qdrant` folder go to MEM0_DIR even with telemetry off. With `keep` an embedder finds its
        keys and its models."""
        if not keep:
            for name in list(os.environ):
                if name.startswith(("OPENAI_", "AZURE_", "QDRANT_")):
                    del os.environ[name]
            os.environ["HOME"] = request["mem0_dir"]
            os.environ["OPENAI_API_KEY"] = "sk-offline"
        for name in list(os.environ):
            if name.startswith("MEM0_") or name == "PYTHONSTARTUP":
                del os.environ[name]
        os.environ["MEM0_DIR"] = request["mem0_dir"]
        os.environ["MEM0_TELEMETRY"] = "False"
        if request.get("server") is not None:
            # no proxy of the caller's environment: the key and the memories go to that server alone
            host = urlsplit(request["server"]["url"]).hostname or ""
            for name in ("NO_PROXY", "no_proxy"):
                os.environ[name] = ",".join(filter(None, (os.environ.get(name), host)))

    def _connections(self) -> Dict[str, Any]:  # noqa: UP006 - Python 3.8
        """mem0's own connections to SQLite, by what they are of."""
        found: Dict[str, Any] = {}  # noqa: UP006 - Python 3.8
        connection = getattr(getattr(self.memory, "db", None), "connection", None)
        if connection is not None:
            found["history"] = connection
        # qdrant_client/local: QdrantLocal.collections, LocalCollection.storage, CollectionPersistence.storage
        local = getattr(getattr(getattr(self.memory, "vector_store", None), "client", None), "_client", None)
        for name, collection in (getattr(local, "collections", None) or {}).items():
            connection = getattr(getattr(collection, "storage", None), "storage", None)
            if connection is not None:
                found[name] = connection
        return found

    def _overwrite_what_is_deleted(self) -> bool:
        """Has SQLite overwrite with zeros what mem0 deletes (`secure_delete`); whether it does on every connection."""
        connections = self._connections()
        said = []
        for connection in connections.values():
            connection.execute("PRAGMA secure_delete = ON").fetchall()
            said.append(connection.execute("PRAGMA secure_delete").fetchone()[0] == 1)
        return all(said) and {"history", getattr(self.memory, "collection_name", None)} <= set(connections)

    def op_open_folder(self, _request: Request) -> Request:
        """Makes a new store of qdrant-client's local mode in the current folder, which must be empty."""
        if self.memory is not None or self.folder is not None:
            raise Refusal("already open")
        with os.scandir(".") as entries:
            is_empty = next(entries, None) is None
        if not is_empty:
            raise Refusal("the folder is not empty")
        sys.addaudithook(refuse_network)
        warnings.simplefilter("ignore")
        self.folder = importlib.import_module("qdrant_client").QdrantClient(path=".")
        answer = self.op_hello({})
        answer["overwrites"] = False
        return answer

    def op_make(self, request: Request) -> Request:
        """A collection in it as mem0 makes them: `name`, `dims`, `distance`, with `keywords` mem0 2.x's `bm25` slot."""
        models = importlib.import_module("qdrant_client.models")
        distance = models.Distance(request["distance"])
        words: Request = {
            "vectors_config": models.VectorParams(size=request["dims"], distance=distance, on_disk=False)
        }
        if request["keywords"]:
            words["sparse_vectors_config"] = {"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)}
        self.folder.create_collection(collection_name=request["name"], **words)
        return {}

    def op_put(self, request: Request) -> Request:
        """Points with their `id`, `dense` vector, `keyword` vector ([indices, values]) and `payload`, null where there
        is none, as mem0 writes them."""
        models = importlib.import_module("qdrant_client.models")
        points = []
        for one in request["points"]:
            vectors: Any = {}
            if one["dense"] is not None:
                vectors[""] = one["dense"]
            if one["keyword"] is not None:
                vectors["bm25"] = models.SparseVector(indices=one["keyword"][0], values=one["keyword"][1])
            if not request["keywords"]:
                vectors = one["dense"] if one["dense"] is not None else {}
            points.append(models.PointStruct(id=one["id"], vector=vectors, payload=one["payload"]))
        self.folder.upsert(collection_name=request["name"], points=points)
        return {}

    def op_close(self, _request: Request) -> Request:
        """Lets go of every file."""
        folder, self.folder = self.folder, None
        if folder is not None:
            folder.close()
        memory, self.memory = self.memory, None
        if memory is not None:
            for name in ("vector_store", "_telemetry_vector_store", "_entity_store"):
                client = getattr(getattr(memory, name, None), "client", None)
                if client is not None:
                    client.close()
            connection = getattr(memory.db, "connection", None)
            if connection is not None:
                connection.close()
                # its __del__ closes again
                memory.db.connection = None
        return {}

    # -- what an agent does ----------------------------------------------------------------------

    @staticmethod
    def _scope(owner: Request) -> Request:
        return {key: owner[key] for key in ("user_id", "agent_id", "run_id") if owner.get(key) is not None}

    def op_add(self, request: Request) -> Request:
        """Adds one text as it is (`infer=False`), and gives its id."""
        if "infer" not in self.parameters["add"]:
            raise Refusal("this mem0 cannot add a memory without a language model")
        extra: Request = {"infer": False}
        if request.get("metadata") is not None:
            extra["metadata"] = request["metadata"]
        if request.get("expiration_date") is not None:
            if "expiration_date" not in self.parameters["add"]:
                raise Refusal("this mem0 knows no expiration date")
            extra["expiration_date"] = request["expiration_date"]
        message = {"role": request.get("role") or "user", "content": request["text"]}
        if request.get("name"):
            # becomes the memory's actor_id; mem0 strips that from metadata from 2.0.16 on
            message["name"] = request["name"]
        result = self.memory.add([message], **self._scope(request["owner"]), **extra)
        added = result["results"] if isinstance(result, dict) else result
        if len(added) != 1:
            raise Refusal(f"mem0 added {len(added)} memories instead of one")
        return {"id": str(added[0]["id"])}

    def op_update(self, request: Request) -> Request:
        """Replaces the text (and, from mem0 1.0.8 on, merges metadata)."""
        extra: Request = {}
        if request.get("metadata") is not None:
            if "metadata" not in self.parameters["update"]:
                raise Refusal("this mem0 cannot change metadata")
            extra["metadata"] = request["metadata"]
        self._keep_entities_away()
        self.memory.update(request["id"], request["text"], **extra)
        return {}

    def op_rewrite(self, request: Request) -> Request:
        """An update that keeps the vectors: `vector` and `keyword` ({"indices", "values"} or null) are the point's own.

        `text` is the text as it is; `metadata` is merged; `expiration_date` is set where the request has one. mem0's
        Qdrant.update upserts the whole point, and without an encoder in this process drops the `bm25` vector."""
        if self.known is None:
            raise Refusal("opened with an embedder of its own")
        if _version_tuple(installed_version("mem0ai") or "0") < (2, 0, 7):
            raise Refusal("before 2.0.7 an update loses custom metadata")
        extra: Request = {}
        if request.get("metadata") is not None:
            extra["metadata"] = request["metadata"]
        if "expiration_date" in request:
            if "expiration_date" not in self.parameters["update"]:
                raise Refusal("this mem0 knows no expiration date")
            extra["expiration_date"] = request["expiration_date"]
        keyword = request.get("keyword")
        sparse = None
        if keyword is not None:
            sparse = importlib.import_module("qdrant_client.models").SparseVector(**keyword)
        store = self.memory.vector_store
        self.known.vectors = {request["text"]: request["vector"]}
        store._encode_bm25 = lambda _text: sparse
        # the text stays, and so do its entities; mem0 would embed theirs
        entities = ("_remove_memory_from_entity_store", "_link_entities_for_memory")
        for name in entities:
            setattr(self.memory, name, lambda *_args, **_kwargs: None)
        try:
            self.memory.update(request["id"], request["text"], **extra)
        finally:
            self.known.vectors = {}
            del store._encode_bm25
            for name in entities:
                delattr(self.memory, name)
        return {}

    def _entities(self) -> Optional[str]:  # noqa: UP045 - Python 3.8
        """The name of the entities' collection, None where there is none: then `memory.entity_store` must stay
        untouched, for it would create one and rewrite meta.json."""
        name = str(self.memory.collection_name) + "_entities"
        there = self.memory.vector_store.client.get_collections().collections
        return name if any(one.name == name for one in there) else None

    def _keep_entities_away(self) -> None:
        """Sees that an update makes no entities' collection where there is none."""
        if hasattr(self.memory, "_link_entities_for_memory") and self._entities() is None:
            self.memory._link_entities_for_memory = lambda *_args, **_kwargs: None

    def op_expire(self, request: Request) -> Request:
        """Sets (or with null clears) the expiration date of a memory; the text stays."""
        if "expiration_date" not in self.parameters["update"]:
            raise Refusal("this mem0 knows no expiration date")
        self.memory.update(request["id"], expiration_date=request["date"])
        return {}

    def op_delete(self, request: Request) -> Request:
        """Deletes one memory; `deleted` is false where there is none with this id.

        With its entity store open mem0 would look through every entity of the owner, once a deletion: what the
        entities link is taken from them by `unlink`, so it is closed meanwhile."""
        entities = getattr(self.memory, "_entity_store", None)
        if entities is not None:
            self.memory._entity_store = None
        try:
            self.memory.delete(request["id"])
        except (ValueError, AttributeError):
            # what mem0 raises where there is none: ValueError from 1.0.7 on
            if self.memory.vector_store.get(vector_id=request["id"]) is not None:
                raise
            return {"deleted": False}
        finally:
            if entities is not None:
                self.memory._entity_store = entities
        return {"deleted": True}

    def op_unlink(self, request: Request) -> Request:
        """Takes links to `memories` from one entity, by its payload; an entity that links nothing then is deleted.

        Through mem0's own entity store. The vectors stay (a local Qdrant normalises them, as it does at any change of
        a payload). `links` is how many went, `deleted` whether the entity did."""
        if not hasattr(type(self.memory), "entity_store"):
            raise Refusal("this mem0 knows no entities")
        if self._entities() is None:
            return {"links": 0, "deleted": False}
        store = self.memory.entity_store
        row = store.get(vector_id=request["id"])
        if row is None:
            return {"links": 0, "deleted": False}
        payload = dict(getattr(row, "payload", None) or {})
        links = payload.get("linked_memory_ids")
        links = list(links) if isinstance(links, (list, tuple)) else []
        gone = set(request["memories"])
        left = [one for one in links if str(one) not in gone]
        if not left:
            store.delete(vector_id=request["id"])
            return {"links": len(links), "deleted": True}
        if len(left) < len(links):
            payload["linked_memory_ids"] = left
            store.update(vector_id=request["id"], vector=None, payload=payload)
        return {"links": len(links) - len(left), "deleted": False}

    def op_get(self, request: Request) -> Request:
        """One memory as mem0 gives it, or null."""
        return {"memory": self.memory.get(request["id"])}

    def op_history(self, request: Request) -> Request:
        """The changes of one memory, as mem0 gives them."""
        return {"history": self.memory.history(request["id"])}

    def op_search(self, request: Request) -> Request:
        """What mem0 finds for a query, best first."""
        scope = self._scope(request["owner"])
        parameters = inspect.signature(self.memory.search).parameters
        limit = "top_k" if "top_k" in parameters else "limit"
        words: Request = scope if "user_id" in parameters else {"filters": scope}
        if "threshold" in parameters:
            words["threshold"] = 0.0
        result = self.memory.search(request["query"], **words, **{limit: request.get("limit") or 10})
        return {"results": result["results"] if isinstance(result, dict) else result}

    def op_delete_all(self, request: Request) -> Request:
        """Deletes a scope. `*` is refused: mem0 1.0.8 to 2.2.1 take it for everybody."""
        scope = self._scope(request["owner"])
        if not scope:
            raise Refusal("no owner given")
        if "*" in scope.values():
            raise Refusal("mem0 takes the owner * for everybody")
        self.memory.delete_all(**scope)
        return {}

    def op_reset(self, _request: Request) -> Request:
        """mem0's `reset()`: drops history and recreates the collection."""
        self.memory.reset()
        return {}

    def op_crash_after_vector(self, request: Request) -> Request:
        """Does one operation (`request["then"]`) and dies after the vector was written, before history was:
        what a kill between mem0's two writes does. Never answers."""

        def die(*_args: Any, **_kwargs: Any) -> None:
            os._exit(EXIT_CRASHED_ON_PURPOSE)

        for name in ("add_history", "batch_add_history"):
            if hasattr(self.memory.db, name):
                setattr(self.memory.db, name, die)
        self.answer(request["then"])
        raise Refusal("the operation wrote no history, so nothing was cut")

    # -- lines in, lines out ---------------------------------------------------------------------

    def answer(self, request: Request) -> Request:
        """Does one operation and gives what it answers."""
        operation = getattr(self, "op_" + str(request.get("op")), None)
        if operation is None:
            raise Refusal("unknown operation")
        is_open = self.memory is not None or (self.folder is not None and request["op"] in ("make", "put"))
        if not is_open and request["op"] not in ("hello", "open", "open_folder", "close"):
            raise Refusal("not open")
        result: Request = operation(request)
        return result


def _said_by_server(error: BaseException) -> Optional[str]:  # noqa: UP045 - Python 3.8
    """What went wrong between qdrant-client and its server, None where it was something else. The texts of its errors
    hold what the server answered."""
    seen = 0
    one: Optional[BaseException] = error  # noqa: UP045 - Python 3.8
    while one is not None and seen < 5:
        if type(one).__name__ == "ResponseHandlingException":
            return "the Qdrant server did not answer"
        if type(one).__name__ == "UnexpectedResponse":
            status = getattr(one, "status_code", "with an error")
            why = ": the key may not write" if status in (401, 403) else ""
            return f"the Qdrant server answered {status}{why}"
        one, seen = one.__cause__ or one.__context__, seen + 1
    return None


def safe_detail(error: Exception) -> str:
    """A short text about an error that cannot hold memory text: our own words, the words of two errors whose
    text is known to name only a path or an id, and for the rest nothing."""
    text = str(error)
    if isinstance(error, Refusal):
        return text
    if (said := _said_by_server(error)) is not None:
        return said
    if "already accessed by another instance" in text:
        return "the vector store is in use by another process"
    if "database is locked" in text:
        return "a database is locked by another process"
    if "readonly database" in text:
        return "a database cannot be written"
    if "disk is full" in text:
        return "the disk is full"
    # up to mem0 1.0.6 it looks for the payload of nothing
    if (
        "not found" in text and isinstance(error, ValueError)
    ) or "'NoneType' object has no attribute" in text:
        return "no such memory"
    if "dimension error" in text or "not aligned" in text:
        return "the vectors of this collection have other dimensions"
    if "Extra inputs are not permitted" in text and "CreateCollection" in text:
        return "the store was written by a newer qdrant-client than this one"
    if isinstance(error, ImportError):
        return "mem0 cannot be imported by this Python"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return ""


def main() -> int:
    """Answers requests until `close` or the end of the input; the exit status."""
    descriptor = int(sys.argv[sys.argv.index("--answers") + 1])
    os.set_inheritable(descriptor, False)
    answers = os.fdopen(descriptor, "w", encoding="utf-8")
    # what mem0 and its libraries print must not mix with anything
    os.dup2(2, 1)
    worker = Worker()
    status = 0
    for line in iter(sys.stdin.buffer.readline, b""):
        asked = json.loads(line.decode("utf-8"))
        for request in asked if isinstance(asked, list) else [asked]:
            try:
                reply: Request = {"ok": True}
                reply.update(worker.answer(request))
            except ModelAsked:
                reply = {"ok": False, "error": "ModelAsked", "detail": str(sys.exc_info()[1])}
                status = EXIT_MODEL_ASKED
            except Exception as error:  # noqa: BLE001 - whatever mem0 raises is answered
                reply = {"ok": False, "error": type(error).__name__, "detail": safe_detail(error)}
            answers.write(json.dumps(reply, default=str) + "\n")
            answers.flush()
            if not reply["ok"]:
                break
        if status or request.get("op") == "close":
            break
    else:
        worker.op_close({})
    return status


if __name__ == "__main__":
    # not sys.exit: libraries' exit handlers have nothing left to do, and some hang
    code = main()
    sys.stderr.flush()
    os._exit(code)
