"""What an install is and stands on: every place it writes, who has it open, whose mem0 it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mem0audit import __version__
from mem0audit.core.model import (
    Agent,
    Candidate,
    Holder,
    Install,
    NotChecked,
    Origin,
    Place,
    Snapshots,
    StoreLayout,
)
from mem0audit.core.moved import Followed
from mem0audit.core.relocate import LeftMove
from mem0audit.core.restore import Interrupted
from mem0audit.core.times import shown
from mem0audit.install.agents import whose_mem0
from mem0audit.install.candidates import find_candidates
from mem0audit.install.config import Settings
from mem0audit.install.host import Host
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.discard import put_aside
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.known import known_snapshots
from mem0audit.operations.leftmoves import left_moves
from mem0audit.operations.look import chosen_collection
from mem0audit.operations.moved import followed
from mem0audit.operations.otherroots import as_the_agent_sees_it
from mem0audit.stores.ledger import CannotUse, KnownAgent
from mem0audit.stores.server import connection_to
from mem0audit.stores.serverstore import ServerStore


@dataclass(frozen=True)
class Stand:
    """One place an install writes. `role` is what for: "history", "vectors", "mem0 folder", "telemetry"."""

    role: str
    place: Place
    decided_by: str


@dataclass(frozen=True)
class ServerSeen:
    """The Qdrant server of an install as it was asked: `layout` has its version and collections, or why there are
    none. `key_from` is where the API key comes from ("$NAME", a file), None without one."""

    address: Origin
    key_from: str | None
    layout: StoreLayout


@dataclass(frozen=True)
class LedgerSeen:
    """The ledger of the install: where snapshots went to (the folder used last first), how many seals there are and
    when the newest was made (seconds since 1970), and the agent that had the install open last."""

    path: str
    snapshot_folders: tuple[str, ...] = ()
    seals: int = 0
    sealed_at: float | None = None
    agent: KnownAgent | None = None


@dataclass(frozen=True)
class Status:
    """Everything `status` says; `versions` maps a program to its version where known."""

    install: Install
    places: tuple[Stand, ...]
    holders: tuple[Holder, ...]
    agent: Agent
    candidates: tuple[Candidate, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    not_checked: tuple[NotChecked, ...] = ()
    ledger: LedgerSeen | None = None
    """None where none is kept yet or it cannot be used."""
    snapshots: Snapshots | None = None
    interrupted: Interrupted | None = None
    """A restore of it that was cut off."""
    left_moves: tuple[LeftMove, ...] = ()
    """Moves of it that were cut off."""
    put_aside: tuple[str, ...] = ()
    """What restores replaced, and what was deleted since may still be in."""
    moved: tuple[Followed, ...] = ()
    """Its stores that were moved, and whether the agent followed."""
    moved_aside: tuple[str, ...] = ()
    """The same of moves: what lay at the old place."""
    server: ServerSeen | None = None
    """The server, where the vectors are on one."""


def status(install: Install, host: Host, *, ledger: bool = True, settings: Settings | None = None) -> Status:
    """What an install stands on, beside its agent, and what was kept of it. Opens no store but the ledger (not even
    that where `ledger` is False), and asks a server what it has; never raises for what cannot be seen."""
    known = known_snapshots(install, host, settings or Settings(), ledger=ledger)
    moves, moves_unread = followed(install, host) if ledger else ((), None)
    cut = interrupted(install, host)
    left = left_moves(install, host, ledger=ledger)
    aside = put_aside(install, host)
    seen = _ledger(install, host, ledger)
    paths = [install.history.value, *([install.vectors.value] if install.vectors else [])]
    held = holders(paths, host)
    install = as_the_agent_sees_it(install, held.holders, host)
    places = [Stand("history", look_at(install.history.value, host), install.history.decided_by)]
    if install.vectors is not None:
        places.append(Stand("vectors", look_at(install.vectors.value, host), install.vectors.decided_by))
    server = _server(install)
    if server is not None:
        install = replace(install, collection=chosen_collection(install.collection, server.layout))
    own = look_at(install.mem0_dir.value, host)
    places.append(Stand("mem0 folder", own, install.mem0_dir.decided_by))
    # mem0 keeps its telemetry's own collection here, from 0.1.89 on
    telemetry = look_at(f"{install.mem0_dir.value.rstrip('/')}/migrations_qdrant", host)
    if telemetry.exists:
        places.append(Stand("telemetry", telemetry, "mem0's own"))
    agent = whose_mem0(install, held.holders, host)
    if agent.mem0_version is None and isinstance(seen, LedgerSeen) and seen.agent is not None:
        was = seen.agent
        agent = Agent(was.interpreter, was.mem0, was.client, f"the agent's, as seen {shown(was.seen_at)}")
    not_checked = []
    if not held.complete:
        not_checked.append(NotChecked("who has it open", held.why or "not visible from here", gap=False))
    not_checked += [NotChecked(s.place.path, s.place.problem) for s in places if s.place.problem]
    if server is not None and server.layout.problem is not None:
        not_checked.append(NotChecked(server.address.value, server.layout.problem.detail))
    versions = {"mem0audit": __version__}
    if server is not None and server.layout.version is not None:
        versions["qdrant"] = server.layout.version
    if agent.mem0_version:
        versions["mem0ai"] = agent.mem0_version
    if agent.client_version:
        versions["qdrant-client"] = agent.client_version
    if isinstance(seen, NotChecked):
        not_checked.append(seen)
    not_checked += known.not_read
    not_checked += [moves_unread] if moves_unread is not None else []
    return Status(
        install=install,
        places=tuple(places),
        holders=held.holders,
        agent=agent,
        candidates=find_candidates(install, host),
        versions=versions,
        not_checked=tuple(not_checked),
        ledger=seen if isinstance(seen, LedgerSeen) else None,
        snapshots=known,
        interrupted=cut,
        left_moves=left,
        put_aside=tuple(one.path for one in aside if one.work == "restore"),
        moved_aside=tuple(one.path for one in aside if one.work != "restore"),
        moved=moves,
        server=server,
    )


def _server(install: Install) -> ServerSeen | None:
    if install.server_url is None:
        return None
    with connection_to(install) as connection:
        layout = ServerStore(connection, install.collection.value).layout()
    return ServerSeen(install.server_url, install.server_key_from, layout)


def _ledger(install: Install, host: Host, wanted: bool) -> LedgerSeen | NotChecked | None:
    with ledgers.opened(install, host, wanted=wanted, by_paths_only=True) as book:
        if book is None or isinstance(book, NotChecked):
            return book
        try:
            seals = book.seals()
            at = seals[-1].at if seals else None
            return LedgerSeen(str(book.path), book.folders(), len(seals), at, book.agent())
        except CannotUse as error:
            return ledgers.unusable(book.path, error)
