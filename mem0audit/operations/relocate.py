"""Move an install's vector store, and its log where that is asked for, to a folder that lasts.

While the agent runs, a verified pair of both stores is taken onto the new folder's filesystem: it survives whatever
happens at the stop. With the agent stopped the stores are copied as they are then, the copies proven, and everything
gets its new name by renames, under an intent. Where the stores went with the agent (a private /tmp, a container's
layer), the pair is published in their place.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from mem0audit import __version__
from mem0audit.core import relocate as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.advice import dies_with_agent
from mem0audit.core.erasures import RECORD
from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.marks import MARKS
from mem0audit.core.model import Agent, Holder, Install, Origin, Place
from mem0audit.core.reading import Reading
from mem0audit.core.relocate import (
    CutOff,
    Destination,
    Lost,
    MoveIntent,
    Relocated,
    RelocatePlan,
    Since,
)
from mem0audit.core.restore import Half, Piece
from mem0audit.core.snapshot import Manifest
from mem0audit.core.timeline import DELETE
from mem0audit.core.times import instant, shown
from mem0audit.core.versions import wipes_folder_at_start
from mem0audit.core.words import shell_word
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.operations.copied import agent_of, counted, counts, digests, install_of, judged
from mem0audit.operations.discard import put_aside
from mem0audit.operations.interrupted import differs, words
from mem0audit.operations.ledger import ends_of_log
from mem0audit.operations.look import Progress, look_at_copy, no_progress
from mem0audit.operations.moves import (
    QDRANTS,
    WORK,
    cut_off,
    finish,
    install_at,
    old_sums,
    settle,
    take_back,
    write_intent,
)
from mem0audit.operations.otherroots import as_the_agent_sees_it
from mem0audit.operations.restore import check_erasures
from mem0audit.operations.snapshot import SLACK_BYTES, create, plan_create
from mem0audit.operations.targets import (
    check_owners,
    folder_owner,
    in_use,
    is_mount_point,
    mounted_below,
    only_linux,
    refuse_holders,
    strangers,
    target_of,
)
from mem0audit.operations.verify import list_snapshots, verify
from mem0audit.stores import exchange, files, samerows, snapshots

POLL_S: Final = 0.5
"""How often it is looked whether the agent has stopped, where it is waited for."""
OWNERS: Final = "owners.json"
"""Beside the pair: whose both stores were, for the case that they are gone with the agent."""


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
    only_linux()
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        raise Refused(f"the vector store is {what}: this version moves embedded Qdrant folders only")
    real = _real(to, host)
    where = core.destination(real, with_history)
    pair = _newest_pair(where.pair, install)
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
    cut = cut_off(where.staging)
    place = look_at(real, host)
    _check_place(to, real, place, host)
    _check_around(to, where, seen, host)
    moved = cut is not None and cut.course == "clean" and _looks_moved(where, seen)
    if not moved and (cut is None or cut.course == "clean"):
        _check_free(to, where, seen)
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


def _newest_pair(folder: str, install: Install) -> str | None:
    """The newest snapshot of this install that an earlier run took before the stop; None where there is none."""
    try:
        listed = list_snapshots(folder)
    except CouldNotRead:
        return None
    assert install.vectors is not None
    vectors = seen_without_root(install.vectors.value)
    for one in listed:
        if one.manifest is not None and one.manifest.vectors.value == vectors:
            return one.path
    return None


def seen_without_root(path: str) -> str:
    """A path that leads through a process's root, as that process has it."""
    parts = path.split("/")
    inside = parts[:2] == ["", "proc"] and parts[3:4] == ["root"] and parts[2].isdigit()
    return "/" + "/".join(parts[4:]) if inside else path


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
            f"name a folder in it: --to {shell_word(to.rstrip('/'))}/qdrant",
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


def _resolved(path: str, host: Host) -> str:
    try:
        return resolved(path, host)
    except OSError:
        return path


def _check_free(to: str, where: Destination, seen: Install) -> None:
    """Refuses names that are taken."""
    target = Path(where.vectors)
    assert seen.vectors is not None
    try:
        if _looks_moved(where, seen):
            raise Refused(
                f"{to} holds a store already, and {seen.vectors.value} is not there: it looks moved",
                f"mem0audit audit --history {shell_word(seen.history.value)} --qdrant-path {shell_word(to)}",
            )
        if target.is_dir() and any(target.iterdir()):
            raise Refused(
                f"{to} is not empty: a store moves to a new or an empty folder", "name another one with --to"
            )
    except OSError as error:
        raise Refused(f"{to}: {(error.strerror or 'cannot be looked into').lower()}") from None
    if where.history is not None and os.path.lexists(where.history):
        raise Refused(
            f"{where.history} is there already, and the log would get that name", "name another --to"
        )


def _looks_moved(where: Destination, seen: Install) -> bool:
    assert seen.vectors is not None
    return _is_store(where.vectors) and not _is_store(seen.vectors.value)


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
    there = _is_store(seen.vectors.value)
    if not there and pair is not None:
        return "publish"
    if not there:
        raise CouldNotRead(
            f"{seen.vectors.value} is not there, and no pair of it was taken before",
            "where this install writes: mem0audit status",
        )
    return "pair" if seen_through(seen.vectors.value, host)[0] is not None else "move"


def _is_store(folder: str) -> bool:
    return any(os.path.lexists(f"{folder}/{name}") for name in QDRANTS)


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
        done = _take_pair(plan, host, say, now)
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
    done = _only_cleared(plan, host, say, now) if plan.moved else _move(plan, host, say, now)
    return replace(done, warnings=plan.warnings + done.warnings, seconds=time.monotonic() - started)


def _stopped(plan: RelocatePlan, host: Host) -> bool:
    assert plan.install.vectors is not None and plan.seen.vectors is not None
    named_paths = [plan.install.history.value, plan.install.vectors.value]
    seen_paths = [plan.seen.history.value, plan.seen.vectors.value]
    return not holders([*named_paths, *seen_paths], host).holders


# --- The pair, while the agent runs ---------------------------------------------------------------------------


def _take_pair(plan: RelocatePlan, host: Host, say: Progress, now: Callable[[], float]) -> Relocated:
    folder = Path(plan.where.pair)
    seen = plan.seen
    assert seen.vectors is not None
    try:
        with files.snapshot_folder(folder):
            files.keep_beside_snapshots(folder, OWNERS, _owners_text(seen))
    except OSError as error:
        raise Failed(f"{folder}: {words(error)}; nothing was taken") from None
    taken = create(
        plan_create(plan.install, host, str(folder)), host, progress=say, now=now, ledger=plan.ledger
    )
    verdict = verify(taken.path, "default", say)
    if not verdict.good:
        wrong = [f"{p.path}: {p.detail}" for p in verdict.problems] or [n.why for n in verdict.not_checked]
        raise Failed(
            f"{taken.path} is not what was written ({wrong[0]}): do not stop the agent", "check that disk"
        )
    came = None
    if plan.pair is not None:
        reading = _read_pair(taken.path, taken.manifest, say)
        came = _since(plan.pair, reading, say)
        if came is not None and came.another_store:
            _another_store(plan, came, seen.vectors.value)
    return Relocated(
        state="waiting",
        history=seen.history.value,
        vectors=seen.vectors.value,
        manifest=taken.manifest,
        pair=taken.path,
        holders=plan.holders,
        since=came,
        warnings=plan.warnings,
    )


def _another_store(plan: RelocatePlan, came: Since, path: str) -> NoReturn:
    assert plan.pair is not None
    raise Refused(
        f"{path} is not the store that {plan.pair} was taken of: {came.vanished:,} of its {came.of:,} memories are not "
        "there, and the log deletes none of them (it was emptied meanwhile, or begun anew)",
        "To have that pair back:  mem0audit snapshot restore "
        f"{shell_word(plan.pair)} --to NEWDIR\nTo move what is there now:  name another --to",
    )


def _owners_text(seen: Install) -> bytes:
    assert seen.vectors is not None
    found = {}
    for half, path in (("history", seen.history.value), ("vectors", seen.vectors.value)):
        with suppress(OSError):
            there = os.stat(path)  # noqa: PTH116
            found[half] = [there.st_uid, there.st_gid, stat.S_IMODE(there.st_mode)]
    return json.dumps(found).encode("ascii")


def _owners_beside(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Owner, group and mode of each half as the first run saw them; {} where that does not read."""
    try:
        raw = json.loads(snapshots.small_file(folder / OWNERS).decode("ascii"))
        return {
            half: (int(uid), int(gid), int(mode) & 0o777)
            for half, (uid, gid, mode) in raw.items()
            if half in ("history", "vectors")
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _read_pair(path: str, manifest: Manifest, say: Progress) -> Reading:
    return look_at_copy(install_of(manifest, Path(path)), agent_of(manifest), manifest.taken_at, say)


def _since(pair: str, reading: Reading, say: Progress) -> Since | None:
    """How a reading differs from an earlier pair; None where that does not read."""
    manifest = verify(pair, "quick").manifest
    if manifest is None:
        return None
    was = _memories(_read_pair(pair, manifest, say))
    log = reading.timeline
    deleted = {i for i, one in log.memories.items() if one.last == DELETE} if log is not None else set()
    return core.since(was, _memories(reading), deleted)


def _memories(reading: Reading) -> dict[str, tuple[object, ...]]:
    return {i: (one.text, one.owner, one.expires) for c in reading.memories for i, one in c.by_id.items()}


# --- The move ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Half:
    """One store on its way. `source` is the file or folder that is copied, `old` what is put aside when the new one
    has its name (None: it is gone), `target` the new name."""

    half: Half
    source: str
    target: str
    staged: str
    old: str | None
    inside: bool = False
    """The old folder is a mount point: what is in it is put aside, not the folder."""


def _move(plan: RelocatePlan, host: Host, say: Progress, now: Callable[[], float]) -> Relocated:
    staging = Path(plan.where.staging)
    halves = [] if plan.cut_off is not None and plan.cut_off.course == "finish" else _halves(plan, host)
    owners = _owners(plan, halves)
    intent = None
    with ExitStack() as stack:
        try:
            exchange.make_parents(staging.parent, owners["vectors"][:2])
            there = stack.enter_context(exchange.staging(staging, WORK))
        except OSError as error:
            raise Failed(f"{words(error)}; nothing was changed") from None
        try:
            settled, finished = settle(staging, there, host, say, ledger=plan.ledger)
            if finished is not None:
                return _cleared(replace(finished, settled=settled, resumed=True), plan)
            halves = halves or _halves(plan, host)
            _check_free(plan.to, plan.where, plan.seen)
            done, intent = _copy_and_name(plan, halves, owners, host, say, now, stack)
            return _cleared(replace(done, settled=settled), plan)
        except BaseException as error:
            if intent is None and exchange.identity_of(staging / core.INTENT) is None:
                with suppress(OSError):
                    exchange.remove_staging([staging] if staging.is_dir() else [])
            if isinstance(error, (OSError, sqlite3.Error)):
                raise Failed(
                    f"{words(error)}; nothing was changed", "the same command begins again"
                ) from None
            raise


def _only_cleared(plan: RelocatePlan, host: Host, say: Progress, now: Callable[[], float]) -> Relocated:
    """Everything has its name and is written down: what the staging folder still holds goes, and it."""
    staging = Path(plan.where.staging)
    try:
        with exchange.staging(staging, WORK):
            exchange.remove_staging([staging])
    except OSError as error:
        raise Failed(f"all is moved; {words(error)}", "the same command clears that away") from None
    history = plan.where.history or resolved(plan.seen.history.value, host)
    manifest, _ = _manifest(plan, plan.where.vectors, history, say, now)
    new = install_at(manifest, history, plan.where.vectors)
    done = Relocated(
        state="moved",
        history=history,
        vectors=plan.where.vectors,
        manifest=manifest,
        replaced=tuple(one.path for one in put_aside(new, host) if one.work == WORK),
        history_moved=plan.where.history is not None,
        settled=plan.cut_off,
        resumed=True,
    )
    return replace(done, pair=plan.pair)


def _halves(plan: RelocatePlan, host: Host) -> list[_Half]:
    """What is copied from where. Raises Refused, CouldNotRead."""
    assert plan.seen.vectors is not None
    staging = plan.where.staging
    new_log = f"{staging}/{core.HISTORY}"
    if plan.way == "publish":
        assert plan.pair is not None
        halves = [
            _Half(
                "vectors",
                f"{plan.pair}/{snapshot_core.VECTORS}",
                plan.where.vectors,
                f"{staging}/qdrant",
                None,
            )
        ]
    else:
        vectors = target_of("vectors", plan.seen.vectors.value, host)
        below = mounted_below(vectors.real, host)
        if below:
            raise Refused(f"{below[0]} is mounted inside the vector store, which cannot be moved with that")
        strangers(vectors)
        check_owners([vectors])
        inside = vectors.way == "inside"
        halves = [
            _Half("vectors", vectors.real, plan.where.vectors, f"{staging}/qdrant", vectors.real, inside)
        ]
    if plan.where.history is None:
        return halves
    path = plan.seen.history.value
    if os.path.lexists(path):
        log = target_of("history", path, host)
        check_owners([log])
        return [*halves, _Half("history", log.real, plan.where.history, new_log, log.real)]
    if plan.way != "publish":
        raise CouldNotRead(f"{path} is not there: without --with-history the vectors alone are moved")
    return [
        *halves,
        _Half("history", f"{plan.pair}/{snapshot_core.HISTORY}", plan.where.history, new_log, None),
    ]


def _owners(plan: RelocatePlan, halves: Sequence[_Half]) -> Mapping[str, tuple[int, int, int]]:
    """Owner, group and mode of what has no old store any more to take them from."""
    noted = _owners_beside(Path(plan.where.pair)) if plan.way == "publish" else {}
    if os.geteuid():
        uid, gid = os.geteuid(), os.getegid()
    else:
        old = next((exchange.owner_of(Path(one.old)) for one in halves if one.old is not None), None)
        uid, gid = old or folder_owner(Path(plan.where.vectors).parent) or (0, 0)
    found = {"vectors": (uid, gid, 0o700), "history": (uid, gid, 0o600)}
    for half, (its_uid, its_gid, mode) in noted.items():
        found[half] = (its_uid, its_gid, mode) if os.geteuid() == 0 else (uid, gid, mode)
    return found


def _copy_and_name(
    plan: RelocatePlan,
    halves: Sequence[_Half],
    owners: Mapping[str, tuple[int, int, int]],
    host: Host,
    say: Progress,
    now: Callable[[], float],
    stack: ExitStack,
) -> tuple[Relocated, MoveIntent]:
    """Under Qdrant's locks: copies, proves, writes the intent, gives every store its name."""
    log = next((one for one in halves if one.half == "history"), None)
    vectors = next(one for one in halves if one.half == "vectors")
    if plan.way == "publish":
        assert plan.pair is not None
        _verified(plan, host, say)
    try:
        assert plan.seen.vectors is not None
        unseen = refuse_holders([plan.seen.history.value, plan.seen.vectors.value], host)
        for one in halves:
            if one.old is None:
                continue
            if one.half == "vectors":
                stack.enter_context(exchange.store_locked(Path(one.old)))
            _settle_journals(one)
        log_path = log.source if log is not None else resolved(plan.seen.history.value, host)
        before = _manifest(plan, vectors.source, log_path, say, now)
        came = None
        if plan.way == "move" and plan.pair is not None:
            came = _since(plan.pair, before[1], say)
            if came is not None and came.another_store:
                _another_store(plan, came, vectors.source)
        sums = {one.half: _staged(one, plan, owners[one.half], say) for one in halves}
        stack.enter_context(exchange.store_locked(Path(vectors.staged)))
        staged_log = log.staged if log is not None else log_path
        say("auditing the copies", None, None)
        wrong = differs(before[0], staged_log, vectors.staged, say)
        if wrong:
            raise Failed(f"the copies are not what was copied ({wrong}); nothing was changed")
        refuse_holders(
            [plan.seen.history.value, plan.seen.vectors.value], host
        )  # again: copying took its time
        with ExitStack() as held:
            _unchanged(halves, sums, held)
            target = Path(plan.where.vectors)
            if target.is_dir():
                exchange.remove_empty_folder(target)
            intent = _intent(plan, halves, sums, before[0], log_path, snapshot_core.name_of(now()))
            try:
                write_intent(intent)
                exchange.forward(intent.pieces)
            except OSError as error:
                take_back(intent, error)
        lost = _lost(plan, before[1], log_path) if plan.way == "publish" else None
        done = finish(intent, host, say, ledger=plan.ledger)
        return replace(done, since=came, lost=lost), intent
    except exchange.InUse as problem:
        in_use(problem, unseen)


def _verified(plan: RelocatePlan, host: Host, say: Progress) -> None:
    """Refuses a pair that is not what was written, or that somebody was erased since."""
    assert plan.pair is not None
    verdict = verify(plan.pair, "default", say)
    if verdict.manifest is None or not verdict.good:
        wrong = [f"{p.path}: {p.detail}" for p in verdict.problems] or [n.why for n in verdict.not_checked]
        raise Refused(
            f"{plan.pair} is not what was written ({wrong[0]}): it is not published",
            f"everything that is wrong with it: mem0audit snapshot verify {shell_word(plan.pair)}",
        )
    check_erasures(verdict.manifest, plan.pair, plan.install, host, plan.ledger, True)


def _settle_journals(one: _Half) -> None:
    """What a writer that died left in journals is brought into its database, as the agent's next start would."""
    assert one.old is not None
    for path in [Path(one.old)] if one.half == "history" else _databases(Path(one.old)):
        exchange.settle_journals(path)
        left = [side for side in exchange.SIDES if os.path.lexists(f"{path}{side}")]
        if left:
            raise Refused(
                f"{path}{left[0]} is a journal that SQLite does not apply: the store is not whole without it",
                "mem0audit explain I202",
            )


def _databases(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("collection/**/*.sqlite") if path.is_file())


def _manifest(
    plan: RelocatePlan, vectors: str, log: str, say: Progress, now: Callable[[], float]
) -> tuple[Manifest, Reading]:
    """What both stores hold before they move, in the form in which a copy is compared with it."""
    versions = {
        "mem0audit": __version__,
        "mem0ai": plan.agent.mem0_version,
        "qdrant-client": plan.agent.client_version,
        "sqlite": sqlite3.sqlite_version,
    }
    created_at = shown(now())
    empty = Manifest(
        name=snapshot_core.name_of(instant(created_at) or 0.0),
        created_at=created_at,
        history=Origin(log, "the move"),
        vectors=Origin(vectors, "the move"),
        collection=plan.install.collection,
        mem0_dir=plan.install.mem0_dir,
        hostname=platform.node(),
        filesystems={},
        versions=versions,
        files=(),
        counts={},
        points_digest="",
        history_digest="",
        findings={},
        settled=True,
        unsettled_why=None,
        tries=1,
        longest_hold_s=0.0,
    )
    say("reading both stores", None, None)
    reading = look_at_copy(install_at(empty, log, vectors), agent_of(empty), empty.taken_at, say)
    if reading.layout is not None and reading.layout.problem is not None:
        raise CouldNotRead(f"{reading.layout.path}: {reading.layout.problem.detail}")
    points, rows = digests(reading)
    full = replace(
        empty,
        collection=reading.install.collection,
        counts=counts(reading),
        points_digest=points,
        history_digest=rows,
        findings=counted(judged(reading)),
    )
    return full, reading


def _staged(one: _Half, plan: RelocatePlan, owner: tuple[int, int, int], say: Progress) -> dict[str, str]:
    """Copies one half into the staging folder, with owner, mode and attributes; every byte and every row proven. Gives
    the sums by path below it. Raises Failed, Refused, OSError."""
    source, staged = Path(one.source), Path(one.staged)
    paths = _paths(one)
    modes = _wal_files(plan) if one.old is None else frozenset()
    sums = {}
    for number, path in enumerate(paths):
        say(f"copying the {'log' if one.half == 'history' else 'vectors'}", number, len(paths))
        here, there = (source / path, staged / path) if path else (source, staged)
        sums[path] = exchange.stage_file(here, there)
        if exchange.sums_of(there)[""] != sums[path]:
            raise Failed(
                f"{there} does not hold what was written to it; nothing was changed", "check that disk"
            )
        if there.suffix in (".sqlite", ".db"):
            wrong = samerows.first_difference(here, there)
            if wrong and not wrong.startswith("not read"):  # a damaged one is moved as it is, byte for byte
                raise Failed(f"{there}: {wrong} than {here}; nothing was changed")
        if path in modes:
            files.set_journal_mode(there, "wal")
            sums[path] = exchange.sums_of(there)[""]
    if one.half == "vectors":
        files.make_folders(staged)
        exchange.make_lock(staged)
    old = Path(one.old) if one.old is not None else None
    exchange.take_after(staged, old, owner[:2], owner[2])
    if staged.is_dir():
        files.sync_tree(staged)
    return sums


def _paths(one: _Half) -> list[str]:
    """The files of one half, below its source; "" for the log. Raises Refused for what is no ordinary file."""
    if one.half == "history":
        return [""]
    sizes, odd = snapshots.tree(Path(one.source))
    for path, what in sorted(odd.items()):
        if path.split("/")[0] in QDRANTS and what != "is an empty folder":
            raise Refused(
                f"{one.source}/{path} {what}: it cannot be moved with the folder", "look at it first"
            )
    return [path for path in sorted(sizes) if path.split("/")[0] in QDRANTS]


def _wal_files(plan: RelocatePlan) -> frozenset[str]:
    """The files of the pair that were in write-ahead mode, by their path below their half."""
    assert plan.pair is not None
    manifest = verify(plan.pair, "quick").manifest
    assert manifest is not None
    wal = [file.path for file in manifest.files if file.journal_mode == "wal"]
    return frozenset("" if p == snapshot_core.HISTORY else p.partition("/")[2] for p in wal)


def _unchanged(halves: Sequence[_Half], sums: Mapping[Half, Mapping[str, str]], held: ExitStack) -> None:
    """Refuses where somebody wrote to an old store while it was copied. The old log is locked from here on, so that
    nobody does until it has its dated name. Raises Refused, InUse, OSError."""
    for one in halves:
        if one.old is None:
            continue
        if one.half == "history":
            descriptor = held.enter_context(exchange.database_locked(Path(one.old)))
            journal = any(os.path.lexists(one.old + side) for side in exchange.SIDES)
            same = not journal and {"": exchange.sum_of_open(descriptor)} == dict(sums[one.half])
        else:
            whole = core.pieces_of("vectors", one.old, "", None, {})
            same = old_sums(whole, one.old) == dict(sums[one.half])
        if not same:
            raise Refused(
                f"{one.old} was written to while it was copied, by somebody who takes no lock of Qdrant's; nothing was "
                "changed",
                "stop what writes to it, and run this again",
            )


def _intent(
    plan: RelocatePlan,
    halves: Sequence[_Half],
    sums: Mapping[Half, Mapping[str, str]],
    manifest: Manifest,
    log: str,
    date: str,
) -> MoveIntent:
    number, stem = 1, date
    while any(os.path.lexists(p.aside) for p in _retired(halves, stem, {})):
        number += 1
        stem = f"{date}-{number}"
    published = tuple(
        Piece(
            one.half,
            one.target,
            one.staged,
            f"{one.target}.replaced-{stem}",
            None,
            exchange.identity_of(one.staged),
            sums[one.half],
        )
        for one in halves
    )
    by_half = {one.half: one for one in halves}
    vectors = by_half["vectors"]
    assert plan.install.vectors is not None
    return MoveIntent(
        started_at=stem,
        staging=plan.where.staging,
        history=by_half["history"].target if "history" in by_half else log,
        vectors=vectors.target,
        old_history=(by_half["history"].old or seen_without_root(plan.seen.history.value))
        if "history" in by_half
        else log,
        old_vectors=vectors.old or seen_without_root(plan.install.vectors.value),
        published=published,
        retired=tuple(_retired(halves, stem, sums)),
        manifest=snapshot_core.manifest_text(manifest),
        pair=plan.pair if plan.way == "publish" else None,
    )


def _retired(halves: Sequence[_Half], stem: str, sums: Mapping[Half, Mapping[str, str]]) -> list[Piece]:
    """The old stores that get a dated name."""
    pieces = []
    for one in halves:
        if one.old is None:
            continue
        names = [f"{one.old}/{name}" for name in QDRANTS] if one.inside else [one.old]
        for name in names:
            identity = exchange.identity_of(name)
            if identity is None:
                continue
            its = dict(sums.get(one.half, {}))
            if one.inside:
                below = name.removeprefix(f"{one.old}/")
                its = {
                    p.removeprefix(below).lstrip("/"): s for p, s in its.items() if p.split("/")[0] == below
                }
            pieces.append(core.pieces_of(one.half, name, stem, identity, its))
    return pieces


def _lost(plan: RelocatePlan, published: Reading, log: str) -> Lost:
    """What the log says that the published pair does not have. `published` is the pair's vectors read beside the log
    that stays or moves."""
    assert plan.pair is not None
    manifest = verify(plan.pair, "quick").manifest
    assert manifest is not None
    known = manifest.counts.get("changes")
    gone = not os.path.lexists(plan.seen.history.value)
    timeline = published.timeline
    if gone or timeline is None or known is None:
        return Lost(manifest.created_at)
    newer = timeline.rowids[known:]
    if not newer:
        return Lost(manifest.created_at, rows=0)
    touched = {i: one for i, one in timeline.memories.items() if one.top >= newer[0]}
    there = _memories(published)
    return Lost(
        manifest.created_at,
        rows=len(newer),
        memories=sum(1 for one in touched.values() if one.live),
        deleted=sum(1 for i, one in touched.items() if one.last == DELETE and i in there),
    )


def _cleared(done: Relocated, plan: RelocatePlan) -> Relocated:
    """The pair goes when the stores themselves were moved, unless it has memories that they lack; a pair that was
    published stays, as a snapshot."""
    if plan.pair is None or done.state == "published" or (done.since is not None and done.since.vanished):
        return replace(done, pair=plan.pair)
    folder = Path(plan.where.pair)
    try:
        with files.snapshot_folder(folder):
            for one in snapshots.names(folder):
                files.remove_snapshot(folder / one)
    except (OSError, Refused):
        return replace(done, pair=plan.pair)
    with suppress(OSError):
        files.remove_snapshot_folder(folder, (OWNERS, RECORD, MARKS))
    return done
