"""What may be done about findings, step by step, and what stays for a person to decide. Pure: judged from a reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from mem0audit.core import versions
from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.changes import Changed, Step, Steps, Undecided, with_links, with_replaced
from mem0audit.core.model import Finding, Install, NotChecked, PointId, VectorFacts
from mem0audit.core.points import NO_TEXT, ODD_OWNER, STALE_HASH, PointRecord, shown_owner
from mem0audit.core.reading import Entities, Memories, Reading
from mem0audit.core.rules.content import Copy, same_text_and_owner
from mem0audit.core.timeline import ADD, UPDATE
from mem0audit.core.times import instant, shown

REPAIRED: Final = tuple(code for code, rule in CATALOGUE.items() if rule.repaired)
"""The rules whose findings have a safe way out through mem0."""
EXPLAINED: Final = ("D302", "D303")
"""The rules of which the plan says why nothing is done."""
CHANGED_BY_REWRITE: Final = frozenset({"hash", "updated_at", "text_lemmatized"})
"""What mem0's update renews in the payload of a memory that keeps its text."""
OF_ITS_OWN: Final = frozenset({"created_at", *CHANGED_BY_REWRITE})
"""Where copies of one memory differ and are still copies."""

_OTHER_COLLECTION = "it is in another collection: name that with --collection"


@dataclass(frozen=True)
class Wanted:
    """What is to be repaired: rules, and single memories or entities by id. Empty: nothing, the plan is of all."""

    codes: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.codes or self.ids)

    def asks(self, code: str, ids: Iterable[str]) -> bool:
        """Whether a finding of this rule about these ids is asked for."""
        return not self or code in self.codes or not self.ids.isdisjoint(ids)


@dataclass(frozen=True)
class RepairPlan:
    """What `repair` would do, under which mem0.

    `blocked` is why it cannot be done now, with a hint; `folder` the one for the snapshot that is taken first, None
    where none is named. `unknown` are ids that were asked for and of which nothing is found; `others` are findings
    that are repaired in no way here, by their rule. `events` say what probably brought these findings about.
    """

    install: Install
    wanted: Wanted
    todo: Steps
    found: Mapping[str, int]
    mem0: str | None
    interpreter: str | None
    how_found: str
    own: bool
    folder: str | None
    blocked: tuple[str, str | None] | None = None
    unseen: str | None = None
    unknown: tuple[str, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    events: tuple[str, ...] = ()


@dataclass(frozen=True)
class Repaired:
    """What a repair did."""

    plan: RepairPlan
    changed: Changed = field(default_factory=Changed)


def repair_steps(
    reading: Reading,
    findings: Collection[Finding],
    wanted: Wanted,
    *,
    mem0: str | None,
    payloads: Mapping[str, bytes],
    erased: Collection[str] = (),
    vectors: Mapping[str, VectorFacts] | None = None,
) -> Steps:
    """What is to be done about these findings of a reading, as far as `wanted` asks for it.

    `mem0` is the version that will do it, None where that is not known yet. `payloads` are digests of the payloads of
    copies, without what each has of its own (`OF_ITS_OWN`); `erased` are ids of memories that an erasure is on record
    of. `vectors` are the facts of vectors that the reading did not look at (of a server's it reads none), by id. What
    the stores cannot tell is left.
    """
    making = _Making(reading, findings, wanted, mem0, payloads, frozenset(erased), vectors or {})
    return making.made()


class _Making:
    def __init__(
        self,
        reading: Reading,
        findings: Collection[Finding],
        wanted: Wanted,
        mem0: str | None,
        payloads: Mapping[str, bytes],
        erased: frozenset[str],
        vectors: Mapping[str, VectorFacts],
    ) -> None:
        self.reading = reading
        self.findings = findings
        self.wanted = wanted
        self.mem0 = mem0
        self.payloads = payloads
        self.erased = erased
        self.vectors = vectors
        self.home: Memories | None = reading.configured
        name = self.home.info.name if self.home is not None else None
        self.entities: Entities | None = next((e for e in reading.entities if e.of == name), None)
        rows = self.home.read.rows if self.home is not None else {}
        self.ids: dict[str, PointId] = {str(i): i for i in rows}
        self.links: Counter[str] = Counter()
        for entity in self.entities.read.rows.values() if self.entities is not None else ():
            self.links.update(set(entity.links))
        self.successors = {} if isinstance(reading.kept, NotChecked) else reading.kept.successors
        self.steps: dict[PointId, Step] = {}
        self.left: list[Undecided] = []

    def made(self) -> Steps:
        self._delete_again()
        self._copies()
        self._expired()
        self._stale()
        for found in self._asked(*EXPLAINED):
            self._leave(found, _explained(found))
        on_entities = self._entities()
        steps = with_replaced(self.steps.values(), self.home, self.reading.kept)
        return with_links((*steps, *on_entities), tuple(self.left), self.entities)

    def _asked(self, *codes: str) -> Iterable[Finding]:
        for found in self.findings:
            one = found.memory_id
            if found.code in codes and one is not None and self.wanted.asks(found.code, (one,)):
                yield found

    def _leave(self, found: Finding, why: str) -> None:
        self.left.append(Undecided(found.code, str(found.memory_id), why))

    def _point(self, found: Finding) -> tuple[PointId, PointRecord] | None:
        """The memory of a finding; None, and it is left, where mem0 does not reach it."""
        here = self.home is not None and found.subject == self.home.info.name
        point_id = self.ids.get(str(found.memory_id)) if here else None
        if point_id is None or self.home is None:
            self._leave(found, _OTHER_COLLECTION)
            return None
        return point_id, self.home.read.rows[point_id]

    def _was_erased(self, found: Finding) -> bool:
        """Whether an erasure is on record of it: then it is left, for a snapshot would keep it."""
        if found.memory_id not in self.erased:
            return False
        way = f"mem0audit delete --memory {found.memory_id}"
        self._leave(found, f"it was erased for its owner, and no snapshot may keep it: {way}")
        return True

    def _delete_again(self) -> None:
        for found in self._asked("D301"):
            there = self._point(found)
            if there is None:
                continue
            if self._was_erased(found):
                continue
            row, deleted = found.evidence.get("log row"), found.evidence.get("deleted")
            self._add(found.code, "delete", there, f"deleted {_when(deleted)} (row {row:,})")

    def _add(
        self,
        code: str,
        kind: Literal["delete", "rewrite"],
        there: tuple[PointId, PointRecord],
        why: str,
        keeps: str | None = None,
    ) -> None:
        point_id, point = there
        self.steps.setdefault(
            point_id, Step(code, kind, point_id, shown_owner(point.owner), why, keeps=keeps)
        )

    def _copies(self) -> None:
        both, timeline = self.reading.comparison, self.reading.timeline
        back = set(both.resurrected) if both is not None else set()
        by_first = {(f.memory_id, f.subject): f for f in self.findings if f.code == "C601"}
        for home in self.reading.memories:
            for group in same_text_and_owner(home):
                ids = [one[0] for one in group]
                if not self.wanted.asks("C601", ids):
                    continue
                found = by_first.get((ids[0], home.info.name))
                if found is None:
                    continue
                if not home.configured:
                    self._leave(found, _OTHER_COLLECTION)
                    continue
                alive = [one for one in group if one[0] not in back]
                if len(alive) < 2:
                    self._leave(
                        found, "all but one of them were deleted and are back (D301): that comes first"
                    )
                    continue
                alike: dict[bytes | None, list[Copy]] = {}
                for one in alive:
                    alike.setdefault(self.payloads.get(one[0]), []).append(one)
                if len(alike) > 1 or None in alike:
                    self._leave(
                        found, "the same text, but other metadata: which of them is right is not known"
                    )
                for digest, members in alike.items():
                    if digest is not None:
                        self._but_one(home, members, timeline.memories if timeline is not None else {})

    def _but_one(self, home: Memories, members: list[Copy], logs: Mapping[str, object]) -> None:
        """All but one are deleted: the one stays that is not superseded, then the one that replaced another memory,
        then the one that has a history, then the most linked, then the oldest."""

        kept_of = self.reading.kept
        outdated = () if isinstance(kept_of, NotChecked) else kept_of.superseded
        replacing = set(self.successors.values())

        def rank(one: Copy) -> tuple[bool, bool, bool, int, float, int]:
            memory_id, _, row = one
            created = instant(home.by_id[memory_id].created_at)
            last = getattr(logs.get(memory_id), "last", None)
            no_history = last not in (ADD, UPDATE)
            return (
                memory_id in outdated,
                memory_id not in replacing,
                no_history,
                -self.links[memory_id],
                float("inf") if created is None else created,
                row,
            )

        kept, *others = sorted(members, key=rank)
        for memory_id, _, _ in others:
            there = self.ids[memory_id], home.by_id[memory_id]
            self._add("C601", "delete", there, f"the same as {kept[0]}, which stays", keeps=kept[0])

    def _expired(self) -> None:
        for found in self._asked("T701"):
            there = self._point(found)
            if there is not None and not self._was_erased(found):
                self._add("T701", "delete", there, f"expired {found.evidence.get('expired')}")

    def _stale(self) -> None:
        both = self.reading.comparison
        differing = set(both.differing) if both is not None else set()
        back = set(both.resurrected) if both is not None else set()
        for found in self._asked("D305"):
            there = self._point(found)
            if there is None or there[0] in self.steps:
                continue
            point = there[1]
            vector = self.vectors.get(str(there[0]), point.vector)
            if self.mem0 is not None and not versions.rewrites_whole(self.mem0):
                self._leave(found, f"mem0 {self.mem0} loses metadata of your own in an update (before 2.0.7)")
            elif str(there[0]) in differing:
                self._leave(found, "the log has another text: decide which one is true first (D304)")
            elif str(there[0]) in back:
                self._leave(found, "it was deleted and is back: that comes first (D301)")
            elif point.flags & (NO_TEXT | ODD_OWNER) or not point.flags & STALE_HASH:
                self._leave(found, "it is not a memory as mem0 writes one")
            elif vector.dims is None or set(vector.names) - {"bm25"}:
                self._leave(found, "it has vectors that mem0 would not write again")
            else:
                self._add("D305", "rewrite", there, "text and vectors stay")

    def _entities(self) -> list[Step]:
        steps = []
        both = self.reading.comparison
        lost = set(both.lost) if both is not None else set()
        stored = {i for c in self.reading.memories for i in c.by_id}
        ids = {str(i): i for i in self.entities.read.rows} if self.entities is not None else {}
        for found in self._asked("E501", "E502"):
            entity_id = ids.get(str(found.memory_id))
            here = self.entities is not None and found.subject == self.entities.info.name
            if entity_id is None or self.entities is None or not here:
                self._leave(found, _OTHER_COLLECTION)
                continue
            if self.mem0 is not None and (versions.parse(self.mem0) or (0,)) < (2, 0, 0):
                self._leave(found, f"mem0 {self.mem0} knows no entities")
                continue
            entity = self.entities.read.rows[entity_id]
            dead = tuple(i for i in entity.links if i not in stored)
            if both is None or not both.elsewhere.keys().isdisjoint(dead):
                self._leave(found, "another store has what it links (L108)")
                continue
            if not lost.isdisjoint(dead):
                self._leave(
                    found, "it links a memory that is lost, not deleted (D302): a restore brings that back"
                )
                continue
            goes = len(dead) == len(entity.links)
            why = (
                f"{len(dead):,} of {len(entity.links):,} links dead"
                if not goes
                else "links nothing that is there"
            )
            steps.append(Step(found.code, "unlink", entity_id, shown_owner(entity.owner), why, dead=dead))
        return steps


def _when(value: object) -> str:
    at = instant(value)
    return "at a time that is not known" if at is None else shown(at)


def _explained(found: Finding) -> str:
    if found.code == "D302":
        return f"looks like {found.evidence.get('looks like')}"
    return f"stored {_when(found.evidence.get('stored'))}; in the log: {found.evidence.get('in the log')}"
