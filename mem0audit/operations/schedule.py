"""What is done every night: what would run, the unit files that make it so, and what became of it."""

from __future__ import annotations

import os
import re
import shlex
import site
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import mem0audit
from mem0audit.core import schedule as core
from mem0audit.core.advice import dies_with_agent
from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.model import Install, NotChecked
from mem0audit.core.retention import Policy
from mem0audit.core.schedule import (
    JOBS,
    Auditing,
    CannotSay,
    Job,
    Nightly,
    Pruning,
    Schedule,
    Telling,
    failed_of,
    service_of,
    timer_of,
    unit_named,
)
from mem0audit.install import units
from mem0audit.install.host import Host, seen_through
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.install.units import Scope
from mem0audit.operations.otherroots import as_the_agent_sees_it
from mem0audit.operations.pairs import plan_pair
from mem0audit.operations.targets import named
from mem0audit.stores import files


@dataclass(frozen=True)
class Unit:
    """A unit file: its whole path and text."""

    path: str
    text: str


@dataclass(frozen=True)
class SchedulePlan:
    """What `schedule snapshot`, `prune`, `audit`, `new` or `review` would set up.

    `cron` is None unless asked for; `folder_owner` is whom a folder for the snapshots that is not there yet should be
    made for, None where it is there; `notes` are said to the user."""

    schedule: Nightly
    scope: Scope
    units: tuple[Unit, ...]
    cron: str | None
    folder_owner: str | None
    notes: tuple[str, ...]


def plan_schedule(
    install: Install,
    host: Host,
    program: tuple[str, ...],
    install_words: tuple[str, ...],
    folder: str,
    policy: Policy,
    at: str,
    scope: Scope,
    run_as: str | None = None,
    *,
    cron: bool = False,
    on_failure: str | None = None,
) -> SchedulePlan:
    """The three commands of each night and the units or the crontab line for them. Changes nothing.

    It runs as the owner of the store, or as `run_as`, and as root where the agent has the store in a /tmp of its own or
    in a container; a user's own units run as that user. What `snapshot create`
    would refuse each night is refused now, where the stores are there. Raises UsageProblem, CouldNotRead, Refused.
    """

    def made(user: str | None) -> Schedule:
        return Schedule(program, install_words, folder, policy, at, user, _checked(on_failure))

    return _planned(install, host, program, folder, at, scope, run_as, made, cron=cron)


def plan_pruning(
    install: Install,
    host: Host,
    program: tuple[str, ...],
    install_words: tuple[str, ...],
    folder: str,
    at: str,
    scope: Scope,
    run_as: str | None = None,
    *,
    older_than: str | None = None,
    unused: bool = False,
    stop_unit: str | None = None,
    cron: bool = False,
    on_failure: str | None = None,
) -> SchedulePlan:
    """The command of each night that removes what has had its time, and the units or the crontab line for it.

    Changes nothing. With `stop_unit` the agent's unit is stopped before, if it runs, and always started again. Raises
    as `plan_schedule` does; Refused also for a store that goes when the agent stops.
    """
    notes = []
    unit = None
    if stop_unit is not None:
        unit = unit_named(stop_unit)
        if unit is None or unit in map(service_of, JOBS):
            raise UsageProblem(
                f"--stop-unit {stop_unit}: no name of the agent's service", "as in agent.service"
            )
        if cron:
            raise UsageProblem(
                "--cron and --stop-unit: killed, a crontab line starts nothing again",
                "a systemd unit does: leave --cron out",
            )
        notes = _notes_on_unit(unit, install, host, scope)

    def made(user: str | None) -> Pruning:
        lock = f"{install.vectors.value.rstrip('/')}/.lock" if install.vectors is not None else ""
        return Pruning(
            program, install_words, folder, at, user, older_than, unit, lock, unused, _checked(on_failure)
        )

    plan = _planned(install, host, program, folder, at, scope, run_as, made, cron=cron, stops=True)
    return replace(plan, notes=(*plan.notes, *notes))


def plan_telling(
    install: Install,
    host: Host,
    program: tuple[str, ...],
    install_words: tuple[str, ...],
    at: str,
    scope: Scope,
    run_as: str | None = None,
    *,
    to: str | None = None,
    mail: str | None = None,
    mailer: str | None = None,
    job: Literal["new", "review"] = "new",
    on_failure: str | None = None,
) -> SchedulePlan:
    """The command that tells what was added, each morning, or what is to be reviewed, each Monday: into the file `to`,
    or by mail through the program `mailer`. Changes nothing. Raises UsageProblem, CouldNotRead, Refused."""
    if (to is None) == (mail is None):
        raise UsageProblem("where to? --to FILE or --mail ADDRESS")
    if mail is not None and not _ADDRESS.fullmatch(mail):
        raise UsageProblem(f"--mail {mail}: no address")
    if mail is not None and mailer is None:
        raise Refused("there is no program `mail` on this machine", "write a file instead: --to FILE")
    if to is not None:
        to = os.path.join(host.cwd, os.path.expanduser(to))  # noqa: PTH111, PTH118
        if not os.path.isdir(host.at(os.path.dirname(to))):  # noqa: PTH112, PTH120
            raise UsageProblem(f"--to {to}: there is no such folder")

    def made(user: str | None) -> Telling:
        return Telling(
            *(program, install_words, at, user, to, mail, mailer or "", job), on_failure=_checked(on_failure)
        )

    return _reading(install, host, program, at, scope, run_as, made, cron=False)


def plan_auditing(
    install: Install,
    host: Host,
    program: tuple[str, ...],
    install_words: tuple[str, ...],
    at: str,
    scope: Scope,
    run_as: str | None = None,
    *,
    fail_on: str | None = None,
    cron: bool = False,
    on_failure: str | None = None,
) -> SchedulePlan:
    """The audit of each day; findings from `fail_on` on make it fail. Changes nothing. Raises UsageProblem,
    CouldNotRead, Refused."""

    def made(user: str | None) -> Auditing:
        return Auditing(program, install_words, at, user, fail_on, _checked(on_failure))

    return _reading(install, host, program, at, scope, run_as, made, cron=cron)


def _checked(on_failure: str | None) -> str | None:
    if on_failure is not None and not (on_failure.strip() and on_failure.isprintable()):
        raise UsageProblem(
            "--on-failure: one line for a shell", "as in 'mail -s \"$1 failed\" ann </dev/null'"
        )
    return on_failure


def _reading(
    install: Install,
    host: Host,
    program: tuple[str, ...],
    at: str,
    scope: Scope,
    run_as: str | None,
    made: Callable[[str | None], Nightly],
    *,
    cron: bool,
) -> SchedulePlan:
    """The plan of a job that only reads the stores."""
    paths = _stores(install, host, at, scope, run_as)
    held = holders(paths, host).holders
    seen = as_the_agent_sees_it(install, held, host)
    lies = [o.value for o in (seen.history, seen.vectors) if o is not None]
    private = any(seen_through(path, host)[0] is not None for path in lies)
    owners = {path: units.owner_of(path, host) for path in paths}
    if not private and run_as is None and scope == "system" and None in owners.values():
        missing = next(path for path, owner in owners.items() if owner is None)
        raise CouldNotRead(
            f"{missing} is not there, so that its owner is not known",
            "say as whom it runs with --run-as USER",
        )
    user = None if scope == "user" else _user(run_as or ("root" if private else None), owners)
    uid = host.uid if user is None else units.uid_of(user)
    wanted = made(user)
    texts, line = _texts(wanted, scope, host, cron=cron)
    return SchedulePlan(wanted, scope, texts, line, None, tuple(_notes(user, uid, owners, program, host)))


def _texts(wanted: Nightly, scope: Scope, host: Host, *, cron: bool) -> tuple[tuple[Unit, ...], str | None]:
    """The unit files, or none and the crontab line. Raises UsageProblem for what cannot be written so."""
    where = units.unit_folder(scope, host)
    try:
        line = core.cron_line(wanted) if cron else None
        texts = [
            Unit(f"{where}/{service_of(wanted.job)}", core.service_text(wanted)),
            Unit(f"{where}/{timer_of(wanted.job)}", core.timer_text(wanted)),
        ]
        if wanted.on_failure is not None:
            texts.append(Unit(f"{where}/{failed_of(wanted.job)}", core.failed_text(wanted)))
    except CannotSay as problem:
        raise UsageProblem(str(problem)) from None
    return () if cron else tuple(texts), line


_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+=-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?", re.ASCII)


def _notes_on_unit(unit: str, install: Install, host: Host, scope: Scope) -> list[str]:
    """What is to be known of the unit that is stopped. Raises UsageProblem, Refused."""
    facts, why = units.unit_facts(scope, unit, host)
    notes = []
    if facts is None:
        notes.append(f"whether there is a unit {unit} could not be asked: {why}")
    elif facts.get("LoadState") == "not-found":
        raise UsageProblem(
            f"--stop-unit {unit}: there is no such {scope} unit", "systemctl list-units --type=service"
        )
    paths = [o.value for o in (install.history, install.vectors) if o is not None]
    held = holders(paths, host).holders
    for holder in held:
        dying = next((p for p in paths if dies_with_agent(look_at(p, host), holder)), None)
        if dying is not None:
            raise Refused(
                f"{dying} goes when {unit} stops: no job may stop it",
                "move the store to a place that lasts first: mem0audit relocate --help",
            )
        if holder.unit != unit and install.vectors is not None:  # on a server it is removed beside it
            notes.append(
                f"the store is open in {named(holder)}, which is not {unit}: while that runs nothing is removed"
            )
    return notes


def _planned(
    install: Install,
    host: Host,
    program: tuple[str, ...],
    folder: str,
    at: str,
    scope: Scope,
    run_as: str | None,
    made: Callable[[str | None], Nightly],
    *,
    cron: bool,
    stops: bool = False,
) -> SchedulePlan:
    """The plan of a job. `stops` where the agent has to be stopped for it."""
    notes: list[str] = []
    paths = _stores(install, host, at, scope, run_as)
    owners = {path: units.owner_of(path, host) for path in paths}
    missing = [path for path, owner in owners.items() if owner is None]
    private = False
    try:
        seen = plan_pair(install, host, folder).install
        lies = [seen.history.value, *([seen.vectors.value] if seen.vectors is not None else [])]
        private = any(seen_through(path, host)[0] is not None for path in lies)
    except CouldNotRead:
        if not missing:
            raise
        if run_as is None and scope == "system":
            raise CouldNotRead(
                f"{missing[0]} is not there, so that its owner is not known",
                "say as whom it runs with --run-as USER; where this install writes: mem0audit status",
            ) from None
        notes.append(f"{missing[0]} is not there yet")
    if private and stops:
        raise Refused(
            f"{paths[-1]} is there only while the agent runs: nothing can be removed with it stopped",
            "inside the agent:  mem0audit.prune(memory)",
        )
    # A /tmp of the agent's own, or a container: only root gets in.
    user = None if scope == "user" else _user(run_as or ("root" if private else None), owners)
    uid = host.uid if user is None else units.uid_of(user)
    notes += _notes(user, uid, owners, program, host)
    wanted = made(user)
    texts, line = _texts(wanted, scope, host, cron=cron)
    there = os.path.isdir(host.at(folder))  # noqa: PTH112
    owner = None if there else user or units.account(host.uid)
    return SchedulePlan(wanted, scope, texts, line, owner, tuple(notes))


def _stores(install: Install, host: Host, at: str, scope: Scope, run_as: str | None) -> list[str]:
    """The paths of the stores. Raises Refused where no job can find them, UsageProblem for flags that cannot be."""
    if sys.platform == "win32":
        raise Refused("snapshots are taken on Linux and other Unix systems only")
    try:
        core.time_of_day(at)
    except ValueError:
        raise UsageProblem("--at: no time of a day", "hours and minutes, as in 02:30") from None
    if scope == "user" and run_as is not None:
        raise UsageProblem("--user and --run-as: a user's own units run as that user")
    paths = [install.history.value, *([install.vectors.value] if install.vectors is not None else [])]
    for path in paths:
        if seen_through(path, host)[0] is not None:
            raise Refused(
                f"{path} is there only while that very process lives: no job finds it the next night",
                "move the store out of there first: mem0audit explain L104",
            )
    return paths


def _user(run_as: str | None, owners: dict[str, int | None]) -> str:
    if run_as is not None:
        if units.uid_of(run_as) is None and not _is_name(run_as):
            raise UsageProblem(f"--run-as {run_as}: no name of an account")
        return run_as
    found = {owner for owner in owners.values() if owner is not None}
    # Halves that belong to two users are read by root alone.
    return units.account(found.pop()) if len(found) == 1 else "root"


def _is_name(user: str) -> bool:
    return user.isascii() and user.replace("-", "").replace("_", "").replace(".", "").isalnum()


def _notes(
    user: str | None, uid: int | None, owners: dict[str, int | None], program: Sequence[str], host: Host
) -> list[str]:
    if uid is None:
        return [f"there is no user {user} on this machine yet"]
    notes = []
    for path in (program[0], os.path.dirname(mem0audit.__file__)):  # noqa: PTH120
        closed = units.not_reachable(path, uid, host)
        if closed is not None:
            notes.append(
                f"{user or units.account(uid)} cannot run {program[0]}: {closed} is closed to that user; install "
                "mem0audit where that user may run it"
            )
            break
    else:
        if uid != host.uid and mem0audit.__file__.startswith(site.getusersitepackages()):
            notes.append(
                f"mem0audit lies in {site.getusersitepackages()}, where the Python of another user does not look; "
                "install it for all (pipx install --global, or an environment in /opt)"
            )
    for path, owner in owners.items():
        if uid and owner not in (None, uid):
            notes.append(
                f"{path} belongs to {units.account(owner or 0)}, and this runs as {units.account(uid)}"
            )
    return notes


# --- Install ---------------------------------------------------------------------------------------


def install_units(plan: SchedulePlan, host: Host, *, overwrite: bool) -> tuple[tuple[str, str], ...]:
    """Writes the unit files, each whole, and gives (path, "written" or "as it was"). Enables nothing.

    Raises Refused, before anything is written, where one of them is there and differs and `overwrite` is false, or is
    a link (a masked unit is one), or root is needed; Failed where one could not be written.
    """
    if plan.scope == "system" and host.uid:
        raise Refused(
            f"{units.unit_folder('system', host)} is root's: nothing was written",
            "run it with sudo, or set up your own units with --user",
        )
    done = []
    for unit in plan.units:
        path = Path(unit.path)
        if path.is_symlink():
            raise Refused(
                f"{unit.path} is a link to {os.readlink(path)}: nothing was written",  # noqa: PTH115
                "a masked unit is such a link: systemctl unmask",
            )
        try:
            same = path.read_bytes() == unit.text.encode("utf-8")
        except FileNotFoundError:
            done.append((unit, "written"))
            continue
        except OSError as error:
            raise Refused(f"{unit.path}: {(error.strerror or 'cannot be read').lower()}") from None
        if not same and not overwrite:
            raise Refused(f"{unit.path} is there and differs: nothing was written", "to replace it: --yes")
        done.append((unit, "as it was" if same else "written"))
    for unit, what in done:
        if what == "as it was":
            continue
        try:
            files.make_folders(Path(unit.path).parent)
            files.write_file(Path(unit.path), unit.text.encode("utf-8"), mode=0o644, ours=True)
        except OSError as error:
            raise Failed(
                f"{unit.path}: {(error.strerror or 'could not be written').lower()}",
                "the same command finishes it",
            ) from None
    return tuple((unit.path, what) for unit, what in done)


def enable(plan: SchedulePlan, host: Host) -> None:
    """Lets systemd read the units and start the timer, now and at each boot. Raises Failed."""
    for words in (("daemon-reload",), ("enable", "--now", timer_of(plan.schedule.job))):
        well, said = units.systemctl(plan.scope, words, host)
        if not well:
            raise Failed(
                f"the unit files are written, and not enabled: systemctl {' '.join(words)}: {said}",
                "the same command finishes it",
            )


@dataclass(frozen=True)
class RunOnce:
    """How a run by hand ended: `why_not` where there was none; `state` as `schedule status` tells it."""

    state: Scheduled | None = None
    said: tuple[str, ...] = ()
    why_not: str | None = None

    @property
    def failed(self) -> bool:
        """Whether there was one, and it failed."""
        return self.state is not None and bool(self.state.last_failed)


LONGEST_RUN_S: Final = 6 * 3600
"""No job may take longer (TimeoutStartSec=)."""


def run_once(plan: SchedulePlan, host: Host) -> RunOnce:
    """Has systemd run the installed job now, as the timer will, and waits for its end. Raises nothing."""
    service = service_of(plan.schedule.job)
    well, said = units.systemctl(plan.scope, ("daemon-reload",), host)
    if not well:
        return RunOnce(why_not=said)
    before, _ = units.unit_facts(plan.scope, service, host)
    well, said = units.systemctl(plan.scope, ("start", service), host, timeout=LONGEST_RUN_S)
    facts, _ = units.unit_facts(plan.scope, service, host)
    state, _ = _scheduled(plan.schedule.job, plan.scope, host)
    if facts is None or before is None or facts.get("InvocationID") in ("", before.get("InvocationID")):
        return RunOnce(why_not=said)
    lines = units.journal(plan.scope, facts["InvocationID"], 20, host)
    return RunOnce(state, lines)


# --- Status ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scheduled:
    """One job of one scope ("system" or "user"): unit files that are there, and what systemd says.

    Times are texts of systemd's, UTC; None where there is none or it is not known. `last_failed` is None where no
    run is known.
    """

    scope: str
    paths: tuple[str, ...]
    commands: tuple[str, ...] = ()
    enabled: str | None = None
    active: str | None = None
    next_at: str | None = None
    last_at: str | None = None
    last_failed: bool | None = None
    last_exit: int | None = None
    stale: bool = False
    """The files changed since systemd read them."""
    job: Job = "snapshot"
    last_result: str | None = None
    """systemd's word: success, exit-code, timeout, signal and others (systemd.exec(5), $SERVICE_RESULT)."""
    last_said: tuple[str, ...] = ()
    """Of a run that failed, the end of what it said, where the journal can be read."""

    @property
    def was_locked(self) -> bool:
        """Whether another program had a database locked for too long."""
        return any(_LOCKED.search(line) for line in self.last_said)


@dataclass(frozen=True)
class ScheduleStatus:
    """What is set up on this machine, as far as this user sees."""

    found: tuple[Scheduled, ...]
    cron: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]


_LOCKED = re.compile(r"database is locked|another mem0audit is writing to it")
_CRON = re.compile(
    r"\bsnapshot create\b|\bprune --yes\b|\bmem0audit\S* (audit --quiet|new --since|review --list)\b"
)


def schedule_status(host: Host) -> ScheduleStatus:
    """What is set up, and when it last ran and runs next. Changes nothing; what cannot be seen is said."""
    found, not_checked = [], []
    scopes: tuple[Scope, ...] = ("system", "user")
    for scope in scopes:
        gaps = []
        for job in JOBS:
            one, gap = _scheduled(job, scope, host)
            if one is not None:
                found.append(one)
            if gap is not None:
                gaps.append((gap, one is not None))
        if gaps:
            why, is_gap = next((gap for gap in gaps if gap[1]), gaps[0])
            not_checked.append(NotChecked(f"what systemd knows of {scope} units", why, gap=is_gap))
    well, said = units.crontab(host)
    lines = tuple(
        line
        for line in (said.splitlines() if well else ())
        if _CRON.search(line) and not line.lstrip().startswith("#")
    )
    if not well and not said.startswith("no crontab"):
        not_checked.append(NotChecked("this user's crontab", said, gap=False))
    return ScheduleStatus(tuple(found), lines, tuple(not_checked))


def _scheduled(job: Job, scope: Scope, host: Host) -> tuple[Scheduled | None, str | None]:
    where = units.unit_folder(scope, host)
    names = service_of(job), timer_of(job)
    paths = tuple(path for path in (f"{where}/{name}" for name in names) if os.path.lexists(host.at(path)))
    commands = _commands(f"{where}/{names[0]}", host)
    timer, gap = units.unit_facts(scope, names[1], host)
    service, _ = units.unit_facts(scope, names[0], host)
    if timer is None or service is None:
        return (Scheduled(scope, paths, commands, job=job) if paths else None), gap
    if not paths and timer.get("LoadState") == "not-found" == service.get("LoadState"):
        return None, None
    ran = _time(service, "ExecMainExitTimestamp") is not None
    status = service.get("ExecMainStatus", "")
    failed = service.get("Result") != "success" if ran else None
    run = service.get("InvocationID", "")
    return (
        Scheduled(
            scope=scope,
            paths=paths,
            commands=commands,
            enabled=timer.get("UnitFileState") or None,
            active=timer.get("ActiveState") or None,
            next_at=_time(timer, "NextElapseUSecRealtime"),
            last_at=_time(service, "ExecMainStartTimestamp") or _time(timer, "LastTriggerUSec"),
            last_failed=failed,
            last_exit=int(status) if ran and status.isdecimal() else None,
            stale="yes" in (timer.get("NeedDaemonReload"), service.get("NeedDaemonReload")),
            job=job,
            last_result=service.get("Result") or None if ran else None,
            last_said=units.journal(scope, run, 5, host) if failed and run else (),
        ),
        None,
    )


def _time(facts: dict[str, str], key: str) -> str | None:
    value = facts.get(key, "")
    return None if value in ("", "n/a", "0") else value


def _commands(path: str, host: Host) -> tuple[str, ...]:
    try:
        text = Path(host.at(path)).read_text("utf-8", "backslashreplace")
    except OSError:
        return ()
    return tuple(
        line.partition("=")[2].strip() for line in text.splitlines() if line.startswith("ExecStart=")
    )


_KEEP = {
    "--keep-last": "last",
    "--keep-daily": "daily",
    "--keep-weekly": "weekly",
    "--keep-monthly": "monthly",
    "--keep-within": "within",
}


def policies(host: Host) -> dict[str, Policy]:
    """Folder of snapshots -> what is kept of it by what is set up on this machine, as far as this user sees: our
    units, and this user's crontab. Asks no systemd; raises nothing."""
    scopes: tuple[Scope, ...] = ("system", "user")
    lines = [
        line.replace("%%", "%").replace("$$", "$")
        for scope in scopes
        for line in _commands(f"{units.unit_folder(scope, host)}/{service_of('snapshot')}", host)
    ]
    well, said = units.crontab(host)
    for line in said.splitlines() if well else ():
        if not line.lstrip().startswith("#"):
            lines += line.split("&&")
    found = {}
    for line in lines:
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        if "snapshot" not in words or "expire" not in words or "--to" not in words[:-1]:
            continue
        given: dict[str, str | int] = {}
        for flag, value in pairwise(words):
            if flag in _KEEP:
                given[_KEEP[flag]] = int(value) if value.isdecimal() else value
        found[os.path.realpath(words[words.index("--to") + 1])] = Policy(**given)  # type: ignore[arg-type]
    return found
