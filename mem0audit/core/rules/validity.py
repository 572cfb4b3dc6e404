"""Group T, what the ledger knows of the memories: replaced, not confirmed, not used. T701 asks no ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps

from mem0audit.core.ledger import DAY_S, REVIEW_S, UNUSED_S, Kept
from mem0audit.core.model import NotChecked
from mem0audit.core.points import shown_owner
from mem0audit.core.reading import Memories, Reading
from mem0audit.core.rules.verdict import RuleFunction, Verdict, finding
from mem0audit.core.timeline import DELETE
from mem0audit.core.times import shown

FEWEST_STALE = 10
"""So many outdated memories have to be stored before they are called a backlog (T706),"""
STALE_SHARE = 5
"""and more than this part of all: a fifth."""


def _beside_the_ledger(code: str) -> Callable[[Callable[[Reading, Kept], Iterable[Verdict]]], RuleFunction]:
    """A rule that asks the ledger; where there is none, or the points were not read whole, it says so itself."""

    def rule_of(judge: Callable[[Reading, Kept], Iterable[Verdict]]) -> RuleFunction:
        @wraps(judge)
        def rule(r: Reading) -> Iterable[Verdict]:
            if isinstance(r.kept, NotChecked):
                return [NotChecked(code, r.kept.why, r.kept.gap)]
            if not r.vectors_readable:
                return [NotChecked(code, "the vector store could not be read whole")]
            return judge(r, r.kept)

        return rule

    return rule_of


def _homes(r: Reading, ids: Iterable[str]) -> Mapping[str, Memories]:
    """The collection that each of these memories is stored in; without those that are not."""
    return {i: home for i in ids for home in r.memories if i in home.by_id}


def why_broken(r: Reading, kept: Kept, old: str, stored: Mapping[str, Memories]) -> str | None:
    """What is wrong with the pointer from a superseded memory to what replaced it; None where nothing is.

    Where that is gone too, and was replaced itself, what replaced that counts.
    """
    why = None
    seen: set[str] = set()
    while old in kept.superseded and old not in seen:
        seen.add(old)
        new = kept.superseded[old][0]
        found = _gone(r, kept, old, new, stored)
        if found is None or new is None:
            return found and (why or found)
        why = why or found
        old = new
    return why


def _gone(r: Reading, kept: Kept, old: str, new: str | None, stored: Mapping[str, Memories]) -> str | None:
    if new is None:
        return "what replaced it is not known any more: the pointer was emptied"
    if old in kept.dangling:
        return "what replaced it has no row in the ledger"
    log = r.timeline.memories.get(new) if r.timeline is not None else None
    if log is not None and log.last == DELETE:
        return "what replaced it was deleted in mem0"
    return None if new in stored else "what replaced it is not in the vector store"


@_beside_the_ledger("T702")
def superseded_memory(r: Reading, kept: Kept) -> Iterable[Verdict]:
    """T702: replaced by a newer memory, and still stored beside it."""
    stored = _homes(r, {*kept.superseded, *kept.successors.values()})
    for old, (new, at) in kept.superseded.items():
        if old in stored and why_broken(r, kept, old, stored) is None:
            point = stored[old].by_id[old]
            yield finding(
                "T702",
                {
                    "owner": shown_owner(point.owner),
                    "replaced by": new,
                    "since": shown(at),
                    "point row": point.rowid,
                },
                memory_id=old,
                path=stored[old].info.path,
                subject=stored[old].info.name,
            )


@_beside_the_ledger("T703")
def unconfirmed_memory(r: Reading, kept: Kept) -> Iterable[Verdict]:
    """T703: nobody confirmed them for longer than the review age; one finding for all."""
    if kept.unconfirmed:
        yield finding(
            "T703",
            {
                f"not confirmed for {REVIEW_S // DAY_S} days": kept.unconfirmed,
                "source not known": kept.no_source,
                "oldest": "not known" if kept.oldest is None else shown(kept.oldest),
            },
            path=r.vectors_path,
            subject="the ledger",
            help="mem0audit review",
        )


@_beside_the_ledger("T704")
def unused_memory(r: Reading, kept: Kept) -> Iterable[Verdict]:
    """T704: not retrieved for six months, where use is recorded for so long; one finding for all."""
    if kept.unused is None:
        yield NotChecked("T704", "use is not recorded, or not for six months yet", gap=False)
    elif kept.unused:
        yield finding(
            "T704",
            {f"not used for {UNUSED_S // DAY_S} days": kept.unused, "live": kept.live},
            path=r.vectors_path,
            subject="the ledger",
        )


@_beside_the_ledger("T705")
def broken_supersession(r: Reading, kept: Kept) -> Iterable[Verdict]:
    """T705: what replaced it is gone, and the outdated fact is still there; it is not shown live again by itself."""
    stored = _homes(r, {*kept.superseded, *kept.successors.values()})
    for old, (new, at) in kept.superseded.items():
        why = why_broken(r, kept, old, stored)
        home = stored.get(old)
        if why is None or (home is None and old not in kept.dangling):
            continue
        point = None if home is None else home.by_id[old]
        yield finding(
            "T705",
            {
                "owner": None if point is None else shown_owner(point.owner),
                "replaced by": new,
                "since": shown(at),
                "why": why,
                "point row": None if point is None else point.rowid,
            },
            memory_id=old,
            path=r.vectors_path if home is None else home.info.path,
            subject="the ledger" if home is None else home.info.name,
        )


@_beside_the_ledger("T706")
def wide_gap(r: Reading, kept: Kept) -> Iterable[Verdict]:
    """T706: many more memories are stored than hold: removals are behind."""
    stale = _homes(r, {*kept.superseded, *kept.expired})
    stored = sum(home.count for home in r.memories)
    if len(stale) >= FEWEST_STALE and len(stale) * STALE_SHARE > stored:
        replaced = sum(i in kept.superseded for i in stale)
        yield finding(
            "T706",
            {
                "stored": stored,
                "superseded": replaced,
                "expired": len(stale) - replaced,
                "live": stored - len(stale),
            },
            path=r.vectors_path,
            subject="the ledger",
        )


RULES: dict[str, RuleFunction] = {
    "T702": superseded_memory,
    "T703": unconfirmed_memory,
    "T704": unused_memory,
    "T705": broken_supersession,
    "T706": wide_gap,
}
