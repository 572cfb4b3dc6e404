"""Groups C, T and S: what is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import MemoryBuilder, RawPoints, copy_store
from tests.rules.support import codes, host, of, report_of

pytestmark = pytest.mark.usefixtures("beside_a_server")
Build = Callable[..., MemoryBuilder]
SELECT = ("C", "T", "S", "D309")


@pytest.fixture
def store(build: Build) -> MemoryBuilder:
    agent = build()
    agent.ids = [agent.add(f"memory {i}", user_id="alice") for i in range(3)]  # type: ignore[attr-defined]
    return agent


def test_different_texts_are_no_duplicates(store: MemoryBuilder) -> None:
    store.add("memory 0", user_id="bob")  # the same text of somebody else
    store.add("memory 0", user_id="alice", run_id="r1")  # or of another run
    store.close()
    assert not codes(report_of(store, select=SELECT))


def test_c601_the_same_text_twice(store: MemoryBuilder) -> None:
    copy = store.add("memory 1", user_id="alice")
    store.close()
    report = report_of(store, select=SELECT)
    assert codes(report) == {"C601": 1}
    assert {of(report, "C601")[0].memory_id, of(report, "C601")[0].evidence["others"]} == {copy, store.ids[1]}


def test_c602_blank_and_missing_texts(store: MemoryBuilder) -> None:
    store.close()
    raw = RawPoints(store.vectors)
    raw.edit(store.ids[0], lambda p: p.update(data=" \n", hash=hashlib.md5(b" \n").hexdigest()))
    raw.edit(store.ids[1], lambda p: p.pop("data"))
    assert codes(report_of(store, select=SELECT)) == {"C602": 2}


def test_c603_keys_of_another_sdk(store: MemoryBuilder) -> None:
    store.close()
    raw = RawPoints(store.vectors)

    def as_typescript(payload: dict[str, object]) -> None:
        payload["userId"] = payload.pop("user_id")
        payload["createdAt"] = payload.pop("created_at")

    raw.edit(store.ids[0], as_typescript)
    raw.edit(store.ids[1], lambda p: p.update(userId="a metadata key of the user's own"))
    assert codes(report_of(store, select=SELECT)) == {"C603": 1}


def test_c604_one_text_many_times(store: MemoryBuilder) -> None:
    for i in range(9):
        store.add("memory 2", user_id="alice", run_id=f"run {i}".replace(" ", "-"))
    store.close()
    report = report_of(store, select=SELECT)
    assert codes(report) == {"C604": 1}
    assert of(report, "C604")[0].evidence["copies"] == 10


def test_c604_begins_at_ten_copies(store: MemoryBuilder) -> None:
    for _ in range(8):
        store.add("memory 2", user_id="alice")
    store.close()
    assert codes(report_of(store, select=SELECT)) == {"C601": 1}


def test_t701_an_expired_memory(store: MemoryBuilder) -> None:
    store.add("a trial", user_id="alice", expiration_date="2026-03-01")
    store.close()
    day = 86400.0
    last = 1772323200.0  # 2026-03-01T00:00:00Z
    assert not codes(report_of(store, select=("T",), on=host(now=last + day - 1)))
    report = report_of(store, select=("T",), on=host(now=last + day))
    assert codes(report) == {"T701": 1}
    assert of(report, "T701")[0].evidence["expired"] == "2026-03-01"


def test_t701_agrees_with_mem0_on_the_kept_store(tmp_path: Path) -> None:
    assert codes(report_of(copy_store("2.2.1", tmp_path), select=("T",))) == {"T701": 1}


def test_s804_text_that_is_kept_of_the_deleted(tmp_path: Path, store: MemoryBuilder) -> None:
    store.close()
    assert not of(report_of(store, select=SELECT), "S804")
    report = report_of(copy_store("2.2.1", tmp_path), select=SELECT)
    told = {f.subject: f.evidence for f in of(report, "S804")}
    assert told["history"]["deleted memories"] == 11
    assert told["messages of user_id=carol"]["messages"] == 2
    assert "SECRETCAROL" not in str(report.findings)


def test_s805_mem0s_own_telemetry(store: MemoryBuilder) -> None:
    store.close()
    RawPoints(store.vectors).put(
        "1b4e28ba-2fa1-11d2-883f-0016d3cca427", {"type": "user_identity", "user_id": "x"}, [1.0]
    )
    report = report_of(store, select=("S805", "D", "C"))
    assert codes(report) == {"S805": 1}
    assert report.counts["memories"] == 3
