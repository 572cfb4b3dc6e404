"""The queue of memories that nobody confirmed for longest, and what a person decides of each.

The queue is made here, the verdict never: what is close to a memory is shown beside it, and nothing is done of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Any, Final

from mem0audit.core import versions
from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.ledger import DAY_S, LedgerFact
from mem0audit.core.model import CollectionInfo, FileProblem, Install
from mem0audit.core.points import PointRecord, text_digest
from mem0audit.core.reading import Memories, Reading
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.ledgerfacts import Known, point_of, row_of, writing
from mem0audit.operations.look import Progress, look, no_collector, no_progress
from mem0audit.operations.mem0door import Door, find_door, open_door
from mem0audit.operations.otherroots import where_it_lies
from mem0audit.operations.seal import explain
from mem0audit.operations.stores import Served, place_of, served_by
from mem0audit.operations.targets import refuse_in_use
from mem0audit.operations.whole import Whole
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.pickles import PointVectors

REVIEW_DAYS: Final = 90
MOST: Final = 20
"""A number that somebody really reads in a week."""
CLOSE: Final = 0.8
"""From this cosine on, two texts of one owner are shown beside each other. What embedders call close differs."""
MOST_CLOSE: Final = 3
MOST_COMPARED: Final = 2_000
"""So many memories of one owner are compared, the newest: more would take minutes."""


@dataclass(frozen=True)
class Near:
    """A live memory of the same owner that says nearly the same, or the contrary; `closeness` is a cosine."""

    memory_id: str
    closeness: float
    text: str
    confirmed_at: float | None


@dataclass(frozen=True)
class Due:
    """A memory that nobody confirmed for long; `text` is None where it has none."""

    memory_id: str
    fact: LedgerFact
    text: str | None
    near: tuple[Near, ...] = ()


@dataclass(frozen=True)
class Queue:
    """The first of those that are due, and how many there are in all; `to_delete` are decided on and still there.

    `not_compared` says of how many others the texts were not compared.
    """

    install: Install
    due: tuple[Due, ...]
    waiting: int
    no_source: int
    days: int
    now: float
    to_delete: tuple[str, ...] = ()
    not_compared: int = 0


def queue(
    install: Install,
    host: Host,
    *,
    days: int = REVIEW_DAYS,
    most: int = MOST,
    progress: Progress | None = None,
) -> Queue:
    """Who is to be asked of which memories: live ones last confirmed more than `days` ago, of an unknown source first,
    then the oldest confirmation. Both stores are read, beside a running agent, and the ledger brought up to date.

    Raises CouldNotRead where the vector store does not read, Refused where there is no ledger.
    """
    say = progress or no_progress
    place_of(install)
    with writing(install, host) as book:
        with no_collector():
            reading = look(install, host, say)
            if not reading.vectors_readable or reading.configured is None:
                unread = None if reading.layout is None else reading.layout.problem
                why = "" if unread is None else f"{place_of(install)}: {unread.detail}; "
                raise CouldNotRead(f"{why}the vector store could not be read whole", "mem0audit audit")
            problem = ledgers.note_seen(book, reading, host.now)
        if problem is not None:
            raise Refused(problem.why)
        home = reading.configured
        doomed = book.to_delete()
        sourced = book.due(host.now, host.now - days * DAY_S)
        due = [i for i in sourced if i in home.by_id and i not in doomed]
        facts = book.memories(due[:most])
        kept = book.kept(host.now)
        stale = {*kept.superseded, *kept.expired, *doomed}
        wanted, left_out = _candidates(home, due[:most], stale)
        say("reading what is due", None, None)
        found = _read(reading, home, due[:most], wanted, host, say)
        confirmed = book.memories({near for _, nears in found.values() for near, _, _ in nears})
    return Queue(
        install=reading.install,
        due=tuple(
            Due(
                one,
                facts[one],
                found[one][0],
                tuple(
                    Near(i, closeness, text, confirmed[i].confirmed_at if i in confirmed else None)
                    for i, closeness, text in found[one][1]
                ),
            )
            for one in due[:most]
        ),
        waiting=len(due),
        no_source=sum(not sourced[one] for one in due),
        days=days,
        now=host.now,
        to_delete=doomed,
        not_compared=left_out,
    )


def _candidates(
    home: Memories, due: Sequence[str], stale: set[str]
) -> tuple[dict[str, tuple[str, ...]], int]:
    """With which others each is compared: live ones of the same owner with another text; and how many are left out."""
    by_owner: dict[str, list[tuple[int, str, PointRecord]]] = {repr(home.by_id[one].owner): [] for one in due}
    for memory_id, point in home.by_id.items():
        group = by_owner.get(repr(point.owner))
        if group is not None and memory_id not in stale:
            group.append((point.rowid, memory_id, point))
    left_out = 0
    for group in by_owner.values():
        group.sort(reverse=True)
        left_out += max(0, len(group) - MOST_COMPARED)
        del group[MOST_COMPARED:]
    return {
        one: tuple(
            i
            for _, i, point in by_owner[repr(home.by_id[one].owner)]
            if i != one and point.text is not None and point.text != home.by_id[one].text
        )
        for one in due
    }, left_out


_Found = Mapping[str, tuple["str | None", tuple[tuple[str, float, str], ...]]]


def _read(
    reading: Reading,
    home: Memories,
    due: Sequence[str],
    wanted: Mapping[str, Sequence[str]],
    host: Host,
    say: Progress,
) -> _Found:
    """The text of each that is due, and what is close to it: id, cosine, text."""
    ids = {str(i): i for i in home.read.rows}

    def read(
        store: EmbeddedStore | Served, info: CollectionInfo, vectors_of: Callable[[str], PointVectors | None]
    ) -> _Found:
        vectors: dict[str, Sequence[float] | None] = {}

        def vector(one: str) -> Sequence[float] | None:
            if one not in vectors:
                read = vectors_of(one)
                vectors[one] = None if read is None or read.dense is None else _unit(read.dense)
            return vectors[one]

        def text(one: str) -> str | None:
            for row in store.find(info, ids[one]):
                data = row.payload.get("data")
                return data if isinstance(data, str) else None
            return None

        found = {}
        for number, one in enumerate(due):
            say("comparing", number, len(due))
            mine = vector(one)
            close = []
            for other in wanted[one] if mine is not None else ():
                theirs = vector(other)
                if theirs is not None and mine is not None and len(theirs) == len(mine):
                    cosine = sum(map(mul, mine, theirs))
                    if cosine >= CLOSE:
                        close.append((cosine, other))
            close.sort(reverse=True)
            found[one] = (
                text(one),
                tuple((i, min(cosine, 1.0), text(i) or "") for cosine, i in close[:MOST_CLOSE]),
            )
        return found

    def failed(problem: FileProblem) -> _Found:
        raise CouldNotRead(f"{place_of(reading.install)}: {problem.detail}")

    def in_folder(folder: str) -> _Found:
        store = EmbeddedStore(folder)
        info = next(c for c in store.layout().collections if c.name == home.info.name)
        return read(store, info, lambda one: store.vectors(info, ids[one]))

    if reading.install.vectors is not None:
        return where_it_lies(reading.install.vectors.value, host, in_folder, failed)
    served = served_by(reading.install)
    asked = {one: ids[one] for one in (*due, *(near for others in wanted.values() for near in others))}
    there = served.vectors_of(home.info, list(asked.values()))
    return read(served, home.info, lambda one: there.get(ids[one]))


def _unit(vector: Sequence[float]) -> list[float]:
    norm = math.sqrt(sum(map(mul, vector, vector)))
    return [x / norm for x in vector] if norm and math.isfinite(norm) else [0.0] * len(vector)


# --- Another text ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplacePlan:
    """Another text for a memory: which mem0 writes it, and from which source it is."""

    install: Install
    known: Known
    source: str
    mem0: str
    door: Door = field(repr=False)


def plan_replace(install: Install, host: Host, word: str, text: str, source: str) -> ReplacePlan:
    """What `replace` would do. Raises Refused while the install is in use, where the agent's mem0 may not change it,
    and where its update loses metadata; UsageProblem for a text that is none."""
    if not text.strip():
        raise UsageProblem("TEXT: is empty", "to remove the memory: mem0audit review delete ID")
    with writing(install, host) as book:
        known = row_of(book, install, host, word)
    if known.fact.is_superseded(host.now):
        raise Refused(
            f"{known.memory_id}: is superseded",
            f"it holds after all: mem0audit ledger supersede {known.memory_id} --none",
        )
    if known.fact.fact == text_digest(text):
        raise UsageProblem("TEXT: is the text that it has", "that it is true: mem0audit review confirm ID")
    door = door_for_texts(install, host)
    return ReplacePlan(install, known, source, door.mem0, door)


def door_for_texts(install: Install, host: Host) -> Door:
    """The mem0 that can give a memory another text now. Raises Refused, as `plan_replace` does."""
    refuse_in_use(install, host)
    door = find_door(install, host)
    if not versions.rewrites_whole(door.mem0):
        raise Refused(f"mem0 {door.mem0} loses metadata of your own in an update (before 2.0.7)")
    return door


def apply_replace(
    plan: ReplacePlan, host: Host, text: str, config: Mapping[str, Any], *, progress: Progress | None = None
) -> tuple[str, ...]:
    """Has mem0 write the text, with the user's own embedder, and puts down that it is confirmed; warnings.

    `config` is the dict given to `Memory.from_config`. Cut off between, the next audit finds the new text, as of now
    and from an unknown source. Raises Refused where somebody has the install open, Failed where mem0 did not write it.
    """
    install, memory_id = plan.install, plan.known.memory_id
    refuse_in_use(install, host)
    warnings = []
    with writing(install, host) as book, open_door(plan.door, host, config=config) as memory:
        memory.update(memory_id, text)
        store, info, point_id = point_of(plan.door, memory_id)
        now = Whole.of(store, info, point_id)
        if now.payload.get("data") != text:
            raise Failed(f"memory {memory_id} does not have that text now", "mem0audit audit")
        book.replace_fact(memory_id, text_digest(text), host.now, plan.source)
        outcome = explain(install, host, "replace", memory_id, progress=progress or no_progress)
        if outcome is not None and not outcome.extended:
            warnings.append(f"The chain of seals does not know of it ({outcome.why}).")
    return tuple(warnings)


# --- Decisions -----------------------------------------------------------------------------------------


@dataclass
class Decisions:
    """What a person decides on the way through a queue. Each is on the disk when the method returns, so that one may
    stop at any time; `undo` takes the last one back."""

    install: Install
    host: Host
    config: Mapping[str, Any] | None = None
    """What `Memory.from_config` is given, with the user's own embedder; None: no text can be replaced."""
    done: list[tuple[str, str, LedgerFact]] = field(default_factory=list)
    to_delete: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """What was replaced here said before; kept nowhere else."""

    def skip(self, memory_id: str) -> None:
        """Nothing is decided of it."""
        with writing(self.install, self.host) as book:
            self.done.append((memory_id, "skipped", book.memories([memory_id])[memory_id]))

    def _now(self, memory_id: str, what: str) -> LedgerFact:
        with writing(self.install, self.host) as book:
            fact = book.memories([memory_id])[memory_id]
        self.done.append((memory_id, what, fact))
        return fact

    def confirm(self, memory_id: str, source: str | None) -> None:
        """It is true now; `source` is needed where none is known."""
        self._now(memory_id, "confirmed")
        with writing(self.install, self.host) as book:
            book.confirm(memory_id, self.host.now, source)

    def expire(self, memory_id: str, at: float) -> None:
        """It holds until then (seconds since 1970)."""
        self._now(memory_id, "expire")
        with writing(self.install, self.host) as book:
            book.expire(memory_id, at)

    def supersede(self, memory_id: str, by: str) -> None:
        """Another one says what is true now. Raises Refused."""
        with writing(self.install, self.host) as book:
            fact = book.memories([memory_id])[memory_id]
            try:
                book.supersede(memory_id, by, self.host.now)
            except ValueError as error:
                raise Refused(str(error)) from None
        self.done.append((memory_id, "superseded", fact))

    def replace(self, one: Due, text: str, source: str, progress: Progress | None = None) -> tuple[str, ...]:
        """mem0 gives it another text, at once; warnings. Raises what `plan_replace` and `apply_replace` raise."""
        assert self.config is not None
        plan = plan_replace(self.install, self.host, one.memory_id, text, source)
        warnings = apply_replace(plan, self.host, text, self.config, progress=progress)
        self.texts[one.memory_id] = one.text or ""
        self.done.append((one.memory_id, "replaced", plan.known.fact))
        return warnings

    def delete(self, memory_id: str) -> None:
        """It is to go: with the others, at the end."""
        self._now(memory_id, "delete")
        with writing(self.install, self.host) as book:
            book.note_to_delete(memory_id)
        self.to_delete = [*self.to_delete, memory_id]

    def undo(self) -> str | None:
        """Takes the last decision back, a text through mem0 again; of which memory, None where there is none. Raises
        what `replace` raises; then it stands."""
        if not self.done:
            return None
        memory_id, what, fact = self.done[-1]
        if what == "replaced":
            assert self.config is not None
            text = self.texts[memory_id]
            plan = plan_replace(self.install, self.host, memory_id, text, "as it was")
            apply_replace(plan, self.host, text, self.config)
        self.done.pop()
        if what == "delete":
            with writing(self.install, self.host) as book:
                book.note_to_delete(memory_id, wanted=False)
            self.to_delete = [one for one in self.to_delete if one != memory_id]
        elif what != "skipped":
            with writing(self.install, self.host) as book:
                book.take_back(memory_id, fact)
        return memory_id

    def made(self, what: str) -> list[str]:
        """The memories of which this was decided."""
        return [one for one, kind, _ in self.done if kind == what]
