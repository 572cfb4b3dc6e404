"""What `delete` prints, for people and for machines. Never memory text."""

from __future__ import annotations

import json
from typing import Any

from mem0audit.core.erase import Emptied, Emptying, Erased, ErasePlan, HeldBy, Left
from mem0audit.core.scopes import Scope
from mem0audit.core.times import shown
from mem0audit.operations.erase import emptied_and_left, receipt_of
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, install, not_checked
from mem0audit.report.screen import Screen
from mem0audit.report.words import memories, plural, seconds


def erase_plan_text(
    plan: ErasePlan, screen: Screen, *, to_do_it: bool = False, flags: tuple[str, ...] = ()
) -> str:
    """What a deletion would do, and what it does not reach; with `to_do_it` the command that does it, with `flags`."""
    lines = []
    if plan.resumed is not None:
        lines += screen.wrap(
            f"A deletion of {_whose(plan.scope, len(plan.resumed.ids))}, begun {shown(plan.resumed.at)}, was cut off "
            f"here: of its {memories(len(plan.resumed.ids))} {len(plan.ids):,} are still there. This finishes it."
        )
    found = "mem0audit's own" if plan.own else f"{plan.interpreter}, {plan.how_found}"
    lines += screen.wrap(f"This removes, through mem0 {plan.mem0} ({found}):")
    lines += screen.wrap(f"{_removes(plan)}", 3, 3)
    if plan.spelled_otherwise:
        lines += screen.wrap(
            f"{plan.spelled_otherwise:,} of them {'is' if plan.spelled_otherwise == 1 else 'are'} stored under another "
            "spelling of the id (spaces, a number), which mem0 does not reach by its owner",
            3,
            3,
        )
    if plan.redact is not None:
        lines += screen.wrap(
            f"Then it empties, in the file, for mem0 has no call for that: {_empties(plan.redact)}. The rows stay, "
            "with their ids, events and times. The files are rebuilt, and every byte is searched.",
            hanging=3,
        )
    elif _leaves(plan.left):
        lines += screen.wrap(
            f"It leaves, for mem0 has no call that removes them: {_leaves(plan.left)} (--redact empties them).",
            hanging=3,
        )
    if plan.facts and plan.facts_go:
        lines += screen.wrap(
            f"And from the ledger {plural(plan.facts, 'fact')} put down of them, or tied to these memories.",
            hanging=3,
        )
    elif plan.facts:
        lines += screen.wrap(
            f"It leaves {plural(plan.facts, 'fact')} of the ledger tied to them (mem0audit facts history; --redact "
            "removes them).",
            hanging=3,
        )
    reach = _not_reached(plan)
    if reach:
        lines += ["What it does not reach:"]
        for one in reach:
            lines += screen.wrap(one, 3, 5)
    lines += _said((*plan.warnings, *plan.meanwhile), screen)
    if plan.unseen is not None:
        lines += screen.wrap(
            f"No process is seen with it open, but {plan.unseen}: the lock that the agent takes decides."
        )
    if plan.snapshot is not None:
        lines += screen.wrap(
            f"A snapshot is taken first, into {plan.snapshot.folder}. It holds what is to go, counts as "
            f"still readable, and the first command after {_hours(plan.snapshot.seconds)} removes it."
        )
    elif plan.resumed is None:
        lines += screen.wrap(
            "No snapshot is taken first: it would keep what is to go (--snapshot-for 24h: one for a day)."
        )
    if to_do_it:
        words = plan.scope.words if plan.scope is not None else tuple(_memory_words(plan))
        lines += [f"To do it:   {screen.command('delete', *words, *flags)}"]
    return "\n".join(lines) + "\n"


def _memory_words(plan: ErasePlan) -> list[str]:
    if plan.resumed is not None:
        return []
    ids = dict.fromkeys((*map(str, plan.ids), *sorted(plan.ever)))
    return [word for one in ids for word in ("--memory", one)]


def _whose(scope: Scope | None, count: int) -> str:
    return scope.shown if scope is not None else memories(count)


def _removes(plan: ErasePlan) -> str:
    of = f" of {plan.scope.shown}" if plan.scope is not None else ""
    parts = [f"{memories(len(plan.ids))}{of}"]
    gone = len(plan.entities_deleted)
    shared = [links for one, links in plan.entities.items() if one not in plan.entities_deleted]
    if gone:
        parts.append(f"{plural(gone, 'entity', 'entities')} that link{'s' if gone == 1 else ''} nothing else")
    said = ", ".join(parts)
    if shared:
        links = sum(map(len, shared))
        lose = "loses" if len(shared) == 1 else "lose"
        others = plural(len(shared), "entity", "entities")
        said += f"; {others} shared with other memories {lose} {plural(links, 'link')}"
    return said


def _hours(length: float) -> str:
    hours = round(length / 3600)
    return plural(hours, "hour") if hours <= 48 or hours % 24 else plural(hours // 24, "day")


def _empties(what: Emptying | Emptied) -> str:
    said = f"the text of {plural(what.history, 'history row')}"
    return f"{said} and {plural(what.messages, 'chat message')}" if what.messages else said


def _leaves(left: Left) -> str:
    parts = []
    if left.history_rows is None:
        parts.append("history rows that could not be read")
    elif left.history_rows:
        parts.append(f"the text in {plural(left.history_rows, 'history row')}")
    if left.messages is None:
        parts.append("messages that could not be read")
    elif left.messages:
        parts.append(plural(left.messages, "chat message"))
    return ", ".join(parts)


def _not_reached(plan: ErasePlan) -> list[str]:
    said = [_held("the snapshot", one) for one in plan.snapshots]
    said += [_held("other collections of", one) for one in plan.elsewhere]
    if plan.same_text_elsewhere:
        says = "says" if plan.same_text_elsewhere == 1 else "say"
        whose = " of other owners" if plan.scope is not None else " besides"
        said.append(f"{memories(plan.same_text_elsewhere)}{whose} that {says} the same as one of these")
    if plan.redact is not None and plan.redact.unattributed[0]:
        rows, of = plan.redact.unattributed
        said.append(f"{plural(rows, 'history row')} of {memories(of)} that nobody can be found for")
    said += [f"not looked at: {one.what} ({one.why})" for one in plan.not_read]
    return said


def _held(what: str, one: HeldBy) -> str:
    if one.of_server:
        return f"{what} {one.path}: it may hold some of it, in files that only a server reads"
    count = "it could not be read" if one.memories is None else f"{memories(one.memories)} of it"
    return f"{what} {one.path}: {count}"


def _said(warnings: tuple[str, ...], screen: Screen) -> list[str]:
    return [line for one in warnings for line in screen.wrap(one, hanging=2)]


def word_to_type(plan: ErasePlan) -> str:
    """What is typed to confirm: the id, or for several memories how many."""
    if plan.scope is not None:
        return plan.scope.named[0][1]
    return str(plan.ids[0]) if len(plan.ids) == 1 else str(len(plan.ids))


def erased_text(done: Erased, screen: Screen) -> str:
    """What a deletion did, before texts are emptied and before every byte is searched."""
    parts = [memories(done.memories)]
    if done.entities:
        parts.append(plural(done.entities, "entity", "entities"))
    if done.links:
        parts.append(f"{plural(done.links, 'link')} of entities that stay")
    of = f" of {done.scope.shown}" if done.scope is not None else ""
    both = ", counting the run that was cut off" if done.resumed else ""
    lines = screen.wrap(
        f"Removed {', '.join(parts)}{of}, through mem0 {done.mem0}{both}. {seconds(done.seconds)}", hanging=3
    )
    if done.facts:
        lines += [f"Removed from the ledger: {plural(done.facts, 'fact')}."]
    if done.not_logged:
        lines += screen.wrap(
            f"{memories(done.not_logged)} went without a DELETE row in the log: mem0 was killed, or its server "
            "silent, between its two writes, and no call of it can log that later.",
            hanging=3,
        )
    if done.snapshot is not None:
        lines += screen.wrap(f"Taken before it, and soon to go: {done.snapshot}", hanging=3)
    if done.install.vectors is None:
        came = "nothing of it came in between" if done.scope is not None else "none of it came back"
        lines += screen.wrap(f"Both stores were read again at the end: {came}.", hanging=3)
        lines += screen.wrap(
            "What was deleted may still lie in the server's own files: they are not searched from here.",
            hanging=3,
        )
    elif not done.overwritten:
        lines += screen.wrap(
            "What was deleted may still lie in free pages of the files: it was not overwritten.", hanging=3
        )
    lines += _said(done.warnings, screen)
    lines += screen.wrap(
        f"On record, so that no restore brings it back: {', '.join((done.ledger, *done.recorded))}", hanging=3
    )
    return "\n".join(lines) + "\n"


def emptied_text(done: Erased, screen: Screen) -> str:
    """What was emptied afterwards; empty where that was not asked for."""
    emptied = done.emptied
    if emptied is None:
        return ""
    both = ", counting the run that was cut off" if done.resumed else ""
    lines = screen.wrap(
        f"Emptied {_empties(emptied)}{both}; rebuilt {plural(emptied.files, 'file')}.",
        hanging=3,
    )
    if emptied.seal is not None:
        lines += screen.wrap(
            f"The chain of seals does not know of this ({emptied.seal}): the next audit may find a change.",
            hanging=3,
        )
    return "\n".join(lines) + "\n"


def verdict_text(done: Erased, screen: Screen, receipt: str | None = None) -> str:
    """What may be said of it as a whole, after the report on what is still readable."""
    whose = _whose(done.scope, done.memories)
    lines = []
    if done.not_known:
        lines += screen.wrap(
            f"{plural(done.not_known, 'text')} went with the run that was cut off: nobody knows them any more, so they "
            "could not be searched for.",
            hanging=3,
        )
    if done.erased and done.after is not None:
        others = ", but where others own the same" if any(one.shared for one in done.after.files) else ""
        lines += [
            screen.bold(line)
            for line in screen.wrap(
                f"Erased: none of the {plural(done.after.texts, 'text')} known of {whose} is in any row or byte that "
                f"was searched{others}."
            )
        ]
    if receipt is not None:
        lines += [f"Receipt: {escape(receipt)}"]
    return "\n".join(lines) + "\n" if lines else ""


# --- For machines ------------------------------------------------------------------------------------


def erase_plan_json(plan: ErasePlan) -> str:
    """What a deletion would do."""
    return dump(
        "delete-plan",
        {
            "install": install(plan.install),
            "scope": _scope(plan.scope),
            "mem0": plan.mem0,
            "agent_python": plan.interpreter,
            "agent_known_by": plan.how_found,
            "ids": [str(one) for one in plan.ids],
            "spelled_otherwise": plan.spelled_otherwise,
            "entities": [
                {"id": str(one), "links": len(links), "deleted": one in plan.entities_deleted}
                for one, links in plan.entities.items()
            ],
            "left": _left(plan.left),
            "redact": None
            if plan.redact is None
            else {
                "history_rows": plan.redact.history,
                "messages": plan.redact.messages,
                "unattributed_rows": plan.redact.unattributed[0],
            },
            "short_lived_snapshot": None
            if plan.snapshot is None
            else {"folder": plan.snapshot.folder, "seconds": plan.snapshot.seconds},
            "places": [{"kind": one.kind, "name": one.name, "count": one.count} for one in plan.places],
            "facts": plan.facts,
            "facts_removed": plan.facts_go,
            "same_text_elsewhere": plan.same_text_elsewhere,
            "elsewhere": [_held_json(one) for one in plan.elsewhere],
            "snapshots": [_held_json(one) for one in plan.snapshots],
            "not_checked": [not_checked(one) for one in plan.not_read],
            "resumed": plan.resumed is not None,
            "unseen": plan.unseen,
            "warnings": [*plan.warnings, *plan.meanwhile],
        },
    )


def erased_json(done: Erased, residue: str | None = None) -> str:
    """What a deletion did; `residue` is the report on what can still be read, as `residue --format json` has it."""
    return dump(
        "delete",
        {
            "install": install(done.install),
            "scope": _scope(done.scope),
            "at": shown(done.at),
            "mem0": done.mem0,
            "qdrant_client": done.client,
            "python": done.python,
            "removed": receipt_of(done)["removed"],
            "ids": list(done.ids),
            "not_logged": done.not_logged,
            "overwritten": done.overwritten,
            "before": _left(done.before),
            "left": _left(done.left),
            **{key: value for key, value in emptied_and_left(done).items() if key != "searched"},
            "texts_not_known": done.not_known,
            "snapshots": [_held_json(one) for one in done.snapshots],
            "resumed": done.resumed,
            "records": [done.ledger, *done.recorded],
            "warnings": list(done.warnings),
            "seconds": round(done.seconds, 3),
            "residue": None if residue is None else json.loads(residue),
        },
    )


def _scope(scope: Scope | None) -> dict[str, str] | None:
    return None if scope is None else dict(scope.named)


def _left(left: Left) -> dict[str, int | None]:
    return {"history_rows": left.history_rows, "messages": left.messages}


def _held_json(one: HeldBy) -> dict[str, Any]:
    return {"path": one.path, "memories": one.memories}
