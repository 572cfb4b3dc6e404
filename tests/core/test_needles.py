"""The search of many texts at once finds just what a plain search for each of them finds."""

from __future__ import annotations

import json
import os
import random
import struct
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
    texts: Sequence[str], data: bytes, stride: int = 8
) -> tuple[set[tuple[int, int, int]], set[tuple[int, int, int]], list[tuple[int, int]]]:
    """Each spelling of each text looked for by itself; fragments at every eighth byte of it, or fewer."""
    whole, short, fragments = set(), set(), set()
    for number, text in enumerate(texts):
        is_short = len(spellings(text)[0]) < FRAGMENT
        for way in spellings(text):
            if len(spellings(text)[0]) < 4 or len(way) < 4:
                continue
            at = data.find(way)
            while at >= 0:
                (short if is_short else whole).add((number, at, at + len(way)))
                at = data.find(way, at + 1)
            if not is_short:
                fragments |= {way[at : at + FRAGMENT] for at in range(0, len(way) - FRAGMENT + 1, stride)}
    runs: list[tuple[int, int]] = []
    for at in range(len(data) - FRAGMENT + 1):
        within = any(s <= at and at + FRAGMENT <= e for _, s, e in whole)
        if data[at : at + FRAGMENT] in fragments and not within:
            if runs and at <= runs[-1][1]:
                runs[-1] = (runs[-1][0], at + FRAGMENT)
            else:
                runs.append((at, at + FRAGMENT))
    return whole, short, runs


def mixture(dice: random.Random, texts: Sequence[str]) -> bytes:
    data = bytearray()
    while len(data) < 6000:
        way = dice.choice(spellings(dice.choice(texts)))
        begin = dice.randint(0, len(way))
        data += dice.choice(
            (way, way[begin : dice.randint(begin, len(way))], bytes(dice.randint(0, 30)), dice.randbytes(20))
        )
    return bytes(data)


def looking_at_every(apart: int, texts: Sequence[str]) -> Needles:
    """What so many bytes apart is looked up with a table for these texts that is just too small for more."""
    most_grams = 50_000
    while (needles := Needles(texts, most_grams)).apart > apart:
        most_grams = most_grams * 9 // 10
    assert needles.apart == apart
    return needles


@pytest.mark.parametrize(("seed", "apart"), [*enumerate((8, 4, 2, 1) * 2)])
def test_finds_what_a_plain_search_finds(seed: int, apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    # many windows, so that what lies over their edges is found too
    monkeypatch.setattr(core, "WINDOW", 1024)
    monkeypatch.setattr(core, "OVERLAP", 512)
    texts = [" ".join(dice.choice(WORDS) for _ in range(dice.randint(1, 12))) for _ in range(20)]
    texts += [texts[0] + " and more", "tea tea", "ab" * 20, "aaaa" * 10]
    data = mixture(dice, texts)
    needles = looking_at_every(apart, texts)
    assert needles.piece == 31 or apart < 8
    found = needles.search_bytes(data)
    whole, short, pieces = plainly(needles.texts, data, needles.stride)
    assert {(w.text, w.start, w.end) for w in found.whole} == whole
    assert {(w.text, w.start, w.end) for w in found.short} == short
    assert found.pieces == pieces
    assert whole and pieces


ROW = b"".join(struct.pack(">cd", b"G", n / 7 - 40) for n in range(600))
"""Numbers of a vector, as pickle writes them; some are negative."""


@pytest.mark.parametrize("apart", (8, 1))
def test_numbers_of_vectors_and_zeros_are_passed_over_but_nothing_beside_them(
    apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(apart)
    texts = [" ".join(dice.choice(WORDS) for _ in range(dice.randint(1, 12))) for _ in range(20)]
    data = bytearray()
    for _ in range(60):
        way = dice.choice(spellings(dice.choice(texts)))
        begin = dice.randint(0, len(way))
        row = ROW[dice.randint(0, 2700) : dice.randint(2700, 5400)]
        data += dice.choice((row, row, bytes(dice.randint(0, 900)), dice.randbytes(9)))
        data += dice.choice((way, way, way[begin:], way[:begin], b""))
    needles = looking_at_every(apart, texts)
    whole, short, pieces = plainly(needles.texts, bytes(data), needles.stride)
    searched = needles.search_bytes(bytes(data))
    assert {(w.text, w.start, w.end) for w in searched.whole} == whole
    assert {(w.text, w.start, w.end) for w in searched.short} == short
    assert searched.pieces == pieces
    looked: list[int] = []
    monkeypatch.setattr(core, "_found", lambda _data, parts, *_: looked.extend(b - a for a, b in parts) or ())
    needles.search_bytes(bytes(data))
    assert sum(looked) / 2 < len(data) / 3


@pytest.mark.parametrize(
    "text", ("".join(f"G?number{n % 10}" for n in range(90)), "zeros" + "\0" * 300 + "and zeros again")
)
def test_a_text_that_looks_like_numbers_or_nothing_is_found(text: str) -> None:
    data = b"." * 5 + text.encode("latin-1") + b"." * 5 + text[100:140].encode("latin-1") + b"." * 90
    found = Needles([text]).search_bytes(data)
    assert [(w.start, w.end) for w in found.whole] == [(5, 5 + len(text))]
    assert found.pieces


@pytest.mark.parametrize("apart", (8, 1))
def test_a_text_that_begins_with_the_last_of_many_zeros_is_found(apart: int) -> None:
    needles = looking_at_every(apart, ["the user", "".join(map(chr, range(0x4E00, 0x5200)))])
    way = "the user".encode("utf-16-be")
    for shift in range(8):
        found = needles.search_bytes(bytes(300 + shift) + way + b"." * 300).short
        assert (300 + shift, 316 + shift) in [(one.start, one.end) for one in found]


def test_a_piece_beside_a_whole_text_is_a_piece() -> None:
    """A text that others own may stand before one that went on from it, and of which the end is gone."""
    known = "Everybody in this house is allergic to peanuts"
    longer = known + ", and the spare key is under the third flower pot"
    data = b"\0" * 3 + longer[:-12].encode() + b"\0" * 9
    found = Needles([known, longer]).search_bytes(data)
    assert [w.text for w in found.whole] == [0]
    ((start, end),) = found.pieces
    assert start < 3 + len(known) < end


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
