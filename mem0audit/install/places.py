"""What one path of an install stands on: mounts, cleaning, container layer, permissions, size, age."""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH115, PTH116, PTH120

from __future__ import annotations

import ctypes
import errno
import os
import stat

from mem0audit.core.model import Place
from mem0audit.install.containers import on_own_layer
from mem0audit.install.host import Host, read_text, resolved, seen_through
from mem0audit.install.mounts import is_network, is_volatile, mount_under, mountinfo_of
from mem0audit.install.permissions import readable_by_others, replaceable_parent
from mem0audit.install.tmpfiles import cleaned

MOST_FILES = 50_000
"""A tree with more files is not measured to its end: its size is then not known."""

_WORDS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "symbolic links that lead in a circle",
    errno.ENOTDIR: "a parent is a file, not a folder",
    errno.ENAMETOOLONG: "path too long",
    errno.EIO: "input/output error",
    errno.ESTALE: "stale network file handle",
}


def look_at(path: str, host: Host) -> Place:
    """Everything known of what `path` (absolute, of this host, it need not exist) stands on.

    Never raises: `problem` says why it could not be looked at. What a missing path would stand on is
    told from its nearest existing parent. Sizes are bytes as files show them (`st_size`).
    """
    problem: str | None = None
    link_target: str | None = None
    found: os.stat_result | None = None
    try:
        if stat.S_ISLNK(os.lstat(host.at(path)).st_mode):
            link_target = os.readlink(host.at(path))
        found = os.stat(host.at(resolved(path, host)))
    except OSError as error:
        if error.errno != errno.ENOENT:
            problem = _words(error)
    except ValueError:
        return Place(path=path, exists=False, problem="a path cannot hold a NUL")
    try:
        real = resolved(path, host)
    except OSError:
        return Place(path=path, exists=True, link_target=link_target, problem=problem or _WORDS[errno.ELOOP])
    pid = seen_through(real, host)[0]
    table = mountinfo_of("self" if pid is None else pid, host)
    mount = mount_under(real, host)
    readable = replaceable = None
    if found is not None:
        try:
            readable, replaceable = readable_by_others(real, host), replaceable_parent(real, host)
        except OSError as error:
            problem = problem or _words(error)
    return Place(
        path=path,
        exists=found is not None or problem is not None,
        filesystem=mount.filesystem if mount else None,
        mount_point=mount.point if mount else None,
        volatile=is_volatile(mount, table, read_text(f"{host.proc}/cmdline")) if mount else None,
        network=is_network(mount) if mount else None,
        container_layer=on_own_layer(real, host),
        cleaned=cleaned(path, host),
        readable_by_others=readable,
        replaceable_parent=replaceable,
        size_bytes=_size(host.at(real), found) if found is not None else None,
        free_bytes=_free(host.at(real)),
        born_at=born_at(host.at(real)) if found is not None else None,
        modified_at=found.st_mtime if found is not None else None,
        link_target=link_target,
        problem=problem,
    )


def _words(error: OSError) -> str:
    return _WORDS.get(error.errno or 0) or (error.strerror or "cannot be looked at").lower()


def _size(location: str, found: os.stat_result) -> int | None:
    """Bytes of a file or of all files in a tree; None when a part could not be read or it is too large."""
    if not stat.S_ISDIR(found.st_mode):
        return found.st_size
    total, files, todo = 0, 0, [location]
    try:
        while todo:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    files += 1
                    if files > MOST_FILES:
                        return None
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    else:
                        total += _size_of_entry(entry)
    except OSError:
        return None
    return total


def _size_of_entry(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0  # a journal of the running agent, gone since


def _free(location: str) -> int | None:
    """Bytes that an ordinary user may still write where `location` is, or would be."""
    while True:
        try:
            look = os.statvfs(location)
        except FileNotFoundError:
            parent = os.path.dirname(location)
            if parent == location:
                return None
            location = parent
            continue
        except OSError:
            return None
        return look.f_bavail * look.f_frsize


class _Statx(ctypes.Structure):
    # struct statx of linux/stat.h up to the birth time; the kernel fills 256 bytes.
    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("before_times", ctypes.c_uint8 * 60),
        ("atime", ctypes.c_uint8 * 16),
        ("birth_seconds", ctypes.c_int64),
        ("birth_nanoseconds", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 164),
    )


_STATX_BTIME = 0x800
_AT_FDCWD = -100


def born_at(location: str) -> float | None:
    """When the file or folder was made, seconds since 1970; None where the filesystem does not keep it."""
    if hasattr(os.stat_result, "st_birthtime"):  # pragma: no cover (not on Linux)
        return float(os.stat(location).st_birthtime)  # type: ignore[attr-defined,unused-ignore]
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
        answer = _Statx()
        failed = statx(
            ctypes.c_int(_AT_FDCWD),
            ctypes.c_char_p(os.fsencode(location)),
            ctypes.c_int(0),
            ctypes.c_uint(_STATX_BTIME),
            ctypes.byref(answer),
        )
    except (OSError, AttributeError, ValueError):
        return None
    if failed or not answer.mask & _STATX_BTIME:
        return None
    return float(answer.birth_seconds) + float(answer.birth_nanoseconds) / 1e9
