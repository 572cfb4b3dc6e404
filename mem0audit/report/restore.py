"""What `snapshot restore` prints, for people and for machines."""

from __future__ import annotations

from typing import Any

from mem0audit.core.restore import DiscardPlan, Interrupted, Restored, RestorePlan, ToErase
from mem0audit.core.serverrestore import ServerTarget
from mem0audit.core.snapshot import Manifest
from mem0audit.report.escape import escape, shell_word
from mem0audit.report.json import dump, install
from mem0audit.report.screen import Screen, table
from mem0audit.report.snapshots import holds
from mem0audit.report.words import plural, size

_COURSES = {
    "clean": "it had exchanged nothing: what it left is cleared away",
    "finish": "it is finished",
    "back": "it is taken back",
    "stuck": "it cannot be told how far it came",
}


def restore_plan_text(plan: RestorePlan, screen: Screen, *, to_do_it: bool = False) -> str:
    """What a restore would do; with `to_do_it` the command that does it."""
    name = plan.manifest.name
    if plan.server is not None:
        lines = _onto_server(plan, plan.server, screen)
    elif plan.to is not None:
        lines = screen.wrap(f"This would restore {name} into {plan.to}, and has changed nothing.")
    else:
        lines = screen.wrap(f"This would restore {name} in place, and has changed nothing:")
        lines += table(
            [
                [escape(t.path), "exchanged, the old one is put aside" if t.exists else "not there: made"]
                for t in plan.targets
            ],
            indent=1,
        )
    lines += _about(plan.manifest, screen)
    lines += _to_erase(plan.erase, screen, done=False)
    if plan.interrupted is not None:
        lines += _interrupted(plan.interrupted, screen, "first")
    if plan.unseen is not None:
        lines += screen.wrap(
            f"No process is seen with it open, but {plan.unseen}: the lock that the agent takes decides."
        )
    lines += _warnings((*plan.warnings, *_of_another(plan), *_without_record(plan)), screen)
    if to_do_it:
        where = ("--in-place",) if plan.to is None else ("--to", plan.to)
        without = ("--without-erasure-record",) if plan.not_read else () if plan.ledger else ("--no-ledger",)
        python = ("--agent-python", plan.agent_python) if plan.agent_python is not None else ()
        command = screen.command("snapshot restore", plan.snapshot, *where, *without, *python)
        lines += [f"To do it:   {command}"]
    return "\n".join(lines) + "\n"


def _to_erase(erase: ToErase, screen: Screen, *, done: bool) -> list[str]:
    """Who was erased since the snapshot was taken, and is erased in it before it is put in place."""
    lines = []
    if erase.anything:
        since = plural(erase.erasures, "erasure is", "erasures are")
        under = ""
        if erase.mem0 is not None:
            whose = "mem0audit's own" if erase.own else erase.how_found
            under = f" under mem0 {erase.mem0} ({whose})"
        points = " and ".join(
            (plural(erase.memories, "memory", "memories"), plural(erase.entities, "entity", "entities"))
        )
        texts = f"{plural(erase.rows, 'log row')} and {plural(erase.messages, 'message')}"
        when = (
            "went before it was put in place" if done else "goes from the copies before they are put in place"
        )
        then = "No byte of both stores holds any of it." if done else "Then every byte is searched for it."
        lines += screen.wrap(
            f"{since} on record since it was taken. What is theirs {when}: {points}, deleted{under}; the text of "
            f"{texts}, emptied. {then}"
        )
    rows, memories = erase.unattributed
    if erase.covering.erasures and rows:
        lines += screen.wrap(
            f"Of {plural(memories, 'memory', 'memories')} in its log ({plural(rows, 'row')}) nobody can say whose they "
            "were: their text stays, and may be of somebody erased."
        )
    return lines


def _onto_server(plan: RestorePlan, server: ServerTarget, screen: Screen) -> list[str]:
    """What it would do to the log and to each collection."""
    where = "in place" if plan.to is None else f"into {plan.to} and new collections"
    lines = screen.wrap(f"This would restore {plan.manifest.name} {where}, and has changed nothing:")
    rows = [
        [escape(t.path), "exchanged, the old one is put aside" if t.exists else "not there: made"]
        for t in plan.targets
    ]
    if plan.to is not None:
        rows.append([f"{escape(plan.to)}/history.db", "made"])
    for piece in server.collections:
        points = "points not counted" if piece.copy.points is None else plural(piece.copy.points, "point")
        rows.append([escape(piece.name), f"{'replaced' if piece.exists else 'made'} on the server, {points}"])
    lines += table(rows, indent=1)
    lines += screen.wrap(f"On Qdrant {escape(server.version)} at {escape(server.url)}.")
    if any(piece.exists for piece in server.collections):
        lines += screen.wrap(
            f"First a snapshot of what is there, in {server.folder}; then it is tried under a scratch name."
        )
    if plan.erase.covering.erasures:
        lines += screen.wrap("To see whom it holds it was put there under a scratch name, and removed again.")
    return lines


def restore_question(plan: RestorePlan) -> str:
    """What is asked before a restore in place."""
    kind = ", which is not a pair," if not plan.manifest.pair else ""
    kind = kind or (", which is not settled," if not plan.manifest.settled else "")
    return f"Put {plan.manifest.name}{kind} in place of both stores?"


def _of_another(plan: RestorePlan) -> tuple[str, ...]:
    """In place: the pair was taken from other paths, so that another install may be meant."""
    taken = (plan.manifest.history.value, plan.manifest.vectors.value)
    if plan.install is None or plan.install.vectors is None or not plan.manifest.pair:
        return ()
    if (plan.install.history.value, plan.install.vectors.value) == taken:
        return ()
    return (f"It was taken from other paths: {taken[0]}, {taken[1]}. Is this the install that is meant?",)


def _without_record(plan: RestorePlan) -> tuple[str, ...]:
    if not plan.not_read:
        return ()
    return (f"It is not known whether somebody was erased since: {'; '.join(plan.not_read)}.",)


def _about(manifest: Manifest, screen: Screen) -> list[str]:
    wrote = [f"{key} {manifest.versions.get(key) or 'not known'}" for key in ("mem0ai", "qdrant-client")]
    return screen.wrap(
        f"{holds(manifest)}, as of {manifest.created_at}, from {manifest.hostname}. Written by {', '.join(wrote)}."
    )


def _interrupted(found: Interrupted, screen: Screen, when: str) -> list[str]:
    of = f" of {found.snapshot}" if found.snapshot is not None else ""
    why = f" ({found.problem})" if found.problem is not None else ""
    return screen.wrap(f"A restore{of} was cut off here; {when}: {_COURSES[found.course]}{why}.")


def _warnings(said: tuple[str, ...], screen: Screen) -> list[str]:
    return [line for one in said for line in screen.wrap(one, hanging=2)]


def restored_text(done: Restored, plan: RestorePlan, screen: Screen) -> str:
    """What a restore did: where both stores are, what was replaced, and the lines to go on with."""
    lines = []
    if done.settled is not None:
        lines += _interrupted(done.settled, screen, "this run found it")
    where = "in place" if done.in_place else "into a new folder"
    if done.collection is not None and not done.in_place:
        where = "into a new folder and new collections"
    verb = "Finished the restore of" if done.resumed else "Restored"
    lines += screen.wrap(f"{verb} {done.manifest.name} {where}.")
    rows = [["history", escape(done.history)], ["vectors", escape(done.vectors)]]
    rows += [] if done.collection is None else [["collection", escape(done.collection)]]
    lines += table(rows, indent=1)
    lines += _about(done.manifest, screen)
    if not done.resumed:
        lines += _to_erase(plan.erase, screen, done=True)
    if done.between:
        lines += [screen.alarm("Not what the snapshot holds any more:"), *_warnings(done.between, screen)]
    elif done.collection is not None:
        less = ", less who was erased since" if plan.erase.anything and not done.resumed else ""
        lines += screen.wrap(f"Read again: the same points and changes as when it was taken{less}.")
    elif done.not_audited is not None:
        lines += screen.wrap(f"Not compared with the snapshot again: {done.not_audited}.")
    else:
        less = ", less who was erased since" if plan.erase.anything else ""
        lines += [f"Audited: the same memories, changes and findings as when it was taken{less}."]
    lines += _warnings((*done.warnings, *_without_record(plan)), screen)
    if done.replaced:
        lines += [f"Put aside, until you discard {'it' if len(done.replaced) == 1 else 'them'}:"]
        lines += [f"  {escape(path)}" for path in done.replaced]
    if done.kept is not None:
        lines += [f"What was there before, to go back to:   {escape(done.kept)}"]
    if done.collection is not None and not done.in_place:
        words = " ".join(["--history", shell_word(done.history), *_same_server(done.vectors, screen)])
        words += f" --collection {shell_word(done.collection)}"
        lines += screen.wrap(
            "To use it, set collection_name and history_db_path of the agent's configuration to them."
        )
        return "\n".join([*lines, f"Look at it:   {screen.program} audit {words}"]) + "\n"
    if not done.in_place:
        words = f"--history {shell_word(done.history)} --qdrant-path {shell_word(done.vectors)}"
        return "\n".join([*lines, f"Look at it:   {screen.program} audit {words}"]) + "\n"
    lines += [f"Look at it, then start the agent:   {screen.command('audit')}"]
    if done.replaced:
        discard = screen.command("snapshot restore", "--discard-replaced")
        lines += [f"When all is well:   {discard}"]
    return "\n".join(lines) + "\n"


def discard_plan_text(plan: DiscardPlan, screen: Screen) -> str:
    """What would be removed for good."""
    lines = [f"Put aside by restores, {size(sum(plan.sizes))}:"]
    rows = [[escape(one.path), size(s)] for one, s in zip(plan.kept, plan.sizes, strict=True)]
    return "\n".join([*lines, *table(rows, indent=1, right=(1,))]) + "\n"


def discarded_text(removed: tuple[str, ...], screen: Screen) -> str:
    """What was removed."""
    return (
        "\n".join(screen.wrap(f"Removed {plural(len(removed), 'file or folder', 'files and folders')}."))
        + "\n"
    )


# --- For machines ---------------------------------------------------------------------------------


def restore_plan_json(plan: RestorePlan) -> str:
    """What a restore would do."""
    return dump(
        "restore-plan",
        {
            "snapshot": plan.snapshot,
            "name": plan.manifest.name,
            "to": plan.to,
            "install": None if plan.install is None else install(plan.install),
            "targets": [
                {"half": t.half, "path": t.path, "exists": t.exists, "filesystem": t.filesystem, "way": t.way}
                for t in plan.targets
            ],
            "size_bytes": plan.manifest.size_bytes,
            "versions": dict(plan.manifest.versions),
            "counts": dict(plan.manifest.counts),
            "warnings": list(plan.warnings),
            "records_not_read": list(plan.not_read),
            "erase": _erase_json(plan.erase),
            "unseen": plan.unseen,
            "interrupted": _interrupted_json(plan.interrupted),
            **({} if plan.server is None else {"server": _server_json(plan.server)}),
        },
    )


def _server_json(server: ServerTarget) -> dict[str, Any]:
    return {
        "url": server.url,
        "version": server.version,
        "collections": [
            {"name": one.name, "role": one.role, "exists": one.exists, "points": one.copy.points}
            for one in server.collections
        ],
        "snapshot_to": server.folder,
    }


def restored_json(done: Restored, plan: RestorePlan) -> str:
    """What a restore did."""
    return dump(
        "restore",
        {
            "snapshot": done.snapshot,
            "name": done.manifest.name,
            "in_place": done.in_place,
            "history": done.history,
            "vectors": done.vectors,
            "replaced": list(done.replaced),
            "versions": dict(done.manifest.versions),
            "counts": dict(done.manifest.counts),
            "warnings": list(done.warnings),
            "records_not_read": list(plan.not_read),
            "erased": None if done.erased is None else _erase_json(done.erased),
            "interrupted": _interrupted_json(done.settled),
            "resumed": done.resumed,
            "not_audited": done.not_audited,
            "seconds": round(done.seconds, 3),
            **(
                {}
                if done.collection is None
                else {"collection": done.collection, "kept": done.kept, "between": list(done.between)}
            ),
        },
    )


def _interrupted_json(found: Interrupted | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "folder": found.folder,
        "snapshot": found.snapshot,
        "started_at": found.started_at,
        "course": found.course,
        "places": [{"path": path, "state": state} for path, state in found.places],
        "problem": found.problem,
    }


def discard_json(plan: DiscardPlan, *, removed: bool) -> str:
    """What was put aside by restores or moves, and whether it was removed now."""
    return dump(
        "discard",
        {
            "removed": removed,
            "replaced": [
                {
                    "path": one.path,
                    "size_bytes": s,
                    "work": one.work,
                    "snapshot": one.snapshot,
                    "restored_at": one.at,
                }
                for one, s in zip(plan.kept, plan.sizes, strict=True)
            ],
        },
    )


def _erase_json(erase: ToErase) -> dict[str, Any]:
    """Who was erased since, in counts."""
    return {
        "erasures": erase.erasures,
        "memories": erase.memories,
        "entities": erase.entities,
        "links": erase.links,
        "history_rows": erase.rows,
        "messages": erase.messages,
        "unattributed_rows": erase.unattributed[0],
        "unattributed_memories": erase.unattributed[1],
        "mem0": erase.mem0,
        "own_mem0": erase.own,
        "not_read": list(erase.not_read),
    }


def _same_server(url: str, screen: Screen) -> list[str]:
    """How the user named the server, and where its key is."""
    pairs = zip(screen.flags, screen.flags[1:], strict=False)
    named = {flag: word for flag, word in pairs if flag in ("--config", "--qdrant-url", "--api-key-env")}
    if "--config" not in named:
        named.setdefault("--qdrant-url", url)
    return [shell_word(word) for pair in sorted(named.items(), reverse=True) for word in pair]
