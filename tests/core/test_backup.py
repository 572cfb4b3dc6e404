"""How far two halves are apart, from rows and points alone."""

from __future__ import annotations

import pytest

from mem0audit.core.backup import Halves, apart_words, duration, halves
from mem0audit.core.model import HistoryRow, VectorFacts
from mem0audit.core.points import MemoryKeeper, PointRecord
from mem0audit.core.reconcile import compare
from mem0audit.core.timeline import Timeline
from mem0audit.core.times import shown

NOW = 1_800_000_000.0
Row = tuple[str, str, str | None, str | None, float]
Point = tuple[str, str, float]


def told(rows: list[Row], points: list[Point]) -> Halves:
    timeline = Timeline()
    timeline.rows(
        [
            HistoryRow(n, str(n), memory, old, new, event, shown(at), None, 0, None, None)
            for n, (event, memory, old, new, at) in enumerate(rows, 1)
        ]
    )
    keep = MemoryKeeper()
    there: dict[str, PointRecord] = {
        memory: keep(n, memory, {"data": text, "created_at": shown(at)}, VectorFacts(8, None))
        for n, (memory, text, at) in enumerate(points, 1)
    }
    return halves(timeline, there.values(), compare(timeline, there, {}), now=NOW)


def add(memory: str, at: float, text: str = "x") -> Row:
    return "ADD", memory, None, text, at


def delete(memory: str, at: float, text: str = "x") -> Row:
    return "DELETE", memory, text, None, at


def test_halves_that_agree_are_not_apart() -> None:
    found = told([add("a", 100), add("b", 200), delete("b", 90_000)], [("a", "x", 100)])
    assert found.agree
    assert (found.newer, found.apart_s) == (None, None)
    assert apart_words(found) == "the halves agree"


def test_a_log_that_goes_on() -> None:
    rows = [add("a", 100), add("b", 200), delete("a", 200 + 18_720), add("c", 200 + 18_720)]
    found = told(rows, [("a", "x", 100), ("b", "x", 200)])
    assert (found.newer, found.apart_s, found.returning, found.losing) == ("history", 18_720, 1, 1)
    assert apart_words(found) == "the log is 5 h 12 min newer than the vectors"


def test_the_vectors_are_as_old_as_the_last_row_they_show() -> None:
    """The last thing before the copy of the vectors was a deletion: no point has its time."""
    rows = [add("a", 100), add("b", 200), delete("b", 50_000), add("c", 50_060)]
    found = told(rows, [("a", "x", 100)])
    assert (found.newer, found.apart_s) == ("history", 60)


def test_an_old_loss_does_not_make_the_vectors_old() -> None:
    rows = [add("lost", 100), add("b", 200), add("c", 50_000), add("d", 50_060)]
    found = told(rows, [("b", "x", 200), ("c", "x", 50_000)])
    assert (found.newer, found.apart_s, found.losing) == ("history", 60, 2)


def test_vectors_that_go_on() -> None:
    found = told([add("a", 100), add("b", 200)], [("b", "x", 200), ("c", "x", 4_000)])
    assert (found.newer, found.apart_s, found.unlogged, found.losing) == ("vectors", 3_800, 1, 1)
    assert apart_words(found) == "the vectors are 1 h 3 min newer than the log"


def test_what_times_do_not_tell() -> None:
    # deleted after the log was copied: nothing has a time for that
    found = told([add("a", 100), add("b", 200)], [("b", "x", 200)])
    assert (found.newer, found.losing, found.agree) == (None, 1, False)
    assert "do not tell" in apart_words(found)
    # no times at all, and none but in the future
    assert told([("ADD", "a", None, "x", NOW + 1e6)], []).newer is None
    assert told([add("a", 100)], [("a", "x", 100), ("b", "x", NOW + 1e6)]).newer is None


def test_an_update_that_one_half_lacks() -> None:
    rows = [add("a", 100), ("UPDATE", "a", "x", "y", 700.0)]
    found = told(rows, [("a", "x", 100)])
    assert (found.newer, found.apart_s, found.differing) == ("history", 600, 1)
    found = told(rows[:1], [("a", "y", 700)])
    assert (found.newer, found.apart_s, found.differing) == ("vectors", 600, 1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "less than 1 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (18_720, "5 h 12 min"),
        (90_000, "25 h"),
        (3 * 86_400 + 4 * 3600, "3 days 4 h"),
        (400 * 86_400, "400 days"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
