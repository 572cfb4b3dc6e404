"""Every spelling of a time that mem0 stores hold, on every supported Python."""

from __future__ import annotations

from typing import Any

import pytest

from mem0audit.core.times import age, instant, shown, utc_offset

NOON = 1793620800.0  # 2026-11-02 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-02T04:00:00-08:00", NOON),  # mem0 to 1.0.6, winter
        ("2026-11-02T05:00:00-07:00", NOON),  # and summer
        ("2026-11-02T04:00:00.250000-08:00", NOON + 0.25),
        ("2026-11-02T12:00:00+00:00", NOON),  # mem0 from 1.0.7 on
        ("2026-11-02T12:00:00.000001+00:00", NOON + 0.000001),
        ("2026-11-02 12:00:00", NOON),  # SQLite's CURRENT_TIMESTAMP, mem0 0.0.9
        ("2026-11-02T12:00:00", NOON),
        ("2026-11-02T12:00:00Z", NOON),
        ("2026-11-02T12:00:00.25Z", NOON + 0.25),
        ("2026-11-02T12:00:00.250000000Z", NOON + 0.25),
        ("2026-11-02t12:00z", NOON),
        ("2026-11-02T12:00", NOON),
        ("2026-11-02T13:30:00+0130", NOON),
        ("2026-11-02T13:00:00+01", NOON),
        ("2026-11-02 12:00:00 +00:00", NOON),
        (" 2026-11-02T12:00:00Z\n", NOON),
        ("2026-11-02", NOON - 43200),
        ("1970-01-01", 0.0),
        ("1969-12-31T23:59:59Z", -1.0),
    ],
)
def test_instant(text: str, seconds: float) -> None:
    assert instant(text) == seconds


def test_one_instant_in_two_offsets_is_one_number() -> None:
    assert instant("2026-07-01T05:14:07.123456-07:00") == instant("2026-07-01T12:14:07.123456+00:00")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        " ",
        "yesterday",
        "2026-02-31",
        "2026-11-02T25:00:00",
        "2026-11-02T12:00:00+99:00",
        "20261102",
        "20261102T120000",
        "2026-W45-1",
        "1793620800",
        "2026-11-02T12:00:00\ud800",
        "\ud800\ud800\ud800\ud800-11-02",
        "٢٠٢٦-١١-٠٢",
        "2026-11-02T" + "0" * 10_000_000,
        1793620800,
        1793620800.5,
        b"2026-11-02",
        ["2026-11-02"],
        True,
    ],
    ids=lambda value: repr(value)[:30].encode("ascii", "backslashreplace").decode(),
)
def test_no_time(text: Any) -> None:
    assert instant(text) is None
    assert utc_offset(text) is None or text == "2026-11-02T12:00:00+99:00"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_the_ends_of_the_calendar_do_not_raise(text: str) -> None:
    seconds = instant(text)
    assert seconds is not None
    assert shown(seconds) == "unknown time"


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("2026-11-02T04:00:00.123456-08:00", "-08:00"),
        ("2026-07-02T04:00:00-07:00", "-07:00"),
        ("2026-11-02T12:00:00+00:00", "+00:00"),
        ("2026-11-02T12:00:00-00:00", "+00:00"),
        ("2026-11-02T12:00:00Z", "+00:00"),
        ("2026-11-02T12:00:00+0530", "+05:30"),
        ("2026-11-02T12:00:00-03", "-03:00"),
        ("2026-11-02 12:00:00", None),
        ("2026-11-02", None),
        ("2026-11", None),
        (None, None),
    ],
)
def test_utc_offset(text: str | None, offset: str | None) -> None:
    assert utc_offset(text) == offset


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (NOON, "2026-11-02 12:00:00Z"),
        (NOON + 0.999, "2026-11-02 12:00:00Z"),
        (-0.5, "1969-12-31 23:59:59Z"),
        (-62135510401, "0001-01-01 23:59:59Z"),
        (float("nan"), "unknown time"),
        (float("inf"), "unknown time"),
        (1e18, "unknown time"),
    ],
)
def test_shown(seconds: float, text: str) -> None:
    assert shown(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (6 * 3600 + 5, "6 h"),
        (2 * 86400 - 1, "47 h"),
        (2 * 86400, "2 days"),
        (3 * 86400, "3 days"),
        (60 * 86400 - 1, "59 days"),
        (60 * 86400, "2 months"),
        (729 * 86400, "24 months"),
        (730 * 86400, "2 years"),
        (-7200, "-2 h"),
        (-0.5, "0 s"),
        (float("nan"), "unknown time"),
        (float("-inf"), "unknown time"),
    ],
)
def test_age(seconds: float, text: str) -> None:
    assert age(seconds) == text
