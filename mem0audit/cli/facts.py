"""`mem0audit facts`: attributes of a subject, and when each value holds."""

from __future__ import annotations

from dataclasses import replace
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
)
from mem0audit.cli.output import check_output, confirm, say, screen, write
from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.install.host import Host

app = typer.Typer(
    help="Facts with when each value holds: remember, current, history.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="Whom or what it is of: alice, api.example.org.")
]
Attribute = Annotated[str, typer.Argument(metavar="ATTRIBUTE", help="What of it: employer, version.")]
SubjectOrAll = Annotated[
    str | None, typer.Argument(metavar="[SUBJECT]", help="Of this one alone.", show_default=False)
]
AttributeOrAll = Annotated[
    str | None, typer.Argument(metavar="[ATTRIBUTE]", help="And this attribute alone.", show_default=False)
]


def _find(
    history: str | None,
    qdrant_path: str | None,
    qdrant_url: str | None,
    api_key_env: str | None,
    collection: str | None,
    config: str | None,
    output: str | None,
) -> tuple[Install, Host]:
    check_output(output)
    install, host = Named(
        history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env
    ).find()
    check_output(output, install)
    return install, host


def _moment(text: str, now: float, *, end: bool = False) -> float:
    from mem0audit.core.given import FORMS, moment

    try:
        return moment(text, now, end=end)
    except ValueError:
        raise UsageProblem(f"{text}: no time", f"give {FORMS}") from None


@app.command("remember")
def _remember(
    subject: Subject,
    attribute: Attribute,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What it is, from then on.")],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="T", help="When it begins; also to come.  [default: now]"),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="S", help="Where it is known from: a mail, a file, a URL."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="ID", help="The mem0 memory that says it.")
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """Put down a value; the one before it ends where it begins.

    Nothing is overwritten. T is UTC unless it names an offset; a date is its start. A value to come holds when its time
    comes. Exit: 0, 2 usage, 4 refused (it does not begin after the last one, or before that one's end), 5 failed.
    """
    install, host = _find(history, qdrant_path, qdrant_url, api_key_env, collection, config, output)
    from mem0audit.core.validity import Fact
    from mem0audit.operations.facts import remember
    from mem0audit.report.facts import change_json, remembered_text

    begins = host.now if from_ is None else _moment(from_, host.now)
    new = Fact(subject, attribute, value, int(begins // 1), None, source, memory)
    found = remember(install, host, new, host.now)
    done = found.done
    if format_ is Format.JSON:
        write(change_json(done.fact, done.closed, None, superseded=found.superseded), output)
    else:
        look = screen(to_file=output is not None)
        told = remembered_text(done, look, superseded=found.superseded, why_not=found.why_not)
        write(told, output)
    return exits.OK


@app.command("current")
def _current(
    subject: Subject,
    attribute: AttributeOrAll = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """What holds now; of a subject alone its whole state.

    One attribute prints its value, a subject `attribute: value` lines, ready for a prompt. It is as-of now. Where
    nothing holds, nothing is printed. Exit: 0, 1 no value, 2 usage, 3 the ledger could not be read.
    """
    install, host = _find(history, qdrant_path, qdrant_url, api_key_env, collection, config, output)
    return _state(install, host, host.now, subject, attribute, format_, output)


@app.command("as-of")
def _as_of(
    at: Annotated[
        str, typer.Argument(metavar="T", help="2026-10-01 (its end, UTC), 2026-10-01T00:00:00, 7d.")
    ],
    subject: SubjectOrAll = None,
    attribute: AttributeOrAll = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """What held, or will hold, at a time.

    The start of a value belongs to it, its end to the next. A date, or a time to the minute, is its end.
    Exit: 0, 1 no value, 2 usage, 3 the ledger could not be read.
    """
    install, host = _find(history, qdrant_path, qdrant_url, api_key_env, collection, config, output)
    return _state(install, host, _moment(at, host.now, end=True), subject, attribute, format_, output)


def _state(
    install: Install,
    host: Host,
    at: float,
    subject: str | None,
    attribute: str | None,
    format_: Format,
    output: str | None,
) -> int:
    from mem0audit.core.validity import second
    from mem0audit.operations.facts import as_of
    from mem0audit.report.facts import facts_json, values_text

    facts = as_of(install, host, at, subject, attribute)
    if format_ is Format.JSON:
        write(facts_json(facts, second(at)), output)
    else:
        write(values_text(facts, subject=subject is not None, attribute=attribute is not None), output)
    return exits.OK if facts else exits.FINDINGS


@app.command("revoke")
def _revoke(
    subject: Subject,
    attribute: Attribute,
    at: Annotated[
        str | None, typer.Option("--at", metavar="T", help="When it ends; also to come.  [default: now]")
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask where a value is planned.")] = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """End a value, with none after it; the history keeps it.

    Where another value is planned it says first what it will do, and asks: the planned one stays. Refused (4): a value
    that is not known or over already, a time at or before its start. Exit: 0, 2 usage, 4 refused, 5 failed.
    """
    install, host = _find(history, qdrant_path, qdrant_url, api_key_env, collection, config, output)
    from mem0audit.operations.facts import apply_revoke, plan_revoke
    from mem0audit.report.facts import change_json, revoked_text, revoking_text

    ends = host.now if at is None else _moment(at, host.now)
    plan = plan_revoke(install, host, subject, attribute, ends, host.now)
    for line in revoking_text(plan, screen()).splitlines():
        say(line)
    if plan.sentences and not yes:
        confirm("End it?")
    done = apply_revoke(install, host, plan, host.now)
    if format_ is Format.JSON:
        fact = replace(done.fact, valid_to=done.at)
        write(change_json(fact, None, done.planned, superseded=False), output)
    else:
        write(revoked_text(done, screen(to_file=output is not None)), output)
    return exits.OK


@app.command("history")
def _history(
    subject: SubjectOrAll = None,
    attribute: AttributeOrAll = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """Every value there ever was, and those planned.

    Exit: 0, 1 no value, 2 usage, 3 the ledger could not be read.
    """
    install, host = _find(history, qdrant_path, qdrant_url, api_key_env, collection, config, output)
    from mem0audit.operations.facts import history as every
    from mem0audit.report.facts import facts_json, history_text

    facts = every(install, host, subject, attribute)
    if format_ is Format.JSON:
        write(facts_json(facts, None), output)
    else:
        write(history_text(facts, host.now, screen(to_file=output is not None)), output)
    return exits.OK if facts else exits.FINDINGS
