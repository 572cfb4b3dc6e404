"""What is known of snapshots beside themselves: verdicts are recorded, and some are marked to be kept.

Both lie in one file in the snapshots' folder, written whole under the folder's lock. No snapshot changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mem0audit.core import snapshot as core
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused, UsageProblem
from mem0audit.core.marks import (
    LONGEST_REASON,
    MARKS,
    Checked,
    Kept,
    Mark,
    NotMarks,
    marks_text,
    parse_marks,
)
from mem0audit.core.model import Install
from mem0audit.core.snapshot import Listed, Verdict
from mem0audit.core.times import shown
from mem0audit.install.host import Host
from mem0audit.operations.look import Progress
from mem0audit.operations.verify import Depth, find_snapshots, verify
from mem0audit.stores import files, snapshots

WAIT_S: Final = 2.0
"""How long another run may hold the folder before a verdict is not recorded."""

QUICK: Final = "a quick look does not count"


@dataclass(frozen=True)
class Recorded:
    """A verdict, and why it was not recorded: None where it was."""

    verdict: Verdict
    not_recorded: str | None


def read_marks(folder: Path) -> dict[str, Mark]:
    """The marks of a snapshots' folder by name; none where there is no such file. Raises CouldNotRead."""
    path = folder / MARKS
    hint = (
        f"if it cannot be repaired, move it away: snapshots are then not verified, and none is kept: {path}"
    )
    try:
        return parse_marks(snapshots.small_file(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        what = "is a link" if path.is_symlink() else (error.strerror or "cannot be read").lower()
        raise CouldNotRead(f"{path}: {what}") from None
    except (NotMarks, ValueError) as error:
        raise CouldNotRead(f"{path}: {error}", hint) from None


def manifest_sha(path: Path) -> str | None:
    """The SHA-256 of a snapshot's manifest as it lies there, None where it cannot be read."""
    try:
        return snapshots.digest(path / core.MANIFEST)[1]
    except OSError:
        return None


def with_marks(folder: str, listed: Sequence[Listed]) -> tuple[tuple[Listed, ...], str | None]:
    """The same snapshots with what is known of each beside it; and why that could not be read."""
    try:
        marks = read_marks(Path(folder))
    except CouldNotRead as problem:
        return tuple(listed), problem.message
    return tuple(_with_mark(one, marks.get(one.name, Mark())) for one in listed), None


def _with_mark(one: Listed, mark: Mark) -> Listed:
    sha = manifest_sha(Path(one.path))
    checked = mark.checked if mark.checked is not None and mark.checked.manifest_sha256 == sha else None
    # A mark to keep is for the name too: whatever lies there now, nothing is to be removed there unasked.
    return replace(one, checked=checked, kept=mark.kept)


def without_verdict(paths: Sequence[str]) -> tuple[str, ...]:
    """Those of these snapshots that have no verdict yet; where the marks cannot be read, all."""
    found = []
    for path in paths:
        listed = Listed(Path(path).name, path, None)
        ((one,), _) = with_marks(str(Path(path).parent), (listed,))
        if one.checked is None:
            found.append(path)
    return tuple(found)


def verify_and_record(
    path: str,
    depth: Depth = "default",
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
    server: tuple[Install, Host] | None = None,
) -> Recorded:
    """Verifies a snapshot, and notes the verdict beside it in its folder; `server` as `verify` takes it.

    Whatever keeps it from being noted (a folder that cannot be written, a file of marks that does not read) is
    said and is no failure. Raises what `verify` raises.
    """
    folder = Path(path).parent
    before = manifest_sha(Path(path))
    verdict = verify(path, depth, progress, server)
    if not verdict.problems and (depth == "quick" or verdict.not_checked):
        return Recorded(verdict, QUICK if depth == "quick" else "it could not be checked whole")
    if not core.NAME.fullmatch(verdict.name):
        return Recorded(verdict, "its folder does not have a snapshot's name")
    if manifest_sha(Path(path)) != before:
        return Recorded(verdict, "it changed meanwhile")
    first = verdict.problems[0] if verdict.problems else None
    problem = None if first is None else f"{first.path} {first.detail}"
    checked = Checked(shown(now()), depth, first is None, problem, before)

    def note(marks: dict[str, Mark]) -> None:
        marks[verdict.name] = replace(marks.get(verdict.name, Mark()), checked=checked)

    try:
        _change(folder, note)
    except Mem0auditError as problem_:
        return Recorded(verdict, problem_.message)
    except OSError as error:
        return Recorded(verdict, f"{folder}: {(error.strerror or 'failed').lower()}")
    return Recorded(verdict, None)


def _change(folder: Path, change: Callable[[dict[str, Mark]], None]) -> None:
    """Changes the marks under the folder's lock. Raises Refused, CouldNotRead, OSError."""
    with files.snapshot_folder(folder, WAIT_S):
        change_locked(folder, change)


def change_locked(folder: Path, change: Callable[[dict[str, Mark]], None]) -> None:
    """The same where the lock is held already; what no longer lies there is forgotten."""
    marks = read_marks(folder)
    before = dict(marks)
    change(marks)
    there = {name for name in marks if os.path.lexists(folder / name)}
    marks = {name: mark for name, mark in marks.items() if name in there}
    if marks != before:
        files.write_file(folder / MARKS, marks_text(marks).encode("ascii"), ours=True)


# --- Keep ----------------------------------------------------------------------------------------


def keep(folder: str | None, name: str, reason: str | None, now: float) -> tuple[str, Kept | None]:
    """Marks a snapshot, by name in the folder or by its path, to be left alone by `expire`; with no reason the
    mark is taken off. Gives its path and its mark then.

    Raises UsageProblem for a reason that is none, CouldNotRead where there is no such snapshot or its manifest or
    the marks cannot be read, Refused where another run works there, Failed where nothing could be written.
    """
    if reason is not None:
        reason = reason.strip()
        if not reason or not reason.isprintable() or len(reason) > LONGEST_REASON:
            raise UsageProblem(f"--reason: one line of at most {LONGEST_REASON} characters")
    found = find_snapshots(folder, name)
    path = Path(found[0])
    if len(found) != 1 or path.name != Path(name).name or not core.NAME.fullmatch(path.name):
        raise CouldNotRead(f"{name}: is no snapshot by its name", "all of them: mem0audit snapshot list")
    kept = None
    if reason is not None:
        sha = manifest_sha(path)
        if sha is None:
            raise CouldNotRead(
                f"{path}: {core.MANIFEST} cannot be read, and such a snapshot is never removed by expire"
            )
        _lasting(path)
        kept = Kept(shown(now), reason, sha)

    def mark(marks: dict[str, Mark]) -> None:
        marks[path.name] = replace(marks.get(path.name, Mark()), kept=kept)

    try:
        _change(path.parent, mark)
    except Refused:
        raise
    except OSError as error:
        what = (error.strerror or "failed").lower()
        raise Failed(f"{path.parent / MARKS}: {what}; the marks are as they were") from None
    return str(path), kept


def _lasting(path: Path) -> None:
    """Raises Refused for a snapshot that was made to be short-lived."""
    try:
        manifest = verify(str(path), "quick").manifest
    except CouldNotRead:
        return
    if manifest is not None and manifest.until is not None:
        raise Refused(
            f"{path}: was taken before a deletion to go at {manifest.until}: it is not kept longer",
            "mem0audit snapshot create takes one that lasts",
        )


def forget(folder: Path, names: Sequence[str]) -> None:
    """Drops what is known of snapshots that are gone, in a locked folder. What cannot be written stays: a later
    run drops it."""

    def drop(marks: dict[str, Mark]) -> None:
        for name in names:
            marks.pop(name, None)

    with suppress(OSError, CouldNotRead):
        change_locked(folder, drop)
