"""What is done every night: what would run, and the unit files that make it so."""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import mem0audit
from mem0audit.core import schedule as core
from mem0audit.core.advice import dies_with_agent
from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.model import Install
from mem0audit.core.schedule import (
    JOBS,
    CannotSay,
    Nightly,
    Prune,
    Snapshot,
    Tell,
    What,
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
from mem0audit.operations.stores import place_of
from mem0audit.operations.targets import named
from mem0audit.stores import files


@dataclass(frozen=True)
class Asked:
    """How a job is to be set up, whatever it does. `program` are the words that start mem0audit, `install` the flags
    that name the install from anywhere; `at` is HH:MM in local time; `run_as` None where the stores' owner decides;
    `cron` asks for a crontab line; `on_failure` is for a shell."""

    program: tuple[str, ...]
    install: tuple[str, ...]
    at: str
    scope: Scope
    run_as: str | None = None
    cron: bool = False
    on_failure: str | None = None


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

    nightly: Nightly
    scope: Scope
    units: tuple[Unit, ...]
    cron: str | None
    folder_owner: str | None
    notes: tuple[str, ...]


def plan_schedule(install: Install, host: Host, what: What, asked: Asked) -> SchedulePlan:
    """The commands of each night, morning or week, and the units or the crontab line for them. Changes nothing.

    It runs as the owner of the stores, or as `run_as`, and as root where the agent has them in a /tmp of its own or in
    a container; a user's own units run as that user. What would be refused each night is refused now, where the stores
    are there. Raises UsageProblem, CouldNotRead, Refused; Refused too where the agent's unit is to be stopped, and the
    store goes with it.
    """
    _check(asked)
    about_unit: list[str] = []
    if isinstance(what, Tell):
        what = _telling(what, host, cron=asked.cron)
    elif isinstance(what, Prune):
        what, about_unit = _stopping(what, install, host, asked)
    if isinstance(what, Prune | Tell):
        place_of(install)
    paths = _stores(install, host)
    owners = {path: units.owner_of(path, host) for path in paths}
    missing = next((path for path, owner in owners.items() if owner is None), None)
    private = False
    try:
        private = any(seen_through(path, host)[0] is not None for path in _where(install, host, what))
    except CouldNotRead:
        if missing is None:
            raise
    notes = []
    if missing is not None and not private:
        if asked.run_as is None and asked.scope == "system":
            raise CouldNotRead(
                f"{missing} is not there, so that its owner is not known",
                "say as whom it runs with --run-as USER; where this install writes: mem0audit status",
            )
        notes.append(f"{missing} is not there yet")
    if private and isinstance(what, Prune):
        raise Refused(
            f"{paths[-1]} is there only while the agent runs: nothing can be removed with it stopped",
            "inside the agent:  mem0audit.prune(memory)",
        )
    # A /tmp of the agent's own, or a container: only root gets in.
    user = None if asked.scope == "user" else _user(asked.run_as or ("root" if private else None), owners)
    uid = host.uid if user is None else units.uid_of(user)
    notes += _notes(user, uid, owners, asked.program, host)
    nightly = Nightly(what, asked.program, asked.install, asked.at, user, asked.on_failure)
    texts, line = _texts(nightly, asked, host)
    owner = None
    if isinstance(what, Snapshot | Prune) and not os.path.isdir(host.at(what.folder)):  # noqa: PTH112
        owner = user or units.account(host.uid)
    return SchedulePlan(nightly, asked.scope, texts, line, owner, (*notes, *about_unit))


def _check(asked: Asked) -> None:
    """Raises UsageProblem for what cannot be, Refused where nothing can be scheduled."""
    if sys.platform == "win32":
        raise Refused("snapshots are taken on Linux and other Unix systems only")
    try:
        core.time_of_day(asked.at)
    except ValueError:
        raise UsageProblem("--at: no time of a day", "hours and minutes, as in 02:30") from None
    if asked.scope == "user" and asked.run_as is not None:
        raise UsageProblem("--user and --run-as: a user's own units run as that user")
    if asked.on_failure is not None and not (asked.on_failure.strip() and asked.on_failure.isprintable()):
        raise UsageProblem(
            "--on-failure: one line for a shell", "as in 'mail -s \"$1 failed\" ann </dev/null'"
        )


_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+=-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?", re.ASCII)


def _telling(what: Tell, host: Host, *, cron: bool) -> Tell:
    """Where to, its file under its whole path. Raises UsageProblem, Refused."""
    if what.to is not None and what.mail is not None:
        raise UsageProblem("where to? --to FILE or --mail ADDRESS")
    if cron and what.mail is not None:
        raise UsageProblem(
            "--cron and --mail: cron mails what a line says itself, to MAILTO",
            f"leave --mail out, and put MAILTO={what.mail} above the line",
        )
    if what.mail is not None:
        if not _ADDRESS.fullmatch(what.mail):
            raise UsageProblem(f"--mail {what.mail}: no address")
        if not what.mailer:
            raise Refused("there is no program `mail` on this machine", "write a file instead: --to FILE")
    elif what.to is None:
        if cron:
            return what
        raise UsageProblem("where to? --to FILE or --mail ADDRESS")
    if what.to is None:
        return what
    to = os.path.join(host.cwd, os.path.expanduser(what.to))  # noqa: PTH111, PTH118
    if not os.path.isdir(host.at(os.path.dirname(to))):  # noqa: PTH112, PTH120
        raise UsageProblem(f"--to {to}: there is no such folder")
    return replace(what, to=to)


def _stopping(what: Prune, install: Install, host: Host, asked: Asked) -> tuple[Prune, list[str]]:
    """The same with the full name of the unit to stop and the lock to wait for, and what is to be known of that unit.
    Raises UsageProblem, Refused."""
    if what.stop_unit is None:
        return what, []
    unit = unit_named(what.stop_unit)
    if unit is None or unit in map(service_of, JOBS):
        raise UsageProblem(
            f"--stop-unit {what.stop_unit}: no name of the agent's service", "as in agent.service"
        )
    if asked.cron:
        raise UsageProblem(
            "--cron and --stop-unit: killed, a crontab line starts nothing again",
            "a systemd unit does: leave --cron out",
        )
    lock = f"{install.vectors.value.rstrip('/')}/.lock" if install.vectors is not None else ""
    return replace(what, stop_unit=unit, lock=lock), _notes_on_unit(unit, install, host, asked.scope)


def _notes_on_unit(unit: str, install: Install, host: Host, scope: Scope) -> list[str]:
    """What is to be known of the unit that is stopped. Raises UsageProblem, Refused."""
    facts, why = units.unit_facts(scope, unit, host)
    notes = []
    if facts is None:
        notes.append(f"whether there is a unit {unit} could not be asked: {why}")
    elif facts.get("LoadState") == "not-found":
        own = " --user" if scope == "user" else ""
        raise UsageProblem(
            f"--stop-unit {unit}: there is no such {scope} unit",
            f"systemctl{own} list-units --type=service",
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


def _stores(install: Install, host: Host) -> list[str]:
    """The paths of the stores. Raises Refused where no job can find them."""
    paths = [install.history.value, *([install.vectors.value] if install.vectors is not None else [])]
    for path in paths:
        if seen_through(path, host)[0] is not None:
            raise Refused(
                f"{path} is there only while that very process lives: no job finds it the next night",
                "move the store out of there first: mem0audit explain L104",
            )
    return paths


def _where(install: Install, host: Host, what: What) -> list[str]:
    """Where the stores lie, seen from here. Raises CouldNotRead, Refused as `snapshot create` would."""
    if isinstance(what, Snapshot | Prune):
        seen = plan_pair(install, host, what.folder).install
    else:
        paths = [o.value for o in (install.history, install.vectors) if o is not None]
        seen = as_the_agent_sees_it(install, holders(paths, host).holders, host)
    return [o.value for o in (seen.history, seen.vectors) if o is not None]


def _texts(nightly: Nightly, asked: Asked, host: Host) -> tuple[tuple[Unit, ...], str | None]:
    """The unit files, or none and the crontab line. Raises UsageProblem for what cannot be written so."""
    where = units.unit_folder(asked.scope, host)
    try:
        if asked.cron:
            return (), core.cron_line(nightly)
        texts = [
            Unit(f"{where}/{service_of(nightly.job)}", core.service_text(nightly)),
            Unit(f"{where}/{timer_of(nightly.job)}", core.timer_text(nightly)),
        ]
        if nightly.on_failure is not None:
            texts.append(Unit(f"{where}/{failed_of(nightly.job)}", core.failed_text(nightly)))
    except CannotSay as problem:
        raise UsageProblem(str(problem)) from None
    return tuple(texts), None


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
    for words in (("daemon-reload",), ("enable", "--now", timer_of(plan.nightly.job))):
        well, said = units.systemctl(plan.scope, words, host)
        if not well:
            raise Failed(
                f"the unit files are written, and not enabled: systemctl {' '.join(words)}: {said}",
                "the same command finishes it",
            )
