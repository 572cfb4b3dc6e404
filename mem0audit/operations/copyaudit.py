"""Audit a copy: a snapshot of ours, or a backup that somebody else made, as of the time it was taken."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mem0audit.core import snapshot as core
from mem0audit.core.backup import Backup
from mem0audit.core.errors import CouldNotRead, UsageProblem
from mem0audit.core.model import CopyOf, Origin, Report
from mem0audit.core.snapshot import Manifest
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host
from mem0audit.operations.audit import audit_copy
from mem0audit.operations.backup import find_backup, inside, read_backup
from mem0audit.operations.copied import agent_of, install_of
from mem0audit.operations.look import Progress, look_at_copy, no_progress
from mem0audit.operations.verify import NoSnapshot, find_snapshots, show_snapshot
from mem0audit.stores import backups
from mem0audit.stores.detectors import find_secrets


@dataclass(frozen=True)
class Copy:
    """A snapshot (with its manifest) or a backup, and where its halves lie."""

    halves: Backup
    manifest: Manifest | None


def find_copy(
    folder: str | None, name: str, host: Host, history: str | None = None, qdrant_path: str | None = None
) -> Copy:
    """The snapshot or backup that is meant: a snapshot's name in the folder, its path, or a backup's.

    `history` and `qdrant_path` name the halves of a backup. Raises UsageProblem where they are given for a snapshot,
    or where several snapshots or halves lie there; CouldNotRead, Refused.
    """
    try:
        found = find_snapshots(folder, name)
    except NoSnapshot as none:
        return Copy(find_backup(none.path, host, history, qdrant_path), None)
    if len(found) > 1:
        raise UsageProblem(f"{name}: {len(found)} snapshots lie there", f"name one: {found[-1]}")
    if history is not None or qdrant_path is not None:
        raise UsageProblem("--history and --qdrant-path name the halves of a backup, and this is a snapshot")
    path = found[0]
    manifest = show_snapshot(None, path).manifest
    where = Path(path)
    halves = Backup(
        path,
        Origin(str(where / core.HISTORY), "the snapshot"),
        Origin(str(where / core.VECTORS), "the snapshot"),
    )
    return Copy(halves, manifest)


def odd_in(copy: Backup) -> str | None:
    """The first thing in its halves that is no ordinary file, in a line; None where there is none."""
    odd = backups.odd_in_history(Path(copy.history.value)) | backups.odd_in_vectors(Path(copy.vectors.value))
    return next((f"{inside(copy, path)} {what}" for path, what in sorted(odd.items())), None)


def _verify(folder: str) -> str:
    return f"mem0audit snapshot verify {shell_word(folder)}"


def audit_snapshot(
    copy: Copy,
    host: Host,
    *,
    collection: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    progress: Progress | None = None,
) -> Report:
    """The rules that judge the stores themselves, on a copy, as of when it was taken. Changes nothing.

    No process, place or other store is looked at. Raises CouldNotRead where the copy holds what is no ordinary file.
    """
    say = progress or no_progress
    started = time.monotonic()
    halves, manifest = copy.halves, copy.manifest
    if manifest is not None:
        odd = odd_in(halves)
        if odd is not None:
            raise CouldNotRead(f"{halves.folder}: {odd}", _verify(halves.folder))
        taken_at, dated_by, pair = manifest.taken_at, "its manifest", manifest.pair
        install = install_of(manifest, Path(halves.folder))
        if collection is not None:
            install = replace(install, collection=Origin(collection, "--collection"))
        reading = look_at_copy(install, agent_of(manifest), taken_at, say, find=find_secrets)
    else:
        read = read_backup(halves, host, say, collection)
        if read.reading is None:
            raise CouldNotRead(f"{halves.folder}: {read.why}", _verify(halves.folder))
        reading, pair = read.reading, False
        taken_at, dated_by = reading.now, "the newest of what is in it and of its files' times"
    told = CopyOf(halves.folder, taken_at, dated_by, pair)
    report = audit_copy(reading, told, select=select, ignore=ignore)
    return replace(report, seconds=time.monotonic() - started)
