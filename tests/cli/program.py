"""Runs the program as a user does, away from the machine's real installs: started (`run`), in a process forked from
one that has it loaded (`Forks`), or in this process (`call`), each quicker than the one before."""

from __future__ import annotations

import atexit
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
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
        timeout=300,
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


SERVER = """
import gc, importlib, json, os, pkgutil, sys
import mem0audit
for found in pkgutil.walk_packages(mem0audit.__path__, "mem0audit."):
    if found.name.rpartition(".")[2] not in ("__main__", "mem0_worker"):
        importlib.import_module(found.name)
from mem0audit.cli.main import main
gc.collect()
gc.freeze()  # what is loaded is not looked through, and so not copied, at the end of each
answers = os.fdopen(os.dup(1), "w", closefd=True)
os.set_inheritable(answers.fileno(), False)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        answers.close()
        for number, (path, flags) in enumerate(order["streams"]):
            opened = os.open(path, flags)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.clear()
        os.environ.update(order["env"])
        os.chdir(order["cwd"])
        sys.argv = ["mem0audit", *order["words"]]
        code = main()
        with open(order["loaded"], "w") as out:
            out.write("\\n".join(sys.modules))
        sys.exit(code)
    _, status, used = os.wait4(pid, 0)
    answers.write(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]) + "\\n")
    answers.flush()
"""


class Forks:
    """Runs of the program in processes of their own, each forked from one that has loaded all of it and done nothing.

    What is left out is the start of Python alone, which is most of the time of a small command. `by` is a command
    that the loaded process is started through (setpriv, say). `loaded` are the modules of the last run at its end.
    """

    def __init__(self, home: Path, by: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mem0audit-tests-forks-")
        Path(self._folder.name).chmod(0o777)
        self._process = subprocess.Popen(
            [*by, sys.executable, "-B", "-c", SERVER],
            env=clean_environment(home),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.loaded: frozenset[str] = frozenset()

    def run(
        self, home: Path, *words: str, env: Mapping[str, str] | None = None, cwd: Path | str | None = None
    ) -> Ran:
        folder = Path(self._folder.name)
        out, err, loaded = (folder / name for name in ("out", "err", "loaded"))
        for path in (out, err, loaded):
            path.unlink(missing_ok=True)
        writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        order = {
            "words": words,
            "env": clean_environment(home, **(env or {})),
            "cwd": str(cwd or home),
            "streams": [(os.devnull, os.O_RDONLY), (str(out), writing), (str(err), writing)],
            "loaded": str(loaded),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the loaded process has ended: what it said of that is above"
        code, used = json.loads(answer)
        self.loaded = frozenset(loaded.read_text().split("\n"))
        told = (path.read_bytes().decode("utf-8", "surrogateescape") for path in (out, err))
        return Ran(code, *told, used)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()
        self._folder.cleanup()


_forks: list[Forks] = []


def forked(home: Path, *words: str, env: Mapping[str, str] | None = None) -> Ran:
    """`run` without the start of Python, through one loaded process for all tests."""
    if not _forks:
        _forks.append(Forks(home))
        atexit.register(_forks[0].close)
    return _forks[0].run(home, *words, env=env)
