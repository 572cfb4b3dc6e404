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
    ApiKeyEnvOption,
    CollectionOption,
    ConfigOption,
    Format,
    FormatOption,
    HistoryOption,
    Named,
    NodeOption,
    NoLedgerOption,
    QdrantPathOption,
    QdrantUrlOption,
    VerboseOption,
)
from mem0audit.cli.output import check_output, confirm, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import Mem0auditError, UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.recover import RecoverPlan
    from mem0audit.install.config import Settings
    from mem0audit.install.host import Host
    from mem0audit.operations.mem0door import Door
    from mem0audit.operations.recover import Wanted
    from mem0audit.report.screen import Screen


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
    api_key_env: ApiKeyEnvOption = None,
    node: NodeOption = None,
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
    """Adds memories back that only the log still has.

    Through the agent's own mem0, with your own embedder, and with the agent stopped. An owner comes from the ledger,
    from snapshots, or from mem0's own chat messages where they prove it; it is never guessed. Nobody who was erased is
    brought back.
    Exit: 0 done, 1 some wait for an owner, 2 usage, 3 a store could not be read, 4 refused, 5 failed half-way (the same
    command goes on).
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env, node)
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
    if dry_run and export is not None:
        raise UsageProblem("--dry-run and --export: one of them; an export changes nothing either")
    if no_ledger and not dry_run and export is None:
        raise UsageProblem(
            "--no-ledger: what is added back is recorded in the ledger, so that a second run adds nothing twice",
            "without it: --dry-run, --export FILE",
        )
    check_output(export, flag="--export")
    install, host = named.find()
    check_output(export, install, "--export")
    from mem0audit.operations.recover import Wanted

    wanted = Wanted(
        memories=tuple(memory or ()),
        snapshot=_snapshot(snapshot, from_, host),
        assign_user=assign_user,
        skip_unknown=skip_unknown,
        doubtful=doubtful,
    )
    settings, chosen = _settings(host, from_)
    from mem0audit.operations.recover import plan_recover
    from mem0audit.report import recover as report

    with progress() as tell:
        plan = plan_recover(install, host, wanted, settings=settings, ledger=not no_ledger, progress=tell)
    where = screen(named.words(), verbose=verbose)
    if export is not None:
        write(report.export_lines(plan), export)
        write(
            report.plan_json(plan, exported=export) if as_json else report.exported_text(plan, export, where)
        )
        return exits.OK
    chosen += _choice(wanted, snapshot)
    if dry_run:
        way, why = _door(plan, host, ledger=not no_ledger)
        write(
            report.plan_json(plan, way=way, why_not=why)
            if as_json
            else report.plan_text(plan, where, words=chosen, way=way, why_not=why)
        )
        return exits.OK
    return _add_back(plan, host, config or settings.config, where, chosen, yes=yes, as_json=as_json)


def _settings(host: Host, from_: str | None) -> tuple[Settings, tuple[str, ...]]:
    """The settings, with the folder of the snapshots that was named; and the words that named it."""
    from mem0audit.install.config import load_settings

    settings = load_settings(host)
    if from_ is None:
        return settings, ()
    return replace(settings, snapshot_dir=os.path.normpath(os.path.join(host.cwd, from_))), ("--from", from_)  # noqa: PTH118


def _choice(wanted: Wanted, snapshot: str | None) -> tuple[str, ...]:
    """The words that choose among the memories."""
    words: tuple[str, ...] = ()
    for one in wanted.memories:
        words += ("--memory", one)
    if snapshot is not None:
        words += ("--snapshot", snapshot)
    if wanted.assign_user is not None:
        words += ("--assign-user", wanted.assign_user)
    return words + ("--skip-unknown",) * wanted.skip_unknown + ("--doubtful",) * wanted.doubtful


def _door(plan: RecoverPlan, host: Host, *, ledger: bool) -> tuple[Door | None, str | None]:
    """Under which mem0 they would be added, or why under none."""
    if not plan.memories:
        return None, None
    from mem0audit.operations.mem0door import find_door

    try:
        return find_door(plan.install, host, ledger=ledger), None
    except Mem0auditError as problem:
        return None, problem.message + (f" ({problem.hint})" if problem.hint else "")


def _add_back(
    plan: RecoverPlan,
    host: Host,
    config: str | None,
    where: Screen,
    chosen: tuple[str, ...],
    *,
    yes: bool,
    as_json: bool,
) -> int:
    from mem0audit.operations.recover import apply_recover
    from mem0audit.report import recover as report

    if not plan.to_do:
        write(report.plan_json(plan) if as_json else report.plan_text(plan, where, words=chosen))
        return exits.FINDINGS if plan.unknown else exits.OK
    from mem0audit.install.config import load_mem0_config
    from mem0audit.operations.mem0door import find_door
    from mem0audit.operations.targets import refuse_in_use

    if config is None:
        raise UsageProblem(
            "the vectors are computed by your own embedder: name your mem0 configuration with --config FILE",
            "their texts without an embedder: mem0audit recover --export FILE",
        )
    dictionary = load_mem0_config(config, plan.install.agent_python, host.cwd).raw
    refuse_in_use(plan.install, host)
    door = find_door(plan.install, host)
    if not yes:
        for line in report.plan_text(plan, where, words=chosen, way=door, ask=True).splitlines():
            say(line)
        confirm(report.question(plan))
    with progress() as tell:
        done = apply_recover(plan, door, host, dictionary, progress=tell)
    write(report.recovered_json(done) if as_json else report.recovered_text(done, where, words=chosen))
    return exits.FAILED if done.failed else exits.FINDINGS if plan.unknown else exits.OK


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
