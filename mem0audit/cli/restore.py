"""`mem0audit snapshot restore`: a snapshot put back, into a new folder or in place; what it put aside, discarded."""

from __future__ import annotations

import os
import sys
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
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import is_terminal, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import CouldNotRead, Refused, UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.install.host import Host


def register(app: typer.Typer) -> None:
    """Adds the command to the group `snapshot`."""
    app.command("restore")(_restore)


def _restore(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Its name, or its path.", show_default=False)
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NEWDIR", help="A new or empty folder to restore both stores into."),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Put it in place of the install's own stores, agent stopped.")
    ] = False,
    discard_replaced: Annotated[
        bool, typer.Option("--discard-replaced", help="Remove for good what restores in place put aside.")
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="DIR", help="The folder of the snapshots.  [default: snapshot_dir]"),
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    node: NodeOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Do not read the ledger's record of erasures.")
    ] = False,
    without_erasure_record: Annotated[
        bool,
        typer.Option(
            "--without-erasure-record", help="Restore although a record of erasures cannot be read."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Puts a snapshot back: both stores, verified, or neither.

    Into a new folder with --to; with --in-place over the install, which nobody may have open: what it replaces is
    kept aside. On a Qdrant server the points go into new collections with --to, or over the old ones, of which a
    snapshot is taken first. Cut off at any moment, the same command finishes it or takes it back.
    Exit: 0 done, 2 usage, 3 no such snapshot, 4 refused, 5 failed (the message says how it stands).
    """
    if sum((to is not None, in_place, discard_replaced)) != 1:
        from mem0audit.core.words import shell_word

        shown = shell_word(name) if name else "NAME"
        raise UsageProblem(
            "where to restore it: one of --to NEWDIR, --in-place",
            f"mem0audit snapshot restore {shown} --to NEWDIR\nmem0audit snapshot restore {shown} --in-place",
        )
    if discard_replaced and name is not None:
        raise UsageProblem("--discard-replaced takes no NAME")
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env, node)
    as_json = format_ is Format.JSON
    if discard_replaced:
        install, host = named.find()
        return _discard(install, host, named.words(), dry_run=dry_run, yes=yes, as_json=as_json)
    if in_place:
        install, host = named.find()
        return _put_back(
            _snapshot(name, from_, host, install), None, install, host, named.words(),
            ledger=not no_ledger, without=without_erasure_record, dry_run=dry_run, yes=yes, as_json=as_json,
        )  # fmt: skip
    from mem0audit.install.host import this_host
    from mem0audit.operations.serverrestore import server_url_of

    host = this_host()
    if not to or "\0" in to:
        raise UsageProblem("--to: not a path")
    target = os.path.normpath(os.path.join(host.cwd, to))  # noqa: PTH118
    snapshot = _snapshot(name, from_, host, None)
    url = server_url_of(snapshot)
    onto: Install | None = None
    if url is not None:
        # the log into the folder, the points into new collections: of the server that they came from, or that is named
        if history is not None or qdrant_path is not None:
            raise UsageProblem(
                "--history and --qdrant-path: --to restores the log into a new folder and the points into new "
                "collections",
                "leave them out; --collection names the new collection, --qdrant-url the server",
            )
        named = Named(None, None, qdrant_url or url, collection, config, agent_python, api_key_env, node)
        onto, host = named.find()
    # --agent-python stays: it names the mem0 that erases in the copy who was erased since
    elif others := replace(named, agent_python=None).words():
        raise UsageProblem(f"{others[0]}: --to restores into a new folder, of no install", "leave it out")
    return _put_back(
        snapshot, target, onto, host, () if onto is None else named.words(),
        ledger=not no_ledger, without=without_erasure_record, dry_run=dry_run, yes=True, as_json=as_json,
        agent_python=agent_python,
    )  # fmt: skip


def _snapshot(name: str | None, from_: str | None, host: Host, install: Install | None) -> str:
    """The path of the snapshot that is meant; without a name, that of the restore that was cut off."""
    from mem0audit.operations.interrupted import interrupted

    if name is None:
        found = interrupted(install, host) if install is not None else None
        if found is None or found.snapshot is None:
            raise UsageProblem(
                "which snapshot? NAME is missing, and no restore was cut off here",
                "all of them: mem0audit snapshot list; where they are: mem0audit status",
            )
        return found.snapshot
    from mem0audit.cli.snapshot import folder_of
    from mem0audit.operations.verify import find_snapshots

    folder = folder_of(name, from_, host, "--from")
    try:
        paths = find_snapshots(folder, name)
    except CouldNotRead:
        path = os.path.normpath(os.path.join(host.cwd, folder or "", name))  # noqa: PTH118
        found = interrupted(install, host) if install is not None else None
        if found is not None and found.snapshot == path:
            return path  # it is gone, and its restore was cut off: that can be settled without it
        raise
    if len(paths) > 1:
        raise UsageProblem(
            f"{name}: is a folder of {len(paths)} snapshots", f"name one of them: the newest is {paths[-1]}"
        )
    return os.path.normpath(os.path.join(host.cwd, paths[0]))  # noqa: PTH118


def _put_back(
    snapshot: str,
    to: str | None,
    install: Install | None,
    host: Host,
    words: tuple[str, ...],
    *,
    ledger: bool,
    without: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    agent_python: str | None = None,
) -> int:
    from mem0audit.operations.restore import apply_restore, plan_restore
    from mem0audit.operations.serverrestore import apply_server_restore, plan_server_restore
    from mem0audit.report import restore as report

    server = install if install is not None and install.vectors is None else None
    with progress() as tell:
        if server is not None:
            plan = plan_server_restore(
                snapshot, host, server, to=to,
                ledger=ledger, without_erasure_record=without, progress=tell,
            )  # fmt: skip
        else:
            plan = plan_restore(
                snapshot, host, to=to, install=install,
                ledger=ledger, without_erasure_record=without, agent_python=agent_python, progress=tell,
            )  # fmt: skip
    if dry_run:
        write(
            report.restore_plan_json(plan)
            if as_json
            else report.restore_plan_text(plan, screen(words), to_do_it=True)
        )
        return exits.OK
    if not yes:
        for line in report.restore_plan_text(plan, screen(words)).splitlines():
            say(line)
        _ask(report.restore_question(plan))
    with progress() as tell:
        if server is not None:
            done = apply_server_restore(plan, host, server, progress=tell)
        else:
            done = apply_restore(plan, host, progress=tell)
    write(report.restored_json(done, plan) if as_json else report.restored_text(done, plan, screen(words)))
    return exits.OK


def _discard(
    install: Install, host: Host, words: tuple[str, ...], *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    from mem0audit.operations.discard import apply_discard, plan_discard
    from mem0audit.report import restore as report

    plan = plan_discard(install, host)
    if dry_run:
        write(
            report.discard_json(plan, removed=False)
            if as_json
            else report.discard_plan_text(plan, screen(words))
        )
        return exits.OK
    if not yes:
        for line in report.discard_plan_text(plan, screen(words)).splitlines():
            say(line)
        _ask("Remove them for good?")
    removed = apply_discard(plan)
    write(
        report.discard_json(plan, removed=True) if as_json else report.discarded_text(removed, screen(words))
    )
    return exits.OK


def _ask(question: str) -> None:
    """Asks on a terminal. Raises Refused where there is none, or at any answer but yes."""
    if not is_terminal(sys.stdin):
        raise Refused("not confirmed: nothing was changed", "add --yes, or run it on a terminal, which asks")
    if not typer.confirm(question, err=True):
        raise Refused("not confirmed: nothing was changed")
