"""`mem0audit review` as a user runs it: the list, JSON, single decisions, and the way through it on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import Ran, call, clean_environment
from tests.report.test_json import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1", tmp_path)


def words(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


def run(home: Path, store: StoreCopy, *given: str, width: str = "100") -> Ran:
    ran = call(home, "review", *given, *words(store), env={"COLUMNS": width})
    assert "Traceback" not in ran.err
    return ran


def in_ledger(home: Path) -> dict[str, Any]:
    (path,) = (home / ".local/state/mem0audit").glob("*.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        return {row["id"]: row for row in db.execute("SELECT * FROM memory")}


def test_the_list(tmp_path: Path, store: StoreCopy) -> None:
    raw = RawPoints(store.vectors)
    first = sorted(i for i, p in raw.points().items() if p.payload["user_id"] == "alice")[0]
    raw.edit(first, lambda p: p.update(data="a trap \x1b[31m"))
    for width in ("60", "100"):
        ran = run(tmp_path, store, "--days", "0", "--most", "18", width=width)
        assert ran.code == 0, ran.err
        assert ran.out.startswith("18 memories not confirmed for 0 days, 18 of an unknown")
        assert "a trap \\x1b[31m" in ran.out
        assert max(len(line) for line in ran.out.splitlines() if "--history" not in line) <= int(width)
    assert re.search(r"mem0audit review confirm --history \S+ --qdrant-path \S+ ID --source", ran.out)
    assert run(tmp_path, store).out.startswith("Nothing to review: every memory was confirmed in")
    without = check(run(tmp_path, store, "--days", "0", "--format", "json").out, "review")
    assert {one["text"] for one in without["due"]} == {None}
    given = check(run(tmp_path, store, "--days", "0", "--format", "json", "--text").out, "review")
    assert "Alice owns a cat named Miso" in [one["text"] for one in given["due"]]


def test_single_decisions(tmp_path: Path, store: StoreCopy) -> None:
    one = sorted(RawPoints(store.vectors).points())[3]
    ran = run(tmp_path, store, "confirm", one)
    assert (ran.code, "where it came from is not known" in ran.err) == (4, True)
    said = check(
        run(tmp_path, store, "confirm", one, "--source", "wiki/x", "--format", "json").out, "ledger-memory"
    )
    assert said["memory"]["source"] == "wiki/x"
    assert run(tmp_path, store, "confirm", one).code == 0
    assert run(tmp_path, store, "expire", one, "--in", "7d", "--dry-run").code == 0
    ran = run(tmp_path, store, "replace", one, "x")
    assert (ran.code, "--source" in ran.err) == (2, True)
    ran = run(tmp_path, store, "replace", one, "x", "--source", "y")
    assert ran.code in (2, 4)  # no embedder is named, or no mem0 is here
    ran = run(tmp_path, store, "delete", one, "--dry-run")
    assert ran.code in (0, 2, 4)
    ran = call(tmp_path, "review", *words(store), "confirm", one)
    assert (ran.code, "comes after the word confirm" in ran.err) == (2, True)


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, home: Path, store: StoreCopy, *more: str) -> None:
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mem0audit", "review", *words(store), *more],
            env=clean_environment(home, TERM="xterm", NO_COLOR="1"),
            cwd=home,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.fd = ours
        self.seen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)

    def expect(self, words: str) -> str:
        """What is shown until these words are; they count once."""
        end = time.monotonic() + 30
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode("utf-8", "replace").replace("\r\n", "\n")
                except OSError:
                    assert words in self.seen, self.seen
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def end(self) -> int:
        return self.process.wait(60)


def test_one_after_the_other_with_undo_and_quit(tmp_path: Path, store: StoreCopy) -> None:
    assert run(tmp_path, store, "--days", "0").code == 0
    before = in_ledger(tmp_path)
    with Terminal(tmp_path, store, "--days", "0", "--most", "4") as terminal:
        ids = []
        answers: tuple[tuple[str, str, str], ...] = (
            ("c", "looked up? ", "asked her\n"),
            ("e", "until when? ", "7d\n"),
            ("d", "", ""),
            ("x", "", ""),
        )
        for key, question, answer in answers:
            shown = terminal.expect("q quit ")
            ids += re.findall(r"^ +\d  ([0-9a-f-]{36})$", shown, re.M)
            terminal.type(key)
            if question:
                terminal.expect(question)
                terminal.type(answer)
        terminal.expect("q quit ")  # x means nothing, and r is for afterwards: it is asked again
        terminal.type("u")  # the deletion
        terminal.expect("q quit ")
        terminal.type("u")  # the end
        terminal.expect("q quit ")
        terminal.type("q")
        terminal.expect("In the ledger: 1 confirmed.")
        assert terminal.end() == 0
    after = in_ledger(tmp_path)
    assert len(set(ids)) == 4
    assert after[ids[0]]["source"] == "asked her"
    assert after[ids[0]]["confirmed_at"] > before[ids[0]]["confirmed_at"]
    assert {i for i in after if dict(after[i]) != dict(before[i])} == {ids[0]}


def test_killed_on_the_way_nothing_is_lost(tmp_path: Path, store: StoreCopy) -> None:
    with Terminal(tmp_path, store, "--days", "0", "--most", "3") as terminal:
        first = re.findall(r"[0-9a-f-]{36}", terminal.expect("q quit "))[0]
        terminal.type("d")
        terminal.expect("q quit ")
        terminal.type("c")
        terminal.expect("looked up? ")
        terminal.type("asked him\n")
        terminal.expect("q quit ")
        os.kill(terminal.process.pid, signal.SIGKILL)
        assert terminal.end() == -9
    assert [row["source"] for row in in_ledger(tmp_path).values() if row["source"]] == ["asked him"]
    ran = run(tmp_path, store, "--days", "0")
    assert "1 memory that somebody decided to delete in a review, and still there" in ran.out
    assert f"--memory {first}" in ran.out
    assert f"  {first}\n" not in ran.out
