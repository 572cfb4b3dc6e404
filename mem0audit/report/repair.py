"""What `repair` prints, for people and for machines. Never memory text."""

from __future__ import annotations

from typing import Any, Final

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.repair import EXPLAINED, REPAIRED, Repaired, RepairPlan, Step, Undecided
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, install
from mem0audit.report.screen import Screen
from mem0audit.report.words import memories, plural, seconds

MOST: Final = 10
"""So many memories of a rule, without --verbose."""

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
    lines += _entities(plan, screen)
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
    if plan.mem0 is not None:
        found = "mem0audit's own" if plan.own else f"{plan.interpreter}, {plan.how_found}"
        lines += screen.wrap(f"Through mem0 {plan.mem0} ({found}).", hanging=2)
    if plan.folder is not None and plan.blocked is None:
        lines += screen.wrap(
            f"First a snapshot of both stores is taken, into {plan.folder}. It keeps what is removed here: what a "
            "person wants gone is for `mem0audit delete`.",
            hanging=2,
        )
    if plan.install.vectors is None and plan.install.server_url is not None:
        lines += screen.wrap(
            f"Who else writes to {plan.install.server_url.value} cannot be seen from here: everything is looked at "
            "again at the end, and what else changed is said."
        )
    elif plan.unseen is not None:
        lines += screen.wrap(
            f"No process is seen with it open, but {plan.unseen}: the lock that the agent takes decides."
        )
    if plan.blocked is not None:
        message, hint = plan.blocked
        lines += screen.wrap(f"Not now: {message}.", hanging=2)
        lines += [f"   {line}" for line in screen.ours(escape_lines(hint)).splitlines()] if hint else []
    if to_do_it:
        lines += [_command(plan, screen, flags)]
    return "\n".join(lines) + "\n"


def escape_lines(text: str) -> str:
    """Escaped, line by line."""
    return "\n".join(map(escape, text.split("\n")))


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
        lines += _some([_step(step, screen) for step in steps], screen)
    if left and code in _NOT:
        why, command = _NOT[code]
        lines += screen.wrap(f"{title}, {len(left):,}: {why}", hanging=3)
        lines += [f"   {screen.ours(command)}"]
        lines += _some([_left(one, screen) for one in left], screen)
    elif left:
        lines += screen.wrap(f"{title}, {len(left):,} of which nothing is done", hanging=3)
        lines += _some([_left(one, screen) for one in left], screen)
    return lines


def _some(blocks: list[list[str]], screen: Screen) -> list[str]:
    shown = blocks if screen.verbose else blocks[:MOST]
    lines = [line for block in shown for line in block]
    if len(blocks) > len(shown):
        lines.append(f"   …  {len(blocks) - len(shown):,} more: --verbose")
    return lines


def _step(step: Step, screen: Screen) -> list[str]:
    return _line(str(step.id), (step.owner, step.why), screen)


def _left(one: Undecided, screen: Screen) -> list[str]:
    return _line(one.id, (one.why,), screen)


def _line(name: str, parts: tuple[str, ...], screen: Screen) -> list[str]:
    whole = "  ".join((f"   {escape(name)}", *map(escape, parts)))
    if len(whole) <= screen.width:
        return [whole]
    return [f"   {escape(name)}", *screen.wrap("  ".join(parts), 6, 6)]


def _entities(plan: RepairPlan, screen: Screen) -> list[str]:
    """What the deletions take from entities, beside the steps about entities themselves."""
    named = {step.id for step in plan.todo.steps if step.kind == "unlink"}
    beside = [one for one in plan.todo.unlink if one not in named]
    if not beside:
        return []
    gone = [one for one in beside if one in plan.todo.emptied]
    said = []
    if gone:
        said.append(
            f"{plural(len(gone), 'entity', 'entities')} that {'links' if len(gone) == 1 else 'link'} nothing else"
        )
    if len(beside) > len(gone):
        links = sum(len(plan.todo.unlink[one]) for one in beside if one not in plan.todo.emptied)
        said.append(f"{plural(links, 'link')} of entities that stay")
    return screen.wrap(f"With them go, in the entities: {', '.join(said)}.", hanging=2)


def _command(plan: RepairPlan, screen: Screen, flags: tuple[str, ...]) -> str:
    if plan.wanted:
        return f"To do it:   {screen.command('repair', *sorted(plan.wanted.codes), *sorted(plan.wanted.ids), *flags)}"
    first = plan.todo.steps[0].code
    return f"Nothing is done but for rules or ids that you name:   {screen.command('repair', first, *flags)}"


def repaired_text(done: Repaired, screen: Screen) -> str:
    """What a repair did, and what was seen afterwards."""
    if not done.plan.todo.steps:
        return repair_plan_text(done.plan, screen)
    parts = []
    if done.deleted:
        parts.append(f"{memories(done.deleted)} deleted")
    if done.rewritten:
        parts.append(f"{memories(done.rewritten)} written again")
    if done.entities:
        parts.append(f"{plural(done.entities, 'entity', 'entities')} deleted")
    if done.links:
        parts.append(f"{plural(done.links, 'link')} taken from entities that stay")
    lines = screen.wrap(
        f"{', '.join(parts) or 'Nothing changed'}, through mem0 {done.mem0}. {seconds(done.seconds)}",
        hanging=3,
    )
    if done.remaining:
        lines += screen.wrap(f"{len(done.remaining):,} findings are still there:", hanging=3)
        lines += _some([_step(step, screen) for step in done.remaining], screen)
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
    for one in done.warnings:
        lines += screen.wrap(one, hanging=2)
    if done.snapshot is not None:
        lines += screen.wrap(f"As it was before: {done.snapshot}", hanging=3)
    return "\n".join(lines) + "\n"


# --- For machines ------------------------------------------------------------------------------------


def repair_plan_json(plan: RepairPlan) -> str:
    """What a repair would do."""
    return dump("repair-plan", _plan(plan))


def repaired_json(done: Repaired) -> str:
    """What a repair did."""
    return dump(
        "repair",
        {
            **_plan(done.plan),
            "mem0": done.mem0 or done.plan.mem0,
            "python": done.python or None,
            "snapshot": done.snapshot,
            "done": {
                "deleted": done.deleted,
                "rewritten": done.rewritten,
                "entities": done.entities,
                "links": done.links,
            },
            "remaining": [_step_json(step) for step in done.remaining],
            "warnings": list(done.warnings),
            "seconds": round(done.seconds, 3),
        },
    )


def _plan(plan: RepairPlan) -> dict[str, Any]:
    blocked = None if plan.blocked is None else {"why": plan.blocked[0], "hint": plan.blocked[1]}
    return {
        "install": install(plan.install),
        "asked": {"codes": sorted(plan.wanted.codes), "ids": sorted(plan.wanted.ids)},
        "mem0": plan.mem0,
        "agent_python": plan.interpreter,
        "agent_known_by": plan.how_found or None,
        "steps": [_step_json(step) for step in plan.todo.steps],
        "entities": [
            {"id": str(one), "links": len(links), "deleted": one in plan.todo.emptied}
            for one, links in plan.todo.unlink.items()
        ],
        "undecided": [{"code": one.code, "id": one.id, "why": one.why} for one in plan.todo.left],
        "events": list(plan.events),
        "others": dict(sorted(plan.others.items())),
        "unknown": list(plan.unknown),
        "snapshot_folder": plan.folder,
        "blocked": blocked,
        "unseen": plan.unseen,
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "code": step.code,
        "kind": step.kind,
        "id": str(step.id),
        "owner": step.owner,
        "why": step.why,
        "keeps": step.keeps,
    }
