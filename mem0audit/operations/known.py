"""Which snapshots of an install are known, as an audit sees them in passing: manifests, names and sizes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mem0audit.core.erasures import Erasure, for_copy
from mem0audit.core.errors import CouldNotRead
from mem0audit.core.marks import Mark
from mem0audit.core.model import Install, NotChecked, SeenSnapshot, Snapshots
from mem0audit.core.retention import length
from mem0audit.core.snapshot import Manifest
from mem0audit.core.times import instant
from mem0audit.install.config import Settings
from mem0audit.install.host import Host
from mem0audit.operations.erasures import erased_in, erasures_on_record
from mem0audit.operations.ledger import snapshot_folders
from mem0audit.operations.marks import manifest_sha, read_marks
from mem0audit.operations.moved import places_before
from mem0audit.operations.verify import verify
from mem0audit.stores import files, snapshots

MAX_AGE: Final = "7d"
"""How old the newest snapshot may be where the settings do not say."""


def known_snapshots(install: Install, host: Host, settings: Settings, *, ledger: bool = True) -> Snapshots:
    """The snapshots of this install in the folder of the settings and in those that the ledger knows, oldest first.

    Those of other installs are left out; one whose manifest does not read may be anybody's, and is listed. Raises
    nothing for what cannot be read: it says so. A folder that is not there holds none.
    """
    folders = [*filter(None, [settings.snapshot_dir]), *snapshot_folders(install, host, ledger=ledger)]
    looked = tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))
    before = places_before(install, host) if ledger else {}
    found: list[SeenSnapshot] = []
    not_read: list[NotChecked] = []
    unfinished: list[str] = []
    for folder in looked:
        try:
            names = snapshots.names(Path(folder))
            unfinished += [str(Path(folder, name)) for name in files.unfinished(Path(folder))]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            not_read.append(NotChecked(folder, (error.strerror or "cannot be read").lower()))
            continue
        try:
            marks = read_marks(Path(folder))
        except CouldNotRead as problem:
            not_read.append(NotChecked(folder, problem.message.removeprefix(f"{folder}/")))
            marks = {}
        erasures = erasures_on_record(install, folder, host, ledger=ledger).erasures
        for name in names:
            one = _seen(Path(folder, name), install, before, erasures)
            if one is not None:
                found.append(_with_verdict(one, marks.get(name, Mark())))
    found.sort(key=lambda one: (one.taken_at or 0.0, one.name))
    max_age_s = length(settings.snapshot_max_age or MAX_AGE)
    return Snapshots(looked, tuple(found), tuple(not_read), max_age_s, host.now, tuple(unfinished))


def _seen(
    path: Path, install: Install, before: Mapping[str, float], erasures: Sequence[Erasure]
) -> SeenSnapshot | None:
    try:
        verdict = verify(str(path), "quick")
    except CouldNotRead as problem:
        return SeenSnapshot(path.name, str(path), None, problems=(problem.message.removeprefix(f"{path}: "),))
    manifest = verdict.manifest
    problems = tuple(f"{p.path} {p.detail}" for p in verdict.problems)
    if manifest is None:
        return SeenSnapshot(path.name, str(path), None, problems=problems)
    if not _is_of(manifest, install, before):
        return None
    later = for_copy(erasures, manifest)
    return SeenSnapshot(
        path.name,
        str(path),
        manifest.taken_at,
        manifest.settled,
        manifest.unsettled_why,
        manifest.pair,
        problems,
        erased=erased_in(path, manifest, later) if later and not problems else 0,
        changes=manifest.counts.get("changes"),
        lost=manifest.findings.get("D302", 0),
        until=manifest.short_lived_until,
    )


def _with_verdict(one: SeenSnapshot, mark: Mark) -> SeenSnapshot:
    """With what `snapshot verify` said of it last, if its manifest is the one that was verified."""
    checked = mark.checked
    if checked is None or checked.manifest_sha256 != manifest_sha(Path(one.path)):
        return one
    if checked.good:
        return replace(one, verified_at=instant(checked.at))
    return replace(one, problems=one.problems or (f"verify found on {checked.at}: {checked.problem}",))


def _is_of(manifest: Manifest, install: Install, before: Mapping[str, float]) -> bool:
    """Taken from one of this install's two stores, by their paths: where they lie, or lay `before` a move."""
    ours = {os.path.realpath(install.history.value)}
    if install.vectors is not None:
        ours.add(os.path.realpath(install.vectors.value))
    theirs = (manifest.history.value, manifest.vectors.value)
    if not ours.isdisjoint(map(os.path.realpath, theirs)):
        return True
    return any(manifest.taken_at <= before.get(path, float("-inf")) for path in theirs)
