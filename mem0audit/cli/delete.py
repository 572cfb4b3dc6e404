"""`mem0audit delete`: a user's, agent's or run's memories, or single ones, deleted through mem0."""

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
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import check_output, is_terminal, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import Refused, UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.erase import Erased, ShortLived
    from mem0audit.install.host import Host


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("delete")(delete)


def delete(
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="Whose memories: a user.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="ID", help="An agent's.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="A run's.")] = None,
    memory: Annotated[
        list[str] | None, typer.Option("--memory", metavar="ID", help="Single memories (again for more).")
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    node: NodeOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    only_this_store: Annotated[
        bool, typer.Option("--only-this-store", help="Although other stores have memories of it too.")
    ] = False,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Then empty the texts that mem0 leaves in the log and the messages."),
    ] = False,
    snapshot_for: Annotated[
        str | None,
        typer.Option(
            "--snapshot-for", metavar="24h", help="Take a snapshot first, which goes after so long."
        ),
    ] = None,
    receipt: Annotated[
        str | None,
        typer.Option("--receipt", metavar="FILE", help="Write a receipt there (JSON, no text, no ids)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Deletes memories through the agent's own mem0, agent stopped.

    By id, and then what the entities link of them. --user, --agent and --run together mean memories that have all of
    them, as in mem0. Needs no key, no model and no network. The log keeps its rows, and their text: --redact empties it
    in the file, and the scope's chat messages; no row goes. Cut off at any moment, the same command finishes it;
    without whose, it finishes what was cut off.
    Then everything is read again, and what is still readable is said place by place, as `residue` does.
    Exit: 0 done and nothing found, 1 done and something is still readable, 2 usage, 3 nothing of it here, or done and
    not everything could be searched, 4 refused, 5 failed (run it again).
    """
    from mem0audit.core.scopes import scope_of

    scope = scope_of(user, agent, run)
    memories = tuple(memory or ())
    if scope is not None and memories:
        raise UsageProblem(
            "--memory: names memories by themselves; leave --user, --agent and --run out, or it"
        )
    if any(not one.strip() or one.strip() == "*" for one in memories):
        raise UsageProblem("--memory: is no id")
    check_output(receipt, flag="--receipt")
    seconds = _length(snapshot_for)
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env, node)
    install, host = named.find()
    check_output(receipt, install, "--receipt")
    from mem0audit.install.config import load_settings
    from mem0audit.operations.erase import apply_erase, plan_erase
    from mem0audit.report import erase as report

    settings = load_settings(host)
    snapshot = None if seconds is None else _short_lived(seconds, host)
    if not dry_run:
        from mem0audit.cli.overdue import clear_overdue

        clear_overdue(install, host, settings)
    as_json = format_ is Format.JSON
    with progress() as tell:
        plan = plan_erase(
            install, host, scope=scope, memory_ids=memories,
            only_this_store=only_this_store, redact=redact, snapshot=snapshot, settings=settings, progress=tell,
        )  # fmt: skip
    flags = (
        *(("--only-this-store",) if only_this_store else ()),
        *(("--redact",) if redact else ()),
        *(("--snapshot-for", snapshot_for) if snapshot_for is not None else ()),
    )
    if dry_run:
        write(
            report.erase_plan_json(plan)
            if as_json
            else report.erase_plan_text(plan, screen(named.words()), to_do_it=True, flags=flags)
        )
        return exits.OK
    if not yes:
        for line in report.erase_plan_text(plan, screen(named.words())).splitlines():
            say(line)
        _confirm(report.word_to_type(plan))
    from mem0audit.report.residue import residue_json, residue_text

    look = screen(named.words())

    def deleted(done: Erased) -> None:
        if not as_json:
            write(report.erased_text(done, look))

    with progress() as tell:
        done = apply_erase(
            plan, host, settings=settings, receipt=receipt, search=True, deleted=deleted, progress=tell
        )
    found = done.after
    assert found is not None
    code = exits.FINDINGS if found.remains or _text_is_left(done) else exits.OK
    if code == exits.OK and not done.erased:
        code = exits.NOT_READ
    if as_json:
        write(report.erased_json(done, residue_json(found, code)))
    else:
        left = (residue_text(found, look), report.verdict_text(done, look, receipt))
        write(report.emptied_text(done, look) + "\n" + "\n".join(filter(None, left)))
    return code


def _length(text: str | None) -> float | None:
    """Seconds of the length of time that is asked for. Raises UsageProblem."""
    if text is None:
        return None
    from mem0audit.core.retention import length

    try:
        return length(text)
    except ValueError:
        raise UsageProblem(
            "--snapshot-for: no length of time", "a number and h, d or w, as in 24h, 3d, 1w"
        ) from None


def _short_lived(seconds: float, host: Host) -> ShortLived:
    from mem0audit.cli.snapshot import folder_of
    from mem0audit.core.erase import ShortLived

    try:
        folder = folder_of(None, None, host)
    except UsageProblem:
        raise UsageProblem(
            "--snapshot-for: no folder for snapshots is named", "name one as snapshot_dir in mem0audit.toml"
        ) from None
    assert folder is not None
    return ShortLived(folder, seconds)


def _text_is_left(done: Erased) -> bool:
    """Whether it is known that something of it can still be read, or not known that nothing can."""
    left = done.left
    return bool(
        left.history_rows is None
        or left.history_rows
        or left.messages is None
        or left.messages
        or done.snapshots
    )


def _confirm(word: str) -> None:
    """Has the id typed on a terminal. Raises Refused where there is none, or at anything else."""
    if not is_terminal(sys.stdin):
        raise Refused("not confirmed: nothing was changed", "add --yes, or run it on a terminal, which asks")
    from mem0audit.report.escape import escape

    typed = typer.prompt(
        f"Type {escape(word)} to go on", prompt_suffix=": ", err=True, default="", show_default=False
    )
    if typed.strip() != word.strip():
        raise Refused("not confirmed: nothing was changed")
