"""Groups C, T and S: what is stored, what has expired, what is kept of the deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from mem0audit.core.points import CAMEL, NO_DATA, NO_TEXT, TELEMETRY, Owner, shown_owner
from mem0audit.core.prune import hidden_since
from mem0audit.core.reading import Memories, Reading
from mem0audit.core.rules.verdict import RuleFunction, Verdict, finding
from mem0audit.core.timeline import DELETE

REPEATED = 10
"""From this many copies of one text for one user on, it is C604 and no longer C601."""


Copy = tuple[str, Owner, int]
"""Of one of several memories with the same text: its id, its owner, its row."""


def same_text_and_owner(home: Memories) -> Iterator[list[Copy]]:
    """The memories of a collection that say the same for the same owner, a list each, in the order of their rows."""
    for members in home.copies.values():
        if len(members) >= REPEATED:
            continue
        by_owner: dict[str, list[Copy]] = defaultdict(list)
        for member in members:
            by_owner[repr(member[1])].append(member)
        yield from (same for same in by_owner.values() if len(same) > 1)


def duplicate_memory(r: Reading) -> Iterable[Verdict]:
    """C601: same text, same owner, several ids."""
    for home in r.memories:
        for same in same_text_and_owner(home):
            yield finding(
                "C601",
                {
                    "owner": shown_owner(same[0][1]),
                    "copies": len(same),
                    "others": ", ".join(i for i, _, _ in same[1:]),
                },
                memory_id=same[0][0],
                path=home.info.path,
                subject=home.info.name,
            )


def empty_memory(r: Reading) -> Iterable[Verdict]:
    """C602: no text, or a blank one."""
    for home in r.memories:
        for memory_id, point in home.noted:
            if point.flags & NO_TEXT and not point.flags & TELEMETRY:
                yield finding(
                    "C602",
                    {
                        "owner": shown_owner(point.owner),
                        "text": "no data key" if point.flags & NO_DATA else "blank",
                        "point row": point.rowid,
                    },
                    memory_id=memory_id,
                    path=home.info.path,
                    subject=home.info.name,
                )


def foreign_payload(r: Reading) -> Iterable[Verdict]:
    """C603: written with another SDK's keys, so that Python's mem0 does not find it."""
    for home in r.memories:
        for memory_id, point in home.noted:
            if point.flags & CAMEL and not any(v is not None for v in point.owner):
                yield finding(
                    "C603",
                    {"keys": "camelCase (userId, createdAt, …)", "point row": point.rowid},
                    memory_id=memory_id,
                    path=home.info.path,
                    subject=home.info.name,
                )


def repeated_text(r: Reading) -> Iterable[Verdict]:
    """C604: one text many times for one user."""
    for home in r.memories:
        for members in home.copies.values():
            if len(members) >= REPEATED:
                first = members[0]
                yield finding(
                    "C604",
                    {"user": shown_owner((first[1][0], None, None)), "copies": len(members)},
                    memory_id=first[0],
                    path=home.info.path,
                    subject=home.info.name,
                )


def expired_memory(r: Reading) -> Iterable[Verdict]:
    """T701: the expiration date has passed, and it is still stored.

    The day counts in UTC, as mem0's own `_payload_is_expired` does (2.0.10 to 2.2.1).
    """
    for home in r.memories:
        for memory_id, point in home.noted:
            since = hidden_since(point.expires) if point.expires else None
            if since is not None and since <= r.now:
                yield finding(
                    "T701",
                    {"owner": shown_owner(point.owner), "expired": point.expires, "point row": point.rowid},
                    memory_id=memory_id,
                    path=home.info.path,
                    subject=home.info.name,
                )


def deleted_text_kept(r: Reading) -> Iterable[Verdict]:
    """S804: the log or the messages still hold text of what was deleted."""
    if r.timeline is None or r.history is None:
        return
    gone = [log for log in r.timeline.memories.values() if log.last == DELETE]
    texts = sum(log.texts_kept for log in gone)
    if texts:
        yield finding(
            "S804",
            {
                "deleted memories": len(gone),
                "texts of theirs in history": texts,
                "owner": "not logged",
            },
            path=r.history_path,
            subject="history",
        )
    if not r.vectors_readable or not gone:
        return
    owners = {v for c in r.memories for owner in c.owners for v in owner if v is not None}
    for scope in r.history.message_scopes:
        named = [unquote(part.partition("=")[2]) for part in scope.scope.split("&") if "=" in part]
        if named and not any(name in owners for name in named):
            yield finding(
                "S804",
                {"messages": scope.count, "memories of this scope": 0},
                path=r.history_path,
                subject=f"messages of {scope.scope}",
            )


def telemetry_store(r: Reading) -> Iterable[Verdict]:
    """S805: mem0's own telemetry, in the folder of the memories."""
    for info in r.telemetry:
        yield finding("S805", {"collection": info.name}, path=info.path, subject=info.name)
    for home in r.memories:
        count = sum(1 for _, p in home.noted if p.flags & TELEMETRY)
        if count:
            yield finding("S805", {"points": count}, path=home.info.path, subject=home.info.name)


RULES: dict[str, RuleFunction] = {
    "C601": duplicate_memory,
    "C602": empty_memory,
    "C603": foreign_payload,
    "C604": repeated_text,
    "T701": expired_memory,
    "S804": deleted_text_kept,
    "S805": telemetry_store,
}
