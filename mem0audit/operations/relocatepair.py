"""The pair of both stores that is taken before an agent is stopped, so that whatever goes with it is kept."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from mem0audit.core import relocate as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.erasures import RECORD
from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.marks import MARKS
from mem0audit.core.model import Install
from mem0audit.core.reading import Reading
from mem0audit.core.relocate import Relocated, RelocatePlan, Since
from mem0audit.core.snapshot import Manifest
from mem0audit.core.timeline import DELETE
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host
from mem0audit.operations.copied import agent_of, install_of
from mem0audit.operations.interrupted import words
from mem0audit.operations.ledger import forget_folder
from mem0audit.operations.look import Progress, look_at_copy
from mem0audit.operations.moves import install_at
from mem0audit.operations.snapshot import create, plan_create
from mem0audit.operations.verify import list_snapshots, verify
from mem0audit.stores import exchange, files, snapshots

OWNERS: Final = "owners.json"
"""Beside the pair: whose both stores were, for the case that they are gone with the agent."""


def newest_pair(folder: str, install: Install) -> str | None:
    """The newest snapshot of this install that an earlier run took before the stop; None where there is none, or
    another user could have put it there."""
    try:
        there = os.lstat(folder)
        if not stat.S_ISDIR(there.st_mode) or there.st_mode & 0o022 or there.st_uid not in (0, os.geteuid()):
            return None
    except OSError:
        return None
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


def take_pair(plan: RelocatePlan, host: Host, say: Progress, now: Callable[[], float]) -> Relocated:
    """Takes both stores beside the running agent, onto the new folder's filesystem, and verifies what was written.

    Nothing else changes: the result is "waiting". Raises Refused where it is another store than that of an earlier
    pair, Failed where the pair is not good, and what `snapshot create` raises.
    """
    folder = Path(plan.where.pair)
    seen = plan.seen
    assert seen.vectors is not None
    try:
        exchange.make_parents(folder.parent, exchange.owner_of(Path(seen.vectors.value)) or (0, 0))
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
        came = since_pair(plan.pair, reading, say)
        if came is not None and came.another_store:
            another_store(plan, came, seen.vectors.value)
    return Relocated(
        state="waiting",
        history=seen.history.value,
        vectors=seen.vectors.value,
        manifest=taken.manifest,
        pair=taken.path,
        holders=plan.holders,
        since=came,
        warnings=plan.warnings + taken.notes,
    )


def another_store(plan: RelocatePlan, came: Since, path: str) -> NoReturn:
    """Raises Refused: what lies at `path` is not what the earlier pair was taken of."""
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


def owners_beside(folder: Path) -> dict[str, tuple[int, int, int]]:
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


def since_pair(pair: str, reading: Reading, say: Progress) -> Since | None:
    """How a reading differs from an earlier pair; None where that does not read."""
    manifest = verify(pair, "quick").manifest
    if manifest is None:
        return None
    was = memories_of(_read_pair(pair, manifest, say))
    log = reading.timeline
    deleted = {i for i, one in log.memories.items() if one.last == DELETE} if log is not None else set()
    return core.since(was, memories_of(reading), deleted)


def memories_of(reading: Reading) -> dict[str, tuple[object, ...]]:
    """Every memory of a reading by its id: text digest, owner, expiry."""
    return {i: (one.text, one.owner, one.expires) for c in reading.memories for i, one in c.by_id.items()}


def wal_files(plan: RelocatePlan) -> frozenset[str]:
    """The files of the pair that were in write-ahead mode, by their path below their half."""
    assert plan.pair is not None
    manifest = verify(plan.pair, "quick").manifest
    assert manifest is not None
    wal = [file.path for file in manifest.files if file.journal_mode == "wal"]
    return frozenset("" if p == snapshot_core.HISTORY else p.partition("/")[2] for p in wal)


def cleared(done: Relocated, plan: RelocatePlan, host: Host) -> Relocated:
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
    if not folder.exists():
        new = install_at(done.manifest, done.history, done.vectors)
        forget_folder(new, os.path.realpath(folder), host, wanted=plan.ledger)
    return done
