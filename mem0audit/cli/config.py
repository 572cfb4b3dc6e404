"""`mem0audit config`: what mem0audit is told about an install, checked and shown."""

from __future__ import annotations

from typing import Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.options import ConfigOption, Format, FormatOption, Named
from mem0audit.cli.output import screen, write

app = typer.Typer(
    help="Settings: show, validate, example.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("show")
def _show(config: ConfigOption = None, format_: FormatOption = Format.TEXT) -> int:
    """Which install is meant, and what decided each value. Secrets are masked."""
    install, host = Named(config=config).find()
    from mem0audit.install.config import load_mem0_config, load_settings, shown

    settings = load_settings(host)
    mem0 = None
    if config is not None:
        mem0 = shown(load_mem0_config(config, settings.agent_python, host.cwd))
    if format_ is Format.JSON:
        from mem0audit.report.json import config_json

        write(config_json(install, settings.file, mem0))
    else:
        from mem0audit.report.pages import config_text

        write(config_text(install, settings.file, mem0, screen()))
    return exits.OK


@app.command("validate")
def _validate(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A mem0audit.toml, or a mem0 config (YAML, JSON, TOML).")
    ],
) -> int:
    """Whether mem0 and mem0audit would take a configuration. Exit: 0, or 2 with the problems."""
    from mem0audit.install.config import validate

    result = validate(file)
    from mem0audit.report.pages import validation_text

    lines = [("problem", p) for p in result.problems] + [("note", n) for n in result.notes]
    write(validation_text(result.path, result.kind, lines, screen()))
    return exits.USAGE if result.problems else exits.OK


@app.command("example")
def _example() -> int:
    """A mem0audit.toml with every key, explained."""
    from mem0audit.install.config import EXAMPLE

    write(EXAMPLE)
    return exits.OK
