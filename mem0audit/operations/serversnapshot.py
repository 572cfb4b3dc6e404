"""Take a snapshot of an install whose points lie on a Qdrant server: both stores as a pair, beside the running agent.

The server takes its own snapshot of each collection, which is one instant; nothing of ours can keep a writer from the
server meanwhile, so the pair is settled by looking: the ids and payloads of all points are read before and after, and
the log is watched from before the first look to after the last. Where neither changed, what the server put into its
snapshots is what was read, and the log beside it is of the same instant (mem0 writes the points first, the log
second, within milliseconds). Where one changed it is taken again.

Where an agent never holds still, the log is held meanwhile (see stores/heldlog.py): whoever writes through mem0 stands
still then, with at most one write to the points made and not logged yet. If the points stood still, the log is taken as
it is held or, let go for the one row that waits, as it is right after that. It is the pair's where the rules that
compare both stores find nothing in the pair that they did not find in the install both before and afterwards. What
never holds still even so is taken, and says so.
"""

from __future__ import annotations

import calendar
import json
import os
import platform
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mem0audit import __version__
from mem0audit.core import snapshot as core
from mem0audit.core.errors import CouldNotRead, Failed, Refused, ServerProblem
from mem0audit.core.model import Agent, Install, NotChecked, Report, SealOutcome
from mem0audit.core.reading import ENTITIES_SUFFIX, TELEMETRY_COLLECTIONS, Reading
from mem0audit.core.seal import Sealing
from mem0audit.core.snapshot import (
    CollectionCopy,
    CopyRole,
    Manifest,
    ServerCopy,
    ServerPlan,
    ShardFile,
    SnapshotFile,
    Taken,
)
from mem0audit.core.times import shown
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host, seen_through
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations import leftonserver
from mem0audit.operations.audit import STORES_GROUPS, audit
from mem0audit.operations.copied import counted
from mem0audit.operations.erasures import erasures_on_record, keep_beside
from mem0audit.operations.heldpair import HeldPair, held_pair
from mem0audit.operations.look import Progress, no_progress
from mem0audit.operations.otherroots import as_the_agent_sees_it, brought_here
from mem0audit.operations.seal import settled_look
from mem0audit.operations.serververify import gaps_in, log_counts
from mem0audit.operations.snapshot import (
    SLACK_BYTES,
    checked_folder,
    kept_in_ledger,
    published,
    write_manifest,
)
from mem0audit.stores import files, pair, serversnapshots, snapshots
from mem0audit.stores.server import Connection, connection_to
from mem0audit.stores.serversnapshots import Described, Remote

ATTEMPTS: Final = 3
STILL_S: Final = 0.1
"""So long the log must have been still before the server is asked for its snapshot."""
STILL_WAIT_S: Final = 2.0
ASKED_S: Final = 2
"""A server that is asked for a snapshot begins it within so many seconds."""
REMOTE: Final = "remote.json"
"""In the hidden folder while it is at work: the snapshots that lie on the server for it."""


def on_server(install: Install) -> bool:
    """Whether the points of an install lie on a Qdrant server."""
    return install.vectors is None and install.server_url is not None


# --- Plan ----------------------------------------------------------------------------------------


def plan_server_create(install: Install, host: Host, folder: str) -> ServerPlan:
    """What `create_of_server` would do. Changes nothing, and makes no folder.

    Raises Refused where it would be unsafe or cannot be a pair, CouldNotRead (ServerProblem) where a store is not
    there or cannot be asked.
    """
    held = holders([install.history.value], host)
    install = as_the_agent_sees_it(install, held.holders, host)
    path = install.history.value
    if seen_through(path, host)[0] is not None and os.geteuid():
        raise Refused(
            f"{path} lies under another process's root, which only root may enter",
            "run the same command with sudo",
        )
    place = look_at(path, host)
    if place.problem is not None:
        raise CouldNotRead(f"{path}: {place.problem}")
    if not place.exists:
        raise CouldNotRead(
            f"{path} is not there: without the log there is no pair to take",
            "where this install writes: mem0audit status",
        )
    where = checked_folder(folder, install, host)
    size = _size(path)
    if size > core.BY_PAGES_BYTES:
        raise Refused(
            f"{path}: {size / 1e9:.1f} GB; this version copies a log up to {core.BY_PAGES_BYTES / 1e9:.0f} GB"
        )
    with connection_to(install) as connection:
        version = connection.version()
        found = collections_of(install, connection)
    needed = 2 * size + SLACK_BYTES
    if where.free_bytes is not None and where.free_bytes < needed:
        raise Refused(
            f"{folder}: {where.free_bytes:,} bytes are free, the log alone needs {needed:,}",
            "name a folder with more room with --to",
        )
    return ServerPlan(
        install=install,
        folder=folder,
        name=core.name_of(host.now),
        version=version,
        collections=tuple((role, one.name, one.points, _path(one)) for role, one in found),
        history_bytes=size,
        needed_bytes=needed,
        free_bytes=where.free_bytes,
        hold_s=pair.hold_bound(size),
        place=where,
        running=bool(held.holders) or not held.complete,
    )


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def collections_of(install: Install, connection: Connection) -> tuple[tuple[CopyRole, Described], ...]:
    """The collections of an install on its server, the memories first, then its entities and mem0's telemetry.

    Raises CouldNotRead where that of the memories is not there, Refused where a snapshot would not hold all of one,
    ServerProblem.
    """
    names = serversnapshots.names(connection)
    wanted = install.collection.value
    if wanted not in names:
        there = ", ".join(n for n in names if n not in TELEMETRY_COLLECTIONS) or "none"
        raise CouldNotRead(
            f"{connection.address.url}: there is no collection {wanted}; there are: {there}",
            "name the one with the memories with --collection",
        )
    roles: list[tuple[CopyRole, str]] = [("memories", wanted)]
    if f"{wanted}{ENTITIES_SUFFIX}" in names:
        roles.append(("entities", f"{wanted}{ENTITIES_SUFFIX}"))
    roles += [("telemetry", name) for name in sorted(TELEMETRY_COLLECTIONS & set(names) - {wanted})]
    found: list[tuple[CopyRole, Described]] = []
    for role, name in roles:
        one = serversnapshots.described(connection, name)
        if one is None:
            raise CouldNotRead(f"{connection.address.url}: the collection {name} went meanwhile")
        _check_whole(one, connection)
        found.append((role, one))
    return tuple(found)


def _path(one: Described) -> str:
    """Where a collection lies in the snapshot: its file, or the folder of the files of its shards."""
    return f"{core.SERVER}/{one.name}/" if one.shards else core.server_path(one.name)


@dataclass(frozen=True)
class _Wanted:
    """A file of the snapshot: a collection, or one shard of it, and the node that has it."""

    node: Connection
    collection: str
    shard: int | None
    path: str


def _wanted(one: Described, connection: Connection) -> tuple[_Wanted, ...]:
    if not one.shards:
        return (_Wanted(connection, one.name, None, core.server_path(one.name)),)
    return tuple(
        _Wanted(nodes[0], one.name, shard, core.server_path(one.name, shard))
        for shard, nodes in one.shards.items()
    )


def _check_whole(one: Described, connection: Connection) -> None:
    """Raises Refused where the server's snapshot would not be the whole collection."""
    where = connection.address.url
    if not core.safe_collection(one.name):
        raise Refused(f"{where}: a collection is named as no file can be")
    if one.elsewhere and one.silent:
        raise Refused(
            f"{one.silent[0]}: {one.elsewhere} of the shards of {one.name} lie there, or have no active copy",
            "take it when that node is back",
        )
    if one.elsewhere:
        raise Refused(
            f"{where}: {one.elsewhere} of the shards of {one.name} lie on other nodes of its cluster only: a snapshot "
            "of this node is not the whole collection",
            "name the other nodes too, by the addresses that clients use: --node URL for each, or qdrant_nodes in "
            "mem0audit.toml",
        )
    if one.busy is not None:
        raise Refused(f"{where}: {one.name}: {one.busy}", "try again when the cluster is done with it")


# --- Create ------------------------------------------------------------------------------------------


def create_of_server(
    plan: ServerPlan,
    host: Host,
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
    ledger: bool = True,
    until: float | None = None,
    hold: bool = True,
) -> Taken:
    """Takes the snapshot that was planned, beside the running agent; a short-lived one goes `until` then.

    The server's snapshot of each collection is downloaded with its checksum proven and removed on the server, also
    where the rest fails; the log is copied as for a folder; then both are published by one rename. Where there is a
    `ledger` (False: it is neither read nor written) both stores are sealed, as of a moment without a write between them
    (that of the pair where its log was held, else the next one), and the folder is remembered. Raises Refused where
    another run works in the same folder, Failed where nothing was published.
    """
    with ledgers.opened(plan.install, host, wanted=ledger, make=True) as book:
        assert book is not None
        sealing = ledgers.sealing_of(book)
        taken, reading = _create(plan, host, progress or no_progress, now, sealing, ledger, until, hold)
        if not ledger:
            return taken
        if isinstance(book, NotChecked) or isinstance(sealing, NotChecked):
            missing = book if isinstance(book, NotChecked) else sealing
            assert isinstance(missing, NotChecked)
            return replace(taken, seal=SealOutcome(False, f"there is no ledger: {missing.why}"))
        (progress or no_progress)("sealing", None, None)
        if reading is None:
            reading = settled_look(plan.install, host, sealing, progress or no_progress)
        return replace(taken, seal=kept_in_ledger(book, sealing, taken, reading))


def _create(
    plan: ServerPlan,
    host: Host,
    say: Progress,
    now: Callable[[], float],
    sealing: Sealing | NotChecked,
    ledger: bool,
    until: float | None,
    hold: bool,
) -> tuple[Taken, Reading | None]:
    """The snapshot, and what can be sealed of it where its log was held."""
    install = plan.install
    notes: list[str] = []
    read: list[Reading] = []

    def fill(hidden: Path, name: str, last: bool) -> Manifest | None:
        beside_seal = sealing if isinstance(sealing, Sealing) else None
        with brought_here(install, host) as here, connection_to(install) as connection:
            return _take(
                *(install, here, host, connection, hidden, name, now, say, notes, last, until, hold),
                *(beside_seal, read),
            )

    def beside(folder: Path) -> str | None:
        return keep_beside(folder, erasures_on_record(install, None, host, ledger=ledger))

    try:
        notes += remove_left_on_server(Path(plan.folder), install)
        taken = published(Path(plan.folder), now, fill, say, attempts=ATTEMPTS, beside=beside)
    except serversnapshots.NotWhole as problem:
        raise Failed(f"{plan.install.collection.value}: {problem}; nothing was taken{_and(notes)}") from None
    except ServerProblem as problem:
        raise Failed(f"{problem.message}; nothing was taken{_and(notes)}", problem.hint) from None
    return replace(taken, notes=(*taken.notes, *notes)), read[0] if read else None


def _and(notes: Sequence[str]) -> str:
    return "".join(f"; {note}" for note in notes)


def _take(
    install: Install,
    here: Install,
    host: Host,
    connection: Connection,
    hidden: Path,
    name: str,
    now: Callable[[], float],
    say: Progress,
    notes: list[str],
    last: bool,
    until: float | None,
    hold: bool,
    sealing: Sealing | None,
    read: list[Reading],
) -> Manifest | None:
    """Fills the hidden folder; None where a store changed meanwhile and it can be taken again. Of a pair whose log was
    held `read` has the reading then."""
    version = connection.version()
    found = collections_of(install, connection)
    names = [one.name for _, one in found]
    log = pair.Stillness(here.history.value)
    say("waiting for a still moment", None, None)
    still = log.wait(STILL_S, STILL_WAIT_S)
    copies: dict[str, tuple[int, str]] = {}
    copied: pair.Pair | None = None
    with ExitStack() as stack:
        holding = None
        if hold and (last or not still):
            holding = stack.enter_context(held_pair(install, here.history.value, connection, now(), sealing))
        say("reading the points", None, None)
        before = {one.name: _first_digest(connection, one, notes, holding) for _, one in found}
        remotes: list[tuple[_Wanted, Remote]] = []
        for role, one in found:
            say(f"the server takes its snapshot of {one.name}", None, None)
            for wanted in _wanted(one, connection):
                remotes.append(
                    (wanted, stack.enter_context(_on_server(connection, wanted, hidden, remotes, notes)))
                )
            if role == "memories" and holding is None:
                copied = _log_alone(here, hidden, now)
        say("reading the points again", None, None)
        after = {one: _digest(connection, one) for one in names}
        if holding is None:
            time.sleep(pair.STILL_S)  # what was in flight lands
            why = _unsettled(still, log, before, after)
        else:
            copied = holding.taken(hidden / "raw") if before == after else None
            holding.let_go()
            why = _unsettled(copied is not None, None, before, after)
        if why is not None and not last:
            return None
        copied = copied or _log_alone(here, hidden, now)
        at = now()
        for number, (wanted, remote) in enumerate(remotes):
            say("downloading", number, len(remotes))
            _check_room(hidden, remote)
            copies[wanted.path] = serversnapshots.bring(wanted.node, remote, hidden / wanted.path)
    files.remove_new(hidden / REMOTE)
    say("rebuilding the copy of the log", None, None)
    (of_log,) = copied.files
    target = hidden / core.HISTORY
    files.rebuild_database(of_log.raw, target)
    wrong = snapshots.integrity(target)
    if wrong:
        raise pair.CannotTake(here.history.value, "damaged", f"its copy fails integrity_check: {wrong[0]}")
    say("auditing the install", None, None)
    report = audit(install, host, select=STORES_GROUPS, ledger=False, keep=False)
    if why is None and holding is not None and not holding.stands():
        why = "a write is in one half and not in the other"
        if not last:
            return None
    notes += [
        f"the install was not audited whole beside it, its faults may be more ({gap.what}: {gap.why})"
        for gap in gaps_in(report)[:1]
    ]
    files.sync_tree(hidden)
    collections = []
    for role, one in found:
        known = after[one.name] if before[one.name] == after[one.name] else None
        collections.append(
            CollectionCopy(
                one.name,
                role,
                _path(one).rstrip("/"),
                None if known is None else known[0],
                "" if known is None else known[1],
                one.params,
                one.payload_schema,
                tuple(ShardFile(shard, core.server_path(one.name, shard)) for shard in one.shards),
                one.config,
                one.kind.indexes,
            )
        )
    server = ServerCopy(connection.address.url, version, tuple(collections))
    listed = [
        SnapshotFile(
            core.HISTORY,
            *snapshots.digest(target),
            seen_through(install.history.value, host)[1],
            None,
            of_log.journal_mode,
            of_log.way,
        )
    ]
    for wanted, _ in remotes:
        size, sha = copies[wanted.path]
        source = f"{wanted.node.address.url}/collections/{wanted.collection}"
        way = "server snapshot"
        if wanted.shard is not None:
            source, way = f"{source}/shards/{wanted.shard}", "shard snapshot"
        listed.append(SnapshotFile(wanted.path, size, sha, source, wanted.collection, None, way))
    held = holders([install.history.value], host)
    agent = whose_mem0(install, held.holders, host)
    if holding is not None and holding.reading is not None:
        read[:] = [replace(holding.reading, agent=agent)]
    manifest = _manifest(install, host, name, shown(at), agent, server, listed, target, report, copied, why)
    manifest = replace(manifest, until=None if until is None else shown(until))
    write_manifest(hidden, manifest)
    return manifest


def _log_alone(here: Install, hidden: Path, now: Callable[[], float]) -> pair.Pair:
    source = pair.Source("history", here.history.value, "history")
    return pair.take_pair([source], None, hidden / "raw", now=now)


def _first_digest(
    connection: Connection, one: Described, notes: list[str], held: HeldPair | None
) -> tuple[int, str]:
    """The digest before: where there are several copies of each shard, of what all of them have. The one after is of
    any copy, so that copies that do not agree are seen as a change: the file is of one of them."""
    if one.shards:
        try:
            read = serversnapshots.read_digest(connection, one.name, every_copy=True)
        except ServerProblem as problem:
            if problem.kind not in ("server", "timeout"):
                raise
            note = f"not every copy of {one.name} answers, they were not compared (mem0audit explain Q952)"
            if note not in notes:
                notes.append(note)
        else:
            return read.count, read.hexdigest()
    if held is not None and one.name in held.digests:
        return held.digests[one.name]
    return _digest(connection, one.name)


def _digest(connection: Connection, collection: str) -> tuple[int, str]:
    read = serversnapshots.read_digest(connection, collection)
    return read.count, read.hexdigest()


def _unsettled(
    still: bool,
    log: pair.Stillness | None,
    before: Mapping[str, tuple[int, str]],
    after: Mapping[str, tuple[int, str]],
) -> str | None:
    """What changed while the server took its snapshots; None where nothing did."""
    changed = [name for name, read in before.items() if after[name] != read]
    wrote = not still or (log is not None and log.changed())
    if not changed and not wrote:
        return None
    what = [*(["the log"] if wrote else []), *changed]
    return f"{', '.join(what)} changed while the server took its snapshots"


@contextmanager
def _on_server(
    connection: Connection,
    wanted: _Wanted,
    hidden: Path,
    others: Sequence[tuple[_Wanted, Remote]],
    notes: list[str],
) -> Iterator[Remote]:
    """The server's snapshot of a collection or a shard, removed there at the end; noted in the hidden folder before
    and meanwhile, so that the run after a kill removes it."""
    before = serversnapshots.there(wanted.node, wanted.collection, wanted.shard)
    _note_remotes(hidden, connection, others, (wanted, before))
    remote: Remote | None = None
    try:
        with serversnapshots.taken(wanted.node, wanted.collection, before, wanted.shard) as remote:
            _note_remotes(hidden, connection, [*others, (wanted, remote)])
            files.step("server.taken")
            yield remote
    except ServerProblem as problem:
        if remote is None and problem.kind in ("cut", "timeout"):  # it goes on, and nobody hears the name
            where = wanted.node.address.url + serversnapshots.snapshots_path(wanted.collection, wanted.shard)
            notes.append(f"the server may take it all the same, and keep it: GET {where} lists what it has")
        raise
    finally:
        if remote is not None and serversnapshots.left_behind(wanted.node, remote) is not False:
            left = (*_noted(wanted), remote.name)
            leftonserver.remember(hidden.parent, [left])
            notes.append(f"{leftonserver.may_lie(left)}: the next run here removes it")


def _note_remotes(
    hidden: Path,
    connection: Connection,
    remotes: Sequence[tuple[_Wanted, Remote]],
    asked: tuple[_Wanted, frozenset[str]] | None = None,
) -> None:
    """What lies on the server for this run; `asked` is that of which a snapshot is asked for now (noted with the
    second), and those of it that were there before."""
    said = {
        "url": connection.address.url,
        "snapshots": [[*_noted(wanted), remote.name] for wanted, remote in remotes],
        "asked": None if asked is None else [*_noted(asked[0]), sorted(asked[1]), int(time.time())],
    }
    files.remove_new(hidden / REMOTE)
    files.write_new(hidden / REMOTE, json.dumps(said).encode("ascii"))


def _noted(wanted: _Wanted) -> tuple[str, str, int | None]:
    return wanted.node.address.url, wanted.collection, wanted.shard


def remove_left_on_server(folder: Path, install: Install) -> tuple[str, ...]:
    """Removes what earlier runs left on this server, killed or cut off from it; sentences about what stays.

    Of one that was killed before it knew the name it is the one that came since, of the second in which it asked. Where
    several came, or it is of another second, they may be somebody else's: they are told and not removed. Raises
    ServerProblem where the server cannot be asked."""
    if not folder.is_dir():
        return ()
    said: list[str] = []
    with files.snapshot_folder(folder), connection_to(install) as connection:
        for name in files.unfinished(folder):
            try:
                noted = json.loads(snapshots.small_file(folder / name / REMOTE))
                ours = [(str(u), str(c), _shard(s), str(n)) for u, c, s, n in noted["snapshots"]]
                at, asked, shard, before, second = noted["asked"] or (None, None, None, (), 0)
                second = int(second)
                if noted["url"] != connection.address.url:
                    continue
            except (OSError, ValueError, KeyError, TypeError):
                continue
            leftonserver.remember(folder, ours)
            nodes = {one.address.url: one for one in (connection, *connection.others)}
            if asked is not None and at in nodes and asked in serversnapshots.names(connection):
                left = sorted(serversnapshots.there(nodes[at], asked, shard) - set(before))
                known = {name for _, _, _, name in ours}
                came: list[leftonserver.Left] = [(at, asked, shard, n) for n in left if n not in known]
                if len(came) == 1 and second - 1 <= _second_of(came[0][3]) <= second + ASKED_S:
                    leftonserver.remember(folder, came)
                else:
                    said += map(leftonserver.may_lie, came)
        return (*leftonserver.remove_remembered(folder, connection), *said)


def _second_of(name: str) -> int:
    """When a server began a snapshot, as its name says it; 0 where it says nothing."""
    found = re.search(r"-(\d{4}(?:-\d\d){5})\.snapshot$", name, re.ASCII)
    try:
        return calendar.timegm(time.strptime(found[1], "%Y-%m-%d-%H-%M-%S")) if found else 0
    except ValueError:
        return 0


def _shard(raw: object) -> int | None:
    if raw is not None and type(raw) is not int:
        raise ValueError(raw)
    return raw


def _check_room(hidden: Path, remote: Remote) -> None:
    free = files.free_bytes(hidden)
    if free is not None and free < remote.size + SLACK_BYTES:
        raise Refused(
            f"{hidden.parent}: {free:,} bytes are free, the server's snapshot of {remote.collection} has "
            f"{remote.size:,}; nothing was taken",
            "name a folder with more room with --to",
        )


def point_counts(collections: Sequence[CollectionCopy]) -> dict[str, int | None]:
    """Memories and entities, None where not known."""
    found: dict[str, int | None] = {}
    for what, role in (("memories", "memories"), ("entities", "entities")):
        counts = [one.points for one in collections if one.role == role]
        known = [count for count in counts if count is not None]
        found[what] = sum(known) if len(known) == len(counts) else None
    return found


def _manifest(
    install: Install,
    host: Host,
    name: str,
    created_at: str,
    agent: Agent,
    server: ServerCopy,
    listed: Sequence[SnapshotFile],
    log: Path,
    report: Report,
    copied: pair.Pair,
    why: str | None,
) -> Manifest:
    counts, history = log_counts(log)
    assert install.server_url is not None
    return Manifest(
        name=name,
        created_at=created_at,
        history=replace(install.history, value=seen_through(install.history.value, host)[1]),
        vectors=replace(install.server_url, value=server.url),
        collection=install.collection,
        mem0_dir=install.mem0_dir,
        hostname=platform.node(),
        filesystems={"history": look_at(install.history.value, host).filesystem, "vectors": None},
        versions={
            "mem0audit": __version__,
            "mem0ai": agent.mem0_version,
            "qdrant-client": agent.client_version,
            "qdrant": server.version,
            "sqlite": sqlite3.sqlite_version,
        },
        files=tuple(sorted(listed, key=lambda file: file.path)),
        counts={**point_counts(server.collections), **counts},
        points_digest=core.server_digest(server.collections),
        history_digest=history,
        findings=counted(report.findings),
        settled=why is None,
        unsettled_why=why,
        tries=copied.tries,
        longest_hold_s=round(copied.longest_hold_s, 4),
        server=server,
    )
