"""What the ledger says of search results, inside the agent: quick, without opening a store, and never in its way."""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mem0audit.core.errors import Mem0auditError
from mem0audit.core.ledger import LedgerFact, annotated
from mem0audit.core.model import Install, Origin
from mem0audit.core.server import parse_address
from mem0audit.install.host import this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.stores import ledger as store
from mem0audit.stores.ledger import CannotUse, Ledger
from mem0audit.stores.mem0live import stores_of

BATCH: Final = 256
"""So many memories whose use is not written down yet are written at once,"""
BATCH_S: Final = 60.0
"""or when the first of them has waited so long."""
LOOK_AGAIN_S: Final = 60.0
"""So long it is not looked for a ledger again where there is none."""
BUSY_MS: Final = 100
"""So long the agent waits for another run that writes to the ledger, at most."""


@dataclass
class _Book:
    """The ledger of one install as this process knows it. `path` is None where there is none, as of `looked_at`."""

    path: Path | None = None
    looked_at: float = float("-inf")
    used: dict[str, float] = field(default_factory=dict)
    written_at: float = field(default_factory=time.monotonic)
    warned: set[str] = field(default_factory=set)


_books: dict[tuple[str | None, ...], _Book] = {}
_lock = threading.Lock()


def live(
    results: Any,
    memory: Any = None,
    *,
    history: str | None = None,
    qdrant_path: str | None = None,
    qdrant_url: str | None = None,
    config: str | None = None,
) -> Any:
    """See `mem0audit.live`."""
    items = results.get("results") if isinstance(results, Mapping) else results
    if not isinstance(items, (list, tuple)):
        return results
    ids = [str(one["id"]) for one in items if isinstance(one, Mapping) and "id" in one]
    with _lock:
        rows, book = _rows(ids, memory, history, qdrant_path, qdrant_url, config)
        now = time.time()
        found = annotated(items, rows, now)
        if book.path is not None:
            book.used.update((str(i["id"]), now) for i in found if isinstance(i, Mapping) and "id" in i)
            if len(book.used) >= BATCH or time.monotonic() - book.written_at >= BATCH_S:
                _write(book)
    return {**results, "results": found} if isinstance(results, Mapping) else found


def _rows(
    ids: Collection[str],
    memory: Any,
    history: str | None,
    qdrant_path: str | None,
    qdrant_url: str | None,
    config: str | None,
) -> tuple[Mapping[str, LedgerFact], _Book]:
    """What the ledger knows of these; none, and a warning, where that cannot be had."""
    book = _Book()
    try:
        if memory is not None:
            stores = stores_of(memory)
            history, config = stores.history, None
            qdrant_path, qdrant_url = (
                (stores.vectors, None) if stores.server is None else (None, stores.server.url)
            )
        key = (
            history,
            qdrant_path,
            qdrant_url,
            config,
            os.environ.get("MEM0_DIR"),
            os.environ.get("XDG_STATE_HOME"),
        )
        book = _books.setdefault(key, book)
        if book.path is None and time.monotonic() - book.looked_at >= LOOK_AGAIN_S:
            book.looked_at = time.monotonic()
            book.path = _found(history, qdrant_path, qdrant_url, config, is_given=memory is not None)
        if book.path is None:
            _warn(book, "there is no ledger of this install for this user yet: an audit begins it")
            return {}, book
        with _opened(book.path) as ledger:
            return ledger.memories(ids), book
    except CannotUse as error:
        _warn(book, f"the ledger {book.path} {error.why}")
    except Mem0auditError as error:
        _warn(book, error.message)
    except (sqlite3.Error, OSError) as error:
        book.path = None  # it was moved away, perhaps
        _warn(book, f"the ledger could not be read ({type(error).__name__})")
    return {}, book


def _found(
    history: str | None,
    qdrant_path: str | None,
    qdrant_url: str | None,
    config: str | None,
    *,
    is_given: bool,
) -> Path | None:
    """The install's ledger. Raises CannotUse, Mem0auditError."""
    host = this_host()
    if is_given and history is not None:
        by = "the Memory that was given"
        history = os.path.normpath(os.path.join(host.cwd, history))  # noqa: PTH118
        install = Install(
            history=Origin(history, by),
            vectors=None
            if qdrant_path is None
            else Origin(os.path.normpath(os.path.join(host.cwd, qdrant_path)), by),  # noqa: PTH118
            collection=Origin("mem0", by),
            mem0_dir=Origin(os.path.dirname(history), by),  # noqa: PTH120
            server_url=None if qdrant_url is None else Origin(parse_address(qdrant_url).url, by),
        )
    else:
        from mem0audit.install.locate import Flags, locate

        install = locate(
            Flags(
                history=history,
                qdrant_path=qdrant_path,
                qdrant_url=qdrant_url,
                collection=None,
                config=config,
                agent_python=None,
            ),
            host,
        )
    identity = ledgers.identity_of(install, host, by_paths_only=True)
    return store.find(Path(ledgers.ledger_folder(host)), identity, lambda _: True)


@contextmanager
def _opened(path: Path, *, write: bool = False) -> Iterator[Ledger]:
    with closing(store.connect(path, write=write)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        connection.execute("PRAGMA synchronous = NORMAL")  # a use that a power cut loses is no loss
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != len(store.STEPS):
            raise CannotUse("is of another version of mem0audit: an audit by this one brings it up to date")
        yield Ledger(path, connection)


def _write(book: _Book) -> None:
    """Writes down what was used; what cannot be written now waits for the next time."""
    book.written_at = time.monotonic()
    if book.path is None or not book.used:
        return
    with suppress(CannotUse, sqlite3.Error, OSError), _opened(book.path, write=True) as ledger:
        ledger.note_used(book.used)
        book.used.clear()
    while len(book.used) > 16 * BATCH:  # it cannot be written for long: the agent's memory is not ours
        book.used.pop(next(iter(book.used)))


@atexit.register
def write_uses() -> None:
    """Writes down what was used until now."""
    with _lock:
        for book in _books.values():
            _write(book)


def _warn(book: _Book, why: str) -> None:
    if why not in book.warned:
        book.warned.add(why)
        with suppress(Warning):  # where warnings are errors, this one is not the agent's
            warnings.warn(f"mem0audit.live: {why}; nothing is left out", RuntimeWarning, stacklevel=5)
