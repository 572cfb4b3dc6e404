"""`mem0audit residue` and `mem0audit export`: what is still readable of somebody, and all that is held of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.options import (
    AgentPythonOption,
    ApiKeyEnvOption,
    CollectionOption,
    ConfigOption,
    Format,
    FormatOption,
    HistoryOption,
    Named,
    NodeOption,
    NoLedgerOption,
    OutputOption,
    QdrantPathOption,
    QdrantUrlOption,
    VerboseOption,
)
from mem0audit.cli.output import check_output, is_terminal, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import Refused, UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.install.host import Host

UserOption = Annotated[str | None, typer.Option("--user", metavar="ID", help="Of this user.")]
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="ID", help="Of this agent.")]
RunOption = Annotated[str | None, typer.Option("--run", metavar="ID", help="Of this run.")]
MemoryOption = Annotated[
    list[str] | None, typer.Option("--memory", metavar="ID", help="This memory; more than once for more.")
]


def register(app: typer.Typer) -> None:
    """Adds both commands."""
    app.command("residue")(_residue)
    app.command("export")(_export)


def _residue(
    user: UserOption = None,
    agent: AgentOption = None,
    run: RunOption = None,
    memory: MemoryOption = None,
    clear_free_pages: Annotated[
        bool,
        typer.Option("--clear-free-pages", help="Overwrite what was deleted in the files, agent stopped."),
    ] = False,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    node: NodeOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    no_ledger: NoLedgerOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --clear-free-pages: say what it would do.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --clear-free-pages: do not ask.")] = False,
    verbose: VerboseOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """What is still readable of somebody, place by place.

    In rows, in the bytes of every file, in copies.

    Looks only, beside a running agent, and prints no text. --clear-free-pages rebuilds the databases instead.
    Exit: 0 nothing found, 1 something is still readable, 3 nothing found but not everything could be searched,
    4 refused (in use).
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env, node)
    check_output(output)
    if clear_free_pages:
        if any((user, agent, run, memory)):
            raise UsageProblem("--clear-free-pages: clears whole files, of everybody", "leave out whose")
        install, host = named.find()
        check_output(output, install)
        return _clear(install, host, named.words(), dry_run=dry_run, yes=yes, format_=format_, output=output)
    from mem0audit.core.scopes import scope_of

    scope = scope_of(user, agent, run)
    install, host = named.find()
    check_output(output, install)
    from mem0audit.install.config import load_settings
    from mem0audit.operations.residue import residue
    from mem0audit.report.residue import residue_json, residue_text

    settings = load_settings(host)
    if not no_ledger:
        from mem0audit.cli.overdue import clear_overdue

        clear_overdue(install, host, settings)
    with progress() as tell:
        found = residue(
            install, host, scope=scope, memory_ids=tuple(memory or ()),
            settings=settings, ledger=not no_ledger, progress=tell,
        )  # fmt: skip
    code = exits.FINDINGS if found.remains else exits.NOT_READ if found.incomplete else exits.OK
    if format_ is Format.JSON:
        write(residue_json(found, code), output)
    else:
        look = screen(named.words(), verbose=verbose, to_file=output is not None)
        write(residue_text(found, look), output)
    return code


def _clear(
    install: Install,
    host: Host,
    words: tuple[str, ...],
    *,
    dry_run: bool,
    yes: bool,
    format_: Format,
    output: str | None,
) -> int:
    from mem0audit.operations.redact import apply_clearing, plan_clearing
    from mem0audit.report import residue as report

    plan = plan_clearing(install, host)
    as_json, look = format_ is Format.JSON, screen(words, to_file=output is not None)
    if dry_run:
        write(report.cleared_json(plan, None) if as_json else report.clear_plan_text(plan, look), output)
        return exits.OK
    if not yes:
        for line in report.clear_plan_text(plan, screen(words)).splitlines():
            say(line)
        if not is_terminal(sys.stdin):
            raise Refused(
                "not confirmed: nothing was changed", "add --yes, or run it on a terminal, which asks"
            )
        if not typer.confirm("Rebuild them?", err=True):
            raise Refused("not confirmed: nothing was changed")
    with progress() as tell:
        done = apply_clearing(plan, host, progress=tell)
    write(report.cleared_json(plan, done) if as_json else report.cleared_text(done, look), output)
    return exits.OK


def _export(
    user: UserOption = None,
    agent: AgentOption = None,
    run: RunOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    no_ledger: NoLedgerOption = False,
    output: OutputOption = None,
) -> int:
    """Everything that is held of somebody, as JSON lines.

    For an access request.

    With their texts. Looks only, beside a running agent. Exit: 0, also where nothing of them is held (it says so), or 3
    where something could not be read.
    """
    from mem0audit.core.scopes import scope_of

    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    check_output(output)
    scope = scope_of(user, agent, run)
    if scope is None:
        raise UsageProblem("whose? --user, --agent or --run (also together)")
    install, host = named.find()
    check_output(output, install)
    from mem0audit.operations.export import export, remember
    from mem0audit.report.export import export_lines

    with progress() as tell:
        found = export(install, host, scope, ledger=not no_ledger, progress=tell)
    write(export_lines(found), output)
    if output is not None:
        said = f"{output}: {found.summary}"
        problem = remember(install, host, output) if not no_ledger else None
        say(said if problem is None else f"{said}; a later `residue` does not know of this file ({problem})")
    if found.is_empty:
        say(f"nothing of {scope.shown} is held in what was read; whose there is: mem0audit users")
    for gap in found.not_read:
        say(f"not read: {gap.what}: {gap.why}")
    return exits.NOT_READ if any(gap.gap for gap in found.not_read) else exits.OK
