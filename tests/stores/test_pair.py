"""The pair: one instant of both stores, whatever the agent is doing."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from mem0audit.stores import files, pair
from mem0audit.stores.pair import CannotTake, Pair, Source, hold_bound, take_pair
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store
from tests.speed import Allowance

Rows = list[tuple[Any, ...]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryBuilder]:
    """A store that mem0 wrote a moment ago and let go: 6 memories, and one entity of two of them."""
    agent = MemoryBuilder(tmp_path / "install")
    ids = [agent.add(f"fact {i}", user_id="alice") for i in range(6)]
    agent.plant_entity("Quito", ids[:2], user_id="alice")
    agent.ids = ids  # type: ignore[attr-defined]
    agent.close()
    yield agent
    agent.close()


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def sources(store: Any) -> list[Source]:
    collection = Path(store.vectors) / "collection"
    return [
        Source("history", str(store.history), "history"),
        Source("entities", str(collection / "mem0_entities" / "storage.sqlite"), "mem0_entities", 8, "mem0"),
        Source("memories", str(collection / "mem0" / "storage.sqlite"), "mem0", 8),
    ]


def rows_of(path: str | Path, table: str) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def taken(store: Any, raw: Path, **options: Any) -> Pair:
    return take_pair(sources(store), str(Path(store.vectors) / "meta.json"), raw, **options)


def to_wal(*paths: Path | str) -> None:
    for path in paths:
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode = wal").fetchone() == ("wal",)


def as_it_is(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Every byte and time of a tree but access times, and the size of a register of readers."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        data = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode, data)
    return found


def test_every_row_of_every_file_and_nothing_changed(store: MemoryBuilder, raw: Path) -> None:
    before = as_it_is(store.folder)
    got = taken(store, raw)
    assert as_it_is(store.folder) == before
    assert got.unsettled_why is None
    assert got.tries == 1
    assert got.meta == (store.vectors / "meta.json").read_bytes()
    assert [f.source.role for f in got.files] == ["memories", "history", "entities"]
    for copied in got.files:
        table = "history" if copied.source.role == "history" else "points"
        assert copied.journal_mode == "rollback"
        assert copied.way in ("reflink", "copy_file_range", "read and write")
        assert copied.raw.stat().st_mode & 0o777 == 0o600
        assert rows_of(copied.raw, table) == rows_of(copied.source.path, table) != []


@pytest.mark.parametrize("held", [False, True])
def test_wal_files(store: MemoryBuilder, raw: Path, held: bool) -> None:
    """`held`: a living connection has rows in the -wal that the file itself lacks."""
    paths = [source.path for source in sources(store)]
    to_wal(*paths)
    before = None if held else as_it_is(store.folder)
    connection = sqlite3.connect(paths[0], isolation_level=None)
    try:
        if held:
            connection.execute("UPDATE history SET actor_id = 'only in the wal'")
            assert Path(paths[0] + "-wal").stat().st_size > 0
        else:
            connection.close()
        got = taken(store, raw)
    finally:
        connection.close()
    assert {f.journal_mode for f in got.files} == {"wal"}
    assert {f.way for f in got.files} == {"backup"}
    (log,) = (f for f in got.files if f.source.role == "history")
    rows = rows_of(log.raw, "history")
    assert len(rows) == 6
    assert ("only in the wal" in rows[0]) is held
    if before is not None:
        assert as_it_is(store.folder) == before


def test_the_locks_are_held_while_the_pages_are_copied(
    store: MemoryBuilder, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor of ours that is closed too early would drop them without a word (POSIX)."""
    try_it = (
        "import sqlite3, sys\n"
        "for path in sys.argv[1:]:\n"
        "    c = sqlite3.connect(path, timeout=0, isolation_level=None)\n"
        "    try:\n"
        "        c.execute('BEGIN EXCLUSIVE')\n"
        "        print('free')\n"
        "    except sqlite3.OperationalError as e:\n"
        "        print(e)\n"
        "    c.close()\n"
    )
    paths = [source.path for source in sources(store)]
    said: list[str] = []

    def at(name: str) -> None:
        if name == "snapshot.copy":
            ran = subprocess.run([sys.executable, "-c", try_it, *paths], capture_output=True, text=True)
            said.extend(ran.stdout.splitlines())

    monkeypatch.setattr(files, "step", at)
    monkeypatch.setattr(pair, "hold_bound", lambda size: 30.0)
    taken(store, raw)
    assert said == ["database is locked"] * 9
    said.clear()
    at("snapshot.copy")
    assert said == ["free"] * 3


def test_the_agent_in_the_same_process_keeps_its_own_locks(store: MemoryBuilder, raw: Path) -> None:
    """A library call inside the agent: its open transaction is still protected afterwards."""
    path = sources(store)[0].path
    with closing(sqlite3.connect(path, isolation_level=None)) as own:
        own.execute("BEGIN")
        own.execute("SELECT count(*) FROM history").fetchone()
        taken(store, raw)
        code = (
            "import sqlite3, sys\n"
            "c = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
            "try:\n    c.execute('BEGIN EXCLUSIVE'); print('free')\n"
            "except sqlite3.OperationalError as e: print(e)\n"
            "c.close()"
        )
        ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
        assert ran.stdout.strip() == "database is locked"
        own.execute("COMMIT")


# --- writes in flight ------------------------------------------------------------------------------


def cut_last_row(store: MemoryBuilder) -> Any:
    log = RawHistory(store.history)
    row = log.rows()[-1]
    log.run("delete from history where rowid = ?", row["rowid"])
    return row


def put_back(store: MemoryBuilder, row: Any) -> None:
    RawHistory(store.history).add(
        row["memory_id"],
        row["old_memory"],
        row["new_memory"],
        row["event"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def test_an_add_in_flight_is_waited_for(store: MemoryBuilder, raw: Path) -> None:
    row = cut_last_row(store)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            put_back(store, row)

    got = taken(store, raw, pause=pause)
    assert got.unsettled_why is None
    assert got.tries == 3
    (log,) = (f for f in got.files if f.source.role == "history")
    assert len(rows_of(log.raw, "history")) == 6


def test_what_never_lands_is_taken_and_said(
    store: MemoryBuilder, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_last_row(store)
    monkeypatch.setattr(pair, "TRIES", 4)
    got = taken(store, raw, pause=lambda seconds: None)
    assert got.unsettled_why == "a memory is stored and not logged yet"
    assert got.tries == 4


def test_an_old_fault_is_no_write_in_flight(store: MemoryBuilder, raw: Path) -> None:
    cut_last_row(store)
    got = taken(store, raw, now=lambda: time.time() + 60)
    assert got.unsettled_why is None
    assert got.tries == 1


def edited(store: MemoryBuilder) -> str:
    RawPoints(store.vectors).edit(store.ids[5], lambda p: p.update(data="in flight"))  # type: ignore[attr-defined]
    return "a memory is changed and its change not logged yet"


def deleted_and_stored(store: MemoryBuilder) -> str:
    now = datetime.now(timezone.utc).isoformat()
    RawHistory(store.history).add(
        store.ids[0],  # type: ignore[attr-defined]
        "fact 0",
        None,
        "DELETE",
        created_at=now,
        updated_at=now,
    )
    return "a memory is logged as deleted and still stored"


def linked_and_deleted(store: MemoryBuilder) -> str:
    deleted_and_stored(store)
    RawPoints(store.vectors).remove(store.ids[0])  # type: ignore[attr-defined]
    return "an entity still links a memory deleted a moment ago"


@pytest.mark.parametrize("plant", [edited, deleted_and_stored, linked_and_deleted])
def test_other_writes_in_flight(
    store: MemoryBuilder, raw: Path, plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair, "TRIES", 2)
    why = plant(store)
    assert taken(store, raw, pause=lambda seconds: None).unsettled_why == why


def test_an_agent_that_cleans_no_entities_is_not_waited_for(store: MemoryBuilder, raw: Path) -> None:
    """Links to memories deleted 30 s ago still dangle: what dangles now is no write in flight either."""
    linked_and_deleted(store)
    got = taken(store, raw, now=lambda: time.time() + 30)
    assert (got.unsettled_why, got.tries) == (None, 1)


def test_rows_of_another_store_in_the_same_log(store: MemoryBuilder, raw: Path) -> None:
    """Several programs share one log: their newest memories are nowhere here, and that is no write in flight."""
    now = datetime.now(timezone.utc).isoformat()
    RawHistory(store.history).add("elsewhere", None, "x", "ADD", created_at=now, updated_at=now)
    got = taken(store, raw, pause=lambda seconds: None)
    assert got.unsettled_why is None
    assert got.tries == pair.LONE_ROWS + 1


def test_wal_a_deletion_that_the_log_says_only_next(store: MemoryBuilder, raw: Path) -> None:
    """The memory is gone and its row comes 10 ms after both instants: nothing in the pair itself shows it."""
    to_wal(*(source.path for source in sources(store)))
    RawPoints(store.vectors).remove(store.ids[1])  # type: ignore[attr-defined]
    writer = sqlite3.connect(store.history, isolation_level=None, check_same_thread=False)
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("UPDATE history SET role = role")  # so that -wal and -shm are there
    slept: list[float] = []
    real = time.sleep

    def sleep(seconds: float) -> None:
        if seconds == pair.AHEAD_S and not slept:
            now = datetime.now(timezone.utc).isoformat()
            writer.execute(
                "INSERT INTO history (id, memory_id, old_memory, event, created_at, updated_at, is_deleted) "
                "VALUES ('r', ?, 'fact 1', 'DELETE', ?, ?, 1)",
                (store.ids[1], now, now),  # type: ignore[attr-defined]
            )
        slept.append(seconds)
        real(seconds)

    later = time.time() + 30  # the additions are old: only the look ahead can say it
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair.time, "sleep", sleep)
        try:
            got = taken(store, raw, now=lambda: later)
        finally:
            writer.close()
    assert got.tries == 2
    assert got.unsettled_why is None
    (log,) = (f for f in got.files if f.source.role == "history")
    assert len(rows_of(log.raw, "history")) == 7


# --- what cannot be taken ----------------------------------------------------------------------------


def test_a_hot_journal_is_refused(store: MemoryBuilder, raw: Path) -> None:
    path = sources(store)[2].path
    code = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 1'); c.execute('PRAGMA cache_spill = 1'); c.execute('BEGIN')\n"
        "c.execute('CREATE TABLE filler (x)')\n"
        "c.executemany('INSERT INTO filler VALUES (?)', [(b'x' * 4000,) for _ in range(400)])\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=False)
    assert Path(path + "-journal").stat().st_size > 0
    before = as_it_is(store.folder)
    with pytest.raises(CannotTake) as problem:
        taken(store, raw)
    assert problem.value.kind == "hot"
    assert problem.value.path == path
    assert as_it_is(store.folder) == before


def test_a_damaged_header_is_named(store: MemoryBuilder, raw: Path) -> None:
    path = Path(sources(store)[1].path)
    path.write_bytes(b"\0" * 8192)
    with pytest.raises(CannotTake) as problem:
        taken(store, raw)
    assert (problem.value.path, problem.value.kind) == (str(path), "damaged")


def test_a_slow_copy_lets_the_agent_go(
    store: MemoryBuilder, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is too slow: given up three times, each time within the bound and a chunk, and said."""
    monkeypatch.setattr(pair, "hold_bound", lambda size: 0.1)
    monkeypatch.setattr(files, "step", lambda name: time.sleep(0.15) if name == "snapshot.copy" else None)
    monkeypatch.setattr(files, "_FICLONE", 0)
    started, within = time.monotonic(), Allowance()
    with pytest.raises(CannotTake, match=r"within 0\.1 s"):
        taken(store, raw)
    assert time.monotonic() - started < within(5)


@pytest.mark.parametrize(
    ("size", "bound"), [(0, 0.5), (10**6, 0.5), (10**9, 1.0), (1_600_000_000, 1.6), (10**10, 2.0)]
)
def test_how_long_the_agent_may_wait(size: int, bound: float) -> None:
    assert hold_bound(size) == bound


@pytest.mark.parametrize("cloning", [True, False])
def test_pages_are_read_and_written_where_the_filesystem_copies_nothing(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch, cloning: bool
) -> None:
    """As between a tmpfs and a disk; and short writes are gone on with."""
    store = copy_store("2.2.1-nlp", tmp_path)
    if not cloning:

        def refuse(*_args: Any) -> int:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "copy_file_range", refuse)
    real = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, at: real(fd, bytes(data[: max(1, len(data) // 3)]), at)
    )
    got = taken(store, raw)
    assert cloning or {f.way for f in got.files} == {"read and write"}
    for copied in got.files:
        assert copied.raw.read_bytes() == Path(copied.source.path).read_bytes()


def test_a_large_file_is_copied_ahead_and_set_right_under_the_lock(
    store: MemoryBuilder, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changes between the copy ahead and the lock is in the pair: a row more, pages less, a row changed."""
    monkeypatch.setattr(pair, "AHEAD_BYTES", 1)
    monkeypatch.setattr(files, "_COMPARE_CHUNK", 4096)
    with closing(sqlite3.connect(store.history, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE filler (x)")
        connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 3000,)] * 200)
    still = pair._Taking.settle
    sizes: list[tuple[int, int]] = []

    def changed_meanwhile(taking: Any, *args: Any) -> Any:
        ahead = raw / "1.db"
        if len(sizes) < 2:  # once grown, once shrunk
            with closing(sqlite3.connect(store.history, isolation_level=None)) as connection:
                if not sizes:
                    connection.executemany("INSERT INTO filler VALUES (?)", [("y" * 3000,)] * 100)
                else:
                    connection.execute("DELETE FROM filler")
                    connection.execute("VACUUM")
                connection.execute("UPDATE history SET role = 'changed' WHERE rowid = ?", (len(sizes) + 1,))
            sizes.append((ahead.stat().st_size, Path(store.history).stat().st_size))
            if len(sizes) == 1:
                still(taking, *args)
                taking.copy(30.0)
                assert ahead.read_bytes() == Path(store.history).read_bytes()
                raise pair.Changed
        return still(taking, *args)

    monkeypatch.setattr(pair._Taking, "settle", changed_meanwhile)
    got = taken(store, raw)
    assert sizes[0][0] < sizes[0][1]
    assert sizes[1][0] > sizes[1][1]
    for copied in got.files:
        assert copied.raw.read_bytes() == Path(copied.source.path).read_bytes()
    assert got.tries == 2


@pytest.mark.parametrize("step", [1, 2, 3, 4])
@pytest.mark.parametrize("back", [False, True])
def test_stores_exchanged_meanwhile_give_one_or_the_other(
    tmp_path: Path, store: MemoryBuilder, raw: Path, monkeypatch: pytest.MonkeyPatch, step: int, back: bool
) -> None:
    """As a restore in place does, between any two files that are opened: never the log of one beside the points of
    the other. `back`: and taken back before the pages are copied."""
    other = tmp_path / "other"
    shutil.copytree(store.folder, other)
    prefix = len(str(store.folder))
    paths = [Path(source.path) for source in sources(store)]
    with closing(sqlite3.connect(f"{other}{str(paths[0])[prefix:]}")) as log:
        log.execute("UPDATE history SET actor_id = 'other'")
        log.commit()
    for path in paths[1:]:
        with closing(sqlite3.connect(f"{other}{str(path)[prefix:]}")) as points:
            points.execute("UPDATE points SET rowid = rowid + 100")
            points.commit()

    def contents() -> list[Rows]:
        tables = ["history", "points", "points"]
        return [
            rows_of(path, "history") if table == "history" else rowids_of(path)
            for path, table in zip(paths, tables, strict=True)
        ]

    def rowids_of(path: Path | str) -> Rows:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT rowid FROM points ORDER BY rowid").fetchall()

    def exchange() -> None:
        for path in paths:
            there, spare = Path(f"{other}{str(path)[prefix:]}"), path.with_name("spare")
            path.rename(spare)
            there.rename(path)
            spare.rename(there)

    opened = 0
    held = pair._open

    def noted(source: Source, stack: Any) -> Any:
        nonlocal opened
        opened += 1
        if opened == step:
            exchange()
        if back and opened == step + 1:
            exchange()
        return held(source, stack)

    one = contents()
    exchange()
    two = contents()
    exchange()
    assert all(a != b for a, b in zip(one, two, strict=True))
    monkeypatch.setattr(pair, "_open", noted)
    got = taken(store, raw)
    found = {
        f.source.role: rows_of(f.raw, "history") if f.source.role == "history" else rowids_of(f.raw)
        for f in got.files
    }
    assert [found["history"], found["entities"], found["memories"]] in (one, two)


def test_a_file_exchanged_between_its_lock_and_its_copy(
    store: MemoryBuilder, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's lock would be on one file, and the pages be of another that anybody may write."""
    path = Path(sources(store)[0].path)
    new = path.with_name("new.db")
    shutil.copy(path, new)
    with closing(sqlite3.connect(new)) as log:
        log.execute("UPDATE history SET actor_id = 'new'")
        log.commit()
    real = files.open_source
    done = []

    def exchanged(source: str) -> int:
        if source == str(path) and Path(source).exists() and len(done) < 2:
            done.append(source)
            if len(done) == 2:  # the first reads it once, ahead
                new.rename(path)
        return real(source)

    monkeypatch.setattr(files, "open_source", exchanged)
    got = taken(store, raw)
    assert len(done) == 2 and got.tries == 2
    (log_copy,) = (f.raw for f in got.files if f.source.role == "history")
    assert all("new" in row for row in rows_of(log_copy, "history"))
