"""What `facts` says: values alone, a subject's state ready for a prompt, the history with its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mem0audit.core.times import shown
from mem0audit.core.validity import Fact, Remembering, Revoking
from mem0audit.report.escape import escape
from mem0audit.report.json import dump
from mem0audit.report.screen import Screen, table


def values_text(facts: Sequence[Fact], *, subject: bool, attribute: bool) -> str:
    """What holds, a line each: the value; before it its attribute, and its subject, where they were not named."""
    lines = []
    for fact in facts:
        names = ([] if subject else [fact.subject]) + ([] if attribute else [fact.attribute])
        head = f"{escape(' '.join(names))}: " if names else ""
        lines.append(f"{head}{escape(fact.value)}\n")
    return "".join(lines)


def history_text(facts: Sequence[Fact], now: float, screen: Screen) -> str:
    """Every value under its subject and attribute, with when it holds and where it is known from: a line each where
    all fit, else the value below its times."""
    lines: list[str] = []
    for name in dict.fromkeys((fact.subject, fact.attribute) for fact in facts):
        rows, below = [], []
        for fact in (f for f in facts if (f.subject, f.attribute) == name):
            begins = f"{'planned ' if fact.valid_from > now else ''}from {shown(fact.valid_from)}"
            ends = "" if fact.valid_to is None else f"to {shown(fact.valid_to)}"
            source = [] if fact.source is None else [f"({fact.source})"]
            rows.append([begins, ends, *map(escape, (fact.value, *source))])
            below += [f"  {begins} {ends}".rstrip(), *screen.wrap(" ".join((fact.value, *source)), 4, 4)]
        fitting = table(rows, indent=2)
        lines += ["", screen.bold(escape(" ".join(name)))]
        lines += fitting if max(map(len, fitting)) <= screen.width else below
    return "\n".join(lines[1:]) + "\n" if lines else ""


def remembered_text(
    done: Remembering, screen: Screen, *, superseded: bool = False, why_not: str | None = None
) -> str:
    """What a new value did."""
    fact, closed = done.fact, done.closed
    when = "holds since" if done.current else "is planned, and will hold from"
    said = [f"{fact.shown}: {fact.value} {when} {shown(fact.valid_from)}."]
    if closed is not None:
        said.append(f"Until then {closed.value}, which {'ended' if done.current else 'ends'} there.")
    if superseded and closed is not None:
        marked = "is marked superseded" if done.current else "will count as superseded from then on,"
        said.append(f"Memory {closed.memory_id} {marked} by {fact.memory_id}.")
    elif why_not is not None and closed is not None and closed.memory_id is not None:
        said.append(f"Memory {closed.memory_id} is not marked superseded: {why_not}.")
    elif why_not is not None:
        said.append(f"{why_not[0].upper()}{why_not[1:]}.")
    return _lines(said, screen)


def revoked_text(done: Revoking, screen: Screen) -> str:
    """What a revocation did."""
    said = [f"{done.fact.shown}: {done.fact.value} ends at {shown(done.at)}. The history keeps it."]
    if done.planned is not None:
        said.append(f"Planned still: {done.planned.value} from {shown(done.planned.valid_from)}.")
    return _lines(said, screen)


def revoking_text(plan: Revoking, screen: Screen) -> str:
    """What it will do, where that does not go without saying."""
    return _lines(plan.sentences, screen)


def _lines(sentences: Sequence[str], screen: Screen) -> str:
    return "".join(f"{line}\n" for one in sentences for line in screen.wrap(one, hanging=3))


# --- For machines --------------------------------------------------------------------------------------


def facts_json(facts: Sequence[Fact], at: int | None) -> str:
    """The values, and the second that they hold at (None: all there ever were)."""
    return dump(
        "facts", {"at": None if at is None else shown(at), "facts": [value_json(fact) for fact in facts]}
    )


def change_json(fact: Fact, closed: Fact | None, planned: Fact | None, *, superseded: bool) -> str:
    """What was put down or ended."""
    return dump(
        "facts-change",
        {
            "fact": value_json(fact),
            "closed": None if closed is None else value_json(closed),
            "planned": None if planned is None else value_json(planned),
            "memory_superseded": superseded,
        },
    )


def value_json(fact: Fact) -> dict[str, Any]:
    """A value with when it holds."""
    return {
        "subject": fact.subject,
        "attribute": fact.attribute,
        "value": fact.value,
        "valid_from": shown(fact.valid_from),
        "valid_to": None if fact.valid_to is None else shown(fact.valid_to),
        "valid_from_s": fact.valid_from,
        "valid_to_s": fact.valid_to,
        "source": fact.source,
        "memory_id": fact.memory_id,
    }
