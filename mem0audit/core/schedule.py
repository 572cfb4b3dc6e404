"""What is done every night or week: the commands, the systemd units and the cron line that run them. Pure text.

A snapshot is three commands in order, each only when the one before ended well: `snapshot create`, `snapshot verify
--new`, `snapshot expire`. A service of Type=oneshot runs its ExecStart lines so (systemd.service(5)); in a crontab `&&`
does. Pruning is one command; a unit of the agent's can be stopped before and started again after it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from mem0audit.core.retention import Policy

Job = Literal["snapshot", "prune", "audit", "new", "review"]
JOBS: Final[tuple[Job, ...]] = ("snapshot", "prune", "audit", "new", "review")

DEFAULT_POLICY: Final = Policy(daily=14, weekly=8, monthly=12)

LONGEST_CRON_LINE: Final = 998
"""Debian's cron takes 1,000 characters of a command (MAX_COMMAND in its cron.h), others more."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@+,~-]+", re.ASCII)
_AT: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


_UNIT: Final = re.compile(r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.service", re.ASCII)


def name_of(job: Job) -> str:
    """What its units are called, without an ending."""
    return f"mem0audit-{job}"


def service_of(job: Job) -> str:
    """The name of its service."""
    return f"{name_of(job)}.service"


def timer_of(job: Job) -> str:
    """The name of its timer."""
    return f"{name_of(job)}.timer"


def failed_of(job: Job) -> str:
    """The name of the service that is started where the job's own failed."""
    return f"{name_of(job)}-failed.service"


class CannotSay(Exception):
    """The line cannot be written in this format; one line says why."""


@dataclass(frozen=True)
class Schedule:
    """A snapshot every night. `program` are the words that start mem0audit, the first an absolute path; `install` the
    flags that name the install; `at` is HH:MM in local time; `user` whom it runs as, None in a user's own units.
    `on_failure` is for a shell: done where a run failed."""

    job: ClassVar[Job] = "snapshot"
    does: ClassVar[str] = "Snapshot of a mem0 install"
    comment: ClassVar[str] = (
        "Both stores of a mem0 install as one pair: taken, verified, and older ones expired."
    )
    program: tuple[str, ...]
    install: tuple[str, ...]
    folder: str
    policy: Policy
    at: str
    user: str | None
    on_failure: str | None = None

    def words(self) -> tuple[str, ...]:
        """The words of the command line that are this job's own."""
        return self.policy.words()

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


@dataclass(frozen=True)
class Pruning:
    """What has had its time removed every night; the fields as of `Schedule`. `stop_unit` is the agent's, stopped
    before and started again after it; `lock` the file that an agent locks in the vector store."""

    job: ClassVar[Job] = "prune"
    does: ClassVar[str] = "Prune a mem0 install"
    comment: ClassVar[str] = (
        "What has had its time in a mem0 install, removed through mem0 after a snapshot of both stores."
    )
    program: tuple[str, ...]
    install: tuple[str, ...]
    folder: str
    at: str
    user: str | None
    older_than: str | None = None
    stop_unit: str | None = None
    lock: str = ""
    unused: bool = False
    on_failure: str | None = None

    def words(self) -> tuple[str, ...]:
        """The words of the command line that are this job's own."""
        stop = ("--stop-unit", self.stop_unit) if self.stop_unit is not None else ()
        return (*self._older(), *stop)

    def commands(self, *, quiet: bool = False) -> tuple[tuple[str, ...], ...]:
        """The one command, as words; a `quiet` one says nothing where all went well."""
        less = ("--quiet",) if quiet else ()
        return ((*self.program, "prune", "--yes", *less, "--to", self.folder, *self._older(), *self.install),)

    def is_due(self) -> tuple[str, ...]:
        """The command that says whether there is something to remove (0) or not (1)."""
        return (*self.program, "prune", "--due", "--to", self.folder, *self._older(), *self.install)

    def _older(self) -> tuple[str, ...]:
        older = ("--older-than", self.older_than) if self.older_than is not None else ()
        return (*older, *(("--unused",) if self.unused else ()))


@dataclass(frozen=True)
class Auditing:
    """An audit every day: findings from `fail_on` on (None: as the audit has it) make the run fail."""

    job: ClassVar[Job] = "audit"
    does: ClassVar[str] = "Audit of a mem0 install"
    comment: ClassVar[str] = "Both stores of a mem0 install, side by side; findings make it fail."
    folder: ClassVar[str] = ""
    program: tuple[str, ...]
    install: tuple[str, ...]
    at: str
    user: str | None
    fail_on: str | None = None
    on_failure: str | None = None

    def words(self) -> tuple[str, ...]:
        """The words of the command line that are this job's own."""
        return ("--fail-on", self.fail_on) if self.fail_on is not None else ()

    def commands(self, *, quiet: bool = False) -> tuple[tuple[str, ...], ...]:
        """The one command, as words; a `quiet` one says nothing where nothing is wrong."""
        less = ("--quiet",) if quiet else ()
        return ((*self.program, "audit", *less, *self.words(), *self.install),)


@dataclass(frozen=True)
class Telling:
    """Told to a person: each morning what was added (`job` "new"), each Monday what nobody confirmed for long
    ("review"): into the file `to`, or by mail to `mail` through the program `mailer`; the other fields as of
    `Schedule`. What memories say goes there alone, and not into the journal."""

    program: tuple[str, ...]
    install: tuple[str, ...]
    at: str
    user: str | None
    to: str | None = None
    mail: str | None = None
    mailer: str = ""
    job: Literal["new", "review"] = "new"
    on_failure: str | None = None

    @property
    def does(self) -> str:
        """Of its units, in a line."""
        if self.job == "new":
            return "Tell what a mem0 install remembered anew"
        return "Tell which memories of a mem0 install to review"

    @property
    def comment(self) -> str:
        """The same at length."""
        if self.job == "new":
            return "Memories that a mem0 install added since yesterday, and where they came from."
        return "Memories of a mem0 install that nobody confirmed for long: is it still true?"

    @property
    def folder(self) -> str:
        """Where the file goes; empty for a mail."""
        return (self.to or "").rpartition("/")[0]

    def words(self) -> tuple[str, ...]:
        """The words of the command line that are this job's own."""
        return ("--to", self.to) if self.to is not None else ("--mail", self.mail or "")

    def commands(self, *, quiet: bool = False) -> tuple[tuple[str, ...], ...]:
        """The one command of mem0audit, as words. An hour more than a day: no timer is exact."""
        less = ("--quiet",) if quiet or self.to is None else ()
        what = ("new", "--since", "25h") if self.job == "new" else ("review", "--list")
        return ((*self.program, *what, *less, "-o", self.to or self.letter, *self.install),)

    @property
    def letter(self) -> str:
        """What is mailed: in a folder that systemd makes for the service (0700) and removes when it ends."""
        return f"%t/{name_of(self.job)}/{self.job}.txt"


_MAIL: Final = '[ ! -s "$1" ] || exec "$2" -s "$3" "$4" <"$1"'
_TITLES: Final = {"new": "New memories", "review": "Memories to review"}

Nightly = Schedule | Pruning | Auditing | Telling


def unit_named(text: str) -> str | None:
    """The full name of a service ("agent" is agent.service); None where it is none, or a template."""
    name = text if text.endswith(".service") else f"{text}.service"
    return name if _UNIT.fullmatch(name) else None


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


_STOP: Final = (
    'rm -f "$2"; case $(systemctl{own} show -p ActiveState --value "$1") in active|activating|reloading) '
    ': >"$2" && exec systemctl{own} stop "$1";; deactivating) exec systemctl{own} stop "$1";; esac'
)
_START: Final = (
    '[ -e "$2" ] || exit 0; [ ! -e "$3" ] || flock -w 120 "$3" true; rm -f "$2"; '
    'exec systemctl{own} start "$1"'
)
"""Whether it ran is remembered in a file beside the sockets of systemd (`%t`), where only whom systemd runs as writes.
Killed, mem0audit leaves mem0 to finish the deletion that it is at: the agent would find its lock taken."""
_IF_DUE: Final = '"$@"; case $? in 0) exit 0;; 1) exit 1;; *) exit 255;; esac'
"""Of ExecCondition=, 1 to 254 skip the night, and only 255 fails it."""


def service_text(schedule: Nightly) -> str:
    """The service. Raises CannotSay."""
    if isinstance(schedule, Telling):
        return _telling_text(schedule)
    lines = [f"# {schedule.comment}", *_about(schedule), "[Unit]", f"Description={schedule.does}"]
    if schedule.folder:
        lines.append(f"RequiresMountsFor={unit_word(schedule.folder)}")
    if isinstance(schedule, Pruning):
        boot = "multi-user.target" if schedule.user is not None else "default.target"
        lines += ["# Made up for at boot, it does not come before the agent.", f"After={boot}"]
    lines += [*_on_failure(schedule), "", "[Service]", "Type=oneshot"]
    if schedule.user is not None:
        lines.append(f"User={schedule.user}")
    stop = schedule.stop_unit if isinstance(schedule, Pruning) else None
    if isinstance(schedule, Pruning) and stop is not None:
        due = exec_line(("/bin/sh", "-c", _IF_DUE, "sh", *schedule.is_due()))
        lines += [
            "# On a night with nothing to remove the agent is left alone.",
            f"ExecCondition={due}",
            f"ExecStartPre={_shell(schedule, _STOP, stop)}",
        ]
    lines += [f"ExecStart={exec_line(words)}" for words in schedule.commands()]
    if isinstance(schedule, Pruning):
        if stop is not None:
            lines += [
                "# Always done, also when a line above failed, was killed or took too long.",
                f"ExecStopPost={_shell(schedule, _START, stop, schedule.lock)}",
            ]
        lines += [
            "TimeoutStartSec=1h",
            "TimeoutStopSec=5min",
            "# What ends it ends mem0audit, which lets mem0 finish the deletion that it is at.",
            "KillMode=mixed",
            "UMask=0077",
        ]
    else:
        lines += [
            "TimeoutStartSec=6h",
            "UMask=0077",
            "# No slower than this: while the pages are copied a writing agent waits."
            if isinstance(schedule, Schedule)
            else "# The agent comes first.",
            "Nice=5",
            "IOSchedulingClass=best-effort",
            "IOSchedulingPriority=6",
        ]
    lines += [
        "# No PrivateTmp, ProtectSystem or other view of the files of its own: it must see the stores,",
        "# which may lie in /tmp, and who has them open, just as the agent does.",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
    ]
    return "\n".join(lines) + "\n"


def _on_failure(schedule: Nightly) -> list[str]:
    if schedule.on_failure is not None:
        return [f"OnFailure={failed_of(schedule.job)}"]
    return [
        "# To be told of a failure, name a unit of yours that sends a message:",
        "#OnFailure=tell-me@%n.service",
    ]


def failed_text(schedule: Nightly) -> str:
    """The service that systemd starts where the job's own failed, for whatever reason: its program killed, too slow or
    not there, its mount missing. A line after the job's own (ExecStopPost=) would not see the last."""
    name = name_of(schedule.job)
    lines = [
        f"# Started where {service_of(schedule.job)} failed, also when it was killed or took too long.",
        "[Unit]",
        f"Description=Tell that {name} failed",
        "",
        "[Service]",
        "Type=oneshot",
        *([f"User={schedule.user}"] if schedule.user is not None else []),
        f"ExecStart={exec_line(('/bin/sh', '-c', schedule.on_failure or '', 'sh', name))}",
        "TimeoutStartSec=5min",
        "UMask=0077",
        "# No NoNewPrivileges: mail may need to run as somebody else.",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
    ]
    return "\n".join(lines) + "\n"


def _telling_text(schedule: Telling) -> str:
    (words,) = schedule.commands()
    line = exec_line(words)
    goes = f"into {unit_word(schedule.to)}" if schedule.to is not None else f"by mail to {schedule.mail}"
    lines = [
        f"# {schedule.comment}",
        f"# It goes {goes}, and nothing of it into the journal.",
        "[Unit]",
        f"Description={schedule.does}",
        *_on_failure(schedule),
        "",
        "[Service]",
        "Type=oneshot",
    ]
    if schedule.user is not None:
        lines.append(f"User={schedule.user}")
    if schedule.to is None:
        # the specifier is systemd's: it stands as it is
        line = line.replace(unit_word(schedule.letter, argument=True), schedule.letter)
        send = exec_line(("/bin/sh", "-c", _MAIL, "sh"))
        more = (schedule.mailer, _TITLES[schedule.job], schedule.mail or "")
        lines += [
            f"RuntimeDirectory={name_of(schedule.job)}",
            "RuntimeDirectoryMode=0700",
            f"ExecStart={line}",
            "# No mail where there is nothing to tell.",
            f"ExecStart={' '.join((send, schedule.letter, *(unit_word(word, argument=True) for word in more)))}",
        ]
    else:
        lines.append(f"ExecStart={line}")
    lines += [
        "StandardOutput=null",
        "TimeoutStartSec=1h",
        "UMask=0077",
        "# No PrivateTmp, ProtectSystem or other view of the files of its own: it must see the stores,",
        "# which may lie in /tmp, just as the agent does.",
        "NoNewPrivileges=yes" if schedule.to is not None else "# mail may need to run as somebody else.",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
    ]
    return "\n".join(lines) + "\n"


def _about(schedule: Schedule | Pruning | Auditing) -> list[str]:
    journal = f"journalctl -u {name_of(schedule.job)}"
    if isinstance(schedule, Auditing):
        return [f"# What it found, without what memories say: {journal}"]
    if isinstance(schedule, Schedule):
        return [f"# The first line that fails ends it, and the service has failed: {journal}"]
    if schedule.stop_unit is None:
        return [f"# While the agent runs it only says what is to go, and fails with 4: {journal}"]
    return [f"# {schedule.stop_unit} is stopped for it, if it runs, and then started again: {journal}"]


def _shell(schedule: Pruning, script: str, unit: str, *more: str) -> str:
    """A line that asks systemd, as whom systemd itself runs."""
    full, own = ("+", "") if schedule.user is not None else ("", " --user")
    words = ("/bin/sh", "-c", script.format(own=own), "sh", unit)
    flag = f"%t/{name_of(schedule.job)}.was-running"
    return " ".join((f"{full}{exec_line(words)}", flag, *(unit_word(word, argument=True) for word in more)))


def often(job: Job) -> str:
    """How often it is done."""
    return {"new": "every morning", "review": "every Monday"}.get(job, "every night")


def timer_text(schedule: Nightly) -> str:
    """The timer: local time, made up for after the machine was off."""
    hour, minute = time_of_day(schedule.at)
    day = "Mon " if schedule.job == "review" else ""
    lines = [
        "[Unit]",
        f"Description={schedule.does}, {often(schedule.job)}",
        "",
        "[Timer]",
        f"OnCalendar={day}*-*-* {hour:02d}:{minute:02d}:00",
        *(["RandomizedDelaySec=15min"] if not isinstance(schedule, Telling) else []),
        "Persistent=true",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "\n".join(lines) + "\n"


# --- cron ----------------------------------------------------------------------------------------


def cron_line(schedule: Nightly) -> str:
    r"""The line of a user's crontab. cron takes a `%` for a line's end unless a backslash stands before it
    (crontab(5)), and what else it does to backslashes differs, so that a path with one is refused. Raises CannotSay."""
    command = " && ".join(shlex.join(words) for words in schedule.commands(quiet=True))
    if schedule.on_failure is not None:
        command += f" || {shlex.join(('/bin/sh', '-c', schedule.on_failure, 'sh', name_of(schedule.job)))}"
    if "\\" in command or not command.isprintable():
        raise CannotSay(
            "a backslash or a control character in a path or a command: no crontab line holds it surely"
        )
    hour, minute = time_of_day(schedule.at)
    command = command.replace("%", "\\%")
    if len(command) > LONGEST_CRON_LINE:
        raise CannotSay(
            f"the line has {len(command):,} characters, and cron takes {LONGEST_CRON_LINE}: name the install with "
            "--config or shorter paths"
        )
    return f"{minute} {hour} * * * {command}"
