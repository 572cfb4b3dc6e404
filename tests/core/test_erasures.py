"""The record of erasures: what an erasure covers, and the file it is kept in, which notices every change."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem0audit.core.erasures import (
    Covering,
    ErasureRecord,
    NotARecord,
    erasures_text,
    for_copy,
    is_covered,
    joined,
    made_at,
    make_erasure,
    parse_erasures,
)
from mem0audit.core.model import NotChecked
from mem0audit.core.scopes import Scope
from mem0audit.core.times import shown

SALT = "00112233445566778899aabbccddeeff"
OTHER = SALT[::-1]
ALICE = make_erasure(100.0, SALT, ("alice", None, None), ["id-1", "id-2"])


@pytest.mark.parametrize(
    ("scope", "owner", "covered"),
    [
        (("alice", None, None), ("alice", None, None), True),
        (("alice", None, None), ("alice", "a7", "r1"), True),
        (("alice", None, None), ("bob", "alice", None), False),
        (("alice", None, None), ("alice ", None, None), True),
        ((" alice", None, None), ("alice", None, None), True),
        (("alice", None, None), (None, None, None), False),
        (("alice", "a7", None), ("alice", None, None), False),
        (("alice", "a7", None), ("alice", "a7", "r1"), True),
        ((None, "a7", None), ("alice", "a7", None), True),
        ((7, None, None), (7, None, None), True),
        (("7", None, None), (7, None, None), True),
        (("7", None, None), ([1, 7], None, None), True),
        (("7", None, None), ("07", None, None), False),
        (("1", None, None), (True, None, None), False),
        (("alice", None, None), (["bob", "alice"], None, None), True),
        (("alice", None, None), ([], None, None), False),
        (("alice", None, None), ({"x": 1}, None, None), False),
    ],
)
def test_what_a_scope_covers(scope: Any, owner: Any, covered: bool) -> None:
    assert is_covered(make_erasure(1.0, SALT, scope), owner) is covered


def test_single_memories() -> None:
    one = make_erasure(1.0, SALT, None, ["id-1"])
    assert one.scope == ""
    assert is_covered(one, ("anybody", None, None), "id-1")
    assert not is_covered(one, ("anybody", None, None), "id-2")
    assert not is_covered(one, (None, None, None))
    assert is_covered(ALICE, ("bob", None, None), "id-2")
    assert not is_covered(ALICE, ("bob", None, None), "id-3")


VALUES = [None, "alice", "bob", 7]


@given(st.sampled_from(list(product(VALUES, repeat=3))), st.sampled_from(list(product(VALUES, repeat=3))))
def test_a_scope_covers_who_has_all_that_it_names(scope: Any, owner: Any) -> None:
    if scope == (None, None, None):
        with pytest.raises(ValueError, match="scope or of memories"):
            make_erasure(1.0, SALT, scope)
        return
    plainly = all(s is None or s == o for s, o in zip(scope, owner, strict=True))
    assert is_covered(make_erasure(1.0, SALT, scope), owner) is plainly


STORED = [None, "7", " 7", 7, "7 ", "07", 7.0, True, 1, "1", ["x", 7], "x", "", 1 << 200, {"7": 7}]


def test_a_record_covers_all_that_a_deletion_of_the_same_scope_takes() -> None:
    """Else a restore would bring back what was stored under another spelling of the erased person's id."""
    for user, agent in product(("7", " 7 ", "1", "x"), (None, "7")):
        scope = Scope(user, agent)
        erasure = make_erasure(1.0, SALT, scope.owner)
        for owner in product(STORED, STORED, (None, "r1")):
            assert is_covered(erasure, owner) is scope.covers(owner), (scope, owner)


def test_a_record_says_nobody() -> None:
    """The same scope looks different in each erasure, and neither it nor an id can be read from it."""
    again = make_erasure(100.0, OTHER, ("alice", None, None), ["id-1"])
    assert again.scope != ALICE.scope
    assert not set(again.ids) & set(ALICE.ids)
    text = erasures_text([ALICE, again])
    assert "alice" not in text
    assert "id-1" not in text


@pytest.mark.parametrize("salt", ["", "0011", SALT.upper(), SALT + "00", "x" * 32])
def test_a_salt_is_a_salt(salt: str) -> None:
    with pytest.raises(ValueError, match="salt"):
        make_erasure(1.0, salt, ("alice", None, None))


def test_since_and_known() -> None:
    late = make_erasure(200.0, OTHER, ("bob", None, None))
    record = ErasureRecord(joined([late], [ALICE], [late]), ("ledger",))
    assert record.erasures == (ALICE, late)
    assert record.since(50.0) == (ALICE, late)
    assert record.since(100.0) == (ALICE, late)  # in that very second: not known to be before
    assert record.since(100.5) == (late,)
    assert record.since(201.0) == ()
    assert record.known
    assert not ErasureRecord((), (), (NotChecked("ledger", "gone"),)).known


def test_the_file_gives_back_what_was_written() -> None:
    late = make_erasure(200.25, OTHER, None, ["x\ud800"])
    for erasures in ((), (ALICE,), (ALICE, late)):
        assert parse_erasures(erasures_text(erasures).encode("ascii")) == erasures


def test_every_changed_byte_is_noticed() -> None:
    text = erasures_text([ALICE]).encode("ascii")
    for position in range(len(text)):
        changed = bytearray(text)
        changed[position] ^= 1
        try:
            found = parse_erasures(bytes(changed))
        except NotARecord:
            continue
        assert found == (ALICE,)  # white space between the fields
    for end in range(len(text) - 1):
        with pytest.raises(NotARecord):
            parse_erasures(text[:end])


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(erasures_text([ALICE])), **fields}).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "no record"),
        (b"[" * 100_000, "no JSON"),
        (changed(kind="other"), "no record"),
        (changed(format=2), "newer mem0audit"),
        (changed(format=True), "no format"),
        (changed(more=1), "lists no erasures"),
        (changed(erasures={}), "lists no erasures"),
        (changed(erasures=[1]), "is none"),
        (changed(erasures=[]), "checksum"),
        (changed(erasures=[{"at": 1, "salt": SALT, "scope": "", "ids": []}]), "is none"),
        (changed(erasures=[{"at": "1", "salt": SALT, "scope": "a" * 64, "ids": []}]), "is none"),
        (changed(erasures=[{"at": 1, "salt": SALT, "scope": "a" * 64, "ids": [1]}]), "is none"),
        (changed(erasures=[{"at": 1e999, "salt": SALT, "scope": "a" * 64, "ids": []}]), "is none"),
    ],
)
def test_what_is_no_record(data: bytes, why: str) -> None:
    with pytest.raises(NotARecord, match=why):
        parse_erasures(data)


# --- Many memories ---------------------------------------------------------------------------------


@given(
    st.sampled_from(list(product(VALUES, repeat=3))),
    st.sampled_from(list(product(STORED, STORED, (None, "r1")))),
)
def test_covering_says_what_each_erasure_says(scope: Any, owner: Any) -> None:
    if scope == (None, None, None):
        return
    erasures = [make_erasure(50.0, SALT, scope, ["id-1"]), make_erasure(100.0, OTHER, ("x", None, None))]
    covering = Covering(erasures)
    met = [one for one in erasures if is_covered(one, owner)]
    assert covering.covers(owner) is bool(met)
    assert covering.latest(owner) == max((one.at for one in met), default=None)
    assert covering.covers_memory(owner, "id-1", 1000.0)
    assert covering.covers_memory(owner, "id-2", 1000.0) is False
    assert covering.covers_memory(owner, "id-2", None) is bool(met)
    assert covering.met == {one.salt for one in met} | {SALT}


def test_an_owner_is_hashed_once_and_a_list_costs_what_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    from mem0audit.core import erasures as module

    hashed: list[Any] = []
    digest = module._scope_digest
    monkeypatch.setattr(
        module, "_scope_digest", lambda salt, scope: hashed.append(scope) or digest(salt, scope)
    )
    erasures = [make_erasure(1.0, SALT, ("u7", None, None)), make_erasure(2.0, OTHER, ("nobody", "a", None))]
    hashed.clear()
    covering = Covering(erasures)
    many = [f"u{n}" for n in range(5_000)]
    for _ in range(20):
        assert covering.covers((many, None, None)) and not covering.covers(("bob", "a", None))
    assert len(hashed) < 2 * len(many) + 10
    hashed.clear()
    assert covering.covers((many, many, many))  # by its single ids: nobody has so many in each
    assert len(hashed) < 7 * len(many)


SESSIONS = [
    "user_id=alice",
    "agent_id=a7&user_id=alice",
    "agent_id=a7&run_id=r1&user_id=alice",
    "user_id= alice ",
    "user_id=alice2",
    "run_id=user_id=alice",
    "agent_id=x&user_id=bob",
    "user_id=a&b=c",
    "user_id=a%26b%3Dc",
    "user_id=a%2526b",
    "agent_id=a&user_id=b&user_id=alice",
    "user_id=",
    "",
    "nothing",
]


@pytest.mark.parametrize("user", ["alice", "a&b=c", "a%26b", "b&user_id=alice", "a", "bob"])
@pytest.mark.parametrize("agent", [None, "a7", "x", "a&user_id=b"])
def test_messages_are_covered_as_a_deletion_takes_them(user: str, agent: str | None) -> None:
    scope = Scope(user, agent)
    covering = Covering([make_erasure(1.0, SALT, scope.owner)])
    for session in SESSIONS:
        assert covering.covers_messages(session) is scope.covers_messages(session), session
    for own in (f"user_id={user}", f"agent_id={agent}&user_id={user}"):
        assert covering.covers_messages(own) is scope.covers_messages(own)


def test_when_a_memory_of_a_copy_was_made() -> None:
    from tests.core.test_snapshot import MANIFEST

    taken = MANIFEST.taken_at
    assert made_at(None, MANIFEST) is None
    assert made_at(shown(taken - 100), MANIFEST) == taken - 100
    assert made_at(shown(taken + 30), MANIFEST) == taken + 30
    assert made_at(shown(taken + 3600), MANIFEST) is None
    old, new = (make_erasure(taken + d, s, ("x", None, None)) for d, s in ((-5, SALT), (5, OTHER)))
    assert for_copy((old, new), MANIFEST) == (new,)
    assert for_copy((old, new), replace(MANIFEST, pair=False)) == (old, new)
