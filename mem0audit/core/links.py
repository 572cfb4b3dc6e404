"""A link at the place that a store was moved away from, for an agent whose configuration cannot change at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mem0audit.core.errors import Refused
from mem0audit.core.versions import wipes_folder_at_start
from mem0audit.core.words import shell_word

TMPFILES: str = "/etc/tmpfiles.d/mem0.conf"
"""Where the line goes that makes a link again at boot."""


@dataclass(frozen=True)
class LinkPlan:
    """A symbolic link `path` that leads to `target`. `tmpfiles` is the line of tmpfiles.d that makes it again, None
    where it lies in a place that lasts."""

    path: str
    target: str
    tmpfiles: str | None = None


def refuse_wiping_through_link(mem0: str | None, on_disk: bool | None) -> None:
    """Raises Refused where the agent's mem0 would not start with a link in place of its folder.

    0.0.8 to 1.0.7 call shutil.rmtree on the path at start (0.0.16 to 1.0.7 unless on_disk is true), which fails on a
    link: "OSError: Cannot call rmtree on a symbolic link". Run with 0.1.114 and 1.0.7 (fail, the store behind the link
    stays), the same with on_disk: true, 1.0.11 and 2.2.1 (open it, and keep it).
    """
    wipes = wipes_folder_at_start(mem0, on_disk)
    if wipes is None and on_disk is not True:
        raise Refused(
            "--leave-link: the agent's mem0 is not known, and before 1.0.8 it fails at start on a link",
            "name the agent's Python with --agent-python, or change its configuration instead",
        )
    if wipes:
        raise Refused(
            f"--leave-link: mem0 {mem0} deletes its folder at every start, and fails where that is a link (from 1.0.8 "
            "on it does not)",
            "change the agent's configuration instead, with on_disk: true: the lines are printed",
        )


def tmpfiles_line(path: str, target: str) -> str:
    """The tmpfiles.d line that makes a link at boot where nothing is, and keeps it from being cleaned by age.

    `L`, not `L+`: that would delete a store that an agent began at the old place. In quotes, with % doubled; of the
    target the rest of the line counts, without quotes. Run with systemd-tmpfiles 252.
    """
    where = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if not re.fullmatch(r"[\w./@+%-]+", where):
        where = f'"{where}"'
    to = target.replace("\\", "\\\\").replace("%", "%%")
    return f"L {where} - - - - {to}"


def tmpfiles_command(line: str) -> str:
    """The shell line that puts it to the others; tried now, it changes nothing where the link is there."""
    return f"printf '%s\\n' {shell_word(line)} | sudo tee -a {TMPFILES}"
