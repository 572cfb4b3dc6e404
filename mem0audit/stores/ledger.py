"""The ledger: one small SQLite file an install, outside of it, for what mem0 does not record.

It is in write-ahead mode, enforces its foreign keys on every connection, and never copies a memory's text: owners of
every memory id ever seen, seals (digests), erasures (salted digests), the folders that snapshots went to, under which
new id a lost memory was added back, and of each memory where it came from, when it was confirmed, until when it holds
and what replaced it; and facts that it was told, with when they hold (stores/facts.py). Times are seconds since 1970 in
UTC (REAL).
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from mem0audit.core.erasures import Erasure
from mem0audit.core.ledger import (
    REVIEW_S,
    UNUSED_S,
    Kept,
    LedgerFact,
    confirmed_by_log,
    created_by_log,
    day_for_mem0,
    hidden_from,
    removable,
)
from mem0audit.core.model import NotChecked
from mem0audit.core.points import Owner, PointRecord, clipped
from mem0audit.core.seal import NO_SEAL, ROW_BYTES, LastSeal, Seal, State, chain_problem
from mem0audit.core.timeline import DELETE, MemoryLog
from mem0audit.stores import files

BUSY_S: Final = 5.0
"""How long a run waits for another one that writes."""
LONGEST: Final = 1_000
"""Characters of an owner's id that are kept: in a store it can be anything."""
CHUNK_ROWS: Final = 50_000

_NAME: Final = re.compile(r"[0-9a-f]{16}(-\d{1,4})?\.sqlite", re.ASCII)

STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE install (one INTEGER PRIMARY KEY CHECK (one = 1), history TEXT NOT NULL, vectors TEXT NOT NULL,"
        " first_row TEXT, key BLOB NOT NULL)",
        "CREATE TABLE scopes (id INTEGER PRIMARY KEY, user_id TEXT NOT NULL, agent_id TEXT NOT NULL,"
        " run_id TEXT NOT NULL, UNIQUE (user_id, agent_id, run_id))",
        "CREATE TABLE owners (memory_id TEXT PRIMARY KEY, scope INTEGER NOT NULL REFERENCES scopes (id),"
        " seen_at REAL NOT NULL) WITHOUT ROWID",
        "CREATE TABLE marks (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE erasures (salt TEXT PRIMARY KEY, at REAL NOT NULL, scope TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE erased_ids (salt TEXT NOT NULL REFERENCES erasures (salt) ON DELETE CASCADE, digest TEXT NOT"
        " NULL, PRIMARY KEY (salt, digest)) WITHOUT ROWID",
        "CREATE TABLE folders (path TEXT PRIMARY KEY, used_at REAL NOT NULL) WITHOUT ROWID",
    ),
    (
        "CREATE TABLE seals (number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, mem0 TEXT, schema TEXT,"
        " rows INTEGER NOT NULL, last_row TEXT, memories INTEGER NOT NULL, accepted TEXT NOT NULL, reason TEXT,"
        " state BLOB NOT NULL, previous BLOB NOT NULL)",
        "CREATE TABLE sealed_rows (first INTEGER PRIMARY KEY, digests BLOB NOT NULL)",
        "CREATE TABLE sealed_memories (memory_id TEXT PRIMARY KEY, parts BLOB NOT NULL) WITHOUT ROWID",
    ),
    ("CREATE TABLE recovered (old_id TEXT PRIMARY KEY, new_id TEXT, at REAL NOT NULL) WITHOUT ROWID",),
    (
        "CREATE TABLE facts (id INTEGER PRIMARY KEY, subject TEXT NOT NULL, attribute TEXT NOT NULL,"
        " value TEXT NOT NULL, valid_from INTEGER NOT NULL CHECK (typeof(valid_from) = 'integer'),"
        " valid_to INTEGER CHECK (valid_to IS NULL OR typeof(valid_to) = 'integer'), source TEXT, memory_id TEXT,"
        " recorded_at INTEGER NOT NULL, CHECK (valid_to IS NULL OR valid_from < valid_to),"
        " UNIQUE (subject, attribute, valid_from))",
        "CREATE INDEX facts_at ON facts (subject, attribute, valid_from, valid_to)",
        "CREATE UNIQUE INDEX facts_open ON facts (subject, attribute) WHERE valid_to IS NULL",
    ),
    (
        # superseded_at is the mark that an outdated fact keeps, whatever becomes of what it points to
        "CREATE TABLE memory (id TEXT PRIMARY KEY, subject INTEGER NOT NULL REFERENCES scopes (id), fact BLOB NOT NULL,"
        " source TEXT, role TEXT, actor_id TEXT, attributed_to TEXT, created_at REAL, confirmed_at REAL,"
        " expires_at REAL, last_used_at REAL, superseded_by TEXT REFERENCES memory (id) ON DELETE CASCADE,"
        " superseded_at REAL, CHECK (superseded_by IS NULL OR superseded_at IS NOT NULL), CHECK (superseded_by IS NOT"
        " id)) WITHOUT ROWID",
        "CREATE INDEX memory_superseded ON memory (superseded_by) WHERE superseded_by IS NOT NULL",
        "CREATE VIEW live_memory AS SELECT * FROM memory WHERE superseded_at IS NULL"
        " AND (expires_at IS NULL OR expires_at > CAST(strftime('%s', 'now') AS INTEGER))",
    ),
    # lines of plain notes files that somebody confirmed, by their digests
    ("CREATE TABLE notes (digest BLOB PRIMARY KEY, confirmed_at REAL NOT NULL) WITHOUT ROWID",),
    (
        # what a row that went said of when its memory ends: a restore that brings the memory back brings back that too
        "CREATE TABLE ended (id TEXT PRIMARY KEY, expires_at REAL, superseded_by TEXT, superseded_at REAL)"
        " WITHOUT ROWID",
        "CREATE TRIGGER memory_ended BEFORE DELETE ON memory WHEN old.superseded_at IS NOT NULL OR old.expires_at"
        " IS NOT NULL BEGIN INSERT OR REPLACE INTO ended VALUES (old.id, old.expires_at, old.superseded_by,"
        " old.superseded_at); END",
        # what is to be superseded at a planned time is live until then
        "DROP VIEW live_memory",
        "CREATE VIEW live_memory AS SELECT * FROM memory WHERE"
        " (superseded_at IS NULL OR superseded_at >= CAST(strftime('%s', 'now') AS INTEGER) + 1)"
        " AND (expires_at IS NULL OR expires_at > CAST(strftime('%s', 'now') AS INTEGER))",
    ),
)
"""The schema, a step a version: a file of version N has the first N steps. Steps are only ever added."""

_LIVE: Final = "(superseded_at IS NULL OR superseded_at > :now) AND (expires_at IS NULL OR expires_at > :now)"
"""The condition of the view `live_memory`, at a time that is given."""


class CannotUse(Exception):
    """Why a ledger cannot be used: one line. `damaged` where there is one and it does not read."""

    def __init__(self, why: str, damaged: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.damaged = damaged


@dataclass(frozen=True)
class Identity:
    """What tells an install from others: where its stores lie (no symlinks left), and the id of its log's first row.

    `first_row` is None where the log is empty, missing or not looked at.
    """

    history: str
    vectors: str
    first_row: str | None


@dataclass(frozen=True)
class KnownAgent:
    """The Python that the agent ran under, and its versions, when it was seen (`seen_at`, seconds since 1970).

    `here` is False where its path means another file, or none, to us: it runs in a container.
    """

    interpreter: str
    mem0: str
    client: str | None
    here: bool
    seen_at: float


@dataclass(frozen=True)
class _Known:
    path: Path
    identity: Identity


def connect(path: Path, *, write: bool = True) -> sqlite3.Connection:
    """A connection with foreign keys enforced. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = 0")
        connection.execute("PRAGMA secure_delete = ON")  # facts and sources are text: what goes is gone
    except BaseException:
        connection.close()
        raise
    return connection


def why_not(error: Exception) -> CannotUse:
    """An error of SQLite or of the system as one line."""
    if isinstance(error, OSError):
        return CannotUse((error.strerror or "cannot be used").lower())
    text = str(error)
    if "locked" in text or "busy" in text:
        return CannotUse("another mem0audit is writing to it")
    if "readonly" in text or "unable to open" in text:
        return CannotUse("cannot be written to")
    if "full" in text:
        return CannotUse("no space is left for it")
    return CannotUse("is damaged", damaged=True)


# --- Which file -------------------------------------------------------------------------------------


def find(folder: Path, wanted: Identity, still_there: Callable[[Identity], bool]) -> Path | None:
    """The ledger of an install; None where it has none yet. Raises CannotUse.

    First the one with these paths and this first row; then one with this first row whose install is no longer where it
    was (it was moved: `still_there` says so); then the one with these paths, whatever its first row (the log was reset,
    lost, or put in the place of another). A copy of an install that is still there is another install.
    """
    known = _known(folder)
    by_paths = [k for k in known if _paths(k.identity) == _paths(wanted)]
    by_row = [k for k in known if wanted.first_row is not None and k.identity.first_row == wanted.first_row]
    for one in by_paths:
        if one in by_row or wanted.first_row is None or one.identity.first_row is None:
            return one.path
    for one in by_row:
        if not still_there(one.identity):
            return one.path
    if by_paths:
        return by_paths[0].path
    # one that does not read is known by its name: better said than done without
    named = folder / f"{_name(wanted)}.sqlite"
    return named if os.path.lexists(named) and named not in [k.path for k in known] else None


def _name(identity: Identity) -> str:
    line = f"{identity.history}\0{identity.vectors}".encode("utf-8", "surrogatepass")
    return blake2b(line, digest_size=8).hexdigest()


def _paths(identity: Identity) -> tuple[str, str]:
    return identity.history, identity.vectors


def _known(folder: Path) -> list[_Known]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if _NAME.fullmatch(entry.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise why_not(error) from None
    found = []
    for name in names:
        with suppress(sqlite3.Error), closing(connect(folder / name)) as connection:
            row = connection.execute("SELECT history, vectors, first_row FROM install").fetchone()
            if row is not None:
                history, vectors, first_row = row
                identity = Identity(_untext(history), _untext(vectors), _unoptional(first_row))
                found.append(_Known(folder / name, identity))
    return found


def new_path(folder: Path, identity: Identity) -> Path:
    """Where the ledger of an install that has none is made: named after its paths, so that two runs make one."""
    name = _name(identity)
    taken = {k.path.name for k in _known(folder) if _paths(k.identity) != _paths(identity)}
    number = 1
    while (named := f"{name}.sqlite" if number == 1 else f"{name}-{number}.sqlite") in taken:
        number += 1
    return folder / named


# --- Opening ----------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path, identity: Identity, *, make: bool = False) -> Iterator[Ledger]:
    """The ledger at a path, its schema brought up to date; made (0600, its folder 0700) where `make` and it is not
    there. Raises CannotUse."""
    try:
        if make and not path.exists():
            files.make_folders(path.parent)
            with suppress(FileExistsError):
                files.write_new(path, b"")  # SQLite would make it 0644
        connection = connect(path)
    except (OSError, sqlite3.Error) as error:
        raise why_not(error) from None
    try:
        try:
            migrate(connection)
            ledger = Ledger(path, connection)
            ledger.be(identity)
        except sqlite3.Error as error:
            raise why_not(error) from None
        yield ledger
    finally:
        connection.close()


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Brings the schema up to date, a transaction a step: killed in between, the next run goes on from there.

    Raises CannotUse where a newer mem0audit wrote the file; sqlite3.Error.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise CannotUse(
            f"was written by a newer mem0audit (schema {version}; this one knows {len(steps)})", damaged=True
        )
    if version == len(steps):
        return
    if version == 0:
        _write_ahead(connection)
    for number, statements in enumerate(steps, 1):
        with _transaction(connection):
            # another run may have been here since
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version < number:
                for statement in statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switches the mode, for which SQLite does not wait by itself: another run may be switching it too."""
    end = time.monotonic() + BUSY_S
    while not _switched(connection, time.monotonic() > end):
        time.sleep(0.02)


def _switched(connection: sqlite3.Connection, is_last_try: bool) -> bool:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error) or is_last_try:
            raise
        return False
    return True


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _columns(identity: Identity) -> tuple[str | bytes, str | bytes, str | bytes | None]:
    return _text(identity.history), _text(identity.vectors), _optional(identity.first_row)


class Ledger:
    """An open ledger. Every method raises CannotUse where the file cannot be read or written."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._key = b""

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that writes, begun as one: it waits for another writer, and sees what that one did."""
        try:
            with _transaction(self._connection):
                yield self._connection
        except (sqlite3.Error, OSError) as error:
            raise why_not(error) from None

    def all(self, sql: str, args: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Every row of one statement."""
        try:
            return self._connection.execute(sql, args).fetchall()
        except sqlite3.Error as error:
            raise why_not(error) from None

    def be(self, identity: Identity) -> None:
        """Remembers which install this is, and where it lies now."""
        rows = self.all("SELECT history, vectors, first_row, key FROM install")
        if not rows:
            with self.writing() as db:
                db.execute(
                    "INSERT INTO install VALUES (1, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (*_columns(identity), os.urandom(32)),
                )
            rows = self.all("SELECT history, vectors, first_row, key FROM install")
        *there, self._key = rows[0]
        history, vectors, first_row = _columns(identity)
        # where the log is empty or not looked at, the row that was known stays known
        wanted = [history, vectors, there[2] if first_row is None else first_row]
        if there != wanted:
            with self.writing() as db:
                db.execute("UPDATE install SET history = ?, vectors = ?, first_row = ?", wanted)

    @property
    def key(self) -> bytes:
        """What the digests of this install's seals are keyed with (32 bytes)."""
        return self._key

    # -- owners --

    def note_owners(self, owners: Mapping[str, Owner], now: float) -> int:
        """Remembers the owner of each memory as seen now; how many were new or different.

        What it was told last is recognised as a whole and costs no look at each. `now` is in seconds since 1970.
        """
        numbers: dict[Owner, int] = {}
        spelled: list[tuple[str, str, str]] = []
        of: dict[str, int] = {}
        for memory_id, owner in owners.items():
            try:
                number = numbers.get(owner, -1)
                if number < 0:
                    number = numbers[owner] = len(spelled)
                    spelled.append(_spelled(owner))
            except TypeError:  # a list or a dict as an id
                number = len(spelled)
                spelled.append(_spelled(owner))
            of[memory_id] = number
        mark = _mark(of, spelled)
        if self.all("SELECT 1 FROM marks WHERE name = 'owners' AND value = ?", (mark,)):
            return 0
        with self.writing() as db:
            scope_of = _numbers(db, spelled)
            there = dict(db.execute("SELECT memory_id, scope FROM owners").fetchall())
            fresh = [
                (text, scope_of[number], now)
                for memory_id, number in of.items()
                if there.get(text := _text(memory_id)) != scope_of[number]
            ]
            db.executemany(
                "INSERT INTO owners VALUES (?, ?, ?) ON CONFLICT (memory_id) DO UPDATE SET scope = excluded.scope,"
                " seen_at = excluded.seen_at",
                fresh,
            )
            db.executemany(
                "UPDATE memory SET subject = ? WHERE id = ?",
                [(scope, text) for text, scope, _ in fresh if text in there],
            )
            db.execute("INSERT OR REPLACE INTO marks VALUES ('owners', ?)", (mark,))
        return len(fresh)

    def owners(self) -> dict[str, Owner]:
        """The owner of every memory ever seen, as last seen."""
        rows = self.all(
            "SELECT memory_id, user_id, agent_id, run_id FROM owners JOIN scopes ON scopes.id = owners.scope"
        )
        return {row[0]: (_value(row[1]), _value(row[2]), _value(row[3])) for row in rows}

    def sources(self) -> dict[str, str]:
        """Where each memory came from, for those of which that is known."""
        rows = self.all("SELECT id, source FROM memory WHERE source IS NOT NULL")
        return {_untext(memory_id): _untext(source) for memory_id, source in rows}

    # -- what is known of each memory --

    def note_memories(
        self, points: Mapping[str, PointRecord], logs: Mapping[str, MemoryLog], now: float, *, rows: int
    ) -> int:
        """Brings the table `memory` to what both stores have; how many rows were new, changed or removed.

        `points` are all memories that are stored, `logs` what the log says of each id, `rows` how many rows it has.
        A new one is confirmed as of its last logged ADD or UPDATE, never now, and its source is not known; one whose
        text is another one likewise, and it stays superseded if it was. A row goes when the log has a DELETE and the
        memory is gone, unless one that is still stored points to it. A day of expiry that was set in mem0 is taken
        over. What was seen last is recognised as a whole.
        """
        expiring = {i: p.expires for i, p in points.items() if p.expires}
        mark = _seen_mark(points, expiring, rows)
        if self.all("SELECT 1 FROM marks WHERE name = 'memories' AND value = ?", (mark,)):
            return 0
        with self.writing() as db:
            there = dict(db.execute("SELECT id, fact FROM memory").fetchall())
            texts = there.get
            fresh = [(i, p) for i, p in points.items() if texts(i) != (p.text or b"")]
            gone = {_untext(i) for i in there.keys() - points.keys()} - points.keys()
            # equal owners are one object
            owners = {id(point.owner): point.owner for _, point in fresh}
            numbers = _numbers(db, list(map(_spelled, owners.values()))) if owners else ()
            subject = dict(zip(owners, numbers, strict=True))
            db.executemany(
                "INSERT INTO memory (id, subject, fact, role, actor_id, attributed_to, created_at, confirmed_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET subject = excluded.subject,"
                " fact = excluded.fact, source = NULL, role = excluded.role, actor_id = excluded.actor_id,"
                " attributed_to = excluded.attributed_to, confirmed_at = excluded.confirmed_at"
                " WHERE fact <> excluded.fact",
                [
                    (
                        *(_text(i), subject[id(p.owner)], p.text or b"", *map(_optional, p.said)),
                        *(created_by_log(p, logs.get(i)), confirmed_by_log(p, logs.get(i), now)),
                    )
                    for i, p in fresh
                ],
            )
            if new := {i for i, _ in fresh}.difference(map(_untext, there)):
                self._as_it_ended(db, new, now)
            expired = self._expiring(db, expiring, points.keys())
            going = set()
            if gone:
                rows_of = set(map(_untext, there))
                going = removable(gone, rows_of, self._successors(db), lambda i: _stays(logs.get(i)))
                db.executemany("DELETE FROM memory WHERE id = ?", [(_text(i),) for i in going])
            db.execute("INSERT OR REPLACE INTO marks VALUES ('memories', ?)", (mark,))
        return len(fresh) + expired + len(going)

    @staticmethod
    def _as_it_ended(db: sqlite3.Connection, new: set[str], now: float) -> None:
        """Of memories that have a row now and had none: what was known of when they end, from a row that went or from
        facts that are tied to them."""
        for memory_id, *ended in db.execute("SELECT * FROM ended").fetchall():
            if _untext(memory_id) in new:
                db.execute(
                    "UPDATE memory SET expires_at = ?, superseded_by = (SELECT id FROM memory WHERE id = ?),"
                    " superseded_at = ? WHERE id = ?",
                    (*ended, memory_id),
                )
                db.execute("DELETE FROM ended WHERE id = ?", (memory_id,))
        pairs = db.execute(
            "SELECT DISTINCT earlier.memory_id, later.memory_id, later.valid_from FROM facts AS earlier JOIN facts AS"
            " later ON later.subject = earlier.subject AND later.attribute = earlier.attribute AND later.valid_from ="
            " earlier.valid_to WHERE earlier.memory_id <> later.memory_id ORDER BY later.valid_from"
        ).fetchall()
        for old, new_id, at in pairs:
            if not new.isdisjoint((_untext(old), _untext(new_id))):
                mark_replaced(db, _untext(old), _untext(new_id), at, now)

    @staticmethod
    def _expiring(db: sqlite3.Connection, days: Mapping[str, Any], stored: AbstractSet[str]) -> int:
        """Takes over the days of expiry that were set or cleared in mem0 since they were seen last; how many.

        What is ours stays where mem0 has the same day (ours is to the second), has not changed its mind, or has the
        memory no more."""
        row = db.execute("SELECT value FROM marks WHERE name = 'mem0 days'").fetchone()
        before = json.loads(row[0]) if row is not None else {}
        now = {i: str(day) for i, day in days.items() if hidden_from(day) is not None}
        changed = 0
        for memory_id in (before.keys() | now.keys()) & stored:
            was, day = before.get(memory_id), now.get(memory_id)
            ours = db.execute("SELECT expires_at FROM memory WHERE id = ?", (_text(memory_id),)).fetchone()
            if was == day or ours is None:
                continue
            ours_day = None if ours[0] is None else day_for_mem0(ours[0])
            if day is not None and ours_day != day:
                at = hidden_from(day)
            elif day is None and ours_day == was:
                at = None
            else:
                continue
            db.execute("UPDATE memory SET expires_at = ? WHERE id = ?", (at, _text(memory_id)))
            changed += 1
        if now != before:
            db.execute(
                "INSERT OR REPLACE INTO marks VALUES ('mem0 days', ?)", (json.dumps(now).encode("ascii"),)
            )
        return changed

    @staticmethod
    def _successors(db: sqlite3.Connection) -> dict[str, str]:
        rows = db.execute("SELECT id, superseded_by FROM memory WHERE superseded_by IS NOT NULL")
        return {_untext(old): _untext(new) for old, new in rows}

    def memories(self, ids: Collection[str] | None = None) -> dict[str, LedgerFact]:
        """What is known of these memories, or of all: those without a row are left out."""
        sql = (
            "SELECT memory.id, user_id, agent_id, run_id, fact, source, role, actor_id, attributed_to, created_at,"
            " confirmed_at, expires_at, last_used_at, superseded_by, superseded_at FROM memory JOIN scopes ON scopes.id"
            " = subject"
        )
        if ids is None:
            rows = self.all(sql)
        else:
            wanted = list(map(_text, ids))
            rows = []
            for at in range(0, len(wanted), 500):
                some = wanted[at : at + 500]
                rows += self.all(f"{sql} WHERE memory.id IN ({','.join('?' * len(some))})", some)
        return {_untext(row[0]): _fact(row) for row in rows}

    def successors(self, now: float) -> dict[str, str]:
        """What replaced each superseded memory, where that is known. `now` is in seconds since 1970."""
        rows = self.all(
            "SELECT id, superseded_by FROM memory WHERE superseded_by IS NOT NULL AND superseded_at <= ?",
            (now,),
        )
        return {_untext(old): _untext(new) for old, new in rows}

    def kept(self, now: float) -> Kept:
        """The table in numbers, and what in it is superseded, expired or hangs. `now` is in seconds since 1970."""
        ((rows,),) = self.all("SELECT count(*) FROM memory")
        ((alive, unknown, unconfirmed, no_source, oldest),) = self.all(
            "SELECT count(*), total(source IS NULL), total(old), total(old AND source IS NULL), min(confirmed_at)"  # noqa: S608
            " FROM (SELECT source, confirmed_at, coalesce(confirmed_at, 0) < :before AS old FROM memory"
            f" WHERE {_LIVE})",
            {"before": now - REVIEW_S, "now": now},
        )
        unused = None
        if (since := self.used_since()) is not None and since <= now - UNUSED_S:
            unused = len(self.unused(now))
        superseded = self.all(
            "SELECT id, superseded_by, superseded_at FROM memory WHERE superseded_at <= ? ORDER BY id", (now,)
        )
        expired = self.all(
            "SELECT id FROM memory WHERE (superseded_at IS NULL OR superseded_at > :now) AND expires_at <= :now"
            " ORDER BY id",
            {"now": now},
        )
        dangling = self.all(
            "SELECT id FROM memory AS old WHERE superseded_by IS NOT NULL AND NOT EXISTS (SELECT 1 FROM memory WHERE"
            " memory.id = old.superseded_by)"
        )
        return Kept(
            rows=rows,
            live=alive,
            superseded={_untext(i): (_unoptional(new), at) for i, new, at in superseded},
            expired=frozenset(_untext(i) for (i,) in expired),
            dangling=frozenset(_untext(i) for (i,) in dangling),
            unconfirmed=int(unconfirmed),
            no_source=int(no_source),
            unknown=int(unknown),
            oldest=oldest,
            unused=unused,
        )

    def due(self, now: float, before: float) -> dict[str, bool]:
        """The live memories last confirmed before a moment, and whether their source is known: those of an unknown one
        first, then the oldest confirmation. Both moments are in seconds since 1970."""
        rows = self.all(
            f"SELECT id, source IS NOT NULL FROM memory WHERE {_LIVE} AND coalesce(confirmed_at, 0) < :before"  # noqa: S608
            " ORDER BY source IS NOT NULL, coalesce(confirmed_at, 0), id",
            {"now": now, "before": before},
        )
        return {_untext(i): bool(is_known) for i, is_known in rows}

    def unused(self, now: float) -> tuple[str, ...]:
        """The live memories that were not used for six months; none before use was recorded for so long."""
        since = self.used_since()
        if since is None or since > now - UNUSED_S:
            return ()
        rows = self.all(
            f"SELECT id FROM memory WHERE {_LIVE} AND max(coalesce(last_used_at, 0), coalesce(created_at,"  # noqa: S608
            " confirmed_at, last_used_at, :now)) < :before ORDER BY id",
            {"now": now, "before": now - UNUSED_S},
        )
        return tuple(_untext(i) for (i,) in rows)

    def used_since(self) -> float | None:
        """Since when use is recorded; None where it is not."""
        rows = self.all("SELECT value FROM marks WHERE name = 'used since'")
        return float(rows[0][0]) if rows else None

    def note_used(self, used: Mapping[str, float]) -> None:
        """Remembers when each of these was last used, in seconds since 1970. What has no row is left out."""
        if not used:
            return
        with self.writing() as db:
            db.execute(
                "INSERT INTO marks VALUES ('used since', ?) ON CONFLICT DO NOTHING",
                (repr(min(used.values())).encode("ascii"),),
            )
            db.executemany(
                "UPDATE memory SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?",
                [(at, _text(i)) for i, at in used.items()],
            )

    def confirm(self, memory_id: str, at: float, source: str | None = None) -> None:
        """Remembers that a fact was found true, and with `source` by what; without, its source stays."""
        with self.writing() as db:
            db.execute(
                "UPDATE memory SET confirmed_at = ?, source = coalesce(?, source) WHERE id = ?",
                (at, _optional(source), _text(memory_id)),
            )

    def note_source(self, memory_id: str, source: str | None) -> None:
        """Remembers where a fact came from; None: it is not known."""
        with self.writing() as db:
            db.execute("UPDATE memory SET source = ? WHERE id = ?", (_optional(source), _text(memory_id)))

    def expire(self, memory_id: str, at: float | None) -> None:
        """Remembers until when a fact holds (seconds since 1970), or that it holds on."""
        with self.writing() as db:
            db.execute("UPDATE memory SET expires_at = ? WHERE id = ?", (at, _text(memory_id)))

    def supersede(self, old: str, new: str, at: float) -> None:
        """Remembers that `new` replaced `old`. Raises ValueError, with why, where that cannot be: looked at in the
        same transaction."""
        with self.writing() as db:
            rows = dict(
                db.execute(
                    "SELECT id, superseded_at FROM memory WHERE id IN (?, ?)", (_text(old), _text(new))
                )
            )
            for one in (old, new):
                if _text(one) not in rows:
                    raise ValueError(f"{one} is not in the ledger")
            if old == new:
                raise ValueError("a memory does not replace itself")
            if rows[_text(new)] is not None:
                raise ValueError(f"{new} is superseded itself, or will be")
            db.execute(
                "UPDATE memory SET superseded_by = ?, superseded_at = ? WHERE id = ?",
                (_text(new), at, _text(old)),
            )

    def replace_fact(self, memory_id: str, text: bytes, at: float, source: str) -> None:
        """Remembers that a memory has another text, given as its MD5, from this source and confirmed then."""
        with self.writing() as db:
            db.execute(
                "UPDATE memory SET fact = ?, confirmed_at = ?, source = ? WHERE id = ?",
                (text, at, _text(source), _text(memory_id)),
            )

    def take_back(self, memory_id: str, fact: LedgerFact) -> None:
        """What a person decided of a memory is as it was."""
        with self.writing() as db:
            db.execute(
                "UPDATE memory SET source = ?, confirmed_at = ?, expires_at = ?, superseded_by = ?, superseded_at = ?"
                " WHERE id = ?",
                (
                    *(_optional(fact.source), fact.confirmed_at, fact.expires_at),
                    *(_optional(fact.superseded_by), fact.superseded_at, _text(memory_id)),
                ),
            )

    def notes(self) -> dict[bytes, float]:
        """When each line of a notes file was confirmed, by its digest."""
        return dict(self.all("SELECT digest, confirmed_at FROM notes"))

    def confirm_note(self, digest: bytes, at: float | None) -> None:
        """Remembers when a line was found true; None forgets it."""
        with self.writing() as db:
            if at is None:
                db.execute("DELETE FROM notes WHERE digest = ?", (digest,))
            else:
                db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (digest, at))

    def note_to_delete(self, memory_id: str, *, wanted: bool = True) -> None:
        """Remembers that a person decided to delete a memory, until it is deleted; or, not `wanted`, that it stays."""
        with self.writing() as db:
            row = db.execute("SELECT value FROM marks WHERE name = 'to delete'").fetchone()
            ids = [one for one in json.loads(row[0]) if one != memory_id] if row is not None else []
            value = json.dumps([*ids, memory_id] if wanted else ids).encode("ascii")
            db.execute("INSERT OR REPLACE INTO marks VALUES ('to delete', ?)", (value,))

    def to_delete(self) -> tuple[str, ...]:
        """Which memories a person decided to delete, and which are still there."""
        rows = self.all("SELECT value FROM marks WHERE name = 'to delete'")
        ids = [str(one) for one in json.loads(rows[0][0])] if rows else []
        there = self.memories(ids)
        return tuple(one for one in ids if one in there)

    def restore_memory(self, memory_id: str) -> None:
        """Remembers that a superseded fact holds after all."""
        with self.writing() as db:
            db.execute(
                "UPDATE memory SET superseded_by = NULL, superseded_at = NULL WHERE id = ?",
                (_text(memory_id),),
            )

    def forget_memories(self, ids: Iterable[str]) -> None:
        """Drops the rows of memories whose points are gone. One that replaced another whose row stays, stays too: with
        it the mark of the other would go."""
        with self.writing() as db:
            rows = {_untext(i) for (i,) in db.execute("SELECT id FROM memory")}
            going = removable(rows.intersection(ids), rows, self._successors(db), lambda _: False)
            db.executemany("DELETE FROM memory WHERE id = ?", [(_text(i),) for i in going])

    # -- the agent --

    def note_agent(self, agent: KnownAgent) -> None:
        """Remembers the agent's Python, for changes that are made when no process shows it."""
        there = self.agent()
        if there is not None and replace(there, seen_at=agent.seen_at) == agent:
            return
        value = json.dumps(asdict(agent)).encode("ascii")
        with self.writing() as db:
            db.execute("INSERT OR REPLACE INTO marks VALUES ('agent', ?)", (value,))

    def agent(self) -> KnownAgent | None:
        """The agent's Python as last seen; None where it never was."""
        rows = self.all("SELECT value FROM marks WHERE name = 'agent'")
        try:
            return KnownAgent(**json.loads(rows[0][0])) if rows else None
        except (ValueError, TypeError):
            return None

    # -- folders and erasures --

    def note_folder(self, path: str, now: float) -> None:
        """Remembers that a snapshot went to this folder. `now` is in seconds since 1970."""
        with self.writing() as db:
            db.execute("INSERT OR REPLACE INTO folders VALUES (?, ?)", (_text(path), now))

    def forget_folder(self, path: str) -> None:
        """A folder that held snapshots is gone for good."""
        with self.writing() as db:
            db.execute("DELETE FROM folders WHERE path = ?", (_text(path),))

    def folders(self) -> tuple[str, ...]:
        """The folders that snapshots went to, the one used last first."""
        rows = self.all("SELECT path FROM folders ORDER BY used_at DESC, path")
        return tuple(_untext(path) for (path,) in rows)

    def note_export(self, path: str) -> None:
        """Remembers that somebody's memories were exported to this file."""
        with self.writing() as db:
            name = f"export {path.encode('utf-8', 'backslashreplace').decode()}"
            db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, os.fsencode(path)))

    def exports(self) -> tuple[str, ...]:
        """The files that memories were exported to, as they were named then."""
        rows = self.all("SELECT value FROM marks WHERE name LIKE 'export %' ORDER BY name")
        return tuple(os.fsdecode(bytes(value)) for (value,) in rows)

    def add_erasure(self, erasure: Erasure) -> None:
        """Puts an erasure on record; one that is there (by its salt) gets the later time."""
        with self.writing() as db:
            self._put_erasure(db, erasure)

    @staticmethod
    def _put_erasure(db: sqlite3.Connection, erasure: Erasure) -> None:
        db.execute(
            "INSERT INTO erasures VALUES (?, ?, ?) ON CONFLICT (salt) DO UPDATE SET at = max(at, excluded.at)",
            (erasure.salt, erasure.at, erasure.scope),
        )
        db.executemany(
            "INSERT INTO erased_ids VALUES (?, ?) ON CONFLICT DO NOTHING",
            [(erasure.salt, one) for one in erasure.ids],
        )

    def begin_erasure(self, erasure: Erasure, intent: str) -> None:
        """Puts an erasure on record together with what it is to do, before the first deletion."""
        with self.writing() as db:
            self._put_erasure(db, erasure)
            db.execute("INSERT OR REPLACE INTO marks VALUES ('erasing', ?)", (intent.encode("ascii"),))

    def erasing(self) -> str | None:
        """What an erasure that was begun and not ended is to do."""
        rows = self.all("SELECT value FROM marks WHERE name = 'erasing'")
        return bytes(rows[0][0]).decode("ascii", "replace") if rows else None

    def end_erasure(self) -> None:
        """Forgets what the erasure was to do: all is done."""
        with self.writing() as db:
            db.execute("DELETE FROM marks WHERE name = 'erasing'")

    def erasures(self) -> tuple[Erasure, ...]:
        """Every erasure on record."""
        ids: dict[str, list[str]] = {}
        for salt, digest in self.all("SELECT salt, digest FROM erased_ids ORDER BY digest"):
            ids.setdefault(salt, []).append(digest)
        rows = self.all("SELECT at, salt, scope FROM erasures ORDER BY at, salt")
        return tuple(Erasure(at, salt, scope, tuple(ids.get(salt, ()))) for at, salt, scope in rows)

    # -- what was added back --

    def note_lost(self, memory_ids: Iterable[str], now: float) -> None:
        """Remembers that these were lost for sure, before the first of them is added again: a few that are left over
        look like deletions. `now` is in seconds since 1970."""
        with self.writing() as db:
            db.executemany(
                "INSERT INTO recovered VALUES (?, NULL, ?) ON CONFLICT DO NOTHING",
                [(_text(one), now) for one in memory_ids],
            )

    def lost(self) -> frozenset[str]:
        """Those of them that were not added again yet."""
        rows = self.all("SELECT old_id FROM recovered WHERE new_id IS NULL")
        return frozenset(_untext(old) for (old,) in rows)

    def note_recovered(self, old_id: str, new_id: str, now: float) -> None:
        """Remembers that a lost memory was added again under a new id. `now` is in seconds since 1970."""
        with self.writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO recovered VALUES (?, ?, ?)", (_text(old_id), _text(new_id), now)
            )
            # what is known of it goes along: something superseded is not live again under another id
            db.execute(
                "INSERT INTO memory SELECT ?, subject, fact, source, role, actor_id, attributed_to, created_at,"
                " confirmed_at, expires_at, last_used_at, superseded_by, superseded_at FROM memory WHERE id = ?"
                " ON CONFLICT DO NOTHING",
                (_text(new_id), _text(old_id)),
            )
            db.execute(
                "UPDATE memory SET superseded_by = ?1 WHERE superseded_by = ?2 AND id <> ?1 AND ?1 IN (SELECT id FROM"
                " memory)",
                (_text(new_id), _text(old_id)),
            )
            db.execute("DELETE FROM memory WHERE id = ? AND id <> ?", (_text(old_id), _text(new_id)))

    def recovered(self) -> dict[str, str]:
        """The new id of every lost memory that was added again, by its old one."""
        rows = self.all("SELECT old_id, new_id FROM recovered WHERE new_id IS NOT NULL")
        return {_untext(old): _untext(new) for old, new in rows}

    # -- seals --

    def seals(self) -> tuple[Seal, ...]:
        """The chain, oldest first."""
        rows = self.all(
            "SELECT number, at, kind, mem0, schema, rows, last_row, memories, accepted, reason, state, previous"
            " FROM seals ORDER BY number"
        )
        try:
            return tuple(map(_seal, rows))
        except (ValueError, TypeError, AttributeError):
            raise CannotUse("its seals do not read", damaged=True) from None

    def last_seal(self) -> LastSeal | NotChecked:
        """The newest seal with its state; why not, where there is none or the chain does not hold together."""
        seals = self.seals()
        if not seals:
            return NO_SEAL
        state = self._state(seals[-1])
        wrong = chain_problem(seals)
        if wrong is None and state.digest() != seals[-1].state:
            wrong = f"what it holds of seal {seals[-1].number} is not what was sealed"
        if wrong is not None:
            return NotChecked("seal", f"the ledger {self.path} was changed: {wrong}")
        return LastSeal(seals[-1], state)

    def _state(self, seal: Seal) -> State:
        rows = b"".join(d for (d,) in self.all("SELECT digests FROM sealed_rows ORDER BY first"))
        memories = {_untext(i): p for i, p in self.all("SELECT memory_id, parts FROM sealed_memories")}
        return State(rows, memories, seal.schema, seal.mem0, seal.last_row)

    def add_seal(
        self,
        state: State,
        at: float,
        kind: str,
        *,
        after: Seal | None,
        accepted: Sequence[str] = (),
        reason: str | None = None,
    ) -> Seal:
        """Puts a seal after the one that the look was compared with. Raises CannotUse where another run was quicker."""
        made = Seal(
            number=after.number + 1 if after else 1,
            at=at,
            kind=kind,
            mem0=state.mem0,
            schema=state.schema,
            rows=state.row_count,
            last_row=state.last_row,
            memories=len(state.memories),
            accepted=tuple(accepted),
            reason=reason,
            state=state.digest(),
            previous=after.digest() if after else b"",
        )
        with self.writing() as db:
            seals = self.seals()
            if (seals[-1].digest() if seals else b"") != made.previous:
                raise CannotUse("was sealed by another mem0audit meanwhile")
            self._write_rows(db, state.rows)
            there = dict(db.execute("SELECT memory_id, parts FROM sealed_memories").fetchall())
            wanted = {_text(i): p for i, p in state.memories.items()}
            db.executemany(
                "DELETE FROM sealed_memories WHERE memory_id = ?",
                [(i,) for i in there.keys() - wanted.keys()],
            )
            db.executemany(
                "INSERT OR REPLACE INTO sealed_memories VALUES (?, ?)",
                [(i, p) for i, p in wanted.items() if there.get(i) != p],
            )
            db.execute(
                f"INSERT INTO seals VALUES ({','.join('?' * 12)})",  # noqa: S608
                (
                    *(made.number, made.at, made.kind, made.mem0, made.schema, made.rows),
                    *(_optional(made.last_row), made.memories, json.dumps(made.accepted)),
                    *(_optional(made.reason), made.state, made.previous),
                ),
            )
        return made

    def _write_rows(self, db: sqlite3.Connection, rows: bytes) -> None:
        """The digests of the rows: only what is new where the rest is as it was."""
        there = b"".join(d for (d,) in db.execute("SELECT digests FROM sealed_rows ORDER BY first"))
        start = len(there)
        if rows[:start] != there:
            db.execute("DELETE FROM sealed_rows")
            start = 0
        for at in range(start, len(rows), CHUNK_ROWS * ROW_BYTES):
            db.execute(
                "INSERT INTO sealed_rows VALUES (?, ?)",
                (at // ROW_BYTES, bytes(rows[at : at + CHUNK_ROWS * ROW_BYTES])),
            )


# --- Values -----------------------------------------------------------------------------------------


def _numbers(db: sqlite3.Connection, spelled: Sequence[tuple[str, str, str]]) -> list[int]:
    """The number of each of these owners, which get one where they have none."""
    db.executemany(
        "INSERT INTO scopes (user_id, agent_id, run_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        set(spelled),
    )
    ids = {tuple(row[1:]): row[0] for row in db.execute("SELECT id, user_id, agent_id, run_id FROM scopes")}
    return [ids[one] for one in spelled]


def mark_replaced(db: sqlite3.Connection, old: str, new: str, at: float, now: float) -> str | None:
    """Marks a memory as superseded by another from a moment on, for that is what facts tied to both say; why not, or
    None. Only where both have a row and are one person's: what is deleted with the newer one must not be another's.

    `old` is true no more and `new` is, so where the marks say that `old` replaced `new` they are taken back, unless
    that is to be only later than `now`: until then they hold. All times are in seconds since 1970.
    """
    rows = {
        _untext(row[0]): row[1:]
        for row in db.execute(
            "SELECT memory.id, superseded_at, user_id, CASE user_id WHEN 'null' THEN agent_id END FROM memory JOIN"
            " scopes ON scopes.id = subject WHERE memory.id IN (?, ?)",
            (_text(old), _text(new)),
        )
    }
    for one in (old, new):
        if one not in rows:
            return f"the ledger does not know {one} yet"
    if rows[old][1:] != rows[new][1:]:
        return "the two are of different owners"
    if rows[old][0] is not None:
        return f"{old} is superseded already"
    if rows[new][0] is not None:
        after = Ledger._successors(db)
        at_last: str | None = new
        while at_last is not None and at_last != old:
            at_last = after.pop(at_last, None)
        if at_last is None or at > now:
            return f"{new} is superseded itself"
        db.execute("UPDATE memory SET superseded_by = NULL, superseded_at = NULL WHERE id = ?", (_text(new),))
    db.execute(
        "UPDATE memory SET superseded_by = ?, superseded_at = ? WHERE id = ?", (_text(new), at, _text(old))
    )
    return None


def _stays(log: MemoryLog | None) -> bool:
    """Whether the row of a memory that is gone stays: nothing says that it was deleted, so it may come back."""
    return log is None or log.last != DELETE


def _fact(row: tuple[Any, ...]) -> LedgerFact:
    owner = (_value(row[1]), _value(row[2]), _value(row[3]))
    source, role, actor, by = map(_unoptional, row[5:9])
    created, confirmed, expires, used = row[9:13]
    return LedgerFact(
        *(owner, row[4], source, role, actor, by, created, confirmed, expires, used),
        superseded_by=_unoptional(row[13]),
        superseded_at=row[14],
    )


def _text(value: str) -> str | bytes:
    """Text as SQLite can hold it: bytes where UTF-8 cannot (a path or an id with lone surrogates)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def _untext(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _optional(value: str | None) -> str | bytes | None:
    return None if value is None else _text(value)


def _unoptional(value: str | bytes | None) -> str | None:
    return None if value is None else _untext(value)


def _seal(row: tuple[Any, ...]) -> Seal:
    number, at, kind, mem0, schema, rows, last_row, memories, accepted, reason, state, previous = row
    return Seal(
        *(number, at, kind, mem0, schema, rows, _unoptional(last_row), memories),
        *(tuple(json.loads(accepted)), _unoptional(reason), state, previous),
    )


def _spelled(owner: Owner) -> tuple[str, str, str]:
    user, agent, run = owner
    return _json(user), _json(agent), _json(run)


def _json(value: Any) -> str:
    """An owner's id as JSON; what is long or has no JSON form is clipped to text."""
    if value is None or type(value) in (bool, int, float):
        return json.dumps(
            clipped(value, LONGEST) if type(value) is int and value.bit_length() > 63 else value
        )
    if type(value) is str and len(value) <= LONGEST:
        return json.dumps(value)
    return json.dumps({"clipped": clipped(value, LONGEST)})


def _value(text: str) -> Any:
    return json.loads(text)


def _mark(of: Mapping[str, int], spelled: Sequence[tuple[str, str, str]]) -> bytes:
    """One digest of who owns what, in the order it was read in."""
    total = blake2b("\0".join(of).encode("utf-8", "surrogatepass"), digest_size=16)
    total.update(json.dumps((list(of.values()), spelled)).encode("ascii"))
    return total.digest()


def _seen_mark(points: Mapping[str, PointRecord], expiring: Mapping[str, Any], rows: int) -> bytes:
    """One digest of what both stores have of each memory."""
    total = blake2b("\0".join(points).encode("utf-8", "surrogatepass"), digest_size=16)
    total.update(b"".join([p.text or b"-" for p in points.values()]))
    total.update(repr((rows, list(expiring.items()))).encode("utf-8", "surrogatepass"))
    return total.digest()
