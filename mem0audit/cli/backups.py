"""`mem0audit snapshot import`: a backup made with cp, rsync or tar, adopted as a snapshot."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.options import CollectionOption, Format, FormatOption, OutputOption
from mem0audit.cli.output import check_output, screen, write
from mem0audit.cli.progress import progress
from mem0audit.cli.snapshot import BackupHistoryOption, BackupQdrantOption, ToOption, folder_of
from mem0audit.core.errors import CouldNotRead, Refused


def register(app: typer.Typer) -> None:
    """Adds the command to the group `snapshot`."""
    app.command("import")(_import)


def _import(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Holds a history.db and a Qdrant folder.")],
    to: ToOption = None,
    history: BackupHistoryOption = None,
    qdrant_path: BackupQdrantOption = None,
    collection: CollectionOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """Adopts a backup made with cp, rsync or tar, which is only read.

    Copied, journals applied, rebuilt without free pages, checked, and marked as not a pair.
    Exit: 0 imported, 2 usage, 3 no backup lies there, 4 refused (damaged), 5 failed and nothing published.
    """
    check_output(output)
    from mem0audit.install.host import this_host
    from mem0audit.operations.adopt import import_backup, plan_import
    from mem0audit.operations.backup import find_backup, install_of
    from mem0audit.operations.verify import NoSnapshot, find_snapshots
    from mem0audit.report.backups import import_plan_json, import_plan_text, imported_text

    host = this_host()
    folder = folder_of(None, to, host)
    assert folder is not None
    if not os.path.isdir(directory):  # noqa: PTH112
        raise CouldNotRead(f"{directory}: there is no such folder")
    try:
        found = find_snapshots(None, directory)
    except NoSnapshot as none:
        backup = find_backup(none.path, host, history, qdrant_path)
    else:
        raise Refused(f"{found[0]}: is a snapshot already", "copy its folder: cp -a keeps it whole")
    check_output(output, install_of(backup))
    with progress() as tell:
        plan = plan_import(backup, host, folder, collection, tell)
        taken = None if dry_run else import_backup(plan, host, progress=tell)
    where = screen(to_file=output is not None)
    if taken is None:
        write(import_plan_json(plan) if format_ is Format.JSON else import_plan_text(plan, where), output)
    elif format_ is Format.JSON:
        from mem0audit.report.json import snapshot_json

        write(snapshot_json(taken.path, taken.manifest, taken), output)
    else:
        write(imported_text(taken, plan, where), output)
    return exits.OK
