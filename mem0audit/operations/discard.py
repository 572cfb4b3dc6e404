"""Remove what restores put aside: an act of its own, and only what is recorded."""

from __future__ import annotations

import sys
from pathlib import Path

from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.model import Install
from mem0audit.core.restore import DiscardPlan, Kept, record_text, same
from mem0audit.install.host import Host
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.operations.interrupted import interrupted, read_record, record_path, words
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.targets import how_to_stop, named, only_linux, target_of, targets_of
from mem0audit.stores import exchange


def put_aside(install: Install, host: Host) -> tuple[Kept, ...]:
    """What restores of this install replaced and is still there; () where there is nothing, or it cannot be told."""
    if sys.platform != "linux":
        return ()
    try:
        return tuple(_still_there(*_stores(install, host)))
    except (Mem0auditError, OSError):
        return ()


def _stores(install: Install, host: Host) -> tuple[str, str | None]:
    """The log and the vector folder, links followed; None for a server, where nothing lies aside. Raises Refused."""
    if install.vectors is None and install.server_url is not None:
        return target_of("history", install.history.value, host).real, None
    history, vectors = targets_of(install, None, host)
    return history.real, vectors.real


def _still_there(history: str, vectors: str | None) -> list[Kept]:
    folders = {str(Path(history).parent)}
    if vectors is not None:
        folders |= {str(Path(vectors).parent), vectors}
    return [
        one
        for one in read_record(record_path(history))
        if (one.work != "restore" or str(Path(one.path).parent) in folders)  # a move comes from anywhere
        and same(exchange.identity_of(one.path), one.identity)
    ]


def plan_discard(install: Install, host: Host, work: str = "restore") -> DiscardPlan:
    """What `--discard-replaced` would remove: only what is recorded as put aside by a restore (or a "move") of this
    install, and is still the same. Changes nothing. Raises Refused, CouldNotRead where there is nothing."""
    only_linux()
    history, vectors = _stores(install, host)
    refuse_left_moves(install, host)
    found = interrupted(install, host)
    if found is not None:
        raise Refused(
            f"a restore was cut off here ({found.folder}): nothing is discarded before it is settled",
            "the same command with --in-place instead of --discard-replaced settles it",
        )
    path = record_path(history)
    try:
        there = _still_there(history, vectors)
    except OSError as error:
        raise CouldNotRead(f"{path}: {words(error)}") from None
    kept = [one for one in there if one.work == work]
    if not kept:
        raise CouldNotRead(
            f"{install.history.value}: no {work} of this install put anything aside that is still there"
        )
    look = holders([one.path for one in kept], host)
    if look.holders:
        raise Refused(
            f"{look.holders[0].paths[0]} is in use by {named(look.holders[0])}",
            how_to_stop(look.holders, [one.path for one in kept], host),
        )
    sizes = tuple(look_at(one.path, host).size_bytes or 0 for one in kept)
    return DiscardPlan(str(path), tuple(kept), sizes, tuple(one for one in there if one.work != work))


def apply_discard(plan: DiscardPlan) -> tuple[str, ...]:
    """Removes what was planned, then the record; the paths. Raises Failed (what is left stays recorded)."""
    removed = []
    try:
        for one in plan.kept:
            if same(exchange.identity_of(one.path), one.identity):
                exchange.discard(Path(one.path), sides=not one.path.endswith(exchange.SIDES))
                removed.append(one.path)
        if plan.others:
            record = Path(plan.record)
            exchange.write_in(record.parent, record.name, record_text(plan.others).encode("ascii"))
        else:
            exchange.remove_record(Path(plan.record))
    except OSError as error:
        raise Failed(f"{words(error)}; {len(removed)} removed", "the same command removes the rest") from None
    return tuple(removed)
