"""`snapshot` as a user types it, where the points lie on a Qdrant server."""

from __future__ import annotations

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.cli.program import Ran, call
from tests.qdrant_server import QdrantServer
from tests.report.test_json import schema

TEXT = "the text of a memory"


def install(server: QdrantServer, folder: Path) -> Path:
    """A log and a collection `mem0` with one memory."""
    log = folder / "history.db"
    with closing(sqlite3.connect(log, isolation_level=None)) as connection:
        connection.execute(
            "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, "
            "created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
        )
        memory_id = "00000000-0000-4000-8000-000000000001"
        row = ("1", memory_id, TEXT, "2026-11-30T00:00:00+00:00")
        connection.execute(
            "INSERT INTO history (id, memory_id, new_memory, event, created_at, is_deleted) "
            "VALUES (?, ?, ?, 'ADD', ?, 0)",
            row,
        )
    server.result("PUT", "/collections/mem0", {"vectors": {"size": 4, "distance": "Cosine"}})
    point = {"id": memory_id, "vector": [1.0, 0, 0, 0], "payload": {"data": TEXT, "user_id": "alice"}}
    server.result("PUT", "/collections/mem0/points?wait=true", {"points": [point]})
    return log


def test_every_command_of_the_group(qdrant_with_keys: QdrantServer, tmp_path: Path) -> None:
    server = qdrant_with_keys
    log = install(server, tmp_path)
    folder, key = str(tmp_path / "snapshots"), str(server.api_key)
    said: list[Ran] = []

    def run(*words: str, code: int = 0) -> Ran:
        done = call(tmp_path, *words, env={"THE_KEY": key})
        assert done.code == code, (done.out, done.err)
        said.append(done)
        return done

    def as_json(*words: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run(*words, "--format", "json", code=code).out)
        Draft202012Validator(schema(found["kind"])).validate(found)
        return found

    url = ("--qdrant-url", server.url, "--api-key-env", "THE_KEY")
    named = ("--history", str(log), *url)
    plan = as_json("snapshot", "create", *named, "--to", folder, "--dry-run")
    assert plan["server"]["collections"] == [{"name": "mem0", "role": "memories", "points": 1}]
    assert "server/mem0.snapshot" in run("snapshot", "create", *named, "--to", folder, "--dry-run").out
    assert not Path(folder).exists()
    taken = as_json("snapshot", "create", *named, "--to", folder)
    assert taken["manifest"]["server"]["version"] == "1.16.3"
    assert "Settled: neither store changed" in run("snapshot", "create", *named, "--to", folder).out
    name = Path(taken["path"]).name
    assert len(as_json("snapshot", "list", "--to", folder)["snapshots"]) == 2
    assert "settled" in run("snapshot", "list", "--to", folder).out
    assert "mem0: 1 point" in run("snapshot", "show", name, "--to", folder).out
    run("snapshot", "keep", name, "--to", folder, "--reason", "for this test")
    assert "--deep reads them" in " ".join(run("snapshot", "verify", "--to", folder).out.split())
    assert "name a server" in run("snapshot", "verify", "--deep", "--to", folder, code=3).out
    verdict = as_json("snapshot", "verify", name, "--deep", "--to", folder, *url)
    assert verdict["snapshots"][0]["good"]
    run("snapshot", "verify", name, "--to", folder, *url, code=2)
    changed = as_json("snapshot", "diff", name, "live", "--to", folder, *named)
    assert changed["counts"]["unchanged"] == 1
    run("snapshot", "diff", name, name, "--to", folder, code=4)
    run("audit", "--snapshot", taken["path"], code=4)
    run("snapshot", "expire", "--to", folder, "--keep-last", "1", "--dry-run")

    back = ("snapshot", "restore", name, "--from", folder)
    record = ("--no-ledger",)
    new = str(tmp_path / "new")
    plan = as_json(*back, "--to", new, *url, "--dry-run")
    assert plan["server"]["collections"][0]["name"] == f"mem0-{name.lower()}"
    assert "made on the server, 1 point" in run(*back, "--to", new, *url, "--dry-run").out
    done = as_json(*back, "--to", new, *url)
    assert (done["collection"], done["kept"]) == (f"mem0-{name.lower()}", None)
    run(
        "audit",
        "--history",
        done["history"],
        *url,
        "--collection",
        done["collection"],
        "--fail-on",
        "critical",
    )
    run(*back, "--to", str(tmp_path / "n2"), "--history", str(log), code=2)
    run(*back, "--in-place", *named, code=4)  # not confirmed
    assert "replaced on the server, 1 point" in run(*back, "--in-place", *named, "--dry-run").out
    again = run(*back, "--to", str(tmp_path / "again"), *url, "--collection", "again").out
    (look,) = (line for line in again.splitlines() if line.startswith("Look at it:"))
    run(*shlex.split(look.partition("mem0audit ")[2]), "--fail-on", "critical")
    done = as_json(*back, "--in-place", *named, "--yes", *record)
    assert (done["in_place"], done["between"]) == (True, [])
    assert Path(done["kept"]).is_dir()
    assert "What was there before" in run(*back, "--in-place", *named, "--yes", *record).out
    run("snapshot", "restore", "--discard-replaced", *named, "--yes")

    written = "".join(one.out + one.err for one in said)
    assert key not in written
    assert TEXT not in written
    assert not any(key.encode() in p.read_bytes() for p in Path(folder).rglob("*") if p.is_file())
    assert server.collections() == {"mem0", f"mem0-{name.lower()}", "again"}


def test_a_folder_snapshot_is_not_put_onto_a_server(qdrant: QdrantServer, tmp_path: Path) -> None:
    from tests.builders import MemoryBuilder

    log = install(qdrant, tmp_path)
    with MemoryBuilder(tmp_path / "folder") as agent:
        agent.add("a memory", user_id="alice")
    folder = str(tmp_path / "snapshots")
    words = ("--history", str(agent.history), "--qdrant-path", str(agent.vectors), "--no-ledger")
    assert call(tmp_path, "snapshot", "create", *words, "--to", folder).code == 0
    (snapshot,) = (p for p in Path(folder).iterdir() if p.is_dir())
    named = ("--history", str(log), "--qdrant-url", qdrant.url)
    done = call(tmp_path, "snapshot", "restore", str(snapshot), "--in-place", *named, "--yes")
    assert done.code == 4
    assert "relocate --to-url URL" in done.err
