"""Times as people give them on a command line, read as instants.

A time without an offset is UTC, as every time that is shown. What is named without its end is a stretch: a day, a
minute, a second. Where something is looked at *as of* a time, the whole stretch counts, so that the time of a change
as it is shown means after that change; where something begins or ends *at* a time, its first moment.
"""

from __future__ import annotations

import re
from typing import Final

from mem0audit.core.retention import length
from mem0audit.core.times import instant

_SHAPE: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}(?P<time>[Tt ]\d{2}:\d{2}(?P<second>:\d{2}(?P<fraction>[.,]\d+)?)?"
    r" ?([Zz]|[+-]\d{2}(:?\d{2})?)?)?",
    re.ASCII,
)
_AGO: Final = re.compile(r"-?([1-9]\d{0,4}[hdw])", re.ASCII)
_LEAST: Final = 1e-6
"""mem0 writes microseconds."""

FORMS: Final = (
    "a date (2026-10-14), a time (2026-10-14T09:12, UTC unless it says +02:00), 12h, 7d or 4w ago, or now"
)


def moment(text: str, now: float, *, end: bool) -> float:
    """Seconds since 1970 of a time: ISO date or date and time, `7d` or `-7d` before `now`, or `now`.

    With `end` the last moment of what is named (of the day, the minute, the second), without it the first. Raises
    ValueError for anything else.
    """
    word = text.strip()
    if word.lower() == "now":
        return now
    ago = _AGO.fullmatch(word)
    if ago is not None:
        return now - length(ago[1])
    shape = _SHAPE.fullmatch(word)
    begin = instant(word) if shape else None
    if shape is None or begin is None:
        raise ValueError(text)
    if not end or shape["fraction"]:
        return begin
    stretch = 86_400.0 if not shape["time"] else 1.0 if shape["second"] else 60.0
    return begin + stretch - _LEAST
