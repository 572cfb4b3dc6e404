"""The bytes of the files of a store, whatever they mean: read where they lie, and the free pages of a database."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from mem0audit.stores import files

T = TypeVar("T")

_MAGIC: Final = b"SQLite format 3\0"
TRIES: Final = 3
_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
}
"""How a file begins whose bytes say nothing of what is in it."""


@dataclass(frozen=True)
class FreePages:
    """The pages of a database file that are in no table: `pages` by number, from 1. `filled` of them hold bytes."""

    page_size: int
    pages: frozenset[int]
    filled: int

    def has(self, start: int, end: int) -> bool:
        """Whether bytes lie in free pages alone."""
        pages = range(start // self.page_size + 1, (end - 1) // self.page_size + 2)
        return all(page in self.pages for page in pages)


class Moved(Exception):
    """The file was written to again and again while it was read."""


def every_file(place: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Every ordinary file at or below a path, links not followed below it, in order; and (path, why) of what is none or
    cannot be looked into. A path with nothing there gives nothing."""
    found: list[str] = []
    odd: list[tuple[str, str]] = []
    try:
        mode = os.stat(place).st_mode  # noqa: PTH116 - a path of another process's root, as it was written
    except FileNotFoundError:
        return found, odd
    except OSError as error:
        return found, [(place, (error.strerror or "cannot be looked at").lower())]
    if stat.S_ISREG(mode):
        return [place], odd
    if not stat.S_ISDIR(mode):
        return found, [(place, "is no ordinary file")]
    _walk(place, found, odd)
    return found, odd


def _walk(folder: str, found: list[str], odd: list[tuple[str, str]]) -> None:
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.is_dir(follow_symlinks=False):
                    _walk(entry.path, found, odd)
                elif entry.is_file(follow_symlinks=False):
                    found.append(entry.path)
                else:
                    what = "is a link" if entry.is_symlink() else "is no ordinary file"
                    odd.append((entry.path, f"{what}: not followed"))
    except OSError as error:
        odd.append((folder, (error.strerror or "cannot be looked into").lower()))


def searched(path: str, look: Callable[[Callable[[int, int], bytes], int], T]) -> tuple[int, T]:
    """The size of a file and what `look(read, size)` says of it, where the file stayed as it was meanwhile.

    `read(offset, length)` gives bytes of it, fewer at its end. Raises Moved, OSError.
    """
    for _ in range(TRIES):
        with _open(path) as descriptor:
            before = os.fstat(descriptor)

            def read(offset: int, length: int, descriptor: int = descriptor) -> bytes:
                return os.pread(descriptor, length, offset)

            said = look(read, before.st_size)
            after = os.fstat(descriptor)
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return before.st_size, said
    raise Moved


@contextmanager
def _open(path: str) -> Iterator[int]:
    descriptor = files.open_source(path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "is no ordinary file", path)
        yield descriptor
    finally:
        files.close_source(descriptor)


def free_pages(read: Callable[[int, int], bytes], size: int) -> FreePages | None:
    """The freelist of a database (SQLite's file format, 1.5), and what lies beyond its last page; None where it is no
    database. Follows no page twice, whatever the file says."""
    header = read(0, 100)
    if len(header) < 100 or not header.startswith(_MAGIC):
        return None
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    if page_size < 512 or page_size & (page_size - 1):
        return None
    count = int.from_bytes(header[28:32], "big")
    last = -(-size // page_size)
    free = set(range(count + 1, last + 1)) if 0 < count < last else set()
    trunk = int.from_bytes(header[32:36], "big")
    trunks: set[int] = set()
    while 0 < trunk <= last and trunk not in trunks:
        trunks.add(trunk)
        page = read((trunk - 1) * page_size, page_size)
        leaves = min(int.from_bytes(page[4:8], "big"), page_size // 4 - 2)
        free.update(int.from_bytes(page[8 + 4 * i : 12 + 4 * i], "big") for i in range(leaves))
        trunk = int.from_bytes(page[0:4], "big")
    free = {page for page in free if 0 < page <= last}
    filled = sum(1 for page in free - trunks if read((page - 1) * page_size, page_size).strip(b"\0"))
    return FreePages(page_size, frozenset(free | trunks), filled)


def size_of(path: str) -> int:
    """Bytes of a file; 0 where that cannot be said."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a path of another process's root, as it was written
    except OSError:
        return 0


def packed_by(beginning: bytes) -> str | None:
    """What compressed a file that begins so; None where nothing did."""
    return next((name for magic, name in _PACKED.items() if beginning.startswith(magic)), None)


def exists(path: str) -> bool:
    """Whether anything is there."""
    return os.path.lexists(path)


def in_folder(folder: str, name: str) -> str:
    """A path below a folder."""
    return str(Path(folder, name))
