"""Looking changes nothing: every reading command, in a process of its own, leaves every file of the install as it was.

Compared are bytes, size, mtime, ctime, inode, mode, owner, links and the listing itself. The one exception is the
readers' register of a living WAL writer (`-shm`), in which a read mark may move.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import STORES, MemoryBuilder, copy_store
from tests.cli.program import Forks, Ran, run
from tests.speed import slowness

ROOT = Path(__file__).parents[2]
ORDINARY = (
    *("setpriv", "--reuid=65534", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
    *("--bounding-set=-dac_override", "--"),
)
"""Nobody, who may read everything: SQLite run by root gives `-wal` and `-shm` to the owner that they have, which
moves their ctime; run by anyone else it does not."""

LEDGER = r"\.local/state/mem0audit/[0-9a-f]{16}\.sqlite(-wal|-shm)?"

Mark = tuple[int, ...]


def tree(folder: Path) -> dict[str, tuple[Mark, str]]:
    """Everything below a folder, and the folder: what a change would change."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            path = os.path.join(where, name)
            seen = os.lstat(path)
            mark = (
                *(seen.st_mode, seen.st_ino, seen.st_dev, seen.st_nlink, seen.st_uid, seen.st_gid),
                *(seen.st_size if not stat.S_ISDIR(seen.st_mode) else 0, seen.st_mtime_ns, seen.st_ctime_ns),
            )
            digest = ""
            if stat.S_ISREG(seen.st_mode):
                # no buffered open of ours may take a lock away: these files are another process's
                digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            found[os.path.relpath(path, folder)] = (mark, digest)
    return found


def without_register(seen: dict[str, tuple[Mark, str]]) -> dict[str, tuple[Mark, str]]:
    """The same without bytes and times of a `-shm`; and without the ctime of a `-wal`, which the audit of another
    test moves, when it runs as root beside this one and looks for its memories in every store that is held."""
    return {
        name: ((*mark[:-2], 0, 0), "")
        if name.endswith("-shm")
        else ((*mark[:-1], 0), digest)
        if name.endswith("-wal")
        else (mark, digest)
        for name, (mark, digest) in seen.items()
    }


class Install:
    """One install, and where nothing may appear beside it."""

    def __init__(self, folder: Path, history: Path, vectors: Path, memory_id: str, scratch: Path) -> None:
        self.folder, self.history, self.vectors, self.memory_id = folder, history, vectors, memory_id
        self.home, self.temporary = scratch / "home", scratch / "temporary"
        for place in (self.home, self.temporary):
            place.mkdir(parents=True)
            place.chmod(0o777)
        self.config = scratch / "mem0.json"
        self.config.write_text(
            f'{{"history_db_path": "{history}", "vector_store": {{"provider": "qdrant",'
            f' "config": {{"path": "{vectors}"}}}}}}'
        )

    def commands(self) -> Iterator[list[str]]:
        """Every reading command, in every form at least once over all."""
        about = ["--history", str(self.history), "--qdrant-path", str(self.vectors)]
        yield ["audit", *about, "--verbose"]
        yield ["audit", *about, "--format", "json"]
        yield ["status", *about]
        yield ["status", "--config", str(self.config), "--format", "json"]
        yield ["show", self.memory_id, *about]
        yield ["show", self.memory_id, *about, "--format", "json", "--text"]
        yield ["users", *about, "--format", "json"]
        yield ["users", *about]
        yield ["residue", "--user", "carol", *about, "--format", "json"]
        yield ["log", "--history", str(self.history), "-n", "50"]
        yield ["log", "--config", str(self.config), "--format", "json"]
        yield ["snapshot", "diff", "live", "live", *about, "--text"]
        yield ["config", "show", "--config", str(self.config)]
        yield ["config", "validate", str(self.config)]

    def prove(self, by: Forks, *, live_register: bool = False) -> dict[str, Ran]:
        """Runs every command and compares after each; what each gave, by its first word."""
        before = tree(self.folder)
        given = {}
        env = {"MEM0_DIR": str(self.folder / "mem0_dir"), "TMPDIR": str(self.temporary)}
        for words in self.commands():
            got = by.run(self.home, *words, env=env, cwd="/")
            assert got.code in (0, 1, 3), (words, got.err[-500:])
            after = tree(self.folder)
            if live_register:
                before, after = without_register(before), without_register(after)
            assert after == before, words
            assert list(self.temporary.iterdir()) == [], words
            # the ledger is ours: it lies outside of the install, and only an audit begins one
            ours = {p.relative_to(self.home).as_posix() for p in self.home.rglob("*") if p.is_file()}
            assert all(re.fullmatch(LEDGER, name) for name in ours), words
            assert not ours or "audit" in given or words[0] == "audit", words
            assert not by.loaded & {"mem0", "qdrant_client"}, words
            assert "mem0audit.cli.main" in by.loaded
            given[f"{words[0]} {words[1]}" if words[0] == "config" else words[0]] = got
        return given


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("made") / "install"
    with MemoryBuilder(folder) as memory:
        ids = [memory.add(f"likes {n} " + "and more of it " * 40, user_id="carol") for n in range(40)]
        memory.update(ids[0], "likes tea")
        memory.delete(ids[1])
        memory.plant_entity("Tea", [ids[2]], user_id="carol")
    return folder, ids[2]


@pytest.fixture
def install(made: tuple[Path, str], tmp_path: Path) -> Install:
    folder = tmp_path / "install"
    shutil.copytree(made[0], folder)
    return Install(folder, folder / "mem0_dir/history.db", folder / "qdrant", made[1], tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    forks = Forks(tmp_path_factory.mktemp("plain"))
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    forks = Forks(tmp_path_factory.mktemp("ordinary"), ORDINARY)
    yield forks
    forks.close()


def databases(install: Install) -> list[Path]:
    return [install.history, *sorted(install.vectors.glob("collection/*/storage.sqlite"))]


def to_wal(install: Install) -> None:
    for path in databases(install):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode = wal").fetchone() == ("wal",)


@contextlib.contextmanager
def child(code: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that said it is ready; it waits for the end of its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


AGENT = """
import sys
from tests.builders import MemoryBuilder
with MemoryBuilder(sys.argv[1]) as memory:
    memory.add("lives in Lisbon", user_id="carol")
    print("ready", flush=True)
    sys.stdin.read()
"""
INSIDE_A_TRANSACTION = """
import sqlite3, sys
kept = []
for path, table, column in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
    connection = sqlite3.connect(path, isolation_level=None)
    kept.append(connection)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.execute(f"UPDATE {table} SET {column} = {column} || 'x'")
print("ready", flush=True)
sys.stdin.read()
"""


def test_nobody_has_it_open(install: Install, plain: Forks) -> None:
    given = install.prove(plain)
    assert given["audit"].code in (0, 1)
    assert given["show"].code == 0


def test_an_idle_agent_holds_the_lock(install: Install, plain: Forks) -> None:
    with child(AGENT, str(install.folder)):
        given = install.prove(plain)
        assert '"how": "lock"' in given["status"].out
        assert given["audit"].code in (0, 1)


def test_wal_closed_cleanly(install: Install, plain: Forks) -> None:
    to_wal(install)
    assert not list(install.folder.rglob("*-wal"))
    given = install.prove(plain)
    assert given["audit"].code in (0, 1)


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody, which only root can")
def test_wal_of_an_agent_living_then_killed_then_without_its_register(
    install: Install, plain: Forks, ordinary: Forks
) -> None:
    to_wal(install)
    for place in install.folder.parents[:4]:
        if place.name.startswith(("test_", "pytest-")):
            place.chmod(0o755)
    with child(AGENT, str(install.folder)) as agent:
        assert len(list(install.folder.rglob("*-shm"))) >= 2
        given = install.prove(ordinary, live_register=True)
        assert given["audit"].code in (0, 1)
        agent.send_signal(signal.SIGKILL)
        agent.wait()
    assert len(list(install.folder.rglob("*-wal"))) >= 2
    given = install.prove(ordinary)
    assert given["audit"].code in (0, 1)
    assert '"changes": 43' in given["audit"].out
    for register in install.folder.rglob("*-shm"):
        register.unlink()
    given = install.prove(plain)
    assert given["audit"].code in (0, 1)


@pytest.mark.thorough
def test_journals_of_a_writer_living_then_killed(install: Install, plain: Forks) -> None:
    words = [str(install.history), "history", "new_memory"]
    words += [str(install.vectors / "collection/mem0/storage.sqlite"), "points", "point"]
    with child(INSIDE_A_TRANSACTION, *words) as writer:
        assert len(list(install.folder.rglob("*-journal"))) == 2
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert len(list(install.folder.rglob("*-journal"))) == 2
    given = install.prove(plain)
    assert '"I203"' in given["audit"].out


def test_a_damaged_meta_json_and_a_missing_collection(install: Install, plain: Forks) -> None:
    meta = install.vectors / "meta.json"
    whole = meta.read_bytes()
    meta.write_bytes(whole[: len(whole) // 2])
    install.prove(plain)
    meta.write_bytes(whole)
    shutil.rmtree(install.vectors / "collection/mem0")
    install.prove(plain)


@pytest.mark.parametrize("name", sorted(p.name for p in STORES.iterdir() if (p / "truth.json").exists()))
def test_stores_of_every_version(name: str, tmp_path: Path, plain: Forks) -> None:
    store = copy_store(name, tmp_path)
    connection = sqlite3.connect(f"file:{store.history}?mode=ro", uri=True)
    (memory_id,) = connection.execute("SELECT memory_id FROM history LIMIT 1").fetchone()
    connection.close()
    Install(store.folder, store.history, store.vectors, memory_id, tmp_path / "beside").prove(plain)


def test_that_the_proof_would_notice(install: Install) -> None:
    """What mem0's own client does to a folder that it only opens is a change that is seen."""
    from qdrant_client import QdrantClient

    before = tree(install.folder)
    (install.vectors / ".lock").unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves a database open, which Python 3.13 says
        QdrantClient(path=str(install.vectors)).close()
    assert tree(install.folder) != before
    before = tree(install.folder)
    os.utime(install.history, ns=(0, install.history.stat().st_mtime_ns))
    assert tree(install.folder) != before


def test_a_small_store_is_audited_in_no_time(install: Install) -> None:
    words = ["audit", "--history", str(install.history), "--qdrant-path", str(install.vectors)]
    assert min(run(install.home, *words).cpu_s for _ in range(3)) < 0.6 * 2 * slowness()


def test_help_and_explain_are_quick(own_home: Path) -> None:
    for words in (["--help"], ["explain", "D301"]):
        assert min(run(own_home, *words).cpu_s for _ in range(3)) < 0.3 * 2 * slowness()
