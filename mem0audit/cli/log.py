"""`mem0audit log`: mem0's change log."""

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
    OutputOption,
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import check_output, screen, write


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("log")(_log)


def _log(
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=0, help="How many of the newest changes.")] = 5,
    format_: FormatOption = Format.TEXT,
    text: Annotated[
        bool, typer.Option("--text", help="With --format json: the old and new texts too.")
    ] = False,
    output: OutputOption = None,
) -> int:
    """mem0's change log: newest changes, counts, schema.

    What people open the sqlite3 shell for: tables (none: the wrong file), the exact schema, the newest
    changes one field a line, counts by event, journal mode. Shows the memories' texts.
    Exit: 0, or 3 where it is no log or could not be read whole.
    """
    # the log alone is read: the rest may stand there as in every command about the install
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    from mem0audit.operations.log import log

    found = log(install, host, count)
    if format_ is Format.JSON:
        from mem0audit.report.json import log_json

        write(log_json(found, text=text), output)
    else:
        from mem0audit.report.pages import log_text

        write(log_text(found, screen(named.words(), to_file=output is not None)), output)
    whole = found.file.file.problem is None and found.problem is None and found.file.schema is not None
    return exits.OK if whole else exits.NOT_READ
