"""Snapshots of an install whose points lie on a Qdrant server: a real one, that dies and is cut off."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core import snapshot as core
from mem0audit.core.erasures import make_erasure
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.model import Install
from mem0audit.core.server import parse_address
from mem0audit.core.snapshot import NotAManifest, Taken, parse_manifest
from mem0audit.install.host import Host, this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations import leftonserver, scratch, seal, serversnapshot
from mem0audit.operations.audit import audit
from mem0audit.operations.copyaudit import audit_snapshot, find_copy
from mem0audit.operations.diff import diff, lent, of_live
from mem0audit.operations.erasures import erased_in
from mem0audit.operations.leftonserver import LEFT
from mem0audit.operations.serversnapshot import create_of_server, plan_server_create
from mem0audit.operations.verify import list_snapshots, verify
from mem0audit.report.screen import Screen
from mem0audit.report.snapshots import taken_text
from mem0audit.stores import files, pair
from mem0audit.stores.server import Connection
from mem0audit.stores.serversnapshots import UPLOADED
from tests.builders import MemoryBuilder
from tests.operations.test_snapshot import killed_at, rows_of
from tests.qdrant_server import QdrantServer
from tests.tcp_proxy import Proxy

pytestmark = pytest.mark.usefixtures("quick")

TEXTS = 12


class Kept:
    """An install that mem0 wrote on the shared server, with entities, for all tests that leave it as it is."""

    def __init__(self, server: QdrantServer, folder: Path) -> None:
        self.server = server
        self.collection = "snapshot-tests"
        self.log = folder / "mem0_dir/history.db"
        with MemoryBuilder(folder, server=server.url, collection=self.collection) as agent:
            ids = [agent.add(f"memory {i}", user_id="alice") for i in range(TEXTS)]
            agent.update(ids[0], "memory 0, changed")
            agent.delete(ids[1])
        path = f"/collections/{self.collection}_entities"
        server.result("PUT", path, {"vectors": {"size": 8, "distance": "Cosine"}})
        points = [
            {"id": i, "vector": [1.0] * 8, "payload": {"data": f"thing {i}", "linked_memory_ids": [ids[i]]}}
            for i in (2, 3)
        ]
        server.result("PUT", f"{path}/points?wait=true", {"points": points})

    def install(self, url: str | None = None) -> Install:
        flags = Flags(history=str(self.log), qdrant_url=url or self.server.url, collection=self.collection)
        return locate(flags, this_host())

    def remote(self) -> list[Any]:
        """The server's own snapshots of both collections."""
        names = (self.collection, f"{self.collection}_entities")
        return [one for name in names for one in self.server.result("GET", f"/collections/{name}/snapshots")]


@pytest.fixture(scope="module")
def kept(qdrant_process: QdrantServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    found = Kept(qdrant_process, tmp_path_factory.mktemp("kept"))
    yield found
    for name in qdrant_process.collections():
        if name.startswith(found.collection):
            qdrant_process.result("DELETE", f"/collections/{name}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def take(install: Install, folder: Path, host: Host | None = None, *, ledger: bool = False) -> Taken:
    host = host or this_host()
    return create_of_server(plan_server_create(install, host, str(folder)), host, ledger=ledger)


def names(folder: Path) -> list[str]:
    return [one.name for one in list_snapshots(str(folder))] if folder.is_dir() else []


def files_in(place: Path) -> list[Path]:
    """What a server keeps, be it listed or not."""
    return sorted(one for one in place.rglob("*") if one.is_file())


# --- Round trip ---------------------------------------------------------------------------------------------


def test_both_stores_are_in_it_and_nothing_stays_on_the_server(kept: Kept, folder: Path) -> None:
    before = hashlib.sha256(kept.log.read_bytes()).hexdigest()
    done = take(kept.install(), folder)
    manifest = done.manifest
    assert (manifest.settled, manifest.pair, done.notes) == (True, True, ())
    assert manifest.counts == {"memories": TEXTS - 1, "entities": 2, "changes": TEXTS + 2, "live": TEXTS - 1}
    assert manifest.server is not None
    assert [(c.role, c.points) for c in manifest.server.collections] == [("memories", 11), ("entities", 2)]
    assert set(manifest.server.collections[0].payload_schema) == {"user_id", "agent_id", "run_id", "actor_id"}
    assert manifest.server.collections[0].params["vectors"]["size"] == 8
    assert (manifest.vectors.value, manifest.server.version) == (kept.server.url, "1.16.3")
    path = Path(done.path)
    assert rows_of(path / "history.db") == rows_of(kept.log)
    assert {p.stat().st_mode & 0o777 for p in path.rglob("*") if p.is_file()} == {0o600}
    assert path.stat().st_mode & 0o777 == 0o700
    assert kept.remote() == []
    assert hashlib.sha256(kept.log.read_bytes()).hexdigest() == before
    assert verify(done.path).good
    assert parse_manifest((path / core.MANIFEST).read_bytes()) == manifest
    raw = json.loads((path / core.MANIFEST).read_bytes())
    assert raw["format"] == 2


def test_what_a_killed_run_left_on_the_server_goes_with_the_next_one(
    kept: Kept, folder: Path, qdrant: QdrantServer
) -> None:
    """And nothing else: no collection of a run that lives, of another machine, or of a name that only begins so."""
    install, host = kept.install(), this_host()
    path = take(install, folder).path
    others = {
        scratch.base_of("0" * 12),
        "mem0audit-scratch-" + "0" * 8 + "-1-1-" + "0" * 12,
        "mem0audit-scratch-x",
    }
    for name in others:
        qdrant.result("PUT", f"/collections/{name}", {"vectors": {"size": 2, "distance": "Dot"}})

    def work() -> bool:
        return verify(path, "deep", server=(install, host)).good

    assert killed_at("server.put.done", work) == -signal.SIGKILL
    (left,) = {name for name in qdrant.collections() if name.startswith("mem0audit-scratch-")} - others
    assert re.fullmatch(r"mem0audit-scratch-[0-9a-f]{8}-\d+-\d+-[0-9a-f]{12}", left)
    assert scratch.left_by_the_dead([left, *others]) == [left]
    assert work()
    assert {name for name in qdrant.collections() if name.startswith("mem0audit-scratch-")} == others


def test_deep_puts_it_onto_a_server_and_removes_it_again(
    kept: Kept, folder: Path, qdrant_with_keys: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another server than it came from, with a key that stands in no file of the snapshot."""
    path = take(kept.install(), folder).path
    verdict = verify(path, "deep")
    assert [n.what for n in verdict.not_checked] == ["the points"]
    monkeypatch.setenv("THE_KEY", qdrant_with_keys.api_key or "")
    host = this_host()
    other = locate(Flags(qdrant_url=qdrant_with_keys.url, api_key_env="THE_KEY"), host)
    before = files_in(qdrant_with_keys.snapshots)  # of other tests: the server is shared
    verdict = verify(path, "deep", server=(other, host))
    assert verdict.good, verdict
    assert qdrant_with_keys.collections() == set()
    assert files_in(qdrant_with_keys.snapshots) == before
    key = (qdrant_with_keys.api_key or "").encode()
    assert not any(key in p.read_bytes() for p in Path(path).rglob("*") if p.is_file())
    monkeypatch.setenv("THE_KEY", qdrant_with_keys.read_only_key or "")
    looking = locate(Flags(qdrant_url=qdrant_with_keys.url, api_key_env="THE_KEY"), this_host())
    verdict = verify(path, "deep", server=(looking, host))
    assert (verdict.good, verdict.problems) == (False, ())
    assert "may not" in verdict.not_checked[0].why


def test_what_is_not_audited_is_not_called_whole(kept: Kept, folder: Path, qdrant: QdrantServer) -> None:
    """A connection that is cut in the audit alone (which asks for aliases, and nothing else does)."""
    with Proxy(kept.server.http_port) as proxy:
        proxy.cut(down=0, matching="GET /aliases")
        taken = take(kept.install(proxy.url), folder)
        assert proxy.cuts == 1
        (note,) = taken.notes
        assert "was not audited whole" in note and "the connection ended in the middle" in note
        verdict = verify(taken.path, "deep", server=(kept.install(proxy.url), this_host()))
        assert proxy.cuts == 2
        assert (verdict.good, verdict.problems) == (False, ())
        assert "the connection ended in the middle" in verdict.not_checked[0].why
        proxy.heal()
        assert verify(taken.path, "deep", server=(kept.install(proxy.url), this_host())).good


def test_a_file_of_another_collection_is_told(kept: Kept, folder: Path, qdrant: QdrantServer) -> None:
    """The right sums around the wrong points: what the manifest says of them is not what the server makes."""
    path = Path(take(kept.install(), folder).path)
    manifest = parse_manifest((path / core.MANIFEST).read_bytes())
    assert manifest.server is not None
    memories, entities = manifest.server.collections
    swapped = replace(
        manifest.server,
        collections=(replace(memories, path=entities.path), replace(entities, path=memories.path)),
    )
    text = core.manifest_text(replace(manifest, server=swapped)).encode()
    (path / core.MANIFEST).write_bytes(text)
    (path / core.CHECKSUM).write_text(core.checksum_text(text))
    assert verify(str(path)).good
    verdict = verify(str(path), "deep", server=(kept.install(), this_host()))
    assert {p.path for p in verdict.problems} == {memories.path, entities.path}
    assert not [name for name in qdrant.collections() if "scratch" in name]


@pytest.mark.parametrize("where", ["snapshot", "history"])
def test_a_flipped_byte_is_named(kept: Kept, folder: Path, where: str) -> None:
    path = Path(take(kept.install(), folder).path)
    target = path / ("history.db" if where == "history" else core.server_path(kept.collection))
    data = bytearray(target.read_bytes())
    data[len(data) // 2] ^= 1
    target.write_bytes(data)
    verdict = verify(str(path))
    assert [p.path for p in verdict.problems] == [str(target.relative_to(path))]


# --- What is refused ---------------------------------------------------------------------------------------------


def test_a_collection_that_is_not_there(kept: Kept, folder: Path) -> None:
    install = replace(kept.install(), collection=replace(kept.install().collection, value="another"))
    with pytest.raises(CouldNotRead, match=r"there is no collection another; there are: .*snapshot-tests"):
        plan_server_create(install, this_host(), str(folder))
    assert not folder.exists()


def test_without_the_log_there_is_no_pair(kept: Kept, folder: Path, tmp_path: Path) -> None:
    install = replace(
        kept.install(), history=replace(kept.install().history, value=str(tmp_path / "none.db"))
    )
    with pytest.raises(CouldNotRead, match="without the log"):
        plan_server_create(install, this_host(), str(folder))


def test_a_key_that_may_only_look_takes_nothing(
    kept: Kept, folder: Path, qdrant_with_keys: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = qdrant_with_keys
    server.result("PUT", "/collections/mem0", {"vectors": {"size": 8, "distance": "Cosine"}})
    monkeypatch.setenv("THE_KEY", server.read_only_key or "")
    flags = Flags(history=str(kept.log), qdrant_url=server.url, api_key_env="THE_KEY")
    with pytest.raises(Failed, match=r"may not do this: .*; nothing was taken"):
        take(locate(flags, this_host()), folder)
    assert names(folder) == []


def test_shards_on_other_nodes_are_refused(
    kept: Kept, folder: Path, start_qdrant: Callable[..., QdrantServer]
) -> None:
    """Two nodes, a collection of two shards: what one of them gives is half of it."""
    import socket

    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1], other.getsockname()[1]]
    cluster = {"QDRANT__CLUSTER__ENABLED": "true"}
    uri = f"http://127.0.0.1:{ports[0]}"
    first = start_qdrant(
        environ={**cluster, "QDRANT__CLUSTER__P2P__PORT": str(ports[0])}, arguments=["--uri", uri]
    )
    start_qdrant(
        environ={**cluster, "QDRANT__CLUSTER__P2P__PORT": str(ports[1])},
        arguments=["--bootstrap", uri, "--uri", f"http://127.0.0.1:{ports[1]}"],
    )
    deadline = time.monotonic() + 20
    while len(first.result("GET", "/cluster")["peers"]) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    body = {"vectors": {"size": 8, "distance": "Cosine"}, "shard_number": 4}
    first.result("PUT", "/collections/mem0", body)
    flags = Flags(history=str(kept.log), qdrant_url=first.url)
    with pytest.raises(Refused, match="2 of the shards of mem0 lie on other nodes"):
        plan_server_create(locate(flags, this_host()), this_host(), str(folder))


@pytest.mark.thorough
def test_what_a_server_keeps_that_dies_over_an_upload_goes_with_the_next_one(
    kept: Kept, folder: Path, start_qdrant: Callable[..., QdrantServer]
) -> None:
    """It keeps the whole upload, under the name of a collection that nobody sees."""
    path = take(kept.install(), folder).path
    server = start_qdrant()
    host = this_host()
    there = locate(Flags(qdrant_url=server.url), host)

    def uploads() -> list[Path]:
        return [one for one in files_in(server.snapshots) if one.name == UPLOADED]

    def kill() -> None:
        end = time.monotonic() + 20
        while not uploads() and time.monotonic() < end:
            time.sleep(0.001)
        server.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    verdict = verify(path, "deep", server=(there, host))
    thread.join()
    assert verdict.not_checked and not verdict.problems
    server.start()
    assert len(uploads()) == 1 and server.collections() == set()
    assert verify(path, "deep", server=(there, host)).good
    assert files_in(server.snapshots) == [] and server.collections() == set()
    assert not (folder / LEFT).exists()


def test_what_cannot_be_removed_stays_noted(folder: Path, qdrant: QdrantServer) -> None:
    name = scratch.base_of("0" * 12)  # of this process: not a dead one's
    qdrant.result("PUT", f"/collections/{name}", {"vectors": {}})
    with (
        Proxy(qdrant.http_port) as proxy,
        Connection(parse_address(proxy.url)) as connection,
        files.snapshot_folder(folder),
    ):
        leftonserver.remember(folder, [(proxy.url, name, None, UPLOADED)])
        proxy.cut(down=0, matching=rf"DELETE /collections/{name}\?")
        (said,) = leftonserver.remove_remembered(folder, connection)
        assert proxy.cuts == 1 and name in said and leftonserver.anything(folder)
        proxy.heal()
        assert leftonserver.remove_remembered(folder, connection) == ()
        assert not leftonserver.anything(folder)
    assert name not in qdrant.collections()


# --- Somebody writes meanwhile ------------------------------------------------------------------------------------


class Writer:
    """Writes points and rows as mem0 does, the point first, without a pause."""

    def __init__(self, server: QdrantServer, log: Path, pause: float = 0.0) -> None:
        self.server, self.log, self.pause = server, log, pause
        self.stop = threading.Event()
        self.count = 0
        self.slowest = 0.0
        self.thread = threading.Thread(target=self.write)

    def write(self) -> None:
        with closing(sqlite3.connect(self.log, isolation_level=None, timeout=5)) as log:
            while not self.stop.wait(self.pause):
                began = time.monotonic()
                memory_id = f"00000000-0000-4000-8000-{self.count:012d}"
                payload = {"data": f"text {self.count}", "user_id": "bob"}
                body = {"points": [{"id": memory_id, "vector": [1.0] * 8, "payload": payload}]}
                self.server.result("PUT", "/collections/mem0/points?wait=true", body)
                log.execute(
                    "INSERT INTO history (id, memory_id, new_memory, event, created_at, is_deleted) "
                    "VALUES (?, ?, ?, 'ADD', '2026-11-30T00:00:00+00:00', 0)",
                    (f"row {self.count}", memory_id, payload["data"]),
                )
                self.count += 1
                self.slowest = max(self.slowest, time.monotonic() - began)

    def __enter__(self) -> Writer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


@pytest.fixture
def written(qdrant: QdrantServer, tmp_path: Path) -> Path:
    """An install for a writer: an empty collection `mem0`, and mem0's log without a row."""
    log = tmp_path / "history.db"
    with closing(sqlite3.connect(log)) as connection:
        connection.execute(
            "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, "
            "created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
        )
    qdrant.result("PUT", "/collections/mem0", {"vectors": {"size": 8, "distance": "Cosine"}})
    return log


def test_one_that_never_holds_still_is_kept_waiting(
    qdrant: QdrantServer, written: Path, folder: Path
) -> None:
    """Its log is held: each point is there with its row, and the writer waited no longer than it may. Of that moment
    both are sealed, so that the next one and an audit explain all that came since."""
    install = locate(Flags(history=str(written), qdrant_url=qdrant.url), this_host())
    with Writer(qdrant, written) as writer:
        done = take(install, folder, ledger=True)
        then = take(install, folder, ledger=True)
    assert writer.count > 5
    for number, taken in enumerate((done, then), 1):
        assert taken.seal is not None and (taken.seal.why, taken.seal.number) == (None, number)
        assert (taken.seal.memories, taken.seal.accepted) == (taken.manifest.counts["memories"], ())
    assert "D310" not in {one.code for one in audit(install, this_host()).findings}
    manifest = done.manifest
    assert manifest.settled
    assert manifest.counts["memories"] == manifest.counts["changes"]
    assert 0 < manifest.longest_hold_s <= pair.LONGEST_HOLD_S + 0.5
    assert "was kept waiting" in taken_text(done, Screen(100))
    assert writer.slowest < pair.LONGEST_HOLD_S + 1
    verdict = verify(done.path, "deep", server=(install, this_host()))
    assert verdict.good and not any(code.startswith(("D", "E")) for code in verdict.findings)


def test_one_that_never_holds_still_and_waits_for_nobody_is_marked(
    qdrant: QdrantServer, written: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(written)) as log:
        log.execute("PRAGMA journal_mode = wal")
    monkeypatch.setattr(seal, "PAUSE_S", 0.02)
    install = locate(Flags(history=str(written), qdrant_url=qdrant.url), this_host())
    with Writer(qdrant, written) as writer:
        done = take(install, folder, ledger=True)
    assert writer.count > 5
    assert done.seal is not None and done.seal.why in (seal.NOT_STILL, "the pair is not settled")
    manifest = done.manifest
    assert not manifest.settled
    assert manifest.unsettled_why is not None
    assert manifest.unsettled_why.startswith("the log, mem0 changed while")
    assert (manifest.counts["memories"], manifest.points_digest) == (None, "")
    assert verify(done.path, "deep", server=(install, this_host())).good


def test_a_write_that_is_logged_late_is_in_both_halves_or_in_none(
    qdrant: QdrantServer, written: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point whose row comes only after both were taken: before, it looks like a fault of the install's own."""
    monkeypatch.setattr(pair.Stillness, "wait", lambda *_: False)
    point = {"id": "00000000-0000-4000-8000-000000000001", "vector": [1.0] * 8}
    body = {"points": [{**point, "payload": {"data": "late", "user_id": "bob"}}]}
    qdrant.result("PUT", "/collections/mem0/points?wait=true", body)

    def logs(step: str) -> None:
        if step == "snapshot.rebuild":
            monkeypatch.setattr(files, "step", lambda _: None)
            with closing(sqlite3.connect(written)) as log, log:
                log.execute(
                    "INSERT INTO history (id, memory_id, new_memory, event, created_at, is_deleted) "
                    "VALUES ('row', ?, 'late', 'ADD', '2026-11-30T00:00:00+00:00', 0)",
                    (point["id"],),
                )

    monkeypatch.setattr(files, "step", logs)
    manifest = take(locate(Flags(history=str(written), qdrant_url=qdrant.url), this_host()), folder).manifest
    assert manifest.settled
    assert (manifest.counts["memories"], manifest.counts["changes"]) == (1, 1)


def test_one_that_pauses_is_settled_and_no_settled_pair_is_torn(
    qdrant: QdrantServer, written: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer with a pause after each write: every pair that calls itself settled has each point with its row."""
    monkeypatch.setattr(serversnapshot, "STILL_WAIT_S", 3.0)
    install = locate(Flags(history=str(written), qdrant_url=qdrant.url), this_host())
    settled = 0
    with Writer(qdrant, written, pause=0.6):
        for _ in range(3):
            done = take(install, folder)
            manifest = done.manifest
            if manifest.settled:
                settled += 1
                assert manifest.counts["memories"] == manifest.counts["changes"]
    assert settled


# --- What goes wrong ------------------------------------------------------------------------------------------------


def test_a_download_that_is_cut_is_begun_anew(kept: Kept, folder: Path) -> None:
    with Proxy(kept.server.http_port) as proxy:
        proxy.cut(down=20_000, times=2, matching=r"GET \S+/snapshots/\S+\.snapshot")
        done = take(kept.install(proxy.url), folder)
        assert proxy.cuts == 2
    assert verify(done.path).good
    assert done.manifest.settled
    assert kept.remote() == []


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        ({"down": 20_000, "matching": r"GET \S+/snapshots/\S+\.snapshot"}, "ended in the middle"),
        (
            {"down": 0, "matching": r"POST \S+/snapshots"},
            "ended in the middle.*; nothing was taken; the server may take it all the same, and keep it: GET "
            r"http://\S+/collections/snapshot-tests/snapshots lists",
        ),
        ({"down": 300, "matching": r"POST \S+/scroll"}, "ended in the middle"),
        ({"up": 10, "matching": r"GET /collections$"}, "ended in the middle"),
    ],
    ids=["download", "taking", "reading", "asking"],
)
def test_a_connection_that_is_cut_publishes_nothing(
    kept: Kept, folder: Path, cut: dict[str, Any], said: str
) -> None:
    with Proxy(kept.server.http_port) as proxy:
        plan = plan_server_create(kept.install(proxy.url), this_host(), str(folder))
        proxy.cut(**cut)
        with pytest.raises(Failed, match=said) as failed:
            create_of_server(plan, this_host(), ledger=False)
        assert "; nothing was taken" in failed.value.message
        assert proxy.cuts
        assert names(folder) == []
        assert [p.name for p in folder.iterdir() if p.is_dir()] == []
        proxy.heal()
        for one in kept.remote():  # the server goes on where its answer is cut: nobody knows of that snapshot
            assert cut["matching"] == r"POST \S+/snapshots", one
            kept.server.result("DELETE", f"/collections/{kept.collection}/snapshots/{one['name']}")
        assert verify(take(kept.install(proxy.url), folder).path).good


def test_a_server_that_dies_half_way(
    kept: Kept, folder: Path, start_qdrant: Callable[..., QdrantServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_qdrant()
    server.result("PUT", "/collections/mem0", {"vectors": {"size": 8, "distance": "Cosine"}})
    install = locate(Flags(history=str(kept.log), qdrant_url=server.url), this_host())
    first = take(install, folder)

    def die(step: str) -> None:
        if step == "server.taken":
            server.kill()

    monkeypatch.setattr(files, "step", die)
    with pytest.raises(
        Failed, match="nothing was taken; the server may still have its own copy, /collections/mem0"
    ):
        take(install, folder)
    monkeypatch.undo()
    assert names(folder) == [Path(first.path).name]
    server.start()
    assert verify(take(install, folder).path).good


STEPS = ("server.taken", "snapshot.download.piece", "snapshot.publish", "snapshot.published")


@pytest.mark.parametrize(
    "name", [STEPS[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in STEPS[1:])]
)
def test_a_kill_at_every_step(kept: Kept, folder: Path, name: str) -> None:
    """Nothing half is ever listed, and the next run removes what lies on the server too."""
    assert killed_at(name, lambda: take(kept.install(), folder)) == -signal.SIGKILL
    there = names(folder)
    assert len(there) == (name == "snapshot.published")
    assert all(verify(str(folder / one)).good for one in there)
    done = take(kept.install(), folder)
    assert verify(done.path, "quick").good
    assert kept.remote() == []
    assert done.notes == ()
    assert len(names(folder)) == len(there) + 1
    assert not [p for p in folder.iterdir() if p.name.startswith(".taking")]


def test_what_a_run_left_that_was_killed_before_it_knew_the_name(kept: Kept, folder: Path) -> None:
    assert killed_at("server.snapshot", lambda: take(kept.install(), folder)) == -signal.SIGKILL
    assert len(kept.remote()) == 1
    assert take(kept.install(), folder).notes == () and kept.remote() == []


@pytest.mark.thorough
def test_what_may_be_somebody_elses_is_told_and_not_removed(kept: Kept, folder: Path) -> None:
    """Two that came since: one was asked for."""
    assert killed_at("server.snapshot", lambda: take(kept.install(), folder)) == -signal.SIGKILL
    path = f"/collections/{kept.collection}/snapshots"
    time.sleep(1.1)  # the name has the second in it
    kept.server.result("POST", path)
    left = {one["name"] for one in kept.remote()}
    time.sleep(1.1)
    done = take(kept.install(), folder)
    assert len(left) == len(done.notes) == 2 and all(any(n in note for note in done.notes) for n in left)
    assert {one["name"] for one in kept.remote()} == left
    for name in left:
        kept.server.result("DELETE", f"{path}/{name}")


def test_a_full_disk_publishes_nothing(kept: Kept, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(step: str) -> None:
        if step == "snapshot.download.piece":
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(files, "step", full)
    with pytest.raises(Failed, match="no space left on device"):
        take(kept.install(), folder)
    monkeypatch.undo()
    assert names(folder) == []
    assert kept.remote() == []
    assert verify(take(kept.install(), folder).path, "quick").good


# --- Compared ---------------------------------------------------------------------------------------------------


def test_what_came_and_went_since(kept: Kept, folder: Path) -> None:
    """A snapshot against the live server and against another snapshot: read in scratch collections."""
    path = take(kept.install(), folder).path
    copy = find_copy(None, path, this_host())
    install = kept.install()
    with pytest.raises(Refused, match="which a server has to read"), lent(copy, None, None):
        pass
    with pytest.raises(Refused, match="which a server has to read"):
        audit_snapshot(copy, this_host())
    with lent(copy, install, None) as then:
        nothing = diff(then, of_live(install, this_host()), this_host())
        assert (nothing.totals["unchanged"], nothing.scopes) == (TEXTS - 1, ())
        memory_id = "00000000-0000-4000-8000-000000000001"
        body = {
            "points": [{"id": memory_id, "vector": [1.0] * 8, "payload": {"data": "new", "user_id": "bob"}}]
        }
        points = f"/collections/{kept.collection}/points"
        kept.server.result("PUT", f"{points}?wait=true", body)
        try:
            (of_bob,) = diff(then, of_live(install, this_host()), this_host(), texts=True).scopes
        finally:
            kept.server.result("POST", f"{points}/delete?wait=true", {"points": [memory_id]})
    ((added,), changed, removed) = (of_bob.added, of_bob.changed, of_bob.removed)
    assert (added.collection, added.memory_id, added.after) == (kept.collection, memory_id, "new")
    assert (changed, removed) == ((), ())
    assert not [name for name in kept.server.collections() if "scratch" in name]


def test_one_from_before_an_erasure_counts_as_holding_it(kept: Kept, taken_once: Taken) -> None:
    erasure = make_erasure(this_host().now, "0" * 32, ("carol", None, None))
    manifest = parse_manifest(Path(taken_once.path, core.MANIFEST).read_bytes())
    assert erased_in(Path(taken_once.path), manifest, [erasure]) == 1
    assert erased_in(Path(taken_once.path), manifest, []) == 0


# --- The manifest -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.update(format=1),
        lambda raw: raw.update(format=3),
        lambda raw: raw.pop("server"),
        lambda raw: raw["server"].update(more=1),
        lambda raw: raw["server"]["collections"].clear(),
        lambda raw: raw["server"]["collections"].append(raw["server"]["collections"][0]),
        lambda raw: raw["server"]["collections"][0].update(path="history.db/../x"),
        lambda raw: raw["server"]["collections"][0].update(name="../x"),
        lambda raw: raw["server"]["collections"][0].update(role="other"),
        lambda raw: raw["server"]["collections"][0].update(points="many"),
        lambda raw: raw["server"]["collections"][0].update(params=[]),
    ],
)
def test_an_odd_manifest_is_one_line(kept: Kept, taken_once: Taken, change: Callable[[Any], Any]) -> None:
    raw = json.loads(core.manifest_text(taken_once.manifest))
    change(raw)
    with pytest.raises(NotAManifest) as said:
        parse_manifest(json.dumps(raw).encode())
    assert "\n" not in str(said.value)


@pytest.fixture(scope="module")
def taken_once(kept: Kept, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    return take(kept.install(), tmp_path_factory.mktemp("once"))


def test_errors_are_ours(kept: Kept, folder: Path) -> None:
    """Nobody listens there: one line, and no folder is made."""
    with pytest.raises(Mem0auditError, match="connection refused") as said:
        take(kept.install("http://127.0.0.1:9"), folder)
    assert said.value.exit_code == 3
    assert not folder.exists()
