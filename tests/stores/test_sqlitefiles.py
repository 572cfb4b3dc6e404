"""Opening live SQLite files: every journal state, every odd path, every kind of failure; never a byte changed."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.model import FileState
from mem0audit.stores import files, sqlitefiles
from mem0audit.stores.sqlitefiles import Changed, Reading, read_file
from tests.speed import Allowance

ROWS = 100


def fingerprint(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Listing, size, mtime, ctime and content of a folder.

    The ctime of `-wal` and `-shm` is left out: SQLite run by root sets their owner anew on opening them.
    """
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.is_symlink():
            stat = path.stat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            ctime = 0 if path.name.endswith(("-wal", "-shm")) else stat.st_ctime_ns
            found[path.name] = (stat.st_size, stat.st_mtime_ns, ctime, digest)
    return found


def count(reading: Reading) -> int:
    return int(reading.one("SELECT count(*) FROM points"))


def total(reading: Reading) -> int:
    return int(reading.one("SELECT sum(length(point)) FROM points"))


WRITER = """
import os, signal, sqlite3, sys, time
path, mode, end = sys.argv[1:4]
c = sqlite3.connect(path, isolation_level=None)
if mode == "wal":
    c.execute("PRAGMA journal_mode = wal")
c.execute("CREATE TABLE IF NOT EXISTS points (id TEXT PRIMARY KEY, point BLOB)")
c.execute("BEGIN")
for n in range(100):
    c.execute("INSERT INTO points VALUES (?, ?)", (str(n), b"a" * 5000))
c.execute("COMMIT")
if end == "hot":
    c.execute("PRAGMA cache_spill = 1")
    c.execute("PRAGMA cache_size = 2")
    c.execute("BEGIN")
    c.execute("UPDATE points SET point = zeroblob(6000)")
    c.execute("DELETE FROM points WHERE rowid % 2")
if end in ("kill", "hot"):
    os.kill(os.getpid(), signal.SIGKILL)
if end == "checkpointed":
    c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
if end in ("stay", "checkpointed"):
    print("ready", flush=True)
    time.sleep(600)
c.close()
"""


@contextmanager
def written(path: Path, mode: str, end: str) -> Iterator[None]:
    """A database of ROWS rows whose writer closed it, was killed, or still has it open."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), mode, end], stdout=subprocess.PIPE)
    try:
        if end in ("stay", "checkpointed"):
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        else:
            writer.wait(timeout=300)
        yield
    finally:
        writer.kill()
        writer.communicate()


CASES = [
    ("rollback", "close", [], "read-only"),
    ("rollback", "stay", [], "read-only"),
    ("rollback", "hot", ["-journal"], "scratch copy"),
    ("wal", "close", [], "immutable"),
    ("wal", "kill", ["-shm", "-wal"], "readonly-shm"),
    ("wal", "stay", ["-shm", "-wal"], "readonly-shm"),
    ("wal", "checkpointed", ["-shm", "-wal"], "readonly-shm"),
]


@pytest.mark.parametrize(("mode", "end", "beside", "way"), CASES)
def test_every_journal_state_reads_right_and_changes_nothing(
    tmp_path: Path, mode: str, end: str, beside: list[str], way: str
) -> None:
    path = tmp_path / "x.db"
    with written(path, mode, end):
        assert sorted(p.name for p in tmp_path.iterdir()) == ["x.db"] + [f"x.db{b}" for b in beside]
        before = fingerprint(tmp_path)
        state, value = read_file(str(path), lambda reading: (count(reading), total(reading)))
        assert fingerprint(tmp_path) == before
    assert value == (ROWS, ROWS * 5000)
    assert state.problem is None
    assert (state.way, state.journal_mode) == (way, mode)
    assert state.hot_journal == (end == "hot")
    assert state.integrity == ()
    assert state.free_pages == 0
    assert state.size_bytes == path.stat().st_size


def test_wal_without_shm_is_read_from_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with written(path, "wal", "kill"):
        pass
    Path(f"{path}-shm").unlink()
    before = fingerprint(tmp_path)
    state, value = read_file(str(path), count)
    assert (state.way, value, fingerprint(tmp_path)) == ("scratch copy", ROWS, before)


def test_shm_without_wal_is_read_immutable(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with written(path, "wal", "close"):
        pass
    Path(f"{path}-shm").write_bytes(b"\0" * 32768)
    before = fingerprint(tmp_path)
    state, value = read_file(str(path), count)
    assert (state.way, value, fingerprint(tmp_path)) == ("immutable", ROWS, before)


def test_a_stray_wal_is_not_opened_where_it_lies(tmp_path: Path) -> None:
    """SQLite opens a -wal whatever the header says, and makes a -shm for it, read-only or not."""
    path = good(tmp_path / "x.db")
    Path(f"{path}-wal").write_bytes(b"\x37\x7f\x06\x82" + b"\0" * 100)
    before = fingerprint(tmp_path)
    state, value = read_file(str(path), count)
    assert (state.way, value, fingerprint(tmp_path)) == ("scratch copy", ROWS, before)
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    connection.execute("SELECT count(*) FROM points").fetchone()
    connection.close()
    assert Path(f"{path}-shm").exists()


def test_a_journal_that_names_another_file_is_not_rolled_back(tmp_path: Path) -> None:
    """SQLite removes the super-journal that a hot journal names, wherever it lies."""
    path = tmp_path / "x.db"
    with written(path, "rollback", "hot"):
        pass
    victim = tmp_path / "precious"
    victim.write_text("precious")
    name = os.fsencode(victim)
    total = sum(byte if byte < 128 else byte - 256 for byte in name) & 0xFFFFFFFF
    record = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">II", len(name), total)
    with Path(f"{path}-journal").open("ab") as stream:
        stream.write(record + bytes.fromhex("d9d505f920a163d7"))
    before = fingerprint(tmp_path)
    for alone in (False, True):
        state, value = read_file(str(path), count, alone=alone)
        assert value is None
        assert state.problem is not None and "names a file outside" in state.problem.detail
        assert fingerprint(tmp_path) == before
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM points").fetchone()
    connection.close()
    assert not victim.exists()


@pytest.mark.parametrize(("mode", "end"), [("rollback", "hot"), ("wal", "kill"), ("wal", "close")])
def test_alone_touches_no_file_beside_it(tmp_path: Path, mode: str, end: str) -> None:
    """As a backup is read: not even a -shm that lies there is used."""
    path = tmp_path / "x.db"
    with written(path, mode, end):
        pass
    if end == "kill":
        Path(f"{path}-shm").write_bytes(b"\xff" * 32768)
    before = fingerprint(tmp_path)
    state, value = read_file(str(path), lambda reading: (count(reading), total(reading)), alone=True)
    assert fingerprint(tmp_path) == before
    assert value == (ROWS, ROWS * 5000)
    assert state.way == ("immutable" if end == "close" else "scratch copy")
    assert state.hot_journal == (end == "hot")


def test_the_hot_file_read_any_other_way_would_be_wrong(tmp_path: Path) -> None:
    """The fixture is worth something: ignoring the journal gives torn rows."""
    path = tmp_path / "x.db"
    with written(path, "rollback", "hot"):
        pass
    connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
    sizes = {row[0] for row in connection.execute("SELECT length(point) FROM points")}
    connection.close()
    assert sizes != {5000}


def test_no_scratch_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    path = tmp_path / "x.db"
    with written(path, "rollback", "hot"):
        pass
    modes = []

    def body(reading: Reading) -> int:
        (folder,) = scratch.iterdir()
        modes.append((folder.stat().st_mode & 0o777, {p.stat().st_mode & 0o777 for p in folder.iterdir()}))
        return count(reading)

    assert read_file(str(path), body)[1] == ROWS
    assert modes[0] == (0o700, {0o600})
    assert list(scratch.iterdir()) == []


def test_a_hot_file_that_cannot_be_copied_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    with written(path, "rollback", "hot"):
        pass

    def full(name: str) -> None:
        if name == "scratch.copy":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "step", full)
    state, value = read_file(str(path), count)
    assert value is None
    assert state.problem is not None
    assert (state.problem.kind, state.hot_journal) == ("other", True)
    assert "No space left" in state.problem.detail


@pytest.mark.parametrize(
    "name",
    [
        "sp ace",
        "per%20cent%",
        "quest?mode=rw",
        "ha#sh",
        "plus+&=;",
        "üñí",
        "'quo\"te",
        "new\nline",
        b"\xff\xfe.db",
    ],
)
def test_any_file_name_works(tmp_path: Path, name: str | bytes) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = os.path.join(os.fsencode(folder), os.fsencode(name))
    connection = sqlite3.connect(tmp_path / "plain.db")
    connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
    connection.close()
    os.rename(tmp_path / "plain.db", path)
    state, value = read_file(os.fsdecode(path), count)
    assert (value, state.problem) == (0, None)
    assert os.listdir(os.fsencode(folder)) == [os.fsencode(name)]


# --- What is no readable database ------------------------------------------------------------------


def good(path: Path, rows: int = ROWS) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
    connection.executemany("INSERT INTO points VALUES (?, ?)", [(str(n), b"a" * 5000) for n in range(rows)])
    connection.commit()
    connection.close()
    return path


def make_loop(path: Path) -> None:
    path.symlink_to(path.parent / "other")
    (path.parent / "other").symlink_to(path)


PROBLEMS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "missing": ("missing", lambda path: None),
    "dangling link": ("missing", lambda path: path.symlink_to("nowhere")),
    "folder": ("folder", lambda path: path.mkdir()),
    "empty": ("empty", lambda path: path.write_bytes(b"")),
    "text": ("not-sqlite", lambda path: path.write_text("hello " * 100)),
    "short text": ("not-sqlite", lambda path: path.write_text("hello")),
    "zeros": ("damaged", lambda path: path.write_bytes(b"\0" * 8192)),
    "magic only": ("damaged", lambda path: path.write_bytes(b"SQLite format 3\0")),
    "header only": ("damaged", lambda path: path.write_bytes(good(path).read_bytes()[:100])),
    "one page": ("damaged", lambda path: path.write_bytes(good(path).read_bytes()[:4096])),
    "garbage header": ("not-sqlite", lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)),
    "loop": ("link-loop", make_loop),
    "fifo": ("other", lambda path: os.mkfifo(path)),
    "other table": (
        "no-table",
        lambda path: sqlite3.connect(path).executescript("CREATE TABLE x (y)").close(),
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_failures_have_a_kind(tmp_path: Path, name: str) -> None:
    kind, make = PROBLEMS[name]
    path = tmp_path / "x.db"
    make(path)
    begun, within = time.perf_counter(), Allowance()
    state, value = read_file(str(path), count)
    assert value is None
    assert state.problem is not None
    assert state.problem.kind == kind, state
    assert "\n" not in state.problem.detail
    assert time.perf_counter() - begun < within(5)


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    file = good(tmp_path / "x.db")
    for path, kind in (
        (f"{file}/below", "missing"),
        (str(tmp_path / ("n" * 300)), "other"),
        ("a\0b", "other"),
        ("/dev/null", "other"),
    ):
        state, _ = read_file(path, count)
        assert state.problem is not None
        assert state.problem.kind == kind, path


@pytest.mark.root
def test_permission_denied_is_said_to_an_ordinary_user(tmp_path: Path) -> None:
    path = good(tmp_path / "x.db")
    path.chmod(0o600)
    code = (
        "import os, sys\n"
        "from mem0audit.stores.sqlitefiles import read_file\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print(read_file(sys.argv[1], lambda reading: 1)[0].problem.kind)"
    )
    for parent in (tmp_path, *tmp_path.parents[:-1]):
        if str(parent) not in ("/tmp", "/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=300)
    assert run.stdout.strip() == "permission", run.stderr


def test_a_locked_file_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlitefiles, "BUSY_S", 0.2)
    path = good(tmp_path / "x.db")
    code = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN EXCLUSIVE'); print('ready', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        state, _ = read_file(str(path), count)
        holder.kill()
    assert state.problem is not None
    assert state.problem.kind == "busy"


def test_an_endless_view_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE VIEW points AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
        "SELECT id, id AS point FROM n"
    )
    connection.close()
    begun, within = time.perf_counter(), Allowance()
    state, _ = read_file(str(path), count)
    assert time.perf_counter() - begun < within(3)
    assert state.problem is not None
    assert state.problem.kind == "busy"
    state, _ = read_file(str(path), lambda reading: sqlitefiles.read_points(reading, NoSink()))
    assert state.problem is not None
    assert state.problem.kind == "no-table"


class NoSink:
    def take(self, rows: list[Any]) -> None: ...

    def drop(self, rowids: set[int]) -> None: ...


# --- Files that change identity --------------------------------------------------------------------


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    path, other = good(tmp_path / "x.db", 3), good(tmp_path / "y.db", 5)
    runs = []

    def body(reading: Reading) -> int:
        runs.append(count(reading))
        if len(runs) == 1:
            os.replace(other, path)
        return runs[-1]

    state, value = read_file(str(path), body)
    assert (runs, value, state.problem) == ([3, 5], 5, None)
    assert state.size_bytes == path.stat().st_size


def test_a_file_replaced_again_and_again_is_gone(tmp_path: Path) -> None:
    path = good(tmp_path / "x.db", 3)
    runs = []

    def body(reading: Reading) -> int:
        runs.append(1)
        os.replace(good(tmp_path / f"y{len(runs)}.db", 1), path)
        return 1

    state, value = read_file(str(path), body)
    assert (len(runs), value) == (3, None)
    assert state.problem is not None
    assert state.problem.kind == "gone"


def test_a_file_removed_while_read_is_gone(tmp_path: Path) -> None:
    path = good(tmp_path / "x.db", 3)

    def body(reading: Reading) -> int:
        path.unlink()
        return count(reading)

    state, value = read_file(str(path), body)
    assert value is None
    assert state.problem is not None
    assert state.problem.kind in {"gone", "missing"}


def test_an_immutable_reading_notices_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with written(path, "wal", "close"):
        pass
    runs = []

    def body(reading: Reading) -> int:
        runs.append(reading.way)
        if len(runs) == 1:
            connection = sqlite3.connect(path)
            connection.execute("DELETE FROM points")
            connection.commit()
            connection.close()
        return count(reading)

    state, value = read_file(str(path), body)
    assert value == 0
    assert runs == ["immutable", "immutable"]
    assert state.problem is None


def test_changed_means_again() -> None:
    with pytest.raises(Changed):
        raise Changed


# --- Not in anybody's way --------------------------------------------------------------------------


def test_reading_takes_no_lock_from_this_process(tmp_path: Path) -> None:
    """POSIX drops a process's locks on a file when any descriptor of it is closed: an audit called inside the
    agent must not unlock the agent's own transaction."""
    path = good(tmp_path / "x.db", 3)
    mine = sqlite3.connect(path, isolation_level=None)
    mine.execute("BEGIN IMMEDIATE")
    mine.execute("INSERT INTO points VALUES ('new', x'00')")
    state, value = read_file(str(path), count)
    assert (state.problem, value) == (None, 3)
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0.1)\n"
        "try: c.execute('BEGIN IMMEDIATE'); print('got it')\n"
        "except sqlite3.OperationalError: print('locked')"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=300)
    mine.execute("COMMIT")
    mine.close()
    assert run.stdout.strip() == "locked"
    for _ in range(20):
        read_file(str(path), count)


def test_descriptors_are_not_leaked(tmp_path: Path) -> None:
    path = good(tmp_path / "x.db", 3)
    read_file(str(path), count)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        read_file(str(path), count)
    assert len(os.listdir("/proc/self/fd")) == before


def test_integrity_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = good(tmp_path / "x.db")
    monkeypatch.setattr(sqlitefiles, "_PROGRESS_STEPS", 10)
    monkeypatch.setattr(sqlitefiles, "INTEGRITY_S", 0.0)
    assert read_file(str(path), count)[0].integrity is None
    monkeypatch.setattr(sqlitefiles, "INTEGRITY_S", 5.0)
    assert read_file(str(path), count)[0].integrity == ()
    monkeypatch.setattr(sqlitefiles, "INTEGRITY_BYTES", 1000)
    assert read_file(str(path), count)[0].integrity is None


def test_integrity_and_free_pages_are_said(tmp_path: Path) -> None:
    path = good(tmp_path / "x.db")
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM points WHERE rowid > 20")
    connection.commit()
    connection.close()
    state, _ = read_file(str(path), count)
    assert state.free_pages is not None
    assert state.free_pages > 50
    assert state.integrity == ()
    damaged = sqlite3.connect(path)
    damaged.execute("UPDATE points SET point = NULL WHERE rowid = 1")
    damaged.execute("PRAGMA writable_schema = 1")
    sql = "CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB NOT NULL)"
    damaged.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'points'", (sql,))
    damaged.commit()
    damaged.close()
    state, _ = read_file(str(path), count)
    assert state.integrity


def test_the_state_says_the_longest_hold(tmp_path: Path) -> None:
    path = good(tmp_path / "x.db")

    def body(reading: Reading) -> int:
        with reading.transaction():
            time.sleep(0.05)
            return count(reading)

    within = Allowance()
    state, _ = read_file(str(path), body)
    assert 0.05 <= state.longest_hold_s < within(1)
    assert isinstance(state, FileState)


def test_signals_leave_no_scratch(tmp_path: Path) -> None:
    """Control-C while reading a copy: the copy of private data goes."""
    path = tmp_path / "x.db"
    with written(path, "rollback", "hot"):
        pass
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = (
        "import sys, time\n"
        "from mem0audit.stores.sqlitefiles import read_file\n"
        "def body(reading):\n"
        "    print('reading', flush=True)\n"
        "    time.sleep(600)\n"
        "read_file(sys.argv[1], body)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        assert len(list(scratch.iterdir())) == 1
        reader.send_signal(signal.SIGINT)
        reader.wait(timeout=300)
    assert list(scratch.iterdir()) == []


def test_a_table_that_is_just_being_made_anew_is_found(tmp_path: Path) -> None:
    """mem0's reset() drops the table and creates it again, a commit each."""
    path = good(tmp_path / "x.db", 3)
    runs = []

    def body(reading: Reading) -> int:
        runs.append(1)
        if len(runs) == 1:
            connection = sqlite3.connect(path)
            connection.execute("ALTER TABLE points RENAME TO gone")
            connection.close()
            try:
                return count(reading)
            finally:
                connection = sqlite3.connect(path)
                connection.execute("ALTER TABLE gone RENAME TO points")
                connection.close()
        return count(reading)

    state, value = read_file(str(path), body)
    assert (value, state.problem, len(runs)) == (3, None, 2)


def test_waiting_for_a_writer_is_not_holding(tmp_path: Path) -> None:
    path = good(tmp_path / "x.db", 3)
    code = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN EXCLUSIVE'); print('ready', flush=True); time.sleep(1)\n"
        "c.execute('COMMIT')"
    )

    def body(reading: Reading) -> int:
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            rows, whole = reading.page("SELECT rowid FROM points ORDER BY rowid")
            assert whole
        return len(rows)

    within = Allowance()
    state, value = read_file(str(path), body)
    assert value == 3
    assert state.longest_hold_s < within(0.3)
