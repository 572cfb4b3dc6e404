"""Restores onto a Qdrant server: into new collections and in place, cut off and killed at each step."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core import restore as restore_core
from mem0audit.core import serverrestore as core
from mem0audit.core.erasures import RECORD, erasures_text, make_erasure
from mem0audit.core.errors import Failed, Refused
from mem0audit.core.model import Install, Origin
from mem0audit.core.restore import NotAnIntent, Restored
from mem0audit.core.snapshot import parse_manifest
from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.interrupted import interrupted, read_record, record_path
from mem0audit.operations.serverrestore import apply_server_restore, plan_server_restore
from mem0audit.operations.serversnapshot import create_of_server, plan_server_create
from mem0audit.operations.verify import list_snapshots, verify
from mem0audit.stores import exchange, files
from tests.operations.test_restore import at, die, steps
from tests.operations.test_snapshot import in_child, killed_at, rows_of
from tests.qdrant_server import QdrantServer
from tests.tcp_proxy import Proxy

pytestmark = pytest.mark.usefixtures("quick")

ALONE: Any = {"ledger": False, "without_erasure_record": True}
NEW = 3
"""So many memories came after the snapshot."""


class Live:
    """An install on a server as mem0 leaves it: a log, memories with their indexes, entities. `memories` are written
    by hand, quickly: what they are is not what is tested here."""

    def __init__(self, server: QdrantServer, folder: Path) -> None:
        self.server = server
        folder.mkdir()
        self.log = folder / "history.db"
        self.snapshots = folder / "snapshots"
        with closing(sqlite3.connect(self.log)) as log:
            log.execute(
                "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, "
                "event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
            )
        for name in ("mem0", "mem0_entities"):
            body = {
                "vectors": {"size": 4, "distance": "Cosine"},
                "sparse_vectors": {"bm25": {"modifier": "idf"}},
            }
            server.result("PUT", f"/collections/{name}", body)
        body = {"field_name": "user_id", "field_schema": "keyword"}
        server.result("PUT", "/collections/mem0/index?wait=true", body)
        self.write(0, 5)
        self.entity()
        self.then: tuple[Any, ...] = ()
        """Both stores as the snapshot has them."""

    def entity(self) -> None:
        self.point("mem0_entities", 0, {"data": "thing", "linked_memory_ids": [memory_id(1)]})

    def memory(self, number: int) -> None:
        text = f"memory {number}"
        self.point("mem0", number, {"data": text, "user_id": "alice", "hash": text})

    def point(self, collection: str, number: int, payload: dict[str, Any]) -> None:
        vector = {"": [1.0, 0.0, 0.0, float(number)], "bm25": {"indices": [number], "values": [1.0]}}
        body = {"points": [{"id": memory_id(number), "vector": vector, "payload": payload}]}
        self.server.result("PUT", f"/collections/{collection}/points?wait=true", body)

    def write(self, first: int, count: int) -> None:
        with closing(sqlite3.connect(self.log, isolation_level=None)) as log:
            for number in range(first, first + count):
                self.memory(number)
                log.execute(
                    "INSERT INTO history (id, memory_id, new_memory, event, created_at, is_deleted) "
                    "VALUES (?, ?, ?, 'ADD', '2026-11-30T00:00:00+00:00', 0)",
                    (f"row {number}", memory_id(number), f"memory {number}"),
                )

    def install(self, url: str | None = None) -> Install:
        return locate(Flags(history=str(self.log), qdrant_url=url or self.server.url), this_host())

    def take(self) -> str:
        install, host = self.install(), this_host()
        plan = plan_server_create(install, host, str(self.snapshots))
        return create_of_server(plan, host, ledger=False).path

    def state(self) -> tuple[Any, ...]:
        """Everything in both stores: rows, points with their vectors, indexes."""
        found: list[Any] = [rows_of(self.log)]
        for name in ("mem0", "mem0_entities"):
            body = {"limit": 1000, "with_payload": True, "with_vector": True}
            points = self.server.result("POST", f"/collections/{name}/points/scroll", body)["points"]
            info = self.server.result("GET", f"/collections/{name}")
            found += [
                sorted(points, key=lambda p: p["id"]),
                info["config"]["params"],
                set(info["payload_schema"]),
            ]
        return tuple(found)

    def restore(self, snapshot: str, url: str | None = None, **options: Any) -> Restored:
        host, install = this_host(), self.install(url)
        if "collection" in options:
            install = replace(install, collection=Origin(options.pop("collection"), "--collection"))
        plan = plan_server_restore(snapshot, host, install, **ALONE, **options)
        return apply_server_restore(plan, host, install)

    def named(self, collection: str) -> Install:
        install = self.install()
        return replace(install, collection=Origin(collection, "--collection"))

    def names(self) -> list[str]:
        return [one.name for one in list_snapshots(str(self.snapshots))]


def memory_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@pytest.fixture(scope="module")
def _template(
    qdrant_process: QdrantServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Live, str]]:
    """A live install and a snapshot of it, made once; tests bring both back to it."""
    live = Live(qdrant_process, tmp_path_factory.mktemp("live") / "install")
    snapshot = live.take()
    shutil.copy(live.log, live.log.with_name("log-then"))
    live.then = live.state()
    yield live, snapshot
    for name in ("mem0", "mem0_entities"):
        qdrant_process.result("DELETE", f"/collections/{name}")


@pytest.fixture
def both(_template: tuple[Live, str], qdrant: QdrantServer) -> Iterator[tuple[Live, str]]:
    """The install, with memories that came after its snapshot, and that snapshot."""
    live, snapshot = _template
    _as_it_was(live)
    live.write(5, NEW)
    yield live, snapshot
    if not qdrant.running:
        qdrant.start()
    for name in live.names():
        if name != Path(snapshot).name:
            shutil.rmtree(live.snapshots / name)


def _as_it_was(live: Live) -> None:
    """The stores of the template, without what the test before left beside them."""
    for entry in live.log.parent.iterdir():
        if entry.name.startswith((".history.db", "history.db")):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copy(live.log.with_name("log-then"), live.log)
    for name in live.server.collections():
        if name.startswith("mem0") and name not in ("mem0", "mem0_entities"):
            live.server.result("DELETE", f"/collections/{name}")
    body = {"filter": {"must": [{"has_id": [memory_id(n) for n in range(5, 30)]}]}}
    live.server.result("POST", "/collections/mem0/points/delete?wait=true", body)
    for number in range(5):
        live.memory(number)
    live.entity()


@pytest.fixture
def then(both: tuple[Live, str]) -> tuple[Any, ...]:
    """Both stores as the snapshot has them."""
    return both[0].then


# --- Round trips ----------------------------------------------------------------------------------------------


def test_in_place_brings_both_back_and_keeps_what_was_there(both: tuple[Live, str], then: Any) -> None:
    live, snapshot = both
    before = live.state()
    assert before != then
    done = live.restore(snapshot)
    assert live.state() == then
    assert (done.in_place, done.between, done.resumed) == (True, (), False)
    (aside,) = done.replaced
    assert rows_of(aside) == before[0]
    assert [one.path for one in read_record(record_path(str(live.log)))] == [aside]
    assert done.kept is not None
    assert verify(done.kept).good
    assert live.server.collections() == {"mem0", "mem0_entities"}
    assert interrupted(live.install(), this_host()) is None
    live.restore(done.kept)  # and back
    assert live.state() == before
    kept = [one for one in live.server.snapshots.glob("mem0*/*") if one.is_file()]
    assert kept == []  # of what was put onto it, listed or not


def test_into_new_collections_and_a_new_folder(both: tuple[Live, str], then: Any, tmp_path: Path) -> None:
    live, snapshot = both
    before = live.state()
    done = live.restore(snapshot, to=str(tmp_path / "new"))
    assert done.collection == f"mem0-{Path(snapshot).name.lower()}"
    assert rows_of(done.history) == then[0]
    body = {"limit": 1000, "with_payload": True, "with_vector": True}
    points = live.server.result("POST", f"/collections/{done.collection}/points/scroll", body)["points"]
    assert points == then[1]
    assert live.server.collections() == {
        "mem0",
        "mem0_entities",
        done.collection,
        f"{done.collection}_entities",
    }
    assert live.state() == before
    with pytest.raises(Refused, match=r"is not empty|already"):
        live.restore(snapshot, to=str(tmp_path / "new"))
    named = live.restore(snapshot, to=str(tmp_path / "other"), collection="mem0-named")
    assert named.collection == "mem0-named"


def test_settings_of_a_collection(both: tuple[Live, str], tmp_path: Path) -> None:
    """A new one has those of the snapshot; one in place keeps its own, which is said. Older manifests have none."""
    live, snapshot = both
    manifest = Path(snapshot, "manifest.json").read_bytes()
    found = parse_manifest(manifest)
    assert found.server is not None
    had = found.server.collections[0]
    strict = {"strict_mode_config": {"enabled": False}}
    live.server.result("PATCH", "/collections/mem0", {"hnsw_config": {"m": 40}, **strict})
    try:
        plan = plan_server_restore(snapshot, this_host(), live.install(), **ALONE)
        (said,) = (one for one in plan.warnings if "settings" in one)
        assert said.startswith(
            "mem0 keeps the settings that it has on the server now (hnsw_config, strict_mode_config):"
        )
        done = live.restore(snapshot, to=str(tmp_path / "new"))
        info = live.server.result("GET", f"/collections/{done.collection}")
        assert info["config"] == {"params": had.params, **had.config} and had.config["hnsw_config"]["m"] == 16
        assert {field: dict(said, points=5) for field, said in had.indexes.items()} == info["payload_schema"]
    finally:
        live.server.result("PATCH", "/collections/mem0", {"hnsw_config": {"m": 16}})
    raw = json.loads(manifest)
    for one in raw["server"]["collections"]:
        del one["config"], one["indexes"]
    older = parse_manifest(json.dumps(raw).encode()).server
    assert older is not None and older.collections[0] == replace(had, config={}, indexes={})


def test_where_the_collections_are_gone(both: tuple[Live, str], then: Any) -> None:
    """A volume that came up empty: nothing of it can be lost, and the log is put aside."""
    live, snapshot = both
    for name in ("mem0", "mem0_entities"):
        live.server.result("DELETE", f"/collections/{name}")
    done = live.restore(snapshot)
    assert live.state() == then
    assert done.kept is None
    assert len(done.replaced) == 1


# --- What is refused -------------------------------------------------------------------------------------------


def test_while_the_log_is_open(both: tuple[Live, str]) -> None:
    live, snapshot = both
    before = live.state()
    ready, end = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        held = sqlite3.connect(live.log)
        held.execute("SELECT count(*) FROM history").fetchone()
        os.write(ready[1], b"x")
        os.read(end[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        with pytest.raises(Refused, match=r"history\.db is in use by pid"):
            live.restore(snapshot)
    finally:
        os.write(end[1], b"x")
        os.waitpid(pid, 0)
        for descriptor in (*ready, *end):
            os.close(descriptor)
    assert live.state() == before


def test_over_a_collection_made_otherwise(both: tuple[Live, str], tmp_path: Path) -> None:
    live, snapshot = both
    live.server.result("PUT", "/collections/mem0-other", {"vectors": {"size": 5, "distance": "Cosine"}})
    with pytest.raises(
        Refused, match=r"mem0-other is made otherwise than the one of the snapshot \(vectors\)"
    ):
        live.restore(snapshot, collection="mem0-other")


@pytest.mark.parametrize("new", [False, True])
def test_an_alias_is_no_collection_to_put_it_into(both: tuple[Live, str], tmp_path: Path, new: bool) -> None:
    """A server takes a call that names an alias for one of the collection that it stands for: what is in that would
    be gone without a snapshot of it."""
    live, snapshot = both
    alias = {"create_alias": {"collection_name": "mem0", "alias_name": "other"}}
    live.server.result("POST", "/collections/aliases", {"actions": [alias]})
    now = live.state()
    with pytest.raises(Refused, match="other is an alias of mem0, which would be overwritten"):
        live.restore(snapshot, collection="other", **({"to": str(tmp_path / "new")} if new else {}))
    assert live.state() == now
    live.server.result(
        "POST", "/collections/aliases", {"actions": [{"delete_alias": {"alias_name": "other"}}]}
    )


def test_who_was_erased_since_is_erased_in_the_copy(both: tuple[Live, str], then: Any) -> None:
    """Of five memories two, and the entity that links one of them: gone, the others as they were."""
    live, snapshot = both
    record = live.snapshots / RECORD
    was = record.read_bytes() if record.exists() else None
    gone = {memory_id(1), memory_id(3)}
    record.write_text(erasures_text((make_erasure(this_host().now + 60, "0" * 32, None, gone),)))
    try:
        done = live.restore(snapshot)
    finally:
        record.unlink() if was is None else record.write_bytes(was)
    assert done.erased is not None
    assert (done.erased.memories, done.erased.entities, done.erased.rows) == (2, 1, 2)
    now = live.state()
    assert now[1] == [p for p in then[1] if p["id"] not in gone]
    assert (now[2:4], now[4], now[5:]) == (then[2:4], [], then[5:])
    rows = [row for row in now[0] if row[1] not in gone]
    assert rows == [row for row in then[0] if row[1] not in gone]
    assert {row[2:4] for row in now[0] if row[1] in gone} == {(None, ""), ("", None)}
    assert live.server.collections() == {"mem0", "mem0_entities"}
    assert not [p for p in live.server.snapshots.rglob("*.snapshot") if "scratch" in str(p)]
    said = live.server.result("POST", "/collections/mem0/snapshots")
    held = (live.server.snapshots / "mem0" / said["name"]).read_bytes()
    assert (b"memory 2" in held, b"memory 1" in held, b"memory 3" in held) == (True, False, False)
    live.server.result("DELETE", f"/collections/mem0/snapshots/{said['name']}?wait=true")


def test_a_damaged_snapshot(both: tuple[Live, str]) -> None:
    live, snapshot = both
    copy = live.snapshots.parent / "damaged" / Path(snapshot).name
    shutil.copytree(snapshot, copy)
    with (copy / "server/mem0.snapshot").open("r+b") as file:
        file.seek(1000)
        file.write(b"x")
    before = live.state()
    with pytest.raises(Refused, match="is not what was written"):
        live.restore(str(copy))
    assert live.state() == before
    shutil.rmtree(copy.parent)


@pytest.mark.parametrize(
    ("snapshot", "server", "refused"),
    [
        ("1.16.3", "1.16.0", False),
        ("1.16.3", "1.17.1", False),
        ("1.16.3", "1.15.9", True),
        ("1.16.3", "dev", False),
    ],
)
def test_versions(snapshot: str, server: str, refused: bool) -> None:
    assert (core.cannot_take(snapshot, server) is not None) == refused
    assert core.far_newer("1.16.3", "1.18.0")
    assert not core.far_newer("1.16.3", "1.17.0")


def test_a_newer_server_says_more_of_a_collection() -> None:
    vectors = {"size": 4, "distance": "Cosine"}
    assert core.alike(vectors, {**vectors, "datatype": None})
    assert not core.alike(vectors, {**vectors, "size": 5})
    assert not core.alike({"": vectors}, {"": {**vectors, "distance": "Dot"}})
    assert not core.alike(None, {"bm25": {}})
    assert not core.alike(1, 2)
    assert not core.alike(1, True)


# --- Somebody writes meanwhile -------------------------------------------------------------------------------------


def write_at(live: Live, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def step(this: str) -> None:
        if this in names:
            live.point("mem0", 20, {"data": "in between"})

    monkeypatch.setattr(files, "step", step)


def test_what_comes_before_the_change_keeps_it_from_being_made(
    both: tuple[Live, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    live, snapshot = both
    write_at(live, monkeypatch, "server.drop")
    with pytest.raises(
        Refused, match="somebody wrote to it since its snapshot was taken; nothing was changed"
    ):
        live.restore(snapshot)
    monkeypatch.undo()
    assert memory_id(20) in [p["id"] for p in live.state()[1]]
    assert memory_id(5) in [p["id"] for p in live.state()[1]]


def test_what_comes_in_between_is_told(both: tuple[Live, str], monkeypatch: pytest.MonkeyPatch) -> None:
    live, snapshot = both
    write_at(live, monkeypatch, "restore.exchange", "restore.put")
    done = live.restore(snapshot)
    assert done.between == ("mem0 holds 6 points, the snapshot 5, and not the same: somebody wrote to it.",)


# --- Cut off ------------------------------------------------------------------------------------------------------


def test_a_server_that_dies_while_it_is_put_back(
    both: tuple[Live, str], then: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither finished nor taken back, said so, found by the next look; the same command finishes it."""
    live, snapshot = both
    put = []

    def step(this: str) -> None:
        if this == "server.put.done":
            put.append(this)
            if len(put) == 3:  # two under scratch names, then the memories
                live.server.kill()

    monkeypatch.setattr(files, "step", step)
    with pytest.raises(Failed, match="neither finished nor taken back"):
        live.restore(snapshot)
    monkeypatch.undo()
    live.server.start()
    found = interrupted(live.install(), this_host())
    assert found is not None
    assert (found.course, found.snapshot) == ("finish", snapshot)
    done = live.restore(snapshot)
    assert done.resumed
    assert live.state() == then
    assert interrupted(live.install(), this_host()) is None


@pytest.mark.thorough
def test_an_upload_that_is_cut_is_taken_back(both: tuple[Live, str]) -> None:
    live, snapshot = both
    before = live.state()
    with Proxy(live.server.http_port) as proxy:
        proxy.cut(up=10_000, times=1, matching="POST /collections/mem0/snapshots/upload")
        with pytest.raises(Failed, match="it was taken back, both stores are as they were"):
            live.restore(snapshot, proxy.url)
        assert proxy.cuts == 1
        assert live.state() == before
        proxy.cut(up=10_000, matching="POST /collections/mem0audit-scratch")
        with pytest.raises(Failed, match="nothing was changed"):
            live.restore(snapshot, proxy.url)
    assert live.state() == before
    assert live.server.collections() == {"mem0", "mem0_entities"}
    assert interrupted(live.install(), this_host()) is None


def test_a_new_one_that_is_cut_leaves_nothing(both: tuple[Live, str], tmp_path: Path) -> None:
    live, snapshot = both
    with Proxy(live.server.http_port) as proxy:
        proxy.cut(up=10_000, matching="POST /collections/mem0-new_entities/snapshots/upload")
        with pytest.raises(Failed, match="nothing was restored"):
            live.restore(snapshot, proxy.url, to=str(tmp_path / "new"), collection="mem0-new")
        assert proxy.cuts
    assert live.server.collections() == {"mem0", "mem0_entities"}
    assert list(tmp_path.iterdir()) == []


def test_a_new_one_whose_name_does_not_reach_the_disk_leaves_nothing(
    both: tuple[Live, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither half stays, although the folder had its name already."""
    live, snapshot = both
    there, to, real = live.server.collections(), tmp_path / "new", exchange._sync

    def failing(folder: Path) -> None:
        if to.exists():
            raise OSError(5, os.strerror(5))
        real(folder)

    with monkeypatch.context() as patch:
        patch.setattr(exchange, "_sync", failing)
        with pytest.raises(Failed, match="input/output error; nothing was restored"):
            live.restore(snapshot, to=str(to), collection="mem0-new")
    assert (live.server.collections(), to.exists()) == (there, False)
    done = live.restore(snapshot, to=str(to), collection="mem0-new")
    assert (done.resumed, done.between) == (False, ())


def killed_when(name: str, number: int, work: Callable[[], Any]) -> None:
    with steps(at(name, number, die)):
        assert in_child(lambda: work() and 0) == -signal.SIGKILL


def test_a_new_one_that_is_killed_is_removed_or_finished(
    both: tuple[Live, str], then: Any, tmp_path: Path
) -> None:
    """By the same command; a collection that holds anything else than what was put there is left alone."""
    live, snapshot = both
    new, ours = str(tmp_path / "new"), {"mem0-new", "mem0-new_entities"}

    def again() -> Restored:
        return live.restore(snapshot, to=new, collection="mem0-new")

    killed_when("server.put.done", 2, again)
    assert live.server.collections() == {"mem0", "mem0_entities", *ours}
    found = plan_server_restore(snapshot, this_host(), live.named("mem0-new"), to=new, **ALONE).interrupted
    assert found is not None and found.course == "clean"
    live.point("mem0-new", 20, {"data": "somebody else's"})
    for name in ("mem0-new", "mem0-other"):
        with pytest.raises(Refused, match="mem0-new, which is there and not known to hold"):
            live.restore(snapshot, to=new, collection=name)
    body = {"points": [memory_id(20)]}
    live.server.result("POST", "/collections/mem0-new/points/delete?wait=true", body)
    done = live.restore(snapshot, to=new, collection="mem0-other")  # what was left goes, whatever is made now
    assert live.server.collections() == {"mem0", "mem0_entities", "mem0-other", "mem0-other_entities"}
    assert not done.resumed and done.settled is not None
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["history.db", "new"]
    shutil.rmtree(new)
    for name in ("mem0-other", "mem0-other_entities"):
        live.server.result("DELETE", f"/collections/{name}")
    killed_when("restore.drop", 3, again)  # published, and the note of it not yet gone
    done = again()
    assert (done.resumed, done.collection, done.between) == (True, "mem0-new", ())
    assert (done.manifest.counts["memories"], done.manifest.counts["entities"]) == (5, 1)
    assert rows_of(done.history) == then[0]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["history.db", "new"]
    with pytest.raises(Refused, match=r"is not empty|already"):
        again()


BEFORE = ("server.put",)
AFTER = ("restore.exchange", "restore.intent.remove", "restore.staging.remove")


@pytest.mark.parametrize(
    "name", [*BEFORE, *(pytest.param(name, marks=pytest.mark.thorough) for name in AFTER)]
)
def test_a_kill_at_every_step(both: tuple[Live, str], then: Any, name: str) -> None:
    """Nothing was changed, or the same command finishes it: never one new and one old for good."""
    live, snapshot = both
    before = live.state()
    assert killed_at(name, lambda: live.restore(snapshot)) == -signal.SIGKILL
    found = interrupted(live.install(), this_host())
    if name in BEFORE:
        assert live.state() == before
        assert found is None or found.course == "clean"
    done = live.restore(snapshot)
    assert live.state() == then
    assert interrupted(live.install(), this_host()) is None
    assert done.between == ()
    assert verify(snapshot, "quick").good


@pytest.mark.thorough
def test_what_the_server_makes_beyond_a_kill_is_told(both: tuple[Live, str], then: Any) -> None:
    """Of snapshots of which one was asked for, and not answered, nobody knows whose they are: they are named."""
    live, snapshot = both
    assert killed_at("server.snapshot", lambda: live.restore(snapshot)) == -signal.SIGKILL
    path = "/collections/mem0/snapshots"
    time.sleep(1.1)  # the name has the second in it
    live.server.result("POST", path)
    time.sleep(1.1)
    left = [one["name"] for one in live.server.result("GET", path)]
    try:
        assert len(left) == 2
        done = live.restore(snapshot)
        assert live.state() == then
        said = [one for one in done.warnings if "may still have its own copy" in one]
        assert all(any(name in one for one in said) for name in left)
    finally:
        for name in left:
            live.server.result("DELETE", f"{path}/{name}?wait=true")


def test_a_kill_between_the_two_is_finished_or_taken_back(both: tuple[Live, str], then: Any) -> None:
    live, snapshot = both
    before = live.state()

    def work() -> Restored:
        put: list[str] = []

        def step(this: str) -> None:
            if this == "server.put.done":
                put.append(this)
                if len(put) == 4:  # both collections are the snapshot's, the log is not
                    os.kill(os.getpid(), signal.SIGKILL)

        files.step = step
        return live.restore(snapshot)

    assert in_child(lambda: 0 if work() else 1) == -signal.SIGKILL
    half = live.state()
    assert (half[0], half[1]) == (before[0], then[1])
    other = live.names()[0]
    folder = Path(restore_core.staging_beside(str(live.log)))
    kept = core.parse_intent((folder / restore_core.INTENT).read_bytes()).kept
    assert kept is not None
    assert Path(kept).name == other
    third = live.snapshots.parent / "third" / Path(snapshot).name
    shutil.copytree(snapshot, third)
    with pytest.raises(Refused, match="was cut off here, and the stores may be half of each"):
        live.restore(str(third))
    shutil.rmtree(third.parent)
    done = live.restore(kept)
    assert done.settled is not None
    assert done.settled.course == "back"
    assert live.state() == before
    assert interrupted(live.install(), this_host()) is None


# --- The intent ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.update(kind="mem0audit-restore"),
        lambda raw: raw.update(format=2),
        lambda raw: raw.update(names={"a": "../b"}),
        lambda raw: raw.update(history=1),
        lambda raw: raw.update(erased=[1]),
        lambda raw: raw.update(copied="yes"),
        lambda raw: raw["pieces"][0].update(target="/etc/passwd"),
        lambda raw: raw["pieces"][0].update(staged="/tmp/x"),
        lambda raw: raw["pieces"][0].update(aside="/tmp/x"),
        lambda raw: raw.pop("url"),
    ],
)
def test_an_odd_intent_is_none(change: Callable[[Any], Any]) -> None:
    piece = restore_core.Piece(
        "history",
        "/a/h.db",
        "/a/.h.db.mem0audit-restoring/history.db",
        "/a/h.db.replaced-2026-11-30T000000Z",
        "1",
        "2",
        {},
    )
    intent = core.ServerIntent("/s", None, "x", "http://h:1", "/a/h.db", {"server/m.snapshot": "m"}, (piece,))
    text = core.intent_text(intent)
    assert core.parse_intent(text.encode()) == intent
    raw = json.loads(text)
    change(raw)
    with pytest.raises(NotAnIntent):
        core.parse_intent(json.dumps(raw).encode())
