"""Groups C, T and S: what is stored, what has expired, what is kept of the deleted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import wraps
from urllib.parse import unquote

from mem0audit.core.model import NotChecked, Severity
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


def _only_where_looked(judge: RuleFunction) -> RuleFunction:
    """A rule about wording, which says so itself where no text was looked at."""

    @wraps(judge)
    def rule(r: Reading) -> Iterable[Verdict]:
        if r.texts_looked_at:
            return judge(r)
        return [
            NotChecked(
                judge.__doc__.partition(":")[0] if judge.__doc__ else "",
                "texts were not looked at",
                gap=False,
            )
        ]

    return rule


@_only_where_looked
def secret_in_store(r: Reading) -> Iterable[Verdict]:
    """S801: a credential in a memory, an entity, a history row or a message."""
    rows = {} if r.timeline is None else dict(r.timeline.secrets)
    for home in r.memories:
        for memory_id, point in home.signed:
            for secret in point.signs.secrets if point.signs else ():
                logged = rows.pop((memory_id, secret), 0)
                yield finding(
                    "S801",
                    {
                        "credential": f"{secret.kind} {secret.masked}",
                        "in": "the memory"
                        + (f", {logged} history row{'s' * (logged != 1)}" if logged else ""),
                        "owner": shown_owner(point.owner),
                        "point row": point.rowid,
                    },
                    memory_id=memory_id,
                    path=home.info.path,
                    subject=home.info.name,
                )
    for (memory_id, secret), count in rows.items():
        yield finding(
            "S801",
            {
                "credential": f"{secret.kind} {secret.masked}",
                "in": f"{count} history row{'s' * (count != 1)}",
            },
            memory_id=memory_id,
            path=r.history_path,
            subject="history",
        )
    for of in r.entities:
        for entity_id, entity in of.read.rows.items():
            for secret in entity.secrets:
                yield finding(
                    "S801",
                    {
                        "credential": f"{secret.kind} {secret.masked}",
                        "in": "an entity",
                        "entity": str(entity_id),
                        "owner": shown_owner(entity.owner),
                    },
                    path=of.info.path,
                    subject=of.info.name,
                )
    for message in r.in_messages:
        yield finding(
            "S801",
            {
                "credential": f"{message.secret.kind} {message.secret.masked}",
                "in": f"{message.count} chat message{'s' * (message.count != 1)}",
            },
            path=r.history_path,
            subject=f"messages of {message.scope}",
        )


@_only_where_looked
def not_from_user(r: Reading) -> Iterable[Verdict]:
    """S802: an assistant's or a tool's word, not the user's: one finding a collection, and a high one for each that
    reads as an order besides."""
    for home in r.memories:
        said: Counter[str] = Counter()
        for memory_id, point in home.signed:
            if point.signs is None or point.signs.said_by is None:
                continue
            if point.signs.order is None:
                said[point.signs.said_by] += 1
                continue
            yield finding(
                "S802",
                {
                    "said by": point.signs.said_by,
                    "text": point.signs.order,
                    "owner": shown_owner(point.owner),
                    "point row": point.rowid,
                },
                memory_id=memory_id,
                path=home.info.path,
                subject=home.info.name,
                severity=Severity.HIGH,
            )
        if said:
            yield finding(
                "S802",
                {
                    "memories": said.total(),
                    "said by": ", ".join(f"{who} ({count})" for who, count in said.most_common(5)),
                },
                path=home.info.path,
                subject=home.info.name,
            )


@_only_where_looked
def instruction_like(r: Reading) -> Iterable[Verdict]:
    """S803: it reads as a standing order to the agent."""
    for home in r.memories:
        for memory_id, point in home.signed:
            if point.signs is not None and point.signs.order is not None:
                yield finding(
                    "S803",
                    {"text": point.signs.order, "owner": shown_owner(point.owner), "point row": point.rowid},
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
    "S801": secret_in_store,
    "S802": not_from_user,
    "S803": instruction_like,
    "S804": deleted_text_kept,
    "S805": telemetry_store,
}
