"""Holders of real stores: the child processes here really have them open, through qdrant_client and sqlite3."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.install.host import Host, this_host
from mem0audit.install.processes import described, holders, stores_held, unit_in
from tests.install.conftest import private_tmp

HOLD_STORE = """
import sys
from qdrant_client import QdrantClient, models
client = QdrantClient(path=sys.argv[1])
client.create_collection("mem0", vectors_config=models.VectorParams(size=2, distance="Cosine"))
client.upsert("mem0", [models.PointStruct(id=1, vector=[1.0, 2.0], payload={"data": "x"})])
print("ready", flush=True)
sys.stdin.read()
client.close()
"""
# What the one above holds open, in a twentieth of the time.
LIKE_QDRANT = """
import fcntl, os, sqlite3, sys
folder = sys.argv[1]
os.makedirs(folder + "/collection/mem0", exist_ok=True)
open(folder + "/meta.json", "a").write("{}")
lock = open(folder + "/.lock", "a")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
points = sqlite3.connect(folder + "/collection/mem0/storage.sqlite")
points.execute("CREATE TABLE IF NOT EXISTS points (id TEXT PRIMARY KEY, point BLOB)")
points.execute("INSERT OR REPLACE INTO points VALUES ('1', 'x')")
points.commit()
print("ready", flush=True)
sys.stdin.read()
points.close()
lock.close()
"""
HOLD_HISTORY = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("CREATE TABLE IF NOT EXISTS history (id TEXT PRIMARY KEY)")
connection.commit()
print("ready", flush=True)
sys.stdin.read()
connection.close()
"""
Running = Callable[..., "subprocess.Popen[str]"]


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ctime_ns)
        for path in sorted(folder.rglob("*"))
    }


def test_a_store_and_a_history_that_are_held(tmp_path: Path, host: Host, running: Running) -> None:
    store, history = tmp_path / "qdrant", tmp_path / "history.db"
    agent = running(HOLD_STORE, str(store))
    writer = running(HOLD_HISTORY, str(history))
    before = state(tmp_path)
    look = holders([str(history), str(store)], host)
    assert state(tmp_path) == before
    by_pid = {holder.pid: holder for holder in look.holders}
    # an audit of another test may look into this store at the same moment
    assert {agent.pid, writer.pid} <= set(by_pid)
    held = by_pid[agent.pid]
    assert held.how == "lock"
    assert {os.path.basename(path) for path in held.paths} == {".lock", "storage.sqlite"}
    assert held.interpreter == sys.executable
    assert held.command.startswith(f"{sys.executable} -c")
    assert held.started_at is not None and abs(held.started_at - host.now) < 300
    assert (held.private_mounts, held.private_tmp) == (False, False)
    assert by_pid[writer.pid].how == "file"
    assert by_pid[writer.pid].paths == (str(history),)


def test_nobody_holds_a_store_whose_lock_file_was_left(tmp_path: Path, host: Host, running: Running) -> None:
    """`.lock` stays after a normal end and after a kill: its existence means nothing."""
    store = tmp_path / "qdrant"
    agent = running(LIKE_QDRANT, str(store))
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    assert (store / ".lock").exists()
    assert holders([str(store)], host).holders == ()


def test_looking_takes_no_lock(tmp_path: Path, host: Host, running: Running) -> None:
    """An agent that starts and stops all the time while we look never finds its lock taken."""
    churn = running(
        "import fcntl, sys\nf = open(sys.argv[1] + '/.lock', 'w')\nprint('ready', flush=True)\n"
        "failed = 0\nimport select\n"
        "while not select.select([sys.stdin], [], [], 0)[0]:\n"
        "    try: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(f, fcntl.LOCK_UN)\n"
        "    except BlockingIOError: failed += 1\n"
        "print('failed', failed, flush=True)",
        str(tmp_path),
    )
    for _ in range(30):
        holders([str(tmp_path)], host)
        stores_held(host)
    out, _ = churn.communicate("stop\n")
    assert out == "failed 0\n"


def test_a_path_that_does_not_exist_and_a_stranger(tmp_path: Path, host: Host, running: Running) -> None:
    running(HOLD_HISTORY, str(tmp_path / "other.db"))
    assert holders([str(tmp_path / "none"), str(tmp_path / "history.db")], host).holders == ()


def test_a_folder_seen_through_a_link(tmp_path: Path, host: Host, running: Running) -> None:
    store = tmp_path / "real"
    agent = running(LIKE_QDRANT, str(store))
    (tmp_path / "link").symlink_to(store)
    look = holders([str(tmp_path / "link")], host)
    assert [(holder.pid, holder.how) for holder in look.holders] == [(agent.pid, "lock")]


def test_a_history_under_another_name(tmp_path: Path, host: Host, running: Running) -> None:
    writer = running(HOLD_HISTORY, str(tmp_path / "log.sqlite3"))
    (tmp_path / "history.db").symlink_to("log.sqlite3")
    look = holders([str(tmp_path / "history.db")], host)
    assert [holder.pid for holder in look.holders] == [writer.pid]


def test_a_store_deleted_under_its_agent(tmp_path: Path, host: Host, running: Running) -> None:
    """The agent goes on writing into files that no path leads to any more."""
    store = tmp_path / "qdrant"
    agent = running(HOLD_STORE, str(store))
    shutil.rmtree(store)
    look = holders([str(store)], host)
    assert [holder.pid for holder in look.holders] == [agent.pid]
    assert f"{store}/collection/mem0/storage.sqlite (deleted)" in look.holders[0].paths
    found = [one for one in stores_held(host) if f"pid {agent.pid} " in one.found_by]
    assert [one.kind for one in found] == ["vectors"]
    assert "deleted under it" in found[0].found_by and str(store) in found[0].found_by
    # What is named there is the database, readable.
    copy = tmp_path / "rescued.sqlite"
    shutil.copyfile(found[0].path, copy)
    connection = sqlite3.connect(copy)
    assert connection.execute("SELECT count(*) FROM points").fetchone() == (1,)
    connection.close()


def test_a_recreated_store_is_not_the_deleted_one(tmp_path: Path, host: Host, running: Running) -> None:
    store = tmp_path / "qdrant"
    old = running(LIKE_QDRANT, str(store))
    shutil.rmtree(store)
    new = running(LIKE_QDRANT, str(store))
    by_pid = {holder.pid: holder for holder in holders([str(store)], host).holders}
    assert all(path.endswith("(deleted)") for path in by_pid[old.pid].paths)
    assert not any(path.endswith("(deleted)") for path in by_pid[new.pid].paths)
    assert by_pid[new.pid].how == "lock"


def test_every_store_that_is_held_is_found(tmp_path: Path, host: Host, running: Running) -> None:
    agent = running(LIKE_QDRANT, str(tmp_path / "some where" / "q"))
    writer = running(HOLD_HISTORY, str(tmp_path / "history.db"))
    text = "open('history.db', 'w').write('no SQLite'); f = open('history.db'); print('ready', flush=True)\n"
    running(text + "import sys; sys.stdin.read()", cwd=tmp_path / "some where")
    running(HOLD_HISTORY, str(tmp_path / "unrelated.db"))
    found = {(one.kind, one.path): one for one in stores_held(host) if str(tmp_path) in one.path}
    assert set(found) == {
        ("vectors", str(tmp_path / "some where" / "q")),
        ("history", str(tmp_path / "history.db")),
    }
    assert found["vectors", str(tmp_path / "some where" / "q")].found_by.startswith(
        f"held by pid {agent.pid} ("
    )
    assert found["history", str(tmp_path / "history.db")].found_by.startswith(f"held by pid {writer.pid} (")


# --- other mount namespaces ---------------------------------------------------------------------------

PRIVATE = ("unshare", "-m", "--propagation", "private", "sh", "-c")


@pytest.mark.root
def test_a_store_in_a_private_tmp(tmp_path: Path, host: Host, running: Running, own_home: Path) -> None:
    agent = running(
        HOLD_STORE,
        "/tmp/mem0audit-private/qdrant",
        prefix=private_tmp(tmp_path / "stage"),
        env={**os.environ, "HOME": "/", "TMPDIR": "/"},
    )
    assert not os.path.exists("/tmp/mem0audit-private")
    look = holders(["/tmp/mem0audit-private/qdrant"], host)
    assert [holder.pid for holder in look.holders] == [agent.pid]
    held = look.holders[0]
    assert (held.private_mounts, held.private_tmp) == (True, True)
    assert "/tmp/mem0audit-private/qdrant/collection/mem0/storage.sqlite" in held.paths
    assert held.interpreter == sys.executable
    # Found as well when nobody asked, under a path that works from here.
    found = [one for one in stores_held(host) if f"pid {agent.pid} " in one.found_by]
    assert [(one.kind, one.path) for one in found] == [
        ("vectors", f"/proc/{agent.pid}/root/tmp/mem0audit-private/qdrant")
    ]
    meta = json.loads(Path(found[0].path, "meta.json").read_text())
    assert list(meta["collections"]) == ["mem0"]
    # And asked for by that path, it is the same store with its lock.
    again = holders([found[0].path], host)
    assert [(holder.pid, holder.how) for holder in again.holders] == [(agent.pid, "lock")]


@pytest.mark.root
def test_the_same_store_from_another_namespace_is_the_same(
    tmp_path: Path, host: Host, running: Running
) -> None:
    """ProtectSystem and the like give a unit mounts of its own; its store is ours all the same."""
    prefix = (*PRIVATE, 'exec "$@"', "sh")
    agent = running(LIKE_QDRANT, str(tmp_path / "qdrant"), prefix=prefix)
    look = holders([str(tmp_path / "qdrant")], host)
    assert [(holder.pid, holder.how) for holder in look.holders] == [(agent.pid, "lock")]
    assert (look.holders[0].private_mounts, look.holders[0].private_tmp) == (True, False)


@pytest.mark.root
def test_a_bind_mount_of_the_store(
    tmp_path: Path, host: Host, running: Running, mount: Callable[..., Path]
) -> None:
    agent = running(LIKE_QDRANT, str(tmp_path / "qdrant"))
    other = mount("bind", tmp_path / "other", source=str(tmp_path / "qdrant"))
    assert [(holder.pid, holder.how) for holder in holders([str(other)], host).holders] == [
        (agent.pid, "lock")
    ]


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tmpfs", "overlay"])
def test_locks_on_other_filesystems(
    kind: str, tmp_path: Path, durable: Path, host: Host, running: Running, mount: Callable[..., Path]
) -> None:
    """The device in /proc/locks is the filesystem's, whatever stat says of a file."""
    for name in ("lower", "upper", "work"):
        (durable / name).mkdir()
    options = (
        f"lowerdir={durable}/lower,upperdir={durable}/upper,workdir={durable}/work"
        if kind == "overlay"
        else ""
    )
    where = mount(kind, durable / "merged", options)
    agent = running(LIKE_QDRANT, str(where / "qdrant"))
    assert [(holder.pid, holder.how) for holder in holders([str(where / "qdrant")], host).holders] == [
        (agent.pid, "lock")
    ]


# --- what an ordinary user sees -----------------------------------------------------------------------

LOOK = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[2])
from mem0audit.install.host import this_host
from mem0audit.install.processes import holders, stores_held
os.setgroups([]); os.setgid(65534); os.setuid(65534)
look = holders([sys.argv[1]], this_host())
print("ready")
found = [[h.pid, h.how, h.user, h.interpreter, h.command] for h in look.holders]
print(json.dumps([found, look.complete, look.why, len(stores_held(this_host()))]))
"""


@pytest.mark.root
def test_an_ordinary_user_sees_the_lock_and_is_told_what_is_hidden(host: Host, running: Running) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        agent = running(LIKE_QDRANT, f"{folder}/qdrant")
        child = running(LOOK, f"{folder}/qdrant", json.dumps([str(Path(__file__).parents[2]), *sys.path]))
        found, complete, why, _ = json.loads(child.stdout.readline())  # type: ignore[union-attr]
    assert [line[:4] for line in found] == [[agent.pid, "lock", "root", None]]
    assert found[0][4].startswith(sys.executable)
    assert complete is False and "processes of other users are not visible" in why


def test_no_proc_is_not_an_error(made_host: Host) -> None:
    look = holders(["/tmp/qdrant"], replace(made_host, proc="/nowhere"))
    assert (look.holders, look.complete) == ((), False)
    assert stores_held(replace(made_host, proc="/nowhere")) == ()


# --- units --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/agent.service\n", ("agent.service", False)),
        ("0::/system.slice/system-agent.slice/agent@2.service/worker\n", ("agent@2.service", False)),
        ("5:cpu:/x\n1:name=systemd:/system.slice/agent.service\n0::/\n", ("agent.service", False)),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/agent.service\n",
            ("agent.service", True),
        ),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/init.scope\n", None),
        ("0::/\n", None),
    ],
)
def test_the_unit_of_a_control_group(cgroup: str, unit: tuple[str, bool] | None) -> None:
    assert unit_in(cgroup) == unit


def test_a_process_is_described_by_unit_container_or_command(made_host: Host) -> None:
    proc = Path(made_host.proc)
    docker = "0123456789abcdef" * 4
    for pid, cgroup in (
        (1, "0::/init.scope"),
        (7, "0::/system.slice/agent.service"),
        (8, f"0::/system.slice/docker-{docker}.scope"),
        (9, "0::/"),
    ):
        (proc / str(pid)).mkdir()
        (proc / str(pid) / "cgroup").write_text(cgroup + "\n")
        (proc / str(pid) / "cmdline").write_text("/usr/bin/python3\0agent.py\0")
    assert described(7, made_host) == "pid 7 (agent.service)"
    assert described(8, made_host) == "pid 8 (container 0123456789ab)"
    config = Path(made_host.root, f"var/lib/docker/containers/{docker}/config.v2.json")
    config.parent.mkdir(parents=True)
    config.write_text('{"ID":"x","Name":"/mem0-agent"}')
    assert described(8, made_host) == "pid 8 (container mem0-agent)"
    assert described(9, made_host) == "pid 9 (/usr/bin/python3)"


def test_another_run_of_this_command_is_no_holder(tmp_path: Path, host: Host, running: Running) -> None:
    """Two audits at a time: neither is an agent, and neither offers the other's store as one."""
    reading = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1]); c.execute('create table if not exists t (x)')\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )
    become = "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    # an agent that only names us among its arguments is an agent
    for name, words, expected in (("mem0audit", (), False), ("agent", ("/srv/mem0audit",), True)):
        folder = tmp_path / f"store-of-{name}"
        storage = folder / "collection/mem0/storage.sqlite"
        storage.parent.mkdir(parents=True)
        program = tmp_path / name
        program.write_text(reading)
        child = running(become, str(program), str(storage), *words)
        found = {candidate.path for candidate in stores_held(host)}
        assert (str(folder) in found) is expected
        held = {holder.pid for holder in holders([str(folder)], host).holders}
        assert (child.pid in held) is expected


def test_looking_for_stores_takes_no_lock_from_this_process(tmp_path: Path) -> None:
    """POSIX drops a process's locks on a file when any descriptor of it is closed: `mem0audit.erase` inside the agent
    looks for other stores too, while another thread may be in a transaction."""
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as mine:
        mine.execute("CREATE TABLE history (id TEXT)")
        mine.execute("BEGIN IMMEDIATE")
        found = stores_held(this_host())
        code = (
            "import sqlite3, sys\n"
            "try: sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE'); print('got it')\n"
            "except sqlite3.OperationalError: print('locked')"
        )
        other = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
        mine.execute("COMMIT")
    assert str(path) in [one.path for one in found]
    assert other.stdout.strip() == "locked"
