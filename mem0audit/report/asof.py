"""What `as-of` says: what was remembered at a time, and the life of one memory."""

from __future__ import annotations

from typing import Any, Final

from mem0audit.core.asof import AsOf, AsOfDiff, Remembered, by_owner
from mem0audit.core.points import OWNER_KEYS, Owner, clipped, shown_owner
from mem0audit.core.scopes import Scope
from mem0audit.core.times import shown
from mem0audit.report.diff import scope_lines, scopes_json
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, not_checked, plain
from mem0audit.report.screen import Screen
from mem0audit.report.steps import quoted, span, when
from mem0audit.report.words import memories, number, plural

SHOWN: Final = 10
"""So many memories of an owner are shown without `--verbose`."""
_DOUBTS: Final = {
    "added": "may not have been added yet",
    "deleted": "may have been deleted by then",
    "text": "was there, with this text or a later one",
    "no-add": "was there at some time before the log's first word of it",
}


def as_of_text(found: AsOf, scope: Scope | None, screen: Screen) -> str:
    """The answer in numbers, each owner's memories, then what is doubtful and what the log cannot tell."""
    whose = "" if scope is None else f" of {escape(scope.shown)}"
    lines = [screen.bold(f"{shown(found.at)}: {memories(len(found.memories))}{whose}, by the log")]
    known = f"{plural(found.rows, 'row')}" + (
        f", {shown(found.begins)} to {shown(found.ends)}"
        if found.begins is not None and found.ends is not None
        else ""
    )
    lines += screen.wrap(f"the log: {known}", indent=2)
    if found.untimed:
        lines += screen.wrap(
            f"{plural(found.untimed, 'row')} without a time that can be believed: known only to lie between others",
            indent=2,
            hanging=4,
        )
    cut = False
    for owner, group in by_owner(found.memories):
        lines += ["", f"{screen.bold(_owner(owner))}  {memories(len(group))}"]
        listed = group if screen.verbose else group[:SHOWN]
        for one in listed:
            lines += _memory(one, owner, screen)
        if len(listed) < len(group):
            cut = True
            lines.append(f"  … {number(len(group) - len(listed))} more")
    if found.maybe:
        lines += ["", screen.bold(f"Not known for sure: {memories(len(found.maybe))}")]
        some = list(found.maybe) if screen.verbose else found.maybe[:SHOWN]
        shown_ones = {one.memory_id for _, group in by_owner(found.maybe) for one in group[:SHOWN]}
        for one in some:
            lines += _doubtful(one, screen, read=screen.verbose or one.memory_id in shown_ones)
        if len(some) < len(found.maybe):
            cut = True
            lines.append(f"  … {number(len(found.maybe) - len(some))} more")
    if cut:
        lines += ["", "All of them: --verbose; one person's: --user ID"]
    lines += _cannot_tell(found, screen)
    return "\n".join(lines) + "\n"


def _cannot_tell(found: AsOf, screen: Screen) -> list[str]:
    lines = list(found.notes)
    if found.unowned:
        lines.append(
            f"{number(found.unowned)} more {'was' if found.unowned == 1 else 'were'} there or may have been, and "
            "nobody knows whose: gone from the store, and not known to the ledger or a snapshot."
        )
    said = [""] if lines or found.not_read else []
    for line in lines:
        said += screen.wrap(screen.ours(line), hanging=2)
    for gap in found.not_read:
        said += screen.wrap(f"not read: {gap.what}: {gap.why}", hanging=2)
    return said


def _owner(owner: Owner | None) -> str:
    return "owner not known" if owner is None else escape(shown_owner(owner))


def _memory(one: Remembered, owner: Owner | None, screen: Screen) -> list[str]:
    facts = [escape(clipped(one.memory_id, 200))]
    if one.since is not None:
        facts.append(f"since {when(one.since)}")
    if one.added is not None and one.since is not None and one.added != one.since:
        facts.append(f"added {when(one.added)}")
    if owner is not None and one.owner_by not in (None, "the store"):
        facts.append(f"owner from {escape(one.owner_by)}")
    first, *rest = screen.columns(facts, 2)
    return [first, *(f"  {line}" for line in rest), *quoted(one.text, gone=one.text_gone)]


def _doubtful(one: Remembered, screen: Screen, *, read: bool) -> list[str]:
    assert one.doubt is not None
    said = _DOUBTS[one.doubt]
    if one.doubt_when is not None and one.doubt != "no-add":
        said += f" ({when(one.doubt_when)})"
    lines = screen.wrap(f"{_owner(one.owner)}: {said}", indent=4)
    lines.insert(0, f"  {escape(clipped(one.memory_id, 200))}")
    if read:
        lines += quoted(one.text, gone=one.text_gone)
        if one.doubt == "text":
            lines += quoted(one.other, gone=one.other is None)
    return lines


# --- What is different ---------------------------------------------------------------------------------


def diff_text(found: AsOfDiff, scope: Scope | None, screen: Screen) -> str:
    """The two times, the totals, then owner by owner what came, changed and went."""
    whose = "" if scope is None else f" of {escape(scope.shown)}"
    lines = [
        screen.bold(f"{shown(found.a.at)} to {shown(found.b.at)}{whose}, by the log"),
        *screen.wrap(
            f"{memories(len(found.a.memories))} then, {memories(len(found.b.memories))} later: "
            + ", ".join(
                f"{number(count)} {word}"
                for word, count in found.totals.items()
                if count or word == "unchanged"
            ),
            indent=2,
        ),
    ]
    said, cut = scope_lines(found.scopes, screen, several=False, texts=True)
    lines += said
    if cut:
        lines += ["", "All of them: --verbose, or --format json"]
    if found.doubtful:
        lines += ["", *screen.wrap(f"{memories(found.doubtful)} left out: at one of the two it is not sure.")]
    lines += _cannot_tell(found.b, screen)
    return "\n".join(lines) + "\n"


def diff_json(found: AsOfDiff, scope: Scope | None) -> str:
    """Every id; texts only where they were asked for."""
    return dump(
        "as-of-diff",
        {
            "scope": None if scope is None else dict(scope.named),
            "from": _side(found.a),
            "to": _side(found.b),
            "counts": found.totals,
            "doubtful": found.doubtful,
            "scopes": scopes_json(found.scopes, texts=found.texts),
        },
    )


# --- For machines --------------------------------------------------------------------------------------


def as_of_json(found: AsOf, scope: Scope | None, *, text: bool) -> str:
    """Every memory, its texts only where they were asked for."""
    return dump(
        "as-of",
        {
            "scope": None if scope is None else dict(scope.named),
            **_side(found),
            "remembered": [_json(one, text) for one in found.memories],
            "doubtful": [
                {**_json(one, text), "doubt": one.doubt, "doubt_when": span(one.doubt_when)}
                | ({"other_text": one.other} if text else {})
                for one in found.maybe
            ],
        },
    )


def _side(found: AsOf) -> dict[str, Any]:
    return {
        "at": shown(found.at),
        "memories": len(found.memories),
        "history": found.install.history.value,
        "rows": found.rows,
        "rows_without_time": found.untimed,
        "log_begins": None if found.begins is None else shown(found.begins),
        "log_ends": None if found.ends is None else shown(found.ends),
        "owner_not_known": found.unowned,
        "notes": list(found.notes),
        "not_read": [not_checked(one) for one in found.not_read],
    }


def _json(one: Remembered, text: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "memory_id": one.memory_id,
        "owner": None
        if one.owner is None
        else {key: plain(value) for key, value in zip(OWNER_KEYS, one.owner, strict=True)},
        "owner_by": one.owner_by,
        "rowid": one.rowid,
        "since": span(one.since),
        "added": span(one.added),
    }
    return {**told, "text": one.text} if text else told
