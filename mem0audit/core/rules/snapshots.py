"""Group B: what there is to go back to, if the stores are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mem0audit.core.model import NotChecked, SeenSnapshot, Snapshots
from mem0audit.core.reading import Reading
from mem0audit.core.rules.verdict import RuleFunction, Verdict, finding
from mem0audit.core.times import shown
from mem0audit.core.words import shell_word

NOT_LOOKED = "snapshots were not looked for"


def _about(code: str, reading: Reading, judge: Callable[[Snapshots], Iterator[Verdict]]) -> Iterator[Verdict]:
    """What a rule says of the snapshots, or why it cannot."""
    known = reading.snapshots
    if known is None:
        yield NotChecked(code, NOT_LOOKED, gap=False)
        return
    for folder in known.not_read:
        yield NotChecked(code, f"{folder.what}: {folder.why}", gap=folder.gap)
    yield from judge(known)


def no_snapshot(r: Reading) -> Iterable[Verdict]:
    """B901: no snapshot of the install lies in any folder that is known."""

    def judge(known: Snapshots) -> Iterator[Verdict]:
        if not known.snapshots and not known.not_read:
            where = ", ".join(known.folders) or "no folder for them is known"
            yield finding("B901", {"looked in": where}, path=known.folders[0] if known.folders else None)

    return _about("B901", r, judge)


def old_snapshot(r: Reading) -> Iterable[Verdict]:
    """B902: the newest good pair is older than it may be."""

    def judge(known: Snapshots) -> Iterator[Verdict]:
        newest = known.newest_good
        if newest is None or newest.taken_at is None or known.seen_at - newest.taken_at <= known.max_age_s:
            return
        evidence = {
            "taken": shown(newest.taken_at),
            "days old": round((known.seen_at - newest.taken_at) / 86_400, 1),
            "may be": round(known.max_age_s / 86_400, 1),
        }
        yield finding("B902", evidence, path=newest.path)

    return _about("B902", r, judge)


def damaged_snapshot(r: Reading) -> Iterable[Verdict]:
    """B903: a snapshot's manifest does not read, or its files are not those of the manifest."""

    def judge(known: Snapshots) -> Iterator[Verdict]:
        for one in known.snapshots:
            if one.problems:
                evidence: dict[str, str | int] = {"first": one.problems[0], "problems": len(one.problems)}
                yield finding(
                    "B903", evidence, path=one.path, help=f"mem0audit snapshot verify {shell_word(one.path)}"
                )

    return _about("B903", r, judge)


def _not_superseded(known: Snapshots, fault: Callable[[SeenSnapshot], bool]) -> Iterator[SeenSnapshot]:
    """Sound snapshots with the fault that no later pair without it has taken the place of."""
    for one in reversed(known.snapshots):
        if one.problems:
            continue
        if one.pair and not fault(one):
            return
        if fault(one):
            yield one


def unsettled_snapshot(r: Reading) -> Iterable[Verdict]:
    """B904: taken while the install never held still, and no settled one is newer."""

    def judge(known: Snapshots) -> Iterator[Verdict]:
        for one in _not_superseded(known, lambda seen: seen.pair and not seen.settled):
            yield finding("B904", {"why": one.unsettled_why}, path=one.path)

    return _about("B904", r, judge)


def snapshot_with_erased(r: Reading) -> Iterable[Verdict]:
    """B905: memories of somebody who was erased are still in it."""

    def judge(known: Snapshots) -> Iterator[Verdict]:
        for one in known.snapshots:
            if one.erased:
                yield finding("B905", {"memories of somebody erased": one.erased}, path=one.path)

    return _about("B905", r, judge)


COURSES = {
    "clean": "nothing was exchanged yet: what was staged goes",
    "finish": "the next restore finishes it",
    "back": "the next restore takes it back",
    "stuck": "it cannot be told how far it came",
}


MOVE_COURSES = {
    "clean": "nothing was moved yet: the same move begins again",
    "finish": "the same move finishes it",
    "back": "the same move takes it back, since the old stores were written to, and begins again",
    "stuck": "it cannot be told how far it came",
}


def interrupted_operation(r: Reading) -> Iterable[Verdict]:
    """B906: a restore or a move was cut off."""
    for move in r.left_moves:
        seen: dict[str, str | None] = {"move to": move.to, "begun": move.cut.started_at}
        going_on = "the old store is as it was; what was carried lies there, and the same move goes on"
        seen["then"] = going_on if move.to_server else move.cut.problem or MOVE_COURSES[move.cut.course]
        evidence = {k: v for k, v in seen.items() if v is not None}
        yield finding("B906", evidence, path=move.cut.folder, help=move.command)
    cut = r.interrupted
    if cut is not None:
        restore: dict[str, str | None] = {"snapshot": cut.snapshot, "begun": cut.started_at}
        restore["then"] = cut.problem or COURSES.get(cut.course, cut.course)
        yield finding("B906", {k: v for k, v in restore.items() if v is not None}, path=cut.folder)


def unpaired_backup(r: Reading) -> Iterable[Verdict]:
    """B907: an adopted backup that was not taken as a pair, and no pair is newer."""

    def judge(known: Snapshots) -> Iterator[Verdict]:
        for one in _not_superseded(known, lambda seen: not seen.pair):
            taken = None if one.taken_at is None else shown(one.taken_at)
            yield finding("B907", {"of": taken}, path=one.path)

    return _about("B907", r, judge)


RULES: dict[str, RuleFunction] = {
    "B901": no_snapshot,
    "B902": old_snapshot,
    "B903": damaged_snapshot,
    "B904": unsettled_snapshot,
    "B905": snapshot_with_erased,
    "B906": interrupted_operation,
    "B907": unpaired_backup,
}
