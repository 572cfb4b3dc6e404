"""`mem0audit help`: how-to pages."""

from __future__ import annotations

from typing import Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.output import screen, write
from mem0audit.core.errors import UsageProblem


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("help")(_help)


def _help(
    page: Annotated[
        str | None,
        typer.Argument(metavar="[PAGE]", help="Its name; none lists them all.", show_default=False),
    ] = None,
) -> int:
    """How-to pages, to read before you begin."""
    from mem0audit.report.howto import PAGES, list_text, page_text

    if page is None:
        write(list_text(screen()))
        return exits.OK
    if page not in PAGES:
        raise UsageProblem(f"{page}: there is no such page", "mem0audit help")
    write(page_text(page, screen()))
    return exits.OK
