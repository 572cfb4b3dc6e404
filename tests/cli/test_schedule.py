"""`mem0audit schedule`: the units verify, their lines run, a failing step fails all, nothing is enabled unasked."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.retention import Policy
from mem0audit.core.schedule import (
    LONGEST_CRON_LINE,
    CannotSay,
    Nightly,
    Snapshot,
    cron_line,
    exec_line,
    service_text,
    timer_text,
    unit_word,
)
from mem0audit.stores import files
from tests.builders import StoreCopy, copy_store
from tests.cli.program import Ran, call, clean_environment
from tests.operations.test_snapshot import HOLDING, mounted, needs_root
from tests.report.test_json import check

CONFIG = Path(__file__).parents[2] / "config"
PROGRAM = f"{sys.executable} -m mem0audit"
JSON = ("--format", "json")
SECRETS = ("SECRETCAROL", "Quito", "vegetarian")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)


def flags(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


def schedule(home: Path, *words: str, **env: str) -> Ran:
    return call(home, "schedule", *words, env={"MEM0AUDIT_PROGRAM": PROGRAM, **env})


def planned(home: Path, *words: str, **env: str) -> dict[str, Any]:
    ran = schedule(home, "snapshot", *words, *JSON, **env)
    assert ran.code == 0, ran.err
    return check(ran.out, "schedule")


def split(line: str) -> list[str]:
    """A command line of a unit as systemd.service(5) says that systemd takes it apart. No shell is near."""
    words, word, quoted, at = [], "", False, 0
    while at < len(line):
        char = line[at]
        if char == '"':
            quoted = not quoted
        elif char == " " and not quoted:
            words.append(word)
            word = ""
        elif char == "\\" and line[at + 1] == "x":
            word += chr(int(line[at + 2 : at + 4], 16))
            at += 3
        elif char == "\\":
            at += 1
            word += line[at]
        elif char == "%" or (char == "$" and words):
            assert line[at + 1] == char, "a specifier or a variable"
            word += char
            at += 1
        else:
            word += char
        at += 1
    assert not quoted
    words.append(word)
    return [
        word.encode("latin-1").decode() if not word.isascii() and word.isprintable() is False else word
        for word in words
    ]


def lines_of(service: str) -> list[list[str]]:
    return [split(line.partition("=")[2]) for line in service.splitlines() if line.startswith("ExecStart=")]


def execute(home: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """As a service is started: no shell, another folder, an environment with nothing of the user's."""
    kept = clean_environment(home)
    env = {name: kept[name] for name in ("PYTHONPATH", "MEM0_TELEMETRY")}
    env |= {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    done = subprocess.run(
        words, env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    assert not [secret for secret in SECRETS if secret in done.stdout + done.stderr]
    return done


def night(home: Path, service: str) -> tuple[int, str]:
    """What a service of Type=oneshot does: each line in order, the first that fails ends it."""
    for words in lines_of(service):
        done = execute(home, words)
        if done.returncode:
            return done.returncode, done.stderr
    return 0, ""


def analyze(folder: Path, service: str, timer: str, *words: str) -> str:
    """What systemd-analyze has to say of the two."""
    folder.mkdir(exist_ok=True)
    Path(os.environ["XDG_RUNTIME_DIR"]).mkdir(exist_ok=True)
    (folder / "mem0audit-snapshot.service").write_text(service)
    (folder / "mem0audit-snapshot.timer").write_text(timer)
    done = subprocess.run(
        ["systemd-analyze", *words, "verify", *(str(p) for p in sorted(folder.iterdir()))],
        capture_output=True,
        text=True,
    )
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}".strip()


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program}")


# --- the units -----------------------------------------------------------------------------------------

EXAMPLE = (
    "--history",
    "/srv/agent/history.db",
    "--qdrant-path",
    "/srv/agent/qdrant",
    "--to",
    "/srv/backup/mem0",
)


def test_the_files_in_config_are_what_the_command_prints(tmp_path: Path) -> None:
    """The example of the README: mem0audit schedule snapshot with EXAMPLE and --run-as agent."""
    plan = planned(tmp_path, *EXAMPLE, "--run-as", "agent", MEM0AUDIT_PROGRAM="/usr/local/bin/mem0audit")
    for unit in plan["units"]:
        assert (CONFIG / Path(unit["path"]).name).read_text() == unit["text"]
    assert [Path(unit["path"]).parent for unit in plan["units"]] == [Path("/etc/systemd/system")] * 2
    text = schedule(
        tmp_path, "snapshot", *EXAMPLE, "--run-as", "agent", MEM0AUDIT_PROGRAM="/usr/local/bin/mem0audit"
    ).out
    assert all(unit["text"] in text for unit in plan["units"])


def test_systemd_takes_the_files_in_config(tmp_path: Path) -> None:
    needs("systemd-analyze")
    service, timer = ((CONFIG / f"mem0audit-snapshot.{kind}").read_text() for kind in ("service", "timer"))
    # it looks whether the program is there
    service = service.replace("/usr/local/bin/mem0audit", sys.executable)
    assert analyze(tmp_path / "units", service, timer) == "exit 0"
    # and it does notice a misspelled key, and a program that is not there
    assert "Unknown key" in analyze(tmp_path / "other", service.replace("UMask", "UMasq"), timer)
    assert "not executable" in analyze(tmp_path / "third", service.replace(sys.executable, "/nowhere"), timer)


@pytest.mark.parametrize("own", [False, True])
def test_systemd_takes_what_is_printed(tmp_path: Path, store: StoreCopy, own: bool) -> None:
    needs("systemd-analyze")
    folder = tmp_path / 'a "b" $HOME 100% \\ é'
    words = ("--user",) if own else ()
    plan = planned(tmp_path, "--to", str(folder), *flags(store), "--at", "23:59", *words)
    service, timer = (unit["text"] for unit in plan["units"])
    assert analyze(tmp_path / "units", service, timer, *words) == "exit 0"
    assert ("User=" in service) is not own
    assert "OnCalendar=*-*-* 23:59:00\n" in timer
    assert "PrivateTmp=" not in service and "ProtectSystem=" not in service
    if own:
        assert plan["units"][0]["path"].startswith(f"{tmp_path}/.config/systemd/user/")


def test_words_are_quoted_as_systemd_wants_them() -> None:
    words = ("/usr/bin/x", "a b", 'q"q', "back\\slash", "100%", "$HOME", "", "it's", ";", "new\nline", "é")
    assert split(exec_line(words)) == list(words)
    assert exec_line(words).count("\n") == 0
    assert unit_word("/a$b%") == '"/a$b%%"'  # a path in RequiresMountsFor=: a $ is only a $
    assert unit_word("plain/path-1.2") == "plain/path-1.2"
    assert unit_word(os.fsdecode(b"\xff")) == '"\\xff"'
    with pytest.raises(CannotSay):
        exec_line(("/opt/$x/mem0audit",))


# --- the lines run ----------------------------------------------------------------------------------------


def test_the_lines_take_verify_and_expire(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "it's a $HOME 100%"
    plan = planned(tmp_path, "--to", str(folder), *flags(store), "--keep-last", "2")
    service = plan["units"][0]["text"]
    assert lines_of(service) == plan["commands"]
    seen = []
    for _ in range(3):
        assert night(tmp_path, service) == (0, "")
        seen.append(sorted(p.name for p in folder.glob("20*")))
    assert [len(one) for one in seen] == [1, 2, 2]
    assert seen[2][-1] not in seen[1]
    listed = check(call(tmp_path, "snapshot", "list", "--to", str(folder), *JSON).out, "snapshots")
    assert all(one["verified"]["good"] for one in listed["snapshots"])


def test_a_job_trusts_the_authority_that_was_trusted_when_it_was_set_up(
    tmp_path: Path, store: StoreCopy
) -> None:
    def lines(scheme: str, *words: str) -> list[str]:
        named = ("--history", str(store.history), "--qdrant-url", f"{scheme}://q.example.org:6333")
        ran = schedule(tmp_path, "audit", *named, *words, SSL_CERT_FILE="/etc/our ca.pem")
        return [line for line in ran.out.splitlines() if "q.example.org" in line and "audit" in line]

    started = [line for line in lines("https") if line.startswith("ExecStart=")]
    assert started and all('env "SSL_CERT_FILE=/etc/our ca.pem" ' in line for line in started)
    assert any("env 'SSL_CERT_FILE=/etc/our ca.pem' " in line for line in lines("https", "--cron"))
    assert lines("http") and not any("SSL_CERT_FILE" in line for line in lines("http"))


def test_a_step_that_fails_fails_the_whole(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    plan = planned(tmp_path, "--to", str(folder), *flags(store), "--keep-last", "1")
    service = plan["units"][0]["text"]
    assert night(tmp_path, service) == (0, "")
    (first,) = folder.glob("20*")
    # 1: the store is gone
    store.history.rename(tmp_path / "away")
    code, said = night(tmp_path, service)
    assert (code, len(said.splitlines())) == (3, 2) and "is not there" in said
    (tmp_path / "away").rename(store.history)
    # 2: what was taken does not verify; then nothing is expired either
    create, verify, expire = lines_of(service)
    assert execute(tmp_path, create).returncode == 0
    second = sorted(folder.glob("20*"))[-1]
    (second / "history.db").unlink()
    done = execute(tmp_path, verify)
    assert done.returncode == 1 and "NOT GOOD" in done.stdout
    # 3: the marks do not read, so that it is not known what is to be kept
    (folder / ".mem0audit-marks.json").write_text("{}")
    done = execute(tmp_path, expire)
    assert done.returncode == 3 and "no file of marks" in done.stderr
    assert {first, second} == set(folder.glob("20*"))


def test_another_home_and_folder_change_nothing(tmp_path: Path, store: StoreCopy) -> None:
    """What decided the paths here (MEM0_DIR, a config file, the settings) need not be there at night."""
    (tmp_path / "mem0audit.toml").write_text(f'qdrant_path = "{store.vectors}"\nsnapshot_dir = "kept"\n')
    plan = planned(tmp_path, MEM0_DIR=str(store.history.parent))
    assert plan["commands"][0][5:] == ["--to", str(tmp_path / "kept"), *flags(store)]
    assert night(Path("/"), plan["units"][0]["text"])[0] == 0
    assert len(list((tmp_path / "kept").glob("20*"))) == 1
    (tmp_path / "mem0.json").write_text(
        f'{{"vector_store": {{"provider": "qdrant", "config": {{"path": "{store.vectors}"}}}},'
        f' "history_db_path": "{store.history}"}}'
    )
    plan = planned(tmp_path, "--config", "mem0.json")
    assert plan["commands"][0][5:] == [
        "--to",
        str(tmp_path / "kept"),
        "--config",
        str(tmp_path / "mem0.json"),
    ]
    assert night(tmp_path, plan["units"][0]["text"])[0] == 0
    ran = schedule(tmp_path, "snapshot", "--config", "mymodule:CONFIG", "--to", "kept")
    assert ran.code in (2, 3)


@pytest.mark.root
def test_it_runs_as_the_owner_of_the_store(tmp_path: Path, store: StoreCopy) -> None:
    needs_root()
    for path in (store.history, store.vectors):
        os.chown(path, 65534, -1)
    plan = planned(tmp_path, "--to", str(tmp_path / "snapshots"), *flags(store))
    assert plan["user"] == "nobody" and "\nUser=nobody\n" in plan["units"][0]["text"]
    assert plan["set_up"][0].startswith("sudo install -d -m 0700 -o nobody /")
    # pytest's folder is closed to others
    assert any("nobody cannot run" in note for note in plan["notes"]) or os.access(sys.executable, os.X_OK)
    plan = planned(tmp_path, "--to", str(tmp_path / "snapshots"), *flags(store), "--run-as", "root")
    assert plan["user"] == "root"
    os.chown(store.history, 1, -1)
    assert planned(tmp_path, "--to", str(tmp_path / "snapshots"), *flags(store))["user"] == "root"
    own = planned(tmp_path, "--to", str(tmp_path / "snapshots"), *flags(store), "--user")
    assert own["user"] is None and own["notes"] == []


@pytest.mark.root
def test_a_program_that_the_user_cannot_run_is_said(tmp_path: Path, store: StoreCopy) -> None:
    needs_root()
    program = tmp_path / "private" / "mem0audit"
    program.parent.mkdir(mode=0o700)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in (store.history, store.vectors):
        os.chown(path, 65534, -1)
    words = ("--to", str(tmp_path / "snapshots"), *flags(store))
    (note,) = planned(tmp_path, *words, MEM0AUDIT_PROGRAM=str(program))["notes"]
    assert note.startswith(f"nobody cannot run {program}: ") and "is closed to that user" in note


# --- refused ----------------------------------------------------------------------------------------------


def test_what_would_be_refused_each_night_is_refused_now(tmp_path: Path, store: StoreCopy) -> None:
    for words, code, says in (
        (("--to", str(store.vectors / "x"), *flags(store)), 4, "inside the vector store"),
        (
            ("--to", "x", "--history", "h", "--qdrant-path", f"/proc/{os.getpid()}/root/tmp/q"),
            *(4, "no job finds it the next night"),
        ),
        (("--to", "x"), 3, "is not there, so that its owner is not known"),
        (("--to", "x", *flags(store), "--at", "24:00"), 2, "no time of a day"),
        (("--to", "x", *flags(store), "--at", "2:30"), 2, "no time of a day"),
        (("--to", "x", *flags(store), "--keep-within", "30"), 2, "--keep-within"),
        (("--to", "x", *flags(store), "--cron", "--install"), 2, "crontab -e"),
        (("--to", "x", *flags(store), "--enable"), 2, "only with --install"),
        (("--to", "x", *flags(store), "--user", "--run-as", "root"), 2, "--run-as"),
        (("--to", "x", *flags(store), "--run-as", "a b"), 2, "no name of an account"),
        (flags(store), 2, "no folder for snapshots is named"),
    ):
        ran = schedule(tmp_path, "snapshot", *words)
        assert (ran.code, ran.out) == (code, ""), words
        assert says in ran.err, words
    assert not (tmp_path / "x").exists()


def test_the_help_is_one_text(tmp_path: Path) -> None:
    """What all jobs share stands behind what one says of itself, whatever a Python does to indented texts."""
    told = call(tmp_path, "schedule", "prune", "--help").out.partition("Options:")[0]
    assert "  After a snapshot. With --stop-unit" in told and "once only with --run, since it" in told
    assert not re.search(r"\S {2,}\S", told)


def test_a_checkout_is_no_program(tmp_path: Path, store: StoreCopy) -> None:
    ran = call(tmp_path, "schedule", "snapshot", "--to", "x", *flags(store), env={"MEM0AUDIT_PROGRAM": ""})
    if ran.code:  # else an installed mem0audit was found on the PATH
        assert ran.code == 4 and "runs from a checkout" in ran.err


# --- cron -------------------------------------------------------------------------------------------------


def as_cron_runs_it(line: str) -> str:
    """The command of a crontab line, as crontab(5) says: five fields, and of the rest what comes before a bare `%`;
    a `\\%` is a `%`."""
    command = line.split(" ", 5)[5]
    assert not re.search(r"(?<!\\)%", command)
    return command.replace("\\%", "%")


def test_the_cron_line_runs(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "it's a $HOME 100%"
    words = ("--to", str(folder), *flags(store), "--keep-last", "1", "--at", "04:05", "--cron")
    plan = planned(tmp_path, *words)
    assert plan["units"] == [] and plan["cron"].startswith("5 4 * * * /")
    text = schedule(tmp_path, "snapshot", *words).out
    assert plan["cron"] in text.splitlines()
    command = as_cron_runs_it(plan["cron"])
    for _ in range(2):
        done = execute(tmp_path, ["/bin/sh", "-c", command])
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")  # cron mails what is said
        assert len(list(folder.glob("20*"))) == 1
    store.history.rename(tmp_path / "away")
    done = execute(tmp_path, ["/bin/sh", "-c", command])
    assert done.returncode == 3 and "is not there" in done.stderr


def test_what_no_crontab_holds(tmp_path: Path) -> None:
    def of(folder: str) -> Nightly:
        return Nightly(Snapshot(folder, Policy(last=1)), ("/usr/bin/mem0audit",), (), "02:30", "root")

    assert cron_line(of("/b")).startswith("30 2 * * * /usr/bin/mem0audit snapshot create --quiet --to /b && ")
    for folder in ("/back\\slash", "/new\nline", "/" + "x" * LONGEST_CRON_LINE):
        with pytest.raises(CannotSay):
            cron_line(of(folder))


# --- install ----------------------------------------------------------------------------------------------


def test_install_writes_and_enables_nothing(tmp_path: Path, store: StoreCopy) -> None:
    words = ("snapshot", "--user", "--to", str(tmp_path / "snapshots"), *flags(store))
    before = schedule(tmp_path, *words)
    assert not (tmp_path / ".config").exists()
    ran = schedule(tmp_path, *words, "--install")
    assert ran.code == 0, ran.err
    assert (
        "Not enabled yet:" in ran.out and "systemctl --user enable --now mem0audit-snapshot.timer" in ran.out
    )
    folder = tmp_path / ".config/systemd/user"
    assert {p.name for p in folder.iterdir()} == {"mem0audit-snapshot.service", "mem0audit-snapshot.timer"}
    for path in folder.iterdir():
        assert path.read_text() in before.out
        assert path.stat().st_mode & 0o777 == 0o644
    stats = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    said = check(schedule(tmp_path, *words, "--install", *JSON).out, "schedule")
    assert [one["what"] for one in said["installed"]] == ["as it was", "as it was"] and not said["enabled"]
    assert {p: p.stat().st_mtime_ns for p in folder.iterdir()} == stats


def test_a_file_that_differs_is_replaced_only_with_yes(tmp_path: Path, store: StoreCopy) -> None:
    words = ("snapshot", "--user", "--to", str(tmp_path / "snapshots"), *flags(store), "--install")
    assert schedule(tmp_path, *words).code == 0
    folder = tmp_path / ".config/systemd/user"
    timer, service = folder / "mem0audit-snapshot.timer", folder / "mem0audit-snapshot.service"
    timer.write_text("mine")
    service.unlink()
    ran = schedule(tmp_path, *words)
    assert (ran.code, ran.out) == (4, "")
    assert "is there and differs: nothing was written" in ran.err and "--yes" in ran.err
    assert timer.read_text() == "mine" and not service.exists()
    assert schedule(tmp_path, *words, "--yes").code == 0
    assert "OnCalendar" in timer.read_text() and service.exists()


@pytest.mark.parametrize("name", ["file.create", "file.write", "file.fsync", "file.rename", "file.folder"])
@pytest.mark.parametrize("which", [1, 2])
def test_a_unit_file_is_there_whole_or_as_it_was(
    tmp_path: Path, store: StoreCopy, monkeypatch: pytest.MonkeyPatch, name: str, which: int
) -> None:
    words = ("snapshot", "--user", "--to", str(tmp_path / "snapshots"), *flags(store), "--install", "--yes")
    folder = tmp_path / ".config/systemd/user"
    folder.mkdir(parents=True)
    for kind in ("service", "timer"):
        (folder / f"mem0audit-snapshot.{kind}").write_text("old")
    left = which

    def fail(step: str) -> None:
        nonlocal left
        left -= step == name
        if step == name and left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "step", fail)
        ran = schedule(tmp_path, *words)
    assert (ran.code, left) == (5, 0) and "the same command finishes it" in ran.err
    texts = planned(tmp_path, *words[1:-2])["units"]
    for unit in texts:
        assert Path(unit["path"]).read_text() in ("old", unit["text"])
    assert len(list(folder.iterdir())) == 2
    assert schedule(tmp_path, *words).code == 0
    assert [Path(unit["path"]).read_text() for unit in texts] == [unit["text"] for unit in texts]


def test_a_masked_unit_is_left_alone(tmp_path: Path, store: StoreCopy) -> None:
    """`systemctl mask` makes a link to /dev/null: writing through it would replace /dev/null."""
    folder = tmp_path / ".config/systemd/user"
    folder.mkdir(parents=True)
    (folder / "mem0audit-snapshot.service").symlink_to("/dev/null")
    words = ("snapshot", "--user", "--to", str(tmp_path / "snapshots"), *flags(store), "--install", "--yes")
    ran = schedule(tmp_path, *words)
    assert ran.code == 4 and "is a link to /dev/null" in ran.err
    assert [p.name for p in folder.iterdir()] == ["mem0audit-snapshot.service"]
    assert Path("/dev/null").is_char_device()


def test_enable_says_what_systemd_says(tmp_path: Path, store: StoreCopy) -> None:
    words = (
        "snapshot",
        "--user",
        "--to",
        str(tmp_path / "snapshots"),
        *flags(store),
        "--install",
        "--enable",
    )
    ran = schedule(
        tmp_path, *words, XDG_RUNTIME_DIR=str(tmp_path), DBUS_SESSION_BUS_ADDRESS="unix:path=/nowhere"
    )
    assert ran.code == 5
    assert "written, and not enabled: systemctl daemon-reload: " in ran.err
    assert (tmp_path / ".config/systemd/user/mem0audit-snapshot.timer").exists()


# --- status -----------------------------------------------------------------------------------------------


def test_status_where_systemd_cannot_be_asked(tmp_path: Path, store: StoreCopy) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}
    ran = schedule(tmp_path, "status", **env)
    assert "not seen: what systemd knows of user units: " in ran.out
    told = check(schedule(tmp_path, "status", *JSON, **env).out, "schedule-status")
    assert "user" not in [one["scope"] for one in told["systemd"]]
    words = ("snapshot", "--user", "--to", str(tmp_path / "snapshots"), *flags(store), "--install")
    assert schedule(tmp_path, *words).code == 0
    ran = schedule(tmp_path, "status", **env)
    assert ran.code == 3
    assert "mem0audit-snapshot.timer" in ran.out and " snapshot create --to " in ran.out
    told = check(schedule(tmp_path, "status", *JSON, **env).out, "schedule-status")
    (own,) = [one for one in told["systemd"] if one["scope"] == "user"]
    assert own["last_failed"] is None and own["next_at"] is None and len(own["commands"]) == 3


def test_status_finds_a_crontab(tmp_path: Path) -> None:
    """A stand-in for crontab, which need not be installed."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin/crontab"
    stand_in.write_text(
        "#!/bin/sh\necho '# x snapshot create'\necho '30 2 * * * mem0audit snapshot create --quiet'\n"
    )
    stand_in.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    told = check(schedule(tmp_path, "status", *JSON, PATH=path).out, "schedule-status")
    assert told["cron"] == ["30 2 * * * mem0audit snapshot create --quiet"]
    stand_in.write_text("#!/bin/sh\necho 'no crontab for agent' >&2\nexit 1\n")
    told = check(schedule(tmp_path, "status", *JSON, PATH=path).out, "schedule-status")
    assert told["cron"] == [] and not [one for one in told["not_checked"] if "crontab" in one["what"]]


NIGHTS = {
    "snapshot": ("inactive", "success", "0", True, True),
    "audit": ("failed", "exit-code", "4", True, True),
    "prune": ("inactive", "exec-condition", "0", False, True),
    "review": ("failed", "exit-code", "0", False, True),
    "new": ("activating", "success", "0", False, True),
}
"""What a real systemd (252) has of the service after a night that went well, one that failed, one with nothing to do,
one of which that could not be told, and in one: state, result, status, whether the program ended, and began."""


def test_how_each_night_ended(tmp_path: Path) -> None:
    """A stand-in for systemctl says what was seen."""
    at, lines = "Mon 2026-11-30 01:00:00 UTC", ["#!/bin/sh", "case $* in *--user*) ;;"]
    for job, (state, result, status, ran, begun) in NIGHTS.items():
        facts = {"LoadState": "loaded", "ActiveState": state, "Result": result, "ExecMainStatus": status}
        facts |= {"ExecMainStartTimestamp": at, "ExecMainExitTimestamp": at} if ran else {}
        facts |= {"InactiveExitTimestamp": at} if begun else {}
        said = "; ".join(f"echo {shlex.quote(f'{key}={value}')}" for key, value in facts.items())
        lines.append(f"*mem0audit-{job}*) {said};;")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text("\n".join([*lines, "esac"]))
    (tmp_path / "bin/systemctl").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    told = check(schedule(tmp_path, "status", *JSON, PATH=path).out, "schedule-status")["systemd"]
    assert {
        one["job"]: (one["last_failed"], one["last_exit"]) for one in told if one["scope"] == "system"
    } == {
        "snapshot": (False, 0),
        "audit": (True, 4),
        "prune": (False, None),
        "review": (True, None),
        "new": (None, None),
    }
    ran_ = schedule(tmp_path, "status", PATH=path)
    assert ran_.code == 1
    assert [
        line.partition("UTC")[2] for line in ran_.out.splitlines() if line.startswith("  last run  Mon")
    ] == [
        "  well",
        "  well, nothing was to be done",
        "  FAILED, exit 4 (refused, nothing changed)",
        "",
        "  FAILED",
    ]


REAL = r"""
set -u
mount -t tmpfs run /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
/lib/systemd/systemd --user --log-target=console --show-status=no >"$HOME/systemd.log" 2>&1 &
manager=$!
for _ in $(seq 100); do systemctl --user list-units >/dev/null 2>&1 && break; sleep 0.1; done
if systemctl --user list-units >/dev/null; then echo "== start"; "$@"; fi
kill $manager
wait $manager 2>/dev/null
exit 0
"""


def in_a_session(home: Path, script: str) -> str:
    """Runs a script beside a systemd of its own (`systemd --user`, in a mount namespace with a /run of its own)."""
    needs_root()
    needs("unshare")
    if not Path("/lib/systemd/systemd").exists():
        pytest.skip("no systemd")
    env = {
        **clean_environment(home),
        "XDG_RUNTIME_DIR": "/run/user/test",
        "MEM0AUDIT_PROGRAM": PROGRAM,
        "LC_ALL": "C.UTF-8",
    }
    words = ["unshare", "--mount", "--fork", "sh", "-c", REAL, "sh", "sh", "-c", script]
    done = subprocess.run(words, env=env, cwd=home, capture_output=True, text=True, timeout=300)
    if "== start" not in done.stdout:
        pytest.skip(f"no systemd runs here: {done.stderr}")
    return done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.root
def test_beside_a_real_systemd(tmp_path: Path, store: StoreCopy) -> None:
    """Installed, enabled, run by a real systemd, and its status told; then a failing night, told too."""
    folder = tmp_path / 'a "b" $HOME 100% \\ é'
    (tmp_path / "run").write_text(f'#!/bin/sh\nexec {PROGRAM} "$@"\n')
    (tmp_path / "run").chmod(0o755)
    script = f"""
    set -x
    ./run schedule snapshot --user --to "$FOLDER" --history {store.history} --qdrant-path {store.vectors} \\
        --keep-last 1 --install --enable
    systemctl --user start mem0audit-snapshot.service; echo "first night: $?"
    sleep 1.1
    systemctl --user start mem0audit-snapshot.service; echo "second night: $?"
    ./run schedule status --format json >first.json
    ./run schedule status
    mv {store.history} away
    systemctl --user start mem0audit-snapshot.service; echo "third night: $?"
    ./run schedule status --format json >second.json; echo "status: $?"
    ./run schedule status
    """
    said = in_a_session(tmp_path, f"FOLDER={shlex.quote(str(folder))}\n{script}")
    print(said)
    assert "first night: 0" in said and "second night: 0" in said
    assert len(list(folder.glob("20*"))) == 1
    first = check((tmp_path / "first.json").read_text(), "schedule-status")
    (own,) = [one for one in first["systemd"] if one["scope"] == "user"]
    assert (own["enabled"], own["active"], own["last_failed"], own["last_exit"]) == (
        "enabled",
        "active",
        False,
        0,
    )
    assert own["next_at"].endswith("UTC") and own["last_at"].endswith("UTC") and not own["stale"]
    assert "third night: 1" in said and "status: 1" in said
    second = check((tmp_path / "second.json").read_text(), "schedule-status")
    (own,) = [one for one in second["systemd"] if one["scope"] == "user"]
    assert (own["last_failed"], own["last_exit"]) == (True, 3)
    assert "FAILED, exit 3" in said


def test_times_of_a_timer_are_systemds(tmp_path: Path) -> None:
    needs("systemd-analyze")
    made = Nightly(Snapshot("/b", Policy(last=1)), ("/usr/bin/mem0audit",), (), "02:30", None)
    (calendar,) = [line for line in timer_text(made).splitlines() if line.startswith("OnCalendar=")]
    done = subprocess.run(
        ["systemd-analyze", "calendar", calendar.partition("=")[2]], capture_output=True, text=True
    )
    assert done.returncode == 0 and "Normalized form: *-*-* 02:30:00" in done.stdout
    assert "User=" not in service_text(made)


@pytest.mark.root
def test_a_folder_in_memory_is_refused(tmp_path: Path, store: StoreCopy) -> None:
    with mounted(tmp_path / "memory", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as point:
        ran = schedule(tmp_path, "snapshot", "--to", str(point), *flags(store))
        assert ran.code == 4 and "in memory" in ran.err


@pytest.mark.thorough
@pytest.mark.root
def test_roots_hand_in_the_folder_does_not_stop_the_agents_user() -> None:
    """The night runs as the owner of the store; then root verifies, keeps and expires there, and the next night
    still runs as that user."""
    needs_root()
    needs("setpriv")
    with tempfile.TemporaryDirectory(prefix="mem0audit-") as name:
        home = Path(name)
        store = copy_store("2.2.1-nlp", home, pre_delete_all=True)
        folder = home / "snapshots"
        plan = planned(home, "--to", str(folder), *flags(store), "--keep-last", "2")
        folder.mkdir()
        for path in (home, *home.rglob("*")):
            os.chown(path, 65534, 65534)
        env = {**clean_environment(home), "HOME": str(home)}

        # It may read this checkout and Python wherever they lie, and write only what is its own.
        caps = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *caps]

        def as_nobody(words: list[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run([*nobody, *words], env=env, cwd="/", capture_output=True, text=True)

        for _ in range(2):
            for words in plan["commands"]:
                done = as_nobody(words)
                assert done.returncode == 0, done.stderr
            newest = max(folder.glob("20*")).name
            to = ("--to", str(folder))
            assert call(home, "snapshot", "verify", "--deep", *to).code == 0
            assert call(home, "snapshot", "keep", newest, *to, "--reason", "why").code == 0
            assert call(home, "snapshot", "keep", newest, *to, "--off").code == 0
            assert call(home, "snapshot", "expire", "--keep-last", "1", "--yes", *to).code == 0
        assert len(list(folder.glob("20*"))) == 1
        assert {path.stat().st_uid for path in folder.rglob("*")} == {65534}


@pytest.mark.root
def test_out_of_an_agents_own_tmp_it_runs_as_root(durable: Path) -> None:
    """PrivateTmp=: from here nothing lies at the path, and root takes it while the agent lives, whatever its pid."""
    needs_root()
    theirs = copy_store("2.2.1", durable / "theirs")
    seen = durable / "seen"
    seen.mkdir()
    copying = f"mount -t tmpfs tmpfs {seen} && cp -r {theirs.vectors} {theirs.history} {seen} && chown -R 65534 {seen}"
    script = f'{copying} && exec "{os.path.realpath(sys.executable)}" -c "$1" "{seen}" same delete'
    words = (
        "--history",
        f"{seen}/history.db",
        "--qdrant-path",
        f"{seen}/qdrant",
        "--to",
        f"{durable}/snapshots",
    )
    assert schedule(durable, "snapshot", *words).code == 3
    agent = subprocess.Popen(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", HOLDING],
        stdout=subprocess.PIPE,
    )
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline().strip() == b"open"
        plan = planned(durable, *words)
        assert plan["user"] == "root" and plan["commands"][0][-4:] == list(words[:4])
        assert night(durable, plan["units"][0]["text"]) == (0, "")
    finally:
        agent.kill()
        agent.wait()
        assert agent.stdout is not None
        agent.stdout.close()
    assert len(list((durable / "snapshots").glob("20*"))) == 1
    code, said = night(durable, plan["units"][0]["text"])
    assert code == 3 and "is not there" in said
