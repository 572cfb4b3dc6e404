"""Remove the snapshots that a policy has no place for; the policy itself is core/retention.py."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from mem0audit.core.erasures import Erasure, for_copy
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, UsageProblem
from mem0audit.core.retention import Decision, Policy, Standing, State, decide
from mem0audit.core.snapshot import Listed
from mem0audit.core.times import instant
from mem0audit.operations.erasures import erased_in, erasures_beside
from mem0audit.operations.look import Progress, no_progress
from mem0audit.operations.marks import forget, read_marks, with_marks
from mem0audit.operations.verify import list_snapshots, verify
from mem0audit.stores import files


@dataclass(frozen=True)
class ExpirePlan:
    """What `snapshot expire` would do. `sizes` are bytes by name, None where the manifest does not read; `now` is
    the moment it was decided for, in seconds since 1970."""

    folder: str
    policy: Policy
    decisions: tuple[Decision, ...]
    sizes: dict[str, int | None]
    now: float

    @property
    def kept(self) -> tuple[Decision, ...]:
        """Those that stay."""
        return tuple(one for one in self.decisions if one.keep)

    @property
    def removed(self) -> tuple[Decision, ...]:
        """Those that go."""
        return tuple(one for one in self.decisions if not one.keep)

    @property
    def series(self) -> tuple[str, ...]:
        """The installs whose snapshots lie there: host and paths."""
        return tuple(dict.fromkeys(one.snapshot.series for one in self.decisions if one.snapshot.series))

    @property
    def damaged(self) -> tuple[Decision, ...]:
        """Those whose manifest does not read: they stay, whatever the policy."""
        return tuple(one for one in self.decisions if one.snapshot.state == "damaged")


@dataclass(frozen=True)
class Expired:
    """What `snapshot expire` did: the names that went, and the leftovers of runs that were cut off."""

    plan: ExpirePlan
    removed: tuple[str, ...]
    cleared: tuple[str, ...]
    spared: tuple[str, ...]
    """Planned to go, and no longer when the folder was locked: something changed meanwhile."""


def plan_expire(folder: str, policy: Policy, now: float) -> ExpirePlan:
    """Which snapshots of a folder stay and why. Changes nothing; `now` is in seconds since 1970.

    A snapshot that was verified must still have its files, with their sizes, to count as good. Raises UsageProblem
    for a policy that keeps nothing, CouldNotRead where the folder or its marks cannot be read: without them it is
    not known what is to be kept.
    """
    if policy.empty:
        raise UsageProblem(
            "a policy that keeps nothing is none",
            "say what to keep: --keep-last, --keep-daily, --keep-weekly, --keep-monthly or --keep-within",
        )
    listed = list_snapshots(folder)
    read_marks(Path(folder))
    listed, _ = with_marks(folder, listed)
    erasures = erasures_beside(Path(folder))
    decisions = decide(policy, [_standing(one, erasures) for one in listed], now)
    sizes = {one.name: None if one.manifest is None else one.manifest.size_bytes for one in listed}
    return ExpirePlan(folder, policy, decisions, sizes, now)


def _standing(one: Listed, erasures: Sequence[Erasure]) -> Standing:
    kept = None if one.kept is None else one.kept.reason
    manifest, checked = one.manifest, one.checked
    if manifest is None:
        return Standing(one.name, None, "damaged", one.problem or "its manifest does not read", kept)
    if manifest.name != one.name:
        return Standing(one.name, None, "damaged", f"its manifest is that of {manifest.name}", kept)
    taken_at = instant(manifest.created_at)
    state: State
    if checked is None:
        state, why = "not verified", ""
    elif not checked.good:
        state, why = "bad", f"verify, {checked.at}: {checked.problem}"
    else:
        problem = _missing(one.path)
        if problem is not None:
            state, why = "bad", problem
        elif not manifest.settled or not manifest.pair:
            state, why = "not settled", manifest.unsettled_why or "its halves were not taken as a pair"
        else:
            state, why = "good", f"verified {checked.at}"
    series = f"{manifest.hostname}: {manifest.history.value}, {manifest.vectors.value}"
    changes, lost = manifest.counts.get("changes") or 0, manifest.findings.get("D302", 0)
    since = for_copy(erasures, manifest)
    erased = erased_in(Path(one.path), manifest, since) if since and state == "good" else 0
    until = manifest.short_lived_until
    return Standing(one.name, taken_at, state, why, kept, series, changes, lost, erased, until)


def _missing(path: str) -> str | None:
    """What a quick look finds wrong, one line: a snapshot that was verified once may have lost a file since."""
    try:
        problems = verify(path, "quick").problems
    except CouldNotRead as problem:
        return problem.message
    return f"{problems[0].path} {problems[0].detail}" if problems else None


def expire(plan: ExpirePlan, progress: Progress | None = None) -> Expired:
    """Removes what was planned, oldest first, and clears away what runs before it left.

    The plan is made again under the folder's lock, and only what goes by both is removed: a snapshot that was marked
    or found bad meanwhile, or of which the better copy is gone, stays. Raises Refused where another run works
    there, Failed where a removal was cut off: what is half removed is listed no more, and the next run finishes it.
    """
    say = progress or no_progress
    folder = Path(plan.folder)
    removed: list[str] = []
    try:
        with files.snapshot_folder(folder):
            cleared = files.remove_unfinished(folder)
            left = files.half_removed(folder)
            if left:  # else each run would hide one more, and free nothing
                raise Failed(
                    f"{folder / left[0]}: what an earlier run began to remove cannot be removed; nothing else changed, "
                    "and every snapshot that is listed is whole",
                    "look at the owner and the mode of what lies in it",
                )
            again = plan_expire(plan.folder, plan.policy, plan.now)
            wanted = {one.snapshot.name for one in plan.removed}
            going = [one.snapshot.name for one in reversed(again.removed) if one.snapshot.name in wanted]
            for number, name in enumerate(going):
                say("removing snapshots", number, len(going))
                files.remove_snapshot(folder / name)
                removed.append(name)
            if going:
                forget(folder, removed)
    except OSError as error:
        _failed(error, folder, removed)
    return Expired(again, tuple(removed), cleared, tuple(sorted(wanted - set(removed))))


def overdue(folders: Sequence[str], now: float) -> tuple[str, ...]:
    """The short-lived snapshots in these folders whose time is over; a folder that is not there, or cannot be read,
    has none. Reads their manifests alone."""
    found = []
    for folder in dict.fromkeys(map(os.path.realpath, folders)):
        with suppress(Mem0auditError, OSError):
            found += [
                one.path
                for one in list_snapshots(folder)
                if one.manifest is not None
                and one.manifest.name == one.name
                and (until := one.manifest.short_lived_until) is not None
                and until <= now
            ]
    return tuple(found)


def remove_overdue(paths: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Removes these short-lived snapshots; the paths of those that went, and why the others did not. Raises nothing."""
    said = {path: _removed(Path(path)) for path in paths}
    gone = tuple(path for path, problem in said.items() if problem is None)
    return gone, tuple(problem for problem in said.values() if problem is not None)


def _removed(path: Path) -> str | None:
    """Removes a snapshot; why that failed, None where it did not."""
    try:
        with files.snapshot_folder(path.parent):
            files.remove_snapshot(path)
            forget(path.parent, [path.name])
    except Mem0auditError as problem:
        return problem.message
    except OSError as error:
        return f"{path}: {(error.strerror or 'failed').lower()}"
    return None


def _went(removed: list[str]) -> str:
    return f"{len(removed)} removed before" if removed else "none was removed before"


def _failed(error: OSError, folder: Path, removed: list[str]) -> NoReturn:
    raise Failed(
        f"{folder}: {(error.strerror or 'failed').lower()}; {_went(removed)}, and every snapshot that is listed "
        "is whole",
        "the same command finishes it",
    ) from None
