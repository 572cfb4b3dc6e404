"""Both stores taken as one pair, while the agent writes to them.

mem0 writes the vector first, the history second, the entities last, each in a transaction of its own, a batch
point by point. So the order of the locks settles a pair: SHARED on the memories (no new write can commit), a
moment until the history has been still (what was in flight lands), then SHARED on the history, then on the
entities. Measured with mem0 2.2.1 at full speed: single adds were whole in 346 of 346 pairs, adds of five facts
in 228 of 241; so under the locks the newest writes are looked at, and where one is half done the locks are let
go and all is tried again. Then the pages are copied under the locks.

A SHARED lock stops no WAL writer, and waiting for stillness would only pull the two instants apart: there a read
transaction on each file, in the same order, one right after the other, gives the instant, and SQLite's backup
copies from it, however large it is. What a deletion in flight took away shows in no newest row; so there the
log is watched for a moment longer, and what it says next tells what was in flight.

Where the pages of a rollback install are too many to be compared under the locks, its collections are copied row by
row, unlocked, and only what changed since is read under them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from mem0audit.core.model import HistoryRow
from mem0audit.core.points import text_digest
from mem0audit.core.snapshot import BY_PAGES_BYTES
from mem0audit.core.times import instant
from mem0audit.stores import files, pickles, sqlitefiles
from mem0audit.stores.rowcopy import NotByRows, RowCopy
from mem0audit.stores.sqlitefiles import Changed, ReadFailed, Reading

LONGEST_HOLD_S: Final = 2.0
SHORTEST_HOLD_S: Final = 0.5
"""The bound for a small store: settling alone takes some of it."""
AHEAD_BYTES: Final = 32 << 20
"""From this size on a file is copied before it is locked too: torn, and set right under the lock."""
STILL_S: Final = 0.02
STILL_WAIT_S: Final = 0.3
NEWEST: Final = 64
ROWS: Final = 1024
"""So many of the newest history rows are searched for the rows of the newest points."""
YOUNG_S: Final = 10.0
"""A half-written change that is older is no write in flight any more."""
ENTITY_YOUNG_S: Final = 60.0
ENTITY_CLEANED_S: Final = 5.0
"""Where links to memories deleted longer ago than this still dangle, the agent does not clean them at all."""
TRIES: Final = 20
WAL_TRIES: Final = 300
"""In WAL mode nobody waits for a try, and each is short."""
AHEAD_S: Final = 0.03
"""How long the log is watched for what it says next."""
WHOLE_S: Final = 15.0
LONE_ROWS: Final = 3
"""So many looks in a row may find a newest row without a point: the log may serve another store too, or the write was
lost. One that goes away was in flight: where threads share a connection, one goes on to log what another one's
commit, which waits for our lock, has still to store."""

Role = Literal["memories", "history", "entities"]
Decode = Callable[[Any], tuple[Any, Any, Any]]


@dataclass(frozen=True)
class Source:
    """One file of an install to copy. `dims` helps to decode points; `of` is the collection whose memories an
    entity links (None for another role)."""

    role: Role
    path: str
    name: str
    dims: int | None = None
    of: str | None = None


@dataclass(frozen=True)
class CopiedFile:
    """How one file was copied."""

    source: Source
    raw: Path
    journal_mode: Literal["rollback", "wal"]
    way: str


@dataclass(frozen=True)
class Pair:
    """The copies of one instant. `unsettled_why` is None where nothing was in flight; `meta` the bytes of
    meta.json under the locks, None where there is none. `longest_hold_s` counts every try."""

    files: tuple[CopiedFile, ...]
    meta: bytes | None
    unsettled_why: str | None
    tries: int
    longest_hold_s: float


class CannotTake(Exception):
    """A file of the install cannot be copied; `path` which, `kind` and `detail` as `FileProblem`."""

    def __init__(self, path: str, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.path = path
        self.kind = kind
        self.detail = detail


def hold_bound(size_bytes: int) -> float:
    """How long the agent may be made to wait at most, seconds: 1 s a gigabyte, between 0.5 and 2 s."""
    return min(LONGEST_HOLD_S, max(SHORTEST_HOLD_S, size_bytes / 1e9))


def take_pair(
    sources: Sequence[Source],
    meta: str | None,
    raw: Path,
    *,
    now: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> Pair:
    """Copies the files of an install into `raw` as of one instant.

    `sources` come in any order; `meta` is the path of meta.json. Raises CannotTake for a file that cannot be
    copied (a hot journal, damage, a lock that is never free), OSError for the target.
    """
    order: dict[str, int] = {"memories": 0, "history": 1, "entities": 2}
    wanted = sorted(sources, key=lambda source: order[source.role])
    bound = hold_bound(sum(_size(source.path) for source in wanted))
    by_rows = sum(_size(source.path) for source in wanted) > BY_PAGES_BYTES
    for source in wanted:
        if not by_rows or source.role == "history":
            _warm(source.path)
    with ExitStack() as copies:
        return _take(wanted, meta, raw, bound, _RowCopies(copies) if by_rows else None, now, pause)


class _RowCopies:
    """The row copies of one pair: begun once, brought nearer with every try."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._of: dict[Path, RowCopy] = {}
        self._from: dict[Path, os.stat_result] = {}

    def refreshed(self, part: _Part) -> RowCopy:
        """The copy of this file, as near as it can be brought without a lock."""
        assert part.found is not None
        if not os.path.samestat(self._from.setdefault(part.target, part.found), part.found):
            raise Replaced
        copy = self._of.get(part.target)
        if copy is None:
            copy = self._of[part.target] = RowCopy(part.target)
            self._stack.callback(copy.close)
        try:
            copy.refresh(part.reading)
        except NotByRows:
            detail = (
                "is too large to be copied by pages, and holds more than the table that qdrant-client makes"
            )
            raise CannotTake(part.source.path, "other", detail) from None
        except sqlite3.OperationalError as error:
            raise _problem(error, part.source.path) from None
        return copy


def _take(
    wanted: Sequence[Source],
    meta: str | None,
    raw: Path,
    bound: float,
    row_copies: _RowCopies | None,
    now: Callable[[], float],
    pause: Callable[[float], None],
) -> Pair:
    longest, slow = 0.0, 0
    lone: dict[str, int] = {}
    torn: bytes | None = None
    end = float("inf")
    tries, wal, last = 0, False, False
    while True:
        tries += 1
        try:
            with _held(wanted, raw, torn, row_copies) as taking:
                # The first try copies ahead, which takes as long as it takes.
                end = min(end, time.monotonic() + WHOLE_S)
                last = tries >= (WAL_TRIES if wal else TRIES) or time.monotonic() > end
                wal = taking.wal
                try:
                    why, without = taking.settle(meta, now())
                    lone = {i: lone.get(i, 0) + 1 for i in without}
                    if lone and min(lone.values()) > LONE_ROWS:
                        why = None
                    if why is None or last:
                        copied = taking.copy(bound)
                        longest = max(longest, taking.hold())
                        return Pair(copied, taking.meta, why, tries, longest)
                finally:
                    longest = max(longest, taking.hold())
                    torn = taking.torn
        except files.TookTooLong:
            slow += 1
            if slow == 3:
                raise CannotTake(
                    wanted[0].path, "busy", f"its pages could not be copied within {bound:.1f} s"
                ) from None
        except (Changed, Replaced) as how:
            # What was copied by rows from another file cannot be brought nearer to this one.
            if last or (row_copies is not None and isinstance(how, Replaced)):
                raise CannotTake(
                    wanted[0].path, "gone", "the stores were replaced again and again while they were copied"
                ) from None
        except _Busy as busy:
            if last:
                raise CannotTake(busy.path, "busy", "locked by its writer again and again") from None
        # Uneven in WAL mode, so that it does not keep step with a writer.
        pause(0.002 + 0.001 * (tries % 7) if wal else 0.05 if tries < 5 else 0.5)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _warm(path: str) -> None:
    """Reads a file once, so that no disk is waited for under the locks."""
    try:
        descriptor = files.open_source(path)
    except OSError:
        return
    try:
        offset = 0
        while chunk := os.pread(descriptor, files.CHUNK, offset):
            offset += len(chunk)
    except OSError:
        return  # the copy will say it
    finally:
        files.close_source(descriptor)


class Replaced(Exception):
    """A path names another file than the one that was opened."""


class _Busy(Exception):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@contextlib.contextmanager
def _held(
    sources: Sequence[Source], raw: Path, torn: bytes | None, row_copies: _RowCopies | None
) -> Iterator[_Taking]:
    """Every file open, none locked yet; at the end all locks are let go, and only then a descriptor is closed:
    POSIX drops all of a process's locks on a file with the first one."""
    with ExitStack() as descriptors, ExitStack() as connections:
        parts = []
        for number, source in enumerate(sources):
            part = _open(source, connections)
            part.target = raw / f"{number}.db"
            if part.reading.journal_mode != "rollback":
                pass
            elif row_copies is not None and source.role != "history":
                part.rows = row_copies.refreshed(part)
            else:
                part.descriptor = files.open_source(source.path)
                descriptors.callback(files.close_source, part.descriptor)
                part.copy_to = files.copy_target(part.target)
                descriptors.callback(os.close, part.copy_to)
                if os.fstat(part.copy_to).st_size == 0 < AHEAD_BYTES <= os.fstat(part.descriptor).st_size:
                    files.copy_pages(part.descriptor, part.copy_to, float("inf"))
            parts.append(part)
        taking = _Taking(parts, torn)
        if taking.wal:
            taking.ahead = [
                _open(part.source, connections)
                for part in taking.of("history")
                if part.reading.way == "readonly-shm"
            ]
        try:
            yield taking
        finally:
            taking.let_go()


@dataclass
class _Part:
    source: Source
    reading: Reading
    decode: Decode
    target: Path
    descriptor: int = -1
    copy_to: int = -1
    rows: RowCopy | None = None
    found: os.stat_result | None = None

    def check_in_place(self) -> None:
        """Raises Replaced where the path names another file than the one that was opened: somebody exchanged both
        stores meanwhile (a restore), and the halves that are open may be of two of them."""
        assert self.found is not None
        try:
            seen = [Path(self.source.path).stat()]
        except FileNotFoundError:
            raise Replaced from None
        if self.descriptor >= 0:
            seen.append(os.fstat(self.descriptor))
        if not all(os.path.samestat(one, self.found) for one in seen):
            raise Replaced

    def all(self, sql: str, args: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self.reading.execute(sql, args).fetchall()
        except sqlite3.Error as error:
            raise _problem(error, self.source.path) from None


def _problem(error: sqlite3.Error, path: str) -> Exception:
    text = str(error)
    if "locked" in text or "busy" in text:
        return _Busy(path)
    if "readonly database" in text:
        return Changed() if Path(path + "-wal").exists() else _hot(path)
    problem = sqlitefiles.problem_of(error, path)
    return CannotTake(path, problem.kind, problem.detail)


def _hot(path: str) -> CannotTake:
    return CannotTake(path, "hot", "its writer died in the middle of a write (hot journal)")


def _open(source: Source, stack: ExitStack) -> _Part:
    path = source.path
    try:
        found = Path(path).stat()
        sqlitefiles.same_for_sqlite(path, found)
        if sqlitefiles.is_hot(path):
            raise _hot(path)
        reading = stack.enter_context(sqlitefiles.opened(path, found, False))
    except ReadFailed as error:
        raise CannotTake(path, error.problem.kind, error.problem.detail) from None
    except FileNotFoundError:
        raise Changed from None
    except OSError as error:
        raise CannotTake(path, "other", (error.strerror or "cannot be read").lower()) from None
    except sqlite3.Error as error:
        raise _problem(error, path) from None
    if reading.problem is not None:
        raise CannotTake(path, reading.problem.kind, reading.problem.detail)
    reading.connection.set_progress_handler(None, 0)
    reading.connection.text_factory = _lenient
    return _Part(source, reading, pickles.point_decoder(source.dims), Path(), found=found)


def _lenient(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class _Taking:
    """One try: the locks, the look under them, the copy."""

    def __init__(self, parts: Sequence[_Part], torn: bytes | None) -> None:
        self.parts = parts
        self.torn = torn
        """meta.json as an earlier try found it half-written; where it stays so, it is no write in flight."""
        self.ahead: list[_Part] = []
        """The log opened once more, outside of any transaction."""
        self.begun: float | None = None
        self.ended: float | None = None
        self.meta: bytes | None = None

    def of(self, role: Role) -> list[_Part]:
        return [part for part in self.parts if part.source.role == role]

    @property
    def wal(self) -> bool:
        """Nothing stops whoever writes the memories."""
        return any(part.reading.journal_mode == "wal" for part in self.of("memories"))

    def hold(self) -> float:
        """How long the first lock is, or was, held."""
        if self.begun is None:
            return 0.0
        return (self.ended if self.ended is not None else time.monotonic()) - self.begun

    def let_go(self) -> None:
        for part in reversed(self.parts):
            if part.reading.connection.in_transaction:
                part.reading.connection.execute("ROLLBACK")
        if self.begun is not None and self.ended is None:
            self.ended = time.monotonic()

    def settle(self, meta: str | None, now: float) -> tuple[str | None, frozenset[str]]:
        """Takes the locks in order and looks. What is in flight (None: nothing), and where that is nothing but rows
        without a point, the memories of those."""
        for part in self.of("memories"):
            self._lock(part, 5_000 if self.begun is None else 300)
        for part in self.of("history"):
            if not self.wal:
                self._wait_until_still(part)
            self._lock(part, 300)
        for part in self.of("entities"):
            self._lock(part, 300)
        self.meta, whole = _read_meta(meta)
        if not whole and self.meta != self.torn:
            self.torn = self.meta
            return "meta.json was being written", frozenset()
        return self._look(now)

    def _lock(self, part: _Part, wait_ms: int) -> None:
        part.all(f"PRAGMA busy_timeout = {wait_ms}")
        part.all("BEGIN")
        part.all("SELECT 1 FROM sqlite_master LIMIT 1")
        if self.begun is None:
            self.begun = time.monotonic()

    def _wait_until_still(self, part: _Part) -> None:
        part.all("PRAGMA busy_timeout = 300")
        end = time.monotonic() + STILL_WAIT_S
        seen, since = part.all("PRAGMA data_version"), time.monotonic()
        while (now := time.monotonic()) < end and now - since < STILL_S:
            time.sleep(0.002)
            found = part.all("PRAGMA data_version")
            if found != seen:
                seen, since = found, time.monotonic()

    def copy(self, bound: float) -> tuple[CopiedFile, ...]:
        """The pages of every file, then the locks are let go."""
        assert self.begun is not None
        copied = []
        for part in self.parts:
            if part.rows is not None:
                part.rows.look(part.reading, self.begun + bound)
                way = "rows"
            elif part.reading.journal_mode == "rollback":
                way = files.copy_pages(part.descriptor, part.copy_to, self.begun + bound)
            else:
                try:
                    files.backup_database(part.reading.connection, part.target)
                except sqlite3.Error as error:
                    raise _problem(error, part.source.path) from None
                way = "backup"
            copied.append(CopiedFile(part.source, part.target, part.reading.journal_mode, way))
        for part in self.parts:
            part.check_in_place()
        self.let_go()
        for part in self.parts:
            if part.rows is not None:
                part.rows.finish()
        return tuple(copied)

    # -- the look ---------------------------------------------------------------------------------

    def _look(self, now: float) -> tuple[str | None, frozenset[str]]:
        nothing: frozenset[str] = frozenset()
        rows = self._newest_rows()
        if rows is None or not self.of("memories"):
            return None, nothing  # nothing that can be compared: nothing is in flight for us to see
        last: dict[str, HistoryRow] = {}
        for row in reversed(rows):  # oldest first: the last one stays
            if row.memory_id is not None:
                last[str(row.memory_id)] = row
        for part in self.of("memories"):
            why = self._points_without_rows(part, last, now)
            if why is not None:
                return why, nothing
        newest = [str(row.memory_id) for row in rows[:NEWEST] if row.memory_id is not None]
        why, lone = self._rows_without_points(list(dict.fromkeys(newest)), last, now)
        if why is None and self.ahead:
            why = self._deleted_next(rows[0].rowid if rows else 0)
        why = why or self._dangling_links(last, now)
        if why is None and lone:
            return "a memory is logged and not stored", lone
        return why, nothing

    def _deleted_next(self, newest: int) -> str | None:
        """A memory that is gone from the store already, and whose deletion the log says only now."""
        time.sleep(AHEAD_S)
        sql = "SELECT memory_id, event FROM history WHERE rowid > ?"
        rows = [
            (str(i), event) for part in self.ahead for i, event in part.all(sql, (newest,)) if i is not None
        ]
        added = {i for i, event in rows if event == "ADD"}
        gone = {i for i, event in rows if event == "DELETE"} - added
        for part in self.of("memories"):
            gone -= set(self._texts(part, sorted(gone)))
        for part in self.of("history"):
            for memory_id in gone:
                sql = "SELECT event FROM history WHERE memory_id = ? ORDER BY rowid DESC LIMIT 1"
                if part.all(sql, (memory_id,)) not in ([], [("DELETE",)]):
                    return "a memory is deleted and its deletion not logged yet"
        return None

    def _newest_rows(self) -> list[HistoryRow] | None:
        for part in self.of("history"):
            columns = {str(row[1]) for row in part.all("PRAGMA table_info(history)")}
            if not {"id", "memory_id", "event", "new_memory", "created_at", "updated_at"} <= columns:
                return None
            picked = ", ".join(
                name if name in columns else "NULL"
                for name in ("id", "memory_id", "NULL", "new_memory", "event", "created_at", "updated_at")
            )
            sql = f"SELECT rowid, {picked}, 0, NULL, NULL FROM history ORDER BY rowid DESC LIMIT {ROWS}"  # noqa: S608
            return [HistoryRow._make(row) for row in part.all(sql)]
        return None

    def _decoded(self, part: _Part, rows: list[Any]) -> Iterator[tuple[str, Any]]:
        """(id, payload) of rows that decode."""
        for (blob,) in rows:
            try:
                point_id, payload, _ = part.decode(blob)
            except pickles.UnreadablePoint:
                continue
            yield str(point_id), payload

    def _points_without_rows(self, part: _Part, last: dict[str, HistoryRow], now: float) -> str | None:
        sql = "SELECT point FROM points ORDER BY rowid DESC LIMIT ?"
        rows = part.all(sql, (NEWEST,)) if _points(part) else []
        for point_id, payload in self._decoded(part, rows):
            text = payload.get("data")
            if type(text) is not str:
                continue
            if not _young(payload.get("updated_at"), payload.get("created_at"), now=now, limit=YOUNG_S):
                continue
            row = last.get(point_id)
            if row is None:
                return "a memory is stored and not logged yet"
            if row.event != "DELETE" and row.new_memory is not None and not _same(row.new_memory, text):
                return "a memory is changed and its change not logged yet"
        return None

    def _rows_without_points(
        self, ids: list[str], last: dict[str, HistoryRow], now: float
    ) -> tuple[str | None, frozenset[str]]:
        """What of the newest rows is in flight, and the memories that they say exist and no collection has."""
        young = [i for i in ids if _young(last[i].updated_at, last[i].created_at, now=now, limit=YOUNG_S)]
        texts: dict[str, Any] = {}
        for part in self.of("memories"):
            texts.update(self._texts(part, young))
        for memory_id in young:
            event = last[memory_id].event
            if event == "DELETE" and memory_id in texts:
                return "a memory is logged as deleted and still stored", frozenset()
            if event in ("ADD", "UPDATE") and memory_id in texts:
                text, logged = texts[memory_id], last[memory_id].new_memory
                if type(text) is str and logged is not None and not _same(logged, text):
                    return "a memory's newest text is logged and not stored", frozenset()
        return None, frozenset(i for i in young if last[i].event in ("ADD", "UPDATE") and i not in texts)

    def _texts(self, part: _Part, ids: Sequence[str]) -> dict[str, Any]:
        """id -> text of those that a collection has."""
        if not ids or not _points(part):
            return {}
        keys = [key for one in ids for key in pickles.candidate_keys(pickles.normalise_id(one))]
        found: dict[str, Any] = {}
        for start in range(0, len(keys), 500):
            some = tuple(keys[start : start + 500])
            marks = ",".join("?" * len(some))
            rows = part.all(f"SELECT point FROM points WHERE id IN ({marks}) ORDER BY rowid", some)  # noqa: S608
            found.update((i, payload.get("data")) for i, payload in self._decoded(part, rows))
        return found

    def _dangling_links(self, last: dict[str, HistoryRow], now: float) -> str | None:
        """A link to a memory deleted a moment ago: mem0 removes it after the log, by the embedder's time."""
        deleted = {
            i: age
            for i, row in last.items()
            if row.event == "DELETE"
            and (age := now - (instant(row.updated_at) or 0.0)) < ENTITY_YOUNG_S
            and age >= 0
        }
        if not deleted:
            return None
        dangling: set[str] = set()
        for part in self.of("entities"):
            if not _points(part):
                continue
            rows = part.all("SELECT point FROM points ORDER BY rowid DESC LIMIT ?", (ROWS,))
            for _, payload in self._decoded(part, rows):
                links = payload.get("linked_memory_ids")
                if isinstance(links, (list, tuple)):
                    dangling.update(str(i) for i in links if str(i) in deleted)
        if not dangling or any(deleted[i] > ENTITY_CLEANED_S for i in dangling):
            return None
        return "an entity still links a memory deleted a moment ago"


class Stillness:
    """Watches a log, without opening it, for whether anybody writes to it: by the times and sizes of the database and
    its journals. What is written later than a moment after a look has a later time (the kernel's clock for files ticks
    every few milliseconds), so a look that is `STILL_S` old is worth being compared with."""

    def __init__(self, path: str) -> None:
        self._paths = [path, *(f"{path}{end}" for end in ("-wal", "-journal"))]
        self._seen = self._look()

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_times(path) for path in self._paths]

    def changed(self) -> bool:
        """Whether somebody wrote since it began to be still."""
        return self._look() != self._seen

    def wait(self, still_s: float, most_s: float, pause: Callable[[float], None] = time.sleep) -> bool:
        """Waits until nobody has written for `still_s` seconds, and watches from then on; False where that was not so
        within `most_s`."""
        end = time.monotonic() + most_s
        self._seen, since = self._look(), time.monotonic()
        while True:
            pause(min(STILL_S, still_s))
            now = time.monotonic()
            if self.changed():
                self._seen, since = self._look(), now
            elif now - since >= still_s:
                return True
            if now >= end:
                return False


def _times(path: str) -> tuple[int, int, int] | None:
    try:
        state = Path(path).stat()
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def _points(part: _Part) -> bool:
    return bool(part.all("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'points'"))


def _same(logged: Any, text: str) -> bool:
    return type(logged) is str and text_digest(logged) == text_digest(text)


def _young(updated: Any, created: Any, *, now: float, limit: float) -> bool:
    at = instant(updated) if updated is not None else instant(created)
    return at is not None and -limit < now - at < limit


def _read_meta(path: str | None) -> tuple[bytes | None, bool]:
    """The bytes of meta.json, and whether they are whole: clients before 1.20.0 truncate it in place."""
    if path is None:
        return None, True
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None, True
    except OSError as error:
        raise CannotTake(path, "other", (error.strerror or "cannot be read").lower()) from None
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return data, False
    return data, True
