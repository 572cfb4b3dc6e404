from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.model import Candidate, Install
from mem0audit.install.candidates import find_candidates
from mem0audit.install.host import Host
from mem0audit.install.locate import Flags, locate
from tests.install.conftest import private_tmp
from tests.install.test_processes import HOLD_HISTORY, LIKE_QDRANT

Running = Callable[..., "subprocess.Popen[str]"]
STORES = Path(__file__).parents[1] / "data" / "stores"


def history(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE history (id TEXT PRIMARY KEY)")
    connection.commit()
    connection.close()
    return path


def store(path: Path) -> Path:
    shutil.copytree(STORES / "2.2.1" / "qdrant", path)
    return path


def mine(install: Install, host: Host, *under: Path) -> dict[str, Candidate]:
    """Those of this test: others may run on this machine."""
    return {
        one.path: one
        for one in find_candidates(install, host)
        if any(str(folder) in one.path for folder in under)
    }


@pytest.fixture
def machine(made_host: Host) -> Host:
    root = Path(made_host.root)
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text(
        "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nagent:x:990:990::/var/lib/agent:/bin/false\n"
        "nobody:x:65534:65534::/nonexistent:/bin/false\n"
    )
    return made_host


def find(host: Host) -> dict[str, str]:
    return {one.path: one.found_by for one in find_candidates(locate(Flags(), host), host)}


def test_nothing_anywhere(machine: Host) -> None:
    assert find(machine) == {}


def test_other_homes_and_the_default_folder(machine: Host) -> None:
    root = Path(machine.root)
    history(root / "home/ann/.mem0/history.db")  # the install's own
    history(root / "home/bob/.mem0/history.db")
    history(root / "root/.mem0/history.db")
    history(root / "var/lib/agent/.mem0/history.db")
    store(root / "root/.mem0/qdrant")
    assert find(machine) == {
        "/home/bob/.mem0/history.db": "home of bob",
        "/root/.mem0/history.db": "home of root",
        "/root/.mem0/qdrant": "home of root",
        "/var/lib/agent/.mem0/history.db": "home of agent",
    }
    store(root / "tmp/qdrant")
    assert "/tmp/qdrant" not in find(machine)  # it is the install's own
    other = locate(Flags(qdrant_path="/srv/q"), machine)
    found = {one.path: one for one in find_candidates(other, machine)}
    assert found["/tmp/qdrant"].found_by == "mem0's default"
    assert "/home/ann/.mem0/history.db" not in found


def test_sudo_names_the_store_of_who_called_it(machine: Host) -> None:
    root = Path(machine.root)
    history(root / "home/ann/.mem0/history.db")
    sudo = replace(machine, home="/root", uid=0, environ={"SUDO_USER": "ann"})
    (found,) = find_candidates(locate(Flags(), sudo), sudo)
    assert (found.path, found.found_by) == ("/home/ann/.mem0/history.db", "home of ann")
    assert found.command == "mem0audit audit --history /home/ann/.mem0/history.db --qdrant-path /tmp/qdrant"


def test_the_halves_of_one_place_are_audited_together(machine: Host) -> None:
    root = Path(machine.root)
    history(root / "root/.mem0/history.db")
    store(root / "root/.mem0/qdrant")
    commands = {one.command for one in find_candidates(locate(Flags(), machine), machine)}
    assert commands == {"mem0audit audit --history /root/.mem0/history.db --qdrant-path /root/.mem0/qdrant"}


def test_stray_files_of_relative_paths(machine: Host) -> None:
    root = Path(machine.root)
    (root / "srv/a b").mkdir(parents=True)
    here = replace(machine, cwd="/srv/a b")
    history(root / "srv/a b/history.db")
    history(root / "srv/a b/~/.mem0/history.db")
    (root / "srv/a b/qdrant").mkdir()
    assert set(find(here)) == {
        "/srv/a b/history.db",
        "/srv/a b/~/.mem0/history.db",
    }  # an empty folder is no store
    command = {one.path: one.command for one in find_candidates(locate(Flags(), here), here)}[
        "/srv/a b/history.db"
    ]
    assert command is not None
    assert shlex.split(command)[:4] == ["mem0audit", "audit", "--history", "/srv/a b/history.db"]


def test_an_empty_history_and_a_mem0_dir_elsewhere(machine: Host) -> None:
    root = Path(machine.root)
    (root / "home/bob/.mem0").mkdir(parents=True)
    (root / "home/bob/.mem0/history.db").write_text("")
    assert find(machine) == {}
    history(root / "home/ann/.mem0/history.db")
    there = replace(machine, environ={"MEM0_DIR": "/srv/m"})
    assert find(there) == {"/home/ann/.mem0/history.db": "mem0's default"}


# --- on this machine ----------------------------------------------------------------------------------


def test_what_processes_hold_and_what_their_environment_points_to(
    tmp_path: Path, host: Host, running: Running
) -> None:
    folder = tmp_path / "it's here"
    history(folder / "m" / "history.db")
    history(tmp_path / "cwd" / "history.db")
    agent = running(
        LIKE_QDRANT,
        str(folder / "q"),
        env={**os.environ, "MEM0_DIR": str(folder / "m")},
        cwd=tmp_path / "cwd",
    )
    found = mine(locate(Flags(), host), host, tmp_path)
    assert {path: one.found_by.partition(" (")[0] for path, one in found.items()} == {
        str(folder / "q"): f"held by pid {agent.pid}",
        str(folder / "m" / "history.db"): f"MEM0_DIR of pid {agent.pid}",
        str(tmp_path / "cwd" / "history.db"): f"working directory of pid {agent.pid}",
    }
    words = shlex.split(found[str(folder / "q")].command or "")
    assert words[:2] == ["mem0audit", "audit"] and words[words.index("--qdrant-path") + 1] == str(
        folder / "q"
    )


def test_the_installs_own_are_no_candidates_by_any_name(tmp_path: Path, host: Host, running: Running) -> None:
    running(LIKE_QDRANT, str(tmp_path / "q"))
    running(HOLD_HISTORY, str(tmp_path / "history.db"))
    (tmp_path / "link").symlink_to(tmp_path / "q")
    install = locate(Flags(history=str(tmp_path / "history.db"), qdrant_path=str(tmp_path / "link")), host)
    assert mine(install, host, tmp_path) == {}
    other = locate(Flags(history=str(tmp_path / "none.db"), qdrant_path=str(tmp_path / "none")), host)
    assert len(mine(other, host, tmp_path)) == 2


@pytest.mark.root
def test_a_store_in_a_private_tmp_is_named_by_a_path_that_works(
    tmp_path: Path, host: Host, running: Running
) -> None:
    prefix = private_tmp(tmp_path / "stage")
    agent = running(
        LIKE_QDRANT, "/tmp/qdrant", prefix=prefix, env={**os.environ, "HOME": "/", "MEM0_DIR": "/tmp/m"}
    )
    install = locate(Flags(), host)
    found = {one.path: one for one in find_candidates(install, host) if f"pid {agent.pid} " in one.found_by}
    assert list(found) == [f"/proc/{agent.pid}/root/tmp/qdrant"]
    (only,) = found.values()
    assert only.command is not None and f"--qdrant-path /proc/{agent.pid}/root/tmp/qdrant" in only.command
    assert os.path.isfile(only.path + "/collection/mem0/storage.sqlite")


LOOK = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from dataclasses import replace
from mem0audit.install.candidates import find_candidates
from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
os.setgroups([]); os.setgid(65534); os.setuid(65534)
host = replace(this_host(), cwd=sys.argv[2], environ={}, home="/nonexistent")
for one in find_candidates(locate(Flags(), host), host):
    if one.path.startswith(sys.argv[2]):
        print(one.command)
"""


@pytest.mark.root
@pytest.mark.parametrize(("mode", "first"), [(0o600, "sudo mem0audit audit"), (0o644, "mem0audit audit")])
def test_what_this_user_cannot_read_needs_sudo(mode: int, first: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        history(Path(folder, "history.db")).chmod(mode)
        out = subprocess.run(
            [sys.executable, "-c", LOOK, json.dumps([str(Path(__file__).parents[2]), *sys.path]), folder],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    assert out == f"{first} --history {folder}/history.db --qdrant-path /tmp/qdrant\n"


def test_halves_that_lie_together_are_paired(tmp_path: Path, host: Host, running: Running) -> None:
    """One process with two stores open: each log is named with the vectors beside it."""
    for name in ("one", "two"):
        (tmp_path / name / "qdrant" / "collection" / "mem0").mkdir(parents=True)
    holding = (
        "import sqlite3, sys, time\n"
        "files = [f'{sys.argv[1]}/{n}/{f}' for n in ('one', 'two')"
        " for f in ('history.db', 'qdrant/collection/mem0/storage.sqlite')]\n"
        "open_ones = [sqlite3.connect(f) for f in files]\n"
        "[c.execute('create table t (x)') for c in open_ones]\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    running(holding, str(tmp_path))
    found = {c.path: c.command or "" for c in find_candidates(locate(Flags(), host), host)}
    for name in ("one", "two"):
        command = found[str(tmp_path / name / "history.db")]
        assert f"--qdrant-path {tmp_path / name / 'qdrant'}" in command, command


def test_another_log_goes_with_the_server(tmp_path: Path, host: Host) -> None:
    history(tmp_path / "history.db")
    here = replace(host, cwd=str(tmp_path), environ={**host.environ, "KEY": "a secret"})
    install = locate(Flags(history="/h.db", qdrant_url="http://q:6333", api_key_env="KEY"), here)
    (one,) = [c for c in find_candidates(install, here) if c.path == str(tmp_path / "history.db")]
    words = f"--history {tmp_path}/history.db --qdrant-url http://q:6333 --api-key-env KEY"
    assert one.command == f"mem0audit audit {words}"
