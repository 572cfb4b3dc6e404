"""The screens that matter, as files to read: what a person sees, line for line.

`python -m tests.report.test_golden` writes them anew; read the diff before committing it.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from mem0audit.report.screen import Screen
from mem0audit.report.text import audit_text
from tests.report.installs import SCREENS

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 100)


def drawn(name: str, width: int) -> str:
    return audit_text(SCREENS[name](), Screen(width=width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_screen(name: str, width: int) -> None:
    golden = GOLDEN / f"{name}-{width}.txt"
    wanted = golden.read_text(encoding="utf-8")
    got = drawn(name, width)
    if got != wanted:
        lines = (text.splitlines(keepends=True) for text in (wanted, got))
        pytest.fail("".join(difflib.unified_diff(*lines, golden.name, "now")), pytrace=False)


def test_every_golden_file_has_its_screen() -> None:
    assert {p.name for p in GOLDEN.iterdir()} == {f"{n}-{w}.txt" for n in SCREENS for w in WIDTHS}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_prose_fits_and_only_commands_and_ids_are_longer(name: str, width: int) -> None:
    for line in drawn(name, width).splitlines():
        if len(line) > width:
            assert re.match(r"\s*(mem0audit |sudo |sqlite3 |nsenter |mkdir |cp |install |rm |\S+$)", line), (
                line
            )


@pytest.mark.parametrize("name", SCREENS)
def test_colour_adds_nothing_but_colour(name: str) -> None:
    plain = audit_text(SCREENS[name](), Screen())
    coloured = audit_text(SCREENS[name](), Screen(colour=True))
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


if __name__ == "__main__":
    for each in SCREENS:
        for columns in WIDTHS:
            (GOLDEN / f"{each}-{columns}.txt").write_text(drawn(each, columns), encoding="utf-8")
