"""The search of many texts at once finds just what a plain search for each of them finds."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Sequence

import pytest

from mem0audit.core import needles as core
from mem0audit.core.needles import FRAGMENT, Needles, spellings

WORDS = (
    *(
        "alice",
        "likes",
        "green",
        "tea",
        "and",
        "moved",
        "to",
        "Quito",
        "user",
        "prefers",
        "the",
        "cat",
        "naïve",
    ),
    *('"quoted"', "back\\slash", "日本語", "emoji😀", "line\nbreak", "lone\ud800", "raw\udc80", "\0zero"),
)


def plainly(
    texts: Sequence[str], data: bytes
) -> tuple[set[tuple[int, int, int]], set[tuple[int, int, int]], list[tuple[int, int]]]:
    """Each spelling of each text looked for by itself; fragments at every eighth byte of it."""
    whole, short, fragments = set(), set(), set()
    for number, text in enumerate(texts):
        is_short = len(spellings(text)[0]) < FRAGMENT
        for way in spellings(text):
            if len(spellings(text)[0]) < 4 or len(way) < 4:
                continue
            for found in re.finditer(b"(?=" + re.escape(way) + b")", data, re.DOTALL):
                (short if is_short else whole).add((number, found.start(), found.start() + len(way)))
            if not is_short:
                fragments |= {way[at : at + FRAGMENT] for at in range(0, len(way) - FRAGMENT + 1, 8)}
    runs: list[tuple[int, int]] = []
    for at in range(len(data) - FRAGMENT + 1):
        if data[at : at + FRAGMENT] in fragments:
            if runs and at <= runs[-1][1]:
                runs[-1] = (runs[-1][0], at + FRAGMENT)
            else:
                runs.append((at, at + FRAGMENT))
    return whole, short, [r for r in runs if not any(r[0] < e and s < r[1] for _, s, e in whole)]


def mixture(dice: random.Random, texts: Sequence[str]) -> bytes:
    data = bytearray()
    while len(data) < 6000:
        way = dice.choice(spellings(dice.choice(texts)))
        begin = dice.randint(0, len(way))
        data += dice.choice(
            (way, way[begin : dice.randint(begin, len(way))], bytes(dice.randint(0, 30)), dice.randbytes(20))
        )
    return bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_finds_what_a_plain_search_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    # many windows, so that what lies over their edges is found too
    monkeypatch.setattr(core, "WINDOW", 1024)
    monkeypatch.setattr(core, "OVERLAP", 512)
    texts = [" ".join(dice.choice(WORDS) for _ in range(dice.randint(1, 12))) for _ in range(20)]
    texts += [texts[0] + " and more", "tea tea", "ab" * 20, "aaaa" * 10]
    data = mixture(dice, texts)
    needles = Needles(texts)
    assert needles.piece == 31
    found = needles.search_bytes(data)
    whole, short, pieces = plainly(needles.texts, data)
    assert {(w.text, w.start, w.end) for w in found.whole} == whole
    assert {(w.text, w.start, w.end) for w in found.short} == short
    assert found.pieces == pieces
    assert whole and pieces


def test_every_piece_of_31_bytes_is_found_wherever_it_lies() -> None:
    text = "Carol keeps the spare key under the third flower pot, the one with the crack in it"
    needles = Needles([text])
    raw = text.encode()
    for begin in range(len(raw) - 31):
        for shift in range(8):
            assert needles.search_bytes(b"\xff" * shift + raw[begin : begin + 31] + b"\xff" * 9).pieces


def test_spellings() -> None:
    assert set(spellings('a"b')) == {b'a"b', b'a\\"b', 'a"b'.encode("utf-16-le"), 'a"b'.encode("utf-16-be")}
    assert json.dumps("né")[1:-1].encode() in spellings("né")
    assert b"n\xe9" in spellings("né")  # pickle's protocol 0
    assert b"\xed\xa0\x80" in spellings("\ud800")
    assert b"\x80" in spellings("\udc80")


def test_long_texts() -> None:
    dice = random.Random(3)
    text = "".join(chr(dice.randint(32, 126)) for _ in range(200_000))
    needles = Needles([text], most_grams=5_000)
    data = b"\0" * 5 + text.encode() + b"\0" * 70_000 + text[1000:12_000].encode() + b"\0"
    found = needles.search_bytes(data)
    assert [(w.start, w.end) for w in found.whole] == [(5, 5 + len(text))]
    assert FRAGMENT < needles.piece < 5000
    assert found.pieces
    assert not needles.search_bytes(data[:-90_000]).whole


def test_a_text_that_repeats_itself_ends() -> None:
    found = Needles(["a" * 20_000, "b" * 30]).search_bytes(b"a" * 45_000 + b"b" * 31)
    assert [w.start for w in found.whole if w.text == 0] == [0, 20_000]
    assert [w.start for w in found.whole if w.text == 1] == [45_000, 45_001]


def test_many_short_texts_are_left_out_by_number() -> None:
    needles = Needles(["a", "  ", *(f"w{n:03}" for n in range(100))])
    # four bytes have a spelling of their own each, and one of eight in UTF-16
    assert needles.left_out == 1 + 100 - core.MOST_TINY
    assert len(needles.texts) == 101
    assert len(needles.search_bytes(b"xw000w001x").short) == 2


def test_a_text_that_has_several_short_spellings_is_left_out_once() -> None:
    """Two characters of Chinese are 6 bytes, and 4 in each UTF-16."""
    needles = Needles(chr(0x4E00 + n) + "\u4e8c" for n in range(100))
    assert 100 - core.MOST_TINY < needles.left_out <= len(needles.texts) == 100


def test_time_does_not_grow_with_the_number_of_texts() -> None:
    data = os.urandom(4 << 20)
    looked: list[int] = []

    def read(offset: int, length: int) -> bytes:
        looked.append(length)
        return data[offset : offset + length]

    for count in (1, 2000):
        looked.clear()
        Needles([f"text number {n} of a great many, each of them another" for n in range(count)]).search(
            read, len(data)
        )
        assert sum(looked) < len(data) * 1.2
