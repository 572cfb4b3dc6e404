"""Where erasures are on record: beside the snapshots and in the ledger."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from mem0audit.core.erasures import RECORD, erasures_text, make_erasure, parse_erasures
from mem0audit.core.errors import Failed
from mem0audit.install.host import this_host
from mem0audit.operations.erasures import erasures_on_record
from mem0audit.operations.verify import list_snapshots
from mem0audit.stores import files
from tests.builders import copy_store
from tests.operations.test_snapshot import installed, take

ALICE = make_erasure(100.0, "00112233445566778899aabbccddeeff", ("alice", None, None), ["id-1"])


def test_a_snapshot_always_has_a_record_beside_it(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    taken = take(store, folder)
    assert taken.notes == ()
    assert parse_erasures((folder / RECORD).read_bytes()) == ()
    assert stat.S_IMODE((folder / RECORD).stat().st_mode) == 0o600
    record = erasures_on_record(installed(store), str(folder), this_host(), ledger=False)
    assert record.known
    assert record.read == (str(folder / RECORD),)
    assert record.erasures == ()
    assert [n.what for n in record.not_read] == ["ledger"]


def test_what_is_on_record_stays_there(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    folder.mkdir()
    (folder / RECORD).write_text(erasures_text([ALICE]))
    before = (folder / RECORD).stat()
    take(store, folder)
    assert (folder / RECORD).stat().st_mtime_ns == before.st_mtime_ns
    assert erasures_on_record(installed(store), str(folder), this_host()).erasures == (ALICE,)


@pytest.mark.parametrize("how", ["no folder", "none", "damaged", "a folder", "large"])
def test_a_place_without_a_record_is_named(tmp_path: Path, how: str) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    if how != "no folder":
        folder.mkdir()
    if how == "damaged":
        (folder / RECORD).write_text(erasures_text([ALICE])[:-20])
    elif how == "a folder":
        (folder / RECORD).mkdir()
    elif how == "large":
        with (folder / RECORD).open("wb") as file:
            file.truncate(100 << 20)
    record = erasures_on_record(installed(store), str(folder), this_host(), ledger=False)
    assert not record.known
    assert record.not_read[-1].what == str(folder / RECORD)
    assert "\n" not in record.not_read[-1].why
    assert erasures_on_record(installed(store), None, this_host(), ledger=False).known is False


def test_a_damaged_record_is_left_and_said(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    folder.mkdir()
    damaged = erasures_text([ALICE])[:-20]
    (folder / RECORD).write_text(damaged)
    taken = take(store, folder)
    assert (folder / RECORD).read_text() == damaged
    assert len(taken.notes) == 1
    assert RECORD in taken.notes[0]


@pytest.mark.parametrize("step", ["create", "write", "fsync", "rename"])
def test_an_error_while_it_is_written(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = copy_store("2.2.1", tmp_path)
    folder = tmp_path / "snapshots"
    fired = False

    def fail(name: str) -> None:
        nonlocal fired
        if name == f"snapshot.beside.{step}":
            fired = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "step", fail)
        with pytest.raises(Failed, match="no space left"):
            take(store, folder)
    assert fired
    assert list_snapshots(str(folder)) == ()
    assert {p.name for p in folder.iterdir()} == {".mem0audit.lock"}
    (folder / f".{RECORD}.new").write_text("what a kill left")
    take(store, folder)
    assert {p.name for p in folder.iterdir() if p.is_file()} == {".mem0audit.lock", RECORD}
