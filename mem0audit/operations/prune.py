"""Removes memories that have had their time, through mem0, after a snapshot: `repair` for a timer.

What is to go is read from the stores themselves (`core/prune.py`), so that a run that was cut off is gone on with by
the next one. With the agent running there are two ways: the job that stops it, and a call inside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mem0audit.core.changes import Step, Steps
from mem0audit.core.errors import Refused
from mem0audit.core.ledger import UNUSED_S
from mem0audit.core.model import Install, NotChecked, PointId
from mem0audit.core.prune import Backlog, FromLedger, Pruned, PrunePlan, backlog, record_of, stale
from mem0audit.core.reading import Reading
from mem0audit.core.rules.validity import why_broken
from mem0audit.core.times import instant
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.changes import (
    WayIn,
    apply_inside,
    apply_steps,
    cut_off,
    erased_and_back,
    look_whole,
    no_snapshot,
    undecodable,
    way_in,
)
from mem0audit.operations.look import Progress, no_collector, no_progress
from mem0audit.operations.mem0door import Door, inside
from mem0audit.stores.ledger import CannotUse


def plan_prune(
    install: Install,
    host: Host,
    *,
    older_than_s: float = 0.0,
    unused: bool = False,
    folder: str | None,
    progress: Progress | None = None,
    door: Door | None = None,
) -> PrunePlan:
    """What has had its time, and what would become of it: expired so long ago, superseded, with `unused` unused too.

    Reads everything, changes neither store; the agent may be running. `folder` is where the snapshot goes that is taken
    first. Why nothing can be removed now is in the plan (`blocked`). `door` is for a caller that has the install open
    itself. Raises Refused for a vector store that is no Qdrant, CouldNotRead where one of the two stores could not be
    read whole.
    """
    if install.vectors is None and install.server_url is None:
        raise Refused(f"the vector store is {install.provider}: this version prunes those of Qdrant only")
    way = way_in(install, host) if door is None else WayIn(door, cut_off(install, host), None)
    door, blocked = way.door, way.blocked
    if way.in_use and blocked is not None:
        here = "Or inside the agent, while it runs:\n  mem0audit.prune(memory)"
        blocked = blocked[0], "\n".join(filter(None, (blocked[1], here)))
    asked = _Asked(folder, older_than_s, unused)
    reading, found, _ = _backlog(install, host, asked, way.mem0, progress or no_progress)
    if found.todo.steps:
        blocked = blocked or undecodable(reading) or no_snapshot(install, host, folder)
    return PrunePlan(
        install=reading.install,
        older_than_s=older_than_s,
        backlog=found,
        mem0=way.mem0,
        interpreter=door.interpreter if door is not None else None,
        how_found=door.source if door is not None else "",
        own=door is not None and door.own,
        folder=folder,
        blocked=blocked,
        unseen=way.unseen,
        in_use=way.in_use,
        unused=unused,
    )


@dataclass(frozen=True)
class _Asked:
    folder: str | None
    older_than_s: float
    unused: bool


def _backlog(
    install: Install, host: Host, asked: _Asked, mem0: str | None, say: Progress
) -> tuple[Reading, Backlog, FromLedger]:
    with no_collector():
        reading = look_whole(install, host, say)
    erased = erased_and_back(reading, host, asked.folder)
    reading, known = _from_ledger(install, host, reading, unused=asked.unused)
    found = backlog(
        reading,
        host.now,
        older_than_s=asked.older_than_s,
        unused=asked.unused,
        mem0=mem0,
        erased=erased,
        ledger=known,
    )
    return reading, found, known


def _from_ledger(
    install: Install, host: Host, reading: Reading, *, unused: bool
) -> tuple[Reading, FromLedger]:
    """What the ledger says of what is stored, once it knows of it: a day that was moved in mem0 is the newer word."""
    with ledgers.opened(install, host) as book:
        if book is None:
            return reading, FromLedger()
        if isinstance(book, NotChecked):
            return reading, FromLedger(why_not=book.why)
        problem = ledgers.note_seen(book, reading, host.now)
        if problem is not None:
            return reading, FromLedger(why_not=problem.why)
        try:
            since = book.used_since()
            on_record = since is not None and host.now - since >= UNUSED_S
            idle = frozenset(book.unused(host.now)) if unused and on_record else None
            kept = book.kept(host.now)
            rows = book.memories(kept.expired | kept.superseded.keys() | (idle or frozenset()))
        except CannotUse as error:
            return reading, FromLedger(why_not=f"{book.path}: {error.why}")
    reading = replace(reading, kept=kept)
    ids = {*kept.superseded, *kept.successors.values()}
    stored = {i: home for i in ids for home in reading.memories if i in home.by_id}
    why = {i: why_broken(reading, kept, i, stored) for i in kept.superseded}
    broken = {i: said for i, said in why.items() if said is not None}
    return reading, FromLedger(rows, idle, broken)


def apply_prune(
    plan: PrunePlan, host: Host, *, progress: Progress | None = None, now: Callable[[], float] = time.time
) -> Pruned:
    """Removes what was planned: a snapshot first, then everything through mem0, then the proof.

    Nothing is done where the plan has no steps. Raises Refused where it is blocked, where somebody has the install
    open, or where the stores are not as they were when it was planned; Failed where it did not come to its end (what
    was done before stands), or where something else changed meanwhile.
    """
    say = progress or no_progress
    if not plan.todo.steps:
        return Pruned(plan)
    if plan.blocked is not None:
        raise Refused(*plan.blocked)
    install, folder = plan.install, plan.folder
    assert folder is not None
    asked = _Asked(folder, plan.older_than_s, plan.unused)

    def now_there(mem0: str) -> Steps:
        return _backlog(install, host, asked, mem0, say)[1].todo

    def remaining() -> tuple[Step, ...]:
        there = {step.id for step in now_there(plan.mem0 or "").steps}
        return tuple(step for step in plan.todo.steps if step.id in there)

    changed = apply_steps(
        install,
        host,
        plan.todo,
        folder,
        "prune",
        again=lambda door: now_there(door.mem0),
        remaining=remaining,
        progress=say,
        now=now,
    )
    return Pruned(plan, changed)


# --- Inside the agent ------------------------------------------------------------------------------


def prune_inside(
    memory: Any,
    host: Host,
    *,
    older_than_s: float = 0.0,
    unused: bool = False,
    folder: str | None,
    progress: Progress | None = None,
) -> Pruned:
    """The same through a `Memory` or `AsyncMemory` that is open in this process; its other threads go on.

    A memory whose day was moved meanwhile stays, and one that was used, written anew, or found to hold after all. The
    snapshot is taken in this process: nothing here gives back a lock that SQLite holds for the agent
    (`stores/files.py`, `close_source`). Raises what `plan_prune` and `apply_prune` raise, UsageProblem where `memory`
    is none.
    """
    say = progress or no_progress
    install, door, live = inside(memory, host)
    plan = plan_prune(
        install,
        host,
        older_than_s=older_than_s,
        unused=unused,
        folder=folder,
        progress=progress,
        door=door,
    )
    if not plan.todo.steps:
        return Pruned(plan)
    if plan.blocked is not None:
        raise Refused(*plan.blocked)
    assert folder is not None

    days: dict[str, Any] = {}
    use_known = False

    def again() -> Steps:
        nonlocal use_known
        reading, found, known = _backlog(
            plan.install, host, _Asked(folder, older_than_s, unused), door.mem0, say
        )
        home = reading.configured
        days.update({str(i): p.expires for i, p in home.read.rows.items() if p.expires} if home else {})
        use_known = known.unused is not None
        return found.todo

    with ledgers.opened(plan.install, host) as book:

        def still(point_id: PointId, payload: Mapping[str, Any]) -> bool:
            day, fact = payload.get("expiration_date"), None
            with suppress(CannotUse):
                if book is not None and not isinstance(book, NotChecked):
                    fact = book.memories([str(point_id)]).get(str(point_id))
            is_new = fact is not None and payload.get("hash") not in (None, fact.fact.hex())
            if is_new or str(day or None) != str(days.get(str(point_id))):
                fact = None  # it speaks of another text, or day
            created = instant(payload.get("created_at"))
            record = record_of(point_id, "", day, fact, created_at=created, use_known=use_known)
            return stale(record, host.now, older_than_s=older_than_s, unused=unused) is not None

        done = apply_inside(
            plan.install, host, (door, live), plan.todo, folder, again=again, still=still, progress=say
        )
    return Pruned(plan, done)
