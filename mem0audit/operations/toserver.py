"""Move the vectors of an install to a Qdrant server, from a folder or another server: every point with its id, vectors
and payload, proven by reading it back.

The old store is left as it is. While it is copied its lock is held, and a mark beside the log says which collections
on the server are this move's own: cut off at any moment, the same command goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from mem0audit.core import snapshot as snapshot_core
from mem0audit.core import toserver as core
from mem0audit.core.advice import dies_with_agent
from mem0audit.core.errors import CouldNotRead, Failed, Refused, ServerProblem
from mem0audit.core.model import CollectionInfo, Install, Origin, Place, PointId, StoreLayout
from mem0audit.core.moved import Move
from mem0audit.core.restore import NotAnIntent
from mem0audit.core.server import Secret, ServerAddress
from mem0audit.core.toserver import Begun, Carried, ToServerDone, ToServerPlan
from mem0audit.core.words import shell_words
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.places import look_at
from mem0audit.install.processes import HoldersLook, holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.agentconfig import plan_server_update
from mem0audit.operations.carrying import FromFolder, FromServer, moving
from mem0audit.operations.interrupted import interrupted, words
from mem0audit.operations.leftmoves import TO_SERVER, refuse_left_moves
from mem0audit.operations.look import Progress, chosen_collection, no_collector, no_progress
from mem0audit.operations.moved import note_moves
from mem0audit.operations.otherroots import as_the_agent_sees_it
from mem0audit.operations.seal import explain
from mem0audit.operations.stores import place_of
from mem0audit.operations.targets import how_to_stop, in_use, named, only_linux, refuse_holders
from mem0audit.stores import exchange, serverpoints, serversnapshots, snapshots
from mem0audit.stores.pickles import WholePoint
from mem0audit.stores.server import Connection, collection_path

_MOVED = "where it was moved"
_AGAIN = "the same command goes on where it was"


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
    refuse_first(install, host)
    seen, held, log, vectors = seen_now(install, host)
    if seen.server_url is not None and seen.server_url.value == address.url:
        raise Refused(f"{address.url}: the vectors are there already", "name another server with --to-url")
    begun = _begun(_staging(seen, host))
    source, infos = source_of(seen, host)
    seen = replace(seen, collection=chosen(seen, infos))
    with no_collector():
        found = [source.looked(info, say).carried for info in moving(seen, infos)]
    if not found:
        raise CouldNotRead(
            f"{place_of(seen)} has no collection {seen.collection.value}", "name it with --collection"
        )
    say("looking at the server", None, None)
    with _its_key(address), Connection(address, key) as connection:
        version = connection.version()
        for one in found:
            _check_target(connection, one, begun, seen, address, key_from)
    names = {one.name for one in found}
    agent = whose_mem0(seen, held.holders, host)
    plan = ToServerPlan(
        install=replace(install, collection=seen.collection),
        seen=seen,
        url=address.url,
        key_from=key_from,
        version=version,
        collections=tuple(found),
        left=tuple(c.name for c in infos if c.has_folder and c.name not in names),
        agent=agent,
        holders=held.holders,
        dies=any(
            dies_with_agent(place, holder)
            for place in (log, vectors)
            if place is not None
            for holder in held.holders
        ),
        unseen=held.why,
        resumed=begun.started_at if begun is not None and begun.url == address.url else None,
        ledger=ledger,
        advice=plan_server_update(install, host, address, with_key=key is not None),
    )
    return replace(plan, warnings=_warnings(plan, begun, address, key))


def refuse_first(install: Install, host: Host) -> None:
    """What comes before any move to or from a server. Raises Refused."""
    only_linux("stores are moved")
    if install.vectors is None and install.server_url is None:
        raise Refused(f"the vector store is {install.provider}: this version moves those of Qdrant only")
    refuse_left_moves(install, host)
    left_over = interrupted(install, host)
    if left_over is not None and left_over.course != "clean":
        raise Refused(
            f"a restore was cut off here ({left_over.folder}): it comes first",
            "mem0audit snapshot restore --in-place",
        )


def seen_now(install: Install, host: Host) -> tuple[Install, HoldersLook, Place, Place | None]:
    """The install as the agent has it, who has it open, and what both stores stand on (None: a server). Raises
    CouldNotRead."""
    held = holders([o.value for o in (install.history, install.vectors) if o is not None], host)
    seen = as_the_agent_sees_it(install, held.holders, host)
    log = look_at(seen.history.value, host)
    vectors = None if seen.vectors is None else look_at(seen.vectors.value, host)
    for place in (log, vectors):
        if place is not None and place.problem is not None:
            raise CouldNotRead(
                f"{place.path}: {place.problem}", "run it as the owner of the stores, or with sudo"
            )
    if not log.exists:
        raise CouldNotRead(
            f"{log.path} is not there: without it the memories have no history", "mem0audit status"
        )
    return seen, held, log, vectors


def source_of(seen: Install, host: Host) -> tuple[FromFolder | FromServer, tuple[CollectionInfo, ...]]:
    """Where the points come from, and the collections there. Raises CouldNotRead."""
    if seen.vectors is None:
        server = FromServer.of(seen)
        return server, server.infos()
    folder = FromFolder(resolved(seen.vectors.value, host))
    layout = folder.store.layout()
    if layout.problem is not None or not layout.exists:
        raise CouldNotRead(
            f"{seen.vectors.value}: {layout.problem.detail if layout.problem else 'is not there'}"
        )
    return folder, layout.collections


def chosen(seen: Install, infos: Sequence[CollectionInfo]) -> Origin:
    """The collection that is meant."""
    return chosen_collection(seen.collection, StoreLayout(place_of(seen), True, tuple(infos)))


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
        os.close(exchange.own_folder(folder, TO_SERVER))
        return core.parse_begun(snapshots.small_file(folder / core.MARK))
    except FileNotFoundError:
        return None
    except (NotAnIntent, ValueError) as problem:
        raise Refused(
            f"{folder / core.MARK}: {problem}", "look at that folder, and move it away by hand"
        ) from None
    except OSError as error:
        raise Refused(f"{folder}: {words(error)}") from None


@contextmanager
def _its_key(address: ServerAddress) -> Iterator[None]:
    """Names the flag for the key of the server that they go to, where that key does not do."""
    try:
        yield
    except ServerProblem as problem:
        if problem.kind not in ("key", "forbidden") or not problem.message.startswith(f"{address.url}: "):
            raise
        hint = "name the variable that holds one that may write there with --to-api-key-env"
        raise ServerProblem(problem.kind, problem.message, hint, problem.status) from None


def _check_target(
    connection: Connection,
    one: Carried,
    begun: Begun | None,
    seen: Install,
    address: ServerAddress,
    key_from: str | None,
) -> None:
    """Refuses a collection on the server that holds others' points, or is another one than mem0 would make."""
    ours = begun is not None and one.name in begun.made and begun.url == address.url
    if ours and begun is not None and begun.source != place_of(seen):
        raise Refused(
            f"a move of {begun.source} to {address.url} was cut off: it comes first",
            f"mem0audit relocate {'--qdrant-path' if begun.source.startswith('/') else '--qdrant-url'} "
            f"{begun.source} --to-url {address.url}",
        )
    if not connection.get(collection_path(one.name, "exists"))["exists"]:
        return
    if (stands_for := serversnapshots.alias_of(connection, one.name)) is not None:
        raise Refused(
            f"{address.url} has an alias {one.name}, of {stands_for}: mem0 does not start on one",
            "remove the alias there, or name another server",
        )
    points = len(serverpoints.ids_in(connection, one.name))
    if points and not ours:
        look = ["--history", seen.history.value, "--qdrant-url", address.url]
        look += ["--api-key-env", key_from[1:]] if key_from is not None else []
        raise Refused(
            f"{address.url} has a collection {one.name} with {points:,} points already: only what a move that was cut "
            "off put there is written into",
            f"name another server, or look at it:  mem0audit audit {shell_words(look)}",
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


def _warnings(
    plan: ToServerPlan, begun: Begun | None, address: ServerAddress, key: Secret | None
) -> tuple[str, ...]:
    said = []
    if begun is not None and begun.url != address.url:
        said.append(
            f"A move to {begun.url} was cut off; what it put there stays, in {' and '.join(begun.made)}: remove that "
            "there if nobody needs it."
        )
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
    """Does what was planned. Raises Refused where somebody has the stores open or writes to them, Failed where it did
    not come to its end: the old store is as it was, and the same command goes on."""
    say = progress or no_progress
    started = time.monotonic()
    seen = plan.seen
    refuse_running(plan, host)
    staging = Path(_staging(seen, host))
    with ExitStack() as stack:
        try:
            stack.enter_context(exchange.staging(staging, TO_SERVER))
            hold(plan, host, stack)
        except exchange.InUse as problem:
            in_use(problem, None)
        except OSError as error:
            raise Failed(f"{words(error)}; nothing was changed") from None
        try:
            with _its_key(address):
                done = _carried(plan, staging, host, address, key, say, now)
        except ServerProblem as problem:
            refused = "when that is settled" if problem.kind == "refused" else None
            said = problem.hint or refused
            hint = f"{said}, {_AGAIN}" if said is not None else _AGAIN
            raise Failed(f"{problem.message}; the old store is as it was", hint) from None
        except (Failed, CouldNotRead) as problem:
            raise Failed(f"{problem.message}; the old store is as it was", problem.hint or _AGAIN) from None
        new = replace(plan.install, vectors=None, server_url=Origin(plan.url, _MOVED), nodes=())
        warnings = told(plan, replace(new, server_key=key, server_key_from=plan.key_from), host, say)
        exchange.remove_staging([staging])
    return replace(done, warnings=plan.warnings + warnings, seconds=time.monotonic() - started)


def hold(plan: ToServerPlan, host: Host, stack: ExitStack) -> None:
    """Sees that nobody on this machine has the stores open, and none can open the folder until `stack` ends. Raises
    Refused, InUse, OSError."""
    paths = [o.value for o in (plan.seen.history, plan.seen.vectors) if o is not None]
    refuse_holders(paths, host)
    if plan.seen.vectors is not None:
        stack.enter_context(exchange.store_locked(Path(resolved(plan.seen.vectors.value, host))))


def refuse_running(plan: ToServerPlan, host: Host) -> None:
    """Refuses while a process on this machine has a store open. Raises Refused."""
    paths = [o.value for o in (plan.seen.history, plan.seen.vectors) if o is not None]
    held = holders(paths, host).holders
    if not held:
        return
    if plan.dies:
        raise Refused(
            f"{plan.source} is in use, and goes when that stops",
            "bring it to a folder that lasts first, from there to the server:  mem0audit relocate --to DIR",
        )
    raise Refused(
        f"{(held[0].paths or (paths[0],))[0]} is in use by {named(held[0])}", how_to_stop(held, paths, host)
    )


def _carried(
    plan: ToServerPlan,
    staging: Path,
    host: Host,
    address: ServerAddress,
    key: Secret | None,
    say: Progress,
    now: Callable[[], float],
) -> ToServerDone:
    source, infos = source_of(plan.seen, host)
    with no_collector():
        looked = {one.carried.name: one for one in [source.looked(i, say) for i in moving(plan.seen, infos)]}
    before = source.stamp(list(looked.values()))

    def refuse_written() -> None:
        if source.stamp(list(looked.values())) != before:
            raise Failed(
                f"{plan.source} was written to meanwhile: stop what writes to it, and run this again",
                f"with nobody writing, {_AGAIN}",
            )

    written: dict[str, int] = {}
    found: dict[str, int] = {}
    digests: dict[str, str] = {}
    with Connection(address, key) as writing, Connection(address, key) as reading:
        begun = _begun(str(staging))
        for one in looked.values():
            _check_target(writing, one.carried, begun, plan.seen, address, plan.key_from)
        if begun is None or begun.url != address.url:
            begun = Begun(snapshot_core.name_of(now()), plan.source, address.url, tuple(looked))
            exchange.write_in(staging, core.MARK, core.begun_text(begun).encode("ascii"))
        elif set(looked) - set(begun.made):
            begun = replace(begun, made=(*begun.made, *(set(looked) - set(begun.made))))
            exchange.write_in(staging, core.MARK, core.begun_text(begun).encode("ascii"))
        for name, one in looked.items():
            carried = one.carried
            serverpoints.create_as_mem0(
                writing,
                name,
                carried.dims,
                carried.distance,
                keyword_slot=carried.keyword_slot,
                on_disk=carried.on_disk,
            )
            there = serverpoints.ids_in(reading, name)
            _refuse_others(there - set(one.ids), name, address)
            carrier = serverpoints.Carrier(writing, reading, name, carried.distance, there)

            def take(
                points: list[WholePoint], carrier: serverpoints.Carrier = carrier, of: int = carried.points
            ) -> None:
                say(f"carrying {carrier.name}", carrier.written + carrier.found, of)
                carrier.take(points)

            source.carry(one, take)
            carrier.end()
            say(f"carrying {name}", carried.points, carried.points)
            now_there = serverpoints.ids_in(reading, name)
            if now_there != set(one.ids):
                refuse_written()  # the old store has others by now: the better reason
            _refuse_others(now_there - set(one.ids), name, address)
            if missing := set(one.ids) - now_there:
                raise Failed(
                    f"{name}: {len(missing):,} points are not on the server, although they were written"
                )
            written[name], found[name], digests[name] = carrier.written, carrier.found, carrier.digest
    refuse_written()
    return ToServerDone(plan, written, found, digests)


def _refuse_others(others: set[PointId], name: str, address: ServerAddress) -> None:
    if others:
        raise Refused(
            f"{name} on {address.url} has {len(others):,} points that the old store does not have: an agent writes "
            "there already, or the old store changed since the move was begun; the old store is as it was",
            f"if they are not needed, remove that collection there, and run this again: DELETE {address.url}"
            f"{collection_path(name)}",
        )


def told(plan: ToServerPlan, new: Install, host: Host, say: Progress) -> tuple[str, ...]:
    """The ledger of the old place becomes that of the new one, its chain of seals hears of the move, and the old place
    is remembered: it keeps all that it had."""
    if plan.ledger:
        note_moves((Move("vectors", place_of(plan.install), plan.url, time.time()),), plan.install, host)
    why = ledgers.moved(plan.install, new, host, wanted=plan.ledger)
    if why is not None:
        return (f"The ledger does not know of this move ({why}).",)
    detail = f"from {plan.source} to {plan.url}"
    outcome = explain(new, host, "relocate", detail, ledger=plan.ledger, progress=say)
    if outcome is None or outcome.extended:
        return ()
    return (f"The chain of seals does not know of this move ({outcome.why}).",)
