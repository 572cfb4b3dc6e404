"""Puts restored stores in place of others: staged beside them, exchanged, taken back, put aside.

Beside `stores/files.py` the only module that writes, renames and removes files; its steps are named there.
Linux only: RENAME_EXCHANGE and RENAME_NOREPLACE are used where the filesystem has them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from mem0audit.core.errors import Refused
from mem0audit.core.restore import INTENT, Found, Piece, same, where
from mem0audit.stores import files

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
_CANNOT: Final = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
_LOCK_START: Final = 0x40000000
_LOCK_LENGTH: Final = 512
"""The bytes that SQLite locks in a database file: PENDING, RESERVED and SHARED (os_unix.c)."""
_LENT: Final = "lent"
SIDES: Final = ("-journal", "-wal", "-shm")
_CHUNK: Final = 4 << 20


class InUse(Exception):
    """Somebody has a store open; the message is the path."""


# --- The folder that a restore works in -------------------------------------------------------------


@contextmanager
def staging(folder: Path, work: str = "restore") -> Iterator[bool]:
    """The staging folder (0700), for this process alone; made where it is not there. Gives whether it was there.
    `work` is what it is for, in errors.

    It may lie where others can write (/tmp), so one that is not this user's own is refused. It stays: see
    remove_staging. Raises Refused, OSError.
    """
    import fcntl  # not on Windows

    there = os.path.lexists(folder)
    if not there:
        files.step("restore.staging")
        folder.mkdir(mode=0o700)
        try:
            _sync(folder.parent)
        except OSError:
            folder.rmdir()
            raise
    descriptor = own_folder(folder, work)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"{folder}: another {work} works there", "try again when it is done") from None
        if os.lstat(folder).st_ino != os.fstat(descriptor).st_ino:
            raise Refused(f"{folder}: another {work} just worked there", "try again")
        os.fchmod(descriptor, 0o700)  # one that was cut off may have lent what is in it
        yield there
    finally:
        os.close(descriptor)


def own_folder(folder: Path, work: str = "restore") -> int:
    """A descriptor of a staging folder. Raises Refused where somebody else could have made it, OSError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise Refused(f"{folder}: is no folder of a {work}'s", "look at it, and move it away") from None
        if error.errno == errno.EACCES:
            raise Refused(
                f"{folder}: another user's {work} was cut off there", "run it again as that user"
            ) from None
        raise
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o066:
        os.close(descriptor)
        raise Refused(
            f"{folder}: is not this user's own", "run it as its owner, or look at it and move it away"
        )
    return descriptor


def at_work(folder: Path, work: str = "restore") -> bool:
    """Whether a restore works in this staging folder just now. Raises Refused, OSError as own_folder does."""
    import fcntl

    descriptor = own_folder(folder, work)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def empty_staging(folders: Sequence[Path]) -> None:
    """Removes all that staging folders hold: the intents first, for good. Raises OSError."""
    for folder in folders:
        if os.path.lexists(folder / INTENT):
            files.step("restore.intent.remove")
            (folder / INTENT).unlink()
            _sync(folder)
    for folder in folders:
        for entry in sorted(folder.iterdir()):
            files.step("restore.clean")
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def drop(folder: Path, *names: str) -> None:
    """Removes these of what a restore put into a folder, where they are there. Raises OSError."""
    for name in names:
        files.step("restore.drop")
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    _sync(folder)


def remove_staging(folders: Sequence[Path]) -> None:
    """Removes staging folders with all that they hold. Raises OSError."""
    empty_staging(folders)
    for folder in folders:
        files.step("restore.staging.remove")
        folder.rmdir()
        _sync(folder.parent)


def remove_empty(folders: Sequence[Path]) -> None:
    """Removes staging folders that hold nothing; the others, and what cannot be removed, stay."""
    for folder in folders:
        with suppress(OSError):
            files.step("restore.staging.drop")
            folder.rmdir()


def write_in(folder: Path, name: str, data: bytes, target: Path | None = None) -> None:
    """A whole file (0600) in a staging folder or, by way of it, at `target`: as it was before or all of `data`,
    on the disk. Raises OSError."""
    fresh = folder / f"{name}.new"
    files.step("restore.write")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        files.step("restore.write.fsync")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    final = target or folder / name
    files.step("restore.write.rename")
    os.rename(fresh, final)  # noqa: PTH104
    _sync(final.parent)


def make_parents(path: Path, owner: tuple[int, int]) -> None:
    """The folders above a missing store, each 0700 and its owner's. Raises OSError."""
    if not path.is_dir():
        make_parents(path.parent, owner)
        files.step("restore.parent")
        path.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(path, *owner)


def owner_of(path: Path) -> tuple[int, int] | None:
    """Owner and group; None where nothing is there."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_uid, found.st_gid


# --- Staging ----------------------------------------------------------------------------------------


def stage_file(source: Path, target: Path) -> str:
    """Copies a file of a snapshot (0600), fsynced, and gives the SHA-256 of the bytes that were written.

    Raises OSError.
    """
    files.make_folders(target.parent)
    files.step("restore.stage")
    sha = sha256()
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while chunk := os.read(reading, _CHUNK):
                sha.update(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(writing, view) :]
            files.step("restore.stage.fsync")
            os.fsync(writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return sha.hexdigest()


def make_lock(folder: Path) -> None:
    """The `.lock` of an embedded folder, as qdrant-client makes it (local/qdrant_local.py). Raises OSError."""
    files.write_new(folder / ".lock", b"tmp lock file")


@contextmanager
def lent(staged: Sequence[Path], owner: tuple[int, int]) -> Iterator[list[Path]]:
    """Staged files and folders are another user's meanwhile, in a folder of that user's own inside the staging folder,
    so that mem0 can be run as that one; gives where they are. Afterwards they are copied back: nothing that this user
    opened, linked or put there is in what is then put in place. Raises OSError."""
    parents = {path.parent for path in staged}
    for parent in parents:
        files.step("restore.lend")
        (parent / _LENT).mkdir(mode=0o700)
    theirs = [path.parent / _LENT / path.name for path in staged]
    for path, there in zip(staged, theirs, strict=True):
        os.rename(path, there)  # noqa: PTH104
    for parent in parents:
        _give(parent / _LENT, owner)
        parent.chmod(0o711)
    try:
        yield theirs
    finally:
        for parent in parents:
            parent.chmod(0o700)
    for path, there in zip(staged, theirs, strict=True):
        files.step("restore.lent")
        _copied_back(there, path)
    for parent in parents:
        shutil.rmtree(parent / _LENT)


def _give(path: Path, owner: tuple[int, int]) -> None:
    if path.is_dir():
        for entry in path.iterdir():
            _give(entry, owner)
    os.chown(path, *owner, follow_symlinks=False)


def _copied_back(theirs: Path, path: Path) -> None:
    mode = theirs.lstat().st_mode
    if stat.S_ISDIR(mode):
        path.mkdir(mode=0o700)
        for entry in sorted(theirs.iterdir()):
            _copied_back(entry, path / entry.name)
    elif stat.S_ISREG(mode):
        stage_file(theirs, path)
    else:
        raise OSError(errno.EINVAL, "is no ordinary file", str(path))


def take_after(new: Path, old: Path | None, owner: tuple[int, int], folder_mode: int = 0o700) -> None:
    """Gives a staged file or tree the owners, modes and extended attributes of what it replaces, by name.

    What has no counterpart gets `owner` and, as a folder, `folder_mode`, as a file the same without execution.
    Raises OSError.
    """
    counterpart = old if old is not None and _alike(new, old) else None
    found = counterpart.lstat() if counterpart is not None else None
    if found is not None:
        owner, mode = (found.st_uid, found.st_gid), stat.S_IMODE(found.st_mode)
        folder_mode = mode if new.is_dir() else folder_mode
    else:
        mode = folder_mode if new.is_dir() else folder_mode & 0o666
    if new.is_dir():
        for entry in sorted(new.iterdir()):
            take_after(entry, old / entry.name if old is not None else None, owner, folder_mode)
    files.step("restore.owner")
    is_now = new.lstat()
    if (is_now.st_uid, is_now.st_gid) != owner:
        os.chown(new, *owner, follow_symlinks=False)
    files.step("restore.mode")
    new.chmod(mode)
    if counterpart is not None:
        _attributes(new, counterpart)


def _alike(new: Path, old: Path) -> bool:
    try:
        return stat.S_IFMT(new.lstat().st_mode) == stat.S_IFMT(old.lstat().st_mode)
    except OSError:
        return False


def _attributes(new: Path, old: Path) -> None:
    """The extended attributes of `old`, access lists among them. What the system keeps for itself (a security
    label that cannot be set here) is left to the system."""
    try:
        wanted = os.listxattr(old, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return
        raise
    for name in os.listxattr(new, follow_symlinks=False):
        if name not in wanted and not name.startswith(("security.", "trusted.")):
            files.step("restore.attribute")
            os.removexattr(new, name, follow_symlinks=False)
    for name in wanted:
        files.step("restore.attribute")
        try:
            os.setxattr(new, name, os.getxattr(old, name, follow_symlinks=False), follow_symlinks=False)
        except OSError:
            if not name.startswith(("security.", "trusted.")):
                raise


def sums_of(path: Path) -> dict[str, str]:
    """SHA-256 of a file ("") or of every file of a tree by its path below; Qdrant's `.lock` is left out. What is
    no ordinary file is named with its kind. Raises OSError."""
    if not path.is_dir():
        return {"": _sum(path)}
    found = {}
    for base, folders, names in os.walk(path):
        for name in (*names, *(f for f in folders if Path(base, f).is_symlink())):
            file = Path(base, name)
            relative = file.relative_to(path).as_posix()
            if relative != ".lock":
                found[relative] = _sum(file)
    return found


def _sum(path: Path) -> str:
    if not stat.S_ISREG(path.lstat().st_mode):
        return "no ordinary file"
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return sum_of_open(descriptor)
    finally:
        os.close(descriptor)


def sum_of_open(descriptor: int) -> str:
    """SHA-256 of the file behind a descriptor, which stays open: its locks stay too. Raises OSError."""
    sha = sha256()
    done = 0
    while chunk := os.pread(descriptor, _CHUNK, done):
        sha.update(chunk)
        done += len(chunk)
    return sha.hexdigest()


class _Handle(ctypes.Structure):
    # struct file_handle of linux/fcntl.h; MAX_HANDLE_SZ is 128
    _fields_ = (("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128))


def identity_of(path: Path | str | None) -> str | None:
    """What a rename keeps and no other file gets (see core.restore.same), links not followed; None where nothing
    lies. Raises OSError."""
    if path is None:
        return None
    try:
        inode = os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise
    handle, mount = _Handle(size=128), ctypes.c_int()
    try:
        call = ctypes.CDLL(None, use_errno=True).name_to_handle_at
        name = ctypes.c_char_p(os.fsencode(path))
        failed = call(_AT_FDCWD, name, ctypes.byref(handle), ctypes.byref(mount), 0)
    except (OSError, AttributeError):  # a C library that has no name for it
        failed = True
    return str(inode) if failed else f"{inode}:{handle.kind}.{bytes(handle.bytes[: handle.size]).hex()}"


def found(piece: Piece) -> Found:
    """What lies at the three places of a piece. Raises OSError."""
    return Found(identity_of(piece.target), identity_of(piece.staged), identity_of(piece.aside))


# --- Locks --------------------------------------------------------------------------------------------


@contextmanager
def store_locked(folder: Path) -> Iterator[None]:
    """Qdrant's own lock of an embedded folder, exclusive: an agent that starts meanwhile fails at it.

    qdrant-client 1.20 takes `flock(LOCK_EX | LOCK_NB)` on `.lock` (local/qdrant_local.py, through portalocker),
    after it has read the collections. Raises InUse, OSError.
    """
    import fcntl

    lock = folder / ".lock"
    if not os.path.lexists(lock):
        files.step("restore.lock.make")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            parent = folder.stat()
            if os.geteuid() == 0:
                os.chown(descriptor, parent.st_uid, parent.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(parent.st_mode) & 0o666)
        finally:
            os.close(descriptor)
    files.step("restore.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(str(lock)) from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def database_locked(path: Path) -> Iterator[int]:
    """SQLite's exclusive lock of a database file, in either journal mode and whatever the file holds: nobody who
    opens it meanwhile gets to read or write. Gives the descriptor: closing any other one of that file would let the
    lock go. Raises InUse, OSError."""
    import fcntl

    files.step("restore.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_LENGTH, _LOCK_START)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise InUse(str(path)) from None
            raise
        yield descriptor
    finally:
        os.close(descriptor)


def settle_journals(path: Path) -> None:
    """Lets SQLite bring a write-ahead log, or the journal of a writer that died, into the database it belongs to,
    as the next program that opens it would; no `-wal` is then left that a new file could be taken with.

    What is no database, or SQLite cannot open, keeps its journals, to be put aside with it. Raises InUse, OSError.
    """
    if not path.exists() or not any(os.path.lexists(f"{path}{side}") for side in SIDES):
        return
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            return  # SQLite would remove the journals as it fails
    files.step("restore.journals")
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy is not None and busy[0]:
            raise InUse(str(path))
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise InUse(str(path)) from None
        if "full" in str(error) or "I/O" in str(error):
            raise OSError(errno.ENOSPC if "full" in str(error) else errno.EIO, str(error)) from None
    except sqlite3.DatabaseError:
        return


# --- The exchange ---------------------------------------------------------------------------------------


def forward(pieces: Sequence[Piece]) -> None:
    """Brings every piece that is not exchanged yet into place, in their order. Raises OSError."""
    for piece in pieces:
        how_far = where(piece, found(piece))
        if how_far == "between" and piece.staged is not None:
            _rename(piece.staged, piece.target, "restore.put")
        elif how_far == "before":
            if piece.staged is None:
                _rename(piece.target, piece.aside, "restore.aside")
            elif piece.old is None:
                _rename(piece.staged, piece.target, "restore.put")
            elif not _exchanged(piece.staged, piece.target):
                _rename(piece.target, piece.aside, "restore.aside")
                _rename(piece.staged, piece.target, "restore.put")
    _sync_around(pieces)


def back(pieces: Sequence[Piece]) -> None:
    """Takes every exchange back, the last one first. What lies at a target and is neither the old nor the new one
    is left alone. Raises OSError."""
    for piece in reversed(pieces):
        places = found(piece)
        how_far = where(piece, places)
        if how_far == "between" or (how_far == "after" and piece.staged is None):
            _rename(piece.aside, piece.target, "restore.back")
        elif how_far == "after" and piece.staged is not None:
            if piece.old is None:
                _rename(piece.target, piece.staged, "restore.back")
            elif same(places.staged, piece.old):
                if not _exchanged(piece.staged, piece.target):
                    raise OSError(errno.EOPNOTSUPP, "the filesystem exchanges names no more", piece.target)
            elif same(places.aside, piece.old):
                _rename(piece.target, piece.staged, "restore.back")
                _rename(piece.aside, piece.target, "restore.back")
    _sync_around(pieces)


def put_aside(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """Gives every old piece its dated name; their paths. Raises OSError."""
    for piece in pieces:
        if piece.staged is not None and piece.old is not None and same(found(piece).staged, piece.old):
            _rename(piece.staged, piece.aside, "restore.aside")
    _sync_around(pieces)
    return tuple(p.aside for p in pieces if p.old is not None and same(identity_of(p.aside), p.old))


def journals_aside(piece: Piece, ours: Collection[str]) -> None:
    """Moves journals away from beside a log, but those that are pieces themselves. Raises OSError."""
    for side in SIDES:
        path = f"{piece.target}{side}"
        if os.path.lexists(path) and path not in ours:
            _rename(path, f"{piece.changed_aside}{side}", "restore.aside")


def keep_what_changed(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """After a rollback: puts aside the new pieces that somebody has written to, instead of letting them go with
    the staging folder; their paths. Raises OSError."""
    kept = []
    for piece in pieces:
        if piece.staged is None or not same(identity_of(piece.staged), piece.new):
            continue
        if sums_of(Path(piece.staged)) != dict(piece.sums):
            _rename(piece.staged, piece.changed_aside, "restore.keep")
            kept.append(piece.changed_aside)
    _sync_around(pieces)
    return tuple(kept)


def _sync_around(pieces: Sequence[Piece]) -> None:
    folders = {os.path.dirname(p) for piece in pieces for p in (piece.target, piece.staged) if p}  # noqa: PTH120
    for folder in sorted(folders):
        with suppress(FileNotFoundError):
            _sync(Path(folder))


def _rename(source: str, target: str, name: str) -> None:
    """One rename that replaces nothing. Raises OSError (FileExistsError)."""
    files.step(name)
    if _renameat2(source, target, _NOREPLACE):
        return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(source, target)  # noqa: PTH104


def _exchanged(one: str, other: str) -> bool:
    """Exchanges two names in one step; False where the filesystem cannot. Raises OSError."""
    files.step("restore.exchange")
    return _renameat2(one, other, _EXCHANGE)


def _renameat2(source: str, target: str, flag: int) -> bool:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library that has no name for it
        return False
    words = (ctypes.c_char_p(os.fsencode(source)), ctypes.c_char_p(os.fsencode(target)))
    if call(_AT_FDCWD, words[0], _AT_FDCWD, words[1], ctypes.c_uint(flag)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), source, None, target)


def _sync(folder: Path) -> None:
    files.step("restore.fsync")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_empty_folder(folder: Path) -> None:
    """Removes an empty folder that a store gets the name of. Raises OSError."""
    files.step("relocate.empty")
    folder.rmdir()


# --- A new directory, and what was put aside -------------------------------------------------------------


def publish_folder(staged: Path, target: Path) -> None:
    """Gives a staged folder its name, by one rename: of a new folder, or of one that is empty. Raises OSError, and it
    has its old name then."""
    files.step("restore.publish")
    os.rename(staged, target)  # noqa: PTH104
    try:
        _sync(target.parent)
    except BaseException:
        os.rename(target, staged)  # noqa: PTH104
        raise


def discard(path: Path, sides: bool) -> None:
    """Removes one thing that a restore put aside, and of a file its journals. Raises OSError."""
    files.step("restore.discard")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    path.unlink()
    for side in SIDES if sides else ():
        Path(f"{path}{side}").unlink(missing_ok=True)


def remove_record(path: Path) -> None:
    """Removes the record of what was put aside. Raises OSError."""
    files.step("restore.record.remove")
    path.unlink(missing_ok=True)


def same_sums(path: Path, sums: Mapping[str, str]) -> bool:
    """Whether a file or tree holds just the bytes that were staged. Raises OSError."""
    return sums_of(path) == dict(sums)


# --- A configuration file ----------------------------------------------------------------------------


class NotTheSame(Exception):
    """A file does not hold what it held when it was looked at."""


def replace_file(target: Path, was: bytes, data: bytes, backup: Path | None) -> None:
    """Gives a small file (links followed already) new bytes, by one rename: it is as it was or all new. Owner, mode and
    attributes stay; where `backup` is a path, the old bytes are kept there with the same.

    Raises NotTheSame where the file does not hold `was` any more, OSError; then it is as it was.
    """
    reading = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(reading)
        if os.pread(reading, len(was) + 1, 0) != was:
            raise NotTheSame
        if backup is not None:
            files.step("config.backup")
            _write_like(backup, was, reading)
        fresh = target.with_name(f".{target.name[:200]}.mem0audit")
        fresh.unlink(missing_ok=True)  # what a kill left
        files.step("config.write")
        _write_like(fresh, data, reading)
        try:
            now = target.lstat()
            if (now.st_ino, now.st_mtime_ns, now.st_size) != (found.st_ino, found.st_mtime_ns, found.st_size):
                raise NotTheSame
            files.step("config.rename")
            os.rename(fresh, target)  # noqa: PTH104
        except BaseException:
            fresh.unlink()
            raise
    finally:
        os.close(reading)
    files.step("config.folder")
    _sync(target.parent)


def _write_like(path: Path, data: bytes, like: int) -> None:
    """A new file with the owner, mode and attributes of an open one, on the disk. By its descriptor alone: it may lie
    in a folder of somebody else's. Raises OSError, and leaves nothing behind."""
    wanted = os.fstat(like)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            is_now = os.fstat(descriptor)
            if (is_now.st_uid, is_now.st_gid) != (wanted.st_uid, wanted.st_gid):
                files.step("config.owner")
                os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(wanted.st_mode))
            for name in _names_of_attributes(like):
                # what the system keeps for itself it sets itself
                allowed = suppress(OSError) if name.startswith(("security.", "trusted.")) else nullcontext()
                with allowed:
                    os.setxattr(descriptor, name, os.getxattr(like, name))
            files.step("config.fsync")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        path.unlink()
        raise


def _names_of_attributes(descriptor: int) -> list[str]:
    try:
        return os.listxattr(descriptor)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return []
        raise


# --- A link at the old place --------------------------------------------------------------------------


def make_link(path: Path, target: str) -> None:
    """A symbolic link where nothing is. Made by root, it belongs to the folder's owner: in a sticky folder that all may
    write to (/tmp) the kernel follows only links of that owner's or one's own. Raises OSError."""
    files.step("link.create")
    path.symlink_to(target)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    files.step("link.folder")
    _sync(path.parent)
