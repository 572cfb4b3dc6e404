"""What `recover` prints, for people and for machines."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mem0audit.core.points import OWNER_KEYS, Owner, shown_owner
from mem0audit.core.recover import (
    WHYS,
    Group,
    PutBack,
    PutBackPlan,
    Recoverable,
    Recovered,
    RecoverPlan,
    by_owner,
    by_time,
    cannot_come_back,
    left_out_counts,
)
from mem0audit.core.times import shown
from mem0audit.report.escape import escape, without_surrogates
from mem0audit.report.json import dump, install
from mem0audit.report.screen import Screen, table
from mem0audit.report.words import memories, plural, stamp

if TYPE_CHECKING:
    from mem0audit.operations.mem0door import Door

MOST = 20
"""So many rows of a table, or single memories, without --verbose."""


def plan_text(
    plan: RecoverPlan,
    screen: Screen,
    *,
    words: tuple[str, ...] = (),
    way: Door | None = None,
    why_not: str | None = None,
    ask: bool = False,
) -> str:
    """Which memories can come back, whose they are, what cannot, and how to go on. `words` are those of the command
    line that choose among them, `way` the mem0 that adds them (or `why_not`); with `ask` a question comes after it."""
    lines = _head(plan, screen)
    if plan.snapshot is not None and plan.snapshot.taken_at is not None:
        lines += screen.wrap(
            f"First: the snapshot of {shown(plan.snapshot.taken_at)} is from before the loss, and brings vectors, "
            "ids and metadata back too:"
        )
        lines += [f"  {screen.command('snapshot restore', plan.snapshot.path, '--in-place', '--dry-run')}"]
    lines += _whose(plan, screen) + _when(plan, screen) + _each(plan, screen) + _left_out(plan, screen)
    if plan.not_read:
        lines += screen.wrap(
            f"It is not known whether somebody was erased: {'; '.join(plan.not_read)}. What mem0 itself deleted is "
            "not among these: its log says so.",
            hanging=2,
        )
    if plan.not_looked_into:
        lines += screen.wrap(
            f"Not looked into for owners and metadata: {'; '.join(plan.not_looked_into)}.", hanging=2
        )
    if plan.stranded:
        rows = sum(one.missing_rows for one in plan.stranded)
        lines += screen.wrap(
            f"{plural(rows, 'row')} of the log are stranded in another table, and may name more memories. "
            "Put them back first:"
        )
        lines += [f"  {screen.command('recover', '--stranded-log', '--dry-run')}"]
    if plan.texts:
        lines += ["Adding a memory again cannot bring back:"]
        lines += [line for one in cannot_come_back(plan) for line in screen.wrap(one, hanging=4, first="  ")]
    if way is not None:
        lines += screen.wrap(f"They are added through mem0 {way.mem0}, {_whose_mem0(way)}.")
    if why_not is not None:
        lines += screen.wrap(f"Not as things are: {why_not}", hanging=2)
    if not ask:
        lines += _ways(plan, screen, words, way)
    return "\n".join(lines) + "\n"


def _head(plan: RecoverPlan, screen: Screen) -> list[str]:
    if plan.asked:
        can = len(plan.texts)
        if not can:
            return screen.wrap(
                "It cannot be added again." if len(plan.asked) == 1 else "None can be added again."
            )
        return screen.wrap(
            f"{memories(can)} can be added again, as {'a new one' if can == 1 else 'new ones'}."
        )
    if not plan.lost:
        return screen.wrap("Nothing is lost: every memory that the log calls live is in a store.")
    verb = "is" if plan.lost == 1 else "are"
    lines = screen.wrap(f"{memories(plan.lost)} {verb} live in the log, and in no store that was found.")
    for incident in plan.incidents:
        lines += screen.wrap(f"{incident.name} ({incident.certainty.label})", indent=2, hanging=4)
    can, wait = len(plan.memories), len(plan.unknown)
    lines += screen.wrap(
        f"{memories(can)} can be added back from {'its text' if can == 1 else 'their texts'}."
        if can
        else "None of them can be added back as things are."
    )
    if wait:
        lines += screen.wrap(
            f"{memories(wait)} {'waits' if wait == 1 else 'wait'} until somebody says whose "
            f"{'it is' if wait == 1 else 'they are'}."
        )
    return lines


def _owner_cell(group: Group) -> str:
    return "not known" if group.owner is None else escape(shown_owner(group.owner))


def _whose(plan: RecoverPlan, screen: Screen) -> list[str]:
    groups = by_owner(plan.texts)
    if not groups:
        return []
    rows = [["Whose", "memories", "added", "known by"]]
    for group in groups[: None if screen.verbose else MOST]:
        days = f"{group.first} to {group.last}" if group.first != group.last else group.first
        rows.append([_owner_cell(group), f"{group.count:,}", days or "no time", escape(", ".join(group.by))])
    lines = table(rows, indent=1, right=(1,))
    if max(map(len, lines)) > screen.width:
        lines = [
            line
            for row, group in zip(rows[1:], groups, strict=False)
            for line in screen.wrap(
                f"{row[0]}: {memories(group.count)}, added {row[2]}, known by {row[3]}", indent=1, hanging=5
            )
        ]
    if len(groups) > MOST and not screen.verbose:
        lines.append(f" … {plural(len(groups) - MOST, 'more owner')}: --verbose")
    return lines


def _when(plan: RecoverPlan, screen: Screen) -> list[str]:
    times = by_time(plan.texts)
    if len(times) < 2:
        return []
    return ["When they were added:", *screen.fill([f"{when} {count:,}" for when, count in times], 2)]


def _each(plan: RecoverPlan, screen: Screen) -> list[str]:
    """The memories one by one: those that were named, or all with --verbose. Never their texts."""
    if not (screen.verbose or plan.asked):
        return []
    rows = [
        [
            escape(one.memory_id),
            one.state,
            f"row {one.row}" if one.row else "snapshot",
            stamp(str(one.created_at)) if one.created_at is not None else "no time",
            escape(shown_owner(one.owner)) if one.owner is not None else "not known",
        ]
        for one in plan.texts
    ]
    return table(rows, indent=1)


def _left_out(plan: RecoverPlan, screen: Screen) -> list[str]:
    if not plan.left_out:
        return []
    lines = ["Left out:"]
    lines += table([[f"{count:,}", WHYS[why]] for why, count in left_out_counts(plan)], indent=2, right=(0,))
    if screen.verbose or plan.asked:
        lines += table(
            [[escape(one.memory_id), one.why, escape(one.detail or "")] for one in plan.left_out], indent=4
        )
    return lines


def _whose_mem0(door: Door) -> str:
    return "mem0audit's own" if door.own else f"of {door.interpreter} ({door.source})"


def _ways(plan: RecoverPlan, screen: Screen, words: tuple[str, ...], way: Door | None) -> list[str]:
    steps: list[tuple[str, tuple[str, ...]]] = []
    if plan.memories and way is not None:
        named = () if "--config" in screen.flags else ("--config", "FILE")
        steps.append(("With the agent stopped, to add them:", (*words, *named)))
    if plan.unknown:
        steps.append(("Those that nobody knows the owner of:", (*words, "--assign-user", "U", "--dry-run")))
    if any(one.why == "doubtful" for one in plan.left_out):
        steps.append(("The doubtful ones too:", (*words, "--doubtful", "--dry-run")))
    if plan.texts:
        steps.append(("Their texts alone, as JSON lines:", (*words, "--export", "FILE")))
    lines: list[str] = []
    for label, arguments in steps:
        command = screen.command("recover", *arguments)
        whole = f"{label}   {command}"
        lines += [whole] if len(whole) <= screen.width else [label, f"   {command}"]
    return lines


def question(plan: RecoverPlan) -> str:
    """What is asked before memories are added."""
    return f"Add {memories(len(plan.memories))} back?" if plan.memories else "Record those that are there?"


def recovered_text(done: Recovered, screen: Screen, *, words: tuple[str, ...] = ()) -> str:
    """What was added back, and what waits."""
    plan = done.plan
    lines = screen.wrap(
        f"Added {memories(len(done.added))} back through mem0 {done.mem0}"
        + (", each with a new id." if done.added else ".")
        + (
            f" {memories(done.there)} {'was' if done.there == 1 else 'were'} there by then."
            if done.there
            else ""
        )
    )
    failed = {one for one, _ in done.failed}
    back = tuple(one for one in plan.memories if one.memory_id not in failed)
    lines += _whose(replace(plan, memories=back, unknown=()), screen) + _left_out(plan, screen)
    if failed:
        lines += screen.wrap(
            f"{memories(len(failed))} could not be added; the same command tries them again:"
        )
        lines += [f"  {escape(one)}  {escape(why)}" for one, why in done.failed]
    if plan.unknown:
        wait = (
            "waits until somebody says whose it is"
            if len(plan.unknown) == 1
            else "wait until somebody says whose they are"
        )
        lines += screen.wrap(f"{memories(len(plan.unknown))} {wait}:")
        lines += [f"   {screen.command('recover', *words, '--assign-user', 'U', '--dry-run')}"]
    lines += [f"Look at it, then start the agent:   {screen.command('audit')}"]
    return "\n".join(lines) + "\n"


# --- JSON lines -----------------------------------------------------------------------------------------


def export_lines(plan: RecoverPlan) -> str:
    """The memories with their texts, one JSON object a line, oldest first; the owner's ids null where not known."""
    return "".join(
        json.dumps(without_surrogates(_exported(one)), ensure_ascii=True, allow_nan=False, default=str) + "\n"
        for one in plan.texts
    )


def _owner_fields(owner: Owner | None) -> dict[str, Any]:
    return dict(zip(OWNER_KEYS, owner or (None, None, None), strict=True))


def _exported(one: Recoverable) -> dict[str, Any]:
    return {
        "id": one.memory_id,
        "memory": one.text,
        **_owner_fields(one.owner),
        "owner_known_by": one.owner_by if one.owner is not None else None,
        "state": one.state,
        "created_at": one.created_at,
        "logged_at": one.logged_at,
        "log_row": one.row or None,
        "role": one.role,
        "actor_id": one.actor,
        "metadata": dict(one.metadata),
        "metadata_from": one.metadata_by,
        "expiration_date": one.expires,
    }


def exported_text(plan: RecoverPlan, path: str, screen: Screen) -> str:
    """What went into the file, and what did not."""
    lines = [
        f"{memories(len(plan.texts))} with their texts, in a file that only you can read:",
        f"  {escape(path)}",
    ]
    lines += _left_out(plan, screen)
    return "\n".join(lines) + "\n"


# --- For machines -----------------------------------------------------------------------------------------


def plan_json(
    plan: RecoverPlan, *, exported: str | None = None, way: Door | None = None, why_not: str | None = None
) -> str:
    """The plan, without texts."""
    return dump(
        "recover-plan",
        {
            **_plan_body(plan),
            "exported_to": exported,
            "mem0": None if way is None else {"python": way.interpreter, "version": way.mem0},
            "why_not": why_not,
        },
    )


def recovered_json(done: Recovered) -> str:
    """What was added back: the new id of each."""
    return dump(
        "recover",
        {
            **_plan_body(done.plan),
            "added": [{"id": old, "new_id": new} for old, new in done.added],
            "there": done.there,
            "failed": [{"id": one, "why": why} for one, why in done.failed],
            "mem0_version": done.mem0,
            "seconds": round(done.seconds, 3),
        },
    )


def _plan_body(plan: RecoverPlan) -> dict[str, Any]:
    snapshot = plan.snapshot
    return {
        "install": install(plan.install),
        "lost": plan.lost,
        "incidents": [
            {"kind": one.kind, "name": one.name, "certainty": one.certainty.label} for one in plan.incidents
        ],
        "snapshot": None
        if snapshot is None
        else {
            "name": snapshot.name,
            "path": snapshot.path,
            "taken_at": None if snapshot.taken_at is None else shown(snapshot.taken_at),
        },
        "memories": [_memory(one) for one in plan.memories],
        "unknown_owner": [_memory(one) for one in plan.unknown],
        "left_out": [{"id": one.memory_id, "why": one.why, "detail": one.detail} for one in plan.left_out],
        "owners": [
            {
                **_owner_fields(g.owner),
                "memories": g.count,
                "first": g.first,
                "last": g.last,
                "known_by": list(g.by),
            }
            for g in by_owner(plan.texts)
        ],
        "times": [{"when": when, "memories": count} for when, count in by_time(plan.texts)],
        "cannot_come_back": list(cannot_come_back(plan)),
        "records_not_read": list(plan.not_read),
        "snapshots_not_read": list(plan.not_looked_into),
        "stranded_rows": sum(one.missing_rows for one in plan.stranded),
    }


def _memory(one: Recoverable) -> dict[str, Any]:
    return {
        "id": one.memory_id,
        "state": one.state,
        **_owner_fields(one.owner),
        "owner_known_by": one.owner_by,
        "created_at": None if one.created_at is None else str(one.created_at),
        "logged_at": None if one.logged_at is None else str(one.logged_at),
        "log_row": one.row or None,
        "metadata_from": one.metadata_by,
    }


# --- A stranded log ---------------------------------------------------------------------------------------


def put_back_plan_text(plan: PutBackPlan, screen: Screen, *, words: tuple[str, ...] = ()) -> str:
    """What putting the rows back would do; with `words` the command that does it."""
    if not plan.tables:
        return "No row of the log is stranded in another table.\n"
    lines = screen.wrap(
        f"This would put {plural(plan.missing, 'row')} back into the log, and has changed nothing:"
    )
    lines += _tables(plan.tables)
    lines += screen.wrap(
        f"They go in as mem0 wrote them, in their order, below the {plural(plan.rows_before, 'row')} that history has "
        "now. No row is changed or removed, no event is made up, and the old table stays."
    )
    lines += screen.wrap(f"A snapshot is taken first, into {plan.folder}.")
    if plan.unseen is not None:
        lines += screen.wrap(
            f"No process is seen with it open, but {plan.unseen}: the locks that the agent takes decide."
        )
    if words:
        lines += [f"To do it:   {screen.command('recover', *words)}"]
    return "\n".join(lines) + "\n"


def _tables(tables: tuple[Any, ...]) -> list[str]:
    return table(
        [
            [
                escape(one.name),
                f"{one.missing:,} of {plural(one.rows, 'row')}",
                f"of {memories(one.memories)}",
            ]
            for one in tables
        ],
        indent=1,
    )


def put_back_text(done: PutBack, screen: Screen) -> str:
    """What was put back, with the counts before and after."""
    rows = done.rows_after - done.rows_before
    lines = screen.wrap(
        f"Put {plural(rows, 'row')} back: history had {plural(done.rows_before, 'row')}, and has {done.rows_after:,}."
    )
    lines += _tables(done.tables)
    lines += screen.wrap(f"The snapshot from before: {done.snapshot}")
    lines += [line for one in done.warnings for line in screen.wrap(one, hanging=2)]
    lines += [f"Look at it, then start the agent:   {screen.command('audit')}"]
    return "\n".join(lines) + "\n"


def put_back_plan_json(plan: PutBackPlan) -> str:
    """What putting the rows back would do."""
    return dump(
        "put-back-plan",
        {
            "install": install(plan.install),
            "tables": _tables_json(plan.tables),
            "rows_before": plan.rows_before,
            "snapshot_folder": plan.folder,
            "unseen": plan.unseen,
        },
    )


def put_back_json(done: PutBack) -> str:
    """What was put back."""
    return dump(
        "put-back",
        {
            "history": done.history,
            "tables": _tables_json(done.tables),
            "rows_before": done.rows_before,
            "rows_after": done.rows_after,
            "snapshot": done.snapshot,
            "warnings": list(done.warnings),
            "seconds": round(done.seconds, 3),
        },
    )


def _tables_json(tables: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "rows": one.rows, "missing": one.missing, "memories": one.memories}
        for one in tables
    ]
