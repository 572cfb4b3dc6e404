"""How fast the program answers, and what it loads for that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.program import call, run
from tests.speed import slowness

HEAVY = ("rich", "yaml", "mem0", "qdrant_client", "numpy", "sqlite3")


@pytest.mark.parametrize("words", [("--help",), ("explain", "D301"), ("--version",), ("audit", "--help")])
def test_answers_at_once(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert min(run(tmp_path, *words).cpu_s for _ in range(3)) < 0.5 * slowness()


@pytest.mark.parametrize("words", [("--help",), ("explain", "D301"), ("explain",), ("--version",)])
def test_loads_nothing_heavy(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = run(tmp_path, *words, python=("-X", "importtime"))
    loaded = {line.rsplit("|", 1)[-1].strip() for line in ran.err.splitlines() if "|" in line}
    assert "mem0audit.cli.main" in loaded
    assert not {name for name in loaded if name.split(".")[0] in HEAVY}


def test_every_command_is_in_the_help_and_has_its_own(tmp_path: Path) -> None:
    text = run(tmp_path, "--help").out
    listed = re.findall(r"^  ([a-z-]+) {2,}\S", text.split("Commands:")[1], re.M)
    groups = ["snapshot", "facts", "ledger", "review", "schedule", "config"]
    assert listed == [
        *("audit", "status", "explain", "show", "users", "log", "as-of", "new"),
        *("relocate", "recover", "repair", "prune", "delete", "residue", "export", "demo", "help"),
        *groups,
    ]
    assert "..." not in text.split("Commands:")[1]  # no summary is cut
    for command in listed:
        ran = call(tmp_path, command, "--help")
        assert ran.code == 0
        assert "Usage: mem0audit " + command in ran.out
        assert max(map(len, ran.out.splitlines())) <= 100
