"""Group H: the log itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from math import isnan

from mem0audit.core.model import NotChecked
from mem0audit.core.reading import Reading
from mem0audit.core.rules.verdict import RuleFunction, Verdict, beside_the_seal, finding
from mem0audit.core.seal import SealCheck
from mem0audit.core.timeline import RowFault, Timeline
from mem0audit.core.times import instant, shown

YOUNG_LOG_POINTS = 10
YOUNG_LOG_SHARE = 0.9
GAP_POINTS = 3
MANY_ROWS = 50
"""So many rewritten rows are named one by one."""


_Judge = Callable[[Reading, Timeline], Iterable[Verdict]]


def _of_the_log(code: str) -> Callable[[_Judge], RuleFunction]:
    """A rule that needs the log whole; where it could not be read it says so itself."""

    def rule_of(judge: _Judge) -> RuleFunction:
        @wraps(judge)
        def rule(r: Reading) -> Iterable[Verdict]:
            if r.timeline is not None:
                return judge(r, r.timeline)
            return [NotChecked(code, "the log could not be read whole")]

        return rule

    return rule_of


def _row_faults(r: Reading, code: str, faults: Sequence[RowFault], why: str) -> Iterable[Verdict]:
    for fault in faults:
        yield finding(
            code,
            {"event": fault.event, "log row": fault.rowid, "why": why},
            memory_id=fault.memory_id,
            path=r.history_path,
        )


@_of_the_log("H401")
def broken_chain(r: Reading, log: Timeline) -> Iterable[Verdict]:
    """H401: a row whose old text is not the text before it."""
    return _row_faults(r, "H401", log.broken, "its old text is not the text before it")


@_of_the_log("H402")
def event_without_add(r: Reading, log: Timeline) -> Iterable[Verdict]:
    """H402: a memory whose first row is not an ADD."""
    return _row_faults(r, "H402", log.without_add, "the first row of this memory")


@_of_the_log("H403")
def event_after_delete(r: Reading, log: Timeline) -> Iterable[Verdict]:
    """H403: rows other than DELETE after a DELETE."""
    return _row_faults(r, "H403", log.after_delete, "after a DELETE of this memory")


@_of_the_log("H404")
def unknown_event(r: Reading, log: Timeline) -> Iterable[Verdict]:
    """H404: an event that mem0 does not write, or a row that names no memory."""
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


@_of_the_log("H405")
def log_younger(r: Reading, log: Timeline) -> Iterable[Verdict]:
    """H405: the log begins after most of the memories it does not know."""
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


@_of_the_log("H406")
def mixed_offsets(r: Reading, log: Timeline) -> Iterable[Verdict]:
    """H406: times with different UTC offsets, so that text order is not time order."""
    if len(log.offsets) > 1:
        yield finding("H406", dict(sorted(log.offsets.items())), path=r.history_path)


@_of_the_log("H407")
def locked_log_gap(r: Reading, log: Timeline) -> Iterable[Verdict]:
    """H407: memories were stored in a stretch of time from which the log has no rows."""
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


@beside_the_seal("H408")
def log_rewritten(r: Reading, check: SealCheck) -> Iterable[Verdict]:
    """H408: rows up to the last seal are not those that were sealed."""
    if check.rolled_back:
        return  # D311
    sealed = {"sealed": shown(check.seal.at), "rows sealed": check.seal.rows}
    if check.reset:
        # what did it is the incident's to say: mem0's own reset() as well as somebody who took both stores away
        why = {"why": "none of them is there, and no sealed memory", "memories sealed": check.seal.memories}
        yield finding("H408", {**sealed, **why}, path=r.history_path, subject="all rows")
        return
    for row in check.rows[:MANY_ROWS]:
        yield finding(
            "H408",
            {
                **sealed,
                "log row": row.rowid,
                "why": f"{row.what} since" if row.what == "changed" else row.what,
            },
            memory_id=row.memory_id,
            path=r.history_path,
        )
    if len(check.rows) > MANY_ROWS:
        yield finding(
            "H408",
            {**sealed, "why": f"{len(check.rows) - MANY_ROWS:,} more rows changed or put between"},
            path=r.history_path,
            subject="more rows",
        )
    if check.rows_gone:
        yield finding(
            "H408",
            {
                **sealed,
                "why": f"{check.rows_gone:,} sealed rows are gone",
                "the first of them": check.first_gone,
            },
            path=r.history_path,
            subject="rows gone",
        )


RULES: dict[str, RuleFunction] = {
    "H401": broken_chain,
    "H402": event_without_add,
    "H403": event_after_delete,
    "H404": unknown_event,
    "H405": log_younger,
    "H406": mixed_offsets,
    "H407": locked_log_gap,
    "H408": log_rewritten,
}
