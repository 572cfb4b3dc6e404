"""`mem0audit review`: the memories that nobody confirmed for longest, and what a person or an agent says of each."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mem0audit.cli import delete, exits
from mem0audit.cli import ledger as ledger_commands
from mem0audit.cli.ledger import IdArgument
from mem0audit.cli.options import (
    AgentPythonOption,
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
    QuietIfNoneOption,
)
from mem0audit.cli.output import check_output, confirm, is_terminal, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import Mem0auditError, Refused, UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.install.host import Host
    from mem0audit.operations.review import Decisions, Due, Queue
    from mem0audit.report.screen import Screen

app = typer.Typer(
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_NO_EMBEDDER = "the vector is computed by your own embedder: name your mem0 configuration with --config FILE"
SourceOption = Annotated[
    str | None,
    typer.Option("--source", metavar="SOURCE", help="Where it can be looked up: a file, a URL, a command."),
]


@app.callback(invoke_without_command=True)
def _review(
    context: typer.Context,
    days: Annotated[int, typer.Option("--days", min=0, help="Not confirmed for so long.")] = 90,
    most: Annotated[int, typer.Option("--most", min=1, max=1000, help="So many of them.")] = 20,
    list_: Annotated[bool, typer.Option("--list", help="Show them, and ask nothing.")] = False,
    notes: Annotated[
        str | None,
        typer.Option("--notes", metavar="FILE", help="Not mem0's memories: the lines of a plain notes file."),
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    format_: FormatOption = Format.TEXT,
    text: Annotated[
        bool, typer.Option("--text", help="With --format json: the memories' texts too.")
    ] = False,
    output: OutputOption = None,
    quiet: QuietIfNoneOption = False,
) -> int:
    """Facts not confirmed for longest: is it still true?

    Shows the memories' texts. Of an unknown source first, then the oldest confirmation; beside each what is close to
    it. On a terminal one after the other is asked: a key each, undo, quit at any time; what was decided stays, for it
    is in the ledger at once. Another text mem0 writes at once, with your own embedder (--config), and deletions at the
    end, agent stopped. Nothing is decided by itself.
    With --notes: lines without a date first, then those whose latest ISO date is oldest; c puts a confirmation into the
    ledger, and the file is only read.
    Exit: 0, 2 usage, 3 not read, 4 refused, 5 failed.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    if context.invoked_subcommand is not None:
        if named.words():
            raise UsageProblem(
                f"{named.words()[0]}: comes after the word {context.invoked_subcommand}",
                f"mem0audit review {context.invoked_subcommand} --help",
            )
        return exits.OK
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    if notes is not None:
        from mem0audit.cli.notes import review_notes

        if output is not None and os.path.exists(output) and os.path.samefile(output, notes):  # noqa: PTH110, PTH121
            raise UsageProblem(f"-o {output}: is the notes file itself")
        look = screen(named.words(), quiet=quiet, to_file=output is not None)
        return review_notes(
            *(notes, install, host, look),
            days=days,
            most=most,
            ask=not list_,
            format_=format_,
            text=text,
            output=output,
        )
    from mem0audit.operations.review import Decisions, queue
    from mem0audit.report.review import queue_json, queue_text

    with progress(quiet=quiet) as tell:
        found = queue(install, host, days=days, most=most, progress=tell)
    look = screen(named.words(), quiet=quiet, to_file=output is not None)
    if format_ is Format.JSON:
        write(queue_json(found, text=text), output)
        return exits.OK
    asked = not list_ and output is None and all(map(is_terminal, (sys.stdin, sys.stdout, sys.stderr)))
    if not asked or not (found.due or found.to_delete):
        write(queue_text(found, look), output)
        return exits.OK
    decisions = Decisions(install, host, _embedder_of(config, install, host), to_delete=list(found.to_delete))
    try:
        _ask_each(found, decisions, look)
    except (KeyboardInterrupt, EOFError):
        say("")
    return _finish(decisions, named, look)


@app.command("confirm")
def _confirm(
    memory_id: IdArgument,
    source: SourceOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Says that a memory is true now.

    One whose source is not known needs --source: what cannot be traced can only be deleted.
    Exit: 0, 2 usage, 3 no such memory, 4 refused.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    install, host = named.find()
    from mem0audit.operations import ledgerfacts
    from mem0audit.report.ledger import known_json, known_text

    checked = None if source is None else ledgerfacts.checked_source(source)
    known = ledgerfacts.confirm(install, host, memory_id, checked)
    look = screen(named.words())
    write(
        known_json(known, install, host.now) if format_ is Format.JSON else known_text(known, look, host.now)
    )
    return exits.OK


@app.command("replace")
def _replace(
    memory_id: IdArgument,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What is true now; - reads it from standard input.")
    ],
    source: SourceOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Gives a memory another text, and confirms it. Agent stopped.

    Through mem0's own update, with your own embedder (--config), to which the text goes. Its old text stays in the log.
    Exit: 0, 2 usage, 3 no such memory, 4 refused, 5 failed.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    install, host = named.find()
    from mem0audit.operations import ledgerfacts
    from mem0audit.operations.review import apply_replace, plan_replace
    from mem0audit.report.ledger import known_json, known_text
    from mem0audit.report.review import replace_plan_text

    if source is None:
        raise UsageProblem("--source: where can it be looked up?", "a file, a URL, a command, a message")
    if text == "-":
        text = sys.stdin.read().removesuffix("\n")
    plan = plan_replace(install, host, memory_id, text, ledgerfacts.checked_source(source))
    dictionary = _embedder_of(config, install, host)
    if dictionary is None:
        raise UsageProblem(_NO_EMBEDDER)
    look = screen(named.words())
    if not yes:
        for line in replace_plan_text(plan, look).splitlines():
            say(line)
        confirm("Do it?")
    with progress() as tell:
        warnings = apply_replace(plan, host, text, dictionary, progress=tell)
    for one in warnings:
        say(one)
    with ledgerfacts.writing(install, host) as book:
        known = ledgerfacts.row_of(book, install, host, memory_id)
    write(
        known_json(known, install, host.now) if format_ is Format.JSON else known_text(known, look, host.now)
    )
    return exits.OK


def _embedder_of(config: str | None, install: Install, host: Host) -> Mapping[str, Any] | None:
    """The dict given to `Memory.from_config`; None where none is named."""
    from mem0audit.install.config import load_mem0_config, load_settings

    file = config or load_settings(host).config
    return None if file is None else load_mem0_config(file, install.agent_python, host.cwd).raw


app.command("expire")(ledger_commands.expire)


@app.command("delete")
def _delete(
    memory_id: IdArgument,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Deletes a memory, as `delete --memory ID` does. Agent stopped.

    What it superseded goes with it. Exit: as `delete`.
    """
    return delete.delete(
        memory=[memory_id],
        history=history,
        qdrant_path=qdrant_path,
        qdrant_url=qdrant_url,
        api_key_env=api_key_env,
        collection=collection,
        config=config,
        agent_python=agent_python,
        dry_run=dry_run,
        yes=yes,
        format_=format_,
    )


# --- One after the other ---------------------------------------------------------------------------


def question_of(number: int, count: int, close: int, look: Screen) -> str:
    """What can be pressed, where so many close ones stand beside it: broken between two keys alone."""
    others = f" · {'1' if close == 1 else f'1-{close}'} that one is true instead" if close else ""
    keys = f"c confirm · r replace · e expire · d delete{others} · s skip · u undo · q quit"
    together = " · ".join(key.replace(" ", "\0") for key in keys.split(" · "))
    lines = textwrap.wrap(f"{number} of {count}   {together}", look.width - 1, subsequent_indent="   ")
    return "\n".join(lines).replace("\0", " ") + " "


def _ask_each(found: Queue, decisions: Decisions, look: Screen) -> None:
    """Asks of each in the queue. What is decided is in the ledger before the next one is shown."""
    from mem0audit.report.review import due_lines, summary

    for line in summary(found, look):
        say(line)
    at = 0
    while at < len(found.due):
        one = found.due[at]
        sys.stderr.write("\n" + "\n".join(due_lines(one, at + 1, found, look)) + "\n")
        step = None
        while step is None:
            key = key_pressed(question_of(at + 1, len(found.due), len(one.near), look))
            sys.stderr.write(f"{key if key.isprintable() else ''}\n")
            try:
                step = _decided(key, one, decisions, look)
            except Mem0auditError as problem:
                say(problem.message)
        if step == 0:
            return
        at = max(at + step, 0)


def _decided(key: str, one: Due, decisions: Decisions, look: Screen) -> int | None:
    """What a key does: how far to go in the queue, 0 to end, None to ask again. Raises Mem0auditError."""
    if key in ("q", "\x04", ""):
        return 0
    if key == "s":
        decisions.skip(one.memory_id)
        return 1
    if key == "u":
        return -1 if decisions.undo() else None
    if key == "c":
        source = None
        if one.fact.source is None:
            source = _line("where can it be looked up? (Enter: not now) ")
            if source is None:
                return None
            from mem0audit.operations.ledgerfacts import checked_source

            source = checked_source(source)
        decisions.confirm(one.memory_id, source)
        return 1
    if key == "e":
        until = _line("until when? a day as 2026-12-05, or 7d (Enter: not now) ")
        if until is None:
            return None
        is_length = until[4:5] != "-"
        at = ledger_commands.moment(
            None if is_length else until, until if is_length else None, False, decisions.host.now
        )
        assert at is not None
        decisions.expire(one.memory_id, at)
        return 1
    if key == "r":
        return 1 if _replaced(one, decisions, look) else None
    if key == "d":
        decisions.delete(one.memory_id)
        return 1
    if key in ("1", "2", "3") and int(key) <= len(one.near):
        decisions.supersede(one.memory_id, one.near[int(key) - 1].memory_id)
        return 1
    return None


def _replaced(one: Due, decisions: Decisions, look: Screen) -> bool:
    """Asks for another text and has mem0 write it; False where nothing came of it. Raises Mem0auditError."""
    from mem0audit.operations.ledgerfacts import checked_source
    from mem0audit.operations.review import door_for_texts

    try:
        if decisions.config is None:
            raise UsageProblem(_NO_EMBEDDER)
        mem0 = door_for_texts(decisions.install, decisions.host).mem0
    except Mem0auditError as problem:
        say(problem.message)
        say(f"Afterwards:   {look.command('review replace', one.memory_id)} TEXT --source SOURCE")
        return False
    say(f"mem0 {mem0} writes it at once, with your own embedder: the text goes there.")
    text = _line("what is true now? (Enter: not now) ")
    source = None if text is None else _line("where can it be looked up? (Enter: not now) ")
    if text is None or source is None:
        return False
    with progress() as tell:
        warnings = decisions.replace(one, text, checked_source(source), tell)
    for warning in warnings:
        say(warning)
    return True


def key_pressed(question: str) -> str:
    """One key, as soon as it is pressed, also one that was pressed before the question. At the end of the input an
    empty text."""
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        sys.stderr.write(question)
        sys.stderr.flush()
        return os.read(fd, 1).decode("ascii", "replace").lower()
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _line(question: str) -> str | None:
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip() or None


def _finish(decisions: Decisions, named: Named, look: Screen) -> int:
    """Says what was decided, and does through mem0 what only mem0 can do."""
    words = {
        "confirmed": "confirmed",
        "replaced": "replaced",
        "expire": "given an end",
        "superseded": "superseded",
    }
    said = [f"{count:,} {word}" for what, word in words.items() if (count := len(decisions.made(what)))]
    say(f"In the ledger: {', '.join(said)}." if said else "Nothing new in the ledger.")
    code = exits.OK
    for memory_id in decisions.made("expire"):
        code = max(code, _end_in_mem0(memory_id, decisions))
    if not decisions.to_delete:
        return code
    from mem0audit.report.review import delete_command

    say(f"{len(decisions.to_delete):,} to delete, through mem0:")
    say(f"   {delete_command(decisions.to_delete, look)}")
    try:
        return max(
            code,
            delete.delete(
                memory=list(decisions.to_delete),
                history=named.history,
                qdrant_path=named.qdrant_path,
                qdrant_url=named.qdrant_url,
                api_key_env=named.api_key_env,
                collection=named.collection,
                config=named.config,
                agent_python=named.agent_python,
            ),
        )
    except Refused as problem:
        say(f"Not now: {problem.message}")
        for line in (problem.hint or "").splitlines():
            say(f"   {line}")
        say("They stay decided: the next review says so, and the command above does it.")
        return exits.OK


def _end_in_mem0(memory_id: str, decisions: Decisions) -> int:
    """Has mem0 write its own date, where it can now."""
    from mem0audit.operations.ledgerfacts import apply_expiry, plan_expiry, writing

    with writing(decisions.install, decisions.host) as book:
        at = book.memories([memory_id])[memory_id].expires_at
    plan = plan_expiry(decisions.install, decisions.host, memory_id, at)
    if plan.mem0 is None:
        say(f"{memory_id}: its end is in the ledger alone: {plan.why_not}.")
        return exits.OK
    apply_expiry(plan, decisions.host)
    return exits.OK
