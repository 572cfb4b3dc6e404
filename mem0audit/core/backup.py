"""A backup that somebody else made: a log and a Qdrant folder, copied by `cp`, rsync or tar, each at its own time.

Nothing says when it was made or whether its halves belong together; what is in them does, as far as it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mem0audit.core.model import NotChecked, Origin
from mem0audit.core.points import PointRecord
from mem0audit.core.reconcile import Comparison
from mem0audit.core.snapshot import SnapshotProblem
from mem0audit.core.timeline import Timeline
from mem0audit.core.times import instant

SAME_S = 0.001
"""Halves closer than this are of one time; mem0 writes one clock reading, to the microsecond, into both."""


@dataclass(frozen=True)
class Backup:
    """A backup and where its halves lie: absolute paths, each with what decided it."""

    folder: str
    history: Origin
    vectors: Origin


@dataclass(frozen=True)
class BackupFile:
    """One database of a backup. `path` is relative to it (absolute where it lies elsewhere).

    `beside` are the ends of the files that lie beside it ("-journal", "-wal", "-shm"). `problem` says what is
    wrong with it, None where nothing is; `unread` why it could not be looked at; `note` what to know of it;
    `damaged` whether SQLite cannot read it whole.
    """

    path: str
    role: Literal["history", "vectors"]
    size_bytes: int
    journal_mode: Literal["rollback", "wal"] | None = None
    beside: tuple[str, ...] = ()
    problem: str | None = None
    unread: str | None = None
    note: str | None = None
    damaged: bool = False


@dataclass(frozen=True)
class Halves:
    """How far a log and the vectors are apart, and what putting both back would do.

    Instants are seconds since 1970, None where no time is known. `newer` is the half that is, None where neither
    is or it cannot be told; `apart_s` by how many seconds. `returning` counts deleted memories that the vectors
    still hold, `losing` memories that the log knows and the vectors lack, `differing` those whose stored text
    is not the last logged one, `unlogged` those that the log does not know. `partial` is True where a half did not
    read whole: then it is what could be read.
    """

    newest_row_at: float | None
    newest_point_at: float | None
    newer: Literal["history", "vectors"] | None
    apart_s: float | None
    returning: int
    losing: int
    differing: int
    unlogged: int
    partial: bool = False

    @property
    def agree(self) -> bool:
        """Both hold the same memories: as far as can be told, they are of one time."""
        return not (self.returning or self.losing or self.differing or self.unlogged)


@dataclass(frozen=True)
class BackupVerdict:
    """What `snapshot verify` says of a backup. `halves` is None where one of them could not be read at all.

    `taken_at` (seconds since 1970) is the newest instant in it, `dated_by` which that is.
    """

    backup: Backup
    files: tuple[BackupFile, ...]
    problems: tuple[SnapshotProblem, ...]
    not_checked: tuple[NotChecked, ...]
    halves: Halves | None
    taken_at: float | None = None
    dated_by: str | None = None
    counts: Mapping[str, int | None] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Every file is whole, everything was read, and the halves agree."""
        return not self.problems and not self.not_checked and self.halves is not None and self.halves.agree


@dataclass(frozen=True)
class ImportPlan:
    """What `snapshot import` would do. `taken_at` (seconds since 1970) is the newest instant in the backup, `dated_by`
    says which that is; `files` are (file of the backup, its path in the snapshot). Sizes are bytes."""

    backup: Backup
    folder: str
    name: str
    taken_at: float
    dated_by: str
    files: tuple[tuple[str, str], ...]
    size_bytes: int
    needed_bytes: int
    free_bytes: int | None
    halves: Halves
    collection: str | None = None
    problems: tuple[SnapshotProblem, ...] = ()
    """What is wrong with it and keeps nobody from importing it (a -wal that was not copied)."""


def halves(
    timeline: Timeline,
    points: Iterable[PointRecord],
    both: Comparison,
    *,
    now: float,
    partial: bool = False,
) -> Halves:
    """Which half is newer, and by how much, from what is in them alone.

    The vectors are as old as their newest point; or as the newest row before the first that they do not show, which
    is later where the last things that happened were deletions. Times after `now` (seconds since 1970) are some
    caller's and prove nothing.
    """
    row_at = latest(timeline.times, now)
    point_at = newest_point(points, now)
    told = Halves(
        newest_row_at=row_at,
        newest_point_at=point_at,
        newer=None,
        apart_s=None,
        returning=len(both.resurrected),
        losing=len(both.lost) + len(both.elsewhere),
        differing=len(both.differing),
        unlogged=len(both.unlogged),
        partial=partial,
    )
    newer, apart_s = (None, None) if told.agree else _apart(timeline, both, row_at, point_at, now)
    return Halves(**{**vars(told), "newer": newer, "apart_s": apart_s})


def _apart(
    timeline: Timeline, both: Comparison, row_at: float | None, point_at: float | None, now: float
) -> tuple[Literal["history", "vectors"] | None, float | None]:
    if row_at is None:
        return None, None
    unlogged_at = max(
        (
            at
            for i in (*both.unlogged, *both.differing)
            if (at := newest_point([both.points[i]], now)) is not None
        ),
        default=None,
    )
    if unlogged_at is not None and unlogged_at > row_at + SAME_S:
        return "vectors", unlogged_at - row_at
    missing = (*both.lost, *both.elsewhere, *both.resurrected, *both.differing)
    first = min((timeline.memories[i].top for i in missing), default=None)
    if first is None:
        return None, None
    shown = latest(
        (at for rowid, at in zip(timeline.rowids, timeline.times, strict=True) if rowid < first), now
    )
    seen = max((at for at in (shown, point_at) if at is not None), default=None)
    if seen is not None and row_at > seen + SAME_S:
        return "history", row_at - seen
    return None, None


def latest(instants: Iterable[float], now: float) -> float | None:
    """The newest of some instants that is not after `now`; None without any."""
    return max((at for at in instants if at <= now), default=None)  # NaN is no such number


def newest_point(points: Iterable[PointRecord], now: float) -> float | None:
    """The newest instant that any of the points names, none after `now`; None without any."""
    texts = {text for p in points for text in (p.created_at, p.updated_at) if type(text) is str}
    return latest((at for text in texts if (at := instant(text)) is not None), now)


# --- In words -------------------------------------------------------------------------------------


def apart_words(found: Halves) -> str:
    """How far apart, as a clause: "the log is 5 h 12 min newer than the vectors"; "the halves agree"."""
    if found.agree:
        return "the halves agree" + (", of what could be read" if found.partial else "")
    if found.newer is None or found.apart_s is None:
        return "the halves disagree, and their times do not tell which is newer"
    return f"{_NAMES[found.newer]} {duration(found.apart_s)} newer than {_OTHERS[found.newer]}"


_NAMES = {"history": "the log is", "vectors": "the vectors are"}
_OTHERS = {"history": "the vectors", "vectors": "the log"}


def duration(seconds: float) -> str:
    """A length of time with its two largest units: "5 h 12 min", "3 days 4 h", "40 s"."""
    whole = int(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days >= 2:
        parts = [(days, "days"), (hours % 24, "h")]
    elif hours:
        parts = [(hours, "h"), (minutes % 60, "min")]
    elif minutes:
        parts = [(minutes, "min"), (whole % 60, "s")]
    elif whole:
        parts = [(whole, "s")]
    else:
        return "less than 1 s"
    return " ".join(f"{count} {unit}" for index, (count, unit) in enumerate(parts) if count or not index)
