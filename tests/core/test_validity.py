"""What holds when: half-open intervals, and what may follow what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem0audit.core.errors import Refused, UsageProblem
from mem0audit.core.validity import Fact, remembering, revoking, second, word

OLD = Fact("alice", "employer", "Contoso", 100, 200)
OPEN = Fact("alice", "employer", "Fabrikam", 200)


def fact(begins: int, value: str = "new") -> Fact:
    return Fact("alice", "employer", value, begins)


def state(series: Sequence[Fact], at: int) -> list[Fact]:
    """The plain model: what holds at a second."""
    return [f for f in series if f.valid_from <= at and (f.valid_to is None or at < f.valid_to)]


def test_a_new_value_ends_the_one_before() -> None:
    done = remembering(OPEN, fact(300), 250)
    assert done.closed == replace(OPEN, valid_to=300)
    assert not done.current
    assert remembering(None, fact(300), 300).current
    assert remembering(OLD, fact(200), 300).closed is None  # at its very end, and after a gap
    assert remembering(OLD, fact(201), 300).closed is None


@pytest.mark.parametrize(
    ("latest", "begins"), [(OPEN, 200), (OPEN, 199), (OLD, 100), (OLD, 99), (OLD, 101), (OLD, 199)]
)
def test_one_that_does_not_come_after_is_refused(latest: Fact, begins: int) -> None:
    with pytest.raises(Refused, match="nothing changed"):
        remembering(latest, fact(begins), 1_000)


def test_ending_a_value() -> None:
    assert revoking([OLD, OPEN], "alice", "employer", 201, 300).fact == OPEN
    assert revoking([OLD, OPEN], "alice", "employer", 500, 300).at == 500  # to come
    assert revoking([OLD, OPEN], "alice", "employer", 300, 300).sentences == ()


@pytest.mark.parametrize(
    ("series", "at", "why"),
    [
        ([], 300, "no value is known"),
        ([OLD], 200, "has an end already"),
        ([OLD], 150, "has an end already"),
        ([OLD, OPEN], 150, "has an end already"),
        ([OLD, OPEN], 200, "not after the start"),
        ([OLD], 100, "not after the start"),
        ([OLD], 99, "not after the start"),
    ],
)
def test_what_cannot_be_ended(series: list[Fact], at: int, why: str) -> None:
    with pytest.raises(Refused, match=why):
        revoking(series, "alice", "employer", at, 300)


def test_with_a_value_planned() -> None:
    """`OPEN` begins at 200 and it is 150: the value of now may end sooner, and the plan stays."""
    done = revoking([OLD, OPEN], "alice", "employer", 150, 150)
    assert (done.fact, done.planned) == (OLD, OPEN)
    assert "stays" in " ".join(done.sentences)
    later = revoking([OLD, OPEN], "alice", "employer", 400, 150)
    assert (later.fact, later.planned, later.not_begun) == (OPEN, None, True)
    assert later.sentences
    for at in (100, 200):
        with pytest.raises(Refused):
            revoking([OLD, OPEN], "alice", "employer", at, 150)


def test_words_and_seconds() -> None:
    assert word("  a b ", "SUBJECT") == "a b"
    assert (second(1.9), second(-1.1)) == (1, -2)
    for bad in (float("nan"), float("inf"), 1e15):
        with pytest.raises(UsageProblem):
            second(bad)
    with pytest.raises(UsageProblem):
        word(" ", "VALUE")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 30)), max_size=14))
def test_never_two_at_a_time_and_nothing_overwritten(steps: list[tuple[bool, int, int]]) -> None:
    """Beside a plain model: a value a second."""
    series: list[Fact] = []
    for number, (adds, at, now) in enumerate(steps):
        before = {t: [f.value for f in state(series, t)] for t in range(40)}
        try:
            if adds:
                done = remembering(series[-1] if series else None, fact(at, str(number)), now)
                changed = done.fact
                series = [*series[:-1], done.closed or series[-1]] if series else []
                series.append(changed)
            else:
                plan = revoking(series, "alice", "employer", at, now)
                changed = plan.fact
                series = [replace(f, valid_to=at) if f == changed else f for f in series]
        except Refused:
            continue
        for t in range(40):
            values = [f.value for f in state(series, t)]
            assert len(values) <= 1
            if t < at:
                assert values == before[t]
        assert all(f.valid_to is None or f.valid_from < f.valid_to for f in series)
        assert sum(f.valid_to is None for f in series) <= 1
        begins = [f.valid_from for f in series]
        assert begins == sorted(set(begins))
