"""`mem0audit schedule`: what is done every night, morning or week, by systemd or cron."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.audit import FailOn
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
)
from mem0audit.cli.output import check_output, say, screen, write
from mem0audit.cli.prune import OlderThanOption, UnusedOption, length_of
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
    from mem0audit.operations.schedule import SchedulePlan

AtOption = Annotated[str, typer.Option("--at", metavar="HH:MM", help="Local time.")]
UserOption = Annotated[bool, typer.Option("--user", help="Units of your own, without root.")]
RunAsOption = Annotated[
    str | None,
    typer.Option("--run-as", metavar="USER", help="As whom.  [default: the owner of the stores]"),
]
CronOption = Annotated[bool, typer.Option("--cron", help="A crontab line, not units.")]
InstallOption = Annotated[bool, typer.Option("--install", help="Write the unit files.")]
EnableOption = Annotated[bool, typer.Option("--enable", help="With --install: start the timer too.")]
OnFailureOption = Annotated[
    str | None,
    typer.Option("--on-failure", metavar="COMMAND", help="For a shell, where a run failed; $1 is its name."),
]
RunOption = Annotated[
    bool | None,
    typer.Option(
        "--run/--no-run",
        help="With --install: run it once now.  [default: run; not prune]",
        show_default=False,
    ),
]
ToFileOption = Annotated[
    str | None, typer.Option("--to", metavar="FILE", help="Written anew each time, for its owner alone.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Replace unit files that differ.")]

app = typer.Typer(
    help="By systemd or cron: snapshot, prune, audit, new, review; status.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("snapshot")
def _snapshot(
    to: ToOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    last: LastOption = None,
    daily: DailyOption = None,
    weekly: WeeklyOption = None,
    monthly: MonthlyOption = None,
    within: WithinOption = None,
    at: AtOption = "02:30",
    user: UserOption = False,
    run_as: RunAsOption = None,
    cron: CronOption = False,
    install_: InstallOption = False,
    enable_: EnableOption = False,
    run: RunOption = None,
    on_failure: OnFailureOption = None,
    yes: YesOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """A snapshot every night, verified, and older ones expired.

    Each step runs only when the one before ended well; what fails is said in the journal (or by cron's mail), and the
    service has failed. Prints a systemd service and timer with the commands that set them up, and changes nothing;
    --install writes the files and runs it once; only --enable starts the timer. Without a policy: 14 days, 8 weeks, 12
    months.
    Exit: 0, 1 the run failed, 2 usage, 3 a store is not there, 4 refused, 5 failed.
    """
    _check_flags(cron=cron, install=install_, enable=enable_, run=run)
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    check_output(output)
    install, host = named.find()
    folder = _folder(to, host)
    check_output(output, install)
    from mem0audit.core.schedule import DEFAULT_POLICY
    from mem0audit.operations.schedule import plan_schedule

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
        on_failure=on_failure,
    )
    return _set_up(plan, host, format_, output, install=install_, enable=enable_, yes=yes, run=run)


@app.command("prune")
def _prune(
    older_than: OlderThanOption = None,
    unused: UnusedOption = False,
    stop_unit: Annotated[
        str | None,
        typer.Option(
            "--stop-unit", metavar="NAME", help="Stop the agent's service for it, and start it again."
        ),
    ] = None,
    to: ToOption = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    at: AtOption = "03:30",
    user: UserOption = False,
    run_as: RunAsOption = None,
    cron: CronOption = False,
    install_: InstallOption = False,
    enable_: EnableOption = False,
    run: RunOption = None,
    on_failure: OnFailureOption = None,
    yes: YesOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """Expired and superseded memories removed every night, after a snapshot.

    With --stop-unit the agent's service is stopped for it, on nights when something is to go and where it runs, and
    always started again, whatever becomes of the job. Without, and while the agent runs, the job lists what is to go,
    changes nothing and fails with 4; `schedule status` says so. Prints a systemd service and timer with the commands
    that set them up, and changes nothing; --install writes the files; since it deletes and may stop the agent, it runs
    once now only with --run; only --enable starts the timer.
    Exit: 0, 1 the run failed, 2 usage, 3 a store is not there, 4 refused, 5 failed.
    """
    _check_flags(cron=cron, install=install_, enable=enable_, run=run)
    length_of(older_than)
    named = Named(history, qdrant_path, qdrant_url, collection, config, agent_python, api_key_env)
    check_output(output)
    install, host = named.find()
    folder = _folder(to, host)
    check_output(output, install)
    from mem0audit.operations.schedule import plan_pruning

    if install.vectors is None and install.server_url is None:
        raise Refused(
            f"the vector store is {install.provider}, and no Qdrant: this version does not prune it"
        )
    plan = plan_pruning(
        install,
        host,
        _program(),
        _install_words(named, install, host),
        folder,
        at,
        "user" if user else "system",
        run_as,
        older_than=older_than,
        unused=unused,
        stop_unit=stop_unit,
        cron=cron,
        on_failure=on_failure,
    )
    return _set_up(plan, host, format_, output, install=install_, enable=enable_, yes=yes, run=run)


@app.command("new")
def _new(
    to: ToFileOption = None,
    mail: Annotated[
        str | None,
        typer.Option("--mail", metavar="ADDRESS", help="Through the program `mail`; none if nothing is new."),
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    qdrant_url: QdrantUrlOption = None,
    api_key_env: ApiKeyEnvOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    at: AtOption = "07:00",
    user: UserOption = False,
    run_as: RunAsOption = None,
    install_: InstallOption = False,
    enable_: EnableOption = False,
    run: RunOption = None,
    on_failure: OnFailureOption = None,
    yes: YesOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """What was added since yesterday, every morning.

    Into a file or by mail, with where it came from; never into the journal. Prints a systemd service and timer with the
    commands that set them up, and changes nothing; --install writes the files and runs it once; only --enable starts
    the timer. In a crontab `mem0audit new --since 25h --quiet` does the same: cron mails what it says.
    Exit: 0, 1 the run failed, 2 usage, 3 a store is not there, 4 refused, 5 failed.
    """
    _check_flags(cron=False, install=install_, enable=enable_, run=run)
    named = Named(history, qdrant_path, qdrant_url, collection, config, api_key_env=api_key_env)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    check_output(to, install)
    from mem0audit.operations.schedule import plan_telling

    plan = plan_telling(
        install,
        host,
        _program(),
        _install_words(named, install, host),
        at,
        "user" if user else "system",
        run_as,
        to=to,
        mail=mail,
        mailer=shutil.which("mail"),
        on_failure=on_failure,
    )
    return _set_up(plan, host, format_, output, install=install_, enable=enable_, yes=yes, run=run)


@app.command("review")
def _review(
    to: ToFileOption = None,
    mail: Annotated[
        str | None,
        typer.Option("--mail", metavar="ADDRESS", help="Through the program `mail`; none if nothing is due."),
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    at: AtOption = "07:30",
    user: UserOption = False,
    run_as: RunAsOption = None,
    install_: InstallOption = False,
    enable_: EnableOption = False,
    run: RunOption = None,
    on_failure: OnFailureOption = None,
    yes: YesOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """What nobody confirmed for long, every Monday.

    The queue of `mem0audit review`, 20 of them, into a file or by mail; never into the journal, and nothing is decided
    by itself. Prints a systemd service and timer with the commands that set them up, and changes nothing; --install
    writes the files and runs it once; only --enable starts the timer. In a crontab `mem0audit review --list --quiet`
    does the same: cron mails what it says.
    Exit: 0, 1 the run failed, 2 usage, 3 a store is not there, 4 refused, 5 failed.
    """
    _check_flags(cron=False, install=install_, enable=enable_, run=run)
    named = Named(history, qdrant_path, None, collection, config)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    check_output(to, install)
    from mem0audit.operations.schedule import plan_telling

    if install.vectors is None:
        raise Refused("the vector store is no embedded Qdrant folder: this version reviews those only")
    plan = plan_telling(
        install,
        host,
        _program(),
        _install_words(named, install, host),
        at,
        "user" if user else "system",
        run_as,
        to=to,
        mail=mail,
        mailer=shutil.which("mail"),
        job="review",
        on_failure=on_failure,
    )
    return _set_up(plan, host, format_, output, install=install_, enable=enable_, yes=yes, run=run)


@app.command("audit")
def _audit(
    fail_on: Annotated[
        FailOn | None, typer.Option("--fail-on", help="It fails from this severity on.  [default: medium]")
    ] = None,
    history: HistoryOption = None,
    qdrant_path: QdrantPathOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    agent_python: AgentPythonOption = None,
    at: AtOption = "05:30",
    user: UserOption = False,
    run_as: RunAsOption = None,
    cron: CronOption = False,
    install_: InstallOption = False,
    enable_: EnableOption = False,
    run: RunOption = None,
    on_failure: OnFailureOption = None,
    yes: YesOption = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
) -> int:
    """An audit every night, beside the running agent.

    Findings make it fail, so that `schedule status` and --on-failure tell of them; what it says is in the journal, or
    in cron's mail, without what memories say. Prints a systemd service and timer with the commands that set them up,
    and changes nothing; --install writes the files and runs it once; only --enable starts the timer.
    Exit: 0, 1 the run failed, 2 usage, 3 a store is not there, 4 refused, 5 failed.
    """
    _check_flags(cron=cron, install=install_, enable=enable_, run=run)
    named = Named(history, qdrant_path, None, collection, config, agent_python)
    check_output(output)
    install, host = named.find()
    check_output(output, install)
    from mem0audit.operations.schedule import plan_auditing

    plan = plan_auditing(
        install,
        host,
        _program(),
        _install_words(named, install, host),
        at,
        "user" if user else "system",
        run_as,
        fail_on=fail_on.value if fail_on is not None else None,
        cron=cron,
        on_failure=on_failure,
    )
    return _set_up(plan, host, format_, output, install=install_, enable=enable_, yes=yes, run=run)


def _check_flags(*, cron: bool, install: bool, enable: bool, run: bool | None) -> None:
    """Raises UsageProblem for flags that mean nothing together."""
    if cron and install:
        raise UsageProblem("--cron and --install: a crontab line is put in place with crontab -e")
    if enable and not install:
        raise UsageProblem("--enable: only with --install")
    if run is not None and not install:
        raise UsageProblem("--run and --no-run: only with --install")


def _set_up(
    plan: SchedulePlan,
    host: Host,
    format_: Format,
    output: str | None,
    *,
    install: bool,
    enable: bool,
    yes: bool,
    run: bool | None,
) -> int:
    """Does with a plan what was asked for, and says it."""
    from mem0audit.operations.schedule import RunOnce, install_units, run_once
    from mem0audit.operations.schedule import enable as start
    from mem0audit.report.schedule import installed_text, once, plan_json, plan_text

    for note in plan.notes:
        say(f"mem0audit: {note}")
    done = install_units(plan, host, overwrite=yes) if install else ()
    if enable:
        start(plan, host)
    ran = None
    if install:
        if run is False:
            ran = RunOnce(why_not="--no-run was given")
        elif run is None and plan.schedule.job == "prune":
            ran = RunOnce(why_not="it deletes, and may stop the agent: --run runs it now")
        else:
            say(f"mem0audit: running it once, as the timer will: {once(plan).partition(';')[0]}")
            ran = run_once(plan, host)
    view = screen(to_file=output is not None)
    if format_ is Format.JSON:
        write(plan_json(plan, view, done, enabled=enable, ran=ran), output)
    elif ran is not None:
        write(installed_text(plan, done, view, enabled=enable, ran=ran), output)
    else:
        write(plan_text(plan, view), output)
    return exits.FINDINGS if ran is not None and ran.failed else exits.OK


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

    Of a run that failed, how and what it said last, where the journal can be read. "database is locked" there means
    that another program was writing for longer than is waited: what was not done is done by the next run.
    Exit: 0, 1 the last run failed, 3 unit files are there and systemd cannot be asked.
    """
    from mem0audit.operations.schedule import schedule_status
    from mem0audit.report.schedule import status_json, status_text

    status = schedule_status(_host())
    write(status_json(status) if format_ is Format.JSON else status_text(status, screen()))
    codes = [exits.FINDINGS for one in status.found if one.last_failed]
    codes += [exits.NOT_READ for one in status.not_checked if one.gap]
    return exits.first_of(codes)
