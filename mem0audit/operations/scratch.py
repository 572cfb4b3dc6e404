"""Scratch collections on a server and scratch folders here: named so that what a run that was killed left can be told
and removed.

The name says the machine (with its PID namespace: a container counts as one), the process and when that began, in the
kernel's ticks since the boot. On another machine nothing is known of that process: its collections are left alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mem0audit.core.errors import ServerProblem
from mem0audit.install.host import read_text
from mem0audit.stores import files, serversnapshots, shardsnapshots
from mem0audit.stores.server import Connection

SCRATCH: Final = "mem0audit-scratch-"
"""How the names of collections and folders begin that are made to be looked at, and removed then."""
_OURS: Final = re.compile(rf"{SCRATCH}([0-9a-f]{{8}})-(\d{{1,10}})-(\d{{1,20}})-[0-9a-f]{{12}}(?:[_-].*)?")


def base_of(random: str) -> str:
    """How the names of this process's scratch collections begin, with 12 hexadecimal digits of the caller's."""
    pid = os.getpid()
    return f"{SCRATCH}{_machine()}-{pid}-{_began(pid) or 0}-{random}"


def remove_left(connection: Connection) -> None:
    """Removes what runs on this machine left there that are no more. Raises nothing: what cannot be removed stays."""
    with suppress(ServerProblem):
        for name in left_by_the_dead(serversnapshots.names(connection)):
            removed(connection, name)


def removed(connection: Connection, name: str) -> bool:
    """Removes a scratch collection with the snapshots of it; whether it is gone. Raises nothing."""
    assert name.startswith(SCRATCH)
    return serversnapshots.dropped(connection, name, snapshots=True)


@contextmanager
def folder() -> Iterator[Path]:
    """A private folder in the temporary directory, removed at the end, but for the note of a snapshot that may still
    lie on a server. Raises OSError."""
    made = Path(tempfile.gettempdir(), base_of(secrets.token_hex(6)))
    made.mkdir(mode=0o700)
    try:
        yield made
    finally:
        files.remove_scratch(made, shardsnapshots.NOTE)


def remove_left_folders(connection: Connection) -> tuple[str, ...]:
    """Removes the folders in the temporary directory that runs on this machine left which are no more, and first what
    lies on this server for them; the addresses of what may be theirs there and is not removed. Raises nothing."""
    here = Path(tempfile.gettempdir())
    said: list[str] = []
    with suppress(OSError):
        for name in left_by_the_dead([entry.name for entry in here.iterdir()]):
            if files.is_ours(here / name):
                said.extend(shardsnapshots.remove_left_there(connection, here / name))
                files.remove_scratch(here / name, shardsnapshots.NOTE)
    return tuple(said)


def left_by_the_dead(names: Collection[str]) -> list[str]:
    """Those of these names that a run of ours made on this machine which is no more."""
    here, found = _machine(), []
    for name in names:
        ours = _OURS.fullmatch(name)
        if ours is not None and ours[1] == here and ours[3] != "0" and _is_gone(int(ours[2]), int(ours[3])):
            found.append(name)
    return found


def _is_gone(pid: int, began: int) -> bool:
    if (seen := _began(pid)) is not None:
        return seen != began
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # somebody else's, of which may not be seen when it began
    return False


def _machine() -> str:
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    machine = read_text("/etc/machine-id").strip() or socket.gethostname()
    return hashlib.sha256(f"{machine}\0{namespace}".encode()).hexdigest()[:8]


def _began(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; None where that cannot be seen. One that ended and was not yet
    taken note of by its parent: 0."""
    # The command in brackets may hold spaces and brackets itself: count from the last one.
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    return 0 if fields[0] in ("Z", "X") else int(fields[19])
