"""Which snapshots of an install are known, as an audit sees them in passing: manifests, names and sizes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import Install, NotChecked, SeenSnapshot, Snapshots
from mem0audit.core.snapshot import Manifest
from mem0audit.operations.verify import verify
from mem0audit.stores import snapshots

MAX_AGE_S: Final = 7 * 86_400.0
"""How old the newest snapshot may be where the settings do not say."""


def known_snapshots(
    install: Install, folders: Iterable[str], now: float, max_age_s: float = MAX_AGE_S
) -> Snapshots:
    """The snapshots of this install in these folders, the oldest first; those of other installs are left out.

    One whose manifest does not read may be anybody's, and is listed. Raises nothing for what cannot be read: it
    says so. `now` is in seconds since 1970. A folder that is not there holds none.
    """
    looked = tuple(dict.fromkeys(folders))
    found: list[SeenSnapshot] = []
    not_read: list[NotChecked] = []
    for folder in looked:
        try:
            names = snapshots.names(Path(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            not_read.append(NotChecked(folder, (error.strerror or "cannot be read").lower()))
            continue
        for name in names:
            path = str(Path(folder, name))
            try:
                verdict = verify(path, "quick")
            except CouldNotRead as problem:
                found.append(
                    SeenSnapshot(name, path, None, problems=(str(problem).removeprefix(f"{path}: "),))
                )
                continue
            manifest = verdict.manifest
            if manifest is not None and not _is_of(manifest, install):
                continue
            problems = tuple(f"{p.path} {p.detail}" for p in verdict.problems)
            found.append(_seen(name, path, manifest, problems))
    found.sort(key=lambda one: (one.taken_at or 0.0, one.name))
    return Snapshots(looked, tuple(found), tuple(not_read), max_age_s, now)


def _seen(name: str, path: str, manifest: Manifest | None, problems: tuple[str, ...]) -> SeenSnapshot:
    if manifest is None:
        return SeenSnapshot(name, path, None, problems=problems)
    return SeenSnapshot(
        name, path, manifest.taken_at, manifest.settled, manifest.unsettled_why, manifest.pair, problems
    )


def _is_of(manifest: Manifest, install: Install) -> bool:
    """Taken from one of this install's two stores, by their paths: after a move one of them is still there."""
    ours = {os.path.realpath(install.history.value)}
    if install.vectors is not None:
        ours.add(os.path.realpath(install.vectors.value))
    return not ours.isdisjoint(map(os.path.realpath, (manifest.history.value, manifest.vectors.value)))
