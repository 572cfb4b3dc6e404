"""The pages of the rules, one module a group. `catalogue` puts them together."""

# ruff: noqa: S108

from __future__ import annotations

from dataclasses import dataclass

from mem0audit.core.advice import manual_snapshot_steps
from mem0audit.core.model import Severity


@dataclass(frozen=True)
class Rule:
    """A rule and its page, for somebody in trouble at night.

    `summary` is one sentence: the state on disk and what it means. The other texts are paragraphs, a
    line each; a line that begins with four spaces is a command and is shown as it stands. `threshold`
    states the numbers the rule goes by. What `repaired` rules find, `repair` can set right.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    comes_about: str
    looks_like: str
    to_do: str
    not_this: str | None = None
    threshold: str | None = None
    repaired: bool = False


def commands(*lines: str) -> str:
    """Shell lines as a page shows them; a long one goes on after a backslash."""
    return "\n".join("    " + line.replace(' "VACUUM INTO', ' \\\n      "VACUUM INTO') for line in lines)


# ~ must stay outside quotes, so it comes in after the quoting.
SNAPSHOT_LINES = tuple(
    line.replace("HISTORY", "~/.mem0/history.db")
    for line in manual_snapshot_steps("HISTORY", "/tmp/qdrant", ("mem0",), "/srv/backup/mem0")
)
"""The lines that take the default install's pair out to /srv/backup/mem0."""

COPY_WITH_PYTHON = (
    "python3 -c \\\n"
    '      \'import sqlite3,sys; sqlite3.connect("file:"+sys.argv[1]+"?mode=ro",30,uri=True) \\\n'
    '       .execute("VACUUM INTO ?",sys.argv[2:])\' \\\n'
    "      SOURCE TARGET"
)
"""The copy of one SQLite file without the sqlite3 program."""

TAKE_PAIR = "\n".join(
    (
        "Take both stores out first, as a pair, with the agent running, to a folder on a disk:",
        commands(
            "mem0audit snapshot create --to /srv/backup/mem0",
            "mem0audit snapshot verify --to /srv/backup/mem0",
        ),
        "Where that is refused (a log above 2 GB), by hand, with your own paths (`mem0audit status` prints them):",
        commands(*SNAPSHOT_LINES),
        "and the same for mem0_entities, if that collection is there, last. A file that exists is "
        "refused, so take a new folder each time. No sqlite3 program? For each line:",
        commands(COPY_WITH_PYTHON),
        "The agent waits while a line runs, about a second for 200 MB. It gives up after 5 s, so "
        "with a gigabyte or more choose a minute in which it is idle. Never use cp on a file that is "
        "being written: most such copies are damaged.",
        "Then see that the copy reads:",
        commands(
            "mem0audit audit --history /srv/backup/mem0/history.db --qdrant-path /srv/backup/mem0/qdrant"
        ),
        "A copy by hand is safe to have and not settled: what the agent did meanwhile shows as a difference.",
    )
)
"""How to take a pair out of a store that is in use; stands first where the store is in danger."""

PAIR_FIRST = (
    "First take both stores as a pair, the agent may run meanwhile: `mem0audit snapshot create --to DIR` (by hand: "
    "`mem0audit explain L101`)."
)
"""The same in a sentence, for pages where something else is the point."""

REPAIRED_AFTER_A_SNAPSHOT = (
    "Through the agent's own mem0, with the agent stopped, after a snapshot; then both stores are read again. Leave "
    "--dry-run out to do it."
)
"""How `repair` works, for the pages of what it repairs."""

INSIDE_AGENT = (
    "Run it inside the agent, on its own Memory: an embedded store takes one process at a time. In a "
    "script of yours only while the agent is stopped, and with the agent's own mem0 and configuration."
)
"""Where a call of mem0's can be made."""
