"""Removes memories that have had their time, through mem0, after a snapshot: `repair` for a timer.

What is to go is read from the stores themselves (`core/prune.py`), so that a run that was cut off is gone on with by
the next one. With the agent running there are two ways: the job that stops it, and a call inside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from mem0audit.core.changes import Step, Steps
from mem0audit.core.errors import Refused
from mem0audit.core.model import Install
from mem0audit.core.prune import Backlog, Pruned, PrunePlan, backlog, hidden_since
from mem0audit.install.host import Host
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


def plan_prune(
    install: Install,
    host: Host,
    *,
    older_than_s: float = 0.0,
    folder: str | None,
    progress: Progress | None = None,
    door: Door | None = None,
) -> PrunePlan:
    """What has had its time, at least so long ago, and what would become of it.

    Reads everything, changes nothing; the agent may be running. `folder` is where the snapshot goes that is taken
    first. Why nothing can be removed now is in the plan (`blocked`). `door` is for a caller that has the install open
    itself. Raises Refused for a vector store that is no folder, CouldNotRead where one of the two stores could not be
    read whole.
    """
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        raise Refused(f"the vector store is {what}: this version prunes embedded Qdrant folders only")
    way = way_in(install, host) if door is None else WayIn(door, cut_off(install, host), None)
    door, blocked = way.door, way.blocked
    if way.in_use and blocked is not None:
        here = "Or inside the agent, while it runs:\n  mem0audit.prune(memory)"
        blocked = blocked[0], "\n".join(filter(None, (blocked[1], here)))
    reading, found = _backlog(install, host, folder, way.mem0, older_than_s, progress or no_progress)
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
    )


def _backlog(
    install: Install, host: Host, folder: str | None, mem0: str | None, older_than_s: float, say: Progress
) -> tuple[Any, Backlog]:
    with no_collector():
        reading = look_whole(install, host, say)
    erased = erased_and_back(reading, host, folder)
    return reading, backlog(reading, host.now, older_than_s=older_than_s, mem0=mem0, erased=erased)


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

    def now_there(mem0: str) -> Steps:
        return _backlog(install, host, folder, mem0, plan.older_than_s, say)[1].todo

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
    folder: str | None,
    progress: Progress | None = None,
) -> Pruned:
    """The same through a `Memory` or `AsyncMemory` that is open in this process; its other threads go on.

    A memory whose day was moved meanwhile stays. The snapshot is taken in this process: nothing here gives back a lock
    that SQLite holds for the agent (`stores/files.py`, `close_source`). Raises what `plan_prune` and `apply_prune`
    raise, UsageProblem where `memory` is none.
    """
    say = progress or no_progress
    install, door, live = inside(memory, host)
    plan = plan_prune(install, host, older_than_s=older_than_s, folder=folder, progress=progress, door=door)
    if not plan.todo.steps:
        return Pruned(plan)
    if plan.blocked is not None:
        raise Refused(*plan.blocked)
    assert folder is not None

    def again() -> Steps:
        return _backlog(plan.install, host, folder, door.mem0, older_than_s, say)[1].todo

    def still(payload: Mapping[str, Any]) -> bool:
        since = hidden_since(payload.get("expiration_date"))
        return since is not None and host.now - since >= older_than_s

    done = apply_inside(
        plan.install, host, (door, live), plan.todo, folder, again=again, still=still, progress=say
    )
    return Pruned(plan, done)
