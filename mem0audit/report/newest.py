"""What `new` says."""

from __future__ import annotations

from typing import Any, Final

from mem0audit.core.newest import Added, New
from mem0audit.core.points import OWNER_KEYS, Owner, clipped, shown_owner
from mem0audit.core.snapshot import canonical
from mem0audit.core.times import shown
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, not_checked, plain
from mem0audit.report.screen import Screen
from mem0audit.report.steps import quoted, span, when
from mem0audit.report.words import memories, number

SHOWN: Final = 200
"""So many are listed without `--verbose`."""


def new_text(found: New, screen: Screen) -> str:
    """Owner by owner, each memory with its text and where it came from. Quiet: nothing where there is none."""
    if screen.quiet and not (found.memories or found.deleted or found.gone):
        return ""
    lines = [screen.bold(f"{memories(len(found.memories))} added since {shown(found.since)}")]
    if found.unknown:
        lines += screen.wrap(f"{number(found.unknown)} of them of unknown origin", indent=2)
    listed = found.memories if screen.verbose else found.memories[:SHOWN]
    groups: dict[str, tuple[Owner, list[Added]]] = {}
    for one in listed:
        groups.setdefault(canonical(one.owner), (one.owner, []))[1].append(one)
    for owner, group in groups.values():
        lines += ["", f"{screen.bold(escape(shown_owner(owner)))}  {memories(len(group))}"]
        for one in group:
            lines += _one(one, screen)
    if len(listed) < len(found.memories):
        lines += ["", f"… {number(len(found.memories) - len(listed))} more: --verbose"]
    said = []
    if found.deleted:
        said.append(f"{number(found.deleted)} more added since and deleted again.")
    if found.gone:
        said.append(
            f"{number(found.gone)} more added since and gone from the store without a row that says so: "
            "mem0audit audit"
        )
    said += [f"not read: {gap.what}: {gap.why}" for gap in found.not_read if gap.gap]
    lines += [""] if said else []
    for line in said:
        lines += screen.wrap(screen.ours(line), hanging=2)
    return "\n".join(lines) + "\n"


def _one(one: Added, screen: Screen) -> list[str]:
    if one.added is not None:
        at = when(one.added)
    else:
        at = f"{shown(one.created_at or float('nan'))} by its own account, no row in the log"
    doubt = "" if one.sure else ", perhaps before"
    first, *rest = screen.columns([escape(clipped(one.memory_id, 200)), f"{at}{doubt}"], 2)
    lines = [first, *(f"  {line}" for line in rest)]
    lines += screen.wrap(one.provenance, indent=4, hanging=6)
    return lines + quoted(one.text, gone=False)


def new_json(found: New, *, text: bool) -> str:
    """The same for machines; texts only where they were asked for."""
    return dump(
        "new",
        {
            "since": shown(found.since),
            "until": shown(found.until),
            "memories": [_json(one, text) for one in found.memories],
            "counts": {
                "added": len(found.memories),
                "unknown": found.unknown,
                "deleted_again": found.deleted,
                "gone": found.gone,
            },
            "not_read": [not_checked(one) for one in found.not_read],
        },
    )


def _json(one: Added, text: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "memory_id": one.memory_id,
        "owner": {key: plain(value) for key, value in zip(OWNER_KEYS, one.owner, strict=True)},
        "added": span(one.added),
        "sure": one.sure,
        "created_at": None if one.created_at is None else shown(one.created_at),
        "known_by": one.known_by,
        "source": one.source,
        "role": one.role,
        "actor_id": one.actor_id,
        "attributed_to": one.attributed_to,
    }
    return {**told, "text": one.text} if text else told
