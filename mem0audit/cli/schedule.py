"""`mem0audit schedule`: snapshots every night, by systemd or cron."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.options import (
    AgentPythonOption,
    CollectionOption,
    ConfigOption,
    Format,
    FormatOption,
    HistoryOption,
    Named,
    OutputOption,
    QdrantPathOption,
)
from mem0audit.cli.output import check_output, say, screen, write
from mem0audit.cli.retention import (
    DailyOption,
    LastOption,
    MonthlyOption,
    WeeklyOption,
    WithinOption,
    policy_of,
)
from mem0audit.cli.snapshot import ToOption, _folder, _host
from mem0audit.core.errors import Refused, UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.install.host import Host

app = typer.Typer(
    help="Snapshots every night, by systemd or cron: snapshot, status.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("snapshot")
def _snapshot(
    to: ToOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    last: LastOption = None,
    daily: DailyOption = None,
    weekly: WeeklyOption = None,
    monthly: MonthlyOption = None,
    within: WithinOption = None,
    at: Annotated[str, typer.Option("--at", metavar="HH:MM", help="Local time.")] = "02:30",
    user: Annotated[bool, typer.Option("--user", help="Units of your own, without root.")] = False,
    run_as: Annotated[
        str | None,
        typer.Option("--run-as", metavar="USER", help="As whom.  [default: the owner of the stores]"),
    ] = None,
    cron: Annotated[bool, typer.Option("--cron", help="A crontab line, not units.")] = False,
    install_: Annotated[bool, typer.Option("--install", help="Write the unit files.")] = False,
    enable_: Annotated[bool, typer.Option("--enable", help="With --install: start the timer too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace unit files that differ.")] = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """A snapshot every night, verified, and older ones expired.

    Each step runs only when the one before ended well; what fails is said in the journal (or by cron's mail), and the
    service has failed. Prints a systemd service and timer with the commands that set them up, and changes nothing;
    --install writes the files, and enables nothing unless --enable. Without a policy: 14 days, 8 weeks, 12 months.
    Exit: 0, 2 usage, 3 a store is not there, 4 refused, 5 failed.
    """
    if cron and install_:
        raise UsageProblem("--cron and --install: a crontab line is put in place with crontab -e")
    if enable_ and not install_:
        raise UsageProblem("--enable: only with --install")
    named = Named(history, qdrant_path, None, collection, config, agent_python)
    check_output(output)
    install, host = named.find()
    folder = _folder(to, host)
    check_output(output, install)
    from mem0audit.core.schedule import DEFAULT_POLICY
    from mem0audit.operations.schedule import enable, install_units, plan_schedule
    from mem0audit.report.schedule import installed_text, plan_json, plan_text

    policy = policy_of(last, daily, weekly, monthly, within)
    plan = plan_schedule(
        install,
        host,
        _program(),
        (*_install_words(named, install, host), *(w for node in install.nodes for w in ("--node", node))),
        folder,
        DEFAULT_POLICY if policy.empty else policy,
        at,
        "user" if user else "system",
        run_as,
        cron=cron,
    )
    for note in plan.notes:
        say(f"mem0audit: {note}")
    done = install_units(plan, host, overwrite=yes) if install_ else ()
    if enable_:
        enable(plan.scope, host)
    view = screen(to_file=output is not None)
    if format_ is Format.JSON:
        write(plan_json(plan, view, done, enabled=enable_), output)
    elif install_:
        write(installed_text(plan, done, enabled=enable_), output)
    else:
        write(plan_text(plan, view), output)
    return exits.OK


def _program() -> tuple[str, ...]:
    """The words that start this program from any folder and environment. Raises Refused where there are none."""
    given = os.environ.get("MEM0AUDIT_PROGRAM")
    words = shlex.split(given) if given else [sys.argv[0] if sys.argv else ""]
    if Path(words[0]).name == "__main__.py" or not words[0]:
        return _as_module()
    found = words[0] if "/" in words[0] else shutil.which(words[0])
    if found is None:
        return _as_module()
    return str(Path.cwd() / found), *words[1:]


def _as_module() -> tuple[str, ...]:
    import mem0audit

    package = Path(mem0audit.__file__).parents[1]
    if package.name not in ("site-packages", "dist-packages"):
        raise Refused(
            "this mem0audit runs from a checkout, and no job could start it so",
            "install it (pipx install .), or call scripts/mem0audit",
        )
    return sys.executable, "-m", "mem0audit"


def _install_words(named: Named, install: Install, host: Host) -> tuple[str, ...]:
    """The flags that name this install from any folder: what --config names stays with the file, so that a change
    there counts; everything else is spelled out, since a job has another home and environment."""
    words: list[str] = []
    config = named.config
    if config is not None:
        path = os.path.join(host.cwd, os.path.expanduser(config))  # noqa: PTH111, PTH118
        if not os.path.isfile(path):  # noqa: PTH113
            raise UsageProblem(f"--config {config}: name a file: a job that runs at night imports no module")
        words += ["--config", path]
    if config is None or named.history is not None:
        words += ["--history", install.history.value]
    if install.vectors is not None and (config is None or named.qdrant_path is not None):
        words += ["--qdrant-path", install.vectors.value]
    if install.server_url is not None and config is None:
        words += ["--qdrant-url", install.server_url.value]
    if install.server_key_from is not None and (
        config is None or install.server_key_from != install.config_file
    ):
        raise UsageProblem(
            f"the server's key comes from {install.server_key_from}, which a job that runs at night does not have",
            "put it into mem0's config, in a file with mode 0600, and name that with --config",
        )
    from mem0audit.install.locate import DEFAULT

    if named.collection is not None or (config is None and install.collection.decided_by != DEFAULT):
        words += ["--collection", install.collection.value]
    if named.agent_python is not None and install.agent_python is not None:
        words += ["--agent-python", install.agent_python]
    return tuple(words)


@app.command("status")
def _status(format_: FormatOption = Format.TEXT) -> int:
    """What is scheduled here, when it last ran and runs next.

    Exit: 0, 1 the last run failed, 3 unit files are there and systemd cannot be asked.
    """
    from mem0audit.operations.schedule import schedule_status
    from mem0audit.report.schedule import status_json, status_text

    status = schedule_status(_host())
    write(status_json(status) if format_ is Format.JSON else status_text(status, screen()))
    codes = [exits.FINDINGS for one in status.found if one.last_failed]
    codes += [exits.NOT_READ for one in status.not_checked if one.gap]
    return exits.first_of(codes)
