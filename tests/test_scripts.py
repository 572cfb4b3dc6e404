"""scripts/mem0audit and scripts/test: what they run, from where, and what they say when they cannot."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT

SHELL_TOOLS = ("sh", "dirname", "readlink", "cat", "cksum", "tr", "sed")


@pytest.fixture
def environment() -> ModuleType:
    """scripts/environment.py as a module of its own."""
    spec = importlib.util.spec_from_file_location("environment_under_test", ROOT / "scripts/environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checkout(folder: Path) -> Path:
    """What the launcher needs of a checkout."""
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def ready_environment(root: Path, cache: Path) -> Path:
    """An environment where the launcher looks for the one of `root`; its Python tells how it was called."""
    sums = subprocess.run(
        ["cksum"],
        input=f"{root}\n".encode() + (root / "pyproject.toml").read_bytes(),
        capture_output=True,
        check=True,
    )
    place = cache / "mem0audit" / sums.stdout.decode().strip().replace(" ", "-")
    (place / "bin").mkdir(parents=True)
    python = place / "bin/python"
    python.write_text(
        '#!/bin/sh\nfor a; do echo "<$a>"; done\necho "program $MEM0AUDIT_PROGRAM"\necho "in $PWD"\n'
    )
    python.chmod(0o755)
    (place / "ready").touch()
    return place


def run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHON"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=clean | environ, stdin=subprocess.DEVNULL
    )


def test_every_way_to_call_it_reaches_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = checkout(tmp_path / "it's a check out")
    cache = tmp_path / "cache"
    place = ready_environment(root, cache)
    (tmp_path / "one").symlink_to(root / "scripts/mem0audit")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/two").symlink_to("../one")
    (root / "relative").symlink_to("scripts/mem0audit")
    quoted = "'" + str(root / "scripts/mem0audit").replace("'", "'\\''") + "'"
    calls = {
        str(root / "scripts/mem0audit"): quoted,
        str(tmp_path / "one"): str(tmp_path / "one"),
        str(tmp_path / "bin/two"): str(tmp_path / "bin/two"),
    }
    monkeypatch.chdir("/")
    for called, program in calls.items():
        done = run([called, "audit", "--history", "a b/h.db", ""], XDG_CACHE_HOME=str(cache))
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            "<-I>",
            f"<{place}/bin/mem0audit>",
            "<audit>",
            "<--history>",
            "<a b/h.db>",
            "<>",
            f"program {program}",
            "in /",
        ]
        # what is printed as a command runs in a shell as printed
        again = run(["sh", "-c", f"{program} status"], XDG_CACHE_HOME=str(cache))
        assert "<status>" in again.stdout
    monkeypatch.chdir(root)
    assert "program ./relative" in run(["./relative"], XDG_CACHE_HOME=str(cache)).stdout


def test_another_pyproject_is_another_environment(tmp_path: Path) -> None:
    root = checkout(tmp_path / "checkout")
    ready_environment(root, tmp_path / "cache")
    with (root / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    done = run(
        [str(root / "scripts/mem0audit"), "audit"], XDG_CACHE_HOME=str(tmp_path / "cache"), PYTHON="/nowhere"
    )
    assert done.returncode == 5
    assert done.stdout == ""


@pytest.mark.parametrize("script", ["mem0audit", "test"])
def test_no_suitable_python_is_one_line(script: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in SHELL_TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    command = [str(ROOT / "scripts" / script)]
    none = run(command, PATH=str(tools), XDG_CACHE_HOME=str(tmp_path))
    assert (none.returncode, none.stderr.count("\n")) == (5, 1)
    assert "needs Python 3.10 or later" in none.stderr

    old = tools / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    assert "needs Python 3.10 or later" in run(command, PATH=str(tools), XDG_CACHE_HOME=str(tmp_path)).stderr

    # a Debian without python3-venv: Python is new enough, and cannot import ensurepip
    old.write_text('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexit 0\n')
    lacking = run(command, PATH=str(tools), XDG_CACHE_HOME=str(tmp_path))
    assert (lacking.returncode, lacking.stderr.count("\n")) == (5, 1)
    assert "apt install python3-venv" in lacking.stderr

    named = run(command, PYTHON="/no/such/python", XDG_CACHE_HOME=str(tmp_path))
    assert (named.returncode, named.stderr.count("\n")) == (5, 1)
    assert "PYTHON=/no/such/python" in named.stderr


@pytest.mark.thorough
def test_an_environment_is_made_once_and_whole(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "KINDS", {"base": ()})
    # two first runs at once make one
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('e', {str(ROOT / 'scripts/environment.py')!r})\n"
        "e = importlib.util.module_from_spec(spec); spec.loader.exec_module(e)\n"
        "e.KINDS = {'base': ()}\n"
        "print(e.made('base', 'first run'))\n"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("ready" in err for _out, err in said) == [False, True]
    made = environment.environment_of("base")
    assert {out for out, _err in said} == {f"{made}\n"}
    assert subprocess.run([made / "bin/python", "-c", ""], check=False).returncode == 0
    mark = made / "mark"
    mark.touch()
    assert environment.made("base", "again") == made
    assert mark.exists()
    # a run that was killed left it half made: no ready file
    (made / "ready").unlink()
    assert environment.made("base", "again") == made
    assert not mark.exists()
    assert capsys.readouterr().err.endswith("mem0audit: ready\n")
    # its Python was replaced by another version
    (made / "bin/python").unlink()
    assert not environment.is_ready(made)


def test_a_failure_leaves_nothing_and_is_one_line(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        environment, "KINDS", {"base": (["--no-index", "--find-links", "/none", "no-such-thing"],)}
    )
    monkeypatch.setattr(sys, "argv", ["environment.py", "run", "/none/link", "audit"])
    assert environment.main() == 5
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("mem0audit: cannot reach the package index")
    assert not environment.environment_of("base").exists()


def test_a_cache_that_cannot_be_written(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    monkeypatch.setattr(sys, "argv", ["environment.py", "run", "/none/link", "audit"])
    assert environment.main() == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert "XDG_CACHE_HOME" in line


def test_pip_hears_where_packages_are_and_not_where_to_put_them(environment: ModuleType) -> None:
    heard = environment.for_pip(
        {
            "PATH": "/bin",
            "PIP_TARGET": "/elsewhere",
            "PIP_USER": "1",
            "PIP_REQUIRE_VIRTUALENV": "1",
            "PIP_INDEX_URL": "https://mirror/simple",
            "PYTHONPATH": "/elsewhere",
            "PYTHONHOME": "/elsewhere",
        }
    )
    assert heard == {
        "PATH": "/bin",
        "PIP_INDEX_URL": "https://mirror/simple",
        "PIP_USER": "0",
        "PIP_RETRIES": "2",
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONUTF8": "1",
    }


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(...: Failed to "
            "establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/typer/\n"
            "ERROR: Could not find a version that satisfies the requirement typer (from versions: none)\n",
            "cannot reach the package index",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: 1.0, 2.0)\n"
            "ERROR: No matching distribution found for x==9\n",
            "cannot make the environment: ERROR: No matching distribution found for x==9",
        ),
        ("OSError: [Errno 28] No space left on device\n", "no space left"),
        (
            "Collecting x\nERROR: x requires a different Python\nsome hint\n",
            "ERROR: x requires a different Python",
        ),
    ],
)
def test_why_an_install_failed(log: str, said: str, environment: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(log)
    assert said in environment.reason(file)


def test_arguments_of_the_test_script_go_to_pytest_alone(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = _recorded(environment, monkeypatch, tmp_path, failing=None)
    assert environment.test(["tests/core", "-k", "x"]) == 0
    assert ran() == [["pytest", "tests/core", "-k", "x"]]


def test_one_failed_check_fails_all_and_hides_none(
    environment: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ran = _recorded(environment, monkeypatch, tmp_path, failing="mypy")
    monkeypatch.setattr(environment, "LINTS", True)
    assert environment.test([]) == 1
    assert [command[0] for command in ran()] == ["ruff", "ruff", "mypy", "lint-imports", "pytest"]
    assert capfd.readouterr().out.rstrip().endswith("failed: mypy")
    ran = _recorded(environment, monkeypatch, tmp_path, failing=None)
    assert environment.test([]) == 0
    ran = _recorded(environment, monkeypatch, tmp_path, failing=None)
    monkeypatch.setattr(environment, "LINTS", False)
    assert environment.test([]) == 0
    assert [command[0] for command in ran()] == ["pytest"]


def _recorded(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, failing: str | None
) -> Callable[[], list[list[str]]]:
    """A test environment whose Python only writes down what it is asked to run."""
    log = folder / "ran"
    log.write_text("")
    (folder / "bin").mkdir(exist_ok=True)
    python = folder / "bin/python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] && shift\necho "$@" >>"{log}"\n[ "$1" != "{failing}" ]\n')
    python.chmod(0o755)
    monkeypatch.setattr(environment, "made", lambda _kind, _why: folder)

    def ran() -> list[list[str]]:
        return [line.replace(f"{folder}/bin/", "").split() for line in log.read_text().splitlines()]

    return ran


def test_what_needs_mem0_goes_on_in_the_environment_of_the_tests(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(environment.os, "execv", lambda _path, words: ran.append(words))
    monkeypatch.setattr(environment, "made", lambda _kind, _why: tmp_path)
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "--runs", "1"])
    environment.in_test_environment()
    assert ran == []  # it is all here
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda _name: None)
    environment.in_test_environment()
    assert ran == [[str(tmp_path / "bin/python"), "scripts/bench", "--runs", "1"]]
