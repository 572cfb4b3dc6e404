"""`mem0audit review --notes FILE`: a plain notes file, line by line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mem0audit.cli import exits
from mem0audit.cli.options import Format
from mem0audit.cli.output import is_terminal, say, write
from mem0audit.cli.review import key_pressed
from mem0audit.core.errors import Mem0auditError

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.core.notes import Note
    from mem0audit.install.host import Host
    from mem0audit.operations.notes import Notes
    from mem0audit.report.screen import Screen


def review_notes(
    path: str,
    install: Install,
    host: Host,
    look: Screen,
    *,
    days: int,
    most: int,
    ask: bool,
    format_: Format,
    text: bool,
    output: str | None,
) -> int:
    """Shows the lines that are due, and on a terminal asks of each."""
    from mem0audit.operations.notes import read_notes
    from mem0audit.report.notes import notes_json, notes_text

    found = read_notes(path, install, host, days=days, most=most)
    if format_ is Format.JSON:
        write(notes_json(found, text=text), output)
    elif ask and output is None and found.due and all(map(is_terminal, (sys.stdin, sys.stdout, sys.stderr))):
        confirmed: list[tuple[Note, bool]] = []
        try:
            _ask_each(found, confirmed, install, host, look)
        except (KeyboardInterrupt, EOFError):
            say("")
        say(f"In the ledger: {sum(is_ for _, is_ in confirmed):,} confirmed. The file is as it was.")
    else:
        write(notes_text(found, look), output)
    return exits.OK


def _ask_each(
    found: Notes, done: list[tuple[Note, bool]], install: Install, host: Host, look: Screen
) -> None:
    """What is confirmed is in the ledger before the next line is shown."""
    from mem0audit.operations.notes import confirm_note
    from mem0audit.report.notes import note_lines, summary

    for line in summary(found, look):
        say(line)
    at = 0
    while at < len(found.due):
        one = found.due[at]
        sys.stderr.write("\n" + "\n".join(note_lines(one, found, look)) + "\n")
        key = key_pressed(f"{at + 1} of {len(found.due)}   c confirm · s skip · u undo · q quit ")
        sys.stderr.write(f"{key if key.isprintable() else ''}\n")
        try:
            if key in ("q", "\x04", ""):
                return
            if key in ("c", "s"):
                if key == "c":
                    confirm_note(one, install, host, host.now)
                done.append((one, key == "c"))
                at += 1
            elif key == "u" and done:
                last, was_confirmed = done[-1]
                if was_confirmed:
                    confirm_note(last, install, host, last.confirmed_at)
                done.pop()
                at -= 1
        except Mem0auditError as problem:
            say(problem.message)
