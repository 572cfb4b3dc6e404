"""The one event that explains many findings: what probably happened, when, and how sure that is.

Each function below knows one kind of event and looks for its pattern: which part of the log the store
does not reflect, and what lies at the edge of that part. Order of rows decides, never the text of
times. An event found takes the memories that it explains away from the weaker explanations after it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan

from mem0audit.core import versions
from mem0audit.core.model import Certainty, Incident
from mem0audit.core.reading import Reading
from mem0audit.core.reconcile import Comparison
from mem0audit.core.seal import SealCheck
from mem0audit.core.timeline import DELETE, MemoryLog, Timeline
from mem0audit.core.times import instant, shown

FEW = 3
"""Up to so many faults of one kind are taken for single writes that were cut short."""
BURST = 3
"""So many DELETE rows in a row, at least, are one bulk deletion."""
OLD_BULK_LIMIT = 100
"""Where `delete_all` stopped before mem0 2.0.15."""
SHARED = 0.2
"""From this share of the live memories on, missing ones are rather another program's than lost one by one."""
MOST = 0.9
"""The share of all memories from which on an event is said to concern "the" store."""


@dataclass(frozen=True)
class _Facts:
    """What the patterns are made of. `open_ids` shrinks as events explain memories."""

    reading: Reading
    timeline: Timeline
    both: Comparison
    open_ids: frozenset[str]

    def log(self, memory_id: str) -> MemoryLog:
        return self.timeline.memories[memory_id]

    @cached_property
    def lost(self) -> tuple[str, ...]:
        return tuple(i for i in self.both.lost if i in self.open_ids)

    @cached_property
    def resurrected(self) -> tuple[str, ...]:
        return tuple(i for i in self.both.resurrected if i in self.open_ids)

    @cached_property
    def unlogged(self) -> tuple[str, ...]:
        return tuple(i for i in self.both.unlogged if i in self.open_ids)

    @cached_property
    def differing(self) -> tuple[str, ...]:
        return tuple(i for i in self.both.differing if i in self.open_ids)

    @cached_property
    def agreeing_tops(self) -> list[int]:
        """The last rows, sorted, of the memories that both stores hold alike."""
        faults = {*self.both.resurrected, *self.both.differing, *self.both.unlogged}
        logs = self.timeline.memories
        return sorted(logs[i].top for i in self.both.points if i not in faults)

    @cached_property
    def deleted(self) -> list[MemoryLog]:
        """The logs of memories that are deleted by the log and gone from the store."""
        return [
            log
            for i, log in self.timeline.memories.items()
            if log.last == DELETE and i not in self.both.points
        ]

    def time_of_row(self, rowid: int) -> float | None:
        """The time of the last row at or before `rowid` that has one."""
        times = self.timeline.times
        for k in range(bisect_right(self.timeline.rowids, rowid) - 1, -1, -1):
            if not isnan(times[k]):
                return times[k]
        return None

    def stored_at(self, memory_id: str) -> float | None:
        point = self.both.points[memory_id]
        return instant(point.updated_at or point.created_at)

    def without(self, ids: frozenset[str]) -> _Facts:
        return _Facts(self.reading, self.timeline, self.both, self.open_ids - ids)


def incidents(r: Reading) -> tuple[Incident, ...]:
    """The events that explain what the rules found, the surest and largest first; () if nothing did.

    Needs both stores; with the log missing only its loss can be said.
    """
    if r.seal_check is not None and r.seal_check.reset:
        return (_reset(r, r.seal_check),)
    lost_log = _log_gone(r)
    if lost_log is not None:
        return (lost_log,)
    if r.timeline is None or r.comparison is None:
        return ()
    both = r.comparison
    facts = _Facts(
        r,
        r.timeline,
        both,
        frozenset((*both.lost, *both.resurrected, *both.unlogged, *both.differing)),
    )
    found: list[Incident] = []
    for recognise in _PATTERNS:
        for event in recognise(facts):
            found.append(event)
            facts = facts.without(event.memory_ids)
    return tuple(sorted(found, key=lambda e: (-e.certainty, -len(e.memory_ids))))


# --- The store lost what the log has --------------------------------------------------------------


def _emptied(f: _Facts) -> Iterator[Incident]:
    """Every memory logged up to some row is missing, and every one after it is there."""
    if not f.lost:
        return
    last_lost = max(f.log(i).top for i in f.lost)
    survivors_before = bisect_left(f.agreeing_tops, last_lost)
    if survivors_before or (len(f.lost) <= FEW and f.agreeing_tops and len(f.lost) < len(f.agreeing_tops)):
        return
    if f.unlogged and len(f.unlogged) >= len(f.agreeing_tops) + FEW:
        return  # the store is full of memories this log never knew: not emptied, another one
    ids = frozenset(f.lost)
    count = f"{len(f.lost):,} memories"
    lost_until = f.time_of_row(last_lost)
    until = f"the last of them was logged {shown(lost_until)}" if lost_until is not None else None
    yield (
        _dropped_by_filter(f, ids, last_lost, count)
        or _other_dimensions(f, ids, count, until)
        or _at_reboot(f, ids, count, lost_until)
        or _wiped_at_start(f, ids, count, until)
        or Incident(
            kind="emptied",
            name=_when("the vector store was emptied or replaced", lost_until, "after"),
            certainty=Certainty.LIKELY if len(f.lost) > FEW else Certainty.POSSIBLE,
            evidence=_lines(
                f"{count} that the log calls live are missing, and no older one is there",
                until,
                _born(f.reading),
            ),
            advice=_KEEP_LOG,
            codes=("D302", "L106"),
            memory_ids=ids,
        )
    )


def _dropped_by_filter(f: _Facts, ids: frozenset[str], last_lost: int, count: str) -> Incident | None:
    """After the last lost memory, and before any that is still there, stands a run of at most 100 DELETE
    rows (0.1.118 to 1.0.5)."""
    t = f.timeline
    next_agreeing = bisect_right(f.agreeing_tops, last_lost)
    low = bisect_right(t.rowids, last_lost)
    high = len(t.rowids)
    if next_agreeing < len(f.agreeing_tops):
        high = bisect_left(t.rowids, f.agreeing_tops[next_agreeing])
    start, run = next(
        ((s, n) for s, n in reversed(list(_delete_runs(t))) if low <= s and s + n <= high), (0, 0)
    )
    suspect = versions.bulk_delete_drops_collection(f.reading.agent.mem0_version)
    if not 0 < run <= OLD_BULK_LIMIT or (run < BURST and suspect is not True):
        return None
    # DELETE rows have had times since 1.0.8: a run with times was not written by the faulty versions.
    if any(not isnan(x) for x in t.times[start : start + run]):
        return None
    return Incident(
        kind="filtered-delete-dropped-all",
        name="deleting one user dropped everybody's memories",
        certainty=Certainty.CERTAIN if suspect else Certainty.LIKELY,
        evidence=_lines(
            f"{count} without a DELETE row are missing, all logged before one run of {run:,} DELETE rows",
            "delete_all of mem0 0.1.118 to 1.0.5 resets the whole collection after deleting by a filter",
            f"the agent has mem0 {f.reading.agent.mem0_version}" if suspect else None,
        ),
        advice=(
            "Before anything else: upgrade mem0 to 1.0.6 or later, or call delete_all no more.",
            *_KEEP_LOG,
        ),
        codes=("D302",),
        memory_ids=ids,
    )


def _other_dimensions(f: _Facts, ids: frozenset[str], count: str, until: str | None) -> Incident | None:
    """The collection has other dimensions than its entities, or than the configuration says."""
    home = f.reading.configured
    if home is None or home.info.dims is None:
        return None
    others = {
        e.info.dims for e in f.reading.entities if e.of == home.info.name and e.read.rows and e.info.dims
    }
    old = next((d for d in others if d != home.info.dims), None)
    if old is None:
        return None
    return Incident(
        kind="recreated-with-other-dimensions",
        name=f"the collection was dropped and made again with {home.info.dims} dimensions",
        certainty=Certainty.LIKELY,
        evidence=_lines(
            f"{count} are missing, and no older one is there",
            f"its entities still have {old} dimensions",
            until,
        ),
        advice=(f"Find what changed the embedder from {old} to {home.info.dims} dimensions.", *_KEEP_LOG),
        codes=("D302", "I211"),
        memory_ids=ids,
    )


def _at_reboot(f: _Facts, ids: frozenset[str], count: str, lost_until: float | None) -> Incident | None:
    """Everything was logged before the boot, and the place is one that a boot empties."""
    r = f.reading
    place, boot = r.vectors_place, r.boot_at
    if place is None or boot is None or lost_until is None or lost_until > boot:
        return None
    if place.exists and (place.born_at is None or place.born_at < boot):
        return None
    if any((when := f.stored_at(i)) is not None and when < boot for i in f.both.points):
        return None
    volatile = bool(place.volatile)
    at_boot = place.cleaned is not None and place.cleaned.when == "at boot"
    container = bool(place.container_layer)
    if not (volatile or at_boot or container):
        return None
    if container and not volatile:
        name = f"the store went with the container that was replaced at {shown(boot)}"
    else:
        name = f"the store was emptied by the reboot of {shown(boot)}"
    because = (
        f"it stands on {place.filesystem}, which does not survive a reboot"
        if volatile
        else f"{place.cleaned.line.split()[1]} is emptied at every boot"
        if at_boot and place.cleaned is not None
        else "it stands on the container's own layer, which goes with the container"
    )
    made = (
        f"the folder was made at {shown(place.born_at)}"
        if place.exists and place.born_at is not None
        else "the folder has not been made again"
    )
    return Incident(
        kind="emptied-at-reboot",
        name=name,
        certainty=Certainty.CERTAIN if volatile or at_boot else Certainty.LIKELY,
        evidence=(f"{count} logged before it are missing; {made}", because),
        advice=_KEEP_LOG,
        codes=("D302", "L106"),
        memory_ids=ids,
    )


def _wiped_at_start(f: _Facts, ids: frozenset[str], count: str, until: str | None) -> Incident | None:
    """The agent's mem0 deletes the folder whenever it starts."""
    agent = f.reading.agent
    if not versions.wipes_folder_at_start(agent.mem0_version, f.reading.install.on_disk):
        return None
    return Incident(
        kind="wiped-at-start",
        name=f"mem0 {agent.mem0_version} deleted the folder when it last started",
        certainty=Certainty.CERTAIN if f.reading.install.on_disk is False else Certainty.LIKELY,
        evidence=_lines(
            f"{count} that the log calls live are missing, and no older one is there",
            f"mem0 {agent.mem0_version} removes a local folder at every start unless on_disk is true",
            until,
            _born(f.reading),
        ),
        advice=(
            "Start no second Memory() on this folder, and do not restart the agent: each start deletes it.",
            "Set on_disk: true in the agent's vector_store config, or upgrade mem0 to 1.0.8 or later.",
            *_KEEP_LOG,
        ),
        codes=("D302", "L110"),
        memory_ids=ids,
    )


# --- One store is older than the other ------------------------------------------------------------


def _vectors_older(f: _Facts) -> Iterator[Incident]:
    """One stretch of the log, and nothing outside it, is not in the store: its vectors are from before."""
    resurrected, lost = f.resurrected, f.lost
    behind = tuple(i for i in f.differing if _log_is_newer(f, i))
    ids = (*resurrected, *lost, *behind)
    if (not resurrected and not (lost and behind)) or len(ids) < 2:
        return
    tops = [f.log(i).top for i in ids]
    first, last = min(tops), max(tops)
    agree = f.agreeing_tops
    if bisect_left(agree, first) != bisect_right(agree, last):
        return  # some change in between did reach the store
    # The copy is younger than everything that is in it.
    there = [f.log(i).start for i in (*resurrected, *behind)]
    before = max((*agree[: bisect_left(agree, first)][-1:], *there), default=None)
    if before is None:
        return
    # A memory that was there before and whose deletion in the stretch did reach the store says no. A bulk
    # deletion is one stretch, whichever of its rows did not arrive.
    first, last = _whole_runs(f.timeline, first, last)
    if any(log.start <= before and first <= log.top <= last for log in f.deleted):
        return
    kinds = sum(bool(x) for x in (resurrected, lost, behind))
    since = f.time_of_row(before)
    yield Incident(
        kind="vectors-older",
        name=_when("the vectors were restored from a copy", since, "of about", "; the log is newer"),
        certainty=Certainty.CERTAIN if kinds == 3 else Certainty.LIKELY,
        evidence=_lines(
            f"no change between rows {first:,} and {last:,} of the log is in the store",
            f"{len(resurrected):,} deleted memories are back" if resurrected else None,
            f"{len(lost):,} later memories are missing" if lost else None,
            f"{len(behind):,} have the text from before their last change" if behind else None,
        ),
        advice=(
            "Ask who restored or copied the vector store, and from what. The log holds the later texts.",
            *_KEEP_LOG,
        ),
        codes=tuple(code for code, x in (("D301", resurrected), ("D302", lost), ("D304", behind)) if x),
        memory_ids=frozenset(ids),
    )


def _log_is_newer(f: _Facts, memory_id: str) -> bool:
    logged = instant(f.log(memory_id).updated_at or f.log(memory_id).created_at)
    stored = f.stored_at(memory_id)
    return logged is not None and stored is not None and logged > stored


def _log_older(f: _Facts) -> Iterator[Incident]:
    """What the log lacks all falls into one stretch of time from which it has no rows."""
    ahead = tuple(i for i in f.differing if not _log_is_newer(f, i))
    stored = sorted(t for i in (*f.unlogged, *ahead) if (t := f.stored_at(i)) is not None)
    if len(f.unlogged) < 2 or not stored or not (ahead or f.lost):
        return
    rows = sorted(t for t in f.timeline.times if not isnan(t))
    before = bisect_left(rows, stored[0])
    if not before or bisect_right(rows, stored[-1]) != before:
        return
    gone = tuple(i for i in f.lost if (instant(f.log(i).updated_at or f.log(i).created_at) or 0) <= stored[0])
    ids = (*f.unlogged, *ahead, *gone)
    yield Incident(
        kind="log-older",
        name=f"the log was restored from a copy of about {shown(rows[before - 1])}; the vectors are newer",
        certainty=Certainty.CERTAIN if ahead and gone else Certainty.LIKELY,
        evidence=_lines(
            f"{len(f.unlogged):,} memories stored from {shown(stored[0])} on have no row",
            f"{len(ahead):,} have a later text than the log" if ahead else None,
            f"{len(gone):,} that the log calls live are gone: deleted in that time, probably"
            if gone
            else None,
            f"the log has no row between {shown(rows[before - 1])} and {shown(stored[-1])}",
        ),
        advice=("Ask who restored or copied history.db, and from what. The memories themselves are intact.",),
        codes=tuple(c for c, x in (("D303", True), ("D304", ahead), ("D302", gone)) if x),
        memory_ids=frozenset(ids),
    )


# --- The log is not this store's ------------------------------------------------------------------


def _log_gone(r: Reading) -> Incident | None:
    """history.db is not there, or has no rows, and the store is full."""
    count = r.memory_count
    if not count:
        return None
    missing = (
        r.history is not None
        and r.history.file.problem is not None
        and r.history.file.problem.kind == "missing"
    )
    empty = r.timeline is not None and not r.timeline.rowids
    if not missing and not empty:
        return None
    stranded = _stranded(r)
    if stranded is not None:
        return stranded
    return Incident(
        kind="log-lost",
        name="the log was lost or reset; the memories are intact",
        certainty=Certainty.CERTAIN if missing else Certainty.LIKELY,
        evidence=_lines(
            f"{count:,} memories are stored",
            f"{r.history_path} is not there" if missing else f"{r.history_path} has no rows",
        ),
        advice=(
            "Look for the old history.db before the agent writes much more: another MEM0_DIR or HOME, a backup,"
            " the old container's layer.",
        ),
        codes=("D303", "I201", "H405"),
    )


def _reset(r: Reading, check: SealCheck) -> Incident:
    """Of what was sealed neither a row nor a memory is left."""
    return Incident(
        kind="reset",
        name=f"mem0 was reset after the seal of {shown(check.seal.at)}, or both stores were replaced",
        certainty=Certainty.LIKELY,
        evidence=(
            f"of {check.seal.rows:,} sealed rows of the log none is there",
            f"of {check.seal.memories:,} sealed memories none is there",
            "Memory.reset() drops the log and the collection, and leaves no row that says so",
        ),
        advice=(
            "If it was not meant: the newest snapshot from before has both stores. Do not let the agent write much"
            " more.",
            "If it was: mem0audit audit --seal --accept REASON begins again from what is there now.",
        ),
        codes=("H408",),
    )


def _stranded(r: Reading) -> Incident | None:
    tables = [t for t in (r.history.stranded if r.history is not None else ()) if t.missing_rows]
    if not tables:
        return None
    table = max(tables, key=lambda t: t.missing_rows)
    return Incident(
        kind="stranded-log",
        name=f"a migration of the log was cut off; {table.missing_rows:,} rows are stranded in {table.name}",
        certainty=Certainty.CERTAIN,
        evidence=(
            f"table {table.name} of {r.history_path} has {table.missing_rows:,} rows that history lacks",
            "mem0 0.1.100 to 0.1.106 hang when they open a log of 0.1.99 or older, and no version reads it again",
        ),
        advice=(
            "mem0audit recover --stranded-log --dry-run",
            "Do not change the agent's mem0 before that: a later migration can drop that table.",
        ),
        codes=("I205", "D303", "H402"),
        memory_ids=frozenset(table.memory_ids),
    )


def _stranded_log(f: _Facts) -> Iterator[Incident]:
    found = _stranded(f.reading)
    if found is not None:
        yield found


def _two_installs(f: _Facts) -> Iterator[Incident]:
    """Nearly nothing that the log calls live is stored, and nearly nothing stored is logged."""
    live = f.reading.log_live_count or 0
    stored = len(f.both.points)
    known = stored - len(f.both.unlogged)
    if len(f.unlogged) < FEW or len(f.lost) < FEW:
        return
    if known > (1 - MOST) * stored or len(f.both.lost) < MOST * live:
        return
    if _is_younger_log(f):
        return
    yield Incident(
        kind="two-installs",
        name="this log and this vector store belong to two different installs",
        certainty=Certainty.CERTAIN if not known else Certainty.LIKELY,
        evidence=(
            f"{len(f.lost):,} of {live:,} memories that the log calls live are not in the store",
            f"{len(f.unlogged):,} of {stored:,} memories in the store have no row in the log",
        ),
        advice=(
            "Check the paths: --history, --qdrant-path and --collection, or --config, must name one agent's own.",
            "mem0audit status lists the other stores of this machine.",
        ),
        codes=("D302", "D303"),
        memory_ids=frozenset((*f.unlogged, *f.lost)),
    )


def _is_younger_log(f: _Facts) -> bool:
    """Everything unlogged was stored before the log's first row."""
    rows = [t for t in f.timeline.times if not isnan(t)]
    stored = [t for i in f.unlogged if (t := f.stored_at(i)) is not None]
    return bool(rows) and bool(stored) and max(stored) < min(rows)


def _log_lost(f: _Facts) -> Iterator[Incident]:
    """The log begins after the memories that it does not know."""
    if len(f.unlogged) < FEW or not _is_younger_log(f):
        return
    begins = min(t for t in f.timeline.times if not isnan(t))
    yield Incident(
        kind="log-lost",
        name=f"the log was lost or reset shortly before {shown(begins)}; the memories are intact",
        certainty=Certainty.LIKELY,
        evidence=(
            f"{len(f.unlogged):,} memories are older than the first row of the log and have no row",
            f"the log begins {shown(begins)}",
        ),
        advice=(
            "Look for the old history.db: another MEM0_DIR or HOME, a backup, the old container's layer.",
        ),
        codes=("D303", "H405"),
        memory_ids=frozenset(f.unlogged),
    )


# --- Deletions ------------------------------------------------------------------------------------


def _delete_runs(t: Timeline) -> Iterator[tuple[int, int]]:
    """Runs of DELETE rows as (first position, length)."""
    for run in re.finditer(rb"D+", t.events):
        yield run.start(), run.end() - run.start()


def _whole_runs(t: Timeline, first: int, last: int) -> tuple[int, int]:
    """The rows from `first` to `last`, widened to the ends of the runs of DELETE rows they lie in."""
    low, high = bisect_left(t.rowids, first), bisect_left(t.rowids, last)
    while low > 0 and t.events[low] == t.events[low - 1] == ord("D"):
        low -= 1
    while high + 1 < len(t.events) and t.events[high] == t.events[high + 1] == ord("D"):
        high += 1
    return t.rowids[low], t.rowids[high]


def _bulk_delete_came_back(f: _Facts) -> Iterator[Incident]:
    """Some memories of one run of DELETE rows are still stored, the others are gone."""
    if not f.resurrected:
        return
    by_top = {f.log(i).top: i for i in f.resurrected}
    t = f.timeline
    for start, length in _delete_runs(t):
        back = frozenset(by_top[row] for row in t.rowids[start : start + length] if row in by_top)
        if length < BURST or not back or len(back) == length:
            continue
        yield Incident(
            kind="bulk-delete-came-back",
            name=_when("a bulk deletion did not reach the disk", f.time_of_row(t.rowids[start]), "of"),
            certainty=Certainty.LIKELY,
            evidence=(
                f"of {length:,} memories deleted in one go {len(back):,} are still stored",
                "AsyncMemory.delete_all on a local folder reports success and loses some deletions (to 2.2.1)",
            ),
            advice=("mem0audit repair D301 --dry-run",),
            codes=("D301",),
            memory_ids=back,
        )


def _bulk_delete_stopped(f: _Facts) -> Iterator[Incident]:
    """A run of exactly 100 DELETE rows, while memories remain."""
    runs = [start for start, length in _delete_runs(f.timeline) if length == OLD_BULK_LIMIT]
    if not runs or not f.both.points:
        return
    suspect = versions.bulk_delete_stops_at_100(f.reading.agent.mem0_version)
    yield Incident(
        kind="bulk-delete-stopped",
        name=_when(
            "a bulk deletion stopped after 100 memories",
            f.time_of_row(f.timeline.rowids[runs[-1] + OLD_BULK_LIMIT - 1]),
            "at",
        ),
        certainty=Certainty.LIKELY if suspect else Certainty.POSSIBLE,
        evidence=(
            "the log has a run of exactly 100 DELETE rows",
            "delete_all before mem0 2.0.15 deletes the first 100 of a scope and reports success",
        ),
        advice=("mem0audit users shows who still has memories; delete again with mem0 2.0.15 or later.",),
        codes=(),
    )


# --- Single writes --------------------------------------------------------------------------------


def _shared_log(f: _Facts) -> Iterator[Incident]:
    """A good part of the log's memories is missing, between others that are there, and nothing is unlogged."""
    live = f.reading.log_live_count or 0
    if len(f.lost) <= FEW or len(f.lost) < SHARED * live or f.unlogged or not f.agreeing_tops:
        return
    if not _between_others(f):
        return
    yield Incident(
        kind="shared-log",
        name="another program may share this log, and keep its memories in a folder that was not found",
        certainty=Certainty.POSSIBLE,
        evidence=(
            f"{len(f.lost):,} of {live:,} memories that the log calls live are missing between others that are there",
            "one history.db serves every program with the same MEM0_DIR, whatever its folder or collection",
        ),
        advice=(
            "If you know of another agent on this MEM0_DIR, audit with its folder too before you call them lost.",
            *_KEEP_LOG,
        ),
        codes=("D302",),
        memory_ids=frozenset(f.lost),
    )


def _between_others(f: _Facts) -> bool:
    """Most of the lost memories were logged between the first and the last of those that are there."""
    tops = f.agreeing_tops
    inside = sum(1 for i in f.lost if tops[0] < f.log(i).top < tops[-1])
    return inside >= len(f.lost) / 2


def _scattered(f: _Facts) -> Iterator[Incident]:
    """More than a few faults on both sides, between changes that did arrive: writers in each other's way."""
    ids = (*f.unlogged, *f.lost)
    if len(ids) <= FEW or not f.lost or not f.agreeing_tops:
        return
    if not _between_others(f):
        return
    yield Incident(
        kind="concurrent-writers",
        name="several threads or tasks wrote to the embedded store at once, and undid each other's writes",
        certainty=Certainty.POSSIBLE,
        evidence=_lines(
            f"{len(f.lost):,} logged memories are missing between others that arrived",
            f"{len(f.unlogged):,} stored memories have no row" if f.unlogged else None,
            "qdrant-client's local mode shares one connection between threads (all versions to 1.20)",
        ),
        advice=("Give the agent one writer at a time, or a Qdrant server.", *_KEEP_LOG),
        codes=tuple(c for c, x in (("D302", f.lost), ("D303", f.unlogged)) if x),
        memory_ids=frozenset(ids),
    )


def _cut_short(f: _Facts) -> Iterator[Incident]:
    """A few faults that nothing else explains: a write that died between its two stores."""
    ahead = tuple(i for i in f.differing if not _log_is_newer(f, i))
    faults = (("D303", "add", f.unlogged), ("D304", "update", ahead), ("D302", "delete", f.lost))
    for code, what, ids in faults:
        if not 0 < len(ids) <= FEW:
            continue
        when = None if what == "delete" else f.stored_at(ids[-1])
        yield Incident(
            kind="write-cut-short",
            name=_when(
                f"an {what} was cut short"
                if what != "delete"
                else "a delete was cut short, or a memory lost",
                when,
                "at",
            ),
            certainty=Certainty.POSSIBLE if what == "delete" else Certainty.LIKELY,
            evidence=(
                f"{len(ids):,} {'memory' if len(ids) == 1 else 'memories'}: the vector store has it, the log not"
                if what != "delete"
                else f"{len(ids):,} live by the log, not stored: a DELETE row is written after the point is gone",
                "mem0 writes the vector store first and the log second, without a transaction over both",
            ),
            advice=(f"mem0audit show {ids[0]}",),
            codes=(code,),
            memory_ids=frozenset(ids),
        )


_PATTERNS: Sequence[Callable[[_Facts], Iterator[Incident]]] = (
    _stranded_log,
    _two_installs,
    _log_lost,
    _vectors_older,
    _log_older,
    _emptied,
    _bulk_delete_came_back,
    _bulk_delete_stopped,
    _shared_log,
    _scattered,
    _cut_short,
)

_KEEP_LOG = (
    "Their texts are in the log: keep a copy of history.db before anything else is tried. Then:",
    "mem0audit recover --dry-run",
)


def _lines(*lines: str | None) -> tuple[str, ...]:
    return tuple(line for line in lines if line)


def _when(what: str, at: float | None, word: str, rest: str = "") -> str:
    """A sentence with its time where that is known."""
    return f"{what} {word} {shown(at)}{rest}" if at is not None else f"{what}{rest}"


def _born(r: Reading) -> str | None:
    place = r.vectors_place
    if place is None or not place.exists or place.born_at is None:
        return None
    return f"the folder was made at {shown(place.born_at)}"
