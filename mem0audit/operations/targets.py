"""Both stores of an install as a restore meets them: where they really lie, who has them open, whose they are."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from mem0audit.core.advice import dies_with_agent, stop_command
from mem0audit.core.errors import Refused
from mem0audit.core.model import Holder, Install
from mem0audit.core.restore import Half, Target, staging_beside, staging_inside
from mem0audit.core.snapshot import Manifest
from mem0audit.core.words import shell_words
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.mounts import mount_under, mountinfo_of
from mem0audit.install.mounts import parse as parse_mounts
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.stores import exchange

SLACK_BYTES: Final = 4 << 20
"""What folders, the intent and a filesystem's own rounding take beside the copies."""


def only_linux(what: str = "snapshots are restored") -> None:
    """Raises Refused on other systems."""
    if sys.platform != "linux":
        raise Refused(f"{what} on Linux only: elsewhere it cannot be seen who has a store open")


def targets_of(install: Install, snapshot: str | None, host: Host) -> tuple[Target, Target]:
    """Both stores as a restore meets them. Raises Refused where one of them cannot be exchanged."""
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        raise Refused(f"the vector store is {what}: this version restores embedded Qdrant folders only")
    history = target_of("history", install.history.value, host)
    vectors = target_of("vectors", install.vectors.value, host)
    if history.real == vectors.real or history.real.startswith(vectors.real + "/"):
        raise Refused(
            f"{history.path} lies inside the vector store: the two cannot be exchanged one by one",
            "restore into a new directory with --to",
        )
    if snapshot is not None:
        source = os.path.realpath(snapshot)
        if source == vectors.real or source.startswith(vectors.real + "/"):
            raise Refused(
                f"{snapshot} lies inside the vector store that it would replace", "move it out first"
            )
    below = mounted_below(vectors.real, host)
    if below:
        raise Refused(
            f"{below[0]} is mounted inside the vector store, which cannot be exchanged with that",
            "restore into a new directory with --to",
        )
    return history, vectors


def mounted_below(real: str, host: Host) -> list[str]:
    """What is mounted inside a folder (links followed)."""
    points = [m.point for m in parse_mounts(mountinfo_of("self", host))]
    return [point for point in points if point.startswith(real.rstrip("/") + "/")]


_ENDING: Final = len(".replaced-2026-11-30T023000Z-9999")
"""The longest that is added to a name: of what is put aside, of staging folders, and of what is written for them."""


def check_names(paths: Sequence[str]) -> None:
    """Refuses paths (links followed) whose names are too long to be put aside under a dated one."""
    for path in paths:
        folder = next(str(one) for one in Path(path).parents if os.path.isdir(one))  # noqa: PTH112
        most = os.pathconf(folder, "PC_NAME_MAX")
        if len(os.fsencode(os.path.basename(path))) + _ENDING > most:  # noqa: PTH119
            raise Refused(
                f"{path}: its name is too long to get a date after it ({most} bytes are possible there)",
                f"one of at most {most - _ENDING} bytes is needed",
            )


def target_of(half: Half, path: str, host: Host) -> Target:
    """One store as a restore meets it. Raises Refused where it cannot be exchanged."""
    if seen_through(path, host)[0] is not None:
        raise Refused(
            f"{path} lies under another process's root: nothing is restored there",
            "restore into a new folder that lasts, with --to, and give the agent that one: mem0audit explain L104",
        )
    try:
        real = resolved(path, host)
        found = os.stat(real) if os.path.lexists(real) else None  # noqa: PTH116
    except OSError as error:
        raise Refused(f"{path}: {(error.strerror or 'cannot be looked at').lower()}") from None
    if found is not None and not (stat.S_ISREG if half == "history" else stat.S_ISDIR)(found.st_mode):
        raise Refused(f"{path}: is no {'file' if half == 'history' else 'folder'}")
    mounted = found is not None and is_mount_point(real, host)
    if mounted and half == "history":
        mount = mount_under(real, host)
        where = f" (it is {mount.root} of {mount.source})" if mount is not None else ""
        raise Refused(
            f"{path} is mounted as a single file{where}: such a file can be exchanged with no other, and writing into "
            "it could not be undone after a power cut",
            "restore where that file comes from, outside of the container, or into a new directory with --to; and "
            "mount the folder that it lies in, not the file",
        )
    place = look_at(path, host)
    return Target(
        half=half,
        path=path,
        real=real,
        way="inside" if mounted else "rename",
        exists=found is not None,
        staging=staging_inside(real) if mounted else staging_beside(real),
        filesystem=place.filesystem,
        volatile=bool(place.volatile),
    )


_QDRANTS: Final = frozenset(("meta.json", "meta.json.tmp", "collection", ".lock"))
"""What qdrant-client makes in an embedded folder (local/qdrant_local.py)."""


def strangers(vectors: Target) -> list[str]:
    """The paths in a vector folder that is exchanged whole that are not Qdrant's. Raises Refused where all are: it is
    some other folder."""
    if not vectors.exists or vectors.way == "inside":
        return []
    try:
        names = sorted(entry.name for entry in Path(vectors.real).iterdir())
    except OSError as error:
        raise Refused(f"{vectors.path}: {(error.strerror or 'cannot be looked into').lower()}") from None
    others = [name for name in names if name not in _QDRANTS]
    if others and len(others) == len(names):
        raise Refused(
            f"{vectors.path} is no Qdrant folder: it holds {others[0]}, and neither meta.json nor collection",
            "name the vector folder with --qdrant-path; one that is empty or not there is filled",
        )
    return [f"{vectors.path}/{name}" for name in others]


def is_mount_point(real: str, host: Host) -> bool:
    """Whether something is mounted at this path (links followed)."""
    mount = mount_under(real, host)
    return mount is not None and mount.point == real


def check_room(targets: Sequence[Target], manifest: Manifest, host: Host, times: int = 1) -> None:
    """Raises Refused where the copies, so many times their size, do not fit beside what is there."""
    for target in targets:
        free = look_at(target.real, host).free_bytes
        if free is not None and free < manifest.size_bytes * times + SLACK_BYTES:
            no_room(target.path, free, manifest, times)


def no_room(path: str, free: int, manifest: Manifest, times: int = 1) -> NoReturn:
    """Raises Refused, with both numbers (bytes)."""
    needed = manifest.size_bytes * times + SLACK_BYTES
    raise Refused(
        f"{path}: {free:,} bytes are free where it lies, a restore needs {needed:,}: the "
        "old stores stay until the new ones are proven"
    )


# --- Who has it open ----------------------------------------------------------------------------------


def refuse_in_use(install: Install, host: Host) -> str | None:
    """Raises Refused while a process has the install open. Gives why not all processes could be seen."""
    assert install.vectors is not None
    paths = [install.history.value, install.vectors.value]
    look = holders(paths, host)
    if not look.holders:
        return look.why
    first = look.holders[0]
    what = first.paths[0] if first.paths else install.vectors.value
    what = what.removesuffix("/.lock")
    flags = shell_words(("--history", paths[0], "--qdrant-path", paths[1])) + " "
    others = f" and {len(look.holders) - 1} more" if len(look.holders) > 1 else ""
    raise Refused(
        f"{what} is in use by {named(first)}{others}", how_to_stop(look.holders, paths, host, flags)
    )


def refuse_holders(paths: Sequence[str], host: Host) -> str | None:
    """Raises Refused while a process has one of these stores open. Gives why not all processes could be seen."""
    look = holders(paths, host)
    if not look.holders:
        return look.why
    first = look.holders[0]
    what = (first.paths[0] if first.paths else paths[0]).removesuffix("/.lock")
    stops = "\n".join(f"  {command}" for command in dict.fromkeys(map(stop_command, look.holders)))
    raise Refused(f"{what} is in use by {named(first)}", f"Stop it and run this again:\n{stops}")


def named(holder: Holder) -> str:
    """A process for people: its pid, container, unit and program."""
    parts = [holder.command]
    if holder.unit is not None:
        parts.insert(0, holder.unit)
    if holder.container is not None:
        parts.insert(0, f"container {holder.container}")
    if holder.private_mounts:
        parts.append("with mounts of its own")
    return f"pid {holder.pid} ({', '.join(parts)})"


def how_to_stop(found: Sequence[Holder], paths: Sequence[str], host: Host, flags: str = "") -> str:
    """The commands that stop the holders; and first, where stopping one deletes what it has, how to save that (`flags`,
    quoted, with a space after them, name the install)."""
    stops = "\n".join(f"  {command}" for command in dict.fromkeys(stop_command(holder) for holder in found))
    places = [look_at(path, host) for path in paths]
    dying = [p.path for p in places for holder in found if dies_with_agent(p, holder)]
    if dying:
        return (
            f"Do not stop it yet: what is in {dying[0]} goes with it. Take it out first, while it runs:\n"
            f"  mem0audit snapshot create {flags}--to DIR\n"
            f"Then stop it and run this again:\n{stops}"
        )
    return f"Stop it and run this again:\n{stops}"


def in_use(problem: exchange.InUse, unseen: str | None) -> NoReturn:
    """Raises Refused for a lock whose holder /proc did not show."""
    why = f" ({unseen})" if unseen else ""
    raise Refused(
        f"{problem} is locked by a process that is not visible from here{why}; nothing was changed",
        "stop the agent, wherever it runs (another container, another machine), or let another mem0audit end, and run "
        "this again",
    ) from None


# --- Whose it is ----------------------------------------------------------------------------------------


def check_owners(targets: Sequence[Target]) -> None:
    """Refuses, for an ordinary user, to replace what belongs to another: the owner could not be kept."""
    uid = os.geteuid()
    for target in targets:
        owner = exchange.owner_of(Path(target.real))
        if uid and owner is not None and owner[0] != uid:
            raise Refused(
                f"{target.path} belongs to {account(owner[0])}, and owners are kept",
                "run it as that user, or with sudo",
            )


def account(uid: int) -> str:
    """A user's name, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def owners_of(targets: Sequence[Target]) -> dict[str, tuple[int, int]]:
    """Who will own each half: who owns it now, else the other one's owner, else the owner of the nearest folder
    that not everybody may write to."""
    if os.geteuid():
        return {t.half: (os.geteuid(), os.getegid()) for t in targets}
    there = {t.half: exchange.owner_of(Path(t.real)) for t in targets}
    folders = [folder_owner(Path(t.real).parent) for t in targets]
    known = [owner for owner in (*there.values(), *folders) if owner is not None]
    return (
        {t.half: there[t.half] or known[0] for t in targets} if known else {t.half: (0, 0) for t in targets}
    )


def folder_owner(folder: Path) -> tuple[int, int] | None:
    """The owner of the nearest folder that is there; None where that one is everybody's, as /tmp is."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    found = folder.stat()
    return None if found.st_mode & 0o002 else (found.st_uid, found.st_gid)
