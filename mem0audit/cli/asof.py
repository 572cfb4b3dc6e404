"""`mem0audit as-of`: what was remembered at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from mem0audit.cli import exits
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
    VerboseOption,
)
from mem0audit.cli.output import check_output, screen, write
from mem0audit.cli.progress import progress
from mem0audit.cli.residue import AgentOption, RunOption, UserOption
from mem0audit.core.errors import UsageProblem


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("as-of")(_as_of)


def past_moment(text: str, now: float, *, end: bool = True) -> float:
    """A time that a user gave, not later than `now`: the last moment of what is named, or the first. Raises
    UsageProblem."""
    from mem0audit.core.given import FORMS, moment

    try:
        begins, ends = moment(text, now, end=False), moment(text, now, end=True)
    except ValueError:
        raise UsageProblem(f"{text}: no time", f"give {FORMS}") from None
    if begins > now:
        raise UsageProblem(f"{text}: is in the future")
    return min(ends, now) if end else begins


def _as_of(
    date: Annotated[
        str, typer.Argument(metavar="DATE", help="2026-10-14, 2026-10-14T09:12, 7d (ago), or now.")
    ],
    user: UserOption = None,
    agent: AgentOption = None,
    run: RunOption = None,
    diff: Annotated[
        str | None,
        typer.Option("--diff", metavar="DATE2", help="What is different at this time."),
    ] = None,
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
    verbose: VerboseOption = False,
) -> int:
    """What was remembered at a date, from mem0's own log.

    Times are UTC unless they name an offset (+02:00). A date means its end, a time to the minute or the second the end
    of that. Whose a memory was is known from the store, the ledger or a snapshot, as last seen there. What the log
    cannot tell is said and listed apart: rows without a time (deletions by mem0 1.0.7 and older), a created_at that a
    caller gave, a log that was reset. Shows the memories' texts; changes nothing.
    Exit: 0, 2 usage, 3 the log, or something else that was asked for, could not be read.
    """
    from mem0audit.core.scopes import scope_of

    scope = scope_of(user, agent, run)
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    at = past_moment(date, host.now)
    until = None if diff is None else past_moment(diff, host.now)
    from mem0audit.install.config import load_settings
    from mem0audit.operations.asof import as_of, as_of_diff, read_past
    from mem0audit.report import asof as report

    machine = format_ is Format.JSON
    where = screen(named.words(), verbose=verbose, to_file=output is not None)
    with progress() as tell:
        past = read_past(install, host, load_settings(host), ledger=not no_ledger, progress=tell)
        if until is not None:
            compared = as_of_diff(past, host, at, until, scope, texts=text if machine else True)
            said = report.diff_json(compared, scope) if machine else report.diff_text(compared, scope, where)
        else:
            texts = (None if text else 0) if machine else None if verbose else report.SHOWN
            found = as_of(past, host, at, scope, texts=texts)
            said = (
                report.as_of_json(found, scope, text=text)
                if machine
                else report.as_of_text(found, scope, where)
            )
    write(said, output)
    return exits.NOT_READ if any(one.gap for one in past.not_read) else exits.OK
