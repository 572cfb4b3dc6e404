"""Runs the program as a user does, in a process of its own, away from the machine's real installs."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    cpu_s: float


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV")}
    root = str(Path(__file__).parents[2])
    return {
        **kept,
        "PYTHONPATH": root,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "MEM0_DIR": str(home / ".mem0"),
        "MEM0_TELEMETRY": "False",
        "MEM0AUDIT_PROGRAM": "mem0audit",
        "COLUMNS": "100",
        **more,
    }


def run(
    home: Path,
    *words: str,
    env: Mapping[str, str] | None = None,
    python: Sequence[str] = (),
    **options: object,
) -> Ran:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *python, "-m", "mem0audit", *words],
        env=clean_environment(home, **(env or {})),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(
        done.returncode,
        done.stdout.decode("utf-8", "surrogateescape"),
        done.stderr.decode("utf-8", "surrogateescape"),
        used,
    )


def call(home: Path, *words: str, env: Mapping[str, str] | None = None) -> Ran:
    """The same in this process, which is quicker: `main()` with its own arguments, folder and streams."""
    from mem0audit.cli.main import main

    was = (dict(os.environ), os.getcwd(), sys.argv, sys.stdout, sys.stderr)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    started = time.process_time()
    try:
        os.environ.clear()
        os.environ.update(clean_environment(home, **(env or {})))
        os.chdir(home)
        sys.argv, sys.stdout, sys.stderr = ["mem0audit", *words], out, err
        code = main()
    finally:
        environment, folder, sys.argv, sys.stdout, sys.stderr = was
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.buffer.getvalue().decode("utf-8", "surrogateescape"))  # type: ignore[attr-defined]
    return Ran(code, *said, time.process_time() - started)
