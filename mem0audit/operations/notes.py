"""A plain notes file in review. The file is only read: what was confirmed is in the ledger, by a line's digest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mem0audit.core import notes as core
from mem0audit.core.errors import CouldNotRead, Refused
from mem0audit.core.model import Install
from mem0audit.core.notes import Note
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.ledgerfacts import writing
from mem0audit.stores.ledger import CannotUse, Ledger

LARGEST: Final = 8 << 20
"""Bytes; nobody writes longer notes by hand."""


@dataclass(frozen=True)
class Notes:
    """The first of the lines that are due, how many there are, and how many of these have no date."""

    file: str
    due: tuple[Note, ...]
    waiting: int
    undated: int
    days: int
    now: float


def read_notes(path: str, install: Install, host: Host, *, days: int, most: int) -> Notes:
    """The lines of a notes file that nobody dated or confirmed in the last `days`. Changes nothing.

    Raises CouldNotRead for what is not there or no text of at most 8 MB, Refused where there is a ledger that cannot be
    read."""
    file = Path(host.cwd, Path(path).expanduser())
    try:
        if not file.is_file():
            raise CouldNotRead(f"{path}: {'no plain file' if file.exists() else 'not there'}")
        if file.stat().st_size > LARGEST:
            raise CouldNotRead(f"{path}: larger than {LARGEST >> 20} MB")
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CouldNotRead(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    except UnicodeDecodeError:
        raise CouldNotRead(f"{path}: no text in UTF-8") from None
    confirmed: dict[bytes, float] = {}
    with ledgers.opened(install, host, by_paths_only=True) as book:
        if isinstance(book, Ledger):
            try:
                confirmed = book.notes()
            except CannotUse as error:
                raise Refused(f"the ledger {book.path} {error.why}") from None
    found = core.due(core.notes_of(text.replace("\r\n", "\n"), confirmed, host.now), days, host.now)
    return Notes(
        file=str(file),
        due=tuple(found[:most]),
        waiting=len(found),
        undated=sum(one.held_at is None for one in found),
        days=days,
        now=host.now,
    )


def confirm_note(note: Note, install: Install, host: Host, at: float | None) -> None:
    """Puts down in the ledger, by its digest, when a line was found true; None takes that back. Raises Refused."""
    with writing(install, host) as book:
        book.confirm_note(note.digest, at)
