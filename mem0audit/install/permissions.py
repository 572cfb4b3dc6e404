"""Who else can read or replace the files: mode bits, access lists and every folder on the way.

"Others" are all users but root and the owners of the file and of the folders above it. A group counts
when somebody else is in it: a user's private group (as in 0750 homes) has nobody and is silent.
"""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH115, PTH116, PTH208

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mem0audit.install.host import Host, read_text, resolved, seen_through

READ, WRITE, SEARCH = 4, 2, 1
_LOOK_AT_MOST = 2000


@dataclass(frozen=True)
class _Access:
    """What one file lets whom do. `users` and `groups` come from its access list, `mask` limits them."""

    mode: int
    uid: int
    gid: int
    users: tuple[tuple[int, int], ...] = ()
    groups: tuple[tuple[int, int], ...] = ()
    mask: int = 7

    def allows(self, who: _Who, bits: int) -> str | None:
        """How `who` gets these bits ("others", "group", "access list"), None if not; POSIX.1e order."""
        if who.uid is not None:
            if who.uid == self.uid:
                return "owner" if (self.mode >> 6) & bits == bits else None
            for uid, granted in self.users:
                if uid == who.uid:
                    return "access list" if granted & self.mask & bits == bits else None
        in_group = False
        for gid, granted, how in (
            (self.gid, (self.mode >> 3) & 7 if not self.listed else self._group_entry(), "group"),
            *((gid, granted, "access list") for gid, granted in self.groups if gid >= 0),
        ):
            if gid in who.gids:
                in_group = True
                if granted & self.mask & bits == bits:
                    return how
        if in_group:
            return None
        return "others" if self.mode & 7 & bits == bits else None

    @property
    def listed(self) -> bool:
        """Whether an access list says more than the mode."""
        return any(gid == -1 for gid, _ in self.groups)

    def _group_entry(self) -> int:
        # With a list, the mode's group bits show its mask; the owning group's own entry is kept as -1.
        return next(granted for gid, granted in self.groups if gid == -1)


@dataclass(frozen=True)
class _Who:
    """A user, or (uid None) somebody without a name here and without groups."""

    uid: int | None
    gids: frozenset[int]
    name: str


def readable_by_others(path: str, host: Host) -> str | None:
    """How others can read the file, or any database in the folder, in words; None when they cannot.

    For example "mode 0644, every parent searchable" or "group staff (alice, bob), mode 0640". Looks at
    no more than 2,000 files. Raises OSError where `path` itself cannot be looked at.
    """
    real = resolved(path, host)
    parents = [_access(folder, host) for folder in _folders_above(real, host)]
    arriving = [w for w in _everybody(host) if all(folder.allows(w, SEARCH) for folder in parents)]
    by_name: dict[str, tuple[str, list[str]]] = {}
    for way, mode, gid in _files(real, host) if arriving else ():
        insiders = {0} | {access.uid for access in (*parents, *way)}
        *folders, file = way
        for who in arriving:
            if who.uid in insiders:
                continue
            how = file.allows(who, READ)
            if how is None or not all(folder.allows(who, SEARCH) for folder in folders):
                continue
            if who.uid is None:
                return f"mode {mode:04o}, every parent searchable"
            label = "access list" if how == "access list" else f"group {_group_name(gid, host)}"
            if how == "others":
                label = "others, through their groups"
            names = by_name.setdefault(label, (f"mode {mode:04o}", []))[1]
            if who.name not in names:
                names.append(who.name)
    for label, (mode_words, names) in by_name.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return f"{label} ({shown}), {mode_words}"
    return None


def replaceable_parent(path: str, host: Host) -> str | None:
    """The nearest folder on the way to `path` (or `path`, a folder) where others may replace entries.

    That is a folder others can write and search, without the sticky bit that keeps them to their own.
    Raises OSError where `path` itself cannot be looked at.
    """
    real = resolved(path, host)
    above = _folders_above(real, host)
    folders = [*above, real] if stat.S_ISDIR(os.stat(host.at(real)).st_mode) else above
    accesses = [_access(folder, host) for folder in folders]
    everybody = _everybody(host)
    for depth in range(len(folders) - 1, -1, -1):
        if accesses[depth].mode & stat.S_ISVTX:
            continue
        insiders = {0} | {access.uid for access in accesses}
        for who in everybody:
            if who.uid in insiders or not accesses[depth].allows(who, WRITE | SEARCH):
                continue
            if all(access.allows(who, SEARCH) for access in accesses[:depth]):
                return folders[depth]
    return None


def changeable_by_others(path: str, host: Host, uid: int, *, entries: bool = False) -> str | None:
    """The first file or folder on the way to `path`, links followed, that others than root and `uid` can change or
    replace; None where there is none. With `entries` what lies directly in the folder `path` is looked at too.

    Whoever runs such a file runs what others put there. Raises OSError where something cannot be looked at.
    """
    everybody = [who for who in _everybody(host) if who.uid not in (0, uid)]

    def is_loose(one: str) -> bool:
        found = os.lstat(host.at(one))
        if found.st_uid not in (0, uid):
            return True
        # a link's own mode says nothing; in a sticky folder nobody replaces what is another's
        if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:
            return False
        access = _access_at(host.at(one), found)
        return any(access.allows(who, WRITE) for who in everybody)

    todo, done = path.split("/")[::-1], ""
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        step = f"{done}/{part}"
        if is_loose(step):
            return step
        if stat.S_ISLNK(os.lstat(host.at(step)).st_mode):
            target = os.readlink(host.at(step))
            done = "" if target.startswith("/") else done
            todo.extend(target.split("/")[::-1])
        else:
            done = step
        if len(todo) > 1000:
            raise OSError(errno.ELOOP, "Too many levels of symbolic links", path)
    if entries:
        return next(
            (f"{done}/{n}" for n in sorted(os.listdir(host.at(done))) if is_loose(f"{done}/{n}")), None
        )
    return None


def _folders_above(path: str, host: Host) -> list[str]:
    pid, inner = seen_through(path, host)
    base = "" if pid is None else path[: len(path) - len(inner)]
    parts = [part for part in inner.split("/") if part][:-1]
    return [base + "/" + "/".join(parts[:count]) for count in range(len(parts) + 1)]


def _access(path: str, host: Host) -> _Access:
    return _access_at(host.at(path), os.stat(host.at(path)))


def _access_at(location: str, found: os.stat_result) -> _Access:
    plain = _Access(found.st_mode & 0o7777, found.st_uid, found.st_gid)
    try:
        raw = os.getxattr(location, "system.posix_acl_access")
    except (OSError, AttributeError):
        return plain
    users, groups, mask = [], [], 7
    # Version 2, then entries of tag, permissions and id; all little-endian (linux/posix_acl_xattr.h).
    for tag, granted, number in struct.iter_unpack("<HHI", raw[4 : 4 + (len(raw) - 4) // 8 * 8]):
        if tag == 0x02:
            users.append((number, granted))
        elif tag == 0x04:
            groups.append((-1, granted))
        elif tag == 0x08:
            groups.append((number, granted))
        elif tag == 0x10:
            mask = granted
    return _Access(plain.mode, plain.uid, plain.gid, tuple(users), tuple(groups), mask)


def _files(real: str, host: Host) -> Iterator[tuple[tuple[_Access, ...], int, int]]:
    """Every file that may hold memory text, as (accesses of the way down from `real`, mode, group)."""
    top = os.stat(host.at(real))
    if not stat.S_ISDIR(top.st_mode):
        yield (_access_at(host.at(real), top),), top.st_mode & 0o7777, top.st_gid
        return
    left = _LOOK_AT_MOST
    todo: list[tuple[str, tuple[_Access, ...]]] = [(host.at(real), (_access_at(host.at(real), top),))]
    while todo and left > 0:
        folder, way = todo.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            left -= 1
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            here = (*way, _access_at(entry.path, found))
            if stat.S_ISDIR(found.st_mode):
                todo.append((entry.path, here))
            elif stat.S_ISREG(found.st_mode) and not entry.name.startswith(".lock"):
                yield here, found.st_mode & 0o7777, found.st_gid


def _everybody(host: Host) -> list[_Who]:
    """Somebody without groups, then the accounts of this host with the groups they are in."""
    groups: dict[str, set[int]] = {}
    for line in read_text(host.at("/etc/group")).splitlines():
        fields = line.split(":")
        if len(fields) == 4 and fields[2].isdigit():
            for name in fields[3].split(","):
                groups.setdefault(name.strip(), set()).add(int(fields[2]))
    people = [_Who(None, frozenset(), "others")]
    for line in read_text(host.at("/etc/passwd")).splitlines():
        fields = line.split(":")
        if len(fields) >= 7 and fields[2].isdigit() and fields[3].isdigit():
            gids = frozenset(groups.get(fields[0], set()) | {int(fields[3])})
            people.append(_Who(int(fields[2]), gids, fields[0]))
    return people


def _group_name(gid: int, host: Host) -> str:
    for line in read_text(host.at("/etc/group")).splitlines():
        fields = line.split(":")
        if len(fields) == 4 and fields[2] == str(gid):
            return fields[0]
    return str(gid)
