"""`mem0audit demo`: a real mem0 install with planted faults, and its audit."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.audit import FailOn, show
from mem0audit.cli.options import AgentPythonOption, Format, FormatOption, Named
from mem0audit.cli.output import say


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo")(_demo)


def _demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder, to look around in it.")] = False,
    format_: FormatOption = Format.TEXT,
    agent_python: AgentPythonOption = None,
) -> int:
    """A real mem0 install with planted faults, audited.

    Written by the released mem0ai, offline, into a temporary folder. Exit: 0 when the audit ran.
    """
    from mem0audit.install.host import this_host
    from mem0audit.install.locate import Flags, locate
    from mem0audit.operations.audit import audit
    from mem0audit.operations.demo import build_demo
    from mem0audit.stores.files import scratch_folder
