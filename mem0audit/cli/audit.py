"""`mem0audit audit`: both stores side by side."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.options import (
    AgentPythonOption,
    CollectionOption,
    ConfigOption,
    Format,
    FormatOption,
    HistoryOption,
    Named,
    NoLedgerOption,
    OutputOption,
    QdrantPathOption,
    QdrantUrlOption,
    QuietOption,
    VerboseOption,
    complete_code,
    selectors,
)
from mem0audit.cli.output import check_output, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import UsageProblem
from mem0audit.core.model import Report, Severity


class FailOn(str, Enum):
    """From which severity on a finding makes the exit code 1."""

    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"
    NEVER = "never"

    @property
    def severity(self) -> Severity | None:
        """None for never."""
        return None if self is FailOn.NEVER else Severity[self.name]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("audit")(_audit)


def _audit(
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
    fail_on: Annotated[
        FailOn | None, typer.Option("--fail-on", help="Exit 1 from this severity on.  [default: medium]")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="CODES",
            help="Only these rules: codes, or beginnings of them (D, I20), with commas or repeated.",
            autocompletion=complete_code,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="CODES", help="Not these rules.", autocompletion=complete_code),
    ] = None,
    seal: Annotated[
        bool,
        typer.Option("--seal", help="Seal what was found, if nothing since the last seal is unexplained."),
    ] = False,
    accept: Annotated[
        str | None,
        typer.Option(
            "--accept", metavar="REASON", help="With --seal: let what is unexplained stand, and why."
        ),
    ] = None,
    no_ledger: NoLedgerOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Both stores side by side: what is wrong, why, what to do.

    Reads both with the agent running, and changes nothing.
    Exit: 0 clean, 1 findings at or above --fail-on, 2 usage, 3 something could not be read, 4 not sealed.
    """
    if accept is not None and (not seal or not accept.strip()):
        raise UsageProblem("--accept: goes with --seal, and names a reason")
    if seal and no_ledger:
        raise UsageProblem("--seal and --no-ledger: a seal is kept in the ledger")
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python)
    wanted, unwanted = selectors(select, "--select"), selectors(ignore, "--ignore")
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    from mem0audit.install.config import load_settings
    from mem0audit.operations.audit import audit
    from mem0audit.operations.known import known_snapshots
    from mem0audit.operations.ledger import snapshot_folders

    settings = load_settings(host)
    wanted = wanted or selectors(list(settings.select), f"{settings.file}: select")
    unwanted = unwanted or selectors(list(settings.ignore), f"{settings.file}: ignore")
    limit = fail_on or (FailOn(settings.fail_on) if settings.fail_on else FailOn.MEDIUM)
    with progress(quiet=quiet) as tell:
        folders = [settings.snapshot_dir] if settings.snapshot_dir else []
        folders += snapshot_folders(install, host, ledger=not no_ledger)
        known = known_snapshots(install, folders, host.now)
        report = audit(
            install,
            host,
            select=wanted,
            ignore=unwanted,
            snapshots=known,
            progress=tell,
            ledger=not no_ledger,
            seal=seal,
            accept=accept,
        )
    show(report, named, format_, output, limit, quiet=quiet, verbose=verbose)
    return exit_code(report, limit)


def exit_code(report: Report, fail_on: FailOn) -> int:
    """The code an audit ends with."""
    from mem0audit.report.seal import says_something
    from mem0audit.report.text import nothing_found

    of_audit = exits.of_audit(
        report.findings, report.not_checked, fail_on.severity, nothing_found=nothing_found(report)
    )
    return exits.first_of([of_audit, exits.REFUSED if says_something(report.seal) else exits.OK])


def show(
    report: Report,
    named: Named,
    format_: Format,
    output: str | None,
    fail_on: FailOn,
    *,
    quiet: bool = False,
    verbose: bool = False,
) -> None:
    """Writes an audit in the format asked for."""
    if format_ is Format.JSON:
        from mem0audit.report.json import audit_json

        write(audit_json(report, exit_code(report, fail_on)), output)
        return
    from mem0audit.report.text import audit_text

    where = screen(named.words(), verbose=verbose, quiet=quiet, to_file=output is not None)
    write(audit_text(report, where), output)
