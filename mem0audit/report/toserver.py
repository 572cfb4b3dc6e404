"""What `relocate` prints of a move to or from a Qdrant server, for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mem0audit.core.advice import stop_command
from mem0audit.core.toserver import Carried, ToServerDone, ToServerPlan
from mem0audit.core.words import shell_words
from mem0audit.report.agentconfig import advice_json, config_lines
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, holder, install
from mem0audit.report.screen import Screen, table


def plan_text(plan: ToServerPlan, screen: Screen, words: Sequence[str] | None = None) -> str:
    """What a move to a server would do; with `words`, the flags of the command that does it."""
    lines = screen.wrap(
        f"This would carry every memory to {'a new folder' if plan.to_folder else 'the server'}, with its id, its "
        "vectors and all that is with it, and read each back there. The old store stays as it is. Nothing has been "
        "changed."
    )
    lines += table([["vectors", escape(plan.source), "to", escape(plan.url)]], indent=1)
    lines += table([_row(one) for one in plan.collections], indent=1, right=(1,))
    lines += screen.wrap(f"The server is Qdrant {plan.version}.")
    if plan.resumed is not None:
        lines += screen.wrap(f"A run of {plan.resumed} was cut off: this would go on where it was.")
    for one in plan.holders:
        lines += screen.wrap(f"In use by pid {one.pid} ({one.command}): stop it first, {stop_command(one)}.")
    for said in _warnings(plan):
        lines += screen.wrap(said, hanging=2)
    if words is not None:
        lines.append(f"To do it:   {screen.command('relocate', *words)}")
    return "\n".join(lines) + "\n"


def _warnings(plan: ToServerPlan) -> tuple[str, ...]:
    return plan.warnings if plan.who_else is None else (plan.who_else, *plan.warnings)


def _row(one: Carried) -> list[str]:
    keywords = ", keywords" if one.keyword_slot else ""
    return [escape(one.name), f"{one.points:,} points", f"{one.dims} dimensions, {one.distance}{keywords}"]


def done_text(done: ToServerDone, screen: Screen) -> str:
    """What a move to a server did, and what the agent must be told."""
    plan = done.plan
    total = sum(done.written.values()) + sum(done.found.values())
    lines = screen.wrap(f"Carried {total:,} points to {plan.url}, each read back and compared.")
    rows = []
    for one in plan.collections:
        found = done.found.get(one.name, 0)
        before = f"{found:,} of them by the run before" if found else ""
        rows.append([escape(one.name), f"{done.written.get(one.name, 0) + found:,} points", before])
    lines += table(rows, indent=1, right=(1,))
    lines += screen.wrap(
        f"The log stays where it was, and the old store too, until you remove it: {plan.source}"
    )
    if plan.who_else is not None:
        lines += screen.wrap("It was read once more at the end: nobody had written to it meanwhile.")
    for said in done.warnings:
        lines += screen.wrap(said, hanging=2)
    if plan.advice is not None:
        lines += config_lines(plan.advice, screen)
    words = ["--history", plan.seen.history.value]
    words += ["--qdrant-path" if plan.to_folder else "--qdrant-url", plan.url]
    words += ["--collection", plan.seen.collection.value] if plan.seen.collection.value != "mem0" else []
    words += ["--api-key-env", plan.key_from[1:]] if plan.key_from is not None else []
    lines.append(f"Look at it, then start the agent:   {screen.program} audit {shell_words(words)}")
    return "\n".join(lines) + "\n"


# --- For machines ---------------------------------------------------------------------------------


def _collection(one: Carried) -> dict[str, Any]:
    return {
        "name": one.name,
        "points": one.points,
        "dims": one.dims,
        "distance": one.distance,
        "keywords": one.keyword_slot,
        "older_rows": one.repeats,
    }


def plan_json(plan: ToServerPlan) -> str:
    """What a move to a server would do."""
    return dump("relocate-carry-plan", _plan(plan))


def _plan(plan: ToServerPlan) -> dict[str, Any]:
    return {
        "install": install(plan.seen),
        "to": plan.url,
        "server_version": plan.version,
        "collections": [_collection(one) for one in plan.collections],
        "left": list(plan.left),
        "holders": [holder(one) for one in plan.holders],
        "stop": list(dict.fromkeys(map(stop_command, plan.holders))),
        "dies_with_agent": plan.dies,
        "unseen": plan.unseen,
        "resumed": plan.resumed,
        "warnings": list(_warnings(plan)),
        "configuration": None if plan.advice is None else advice_json(plan.advice),
    }


def done_json(done: ToServerDone) -> str:
    """What a move to a server did."""
    plan = done.plan
    return dump(
        "relocate-carry",
        {
            **_plan(plan),
            "warnings": list(done.warnings),
            "written": dict(done.written),
            "found": dict(done.found),
            "digests": dict(done.digests),
            "seconds": round(done.seconds, 3),
        },
    )
