"""Clearing free pages and emptying texts: no byte of theirs stays, nothing of others changes, at any kill."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import Failed, Refused
from mem0audit.core.redaction import Redacted
from mem0audit.core.scopes import Scope
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from mem0audit.operations.redact import apply_clearing, apply_redaction, plan_clearing, plan_redaction
from mem0audit.stores import overwrite
from tests.builders import MemoryBuilder, RawHistory
from tests.operations.sealed import said
from tests.operations.test_residue import CAROL, NEWER, SAID, SECRETS, Install, World, plain_count
from tests.operations.test_restore import at, die, failing, in_child, steps, undisturbed
from tests.operations.test_snapshot import installed

MINE = [*SECRETS, NEWER, SAID]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("redact"))


@pytest.fixture(autouse=True)
def no_other_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from mem0audit.operations import residue as operation

    monkeypatch.setattr(operation, "find_candidates", lambda *_: ())
    yield


@pytest.fixture
def store(made: World, tmp_path: Path) -> Install:
    install = Install(made, tmp_path)
    install.be("before")
    audit(installed(install), this_host())
    install.be("after")
    return install


def clear(store: Install) -> None:
    host = this_host()
    undisturbed(lambda: apply_clearing(plan_clearing(installed(store), host), host))


def redact(store: Install, **options: Any) -> Redacted:
    host = this_host()
    wanted = {"scope": CAROL, **options}
    plan = undisturbed(lambda: plan_redaction(installed(store), host, **wanted))
    return undisturbed(lambda: apply_redaction(plan, host, texts=MINE))


def databases(store: Install) -> list[Path]:
    return [store.history, *sorted(store.vectors.glob("collection/*/storage.sqlite"))]


def content(store: Install) -> list[Any]:
    found: list[Any] = []
    for path in databases(store):
        with closing(sqlite3.connect(path)) as connection:
            tables = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            found += [(n, connection.execute(f"SELECT * FROM {n} ORDER BY rowid").fetchall()) for n in tables]
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return found


def everywhere(store: Install) -> int:
    """At how many places any of her texts stands, in any file at or below the install."""
    files = [p for p in store.folder.rglob("*") if p.is_file()]
    return sum(plain_count(path, MINE) for path in files)


# --- free pages ----------------------------------------------------------------------------------------


def test_clearing_leaves_every_row_and_no_free_page(store: Install) -> None:
    before = content(store)
    assert plain_count(store.points, MINE)
    inode = store.points.stat().st_ino
    clear(store)
    assert content(store) == before
    assert plain_count(store.points, MINE) == 0
    assert store.points.stat().st_ino == inode
    for path in databases(store):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)
    assert not list(store.folder.rglob("*mem0audit*"))
    with MemoryBuilder(store.folder) as agent:
        assert set(agent.points()) >= set(store.made.bobs)


def test_clearing_in_write_ahead_mode(store: Install) -> None:
    for path in databases(store):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
    with closing(sqlite3.connect(store.points)) as connection:
        connection.execute("PRAGMA secure_delete = 0")
        connection.execute("CREATE TABLE more AS SELECT ? AS a", (SECRETS[0],))
        connection.execute("DROP TABLE more")
        connection.commit()
    before = content(store)
    clear(store)
    assert content(store) == before
    assert plain_count(store.points, MINE) == 0
    wal = Path(f"{store.points}-wal")
    assert not wal.exists() or wal.stat().st_size == 0


def test_clearing_is_refused_while_the_agent_runs(store: Install) -> None:
    code = "import sys, time, sqlite3; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM points').fetchall(); "
    code += "print('open', flush=True); time.sleep(60)"
    agent = subprocess.Popen([sys.executable, "-c", code, str(store.points)], stdout=subprocess.PIPE)
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"open\n"
        with pytest.raises(Refused) as refused:
            plan_clearing(installed(store), this_host())
        assert f"pid {agent.pid}" in refused.value.message
        assert f"kill {agent.pid}" in (refused.value.hint or "")
    finally:
        agent.kill()
        agent.communicate()


def test_clearing_is_refused_where_there_is_no_room(store: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    from mem0audit.operations import redact as operation

    monkeypatch.setattr(operation, "SLACK_BYTES", 1 << 60)
    with pytest.raises(Refused, match="bytes are free"):
        undisturbed(lambda: plan_clearing(installed(store), this_host()))


def test_a_rebuilt_file_that_is_not_the_same_keeps_the_proven_copy(
    store: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wreck(name: str) -> None:
        if name == "clear.check":
            RawHistory(store.history).run("UPDATE history SET event = 'ADD'")

    before = content(store)
    with steps(wreck), pytest.raises(Failed) as failed:
        clear(store)
    copy = overwrite.copy_folder(store.history) / "history.db"
    assert str(copy) in (failed.value.hint or "")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT * FROM history ORDER BY rowid").fetchall() == before[0][1]


# --- redaction -----------------------------------------------------------------------------------------


def test_nothing_of_hers_stands_in_any_byte(store: Install) -> None:
    before = RawHistory(store.history).rows()
    messages = RawHistory(store.history).run("SELECT * FROM messages ORDER BY rowid")
    assert everywhere(store)
    done = redact(store)
    assert (done.history, done.messages, done.memories) == (31, 2, 15)
    assert everywhere(store) == 0
    after = RawHistory(store.history).rows()
    assert len(after) == len(before)
    hers = set(store.ids)
    for old, new in zip(before, after, strict=True):
        if old["memory_id"] not in hers:
            assert {**new, "rowid": 0} == {**old, "rowid": 0}
            continue
        texts = ("old_memory", "new_memory")
        assert {k: v for k, v in new.items() if k not in (*texts, "rowid")} == {
            k: v for k, v in old.items() if k not in (*texts, "rowid")
        }
        assert [new[k] for k in texts] == [None if old[k] is None else "" for k in texts]
    emptied = [(*row[:3], "" if "carol" in row[1] else row[3], *row[4:]) for row in messages]
    assert RawHistory(store.history).run("SELECT * FROM messages ORDER BY rowid") == emptied
    # what is searched again afterwards are the texts that stood there
    assert done.after.texts >= len(MINE)
    # her entity was left by mem0, which deletes none in a process that has not used them: it is not called gone
    left = [Path(one.path).parent.name for one in done.after.files if one.whole or one.pieces]
    assert left == ["mem0_entities"]
    assert {one.kind: one.count for one in done.after.rows if one.count} == {
        "entities": 1,
        "shared entities": 1,
    }
    assert done.after.remains
    with MemoryBuilder(store.folder) as agent:
        assert [row["event"] for row in agent.memory.history(store.ids[0])][-1] == "DELETE"
        new = agent.add("A new fact about carol, after all of that", user_id="carol")
        agent.update(new, "A newer fact about carol")
        assert [row["event"] for row in agent.memory.history(new)] == ["ADD", "UPDATE"]
        found = agent.memory.search("A newer fact about carol", filters={"user_id": "carol"}, threshold=0.0)
        assert [one["id"] for one in found["results"]] == [new]


def test_memories_that_are_there_are_deleted_first(made: World, tmp_path: Path) -> None:
    install = Install(made, tmp_path)
    install.be("before")
    audit(installed(install), this_host())
    with pytest.raises(Refused, match="15 memories"):
        redact(install)


def test_only_single_memories(store: Install) -> None:
    done = redact(store, scope=None, memory_ids=[store.ids[3]])
    assert (done.history, done.messages) == (2, 0)
    assert plain_count(store.history, [SECRETS[3]]) == 0
    assert plain_count(store.history, [SECRETS[4]])


def test_stranded_rows_are_emptied_and_unknown_ones_counted(store: Install) -> None:
    log = RawHistory(store.history)
    log.run("CREATE TABLE history_old AS SELECT * FROM history")
    log.add("nobody", None, "Somebody said so, once", "ADD")
    done = redact(store)
    assert (done.history, done.stranded, done.unattributed) == (31, 31, (1, 1))
    assert everywhere(store) == 0
    assert plain_count(store.history, ["Somebody said so, once"]) >= 1


def test_triggers_are_refused(store: Install) -> None:
    RawHistory(store.history).run("CREATE TRIGGER t AFTER UPDATE ON history BEGIN DELETE FROM history; END")
    before = content(store)
    with pytest.raises(Refused, match="triggers"):
        redact(store)
    assert content(store) == before


def test_a_seal_explains_it(store: Install) -> None:
    host = this_host()
    assert audit(installed(store), host, seal=True, accept="deleted").seal is not None
    done = redact(store)
    assert done.seal is None
    found = audit(installed(store), host, select=("D310", "D311", "H408"))
    assert said(found) == set()


def test_without_the_ledger_it_is_refused(store: Install) -> None:
    with pytest.raises(Refused, match="whose the rows"):
        redact(store, ledger=False)


# --- cut off -------------------------------------------------------------------------------------------

STEPS = (
    *("redact.begin", "redact.rows", "redact.commit", "redact.done"),
    *(
        "clear.folder",
        "clear.copy",
        "clear.fsync",
        "clear.vacuum",
        "clear.checkpoint",
        "clear.check",
        "clear.remove",
    ),
)


class Copies:
    """The same store again and again, its ledger kept."""

    def __init__(self, made: World, folder: Path) -> None:
        self.store = Install(made, folder)
        self.store.be("before")
        audit(installed(self.store), this_host())

    def again(self) -> Install:
        self.store.be("after")
        return self.store


def emptied(store: Install) -> bool:
    rows = [r for r in RawHistory(store.history).rows() if r["memory_id"] in set(store.ids)]
    texts = {r[k] for r in rows for k in ("old_memory", "new_memory")}
    assert texts in ({None, ""}, texts - {""}), "half of it"
    return texts == {None, ""}


def quickly(store: Install) -> None:
    """Without the search afterwards, which changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        from mem0audit.operations import redact as operation

        patch.setattr(operation, "residue", lambda *_args, **_more: None)
        patch.setattr(operation, "explain", lambda *_args, **_more: None)
        redact(store)


@pytest.mark.thorough
def test_a_kill_at_every_step(made: World, tmp_path: Path) -> None:
    copies = Copies(made, tmp_path)
    seen: list[str] = []
    others = [r for r in content(copies.again()) if r[0] == "points"]
    with steps(seen.append):
        quickly(copies.store)
    assert set(STEPS) <= set(seen)
    for name in STEPS:
        store = copies.again()
        with steps(at(name, 1, die)):
            assert in_child(lambda store=store: quickly(store) or 0) == -signal.SIGKILL, name  # type: ignore[misc]
        assert [r for r in content(store) if r[0] == "points"] == others
        assert emptied(store) == (name.startswith("clear") or name == "redact.done"), name
        quickly(store)
        assert everywhere(store) == 0, name
        assert not list(store.folder.rglob("*mem0audit*")), name


@pytest.mark.thorough
def test_an_error_at_every_step(made: World, tmp_path: Path) -> None:
    copies = Copies(made, tmp_path)
    for name in STEPS:
        store = copies.again()
        fired: list[bool] = []
        with steps(at(name, 1, failing(errno.ENOSPC, fired))), contextlib.suppress(Failed):
            quickly(store)
        assert fired, name
        emptied(store)
        quickly(store)
        assert everywhere(store) == 0, name


def test_a_kill_at_any_moment_of_the_rebuilding(made: World, tmp_path: Path) -> None:
    """Not at our steps but within SQLite's own work, on a file large enough to be hit."""
    store = Install(made, tmp_path)
    store.be("after")
    with closing(sqlite3.connect(store.history)) as connection:
        connection.execute("PRAGMA secure_delete = 0")
        connection.execute("CREATE TABLE ballast AS SELECT 1 AS n, randomblob(6000000) AS b")
        connection.execute("CREATE TABLE gone AS SELECT randomblob(3000000) AS b")
        connection.execute("DROP TABLE gone")
        connection.commit()
    before = content(store)
    hit = set()
    for wait in (0.0, 0.01, 0.03, 0.08):
        pid = os.fork()
        if pid == 0:
            with steps(_then(wait)):
                with contextlib.suppress(BaseException):
                    overwrite.rebuild(store.history)
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        hit.add(os.waitstatus_to_exitcode(status))
        assert content(store) == before
    assert -signal.SIGKILL in hit
    overwrite.rebuild(store.history)
    assert content(store) == before


def _then(wait: float) -> Callable[[str], None]:
    """Kills this process that long after the file is begun to be written over."""

    def do(name: str) -> None:
        if name == "clear.vacuum":
            pid = os.getpid()
            if os.fork() == 0:
                time.sleep(wait)
                os.kill(pid, signal.SIGKILL)
                os._exit(0)

    return do


def test_scopes_of_others_stay(store: Install) -> None:
    with pytest.raises(Refused):
        redact(store, scope=Scope(user="bob"))
