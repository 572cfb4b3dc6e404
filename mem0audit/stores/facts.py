"""The facts with validity intervals, in the ledger's file. Every write is one BEGIN IMMEDIATE transaction, in which it
is decided too: of two writers one waits, and then sees what the other did."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any, Final

from mem0audit.core import validity as core
from mem0audit.core.errors import Refused
from mem0audit.core.validity import Fact, Remembering, Revoking
from mem0audit.stores.ledger import Ledger, _optional, _text, _unoptional, _untext, mark_replaced

_COLUMNS: Final = "subject, attribute, value, valid_from, valid_to, source, memory_id, recorded_at"
_AT: Final = "valid_from <= :at AND (valid_to IS NULL OR :at < valid_to)"


def remember(ledger: Ledger, new: Fact, now: int) -> tuple[Remembering, bool, str | None]:
    """Puts a value down and ends the one before it; what that did, whether the memory of the one before was marked
    superseded by the new one's from there on, and why not where the new one has one. `now` is in seconds since 1970.
    Raises Refused, CannotUse; then nothing changed."""
    with ledger.writing() as db:
        done = core.remembering(_latest(db, new.subject, new.attribute), new, now)
        closed = done.closed
        if closed is not None:
            db.execute(
                "UPDATE facts SET valid_to = ? WHERE subject = ? AND attribute = ? AND valid_from = ?",
                (closed.valid_to, _text(closed.subject), _text(closed.attribute), closed.valid_from),
            )
        db.execute(f"INSERT INTO facts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _row(new))  # noqa: S608
        old = None if closed is None else closed.memory_id
        tied = new.memory_id
        if tied is None or old == tied:
            return done, False, None
        if old is not None:
            why_not = mark_replaced(db, old, tied, new.valid_from, now)
            return done, why_not is None, why_not
        known = db.execute("SELECT 1 FROM memory WHERE id = ?", (_text(tied),)).fetchone()
    return done, False, None if known else f"the ledger does not know {tied} yet"


def revoke(ledger: Ledger, subject: str, attribute: str, at: int, now: int, expected: Revoking) -> Revoking:
    """Ends a value at `at` (seconds since 1970), where it is still as `expected`. Raises Refused, CannotUse; then
    nothing changed."""
    with ledger.writing() as db:
        done = core.revoking(_series(db, subject, attribute), subject, attribute, at, now)
        if done != expected:
            raise Refused(f"{subject} {attribute}: changed meanwhile; nothing changed", "run it again")
        db.execute(
            "UPDATE facts SET valid_to = ? WHERE subject = ? AND attribute = ? AND valid_from = ?",
            (at, _text(subject), _text(attribute), done.fact.valid_from),
        )
    return done


def series(ledger: Ledger, subject: str, attribute: str) -> tuple[Fact, ...]:
    """Every value of one attribute, in order. Raises CannotUse."""
    return _facts(ledger, "subject = :s AND attribute = :a", {"s": _text(subject), "a": _text(attribute)})


def at_second(ledger: Ledger, at: int, subject: str | None, attribute: str | None) -> tuple[Fact, ...]:
    """What holds at a second, of one subject or of all, of one attribute or of all. Raises CannotUse."""
    where, args = _whose(subject, attribute)
    return _facts(ledger, f"{where} AND {_AT}", {**args, "at": at})


def every(ledger: Ledger, subject: str | None, attribute: str | None) -> tuple[Fact, ...]:
    """Every value there ever was. Raises CannotUse."""
    where, args = _whose(subject, attribute)
    return _facts(ledger, where, args)


def told_of(ledger: Ledger, subject: str | None, memory_ids: Collection[str]) -> tuple[Fact, ...]:
    """Every value there ever was of a subject (None: of none), or that is tied to one of these memories. Raises
    CannotUse."""
    return tuple(
        fact
        for fact in every(ledger, None, None)
        if (subject is not None and fact.subject == subject) or fact.memory_id in memory_ids
    )


def forget(ledger: Ledger, subject: str | None, memory_ids: Collection[str]) -> None:
    """Removes what `told_of` gives, and its bytes from the file. Raises CannotUse."""
    with ledger.writing() as db:
        db.executemany(
            "DELETE FROM facts WHERE subject = ? AND attribute = ? AND valid_from = ?",
            [
                (_text(fact.subject), _text(fact.attribute), fact.valid_from)
                for fact in told_of(ledger, subject, memory_ids)
            ],
        )
    # the pages as they were lie in the write-ahead log, until somebody empties it
    ledger.all("PRAGMA wal_checkpoint(TRUNCATE)")


def _whose(subject: str | None, attribute: str | None) -> tuple[str, dict[str, Any]]:
    parts, args = ["1"], {}
    for column, value in (("subject", subject), ("attribute", attribute)):
        if value is not None:
            parts.append(f"{column} = :{column}")
            args[column] = _text(value)
    return " AND ".join(parts), args


def _facts(ledger: Ledger, where: str, args: dict[str, Any]) -> tuple[Fact, ...]:
    sql = f"SELECT {_COLUMNS} FROM facts WHERE {where} ORDER BY subject, attribute, valid_from"  # noqa: S608
    return tuple(map(_fact, ledger.all(sql, args)))


def _series(db: sqlite3.Connection, subject: str, attribute: str) -> list[Fact]:
    sql = f"SELECT {_COLUMNS} FROM facts WHERE subject = ? AND attribute = ? ORDER BY valid_from"  # noqa: S608
    return [_fact(row) for row in db.execute(sql, (_text(subject), _text(attribute)))]


def _latest(db: sqlite3.Connection, subject: str, attribute: str) -> Fact | None:
    sql = (
        f"SELECT {_COLUMNS} FROM facts WHERE subject = ? AND attribute = ?"  # noqa: S608
        " ORDER BY valid_from DESC LIMIT 1"
    )
    row = db.execute(sql, (_text(subject), _text(attribute))).fetchone()
    return None if row is None else _fact(row)


def _row(fact: Fact) -> tuple[Any, ...]:
    return (
        *(_text(fact.subject), _text(fact.attribute), _text(fact.value), fact.valid_from, fact.valid_to),
        *(_optional(fact.source), _optional(fact.memory_id), fact.recorded_at),
    )


def _fact(row: tuple[Any, ...]) -> Fact:
    subject, attribute, value, valid_from, valid_to, source, memory_id, recorded_at = row
    return Fact(
        *(_untext(subject), _untext(attribute), _untext(value), valid_from, valid_to),
        *(_unoptional(source), _unoptional(memory_id), recorded_at),
    )
