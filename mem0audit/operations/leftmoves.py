"""Moves of an install that were cut off: found from the old place as well as from the new one.

What a move works in lies beside the new place. From the old place it is found by a record beside the ledgers, which is
written when a move begins and taken back when it has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from mem0audit.core import toserver
from mem0audit.core.errors import Refused
from mem0audit.core.model import Install
from mem0audit.core.moved import Begun, begun_text, parse_begun
from mem0audit.core.relocate import CutOff, LeftMove, MoveIntent, destination
from mem0audit.core.restore import NotAnIntent
from mem0audit.install.host import Host, resolved
from mem0audit.operations.ledger import ledger_folder, why_no_ledger
from mem0audit.operations.moves import cut_off, read_intent
from mem0audit.stores import exchange, files, snapshots

RECORD = "moves-begun.json"
TO_SERVER = "move to a server"
"""What the folder with the mark of a move to a server is for, in errors."""


def note_begun(begun: Begun, install: Install, host: Host) -> None:
    """Remembers that a move begins, where that can be; a move does not depend on it."""
    if why_no_ledger(install, host) is None:
        _rewrite(host, begun.to, [begun])


def note_ended(to: str, install: Install, host: Host) -> None:
    """Forgets what was begun to the new folder `to`: it has ended, whole or not at all."""
    if any(one.to == to for one in _read(host)) and why_no_ledger(install, host) is None:
        _rewrite(host, to, [])


def _rewrite(host: Host, to: str, more: Iterable[Begun]) -> None:
    folder = Path(ledger_folder(host))
    try:
        files.make_folders(folder)
        with files.folder_locked(folder):
            kept = [one for one in _read(host) if one.to != to]
            files.write_file(folder / RECORD, begun_text([*kept, *more]).encode("ascii"))
    except OSError:
        return


def _read(host: Host) -> tuple[Begun, ...]:
    try:
        return parse_begun((Path(ledger_folder(host)) / RECORD).read_bytes())
    except (OSError, ValueError):
        return ()  # one that does not read is of no use to anybody


def left_moves(install: Install, host: Host, *, ledger: bool = True) -> tuple[LeftMove, ...]:
    """Moves of this install, from here or to here, that were cut off. Changes nothing, never raises. Without `ledger`
    only those to where it lies."""
    if sys.platform != "linux" or host.root != "/":
        return ()
    there = _to_server(install, host)
    return (*_to_folder(install, host, ledger), *([] if there is None else [there]))


def _to_server(install: Install, host: Host) -> LeftMove | None:
    """The move of its vectors to a server that was cut off, by the mark beside the log."""
    staging = Path(toserver.staging_of(_real(install.history.value, host)))
    try:
        if not staging.is_dir() or exchange.at_work(staging, TO_SERVER):
            return None
        begun = toserver.parse_begun(snapshots.small_file(staging / toserver.MARK))
    except (Refused, NotAnIntent, OSError, ValueError):
        return None  # the same move says what is wrong with it
    cut = CutOff(str(staging), begun.started_at, "clean")
    return LeftMove(cut, begun.url, install.history.value, begun.source)


def _to_folder(install: Install, host: Host, ledger: bool) -> tuple[LeftMove, ...]:
    if install.vectors is None:
        return ()
    here = {_real(install.history.value, host), _real(install.vectors.value, host)}
    begun = {
        one.to: one
        for one in (_read(host) if ledger else ())
        if {_real(one.history, host), _real(one.vectors, host), one.to} & here
    }
    found = []
    for to in dict.fromkeys([_real(install.vectors.value, host), *begun]):
        staging = destination(to, False).staging
        cut = cut_off(staging)
        if cut is None:
            continue
        intent = _intent(staging)
        known = begun.get(to)
        if known is not None:
            found.append(LeftMove(cut, to, known.history, known.vectors, known.with_history))
        elif intent is not None:
            moves_log = any(piece.half == "history" for piece in intent.published)
            found.append(LeftMove(cut, to, intent.old_history, intent.old_vectors, moves_log))
        else:
            found.append(LeftMove(cut, to))
    return tuple(found)


def _intent(staging: str) -> MoveIntent | None:
    try:
        return read_intent(Path(staging))
    except (Refused, OSError):
        return None


def _real(path: str, host: Host) -> str:
    try:
        return resolved(path, host)
    except OSError:
        return path


def refuse_left_moves(install: Install, host: Host, *, but: str | None = None) -> None:
    """Refuses to change an install whose move was cut off half-way: that comes first. `but` is a new folder whose own
    move is settled by what asks. One that had moved nothing yet is in nobody's way."""
    for one in left_moves(install, host):
        if one.cut.course != "clean" and one.to != but:
            raise Refused(
                f"a move to {one.to} was cut off: it comes first",
                one.command or f"look at {one.cut.folder}: mem0audit status",
            )
