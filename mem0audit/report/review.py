"""What `review` shows: memories with their text, for that is what a person is asked of; JSON has it where asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mem0audit.core.points import clipped, shown_owner
from mem0audit.core.times import age, shown
from mem0audit.operations.review import Due, Near, Queue, ReplacePlan
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, install
from mem0audit.report.ledger import UNKNOWN, fact_json, said_by
from mem0audit.report.screen import Screen
from mem0audit.report.words import memories

LONGEST: Final = 1_500
"""Characters of a text that are shown."""


def queue_text(found: Queue, screen: Screen) -> str:
    """The queue, one memory after the other; empty with `quiet` where there is none."""
    if screen.quiet and not (found.due or found.to_delete):
        return ""
    lines = summary(found, screen)
    for number, one in enumerate(found.due, 1):
        lines += ["", *due_lines(one, number, found, screen)]
    if found.due:
        lines += ["", "Of each:"]
        lines += [
            f"   {screen.command('review confirm')} ID --source SOURCE",
            f"   {screen.command('review expire')} ID --in 7d",
            f"   {screen.command('review replace')} ID TEXT --source SOURCE",
            f"   {screen.command('review delete')} ID",
        ]
    return "\n".join(lines) + "\n"


def summary(found: Queue, screen: Screen) -> list[str]:
    """How many wait, and what is decided and not done."""
    lines = []
    if not found.waiting:
        lines += screen.wrap(f"Nothing to review: every memory was confirmed in the last {found.days} days.")
    else:
        more = f", the first {len(found.due):,} below" if len(found.due) < found.waiting else ""
        lines += screen.wrap(
            f"{memories(found.waiting)} not confirmed for {found.days} days, {found.no_source:,} of an unknown "
            f"source{more}."
        )
    if found.to_delete:
        lines += screen.wrap(
            f"{memories(len(found.to_delete))} that somebody decided to delete in a review, and still there:"
        )
        lines += [f"   {delete_command(found.to_delete, screen)}"]
    if found.not_compared:
        lines += screen.wrap(
            f"Close ones were looked for among an owner's newest; {memories(found.not_compared)} not compared.",
            hanging=2,
        )
    return lines


def delete_command(ids: Sequence[str], screen: Screen) -> str:
    """The command that deletes these."""
    return screen.command("delete", *(word for one in ids for word in ("--memory", one)))


def due_lines(one: Due, number: int, found: Queue, screen: Screen) -> list[str]:
    """One memory, and what is close to it beside it."""
    fact = one.fact
    head = f"{number:>3}  {escape(one.memory_id)}"
    parts = [
        f"source {fact.source or UNKNOWN}",
        *said_by(fact),
        _confirmed(fact.confirmed_at, found.now),
    ]
    lines = [screen.bold(head), *screen.wrap(f"{shown_owner(fact.owner)} · {' · '.join(parts)}", 5, 5)]
    lines += _text(one.text, screen, 5)
    if one.near:
        lines += screen.wrap("Close to it, and live too; which is true is yours to say:", 5, 5)
        for count, near in enumerate(one.near, 1):
            closeness = f"{near.closeness * 100:.0f} %"
            lines += [f"     {count}  {closeness}  {escape(near.memory_id)}"]
            lines += screen.wrap(_confirmed(near.confirmed_at, found.now), 8, 8)
            lines += _text(near.text, screen, 8)
    return lines


def _confirmed(at: float | None, now: float) -> str:
    return "never confirmed" if at is None else f"confirmed {shown(at)[:10]}, {age(max(now - at, 0))} ago"


def _text(text: str | None, screen: Screen, indent: int) -> list[str]:
    if text is None or not text.strip():
        return [" " * indent + "(no text)"]
    return screen.wrap(clipped(text, LONGEST), indent + 2, indent + 2)


def replace_plan_text(plan: ReplacePlan, screen: Screen) -> str:
    """What another text takes, said before the question. The text itself was typed by whoever reads it."""
    lines = screen.wrap(
        f"{plan.known.memory_id} gets the text that you gave, through mem0 {plan.mem0}'s update; its old text stays in "
        "the log."
    )
    lines += screen.wrap(
        "Its vector is computed by your own embedder, as your configuration names it: the text goes there."
    )
    return "\n".join(lines) + "\n"


# --- For machines ------------------------------------------------------------------------------------


def queue_json(found: Queue, *, text: bool) -> str:
    """The queue; with `text` the memories' texts too."""
    return dump(
        "review",
        {
            "install": install(found.install),
            "days": found.days,
            "waiting": found.waiting,
            "no_source": found.no_source,
            "not_compared": found.not_compared,
            "to_delete": list(found.to_delete),
            "due": [
                {
                    **fact_json(one.memory_id, one.fact, found.now),
                    "text": one.text if text else None,
                    "near": [_near(near, text) for near in one.near],
                }
                for one in found.due
            ],
        },
    )


def _near(one: Near, text: bool) -> dict[str, Any]:
    return {
        "id": one.memory_id,
        "closeness": round(one.closeness, 4),
        "confirmed_at": None if one.confirmed_at is None else shown(one.confirmed_at),
        "text": one.text if text else None,
    }
