"""Incidents, each on a store that a released mem0 itself brought into that state (tests/data/incidents)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.incident import incidents
from mem0audit.core.model import Certainty, Incident
from mem0audit.core.times import instant
from tests.builders import MemoryBuilder, RawHistory, copy_incident, copy_store, incident_names
from tests.rules.readings import reading_of
from tests.rules.support import Paths, codes, kinds, of, report_of

Build = Callable[..., MemoryBuilder]

# name -> (incident, version of the agent that is there now, what the test says of the place)
EXPECTED: dict[str, tuple[str | None, str | None, dict[str, Any]]] = {
    "async-delete-all-resurrected": ("bulk-delete-came-back", None, {}),
    "bulk-delete-stopped-at-100": ("bulk-delete-stopped", "1.0.11", {}),
    # nothing on disk says that the dimensions were others before, unless there are entities: see below
    "dims-changed": ("emptied", None, {}),
    "emptied-at-reboot": ("emptied-at-reboot", None, {"volatile": True, "filesystem": "tmpfs"}),
    "filtered-delete-dropped-all": ("filtered-delete-dropped-all", "1.0.5", {}),
    "log-lost": ("log-lost", None, {}),
    "log-older": ("log-older", None, {}),
    "one-write-cut": ("write-cut-short", None, {}),
    "phantom-add": ("write-cut-short", "2.2.0", {}),
    "second-memory-in-migrations": (None, None, {}),
    "stranded-history": ("stranded-log", None, {}),
    "threads": ("concurrent-writers", None, {}),
    "two-installs": ("two-installs", None, {}),
    "vectors-older": ("vectors-older", None, {}),
    "wiped-at-start": ("wiped-at-start", "1.0.7", {}),
}


def told(name: str, tmp_path: Path) -> tuple[tuple[Incident, ...], dict[str, Any]]:
    store = copy_incident(name, tmp_path)
    _kind, mem0, place = EXPECTED[name]
    changes: dict[str, Any] = {}
    if name == "emptied-at-reboot":
        boot = instant(store.truth["times"]["boot_at"])
        assert boot is not None
        changes = {"boot_at": boot, "vectors_place": {**place, "born_at": boot + 60}}
    return incidents(reading_of(store, mem0=mem0, **changes)), store.truth


@pytest.mark.parametrize("name", sorted(n for n in EXPECTED if EXPECTED[n][0]))
def test_the_incident_is_named_first(name: str, tmp_path: Path) -> None:
    events, _truth = told(name, tmp_path)
    assert events, name
    assert events[0].kind == EXPECTED[name][0]
    assert all(e.evidence and e.advice for e in events)


@pytest.mark.parametrize("name", incident_names())
def test_the_findings_are_exactly_what_was_done(name: str, tmp_path: Path) -> None:
    store = copy_incident(name, tmp_path)
    report = report_of(store, select=("D301", "D302", "D303", "D304"))
    expected = store.truth["expected"]
    elsewhere = set(store.truth.get("other_collection", {}).get("ids", ()))
    for code, what in (("D301", "resurrected"), ("D302", "lost"), ("D303", "unlogged"), ("D304", "text")):
        assert {f.memory_id for f in of(report, code)} == set(expected[what]) - elsewhere, code


def test_the_vectors_are_from_about_the_copy(tmp_path: Path) -> None:
    events, truth = told("vectors-older", tmp_path)
    assert len(events) == 1
    assert events[0].certainty is Certainty.CERTAIN
    assert truth["times"]["copied_at"][:16].replace("T", " ") in events[0].name
    assert events[0].memory_ids == frozenset(
        i for what in ("lost", "resurrected", "text") for i in truth["expected"][what]
    )


def test_the_log_is_from_about_the_copy(tmp_path: Path) -> None:
    events, truth = told("log-older", tmp_path)
    assert len(events) == 1
    assert truth["times"]["copied_at"][:16].replace("T", " ") in events[0].name
    assert set(truth["expected"]["unlogged"]) <= events[0].memory_ids


def test_the_reboot_is_certain_only_where_the_place_does_not_survive_it(tmp_path: Path) -> None:
    store = copy_incident("emptied-at-reboot", tmp_path)
    boot = instant(store.truth["times"]["boot_at"])
    assert boot is not None
    durable = incidents(reading_of(store, boot_at=boot, vectors_place={"volatile": False, "cleaned": None}))
    assert [e.kind for e in durable] == ["emptied"]
    # a boot before the memories were lost explains nothing
    early = incidents(
        reading_of(store, boot_at=boot - 10**8, vectors_place={"volatile": True, "born_at": boot})
    )
    assert [e.kind for e in early] == ["emptied"]


def test_the_filtered_delete_of_the_kept_store(tmp_path: Path) -> None:
    """mem0 1.0.0's own delete_all(carol): 18 memories of others went with hers."""
    store = copy_store("1.0.0", tmp_path)
    events = incidents(reading_of(store, mem0="1.0.0"))
    assert [(e.kind, e.certainty) for e in events] == [("filtered-delete-dropped-all", Certainty.CERTAIN)]
    assert len(events[0].memory_ids) == 18
    later = incidents(reading_of(store, mem0=None))
    assert [(e.kind, e.certainty) for e in later] == [("filtered-delete-dropped-all", Certainty.LIKELY)]


def test_each_cut_write_is_said(tmp_path: Path) -> None:
    events, _truth = told("one-write-cut", tmp_path)
    assert sorted(c for e in events for c in e.codes) == ["D302", "D303", "D304"]
    assert {e.kind for e in events} == {"write-cut-short"}


def test_a_second_memory_in_the_migrations_collection_is_no_loss(tmp_path: Path) -> None:
    """0.1.89 and 0.1.92 to 0.1.116 change the caller's config: real memories lie in mem0migrations."""
    store = copy_incident("second-memory-in-migrations", tmp_path)
    report = report_of(store, select=("D302", "L108"))
    assert not of(report, "D302")
    assert not kinds(report)


def test_orphaned_entities(tmp_path: Path) -> None:
    store = copy_incident("entities-orphaned", tmp_path)
    report = report_of(store, select=("E",))
    assert codes(report) == {"E501": len(store.truth["entities"]["orphan"]), "E502": 1}


def test_a_collection_recreated_with_other_dimensions(build: Build) -> None:
    """As an agent's guard does it when its embedder changes: the collection goes, its entities stay."""
    agent = build()
    ids = [agent.add(f"fact {i}", user_id="alice") for i in range(6)]
    agent.plant_entity("Lisbon", ids[:2], user_id="alice")
    agent.memory.vector_store.delete_col()
    agent.close()
    agent = build(dims=16)
    agent.add("after the change", user_id="alice")
    agent.close()
    reading = reading_of(agent)
    events = incidents(reading)
    assert [e.kind for e in events] == ["recreated-with-other-dimensions"]
    assert "16 dimensions" in events[0].name
    assert events[0].memory_ids == frozenset(ids)


def test_a_missing_log(build: Build) -> None:
    agent = build()
    agent.add("still here", user_id="alice")
    agent.close()
    agent.history.unlink()
    assert kinds(report_of(agent)) == ["log-lost"]


def test_a_missing_store_at_a_reboot(build: Build, tmp_path: Path) -> None:
    import shutil
    import time

    agent = build()
    for i in range(5):
        agent.add(f"fact {i}", user_id="alice")
    agent.close()
    shutil.rmtree(agent.vectors)
    place = {"volatile": True, "filesystem": "tmpfs"}
    events = incidents(reading_of(agent, boot_at=time.time() + 60, vectors_place=place))
    assert [(e.kind, e.certainty) for e in events] == [("emptied-at-reboot", Certainty.CERTAIN)]
    assert "has not been made again" in events[0].evidence[0]


def test_ordinary_work_is_no_incident(build: Build) -> None:
    agent = build()
    ids = [agent.add(f"fact {i}", user_id="alice") for i in range(30)]
    for one in ids[:20]:
        agent.delete(one)
    agent.close()
    assert not incidents(reading_of(agent))


def test_one_hundred_deletions_one_by_one_are_at_most_possible(build: Build) -> None:
    agent = build()
    agent.add("stays", user_id="bob")
    for one in [agent.add(f"fact {i}", user_id="alice") for i in range(100)]:
        agent.delete(one)
    agent.close()
    events = incidents(reading_of(agent, mem0=None))
    assert [(e.kind, e.certainty) for e in events] == [("bulk-delete-stopped", Certainty.POSSIBLE)]


def test_the_empty_log_of_a_reset(build: Build) -> None:
    agent = build()
    agent.add("in the store", user_id="alice")
    agent.close()
    RawHistory(agent.history).run("delete from history")
    assert kinds(report_of(Paths(agent.history, agent.vectors))) == ["log-lost"]


def test_another_program_on_the_same_log_whose_folder_is_nowhere_to_be_found(
    build: Build, tmp_path: Path
) -> None:
    shared = tmp_path / "home" / "history.db"
    one, two = build("one", history=shared), build("two", history=shared)
    for i in range(6):
        one.add(f"of one {i}", user_id="alice")
        two.add(f"of two {i}", user_id="bob")
    one.add("the last", user_id="alice")
    one.close()
    two.close()
    events = incidents(reading_of(one))
    assert [(e.kind, e.certainty) for e in events] == [("shared-log", Certainty.POSSIBLE)]


def test_an_empty_log_and_no_folder_is_a_gap(build: Build) -> None:
    import shutil

    agent = build()
    agent.close()
    shutil.rmtree(agent.vectors)
    report = report_of(agent)
    assert not report.findings or set(codes(report)) == set()
    assert [n.what for n in report.not_checked if n.gap] == [str(agent.vectors)]
    assert report.counts["memories"] is None
