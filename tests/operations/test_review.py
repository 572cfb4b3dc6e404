"""The queue of a review, what is close to a memory, and another text for one, on real mem0 stores."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.errors import Refused, UsageProblem
from mem0audit.core.ledger import DAY_S
from mem0audit.operations import ledgerfacts
from mem0audit.operations.review import Decisions, apply_replace, plan_replace, queue
from tests.builders import RawPoints
from tests.operations.embedder import serving
from tests.operations.test_ledgerfacts import TEXTS, Store, built, store

__all__ = ["built", "store"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")


def names(store: Store, days: int = 90, most: int = 20) -> list[str]:
    by_id = {i: n for n, i in store.ids.items()}
    return [by_id[one.memory_id] for one in queue(store.install, store.host, days=days, most=most).due]


def confirmed(store: Store, name: str, days_ago: float, source: str | None) -> None:
    with store.book() as book:
        book.confirm(store.ids[name], store.host.now - days_ago * DAY_S, source)


def test_the_oldest_of_an_unknown_source_first(store: Store) -> None:
    assert names(store) == []  # all were added just now
    for name, days_ago, source in (
        ("old", 100, "a"),
        ("new", 300, "b"),
        ("newest", 95, None),
        ("tea", 120, None),
        ("bob", 89, None),
    ):
        confirmed(store, name, days_ago, source)
    assert names(store) == ["tea", "newest", "new", "old"]
    assert names(store, most=1) == ["tea"]
    assert names(store, days=0)[-1] == "old"
    found = queue(store.install, store.host, most=1)
    assert (found.waiting, found.no_source, found.due[0].text) == (4, 2, TEXTS["tea"])
    ledgerfacts.confirm(store.install, store.host, store.ids["tea"], "asked her")
    store.supersede("new", "old")
    with store.book() as book:
        book.expire(store.ids["old"], store.host.now - 1)
    RawPoints(store.vectors).remove(store.ids["newest"])
    assert names(store) == []


def test_an_old_store_shows_a_full_queue(store: Store) -> None:
    store.host = replace(store.host, now=store.host.now + 91 * DAY_S)
    assert set(names(store)) == set(store.ids)


def test_what_is_close_stands_beside_it_and_nothing_is_done(store: Store) -> None:
    raw = RawPoints(store.vectors)
    ids = store.ids

    def put(name: str, vector: list[float]) -> None:
        raw.put(ids[name], raw.points()[ids[name]].payload, vector)

    put("tea", [1.0] + [0.0] * 7)
    put("new", [2.0, 0.4] + [0.0] * 6)
    put("newest", [0.9, 0.1] + [0.0] * 6)
    put("old", [1.0] + [0.0] * 7)  # the same user, another run: another owner
    put("bob", [1.0] + [0.0] * 7)
    confirmed(store, "tea", 200, None)
    (due,) = queue(store.install, store.host).due
    assert [one.memory_id for one in due.near] == [ids["newest"], ids["new"]]
    assert [round(one.closeness, 3) for one in due.near] == [0.994, 0.981]
    assert [one.text for one in due.near] == [TEXTS["newest"], TEXTS["new"]]
    store.supersede("newest", "new")
    (due,) = queue(store.install, store.host).due
    assert [one.memory_id for one in due.near] == [ids["new"]]
    raw.edit(ids["new"], lambda p: p.update(data=TEXTS["tea"]))  # the same text is C601
    (due,) = queue(store.install, store.host).due
    assert due.near == ()
    put("tea", [0.0] * 8)
    assert queue(store.install, store.host).due[0].near == ()


def test_decisions_are_on_the_disk_and_each_can_be_taken_back(store: Store) -> None:
    ids, host = store.ids, store.host
    with store.book() as book:
        before = book.memories()
    made = Decisions(store.install, host)
    assert made.undo() is None
    other = Decisions(store.install, host)
    other.delete(ids["tea"])
    made.delete(ids["bob"])
    with store.book() as book:
        assert book.to_delete() == (ids["tea"], ids["bob"])
    assert (made.undo(), other.undo()) == (ids["bob"], ids["tea"])
    made.confirm(ids["tea"], "asked her")
    made.expire(ids["bob"], host.now + 7 * DAY_S)
    made.supersede(ids["new"], ids["newest"])
    made.skip(ids["old"])
    made.delete(ids["old"])
    with pytest.raises(Refused, match="superseded itself"):
        made.supersede(ids["tea"], ids["new"])
    with store.book() as book:
        rows = book.memories()
        assert book.to_delete() == (ids["old"],)
    assert (rows[ids["tea"]].source, rows[ids["tea"]].confirmed_at) == ("asked her", host.now)
    assert rows[ids["bob"]].expires_at == host.now + 7 * DAY_S
    assert rows[ids["new"]].superseded_by == ids["newest"]
    assert [made.made(what) for what in ("confirmed", "expire", "superseded", "delete")] == [
        [ids["tea"]],
        [ids["bob"]],
        [ids["new"]],
        [ids["old"]],
    ]
    # another run knows what was decided and not done, and does not ask of it again
    found = queue(store.install, replace(host, now=host.now + 100 * DAY_S))
    assert found.to_delete == (ids["old"],)
    assert ids["old"] not in [one.memory_id for one in found.due]
    assert [made.undo() for _ in range(6)] == [
        *(ids[name] for name in ("old", "old", "new", "bob", "tea")),
        None,
    ]
    with store.book() as book:
        assert book.memories() == before
        assert book.to_delete() == ()


def test_another_text_through_the_users_own_embedder(store: Store, tmp_path: Path) -> None:
    tea = store.ids["tea"]
    for text, why in ((" ", "is empty"), (TEXTS["tea"], "is the text that it has")):
        with pytest.raises(UsageProblem, match=why):
            plan_replace(store.install, store.host, tea, text, "a")
    plan = plan_replace(store.install, store.host, tea, "SECRET coffee", "asked her")
    with serving() as embedder:
        apply_replace(plan, store.host, "SECRET coffee", embedder.config())
        assert embedder.asked == ["SECRET coffee"]
    payload = RawPoints(store.vectors).points()[tea].payload
    assert (payload["data"], payload["own"]) == ("SECRET coffee", "tea")
    for _ in range(2):
        with store.book() as book:
            row = book.memories([tea])[tea]
        assert (row.source, row.confirmed_at) == ("asked her", store.host.now)
        assert store.codes(select=("D", "H", "T")) == []
