"""Backups that people already have: find the halves, verify them, audit them. Nothing is changed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from mem0audit.core import backup as core
from mem0audit.core.backup import Backup, BackupFile, BackupVerdict, Halves
from mem0audit.core.errors import CouldNotRead, Refused, UsageProblem
from mem0audit.core.model import Agent, FileState, Install, NotChecked, Origin
from mem0audit.core.reading import Reading
from mem0audit.core.reconcile import compare
from mem0audit.core.snapshot import SnapshotProblem
from mem0audit.install.host import Host
from mem0audit.install.locate import DEFAULT
from mem0audit.install.processes import holders
from mem0audit.operations.copied import counted, counts, judged
from mem0audit.operations.look import Progress, look_at_copy, no_progress
from mem0audit.stores import backups
from mem0audit.stores.embedded import STORAGE, EmbeddedStore

FOUND: Final = "found in the backup"
NOBODY: Final = Agent(None, None, None, "a backup does not say")
SHOWN: Final = 5


# --- Where its halves are ---------------------------------------------------------------------------


def find_backup(
    folder: str, host: Host, history: str | None = None, qdrant_path: str | None = None
) -> Backup:
    """The halves of a backup: those named (from the working folder, else inside the backup), and else the only ones
    that lie in it.

    Raises UsageProblem where several lie there, CouldNotRead where one is missing, Refused where a process has one
    open: then it is no backup.
    """
    where = Path(os.path.realpath(os.path.join(host.cwd, folder)))  # noqa: PTH118
    try:
        found = backups.candidates(where)
    except NotADirectoryError:
        raise CouldNotRead(f"{folder}: is no folder", "an archive is unpacked first, into a folder") from None
    except OSError as error:
        raise CouldNotRead(f"{folder}: {(error.strerror or 'cannot be read').lower()}") from None
    if not (history or found.histories) or not (qdrant_path or found.vectors):
        more = "" if found.whole else ", as far as it was looked through"
        hint = None
        if found.histories or found.vectors:
            hint = f"name the other half with {'--qdrant-path' if found.histories else '--history'}"
        raise CouldNotRead(f"{folder}: {_what_it_holds(found)}{more}", hint)
    backup = Backup(
        folder=str(where),
        history=_half(where, "--history", history, found.histories, host),
        vectors=_half(where, "--qdrant-path", qdrant_path, found.vectors, host),
    )
    held = holders([backup.history.value, backup.vectors.value], host).holders
    if held:
        raise Refused(
            f"{folder}: pid {held[0].pid} has it open: a store in use, and no backup",
            "look at it with mem0audit audit, take a pair of it with mem0audit snapshot create",
        )
    return backup


def _what_it_holds(found: backups.Candidates) -> str:
    if found.histories:
        return "holds a log without a Qdrant folder, and is no snapshot of mem0audit's"
    if found.vectors:
        return "holds a Qdrant folder without a log, and is no snapshot of mem0audit's"
    return "no snapshot lies there, and no backup"


def _half(where: Path, flag: str, given: str | None, found: Sequence[str], host: Host) -> Origin:
    if given is not None:
        for base in (host.cwd, str(where)):
            path = os.path.join(base, given)  # noqa: PTH118
            if os.path.exists(path):  # noqa: PTH110
                return Origin(os.path.realpath(path), flag)
        raise CouldNotRead(f"{flag} {given}: is not there")
    if len(found) > 1:
        listed = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
        what = "logs" if flag == "--history" else "Qdrant folders"
        raise UsageProblem(
            f"{where}: {len(found)} {what} lie there: {listed}",
            f"name one with {flag}, or the folder that holds one backup",
        )
    return Origin(os.path.normpath(where / found[0]), FOUND)


def install_of(backup: Backup, collection: str | None = None) -> Install:
    """A backup as an install; `collection` where the user names it."""
    wanted = Origin("mem0", DEFAULT) if collection is None else Origin(collection, "--collection")
    return Install(backup.history, backup.vectors, wanted, Origin(backup.folder, FOUND))


def inside(backup: Backup, path: str) -> str:
    """A path of the backup relative to it; one that lies elsewhere as it is."""
    return path.removeprefix(backup.folder.rstrip("/") + "/")


# --- Reading ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """A backup as read. `odd` is what in it is no ordinary file (path -> what it is): a half with such a thing is
    not read, and then `reading` is None, with `why`. `newest_at` is the newest instant in it that lies not in the
    future (seconds since 1970; None without any), `modified_at` when its newest file was written."""

    odd: dict[str, str]
    reading: Reading | None
    why: str | None
    newest_at: float | None
    newest_in: str | None
    modified_at: float | None

    @property
    def taken_at(self) -> float | None:
        """What a copy of it is dated by."""
        return self.newest_at if self.newest_at is not None else self.modified_at


def read_backup(
    backup: Backup, host: Host, say: Progress = no_progress, collection: str | None = None
) -> Read:
    """Both halves as they lie there. Raises nothing for what they are."""
    odd = backups.odd_in_history(Path(backup.history.value)) | backups.odd_in_vectors(
        Path(backup.vectors.value)
    )
    if odd:
        path, what = next(iter(sorted(odd.items())))
        return Read(odd, None, f"{inside(backup, path)} {what}", None, None, None)
    modified_at = _modified_at(backup, host.now)
    reading = look_at_copy(install_of(backup, collection), NOBODY, host.now, say)
    row_at = _latest_row(reading, host.now)
    points = [p for c in reading.memories for p in c.by_id.values()]
    point_at = core.newest_point(points, host.now)
    newest_at = max((at for at in (row_at, point_at) if at is not None), default=None)
    newest_in = None
    if newest_at is not None:
        newest_in = (
            "the newest change in its log" if newest_at == row_at else "the newest memory in its vectors"
        )
    # A deletion of a moment before the copy is one of a moment before, whenever this is read.
    now = max((at for at in (newest_at, modified_at) if at is not None), default=host.now)
    return Read(odd, replace(reading, now=now), None, newest_at, newest_in, modified_at)


def _latest_row(reading: Reading, now: float) -> float | None:
    return None if reading.timeline is None else core.latest(reading.timeline.times, now)


def _modified_at(backup: Backup, now: float) -> float | None:
    paths = [backup.history.value]
    for info in EmbeddedStore(backup.vectors.value).layout().collections:
        paths += [f"{info.path}/{STORAGE}"] if info.has_folder else []
    times = []
    for path in paths:
        with suppress(OSError):
            times.append(Path(path).stat().st_mtime)
    return max((at for at in times if at <= now), default=None)


def halves_of(reading: Reading, now: float) -> Halves | None:
    """How far the two halves are apart; None where one of them gave nothing to compare."""
    timeline, layout = reading.timeline, reading.layout
    if timeline is None or layout is None or not layout.exists or layout.problem is not None:
        return None
    unread = [c for c in reading.memories if c.read.file.problem is not None]
    if unread and not any(c.read.rows for c in reading.memories):
        return None
    points = {i: p for c in reading.memories for i, p in c.by_id.items()}
    both = compare(timeline, points, {})
    bad = any(c.read.bad or c.read.unsafe for c in reading.memories)
    legacy = any(c.legacy or c.closed for c in layout.collections)
    partial = bool(unread) or bad or legacy
    return core.halves(timeline, points.values(), both, now=now, partial=partial)


# --- Verify -------------------------------------------------------------------------------------------


def verify_backup(
    backup: Backup, host: Host, progress: Progress | None = None, collection: str | None = None
) -> BackupVerdict:
    """Whether each file of a backup is whole, how far its halves are apart, and what putting it back would do.
    Changes nothing; raises nothing for what the files are."""
    say = progress or no_progress
    started = time.monotonic()
    read = read_backup(backup, host, say, collection)
    problems = [SnapshotProblem(inside(backup, path), what) for path, what in sorted(read.odd.items())]
    not_checked: list[NotChecked] = []
    files: tuple[BackupFile, ...] = ()
    told: Halves | None = None
    reading = read.reading
    odd_log = any(path.startswith(backup.history.value) for path in read.odd)
    wanted: tuple[Database, ...] = () if odd_log else (Database("history", backup.history.value),)
    if reading is not None:
        wanted = databases(backup)
    files = _files(backup, wanted, reading, say)
    problems += [SnapshotProblem(file.path, file.problem) for file in files if file.problem]
    not_checked += [NotChecked(file.path, file.unread) for file in files if file.unread]
    if reading is None:
        not_checked.append(NotChecked("both halves", f"{read.why}"))
    else:
        problems += _of_the_layout(backup, reading)
        told = halves_of(reading, host.now)
        if told is None and not problems and not not_checked:
            not_checked.append(NotChecked("how far the halves are apart", "one of them could not be read"))
    return BackupVerdict(
        backup=backup,
        files=files,
        problems=tuple(problems),
        not_checked=tuple(not_checked),
        halves=told,
        taken_at=read.taken_at,
        dated_by=read.newest_in or "the time of its newest file",
        counts={} if reading is None else counts(reading),
        findings={} if reading is None else counted(judged(reading)),
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class Database:
    """One SQLite file of a backup; `collection` is None for the log."""

    role: Literal["history", "vectors"]
    path: str
    collection: str | None = None


def databases(backup: Backup) -> tuple[Database, ...]:
    """The log, then the storage file of every collection that has one."""
    collections = EmbeddedStore(backup.vectors.value).layout().collections
    return (
        Database("history", backup.history.value),
        *(
            Database("vectors", str(Path(info.path, STORAGE)), info.name)
            for info in collections
            if info.has_folder and not info.legacy
        ),
    )


def _files(
    backup: Backup, wanted: Sequence[Database], reading: Reading | None, say: Progress
) -> tuple[BackupFile, ...]:
    states = [] if reading is None else _states(reading)
    unreadable = {state.path: state.problem for state in states if state.problem is not None}
    files = []
    for number, one in enumerate(wanted):
        say("checking every page", number, len(wanted))
        checked = backups.check(one.path)
        beside = backups.beside(one.path)
        problem, note = _journals(checked.journal_mode, beside)
        if checked.lines:
            problem = f"damaged: {_damage(checked.lines)}"
        elif problem is None and not checked.unread and one.path in unreadable:
            problem = unreadable[one.path].detail
        files.append(
            BackupFile(
                path=inside(backup, one.path),
                role=one.role,
                size_bytes=checked.size_bytes,
                journal_mode=checked.journal_mode,
                beside=tuple(beside),
                problem=problem,
                unread=checked.unread,
                note=note,
                damaged=bool(checked.lines) or one.path in unreadable,
            )
        )
    return tuple(files)


def _damage(lines: Sequence[str]) -> str:
    first = " ".join(lines[0].split())
    said = first if len(first) <= 100 else first[:99] + "…"
    said = "" if said == "the database is damaged" else f" ({said})"
    return f"fails integrity_check{said}: copied while it was written, or broken since"


def _states(reading: Reading) -> list[FileState]:
    states = [] if reading.history is None else [reading.history.file]
    return [*states, *(c.read.file for c in reading.collections)]


def _journals(mode: str | None, beside: dict[str, int]) -> tuple[str | None, str | None]:
    """What the journals beside a file mean: (what is wrong, what to know)."""
    if mode == "wal":
        if "-wal" in beside:
            return None, "in write-ahead logging mode, with its -wal"
        if "-shm" in beside:
            return "its -wal was not copied with it: the newest changes are missing", None
        return (
            None,
            "in write-ahead logging mode without a -wal: whole only if nobody had it open when it was copied",
        )
    if "-wal" in beside:
        return "a -wal lies beside it that is not its own", None
    if "-journal" in beside:
        return None, "copied in the middle of a write (hot journal), which opening it undoes"
    return None, None


def _of_the_layout(backup: Backup, reading: Reading) -> list[SnapshotProblem]:
    layout = reading.layout
    assert layout is not None
    meta = inside(backup, f"{layout.path}/meta.json")
    if layout.problem is not None:
        return [SnapshotProblem(inside(backup, layout.path), layout.problem.detail)]
    problems = []
    if layout.meta_problem is not None:
        problems.append(SnapshotProblem(meta, f"is {layout.meta_problem}"))
    for info in layout.collections:
        if info.legacy:
            detail = "is a storage.dbm of qdrant-client before 1.1.7, which is not read"
            problems.append(SnapshotProblem(inside(backup, info.path), detail))
        elif info.listed and not info.has_folder:
            problems.append(
                SnapshotProblem(meta, f"lists the collection {info.name}, and its folder is missing")
            )
    return problems
