"""Expiry of real snapshots: what goes is what the policy says, and a fault leaves nothing listed that fails verify."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import RECORD, erasures_text, make_erasure
from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.marks import MARKS
from mem0audit.core.model import SeenSnapshot, Snapshots
from mem0audit.core.retention import BEFORE_LOSS, THE_LAST, Policy
from mem0audit.core.times import instant
from mem0audit.operations.expire import Expired, expire, overdue, plan_expire, remove_overdue
from mem0audit.operations.marks import keep, read_marks, verify_and_record
from mem0audit.operations.verify import list_snapshots, verify
from mem0audit.stores import files
from tests.builders import copy_store
from tests.operations.dated import dated, nights
from tests.operations.test_snapshot import ROOT, in_child, mounted, needs_root, take, tree

NOW = 1_796_000_000.0
"""2026-11-30 00:53:20Z."""
TWO = Policy(daily=2)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    return Path(take(copy_store("2.2.1", folder), folder / "snapshots").path)


def verified(*paths: Path) -> list[Path]:
    for path in paths:
        assert verify_and_record(str(path), now=lambda: NOW).not_recorded is None
    return list(paths)


@pytest.fixture(scope="module")
def five_kept(tmp_path_factory: pytest.TempPathFactory, original: Path) -> Path:
    folder = tmp_path_factory.mktemp("five") / "snapshots"
    verified(*dated(original, folder, *nights(5)))
    return folder


@pytest.fixture
def five(tmp_path: Path, five_kept: Path) -> Path:
    """A folder of five nights, all verified."""
    return Path(shutil.copytree(five_kept, tmp_path / "snapshots"))


def names(folder: Path) -> list[str]:
    return [one.name for one in list_snapshots(str(folder))]


def run(folder: Path, policy: Policy = TWO) -> Expired:
    return expire(plan_expire(str(folder), policy, NOW))


def test_what_the_policy_has_no_place_for_goes(five: Path) -> None:
    before = {name: tree(five / name) for name in nights(5)}
    plan = plan_expire(str(five), TWO, NOW)
    assert names(five) == nights(5)[::-1]
    assert {name: tree(five / name) for name in nights(5)} == before
    assert [one.snapshot.name for one in plan.kept] == nights(5)[:-3:-1]
    done = expire(plan)
    assert done.removed == tuple(nights(5)[:3])  # the oldest first
    assert names(five) == nights(5)[:-3:-1]
    assert tree(five / nights(5)[4]) == before[nights(5)[4]]
    assert set(read_marks(five)) == set(nights(5)[3:])
    assert {p.name for p in five.iterdir()} == {*nights(5)[3:], MARKS, files.LOCK}
    again = run(five)
    assert (again.removed, again.cleared, again.spared) == ((), (), ())


def test_a_full_store_stays_beside_nights_of_the_emptied_one(tmp_path: Path) -> None:
    store, folder = copy_store("2.2.1", tmp_path), tmp_path / "snapshots"
    full = Path(take(store, folder).path)
    with closing(sqlite3.connect(store.vectors / "collection" / "mem0" / "storage.sqlite")) as points:
        points.execute("DELETE FROM points")
        points.commit()
    emptied = [Path(take(store, folder).path) for _ in range(2)]
    verified(full, *emptied)
    plan = plan_expire(str(folder), Policy(last=1), time.time() + 60)
    reasons = {one.snapshot.name: one.reasons for one in plan.decisions if one.keep}
    assert reasons == {emptied[1].name: ("last 1 of 1", THE_LAST), full.name: (BEFORE_LOSS,)}
    assert expire(plan).removed == (emptied[0].name,)


def test_the_only_one_of_somebody_erased_since_may_go(five: Path) -> None:
    """It is kept by the policy alone: the last good pair is the newest one without them."""
    oldest, *_, newest = nights(5)
    at = (instant(list_snapshots(str(five))[-1].manifest.created_at) or 0) + 3600  # type: ignore[union-attr]
    (five / RECORD).write_text(erasures_text([make_erasure(at, "0" * 32, ("alice", None, None))]))
    plan = plan_expire(str(five), Policy(weekly=1), NOW)
    reasons = {one.snapshot.name: one.reasons for one in plan.decisions}
    assert len(reasons[newest]) == 2
    assert reasons[newest][1] == THE_LAST
    assert reasons[oldest] == ("holds 10 memories of somebody erased since",)
    every = [make_erasure(NOW, "1" * 32, ("alice", None, None))]
    (five / RECORD).write_text(erasures_text(every))
    plan = plan_expire(str(five), Policy(weekly=1), NOW)
    assert [len(one.reasons) for one in plan.decisions if one.keep] == [1]


def test_an_empty_policy_is_refused(five: Path) -> None:
    with pytest.raises(UsageProblem, match="keeps nothing"):
        plan_expire(str(five), Policy(), NOW)


def test_only_what_is_verified_uses_up_a_place(tmp_path: Path, original: Path) -> None:
    folder = tmp_path / "snapshots"
    made = dated(original, folder, *nights(5))
    assert run(folder).removed == ()  # none is verified
    assert verify_and_record(str(made[0]), "quick").not_recorded is not None
    assert verify_and_record(str(made[1]), "quick").not_recorded is not None
    assert run(folder).removed == ()  # nor does a quick look count
    verified(made[0], made[1], made[2])
    done = run(folder)
    assert done.removed == (nights(5)[0],)
    assert names(folder) == nights(5)[:0:-1]
    by_name = {one.snapshot.name: one.reasons for one in done.plan.decisions}
    assert by_name[nights(5)[4]] == ("not verified; would be daily 2026-10-05",)
    assert THE_LAST in by_name[nights(5)[2]]


def test_what_lost_a_file_since_is_not_good(five: Path) -> None:
    """The newest verified one has lost its log: then it takes no place, and the last good pair is another."""
    (five / nights(5)[4] / "history.db").unlink()
    done = run(five, Policy(last=1))
    by_name = {one.snapshot.name: one for one in done.plan.decisions}
    assert by_name[nights(5)[4]].reasons == ("bad (history.db is missing); would be last 1 of 1",)
    assert by_name[nights(5)[3]].reasons == ("last 1 of 1", THE_LAST)
    assert names(five) == nights(5)[:-3:-1]


def test_one_found_bad_goes_when_the_policy_would_not_keep_it_anyway(five: Path) -> None:
    for night in (0, 4):
        path = five / nights(5)[night] / "history.db"
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        assert verify_and_record(str(path.parent), now=lambda: NOW).not_recorded is None
    plan = plan_expire(str(five), TWO, NOW)
    by_name = {one.snapshot.name: one for one in plan.decisions}
    assert by_name[nights(5)[4]].keep
    assert not by_name[nights(5)[0]].keep
    assert by_name[nights(5)[0]].reasons[0].startswith("bad (verify, 2026-11-30 00:53:20Z: history.db ")


def test_a_damaged_manifest_is_never_removed_and_is_said(five: Path) -> None:
    (five / nights(5)[0] / "manifest.json").write_text("{}")
    (five / nights(5)[1] / "manifest.json.sha256").unlink()
    (five / nights(5)[2]).rename(five / "2026-09-09T023000Z")
    done = run(five, Policy(last=1))
    assert {one.snapshot.name: one.reasons[0].partition(";")[0] for one in done.plan.damaged} == {
        nights(5)[0]: "manifest.json is not the one that manifest.json.sha256 was made of",
        nights(5)[1]: "manifest.json.sha256 is missing",
        "2026-09-09T023000Z": f"its manifest is that of {nights(5)[2]}",
    }
    assert done.removed == (nights(5)[3],)


def test_unsettled_ones_and_those_that_are_no_pair(tmp_path: Path, original: Path) -> None:
    folder = tmp_path / "snapshots"
    verified(*dated(original, folder, *nights(2)))
    verified(*dated(original, folder, *nights(3, "2026-11"), settled=False, unsettled_why="never still"))
    verified(*dated(original, folder, "2026-11-09T023000Z", pair=False))
    done = run(folder, Policy(last=1))
    by_name = {one.snapshot.name: one.reasons for one in done.plan.kept}
    assert by_name == {
        "2026-11-09T023000Z": ("not settled (its halves were not taken as a pair); would be last 1 of 1",),
        nights(2)[1]: ("last 1 of 1", THE_LAST),
    }


def test_a_mark_keeps_one_whatever_the_policy(five: Path) -> None:
    keep(str(five), nights(5)[1], "before the move", NOW)
    done = run(five, Policy(last=1))
    assert names(five) == [nights(5)[4], nights(5)[1]]
    assert {one.snapshot.name: one.reasons for one in done.plan.kept}[nights(5)[1]] == (
        "marked: before the move",
    )


def test_one_marked_after_the_plan_stays(five: Path) -> None:
    plan = plan_expire(str(five), TWO, NOW)
    keep(str(five), nights(5)[1], "before the move", NOW)
    done = expire(plan)
    assert done.spared == (nights(5)[1],)
    assert names(five) == [nights(5)[4], nights(5)[3], nights(5)[1]]


def test_what_was_not_planned_does_not_go(five: Path, original: Path) -> None:
    """A newer one came after the question was asked: it takes a place, and its loser was not named."""
    plan = plan_expire(str(five), TWO, NOW)
    verified(*dated(original, five, "2026-10-06T023000Z"))
    done = expire(plan)
    assert done.removed == tuple(nights(5)[:3])
    assert names(five) == ["2026-10-06T023000Z", *nights(5)[:-3:-1]]


def test_the_better_copy_gone_after_the_plan(five: Path) -> None:
    plan = plan_expire(str(five), TWO, NOW)
    shutil.rmtree(five / nights(5)[4])
    done = expire(plan)
    assert done.spared == (nights(5)[2],)
    assert names(five) == [nights(5)[3], nights(5)[2]]


def test_marks_that_do_not_read_stop_it(five: Path) -> None:
    (five / MARKS).write_text("{}")
    with pytest.raises(CouldNotRead, match="is no file of marks"):
        run(five)
    assert names(five) == nights(5)[::-1]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CouldNotRead):
        run(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_another_run_is_named(five: Path) -> None:
    with files.snapshot_folder(five), pytest.raises(Refused, match="another mem0audit"):
        run(five)
    assert names(five) == nights(5)[::-1]


def test_other_things_in_the_folder_stay(five: Path, tmp_path: Path) -> None:
    (five / "notes.txt").write_text("mine")
    (five / ".removing-mine").mkdir()
    (tmp_path / "kept").mkdir()
    (five / ".removing-2026-01-01T000000Z").symlink_to(tmp_path / "kept")
    (five / "2026-01-01T000000Z").symlink_to(five / nights(5)[0])
    with pytest.raises(Failed, match="cannot be removed"):
        run(five)  # a link under our own hidden name: it is said, and not touched
    assert (tmp_path / "kept").is_dir()
    (five / ".removing-2026-01-01T000000Z").unlink()
    run(five)
    assert {p.name for p in five.iterdir()} == {
        *nights(5)[3:],
        *("notes.txt", ".removing-mine", "2026-01-01T000000Z", MARKS, files.LOCK),
    }


# --- faults --------------------------------------------------------------------------------------------

STEPS = {
    *("snapshot.folder", "snapshot.lock", "snapshot.lock.write", "snapshot.clean", "expire.clean"),
    *("marks.clean", "expire.rename", "expire.renamed", "snapshot.fsync", "expire.remove", "expire.removed"),
    *("file.create", "file.write", "file.fsync", "file.rename", "file.folder"),
}
OF_THE_MARKS = {name for name in STEPS if name.startswith("file.")}
"""These come last: what is known of a snapshot that is gone is forgotten, now or later."""


def leave_leftovers(folder: Path, original: Path) -> None:
    (folder / ".taking-2026-09-01T000000Z").mkdir()
    shutil.copytree(original, folder / ".removing-2026-09-02T000000Z")
    (folder / f".{MARKS}.abcd1234").write_text("half")


def check_after_a_fault(folder: Path, before: dict[str, dict[str, str]], where: Any) -> None:
    """What is listed is whole, at least what the policy keeps is listed, and the same command ends clean."""
    listed = names(folder)
    assert set(nights(5)[3:]) <= set(listed) <= set(nights(5)), where
    for name in listed:
        assert tree(folder / name) == before[name], where
        assert verify(str(folder / name)).good, where
    run(folder)
    assert {p.name for p in folder.iterdir()} == {*nights(5)[3:], MARKS, files.LOCK}, where
    # the marks of what is gone may be there until something is recorded again
    assert verify_and_record(str(folder / nights(5)[4]), "deep").not_recorded is None
    assert set(read_marks(folder)) == set(nights(5)[3:]), where


def test_the_steps_are_these(five: Path, original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    leave_leftovers(five, original)
    monkeypatch.setattr(files, "step", seen.append)
    done = run(five)
    assert set(seen) == STEPS
    assert done.cleared == (
        f".{MARKS}.abcd1234",
        ".removing-2026-09-02T000000Z",
        ".taking-2026-09-01T000000Z",
    )


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("name", sorted(STEPS))
def test_an_error_at_every_step(
    five: Path, original: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    before = {night: tree(five / night) for night in nights(5)}
    leave_leftovers(five, original)
    # a removal: the first, and one in the middle
    for number in (1, 2) if name.startswith("expire.re") else (1,):
        left = number
        fired = False

        def fail(step: str) -> None:
            nonlocal left, fired
            if step == name:
                left -= 1
                if left == 0:
                    fired = True
                    raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(files, "step", fail)
            if name in OF_THE_MARKS:
                assert len(run(five).removed) == 3
            else:
                with pytest.raises(Failed) as problem:
                    run(five)
                assert "every snapshot that is listed is whole" in problem.value.message
        assert fired
    check_after_a_fault(five, before, name)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(folder: Path, name: str) -> int:
    """Killed at that step, or at the third file that it removes."""
    files.step = lambda this: die() if this == name else None
    if name == "half-way":
        unlink, count = os.unlink, itertools.count(1)

        def stop(*words: Any, **named: Any) -> None:
            if next(count) == 3:
                die()
            unlink(*words, **named)

        os.unlink = stop  # type: ignore[assignment]
    run(folder)
    return 0


@pytest.mark.parametrize("name", [*sorted(STEPS), "half-way"])
def test_a_kill_at_every_step(five: Path, original: Path, name: str) -> None:
    before = {night: tree(five / night) for night in nights(5)}
    if name != "half-way":
        leave_leftovers(five, original)
    assert in_child(lambda: killed(five, name)) == -signal.SIGKILL
    if name == "half-way":
        assert list(five.glob(".removing-*"))
    check_after_a_fault(five, before, name)


@pytest.mark.root
def test_a_full_disk_is_made_room_on(durable: Path, original: Path) -> None:
    """Where not even the lock's few bytes fit any more, an expiry still frees space."""
    needs_root()
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    image = durable / "image"
    image.write_bytes(b"\0" * (2 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal,^inline_data", "-m", "0", str(image)], check=True)
    with mounted(durable / "small", "-o", "loop", str(image)) as point:
        folder = point / "snapshots"
        verified(*dated(original, folder, *nights(5)))
        before = {night: tree(folder / night) for night in nights(5)}
        (folder / files.LOCK).unlink()  # else its own block is there to be used again
        filling = (point / "filler").open("wb", buffering=0)
        with filling as filler, pytest.raises(OSError, match="No space left"):
            while True:
                filler.write(b"x" * 512)
        with pytest.raises(OSError, match="No space left"):
            (folder / "more").write_bytes(b"x" * 4096)
        (folder / "more").unlink()
        why = verify_and_record(str(folder / nights(5)[4])).not_recorded
        assert why is not None and "no space left" in why
        assert run(folder).removed == tuple(nights(5)[:3])
        assert not list(folder.glob(".removing-*"))
        (point / "filler").unlink()
        check_after_a_fault(folder, before, "full")


FROM_OUTSIDE = """
import sys
sys.path.insert(0, sys.argv[1])
from mem0audit.core.errors import Failed
from mem0audit.core.retention import Policy
from mem0audit.operations.expire import expire, plan_expire
try:
    expire(plan_expire(sys.argv[2], Policy(daily=2), float(sys.argv[3])))
except Failed:
    sys.exit(5)
"""


@pytest.mark.parametrize("fault", ["error=EIO", "signal=SIGKILL"])
@pytest.mark.parametrize(("call", "number"), [("rename", 2), ("rename", 4), ("fsync", 1), ("unlinkat", 5)])
def test_faults_from_outside(tmp_path: Path, five: Path, fault: str, call: str, number: int) -> None:
    """The kernel's own answers, by strace: the same must hold where our steps do not stand. The fourth rename and
    fsync are those of the marks."""
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    before = {night: tree(five / night) for night in nights(5)}
    log = tmp_path / "strace.log"
    words = [
        "strace",
        "-f",
        "-o",
        str(log),
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:{fault}:when={number}",
    ]
    words += [sys.executable, "-c", FROM_OUTSIDE, str(ROOT), str(five), str(NOW)]
    # nothing else may call it first: no byte code is written
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    said = log.read_text()
    if "ptrace" in done.stderr and not said:
        pytest.skip("strace may not trace here")
    if fault.startswith("signal"):
        assert "killed by SIGKILL" in said
    else:
        assert "(INJECTED)" in said
        assert done.returncode == (0 if number == 4 else 5), done.stderr
    check_after_a_fault(five, before, (fault, call, number))


def test_what_cannot_be_removed_keeps_no_snapshot_from_being_taken(
    tmp_path: Path, five: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal that fails half-way is expire's to say, each time; `create` goes on."""
    rmtree = shutil.rmtree

    def stuck(path: Any, *words: Any, **named: Any) -> None:
        if ".removing-" in str(path):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        rmtree(path, *words, **named)

    monkeypatch.setattr(shutil, "rmtree", stuck)
    with pytest.raises(Failed, match="operation not permitted; none was removed before"):
        run(five)
    assert names(five) == nights(5)[:0:-1]
    with pytest.raises(Failed, match="what an earlier run began to remove cannot be removed"):
        run(five)
    store = copy_store("2.2.1", tmp_path)
    assert take(store, five).removed == ()
    monkeypatch.undo()
    assert run(five, Policy(daily=9)).cleared == (f".removing-{nights(5)[0]}",)


def test_beside_a_snapshot_that_is_taken(tmp_path: Path, five: Path, original: Path) -> None:
    """`create` clears away what an expiry that was killed left."""
    shutil.copytree(original, five / ".removing-2026-09-02T000000Z")
    done = take(copy_store("2.2.1", tmp_path), five)
    assert done.removed == (".removing-2026-09-02T000000Z",)


def test_a_short_lived_one_goes_even_if_it_is_the_only_good_pair(tmp_path: Path, original: Path) -> None:
    folder = tmp_path / "snapshots"
    (path,) = verified(*dated(original, folder, "2026-11-29T023000Z", until="2026-11-30 00:00:00Z"))
    with pytest.raises(Refused, match="was taken before a deletion to go at 2026-11-30 00:00:00Z"):
        keep(None, str(path), "all the same", NOW)
    early = plan_expire(str(folder), TWO, NOW - 3600)
    assert [one.reasons for one in early.kept] == [("short-lived, until 2026-11-30 00:00:00Z",)]
    assert run(folder).removed == (path.name,)


def test_the_next_command_removes_a_short_lived_one(tmp_path: Path, original: Path) -> None:
    folder = tmp_path / "snapshots"
    over, not_yet, lasting = "2026-11-29T023000Z", "2026-11-29T033000Z", "2026-11-29T043000Z"
    dated(original, folder, over, until="2026-11-30 00:00:00Z")
    dated(original, folder, not_yet, until="2026-11-30 06:00:00Z")
    dated(original, folder, lasting)
    folders = [str(folder), str(tmp_path / "none")]
    assert overdue(folders, NOW) == (str(folder / over),)
    assert remove_overdue(overdue(folders, NOW)) == ((str(folder / over),), ())
    assert names(folder) == [lasting, not_yet]
    later = overdue(folders, NOW + 86_400)
    assert later == (str(folder / not_yet),)
    with files.snapshot_folder(folder):
        gone, problems = remove_overdue(later)
    assert (gone, len(problems)) == ((), 1)  # somebody works there
    assert names(folder) == [lasting, not_yet]
    seen = [SeenSnapshot(name, name, 1.0, until=until) for name, until in (("a", None), ("b", NOW))]
    known = Snapshots((), tuple(seen), (), 1.0, NOW)
    assert known.newest_good == known.before_loss(1) == seen[0]  # it is no way back
