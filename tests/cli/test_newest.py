"""`new`: memories added since a time, with where they came from, beside a running agent."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.times import shown
from mem0audit.operations import ledger as ledgers
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store
from tests.cli.program import Ran, call, clean_environment
from tests.cli.test_commands import fingerprint, flags
from tests.report.test_json import check
from tests.rules.support import host, located


class Agent:
    """An agent that added memories before and after a moment."""

    def __init__(self, folder: Path) -> None:
        self.memory = MemoryBuilder(folder / "install")
        self.old = self.memory.add("long known", user_id="alice")
        time.sleep(1.1)  # `since` is to the second
        self.moment = shown(time.time())
        add = self.memory.add
        self.said = add("likes tea", user_id="alice", name="ann")
        (self.told,) = self.memory.add_inferred(["lives in Oslo"], user_id="bob")
        gone = add("never mind", user_id="bob")
        self.memory.delete(gone)
        self.dated = add("an old story", user_id="bob", metadata={"created_at": "2019-01-01T00:00:00Z"})
        self.memory.update(self.old, "known anew")
        self.flags = ("--history", str(self.memory.history), "--qdrant-path", str(self.memory.vectors))


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    made = Agent(tmp_path_factory.mktemp("new"))
    yield made
    made.memory.close()


def new(home: Path, agent: Agent, *words: str) -> Ran:
    return call(home, "new", "--since", agent.moment, *words, *agent.flags)


def told(home: Path, agent: Agent, *words: str) -> dict[str, Any]:
    ran = new(home, agent, "--format", "json", *words)
    assert ran.code == 0, ran.err
    return check(ran.out, "new")


def test_what_was_added_since_and_by_whom(tmp_path: Path, agent: Agent) -> None:
    before = fingerprint(agent.memory.folder)
    document = told(tmp_path, agent)
    by_id = {one["memory_id"]: one for one in document["memories"]}
    assert by_id.keys() == {agent.said, agent.told, agent.dated}  # not the one that was only changed
    assert (by_id[agent.said]["role"], by_id[agent.said]["actor_id"]) == ("user", "ann")
    assert by_id[agent.told]["attributed_to"] == "user"
    assert by_id[agent.dated]["created_at"] == "2019-01-01 00:00:00Z"
    assert {one["known_by"] for one in by_id.values()} == {"payload"}
    assert document["counts"] == {"added": 3, "unknown": 0, "deleted_again": 1, "gone": 0}
    assert "Oslo" not in json.dumps(document)
    assert told(tmp_path, agent, "--text")["memories"][0]["text"] == "likes tea"
    assert fingerprint(agent.memory.folder) == before


def test_for_people(tmp_path: Path, agent: Agent) -> None:
    ran = new(tmp_path, agent)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 memories added since ")
    assert "    said by user ann\n    │ likes tea" in ran.out
    assert "    attributed to user\n    │ lives in Oslo" in ran.out
    assert "1 more added since and deleted again." in ran.out
    assert new(tmp_path, agent, "--user", "alice").out.count("│") == 1


def test_a_source_in_the_ledger_comes_first(tmp_path: Path, agent: Agent) -> None:
    machine = host(environ=clean_environment(tmp_path), home=str(tmp_path))
    with ledgers.opened(located(agent.memory, machine), machine, make=True) as book:
        path = book.path  # type: ignore[union-attr]
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS memory (id TEXT PRIMARY KEY, subject INT, fact BLOB, source TEXT)"
        )
        db.execute("INSERT INTO scopes (user_id, agent_id, run_id) VALUES ('\"alice\"', 'null', 'null')")
        db.executemany(
            "INSERT INTO memory (id, subject, fact, source) SELECT ?, id, x'00', ? FROM scopes",
            [(agent.said, "mail of 3 May"), (agent.told, None)],
        )
        db.commit()
    by_id = {one["memory_id"]: one for one in told(tmp_path, agent)["memories"]}
    assert (by_id[agent.said]["known_by"], by_id[agent.said]["source"]) == ("source", "mail of 3 May")
    assert by_id[agent.told]["known_by"] == "payload"
    assert "from mail of 3 May" in new(tmp_path, agent).out


def test_nothing_new(tmp_path: Path, agent: Agent) -> None:
    time.sleep(1.1)
    later = ("new", "--since", shown(time.time()), *agent.flags)
    assert call(tmp_path, *later).out.startswith("0 memories added since")
    assert call(tmp_path, *later, "--quiet").out == ""


def test_into_a_file_of_ones_own(tmp_path: Path, agent: Agent) -> None:
    target = tmp_path / "new.txt"
    assert new(tmp_path, agent, "-o", str(target)).code == 0
    assert target.stat().st_mode & 0o777 == 0o600
    assert "likes tea" in target.read_text()


def test_of_unknown_origin_without_a_row_and_gone(tmp_path: Path) -> None:
    store = copy_store("1.0.11", tmp_path / "store", pre_delete_all=True)
    ids = [str(i) for i in RawPoints(store.vectors).points()]
    RawPoints(store.vectors).edit(ids[0], lambda p: [p.pop(k, None) for k in ("role", "actor_id")])
    RawHistory(store.history).run("DELETE FROM history WHERE memory_id = ?", ids[1])
    RawPoints(store.vectors).remove(ids[2])
    document = check(
        call(tmp_path, "new", "--since", "2026-11-29", *flags(store), "--format", "json").out, "new"
    )
    by_id = {one["memory_id"]: one for one in document["memories"]}
    assert by_id[ids[0]]["known_by"] == "unknown"
    assert by_id[ids[1]]["added"] is None
    assert ids[2] not in by_id
    assert document["counts"]["gone"] == 1
    ran = call(tmp_path, "new", "--since", "2026-11-29", *flags(store))
    assert "by its own account, no row in the log" in ran.out
    assert "    unknown\n" in ran.out


def test_what_cannot_be_read(tmp_path: Path) -> None:
    store = copy_store("1.0.11", tmp_path / "store")
    (store.vectors / "collection" / "mem0" / "storage.sqlite").write_bytes(b"no database" * 100)
    assert call(tmp_path, "new", *flags(store)).code == 3
    assert call(tmp_path, "new", "--since", "x", *flags(store)).code == 2
