"""What a deletion is: whose memories, what it removes and what it does not reach, and what is kept while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from mem0audit.core.model import Install, NotChecked, PointId
from mem0audit.core.points import Owner
from mem0audit.core.residue import Residue, Rows
from mem0audit.core.scopes import Scope

FORMAT: Final = 1


@dataclass(frozen=True)
class Left:
    """What can still be read of a scope, in counts: history rows that have text and messages; None: not read."""

    history_rows: int | None
    messages: int | None


@dataclass(frozen=True)
class HeldBy:
    """A snapshot or another store that has memories of the scope too, and how many; None where it could not be read.

    `is_here`: in other collections of the very folder. `of_server`: a snapshot with the files of a server, which only a
    server reads."""

    path: str
    memories: int | None
    is_here: bool = False
    of_server: bool = False


@dataclass(frozen=True)
class Emptying:
    """What a redaction empties, in rows: of the log (of tables that a migration left too), and of the messages.

    `unattributed` are (rows, memories) of the log that nobody can be found for: their text stays.
    """

    history: int
    messages: int
    unattributed: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class PlaceCount:
    """A place that is read as rows, by its `kind` and `name` as in a residue report, and how many rows of it hold
    something of theirs; None where it could not be read."""

    kind: str
    name: str
    count: int | None


def counted(rows: Iterable[Rows]) -> tuple[PlaceCount, ...]:
    """The places of a residue report."""
    return tuple(PlaceCount(one.kind, one.name, one.count) for one in rows)


@dataclass(frozen=True)
class ErasePlan:
    """What a deletion would do.

    `ids` are the memories to delete, as Qdrant names them, `owners` whose each is; `ever` are all that the scope is
    known to have had. `entities` maps each entity that loses links to the memories that it loses, and
    `entities_deleted` are those that link nothing else.
    """

    install: Install
    scope: Scope | None
    ids: tuple[PointId, ...]
    ever: frozenset[str]
    entities: Mapping[PointId, tuple[str, ...]]
    entities_deleted: frozenset[PointId]
    left: Left
    owners: Mapping[str, Owner]
    mem0: str
    interpreter: str
    how_found: str
    own: bool
    spelled_otherwise: int = 0
    """Of them, stored under another spelling of the id than was asked for."""
    same_text_elsewhere: int = 0
    """Memories of other owners that say the same, spaces and capitals aside."""
    elsewhere: tuple[HeldBy, ...] = ()
    """Other collections of the folder, and other stores of this machine, with memories of the scope."""
    snapshots: tuple[HeldBy, ...] = ()
    not_read: tuple[NotChecked, ...] = ()
    resumed: Intent | None = None
    warnings: tuple[str, ...] = ()
    meanwhile: tuple[str, ...] = ()
    """Who may write while it is done; the result says what came of it."""
    unseen: str | None = None
    places: tuple[PlaceCount, ...] = ()
    """What each place holds now."""
    texts: tuple[str, ...] = field(default=(), repr=False)
    """Every text of theirs that a row holds now; in no report."""
    blank: tuple[int, int] = (0, 0)
    """Rows of the log, and messages, of theirs whose text is empty already."""
    redact: Emptying | None = None
    """What is emptied after the deletion, where that is asked for."""
    snapshot: ShortLived | None = None
    """The snapshot that is taken first, where one is asked for."""
    facts: int = 0
    """What the ledger was told of them, or is tied to their memories."""

    @property
    def facts_go(self) -> bool:
        """Whether that goes: of a scope. Of single memories only where texts are emptied too: else the history stays
        that `facts` keeps."""
        return self.scope is not None or self.redact is not None


@dataclass(frozen=True)
class ShortLived:
    """A snapshot that is taken before the deletion into `folder` and goes `seconds` later."""

    folder: str
    seconds: float


@dataclass(frozen=True)
class Intent:
    """What is on the disk before the first deletion, until the last step: what a run that was cut off had begun.

    `at` is when it began (seconds since 1970); `salt` is that of its record of erasure. `entities` are those that
    it was to take links from, and how many. `places` and `blank` are as they were before the first deletion; `redact`
    says whether texts are emptied too; `snapshot` is the path of the short-lived one that was taken first.
    """

    at: float
    salt: str
    scope: Scope | None
    ids: tuple[PointId, ...]
    ever: tuple[str, ...]
    entities: Mapping[str, int] = field(default_factory=dict)
    before: Left = field(default_factory=lambda: Left(None, None))
    places: tuple[PlaceCount, ...] = ()
    blank: tuple[int, int] = (0, 0)
    redact: bool = False
    snapshot: str | None = None


@dataclass(frozen=True)
class Erased:
    """What a deletion did. `memories` and `entities` are gone, `links` were taken from entities that stay.

    `not_logged` are memories whose deletion mem0 was killed before it could log it: no call of it can do that later.
    `left` is what mem0's API leaves readable; `overwritten` whether what was deleted was overwritten in the files.
    `emptied` is what was redacted, `after` the report on what is still readable where every byte was searched.
    """

    install: Install
    scope: Scope | None
    at: float
    salt: str
    ids: tuple[str, ...]
    memories: int
    entities: int
    links: int
    not_logged: int
    before: Left
    left: Left
    mem0: str
    client: str
    python: str
    overwritten: bool
    resumed: bool
    ledger: str
    snapshots: tuple[HeldBy, ...] = ()
    recorded: tuple[str, ...] = ()
    """The files that hold the record of it, beside snapshots."""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    emptied: Emptied | None = None
    places: tuple[tuple[PlaceCount, int | None], ...] = ()
    """What each place held before, and holds now."""
    after: Residue | None = None
    not_known: int = 0
    """Texts that a run before this one made unreadable: nobody knows them any more, to search for them."""
    snapshot: str | None = None
    """The short-lived snapshot that was taken first."""
    facts: int = 0
    """What the ledger was told of them and has no more."""

    @property
    def erased(self) -> bool | None:
        """Whether every byte was searched for every text and none was found; None where it was not searched."""
        if self.after is None:
            return None
        return not (self.after.remains or self.after.incomplete or self.not_known)


@dataclass(frozen=True)
class Emptied:
    """What a redaction emptied, in rows, and how many files were rebuilt after it. `seal` is why the next audit will
    call it unexplained, None where it will not."""

    history: int
    messages: int
    unattributed: tuple[int, int]
    files: int
    seal: str | None = None


def before_and_after(
    before: Sequence[PlaceCount], after: Sequence[PlaceCount]
) -> tuple[tuple[PlaceCount, int | None], ...]:
    """Each place of either with both counts: one that is in one of them alone held, or holds, nothing."""
    was = {(one.kind, one.name): one.count for one in before}
    now = {(one.kind, one.name): one.count for one in after}
    return tuple((PlaceCount(*key, was.get(key, 0)), now.get(key, 0)) for key in {**was, **now})


# --- The intent as text ------------------------------------------------------------------------------


def intent_text(intent: Intent) -> str:
    """The intent as JSON; ASCII."""
    return json.dumps(
        {
            "format": FORMAT,
            "at": intent.at,
            "salt": intent.salt,
            "scope": None if intent.scope is None else list(intent.scope.owner),
            "ids": list(intent.ids),
            "ever": list(intent.ever),
            "entities": [[one, links] for one, links in intent.entities.items()],
            "before": [intent.before.history_rows, intent.before.messages],
            "places": [[one.kind, one.name, one.count] for one in intent.places],
            "blank": list(intent.blank),
            "redact": intent.redact,
            "snapshot": intent.snapshot,
        },
        ensure_ascii=True,
    )


def parse_intent(text: str) -> Intent:
    """An intent that was read back. Raises ValueError where it is none of this version's."""
    raw = json.loads(text)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise ValueError("no intent of this version")
    try:
        at = float(raw["at"])
        scope = None if raw["scope"] is None else Scope(*raw["scope"])
        entities = {str(one): int(links) for one, links in raw["entities"]}
        rows, messages = raw["before"]
        blank_rows, blank_messages = raw["blank"]
        found = Intent(
            at,
            str(raw["salt"]),
            scope,
            tuple(raw["ids"]),
            tuple(raw["ever"]),
            entities,
            Left(rows, messages),
            tuple(PlaceCount(str(kind), str(name), count) for kind, name, count in raw["places"]),
            (int(blank_rows), int(blank_messages)),
            raw["redact"] is True,
            None if raw["snapshot"] is None else str(raw["snapshot"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError("no intent") from error
    if not isfinite(at) or not all(type(i) in (int, str) for i in (*found.ids, *found.ever)):
        raise ValueError("no intent")
    return found
