"""`mem0audit snapshot diff`: which memories differ between two times."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.options import (
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
    VerboseOption,
)
from mem0audit.cli.output import check_output, screen, write
from mem0audit.cli.progress import progress
from mem0audit.cli.snapshot import ToOption, folder_of
from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.install.host import Host
    from mem0audit.operations.diff import Found
    from mem0audit.operations.look import Progress

_LIVE = "live"


def register(app: typer.Typer) -> None:
    """Adds the command to the group `snapshot`."""
    app.command("diff")(_diff)


def _diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A snapshot's name or path, a backup, or live.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same; what is different in it.")],
    to: ToOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    text: Annotated[bool, typer.Option("--text", help="The memories' texts too.")] = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Memories added, changed and removed from A to B, per user.

    A and B: snapshots, backups, or live, the install with the agent running. Changed is a memory with another text,
    owner or other metadata. A difference is no fault. A snapshot of a Qdrant server is read on the install's server, or
    that of --qdrant-url, in a scratch collection that is removed again.
    Exit: 0, 2 usage, 3 one of them is not there or could not be read whole.
    """
    check_output(output)
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    if _LIVE not in (a, b) and named.words() and qdrant_url is None:
        raise UsageProblem(f"{named.words()[0]} names the install, and neither A nor B is {_LIVE}")
    from mem0audit.install.host import this_host
    from mem0audit.operations.diff import diff
    from mem0audit.report.diff import diff_json, diff_text

    host = this_host()
    with ExitStack() as stack, progress() as tell:
        sides = [_side(name, to, named, host, output, stack, tell) for name in (a, b)]
        found = diff(sides[0], sides[1], host, texts=text, progress=tell)
    where = screen(verbose=verbose, to_file=output is not None)
    write(diff_json(found) if format_ is Format.JSON else diff_text(found, where), output)
    return exits.NOT_READ if found.not_checked else exits.OK


def _side(
    name: str,
    to: str | None,
    named: Named,
    host: Host,
    output: str | None,
    stack: ExitStack,
    tell: Progress | None,
) -> Found:
    from mem0audit.operations.backup import install_of
    from mem0audit.operations.copyaudit import find_copy
    from mem0audit.operations.diff import lent, of_copy, of_live

    if name == _LIVE:
        install, host = named.find()
        check_output(output, install)
        return of_live(install, host)
    copy = find_copy(folder_of(name, None if "/" in name else to, host), name, host)
    check_output(output, install_of(copy.halves))
    if copy.manifest is not None and copy.manifest.server is not None:
        return stack.enter_context(lent(copy, named.find()[0] if named.words() else None, tell))
    return of_copy(copy)
