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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from mem0audit.core import restore as core
from mem0audit.core import serverrestore
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.erasures import Covering
from mem0audit.core.errors import Failed, Mem0auditError, Refused, ServerProblem
from mem0audit.core.model import Install
from mem0audit.core.reading import ENTITIES_SUFFIX
from mem0audit.core.restore import Interrupted, Restored, RestorePlan, ToErase
from mem0audit.core.serverrestore import ServerIntent, ServerPiece, ServerTarget
from mem0audit.core.snapshot import CollectionCopy, Manifest, SnapshotProblem
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host, resolved
from mem0audit.operations.interrupted import read_server_intent, record, server_interrupted, words
from mem0audit.operations.look import Progress, no_progress
from mem0audit.operations.restore import (
    check_new,
    check_no_newer,
    erasures_since,
    original,
    owner_of_new,
    put_to_the_chain,
    times_of,
    verified,
)
from mem0audit.operations.servererase import (
    COPY,
    SCRATCH_NOTE,
    erased_copy,
    is_part_of,
    note_scratch,
    plan_erasing_on_server,
    remove_noted_scratch,
    staged_manifest,
)
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
    in_use,
    only_linux,
    owners_of,
    refuse_in_use,
    target_of,
)
from mem0audit.stores import exchange, files, serversnapshots, snapshots
from mem0audit.stores.server import Connection, collection_path, connection_to

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
    say = progress or no_progress
    manifest = verified(snapshot, progress)
    if manifest.server is None:
        raise Refused(
            f"{snapshot} is of an embedded folder: it is not put onto a server",
            f"restore it into a folder:  mem0audit snapshot restore {shell_word(snapshot)} --to NEWDIR\n"
            "and move that onto the server:  mem0audit relocate --to-url URL",
        )
    of = install if to is None else original(manifest, install.agent_python)
    erasures, not_read = erasures_since(manifest, snapshot, of, host, ledger, without_erasure_record)
    left = None if to is None else left_new(to, host)
    with connection_to(install) as connection:
        version = connection.version()
        why = serverrestore.cannot_take(manifest.server.version, version)
        if why is not None:
            raise Refused(f"{connection.address.url}: {why}", "update the server, or name another one")
        check_nodes(manifest.server.collections, connection)
        ours = () if left is None else left.ours(connection)
        pieces = _pieces_on_server(manifest, install, connection, ours, new=to is not None)
        warnings = _warnings(manifest, version, pieces, connection, in_place=to is None)
    url = connection.address.url
    plan = RestorePlan(snapshot, manifest, to=to, warnings=warnings, ledger=ledger, not_read=not_read)

    def erasing(uid: int) -> ToErase:
        return plan_erasing_on_server(
            snapshot, manifest, erasures, of, install, host, say, ledger=ledger, uid=uid
        )

    if to is not None:
        plan = replace(plan, server=ServerTarget(url, version, pieces))
        if left is not None:
            plan = replace(plan, interrupted=left.said(snapshot))
        if left is not None and left.published and left.snapshot == snapshot:
            return plan
        check_new(to, snapshot, manifest, host)
        erase = erasing(owner_of_new(to, host)[0])
        check_new(to, snapshot, manifest, host, times_of(erase))
        return replace(plan, erase=erase)
    history = target_of("history", install.history.value, host)
    check_names([history.real])
    unseen = refuse_in_use(install, host)
    check_room([history], manifest, host)
    check_owners([history])
    cut_off = server_interrupted(install, host)
    if cut_off is not None:
        _check_course(cut_off, snapshot, history.real)
    behind = False
    if cut_off is not None and cut_off.snapshot == snapshot and cut_off.course == "finish":
        salts = [one.salt for one in erasures]
        behind = core.is_behind(salts, cut_off.erased, audited=cut_off.audited)
        cut_off = replace(cut_off, course="back") if behind else cut_off
    try:
        erase = erasing(owners_of([history])["history"][0])
    except Refused:
        if behind or cut_off is None or (cut_off.snapshot, cut_off.course) != (snapshot, "finish"):
            raise
        erase = ToErase(covering=Covering(erasures))  # its copy is made: it needs no mem0 any more
    check_room([history], manifest, host, times_of(erase))
    folder = os.path.dirname(os.path.realpath(snapshot))  # noqa: PTH120
    return replace(
        plan,
        install=install,
        targets=(history,),
        warnings=(*warnings, NOBODY_SEES),
        unseen=unseen,
        interrupted=cut_off,
        server=ServerTarget(url, version, pieces, folder),
        erase=erase,
    )


NOBODY_SEES: Final = "Who else writes to a server cannot be seen from here: stop every agent that uses it."


def _pieces_on_server(
    manifest: Manifest, install: Install, connection: Connection, ours: Collection[str], *, new: bool
) -> tuple[ServerPiece, ...]:
    """The collections that a restore makes or replaces. Raises Refused."""
    assert manifest.server is not None
    there = set(serversnapshots.names(connection)).difference(ours)
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
        if (stands_for := serversnapshots.alias_of(connection, name)) is not None:
            raise Refused(
                f"{connection.address.url}: {name} is an alias of {stands_for}, which would be overwritten",
                "name a collection with --collection",
            )
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
    for piece in pieces if in_place else ():
        found = serversnapshots.described(connection, piece.name) if piece.exists else None
        had, has = piece.copy.config, {} if found is None else found.config
        others = sorted(key for key in {*had, *has} if not serverrestore.alike(had.get(key), has.get(key)))
        if had and has and others:
            said.append(
                f"{piece.name} keeps the settings that it has on the server now ({', '.join(others)}): in the snapshot "
                "they are others."
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
            done = _into_new(plan, host, install, connection, say)
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


@dataclass(frozen=True)
class _Source:
    """What is put back: a snapshot, or the copy of it without who was erased since. `folder` has its files."""

    folder: Path
    manifest: Manifest

    @property
    def copies(self) -> dict[str, CollectionCopy]:
        """Its collections by their paths."""
        assert self.manifest.server is not None
        return {one.path: one for one in self.manifest.server.collections}


def _of_snapshot(path: str) -> _Source:
    data = snapshots.small_file(Path(path) / snapshot_core.MANIFEST)
    return _Source(Path(path), snapshot_core.parse_manifest(data))


def _erased(
    plan: RestorePlan,
    history: Path,
    folder: Path,
    onto: Install,
    connection: Connection,
    host: Host,
    say: Progress,
    owner: tuple[int, int],
) -> _Source:
    """Erases in copies who was erased since: in the staged log, and in one of the collections that lies in the staging
    folder then. Raises as erased_copy."""
    if not plan.erase.anything:
        return _Source(Path(plan.snapshot), plan.manifest)
    of = plan.install or original(plan.manifest, onto.agent_python)
    manifest = erased_copy(plan, history, folder, of, onto, connection, host, say, owner)
    return _Source(folder / COPY, manifest)


def _put_all(connection: Connection, source: _Source, names: Mapping[str, str], say: Progress) -> None:
    """Each collection over, or in place of none. Raises ServerProblem, OSError, Failed where one cannot be read."""
    shas = {file.path: file.sha256 for file in source.manifest.files}
    for number, (path, name) in enumerate(names.items()):
        say("putting the collections onto the server", number, len(names))
        serversnapshots.put_back(connection, name, source.copies[path], source.folder, shas)
        why = serversnapshots.wait_until_ready(connection, name)
        if why is not None:
            raise Failed(f"{name} was put back and cannot be read: {why}")


def _differing(connection: Connection, manifest: Manifest, names: Mapping[str, str]) -> tuple[str, ...]:
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


def _into_new(
    plan: RestorePlan, host: Host, install: Install, connection: Connection, say: Progress
) -> Restored:
    assert plan.to is not None and plan.server is not None
    left = left_new(plan.to, host)
    if left is not None and left.published:
        return _published(left, plan, connection)
    target = Path(resolved(plan.to, host))
    staged = Path(core.staging_beside(str(target)))
    check_no_newer(plan, host)
    owner = owner_of_new(plan.to, host)
    stay: list[str] = []
    try:
        exchange.make_parents(target.parent, owner)
        with exchange.staging(staged) as there:
            try:
                if there:
                    _remove_left_new(connection, staged, plan)
                    remove_noted_scratch(connection, staged)
                    exchange.empty_staging([staged])
                say("copying the log", None, None)
                log = staged / snapshot_core.HISTORY
                _stage_log(plan, plan.snapshot, plan.manifest, log)
                source = _erased(plan, log, staged, install, connection, host, say, owner)
                names = {piece.path: piece.name for piece in plan.server.collections}
                _note_new(staged, connection, source, names, plan.snapshot)
                with _kept_when_published(connection, source, names, target, stay, say):
                    wrong: list[SnapshotProblem] = []
                    for path, name in names.items():
                        compare_points(connection, source.copies[path], name, wrong)
                    if wrong:
                        raise Failed(f"what the server made is not the snapshot's ({wrong[0].detail})")
                    exchange.drop(staged, COPY, SCRATCH_NOTE)
                    exchange.take_after(staged, target if target.is_dir() else None, owner)
                    files.sync_tree(staged)
                    exchange.publish_folder(staged, target)
            except BaseException:
                # where a collection stays, the note of it does too, for the next run
                if exchange.identity_of(staged) is not None and not stay:
                    _clear_away(connection, staged)
                raise
    except (OSError, sqlite3.Error, ServerProblem, Failed) as error:
        _nothing_restored(error, plan, stay)
    _forget_new(target)
    return replace(_restored_new(plan, source.manifest), erased=plan.erase if plan.erase.anything else None)


def _forget_new(target: Path) -> None:
    """Both are there: the note of it goes. Raises Failed."""
    try:
        exchange.drop(target, NEW_NOTE)
    except OSError as error:
        raise Failed(
            f"both stores are restored, but {target / NEW_NOTE} cannot be removed: {words(error)}",
            "the same command removes it",
        ) from None


def _published(left: LeftNew, plan: RestorePlan, connection: Connection) -> Restored:
    """Finishes a restore that was cut off when all was there."""
    assert plan.server is not None
    between = tuple(
        f"{name} holds other points than were put into it: somebody wrote to it."
        for name, (_, digest) in left.made.items()
        if digest and not left.is_as_made(connection, name)
    )
    _forget_new(left.folder)
    names = {f"{piece.role}": left.made.get(piece.name, (None, ""))[0] for piece in plan.server.collections}
    counts, _ = log_counts(left.folder / snapshot_core.HISTORY)
    counts |= {"memories": names.get("memories"), "entities": names.get("entities", 0)}
    done = _restored_new(plan, replace(plan.manifest, counts={**plan.manifest.counts, **counts}))
    return replace(done, resumed=True, between=between)


def _clear_away(connection: Connection, folder: Path) -> None:
    """After a failure: the staging folder goes, unless a scratch collection stays that only its note tells."""
    with suppress(OSError, Failed):
        remove_noted_scratch(connection, folder)
        exchange.remove_staging([folder])


def _restored_new(plan: RestorePlan, manifest: Manifest) -> Restored:
    assert plan.server is not None
    return Restored(
        plan.snapshot,
        manifest,
        history=f"{plan.to}/{snapshot_core.HISTORY}",
        vectors=plan.server.url,
        in_place=False,
        warnings=plan.warnings,
        settled=plan.interrupted,
        collection=next(piece.name for piece in plan.server.collections if piece.role == "memories"),
    )


def _nothing_restored(
    error: OSError | sqlite3.Error | ServerProblem | Failed, plan: RestorePlan, stay: Sequence[str]
) -> NoReturn:
    what = error.message if isinstance(error, Mem0auditError) else words(error)
    what = what.removesuffix("; nothing was changed")
    also = f"; {', '.join(stay)} may be on the server still" if stay else ""
    then = "the same command removes that, and begins again" if stay else "the same command begins again"
    raise Failed(f"{what}; nothing was restored{also}", then) from None


@contextmanager
def _kept_when_published(
    connection: Connection,
    source: _Source,
    names: Mapping[str, str],
    target: Path,
    stay: list[str],
    say: Progress,
) -> Iterator[None]:
    """The new collections on the server: removed at the end, unless the new folder is there, with the note of them.
    What cannot be removed is in `stay` then."""
    wait_s = APPEARS_S
    try:
        _put_all(connection, source, names, say)
        wait_s = 0.0
        yield
    finally:
        if not os.path.lexists(target / NEW_NOTE):
            stay += [name for name in names.values() if not serversnapshots.dropped(connection, name, wait_s)]


# --- New collections of a run that was killed ----------------------------------------------------------------

NEW_NOTE: Final = "collections.json"
"""In the staging folder, and for a moment in the new folder: which collections are made, with what in them."""


@dataclass(frozen=True)
class LeftNew:
    """What a restore into a new folder noted, and was cut off. `published`: the folder is there, and whole. `made` are
    the number and digest of the points of each collection, None and "" where they are not known."""

    folder: Path
    url: str
    snapshot: str
    published: bool
    made: Mapping[str, tuple[int | None, str]]
    paths: Mapping[str, str]
    """Where each lies in the snapshot."""

    def ours(self, connection: Connection) -> tuple[str, ...]:
        """Those that are on the server, and hold just what was put into them: nobody else made or changed them since.
        Raises Refused where one does not, ServerProblem."""
        if self.url != connection.address.url:
            return ()
        there = set(serversnapshots.names(connection))
        for name in there & set(self.made):
            if self.published or self.is_as_made(connection, name) or self._is_part(connection, name):
                continue
            raise Refused(
                f"{self.url}: a restore was cut off that was to make {name}, which is there and not known to hold "
                "what that would have put into it: it is left alone",
                f"if nobody needs it, remove it there: DELETE {self.url}{collection_path(name)}\n"
                f"or forget that restore: rm -r {shell_word(str(self.folder))}",
            )
        return tuple(there & set(self.made))

    def is_as_made(self, connection: Connection, name: str) -> bool:
        """Whether a collection holds just what was put into it. Raises ServerProblem."""
        points, digest = self.made[name]
        if not digest or serversnapshots.wait_until_ready(connection, name, 0.0) is not None:
            return False
        read = serversnapshots.read_digest(connection, name)
        return (read.count, read.hexdigest()) == (points, digest)

    def _is_part(self, connection: Connection, name: str) -> bool:
        """Whether every point of a collection that is put back shard by shard is one of the snapshot's, which is put
        under a scratch name to see that. Raises ServerProblem."""
        try:
            source = _of_snapshot(self.snapshot)
            one = source.copies[self.paths[name]]
            found = serversnapshots.described(connection, name)
            if not one.shards or found is None or not serverrestore.alike(one.params, found.params):
                return False
            scratch = scratch_names([one], secrets.token_hex(6))[one.name]
            with put_as(
                connection, source.manifest, source.folder, [one], lambda _: scratch, no_progress, []
            ):
                return is_part_of(connection, name, scratch)
        except (OSError, ValueError, KeyError, snapshot_core.NotAManifest):
            return False
        except ServerProblem as problem:
            if problem.kind != "server":
                raise
            return False  # a shard that does not read

    def said(self, snapshot: str) -> Interrupted:
        """It, as what the next run does about it."""
        course: core.Course = "finish" if self.published and self.snapshot == snapshot else "clean"
        return Interrupted(str(self.folder), self.snapshot, None, course)


def left_new(to: str, host: Host) -> LeftNew | None:
    """What a restore into a new folder left that was cut off; None where none did, or one is at work. Changes nothing.
    Raises Refused."""
    try:
        target = Path(resolved(to, host))
        staged = Path(core.staging_beside(str(target)))
        if os.path.lexists(staged) and exchange.at_work(staged):
            return None
        whole = (target / snapshot_core.HISTORY).is_file()
        published = _noted_new(target, published=True) if whole else None
        return published or _noted_new(staged, published=False)
    except OSError as error:
        raise Refused(f"{to}: {words(error)}") from None


def _noted_new(folder: Path, *, published: bool) -> LeftNew | None:
    """What is noted in a folder; None where nothing is. Raises Refused, OSError."""
    try:
        raw = json.loads(snapshots.small_file(folder / NEW_NOTE))
        made = {str(name): (points, str(digest)) for name, (points, digest) in raw["made"].items()}
        paths = {str(name): str(path) for name, path in raw["paths"].items()}
        return LeftNew(folder, str(raw["url"]), str(raw["snapshot"]), published, made, paths)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused(f"{folder / NEW_NOTE} does not read", "look at it, and move it away by hand") from None


def _note_new(
    staged: Path, connection: Connection, source: _Source, names: Mapping[str, str], snapshot: str
) -> None:
    """Notes which collections are made, before the first is. Raises OSError."""
    made = {name: (source.copies[path].points, source.copies[path].digest) for path, name in names.items()}
    paths = {name: path for path, name in names.items()}
    noted = {"url": connection.address.url, "snapshot": snapshot, "made": made, "paths": paths}
    exchange.write_in(staged, NEW_NOTE, json.dumps(noted).encode("ascii"))


def _remove_left_new(connection: Connection, staged: Path, plan: RestorePlan) -> None:
    """Removes what a run made that was killed. Raises Refused, Failed, ServerProblem."""
    assert plan.to is not None
    left = _noted_new(staged, published=False)
    if left is None:
        return
    if left.url != connection.address.url:
        raise Refused(
            f"a restore into {plan.to} was cut off that made collections on {left.url}",
            f"with --qdrant-url {left.url} they are removed; to forget that one: rm -r {shell_word(str(staged))}",
        )
    stays = [name for name in left.ours(connection) if not serversnapshots.dropped(connection, name)]
    if stays:
        raise Failed(f"{stays[0]}, which a run that was cut off made, cannot be removed")


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
        settled = None
        if intent is not None:
            salts, of_this = plan.erase.salts, intent.snapshot == plan.snapshot
            if not of_this or not core.is_behind(salts, intent.erased, audited=intent.done):
                return _go_on(intent, plan, host, install, connection, folder, say)
            _undo(intent, connection, folder, say)
            settled = plan.interrupted
        notes: list[str] = []
        try:
            begun = _prepared(plan, host, install, connection, folder, owners, say, now, notes)
        except BaseException as error:
            _clear_away(connection, folder)
            if isinstance(error, (OSError, sqlite3.Error)):
                raise Failed(
                    f"{words(error)}; nothing was changed", "the same command begins again"
                ) from None
            if isinstance(error, ServerProblem):
                raise Failed(f"{error.message}; nothing was changed", error.hint) from None
            raise
        done = _through(begun, plan, host, install, connection, folder, say)
    told = (*done.warnings, *(f"{note[0].upper()}{note[1:]}." for note in notes))
    return replace(done, settled=settled, erased=plan.erase if plan.erase.anything else None, warnings=told)


def _undo(intent: ServerIntent, connection: Connection, folder: Path, say: Progress) -> None:
    """Takes back one that was cut off and does not know of an erasure since, so that it is begun again. Raises Failed,
    Refused."""
    if intent.url != connection.address.url:
        raise Refused(
            f"a restore onto {intent.url} was cut off here", "finish it with that --qdrant-url first"
        )
    say("an earlier restore was cut off: taking it back", None, None)
    try:
        _put_what_was_there(intent, connection, say)
        exchange.empty_staging([folder])
    except (OSError, Mem0auditError, exchange.InUse) as problem:
        why = problem.message if isinstance(problem, Mem0auditError) else str(problem)
        raise Failed(
            f"an earlier restore was cut off before somebody was erased, and cannot be taken back: {why}",
            "the same command tries again; keep every agent stopped until then",
        ) from None


def _prepared(
    plan: RestorePlan,
    host: Host,
    install: Install,
    connection: Connection,
    folder: Path,
    owners: dict[str, tuple[int, int]],
    say: Progress,
    now: Callable[[], float],
    notes: list[str],
) -> ServerIntent:
    """All that comes before the first change; the intent, written. What the snapshot of what is there has to say is
    added to `notes`. Raises Failed, Refused, ServerProblem, OSError."""
    assert plan.server is not None
    (target,) = plan.targets
    remove_noted_scratch(connection, folder)
    check_no_newer(plan, host)
    kept = _snapshot_of_what_is_there(plan, host, install, say, now, notes)
    exchange.empty_staging([folder])
    staged = folder / snapshot_core.HISTORY
    say("copying the log", None, None)
    _stage_log(plan, plan.snapshot, plan.manifest, staged)
    source = _erased(plan, staged, folder, install, connection, host, say, owners["history"])
    old = Path(target.real) if target.exists else None
    exchange.take_after(staged, old, owners["history"])
    files.sync_tree(folder)
    _prove(source, plan, connection, folder, say)
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
        erased=plan.erase.salts,
        copied=plan.erase.anything,
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
    plan: RestorePlan,
    host: Host,
    install: Install,
    say: Progress,
    now: Callable[[], float],
    notes: list[str],
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
    # nobody is kept waiting: where somebody writes, it is refused
    taken = create_of_server(before, host, progress=say, now=now, ledger=plan.ledger, hold=False)
    if not taken.manifest.settled:
        raise Refused(
            f"{taken.manifest.unsettled_why}: somebody writes to this install; nothing was changed",
            "stop every agent that uses it, and run this again",
        )
    notes += taken.notes
    return taken.path


def _prove(source: _Source, plan: RestorePlan, connection: Connection, folder: Path, say: Progress) -> None:
    """The server makes the collections under scratch names, which are compared and removed; they are noted in the
    staging folder before, for the run after a kill. Raises Failed where they are not the snapshot's, ServerProblem."""
    assert plan.server is not None
    copies = [source.copies[piece.path] for piece in plan.server.collections]
    names = scratch_names(copies, secrets.token_hex(6))
    note_scratch(folder, connection, names.values())
    wrong: list[SnapshotProblem] = []
    left: list[str] = []
    with put_as(connection, source.manifest, source.folder, copies, lambda one: names[one.name], say, left):
        for one in copies:
            say(f"reading {one.name} under a scratch name", None, None)
            compare_points(connection, one, names[one.name], wrong)
    if wrong:
        raise Failed(f"{wrong[0].path} {wrong[0].detail}; nothing was changed")
    if left:
        raise Failed(f"the scratch collection {left[0]} could not be removed again; nothing else was changed")


def _unchanged(kept: str | None, plan: RestorePlan, connection: Connection) -> None:
    """Raises Refused where the points are other ones than in the snapshot of what is there: what came since would be
    lost."""
    assert plan.server is not None
    if kept is None:
        if set(serversnapshots.names(connection)) & {piece.name for piece in plan.server.collections}:
            raise Refused("a collection came meanwhile; nothing was changed", "run it again")
        return
    manifest = _of_snapshot(kept).manifest
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
        _put_both(intent, _source_of(intent, plan, folder), connection, say)
    except BaseException as error:  # noqa: BLE001 - taken back whatever it is, and raised again
        _take_back(intent, connection, folder, error, say)
    return _end(intent, plan, host, install, connection, folder, say)


def _source_of(intent: ServerIntent, plan: RestorePlan, folder: Path) -> _Source:
    """What an intent puts back. Raises Refused, OSError."""
    if intent.copied:
        return _Source(folder / COPY, staged_manifest(folder))
    return _Source(Path(plan.snapshot), plan.manifest)


def _put_both(intent: ServerIntent, source: _Source, connection: Connection, say: Progress) -> None:
    """The points, then the log. Raises ServerProblem, Failed, Refused, OSError, exchange.InUse."""
    _put_all(connection, source, intent.names, say)
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
        _put_what_was_there(intent, connection, say)
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


def _put_what_was_there(intent: ServerIntent, connection: Connection, say: Progress) -> None:
    """Both stores as they were before a restore. Raises Failed, ServerProblem, OSError, exchange.InUse."""
    exchange.back(intent.pieces)
    if intent.kept is None:
        gone = [name for name in intent.names.values() if not serversnapshots.dropped(connection, name, 3.0)]
        if gone:
            raise Failed(f"{gone[0]} cannot be removed again")
        return
    kept = _of_snapshot(intent.kept)
    _put_all(connection, kept, _names_of(kept.manifest, intent), say)
    if _differing(connection, kept.manifest, _names_of(kept.manifest, intent)):
        raise Failed("the server does not hold what it held")


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
                _put_both(intent, _source_of(intent, plan, folder), connection, say)
            done = _end(intent, plan, host, install, connection, folder, say)
            return replace(done, resumed=True, settled=plan.interrupted)
        if intent.kept != plan.snapshot:
            raise Refused(f"a restore of {intent.snapshot} was cut off here", "finish it first")
        if plan.erase.anything:
            raise Refused(
                f"somebody was erased since {plan.snapshot} was taken, the way back from a restore that was cut off",
                f"finish that one first:  mem0audit snapshot restore {shell_word(intent.snapshot)} --in-place",
            )
        exchange.back(intent.pieces)
        source = _Source(Path(plan.snapshot), plan.manifest)
        _put_all(connection, source, _names_of(plan.manifest, intent), say)
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
    return _restored(plan, plan.manifest, install, connection, (), between, taken_back, None)


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
        manifest = _source_of(intent, plan, folder).manifest
        between = _differing(connection, manifest, intent.names)
        if not between:
            time.sleep(AFTERWARDS_S)
            between = _differing(connection, manifest, intent.names)
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
    done = _restored(plan, manifest, install, connection, replaced, between, None, intent.kept)
    return put_to_the_chain(done, plan, install, host, say)


def _restored(
    plan: RestorePlan,
    manifest: Manifest,
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
        manifest,
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
