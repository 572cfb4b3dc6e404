"""Stores that lie under another process's root: a private /tmp, a container. Seen, and read there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from mem0audit.core.model import FileProblem, Holder, Install, Origin
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.places import look_at
from mem0audit.stores import files
from mem0audit.stores.child import ChildFailed
from mem0audit.stores.otherroot import in_root, mounted_here

T = TypeVar("T")


def where_it_lies(path: str, host: Host, read: Callable[[str], T], failed: Callable[[FileProblem], T]) -> T:
    """`read(path)`, done under the other process's root where the path leads into one.

    What `read` returns there must be data: it comes from a child process. Its errors for the user are raised
    here; what keeps the child from reading goes through `failed`.
    """
    pid, inner = seen_through(path, host)
    if pid is None:
        return read(path)
    root = path[: len(path) - len(inner)]
    try:
        return _moved(in_root(root, lambda: read(inner)), root)
    except PermissionError:
        why = "lies under another process's root, which only root may enter"
        return failed(FileProblem("permission", why))
    except (OSError, ChildFailed) as error:
        return failed(FileProblem("other", f"could not be read under another process's root: {error}"))


def _moved(value: T, root: str) -> T:
    """The same with every `path` as it is seen from here."""
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_moved(item, root) for item in value)  # type: ignore[return-value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {}
    for field in fields(value):
        now = getattr(value, field.name)
        changes[field.name] = root + now if field.name == "path" else _moved(now, root)
    return replace(value, **changes)


@contextmanager
def brought_here(install: Install, host: Host) -> Iterator[Install]:
    """The install by paths that SQLite can open here: what lies under another process's root is mounted in a scratch
    folder, for this process and as long as this lasts. Raises OSError, ChildFailed where that cannot be done."""
    origins = [o for o in (install.history, install.vectors) if o is not None]
    others = [o for o in origins if seen_through(o.value, host)[0] is not None]
    if not others:
        yield install
        return
    with files.scratch_folder() as scratch:
        pairs: list[tuple[str, str]] = []
        here = install
        for role, origin in (("history", install.history), ("vectors", install.vectors)):
            if origin not in others or origin is None:
                continue
            real = resolved(origin.value, host)
            # SQLite's journals lie beside the log: its whole folder comes along.
            folder, name = os.path.split(real) if role == "history" else (real, "")
            files.make_folders(scratch / role)
            pairs.append((folder, str(scratch / role)))
            value = str(scratch / role / name)
            here = replace(here, **{role: Origin(value, origin.decided_by)})  # type: ignore[arg-type]
        with mounted_here(pairs):
            yield here


def as_the_agent_sees_it(install: Install, found: Sequence[Holder], host: Host) -> Install:
    """The install with its stores where they are seen from here.

    A store that is not there for us, and that one process has open under the same path in a mount namespace
    of its own (PrivateTmp=, a container), is read through that process's root: the log; then the vectors, of
    the process that has this log open (somebody else's vectors are not ours). Where several have it, it is for
    the user to say which.
    """
    history = _seen(install.history, found, host)
    if install.vectors is None or not look_at(history.value, host).exists:
        return replace(install, history=history)
    ours = [h for h in found if any(p == history.value or _under(history, p, h, host) for p in h.paths)]
    return replace(install, history=history, vectors=_seen(install.vectors, ours, host))


def _under(history: Origin, held: str, holder: Holder, host: Host) -> bool:
    """Whether a path that a process has open, in its own words, is the log that was found under its root."""
    return f"{host.proc}/{holder.pid}/root{held}" == history.value


def _seen(origin: Origin, found: Sequence[Holder], host: Host) -> Origin:
    if look_at(origin.value, host).exists:
        return origin
    below = origin.value.rstrip("/") + "/"
    inside = {h.pid for h in found if h.private_mounts and any((p + "/").startswith(below) for p in h.paths)}
    if len(inside) != 1:
        return origin
    pid = inside.pop()
    return Origin(f"{host.proc}/{pid}/root{origin.value}", f"{origin.decided_by}, as pid {pid} sees it")
