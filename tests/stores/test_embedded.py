"""The embedded store: what the client itself would load, of files that are live, doubled, damaged or foreign."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient
from qdrant_client.http.models import PointStruct

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import CollectionInfo, PointId, PointsRead, VectorFacts
from mem0audit.core.points import MemoryKeeper, PointRecord
from mem0audit.core.seal import SealKeeper
from mem0audit.stores import embedded, pickles, sqlitefiles
from mem0audit.stores.embedded import EmbeddedStore
from tests.builders import fork
from tests.speed import Allowance, kept_waiting

DATA = Path(__file__).parent.parent / "data"
FOLDERS = sorted(path.parent for path in DATA.rglob("meta.json"))


def everything(rowid: int, point_id: PointId, payload: Any, facts: VectorFacts) -> tuple[Any, ...]:
    return rowid, point_id, payload, facts


def tree(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        stat = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, digest)
    return found


def key_of(point_id: Any, protocol: int = 4) -> str:
    import base64

    return base64.b64encode(pickle.dumps(point_id, protocol)).decode()


def blob_of(point_id: Any, payload: Any = None, dims: int = 8) -> bytes:
    vector = {"": [0.25] * dims}
    return pickle.dumps(PointStruct.model_construct(id=point_id, vector=vector, payload=payload or {}))


def new_store(folder: Path, rows: list[tuple[Any, Any]], name: str = "mem0", dims: int = 8) -> Path:
    """A store of these (key, blob) rows; returns its storage file."""
    storage = folder / "collection" / name / "storage.sqlite"
    storage.parent.mkdir(parents=True)
    config = {"vectors": {"size": dims, "distance": "Cosine"}}
    (folder / "meta.json").write_text(json.dumps({"collections": {name: config}, "aliases": {}}))
    connection = sqlite3.connect(storage)
    connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
    connection.executemany("INSERT INTO points VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    return storage


def read(folder: Path, name: str = "mem0") -> PointsRead[Any]:
    store = EmbeddedStore(str(folder))
    (collection,) = [c for c in store.layout().collections if c.name == name]
    return store.points(collection, everything)


def uuid_of(number: int) -> str:
    return str(uuid.UUID(int=number))


# --- As the client loads it ------------------------------------------------------------------------


def by_the_client(folder: Path) -> dict[str, dict[PointId, tuple[Any, Any]]]:
    """Every collection through QdrantClient itself; only ever on a copy."""
    found: dict[str, dict[PointId, tuple[Any, Any]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = QdrantClient(path=str(folder))
        for collection in client.get_collections().collections:
            points, _ = client.scroll(collection.name, limit=100_000, with_vectors=True)
            found[collection.name] = {point.id: (point.payload, point.vector) for point in points}
        client.close()
    return found


# What this client cannot open or scroll: names with slashes, ids and payloads of older clients' kinds.
UNREADABLE = ("a/b", "r_uuid_object_id", "r_payload_numpy", "r_wrong_dim")


def without(folder: Path, names: tuple[str, ...]) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    meta["collections"] = {n: c for n, c in meta["collections"].items() if not n.startswith(names)}
    meta["aliases"] = {}
    (folder / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize("folder", FOLDERS, ids=[str(f.relative_to(DATA)).replace("/", "-") for f in FOLDERS])
def test_equals_what_the_client_scrolls_on_a_copy(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    without(copy, UNREADABLE)
    store = EmbeddedStore(str(copy))
    before = tree(copy)
    ours = {
        collection.name: store.points(collection, everything)
        for collection in store.layout().collections
        if collection.listed
    }
    assert tree(copy) == before
    theirs = by_the_client(copy)
    assert set(ours) == set(theirs)
    for name, points in theirs.items():
        got = ours[name]
        assert (got.bad, got.unsafe, got.file.problem, got.file.integrity) == ((), (), None, ())
        assert list(map(repr, sorted(got.rows, key=repr))) == sorted(map(repr, points)), name
        for point_id, (payload, vector) in points.items():
            _, _, our_payload, facts = got.rows[point_id]
            assert same(our_payload, payload), (name, point_id)
            dense = vector.get("") if isinstance(vector, dict) else vector
            if dense is None or not len(dense):
                assert not facts.dims
            else:
                assert facts.dims == len(dense[0] if isinstance(dense[0], list) else dense)


def same(ours: Any, theirs: Any) -> bool:
    """Equal as JSON; what is not JSON to the client is text to us."""
    if isinstance(theirs, dict):
        return set(ours) == set(map(str, theirs)) and all(same(ours[str(k)], v) for k, v in theirs.items())
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, (set, frozenset)):
        return sorted(map(repr, ours)) == sorted(map(repr, theirs))
    if isinstance(ours, pickles.Opaque) or repr(ours) == repr(theirs):
        return True
    text = str(theirs)
    return str(ours).replace("T", " ").replace("Z", "+00:00") == text.replace("T", " ").replace("Z", "+00:00")


def test_rows_that_this_client_cannot_read_are_read() -> None:
    for version in ("1.1.7", "1.9.2", "1.9.2p1"):
        store = EmbeddedStore(str(DATA / "qdrant-stores" / version))
        by_name = {c.name: c for c in store.layout().collections}
        nested = store.points(by_name["a/b"], everything)
        assert len(nested.rows) > 0
        objects = store.points(by_name["r_uuid_object_id"], everything)
        assert objects.rows
        assert all(str(uuid.UUID(str(i))) == i for i in objects.rows if isinstance(i, str))
        assert objects.bad == objects.unsafe == ()


def test_every_data_store_is_read_without_a_byte_changed() -> None:
    before = {str(folder): tree(folder) for folder in FOLDERS}
    count = 0
    for folder in FOLDERS:
        store = EmbeddedStore(str(folder))
        for collection in store.layout().collections:
            got = store.points(collection, everything)
            count += len(got.rows)
            assert (got.bad, got.unsafe, got.file.problem) == ((), (), None)
            for point_id in got.rows:
                assert store.find(collection, point_id)[0].winner
    assert count > 600
    assert before == {str(folder): tree(folder) for folder in FOLDERS}


def test_beside_a_client_that_holds_the_store(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(DATA / "stores" / "2.2.1" / "qdrant", copy)
    client = QdrantClient(path=str(copy))
    before = tree(copy)
    assert len(read(copy).rows) == 19
    assert tree(copy) == before
    client.close()


# --- Several rows for one id -----------------------------------------------------------------------


def test_of_several_rows_the_highest_rowid_wins(tmp_path: Path) -> None:
    point_id = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
    rows = [
        (key_of(point_id.upper()), blob_of(point_id.upper(), {"n": 1})),
        (key_of(point_id, 3), blob_of(point_id, {"n": 2})),
        (key_of(uuid_of(1)), blob_of(uuid_of(1), {"n": 3})),
        (key_of(point_id), blob_of(point_id, {"n": 4})),
        (key_of(point_id.replace("-", "")), blob_of(point_id.replace("-", ""), {"n": 5})),
        (key_of(7, 3), blob_of(7, {"n": 6})),
        (key_of(7, 4), blob_of(7, {"n": 7})),
    ]
    new_store(tmp_path, rows)
    got = read(tmp_path)
    assert {point_id: row[2]["n"] for point_id, row in got.rows.items()} == {point_id: 5, uuid_of(1): 3, 7: 7}
    duplicates = {d.point_id: (d.kept_rowid, d.loser_rowids) for d in got.duplicates}
    assert duplicates == {point_id: (5, (1, 2, 4)), 7: (7, (6,))}
    theirs = by_the_client(tmp_path)["mem0"]
    assert {point_id: payload["n"] for point_id, (payload, _) in theirs.items()} == {
        point_id: 5, uuid_of(1): 3, 7: 7
    }  # fmt: skip


def test_find_gives_every_row_of_an_id_the_winner_first(tmp_path: Path) -> None:
    point_id = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
    rows = [
        (key_of(point_id.upper()), blob_of(point_id.upper(), {"n": 1})),
        (key_of(point_id, 3), blob_of(point_id, {"n": 2})),
        (key_of(point_id), blob_of(point_id, {"n": 3, "data": "text"})),
        (key_of(point_id, 5), b"garbage"),
        (key_of(5), blob_of(5, {"n": 4})),
        ("a key that is no pickle", blob_of(6, {"n": 5})),
        (key_of(8), pickle.dumps(os.system)),
    ]
    new_store(tmp_path, rows)
    store = EmbeddedStore(str(tmp_path))
    (collection,) = store.layout().collections
    found = store.find(collection, point_id)
    assert [(f.rowid, f.winner, f.problem is None) for f in found] == [
        (3, True, True), (2, False, True), (1, False, True), (4, False, False)
    ]  # fmt: skip
    assert found[0].payload == {"n": 3, "data": "text"}
    assert found[0].vector == VectorFacts(8, None)
    assert store.find(collection, point_id.upper()) == found
    assert [f.payload["n"] for f in store.find(collection, 5)] == [4]
    assert [(f.payload["n"], f.winner) for f in store.find(collection, 6)] == [(5, True)]
    (unsafe,) = store.find(collection, 8)
    assert not unsafe.winner
    assert "system" in str(unsafe.problem)
    assert store.find(collection, 9) == ()
    assert store.find(collection, uuid_of(9)) == ()


# --- Rows that do not decode -----------------------------------------------------------------------


def test_bad_and_unsafe_rows_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/proof",)

    rows = [(key_of(n), blob_of(n, {"data": f"text {n}"})) for n in range(5)]
    rows += [
        (key_of(10), b"secret text that is no pickle"),
        (key_of(11), blob_of(11, {"x": Evil()})),
        (None, None),
        (12, "text"),
        (b"\xff", 5),
        (key_of(13), b""),
    ]
    new_store(tmp_path, rows)
    got = read(tmp_path)
    assert set(got.rows) == set(range(5))
    assert [(row.rowid, row.point_id) for row in got.bad] == [
        (6, 10),
        (8, None),
        (9, None),
        (10, None),
        (11, 13),
    ]
    assert [(row.rowid, row.point_id, row.names) for row in got.unsafe] == [(7, 11, ("posix.system",))]
    assert not any("secret" in row.reason or "touch" in row.reason for row in (*got.bad, *got.unsafe))
    assert not (tmp_path / "proof").exists()
    assert got.file.problem is None


def test_large_texts_nul_surrogates_and_markup_survive(tmp_path: Path) -> None:
    payloads = [
        {"data": "x" * 10_000_000}, {"data": "a\0b"}, {"data": "\ud800 half"}, {"data": "\x1b[31m[bold]<b>"}
    ]  # fmt: skip
    new_store(tmp_path, [(key_of(n), blob_of(n, payload)) for n, payload in enumerate(payloads)])
    got = read(tmp_path)
    assert [got.rows[n][2] for n in range(4)] == payloads


def test_many_large_rows_do_not_pile_up(tmp_path: Path) -> None:
    """100 rows of 5 MB through a page reader: memory stays far below their sum."""
    new_store(tmp_path, [(key_of(n), blob_of(n, {"data": "x" * 5_000_000})) for n in range(100)])
    code = (
        "import re, sys\n"
        "from mem0audit.stores.embedded import EmbeddedStore\n"
        "store = EmbeddedStore(sys.argv[1]); (c,) = store.layout().collections\n"
        "got = store.points(c, lambda rowid, i, payload, facts: len(payload['data']))\n"
        "assert set(got.rows.values()) == {5_000_000} and len(got.rows) == 100\n"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert int(run.stdout) < 150, run.stderr


# --- Damage ----------------------------------------------------------------------------------------

ROWS = 400


def stored(tmp_path: Path) -> Path:
    rows = [(key_of(uuid_of(n)), blob_of(uuid_of(n), {"n": n}, dims=60)) for n in range(ROWS)]
    return new_store(tmp_path, rows, dims=60)


def pages_of(path: Path) -> dict[str, list[int]]:
    """Page numbers by b-tree, found through dbstat."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT name, pagetype, pageno FROM dbstat").fetchall()
    finally:
        connection.close()
    pages: dict[str, list[int]] = {}
    for name, kind, number in rows:
        pages.setdefault(f"{name} {kind}", []).append(number)
    return pages


def overwrite(path: Path, page: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(data)


@pytest.mark.parametrize("what", ["zeros", "garbage", "first byte"])
def test_a_damaged_table_page_costs_its_rows_only(tmp_path: Path, what: str) -> None:
    path = stored(tmp_path)
    leaves = pages_of(path)["points leaf"]
    data = {"zeros": b"\0" * 4096, "garbage": bytes(random.Random(1).randbytes(4096)), "first byte": b"\x77"}[
        what
    ]
    overwrite(path, leaves[len(leaves) // 2], data)
    before = tree(tmp_path)
    got = read(tmp_path)
    assert tree(tmp_path) == before
    assert got.file.problem is not None
    assert got.file.problem.kind == "damaged"
    assert ROWS - 8 <= len(got.rows) < ROWS
    assert f"{len(got.rows)} of at least {ROWS} rows" in got.file.problem.detail
    assert got.file.integrity != ()


def test_several_damaged_pages_and_no_index(tmp_path: Path) -> None:
    path = stored(tmp_path)
    pages = pages_of(path)
    for page in pages["sqlite_autoindex_points_1 internal"]:
        overwrite(path, page, b"\0" * 4096)
    for page in pages["points leaf"][10:14] + pages["points leaf"][50:51]:
        overwrite(path, page, b"\0" * 4096)
    got = read(tmp_path)
    assert got.file.problem is not None
    assert got.file.problem.kind == "damaged"
    assert len(got.rows) > ROWS - 60


def test_a_damaged_index_alone_is_damage_and_every_row_reads(tmp_path: Path) -> None:
    path = stored(tmp_path)
    overwrite(path, pages_of(path)["sqlite_autoindex_points_1 leaf"][2], b"\0" * 4096)
    got = read(tmp_path)
    assert len(got.rows) == ROWS
    assert got.file.problem is not None
    assert got.file.problem.kind == "damaged"


def test_an_index_that_lacks_a_row_is_damage(tmp_path: Path) -> None:
    path = stored(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = 1")
    index, sql = connection.execute(
        "SELECT rootpage, NULL FROM sqlite_master WHERE type = 'index'"
    ).fetchone()
    del sql
    connection.execute("UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master) WHERE 0")
    connection.execute(
        "UPDATE sqlite_master SET type = 'table', name = 'x', tbl_name = 'x', rootpage = ?,"
        " sql = 'CREATE TABLE x (k, r, PRIMARY KEY (k, r)) WITHOUT ROWID' WHERE type = 'index'",
        (index,),
    )
    connection.execute(
        "UPDATE sqlite_master SET sql = 'CREATE TABLE points (id TEXT, point BLOB)' WHERE name = 'points'"
    )
    connection.commit()
    connection.close()
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM x WHERE r = 17")
    connection.execute("PRAGMA writable_schema = 1")
    connection.execute(
        "UPDATE sqlite_master SET type = 'index', name = 'sqlite_autoindex_points_1', tbl_name = 'points',"
        " sql = NULL WHERE name = 'x'"
    )
    connection.execute(
        "UPDATE sqlite_master SET sql = 'CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)' WHERE name = 'points'"
    )
    connection.commit()
    connection.close()
    got = read(tmp_path)
    assert len(got.rows) == ROWS
    assert got.file.problem is not None
    assert got.file.problem.kind == "damaged"
    assert f"{ROWS} rows, its index {ROWS - 1}" in got.file.problem.detail
    assert got.file.integrity


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_file(tmp_path: Path, share: float) -> None:
    path = stored(tmp_path)
    size = path.stat().st_size
    os.truncate(path, int(size * share) // 4096 * 4096)
    got = read(tmp_path)
    assert got.file.problem is not None
    assert got.file.problem.kind == "damaged"
    assert len(got.rows) > ROWS * (share - 0.3)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = stored(tmp_path)
    for kind, make in (
        ("empty", lambda: path.write_bytes(b"")),
        ("not-sqlite", lambda: path.write_text("no database " * 50)),
        ("missing", path.unlink),
        ("folder", path.mkdir),
    ):
        info = EmbeddedStore(str(tmp_path)).layout().collections[0]
        make()
        got = EmbeddedStore(str(tmp_path)).points(info, everything)
        assert got.rows == {}
        assert got.file.problem is not None
        assert got.file.problem.kind == kind
        with pytest.raises(CouldNotRead, match=re.escape(str(path))):
            EmbeddedStore(str(tmp_path)).find(info, 1)


def test_random_damage_never_raises_and_never_hangs(tmp_path: Path) -> None:
    path = stored(tmp_path)
    whole = path.read_bytes()
    rng = random.Random(3)
    read_at_all, within = 0, Allowance()
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 5, 50))):
            at = rng.randrange(len(data))
            data[at : at + rng.choice((1, 1, 100))] = rng.randbytes(1)
        path.write_bytes(data)
        begun = time.process_time()
        got = read(tmp_path)
        assert time.process_time() - begun < within(20)
        read_at_all += bool(got.rows)
    assert read_at_all > 30


# --- With helpers ---------------------------------------------------------------------------------


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, own_threads: None) -> list[bool]:
    """Any file is large enough to be read with helpers; for each time, whether they gave all of it."""
    seen: list[bool] = []
    end = embedded._Helpers.end

    def noted(self: Any) -> Any:
        part = end(self)
        seen.append(part is not None)
        return part

    monkeypatch.setattr(embedded, "HELPED_BYTES", 0)
    monkeypatch.setattr(embedded._Helpers, "end", noted)
    return seen


def both_ways(folder: Path) -> tuple[PointsRead[Any], PointsRead[Any]]:
    store = EmbeddedStore(str(folder))
    (collection,) = store.layout().collections
    return store.points(collection, everything), store.points(collection, everything, helped=True)


def compared(read: PointsRead[Any]) -> tuple[Any, ...]:
    rows = [(point_id, repr(kept)) for point_id, kept in read.rows.items()]
    return rows, read.duplicates, read.bad, read.unsafe, read.file.problem, read.file.integrity


def test_a_helper_makes_no_difference(tmp_path: Path, parts: list[bool]) -> None:
    rows: list[tuple[Any, Any]] = [(key_of(n), blob_of(n, {"v": n})) for n in range(500)]
    rows += [(key_of(3, 2), blob_of(3, {"v": "again"})), (key_of(490, 2), blob_of(490, {"v": "again"}))]
    rows += [(key_of(600), b"no pickle"), (key_of(601), pickle.dumps(os.system))]
    rows = [*rows[400:], *rows[:400]]
    new_store(tmp_path, rows)
    alone, helped = both_ways(tmp_path)
    assert parts == [True]
    assert (len(alone.rows), len(alone.duplicates), len(alone.bad), len(alone.unsafe)) == (500, 2, 1, 1)
    assert compared(alone) == compared(helped)
    assert list(alone.rows) == list(helped.rows)


def test_a_helper_hands_over_the_records_of_an_audit(parts: list[bool]) -> None:
    (collection,) = EmbeddedStore(str(DATA / "stores/2.2.1/pre_delete_all/qdrant")).layout().collections
    store = EmbeddedStore(str(DATA / "stores/2.2.1/pre_delete_all/qdrant"))
    alone = store.points(collection, MemoryKeeper())
    helped = store.points(collection, MemoryKeeper(), helped=True)
    assert parts == [True]
    assert {type(record) for record in helped.rows.values()} == {PointRecord}
    assert (helped.rows, list(helped.rows)) == (alone.rows, list(alone.rows))
    seals = []
    for one in (False, True):
        rows: Any = store.points(collection, SealKeeper(b"k" * 32, {}), helped=one).rows
        seals.append({point_id: record.parts for point_id, record in rows.items()})
    assert seals[0] == seals[1]


@pytest.mark.parametrize("rowids", [[7], [7, 8], [-5, 3, 1 << 62], [1, (1 << 63) - 1]])
def test_a_helper_and_few_or_far_rows(tmp_path: Path, parts: list[bool], rowids: list[int]) -> None:
    path = new_store(tmp_path, [(key_of(n), blob_of(n)) for n in range(len(rowids))])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for old in range(len(rowids), 0, -1):
            connection.execute("UPDATE points SET rowid = ? WHERE rowid = ?", (rowids[old - 1], old))
    alone, helped = both_ways(tmp_path)
    assert parts == [True]
    assert len(alone.rows) == len(rowids)
    assert compared(alone) == compared(helped)


def test_a_helper_and_damage(tmp_path: Path, parts: list[bool]) -> None:
    path = stored(tmp_path)
    pages = pages_of(path)["points leaf"]
    for page in (pages[len(pages) // 4], pages[-len(pages) // 4]):
        overwrite(path, page, b"\x00" * 4096)
        alone, helped = both_ways(tmp_path)
        assert alone.file.problem is not None
        assert compared(alone) == compared(helped)
    assert False in parts


@pytest.mark.parametrize("dies_at", [100, 450])
def test_a_helper_that_dies(tmp_path: Path, parts: list[bool], dies_at: int) -> None:
    new_store(tmp_path, [(key_of(n), blob_of(n, {"v": n})) for n in range(500)])
    store = EmbeddedStore(str(tmp_path))
    (collection,) = store.layout().collections
    parent = os.getpid()

    def keep(rowid: int, point_id: PointId, payload: Any, facts: VectorFacts) -> Any:
        if os.getpid() != parent and rowid == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return payload["v"]

    got = store.points(collection, keep, helped=True)
    assert parts == [False]
    assert dict(got.rows) == {n: n for n in range(500)}
    assert list(got.rows) == list(range(500))


def test_a_file_cut_short_under_a_helper(tmp_path: Path, parts: list[bool]) -> None:
    """The kernel ends a process that reads mapped memory beyond a file's end: it must not be this one."""
    path = new_store(tmp_path, [(key_of(n), blob_of(n, {"v": "x" * 5000})) for n in range(500)])
    store = EmbeddedStore(str(tmp_path))
    (collection,) = store.layout().collections
    parent = os.getpid()
    size = path.stat().st_size
    killed_by: list[int] = []
    wait = os.waitpid

    execute = sqlitefiles.Reading.execute

    def cut(self: Any, sql: str, args: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        cursor = execute(self, sql, args)
        # inside the transaction of a page of rows, by the helper that reads where the file will have ended
        if os.getpid() != parent and "point FROM points" in sql and args[0] > 0:
            os.truncate(path, size // 8)
        return cursor

    def kill(pid: int, number: int) -> None:
        end = time.monotonic() + 20  # it may be ending already: let the kernel say how
        while b") Z " not in Path(f"/proc/{pid}/stat").read_bytes() and time.monotonic() < end:
            time.sleep(0.01)
        kill_now(pid, number)

    kill_now = os.kill

    def waited(pid: int, options: int) -> tuple[int, int]:
        pid, status = wait(pid, options)
        killed_by.append(os.waitstatus_to_exitcode(status))
        return pid, status

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "waitpid", waited)
        patch.setattr(os, "kill", kill)
        patch.setattr(sqlitefiles.Reading, "execute", cut)
        got = store.points(collection, everything, helped=True)
    assert parts == [False]
    assert -signal.SIGBUS in killed_by
    assert got.file.problem is not None
    assert got.file.problem.kind == "damaged"


def test_no_helper_beside_other_threads(tmp_path: Path, parts: list[bool]) -> None:
    new_store(tmp_path, [(key_of(n), blob_of(n)) for n in range(50)])
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(1)]
    for thread in threads:
        thread.start()
    try:
        _, helped = both_ways(tmp_path)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert parts == []
    assert len(helped.rows) == 50


@pytest.mark.parametrize("at", [100, 450])
@pytest.mark.parametrize("change", ["replaced", "removed", "rowids again", "made anew"])
def test_a_helper_and_changes_meanwhile(tmp_path: Path, parts: list[bool], change: str, at: int) -> None:
    """Whichever process has read what, and whenever: what is given is what the closing instant holds."""
    path = new_store(tmp_path / "store", [(key_of(n), blob_of(n, {"v": "old"})) for n in range(500)])
    new_path = new_store(tmp_path / "new", [(key_of(1), blob_of(1, {"v": "new"}))])
    store = EmbeddedStore(str(tmp_path / "store"))
    (collection,) = store.layout().collections
    parent, done = os.getpid(), tmp_path / "done"
    wanted = dict.fromkeys(range(500), "old")

    def put(connection: sqlite3.Connection, number: int) -> None:
        row = (key_of(number), blob_of(number, {"v": "new"}))
        connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", row)

    def write() -> None:
        if change == "made anew":
            shutil.rmtree(path.parent)
            new_path.parent.rename(path.parent)
            return
        with closing(sqlite3.connect(path, timeout=300)) as connection:
            if change == "replaced":
                put(connection, 3)
                put(connection, 400)
            elif change == "removed":
                connection.execute("DELETE FROM points WHERE id IN (?, ?)", (key_of(4), key_of(401)))
            else:
                connection.execute("DELETE FROM points")
                for number in range(600, 1100):
                    put(connection, number)
            connection.commit()

    if change == "replaced":
        wanted |= {3: "new", 400: "new"}
    elif change == "removed":
        del wanted[4], wanted[401]
    else:
        wanted = {1: "new"} if change == "made anew" else dict.fromkeys(range(600, 1100), "new")

    def keep(rowid: int, point_id: PointId, payload: Any, facts: VectorFacts) -> Any:
        if os.getpid() != parent and not done.exists() and rowid == at:
            done.touch()
            write()
        return payload["v"]

    got = store.points(collection, keep, helped=True)
    assert done.exists()
    assert parts
    assert dict(got.rows) == wanted
    assert (got.duplicates, got.file.problem) == ((), None)


# --- Live ------------------------------------------------------------------------------------------


def write_until_told(path: Path, mode: str, said: int, told: int) -> None:
    """The operations below, at full speed; then how long the slowest took, and how many they were, into `said`."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=5)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("PRAGMA synchronous = OFF")
    os.write(said, b"ready\n")
    worst = 0.0
    for done, (kind, number, version) in enumerate(operations(), 1):
        waited, begun = kept_waiting(), time.perf_counter()
        if kind == "put":
            row = (key_of(number), blob_of(number, {"v": version}, dims=300))
            connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", row)
        else:
            connection.execute("DELETE FROM points WHERE id = ?", (key_of(number),))
        took = time.perf_counter() - begun
        if took > worst:
            worst = max(worst, took - (kept_waiting() - waited))
        if done % 50 == 0 and select.select([told], [], [], 0)[0]:
            break
    connection.close()
    os.write(said, f"{done} {worst}\n".encode())


START = 3000


def operations() -> Any:
    """Endless, the same in every process: (kind, id, version), one a commit. Among them the hard case: the
    newest rows deleted and the same ids put back, which gives them the same rowids."""
    rng = random.Random(11)
    version = 0
    newest: list[int] = []
    while True:
        version += 1
        draw = rng.random()
        if draw < 0.7:
            number = rng.randrange(START * 2)
            newest.append(number)
            yield "put", number, version
        elif draw < 0.85:
            yield "delete", rng.randrange(START * 2), version
        else:
            again = newest[-rng.randrange(1, 6) :]
            for number in reversed(again):
                yield "delete", number, version
            for number in again:
                version += 1
                yield "put", number, version


@pytest.mark.parametrize("helped", [False, True])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_beside_a_writer_at_full_speed_every_read_is_one_instant(
    tmp_path: Path, mode: str, helped: bool, parts: list[bool]
) -> None:
    rows = [(key_of(n), blob_of(n, {"v": 0}, dims=300)) for n in range(START)]
    path = new_store(tmp_path, rows, dims=300)
    said, saying = os.pipe()
    told, telling = os.pipe()
    writer = fork()
    if writer == 0:
        try:
            os.close(telling)
            write_until_told(path, mode, saying, told)
        except BaseException as error:
            os.write(saying, f"{error!r}\n".encode())
        finally:
            os._exit(0)
    os.close(saying)
    os.close(told)
    answers = os.fdopen(said)
    assert answers.readline() == "ready\n"
    store = EmbeddedStore(str(tmp_path))
    (collection,) = store.layout().collections
    snapshots = []
    holds = []
    within = Allowance()
    end = time.perf_counter() + 1
    try:
        while time.perf_counter() < end or len(snapshots) < 5 or snapshots[0] == snapshots[-1]:
            got = store.points(collection, lambda rowid, i, payload, facts: payload["v"], helped=helped)
            assert got.file.problem is None, got.file
            assert (got.bad, got.unsafe, got.duplicates) == ((), (), ())
            snapshots.append(dict(got.rows))
            holds.append(got.file.longest_hold_s)
    finally:
        os.close(telling)
    done, worst = answers.readline().split()
    answers.close()
    os.waitpid(writer, 0)
    assert float(worst) < within(2)
    assert max(holds) < within(1.0)
    assert all(is_a_prefix(snapshot, int(done)) for snapshot in snapshots)
    assert any(parts) == helped


def is_a_prefix(snapshot: dict[Any, int], done: int) -> bool:
    """Whether a snapshot is the state after some number of operations."""
    state = dict.fromkeys(range(START), 0)
    wrong = {number for number in range(START * 2) if state.get(number) != snapshot.get(number)}
    if not wrong:
        return True
    for (kind, number, version), _ in zip(operations(), range(done), strict=False):
        if kind == "put":
            state[number] = version
        else:
            state.pop(number, None)
        if state.get(number) == snapshot.get(number):
            wrong.discard(number)
        else:
            wrong.add(number)
        if not wrong:
            return True
    return False


def test_rows_replaced_and_removed_between_the_pages_are_not_given(tmp_path: Path) -> None:
    """Writes planted between two pages, one kind each."""
    rows = [(key_of(n), blob_of(n, {"v": "old"})) for n in range(500)]
    path = new_store(tmp_path, rows)
    store = EmbeddedStore(str(tmp_path))
    (collection,) = store.layout().collections
    seen: list[PointId] = []

    def keep(rowid: int, point_id: PointId, payload: Any, facts: VectorFacts) -> str:
        if not seen:
            connection = sqlite3.connect(path)
            connection.execute(
                "INSERT OR REPLACE INTO points VALUES (?, ?)", (key_of(3), blob_of(3, {"v": "new"}))
            )
            connection.execute("DELETE FROM points WHERE id = ?", (key_of(4),))
            connection.execute(
                "INSERT INTO points VALUES (?, ?)", (key_of(900), blob_of(900, {"v": "added"}))
            )
            connection.commit()
            connection.close()
        seen.append(point_id)
        return str(payload["v"])

    got = store.points(collection, keep)
    assert 4 in seen  # it was read, and went
    assert set(got.rows) == set(range(500)) - {4} | {900}
    assert got.rows[3] == "new"
    assert got.rows[900] == "added"
    assert got.rows[5] == "old"
    assert got.duplicates == ()


def test_a_rowid_used_again_is_noticed(tmp_path: Path) -> None:
    rows = [(key_of(n), blob_of(n, {"v": "old"})) for n in range(500)]
    path = new_store(tmp_path, rows)
    store = EmbeddedStore(str(tmp_path))
    (collection,) = store.layout().collections
    calls = []

    def keep(rowid: int, point_id: PointId, payload: Any, facts: VectorFacts) -> str:
        calls.append(rowid)
        if len(calls) == 500:
            connection = sqlite3.connect(path)
            connection.execute("DELETE FROM points WHERE rowid > 498")
            for number in (498, 777):
                connection.execute(
                    "INSERT INTO points VALUES (?, ?)", (key_of(number), blob_of(number, {"v": "new"}))
                )
            connection.commit()
            connection.close()
        return str(payload["v"])

    got = store.points(collection, keep)
    assert set(got.rows) == set(range(499)) | {777}
    assert (got.rows[498], got.rows[777], got.rows[497]) == ("new", "new", "old")


def test_a_collection_made_anew_meanwhile_is_read_anew(tmp_path: Path) -> None:
    """What mem0's reset() does: the folder goes and comes back."""
    path = new_store(tmp_path, [(key_of(n), blob_of(n, {"v": "old"})) for n in range(500)])
    store = EmbeddedStore(str(tmp_path))
    (collection,) = store.layout().collections
    other = tmp_path / "other"
    new_path = new_store(other, [(key_of(1), blob_of(1, {"v": "new"}))])
    done = []

    def keep(rowid: int, point_id: PointId, payload: Any, facts: VectorFacts) -> str:
        if not done:
            done.append(1)
            shutil.rmtree(path.parent)
            new_path.parent.rename(path.parent)
        return str(payload["v"])

    got = store.points(collection, keep)
    assert dict(got.rows) == {1: "new"}
    assert got.file.problem is None


def test_a_vacuum_meanwhile_is_read_anew(tmp_path: Path) -> None:
    path = new_store(tmp_path, [(key_of(n), blob_of(n, {"v": n})) for n in range(500)])
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM points WHERE rowid <= 100")
    connection.commit()
    store = EmbeddedStore(str(tmp_path))
    (collection,) = store.layout().collections
    calls = []

    def keep(rowid: int, point_id: PointId, payload: Any, facts: VectorFacts) -> int:
        calls.append(rowid)
        if len(calls) == 1:
            connection.execute("VACUUM")
        return rowid

    got = store.points(collection, keep)
    connection.close()
    assert dict(got.rows) == {n: n + 1 for n in range(100, 500)}
    assert len(calls) > 400


def test_hot_journal(tmp_path: Path) -> None:
    path = stored(tmp_path)
    code = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 2'); c.execute('PRAGMA cache_spill = 1'); c.execute('BEGIN')\n"
        "c.execute('UPDATE points SET point = zeroblob(9000)'); c.execute('DELETE FROM points WHERE rowid % 3')\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=300)
    assert Path(f"{path}-journal").stat().st_size > 0
    before = tree(tmp_path)
    got = read(tmp_path)
    assert tree(tmp_path) == before
    assert (got.file.hot_journal, got.file.way, got.file.problem) == (True, "scratch copy", None)
    assert {row[2]["n"] for row in got.rows.values()} == set(range(ROWS))
    assert got.bad == ()


@pytest.mark.thorough
def test_many_rows_hold_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 small rows, read while one write forces the closing scan: no read transaction near its limit."""
    storage = new_store(tmp_path, [])
    template = blob_of(uuid_of(0), {"data": "x"})
    at = template.index(uuid_of(0).encode())
    connection = sqlite3.connect(storage)
    connection.execute("PRAGMA synchronous = OFF")

    def rows() -> Any:
        for n in range(100_000):
            point_id = uuid_of(n).encode()
            yield f"k{n:070}", template[:at] + point_id + template[at + 36 :]

    connection.executemany("INSERT INTO points VALUES (?, ?)", rows())
    connection.commit()
    done = []

    def keep(rowid: int, point_id: PointId, payload: Any, facts: VectorFacts) -> None:
        if not done:
            done.append(1)
            connection.execute("DELETE FROM points WHERE rowid = 5")
            connection.commit()

    store, within = EmbeddedStore(str(tmp_path)), Allowance()
    got = store.points(store.layout().collections[0], keep)
    connection.close()
    assert len(got.rows) == 99_999
    assert got.file.longest_hold_s < within(0.5)


# --- Layout ----------------------------------------------------------------------------------------


def test_layout_of_the_real_stores() -> None:
    layout = EmbeddedStore(str(DATA / "stores" / "2.2.1-nlp" / "qdrant")).layout()
    by_name = {c.name: c for c in layout.collections}
    assert layout.exists
    assert layout.meta_problem is None
    assert set(by_name) == {"mem0", "mem0_entities"}
    assert by_name["mem0"].dims == 8
    assert by_name["mem0"].keyword_slot
    assert by_name["mem0"].has_folder
    assert by_name["mem0"].listed
    assert "vectors.on_disk" in by_name["mem0"].config_keys
    old = EmbeddedStore(str(DATA / "qdrant-stores" / "1.1.7")).layout()
    assert old.aliases == {"al": "dense_int"}
    assert {c.name for c in old.collections} >= {"a/b", "sp ace é", "named", "novec"}
    by_name = {c.name: c for c in old.collections}
    assert (by_name["named"].dims, by_name["novec"].dims, by_name["dense_int"].dims) == (None, None, 8)
    assert all(c.listed and c.has_folder and not c.legacy for c in old.collections)
    assert not by_name["dense_int"].keyword_slot
    assert "vectors.on_disk" not in by_name["dense_int"].config_keys


def test_layout_compares_meta_with_the_folders(tmp_path: Path) -> None:
    new_store(tmp_path, [], name="here")
    meta = json.loads((tmp_path / "meta.json").read_text())
    meta["collections"]["listed only"] = {"vectors": {"": {"size": 5}}, "unknown": {"x": {"y": 1}}}
    meta["collections"]["../../outside"] = {"vectors": {"size": 3}}
    meta["collections"]["/etc"] = None
    meta["collections"]["nul\0"] = {}
    meta["aliases"] = {"a": "here", "b": 5}
    meta["text_indexes"] = {}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    new_store(tmp_path / "x", [], name="folder only")
    shutil.move(
        tmp_path / "x" / "collection" / "folder only", tmp_path / "collection" / "nested" / "folder only"
    )
    legacy = tmp_path / "collection" / "legacy"
    legacy.mkdir()
    (legacy / "storage.dbm").write_bytes(b"old")
    (tmp_path / "collection" / "loop").symlink_to(tmp_path / "collection")
    layout = EmbeddedStore(str(tmp_path)).layout()
    by_name: dict[str, CollectionInfo] = {
        c.name: c for c in layout.collections if not c.name.startswith("loop")
    }
    assert {n: (c.listed, c.has_folder, c.legacy, c.dims) for n, c in by_name.items()} == {
        "here": (True, True, False, 8),
        "listed only": (True, False, False, 5),
        "../../outside": (True, False, False, 3),
        "/etc": (True, False, False, None),
        "nul\0": (True, False, False, None),
        "nested/folder only": (False, True, False, None),
        "legacy": (False, True, True, None),
    }
    assert by_name["listed only"].config_keys == (
        "vectors",
        "vectors.",
        "vectors..size",
        "unknown",
        "unknown.x",
        "unknown.x.y",
    )
    assert layout.aliases == {"a": "here"}
    assert Path(by_name["../../outside"].path) == tmp_path / "collection"
    assert EmbeddedStore(str(tmp_path)).points(by_name["listed only"], everything).file.problem is not None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "missing"),
        (b"", "not JSON: no content"),
        (b'{"collections": {"a"', "not JSON: "),
        (b"\xff\xfe\x00", "not JSON: "),
        (b"[]", "not as qdrant-client writes it"),
        (b'{"collections": []}', "not as qdrant-client writes it"),
        (b"[" * 200_000, "not JSON: nested too deep"),
        (b'{"collections": {}, "x": ' + b"9" * 10_000 + b"}", "not JSON: "),
    ],
)
def test_a_damaged_meta_is_said_and_the_folders_are_still_found(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    new_store(tmp_path, [(key_of(1), blob_of(1))])
    (tmp_path / "meta.json").unlink()
    if content is not None:
        (tmp_path / "meta.json").write_bytes(content)
    layout = EmbeddedStore(str(tmp_path)).layout()
    assert (layout.meta_problem or "").startswith(problem)
    (collection,) = layout.collections
    assert (collection.name, collection.listed, collection.has_folder) == ("mem0", False, True)
    assert set(EmbeddedStore(str(tmp_path)).points(collection, everything).rows) == {1}


def test_folders_that_cannot_be_looked_at(tmp_path: Path) -> None:
    assert EmbeddedStore(str(tmp_path / "none")).layout().exists is False
    file = tmp_path / "file"
    file.write_text("x")
    assert EmbeddedStore(str(file)).layout().problem is not None
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    problem = EmbeddedStore(str(loop)).layout().problem
    assert problem is not None
    assert problem.kind == "link-loop"
    assert EmbeddedStore("a\0b").layout().problem is not None
    empty = tmp_path / "empty"
    empty.mkdir()
    layout = EmbeddedStore(str(empty)).layout()
    assert (layout.exists, layout.collections, layout.meta_problem) == (True, (), "missing")


def test_pages_adapt_to_the_size_of_rows() -> None:
    assert sqlitefiles.PAGE_S < sqlitefiles.HOLD_S < sqlitefiles.CLOSING_S < 5
