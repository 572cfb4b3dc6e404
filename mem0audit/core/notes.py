"""Lines of a plain notes file, as facts of which somebody asks whether they are still true. Pure text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from mem0audit.core.ledger import DAY_S, SKEW_S
from mem0audit.core.times import instant

_DATE: Final = re.compile(
    r"(?<![\w-])\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?(?![\w-])"
)
_HEADING: Final = re.compile(r"#{1,6}\s")


class Note(NamedTuple):
    """A line of the file. `dated_at` is the latest date in it that is not ahead, `confirmed_at` when somebody confirmed
    it in a review; seconds since 1970, None where there is none."""

    line: int
    text: str
    dated_at: float | None
    confirmed_at: float | None

    @property
    def digest(self) -> bytes:
        """What the ledger keeps of it. Another text is another note."""
        return digest_of(self.text)

    @property
    def held_at(self) -> float | None:
        """When it was last said to be true."""
        return max((at for at in (self.dated_at, self.confirmed_at) if at is not None), default=None)


def digest_of(text: str) -> bytes:
    """A line without what stands around it."""
    return blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16).digest()


def date_in(text: str, now: float) -> float | None:
    """The latest ISO date in a text that is not ahead of `now`; a day alone counts from its start, UTC."""
    found = [at for match in _DATE.finditer(text) if (at := instant(match[0])) is not None]
    return max((min(at, now) for at in found if at <= now + SKEW_S), default=None)


def notes_of(text: str, confirmed: Mapping[bytes, float], now: float) -> tuple[Note, ...]:
    """The lines that say something: no empty ones, headings, fences or rules. `confirmed` is the ledger's."""
    return tuple(
        Note(number, line.strip(), date_in(line, now), confirmed.get(digest_of(line)))
        for number, line in enumerate(text.split("\n"), 1)
        if any(map(str.isalnum, line)) and not _HEADING.match(line) and not line.startswith(("```", "~~~"))
    )


def due(notes: tuple[Note, ...], days: int, now: float) -> list[Note]:
    """Those to ask of: undated first, then the oldest, if more than `days` old."""
    undated = [one for one in notes if one.held_at is None]
    old = [one for one in notes if one.held_at is not None and one.held_at < now - days * DAY_S]
    return [*undated, *sorted(old, key=lambda one: (one.held_at or 0.0, one.line))]
