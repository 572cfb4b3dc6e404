"""The program: its commands, and how every way to fail ends (one line, the right exit code)."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated, cast

import typer

from mem0audit.cli import (
    asof,
    audit,
    backups,
    config,
    delete,
    demo,
    diff,
    exits,
    explain,
    facts,
    help,
    ledger,
    log,
    newest,
    prune,
    recover,
    relocate,
    repair,
    residue,
    restore,
    retention,
    review,
    schedule,
    show,
    snapshot,
    status,
    users,
)
from mem0audit.cli.output import complain, prepare_streams, say, silence
from mem0audit.core.errors import Mem0auditError

# click's ClickException, which newer typers carry inside and do not export
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[2])

_AGO = re.compile(r"-[1-9]\d{0,4}[hdw]", re.ASCII)

app = typer.Typer(
    name="mem0audit",
    help="Reads both stores of a mem0 install side by side, beside the running agent; takes them as one pair, and puts "
    "them back, moves them, and repairs, deletes or recovers memories through mem0. Looking changes nothing.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for module in (
    *(audit, status, explain, show, users, log, asof, newest),
    *(relocate, recover, repair, prune, delete, residue, demo),
):
    module.register(app)
for module in (restore, retention, backups, diff):
    module.register(snapshot.app)
app.add_typer(snapshot.app, name="snapshot")
app.add_typer(facts.app, name="facts")
app.add_typer(ledger.app, name="ledger")
app.add_typer(review.app, name="review")
app.add_typer(schedule.app, name="schedule")
app.add_typer(config.app, name="config")
help.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        from mem0audit import __version__

        typer.echo(f"mem0audit {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="The version, and exit.")
    ] = False,
) -> None:
    pass


def main() -> int:
    """Runs the command line and returns its exit code; nothing but a code ever leaves it."""
    prepare_streams()
    try:
        code = typer.main.get_command(app)(_words(), prog_name="mem0audit", standalone_mode=False)
        return code if isinstance(code, int) else exits.OK
    except Mem0auditError as problem:
        complain(problem)
        return problem.exit_code
    except _UsageError as problem:
        return _usage(problem)
    except (KeyboardInterrupt, typer.Abort):
        return exits.INTERRUPTED
    except BrokenPipeError:
        silence()
        return exits.OK
    except SystemExit as end:  # completion ends this way
        return end.code if isinstance(end.code, int) else exits.OK
    except Exception as bug:  # noqa: BLE001 - the last door: whatever it is, it is a bug of ours
        return _bug(bug)


def _words() -> list[str]:
    """The words of the command line. `-7d`, which would be read as options, is `7d` where a time is meant."""
    words = sys.argv[1:]
    first = 1 if words[:1] == ["as-of"] else 2 if words[:2] == ["facts", "as-of"] else len(words)
    return [word[1:] if at >= first and _AGO.fullmatch(word) else word for at, word in enumerate(words)]


def _usage(problem: BaseException) -> int:
    """A command line that cannot be right: one line, and where the help is."""
    context = getattr(problem, "ctx", None)
    if type(problem).__name__ == "NoArgsIsHelpError":
        say_help = getattr(problem, "show", None)
        if say_help is not None:
            say_help()
        return exits.USAGE
    message = getattr(problem, "format_message", lambda: str(problem))()
    say(f"mem0audit: {message[:1].lower()}{message[1:]}".rstrip("."))
    if context is not None:
        say(f"  {context.command_path} --help")
    return exits.USAGE


def _bug(bug: BaseException) -> int:
    """Says where, and with --verbose the way there; never the message, which may hold memory text."""
    import traceback

    frames = traceback.extract_tb(bug.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "no place"
    wanted = os.environ.get("MEM0AUDIT_DEBUG") or {"--verbose", "-v"} & set(sys.argv[1:])
    if wanted:
        seen: BaseException | None = bug
        while seen is not None:
            for line in traceback.format_tb(seen.__traceback__):
                for part in line.rstrip("\n").split("\n"):
                    say(part)
            say(type(seen).__name__)
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    again = "please report it" if wanted else "run again with --verbose (or MEM0AUDIT_DEBUG=1) to see the way"
    say(f"mem0audit: a bug: {type(bug).__name__} in {where}; {again}")
    return exits.BUG
