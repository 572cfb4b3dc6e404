"""Whose memories are meant: a user, an agent, a run, or several together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mem0audit.core.errors import UsageProblem
from mem0audit.core.points import OWNER_KEYS, Owner, owner_id, shown_owner


class Whom(Protocol):
    """Who is meant: a scope that was named, or those that are on record as erased."""

    def covers(self, owner: Owner) -> bool:
        """Whether a memory of this owner is theirs."""

    def covers_messages(self, session: str) -> bool:
        """Whether messages with this session scope are theirs."""


@dataclass(frozen=True)
class Scope:
    """A user, an agent, a run, or several together, which a memory must all have, as in mem0."""

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
    def alone(self) -> str | None:
        """The id of the user, agent or run, where one of them alone is named."""
        return self.named[0][1].strip() if len(self.named) == 1 else None

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
        nothing, and a whole number is its text: mem0 2.x trims and turns into text what it is asked for.
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


_KEY: Final = re.compile(r"(?:^|&)(agent_id|run_id|user_id)=")
_END: Final = re.compile(r"$|&(?=(?:agent_id|run_id|user_id)=)")
_MOST_KEYS: Final = 64
"""mem0 writes three at most; what has more is no session scope of its making."""


def owner_of_session(session: str) -> Owner:
    """Whom a session scope of the `messages` table may be of: for each key every value that it can be read as (one
    before mem0 2.0.18 may hold `&` and `=` unescaped), None where it is not named."""
    found: dict[str, list[str]] = {}
    ends = [end.start() for end in _END.finditer(session)][: _MOST_KEYS + 1]
    for key in list(_KEY.finditer(session))[:_MOST_KEYS]:
        for end in ends:
            if end >= key.end():
                value = session[key.end() : end].strip()
                found.setdefault(key[1], []).extend((value, _unescaped(value)))
    user, agent, run = (found.get(key) for key in OWNER_KEYS)
    return (user, agent, run)


def _unescaped(value: str) -> str:
    return value.replace("%3D", "=").replace("%26", "&").replace("%25", "%")


def _matches(stored: Any, wanted: str) -> bool:
    if isinstance(stored, (list, tuple)):
        return any(_matches(one, wanted) for one in stored)
    return owner_id(stored) == wanted.strip()


def _escaped(value: str) -> str:
    return value.replace("%", "%25").replace("&", "%26").replace("=", "%3D")


def _part(key: str, value: str) -> str:
    return rf"(?:^|&){key}=\s*{re.escape(value.strip())}\s*(?=$|&(?:agent_id|run_id|user_id)=)"


def scope_of(user: str | int | None, agent: str | int | None, run: str | int | None) -> Scope | None:
    """What was asked for; None where nothing was. A whole number means its text, as in mem0. Raises UsageProblem for
    `*`, for what is empty or blank, and for what is no id."""
    ids: list[str | None] = []
    for flag, given in (("--user", user), ("--agent", agent), ("--run", run)):
        value = given if isinstance(given, str) else owner_id(given)
        ids.append(value)
        if given is None:
            continue
        if value is None:
            raise UsageProblem(f"{flag}: is no id")
        if not value.strip():
            raise UsageProblem(f"{flag}: is empty")
        if value.strip() == "*":
            raise UsageProblem(f"{flag} *: is nobody's id")
    return Scope(*ids) if any(value is not None for value in ids) else None
