"""Live SQLite files, read without changing a byte and without holding their writer up.

The journal mode is read from the header before SQLite opens anything, since a WAL file opened read-only
leaves files behind (measured, SQLite 3.40):

| file | beside it | way |
|---|---|---|
| rollback journal | nothing, or the journal of a living writer | `mode=ro` |
| rollback journal | a hot journal (its writer died) | a scratch copy of both, rolled back there |
| WAL | `-wal` and `-shm` | `mode=ro&readonly_shm=1` |
| WAL | no `-wal` | `immutable=1`, and a stat before and after |
| WAL | `-wal` alone | a scratch copy of both |
| rollback journal | a stray `-wal`, which SQLite would open and make a `-shm` for | a scratch copy of both |

(`readonly_shm` changes no byte of either; run by root, SQLite gives `-wal` and `-shm` to the owner they have,
and that moves their ctime. A read mark in a living writer's `-shm` may move: it is the readers' register.)

Every statement runs against a deadline; a read transaction never lasts longer than HOLD_S, the one that closes
a paged read no longer than CLOSING_S.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar
from urllib.parse import quote

from mem0audit.core.model import FileProblem, FileState
from mem0audit.stores import files

T = TypeVar("T")

HOLD_S: Final = 0.5
"""The longest read transaction, seconds. SQLite's writers in Python give up after 5."""
CLOSING_S: Final = 1.0
PAGE_S: Final = 0.05
"""How long one page is fetched for: short enough that a writer never notices."""
INTEGRITY_S: Final = 0.4
INTEGRITY_BYTES: Final = 64 << 20
"""Above this size the check would not end in time (about 150 MB a second, warm), and is not begun."""
BUSY_S: Final = 15.0
ATTEMPTS: Final = 3
TORN_LOOKS: Final = 20
TORN_TRIES: Final = 250
_MAGIC: Final = b"SQLite format 3\x00"
_PROGRESS_STEPS: Final = 20_000


class ReadFailed(Exception):
    """The file cannot be read (further); `problem` says why."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = FileProblem(kind, detail)


class Changed(Exception):
    """The file or table became another one while it was read: begin again."""


class Reading:
    """One open file. Statements go through it, so that each has a deadline and holds are measured."""

    def __init__(
        self, path: str, journal_mode: Literal["rollback", "wal"], way: str, connection: Any
    ) -> None:
        self.path = path
        self.journal_mode = journal_mode
        self.way = way
        self.longest_hold_s = 0.0
        self.problem: FileProblem | None = None
        self.doubtful = False
        """Damage seen now may be a living WAL writer's doing: raise Changed instead of believing it."""
        self.connection: sqlite3.Connection = connection
        self._deadline = 0.0
        self._begun: float | None = None
        connection.set_progress_handler(self._late, _PROGRESS_STEPS)

    def _late(self) -> bool:
        return time.perf_counter() > self._deadline

    def execute(self, sql: str, args: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Run a statement to its first row.

        A reader that may not write `-shm` gets "readonly" when it meets the WAL's index half-written; its
        living writer completes it at once, so the statement is tried again (it holds nothing yet).
        """
        tries = TORN_TRIES if self.way == "readonly-shm" else 1
        while True:
            tries -= 1
            try:
                return self.connection.execute(sql, args)
            except sqlite3.OperationalError as error:
                if not tries or "readonly database" not in str(error):
                    raise
            except UnicodeError:  # a name in the schema, which SQLite's own message repeats
                raise sqlite3.DatabaseError("malformed: a name that is no UTF-8 text") from None
            time.sleep(0.002)

    def _leniently(self, read: Callable[[], T]) -> T:
        """What `read` gives, once more with surrogate escapes where a text of it is not UTF-8."""
        try:
            return read()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
        was = self.connection.text_factory
        self.connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        try:
            return read()
        finally:
            self.connection.text_factory = was

    def page(self, sql: str, args: tuple[Any, ...] = (), seconds: float = PAGE_S) -> tuple[list[Any], bool]:
        """Rows fetched in one short read transaction, and whether that was all of them."""
        return self._leniently(lambda: self._page(sql, args, seconds))

    def _page(self, sql: str, args: tuple[Any, ...], seconds: float) -> tuple[list[Any], bool]:
        rows: list[Any] = []
        self._deadline = time.perf_counter() + BUSY_S + HOLD_S
        # Waits for a writer to finish, holding nothing; then steps to one row.
        with closing(self.execute(sql, args)) as cursor:
            begun = time.perf_counter()
            self._deadline = begun + HOLD_S
            fetch, now, stop = cursor.fetchmany, time.perf_counter, begun + seconds
            whole = False
            while now() < stop:
                some = fetch(16)
                rows += some
                if len(some) < 16:
                    whole = True
                    break
        self._held(begun)
        return rows, whole

    def all(self, sql: str, args: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of one statement that must end within HOLD_S (the transaction's time, if one is open)."""
        begun = time.perf_counter()
        if self._begun is None:
            self._deadline = begun + HOLD_S
        rows = self._leniently(lambda: self.execute(sql, args).fetchall())
        if self._begun is None:
            self._held(begun)
        return rows

    def one(self, sql: str, args: tuple[Any, ...] = ()) -> Any:
        """The first column of the first row, None without a row."""
        rows = self.all(sql, args)
        return rows[0][0] if rows else None

    @contextmanager
    def transaction(self, seconds: float = CLOSING_S) -> Iterator[None]:
        """One read transaction of at most that long: what is read within is of one instant."""
        begun = time.perf_counter()
        self.connection.execute("BEGIN")
        self._begun = begun
        self._deadline = begun + seconds
        try:
            # The lock is taken by the first read, not by BEGIN; until then nothing is held.
            self.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            self._begun = begun = time.perf_counter()
            self._deadline = begun + seconds
            yield
        finally:
            self._begun = None
            self._deadline = time.perf_counter() + HOLD_S
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._held(begun)

    def extend_deadline(self) -> None:
        """The next statement may take HOLD_S."""
        self._deadline = time.perf_counter() + HOLD_S

    def _held(self, begun: float) -> None:
        self.longest_hold_s = max(self.longest_hold_s, time.perf_counter() - begun)

    def change_count(self) -> int:
        """A number that another connection's commit changes (`PRAGMA data_version`)."""
        return int(self.one("PRAGMA data_version"))

    def schema_count(self) -> int:
        """A number that every change of the schema, and VACUUM, changes."""
        return int(self.one("PRAGMA schema_version"))

    def has_table(self, name: str) -> bool:
        """Whether there is such an ordinary table (a view of that name is none)."""
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? AND rootpage > 0"
        return bool(self.all(sql, (name,)))

    def require_table(self, name: str) -> None:
        """Raises ReadFailed unless there is such an ordinary table, with rowids of SQLite's own."""
        if not self.has_table(name):
            raise ReadFailed("no-table", f"has no table {name}")
        if self.all("SELECT 1 FROM pragma_table_xinfo(?) WHERE lower(name) = 'rowid'", (name,)):
            raise ReadFailed("no-table", f"its table {name} has a column rowid, which no mem0 writes")

    def integrity(self, size_bytes: int) -> tuple[str, ...] | None:
        """Lines of `integrity_check` other than "ok", at most 20; None where it did not end in time."""
        if size_bytes > INTEGRITY_BYTES:
            return None
        begun = time.perf_counter()
        self._deadline = begun + INTEGRITY_S
        try:
            lines = self.connection.execute("PRAGMA integrity_check(20)").fetchall()
        except sqlite3.OperationalError as error:
            return None if "interrupted" in str(error) else (problem_of(error, self.path).detail,)
        except sqlite3.DatabaseError as error:
            return (problem_of(error, self.path).detail,)
        finally:
            self._held(begun)
        return tuple(str(line) for (line,) in lines if line != "ok")


# --- What a path is --------------------------------------------------------------------------------


def _os_problem(error: OSError, path: str) -> ReadFailed:
    if isinstance(error, FileNotFoundError):
        detail = "the link leads nowhere" if Path(path).is_symlink() else "does not exist"
        return ReadFailed("missing", detail)
    if isinstance(error, NotADirectoryError):
        return ReadFailed("missing", "a parent of it is no folder")
    if isinstance(error, PermissionError):
        return ReadFailed("permission", "permission denied")
    if error.errno == errno.ELOOP:
        return ReadFailed("link-loop", "symbolic links that lead in a circle")
    return ReadFailed("other", error.strerror or "cannot be read")


def _stat(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as error:
        raise _os_problem(error, path) from None
    except ValueError:
        raise ReadFailed("other", "no possible file name") from None


def _header(path: str, found: os.stat_result) -> bytes:
    """The first 100 bytes, once everything that is plainly no database is out of the way."""
    if stat.S_ISDIR(found.st_mode):
        raise ReadFailed("folder", "is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise ReadFailed("other", "is no regular file")
    if found.st_size == 0:
        raise ReadFailed("empty", "has no bytes")
    try:
        descriptor = files.open_source(path)
        try:
            header = os.pread(descriptor, 100, 0)
        finally:
            files.close_source(descriptor)
    except OSError as error:
        raise _os_problem(error, path) from None
    if not header.startswith(_MAGIC):
        if not header.strip(b"\0"):
            raise ReadFailed("damaged", "begins with zero bytes")
        raise ReadFailed("not-sqlite", "is no SQLite file")
    page_size = int.from_bytes(header[16:18], "big")
    if len(header) < 100 or (page_size & (page_size - 1) == 0 and found.st_size < page_size):
        raise ReadFailed("damaged", f"cut off after {found.st_size} bytes")
    return header


def problem_of(error: sqlite3.Error, path: str) -> FileProblem:
    """What an SQLite error means, in a line without any text from the file."""
    text = str(error)
    for part, kind, detail in (
        ("file is not a database", "not-sqlite", "is no SQLite file"),
        ("malformed", "damaged", "the database is damaged"),
        ("no such table", "no-table", "lacks the table"),
        ("no such column", "no-table", "its table lacks a column"),
        ("locked", "busy", "locked by its writer for too long"),
        ("interrupted", "busy", "could not be read within the time a reader may take"),
        ("disk I/O error", "damaged", "reading it gives input/output errors"),
        ("unsupported file format", "not-sqlite", "a format this SQLite does not know"),
        ("readonly database", "other", "needs its writer to recover it first"),
    ):
        if part in text:
            return FileProblem(kind, detail)
    if "unable to open" in text:
        try:
            found = Path(path).stat()
        except OSError as problem:
            return _os_problem(problem, path).problem
        if not os.access(path, os.R_OK):
            return FileProblem("permission", "permission denied")
        return (
            FileProblem("folder", "is a folder")
            if stat.S_ISDIR(found.st_mode)
            else FileProblem("other", "cannot be opened")
        )
    return FileProblem("other", f"SQLite: {type(error).__name__}")


# --- Opening ---------------------------------------------------------------------------------------


def _uri(path: str, query: str) -> str:
    """A URI for any path: blanks, `%`, `?`, `#`, and names that are not UTF-8."""
    return f"file://{quote(os.fsencode(Path(path).absolute()))}?{query}"


def _connect(path: str, query: str, tolerant: bool = False, any_thread: bool = False) -> sqlite3.Connection:
    """A read-only connection. `tolerant` reads files that are shorter than their header says: SQLite refuses
    those unless the schema is writable, which it is not here (the file is open read-only)."""
    connection = sqlite3.connect(
        _uri(path, query), uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=not any_thread
    )
    try:
        if tolerant:
            connection.execute("PRAGMA writable_schema = 1")
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA trusted_schema = 0")
        connection.execute("PRAGMA cell_size_check = 1")
        connection.execute("PRAGMA schema_version").fetchone()  # a first look: a hot journal shows here
    except BaseException as error:
        if isinstance(error, sqlite3.DatabaseError) and _is_damage(error) and not tolerant:
            connection.close()
            return _connect(path, query, tolerant=True, any_thread=any_thread)
        connection.close()
        raise
    return connection


def _mark(path: str) -> tuple[int, int, int, int] | None:
    """What changes when a file is written or replaced; None where it is not there."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _os_problem(error, path) from None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _scratch_copy(stack: ExitStack, path: str, *beside: str) -> str:
    """The file and the journals beside it, copied together; raises Changed when they moved meanwhile, ReadFailed
    where there is no room for them or the journal would have SQLite touch another file."""
    everything = [path, *(path + end for end in beside)]
    before = [_mark(one) for one in everything]
    newest = max(mark[3] for mark in before if mark is not None) if any(before) else 0
    if time.time_ns() - newest < 50_000_000:
        time.sleep(0.05)  # a change within the clock's grain of the last would not show
        if [_mark(one) for one in everything] != before:
            raise Changed
    if "-journal" in beside and names_another_file(path + "-journal"):
        raise ReadFailed("other", "its journal names a file outside of it, and is not rolled back")
    try:
        folder = stack.enter_context(files.scratch_folder())
        if sum(mark[2] for mark in before if mark is not None) > shutil.disk_usage(folder).free:
            raise ReadFailed("other", f"no room for a scratch copy of it in {folder.parent}")
    except OSError as error:
        raise ReadFailed("other", f"no temporary folder to copy it into: {error.strerror}") from None
    copy = folder / "copy.db"
    try:
        files.copy_into(path, copy)
        for end in beside:
            files.copy_into(path + end, folder / f"copy.db{end}")
    except FileNotFoundError:
        raise Changed from None
    except OSError as error:
        raise ReadFailed("other", f"could not be copied for reading: {error.strerror}") from None
    if [_mark(one) for one in everything] != before:
        raise Changed
    return str(copy)


_SUPER_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")


def names_another_file(journal: str) -> bool:
    """Whether a rollback journal ends with the name of a super-journal, the record of a transaction over several
    databases (SQLite's ATTACH, which neither mem0 nor qdrant-client uses).

    SQLite, rolling such a journal back, removes the file of that name wherever it lies (seen, 3.40): a forged one
    would delete anything. Raises OSError.
    """
    descriptor = files.open_source(journal)
    try:
        tail = os.pread(descriptor, 8, max(os.fstat(descriptor).st_size - 8, 0))
    finally:
        files.close_source(descriptor)
    return tail == _SUPER_JOURNAL


_RESERVED_BYTE: Final = 0x40000001
"""Where SQLite's unix VFS locks while it writes."""


def is_hot(path: str) -> bool:
    """Whether a rollback journal lies there whose writer died.

    SQLite would find that out by itself, but run by root it gives the journal to the database's owner
    on opening it, which changes its ctime. A living writer holds a lock from before its journal is created
    until after it is gone; asking for locks takes none.
    """
    journal = _mark(path + "-journal")
    if journal is None or not journal[2] or sys.platform != "linux":
        return False
    import fcntl  # not on Windows

    try:
        descriptor = files.open_source(path)
    except OSError:
        return False
    try:
        if files.is_open_elsewhere(descriptor):
            return False  # one's own locks do not show: then SQLite itself finds out
        for _ in range(3):
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _RESERVED_BYTE, 1, 0)
            kind = struct.unpack_from("h", fcntl.fcntl(descriptor, fcntl.F_GETLK, lock))[0]
            if kind != fcntl.F_UNLCK or _mark(path + "-journal") != journal:
                return False
            time.sleep(0.01)
        with Path(path + "-journal").open("rb") as file:
            return file.read(1) not in (b"", b"\0")  # a zeroed header: PERSIST mode, done with
    except OSError:
        return False
    finally:
        files.close_source(descriptor)


@contextmanager
def opened(path: str, found: os.stat_result, copied: bool, *, any_thread: bool = False) -> Iterator[Reading]:
    """The file open for reading, nothing locked, in the way its header and the files beside it ask for; `copied`
    where SQLite would have to write (roll back, rebuild an index) before it can read; `any_thread` where threads take
    turns with the connection."""
    header = _header(path, found)
    journal_mode: Literal["rollback", "wal"] = "wal" if 2 in header[18:20] else "rollback"
    target, query, way = path, "mode=ro", "read-only"
    before = None
    with ExitStack() as stack:
        if journal_mode == "wal":
            wal, shm = _mark(path + "-wal"), _mark(path + "-shm")
            if wal is None:
                query, way, before = "mode=ro&immutable=1", "immutable", _mark(path)
            elif shm is None or copied:
                target, query, way = _scratch_copy(stack, path, "-wal"), "mode=rw", "scratch copy"
            else:
                query, way = "mode=ro&readonly_shm=1", "readonly-shm"
        else:
            # opened where it lies, SQLite would make a -shm for a stray -wal, whatever the header says
            beside = [e for e in ("-journal", "-wal") if _mark(path + e) and (copied or e == "-wal")]
            if beside:
                target, query, way = _scratch_copy(stack, path, *beside), "mode=rw", "scratch copy"
        connection = stack.enter_context(closing(_connect(target, query, any_thread=any_thread)))
        reading = Reading(path, journal_mode, way, connection)
        if connection.execute("PRAGMA writable_schema").fetchone()[0]:
            reading.problem = FileProblem("damaged", "cut off: shorter than its header says")
        elif way != "scratch copy" and _ends_inside_a_page(path, header, found):
            reading.problem = FileProblem("damaged", "cut off inside its last page")
        yield reading
        if before is not None and (_mark(path) != before or _mark(path + "-wal") is not None):
            raise Changed


def _ends_inside_a_page(path: str, header: bytes, found: os.stat_result) -> bool:
    """SQLite writes whole pages, and takes what is missing of the last one for zeros, without a word."""
    coded = int.from_bytes(header[16:18], "big")
    page = 65536 if coded == 1 else coded
    if not page or not found.st_size % page:
        return False
    time.sleep(0.05)  # a large page can be seen while it is being written
    return bool(_stat(path).st_size % page)


def same_for_sqlite(path: str, found: os.stat_result) -> None:
    """Raises ReadFailed where SQLite would open another file than Python does.

    SQLite follows links by their texts. `/proc/PID/root` reads as "/": it would open our own file of that name,
    and say nothing (SQLite 3.40; see otherroot).
    """
    try:
        same = os.path.samestat(found, os.stat(os.path.realpath(path)))  # noqa: PTH116
    except OSError:
        same = False
    if not same:
        raise ReadFailed(
            "other", "lies under another process's root: only `audit`, run as root, reads it there"
        )


def read_file(
    path: str, body: Callable[[Reading], T], check: bool = True, alone: bool = False
) -> tuple[FileState, T | None]:
    """Open a live SQLite file, run `body` on it, and say how the file was found.

    `body` is run again, at most three times, when the file was replaced, renamed or rebuilt meanwhile. It may
    set `problem` on the reading it gets and still return what did read. Its result is None where nothing
    read. `check` asks for `integrity_check` (time-bounded) and the free pages. `alone` is for a file that nobody
    writes, a backup: the files beside it are not trusted and not touched, and what they hold is applied in a
    scratch copy. Never raises for what the file is or does: every failure is `FileState.problem`.
    """
    hot = copied = False
    torn = 0
    size = 0
    mode: Literal["rollback", "wal"] | None = None
    attempts = 0
    problem = FileProblem("gone", "was replaced again and again while it was read")
    while attempts < ATTEMPTS:
        attempts += 1
        try:
            found = _stat(path)
            size = found.st_size
            same_for_sqlite(path, found)
            hot = stat.S_ISREG(found.st_mode) and is_hot(path)
            with opened(path, found, hot or copied or alone) as reading:
                mode = reading.journal_mode
                reading.doubtful = mode == "wal" and attempts < ATTEMPTS and not alone
                value = body(reading)
                problem_found = reading.problem
                integrity = reading.integrity(size) if check else None
                free = _free_pages(reading) if check else None
            now = _stat(path)
            if not os.path.samestat(found, now):
                raise Changed
            return (
                FileState(
                    path=path,
                    size_bytes=size,
                    journal_mode=mode,
                    way=reading.way,
                    hot_journal=mode == "rollback" and (hot or copied),
                    integrity=integrity,
                    problem=problem_found,
                    longest_hold_s=0.0 if reading.way == "scratch copy" else reading.longest_hold_s,
                    free_pages=free,
                ),
                value,
            )
        except Changed:
            continue
        except ReadFailed as error:
            problem = error.problem
        except sqlite3.Error as error:
            if "readonly database" in str(error) and not hot and not copied:
                # A hot journal that is_hot left to SQLite; or the index of a WAL caught half-written, which
                # its living writer completes at once and a dead one never.
                torn += 1
                copied = torn > TORN_LOOKS or Path(path + "-journal").exists()
                attempts -= 1
                time.sleep(0.01)
                continue
            problem = problem_of(error, path)
            doubtful = problem.kind == "no-table" or (problem.kind == "damaged" and _mark(path + "-wal"))
            if attempts < ATTEMPTS and (doubtful or "unable to open" in str(error)):
                time.sleep(0.05)  # a writer that just closed it, or makes its table anew
                continue
        except MemoryError:
            problem = FileProblem("other", "not enough memory to read it")
        if problem.kind == "missing" and attempts < ATTEMPTS and attempts > 1:
            continue  # between two names of a file being replaced
        break
    return FileState(path=path, size_bytes=size, journal_mode=mode, hot_journal=hot, problem=problem), None


def _free_pages(reading: Reading) -> int | None:
    try:
        return int(reading.one("PRAGMA freelist_count"))
    except sqlite3.Error:
        return None


# --- Paged reading ---------------------------------------------------------------------------------

SALVAGE_S: Final = 20.0
"""How long a damaged table is searched for rows that still read, in many short statements."""
PAGE_BYTES: Final = 1 << 20
"""What one page of rows should weigh: small enough to be decoded while still in the processor's cache."""
TAIL: Final = 256
"""The newest rows, read again at the closing instant: only their rowids can have been given out twice."""


class PageSink(Protocol):
    """Takes (rowid, key, blob) rows as they come, and gives some back."""

    def take(self, rows: list[Any]) -> None:
        """More rows."""
        ...

    def drop(self, rowids: set[int]) -> None:
        """Rows taken before that are not, or not as they were, at the closing instant."""
        ...


class Shares(Protocol):
    """Others who read a table's rows in shares of rowids, at the same time."""

    def begin(self, lowest: int, highest: int, limit: int) -> None:
        """Begin to read the rows with these rowids and those between, at most `limit` a page."""
        ...

    def end(self) -> dict[int, Any] | None:
        """Once the sink has those rows, the key of each rowid; None where they could not be read."""
        ...


FIRST: Final = -(1 << 63)
MAPPED_BYTES: Final = 32 << 20
"""How much of a file a reader lets stand mapped in memory before it lets go of it."""
_ROWID, _KEY = itemgetter(0), itemgetter(1)


def read_points(reading: Reading, sink: PageSink, shares: Shares | None = None) -> None:
    """Every row of `points (id TEXT PRIMARY KEY, point BLOB)` as of one instant, in rowid order.

    Pages in rowid order, each in a read transaction of its own. INSERT OR REPLACE gives its row a rowid above
    every row present, so that one closing look settles it: `data_version` unchanged means that nothing was
    written meanwhile; else one scan of (rowid, id) over the covering index says which rows went and which
    came, and the newest rows are read again, since a rowid is used again after the newest row went.
    With `shares` the rows there at the first look are read by others, between the same two looks. Raises Changed
    when the table became another one. A damaged table gives what still reads, and the reading's `problem` says
    how much.
    """
    reading.require_table("points")
    schema, changes = reading.schema_count(), reading.change_count()
    seen: dict[int, Any] = {}
    limit = 64
    last = FIRST
    try:
        rows_there = int(reading.one("SELECT count(*) FROM points"))
        bytes_there = int(reading.one("PRAGMA page_count")) * int(reading.one("PRAGMA page_size"))
        limit = max(4, min(4096, PAGE_BYTES // (bytes_there // max(rows_there, 1) + 1)))
        if shares is not None and rows_there:
            lowest, last = reading.all("SELECT min(rowid), max(rowid) FROM points")[0]
            shares.begin(lowest, last, limit)
            theirs = shares.end()
            if theirs is None:
                return read_points(reading, sink)
            seen = theirs
        read_pages(reading, limit, last, (1 << 63) - 1, sink.take, seen)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        if reading.doubtful:
            raise Changed from None
        if last != FIRST:  # what still reads is looked for here, from the first row on
            sink.drop(set(seen))
            return read_points(reading, sink)
        _salvage(reading, sink, max(seen, default=FIRST), len(seen))
        return None
    for attempt in range(ATTEMPTS):
        try:
            fresh, dropped = _close(reading, schema, changes, seen)
            break
        except sqlite3.DatabaseError as error:
            if _is_damage(error) and reading.doubtful:
                raise Changed from None
            if _is_damage(error):
                total = len(seen)
                reading.problem = FileProblem("damaged", f"{total} rows read, but the index is damaged")
                return None
            if "interrupted" not in str(error) or attempt == ATTEMPTS - 1:
                raise
            # Too slow from a cold disk: the index is in the page cache now.
    if dropped:
        sink.drop(dropped)
    if fresh:
        sink.take(fresh)
    return None


def read_pages(
    reading: Reading,
    limit: int,
    after: int,
    last: int,
    take: Callable[[list[Any]], None],
    seen: dict[int, Any],
) -> None:
    """Pages of at most `limit` rows with `after` < rowid <= `last`, in that order, each noted in `seen`."""
    sql = "SELECT rowid, id, point FROM points WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"
    while True:
        rows, whole = reading.page(sql, (after, last, limit))
        if rows:
            if rows[-1][0] <= after:
                raise sqlite3.DatabaseError("malformed: rowids out of order")
            take(rows)
            seen.update(zip(map(_ROWID, rows), map(_KEY, rows), strict=True))
            after = rows[-1][0]
        if whole and len(rows) < limit:
            return


def read_share(
    reading: Reading,
    limit: int,
    after: int,
    last: int,
    take: Callable[[list[Any]], None],
    seen: dict[int, Any],
) -> None:
    """`read_pages` through memory mapped on the file, at half the cost of reading it.

    Only in a process that may be lost: where somebody cuts the file short meanwhile (SQLite itself does not under
    a reader's lock), the kernel ends it with SIGBUS.
    """
    read = 0

    def taken(rows: list[Any]) -> None:
        nonlocal read
        take(rows)
        read += len(rows)
        if read > pages * limit:
            read = 0
            reading.all("PRAGMA mmap_size = 0")
            reading.all(mapped)

    mapped = f"PRAGMA mmap_size = {1 << 40}"  # as much as SQLite was built for
    pages = MAPPED_BYTES // PAGE_BYTES
    reading.all(mapped)
    read_pages(reading, limit, after, last, taken, seen)


def _close(reading: Reading, schema: int, changes: int, seen: dict[int, Any]) -> tuple[list[Any], set[int]]:
    """Rows to take and rowids to drop first, so that what was taken is what this instant holds."""
    one_row = "SELECT rowid, id, point FROM points WHERE rowid = ?"
    with reading.transaction(CLOSING_S):
        if reading.schema_count() != schema:
            raise Changed
        if reading.change_count() == changes:
            indexed = int(reading.one("SELECT count(*) FROM points"))
            if indexed != len(seen):
                detail = f"its table holds {len(seen)} rows, its index {indexed}"
                reading.problem = FileProblem("damaged", detail)
            return [], set()
        live = dict(reading.all("SELECT rowid, id FROM points"))
        newest = "SELECT rowid FROM points ORDER BY rowid DESC LIMIT ?"
        again = {rowid for (rowid,) in reading.all(newest, (TAIL,))}
        if live != seen:
            missing = object()
            again.update([rowid for rowid, key in live.items() if seen.get(rowid, missing) != key])
        fresh = []
        for rowid in sorted(again):
            fresh += reading.all(one_row, (rowid,))
    gone = {rowid for rowid, key in seen.items() if rowid in again or rowid not in live}
    return fresh, gone


def _is_damage(error: sqlite3.Error) -> bool:
    text = str(error)
    return "malformed" in text or "disk I/O" in text


def _salvage(reading: Reading, sink: PageSink, last: int, before: int) -> None:
    """What still reads after rowid `last` of a damaged table, row by row."""
    read = before
    end = time.perf_counter() + SALVAGE_S
    rowids = surviving_rowids(reading, "points", "id", last)
    for rowid in rowids:
        if time.perf_counter() > end:
            break
        with suppress(sqlite3.DatabaseError):
            rows = reading.all("SELECT rowid, id, point FROM points WHERE rowid = ?", (rowid,))
            sink.take(rows)
            read += len(rows)
    reading.problem = FileProblem("damaged", f"{read} of at least {before + len(rowids)} rows read")


def surviving_rowids(reading: Reading, table: str, key: str, last: int) -> list[int]:
    """Rowids above `last` of a damaged table, in order, found by every way that still reads."""
    name = quoted(table)
    found: set[int] = set()
    for order in (f"{quoted(key)}", f"{quoted(key)} DESC"):  # through the index, from both ends
        found.update(_until_damage(reading, f"SELECT rowid FROM {name} ORDER BY {order}", ()))  # noqa: S608
    backwards = f"SELECT rowid FROM {name} NOT INDEXED ORDER BY rowid DESC"  # noqa: S608
    found.update(_until_damage(reading, backwards, ()))
    onwards = f"SELECT rowid FROM {name} NOT INDEXED WHERE rowid > ? ORDER BY rowid"  # noqa: S608
    end = time.perf_counter() + SALVAGE_S
    at, gap = last, 1
    while gap < 1 << 24 and time.perf_counter() < end:
        # over a damaged page, by ever wider steps, to the next that reads
        more = _until_damage(reading, onwards, (min(at + gap - 1, (1 << 63) - 1),))
        if more and max(more) > at:
            found.update(more)
            at, gap = max(more), 1
        else:
            gap *= 2
    return sorted(rowid for rowid in found if rowid > last)


def _until_damage(reading: Reading, sql: str, args: tuple[Any, ...]) -> list[int]:
    """Rowids from one statement up to the first error in it."""
    rowids: list[int] = []
    reading.extend_deadline()
    try:
        with closing(reading.connection.cursor()) as cursor:
            rowids.extend(rowid for (rowid,) in cursor.execute(sql, args))
    except sqlite3.DatabaseError:
        pass
    return rowids


def quoted(name: str) -> str:
    """An SQL identifier from any name."""
    return '"' + name.replace('"', '""') + '"'


def secure_delete_here() -> bool:
    """Whether the SQLite that this program runs with overwrites what it deletes, unasked (Debian's does, upstream's
    does not). Another program's may differ."""
    with closing(sqlite3.connect(":memory:")) as connection:
        return bool(connection.execute("PRAGMA secure_delete").fetchone()[0])
