"""`mem0audit users`: who memories belong to."""

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
    OutputOption,
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import check_output, screen, write


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("users")(_users)


def _users(
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """Users, agents and runs with their counts of memories.

    Owners that mem0 itself cannot reach are marked. Exit: 0, or 3 where something could not be read.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    from mem0audit.operations.users import users

    found = users(install, host)
    if format_ is Format.JSON:
        from mem0audit.report.json import users_json

        write(users_json(found), output)
    else:
        from mem0audit.report.pages import users_text

        write(users_text(found, screen(named.words(), to_file=output is not None)), output)
    return exits.NOT_READ if any(n.gap for n in found.not_checked) else exits.OK
