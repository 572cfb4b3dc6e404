"""`mem0audit recover`: memories that the log still has and the store lost; rows of a log that were stranded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.options import (
    AgentPythonOption,
    CollectionOption,
    ConfigOption,
    Format,
    FormatOption,
    HistoryOption,
    Named,
    NoLedgerOption,
    QdrantPathOption,
    QdrantUrlOption,
    VerboseOption,
)
from mem0audit.cli.output import check_output, confirm, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.install.host import Host
    from mem0audit.operations.recover import Wanted


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("recover")(_recover)


def _recover(
    memory: Annotated[
        list[str] | None,
        typer.Option(
            "--memory",
            metavar="ID",
            help="Only this one (again for more), also one that was deleted or overwritten.",
        ),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="NAME", help="With --memory: its text as this one has it."),
    ] = None,
    assign_user: Annotated[
        str | None, typer.Option("--assign-user", metavar="U", help="Whose those are that nobody knows.")
    ] = None,
    skip_unknown: Annotated[
        bool,
        typer.Option("--skip-unknown", help="Leave those out without a word that nobody knows the owner of."),
    ] = False,
    doubtful: Annotated[
        bool,
        typer.Option("--doubtful", help="Those too that may have been deleted, or be another program's."),
    ] = False,
    stranded_log: Annotated[
        bool, typer.Option("--stranded-log", help="Put rows back that an interrupted migration left (I205).")
    ] = False,
    export: Annotated[
        str | None,
        typer.Option(
            "--export", metavar="FILE", help="Only write them there (0600), as JSON lines with texts."
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="DIR", help="The folder of the snapshots.  [default: snapshot_dir]"),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="With --stranded-log: where the snapshot goes.  [default: snapshot_dir]",
        ),
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    no_ledger: NoLedgerOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format_: FormatOption = Format.TEXT,
    verbose: VerboseOption = False,
) -> int:
    """Memories that the log still has and the store lost, and whose they are.

    An owner comes from the ledger, from snapshots, or from mem0's own chat messages where they prove it; it is never
    guessed. Nobody who was erased is brought back.
    Exit: 0 done, 2 usage, 3 a store could not be read, 4 refused, 5 failed (the message says how it stands).
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python)
    as_json = format_ is Format.JSON
    if stranded_log:
        others = {
            "--memory": memory, "--snapshot": snapshot, "--assign-user": assign_user, "--export": export,
            "--skip-unknown": skip_unknown, "--doubtful": doubtful, "--from": from_,
        }  # fmt: skip
        _alone("--stranded-log", others)
        return _put_back(named, to, dry_run=dry_run, yes=yes, as_json=as_json, ledger=not no_ledger)
    if to is not None:
        raise UsageProblem("--to is for --stranded-log", "the folder of the snapshots to look in: --from DIR")
    if snapshot is not None and not memory:
        raise UsageProblem(
            "--snapshot takes single memories: name them with --memory",
            "all of them, with their vectors and ids: mem0audit snapshot restore NAME --in-place",
        )
    if assign_user is not None and (skip_unknown or not assign_user.strip() or assign_user == "*"):
        raise UsageProblem(
            f"--assign-user {assign_user!r}: no user"
            if not skip_unknown
            else "--assign-user and --skip-unknown"
        )
    if not dry_run and export is None:
        raise UsageProblem("what to do with them: one of --dry-run, --export FILE")
    check_output(export)
    install, host = named.find()
    check_output(export, install)
    from mem0audit.operations.recover import Wanted

    wanted = Wanted(
        memories=tuple(memory or ()),
        snapshot=_snapshot(snapshot, from_, host),
        assign_user=assign_user,
        skip_unknown=skip_unknown,
        doubtful=doubtful,
    )
    return _plan(
        wanted, install, host, named.words(), from_,
        export=export, ledger=not no_ledger, as_json=as_json, verbose=verbose,
    )  # fmt: skip


def _alone(flag: str, others: Mapping[str, object]) -> None:
    for name, value in others.items():
        if value:
            raise UsageProblem(f"{flag} and {name}: one of them")


def _snapshot(name: str | None, from_: str | None, host: Host) -> str | None:
    """The path of the snapshot that is meant."""
    if name is None:
        return None
    from mem0audit.cli.snapshot import folder_of
    from mem0audit.operations.verify import find_snapshots, show_snapshot

    folder = folder_of(name, from_, host, "--from")
    paths = find_snapshots(folder, name)
    if len(paths) > 1:
        raise UsageProblem(f"{name}: is a folder of {len(paths)} snapshots", f"name one: {paths[-1]}")
    show_snapshot(None, paths[0])
    return os.path.normpath(os.path.join(host.cwd, paths[0]))  # noqa: PTH118


def _plan(
    wanted: Wanted,
    install: Install,
    host: Host,
    words: tuple[str, ...],
    from_: str | None,
    *,
    export: str | None,
    ledger: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    from mem0audit.install.config import load_settings
    from mem0audit.operations.recover import plan_recover
    from mem0audit.report import recover as report

    settings = load_settings(host)
    chosen: tuple[str, ...] = ()
    if from_ is not None:
        settings = replace(settings, snapshot_dir=os.path.normpath(os.path.join(host.cwd, from_)))  # noqa: PTH118
        chosen = ("--from", from_)
    with progress() as tell:
        plan = plan_recover(install, host, wanted, settings=settings, ledger=ledger, progress=tell)
    where = screen(words, verbose=verbose)
    if export is not None:
        write(report.export_lines(plan), export)
        write(
            report.plan_json(plan, exported=export) if as_json else report.exported_text(plan, export, where)
        )
        return exits.OK
    for one in wanted.memories:
        chosen += ("--memory", one)
    write(report.plan_json(plan) if as_json else report.plan_text(plan, where, words=chosen))
    return exits.OK


def _put_back(named: Named, to: str | None, *, dry_run: bool, yes: bool, as_json: bool, ledger: bool) -> int:
    from mem0audit.cli.snapshot import _folder
    from mem0audit.operations.putback import apply_put_back, plan_put_back
    from mem0audit.report import recover as report

    install, host = named.find()
    folder = _folder(to, host)
    plan = plan_put_back(install, host, folder, ledger=ledger)
    chosen = ("--stranded-log", *(("--to", to) if to is not None else ()))
    if dry_run or not plan.tables:
        text = report.put_back_plan_text(plan, screen(named.words()), words=chosen)
        write(report.put_back_plan_json(plan) if as_json else text)
        return exits.OK
    if not yes:
        for line in report.put_back_plan_text(plan, screen(named.words())).splitlines():
            say(line)
        confirm("Put them back?")
    with progress() as tell:
        done = apply_put_back(plan, host, progress=tell)
    write(report.put_back_json(done) if as_json else report.put_back_text(done, screen(named.words())))
    return exits.OK
