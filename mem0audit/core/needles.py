"""Finds many texts, and pieces of them, in bytes: in one pass, whatever their number.

Every 8 bytes of the data, taken at multiples of 8, are looked up in one table of what the texts hold (a set operation
of Python's own); only where one is found, the bytes around it are compared. So that this misses nothing, the table has
all 8 bytes that begin at the first eight places of a text or of a fragment of it: wherever it lies in the data, one of
them is at a multiple of 8. Where the texts are many, that table would not fit into memory: the data are then looked up
at multiples of 4, 2 or 1 as well, and the table has so many places of each.

A fragment is 24 bytes of a text from place 0, 8, 16 and so on (from fewer places where even that is too much): of a
piece of 31 bytes at least one is whole.

Nine tenths of a store are the numbers of its vectors, which pickle writes as "G" and eight bytes each. They are passed
over: no fragment lies within a row of them (it would hold such a "G" twice, and no text does, else nothing is passed
over), and the few bytes of a short text within a number are no text.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import Final, NamedTuple

FRAGMENT: Final = 24
"""Bytes of a fragment: shorter ones are in anybody's text."""
TINY: Final = 4
"""Texts of fewer bytes are in every file, and are not searched for."""
MOST_TINY: Final = 64
"""So many spellings of 4 to 6 bytes are searched for, each by a pass of its own."""
MOST_GRAMS: Final = 1_000_000
"""So many fragments, and so many of their 8 bytes (400 MB at the most). Where the texts hold more, fragments begin at
fewer places, and the data are looked up at more."""
LONG: Final = 4096
"""A text of more bytes is compared at its end first, and is not looked for inside of itself."""
WINDOW: Final = 1 << 20
OVERLAP: Final = 64 << 10
_ROW: Final = 9 << 10
"""So much of a vector is passed over at once; a page of a database is shorter."""
_SIGN: Final = rb"[\x00\x3d-\x40\x80\xbd-\xc0]"
"""How a number of a vector begins, which is a few units at most, or next to nothing."""
_NUMBERS: Final = re.compile(rb".{7}".join([rb"G" + _SIGN] * 32), re.DOTALL)
_TWO_NUMBERS: Final = re.compile(rb"G" + _SIGN + rb".{7}G" + _SIGN, re.DOTALL)
_LETTERS: Final = re.compile(rb"G*")
_SIGNS: Final = re.compile(_SIGN + rb"*")
_NOTHING: Final = bytes(256)
_ZEROS: Final = re.compile(rb"\0*")
_PLACES: Final = tuple(tuple(p for p in range(8) if bits & 1 << p) for bits in range(256))

Read = Callable[[int, int], bytes]
"""`read(offset, length)`: those bytes, fewer at the end of the data."""


def spellings(text: str) -> tuple[bytes, ...]:
    """A text as bytes, in each way that SQLite, pickle, JSON and Python keep it in: those of `narrow_spellings`, and
    UTF-16 in both orders; each that differs once, UTF-8 first."""
    wide = [text.encode(f"utf-16-{order}", "surrogatepass") for order in ("le", "be")]
    return tuple(dict.fromkeys((*narrow_spellings(text), *filter(None, wide))))


def narrow_spellings(text: str) -> tuple[bytes, ...]:
    """A text as UTF-8, as JSON with and without its escapes, as pickle's protocol 0; each that differs once, UTF-8
    first.

    Lone surrogates are spelled as pickle does (three bytes each), and as the bytes that they stand for where a text
    that is no UTF-8 was read with surrogate escapes.
    """
    utf8 = text.encode("utf-8", "surrogatepass")
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return (utf8,) if utf8 else ()
    found = [utf8]
    with suppress(UnicodeEncodeError):
        found.append(text.encode("utf-8", "surrogateescape"))
    quoted = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    found += [one.encode("utf-8", "surrogatepass") for one in quoted]
    escaped = text.replace("\\", "\\u005c")
    for char in "\0\n\r\x1a":
        escaped = escaped.replace(char, f"\\u{ord(char):04x}")
    found.append(escaped.encode("raw_unicode_escape"))
    return tuple(dict.fromkeys(one for one in found if one))


class Whole(NamedTuple):
    """A text found whole: its number among the texts, and where."""

    text: int
    start: int
    end: int


@dataclass
class Hits:
    """What was found in some bytes. `pieces` are (start, end) of fragments, joined where they touch, without those
    within a text that was found whole; `short` are whole texts of fewer bytes than a fragment."""

    whole: list[Whole] = field(default_factory=list)
    short: list[Whole] = field(default_factory=list)
    pieces: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class _Window:
    """Bytes of the data from `left` on, and how to read others."""

    data: bytes
    left: int
    read: Read


class Needles:
    """Texts made ready to be searched for. A piece of one of `piece` bytes is found whatever it is; `left_out` is how
    many texts are not searched for, or not in each spelling: too short, or too many of 4 to 6 bytes."""

    def __init__(self, texts: Iterable[str], most_grams: int = MOST_GRAMS) -> None:
        self.texts = tuple(dict.fromkeys(text for text in texts if text.strip()))
        self.left_out = 0
        self._tiny: dict[bytes, list[int]] = {}
        of: dict[bytes, tuple[int, ...]] = {}
        shorts = set()
        for number, text in enumerate(self.texts):
            ways = spellings(text)
            if len(ways[0]) < FRAGMENT:
                shorts.add(number)
            if len(ways[0]) < TINY:
                self.left_out += 1
                continue
            for way in ways:
                if len(way) >= 7:
                    of[way] = (*of.get(way, ()), number)
                elif len(way) >= TINY:
                    self._tiny.setdefault(way, []).append(number)
        self._shorts = frozenset(shorts)
        # a text counts once, in however many of its spellings it is not searched for
        self.left_out += len({n for way in sorted(self._tiny)[MOST_TINY:] for n in self._tiny.pop(way)})
        self._ordered = sorted(of)
        self._whose = [of[way] for way in self._ordered]
        self._parent = _parents(self._ordered)
        self._ends: dict[int, int] = {}
        long = [way for way in self._ordered if len(way) >= 15]
        in_pieces = [way for way in long if any(n not in shorts for n in of[way])]
        size = sum(map(len, in_pieces))
        self.stride, self.apart = 8, 8
        while size // self.stride > most_grams and self.stride < OVERLAP // 4:
            self.stride *= 2
        self.piece = FRAGMENT + self.stride - 1
        self._fragments = frozenset(
            way[base : base + FRAGMENT]
            for way in in_pieces
            for base in range(0, len(way) - FRAGMENT + 1, self.stride)
        )
        self._heads = frozenset(way[:FRAGMENT] for way in long if len(way) >= FRAGMENT)
        self._heads15 = frozenset(way[:15] for way in long if len(way) < FRAGMENT)
        self._heads7 = frozenset(way[:7] for way in self._ordered if len(way) < 15)
        self._first: dict[int, int] = {}
        self._second: dict[int, int] = {}
        while not self._index(long, most_grams):
            self.apart //= 2
        self._known = frozenset(self._first)
        self._begins4: dict[int, int] = {}
        for way in self._ordered:
            for place in range(4 if len(way) < 15 else 0):
                gram = int.from_bytes(way[place : place + 4], sys.byteorder)
                self._begins4[gram] = self._begins4.get(gram, 0) | 1 << place
        self._known4 = frozenset(self._begins4)
        self._passes_over_numbers = not any(map(_TWO_NUMBERS.search, long))
        self._passes_over_nothing = 0 not in self._known and 0 not in self._known4

    def __len__(self) -> int:
        return len(self.texts)

    # -- the tables --

    def _index(self, long: Sequence[bytes], most_grams: int) -> bool:
        """8 bytes -> at which of the first places of a fragment, or of the first 24 bytes of a text, they stand, a bit
        each, and from the ninth bit on of a text shorter than that; and the same of the 8 bytes that follow on them.
        False where these are too many."""
        joined = b"".join(self._heads | self._fragments) + bytes(FRAGMENT)
        heads15 = b"".join([head + b"\0" for head in self._heads15]) + bytes(8)
        first, second = self._first, self._second
        first.clear()
        second.clear()
        for place in range(self.apart):
            numbers = array("Q", joined[place : place + len(joined) - FRAGMENT])
            for noted, grams in (first, numbers[::3]), (second, numbers[1::3]):
                for gram in set(grams):
                    noted[gram] = noted.get(gram, 0) | 1 << place
            for gram in set(array("Q", heads15[place : place + len(heads15) - 8])[::2]):
                first[gram] = first.get(gram, 0) | 256 << place
            if len(first) > most_grams and self.apart > 1:
                return False
        return True

    # -- the search --

    def search(self, read: Read, size: int, tell: Callable[[int], object] | None = None) -> Hits:
        """Everything that is found in `size` bytes; time grows with the bytes, not with the number of texts.

        `tell` is called with how many bytes were searched so far.
        """
        found = Hits()
        self._ends.clear()
        whole: set[Whole] = set()
        runs: list[tuple[int, int]] = []
        reach = 0
        for start in range(0, size, WINDOW):
            left = max(0, start - OVERLAP)
            left -= left % 8
            data = read(left, start + WINDOW + OVERLAP - left)
            if not data:
                break
            window = _Window(data, left, read)
            reach = self._search_window(window, start, min(start + WINDOW, size), whole, runs, reach)
            if tell is not None:
                tell(min(start + WINDOW, size))
        for one in sorted(whole, key=lambda one: (one.start, one.end, one.text)):
            (found.short if one.text in self._shorts else found.whole).append(one)
        found.pieces = runs
        return found

    def search_bytes(self, data: bytes) -> Hits:
        """The same in bytes that are at hand."""
        return self.search(lambda offset, length: data[offset : offset + length], len(data))

    def _search_window(
        self,
        window: _Window,
        start: int,
        end: int,
        whole: set[Whole],
        runs: list[tuple[int, int]],
        reach: int,
    ) -> int:
        """What is looked up begins in start..end. Texts found whole before end at `reach` at the latest; returns where
        they do with those of this window."""
        data, left = window.data, window.left
        for way, numbers in self._tiny.items():
            at = data.find(way, start - left)
            while 0 <= at < end - left:
                whole.update(Whole(number, left + at, left + at + len(way)) for number in numbers)
                at = data.find(way, at + 1)
        heads, heads15, heads7 = self._heads, self._heads15, self._heads7
        first, second, fragments = self._first, self._second, self._fragments
        parts = list(self._worth_a_look(data, start - left, end - left))
        spans: list[tuple[int, int]] = []  # of texts that were found whole
        places: list[int] = []  # where fragments begin
        for at, gram, following in _found(data, parts, "Q", self._known, self.apart):
            bits = first[gram]
            for place in _PLACES[bits & second.get(following, 0)]:
                begin = at - place
                piece = data[begin : begin + FRAGMENT]
                if piece in fragments:
                    places.append(begin)
                if piece in heads:
                    ended = self._whole_at(window, begin, whole)
                    if ended:
                        spans.append((begin, ended))
            for place in _PLACES[bits >> 8]:
                if data[at - place : at - place + 15] in heads15:
                    ended = self._whole_at(window, at - place, whole)
                    if ended:
                        spans.append((at - place, ended))
        for at, gram, _ in _found(data, parts, "I", self._known4, 4):
            for place in _PLACES[self._begins4[gram]]:
                if data[at - place : at - place + 7] in heads7:
                    self._whole_at(window, at - place, whole)
        spans.sort()
        places.sort()
        return self._join_fragments(window, places, spans, runs, reach)

    def _join_fragments(
        self,
        window: _Window,
        places: Sequence[int],
        spans: Sequence[tuple[int, int]],
        runs: list[tuple[int, int]],
        reach: int,
    ) -> int:
        """Adds the fragments that begin at these places and lie in no text found whole."""
        left, number = window.left, 0
        reach -= left
        for begin in places:
            while number < len(spans) and spans[number][0] <= begin:
                reach = max(reach, spans[number][1])
                number += 1
            if begin + FRAGMENT <= reach:
                continue
            start, end = left + begin, left + begin + FRAGMENT
            if runs and start <= runs[-1][1]:
                runs[-1] = (min(runs[-1][0], start), max(runs[-1][1], end))
            else:
                runs.append((start, end))
        return left + max([reach, *(ended for _, ended in spans[number:])])

    def _worth_a_look(self, data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of start..end in which anything that is searched for may begin, from multiples of 8 on."""
        low = start
        if self._passes_over_numbers:
            while (row := _NUMBERS.search(data, low, end)) is not None:
                at = row.start()
                count = _end(_LETTERS, data[at : at + _ROW : 9])
                count = _end(_SIGNS, data[at + 1 : at + 9 * count : 9])
                # what begins before it goes on in it; what begins at its last but one goes on behind it
                yield from self._but_nothing(data, low, at + 16)
                low = (at + 9 * count - 18) // 8 * 8
        yield from self._but_nothing(data, low, end)

    def _but_nothing(self, data: bytes, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The same without long rows of zeros."""
        if self._passes_over_nothing:
            while (at := data.find(_NOTHING, low, high)) >= 0:
                if at > low:
                    yield low, at
                # the last zeros may be the first of a number that is none
                low = (_end(_ZEROS, data, at, high) - 7) // 8 * 8
        if low < high:
            yield low, high

    def _whole_at(self, window: _Window, begin: int, whole: set[Whole]) -> int:
        """Every text that begins at this place; where the longest that is no short one ends, 0 where there is none."""
        ended, left = 0, window.left
        for index in self._beginning_with(window, begin):
            end = begin + len(self._ordered[index])
            for number in self._whose[index]:
                whole.add(Whole(number, left + begin, left + end))
                if number not in self._shorts:
                    ended = max(ended, end)
        return ended

    def _beginning_with(self, window: _Window, begin: int) -> Iterator[int]:
        """Those of the spellings that stand in the data at `begin`, by number."""
        ordered, length, offset = self._ordered, 128, window.left + begin
        while True:
            have = window.data[begin : begin + length]
            if len(have) < length:
                have = window.read(offset, length)
            index = bisect_right(ordered, have)
            longer = index < len(ordered) and ordered[index].startswith(have)
            if len(have) < length or not longer or length == LONG:
                break
            length = LONG  # a longer one begins so
        while longer and index < len(ordered) and ordered[index].startswith(have):
            if self._is_there(index, offset, window.read):
                yield index
            index += 1
        index = bisect_right(ordered, have)
        while index:
            near = ordered[index - 1]
            if have.startswith(near):
                index -= 1
                while index >= 0:
                    yield index
                    index = self._parent[index]
                return
            have = have[: _common(near, have)]
            index = bisect_right(ordered, have)

    def _is_there(self, index: int, offset: int, read: Read) -> bool:
        """Whether a long text stands there, and not inside of where it was found last."""
        way = self._ordered[index]
        if offset < self._ends.get(index, 0):
            return False
        if read(offset + len(way) - 64, 64) != way[-64:]:
            return False
        for at in range(0, len(way), OVERLAP):
            part = way[at : at + OVERLAP]
            if read(offset + at, len(part)) != part:
                return False
        self._ends[index] = offset + len(way)
        return True


def _found(
    data: bytes, parts: Sequence[tuple[int, int]], code: str, known: frozenset[int], apart: int
) -> Iterator[tuple[int, int, int]]:
    """(place, number, the number that follows on it) of the whole numbers in these parts of the data that are known, at
    every `apart` bytes; some of what lies just behind a part may be among them."""
    wide = array(code).itemsize
    last = len(data) - wide + 1
    for phase in range(0, wide if known else 0, apart):
        places = [range(low + phase, min(high + wide, last), wide) for low, high in parts]
        numbers = array(code, b"".join([data[at.start : at.start + wide * len(at)] for at in places]))
        hits = known.intersection(numbers)
        if hits:
            at_all = chain.from_iterable(places)
            with_next = zip(at_all, numbers, chain(numbers[1:], (0,)), strict=True)
            yield from compress(with_next, map(hits.__contains__, numbers))


def _end(pattern: re.Pattern[bytes], data: bytes, begin: int = 0, end: int = sys.maxsize) -> int:
    """Where what the data begin with at a place ends: the place itself where it is nothing of the pattern."""
    match = pattern.match(data, begin, end)
    return begin if match is None else match.end()


def _parents(ordered: Sequence[bytes]) -> list[int]:
    """For each of sorted texts the longest other one that it begins with; -1 where there is none."""
    parent: list[int] = []
    chain: list[int] = []
    for index, way in enumerate(ordered):
        while chain and not way.startswith(ordered[chain[-1]]):
            chain.pop()
        parent.append(chain[-1] if chain else -1)
        chain.append(index)
    return parent


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two begin with alike."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    low, high = 0, most  # one[:low] is alike, one[:high] is not
    step = 16
    while low + step < high and one[low : low + step] == other[low : low + step]:
        low += step
        step *= 2
    high = min(high, low + step)
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
