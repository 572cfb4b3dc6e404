"""What `residue` prints, for people and for machines; never a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mem0audit.core.redaction import Cleared, ClearPlan
from mem0audit.core.residue import LAST_MESSAGES, Copy, FileSearch, Residue, Rows
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, install, not_checked
from mem0audit.report.screen import Screen, table
from mem0audit.report.words import memories, number, plural, size

_MOST = 12
"""So many copies are listed without --verbose."""
_MOST_STORES = 4


def residue_text(found: Residue, screen: Screen) -> str:
    """The answer, then place by place: rows, bytes, copies, what was not searched, what clears it."""
    known = f"{memories(found.ids)} known" if found.ids else "no memory known"
    if found.remains:
        head = f"{found.shown} ({known}): still readable."
    elif found.incomplete:
        head = f"{found.shown} ({known}): nothing found, but not everything could be looked at."
    else:
        head = f"{found.shown} ({known}): nothing found in what was searched."
    lines = [screen.bold(line) for line in screen.wrap(head)]
    lines += ["", *_rows(found, screen), "", *_bytes(found, screen)]
    if found.copies:
        lines += ["", *_copies(found, screen)]
    lines += ["", *_not_searched(found, screen)]
    clears = _clears(found, screen)
    if clears:
        lines += ["", *clears]
    return "\n".join(lines) + "\n"


def _rows(found: Residue, screen: Screen) -> list[str]:
    cells = [
        [_KINDS[one.kind], "not read" if one.count is None else number(one.count), _about(one)]
        for one in found.rows
    ]
    lines = ["Rows", *table(cells, indent=1, right=(1,))]
    if found.fed_back:
        lines += screen.wrap(
            f"The agent can learn it again: mem0 reads the last {LAST_MESSAGES} messages of a session at its next "
            f"extraction, {found.fed_back:,} of these among them.",
            indent=1,
            hanging=3,
        )
    rows, of = found.unattributed
    if rows:
        lines += screen.wrap(
            f"{plural(rows, 'row')} of the log, of {memories(of)}, can be attributed to nobody: theirs may be among "
            "them.",
            indent=1,
            hanging=3,
        )
    return lines


_KINDS = {
    "points": "memories",
    "older rows": "older rows of them",
    "entities": "entities",
    "shared entities": "others' entities with links",
    "history": "log rows with text",
    "messages": "chat messages",
    "stranded": "rows left by a migration",
    "facts": "facts in the ledger",
}


def _about(one: Rows) -> str:
    of = f", of {memories(one.memories)}" if one.kind in ("history", "stranded") and one.count else ""
    return f"{escape(one.name)}{of}"


def _bytes(found: Residue, screen: Screen) -> list[str]:
    total = sum(one.size_bytes for one in found.files)
    what = f"{plural(len(found.files), 'file')}, {total:,} bytes"
    if not found.texts:
        why = (
            "those that are known are too short" if found.too_short else "no text of theirs is known any more"
        )
        return screen.wrap(f"Bytes: {what}, could not be searched: {why}.")
    asked = f"for {plural(found.texts, 'text')}, whole and in pieces of {found.piece} bytes or more"
    dirty = [one for one in found.files if one.remains or one.shared or one.short]
    if not dirty:
        return screen.wrap(f"Bytes: searched {what}, {asked}: none found.")
    lines = screen.wrap(f"Bytes: searched {what}, {asked}:")
    lines += _files(dirty, screen)
    filled = [one for one in found.files if one.filled_pages]
    for one in filled:
        lines += screen.wrap(
            f"{one.path}: {one.filled_pages:,} of {plural(one.free_pages or 0, 'freed page')} still hold bytes: the "
            "SQLite that freed them ran without secure_delete.",
            indent=1,
            hanging=3,
        )
    if any(one.short for one in dirty):
        lines += screen.wrap(
            "Texts shorter than 24 bytes are counted apart: they may be of others.", indent=1, hanging=3
        )
    if any(one.shared for one in dirty):
        lines += screen.wrap(
            "of others: the same bytes stand in what others own; they may be theirs alone.",
            indent=1,
            hanging=3,
        )
    return lines


def _files(files: Sequence[FileSearch], screen: Screen) -> list[str]:
    lines = []
    for one in files:
        facts = []
        if one.whole:
            facts.append(f"{plural(one.texts, 'text')} whole at {plural(one.whole, 'place')}")
        if one.pieces:
            facts.append(f"pieces at {plural(one.pieces, 'place')}")
        if one.free:
            facts.append(f"{one.free:,} of these places in freed pages")
        if one.short:
            facts.append(f"short ones at {plural(one.short, 'place')}")
        if one.shared:
            facts.append(f"of others too at {plural(one.shared, 'place')}")
        lines.append(f" {escape(one.path)}")
        lines += screen.fill(facts, 3)
    return lines


def _copies(found: Residue, screen: Screen) -> list[str]:
    holding = [one for one in found.copies if one.remains]
    closed = [one for one in found.copies if one.memories is None and one.rows is None and not one.files]
    lines = [f"Copies: {number(len(found.copies))} known, {number(len(holding))} hold something of theirs"]
    lines[0] += f", {number(len(closed))} not looked into" if closed else ""
    shown = holding if screen.verbose else holding[:_MOST]
    for one in shown:
        lines.append(f" {escape(one.path)}")
        lines += screen.wrap(f"{one.kind}: {_holds(one)}; {one.until}", indent=3)
    if len(holding) > len(shown):
        lines.append(f" ... {len(holding) - len(shown)} more: --verbose")
    return lines


def _holds(one: Copy) -> str:
    facts = []
    if one.memories:
        facts.append(memories(one.memories))
    if one.rows:
        facts.append(plural(one.rows, "log row or message", "log rows and messages"))
    places = sum(f.whole + f.pieces + f.short_alone for f in one.files)
    if places:
        facts.append(f"texts at {plural(places, 'place')}")
    return ", ".join(facts)


def _not_searched(found: Residue, screen: Screen) -> list[str]:
    lines = ["Not searched"]
    stores = [one for one in found.not_searched if one.why.startswith("another store")]
    left_out = [] if screen.verbose else stores[_MOST_STORES:]
    for one in found.not_searched:
        if one not in left_out:
            lines += screen.wrap(screen.ours(f"{one.what}: {one.why}"), indent=1, hanging=3)
    if left_out:
        lines.append(f" {len(left_out)} more stores of this machine: --verbose")
    return lines


def _clears(found: Residue, screen: Screen) -> list[str]:
    """What clears it: in the log, and in freed pages or beside the rows of a file that has none of theirs."""
    lines = []
    in_log = any(one.count for one in found.rows if one.kind in ("history", "stranded", "messages"))
    there = any(one.count for one in found.rows if one.kind == "points")
    told = any(one.count for one in found.rows if one.kind == "facts")
    if in_log or there or told:
        parts = [
            *(["memories"] if there else []),
            *(["texts in the log"] if in_log or there else []),
            *(["facts in the ledger"] if told else []),
        ]
        what = f"The {', the '.join(parts)}"
        words = found.scope.words if found.scope is not None else _memory_words(found.memory_ids)
        lines.append(f"{what}, the agent stopped:   " + screen.command("delete", *words, "--redact"))
    held = [one.path for one in found.rows if one.count or one.count is None]

    def is_free(one: FileSearch) -> bool:
        in_rows = any(one.path == path or one.path.startswith(f"{path}/") for path in held)
        return bool(one.free or (one.free_pages is not None and not in_rows and (one.whole or one.pieces)))

    if any(map(is_free, found.files)):
        lines.append("Freed space, the agent stopped:   " + screen.command("residue", "--clear-free-pages"))
    return lines


def _memory_words(ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for one in ids for word in ("--memory", one))


def clear_plan_text(plan: ClearPlan, screen: Screen) -> str:
    """What would be rebuilt."""
    lines = screen.wrap(
        "This rebuilds each database over itself, without the pages that hold what was deleted:"
    )
    lines += table(
        [
            [
                escape(one.path),
                size(one.size_bytes),
                f"{one.free_pages:,} free, {one.filled:,} with bytes in them",
            ]
            for one in plan.databases
        ],
        indent=1,
        right=(1,),
    )
    lines += screen.wrap(
        "No memory, row or text changes. A proven copy lies beside each while it is rebuilt."
    )
    if plan.unseen is not None:
        lines += screen.wrap(
            f"No process is seen with it open, but {plan.unseen}: the lock that the agent takes decides."
        )
    return "\n".join(lines) + "\n"


def cleared_text(done: Cleared, screen: Screen) -> str:
    """What was rebuilt."""
    pages = sum(one.free_pages for one, _ in done.databases)
    lines = screen.wrap(f"Rebuilt {plural(len(done.databases), 'file')}; {plural(pages, 'free page')} gone.")
    lines += table(
        [[escape(one.path), size(one.size_bytes), "->", size(now)] for one, now in done.databases],
        indent=1,
        right=(1, 3),
    )
    return "\n".join(lines) + "\n"


# --- For machines -------------------------------------------------------------------------------------


def residue_json(found: Residue, exit_code: int) -> str:
    """The report."""
    rows, of = found.unattributed
    return dump(
        "residue",
        {
            "install": install(found.install),
            "scope": None if found.scope is None else dict(found.scope.named),
            "memory_ids": list(found.memory_ids),
            "known_memories": found.ids,
            "known_texts": found.texts,
            "texts_too_short": found.too_short,
            "piece_bytes": found.piece,
            "remains": found.remains,
            "rows": [
                {"kind": r.kind, "name": r.name, "path": r.path, "count": r.count, "memories": r.memories}
                for r in found.rows
            ],
            "messages_fed_back": found.fed_back,
            "unattributed": {"rows": rows, "memories": of},
            "files": [_file_json(one) for one in found.files],
            "copies": [
                {
                    "kind": one.kind,
                    "path": one.path,
                    "memories": one.memories,
                    "rows": one.rows,
                    "until": one.until,
                    "remains": one.remains,
                    "files": [_file_json(f) for f in one.files],
                }
                for one in found.copies
            ],
            "secure_delete_here": found.own_secure_delete,
            "not_searched": [not_checked(one) for one in found.not_searched],
            "seconds": round(found.seconds, 3),
            "exit_code": exit_code,
        },
    )


def _file_json(one: FileSearch) -> dict[str, Any]:
    return {
        "path": one.path,
        "size_bytes": one.size_bytes,
        "texts": one.texts,
        "whole": one.whole,
        "pieces": one.pieces,
        "in_free_pages": one.free,
        "shared_with_others": one.shared,
        "short": one.short,
        "short_alone": one.short_alone,
        "free_pages": one.free_pages,
        "free_pages_with_bytes": one.filled_pages,
    }


def cleared_json(plan: ClearPlan, done: Cleared | None) -> str:
    """What would be, or was, rebuilt."""
    after = {} if done is None else {one.path: now for one, now in done.databases}
    return dump(
        "residue-clear",
        {
            "cleared": done is not None,
            "databases": [
                {
                    "path": one.path,
                    "size_bytes": one.size_bytes,
                    "free_pages": one.free_pages,
                    "free_pages_with_bytes": one.filled,
                    "size_after_bytes": after.get(one.path),
                }
                for one in plan.databases
            ],
            "unseen": plan.unseen,
        },
    )
