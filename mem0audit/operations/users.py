"""Who memories belong to, with counts: mem0 has no call that lists its owners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import (
    FileProblem,
    Install,
    NotChecked,
    Origin,
    PointId,
    PointStore,
    VectorFacts,
)
from mem0audit.core.points import Owner
from mem0audit.core.versions import reaches_owner
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host
from mem0audit.install.processes import holders
from mem0audit.operations.look import chosen_collection
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.server import connection_to
from mem0audit.stores.serverstore import ServerStore

_TELEMETRY = "user_identity"


@dataclass(frozen=True)
class Scope:
    """One combination of user, agent and run as stored, and how many memories it has.

    A value that is no text keeps its type (an owner `7` is not an owner `"7"`). `unreachable` says why
    mem0 cannot list or delete these memories by their owner; None where it can.
    """

    user_id: Any
    agent_id: Any
    run_id: Any
    memories: int
    unreachable: str | None = None


@dataclass(frozen=True)
class Users:
    """The scopes of one collection, the largest first, and the totals over them."""

    install: Install
    collection: str
    scopes: tuple[Scope, ...]
    per_user: tuple[tuple[Any, int], ...]
    memories: int
    counts: Mapping[str, int] = field(default_factory=dict)
    not_checked: tuple[NotChecked, ...] = ()


def users(install: Install, host: Host) -> Users:
    """Counts the memories of the install's collection by owner, in one pass that keeps only the counts.

    Whether mem0 reaches an owner is judged by the agent's version. Raises CouldNotRead where the vector store is no
    Qdrant, has no such collection, or it cannot be read.
    """
    paths = [o.value for o in (install.history, install.vectors) if o is not None]
    held = holders(paths, host).holders
    install = as_the_agent_sees_it(install, held, host)
    wanted = install.collection
    if install.vectors is not None:
        folder = install.vectors.value

        def failed(problem: FileProblem) -> _Counts:
            raise CouldNotRead(f"{folder}: {problem.detail}")

        found = where_it_lies(folder, host, lambda path: _count(EmbeddedStore(path), wanted), failed)
    elif install.server_url is not None:
        with connection_to(install) as connection:
            found = _count(ServerStore(connection, wanted.value), wanted)
    else:
        raise CouldNotRead("the vector store is no Qdrant: owners are in it, not in the log")
    mem0 = whose_mem0(install, held, host).mem0_version
    seen, count, telemetry = found.owners, found.memories, found.telemetry
    scopes = tuple(
        Scope(*seen[key], memories=number, unreachable=unreachable(seen[key], mem0))
        for key, number in sorted(count.items(), key=lambda item: (-item[1], item[0]))
    )
    totals: dict[str, tuple[Any, int]] = {}
    for scope in scopes:
        value, number = totals.get(repr(scope.user_id), (scope.user_id, 0))
        totals[repr(scope.user_id)] = (value, number + scope.memories)
    per_user = tuple(sorted(totals.values(), key=lambda item: (-item[1], repr(item[0]))))
    return Users(
        install=install,
        collection=found.collection,
        scopes=scopes,
        per_user=per_user,
        memories=sum(count.values()),
        counts={"telemetry": telemetry} if telemetry else {},
        not_checked=found.not_checked,
    )


@dataclass(frozen=True)
class _Counts:
    """Owners by a text that tells them apart, and how many memories each has."""

    collection: str
    owners: Mapping[str, Owner]
    memories: Mapping[str, int]
    telemetry: int
    not_checked: tuple[NotChecked, ...]


def _count(store: PointStore, wanted: Origin) -> _Counts:
    layout = store.layout()
    where = layout.path
    if layout.problem is not None:
        raise CouldNotRead(f"{where}: {layout.problem.detail}")
    if not layout.exists:
        raise CouldNotRead(f"{where}: no such folder", "other stores on this machine: mem0audit status")
    name = chosen_collection(wanted, layout).value
    info = next((c for c in layout.collections if c.name == name and c.has_folder), None)
    if info is None:
        there = ", ".join(c.name for c in layout.collections if c.has_folder)
        raise CouldNotRead(
            f"{where}: no collection {name}",
            f"there is: {there}; name it with --collection" if there else None,
        )
    seen: dict[str, Owner] = {}
    count: Counter[str] = Counter()
    telemetry = 0

    def keep(rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts) -> str:
        if payload.get("type") == _TELEMETRY and "data" not in payload:
            return ""
        owner = (payload.get("user_id"), payload.get("agent_id"), payload.get("run_id"))
        key = repr(owner)
        seen.setdefault(key, owner)
        return key

    read = store.points(info, keep)
    for key in read.rows.values():
        if key:
            count[key] += 1
        else:
            telemetry += 1
    if read.file.problem is not None and not read.rows:
        raise CouldNotRead(f"{read.file.path}: {read.file.problem.detail}")
    not_checked = []
    if read.file.problem is not None:
        not_checked.append(NotChecked(read.file.path, read.file.problem.detail))
    if read.bad or read.unsafe:
        not_checked.append(NotChecked(info.path, f"{len(read.bad) + len(read.unsafe)} points do not decode"))
    return _Counts(info.name, seen, count, telemetry, tuple(not_checked))


def unreachable(owner: Owner, mem0: str | None) -> str | None:
    """Why this mem0 (a version, None: not known) cannot find memories by their owner, None where it can.

    A memory without any owner is listed by no call: each of them wants one.
    """
    named = [(k, v) for k, v in zip(("user", "agent", "run"), owner, strict=True) if v is not None]
    if not named:
        return "no owner: no mem0 call lists it"
    for key, value in named:
        reaches = reaches_owner(mem0, value)
        if reaches:
            continue
        which = f"{key} {_shape(value)}"
        return which if reaches is False else f"{which}: out of reach from mem0 2.0 on"
    return None


def _shape(value: Any) -> str:
    if not isinstance(value, str):
        return f"is not text ({type(value).__name__})"
    if not value.strip():
        return "is blank"
    return "has spaces around it" if value != value.strip() else "has a space in it"
