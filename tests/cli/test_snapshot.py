"""`mem0audit snapshot` as a user runs it: screens, JSON, exit codes, and no memory text anywhere."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.builders import StoreCopy, copy_store
from tests.cli.program import Ran, call, clean_environment, run
from tests.report.test_json import check

SECRETS = ("SECRETCAROL", "Quito", "vegetarian")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)


def flags(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


def snapshot(home: Path, *words: str, **env: str) -> Ran:
    ran = call(home, "snapshot", *words, env=env)
    said = ran.out + ran.err
    assert not [secret for secret in SECRETS if secret in said]
    return ran


def taken(home: Path, store: StoreCopy, *words: str) -> Path:
    ran = snapshot(home, "create", "--to", str(home / "snapshots"), *flags(store), *words)
    assert ran.code == 0, ran.err
    return sorted((home / "snapshots").glob("20*"))[-1]


def test_the_stores_hold_what_must_not_be_printed(store: StoreCopy) -> None:
    data = store.history.read_bytes()
    assert any(secret.encode() in data for secret in SECRETS)


def test_create_list_show_verify(tmp_path: Path, store: StoreCopy) -> None:
    folder = str(tmp_path / "snapshots")
    ran = snapshot(tmp_path, "create", "--to", folder, *flags(store))
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    (path,) = (tmp_path / "snapshots").glob("20*")
    assert lines[0].startswith(str(path))
    assert "27 memories" in ran.out and "Settled: no write" in ran.out
    assert lines[-1] == f"Check it:   mem0audit snapshot verify {path}"
    assert max(len(line) for line in lines if not line.startswith(("/", "Check"))) <= 100

    ran = snapshot(tmp_path, "list", "--to", folder)
    assert ran.code == 0
    assert ran.out.startswith(f"{path.name}  0 s old") or ran.out.startswith(path.name)
    assert ran.out.rstrip().endswith("  settled  not verified")

    ran = snapshot(tmp_path, "show", path.name, "--to", folder)
    assert ran.code == 0
    assert str(store.history) in ran.out and "history.db" in ran.out
    by_path = snapshot(tmp_path, "show", str(path)).out
    assert re.sub(r"\d+ (s|min) ago *", "", by_path) == re.sub(r"\d+ (s|min) ago *", "", ran.out)

    for words in ((str(path),), ("--to", folder), (path.name, "--to", folder), (folder,), ("snapshots",)):
        for depth in ((), ("--quick",), ("--deep",)):
            ran = snapshot(tmp_path, "verify", *words, *depth)
            assert ran.code == 0, (words, ran.out, ran.err)
            assert f"{path.name}  good" in ran.out


def test_a_snapshot_that_fails_is_exit_1_and_named(tmp_path: Path, store: StoreCopy) -> None:
    path = taken(tmp_path, store)
    file = path / "qdrant/collection/mem0/storage.sqlite"
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data)
    assert snapshot(tmp_path, "verify", str(path), "--quick").code == 0  # sizes only, and it says so
    ran = snapshot(tmp_path, "verify", str(path))
    assert ran.code == 1
    assert "NOT GOOD" in ran.out
    assert "qdrant/collection/mem0/storage.sqlite: its bytes are not those that were written" in ran.out
    assert "good" not in ran.out
    # one bad one among good ones
    taken(tmp_path, store)
    ran = snapshot(tmp_path, "verify", "--to", str(tmp_path / "snapshots"))
    assert ran.code == 1
    assert ran.out.count("NOT GOOD") == 1 and "  good  " in ran.out


def test_json(tmp_path: Path, store: StoreCopy) -> None:
    folder = str(tmp_path / "snapshots")
    json_ = ("--format", "json")
    plan = check(
        snapshot(tmp_path, "create", "--to", folder, "--dry-run", *flags(store), *json_).out, "snapshot-plan"
    )
    assert {f["path"] for f in plan["files"]} >= {"history.db", "qdrant/collection/mem0/storage.sqlite"}
    made = check(snapshot(tmp_path, "create", "--to", folder, *flags(store), *json_).out, "snapshot")
    path = Path(made["path"])
    listed = check(snapshot(tmp_path, "list", "--to", folder, *json_).out, "snapshots")
    assert [one["manifest"] for one in listed["snapshots"]] == [made["manifest"]]
    shown = check(snapshot(tmp_path, "show", str(path), *json_).out, "snapshot")
    assert shown["manifest"] == made["manifest"]
    own: dict[str, Any] = json.loads((path / "manifest.json").read_text())
    assert own.pop("kind") == "mem0audit-snapshot" and own.pop("format") == 1
    assert own == made["manifest"]
    told = check(snapshot(tmp_path, "verify", str(path), *json_).out, "verify")
    assert told["snapshots"][0]["good"] is True
    (path / "manifest.json").unlink()
    told = check(snapshot(tmp_path, "verify", str(path), *json_).out, "verify")
    assert told["snapshots"][0]["good"] is False
    listed = check(snapshot(tmp_path, "list", "--to", folder, *json_).out, "snapshots")
    assert listed["snapshots"][0]["problem"] == "manifest.json is missing"


def test_a_dry_run_changes_nothing(tmp_path: Path, store: StoreCopy) -> None:
    before = sorted(tmp_path.rglob("*"))
    ran = snapshot(tmp_path, "create", "--to", str(tmp_path / "snapshots"), "--dry-run", *flags(store))
    assert ran.code == 0
    assert "has changed nothing" in ran.out
    assert sorted(tmp_path.rglob("*")) == before
    command = ran.out.splitlines()[-1].partition("   ")[2]
    assert command.startswith("mem0audit snapshot create --history ")
    done = subprocess.run(
        ["sh", "-c", command.replace("mem0audit", f"{sys.executable} -m mem0audit", 1)],
        env=clean_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "snapshots").glob("20*"))) == 1


def test_where_to_is_asked_for_or_set(tmp_path: Path, store: StoreCopy) -> None:
    for words in (("create", *flags(store)), ("list",), ("verify",), ("show", "2026-11-29T023000Z")):
        ran = snapshot(tmp_path, *words)
        assert ran.code == 2
        assert "no folder for snapshots is named" in ran.err and "--to" in ran.err
    (tmp_path / "mem0audit.toml").write_text('snapshot_dir = "kept"\n')
    assert snapshot(tmp_path, "create", *flags(store)).code == 0
    (path,) = (tmp_path / "kept").glob("20*")
    assert path.name in snapshot(tmp_path, "list").out
    assert snapshot(tmp_path, "verify").code == 0
    assert snapshot(tmp_path, "show", path.name).code == 0


def test_what_is_no_snapshot(tmp_path: Path, store: StoreCopy) -> None:
    for words, says in (
        (("verify", str(store.vectors)), "holds a Qdrant folder without a log"),
        (("verify", str(store.mem0_dir)), "holds a log without a Qdrant folder"),
        (("verify", str(tmp_path / "nowhere")), "there is no such snapshot"),
        (("list", "--to", str(tmp_path / "nowhere")), "there is no such folder"),
        (("show", "2026-11-29T023000Z", "--to", str(tmp_path)), "there is no such snapshot"),
    ):
        ran = snapshot(tmp_path, *words)
        assert (ran.code, ran.out) == (3, ""), words
        assert says in ran.err
    assert (
        f"all of them: mem0audit snapshot list --to {tmp_path}\n"
        in snapshot(tmp_path, "show", "x", "--to", str(tmp_path)).err
    )
    ran = snapshot(tmp_path, "list", "--to", str(tmp_path))
    assert ran.code == 0
    assert f"mem0audit snapshot create --to {tmp_path}" in ran.out


def test_refused_and_failed(tmp_path: Path, store: StoreCopy) -> None:
    ran = snapshot(tmp_path, "create", "--to", str(store.vectors / "x"), *flags(store))
    assert (ran.code, ran.out) == (4, "")
    assert "inside the vector store" in ran.err
    ran = snapshot(tmp_path, "create", "--to", str(tmp_path / "snapshots"))
    assert ran.code == 3
    assert "is not there" in ran.err
    file = store.vectors / "collection/mem0/storage.sqlite"
    data = bytearray(file.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    file.write_bytes(data)
    ran = snapshot(tmp_path, "create", "--to", str(tmp_path / "snapshots"), *flags(store))
    assert (ran.code, ran.out) == (5, "")
    assert "damaged" in ran.err and "explain I202" in ran.err
    assert "verify: --quick and --deep" in snapshot(tmp_path, "verify", "--quick", "--deep").err.replace(
        "mem0audit: ", "verify: "
    )


def test_quiet_is_for_cron(tmp_path: Path, store: StoreCopy) -> None:
    ran = snapshot(tmp_path, "create", "--quiet", "--to", str(tmp_path / "snapshots"), *flags(store))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert len(list((tmp_path / "snapshots").glob("20*"))) == 1


def test_relative_and_hostile_folders(tmp_path: Path, store: StoreCopy) -> None:
    name = "it's a $HOME \x1b[31m"
    ran = snapshot(tmp_path, "create", "--to", name, *flags(store))
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out
    (path,) = (tmp_path / name).glob("20*")
    assert snapshot(tmp_path, "verify", "--to", name).code == 0
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o700, 0o700)


def test_a_write_that_fails_is_exit_5_and_a_line(tmp_path: Path, store: StoreCopy) -> None:
    """The real program, under a limit on how large a file may grow (RLIMIT_FSIZE), as on a full disk."""
    first = taken(tmp_path, store)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    words = ("snapshot", "create", "--to", str(tmp_path / "snapshots"), *flags(store))
    ran = run(tmp_path, *words, preexec_fn=limit)
    assert (ran.code, ran.out) == (5, "")
    assert "no snapshot was taken, earlier ones are as they were" in ran.err
    assert "Traceback" not in ran.err
    left = {p.name for p in (tmp_path / "snapshots").iterdir()}
    assert left == {first.name, ".mem0audit.lock", "erasures.json"}
    assert snapshot(tmp_path, "verify", str(first)).code == 0
    assert run(tmp_path, *words).code == 0


@pytest.mark.thorough
def test_no_report_is_written_over_a_snapshot_or_a_database(tmp_path: Path, store: StoreCopy) -> None:
    words = flags(store)
    kept = taken(tmp_path, store)
    to = kept.parent
    ledger = next((tmp_path / ".local/state/mem0audit").glob("*.sqlite"))
    link = tmp_path / "link"
    link.symlink_to(kept / "manifest.json")
    moved = tmp_path / "elsewhere"
    shutil.copytree(kept, moved)
    aside = tmp_path / "history.db.replaced-2026-11-29T023000Z"
    shutil.copy(store.history, aside)
    targets = (
        kept / "manifest.json", kept / "new.txt", kept / "qdrant" / "new.txt", to / "erasures.json",
        to / "new.txt", link, ledger, moved / "manifest.json", aside, store.vectors / "new.txt",
    )  # fmt: skip
    commands = (
        ("audit", *words), ("snapshot", "create", "--to", str(to), *words),
        ("snapshot", "verify", str(to)), ("snapshot", "expire", "--to", str(to), "--keep-last", "1", "--yes"),
        ("snapshot", "diff", str(kept), "live", *words), ("audit", "--snapshot", str(kept)),
    )  # fmt: skip
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for target in targets:
        for command in commands:
            ran = call(tmp_path, *command, "-o", str(target))
            assert (ran.code, ran.out) == (4, ""), (command, target, ran.err)
            assert ran.err.startswith(f"mem0audit: -o {target}: ")
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_no_path_forges_a_line(tmp_path: Path, store: StoreCopy) -> None:
    """A folder's name may hold a newline; every command that is printed is one line, and is one to a shell too."""
    to = tmp_path / "a\nmem0audit: all is well 'x' \u2028"
    assert snapshot(tmp_path, "create", "--to", str(to), *flags(store)).code == 0
    (kept,) = to.glob("20*")
    with (kept / "manifest.json").open("a") as manifest:
        manifest.write("x")
    commands = (
        ("snapshot", "show", str(kept)),
        ("snapshot", "restore", str(kept), "--to", "new"),
        ("snapshot", "restore", str(kept)),
        ("snapshot", "diff", str(kept), "live", *flags(store)),
        ("audit", "--snapshot", str(kept)),
        ("audit", *flags(store)),
    )
    for words in commands:
        ran = call(tmp_path, *words)
        said = ran.out + ran.err
        assert not [line for line in said.splitlines() if line.startswith("mem0audit: all is well")], words
        printed = [line.partition("mem0audit snapshot ")[2] for line in said.splitlines() if "$'" in line]
        assert printed, (words, said)
        for line in printed:
            done = subprocess.run(
                ["bash", "-c", f'printf "%s\\0" {line}'], capture_output=True, check=True, text=True
            )
            assert str(kept) in done.stdout.split("\0"), (words, line)
