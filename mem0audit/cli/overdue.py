"""The short-lived snapshots that a deletion took: the first command after their time removes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mem0audit.cli.output import say

if TYPE_CHECKING:
    from mem0audit.core.model import Install, Snapshots
    from mem0audit.install.config import Settings
    from mem0audit.install.host import Host


def clear_overdue(known: Snapshots) -> Snapshots:
    """Removes those whose time is over and says so on stderr; the others."""
    if not any(one.until is not None for one in known.snapshots):
        return known
    from mem0audit.operations.expire import remove_overdue

    gone, problems = remove_overdue(known)
    for path in gone:
        say(f"Removed the short-lived snapshot {path}: its time was over.")
    for problem in problems:
        say(f"mem0audit: a short-lived snapshot, whose time is over, is still there: {problem}")
    return replace(known, snapshots=tuple(one for one in known.snapshots if one.path not in gone))


def clear_overdue_of(install: Install, host: Host, settings: Settings) -> None:
    """The same for an install whose snapshots were not looked at."""
    from mem0audit.operations.known import known_snapshots

    clear_overdue(known_snapshots(install, host, settings))
