"""Vectors that move to a real Qdrant server: the same points there, whatever cuts it off, and the folder as it was."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import stat
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import Failed, Mem0auditError, Refused, ServerProblem
from mem0audit.core.model import Install, Origin
from mem0audit.core.scopes import Scope
from mem0audit.core.server import Secret, ServerAddress, parse_address
from mem0audit.core.toserver import ToServerDone
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from mem0audit.operations.carrying import FromServer
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.residue import residue
from mem0audit.operations.status import status
from mem0audit.operations.tofolder import apply_to_folder, plan_to_folder
from mem0audit.operations.toserver import apply_to_server, plan_to_server
from mem0audit.stores import serverpoints
from mem0audit.stores.mem0api import Mem0Worker, ServerAccess
from mem0audit.stores.pickles import PointVectors, WholePoint
from mem0audit.stores.server import Connection
from mem0audit.stores.serversnapshots import read_digest
from tests.builders import RawPoints, copy_store
from tests.operations.test_restore import agent, in_child, undisturbed
from tests.operations.test_snapshot import installed, scrolled, tree
from tests.qdrant_server import QdrantServer


def move(
    store: Any, address: ServerAddress, key: Secret | None = None, *, ledger: bool = False
) -> ToServerDone:
    install, host = installed(store), this_host()

    def work() -> ToServerDone:
        plan = plan_to_server(install, host, address, key, ledger=ledger)
        return apply_to_server(plan, host, address, key)

    return undisturbed(work)


def on_server(qdrant: QdrantServer, name: str) -> dict[str, tuple[Any, Any]]:
    body = {"limit": 10_000, "with_payload": True, "with_vector": True}
    found = qdrant.result("POST", f"/collections/{name}/points/scroll", body)["points"]
    return {str(p["id"]): (p.get("payload"), p["vector"]) for p in found}


def dense_of(vector: Any) -> list[float]:
    return vector[""] if isinstance(vector, dict) else vector  # type: ignore[no-any-return]


def check_same(qdrant: QdrantServer, was: dict[str, dict[str, Any]]) -> None:
    """By another reader of the folder than ours, and another of the server."""
    for name, points in was.items():
        there = on_server(qdrant, name)
        assert there.keys() == points.keys()
        for one, (payload, vector) in points.items():
            assert there[one][0] == payload
            dense, got = dense_of(vector), dense_of(there[one][1])
            length = math.hypot(*dense)
            assert math.dist([x / length for x in dense], got) < 1e-6


def test_every_point_is_on_the_server(qdrant: QdrantServer, tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path)
    points, before = scrolled(store.vectors, tmp_path / "scrolled"), tree(store.vectors)
    done = move(store, parse_address(qdrant.url))
    assert done.written == {"mem0": 19, "mem0_entities": 10} and not any(done.found.values())
    check_same(qdrant, points)
    after = tree(store.vectors)
    after.pop(".lock", None), before.pop(".lock", None)
    assert after == before
    assert sorted(p.name for p in store.mem0_dir.iterdir()) == ["config.json", "history.db"]
    with pytest.raises(Refused, match="a collection mem0 with 19 points already: only what a move"):
        move(store, parse_address(qdrant.url))


def test_it_is_as_mem0_would_make_it_and_mem0_works_on_it(qdrant: QdrantServer, tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path)
    was = scrolled(store.vectors, tmp_path / "scrolled")["mem0"]
    move(store, parse_address(qdrant.url))
    made = qdrant.result("GET", "/collections/mem0")
    entities = qdrant.result("GET", "/collections/mem0_entities")
    server = ServerAccess(qdrant.url)
    arguments = (str(store.history), qdrant.url, "mem0", str(tmp_path), 8)
    with Mem0Worker(sys.executable, *arguments, server=server, embedder="offline") as memory:
        mine = next(i for i, (payload, _) in was.items() if payload.get("user_id") == "alice")
        assert memory.get(mine)["memory"] == was[mine][0]["data"]  # type: ignore[index]
        added = memory.add("Alice plays the oboe", {"user_id": "alice"})
        assert memory.search("Alice plays the oboe", {"user_id": "alice"})[0]["id"] == added
        memory.update(added, "Alice plays the flute")
        assert memory.delete(mine) and [row["event"] for row in memory.history(added)] == ["ADD", "UPDATE"]
        memory.reset()
        fresh = qdrant.result("GET", "/collections/mem0")
    for one in (made, entities):
        assert one["config"] == fresh["config"]
        assert (
            one["payload_schema"].keys() == fresh["payload_schema"].keys() == set(serverpoints.OWNER_FIELDS)
        )


# --- cut off ---------------------------------------------------------------------------------------------


@contextmanager
def cutting(port: int, after: int) -> Iterator[ServerAddress]:
    """A way to the server that is cut for good when so many bytes were sent through it."""
    left = [after]

    def carry(source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError), closing(source), closing(target):
            while data := source.recv(512):
                if counted:
                    left[0] -= len(data)
                    if left[0] < 0:
                        break
                target.sendall(data)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                if left[0] < 0:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", port))
                threading.Thread(target=carry, args=(client, server, True), daemon=True).start()
                threading.Thread(target=carry, args=(server, client, False), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield ServerAddress("http", "127.0.0.1", listener.getsockname()[1])
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.thorough
def test_cut_off_it_goes_on(qdrant: QdrantServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection, at many places; and the process, at each of its requests."""
    store = copy_store("2.2.1-nlp", tmp_path)
    points = scrolled(store.vectors, tmp_path / "scrolled")
    monkeypatch.setattr(serverpoints, "AT_ONCE", 4)
    address = parse_address(qdrant.url)
    cut = 0
    for after in range(3000, 40_000, 3000):
        with cutting(qdrant.http_port, after) as way:
            # the mark has the address that was asked for: the same command is what goes on
            monkeypatch.setattr(Connection, "_connected", through(way, address))
            try:
                move(store, address)
            except (Failed, ServerProblem) as problem:
                cut += 1
                assert (
                    "as it was" in problem.message
                    or not (store.mem0_dir / ".history.db.mem0audit-to-server").exists()
                )
            else:
                break
            finally:
                monkeypatch.undo()
                monkeypatch.setattr(serverpoints, "AT_ONCE", 4)
    else:
        move(store, address)
    assert cut > 3
    check_same(qdrant, points)


def through(way: ServerAddress, asked: ServerAddress) -> Callable[..., Any]:
    """Connections to `asked` go through `way`."""
    real = Connection._connected

    def connected(self: Connection, timeout: float) -> Any:
        was, self.address = self.address, way if self.address == asked else self.address
        try:
            return real(self, timeout)
        finally:
            self.address = was

    return connected


def test_killed_at_any_request_it_goes_on(
    qdrant: QdrantServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store("2.2.1-nlp", tmp_path)
    points = scrolled(store.vectors, tmp_path / "scrolled")
    monkeypatch.setattr(serverpoints, "AT_ONCE", 4)
    address = parse_address(qdrant.url)
    real, found = Connection.send, 0
    killed = 0

    def dying(number: int) -> Callable[[], int]:
        def child() -> int:
            asked = 0

            def send(self: Connection, *arguments: Any, **named: Any) -> None:
                nonlocal asked
                asked += 1
                if asked == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                real(self, *arguments, **named)

            Connection.send = send  # type: ignore[method-assign]
            move(store, address)
            return 0

        return child

    for number in range(12, 80, 6):
        if in_child(dying(number)) != -signal.SIGKILL:
            break
        killed += 1
    else:
        found = sum(move(store, address).found.values())
        assert found
    assert killed > 3
    check_same(qdrant, points)


def test_the_server_killed_meanwhile(
    start_qdrant: Callable[..., QdrantServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store("2.2.1-nlp", tmp_path)
    points = scrolled(store.vectors, tmp_path / "scrolled")
    server = start_qdrant()
    monkeypatch.setattr(serverpoints, "AT_ONCE", 4)
    real = serverpoints.Carrier.take

    def take(self: serverpoints.Carrier, points: Any) -> None:
        real(self, points)
        if self.written >= 8:
            server.kill()

    with monkeypatch.context() as patch:
        patch.setattr(serverpoints.Carrier, "take", take)
        with pytest.raises(Failed, match="the old store is as it was") as problem:
            move(store, parse_address(server.url))
    assert "the same command goes on where it was" in str(problem.value.hint)
    server.start()
    done = move(store, parse_address(server.url))
    assert done.plan.resumed is not None and done.found["mem0"] >= 8
    check_same(server, points)


# --- refused ---------------------------------------------------------------------------------------------


def test_what_a_server_does_not_take_is_named(qdrant: QdrantServer, tmp_path: Path) -> None:
    odd: list[tuple[Any, dict[str, Any], str]] = [
        ("no-uuid", {"data": "x"}, "its id is neither a UUID nor a number"),
        (-1, {"data": "x"}, "its id is neither a UUID nor a number"),
        (1, {"data": "half \ud800"}, "half a character"),
        (2, {"data": "x", "n": float("nan")}, "a number that is none"),
        (3, {"data": "x", "n": 1 << 70}, "a number of more than 64 bits"),
    ]
    for number, (point_id, payload, why) in enumerate(odd):
        store = copy_store("2.2.1", tmp_path / str(number))
        RawPoints(store.vectors).put(point_id, payload)
        with pytest.raises(Refused, match=why) as problem:
            move(store, parse_address(qdrant.url))
        assert str(point_id) in problem.value.message
    assert not qdrant.collections()


def test_it_is_refused_while_the_agent_runs(qdrant: QdrantServer, tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    with agent(store), pytest.raises(Refused, match="is in use by"):
        move(store, parse_address(qdrant.url))
    assert not qdrant.collections()


def test_another_kind_of_collection_is_refused(qdrant: QdrantServer, tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    qdrant.result("PUT", "/collections/mem0", {"vectors": {"size": 16, "distance": "Cosine"}})
    with pytest.raises(Refused, match="of another kind"):
        move(store, parse_address(qdrant.url))


def test_an_alias_is_no_collection_to_move_to(qdrant: QdrantServer, tmp_path: Path) -> None:
    """mem0 does not start on one: it does not see it, and the server makes no collection of that name."""
    qdrant.result("PUT", "/collections/else", {"vectors": {"size": 8, "distance": "Cosine"}})
    alias = {"create_alias": {"collection_name": "else", "alias_name": "mem0"}}
    qdrant.result("POST", "/collections/aliases", {"actions": [alias]})
    with pytest.raises(Refused, match="an alias mem0, of else: mem0 does not start on one"):
        move(copy_store("2.2.1-nlp", tmp_path), parse_address(qdrant.url))
    assert on_server(qdrant, "else") == {}


STRICT = {
    "enabled": True,
    "max_query_limit": 7,
    "upsert_max_batchsize": 5,
    "search_allow_exact": False,
    "unindexed_filtering_retrieve": False,
    "unindexed_filtering_update": False,
}
"""Every limit of strict mode that is not of time or size, tighter than any managed server's."""


def test_a_collection_in_strict_mode(qdrant: QdrantServer, tmp_path: Path) -> None:
    """It is asked for fewer points, and given fewer, than it takes at once."""
    store = copy_store("2.2.1-nlp", tmp_path)
    install, host, address = installed(store), this_host(), parse_address(qdrant.url)
    for one in scrolled(store.vectors, tmp_path / "scrolled"):
        body = {"vectors": {"size": 8, "distance": "Cosine"}, "sparse_vectors": {"bm25": {"modifier": "idf"}}}
        qdrant.result("PUT", f"/collections/{one}", {**body, "strict_mode_config": STRICT})
    plan = plan_to_server(install, host, address, None, ledger=False)
    done = apply_to_server(plan, host, address, None)
    with Connection(address) as connection:
        assert len(serverpoints.ids_in(connection, "mem0")) == done.written["mem0"] > 7
        assert len(serverpoints.digests(connection, "mem0")) == done.written["mem0"]
        assert read_digest(connection, "mem0").count == done.written["mem0"]
        with pytest.raises(ServerProblem) as caught:
            connection.post("/collections/mem0/points/count", {"exact": True})
        assert "strict mode" in str(caught.value.hint)
    was = scrolled(store.vectors, tmp_path / "again")
    for one in was:
        qdrant.result("PATCH", f"/collections/{one}", {"strict_mode_config": {"enabled": False}})
    check_same(qdrant, was)


def test_points_that_came_meanwhile_are_no_others_to_lose(
    qdrant: QdrantServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that writes to the server already: its memories stay, and it is said."""
    store = copy_store("2.2.1", tmp_path)
    real = serverpoints.Carrier.end

    def end(self: serverpoints.Carrier) -> None:
        real(self)
        body = {"points": [{"id": 7, "vector": [0.1] * 8, "payload": {"data": "new"}}]}
        qdrant.result("PUT", "/collections/mem0/points?wait=true", body)

    with monkeypatch.context() as patch:
        patch.setattr(serverpoints.Carrier, "end", end)
        with pytest.raises(Refused, match="has 1 points that the old store does not have"):
            move(store, parse_address(qdrant.url))
    assert "7" in on_server(qdrant, "mem0")


def test_the_key_is_told_to_nobody(qdrant_with_keys: QdrantServer, tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    address = parse_address(qdrant_with_keys.url)
    for key in (None, "wrong", qdrant_with_keys.read_only_key):
        with pytest.raises(Mem0auditError) as problem:
            move(store, address, None if key is None else Secret(key))
        assert key is None or key not in problem.value.message
        assert "--to-api-key-env" in (problem.value.hint or "")
    done = move(store, address, Secret(qdrant_with_keys.api_key or ""))
    assert sum(done.written.values()) == 19
    assert qdrant_with_keys.api_key not in repr(done)
    with pytest.raises(Refused, match="19 points already") as problem:
        apply_to_server(
            plan_to_server(
                installed(store), this_host(), address, Secret(qdrant_with_keys.api_key or ""), key_from="$K"
            ),
            this_host(),
            address,
        )
    there = f"--history {store.history} --qdrant-url {address.url} --api-key-env K"
    assert f"mem0audit audit {there}" in (problem.value.hint or "")


def test_each_server_gets_its_own_key_and_the_seals_hear_of_the_move(
    qdrant: QdrantServer,
    qdrant_with_keys: QdrantServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mem0audit.operations.audit import audit
    from mem0audit.operations.ledger import opened

    store, host, key = copy_store("2.2.1", tmp_path), this_host(), Secret(qdrant_with_keys.api_key or "")
    assert audit(installed(store), host, ledger=True, seal=True).seal is not None
    sent: set[tuple[str, bool]] = set()
    real = Connection._put_head

    def put_head(self: Connection, *arguments: Any) -> None:
        sent.add((self.address.url, self._key is not None))
        real(self, *arguments)

    monkeypatch.setattr(Connection, "_put_head", put_head)
    assert move(store, parse_address(qdrant_with_keys.url), key, ledger=True).warnings == ()
    keyed = replace(on(qdrant_with_keys, store), server_key=key, server_key_from="$K")
    address = parse_address(qdrant.url)
    assert apply_to_server(plan_to_server(keyed, host, address), host, address).warnings == ()
    assert sent == {(qdrant_with_keys.url, True), (qdrant.url, False)}
    with opened(on(qdrant, store), host) as book:
        assert [seal.kind for seal in book.seals()] == ["seal", "relocate", "relocate"]  # type: ignore[union-attr]


def test_large_payloads_go_in_several_requests(
    qdrant: QdrantServer,
    start_qdrant: Callable[..., QdrantServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server takes 32 MB a request, and we 256 MB an answer."""
    store = copy_store("2.2.1", tmp_path)
    raw = RawPoints(store.vectors)
    for number in range(12):
        raw.put(number, {"data": f"{number} " * 2000, "user_id": "alice"})
    sizes: list[int] = []
    real = Connection.send

    def send(self: Connection, method: str, path: str, body: Any, *more: Any) -> None:
        sizes.append(len(body) if isinstance(body, bytes) else 0)
        real(self, method, path, body, *more)

    monkeypatch.setattr(Connection, "send", send)
    monkeypatch.setattr(serverpoints, "REQUEST_BYTES", 20_000)
    monkeypatch.setattr("mem0audit.stores.server.MOST_ANSWER", 40_000)
    monkeypatch.setattr("mem0audit.stores.serverpoints.at_once", lambda _dims: 256)
    move(store, parse_address(qdrant.url))
    other = start_qdrant()
    host, address = this_host(), parse_address(other.url)
    apply_to_server(plan_to_server(on(qdrant, store), host, address, ledger=False), host, address)
    assert on_server(other, "mem0") == on_server(qdrant, "mem0") and len(on_server(other, "mem0")) == 31
    assert 10_000 < max(sizes) < 21_000


def test_a_server_that_refuses_a_request_as_too_large_says_so(qdrant: QdrantServer) -> None:
    with Connection(parse_address(qdrant.url)) as connection:
        body = b'{"points":[' + b" " * (33 << 20) + b"]}"
        connection.send("PUT", "/collections/none/points", body)
        with pytest.raises(ServerProblem, match="larger than allowed"):
            connection.receive()


def test_the_limits_of_strict_mode_are_kept_to(
    qdrant: QdrantServer, start_qdrant: Callable[..., QdrantServer], tmp_path: Path
) -> None:
    """Those that a server gives every new collection, as a hosted one does."""
    store = copy_store("2.2.1-nlp", tmp_path)
    points = scrolled(store.vectors, tmp_path / "scrolled")
    strict = "QDRANT__STORAGE__COLLECTION__STRICT_MODE__"
    limits = {"ENABLED": "true", "MAX_QUERY_LIMIT": "4", "UPSERT_MAX_BATCHSIZE": "3"}
    server = start_qdrant(environ={strict + name: value for name, value in limits.items()})
    move(store, parse_address(server.url))
    host, address = this_host(), parse_address(qdrant.url)
    apply_to_server(plan_to_server(on(server, store), host, address, ledger=False), host, address)
    check_same(qdrant, points)


def test_a_server_that_limits_writes_is_waited_for(qdrant: QdrantServer) -> None:
    strict = {"enabled": True, "read_rate_limit": 2, "write_rate_limit": 2}
    qdrant.result(
        "PUT",
        "/collections/slow",
        {"vectors": {"size": 8, "distance": "Cosine"}, "strict_mode_config": strict},
    )
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        limits = {"write_rate_limit": 1000} if len(waited) == 1 else {"read_rate_limit": 1000}
        qdrant.result("PATCH", "/collections/slow", {"strict_mode_config": strict | limits})

    points = [WholePoint(i, {"data": str(i)}, PointVectors([0.5] * 8)) for i in range(9)]
    address = parse_address(qdrant.url)
    with Connection(address) as writing, Connection(address) as reading:
        carrier = serverpoints.Carrier(writing, reading, "slow", "Cosine", pause=pause)
        for point in points:
            carrier.take([point])
        carrier.end()
        assert serverpoints.ids_in(reading, "slow") == set(range(9))
    assert carrier.written == 9 and len(waited) >= 2 and waited[0] == 1.0


def test_a_move_elsewhere_names_the_one_that_was_cut_off(
    qdrant: QdrantServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store("2.2.1", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(serverpoints.Carrier, "end", lambda self: (_ for _ in ()).throw(Failed("cut off")))
        with pytest.raises(Failed):
            move(store, parse_address(qdrant.url))
    host, there = this_host(), parse_address(qdrant.url)
    assert plan_to_server(installed(store), host, there, ledger=False).resumed is not None
    assert_told(store, there.url)
    other = replace(there, host="localhost")
    for name in qdrant.collections():
        qdrant.result("DELETE", f"/collections/{name}")
    plan = plan_to_server(installed(store), host, other, ledger=False)
    assert plan.resumed is None
    assert f"A move to {there.url} was cut off; what it put there stays, in mem0" in plan.warnings[0]


def assert_told(store: Any, url: str) -> None:
    """What lies on a server that nobody uses is told wherever somebody looks."""
    install, host = installed(store), this_host()
    (left,) = status(install, host, ledger=False).left_moves
    words = f"--history {store.history} --qdrant-path {store.vectors} --to-url {url}"
    assert (left.to, left.command) == (url, f"mem0audit relocate {words}")
    report = audit(install, host, ledger=False, left_moves=(left,))
    (told,) = (one for one in report.findings if one.code == "B906")
    assert told.evidence["move to"] == url and "lies there" in str(told.evidence["then"])
    refuse_left_moves(install, host)  # it is in nobody's way
    found = residue(install, host, scope=Scope("alice"), ledger=False)
    assert any(one.what == url and "what it carried lies there" in one.why for one in found.not_searched)


# --- from a server -----------------------------------------------------------------------------------------


def on(qdrant: QdrantServer, store: Any) -> Install:
    """The install with its vectors on the server."""
    where = Origin(qdrant.url, "--qdrant-url")
    return replace(installed(store), vectors=None, server_url=where, agent_python=sys.executable)


def back(qdrant: QdrantServer, store: Any, to: Path) -> ToServerDone:
    plan = plan_to_folder(on(qdrant, store), this_host(), str(to), ledger=False)
    return apply_to_folder(plan, this_host())


def test_from_a_server_to_a_folder_and_to_another_server(
    qdrant: QdrantServer, start_qdrant: Callable[..., QdrantServer], durable: Path, tmp_path: Path
) -> None:
    from qdrant_client.http.models import SparseVector

    store = copy_store("2.2.1-nlp", tmp_path)
    raw = RawPoints(store.vectors)
    keywords = SparseVector(indices=[9, 2, 5], values=[0.5, 1.25, 0.1])
    raw.put(
        7, {"data": "seven", "none": None, "deep": {"a": [1, 2.5, True]}}, {"": [0.3] * 8, "bm25": keywords}
    )
    move(store, parse_address(qdrant.url))
    sparse = on_server(qdrant, "mem0")["7"][1]["bm25"]
    assert dict(zip(sparse["indices"], sparse["values"], strict=True)) == {2: 1.25, 5: 0.1, 9: 0.5}
    was = {name: on_server(qdrant, name) for name in ("mem0", "mem0_entities")}
    to = durable / "srv/qdrant"
    done = back(qdrant, store, to)
    assert done.written == {"mem0": 20, "mem0_entities": 10}
    assert sorted(path.name for path in to.parent.iterdir()) == ["qdrant"]
    assert stat.S_IMODE(to.stat().st_mode) == 0o700
    for name, points in scrolled(to, tmp_path / "scrolled").items():
        assert points.keys() == was[name].keys()
        for one, (payload, vector) in points.items():
            assert payload == was[name][one][0]
            dense = was[name][one][1]
            assert math.dist(dense_of(vector), dense_of(dense)) < 1e-6
    for place in (to, str(tmp_path / "2.2.1-nlp")):
        with pytest.raises(Refused):
            back(qdrant, store, Path(place))
    assert {name: on_server(qdrant, name) for name in was} == was
    # and to another server, from this one
    other = start_qdrant()
    install, address, host = on(qdrant, store), parse_address(other.url), this_host()
    with pytest.raises(Refused, match="are there already"):
        plan_to_server(install, host, parse_address(qdrant.url), ledger=False)
    in_place = {"vectors": {"": {"on_disk": True}}}
    qdrant.result("PATCH", "/collections/mem0", in_place)
    apply_to_server(plan_to_server(install, host, address, ledger=False), host, address)
    for name, points in was.items():
        kept = other.result("GET", f"/collections/{name}")["config"]["params"]["vectors"]
        assert kept == {"size": 8, "distance": "Cosine", "on_disk": name == "mem0"}
        there = on_server(other, name)
        assert {i: p for i, (p, _) in there.items()} == {i: p for i, (p, _) in points.items()}


def test_a_server_that_is_written_to_is_put_nowhere(
    qdrant: QdrantServer, durable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store("2.2.1", tmp_path)
    move(store, parse_address(qdrant.url))
    real = Mem0Worker.put_points

    def put(self: Mem0Worker, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        point = {"id": 7, "vector": [0.1] * 8, "payload": {"data": "x"}}
        qdrant.result("PUT", "/collections/mem0/points?wait=true", {"points": [point]})

    to = durable / "qdrant"
    with monkeypatch.context() as patch:
        patch.setattr(Mem0Worker, "put_points", put)
        with pytest.raises(Failed, match="was written to meanwhile; nothing was put in place"):
            back(qdrant, store, to)
    assert not list(durable.iterdir())

    def dying() -> int:
        Mem0Worker.put_points = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign,assignment]
        back(qdrant, store, to)
        return 0

    assert in_child(dying) == -signal.SIGKILL
    assert not to.exists()
    assert back(qdrant, store, to).written == {"mem0": 20}
    assert [path.name for path in durable.iterdir()] == ["qdrant"]


def test_a_server_that_is_written_to_is_named_as_the_reason(
    qdrant: QdrantServer,
    start_qdrant: Callable[..., QdrantServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever comes of it: a point too many there, one too few, or another text."""
    store = copy_store("2.2.1", tmp_path)
    move(store, parse_address(qdrant.url))
    some = next(iter(on_server(qdrant, "mem0")))
    point = {"id": 7, "vector": [0.1] * 8, "payload": {"data": "x"}}
    path = "/collections/mem0/points"
    writes = (
        ("PUT", f"{path}?wait=true", {"points": [point]}),
        ("POST", f"{path}/payload?wait=true", {"points": [some], "payload": {"data": "x"}}),
        ("POST", f"{path}/delete?wait=true", {"points": [some]}),
    )
    other = start_qdrant()
    host, address, real = this_host(), parse_address(other.url), FromServer.carry
    for write in writes:

        def carry(self: FromServer, *more: Any, write: Any = write) -> None:
            qdrant.result(*write)
            real(self, *more)

        plan = plan_to_server(on(qdrant, store), host, address, ledger=False)
        with monkeypatch.context() as patch:
            patch.setattr(FromServer, "carry", carry)
            with pytest.raises(Failed, match="was written to meanwhile: stop what writes to it"):
                apply_to_server(plan, host, address)


@pytest.mark.parametrize("quick", [False, True], ids=["json", "orjson"])
def test_floats_are_written_so_that_32_bits_read_back_the_same(
    monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    if not quick:
        monkeypatch.setattr(serverpoints, "dumps", None)
    vector = [0.1, -1 / 3, 1e-30, 0.0, 16777217.0, 3.4e38, 1.5e-8]
    point = WholePoint(7, {"data": 'ä\n"quoted"'}, PointVectors(vector, ([3, 1], [0.5, 1e-9])))
    body = json.loads(serverpoints.body_of([serverpoints.text_of(point)]))
    (sent,) = body["points"]
    assert array("f", sent["vector"][""]) == array("f", vector)
    assert (sent["id"], sent["payload"]) == (7, point.payload)
    assert sent["vector"]["bm25"] == {"indices": [3, 1], "values": [0.5, 1e-9]}
