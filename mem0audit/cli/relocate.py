"""`mem0audit relocate`: the vector store, and the log with it, to a folder that lasts; what it put aside, discarded."""

from __future__ import annotations

import os
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
    NoLedgerOption,
    QdrantPathOption,
    QdrantUrlOption,
)
from mem0audit.cli.output import confirm, say, screen, write
from mem0audit.cli.progress import progress
from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.agentconfig import AfterMove
    from mem0audit.core.model import Install
    from mem0audit.core.relocate import Relocated, RelocatePlan
    from mem0audit.install.host import Host


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("relocate")(_relocate)


def _relocate(
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="The new vector folder, on a disk; new, or empty."),
    ] = None,
    to_url: Annotated[
        str | None, typer.Option("--to-url", metavar="URL", help="Or a Qdrant server, for the vectors.")
    ] = None,
    to_api_key_env: Annotated[
        str | None,
        typer.Option(
            "--to-api-key-env", metavar="NAME", help="The variable that holds that server's API key."
        ),
    ] = None,
    with_history: Annotated[
        bool, typer.Option("--with-history", help="Move the log too: to history.db beside DIR.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the agent is stopped, and go on then.")
    ] = False,
    update_config: Annotated[
        bool,
        typer.Option("--update-config", help="Change the agent's configuration file too; the old one stays."),
    ] = False,
    leave_link: Annotated[
        bool, typer.Option("--leave-link", help="Leave links at the old places (mem0 1.0.8 and later).")
    ] = False,
    discard_replaced: Annotated[
        bool, typer.Option("--discard-replaced", help="Remove for good what moves put aside.")
    ] = False,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    no_ledger: NoLedgerOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Moves the stores off /tmp, to a folder that lasts.

    While the agent runs, it takes a verified pair of both stores beside DIR, which survives whatever happens at the
    stop, and says how to stop the agent. Run again then (or with --wait) it moves what is there by then, proven row by
    row; the old folder stays under a dated name. Cut off at any moment, the same command finishes it or takes it back.
    With --to-url the vectors go to a server, agent stopped: every point is read back there and compared, the folder
    stays where it is, and cut off, the same command goes on. From a server (--qdrant-url) both ways lead back: --to DIR
    to a folder, --to-url to another server.
    Exit: 0 moved, 2 usage, 3 a store is not there, 4 refused (also: the agent runs), 5 failed.
    """
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    as_json = format_ is Format.JSON
    if discard_replaced:
        if to is not None or to_url is not None or with_history or wait or update_config or leave_link:
            raise UsageProblem("--discard-replaced takes no --to, and nothing that goes with it")
        return _discard(named, dry_run=dry_run, yes=yes, as_json=as_json)
    if to_url is not None:
        others = {
            "--to": to, "--with-history": with_history, "--wait": wait, "--update-config": update_config,
            "--leave-link": leave_link,
        }  # fmt: skip
        for flag, given in others.items():
            if given:
                raise UsageProblem(f"--to-url takes no {flag}")
        return _to_server(
            named, to_url, to_api_key_env, ledger=not no_ledger, dry_run=dry_run, yes=yes, as_json=as_json
        )
    if to_api_key_env is not None:
        raise UsageProblem("--to-api-key-env goes with --to-url")
    if not to or "\0" in to:
        raise UsageProblem(
            "where to? --to DIR is missing" if to is None else "--to: not a path",
            "mem0audit relocate --to /srv/agent/qdrant --dry-run",
        )
    install, host = named.find()
    target = os.path.normpath(os.path.join(host.cwd, to))  # noqa: PTH118
    if install.vectors is None and install.server_url is not None:
        for flag, given in (("--with-history", with_history), ("--wait", wait), ("--update-config", update_config),
                            ("--leave-link", leave_link)):  # fmt: skip
            if given:
                raise UsageProblem(f"from a server, --to takes no {flag}")
        return _to_folder(
            install, host, target, named, ledger=not no_ledger, dry_run=dry_run, yes=yes, as_json=as_json
        )
    from mem0audit.operations.aftermove import plan_after
    from mem0audit.operations.relocate import plan_relocate
    from mem0audit.report import relocate as report

    plan = plan_relocate(install, host, target, with_history=with_history, ledger=not no_ledger)
    asked = (("--update-config", update_config), ("--leave-link", leave_link))
    plan = replace(plan, more=tuple(flag for flag, given in asked if given))
    after = plan_after(plan, host, update_config=update_config, leave_links=leave_link)
    words = named.words()
    if dry_run:
        text = report.plan_text(plan, screen(words), after, to_do_it=True)
        write(report.plan_json(plan, after) if as_json else text)
        return exits.OK
    if not yes and (wait or plan.way != "pair"):  # the pair alone changes nothing that is there
        for line in report.plan_text(plan, screen(words), after).splitlines():
            say(line)
        confirm(report.question(plan))
    return _go(plan, after, host, words, wait=wait, as_json=as_json)


def _go(
    plan: RelocatePlan, after: AfterMove, host: Host, words: tuple[str, ...], *, wait: bool, as_json: bool
) -> int:
    from mem0audit.core.agentconfig import DoneAfter
    from mem0audit.operations.aftermove import apply_after
    from mem0audit.operations.relocate import apply_relocate
    from mem0audit.report import relocate as report

    def tell(done: Relocated) -> None:
        for line in report.waiting_text(done, plan, screen(words), waits=True).splitlines():
            say(line)

    with progress() as bar:
        done = apply_relocate(plan, host, wait=tell if wait else None, progress=bar)
    waiting = done.state == "waiting"
    did = DoneAfter() if waiting else apply_after(after, plan, done, host)
    if as_json:
        write(report.relocated_json(done, after, did))
    elif waiting:
        write(report.waiting_text(done, plan, screen(words), waits=False))
    else:
        write(report.relocated_text(done, plan, screen(words)))
        write(report.after_text(done, after, did, screen(words)))
    return exits.REFUSED if waiting else exits.FAILED if did.problems else exits.OK


def _to_server(
    named: Named, url: str, key_env: str | None, *, ledger: bool, dry_run: bool, yes: bool, as_json: bool
) -> int:
    from mem0audit.core.server import Secret, parse_address
    from mem0audit.operations.toserver import apply_to_server, plan_to_server
    from mem0audit.report import toserver as report

    install, host = named.find()
    key = None
    if key_env is not None:
        text = host.environ.get(key_env, "").strip()
        if not text:
            raise UsageProblem(f"--to-api-key-env: the variable {key_env} is not set, or empty")
        key = Secret(text)
    address = parse_address(url, with_key=key is not None)
    key_from = f"${key_env}" if key_env is not None else None
    with progress() as bar:
        plan = plan_to_server(install, host, address, key, key_from=key_from, ledger=ledger, progress=bar)
    where = screen(named.words())
    more = ("--to-url", url, *(("--to-api-key-env", key_env) if key_env is not None else ()))
    more += () if ledger else ("--no-ledger",)
    if dry_run:
        write(report.plan_json(plan) if as_json else report.plan_text(plan, where, more))
        return exits.OK
    if not yes:
        for line in report.plan_text(plan, where).splitlines():
            say(line)
        confirm(f"Carry them to {plan.url}?")
    with progress() as bar:
        done = apply_to_server(plan, host, address, key, progress=bar)
    write(report.done_json(done) if as_json else report.done_text(done, where))
    return exits.OK


def _to_folder(
    install: Install,
    host: Host,
    to: str,
    named: Named,
    *,
    ledger: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    from mem0audit.operations.tofolder import apply_to_folder, plan_to_folder
    from mem0audit.report import toserver as report

    with progress() as bar:
        plan = plan_to_folder(install, host, to, ledger=ledger, progress=bar)
    where = screen(named.words())
    if dry_run:
        more = ("--to", to, *(() if ledger else ("--no-ledger",)))
        write(report.plan_json(plan) if as_json else report.plan_text(plan, where, more))
        return exits.OK
    if not yes:
        for line in report.plan_text(plan, where).splitlines():
            say(line)
        confirm(f"Carry them to {plan.url}?")
    with progress() as bar:
        done = apply_to_folder(plan, host, progress=bar)
    write(report.done_json(done) if as_json else report.done_text(done, where))
    return exits.OK


def _discard(named: Named, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    from mem0audit.operations.discard import apply_discard, plan_discard
    from mem0audit.report import relocate as report

    install, host = named.find()
    plan = plan_discard(install, host, "move")
    if dry_run or not yes:
        text = report.discard_plan_text(plan, screen(named.words()))
        if dry_run:
            write(report.discard_json(plan, removed=False) if as_json else text)
            return exits.OK
        for line in text.splitlines():
            say(line)
        confirm("Remove them for good?")
    removed = apply_discard(plan)
    write(
        report.discard_json(plan, removed=True)
        if as_json
        else report.discarded_text(removed, screen(named.words()))
    )
    return exits.OK
