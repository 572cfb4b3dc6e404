"""What is done to a stopped install beside mem0's API: free pages overwritten, and texts emptied that it leaves."""

from __future__ import annotations

from dataclasses import dataclass

from mem0audit.core.model import Install
from mem0audit.core.residue import Residue
from mem0audit.core.scopes import Scope


@dataclass(frozen=True)
class Database:
    """A database file of an install. `free_pages` hold what was deleted, `filled` of them still bytes."""

    path: str
    size_bytes: int
    free_pages: int
    filled: int


@dataclass(frozen=True)
class ClearPlan:
    """What `residue --clear-free-pages` would rebuild. `unseen` is why not all processes could be seen."""

    install: Install
    databases: tuple[Database, ...]
    unseen: str | None = None


@dataclass(frozen=True)
class Cleared:
    """What was rebuilt, each as it was and its size now."""

    databases: tuple[tuple[Database, int], ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class RedactPlan:
    """What a redaction would empty: texts of `ids`, and of the scope's messages. `before` is what can be read now."""

    install: Install
    scope: Scope | None
    ids: frozenset[str]
    texts: tuple[str, ...]
    history: int
    stranded: int
    messages: int
    unattributed: tuple[int, int]
    clearing: ClearPlan


@dataclass(frozen=True)
class Redacted:
    """What was emptied, in rows; what was rebuilt; and what can be read now. `seal` is why the next audit will call it
    unexplained, None where it will not."""

    history: int
    stranded: int
    messages: int
    memories: int
    unattributed: tuple[int, int]
    cleared: Cleared
    after: Residue
    seal: str | None = None
