"""A move of the vectors to a Qdrant server, or from one: its plan, what marks it as begun, and what it says.

The old store stays as it is, so nothing has to be taken back: what was begun is finished by the same command, and until
then the agent's configuration is not changed. The mark says which collections on the server are the move's own, so that
no other's are ever written into.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from mem0audit.core.agentconfig import Advice
from mem0audit.core.model import Agent, Holder, Install
from mem0audit.core.restore import NotAnIntent

FORMAT: Final = 1
KIND: Final = "mem0audit-to-server"
MARK: Final = "begun.json"
STAGING: Final = ".mem0audit-to-server"
"""The folder with the mark lies beside the log, has its name with a dot before it, and ends so."""


def staging_of(history: str) -> str:
    """The folder with the mark, for a log whose links were followed."""
    folder, _, name = history.rpartition("/")
    return f"{folder}/.{name[:200]}{STAGING}"


@dataclass(frozen=True)
class Carried:
    """One collection on its way. `points` is how many there are, `repeats` rows of the same ids that lost against a
    newer one and stay behind."""

    name: str
    dims: int
    distance: str
    keyword_slot: bool
    points: int
    repeats: int = 0
    on_disk: bool = False
    """A server is to leave the vectors on its disk, as `on_disk: true` has mem0 ask for."""


@dataclass(frozen=True)
class Begun:
    """A move that was begun: from which store to which server, and the collections that it made there."""

    started_at: str
    source: str
    url: str
    made: tuple[str, ...]


def begun_text(begun: Begun) -> str:
    """The mark: JSON, ASCII."""
    return json.dumps({"kind": KIND, "format": FORMAT, **asdict(begun)}, indent=1, ensure_ascii=True) + "\n"


def parse_begun(data: bytes) -> Begun:
    """A mark, read strictly. Raises NotAnIntent."""
    try:
        raw = json.loads(data.decode("ascii"))
        if raw.pop("kind") != KIND or raw.pop("format") != FORMAT:
            raise NotAnIntent("is of another version of mem0audit")
        raw["made"] = tuple(raw["made"])
        begun = Begun(**raw)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NotAnIntent("does not read") from None
    if not all(isinstance(one, str) for one in (begun.started_at, begun.source, begun.url, *begun.made)):
        raise NotAnIntent("does not read")
    return begun


@dataclass(frozen=True)
class ToServerPlan:
    """What a move to or from a server would do. `seen` is the install as the agent has it, `url` where the vectors go
    (a server, or an absolute folder), `key_from` what holds its key, `version` the server's. `left` are collections
    that stay behind; `resumed` is when the run that was cut off began."""

    install: Install
    seen: Install
    url: str
    key_from: str | None
    version: str
    collections: tuple[Carried, ...]
    left: tuple[str, ...]
    agent: Agent
    holders: tuple[Holder, ...] = ()
    dies: bool = False
    """A store goes when the agent stops."""
    unseen: str | None = None
    resumed: str | None = None
    warnings: tuple[str, ...] = ()
    ledger: bool = True
    advice: Advice | None = None

    @property
    def to_folder(self) -> bool:
        """The vectors go to a folder."""
        return self.url.startswith("/")

    @property
    def who_else(self) -> str | None:
        """What is said of others who may write to the old store; None for a folder, whose lock is held."""
        if self.seen.vectors is not None:
            return None
        kept = "nothing is put in place" if self.to_folder else "the move does not count"
        return (
            f"Who else writes to {self.source} cannot be seen from here: it is read once more at the end, and {kept} "
            "where that differs."
        )

    @property
    def source(self) -> str:
        """The folder, or the server, that the vectors are in."""
        place = self.seen.vectors or self.seen.server_url
        assert place is not None
        return place.value


@dataclass(frozen=True)
class ToServerDone:
    """What it did. `written` points were written and read back by this run, `found` were there from the one before,
    and the same; both by collection."""

    plan: ToServerPlan
    written: Mapping[str, int] = field(default_factory=dict)
    found: Mapping[str, int] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of each collection a digest over every point's id and payload, as they were read back."""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
