"""The tools of the tests themselves: what they build is what mem0 builds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import conftest
from tests.builders import (
    MemoryBuilder,
    RawHistory,
    RawPoints,
    copy_incident,
    copy_store,
    difference,
    incident_names,
)

NOTHING: dict[str, set[str]] = {"lost": set(), "unlogged": set(), "resurrected": set(), "text": set()}


def test_a_built_install_agrees(build: Callable[..., MemoryBuilder]) -> None:
    with build() as agent:
        first = agent.add("Alice lives in Lisbon", user_id="alice", metadata={"n": 1})
        agent.add("Bob has a trial", user_id="bob", expiration_date="2020-01-01")
        inferred = agent.add_inferred(["Carol is left handed", "Carol lives in Quito"], user_id="carol")
        agent.update(first, "Alice lives in Porto")
        agent.delete(inferred[0])
        running = agent.points()
    points = RawPoints(agent.vectors).points()
    assert {i: p.payload for i, p in points.items()} == running
    assert [row["event"] for row in RawHistory(agent.history).rows()] == [
        "ADD",
        "ADD",
        "ADD",
        "ADD",
        "UPDATE",
        "DELETE",
    ]
    assert difference(agent.history, agent.vectors) == NOTHING


def test_entities_are_stored_as_mem0_stores_them(build: Callable[..., MemoryBuilder]) -> None:
    with build() as agent:
        one = agent.add("Alice lives in Lisbon", user_id="alice")
        entity = agent.plant_entity("Lisbon", [one], user_id="alice")
        agent.reopen()
        agent.delete(one)
    left = RawPoints(agent.vectors, "mem0_entities").points()
    assert left[entity].payload == {
        "data": "Lisbon",
        "entity_type": "PROPER",
        "linked_memory_ids": [one],
        "user_id": "alice",
    }
    written_by_mem0 = RawPoints(copy_store("2.2.1-nlp", agent.folder).vectors, "mem0_entities").points()
    keys = {
        tuple(sorted(set(p.payload) - {"user_id", "agent_id", "run_id"})) for p in written_by_mem0.values()
    }
    assert keys == {("data", "entity_type", "linked_memory_ids")}


def test_a_cut_write_leaves_the_vector_alone(build: Callable[..., MemoryBuilder]) -> None:
    with build() as agent:
        kept = agent.add("kept", user_id="alice")
        gone = agent.add("gone", user_id="alice")
        with agent.crash_between_writes():
            agent.add("never logged", user_id="alice")
        with agent.crash_between_writes():
            agent.update(kept, "changed")
        with agent.crash_between_writes():
            agent.delete(gone)
        (unlogged,) = set(agent.points()) - {kept}
    assert difference(agent.history, agent.vectors) == {
        "lost": {gone},
        "unlogged": {unlogged},
        "resurrected": set(),
        "text": {kept},
    }


def test_raw_faults(build: Callable[..., MemoryBuilder]) -> None:
    with build() as agent:
        one, two = agent.add("one", user_id="alice"), agent.add("two", user_id="alice")
    raw = RawPoints(agent.vectors)
    row = raw.row_of(one)
    with build() as agent:
        agent.delete(one)
    raw.put_row(*row)
    raw.edit(two, lambda payload: payload.update(data="changed"))
    raw.put("0b0c6e4e-9d5b-4b6e-8a55-0f4a9f6b1f11", {"data": "planted", "user_id": "eve"})
    assert difference(agent.history, agent.vectors) == {
        "lost": set(),
        "unlogged": {"0b0c6e4e-9d5b-4b6e-8a55-0f4a9f6b1f11"},
        "resurrected": {one},
        "text": {two},
    }
    with build() as agent:
        assert set(agent.points()) == {one, two, "0b0c6e4e-9d5b-4b6e-8a55-0f4a9f6b1f11"}


@pytest.mark.parametrize("name", ["0.1.40", "1.0.0", "1.0.11", "2.2.1", "2.2.1-nlp"])
def test_kept_stores_are_copied_and_consistent(name: str, tmp_path: Path) -> None:
    copy = copy_store(name, tmp_path, pre_delete_all=True)
    assert copy.truth["version"] == name.removesuffix("-nlp")
    assert difference(copy.history, copy.vectors) == NOTHING


def test_the_home_is_the_tests_own(own_home: Path, build: Callable[..., MemoryBuilder]) -> None:
    assert Path.home() == own_home
    build().add("one", user_id="alice")
    assert not (own_home / ".mem0").exists() or json.loads((own_home / ".mem0/config.json").read_text())


def test_a_write_to_a_real_store_is_noticed() -> None:
    with pytest.raises(OSError):
        os.open("/tmp/qdrant/none/file", os.O_WRONLY | os.O_CREAT)
    assert conftest._touched.pop() == "open /tmp/qdrant/none/file"


def test_the_durable_folder_is_not_under_tmp(durable: Path) -> None:
    assert durable.is_dir()
    assert not str(durable).startswith("/tmp/")


def test_every_incident_is_kept() -> None:
    assert len(incident_names()) == 16


@pytest.mark.parametrize("name", incident_names())
def test_incidents_are_what_they_say(name: str, tmp_path: Path) -> None:
    """truth.json was written from what the agent did; the files must agree with it."""
    incident = copy_incident(name, tmp_path)
    truth = incident.truth
    found = difference(incident.history, incident.vectors, truth["collection"])
    assert {kind: sorted(ids) for kind, ids in found.items()} == truth["expected"]
    if name == "bulk-delete-stopped-at-100":
        events = [row["event"] for row in RawHistory(incident.history).rows()]
        points = RawPoints(incident.vectors).points()
        assert events.count("DELETE") == 100
        assert sorted(i for i, p in points.items() if p.payload["user_id"] == "carol") == truth["left"]
        assert len(truth["left"]) == 50
    if name == "stranded-history":
        stranded = {row[0] for row in RawHistory(incident.history).run("SELECT memory_id FROM history_old")}
        assert sorted(stranded) == truth["expected"]["unlogged"]
    if name == "second-memory-in-migrations":
        other = RawPoints(incident.vectors, truth["other_collection"]["name"]).points()
        assert set(truth["other_collection"]["ids"]) < set(other)
    if name == "entities-orphaned":
        live = set(RawPoints(incident.vectors).points())
        entities = RawPoints(incident.vectors, "mem0_entities").points()
        left = {i: [m in live for m in p.payload["linked_memory_ids"]] for i, p in entities.items()}
        assert sorted(i for i, alive in left.items() if not any(alive)) == sorted(truth["entities"]["orphan"])
        assert [i for i, alive in left.items() if any(alive) and not all(alive)] == truth["entities"][
            "dangling"
        ]
    if name == "dims-changed":
        meta = json.loads((incident.vectors / "meta.json").read_text())
        assert meta["collections"]["mem0"]["vectors"]["size"] == 16
