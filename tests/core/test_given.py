"""Times as people give them."""

from __future__ import annotations

import pytest

from mem0audit.core.given import moment
from mem0audit.core.times import instant, shown

NOW = 1_796_000_000.25


def at(text: str) -> float:
    seconds = instant(text)
    assert seconds is not None
    return seconds


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ("2026-10-14", "2026-10-14 00:00:00Z", "2026-10-14 23:59:59Z"),
        ("2026-10-14T09:12", "2026-10-14 09:12:00Z", "2026-10-14 09:12:59Z"),
        ("2026-10-14 09:12:07Z", "2026-10-14 09:12:07Z", "2026-10-14 09:12:07Z"),
        ("2026-10-14T09:12:07+02:00", "2026-10-14 07:12:07Z", "2026-10-14 07:12:07Z"),
        ("2026-10-14T23:30-08:00", "2026-10-15 07:30:00Z", "2026-10-15 07:30:59Z"),
        (" 2028-02-29 ", "2028-02-29 00:00:00Z", "2028-02-29 23:59:59Z"),
    ],
)
def test_a_time_is_utc_and_a_stretch(given: str, first: str, last: str) -> None:
    assert shown(moment(given, NOW, end=False)) == first
    assert shown(moment(given, NOW, end=True)) == last


def test_a_time_as_it_is_shown_means_after_what_happened_then() -> None:
    change = at("2026-10-14T09:12:07.999999+00:00")
    assert change <= moment(shown(change), NOW, end=True) < change + 1e-3
    assert moment(shown(change), NOW, end=False) < change


def test_a_fraction_is_a_moment() -> None:
    assert moment("2026-10-14T09:12:07.5Z", NOW, end=True) == at("2026-10-14T09:12:07.5Z")


@pytest.mark.parametrize("end", [False, True])
def test_lengths_count_back_from_now(end: bool) -> None:
    assert moment("7d", NOW, end=end) == moment("-7d", NOW, end=end) == NOW - 7 * 86_400
    assert moment("12h", NOW, end=end) == NOW - 12 * 3_600
    assert moment("now", NOW, end=end) == NOW


@pytest.mark.parametrize(
    "given",
    [
        "",
        "soon",
        "2026",
        "2026-13-01",
        "2026-02-29",
        "20261014",
        "2026-10-14T25:00",
        "7",
        "7m",
        "-",
        "1.5d",
        "0d",
    ],
)
def test_anything_else_is_no_time(given: str) -> None:
    with pytest.raises(ValueError):
        moment(given, NOW, end=True)
