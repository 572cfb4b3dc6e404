"""`mem0audit schedule`: what is done every night, morning or week, by systemd or cron."""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    NodeOption,
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
    from mem0audit.core.schedule import What
    from mem0audit.install.host import Host
    from mem0audit.operations.schedule import SchedulePlan
    from mem0audit.operations.scheduled import RunOnce

ToFileOption = Annotated[
    str | None, typer.Option("--to", metavar="FILE", help="Written anew each time, for its owner alone.")
]
MailOption = Annotated[
    str | None,
    typer.Option(
        "--mail", metavar="ADDRESS", help="Through the program `mail`, where there is something to tell."
    ),
]

app = typer.Typer(
    help="By systemd or cron: snapshot, prune, audit, new, review; status.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True)
class _Names:
    """The options of every job that name the install."""

    history: HistoryOption = None
    qdrant_path: QdrantPathOption = None
    qdrant_url: QdrantUrlOption = None
    api_key_env: ApiKeyEnvOption = None
    collection: CollectionOption = None
    config: ConfigOption = None


@dataclass(frozen=True)
class _Options:
    """The other options of every job."""

    at: Annotated[str, typer.Option("--at", metavar="HH:MM", help="Local time.")]
    user: Annotated[bool, typer.Option("--user", help="Units of your own, without root.")] = False
    run_as: Annotated[
        str | None,
        typer.Option("--run-as", metavar="USER", help="As whom.  [default: the owner of the stores]"),
    ] = None
    cron: Annotated[bool, typer.Option("--cron", help="A crontab line, not units.")] = False
    install: Annotated[bool, typer.Option("--install", help="Write the unit files.")] = False
    enable: Annotated[bool, typer.Option("--enable", help="With --install: start the timer too.")] = False
    run: Annotated[
        bool | None,
        typer.Option(
            "--run/--no-run",
            help="With --install: run it once now.  [default: run; not prune]",
            show_default=False,
        ),
    ] = None
    on_failure: Annotated[
        str | None,
        typer.Option(
            "--on-failure", metavar="COMMAND", help="For a shell, where a run failed; $1 is its name."
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace unit files that differ.")] = False
    format_: FormatOption = Format.TEXT
    output: OutputOption = None

    def check(self) -> None:
        """Raises UsageProblem for flags that mean nothing together."""
        if self.cron and self.install:
            raise UsageProblem("--cron and --install: a crontab line is put in place with crontab -e")
        if self.enable and not self.install:
            raise UsageProblem("--enable: only with --install")
        if self.run is not None and not self.install:
            raise UsageProblem("--run and --no-run: only with --install")


_PRINTS = """
Prints a systemd service and timer with the commands that set them up, and changes nothing; --install writes the files
and runs it once{}; only --enable starts the timer; --cron prints a crontab line.
Exit: 0, 1 the run failed, 2 usage, 3 a store is not there, 4 refused, 5 failed.
"""


def _job(
    name: str, at: str, *, but: str = "", **more: object
) -> Callable[[Callable[..., What]], Callable[..., What]]:
    """The command `schedule NAME`. The function it is put on says what is to be done, from the install, the machine and
    the options of its own; what every job has is added here. `at` is when it runs unless --at says so, `but` a word
    about the run at --install, `more` further options that name the install."""

    def add(what_of: Callable[..., What]) -> Callable[..., What]:
        # names that only the type checker knows
        unknown = dict.fromkeys(("Install", "Host", "What"))
        _install, _host, *own = inspect.signature(what_of, eval_str=True, locals=unknown).parameters.values()
        names, options = (
            inspect.signature(made, eval_str=True).parameters.values() for made in (_Names, _Options)
        )
        extra = [
            inspect.Parameter(key, _KEYWORD, default=None, annotation=kind) for key, kind in more.items()
        ]

        def run(**given: Any) -> int:
            def taken(parameters: Any) -> dict[str, Any]:
                return {one.name: given.pop(one.name) for one in parameters}

            asked = _Options(**taken(options))
            asked.check()
            nodes = tuple(given.pop("node", None) or ())
            named = Named(**taken(names), agent_python=given.pop("agent_python", None), nodes=nodes)
            return _set_up(asked, named, lambda install, host: what_of(install, host, **given))

        everything = [*own, *names, *extra, *options]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                one.replace(kind=_KEYWORD, default=at if one.name == "at" else one.default)
                for one in everything
            ]
        )
        run.__doc__ = inspect.cleandoc(what_of.__doc__ or "") + _PRINTS.format(but)
        app.command(name)(run)
        return what_of

    return add


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


@_job("snapshot", "02:30", agent_python=AgentPythonOption, node=NodeOption)
def _snapshot(
    install: Install,
    host: Host,
    to: ToOption = None,
    last: LastOption = None,
    daily: DailyOption = None,
    weekly: WeeklyOption = None,
    monthly: MonthlyOption = None,
    within: WithinOption = None,
) -> What:
    """A snapshot every night, verified, and older ones expired.

    Each step runs only when the one before ended well; what fails is said in the journal (or by cron's mail), and the
    service has failed. Without a policy: 14 days, 8 weeks, 12 months.
    """
    from mem0audit.core.schedule import DEFAULT_POLICY, Snapshot

    policy = policy_of(last, daily, weekly, monthly, within)
    return Snapshot(_folder(to, host), DEFAULT_POLICY if policy.empty else policy, install.nodes)


@_job(
    "prune",
    "03:30",
    but=" only with --run, since it deletes and may stop the agent",
    agent_python=AgentPythonOption,
    node=NodeOption,
)
def _prune(
    install: Install,
    host: Host,
    older_than: OlderThanOption = None,
    unused: UnusedOption = False,
    stop_unit: Annotated[
        str | None,
        typer.Option(
            "--stop-unit", metavar="NAME", help="Stop the agent's service for it, and start it again."
        ),
    ] = None,
    to: ToOption = None,
) -> What:
    """Expired and superseded memories removed, every night.

    After a snapshot. With --stop-unit the agent's service is stopped for it, on nights when something is to go and
    where it runs, and always started again, whatever becomes of the job. Without, and while the agent runs, the job
    lists what is to go, changes nothing and fails with 4; `schedule status` says so.
    """
    from mem0audit.core.schedule import Prune

    length_of(older_than)
    return Prune(_folder(to, host), older_than, unused, stop_unit, nodes=install.nodes)


@_job("audit", "05:30", agent_python=AgentPythonOption)
def _audit(
    install: Install,
    host: Host,
    fail_on: Annotated[
        FailOn | None, typer.Option("--fail-on", help="It fails from this severity on.  [default: medium]")
    ] = None,
) -> What:
    """An audit every night, beside the running agent.

    Findings make it fail, so that `schedule status` and --on-failure tell of them; what it says is in the journal, or
    in cron's mail, without what memories say.
    """
    from mem0audit.core.schedule import Audit

    return Audit(fail_on.value if fail_on is not None else None)


@_job("new", "07:00")
def _new(install: Install, host: Host, to: ToFileOption = None, mail: MailOption = None) -> What:
    """What was added since yesterday, every morning.

    Into a file or by mail (with --cron and neither, cron mails it), with where it came from; never into the journal.
    """
    from mem0audit.core.schedule import Tell

    check_output(to, install)
    return Tell("new", to, mail, shutil.which("mail") or "")


@_job("review", "07:30")
def _review(install: Install, host: Host, to: ToFileOption = None, mail: MailOption = None) -> What:
    """What nobody confirmed for long, every Monday.

    The queue of `mem0audit review`, 20 of them, into a file or by mail (with --cron and neither, cron mails it); never
    into the journal, and nothing is decided by itself.
    """
    from mem0audit.core.schedule import Tell

    check_output(to, install)
    return Tell("review", to, mail, shutil.which("mail") or "")


def _set_up(asked: _Options, named: Named, what_of: Callable[[Install, Host], What]) -> int:
    """Plans it, does with the plan what was asked for, and says it."""
    check_output(asked.output)
    install, host = named.find()
    check_output(asked.output, install)
    what = what_of(install, host)
    from mem0audit.operations.schedule import Asked, enable, install_units, plan_schedule
    from mem0audit.report.schedule import installed_text, plan_json, plan_text

    plan = plan_schedule(
        install,
        host,
        what,
        Asked(
            (*_trusting(install, host), *_program()),
            _install_words(named, install, host),
            asked.at,
            "user" if asked.user else "system",
            asked.run_as,
            asked.cron,
            asked.on_failure,
        ),
    )
    for note in plan.notes:
        say(f"mem0audit: {note}")
    done = install_units(plan, host, overwrite=asked.yes) if asked.install else ()
    if asked.enable:
        enable(plan, host)
    ran = _run_once(plan, host, asked.run) if asked.install else None
    view = screen(to_file=asked.output is not None)
    if asked.format_ is Format.JSON:
        write(plan_json(plan, view, done, enabled=asked.enable, ran=ran), asked.output)
    elif ran is not None:
        write(installed_text(plan, done, view, enabled=asked.enable, ran=ran), asked.output)
    else:
        write(plan_text(plan, view), asked.output)
    return exits.FINDINGS if ran is not None and ran.failed else exits.OK


def _run_once(plan: SchedulePlan, host: Host, wanted: bool | None) -> RunOnce:
    """The run by hand at --install, or why there is none."""
    from mem0audit.operations.scheduled import RunOnce, run_once
    from mem0audit.report.schedule import once

    if wanted is False:
        return RunOnce(why_not="--no-run was given")
    if wanted is None and plan.nightly.job == "prune":
        return RunOnce(why_not="it deletes, and may stop the agent: --run runs it now")
    say(f"mem0audit: running it once, as the timer will: {once(plan).partition(';')[0]}")
    return run_once(plan, host)


def _trusting(install: Install, host: Host) -> tuple[str, ...]:
    """What gives the job the authority that the server's certificate is of, where this environment names one."""
    named = host.environ.get("SSL_CERT_FILE")
    if not named or install.server_url is None or not install.server_url.value.startswith("https:"):
        return ()
    return shutil.which("env") or "/usr/bin/env", f"SSL_CERT_FILE={Path(host.cwd, named)}"


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
    from mem0audit.operations.scheduled import schedule_status
    from mem0audit.report.schedule import status_json, status_text

    status = schedule_status(_host())
    write(status_json(status) if format_ is Format.JSON else status_text(status, screen()))
    codes = [exits.FINDINGS for one in status.found if one.last_failed]
    codes += [exits.NOT_READ for one in status.not_checked if one.gap]
    return exits.first_of(codes)
