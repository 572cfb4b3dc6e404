"""Files written with -o: whole or untouched, whatever fails; and how printed commands name the program."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from mem0audit.cli import output
from mem0audit.core.errors import Failed
from mem0audit.report.screen import Screen
from mem0audit.stores import files

STEPS = ("file.create", "file.write", "file.fsync", "file.rename")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("there", [True, False])
def test_a_failing_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, there: bool
) -> None:
    target = tmp_path / "report.txt"
    if there:
        target.write_text("old")
    reached = []

    def fail(name: str) -> None:
        reached.append(name)
        if name == step:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "step", fail)
    with pytest.raises(Failed, match="No space left on device"):
        output.write("new", str(target))
    assert reached[-1] == step
    assert os.listdir(tmp_path) == (["report.txt"] if there else [])
    if there:
        assert target.read_text() == "old"


def test_a_link_stays_a_link_and_surrogates_are_spelled_out(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    output.write("é\ud800", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == "é\\ud800".encode()
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o600


def test_called_as(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEM0AUDIT_PROGRAM", raising=False)
    program = tmp_path / "bin" / "mem0audit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert output.called_as() == str(program)  # not on the PATH
    monkeypatch.setenv("PATH", str(program.parent))
    assert output.called_as() == "mem0audit"
    monkeypatch.setattr(sys, "argv", ["/x/mem0audit/__main__.py"])
    assert output.called_as() == f"{sys.executable} -m mem0audit"
    monkeypatch.setenv("MEM0AUDIT_PROGRAM", "scripts/mem0audit")
    assert output.called_as() == "scripts/mem0audit"


def test_our_commands_in_advice_name_the_program_and_the_install() -> None:
    flags = ("--history", "/h h.db", "--qdrant-path", "/q")
    ours = Screen(program="scripts/mem0audit", flags=flags).ours
    assert ours("mem0audit show 7") == "scripts/mem0audit show --history '/h h.db' --qdrant-path /q 7"
    assert ours("mem0audit log -n 3") == "scripts/mem0audit log --history '/h h.db' -n 3"
    assert ours("mem0audit explain D301") == "scripts/mem0audit explain D301"
    named = "mem0audit audit --qdrant-path /other"
    assert ours(named) == "scripts/" + named
    assert ours("sudo mem0audit audit --config x") == "sudo scripts/mem0audit audit --config x"
    assert ours("mem0audit users shows them.") == "scripts/mem0audit users shows them."
    assert ours("pip install mem0audit now") == "pip install mem0audit now"
    assert ours("/opt/mem0audit audit") == "/opt/mem0audit audit"


def test_nodes_of_a_cluster_are_named_where_they_are_taken() -> None:
    from typer.main import get_command

    from mem0audit.cli.main import _app

    def takes(command: Any, *words: str) -> bool:
        for word in words:
            command = command.commands[word]
        return any("--node" in option.opts for option in command.params)

    look = Screen(flags=("--qdrant-url", "http://q:6333", "--node", "http://r:6333"))
    whole = get_command(_app([]))
    names = "audit status show users recover repair delete relocate residue prune export as-of new review"
    for name in (*names.split(), "snapshot create", "snapshot restore", "snapshot verify"):
        command = look.command(name)
        assert ("--node" in command) == takes(whole, *name.split()), command
        assert look.ours(f"mem0audit {name} -x").endswith(" -x")
    assert (
        look.ours("mem0audit recover --dry-run") == "mem0audit recover --qdrant-url http://q:6333 --dry-run"
    )
