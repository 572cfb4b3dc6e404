"""Differences between snapshots, backups and the live install, against dicts of what mem0 itself has."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.diff import Diff
from mem0audit.core.errors import CouldNotRead
from mem0audit.install.host import this_host
from mem0audit.operations.copyaudit import find_copy
from mem0audit.operations.diff import Found, diff, of_copy, of_live
from tests.builders import MemoryBuilder, RawPoints, copy_store
from tests.operations import test_read_only
from tests.operations.test_backups import copied, cp, writer, written
from tests.operations.test_snapshot import installed, needs_root, take

Payloads = dict[str, dict[str, Any]]


def copy_at(path: Path | str) -> Found:
    return of_copy(find_copy(None, str(path), this_host()))


def between(a: Found, b: Found, *, texts: bool = False) -> Diff:
    return diff(a, b, this_host(), texts=texts)


def ids(found: Diff, kind: str) -> set[str]:
    return {c.memory_id for scope in found.scopes for c in getattr(scope, kind)}


def slow(before: Payloads, after: Payloads) -> dict[str, set[str]]:
    """The differences, told the simple way."""
    timeless = {"updated_at", "hash", "text_lemmatized"}

    def seen(payload: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in payload.items() if k not in timeless}

    both = before.keys() & after.keys()
    return {
        "added": after.keys() - before.keys(),
        "removed": before.keys() - after.keys(),
        "changed": {i for i in both if seen(before[i]) != seen(after[i])},
    }


def test_every_kind_of_difference(tmp_path: Path) -> None:
    with MemoryBuilder(tmp_path / "install") as agent:
        kept, changed, gone, tagged, same = (agent.add(f"fact {n}", user_id="alice") for n in range(5))
        moved = agent.add("fact 5", user_id="alice", agent_id="a7")
        agent.plant_entity("Tea", [kept], user_id="alice")
        first = take(agent, tmp_path / "snapshots").path
        agent.update(changed, "another text")
        agent.update(same, "fact 4")  # a row in the log, and nothing that differs
        agent.update(tagged, "fact 3", metadata={"colour": "red"})
        agent.delete(gone)
        new = agent.add("brand new", user_id="bob")
        agent.plant_entity("Coffee", [new], user_id="bob")
    RawPoints(agent.vectors).edit(moved, lambda payload: payload.update(user_id="bob"))
    before = test_read_only.tree(tmp_path)
    found = between(copy_at(first), of_live(installed(agent), this_host()))
    assert test_read_only.tree(tmp_path) == before
    assert found.totals == {"added": 1, "changed": 3, "removed": 1, "unchanged": 2}
    scopes = {scope.owner: scope for scope in found.scopes}
    assert set(scopes) == {("alice", None, None), ("bob", None, None), ("bob", "a7", None)}
    assert {c.memory_id: c.what for c in scopes["alice", None, None].changed} == {
        changed: ("text",),
        tagged: ("metadata",),
    }
    assert [c.memory_id for c in scopes["alice", None, None].removed] == [gone]
    assert [c.memory_id for c in scopes["bob", None, None].added] == [new]
    (owner,) = scopes["bob", "a7", None].changed
    assert (owner.memory_id, owner.what, owner.was) == (moved, ("owner",), ("alice", "a7", None))
    assert all(c.before is None and c.after is None for s in found.scopes for c in (*s.added, *s.removed))
    told = between(copy_at(first), of_live(installed(agent), this_host()), texts=True)
    texts = {
        c.memory_id: (c.before, c.after) for s in told.scopes for c in (*s.added, *s.changed, *s.removed)
    }
    assert texts == {
        changed: ("fact 1", "another text"),
        tagged: ("fact 3", "fact 3"),
        gone: ("fact 2", None),
        new: (None, "brand new"),
        moved: ("fact 5", "fact 5"),
    }


def test_nothing_differs_from_itself(tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path)
    done = take(store, tmp_path / "snapshots").path
    backup = cp(tmp_path / "backup", store.history, store.vectors)
    sides = [copy_at(done), copy_at(backup), of_live(installed(store), this_host())]
    for a in sides:
        for b in sides:
            found = between(a, b)
            assert found.scopes == ()
            assert found.unchanged == found.a.memories == found.b.memories > 0
    assert [found.a.what, sides[0].pair, sides[1].pair] == ["live", True, False]


def test_random_operations_against_dicts(tmp_path: Path) -> None:
    rng = random.Random(7)
    moments: list[tuple[Payloads, str]] = []
    with MemoryBuilder(tmp_path / "install") as agent:
        known: list[str] = []
        for _ in range(4):
            for _ in range(25):
                what = rng.random()
                if what < 0.5 or not known:
                    known.append(agent.add(f"fact {rng.random()}", user_id=rng.choice("abc")))
                elif what < 0.75:
                    agent.update(rng.choice(known), f"other {rng.random()}")
                else:
                    agent.delete(known.pop(rng.randrange(len(known))))
            moments.append((agent.points(), take(agent, tmp_path / "snapshots").path))
        for before, a in moments:
            for after, b in moments:
                found = between(copy_at(a), copy_at(b))
                assert {kind: ids(found, kind) for kind in ("added", "changed", "removed")} == slow(
                    before, after
                )
                for scope in found.scopes:
                    for change in scope.added:
                        assert scope.owner[0] == after[change.memory_id]["user_id"]


def test_beside_an_agent_that_writes(tmp_path: Path) -> None:
    """What is live is read whole while it is written, and what the snapshot has is never called changed by it."""
    with writer(tmp_path / "install"):
        written(tmp_path / "install", 10)
        store = copy_store("2.2.1", tmp_path)
        store.history, store.vectors = tmp_path / "install/mem0_dir/history.db", tmp_path / "install/qdrant"
        first = copy_at(take(store, tmp_path / "snapshots").path)
        found = between(first, of_live(installed(store), this_host()), texts=True)
        second = copy_at(take(store, tmp_path / "snapshots").path)
    later = between(first, second)
    assert found.not_checked == ()
    assert found.a.memories > 0
    assert ids(found, "removed") <= ids(later, "removed")
    for scope in found.scopes:
        for change in scope.changed:
            assert change.what == ("text",)
            assert change.before is not None


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = copied(tmp_path, vectors_of="pre")
    whole = copied(tmp_path / "whole")
    RawPoints(folder / "qdrant").put_row("x", b"cos\nsystem\n(S'true'\ntR.")
    found = between(copy_at(whole), copy_at(folder))
    assert found.totals["added"] == 8
    assert [n.why for n in found.not_checked] == ["1 points do not decode"]
    file = folder / "qdrant/collection/mem0/storage.sqlite"
    file.write_bytes(b"nothing" * 5000)
    with pytest.raises(CouldNotRead, match="is no SQLite file"):
        between(copy_at(whole), copy_at(folder))
    shutil.rmtree(folder / "qdrant/collection")
    (folder / "qdrant/collection").symlink_to(whole / "qdrant/collection")
    with pytest.raises(CouldNotRead, match="is a link"):
        copy_at(folder)


def test_stores_of_old_versions(tmp_path: Path) -> None:
    for name in ("0.1.40", "1.0.0", "1.0.11"):
        now, pre = copy_store(name, tmp_path), copy_store(name, tmp_path, pre_delete_all=True)
        a = cp(tmp_path / name / "a", pre.history, pre.vectors)
        b = cp(tmp_path / name / "b", now.history, now.vectors)
        before, after = (
            {str(i): p.payload for i, p in RawPoints(s / "qdrant").points().items()} for s in (a, b)
        )
        found = between(copy_at(a), copy_at(b))
        assert {kind: ids(found, kind) for kind in ("added", "changed", "removed")} == slow(before, after)
        assert ids(found, "removed")


HOLDING = """
import sqlite3, sys, time
names = ('qdrant/collection/mem0/storage.sqlite', 'history.db')
held = [sqlite3.connect(f'{sys.argv[1]}/{name}') for name in names]
[one.execute('select * from sqlite_master').fetchall() for one in held]
print('open', flush=True); time.sleep(600)
"""


@pytest.mark.root
def test_live_is_where_the_agent_sees_it(durable: Path) -> None:
    """The agent has a /tmp of its own: as root the store is read there."""
    needs_root()
    theirs = copy_store("2.2.1", durable / "theirs")
    pre = copy_store("2.2.1", durable / "pre", pre_delete_all=True)
    earlier = cp(durable / "backup", pre.history, pre.vectors)
    seen = durable / "seen"
    seen.mkdir()
    script = (
        f"mount -t tmpfs tmpfs {seen} && cp -r {theirs.vectors} {theirs.history} {seen}"
        f' && exec "{os.path.realpath(sys.executable)}" -c "$1" "{seen}"'
    )
    agent = subprocess.Popen(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", HOLDING],
        stdout=subprocess.PIPE,
    )
    assert agent.stdout is not None
    try:
        assert agent.stdout.readline().strip() == b"open"
        named = copy_store("2.2.1", durable / "named")
        named.history, named.vectors = seen / "history.db", seen / "qdrant"
        found = between(copy_at(earlier), of_live(installed(named), this_host()), texts=True)
        assert found.b.path == f"/proc/{agent.pid}/root{seen}/qdrant"
        assert (found.totals["removed"], found.unchanged) == (8, 19)
        back = between(of_live(installed(named), this_host()), copy_at(earlier), texts=True)
        assert all(c.after for scope in back.scopes for c in scope.added)
        assert back.totals["added"] == 8
    finally:
        agent.kill()
        agent.wait()
        agent.stdout.close()
