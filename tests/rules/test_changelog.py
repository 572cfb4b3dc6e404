"""Group H: the log itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import MemoryBuilder, RawHistory, RawPoints
from tests.rules.support import codes, of, report_of

pytestmark = pytest.mark.usefixtures("beside_a_server")
Build = Callable[..., MemoryBuilder]
SELECT = ("H",)


@pytest.fixture
def store(build: Build) -> MemoryBuilder:
    agent = build()
    agent.ids = [agent.add(f"memory {i}", user_id="alice") for i in range(3)]  # type: ignore[attr-defined]
    agent.update(agent.ids[0], "changed once")  # type: ignore[attr-defined]
    agent.update(agent.ids[0], "changed twice")  # type: ignore[attr-defined]
    agent.delete(agent.ids[1])  # type: ignore[attr-defined]
    agent.close()
    return agent


def test_ordinary_work_has_nothing_of_group_h(store: MemoryBuilder) -> None:
    assert not codes(report_of(store, select=SELECT))


def test_h401_a_row_in_the_middle_is_gone(store: MemoryBuilder) -> None:
    RawHistory(store.history).run("delete from history where new_memory = 'changed once'")
    report = report_of(store, select=SELECT)
    assert codes(report) == {"H401": 1}
    assert of(report, "H401")[0].evidence["log row"] == 5


def test_h401_is_silent_on_texts_that_were_emptied(store: MemoryBuilder) -> None:
    """Texts lost by the migration from 0.0.9 are NULL, emptied ones are ''."""
    raw = RawHistory(store.history)
    raw.run("update history set new_memory = null where new_memory = 'changed once'")
    raw.run("update history set old_memory = '' where event = 'DELETE'")
    assert not codes(report_of(store, select=SELECT))


def test_h402_the_first_row_is_no_add(store: MemoryBuilder) -> None:
    RawHistory(store.history).run("delete from history where event = 'ADD' and memory_id = ?", store.ids[0])
    report = report_of(store, select=SELECT)
    assert codes(report) == {"H402": 1}
    assert of(report, "H402")[0].memory_id == store.ids[0]


def test_h403_a_row_after_the_deletion(store: MemoryBuilder) -> None:
    raw = RawHistory(store.history)
    raw.add(store.ids[1], "memory 1", None, "DELETE")  # a second deletion is a repair, no fault
    assert not codes(report_of(store, select=SELECT))
    raw.add(store.ids[1], None, "back", "ADD")
    assert codes(report_of(store, select=SELECT)) == {"H403": 1}


def test_h404_an_event_that_mem0_does_not_write(store: MemoryBuilder) -> None:
    raw = RawHistory(store.history)
    raw.add(store.ids[0], "changed twice", "changed twice", "NONE")
    raw.add(None, None, "nobody's", "ADD")
    raw.add(store.ids[2], None, None, "a whole memory text where an event should be")
    report = report_of(store, select=SELECT)
    assert codes(report) == {"H404": 3}
    assert "whole memory" not in str(report.findings)


def test_h405_the_log_was_lost(build: Build) -> None:
    agent = build()
    for i in range(12):
        agent.add(f"before {i}", user_id="alice")
    agent.close()
    agent.history.unlink()
    agent.open()
    for i in range(3):
        agent.add(f"after {i}", user_id="alice")
    agent.close()
    report = report_of(agent, select=SELECT)
    assert codes(report) == {"H405": 1}
    assert of(report, "H405")[0].evidence["unlogged memories"] == 12


def test_h405_is_silent_when_few_are_unknown(build: Build) -> None:
    agent = build()
    for i in range(12):
        agent.add(f"fact {i}", user_id="alice")
    agent.close()
    RawHistory(agent.history).run("delete from history where rowid <= 9")
    assert not codes(report_of(agent, select=SELECT))


def test_h406_times_with_two_offsets(store: MemoryBuilder) -> None:
    RawHistory(store.history).run(
        "update history set created_at = '2026-01-01T00:00:00-08:00', updated_at = null where rowid = 1"
    )
    assert len(of(report_of(store, select=SELECT), "H406")) == 1
    RawHistory(store.history).run("delete from history where rowid = 1")
    assert not of(report_of(store, select=SELECT), "H406")


def test_h407_memories_from_a_time_without_rows(build: Build) -> None:
    agent = build()
    agent.add("logged before", user_id="alice")
    for i in range(3):
        with agent.crash_between_writes():
            agent.add(f"not logged {i}", user_id="alice")
    agent.add("logged after", user_id="alice")
    agent.close()
    report = report_of(agent, select=SELECT)
    assert codes(report) == {"H407": 1}
    assert of(report, "H407")[0].evidence["memories"] == 3
    RawPoints(agent.vectors).remove(
        next(i for i, p in RawPoints(agent.vectors).points().items() if p.payload["data"] == "not logged 1")
    )
    assert not codes(report_of(agent, select=SELECT))


def test_rows_with_any_type_in_any_column(store: MemoryBuilder) -> None:
    raw = RawHistory(store.history)
    raw.add(17, b"\xff\xfe", 3.5, b"ADD", created_at=12, updated_at=b"x")
    raw.add("y", "a\x00b", "c\x00d", "ADD", created_at="not a time")
    report = report_of(store, select=("H", "D"))
    assert codes(report)["H404"] == 1
    assert report.counts["changes"] == 8
