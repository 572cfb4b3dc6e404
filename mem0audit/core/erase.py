"""What a deletion is: whose memories, what it removes and what it does not reach, and what is kept while it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from mem0audit.core.errors import UsageProblem
from mem0audit.core.model import Install, NotChecked, PointId
from mem0audit.core.points import OWNER_KEYS, Owner, shown_owner

FORMAT: Final = 1


@dataclass(frozen=True)
class Scope:
    """Whose memories: a user, an agent, a run, or several together, which a memory must all have, as in mem0."""

    user: str | None = None
    agent: str | None = None
    run: str | None = None

    @property
    def owner(self) -> Owner:
        """The three as a tuple."""
        return (self.user, self.agent, self.run)

    @property
    def named(self) -> tuple[tuple[str, str], ...]:
        """What is named, as (`user_id`, value) and so on."""
        return tuple((k, v) for k, v in zip(OWNER_KEYS, self.owner, strict=True) if v is not None)

    @property
    def words(self) -> tuple[str, ...]:
        """The flags that name it: `--user alice`."""
        return tuple(word for key, value in self.named for word in (f"--{key[:-3]}", value))

    @property
    def shown(self) -> str:
        """For people: `user alice, agent a7`."""
        return shown_owner(self.owner)

    def covers(self, owner: Owner) -> bool:
        """Whether a memory of this owner is in the scope.

        As mem0's filter has it: each named id must match, a list by any of its members. Spaces around an id are
        nothing, and a whole number is its text: mem0 2.x trims and turns into text what it is asked for, so that it
        never reaches what mem0 1.x stored otherwise.
        """
        return all(
            _matches(mine, wanted)
            for mine, wanted in zip(owner, self.owner, strict=True)
            if wanted is not None
        )

    def as_asked(self, owner: Owner) -> bool:
        """Whether the ids are stored just as they are named."""
        return all(
            mine == wanted for mine, wanted in zip(owner, self.owner, strict=True) if wanted is not None
        )

    def covers_messages(self, session: str) -> bool:
        """Whether a session scope of the `messages` table is in the scope: `agent_id=…&run_id=…&user_id=…`, with
        `%`, `&` and `=` in a value escaped since mem0 2.0.18."""
        return all(
            any(re.search(_part(key, spelled), session) for spelled in {value, _escaped(value)})
            for key, value in self.named
        )


def _matches(stored: Any, wanted: str) -> bool:
    if isinstance(stored, (list, tuple)):
        return any(_matches(one, wanted) for one in stored)
    if isinstance(stored, bool) or not isinstance(stored, (str, int)):
        return False
    if isinstance(stored, int) and stored.bit_length() > 128:
        return False
    return str(stored).strip() == wanted.strip()


def _escaped(value: str) -> str:
    return value.replace("%", "%25").replace("&", "%26").replace("=", "%3D")


def _part(key: str, value: str) -> str:
    return rf"(?:^|&){key}=\s*{re.escape(value.strip())}\s*(?=$|&(?:agent_id|run_id|user_id)=)"


def scope_of(user: str | None, agent: str | None, run: str | None) -> Scope | None:
    """What was asked for; None where nothing was. Raises UsageProblem for `*` and for what is empty or blank."""
    for flag, value in (("--user", user), ("--agent", agent), ("--run", run)):
        if value is None:
            continue
        if not value.strip():
            raise UsageProblem(f"{flag}: is empty")
        if value.strip() == "*":
            raise UsageProblem(f"{flag} *: is everybody to mem0 1.0.8 to 2.2.1, and is not deleted so")
    return Scope(user, agent, run) if (user, agent, run) != (None, None, None) else None


@dataclass(frozen=True)
class Left:
    """What can still be read of a scope, in counts: history rows that have text and messages; None: not read."""

    history_rows: int | None
    messages: int | None


@dataclass(frozen=True)
class HeldBy:
    """A snapshot or another store that has memories of the scope too, and how many; None where it could not be read.

    `is_here`: in other collections of the very folder."""

    path: str
    memories: int | None
    is_here: bool = False


@dataclass(frozen=True)
class ErasePlan:
    """What a deletion would do. `ids` are the memories to delete, as Qdrant names them; `ever` are all that the scope
    is known to have had. `entities` maps each entity that loses links to the memories that it loses, and
    `entities_deleted` are those that link nothing else."""

    install: Install
    scope: Scope | None
    ids: tuple[PointId, ...]
    ever: frozenset[str]
    entities: Mapping[PointId, tuple[str, ...]]
    entities_deleted: frozenset[PointId]
    left: Left
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
    unseen: str | None = None


@dataclass(frozen=True)
class Intent:
    """What is on the disk before the first deletion, until the last step: what a run that was cut off had begun.

    `at` is when it began (seconds since 1970); `salt` is that of its record of erasure. `entities` are those that
    it was to take links from, and how many.
    """

    at: float
    salt: str
    scope: Scope | None
    ids: tuple[PointId, ...]
    ever: tuple[str, ...]
    entities: Mapping[str, int] = field(default_factory=dict)
    before: Left = field(default_factory=lambda: Left(None, None))


@dataclass(frozen=True)
class Erased:
    """What a deletion did. `memories` and `entities` are gone, `links` were taken from entities that stay.

    `not_logged` are memories whose deletion mem0 was killed before it could log it: no call of it can do that later.
    `left` is what mem0's API leaves readable; `overwritten` whether what was deleted was overwritten in the files.
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
        found = Intent(
            at, str(raw["salt"]), scope, tuple(raw["ids"]), tuple(raw["ever"]), entities, Left(rows, messages)
        )
    except (KeyError, TypeError) as error:
        raise ValueError("no intent") from error
    if not isfinite(at) or not all(type(i) in (int, str) for i in (*found.ids, *found.ever)):
        raise ValueError("no intent")
    return found
