"""What `repair` prints, for people and for machines. Never memory text."""

from __future__ import annotations

from typing import Any, Final

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.repair import EXPLAINED, REPAIRED, Repaired, RepairPlan
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

_DOES: Final = {
    "D301": (
        "is deleted again; the log gets a second DELETE row",
        "are deleted again; the log gets DELETE rows",
    ),
    "D305": ("gets its hash anew, by an update that keeps text and vectors",) * 2,
    "C601": ("is deleted, and its copy stays", "are deleted, and one copy of each stays"),
    "E501": ("is deleted", "are deleted"),
    "E502": ("loses its dead links", "lose their dead links"),
    "T701": ("is deleted; the log keeps the text", "are deleted; the log keeps their texts"),
}
_NOT: Final = {
    "D302": (
        "Nothing is done. The stores cannot tell a loss, an add that was never stored and a deletion cut short before "
        "its row from each other. If one is missed:",
        "mem0audit recover --dry-run",
    ),
    "D303": (
        "Nothing has to be done: they are found, updated and deleted like any other. No row is made up for them. Each:",
        "mem0audit show MEMORY_ID",
    ),
}


def repair_plan_text(
    plan: RepairPlan, screen: Screen, *, to_do_it: bool = False, flags: tuple[str, ...] = ()
) -> str:
    """What a repair would do, rule by rule; with `to_do_it` the command that does it, with `flags`."""
    lines: list[str] = []
    for code in sorted((*REPAIRED, *EXPLAINED), key=lambda code: -CATALOGUE[code].severity):
        lines += _rule(code, plan, screen)
    lines += beside_lines(plan, screen)
    if plan.others:
        some = ", ".join(f"{code} ({count:,})" for code, count in sorted(plan.others.items()))
        first = next(iter(sorted(plan.others)))
        lines += screen.wrap(f"Not repaired by this command, for a person has to decide: {some}.", hanging=2)
        lines += [f"   {screen.ours(f'mem0audit explain {first}')}"]
    for one in plan.unknown:
        lines += screen.wrap(f"Of {one} nothing is found that is repaired here.", hanging=2)
    if not plan.todo.steps:
        lines += [_nothing(plan)]
        return "\n".join(lines) + "\n"
    for one in plan.events:
        lines += screen.wrap(f"See first what happened: {one}.", hanging=2)
    if plan.events:
        lines += [f"   {screen.command('audit')}"]
    lines += way_lines(plan, screen)
    if to_do_it:
        lines += [_command(plan, screen, flags)]
    return "\n".join(lines) + "\n"


def _nothing(plan: RepairPlan) -> str:
    if plan.todo.left:
        return "Nothing is changed."
    asked = ", ".join(sorted(plan.wanted.codes))
    return f"Nothing to repair{': no ' + asked if asked else ''}."


def _rule(code: str, plan: RepairPlan, screen: Screen) -> list[str]:
    steps = [step for step in plan.todo.steps if step.code == code]
    left = [one for one in plan.todo.left if one.code == code]
    if not (steps or left):
        return []
    title = f"{code} {CATALOGUE[code].name}"
    lines = []
    if steps:
        does = _DOES[code][len(steps) > 1]
        what = plural(len(steps), "entity", "entities") if code[0] == "E" else memories(len(steps))
        lines += screen.wrap(f"{title}: {what} {does}", hanging=3)
        lines += some_lines([step_lines(step, screen) for step in steps], screen)
    if left and code in _NOT:
        why, command = _NOT[code]
        lines += screen.wrap(f"{title}, {len(left):,}: {why}", hanging=3)
        lines += [f"   {screen.ours(command)}"]
        lines += some_lines([left_lines(one, screen) for one in left], screen)
    elif left:
        lines += screen.wrap(f"{title}, {len(left):,} of which nothing is done", hanging=3)
        lines += some_lines([left_lines(one, screen) for one in left], screen)
    return lines


def _command(plan: RepairPlan, screen: Screen, flags: tuple[str, ...]) -> str:
    if plan.wanted:
        return f"To do it:   {screen.command('repair', *sorted(plan.wanted.codes), *sorted(plan.wanted.ids), *flags)}"
    first = plan.todo.steps[0].code
    return f"Nothing is done but for rules or ids that you name:   {screen.command('repair', first, *flags)}"


def repaired_text(done: Repaired, screen: Screen) -> str:
    """What a repair did, and what was seen afterwards."""
    if not done.plan.todo.steps:
        return repair_plan_text(done.plan, screen)
    did = done.changed
    lines = did_lines(did, screen)
    if did.remaining:
        lines += screen.wrap(f"{len(did.remaining):,} findings are still there:", hanging=3)
        lines += some_lines([step_lines(step, screen) for step in did.remaining], screen)
        lines += [f"   {screen.command('audit')}"]
    else:
        lines += screen.wrap(
            "Read again: what was asked for is not found any more, and no other row changed.", hanging=3
        )
    if done.plan.todo.left:
        count = len(done.plan.todo.left)
        lines += screen.wrap(
            f"{plural(count, 'finding')} left to decide, as the plan says: add --dry-run.", hanging=3
        )
    lines += after_lines(did, screen)
    return "\n".join(lines) + "\n"


# --- For machines ------------------------------------------------------------------------------------


def repair_plan_json(plan: RepairPlan) -> str:
    """What a repair would do."""
    return dump("repair-plan", _plan(plan))


def repaired_json(done: Repaired) -> str:
    """What a repair did."""
    did = done.changed
    return dump(
        "repair",
        {
            **_plan(done.plan),
            **did_json(did, done.plan.mem0),
        },
    )


def _plan(plan: RepairPlan) -> dict[str, Any]:
    return {
        **plan_json(plan),
        "asked": {"codes": sorted(plan.wanted.codes), "ids": sorted(plan.wanted.ids)},
        "events": list(plan.events),
        "others": dict(sorted(plan.others.items())),
        "unknown": list(plan.unknown),
    }
