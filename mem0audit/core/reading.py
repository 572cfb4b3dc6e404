"""Everything one look at an install brought back, for the rules to judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mem0audit.core.model import (
    Agent,
    Candidate,
    CollectionInfo,
    HistoryFile,
    Holder,
    Install,
    NotChecked,
    Place,
    PointsRead,
    StoreLayout,
)
from mem0audit.core.points import NO_DATA, NO_TEXT, TELEMETRY, EntityRecord, PointRecord
from mem0audit.core.reconcile import Comparison, compare
from mem0audit.core.timeline import Timeline

TELEMETRY_COLLECTIONS = frozenset({"mem0migrations", "mem0-migrations", "mem0_migrations"})
"""mem0's own collections (0.1.89, and 0.1.92 on), beside the memories where a client was passed."""

Role = Literal["memories", "entities", "telemetry", "other"]


@dataclass(frozen=True)
class Memories:
    """A collection of memories as read."""

    info: CollectionInfo
    read: PointsRead[PointRecord]
    configured: bool
    """It is the collection of this install, not another one that lies in the same folder."""

    def real(self) -> Iterator[tuple[str, PointRecord]]:
        """Its memories: every point but mem0's own telemetry."""
        for point_id, record in self.read.rows.items():
            if not record.flags & TELEMETRY:
                yield str(point_id), record

    @property
    def count(self) -> int:
        """How many memories: points with text (a point without `data` is no memory)."""
        return sum(1 for record in self.read.rows.values() if not record.flags & (TELEMETRY | NO_DATA))


@dataclass(frozen=True)
class Entities:
    """A collection of entities as read, and the collection of memories it belongs to."""

    info: CollectionInfo
    read: PointsRead[EntityRecord]
    of: str


@dataclass(frozen=True)
class Reading:
    """Both stores as read, what they stand on, and who has them open.

    `now` and `boot_at` are seconds since 1970. `live` is False only where it is certain that no process
    has the store open. `elsewhere` maps the ids of memories that this folder lacks to the path of
    another store that has them.
    """

    install: Install
    history_place: Place
    vectors_place: Place | None
    layout: StoreLayout | None
    history: HistoryFile | None
    timeline: Timeline | None
    memories: tuple[Memories, ...]
    entities: tuple[Entities, ...]
    others: tuple[CollectionInfo, ...]
    telemetry: tuple[CollectionInfo, ...]
    holders: tuple[Holder, ...]
    holders_unseen: str | None
    agent: Agent
    candidates: tuple[Candidate, ...]
    elsewhere: Mapping[str, str]
    now: float
    boot_at: float | None
    live: bool
    not_read: tuple[NotChecked, ...] = ()
    standing: Comparison | None = None
    """What of the comparison stood at a second look; None where there was none."""

    @cached_property
    def comparison(self) -> Comparison | None:
        """Where the two stores disagree; None where one of them could not be read whole."""
        if self.standing is not None:
            return self.standing
        if self.timeline is None or not self.vectors_readable:
            return None
        return compare(self.timeline, {str(i): m for c in self.memories for i, m in c.real()}, self.elsewhere)

    @property
    def collections(self) -> tuple[Memories | Entities, ...]:
        """Every collection whose points were read."""
        return (*self.memories, *self.entities)

    @property
    def vectors_readable(self) -> bool:
        """Every collection of memories that there is was read whole, so that a missing id is missing."""
        return (
            self.layout is not None
            and self.layout.problem is None
            and all(c.read.file.problem is None for c in self.memories)
        )

    @property
    def history_readable(self) -> bool:
        """The history table was read whole."""
        return self.timeline is not None

    @cached_property
    def configured(self) -> Memories | None:
        """The collection this install is configured to use, None where it is not there."""
        return next((c for c in self.memories if c.configured), None)

    @cached_property
    def log_live_count(self) -> int | None:
        """How many memories exist by the log, None where it could not be read."""
        return None if self.timeline is None else sum(1 for _ in self.timeline.live())

    @property
    def memory_count(self) -> int | None:
        """Memories of the install's collections as read, None where they could not be read."""
        if self.layout is None or self.layout.problem is not None:
            return None
        return sum(c.count for c in self.memories)

    @property
    def history_path(self) -> str:
        """The history file."""
        return self.install.history.value

    @property
    def vectors_path(self) -> str | None:
        """The embedded folder."""
        return None if self.install.vectors is None else self.install.vectors.value


__all__ = ["NO_TEXT", "Entities", "Memories", "Reading", "Role"]
