"""What `prune` prints, for people and for machines. Never memory text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mem0audit.core.prune import RULES, Pruned, PrunePlan
from mem0audit.core.times import age
from mem0audit.report.changes import (
    after_lines,
    beside_lines,
    did_json,
    did_lines,
    left_lines,
    plan_json,
    some_lines,
    step_lines,
    way_lines,
)
from mem0audit.report.json import dump
from mem0audit.report.screen import Screen
from mem0audit.report.words import memories, plural

_REASONS = {code: reason for reason, code in RULES.items()}


def prune_plan_text(
    plan: PrunePlan,
    screen: Screen,
    *,
    to_do_it: bool = False,
    blocked: bool = True,
    flags: tuple[str, ...] = (),
) -> str:
    """What has had its time; with `to_do_it` the command that removes it, with `flags`; without `blocked` why it
    cannot be done now is said elsewhere."""
    lines: list[str] = []
    steps = plan.todo.steps
    for code in dict.fromkeys(step.code for step in steps):
        some = [step for step in steps if step.code == code]
        kept = "the log keeps its text" if len(some) == 1 else "the log keeps their texts"
        lines += screen.wrap(f"{code} {_REASONS[code]}: {memories(len(some))} to go; {kept}", hanging=3)
        lines += some_lines([step_lines(step, screen) for step in some], screen)
    if plan.todo.left:
        count = len(plan.todo.left)
        lines += screen.wrap(f"{plural(count, 'memory', 'memories')} left to decide", hanging=3)
        lines += some_lines([left_lines(one, screen) for one in plan.todo.left], screen)
    lines += _not_due(plan, screen)
    if not steps:
        lines.append("Nothing to prune.")
        return "\n".join(lines) + "\n"
    lines += beside_lines(plan, screen)
    lines += way_lines(plan, screen, blocked=blocked)
    if plan.blocked is not None and not blocked:
        lines.append("Nothing was changed.")
    if to_do_it:
        lines.append(f"To do it:   {screen.command('prune', *flags)}")
    return "\n".join(lines) + "\n"


def _not_due(plan: PrunePlan, screen: Screen) -> list[str]:
    lines: list[str] = []
    found = plan.backlog
    if found.later:
        stay = "stays" if found.later == 1 else "stay"
        lines += screen.wrap(
            f"{memories(found.later)} expired less than {age(plan.older_than_s)} ago: {stay}.", hanging=2
        )
    if found.kept_dates:
        lines += screen.wrap(
            f"mem0 {plan.mem0} knows no expiration date and goes on answering from {memories(found.kept_dates)} whose "
            "date has passed: it is somebody's own, and they stay. If they are to go:",
            hanging=2,
        )
        lines.append(f"   {screen.command('repair', 'T701')}")
    for name, count in found.elsewhere.items():
        lines += screen.wrap(
            f"The collection {name} has {memories(count)} that had their time: name it with --collection.",
            hanging=2,
        )
    for said in found.left_out:
        lines += screen.wrap(said, hanging=2)
    return lines


def pruned_text(done: Pruned, screen: Screen) -> str:
    """What was removed, and what was seen afterwards."""
    if not done.plan.todo.steps:
        return prune_plan_text(done.plan, screen)
    did = done.changed
    lines = did_lines(did, screen)
    stay = {step.id for step in did.remaining}
    counts = Counter(_REASONS[step.code] for step in done.plan.todo.steps if step.id not in stay)
    why = ", ".join(f"{counts[reason]:,} {reason}" for reason in RULES if counts[reason])
    lines += screen.wrap(f"Why: {why}.", hanging=3)
    if did.remaining:
        lines += screen.wrap(f"{memories(len(did.remaining))} still there:", hanging=3)
        lines += some_lines([step_lines(step, screen) for step in did.remaining], screen)
        lines.append(f"   {screen.command('audit')}")
    else:
        lines += screen.wrap("Read again: all of them are gone, and no other row changed.", hanging=3)
    if done.plan.todo.left:
        lines += screen.wrap(
            f"{memories(len(done.plan.todo.left))} left to decide: add --dry-run.", hanging=3
        )
    lines += _not_due(done.plan, screen)
    lines += after_lines(did, screen)
    return "\n".join(lines) + "\n"


# --- For machines ------------------------------------------------------------------------------------


def prune_plan_json(plan: PrunePlan) -> str:
    """What has had its time."""
    return dump("prune-plan", _plan(plan))


def pruned_json(done: Pruned) -> str:
    """What was removed."""
    return dump("prune", {**_plan(done.plan), **did_json(done.changed, done.plan.mem0)})


def _plan(plan: PrunePlan) -> dict[str, Any]:
    body = plan_json(plan)
    for step in body["steps"]:
        step["reason"] = _REASONS[step["code"]]
    return {
        **body,
        "older_than_seconds": plan.older_than_s,
        "later": plan.backlog.later,
        "date_not_known_to_mem0": plan.backlog.kept_dates,
        "elsewhere": dict(plan.backlog.elsewhere),
        "in_use": plan.in_use,
        "unused": plan.unused,
        "left_out": list(plan.backlog.left_out),
    }
