"""What a log still says of a memory, and whose it is: proved or not known."""

from __future__ import annotations

from typing import Any

import pytest

from mem0audit.core.model import HistoryRow
from mem0audit.core.recover import (
    added_at,
    keeps_created_at,
    last_text,
    own_metadata,
    owners_by_actor,
    parse_scope,
    text_before,
    whose,
)

BOB = ("bob", None, None)


def row(event: str, old: Any = None, new: Any = None, created: Any = None) -> HistoryRow:
    return HistoryRow(1, "id", "m", old, new, event, created, None, 0, None, None)


def test_the_last_text_and_the_one_before() -> None:
    rows = [row("ADD", None, "a", "t1"), row("UPDATE", "a", "b", "t2"), row("UPDATE", "b", "b", "t3")]
    assert last_text(rows) == ("b", rows[2]) and text_before(rows) == ("a", rows[1])
    gone = [*rows, row("DELETE", "b", None)]
    assert last_text(gone) == ("b", gone[3]) and added_at(gone) == "t1"
    # a text that was emptied, or lost in a migration, is not the one before it
    assert last_text([*rows, row("UPDATE", "", "")]) is None
    assert last_text([]) is None and text_before(rows[:1]) is None and added_at([]) is None


@pytest.mark.parametrize(
    ("scope", "owner"),
    [
        ("user_id=bob", BOB),
        ("agent_id=a7&run_id=r&user_id=bob", ("bob", "a7", "r")),
        ("agent_id=a7", (None, "a7", None)),
        ("user_id=a=b", None),
        ("user_id=a%3Db", None),
        ("user_id=a&b", None),
        ("user_id=a&user_id=b", None),
        ("user_id=", None),
        ("", None),
    ],
)
def test_a_scope_is_read_in_one_way_or_not(scope: str, owner: object) -> None:
    assert parse_scope(scope) == owner


def test_a_speaker_is_one_user_or_nobody() -> None:
    assert owners_by_actor([("user_id=bob", "b"), ("agent_id=a&user_id=bob", "b"), ("user_id=al", "a")]) == {
        "b": BOB,
        "a": ("al", None, None),
    }
    assert owners_by_actor([("agent_id=a", "x")]) == {"x": (None, "a", None)}
    for scopes in (
        ("user_id=bob", "user_id=al"),
        ("user_id=bob", "agent_id=a"),
        ("user_id=bob", "?"),
        (None,),
    ):
        assert owners_by_actor([(scope, "x") for scope in scopes]) == {}
    # what is known of other memories of this speaker must agree
    assert owners_by_actor([("user_id=bob", "b")], [("b", ("bob", "a7", None))]) == {"b": BOB}
    assert owners_by_actor([("user_id=bob", "b")], [("b", ("al", None, None))]) == {}


def test_whose_it_is() -> None:
    assert whose(BOB, BOB, "s", None) == (BOB, "the ledger")
    assert whose(None, BOB, "s", ("al", None, None)) == (BOB, "snapshot s")
    assert whose(None, None, None, BOB)[0] == BOB
    assert whose(BOB, ("al", None, None), "s", BOB)[0] is None
    for odd in (
        (None, None, None),
        (["bob"], None, None),
        ({"clipped": "b"}, None, None),
        (True, None, None),
    ):
        assert whose(odd, None, None, None)[0] is None
    assert whose(("bob jr", None, None), None, None, None, "1.0.11")[0] == ("bob jr", None, None)
    assert whose(("bob jr", None, None), None, None, None, "2.2.1")[0] is None


def test_what_a_version_keeps() -> None:
    assert [keeps_created_at(v) for v in ("1.0.8", "1.0.9", "2.2.1", None)] == [False, True, True, None]
    payload = {"data": "x", "hash": "h", "user_id": "b", "created_at": "t", "role": "user", "mine": 1}
    assert own_metadata(payload) == {"mine": 1}
