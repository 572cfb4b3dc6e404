"""Snapshot folders, read: what lies in one, byte for byte. Nothing is changed, no link is followed."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final

from mem0audit.core.snapshot import NAME
from mem0audit.stores.sqlitefiles import problem_of

CHUNK: Final = 4 << 20
MANIFEST_BYTES: Final = 16 << 20


def names(folder: Path) -> tuple[str, ...]:
    """The names of the snapshots in a folder, oldest first; hidden and other entries are no snapshots. Raises
    OSError."""
    with os.scandir(folder) as entries:
        found = [
            entry.name
            for entry in entries
            if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    return tuple(sorted(found, key=_order))


def _order(name: str) -> tuple[str, int]:
    date, _, number = name.partition("Z")
    return date, int(number[1:] or 1)


def small_file(path: Path) -> bytes:
    """The bytes of a manifest or a checksum. Raises OSError; ValueError where it is no such file."""
    descriptor = _open(path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is no ordinary file")
        data = bytearray()
        while chunk := os.read(descriptor, CHUNK):
            data += chunk
            if len(data) > MANIFEST_BYTES:
                raise ValueError("is too large")
        return bytes(data)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags)


def tree(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Every ordinary file below as relative path -> size, and everything that is neither file nor folder, or a
    folder that cannot be looked into, with what it is. Raises OSError for the folder itself."""
    sizes: dict[str, int] = {}
    odd: dict[str, str] = {}
    _walk(folder, "", sizes, odd)
    return sizes, odd


def _walk(folder: Path, prefix: str, sizes: dict[str, int], odd: dict[str, str]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                sizes[name] = found.st_size
            elif not stat.S_ISDIR(found.st_mode):
                odd[name] = "is a link" if stat.S_ISLNK(found.st_mode) else "is no ordinary file"
            else:
                before = len(sizes) + len(odd)
                try:
                    _walk(Path(entry.path), f"{name}/", sizes, odd)
                except OSError as error:
                    odd[name] = (error.strerror or "cannot be looked into").lower()
                if len(sizes) + len(odd) == before:
                    odd[name] = "is an empty folder"


def digest(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file. Raises OSError."""
    sha = sha256()
    size = 0
    for chunk in _chunks(path):
        sha.update(chunk)
        size += len(chunk)
    return size, sha.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    descriptor = _open(path)
    try:
        while chunk := os.read(descriptor, CHUNK):
            yield chunk
    finally:
        os.close(descriptor)


def begins(path: Path, count: int) -> bytes:
    """The first bytes of a file, b"" where it cannot be read."""
    try:
        descriptor = _open(path)
    except OSError:
        return b""
    try:
        return os.read(descriptor, count)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def integrity(path: Path) -> tuple[str, ...]:
    """Lines of SQLite's whole `integrity_check` other than "ok", for a file that nobody writes.

    Opened as immutable, so that nothing is made beside it whatever its header says.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("PRAGMA cell_size_check = 1")
            lines = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)")]
    except sqlite3.Error as error:
        return (problem_of(error, str(path)).detail,)
    return tuple(line for line in lines if line != "ok")
