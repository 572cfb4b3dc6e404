"""The log held still for a moment, and with it whoever writes through mem0.

mem0 writes the points first and the log second, so a program that cannot commit to the log stands still after at most
one more write to the points. SQLite's SHARED lock does that to a log with a rollback journal: its writer waits for
`busy_timeout` (5 s in mem0), and keeps PENDING meanwhile, which lets nobody else in. So the first look that SQLite
allows after the lock was let go has the row that waited, and not yet the one after it. A writer in write-ahead logging
mode waits for nobody.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from mem0audit.stores import files, sqlitefiles
from mem0audit.stores.sqlitefiles import Reading

AGAIN_S: Final = 0.0005
"""How often a lock is asked for again."""
FREE_S: Final = 2.0
"""How long a writer's own transaction may keep us out."""


@contextmanager
def held_log(path: str) -> Iterator[HeldLog | None]:
    """The log, not locked yet; None where it cannot be held (write-ahead logging, a hot journal, damage). No
    descriptor of the file may be closed meanwhile: POSIX drops all of a process's locks with the first one."""
    with ExitStack() as stack:
        held: HeldLog | None = None
        with suppress(sqlitefiles.ReadFailed, OSError, sqlite3.Error):
            if not sqlitefiles.is_hot(path):
                reading = stack.enter_context(
                    sqlitefiles.opened(path, Path(path).stat(), False, any_thread=True)
                )
                if reading.journal_mode == "rollback" and reading.way == "read-only" and not reading.problem:
                    held = HeldLog(reading)
                    stack.callback(held.let_go)
        yield held


class HeldLog:
    """See the module. `longest_s` is the longest time that a writer may have waited."""

    def __init__(self, reading: Reading) -> None:
        self._connection = reading.connection
        self._connection.set_progress_handler(None, 0)
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._turn = threading.RLock()
        self._timer: threading.Timer | None = None
        self._since: float | None = None
        self.longest_s = 0.0

    def hold(self, most_s: float) -> bool:
        """Keeps whoever writes to the log from it, for `most_s` seconds at most; False where a writer's own
        transaction does not end. Raises sqlite3.Error."""
        end = time.monotonic() + FREE_S
        while True:
            try:
                self._connection.execute("BEGIN")
                self._connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
                break
            except sqlite3.OperationalError as error:
                self._end()
                if not ("locked" in str(error) or "busy" in str(error)):
                    raise
                if time.monotonic() > end:
                    return False
            time.sleep(AGAIN_S)
        self._since = time.monotonic()
        self._timer = threading.Timer(most_s, self.let_go)
        self._timer.daemon = True
        self._timer.start()
        return True

    def hold_next(self, most_s: float, wait_s: float) -> bool:
        """Lets it go, and holds it again after the next commit; False where none comes within `wait_s` seconds.
        Raises sqlite3.Error."""
        end = time.monotonic() + wait_s
        seen = self._version()
        while True:
            self.let_go()
            if time.monotonic() > end:
                return False
            time.sleep(AGAIN_S)
            if not self.hold(most_s):
                return False
            if self._version() != seen:
                return True

    def let_go(self) -> bool:
        """Lets the writer go on; whether it was held until now."""
        with self._turn:
            since, self._since = self._since, None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._end()
            if since is None:
                return False
            self.longest_s = max(self.longest_s, time.monotonic() - since)
            return True

    def copy(self, target: Path) -> bool:
        """Copies the log as it is held into a new file; False where it was let go already. Raises sqlite3.Error,
        OSError."""
        with self._turn:
            if self._since is None:
                return False
            files.backup_database(self._connection, target)
            return True

    def _version(self) -> int:
        with self._turn:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _end(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
