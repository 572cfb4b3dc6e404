"""`mem0audit schedule prune`: the units verify, the line of a night does what it is to do, and whatever becomes of it,
the agent runs again."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.schedule import Nightly, Prune, service_text, unit_named
from mem0audit.install.host import this_host
from tests.builders import StoreCopy, copy_store
from tests.cli.program import Ran, call
from tests.cli.test_schedule import (
    CONFIG,
    EXAMPLE,
    JSON,
    as_cron_runs_it,
    execute,
    in_a_session,
    needs,
    schedule,
    split,
)
from tests.operations.test_mem0door import install_at
from tests.operations.test_prune import STALE, Built, Store, build_stale
from tests.operations.test_read_only import tree
from tests.operations.test_restore import agent
from tests.report.test_json import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_stale(tmp_path_factory.mktemp("stale"))


@pytest.fixture
def store(built: Built, tmp_path: Path) -> Store:
    folder = tmp_path / "install"
    shutil.copytree(built.folder, folder)
    return Store(folder, built.ids, built.hidden, install_at(folder), this_host())


@pytest.fixture
def plain(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)


def planned(home: Path, *words: str, **env: str) -> dict[str, Any]:
    ran = schedule(home, "prune", *words, *JSON, **env)
    assert ran.code == 0, ran.err
    return check(ran.out, "schedule")


def flags(folder: Path) -> tuple[str, ...]:
    return "--history", str(folder / "mem0_dir" / "history.db"), "--qdrant-path", str(folder / "qdrant")


def line_of(service: str, key: str) -> list[str]:
    (line,) = [line.partition("=")[2] for line in service.splitlines() if line.startswith(f"{key}=")]
    return split(line.lstrip("+").replace("%t", "%%t"))


def verify(folder: Path, service: str, timer: str, *words: str) -> str:
    folder.mkdir()
    Path(os.environ["XDG_RUNTIME_DIR"]).mkdir(exist_ok=True)
    (folder / "mem0audit-prune.service").write_text(service)
    (folder / "mem0audit-prune.timer").write_text(timer)
    done = subprocess.run(
        ["systemd-analyze", *words, "verify", *(str(p) for p in sorted(folder.iterdir()))],
        capture_output=True,
        text=True,
    )
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}".strip()


# --- the units -----------------------------------------------------------------------------------------


def test_the_files_in_config_are_what_the_command_prints(tmp_path: Path) -> None:
    words = (*EXAMPLE, "--run-as", "agent", "--stop-unit", "agent.service")
    plan = planned(tmp_path, *words, MEM0AUDIT_PROGRAM="/usr/local/bin/mem0audit")
    for unit in plan["units"]:
        assert (CONFIG / Path(unit["path"]).name).read_text() == unit["text"]
    assert (plan["job"], plan["stop_unit"]) == ("prune", "agent.service")


def test_systemd_takes_them(tmp_path: Path, plain: StoreCopy) -> None:
    needs("systemd-analyze")
    service, timer = ((CONFIG / f"mem0audit-prune.{kind}").read_text() for kind in ("service", "timer"))
    service = service.replace("/usr/local/bin/mem0audit", sys.executable)
    assert verify(tmp_path / "units", service, timer) == "exit 0"
    odd = tmp_path / 'a "b" $HOME 100% \\ é'
    for more in ((), ("--stop-unit", "agent@7")):
        plan = planned(tmp_path, "--to", str(odd), *flags(plain.folder), "--user", "--at", "23:59", *more)
        service, timer = (unit["text"] for unit in plan["units"])
        assert verify(tmp_path / f"own{len(more)}", service, timer, "--user") == "exit 0"
        assert "User=" not in service and "=+" not in service and "After=default.target" in service
        assert ("ExecStopPost=" in service) is bool(more) is ("systemctl --user stop" in service)
        assert line_of(service, "ExecStart") == plan["commands"][0]


def test_what_is_refused(tmp_path: Path, plain: StoreCopy) -> None:
    to = ("--to", str(tmp_path / "s"), *flags(plain.folder))
    for words, code, says in (
        ((*to, "--stop-unit", "agent@"), 2, "no name of the agent's service"),
        ((*to, "--stop-unit", "mem0audit-prune"), 2, "no name of the agent's service"),
        ((*to, "--stop-unit", "agent", "--cron"), 2, "killed, a crontab line starts nothing again"),
        ((*to, "--older-than", "30"), 2, "--older-than: no length of time"),
        (flags(plain.folder), 2, "no folder for snapshots is named"),
        (("--to", "s", "--history", "h", "--qdrant-path", "q"), 3, "is not there, so that its owner"),
    ):
        ran = schedule(tmp_path, "prune", *words)
        assert (ran.code, ran.out, says in ran.err) == (code, "", True), (words, ran.err)
    assert unit_named("agent") == "agent.service" and unit_named("a@b.service") == "a@b.service"
    assert unit_named("agent.timer.service") is not None and unit_named("../x") is None
    with agent(plain) as pid:
        ran = schedule(tmp_path, "prune", *to, "--stop-unit", "agent")
        assert ran.code == 0 and f"open in pid {pid}" in ran.err and "not agent.service" in ran.err


# --- a night ----------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_line_of_a_night(tmp_path: Path, store: Store) -> None:
    """The exact command, by hand: beside an agent that holds the lock, and with the agent stopped."""
    plan = planned(tmp_path, "--to", str(store.snapshots), *flags(store.folder))
    words = line_of(plan["units"][0]["text"], "ExecStart")
    before = store.blobs(), store.log(), store.blobs("mem0_entities")
    with agent(Agent(store)) as pid:
        done = execute(tmp_path, words)
        assert (store.blobs(), store.log(), store.blobs("mem0_entities")) == before
        assert not store.snapshots.exists()
        due = by_itself(tmp_path, is_due(words))
    assert done.returncode == 4
    assert (
        all(store.ids[name] in done.stdout for name in STALE)
        and "T701 expired: 7 memories to go" in done.stdout
    )
    assert store.ids["later"] not in done.stdout and done.stdout.endswith("\nNothing was changed.\n")
    assert f"is in use by pid {pid}" in done.stderr and f"kill {pid}" in done.stderr
    assert "mem0audit.prune(memory)" in done.stderr
    # of a night that stops the agent: nothing is in the way yet
    assert due.code == 0 and "T701 expired: 7 memories to go" in due.out and "Not now" not in due.out
    done = execute(tmp_path, words)
    assert done.returncode == 0, done.stderr
    assert "7 memories deleted, 2 entities deleted, 1 link taken" in " ".join(done.stdout.split())
    store.check_pruned(before[:2])
    due = by_itself(tmp_path, is_due(words))
    assert (due.code, due.out) == (1, "Nothing to prune.\n")


def by_itself(home: Path, words: list[str]) -> Ran:
    """The same line in this process."""
    return call(home, *words[words.index("prune") :])


def is_due(words: list[str]) -> list[str]:
    return ["--due" if word == "--yes" else word for word in words]


class Agent:
    """What `agent` needs of a store."""

    def __init__(self, store: Store) -> None:
        self.vectors, self.history = store.vectors, store.folder / "mem0_dir" / "history.db"


def test_the_cron_line(tmp_path: Path, plain: StoreCopy) -> None:
    folder = tmp_path / "it's a $HOME 100%"
    plan = planned(tmp_path, "--to", str(folder), *flags(plain.folder), "--older-than", "9999d", "--cron")
    assert plan["units"] == [] and plan["cron"].startswith("30 3 * * * /")
    words = shlex.split(as_cron_runs_it(plan["cron"]))
    assert [word for word in words if word != "--quiet"] == plan["commands"][0]
    ran = by_itself(tmp_path, words)
    assert (ran.code, ran.out, ran.err) == (0, "", "")  # cron mails what is said


def prune(home: Path, store: Store, *words: str, width: str = "100") -> Ran:
    return call(home, "prune", *flags(store.folder), *words, env={"COLUMNS": width})


def test_what_is_printed(tmp_path: Path, store: Store) -> None:
    before = tree(store.folder)
    ran = prune(tmp_path, store, "--dry-run", "--to", str(store.snapshots), "--older-than", "30d", width="60")
    assert ran.code == 0, ran.err
    assert "T701 expired: 6 memories to go" in ran.out and "SECRET" not in ran.out + ran.err
    assert "1 memory expired less than 30 days ago: stays." in " ".join(ran.out.split())
    assert max(len(line) for line in ran.out.splitlines() if "/" not in line) <= 60
    assert ran.out.splitlines()[-1].endswith(f"--older-than 30d --to {store.snapshots}")
    plan = check(prune(tmp_path, store, "--dry-run", *JSON).out, "prune-plan")
    assert {step["reason"] for step in plan["steps"]} == {"expired"} and len(plan["steps"]) == 7
    assert "no folder for snapshots" in plan["blocked"]["why"] and not plan["in_use"]
    for words, code, says in (
        (("--to", "s"), 4, "not confirmed: nothing was changed"),
        (("--older-than", "x"), 2, "no length of time"),
        (("--due", "--yes"), 2, "--due: changes nothing"),
        (("--due",), 4, "no folder for snapshots"),
    ):
        ran = prune(tmp_path, store, *words)
        assert (ran.code, says in ran.err) == (code, True), ran.err
    done = check(prune(tmp_path, store, "--yes", "--older-than", "9999d", "--to", "s", *JSON).out, "prune")
    assert (done["later"], done["done"]["deleted"], done["snapshot"]) == (7, 0, None)
    assert tree(store.folder) == before and not (tmp_path / "s").exists()


# --- the agent runs again ---------------------------------------------------------------------------------

STUB = """#!/bin/sh
# stands for mem0audit: does what the file says, and notes whether the agent ran
echo "$1 $2 agent:$(systemctl --user show -p ActiveState --value agent.service)" >>"$HOME/calls"
case "$2" in --due) exit "$(cat "$HOME/due")";; esac
case $(cat "$HOME/does") in
    kill) kill -9 $$;;
    hang) sleep 100;;
    *) exit "$(cat "$HOME/does")";;
esac
"""


@pytest.mark.thorough
@pytest.mark.root
def test_whatever_happens_the_agent_runs_again(tmp_path: Path, plain: StoreCopy) -> None:
    """Under a real systemd: done well, failed, killed, too slow; with nothing to do it is left alone; and an agent that
    somebody stopped stays stopped."""
    stub = tmp_path / "stub"
    stub.write_text(STUB)
    stub.chmod(0o755)
    units = tmp_path / ".config/systemd/user"
    units.mkdir(parents=True)
    # it ends with 1 where it is stopped, as many do
    (units / "agent.service").write_text(
        "[Service]\nExecStart=/bin/sh -c 'trap \"exit 1\" TERM; sleep 1000 & wait'\n"
    )
    plan = planned(
        tmp_path, "--user", "--to", str(tmp_path / "s"), *flags(plain.folder), "--stop-unit", "agent",
        MEM0AUDIT_PROGRAM=str(stub),
    )  # fmt: skip
    for unit in plan["units"]:
        (units / Path(unit["path"]).name).write_text(
            unit["text"].replace("TimeoutStartSec=1h", "TimeoutStartSec=2")
        )
    script = """
    pid() { systemctl --user show -p MainPID --value agent.service; }
    night() {  # what --due ends with, what the job does
        echo "$2" >due; echo "$3" >does; : >calls; before=$(pid)
        systemctl --user start mem0audit-prune.service 2>/dev/null; code=$?
        for i in 1 2 3 4 5 6 7 8 9 10; do  # it is done when the last line is
            case $(systemctl --user show -p ActiveState --value mem0audit-prune.service) in
                active|activating|deactivating) sleep 0.2;; *) break;;
            esac
        done
        same=other; [ "$before" = "$(pid)" ] && same=same
        now=$(systemctl --user is-active agent.service)
        echo "$1: $code $now $same; $(sed 's/.*agent:/agent:/' calls | tr '\\n' ' ')"
        ls "$XDG_RUNTIME_DIR" | grep was-running
    }
    systemctl --user start agent.service
    night well 0 0
    night nothing 1 0
    night failed 0 5
    night killed 0 kill
    night slow 0 hang
    night unread 3 0
    systemctl --user stop agent.service
    night stopped 0 0
    """
    said = in_a_session(tmp_path, script)
    nights = dict(line.split(": ", 1) for line in said.splitlines() if "; agent:" in line)
    asked = "agent:active"
    assert nights == {
        "well": f"0 active other; {asked} agent:failed ",
        "nothing": f"0 active same; {asked} ",
        "failed": f"1 active other; {asked} agent:failed ",
        "killed": f"1 active other; {asked} agent:failed ",
        "slow": f"1 active other; {asked} agent:failed ",
        "unread": f"1 active same; {asked} ",
        "stopped": "0 failed same; agent:failed agent:failed ",
    }, said
    assert "was-running" not in said


def test_the_system_unit_asks_as_root(tmp_path: Path) -> None:
    """Only the lines that stop and start the agent, never those that read and change the stores."""
    what = Prune("/b", "30d", stop_unit="agent.service", lock="/srv/q/.lock")
    made = Nightly(what, ("/usr/bin/mem0audit",), (), "03:30", "agent")
    service = service_text(made).splitlines()
    assert [line.partition("=")[0] for line in service if "=+" in line] == ["ExecStartPre", "ExecStopPost"]
    assert not any("--user" in line for line in service)
    assert line_of("\n".join(service), "ExecStart")[1:] == [
        "prune",
        "--yes",
        "--to",
        "/b",
        "--older-than",
        "30d",
    ]
