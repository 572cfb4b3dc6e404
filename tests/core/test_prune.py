"""Which memories have had their time: days in UTC as mem0 counts them, and what the ledger will say."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any

import pytest

from mem0audit.core.ledger import DAY_S
from mem0audit.core.prune import Record, hidden_since, stale

NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc).timestamp()


def mem0_hides(day: Any, now: float) -> bool:
    """`_payload_is_expired` of mem0 2.2.1, at a given time."""
    return date.fromisoformat(str(day)) < datetime.fromtimestamp(now, timezone.utc).date()


@pytest.mark.parametrize(
    "day", ["2026-11-28", "2026-11-29", "2026-11-30", "2026-12-01", "2024-02-29", "9999-12-31"]
)
@pytest.mark.parametrize("hours", [-12.0, -11.999, 0.0, 11.999, 12.0])
def test_a_day_counts_as_mem0_counts_it(day: str, hours: float) -> None:
    now = NOON + hours * 3600
    since = hidden_since(day)
    assert since is not None
    assert (since <= now) is mem0_hides(day, now)
    found = stale(Record("x", "user a", expires_on=day), now)
    assert (found is not None) is mem0_hides(day, now)
    assert found is None or found.why == f"expired {day}"


@pytest.mark.parametrize(
    "no_day",
    [
        *("soon", "", "20200101", "2020-W01-1", "2020-01-01T00:00", "2020-02-30", "\u0660202-01-01"),
        *(None, 0, True, ["2020-01-01"]),
    ],
)
def test_what_is_no_day_never_comes(no_day: Any) -> None:
    assert hidden_since(no_day) is None
    assert stale(Record("x", "user a", expires_on=no_day), NOON) is None


def test_the_three_reasons() -> None:
    def reason(unused: bool = False, **known: Any) -> str | None:
        found = stale(Record("x", "user a", **known), NOON, unused=unused)
        return None if found is None else found.reason

    half_a_year_ago, lately = NOON - 183 * DAY_S, NOON - DAY_S
    assert reason() is None and reason(unused=True) is None
    # the ledger's time is an instant, mem0's a day; the first that comes counts
    assert reason(expires_at=NOON) == "expired" and reason(expires_at=NOON + 1) is None
    assert reason(expires_at=NOON + DAY_S, expires_on="2026-11-29") == "expired"
    # superseded ones stay for 180 days after they were made, whenever they were superseded
    assert reason(superseded_at=lately, created_at=half_a_year_ago) == "superseded"
    assert reason(superseded_at=lately, created_at=NOON - 180 * DAY_S) is None
    assert reason(superseded_at=lately) is None and reason(created_at=half_a_year_ago) is None
    # unused only where that is asked for, and where use is on record
    assert reason(idle_since=half_a_year_ago - 1) is None
    assert reason(unused=True, idle_since=half_a_year_ago - 1) == "unused"
    assert reason(unused=True, idle_since=half_a_year_ago) is None
    assert reason(unused=True, created_at=1.0) is None
    every = {"expires_at": NOON - DAY_S, "superseded_at": 1.0, "created_at": 1.0, "idle_since": 1.0}
    assert reason(unused=True, **every) == "expired"


def test_what_expired_lately_goes_for_another_reason_all_the_same() -> None:
    record = Record("x", "user a", created_at=1.0, expires_at=NOON - DAY_S, superseded_at=2.0)
    for days, reason in ((1, "expired"), (2, "superseded")):
        found = stale(record, NOON, older_than_s=days * DAY_S)
        assert found is not None and found.reason == reason
    assert stale(Record("x", "user a", expires_at=NOON - DAY_S), NOON, older_than_s=2 * DAY_S) is None
