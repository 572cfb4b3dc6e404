"""Moments and texts of the past as they are shown, and the life of one memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from mem0audit.core.asof import Step, When
from mem0audit.core.times import shown
from mem0audit.report.escape import escape, escape_lines
from mem0audit.report.words import number

_MOST_TEXT: Final = 4000


def quoted(text: str | None, *, gone: bool) -> list[str]:
    """A memory's text behind a margin; `gone` where the log has none."""
    if text is None:
        return ["    (the log has no text of it any more)"] if gone else []
    cut = text[:_MOST_TEXT]
    more = len(text) - len(cut)
    lines = [f"    │ {part}" for part in escape_lines(cut)]
    return [*lines, f"    … {number(more)} more characters"] if more else lines


def when(one: When) -> str:
    """A moment, or between which two it lies."""
    if one.known:
        return shown(one.earliest)
    if one.earliest == -inf:
        return f"before {shown(one.latest)}"
    if shown(one.earliest) == shown(one.latest):
        return f"about {shown(one.latest)}"
    return f"between {shown(one.earliest)} and {shown(one.latest)}"


def span(one: When | None) -> dict[str, str | None] | None:
    """A time as two: the same where it is known; null where there is no bound."""
    if one is None:
        return None
    earliest = None if one.earliest == -inf else shown(one.earliest)
    return {"earliest": earliest, "latest": shown(one.latest)}


def life_lines(steps: Sequence[Step]) -> list[str]:
    """A memory's life, a change a paragraph: when, what, and what it said from then on."""
    if not steps:
        return ["The log has no row of it."]
    lines = []
    if steps[0].event != "ADD":
        lines.append("  (its ADD is not in the log: it was there before)")
    for step in steps:
        by = [step.role] if step.role else []
        by += [step.actor] if step.actor else []
        who = f"  by {escape(' '.join(by))}" if by else ""
        lines.append(f"  {when(step.when)}  {step.event}  row {step.rowid}{who}")
        if step.event != "DELETE":
            lines += quoted(step.text, gone=step.text is None)
    return lines


def life_json(steps: Sequence[Step], *, text: bool) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {"rowid": step.rowid, "event": step.event, "when": span(step.when)}
        | ({"text": step.text} if text else {})
        for step in steps
    ]
