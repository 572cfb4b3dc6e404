"""`mem0audit snapshot`: both stores taken as a pair beside the agent, listed, shown, verified."""

from __future__ import annotations

import os
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
    OutputOption,
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import check_output, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.install.host import Host

app = typer.Typer(
    help="Both stores as one dated pair: create, list, show, verify, restore.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="DIR", help="The folder of the snapshots.  [default: snapshot_dir]"),
]


def _folder(to: str | None, host: Host) -> str:
    """The folder for snapshots, absolute. Raises UsageProblem where nothing names it."""
    if to is None:
        from mem0audit.install.config import load_settings

        to = load_settings(host).snapshot_dir
        if to is None:
            raise UsageProblem(
                "no folder for snapshots is named",
                "name one with --to, or as snapshot_dir in mem0audit.toml (mem0audit config example)",
            )
    if not to or "\0" in to:
        raise UsageProblem("--to: not a path")
    return os.path.normpath(os.path.join(host.cwd, to))  # noqa: PTH118


def _folder_of(name: str | None, to: str | None, host: Host) -> str | None:
    """The folder in which a snapshot's name is looked for; None where the name is itself a path."""
    is_path = name is not None and to is None and ("/" in name or os.path.isdir(name))  # noqa: PTH112
    return None if is_path else _folder(to, host)


def _host() -> Host:
    from mem0audit.install.host import this_host

    return this_host()


@app.command("create")
def _create(
    to: ToOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    no_ledger: NoLedgerOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing where all is well.")] = False,
) -> int:
    """Takes both stores as one pair, with the agent running.

    Copied as of one instant, rebuilt without free pages, checked, and published by one rename.
    Exit: 0 taken, 2 usage, 3 a store is not there, 4 refused, 5 failed and nothing published.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python)
    check_output(output)
    install, host = named.find()
    folder = _folder(to, host)
    check_output(output, install)
    from mem0audit.operations.snapshot import create, plan_create

    plan = plan_create(install, host, folder)
    words = named.words()
    if dry_run:
        if format_ is Format.JSON:
            from mem0audit.report.json import snapshot_plan_json

            write(snapshot_plan_json(plan), output)
        else:
            from mem0audit.report.snapshots import plan_text

            write(plan_text(plan, screen(words, to_file=output is not None)), output)
        return exits.OK
    with progress(quiet=quiet) as tell:
        taken = create(plan, host, progress=tell, ledger=not no_ledger)
    if format_ is Format.JSON:
        from mem0audit.report.json import snapshot_json

        write(snapshot_json(taken.path, taken.manifest, taken), output)
    elif not quiet or taken.notes or not taken.manifest.settled or (taken.seal and taken.seal.why):
        from mem0audit.report.snapshots import taken_text

        write(taken_text(taken, screen(words, to_file=output is not None)), output)
    return exits.OK


@app.command("list")
def _list(to: ToOption = None, format_: FormatOption = Format.TEXT) -> int:
    """The snapshots in a folder, the newest first. Exit: 0, or 3 where a manifest does not read."""
    host = _host()
    folder = _folder(to, host)
    from mem0audit.operations.verify import list_snapshots

    listed = list_snapshots(folder)
    if format_ is Format.JSON:
        from mem0audit.report.json import snapshots_json

        write(snapshots_json(folder, listed))
    else:
        from mem0audit.report.snapshots import list_text

        write(list_text(folder, listed, host.now, screen()))
    return exits.NOT_READ if any(one.manifest is None for one in listed) else exits.OK


@app.command("show")
def _show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its path.")],
    to: ToOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """What one snapshot says of itself: when, from where, written by what, its files.

    Exit: 0, or 3 where it is not there or its manifest does not read.
    """
    host = _host()
    folder = _folder_of(name, to, host)
    from mem0audit.operations.verify import show_snapshot

    one = show_snapshot(folder, name)
    assert one.manifest is not None
    if format_ is Format.JSON:
        from mem0audit.report.json import snapshot_json

        write(snapshot_json(one.path, one.manifest))
    else:
        from mem0audit.report.snapshots import show_text

        write(show_text(one, host.now, screen()))
    return exits.OK


@app.command("verify")
def _verify(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME|DIR]", help="One, or a folder of them.", show_default="all")
    ] = None,
    to: ToOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Names, sizes and the manifest only.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Put back into a scratch folder too, and audited there.")
    ] = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """Whether snapshots hold what their manifests say; changes nothing.

    Every byte, SQLite's integrity_check, and both stores as a pair.
    Exit: 0 good, 1 something is wrong (each file is named), 3 it is no snapshot or could not be checked.
    """
    if quick and deep:
        raise UsageProblem("--quick and --deep: one of them")
    check_output(output)
    host = _host()
    folder = _folder_of(name, to, host)
    from mem0audit.operations.verify import find_snapshots, verify

    paths = find_snapshots(folder, name)
    with progress() as tell:
        verdicts = [verify(path, "quick" if quick else "deep" if deep else "default", tell) for path in paths]
    if format_ is Format.JSON:
        from mem0audit.report.json import verify_json

        write(verify_json(verdicts), output)
    else:
        from mem0audit.report.snapshots import verify_text

        write(verify_text(verdicts, screen(to_file=output is not None)), output)
    codes = [exits.FINDINGS for one in verdicts if one.problems]
    codes += [exits.NOT_READ for one in verdicts if one.not_checked]
    return exits.first_of(codes)
