"""A snapshot every night: the commands, the systemd units and the cron line that run them. Pure text.

Three commands in order, each only when the one before ended well: `snapshot create`, `snapshot verify --new`,
`snapshot expire`. A service of Type=oneshot runs its ExecStart lines so (systemd.service(5)); in a crontab `&&` does.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from mem0audit.core.retention import Policy

NAME: Final = "mem0audit-snapshot"
SERVICE: Final = f"{NAME}.service"
TIMER: Final = f"{NAME}.timer"

DEFAULT_POLICY: Final = Policy(daily=14, weekly=8, monthly=12)

LONGEST_CRON_LINE: Final = 998
"""Debian's cron takes 1,000 characters of a command (MAX_COMMAND in its cron.h), others more."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@+,~-]+", re.ASCII)
_AT: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


class CannotSay(Exception):
    """The line cannot be written in this format; one line says why."""


@dataclass(frozen=True)
class Schedule:
    """What runs every night. `program` are the words that start mem0audit, the first an absolute path; `install` the
    flags that name the install; `at` is HH:MM in local time; `user` whom it runs as, None in a user's own units."""

    program: tuple[str, ...]
    install: tuple[str, ...]
    folder: str
    policy: Policy
    at: str
    user: str | None

    def commands(self, *, quiet: bool = False) -> tuple[tuple[str, ...], ...]:
        """The three commands, as words; `quiet` ones say nothing where all went well."""
        to = ("--to", self.folder)
        less = ("--quiet",) if quiet else ()
        own = (*self.program, "snapshot")
        return (
            (*own, "create", *less, *to, *self.install),
            (*own, "verify", "--new", *less, *to),
            (*own, "expire", "--yes", *less, *to, *self.policy.words()),
        )


def time_of_day(text: str) -> tuple[int, int]:
    """Hour and minute of "02:30". Raises ValueError."""
    found = _AT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]), int(found[2])


# --- systemd -------------------------------------------------------------------------------------


def unit_word(word: str, *, argument: bool = False) -> str:
    r"""A word as a unit file takes it: quoted where it must be, `%` doubled, since it begins a specifier, and in an
    argument of a command `$` too (systemd.service(5), "Command lines"). What cannot be printed becomes `\xHH`."""
    if _PLAIN.fullmatch(word):
        return word
    out = []
    for char in word:
        if char in '\\"':
            out.append("\\" + char)
        elif char == "%" or (char == "$" and argument):
            out.append(char * 2)
        elif char.isprintable():
            out.append(char)
        else:
            out.extend(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
    return '"' + "".join(out) + '"'


def exec_line(words: tuple[str, ...]) -> str:
    """A command as an ExecStart= line takes it. Raises CannotSay."""
    program, *rest = words
    if "$" in program or not program.isprintable():
        # systemd takes "$$" in an argument for "$", and in the program's path for itself.
        raise CannotSay(f"{program}: systemd starts no program with a $ or a control character in its path")
    return " ".join([unit_word(program), *(unit_word(word, argument=True) for word in rest)])


def service_text(schedule: Schedule) -> str:
    """The service. Raises CannotSay."""
    lines = [
        "# Both stores of a mem0 install as one pair: taken, verified, and older ones expired.",
        "# The first line that fails ends it, and the service has failed: journalctl -u " + NAME,
        "[Unit]",
        "Description=Snapshot of a mem0 install",
        f"RequiresMountsFor={unit_word(schedule.folder)}",
        "# To be told of a failure, name a unit of yours that sends a message:",
        "#OnFailure=tell-me@%n.service",
        "",
        "[Service]",
        "Type=oneshot",
    ]
    if schedule.user is not None:
        lines.append(f"User={schedule.user}")
    lines += [f"ExecStart={exec_line(words)}" for words in schedule.commands()]
    lines += [
        "TimeoutStartSec=6h",
        "UMask=0077",
        "# No slower than this: while the pages are copied a writing agent waits.",
        "Nice=5",
        "IOSchedulingClass=best-effort",
        "IOSchedulingPriority=6",
        "# No PrivateTmp, ProtectSystem or other view of the files of its own: it must see the stores,",
        "# which may lie in /tmp, and who has them open, just as the agent does.",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
    ]
    return "\n".join(lines) + "\n"


def timer_text(schedule: Schedule) -> str:
    """The timer: local time, made up for after the machine was off."""
    hour, minute = time_of_day(schedule.at)
    lines = [
        "[Unit]",
        "Description=Snapshot of a mem0 install, every night",
        "",
        "[Timer]",
        f"OnCalendar=*-*-* {hour:02d}:{minute:02d}:00",
        "RandomizedDelaySec=15min",
        "Persistent=true",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "\n".join(lines) + "\n"


# --- cron ----------------------------------------------------------------------------------------


def cron_line(schedule: Schedule) -> str:
    r"""The line of a user's crontab. cron takes a `%` for a line's end unless a backslash stands before it
    (crontab(5)), and what else it does to backslashes differs, so that a path with one is refused. Raises CannotSay."""
    command = " && ".join(shlex.join(words) for words in schedule.commands(quiet=True))
    if "\\" in command or not command.isprintable():
        raise CannotSay("a path with a backslash or a control character: no crontab line holds it surely")
    hour, minute = time_of_day(schedule.at)
    command = command.replace("%", "\\%")
    if len(command) > LONGEST_CRON_LINE:
        raise CannotSay(
            f"the line has {len(command):,} characters, and cron takes {LONGEST_CRON_LINE}: name the install with "
            "--config or shorter paths"
        )
    return f"{minute} {hour} * * * {command}"
