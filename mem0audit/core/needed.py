"""Which of many patterns may match a text, told by the words that they need: much cheaper than any of them.

A pattern such as `\\bsends? .{0,40}\\b(?:to|via) webhook` matches no text without a word that begins with `send`, the
word `to` or `via` and a word that begins with `webhook`. Those are read from the pattern itself, so that none is
forgotten when it changes. The patterns are those of this project: small letters, groups without names, no references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final, NamedTuple


class Atom(NamedTuple):
    """Letters that stand within one word of the text, at its beginning or at its end where that is certain."""

    letters: str
    begins: bool
    ends: bool


Group = frozenset[Atom]
"""A text that the pattern matches has at least one of these."""


class _Node(NamedTuple):
    """A part of a pattern. `kind` is "text" (letters as they are), "one" (one character of several), "edge" (`^`, `$`
    and `\\b`), "ahead" (looks ahead, and consumes nothing), "nothing" (another look around), "choice" (of `inside`).
    `apart` of a "one": it is no character of a word."""

    kind: str
    letters: str = ""
    apart: bool = False
    inside: tuple[tuple[_Node, ...], ...] = ()
    least: int = 1
    most: int = 1


_Row = tuple[_Node, ...]

_TIMES: Final = re.compile(r"(?:([?*+])|\{(\d+)(?:(,)(\d*))?\})\??")
_PART: Final = re.compile(r"<(\w+)>")
_GROUP: Final = re.compile(r"\((?:\?(:|=|!|<!|<=))?")
_OF_WORDS: Final = re.compile(r"\w")
_LETTERS: Final = re.compile(r"[\w ,'/:\"=-]+(?![?*+{])")


class _Reader:
    """Reads patterns; each of `parts`, which they name as <part>, once."""

    def __init__(self, parts: Mapping[str, str]) -> None:
        self._parts = parts
        self._read: dict[str, _Node] = {}

    def branches(self, pattern: str) -> list[tuple[str, _Row]]:
        """The ways of saying it that a pattern has: each as it is written, and read."""
        rows, at, ends = self._choice(pattern, 0)
        if at != len(pattern):
            raise ValueError(f"a bracket too many: {pattern[at:]}")
        starts = [0, *(end + 1 for end in ends)]
        return [(pattern[a:b], row) for a, b, row in zip(starts, [*ends, at], rows, strict=True)]

    def _choice(self, pattern: str, at: int) -> tuple[list[_Row], int, list[int]]:
        """The rows up to a closing bracket or the end, where that is, and where each `|` between them stands."""
        rows: list[_Row] = []
        bars: list[int] = []
        row: list[_Node] = []
        while at < len(pattern) and pattern[at] != ")":
            if pattern[at] == "|":
                bars.append(at)
                rows.append(tuple(row))
                row = []
                at += 1
                continue
            node, at = self._node(pattern, at)
            if times := _TIMES.match(pattern, at):
                at = times.end()
                least, most = _least_most(times)
                if node.kind == "text" or (least, most) != (1, 1):
                    node = node._replace(least=least, most=most)
            elif (
                node.kind == "text" and row and row[-1].kind == "text" and row[-1].most == row[-1].least == 1
            ):
                node = _Node("text", row.pop().letters + node.letters)
            row.append(node)
        return [*rows, tuple(row)], at, bars

    def _node(self, pattern: str, at: int) -> tuple[_Node, int]:
        if letters := _LETTERS.match(pattern, at):
            return _Node("text", letters[0]), letters.end()
        sign = pattern[at]
        if pattern.startswith("...", at):  # as `orders` writes up to 40 of anything
            return _Node("one", least=0, most=40), at + 3
        if part := _PART.match(pattern, at):
            return self._part(part[1]), part.end()
        if group := _GROUP.match(pattern, at):
            rows, end, _ = self._choice(pattern, group.end())
            kind = {"=": "ahead", "!": "nothing", "<!": "nothing", "<=": "nothing"}.get(group[1], "choice")
            return _Node(kind, inside=tuple(rows)), end + 1
        if sign == "[":
            end = pattern.index("]", at + 2)
            return _Node("one", apart=not re.search(r"\^|\\[wdS]|[^\W_]|_", pattern[at + 1 : end])), end + 1
        if sign == "\\":
            kind = pattern[at + 1]
            if kind == "b":
                return _Node("edge"), at + 2
            if kind in "wdSsWn":
                return _Node("one", apart=kind in "sWn"), at + 2
            return _Node("text", kind), at + 2
        if sign in "^$":
            return _Node("edge"), at + 1
        return _Node("one") if sign == "." else _Node("text", sign), at + 1

    def _part(self, name: str) -> _Node:
        if name not in self._read:
            rows, _, _ = self._choice(self._parts[name], 0)
            self._read[name] = _Node("choice", name, inside=tuple(rows))
        return self._read[name]


def _least_most(times: re.Match[str]) -> tuple[int, int]:
    many = 1 << 16
    if times[1]:
        return {"?": (0, 1), "*": (0, many), "+": (1, many)}[times[1]]
    least = int(times[2])
    return least, int(times[4] or many) if times[3] else least


def _after(node: _Node, edge: bool) -> bool:
    """Whether what comes after the node certainly is at the beginning of a word, if it is of a word. `edge`: so it is
    before the node."""
    if node.kind in ("ahead", "nothing"):
        return edge
    if node.kind == "text":
        inner = not _OF_WORDS.match(node.letters[-1])
    elif node.kind == "one":
        inner = node.apart
    elif node.kind == "edge":
        inner = True
    else:
        inner = all(_after_row(row, edge) for row in node.inside)
        if node.most > 1:
            inner = inner and all(_after_row(row, inner) for row in node.inside)
    return inner and (edge or node.least > 0)


def _after_row(row: _Row, edge: bool) -> bool:
    for node in row:
        edge = _after(node, edge)
    return edge


def _apart(row: Sequence[_Node], after: bool) -> bool:
    """Whether a word certainly ends where the row begins. `after`: it does where the row ends."""
    if not row:
        return after
    node, rest = row[0], row[1:]
    if node.kind == "edge":
        return True
    if node.kind in ("ahead", "nothing"):
        return _apart(rest, after)
    following = _apart(rest, after)
    if node.kind == "text":
        inner = not _OF_WORDS.match(node.letters[0])
    elif node.kind == "one":
        inner = node.apart
    else:
        inner = all(_apart(one, following and node.most == 1) for one in node.inside)
    return inner and (following or node.least > 0)


_Known = dict[tuple[str, bool, bool], list[Group]]


def needs(row: _Row, known: _Known, edge: bool = False, after: bool = False) -> list[Group]:
    """What a text needs to have for the row to match: one of each group. `known` is that of parts, which many rows
    share; it is added to."""
    groups: list[Group] = []
    for at, node in enumerate(row):
        if node.least > 0:
            following = _apart(row[at + 1 :], after)
            if node.kind == "text":
                groups += _words(node, edge, following)
            elif node.kind == "ahead":
                groups += _of_choice(node, known, edge, False)
            elif node.kind == "choice":
                groups += _of_choice(node, known, edge and node.most == 1, following and node.most == 1)
        edge = _after(node, edge)
    return groups


def _of_choice(node: _Node, known: _Known, edge: bool, after: bool) -> list[Group]:
    key = (node.letters, edge, after)
    if node.letters and key in known:
        return known[key]
    of_each = [sorted(needs(row, known, edge, after), key=rarity) for row in node.inside]
    groups = of_each[0]
    if len(of_each) > 1:
        # each way has its own groups: one of every way makes a group of them all, the rarest first
        deepest = max(map(len, of_each)) if all(of_each) else 0
        groups = [
            frozenset(atom for some in of_each for atom in some[max(len(some) - 1 - depth, 0)])
            for depth in range(deepest)
        ]
    if node.letters:
        known[key] = groups
    return groups


def _words(node: _Node, edge: bool, following: bool) -> list[Group]:
    last = len(node.letters)
    return [
        frozenset((Atom(word[0], edge or word.start() > 0, following or word.end() < last),))
        for word in re.finditer(r"\w+", node.letters)
    ]


_COMMON: Final = frozenset(
    re.findall(
        r"\S+",
        """
    a an the i he she we they you user his her their my of to for in on at with by is are was be been has have had do
    does don t not no never always all any every and or but so as if when whenever before after without that this what
    can may must should will need want prefer like ask
    """,
    )
)
"""Words that say nothing: nearly every text has some."""


def rarity(group: Group) -> float:
    """How seldom a text has one of the group, as a number to compare: by the lengths of its words alone."""
    return -sum(
        1 if atom.letters in _COMMON else 0.25 ** (len(atom.letters) + atom.begins + atom.ends)
        for atom in group
    )


class Screen:
    """Says of a text which of the `patterns` may match it: all that do, and few that do not.

    A text is given as its words, runs of `\\\\w`, of which each is looked up once: natural language has few.
    """

    def __init__(self, patterns: Sequence[str], parts: Mapping[str, str]) -> None:
        reader, known = _Reader(parts), _Known()
        self.branches: list[tuple[int, str]] = []
        """Each way of saying it that a pattern has: the number of the pattern, and the way as it is written."""
        self._bits: dict[Group, int] = {}
        self._by_rarest: dict[int, list[tuple[int, int]]] = {}
        for number, pattern in enumerate(patterns):
            for written, row in reader.branches(pattern):
                groups = sorted(needs(row, known), key=rarity)
                bits = [self._bits.setdefault(group, 1 << len(self._bits)) for group in groups]
                rarest = bits[-1]
                self._by_rarest.setdefault(rarest, []).append((reduce(or_, bits), len(self.branches)))
                self.branches.append((number, written))
        self._words = _Words(self._bits)
        self._rarest = reduce(or_, self._by_rarest, 0)

    def possible(self, words: Iterable[str]) -> list[int]:
        """The indexes of `branches` that may match a text of these words, in order."""
        there = reduce(or_, map(self._words.__getitem__, words), 0)
        seldom = there & self._rarest
        found = []
        while seldom:
            lowest = seldom & -seldom
            seldom ^= lowest
            for needed, index in self._by_rarest[lowest]:
                if needed & there == needed:
                    found.append(index)
        return sorted(found)


class _Words(dict[str, int]):
    """The bits of the groups of which a word is one, kept for each word that was asked for."""

    MOST: Final = 50_000

    def __init__(self, bits: Mapping[Group, int]) -> None:
        self._whole: dict[str, int] = {}
        self._begins: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._within: dict[str, int] = {}
        for group, bit in bits.items():
            for letters, begins, ends in group:
                some = (
                    self._whole
                    if begins and ends
                    else self._begins
                    if begins
                    else self._ends
                    if ends
                    else self._within
                )
                some[letters] = some.get(letters, 0) | bit
        self._longest = max(map(len, (*self._begins, *self._ends)), default=0)

    def __missing__(self, word: str) -> int:
        if len(self) >= self.MOST:
            self.clear()
        bits = self._whole.get(word, 0)
        for length in range(1, min(len(word), self._longest) + 1):
            bits |= self._begins.get(word[:length], 0) | self._ends.get(word[-length:], 0)
        for letters, some in self._within.items():
            if letters in word:
                bits |= some
        self[word] = bits
        return bits
