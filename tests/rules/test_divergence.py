"""Group D: each rule on a store that mem0 wrote, with one fault; and silent without it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.builders import MemoryBuilder, RawHistory, RawPoints
from tests.rules.support import codes, of, report_of

pytestmark = pytest.mark.usefixtures("beside_a_server")
Build = Callable[..., MemoryBuilder]


def three(build: Build) -> tuple[MemoryBuilder, list[str]]:
    agent = build()
    ids = [agent.add(f"memory {i}", user_id="alice") for i in range(3)]
    return agent, ids


def test_d301_a_deleted_memory_is_back(build: Build) -> None:
    agent, ids = three(build)
    agent.close()
    row = RawPoints(agent.vectors).row_of(ids[1])
    agent.open()
    agent.delete(ids[1])
    agent.close()
    assert not codes(report_of(agent, select=("D",)))
    RawPoints(agent.vectors).put_row(*row)
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D301": 1}
    found = of(report, "D301")[0]
    assert found.memory_id == ids[1]
    assert found.evidence["log row"] == 4
    assert found.evidence["owner"] == "user alice"


def test_d302_a_memory_is_gone(build: Build) -> None:
    agent, ids = three(build)
    agent.close()
    RawPoints(agent.vectors).remove(ids[0])
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D302": 1}
    assert of(report, "D302")[0].memory_id == ids[0]
    assert "unlogged delete" in str(of(report, "D302")[0].evidence["looks like"])


def test_d303_an_add_was_cut_short(build: Build) -> None:
    agent, _ids = three(build)
    with agent.crash_between_writes():
        agent.add("never logged", user_id="bob")
    agent.close()
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D303": 1}
    assert of(report, "D303")[0].evidence["owner"] == "user bob"


def test_d304_an_update_was_cut_short(build: Build) -> None:
    agent, ids = three(build)
    with agent.crash_between_writes():
        agent.update(ids[2], "another text")
    agent.close()
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D304": 1}
    assert of(report, "D304")[0].memory_id == ids[2]
    assert of(report, "D304")[0].evidence["newer"] == "the store"


def test_d304_and_d305_a_payload_was_edited(build: Build) -> None:
    agent, ids = three(build)
    agent.close()
    RawPoints(agent.vectors).edit(ids[0], lambda payload: payload.update(data="tampered"))
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D304": 1, "D305": 1}


def test_d305_a_stale_hash(build: Build) -> None:
    agent, ids = three(build)
    agent.close()
    RawPoints(agent.vectors).edit(ids[0], lambda payload: payload.update(hash="0" * 32))
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D305": 1}
    RawPoints(agent.vectors).edit(ids[0], lambda payload: payload.pop("hash"))
    assert not codes(report_of(agent, select=("D",)))


def test_d306_created_at_differs(build: Build) -> None:
    agent, ids = three(build)
    agent.close()
    RawPoints(agent.vectors).edit(
        ids[0],
        lambda p: p.update(created_at="2001-01-01T00:00:00+00:00", updated_at="2001-01-01T00:00:00+00:00"),
    )
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D306": 1}
    assert of(report, "D306")[0].evidence["which"] == "created_at"


def test_d306_is_silent_on_another_spelling_of_the_same_instant(build: Build) -> None:
    agent, ids = three(build)
    agent.close()
    stamp = "2026-03-01T12:00:00.000000+00:00"
    RawHistory(agent.history).run("update history set created_at = ? where memory_id = ?", stamp, ids[0])
    RawPoints(agent.vectors).edit(
        ids[0],
        lambda p: p.update(created_at="2026-03-01T04:00:00-08:00", updated_at="2026-03-01T04:00:00-08:00"),
    )
    assert not codes(report_of(agent, select=("D",)))


def test_d306_is_silent_on_empty_times_and_on_none_events(build: Build) -> None:
    """mem0 1.0.9 to 1.0.11 move updated_at on a NONE event without a row; ADD rows of 2.x have no updated_at."""
    agent, ids = three(build)
    agent.update(ids[1], "changed")
    agent.close()
    RawHistory(agent.history).run("update history set updated_at = null where memory_id = ?", ids[0])

    def as_1_0_11_does(payload: dict[str, object]) -> None:
        payload.pop("text_lemmatized", None)
        payload["updated_at"] = "2031-01-01T00:00:00+00:00"

    RawPoints(agent.vectors).edit(ids[1], as_1_0_11_does)
    assert not codes(report_of(agent, select=("D",)))


def test_d306_an_update_of_2_x_that_was_never_logged(build: Build) -> None:
    agent, ids = three(build)
    agent.update(ids[1], "changed")
    agent.close()
    RawPoints(agent.vectors).edit(
        ids[1], lambda p: p.update(updated_at="2031-01-01T00:00:00+00:00", text_lemmatized="changed")
    )
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D306": 1}
    assert of(report, "D306")[0].evidence["which"] == "updated_at"


def test_d307_a_memory_moved_to_another_user(build: Build) -> None:
    agent, ids = three(build)
    agent.plant_entity("Lisbon", [ids[0]], user_id="alice")
    agent.plant_entity("Porto", [ids[0], ids[1]], user_id="alice")
    agent.close()
    assert not codes(report_of(agent, select=("D", "E")))
    RawPoints(agent.vectors).edit(ids[0], lambda p: p.update(user_id="mallory"))
    report = report_of(agent, select=("D", "E"))
    assert codes(report) == {"D307": 1}
    assert of(report, "D307")[0].memory_id == ids[0]


def test_d308_owner_ids_that_mem0_cannot_match(build: Build) -> None:
    from mem0audit.core.rules.divergence import unreachable_owner
    from tests.rules.readings import reading_of

    agent, ids = three(build)
    agent.close()
    raw = RawPoints(agent.vectors)
    raw.edit(ids[0], lambda p: p.update(user_id=" alice "))
    raw.edit(ids[1], lambda p: p.update(user_id=17))
    told = list(unreachable_owner(reading_of(agent, mem0="2.2.1")))
    assert {f.memory_id for f in told} == {ids[0], ids[1]}
    assert not list(unreachable_owner(reading_of(agent, mem0="1.0.11")))
    unknown = list(unreachable_owner(reading_of(agent, mem0=None)))
    assert [type(v).__name__ for v in unknown] == ["NotChecked"]
    assert codes(report_of(agent, select=("D308",), agent_python=sys.executable)) == {"D308": 2}


def test_d309_a_memory_without_owner(build: Build) -> None:
    agent, ids = three(build)
    agent.close()
    RawPoints(agent.vectors).edit(ids[0], lambda p: p.pop("user_id"))
    report = report_of(agent, select=("D",))
    assert codes(report) == {"D309": 1}


@pytest.mark.folder_only
def test_nothing_is_reported_lost_while_the_store_cannot_be_read(build: Build) -> None:
    agent, _ids = three(build)
    agent.close()
    (agent.vectors / "collection/mem0/storage.sqlite").write_bytes(b"no database at all" * 300)
    report = report_of(agent, select=("D", "I"))
    assert codes(report) == {"I202": 1}
    assert {n.what for n in report.not_checked if n.gap} >= {"D301", "D302", "D303", "D304"}
