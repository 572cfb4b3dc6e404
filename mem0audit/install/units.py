"""systemd and cron on this machine: where units lie, whom a store belongs to, what systemd knows of a timer."""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH116, PTH118

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
from collections.abc import Sequence
from typing import Final, Literal

from mem0audit.install.host import Host

Scope = Literal["system", "user"]

TIMEOUT_S: Final = 20


def unit_folder(scope: Scope, host: Host) -> str:
    """Where the administrator's units lie, or the user's own (systemd.unit(5), "Unit File Load Path")."""
    if scope == "system":
        return "/etc/systemd/system"
    config = host.environ.get("XDG_CONFIG_HOME") or os.path.join(host.home, ".config")
    return os.path.join(config, "systemd/user")


def owner_of(path: str, host: Host) -> int | None:
    """The user id that a file or folder belongs to, None where it is not there or cannot be looked at."""
    try:
        return os.stat(host.at(path)).st_uid
    except OSError:
        return None


def account(uid: int) -> str:
    """The name of an account, its number where it has none (systemd takes both)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def uid_of(user: str) -> int | None:
    """The number of an account, None where there is no such account here."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return int(user) if user.isdecimal() and user.isascii() else None


def not_reachable(path: str, uid: int, host: Host) -> str | None:
    """The first folder on the way to `path` that this user cannot pass, or `path` itself where the user cannot run
    it; None where nothing is in the way. By the mode alone: access lists are not looked at."""
    if uid == 0:
        return None
    groups = _groups(uid)
    way, rest = "/", [part for part in path.split("/") if part]
    for part in ["", *rest]:
        way = os.path.join(way, part) if part else way
        try:
            found = os.stat(host.at(way))
        except OSError:
            return way
        bit = stat.S_IXOTH
        if found.st_uid == uid:
            bit = stat.S_IXUSR
        elif found.st_gid in groups:
            bit = stat.S_IXGRP
        if not found.st_mode & bit:
            return way
    return None


def _groups(uid: int) -> frozenset[int]:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return frozenset()
    more = {one.gr_gid for one in grp.getgrall() if entry.pw_name in one.gr_mem}
    return frozenset({entry.pw_gid, *more})


def systemctl(scope: Scope, words: Sequence[str], host: Host, timeout: float = TIMEOUT_S) -> tuple[bool, str]:
    """Runs systemctl and gives whether it ended well, with its output or its first line of complaint."""
    return _run(("systemctl", *(("--user",) if scope == "user" else ()), *words), host, timeout)


def journal(scope: Scope, which: Sequence[str], most: int, host: Host) -> tuple[str, ...]:
    """The last lines of those `which` (fields, as in `_SYSTEMD_INVOCATION_ID=…`); none where it cannot be read."""
    words = ("journalctl", *(("--user",) if scope == "user" else ()), "--no-pager", "--quiet")
    well, said = _run((*words, "--output=cat", f"--lines={most}", *which), host)
    return tuple(said.splitlines()) if well else ()


def crontab(host: Host) -> tuple[bool, str]:
    """The crontab of this user; a complaint where there is none or no cron."""
    return _run(("crontab", "-l"), host)


def _run(words: Sequence[str], host: Host, timeout: float = TIMEOUT_S) -> tuple[bool, str]:
    environ = {**host.environ, "LC_ALL": "C", "TZ": "UTC", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    try:
        done = subprocess.run(
            words,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError:
        return False, f"there is no {words[0]} here"
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"{words[0]}: {type(error).__name__}"
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return False, lines[0] if lines else f"{words[0]} ended with {done.returncode}"
    return True, done.stdout


def unit_facts(scope: Scope, unit: str, host: Host) -> tuple[dict[str, str] | None, str]:
    """What systemd knows of a unit, None and why where it cannot be asked. Times are UTC, as systemd writes them."""
    wanted = (
        *("LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload"),
        *("NextElapseUSecRealtime", "LastTriggerUSec"),
        *("Result", "ExecMainStatus", "ExecMainStartTimestamp", "ExecMainExitTimestamp"),
        *("InactiveExitTimestamp", "InvocationID"),
    )
    well, said = systemctl(scope, ("show", unit, f"--property={','.join(wanted)}"), host)
    if not well:
        return None, said
    pairs = (line.partition("=") for line in said.splitlines())
    return {key: value for key, mark, value in pairs if mark}, ""
