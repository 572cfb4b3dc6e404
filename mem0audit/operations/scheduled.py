"""What is set up to be done every night, and what became of it."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from mem0audit.core.model import NotChecked
from mem0audit.core.retention import Policy
from mem0audit.core.schedule import JOBS, Job, service_of, timer_of
from mem0audit.install import units
from mem0audit.install.host import Host
from mem0audit.install.units import Scope
from mem0audit.operations.schedule import SchedulePlan

SKIPPED: Final = "exec-condition"


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
    """systemd's word: success, exit-code, timeout, signal and others (systemd.exec(5), $SERVICE_RESULT); `SKIPPED`
    where nothing was to be done."""
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
    began = _time(service, "ExecMainStartTimestamp") or _time(service, "InactiveExitTimestamp")
    exited = _time(service, "ExecMainExitTimestamp") is not None
    ended = began is not None and service.get("ActiveState") not in _RUNNING
    result, status = service.get("Result") or None, service.get("ExecMainStatus", "")
    failed = result not in ("success", SKIPPED) if ended else None
    run = service.get("InvocationID", "")
    return (
        Scheduled(
            scope=scope,
            paths=paths,
            commands=commands,
            enabled=timer.get("UnitFileState") or None,
            active=timer.get("ActiveState") or None,
            next_at=_time(timer, "NextElapseUSecRealtime"),
            last_at=began or _time(timer, "LastTriggerUSec"),
            last_failed=failed,
            last_exit=int(status) if ended and exited and status.isdecimal() else None,
            stale="yes" in (timer.get("NeedDaemonReload"), service.get("NeedDaemonReload")),
            job=job,
            last_result=result if ended else None,
            last_said=units.journal(scope, (f"_SYSTEMD_INVOCATION_ID={run}",), 5, host)
            if failed and run
            else (),
        ),
        None,
    )


_RUNNING: Final = ("activating", "deactivating", "reloading")


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


# --- A run by hand ---


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
    service = service_of(plan.nightly.job)
    well, said = units.systemctl(plan.scope, ("daemon-reload",), host)
    if not well:
        return RunOnce(why_not=said)
    before, _ = units.unit_facts(plan.scope, service, host)
    well, said = units.systemctl(plan.scope, ("start", service), host, timeout=LONGEST_RUN_S)
    facts, _ = units.unit_facts(plan.scope, service, host)
    state, _ = _scheduled(plan.nightly.job, plan.scope, host)
    run = facts.get("InvocationID", "") if facts is not None else ""
    if before is None or state is None or (not well and run in ("", before.get("InvocationID"))):
        return RunOnce(why_not=said)
    which: tuple[str, ...] = (f"_SYSTEMD_INVOCATION_ID={run}",)
    if not run:
        # it ended well, and a unit that nothing names, as an enabled timer would, systemd forgets at once
        state = replace(state, last_failed=False, last_exit=0, last_result="success")
        owner = "_SYSTEMD_USER_UNIT" if plan.scope == "user" else "_SYSTEMD_UNIT"
        which = (f"{owner}={service}", f"--since=@{int(host.now)}")
    return RunOnce(state, units.journal(plan.scope, which, 20, host))
