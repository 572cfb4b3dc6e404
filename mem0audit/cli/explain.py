"""`mem0audit explain`: the page of a rule, or the list of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mem0audit.cli.options import Format, FormatOption, complete_code, did_you_mean
from mem0audit.cli.output import screen, write
from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.catalogue import Rule


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("explain")(_explain)


def _explain(
    code: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE]...",
            help="A code (D301), the beginning of one (D) or a name; none lists them all.",
            autocompletion=complete_code,
        ),
    ] = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """The page of a rule.

    What it means, how it comes about, what to do.
    """
    from mem0audit.core.catalogue import CATALOGUE, find

    words = [part for word in code or () for part in word.split(",") if part.strip()]
    rules: list[Rule] = []
    for word in words:
        found = find(word)
        if not found:
            raise UsageProblem(f"{word}: no rule has that code or name", did_you_mean(word))
        rules.extend(rule for rule in found if rule not in rules)
    whole = bool(words)
    from mem0audit.report.pages import explain_text

    if format_ is Format.JSON:
        from mem0audit.report.json import explain_json

        write(explain_json(rules or list(CATALOGUE.values())))
    else:
        write(explain_text(rules or list(CATALOGUE.values()), screen(), whole=whole))
    return 0
