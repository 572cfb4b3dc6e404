"""Group E: entities that mem0's own store wrote."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store
from tests.rules.readings import reading_of
from tests.rules.support import codes, host, of, report_of

pytestmark = pytest.mark.usefixtures("beside_a_server")
Build = Callable[..., MemoryBuilder]
SELECT = ("E", "D307")


@pytest.fixture
def store(build: Build) -> MemoryBuilder:
    agent = build()
    agent.ids = [agent.add(f"memory {i}", user_id="alice") for i in range(3)]  # type: ignore[attr-defined]
    agent.entity = agent.plant_entity("Lisbon", agent.ids[:2], user_id="alice")  # type: ignore[attr-defined]
    agent.reopen()
    return agent


def later(seconds: float) -> object:
    import time

    return host(now=time.time() + seconds)


def test_linked_memories_that_are_there(store: MemoryBuilder) -> None:
    store.close()
    assert not codes(report_of(store, select=SELECT))


def test_e502_one_linked_memory_is_gone(store: MemoryBuilder) -> None:
    """Deleted by a process that has not touched entities: mem0 2.0.0 to 2.2.1 clean nothing then."""
    store.delete(store.ids[0])
    store.close()
    report = report_of(store, select=SELECT, on=later(120))
    assert codes(report) == {"E502": 1}
    assert of(report, "E502")[0].memory_id == store.entity
    assert of(report, "E502")[0].evidence["first dead"] == store.ids[0]


def test_e501_all_linked_memories_are_gone(store: MemoryBuilder) -> None:
    store.delete_all(user_id="alice")
    store.close()
    assert codes(report_of(store, select=SELECT, on=later(120))) == {"E501": 1}


def test_e501_is_silent_for_a_minute(store: MemoryBuilder) -> None:
    """Entities trail their memories by the embedder's latency."""
    store.delete(store.ids[0])
    store.close()
    assert not codes(report_of(store, select=SELECT, on=later(30)))


def test_e503_a_memory_of_another_owner(store: MemoryBuilder) -> None:
    other = store.add("of bob", user_id="bob")
    store.close()
    raw = RawPoints(store.vectors, "mem0_entities")
    raw.edit(store.entity, lambda p: p.update(linked_memory_ids=[*p["linked_memory_ids"], other]))
    report = report_of(store, select=SELECT)
    assert codes(report) == {"E503": 1}
    assert of(report, "E503")[0].evidence["memory"] == other


def test_e503_is_silent_on_a_key_that_only_one_side_names(store: MemoryBuilder) -> None:
    """mem0 itself links a memory of `alice` to an entity of `alice` + `agent7`."""
    store.plant_entity("Porto", [store.ids[2]], user_id="alice", agent_id="agent7")
    store.close()
    assert not codes(report_of(store, select=SELECT))


def test_e504_more_entities_than_mem0_reads(store: MemoryBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    from mem0audit.core.rules import entities

    store.close()
    monkeypatch.setattr(entities, "SCOPE_LIMIT", 0)
    assert codes(report_of(store, select=("E504",))) == {"E504": 1}
    monkeypatch.setattr(entities, "SCOPE_LIMIT", 1)
    assert not codes(report_of(store, select=("E504",)))


def test_the_limit_of_e504_is_mem0s_own() -> None:
    """The number in mem0's source: entities beyond it are never cleaned."""
    import inspect

    import mem0.memory.main as main

    from mem0audit.core.rules.entities import SCOPE_LIMIT

    source = inspect.getsource(main.Memory._remove_memory_from_entity_store)
    assert f"top_k={SCOPE_LIMIT}" in source.replace("_", "") or str(SCOPE_LIMIT) in source


def test_real_entities_made_by_spacy(tmp_path: object) -> None:
    before = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)  # type: ignore[arg-type]
    reading = reading_of(before)
    assert sum(len(e.read.rows) for e in reading.entities) > 10
    assert not codes(report_of(before, select=SELECT))


@pytest.mark.folder_only
def test_links_into_a_collection_that_cannot_be_read_are_not_judged(store: MemoryBuilder) -> None:
    store.close()
    (store.vectors / "collection/mem0/storage.sqlite").write_bytes(b"nothing here" * 500)
    report = report_of(store, select=SELECT)
    assert not codes(report)
    assert {n.what for n in report.not_checked if n.gap} >= {"E501", "E502"}


def test_a_log_that_is_missing_does_not_make_links_dead(store: MemoryBuilder) -> None:
    store.close()
    RawHistory(store.history).run("drop table history")
    assert not codes(report_of(store, select=SELECT))
