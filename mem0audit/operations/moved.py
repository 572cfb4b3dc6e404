"""Where the agent works after a move. The record is one small file beside the ledgers: it is found from the old place
as well as from the new one, and after a reboot that took all else of the old place."""

# Paths here are texts, kept as they were written.
# ruff: noqa: PTH116, PTH118, PTH119, PTH120

from __future__ import annotations

import os
from pathlib import Path

from mem0audit.core.model import Install, NotChecked
from mem0audit.core.moved import Followed, Move, Seen, judge, moves_text, of_places, parse_moves, with_move
from mem0audit.core.restore import Half
from mem0audit.install.host import Host, resolved
from mem0audit.install.processes import holders
from mem0audit.operations.ledger import ledger_folder, why_no_ledger
from mem0audit.stores import files

RECORD = "moves.json"
_MOST_FILES = 10_000


def note_moves(
    moves: tuple[Move, ...], install: Install, host: Host, *, made_before: bool = False
) -> NotChecked | None:
    """Remembers moves that were made, for `status`; why not, where they cannot be. `install` is as it was before.
    With `made_before` those that are remembered already keep their time."""
    problem = why_no_ledger(install, host)
    if problem is not None:
        return NotChecked("moves", problem.why, gap=False)
    folder = Path(ledger_folder(host))
    try:
        files.make_folders(folder)
        with files.folder_locked(folder):
            try:
                kept = _read(host)
            except (OSError, ValueError):
                kept = ()  # one that does not read is of no use to anybody
            known = {(m.half, m.old, m.new) for m in kept} if made_before else set()
            for move in moves:
                if (move.half, move.old, move.new) not in known:
                    kept = with_move(kept, move)
            files.write_file(folder / RECORD, moves_text(kept).encode("ascii"))
    except OSError as error:
        return NotChecked("moves", f"{folder / RECORD}: {(error.strerror or '?').lower()}", gap=False)
    return None


def _read(host: Host) -> tuple[Move, ...]:
    return parse_moves((Path(ledger_folder(host)) / RECORD).read_bytes())


def places_before(install: Install, host: Host) -> dict[str, float]:
    """Where the stores of an install lay before they were moved, each with the time until which they did (seconds since
    1970): as they were named, and links followed."""
    try:
        moves = _read(host)
    except (OSError, ValueError):
        return {}
    here = {_real(install.history.value, host)}
    if install.vectors is not None:
        here.add(_real(install.vectors.value, host))
    elif install.server_url is not None:
        here.add(install.server_url.value)
    found: dict[str, float] = {}
    for move in reversed(moves):  # the newest first: what was moved twice is followed back
        if move.new in here or move.new in found:
            if "://" in move.old:  # a server
                found[move.old] = max(move.at, found.get(move.old, move.at))
                continue
            for old in {
                move.old,
                os.path.join(_real(os.path.dirname(move.old), host), os.path.basename(move.old)),
            }:
                found[old] = max(move.at, found.get(old, move.at))
    return found


def followed(install: Install, host: Host) -> tuple[tuple[Followed, ...], NotChecked | None]:
    """Of each store of the install that was moved, from here or to here, whether the agent works at the new place.

    Changes nothing, opens no store, never raises: the second is why the record could not be read.
    """
    if host.root != "/":
        return (), None
    try:
        moves = _read(host)
    except FileNotFoundError:
        return (), None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return (), NotChecked("moves", f"{ledger_folder(host)}/{RECORD}: {why}", gap=False)
    places: list[tuple[Half, str]] = [("history", install.history.value)]
    store = install.vectors or install.server_url
    if store is not None:
        places.append(("vectors", store.value))
    both = dict.fromkeys(
        moved for place in places for moved in of_places(moves, [place, (place[0], _real(place[1], host))])
    )
    return tuple(judge(move, _seen(move, host)) for move in both), None


def _seen(move: Move, host: Host) -> Seen:
    if "://" in move.old:  # who works on a server cannot be seen
        there = holders([move.new], host)
        changed_at = _changed_at(host.at(_real(move.new, host)))
        return Seen(there.holders, (), "nothing", None, changed_at, there.complete)
    if "://" in move.new:  # nor who began to
        there = holders([move.old], host)
        is_there = "something" if os.path.lexists(host.at(_real(move.old, host))) else "nothing"
        changed_at = _changed_at(host.at(move.old))
        return Seen((), there.holders, is_there, changed_at, None, complete=False)  # type: ignore[arg-type]
    new, old = holders([move.new], host), holders([move.old], host)
    if not os.path.lexists(host.at(_real(move.old, host))):
        is_there = "nothing"  # a link that leads to nothing is none of the agent's
    else:
        is_there = "link" if _real(move.old, host) == _real(move.new, host) else "something"
    return Seen(
        at_new=new.holders,
        at_old=old.holders,
        old_is=is_there,  # type: ignore[arg-type]
        old_changed_at=_changed_at(host.at(move.old)),
        new_changed_at=_changed_at(host.at(_real(move.new, host))),
        complete=new.complete and old.complete,
    )


def _real(path: str, host: Host) -> str:
    try:
        return resolved(path, host)
    except OSError:
        return path


def _changed_at(path: str) -> float | None:
    """The newest change of a file, its journals, or any file of a folder; None where nothing is."""
    newest: float | None = None
    paths = [path, *(path + end for end in ("-journal", "-wal"))]
    for base, _, names in os.walk(path):
        paths += [os.path.join(base, name) for name in names]
        if len(paths) > _MOST_FILES:
            break
    for one in paths:
        try:
            at = os.stat(one).st_mtime
        except OSError:
            continue
        newest = at if newest is None or at > newest else newest
    return newest
