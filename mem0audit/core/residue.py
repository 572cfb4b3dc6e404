"""What is still readable of a scope or of deleted memories, as data: in the rows, and in the bytes of the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from mem0audit.core.model import Install, NotChecked
from mem0audit.core.retention import Policy, Standing, decide
from mem0audit.core.scopes import Scope

LAST_MESSAGES: Final = 10
"""So many of a session's messages mem0 2.x gives to its next extraction (memory/main.py, get_last_messages)."""
NIGHTS: Final = 800
"""For so many nights it is looked ahead when a snapshot will go."""


@dataclass(frozen=True)
class Rows:
    """One place that is read as rows. `count` of its rows hold something of theirs; None where it could not be read.

    `kind` is "points", "older rows", "entities", "shared entities", "history", "messages", "stranded" or "facts" (those
    of the ledger); `name` the collection or table.
    """

    kind: str
    name: str
    path: str
    count: int | None
    memories: int = 0


@dataclass(frozen=True)
class FileSearch:
    """One file whose bytes were searched. `texts` different texts are in it whole, at `whole` places; `pieces` more
    places hold parts of some.

    `free` of these places are in pages that SQLite has freed and not overwritten. `shared` are places whose bytes are
    in what others own too, `short` places of texts shorter than a fragment: both may be of others, and are in none of
    the other numbers. `short_alone` of the short ones are in nothing that others own.
    """

    path: str
    size_bytes: int
    texts: int = 0
    whole: int = 0
    pieces: int = 0
    free: int = 0
    shared: int = 0
    short: int = 0
    short_alone: int = 0
    free_pages: int | None = None
    """Freed pages of a database; None where it is none."""
    filled_pages: int = 0
    """Those of them that still hold bytes: whoever freed them ran SQLite without `secure_delete`."""

    @property
    def remains(self) -> bool:
        """Something of theirs can be read in it."""
        return bool(self.whole or self.pieces or self.short_alone)


@dataclass(frozen=True)
class Copy:
    """A copy of the stores: a snapshot, what a restore put aside, an export. `memories` and `rows` of its log are
    theirs; None where that could not be read. `until` says when it goes."""

    kind: str
    path: str
    memories: int | None
    rows: int | None
    until: str
    files: tuple[FileSearch, ...] = ()

    @property
    def remains(self) -> bool:
        """Something of theirs can be read in it."""
        return bool(self.memories or self.rows) or any(one.remains for one in self.files)


@dataclass(frozen=True)
class Residue:
    """The report. `texts` different texts of theirs are known and were searched for, in pieces of `piece` bytes and
    more; `too_short` more are too short for that.

    `unattributed` are (rows, memories) of the log that nobody can be found for. `fed_back` is how many of their
    messages mem0's next extraction reads.
    """

    install: Install
    scope: Scope | None
    memory_ids: tuple[str, ...]
    ids: int
    texts: int
    piece: int
    too_short: int
    rows: tuple[Rows, ...]
    fed_back: int
    unattributed: tuple[int, int]
    files: tuple[FileSearch, ...]
    copies: tuple[Copy, ...]
    own_secure_delete: bool
    not_searched: tuple[NotChecked, ...]
    seconds: float = 0.0

    @property
    def shown(self) -> str:
        """Whom or what it is of."""
        if self.scope is not None:
            return self.scope.shown
        return self.memory_ids[0] if len(self.memory_ids) == 1 else f"{len(self.memory_ids)} memories"

    @property
    def remains(self) -> bool:
        """Something of theirs can be read somewhere."""
        return bool(
            any(one.count for one in self.rows if one.kind != "shared entities")
            or any(one.remains for one in self.files)
            or any(one.remains for one in self.copies)
        )

    @property
    def incomplete(self) -> bool:
        """Something that should have been read or searched was not."""
        return any(one.gap for one in self.not_searched)


def goes_on(policy: Policy, standings: Sequence[Standing], now: float) -> dict[str, str | None]:
    """The day (UTC) on which each of these snapshots goes, where a good one is taken every night from now on and the
    policy is kept to; None for one that does not go. `now` is in seconds since 1970."""
    found: dict[str, str | None] = {one.name: None for one in standings}
    standings = [one for one in standings if one.until is None]
    for series in {one.series for one in standings}:
        present = [one for one in standings if one.series == series]
        for night in range(1, NIGHTS + 1):
            if not any(one.name in found for one in present):
                break
            at = now + night * 86_400.0
            present.append(Standing(f"night {night}", at, "good", series=series))
            going = {one.snapshot.name for one in decide(policy, present, at) if not one.keep}
            present = [one for one in present if one.name not in going]
            day = (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=at)).strftime("%Y-%m-%d")
            found.update({name: day for name in going if name in found})
    return found
