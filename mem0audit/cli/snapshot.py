"""`mem0audit snapshot`: both stores taken as a pair beside the agent, listed, shown, verified. `import` and `diff` have
files of their own."""

from __future__ import annotations

import os
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
    OutputOption,
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import check_output, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.core.snapshot import Taken
    from mem0audit.install.host import Host
    from mem0audit.operations.verify import Depth

app = typer.Typer(
    help="Both stores as one dated pair: take, check, restore.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="DIR", help="The folder of the snapshots.  [default: snapshot_dir]"),
]


BackupHistoryOption = Annotated[
    str | None,
    typer.Option("--history", metavar="FILE", help="Of a backup: its history.db, where several lie there."),
]
BackupQdrantOption = Annotated[
    str | None,
    typer.Option(
        "--qdrant-path", metavar="FOLDER", help="Of a backup: its Qdrant folder, where several lie there."
    ),
]


def _folder(to: str | None, host: Host, flag: str = "--to") -> str:
    """The folder for snapshots, absolute; `flag` would name it. Raises UsageProblem where nothing names it."""
    if to is None:
        from mem0audit.install.config import load_settings

        to = load_settings(host).snapshot_dir
        if to is None:
            raise UsageProblem(
                "no folder for snapshots is named",
                f"name one with {flag}, or as snapshot_dir in mem0audit.toml; those used before: mem0audit status",
            )
    if not to or "\0" in to:
        raise UsageProblem(f"{flag}: not a path")
    return os.path.normpath(os.path.join(host.cwd, to))  # noqa: PTH118


def folder_of(name: str | None, to: str | None, host: Host, flag: str = "--to") -> str | None:
    """The folder in which a snapshot's name is looked for; None where the name is itself a path."""
    is_path = name is not None and to is None and ("/" in name or os.path.isdir(name))  # noqa: PTH112
    return None if is_path else _folder(to, host, flag)


def _host() -> Host:
    from mem0audit.install.host import this_host

    return this_host()


@app.command("create")
def _create(
    to: ToOption = None,
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
    no_ledger: NoLedgerOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing where all is well.")] = False,
) -> int:
    """Takes both stores as one pair, with the agent running.

    Copied as of one instant, rebuilt without free pages, checked, and published by one rename.
    Exit: 0 taken, 2 usage, 3 a store is not there, 4 refused, 5 failed and nothing published.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env, node)
    check_output(output)
    install, host = named.find()
    folder = _folder(to, host)
    check_output(output, install)
    words = named.words()
    if install.vectors is None and install.server_url is not None:
        taken = _of_server(install, host, folder, words, dry_run, not no_ledger, format_, output, quiet)
    else:
        taken = _of_folder(install, host, folder, words, dry_run, not no_ledger, format_, output, quiet)
    if taken is None:
        return exits.OK
    if not no_ledger:
        from mem0audit.cli.overdue import clear_overdue
        from mem0audit.install.config import load_settings

        clear_overdue(install, host, load_settings(host))
    if format_ is Format.JSON:
        from mem0audit.report.json import snapshot_json

        write(snapshot_json(taken.path, taken.manifest, taken), output)
    elif not quiet or taken.notes or not taken.manifest.settled or (taken.seal and taken.seal.why):
        from mem0audit.report.snapshots import taken_text

        write(taken_text(taken, screen(words, to_file=output is not None)), output)
    return exits.OK


def _of_folder(
    install: Install,
    host: Host,
    folder: str,
    words: tuple[str, ...],
    dry_run: bool,
    ledger: bool,
    format_: Format,
    output: str | None,
    quiet: bool,
) -> Taken | None:
    """Takes a snapshot of an embedded store; None where only the plan was asked for."""
    from mem0audit.operations.snapshot import create, plan_create

    plan = plan_create(install, host, folder)
    if not dry_run:
        with progress(quiet=quiet) as tell:
            return create(plan, host, progress=tell, ledger=ledger)
    if format_ is Format.JSON:
        from mem0audit.report.json import snapshot_plan_json

        write(snapshot_plan_json(plan), output)
    else:
        from mem0audit.report.snapshots import plan_text

        write(plan_text(plan, screen(words, to_file=output is not None)), output)
    return None


def _of_server(
    install: Install,
    host: Host,
    folder: str,
    words: tuple[str, ...],
    dry_run: bool,
    ledger: bool,
    format_: Format,
    output: str | None,
    quiet: bool,
) -> Taken | None:
    """Takes a snapshot where the points lie on a server; None where only the plan was asked for."""
    from mem0audit.operations.serversnapshot import create_of_server, plan_server_create

    plan = plan_server_create(install, host, folder)
    if not dry_run:
        with progress(quiet=quiet) as tell:
            return create_of_server(plan, host, progress=tell, ledger=ledger)
    if format_ is Format.JSON:
        from mem0audit.report.json import server_plan_json

        write(server_plan_json(plan), output)
    else:
        from mem0audit.report.snapshots import server_plan_text

        write(server_plan_text(plan, screen(words, to_file=output is not None)), output)
    return None


@app.command("list")
def _list(to: ToOption = None, format_: FormatOption = Format.TEXT) -> int:
    """The snapshots in a folder, the newest first.

    Each with its age, size and counts, whether it is settled, when it was verified, whether it is kept and why.
    Exit: 0, or 3 where a manifest does not read.
    """
    host = _host()
    folder = _folder(to, host)
    from mem0audit.operations.marks import with_marks
    from mem0audit.operations.verify import list_snapshots

    listed, unknown = with_marks(folder, list_snapshots(folder))
    if format_ is Format.JSON:
        from mem0audit.report.json import snapshots_json

        write(snapshots_json(folder, listed, unknown))
    else:
        from mem0audit.report.snapshots import list_text

        write(list_text(folder, listed, host.now, screen(), known=unknown is None))
    if unknown is not None:
        say(f"mem0audit: {unknown}")
    return exits.NOT_READ if unknown or any(one.manifest is None for one in listed) else exits.OK


@app.command("show")
def _show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its path.")],
    to: ToOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """What one snapshot says of itself: when, from where, by what.

    Exit: 0, or 3 where it is not there or its manifest does not read.
    """
    host = _host()
    folder = folder_of(name, to, host)
    from mem0audit.operations.marks import with_marks
    from mem0audit.operations.verify import show_snapshot

    one = show_snapshot(folder, name)
    (one,), unknown = with_marks(os.path.dirname(one.path), (one,))  # noqa: PTH120
    assert one.manifest is not None
    if format_ is Format.JSON:
        from mem0audit.report.json import snapshot_json

        write(snapshot_json(one.path, one.manifest, listed=one))
    else:
        from mem0audit.report.snapshots import show_text

        write(show_text(one, host.now, screen(), known=unknown is None))
    if unknown is not None:
        say(f"mem0audit: {unknown}")
    return exits.NOT_READ if unknown else exits.OK


@app.command("verify")
def _verify(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME|DIR]", help="One, or a folder of them.", show_default="all")
    ] = None,
    to: ToOption = None,
    new: Annotated[bool, typer.Option("--new", help="Only those that have no verdict yet.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Names, sizes and the manifest only.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Put back into a scratch folder too, and audited there.")
    ] = False,
    history: BackupHistoryOption = None,
    qdrant_path: BackupQdrantOption = None,
    qdrant_url: Annotated[
        str | None,
        typer.Option("--qdrant-url", metavar="URL", help="For --deep: a Qdrant server to put them onto."),
    ] = None,
    api_key_env: ApiKeyEnvOption = None,
    node: NodeOption = None,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing where all are good.")] = False,
) -> int:
    """Whether snapshots hold what their manifests say.

    Every byte, SQLite's integrity_check, and both stores as a pair. Nothing in one changes; the verdict is noted
    beside the snapshots, for `list` and `expire` (a --quick look that finds nothing is not). The points of a Qdrant
    server are proven by their checksum; --deep reads them, in scratch collections on the server of --qdrant-url.
    DIR may also be a backup made with cp, rsync or tar: is each file whole, how far are its halves apart, what would
    it bring back or lose?
    Exit: 0 good, 1 something is wrong (each file is named), 3 it is neither or could not be checked.
    """
    if quick and deep:
        raise UsageProblem("--quick and --deep: one of them")
    check_output(output)
    host = _host()
    folder = folder_of(name, to, host)
    from mem0audit.operations.marks import QUICK, verify_and_record, without_verdict
    from mem0audit.operations.verify import NoSnapshot, find_snapshots

    try:
        paths = find_snapshots(folder, name)
    except NoSnapshot as none:
        if quick or deep or new:
            raise UsageProblem(
                f"{none.path}: no snapshot of mem0audit's: --quick, --deep and --new need a manifest",
                "leave them out: a backup is looked at whole",
            ) from None
        return _verify_backup(none.path, host, history, qdrant_path, format_, output)
    if history is not None or qdrant_path is not None:
        raise UsageProblem("--history and --qdrant-path name the halves of a backup, and this is a snapshot")
    if new:
        paths = without_verdict(paths)
    server = None
    if qdrant_url is not None or api_key_env is not None or node:
        if not deep or qdrant_url is None:
            raise UsageProblem(
                "--qdrant-url names a server for --deep, --api-key-env its key, --node its other nodes"
            )
        server = Named(qdrant_url=qdrant_url, api_key_env=api_key_env, nodes=node).find()
    with progress(quiet=quiet) as tell:
        depth: Depth = "quick" if quick else "deep" if deep else "default"
        recorded = [verify_and_record(path, depth, tell, server=server) for path in paths]
    verdicts = [one.verdict for one in recorded]
    codes = [exits.FINDINGS for one in verdicts if one.problems]
    codes += [exits.NOT_READ for one in verdicts if one.not_checked]
    code = exits.first_of(codes)
    if format_ is Format.JSON:
        from mem0audit.report.json import verify_json

        not_recorded = {one.verdict.path: one.not_recorded for one in recorded}
        write(verify_json(verdicts, not_recorded=not_recorded), output)
    elif not (quiet and code == exits.OK):
        from mem0audit.report.snapshots import verify_text

        write(verify_text(verdicts, screen(to_file=output is not None)), output)
    for why in dict.fromkeys(one.not_recorded for one in recorded):
        if why is not None and why != QUICK:
            say(f"mem0audit: not recorded: {why}")
    return code


def _verify_backup(
    path: str, host: Host, history: str | None, qdrant_path: str | None, format_: Format, output: str | None
) -> int:
    from mem0audit.operations.backup import find_backup, install_of, verify_backup
    from mem0audit.report.backups import backup_json, backup_text

    backup = find_backup(path, host, history, qdrant_path)
    check_output(output, install_of(backup))
    with progress() as tell:
        verdict = verify_backup(backup, host, tell)
    if format_ is Format.JSON:
        from mem0audit.report.json import verify_json

        write(verify_json((), not_recorded={}, backups=[backup_json(verdict)]), output)
    else:
        write(backup_text(verdict, screen(to_file=output is not None)), output)
    wrong = bool(verdict.problems) or (verdict.halves is not None and not verdict.halves.agree)
    return exits.first_of([exits.FINDINGS] * wrong + [exits.NOT_READ] * bool(verdict.not_checked))
