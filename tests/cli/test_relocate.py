"""`mem0audit relocate` as a user runs it: screens, JSON, confirmation, exit codes, and no memory text."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders import StoreCopy, copy_store
from tests.cli.program import Ran, call, run
from tests.operations.test_restore import agent, halves
from tests.operations.test_snapshot import mounted, needs_root
from tests.report.test_json import check

SECRETS = ("SECRETCAROL", "Quito", "vegetarian")


@pytest.fixture
def store(durable: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", durable, pre_delete_all=True)


def flags(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


def relocate(home: Path, *words: str, width: int = 100) -> Ran:
    ran = call(home, "relocate", *words, env={"COLUMNS": str(width)})
    assert not [secret for secret in SECRETS if secret in ran.out + ran.err]
    assert "Traceback" not in ran.err
    return ran


def printed(text: str, label: str) -> list[str]:
    """The words of the command that is printed after a label, without the program."""
    (line,) = (line for line in text.splitlines() if line.startswith(label))
    return shlex.split(line.partition(":   ")[2])[1:]


def test_what_cannot_be_meant(durable: Path, store: StoreCopy) -> None:
    for words, says in (
        ((), "--to DIR is missing"),
        (("--to", ""), "not a path"),
        (("--to", "x", "--discard-replaced"), "--discard-replaced takes no --to"),
        (("--discard-replaced", "--wait"), "--discard-replaced takes no --to"),
        (("--to", "x", "--qdrant-url", "http://localhost:6333"), "an install has one vector store"),
    ):
        ran = relocate(durable, *words, *flags(store))
        assert (ran.code, ran.out) == (2, "") and says in ran.err, words
    ran = relocate(durable, "--to", str(store.vectors / "in"), *flags(store))
    assert ran.code == 4 and "lies inside the vector store" in ran.err
    ran = relocate(durable, "--to", "new", "--history", str(store.history), "--qdrant-path", "nothing")
    assert ran.code == 3 and "is not there, and no pair of it was taken before" in ran.err


def test_a_dry_run_and_no_answer_change_nothing(durable: Path, store: StoreCopy) -> None:

    def stats() -> dict[str, tuple[int, ...]]:
        found = {str(p): p.lstat() for p in durable.rglob("*")}
        return {p: (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for p, s in found.items()}

    before = stats()
    ran = relocate(durable, "--to", "srv/qdrant", "--with-history", *flags(store), "--dry-run")
    assert ran.code == 0 and "Nothing has been changed." in ran.out
    words = printed(ran.out, "To do it")
    assert words == ["relocate", *flags(store), "--to", f"{durable}/srv/qdrant", "--with-history"]
    plan = relocate(durable, *words[1:], "--dry-run", "--format", "json")
    document = check(plan.out, "relocate-plan")
    assert (document["way"], document["vectors"]) == ("move", f"{durable}/srv/qdrant")
    assert document["history"] == f"{durable}/srv/history.db"
    ran = relocate(durable, *words[1:])
    assert ran.code == 4 and "--yes" in ran.err and "Nothing has been changed." in ran.err
    assert stats() == before


def test_the_whole_way(durable: Path, store: StoreCopy) -> None:
    before = halves(store)
    words = ("--to", "srv/qdrant", *flags(store))
    with agent(store) as pid:
        ran = relocate(durable, *words)
        assert ran.code == 4 and ran.err == ""
        assert "Taken with the agent running, and verified: 27 memories" in ran.out
        assert f"  kill {pid}\n" in ran.out
        again = [line for line in ran.out.splitlines() if line.startswith("  mem0audit relocate ")]
        document = check(relocate(durable, *words, "--format", "json").out, "relocate")
        assert (document["state"], document["stop"]) == ("waiting", [f"kill {pid}"])
        planned = check(relocate(durable, *words, "--dry-run", "--format", "json").out, "relocate-plan")
        assert (planned["way"], planned["pair"]) == ("pair", document["pair"])
        assert planned["holders"][0]["pid"] == pid
    assert halves(store) == before
    ran = relocate(durable, *shlex.split(again[0])[2:], "--yes")
    assert ran.code == 0, ran.err
    assert "Moved 27 memories" in ran.out and "0 added, 0 changed, 0 deleted" in ran.out
    assert not store.vectors.exists()
    look, discard = printed(ran.out, "Look at it"), printed(ran.out, "When all is well")
    assert call(durable, *look).code in (0, 1)
    assert call(durable, *look, "--select", "D,E,H,I,C", "--fail-on", "low").code == 0
    assert shlex.join(["relocate", *look[1:], "--discard-replaced"]) in call(durable, "status", *look[1:]).out
    plan = relocate(durable, *discard[1:], "--dry-run", "--format", "json")
    (kept,) = check(plan.out, "discard")["replaced"]
    assert kept["work"] == "move" and Path(kept["path"]).is_dir()
    assert relocate(durable, *discard[1:]).code == 4  # nobody there to ask
    ran = relocate(durable, *discard[1:], "--yes")
    assert ran.code == 0 and not Path(kept["path"]).exists()
    assert relocate(durable, *discard[1:], "--yes").code == 3
    ran = relocate(durable, *words, "--yes")
    assert ran.code == 4 and "it looks moved" in ran.err


def test_what_went_with_the_agent(durable: Path, store: StoreCopy) -> None:
    words = ("--to", "srv/qdrant", *flags(store), "--no-ledger")
    with agent(store):
        assert relocate(durable, *words).code == 4
    shutil.rmtree(store.vectors)
    ran = relocate(durable, *words, "--dry-run", width=60)
    assert ran.code == 0 and "went with the agent" in ran.out
    document = check(relocate(durable, *words, "--yes", "--format", "json").out, "relocate")
    assert (document["state"], document["lost"]["changes"]) == ("published", 0)
    assert json.dumps(document).count(document["pair"]) == 1


@pytest.mark.parametrize("width", [60, 100])
def test_lines_fit(durable: Path, store: StoreCopy, width: int) -> None:
    ran = relocate(durable, "--to", "srv/qdrant", *flags(store), "--yes", width=width)
    assert ran.code == 0
    for line in ran.out.splitlines():
        assert len(line) <= width or str(durable) in line, line


def test_what_was_moved_already_is_finished_by_the_same_command(durable: Path, store: StoreCopy) -> None:
    """Killed after the last rename and before its end: the configuration and the links come all the same."""
    agent_config = durable / "agent.yaml"
    agent_config.write_text(
        f"history_db_path: {store.history}\nvector_store:\n  provider: qdrant\n  config:\n    path: {store.vectors}\n"
    )
    words = ("--to", "srv/qdrant", *flags(store), "--with-history", "--yes")
    assert relocate(durable, *words).code == 0
    assert relocate(durable, *words, "--no-ledger").code == 0, "done already is done"
    words = (
        "--to",
        "srv/qdrant",
        "--config",
        str(agent_config),
        "--with-history",
        "--update-config",
        "--yes",
    )
    ran = relocate(durable, *words)
    assert ran.code == 0, ran.err
    assert f"path: {durable}/srv/qdrant" in agent_config.read_text()
    ran = relocate(durable, "--to", "srv/qdrant", *flags(store), "--yes")
    assert (
        ran.code == 4 and f"audit --history {durable}/srv/history.db" in ran.err
    )  # not this move: it had the log


def test_printed_commands_run_for_any_name(durable: Path, store: StoreCopy) -> None:
    to = "srv\n'$x' é/q d"
    ran = relocate(durable, "--to", to, *flags(store), "--with-history", "--yes")
    assert ran.code == 0
    (line,) = (line for line in ran.out.splitlines() if line.startswith("When all is well:"))
    command = line.partition(":   mem0audit ")[2]
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True)
    said = done.stdout.decode().split("\0")[:-1]
    assert said[-1] == f"{durable}/{to}" and said[3] == f"{durable}/{to.rpartition('/')[0]}/history.db"
    assert relocate(durable, *said[1:], "--yes").code == 0


def test_places_that_would_fail_are_refused_before(durable: Path, store: StoreCopy) -> None:
    before = halves(store)
    for name in ("n" * 240, "é" * 120):
        ran = relocate(durable, "--to", f"srv/{name}", *flags(store), "--yes")
        assert ran.code == 4 and "its name is too long" in ran.err
    ran = relocate(durable, "--to", "/", *flags(store), "--dry-run")
    assert ran.code == 4 and ran.err.endswith("--to /qdrant\n")
    assert halves(store) == before and not (durable / "srv").exists()


@pytest.mark.root
def test_read_only_places_are_refused_before(durable: Path, store: StoreCopy) -> None:
    point = durable / "ro"

    def read_only() -> None:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(point)], check=True)

    (durable / "disk").mkdir()
    copy = copy_store("2.2.1-nlp", durable / "disk")
    with mounted(point, "--bind", str(durable / "disk")):
        read_only()
        ran = relocate(durable, "--to", "ro/new/qdrant", *flags(store), "--dry-run")
        assert ran.code == 4 and f"nothing can be written in {point}" in ran.err
        there = (durable / "disk", point)
        words = [word.replace(*map(str, there)) for word in flags(copy)]
        ran = relocate(durable, "--to", "srv/qdrant", *words, "--dry-run")
        assert ran.code == 4 and "cannot be put aside" in ran.err and "snapshot create --to" in ran.err


def test_links_that_were_not_all_left_are_left_by_the_same_command(durable: Path, store: StoreCopy) -> None:
    more = ("--with-history", "--leave-link", "--agent-python", sys.executable, "--yes")
    words = ("--to", "srv/qdrant", *flags(store), *more)
    assert relocate(durable, *words).code == 0
    assert store.vectors.is_symlink() and store.history.is_symlink()
    before = halves(store)
    for gone in ([store.history], [store.vectors], [store.vectors, store.history], []):
        for link in gone:
            link.unlink()
        ran = relocate(durable, *words)
        assert ran.code == 0, (gone, ran.err)
        assert store.vectors.is_symlink() and store.history.is_symlink()
        assert halves(store) == before
    store.vectors.unlink()
    store.vectors.symlink_to(durable / "srv")
    assert relocate(durable, *words).code == 4, "that link leads elsewhere"


def test_snapshots_from_before_a_move_are_still_its_own(durable: Path, store: StoreCopy) -> None:
    new = ("--history", f"{durable}/srv2/history.db", "--qdrant-path", f"{durable}/srv2/qdrant")
    taken = call(durable, "snapshot", "create", "--to", str(durable / "kept"), *flags(store))
    assert taken.code == 0, taken.err
    assert relocate(durable, "--to", "srv/qdrant", *flags(store), "--with-history", "--yes").code == 0
    between = ("--history", f"{durable}/srv/history.db", "--qdrant-path", f"{durable}/srv/qdrant")
    assert relocate(durable, "--to", "srv2/qdrant", *between, "--with-history", "--yes").code == 0
    status = check(call(durable, "status", *new, "--format", "json").out, "status")
    (listed,) = status["snapshots"]["snapshots"]
    assert listed["path"].startswith(f"{durable}/kept/")
    assert "B901" not in call(durable, "audit", *new, "--select", "B").out
    # another store that is begun at the old place is another install's
    again = copy_store("2.2.1-nlp", durable / "again")
    shutil.copytree(again.vectors, store.vectors)
    shutil.copy(again.history, store.history)
    time.sleep(1.1)  # a snapshot's time is in whole seconds
    assert call(durable, "snapshot", "create", "--to", str(durable / "kept"), *flags(store)).code == 0
    status = check(call(durable, "status", *new, "--format", "json").out, "status")
    assert [one["path"] for one in status["snapshots"]["snapshots"]] == [listed["path"]]


def test_a_log_without_a_folder_is_no_obstacle(durable: Path, store: StoreCopy) -> None:
    words = ("--history", str(durable / "nowhere/history.db"), "--qdrant-path", str(store.vectors))
    ran = relocate(durable, "--to", "srv/qdrant", *words, "--yes")
    assert ran.code == 0, ran.err
    assert not (durable / "srv/.qdrant.mem0audit-relocating").exists()


@pytest.mark.root
def test_what_an_ordinary_user_cannot_reach_is_refused_before(durable: Path, store: StoreCopy) -> None:
    needs_root()
    locked = durable / "locked"
    other = copy_store("2.2.1-nlp", locked)
    shown = durable / "shown"
    shown.mkdir()
    shutil.copy(store.history, shown)
    for path in (store.folder, *store.folder.rglob("*"), durable):
        os.chown(path, 4242, 4242)
    locked.chmod(0o700)
    home = durable / "home"
    home.mkdir()
    os.chown(home, 4242, 4242)
    for history, vectors, code, says in (
        (other.history, store.vectors, 3, f"{other.history}: permission denied"),
        (store.history, other.vectors, 3, f"{other.vectors}: permission denied"),
        (shown / "history.db", store.vectors, 4, f"nothing can be written in {shown}"),
    ):
        words = ("relocate", "--to", str(durable / "new/qdrant"), "--history", str(history), "--yes")
        to_user = {"user": 4242, "group": 4242, "extra_groups": []}
        ran = run(home, *words, "--qdrant-path", str(vectors), **to_user)
        assert ran.code == code and says in ran.err, (history, ran.err)
        assert not (durable / "new").exists() and store.vectors.is_dir()
