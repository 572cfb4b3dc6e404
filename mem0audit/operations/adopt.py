"""Adopt a backup that somebody else made as a snapshot: copied, made whole, and marked as not a pair."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path
from typing import Literal

from mem0audit import __version__
from mem0audit.core import snapshot as core
from mem0audit.core.backup import Backup, BackupVerdict, ImportPlan, apart_words
from mem0audit.core.errors import Failed, Refused
from mem0audit.core.snapshot import Manifest, SnapshotFile, SnapshotProblem, Taken
from mem0audit.core.times import instant, shown
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host, resolved
from mem0audit.install.places import look_at
from mem0audit.operations.backup import (
    NOBODY,
    Database,
    databases,
    halves_of,
    inside,
    install_of,
    verify_backup,
)
from mem0audit.operations.copied import counted, counts, digests, judged
from mem0audit.operations.look import Progress, look_at_copy, no_progress
from mem0audit.operations.snapshot import checked_folder, needed_bytes, of_copy, published, write_manifest
from mem0audit.stores import backups, files, snapshots, sqlitefiles
from mem0audit.stores.embedded import STORAGE, EmbeddedStore

Mode = Literal["rollback", "wal"]


def plan_import(
    backup: Backup, host: Host, folder: str, collection: str | None = None, progress: Progress | None = None
) -> ImportPlan:
    """What `import` would do, every page of the backup checked. Changes nothing, and makes no folder.

    Raises Refused where a file is damaged or the folder unsafe, with what still reads.
    """
    where = checked_folder(folder, install_of(backup), host)
    real = resolved(folder, host)
    if (real + "/").startswith(backup.folder.rstrip("/") + "/"):
        raise Refused(
            f"{folder} lies inside the backup, which is not changed", "name a folder elsewhere with --to"
        )
    verdict = verify_backup(backup, host, progress, collection)
    _refuse_damage(backup, verdict)
    assert verdict.halves is not None
    taken_at = verdict.taken_at if verdict.taken_at is not None else host.now
    wanted = databases(backup)
    meta = f"{backup.vectors.value}/meta.json"
    listed = [(inside(backup, one.path), _target(one)) for one in wanted]
    sizes = [sum((_size(one.path), *backups.beside(one.path).values())) for one in wanted]
    if os.path.lexists(meta):
        listed.append((inside(backup, meta), core.META))
        sizes.append(_size(meta))
    return ImportPlan(
        backup=backup,
        folder=folder,
        name=core.name_of(taken_at),
        taken_at=taken_at,
        dated_by=verdict.dated_by or "now",
        files=tuple(listed),
        size_bytes=sum(sizes),
        needed_bytes=needed_bytes(sizes, where),
        free_bytes=where.free_bytes,
        halves=verdict.halves,
        collection=collection,
        problems=tuple(SnapshotProblem(file.path, file.problem) for file in verdict.files if file.problem),
    )


def _refuse_damage(backup: Backup, verdict: BackupVerdict) -> None:
    """Raises Refused for what cannot become a snapshot, with what still reads."""
    bad = [(file.path, file.problem) for file in verdict.files if file.damaged]
    bad += [(gap.what, gap.why) for gap in verdict.not_checked]
    layout = EmbeddedStore(backup.vectors.value).layout()
    if layout.meta_problem is not None:
        bad.append((inside(backup, f"{layout.path}/meta.json"), f"is {layout.meta_problem}"))
    bad += [
        (inside(backup, info.path), "is of qdrant-client before 1.1.7")
        for info in layout.collections
        if info.legacy
    ]
    if not bad and verdict.halves is None:
        bad = [(backup.folder, "one of its halves could not be read")]
    if not bad:
        return
    told = [(verdict.counts.get(what), what) for what in ("memories", "changes")]
    still = ", ".join(f"{count:,} {what}" for count, what in told if count is not None)
    raise Refused(
        f"{backup.folder}: {bad[0][0]}: {bad[0][1]}; nothing was imported"
        + (f" (what still reads: {still})" if still else ""),
        f"what still reads: mem0audit audit --snapshot {shell_word(backup.folder)}",
    )


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _target(one: Database) -> str:
    """Where a file lies in a snapshot."""
    return core.HISTORY if one.collection is None else f"{core.VECTORS}/collection/{one.collection}/{STORAGE}"


def import_backup(plan: ImportPlan, host: Host, *, progress: Progress | None = None) -> Taken:
    """Adopts the backup that was planned. The backup is only read.

    Copied, with what its journals hold applied in the copy, rebuilt without free pages, checked, and published by
    one rename, dated by the newest instant in it and marked as not a pair. Raises Refused where another run works
    in the same folder or a file turns out damaged, Failed where nothing was published.
    """
    say = progress or no_progress

    def fill(hidden: Path, name: str, _last: bool) -> Manifest:
        return _adopt(plan, host, hidden, name, say)

    # Nobody knows whom a foreign backup still holds: no record is begun that would say that nobody was erased.
    return published(Path(plan.folder), lambda: plan.taken_at, fill, say, beside=lambda _: None)


def _adopt(plan: ImportPlan, host: Host, hidden: Path, name: str, say: Progress) -> Manifest:
    backup = plan.backup
    copied: list[tuple[Database, str, Mode]] = []
    before = _marks(backup)
    wanted = databases(backup)
    for number, one in enumerate(wanted):
        say("copying and rebuilding", number, len(wanted))
        raw = hidden / "raw" / f"{number}.db"
        way, mode = _copied(one, raw)
        wrong = snapshots.integrity(raw)
        if wrong:
            raise Refused(f"{one.path}: fails integrity_check ({wrong[0]}); nothing was imported")
        files.rebuild_database(raw, hidden / _target(one))
        wrong = snapshots.integrity(hidden / _target(one))
        if wrong:
            raise Failed(f"{one.path}: its copy fails integrity_check ({wrong[0]}); nothing was imported")
        copied.append((one, way, mode))
    meta = Path(backup.vectors.value, "meta.json")
    try:
        data = snapshots.small_file(meta)
    except FileNotFoundError:
        files.make_folders(hidden / core.VECTORS)
    except ValueError as problem:
        raise Refused(f"{meta}: {problem}; nothing was imported") from None
    else:
        files.write_new(hidden / core.META, data)
    if _marks(backup) != before:
        raise Failed(
            f"{backup.folder}: changed while it was copied; nothing was imported",
            "is it a store in use? mem0audit snapshot create takes a pair of it",
        )
    say("reading both halves", None, None)
    created_at = shown(plan.taken_at)
    install = install_of(backup, plan.collection)
    reading = look_at_copy(of_copy(install, hidden), NOBODY, instant(created_at) or 0.0, say)
    halves = halves_of(reading, host.now)
    why = "its halves could not be compared" if halves is None else apart_words(halves)
    why = "; ".join([why, *(f"{problem.path}: {problem.detail}" for problem in plan.problems)])
    files.sync_tree(hidden)
    points, history = digests(reading)
    manifest = Manifest(
        name=name,
        created_at=created_at,
        history=backup.history,
        vectors=backup.vectors,
        collection=reading.install.collection,
        mem0_dir=install.mem0_dir,
        hostname=platform.node(),
        filesystems={
            "history": look_at(backup.history.value, host).filesystem,
            "vectors": look_at(backup.vectors.value, host).filesystem,
        },
        versions={
            "mem0audit": __version__,
            "mem0ai": None,
            "qdrant-client": None,
            "sqlite": sqlite3.sqlite_version,
        },
        files=_listed(hidden, copied, meta),
        counts=counts(reading),
        points_digest=points,
        history_digest=history,
        findings=counted(judged(reading)),
        settled=False,
        unsettled_why=why,
        tries=1,
        longest_hold_s=0.0,
        pair=False,
    )
    write_manifest(hidden, manifest)
    return manifest


def _copied(one: Database, raw: Path) -> tuple[str, Mode]:
    """A file and its journals copied, and made one file; how, and the journal mode it had."""
    ends = [end for end in backups.beside(one.path) if end != "-shm"]
    way = files.copy_backup(one.path, raw)
    for end in ends:
        files.copy_backup(one.path + end, raw.with_name(raw.name + end))
    mode: Mode = "wal" if 2 in snapshots.begins(raw, 20)[18:20] else "rollback"
    if "-journal" in ends and sqlitefiles.names_another_file(f"{raw}-journal"):
        raise Refused(f"{one.path}-journal: names a file outside of it; nothing was imported")
    if ends or mode == "wal":
        files.recover_database(raw)
    return way, mode


def _listed(hidden: Path, copied: list[tuple[Database, str, Mode]], meta: Path) -> tuple[SnapshotFile, ...]:
    listed = []
    for one, way, mode in copied:
        size, sha = snapshots.digest(hidden / _target(one))
        listed.append(SnapshotFile(_target(one), size, sha, one.path, one.collection, mode, way))
    if (hidden / core.META).exists():
        size, sha = snapshots.digest(hidden / core.META)
        listed.append(SnapshotFile(core.META, size, sha, str(meta), None, None, "bytes"))
    return tuple(sorted(listed, key=lambda file: file.path))


def _marks(backup: Backup) -> list[tuple[str, int, int, int]]:
    """What changes when a file of the backup is written or replaced."""
    marks = []
    for one in databases(backup):
        for end in ("", *backups.beside(one.path)):
            found = Path(one.path + end).lstat()
            marks.append((one.path + end, found.st_ino, found.st_size, found.st_mtime_ns))
    return marks
