"""Faults that the kernel answers with, by strace: the same must hold where our named steps do not stand."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mem0audit.operations.verify import list_snapshots, verify
from tests.builders import copy_store
from tests.cli.program import clean_environment, forked

FAULTS = (
    ("copy_file_range", 2, "error=EIO"),
    ("fsync", 2, "error=ENOSPC"),
    ("rename", 1, "error=EIO"),
    ("rename", 1, "signal=KILL"),
    ("unlink", 3, "error=EIO"),
    ("pwrite64", 20, "error=ENOSPC"),
)
OURS = {"erasures.json", ".mem0audit.lock"}


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["create", "import"])
def test_no_fault_lists_half_a_snapshot_or_leaves_litter(tmp_path: Path, what: str) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)
    backup = tmp_path / "backup"
    shutil.copytree(store.folder, backup)
    before = {p: p.read_bytes() for place in (store.folder, backup) for p in place.rglob("*") if p.is_file()}
    named = ("--history", str(store.history), "--qdrant-path", str(store.vectors))
    source = (str(backup),) if what == "import" else named
    (tmp_path / "tmp").mkdir()

    env = {"TMPDIR": str(tmp_path / "tmp")}

    def words(folder: Path) -> tuple[str, ...]:
        return ("snapshot", what, *source, "--to", str(folder))

    def traced(folder: Path, *strace: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["strace", "-f", "--seccomp-bpf", "-qq", *strace, sys.executable, "-m", "mem0audit", *words(folder)],
            env=clean_environment(tmp_path, **env), cwd=tmp_path,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    fired = set()
    for number, (call, nth, fault) in enumerate(FAULTS):
        folder = tmp_path / f"snapshots-{number}"
        log = tmp_path / "strace.log"
        inject = ("-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={nth}")
        ran = traced(folder, "-o", str(log), *inject)
        if "ptrace" in ran.stderr.lower() and not log.stat().st_size:
            pytest.skip("strace may not trace here")
        at = (call, nth, fault, ran.stderr)
        hit = "INJECTED" in log.read_text() or ran.returncode == -signal.SIGKILL
        fired |= {(call, nth, fault)} if hit else set()
        assert ran.returncode in ((0, 5, -signal.SIGKILL) if hit else (0,)), at
        assert len(ran.stderr.splitlines()) <= 2, at
        listed = list_snapshots(str(folder)) if folder.is_dir() else ()
        assert all(verify(one.path).good for one in listed), at
        assert len(listed) == (ran.returncode == 0), at
        again = forked(tmp_path, *words(folder), env=env)
        assert again.code == 0, (at, again.err)
        after = list_snapshots(str(folder))
        assert len(after) == len(listed) + 1 and all(verify(one.path).good for one in after), at
        left = {p.name for p in folder.iterdir()} - {one.name for one in after} - OURS
        assert not left and not list((tmp_path / "tmp").iterdir()), at
    # Where the filesystem clones files, none is copied.
    assert len(fired) >= len(FAULTS) - 1, set(FAULTS) - fired
    assert {p: p.read_bytes() for p in before} == before
