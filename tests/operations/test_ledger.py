"""What audits and snapshots leave in the ledger, where it is not kept, and that everything works without."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import RECORD, make_erasure
from mem0audit.core.model import NotChecked, Report
from mem0audit.install.host import this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.audit import audit
from mem0audit.operations.erasures import erasures_on_record
from mem0audit.operations.status import status
from mem0audit.report.pages import status_text
from mem0audit.report.screen import Screen
from mem0audit.stores import files as stores_files
from mem0audit.stores.ledger import KnownAgent, Ledger
from tests.builders import StoreCopy, copy_store
from tests.operations.sealed import audited, said, sealed
from tests.operations.test_snapshot import installed, mounted, needs_root, take

ALICE = make_erasure(100.0, "00112233445566778899aabbccddeeff", ("alice", None, None), ["id-1"])


@pytest.fixture(autouse=True)
def state(durable: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(durable / "state"))
    return durable / "state"


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1", tmp_path)


@contextlib.contextmanager
def book_of(store: Any) -> Iterator[Ledger]:
    with ledgers.opened(installed(store), this_host()) as book:
        assert isinstance(book, Ledger)
        yield book


def files(state: Path) -> list[str]:
    return sorted(p.name for p in state.rglob("*.sqlite"))


def of_ledger(report: Report) -> list[NotChecked]:
    return [n for n in report.not_checked if n.what == "ledger"]


# --- what is left in it ----------------------------------------------------------------------------------


def test_an_audit_leaves_whose_each_memory_is(store: StoreCopy, state: Path) -> None:
    report = audited(store)
    assert of_ledger(report) == []
    assert len(files(state)) == 1
    with book_of(store) as book:
        owners = book.owners()
    assert len(owners) == report.counts["memories"] == 19
    assert {owner[0] for owner in owners.values()} == {"alice", "bob"}
    audited(store)
    assert len(files(state)) == 1


def test_it_never_holds_a_memorys_text(store: StoreCopy, state: Path, tmp_path: Path) -> None:
    assert sealed(store).extended
    take(store, tmp_path / "snapshots")
    from tests.builders import RawPoints

    texts = [str(p.payload["data"]) for p in RawPoints(store.vectors).points().values()]
    assert len(texts) == 19
    everything = b"".join(p.read_bytes() for p in state.rglob("*") if p.is_file())
    assert len(everything) > 10_000
    assert not [text for text in texts if text.encode() in everything]


def test_a_snapshot_leaves_its_folder_owners_and_a_seal(store: StoreCopy, tmp_path: Path) -> None:
    outcome = take(store, tmp_path / "snapshots").seal
    assert outcome is not None
    assert (outcome.extended, outcome.number, outcome.memories) == (True, 1, 19)
    with book_of(store) as book:
        assert book.folders() == (str(tmp_path / "snapshots"),)
        assert len(book.owners()) == 19
        assert [s.memories for s in book.seals()] == [19]
    assert ledgers.snapshot_folders(installed(store), this_host()) == (str(tmp_path / "snapshots"),)
    assert ledgers.snapshot_folders(installed(store), this_host(), ledger=False) == ()
    seen = status(installed(store), this_host()).ledger
    assert seen is not None
    assert (seen.snapshot_folders, seen.seals) == ((str(tmp_path / "snapshots"),), 1)
    assert status(installed(store), this_host(), ledger=False).ledger is None
    assert take(store, tmp_path / "snapshots").seal.unchanged  # type: ignore[union-attr]


def test_status_names_the_agent_that_was_seen_last(store: StoreCopy, state: Path) -> None:
    install, host = installed(store), this_host()
    assert status(install, host).agent.mem0_version is None
    with ledgers.opened(install, host, make=True) as book:
        assert isinstance(book, Ledger)
        book.note_agent(KnownAgent("/srv/agent/bin/python", "2.0.18", "1.19.1", True, 1_790_000_000.0))
    found = status(install, host)
    assert found.agent.interpreter == "/srv/agent/bin/python"
    text = status_text(found, Screen(width=200))
    assert "mem0ai 2.0.18, qdrant-client 1.19.1 (the agent's, as seen 2026-09-21 14:13:20Z)" in text
    assert status(install, host, ledger=False).agent.mem0_version is None


def test_nothing_is_begun_for_what_is_not_there(tmp_path: Path, state: Path) -> None:
    class Nothing:
        history, vectors = tmp_path / "no/history.db", tmp_path / "no/qdrant"

    report = audit(installed(Nothing), this_host(), pause=lambda _: None)
    assert report.findings == ()
    assert not state.exists()
    status(installed(Nothing), this_host())
    erasures_on_record(installed(Nothing), None, this_host())
    assert not state.exists()


def test_no_ledger_is_neither_read_nor_written(store: StoreCopy, state: Path, tmp_path: Path) -> None:
    report = audited(store, ledger=False)
    assert {(n.what, n.why, n.gap) for n in report.not_checked} >= {
        ("ledger", "not asked for (--no-ledger)", False),
        ("D310", "no ledger", False),
    }
    from mem0audit.operations.snapshot import create, plan_create

    plan = plan_create(installed(store), this_host(), str(tmp_path / "snapshots"))
    assert create(plan, this_host(), ledger=False).seal is None
    assert not state.exists()
    assert sealed(store).extended
    before = {p: p.stat().st_mtime_ns for p in state.rglob("*")}
    assert [n.why for n in audited(store, ledger=False).not_checked if n.what == "H408"] == ["no ledger"]
    create(plan, this_host(), ledger=False)
    assert {p: p.stat().st_mtime_ns for p in state.rglob("*")} == before


# --- which install it is of ----------------------------------------------------------------------------


def test_it_is_found_again_after_a_move(store: StoreCopy, state: Path, tmp_path: Path) -> None:
    assert sealed(store).extended
    shutil.move(store.folder, tmp_path / "moved")
    moved = StoreCopy.__new__(StoreCopy)
    moved.history, moved.vectors = tmp_path / "moved/mem0_dir/history.db", tmp_path / "moved/qdrant"
    assert said(audited(moved)) == set()
    with book_of(moved) as book:
        assert len(book.seals()) == 1
    assert len(files(state)) == 1
    assert sealed(moved).unchanged


def test_a_copy_is_another_install(store: StoreCopy, state: Path, tmp_path: Path) -> None:
    """A backup that is looked at must not be taken for the install it was made of: it would be rolled back."""
    shutil.copytree(store.folder, tmp_path / "copy")
    copy = StoreCopy.__new__(StoreCopy)
    copy.history, copy.vectors = tmp_path / "copy/mem0_dir/history.db", tmp_path / "copy/qdrant"
    assert sealed(store).extended
    assert [n.why for n in audited(copy).not_checked if n.what == "D310"] == ["no seal yet"]
    assert len(files(state)) == 2
    with book_of(store) as book, book_of(copy) as other:
        assert book.path != other.path
        assert (len(book.seals()), len(other.seals())) == (1, 0)


def test_through_a_symlink_it_is_the_same(store: StoreCopy, state: Path, tmp_path: Path) -> None:
    audited(store)
    (tmp_path / "link").symlink_to(store.folder)
    linked = StoreCopy.__new__(StoreCopy)
    linked.history, linked.vectors = tmp_path / "link/mem0_dir/history.db", tmp_path / "link/qdrant"
    audited(linked)
    assert len(files(state)) == 1


# --- where none can be kept ----------------------------------------------------------------------------


def without(store: Any, tmp_path: Path, why: str, *, gap: bool = False) -> None:
    """Everything works, and says what is missing in one line."""
    report = audited(store, select=("D", "H"))
    (missing,) = of_ledger(report)
    assert why in missing.why
    assert "\n" not in missing.why
    assert missing.gap is gap
    assert report.counts["memories"] == 19
    assert {n.gap for n in report.not_checked if n.what == "D310"} == {gap}
    outcome = sealed(store)
    assert not outcome.extended
    assert why in str(outcome.why)
    taken = take(store, tmp_path / "snapshots")
    assert taken.seal is not None
    assert why in str(taken.seal.why)
    seen = status(installed(store), this_host())
    assert seen.ledger is None
    assert [
        n.why for n in seen.not_checked if n.what == "ledger"
    ] or why == "read-only"  # nothing is there yet
    record = erasures_on_record(installed(store), str(tmp_path / "snapshots"), this_host())
    assert record.not_read[0].what == "ledger"


@pytest.mark.root
def test_never_on_a_tmpfs(store: StoreCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(tmp_path / "memory", "-t", "tmpfs", "tmpfs") as point:
        monkeypatch.setenv("XDG_STATE_HOME", str(point / "state"))
        without(store, tmp_path, "tmpfs")
        assert list(point.iterdir()) == []


@pytest.mark.root
def test_a_home_that_cannot_be_written(
    store: StoreCopy, durable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_root()
    with mounted(durable / "bound", "--bind", str(store.folder)) as point:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(point)], check=True)
        monkeypatch.setenv("XDG_STATE_HOME", str(point / "state"))
        without(store, durable, "read-only")


def test_never_inside_the_install(store: StoreCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(store.folder.rglob("*"))
    for folder in (store.vectors, store.vectors / "collection", store.mem0_dir):
        monkeypatch.setenv("XDG_STATE_HOME", str(folder))
        monkeypatch.setenv("MEM0_DIR", str(store.mem0_dir))
        without(store, tmp_path, "inside the install")
    assert sorted(store.folder.rglob("*")) == before


def test_a_folder_that_is_a_file(store: StoreCopy, state: Path, tmp_path: Path) -> None:
    state.parent.mkdir(exist_ok=True)
    state.write_text("")
    without(store, tmp_path, "file")


@pytest.mark.root
def test_another_users_folder(store: StoreCopy, state: Path, tmp_path: Path) -> None:
    """As root with somebody else's HOME: what root made there, they could not use."""
    needs_root()
    state.mkdir()
    os.chown(state, 65534, 65534)
    without(store, tmp_path, "another user's")
    assert list(state.iterdir()) == []


def test_a_damaged_one_is_a_gap_and_no_record_of_erasures_is_begun(
    store: StoreCopy, state: Path, tmp_path: Path
) -> None:
    assert sealed(store).extended
    (path,) = state.rglob("*.sqlite")
    path.write_bytes(b"no database at all" * 1000)
    without(store, tmp_path, "is damaged", gap=True)
    assert not (tmp_path / "snapshots" / RECORD).exists()
    assert not erasures_on_record(installed(store), str(tmp_path / "snapshots"), this_host()).known
    assert len(take(store, tmp_path / "snapshots").notes) == 1


def test_one_of_a_newer_version_is_a_gap(store: StoreCopy, state: Path, tmp_path: Path) -> None:
    assert sealed(store).extended
    (path,) = state.rglob("*.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    without(store, tmp_path, "newer mem0audit", gap=True)


def test_one_that_another_run_writes_to(
    store: StoreCopy, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mem0audit.stores import ledger as module

    audited(store)
    monkeypatch.setattr(module, "BUSY_S", 0.1)
    (path,) = state.rglob("*.sqlite")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM marks")
        assert of_ledger(audited(store)) == []  # nothing is to be written
        outcome = sealed(store)
        assert not outcome.extended
        assert "another mem0audit" in str(outcome.why)
        other.execute("ROLLBACK")
    assert sealed(store).extended


AUDITS = """
import sys
from tests.operations.sealed import audited
class Store: history, vectors = sys.argv[1:3]
for _ in range(4):
    report = audited(Store, seal=True)
    assert not [n for n in report.not_checked if n.what == "ledger"], report.not_checked
    assert report.seal.why in (None, "the ledger was sealed by another mem0audit meanwhile"), report.seal
"""


def test_two_audits_at_once(store: StoreCopy, state: Path) -> None:
    words = [sys.executable, "-c", AUDITS, str(store.history), str(store.vectors)]
    root = Path(__file__).parents[2]
    runs = [subprocess.Popen(words, cwd=root, stderr=subprocess.PIPE) for _ in range(3)]
    for run in runs:
        _, errors = run.communicate(timeout=300)
        assert run.returncode == 0, errors.decode()
    assert len(files(state)) == 1
    with book_of(store) as book:
        assert len(book.seals()) == 1


def test_a_folder_that_another_run_makes_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def step(name: str) -> None:
        if name == "folder.create":
            made.append(name)
            (tmp_path / "state").mkdir(exist_ok=True)

    monkeypatch.setattr(stores_files, "step", step)
    stores_files.make_folders(tmp_path / "state")
    assert made
    assert (tmp_path / "state").is_dir()


# --- erasures ------------------------------------------------------------------------------------------


def test_erasures_of_the_ledger_go_beside_the_snapshots(store: StoreCopy, tmp_path: Path) -> None:
    audited(store)
    with book_of(store) as book:
        book.add_erasure(ALICE)
    folder = tmp_path / "snapshots"
    take(store, folder)
    on_this_machine = erasures_on_record(installed(store), None, this_host())
    assert (on_this_machine.erasures, len(on_this_machine.read)) == ((ALICE,), 1)
    elsewhere = erasures_on_record(installed(store), str(folder), this_host(), ledger=False)
    assert (elsewhere.erasures, elsewhere.read) == ((ALICE,), (str(folder / RECORD),))
    both = erasures_on_record(installed(store), str(folder), this_host())
    assert (both.erasures, len(both.read), both.not_read) == ((ALICE,), 2, ())


def test_the_ledger_alone_is_a_record(store: StoreCopy, tmp_path: Path) -> None:
    audited(store)
    record = erasures_on_record(installed(store), str(tmp_path / "nowhere"), this_host())
    assert record.known
    assert [n.what for n in record.not_read] == [str(tmp_path / "nowhere" / RECORD)]


# --- modes -------------------------------------------------------------------------------------------


def test_it_is_private(store: StoreCopy, state: Path) -> None:
    audited(store)
    for path in state.rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
