"""`mem0audit repair`: what is safe to do about findings, as a plan, and done through mem0 where it is asked for."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

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
    VerboseOption,
    complete_code,
    did_you_mean,
)
from mem0audit.cli.output import is_terminal, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import Refused, UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.repair import Wanted
    from mem0audit.install.host import Host

_ID = re.compile(r"[0-9]+|[0-9A-Fa-f]{8}-?(?:[0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("repair")(_repair)


def _repair(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE|ID…]", help="Rules, or single memories and entities.", autocompletion=complete_code
        ),
    ] = None,
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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    verbose: VerboseOption = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """What is safe to do about findings; done for those you name.

    Deletes what came back (D301), copies (C601) and what expired (T701), clears entities (E501, E502), renews hashes
    (D305): through the agent's own mem0, agent stopped, after a snapshot. Then both stores are read again: the finding
    is gone, and no other row changed. Without CODE or ID the plan of everything, and nothing is done. Cut off, the
    same command goes on.
    Exit: 0 done or nothing to do, 1 something asked for is left to decide, 2 usage, 3 not read, 4 refused, 5 failed.
    """
    wanted = _wanted(what or [])
    if yes and not wanted:
        raise UsageProblem(
            "--yes: name what is to be repaired", "a rule or an id; all that is found: mem0audit repair"
        )
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env, node)
    install, host = named.find()
    from mem0audit.operations.repair import apply_repair, plan_repair
    from mem0audit.report import repair as report

    look = screen(named.words(), verbose=verbose)
    flags = ("--to", to) if to is not None else ()
    as_json = format_ is Format.JSON
    with progress() as tell:
        plan = plan_repair(install, host, wanted, folder=snapshot_folder(to, host), progress=tell)
    if dry_run or not wanted:
        write(
            report.repair_plan_json(plan)
            if as_json
            else report.repair_plan_text(plan, look, to_do_it=True, flags=flags)
        )
        return exits.OK
    if plan.todo.steps:
        if plan.blocked is not None:
            raise Refused(*plan.blocked)
        if not yes:
            for line in report.repair_plan_text(plan, look).splitlines():
                say(line)
            ask()
    with progress() as tell:
        done = apply_repair(plan, host, progress=tell)
    write(report.repaired_json(done) if as_json else report.repaired_text(done, look))
    return exits.FINDINGS if done.changed.remaining or plan.todo.left else exits.OK


def _wanted(words: list[str]) -> Wanted:
    """What was named. Raises UsageProblem for a word that is neither a rule that can be repaired nor an id."""
    from mem0audit.core.catalogue import find
    from mem0audit.core.repair import EXPLAINED, REPAIRED, Wanted

    codes: set[str] = set()
    ids: set[str] = set()
    for word in (part.strip() for given in words for part in given.split(",")):
        rules = [] if _ID.fullmatch(word) or not word else list(find(word))
        known = {rule.code for rule in rules} & {*REPAIRED, *EXPLAINED}
        if known:
            codes |= known
        elif rules:
            raise UsageProblem(
                f"{word}: is not repaired by this command", f"what to do: mem0audit explain {rules[0].code}"
            )
        elif _ID.fullmatch(word):
            ids.add(word if word.isdigit() else str(UUID(word)))
        else:
            raise UsageProblem(f"{word or 'an empty word'}: neither a rule nor an id", did_you_mean(word))
    return Wanted(frozenset(codes), frozenset(ids))


def snapshot_folder(to: str | None, host: Host) -> str | None:
    """The folder for the snapshot; None where none is named."""
    if to is None:
        from mem0audit.install.config import load_settings

        to = load_settings(host).snapshot_dir
        if to is None:
            return None
    if not to or "\0" in to:
        raise UsageProblem("--to: not a path")
    return os.path.normpath(os.path.join(host.cwd, to))  # noqa: PTH118


def ask() -> None:
    """Asks on a terminal. Raises Refused where there is none, or at any answer but yes."""
    if not is_terminal(sys.stdin):
        raise Refused("not confirmed: nothing was changed", "add --yes, or run it on a terminal, which asks")
    if not typer.confirm("Do it?", err=True):
        raise Refused("not confirmed: nothing was changed")
