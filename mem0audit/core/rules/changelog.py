"""Group H: the log itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import isnan

from mem0audit.core.model import NotChecked
from mem0audit.core.reading import Reading
from mem0audit.core.rules.verdict import RuleFunction, Verdict, finding
from mem0audit.core.timeline import RowFault, Timeline
from mem0audit.core.times import instant, shown

YOUNG_LOG_POINTS = 10
YOUNG_LOG_SHARE = 0.9
GAP_POINTS = 3


def _timeline(r: Reading, code: str) -> Timeline | NotChecked:
    return r.timeline if r.timeline is not None else NotChecked(code, "the log could not be read whole")


def _row_faults(r: Reading, code: str, faults: Sequence[RowFault], why: str) -> Iterable[Verdict]:
    for fault in faults:
        yield finding(
            code,
            {"event": fault.event, "log row": fault.rowid, "why": why},
            memory_id=fault.memory_id,
            path=r.history_path,
        )


def broken_chain(r: Reading) -> Iterable[Verdict]:
    """H401: a row whose old text is not the text before it."""
    log = _timeline(r, "H401")
    if isinstance(log, NotChecked):
        return [log]
    return _row_faults(r, "H401", log.broken, "its old text is not the text before it")


def event_without_add(r: Reading) -> Iterable[Verdict]:
    """H402: a memory whose first row is not an ADD."""
    log = _timeline(r, "H402")
    if isinstance(log, NotChecked):
        return [log]
    return _row_faults(r, "H402", log.without_add, "the first row of this memory")


def event_after_delete(r: Reading) -> Iterable[Verdict]:
    """H403: rows other than DELETE after a DELETE."""
    log = _timeline(r, "H403")
    if isinstance(log, NotChecked):
        return [log]
    return _row_faults(r, "H403", log.after_delete, "after a DELETE of this memory")


def unknown_event(r: Reading) -> Iterable[Verdict]:
    """H404: an event that mem0 does not write, or a row that names no memory."""
    log = _timeline(r, "H404")
    if isinstance(log, NotChecked):
        yield log
        return
    yield from _row_faults(r, "H404", log.unknown, "mem0 writes ADD, UPDATE and DELETE only")
    for rowid in log.no_memory_id:
        yield finding("H404", {"log row": rowid, "why": "names no memory"}, path=r.history_path)


def _unlogged_times(r: Reading) -> list[float]:
    """When the memories that the log does not know were stored, sorted; unknown times left out."""
    both = r.comparison
    if both is None:
        return []
    stored = (instant(both.points[i].updated_at or both.points[i].created_at) for i in both.unlogged)
    return sorted(t for t in stored if t is not None)


def log_younger(r: Reading) -> Iterable[Verdict]:
    """H405: the log begins after most of the memories it does not know."""
    log = _timeline(r, "H405")
    if isinstance(log, NotChecked):
        yield log
        return
    unlogged = _unlogged_times(r)
    if len(unlogged) < YOUNG_LOG_POINTS:
        return
    known = [t for t in log.times if not isnan(t)]
    # A caller may have set a time long ago: the tenth percentile of the rows is where the log begins.
    first = sorted(known)[len(known) // 10] if known else None
    older = len(unlogged) if first is None else bisect_left(unlogged, first)
    if older >= YOUNG_LOG_POINTS and older >= YOUNG_LOG_SHARE * len(unlogged):
        yield finding(
            "H405",
            {
                "unlogged memories": len(unlogged),
                "of them stored before the log begins": older,
                "the log begins": shown(first) if first is not None else "it has no rows",
            },
            path=r.history_path,
        )


def mixed_offsets(r: Reading) -> Iterable[Verdict]:
    """H406: times with different UTC offsets, so that text order is not time order."""
    log = _timeline(r, "H406")
    if isinstance(log, NotChecked):
        yield log
    elif len(log.offsets) > 1:
        yield finding("H406", dict(sorted(log.offsets.items())), path=r.history_path)


def locked_log_gap(r: Reading) -> Iterable[Verdict]:
    """H407: memories were stored in a stretch of time from which the log has no rows."""
    log = _timeline(r, "H407")
    if isinstance(log, NotChecked):
        yield log
        return
    unlogged = _unlogged_times(r)
    if len(unlogged) < GAP_POINTS:
        return
    rows = sorted(t for t in log.times if not isnan(t))
    if not rows:
        return
    start = 0
    for i in range(1, len(unlogged) + 1):
        # a stretch ends where the log has a row between two unlogged memories
        if i < len(unlogged) and bisect_left(rows, unlogged[i - 1]) == bisect_left(rows, unlogged[i]):
            continue
        before = bisect_left(rows, unlogged[start])
        inside_log = 0 < before < len(rows)
        if i - start >= GAP_POINTS and inside_log:
            yield finding(
                "H407",
                {
                    "memories": i - start,
                    "from": shown(unlogged[start]),
                    "to": shown(unlogged[i - 1]),
                    "row before": shown(rows[before - 1]),
                    "row after": shown(rows[before]),
                },
                path=r.history_path,
            )
        start = i


RULES: dict[str, RuleFunction] = {
    "H401": broken_chain,
    "H402": event_without_add,
    "H403": event_after_delete,
    "H404": unknown_event,
    "H405": log_younger,
    "H406": mixed_offsets,
    "H407": locked_log_gap,
}
