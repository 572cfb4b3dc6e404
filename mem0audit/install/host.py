"""The machine we are on, as a value: everything below takes it, so that tests can point it elsewhere."""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH109, PTH115, PTH120, PTH123

from __future__ import annotations

import errno
import os
import pwd
import time
from collections.abc import Mapping
from dataclasses import dataclass

_INSIDE = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where to look, and when.

    `root` stands in for `/` and `proc` for `/proc`. `home` is what `~` means to mem0 run by this user.
    `boot_at` and `now` are seconds since 1970; `boot_at` is when the memory-backed filesystems that we
    see began: the machine's boot, or in a container the start of its first process. None if unknown.
    """

    root: str = "/"
    proc: str = "/proc"
    environ: Mapping[str, str]
    home: str
    cwd: str
    uid: int
    boot_at: float | None
    now: float

    def at(self, path: str) -> str:
        """The real location of an absolute `path` of this host (below `root` when that is not `/`)."""
        if self.root == "/":
            return path
        return self.root.rstrip("/") + path


def this_host() -> Host:
    """The machine, user and moment of this process. Never fails: what is unknown is None or `/`."""
    environ = dict(os.environ)
    uid = os.geteuid()
    # As os.path.expanduser, which mem0 uses: HOME if it is set at all, else the account's.
    home = environ.get("HOME") or home_of_uid(uid) or "/"
    try:
        # Not Path.cwd(): a deleted working directory is answered by the same exception here.
        cwd = os.getcwd()
    except OSError:
        cwd = "/"
    host = Host(environ=environ, home=home, cwd=cwd, uid=uid, boot_at=None, now=time.time())
    began = machine_boot(host)
    if began is not None and any(os.path.lexists(mark) for mark in _INSIDE):
        began = started_at(1, host) or began
    return Host(environ=environ, home=home, cwd=cwd, uid=uid, boot_at=began, now=host.now)


def machine_boot(host: Host) -> float | None:
    """When the kernel booted (`btime` of /proc/stat, whole seconds), None if it cannot be read."""
    for line in read_text(f"{host.proc}/stat").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return None


def started_at(pid: int, host: Host) -> float | None:
    """When a process was started, seconds since 1970; None if it is gone or not visible."""
    boot = machine_boot(host)
    # The command in brackets may hold spaces and brackets itself: count from the last one.
    _, bracket, tail = read_text(f"{host.proc}/{pid}/stat").rpartition(")")
    fields = tail.split()
    if boot is None or not bracket or len(fields) < 20:
        return None
    return boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def home_of_uid(uid: int) -> str | None:
    """The home folder of an account, None if there is no such account."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None


def read_text(path: str) -> str:
    """The text of a small file of the system, `""` where it cannot be read; never raises OSError."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def seen_through(path: str, host: Host) -> tuple[int | None, str]:
    """Splits `/proc/PID/root/x` into (PID, `/x`); any other path gives (None, path).

    Such a path is another mount namespace seen from here. Its symlinks must never be resolved by
    reading them (`/proc/PID/root` reads as `/`, which would lead back to our own files).
    """
    prefix = host.proc.rstrip("/") + "/"
    if path.startswith(prefix):
        pid, _, rest = path[len(prefix) :].partition("/")
        first, _, inner = rest.partition("/")
        if pid.isdigit() and first == "root":
            return int(pid), "/" + inner
    return None, path


def resolved(path: str, host: Host) -> str:
    """`path` with its symlinks followed, as a path of this host; the missing end of it is kept.

    Below `/proc/PID/root` and with a `root` other than `/`, links are followed inside that root.
    Raises OSError (ELOOP) on a loop.
    """
    pid, inner = seen_through(path, host)
    if pid is not None:
        base = f"{host.proc.rstrip('/')}/{pid}/root"
        return base + _resolved_inside(base, inner)
    return _resolved_inside("" if host.root == "/" else host.root.rstrip("/"), path)


def _resolved_inside(base: str, path: str) -> str:
    done = "/"
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = os.path.dirname(done)
            continue
        step = done.rstrip("/") + "/" + part
        try:
            target = os.readlink(base + step)
        except OSError:
            done = step
            continue
        links += 1
        if links > 40:
            raise OSError(errno.ELOOP, "Too many levels of symbolic links", path)
        if target.startswith("/"):
            done = "/"
        todo.extend(target.split("/")[::-1])
    return done
