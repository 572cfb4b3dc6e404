"""What `schedule` says, for people and for machines."""

from __future__ import annotations

from mem0audit.core.schedule import Job, Schedule, name_of, service_of, timer_of
from mem0audit.operations.schedule import Scheduled, SchedulePlan, ScheduleStatus
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
    says = "It says\n# nothing unless something failed; cron mails what it says to MAILTO."
    if isinstance(plan.schedule, Schedule):
        about = f"# {plan.schedule.comment} {says}"
    else:
        about = (
            f"# {plan.schedule.comment}\n# While the agent runs it says what is to go, and fails with 4; "
            "else it says nothing unless\n# something failed. cron mails what it says to MAILTO."
        )
    return [*about.split("\n"), plan.cron or ""]


def commands(plan: SchedulePlan, screen: Screen) -> list[str]:
    """The commands that set it up, in order, as they stand in a shell."""
    schedule = plan.schedule
    own = plan.scope == "user"
    sudo = "" if own else "sudo "
    found = []
    if plan.folder_owner is not None:
        words = f"-o {shell_word(plan.folder_owner)} " if not own else ""
        found.append(f"{sudo}install -d -m 0700 {words}{shell_word(schedule.folder)}")
    if plan.cron is not None:
        return [*found, "crontab -e" if own else f"sudo crontab -u {shell_word(schedule.user or 'root')} -e"]
    program = screen.program if own else screen.program_for_root or screen.program
    words_ = [
        "schedule",
        schedule.job,
        *(("--user",) if own else ()),
        "--to",
        schedule.folder,
        *schedule.install,
    ]
    words_ += [*schedule.words(), "--at", schedule.at]
    words_ += ["--run-as", schedule.user] if schedule.user is not None else []
    found.append(f"{sudo}{program} {' '.join(map(shell_word, words_))} --install")
    return found + enabling(plan)


def enabling(plan: SchedulePlan) -> list[str]:
    """The commands that make systemd run it every night."""
    scope, timer = plan.scope, timer_of(plan.schedule.job)
    systemctl = "systemctl --user" if scope == "user" else "sudo systemctl"
    found = [f"{systemctl} daemon-reload", f"{systemctl} enable --now {timer}"]
    return (
        [*found, "loginctl enable-linger   # to run it while you are not logged in"]
        if scope == "user"
        else found
    )


def once(plan: SchedulePlan) -> str:
    """The command that runs it once and shows what it said."""
    service, name = service_of(plan.schedule.job), name_of(plan.schedule.job)
    if plan.scope == "user":
        return f"systemctl --user start {service}; journalctl --user -u {name} -n 20"
    return f"sudo systemctl start {service}; sudo journalctl -u {name} -n 20"


def installed_text(plan: SchedulePlan, done: tuple[tuple[str, str], ...], *, enabled: bool) -> str:
    """What was written, and what is left to do."""
    lines = [f"{escape(path)}  {what}" for path, what in done]
    if enabled:
        lines.append(f"{timer_of(plan.schedule.job)} is enabled and started.")
    else:
        lines += ["Not enabled yet:", *(f"  {command}" for command in enabling(plan))]
    lines += ["To run it once now, and see what it says:", f"  {once(plan)}"]
    return "\n".join(lines) + "\n"


def plan_json(
    plan: SchedulePlan, screen: Screen, done: tuple[tuple[str, str], ...] = (), *, enabled: bool = False
) -> str:
    """The same for machines; `done` is what was written."""
    schedule = plan.schedule
    return dump(
        "schedule",
        {
            "job": schedule.job,
            "scope": plan.scope,
            "user": schedule.user,
            "at": schedule.at,
            "folder": schedule.folder,
            "stop_unit": None if isinstance(schedule, Schedule) else schedule.stop_unit,
            "commands": [list(words) for words in schedule.commands()],
            "units": [{"path": unit.path, "text": unit.text} for unit in plan.units],
            "cron": plan.cron,
            "set_up": commands(plan, screen),
            "notes": list(plan.notes),
            "installed": [{"path": path, "what": what} for path, what in done],
            "enabled": enabled,
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
        last += "  well" if not one.last_failed else "  " + screen.alarm("FAILED")
        if one.last_failed and one.last_exit is not None:
            last += f", exit {one.last_exit}"
    rows = [["timer", state], ["last run", last], ["next run", escape(one.next_at or "none")]]
    lines += table(rows, indent=2)
    if one.last_failed:
        lines.append(f"  {_journal(one.scope, one.job)}")
    if one.stale:
        lines.append("  The files changed since systemd read them: systemctl daemon-reload")
    return lines


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
                    "stale": one.stale,
                }
                for one in status.found
            ],
            "cron": list(status.cron),
            "not_checked": [not_checked(one) for one in status.not_checked],
        },
    )
