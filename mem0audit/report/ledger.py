"""What `ledger` prints, for people and for machines. Never memory text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mem0audit.core.ledger import DAY_S, REVIEW_S, UNUSED_S, LedgerFact, hidden_from
from mem0audit.core.points import shown_owner
from mem0audit.core.rules.validity import FEWEST_STALE, STALE_SHARE
from mem0audit.core.times import age, shown
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, install, plain
from mem0audit.report.screen import Screen, table
from mem0audit.report.words import memories

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.operations.ledgerfacts import ExpiryPlan, Known, LedgerStatus

UNKNOWN = "unknown"


def status_text(found: LedgerStatus, screen: Screen) -> str:
    """The ledger's memories in numbers."""
    kept = found.kept
    stale = kept.rows - kept.live
    rows = [
        [f"{kept.live:,}", f"live, of {memories(kept.rows)} that it knows"],
        [f"{len(kept.superseded):,}", "superseded: mem0 still retrieves those that are stored"],
        [f"{len(kept.expired):,}", "expired"],
        [f"{kept.unknown:,}", "of the live from an unknown source"],
        [f"{kept.unconfirmed:,}", f"of the live not confirmed for {REVIEW_S // DAY_S} days"],
        [f"{kept.no_source:,}", "of these from an unknown source: first in a review"],
    ]
    if kept.unused is not None:
        rows.append([f"{kept.unused:,}", f"of the live not used for {UNUSED_S // DAY_S} days"])
    lines = [f"ledger {escape(found.path)}", *table(rows, right=(0,))]
    if kept.unused is None:
        since = "" if found.used_since is None else f", since {shown(found.used_since)[:10]}"
        lines += screen.wrap(
            f"Use is not recorded for {UNUSED_S // DAY_S} days yet{since}: an agent records it with "
            "mem0audit.live(memory.search(…)), or `mem0audit ledger used`."
        )
    if stale >= FEWEST_STALE and stale * STALE_SHARE > kept.rows:
        lines += screen.wrap(f"A wide gap: {memories(stale)} that hold no more are not removed (T706).")
        lines += [f"   {screen.command('audit', '--select', 'T')}"]
    if kept.unconfirmed:
        lines += [f"To go through the oldest:   {screen.command('review')}"]
    return "\n".join(lines) + "\n"


def _day(at: float | None) -> str:
    return UNKNOWN if at is None else shown(at)


def known_text(known: Known, screen: Screen, now: float) -> str:
    """What the ledger has of one memory."""
    return "\n".join([escape(known.memory_id), *fact_lines(known.fact, screen, now)]) + "\n"


def fact_lines(fact: LedgerFact, screen: Screen, now: float) -> list[str]:
    """The same, without its id."""
    confirmed = (
        UNKNOWN
        if fact.confirmed_at is None
        else f"{shown(fact.confirmed_at)}, {_ago(fact.confirmed_at, now)}"
    )
    rows = [
        ["owner", shown_owner(fact.owner)],
        ["source", fact.source or UNKNOWN],
        ["provenance", ", ".join(said_by(fact)) or UNKNOWN],
        ["added", _day(fact.created_at)],
        ["confirmed", confirmed],
        ["holds until", "no end" if fact.expires_at is None else _until(fact.expires_at, now)],
        ["used", "not recorded" if fact.last_used_at is None else shown(fact.last_used_at)],
    ]
    if fact.superseded_at is not None:
        by = fact.superseded_by or "what is not known any more"
        to_come = "" if fact.is_superseded(now) else "will be, "
        rows.append(["superseded", f"{to_come}{shown(fact.superseded_at)} by {by}"])
    return [line for name, value in rows for line in screen.wrap(value, hanging=14, first=f"  {name:<12}")]


def _ago(at: float, now: float) -> str:
    return f"{age(max(now - at, 0))} ago"


def _until(at: float, now: float) -> str:
    return f"{shown(at)}{', which has passed' if at <= now else ''}"


def said_by(fact: LedgerFact) -> tuple[str, ...]:
    """Who said it, as mem0 kept it: "said by user ann", "attributed to user"; () where it did not."""
    who = " ".join(filter(None, (fact.role, fact.actor_id)))
    said = f"said by {who}" if who else ""
    return tuple(filter(None, (said, f"attributed to {fact.attributed_to}" if fact.attributed_to else "")))


def superseded_text(older: Known, newer: Known | None, screen: Screen) -> str:
    """What was put down of two memories."""
    if newer is None:
        lines = screen.wrap(f"{older.memory_id} holds: nothing replaced it.", hanging=3)
    else:
        lines = screen.wrap(f"{older.memory_id} is superseded by {newer.memory_id}.", hanging=3)
        lines += screen.wrap(
            "mem0 still retrieves it: an agent that asks through mem0audit.live(memory.search(…)) does not get it. To "
            "remove it:"
        )
        lines += [f"   {screen.command('delete', '--memory', older.memory_id)}"]
    return "\n".join(lines) + "\n"


def expiry_text(
    plan: ExpiryPlan, screen: Screen, now: float, *, done: bool, warnings: Sequence[str] = ()
) -> str:
    """Until when a memory holds, and what mem0 makes of it."""
    name = plan.known.memory_id
    said = f"{name} holds on." if plan.at is None else f"{name} holds until {_until(plan.at, now)}."
    lines = screen.wrap(said, hanging=3)
    if plan.mem0 is not None:
        verb = "has" if done else "gets"
        if plan.day is None:
            lines += screen.wrap(f"mem0 {plan.mem0} {verb} no expiration date for it.", hanging=3)
        else:
            hides = hidden_from(plan.day)
            assert hides is not None
            lines += screen.wrap(
                f"mem0 {plan.mem0} {verb} {plan.day} as its expiration date, and hides it from {shown(hides)} on: once "
                "that day is over in UTC.",
                hanging=3,
            )
    else:
        lines += screen.wrap(
            f"In the ledger alone: mem0 does not hide it, mem0audit.live does. {plan.why_not}.", hanging=3
        )
        if plan.day is not None:
            lines += screen.wrap(
                "Inside the agent, with mem0 2.0.12 or later, this has mem0 hide it too:", hanging=3
            )
            lines += [f'   memory.update("{escape(name)}", expiration_date="{plan.day}")']
    for one in warnings:
        lines += screen.wrap(one, hanging=3)
    return "\n".join(lines) + "\n"


def used_text(ids: Sequence[str], unknown: Sequence[str]) -> str:
    """What was recorded."""
    more = f"; {len(unknown):,} not known yet (the next audit finds them)" if unknown else ""
    return f"{memories(len(ids) - len(unknown))} used now{more}.\n"


# --- For machines ------------------------------------------------------------------------------------


def fact_json(memory_id: str, fact: LedgerFact, now: float) -> dict[str, Any]:
    """A row of the ledger; times are text in UTC."""
    times = {
        name: None if at is None else shown(at)
        for name, at in (
            ("created_at", fact.created_at),
            ("confirmed_at", fact.confirmed_at),
            ("expires_at", fact.expires_at),
            ("last_used_at", fact.last_used_at),
            ("superseded_at", fact.superseded_at),
        )
    }
    user, agent, run = map(plain, fact.owner)
    return {
        "id": memory_id,
        "user_id": user,
        "agent_id": agent,
        "run_id": run,
        "source": fact.source,
        "role": fact.role,
        "actor_id": fact.actor_id,
        "attributed_to": fact.attributed_to,
        **times,
        "superseded_by": fact.superseded_by,
        "live": fact.is_live(now),
    }


def status_json(found: LedgerStatus) -> str:
    """The ledger's memories in numbers."""
    kept = found.kept
    return dump(
        "ledger-status",
        {
            "install": install(found.install),
            "path": found.path,
            "rows": kept.rows,
            "live": kept.live,
            "superseded": len(kept.superseded),
            "expired": len(kept.expired),
            "dangling": sorted(kept.dangling),
            "unconfirmed": kept.unconfirmed,
            "no_source": kept.no_source,
            "unknown_source": kept.unknown,
            "oldest_confirmation": None if kept.oldest is None else shown(kept.oldest),
            "unused": kept.unused,
            "used_since": None if found.used_since is None else shown(found.used_since),
        },
    )


def known_json(known: Known, of: Install, now: float) -> str:
    """What the ledger has of one memory."""
    return dump(
        "ledger-memory", {"install": install(of), "memory": fact_json(known.memory_id, known.fact, now)}
    )


def expiry_json(plan: ExpiryPlan, *, done: bool, warnings: Sequence[str] = ()) -> str:
    """Until when a memory holds."""
    return dump(
        "ledger-expire",
        {
            "install": install(plan.install),
            "id": plan.known.memory_id,
            "expires_at": None if plan.at is None else shown(plan.at),
            "expiration_date": plan.day,
            "mem0": plan.mem0,
            "why_not_in_mem0": plan.why_not,
            "done": done,
            "warnings": list(warnings),
        },
    )


def used_json(ids: Sequence[str], unknown: Sequence[str]) -> str:
    """What was recorded as used."""
    return dump("ledger-used", {"used": len(ids) - len(unknown), "unknown": list(unknown)})
