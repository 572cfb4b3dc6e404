"""What is printed of backups that somebody else made: verified, imported."""

from __future__ import annotations

import os
from typing import Any

from mem0audit.core.backup import BackupVerdict, Halves, ImportPlan, apart_words
from mem0audit.core.snapshot import Taken
from mem0audit.core.times import shown
from mem0audit.report.escape import escape, shell_word
from mem0audit.report.json import dump, not_checked
from mem0audit.report.screen import Screen, table
from mem0audit.report.snapshots import holds, not_a_pair
from mem0audit.report.words import memories, plural, size


def backup_text(one: BackupVerdict, screen: Screen) -> str:
    """A backup verified: each half, how far they are apart, what putting it back would do, and what is better."""
    lines: list[str] = []
    for role in ("vectors", "history"):
        lines += _half(one, role, screen)
    told = one.halves
    if told is not None:
        lines += screen.wrap(f"{_would(told)} {_verdict(one, told)}")
    for gap in one.not_checked:
        lines += screen.wrap(f"Not checked: {gap.what}: {gap.why}.", hanging=2)
    folder = os.path.dirname(one.backup.folder) or "/"  # noqa: PTH120
    lines.append(f"A pair:        {screen.program} snapshot create --to {shell_word(folder)}")
    lines.append(f"Every night:   {screen.program} schedule snapshot --to {shell_word(folder)}")
    return "\n".join(lines) + "\n"


def _half(one: BackupVerdict, role: str, screen: Screen) -> list[str]:
    origin = one.backup.history if role == "history" else one.backup.vectors
    names = {file.path for file in one.files if file.role == role}
    wrong = [
        p
        for p in one.problems
        if p.path in names or (p.path not in _names(one) and _below(one, p.path, role))
    ]
    where = escape(origin.value)
    said = [f"{p.path}: {p.detail}" for p in wrong] if wrong else [_ok(one, role)]
    lines = [f"{role:<9} {where}"]
    for text in said:
        body = screen.wrap(text, indent=10, hanging=12)
        lines += [screen.alarm(line) for line in body] if wrong else body
    for file in one.files:
        if file.role == role and file.note:
            lines += screen.wrap(f"{file.path}: {file.note}", indent=10, hanging=12)
    return lines


def _names(one: BackupVerdict) -> set[str]:
    return {file.path for file in one.files}


def _below(one: BackupVerdict, path: str, role: str) -> bool:
    """Whether a path that is no database belongs to this half."""
    folder = one.backup.folder.rstrip("/") + "/"
    full = path if path.startswith("/") else folder + path
    in_vectors = (full + "/").startswith(one.backup.vectors.value.rstrip("/") + "/")
    return in_vectors == (role == "vectors")


def _ok(one: BackupVerdict, role: str) -> str:
    files = [file for file in one.files if file.role == role]
    if not files or any(file.unread for file in files):
        return "not checked whole"
    counts, told = one.counts, one.halves
    what = counts.get("memories" if role == "vectors" else "changes")
    words = "ok"
    if what is not None:
        words += f", {memories(what) if role == 'vectors' else plural(what, 'change')}"
    if told is not None and told.newer == role:
        words += f": {apart_words(told)}"
    return words


def _would(told: Halves) -> str:
    if told.agree:
        return f"{apart_words(told).capitalize()}."
    parts = []
    if told.returning:
        parts.append(f"bring back {plural(told.returning, 'deleted memory', 'deleted memories')}")
    if told.losing:
        which = "newer " if told.newer == "history" else ""
        parts.append(f"lose {plural(told.losing, f'{which}memory', f'{which}memories')}")
    if told.differing:
        parts.append(f"give {memories(told.differing)} another text than the last logged one")
    if told.unlogged:
        one = told.unlogged == 1
        parts.append(f"bring {memories(told.unlogged)} that {'has' if one else 'have'} no entry in the log")
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    sentence = f"restoring this would {text}."
    sentence = f"As far as it reads, {sentence}" if told.partial else sentence[0].upper() + sentence[1:]
    return f"{apart_words(told).capitalize()}. {sentence}" if told.newer is None else sentence


def _verdict(one: BackupVerdict, told: Halves) -> str:
    if not told.agree:
        return "It is not a pair."
    if one.problems:
        return "A damaged half restores as a damaged store."
    return "They were not taken together, so that a write in flight cannot be told."


def import_plan_text(plan: ImportPlan, screen: Screen) -> str:
    """What `snapshot import` would do."""
    lines = [f"This would make {escape(plan.folder)}/{plan.name}, and has changed nothing.", ""]
    lines += table([[escape(source), "->", escape(target)] for source, target in plan.files], indent=1)
    free = "not known" if plan.free_bytes is None else size(plan.free_bytes)
    lines += [
        "",
        *screen.wrap(
            f"Dated by {plan.dated_by}, {shown(plan.taken_at)}. Not a pair: {apart_words(plan.halves)}."
        ),
        *(line for p in plan.problems for line in screen.wrap(f"{p.path}: {p.detail}.", hanging=2)),
        f"The backup: {size(plan.size_bytes)}. Needed: {size(plan.needed_bytes)}. Free: {free}.",
    ]
    return "\n".join(lines) + "\n"


def imported_text(taken: Taken, plan: ImportPlan, screen: Screen) -> str:
    """What `snapshot import` did: where it is, of when, how far its halves are apart."""
    manifest = taken.manifest
    lines = [f"{escape(taken.path)}   {size(manifest.size_bytes)}"]
    lines += screen.wrap(f"{holds(manifest)}, as of {manifest.created_at}: {plan.dated_by}.")
    lines += not_a_pair(manifest, screen)
    if not plan.halves.agree:
        lines += screen.wrap(_would(plan.halves))
    if taken.removed:
        lines += screen.wrap(f"Removed what runs before it left unfinished: {', '.join(taken.removed)}.")
    lines.append(f"Check it:   {screen.program} snapshot verify {shell_word(taken.path)}")
    return "\n".join(lines) + "\n"


# --- For machines -----------------------------------------------------------------------------------


def backup_json(one: BackupVerdict) -> dict[str, Any]:
    """A backup verified, as it stands in the JSON of `snapshot verify`."""
    history, vectors = one.backup.history, one.backup.vectors
    return {
        "path": one.backup.folder,
        "history": {"value": history.value, "decided_by": history.decided_by},
        "vectors": {"value": vectors.value, "decided_by": vectors.decided_by},
        "good": one.good,
        "files": [
            {
                "path": file.path,
                "role": file.role,
                "size_bytes": file.size_bytes,
                "journal_mode": file.journal_mode,
                "beside": list(file.beside),
                "problem": file.problem,
                "note": file.note,
            }
            for file in one.files
        ],
        "problems": [{"path": p.path, "detail": p.detail} for p in one.problems],
        "not_checked": [not_checked(n) for n in one.not_checked],
        "taken_at": None if one.taken_at is None else shown(one.taken_at),
        "dated_by": one.dated_by,
        "halves": None if one.halves is None else halves_json(one.halves),
        "counts": dict(one.counts),
        "findings": dict(one.findings),
        "seconds": round(one.seconds, 3),
    }


def import_plan_json(plan: ImportPlan) -> str:
    """What `snapshot import` would do."""
    history, vectors = plan.backup.history, plan.backup.vectors
    return dump(
        "import-plan",
        {
            "backup": plan.backup.folder,
            "history": {"value": history.value, "decided_by": history.decided_by},
            "vectors": {"value": vectors.value, "decided_by": vectors.decided_by},
            "folder": plan.folder,
            "name": plan.name,
            "taken_at": shown(plan.taken_at),
            "dated_by": plan.dated_by,
            "files": [{"source": source, "path": path} for source, path in plan.files],
            "size_bytes": plan.size_bytes,
            "needed_bytes": plan.needed_bytes,
            "free_bytes": plan.free_bytes,
            "halves": halves_json(plan.halves),
            "problems": [{"path": p.path, "detail": p.detail} for p in plan.problems],
        },
    )


def halves_json(told: Halves) -> dict[str, Any]:
    """How far two halves are apart."""
    return {
        "agree": told.agree,
        "newer": told.newer,
        "apart_s": None if told.apart_s is None else round(told.apart_s, 3),
        "newest_row_at": None if told.newest_row_at is None else shown(told.newest_row_at),
        "newest_point_at": None if told.newest_point_at is None else shown(told.newest_point_at),
        "returning": told.returning,
        "losing": told.losing,
        "differing": told.differing,
        "unlogged": told.unlogged,
        "partial": told.partial,
    }
