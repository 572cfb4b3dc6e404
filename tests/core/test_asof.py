"""What is said for sure of a time is true, whatever times the rows have; beside a plain model of what was there."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mem0audit.core.asof import SLACK_S, Changes
from mem0audit.core.model import HistoryRow

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NAMES = ("a", "b", "c", "d")
OFFSETS = (0, -8, -7)

Op = tuple[int, int, int, int]
"""Seconds since the one before, which memory, what happens to its time, which offset it is spelled with."""


def spelled(at: datetime, offset: int) -> str:
    zone = timezone(timedelta(hours=offset))
    return at.astimezone(zone).isoformat(timespec="microseconds")


def lived(ops: list[Op], *, honest: bool) -> tuple[Changes, list[tuple[float, dict[str, int]]]]:
    """The rows of a life, and what there was after each: memory -> rowid of the row that its text is from."""
    changes = Changes()
    now, at = {}, START
    moments: list[tuple[float, dict[str, int]]] = [(START.timestamp(), {})]
    for rowid, (wait, which, fault, offset) in enumerate(ops, 1):
        at += timedelta(seconds=wait)
        name = NAMES[which % len(NAMES)]
        event = "ADD" if name not in now else ("UPDATE" if which % 3 else "DELETE")
        stamp: Any = spelled(at, OFFSETS[offset % 3])
        created: Any = stamp if event == "ADD" else spelled(START, 0)
        updated: Any = None if event == "ADD" else stamp
        if not honest and event == "DELETE" and fault % 2:
            created = updated = None  # mem0 1.0.7 and older
        elif not honest and event == "ADD" and fault % 5 == 0 and rowid > 1:
            earlier = spelled(START - timedelta(days=fault), 0)
            created = updated = ("2019-05-06", "2028-01-01T00:00:00Z", earlier, None)[fault % 4]
        page = [HistoryRow(rowid, f"r{rowid}", name, None, None, event, created, updated, 0, None, None)]
        changes.rows(page)
        if event == "DELETE":
            del now[name]
        else:
            now[name] = rowid
        moments.append((at.timestamp(), dict(now)))
    changes.weigh(at.timestamp() + 1_000)
    return changes, moments


operations = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 23), st.integers(0, 40), st.integers(0, 2)), max_size=25
)


def told(changes: Changes, at: float) -> tuple[dict[str, int], set[str]]:
    certain, doubtful = changes.at(at)
    return {s.memory_id: changes.rowids[s.row] for s in certain}, {s.memory_id for s in doubtful}


@settings(max_examples=60, deadline=None)
@given(operations)
def test_with_its_times_a_log_tells_all(ops: list[Op]) -> None:
    changes, moments = lived([(wait + 1, *rest) for wait, *rest in ops], honest=True)
    assert changes.untimed == 0
    for at, truth in moments:
        assert told(changes, at) == (truth, set())
        assert told(changes, at + 0.5) == (truth, set())


@settings(max_examples=100, deadline=None)
@given(operations)
def test_what_is_sure_is_true_and_what_is_true_is_not_denied(ops: list[Op]) -> None:
    changes, moments = lived([(wait + 1, *rest) for wait, *rest in ops], honest=False)
    for at, truth in moments:
        sure, maybe = told(changes, at)
        assert sure.items() <= truth.items()
        assert truth.keys() <= sure.keys() | maybe
        assert not sure.keys() & maybe
    # at the end everything was written
    assert told(changes, moments[-1][0] + 1_000) == (moments[-1][1], set())


@settings(max_examples=40, deadline=None)
@given(operations, st.integers(1, int(SLACK_S) - 1))
def test_two_that_meet_keep_their_own_times(ops: list[Op], late: int) -> None:
    """mem0 stamps before it writes: another memory's row, stamped earlier, may stand after it."""
    changes, moments = lived([(wait + 1, *rest) for wait, *rest in ops], honest=True)
    last, there = moments[-1]
    row = HistoryRow(99, "r", "late", None, None, "ADD", spelled(START, 0), None, 0, None, None)
    stamp = datetime.fromtimestamp(last - late, timezone.utc)
    changes.rows([row._replace(created_at=spelled(stamp, 0))])
    changes.weigh(last + 10)
    assert changes.untimed == 0
    assert told(changes, last) == ({**there, "late": 99}, set())
    assert "late" not in told(changes, last - late - 0.5)[0]


def test_rows_of_no_event_or_memory_are_counted() -> None:
    changes = Changes()
    row = HistoryRow(1, "r", None, None, None, "ADD", spelled(START, 0), None, 0, None, None)
    changes.rows(
        [
            row,
            row._replace(rowid=2, memory_id="a", event="NONE"),
            row._replace(rowid=3, memory_id="a", event=7),
        ]
    )
    changes.weigh(START.timestamp())
    assert (changes.odd, len(changes), changes.begins, changes.ends) == (3, 0, None, None)
    assert changes.at(START.timestamp()) == ([], [])
