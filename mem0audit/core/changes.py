"""The steps that `repair` and `prune` are made of: what goes, and what the entities lose with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mem0audit.core.ledger import Kept, oldest_first, predecessors
from mem0audit.core.model import NotChecked, PointId
from mem0audit.core.points import shown_owner
from mem0audit.core.reading import Entities, Memories


@dataclass(frozen=True)
class Step:
    """One change, of the memory or entity `id`: deleted, links to `dead` memories taken from it, or written again with
    its own text and vectors. `why` is what was found, in short; `keeps` the copy that stays; `replaced_by` what goes
    too, and replaced it by the ledger."""

    code: str
    kind: Literal["delete", "unlink", "rewrite"]
    id: PointId
    owner: str
    why: str
    dead: tuple[str, ...] = ()
    keeps: str | None = None
    replaced_by: str | None = None


@dataclass(frozen=True)
class Undecided:
    """A finding of which nothing is done, and why."""

    code: str
    id: str
    why: str


@dataclass(frozen=True)
class Steps:
    """Everything that is done, and what is not. `unlink` are the links that each entity loses, also to what is deleted
    here; the entities `emptied` link nothing then, and go."""

    steps: tuple[Step, ...] = ()
    left: tuple[Undecided, ...] = ()
    unlink: Mapping[PointId, tuple[str, ...]] = field(default_factory=dict)
    emptied: frozenset[PointId] = frozenset()

    def of(self, kind: str) -> tuple[PointId, ...]:
        """The ids of the steps of one kind."""
        return tuple(step.id for step in self.steps if step.kind == kind)


@dataclass(frozen=True)
class Changed:
    """What was done. `snapshot` is the path of the one taken before; `remaining` are steps after which what they were
    about is still there; `mem0` and `python` are versions; `seconds` how long it took."""

    snapshot: str | None = None
    deleted: int = 0
    rewritten: int = 0
    entities: int = 0
    links: int = 0
    remaining: tuple[Step, ...] = ()
    mem0: str = ""
    python: str = ""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0


def with_replaced(steps: Iterable[Step], home: Memories | None, kept: Kept | NotChecked) -> tuple[Step, ...]:
    """These steps, and the deletion of what the deleted replaced by the ledger, each before what replaced it: so that
    nothing outdated is ever left without its successor."""
    by_id = {str(step.id): step for step in steps}
    if isinstance(kept, NotChecked) or home is None or not kept.successors:
        return tuple(by_id.values())
    ids = {old: point_id for point_id in home.read.rows if (old := str(point_id)) in kept.successors}
    for step in [one for one in by_id.values() if one.kind == "delete"]:
        for old in sorted(predecessors([str(step.id)], kept.successors) & ids.keys()):
            if old not in by_id or by_id[old].kind != "delete":
                owner = shown_owner(home.read.rows[ids[old]].owner)
                new = str(step.id)
                why = f"{new} replaced it, and goes"
                by_id[old] = Step(step.code, "delete", ids[old], owner, why, replaced_by=new)
    return tuple(by_id[one] for one in oldest_first(list(by_id), kept.successors))


def with_links(steps: Iterable[Step], left: tuple[Undecided, ...], entities: Entities | None) -> Steps:
    """All that comes of these steps: the entities lose their links to what is deleted too."""
    steps = tuple(steps)
    gone = {str(step.id) for step in steps if step.kind == "delete"}
    unlink: dict[PointId, tuple[str, ...]] = {step.id: step.dead for step in steps if step.kind == "unlink"}
    emptied = set()
    for entity_id, entity in entities.read.rows.items() if entities is not None else ():
        dead = tuple(dict.fromkeys((*unlink.get(entity_id, ()), *(i for i in entity.links if i in gone))))
        if dead or entity_id in unlink:
            unlink[entity_id] = dead
            if set(entity.links) <= set(dead):
                emptied.add(entity_id)
    return Steps(steps, left, unlink, frozenset(emptied))
