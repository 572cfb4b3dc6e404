"""Move the vectors of an install from a Qdrant server to a folder, as the agent's own qdrant-client writes one.

It is written beside its place by that client, read back by ours and compared point by point, and gets its name by one
rename. The server is left as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.model import CollectionInfo, Install, Origin, PointId
from mem0audit.core.relocate import destination
from mem0audit.core.snapshot import canonical
from mem0audit.core.toserver import ToServerDone, ToServerPlan
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host
from mem0audit.operations.agentconfig import plan_folder_update
from mem0audit.operations.carrying import FromServer, Looked, moving
from mem0audit.operations.interrupted import words
from mem0audit.operations.look import Progress, no_collector, no_progress
from mem0audit.operations.mem0door import Door, find_door
from mem0audit.operations.relocate import check_writable, place_to_move_to
from mem0audit.operations.relocatemove import is_store
from mem0audit.operations.stores import place_of
from mem0audit.operations.targets import in_use
from mem0audit.operations.toserver import (
    chosen,
    hold,
    refuse_first,
    refuse_running,
    seen_now,
    source_of,
    told,
)
from mem0audit.stores import exchange, files
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.mem0api import Mem0Worker
from mem0audit.stores.pickles import WholePoint
from mem0audit.stores.server import connection_to

WORK = "move to a folder"
AT_ONCE = 64
INCOMING = ".mem0audit-incoming"
"""The new folder lies beside its place, has its name with a dot before it, and ends so until it is whole."""


def plan_to_folder(
    install: Install, host: Host, to: str, *, ledger: bool = True, progress: Progress | None = None
) -> ToServerPlan:
    """What a move of the vectors from their server to the folder `to` (absolute) would do. Changes nothing.

    Raises Refused where the place is unsafe or not empty, or where no mem0 is known whose client would write it;
    CouldNotRead, ServerProblem where the server cannot be read.
    """
    say = progress or no_progress
    refuse_first(install, host)
    seen, held, _, _ = seen_now(install, host)
    real = place_to_move_to(to, host)
    target = Path(real)
    try:
        if is_store(real):
            raise Refused(f"{to} holds a store already", "name another folder with --to")
        if target.is_dir() and any(target.iterdir()):
            raise Refused(f"{to} is not empty: a store moves to a new or an empty folder", "name another one")
    except OSError as error:
        raise Refused(f"{to}: {words(error)}") from None
    check_writable(to, real)
    source, infos = source_of(seen, host)
    seen = replace(seen, collection=chosen(seen, infos))
    found = [source.looked(info, say).carried for info in moving(seen, infos)]
    if not found:
        raise CouldNotRead(
            f"{place_of(seen)} has no collection {seen.collection.value}", "name it with --collection"
        )
    find_door(seen, host, ledger=ledger)
    with connection_to(seen) as connection:
        version = connection.version()
    names = {one.name for one in found}
    agent = whose_mem0(seen, held.holders, host)
    left = tuple(c.name for c in infos if c.name not in names)
    said = (f"Left behind on {place_of(seen)}: {', '.join(left[:5])}.",) if left else ()
    return ToServerPlan(
        install=replace(install, collection=seen.collection),
        seen=seen,
        url=real,
        key_from=None,
        version=version,
        collections=tuple(found),
        left=left,
        agent=agent,
        holders=held.holders,
        unseen=held.why,
        warnings=said,
        ledger=ledger,
        advice=plan_folder_update(install, host, real, mem0=agent.mem0_version),
    )


def apply_to_folder(plan: ToServerPlan, host: Host, *, progress: Progress | None = None) -> ToServerDone:
    """Does what was planned. Raises Refused where somebody has the log open, Failed: nothing was put in place, the
    server is as it was, and the same command begins again."""
    say = progress or no_progress
    started = time.monotonic()
    refuse_running(plan, host)
    door = find_door(plan.seen, host, ledger=plan.ledger)
    target = Path(plan.url)
    staging = Path(destination(plan.url, False).staging)
    incoming = target.parent / f".{target.name[:200]}{INCOMING}"
    with ExitStack() as stack:
        try:
            owner = (os.geteuid(), os.getegid()) if door.user is None else _owner(door)
            exchange.make_parents(target.parent, owner)
            stack.enter_context(exchange.staging(staging, WORK))
            hold(plan, host, stack)
            _cleared(incoming, owner)
            files.make_folders(incoming)
            exchange.take_after(incoming, None, owner, 0o700)
            done = _carried(plan, incoming, door, host, say)
            exchange.take_after(incoming, None, owner, 0o700)
            files.sync_tree(incoming)
            with exchange.store_locked(incoming):
                refuse_running(plan, host)
                if target.is_dir():
                    exchange.remove_empty_folder(target)
                exchange.publish_folder(incoming, target)
                new = replace(plan.install, server_url=None, server_key=None, server_key_from=None)
                new = replace(new, vectors=Origin(plan.url, "where it was moved"))
                warnings = told(plan, new, host, say)
            exchange.remove_staging([staging])
        except exchange.InUse as problem:
            in_use(problem, None)
        except OSError as error:
            raise Failed(
                f"{words(error)}; nothing was put in place", "the same command begins again"
            ) from None
        except (Failed, CouldNotRead) as problem:
            hint = f"{problem.hint}; " if problem.hint else ""
            raise Failed(
                f"{problem.message}; nothing was put in place", f"{hint}the same command begins again"
            ) from None
        finally:
            if incoming.exists():
                with suppress(OSError, Mem0auditError):
                    exchange.discard(incoming, sides=False)
                    exchange.remove_staging([staging])
    return replace(done, warnings=plan.warnings + warnings, seconds=time.monotonic() - started)


def _owner(door: Door) -> tuple[int, int]:
    found = Path(door.history).stat()
    return found.st_uid, found.st_gid


def _cleared(incoming: Path, owner: tuple[int, int]) -> None:
    """Removes what a run that was cut off left. Raises Refused where it is somebody else's."""
    there = exchange.owner_of(incoming)
    if there is None:
        return
    if there[0] not in (owner[0], os.geteuid()) or not incoming.is_dir() or incoming.is_symlink():
        raise Refused(f"{incoming}: is not this user's own", "look at it, and move it away")
    exchange.discard(incoming, sides=False)


def _carried(plan: ToServerPlan, incoming: Path, door: Door, host: Host, say: Progress) -> ToServerDone:
    source, infos = source_of(plan.seen, host)
    assert isinstance(source, FromServer)
    looked = [source.looked(info, say) for info in moving(plan.seen, infos)]
    before = source.stamp(looked)
    sums: dict[str, dict[PointId, bytes]] = {}
    with Mem0Worker.new_folder(door.interpreter, incoming, door.user) as client:
        for one in looked:
            carried = one.carried
            client.make_collection(
                carried.name, carried.dims, carried.distance, keyword_slot=carried.keyword_slot
            )
            sums[carried.name] = _written(client, source, one, say)
    say("reading the new folder", None, None)
    store = EmbeddedStore(str(incoming), alone=True)
    infos_now = {info.name: info for info in store.layout().collections}
    with no_collector():
        for name, was in sums.items():
            _compare(store, infos_now.get(name), name, was)
    say("looking at the server again", None, None)
    if source.stamp(looked) != before:
        raise Failed(f"{plan.source} was written to meanwhile", "stop what writes to it")
    written = {name: len(was) for name, was in sums.items()}
    digests = {name: _of_all(was) for name, was in sums.items()}
    return ToServerDone(plan, written, dict.fromkeys(written, 0), digests)


def _written(client: Mem0Worker, source: FromServer, one: Looked, say: Progress) -> dict[PointId, bytes]:
    found: dict[PointId, bytes] = {}

    def take(points: list[WholePoint]) -> None:
        for start in range(0, len(points), AT_ONCE):
            some = points[start : start + AT_ONCE]
            say(f"carrying {one.carried.name}", len(found), one.carried.points)
            client.put_points(one.carried.name, some, keyword_slot=one.carried.keyword_slot)
            found.update((point.id, _digest(point)) for point in some)

    source.carry(one, take)
    return found


def _digest(point: WholePoint) -> bytes:
    """Of all that a point has; keyword vectors in the order of their indices."""
    dense, keyword = point.vectors
    words = sorted(zip(*keyword, strict=True)) if keyword is not None and keyword[0] else None
    floats = None if dense is None else [float(x) for x in dense]
    text = canonical([point.id, point.payload, floats, words])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _of_all(sums: Mapping[PointId, bytes]) -> str:
    return f"{sum(int.from_bytes(one, 'big') for one in sums.values()) % (1 << 128):032x}"


def _compare(
    store: EmbeddedStore, info: CollectionInfo | None, name: str, was: Mapping[PointId, bytes]
) -> None:
    """Raises Failed where the new folder does not hold what was given to it."""
    if info is None:
        raise Failed(f"{name}: is not in the new folder, although it was made there")
    read = store.points(info, lambda rowid, _id, _payload, _facts: rowid)
    if read.file.problem is not None or read.bad or read.unsafe or read.rows.keys() != was.keys():
        raise Failed(f"{name}: the new folder does not hold the points that were written to it")
    different: list[PointId] = []

    def take(points: list[WholePoint]) -> None:
        different.extend(point.id for point in points if _digest(point) != was[point.id])

    store.whole(info, frozenset(read.rows.values()), take, at_once=AT_ONCE * 4)
    if different:
        raise Failed(f"{name}: the point {different[0]}, read back, is another one")
