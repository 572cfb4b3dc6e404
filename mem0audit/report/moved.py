"""Whether the agent followed a move, as `status` says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mem0audit.core.model import Holder
from mem0audit.core.moved import Followed
from mem0audit.core.times import shown
from mem0audit.report.escape import escape
from mem0audit.report.screen import Screen

_HELP = "help relocate"


def moved_lines(found: Sequence[Followed], screen: Screen) -> list[str]:
    """A paragraph a store: from where to where, and where the agent works; the alarm first in its words."""
    lines = []
    for one in found:
        move = one.move
        lines += [
            f"{'moved':<11}{move.half}, {shown(move.at)}",
            f"{'':<11}{escape(move.old)} -> {escape(move.new)}",
        ]
        said = screen.wrap(_words(one), indent=11, hanging=11)
        is_bad = one.verdict in ("old", "perhaps old")
        lines += [screen.alarm(line) for line in said] if is_bad else said
        if is_bad:
            lines += screen.wrap(
                "What is written there is not at the new place. Stop it, make its configuration name the new place:",
                indent=11,
            )
            lines.append(f"{'':<11}{screen.program} {_HELP}")
    return lines


def _words(one: Followed) -> str:
    who = _who(one.holder) if one.holder is not None else ""
    link = ", through the link at the old place" if one.linked else ""
    if one.verdict == "new":
        return f"{who} has the new place open: the agent has moved{link if one.linked else ''}."
    if one.verdict == "old" and one.holder is not None:
        return f"THE AGENT STARTED AGAIN AT THE OLD PLACE: {who} has it open."
    if one.verdict == "old":
        since = f", last changed {shown(one.changed_at)}" if one.changed_at is not None else ""
        return f"SOMETHING IS AT THE OLD PLACE AGAIN{since}: an agent was started there after the move."
    if one.verdict == "perhaps old":
        return (
            f"{who} has a store of the old name open, in a /tmp or a container of its own: IS IT THE AGENT?"
        )
    if one.verdict == "written" and one.changed_at is not None:
        return f"The new place was written to since, last {shown(one.changed_at)}{link}; no process has it open now."
    if one.verdict == "not known" and "://" in one.move.new:
        return "Not known whether the agent works there: who uses a server cannot be seen from here."
    if one.verdict == "not known":
        return "Not known whether the agent works there: other people's processes are not visible (run with sudo)."
    return "The agent was not started since: no process has either place open, and nothing was written to the new one."


def _who(holder: Holder) -> str:
    parts = [p for p in (holder.unit, f"container {holder.container}" if holder.container else None) if p]
    return f"pid {holder.pid}" + (f" ({', '.join(parts)})" if parts else "")


def moved_json(found: Sequence[Followed]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {
            "half": one.move.half,
            "old": one.move.old,
            "new": one.move.new,
            "moved_at": one.move.at,
            "verdict": one.verdict,
            "pid": None if one.holder is None else one.holder.pid,
            "changed_at": one.changed_at,
            "linked": one.linked,
        }
        for one in found
    ]
