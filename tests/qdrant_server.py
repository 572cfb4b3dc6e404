"""A real Qdrant server for tests: the released binary, on loopback, started in about a fifth of a second.

`scripts/qdrant` brings the binary (QDRANT_BIN names another one). Where it cannot be had, a test that wants a server
fails and says why: it is not skipped. Fixtures:

- `qdrant`: the server that all tests of one pytest process share, without keys. The collections that a test made are
  removed after it; what was there before (of a module that built one store for all its tests) stays. A test may
  stop, kill and restart it: the next one finds it running.
- `qdrant_with_keys`: another one, that asks for an API key, shared likewise.
- `start_qdrant(api_key=…, read_only_key=…, environ={…}, arguments=[…])`: one for this test alone.
- `cluster`: three servers that are one cluster, shared likewise, all of them running when a test begins.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parent.parent
_CACHE = os.environ.get("XDG_CACHE_HOME")  # before a test gets one of its own
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
# as an access line of the server's log has it: "GET /collections HTTP/1.1" 200
_REQUEST = re.compile(r'"([A-Z]+) (\S+) HTTP/[0-9.]+" (\d+)')


def binary() -> Path:
    """The server's binary, fetched now if nobody did before; fails the test where it cannot be had."""
    environ = dict(os.environ, HOME=os.environ.get("MEM0AUDIT_TESTS_REAL_HOME", os.environ["HOME"]))
    environ.pop("XDG_CACHE_HOME", None)
    if _CACHE:
        environ["XDG_CACHE_HOME"] = _CACHE
    command = [sys.executable, "-I", str(_ROOT / "scripts/qdrant")]
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"no Qdrant server for this test: {done.stderr.strip()}", pytrace=False)
    return Path(done.stdout.strip())


class QdrantServer:
    """One server process over a folder of its own; `start` after `stop` or `kill` finds the same data again."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        read_only_key: str | None = None,
        environ: dict[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.binary = binary()
        self.api_key = api_key
        self.read_only_key = read_only_key
        self.environ = environ or {}
        self.arguments = list(arguments)
        self.folder = Path(tempfile.mkdtemp(prefix="mem0audit-qdrant-", dir=_quick_place()))
        self.storage = self.folder / "storage"
        self.snapshots = self.folder / "snapshots"
        self.log = self.folder / "log"
        # the server writes as an ordinary user: as nobody where the tests run as root
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        for place in (self.storage, self.snapshots):
            place.mkdir()
        if self._user:
            for place in (self.folder, self.storage, self.snapshots):
                os.chown(place, self._user.pw_uid, self._user.pw_gid)
        self.http_port = 0
        self.grpc_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it and waits until it answers; on the ports it had before, if it had some."""
        assert not self.running
        for _ in range(5):
            if not self.http_port or not (_is_free(self.http_port) and _is_free(self.grpc_port)):
                self.http_port, self.grpc_port = _free_ports(2)
            if self._started():
                return
        pytest.fail(f"the Qdrant server does not start:\n{self.log_text()[-2000:]}", pytrace=False)

    def _started(self) -> bool:
        environ = {
            "PATH": os.environ.get("PATH", ""),
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(self.http_port),
            "QDRANT__SERVICE__GRPC_PORT": str(self.grpc_port),
            "QDRANT__STORAGE__STORAGE_PATH": str(self.storage),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self.snapshots),
            "QDRANT__TELEMETRY_DISABLED": "true",
            # 32 MB otherwise, written for every collection that is made or put back
            "QDRANT__STORAGE__WAL__WAL_CAPACITY_MB": "1",
            "QDRANT__STORAGE__OPTIMIZERS__DEFAULT_SEGMENT_NUMBER": "1",
        }
        if self.api_key:
            environ["QDRANT__SERVICE__API_KEY"] = self.api_key
        if self.read_only_key:
            environ["QDRANT__SERVICE__READ_ONLY_API_KEY"] = self.read_only_key
        options: dict[str, Any] = {}
        if self._user:
            options = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        # by descriptor: the cache folder of root is closed to the user that runs it
        program = os.open(self.binary, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    ["qdrant", "--disable-telemetry", *self.arguments],
                    executable=f"/proc/self/fd/{program}",
                    pass_fds=[program],
                    cwd=self.folder,
                    env=environ | self.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # dies with the tests
                    **options,
                )
        finally:
            os.close(program)
        deadline = time.monotonic() + 30
        while self.running and time.monotonic() < deadline:
            try:
                status, _ = self.request("GET", "/readyz")
            except OSError:
                status = 0
            if status == 200:
                return True
            time.sleep(0.01)
        self.kill()
        return False

    def stop(self) -> None:
        """Ends it as an administrator would: SIGTERM, and SIGKILL where it waits for an open connection (for 30 s)."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Ends it as a power cut would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def freeze(self) -> None:
        """Keeps it from answering (SIGSTOP), until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Kills it and removes its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def request(
        self, method: str, path: str, body: object = None, *, key: str | None = None
    ) -> tuple[int, Any]:
        """One call over REST, with the full key unless told otherwise: status, and the JSON (or text) of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        headers = {"content-type": "application/json"} if body is not None else {}
        if key is None:
            key = self.api_key
        if key:
            headers["api-key"] = key
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            raw = answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode(errors="replace")

    def result(self, method: str, path: str, body: object = None) -> Any:
        """What `result` holds in the answer of a call that must succeed."""
        status, answer = self.request(method, path, body)
        assert status == 200, (status, answer)
        return answer["result"]

    def collections(self) -> set[str]:
        return {found["name"] for found in self.result("GET", "/collections")["collections"]}

    def log_text(self) -> str:
        """What it printed so far, over all its starts."""
        return self.log.read_text(errors="replace")

    def requests(self, since: int = 0) -> list[tuple[str, str, int]]:
        """The REST calls in its log from byte `since` on (the length of `log_text()` before): method, path, status.

        A line is written when its answer is complete; a call that was just answered may lack for some milliseconds.
        """
        return [(verb, path, int(status)) for verb, path, status in _REQUEST.findall(self.log_text()[since:])]


class QdrantCluster:
    """Three servers on loopback that are one cluster; each may be stopped, killed and started again."""

    def __init__(self, count: int = 3) -> None:
        first, *others = _free_ports(count)
        common = {
            "QDRANT__CLUSTER__ENABLED": "true",
            # a tenth of a second otherwise: an election and every change of a collection take some of them
            "QDRANT__CLUSTER__CONSENSUS__TICK_PERIOD_MS": "10",
        }
        self.nodes: list[QdrantServer] = []
        for port in (first, *others):
            joins = [] if port == first else ["--bootstrap", f"http://127.0.0.1:{first}"]
            self.nodes.append(
                QdrantServer(
                    environ={**common, "QDRANT__CLUSTER__P2P__PORT": str(port)},
                    arguments=["--uri", f"http://127.0.0.1:{port}", *joins],
                )
            )

    def __getitem__(self, number: int) -> QdrantServer:
        return self.nodes[number]

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def start(self) -> None:
        """Starts every node that does not run, and waits until all of them know each other and agree."""
        for node in self.nodes:
            if not node.running:
                node.start()
            node.thaw()
        _until(self._agrees, "the nodes do not become one cluster")

    def _agrees(self) -> bool:
        said = [node.result("GET", "/cluster") for node in self.nodes]
        if any(len(one["peers"]) != len(self.nodes) for one in said):
            return False
        leaders = {(one["raft_info"]["leader"], one["raft_info"]["commit"]) for one in said}
        if len(leaders) != 1 or leaders.pop()[0] is None:
            return False
        # a node keeps to itself for a moment that another was away: every copy must answer through every node
        return all(
            node.request("POST", f"/collections/{name}/points/scroll?consistency=all", {"limit": 1})[0] == 200
            for node in self.nodes
            for name in node.collections()
        )

    def make(self, name: str, *, shards: int = 6, replicas: int = 2, dims: int = 8) -> None:
        """A collection as mem0 makes one, but for shards and replicas; there on every node when this returns."""
        self.nodes[0].result(
            "PUT",
            f"/collections/{name}?timeout=30",
            {
                "vectors": {"size": dims, "distance": "Cosine"},
                "sparse_vectors": {"bm25": {"modifier": "idf"}},
                "shard_number": shards,
                "replication_factor": replicas,
            },
        )
        self.settle(name)

    def settle(self, name: str) -> None:
        """Waits until every node says of a collection that all copies of all its shards are active."""

        def active() -> bool:
            for node in self.nodes:
                status, said = node.request("GET", f"/collections/{name}/cluster")
                if status != 200:
                    return False
                found = said["result"]
                states = {one["state"] for one in (*found["local_shards"], *found["remote_shards"])}
                if states != {"Active"} or found["shard_transfers"]:
                    return False
            return True

        _until(active, f"{name} does not become whole")

    def drop(self, names: Collection[str]) -> None:
        """Removes collections, until no node has one of them: what a process that was killed had asked for may be made
        a moment later."""

        def gone() -> bool:
            left = {name for node in self.nodes for name in node.collections()}.intersection(names)
            for name in left:
                self.nodes[0].request("DELETE", f"/collections/{name}?timeout=30")
            return not left

        _until(gone, "collections do not go")

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


def _until(true: Callable[[], bool], otherwise: str, most_s: float = 30.0) -> None:
    end = time.monotonic() + most_s
    while not true():
        if time.monotonic() > end:
            pytest.fail(otherwise, pytrace=False)
        time.sleep(0.02)


def _quick_place() -> str | None:
    """In memory where there is room: a server that is killed loses nothing by that, and no disk is waited for."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return None
    return "/dev/shm" if room.f_bavail * room.f_frsize > 1 << 30 and os.access("/dev/shm", os.W_OK) else None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _shared(server: QdrantServer) -> Iterator[QdrantServer]:
    """The server for one test; removes the collections that the test made."""
    if not server.running:
        server.start()
    before = server.collections()
    yield server
    if not server.running:
        server.start()
    for name in server.collections() - before:
        server.result("DELETE", f"/collections/{name}")


@pytest.fixture(scope="session")
def qdrant_process() -> Iterator[QdrantServer]:
    """The shared server without keys, for what a module builds once (in collections of names of its own)."""
    server = QdrantServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def qdrant_keyed_process() -> Iterator[QdrantServer]:
    """The shared server with keys."""
    server = QdrantServer(api_key="the-full-key", read_only_key="the-read-only-key")
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def qdrant(qdrant_process: QdrantServer) -> Iterator[QdrantServer]:
    """The shared server without keys; the collections that the test makes go after it."""
    yield from _shared(qdrant_process)


@pytest.fixture
def qdrant_with_keys(qdrant_keyed_process: QdrantServer) -> Iterator[QdrantServer]:
    """The shared server that asks for a key: `api_key` may do everything, `read_only_key` may look."""
    yield from _shared(qdrant_keyed_process)


@pytest.fixture
def start_qdrant() -> Iterator[Callable[..., QdrantServer]]:
    """`start_qdrant(api_key=…, read_only_key=…, environ=…)`: a server for this test alone, started."""
    started: list[QdrantServer] = []

    def start(**options: Any) -> QdrantServer:
        server = QdrantServer(**options)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.remove()


@pytest.fixture(scope="session")
def cluster_processes() -> Iterator[QdrantCluster]:
    """The shared cluster, for what a module builds once (in collections of names of its own)."""
    made = QdrantCluster()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture
def cluster(cluster_processes: QdrantCluster) -> Iterator[QdrantCluster]:
    """The shared cluster, whole; the collections that the test makes go after it."""
    made = cluster_processes
    made.start()
    before = made[0].collections()
    yield made
    made.start()
    made.drop({name for node in made.nodes for name in node.collections()} - before)
