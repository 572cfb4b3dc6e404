"""What is known of snapshots beside themselves: recorded, bound to the very snapshot, and never guessed."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.marks import MARKS, Checked, Kept, Mark, NotMarks, marks_text, parse_marks
from mem0audit.core.snapshot import Listed
from mem0audit.operations.marks import (
    QUICK,
    keep,
    read_marks,
    verify_and_record,
    with_marks,
    without_verdict,
)
from mem0audit.operations.verify import list_snapshots
from mem0audit.stores import files
from tests.builders import copy_store
from tests.operations.dated import dated
from tests.operations.test_snapshot import killed_at, mounted, take, tree

AT = 1_796_000_000.0
WHEN = "2026-11-30 00:53:20Z"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    return Path(take(copy_store("2.2.1", folder), folder / "snapshots").path)


@pytest.fixture
def one(tmp_path: Path, original: Path) -> Path:
    return dated(original, tmp_path / "snapshots", "2026-11-01T023000Z")[0]


def listed(path: Path) -> Listed:
    found, problem = with_marks(str(path.parent), list_snapshots(str(path.parent)))
    assert problem is None
    return next(entry for entry in found if entry.name == path.name)


def record(path: Path, depth: Any = "default") -> str | None:
    return verify_and_record(str(path), depth, now=lambda: AT).not_recorded


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("depth", ["default", "deep"])
def test_a_verdict_is_recorded_and_the_snapshot_is_as_it_was(one: Path, depth: Any) -> None:
    before = tree(one)
    stats = {p: p.stat().st_ctime_ns for p in [one, *one.rglob("*")]}
    assert listed(one).checked is None
    assert without_verdict([str(one)]) == (str(one),)
    assert record(one, depth) is None
    checked = listed(one).checked
    assert checked is not None
    assert (checked.at, checked.depth, checked.good, checked.problem) == (WHEN, depth, True, None)
    assert without_verdict([str(one)]) == ()
    assert tree(one) == before
    assert {p: p.stat().st_ctime_ns for p in [one, *one.rglob("*")]} == stats
    marks = one.parent / MARKS
    assert marks.stat().st_mode & 0o777 == 0o600


def test_a_quick_look_that_finds_nothing_is_no_verdict(one: Path) -> None:
    assert record(one, "quick") == QUICK
    assert not (one.parent / MARKS).exists()
    assert record(one) is None
    flip(one / "history.db")
    assert record(one, "quick") == QUICK  # sizes are right
    checked = listed(one).checked
    assert checked is not None and checked.depth == "default" and checked.good


def test_a_quick_look_that_finds_something_is_one(one: Path) -> None:
    assert record(one) is None
    (one / "history.db").unlink()
    assert record(one, "quick") is None
    checked = listed(one).checked
    assert checked is not None
    assert (checked.good, checked.depth, checked.problem) == (False, "quick", "history.db is missing")


def test_a_bad_one_is_recorded_with_what_is_wrong(one: Path) -> None:
    flip(one / "history.db")
    assert record(one) is None
    checked = listed(one).checked
    assert checked is not None and not checked.good
    assert checked.problem == "history.db its bytes are not those that were written"
    assert without_verdict([str(one)]) == ()


def test_a_verdict_speaks_of_one_manifest_only(tmp_path: Path, original: Path, one: Path) -> None:
    """Another snapshot under the same name, and the verdict is not its."""
    assert record(one) is None
    assert keep(str(one.parent), one.name, "before the move", AT)[1] is not None
    shutil.rmtree(one)
    dated(original, one.parent, one.name, hostname="elsewhere")
    assert listed(one).checked is None
    # but nothing under a marked name is to be removed unasked
    assert listed(one).kept is not None


def test_without_a_manifest_a_verdict_holds_while_there_is_none(one: Path) -> None:
    text = (one / "manifest.json").read_bytes()
    (one / "manifest.json").unlink()
    assert record(one) is None
    checked = listed(one).checked
    assert checked is not None and not checked.good and checked.manifest_sha256 is None
    (one / "manifest.json").write_bytes(text)
    assert listed(one).checked is None


def test_a_folder_that_cannot_be_written_is_said_and_is_no_failure(
    one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        if name == "snapshot.lock":
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "step", fail)
    assert record(one) == f"{one.parent}: permission denied"
    monkeypatch.undo()
    assert listed(one).checked is None


@pytest.mark.root
def test_a_folder_mounted_read_only(tmp_path: Path, one: Path) -> None:
    with mounted(tmp_path / "backup", "--bind", "-o", "ro", str(one.parent)) as point:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(point)], check=True)
        assert record(point / one.name) == f"{point}: read-only file system"
        with pytest.raises(Failed, match="read-only file system; the marks are as they were"):
            keep(str(point), one.name, "why", AT)


def test_another_run_is_waited_for_and_named(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mem0audit.operations import marks

    monkeypatch.setattr(marks, "WAIT_S", 0.2)
    with files.snapshot_folder(one.parent):
        why = record(one)
        assert why is not None and f"another mem0audit works there (pid {os.getpid()}" in why
        with pytest.raises(Refused, match="another mem0audit"):
            keep(str(one.parent), one.name, "why", AT)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{}", b"\xff", b'{"kind": "mem0audit-marks", "format": 2, "snapshots": {}}', b"[" * 90000],
)
def test_marks_that_do_not_read_are_never_written_over(one: Path, damage: bytes) -> None:
    path = one.parent / MARKS
    path.write_bytes(damage)
    with pytest.raises(CouldNotRead, match=str(path)):
        read_marks(one.parent)
    why = record(one)
    assert why is not None and str(path) in why
    with pytest.raises(CouldNotRead):
        keep(str(one.parent), one.name, "why", AT)
    assert path.read_bytes() == damage
    found, problem = with_marks(str(one.parent), list_snapshots(str(one.parent)))
    assert problem is not None and found[0].checked is None


def test_a_link_is_not_followed(tmp_path: Path, one: Path) -> None:
    other = tmp_path / "other"
    other.write_text(marks_text({}))
    (one.parent / MARKS).symlink_to(other)
    assert record(one) == f"{one.parent / MARKS}: is a link"
    assert other.read_text() == marks_text({})


@pytest.mark.root
def test_what_root_writes_in_anothers_folder_is_the_others(one: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    os.chown(one.parent, 1234, 2345)
    assert record(one) is None
    for name in (MARKS, files.LOCK):
        found = (one.parent / name).stat()
        assert (found.st_uid, found.st_gid) == (1234, 2345), name


@pytest.mark.root
def test_a_file_with_a_second_name_is_given_to_nobody(tmp_path: Path, one: Path) -> None:
    """Somebody's lock that is another name of root's own file: root writes into it, and keeps it."""
    if os.geteuid():
        pytest.skip("needs root")
    mine = tmp_path / "mine"
    mine.write_text("")
    os.link(mine, one.parent / files.LOCK)
    os.chown(one.parent, 1234, 2345)
    assert record(one) is None
    assert mine.stat().st_uid == 0


def test_what_is_gone_is_forgotten(original: Path, one: Path) -> None:
    (other,) = dated(original, one.parent, "2026-11-02T023000Z")
    assert record(one) is None and record(other) is None
    shutil.rmtree(one)
    assert set(read_marks(one.parent)) == {one.name, other.name}
    assert record(other, "deep") is None
    assert set(read_marks(one.parent)) == {other.name}


def test_a_renamed_snapshot_is_not_recorded(one: Path) -> None:
    path = one.rename(one.parent / "monday")
    assert record(path) == "its folder does not have a snapshot's name"
    assert not (path.parent / MARKS).exists()


# --- keep ----------------------------------------------------------------------------------------------


def test_keep_and_unmark(one: Path) -> None:
    folder = str(one.parent)
    assert record(one) is None
    path, kept = keep(folder, one.name, "  before the move  ", AT)
    assert path == str(one)
    assert kept is not None and (kept.reason, kept.at) == ("before the move", WHEN)
    assert listed(one).kept == kept and listed(one).checked is not None
    assert keep(None, str(one), "another reason", AT)[1] == listed(one).kept
    assert keep(folder, one.name, None, AT) == (str(one), None)
    assert listed(one).kept is None and listed(one).checked is not None
    assert keep(folder, one.name, None, AT) == (str(one), None)  # twice is no failure


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "\x1b[31m", "x" * 201])
def test_reasons_that_are_none(one: Path, reason: str) -> None:
    with pytest.raises(UsageProblem):
        keep(str(one.parent), one.name, reason, AT)


def test_keep_of_what_is_none(tmp_path: Path, one: Path) -> None:
    for name in ("2026-11-09T023000Z", str(tmp_path / "nowhere"), str(one.parent)):
        with pytest.raises(CouldNotRead):
            keep(str(one.parent), name, "why", AT)
    (one / "manifest.json").unlink()
    with pytest.raises(CouldNotRead, match="never removed by expire"):
        keep(str(one.parent), one.name, "why", AT)


# --- the file ------------------------------------------------------------------------------------------

MARK = {
    "2026-11-01T023000Z": Mark(
        Checked(WHEN, "deep", False, "history.db is missing", "ab" * 32), Kept(WHEN, "it's é", "cd" * 32)
    ),
    "2026-11-02T023000Z-12": Mark(Checked(WHEN, "default", True, None, None)),
}


def test_it_reads_as_it_was_written() -> None:
    text = marks_text({**MARK, "2026-11-03T023000Z": Mark()})
    assert text.isascii() and parse_marks(text.encode()) == MARK


def test_every_field_is_asked_for_and_no_other() -> None:
    def spoilt(change: Any) -> bytes:
        raw = json.loads(marks_text(MARK))
        change(raw, raw["snapshots"]["2026-11-01T023000Z"])
        return json.dumps(raw).encode()

    assert parse_marks(spoilt(lambda raw, one: None)) == MARK
    for change in (
        lambda raw, one: raw.update(more=1),
        lambda raw, one: raw.pop("format"),
        lambda raw, one: raw.update(kind="other"),
        lambda raw, one: raw.update(format=True),
        lambda raw, one: raw.update(snapshots=[]),
        lambda raw, one: raw["snapshots"].update({"../x": one}),
        lambda raw, one: one.update(more=1),
        lambda raw, one: one.pop("kept"),
        lambda raw, one: one["checked"].pop("at"),
        lambda raw, one: one["checked"].update(good=1),
        lambda raw, one: one["checked"].update(depth="shallow"),
        lambda raw, one: one["checked"].update(at="yesterday"),
        lambda raw, one: one["checked"].update(manifest_sha256="AB" * 32),
        lambda raw, one: one["kept"].update(manifest_sha256=None),
        lambda raw, one: one["kept"].update(reason=None),
        lambda raw, one: one.update(kept=[]),
    ):
        with pytest.raises(NotMarks):
            parse_marks(spoilt(change))


def test_errors_are_ours() -> None:
    rng = random.Random(11)
    data = marks_text(MARK).encode()
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] = rng.choice(b'0{}[]",:x\xff-')
        try:
            parse_marks(bytes(changed))
        except NotMarks:
            continue


# --- faults --------------------------------------------------------------------------------------------

STEPS = (
    "snapshot.folder",
    "snapshot.lock",
    "snapshot.lock.write",
    "file.create",
    "file.write",
    "file.fsync",
    "file.rename",
    "file.folder",
)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_at_every_step(one: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    keep(str(one.parent), one.name, "the first", AT)
    before = tree(one)
    old = (one.parent / MARKS).read_bytes()
    fired = []

    def fail(step: str) -> None:
        if step == name:
            fired.append(step)
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files, "step", fail)
    assert record(one) == f"{one.parent}: {os.strerror(code).lower()}"
    assert fired == [name]
    monkeypatch.undo()
    # the last step comes after the rename
    assert ((one.parent / MARKS).read_bytes() == old) is (name != "file.folder")
    kept = listed(one).kept
    assert kept is not None and kept.reason == "the first"
    assert {p.name for p in one.parent.iterdir()} == {one.name, MARKS, files.LOCK}
    assert tree(one) == before


def test_short_writes(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, count = os.write, 0

    def short_write(fd: int, data: Any) -> int:
        nonlocal count
        count += 1
        return write(fd, bytes(data[: max(1, len(data) // 2)]))

    monkeypatch.setattr(os, "write", short_write)
    assert record(one) is None
    monkeypatch.undo()
    assert count > 5
    assert listed(one).checked is not None


@pytest.mark.parametrize("name", STEPS)
def test_a_kill_at_every_step(tmp_path: Path, one: Path, name: str) -> None:
    keep(str(one.parent), one.name, "the first", AT)
    again = killed_at(name, lambda: keep(str(one.parent), one.name, "the second", AT))
    assert again == -signal.SIGKILL
    kept = listed(one).kept
    assert kept is not None and kept.reason == ("the second" if name == "file.folder" else "the first")
    # what the kill left of the file goes with the next run that takes or removes one
    with files.snapshot_folder(one.parent):
        files.remove_unfinished(one.parent)
    assert {p.name for p in one.parent.iterdir()} == {one.name, MARKS, files.LOCK}
