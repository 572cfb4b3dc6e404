"""The one module that writes, renames and removes files. Its steps have names, so that a test can stop at each.

For now: private scratch folders for databases that can only be read from a copy.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 8 << 20
_kept: dict[tuple[int, int], int] = {}


def step(name: str) -> None:
    """Called before each thing this module changes; tests put their faults here. Does nothing itself."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private folder (0700) in the temporary directory, removed at the end with all that is in it."""
    step("scratch.create")
    folder = Path(tempfile.mkdtemp(prefix="mem0audit-"))
    try:
        yield folder
    finally:
        step("scratch.remove")
        shutil.rmtree(folder, ignore_errors=True)


def open_source(path: str) -> int:
    """A descriptor to read a store's file with; give it back with close_source. Raises OSError.

    Never waits, not for a pipe's other end either.
    """
    found = Path(path).stat()
    kept = _kept.get((found.st_dev, found.st_ino))
    if kept is not None and os.path.samestat(os.fstat(kept), found):
        return kept
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def close_source(descriptor: int) -> None:
    """Close a store's file, unless that would take a lock from somebody in this process.

    POSIX drops all of a process's locks on a file when any descriptor of it is closed. SQLite takes care of
    its own descriptors, not of ours: where this process has the file open elsewhere (an audit called inside
    the agent), ours stays open for good and is used again, one a file.
    """
    found = os.fstat(descriptor)
    identity = (found.st_dev, found.st_ino)
    if descriptor == _kept.get(identity):
        return
    if is_open_elsewhere(descriptor):
        _kept[identity] = descriptor
    else:
        os.close(descriptor)


def is_open_elsewhere(descriptor: int) -> bool:
    """Whether this process has the same file open by another descriptor (unknown without /proc: no)."""
    found = os.fstat(descriptor)
    try:
        others = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:
        return False
    return any(other != descriptor and _is_same(other, found) for other in others)


def _is_same(descriptor: int, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), found)
    except OSError:  # closed meanwhile
        return False


def copy_into(source: str, target: Path) -> None:
    """Copy a file's bytes into a scratch folder, mode 0600; the source is only read. Raises OSError."""
    step("scratch.copy")
    reading = open_source(source)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        try:
            offset = 0
            while chunk := os.pread(reading, CHUNK, offset):
                view = memoryview(chunk)
                while view:
                    view = view[os.write(writing, view) :]
                offset += len(chunk)
        finally:
            os.close(writing)
    finally:
        close_source(reading)


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file (0600) that is there with all of `data` or, at any failure, as it was before.

    Written beside the target and renamed over it; a symlink is followed, so that it stays one. Raises
    OSError, and leaves nothing behind.
    """
    target = Path(os.path.realpath(path))
    step("file.create")
    writing, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        try:
            view = memoryview(data)
            step("file.write")
            while view:
                view = view[os.write(writing, view) :]
            step("file.fsync")
            os.fsync(writing)
        finally:
            os.close(writing)
        step("file.rename")
        os.rename(name, target)  # noqa: PTH104
    except BaseException:
        os.unlink(name)  # noqa: PTH108
        raise
    step("file.folder")
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def kept_folder() -> Path:
    """A private folder (0700) in the temporary directory that stays."""
    step("kept.create")
    return Path(tempfile.mkdtemp(prefix="mem0audit-"))
