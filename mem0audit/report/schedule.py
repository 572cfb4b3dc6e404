"""What `schedule` says, for people and for machines."""

from __future__ import annotations

from mem0audit.core.schedule import Job, Prune, Tell, name_of, service_of, timer_of
from mem0audit.operations.schedule import SchedulePlan
from mem0audit.operations.scheduled import SKIPPED, RunOnce, Scheduled, ScheduleStatus
from mem0audit.report.escape import escape, shell_word
from mem0audit.report.json import dump, not_checked
from mem0audit.report.screen import Screen, table


def plan_text(plan: SchedulePlan, screen: Screen) -> str:
    """The unit files or the crontab line, and the exact commands that set them up."""
    lines = []
    for unit in plan.units:
        lines += [f"# {escape(unit.path)}", *unit.text.splitlines(), ""]
    if plan.cron is not None:
        lines += [*cron_lines(plan), ""]
    lines += ["# To set it up:" if plan.cron is None else "# To set it up, put the line above into:"]
    lines += [f"#   {command}" for command in commands(plan, screen)]
    if plan.cron is None:
        lines += ["# To run it once now, and see what it says:", f"#   {once(plan)}"]
    return "\n".join(lines) + "\n"


def cron_lines(plan: SchedulePlan) -> list[str]:
    """The crontab line under what it does."""
    what = plan.nightly.what
    says = " It says\n# nothing unless something failed; cron mails what it says to MAILTO."
    if isinstance(what, Prune):
        says = (
            "\n# While the agent runs it says what is to go, and fails with 4; "
            "else it says nothing unless\n# something failed. cron mails what it says to MAILTO."
        )
    elif isinstance(what, Tell) and what.to is None:
        says = "\n# cron mails them to MAILTO; where there are none it says nothing."
    return [*f"# {plan.nightly.kind.comment}{says}".split("\n"), plan.cron or ""]


def commands(plan: SchedulePlan, screen: Screen) -> list[str]:
    """The commands that set it up, in order, as they stand in a shell."""
    nightly = plan.nightly
    own = plan.scope == "user"
    sudo = "" if own else "sudo "
    found = []
    if plan.folder_owner is not None:
        words = f"-o {shell_word(plan.folder_owner)} " if not own else ""
        found.append(f"{sudo}install -d -m 0700 {words}{shell_word(nightly.what.folder)}")
    if plan.cron is not None:
        return [*found, "crontab -e" if own else f"sudo crontab -u {shell_word(nightly.user or 'root')} -e"]
    program = screen.program if own else screen.program_for_root or screen.program
    words_ = ["schedule", nightly.job, *(("--user",) if own else ()), *nightly.what.words()]
    words_ += [*nightly.install, "--at", nightly.at]
    words_ += ["--run-as", nightly.user] if nightly.user is not None else []
    words_ += ["--on-failure", nightly.on_failure] if nightly.on_failure is not None else []
    found.append(f"{sudo}{program} {' '.join(map(shell_word, words_))} --install")
    return found + enabling(plan)


def enabling(plan: SchedulePlan) -> list[str]:
    """The commands that make systemd run it every night."""
    scope, timer = plan.scope, timer_of(plan.nightly.job)
    systemctl = "systemctl --user" if scope == "user" else "sudo systemctl"
    found = [f"{systemctl} daemon-reload", f"{systemctl} enable --now {timer}"]
    return (
        [*found, "loginctl enable-linger   # to run it while you are not logged in"]
        if scope == "user"
        else found
    )


def once(plan: SchedulePlan) -> str:
    """The command that runs it once and shows what it said."""
    service, name = service_of(plan.nightly.job), name_of(plan.nightly.job)
    if plan.scope == "user":
        return f"systemctl --user start {service}; journalctl --user -u {name} -n 20"
    return f"sudo systemctl start {service}; sudo journalctl -u {name} -n 20"


def installed_text(
    plan: SchedulePlan, done: tuple[tuple[str, str], ...], screen: Screen, *, enabled: bool, ran: RunOnce
) -> str:
    """What was written, how the run by hand ended, and what is left to do."""
    job = plan.nightly.job
    lines = [f"{escape(path)}  {what}" for path, what in done]
    if ran.state is not None:
        lines += [f"Run once by hand: {_ended(ran.state, screen)}", *(f"  {escape(one)}" for one in ran.said)]
        lines += _locked(screen) if ran.state.was_locked else []
    else:
        lines += screen.wrap(f"Not run: {(ran.why_not or '').rstrip('.')}.", hanging=2)
        lines += ["To run it once now, and see what it says:", f"  {once(plan)}"]
    if enabled:
        lines.append(
            f"{timer_of(job)} is enabled and started: {plan.nightly.kind.often} at {plan.nightly.at}."
        )
    else:
        lines += ["Not enabled yet:", *(f"  {command}" for command in enabling(plan))]
    return "\n".join(lines) + "\n"


def plan_json(
    plan: SchedulePlan,
    screen: Screen,
    done: tuple[tuple[str, str], ...] = (),
    *,
    enabled: bool = False,
    ran: RunOnce | None = None,
) -> str:
    """The same for machines; `done` is what was written."""
    nightly, what = plan.nightly, plan.nightly.what
    return dump(
        "schedule",
        {
            "job": nightly.job,
            "scope": plan.scope,
            "user": nightly.user,
            "at": nightly.at,
            "folder": what.folder,
            "stop_unit": what.stop_unit if isinstance(what, Prune) else None,
            "commands": [list(words) for words in nightly.commands()],
            "units": [{"path": unit.path, "text": unit.text} for unit in plan.units],
            "cron": plan.cron,
            "set_up": commands(plan, screen),
            "notes": list(plan.notes),
            "installed": [{"path": path, "what": what} for path, what in done],
            "enabled": enabled,
            "on_failure": nightly.on_failure,
            "ran": None
            if ran is None
            else {
                "failed": ran.failed if ran.state is not None else None,
                "exit": ran.state.last_exit if ran.state is not None else None,
                "said": list(ran.said),
                "why_not": ran.why_not,
            },
        },
    )


# --- status --------------------------------------------------------------------------------------


def status_text(status: ScheduleStatus, screen: Screen) -> str:
    """What is set up, when it last ran and runs next."""
    lines = []
    for one in status.found:
        lines += [*_scheduled(one, screen), ""]
    for line in status.cron:
        lines += ["cron", f"  {escape(line)}", ""]
    if not lines:
        lines = ["Nothing is scheduled here, as far as can be seen.", ""]
        lines += [f"To schedule snapshots:   {screen.program} schedule snapshot --to DIR", ""]
    if status.cron:
        lines += screen.wrap(
            "Of cron no result is known: it mails what a line says, when something failed.", 2
        )
        lines.append("")
    for gap in status.not_checked:
        lines += screen.wrap(f"not seen: {gap.what}: {gap.why}", hanging=2)
    return "\n".join(lines).rstrip("\n") + "\n"


def _scheduled(one: Scheduled, screen: Screen) -> list[str]:
    lines = [f"{one.job}: systemd, {one.scope} units"]
    lines += [f"  {escape(path)}" for path in one.paths]
    lines += [f"    {escape(command)}" for command in one.commands]
    if one.active is None and one.enabled is None:
        return lines
    state = f"{escape(one.enabled or 'not enabled')}, {escape(one.active or 'not known')}"
    last = "no run is known" if one.last_at is None else escape(one.last_at)
    if one.last_failed is not None:
        last += f"  {_ended(one, screen)}"
    rows = [["timer", state], ["last run", last], ["next run", escape(one.next_at or "none")]]
    lines += table(rows, indent=2)
    if one.last_failed:
        lines += [f"    {escape(line)}" for line in one.last_said]
        lines.append(f"  {_journal(one.scope, one.job)}")
    if one.was_locked:
        lines += _locked(screen)
    if one.stale:
        lines.append("  The files changed since systemd read them: systemctl daemon-reload")
    return lines


_MEANS = {1: "findings", 2: "wrong usage", 3: "not all was read", 4: "refused, nothing changed", 5: "failed"}
"""As in the README; `snapshot verify` has 1 for a snapshot that is not good."""


def _ended(one: Scheduled, screen: Screen) -> str:
    if not one.last_failed:
        return "well" if one.last_result != SKIPPED else "well, nothing was to be done"
    if one.last_result not in ("exit-code", None):
        return screen.alarm("FAILED") + f", {escape(one.last_result)}"
    means = f" ({_MEANS[one.last_exit]})" if one.last_exit in _MEANS and one.last_exit is not None else ""
    if one.job == "snapshot" and one.last_exit == 1:
        means = " (not good)"
    return screen.alarm("FAILED") + (f", exit {one.last_exit}{means}" if one.last_exit is not None else "")


def _locked(screen: Screen) -> list[str]:
    says = (
        "A database was locked: another program was writing to it for longer than is waited (15 s for a store, 5 s "
        "for the ledger). What was not done is done by the next run. If it comes again, choose another hour (--at); "
        "who has it open:"
    )
    return [*screen.wrap(says, 2, 2), f"    {screen.program} status"]


def _journal(scope: str, job: Job) -> str:
    name = name_of(job)
    return f"journalctl --user -u {name}" if scope == "user" else f"sudo journalctl -u {name}"


def status_json(status: ScheduleStatus) -> str:
    """The same for machines."""
    return dump(
        "schedule-status",
        {
            "systemd": [
                {
                    "job": one.job,
                    "scope": one.scope,
                    "paths": list(one.paths),
                    "commands": list(one.commands),
                    "enabled": one.enabled,
                    "active": one.active,
                    "next_at": one.next_at,
                    "last_at": one.last_at,
                    "last_failed": one.last_failed,
                    "last_exit": one.last_exit,
                    "last_result": one.last_result,
                    "last_said": list(one.last_said),
                    "was_locked": one.was_locked,
                    "stale": one.stale,
                }
                for one in status.found
            ],
            "cron": list(status.cron),
            "not_checked": [not_checked(one) for one in status.not_checked],
        },
    )
