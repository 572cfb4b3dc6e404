"""What a Qdrant server keeps of deleted memories beside the points: other collections, its own snapshots, and bytes in
its files that cannot be searched from here.

Deleting a point marks it; its bytes stay in the segment until the optimizer rewrites that, and in the write-ahead log
until newer writes have filled it, a restart or not. A segment is rewritten when a fifth of its points are deleted and
a thousand are in it; both limits can be lowered for a moment (run with 1.16.3, looked for in its files).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mem0audit.core.errors import ServerProblem
from mem0audit.core.model import Install, NotChecked
from mem0audit.core.reading import ENTITIES_SUFFIX
from mem0audit.core.residue import Copy, Rows
from mem0audit.core.scopes import Scope
from mem0audit.stores.server import Connection, collection_path, connection_to
from mem0audit.stores.serverstore import ServerStore


@dataclass
class KeptByServer:
    """What was found, and what could not be looked at."""

    rows: list[Rows] = field(default_factory=list)
    copies: tuple[Copy, ...] = ()
    not_searched: list[NotChecked] = field(default_factory=list)


def kept_by_server(install: Install, scope: Scope | None, ids: Collection[str]) -> KeptByServer:
    """What else the server of an install keeps of a scope, or of these memories. Read calls only; raises nothing."""
    assert install.server_url is not None
    url, found = install.server_url.value, KeptByServer()
    with connection_to(install) as connection:
        layout = ServerStore(connection, install.collection.value).layout()
        if layout.problem is not None:
            return found  # it was said where the points were to be read
        store = ServerStore(connection, install.collection.value)
        for info in layout.collections:
            if info.foreign:
                try:
                    count = max(len(store.holding(info, ids)), _of_scope(connection, info.name, scope))
                    if count:
                        found.rows.append(Rows("points", info.name, info.path, count, count))
                except ServerProblem as problem:
                    found.not_searched.append(NotChecked(info.path, problem.message.removeprefix(f"{url}: ")))
        copies, gaps = _snapshots(connection, [info.name for info in layout.collections], url)
        found.copies = tuple(copies)
        found.not_searched += gaps
        found.not_searched += _of_other_nodes(connection, install.collection.value)
        found.not_searched.append(_files(connection, install.collection.value, url))
    return found


def _of_scope(connection: Connection, name: str, scope: Scope | None) -> int:
    if scope is None:
        return 0
    must = [{"key": key, "match": {"value": value}} for key, value in scope.named]
    body = {"filter": {"must": must}, "exact": True}
    return int(connection.post(collection_path(name, "points", "count"), body)["count"])


def _snapshots(
    connection: Connection, names: Collection[str], url: str
) -> tuple[list[Copy], list[NotChecked]]:
    """Qdrant's own snapshots, of a collection or of the whole storage: whether they hold it is not known."""
    copies: list[Copy] = []
    gaps: list[NotChecked] = []
    for path in ["/snapshots", *(collection_path(name, "snapshots") for name in names)]:
        try:
            listed = connection.get(path)
        except ServerProblem as problem:
            if problem.kind not in ("missing", "forbidden"):
                gaps.append(NotChecked(f"{url}{path}", problem.message.removeprefix(f"{url}: ")))
            else:
                gaps.append(NotChecked(f"{url}{path}", "may not be listed with this key"))
            continue
        for one in listed if isinstance(listed, list) else ():
            where = f"{url}{path}/{one.get('name')}"
            copies.append(
                Copy("snapshot on the server", where, None, None, f"until it is removed: DELETE {where}")
            )
    if copies:
        why = "they were not looked into: one from before a deletion holds what was deleted"
        gaps.append(NotChecked(f"{len(copies):,} snapshots on the server", why))
    return copies, gaps


def _of_other_nodes(connection: Connection, name: str) -> list[NotChecked]:
    """What the other nodes of a cluster keep, each for itself: of that, this one says nothing."""
    try:
        others = len(
            {one["peer_id"] for one in connection.get(collection_path(name, "cluster"))["remote_shards"]}
        )
    except (ServerProblem, TypeError, KeyError):
        return []
    if not others:
        return []
    why = (
        "each lists its own snapshots and keeps its own files: ask each, by its own address, as --qdrant-url"
    )
    return [NotChecked(f"{others} other nodes of the cluster", why)]


def _files(connection: Connection, name: str, url: str) -> NotChecked:
    """The server's own files, with how many deleted points they still hold where it says that."""
    deleted: int | None = None
    with suppress(ServerProblem, TypeError, KeyError, AttributeError):
        deleted = _deleted(connection.get("/telemetry", details_level=10), (name, name + ENTITIES_SUFFIX))
    count = f", {deleted:,} deleted points among them" if deleted else ""
    change = '{"optimizers_config": {"deleted_threshold": 0.000001, "vacuum_min_vector_number": 100}}'
    why = (
        f"bytes on a server cannot be searched from here{count}: what is deleted stays in a segment until that is "
        "rewritten, and in the write-ahead log until newer writes have filled its 32 MB. To have segments of a hundred "
        f"points and more rewritten now: PATCH {url}{collection_path(name)} {change}, and afterwards the same with "
        "what it was (0.2 and 1000 by default)"
    )
    return NotChecked(f"the files of {url}", why)


def _deleted(telemetry: Any, names: Collection[str]) -> int:
    total = 0
    for one in telemetry["collections"]["collections"]:
        if one["id"] not in names:
            continue
        for shard in one["shards"]:
            local: Mapping[str, Any] = shard.get("local") or {}
            total += sum(int(s["info"]["num_deleted_vectors"]) for s in local.get("segments") or ())
    return total
