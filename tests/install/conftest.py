"""Hosts made for a test, and mounts that are always undone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.install.host import Host, this_host


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail("needs root, and CI must not skip it", pytrace=False)
        pytest.skip("needs root")


@pytest.fixture
def host(own_home: Path, tmp_path: Path) -> Host:
    """This machine, with the home and working folder of the test."""
    return replace(this_host(), home=str(own_home), cwd=str(tmp_path), environ=dict(os.environ))


@pytest.fixture
def made_host(tmp_path: Path) -> Host:
    """A machine made of folders: root and proc are empty."""
    root = tmp_path / "root"
    (root / "proc" / "self").mkdir(parents=True)
    (root / "home" / "ann").mkdir(parents=True)
    return Host(
        environ={}, home="/home/ann", cwd="/home/ann", uid=1000, boot_at=1000.0, now=2000.0,
        root=str(root), proc=str(root / "proc"),
    )  # fmt: skip


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """`mount(kind, folder, options, source)`: mounted for the test, undone after it, newest first."""
    done: list[Path] = []

    def do(kind: str, folder: Path, options: str = "", source: str | None = None) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount"]
        if kind == "bind":
            command += ["--bind", source or "", str(folder)]
        else:
            command += ["-t", kind, *(["-o", options] if options else []), source or kind, str(folder)]
        subprocess.run(command, check=True, capture_output=True)
        done.append(folder)
        return folder

    yield do
    for folder in reversed(done):
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


@pytest.fixture
def running() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`running(code, *args, prefix=[…], **popen)`: a Python that said "ready", ended after the test."""
    children: list[subprocess.Popen[str]] = []

    def start(
        code: str, *args: str, prefix: tuple[str, ...] = (), python: str = sys.executable, **options: object
    ) -> subprocess.Popen[str]:
        child = subprocess.Popen(  # type: ignore[call-overload]
            [*prefix, python, "-c", code, *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options,
        )  # fmt: skip
        children.append(child)
        line = child.stdout.readline()
        assert line.strip() == "ready", f"the child said {line!r}"
        return child

    yield start
    for child in children:
        if not child.stdin.closed:
            child.stdin.close()
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if not child.stdout.closed:
            child.stdout.close()


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.02)


def private_tmp(stage: Path) -> tuple[str, ...]:
    """A command prefix: what follows runs in a mount namespace with a /tmp of its own, an empty tmpfs.

    The Python of the tests and the checkout stay where they are, also when they lie under /tmp.
    """
    stage.mkdir()
    needed = dict.fromkeys(
        os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, Path(__file__).parents[2])
    )
    kept = [path for path in needed if path.startswith("/tmp/")]
    steps = [f"mount -t tmpfs own '{stage}'"]
    for path in kept:
        inside = f"{stage}/{path.removeprefix('/tmp/')}"
        steps += [f"mkdir -p '{inside}'", f"mount --bind '{path}' '{inside}'"]
    steps += [f"mount --move '{stage}' /tmp", "cd /", 'exec "$@"']
    return ("unshare", "-m", "--propagation", "private", "sh", "-c", " && ".join(steps), "sh")
