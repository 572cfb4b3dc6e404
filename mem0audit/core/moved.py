"""Stores that were moved: what is remembered of a move, and whether the agent followed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from mem0audit.core.model import Holder
from mem0audit.core.restore import Half

FORMAT: Final = 1
KIND: Final = "mem0audit-moves"
KIND_BEGUN: Final = "mem0audit-moves-begun"
MOST: Final = 100
"""Moves that are remembered, the newest."""

Verdict = Literal["new", "old", "perhaps old", "written", "waiting", "not known"]
"""Where the agent works: a process has the new place open; one has the old place open, or something is there again;
one has a folder of the same name open in a mount namespace of its own; the new place was written to since; nothing
has touched it since; it could not be seen."""


@dataclass(frozen=True)
class Move:
    """One store that got another place, `at` seconds since 1970. `old` as the agent names it; `private`: it was in a
    mount namespace of the agent's own."""

    half: Half
    old: str
    new: str
    at: float
    private: bool = False


@dataclass(frozen=True)
class Begun:
    """A move that was begun, `at` seconds since 1970, and may have been cut off. `history` and `vectors` are where both
    stores lay, as they were named; `to` is the new folder, links followed. `with_history`: the log moves too."""

    history: str
    vectors: str
    to: str
    with_history: bool
    at: float


@dataclass(frozen=True)
class Seen:
    """What is seen of both places now. `old_is` is what lies at the old one: nothing, a link to the new one, or
    something else; `old_changed_at` and `new_changed_at` are the newest change of any file there."""

    at_new: tuple[Holder, ...]
    at_old: tuple[Holder, ...]
    old_is: Literal["nothing", "link", "something"]
    old_changed_at: float | None
    new_changed_at: float | None
    complete: bool = True
    """All processes were visible."""


@dataclass(frozen=True)
class Followed:
    """Whether the agent followed a move; `holder` is the process that shows it, `changed_at` the change."""

    move: Move
    verdict: Verdict
    holder: Holder | None = None
    changed_at: float | None = None
    linked: bool = False


def judge(move: Move, seen: Seen) -> Followed:
    """Where the agent works now. The old place is looked at first: two agents, one at each, is what loses memories."""
    linked = seen.old_is == "link"
    if not linked:
        sure = [h for h in seen.at_old if move.private or not h.private_mounts]
        if sure:
            return Followed(move, "old", sure[0])
        # an emptied mount point stays where it is
        if seen.old_is == "something" and (seen.old_changed_at is None or seen.old_changed_at > move.at):
            return Followed(move, "old", changed_at=seen.old_changed_at)
    if seen.at_new:
        return Followed(move, "new", seen.at_new[0], linked=linked)
    if not linked and seen.at_old:
        return Followed(move, "perhaps old", seen.at_old[0])
    # a filesystem's clock is a tick or two behind, and what was published was touched as it was
    if seen.new_changed_at is not None and seen.new_changed_at > move.at + 2:
        return Followed(move, "written", changed_at=seen.new_changed_at, linked=linked)
    return Followed(move, "waiting" if seen.complete else "not known", linked=linked)


def with_move(moves: Sequence[Move], new: Move) -> tuple[Move, ...]:
    """The moves to remember: the newest of each old place, and none of a place that a store was moved back to."""
    kept = [
        m for m in moves if (m.half, m.old) != (new.half, new.old) and (m.half, m.old) != (new.half, new.new)
    ]
    return (*kept, new)[-MOST:]


def of_places(moves: Sequence[Move], places: Sequence[tuple[Half, str]]) -> tuple[Move, ...]:
    """Of each of an install's places the newest move from or to it."""
    found = []
    for half, path in places:
        newest = [m for m in moves if m.half == half and path in (m.old, m.new)]
        found += newest[-1:]
    return tuple(found)


def begun_text(begun: Sequence[Begun]) -> str:
    """The record of moves that were begun: JSON, ASCII."""
    kept = [asdict(one) for one in begun[-MOST:]]
    return json.dumps({"kind": KIND_BEGUN, "format": FORMAT, "begun": kept}, indent=1) + "\n"


def parse_begun(data: bytes) -> tuple[Begun, ...]:
    """Such a record, read strictly. Raises ValueError."""
    try:
        raw = json.loads(data.decode("ascii"))
        known = (raw["kind"], raw["format"]) == (KIND_BEGUN, FORMAT)
        begun = tuple(Begun(**one) for one in raw["begun"]) if known else ()
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ValueError("does not read") from None
    if not known:
        raise ValueError("is of another version of mem0audit")
    for one in begun:
        paths = (one.history, one.vectors, one.to)
        if not all(isinstance(path, str) and path.startswith("/") for path in paths):
            raise ValueError("does not read")
        if not isinstance(one.with_history, bool) or not isinstance(one.at, (int, float)):
            raise ValueError("does not read")
    return begun


def moves_text(moves: Sequence[Move]) -> str:
    """The record: JSON, ASCII."""
    return json.dumps({"kind": KIND, "format": FORMAT, "moves": [asdict(m) for m in moves]}, indent=1) + "\n"


def parse_moves(data: bytes) -> tuple[Move, ...]:
    """A record, read strictly. Raises ValueError."""
    try:
        raw = json.loads(data.decode("ascii"))
        known = (raw["kind"], raw["format"]) == (KIND, FORMAT)
        moves = tuple(Move(**one) for one in raw["moves"]) if known else ()
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ValueError("does not read") from None
    if not known:
        raise ValueError("is of another version of mem0audit")
    for move in moves:
        texts = isinstance(move.old, str) and isinstance(move.new, str) and isinstance(move.private, bool)
        if not texts or move.half not in ("history", "vectors") or not isinstance(move.at, (int, float)):
            raise ValueError("does not read")
    return moves
