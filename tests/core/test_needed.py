"""What patterns need of a text: never more than they do."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from mem0audit.core import orders
from mem0audit.core.needed import Screen

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser  # type: ignore[no-redef]

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


CATEGORIES = {"CATEGORY_WORD": r"\w", "CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
              "CATEGORY_NOT_WORD": r"\W"}  # fmt: skip


def fits(kind: str, given: Any, char: str) -> bool:
    if kind != "IN":
        return kind == "ANY" or ord(char) != given
    wanted = True
    for op, one in given:
        if str(op) == "NEGATE":
            wanted = False
        elif (
            (str(op) == "LITERAL" and one == ord(char))
            or (str(op) == "RANGE" and one[0] <= ord(char) <= one[1])
            or (str(op) == "CATEGORY" and re.match(CATEGORIES[str(one)], char))
        ):
            return wanted
    return not wanted


def made(parsed: Any, rng: random.Random) -> str:
    """A text as Python's own reading of a pattern has it; what looks around is left to chance."""
    text = ""
    for op, given in parsed:
        kind = str(op)
        if kind == "LITERAL":
            text += chr(given)
        elif kind in ("ANY", "NOT_LITERAL", "IN"):
            text += rng.choice([c for c in "ab_-,. s1e/@oz" if fits(kind, given, c)] or [""])
        elif kind == "BRANCH":
            text += made(rng.choice(given[1]), rng)
        elif kind == "SUBPATTERN":
            text += made(given[-1], rng)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = given
            text += "".join(made(inner, rng) for _ in range(rng.randint(least, min(most, least + 2))))
        elif kind == "ASSERT":
            text += rng.choice(["", made(given[1], rng)])
    return text


def test_no_text_that_a_form_finds_is_left_out() -> None:
    """With texts made from the forms themselves, as Python reads them."""
    screen, rng, found = orders._screen(), random.Random(5), set()
    for index, (_, way) in enumerate(screen.branches):
        form = orders._compiled(way)
        parsed = _parser.parse(form.pattern)
        for _ in range(40):
            said = made(parsed, rng)
            if form.search(said):
                found.add(index)
                assert index in screen.possible(orders._words_in(said)), (way, said)
    assert len(found) > 0.9 * len(screen.branches)
