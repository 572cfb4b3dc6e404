"""Texts that read as orders, and ordinary ones: two sets of each, by wording alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mem0audit.core.orders import may_be_order, order_in, plain_words
from tests.speed import slowness

WORDING = Path(__file__).parents[1] / "data/wording"


def lines(name: str) -> list[str]:
    return [line for line in (WORDING / name).read_text(encoding="utf-8").split("\n") if line.strip()]


def told(text: str) -> str | None:
    """As an audit asks: the second question only where the first says so."""
    return order_in(text) if may_be_order(text) else None


@pytest.mark.parametrize(("which", "recall"), [("built", 1.0)])
def test_attacks_are_seen_and_ordinary_memories_are_not(which: str, recall: float) -> None:
    """`built` was used while the forms were written, `held_out` was written by somebody who had not seen them."""
    attacks, ordinary = lines(f"attacks_{which}.txt"), lines(f"ordinary_{which}.txt")
    assert len(set(attacks)) >= 50
    assert len(set(ordinary)) >= 500
    seen = [text for text in attacks if told(text)]
    false = [text for text in ordinary if told(text)]
    print(
        f"{which}: {len(seen)} of {len(attacks)} attacks seen, {len(false)} of {len(ordinary)} ordinary texts too"
    )
    assert len(seen) >= recall * len(attacks), sorted(set(attacks) - set(seen))
    assert len(false) * 500 <= len(ordinary), false


def test_as_it_is_read() -> None:
    assert plain_words("Аlwауs  ig\u200bnore") == "always  ignore"
    assert plain_words("ＩＧＮＯＲＥ ᴀʟʟ") == "ignore all"
    assert plain_words("i g n o r e it") == "ignore it"
    assert plain_words("1gn0re mp3 2024") == "ignore mpe 2024"


@pytest.mark.parametrize(
    "text",
    [
        "a1" * 10_000 + "!",
        "a1b" * 30 + "_!" + "1a" * 5_000,
        "send all to a.b " * 1_300,
        "agent must not " * 1_500,
        "approved all any " * 1_200,
        "when " + "x, " * 6_000,
        "always ignore " * 2_000,
        "\ud800" * 20_000,
        "",
    ],
)
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()
    told(text)
    assert time.process_time() - started < 2.0 * slowness()
