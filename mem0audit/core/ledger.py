"""What the ledger knows of a memory beside mem0: where it came from, when it was confirmed, until when it holds.

Times are seconds since 1970 in UTC, as everywhere in the ledger. No text of a memory is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

from mem0audit.core.model import NotChecked
from mem0audit.core.points import Owner, PointRecord
from mem0audit.core.timeline import DELETE, MemoryLog
from mem0audit.core.times import instant, shown

DAY_S: Final = 86_400
REVIEW_S: Final = 90 * DAY_S
"""So long a confirmation holds."""
UNUSED_S: Final = 183 * DAY_S
"""So long without use, six months, a memory is called unused."""
SKEW_S: Final = DAY_S
"""A logged time further ahead than this is a wrong clock's, and says nothing."""


NO_LEDGER: Final = NotChecked("ledger", "no ledger yet", gap=False)
"""Where nothing is known of an install beside itself."""


class LedgerFact(NamedTuple):
    """A row of the ledger's table `memory`. `fact` is the MD5 of the text it speaks of; `source` None: unknown.

    `superseded_at` is what marks an outdated fact, from then on; `superseded_by` may be gone.
    """

    owner: Owner
    fact: bytes
    source: str | None
    role: str | None
    actor_id: str | None
    attributed_to: str | None
    created_at: float | None
    confirmed_at: float | None
    expires_at: float | None
    last_used_at: float | None
    superseded_by: str | None
    superseded_at: float | None

    def is_superseded(self, now: float) -> bool:
        """Whether something has replaced it by then."""
        return self.superseded_at is not None and self.superseded_at <= now

    def is_live(self, now: float) -> bool:
        """Whether it is neither superseded nor expired, as the view `live_memory` has it."""
        return not self.is_superseded(now) and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True)
class Kept:
    """What an audit asks of the table `memory`: `superseded` maps ids to what replaced them (None where that is gone)
    and when; `expired` are ids; `dangling` ids whose successor has no row.

    Of the live ones: how many are from an `unknown` source, how many were `unconfirmed` for the review age, `no_source`
    of these, the `oldest` confirmation, how many were `unused` for six months (None where use is not recorded for so
    long).
    """

    rows: int
    live: int
    superseded: Mapping[str, tuple[str | None, float]] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()
    dangling: frozenset[str] = frozenset()
    unconfirmed: int = 0
    no_source: int = 0
    unknown: int = 0
    oldest: float | None = None
    unused: int | None = None

    @property
    def successors(self) -> Mapping[str, str]:
        """What replaced each superseded memory, where that is known."""
        return {old: new for old, (new, _) in self.superseded.items() if new is not None}


# --- Times ---------------------------------------------------------------------------------------


def confirmed_by_log(point: PointRecord, log: MemoryLog | None, now: float) -> float | None:
    """When a memory was last said, as far as both stores know: the instant of its last logged ADD or UPDATE.

    Without such a row, what the point says. None where no time reads, or it lies ahead of `now`.
    """
    logged = (log.updated_at, log.created_at) if log is not None and log.last != DELETE else ()
    for value in (*logged, point.updated_at, point.created_at):
        at = instant(value)
        if at is not None:
            return at if at <= now + SKEW_S else None
    return None


def created_by_log(point: PointRecord, log: MemoryLog | None) -> float | None:
    """When it was added, as far as both stores know."""
    for value in (point.created_at, log.added_at if log is not None else None):
        at = instant(value)
        if at is not None:
            return at
    return None


def hidden_from(day: Any) -> float | None:
    """When mem0 begins to hide a memory with this `expiration_date`: at the end of that day in UTC.

    mem0 compares `date.fromisoformat(str(day)) < today in UTC` (2.0.10 to 2.2.1). None where it is no day.
    """
    try:
        after = date.fromisoformat(str(day)) + timedelta(days=1)
    except (ValueError, OverflowError):
        return None
    return datetime(after.year, after.month, after.day, tzinfo=timezone.utc).timestamp()


def day_for_mem0(expires_at: float) -> str:
    """The `expiration_date` with which mem0 never hides a memory too early, and at most a day late."""
    last = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=expires_at, microseconds=-1)
    return last.date().isoformat()


def idle_since(fact: LedgerFact) -> float | None:
    """Since when a memory was not used, where use is recorded: since it was used last, or came. None where it is not
    known when it came."""
    came = fact.created_at if fact.created_at is not None else fact.confirmed_at
    return fact.last_used_at if came is None else max(came, fact.last_used_at or came)


# --- For agents ----------------------------------------------------------------------------------


def annotated(items: Iterable[Any], rows: Mapping[str, LedgerFact], now: float) -> list[Any]:
    """Search results of mem0's without those that are expired or superseded, each with `confirmed`: a day in UTC as
    "2026-05-02", or None where none is known.

    What has no row yet, or another text than the row speaks of, counts as confirmed when mem0 last wrote it. What is
    no result with an `id` is passed on as it is.
    """
    found: list[Any] = []
    for item in items:
        if not isinstance(item, Mapping) or "id" not in item:
            found.append(item)
            continue
        row = rows.get(str(item["id"]))
        if row is not None and not row.is_live(now):
            continue
        is_of_row = row is not None and item.get("hash") in (None, row.fact.hex())
        at = row.confirmed_at if row is not None and is_of_row else _written(item)
        found.append({**item, "confirmed": None if at is None else shown(at)[:10]})
    return found


def _written(item: Mapping[str, Any]) -> float | None:
    for key in ("updated_at", "created_at"):
        at = instant(item.get(key))
        if at is not None:
            return at
    return None


# --- Successions ---------------------------------------------------------------------------------


def predecessors(ids: Iterable[str], successors: Mapping[str, str]) -> frozenset[str]:
    """Everything that these memories replaced, one after the other: what goes with them."""
    replaced: dict[str, list[str]] = {}
    for old, new in successors.items():
        replaced.setdefault(new, []).append(old)
    found: set[str] = set()
    todo = list(ids)
    while todo:
        for old in replaced.get(todo.pop(), ()):
            if old not in found:
                found.add(old)
                todo.append(old)
    return frozenset(found)


def oldest_first(ids: Sequence[Any], successors: Mapping[str, str]) -> list[Any]:
    """The same ids, each before what replaced it, so that nothing outdated is ever left without its successor."""

    def steps(one: Any) -> int:
        count, at, seen = 0, str(one), {str(one)}
        while (at := successors.get(at, "")) and at not in seen:
            seen.add(at)
            count += 1
        return -count

    return sorted(ids, key=steps) if successors else list(ids)


def removable(
    gone: Collection[str], rows: Collection[str], successors: Mapping[str, str], stays: Callable[[str], bool]
) -> set[str]:
    """The rows that go: of memories that are `gone` and not to stay, and that replaced nothing whose row stays."""
    going = {one for one in gone if not stays(one)}
    while True:
        needed = {new for old, new in successors.items() if old in rows and old not in going}
        if not needed & going:
            return going
        going -= needed
