"""What comes after a move: the agent's configuration, links at the old places, and the record that `status` reads."""

from __future__ import annotations

import time
from collections.abc import Callable

from mem0audit.core.agentconfig import AfterMove, DoneAfter, Updated
from mem0audit.core.errors import CouldNotRead, Mem0auditError
from mem0audit.core.links import LinkPlan
from mem0audit.core.moved import Move
from mem0audit.core.relocate import Relocated, RelocatePlan
from mem0audit.core.restore import Half
from mem0audit.install.host import Host, seen_through
from mem0audit.operations.agentconfig import apply_update, plan_update, refuse_unless_editable
from mem0audit.operations.links import leave_link, plan_link
from mem0audit.operations.moved import note_moves
from mem0audit.operations.verify import show_snapshot


def plan_after(
    plan: RelocatePlan, host: Host, *, update_config: bool = False, leave_links: bool = False
) -> AfterMove:
    """What would be said and done once the stores are moved as planned. Changes nothing.

    Raises Refused before anything moves: where a file cannot be changed safely, or a link would keep the agent from
    starting.
    """
    mem0 = _mem0(plan)
    advice = plan_update(
        plan.install, host, vectors=plan.where.vectors, history=plan.where.history, mem0=mem0
    )
    if update_config:
        refuse_unless_editable(advice)
    links: list[LinkPlan] = []
    if leave_links:
        for half, old, new in _halves(plan, plan.where.vectors, plan.where.history):
            links.append(plan_link(half, old, new, host, mem0=mem0, on_disk=plan.install.on_disk))
    return AfterMove(advice, update_config, tuple(links))


def apply_after(
    after: AfterMove, plan: RelocatePlan, done: Relocated, host: Host, *, now: Callable[[], float] = time.time
) -> DoneAfter:
    """Remembers the move, changes the files and leaves the links that were planned. Never raises: the stores are moved
    whatever fails here."""
    if plan.ledger:
        log = done.history if done.history_moved else None
        moves = tuple(
            Move(half, seen_through(old, host)[1], new, now(), seen_through(old, host)[0] is not None)
            for half, old, new in _halves(plan, done.vectors, log)
        )
        note_moves(moves, plan.install, host, made_before=plan.moved)
    failed = {link: _left(link) for link in after.links}
    problems = [why for why in failed.values() if why is not None]
    updated: tuple[Updated, ...] = ()
    if after.update:
        try:
            updated = apply_update(after.advice, host, now())
        except Mem0auditError as problem:
            problems.append(_sentence(problem))
    return DoneAfter(updated, tuple(link for link, why in failed.items() if why is None), tuple(problems))


def _left(link: LinkPlan) -> str | None:
    """Why a link was not left; None where it was."""
    try:
        leave_link(link)
    except Mem0auditError as problem:
        return _sentence(problem)
    return None


def _sentence(problem: Mem0auditError) -> str:
    return f"{problem.message} ({problem.hint})." if problem.hint else f"{problem.message}."


def _halves(plan: RelocatePlan, vectors: str, history: str | None) -> list[tuple[Half, str, str]]:
    """Each store that moves, from where to where."""
    assert plan.seen.vectors is not None
    found: list[tuple[Half, str, str]] = [("vectors", plan.seen.vectors.value, vectors)]
    if history is not None:
        found.append(("history", plan.seen.history.value, history))
    return found


def _mem0(plan: RelocatePlan) -> str | None:
    """The agent's mem0: as it is seen now or, once it is stopped, as it was when the pair was taken."""
    if plan.agent.mem0_version is not None or plan.pair is None:
        return plan.agent.mem0_version
    try:
        manifest = show_snapshot(None, plan.pair).manifest
    except CouldNotRead:
        return None
    return None if manifest is None else manifest.versions.get("mem0ai")
