"""Which memories differ between two times: added, changed, removed, per scope. By digests, without their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any, Literal, NamedTuple

from mem0audit.core.model import NotChecked, PointId
from mem0audit.core.points import OWNER_KEYS, Owner, text_digest
from mem0audit.core.snapshot import canonical
from mem0audit.core.times import instant

Key = tuple[str, str]
"""(collection, memory id)."""

NOT_METADATA = frozenset({*OWNER_KEYS, "data", "hash", "text_lemmatized", "created_at", "updated_at"})
"""Payload keys that are the text and what mem0 derives from it, the owner, and when: mem0 1.0.7 to 1.0.11 spell
`created_at` anew at every update, and an update of anything moves `updated_at`."""

What = Literal["text", "owner", "metadata"]


class DiffRecord(NamedTuple):
    """A memory, small: digests of its text and of its other metadata, and its owner."""

    text: bytes | None
    owner: Owner
    metadata: bytes


def record(payload: Mapping[str, Any]) -> DiffRecord | None:
    """A point's payload in, its record out; None for a point that is no memory (without `data`)."""
    if "data" not in payload:
        return None
    data = payload["data"]
    others = {k: v for k, v in payload.items() if k not in NOT_METADATA}
    line = canonical((others, instant(payload.get("created_at"))))
    return DiffRecord(
        text_digest(data if type(data) is str else canonical(data)),
        (payload.get("user_id"), payload.get("agent_id"), payload.get("run_id")),
        md5(line.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest(),
    )


@dataclass(frozen=True)
class Side:
    """One of the two that are compared. `taken_at` (seconds since 1970) is the instant it is of, None where that is
    not known; `pair` whether its halves were taken together; `memories` how many were read."""

    what: Literal["snapshot", "backup", "live"]
    path: str
    taken_at: float | None
    pair: bool
    memories: int
    not_checked: tuple[NotChecked, ...] = ()


@dataclass(frozen=True)
class Change:
    """One memory that differs. `what` says in what, for one that is in both; `was` is the owner it had. Texts are
    None unless asked for (and where there is none)."""

    collection: str
    memory_id: str
    what: tuple[What, ...] = ()
    was: Owner | None = None
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class ScopeDiff:
    """The differences of one owner; a memory that changed its owner stands under the new one."""

    owner: Owner
    added: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()
    removed: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Diff:
    """What is different in `b` from `a`. `unchanged` counts the memories that are equal in both."""

    a: Side
    b: Side
    scopes: tuple[ScopeDiff, ...]
    unchanged: int
    texts: bool = False
    seconds: float = 0.0
    totals: Mapping[str, int] = field(default_factory=dict)

    @property
    def not_checked(self) -> tuple[NotChecked, ...]:
        """What of either side could not be read."""
        return (*self.a.not_checked, *self.b.not_checked)


def compare(
    a: Mapping[Key, DiffRecord], b: Mapping[Key, DiffRecord]
) -> tuple[tuple[ScopeDiff, ...], Counter[str]]:
    """The scopes in which memories differ, those with most differences first, and counts of added, changed, removed
    and unchanged. Linear in the memories of both."""
    found: dict[str, tuple[Owner, list[Change], list[Change], list[Change]]] = {}
    totals: Counter[str] = Counter(added=0, changed=0, removed=0, unchanged=0)

    def of(owner: Owner) -> tuple[Owner, list[Change], list[Change], list[Change]]:
        return found.setdefault(canonical(owner), (owner, [], [], []))

    for (collection, memory_id), now in b.items():
        was = a.get((collection, memory_id))
        if was is None:
            of(now.owner)[1].append(Change(collection, memory_id))
            totals["added"] += 1
        elif was == now:
            totals["unchanged"] += 1
        else:
            what = tuple(_what(was, now))
            of(now.owner)[2].append(
                Change(collection, memory_id, what, was.owner if "owner" in what else None)
            )
            totals["changed"] += 1
    for key, was in a.items():
        if key not in b:
            of(was.owner)[3].append(Change(*key))
            totals["removed"] += 1
    scopes = [ScopeDiff(owner, tuple(x), tuple(y), tuple(z)) for owner, x, y, z in found.values()]
    scopes.sort(key=lambda s: (-len(s.added) - len(s.changed) - len(s.removed), canonical(s.owner)))
    return tuple(scopes), totals


def _what(was: DiffRecord, now: DiffRecord) -> Iterator[What]:
    if was.text != now.text:
        yield "text"
    if was.owner != now.owner:
        yield "owner"
    if was.metadata != now.metadata:
        yield "metadata"


def changes_of(scopes: Sequence[ScopeDiff]) -> Iterator[Change]:
    """Every difference of every scope."""
    for scope in scopes:
        yield from (*scope.added, *scope.changed, *scope.removed)


def key_of(collection: str, point_id: PointId) -> Key:
    """How a point is told apart from every other of a store."""
    return collection, str(point_id)
