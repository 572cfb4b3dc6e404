"""Repair and recovery on a real Qdrant server: the plan that the folder would have, and the same proof afterwards."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.errors import Refused
from mem0audit.core.model import Install
from mem0audit.core.server import parse_address
from mem0audit.install.config import Settings
from mem0audit.install.host import this_host
from mem0audit.operations import changes as operation
from mem0audit.operations.mem0door import find_door
from mem0audit.operations.prune import apply_prune, plan_prune
from mem0audit.operations.putback import apply_put_back, plan_put_back
from mem0audit.operations.recover import Wanted, apply_recover, plan_recover
from mem0audit.operations.repair import apply_repair, plan_repair
from mem0audit.operations.serversnapshot import create_of_server, plan_server_create
from mem0audit.operations.toserver import apply_to_server, plan_to_server
from tests.builders import copy_incident
from tests.operations.embedder import serving
from tests.operations.test_mem0door import install_at
from tests.operations.test_repair import ALL, Built, built
from tests.operations.test_restore import agent, undisturbed
from tests.operations.test_toserver import move, on, on_server
from tests.qdrant_server import QdrantServer

__all__ = ["built"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")


def served(built: Built, qdrant: QdrantServer, folder: Path) -> tuple[Install, Install]:
    """The install with its faults in a folder, and the same with its vectors on the server."""
    shutil.copytree(built.folder, folder)
    install, address = install_at(folder), parse_address(qdrant.url)

    def move() -> None:
        plan = plan_to_server(install, this_host(), address, ledger=False)
        apply_to_server(plan, this_host(), address)

    undisturbed(move)
    server = replace(install.history, value=qdrant.url)
    return install, replace(install, vectors=None, server_url=server)


def test_the_faults_of_a_folder_are_repaired(built: Built, qdrant: QdrantServer, tmp_path: Path) -> None:
    folder, install = served(built, qdrant, tmp_path / "install")
    to = str(tmp_path / "snapshots")
    was = undisturbed(lambda: plan_repair(folder, this_host(), ALL, folder=to))
    plan = plan_repair(install, this_host(), ALL, folder=to)
    assert plan.blocked is None and set(plan.todo.steps) == set(was.todo.steps) and plan.todo.steps
    before = on_server(qdrant, "mem0")
    done = apply_repair(plan, this_host()).changed
    assert not done.remaining and done.deleted == len(plan.todo.of("delete")) and done.rewritten == 1
    assert done.snapshot is not None and list(Path(done.snapshot).glob("server/*"))
    after = on_server(qdrant, "mem0")
    touched = {str(one) for one in (*plan.todo.of("delete"), *plan.todo.of("rewrite"))}
    assert {i: p for i, p in after.items() if i not in touched} == {
        i: p for i, p in before.items() if i not in touched
    }
    stale = built.ids["stale"]
    assert after[stale][1] == before[stale][1] and after[stale][0]["hash"] != before[stale][0]["hash"]
    again = plan_repair(install, this_host(), ALL, folder=to)
    assert not again.todo.steps


def test_what_another_changed_meanwhile_is_noticed(
    built: Built, qdrant: QdrantServer, tmp_path: Path
) -> None:
    _, install = served(built, qdrant, tmp_path / "install")
    todo = plan_repair(install, this_host(), ALL, folder=str(tmp_path / "snapshots")).todo
    door = find_door(install, this_host())
    before = operation._picture(door.store, door, None)
    assert (
        operation._other_changes(before, operation._picture(door.store, door, before), todo, Counter(), door)
        is None
    )
    point = {"id": 7, "vector": [0.1] * 8, "payload": {"data": "x", "user_id": "bob"}}
    qdrant.result("PUT", "/collections/mem0/points?wait=true", {"points": [point]})
    after = operation._picture(door.store, door, before)
    assert operation._other_changes(before, after, todo, Counter(), door) == "1 points of mem0"


def test_no_snapshot_no_change(built: Built, qdrant: QdrantServer, tmp_path: Path) -> None:
    _, install = served(built, qdrant, tmp_path / "install")
    before = on_server(qdrant, "mem0")
    plan = plan_repair(install, this_host(), ALL, folder=None)
    with pytest.raises(Refused, match="a snapshot is taken first"):
        apply_repair(plan, this_host())
    assert on_server(qdrant, "mem0") == before


def test_a_lost_memory_comes_back(built: Built, qdrant: QdrantServer, tmp_path: Path) -> None:
    _, install = served(built, qdrant, tmp_path / "install")
    wanted = Wanted(assign_user="alice", doubtful=True)
    with serving() as own:
        plan = plan_recover(install, this_host(), wanted, settings=Settings(), pause=lambda _: None)
        assert [one.memory_id for one in plan.memories] == [built.ids["lost"]]
        done = apply_recover(plan, find_door(install, this_host()), this_host(), own.config())
    ((_, new),) = done.added
    assert on_server(qdrant, "mem0")[new][0]["data"] == "SECRET lost"


@pytest.mark.thorough
def test_a_lost_memory_comes_back_as_a_snapshot_of_the_server_has_it(
    built: Built, qdrant: QdrantServer, tmp_path: Path
) -> None:
    """The server itself reads it, under a scratch name, where it is asked to; else it is said, and taken for no record
    of erasures."""
    _, install = served(built, qdrant, tmp_path / "install")
    taken = create_of_server(
        plan_server_create(install, this_host(), str(tmp_path / "snapshots")), this_host()
    )
    sound, there = built.ids["sound"], qdrant.collections()
    qdrant.result("POST", "/collections/mem0/points/delete?wait=true", {"points": [sound]})
    settings = Settings(snapshot_dir=str(tmp_path / "snapshots"))
    plan = plan_recover(install, this_host(), Wanted(doubtful=True), settings=settings, pause=lambda _: None)
    assert plan.lost == 2 and plan.not_read == () and len(plan.not_looked_into) == 1
    assert taken.path in plan.not_looked_into[0] and qdrant.collections() == there
    wanted = Wanted(memories=(sound,), snapshot=taken.path, doubtful=True)
    plan = plan_recover(install, this_host(), wanted, settings=settings, pause=lambda _: None)
    (one,) = plan.memories
    assert one.owner == ("alice", None, None) and one.metadata["tag"] == "x"
    assert qdrant.collections() == there


def test_a_stranded_log_is_put_back(qdrant: QdrantServer, tmp_path: Path) -> None:
    store = copy_incident("stranded-history", tmp_path / "install")
    move(store, parse_address(qdrant.url))
    install, to = on(qdrant, store), str(tmp_path / "snapshots")
    plan = plan_put_back(install, this_host(), to, ledger=False)
    done = apply_put_back(plan, this_host())
    assert done.rows_after - done.rows_before == plan.missing > 0
    assert list(Path(done.snapshot).glob("server/*")) and not done.warnings
    assert not plan_put_back(install, this_host(), to, ledger=False).tables
    with agent(store), pytest.raises(Refused, match="is in use by"):
        apply_put_back(plan, this_host())


def test_what_has_expired_is_pruned(built: Built, qdrant: QdrantServer, tmp_path: Path) -> None:
    folder, install = served(built, qdrant, tmp_path / "install")
    to = str(tmp_path / "snapshots")
    was = undisturbed(lambda: plan_prune(folder, this_host(), folder=to))
    plan = plan_prune(install, this_host(), folder=to)
    assert plan.blocked is None and plan.todo == was.todo and plan.todo.of("delete")
    before = on_server(qdrant, "mem0")
    done = apply_prune(plan, this_host()).changed
    assert not done.remaining and done.deleted == len(plan.todo.of("delete"))
    gone = set(map(str, plan.todo.of("delete")))
    assert on_server(qdrant, "mem0") == {i: p for i, p in before.items() if i not in gone}
