"""Group T beside a ledger: what it says of the memories of a real store. On stores of their own it is tested with the
commands that write it (tests/operations/test_ledgerfacts.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mem0audit.core.ledger import Kept
from mem0audit.core.model import Finding, NotChecked
from mem0audit.core.reading import Reading
from mem0audit.core.rules import RULES
from tests.builders import copy_store
from tests.rules.readings import reading_of

CODES = ("T702", "T703", "T704", "T705", "T706")


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    return reading_of(copy_store("2.2.1", tmp_path_factory.mktemp("store")))


def ids_of(reading: Reading) -> list[str]:
    return sorted(reading.memories[0].by_id)


def deleted(reading: Reading) -> str:
    assert reading.timeline is not None
    return next(i for i, log in reading.timeline.memories.items() if log.last == "DELETE")


def found(reading: Reading, code: str, **kept: Any) -> list[Finding]:
    verdicts = list(RULES[code](dataclasses.replace(reading, kept=Kept(rows=19, live=19, **kept))))
    return [v for v in verdicts if isinstance(v, Finding)]


@pytest.mark.parametrize("code", CODES)
def test_without_a_ledger_it_is_said(reading: Reading, code: str) -> None:
    (verdict,) = RULES[code](reading)
    assert verdict == NotChecked(code, "no ledger yet", gap=False)
    assert not found(reading, code)


def test_t702_and_t705_are_of_pointers_that_hold_and_that_do_not(reading: Reading) -> None:
    old, new, *_ = ids_of(reading)
    gone = deleted(reading)
    for successor, dangling, code, why in (
        (new, False, "T702", None),
        (None, False, "T705", "what replaced it is not known any more: the pointer was emptied"),
        (gone, False, "T705", "what replaced it was deleted in mem0"),
        ("nowhere", False, "T705", "what replaced it is not in the vector store"),
        (new, True, "T705", "what replaced it has no row in the ledger"),
    ):
        kept: dict[str, Any] = {"superseded": {old: (successor, 1.0)}}
        if dangling:
            kept["dangling"] = frozenset({old})
        assert {c: [f.memory_id for f in found(reading, c, **kept)] for c in ("T702", "T705")} == {
            "T702": [old] if code == "T702" else [],
            "T705": [old] if code == "T705" else [],
        }
        if why is not None:
            assert found(reading, "T705", **kept)[0].evidence["why"] == why
    # what is not stored any more is nobody's answer; a pointer that hangs is said all the same
    assert not found(reading, "T705", superseded={gone: (None, 1.0)})
    hanging = found(reading, "T705", superseded={gone: ("x", 1.0)}, dangling=frozenset({gone}))
    assert [f.memory_id for f in hanging] == [gone]


def test_t705_follows_what_was_replaced_again(reading: Reading) -> None:
    old, new, *_ = ids_of(reading)
    gone = deleted(reading)
    chain: dict[str, Any] = {old: (gone, 1.0), gone: (new, 2.0)}
    assert not found(reading, "T705", superseded=chain)
    assert [f.memory_id for f in found(reading, "T702", superseded=chain)] == [old]
    (one,) = found(reading, "T705", superseded={old: (gone, 1.0), gone: (None, 2.0)})
    assert (one.memory_id, one.evidence["why"]) == (old, "what replaced it was deleted in mem0")
    around: dict[str, Any] = {"nowhere": (gone, 1.0), gone: ("nowhere", 2.0), old: (gone, 1.0)}
    assert [f.memory_id for f in found(reading, "T705", superseded=around)] == [old]


def test_t703_and_t704_count(reading: Reading) -> None:
    (one,) = found(reading, "T703", unconfirmed=7, no_source=5, oldest=86_400.0)
    assert list(one.evidence.values()) == [7, 5, "1970-01-02 00:00:00Z"]
    assert one.help == "mem0audit review"
    assert not found(reading, "T704", unused=0)
    (two,) = found(reading, "T704", unused=3)
    assert two.evidence["not used for 183 days"] == 3
    (said,) = RULES["T704"](dataclasses.replace(reading, kept=Kept(rows=1, live=1)))
    assert isinstance(said, NotChecked)
    assert not said.gap


def test_t706_from_ten_and_a_fifth_on(reading: Reading) -> None:
    ids = ids_of(reading)
    assert len(ids) == 19
    assert not found(reading, "T706", expired=frozenset(ids[:9]))
    (one,) = found(reading, "T706", expired=frozenset(ids[:9]), superseded={ids[9]: (ids[10], 1.0)})
    assert one.evidence == {"stored": 19, "superseded": 1, "expired": 9, "live": 9}
    assert not found(reading, "T706", expired=frozenset(f"gone {n}" for n in range(50)))
