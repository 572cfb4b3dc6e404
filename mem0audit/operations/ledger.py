"""The ledger of an install: where it lies, whether it can be used, and which one it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from mem0audit.core.errors import Mem0auditError
from mem0audit.core.ledger import NO_LEDGER, Kept
from mem0audit.core.model import Agent, Holder, Install, NotChecked
from mem0audit.core.points import PointRecord
from mem0audit.core.reading import Reading
from mem0audit.core.seal import Sealing
from mem0audit.install.agents import runs_here
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.places import look_at
from mem0audit.operations.otherroots import where_it_lies
from mem0audit.stores import ledger as store
from mem0audit.stores.history import end_rows
from mem0audit.stores.ledger import CannotUse, Identity, KnownAgent, Ledger

NOT_ASKED = NotChecked("ledger", "not asked for (--no-ledger)", gap=False)
"""What a run without a ledger says of it."""


def ledger_folder(host: Host) -> str:
    """Where ledgers are kept: `$XDG_STATE_HOME/mem0audit`, else `~/.local/state/mem0audit`."""
    # the specification has relative paths ignored
    given = host.environ.get("XDG_STATE_HOME", "")
    base = given if given.startswith("/") else f"{host.home.rstrip('/')}/.local/state"
    return f"{base.rstrip('/')}/mem0audit"


def why_no_ledger(install: Install, host: Host) -> NotChecked | None:
    """Why no ledger can be kept for this install by this user; None where one can."""
    folder = ledger_folder(host)
    why = None
    if host.root != "/" or not folder.startswith("/"):
        why = "the user's own folders are not known"
    else:
        place = look_at(folder, host)
        inside = _inside(folder, install, host)
        owner = _owner(folder)
        if place.problem is not None:
            why = place.problem
        elif place.volatile:
            why = f"it would lie on a {place.filesystem}, in memory, and be gone at the next reboot"
        elif inside is not None:
            why = f"it would lie inside the install, in {inside}"
        elif owner is not None and owner != host.uid:
            why = "its folder is another user's"
    return None if why is None else _cannot(folder, why)


def _cannot(path: str | Path, why: str, *, gap: bool = False) -> NotChecked:
    return NotChecked("ledger", f"{path}: {why}", gap=gap)


def _owner(folder: str) -> int | None:
    """Whose the folder is, or what of its path is there."""
    for path in (Path(folder), *Path(folder).parents):
        if os.path.lexists(path):
            return path.lstat().st_uid
    return None


def _inside(folder: str, install: Install, host: Host) -> str | None:
    """Which folder of the install the ledger would lie in. (A home that itself lies in mem0's folder is not one.)"""
    real = _resolved(folder, host) + "/"
    home = _resolved(host.home, host) + "/"
    stores = [install.vectors.value] if install.vectors is not None else []
    for path in (*stores, install.mem0_dir.value):
        below = _resolved(path, host).rstrip("/") + "/"
        if real.startswith(below) and not home.startswith(below):
            return path
    return None


def _resolved(path: str, host: Host) -> str:
    try:
        return resolved(path, host)
    except OSError:
        return path


def identity_of(install: Install, host: Host, *, by_paths_only: bool = False) -> Identity:
    """What tells the install from others: its paths, and its log's first row where that can be read."""
    vectors = install.vectors or install.server_url
    where = "" if vectors is None else _resolved(vectors.value, host) if install.vectors else vectors.value
    history = install.history.value
    return Identity(_resolved(history, host), where, None if by_paths_only else _first_row(history, host))


def _first_row(path: str, host: Host) -> str | None:
    ends = ends_of_log(path, host)
    return None if ends is None else str(ends[0][1])


def ends_of_log(path: str, host: Host) -> tuple[tuple[int, Any], tuple[int, Any]] | None:
    """(rowid, id) of a log's first and last row; None where it has none or does not read."""
    try:
        return where_it_lies(path, host, end_rows, lambda _: None)
    except Mem0auditError:
        return None


@contextmanager
def opened(
    install: Install, host: Host, *, wanted: bool = True, make: bool = False, by_paths_only: bool = False
) -> Iterator[Ledger | NotChecked | None]:
    """The ledger of an install; None where none is kept of it yet, NotChecked (with why) where none can be used.

    Made where there is none and `make`. With `by_paths_only` no store is opened, and an install that was moved is
    found again only after an audit. Raises nothing itself; what the ledger's methods raise (CannotUse) is for the
    caller to say.
    """
    if not wanted:
        yield NOT_ASKED
        return
    problem = why_no_ledger(install, host)
    if problem is not None:
        yield problem
        return
    folder = Path(ledger_folder(host))
    identity = identity_of(install, host, by_paths_only=by_paths_only)
    path: Path | None = None
    with ExitStack() as stack:
        found: Ledger | NotChecked | None = None
        try:
            path = store.find(folder, identity, lambda old: _is_there(old, identity, host))
            if path is None and make:
                path = store.new_path(folder, identity)
            if path is not None:
                found = stack.enter_context(store.opened(path, identity, make=make))
        except CannotUse as error:
            found = unusable(path or folder, error)
        yield found


def moved(old: Install, new: Install, host: Host, *, wanted: bool = True) -> str | None:
    """Lets the ledger of the install that lay at the paths of `old` be that of `new`; why that could not be done, or
    None. Where none is kept there is nothing to do."""
    with opened(old, host, wanted=wanted) as book:
        if book is None or isinstance(book, NotChecked):
            return None
        try:
            book.be(identity_of(new, host))
        except CannotUse as error:
            return error.why
    return None


def forget_folder(install: Install, folder: str, host: Host, *, wanted: bool = True) -> None:
    """A folder of snapshots is gone for good: no snapshot is looked for there any more, nor one taken by advice."""
    with opened(install, host, wanted=wanted) as book:
        if book is not None and not isinstance(book, NotChecked):
            with suppress(CannotUse):  # then it is looked in, and holds none
                book.forget_folder(folder)


def unusable(path: str | Path, error: CannotUse) -> NotChecked:
    """What is said of a ledger that is there and cannot be used: a damaged one leaves a gap."""
    return _cannot(path, error.why, gap=error.damaged)


def _is_there(old: Identity, wanted: Identity, host: Host) -> bool:
    """Whether the install that a ledger was kept of is still where it was."""
    if seen_through(old.history, host)[0] is not None:
        return False
    return _first_row(old.history, host) == wanted.first_row


def sealing_of(ledger: Ledger | NotChecked) -> Sealing | NotChecked:
    """How to look where this ledger has a seal or can get one; NotChecked where there is no ledger."""
    problem = ledger
    if not isinstance(ledger, NotChecked):
        try:
            return Sealing(ledger.key, ledger.last_seal())
        except CannotUse as error:
            problem = unusable(ledger.path, error)
    assert isinstance(problem, NotChecked)
    return NotChecked("seal", "no ledger", gap=problem.gap)


def note_seen(ledger: Ledger, reading: Reading, now: float) -> NotChecked | None:
    """Remembers whose each memory is, and what both stores say of it; why that could not be done, or None.

    `now` is in seconds since 1970."""
    points: Mapping[str, PointRecord]
    if len(reading.memories) == 1:
        points = reading.memories[0].by_id
    else:  # of one id in two collections, the install's own says it
        homes = sorted(reading.memories, key=lambda c: c.configured)
        points = {i: p for c in homes for i, p in c.by_id.items()}
    timeline = reading.timeline
    try:
        ledger.note_owners({i: p.owner for i, p in points.items()}, now)
        if timeline is not None and reading.vectors_readable:
            ledger.note_memories(points, timeline.memories, now, rows=len(timeline.rowids))
    except CannotUse as error:
        return unusable(ledger.path, error)
    return None


def note_agent(ledger: Ledger, agent: Agent, holders: Sequence[Holder], host: Host) -> None:
    """Remembers the agent's Python, where it is known with its mem0. A ledger that cannot be written is not told."""
    if agent.interpreter is None or agent.mem0_version is None:
        return
    seen = KnownAgent(
        agent.interpreter,
        agent.mem0_version,
        agent.client_version,
        runs_here(agent, holders, host),
        host.now,
    )
    with suppress(CannotUse):
        ledger.note_agent(seen)


def kept(ledger: Ledger | NotChecked | None, now: float) -> Kept | NotChecked:
    """What is known of the memories beside mem0, or why nothing is. `now` is in seconds since 1970."""
    if ledger is None or isinstance(ledger, NotChecked):
        return NO_LEDGER if ledger is None else NotChecked("ledger", "no ledger", gap=ledger.gap)
    try:
        found = ledger.kept(now)
    except CannotUse as error:
        return unusable(ledger.path, error)
    return found if found.rows else NO_LEDGER


def recovered(ledger: Ledger | NotChecked | None) -> dict[str, str]:
    """The new id of every lost memory that was added back, by its old one; none where that is not known."""
    if ledger is None or isinstance(ledger, NotChecked):
        return {}
    try:
        return ledger.recovered()
    except CannotUse:
        return {}


def snapshot_folders(install: Install, host: Host, *, ledger: bool = True) -> tuple[str, ...]:
    """The folders that snapshots of this install went to, the one used last first; () where that is not known."""
    with opened(install, host, wanted=ledger) as book:
        if book is None or isinstance(book, NotChecked):
            return ()
        try:
            return book.folders()
        except CannotUse:
            return ()
