"""`mem0audit status`: what an install is and stands on."""

from __future__ import annotations

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
    NoLedgerOption,
    OutputOption,
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import check_output, screen, write


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("status")(_status)


def _status(
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    no_ledger: NoLedgerOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """Every place this install writes, and what it stands on.

    Where it is and what decided that, its size, who has it open, whose mem0 it is, and the other stores
    on this machine. Opens no store, and asks a server what it has. Exit: 0, or 3 where neither store is there or one
    cannot be looked at.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    from mem0audit.install.config import load_settings
    from mem0audit.operations.status import status

    found = status(install, host, ledger=not no_ledger, settings=load_settings(host))
    if format_ is Format.JSON:
        from mem0audit.report.json import status_json

        write(status_json(found), output)
    else:
        from mem0audit.report.pages import status_text

        write(status_text(found, screen(named.words(), to_file=output is not None)), output)
    stores = [s.place for s in found.places if s.role in ("history", "vectors")]
    missing = found.server is None and not any(place.exists for place in stores)
    return exits.NOT_READ if missing or any(n.gap for n in found.not_checked) else exits.OK
