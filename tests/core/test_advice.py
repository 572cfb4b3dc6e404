"""The printed shell lines, run as printed against stores that a process is writing."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from mem0audit.core.advice import (
    dies_with_agent,
    keep_log_step,
    manual_snapshot_steps,
    stop_command,
)
from mem0audit.core.model import Holder, Place

# Writes as mem0 does, the point first and its history row second, until it is told to stop; then says what
# went wrong. The ids count up from 1, so that a copy of one instant holds 1 … n.
WRITER = """
import signal, sqlite3, sys, time
from qdrant_client import QdrantClient, models
vectors, history, wal, limit = sys.argv[1:]
client = QdrantClient(path=vectors)
for name in ("mem0", "mem0_entities"):
    client.create_collection(name, vectors_config=models.VectorParams(size=64, distance="Cosine"))
log = sqlite3.connect(history, isolation_level=None)
if wal == "wal":
    log.execute("PRAGMA journal_mode=WAL")
log.execute("CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, event TEXT)")
running, errors, number = True, [], 0
def stop(*_):
    global running
    running = False
signal.signal(signal.SIGTERM, stop)
end = time.monotonic() + float(limit)
while running and time.monotonic() < end:
    number += 1
    try:
        for name in ("mem0", "mem0_entities"):
            point = models.PointStruct(id=number, vector=[0.5] * 64, payload={"data": "x" * 500})
            client.upsert(name, [point])
        log.execute("INSERT INTO history VALUES (?, ?, 'ADD')", (f"row{number}", str(number)))
    except Exception as error:
        errors.append(repr(error))
    if number == 100:
        print("ready", flush=True)
print(number, len(errors), *errors[:3], sep="|", flush=True)
"""


class Agent:
    """A process that holds both stores open and writes to them."""

    def __init__(self, folder: Path, *, wal: bool = False, enter: Sequence[str] = ()) -> None:
        self.vectors = str(folder / "qdrant")
        self.history = str(folder / "history.db")
        self.process = subprocess.Popen(
            [*enter, sys.executable, "-c", WRITER, self.vectors, self.history, "wal" if wal else "", "600"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def stop(self) -> tuple[int, int]:
        """How many writes it made, and how many failed: one that waits for longer than SQLite's 5 s does."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=300)
        number, errors, *_ = out.strip().split("|")
        return int(number), int(errors)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    running: list[Agent] = []
    yield running
    for agent in running:
        agent.kill()


def run(lines: Sequence[str]) -> None:
    for line in lines:
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def check_copy(copy: Path, written: int) -> None:
    """The copy opens in Qdrant's own client, each file is of one instant, and the log knows every point."""
    assert copy.stat().st_mode & 0o077 == 0
    counts = {}
    client = QdrantClient(path=str(copy / "qdrant"))
    try:
        for name in ("mem0", "mem0_entities"):
            points, _ = client.scroll(name, limit=1_000_000, with_payload=False)
            ids = sorted(int(point.id) for point in points)
            assert ids == list(range(1, len(ids) + 1))
            counts[name] = len(ids)
    finally:
        client.close()
    with closing(sqlite3.connect(copy / "history.db")) as log:
        assert log.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = log.execute("SELECT count(*) FROM history").fetchone()[0]
    # Memories, then history, then entities: each copy is younger than the one before.
    assert 100 <= counts["mem0"] <= rows + 1 <= counts["mem0_entities"] + 1 <= written + 1


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("sqlite3_shell", [False, True])
def test_steps_copy_a_live_pair(tmp_path: Path, agents: list[Agent], wal: bool, sqlite3_shell: bool) -> None:
    if sqlite3_shell and shutil.which("sqlite3") is None:
        pytest.skip("no sqlite3 program")
    folder = tmp_path / 'it\'s a $HOME of "agents"'
    folder.mkdir()
    agent = Agent(folder, wal=wal)
    agents.append(agent)
    copy = tmp_path / "back up's"
    lines = manual_snapshot_steps(
        agent.history, agent.vectors, ("mem0_entities", "mem0"), str(copy), sqlite3_shell=sqlite3_shell
    )
    run(lines)
    written, errors = agent.stop()
    assert errors == 0
    check_copy(copy, written)
    # A second run must not overwrite the first copy.
    again = subprocess.run(["sh", "-c", lines[3]], capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert "already exists" in again.stderr


@pytest.mark.root
def test_steps_enter_a_private_mount_namespace(tmp_path: Path, agents: list[Agent]) -> None:
    place = tmp_path / "private"
    place.mkdir()
    # What lies at the same path on this side, and must not be taken for the agent's store.
    shutil.copytree(Path(__file__).parent.parent / "data/qdrant-stores/1.20.0", place / "qdrant")
    script = f'mount -t tmpfs tmpfs "{place}" && exec "$@"'
    agent = Agent(place, enter=["unshare", "--mount", "sh", "-c", script, "sh"])
    agents.append(agent)
    holder = Holder(
        pid=agent.process.pid,
        command="agent",
        how="lock",
        private_mounts=True,
        interpreter=sys.executable,
    )
    copy = tmp_path / "copy"
    run(
        manual_snapshot_steps(
            agent.history, agent.vectors, ("mem0", "mem0_entities"), str(copy), holder=holder
        )
    )
    written, errors = agent.stop()
    assert errors == 0
    check_copy(copy, written)


def test_order_is_memories_history_entities() -> None:
    lines = manual_snapshot_steps("/h/history.db", "/v/", ("mem0_entities", "mem0", "other"), "/to/")
    assert lines[0] == "install -d -m 700 /to"
    assert lines[2] == "cp /v/meta.json /to/qdrant/meta.json"
    assert lines[3:] == (
        "sqlite3 -readonly -cmd '.timeout 30000' /v/collection/mem0/storage.sqlite "
        "\"VACUUM INTO '/to/qdrant/collection/mem0/storage.sqlite'\"",
        "sqlite3 -readonly -cmd '.timeout 30000' /v/collection/other/storage.sqlite "
        "\"VACUUM INTO '/to/qdrant/collection/other/storage.sqlite'\"",
        "sqlite3 -readonly -cmd '.timeout 30000' /h/history.db \"VACUUM INTO '/to/history.db'\"",
        "sqlite3 -readonly -cmd '.timeout 30000' /v/collection/mem0_entities/storage.sqlite "
        "\"VACUUM INTO '/to/qdrant/collection/mem0_entities/storage.sqlite'\"",
    )


@pytest.mark.parametrize(
    ("unit", "user", "container", "command"),
    [
        (None, False, None, "kill 812"),
        ("agent.service", False, None, "systemctl stop agent.service"),
        ("agent.service", True, None, "systemctl --user stop agent.service"),
        ("my agent.service", False, None, "systemctl stop 'my agent.service'"),
        (None, False, "mem0-api", "docker stop mem0-api"),
        ("docker.service", False, "mem0-api", "docker stop mem0-api"),
    ],
)
def test_stop_command(unit: str | None, user: bool, container: str | None, command: str) -> None:
    holder = Holder(pid=812, command="python", how="lock", unit=unit, user_unit=user, container=container)
    assert stop_command(holder) == command


def place(path: str, **what: bool) -> Place:
    return Place(path=path, exists=True, **what)  # type: ignore[arg-type]


def holder(**what: object) -> Holder:
    return Holder(pid=1, command="x", how="lock", **what)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "who", "dies"),
    [
        (place("/srv/qdrant"), None, False),
        (place("/srv/qdrant"), holder(unit="a.service"), False),
        (place("/tmp/qdrant"), holder(unit="a.service"), False),
        (place("/tmp/qdrant", volatile=True), holder(unit="a.service"), False),
        (place("/tmp/qdrant", volatile=True), None, False),
        (place("/tmp/qdrant"), holder(private_tmp=True, private_mounts=True), True),
        (place("/var/tmp/qdrant"), holder(private_tmp=True, private_mounts=True), True),
        (place("/tmpfiles/qdrant"), holder(private_tmp=True, private_mounts=True), False),
        (place("/srv/qdrant"), holder(private_tmp=True, private_mounts=True), False),
        (place("/data", container_layer=True), None, True),
        (place("/data", container_layer=True), holder(container="c"), True),
        (place("/data", volatile=True), holder(container="c"), True),
        (place("/data", volatile=False), holder(container="c"), False),
        (place("/data", volatile=True), holder(private_mounts=True), True),
        (place("/run/agent/qdrant", volatile=True), holder(unit="agent.service"), True),
        (place("/run/agent/qdrant", volatile=True), holder(), False),
    ],
)
def test_dies_with_agent(where: Place, who: Holder | None, dies: bool) -> None:
    assert dies_with_agent(where, who) is dies


def test_the_log_is_kept_beside_itself(tmp_path: Path) -> None:
    """The line runs as printed, in both spellings, on a name with blanks."""
    history = tmp_path / "my log" / "history.db"
    history.parent.mkdir()
    with closing(sqlite3.connect(history)) as connection:
        connection.execute("create table history (id)")
        connection.execute("insert into history values (1)")
        connection.commit()
    for shell in (True, False):
        if shell and shutil.which("sqlite3") is None:
            continue
        line = keep_log_step(str(history), sqlite3_shell=shell)
        subprocess.run(["sh", "-c", line], check=True)
        kept = history.with_name("history.db.kept")
        with closing(sqlite3.connect(kept)) as connection:
            assert connection.execute("select count(*) from history").fetchone() == (1,)
        assert subprocess.run(["sh", "-c", line], capture_output=True).returncode != 0
        kept.unlink()
