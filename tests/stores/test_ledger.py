"""The ledger's file: private, whole after a kill at any step of a migration, shared by runs at once, never text."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import make_erasure
from mem0audit.core.seal import NO_SEAL, LastSeal, State
from mem0audit.stores import ledger as store
from mem0audit.stores.ledger import (
    STEPS,
    CannotUse,
    Identity,
    Ledger,
    connect,
    find,
    migrate,
    new_path,
    opened,
)

ROOT = Path(__file__).parents[2]
HERE = Identity("/srv/a/history.db", "/srv/a/qdrant", "row-1")
SALT = "00112233445566778899aabbccddeeff"


@contextlib.contextmanager
def ledger(folder: Path, identity: Identity = HERE) -> Iterator[Ledger]:
    path = find(folder, identity, lambda _: True) or new_path(folder, identity)
    with opened(path, identity, make=True) as book:
        yield book


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.sqlite")
    return path


def schema(path: Path) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()


# --- the file ----------------------------------------------------------------------------------------


def test_it_is_private_in_write_ahead_mode_and_holds_its_keys(tmp_path: Path) -> None:
    folder = tmp_path / "state/mem0audit"
    old = os.umask(0)
    try:
        with ledger(folder) as book:
            book.note_folder("/srv/backup", 1.0)
            for path in folder.iterdir():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
            for place in (folder, folder.parent):
                assert stat.S_IMODE(place.stat().st_mode) == 0o700
    finally:
        os.umask(old)
    with contextlib.closing(sqlite3.connect(only_file(folder))) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA user_version").fetchone() == (len(STEPS),)


@pytest.mark.parametrize("write", [True, False])
def test_foreign_keys_hold_on_every_connection(tmp_path: Path, write: bool) -> None:
    with ledger(tmp_path):
        pass
    with contextlib.closing(connect(only_file(tmp_path), write=write)) as db:
        assert db.execute("PRAGMA foreign_keys").fetchone() == (1,)
    with contextlib.closing(connect(only_file(tmp_path))) as db:
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            db.execute("INSERT INTO owners VALUES ('m', 99, 1.0)")
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            db.execute("INSERT INTO erased_ids VALUES ('salt', 'digest')")
    with ledger(tmp_path) as book:
        assert book.all("PRAGMA foreign_keys") == [(1,)]


def test_a_newer_schema_is_refused_in_one_line(tmp_path: Path) -> None:
    with ledger(tmp_path):
        pass
    with contextlib.closing(sqlite3.connect(only_file(tmp_path))) as db:
        db.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    with pytest.raises(CannotUse) as problem, ledger(tmp_path):
        pass
    assert "newer mem0audit" in problem.value.why
    assert "\n" not in problem.value.why
    assert problem.value.damaged


@pytest.mark.parametrize("version", range(len(STEPS)))
def test_an_older_schema_is_brought_up_and_keeps_what_it_has(tmp_path: Path, version: int) -> None:
    with ledger(tmp_path / "new"):
        pass
    (tmp_path / "old").mkdir()
    path = new_path(tmp_path / "old", HERE)
    path.touch()
    with contextlib.closing(connect(path)) as db:
        migrate(db, STEPS[:version])
        if version:
            db.execute("INSERT INTO folders VALUES ('/srv/backup', 1.0)")
    with ledger(tmp_path / "old") as book:
        assert book.folders() == (("/srv/backup",) if version else ())
    assert schema(path) == schema(only_file(tmp_path / "new"))


KILLED = """
import os, signal, sys
from pathlib import Path
from mem0audit.stores import ledger
class Counting:
    def __init__(self, real, left):
        self.real, self.left = real, left
    in_transaction = property(lambda self: self.real.in_transaction)
    def execute(self, sql):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.real.execute(sql)
path = Path(sys.argv[1])
path.touch()
ledger.migrate(Counting(ledger.connect(path), int(sys.argv[2])))
"""


@pytest.mark.thorough
def test_a_kill_at_each_step_of_a_migration(tmp_path: Path) -> None:
    """Before every single statement: the next run makes it whole."""
    with ledger(tmp_path / "whole"):
        pass
    wanted = schema(only_file(tmp_path / "whole"))
    statements = sum(map(len, STEPS))
    killed = 0
    for number in range(1, 200):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = new_path(folder, HERE)
        words = [sys.executable, "-c", KILLED, str(path), str(number)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=300, check=False)
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
        killed += 1
        with ledger(folder) as book:
            book.note_folder("/srv/backup", 1.0)
        assert schema(path) == wanted, number
    assert killed > statements


@pytest.mark.parametrize("how", ["no database", "a page", "emptied", "cut short"])
def test_a_damaged_file_is_said(tmp_path: Path, how: str) -> None:
    with ledger(tmp_path) as book:
        book.note_owners({f"m{n}": (f"user {n}", None, None) for n in range(2_000)}, 1.0)
    path = only_file(tmp_path)
    data = bytearray(path.read_bytes())
    if how == "no database":
        data[:] = b"no database at all" * 1000
    elif how == "a page":
        data[4096:] = random.Random(1).randbytes(len(data) - 4096)
    elif how == "cut short":
        del data[5000:]
    else:
        data.clear()
    path.write_bytes(data)
    if how == "emptied":
        with ledger(tmp_path) as book:  # as if there had been none
            assert book.owners() == {}
        return
    with pytest.raises(CannotUse) as problem, ledger(tmp_path) as book:
        book.owners()
    assert problem.value.damaged
    assert "\n" not in problem.value.why


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/usr/bin/setpriv").exists(), reason="becomes nobody")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotUse) as problem, ledger(tmp_path / "file" / "below"):
        pass
    assert "\n" not in problem.value.why


MANY = """
import sys
from pathlib import Path
from tests.stores.test_ledger import ledger
for number in range(20):
    with ledger(Path(sys.argv[1])) as book:
        book.note_owners({f"{sys.argv[2]}-{number}-{n}": ("alice", sys.argv[2], None) for n in range(50)}, 1.0)
        book.note_folder(f"/srv/{sys.argv[2]}", 1.0)
"""


def test_runs_at_once_share_it(tmp_path: Path) -> None:
    """The first of them make it at the same moment."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", MANY, str(tmp_path), str(n)], cwd=ROOT, stderr=subprocess.PIPE
        )
        for n in range(4)
    ]
    for run in runs:
        assert run.communicate(timeout=300)[1] == b""
    assert [p.name for p in tmp_path.glob("*.sqlite")] == [only_file(tmp_path).name]
    with ledger(tmp_path) as book:
        assert len(book.owners()) == 4 * 20 * 50
        assert set(book.folders()) == {f"/srv/{n}" for n in range(4)}


def test_a_run_that_waits_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUSY_S", 0.1)
    with ledger(tmp_path) as book, contextlib.closing(connect(book.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CannotUse, match="another mem0audit"):
            book.note_folder("/srv/backup", 1.0)
        assert book.folders() == ()
        other.execute("ROLLBACK")
        book.note_folder("/srv/backup", 1.0)


# --- which install -------------------------------------------------------------------------------------


def moved(_: Identity) -> bool:
    return False


def stayed(_: Identity) -> bool:
    return True


def test_which_ledger_is_an_installs(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        mine = book.path
    other_paths = Identity("/srv/b/history.db", "/srv/b/qdrant", "row-1")
    assert find(tmp_path, HERE, stayed) == mine
    # the log was reset, emptied or not looked at: the paths tell
    assert find(tmp_path, Identity(HERE.history, HERE.vectors, "row-9"), stayed) == mine
    assert find(tmp_path, Identity(HERE.history, HERE.vectors, None), stayed) == mine
    # a copy of an install that is where it was is another one; where it is not, it was moved
    assert find(tmp_path, other_paths, stayed) is None
    assert find(tmp_path, other_paths, moved) == mine
    # another program with the same log and other vectors is another install
    assert find(tmp_path, Identity(HERE.history, "/srv/c/qdrant", "row-1"), stayed) is None
    assert find(tmp_path, Identity("/x", "/y", None), moved) is None
    assert find(tmp_path / "nowhere", HERE, stayed) is None


def test_a_moved_install_keeps_its_ledger_and_its_old_place_gets_a_new_one(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        book.note_folder("/srv/backup", 1.0)
        mine, key = book.path, book.key
    there = Identity("/srv/b/history.db", "/srv/b/qdrant", "row-1")
    with opened(mine, there) as book:
        assert book.key == key
        assert book.folders() == ("/srv/backup",)
    assert find(tmp_path, there, stayed) == mine
    newcomer = Identity(HERE.history, HERE.vectors, "row-7")
    assert find(tmp_path, newcomer, stayed) is None
    with ledger(tmp_path, newcomer) as book:
        assert book.path != mine
        assert book.folders() == ()
    assert find(tmp_path, there, stayed) == mine


def test_an_empty_log_gets_its_first_row_later(tmp_path: Path) -> None:
    with ledger(tmp_path, Identity(HERE.history, HERE.vectors, None)) as book:
        mine = book.path
    with ledger(tmp_path) as book:
        assert book.path == mine
    with ledger(tmp_path, Identity(HERE.history, HERE.vectors, None)):
        pass
    assert find(tmp_path, Identity("/moved", "/there", "row-1"), moved) == mine


# --- what is in it -----------------------------------------------------------------------------------


def test_owners_as_last_seen(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "plain": ("alice", None, None),
        "number": (7, True, 1.5),
        "list": (["alice", "bob"], None, None),
        "long": ("x" * 5_000_000, None, None),
        "huge": (1 << 20_000, None, None),
        "surrogate": ("\ud800", None, "\0"),
        "same": ("alice", None, None),
    }
    with ledger(tmp_path) as book:
        assert book.note_owners(odd, 1.0) == 7
        assert book.note_owners(odd, 2.0) == 0
        assert book.note_owners({**odd, "plain": ("bob", None, None), "more": (None, None, None)}, 3.0) == 2
        found = book.owners()
    assert found["plain"] == ("bob", None, None)
    assert found["number"] == (7, True, 1.5)
    assert found["surrogate"] == ("\ud800", None, "\0")
    assert found["more"] == (None, None, None)
    assert len(found) == 8
    assert only_file(tmp_path).stat().st_size < 500_000


def test_what_is_gone_keeps_its_owner(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        book.note_owners({"a": ("alice", None, None), "b": ("bob", None, None)}, 1.0)
        book.note_owners({"b": ("bob", None, None)}, 2.0)
        assert book.owners() == {"a": ("alice", None, None), "b": ("bob", None, None)}


def test_erasures_come_back(tmp_path: Path) -> None:
    erasures = (
        make_erasure(1.5, SALT, ("alice", None, None), ["a", "b"]),
        make_erasure(2.0, SALT[::-1], None, ["c"]),
    )
    with ledger(tmp_path) as book:
        for one in (*erasures, erasures[0]):
            book.add_erasure(one)
        assert book.erasures() == erasures


def state(rows: int, memories: dict[str, bytes]) -> State:
    return State(bytes(range(16)) * rows, memories, "10 columns", "2.2.1", f"row-{rows}")


def test_seals_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CHUNK_ROWS", 3)
    some = {f"m{n}": bytes([n]) * 30 for n in range(10)}
    states = [
        state(0, {}),
        state(7, some),
        state(8, {**some, "m1": b"x" * 30, "m99": b"y" * 30}),
        state(2, {k: v for k, v in some.items() if k != "m3"}),
    ]
    last = None
    for number, wanted in enumerate(states, 1):
        with ledger(tmp_path) as book:
            assert (book.last_seal() == NO_SEAL) is (number == 1)
            last = book.add_seal(
                wanted, number * 1.5, "seal", after=last, accepted=("D310 x\ud800",), reason="why\ud800"
            )
            found = book.last_seal()
        assert isinstance(found, LastSeal)
        assert found.seal == last
        assert found.state == wanted


def test_two_runs_that_seal_at_once(tmp_path: Path) -> None:
    with ledger(tmp_path) as one, ledger(tmp_path) as other:
        first = one.add_seal(state(1, {}), 1.0, "seal", after=None)
        with pytest.raises(CannotUse, match="sealed by another mem0audit meanwhile"):
            other.add_seal(state(2, {}), 1.0, "seal", after=None)
        other.add_seal(state(2, {}), 2.0, "seal", after=first)
        with pytest.raises(CannotUse, match="sealed by another mem0audit meanwhile"):
            one.add_seal(state(3, {}), 3.0, "seal", after=first)
        assert [s.number for s in one.seals()] == [1, 2]


def test_no_space_is_left(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        book._connection.execute("PRAGMA max_page_count = 20")
        with pytest.raises(CannotUse, match="no space"):
            book.note_owners({f"m{n}": ("alice", None, None) for n in range(50_000)}, 1.0)
        assert book.owners() == {}
