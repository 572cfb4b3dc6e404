"""Put a stranded log back: rows that an interrupted migration left in another table, into `history`."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.model import Install
from mem0audit.core.recover import PutBack, PutBackPlan, PutBackTable
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host, resolved
from mem0audit.install.places import look_at
from mem0audit.operations.interrupted import interrupted, words
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.look import Progress, no_progress
from mem0audit.operations.pairs import plan_pair, take_pair
from mem0audit.operations.seal import explain
from mem0audit.operations.targets import in_use, only_linux, refuse_in_use
from mem0audit.stores import exchange
from mem0audit.stores.history import StrandedLog, read_history_file, stranded_log
from mem0audit.stores.putback import NotAsPlanned, put_back


def plan_put_back(install: Install, host: Host, folder: str, *, ledger: bool = True) -> PutBackPlan:
    """What `apply_put_back` would do, after a snapshot into `folder`. Changes nothing.

    Raises CouldNotRead where a store is not there, Refused where somebody has the install open, the rows cannot go
    back as they were written, or no snapshot can be taken. A plan without tables has nothing to put back.
    """
    only_linux()
    path = install.history.value
    log = _stranded(path, host)
    tables = tuple(
        PutBackTable(table.name, table.rows, table.missing, table.memories)
        for table in log.tables
        if table.missing
    )
    if not tables:
        return PutBackPlan(install, (), log.rows, log.lowest, folder, ledger=ledger)
    for table in log.tables:
        if table.problem is not None:
            raise Refused(
                f"{path}: {table.missing:,} rows of {table.name} cannot go back as mem0 wrote them: {table.problem}",
                "what is in that table:  mem0audit explain I205",
            )
    real = resolved(path, host)
    if not os.access(real, os.W_OK):
        raise Refused(f"{path}: cannot be written by this user", "run it as its owner, or with sudo")
    refuse_left_moves(install, host)
    found = interrupted(install, host)
    if found is not None:
        raise Refused(
            "a restore was cut off here: that comes first", "mem0audit snapshot restore --in-place --dry-run"
        )
    unseen = refuse_in_use(install, host)
    plan_pair(install, host, folder)
    return PutBackPlan(install, tables, log.rows, log.lowest, folder, unseen, ledger)


def _stranded(path: str, host: Host) -> StrandedLog:
    """What could go back. Raises CouldNotRead, Refused where the log has no history table yet."""
    if not look_at(path, host).exists:
        raise CouldNotRead(f"{path} is not there", "where this install writes: mem0audit status")
    file = read_history_file(resolved(path, host))
    if file.schema is None and any(table.missing_rows for table in file.stranded):
        raise Refused(
            f"{path} has no history table yet to put rows into",
            "start the agent once, with a mem0 outside of 0.1.100 to 0.1.106: it makes an empty one",
        )
    return stranded_log(resolved(path, host))


def apply_put_back(
    plan: PutBackPlan,
    host: Host,
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
) -> PutBack:
    """Takes the snapshot, and inserts the rows in one transaction, with Qdrant's and SQLite's locks held.

    Raises Refused where somebody has the install open meanwhile, Failed where nothing was changed.
    """
    say = progress or no_progress
    started = time.monotonic()
    install = plan.install
    say("taking a snapshot first", None, None)
    taken = take_pair(install, host, plan.folder, progress=progress, now=now, ledger=plan.ledger)
    real = Path(resolved(install.history.value, host))
    warnings: tuple[str, ...] = taken.notes
    try:
        with ExitStack() as stack:
            if install.vectors is not None:
                folder = Path(resolved(install.vectors.value, host))
                if folder.is_dir():
                    stack.enter_context(exchange.store_locked(folder))
            refuse_in_use(install, host)  # again: the snapshot took its time
            planned = _stranded(str(real), host)
            if not any(table.missing for table in planned.tables):
                raise Failed("the log has those rows by now; nothing was changed")
            say("putting the rows back", None, None)
            before, after = put_back(real, planned)
            rows = sum(table.missing for table in planned.tables)
            names = ", ".join(table.name for table in planned.tables if table.missing)
            say("explaining it to the seals", None, None)
            outcome = explain(
                install, host, "put-back", f"{rows} rows of {names}", ledger=plan.ledger, progress=say
            )
            if outcome is not None and not outcome.extended:
                warnings += (
                    f"The chain of seals does not know of this ({outcome.why}): the next audit will find a "
                    "difference.",
                )
    except exchange.InUse as problem:
        in_use(problem, plan.unseen)
    except NotAsPlanned as problem:
        raise Failed(
            f"{install.history.value}: {problem}; nothing was changed", "the same command begins again"
        ) from None
    except (OSError, sqlite3.Error) as error:
        raise Failed(
            f"{install.history.value}: {words(error)}; nothing was changed",
            f"the same command begins again; the snapshot stays: {shell_word(taken.path)}",
        ) from None
    tables = tuple(PutBackTable(t.name, t.rows, t.missing, t.memories) for t in planned.tables if t.missing)
    return PutBack(
        install.history.value, taken.path, tables, before, after, warnings, time.monotonic() - started
    )
