"""`mem0audit prune`: memories that have had their time, removed through mem0."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
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
    NodeOption,
    QdrantPathOption,
    QdrantUrlOption,
    QuietOption,
    VerboseOption,
)
from mem0audit.cli.output import say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.cli.repair import ask, snapshot_folder
from mem0audit.core.errors import Refused, UsageProblem

OlderThanOption = Annotated[
    str | None,
    typer.Option("--older-than", metavar="30d", help="Only what expired at least so long ago."),
]
UnusedOption = Annotated[
    bool, typer.Option("--unused", help="Also what was neither added nor used for six months.")
]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("prune")(_prune)


def _prune(
    older_than: OlderThanOption = None,
    unused: UnusedOption = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="Where the snapshot goes.  [default: snapshot_dir]"),
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    node: NodeOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    due: Annotated[
        bool,
        typer.Option("--due", help="Only whether something is to go: ends with 0, or 1 where nothing is."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Removes expired and superseded memories, agent stopped.

    Expired: mem0 only hides a memory whose expiration_date is before today in UTC; or its time in the ledger has come.
    Superseded, by the ledger, and added more than 180 days ago. Each is deleted by id through the agent's own mem0, an
    outdated one before what replaced it, with what the entities link of it; the log keeps its rows, and their text. A
    snapshot of both stores is taken first. Then both are read again: no other row changed. Cut off, the same command
    goes on. While the agent runs, what is to go is listed, and nothing changed (exit 4); `schedule prune --stop-unit`
    stops it, prunes and starts it again, and mem0audit.prune(memory) does it inside the agent.
    Exit: 0 done or nothing to do, 1 something is left to decide, 2 usage, 3 not read, 4 refused, 5 failed.
    """
    if due and (dry_run or yes):
        raise UsageProblem("--due: changes nothing, and goes with neither --dry-run nor --yes")
    seconds = length_of(older_than)
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env, node)
    install, host = named.find()
    from mem0audit.operations.prune import apply_prune, plan_prune
    from mem0audit.report import prune as report

    if not (dry_run or due):
        from mem0audit.cli.overdue import clear_overdue
        from mem0audit.install.config import load_settings

        clear_overdue(install, host, load_settings(host))
    look = screen(named.words(), verbose=verbose)
    flags = (
        *(("--older-than", older_than) if older_than is not None else ()),
        *(("--unused",) if unused else ()),
        *(("--to", to) if to is not None else ()),
    )
    as_json = format_ is Format.JSON
    with progress() as tell:
        plan = plan_prune(
            install,
            host,
            older_than_s=seconds,
            unused=unused,
            folder=snapshot_folder(to, host),
            progress=tell,
        )
    if dry_run:
        write(
            report.prune_plan_json(plan)
            if as_json
            else report.prune_plan_text(plan, look, to_do_it=True, flags=flags)
        )
        return exits.OK
    if due:
        if plan.todo.steps and plan.blocked is not None and not plan.in_use:
            raise Refused(*plan.blocked)
        if not quiet:
            write(
                report.prune_plan_json(plan) if as_json else report.prune_plan_text(plan, look, blocked=False)
            )
        return exits.OK if plan.todo.steps else exits.FINDINGS
    if plan.todo.steps:
        if plan.blocked is not None:
            write(
                report.prune_plan_json(plan) if as_json else report.prune_plan_text(plan, look, blocked=False)
            )
            raise Refused(*plan.blocked)
        if not yes:
            for line in report.prune_plan_text(plan, look).splitlines():
                say(line)
            ask()
    with progress() as tell, ended_gently():
        done = apply_prune(plan, host, progress=tell)
    code = exits.FINDINGS if done.changed.remaining or plan.todo.left else exits.OK
    if not quiet or code != exits.OK:
        write(report.pruned_json(done) if as_json else report.pruned_text(done, look))
    return code


@contextmanager
def ended_gently() -> Iterator[None]:
    """A SIGTERM within ends the program as an interrupt does: mem0, in a process of its own, finishes what it is at and
    closes the stores before this one is gone. So a job that stopped the agent may start it again at once."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def length_of(text: str | None) -> float:
    """Seconds of --older-than; 0 where it is not given. Raises UsageProblem."""
    if text is None:
        return 0.0
    from mem0audit.core.retention import length

    try:
        return length(text)
    except ValueError:
        raise UsageProblem(
            "--older-than: no length of time", "a number and h, d or w, as in 30d, 8w"
        ) from None
