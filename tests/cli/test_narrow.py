"""Narrow terminals: a line is longer than the screen only where a path, an id or a command to copy is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import call

WHOLE = re.compile(
    r" *((history|vectors|mem0 folder|snapshots) +)?(Both stores side by side: )?"
    r"(changed [0-9-]+ [0-9:]+Z|\(?/\S+|[0-9a-f-]{36}( +mem0(_entities)?)?|(sudo )?(mem0audit|sqlite3) .*)"
)
"""What is never broken: a time, a path, a memory's id and its collection, a command."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StoreCopy]:
    """An install with faults and two snapshots."""
    home = tmp_path_factory.mktemp("world")
    store = copy_store("2.2.1", home / "store")
    for one in list(RawPoints(store.vectors).points())[:2]:
        RawPoints(store.vectors).remove(one)
    for _ in range(2):
        assert call(home, "snapshot", "create", "--to", str(home / "snapshots"), *flags(store)).code == 0
    return home, store


def flags(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


@pytest.mark.parametrize("width", [40, 60, 79, 100])
@pytest.mark.parametrize("command", ["audit", "status", "snapshot list"])
def test_no_line_is_longer_than_it_must_be(world: tuple[Path, StoreCopy], command: str, width: int) -> None:
    home, store = world
    words = ("--to", str(home / "snapshots")) if command == "snapshot list" else flags(store)
    ran = call(home, *command.split(), *words, env={"COLUMNS": str(width), "MEM0AUDIT_PROGRAM": "mem0audit"})
    assert ran.code in (0, 1), ran.err
    lines = ran.out.splitlines()
    assert len(lines) > 1
    for line in lines:
        assert len(line) <= width or WHOLE.fullmatch(line), line
