from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem0audit.report.escape import escape, escape_lines, shell_word, without_surrogates

HOSTILE = {
    "title": ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
    "clear": ("\x1b[2J", "\\x1b[2J"),
    "c1 csi": ("\x9b31m", "\\x9b31m"),
    "right to left override": ("a\u202eb", "a\\u202eb"),
    "isolate": ("\u2066x\u2069", "\\u2066x\\u2069"),
    "zero width": ("a\u200bb", "a\\u200bb"),
    "line separator": ("a\u2028b", "a\\u2028b"),
    "no-break space": ("a\xa0b", "a\\xa0b"),
    "forged line": ("ok\ncritical L101", "ok\\ncritical L101"),
    "carriage return": ("x\ry", "x\\ry"),
    "backspace": ("x\by", "x\\x08y"),
    "nul": ("x\0y", "x\\x00y"),
    "lone surrogate": ("x\udc80y", "x\\udc80y"),
    "private use": ("\ue000", "\\ue000"),
    "tag": ("\U000e0041", "\\U000e0041"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_becomes_one_visible_line(name: str) -> None:
    given_, wanted = HOSTILE[name]
    assert escape(given_) == wanted


def test_ordinary_text_and_markup_stay_as_they_are() -> None:
    for text in ("Ana lives in Quito", "naïve 漢字 😀", "[bold red]x[/] <b>&amp;</b> {x} %s", "a\\b"):
        assert escape(text) == text


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_nothing_escapes(text: str) -> None:
    said = escape(text)
    assert said.isprintable()
    said.encode("utf-8")


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_lines_break_at_newlines_only(text: str) -> None:
    lines = escape_lines(text)
    assert len(lines) == text.count("\n") + 1
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    "word",
    ["plain", "two words", "it's", "$HOME `id`", "", "*", "a\nb", "\x1b]0;x\x07", "é\x1b'\\", "\udc80x"],
)
def test_a_quoted_word_is_the_same_word_to_bash(word: str) -> None:
    line = shell_word(word)
    assert line.isprintable()
    out = subprocess.run(["bash", "-c", f"printf %s {line}"], stdout=subprocess.PIPE, check=True).stdout
    assert out == word.encode("utf-8", "surrogateescape")


def test_json_values_hold_no_surrogates_and_no_nan() -> None:
    value = {"a\udc80": ["x\ud800", float("nan"), float("-inf"), 1.5, None, {"k": ("t",)}]}
    safe = without_surrogates(value)
    assert safe == {"a\\udc80": ["x\\ud800", "nan", "-inf", 1.5, None, {"k": ["t"]}]}
    json.dumps(safe, allow_nan=False).encode()
