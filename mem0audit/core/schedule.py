"""What is done every night or week: the commands, the systemd units and the cron line that run them. Pure text.

What differs between the jobs is said once for each: by `KINDS` what is always so, by `Snapshot`, `Prune`, `Audit` and
`Tell` what somebody chose. A snapshot is three commands in order, each only when the one before ended well: `snapshot
create`, `snapshot verify --new`, `snapshot expire`. A service of Type=oneshot runs its ExecStart lines so
(systemd.service(5)); in a crontab `&&` does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
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


# --- The jobs ------------------------------------------------------------------------------------


def _beside(why: str) -> tuple[str, ...]:
    """The limits of a job beside a running agent."""
    low = ("Nice=5", "IOSchedulingClass=best-effort", "IOSchedulingPriority=6")
    return "TimeoutStartSec=6h", "UMask=0077", f"# {why}", *low


_TELLING: Final = ("TimeoutStartSec=1h", "UMask=0077")


@dataclass(frozen=True)
class Kind:
    """What is so of a job whatever it is set up with. `does` is it in a line, `comment` at length; `often` in words,
    `day` that of the week (None: all), `sharp` where no quarter of an hour is left to systemd; `limits` are lines of
    its service."""

    does: str
    comment: str
    often: str
    limits: tuple[str, ...]
    day: str | None = None
    sharp: bool = False


KINDS: Final[Mapping[Job, Kind]] = {
    "snapshot": Kind(
        "Snapshot of a mem0 install",
        "Both stores of a mem0 install as one pair: taken, verified, and older ones expired.",
        "every night",
        _beside("No slower than this: while the pages are copied a writing agent waits."),
    ),
    "prune": Kind(
        "Prune a mem0 install",
        "What has had its time in a mem0 install, removed through mem0 after a snapshot of both stores.",
        "every night",
        (
            "TimeoutStartSec=1h",
            "TimeoutStopSec=5min",
            "# What ends it ends mem0audit, which lets mem0 finish the deletion that it is at.",
            "KillMode=mixed",
            "UMask=0077",
        ),
    ),
    "audit": Kind(
        "Audit of a mem0 install",
        "Both stores of a mem0 install, side by side; findings make it fail.",
        "every night",
        _beside("The agent comes first."),
    ),
    "new": Kind(
        "Tell what a mem0 install remembered anew",
        "Memories that a mem0 install added since yesterday, and where they came from.",
        "every morning",
        _TELLING,
        sharp=True,
    ),
    "review": Kind(
        "Tell which memories of a mem0 install to review",
        "Memories of a mem0 install that nobody confirmed for long: is it still true?",
        "every Monday",
        _TELLING,
        day="Mon",
        sharp=True,
    ),
}

Words = tuple[str, ...]


@dataclass(frozen=True)
class Snapshot:
    """Both stores as a pair into `folder`; `nodes` are the other nodes of a server's cluster."""

    job: ClassVar[Job] = "snapshot"
    folder: str
    policy: Policy
    nodes: tuple[str, ...] = ()

    def words(self) -> Words:
        """The words of `schedule snapshot` that are this job's own."""
        return ("--to", self.folder, *_nodes(self.nodes), *self.policy.words())

    def commands(self, install: Words, less: Words) -> tuple[Words, ...]:
        """What is run, without the program; `less` makes it say nothing where all went well."""
        to = ("--to", self.folder)
        return (
            ("snapshot", "create", *less, *to, *install, *_nodes(self.nodes)),
            ("snapshot", "verify", "--new", *less, *to),
            ("snapshot", "expire", "--yes", *less, *to, *self.policy.words()),
        )


def _nodes(nodes: tuple[str, ...]) -> Words:
    return tuple(word for node in nodes for word in ("--node", node))


@dataclass(frozen=True)
class Prune:
    """What has had its time removed, after a snapshot into `folder`. `stop_unit` is the agent's, stopped before and
    started again after it; `lock` the file that an agent locks in the vector store; `nodes` as of `Snapshot`."""

    job: ClassVar[Job] = "prune"
    folder: str
    older_than: str | None = None
    unused: bool = False
    stop_unit: str | None = None
    lock: str = ""
    nodes: tuple[str, ...] = ()

    def words(self) -> Words:
        """As of `Snapshot`."""
        stop = ("--stop-unit", self.stop_unit) if self.stop_unit is not None else ()
        return ("--to", self.folder, *_nodes(self.nodes), *self._older(), *stop)

    def commands(self, install: Words, less: Words) -> tuple[Words, ...]:
        """As of `Snapshot`."""
        return (("prune", "--yes", *less, *self._to(), *install),)

    def is_due(self, install: Words) -> Words:
        """The command that says whether there is something to remove (0) or not (1)."""
        return ("prune", "--due", *self._to(), *install)

    def _to(self) -> Words:
        return ("--to", self.folder, *_nodes(self.nodes), *self._older())

    def _older(self) -> Words:
        older = ("--older-than", self.older_than) if self.older_than is not None else ()
        return (*older, *(("--unused",) if self.unused else ()))


@dataclass(frozen=True)
class Audit:
    """Findings from `fail_on` on (None: as the audit has it) make the run fail."""

    job: ClassVar[Job] = "audit"
    folder: ClassVar[str] = ""
    fail_on: str | None = None

    def words(self) -> Words:
        """As of `Snapshot`."""
        return ("--fail-on", self.fail_on) if self.fail_on is not None else ()

    def commands(self, install: Words, less: Words) -> tuple[Words, ...]:
        """As of `Snapshot`."""
        return (("audit", *less, *self.words(), *install),)


@dataclass(frozen=True)
class Tell:
    """Told to a person: what was added ("new"), or what nobody confirmed for long ("review"): into the file `to`, or by
    mail to `mail` through the program `mailer`; with neither it says it (and cron mails it). What memories say goes
    there alone, and not into the journal."""

    job: Literal["new", "review"]
    to: str | None = None
    mail: str | None = None
    mailer: str = ""

    @property
    def folder(self) -> str:
        """Where the file goes; empty where there is none."""
        return (self.to or "").rpartition("/")[0]

    def words(self) -> Words:
        """As of `Snapshot`."""
        if self.to is not None:
            return ("--to", self.to)
        return ("--mail", self.mail) if self.mail is not None else ()

    def commands(self, install: Words, less: Words) -> tuple[Words, ...]:
        """As of `Snapshot`. An hour more than a day: no timer is exact."""
        what = ("new", "--since", "25h") if self.job == "new" else ("review", "--list")
        target = self.to if self.to is not None else self.letter if self.mail is not None else None
        quiet = less if self.to is not None else ("--quiet",)
        return ((*what, *quiet, *(("-o", target) if target is not None else ()), *install),)

    @property
    def letter(self) -> str:
        """What is mailed: in a folder that systemd makes for the service (0700) and removes when it ends."""
        return f"%t/{name_of(self.job)}/{self.job}.txt"


What = Snapshot | Prune | Audit | Tell


@dataclass(frozen=True)
class Nightly:
    """A job as it is set up. `program` are the words that start mem0audit, the first an absolute path; `install` the
    flags that name the install; `at` is HH:MM in local time; `user` whom it runs as, None in a user's own units.
    `on_failure` is for a shell: done where a run failed."""

    what: What
    program: Words
    install: Words
    at: str
    user: str | None
    on_failure: str | None = None

    @property
    def job(self) -> Job:
        """Its name."""
        return self.what.job

    @property
    def kind(self) -> Kind:
        """What is so of all of this name."""
        return KINDS[self.job]

    def commands(self, *, quiet: bool = False) -> tuple[Words, ...]:
        """What is run, in order, as words; `quiet` commands say nothing where all went well."""
        less = ("--quiet",) if quiet else ()
        return tuple((*self.program, *words) for words in self.what.commands(self.install, less))


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
_MAIL: Final = '[ ! -s "$1" ] || exec "$2" -s "$3" "$4" <"$1"'
_TITLES: Final = {"new": "New memories", "review": "Memories to review"}


def service_text(nightly: Nightly) -> str:
    """The service. Raises CannotSay."""
    mails = isinstance(nightly.what, Tell) and nightly.what.mail is not None
    lines = [
        f"# {nightly.kind.comment}",
        f"# {_about(nightly.what)}",
        "[Unit]",
        f"Description={nightly.kind.does}",
        *_needs(nightly),
        *_on_failure(nightly),
        "",
        *_service(nightly),
        *_run(nightly),
        *nightly.kind.limits,
        "# No PrivateTmp, ProtectSystem or other view of the files of its own: it must see the stores,",
        "# which may lie in /tmp, and who has them open, just as the agent does.",
        *(_FREE if mails else _HARDENED),
    ]
    return "\n".join(lines) + "\n"


_HARDENED: Final = ("NoNewPrivileges=yes", "LockPersonality=yes", "RestrictRealtime=yes")
_FREE: Final = ("# Not hardened: each such line would forbid mail to run as somebody else (setuid, setgid).",)
"""Without root LockPersonality= and RestrictRealtime= bring NoNewPrivileges=yes with them (systemd.exec(5), seen with
252), and then exim, setuid, and postfix's postdrop, setgid, take no letter."""


def failed_text(nightly: Nightly) -> str:
    """The service that systemd starts where the job's own failed, for whatever reason: its program killed, too slow or
    not there, its mount missing. A line after the job's own (ExecStopPost=) would not see the last."""
    name = name_of(nightly.job)
    lines = [
        f"# Started where {service_of(nightly.job)} failed, also when it was killed or took too long.",
        "[Unit]",
        f"Description=Tell that {name} failed",
        "",
        *_service(nightly),
        f"ExecStart={exec_line(('/bin/sh', '-c', nightly.on_failure or '', 'sh', name))}",
        "TimeoutStartSec=5min",
        "UMask=0077",
        *_FREE,
    ]
    return "\n".join(lines) + "\n"


def _about(what: What) -> str:
    """What is worth knowing of its runs."""
    journal = f"journalctl -u {name_of(what.job)}"
    if isinstance(what, Tell):
        goes = f"into {unit_word(what.to)}" if what.to is not None else f"by mail to {what.mail}"
        return f"It goes {goes}, and nothing of it into the journal."
    if isinstance(what, Audit):
        return f"What it found, without what memories say: {journal}"
    if isinstance(what, Snapshot):
        return f"The first line that fails ends it, and the service has failed: {journal}"
    if what.stop_unit is None:
        return f"While the agent runs it only says what is to go, and fails with 4: {journal}"
    return f"{what.stop_unit} is stopped for it, if it runs, and then started again: {journal}"


def _needs(nightly: Nightly) -> list[str]:
    """What must be there before it: the folder of the snapshots, and at boot the agent."""
    what, lines = nightly.what, []
    if isinstance(what, Snapshot | Prune):
        lines.append(f"RequiresMountsFor={unit_word(what.folder)}")
    if isinstance(what, Prune):
        boot = "multi-user.target" if nightly.user is not None else "default.target"
        lines += ["# Made up for at boot, it does not come before the agent.", f"After={boot}"]
    return lines


def _on_failure(nightly: Nightly) -> list[str]:
    if nightly.on_failure is not None:
        return [f"OnFailure={failed_of(nightly.job)}"]
    return [
        "# To be told of a failure, name a unit of yours that sends a message:",
        "#OnFailure=tell-me@%n.service",
    ]


def _service(nightly: Nightly) -> list[str]:
    user = [f"User={nightly.user}"] if nightly.user is not None else []
    return ["[Service]", "Type=oneshot", *user]


def _run(nightly: Nightly) -> list[str]:
    """The lines of what is run, with what goes before and after it."""
    what = nightly.what
    lines = [f"ExecStart={exec_line(words)}" for words in nightly.commands()]
    if isinstance(what, Tell):
        return [*(_mailed(what, lines) if what.mail is not None else lines), "StandardOutput=null"]
    if not isinstance(what, Prune) or what.stop_unit is None:
        return lines
    due = (*nightly.program, *what.is_due(nightly.install))
    return [
        "# On a night with nothing to remove the agent is left alone.",
        f"ExecCondition={exec_line(('/bin/sh', '-c', _IF_DUE, 'sh', *due))}",
        f"ExecStartPre={_shell(nightly, _STOP, what.stop_unit)}",
        *lines,
        "# Always done, also when a line above failed, was killed or took too long.",
        f"ExecStopPost={_shell(nightly, _START, what.stop_unit, what.lock)}",
    ]


def _mailed(what: Tell, lines: list[str]) -> list[str]:
    # the specifier is systemd's: it stands as it is
    lines = [line.replace(unit_word(what.letter, argument=True), what.letter) for line in lines]
    more = (what.mailer, _TITLES[what.job], what.mail or "")
    send = (exec_line(("/bin/sh", "-c", _MAIL, "sh")), what.letter)
    return [
        f"RuntimeDirectory={name_of(what.job)}",
        "RuntimeDirectoryMode=0700",
        *lines,
        "# No mail where there is nothing to tell.",
        f"ExecStart={' '.join((*send, *(unit_word(word, argument=True) for word in more)))}",
    ]


def _shell(nightly: Nightly, script: str, unit: str, *more: str) -> str:
    """A line that asks systemd, as whom systemd itself runs."""
    full, own = ("+", "") if nightly.user is not None else ("", " --user")
    words = ("/bin/sh", "-c", script.format(own=own), "sh", unit)
    flag = f"%t/{name_of(nightly.job)}.was-running"
    return " ".join((f"{full}{exec_line(words)}", flag, *(unit_word(word, argument=True) for word in more)))


def timer_text(nightly: Nightly) -> str:
    """The timer: local time, made up for after the machine was off."""
    kind = nightly.kind
    hour, minute = time_of_day(nightly.at)
    day = f"{kind.day} " if kind.day is not None else ""
    lines = [
        "[Unit]",
        f"Description={kind.does}, {kind.often}",
        "",
        "[Timer]",
        f"OnCalendar={day}*-*-* {hour:02d}:{minute:02d}:00",
        *(["RandomizedDelaySec=15min"] if not kind.sharp else []),
        "Persistent=true",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "\n".join(lines) + "\n"


# --- cron ----------------------------------------------------------------------------------------


def cron_line(nightly: Nightly) -> str:
    r"""The line of a user's crontab. cron takes a `%` for a line's end unless a backslash stands before it
    (crontab(5)), and what else it does to backslashes differs, so that a path with one is refused. Raises CannotSay."""
    command = " && ".join(shlex.join(words) for words in nightly.commands(quiet=True))
    if nightly.on_failure is not None:
        command += f" || {shlex.join(('/bin/sh', '-c', nightly.on_failure, 'sh', name_of(nightly.job)))}"
    if "\\" in command or not command.isprintable():
        raise CannotSay(
            "a backslash or a control character in a path or a command: no crontab line holds it surely"
        )
    hour, minute = time_of_day(nightly.at)
    command = command.replace("%", "\\%")
    if len(command) > LONGEST_CRON_LINE:
        raise CannotSay(
            f"the line has {len(command):,} characters, and cron takes {LONGEST_CRON_LINE}: name the install with "
            "--config or shorter paths"
        )
    return f"{minute} {hour} * * {nightly.kind.day or '*'} {command}"
