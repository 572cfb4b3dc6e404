"""What `review --notes` shows: lines of the user's own file; JSON has their text where asked for."""

from __future__ import annotations

from mem0audit.core.notes import Note
from mem0audit.core.points import clipped
from mem0audit.core.times import age, shown
from mem0audit.operations.notes import Notes
from mem0audit.report.escape import escape
from mem0audit.report.json import dump
from mem0audit.report.review import LONGEST
from mem0audit.report.screen import Screen


def notes_text(found: Notes, screen: Screen) -> str:
    """The queue; empty with `quiet` where there is none."""
    if screen.quiet and not found.due:
        return ""
    lines = summary(found, screen)
    for one in found.due:
        lines += ["", *note_lines(one, found, screen)]
    return "\n".join(lines) + "\n"


def summary(found: Notes, screen: Screen) -> list[str]:
    """How many wait."""
    if not found.waiting:
        return screen.wrap(f"Nothing to review: every line has a date of the last {found.days} days.")
    more = f", the first {len(found.due):,} below" if len(found.due) < found.waiting else ""
    lines = "1 line" if found.waiting == 1 else f"{found.waiting:,} lines"
    return screen.wrap(
        f"{lines} not confirmed for {found.days} days, {found.undated:,} without a date{more}."
    )


def note_lines(one: Note, found: Notes, screen: Screen) -> list[str]:
    """One line of the file, where it stands and how old it is."""
    at = one.held_at
    if at is None:
        held = "no date"
    else:
        says = "confirmed" if at == one.confirmed_at else "dated"
        held = f"{says} {shown(at)[:10]}, {age(max(found.now - at, 0))} ago"
    head = screen.bold(f"{escape(found.file)}:{one.line}")
    return [f"{head}  {held}", *screen.wrap(clipped(one.text, LONGEST), 2, 2)]


def notes_json(found: Notes, *, text: bool) -> str:
    """The same for machines; with `text` the lines' texts too."""
    return dump(
        "review-notes",
        {
            "file": found.file,
            "days": found.days,
            "waiting": found.waiting,
            "undated": found.undated,
            "due": [
                {
                    "line": one.line,
                    "dated_at": _time(one.dated_at),
                    "confirmed_at": _time(one.confirmed_at),
                    "text": one.text if text else None,
                }
                for one in found.due
            ],
        },
    )


def _time(at: float | None) -> str | None:
    return None if at is None else shown(at)
