"""Deleting a scope's memories on a real Qdrant server, through mem0: what goes, what stays, what comes in between."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erase import Erased
from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.model import Install, Origin
from mem0audit.core.scopes import Scope
from mem0audit.core.server import Secret, parse_address
from mem0audit.install.host import this_host
from mem0audit.operations import erase
from mem0audit.operations.erase import apply_erase, plan_erase
from mem0audit.operations.mem0door import find_door
from mem0audit.operations.residue import residue
from mem0audit.report.questions import ON_SERVER
from mem0audit.stores import mem0api
from mem0audit.stores.mem0api import Mem0Worker
from tests.builders import StoreCopy, copy_store
from tests.operations.test_restore import agent
from tests.operations.test_toserver import move, on_server
from tests.qdrant_server import QdrantServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

CAROL = Scope("carol")


def served(qdrant: QdrantServer, tmp_path: Path, key: str | None = None) -> tuple[StoreCopy, Install]:
    """The install of mem0 2.2.1 with entities, its vectors on the server."""
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)
    move(store, parse_address(qdrant.url), None if key is None else Secret(key), ledger=True)
    return store, install_of(store, qdrant, key)


def install_of(store: StoreCopy, qdrant: QdrantServer, key: str | None = None) -> Install:
    return Install(
        Origin(str(store.history), "--history"),
        None,
        Origin("mem0", "mem0's default"),
        Origin(str(store.mem0_dir), "MEM0_DIR"),
        server_url=Origin(qdrant.url, "--qdrant-url"),
        server_key=None if key is None else Secret(key),
        agent_python=sys.executable,
    )


def delete(install: Install, **more: Any) -> Erased:
    plan = plan_erase(install, this_host(), scope=CAROL, only_this_store=True)
    return apply_erase(plan, this_host(), **more)


def of_carol(points: dict[str, tuple[Any, Any]]) -> set[str]:
    return {i for i, (payload, _) in points.items() if payload.get("user_id") == "carol"}


def test_a_scope_goes_and_nothing_else(
    qdrant_with_keys: QdrantServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the agent running beside it; and the key goes to mem0's worker alone, on its standard input."""
    qdrant, key = qdrant_with_keys, qdrant_with_keys.api_key or ""
    store, install = served(qdrant, tmp_path, key)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):  # of whoever runs the command: nothing goes there
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for other in (None, "wrong"):
        with pytest.raises(CouldNotRead) as problem:
            delete(install_of(store, qdrant, other))
        assert "key" in problem.value.message.lower() and "wrong" not in problem.value.message
    qdrant.result("PUT", "/collections/others", {"vectors": {"size": 2, "distance": "Dot"}})
    body = {"points": [{"id": n, "vector": [1, 2], "payload": {"user_id": "carol"}} for n in range(3)]}
    qdrant.result("PUT", "/collections/others/points?wait=true", body)
    qdrant.result("POST", "/collections/mem0/snapshots")
    before, entities = on_server(qdrant, "mem0"), on_server(qdrant, "mem0_entities")
    carols = of_carol(before)
    # one log may serve several collections: what is left in another must not lose its texts there
    shared = [{"id": min(carols), "vector": [1, 2], "payload": {"data": "x"}}]
    qdrant.result("PUT", "/collections/others/points?wait=true", {"points": shared})
    with pytest.raises(
        Refused, match=r"1 memory of it would stay, and lose the texts of their log \(others\)"
    ):
        plan_erase(install, this_host(), scope=CAROL, only_this_store=True, redact=True)
    qdrant.result("POST", "/collections/others/points/delete?wait=true", {"points": [min(carols)]})
    qdrant.result("PUT", "/collections/others_entities", {"vectors": {"size": 2, "distance": "Dot"}})
    entity = {"id": 1, "vector": [1, 2], "payload": {"data": "Quito", "user_id": "carol"}}
    qdrant.result("PUT", "/collections/others_entities/points?wait=true", {"points": [entity]})
    real, seen = erase._unlink, []

    def unlink(memory: Any, *arguments: Any) -> None:
        proc = Path(f"/proc/{memory._process.pid}")
        seen.append((proc / "cmdline").read_bytes() + (proc / "environ").read_bytes())
        real(memory, *arguments)

    monkeypatch.setattr(erase, "_unlink", unlink)
    with agent(store):  # on a server it may go on
        plan = plan_erase(install, this_host(), scope=CAROL, only_this_store=True)
        assert [(one.path, one.memories, one.is_here) for one in plan.elsewhere] == [(qdrant.url, 3, True)]
        nobody, someone = plan.meanwhile
        assert "cannot be seen from here" in nobody and "has the log open" in someone
        done = apply_erase(plan, this_host(), search=True)
    assert seen and key.encode() not in seen[0]
    assert key not in repr(plan) + repr(done) + repr(find_door(install, this_host()))
    assert done.memories == len(carols) and done.not_logged == 0 and not done.overwritten
    after = on_server(qdrant, "mem0")
    assert after == {i: point for i, point in before.items() if i not in carols}
    left = on_server(qdrant, "mem0_entities")
    assert len(left) == len(entities) - done.entities < len(entities)
    assert not any(carols & set(payload["linked_memory_ids"]) for payload, _ in left.values())
    for one in left.keys() & entities.keys():
        assert left[one][1] == entities[one][1]
    found = done.after
    assert found is not None and found.incomplete and not done.erased
    counts = {one.name: one.count for one in found.rows if one.kind in ("points", "entities")}
    assert counts == {"mem0": 0, "others": 3, "mem0_entities": 0, "others_entities": 1}
    assert any(one.kind == "snapshot on the server" for one in found.copies)
    (files,) = [one for one in found.not_searched if one.what == f"the files of {qdrant.url}"]
    assert "among them" in files.why and "mem0audit help on-server" in files.why
    (old,) = [one for one in found.copies if one.kind == "left by a move"]
    assert (old.path, old.memories) == (str(store.vectors), len(carols)) and old.remains
    redacted = residue(
        install, this_host(), scope=CAROL, texts=["a text that is nowhere to be found, it is hoped"]
    )
    assert redacted.incomplete


@pytest.mark.thorough
def test_cut_off_and_what_came_in_between(
    qdrant: QdrantServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server dies at the second memory; then the same command finishes it, and an agent adds one meanwhile."""
    _, install = served(qdrant, tmp_path)
    carols = of_carol(on_server(qdrant, "mem0"))
    real_send, deleted = Mem0Worker._send, []

    def dying(self: Mem0Worker, request: Any) -> Any:
        if isinstance(request, list) and request[0]["op"] == "delete":
            if deleted:
                qdrant.kill()
            deleted.append(request[0]["id"])
        return real_send(self, request)

    with monkeypatch.context() as patch:
        patch.setattr(mem0api, "AT_ONCE", 1)
        patch.setattr(Mem0Worker, "_send", dying)
        with pytest.raises(Failed, match=r"the Qdrant server did not answer.*what was begun is on record"):
            delete(install)
    with pytest.raises(CouldNotRead, match="connection refused"):
        delete(install)
    qdrant.start()
    assert of_carol(on_server(qdrant, "mem0")) == carols - {str(deleted[0])}
    real = erase._unlink

    def unlink(*arguments: Any) -> None:
        real(*arguments)
        point = {"id": 5, "vector": [0.1] * 8, "payload": {"data": "New", "user_id": "carol"}}
        qdrant.result("PUT", "/collections/mem0/points?wait=true", {"points": [point]})

    monkeypatch.setattr(erase, "_unlink", unlink)
    plan = plan_erase(install, this_host(), scope=CAROL, only_this_store=True)
    assert plan.resumed is not None and len(plan.ids) == len(carols) - 1
    with pytest.raises(Failed, match="1 memory of it came after it was looked at"):
        apply_erase(plan, this_host())
    assert of_carol(on_server(qdrant, "mem0")) == {"5"}


@pytest.mark.thorough
def test_with_a_key_that_may_only_read(qdrant_with_keys: QdrantServer, tmp_path: Path) -> None:
    store, install = served(qdrant_with_keys, tmp_path, qdrant_with_keys.api_key)
    carols = of_carol(on_server(qdrant_with_keys, "mem0"))
    with pytest.raises(Failed, match="answered 403: the key may not write"):
        delete(install_of(store, qdrant_with_keys, qdrant_with_keys.read_only_key))
    assert of_carol(on_server(qdrant_with_keys, "mem0")) == carols
    done = delete(install)
    assert done.resumed and done.memories == len(carols)


@pytest.mark.thorough
def test_what_the_server_keeps_can_be_cleared_as_the_page_says(
    start_qdrant: Callable[..., QdrantServer], tmp_path: Path
) -> None:
    """`help on-server`, call by call; looked for in every byte of the server's files. A snapshot from after the
    deletion has it too before that, and none after it."""
    qdrant = start_qdrant(environ={"QDRANT__STORAGE__OPTIMIZERS__FLUSH_INTERVAL_SEC": "1"})
    _, install = served(qdrant, tmp_path)

    def keeps() -> set[str]:
        """In which kinds of files some of carol's texts are."""
        found = set()
        files = (Path(folder, name) for folder, _, names in os.walk(qdrant.folder) for name in names)
        for one in files:
            with suppress(FileNotFoundError):  # of a segment that goes just now
                if one != qdrant.log and b"SECRETCAROL" in one.read_bytes():
                    found |= {"segments", "wal", "snapshots"} & set(one.parts) or {str(one)}
        return found

    done = delete(install, search=True)
    assert done.after is not None and not done.erased
    qdrant.result("POST", "/collections/mem0/snapshots?wait=true")
    assert keeps() == {"segments", "wal", "snapshots"}
    found = residue(install, this_host(), scope=CAROL)
    (named,) = [one.what for one in found.not_searched if one.what.startswith("snapshots on the server")]
    url = named.split(", ")[1]
    (files,) = [one.why for one in found.not_searched if one.what == f"the files of {qdrant.url}"]
    assert "until newer writes have filled 2 MB of it" in files
    change, back = re.findall(r"-X PATCH .* -d '(.*)'", ON_SERVER)
    for body in (change, back):
        for name in ("mem0", "mem0_entities"):
            path = f"/collections/{name}"
            qdrant.result("PATCH", path, json.loads(body))
            _wait(lambda path=path: qdrant.result("GET", path)["status"] == "green")  # type: ignore[misc]
    _wait(lambda: keeps() == {"wal", "snapshots"})
    (filling,) = re.findall(r"sed 's/\.\*/(.*)/' \| curl -X POST \"\$U(.*?)\"", ON_SERVER)
    for _ in range(3):
        for name in ("mem0", "mem0_entities"):
            body = filling[0].replace("&", "x" * 900_000)  # of 1 MB: the server's log is smaller here
            qdrant.result("POST", f"/collections/{name}{filling[1]}", json.loads(body))
    _wait(lambda: keeps() == {"snapshots"})
    qdrant.result("DELETE", url.removeprefix(qdrant.url))
    assert keeps() == set()
    qdrant.result("POST", "/collections/mem0/snapshots?wait=true")
    assert keeps() == set()


def _wait(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)
