"""Restore a snapshot whose points lay on a Qdrant server: into new collections, or in place. Both stores or neither.

In place, in this order: what is there is snapshotted; the log is staged beside its target and proven; the server makes
the snapshot's collections under scratch names, where they are read, compared and removed, so that it is known to take
them; nothing may have changed since the snapshot of what is there; an intent is written beside the log; each
collection is put over (one step of the server's: it holds the old, the new, or what it says it cannot read); the log
is exchanged; both are looked at. Whatever cuts that off, the intent says so, and either the same command finishes it,
or a restore of the snapshot of what was there takes it back: putting a collection over again is the same whatever the
server holds.

A collection cannot be renamed, and mem0 does not start on an alias (its `create_col` does not see it and the server
refuses a collection of that name): so there is nothing to exchange by name.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from mem0audit.core import restore as core
from mem0audit.core import serverrestore
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.errors import Failed, Mem0auditError, Refused, ServerProblem
from mem0audit.core.model import Install
from mem0audit.core.reading import ENTITIES_SUFFIX
from mem0audit.core.restore import Interrupted, Restored, RestorePlan
from mem0audit.core.serverrestore import ServerIntent, ServerPiece, ServerTarget
from mem0audit.core.snapshot import CollectionCopy, Manifest, SnapshotProblem
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host, resolved
from mem0audit.operations.interrupted import read_server_intent, record, server_interrupted, words
from mem0audit.operations.look import Progress, no_progress
from mem0audit.operations.restore import check_erasures, check_new, put_to_the_chain, verified
from mem0audit.operations.scratch import SCRATCH
from mem0audit.operations.serversnapshot import create_of_server, plan_server_create
from mem0audit.operations.serververify import (
    APPEARS_S,
    check_nodes,
    compare_points,
    log_counts,
    put_as,
    scratch_names,
)
from mem0audit.operations.targets import (
    check_names,
    check_owners,
    check_room,
    folder_owner,
    in_use,
    only_linux,
    owners_of,
    refuse_in_use,
    target_of,
)
from mem0audit.stores import exchange, files, serversnapshots, snapshots
from mem0audit.stores.server import Connection, connection_to

AFTERWARDS_S: Final = 0.5
"""How long after a restore in place it is looked again who wrote to the server meanwhile."""


def server_url_of(snapshot: str) -> str | None:
    """The address of the server that a snapshot's points lay on; None where they lay in a folder, or its manifest does
    not read."""
    try:
        found = snapshot_core.parse_manifest(snapshots.small_file(Path(snapshot) / snapshot_core.MANIFEST))
    except (OSError, ValueError, snapshot_core.NotAManifest):
        return None
    return None if found.server is None else found.server.url


# --- Plan --------------------------------------------------------------------------------------------------


def plan_server_restore(
    snapshot: str,
    host: Host,
    install: Install,
    *,
    to: str | None = None,
    ledger: bool = True,
    without_erasure_record: bool = False,
    progress: Progress | None = None,
) -> RestorePlan:
    """What a restore onto the server of an install would do. Changes nothing, there or here.

    With `to` (absolute) the log goes into that new folder and the points into new collections, named after the
    install's collection where one was named, else after the snapshot; without it both are put in place of the
    install's own. Raises Refused where the snapshot is not good or the restore would be unsafe, CouldNotRead
    (ServerProblem).
    """
    only_linux()
    manifest = verified(snapshot, progress)
    if manifest.server is None:
        raise Refused(
            f"{snapshot} is of an embedded folder: it is not put onto a server",
            f"restore it into a folder:  mem0audit snapshot restore {shell_word(snapshot)} --to NEWDIR\n"
            "and move that onto the server:  mem0audit relocate --to-url URL",
        )
    not_read = check_erasures(
        manifest, snapshot, None if to is not None else install, host, ledger, without_erasure_record
    )
    with connection_to(install) as connection:
        version = connection.version()
        why = serverrestore.cannot_take(manifest.server.version, version)
        if why is not None:
            raise Refused(f"{connection.address.url}: {why}", "update the server, or name another one")
        check_nodes(manifest.server.collections, connection)
        pieces = _pieces_on_server(manifest, install, connection, new=to is not None)
        warnings = _warnings(manifest, version, pieces, connection, in_place=to is None)
    url = connection.address.url
    if to is not None:
        check_new(to, snapshot, manifest, host)
        target = ServerTarget(url, version, pieces)
        return RestorePlan(
            snapshot, manifest, to=to, warnings=warnings, ledger=ledger, not_read=not_read, server=target
        )
    history = target_of("history", install.history.value, host)
    check_names([history.real])
    unseen = refuse_in_use(install, host)
    check_room([history], manifest, host)
    check_owners([history])
    cut_off = server_interrupted(install, host)
    if cut_off is not None:
        _check_course(cut_off, snapshot, history.real)
    folder = os.path.dirname(os.path.realpath(snapshot))  # noqa: PTH120
    return RestorePlan(
        snapshot,
        manifest,
        install=install,
        targets=(history,),
        warnings=(*warnings, NOBODY_SEES),
        unseen=unseen,
        interrupted=cut_off,
        ledger=ledger,
        not_read=not_read,
        server=ServerTarget(url, version, pieces, folder),
    )


NOBODY_SEES: Final = "Who else writes to a server cannot be seen from here: stop every agent that uses it."


def _pieces_on_server(
    manifest: Manifest, install: Install, connection: Connection, *, new: bool
) -> tuple[ServerPiece, ...]:
    """The collections that a restore makes or replaces. Raises Refused."""
    assert manifest.server is not None
    there = serversnapshots.names(connection)
    base = install.collection.value
    if new and install.collection.decided_by == "mem0's default":
        memories = next(one for one in manifest.server.collections if one.role == "memories")
        base = f"{memories.name}-{manifest.name.lower()}"
    named = {"memories": base, "entities": f"{base}{ENTITIES_SUFFIX}"}
    pieces = []
    for one in manifest.server.collections:
        if one.role == "telemetry":
            continue
        name = named[one.role]
        pieces.append(ServerPiece(one.role, name, one.path, name in there, one))
        if name not in there:
            continue
        if new:
            raise Refused(
                f"{connection.address.url}: there is a collection {name} already",
                "name another one with --collection",
            )
        _check_alike(one, name, connection)
    if not new and base not in there and f"{base}{ENTITIES_SUFFIX}" in there:
        raise Refused(
            f"{connection.address.url}: there is no collection {base}, and {base}{ENTITIES_SUFFIX} is there: "
            "together they cannot be snapshotted before they are replaced",
            "restore into new collections with --to NEWDIR, and give the agent those",
        )
    return tuple(pieces)


def _check_alike(one: CollectionCopy, name: str, connection: Connection) -> None:
    """Raises Refused where a server would not put a snapshot over a collection."""
    found = serversnapshots.described(connection, name)
    if found is None:
        return
    where = connection.address.url
    if (found.elsewhere or found.shards) and not one.shards:
        raise Refused(
            f"{where}: {name} is spread over the nodes of its cluster: a snapshot of one node is not put over it",
            "restore into new collections with --to NEWDIR",
        )
    if found.busy is not None and "Dead" not in found.busy:
        raise Refused(f"{where}: {name}: {found.busy}", "try again when the cluster is done with it")
    for what in ("vectors", "sparse_vectors", "shard_number"):
        if not serverrestore.alike(found.params.get(what), one.params.get(what)):
            raise Refused(
                f"{where}: {name} is made otherwise than the one of the snapshot ({what}): the server would not put it "
                "over",
                "restore into new collections with --to NEWDIR, and give the agent those",
            )


def _warnings(
    manifest: Manifest,
    version: str,
    pieces: Sequence[ServerPiece],
    connection: Connection,
    *,
    in_place: bool,
) -> tuple[str, ...]:
    assert manifest.server is not None
    said = []
    if not manifest.settled:
        said.append(f"Not settled when it was taken: {manifest.unsettled_why}.")
    if serverrestore.far_newer(manifest.server.version, version):
        said.append(
            f"The server is Qdrant {version}, the snapshot of {manifest.server.version}: it is tried under a scratch "
            "name first, and nothing is changed where the server does not take it."
        )
    names = serversnapshots.names(connection)
    memories = next(piece for piece in pieces if piece.role == "memories")
    entities = f"{memories.name}{ENTITIES_SUFFIX}"
    if in_place and entities in names and not any(piece.role == "entities" for piece in pieces):
        said.append(
            f"{entities} came after the snapshot and stays: its links to memories that are not there are then findings "
            "E501 and E502, which repair clears."
        )
    if any(one.role == "telemetry" for one in manifest.server.collections):
        said.append("mem0's telemetry collection is left as it is.")
    return tuple(said)


# --- What was cut off ---------------------------------------------------------------------------------------


def _check_course(found: Interrupted, snapshot: str, history: str) -> None:
    """Raises Refused where another restore was cut off here, and this one would neither finish nor undo it."""
    if found.course == "stuck":
        raise Refused(f"a restore was cut off here, and cannot be told: {found.problem}")
    if found.course != "finish" or found.snapshot == snapshot:
        return
    with suppress(Refused, OSError):
        intent = read_server_intent(Path(core.staging_beside(history)))
        if intent is not None and intent.kept == snapshot:
            return
    raise Refused(
        f"a restore of {found.snapshot} was cut off here, and the stores may be half of each",
        f"finish it first:  mem0audit snapshot restore {shell_word(found.snapshot or '')} --in-place",
    )


# --- Apply --------------------------------------------------------------------------------------------------------


def apply_server_restore(
    plan: RestorePlan,
    host: Host,
    install: Install,
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
) -> Restored:
    """Does what was planned. Both stores are restored or neither is.

    Raises Refused where somebody uses the install meanwhile, Failed where it did not succeed: the message says whether
    nothing was changed, it was taken back, or the same command finishes it.
    """
    say = progress or no_progress
    started = time.monotonic()
    with connection_to(install) as connection:
        if plan.to is not None:
            done = _into_new(plan, host, connection, say)
        else:
            done = _in_place(plan, host, install, connection, say, now)
    return replace(done, seconds=time.monotonic() - started)


def _stage_log(plan: RestorePlan, snapshot: str, manifest: Manifest, target: Path) -> None:
    """The log copied into a staging folder, each byte proven, its rows too. Raises Failed, OSError, sqlite3.Error."""
    (file,) = (one for one in manifest.files if one.path == snapshot_core.HISTORY)
    files.make_folders(target.parent)
    if exchange.stage_file(Path(snapshot) / file.path, target) != file.sha256:
        raise Failed(
            f"{snapshot}/{file.path} was read with other bytes than the manifest has; nothing was changed"
        )
    if snapshots.digest(target) != (file.size_bytes, file.sha256):
        raise Failed(f"{target} does not hold what was written to it; nothing was changed", "check that disk")
    if file.journal_mode == "wal" and files.set_journal_mode(target, "wal") != "wal":
        raise Failed(f"{target} cannot be given write-ahead logging; nothing was changed")
    if log_counts(target)[1] != manifest.history_digest:
        raise Failed(f"{target} does not hold the rows of the snapshot; nothing was changed")


def _put_all(
    connection: Connection, snapshot: str, manifest: Manifest, names: dict[str, str], say: Progress
) -> None:
    """Each collection over, or in place of none. Raises ServerProblem, OSError, Failed where one cannot be read."""
    shas = {file.path: file.sha256 for file in manifest.files}
    assert manifest.server is not None
    copies = {one.path: one for one in manifest.server.collections}
    for number, (path, name) in enumerate(names.items()):
        say("putting the collections onto the server", number, len(names))
        serversnapshots.put_back(connection, name, copies[path], Path(snapshot), shas)
        why = serversnapshots.wait_until_ready(connection, name)
        if why is not None:
            raise Failed(f"{name} was put back and cannot be read: {why}")


def _differing(connection: Connection, manifest: Manifest, names: dict[str, str]) -> tuple[str, ...]:
    """What the collections hold other than the snapshot's, one sentence each. Raises ServerProblem."""
    assert manifest.server is not None
    said = []
    for one in manifest.server.collections:
        if one.path not in names or not one.digest:
            continue
        every = bool(one.shards) and bool(connection.others)
        read = serversnapshots.read_digest(connection, names[one.path], every_copy=every)
        if (read.count, read.hexdigest()) != (one.points, one.digest):
            said.append(
                f"{names[one.path]} holds {read.count} points, the snapshot {one.points}, and not the same: somebody "
                "wrote to it"
            )
    return tuple(said)


def _into_new(plan: RestorePlan, host: Host, connection: Connection, say: Progress) -> Restored:
    assert plan.to is not None and plan.server is not None
    target = Path(resolved(plan.to, host))
    staged = Path(core.staging_beside(str(target)))
    owner = exchange.owner_of(target)
    if owner is None:
        owner = (folder_owner(target.parent) if os.geteuid() == 0 else None) or (os.geteuid(), os.getegid())
    pieces = plan.server.collections
    left: list[str] = []
    try:
        exchange.make_parents(target.parent, owner)
        with exchange.staging(staged) as there:
            try:
                if there:
                    exchange.empty_staging([staged])
                say("copying the log", None, None)
                _stage_log(plan, plan.snapshot, plan.manifest, staged / snapshot_core.HISTORY)
                exchange.take_after(staged, target if target.is_dir() else None, owner)
                files.sync_tree(staged)
                with _kept_when_whole(connection, plan, left, say) as keep:
                    wrong: list[SnapshotProblem] = []
                    for piece in pieces:
                        compare_points(connection, piece.copy, piece.name, wrong)
                    if wrong:
                        raise Failed(f"what the server made is not the snapshot's ({wrong[0].detail})")
                    exchange.publish_folder(staged, target)
                    keep()
            except BaseException:
                if exchange.identity_of(staged) is not None:
                    with suppress(OSError):
                        exchange.remove_staging([staged])
                raise
    except (OSError, sqlite3.Error, ServerProblem, Failed) as error:
        _nothing_restored(error, plan, left)
    return Restored(
        plan.snapshot,
        plan.manifest,
        history=f"{plan.to}/{snapshot_core.HISTORY}",
        vectors=plan.server.url,
        in_place=False,
        warnings=plan.warnings,
        collection=next(piece.name for piece in pieces if piece.role == "memories"),
    )


def _nothing_restored(
    error: OSError | sqlite3.Error | ServerProblem | Failed, plan: RestorePlan, left: Sequence[str]
) -> NoReturn:
    what = error.message if isinstance(error, Mem0auditError) else words(error)
    what = what.removesuffix("; nothing was changed")
    also = f"; {', '.join(left)} may be on the server still" if left else ""
    raise Failed(f"{what}; nothing was restored{also}", "the same command begins again") from None


class _kept_when_whole:  # noqa: N801 - used as a with statement
    """The new collections on the server: removed at the end, unless `keep` was called."""

    def __init__(self, connection: Connection, plan: RestorePlan, left: list[str], say: Progress) -> None:
        assert plan.server is not None
        self.connection, self.plan, self.left, self.say = connection, plan, left, say
        self.names = {piece.path: piece.name for piece in plan.server.collections}
        self.kept = False

    def __enter__(self) -> Callable[[], None]:
        try:
            _put_all(self.connection, self.plan.snapshot, self.plan.manifest, self.names, self.say)
        except BaseException:
            self._remove(APPEARS_S)
            raise
        return self._keep

    def _keep(self) -> None:
        self.kept = True

    def __exit__(self, *_: object) -> None:
        if not self.kept:
            self._remove(0.0)

    def _remove(self, wait_s: float) -> None:
        self.left += [
            name for name in self.names.values() if not serversnapshots.dropped(self.connection, name, wait_s)
        ]


# --- In place ---------------------------------------------------------------------------------------------------------


def _in_place(
    plan: RestorePlan,
    host: Host,
    install: Install,
    connection: Connection,
    say: Progress,
    now: Callable[[], float],
) -> Restored:
    assert plan.server is not None
    (target,) = plan.targets
    owners = owners_of([target])
    folder = Path(target.staging)
    with ExitStack() as stack:
        try:
            exchange.make_parents(folder.parent, owners["history"])
            stack.enter_context(exchange.staging(folder))
            intent = read_server_intent(folder)
        except OSError as error:
            raise Failed(f"{words(error)}; nothing was changed") from None
        refuse_in_use(install, host)
        if intent is not None:
            return _go_on(intent, plan, host, install, connection, folder, say)
        try:
            begun = _prepared(plan, host, install, connection, folder, owners, say, now)
        except BaseException as error:
            with suppress(OSError):
                exchange.remove_staging([folder])
            if isinstance(error, (OSError, sqlite3.Error)):
                raise Failed(
                    f"{words(error)}; nothing was changed", "the same command begins again"
                ) from None
            if isinstance(error, ServerProblem):
                raise Failed(f"{error.message}; nothing was changed", error.hint) from None
            raise
        return _through(begun, plan, host, install, connection, folder, say)


def _prepared(
    plan: RestorePlan,
    host: Host,
    install: Install,
    connection: Connection,
    folder: Path,
    owners: dict[str, tuple[int, int]],
    say: Progress,
    now: Callable[[], float],
) -> ServerIntent:
    """All that comes before the first change; the intent, written. Raises Failed, Refused, ServerProblem, OSError."""
    assert plan.server is not None
    (target,) = plan.targets
    _remove_left_scratch(connection, folder)
    kept = _snapshot_of_what_is_there(plan, host, install, say, now)
    exchange.empty_staging([folder])
    staged = folder / snapshot_core.HISTORY
    say("copying the log", None, None)
    _stage_log(plan, plan.snapshot, plan.manifest, staged)
    old = Path(target.real) if target.exists else None
    exchange.take_after(staged, old, owners["history"])
    files.sync_tree(folder)
    _prove(plan, connection, folder, say)
    refuse_in_use(install, host)  # again: all that took its time
    _unchanged(kept, plan, connection)
    stem = snapshot_core.name_of(now())
    number = 1
    while os.path.lexists(f"{target.real}.replaced-{stem}"):
        number += 1
        stem = f"{snapshot_core.name_of(now())}-{number}"
    exchange.settle_journals(Path(target.real))
    intent = ServerIntent(
        snapshot=plan.snapshot,
        kept=kept,
        started_at=stem,
        url=connection.address.url,
        history=target.real,
        names={piece.path: piece.name for piece in plan.server.collections},
        pieces=_log_pieces(target.real, staged, stem),
    )
    _write_intent(folder, intent)
    return intent


def _log_pieces(real: str, staged: Path, stem: str) -> tuple[core.Piece, ...]:
    left = [side for side in exchange.SIDES if os.path.lexists(f"{real}{side}")]
    pieces = [
        core.Piece(
            "history",
            f"{real}{side}",
            None,
            f"{real}.replaced-{stem}{side}",
            exchange.identity_of(f"{real}{side}"),
            None,
            {},
        )
        for side in left
    ]
    new = exchange.identity_of(staged)
    aside, sums = f"{real}.replaced-{stem}", exchange.sums_of(staged)
    return (*pieces, core.Piece("history", real, str(staged), aside, exchange.identity_of(real), new, sums))


def _write_intent(folder: Path, intent: ServerIntent) -> None:
    exchange.write_in(folder, core.INTENT, serverrestore.intent_text(intent).encode("ascii"))


def _snapshot_of_what_is_there(
    plan: RestorePlan, host: Host, install: Install, say: Progress, now: Callable[[], float]
) -> str | None:
    """The path of the snapshot that is the way back; None where no memories are there to be lost. Raises Refused,
    Failed."""
    assert plan.server is not None and plan.server.folder is not None
    if not any(piece.exists for piece in plan.server.collections):
        return None
    if not plan.targets[0].exists:
        raise Refused(
            f"{install.history.value} is not there, and the collection is: what is there cannot be snapshotted as a "
            "pair before it is replaced",
            "restore into new collections with --to NEWDIR, and give the agent those",
        )
    say("a snapshot of what is there", None, None)
    before = plan_server_create(install, host, plan.server.folder)
    taken = create_of_server(before, host, progress=say, now=now, ledger=plan.ledger)
    if not taken.manifest.settled:
        raise Refused(
            f"{taken.manifest.unsettled_why}: somebody writes to this install; nothing was changed",
            "stop every agent that uses it, and run this again",
        )
    return taken.path


SCRATCH_NOTE: Final = "scratch.json"


def _prove(plan: RestorePlan, connection: Connection, folder: Path, say: Progress) -> None:
    """The server makes the collections under scratch names, which are compared and removed; they are noted in the
    staging folder before, for the run after a kill. Raises Failed where they are not the snapshot's, ServerProblem."""
    assert plan.server is not None
    copies = [piece.copy for piece in plan.server.collections]
    names = scratch_names(copies, secrets.token_hex(6))
    noted = json.dumps({"url": connection.address.url, "names": sorted(names.values())})
    exchange.write_in(folder, SCRATCH_NOTE, noted.encode("ascii"))
    wrong: list[SnapshotProblem] = []
    left: list[str] = []
    with put_as(
        connection, plan.manifest, Path(plan.snapshot), copies, lambda one: names[one.name], say, left
    ):
        for one in copies:
            say(f"reading {one.name} under a scratch name", None, None)
            compare_points(connection, one, names[one.name], wrong)
    if wrong:
        raise Failed(f"{wrong[0].path} {wrong[0].detail}; nothing was changed")
    if left:
        raise Failed(f"the scratch collection {left[0]} could not be removed again; nothing else was changed")


def _remove_left_scratch(connection: Connection, folder: Path) -> None:
    """Removes the scratch collections of a run that was killed. Raises Failed where one stays."""
    try:
        noted = json.loads(snapshots.small_file(folder / SCRATCH_NOTE))
        names = [str(name) for name in noted["names"] if str(name).startswith(SCRATCH)]
        url = noted["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if url != connection.address.url:
        return
    stays = [name for name in names if not serversnapshots.dropped(connection, name)]
    if stays:
        raise Failed(
            f"{stays[0]}, which a run that was cut off left there, cannot be removed; nothing was changed"
        )


def _unchanged(kept: str | None, plan: RestorePlan, connection: Connection) -> None:
    """Raises Refused where the points are other ones than in the snapshot of what is there: what came since would be
    lost."""
    assert plan.server is not None
    if kept is None:
        if set(serversnapshots.names(connection)) & {piece.name for piece in plan.server.collections}:
            raise Refused("a collection came meanwhile; nothing was changed", "run it again")
        return
    manifest = snapshot_core.parse_manifest(snapshots.small_file(Path(kept) / snapshot_core.MANIFEST))
    assert manifest.server is not None
    changed = _differing(connection, manifest, {one.path: one.name for one in manifest.server.collections})
    if changed:
        raise Refused(
            f"{changed[0]} since its snapshot was taken; nothing was changed",
            "stop every agent that uses it, and run this again",
        )


def _through(
    intent: ServerIntent,
    plan: RestorePlan,
    host: Host,
    install: Install,
    connection: Connection,
    folder: Path,
    say: Progress,
) -> Restored:
    """From the intent to the end; taken back where it fails and the server still does what it is asked."""
    try:
        _put_both(intent, plan.snapshot, plan.manifest, connection, say)
    except BaseException as error:  # noqa: BLE001 - taken back whatever it is, and raised again
        _take_back(intent, connection, folder, error, say)
    return _end(intent, plan, host, install, connection, folder, say)


def _put_both(
    intent: ServerIntent, snapshot: str, manifest: Manifest, connection: Connection, say: Progress
) -> None:
    """The points, then the log. Raises ServerProblem, Failed, Refused, OSError, exchange.InUse."""
    _put_all(connection, snapshot, manifest, dict(intent.names), say)
    say("exchanging the log", None, None)
    real = Path(intent.history)
    with ExitStack() as stack:
        if intent.pieces[-1].old is not None and exchange.identity_of(real) == intent.pieces[-1].old:
            stack.enter_context(exchange.database_locked(real))
        exchange.forward(intent.pieces)


def _take_back(
    intent: ServerIntent, connection: Connection, folder: Path, error: BaseException, say: Progress
) -> NoReturn:
    """After a failure: both stores as they were, from the snapshot of what was there. Raises the error, said so."""
    what = "stopped"
    if isinstance(error, Mem0auditError):
        what = error.message
    elif isinstance(error, (OSError, sqlite3.Error)):
        what = words(error)
    elif isinstance(error, exchange.InUse):
        what = f"{error} is in use"
    try:
        exchange.back(intent.pieces)
        if intent.kept is None:
            gone = [
                name for name in intent.names.values() if not serversnapshots.dropped(connection, name, 3.0)
            ]
            if gone:
                raise Failed(f"{gone[0]} cannot be removed again")
        else:
            manifest = snapshot_core.parse_manifest(
                snapshots.small_file(Path(intent.kept) / snapshot_core.MANIFEST)
            )
            _put_all(connection, intent.kept, manifest, _names_of(manifest, intent), say)
            if _differing(connection, manifest, _names_of(manifest, intent)):
                raise Failed("the server does not hold what it held")
    except (OSError, Mem0auditError, exchange.InUse) as second:
        why = second.message if isinstance(second, Mem0auditError) else str(second)
        raise Failed(
            f"{what}; and then {why}: it is neither finished nor taken back",
            "keep every agent stopped. The same command finishes it"
            + (f"; to go back:  restore {intent.kept} --in-place" if intent.kept else ""),
        ) from None
    with suppress(OSError):  # else the next run does it
        exchange.remove_staging([folder])
    if isinstance(error, (OSError, sqlite3.Error, Mem0auditError, exchange.InUse)):
        raise Failed(f"{what}; it was taken back, both stores are as they were") from None
    raise error


def _names_of(manifest: Manifest, intent: ServerIntent) -> dict[str, str]:
    """The collections of another snapshot of the same install, by their paths in it, as the intent names them."""
    assert manifest.server is not None
    known = set(intent.names.values())
    return {one.path: one.name for one in manifest.server.collections if one.name in known}


def _go_on(
    intent: ServerIntent,
    plan: RestorePlan,
    host: Host,
    install: Install,
    connection: Connection,
    folder: Path,
    say: Progress,
) -> Restored:
    """Finishes a restore that was cut off, or takes it back, as the snapshot that is named says."""
    if intent.url != connection.address.url:
        raise Refused(
            f"a restore onto {intent.url} was cut off here", "finish it with that --qdrant-url first"
        )
    assert plan.interrupted is not None or intent.snapshot == plan.snapshot
    say("an earlier restore was cut off: settling it", None, None)
    try:
        if intent.snapshot == plan.snapshot:
            if not intent.done:
                _put_both(intent, plan.snapshot, plan.manifest, connection, say)
            done = _end(intent, plan, host, install, connection, folder, say)
            return replace(done, resumed=True, settled=plan.interrupted)
        if intent.kept != plan.snapshot:
            raise Refused(f"a restore of {intent.snapshot} was cut off here", "finish it first")
        exchange.back(intent.pieces)
        _put_all(connection, plan.snapshot, plan.manifest, _names_of(plan.manifest, intent), say)
        between = _differing(connection, plan.manifest, _names_of(plan.manifest, intent))
        exchange.remove_staging([folder])
    except exchange.InUse as problem:
        in_use(problem, None)
    except (OSError, sqlite3.Error, ServerProblem) as error:
        what = error.message if isinstance(error, ServerProblem) else words(error)
        raise Failed(
            f"{what}: it is neither finished nor taken back",
            "the same command tries again; keep every agent stopped until then",
        ) from None
    taken_back = None if plan.interrupted is None else replace(plan.interrupted, course="back")
    return _restored(plan, install, connection, (), between, taken_back, None)


def _end(
    intent: ServerIntent,
    plan: RestorePlan,
    host: Host,
    install: Install,
    connection: Connection,
    folder: Path,
    say: Progress,
) -> Restored:
    """Both are in place: looked at, looked at again, what was replaced put aside, the intent removed. Raises Failed."""
    try:
        say("looking at the result", None, None)
        names = dict(intent.names)
        between = _differing(connection, plan.manifest, names)
        if not between:
            time.sleep(AFTERWARDS_S)
            between = _differing(connection, plan.manifest, names)
        _write_intent(folder, replace(intent, done=True))
        replaced = exchange.put_aside(intent.pieces)
        record(intent.history, replaced, intent.snapshot, intent.started_at, "restore")
        exchange.remove_staging([folder])
    except (OSError, ServerProblem) as error:
        what = error.message if isinstance(error, ServerProblem) else words(error)
        raise Failed(
            f"both stores are restored, but not all was looked at and put aside: {what}",
            "the same command finishes it",
        ) from None
    done = _restored(plan, install, connection, replaced, between, None, intent.kept)
    return put_to_the_chain(done, plan, install, host, say)


def _restored(
    plan: RestorePlan,
    install: Install,
    connection: Connection,
    replaced: Sequence[str],
    between: Sequence[str],
    settled: Interrupted | None,
    kept: str | None,
) -> Restored:
    assert plan.server is not None
    return Restored(
        plan.snapshot,
        plan.manifest,
        history=install.history.value,
        vectors=connection.address.url,
        in_place=True,
        replaced=tuple(path for path in replaced if not path.endswith(exchange.SIDES)),
        warnings=tuple(one for one in plan.warnings if one != NOBODY_SEES),
        settled=settled,
        collection=next(piece.name for piece in plan.server.collections if piece.role == "memories"),
        kept=kept,
        between=tuple(f"{one}." for one in between),
    )
