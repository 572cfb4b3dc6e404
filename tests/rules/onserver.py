"""Folders loaded into a Qdrant server, and the audit of the same install with its vectors there."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path
from typing import Any

from mem0audit.core.model import Install, Origin, Report
from mem0audit.install.host import Host, this_host
from mem0audit.operations.audit import audit
from tests.builders import DIMS, RawPoints, vector_of
from tests.qdrant_server import QdrantServer


class NoServerHoldsIt(Exception):
    """The folder does not read, or has a point that no server takes: an id that is no UUID, no JSON in it."""


def load(vectors: Path | str, server: QdrantServer, *, indexes: bool = True, **config: Any) -> None:
    """Puts every point of every collection of a folder into collections of the same names, as mem0 makes them; others
    there go. `config` is said of each beside that: shards, replicas."""
    wanted = {path.parent.name for path in Path(vectors).glob("collection/*/storage.sqlite")}
    there = server.collections()
    for name in there - wanted:
        server.result("DELETE", f"/collections/{name}")
    for name in sorted(wanted):
        try:
            points = [_point(i, p) for i, p in RawPoints(vectors, name).points().items()]
        except sqlite3.DatabaseError as error:
            raise NoServerHoldsIt(name) from error
        if name in there:  # quicker than a new one
            server.result("POST", f"/collections/{name}/points/delete?wait=true", {"filter": {}})
        else:
            make_collection(server, name, indexes=indexes, **config)
        if points:
            status, answer = server.request(
                "PUT", f"/collections/{name}/points?wait=true", {"points": points}
            )
            if status != 200:
                raise NoServerHoldsIt(answer)


def make_collection(server: QdrantServer, name: str, *, indexes: bool = True, **config: Any) -> None:
    """A collection as mem0 makes one on a server, with its indexes."""
    vectors = {"size": DIMS, "distance": "Cosine"}
    sparse = {"bm25": {"modifier": "idf"}}
    body = {"vectors": vectors, "sparse_vectors": sparse, **config}
    server.result("PUT", f"/collections/{name}?timeout=30", body)
    for field in ("user_id", "agent_id", "run_id", "actor_id") if indexes else ():
        index = {"field_name": field, "field_schema": "keyword"}
        server.result("PUT", f"/collections/{name}/index?wait=true", index)


def _point(point_id: Any, point: Any) -> dict[str, Any]:
    payload = point.payload or {}
    try:
        json.dumps(payload, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise NoServerHoldsIt(point_id) from error
    # no rule that is compared judges a vector
    return {"id": point_id, "vector": {"": vector_of(str(point_id))}, "payload": payload}


def on_server(install: Install, url: str) -> Install:
    """The same install with its vectors on a server."""
    return dataclasses.replace(install, vectors=None, server_url=Origin(url, "the test"))


def server_report(install: Install, url: str, on: Host | None = None, **options: Any) -> Report:
    """The audit of an install whose vectors are on the server; nothing is kept of it."""
    machine = on or this_host()
    return audit(on_server(install, url), machine, pause=lambda seconds: None, keep=False, **options)


def found(report: Report, groups: str) -> list[tuple[str, str | None]]:
    """(code, memory id) of every finding of these groups."""
    return sorted(
        ((f.code, f.memory_id) for f in report.findings if f.code[0] in groups),
        key=lambda pair: (pair[0], str(pair[1])),
    )
