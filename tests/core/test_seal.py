"""History rows beside sealed ones, against a slow and plain account of the same; and the chain."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem0audit.core.model import HistoryRow, VectorFacts
from mem0audit.core.points import MemoryKeeper
from mem0audit.core.seal import (
    PART_BYTES,
    PARTS,
    ROW_BYTES,
    WHOLE_BYTES,
    Seal,
    SealedPoint,
    SealedRows,
    SealKeeper,
    State,
    chain_problem,
)
from mem0audit.core.versions import changes_times_without_row, moves_owner_on_update

KEY = b"k" * 32


def row(number: int, text: str = "text", memory: Any = None, event: Any = "ADD") -> HistoryRow:
    return HistoryRow(
        number, f"id-{number}", memory or f"m{number}", None, text, event, None, None, 0, None, None
    )


def beside(known: bytes, rows: list[HistoryRow], page: int = 3) -> SealedRows:
    sink = SealedRows(KEY, known)
    for start in range(0, len(rows), page):
        sink.rows(rows[start : start + page])
    return sink


def sealed_rows(rows: list[HistoryRow]) -> bytes:
    return bytes(beside(b"", rows).digests)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 12), st.data())
def test_rows_beside_the_sealed_ones(count: int, data: st.DataObject) -> None:
    """Some are gone, some changed, some put between, some added at the end."""
    sealed = [row(n) for n in range(count)]
    now: list[HistoryRow] = []
    gone, changed, between = [], set(), set()
    last_kept = max((n for n in range(count) if data.draw(st.booleans())), default=-1)
    for n in range(count):
        if data.draw(st.integers(0, 9)) == 0 and n != last_kept:
            between_row = row(100 + n)
            now.append(between_row)
            between.add(between_row.memory_id)
        what = (
            "keep"
            if n == last_kept
            else data.draw(st.sampled_from(["keep", "keep", "keep", "gone", "change"]))
        )
        if n > last_kept or what == "gone":
            gone.append(n)
        elif what == "change":
            changed.add(f"m{n}")
            now.append(row(n, "another text"))
        else:
            now.append(row(n))
    if gone and gone[-1] == count - 1:  # what stands after the last one that is left is only newer
        places = [r.memory_id for r in now]
        while places and places[-1] in between:
            between.discard(places.pop())
    added = [row(200 + n) for n in range(data.draw(st.integers(0, 3)))]
    sink = beside(sealed_rows(sealed), [*now, *added], data.draw(st.integers(1, 5)))
    assert list(sink.gone()) == gone
    assert sink.seen == count - len(gone)
    assert {d.memory_id for d in sink.differing if d.what == "changed"} == changed
    assert {d.memory_id for d in sink.differing if d.what == "put between"} == between
    assert {r.memory_id for r in added} <= set(sink.new)
    assert bytes(sink.digests) == sealed_rows([*now, *added])


def test_the_order_of_rows_is_part_of_it() -> None:
    rows = [row(n) for n in range(5)]
    sink = beside(sealed_rows(rows), [rows[0], rows[2], rows[1], rows[3], rows[4]])
    assert [d.memory_id for d in sink.differing] == ["m1"]
    assert sink.gone() == ()


def test_rowids_are_not() -> None:
    rows = [row(n) for n in range(5)]
    renumbered = [r._replace(rowid=r.rowid + 70) for r in rows]
    assert sealed_rows(rows) == sealed_rows(renumbered)


@pytest.mark.parametrize("field", HistoryRow._fields[1:])
def test_every_column_is(field: str) -> None:
    rows = [row(n) for n in range(3)]
    rows[1] = rows[1]._replace(**{field: "else"})
    assert sealed_rows(rows) != sealed_rows([row(n) for n in range(3)])


def test_odd_values_of_a_log() -> None:
    odd = [None, 7, 1.5, b"\xff", "\ud800", "", 1 << 62]
    rows = [HistoryRow(n, f"id-{n}", v, v, v, v, v, v, v, v, v) for n, v in enumerate(odd)]
    assert len(sealed_rows(rows)) == ROW_BYTES * len(odd)
    assert beside(sealed_rows(rows), rows).differing == []


# --- points --------------------------------------------------------------------------------------------

PAYLOAD = {
    "data": "likes tea",
    "hash": "x",
    "created_at": "2026-01-01",
    "updated_at": "2026-01-01",
    "user_id": "alice",
    "agent_id": None,
    "role": "user",
    "topic": {"a": [1, 2], "b": None},
}


def point(payload: dict[str, Any], key: bytes = KEY) -> SealedPoint:
    found = SealKeeper(key, {})(1, "id", payload, VectorFacts(8, None))
    assert isinstance(found, SealedPoint)
    return found


def part_of(sealed: SealedPoint, number: int) -> bytes:
    start = WHOLE_BYTES + number * PART_BYTES
    return sealed.parts[start : start + PART_BYTES]


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("data", "likes coffee", "text"),
        ("user_id", "bob", "user"),
        ("user_id", None, "user"),
        ("agent_id", "a7", "agent or run"),
        ("run_id", "r1", "agent or run"),
        ("hash", "y", "metadata"),
        ("role", "assistant", "metadata"),
        ("topic", {"a": [1, 3], "b": None}, "metadata"),
        ("new", 1, "metadata"),
        ("created_at", "2025-01-01", "times"),
        ("updated_at", "2027-01-01", "times"),
    ],
)
def test_which_part_a_key_is_of(key: str, value: Any, part: str) -> None:
    before, after = point(PAYLOAD), point({**PAYLOAD, key: value})
    differing = {name for n, name in enumerate(PARTS) if part_of(before, n) != part_of(after, n)}
    assert differing == {part}


def test_a_sealed_point_is_the_record_that_an_audit_keeps() -> None:
    plain = MemoryKeeper()(1, "id", PAYLOAD, VectorFacts(8, None))
    assert point(PAYLOAD) == plain
    assert point(PAYLOAD)[1:] == plain[1:]
    assert len(point(PAYLOAD).parts) == WHOLE_BYTES + PART_BYTES * len(PARTS) == 32
    assert point(dict(reversed(PAYLOAD.items()))).parts == point(PAYLOAD).parts
    assert point(PAYLOAD, b"other").parts != point(PAYLOAD).parts
    assert point({"data": 7, 3: object()}).parts == point({"data": 7, 3: object()}).parts  # type: ignore[dict-item]


def test_a_point_as_sealed_needs_no_digests_of_its_parts() -> None:
    sealed = point(PAYLOAD).parts
    again = SealKeeper(KEY, {"id": sealed})(1, "id", dict(reversed(PAYLOAD.items())), VectorFacts(8, None))
    assert isinstance(again, SealedPoint)
    assert again.parts is sealed
    other = SealKeeper(KEY, {"id": sealed})(1, "id", {**PAYLOAD, "role": "x"}, VectorFacts(8, None))
    assert isinstance(other, SealedPoint)
    assert other.parts == point({**PAYLOAD, "role": "x"}).parts != sealed


# --- the chain -----------------------------------------------------------------------------------------


def chain(length: int) -> list[Seal]:
    seals: list[Seal] = []
    for number in range(1, length + 1):
        previous = seals[-1].digest() if seals else b""
        seals.append(Seal(number, 1.5, "seal", None, None, 1, "r", 1, (), None, b"state", previous))
    return seals


def test_a_chain_holds_together() -> None:
    assert chain_problem(chain(4)) is None
    assert chain_problem([]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 9},
        {"at": 2.0},
        {"kind": "restore"},
        {"mem0": "2.2.1"},
        {"rows": 2},
        {"last_row": None},
        {"memories": 2},
        {"accepted": ("D310 x",)},
        {"reason": "why"},
        {"state": b"other"},
        {"previous": b"other"},
    ],
)
def test_a_changed_seal_breaks_it(changes: dict[str, Any]) -> None:
    seals = chain(3)
    seals[1] = dataclasses.replace(seals[1], **changes)
    assert chain_problem(seals) is not None
    assert chain_problem(chain(3)[1:]) is not None


def test_a_state_has_one_digest() -> None:
    some = State(b"r" * 16, {"a": b"1" * 30, "b": b"2" * 30})
    assert some.digest() == State(b"r" * 16, dict(reversed(some.memories.items()))).digest()
    for other in (
        State(b"s" * 16, some.memories),
        State(b"r" * 16, {"a": b"1" * 30}),
        State(b"r" * 16, {"a": b"2" * 30, "b": b"1" * 30}),
        State(b"r" * 32, some.memories),
    ):
        assert other.digest() != some.digest()


@pytest.mark.parametrize(
    ("sealed", "now", "times", "owner"),
    [
        ("1.0.8", "1.0.8", False, True),
        ("1.0.9", "1.0.9", True, True),
        ("1.0.11", "1.0.11", True, True),
        ("2.0.0", "2.0.12", False, True),
        ("2.0.13", "2.2.1", False, False),
        ("2.0.12", "2.2.1", False, True),
        ("1.0.0", "2.2.1", True, True),
        ("1.0.7", "1.0.7", False, False),
        (None, None, True, False),
        (None, "2.2.1", True, False),
        (None, "2.0.6", True, True),
    ],
)
def test_what_versions_do_without_a_row(
    sealed: str | None, now: str | None, times: bool, owner: bool
) -> None:
    assert changes_times_without_row(sealed, now) is times
    assert moves_owner_on_update(sealed, now) is owner
