"""`mem0audit audit`: both stores side by side."""

from __future__ import annotations

from enum import Enum
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
    QuietOption,
    VerboseOption,
    complete_code,
    selectors,
)
from mem0audit.cli.output import check_output, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import UsageProblem
from mem0audit.core.model import Report, Severity

if TYPE_CHECKING:
    from mem0audit.install.host import Host


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
    api_key_env: ApiKeyEnvOption = None,
    node: NodeOption = None,
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
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            metavar="DIR|NAME",
            help="Not the install, but a snapshot of it, or a backup made with cp, rsync or tar.",
        ),
    ] = None,
    memory_db: Annotated[
        str | None,
        typer.Option(
            "--memory-db",
            metavar="FILE",
            help="Not mem0's stores, but a plain SQLite file of facts (see config/memory.sql).",
        ),
    ] = None,
    vectors: Annotated[
        bool,
        typer.Option("--vectors", help="Of a server too: the vectors (missing, zeros, NaN, dimensions)."),
    ] = False,
    consistent: Annotated[
        bool,
        typer.Option(
            "--consistent",
            help="Of a server each collection as of one instant, by a snapshot that it takes: needs "
            "mem0audit[edge] and a key that may manage.",
        ),
    ] = False,
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
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env, node)
    wanted, unwanted = selectors(select, "--select"), selectors(ignore, "--ignore")
    check_output(output)
    if memory_db is not None:
        given = [*named.words(), *(["--snapshot"] if snapshot else []), *(["--seal"] if seal else [])]
        given += ["--select"] * bool(select) + ["--ignore"] * bool(ignore)
        given += ["--vectors"] * vectors + ["--consistent"] * consistent
        if given:
            raise UsageProblem(
                f"{given[0]} and --memory-db: one of them", "--memory-db audits that file alone"
            )
        return _audit_fact_file(
            memory_db, format_, output, fail_on or FailOn.MEDIUM, quiet=quiet, verbose=verbose
        )
    if snapshot is None:
        install, host = named.find()
        check_output(output, install)
    else:
        _only_halves(named)
        from mem0audit.install.host import this_host

        host = this_host()
    from mem0audit.install.config import load_settings

    settings = load_settings(host)
    wanted = wanted or selectors(list(settings.select), f"{settings.file}: select")
    unwanted = unwanted or selectors(list(settings.ignore), f"{settings.file}: ignore")
    limit = fail_on or (FailOn(settings.fail_on) if settings.fail_on else FailOn.MEDIUM)
    if snapshot is not None:
        return _audit_snapshot(
            snapshot, named, host, wanted, unwanted, format_, output, limit, quiet=quiet, verbose=verbose
        )
    from mem0audit.cli.overdue import clear_overdue
    from mem0audit.core.server import ServerRead
    from mem0audit.operations.audit import audit
    from mem0audit.operations.interrupted import interrupted
    from mem0audit.operations.known import known_snapshots
    from mem0audit.operations.leftmoves import left_moves

    with progress(quiet=quiet) as tell:
        if not no_ledger:
            clear_overdue(install, host, settings)
        known = known_snapshots(install, host, settings, ledger=not no_ledger)
        report = audit(
            install,
            host,
            select=wanted,
            ignore=unwanted,
            snapshots=known,
            interrupted=interrupted(install, host),
            left_moves=left_moves(install, host, ledger=not no_ledger),
            progress=tell,
            ledger=not no_ledger,
            seal=seal,
            accept=accept,
            how=ServerRead(vectors=vectors, instant=consistent),
        )
    show(report, named.words(), format_, output, limit, quiet=quiet, verbose=verbose)
    return exit_code(report, limit)


def _audit_fact_file(
    path: str, format_: Format, output: str | None, fail_on: FailOn, *, quiet: bool, verbose: bool
) -> int:
    from mem0audit.install.host import this_host
    from mem0audit.operations.factfile import audit_fact_file
    from mem0audit.report.factfile import fact_file_json, fact_file_text

    report = audit_fact_file(path, this_host())
    code = exits.of_audit(report.findings, report.not_checked, fail_on.severity, nothing_found=False)
    if format_ is Format.JSON:
        write(fact_file_json(report, code), output)
    else:
        where = screen(("--memory-db", path), verbose=verbose, quiet=quiet, to_file=output is not None)
        write(fact_file_text(report, where), output)
    return code


def _only_halves(named: Named) -> None:
    """Of the flags that name an install, a copy takes those that name its halves."""
    given = {
        "--qdrant-url": named.qdrant_url,
        "--api-key-env": named.api_key_env,
        "--config": named.config,
        "--agent-python": named.agent_python,
        "--node": named.nodes[0] if named.nodes else None,
    }
    for flag, value in given.items():
        if value is not None:
            raise UsageProblem(
                f"{flag} and --snapshot: one of them", "--snapshot audits a copy, not the install"
            )


def _audit_snapshot(
    name: str,
    named: Named,
    host: Host,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    format_: Format,
    output: str | None,
    fail_on: FailOn,
    *,
    quiet: bool,
    verbose: bool,
) -> int:
    from mem0audit.cli.snapshot import folder_of
    from mem0audit.operations.backup import install_of
    from mem0audit.operations.copyaudit import audit_snapshot, find_copy

    copy = find_copy(
        folder_of(name, None, host, "its path, DIR/NAME"), name, host, named.history, named.qdrant_path
    )
    check_output(output, install_of(copy.halves))
    with progress(quiet=quiet) as tell:
        report = audit_snapshot(
            copy, host, collection=named.collection, select=select, ignore=ignore, progress=tell
        )
    words = ("--snapshot", name, *named.words())
    show(report, words, format_, output, fail_on, quiet=quiet, verbose=verbose)
    return exit_code(report, fail_on)


def exit_code(report: Report, fail_on: FailOn) -> int:
    """The code an audit ends with."""
    of_audit = exits.of_audit(
        report.findings, report.not_checked, fail_on.severity, nothing_found=report.nothing_found
    )
    refused = report.seal is not None and report.seal.refused
    return exits.first_of([of_audit, exits.REFUSED if refused else exits.OK])


def show(
    report: Report,
    words: tuple[str, ...],
    format_: Format,
    output: str | None,
    fail_on: FailOn,
    *,
    quiet: bool = False,
    verbose: bool = False,
) -> None:
    """Writes an audit in the format asked for; `words` are the flags that named what was audited."""
    if format_ is Format.JSON:
        from mem0audit.report.json import audit_json

        write(audit_json(report, exit_code(report, fail_on)), output)
        return
    from mem0audit.report.text import audit_text

    where = screen(words, verbose=verbose, quiet=quiet, to_file=output is not None)
    write(audit_text(report, where), output)
