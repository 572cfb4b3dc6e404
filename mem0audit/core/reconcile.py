"""The two stores side by side: which memories only one of them knows, and where both differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mem0audit.core.points import PointRecord
from mem0audit.core.timeline import ADD, DELETE, UPDATE, MemoryLog, Timeline
from mem0audit.core.times import instant

SAME_INSTANT_S = 0.001
"""Times closer than this are the same instant, spelled with another offset. mem0 writes one clock reading, to
the microsecond, into both stores (seen in every kept store, 0.1.40 to 2.2.1)."""


@dataclass(frozen=True)
class TimeDifference:
    """Where a point and its log name another instant for the same thing (`what`: created, updated)."""

    memory_id: str
    what: str
    point: str
    log: str
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """Ids by what is wrong with them, in the order they were read.

    `resurrected`: deleted by the log, and stored. `lost`: live by the log, and in no store that was
    found. `elsewhere`: live by the log, and in another store (its path). `unlogged`: stored, and unknown
    to the log. `differing`: the last logged text is not the stored one.
    """

    resurrected: tuple[str, ...]
    lost: tuple[str, ...]
    elsewhere: Mapping[str, str]
    unlogged: tuple[str, ...]
    differing: tuple[str, ...]
    times: tuple[TimeDifference, ...]
    points: Mapping[str, PointRecord]


def compare(
    timeline: Timeline, points: Mapping[str, PointRecord], elsewhere: Mapping[str, str]
) -> Comparison:
    """Compare the folded log with the points of the install's collections.

    `elsewhere` maps ids to another store's path, for those that one holds. Texts are compared only
    where the log's row holds one; times only where both sides do.
    """
    resurrected: list[str] = []
    unlogged: list[str] = []
    differing: list[str] = []
    times: list[TimeDifference] = []
    logs = timeline.memories
    for memory_id, point in points.items():
        log = logs.get(memory_id)
        if log is None:
            unlogged.append(memory_id)
            continue
        if log.last == DELETE:
            resurrected.append(memory_id)
            continue
        if log.text is not None and point.text != log.text:
            differing.append(memory_id)
        elif log.text is None and log.last not in (ADD, UPDATE):
            continue
        created = log.added_at if log.added_at is not None else log.created_at
        if created != point.created_at or (log.updated_at is not None and log.updated_at != point.updated_at):
            times.extend(_time_differences(memory_id, point, log, created))
    lost: list[str] = []
    found: dict[str, str] = {}
    for memory_id, _ in timeline.live():
        if memory_id not in points:
            other = elsewhere.get(memory_id)
            if other is None:
                lost.append(memory_id)
            else:
                found[memory_id] = other
    return Comparison(
        tuple(resurrected), tuple(lost), found, tuple(unlogged), tuple(differing), tuple(times), points
    )


def _time_differences(
    memory_id: str, point: PointRecord, log: MemoryLog, created: object
) -> list[TimeDifference]:
    """The times of one memory that name different instants; an absent or unreadable one is unknown."""
    pairs = [("created", point.created_at, created)]
    if log.last == UPDATE:
        # An ADD row's updated_at is NULL or equal to created_at in every version.
        pairs.append(("updated", point.updated_at, log.updated_at))
    found = []
    for what, stored, logged in pairs:
        if stored == logged:
            continue
        a, b = instant(stored), instant(logged)
        if a is not None and b is not None and abs(a - b) > SAME_INSTANT_S:
            found.append(TimeDifference(memory_id, what, str(stored), str(logged), a - b))
    return found
