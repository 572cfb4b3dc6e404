"""What a run could not remove on a server any more, noted beside the snapshots: the next run there removes it.

A node that is away keeps the snapshot that it took for us. And a server that dies over an upload keeps that, in the
folder of that collection's snapshots (1.16.3); where the collection was a new one, no call of the server's shows it,
until there is a collection of that name once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mem0audit.core.errors import ServerProblem
from mem0audit.operations.scratch import SCRATCH
from mem0audit.stores import files, serversnapshots, snapshots
from mem0audit.stores.server import Connection
from mem0audit.stores.serversnapshots import UPLOADED

LEFT: Final = "left-on-server.json"

Left = tuple[str, str, int | None, str]
"""Address of the node, collection, shard (None: of the collection), name of the file."""


def may_lie(left: Left) -> str:
    """One sentence about it."""
    url, collection, shard, name = left
    of = collection if shard is None else f"{collection}/shards/{shard}"
    return f"the server may still have its own copy, /collections/{of}/snapshots/{name} on {url}"


def remember(folder: Path, left: Iterable[Left]) -> None:
    """Notes it in a folder of snapshots that is locked. What cannot be written is only said, by the caller."""
    with suppress(OSError):
        _write(folder, dict.fromkeys((*_remembered(folder), *left)))


def anything(folder: Path) -> bool:
    """Whether something is noted in a folder of snapshots."""
    return bool(_remembered(folder))


def remove_remembered(folder: Path, connection: Connection) -> tuple[str, ...]:
    """Removes what is noted in a locked folder of snapshots and lies on nodes that are named; sentences about what
    still stays there. Raises OSError."""
    noted = _remembered(folder)
    nodes = {one.address.url: one for one in (connection, *connection.others)}
    stays = []
    for one in noted:
        if one[0] not in nodes:
            stays.append(one)
            continue
        try:
            gone = _removed(nodes[one[0]], *one[1:])
        except ServerProblem:
            gone = False
        if not gone:
            stays.append(one)
    if len(stays) < len(noted):
        _write(folder, stays)
    return tuple(may_lie(one) for one in stays if one[0] in nodes)


def _removed(node: Connection, collection: str, shard: int | None, name: str) -> bool:
    """Whether it is gone. Raises ServerProblem."""
    if name == UPLOADED:
        serversnapshots.forget_upload(node, collection)
    if collection not in serversnapshots.names(node):
        return True
    if collection.startswith(SCRATCH):
        return serversnapshots.dropped(node, collection)
    if name != UPLOADED:
        serversnapshots.removed(node, collection, name, shard)
    return True


def _remembered(folder: Path) -> tuple[Left, ...]:
    try:
        found = json.loads(snapshots.small_file(folder / LEFT))
        return tuple((str(u), str(c), None if s is None else int(s), str(n)) for u, c, s, n in found)
    except (OSError, ValueError, TypeError):
        return ()


def _write(folder: Path, left: Iterable[Left]) -> None:
    kept = list(left)
    if kept:
        files.keep_beside_snapshots(folder, LEFT, json.dumps(kept).encode("ascii"))
    else:
        files.remove_new(folder / LEFT)
