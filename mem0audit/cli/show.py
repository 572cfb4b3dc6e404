"""`mem0audit show`: one memory, in both stores."""

from __future__ import annotations

from typing import Annotated

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
from mem0audit.cli.progress import progress
from mem0audit.core.errors import UsageProblem


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("show")(_show)


def _show(
    memory_id: Annotated[str, typer.Argument(metavar="ID", help="The memory's id.")],
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    format_: FormatOption = Format.TEXT,
    text: Annotated[
        bool, typer.Option("--text", help="With --format json: the memory's text and metadata too.")
    ] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Its changes, each with what it said from then on.")
    ] = False,
    output: OutputOption = None,
) -> int:
    """One memory: point, history, entities, findings.

    Shows the memory's text. Exit: 0, or 3 where neither store has it or something could not be read.
    """
    if not memory_id.strip():
        raise UsageProblem("ID: is empty", "newest changes with their ids: mem0audit log")
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    from mem0audit.operations.show import show

    with progress() as tell:
        found = show(install, host, memory_id, timeline=timeline, progress=tell)
    if format_ is Format.JSON:
        from mem0audit.report.json import show_json

        write(show_json(found, text=text), output)
    else:
        from mem0audit.report.pages import show_text, timeline_text

        show_text = timeline_text if timeline else show_text

        write(show_text(found, screen(named.words(), to_file=output is not None)), output)
    return exits.NOT_READ if any(n.gap for n in found.not_checked) else exits.OK
