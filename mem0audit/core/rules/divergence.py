"""Group D: the two stores disagree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import wraps

from mem0audit.core import versions
from mem0audit.core.model import Finding, NotChecked
from mem0audit.core.points import (
    CAMEL,
    LEMMATIZED,
    NO_DATA,
    ODD_OWNER,
    OWNER_KEYS,
    STALE_HASH,
    TELEMETRY,
    Owner,
    shown_owner,
)
from mem0audit.core.reading import Memories, Reading
from mem0audit.core.reconcile import Comparison
from mem0audit.core.rules.verdict import RuleFunction, Verdict, beside_the_seal, finding
from mem0audit.core.seal import PointDifference, SealCheck
from mem0audit.core.timeline import ADD, Timeline
from mem0audit.core.times import instant, shown

MANY_LOST = 10
"""From this many lost memories on, one loss is likelier than as many interrupted writes."""
OWNER_WITNESSES = 2
"""So many entities must name another owner than a memory's before the memory is said to have moved."""


_Judge = Callable[[Reading, Comparison, Timeline], Iterable[Verdict]]


def _side_by_side(code: str) -> Callable[[_Judge], RuleFunction]:
    """A rule that needs both stores whole; where one of them could not be read it says so itself."""

    def rule_of(judge: _Judge) -> RuleFunction:
        @wraps(judge)
        def rule(r: Reading) -> Iterable[Verdict]:
            if r.comparison is not None and r.timeline is not None:
                return judge(r, r.comparison, r.timeline)
            if r.install.vectors is None and not r.on_server:
                return [NotChecked(code, "the vector store is no Qdrant", gap=False)]
            missing = "the log" if not r.history_readable else "the vector store"
            return [NotChecked(code, f"{missing} could not be read whole")]

        return rule

    return rule_of


def _where(r: Reading) -> dict[str, Memories]:
    """The collection each memory was read from, for findings that name its file."""
    return {i: c for c in r.memories for i in c.by_id}


def _with_homes(r: Reading, ids: tuple[str, ...]) -> Iterator[tuple[str, Memories]]:
    if ids:
        homes = _where(r)
        for memory_id in ids:
            yield memory_id, homes[memory_id]


@_side_by_side("D301")
def resurrected_memory(r: Reading, both: Comparison, timeline: Timeline) -> Iterable[Verdict]:
    """D301: deleted by the log, and still stored."""
    for memory_id, home in _with_homes(r, both.resurrected):
        log, point = timeline.memories[memory_id], both.points[memory_id]
        yield finding(
            "D301",
            {
                "owner": shown_owner(point.owner),
                "deleted": log.updated_at,
                "log row": log.top,
                "stored since": point.updated_at or point.created_at,
                "point row": point.rowid,
            },
            memory_id=memory_id,
            path=home.info.path,
            subject=home.info.name,
        )


@_side_by_side("D302")
def lost_memory(r: Reading, both: Comparison, timeline: Timeline) -> Iterable[Verdict]:
    """D302: live by the log, and in no store that was found."""
    many = len(both.lost) >= MANY_LOST
    may_be_phantom = versions.phantom_add(r.agent.mem0_version) is not False
    path = r.configured.info.path if r.configured is not None else r.vectors_path
    for memory_id in both.lost:
        log = timeline.memories[memory_id]
        if many:
            favours = f"a loss: {len(both.lost):,} are missing together"
        elif log.last == ADD and log.rows == 1 and may_be_phantom:
            favours = "a loss, an add that was never stored (mem0 2.0.0 to 2.2.0), or an unlogged delete"
        else:
            favours = "a loss, or a delete cut short before its log row"
        yield finding(
            "D302",
            {
                "last event": log.last,
                "log row": log.top,
                "logged": log.updated_at or log.created_at,
                "in the vector store": "not there",
                "looks like": favours,
            },
            memory_id=memory_id,
            path=path,
        )


@_side_by_side("D303")
def unlogged_memory(r: Reading, both: Comparison, timeline: Timeline) -> Iterable[Verdict]:
    """D303: stored, and unknown to the log."""
    stranded = {i: t.name for t in (r.history.stranded if r.history else ()) for i in t.memory_ids}
    for memory_id, home in _with_homes(r, both.unlogged):
        if not _expected_in_log(r, home):
            continue
        point = both.points[memory_id]
        yield finding(
            "D303",
            {
                "owner": shown_owner(point.owner),
                "stored": point.updated_at or point.created_at,
                "point row": point.rowid,
                "in the log": f"in {stranded[memory_id]} only" if memory_id in stranded else "no row",
            },
            memory_id=memory_id,
            path=home.info.path,
            subject=home.info.name,
        )


def _expected_in_log(r: Reading, home: Memories) -> bool:
    """Whether this collection's memories belong to this log: the configured one, or one it knows."""
    if home.configured:
        return True
    assert r.timeline is not None
    return any(i in r.timeline.memories for i in home.by_id)


@_side_by_side("D304")
def text_differs(r: Reading, both: Comparison, timeline: Timeline) -> Iterable[Verdict]:
    """D304: the last logged text is not the stored one."""
    for memory_id, home in _with_homes(r, both.differing):
        log, point = timeline.memories[memory_id], both.points[memory_id]
        stored_at = point.updated_at or point.created_at
        logged_at = log.updated_at or log.created_at
        yield finding(
            "D304",
            {
                "owner": shown_owner(point.owner),
                "logged": logged_at,
                "log row": log.top,
                "stored": stored_at,
                "point row": point.rowid,
                "newer": _newer(stored_at, logged_at),
            },
            memory_id=memory_id,
            path=home.info.path,
            subject=home.info.name,
        )


def _newer(stored: object, logged: object) -> str:
    a, b = instant(stored), instant(logged)
    if a is None or b is None:
        return "not known"
    return "the same time" if a == b else "the store" if a > b else "the log"


def stale_hash(r: Reading) -> Iterable[Verdict]:
    """D305: the payload's hash is not the MD5 of its text."""
    for home in r.memories:
        for memory_id, point in home.noted:
            if point.flags & STALE_HASH:
                yield finding(
                    "D305",
                    {"owner": shown_owner(point.owner), "point row": point.rowid},
                    memory_id=memory_id,
                    path=home.info.path,
                    subject=home.info.name,
                )


@_side_by_side("D306")
def time_differs(r: Reading, both: Comparison, timeline: Timeline) -> Iterable[Verdict]:
    """D306: created_at or updated_at disagree as instants."""
    differing = frozenset(both.differing)
    for difference in both.times:
        memory_id = difference.memory_id
        point = both.points[memory_id]
        if difference.what == "updated":
            if memory_id in differing:
                continue  # D304 says it already, with both times
            # mem0 1.0.9 to 1.0.11 move updated_at on a NONE event, without a row. Only a point that 2.x
            # wrote last (it has text_lemmatized) cannot come from there.
            if difference.seconds > 0 and not point.flags & LEMMATIZED:
                continue
        yield finding(
            "D306",
            {
                "which": f"{difference.what}_at",
                "stored": difference.point,
                "logged": difference.log,
                "point row": point.rowid,
                "log row": timeline.memories[memory_id].top,
            },
            memory_id=memory_id,
            path=r.configured.info.path if r.configured is not None else r.vectors_path,
        )


def owners_differ(a: Owner, b: Owner) -> str | None:
    """The first scope key that both owners name with different values, None if there is none.

    mem0 itself links a memory of `bob` to an entity of `bob` + `agent7`: a key that one side lacks is
    no difference.
    """
    for key, one, other in zip(OWNER_KEYS, a, b, strict=True):
        if one is not None and other is not None and one != other:
            return key
    return None


def moved_memories(r: Reading) -> dict[str, tuple[str, int]]:
    """Memories whose entities all name another owner: id -> (scope key, how many entities say so)."""
    against: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    key_of: dict[str, str] = {}
    for entities in r.entities:
        home = next((c for c in r.memories if c.info.name == entities.of), None)
        if home is None:
            continue
        rows = home.read.rows
        for entity in entities.read.rows.values():
            for link in entity.links:
                point = rows.get(link)
                if point is None:
                    continue
                total[link] += 1
                key = owners_differ(entity.owner, point.owner)
                if key is not None:
                    against[link] += 1
                    key_of[link] = key
    return {
        link: (key_of[link], count)
        for link, count in against.items()
        if count == total[link] and count >= OWNER_WITNESSES
    }


def owner_differs(r: Reading) -> Iterable[Verdict]:
    """D307: a memory's payload names another owner than the entities made from it."""
    moved = moved_memories(r)
    for home in r.memories:
        rows = home.read.rows
        for memory_id, (key, count) in moved.items():
            point = rows.get(memory_id)
            if point is not None:
                yield finding(
                    "D307",
                    {
                        "stored owner": shown_owner(point.owner),
                        "differs in": key,
                        "entities that say otherwise": count,
                        "point row": point.rowid,
                    },
                    memory_id=memory_id,
                    path=home.info.path,
                    subject=home.info.name,
                )


def unreachable_owner(r: Reading) -> Iterable[Verdict]:
    """D308: an owner id that the agent's mem0 cannot match."""
    mem0 = r.agent.mem0_version
    if mem0 is None:
        yield NotChecked("D308", f"the agent's versions are not known: {r.agent.source}", gap=False)
        return
    for home in r.memories:
        beyond = {o for o in home.owners if any(_beyond(mem0, value) for value in o)}
        for memory_id, point in home.owned_by(beyond):
            for key, value in zip(OWNER_KEYS, point.owner, strict=True):
                if not _beyond(mem0, value):
                    continue
                yield finding(
                    "D308",
                    {key: repr(value), "why": _unreachable(value), "mem0": mem0, "point row": point.rowid},
                    memory_id=memory_id,
                    path=home.info.path,
                    subject=home.info.name,
                )


def _beyond(mem0: str, value: object) -> bool:
    return value is not None and versions.reaches_owner(mem0, value) is False


def _unreachable(value: object) -> str:
    if not isinstance(value, str):
        return "not text"
    if not value.strip():
        return "blank"
    return "spaces at an end" if value != value.strip() else "a space inside"


def no_owner(r: Reading) -> Iterable[Verdict]:
    """D309: a memory without any scope id."""
    for home in r.memories:
        nobody = {o for o in home.owners if not any(v is not None and v != "" for v in o)}
        for memory_id, point in home.owned_by(nobody):
            if point.flags & (CAMEL | NO_DATA | TELEMETRY | ODD_OWNER):
                continue
            yield finding(
                "D309",
                {"stored": point.updated_at or point.created_at, "point row": point.rowid},
                memory_id=memory_id,
                path=home.info.path,
                subject=home.info.name,
            )


MANY_CHANGED = 50
"""From this many on, memories that differ from the seal in the same way are one finding with their number."""

_SINCE_THE_SEAL = {
    "changed": "changed, and no row explains it",
    "planted": "added, and no ADD row",
    "removed": "gone, and no DELETE row",
}


@beside_the_seal("D310")
def changed_outside_mem0(r: Reading, check: SealCheck) -> Iterable[Verdict]:
    """D310: not as it was sealed, and no history row since explains it."""
    if check.rolled_back:
        return  # D311 says it
    path = r.configured.info.path if r.configured is not None else r.vectors_path
    alike: dict[tuple[str, tuple[str, ...]], list[PointDifference]] = defaultdict(list)
    for point in check.points:
        alike[(point.what, point.parts)].append(point)
    for (what, parts), points in alike.items():
        evidence = {"sealed": shown(check.seal.at), "since then": _SINCE_THE_SEAL[what]}
        if parts:
            evidence["differs in"] = ", ".join(parts)
        if len(points) >= MANY_CHANGED:
            evidence = {"memories": f"{len(points):,}", **evidence, "one of them": points[0].memory_id}
            yield finding("D310", evidence, path=path, subject=" ".join((what, *parts)))
            continue
        for point in points:
            yield finding(
                "D310",
                {**evidence, "point row": point.rowid},
                memory_id=point.memory_id,
                path=path,
                subject=what,
            )


@beside_the_seal("D311")
def rolled_back(r: Reading, check: SealCheck) -> Iterable[Verdict]:
    """D311: both stores are older than the last seal."""
    if check.rolled_back:
        yield finding(
            "D311",
            {
                "sealed": shown(check.seal.at),
                "sealed rows that are gone": check.rows_gone,
                "the log ends after sealed row": (check.first_gone or 1) - 1,
                "memories that are not as sealed": len(check.points),
            },
            path=r.vectors_path,
        )


RULES: dict[str, RuleFunction] = {
    "D301": resurrected_memory,
    "D302": lost_memory,
    "D303": unlogged_memory,
    "D304": text_differs,
    "D305": stale_hash,
    "D306": time_differs,
    "D307": owner_differs,
    "D308": unreachable_owner,
    "D309": no_owner,
    "D310": changed_outside_mem0,
    "D311": rolled_back,
}

PASSING = ("D", "E")
"""Groups whose findings an agent that writes meanwhile can make appear and disappear."""


def standing_key(found: Finding) -> tuple[object, ...]:
    """What must be the same at a second look for a finding to stand: the fault, and the rows it is in."""
    return (
        found.code,
        found.memory_id,
        found.subject,
        found.evidence.get("point row"),
        found.evidence.get("log row"),
        found.evidence.get("which"),
    )
