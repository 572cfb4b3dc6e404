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

from mem0audit.cli.review import question_of
from mem0audit.report.screen import Screen
from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import Ran, call, clean_environment
from tests.operations.embedder import serving
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


def test_a_server_that_is_named_is_the_one_that_is_meant(tmp_path: Path, store: StoreCopy) -> None:
    given = ("--history", str(store.history), "--qdrant-url", "http://127.0.0.1:1")
    ran = call(tmp_path, "review", "delete", "x", *given, "--dry-run")
    assert ran.code != 0
    assert "127.0.0.1:1" in ran.err


def test_the_keys_fit_and_no_key_is_torn() -> None:
    for width, close in ((100, 3), (100, 0), (60, 3), (40, 1)):
        lines = question_of(12, 20, close, Screen(width=width)).split("\n")
        assert max(map(len, lines)) <= width and lines[-1].endswith("q quit ")
        keys = [key.strip() for key in " ".join(lines).split("·")]
        assert (len(keys), keys[1]) == (8 if close else 7, "r replace")
    assert question_of(1, 3, 0, Screen()).count("\n") == 0


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


@pytest.mark.thorough
def test_another_text_on_the_way(tmp_path: Path, store: StoreCopy) -> None:
    assert run(tmp_path, store, "--days", "0").code == 0
    before = in_ledger(tmp_path)
    with Terminal(tmp_path, store, "--days", "0", "--most", "2") as terminal:
        terminal.expect("q quit ")
        terminal.type("r")
        terminal.expect("name your mem0 configuration with --config FILE")
        terminal.expect("q quit ")
        terminal.type("q")
        terminal.expect("Nothing new in the ledger.")
        assert terminal.end() == 0
    with serving() as embedder:
        config = embedder.write(tmp_path / "mem0.json")
        more = ("--config", str(config), "--agent-python", sys.executable, "--days", "0", "--most", "2")
        with Terminal(tmp_path, store, *more) as terminal:
            ids = []
            for text in ("Alice has two cats", "Alice has no cat"):
                ids += re.findall(r"^ +\d  ([0-9a-f-]{36})$", terminal.expect("q quit "), re.M)
                terminal.type("r")
                terminal.expect("with your own embedder: the text goes there")
                terminal.expect("what is true now? ")
                terminal.type(f"{text}\n")
                terminal.expect("looked up? ")
                terminal.type("asked her\n")
            terminal.expect("In the ledger: 2 replaced.")
            assert terminal.end() == 0
        points = RawPoints(store.vectors).points()
        assert [points[i].payload["data"] for i in ids] == ["Alice has two cats", "Alice has no cat"]
        assert [in_ledger(tmp_path)[i]["source"] for i in ids] == ["asked her"] * 2
        with Terminal(tmp_path, store, *more) as terminal:
            (first,) = re.findall(r"^ +1  ([0-9a-f-]{36})$", terminal.expect("q quit "), re.M)
            was = RawPoints(store.vectors).points()[first].payload["data"]
            terminal.type("r")
            terminal.expect("what is true now? ")
            terminal.type("something else\n")
            terminal.expect("looked up? ")
            terminal.type("asked him\n")
            terminal.expect("q quit ")
            assert RawPoints(store.vectors).points()[first].payload["data"] == "something else"
            terminal.type("u")
            terminal.expect("q quit ")
            terminal.type("q")
            terminal.expect("Nothing new in the ledger.")
            assert terminal.end() == 0
        assert RawPoints(store.vectors).points()[first].payload["data"] == was
    after = in_ledger(tmp_path)
    assert {i for i in after if dict(after[i]) != dict(before[i])} == set(ids)


NOTES = """\ufeff# Ports

- the API listens on 8443
- staging moved to rack 4 (2024-03-01, was 2023-01-01)
- the old one, said 2023-05-01T10:00Z
* planned for 2099-01-01
```
---
- new: TODAY
no date 12026-01-01 or 2026-13-01\r
"""


def test_notes(tmp_path: Path, store: StoreCopy) -> None:
    file = tmp_path / "notes.md"
    file.write_text(
        NOTES.replace("TODAY", time.strftime("%Y-%m-%d", time.gmtime())), encoding="utf-8", newline=""
    )
    before = file.read_bytes(), file.stat().st_mtime_ns
    ran = run(tmp_path, store, "--notes", str(file), "--days", "2", "--format", "json", "--text")
    told = check(ran.out, "review-notes")
    assert [one["line"] for one in told["due"]] == [3, 6, 10, 5, 4]
    assert [one["dated_at"] for one in told["due"][3:]] == ["2023-05-01 10:00:00Z", "2024-03-01 00:00:00Z"]
    assert (told["undated"], told["due"][0]["text"]) == (3, "- the API listens on 8443")
    without = check(run(tmp_path, store, "--notes", str(file), "--format", "json").out, "review-notes")
    assert {one["text"] for one in without["due"]} == {None}
    ran = run(tmp_path, store, "--notes", str(file), "--most", "1", width="60")
    assert "3 without a date, the first 1 below" in " ".join(ran.out.split())
    with Terminal(tmp_path, store, "--notes", str(file)) as terminal:
        for key in "scuc":  # the second is confirmed, taken back, and confirmed again
            terminal.expect("q quit ")
            terminal.type(key)
        terminal.expect("q quit ")
        terminal.type("q")
        terminal.expect("In the ledger: 1 confirmed. The file is as it was.")
        assert terminal.end() == 0
    told = check(run(tmp_path, store, "--notes", str(file), "--format", "json").out, "review-notes")
    assert [one["line"] for one in told["due"]][:3] == [3, 10, 5]
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert run(tmp_path, store, "--notes", str(file), "-o", str(file)).code == 2
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, says in (("none", "not there"), ("binary", "no text in UTF-8"), (".", "no plain file")):
        ran = run(tmp_path, store, "--notes", name)
        assert (ran.code, ran.out, says in ran.err) == (3, "", True), ran.err
    # without an install too, and then nothing can be kept of it
    assert call(tmp_path, "review", "--notes", str(file), "--history", "h", "--qdrant-path", "q").code == 0


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
