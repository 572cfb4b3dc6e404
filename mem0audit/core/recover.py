"""What can come back: memories that the log still has and the store lost, and rows of a log that were stranded.

An owner is known or not, never guessed: the ledger saw it, a snapshot holds it, or the chat messages that mem0 keeps
name one user alone for the one who spoke.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from mem0audit.core.diff import NOT_METADATA
from mem0audit.core.model import (
    Agent,
    HistoryRow,
    Incident,
    Install,
    SeenSnapshot,
    StrandedTable,
)
from mem0audit.core.points import OWNER_KEYS, Owner, text_digest
from mem0audit.core.timeline import ADD, DELETE, UPDATE
from mem0audit.core.times import instant, shown
from mem0audit.core.versions import parse, reaches_owner

LOST_FOR_SURE: Final = frozenset(
    {
        "emptied",
        "emptied-at-reboot",
        "wiped-at-start",
        "filtered-delete-dropped-all",
        "recreated-with-other-dimensions",
        "vectors-older",
        "concurrent-writers",
    }
)
"""Incidents that take memories away which nobody meant to delete. Of any other lost memory it is not known: a delete
that was cut short looks the same, and a log that is shared names other programs' memories."""

NO_OWNER: Owner = (None, None, None)

State = Literal["lost", "deleted", "overwritten"]
Why = Literal["no-text", "erased", "doubtful", "owner", "there", "twice"]

WHYS: Final[Mapping[Why, str]] = {
    "no-text": "the log has no text of it any more",
    "erased": "erased on request: never brought back",
    "doubtful": "may have been deleted, or be another program's",
    "owner": "whose they are is not known (--skip-unknown)",
    "there": "the store has this text already",
    "twice": "the same text and owner as another one: added once",
}


@dataclass(frozen=True)
class Recoverable:
    """One memory that can be added again. `created_at` and `logged_at` are as the log has them (the ADD row's time,
    and the last row's); `row` is the rowid of the row that its text is from.

    `owner` is None where it is not known; `owner_by` says who knows it, or why nobody does. `metadata` are the keys of
    its own that a snapshot (`metadata_by`) still holds, `expires` its expiration date from there.
    """

    memory_id: str
    text: str
    state: State
    row: int
    created_at: Any
    logged_at: Any
    owner: Owner | None
    owner_by: str
    role: str | None = None
    actor: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    metadata_by: str | None = None
    expires: str | None = None


@dataclass(frozen=True)
class LeftOut:
    """One that is not added, and why."""

    memory_id: str
    why: Why
    detail: str | None = None


@dataclass(frozen=True)
class RecoverPlan:
    """What `recover` would add back, oldest first, and what not. `unknown` are those that wait until somebody says
    whose they are.

    `lost` counts the memories that are live in the log and in no store that was found; `incidents` took them.
    `snapshot` is the newest one from before the loss: with it vectors and ids come back too. `not_read` are places
    whose record could not be read, `not_looked_into` snapshots that may say whose one is; `asked` are the ids that were
    named.
    """

    install: Install
    agent: Agent
    lost: int
    memories: tuple[Recoverable, ...]
    left_out: tuple[LeftOut, ...]
    unknown: tuple[Recoverable, ...] = ()
    incidents: tuple[Incident, ...] = ()
    snapshot: SeenSnapshot | None = None
    stranded: tuple[StrandedTable, ...] = ()
    not_read: tuple[str, ...] = ()
    not_looked_into: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    lost_ids: frozenset[str] = frozenset()
    running: bool = False

    @property
    def to_do(self) -> bool:
        """Whether there is something to add, or to record as added."""
        there = any(one.why == "there" and one.memory_id in self.lost_ids for one in self.left_out)
        return bool(self.memories) or there

    @property
    def texts(self) -> tuple[Recoverable, ...]:
        """All whose text is there, oldest first."""
        return tuple(sorted((*self.memories, *self.unknown), key=lambda one: one.row))


# --- What the log still has -------------------------------------------------------------------------


def last_text(rows: Sequence[HistoryRow]) -> tuple[str, HistoryRow] | None:
    """The text that a memory had last, and the row it stands in; None where the rows hold none any more."""
    for row in reversed(rows):
        new = row.new_memory
        if row.event == DELETE and isinstance(row.old_memory, str) and row.old_memory:
            return row.old_memory, row
        if row.event in (ADD, UPDATE):
            # an empty text was lost in a migration or emptied on request: an older one is not what it said last
            return (new, row) if isinstance(new, str) and new else None
    return None


def text_before(rows: Sequence[HistoryRow]) -> tuple[str, HistoryRow] | None:
    """The text that the last update which changed it replaced, and that row; None where there was none."""
    for row in reversed(rows):
        old = row.old_memory
        if row.event == UPDATE and isinstance(old, str) and old and old != row.new_memory:
            return old, row
    return None


def added_at(rows: Sequence[HistoryRow]) -> Any:
    """When a memory was added, as its ADD row has it, else as its newest row with a time does."""
    times = [row.created_at for row in rows if row.event == ADD] + [row.created_at for row in reversed(rows)]
    return next((when for when in times if when is not None), None)


def spoken_by(rows: Sequence[HistoryRow]) -> tuple[str | None, str | None]:
    """The role and the name of who said it, as the newest row that names one has them."""
    role = next((row.role for row in reversed(rows) if isinstance(row.role, str) and row.role), None)
    actor = next(
        (row.actor_id for row in reversed(rows) if isinstance(row.actor_id, str) and row.actor_id), None
    )
    return role, actor


# --- Whose it is --------------------------------------------------------------------------------------


def parse_scope(scope: str) -> Owner | None:
    """The owner that a session scope of mem0 2.x names (`agent_id=a&run_id=r&user_id=u`, sorted); None where it can
    be read in two ways.

    `%`, `&` and `=` in an id are escaped since 2.0.18, and were not before: a scope with any of them in an id is not
    read (`_build_session_scope` in memory/main.py).
    """
    found: dict[str, str] = {}
    for part in scope.split("&"):
        key, equals, value = part.partition("=")
        if key not in OWNER_KEYS or not equals or not value or key in found or set(value) & set("%="):
            return None
        found[key] = value
    return (found.get("user_id"), found.get("agent_id"), found.get("run_id"))


def owners_by_actor(
    spoken: Iterable[tuple[Any, Any]], known: Iterable[tuple[str, Owner]] = ()
) -> dict[str, Owner]:
    """Which user each speaker is, from (session scope, name) of the chat messages that mem0 keeps.

    Proved is a user only: that every message of this name lies in scopes of that one user, and that no memory whose
    owner is `known` (name, owner) says otherwise. An agent or a run is none that a speaker always has, so it is left
    out; but where no user is named the whole scope must be one.
    """
    scopes: dict[str, set[Owner | None]] = {}
    for scope, name in spoken:
        if isinstance(name, str) and name:
            scopes.setdefault(name, set()).add(parse_scope(scope) if isinstance(scope, str) else None)
    for name, owner in known:
        if name in scopes:
            scopes[name].add(owner if is_addable(owner) else None)
    found: dict[str, Owner] = {}
    for name, seen in scopes.items():
        owners = {owner for owner in seen if owner is not None}
        if None in seen or not owners:
            continue
        users = {owner[0] for owner in owners}
        if len(users) == 1 and None not in users:
            found[name] = (users.pop(), None, None)
        elif len(owners) == 1:
            found[name] = owners.pop()
    return found


def is_addable(owner: Owner) -> bool:
    """Whether mem0's `add` can be given this owner: texts or whole numbers, and one of them at least."""
    named = [value for value in owner if value is not None]
    return bool(named) and all(type(value) in (str, int) and value != "" for value in named)


def whose(
    ledger: Owner | None,
    snapshot: Owner | None,
    snapshot_name: str | None,
    actor: Owner | None,
    mem0: str | None = None,
) -> tuple[Owner | None, str]:
    """The owner of a memory and who knows it; None and why where it is not known, or this mem0 takes no such owner.

    The ledger and the newest snapshot that has it must agree where both know it: a memory that changed hands
    between two looks is not for us to give away.
    """
    if ledger is not None and snapshot is not None and ledger != snapshot:
        return None, f"the ledger and {snapshot_name} name different owners"
    owner = ledger if ledger is not None else snapshot
    if owner is not None:
        by = "the ledger" if ledger is not None else f"snapshot {snapshot_name}"
        taken = is_addable(owner) and not any(
            reaches_owner(mem0, one) is False for one in owner if one is not None
        )
        return (owner, by) if taken else (None, f"{by} has it without an owner that mem0 could be given")
    if actor is not None:
        return actor, "messages of the one who said it"
    return None, "neither ledger, snapshot nor messages know it"


# --- What is added, and what that cannot bring back ---------------------------------------------------


Twin = tuple[bytes, tuple[str | None, ...]]


def twin(text: str, owner: Owner) -> Twin:
    """What two memories share that say the same of the same owner. mem0 2.x trims ids and makes texts of numbers."""
    return text_digest(text), tuple(None if value is None else str(value).strip() for value in owner)


def made(text: str, created_at: Any) -> tuple[bytes, float] | None:
    """What a memory and the one that was added back for it share, whoever owns them; None where its time is not known.
    mem0 keeps a time that it is given (`keeps_created_at`)."""
    at = instant(created_at)
    return None if at is None else (text_digest(text), at)


def own_metadata(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a payload that are its owner's own, or that mem0 keeps as they are given."""
    taken = NOT_METADATA | {"role", "actor_id", "expiration_date"}
    return {str(key): value for key, value in payload.items() if key not in taken}


def role_of(one: Recoverable) -> str | None:
    """The role that mem0 is told: it skips messages of the system. None: mem0's own, the user."""
    return None if one.role == "system" else one.role


def metadata_for(one: Recoverable, mem0: str | None) -> dict[str, Any]:
    """The metadata that mem0 is given: the memory's own as far as it is known, and when it was created, where this
    version keeps that."""
    found = dict(one.metadata)
    if keeps_created_at(mem0) and isinstance(one.created_at, str) and instant(one.created_at) is not None:
        found["created_at"] = one.created_at
    return found


def expiration_for(one: Recoverable, mem0: str | None) -> str | None:
    """The expiration date that mem0 is given: `add` takes one from 2.0.12 on."""
    numbers = parse(mem0)
    return one.expires if numbers is not None and numbers[:3] >= (2, 0, 12) else None


def keeps_created_at(mem0: str | None) -> bool | None:
    """Whether `add` keeps a `created_at` that the caller gives in the metadata: from 1.0.9 (run with 1.0.8, which
    writes its own, and 1.0.9). None where the version is not known."""
    numbers = parse(mem0)
    return None if numbers is None else numbers[:3] >= (1, 0, 9)


def cannot_come_back(plan: RecoverPlan) -> tuple[str, ...]:
    """What adding a memory again does not restore, a line each."""
    keeps = keeps_created_at(plan.agent.mem0_version)
    some = [one for one in plan.memories if one.metadata_by is not None]
    said = [
        "Its id: each gets a new one, and mem0's history of the old id stays with the old id.",
        "Its links to entities: mem0 2.x makes them where a model extracts facts, and none is asked.",
        "Its vector: your embedder computes it again, and a key it needs is yours.",
    ]
    if len(some) < len(plan.memories):
        less = f" (of {len(plan.memories) - len(some):,}; a snapshot has that of the others)" if some else ""
        said.append(f"Metadata of your own, and an expiration date: the log has neither{less}.")
    if keeps is not True:
        version = plan.agent.mem0_version
        said.append(
            f"When it was created: mem0 {version} writes its own time (1.0.9 and later keep the old one)."
            if keeps is False
            else "When it was created, where the agent's mem0 is older than 1.0.9: it writes its own time."
        )
    return tuple(said)


@dataclass(frozen=True)
class Group:
    """Memories of one owner (None: not known) that would be added, and the first and last day they were added on."""

    owner: Owner | None
    count: int
    first: str | None
    last: str | None
    by: tuple[str, ...]


def by_owner(memories: Sequence[Recoverable]) -> tuple[Group, ...]:
    """The memories by owner, the largest group first, those without a known one last."""
    groups: dict[str, list[Recoverable]] = {}
    for one in memories:
        groups.setdefault(repr(one.owner), []).append(one)
    found = []
    for members in groups.values():
        days = sorted(day for one in members if (day := day_of(one.created_at)) is not None)
        by = tuple(sorted({one.owner_by for one in members}))
        found.append(
            Group(members[0].owner, len(members), days[0] if days else None, days[-1] if days else None, by)
        )
    return tuple(sorted(found, key=lambda g: (g.owner is None, -g.count, repr(g.owner))))


def day_of(when: Any) -> str | None:
    """The day (UTC) of a time as a store holds it; None where it is no time."""
    at = instant(when)
    return None if at is None else shown(at)[:10]


def by_time(memories: Sequence[Recoverable]) -> tuple[tuple[str, int], ...]:
    """How many were added in each month, or where that is one month on each day; the oldest first, then "no time"."""
    days = [day_of(one.created_at) for one in memories]
    months = {day[:7] for day in days if day is not None}
    cut = 10 if len(months) <= 1 else 7
    count = Counter("no time" if day is None else day[:cut] for day in days)
    return tuple(sorted(count.items()))


def left_out_counts(plan: RecoverPlan) -> tuple[tuple[Why, int], ...]:
    """How many are left out for each reason, in the order of `WHYS`."""
    count = Counter(one.why for one in plan.left_out)
    return tuple((why, count[why]) for why in WHYS if count[why])


@dataclass(frozen=True)
class Recovered:
    """What was added back: (old id, new id) of each, in the order of adding. `mem0` added them, in `seconds`; `there`
    were in the store by then, `failed` could not be added, each with why."""

    plan: RecoverPlan
    added: tuple[tuple[str, str], ...]
    mem0: str
    there: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


# --- A log that was stranded ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PutBackTable:
    """A table whose rows go back: how many it has, and how many of them `history` lacks."""

    name: str
    rows: int
    missing: int
    memories: int


@dataclass(frozen=True)
class PutBackPlan:
    """What putting a stranded log back would do. `rows_before` are those of `history` now; the rows go in below
    rowid `lowest`, the older table first."""

    install: Install
    tables: tuple[PutBackTable, ...]
    rows_before: int
    lowest: int | None
    folder: str
    unseen: str | None = None
    ledger: bool = True

    @property
    def missing(self) -> int:
        """How many rows go back."""
        return sum(table.missing for table in self.tables)


@dataclass(frozen=True)
class PutBack:
    """What was put back. Counts are of the log's rows before and after; `snapshot` was taken first."""

    history: str
    snapshot: str
    tables: tuple[PutBackTable, ...]
    rows_before: int
    rows_after: int
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
