"""The door to mem0: under which mem0 the memories of an install are changed, and when not at all.

Under the agent's own, run as the store's owner; under ours only where no other is known and both stores are in the
format that ours writes. A change by another version can break the agent: a newer qdrant-client writes a meta.json that
an older one refuses, a newer mem0 migrates a log that one of 0.1.99 or older then loses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from mem0audit.core import versions
from mem0audit.core.errors import CouldNotRead, Refused, UsageProblem
from mem0audit.core.model import (
    Agent,
    CollectionInfo,
    HistoryFile,
    Holder,
    Install,
    NotChecked,
    Origin,
)
from mem0audit.core.server import Secret, parse_address
from mem0audit.core.times import shown
from mem0audit.install.agents import CLIENT, MEM0, packages_of, whose_mem0
from mem0audit.install.host import Host, home_of_uid, resolved, seen_through
from mem0audit.install.permissions import changeable_by_others
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.look import chosen_collection
from mem0audit.operations.stores import Served, place_of, store_of
from mem0audit.operations.targets import account, refuse_in_use
from mem0audit.stores import files
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history_file
from mem0audit.stores.ledger import CannotUse, KnownAgent
from mem0audit.stores.mem0api import Mem0Worker, ServerAccess, WorkerVersions
from mem0audit.stores.mem0live import LiveMemory, LiveStores, stores_of, versions_here
from mem0audit.stores.server import checked_key

_NAME_IT = "name the agent's Python with --agent-python, or audit once while the agent runs: that finds it"
_LOOK_ANEW = "if the agent was upgraded, audit once while it runs, so that its versions are known"


@dataclass(frozen=True)
class Door:
    """Under which mem0 an install is changed: its Python, its versions, and how that one was found (`source`).

    `own` where it is mem0audit's own; `user` is the uid that it is run as, None where that is ours. The paths have
    their symlinks followed. `collection` is that of the memories; `dims` are None where it does not exist yet and
    nothing says them. With `server` the memories are on that Qdrant server, and `vectors` is its address.
    """

    interpreter: str
    mem0: str
    client: str
    source: str
    own: bool
    user: int | None
    history: str
    vectors: str
    collection: str
    dims: int | None
    exists: bool
    server: ServerAccess | None = None

    @property
    def store(self) -> EmbeddedStore | Served:
        """The vector store as it is read."""
        if self.server is None:
            return EmbeddedStore(self.vectors)
        key = self.server.api_key
        address = parse_address(self.server.url)
        return Served(address, None if key is None else Secret(key), self.collection)


def find_door(
    install: Install,
    host: Host,
    *,
    ledger: bool = True,
    copy_of: Install | None = None,
    uid: int | None = None,
) -> Door:
    """Under which mem0 this install is changed. Reads both stores, runs and changes nothing.

    The agent is that of `--agent-python`, else the one that the ledger remembers (`ledger` False: it is not asked),
    else unknown. Where the install is a staged copy, it is the agent of the one that it is a copy of (`copy_of`), and
    root runs it as the user `uid`, who will own the copy.

    Raises Refused, with the reason, where no mem0 may change it, and UsageProblem where there is none.
    """
    if sys.platform != "linux":
        raise Refused("memories are changed on Linux only: elsewhere it cannot be seen who has a store open")
    if install.vectors is None and install.server_url is None:
        raise Refused(f"the vector store is {install.provider}: this version changes those of Qdrant only")
    history, place = _real(install.history.value, host), place_of(install)
    vectors = place if install.vectors is None else _real(place, host)
    layout = store_of(install, vectors).layout()
    problem = layout.problem.detail if layout.problem is not None else layout.meta_problem
    if problem is not None and install.vectors is None:
        raise CouldNotRead(f"{place}: {problem}")
    if problem is not None and problem != "missing":
        raise Refused(f"{place}: {problem}: mem0 is not let at it", "mem0audit audit")
    there = [c for c in layout.collections if c.has_folder]
    name = chosen_collection(install.collection, layout).value
    found = next((c for c in there if c.name == name), None)
    log = read_history_file(history)
    if log.file.problem is not None and log.file.problem.kind not in ("missing", "no-table", "empty"):
        raise CouldNotRead(f"{install.history.value}: {log.file.problem.detail}")
    own_uid = os.geteuid()
    agents = copy_of or install
    if copy_of is None:
        user = _user(history, *([] if install.vectors is None else [vectors]))
    else:
        user = None if own_uid or uid == own_uid else uid
    at = None
    if agents.agent_python is not None:
        at = whose_mem0(agents, (), host)
    elif (known := _known(agents, host, ledger=ledger)) is not None:
        at = _remembered(agents, known, host)
    own = at is None
    if at is None:
        at = _ours()
    mem0, client = _versions(at, own)
    _check_mem0(at, mem0, own)
    _check_folder(there, client, mem0)
    _check_log(log, mem0, install.history.value)
    if own and copy_of is not None:
        _check_own_on_copy(log, mem0)
    elif own:
        _check_own(found, log, mem0, client if install.vectors is not None else None)
    else:
        _check_other(agents, host, at, client, ledger=ledger)
    assert at.interpreter is not None
    _check_trusted(at.interpreter, user, host)
    return Door(
        interpreter=at.interpreter,
        mem0=mem0,
        client=client,
        source=at.source,
        own=own,
        user=user,
        history=history,
        vectors=vectors,
        collection=name,
        dims=found.dims if found is not None else install.embedder_dims,
        exists=found is not None,
        server=access_of(install),
    )


def find_door_to_copy(
    copy: Install, of: Install, host: Host, *, ledger: bool = True, uid: int | None = None
) -> Door:
    """Under which mem0 a staged copy of an install is changed: the agent's; and where that is too old for it or out of
    reach, ours, if that would not migrate its log. Raises what find_door raises for the agent's."""
    try:
        return find_door(copy, host, ledger=ledger, copy_of=of, uid=uid)
    except (Refused, UsageProblem) as problem:
        try:
            return find_door(copy, host, ledger=False, copy_of=replace(of, agent_python=None))
        except (Refused, UsageProblem):
            raise problem from None


def access_of(install: Install) -> ServerAccess | None:
    """The server of an install for mem0's worker, which gets the key too; None for a folder."""
    if install.vectors is not None or install.server_url is None:
        return None
    key = install.server_key
    return ServerAccess(install.server_url.value, None if key is None else checked_key(key).reveal())


@contextmanager
def open_door(door: Door, host: Host, *, config: Mapping[str, Any] | None = None) -> Iterator[Mem0Worker]:
    """The install opened by that mem0, which holds the store's lock meanwhile, as an agent does.

    With `config`, the dict that the user gives to `Memory.from_config`, its embedder embeds what is added; else no
    model and no network is needed, and asking for one ends the run (deletions ask for none). Raises Refused where it
    is in use, UsageProblem where the Python has no mem0, Failed otherwise; so do the methods of `Mem0Worker`.
    """

    def check(said: WorkerVersions) -> None:
        if (said.mem0, said.client) != (door.mem0, door.client):
            raise Refused(
                f"{door.interpreter} would import mem0 {said.mem0} and qdrant-client {said.client}, the agent's are "
                f"{door.mem0} and {door.client} ({door.source}); nothing was changed",
                "name the agent's Python with --agent-python",
            )
        python = versions.parse(said.python) or (0,)
        if python >= (3, 14) and not versions.pins_its_keys(door.client):
            raise Refused(
                f"Python {said.python} with qdrant-client {door.client} deletes no row that an older Python wrote; "
                "nothing was changed",
                "upgrade the agent's qdrant-client to 1.20.0 or later",
            )

    with files.scratch_folder(door.user) as scratch:
        worker = Mem0Worker(
            door.interpreter,
            door.history,
            door.vectors,
            door.collection,
            scratch,
            door.dims,
            door.user,
            server=door.server,
            embedder="none" if config is None else "config",
            config=config,
            check=check,
        )
        with worker:
            yield worker


def _real(path: str, host: Host) -> str:
    """The path with its links followed. Raises Refused."""
    if seen_through(path, host)[0] is not None:
        raise Refused(
            f"{path} lies under another process's root: mem0 is not let at it",
            "run mem0audit where the agent runs",
        )
    try:
        return resolved(path, host)
    except OSError as error:
        raise Refused(f"{path}: {(error.strerror or 'cannot be looked at').lower()}") from None


def inside(memory: Any, host: Host) -> tuple[Install, Door, LiveMemory]:
    """The same for a `Memory` or `AsyncMemory` of this very process: its install, and the way through it.

    Raises UsageProblem where it is none, Refused where its store is no Qdrant or its mem0 may not change it,
    CouldNotRead where its server does not answer.
    """
    stores = stores_of(memory)
    said = versions_here()
    agent = Agent(sys.executable, said.mem0, said.client, "this process")
    mem0, client = _versions(agent, own=False)
    _check_mem0(agent, mem0, own=False)
    install = install_of(stores, host)
    vectors = place_of(install) if install.vectors is None else _real(install.vectors.value, host)
    layout = store_of(install, vectors).layout()
    if layout.problem is not None and stores.server is not None:
        raise CouldNotRead(f"{vectors}: {layout.problem.detail}")
    mine = {c.name: c for c in layout.collections if c.has_folder}.get(stores.collection)
    door = Door(
        interpreter=sys.executable,
        mem0=mem0,
        client=client,
        source="this process",
        own=False,
        user=None,
        history=_real(install.history.value, host),
        vectors=vectors,
        collection=stores.collection,
        dims=mine.dims if mine is not None else None,
        exists=mine is not None,
        server=stores.server,
    )
    return install, door, LiveMemory(memory)


def install_of(stores: LiveStores, host: Host) -> Install:
    """The install that an open `Memory` stands on."""
    by = "the Memory that was given"
    history = os.path.normpath(os.path.join(host.cwd, stores.history))  # noqa: PTH118
    named = Install(
        history=Origin(history, by),
        vectors=None,
        collection=Origin(stores.collection, by),
        mem0_dir=Origin(os.path.dirname(history), by),  # noqa: PTH120
    )
    if stores.server is not None:
        key = stores.server.api_key
        return replace(
            named,
            server_url=Origin(parse_address(stores.server.url).url, by),
            server_key=None if key is None else Secret(key),
        )
    vectors = os.path.normpath(os.path.join(host.cwd, stores.vectors))  # noqa: PTH118
    return replace(named, vectors=Origin(vectors, by))


def refuse_and_remember(install: Install, host: Host) -> str | None:
    """`refuse_in_use`; and whoever has it open is the agent, under whose mem0 it is changed when that has stopped."""
    remember_agent(install, host)
    return refuse_in_use(install, host)


def remember_agent(install: Install, host: Host) -> tuple[Holder, ...]:
    """Who has the install open: the agent, under whose mem0 it is changed. It is noted in the ledger."""
    paths = [o.value for o in (install.history, install.vectors) if o is not None]
    held = holders(paths, host).holders
    agent = whose_mem0(install, held, host) if held else None
    if agent is not None and agent.mem0_version is not None:
        with ledgers.opened(install, host, make=True) as book:
            if book is not None and not isinstance(book, NotChecked):
                ledgers.note_agent(book, agent, held, host)
    return held


# --- Whose mem0 -----------------------------------------------------------------------------------------


def _known(install: Install, host: Host, *, ledger: bool) -> KnownAgent | None:
    """The agent that the ledger remembers."""
    with ledgers.opened(install, host, wanted=ledger) as book:
        if book is None or isinstance(book, NotChecked):
            return None
        try:
            return book.agent()
        except CannotUse:
            return None


def _remembered(install: Install, known: KnownAgent, host: Host) -> Agent:
    """The agent as its files are now. Raises Refused where they are out of reach."""
    seen = f"as seen {shown(known.seen_at)}"
    now = whose_mem0(replace(install, agent_python=known.interpreter), (), host) if known.here else None
    if now is None or now.mem0_version is None:
        where = "is not there any more" if known.here else "lies in another container"
        raise Refused(
            f"the agent's Python, {known.interpreter} with mem0 {known.mem0} ({seen}), {where}: memories are changed "
            "under the agent's own mem0",
            "run mem0audit where the agent runs, or name a Python that has the same mem0: --agent-python",
        )
    return replace(now, source=f"the agent's, {seen}")


def _ours() -> Agent:
    """mem0audit's own Python, where it has mem0."""
    try:
        return Agent(sys.executable, metadata.version(MEM0), metadata.version(CLIENT), "mem0audit's own")
    except metadata.PackageNotFoundError:
        raise UsageProblem(
            "memories are changed under the agent's own mem0, and it is not known where that is", _NAME_IT
        ) from None


def _versions(agent: Agent, own: bool) -> tuple[str, str]:
    if agent.interpreter is None or agent.mem0_version is None or agent.client_version is None:
        raise UsageProblem(agent.source, None if own else "name the agent's Python with --agent-python")
    return agent.mem0_version, agent.client_version


def _check_mem0(agent: Agent, mem0: str, own: bool) -> None:
    tried = versions.changes_are_tried(mem0)
    if tried:
        return
    whose = "mem0audit's own mem0" if own else "the agent's mem0"
    if (versions.parse(mem0) or (0,)) < (versions.parse(versions.OLDEST_TO_CHANGE) or ()):
        raise Refused(
            f"{whose} is {mem0}: memories are changed under {versions.OLDEST_TO_CHANGE} or later only",
            f"upgrade it, after a snapshot:  {agent.interpreter} -m pip install -U 'mem0ai>=1.0.11,<2'",
        )
    raise Refused(
        f"{whose} is {mem0}: changes were tried with {versions.OLDEST_TO_CHANGE} to {versions.NEWEST_TO_CHANGE}.x",
        "a newer mem0audit may know it",
    )


# --- What would break -----------------------------------------------------------------------------------


def _check_folder(there: list[CollectionInfo], client: str, mem0: str) -> None:
    """Refuses a folder that this client cannot open, or would rewrite on opening it."""
    for one in there:
        if one.legacy:
            raise Refused(
                f"{one.path} is in the format of a qdrant-client before 1.1.7", "let the agent open it once"
            )
        if versions.can_read(client, one.config_keys) is False:
            oldest = versions.oldest_client_that_reads(one.config_keys)
            raise Refused(
                f"the collection {one.name} was written by qdrant-client {oldest or 'newer than 1.20'} or later; mem0 "
                f"{mem0} would open it with {client}, which cannot",
                "name the Python of the agent that writes it: --agent-python",
            )


def _check_log(log: HistoryFile, mem0: str, path: str) -> None:
    """Refuses a log that this mem0 damages by opening it."""
    made = versions.log_at_start(mem0, log.schema)
    if made == "loses texts":
        raise Refused(
            f"{path} is a log of mem0 0.0.9 or older: mem0 {mem0} loses its texts when it opens it",
            "take a snapshot, and open it once with mem0 0.1.99",
        )
    if log.schema == "other":
        raise Refused(f"{path} has columns that are not mem0's: mem0 {mem0} drops them when it opens it")
    lost = [t.name for t in log.stranded if t.name == "history_old" and t.missing_rows]
    if made == "migrated" and lost:
        raise Refused(
            f"{path} has rows of an interrupted migration in history_old, which mem0 {mem0} drops when it opens it",
            "put them back first:  mem0audit recover --stranded-log",
        )


def _check_own(found: CollectionInfo | None, log: HistoryFile, mem0: str, client: str | None) -> None:
    """Refuses our own mem0 where the stores are in another format than it writes, or there is nothing to go by. A
    server has its own format, whatever the client (None)."""
    is_second = (versions.parse(mem0) or (0,)) >= (2, 0, 0)
    why = None
    if found is None:
        why = "there is no collection yet, whose format would tell"
    elif client is not None and not versions.is_format_of(client, found.config_keys):
        why = f"the collection {found.name} was not made by qdrant-client {client}, which ours would use"
    elif found.keyword_slot != is_second:
        why = f"the collection {found.name} was made by mem0 {'1.x' if is_second else '2.x'}, ours is {mem0}"
    elif log.schema not in ("10 columns", None):
        why = f"the log has {log.schema}, and mem0 {mem0} would migrate it"
    elif log.schema is not None and ("messages" in log.tables) != is_second:
        why = f"the log was made by mem0 {'1.x' if is_second else '2.x'}, ours is {mem0}"
    if why is not None:
        raise Refused(f"the agent's mem0 is not known, and ours could break it: {why}", _NAME_IT)


def _check_own_on_copy(log: HistoryFile, mem0: str) -> None:
    """Refuses our own mem0 for a staged copy whose log it would migrate: an older mem0 could lose that. Memories are
    only deleted there, and meta.json is put back as it was, so that no older client is locked out."""
    if log.schema not in ("10 columns", None):
        raise Refused(f"the log has {log.schema}, and mem0audit's own mem0 {mem0} would migrate it")


def _check_other(install: Install, host: Host, at: Agent, client: str, *, ledger: bool) -> None:
    """Refuses a Python that was named where it is another than the agent's, and would lock that out."""
    known = _known(install, host, ledger=ledger)
    if known is None or known.interpreter == at.interpreter:
        return
    if versions.locks_out(client, known.client):
        raise Refused(
            f"{at.interpreter} has qdrant-client {client}, the agent's is {known.client} ({known.interpreter}): it "
            "could not open what the newer one writes",
            _LOOK_ANEW,
        )
    ours, theirs = versions.parse(at.mem0_version), versions.parse(known.mem0)
    if ours is not None and theirs is not None and theirs < (0, 1, 100) <= ours:
        raise Refused(
            f"the agent's mem0 is {known.mem0} ({known.interpreter}): {at.mem0_version} would migrate its log, and it "
            "then loses it",
            _LOOK_ANEW,
        )


# --- As whom ---------------------------------------------------------------------------------------------


def _user(*stores: str) -> int | None:
    """The uid that mem0 is run as: the owner of both stores, of a server's of the log; None where that is us. Raises
    Refused."""
    owners = {path: Path(path).stat().st_uid for path in reversed(stores) if os.path.lexists(path)}
    if not owners:
        return None
    if len(set(owners.values())) > 1:
        _two_owners(owners)
    (uid,) = set(owners.values())
    if uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise Refused(f"{stores[-1]} belongs to {account(uid)}", "run it as that user, or with sudo")
    return uid


def _two_owners(owners: Mapping[str, int]) -> NoReturn:
    said = ", ".join(f"{path} to {account(uid)}" for path, uid in owners.items())
    raise Refused(f"the two stores belong to different users: {said}", "give both to the agent's user")


def _check_trusted(interpreter: str, user: int | None, host: Host) -> None:
    """Root runs no Python, for itself or for another user, that a third one can change. Raises Refused."""
    if os.geteuid() != 0:
        return
    uid = 0 if user is None else user
    prefix = os.path.dirname(os.path.dirname(resolved(interpreter, host)))  # noqa: PTH120
    folders = [f"{prefix}/lib", *packages_of(interpreter, host, home_of_uid(uid))]
    try:
        loose = changeable_by_others(interpreter, host, uid)
        for folder in folders:
            if loose is None and os.path.isdir(folder):  # noqa: PTH112
                loose = changeable_by_others(folder, host, uid, entries=True)
    except OSError as error:
        raise Refused(f"{interpreter}: {(error.strerror or 'cannot be looked at').lower()}") from None
    if loose is not None:
        raise Refused(
            f"{loose} can be changed by other users than {account(uid)}: what they put there would run as "
            f"{account(uid)}",
            "run it as the agent's user, or take the others' right to write away",
        )
