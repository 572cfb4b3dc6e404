"""Everything one look at an install brought back, for the rules to judge."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mem0audit.core.ledger import NO_LEDGER, Kept
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
    Snapshots,
    StoreLayout,
)
from mem0audit.core.points import (
    CAMEL,
    NO_DATA,
    NO_TEXT,
    ODD_OWNER,
    STALE_HASH,
    TELEMETRY,
    EntityRecord,
    Owner,
    PointRecord,
)
from mem0audit.core.reconcile import Comparison, compare
from mem0audit.core.relocate import LeftMove
from mem0audit.core.restore import Interrupted
from mem0audit.core.seal import NO_SEAL, LastSeal, SealCheck, SealedPoint, SealedRows, State, check
from mem0audit.core.signs import MessageSecrets
from mem0audit.core.timeline import Timeline
from mem0audit.core.times import instant

TELEMETRY_COLLECTIONS = frozenset({"mem0migrations", "mem0-migrations", "mem0_migrations"})
"""mem0's own collections (0.1.89, and 0.1.92 on), beside the memories where a client was passed."""

ENTITIES_SUFFIX = "_entities"

NOTED = NO_TEXT | NO_DATA | STALE_HASH | CAMEL | TELEMETRY | ODD_OWNER


@dataclass(frozen=True)
class Memories:
    """A collection of memories as read."""

    info: CollectionInfo
    read: PointsRead[PointRecord]
    configured: bool
    """It is the collection of this install, not another one that lies in the same folder."""
    owners: Collection[Owner] = ()
    """Every owner of its points once, but for those that are lists or dicts (`ODD_OWNER`)."""

    @cached_property
    def noted(self) -> tuple[tuple[str, PointRecord], ...]:
        """The points that some rule may want to speak of: looked through once, not once a rule."""
        return tuple((str(i), p) for i, p in self.read.rows.items() if p.flags & NOTED or p.expires)

    @cached_property
    def signed(self) -> tuple[tuple[str, PointRecord], ...]:
        """The points whose wording or origin says something against them."""
        return tuple((str(i), p) for i, p in self.read.rows.items() if p.signs is not None)

    @cached_property
    def copies(self) -> Mapping[tuple[object, bytes], Sequence[tuple[str, Owner, int]]]:
        """(id, owner, row) of the memories whose text stands several times, by user and digest of the text, in the
        order they were written in. Without a user, by the whole owner.
        """
        texts = [p.text for p in self.read.rows.values() if not p.flags & NO_TEXT]
        repeated: set[bytes | None] = set()
        if len(set(texts)) < len(texts):
            repeated = {text for text, count in Counter(texts).items() if count > 1}
        groups: dict[tuple[object, bytes], list[tuple[str, Owner, int]]] = defaultdict(list)
        for memory_id, point in self.by_id.items() if repeated else ():
            if point.text is not None and point.text in repeated and not point.flags & NO_TEXT:
                user = point.owner[0] if point.owner[0] is not None else point.owner
                groups[(repr(user), point.text)].append((memory_id, point.owner, point.rowid))
        if self.info.server is not None:
            # no rows there to be in order: by when they were last written
            for members in groups.values():
                members.sort(key=lambda member: _last_written(self.by_id[member[0]]))
        return groups

    def owned_by(self, owners: Collection[Owner]) -> Iterator[tuple[str, PointRecord]]:
        """Its memories with one of these owners, or with an owner that is a list or a dict."""
        if owners or any(p.flags & ODD_OWNER for _, p in self.noted):
            for memory_id, point in self.by_id.items():
                if point.flags & ODD_OWNER or point.owner in owners:
                    yield memory_id, point

    @cached_property
    def by_id(self) -> Mapping[str, PointRecord]:
        """Its memories by id: every point but mem0's own telemetry."""
        rows = self.read.rows
        if set(map(type, rows)) <= {str} and not any(p.flags & TELEMETRY for _, p in self.noted):
            return rows  # type: ignore[return-value]  # as nearly every collection is: no copy
        return {str(i): p for i, p in rows.items() if not p.flags & TELEMETRY}

    @property
    def count(self) -> int:
        """How many memories: points with text (a point without `data` is no memory)."""
        return len(self.read.rows) - sum(1 for _, p in self.noted if p.flags & (TELEMETRY | NO_DATA))


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
    snapshots: Snapshots | None = None
    """What is known of this install's snapshots; None where nobody looked for them."""
    interrupted: Interrupted | None = None
    """A restore of it that was cut off; None where there is none, or nobody looked."""
    left_moves: tuple[LeftMove, ...] = ()
    """Moves of it that were cut off."""
    standing: Comparison | None = None
    """What of the comparison stood at a second look; None where there was none."""
    last_seal: LastSeal | NotChecked = NO_SEAL
    """The seal to compare with, or why there is none."""
    recovered: Mapping[str, str] = field(default_factory=dict)
    """Lost memories that were added back: the new id of each, by its old one."""
    sealed_rows: SealedRows | None = None
    """The log beside the sealed rows, where it was read for a seal."""
    kept: Kept | NotChecked = NO_LEDGER
    """What the ledger knows of the memories, as of the audit before this one; or why nothing is known."""
    texts_looked_at: bool = False
    """Every text was looked at for credentials and orders."""
    in_messages: tuple[MessageSecrets, ...] = ()
    """The credentials in chat messages."""
    vectors_read: bool = True
    """The facts of vectors are those of the points; of a server they are read only where that is asked for."""

    @cached_property
    def comparison(self) -> Comparison | None:
        """Where the two stores disagree; None where one of them could not be read whole."""
        if self.standing is not None:
            return self.standing
        if self.timeline is None or not self.vectors_readable:
            return None
        points = self.memories[0].by_id if len(self.memories) == 1 else None
        if points is None:
            points = {i: p for c in self.memories for i, p in c.by_id.items()}
        both = compare(self.timeline, points, self.elsewhere)
        # the log calls them live for ever: no row says what became of them; and where mem0 was killed between its two
        # writes, no row says that they were added again
        back = {old for old, new in self.recovered.items() if new in self.timeline.memories or new in points}
        return replace(both, lost=tuple(i for i in both.lost if i not in back)) if back else both

    @property
    def sealable(self) -> Iterator[tuple[str, PointRecord]]:
        """The memories that a seal is of: those of the install's collection, and of others that its log knows."""
        known = {} if self.timeline is None else self.timeline.memories
        for home in sorted(self.memories, key=lambda c: c.configured):
            if home.configured or any(i in known for i in home.by_id):
                yield from home.by_id.items()

    @cached_property
    def seal_check(self) -> SealCheck | None:
        """What is not as it was sealed and unexplained; None where there is no seal, or a store was not read whole."""
        whole = self.timeline is not None and self.vectors_readable
        if isinstance(self.last_seal, NotChecked) or self.sealed_rows is None or not whole:
            return None
        return check(self.last_seal, self.sealed_rows, self.sealable, self.agent.mem0_version)

    def state(self) -> State | None:
        """What a seal of this reading holds; None where it was not read for one, or not whole."""
        if self.sealed_rows is None or self.timeline is None or not self.vectors_readable:
            return None
        last = self.sealed_rows.last
        return State(
            rows=bytes(self.sealed_rows.digests),
            memories={i: p.parts for i, p in self.sealable if isinstance(p, SealedPoint)},
            schema=None if self.history is None else self.history.schema,
            mem0=self.agent.mem0_version,
            last_row=None if last is None else str(last[1]),
        )

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
        return None if self.timeline is None else self.timeline.live_count

    @property
    def memory_count(self) -> int | None:
        """Memories of the install's collections as read, None where they could not be read."""
        unread = self.layout is None or self.layout.problem is not None or not self.layout.exists
        if unread or _nothing_read(self.memories):
            return None
        return sum(c.count for c in self.memories)

    @property
    def entity_count(self) -> int | None:
        """Entities as read, None where they could not be read."""
        if self.layout is None or self.layout.problem is not None or _nothing_read(self.entities):
            return None
        return sum(len(e.read.rows) for e in self.entities)

    @property
    def history_path(self) -> str:
        """The history file."""
        return self.install.history.value

    @property
    def vectors_path(self) -> str | None:
        """The embedded folder, or the server's address."""
        store = self.install.vectors or self.install.server_url
        return None if store is None else store.value

    @property
    def on_server(self) -> bool:
        """The vector store is a Qdrant server, and no folder."""
        return self.install.vectors is None and self.install.server_url is not None


def _last_written(point: PointRecord) -> float:
    at = instant(point.updated_at)
    return at if at is not None else instant(point.created_at) or 0.0


def _nothing_read(collections: Sequence[Memories | Entities]) -> bool:
    """None of them gave a point, and one could not be read: then 0 would be no number that was read."""
    return not any(c.read.rows for c in collections) and any(c.read.file.problem for c in collections)
