"""The embedded vector store: qdrant-client's local folder, read without qdrant-client.

The folder holds `meta.json`, `.lock` and `collection/<name>/storage.sqlite` (table `points`, a row a point).
Opening it with the client would write (see design: looking changes nothing); here meta.json is parsed
leniently and every storage file is read as a live SQLite file.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import (
    BadRow,
    CollectionInfo,
    DuplicateRows,
    FileProblem,
    FoundPoint,
    KeepPoint,
    PointId,
    PointsRead,
    StoreLayout,
    VectorFacts,
)
from mem0audit.stores import pickles, sqlitefiles
from mem0audit.stores.child import Child, ChildFailed, packed, processors, unpacked, worthwhile

T = TypeVar("T")

STORAGE: Final = "storage.sqlite"
LEGACY: Final = ("storage.dbm", "storage.dbm.db", "storage.dbm.dat", "storage.dbm.dir", "storage.dbm.pag")
META_BYTES: Final = 64 << 20
KEYS_AT_ONCE: Final = 500
MAX_NESTING: Final = 8
"""Folders inside each other under `collection/`: a name with slashes is a nested folder (up to 1.19.1)."""


@dataclass(frozen=True)
class EmbeddedStore:
    """The local folder of qdrant-client (`path` of mem0's vector store configuration); `alone` where it is a copy
    that nobody writes (see sqlitefiles.read_file)."""

    folder: str
    alone: bool = False

    def layout(self) -> StoreLayout:
        """The collections that meta.json lists and those that have a folder; never raises."""
        try:
            is_folder = stat.S_ISDIR(Path(self.folder).stat().st_mode)
        except FileNotFoundError:
            return StoreLayout(self.folder, exists=False)
        except (OSError, ValueError) as error:
            return StoreLayout(self.folder, exists=False, problem=_folder_problem(error))
        if not is_folder:
            problem = FileProblem("other", "is no folder")
            return StoreLayout(self.folder, exists=True, problem=problem)
        listed, aliases, meta_problem = _read_meta(Path(self.folder, "meta.json"))
        root = Path(self.folder, "collection")
        try:
            with os.scandir(self.folder):
                pass
            on_disk = dict(_folders(root, "", 0))
        except OSError as error:
            return StoreLayout(
                self.folder, exists=True, meta_problem=meta_problem, problem=_folder_problem(error)
            )
        collections = []
        for name, config in listed.items():
            inside = _is_inside(name)
            path = str(root / name if inside else root)
            kind = on_disk.pop(name, None) if inside else None
            collections.append(_collection(name, path, config, listed=True, kind=kind))
        for name, kind in sorted(on_disk.items()):
            collections.append(_collection(name, str(root / name), {}, listed=False, kind=kind))
        return StoreLayout(
            self.folder,
            exists=True,
            collections=tuple(collections),
            aliases=aliases,
            meta_problem=meta_problem,
        )

    def points(
        self, collection: CollectionInfo, keep: KeepPoint[T], *, helped: bool = False
    ) -> PointsRead[T]:
        """Every point as of one instant, each through `keep`, called in rowid order as rows come. What it
        returned for rows replaced meanwhile is dropped; a file that changes identity is read from the start
        again. So `keep` returns what is kept and counts nothing itself.

        Of several rows for one normalised id the highest rowid is kept, as qdrant-client 1.20 does; the
        others are reported. Rows that do not decode are reported and the rest is read. Never raises for
        what the file is: `file.problem` says what is wrong with it. `helped` lets children read a large
        collection: `keep` is then called in each of them, and what it returns must pickle.
        """
        path = str(Path(collection.path, STORAGE))
        with _helpers(path, collection.dims, keep, helped and not self.alone) as helpers:

            def body(reading: sqlitefiles.Reading) -> _Points[T]:
                points = _Points(pickles.point_decoder(collection.dims), keep)
                shares = None if helpers is None or helpers.begun else helpers
                if shares is not None:
                    shares.points = points
                sqlitefiles.read_points(reading, points, shares)
                return points

            state, points = sqlitefiles.read_file(path, body, alone=self.alone)
        if points is None:
            return PointsRead(state, {})
        return points.result(state)

    def find(self, collection: CollectionInfo, point_id: PointId) -> tuple[FoundPoint, ...]:
        """All rows of one id, the winner first, then by falling rowid; () where there is none.

        Raises CouldNotRead where there is none in what could be read, and the file did not read whole.

        Tried first are the keys that clients store this id under, in any protocol and UUID spelling; where
        none has it, every row is looked at.
        """
        wanted = pickles.normalise_id(point_id)

        def body(reading: sqlitefiles.Reading) -> list[FoundPoint]:
            reading.require_table("points")
            keys = pickles.candidate_keys(wanted)
            marks = ",".join("?" * len(keys))
            rows = reading.all(f"SELECT rowid, id, point FROM points WHERE id IN ({marks})", keys)  # noqa: S608
            found = [point for row in rows if (point := _found(row, wanted)) is not None]
            if not found:
                sink = _Search(wanted)
                sqlitefiles.read_points(reading, sink)
                found = sink.found
            return found

        state, found = sqlitefiles.read_file(
            str(Path(collection.path, STORAGE)), body, check=False, alone=self.alone
        )
        if not found and state.problem is not None:
            raise CouldNotRead(f"{state.path}: {state.problem.detail}")
        rows = sorted(found or (), key=lambda point: (point.problem is not None, -point.rowid))
        return tuple(
            FoundPoint(
                row.rowid,
                row.point_id,
                row.payload,
                row.vector,
                index == 0 and row.problem is None,
                row.problem,
            )
            for index, row in enumerate(rows)
        )

    def vectors(self, collection: CollectionInfo, point_id: PointId) -> pickles.PointVectors | None:
        """The vectors of one point as they lie on the disk; None where there is no such point, or it does not read."""
        wanted = pickles.normalise_id(point_id)

        def body(reading: sqlitefiles.Reading) -> bytes | None:
            reading.require_table("points")
            keys = pickles.candidate_keys(wanted)
            marks = ",".join("?" * len(keys))
            rows = reading.all(
                f"SELECT point FROM points WHERE id IN ({marks}) ORDER BY rowid DESC LIMIT 1",  # noqa: S608
                keys,
            )
            return rows[0][0] if rows else None

        _, blob = sqlitefiles.read_file(
            str(Path(collection.path, STORAGE)), body, check=False, alone=self.alone
        )
        try:
            return None if blob is None else pickles.vectors_of(blob)
        except pickles.UnreadablePoint:
            return None

    def whole(
        self,
        collection: CollectionInfo,
        rowids: Collection[int],
        take: Callable[[list[pickles.WholePoint]], None],
        *,
        at_once: int,
    ) -> None:
        """Gives the points of these rows, with their vectors, to `take`, some `at_once` of them, in rowid order.

        For a store that nobody writes (its lock is held): where the file changes all the same, `take` may be given
        some of them again. Raises CouldNotRead where it does not read whole, or a row is not there.
        """
        wanted = rowids if isinstance(rowids, (set, frozenset)) else frozenset(rowids)
        decode = pickles.whole_decoder(collection.dims)

        def body(reading: sqlitefiles.Reading) -> int:
            reading.require_table("points")
            after, count = sqlitefiles.FIRST, 0
            ready: list[pickles.WholePoint] = []
            sql = "SELECT rowid, point FROM points WHERE rowid > ? ORDER BY rowid LIMIT ?"
            while True:
                rows, whole = reading.page(sql, (after, at_once))
                for rowid, blob in rows:
                    if rowid in wanted:
                        ready.append(decode(blob))
                        if len(ready) == at_once:
                            count += len(ready)
                            take(ready)
                            ready = []
                if rows:
                    after = rows[-1][0]
                if whole and len(rows) < at_once:
                    break
            if ready:
                take(ready)
            return count + len(ready)

        try:
            state, count = sqlitefiles.read_file(
                str(Path(collection.path, STORAGE)), body, check=False, alone=self.alone
            )
        except pickles.UnreadablePoint as error:
            raise CouldNotRead(f"{collection.path}: a point does not decode: {error.reason}") from None
        if state.problem is not None:
            raise CouldNotRead(f"{state.path}: {state.problem.detail}")
        if count != len(wanted):
            raise CouldNotRead(f"{state.path}: {count or 0:,} points where {len(wanted):,} were")

    def distance(self, collection: CollectionInfo) -> str | None:
        """The distance that meta.json names for the unnamed vector ("Cosine" in mem0's); None where it names none."""
        listed, _, _ = _read_meta(Path(self.folder, "meta.json"))
        config = listed.get(collection.name)
        vectors = config.get("vectors") if isinstance(config, dict) else None
        if isinstance(vectors, dict) and isinstance(vectors.get(""), dict):
            vectors = vectors[""]
        found = vectors.get("distance") if isinstance(vectors, dict) else None
        return found if isinstance(found, str) else None

    def digests(self, collection: CollectionInfo) -> dict[str, bytes]:
        """Of every row its key and a digest of its bytes, to see whether anything changed. No row is decoded.

        Raises CouldNotRead where the file does not read whole.
        """

        def body(reading: sqlitefiles.Reading) -> _Digests:
            rows = _Digests()
            sqlitefiles.read_points(reading, rows)
            return rows

        state, rows = sqlitefiles.read_file(
            str(Path(collection.path, STORAGE)), body, check=False, alone=self.alone
        )
        if rows is None or state.problem is not None:
            raise CouldNotRead(f"{state.path}: {state.problem.detail if state.problem else 'was not read'}")
        return dict(rows.rows.values())

    def holding(self, collection: CollectionInfo, ids: Collection[str]) -> frozenset[str]:
        """Which of these ids the collection has a row for, by the keys that clients store them under.

        No row is decoded: whole stores of other programs are asked this way. () where the file does not read.
        """
        key_of = {key: one for one in ids for key in pickles.candidate_keys(pickles.normalise_id(one))}
        keys = list(key_of)

        def body(reading: sqlitefiles.Reading) -> set[str]:
            found: set[str] = set()
            for start in range(0, len(keys), KEYS_AT_ONCE):
                some = tuple(keys[start : start + KEYS_AT_ONCE])
                marks = ",".join("?" * len(some))
                rows = reading.all(f"SELECT id FROM points WHERE id IN ({marks})", some)  # noqa: S608
                found.update(key_of[key] for (key,) in rows)
            return found

        _, found = sqlitefiles.read_file(
            str(Path(collection.path, STORAGE)), body, check=False, alone=self.alone
        )
        return frozenset(found or ())


# --- Rows ------------------------------------------------------------------------------------------


class _Digests:
    """Takes rows (a `sqlitefiles.PageSink`) and keeps key and digest of each, by its rowid."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[str, bytes]] = {}

    def take(self, rows: list[Any]) -> None:
        """More rows."""
        for rowid, key, blob in rows:
            data = blob if isinstance(blob, bytes) else repr(blob).encode("utf-8", "surrogatepass")
            self.rows[rowid] = str(key), blake2b(data, digest_size=16).digest()

    def drop(self, rowids: set[int]) -> None:
        """Rows that are not there any more."""
        for rowid in rowids:
            self.rows.pop(rowid, None)


class _Points(Generic[T]):
    """Collects what `keep` returns, row by row, in lists side by side: the cheapest that Python has."""

    def __init__(self, decode: Any, keep: KeepPoint[T]) -> None:
        self.decode = decode
        self.keep = keep
        self.rowids: list[int] = []
        self.ids: list[PointId] = []
        self.kept: list[T] = []
        self.bad: list[BadRow] = []

    def take(self, rows: list[Any]) -> None:
        decode, keep = self.decode, self.keep
        add_rowid, add_id, add_kept = self.rowids.append, self.ids.append, self.kept.append
        for rowid, key, blob in rows:
            try:
                point_id, payload, facts = decode(blob)
            except pickles.UnreadablePoint as error:
                self.bad.append(BadRow(rowid, pickles.decode_key(key), error.reason, error.names))
                continue
            add_kept(keep(rowid, point_id, payload, facts))
            add_id(point_id)
            add_rowid(rowid)

    def drop(self, rowids: set[int]) -> None:
        stay = [index for index, rowid in enumerate(self.rowids) if rowid not in rowids]
        if len(stay) < len(self.rowids):
            self.rowids = [self.rowids[index] for index in stay]
            self.ids = [self.ids[index] for index in stay]
            self.kept = [self.kept[index] for index in stay]
        self.bad = [row for row in self.bad if row.rowid not in rowids]

    def add(self, share: _Share) -> None:
        """Puts the rows of a share after its own."""
        self.rowids += share.rowids
        self.ids += share.ids
        self.kept += unpacked(share.made_of, share.kept)
        self.bad += share.bad

    def result(self, state: Any) -> PointsRead[T]:
        rows = dict(zip(self.ids, self.kept, strict=True))
        duplicates: tuple[DuplicateRows, ...] = ()
        if len(rows) < len(self.ids):
            rows, duplicates = self._without_losers()
        return PointsRead(
            state,
            rows,
            duplicates,
            bad=tuple(row for row in self.bad if not row.names),
            unsafe=tuple(row for row in self.bad if row.names),
        )

    def _without_losers(self) -> tuple[dict[PointId, T], tuple[DuplicateRows, ...]]:
        of_id: dict[PointId, list[int]] = {}
        for index, point_id in enumerate(self.ids):
            of_id.setdefault(point_id, []).append(index)
        rows: dict[PointId, T] = {}
        duplicates = []
        for point_id, indexes in of_id.items():
            indexes.sort(key=self.rowids.__getitem__)
            rows[point_id] = self.kept[indexes[-1]]
            if len(indexes) > 1:
                losers = tuple(self.rowids[index] for index in indexes[:-1])
                duplicates.append(DuplicateRows(point_id, self.rowids[indexes[-1]], losers))
        return rows, tuple(duplicates)


# --- More than one processor -----------------------------------------------------------------------

HELPED_BYTES: Final = 64 << 20
"""From this size on children decode the points: they take some 10 ms to start."""
MOST_CHILDREN: Final = 4


class _Share(NamedTuple):
    """Rows as a child hands them over: what `_Points` collects, `kept` packed, and the key of each rowid."""

    keys: dict[int, Any]
    rowids: list[int]
    ids: list[PointId]
    kept: list[Any]
    bad: list[BadRow]
    made_of: Any = None


class _Helpers:
    """Children that read and decode a collection, a share of its rowids each: `sqlitefiles.Shares`.

    They are forked before this process opens the file: no connection or lock of SQLite's must cross a fork.
    """

    def __init__(self, path: str, dims: int | None, keep: KeepPoint[Any], count: int) -> None:
        self.begun = False
        self.points: _Points[Any] | None = None

        def share(receive: Callable[[], Any]) -> _Share | None:
            return _read_share(path, _Points(pickles.point_decoder(dims), keep), *receive())

        self.children: list[Child[_Share | None]] = []
        try:
            for _ in range(count):
                self.children.append(Child(share, ()))
        except BaseException:
            self.stop()
            raise

    def begin(self, lowest: int, highest: int, limit: int) -> None:
        """See Shares."""
        self.begun = True
        count = len(self.children)
        ends = [lowest + (highest - lowest) * (index + 1) // count for index in range(count)]
        starts = [sqlitefiles.FIRST, *ends]
        for child, after, last in zip(self.children, starts, ends, strict=False):
            with suppress(OSError):  # it is gone: `end` says so
                child.tell((limit, after, last))

    def end(self) -> dict[int, Any] | None:
        """See Shares."""
        try:
            shares = [share for child in self.children if (share := child.result()) is not None]
        except ChildFailed:
            return None
        if len(shares) < len(self.children) or self.points is None:
            return None
        keys: dict[int, Any] = {}
        for share in shares:
            self.points.add(share)
            keys.update(share.keys)
        return keys

    def stop(self) -> None:
        """Ends every child, whatever it does."""
        for child in self.children:
            child.stop()


def _read_share(path: str, points: _Points[Any], limit: int, after: int, last: int) -> _Share | None:
    """The rows above `after` and up to `last`; None where they do not read as those of a sound file do."""
    keys: dict[int, Any] = {}

    def body(reading: sqlitefiles.Reading) -> bool:
        if keys or reading.way == "scratch copy":
            return False
        sqlitefiles.read_share(reading, limit, after, last, points.take, keys)
        return True

    state, whole = sqlitefiles.read_file(path, body, check=False)
    if not whole or state.problem is not None:
        return None
    made_of, kept = packed(points.kept)
    return _Share(keys, points.rowids, points.ids, kept, points.bad, made_of)


@contextmanager
def _helpers(path: str, dims: int | None, keep: KeepPoint[Any], wanted: bool) -> Iterator[_Helpers | None]:
    """Helpers where they are wanted and worthwhile, None elsewhere; they have ended when this is left."""
    helpers = None
    if wanted and worthwhile(path, HELPED_BYTES):
        helpers = _Helpers(path, dims, keep, min(processors(), MOST_CHILDREN))
    try:
        yield helpers
    finally:
        if helpers is not None:
            helpers.stop()


def _found(row: tuple[int, Any, Any], wanted: PointId) -> FoundPoint | None:
    rowid, key, blob = row
    try:
        point_id, payload, facts = pickles.decode_whole(blob)
    except pickles.UnreadablePoint as error:
        if pickles.decode_key(key) != wanted:
            return None
        reason = f"{error.reason}: {', '.join(error.names)}" if error.names else error.reason
        return FoundPoint(rowid, wanted, {}, VectorFacts(None, None), winner=False, problem=reason)
    if point_id != wanted:
        return None
    return FoundPoint(rowid, point_id, payload, facts, winner=False)


class _Search:
    """Keeps the rows of one id out of all."""

    def __init__(self, wanted: PointId) -> None:
        self.wanted = wanted
        self.found: list[FoundPoint] = []

    def take(self, rows: list[Any]) -> None:
        self.found += [point for row in rows if (point := _found(row, self.wanted)) is not None]

    def drop(self, rowids: set[int]) -> None:
        self.found = [point for point in self.found if point.rowid not in rowids]


# --- Layout ----------------------------------------------------------------------------------------


def _folder_problem(error: Exception) -> FileProblem:
    if isinstance(error, PermissionError):
        return FileProblem("permission", "permission denied")
    if isinstance(error, OSError):
        if error.errno == errno.ELOOP:
            return FileProblem("link-loop", "symbolic links that lead in a circle")
        return FileProblem("other", error.strerror or "cannot be read")
    return FileProblem("other", "no possible file name")


def _is_inside(name: str) -> bool:
    """Whether a collection's name is a folder under `collection/`: no path is built from other data."""
    parts = name.split("/")
    return bool(name) and "\0" not in name and not any(part in ("", ".", "..") for part in parts)


def _folders(root: Path, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """(name, kind) of every folder under `collection/` that has a storage file: "sqlite" or "legacy"; "closed"
    where that cannot be seen, since what cannot be looked into is not "not there".

    Links inside links are not followed: a few that lead in a circle would be millions of folders.
    """
    if depth > MAX_NESTING:
        return
    try:
        with os.scandir(root) as entries:
            names = sorted((entry.name, _is_folder(entry, root)) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        if depth == 0:
            raise
        yield prefix, "closed"
        return
    plain = {name for name, is_folder in names if not is_folder}
    if prefix and STORAGE in plain | {name for name, is_folder in names if is_folder and name == STORAGE}:
        yield prefix, "sqlite"
    elif prefix and plain.intersection(LEGACY):
        yield prefix, "legacy"
    for name, is_folder in names:
        inner = f"{prefix}/{name}" if prefix else name
        if is_folder is None and name != STORAGE:
            yield inner, "closed"
        elif is_folder and name != STORAGE:
            if depth > 0 and Path(root, name).is_symlink():
                if Path(root, name, STORAGE).is_file():
                    yield inner, "sqlite"
                continue
            yield from _folders(root / name, inner, depth + 1)


def _is_folder(entry: os.DirEntry[str], root: Path) -> bool | None:
    """Whether it is a folder other than the one it lies in; None where its link leads in a circle or where
    we may not look."""
    try:
        if not entry.is_dir():
            return False
        return not (entry.is_symlink() and root.samefile(entry.path))
    except OSError:
        return None


def _read_meta(path: Path) -> tuple[dict[str, Any], dict[str, str], str | None]:
    """Collections with their configuration, aliases, and what is wrong with meta.json (None: nothing)."""
    try:
        descriptor = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
        )  # waits for no pipe's other end
        with open(descriptor, "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return {}, {}, "is no regular file"
            raw = file.read(META_BYTES + 1)
    except FileNotFoundError:
        return {}, {}, "missing"
    except PermissionError:
        return {}, {}, "permission denied"
    except OSError as error:
        return {}, {}, error.strerror or "cannot be read"
    if len(raw) > META_BYTES:
        return {}, {}, f"larger than {META_BYTES >> 20} MB"
    if not raw.strip():
        return {}, {}, "not JSON: no content"
    try:
        meta = json.loads(raw)
    except json.JSONDecodeError as error:
        return {}, {}, f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
    except (UnicodeDecodeError, ValueError):
        return {}, {}, "not JSON: not UTF-8 text"
    except RecursionError:
        return {}, {}, "not JSON: nested too deep"
    if not isinstance(meta, dict) or not isinstance(meta.get("collections"), dict):
        return {}, {}, "not as qdrant-client writes it: no collections"
    aliases = meta.get("aliases")
    pairs = aliases.items() if isinstance(aliases, dict) else ()
    return meta["collections"], {a: c for a, c in pairs if isinstance(c, str)}, None


def _collection(name: str, path: str, config: Any, *, listed: bool, kind: str | None) -> CollectionInfo:
    config = config if isinstance(config, dict) else {}
    vectors = config.get("vectors")
    sparse = config.get("sparse_vectors")
    return CollectionInfo(
        name=name,
        path=path,
        dims=_dims(vectors),
        listed=listed,
        has_folder=kind is not None,
        closed=kind == "closed",
        keyword_slot=isinstance(sparse, dict) and "bm25" in sparse,
        config_keys=tuple(_paths(config, "", 0)),
        legacy=kind == "legacy",
    )


def _dims(vectors: Any) -> int | None:
    """The unnamed vector's size: `vectors` is its parameters, or a dict of named ones."""
    if not isinstance(vectors, dict):
        return None
    size = vectors.get("size")
    if size is None and isinstance(vectors.get(""), dict):
        size = vectors[""].get("size")
    return size if type(size) is int and 0 < size <= 1 << 24 else None


def _paths(config: dict[str, Any], prefix: str, depth: int) -> Iterator[str]:
    for key, value in config.items():
        path = f"{prefix}{key}"
        yield path
        if isinstance(value, dict) and depth < 4:
            yield from _paths(value, f"{path}.", depth + 1)
