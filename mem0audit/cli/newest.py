"""`mem0audit new`: what was remembered since a time."""

from __future__ import annotations

from typing import Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.asof import past_moment
from mem0audit.cli.options import (
    ApiKeyEnvOption,
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
    QuietIfNoneOption,
    VerboseOption,
)
from mem0audit.cli.output import check_output, screen, write
from mem0audit.cli.progress import progress
from mem0audit.cli.residue import AgentOption, RunOption, UserOption


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("new")(_new)


def _new(
    since: Annotated[
        str, typer.Option("--since", metavar="DATE", help="12h, 7d (ago), 2026-10-14 (its start, UTC).")
    ] = "1d",
    user: UserOption = None,
    agent: AgentOption = None,
    run: RunOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    no_ledger: NoLedgerOption = False,
    format_: FormatOption = Format.TEXT,
    text: Annotated[
        bool, typer.Option("--text", help="With --format json: the memories' texts too.")
    ] = False,
    output: OutputOption = None,
    quiet: QuietIfNoneOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Memories added since a date, and where they came from.

    Where from: the source that the ledger has, else who mem0 says said it (role, actor, attributed to), else unknown.
    Shows the memories' texts; changes nothing. Every morning by mail: mem0audit schedule new.
    Exit: 0, 2 usage, 3 something could not be read.
    """
    from mem0audit.core.scopes import scope_of

    scope = scope_of(user, agent, run)
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    begins = past_moment(since, host.now, end=False)
    from mem0audit.operations.newest import new
    from mem0audit.report.newest import new_json, new_text

    with progress(quiet=quiet) as tell:
        found = new(install, host, begins, scope, ledger=not no_ledger, progress=tell)
    if format_ is Format.JSON:
        write(new_json(found, text=text), output)
    else:
        where = screen(named.words(), verbose=verbose, quiet=quiet, to_file=output is not None)
        write(new_text(found, where), output)
    return exits.NOT_READ if any(one.gap for one in found.not_read) else exits.OK
