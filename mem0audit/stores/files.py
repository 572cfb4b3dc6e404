"""Beside `exchange.py`, which puts restored stores in place, and `overwrite.py`, which rebuilds them, the one module
that writes, renames and removes files.
Its steps have names, so that a test can stop at each.

Private scratch folders for databases that can only be read from a copy, files written whole, and snapshots: made
in a hidden folder beside the others, and published by one rename.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from mem0audit.core.errors import Refused
from mem0audit.core.marks import MARKS

CHUNK = 8 << 20
_kept: dict[tuple[int, int], int] = {}


def step(name: str) -> None:
    """Called before each thing this module changes; tests put their faults here. Does nothing itself."""


@contextmanager
def scratch_folder(owner: int | None = None, folder: Path | None = None) -> Iterator[Path]:
    """A private folder (0700) in the temporary directory, or `folder`, removed at the end with all that is in it.

    It belongs to the user `owner`, where root makes it for one."""
    step("scratch.create")
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="mem0audit-"))
    else:
        folder.mkdir(mode=0o700)
    try:
        if owner is not None:
            os.chown(folder, owner, -1)
        yield folder
    finally:
        step("scratch.remove")
        shutil.rmtree(folder, ignore_errors=True)


def is_ours(folder: Path) -> bool:
    """Whether it is a folder, and no link to one, of the user that runs this."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def remove_scratch(folder: Path, note: str) -> None:
    """Removes a scratch folder of this user's; where there is a file `note` in it that alone stays. Raises nothing."""
    step("scratch.remove")
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.name != note:
                shutil.rmtree(entry, ignore_errors=True)
        folder.rmdir()


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


def write_file(path: Path, data: bytes, *, mode: int = 0o600, ours: bool = False) -> None:
    """Write a whole file (`mode`) that is there with all of `data` or, at any failure, as it was before.

    Written beside the target and renamed over it; a symlink is followed, so that it stays one. A file of `ours`
    in somebody's folder is never written through a link, and belongs to the folder's owner where root writes it.
    Raises OSError, and leaves nothing behind.
    """
    target = path if ours else Path(os.path.realpath(path))
    step("file.create")
    writing, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        try:
            view = memoryview(data)
            step("file.write")
            while view:
                view = view[os.write(writing, view) :]
            if mode != 0o600:
                os.fchmod(writing, mode)
            if ours:
                _give_to_owner_of(target.parent, writing)
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


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """A folder for this process alone, for the moment in which a small file in it is read and written again; waits for
    its turn. Raises OSError."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _give_to_owner_of(folder: Path, descriptor: int) -> None:
    """Where root made a file in somebody's folder: the next run, as that user, must be able to open it."""
    owner, made = folder.stat(), os.fstat(descriptor)
    if os.geteuid() or made.st_nlink != 1:  # with a second name it may be anybody's file
        return
    if (owner.st_uid, owner.st_gid) != (made.st_uid, made.st_gid):
        step("file.owner")
        with suppress(PermissionError):  # a network folder on which root is nobody
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def kept_folder() -> Path:
    """A private folder (0700) in the temporary directory that stays."""
    step("kept.create")
    return Path(tempfile.mkdtemp(prefix="mem0audit-"))


# --- Snapshots -----------------------------------------------------------------------------------

LOCK: Final = ".mem0audit.lock"
_TAKING: Final = re.compile(r"\.taking-\d{4}-\d{2}-\d{2}T\d{6}Z(-\d{1,4})?", re.ASCII)
_REMOVING: Final = re.compile(r"\.removing-\d{4}-\d{2}-\d{2}T\d{6}Z(-\d{1,4})?", re.ASCII)
_HALF_WRITTEN: Final = re.compile(re.escape(f".{MARKS}.") + "[a-z0-9_]{8}", re.ASCII)
"""What `write_file` leaves of the file of marks when it is killed."""
_COPY_CHUNK: Final = 8 << 20
_COMPARE_CHUNK: Final = 1 << 20
_FICLONE: Final = 0x40049409
_NO_CLONE: Final = frozenset(
    (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EBADF)
)
"""What copying by the filesystem itself says where it cannot; anything else is a real failure."""


class TookTooLong(Exception):
    """The pages were not copied before the agent would have waited too long."""


@contextmanager
def snapshot_folder(folder: Path, wait_s: float = 0.0) -> Iterator[None]:
    """The folder that holds snapshots, made (0700) where it is not there, for this process alone.

    Its lock file stays; the pid and the command of who holds it are written into it. Raises Refused naming
    the holder, after waiting for it up to `wait_s` seconds, OSError.
    """
    import fcntl  # not on Windows

    step("snapshot.folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    step("snapshot.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(folder / LOCK, flags, 0o600)
    try:
        end = time.monotonic() + wait_s
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= end:
                        raise
                time.sleep(0.05)
        except BlockingIOError:
            holder = os.pread(descriptor, 300, 0).decode("utf-8", "replace").strip()
            raise Refused(
                f"{folder}: another mem0audit works there" + (f" ({holder})" if holder else ""),
                "try again when it is done",
            ) from None
        _give_to_owner_of(folder, descriptor)
        step("snapshot.lock.write")
        command = shlex.join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:]])  # noqa: PTH119
        said = f"pid {os.getpid()}: {command}"[:250].encode("utf-8", "replace") + b"\n"
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, said, 0)
        except OSError as error:
            # A full disk must not keep an expiry from making room; the lock holds without a name in it.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> tuple[str, ...]:
    """Removes what runs that were cut off left in a locked snapshot folder; their names. Raises OSError.

    What is left of a snapshot that was being removed and still cannot be is left to the next `expire`, which
    says so: it must not keep a new snapshot from being taken.
    """
    removed = []
    for entry in sorted(folder.iterdir()):
        folder_there = stat.S_ISDIR(entry.lstat().st_mode)
        if _TAKING.fullmatch(entry.name) and folder_there:
            step("snapshot.clean")
            shutil.rmtree(entry)
            removed.append(entry.name)
        elif _REMOVING.fullmatch(entry.name) and folder_there:
            try:
                step("expire.clean")
                shutil.rmtree(entry)
            except OSError:
                continue
            removed.append(entry.name)
        elif _HALF_WRITTEN.fullmatch(entry.name) and not folder_there:
            step("marks.clean")
            entry.unlink()
            removed.append(entry.name)
    return tuple(removed)


def unfinished(folder: Path) -> tuple[str, ...]:
    """The hidden folders of runs that are at work in a snapshot folder or were cut off, by name. Raises OSError."""
    names = sorted(entry.name for entry in folder.iterdir())
    return tuple(name for name in names if _TAKING.fullmatch(name) or _REMOVING.fullmatch(name))


def half_removed(folder: Path) -> tuple[str, ...]:
    """The hidden names of snapshots whose removal was cut off. Raises OSError."""
    return tuple(sorted(entry.name for entry in folder.iterdir() if _REMOVING.fullmatch(entry.name)))


def remove_snapshot(path: Path) -> None:
    """Removes a snapshot of a locked folder: it is first given a hidden name, and only when that is on the disk
    its files go, so that nothing half is ever listed. Raises OSError."""
    hidden = path.with_name(f".removing-{path.name}")
    step("expire.rename")
    os.rename(path, hidden)  # noqa: PTH104
    step("expire.renamed")
    _sync(path.parent)
    step("expire.remove")
    shutil.rmtree(hidden)
    step("expire.removed")


def remove_snapshot_folder(folder: Path, names: Sequence[str]) -> None:
    """Removes a folder of snapshots that holds none any more, with these files and its lock; one that holds something
    else stays. Raises OSError."""
    if {entry.name for entry in folder.iterdir()} <= {*names, LOCK}:
        step("snapshot.folder.remove")
        for name in (*names, LOCK):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def begin_snapshot(folder: Path, name: str) -> Path:
    """The hidden folder (0700) that a snapshot is made in, with `raw/` for the pages as copied. Raises OSError."""
    hidden = folder / f".taking-{name}"
    step("snapshot.begin")
    hidden.mkdir(mode=0o700)
    (hidden / "raw").mkdir(mode=0o700)
    return hidden


def abandon_snapshot(hidden: Path) -> None:
    """Removes a hidden folder; what cannot be removed stays for the next run."""
    step("snapshot.abandon")
    shutil.rmtree(hidden, ignore_errors=True)


def keep_beside_snapshots(folder: Path, name: str, data: bytes) -> None:
    """Writes a small file (0600) into a locked snapshot folder, whole or not at all. Raises OSError.

    Always under the same hidden name first: what a kill leaves of it is written over by the next run.
    """
    hidden = folder / f".{name}.new"
    step("snapshot.beside.create")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            view = memoryview(data)
            step("snapshot.beside.write")
            while view:
                view = view[os.write(descriptor, view) :]
            step("snapshot.beside.fsync")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        step("snapshot.beside.rename")
        os.rename(hidden, folder / name)  # noqa: PTH104
    except BaseException:
        os.unlink(hidden)  # noqa: PTH108
        raise
    _sync(folder)


def copy_target(path: Path) -> int:
    """The file (0600) to copy pages into, open; made where it is not there yet, before any lock is held. Raises
    OSError."""
    step("snapshot.create")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def copy_pages(source: int, target: int, end: float) -> str:
    """Makes a file's bytes those of another, between two descriptors, and says how it was done: "reflink",
    "copy_file_range" or "read and write" (where filesystems differ, as from a tmpfs).

    What the target holds already of an earlier copy is compared, and written only where it differs: so a large
    file is copied before its lock is taken, and only what changed since is written while it is held (reading
    both takes a third of the time, and waits for no disk). Raises TookTooLong at `end` (of time.monotonic),
    OSError.
    """
    step("snapshot.copy")
    size, there = os.fstat(source).st_size, os.fstat(target).st_size
    os.ftruncate(target, min(size, there))
    try:
        import fcntl

        fcntl.ioctl(target, _FICLONE, source)
        return "reflink"
    except (OSError, ImportError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_CLONE:
            raise
    done, way = 0, "copy_file_range"
    while done < size:
        if time.monotonic() > end:
            raise TookTooLong
        length = min(_COPY_CHUNK, size - done)
        if done < there:
            length = min(_COMPARE_CHUNK, length)
            if os.pread(source, length, done) == os.pread(target, length, done):
                done += length
                continue
        step("snapshot.copy.chunk")
        if way == "copy_file_range":
            try:
                count = os.copy_file_range(source, target, length, done, done)
            except (OSError, AttributeError) as error:
                if isinstance(error, OSError) and error.errno not in _NO_CLONE:
                    raise
                way = "read and write"
                continue
        else:
            count = os.pwrite(target, os.pread(source, length, done), done)
        if not count:
            raise OSError(errno.EIO, "the copy ended before the file did")
        done += count
    return way


def backup_database(connection: sqlite3.Connection, target: Path) -> None:
    """Copies a database through SQLite's own backup, in one step, as the connection's open transaction sees
    it. Raises sqlite3.Error, OSError."""
    step("snapshot.backup")
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = memory")
        connection.backup(copy, pages=-1)


class RowTarget:
    """A new storage file (0600) that rows are written into one by one: the table as qdrant-client makes it, the rowids
    as they were. Raises sqlite3.Error, OSError."""

    def __init__(self, path: Path) -> None:
        step("snapshot.rows.create")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._connection = sqlite3.connect(path, isolation_level=None)
        try:
            self._connection.execute("PRAGMA journal_mode = off")
            self._connection.execute("PRAGMA synchronous = off")
            self._connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        except BaseException:  # on a disk that is full
            self._connection.close()
            raise

    def put(self, rows: Sequence[tuple[int, Any, Any]]) -> None:
        """More rows: (rowid, id, point). An id that was changed while the rows were read comes twice: the later one
        stays."""
        if rows:
            step("snapshot.rows.put")
            self._connection.execute("BEGIN")
            self._connection.executemany(
                "INSERT OR REPLACE INTO points (rowid, id, point) VALUES (?, ?, ?)", rows
            )
            self._connection.execute("COMMIT")

    def drop(self, rowids: Collection[int]) -> None:
        """Takes rows of this unpublished copy away again, never of a store; what they held is gone with the rebuild."""
        if rowids:
            step("snapshot.rows.drop")
            self._connection.execute("BEGIN")
            self._connection.executemany("DELETE FROM points WHERE rowid = ?", [(rowid,) for rowid in rowids])
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """No more rows."""
        self._connection.close()


def copy_backup(source: str, target: Path) -> str:
    """Copies a file of a backup, which nobody writes, to a new one (0600); how, as copy_pages says it. The source
    is only read, and is no link. Raises OSError."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    reading = os.open(source, flags)
    try:
        if not stat.S_ISREG(os.fstat(reading).st_mode):
            raise OSError(errno.EINVAL, "is no ordinary file", source)
        writing = copy_target(target)
        try:
            return copy_pages(reading, writing, float("inf"))
        finally:
            os.close(writing)
    finally:
        close_source(reading)


def recover_database(raw: Path) -> None:
    """Applies what the journals beside a private copy hold: a hot journal is rolled back, a -wal written into the
    database. Afterwards none lies there. Raises sqlite3.Error, OSError."""
    step("snapshot.recover")
    with closing(sqlite3.connect(raw, isolation_level=None)) as copy:
        copy.execute("PRAGMA trusted_schema = 0")
        copy.execute("SELECT count(*) FROM sqlite_master").fetchone()
        copy.execute("PRAGMA journal_mode = delete").fetchone()
    for end in ("-journal", "-wal", "-shm"):
        raw.with_name(raw.name + end).unlink(missing_ok=True)


def make_folders(path: Path) -> None:
    """A folder and those above it that are not there, each 0700 (mkdir gives its mode to the last one only)."""
    if not path.is_dir():
        make_folders(path.parent)
        step("folder.create")
        path.mkdir(mode=0o700, exist_ok=True)  # another run may make it at the same moment


def rebuild_database(raw: Path, target: Path) -> None:
    """Writes a database (0600) anew from a copy that nobody else has open, in rollback mode and without free
    pages; rows keep their order. The copy is removed. Raises sqlite3.Error, OSError."""
    step("snapshot.rebuild")
    make_folders(target.parent)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # SQLite would make it 0644
    uri = f"{raw.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as copy:
        copy.execute("PRAGMA trusted_schema = 0")
        copy.execute("VACUUM INTO ?", (str(target),))
    step("snapshot.rebuild.remove")
    raw.unlink()


def write_new(path: Path, data: bytes) -> None:
    """A new file (0600) with these bytes, fsynced. Raises OSError."""
    step("snapshot.write")
    make_folders(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        step("snapshot.write.fsync")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class NewFile:
    """A new file (0600) that is written piece by piece as its bytes come in, and is on the disk when it is closed.

    `with NewFile(path) as file: file.take(piece)`. Raises OSError. One for a scratch folder is not `kept`: nothing
    waits for the disk.
    """

    def __init__(self, path: Path, *, kept: bool = True) -> None:
        self._kept = kept
        step("snapshot.download.create")
        make_folders(path.parent)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> NewFile:
        return self

    def take(self, piece: bytes) -> None:
        """More bytes."""
        step("snapshot.download.piece")
        view = memoryview(piece)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None and self._kept:
                step("snapshot.download.fsync")
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)


def free_bytes(folder: Path) -> int | None:
    """What an ordinary user may still write there; None where that is not known."""
    try:
        found = os.statvfs(folder)
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


def remove_new(path: Path) -> None:
    """Removes a file of an unpublished snapshot, which is made once more. Raises OSError."""
    step("snapshot.download.remove")
    path.unlink(missing_ok=True)


def sync_tree(folder: Path) -> None:
    """fsyncs every file and folder below, and the folder itself. Raises OSError."""
    for base, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(base, name))
        _sync(Path(base))


def _sync(path: Path) -> None:
    step("snapshot.fsync")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish_snapshot(hidden: Path, target: Path) -> None:
    """Gives a finished snapshot its name, by one rename. Raises OSError (FileExistsError where there is one)."""
    step("snapshot.raw")
    (hidden / "raw").rmdir()
    step("snapshot.fsync.hidden")
    _sync(hidden)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "exists", str(target))
    step("snapshot.publish")
    os.rename(hidden, target)  # noqa: PTH104
    step("snapshot.published")
    _sync(target.parent)


def set_journal_mode(path: Path, mode: str) -> str:
    """Gives a private copy of a database a journal mode, and says which it has then. Raises sqlite3.Error."""
    step("scratch.mode")
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        return str(
            copy.execute(f"PRAGMA journal_mode = {'wal' if mode == 'wal' else 'delete'}").fetchone()[0]
        )
