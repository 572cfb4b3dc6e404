"""Facts that hold for a time, in the ledger of an install: remember, what holds, revoke, history.

`now` and every other time are seconds since 1970 (UTC).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mem0audit.core import validity as core
from mem0audit.core.errors import CouldNotRead, Failed
from mem0audit.core.model import Install, NotChecked
from mem0audit.core.points import normalised
from mem0audit.core.scopes import Scope
from mem0audit.core.validity import Fact, Remembering, Revoking
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.stores import facts as store
from mem0audit.stores.ledger import CannotUse, Ledger


@dataclass(frozen=True)
class Remembered:
    """What remembering did; `superseded`: the memory of the value before is marked superseded in the ledger, from where
    the new value begins; `why_not` where it has a memory and that could not be."""

    done: Remembering
    superseded: bool
    why_not: str | None


@contextmanager
def _book(install: Install, host: Host, *, make: bool = False) -> Iterator[Ledger | None]:
    """The ledger, None where none is kept yet. Raises CouldNotRead (Failed where it was to be written)."""
    problem: type[CouldNotRead] | type[Failed] = Failed if make else CouldNotRead
    said = "; nothing changed" if make else ""
    with ledgers.opened(install, host, make=make) as book:
        if isinstance(book, NotChecked):
            raise problem(f"the ledger {book.why}{said}", "which one it is: mem0audit status")
        try:
            yield book
        except CannotUse as error:
            where = ledgers.ledger_folder(host) if book is None else str(book.path)
            raise problem(f"the ledger {where}: {error.why}{said}", "the same command again") from None


def remember(install: Install, host: Host, fact: Fact, now: float) -> Remembered:
    """Puts a value down from `fact.valid_from` on; the one before it ends there, in the same transaction. Raises
    UsageProblem for a blank word, Refused, Failed."""
    second = core.second(now)
    kept = Fact(
        core.word(fact.subject, "SUBJECT"),
        core.word(fact.attribute, "ATTRIBUTE"),
        core.word(fact.value, "VALUE"),
        core.second(fact.valid_from),
        None,
        None if fact.source is None else core.word(fact.source, "--source"),
        None if fact.memory_id is None else str(normalised(core.word(fact.memory_id, "--memory"))),
        second,
    )
    with _book(install, host, make=True) as book:
        assert book is not None
        return Remembered(*store.remember(book, kept, second))


def as_of(
    install: Install, host: Host, at: float, subject: str | None = None, attribute: str | None = None
) -> tuple[Fact, ...]:
    """What holds at a time: of one subject or of all, by subject and attribute. Raises UsageProblem, CouldNotRead."""
    names = _names(subject, attribute)
    with _book(install, host) as book:
        return () if book is None else store.at_second(book, core.second(at), *names)


def current(
    install: Install, host: Host, now: float, subject: str, attribute: str | None = None
) -> tuple[Fact, ...]:
    """What holds now: `as_of` now."""
    return as_of(install, host, now, subject, attribute)


def history(
    install: Install, host: Host, subject: str | None = None, attribute: str | None = None
) -> tuple[Fact, ...]:
    """Every value there ever was, and those planned, in order. Raises UsageProblem, CouldNotRead."""
    names = _names(subject, attribute)
    with _book(install, host) as book:
        return () if book is None else store.every(book, *names)


def plan_revoke(
    install: Install, host: Host, subject: str, attribute: str, at: float, now: float
) -> Revoking:
    """What ending a value at a time would do. Changes nothing. Raises UsageProblem, Refused, CouldNotRead."""
    subject, attribute = core.word(subject, "SUBJECT"), core.word(attribute, "ATTRIBUTE")
    with _book(install, host) as book:
        series = () if book is None else store.series(book, subject, attribute)
    return core.revoking(series, subject, attribute, core.second(at), core.second(now))


def apply_revoke(install: Install, host: Host, plan: Revoking, now: float) -> Revoking:
    """Ends it as planned. Raises Refused where it is no more as it was, Failed."""
    fact = plan.fact
    with _book(install, host, make=True) as book:
        assert book is not None
        return store.revoke(book, fact.subject, fact.attribute, plan.at, core.second(now), plan)


def told_of(
    install: Install, host: Host, scope: Scope | None, memory_ids: Collection[str], *, ledger: bool = True
) -> tuple[Fact, ...]:
    """Every value whose subject is whom a scope names alone, or that is tied to one of these memories. Raises
    CouldNotRead."""
    if not ledger:
        return ()
    with _book(install, host) as book:
        return () if book is None else store.told_of(book, None if scope is None else scope.alone, memory_ids)


def _names(subject: str | None, attribute: str | None) -> tuple[str | None, str | None]:
    return (
        None if subject is None else core.word(subject, "SUBJECT"),
        None if attribute is None else core.word(attribute, "ATTRIBUTE"),
    )
