"""Facts with a time in which they hold: what follows from what. Pure.

An interval is half-open, `[valid_from, valid_to)`, in whole seconds since 1970 (UTC); without an end it is open. Of one
subject's attribute there is at most one value at any second: a new one begins later than every other, and where the
last is open it ends where the new one begins. Nothing is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite

from mem0audit.core.errors import Refused, UsageProblem
from mem0audit.core.times import shown

LATEST = 253_402_300_799
"""The last second of the year 9999: what is later cannot be shown."""


@dataclass(frozen=True)
class Fact:
    """One value of a subject's attribute, and when it holds (seconds since 1970, UTC; `valid_to` None: without end).

    `source` is where it is known from, `memory_id` the mem0 memory that says it, each None where that was not said.
    """

    subject: str
    attribute: str
    value: str
    valid_from: int
    valid_to: int | None = None
    source: str | None = None
    memory_id: str | None = None
    recorded_at: int = 0

    @property
    def shown(self) -> str:
        """Of what it is, for people."""
        return f"{self.subject} {self.attribute}"


def second(at: float) -> int:
    """A moment as the second that it lies in. Raises UsageProblem for what is no moment, or after the year 9999."""
    if not isfinite(at) or not -LATEST <= at <= LATEST:
        raise UsageProblem("no time that can be kept")
    return floor(at)


def word(text: str, what: str) -> str:
    """A subject, an attribute or a value as it is kept: without spaces around it. Raises UsageProblem for a blank."""
    if not text.strip():
        raise UsageProblem(f"{what}: is empty")
    return text.strip()


@dataclass(frozen=True)
class Remembering:
    """What a new value does: `fact` is put down, and `closed`, the one before, ends where it begins (None: there is
    none that is open). `current` says whether the new one holds already."""

    fact: Fact
    closed: Fact | None
    current: bool


def remembering(latest: Fact | None, new: Fact, now: int) -> Remembering:
    """What putting down a new value does, `latest` being the last one of this attribute.

    Raises Refused for one that does not begin later than it, or begins before its end.
    """
    if latest is None:
        return Remembering(new, None, new.valid_from <= now)
    begins = new.valid_from
    if begins <= latest.valid_from:
        planned = " (planned)" if latest.valid_from > now else ""
        raise Refused(
            f"{new.shown}: a value from {shown(begins)} does not come after the last one, which begins at "
            f"{shown(latest.valid_from)}{planned}; nothing changed",
            "what is known of it: mem0audit facts history",
        )
    if latest.valid_to is not None and begins < latest.valid_to:
        raise Refused(
            f"{new.shown}: a value from {shown(begins)} would begin before the last one ends, at "
            f"{shown(latest.valid_to)}; nothing changed",
            f"from its end on: --from {stamp(latest.valid_to)}",
        )
    closed = None if latest.valid_to is not None else replace(latest, valid_to=begins)
    return Remembering(new, closed, begins <= now)


@dataclass(frozen=True)
class Revoking:
    """What a revocation does: `fact` ends at `at`. `planned` is the value that comes after it all the same, and
    `not_begun` says that `fact` itself is yet to come."""

    fact: Fact
    at: int
    planned: Fact | None = None
    not_begun: bool = False

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it will do, for people, where a value is planned; () where that goes without saying."""
        ends = f"{self.fact.shown}: {{}} ends at {shown(self.at)}"
        if self.planned is not None:
            return (
                ends.format("the value of now")
                + f", before {shown(self.planned.valid_from)}, where the next was to "
                "follow.",
                "The planned value stays, and begins then; between the two there is none.",
            )
        if self.not_begun:
            return (
                ends.format(f"the planned value, which begins at {shown(self.fact.valid_from)},") + ".",
                "The one before it is not touched.",
            )
        return ()


def revoking(series: Sequence[Fact], subject: str, attribute: str, at: int, now: int) -> Revoking:
    """What ending a value at `at` does; `series` are all of this attribute, in order.

    Raises Refused where there is none, where it has an end already, and for a time at or before its start.
    """
    name = f"{subject} {attribute}"
    if not series:
        raise Refused(f"{name}: no value is known; nothing changed", "what is known: mem0audit facts history")
    began = [fact for fact in series if fact.valid_from < at]
    if not began:
        raise Refused(
            f"{name}: {shown(at)} is not after the start of its value, {shown(series[0].valid_from)}; nothing changed"
        )
    fact = began[-1]
    following = series[len(began)] if len(began) < len(series) else None
    if fact.valid_to is None:
        return Revoking(fact, at, None, fact.valid_from > now)
    # a value that ends only because the next is planned may end sooner
    if following is not None and following.valid_from == fact.valid_to and following.valid_from > now:
        if at == following.valid_from:
            raise Refused(
                f"{name}: {shown(at)} is not after the start of the planned value, {shown(at)}; nothing changed"
            )
        return Revoking(fact, at, following)
    if following is not None and at == following.valid_from:
        raise Refused(
            f"{name}: {shown(at)} is not after the start of its value, {shown(at)}; nothing changed"
        )
    raise Refused(f"{name}: has an end already, {shown(fact.valid_to)}; nothing changed")


def stamp(at: int) -> str:
    """A second as a command line takes it: `2026-10-01T00:00:00Z`."""
    return shown(at).replace(" ", "T")
