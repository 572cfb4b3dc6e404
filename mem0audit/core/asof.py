"""What was remembered at a time, folded from the change log. Pure.

Rows count in the order they were written. When each was written is known from its time, where that can be believed:

- UPDATE and DELETE rows have mem0's own clock (`updated_at`); those of DELETE have no time up to mem0 1.0.7, and all
  rows lost theirs where a log of mem0 0.0.9 was migrated.
- An ADD row has the memory's `created_at`, which since mem0 1.0.9 a caller may have given. One that mem0 would not have
  spelled so, is earlier than what was written before it, or later than a change that was written after it, was not
  written then. (A caller's that is spelled as mem0 does, and fits its place, cannot be told from mem0's.)

Of a row whose time is missing or cannot be so it is known between which two others it was written, and no more: what
depends on it is doubtful, and listed as that. What stands in no row is not known at all.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan, nan
from typing import Any, Final, Literal, NamedTuple

from mem0audit.core.diff import Change, ScopeDiff
from mem0audit.core.model import HistoryRow, Install, NotChecked
from mem0audit.core.points import Owner
from mem0audit.core.snapshot import canonical
from mem0audit.core.timeline import ADD, DELETE, UPDATE
from mem0audit.core.times import instant

SLACK_S: Final = 60.0
"""mem0 stamps a change before it carries it out: two that meet may stand in the log the other way round."""
FIRST: Final = 1_704_067_200.0
"""No mem0 was released before 2024: an earlier time is no time of a change."""

NEVER: Final = -1
_A, _U, _D = ord("A"), ord("U"), ord("D")
_CODES: Final = {ADD: _A, UPDATE: _U, DELETE: _D}
_EVENTS: Final = {code: event for event, code in _CODES.items()}


def _as_mem0_spells(text: Any) -> bool:
    """A time as `datetime.isoformat` gives it with an offset (0.0.10 and later), or SQLite (0.0.9 and older)."""
    if type(text) is not str:
        return False
    return (len(text) == 32 and text[10] == "T" and text[19] == ".") or (len(text) == 19 and text[10] == " ")


class When(NamedTuple):
    """When a row was written: not before `earliest`, not after `latest` (seconds since 1970, UTC). They are the same
    where its time is known."""

    earliest: float
    latest: float

    @property
    def known(self) -> bool:
        """It is known to the moment."""
        return self.earliest == self.latest


class Changes:
    """Takes history rows (a `model.RowSink`) and keeps of each what it did, to which memory and when: some 20 bytes.

    `memories` are the ids, in the order they first come; `rowids`, `events` and `of` (the memory's place in
    `memories`) are parallel, a row each. Rows of no event of mem0's, or of no memory, are counted (`odd`) and left out.
    """

    def __init__(self) -> None:
        self.memories: list[str] = []
        self.rowids = array("q")
        self.events = bytearray()
        self.of = array("q")
        self.times = array("d")
        self.odd = 0
        self._index: dict[str, int] = {}
        self._between: dict[int, When] = {}

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows; pages come in rowid order and never repeat a row. Their texts are not looked at."""
        index, names = self._index, self.memories
        for rowid, _id, memory_id, _old, _new, event, created, updated, *_ in page:
            code = _CODES.get(event) if type(event) is str else None
            if code is None or memory_id is None:
                self.odd += 1
                continue
            if type(memory_id) is not str:
                memory_id = str(memory_id)
            place = index.get(memory_id)
            if place is None:
                place = index[memory_id] = len(names)
                names.append(memory_id)
            self.rowids.append(rowid)
            self.events.append(code)
            self.of.append(place)
            # the created_at of another row than an ADD is the memory's, not the change's
            if code != _A or created is None:
                at = instant(updated)
            else:
                at = instant(created) if _as_mem0_spells(created) else None
            self.times.append(nan if at is None else at)

    def __len__(self) -> int:
        return len(self.rowids)

    def place(self, memory_id: str) -> int | None:
        """Where a memory stands in `memories`; None where the log has no row of it."""
        return self._index.get(memory_id)

    def weigh(self, now: float) -> None:
        """Decides which times can be believed, once all rows are in. `now`: when the log was read."""
        times, events = self.times, self.events
        count = len(times)
        latest = now + SLACK_S
        believed = array("d", [t if FIRST <= t <= latest else nan for t in times])
        soonest = inf
        for i in range(
            count - 1, -1, -1
        ):  # not later than a change, by mem0's clock, that was written after it
            t = believed[i]
            if t > soonest + SLACK_S:
                believed[i] = nan
            elif events[i] != _A and t < soonest:
                soonest = t
        newest = -inf
        unknown = []
        for i in range(count):  # not earlier than what was written before it
            t = believed[i]
            if t > newest:
                newest = t
            elif not t >= newest - SLACK_S:
                believed[i] = nan
                unknown.append((i, newest))
        self.times = believed
        self._between = {}
        after = now
        at = count - 1
        for i, before in reversed(unknown):
            while at > i:
                t = believed[at]
                if t < after:
                    after = t
                at -= 1
            self._between[i] = When(before, max(before, after))

    def when(self, row: int) -> When:
        """When a row (its place) was written."""
        between = self._between.get(row)
        if between is not None:
            return between
        return When(self.times[row], self.times[row])

    @property
    def untimed(self) -> int:
        """How many rows have no time that can be believed."""
        return len(self._between)

    @property
    def begins(self) -> float | None:
        """The first time in the log that can be believed."""
        return next((t for t in self.times if not isnan(t)), None)

    @property
    def ends(self) -> float | None:
        """The last one."""
        return next((t for t in reversed(self.times) if not isnan(t)), None)

    def event(self, row: int) -> str:
        """ADD, UPDATE or DELETE."""
        return _EVENTS[self.events[row]]

    def rows_of(self, memory_id: str) -> list[int]:
        """The places of a memory's rows, in order."""
        place = self._index.get(memory_id)
        return [] if place is None else [i for i, one in enumerate(self.of) if one == place]

    def following(self, rows: Iterable[int]) -> dict[int, int]:
        """The next row of the same memory after each of these, where there is one."""
        wanted = set(rows)
        waiting: dict[int, int] = {}
        found = {}
        for i, place in enumerate(self.of):
            before = waiting.pop(place, None)
            if before is not None:
                found[before] = i
            if i in wanted:
                waiting[place] = i
        return found

    def lives(self, memory_ids: Collection[str]) -> dict[str, When]:
        """When each of these memories was there at most: from its first row to its last, where that is a DELETE."""
        wanted = {self._index[i]: i for i in memory_ids if i in self._index}
        found: dict[str, When] = {}
        for i, place in enumerate(self.of):
            memory_id = wanted.get(place)
            if memory_id is not None:
                one = self.when(i)
                begins = found[memory_id].earliest if memory_id in found else one.earliest
                found[memory_id] = When(begins, one.latest if self.events[i] == _D else inf)
        return found

    def live_at_end(self) -> Iterator[str]:
        """The memories whose last row is an ADD or UPDATE."""
        last = array("b", bytes(len(self.memories)))
        for code, place in zip(self.events, self.of, strict=True):
            last[place] = code != _D
        return (name for name, live in zip(self.memories, last, strict=True) if live)

    def at(self, moment: float) -> tuple[list[State], list[State]]:
        """What was remembered at a time (seconds since 1970), and what may have been, in the order of first rows."""
        count = len(self.memories)
        sure = array("q", [NEVER]) * count
        maybe = array("q", [NEVER]) * count
        maybe_live: dict[int, int] = {}
        first = array("q", [NEVER]) * count
        times, between = self.times, self._between
        # a row of a memory was not written before the rows before it
        earliest: dict[int, float] = {}
        latest: dict[int, float] = {}
        for i, place in enumerate(self.of):
            if first[place] == NEVER:
                first[place] = i
            span = between.get(i)
            low, high = (times[i], times[i]) if span is None else span
            if earliest or latest:
                low = max(low, earliest.get(place, low))
                high = max(high, latest.get(place, high))
            if high <= moment:
                sure[place] = i
                continue
            latest[place] = high
            if low > moment:
                earliest[place] = low
            else:
                maybe[place] = i
                if self.events[i] != _D:
                    maybe_live[place] = i
        certain: list[State] = []
        doubtful: list[State] = []
        for place in range(count):
            state = self._state(place, sure[place], maybe[place], maybe_live.get(place), first[place])
            if state is not None:
                (doubtful if state.doubt else certain).append(state)
        return certain, doubtful

    def _state(self, place: int, sure: int, maybe: int, live: int | None, first: int) -> State | None:
        events = self.events
        name = self.memories[place]
        if sure == NEVER and events[first] != _A:
            # it was there before the log's first word of it: since when, no row says
            return State(name, NEVER, maybe if maybe != NEVER else first, first, "no-add")
        lives = sure != NEVER and events[sure] != _D
        if maybe == NEVER:
            return State(name, sure, NEVER, first) if lives else None
        then = events[maybe] != _D
        if not lives and not then:
            # added and deleted, neither known when: it may have been there between them
            return None if live is None else State(name, NEVER, live, first, "added")
        doubt: Doubt = "text" if lives and then else "deleted" if lives else "added"
        return State(name, sure if lives else NEVER, maybe, first, doubt)


Doubt = Literal["added", "deleted", "text", "no-add"]


class State(NamedTuple):
    """A memory at a time. `row` is the place of the row that its text is from (NEVER: of none that is known), `other`
    that of the row that may have been written by then; `first` that of its first row.

    `doubt` is None where it was remembered. "added": it may not have been there yet; "deleted": it may have been gone;
    "text": it was there, with this text or the other; "no-add": it was there at some time before its first row.
    """

    memory_id: str
    row: int
    other: int
    first: int
    doubt: Doubt | None = None


# --- What is said ----------------------------------------------------------------------------------

NO_TEXT: Final = "the log has no text of it any more"


@dataclass(frozen=True, slots=True)
class Remembered:
    """One memory as it was. `owner` is None where nobody knows whose it was; `owner_by` says who does.

    `since` is when its text came to be so, `added` when it was added, each as far as is known (None: not logged).
    `text` is None where it was not asked for, or is not in the log any more (`text_gone`). `other` is the text that it
    may have had instead. `rowid` is that of the row its text is from.
    """

    memory_id: str
    owner: Owner | None
    owner_by: str | None
    rowid: int | None
    since: When | None
    added: When | None
    text: str | None = None
    text_gone: bool = False
    doubt: Doubt | None = None
    doubt_when: When | None = None
    other: str | None = None


@dataclass(frozen=True)
class AsOf:
    """What was remembered `at` a time (seconds since 1970), by the log. `memories` are sure, `maybe` doubtful.

    `rows` are those of the log, `untimed` those without a time that can be believed; `begins` and `ends` its first and
    last time. `unowned` counts those left out because nobody knows whose they were, where somebody's were asked for.
    `notes` are what the log cannot tell, a sentence each; `not_read` what could not be read.
    """

    install: Install
    at: float
    memories: tuple[Remembered, ...]
    maybe: tuple[Remembered, ...]
    rows: int
    untimed: int
    begins: float | None
    ends: float | None
    unowned: int = 0
    notes: tuple[str, ...] = ()
    not_read: tuple[NotChecked, ...] = ()


@dataclass(frozen=True)
class AsOfDiff:
    """What was different at `b` from `a`. What was doubtful at either is in neither, and counted."""

    a: AsOf
    b: AsOf
    scopes: tuple[ScopeDiff, ...]
    unchanged: int
    doubtful: int
    texts: bool = False

    @property
    def totals(self) -> dict[str, int]:
        """How many were added, changed and removed."""
        return {
            "added": sum(len(s.added) for s in self.scopes),
            "changed": sum(len(s.changed) for s in self.scopes),
            "removed": sum(len(s.removed) for s in self.scopes),
            "unchanged": self.unchanged,
        }


def by_owner(memories: Iterable[Remembered]) -> list[tuple[Owner | None, list[Remembered]]]:
    """The memories of each owner, most first; those of nobody known last."""
    groups: dict[str, tuple[Owner | None, list[Remembered]]] = {}
    for one in memories:
        key = "" if one.owner is None else canonical(one.owner)
        groups.setdefault(key, (one.owner, []))[1].append(one)
    return sorted(groups.values(), key=lambda group: (group[0] is None, -len(group[1])))


def compare(
    a: Mapping[str, Remembered], b: Mapping[str, Remembered], left_out: frozenset[str]
) -> tuple[tuple[ScopeDiff, ...], int]:
    """The owners whose memories differ, those with most differences first, and how many memories are the same.

    A memory whose row is another and whose text is the same is the same: mem0 writes an UPDATE for new metadata too.
    """
    found: dict[str, tuple[Owner, tuple[list[Change], list[Change], list[Change]]]] = {}
    unchanged = 0
    for memory_id in dict.fromkeys((*a, *b)):
        if memory_id in left_out:
            continue
        was, now = a.get(memory_id), b.get(memory_id)
        one = now or was
        assert one is not None
        owner = one.owner or (None, None, None)
        before = None if was is None else was.text
        after = None if now is None else now.text
        if was is not None and now is not None:
            if was.rowid == now.rowid or (before == after and not was.text_gone and not now.text_gone):
                unchanged += 1
                continue
            kind = 1
        else:
            kind = 0 if was is None else 2
        change = Change("", memory_id, ("text",) if kind == 1 else (), None, before, after)
        found.setdefault(canonical(one.owner), (owner, ([], [], [])))[1][kind].append(change)
    scopes = [ScopeDiff(owner, *(tuple(changes) for changes in three)) for owner, three in found.values()]
    scopes.sort(key=lambda s: -(len(s.added) + len(s.changed) + len(s.removed)))
    return tuple(scopes), unchanged


def with_texts(one: Remembered, text: str | None, other: str | None) -> Remembered:
    """The same with the texts that its rows have; an empty one is one that was lost or emptied."""
    return replace(one, text=text, text_gone=text is None, other=other)


@dataclass(frozen=True)
class Step:
    """One row of a memory's life. `text` is what it says from then on, None where that is not in the log, or where it
    was deleted."""

    rowid: int
    event: str
    when: When
    text: str | None
    actor: str | None = None
    role: str | None = None


def text_of(row: HistoryRow, following: HistoryRow | None) -> str | None:
    """What a memory said from this row on: the row's new text, or where that is empty (lost in a migration, or emptied
    on request) what the next row of it says was there before."""
    if type(row.new_memory) is str and row.new_memory:
        return row.new_memory
    if following is not None and type(following.old_memory) is str and following.old_memory:
        return following.old_memory
    return None
