"""How-to pages are listed, fit the screen, and end in one line where there is none of that name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.report.howto import PAGES
from tests.cli.program import call, run

HEADINGS = {
    "relocate": ("A systemd service", "Docker", "Compose", "Lambda"),
    "lifetimes": ("What decays", "What drifts", "What was said anew", "Can a wrong fact be detected?"),
}


@pytest.mark.parametrize("width", ["60", "100"])
@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_fits_the_screen(page: str, width: str, tmp_path: Path) -> None:
    done = run(tmp_path, "help", page, env={"COLUMNS": width})
    assert done.code == 0 and done.err == ""
    prose = [line for line in done.out.splitlines()[1:] if not line.startswith("    ")]
    assert max(map(len, prose)) <= int(width)
    assert "\\" not in "".join(prose)
    assert set(HEADINGS.get(page, ())) <= set(prose)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_command_that_a_page_names_is_one(page: str, tmp_path: Path) -> None:
    for line in PAGES[page][1].splitlines():
        if line.startswith("    mem0audit "):
            words = shlex.split(line.strip().removesuffix("\\"))
            groups = ("snapshot", "schedule", "facts", "ledger", "review")
            group = 2 if words[1] in groups and words[2:] and not words[2].startswith("-") else 1
            told = call(tmp_path, *words[1 : group + 1], "--help")
            assert told.code == 0, line
            for word in words:
                assert not word.startswith("--") or f"{word} " in told.out + " ", line
            codes = [word for word in words if re.fullmatch(r"[A-Z]\d{3}", word)]
            assert set(codes) <= set(CATALOGUE), line
    assert set(re.findall(r"\b[BCDEHILQST]\d{3}\b", PAGES[page][1])) <= set(CATALOGUE)


def test_the_list_and_what_is_no_page(tmp_path: Path) -> None:
    listed = run(tmp_path, "help").out
    assert all(f"help {page}" in listed for page in PAGES)
    done = call(tmp_path, "help", "nothing")
    assert done.code == 2
    assert done.err == "mem0audit: nothing: there is no such page\n  mem0audit help\n"


@pytest.mark.parametrize("group", ["", "snapshot", "ledger", "review", "schedule"])
def test_no_line_of_a_list_of_commands_is_cut(group: str, tmp_path: Path) -> None:
    lines = call(tmp_path, *group.split(), "--help", env={"COLUMNS": "80"}).out.splitlines()
    listed = lines[lines.index("Commands:") + 1 :]
    assert len(listed) > 2 and not [line for line in listed if line.endswith("...")]
