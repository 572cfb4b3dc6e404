"""The first screen of a real audit in each of the states that wake people up: what the command prints, end to
end, on stores that mem0 wrote. The layout itself is kept in tests/report/golden."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import MemoryBuilder, RawPoints, copy_incident, copy_store

ROOT = Path(__file__).parents[2]


def audit(*words: str, cwd: Path | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mem0audit", "audit", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def of(store: object) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)  # type: ignore[attr-defined]


def private(folder: Path) -> None:
    for base, folders, files in os.walk(folder):
        for name in folders:
            os.chmod(os.path.join(base, name), 0o700)
        for name in files:
            os.chmod(os.path.join(base, name), 0o600)


@contextlib.contextmanager
def tmpfs(point: Path) -> Iterator[Path]:
    if os.geteuid():
        pytest.fail("mounting needs root") if os.environ.get("CI") else pytest.skip("mounting needs root")
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


@pytest.mark.root
def test_memories_on_a_tmpfs(durable: Path) -> None:
    store = copy_store("2.2.1", durable)
    private(durable)
    with tmpfs(durable / "memory") as point:
        shutil.copytree(store.vectors, point / "qdrant")
        code, text = audit("--history", str(store.history), "--qdrant-path", str(point / "qdrant"))
        assert code == 1
        first = text.splitlines()[:12]
        assert any("tmpfs, GONE AT REBOOT" in line for line in first)
        said = " ".join(first)
        assert "19 memories stand on a tmpfs: the next reboot loses them." in said
        assert "None of 19 memories is missing" in said
        now = next(i for i, line in enumerate(first) if line.startswith("Now"))
        assert "stop" not in first[now].lower()
        # what it says to do now runs as printed, with the store as it is, and gives a pair that agrees
        at = text.splitlines().index(next(line for line in text.splitlines() if line.startswith("Now")))
        step = text.splitlines()[at + 1].strip()
        assert " -m mem0audit snapshot create --history " in step
        goal = next(word for word in first[now].split() if word.endswith("mem0-snapshots"))
        step = step.replace(goal, str(durable / "snapshots"))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(["sh", "-c", step], check=True, env=environment)
        (target,) = (durable / "snapshots").glob("20*Z")
        code, text = audit(
            "--history",
            str(target / "history.db"),
            "--qdrant-path",
            str(target / "qdrant"),
            "--select",
            "D,H,E,I,C",
        )
        assert "19 memories and 47 changes agree" in text


def test_an_emptied_store(durable: Path) -> None:
    store = copy_incident("emptied-at-reboot", durable)
    private(durable)
    code, text = audit(*of(store))
    assert code == 1
    first = " ".join(text.splitlines()[:12])
    assert "22 memories are gone: live in the log, and not in the store." in first
    assert "Now: keep a copy of the log, which has their texts" in first
    assert "the vector store was emptied or replaced" in text


def test_resurrected_memories(durable: Path) -> None:
    agent = MemoryBuilder(durable / "install")
    ids = [agent.add(f"fact {i}", user_id="alice") for i in range(4)]
    agent.close()
    row = RawPoints(agent.vectors).row_of(ids[1])
    agent.open()
    agent.delete(ids[1])
    agent.close()
    RawPoints(agent.vectors).put_row(*row)
    private(durable)
    code, text = audit(*of(agent))
    assert code == 1
    assert "1 deleted memory is still in the store, and the agent answers from it." in text
    assert ids[1] in text
    assert "fact 1" not in text


def test_a_healthy_install_in_a_durable_folder(durable: Path) -> None:
    agent = MemoryBuilder(durable / "install")
    for i in range(4):
        agent.add(f"fact {i}", user_id="alice")
    agent.close()
    private(durable)
    code, text = audit(*of(agent), "--ignore", "L102")  # the checkout may lie below a cleaned /tmp
    assert code == 0, text
    assert text.startswith("4 memories and 4 changes agree. Durable. No snapshot yet.")
    assert "\nTake one:   " in text
    assert "snapshot create" in text
    assert len(text.splitlines()) <= 3


def test_a_log_that_cannot_be_read(durable: Path) -> None:
    store = copy_store("2.2.1", durable)
    private(durable)
    store.history.unlink()
    store.history.symlink_to(store.history)
    code, text = audit(*of(store))
    assert code in (1, 3)
    assert "Whether memories are missing is not known" in text
    assert "agree" not in text
    assert "symbolic links that lead in a circle" in " ".join(text.split())
    assert f"Now: see why {store.history} cannot be read" in " ".join(text.split())


def test_nothing_at_the_defaults(tmp_path: Path) -> None:
    code, text = audit(cwd=tmp_path)
    assert code == 3
    assert text.startswith("No mem0 install found here. Nothing was audited.")
    assert "agree" not in text
