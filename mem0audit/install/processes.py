"""Who has the stores open: from /proc, without ever touching a lock.

An open descriptor is recognised by device and inode, so that another path, a bind mount or another
mount namespace does not hide it; and, for a file that was deleted under its holder or lies in a private
/tmp, by its path. Memory maps are not read: SQLite keeps a descriptor for as long as it maps a file.
"""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH112, PTH113, PTH115, PTH116, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mem0audit.core.model import Candidate, Holder
from mem0audit.install.containers import container_in
from mem0audit.install.host import Host, read_text, started_at
from mem0audit.install.interpreters import arguments_of, base_of, interpreter_of
from mem0audit.install.mounts import covers, mount_under, mountinfo_of, what_is_under

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of linux/proc_ns.h
_DELETED = " (deleted)"
_SIDES = ("", "-journal", "-wal", "-shm")
_COMMAND_LENGTH = 200
_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class HoldersLook:
    """Who has the stores open. `complete` is False, with `why`, where some processes were not visible."""

    holders: tuple[Holder, ...]
    complete: bool
    why: str | None = None


@dataclass(frozen=True)
class _Open:
    """One open descriptor: the process, its number, and what `/proc` says it is."""

    pid: int
    number: str
    path: str
    deleted: bool


def holders(paths: Sequence[str], host: Host) -> HoldersLook:
    """Every process that has one of `paths` (history files, embedded folders) open or holds its lock.

    Also one that has a file of the same path open in another mount namespace (its own /tmp): then
    `private_mounts` is True, and its store is not the one that we see. Never raises.
    """
    targets = _Targets(paths, host)
    locked = _lock_owners(targets, host)
    seen: dict[int, dict[str, None]] = {pid: {} for pid in locked}
    hidden = _Hidden()
    for entry in _open_files(host, hidden, targets.is_interesting):
        named = targets.named(entry, host)
        if named is not None:
            seen.setdefault(entry.pid, {}).setdefault(named)
    ours = os.getpid()
    found = []
    for pid in sorted(seen):
        if pid == ours:
            continue
        how_lock = pid in locked
        holder = _holder(pid, how_lock, (*locked.get(pid, ()), *seen[pid]), host)
        if holder is not None:
            found.append(holder)
    why = hidden.words(host)
    return HoldersLook(tuple(found), why is None, why)


def stores_held(host: Host) -> tuple[Candidate, ...]:
    """Every mem0 store that a visible process has open, in any mount namespace.

    Embedded folders by an open `collection/…/storage.sqlite` or a `.lock` beside a meta.json, histories by
    an open SQLite file named history.db. A path in another namespace is given as `/proc/PID/root/…`,
    readable from here. A deleted one is named as `/proc/PID/fd/N`.
    """
    found: dict[tuple[str, str], Candidate] = {}
    for entry in _open_files(host, _Hidden(), _may_be_store):
        candidate = _store_of(entry, host)
        if candidate is not None:
            found.setdefault((candidate.kind, candidate.path), candidate)
    return tuple(found.values())


def described(pid: int, host: Host) -> str:
    """A process for people: "pid 812 (agent.service)", else with its container or command."""
    cgroup = read_text(f"{host.proc}/{pid}/cgroup")
    unit = unit_in(cgroup)
    container = _container_of(pid, host)
    what = (
        unit[0] if unit else f"container {container}" if container else _command(pid, host).partition(" ")[0]
    )
    return f"pid {pid} ({what})" if what else f"pid {pid}"


def unit_in(cgroup_text: str) -> tuple[str, bool] | None:
    """The systemd service of a /proc/PID/cgroup text and whether it is a user's own, None if it is in none."""
    for line in cgroup_text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number != "0" and controllers != "name=systemd":
            continue
        parts = [part for part in path.split("/") if part]
        for index in range(len(parts) - 1, -1, -1):
            part = parts[index]
            if part.endswith(".service") and not re.fullmatch(r"user@\d+\.service", part):
                user = any(re.fullmatch(r"user@\d+\.service", above) for above in parts[:index])
                return part.removeprefix("_"), user
    return None


# --- what belongs to the paths that were asked for ------------------------------------------------


class _Targets:
    """The files of the paths asked for, by device and inode and by name."""

    def __init__(self, paths: Sequence[str], host: Host) -> None:
        self.paths = tuple(dict.fromkeys(paths))
        self.files: dict[tuple[int, int], str] = {}
        self.locks: dict[str, str] = {}
        self.names = {".lock", "meta.json"} | {f"storage.sqlite{side}" for side in _SIDES}
        for path in self.paths:
            self.names |= {os.path.basename(path) + side for side in _SIDES}
            folder = os.path.isdir(host.at(path))
            for file in self._tree(host.at(path)) if folder else [host.at(path) + side for side in _SIDES]:
                with contextlib.suppress(OSError, ValueError):
                    found = os.stat(file)
                    self.files[(found.st_dev, found.st_ino)] = file
            if folder:
                self.locks[f"{path.rstrip('/')}/.lock"] = path
        # A history under a name that is a link elsewhere: the kernel shows the name of the file itself.
        self.names |= {
            os.path.basename(os.path.realpath(host.at(path))) + side for path in paths for side in _SIDES
        }

    @staticmethod
    def _tree(folder: str) -> Iterator[str]:
        count = 0
        for base, _, names in os.walk(folder):
            for name in names:
                count += 1
                if count > 20_000:
                    return
                if name.startswith(("storage.sqlite", ".lock", "meta.json")):
                    yield f"{base}/{name}"

    def is_interesting(self, path: str) -> bool:
        return os.path.basename(path) in self.names

    def named(self, entry: _Open, host: Host) -> str | None:
        """How to name what is open, None when it is none of ours."""
        try:
            found = os.stat(f"{host.proc}/{entry.pid}/fd/{entry.number}")
        except OSError:
            return None
        known = self.files.get((found.st_dev, found.st_ino))
        if known is not None:
            return known
        # Another file of the same path: deleted under the process, or in a namespace of its own.
        if not any(self._covers(path, entry.path) for path in self.paths):
            return None
        if entry.deleted:
            return entry.path + _DELETED
        return entry.path if base_of(entry.pid, host) else None

    @staticmethod
    def _covers(path: str, opened: str) -> bool:
        return covers(path.rstrip("/") or "/", opened) or any(opened == path + side for side in _SIDES)


def _lock_owners(targets: _Targets, host: Host) -> dict[int, tuple[str, ...]]:
    """Who holds Qdrant's `.lock`, by /proc/locks. Reading it needs no rights and disturbs nobody."""
    wanted: dict[tuple[str, int], str] = {}
    for lock in targets.locks:
        try:
            inode = os.stat(host.at(lock)).st_ino
        except OSError:
            continue
        mount = mount_under(lock, host)
        device = mount.device if mount is not None else "?"
        wanted[(device, inode)] = lock
    owners: dict[int, tuple[str, ...]] = {}
    for _, device, inode, pid in _flocks(host):
        lock_path = wanted.get((device, inode))
        if lock_path is not None and pid > 0:
            owners[pid] = (*owners.get(pid, ()), lock_path)
    return owners


def _flocks(host: Host) -> Iterator[tuple[str, str, int, int]]:
    """Every flock that is held, as (kind, "major:minor" in decimal, inode, pid)."""
    for line in read_text(f"{host.proc}/locks").splitlines():
        fields = line.split()
        # A process that only waits for the lock has "->" after the number.
        if len(fields) < 6 or fields[1] != "FLOCK":
            continue
        major, _, rest = fields[5].partition(":")
        minor, _, inode = rest.partition(":")
        with contextlib.suppress(ValueError):
            yield fields[3], f"{int(major, 16)}:{int(minor, 16)}", int(inode), int(fields[4])


# --- walking the processes ------------------------------------------------------------------------


@dataclass
class _Hidden:
    """Counts processes whose open files we may not see."""

    processes: int = 0

    def words(self, host: Host) -> str | None:
        if self.processes:
            return f"the open files of {self.processes} processes of other users are not visible (sudo shows them)"
        try:
            inside = os.readlink(f"{host.proc}/self/ns/pid") != _INITIAL_PID_NAMESPACE
        except OSError:
            return "the processes of this machine are not visible"
        return "processes outside of this container are not visible" if inside else None


def pids(host: Host) -> Iterator[int]:
    """The processes that are visible."""
    with contextlib.suppress(OSError):
        for name in os.listdir(host.proc):
            if name.isdigit():
                yield int(name)


def _open_files(host: Host, hidden: _Hidden, wanted: Callable[[str], bool]) -> Iterator[_Open]:
    for pid in pids(host):
        if _is_one_of_us(pid, host):
            continue
        try:
            numbers = os.listdir(f"{host.proc}/{pid}/fd")
        except PermissionError:
            hidden.processes += 1
            continue
        except OSError:
            continue
        for number in numbers:
            try:
                path = os.readlink(f"{host.proc}/{pid}/fd/{number}")
            except OSError:
                continue
            if not path.startswith("/"):
                continue
            deleted = path.endswith(_DELETED)
            path = path.removesuffix(_DELETED)
            if wanted(path):
                yield _Open(pid, number, path, deleted)


def _is_one_of_us(pid: int, host: Host) -> bool:
    """Another run of this command: it reads a store, and is nobody's agent."""
    return any(os.path.basename(word) == "mem0audit" for word in _program(pid, host))


def _holder(pid: int, by_lock: bool, paths: Sequence[str], host: Host) -> Holder | None:
    try:
        owner = os.stat(f"{host.proc}/{pid}").st_uid
    except OSError:
        return None  # gone since
    cgroup = read_text(f"{host.proc}/{pid}/cgroup")
    unit = unit_in(cgroup)
    private = bool(base_of(pid, host))
    return Holder(
        pid=pid,
        command=_command(pid, host),
        how="lock" if by_lock else "file",
        paths=tuple(dict.fromkeys(paths)),
        user=_account(owner),
        unit=unit[0] if unit else None,
        user_unit=unit[1] if unit else False,
        container=_container_of(pid, host),
        private_mounts=private,
        private_tmp=private and _other_tmp(pid, host),
        interpreter=interpreter_of(pid, host),
        started_at=started_at(pid, host),
    )


def _program(pid: int, host: Host) -> list[str]:
    """What a process runs: its program, options before the script, and the script or module; no later word."""
    words = list(arguments_of(pid, host)) or [read_text(f"{host.proc}/{pid}/comm").strip()]
    last = 1
    while last < len(words) and words[last].startswith("-") and words[last] not in ("-c", "-m"):
        last += 1
    last += words[last : last + 1] == ["-m"]
    return words[: last + 1]


def _command(pid: int, host: Host) -> str:
    """The program of a process for people. Words with a value may hold a key, and are left out."""
    first, *rest = _program(pid, host)
    shown = [first, *(word for word in rest if "=" not in word)]
    text = " ".join(word if word.isprintable() else repr(word) for word in shown)
    return text if len(text) <= _COMMAND_LENGTH else text[:_COMMAND_LENGTH] + "…"


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _other_tmp(pid: int, host: Host) -> bool:
    theirs = what_is_under("/tmp", mountinfo_of(pid, host))  # noqa: S108
    ours = what_is_under("/tmp", mountinfo_of("self", host))  # noqa: S108
    return (
        theirs is not None
        and ours is not None
        and (theirs.device, theirs.root, theirs.point)
        != (
            ours.device,
            ours.root,
            ours.point,
        )
    )


def _container_of(pid: int, host: Host) -> str | None:
    found = container_in(read_text(f"{host.proc}/{pid}/cgroup"))
    if found is None or found == container_in(read_text(f"{host.proc}/self/cgroup")):
        return None  # none, or the one that we are in as well
    if len(found) < 64:
        return found
    name = re.search(
        r'"Name":\s*"/?([\w.-]+)"', read_text(host.at(f"/var/lib/docker/containers/{found}/config.v2.json"))
    )
    return name[1] if name else found[:12]


# --- stores that nobody asked for ----------------------------------------------------------------


def _may_be_store(path: str) -> bool:
    name = os.path.basename(path)
    return name in ("history.db", ".lock") or (name == "storage.sqlite" and "/collection/" in path)


def _store_of(entry: _Open, host: Host) -> Candidate | None:
    base = base_of(entry.pid, host)
    who = f"held by {described(entry.pid, host)}"
    opened = f"{host.proc}/{entry.pid}/fd/{entry.number}"
    name = os.path.basename(entry.path)
    if entry.deleted:
        if name == ".lock" or not _is_sqlite(opened):
            return None
        return Candidate(
            "history" if name == "history.db" else "vectors",
            opened,
            f"{who}, deleted under it: {entry.path} is gone, this is what is left of it",
        )
    if name == "history.db":
        return Candidate("history", base + entry.path, who) if _is_sqlite(opened) else None
    folder = os.path.dirname(entry.path)
    if name == "storage.sqlite":
        folder = entry.path.partition("/collection/")[0]
    elif not os.path.isfile(f"{base}{folder}/meta.json"):
        return None
    return Candidate("vectors", base + (folder or "/"), who)


def _is_sqlite(location: str) -> bool:
    """Whether the file of a descriptor begins as SQLite's do.

    What this process has open itself (an agent may run in it) is read through that descriptor: POSIX drops all of a
    process's locks on a file, SQLite's of a transaction under way too, when any other descriptor of it is closed.
    """
    try:
        found = os.stat(location)
        if not stat.S_ISREG(found.st_mode):
            return False  # a pipe of that name would hold us up
        mine = _open_here(found)
        if mine is not None:
            return os.pread(mine, 16, 0) == _SQLITE  # its position in the file is not moved
        with open(location, "rb") as file:
            return file.read(16) == _SQLITE
    except OSError:
        return False


def _open_here(found: os.stat_result) -> int | None:
    """A descriptor of this process of that file; None where there is none."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, as the one that listed them
            if os.path.samestat(os.fstat(int(name)), found):
                return int(name)
    return None
