"""What `snapshot diff` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mem0audit.core.diff import Change, Diff, ScopeDiff, Side, changes_of
from mem0audit.core.points import OWNER_KEYS, Owner, clipped, shown_owner
from mem0audit.core.times import shown
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, not_checked, plain
from mem0audit.report.screen import Screen, table
from mem0audit.report.words import memories

SHOWN = 10
"""So many memories of a kind and scope are listed without `--verbose`."""


def diff_text(found: Diff, screen: Screen) -> str:
    """Both sides, the totals, then scope by scope the memories: `+` added, `~` changed, `-` removed."""
    lines = table([["from", *_side(found.a)], ["to", *_side(found.b)]])
    lines += screen.wrap(_totals(found))
    several = len({c.collection for c in changes_of(found.scopes)}) > 1
    said, cut = scope_lines(found.scopes, screen, several=several, texts=found.texts)
    lines += said
    if cut:
        lines += ["", "All of them: --verbose, or --format json"]
    if found.not_checked:
        lines += ["", screen.bold("Could not be read")]
        for gap in found.not_checked:
            lines += screen.wrap(f"{gap.what}: {gap.why}", indent=1, hanging=3)
    return "\n".join(lines) + "\n"


def scope_lines(
    scopes: Sequence[ScopeDiff], screen: Screen, *, several: bool, texts: bool
) -> tuple[list[str], bool]:
    """Owner by owner what came, changed and went, and whether some of it is left out for its length. `several`: the
    differences are in more than one collection."""
    lines: list[str] = []
    cut = False
    for scope in scopes:
        counts = [
            (len(scope.added), "added"),
            (len(scope.changed), "changed"),
            (len(scope.removed), "removed"),
        ]
        said = ", ".join(f"{count:,} {what}" for count, what in counts if count)
        lines += ["", f"{screen.bold(escape(shown_owner(scope.owner)))}  {said}"]
        for sign, changes in (("+", scope.added), ("~", scope.changed), ("-", scope.removed)):
            listed = changes if screen.verbose else changes[:SHOWN]
            for change in listed:
                lines += _change(sign, change, several, texts)
            if len(listed) < len(changes):
                cut = True
                lines.append(f"  {sign} … {len(changes) - len(listed):,} more")
    return lines, cut


def _side(side: Side) -> list[str]:
    when = "" if side.taken_at is None else f" {'now' if side.what == 'live' else shown(side.taken_at)}"
    pair = "" if side.pair else ", not a pair"
    return [f"{side.what}{when}{pair}", memories(side.memories), escape(side.path)]


def _totals(found: Diff) -> str:
    totals = found.totals
    differ = totals["added"] + totals["changed"] + totals["removed"]
    if not differ:
        return f"No memory differs; {memories(found.unchanged)} the same."
    return (
        f"{totals['added']:,} added, {totals['changed']:,} changed, {totals['removed']:,} removed, "
        f"{found.unchanged:,} the same."
    )


def _change(sign: str, change: Change, several: bool, texts: bool) -> list[str]:
    """`several`: the differences are in more than one collection, so that each must say in which."""
    parts = [escape(clipped(change.memory_id, 200))]
    if several:
        parts.append(escape(change.collection))
    if change.what:
        parts.append(", ".join(change.what))
    if change.was is not None:
        parts.append(f"was {escape(shown_owner(change.was))}")
    lines = [f"  {sign} {'  '.join(parts)}"]
    if texts:
        if change.before is not None and (sign == "-" or "text" in change.what):
            lines.append(f"      - {escape(change.before)}")
        if change.after is not None and (sign == "+" or "text" in change.what):
            lines.append(f"      + {escape(change.after)}")
    return lines


def diff_json(found: Diff) -> str:
    """Everything, every id; texts only where they were asked for."""
    return dump(
        "diff",
        {
            "from": _side_json(found.a),
            "to": _side_json(found.b),
            "counts": {**found.totals},
            "scopes": scopes_json(found.scopes, texts=found.texts),
            "not_checked": [not_checked(n) for n in found.not_checked],
            "seconds": round(found.seconds, 3),
        },
    )


def scopes_json(scopes: Sequence[ScopeDiff], *, texts: bool) -> list[dict[str, Any]]:
    """Every difference, owner by owner."""
    return [
        {
            **_owner(scope.owner),
            "added": [_change_json(c, texts) for c in scope.added],
            "changed": [_change_json(c, texts) for c in scope.changed],
            "removed": [_change_json(c, texts) for c in scope.removed],
        }
        for scope in scopes
    ]


def _owner(owner: Owner) -> dict[str, Any]:
    return {key: plain(value) for key, value in zip(OWNER_KEYS, owner, strict=True)}


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "what": side.what,
        "path": side.path,
        "taken_at": None if side.taken_at is None else shown(side.taken_at),
        "pair": side.pair,
        "memories": side.memories,
    }


def _change_json(change: Change, texts: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "memory_id": change.memory_id,
        "collection": change.collection,
        "what": list(change.what),
        "was": None if change.was is None else _owner(change.was),
    }
    if texts:
        told |= {"text_before": change.before, "text_after": change.after}
    return told
