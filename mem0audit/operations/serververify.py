"""What a snapshot of a server holds, looked at: its log here, its points on a server that is lent for it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from mem0audit.core import snapshot as core
from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.errors import Refused, ServerProblem
from mem0audit.core.model import Install, NotChecked, Origin, Report
from mem0audit.core.reading import ENTITIES_SUFFIX
from mem0audit.core.serverrestore import alike
from mem0audit.core.snapshot import CollectionCopy, Manifest, SnapshotProblem
from mem0audit.core.timeline import Timeline
from mem0audit.install.host import Host
from mem0audit.operations import leftonserver
from mem0audit.operations.audit import STORES_GROUPS, audit
from mem0audit.operations.copied import counted
from mem0audit.operations.look import Progress
from mem0audit.operations.scratch import base_of, remove_left
from mem0audit.stores import files, serversnapshots
from mem0audit.stores.history import read_history, read_rows
from mem0audit.stores.server import Connection, connection_to
from mem0audit.stores.serverpoints import FILLED_IN

APPEARS_S: Final = 3.0
"""A server whose connection was cut goes on with what it has: so long its collection may take to appear."""


def log_counts(path: Path) -> tuple[dict[str, int | None], str]:
    """Changes and memories that exist by the log, of a copied log; and the digest of its rows."""
    _, timeline = read_history(str(path), Timeline, alone=True)
    state, digest = read_rows(str(path), core.HistoryDigest)
    counts: dict[str, int | None] = {
        "changes": None if timeline is None else len(timeline.rowids),
        "live": None if timeline is None else sum(1 for _ in timeline.live()),
    }
    return counts, digest.hexdigest() if digest is not None and state.problem is None else ""


def compare_log(manifest: Manifest, folder: Path, problems: list[SnapshotProblem]) -> None:
    """The log in a snapshot of a server against its manifest; adds what differs."""
    counts, digest = log_counts(folder / core.HISTORY)
    for what, count in counts.items():
        if manifest.counts.get(what) != count:
            detail = f"says {manifest.counts.get(what)} {what}, the log holds {count}"
            problems.append(SnapshotProblem(core.MANIFEST, detail))
    if digest != manifest.history_digest:
        problems.append(SnapshotProblem(core.HISTORY, "its rows are not those that were counted"))


def check_nodes(copies: Sequence[CollectionCopy], connection: Connection) -> None:
    """Raises Refused where shards are to be put onto a cluster of which not every node is named, ServerProblem where
    one does not answer."""
    if not any(one.shards for one in copies):
        return
    unnamed = serversnapshots.peers_unnamed(connection)
    if unnamed:
        raise Refused(
            f"{connection.address.url} is a node of a cluster, and of its other nodes {len(unnamed)} are not named "
            f"(among each other: {', '.join(unnamed)}): each is given its copies of the shards",
            "name them all, by the addresses that clients use: --node URL for each, or qdrant_nodes in mem0audit.toml",
        )


@contextmanager
def put_as(
    connection: Connection,
    manifest: Manifest,
    folder: Path,
    copies: Sequence[CollectionCopy],
    named: Callable[[CollectionCopy], str],
    say: Progress,
    left: list[str],
) -> Iterator[None]:
    """Has a server make collections of a snapshot's files under names that it does not have; they are removed at the
    end, whatever comes; what an earlier run left that was killed is removed first. What cannot be removed is in `left`
    then. Raises Refused for a cluster of which not every node is named, ServerProblem, OSError."""
    check_nodes(copies, connection)
    remove_left(connection)
    if leftonserver.anything(folder.parent):
        with suppress(OSError, Refused), files.snapshot_folder(folder.parent):
            leftonserver.remove_remembered(folder.parent, connection)
    shas = {file.path: file.sha256 for file in manifest.files}
    made: list[str] = []
    whole = False
    try:
        for number, one in enumerate(copies):
            say("putting the collections onto the server", number, len(copies))
            made.append(named(one))  # before: the server goes on where we are cut off
            serversnapshots.put_back(connection, named(one), one, folder, shas)
        whole = True
        yield
    finally:
        wait_s = 0.0 if whole else APPEARS_S
        stays = [name for name in made if not serversnapshots.dropped(connection, name, wait_s)]
        if stays:
            remember_uploads(folder, connection, stays)
        left += stays


def remember_uploads(snapshot: Path, connection: Connection, names: Sequence[str]) -> None:
    """Notes beside a snapshot that a server which is away may keep what was put onto it under these names."""
    with suppress(OSError, Refused), files.snapshot_folder(snapshot.parent):
        url = connection.address.url
        leftonserver.remember(
            snapshot.parent, [(url, name, None, serversnapshots.UPLOADED) for name in names]
        )


def scratch_names(collections: Sequence[CollectionCopy], random: str) -> dict[str, str]:
    """The scratch name of each collection; the entities stay those of their memories."""
    base = base_of(random)
    of = {"memories": base, "entities": f"{base}{ENTITIES_SUFFIX}"}
    return {one.name: of.get(one.role, f"{base}-{one.name}") for one in collections}


def compare_points(
    connection: Connection, one: CollectionCopy, name: str, problems: list[SnapshotProblem]
) -> None:
    """A collection that was put onto a server under `name` against the manifest; adds what differs. Raises
    ServerProblem."""
    why = serversnapshots.wait_until_ready(connection, name)
    if why is not None:
        problems.append(SnapshotProblem(one.path, f"what the server makes of it cannot be read: {why}"))
        return
    found = serversnapshots.described(connection, name)
    read = serversnapshots.read_digest(connection, name, every_copy=found is not None and bool(found.shards))
    if one.digest and (read.count, read.hexdigest()) != (one.points, one.digest):
        detail = f"holds {read.count} points, the manifest says {one.points}"
        if read.count == one.points:
            detail = "holds other points than those that were read when it was taken"
        problems.append(SnapshotProblem(one.path, detail))
    if found is None or not all(
        alike(value, there.get(key))
        for had, there in ((one.params, found.params), (one.config, found.config))
        for key, value in had.items()
        if key not in FILLED_IN
    ):
        problems.append(SnapshotProblem(one.path, "makes a collection of other parameters"))
    elif found.payload_schema != one.payload_schema or not alike(one.indexes, found.kind.indexes):
        problems.append(SnapshotProblem(one.path, "makes a collection with other payload indexes"))


def restored_on(
    server: Install,
    host: Host,
    manifest: Manifest,
    folder: Path,
    problems: list[SnapshotProblem],
    not_checked: list[NotChecked],
    say: Progress,
) -> dict[str, int]:
    """Puts the collections onto a server under scratch names, reads them and audits them beside the snapshot's log;
    they are removed at the end, whatever comes. Adds what differs, and gives the pair's findings by code."""
    assert manifest.server is not None
    names = scratch_names(manifest.server.collections, secrets.token_hex(6))
    findings: dict[str, int] = {}
    left: list[str] = []
    try:
        with connection_to(server) as connection:
            taken = set(serversnapshots.names(connection)) & set(names.values())
            assert not taken
            copies = manifest.server.collections
            with put_as(connection, manifest, folder, copies, lambda one: names[one.name], say, left):
                for one in copies:
                    say(f"reading {one.name} there", None, None)
                    compare_points(connection, one, names[one.name], problems)
                say("auditing it there", None, None)
                memories = next(one for one in copies if one.role == "memories")
                pair = replace(
                    server,
                    history=Origin(str(folder / core.HISTORY), "the snapshot"),
                    collection=Origin(names[memories.name], "the snapshot"),
                    mem0_dir=manifest.mem0_dir,
                )
                report = audit(pair, host, select=STORES_GROUPS, ledger=False, keep=False)
                findings = counted(report.findings)
                not_checked += gaps_in(report)
    except ServerProblem as problem:
        not_checked.append(NotChecked("the restored collections", problem.message))
    except OSError as error:
        not_checked.append(NotChecked("the restored collections", (error.strerror or "failed").lower()))
    for name in left:
        why = f"the scratch collection {name} could not be removed again: remove it on {_url(server)}"
        not_checked.append(NotChecked("the server", why))
    return findings


def gaps_in(report: Report) -> list[NotChecked]:
    """What an audit could not read; the rules that needed it only where nothing else is named."""
    gaps = [one for one in report.not_checked if one.gap]
    return [one for one in gaps if one.what not in CATALOGUE] or gaps


def _url(server: Install) -> str:
    return server.server_url.value if server.server_url is not None else ""
