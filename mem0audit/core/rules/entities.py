"""Group E: entities, and the memories they link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mem0audit.core.model import NotChecked
from mem0audit.core.points import EntityRecord, shown_owner
from mem0audit.core.reading import Entities, Reading
from mem0audit.core.rules.divergence import moved_memories, owners_differ
from mem0audit.core.rules.verdict import RuleFunction, Verdict, finding
from mem0audit.core.timeline import DELETE
from mem0audit.core.times import instant

SETTLE_S = 60.0
"""Entities trail their memories by the embedder's latency: a link is dead only when this old."""
SCOPE_LIMIT = 10_000
"""mem0 reads at most so many entities of a scope when it cleans up after a deletion (2.0 to 2.2.1)."""


def _dead_links(
    r: Reading, code: str
) -> Iterator[tuple[Entities, str, EntityRecord, list[str]] | NotChecked]:
    """Every entity with links of which some are dead, and those links."""
    if not r.entities:
        return
    if not r.vectors_readable:
        yield NotChecked(code, "the memories' collection could not be read whole")
        return
    ids = {i for c in r.memories for i in c.by_id}
    for entities in r.entities:
        for entity_id, entity in entities.read.rows.items():
            dead = [i for i in entity.links if i not in ids and not _in_flight(r, i)]
            if dead or not entity.links:
                yield entities, str(entity_id), entity, dead


def _in_flight(r: Reading, memory_id: str) -> bool:
    """Deleted so recently that mem0 may still be cleaning up, or not yet logged at all."""
    log = r.timeline.memories.get(memory_id) if r.timeline is not None else None
    if log is None or log.last != DELETE:
        return False
    when = instant(log.updated_at)
    return when is not None and r.now - when < SETTLE_S


def orphan_entity(r: Reading) -> Iterable[Verdict]:
    """E501: every memory that the entity links is gone."""
    for found in _dead_links(r, "E501"):
        if isinstance(found, NotChecked):
            yield found
            continue
        entities, entity_id, entity, dead = found
        if len(dead) == len(entity.links):
            yield finding(
                "E501",
                {"owner": shown_owner(entity.owner), "links, all dead": len(dead), "point row": entity.rowid},
                memory_id=entity_id,
                path=entities.info.path,
                subject=entities.info.name,
            )


def dangling_link(r: Reading) -> Iterable[Verdict]:
    """E502: some of the memories that the entity links are gone."""
    for found in _dead_links(r, "E502"):
        if isinstance(found, NotChecked):
            yield found
            continue
        entities, entity_id, entity, dead = found
        if len(dead) < len(entity.links):
            yield finding(
                "E502",
                {
                    "owner": shown_owner(entity.owner),
                    "dead links": len(dead),
                    "of": len(entity.links),
                    "first dead": dead[0],
                    "point row": entity.rowid,
                },
                memory_id=entity_id,
                path=entities.info.path,
                subject=entities.info.name,
            )


def foreign_link(r: Reading) -> Iterable[Verdict]:
    """E503: the entity links a memory of another owner (D307 where the memory moved)."""
    moved = moved_memories(r)
    for entities in r.entities:
        home = next((c for c in r.memories if c.info.name == entities.of), None)
        if home is None:
            continue
        for entity_id, entity in entities.read.rows.items():
            for link in entity.links:
                point = home.read.rows.get(link)
                if point is None or link in moved:
                    continue
                key = owners_differ(entity.owner, point.owner)
                if key is not None:
                    yield finding(
                        "E503",
                        {
                            "entity of": shown_owner(entity.owner),
                            "memory of": shown_owner(point.owner),
                            "differs in": key,
                            "memory": link,
                            "point row": entity.rowid,
                        },
                        memory_id=str(entity_id),
                        path=entities.info.path,
                        subject=entities.info.name,
                    )


def oversized_scope(r: Reading) -> Iterable[Verdict]:
    """E504: more entities in a scope than mem0 ever looks at."""
    for entities in r.entities:
        # By their spelling: an owner can be a list.
        owners = {repr(e.owner): e.owner for e in entities.read.rows.values()}
        for key, count in Counter(repr(e.owner) for e in entities.read.rows.values()).items():
            owner = owners[key]
            if count > SCOPE_LIMIT:
                yield finding(
                    "E504",
                    {"owner": shown_owner(owner), "entities": count, "mem0 reads": SCOPE_LIMIT},
                    path=entities.info.path,
                    subject=f"{entities.info.name}: {shown_owner(owner)}",
                )


RULES: dict[str, RuleFunction] = {
    "E501": orphan_entity,
    "E502": dangling_link,
    "E503": foreign_link,
    "E504": oversized_scope,
}
