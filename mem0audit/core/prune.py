"""Which memories have had their time, decided from plain records of each. Pure.

| reason | when |
|---|---|
| expired | mem0's `expiration_date` is before today in UTC, or the ledger's own time has come |
| superseded | another memory has taken its place, and it was made more than 180 days ago |
| unused | where that is asked for: it was used last more than 182 days ago (no use on record says nothing) |

mem0 2.0.10 to 2.2.1 hide one where `date.fromisoformat(str(expiration_date)) < datetime.now(timezone.utc).date()`
(`_payload_is_expired` in memory/main.py), keep it, and write the day as `YYYY-MM-DD`. Older ones know no such date:
what stands there is somebody's own, and they go on answering from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, Literal

from mem0audit.core import versions
from mem0audit.core.changes import Changed, Step, Steps, Undecided, with_links, with_replaced
from mem0audit.core.model import Install, PointId
from mem0audit.core.points import PointRecord, shown_owner
from mem0audit.core.reading import Memories, Reading
from mem0audit.core.times import instant, shown

Reason = Literal["expired", "superseded", "unused"]

RULES: Final[Mapping[Reason, str]] = {"expired": "T701", "superseded": "T702", "unused": "T704"}
"""The rule that each reason is a finding of."""
DAY_S: Final = 86400.0
SUPERSEDED_AGE_S: Final = 180 * DAY_S
"""How long after it was made a superseded memory stays."""
UNUSED_S: Final = 182 * DAY_S
"""How long after its last use an unused one stays: six months."""

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
    last_used_at: float | None = None


@dataclass(frozen=True)
class Stale:
    """Why a memory has had its time, and since when (seconds since 1970)."""

    reason: Reason
    since: float

    @property
    def why(self) -> str:
        """In a few words, for people."""
        said = {"expired": "expired", "superseded": "superseded", "unused": "used last"}[self.reason]
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


def stale(record: Record, now: float, *, unused: bool = False) -> Stale | None:
    """Why this memory has had its time; None where it has not. With `unused` also for want of use."""
    ends = [one for one in (hidden_since(record.expires_on), record.expires_at) if one is not None]
    if ends and min(ends) <= now:
        return Stale("expired", min(ends))
    created, replaced, used = record.created_at, record.superseded_at, record.last_used_at
    if replaced is not None and created is not None and now - created > SUPERSEDED_AGE_S:
        return Stale("superseded", replaced)
    if unused and used is not None and now - used > UNUSED_S:
        return Stale("unused", used)
    return None


# --- The plan ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backlog:
    """What is to go. `later` are memories that expired less long ago than was asked for, `elsewhere` stale ones in
    other collections of the folder, by name; `kept_dates` are days that this mem0 does not know for an expiry."""

    todo: Steps = field(default_factory=Steps)
    later: int = 0
    kept_dates: int = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PrunePlan:
    """What `prune` would do, under which mem0. `older_than_s` is how long ago a memory must have expired.

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
    mem0: str | None,
    erased: Iterable[str] = (),
) -> Backlog:
    """What has had its time in a reading, and what the entities lose with it.

    `mem0` is the version that will do it, None where that is not known; `erased` are ids of memories that an erasure is
    on record of and that came back: no snapshot may keep them, so they are left.
    """
    steps: list[Step] = []
    left: list[Undecided] = []
    elsewhere: dict[str, int] = {}
    later = kept = 0
    erased = set(erased)
    knows = mem0 is None or versions.hides_expired(mem0)
    home: Memories | None = reading.configured
    for one in reading.memories:
        found = [(record, why) for record in _records(one) if (why := stale(record, now)) is not None]
        if one is not home:
            if found:
                elsewhere[one.info.name] = len(found)
            continue
        for record, why in found:
            if not knows:
                kept += 1
            elif now - why.since < older_than_s:
                later += 1
            elif str(record.id) in erased:
                way = f"mem0audit delete --memory {record.id}"
                said = f"it was erased for its owner, and no snapshot may keep it: {way}"
                left.append(Undecided(RULES[why.reason], str(record.id), said))
            else:
                steps.append(Step(RULES[why.reason], "delete", record.id, record.owner, why.why))
    entities = next((e for e in reading.entities if home is not None and e.of == home.info.name), None)
    with_older = with_replaced(steps, home, reading.kept)
    return Backlog(with_links(with_older, tuple(left), entities), later, kept, elsewhere)


def _records(home: Memories) -> Iterable[Record]:
    """What is known of each memory that may have had its time."""
    for point_id, point in home.read.rows.items():
        if point.expires:
            yield _record(point_id, point)


def _record(point_id: PointId, point: PointRecord) -> Record:
    return Record(
        point_id, shown_owner(point.owner), created_at=instant(point.created_at), expires_on=point.expires
    )
