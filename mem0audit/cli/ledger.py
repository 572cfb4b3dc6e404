"""`mem0audit ledger`: what mem0 does not record of a memory, kept beside it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

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
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import confirm, say, screen, write
from mem0audit.core.errors import Refused, UsageProblem

app = typer.Typer(
    help="What mem0 does not record: source, confirmation, expiry, use.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The memory's id.")]
AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="DATE", help="To the end of this day (UTC), or a time: 2026-12-05T18:00Z."),
]
InOption = Annotated[str | None, typer.Option("--in", metavar="7d", help="So long from now: h, d or w.")]
NeverOption = Annotated[bool, typer.Option("--never", help="It holds on.")]


@app.command("status")
def _status(
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """How many memories are live, superseded, expired, unconfirmed.

    As of the last audit or snapshot, which fill the ledger. No store is opened.
    Exit: 0, 2 usage, 3 there is no ledger yet, 4 it cannot be used.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    install, host = named.find()
    from mem0audit.operations.ledgerfacts import ledger_status
    from mem0audit.report.ledger import status_json, status_text

    found = ledger_status(install, host)
    write(status_json(found) if format_ is Format.JSON else status_text(found, screen(named.words())))
    return exits.OK


@app.command("source")
def _source(
    memory_id: IdArgument,
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="A message, file, command or URL to look it up in."),
    ] = None,
    unknown: Annotated[bool, typer.Option("--unknown", help="Nobody knows.")] = False,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """What is known of a memory, or where it came from.

    Without SOURCE it says what the ledger has of it. A source says where somebody can look whether it is still true:
    without one a memory cannot be confirmed. Exit: 0, 2 usage, 3 no such memory, 4 refused.
    """
    if source is not None and unknown:
        raise UsageProblem("--unknown: and a source, which is it?")
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    install, host = named.find()
    from mem0audit.operations import ledgerfacts
    from mem0audit.report.ledger import known_json, known_text

    if source is None and not unknown:
        with ledgerfacts.writing(install, host) as book:
            known = ledgerfacts.row_of(book, install, host, memory_id)
    else:
        text = None if source is None else ledgerfacts.checked_source(source)
        known = ledgerfacts.note_source(install, host, memory_id, text)
    look = screen(named.words())
    write(
        known_json(known, install, host.now) if format_ is Format.JSON else known_text(known, look, host.now)
    )
    return exits.OK


def moment(at: str | None, in_: str | None, never: bool, now: float) -> float | None:
    """The moment that was named, in seconds since 1970; None for never. Raises UsageProblem."""
    if [at is not None, in_ is not None, never].count(True) != 1:
        raise UsageProblem("until when? Name one", "--at 2026-12-05, --in 7d, or --never")
    if never:
        return None
    if at is not None:
        from mem0audit.core.moments import until

        found = until(at)
        if found is None:
            raise UsageProblem(f"--at {at}: no moment", "a day as 2026-12-05, or a time as 2026-12-05T18:00Z")
        return found
    from mem0audit.core.retention import length

    try:
        return now + length(str(in_))
    except (ValueError, OverflowError):
        raise UsageProblem(f"--in {in_}: no length of time", "a number and h, d or w, as in 7d") from None


@app.command("expire")
def expire(
    memory_id: IdArgument,
    at: AtOption = None,
    in_: InOption = None,
    never: NeverOption = False,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Until when a memory holds: here, and in mem0 from 2.0.12 on.

    How long? 7 days for travel and "this week"; about a release cadence for a software version; a preference or a
    convention never: it goes to review. Whoever cannot say has a fact that drifts: review it instead.

    mem0 keeps a day, and hides a memory only once that day is before today in UTC: it never hides it early, and up to a
    day after the moment that you name; mem0audit.live and the ledger keep to the second. mem0's own update writes its
    date, agent stopped: text and vectors stay, no model is asked. It hides, and deletes nothing (T701).
    Exit: 0, 2 usage, 3 no such memory, 4 refused, 5 failed (run it again).
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    install, host = named.find()
    wanted = moment(at, in_, never, host.now)
    from mem0audit.operations.ledgerfacts import apply_expiry, plan_expiry
    from mem0audit.report.ledger import expiry_json, expiry_text

    plan = plan_expiry(install, host, memory_id, wanted)
    look = screen(named.words())
    as_json = format_ is Format.JSON
    if dry_run:
        write(expiry_json(plan, done=False) if as_json else expiry_text(plan, look, host.now, done=False))
        return exits.OK
    if not yes and plan.mem0 is not None:
        for line in expiry_text(plan, look, host.now, done=False).splitlines():
            say(line)
        confirm("Do it?")
    warnings = apply_expiry(plan, host)
    write(
        expiry_json(plan, done=True, warnings=warnings)
        if as_json
        else expiry_text(plan, look, host.now, done=True, warnings=warnings)
    )
    return exits.OK


@app.command("supersede")
def _supersede(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The id of what is outdated.")],
    new: Annotated[
        str | None, typer.Argument(metavar="[NEW]", help="The id of what says what is true now.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Nothing replaced it: OLD holds after all.")] = False,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Says that one memory replaced another.

    Both stay stored, and mem0 still retrieves both: an agent that asks through mem0audit.live does not get OLD.
    Deleting NEW through mem0audit deletes OLD with it, first, so that OLD is never all that is left. Deleted by the
    agent, it leaves OLD: T705 says so, and it does not become live again by itself.
    Exit: 0, 2 usage, 3 no such memory, 4 refused.
    """
    if (new is None) is not none:
        raise UsageProblem("by which one? Name NEW, or --none where nothing replaced it")
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    install, host = named.find()
    from mem0audit.operations.ledgerfacts import supersede
    from mem0audit.report.ledger import known_json, superseded_text

    older, newer = supersede(install, host, old, new)
    look = screen(named.words())
    write(
        known_json(older, install, host.now)
        if format_ is Format.JSON
        else superseded_text(older, newer, look)
    )
    return exits.OK


_BARE = re.compile(r"[\w-]+")


def results_in(lines: Iterator[str] | Any, *, bare: bool) -> Iterator[Any]:
    """The search results in JSON lines: one a line, or a whole answer of mem0's; with `bare` also plain ids.

    Raises UsageProblem for a line that is none."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            # an id as `jq -r .id` gives it
            value = line.strip() if bare and _BARE.fullmatch(line.strip()) else None
        found = value["results"] if isinstance(value, dict) and "results" in value else [value]
        for one in found if isinstance(found, list) else [None]:
            if bare and isinstance(one, (str, int)) and not isinstance(one, bool):
                one = {"id": str(one)}
            if isinstance(one, dict) and isinstance(one.get("id"), (str, int)) and str(one["id"]).strip():
                yield one
            else:
                raise UsageProblem(
                    f"line {number}: is no memory as mem0's search gives it",
                    'JSON lines with an "id" in each' + (", or ids alone" if bare else ""),
                )


@app.command("annotate")
def _annotate(
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
) -> int:
    """Search results in, those that hold out: JSON lines.

    For agents that are not in Python (in Python: mem0audit.live). Reads what mem0's search gave from standard input,
    one memory a line or the whole answer on one; leaves out what is expired or superseded, and adds `confirmed`, a day,
    to the others. Records no use: `ledger used` does. Exit: 0, 2 usage, 3 there is no ledger yet, 4 it cannot be used.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    install, host = named.find()
    from mem0audit.core.ledger import annotated
    from mem0audit.operations.ledgerfacts import rows_of

    items = list(results_in(_input(), bare=False))
    rows = rows_of(install, host, [str(one["id"]) for one in items])
    write("".join(json.dumps(one, ensure_ascii=True) + "\n" for one in annotated(items, rows, host.now)))
    return exits.OK


@app.command("used")
def _used(
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Records that memories were used now: JSON lines.

    Reads ids, or what mem0's search gave, from standard input, one a line. What was not used for six months shows in
    `ledger status` and as T704. Exit: 0, 2 usage, 3 there is no ledger yet, 4 it cannot be used.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    install, host = named.find()
    from mem0audit.operations.ledgerfacts import note_used
    from mem0audit.report.ledger import used_json, used_text

    ids = list(dict.fromkeys(str(one["id"]) for one in results_in(_input(), bare=True)))
    unknown = note_used(install, host, ids)
    write(used_json(ids, unknown) if format_ is Format.JSON else used_text(ids, unknown))
    return exits.OK


def _input() -> Any:
    if sys.stdin is None or sys.stdin.isatty():
        raise Refused("there is nothing on standard input", "memory search … | mem0audit ledger annotate")
    return sys.stdin
