"""What patterns need of a text: never more than they do."""

from __future__ import annotations

import random
import re

import pytest

from mem0audit.core import orders
from mem0audit.core.needed import Screen
from tests.patterns import made

PARTS = {"to": r"\b(?:to|via) ", "verb": "(?:sends?|forwards?)"}


def possible(pattern: str, text: str) -> bool:
    return bool(Screen([pattern], PARTS).possible(re.findall(r"\w+", text)))


@pytest.mark.parametrize(
    ("pattern", "may", "may_not"),
    [
        (r"\bsends? .{0,40}<to>webhook", "he sends it to a webhook", "send it by webhook"),
        (r"<verb>\b", "resend", "sen"),
        (r"\b<verb> it\b", "forward it", "forward us"),
        (r"(?:un)?lock(?:ed|s)\b", "unlocked", "lockedin"),
        (r"e?-?mails?\b", "mail", "letter"),
        (r"do(?: not|n't) ask", "don't ask", "do ask"),
        (r"x(?=.{0,9}\bcode\b)", "x code", "x codes"),
        (r"ab{1,3}c|d[ef]+g", "abbbc", "bc"),
        (r"(?:one|two words|\w+) and", "and", "one"),
        (r"a(?! b)c?(?<!x) of", "a of", "a if"),
    ],
)
def test_the_words_of_a_pattern(pattern: str, may: str, may_not: str) -> None:
    assert possible(pattern, may)
    assert not possible(pattern, may_not)


def test_ways_are_told_apart() -> None:
    screen = Screen(["one|two|thr(?:ee|ow)", "four"], {})
    assert screen.branches == [(0, "one"), (0, "two"), (0, "thr(?:ee|ow)"), (1, "four")]
    assert screen.possible(["four", "two", "one"]) == [0, 1, 3]


def test_no_text_that_a_form_finds_is_left_out() -> None:
    """With texts made from the forms themselves, as Python reads them."""
    screen, rng, found = orders._screen(), random.Random(5), set()
    for index, (_, way) in enumerate(screen.branches):
        form = orders._compiled(way)
        for _ in range(40):
            said = made(form.pattern, rng)
            if form.search(said):
                found.add(index)
                assert index in screen.possible(orders._words_in(said)), (way, said)
    assert len(found) > 0.9 * len(screen.branches)
