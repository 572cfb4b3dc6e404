"""`schedule audit`, `schedule review`, `--on-failure` and the run by hand at `--install`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.retention import Policy
from mem0audit.core.schedule import Snapshot
from tests.builders import StoreCopy, copy_store
from tests.cli.program import call
from tests.cli.test_schedule import (
    CONFIG,
    EXAMPLE,
    PROGRAM,
    as_cron_runs_it,
    execute,
    flags,
    in_a_session,
    lines_of,
    needs,
)
from tests.report.test_json import check

JSON = ("--format", "json")
TELL = 'echo "$1 100%" >told'


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1", tmp_path / "it's 100%", pre_delete_all=True)


def planned(home: Path, job: str, *words: str, **env: str) -> dict[str, Any]:
    ran = call(home, "schedule", job, *words, *JSON, env={"MEM0AUDIT_PROGRAM": PROGRAM, **env})
    assert ran.code == 0, ran.err
    return check(ran.out, "schedule")


def verified(folder: Path, units: list[dict[str, str]], *words: str) -> str:
    folder.mkdir()
    for unit in units:
        (folder / Path(unit["path"]).name).write_text(unit["text"])
    done = subprocess.run(
        ["systemd-analyze", *words, "verify", *map(str, sorted(folder.iterdir()))],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(folder.parent), "HOME": str(folder.parent)},
    )
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}".strip()


def test_the_files_in_config_are_what_the_command_prints(tmp_path: Path) -> None:
    words = (*EXAMPLE[:4], "--run-as", "agent")
    for unit in planned(tmp_path, "audit", *words, MEM0AUDIT_PROGRAM="/usr/local/bin/mem0audit")["units"]:
        assert (CONFIG / Path(unit["path"]).name).read_text() == unit["text"]


@pytest.mark.parametrize(
    "job",
    [
        "audit",
        "review",
        *(pytest.param(job, marks=pytest.mark.thorough) for job in ("snapshot", "prune", "new")),
    ],
)
def test_systemd_takes_them(tmp_path: Path, store: StoreCopy, job: str) -> None:
    needs("systemd-analyze")
    to = {"audit": (), "review": ("--to", str(tmp_path / "r%w")), "new": ("--to", str(tmp_path / "n"))}
    words = [*to.get(job, ("--to", str(tmp_path / "s"))), *flags(store), "--on-failure", TELL]
    plan = planned(tmp_path, job, *words, "--user")
    service, timer, failed = (unit["text"] for unit in plan["units"])
    assert verified(tmp_path / "units", plan["units"], "--user") == "exit 0"
    assert f"OnFailure=mem0audit-{job}-failed.service\n" in service and "Persistent=true" in timer
    assert ("OnCalendar=Mon *-*-* " in timer) is (job == "review")
    assert all(f"{key}=yes" in service for key in ("NoNewPrivileges", "LockPersonality", "RestrictRealtime"))
    assert not any(f"{key}=" in failed for key in ("NoNewPrivileges", "LockPersonality", "RestrictRealtime"))
    (line,) = lines_of(failed)
    assert line == ["/bin/sh", "-c", TELL, "sh", f"mem0audit-{job}"]
    own = planned(tmp_path, job, *words, "--run-as", "nobody")
    assert all("\nUser=nobody\n" in own["units"][i]["text"] for i in (0, 2))


def test_an_audit_fails_with_findings_and_says_no_memory(tmp_path: Path, store: StoreCopy) -> None:
    (line,) = lines_of(planned(tmp_path, "audit", *flags(store), "--fail-on", "info")["units"][0]["text"])
    done = execute(tmp_path, line)
    assert done.returncode == 1 and "Miso" not in done.stdout + done.stderr
    plan = planned(tmp_path, "audit", *flags(store), "--fail-on", "never")
    assert plan["commands"][0][-6:] == ["--fail-on", "never", *flags(store)]


def test_the_cron_line_tells_of_a_failure(tmp_path: Path) -> None:
    (tmp_path / "stub").write_text('#!/bin/sh\necho "$@" >>calls\nexit 1\n')
    (tmp_path / "stub").chmod(0o755)
    words = ("--history", "h", "--qdrant-path", "q", "--run-as", "nobody", "--on-failure", TELL)
    stub = str(tmp_path / "stub")
    for job, more, calls in (("audit", (), 1), ("snapshot", ("--to", "s"), 1), ("prune", ("--to", "s"), 1)):
        plan = planned(tmp_path, job, *words, *more, "--cron", MEM0AUDIT_PROGRAM=stub)
        assert plan["units"] == []
        command = as_cron_runs_it(plan["cron"])
        subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, check=True)
        assert (tmp_path / "told").read_text() == f"mem0audit-{job} 100%\n"
        assert len((tmp_path / "calls").read_text().splitlines()) == calls
        (tmp_path / "calls").unlink()


def test_a_review_goes_into_a_file_for_its_owner_alone(tmp_path: Path, store: StoreCopy) -> None:
    target = tmp_path / "to review.txt"
    service = planned(tmp_path, "review", "--to", str(target), *flags(store))["units"][0]["text"]
    assert "StandardOutput=null" in service.splitlines()
    (line,) = lines_of(service)
    ran = call(tmp_path, *line[line.index("review") :])
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.read_text().startswith("Nothing to review")
    # by mail, none where nothing is due
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mail").write_text("#!/bin/sh\n")
    (tmp_path / "bin/mail").chmod(0o755)
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    plan = planned(tmp_path, "review", "--mail", "ann@example.org", *flags(store), PATH=path)
    assert "RuntimeDirectory=mem0audit-review\n" in plan["units"][0]["text"]
    assert "%t/mem0audit-review/review.txt" in plan["units"][0]["text"]
    ran = call(tmp_path, "review", "--list", "--quiet", *flags(store))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    ran = call(tmp_path, "review", "--list", "--quiet", "--days", "0", *flags(store))
    assert ran.code == 0 and "Miso" in ran.out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("new", "--cron", "--mail", "ann@example.org"), 2, "MAILTO=ann@example.org"),
        (("review", "--cron", "--install"), 2, "crontab -e"),
        (("audit", "--run"), 2, "only with --install"),
        (("audit", "--on-failure", "a\nb"), 2, "one line for a shell"),
        (("audit", "--on-failure", " "), 2, "one line for a shell"),
        (("review",), 2, "where to?"),
        (("review", "--to", "/no/such/folder/x"), 2, "no folder"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, store: StoreCopy, words: tuple[str, ...], code: int, says: str
) -> None:
    ran = call(tmp_path, "schedule", *words, *flags(store), env={"MEM0AUDIT_PROGRAM": PROGRAM})
    assert (ran.code, ran.out) == (code, "") and says in ran.err


@pytest.mark.parametrize(
    ("job", "day"), [("new", "*"), pytest.param("review", "Mon", marks=pytest.mark.thorough)]
)
def test_a_crontab_may_tell_too(tmp_path: Path, store: StoreCopy, job: str, day: str) -> None:
    """Into a file, or with no flag by cron's own mail; what is set up is seen in a crontab again."""
    target = tmp_path / "told.txt"
    hour = {"new": "0 7", "review": "30 7"}[job]
    plan = planned(tmp_path, job, *flags(store), "--to", str(target), "--cron")
    assert plan["units"] == [] and plan["cron"].startswith(f"{hour} * * {day} ")
    line = shlex.split(as_cron_runs_it(plan["cron"]))
    ran = call(tmp_path, *line[line.index(job) :])
    assert (ran.code, ran.out, ran.err) == (0, "", "") and target.stat().st_mode & 0o777 == 0o600
    said = call(
        tmp_path, "schedule", job, *flags(store), "--cron", env={"MEM0AUDIT_PROGRAM": "/opt/mem0audit"}
    ).out
    assert "cron mails them to MAILTO" in said
    line = shlex.split(as_cron_runs_it(said.splitlines()[2]))
    ran = call(tmp_path, *line[line.index(job) :])
    assert ran.code == 0 and ("memories added since" in ran.out) is (job == "new")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/crontab").write_text(f"#!/bin/sh\necho {shlex.quote(said.splitlines()[2])}\n")
    (tmp_path / "bin/crontab").chmod(0o755)
    status = call(tmp_path, "schedule", "status", env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert f"/opt/mem0audit {job} " in status.out


def test_on_a_server(tmp_path: Path, store: StoreCopy) -> None:
    words = ("--history", str(store.history), "--qdrant-url", "http://127.0.0.1:1")
    for job, to in (("audit", ()), ("review", ("--to", str(tmp_path / "told")))):
        assert planned(tmp_path, job, *to, *words)["commands"][0][-4:] == list(words)
    env = {"MEM0AUDIT_PROGRAM": PROGRAM, "KEY": "k3y"}
    ran = call(tmp_path, "schedule", "audit", *words, "--api-key-env", "KEY", env=env)
    assert ran.code == 2 and "a job that runs at night does not have" in ran.err and "k3y" not in ran.err


def test_the_other_nodes_of_a_cluster_are_named(tmp_path: Path, store: StoreCopy) -> None:
    what = Snapshot("/b", Policy(last=1), ("http://10.0.0.2:6333",))
    words = ("--node", "http://10.0.0.2:6333")
    assert what.commands((), ())[0] == ("snapshot", "create", "--to", "/b", *words)
    assert what.words()[:4] == ("--to", "/b", *words)
    server = ("--history", str(store.history), "--qdrant-url", "http://127.0.0.1:1")
    env = {"MEM0AUDIT_PROGRAM": PROGRAM}
    ran = call(tmp_path, "schedule", "snapshot", *what.words(), *server, env=env)
    assert ran.code == 3 and "connection refused" in ran.err


def test_without_systemd_it_says_that_it_was_not_run(tmp_path: Path, store: StoreCopy) -> None:
    env = {
        "MEM0AUDIT_PROGRAM": PROGRAM,
        "XDG_RUNTIME_DIR": str(tmp_path),
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere",
    }
    words = ("schedule", "audit", "--user", *flags(store), "--install", "--on-failure", TELL)
    ran = call(tmp_path, *words, env=env)
    assert ran.code == 0 and "\nNot run: " in ran.out and "Not enabled yet:" in ran.out
    assert ".." not in ran.out
    assert "running it once, as the timer will" in ran.err
    assert (tmp_path / ".config/systemd/user/mem0audit-audit-failed.service").exists()
    ran = call(tmp_path, *words, "--no-run", env=env)
    assert "--no-run was given" in ran.out and "running" not in ran.err
    ran = call(
        tmp_path, "schedule", "prune", "--user", "--to", "s", *flags(store), "--install", *JSON, env=env
    )
    assert "--run runs it now" in check(ran.out, "schedule")["ran"]["why_not"]


@pytest.mark.root
@pytest.mark.thorough
def test_run_by_hand_under_a_real_systemd(tmp_path: Path, store: StoreCopy) -> None:
    """The run at --install and its result, the command of --on-failure, and what a locked database means. journald does
    not run here: a stand-in says what it would."""
    (tmp_path / "stub").write_text(f'#!/bin/sh\nexit "$(cat {tmp_path}/does)"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/journalctl").write_text("#!/bin/sh\necho 'mem0audit: database is locked'\n")
    for name in ("stub", "bin/journalctl"):
        (tmp_path / name).chmod(0o755)
    tell = shlex.quote(f'echo "$1" >{tmp_path}/told')
    run = f"{sys.executable} -m mem0audit schedule"
    audit = f"{run} audit --user {shlex.join(flags(store))} --install --on-failure {tell}"
    script = f"""
    export PATH={tmp_path}/bin:$PATH MEM0AUDIT_PROGRAM={tmp_path}/stub
    echo 0 >does; {audit}; echo "not enabled: $?"
    {audit} --enable; echo "well: $?"
    ls told 2>/dev/null
    echo 5 >does; {audit}; echo "bad: $?"
    for i in 1 2 3 4 5 6 7 8 9 10; do [ -e told ] && break; sleep 0.1; done
    {run} status; {run} status --format json >status.json
    """
    said = in_a_session(tmp_path, script)
    # a unit that no enabled timer names is forgotten as soon as it ended well
    once, _, said = said.partition("not enabled: 0")
    assert "Run once by hand: well\n  mem0audit: database is locked\nNot enabled yet:" in once
    first, _, rest = said.partition("well: 0")
    assert "Run once by hand: well" in first and "is enabled and started: every night at 05:30." in first
    assert "told\n" not in first
    assert "Run once by hand: FAILED, exit 5 (failed)" in rest and "bad: 1" in rest
    assert (tmp_path / "told").read_text() == "mem0audit-audit\n"
    assert "audit: systemd, user units" in rest and rest.count("A database was locked: another") == 2
    told = check((tmp_path / "status.json").read_text(), "schedule-status")
    (one,) = [one for one in told["systemd"] if one["scope"] == "user"]
    assert (one["last_result"], one["was_locked"], one["last_exit"]) == ("exit-code", True, 5)
    assert one["last_said"] == ["mem0audit: database is locked"] and one["next_at"].endswith("UTC")
