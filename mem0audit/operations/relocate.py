"""Move an install's vector store, and its log where that is asked for, to a folder that lasts.

While the agent runs, a verified pair of both stores is taken onto the new folder's filesystem: it survives whatever
happens at the stop. With the agent stopped the stores are copied as they are then, the copies proven, and everything
gets its new name by renames, under an intent. Where the stores went with the agent (a private /tmp, a container's
layer), the pair is published in their place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mem0audit.core import relocate as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.advice import dies_with_agent
from mem0audit.core.errors import CouldNotRead, Refused
from mem0audit.core.model import Agent, Holder, Install, Origin, Place
from mem0audit.core.relocate import CutOff, Destination, Relocated, RelocatePlan
from mem0audit.core.versions import wipes_folder_at_start
from mem0audit.core.words import shell_word
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.operations.ledger import ends_of_log
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.look import Progress, no_progress
from mem0audit.operations.moves import cut_off
from mem0audit.operations.otherroots import as_the_agent_sees_it
from mem0audit.operations.relocatemove import check_free, is_store, looks_moved, move, only_cleared, was_moved
from mem0audit.operations.relocatepair import newest_pair, take_pair
from mem0audit.operations.snapshot import SLACK_BYTES, plan_create
from mem0audit.operations.targets import check_names, is_mount_point, only_linux
from mem0audit.operations.verify import verify
from mem0audit.stores import exchange, files

POLL_S: Final = 0.5
"""How often it is looked whether the agent has stopped, where it is waited for."""


# --- Plan ---------------------------------------------------------------------------------------------------


def plan_relocate(
    install: Install,
    host: Host,
    to: str,
    *,
    with_history: bool = False,
    ledger: bool = True,
) -> RelocatePlan:
    """What `relocate` would do next to bring the vector store to the folder `to` (absolute): see `core.Way`.

    With `with_history` the log goes to `history.db` beside that folder. Changes nothing. Raises Refused where the place
    is unsafe, is not empty or has no room, CouldNotRead where a store is not there and no pair was taken before.
    """
    only_linux("stores are moved")
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        raise Refused(f"the vector store is {what}: this version moves embedded Qdrant folders only")
    real = _real(to, host)
    refuse_left_moves(install, host, but=real)
    where = core.destination(real, with_history)
    pair = newest_pair(where.pair, install)
    install = _after_its_process(install, pair, host)
    assert install.vectors is not None
    held = holders([install.history.value, install.vectors.value], host)
    seen = as_the_agent_sees_it(install, held.holders, host)
    assert seen.vectors is not None
    log, vectors = look_at(seen.history.value, host), look_at(seen.vectors.value, host)
    if not with_history and pair is not None and not log.exists and not vectors.exists:
        with_history = True  # both are gone: the pair has both
        where = core.destination(real, with_history)
    if with_history and resolved(install.history.value, host) == where.history:
        with_history, where = False, replace(where, history=None)  # it lies there already
    for store in (vectors, log):
        if store.problem is not None:
            raise CouldNotRead(
                f"{store.path}: {store.problem}", "run it as the owner of the stores, or with sudo"
            )
    cut = cut_off(where.staging)
    place = look_at(real, host)
    _check_place(to, real, place, host)
    moved = looks_moved(where, seen, host) and (
        cut.course == "clean" if cut is not None else was_moved(where, seen, host)
    )
    if not moved:
        _check_around(to, where, seen, host)
    check_names([where.vectors, _resolved(seen.vectors.value, host), _resolved(seen.history.value, host)])
    gone = with_history and not log.exists and log.problem is None
    if gone and pair is None and cut is None and not moved and not is_store(where.vectors):
        raise CouldNotRead(f"{log.path} is not there: without --with-history the vectors alone are moved")
    if not moved and (cut is None or cut.course == "clean"):
        check_free(to, where, seen)
        _check_writable(to, where, seen, host)
    agent = whose_mem0(seen, held.holders, host)
    _check_agent(agent)
    plan = RelocatePlan(
        install=install,
        seen=seen,
        to=to,
        where=where,
        way="move" if moved else _way(seen, held.holders, pair, cut, host),
        agent=agent,
        holders=held.holders,
        dies=any(dies_with_agent(place, holder) for place in (log, vectors) for holder in held.holders),
        with_history=with_history,
        filesystem=place.filesystem,
        size_bytes=(vectors.size_bytes or 0) + (log.size_bytes or 0 if with_history else 0),
        free_bytes=place.free_bytes,
        pair=pair,
        unseen=held.why,
        cut_off=cut,
        moved=moved,
        ledger=ledger,
    )
    plan = replace(plan, needed_bytes=_needed(plan, host), warnings=_warnings(plan, log, place))
    if plan.free_bytes is not None and plan.free_bytes < plan.needed_bytes:
        raise Refused(
            f"{to}: {plan.free_bytes:,} bytes are free where it would lie, the move needs {plan.needed_bytes:,}",
            "name a folder with more room with --to",
        )
    return plan


def _real(to: str, host: Host) -> str:
    if seen_through(to, host)[0] is not None:
        raise Refused(
            f"{to} lies under another process's root", "name a folder of this machine's own with --to"
        )
    try:
        return resolved(to, host)
    except OSError as error:
        raise Refused(f"{to}: {(error.strerror or 'cannot be looked at').lower()}") from None


def _after_its_process(install: Install, pair: str | None, host: Host) -> Install:
    """Where the log was named through a process that has ended, and lies outside of what was that process's own: the
    same log by its path here. Told by its first row."""
    pid, inner = seen_through(install.history.value, host)
    if pid is None or pair is None or os.path.lexists(install.history.value):
        return install
    here, theirs = ends_of_log(inner, host), ends_of_log(f"{pair}/{snapshot_core.HISTORY}", host)
    if here is None or theirs is None or here[0][1] != theirs[0][1]:
        return install
    return replace(install, history=Origin(inner, install.history.decided_by))


def place_to_move_to(to: str, host: Host) -> str:
    """A new folder (absolute) with its links followed. Raises Refused where nothing lasts there."""
    real = _real(to, host)
    _check_place(to, real, look_at(real, host), host)
    check_names([real])
    return real


def check_writable(to: str, real: str) -> None:
    """Refuses where a new folder could not be made."""
    new = next(one for one in Path(real).parents if os.path.isdir(one))  # noqa: PTH112
    if not os.access(new, os.W_OK | os.X_OK):
        raise Refused(
            f"{to}: nothing can be written in {new} (a read-only filesystem, or another user's folder)",
            "name another folder with --to, or run it as its owner",
        )


def _check_place(to: str, real: str, place: Place, host: Host) -> None:
    """Refuses a place that does not last, or that cannot be given its name by one rename."""
    if place.problem is not None:
        raise Refused(f"{to}: {place.problem}", "name another folder with --to")
    if place.volatile:
        raise Refused(
            f"{to} lies on a {place.filesystem}, in memory: the next reboot would lose it",
            "name a folder on a disk with --to",
        )
    if place.cleaned is not None:
        raise Refused(
            f"{to} lies where systemd-tmpfiles cleans up ({place.cleaned.when}: {place.cleaned.line}, in "
            f"{place.cleaned.source})",
            "name a folder elsewhere with --to, as /srv or /var/lib",
        )
    if place.container_layer:
        raise Refused(
            f"{to} lies in the container's own layer, and goes with the container",
            "name a folder in a volume with --to",
        )
    if place.exists and not Path(real).is_dir():
        raise Refused(f"{to}: is no folder", "name a new one with --to")
    if is_mount_point(real, host):
        raise Refused(
            f"{to} is a mount point, and cannot be put in place by one rename",
            f"name a folder in it: --to {shell_word(to.rstrip('/') + '/qdrant')}",
        )


def _check_around(to: str, where: Destination, seen: Install, host: Host) -> None:
    """Refuses the store itself, what lies in it or around it, and the folders of others."""
    assert seen.vectors is not None
    store = _resolved(seen.vectors.value, host)
    if where.vectors == store:
        raise Refused(f"{to}: the vector store lies there already", "name another folder with --to")
    if where.vectors.startswith(store.rstrip("/") + "/"):
        raise Refused(f"{to} lies inside the vector store", "name a folder elsewhere with --to")
    if store.startswith(where.vectors.rstrip("/") + "/"):
        raise Refused(f"{to} holds the vector store itself", "name a new folder with --to")
    for folder in Path(where.vectors).parents:
        if (folder / "meta.json").exists() and (folder / "collection").is_dir():
            raise Refused(f"{to} lies inside the vector store {folder}", "name a folder elsewhere with --to")
        if (folder / files.LOCK).exists() or (folder / snapshot_core.CHECKSUM).exists():
            raise Refused(f"{to} lies among the snapshots in {folder}", "name a folder elsewhere with --to")


def _check_writable(to: str, where: Destination, seen: Install, host: Host) -> None:
    """Refuses where the new stores could not be written, or the old ones not be put aside."""
    check_writable(to, where.vectors)
    assert seen.vectors is not None
    for path in [seen.vectors.value, *([seen.history.value] if where.history is not None else [])]:
        real = _resolved(path, host)
        if seen_through(path, host)[0] is not None or not os.path.lexists(real):
            continue  # what goes with its process is not put aside
        folder = real if is_mount_point(real, host) else str(Path(real).parent)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Refused(
                f"{path} cannot be put aside: nothing can be written in {folder} (a read-only filesystem, or another "
                "user's folder)",
                "run it as the owner of that folder, or take a copy that lasts: mem0audit snapshot create --to DIR",
            )
    beside = str(Path(_resolved(seen.history.value, host)).parent)
    if where.history is None and os.path.isdir(beside) and not os.access(beside, os.W_OK | os.X_OK):  # noqa: PTH112
        raise Refused(
            f"nothing can be written in {beside}, where what is put aside is recorded, beside the log",
            "run it as the owner of that folder, or move the log too: --with-history",
        )


def _resolved(path: str, host: Host) -> str:
    try:
        return resolved(path, host)
    except OSError:
        return path


def _check_agent(agent: Agent) -> None:
    if core.never_safe(agent):
        raise Refused(
            f"the agent's mem0 {agent.mem0_version} deletes its vector folder each time it starts, wherever that is "
            "and whatever its configuration says",
            "update mem0 to 1.0.8 or later first:  mem0audit explain L110",
        )


def _way(seen: Install, held: Sequence[Holder], pair: str | None, cut: CutOff | None, host: Host) -> core.Way:
    assert seen.vectors is not None
    if cut is not None and cut.course == "finish":
        return "move"
    if held:
        return "pair"
    there = is_store(seen.vectors.value)
    if not there and pair is not None:
        return "publish"
    if not there:
        raise CouldNotRead(
            f"{seen.vectors.value} is not there, and no pair of it was taken before",
            "where this install writes: mem0audit status",
        )
    return "pair" if seen_through(seen.vectors.value, host)[0] is not None else "move"


def _needed(plan: RelocatePlan, host: Host) -> int:
    """What must be free: the copies; and before the stop, the pair as well."""
    if plan.moved or (plan.cut_off is not None and plan.cut_off.course == "finish"):
        return 0
    if plan.way == "publish":
        assert plan.pair is not None
        manifest = verify(plan.pair, "quick").manifest
        return SLACK_BYTES + (manifest.size_bytes if manifest is not None else 0)
    needed = plan.size_bytes + SLACK_BYTES
    if plan.way == "pair":
        needed += plan_create(plan.install, host, plan.where.pair).needed_bytes
    return needed


def _warnings(plan: RelocatePlan, log: Place, place: Place) -> tuple[str, ...]:
    said = []
    if not plan.with_history and log.exists:
        if log.volatile:
            said.append(f"The log {log.path} lies on a {log.filesystem}, in memory: add --with-history.")
        elif log.cleaned is not None:
            said.append(f"The log {log.path} lies where systemd-tmpfiles cleans up: add --with-history.")
        elif log.container_layer:
            said.append(f"The log {log.path} lies in the container's own layer: add --with-history.")
    said += _not_for_its_owner(plan)
    if place.network:
        said.append(
            f"{plan.to} lies on a network filesystem ({place.filesystem}), where SQLite's locks may fail."
        )
    if wipes_folder_at_start(plan.agent.mem0_version, plan.install.on_disk):
        said.append(
            f"The agent's mem0 {plan.agent.mem0_version} deletes the vector folder at every start unless on_disk is "
            "true: set that with the new path, before it starts."
        )
    return tuple(said)


def _not_for_its_owner(plan: RelocatePlan) -> list[str]:
    """Folders on the way that the owner of the stores cannot enter, or not write the log's journals in."""
    assert plan.seen.vectors is not None
    owner = exchange.owner_of(Path(plan.seen.vectors.value))
    if owner is None or owner[0] == 0:
        return []
    closed = [str(f) for f in Path(plan.where.vectors).parents if f.is_dir() and not _may(f, owner, 0o1)]
    if closed:
        return [
            f"Whose store it is (uid {owner[0]}) may not enter {closed[0]}: the agent could not open it there."
        ]
    folder = Path(plan.where.vectors).parent
    if plan.where.history is not None and folder.is_dir() and not _may(folder, owner, 0o3):
        return [
            f"Whose log it is (uid {owner[0]}) may not write in {folder}, where SQLite makes its journals."
        ]
    return []


def _may(folder: Path, owner: tuple[int, int], bits: int) -> bool:
    """Whether an account and its group may do this with a folder, by its mode."""
    found = folder.stat()
    shift = 6 if found.st_uid == owner[0] else 3 if found.st_gid == owner[1] else 0
    return (found.st_mode >> shift) & bits == bits


# --- Apply --------------------------------------------------------------------------------------------------


def apply_relocate(
    plan: RelocatePlan,
    host: Host,
    *,
    wait: Callable[[Relocated], None] | None = None,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> Relocated:
    """Does what was planned: takes the pair, moves the stores, or publishes the pair.

    Where the agent runs the result is "waiting", with the pair; with `wait`, that is called with it, and when the agent
    has stopped the move goes on. Raises Refused where somebody has the stores open meanwhile or writes to them, Failed
    where it did not succeed: the message says whether nothing was changed, it was taken back, or the same command
    finishes it.
    """
    say = progress or no_progress
    started = time.monotonic()
    if plan.way == "pair":
        done = take_pair(plan, host, say, now)
        if wait is None:
            return replace(done, seconds=time.monotonic() - started)
        wait(done)
        while plan.way == "pair":
            pause(POLL_S)
            host = replace(host, now=now())
            if not _stopped(plan, host):
                continue
            plan = plan_relocate(
                plan.install, host, plan.to, with_history=plan.with_history, ledger=plan.ledger
            )
    done = only_cleared(plan, host, say, now) if plan.moved else move(plan, host, say, now)
    return replace(done, warnings=plan.warnings + done.warnings, seconds=time.monotonic() - started)


def _stopped(plan: RelocatePlan, host: Host) -> bool:
    assert plan.install.vectors is not None and plan.seen.vectors is not None
    named_paths = [plan.install.history.value, plan.install.vectors.value]
    seen_paths = [plan.seen.history.value, plan.seen.vectors.value]
    return not holders([*named_paths, *seen_paths], host).holders
