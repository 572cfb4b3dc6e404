"""Memories that were added since a time, and where they came from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from mem0audit.core.asof import When
from mem0audit.core.model import Install, NotChecked
from mem0audit.core.points import Owner, clipped

LONGEST: Final = 200
"""Characters of a source or a name that are shown."""

Known = Literal["source", "payload", "unknown"]


@dataclass(frozen=True)
class Added:
    """One memory that was added. `added` is when, as far as the log knows; None where it has no row of it, and then
    `created_at` (seconds since 1970) is what the memory itself says.

    `source` is what the ledger has; `role`, `actor_id` and `attributed_to` are what mem0 keeps with the memory of who
    said it. `sure` is False where it may have been added before.
    """

    memory_id: str
    owner: Owner
    added: When | None
    created_at: float | None
    text: str | None
    source: str | None = None
    role: str | None = None
    actor_id: str | None = None
    attributed_to: str | None = None
    sure: bool = True

    @property
    def known_by(self) -> Known:
        """What says where it came from."""
        if self.source is not None:
            return "source"
        return "payload" if self.role or self.actor_id or self.attributed_to else "unknown"

    @property
    def provenance(self) -> str:
        """Where it came from, for people."""
        if self.source is not None:
            return f"from {clipped(self.source, LONGEST)}"
        said = " ".join(clipped(one, LONGEST) for one in (self.role, self.actor_id) if one)
        parts = [f"said by {said}"] if said else []
        parts += [f"attributed to {clipped(self.attributed_to, LONGEST)}"] if self.attributed_to else []
        return ", ".join(parts) or "unknown"


@dataclass(frozen=True)
class New:
    """The memories that were added since a time (seconds since 1970) and are there still, in that order.

    `deleted` were added since and deleted again, `gone` are missing from the store without a row that says so. None
    where the store could not be read.
    """

    install: Install
    since: float
    until: float
    memories: tuple[Added, ...]
    deleted: int
    gone: int
    not_read: tuple[NotChecked, ...] = ()

    @property
    def unknown(self) -> int:
        """How many of them nothing says the origin of."""
        return sum(1 for one in self.memories if one.known_by == "unknown")


def named(payload: Mapping[str, Any], key: str) -> str | None:
    """A value of a payload that names somebody; None where it is no text."""
    value = payload.get(key)
    return value if isinstance(value, str) and value.strip() else None
