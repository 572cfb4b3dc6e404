"""What a Qdrant server keeps of deleted memories beside the points: other collections, its own snapshots, and bytes in
its files that cannot be searched from here.

Deleting a point marks it; its bytes stay in the segment until the optimizer rewrites that, and in the write-ahead log
until newer writes have filled it, once more for each closed piece that is kept, a restart or not; and in every snapshot
that the server takes meanwhile, which has both (run with 1.16.3, looked for in its files).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mem0audit.core.errors import ServerProblem
from mem0audit.core.model import Install, NotChecked, StoreLayout
from mem0audit.core.reading import ENTITIES_SUFFIX
from mem0audit.core.residue import Copy, Rows
from mem0audit.core.scopes import Scope
from mem0audit.stores.server import Connection, collection_path, connection_to
from mem0audit.stores.serverstore import ServerStore

_MOST = 3
"""So many snapshots on a server are named."""


@dataclass
class KeptByServer:
    """What was found, and what could not be looked at."""

    rows: list[Rows] = field(default_factory=list)
    copies: tuple[Copy, ...] = ()
    not_searched: list[NotChecked] = field(default_factory=list)


@dataclass(frozen=True)
class Beside:
    """Another collection of the server that has something: memories of the scope, and memories of these ids; or
    entities of the scope."""

    name: str
    path: str
    of_scope: int
    of_ids: int
    entities: bool

    @property
    def count(self) -> int:
        """How many of theirs it has."""
        return max(self.of_scope, self.of_ids)


def in_other_collections(
    install: Install, scope: Scope | None, ids: Collection[str]
) -> tuple[list[Beside], list[NotChecked]]:
    """What other collections of the server of an install have of a scope, or of these memories, and which could not be
    asked. Raises nothing."""
    with connection_to(install) as connection:
        layout = ServerStore(connection, install.collection.value).layout()
        return _others(connection, layout, scope, ids)


def _others(
    connection: Connection, layout: StoreLayout, scope: Scope | None, ids: Collection[str]
) -> tuple[list[Beside], list[NotChecked]]:
    store = ServerStore(connection)
    found: list[Beside] = []
    gaps: list[NotChecked] = []
    names = {info.name for info in layout.collections}
    for info in layout.collections:
        if info.foreign:
            try:
                of_scope = _of_scope(connection, info.name, scope)
                of_ids = len(store.holding(info, ids))
                entities = info.name.endswith(ENTITIES_SUFFIX) and info.name[: -len(ENTITIES_SUFFIX)] in names
                one = Beside(info.name, info.path, of_scope, of_ids, entities)
            except ServerProblem as problem:
                gaps.append(NotChecked(info.path, _said(problem, connection.address.url)))
                continue
            found += [one] * bool(one.count)
    return found, gaps


def kept_by_server(install: Install, scope: Scope | None, ids: Collection[str]) -> KeptByServer:
    """What else the server of an install keeps of a scope, or of these memories; in a cluster, also what the other
    nodes do, where they are named. Read calls only; raises nothing."""
    assert install.server_url is not None
    found = KeptByServer()
    with connection_to(install) as connection:
        layout = ServerStore(connection, install.collection.value).layout()
        if layout.problem is not None:
            return found  # it was said where the points were to be read
        beside, gaps = _others(connection, layout, scope, ids)
        for one in beside:
            kind = "entities" if one.entities else "points"
            found.rows.append(Rows(kind, one.name, one.path, one.count, one.count))
        found.not_searched += gaps
        names = [info.name for info in layout.collections]
        asked = set()
        for node in (connection, *connection.others):
            at = node.address.url
            try:
                cluster = node.get(collection_path(install.collection.value, "cluster"))
                asked.add(cluster["peer_id"])
            except ServerProblem as problem:
                if problem.kind not in ("missing", "forbidden", "refused"):  # else the rest may be said
                    found.not_searched.append(NotChecked(at, _said(problem, at)))
                    continue
            copies, gaps = _snapshots(node, names, at)
            found.copies += tuple(copies)
            found.not_searched += [*gaps, _files(node, install.collection.value, at)]
        found.not_searched += _of_other_nodes(connection, install.collection.value, asked)
    return found


def _said(problem: ServerProblem, url: str) -> str:
    return problem.message.removeprefix(f"{url}: ")


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
    paths = ["/snapshots", *(collection_path(name, "snapshots") for name in names)]
    paths += [
        collection_path(name, "shards", shard, "snapshots")
        for name in names
        for shard in _shards(connection, name)
    ]
    for path in paths:
        try:
            listed = connection.get(path)
        except ServerProblem as problem:
            why = "may not be listed with this key"
            gaps.append(
                NotChecked(
                    f"{url}{path}", why if problem.kind in ("missing", "forbidden") else _said(problem, url)
                )
            )
            continue
        for one in listed if isinstance(listed, list) else ():
            where = f"{url}{path}/{one.get('name')}"
            copies.append(
                Copy("snapshot on the server", where, None, None, f"until it is removed: DELETE {where}")
            )
    if copies:
        named = ", ".join(one.path for one in copies[:_MOST])
        more = f" and {len(copies) - _MOST:,} more" if len(copies) > _MOST else ""
        why = (
            "not looked into. One from before a deletion has what was deleted, and so has one from after it while the "
            "server keeps the bytes"
        )
        gaps.append(NotChecked(f"snapshots on the server, {named}{more}", why))
    return copies, gaps


def _shards(connection: Connection, name: str) -> list[int]:
    """The shards of a collection that this node has: each may have snapshots of its own."""
    with suppress(ServerProblem, TypeError, KeyError):
        said = connection.get(collection_path(name, "cluster"))
        return sorted(int(one["shard_id"]) for one in said["local_shards"])
    return []


def _of_other_nodes(connection: Connection, name: str, asked: Collection[int]) -> list[NotChecked]:
    """The other nodes of a cluster that were not named: what each keeps for itself, this one does not say."""
    try:
        remote = connection.get(collection_path(name, "cluster"))["remote_shards"]
        others = len({one["peer_id"] for one in remote}.difference(asked))
    except (ServerProblem, TypeError, KeyError):
        return []
    if not others:
        return []
    what = "1 other node" if others == 1 else f"{others} other nodes"
    why = "each lists its own snapshots and keeps its own files: --node URL for each asks it too"
    return [NotChecked(f"{what} of the cluster", why)]


def _files(connection: Connection, name: str, url: str) -> NotChecked:
    """The server's own files, with how many deleted points they still hold where it says that."""
    deleted: int | None = None
    fill = "it"
    with suppress(ServerProblem, TypeError, KeyError, AttributeError):
        deleted = _deleted(connection.get("/telemetry", details_level=10), (name, name + ENTITIES_SUFFIX))
    with suppress(ServerProblem, TypeError, KeyError, AttributeError):
        wal = connection.get(collection_path(name))["config"]["wal_config"]
        # of one that is full the next is begun, and so many of the full ones are kept (none before 1.16)
        fill = f"{int(wal['wal_capacity_mb']) * (1 + int(wal.get('wal_retain_closed') or 0)):,} MB of it"
    count = f", {deleted:,} deleted point{'s' if deleted > 1 else ''} among them" if deleted else ""
    why = (
        f"bytes on a server cannot be searched from here{count}: what is deleted stays in a segment until that is "
        f"rewritten, and in the write-ahead log until newer writes have filled {fill}. To have it gone now: "
        "mem0audit help on-server"
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
