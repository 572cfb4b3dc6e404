"""Every test runs in a home of its own, with mem0's telemetry off, and may not write to the real stores."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.model import Candidate
from mem0audit.install import candidates
from mem0audit.install.host import Host, read_text
from mem0audit.install.processes import stores_held
from mem0audit.stores import files
from tests.builders import MemoryBuilder
from tests.qdrant_server import (  # noqa: F401 - fixtures
    cluster,
    cluster_processes,
    qdrant,
    qdrant_keyed_process,
    qdrant_process,
    qdrant_with_keys,
    start_qdrant,
)

ROOT = Path(__file__).resolve().parent.parent

# The stores of whoever runs the tests, known before HOME is changed; kept for the workers of pytest-xdist,
# which inherit the changed one.
_REAL_HOME = os.environ.setdefault("MEM0AUDIT_TESTS_REAL_HOME", str(Path.home()))
_REAL = (f"{_REAL_HOME}/.mem0", "/tmp/qdrant")

# mem0 reads MEM0_DIR and HOME when it is imported, which a test may do at any time: a home for the whole
# process first, one for each test then.
_PROCESS_HOME = tempfile.mkdtemp(prefix="mem0audit-tests-home-")
os.environ["HOME"] = _PROCESS_HOME
os.environ["MEM0_DIR"] = str(Path(_PROCESS_HOME) / "mem0")
os.environ["MEM0_TELEMETRY"] = "False"
os.environ.pop("OPENAI_BASE_URL", None)
# Every Memory() makes two clients of OpenAI's, and each reads the machine's certificates, which no test needs.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(_PROCESS_HOME) / "no-certificates")

# A run in the background of a shell ignores the interrupt, and so would every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_touched: list[str] = []


def _watch(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook: notes every write of this process to a real store."""
    if event == "open":
        path, mode, flags = args[0], args[1], args[2]
        writes = bool(mode and set(mode) & set("wax+")) or bool(
            isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if not writes:
            return
    elif event == "sqlite3.connect":
        path = args[0]
        if "mode=ro" in str(path) or "immutable=1" in str(path):
            return
    elif event in {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "shutil.rmtree"}:
        path = args[0]
    else:
        return
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if isinstance(path, str | os.PathLike):
        text = str(path).removeprefix("file:")
        for real in _REAL:
            if text == real or text.startswith(real + "/"):
                _touched.append(f"{event} {text}")


sys.addaudithook(_watch)


_RUN = os.getpid()


def _held_in_this_run(host: Host) -> tuple[Candidate, ...]:
    """The stores that this process and those that it started have open.

    What another worker has open is another test's: mostly a copy of one kept store, with the same ids, so that what is
    lost in one test would be found in the other's.
    """
    return tuple(one for one in stores_held(host) if host.proc != "/proc" or _is_ours(one.found_by))


def _is_ours(found_by: str) -> bool:
    found = re.match(r"held by pid (\d+)", found_by)
    while found and int(found[1]) not in (1, _RUN):
        found = re.match(r".*\) \S (\d+)", read_text(f"/proc/{found[1]}/stat"), re.DOTALL)
    return found is not None and int(found[1]) == _RUN


candidates.stores_held = _held_in_this_run


def pytest_unconfigure() -> None:
    """Removes the home of this process."""
    shutil.rmtree(_PROCESS_HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """HOME, MEM0_DIR and the XDG folders of this test alone; fails a test that writes to the real stores."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MEM0_DIR", str(home / ".mem0"))
    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    for name, folder in (
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_DATA_HOME", ".local/share"),
        ("XDG_RUNTIME_DIR", ".run"),
    ):
        monkeypatch.setenv(name, str(home / folder))
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    there = {real: Path(real).exists() for real in _REAL}
    _touched.clear()
    yield home
    _let_go()
    made = [real for real in _REAL if Path(real).exists() and not there[real]]
    assert not _touched, f"the test wrote to a real store: {_touched[:3]}"
    assert not made, f"the test created {made}"


def _let_go() -> None:
    """Closes what an audit beside an agent in this process left open, so as not to take that agent's locks away.

    The agent is gone after its test; kept, such files are stores held by this process, and every later audit on
    the machine, in any process, looks into them.
    """
    for descriptor in files._kept.values():
        os.close(descriptor)
    files._kept.clear()


@pytest.fixture
def durable() -> Iterator[Path]:
    """A folder under none of the places that are emptied by themselves. Removed after the test.

    pytest's own tmp_path lies under /tmp, which is cleaned at boot or a tmpfs on many machines. This is
    `.scratch` of the checkout, or where that lies under /tmp too, a cache folder of whoever runs the tests.
    """
    emptied = ("/tmp/", "/var/tmp/", "/run/", "/dev/shm/")
    places = (ROOT / ".scratch", Path(_REAL_HOME, ".cache/mem0audit-tests"), Path("/var/lib/mem0audit-tests"))
    place = next(p for p in places if not f"{p}/".startswith(emptied))
    folder = place / uuid.uuid4().hex[:12]
    folder.mkdir(parents=True, mode=0o700)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        place.rmdir()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., MemoryBuilder]]:
    """`build("name", **options)`: a MemoryBuilder in a folder of its own, closed after the test."""
    opened: list[MemoryBuilder] = []

    def make(name: str = "install", **options: Any) -> MemoryBuilder:
        builder = MemoryBuilder(options.pop("folder", tmp_path / name), **options)
        opened.append(builder)
        return builder

    yield make
    for builder in opened:
        builder.close()
