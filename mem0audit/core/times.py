"""Times as mem0 stores write them, read as instants.

One store holds several spellings of the same instant: US/Pacific offsets from mem0 1.0.6 and older,
UTC from 1.0.7 on, SQLite's own "YYYY-MM-DD HH:MM:SS" (UTC) from 0.0.9 and older, and whatever a caller
put into `metadata["created_at"]` (kept since 1.0.9). So times are compared as instants, never as text.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# What datetime.fromisoformat of one supported Python refuses and of another takes: "Z", a fraction of
# other than 3 or 6 digits, offsets without a colon. Python 3.10 refuses all of these.
_LOOSE = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<hour>\d{2}):?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:[.,](?P<fraction>\d+))?)?"
    r" ?(?P<offset>[Zz]|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)


def instant(text: Any) -> float | None:
    """Seconds since 1970, UTC, of a time as a store holds it; None where it is no time.

    A time without an offset is taken as UTC (SQLite's CURRENT_TIMESTAMP is), a date alone as its
    midnight. Anything else, from None to a number, gives None; nothing is raised.
    """
    if not isinstance(text, str) or len(text) > 64:
        return None
    try:
        # The two dashes keep out what only newer Pythons read ("20261102", "2026W453").
        moment = datetime.fromisoformat(text) if text[4:5] == text[7:8] == "-" else _loosely(text)
    except ValueError:
        moment = _loosely(text)
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.timestamp()


def _loosely(text: str) -> datetime | None:
    """The same for spellings that `datetime.fromisoformat` refuses in some Python."""
    match = _LOOSE.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute, second = match["hour"] or "00", match["minute"] or "00", match["second"] or "00"
    fraction = ((match["fraction"] or "") + "000000")[:6]
    try:
        return datetime.fromisoformat(
            f"{match['date']}T{hour}:{minute}:{second}.{fraction}{_offset(match) or ''}"
        )
    except ValueError:  # the 31st of February, an hour 25
        return None


def _offset(match: re.Match[str]) -> str | None:
    offset = match["offset"]
    if offset is None:
        return None
    if offset in "Zz":
        return "+00:00"
    digits = offset[1:].replace(":", "")
    return f"{offset[0] if int(digits) else '+'}{digits[:2]}:{digits[2:] or '00'}"


def utc_offset(text: Any) -> str | None:
    """The UTC offset a time string names, as "-08:00"; None where it names none or is no time.

    "Z" and "-00:00" are "+00:00".
    """
    if not isinstance(text, str) or len(text) > 64:
        return None
    match = _LOOSE.fullmatch(text.strip())
    return None if match is None else _offset(match)


def shown(seconds: float) -> str:
    """An instant for people: "2026-11-02 06:14:07Z". A value that is no time is "unknown time"."""
    try:
        at = _EPOCH + timedelta(seconds=seconds // 1)
        # strftime does not pad a year before 1000
        return at.replace(tzinfo=None).isoformat(" ", "seconds") + "Z"
    except (OverflowError, ValueError):  # NaN, infinite, a year after 9999
        return "unknown time"


# From this many seconds on, the unit's length in seconds, its name for one and for several.
_UNITS = (
    (0.0, 1, "s", "s"),
    (60.0, 60, "min", "min"),
    (3600.0, 3600, "h", "h"),
    (2 * 86400.0, 86400, "day", "days"),
    (60 * 86400.0, 30 * 86400, "month", "months"),
    (730 * 86400.0, 365 * 86400, "year", "years"),
)


def age(seconds: float) -> str:
    """A length of time for people, rounded down: "6 h", "3 days". Less than nothing has a minus."""
    if seconds != seconds or seconds in (float("inf"), float("-inf")):
        return "unknown time"
    length = abs(seconds)
    _, unit, one, several = next(row for row in reversed(_UNITS) if length >= row[0])
    count = int(length // unit)
    return f"{'-' if seconds < 0 and count else ''}{count} {one if count == 1 else several}"
