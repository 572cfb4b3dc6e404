"""No finding where mem0 did nothing wrong: kept stores of every version, and random ordinary work."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import STORES, MemoryBuilder, copy_store
from tests.rules.support import codes, gaps, kinds, of, report_of

FINAL = [p.name for p in sorted(STORES.iterdir()) if (p / "truth.json").exists() and p.name != "1.0.0"]
BEFORE = [p.name for p in sorted(STORES.iterdir()) if (p / "pre_delete_all").exists()]

# What these stores truly have: one memory of bob that expired in 2020 (2.0.12 on), and in the first store
# entities that its fresh-process deletions never cleaned (facts about mem0 2.0.0 to 2.2.1).
TRUE = {"T701": 1, "I204": 1, "S802": 1}


@pytest.mark.parametrize("name", FINAL)
def test_final_state_of_every_version(name: str, tmp_path: Path) -> None:
    report = report_of(copy_store(name, tmp_path))
    found = codes(report)
    assert not gaps(report)
    assert all(found[code] <= TRUE.get(code, 0) for code in found), found
    assert not kinds(report)


@pytest.mark.parametrize("name", BEFORE)
def test_state_before_the_deletion_of_every_version(name: str, tmp_path: Path) -> None:
    report = report_of(copy_store(name, tmp_path, pre_delete_all=True))
    found = codes(report)
    assert not gaps(report)
    assert all(found[code] <= TRUE.get(code, 0) for code in found), found
    assert not kinds(report)


@pytest.mark.parametrize("seed", [1, 2])
def test_300_random_operations(seed: int, build: Callable[..., MemoryBuilder]) -> None:
    rng = random.Random(seed)
    agent = build()
    scopes = [
        {"user_id": "bob"},
        {"user_id": "bob", "agent_id": "agent7"},
        {"user_id": "alice", "run_id": "r1"},
        {"agent_id": "agent7"},
    ]
    ids: list[str] = []
    for i in range(300):
        what = rng.choice(("add", "add", "facts", "update", "same", "metadata", "delete", "scope"))
        if what == "facts":
            ids += agent.add_inferred([f"fact {i}.{k}" for k in range(3)], **rng.choice(scopes))
        elif what == "update" and ids:
            agent.update(rng.choice(ids), f"changed at {i}")
        elif what == "same" and ids:
            one = rng.choice(ids)
            agent.update(one, agent.points()[one]["data"])
        elif what == "metadata" and ids:
            agent.update(rng.choice(ids), metadata={"n": i})
        elif what == "delete" and ids:
            agent.delete(ids.pop(rng.randrange(len(ids))))
        elif what == "scope" and i % 5 == 0:
            agent.delete_all(user_id="alice")
            ids = [one for one in ids if one in agent.points()]
        else:
            ids.append(agent.add(f"text {i}", metadata={"n": i}, **rng.choice(scopes)))
    agent.close()
    report = report_of(agent)
    assert not codes(report), codes(report)
    assert not gaps(report)
    assert not kinds(report)
    assert report.counts["memories"] == len(ids) == report.counts["live"]


def test_several_programs_on_one_log(build: Callable[..., MemoryBuilder], tmp_path: Path) -> None:
    """Two folders, one MEM0_DIR: the other one's memories are no loss, but one L108."""
    one = build("one", history=tmp_path / "shared" / "history.db")
    two = build("two", history=tmp_path / "shared" / "history.db")
    for i in range(4):
        one.add(f"of one {i}", user_id="alice")
        two.add(f"of two {i}", user_id="bob")
    one.close()
    report = report_of(one, select=("D", "H", "E", "L108"))
    # `two` still runs and holds its folder: that is where its memories are found
    assert codes(report) == {"L108": 1}, codes(report)
    assert str(two.vectors) in str(of(report, "L108")[0].path)
    two.close()


def test_two_collections_in_one_folder_and_one_log(build: Callable[..., MemoryBuilder]) -> None:
    first = build(collection="mem0")
    first.add("of the first", user_id="alice")
    first.close()
    second = MemoryBuilder(first.folder, collection="second")
    second.add("of the second", user_id="bob")
    second.close()
    for name in ("mem0", "second"):
        assert not codes(report_of(first, collection=name))


def test_times_that_callers_set(build: Callable[..., MemoryBuilder]) -> None:
    agent = build()
    agent.add("long ago", user_id="alice", metadata={"created_at": "1999-01-01T00:00:00+00:00"})
    agent.add("today", user_id="alice")
    agent.close()
    assert not codes(report_of(agent))
