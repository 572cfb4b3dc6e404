"""Backups that people already have: made here by cp and tar, of stores that mem0 wrote, also while it writes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mem0audit.core.backup import BackupVerdict
from mem0audit.core.errors import CouldNotRead, Refused, UsageProblem
from mem0audit.install.host import this_host
from mem0audit.operations.backup import find_backup, verify_backup
from mem0audit.operations.copyaudit import audit_snapshot, find_copy
from tests.builders import (
    STORES,
    MemoryBuilder,
    RawHistory,
    RawPoints,
    StoreCopy,
    copy_store,
    difference,
)
from tests.operations.test_read_only import AGENT, child, tree
from tests.operations.test_snapshot import take, to_wal
from tests.speed import Allowance

ROOT = Path(__file__).parents[2]


def cp(folder: Path, *sources: Path, check: bool = True) -> Path:
    """What people do at night; without `check` what cp says of files that vanish meanwhile is not looked at, as a
    cron job does not."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-r", *map(str, sources), str(folder)], check=check, capture_output=not check)
    return folder


def verified(folder: Path, **named: str) -> BackupVerdict:
    """Verified, and proven to have changed nothing in it."""
    before = tree(folder)
    host = this_host()
    told = verify_backup(find_backup(str(folder), host, **named), host)
    assert tree(folder) == before
    return told


def copied(tmp_path: Path, name: str = "2.2.1", *, log_of: str = "", vectors_of: str = "") -> Path:
    """A backup with each half from the kept store or its state before the last delete_all ("pre")."""
    now, pre = copy_store(name, tmp_path), copy_store(name, tmp_path, pre_delete_all=True)
    log, vectors = (pre if which == "pre" else now for which in (log_of, vectors_of))
    return cp(tmp_path / "backup", log.history, vectors.vectors)


@contextlib.contextmanager
def writer(folder: Path) -> Iterator[None]:
    """A mem0 that writes as fast as it can, in a process of its own."""
    code = (
        "import sys\nfrom tests.builders import MemoryBuilder\n"
        "with MemoryBuilder(sys.argv[1]) as m:\n"
        "    ids = []\n    n = 0\n    print('ready', flush=True)\n"
        "    while True:\n"
        "        ids.append(m.add(f'fact {n} ' + 'and more of it ' * 300, user_id='alice')); n += 1\n"
        "        if n % 2: m.update(ids[-1], f'other {n}')\n"
        "        if n % 3 == 0: m.delete(ids.pop(0))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def written(folder: Path, more: int) -> None:
    """Waits until the writer has logged so many changes more."""

    def rows() -> int:
        log = f"file:{folder}/mem0_dir/history.db?mode=ro"
        with closing(sqlite3.connect(log, uri=True, timeout=60)) as connection:
            return int(connection.execute("SELECT count(*) FROM history").fetchone()[0])

    wanted = rows() + more
    while rows() < wanted:
        time.sleep(0.01)


# --- where the halves are ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "vectors"),
    [
        ("history.db", "qdrant"),
        (".mem0/history.db", "qdrant"),
        ("home/ann/.mem0/history.db", "tmp/qdrant"),
        ("var/lib/docker/volumes/mem0/_data/history.db", "var/lib/docker/volumes/qdrant/_data"),
        ("qdrant/history.db", "qdrant"),
        ("history.db", "."),
        ("mem 0 é/history.db", "vectors of #1?"),
    ],
)
def test_any_layout(tmp_path: Path, log: str, vectors: str) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "backup"
    (folder / log).parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(store.vectors, folder / vectors, dirs_exist_ok=True)
    shutil.copy(store.history, folder / log)
    told = verified(folder)
    assert told.good, told.problems
    assert told.backup.history.value == str(folder / log)
    assert told.backup.vectors.value == os.path.normpath(folder / vectors)
    assert told.counts["memories"] == 19


def test_a_tar_unpacked(tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path)
    subprocess.run(
        ["tar", "-C", str(tmp_path), "-czf", str(tmp_path / "b.tgz"), store.folder.name], check=True
    )
    folder = tmp_path / "unpacked"
    folder.mkdir()
    subprocess.run(["tar", "-C", str(folder), "-xzf", str(tmp_path / "b.tgz")], check=True)
    told = verified(folder)
    assert told.good
    assert told.counts["entities"]
    with pytest.raises(CouldNotRead, match="is no folder"):
        find_backup(str(tmp_path / "b.tgz"), this_host())


def test_the_telemetry_folder_is_not_taken_for_the_vectors(tmp_path: Path) -> None:
    store = copy_store("1.0.0", tmp_path, pre_delete_all=True)
    if not (store.mem0_dir / "migrations_qdrant").is_dir():
        shutil.copytree(store.vectors, store.mem0_dir / "migrations_qdrant")
    folder = cp(tmp_path / "backup", store.mem0_dir, store.vectors)
    assert verified(folder).backup.vectors.value == str(folder / "qdrant")


def test_several_are_listed_and_can_be_named(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    for day in ("monday", "tuesday"):
        cp(tmp_path / "backup" / day, store.history, store.vectors)
    folder = tmp_path / "backup"
    with pytest.raises(
        UsageProblem, match=r"2 logs lie there: monday/history\.db, tuesday/history\.db"
    ) as problem:
        find_backup(str(folder), this_host())
    assert problem.value.hint is not None and "--history" in problem.value.hint
    with pytest.raises(UsageProblem, match="2 Qdrant folders lie there: monday/qdrant, tuesday/qdrant"):
        find_backup(str(folder), this_host(), "monday/history.db")
    told = verified(folder, history="monday/history.db", qdrant_path=str(folder / "tuesday/qdrant"))
    assert told.good
    assert told.backup.history.value == str(folder / "monday/history.db")
    assert verified(folder / "monday").good
    with pytest.raises(CouldNotRead, match=r"--history no\.db: is not there"):
        find_backup(str(folder), this_host(), "no.db")


def test_a_half_elsewhere_is_named(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = cp(tmp_path / "backup", store.vectors)
    with pytest.raises(CouldNotRead, match="without a log") as problem:
        find_backup(str(folder), this_host())
    assert problem.value.hint == "name the other half with --history"
    assert verified(folder, history=str(store.history)).good
    (tmp_path / "empty").mkdir()
    with pytest.raises(CouldNotRead, match="no snapshot lies there, and no backup"):
        find_backup(str(tmp_path / "empty"), this_host())


def test_a_store_in_use_is_no_backup(tmp_path: Path) -> None:
    with (
        child(AGENT, str(tmp_path / "install")) as agent,
        pytest.raises(Refused, match=f"pid {agent.pid} has it"),
    ):
        find_backup(str(tmp_path / "install"), this_host())
    assert verified(tmp_path / "install").good


# --- how far the halves are apart ---------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(p.name for p in STORES.iterdir() if (p / "truth.json").exists()))
@pytest.mark.parametrize(("log_of", "vectors_of"), [("", ""), ("pre", "pre"), ("", "pre"), ("pre", "")])
def test_the_counts_are_those_of_the_slow_way(
    tmp_path: Path, name: str, log_of: str, vectors_of: str
) -> None:
    folder = copied(tmp_path, name, log_of=log_of, vectors_of=vectors_of)
    halves = verified(folder).halves
    assert halves is not None
    slow = difference(folder / "history.db", folder / "qdrant")
    told = (halves.returning, halves.losing, halves.unlogged, halves.differing)
    assert told == tuple(len(slow[k]) for k in ("resurrected", "lost", "unlogged", "text"))
    assert halves.agree == (not any(slow.values()))


def built_apart(tmp_path: Path) -> tuple[Path, Path, StoreCopy]:
    """A store and a copy of it from before: then two memories are added, one is changed and one deleted."""
    with MemoryBuilder(tmp_path / "install") as agent:
        ids = [agent.add(f"fact {n}", user_id="alice") for n in range(6)]
    early = cp(tmp_path / "early", agent.history, agent.vectors)
    with MemoryBuilder(tmp_path / "install") as agent:
        agent.delete(ids[0])
        agent.update(ids[1], "another")
        agent.add("new 1", user_id="alice")
        agent.add("new 2", user_id="bob")
    late = cp(tmp_path / "late", agent.history, agent.vectors)
    return early, late, agent  # type: ignore[return-value]


def shift(log: Path, after: int, seconds: int) -> None:
    """The rows after the first so many happened so much later, as if the agent had gone on at another hour."""
    from datetime import datetime, timedelta

    for row in RawHistory(log).rows()[after:]:
        for column in ("created_at", "updated_at"):
            if row[column]:
                later = (datetime.fromisoformat(row[column]) + timedelta(seconds=seconds)).isoformat()
                RawHistory(log).run(f"UPDATE history SET {column} = ? WHERE rowid = ?", later, row["rowid"])


def test_a_log_that_is_newer(tmp_path: Path) -> None:
    early, late, _ = built_apart(tmp_path)
    folder = cp(tmp_path / "mixed", late / "history.db", early / "qdrant")
    shift(folder / "history.db", 0, -6 * 3600)  # long ago, and then not quite so
    shift(folder / "history.db", 6, 5 * 3600 + 12 * 60)
    for point in RawPoints(folder / "qdrant").points():
        RawPoints(folder / "qdrant").edit(point, _earlier)
    told = verified(folder)
    halves = told.halves
    assert halves is not None
    assert (halves.newer, halves.returning, halves.losing, halves.differing) == ("history", 1, 2, 1)
    assert halves.apart_s is not None
    assert abs(halves.apart_s - (5 * 3600 + 12 * 60)) < 30
    assert not told.good
    assert not told.problems


def _earlier(payload: dict[str, str]) -> None:
    from datetime import datetime, timedelta

    for key in ("created_at", "updated_at"):
        payload[key] = (datetime.fromisoformat(payload[key]) - timedelta(hours=6)).isoformat()


def test_vectors_that_are_newer(tmp_path: Path) -> None:
    early, late, _ = built_apart(tmp_path)
    folder = cp(tmp_path / "mixed", early / "history.db", late / "qdrant")
    halves = verified(folder).halves
    assert halves is not None
    assert (halves.newer, halves.losing, halves.unlogged, halves.differing) == ("vectors", 1, 2, 1)
    assert halves.apart_s is not None and 0 < halves.apart_s < 600


def test_an_old_deletion_does_not_make_halves_of_one_time_apart(tmp_path: Path) -> None:
    """The newest row is a deletion, hours after the newest point: both halves are of one time all the same."""
    with MemoryBuilder(tmp_path / "install") as agent:
        ids = [agent.add(f"fact {n}", user_id="alice") for n in range(3)]
        agent.delete(ids[2])
    folder = cp(tmp_path / "backup", agent.history, agent.vectors)
    shift(folder / "history.db", 0, -7 * 3600)
    shift(folder / "history.db", 3, 5 * 3600)
    for point in RawPoints(folder / "qdrant").points():
        RawPoints(folder / "qdrant").edit(
            point, lambda payload: payload.update(created_at="2026-01-01T00:00:00+00:00")
        )
    told = verified(folder)
    assert told.halves is not None
    assert told.halves.agree
    assert told.halves.newer is None


# --- damaged, torn, journals ----------------------------------------------------------------------------


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    folder = copied(tmp_path, vectors_of="pre")
    file = folder / "qdrant/collection/mem0/storage.sqlite"
    with file.open("r+b") as stream:
        stream.seek(8192)
        stream.write(b"\xff" * 4096)
    told = verified(folder)
    assert [p.path for p in told.problems] == ["qdrant/collection/mem0/storage.sqlite"]
    assert "fails integrity_check" in told.problems[0].detail
    assert [file.path for file in told.files if file.damaged] == ["qdrant/collection/mem0/storage.sqlite"]
    assert told.halves is not None and told.halves.partial


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("history.db", b"", "has no bytes"),
        ("history.db", b"no database" * 1000, "is no SQLite file"),
        ("qdrant/collection/mem0/storage.sqlite", b"\0" * 40960, "begins with zero bytes"),
        ("qdrant/meta.json", b'{"collections": {"mem0', "not JSON"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    folder = copied(tmp_path)
    (folder / name).write_bytes(content)
    told = verified(folder)
    assert name in [p.path for p in told.problems]
    assert any(says in p.detail for p in told.problems)
    assert not told.good


def test_a_file_cut_off(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    for size in (30_000, 28_672, 5_000, 100, 50):
        os.truncate(folder / "history.db", size)
        told = verified(folder)
        assert [p.path for p in told.problems] == ["history.db"], size


def hot(source: Path, target: Path) -> None:
    """A database copied in the middle of a write, with the journal beside it."""
    code = (
        "import os, shutil, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 1')\nc.execute('BEGIN')\n"
        'c.execute("UPDATE history SET new_memory = new_memory || hex(zeroblob(3000))")\n'
        "for end in ('', '-journal'): shutil.copy(sys.argv[1] + end, sys.argv[2] + end)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(source), str(target)], check=True)


def test_a_hot_journal_is_undone_in_a_copy(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    hot(copy_store("2.2.1", tmp_path / "second").history, folder / "history.db")
    told = verified(folder)
    (log,) = (file for file in told.files if file.role == "history")
    assert log.beside == ("-journal",)
    assert log.note is not None and "hot journal" in log.note
    assert told.good, told.problems
    host = this_host()
    report = audit_snapshot(find_copy(None, str(folder), host), host)
    assert [f.code for f in report.findings if f.code == "I203"] == ["I203"]


def test_a_journal_that_names_another_file_deletes_nothing(tmp_path: Path) -> None:
    """SQLite removes the super-journal that a hot journal names, whatever file that is."""
    folder = copied(tmp_path)
    hot(copy_store("2.2.1", tmp_path / "second").history, folder / "history.db")
    victim = tmp_path / "precious"
    victim.write_text("precious")
    name = os.fsencode(victim)
    total = sum(byte if byte < 128 else byte - 256 for byte in name) & 0xFFFFFFFF
    record = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">II", len(name), total)
    with (folder / "history.db-journal").open("ab") as stream:
        stream.write(record + bytes.fromhex("d9d505f920a163d7"))
    told = verified(folder)
    assert victim.read_text() == "precious"
    assert told.not_checked[0].what == "history.db"
    # that the forged journal would have done it
    with closing(sqlite3.connect(folder / "history.db")) as connection:
        connection.execute("SELECT count(*) FROM history").fetchone()
    assert not victim.exists()


def wal_copy(tmp_path: Path, *ends: str) -> Path:
    """A backup in WAL mode of an agent that runs: with these of the files beside each database."""
    store = copy_store("2.2.1", tmp_path)
    to_wal(store.history)
    folder = cp(tmp_path / "backup", store.vectors)
    with closing(sqlite3.connect(store.history)) as agent:
        agent.execute("PRAGMA wal_autocheckpoint = 0")
        agent.execute("UPDATE history SET role = 'other'")
        agent.commit()
        for end in ("", *ends):
            shutil.copy(f"{store.history}{end}", f"{folder}/history.db{end}")
    return folder


def test_a_wal_is_read_and_a_lost_one_is_said(tmp_path: Path) -> None:
    told = verified(wal_copy(tmp_path / "both", "-wal"))
    assert told.good
    assert "with its -wal" in str(told.files[0].note)
    told = verified(wal_copy(tmp_path / "all", "-wal", "-shm"))
    assert told.good
    told = verified(wal_copy(tmp_path / "none"))
    assert "without a -wal" in str(told.files[0].note)
    told = verified(wal_copy(tmp_path / "lost", "-shm"))
    assert [p.path for p in told.problems] == ["history.db"]
    assert "its -wal was not copied" in told.problems[0].detail


def test_a_stray_wal_makes_no_file_appear(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "history.db-wal").write_bytes(b"\x37\x7f\x06\x82" + b"\0" * 100)
    told = verified(folder)
    assert [p.path for p in told.problems] == ["history.db"]
    assert "not its own" in told.problems[0].detail


def test_copied_while_mem0_writes(tmp_path: Path) -> None:
    """Every copy that is called good is good by SQLite's own word, and its halves are equal the slow way."""
    torn = apart = whole = 0
    with writer(tmp_path / "install"):
        written(tmp_path / "install", 10)
        for number in range(8):
            folder = tmp_path / f"backup-{number}"
            cp(folder, tmp_path / "install/mem0_dir", check=False)
            written(tmp_path / "install", 2)
            cp(folder, tmp_path / "install/qdrant", check=False)
            told = verified(folder)
            if any(file.damaged for file in told.files) or told.problems or told.not_checked:
                torn += 1
                continue
            assert told.halves is not None
            log = next(folder.rglob("history.db"))
            points = folder / "qdrant/collection/mem0/storage.sqlite"
            twin = cp(tmp_path / f"twin-{number}", folder) / folder.name
            for file in (twin / log.relative_to(folder), twin / points.relative_to(folder)):
                with closing(sqlite3.connect(file)) as connection:
                    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            slow = difference(twin / log.relative_to(folder), twin / "qdrant")
            assert told.halves.agree == (not any(slow.values()))
            apart += not told.halves.agree
            whole += told.halves.agree
    print(f"torn {torn}, apart {apart}, whole {whole}")
    assert torn + apart >= 4


# --- nothing in it is trusted ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["history.db", "qdrant/collection", "qdrant/collection/mem0/storage.sqlite"])
def test_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    folder = copied(tmp_path)
    aside = tmp_path / "aside"
    shutil.move(folder / name, aside)
    (folder / name).symlink_to(aside)
    told = verified(folder)
    assert (name, "is a link, which is not followed") in [(p.path, p.detail) for p in told.problems]
    assert told.halves is None
    host = this_host()
    with pytest.raises(CouldNotRead, match="is a link"):
        audit_snapshot(find_copy(None, str(folder), host), host)


@pytest.mark.parametrize(
    "name",
    ["history.db", "history.db-journal", "qdrant/meta.json", "qdrant/collection/mem0/storage.sqlite-wal"],
)
def test_a_pipe_holds_nobody_up(tmp_path: Path, name: str) -> None:
    folder = copied(tmp_path)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    host = this_host()
    before = os.lstat(folder / name)
    told = verify_backup(find_backup(str(folder), host), host)
    assert os.lstat(folder / name) == before
    assert (name, "is no ordinary file") in [(p.path, p.detail) for p in told.problems]


def test_a_pickle_that_is_code_is_not_run(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    ran = tmp_path / "ran"
    code = b"cos\nsystem\n(S'touch " + os.fsencode(ran) + b"'\ntR."
    RawPoints(folder / "qdrant").put_row("x", code)
    told = verified(folder)
    assert told.findings["I208"] == 1
    assert not ran.exists()


def test_deep_and_wide_folders_have_an_end(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    host = this_host()
    assert verify_backup(find_backup(str(folder), host), host).good
    subprocess.run(["rm", "-rf", str(folder / "d")], check=True)


def test_a_huge_sparse_file_ends(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    file = folder / "qdrant/collection/mem0/storage.sqlite"
    os.truncate(file, 1 << 40)
    (folder / "qdrant/collection/mem0/storage.sqlite-journal").write_bytes(b"\xd9" * 600)
    host = this_host()
    started, within = time.process_time(), Allowance()
    told = verify_backup(find_backup(str(folder), host), host)
    assert time.process_time() - started < within(20)
    assert "no room for a scratch copy" in told.not_checked[0].why
    (folder / "qdrant/meta.json").unlink()
    with (folder / "qdrant/meta.json").open("wb") as stream:
        stream.truncate(1 << 36)
    told = verify_backup(find_backup(str(folder), host), host)
    assert "qdrant/meta.json" in [p.path for p in told.problems]


# --- audit ----------------------------------------------------------------------------------------------


def test_audit_of_a_snapshot_is_that_of_the_store(tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)
    gone = next(iter(RawPoints(store.vectors).points()))
    RawPoints(store.vectors).remove(gone)
    done = take(store, tmp_path / "snapshots")
    host = this_host()
    before = tree(tmp_path / "snapshots")
    report = audit_snapshot(find_copy(None, done.path, host), host)
    assert tree(tmp_path / "snapshots") == before
    assert report.copy is not None and report.copy.pair
    assert report.copy.taken_at == done.manifest.taken_at
    # a manifest counts what is wrong with the stores, and not what their texts say
    codes = Counter(f.code for f in report.findings if f.code[0] != "S")
    assert codes == done.manifest.findings
    assert {code[0] for code in report.checked} <= set("DHEICS")
    assert report.holders == () and report.candidates == ()
    backup = cp(tmp_path / "backup", store.history, store.vectors)
    report = audit_snapshot(find_copy(None, str(backup), host), host, select=("D",))
    assert {f.code for f in report.findings} == {"D302"}
    assert report.copy is not None and not report.copy.pair


def test_audit_of_the_right_one(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    first, second = (take(store, tmp_path / "snapshots") for _ in range(2))
    host = this_host()
    with pytest.raises(UsageProblem, match="2 snapshots lie there"):
        find_copy(None, str(tmp_path / "snapshots"), host)
    with pytest.raises(UsageProblem, match="this is a snapshot"):
        find_copy(None, first.path, host, history="x")
    assert find_copy(str(tmp_path / "snapshots"), Path(second.path).name, host).halves.folder == second.path
