"""What `repair` and `prune` say alike: their steps, through what and after what they are done, and what came of it."""

from __future__ import annotations

from typing import Any, Final

from mem0audit.core.changes import Changed, Step, Undecided
from mem0audit.core.prune import PrunePlan
from mem0audit.core.repair import RepairPlan
from mem0audit.report.escape import escape
from mem0audit.report.json import install
from mem0audit.report.screen import Screen
from mem0audit.report.words import memories, plural, seconds

MOST: Final = 10
"""So many memories of a rule, without --verbose."""


def some_lines(blocks: list[list[str]], screen: Screen) -> list[str]:
    """The first of them, or all with --verbose."""
    shown = blocks if screen.verbose else blocks[:MOST]
    lines = [line for block in shown for line in block]
    if len(blocks) > len(shown):
        lines.append(f"   …  {len(blocks) - len(shown):,} more: --verbose")
    return lines


def step_lines(step: Step, screen: Screen) -> list[str]:
    """One step."""
    return line_of(str(step.id), (step.owner, step.why), screen)


def left_lines(one: Undecided, screen: Screen) -> list[str]:
    """One that is left to decide."""
    return line_of(one.id, (one.why,), screen)


def line_of(name: str, parts: tuple[str, ...], screen: Screen) -> list[str]:
    """An id and what is said of it."""
    whole = "  ".join((f"   {escape(name)}", *map(escape, parts)))
    if len(whole) <= screen.width:
        return [whole]
    return [f"   {escape(name)}", *screen.wrap("  ".join(parts), 6, 6)]


def beside_lines(plan: RepairPlan | PrunePlan, screen: Screen) -> list[str]:
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


def way_lines(plan: RepairPlan | PrunePlan, screen: Screen, *, blocked: bool = True) -> list[str]:
    """Under which mem0 it is done, the snapshot before, and (with `blocked`) why not now."""
    lines = []
    if plan.mem0 is not None:
        found = "mem0audit's own" if plan.own else f"{plan.interpreter}, {plan.how_found}"
        lines += screen.wrap(f"Through mem0 {plan.mem0} ({found}).", hanging=2)
    if plan.folder is not None and plan.blocked is None:
        lines += screen.wrap(
            f"First a snapshot of both stores is taken, into {plan.folder}. It keeps what is removed here: what a "
            "person wants gone is for `mem0audit delete`.",
            hanging=2,
        )
    if plan.unseen is not None:
        lines += screen.wrap(
            f"No process is seen with it open, but {plan.unseen}: the lock that the agent takes decides."
        )
    if plan.blocked is not None and blocked:
        message, hint = plan.blocked
        lines += screen.wrap(f"Not now: {message}.", hanging=2)
        lines += [f"   {line}" for line in screen.ours(escape_lines(hint)).splitlines()] if hint else []
    return lines


def escape_lines(text: str) -> str:
    """Escaped, line by line."""
    return "\n".join(map(escape, text.split("\n")))


def did_lines(did: Changed, screen: Screen) -> list[str]:
    """What was done, in a sentence."""
    parts = []
    if did.deleted:
        parts.append(f"{memories(did.deleted)} deleted")
    if did.rewritten:
        parts.append(f"{memories(did.rewritten)} written again")
    if did.entities:
        parts.append(f"{plural(did.entities, 'entity', 'entities')} deleted")
    if did.links:
        parts.append(f"{plural(did.links, 'link')} taken from entities that stay")
    return screen.wrap(
        f"{', '.join(parts) or 'Nothing changed'}, through mem0 {did.mem0}. {seconds(did.seconds)}",
        hanging=3,
    )


def after_lines(did: Changed, screen: Screen) -> list[str]:
    """What is to be known afterwards."""
    lines = []
    for one in did.warnings:
        lines += screen.wrap(one, hanging=2)
    if did.snapshot is not None:
        lines += screen.wrap(f"As it was before: {did.snapshot}", hanging=3)
    return lines


# --- For machines ------------------------------------------------------------------------------------


def plan_json(plan: RepairPlan | PrunePlan) -> dict[str, Any]:
    """What is in both plans."""
    return {
        "install": install(plan.install),
        "mem0": plan.mem0,
        "agent_python": plan.interpreter,
        "agent_known_by": plan.how_found or None,
        "steps": [step_json(step) for step in plan.todo.steps],
        "entities": [
            {"id": str(one), "links": len(links), "deleted": one in plan.todo.emptied}
            for one, links in plan.todo.unlink.items()
        ],
        "undecided": [{"code": one.code, "id": one.id, "why": one.why} for one in plan.todo.left],
        "snapshot_folder": plan.folder,
        "blocked": None if plan.blocked is None else {"why": plan.blocked[0], "hint": plan.blocked[1]},
        "unseen": plan.unseen,
    }


def step_json(step: Step) -> dict[str, Any]:
    """One step."""
    return {
        "code": step.code,
        "kind": step.kind,
        "id": str(step.id),
        "owner": step.owner,
        "why": step.why,
        "keeps": step.keeps,
    }


def did_json(did: Changed, planned: str | None) -> dict[str, Any]:
    """What was done; `planned` is the mem0 of the plan."""
    return {
        "mem0": did.mem0 or planned,
        "python": did.python or None,
        "snapshot": did.snapshot,
        "done": {
            "deleted": did.deleted,
            "rewritten": did.rewritten,
            "entities": did.entities,
            "links": did.links,
        },
        "remaining": [step_json(step) for step in did.remaining],
        "warnings": list(did.warnings),
        "seconds": round(did.seconds, 3),
    }
