"""`snapshot keep` and `snapshot expire`: what stays, what goes, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mem0audit.cli import exits
from mem0audit.cli.options import Format, FormatOption, OutputOption
from mem0audit.cli.output import check_output, confirm, screen, write
from mem0audit.cli.progress import progress
from mem0audit.cli.snapshot import ToOption, _folder, _host, folder_of
from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.retention import Policy

LastOption = Annotated[int | None, typer.Option("--keep-last", metavar="N", min=1, help="The newest N.")]
DailyOption = Annotated[
    int | None, typer.Option("--keep-daily", metavar="N", min=1, help="The newest of each of N days (UTC).")
]
WeeklyOption = Annotated[
    int | None, typer.Option("--keep-weekly", metavar="N", min=1, help="The newest of each of N ISO weeks.")
]
MonthlyOption = Annotated[
    int | None, typer.Option("--keep-monthly", metavar="N", min=1, help="The newest of each of N months.")
]
WithinOption = Annotated[
    str | None,
    typer.Option(
        "--keep-within", metavar="30d", help="All of the last 12h, 30d or 8w, counted from the newest."
    ),
]


def policy_of(
    last: int | None, daily: int | None, weekly: int | None, monthly: int | None, within: str | None
) -> Policy:
    """The policy that these flags say. Raises UsageProblem."""
    from mem0audit.core.retention import Policy, length

    if within is not None:
        try:
            length(within)
        except ValueError:
            raise UsageProblem(
                "--keep-within: no length of time", "a number and h, d or w, as in 12h, 30d, 8w"
            ) from None
    return Policy(last, daily, weekly, monthly, within)


def register(app: typer.Typer) -> None:
    """Adds both commands to the group `snapshot`."""
    app.command("keep")(_keep)
    app.command("expire")(_expire)


def _keep(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its path.")],
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why it is kept: one line.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Take the mark off.")] = False,
    to: ToOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Marks a snapshot, so that expire never removes it.

    The mark lies beside the snapshots; nothing in one changes.
    Exit: 0, 2 usage, 3 there is none, 4 another run works there, 5 failed.
    """
    if off == (reason is not None):
        raise UsageProblem("say why it is kept with --reason, or take the mark off with --off")
    host = _host()
    folder = folder_of(name, to, host)
    from mem0audit.operations.marks import keep
    from mem0audit.report.expire import keep_json, keep_text

    path, kept = keep(folder, name, reason, host.now)
    write(keep_json(path, kept) if format_ is Format.JSON else keep_text(path, kept))
    return exits.OK


def _expire(
    to: ToOption = None,
    last: LastOption = None,
    daily: DailyOption = None,
    weekly: WeeklyOption = None,
    monthly: MonthlyOption = None,
    within: WithinOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    format_: FormatOption = Format.TEXT,
    output: OutputOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing where all went well.")] = False,
) -> int:
    """Removes the snapshots that a policy does not keep.

    It says of each one kept why. Only a good one uses up a place: verified (a quick look is none), settled, not dated
    in the future. One not verified, or found bad, stays while the policy would keep it were it good: it may be the
    better copy, so verify first. One not settled competes with its like, and takes no place from a good one. These
    stay whatever the policy says: the last good pair, what `snapshot keep` marked, what is dated in the future, what
    has a damaged manifest. Snapshots of several installs (host, paths) in one folder are each given all the places.

    Exit: 0 done, 2 no policy, 3 a manifest or the marks do not read, 4 not confirmed or in use, 5 failed.
    """
    policy = policy_of(last, daily, weekly, monthly, within)
    check_output(output)
    host = _host()
    folder = _folder(to, host)
    from mem0audit.operations.expire import expire, plan_expire
    from mem0audit.report.expire import expire_json, expired_text, plan_text

    plan = plan_expire(folder, policy, host.now)
    code = exits.NOT_READ if plan.damaged else exits.OK
    view = screen(to_file=output is not None)
    if dry_run:
        write(expire_json(plan, None) if format_ is Format.JSON else plan_text(plan, view), output)
        return code
    asked = bool(plan.removed) and not yes
    if asked:
        if format_ is Format.TEXT:
            write(plan_text(plan, view), output)
        confirm(f"Remove {len(plan.removed)} of {len(plan.decisions)} snapshots?")
    with progress(quiet=quiet) as tell:
        done = expire(plan, tell)
    if format_ is Format.JSON:
        write(expire_json(plan, done), output)
    elif not (quiet and code == exits.OK and not done.spared):
        write(expired_text(done, view, listed=not asked), output)
    return code
