"""`mem0audit demo`: a real mem0 install with planted faults, and its audit."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.audit import FailOn, show
from mem0audit.cli.options import AgentPythonOption, Format, FormatOption, Named, QuietOption
from mem0audit.cli.output import say
from mem0audit.core.errors import Failed


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo")(_demo)


def _demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder, to look around in it.")] = False,
    agent_python: AgentPythonOption = None,
    format_: FormatOption = Format.TEXT,
    quiet: QuietOption = False,
) -> int:
    """A real mem0 install with planted faults, audited.

    Written by mem0ai itself, offline, into a temporary folder, and taken away afterwards.
    Exit: 0 when the audit found what was planted, 5 when not.
    """
    from mem0audit.operations.demo import build_demo, demo_interpreter
    from mem0audit.stores.files import kept_folder, scratch_folder

    python = demo_interpreter(agent_python)
    with nullcontext(kept_folder()) if keep else scratch_folder() as folder:
        try:
            built = build_demo(folder, python, None if quiet else say)
        except OSError as problem:
            raise Failed(f"{folder}: {problem.strerror}", "only this folder was written") from None
        if not quiet:
            say("")
            say(f"mem0ai {built.mem0_version} wrote it. Planted:")
            for code, what in built.planted:
                say(f"  {code}  {what}")
            say("")
        named = Named(built.history, built.vectors, agent_python=python)
        missed = {code for code, _ in built.planted} - _audit(named, format_)
    if keep:
        say(f"kept: {folder}")
    elif not quiet:
        say("Its folder is gone again: mem0audit demo --keep leaves it, for the commands above.")
    if missed:
        raise Failed(f"the audit did not find what was planted: {', '.join(sorted(missed))}")
    return exits.OK


def _audit(named: Named, format_: Format) -> set[str]:
    """Audits the demo like any install, prints that, and returns the codes found."""
    from mem0audit.operations.audit import audit

    install, host = named.find()
    report = audit(install, host, ledger=False)
    show(report, named.words(), format_, None, FailOn.MEDIUM)
    return {f.code for f in report.findings}
