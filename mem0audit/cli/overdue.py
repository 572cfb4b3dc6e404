"""The short-lived snapshots that a deletion took: the first command after their time removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mem0audit.cli.output import say

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.install.config import Settings
    from mem0audit.install.host import Host


def clear_overdue(install: Install, host: Host, settings: Settings) -> None:
    """Removes those whose time is over, in every folder that is known of the install, and says so on stderr."""
    from mem0audit.operations.expire import overdue, remove_overdue
    from mem0audit.operations.ledger import snapshot_folders

    folders = [*filter(None, [settings.snapshot_dir]), *snapshot_folders(install, host)]
    gone, problems = remove_overdue(overdue(folders, host.now))
    for path in gone:
        say(f"Removed the short-lived snapshot {path}: its time was over.")
    for problem in problems:
        say(f"mem0audit: a short-lived snapshot, whose time is over, is still there: {problem}")
