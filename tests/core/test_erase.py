"""Whose memories a deletion is of, as mem0 has it and as it stores them; and what is kept of it while it runs."""

from __future__ import annotations

import pytest

from mem0audit.core.erase import Intent, Left, intent_text, parse_intent
from mem0audit.core.erasures import joined, make_erasure
from mem0audit.core.errors import UsageProblem
from mem0audit.core.scopes import Scope, scope_of


@pytest.mark.parametrize("value", ["", " ", "\t\n", "*", " * "])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_names_nobody_or_everybody_is_refused(value: str, which: int) -> None:
    given: list[str | None] = ["alice", None, None]
    given[which] = value
    with pytest.raises(UsageProblem):
        scope_of(*given)


def test_nothing_asked_for_is_no_scope() -> None:
    assert scope_of(None, None, None) is None
    assert scope_of("alice", None, "r1") == Scope("alice", None, "r1")


def test_a_number_means_its_text_as_in_mem0() -> None:
    assert scope_of(7, None, None) == Scope("7")
    for odd in (True, 7.5, ["alice"]):
        with pytest.raises(UsageProblem, match="is no id"):
            scope_of(odd, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("owner", "is_in"),
    [
        (("alice", None, None), True),
        (("alice", "a7", "r1"), True),
        ((" alice ", None, None), True),
        ((["bob", "alice"], None, None), True),
        (("Alice", None, None), False),
        (("alice2", None, None), False),
        ((None, "alice", None), False),
        ((None, None, None), False),
        (({"alice": 1}, None, None), False),
    ],
)
def test_a_user(owner: tuple[object, object, object], is_in: bool) -> None:
    assert Scope("alice").covers(owner) is is_in


def test_several_are_all_needed_and_a_number_is_its_text() -> None:
    scope = Scope("7", "a7")
    assert scope.covers((7, "a7", "r"))
    assert not scope.as_asked((7, "a7", None))
    assert scope.as_asked(("7", "a7", None))
    assert not scope.covers((7, None, None))
    assert not Scope("1").covers((True, None, None))
    assert not Scope("7").covers((7.0, None, None))
    assert not Scope("7").covers((10**6000, None, None))


@pytest.mark.parametrize(
    ("session", "is_in"),
    [
        ("user_id=alice", True),
        ("agent_id=a7&run_id=r1&user_id=alice", True),
        ("user_id=alice2", False),
        ("agent_id=alice", False),
        ("run_id=user_id=alice", False),
        ("", False),
    ],
)
def test_messages_of_a_user(session: str, is_in: bool) -> None:
    assert Scope("alice").covers_messages(session) is is_in


def test_messages_in_both_spellings() -> None:
    odd = Scope("a&b=c%")
    assert odd.covers_messages("agent_id=x&user_id=a&b=c%")
    assert odd.covers_messages("agent_id=x&user_id=a%26b%3Dc%25")
    assert not odd.covers_messages("user_id=a")
    assert not Scope("a").covers_messages("user_id=a&b=c%")
    assert Scope("alice", "a7").covers_messages("agent_id=a7&user_id=alice")
    assert not Scope("alice", "a7").covers_messages("user_id=alice")


def test_an_intent_comes_back() -> None:
    for scope in (None, Scope("al\udc80ice", None, "r")):
        intent = Intent(1.5, "0" * 32, scope, ("a-b", 7), ("x",), {"e": 3}, Left(4, None))
        assert parse_intent(intent_text(intent)) == intent


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "at": 1}', "{"])
def test_what_is_no_intent(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_intent(text)


def test_an_erasure_on_record_twice_counts_as_it_ended() -> None:
    begun = make_erasure(1.0, "a" * 32, ("alice", None, None), ["one"])
    ended = make_erasure(9.0, "a" * 32, ("alice", None, None), ["one"])
    other = make_erasure(5.0, "b" * 32, None, ["two"])
    assert joined([begun, other], [ended]) == (other, ended)
