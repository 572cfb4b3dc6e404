"""What the agent's configuration must say after a move, for people and for machines: the lines, the files that were or
would be changed, the link at the old place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mem0audit.core.agentconfig import Advice, Updated, is_own
from mem0audit.core.links import LinkPlan, tmpfiles_command
from mem0audit.report.escape import escape
from mem0audit.report.screen import Screen

_LINE = "    "


def config_lines(advice: Advice, screen: Screen, *, now: bool = True) -> list[str]:
    """What the agent's configuration must say, complete lines to copy, and what to know of them: before it starts or,
    where that is not `now`, some day."""
    if not advice.lines:
        return ["The agent's configuration says so already."]
    when = "Before the agent starts" if now else "When that can change"
    lines = screen.wrap(f"{when}, this must be said {advice.where}:")
    lines += [_LINE + escape(line) for line in advice.lines]
    if advice.is_whole:
        lines += screen.wrap(
            "Where it gives Memory a dict already: the same keys in that dict, beside what is there."
        )
    lines += _notes(advice, screen)
    if advice.environment:
        shell, unit = advice.environment
        lines += screen.wrap(
            "For the log, instead of history_db_path, in the agent's shell or unit (mem0 then has its config.json "
            "there too):"
        )
        lines += [_LINE + escape(shell), _LINE + escape(unit)]
    return lines


def update_lines(advice: Advice, screen: Screen) -> list[str]:
    """The files that `--update-config` would change, as diffs, and those that it would leave."""
    lines = []
    for update in advice.updates:
        lines += screen.wrap(f"{update.path} would change so; as it is, it would be kept beside it:")
        lines += [_diff(line, screen) for line in update.diff]
    for path, why in advice.cannot:
        lines += screen.wrap(f"{path} {why}.", hanging=2)
    if all(is_own(update.keys) for update in advice.updates):
        return lines + config_lines(advice, screen)
    return lines + _notes(advice, screen)


def updated_lines(done: Sequence[Updated], screen: Screen) -> list[str]:
    """The files that were changed."""
    lines = []
    for one in done:
        lines += screen.wrap(f"Changed {one.path}: {', '.join(one.keys)}.", hanging=2)
        lines.append(f"  as it was:  {escape(one.backup)}")
    return lines


def link_lines(plan: LinkPlan, screen: Screen) -> list[str]:
    """The link at the old place, and the line that makes it again at boot."""
    lines = screen.wrap(
        f"A link at {plan.path} leads to the new place: the agent starts as it is configured."
    )
    if plan.tmpfiles is not None:
        lines += screen.wrap("That link is gone at the next boot. This makes it again each time:")
        lines.append(_LINE + escape(tmpfiles_command(plan.tmpfiles)))
    return lines


def _notes(advice: Advice, screen: Screen) -> list[str]:
    return [line for note in advice.notes for line in screen.wrap(note, hanging=2)]


def _diff(line: str, screen: Screen) -> str:
    code = {"+": "32", "-": "31", "@": "36"}.get(line[:1], "")
    said = _LINE + escape(line)
    return screen.paint(said, code) if code else said


def advice_json(advice: Advice) -> dict[str, Any]:
    """The same for machines; `files` are those that can be changed."""
    return {
        "form": advice.form,
        "where": advice.where,
        "lines": list(advice.lines),
        "environment": list(advice.environment),
        "notes": list(advice.notes),
        "files": [{"path": u.path, "keys": list(u.keys), "diff": list(u.diff)} for u in advice.updates],
        "left": [{"path": path, "why": why} for path, why in advice.cannot],
    }


def updated_json(done: Sequence[Updated]) -> list[dict[str, Any]]:
    """The files that were changed."""
    return [{"path": one.path, "keys": list(one.keys), "backup": one.backup} for one in done]


def link_json(plan: LinkPlan) -> dict[str, Any]:
    """A link at an old place."""
    return {"path": plan.path, "target": plan.target, "tmpfiles": plan.tmpfiles}
