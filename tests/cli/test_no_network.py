"""Export, residue, repair and both ways of deleting open no network socket, in any of their processes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import clean_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

STRACE = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=socket,connect")
# AF_UNIX (an event loop's own pair, the name service's cache) reach nothing outside
NETWORK = re.compile(r"^\d+ +socket\((?!AF_UNIX|AF_LOCAL|AF_NETLINK)", re.MULTILINE)

STEPS = """
import asyncio, os, sys
from mem0audit.cli.main import main

def said(*words):
    sys.argv = ["mem0audit", *words, "--history", HISTORY, "--qdrant-path", VECTORS]
    try:
        return main()
    except SystemExit as left:
        return left.code

HISTORY, VECTORS, FOLDER = sys.argv[1:4]
assert said("audit", "--quiet") == 1
assert said("export", "--user", "carol", "-o", FOLDER + "/carol.jsonl") == 0
assert said("repair", "T701", "--yes", "--to", FOLDER + "/snapshots") == 0
assert said("delete", "--user", "carol", "--redact", "--only-this-store", "--yes") == 1  # the snapshot has it
assert said("residue", "--user", "carol") == 1

import socket
import mem0audit
socket.has_ipv6 = False  # urllib3 asks the machine with a socket when the agent imports mem0: not ours
from mem0 import AsyncMemory, Memory
from tests.builders import OfflineEmbedder
config = {
    "vector_store": {"provider": "qdrant", "config": {
        "collection_name": "mem0", "embedding_model_dims": 8, "path": VECTORS}},
    "llm": {"provider": "openai", "config": {"api_key": "sk-offline"}},
    "embedder": {"provider": "openai", "config": {"api_key": "sk-offline", "embedding_dims": 8}},
    "history_db_path": HISTORY,
}
memory = Memory.from_config(config)
assert mem0audit.erase(memory, user_id="bob", only_this_store=True).memories
memory.vector_store.client.close()

async def inside():
    memory = AsyncMemory.from_config(config)
    return await mem0audit.erase(memory, user_id="alice", only_this_store=True)

assert asyncio.run(inside()).memories
print("ALL DONE", flush=True)
os._exit(0)
"""


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)
    points = RawPoints(store.vectors)
    one = min(i for i, p in points.points().items() if p.payload["user_id"] == "carol")
    points.edit(one, lambda p: p.update(expiration_date="2020-01-01"))
    return store


def traced(home: Path, code: str, *words: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """A program under strace, and every socket that it or a process of its made."""
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    log = home / "trace"
    done = subprocess.run(
        [*STRACE, "-o", str(log), sys.executable, "-c", code, *words],
        env=clean_environment(home, PYTHONWARNINGS="ignore"),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "ptrace" in done.stderr and not log.exists():
        pytest.skip("strace may not trace here")
    return done, log.read_text() if log.exists() else ""


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_one_that_opens_a_socket_is_seen(tmp_path: Path, family: str) -> None:
    """Also where only a process that it started does."""
    opens = f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {opens!r}], check=True)"
    done, log = traced(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert NETWORK.search(log), log


def test_no_process_opens_a_network_socket(tmp_path: Path, store: StoreCopy) -> None:
    done, log = traced(tmp_path, STEPS, str(store.history), str(store.vectors), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ALL DONE" in done.stdout
    assert not RawPoints(store.vectors).points()
    assert not NETWORK.findall(log), log
