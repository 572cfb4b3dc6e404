"""The program: its commands, and how every way to fail ends (one line, the right exit code)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Final, cast

import typer

from mem0audit.cli import exits
from mem0audit.cli.output import complain, prepare_streams, say, silence
from mem0audit.core.errors import Mem0auditError

# click's ClickException, which newer typers carry inside and do not export
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[2])

_AGO = re.compile(r"-[1-9]\d{0,4}[hdw]", re.ASCII)

_COMMANDS: Final[Mapping[str, str]] = {
    **{name: name for name in ("audit", "status", "explain", "show", "users", "log")},
    **{"as-of": "asof", "new": "newest"},
    **{name: name for name in ("relocate", "recover", "repair", "prune", "delete", "residue")},
    **{"export": "residue", "demo": "demo", "help": "help"},
}
"""The module of `mem0audit.cli` that each command is in, in the order of the help."""
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "snapshot": ("snapshot", "restore", "retention", "backups", "diff"),
    **{name: (name,) for name in ("facts", "ledger", "review", "schedule", "config")},
}
"""The modules of a group's commands: the first has the group, the others add to it."""


def _version(wanted: bool) -> None:
    if wanted:
        from mem0audit import __version__

        typer.echo(f"mem0audit {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="The version, and exit.")
    ] = False,
) -> None:
    pass


def _app(words: list[str]) -> typer.Typer:
    """The program with the command that `words` begin with, or with all of them: to load and build all takes as long
    as a small audit."""
    app = typer.Typer(
        name="mem0audit",
        help="Reads both stores of a mem0 install side by side, beside the running agent; takes them as one pair, and "
        "puts them back, moves them, and repairs, deletes or recovers memories through mem0. Looking changes nothing.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_top)
    named = words[:1] if words and (words[0] in _COMMANDS or words[0] in _GROUPS) else [*_COMMANDS, *_GROUPS]
    for module in dict.fromkeys(_COMMANDS[name] for name in named if name in _COMMANDS):
        import_module(f"mem0audit.cli.{module}").register(app)
    for name in named:
        if name in _GROUPS:
            app.add_typer(_group(name), name=name)
    return app


@cache
def _group(name: str) -> typer.Typer:
    first, *others = (import_module(f"mem0audit.cli.{module}") for module in _GROUPS[name])
    group: typer.Typer = first.app
    for module in others:
        module.register(group)
    return group


def main() -> int:
    """Runs the command line and returns its exit code; nothing but a code ever leaves it."""
    prepare_streams()
    try:
        words = _words()
        command = typer.main.get_command(_app(words))
        code = command(words, prog_name="mem0audit", standalone_mode=False)
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
