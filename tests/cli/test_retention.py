"""`snapshot keep` and `snapshot expire` as a user runs them, and what `list` and `show` say of verdicts and marks."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mem0audit.core.marks import MARKS
from tests.builders import copy_store
from tests.cli.program import Ran, call, clean_environment
from tests.cli.test_snapshot import snapshot
from tests.operations.dated import dated, nights
from tests.operations.test_snapshot import take
from tests.report.test_json import check

JSON = ("--format", "json")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    return Path(take(copy_store("2.2.1-nlp", folder, pre_delete_all=True), folder / "snapshots").path)


@pytest.fixture
def folder(tmp_path: Path, original: Path) -> Path:
    where = tmp_path / "snapshots"
    dated(original, where, *nights(4))
    assert snapshot(tmp_path, "verify", "--to", str(where)).code == 0
    return where


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("20*"))


def test_list_and_show_say_verified_when_and_kept_why(tmp_path: Path, original: Path) -> None:
    where = tmp_path / "snapshots"
    first, second, third = dated(original, where, *nights(3))
    to = ("--to", str(where))
    assert snapshot(tmp_path, "verify", first.name, *to, "--deep").code == 0
    assert snapshot(tmp_path, "verify", second.name, *to, "--quick").code == 0
    (third / "history.db").unlink()
    assert snapshot(tmp_path, "verify", third.name, *to).code == 1
    assert snapshot(tmp_path, "keep", first.name, *to, "--reason", "before the move").code == 0
    lines = snapshot(tmp_path, "list", *to).out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line[:10] for line in lines[::2][:3]] == [one.name[:10] for one in (third, second, first)]
    assert re.fullmatch(r"    settled  NOT GOOD \d+ (s|min) ago", lines[1])
    assert lines[3] == "    settled  not verified"
    assert re.fullmatch(r"    settled  verified \d+ (s|min) ago, deep", lines[5])
    assert lines[6:] == ["    kept: before the move"]
    listed = check(snapshot(tmp_path, "list", *to, *JSON).out, "snapshots")["snapshots"]
    assert [one["verified"] and one["verified"]["good"] for one in listed] == [False, None, True]
    assert [one["kept"] and one["kept"]["reason"] for one in listed] == [None, None, "before the move"]
    shown = snapshot(tmp_path, "show", first.name, *to).out
    assert "again where they were put back" in shown and "before the move  since 20" in shown
    assert (
        check(snapshot(tmp_path, "show", first.name, *to, *JSON).out, "snapshot")["verified"]["depth"]
        == "deep"
    )
    assert "NOT GOOD at 20" in snapshot(tmp_path, "show", third.name, *to).out


def test_verify_says_where_it_is_not_recorded(tmp_path: Path, folder: Path) -> None:
    (folder / MARKS).write_text("{}")
    ran = snapshot(tmp_path, "verify", "--to", str(folder))
    assert ran.code == 0
    assert ran.err.splitlines() == [
        f"mem0audit: not recorded: {folder / MARKS}: is no file of marks of mem0audit's"
    ]
    told = check(snapshot(tmp_path, "verify", "--to", str(folder), *JSON).out, "verify")
    assert all("no file of marks" in one["not_recorded"] for one in told["snapshots"])
    assert snapshot(tmp_path, "verify", "--to", str(folder), "--quick").err == ""
    ran = snapshot(tmp_path, "list", "--to", str(folder))
    assert ran.code == 3
    assert ran.out.count("not known whether verified") == 4 and "no file of marks" in ran.err
    listed = check(snapshot(tmp_path, "list", "--to", str(folder), *JSON).out, "snapshots")
    assert "no file of marks" in listed["marks_problem"]
    assert snapshot(tmp_path, "show", nights(1)[0], "--to", str(folder)).code == 3
    assert snapshot(tmp_path, "expire", "--to", str(folder), "--keep-last", "1", "--yes").code == 3
    assert names(folder) == nights(4)


def test_verify_only_those_without_a_verdict(tmp_path: Path, folder: Path, original: Path) -> None:
    assert "Each has a verdict already" in snapshot(tmp_path, "verify", "--new", "--to", str(folder)).out
    (late,) = dated(original, folder, "2026-10-20T023000Z")
    (folder / nights(1)[0] / "history.db").unlink()
    ran = snapshot(tmp_path, "verify", "--new", "--to", str(folder))
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith(f"{late.name}  good")
    assert len(ran.out.splitlines()) == 2
    assert snapshot(tmp_path, "verify", "--new", "--quiet", "--to", str(folder)).out == ""
    assert snapshot(tmp_path, "verify", "--quiet", "--to", str(folder)).code == 1


def test_keep_and_off(tmp_path: Path, folder: Path) -> None:
    to = ("--to", str(folder))
    name = nights(1)[0]
    ran = snapshot(tmp_path, "keep", name, *to, "--reason", "it's é, before the move")
    assert (ran.code, ran.out) == (0, f"{folder / name} is kept: it's é, before the move\n")
    said = check(
        snapshot(tmp_path, "keep", str(folder / name), "--reason", "why", *JSON).out, "snapshot-keep"
    )
    assert (said["name"], said["kept"]["reason"]) == (name, "why")
    said = check(snapshot(tmp_path, "keep", name, *to, "--off", *JSON).out, "snapshot-keep")
    assert said["kept"] is None
    for words in ((), ("--off", "--reason", "x"), ("--reason", "two\nlines")):
        assert snapshot(tmp_path, "keep", name, *to, *words).code == 2
    assert snapshot(tmp_path, "keep", "2026-01-01T000000Z", *to, "--off").code == 3


def test_expire_says_why_each_one_stays(tmp_path: Path, folder: Path) -> None:
    to = ("--to", str(folder))
    snapshot(tmp_path, "keep", nights(4)[0], *to, "--reason", "before the move")
    policy = ("--keep-last", "1", "--keep-daily", "2", "--keep-monthly", "1", "--keep-within", "1d")
    ran = snapshot(tmp_path, "expire", *to, *policy, "--dry-run")
    assert ran.code == 0
    flat = " ".join(ran.out.split())
    assert (
        f"keep {nights(4)[3]} last 1 of 1; daily 2026-10-04; monthly 2026-10; within 1d; the last good pair "
        f"keep {nights(4)[2]} daily 2026-10-03; within 1d "
        f"remove {nights(4)[1]} no place is left for it "
        f"keep {nights(4)[0]} marked: before the move "
        "3 snapshots would stay, 1 would go:"
    ) in flat
    assert max(map(len, ran.out.splitlines())) <= 100
    assert names(folder) == nights(4)
    plan = check(snapshot(tmp_path, "expire", *to, *policy, "--dry-run", *JSON).out, "snapshot-expire")
    assert [one["action"] for one in plan["snapshots"]] == ["keep", "keep", "remove", "keep"]
    assert plan["dry_run"] and plan["removed"] == [] and plan["freed_bytes"] > 10_000
    ran = snapshot(tmp_path, "expire", *to, *policy, "--yes")
    assert ran.code == 0
    assert f"removed  {nights(4)[1]}" in ran.out and "Removed 1:" in ran.out
    assert names(folder) == [nights(4)[0], *nights(4)[2:]]
    done = check(snapshot(tmp_path, "expire", *to, "--keep-last", "1", "--yes", *JSON).out, "snapshot-expire")
    assert done["removed"] == [nights(4)[2]] and not done["dry_run"]
    assert snapshot(tmp_path, "expire", *to, *policy, "--yes", "--quiet").out == ""


def test_snapshots_of_two_installs_in_one_folder(tmp_path: Path, folder: Path, original: Path) -> None:
    (other,) = dated(original, folder, "2026-09-01T023000Z", hostname="elsewhere")
    to = ("--to", str(folder))
    assert snapshot(tmp_path, "verify", "--new", *to).code == 0
    (folder / nights(1)[0] / "manifest.json").unlink()
    ran = snapshot(tmp_path, "expire", *to, "--keep-last", "1", "--yes")
    assert ran.code == 3
    assert names(folder) == [other.name, nights(4)[0], nights(4)[3]]
    lines = ran.out.splitlines()
    heads = [line for line in lines if line.startswith(("elsewhere: ", "not known of which"))]
    assert len(heads) == 2
    assert lines.index(heads[0]) < lines.index(f"keep     {other.name}  last 1 of 1; the last good pair")
    told = check(
        snapshot(tmp_path, "expire", *to, "--keep-last", "1", "--dry-run", *JSON).out, "snapshot-expire"
    )
    assert [one["series"].partition(":")[0] for one in told["snapshots"]][1:] == ["elsewhere", ""]


def test_a_policy_is_asked_for(tmp_path: Path, folder: Path) -> None:
    for words in (
        (),
        ("--keep-last", "0"),
        ("--keep-daily", "-1"),
        ("--keep-within", "30"),
        ("--keep-within", "0d"),
    ):
        ran = snapshot(tmp_path, "expire", "--to", str(folder), "--yes", *words)
        assert (ran.code, ran.out) == (2, ""), words
    assert names(folder) == nights(4)
    assert "a policy that keeps nothing is none" in snapshot(tmp_path, "expire", "--to", str(folder)).err


def test_without_terminal_and_yes_nothing_goes(tmp_path: Path, folder: Path) -> None:
    ran = snapshot(tmp_path, "expire", "--to", str(folder), "--keep-last", "1")
    assert ran.code == 4
    assert "3 would go" in ran.out
    assert "not confirmed" in ran.err and "--yes" in ran.err
    assert names(folder) == nights(4)
    # nothing to ask where nothing goes
    assert snapshot(tmp_path, "expire", "--to", str(folder), "--keep-last", "9").code == 0


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", 1), (b"\n", 4), (b"no\n", 4)])
def test_at_a_terminal_it_asks(tmp_path: Path, folder: Path, answer: bytes, left: int) -> None:
    parent, child = pty.openpty()
    words = ["snapshot", "expire", "--to", str(folder), "--keep-last", "1"]
    running = subprocess.Popen(
        [sys.executable, "-m", "mem0audit", *words],
        stdin=child,
        stdout=subprocess.PIPE,
        stderr=child,
        env=clean_environment(tmp_path),
    )
    os.close(child)
    said = b""
    end = time.monotonic() + 300
    while b"[y/N]" not in said and time.monotonic() < end:
        said += os.read(parent, 1000)
    assert b"Remove 3 of 4 snapshots? [y/N]" in said
    os.write(parent, answer)
    out, _ = running.communicate(timeout=300)
    os.close(parent)
    assert running.returncode == (0 if left == 1 else 4)
    assert (b"Removed 3:" in out) is (left == 1)
    assert len(names(folder)) == left


def test_a_damaged_manifest_stays_and_is_exit_3(tmp_path: Path, folder: Path) -> None:
    (folder / nights(1)[0] / "manifest.json").unlink()
    ran = snapshot(tmp_path, "expire", "--to", str(folder), "--keep-last", "1", "--yes", "--quiet")
    assert ran.code == 3
    assert "manifest.json is missing; expire removes no snapshot with a damaged manifest" in " ".join(
        ran.out.split()
    )
    assert names(folder) == [nights(4)[0], nights(4)[3]]


def test_what_is_not_verified_is_said(tmp_path: Path, original: Path) -> None:
    dated(original, tmp_path / "snapshots", *nights(3))
    to = ("--to", str(tmp_path / "snapshots"))
    ran = snapshot(tmp_path, "expire", *to, "--keep-last", "1", "--yes")
    assert ran.code == 0
    assert "3 snapshots are not verified: such a one uses up no place" in ran.out
    command = ran.out.splitlines()[-1].split()
    assert command[0] == "mem0audit"
    verified: Ran = call(tmp_path, *command[1:])
    assert verified.code == 0
    assert snapshot(tmp_path, "expire", *to, "--keep-last", "1", "--yes").code == 0
    assert names(tmp_path / "snapshots") == [nights(3)[2]]


def test_the_help_says_what_does_not_count(tmp_path: Path) -> None:
    text = " ".join(snapshot(tmp_path, "expire", "--help").out.split())
    for part in ("Only a good one uses up a place", "may be the better copy", "the last good pair"):
        assert part in text
