"""Texts that patterns find, made from the patterns."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import Any

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser  # type: ignore[no-redef]


_parsed = cache(_parser.parse)


def made(pattern: str, rng: random.Random) -> str:
    """A text that the pattern finds, as Python itself reads it; what looks around is left to chance."""
    return _made(_parsed(pattern), rng)


_CATEGORIES = {"CATEGORY_WORD": r"\w", "CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
              "CATEGORY_NOT_WORD": r"\W"}  # fmt: skip


def _fits(kind: str, given: Any, char: str) -> bool:
    if kind != "IN":
        return kind == "ANY" or ord(char) != given
    wanted = True
    for op, one in given:
        if str(op) == "NEGATE":
            wanted = False
        elif (
            (str(op) == "LITERAL" and one == ord(char))
            or (str(op) == "RANGE" and one[0] <= ord(char) <= one[1])
            or (str(op) == "CATEGORY" and re.match(_CATEGORIES[str(one)], char))
        ):
            return wanted
    return not wanted


def _made(parsed: Any, rng: random.Random) -> str:
    text = ""
    for op, given in parsed:
        kind = str(op)
        if kind == "LITERAL":
            text += chr(given)
        elif kind in ("ANY", "NOT_LITERAL", "IN"):
            text += rng.choice([c for c in "ab_-,. s1e/@oz" if _fits(kind, given, c)] or [""])
        elif kind == "BRANCH":
            text += _made(rng.choice(given[1]), rng)
        elif kind == "SUBPATTERN":
            text += _made(given[-1], rng)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = given
            text += "".join(_made(inner, rng) for _ in range(rng.randint(least, min(most, least + 2))))
        elif kind == "ASSERT":
            text += rng.choice(["", _made(given[1], rng)])
    return text
