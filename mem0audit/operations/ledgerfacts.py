"""What people and agents tell the ledger of single memories: source, confirmation, expiry, what replaced it, use.

Where mem0 has an expiration date of its own it gets it too, by an update that keeps text and vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from mem0audit.core import versions
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused, UsageProblem
from mem0audit.core.ledger import Kept, LedgerFact, day_for_mem0
from mem0audit.core.model import CollectionInfo, Install, NotChecked, PointId
from mem0audit.core.points import normalised
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.look import Progress, look, no_collector, no_progress
from mem0audit.operations.mem0door import Door, find_door, open_door, refuse_and_remember
from mem0audit.operations.seal import explain
from mem0audit.operations.stores import Served
from mem0audit.operations.targets import refuse_in_use
from mem0audit.operations.whole import Whole, kept_of
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.ledger import CannotUse, Ledger

LONGEST_SOURCE: Final = 1_000
"""Characters of a source: a path, a URL, a command, the id of a message."""
UNKNOWN: Final = "unknown"
"""How a source that is not known is said; never one itself."""
FIRST_WITH_A_DAY: Final = (2, 0, 12)
"""mem0's `update(expiration_date=…)`."""


@dataclass(frozen=True)
class Known:
    """What the ledger knows of one memory."""

    memory_id: str
    fact: LedgerFact


@dataclass(frozen=True)
class LedgerStatus:
    """The table of an install's ledger in numbers, as of the last audit. `used_since` is when use was first recorded,
    in seconds since 1970; None where it never was. `now` likewise."""

    install: Install
    path: str
    kept: Kept
    used_since: float | None
    now: float


@contextmanager
def writing(install: Install, host: Host) -> Iterator[Ledger]:
    """The install's ledger, made where there is none. Raises Refused where none can be kept or written."""
    with ledgers.opened(install, host, make=True) as book:
        if book is None or isinstance(book, NotChecked):
            raise Refused(f"there is no ledger: {book.why if book is not None else 'none was made'}")
        try:
            yield book
        except CannotUse as error:
            raise Refused(f"the ledger {book.path} {error.why}") from None


def row_of(book: Ledger, install: Install, host: Host, word: str, progress: Progress | None = None) -> Known:
    """The row of the memory that `word` names; one that came since the last audit is looked up in both stores.

    Raises CouldNotRead where there is none."""
    memory_id = str(normalised(word))
    fact = book.memories([memory_id]).get(memory_id)
    if fact is None:
        with no_collector():
            problem = ledgers.note_seen(book, look(install, host, progress or no_progress), host.now)
        if problem is not None:
            raise Refused(problem.why)
        fact = book.memories([memory_id]).get(memory_id)
    if fact is None:
        raise CouldNotRead(
            f"no memory {memory_id} in the vector store", "newest changes with their ids: mem0audit log"
        )
    return Known(memory_id, fact)


def ledger_status(install: Install, host: Host) -> LedgerStatus:
    """The ledger's memories in numbers. Opens no store. Raises CouldNotRead where there is no ledger yet, Refused where
    it cannot be used."""
    with _there(install, host) as book:
        return LedgerStatus(install, str(book.path), book.kept(host.now), book.used_since(), host.now)


def checked_source(text: str) -> str:
    """A source as it is kept: one line. Raises UsageProblem for what is none."""
    source = text.strip()
    if not source or not source.isprintable() or len(source) > LONGEST_SOURCE or source.lower() == UNKNOWN:
        raise UsageProblem(
            f"--source: one line of at most {LONGEST_SOURCE:,} characters that says where it can be looked up",
            "a file, a URL, a command, a message",
        )
    return source


def note_source(install: Install, host: Host, word: str, source: str | None) -> Known:
    """Puts down where a memory came from (None: not known). Raises what `row_of` and `writing` raise."""
    with writing(install, host) as book:
        known = row_of(book, install, host, word)
        book.note_source(known.memory_id, source)
        return replace(known, fact=known.fact._replace(source=source))


def confirm(install: Install, host: Host, word: str, source: str | None = None) -> Known:
    """Puts down that a memory was found true now. Raises Refused where its source is not known and none is given."""
    with writing(install, host) as book:
        known = row_of(book, install, host, word)
        if source is None and known.fact.source is None:
            raise Refused(
                f"{known.memory_id}: where it came from is not known, so it cannot be confirmed",
                "say where it can be looked up with --source; what cannot be traced can only be deleted",
            )
        if known.fact.is_superseded(host.now):
            raise Refused(
                f"{known.memory_id}: is superseded",
                f"it holds after all: mem0audit ledger supersede {known.memory_id} --none",
            )
        book.confirm(known.memory_id, host.now, source)
        return row_of(book, install, host, known.memory_id)


# --- Supersession ----------------------------------------------------------------------------------


def supersede(install: Install, host: Host, old: str, new: str | None) -> tuple[Known, Known | None]:
    """Puts down that `new` says what is true now in place of `old`; with None that `old` holds after all.

    Both stay stored, and mem0 retrieves both. Raises Refused for two memories of different people, and for a new one
    that is superseded itself.
    """
    with writing(install, host) as book:
        older = row_of(book, install, host, old)
        if new is None:
            book.restore_memory(older.memory_id)
            return row_of(book, install, host, older.memory_id), None
        newer = row_of(book, install, host, new)
        one, other = older.fact.owner, newer.fact.owner
        # what is deleted with the newer one must not be another person's; a run is no person
        if one[0] != other[0] or (one[0] is None and one[1] != other[1]):
            raise Refused(
                "the two memories belong to different owners: one never replaces another's",
                "whose they are: mem0audit show MEMORY_ID",
            )
        try:
            book.supersede(older.memory_id, newer.memory_id, host.now)
        except ValueError as error:
            raise Refused(str(error)) from None
        return row_of(book, install, host, older.memory_id), newer


# --- Expiry --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpiryPlan:
    """Until when a memory is to hold: `at` in seconds since 1970, None: it holds on. `day` is what mem0's own
    expiration date becomes; `mem0` the version that writes it, None where it is written in the ledger alone, and
    `why_not` says why."""

    install: Install
    known: Known
    at: float | None
    day: str | None
    mem0: str | None
    why_not: str | None


def plan_expiry(install: Install, host: Host, word: str, at: float | None) -> ExpiryPlan:
    """What `expire` would do. Raises what `row_of` and `writing` raise."""
    with writing(install, host) as book:
        known = row_of(book, install, host, word)
    day = None if at is None else day_for_mem0(at)
    try:
        refuse_and_remember(install, host)
        door = find_door(install, host)
    except Mem0auditError as problem:
        return ExpiryPlan(install, known, at, day, None, problem.message)
    if (versions.parse(door.mem0) or (0,)) < FIRST_WITH_A_DAY:
        why = f"mem0 {door.mem0} knows no expiration date in an update (2.0.12 on)"
        return ExpiryPlan(install, known, at, day, None, why)
    return ExpiryPlan(install, known, at, day, door.mem0, None)


def apply_expiry(plan: ExpiryPlan, host: Host, *, progress: Progress | None = None) -> tuple[str, ...]:
    """Puts it down in the ledger, then has mem0 write its own date, where it can; warnings.

    Cut off between, the ledger has it, and the same command does the rest. Raises Refused where somebody has the
    install open meanwhile, Failed where mem0 did not write it as it should.
    """
    install, memory_id = plan.install, plan.known.memory_id
    with writing(install, host) as book:
        book.expire(memory_id, plan.at)
    if plan.mem0 is None:
        return ()
    refuse_in_use(install, host)
    door = find_door(install, host)
    warnings = []
    with open_door(door, host) as memory:
        store, info, point_id = point_of(door, memory_id)
        was = Whole.of(store, info, point_id)
        if was.payload.get("expiration_date") == plan.day:
            return ()
        memory.rewrite(point_id, str(was.payload["data"]), was.vectors, expiration_date=plan.day)
        now = Whole.of(store, info, point_id)
        same = kept_of(was.payload, "expiration_date") == kept_of(now.payload, "expiration_date")
        if now.payload.get("expiration_date") != plan.day or not same or now.vectors != was.vectors:
            raise Failed(
                f"memory {memory_id} is not as it was but for its expiration date", "mem0audit audit"
            )
        outcome = explain(install, host, "expire", memory_id, progress=progress or no_progress)
        if outcome is not None and not outcome.extended:
            warnings.append(f"The chain of seals does not know of it ({outcome.why}).")
    return tuple(warnings)


def point_of(door: Door, memory_id: str) -> tuple[EmbeddedStore | Served, CollectionInfo, PointId]:
    """Where a memory lies. Raises CouldNotRead."""
    store = door.store
    info = next((c for c in store.layout().collections if c.name == door.collection and c.has_folder), None)
    if info is None:
        raise CouldNotRead(f"{door.vectors}: no collection {door.collection}")
    return store, info, normalised(memory_id)


# --- For agents ----------------------------------------------------------------------------------------


@contextmanager
def _there(install: Install, host: Host) -> Iterator[Ledger]:
    """The ledger, found by the install's paths: no store is opened. Raises CouldNotRead, Refused."""
    with ledgers.opened(install, host, by_paths_only=True) as book:
        if book is None:
            raise CouldNotRead("no ledger is kept of this install yet", "an audit begins it: mem0audit audit")
        if isinstance(book, NotChecked):
            raise Refused(f"there is no ledger: {book.why}")
        try:
            yield book
        except CannotUse as error:
            raise Refused(f"the ledger {book.path} {error.why}") from None


def rows_of(install: Install, host: Host, ids: Collection[str]) -> Mapping[str, LedgerFact]:
    """What the ledger knows of these memories, without those that it does not know. Raises CouldNotRead, Refused."""
    with _there(install, host) as book:
        return book.memories(ids)


def note_used(install: Install, host: Host, ids: Sequence[str]) -> tuple[str, ...]:
    """Records that these were used now; those that the ledger does not know yet. Raises CouldNotRead, Refused."""
    with _there(install, host) as book:
        known = book.memories(ids)
        book.note_used({one: host.now for one in ids if one in known})
    return tuple(one for one in ids if one not in known)
