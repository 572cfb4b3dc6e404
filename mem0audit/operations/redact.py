"""Overwrite what was deleted, and empty what mem0's API leaves in the log: the agent stopped, nothing removed.

The two opt-in acts on a store's own files. `apply_clearing` rebuilds each database over its free pages. A redaction
empties the text of log rows and messages of somebody whose memories are deleted, then does the same, then searches
every byte again for what it emptied.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.model import Install
from mem0audit.core.redaction import Cleared, ClearPlan, Database, Redacted, RedactPlan
from mem0audit.core.scopes import Scope
from mem0audit.install.config import Settings
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.places import look_at
from mem0audit.operations.interrupted import interrupted, words
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.look import Progress, no_progress
from mem0audit.operations.residue import read_log, read_vectors, residue, whose
from mem0audit.operations.seal import explain
from mem0audit.operations.stores import store_of
from mem0audit.operations.targets import SLACK_BYTES, in_use, only_linux, refuse_in_use
from mem0audit.stores import exchange, overwrite, rawfiles
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.overwrite import NotAsMem0Writes, WentWrong

# --- Free pages -------------------------------------------------------------------------------------


def plan_clearing(install: Install, host: Host) -> ClearPlan:
    """Every database of both stores. Changes nothing. Raises Refused while somebody has the install open, where a
    restore was cut off here, where a store lies under another root, or where there is no room."""
    only_linux()
    if install.vectors is None and install.server_url is None:
        raise Refused("the vector store is no Qdrant: what it keeps is not known")
    for path in [o.value for o in (install.history, install.vectors) if o is not None]:
        if seen_through(path, host)[0] is not None:
            raise Refused(f"{path} lies under another process's root: nothing is changed there")
    refuse_left_moves(install, host)
    cut = interrupted(install, host)
    if cut is not None and cut.course != "clean":
        raise Refused(
            f"a restore was cut off here ({cut.folder}): it comes first",
            "mem0audit snapshot restore --in-place",
        )
    unseen = refuse_in_use(install, host)
    databases = tuple(map(_database, _paths(install, host)))
    if not databases:
        raise CouldNotRead(f"{install.history.value}: no database of this install is there")
    for one in databases:
        free = look_at(one.path, host).free_bytes
        # a copy, SQLite's journal, and what it builds the new one in
        need = one.size_bytes * 3 + SLACK_BYTES
        if free is not None and free < need:
            raise Refused(f"{one.path}: {free:,} bytes are free where it lies, rebuilding it needs {need:,}")
    return ClearPlan(install, databases, unseen)


def _paths(install: Install, host: Host) -> list[str]:
    try:
        history = resolved(install.history.value, host)
        folder = None if install.vectors is None else resolved(install.vectors.value, host)
    except OSError as error:
        raise Refused(words(error)) from None
    paths = [history] if rawfiles.exists(history) else []
    if folder is None:
        return paths  # a server's files are its own
    layout = EmbeddedStore(folder).layout()
    if layout.problem is not None:
        raise Refused(f"{folder}: {layout.problem.detail}")
    paths += [
        f"{info.path}/storage.sqlite" for info in layout.collections if info.has_folder and not info.legacy
    ]
    return paths


def _database(path: str) -> Database:
    try:
        size, free = rawfiles.searched(path, rawfiles.free_pages)
    except (OSError, rawfiles.Moved):
        raise Refused(f"{path}: cannot be read") from None
    if free is None:
        raise Refused(f"{path}: is no SQLite database")
    return Database(path, size, len(free.pages), free.filled)


@contextmanager
def _held(install: Install, host: Host, unseen: str | None) -> Iterator[None]:
    """Qdrant's own lock, so that no agent starts meanwhile; SQLite's are taken by each change."""
    folder = None if install.vectors is None else Path(resolved(install.vectors.value, host))
    with ExitStack() as stack:
        try:
            if folder is not None and folder.is_dir():
                stack.enter_context(exchange.store_locked(folder))
            refuse_in_use(install, host)
        except exchange.InUse as problem:
            in_use(problem, unseen)
        yield


def apply_clearing(plan: ClearPlan, host: Host, *, progress: Progress | None = None) -> Cleared:
    """Rebuilds every database over its free pages. Cut off at any moment, each is as it was or rebuilt, and the same
    command does the rest. Raises Refused where somebody has one open meanwhile, Failed."""
    with _held(plan.install, host, plan.unseen):
        return _rebuilt(plan, progress or no_progress)


def _rebuilt(plan: ClearPlan, say: Progress) -> Cleared:
    started = time.monotonic()
    done: list[tuple[Database, int]] = []
    for number, one in enumerate(plan.databases):
        say("rebuilding the files", number, len(plan.databases))
        path = Path(one.path)
        try:
            exchange.settle_journals(path)
            overwrite.rebuild(path)
            size = path.stat().st_size
        except exchange.InUse as problem:
            in_use(problem, plan.unseen)
        except WentWrong as problem:
            raise Failed(
                f"{one.path} is not what it was after it was rebuilt: keep the agent stopped",
                f"a copy that was proven before lies in {problem.copy}",
            ) from None
        except (OSError, sqlite3.Error) as error:
            if "locked" in str(error):
                in_use(exchange.InUse(one.path), plan.unseen)
            raise Failed(
                f"{one.path}: {words(error)}; {len(done)} of {len(plan.databases)} files are rebuilt, no row changed",
                "the same command does the rest",
            ) from None
        done.append((one, size))
    return Cleared(tuple(done), time.monotonic() - started)


# --- Redaction --------------------------------------------------------------------------------------


def plan_redaction(
    install: Install,
    host: Host,
    *,
    scope: Scope | None = None,
    memory_ids: Collection[str] = (),
    ledger: bool = True,
) -> RedactPlan:
    """What a redaction of a scope would empty: the log rows of every id that the ledger ever gave it and of
    `memory_ids`, and its messages. Changes nothing.

    Raises Refused where memories of it are still in the store: they are deleted first, through mem0; else as
    plan_clearing. CouldNotRead where a store cannot be read whole.
    """
    clearing = plan_clearing(install, host)
    if scope is not None:
        book = whose(install, host, scope, (), ledger=ledger)
        if book.not_read and not memory_ids:
            gap = book.not_read[0]
            raise Refused(f"whose the rows of the log are is not known ({gap.what}: {gap.why})")
        who = book.whose
    else:
        who = whose(install, host, None, tuple(memory_ids), ledger=ledger).whose
    who = replace(who, ids=who.ids | frozenset(memory_ids))
    vectors = read_vectors(store_of(install), who)
    log = read_log(install.history.value, who, vectors.everybody)
    for gap in (*vectors.not_read, *log.not_read):
        raise CouldNotRead(f"{gap.what}: {gap.why}; nothing was changed")
    if vectors.mine:
        raise Refused(
            f"{len(vectors.mine):,} memories of it are still in the store: mem0 deletes them first",
            "what is emptied here is only what that leaves",
        )
    counts = {kind: sum(r.count or 0 for r in log.rows if r.kind == kind) for kind in _KINDS}
    return RedactPlan(
        install,
        scope,
        who.ids,
        tuple(dict.fromkeys((*log.texts, *vectors.texts))),
        counts["history"],
        counts["stranded"],
        counts["messages"],
        log.unattributed,
        clearing,
    )


_KINDS = ("history", "stranded", "messages")


def apply_redaction(
    plan: RedactPlan,
    host: Host,
    *,
    texts: Collection[str] = (),
    settings: Settings | None = None,
    ledger: bool = True,
    progress: Progress | None = None,
) -> Redacted:
    """Empties the texts in one transaction, rebuilds the files, and searches every byte again for what was emptied and
    for `texts` (of points that were deleted before). No row is removed, NULL stays NULL.

    Cut off at any moment, the log is as it was or emptied, and the same call does the rest; what it emptied then can
    only be searched for where a copy still has it. Raises Refused, Failed.
    """
    say = progress or no_progress

    def is_theirs(session: str) -> bool:
        return plan.scope is not None and plan.scope.covers_messages(session)

    with _held(plan.install, host, plan.clearing.unseen):
        path = Path(resolved(plan.install.history.value, host))
        try:
            exchange.settle_journals(path)
            say("emptying texts", None, None)
            done = overwrite.empty_texts(path, plan.ids, is_theirs)
        except exchange.InUse as problem:
            in_use(problem, plan.clearing.unseen)
        except NotAsMem0Writes as problem:
            raise Refused(f"{path}: {problem}") from None
        except (OSError, sqlite3.Error) as error:
            if "locked" in str(error):
                in_use(exchange.InUse(str(path)), plan.clearing.unseen)
            raise Failed(f"{path}: {words(error)}; nothing was changed") from None
        cleared = _rebuilt(plan.clearing, say)
        detail = f"text of {done.history + done.stranded} log rows and {done.messages} messages emptied"
        changed = done.history + done.stranded + done.messages
        sealed = (
            explain(plan.install, host, "redact", detail, ledger=ledger, progress=say) if changed else None
        )
    after = residue(
        plan.install,
        host,
        scope=plan.scope,
        memory_ids=() if plan.scope is not None else tuple(plan.ids),
        texts=tuple(dict.fromkeys((*plan.texts, *texts))),
        settings=settings,
        ledger=ledger,
        progress=progress,
    )
    return Redacted(
        done.history,
        done.stranded,
        done.messages,
        done.memories,
        plan.unattributed,
        cleared,
        after,
        sealed.why if sealed is not None and not sealed.extended else None,
    )
