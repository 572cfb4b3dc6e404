"""What `relocate` prints, for people and for machines."""

from __future__ import annotations

from typing import Any

from mem0audit.core.advice import stop_command
from mem0audit.core.agentconfig import AfterMove, DoneAfter, is_own
from mem0audit.core.model import Holder
from mem0audit.core.relocate import CutOff, Relocated, RelocatePlan
from mem0audit.core.restore import DiscardPlan
from mem0audit.core.words import shell_words
from mem0audit.report.agentconfig import (
    advice_json,
    config_lines,
    link_json,
    link_lines,
    update_lines,
    updated_json,
    updated_lines,
)
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, holder, install
from mem0audit.report.restore import discard_json, discarded_text
from mem0audit.report.screen import Screen, table
from mem0audit.report.snapshots import holds
from mem0audit.report.words import memories, plural, size

__all__ = ["discard_json", "discarded_text"]

_COURSES = {
    "clean": "it had moved nothing: what it left is cleared away",
    "finish": "it is finished",
    "back": "it is taken back, since the old stores were written to, and begun again",
    "stuck": "it cannot be told how far it came",
}


def plan_text(
    plan: RelocatePlan, screen: Screen, after: AfterMove | None = None, *, to_do_it: bool = False
) -> str:
    """What a move would do next, and `after` it; with `to_do_it` the command that does it."""
    assert plan.seen.vectors is not None
    lines = screen.wrap(_first(plan) + " Nothing has been changed.")
    rows = [["vectors", escape(plan.seen.vectors.value), "to", escape(plan.where.vectors)]]
    if plan.where.history is not None:
        rows.append(["history", escape(plan.seen.history.value), "to", escape(plan.where.history)])
    lines += table(rows, indent=1)
    free = (
        "" if plan.free_bytes is None else f", {size(plan.free_bytes)} free, {size(plan.needed_bytes)} needed"
    )
    lines += screen.wrap(f"It would lie on {plan.filesystem or 'a filesystem that is not known'}{free}.")
    lines += _about_agent(plan, screen)
    if plan.cut_off is not None:
        lines += _cut_off(plan.cut_off, screen, "first")
    lines += _warnings(plan.warnings, screen)
    lines += _after(after, screen) if after is not None else []
    if to_do_it:
        lines.append(f"To do it:   {_again(plan, screen)}")
    return "\n".join(lines) + "\n"


def _first(plan: RelocatePlan) -> str:
    if plan.way == "pair":
        return (
            "The agent runs: this would take a verified pair of both stores beside the new folder, and say how to stop "
            "the agent. Run again then, it would move what is there by then."
        )
    if plan.way == "publish":
        return f"The old stores went with the agent: this would put the pair {plan.pair} in their place."
    if plan.moved or (plan.cut_off is not None and plan.cut_off.course == "finish"):
        return "This would finish the move that was cut off."
    return (
        "This would move the store: copied, proven row by row, and the old one put aside under a dated name."
    )


def _about_agent(plan: RelocatePlan, screen: Screen) -> list[str]:
    lines = [line for one in plan.holders for line in screen.wrap(f"In use by {_named(one)}.", hanging=2)]
    if plan.dies:
        lines += screen.wrap("A store goes when that stops; then the pair is put in its place.")
    if not plan.holders and plan.unseen is not None:
        lines += screen.wrap(
            f"No process is seen with it open, but {plan.unseen}: the lock that the agent takes decides."
        )
    return lines


def question(plan: RelocatePlan) -> str:
    """What is asked before stores move."""
    if plan.way == "pair":
        return f"Take the pair, wait for the agent to stop, and move to {plan.where.vectors}?"
    if plan.way == "publish":
        return f"Put the pair at {plan.where.vectors}?"
    return f"Move to {plan.where.vectors}?"


def waiting_text(done: Relocated, plan: RelocatePlan, screen: Screen, *, waits: bool) -> str:
    """The pair is taken and the agent runs: how to stop it, and what then."""
    lines = screen.wrap(
        f"Taken with the agent running, and verified: {holds(done.manifest)}, as of {done.manifest.created_at}."
    )
    lines += table([["pair", escape(done.pair or "")]], indent=1)
    lines += screen.wrap("It survives whatever happens at the stop. Nothing else has been changed.")
    if not done.manifest.settled:
        lines += screen.wrap(
            f"Not settled: {done.manifest.unsettled_why}. Run this again at a quieter minute."
        )
    lines += _warnings(done.warnings, screen)
    for one in done.holders:
        lines += screen.wrap(f"{done.vectors} is in use by {_named(one)}.", hanging=2)
    if not done.holders:
        lines += screen.wrap(
            f"{done.vectors} lies under the root of a process that is not seen to have it open."
        )
    if plan.dies:
        lines += screen.wrap(
            "Stopping it deletes that store. The pair is then put in its place, and what was written since the pair is "
            "lost: stop it at a quiet minute."
        )
    stops = list(dict.fromkeys(map(stop_command, done.holders)))
    if waits:
        lines += ["Stop it; this waits and goes on then:", *(f"  {escape(one)}" for one in stops)]
    else:
        lines += ["Stop it, and run this again:", *(f"  {escape(one)}" for one in stops)]
        lines.append(f"  {_again(plan, screen)}")
    return "\n".join(lines) + "\n"


def relocated_text(done: Relocated, plan: RelocatePlan, screen: Screen) -> str:
    """What a move did, what came along or was lost, and what is kept."""
    lines = []
    if done.settled is not None:
        lines += _cut_off(done.settled, screen, "this run found it")
    if done.state == "published":
        lines += screen.wrap(
            f"The old stores went with the agent. The pair that was taken before is in their place: "
            f"{holds(done.manifest)}."
        )
    else:
        verb = "Finished the move:" if done.resumed else "Moved"
        lines += screen.wrap(f"{verb} {holds(done.manifest)}.")
    stays = "" if done.history_moved else "where it was"
    rows = [["vectors", escape(done.vectors), ""], ["history", escape(done.history), stays]]
    lines += table(rows, indent=1)
    if done.state == "published":
        lines += _lost(done, screen)
    else:
        lines += screen.wrap(
            "Compared row by row, and audited before the old ones were put aside: the same memories and findings."
        )
    lines += _since(done, screen)
    lines += _warnings(done.warnings, screen)
    if done.replaced:
        lines += [f"Put aside, until you discard {'it' if len(done.replaced) == 1 else 'them'}:"]
        lines += [f"  {escape(path)}" for path in done.replaced]
    if done.pair is not None:
        lines += screen.wrap(f"The pair stays, as a snapshot: {done.pair}")
    return "\n".join(lines) + "\n"


def _after(after: AfterMove, screen: Screen) -> list[str]:
    """What would come after the move, where more than words was asked for."""
    lines = update_lines(after.advice, screen) if after.update else []
    for link in after.links:
        lines += screen.wrap(f"Afterwards a link at {link.path} would lead to {link.target}.")
    return lines


def after_text(done: Relocated, after: AfterMove, did: DoneAfter, screen: Screen) -> str:
    """What the agent must be told before it starts or was told already, and the lines to go on with."""
    lines = updated_lines(did.updated, screen)
    for link in did.linked:
        lines += link_lines(link, screen)
    for problem in did.problems:
        lines += [screen.alarm(line) for line in screen.wrap(problem, hanging=2)]
    if all(is_own(one.keys) for one in did.updated):
        lines += config_lines(after.advice, screen, now=not did.linked)
    changed = {one.path for one in did.updated}
    for left in after.advice.updates:
        if is_own(left.keys) and left.path not in changed:
            said = f"{left.path} names the old places too: change {' and '.join(left.keys)} in it."
            lines += screen.wrap(said, hanging=2)
    words = "" if did.updated else shell_words(["--history", done.history, "--qdrant-path", done.vectors])

    def command(*name: str) -> str:
        return f"{screen.program} {' '.join(name)} {words}" if words else screen.command(" ".join(name))

    lines.append(f"Look at it, then start the agent:   {command('audit')}")
    lines.append(f"Then see where it works:   {command('status')}")
    if done.replaced:
        lines.append(f"When all is well:   {command('relocate', '--discard-replaced')}")
    return "\n".join(lines) + "\n"


def _again(plan: RelocatePlan, screen: Screen) -> str:
    more = ["--with-history"] if plan.with_history else []
    more += [] if plan.ledger else ["--no-ledger"]
    more += plan.more
    return screen.command("relocate", "--to", plan.to, *more)


def _named(one: Holder) -> str:
    parts = [f"container {one.container}" if one.container else None, one.unit, one.command]
    return f"pid {one.pid} ({', '.join(part for part in parts if part)})"


def _since(done: Relocated, screen: Screen) -> list[str]:
    came = done.since
    if came is None:
        return []
    said = f"Since the pair: {came.added:,} added, {came.changed:,} changed, {came.removed:,} deleted; all came along."
    lines = screen.wrap(said)
    if came.vanished:
        lines += screen.wrap(
            f"{memories(came.vanished)} of the pair are not there any more, and the log does not delete them.",
            hanging=2,
        )
    return lines


def _lost(done: Relocated, screen: Screen) -> list[str]:
    lost = done.lost
    if lost is None:
        return []
    if lost.rows is None:
        return screen.wrap(
            f"What was written between {lost.taken_at} and the stop is lost, the log of it too: nobody knows how much."
        )
    if not lost.rows:
        return screen.wrap(f"Nothing was logged between {lost.taken_at}, when it was taken, and the stop.")
    lines = screen.wrap(
        f"Lost from the vectors: what was written between {lost.taken_at} and the stop, "
        f"{plural(lost.rows, 'change')} by the log, which has the texts of {memories(lost.memories)}."
    )
    if lost.deleted:
        lines += screen.wrap(
            f"{memories(lost.deleted)} that were deleted since are in the vectors again: mem0audit audit names them.",
            hanging=2,
        )
    return lines


def _cut_off(found: CutOff, screen: Screen, when: str) -> list[str]:
    why = f" ({found.problem})" if found.problem is not None else ""
    return screen.wrap(f"A move was cut off here; {when}: {_COURSES[found.course]}{why}.")


def _warnings(said: tuple[str, ...], screen: Screen) -> list[str]:
    return [line for one in said for line in screen.wrap(one, hanging=2)]


def discard_plan_text(plan: DiscardPlan, screen: Screen) -> str:
    """What would be removed for good."""
    lines = screen.wrap(f"Put aside by moves, {size(sum(plan.sizes))}:")
    rows = [[escape(one.path), size(s)] for one, s in zip(plan.kept, plan.sizes, strict=True)]
    return "\n".join([*lines, *table(rows, indent=1, right=(1,))]) + "\n"


# --- For machines ---------------------------------------------------------------------------------


def plan_json(plan: RelocatePlan, after: AfterMove) -> str:
    """What a move would do next."""
    return dump(
        "relocate-plan",
        {
            "way": plan.way,
            "install": install(plan.seen),
            "vectors": plan.where.vectors,
            "history": plan.where.history,
            "filesystem": plan.filesystem,
            "size_bytes": plan.size_bytes,
            "needed_bytes": plan.needed_bytes,
            "free_bytes": plan.free_bytes,
            "holders": [holder(one) for one in plan.holders],
            "stop": list(dict.fromkeys(map(stop_command, plan.holders))),
            "dies_with_agent": plan.dies,
            "pair": plan.pair,
            "unseen": plan.unseen,
            "warnings": list(plan.warnings),
            "cut_off": _cut_off_json(plan.cut_off),
            "configuration": advice_json(after.advice),
            "update_config": after.update,
            "links": [link_json(link) for link in after.links],
        },
    )


def relocated_json(done: Relocated, after: AfterMove, did: DoneAfter) -> str:
    """What a move did."""
    came, lost = done.since, done.lost
    return dump(
        "relocate",
        {
            "state": done.state,
            "history": done.history,
            "vectors": done.vectors,
            "history_moved": done.history_moved,
            "replaced": list(done.replaced),
            "pair": done.pair,
            "holders": [holder(one) for one in done.holders],
            "stop": list(dict.fromkeys(map(stop_command, done.holders))),
            "counts": dict(done.manifest.counts),
            "findings": dict(done.manifest.findings),
            "taken_at": done.manifest.created_at,
            "since_pair": None
            if came is None
            else {
                "added": came.added,
                "changed": came.changed,
                "deleted": came.removed,
                "vanished": came.vanished,
            },
            "lost": None
            if lost is None
            else {
                "since": lost.taken_at,
                "changes": lost.rows,
                "memories": lost.memories,
                "deleted": lost.deleted,
            },
            "warnings": list(done.warnings),
            "cut_off": _cut_off_json(done.settled),
            "resumed": done.resumed,
            "seconds": round(done.seconds, 3),
            "configuration": advice_json(after.advice),
            "updated": updated_json(did.updated),
            "links": [link_json(link) for link in did.linked],
            "problems": list(did.problems),
        },
    )


def _cut_off_json(found: CutOff | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "folder": found.folder,
        "started_at": found.started_at,
        "course": found.course,
        "problem": found.problem,
    }
