"""What `snapshot expire` and `snapshot keep` say, for people and for machines."""

from __future__ import annotations

from mem0audit.core.marks import Kept
from mem0audit.core.retention import Decision
from mem0audit.operations.expire import Expired, ExpirePlan
from mem0audit.report.escape import escape, shell_word
from mem0audit.report.json import dump, kept_json
from mem0audit.report.screen import Screen
from mem0audit.report.words import plural, size


def plan_text(plan: ExpirePlan, screen: Screen, *, going: str = "remove") -> str:
    """Every snapshot with all its reasons, newest first, and what would be freed. `going` is the word for those
    that go."""
    if not plan.decisions:
        return f"No snapshot in {escape(plan.folder)}.\n"
    lines = _each(plan, screen, going)
    lines += ["", _sum(plan)]
    lines += _advice(plan, screen)
    return "\n".join(lines) + "\n"


def _each(plan: ExpirePlan, screen: Screen, going: str) -> list[str]:
    """A line for each; where several installs have snapshots there, by install."""
    lines = []
    for series in plan.series if len(plan.series) > 1 else ("",):
        if series:
            lines += screen.wrap(series, hanging=2)
        lines += [
            line
            for one in plan.decisions
            if one.snapshot.series == series or not series
            for line in _one(one, screen, going)
        ]
    if len(plan.series) > 1:
        unknown = [one for one in plan.decisions if not one.snapshot.series]
        lines += ["not known of which install"] if unknown else []
        lines += [line for one in unknown for line in _one(one, screen, going)]
    return lines


def _one(one: Decision, screen: Screen, going: str) -> list[str]:
    word = "keep" if one.keep else going
    first = f"{word:<{max(len(going), 4)}}  {one.snapshot.name}  "
    return screen.wrap("; ".join(_reasons(one)), hanging=6, first=first)


def _reasons(one: Decision) -> tuple[str, ...]:
    return one.reasons or ("no place is left for it",)


def _sum(plan: ExpirePlan) -> str:
    free = sum(plan.sizes[one.snapshot.name] or 0 for one in plan.removed)
    kept = f"{plural(len(plan.kept), 'snapshot')} would stay"
    if not plan.removed:
        return f"{kept}, none would go."
    return f"{kept}, {len(plan.removed):,} would go: {size(free)}."


def _advice(plan: ExpirePlan, screen: Screen) -> list[str]:
    lines = []
    unverified = [one for one in plan.decisions if one.snapshot.state == "not verified"]
    if unverified:
        lines += screen.wrap(
            f"{plural(len(unverified), 'snapshot is', 'snapshots are')} not verified: such a one uses up no place, "
            "and stays while it may be the better copy. To know:"
        )
        lines.append(f"  {screen.program} snapshot verify --to {shell_word(plan.folder)}")
    if plan.damaged:
        lines += screen.wrap(
            f"{plural(len(plan.damaged), 'snapshot has', 'snapshots have')} a damaged manifest. What still reads "
            "in it may be wanted; where not, remove it by hand."
        )
    return lines


def expired_text(done: Expired, screen: Screen, *, listed: bool) -> str:
    """What was done; with `listed` each snapshot with its reasons first."""
    lines = []
    if listed:
        lines = _each(done.plan, screen, "removed")
    free = sum(done.plan.sizes[name] or 0 for name in done.removed)
    stayed = plural(len(done.plan.decisions) - len(done.removed), "snapshot")
    lines.append(f"Removed {len(done.removed):,}: {size(free)}. {stayed} kept in {escape(done.plan.folder)}.")
    if done.spared:
        lines += screen.wrap(f"Not removed after all, something changed meanwhile: {', '.join(done.spared)}.")
    if done.cleared:
        lines += screen.wrap(f"Cleared away what runs before it left: {', '.join(done.cleared)}.")
    if listed:
        lines += _advice(done.plan, screen)
    return "\n".join(lines) + "\n"


def expire_json(plan: ExpirePlan, done: Expired | None) -> str:
    """The plan, and what was done where it was: `done` is None for a dry run."""
    if done is not None:
        plan = done.plan
    went = done.removed if done is not None else tuple(one.snapshot.name for one in plan.removed)
    policy = plan.policy
    return dump(
        "snapshot-expire",
        {
            "folder": plan.folder,
            "dry_run": done is None,
            "policy": {
                "last": policy.last,
                "daily": policy.daily,
                "weekly": policy.weekly,
                "monthly": policy.monthly,
                "within": policy.within,
            },
            "snapshots": [
                {
                    "name": one.snapshot.name,
                    "path": f"{plan.folder}/{one.snapshot.name}",
                    "action": "keep" if one.keep else "remove",
                    "state": one.snapshot.state,
                    "series": one.snapshot.series,
                    "taken_at": one.snapshot.taken_at,
                    "reasons": list(one.reasons),
                    "size_bytes": plan.sizes[one.snapshot.name],
                }
                for one in plan.decisions
            ],
            "removed": [] if done is None else list(done.removed),
            "spared": [] if done is None else list(done.spared),
            "cleared": [] if done is None else list(done.cleared),
            "freed_bytes": sum(plan.sizes[name] or 0 for name in went),
        },
    )


# --- keep ----------------------------------------------------------------------------------------


def keep_text(path: str, kept: Kept | None) -> str:
    """The mark as it is now."""
    if kept is None:
        return f"{escape(path)} is not marked: expire goes by its policy.\n"
    return f"{escape(path)} is kept: {escape(kept.reason)}\n"


def keep_json(path: str, kept: Kept | None) -> str:
    """The same for machines."""
    return dump("snapshot-keep", {"path": path, "name": path.rpartition("/")[2], "kept": kept_json(kept)})
