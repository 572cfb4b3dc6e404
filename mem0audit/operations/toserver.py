"""Move the vectors of an install to a Qdrant server: every point with its id, vectors and payload, proven by reading
it back.

The old store is left as it is. While it is copied its lock is held, and a mark beside the log says which collections
on the server are this move's own: cut off at any moment, the same command goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from mem0audit.core import snapshot as snapshot_core
from mem0audit.core import toserver as core
from mem0audit.core.advice import dies_with_agent
from mem0audit.core.errors import CouldNotRead, Failed, Refused, ServerProblem
from mem0audit.core.model import CollectionInfo, Install, Origin, PointId, VectorFacts
from mem0audit.core.restore import NotAnIntent
from mem0audit.core.server import Secret, ServerAddress
from mem0audit.core.toserver import Begun, Carried, ToServerDone, ToServerPlan
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.agentconfig import plan_server_update
from mem0audit.operations.interrupted import interrupted, words
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, chosen_collection, no_collector, no_progress
from mem0audit.operations.otherroots import as_the_agent_sees_it
from mem0audit.operations.seal import explain
from mem0audit.operations.targets import how_to_stop, in_use, only_linux, refuse_holders
from mem0audit.stores import exchange, serverpoints, snapshots
from mem0audit.stores.embedded import STORAGE, EmbeddedStore
from mem0audit.stores.pickles import WholePoint
from mem0audit.stores.server import Connection, collection_path

WORK = "move to a server"
_AGAIN = "the same command goes on where it was"
_NAMED = 3


# --- Plan --------------------------------------------------------------------------------------------------


def plan_to_server(
    install: Install,
    host: Host,
    address: ServerAddress,
    key: Secret | None = None,
    *,
    key_from: str | None = None,
    ledger: bool = True,
    progress: Progress | None = None,
) -> ToServerPlan:
    """What a move of the vectors to that server would do. Reads both sides, changes neither.

    Raises Refused where a point has what a server does not take (named), where another move or a restore was cut off
    here, and where a collection of that name on the server holds points that no move of ours put there; CouldNotRead
    where the old store does not read whole, ServerProblem where the server does not answer.
    """
    say = progress or no_progress
    only_linux("stores are moved")
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        raise Refused(f"the vector store is {what}: this version moves embedded Qdrant folders to a server")
    refuse_left_moves(install, host)
    left_over = interrupted(install, host)
    if left_over is not None and left_over.course != "clean":
        raise Refused(
            f"a restore was cut off here ({left_over.folder}): it comes first",
            "mem0audit snapshot restore --in-place",
        )
    held = holders([install.history.value, install.vectors.value], host)
    seen = as_the_agent_sees_it(install, held.holders, host)
    assert seen.vectors is not None
    log, vectors = look_at(seen.history.value, host), look_at(seen.vectors.value, host)
    for place in (log, vectors):
        if place.problem is not None:
            raise CouldNotRead(
                f"{place.path}: {place.problem}", "run it as the owner of the stores, or with sudo"
            )
    if not log.exists:
        raise CouldNotRead(
            f"{log.path} is not there: without it the memories have no history", "mem0audit status"
        )
    begun = _begun(_staging(seen, host))
    store = EmbeddedStore(resolved(seen.vectors.value, host))
    layout = store.layout()
    if layout.problem is not None or not layout.exists:
        raise CouldNotRead(
            f"{seen.vectors.value}: {layout.problem.detail if layout.problem else 'is not there'}"
        )
    folder = seen.vectors.value
    seen = replace(seen, collection=chosen_collection(seen.collection, layout))
    with no_collector():
        found = [_looked_at(store, info, say).carried for info in _moving(seen, layout.collections)]
    if not found:
        raise CouldNotRead(f"{folder} has no collection {seen.collection.value}", "name it with --collection")
    say("looking at the server", None, None)
    with Connection(address, key) as connection:
        version = connection.version()
        for one in found:
            _check_target(connection, one, begun, seen, address)
    moving = {one.name for one in found}
    agent = whose_mem0(seen, held.holders, host)
    plan = ToServerPlan(
        install=replace(install, collection=seen.collection),
        seen=seen,
        url=address.url,
        key_from=key_from,
        version=version,
        collections=tuple(found),
        left=tuple(c.name for c in layout.collections if c.has_folder and c.name not in moving),
        agent=agent,
        holders=held.holders,
        dies=any(dies_with_agent(place, holder) for place in (log, vectors) for holder in held.holders),
        unseen=held.why,
        resumed=begun.started_at if begun is not None else None,
        ledger=ledger,
        advice=plan_server_update(install, host, address, with_key=key is not None),
    )
    return replace(plan, warnings=_warnings(plan, address, key))


def _staging(seen: Install, host: Host) -> str:
    """The folder with the mark. Raises Refused where the log is another process's own."""
    if seen_through(seen.history.value, host)[0] is not None:
        raise Refused(
            f"{seen.history.value} lies under another process's root", "run mem0audit where the agent runs"
        )
    return core.staging_of(resolved(seen.history.value, host))


def _begun(staging: str) -> Begun | None:
    """What a run that was cut off had begun; None where there was none. Raises Refused."""
    folder = Path(staging)
    if not os.path.lexists(folder):
        return None
    try:
        os.close(exchange.own_folder(folder, WORK))
        return core.parse_begun(snapshots.small_file(folder / core.MARK))
    except FileNotFoundError:
        return None
    except (NotAnIntent, ValueError) as problem:
        raise Refused(
            f"{folder / core.MARK}: {problem}", "look at that folder, and move it away by hand"
        ) from None
    except OSError as error:
        raise Refused(f"{folder}: {words(error)}") from None


def _moving(seen: Install, there: Sequence[CollectionInfo]) -> list[CollectionInfo]:
    """The configured collection, and its entities."""
    names = (seen.collection.value, seen.collection.value + ENTITIES_SUFFIX)
    return [info for info in there if info.name in names and info.has_folder]


class _Kept(NamedTuple):
    rowid: int
    wrong: str | None


@dataclass(frozen=True)
class _Looked:
    """A collection of the folder: what there is to carry, and the row of each id."""

    carried: Carried
    rowids: Mapping[PointId, int]


def _looked_at(store: EmbeddedStore, info: CollectionInfo, say: Progress) -> _Looked:
    """Raises CouldNotRead, Refused."""
    say(f"reading {info.name}", None, None)
    dims, distance = info.dims, store.distance(info)
    if dims is None or distance not in serverpoints.DISTANCES:
        raise Refused(f"{info.path}: meta.json does not say which vectors it has", "mem0audit audit")

    def keep(rowid: int, point_id: PointId, payload: Mapping[str, Any], facts: VectorFacts) -> _Kept:
        wrong = serverpoints.refused_payload(payload)
        if serverpoints.refused_id(point_id):
            wrong = "its id is neither a UUID nor a number"
        elif facts.flaw == "nan":
            wrong = "its vector holds what is no number"
        elif facts.dims is not None and facts.dims != dims:
            wrong = f"its vector has {facts.dims} dimensions"
        elif set(facts.names) - {"bm25"} or (facts.names and not info.keyword_slot):
            wrong = "it has vectors that mem0 does not write"
        return _Kept(rowid, wrong)

    read = store.points(info, keep)
    if read.file.problem is not None:
        raise CouldNotRead(f"{read.file.path}: {read.file.problem.detail}", "mem0audit audit")
    if read.bad or read.unsafe:
        raise Refused(
            f"{info.path}: {len(read.bad) + len(read.unsafe):,} points do not decode and would be left behind",
            "mem0audit audit",
        )
    odd = [(point_id, one.wrong) for point_id, one in read.rows.items() if one.wrong is not None]
    if odd:
        named = "; ".join(f"{str(i)[:100]} ({why})" for i, why in odd[:_NAMED])
        more = f" and {len(odd) - _NAMED:,} more" if len(odd) > _NAMED else ""
        raise Refused(
            f"{info.name}: a server does not take {named}{more}; nothing was changed",
            "delete or change them first, through the program that made them",
        )
    repeats = sum(len(one.loser_rowids) for one in read.duplicates)
    carried = Carried(info.name, dims, distance, info.keyword_slot, len(read.rows), repeats)
    return _Looked(carried, {i: one.rowid for i, one in read.rows.items()})


def _check_target(
    connection: Connection, one: Carried, begun: Begun | None, seen: Install, address: ServerAddress
) -> None:
    """Refuses a collection on the server that holds others' points, or is another one than mem0 would make."""
    ours = begun is not None and one.name in begun.made and begun.url == address.url
    if ours and begun is not None and seen.vectors is not None and begun.source != seen.vectors.value:
        raise Refused(
            f"a move of {begun.source} to {address.url} was cut off: it comes first",
            f"mem0audit relocate --qdrant-path {begun.source} --to-url {address.url}",
        )
    if not connection.get(collection_path(one.name, "exists"))["exists"]:
        return
    points = serverpoints.count(connection, one.name)
    if points and not ours:
        raise Refused(
            f"{address.url} has a collection {one.name} with {points:,} points already, which no move of this store "
            "put there",
            "name another server, or look at it:  mem0audit audit --qdrant-url " + address.url,
        )
    params = connection.get(collection_path(one.name))["config"]["params"]
    vectors = params.get("vectors") or {}
    vectors = vectors.get("", vectors)
    there = (vectors.get("size"), vectors.get("distance"), "bm25" in (params.get("sparse_vectors") or {}))
    if there != (one.dims, one.distance, one.keyword_slot):
        raise Refused(
            f"{address.url} has a collection {one.name} of another kind ({there[0]} dimensions, {there[1]}, "
            f"{'with' if there[2] else 'without'} keywords); {seen.collection.value} has {one.dims}, {one.distance}, "
            f"{'with' if one.keyword_slot else 'without'}",
            "remove it there if nobody needs it: it is empty",
        )


def _warnings(plan: ToServerPlan, address: ServerAddress, key: Secret | None) -> tuple[str, ...]:
    said = []
    if key is not None and address.scheme == "http" and not address.loopback:
        said.append("The key and every memory go over the network unencrypted: the address is an http one.")
    if key is None and not address.loopback:
        said.append("The server asks for no key: whoever reaches it can read and delete every memory.")
    if plan.left:
        said.append(f"Left behind in {plan.source}: {', '.join(plan.left[:5])}.")
    if repeats := sum(one.repeats for one in plan.collections):
        said.append(
            f"{repeats:,} older rows of ids that have a newer one stay behind, as Qdrant itself drops them."
        )
    return tuple(said)


# --- Apply -------------------------------------------------------------------------------------------------


def apply_to_server(
    plan: ToServerPlan,
    host: Host,
    address: ServerAddress,
    key: Secret | None = None,
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
) -> ToServerDone:
    """Does what was planned. Raises Refused where somebody has the stores open or writes to them, ServerProblem or
    Failed where it did not come to its end: the old store is as it was, and the same command goes on."""
    say = progress or no_progress
    started = time.monotonic()
    seen = plan.seen
    assert seen.vectors is not None
    _refuse_running(plan, host)
    folder = Path(resolved(seen.vectors.value, host))
    staging = Path(_staging(seen, host))
    with ExitStack() as stack:
        try:
            stack.enter_context(exchange.staging(staging, WORK))
            refuse_holders([seen.history.value, seen.vectors.value], host)
            stack.enter_context(exchange.store_locked(folder))
        except exchange.InUse as problem:
            in_use(problem, None)
        except OSError as error:
            raise Failed(f"{words(error)}; nothing was changed") from None
        try:
            done = _carried(plan, folder, staging, host, address, key, say, now)
        except ServerProblem as problem:
            raise type(problem)(
                problem.kind,
                f"{problem.message}; the old store is as it was",
                _hint(problem.hint),
                problem.status,
            ) from None
        except (Failed, CouldNotRead) as problem:
            raise Failed(f"{problem.message}; the old store is as it was", problem.hint or _AGAIN) from None
        warnings = _told(plan, host, say)
        exchange.remove_staging([staging])
    return replace(done, warnings=plan.warnings + warnings, seconds=time.monotonic() - started)


def _hint(hint: str | None) -> str:
    return f"{hint}; then {_AGAIN}" if hint is not None else _AGAIN


def _refuse_running(plan: ToServerPlan, host: Host) -> None:
    paths = [plan.seen.history.value, plan.source]
    held = holders(paths, host).holders
    if not held:
        return
    if plan.dies:
        raise Refused(
            f"{plan.source} is in use, and goes when that stops",
            "bring it to a folder that lasts first, from there to the server:  mem0audit relocate --to DIR",
        )
    raise Refused(
        f"{plan.source} is in use by {held[0].command} (pid {held[0].pid})", how_to_stop(held, paths, host)
    )


def _carried(
    plan: ToServerPlan,
    folder: Path,
    staging: Path,
    host: Host,
    address: ServerAddress,
    key: Secret | None,
    say: Progress,
    now: Callable[[], float],
) -> ToServerDone:
    store = EmbeddedStore(str(folder))
    with no_collector():
        looked = {
            one.carried.name: (info, one)
            for info in _moving(plan.seen, store.layout().collections)
            for one in [_looked_at(store, info, say)]
        }
    before = _stamps(folder, [info for info, _ in looked.values()])
    written: dict[str, int] = {}
    found: dict[str, int] = {}
    digests: dict[str, str] = {}
    with Connection(address, key) as writing, Connection(address, key) as reading:
        begun = _begun(str(staging))
        for _, one in looked.values():
            _check_target(writing, one.carried, begun, plan.seen, address)
        if begun is None or begun.url != address.url:
            begun = Begun(snapshot_core.name_of(now()), plan.source, address.url, tuple(looked))
            exchange.write_in(staging, core.MARK, core.begun_text(begun).encode("ascii"))
        elif set(looked) - set(begun.made):
            begun = replace(begun, made=(*begun.made, *(set(looked) - set(begun.made))))
            exchange.write_in(staging, core.MARK, core.begun_text(begun).encode("ascii"))
        for name, (info, one) in looked.items():
            carried = one.carried
            serverpoints.create_as_mem0(
                writing, name, carried.dims, carried.distance, keyword_slot=carried.keyword_slot
            )
            there = serverpoints.ids_in(reading, name)
            _refuse_others(there - one.rowids.keys(), name, address)
            carrier = serverpoints.Carrier(writing, reading, name, carried.distance, there)

            def take(
                points: list[WholePoint], carrier: serverpoints.Carrier = carrier, of: int = carried.points
            ) -> None:
                say(f"carrying {carrier.name}", carrier.written + carrier.found, of)
                carrier.take(points)

            store.whole(
                info, frozenset(one.rowids.values()), take, at_once=serverpoints.at_once(carried.dims)
            )
            carrier.end()
            say(f"carrying {name}", carried.points, carried.points)
            now_there = serverpoints.ids_in(reading, name)
            _refuse_others(now_there - one.rowids.keys(), name, address)
            if missing := one.rowids.keys() - now_there:
                raise Failed(
                    f"{name}: {len(missing):,} points are not on the server, although they were written"
                )
            written[name], found[name], digests[name] = carrier.written, carrier.found, carrier.digest
    if _stamps(folder, [info for info, _ in looked.values()]) != before:
        raise Failed(f"{plan.source} was written to meanwhile, by somebody who takes no lock of Qdrant's")
    return ToServerDone(plan, written, found, digests)


def _refuse_others(others: set[PointId], name: str, address: ServerAddress) -> None:
    if others:
        raise Refused(
            f"{name} on {address.url} has {len(others):,} points that the old store does not have: an agent writes "
            "there already, or the old store changed since the move was begun; the old store is as it was",
            f"if they are not needed, remove that collection there, and run this again: DELETE {address.url}"
            f"{collection_path(name)}",
        )


def _stamps(folder: Path, infos: Sequence[CollectionInfo]) -> list[tuple[int, int]]:
    """Size and time of every database that is carried: whether somebody wrote without Qdrant's lock."""
    found = [(Path(info.path) / STORAGE).stat() for info in infos]
    return [(one.st_size, one.st_mtime_ns) for one in found]


def _told(plan: ToServerPlan, host: Host, say: Progress) -> tuple[str, ...]:
    """The ledger of the folder becomes that of the server, and its chain of seals hears of the move."""
    new = replace(plan.install, vectors=None, server_url=Origin(plan.url, "where it was moved"))
    why = ledgers.moved(plan.install, new, host, wanted=plan.ledger)
    if why is not None:
        return (f"The ledger does not know of this move ({why}).",)
    detail = f"from {plan.source} to {plan.url}"
    outcome = explain(new, host, "relocate", detail, ledger=plan.ledger, progress=say)
    if outcome is None or outcome.extended:
        return ()
    return (f"The chain of seals does not know of this move ({outcome.why}).",)
