"""Makes the environments of scripts/mem0audit and scripts/test, and runs what they are for.

Standard library alone, any Python from 3.10. An environment lives in the user's cache folder and is named
after what it depends on: this checkout, its pyproject.toml and the Python. It counts only once its `ready`
file is there, which is written last; one that a kill left half made is made anew. A lock lets two first runs
wait for each other. mem0audit is installed editable: a change in the checkout is a change in what runs. Scripts
that need mem0 itself go on in the environment of the tests (`in_test_environment`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What pip may hear from the user's environment: where packages come from and how to get there. Anything
# else (PIP_TARGET, PIP_USER, PIP_PREFIX, PIP_REQUIRE_VIRTUALENV, ...) would install somewhere else.
PIP_KEEPS = {
    "PIP_CACHE_DIR",
    "PIP_CERT",
    "PIP_CLIENT_CERT",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_KEYRING_PROVIDER",
    "PIP_NO_INDEX",
    "PIP_PROXY",
    "PIP_RETRIES",
    "PIP_TIMEOUT",
    "PIP_TRUSTED_HOST",
}
NO_NETWORK = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Failed to establish a new connection",
    "Connection refused",
    "Could not connect",
    "NewConnectionError",
    "ConnectTimeoutError",
    "Read timed out",
    # all that pip says with PIP_RETRIES=0
    "(from versions: none)",
)

# import-linter needs Python 3.11; what the linters say does not depend on the Python that runs them
LINTS = sys.version_info >= (3, 11)

# What each kind of environment holds beside its Python: arguments for `pip install`, in this order.
KINDS: dict[str, tuple[list[str], ...]] = {
    "base": (["-e", "."],),
    "demo": (["-e", ".[demo]"],),
    # dependency groups need a pip from 2025; Python 3.10 to 3.12 bring older ones
    "test": (["pip>=25.1"], ["-e", ".", "--group", "test", *(["--group", "lint"] if LINTS else [])]),
}


class Trouble(Exception):
    """Ends the run with one line."""


def say(text: str) -> None:
    print(f"mem0audit: {text}", file=sys.stderr, flush=True)


def environment_of(kind: str) -> Path:
    """Where the environment of this kind lives, made or not."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()
    what = hashlib.sha256()
    for part in (os.fsencode(ROOT), (ROOT / "pyproject.toml").read_bytes(), sys.version.encode()):
        what.update(len(part).to_bytes(8, "big") + part)
    what.update(os.fsencode(os.path.realpath(sys.executable)))
    return base / "mem0audit" / f"{what.hexdigest()[:16]}-{kind}"


def is_ready(environment: Path) -> bool:
    """Made to the end, and its Python is still there."""
    return (environment / "ready").exists() and os.access(environment / "bin/python", os.X_OK)


def made(kind: str, why: str) -> Path:
    """The environment of this kind, made now if it is not there."""
    environment = environment_of(kind)
    if is_ready(environment):
        return environment
    try:
        environment.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with alone(environment):
            if not is_ready(environment):
                make(environment, kind, why)
    except OSError as error:
        where = error.filename or environment.parent
        raise Trouble(
            f"cannot write {where}: {error.strerror}; choose another folder with XDG_CACHE_HOME"
        ) from error
    return environment


@contextlib.contextmanager
def alone(environment: Path) -> Iterator[None]:
    """Holds the lock of an environment; a process that dies lets go of it."""
    with Path(f"{environment}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is making the environment, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(environment: Path, kind: str, why: str) -> None:
    """Makes it from nothing; leaves nothing behind when it fails."""
    log = Path(f"{environment}.log")
    say(f"{why}: making an environment in {environment} (once; a minute or two)")
    shutil.rmtree(environment, ignore_errors=True)
    clean = for_pip(os.environ)
    python = str(environment / "bin/python")
    # the real name (python3.11), so that the environment of a Python that was replaced is seen to be dead
    steps = [[os.path.realpath(sys.executable), "-I", "-m", "venv", str(environment)]]
    steps += [[python, "-I", "-m", "pip", "install", *arguments] for arguments in KINDS[kind]]
    try:
        with log.open("wb") as out:
            for step in steps:
                if "pip" in step:
                    say(f"pip install {' '.join(step[5:])}")
                result = subprocess.run(
                    step, cwd=ROOT, env=clean, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
                )
                if result.returncode:
                    raise Trouble(reason(log))
        unfinished = environment / "ready.tmp"
        unfinished.write_text(f"{ROOT}\n")
        unfinished.rename(environment / "ready")
    except BaseException:
        shutil.rmtree(environment, ignore_errors=True)
        raise
    say("ready")


def for_pip(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, less what would make pip install somewhere else."""
    clean = {k: v for k, v in environ.items() if not k.startswith(("PYTHON", "PIP_")) or k in PIP_KEEPS}
    clean.setdefault("PIP_RETRIES", "2")
    clean.update(PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PYTHONUTF8="1")
    return clean


def reason(log: Path) -> str:
    """Why a step failed, from its log, in one line with what to do."""
    text = log.read_text(errors="replace")
    if any(sign in text for sign in NO_NETWORK):
        return f"cannot reach the package index: check the network or PIP_INDEX_URL and run it again ({log})"
    if "No space left on device" in text:
        return f"no space left on the disk of {log.parent}; choose another folder with XDG_CACHE_HOME"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines or ["no output"]
    return f"cannot make the environment: {errors[-1][:200]} ({log})"


def run(link: Path, arguments: list[str]) -> None:
    """Becomes mem0audit with these arguments; the next run finds the environment through `link`."""
    command = next((a for a in arguments if not a.startswith("-")), "")
    if command == "demo" and "--help" not in arguments:
        environment = made("demo", "the first demo needs mem0 itself")
    else:
        there = [e for e in map(environment_of, ("base", "demo")) if is_ready(e)]
        environment = there[0] if there else made("base", "first run")
        with contextlib.suppress(OSError):
            link.with_suffix(".new").unlink(missing_ok=True)
            link.with_suffix(".new").symlink_to(environment.name)
            link.with_suffix(".new").rename(link)
    python = str(environment / "bin/python")
    # -I: neither PYTHONPATH nor the current folder decides what runs
    os.execv(python, [python, "-I", str(environment / "bin/mem0audit"), *arguments])


def test(arguments: list[str]) -> int:
    """Linters, types, layers and tests; with arguments pytest alone. 0 when all is well."""
    python = str(made("test", "tests") / "bin/python")
    environ = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME"}}
    # fetched before the first test that wants it; where it cannot be had, this says why, and those tests fail
    subprocess.run(
        [sys.executable, "-I", str(ROOT / "scripts/qdrant")], stdout=subprocess.DEVNULL, check=False
    )

    def step(*command: str) -> int:
        print(f"\n== {' '.join(command)}", flush=True)
        if command[0] == "lint-imports":
            command = (str(Path(python).with_name("lint-imports")), *command[1:])
        else:
            command = ("-m", *command)
        return subprocess.run([python, *command], cwd=ROOT, env=environ, check=False).returncode

    if arguments:
        return step("pytest", *arguments)
    # each of two takes half of the files, and takes over from the other at the end
    checks: list[tuple[str, ...]] = [("pytest", "-n", "2", "--dist", "worksteal", "-m", "not thorough")]
    if LINTS:
        checks[:0] = [
            ("ruff", "check", "."),
            ("ruff", "format", "--check", "."),
            ("mypy",),
            ("lint-imports",),
        ]
    else:
        say("the linters need Python 3.11 or later, and are not run")
    failed = [check for check in checks if step(*check)]
    if failed:
        print(f"\nfailed: {', '.join(' '.join(check) for check in failed)}", flush=True)
    return 1 if failed else 0


def in_test_environment() -> None:
    """For a script that needs what the tests need: goes on in their environment, made now if it is not there, unless
    the Python that runs it has all that already."""
    if all(importlib.util.find_spec(name) for name in ("mem0", "qdrant_client", "typer", "pytest")):
        return
    try:
        python = str(made("test", f"scripts/{Path(sys.argv[0]).name} needs mem0 itself") / "bin/python")
    except Trouble as trouble:
        say(str(trouble))
        sys.exit(5)
    os.execv(python, [python, *sys.argv])


def main() -> int:
    what, arguments = sys.argv[1], sys.argv[2:]
    try:
        if what == "run":
            run(Path(arguments[0]), arguments[1:])
        return test(arguments)
    except Trouble as trouble:
        say(str(trouble))
        return 5
    except KeyboardInterrupt:
        say("interrupted; the next run begins anew")
        return 130


if __name__ == "__main__":
    sys.exit(main())
