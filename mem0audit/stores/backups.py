"""Backups that somebody else made: where their halves lie, and whether each file is whole. Nothing is changed, and
nothing in them is trusted: no link is followed, and no walk is without an end."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from mem0audit.core.snapshot import HISTORY, NAME
from mem0audit.stores import snapshots, sqlitefiles
from mem0audit.stores.embedded import STORAGE

LEVELS: Final = 8
"""How deep the halves are looked for: `monday/var/lib/docker/volumes/mem0/_data/history.db` is seven."""
LEVELS_OF_A_STORE: Final = 12
ENTRIES: Final = 50_000
"""So many entries are looked at, of a folder that may be anything."""
TELEMETRY: Final = "migrations_qdrant"
"""mem0's own Qdrant folder inside MEM0_DIR (0.1.89 on): no memories, unless there is no other."""

Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True)
class Candidates:
    """What may be the halves, as paths relative to the folder ("." for itself), in order; `whole` is False where the
    folder holds more than was looked at."""

    histories: tuple[str, ...]
    vectors: tuple[str, ...]
    whole: bool = True


def candidates(folder: Path) -> Candidates:
    """Every `history.db` and every Qdrant folder (`meta.json`, `collection/`) in a folder, a few levels deep.

    Snapshots of ours and what lies inside a Qdrant folder are passed by. Raises OSError for the folder itself.
    """
    histories: list[str] = []
    vectors: list[str] = []
    left, whole = ENTRIES, True
    queue = deque([("", 0)])
    while queue:
        inside, level = queue.popleft()
        try:
            found = _entries(folder / inside, left)
        except OSError:
            if not level:
                raise
            whole = False
            continue
        left -= len(found)
        if left <= 0:
            whole = False
            break
        if found.get("meta.json") not in (None, "folder") or _has_collections(folder / inside, found):
            vectors.append(inside or ".")
            found.pop("collection", None)
        for name, kind in sorted(found.items()):
            path = f"{inside}/{name}" if inside else name
            if name == HISTORY and kind != "folder":
                histories.append(path)
            elif kind == "folder" and not NAME.fullmatch(name) and not name.startswith(".taking-"):
                if level < LEVELS:
                    queue.append((path, level + 1))
                else:
                    whole = False
    # meta.json is a common name: a folder that has collections too is meant, where there is one.
    certain = [path for path in vectors if os.path.lexists(folder / path / "collection")] or vectors
    own = [path for path in certain if Path(path).name != TELEMETRY] or certain
    return Candidates(tuple(histories), tuple(own), whole)


def _has_collections(folder: Path, found: dict[str, Kind]) -> bool:
    """Whether `collection/` holds a folder with a storage file."""
    if found.get("collection") != "folder":
        return False
    try:
        inside = _entries(folder / "collection", ENTRIES)
    except OSError:
        return False
    return any(
        kind == "folder" and os.path.lexists(folder / "collection" / name / STORAGE)
        for name, kind in inside.items()
    )


def _entries(folder: Path, most: int) -> dict[str, Kind]:
    """The entries of one folder, at most so many. Raises OSError."""
    found: dict[str, Kind] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            found[entry.name] = _kind(entry.stat(follow_symlinks=False).st_mode)
            if len(found) >= most:
                break
    return found


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


WORDS: Final[dict[Kind, str]] = {
    "folder": "is a folder",
    "link": "is a link, which is not followed",
    "other": "is no ordinary file",
}


def odd_in_history(path: Path) -> dict[str, str]:
    """What is no ordinary file of a log and of the files beside it: path -> what it is. Raises nothing."""
    odd = {}
    for end in ("", "-journal", "-wal", "-shm"):
        try:
            kind = _kind(Path(f"{path}{end}").lstat().st_mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            odd[f"{path}{end}"] = (error.strerror or "cannot be looked at").lower()
            continue
        if kind != "file":
            odd[f"{path}{end}"] = WORDS[kind]
    return odd


def odd_in_vectors(folder: Path) -> dict[str, str]:
    """What in a Qdrant folder, of that which is read, is neither an ordinary file nor a folder: path -> what it is;
    and what there is more of than any store has. Raises nothing."""
    odd = {}
    left = ENTRIES
    queue = [(folder, 0)]
    while queue:
        inside, level = queue.pop()
        try:
            found = _entries(inside, left)
        except OSError as error:
            odd[str(inside)] = (error.strerror or "cannot be looked into").lower()
            continue
        left -= len(found)
        if left <= 0 or level > LEVELS_OF_A_STORE:
            odd[str(folder)] = "holds more files and folders than any store"
            break
        for name, kind in sorted(found.items()):
            if not level and name not in ("meta.json", "collection"):
                continue  # the lock, and what is none of Qdrant's
            if kind == "folder":
                queue.append((inside / name, level + 1))
            elif kind != "file":
                odd[str(inside / name)] = WORDS[kind]
    return odd


def beside(path: str) -> dict[str, int]:
    """The journals that lie beside a database, end -> bytes; a journal that is done with (PERSIST) is none."""
    found = {}
    for end in ("-journal", "-wal", "-shm"):
        try:
            size = Path(path + end).lstat().st_size
        except OSError:
            continue
        if end != "-journal" or (size and snapshots.begins(Path(path + end), 1) != b"\0"):
            found[end] = size
    return found


@dataclass(frozen=True)
class Checked:
    """One database as it was found: `lines` of the whole `integrity_check` that are not "ok", or `unread` with
    why it could not be looked at."""

    size_bytes: int
    journal_mode: Literal["rollback", "wal"] | None
    lines: tuple[str, ...] = ()
    unread: str | None = None


_GONE_WRONG: Final = frozenset({"damaged", "not-sqlite", "empty", "no-table"})


def check(path: str) -> Checked:
    """SQLite's whole `integrity_check` of a database of a backup, with what the journals beside it hold applied in a
    scratch copy. Locks nothing for longer than a moment, in case it is written after all. Raises nothing."""
    size, mode = 0, None
    try:
        found = Path(path).stat()
        size = found.st_size
        with sqlitefiles.opened(path, found, True) as reading:
            mode = reading.journal_mode
            lines: tuple[str, ...] = ()
            if reading.problem is not None:
                lines = (reading.problem.detail,)
            elif reading.way == "scratch copy":
                lines = tuple(_whole_check(reading.connection))
        if not lines and reading.way != "scratch copy":
            lines = snapshots.integrity(Path(path))
        return Checked(size, mode, lines)
    except sqlitefiles.Changed:
        return Checked(size, mode, unread="changed while it was read")
    except sqlitefiles.ReadFailed as error:
        problem = error.problem
    except sqlite3.Error as error:
        problem = sqlitefiles.problem_of(error, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return Checked(size, mode, unread="no room for a scratch copy of it")
        return Checked(size, mode, unread=(error.strerror or "cannot be read").lower())
    if problem.kind in _GONE_WRONG:
        return Checked(size, mode, (problem.detail,))
    return Checked(size, mode, unread=problem.detail)


def _whole_check(connection: sqlite3.Connection) -> Iterator[str]:
    connection.set_progress_handler(None, 0)
    for (line,) in connection.execute("PRAGMA integrity_check(20)"):
        if line != "ok":
            yield str(line)
