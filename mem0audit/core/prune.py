"""Which memories have had their time, decided from plain records of each. Pure.

| reason | when |
|---|---|
| expired | mem0's `expiration_date` is before today in UTC, or the ledger's own time has come |
| superseded | another memory has taken its place, and it was made more than 180 days ago |
| unused | where that is asked for: neither added nor used for 183 days, where use is on record for as long |

mem0 2.0.10 to 2.2.1 hide one where `date.fromisoformat(str(expiration_date)) < datetime.now(timezone.utc).date()`
(`_payload_is_expired` in memory/main.py), keep it, and write the day as `YYYY-MM-DD`. Older ones know no such date:
what stands there is somebody's own, and they go on answering from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final, Literal

from mem0audit.core import versions
from mem0audit.core.changes import Changed, Step, Steps, Undecided, with_links, with_replaced
from mem0audit.core.ledger import DAY_S, UNUSED_S, LedgerFact, idle_since
from mem0audit.core.model import Install, PointId
from mem0audit.core.points import shown_owner
from mem0audit.core.reading import Memories, Reading
from mem0audit.core.times import instant, shown

Reason = Literal["expired", "superseded", "unused"]

RULES: Final[Mapping[Reason, str]] = {"expired": "T701", "superseded": "T702", "unused": "T704"}
"""The rule that each reason is a finding of."""
SUPERSEDED_AGE_S: Final = 180 * DAY_S
"""How long after it was made a superseded memory stays."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Record:
    """What is known of one memory. `expires_on` is mem0's `expiration_date` as it is stored; the other times are in
    seconds since 1970, None where nothing is known: what the ledger says of it."""

    id: PointId
    owner: str
    created_at: float | None = None
    expires_on: Any = None
    expires_at: float | None = None
    superseded_at: float | None = None
    idle_since: float | None = None
    """Since when it was not used; None where use is not on record for six months."""


@dataclass(frozen=True)
class FromLedger:
    """What the ledger says: the rows of what may be to go; `unused` which were not used for six months, None where use
    is not on record for so long; `broken` why what replaced a superseded one does not stand in its place any more;
    `why_not` why nothing is known."""

    rows: Mapping[str, LedgerFact] = field(default_factory=dict)
    unused: frozenset[str] | None = None
    broken: Mapping[str, str] = field(default_factory=dict)
    why_not: str | None = None


@dataclass(frozen=True)
class Stale:
    """Why a memory has had its time, and since when (seconds since 1970)."""

    reason: Reason
    since: float

    @property
    def why(self) -> str:
        """In a few words, for people."""
        said = {"expired": "expired", "superseded": "superseded", "unused": "not used since"}[self.reason]
        # mem0 hides a memory from midnight on: its last day is the one that was named
        return f"{said} {shown(self.since - 1)[:10]}"


def hidden_since(day: Any) -> float | None:
    """From when on mem0 hides a memory with this `expiration_date`: the end of that day, UTC. None where it is no day.

    Only `YYYY-MM-DD`, as mem0 writes it: of other spellings ("20261102") only newer Pythons make a day.
    """
    text = str(day)
    if not (text.isascii() and len(text) == 10 and text[4] == text[7] == "-"):
        return None
    try:
        return (date.fromisoformat(text).toordinal() + 1 - _EPOCH_DAY) * DAY_S
    except ValueError:
        return None


def stale(record: Record, now: float, *, older_than_s: float = 0.0, unused: bool = False) -> Stale | None:
    """Why this memory has had its time; None where it has not. With `unused` also for want of use; an expired one only
    so long after it expired."""
    ends = [one for one in (hidden_since(record.expires_on), record.expires_at) if one is not None]
    if ends and now - min(ends) >= older_than_s:
        return Stale("expired", min(ends))
    created, replaced, idle = record.created_at, record.superseded_at, record.idle_since
    if replaced is not None and replaced <= now and created is not None and now - created > SUPERSEDED_AGE_S:
        return Stale("superseded", replaced)
    if unused and idle is not None and now - idle > UNUSED_S:
        return Stale("unused", idle)
    return None


def record_of(
    point_id: PointId,
    owner: str,
    day: Any,
    fact: LedgerFact | None,
    *,
    created_at: float | None = None,
    use_known: bool = False,
) -> Record:
    """What is known of a memory whose `expiration_date` is `day`, and whose row in the ledger is `fact`; `use_known`
    where use is on record for six months."""
    if fact is None:
        return Record(point_id, owner, created_at, day)
    added = created_at if fact.created_at is None else fact.created_at
    idle = idle_since(fact) if use_known and fact.superseded_at is None else None
    return Record(point_id, owner, added, day, fact.expires_at, fact.superseded_at, idle)


# --- The plan ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backlog:
    """What is to go. `later` are memories that expired less long ago than was asked for, `elsewhere` stale ones in
    other collections of the folder, by name; `kept_dates` are days that this mem0 does not know for an expiry;
    `left_out` says what was not asked, and why."""

    todo: Steps = field(default_factory=Steps)
    later: int = 0
    kept_dates: int = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrunePlan:
    """What `prune` would do, under which mem0. `older_than_s` is how long ago a memory must have expired;
    with `unused` those go too that were not used for six months.

    `blocked` is why it cannot be done now, with a hint (`in_use`: somebody has it open); `folder` the one for the
    snapshot that is taken first, None where none is named; `unseen` why not all processes could be seen.
    """

    install: Install
    older_than_s: float
    backlog: Backlog
    mem0: str | None
    interpreter: str | None
    how_found: str
    own: bool
    folder: str | None
    blocked: tuple[str, str | None] | None = None
    unseen: str | None = None
    in_use: bool = False
    unused: bool = False

    @property
    def todo(self) -> Steps:
        """Its steps."""
        return self.backlog.todo


@dataclass(frozen=True)
class Pruned:
    """What a `prune` did."""

    plan: PrunePlan
    changed: Changed = field(default_factory=Changed)


def backlog(
    reading: Reading,
    now: float,
    *,
    older_than_s: float = 0.0,
    unused: bool = False,
    mem0: str | None,
    erased: Iterable[str] = (),
    ledger: FromLedger | None = None,
) -> Backlog:
    """What has had its time in a reading, and what the entities lose with it.

    `mem0` is the version that will do it, None where that is not known; `erased` are ids of memories that an erasure is
    on record of and that came back: no snapshot may keep them, so they are left. So are superseded ones without what
    replaced them.
    """
    ledger = ledger or FromLedger()
    steps: list[Step] = []
    left: list[Undecided] = []
    elsewhere: dict[str, int] = {}
    later = kept = 0
    erased = set(erased)
    knows = mem0 is None or versions.hides_expired(mem0)
    home: Memories | None = reading.configured
    for one in reading.memories:
        count = 0
        for record in _records(one, ledger):
            known = record if knows else _without_the_day(record)
            why = stale(known, now, older_than_s=older_than_s, unused=unused)
            if why is None:
                if one is home and stale(known, now) is not None:
                    later += 1
                elif one is home and stale(record, now) is not None:
                    kept += 1
            elif one is not home:
                count += 1
            elif str(record.id) in erased:
                way = f"mem0audit delete --memory {record.id}"
                said = f"it was erased for its owner, and no snapshot may keep it: {way}"
                left.append(Undecided(RULES[why.reason], str(record.id), said))
            elif why.reason == "superseded" and str(record.id) in ledger.broken:
                said = f"{ledger.broken[str(record.id)]}: mem0audit explain T705"
                left.append(Undecided("T705", str(record.id), said))
            else:
                steps.append(Step(RULES[why.reason], "delete", record.id, record.owner, why.why))
        if count:
            elsewhere[one.info.name] = count
    entities = next((e for e in reading.entities if home is not None and e.of == home.info.name), None)
    with_older = with_replaced(steps, home, reading.kept)
    todo = with_links(with_older, tuple(left), entities)
    return Backlog(todo, later, kept, elsewhere, tuple(_left_out(ledger, unused=unused)))


def _left_out(ledger: FromLedger, *, unused: bool) -> Iterable[str]:
    if ledger.why_not is not None:
        yield f"What the ledger says is left out: {ledger.why_not}."
    elif unused and ledger.unused is None:
        yield "None goes for want of use: it is not on record, or not for six months yet."


def _without_the_day(record: Record) -> Record:
    """Without `expiration_date`, and what the ledger took over from it, which is no instant of its own."""
    taken_over = record.expires_at is not None and record.expires_at == hidden_since(record.expires_on)
    return replace(record, expires_on=None, expires_at=None if taken_over else record.expires_at)


def _records(home: Memories, ledger: FromLedger) -> Iterable[Record]:
    """What is known of each memory that may have had its time."""
    for point_id, point in home.read.rows.items():
        fact = ledger.rows.get(str(point_id)) if ledger.rows else None
        if point.expires or fact is not None:
            yield record_of(
                point_id,
                shown_owner(point.owner),
                point.expires,
                fact,
                created_at=instant(point.created_at),
                use_known=ledger.unused is not None and str(point_id) in ledger.unused,
            )
