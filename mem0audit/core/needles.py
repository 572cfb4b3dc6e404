"""Finds many texts, and pieces of them, in bytes: in one pass, whatever their number.

Every 8 bytes of the data, taken at multiples of 8, are looked up in one table of what the texts hold (a set operation
of Python's own: 150 MB a second for ten texts, 50 for a thousand); only where one is found, the bytes around it are
compared. So that this misses nothing, the table has all 8 bytes that begin at the first eight places of a text or of a
fragment of it: wherever it lies in the data, one of them is at a multiple of 8.

A fragment is 24 bytes of a text from place 0, 8, 16 and so on (from fewer places where the texts are many): of a piece
of 31 bytes at least one is whole.
"""

from __future__ import annotations

import json
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

FRAGMENT: Final = 24
"""Bytes of a fragment: shorter ones are in anybody's text."""
TINY: Final = 4
"""Texts of fewer bytes are in every file, and are not searched for."""
MOST_TINY: Final = 64
"""So many spellings of 4 to 6 bytes are searched for, each by a pass of its own."""
MOST_GRAMS: Final = 1_000_000
"""Some 100 MB of table. Where the texts hold more, fragments begin at fewer places."""
LONG: Final = 4096
"""A text of more bytes is compared at its end first, and is not looked for inside of itself."""
WINDOW: Final = 1 << 20
OVERLAP: Final = 64 << 10
_BLOCKS: Final = 4 << 10
"""Bytes looked up at once: where something is found among them, each is looked at."""

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


@dataclass(frozen=True)
class Whole:
    """A text found whole: its number among the texts, and where."""

    text: int
    start: int
    end: int


@dataclass
class Hits:
    """What was found in some bytes. `pieces` are (start, end) of fragments, joined where they touch, without those of
    texts found whole; `short` are whole texts of fewer bytes than a fragment."""

    whole: list[Whole] = field(default_factory=list)
    short: list[Whole] = field(default_factory=list)
    pieces: list[tuple[int, int]] = field(default_factory=list)


class Needles:
    """Texts made ready to be searched for. A piece of one of `piece` bytes is found whatever it is; `left_out` is how
    many texts are not searched for, or not in each spelling: too short, or too many of 4 to 6 bytes."""

    def __init__(self, texts: Iterable[str], most_grams: int = MOST_GRAMS) -> None:
        self.texts = tuple(dict.fromkeys(text for text in texts if text.strip()))
        self.left_out = 0
        self._tiny: dict[bytes, list[int]] = {}
        self._of: dict[bytes, set[int]] = {}
        self._shorts: frozenset[int] = frozenset()
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
                    self._of.setdefault(way, set()).add(number)
                elif len(way) >= TINY:
                    self._tiny.setdefault(way, []).append(number)
        self._shorts = frozenset(shorts)
        # a text counts once, in however many of its spellings it is not searched for
        self.left_out += len({n for way in sorted(self._tiny)[MOST_TINY:] for n in self._tiny.pop(way)})
        self._ordered = sorted(self._of)
        self._parent = _parents(self._ordered)
        self._ends: dict[bytes, int] = {}
        long = [way for way in self._ordered if len(way) >= 15]
        self._pieces_of = [way for way in long if any(n not in self._shorts for n in self._of[way])]
        self._begins: dict[int, int] = {}
        self._begins4: dict[int, int] = {}
        self._index_beginnings(long)
        self._within: dict[int, int] = {}
        self._fragments: frozenset[bytes] = frozenset()
        self.stride = 8
        while sum(map(len, self._pieces_of)) > most_grams * self.stride and self.stride < OVERLAP // 4:
            self.stride *= 2  # else it would be built in vain
        while not self._index_fragments(most_grams):
            self.stride *= 2
        self.piece = FRAGMENT + self.stride - 1
        self._known = frozenset(self._begins) | frozenset(self._within)
        self._known4 = frozenset(self._begins4)

    def __len__(self) -> int:
        return len(self.texts)

    # -- the tables --

    def _index_beginnings(self, long: Sequence[bytes]) -> None:
        """8 (or 4) bytes -> at which of the first places of some text they stand, a bit each; and how texts begin."""
        order = sys.byteorder
        begins, begins4 = self._begins, self._begins4
        joined = b"".join([way[:15] + b"\0" for way in long]) + bytes(8)
        for place in range(8):
            for gram in set(array("Q", joined[place : place + 16 * len(long)])[::2]):
                begins[gram] = begins.get(gram, 0) | 1 << place
        for way in self._ordered:
            if len(way) < 15:
                for place in range(4):
                    gram = int.from_bytes(way[place : place + 4], order)
                    begins4[gram] = begins4.get(gram, 0) | 1 << place
        self._heads = frozenset(way[:FRAGMENT] for way in long if len(way) >= FRAGMENT)
        self._heads15 = frozenset(way[:15] for way in long if len(way) < FRAGMENT)
        self._heads7 = frozenset(way[:7] for way in self._ordered if len(way) < 15)

    def _index_fragments(self, most_grams: int) -> bool:
        """The fragments, and their 8 bytes as for the beginnings. False where that would be too many."""
        within, stride = self._within, self.stride
        within.clear()
        fragments = {
            way[base : base + FRAGMENT]
            for way in self._pieces_of
            for base in range(0, len(way) - FRAGMENT + 1, stride)
        }
        joined = b"".join(fragments) + bytes(8)
        for place in range(8):
            for gram in set(array("Q", joined[place : place + FRAGMENT * len(fragments)])[:: FRAGMENT // 8]):
                within[gram] = within.get(gram, 0) | 1 << place
            if len(within) > most_grams and stride < OVERLAP // 4:
                return False
        self._fragments = frozenset(fragments)
        return True

    # -- the search --

    def search(self, read: Read, size: int) -> Hits:
        """Everything that is found in `size` bytes; time grows with the bytes, not with the number of texts."""
        found = Hits()
        self._ends.clear()
        whole: set[tuple[int, int, int]] = set()
        runs: list[tuple[int, int]] = []
        for start in range(0, size, WINDOW):
            left = max(0, start - OVERLAP)
            left -= left % 8
            data = read(left, start + WINDOW + OVERLAP - left)
            if not data:
                break
            self._search_window(data, left, start, min(start + WINDOW, size), read, whole, runs)
        for text, begin, end in sorted(whole, key=lambda one: (one[1], one[2], one[0])):
            (found.short if text in self._shorts else found.whole).append(Whole(text, begin, end))
        found.pieces = _apart(_joined(runs), [(w.start, w.end) for w in found.whole])
        return found

    def search_bytes(self, data: bytes) -> Hits:
        """The same in bytes that are at hand."""
        return self.search(lambda offset, length: data[offset : offset + length], len(data))

    def _search_window(
        self,
        data: bytes,
        left: int,
        start: int,
        end: int,
        read: Read,
        whole: set[tuple[int, int, int]],
        runs: list[tuple[int, int]],
    ) -> None:
        """`data` begins at `left`; what is looked up begins in start..end."""
        for way, numbers in self._tiny.items():
            at = data.find(way, start - left)
            while 0 <= at < end - left:
                whole.update((number, left + at, left + at + len(way)) for number in numbers)
                at = data.find(way, at + 1)
        heads, heads15 = self._heads, self._heads15
        inside = (0, 0)  # of a text that was found whole: its fragments are no pieces
        for at, gram in _found(data, start - left, end - left, "Q", self._known):
            bits = self._begins.get(gram, 0)
            begin = at
            while bits and begin >= 0:
                # most candidates are of texts that only share words: looked at no further
                if bits & 1 and (
                    data[begin : begin + FRAGMENT] in heads or data[begin : begin + 15] in heads15
                ):
                    ended = self._whole_at(data, left, begin, read, whole)
                    if ended > inside[1]:
                        inside = (left + begin, ended)
                bits >>= 1
                begin -= 1
            bits = self._within.get(gram, 0)
            if bits and not (inside[0] <= left + at - 7 and left + at + FRAGMENT <= inside[1]):
                self._fragments_at(data, left, at, bits, runs)
        for at, gram in _found(data, start - left, end - left, "I", self._known4):
            bits, begin = self._begins4[gram], at
            while bits and begin >= 0:
                if bits & 1 and data[begin : begin + 7] in self._heads7:
                    self._whole_at(data, left, begin, read, whole)
                bits >>= 1
                begin -= 1

    def _whole_at(
        self, data: bytes, left: int, begin: int, read: Read, whole: set[tuple[int, int, int]]
    ) -> int:
        """Every text that begins at this place; where the longest that is no short one ends, 0 where there is none."""
        ended = 0
        for way in self._beginning_with(data, left, begin, read):
            span = (left + begin, left + begin + len(way))
            for number in self._of[way]:
                whole.add((number, *span))
                if number not in self._shorts:
                    ended = max(ended, span[1])
        return ended

    def _beginning_with(self, data: bytes, left: int, begin: int, read: Read) -> Iterator[bytes]:
        """Those of the spellings that stand in the data at `begin`."""
        ordered, length = self._ordered, 128
        while True:
            have = data[begin : begin + length]
            if len(have) < length:
                have = read(left + begin, length)
            index = bisect_right(ordered, have)
            longer = index < len(ordered) and ordered[index].startswith(have)
            if len(have) < length or not longer or length == LONG:
                break
            length = LONG  # a longer one begins so
        while longer and index < len(ordered) and ordered[index].startswith(have):
            if self._is_there(ordered[index], left + begin, read):
                yield ordered[index]
            index += 1
        index = bisect_right(ordered, have)
        while index:
            near = ordered[index - 1]
            if have.startswith(near):
                index -= 1
                while index >= 0:
                    yield ordered[index]
                    index = self._parent[index]
                return
            have = have[: _common(near, have)]
            index = bisect_right(ordered, have)

    def _is_there(self, way: bytes, offset: int, read: Read) -> bool:
        """Whether a long text stands there, and not inside of where it was found last."""
        if offset < self._ends.get(way, 0):
            return False
        if read(offset + len(way) - 64, 64) != way[-64:]:
            return False
        for at in range(0, len(way), OVERLAP):
            part = way[at : at + OVERLAP]
            if read(offset + at, len(part)) != part:
                return False
        self._ends[way] = offset + len(way)
        return True

    def _fragments_at(self, data: bytes, left: int, at: int, bits: int, runs: list[tuple[int, int]]) -> None:
        """Every fragment that begins at one of the places which these bytes can be of."""
        begin = at
        while bits:
            if bits & 1 and begin >= 0 and data[begin : begin + FRAGMENT] in self._fragments:
                start, end = left + begin, left + begin + FRAGMENT
                if runs and runs[-1][0] <= start <= runs[-1][1]:
                    runs[-1] = (runs[-1][0], max(runs[-1][1], end))
                else:
                    runs.append((start, end))
            bits >>= 1
            begin -= 1


def _found(data: bytes, start: int, end: int, code: str, known: frozenset[int]) -> list[tuple[int, int]]:
    """(place, number) of the whole numbers in the data, at multiples of their size, that are known."""
    found: list[tuple[int, int]] = []
    wide = array(code).itemsize
    end = min(end, len(data) - wide + 1)
    for begin in range(start, end if known else start, _BLOCKS):
        stop = min(begin + _BLOCKS, len(data))
        numbers = array(code, data[begin : stop - (stop - begin) % wide])
        hits = known.intersection(numbers)
        if hits:
            found += [(begin + i * wide, n) for i, n in enumerate(numbers) if n in hits]
    return found


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


def _joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans without those that overlap or touch: these are one."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _apart(runs: Sequence[tuple[int, int]], whole: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The runs that no whole text lies in."""
    apart = []
    spans = sorted(whole)
    at = 0
    for begin, end in runs:
        while at < len(spans) and spans[at][1] <= begin:
            at += 1
        if at == len(spans) or spans[at][0] >= end:
            apart.append((begin, end))
    return apart
