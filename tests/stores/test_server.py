"""The connection to a server: real ones that refuse, and others that are no Qdrant at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import ServerProblem, UsageProblem
from mem0audit.core.server import Secret, ServerAddress, parse_address
from mem0audit.stores import server as module
from mem0audit.stores.server import Connection, collection_path
from tests.qdrant_server import QdrantServer
from tests.tcp_proxy import Proxy

KEY = "a-key-that-nobody-may-see"
TLS = Path(__file__).parents[1] / "data" / "tls"


class Answering:
    """Listens, reads a request, and answers each connection with the same bytes; what it was told is in `heard`."""

    def __init__(self, answer: bytes, *, drip: float = 0.0, hold: bool = False) -> None:
        self.answer, self.drip, self.hold = answer, drip, hold
        self.heard: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    @property
    def address(self) -> ServerAddress:
        return parse_address(f"http://127.0.0.1:{self.port}")

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                self.heard.append(client.recv(65536))
                if self.hold:
                    self._ended.wait(30)
                elif self.drip:
                    for byte in self.answer:
                        client.sendall(bytes([byte]))
                        if self._ended.wait(self.drip):
                            break
                else:
                    client.sendall(self.answer)

    def close(self) -> None:
        self._ended.set()
        self._listening.close()


@pytest.fixture
def answering() -> Iterator[Callable[..., Answering]]:
    made: list[Answering] = []

    def make(answer: bytes, **how: Any) -> Answering:
        made.append(Answering(answer, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def http(body: bytes, *, status: str = "200 OK", length: int | None = None, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def failing(connection: Connection, call: Callable[[Connection], object] | None = None) -> ServerProblem:
    """What goes wrong: one line about this server, without the key in it or anywhere near it."""
    with connection, pytest.raises(ServerProblem) as caught:
        (call or (lambda c: c.get("/collections")))(connection)
    problem = caught.value
    assert problem.message.startswith(connection.address.url + ": ")
    text = problem.message + (problem.hint or "")
    assert "\n" not in text and text.isprintable() and len(text) < 600
    told = traceback.TracebackException.from_exception(problem, capture_locals=True)
    assert KEY not in "".join(told.format()) + repr(connection) + repr(vars(connection))
    return problem


def test_a_server_that_answers(qdrant: QdrantServer) -> None:
    with Connection(parse_address(qdrant.url)) as connection:
        assert connection.version() == "1.16.3"
        connection.put(collection_path("a b&c"), {"vectors": {"size": 2, "distance": "Dot"}})
        assert [c["name"] for c in connection.get("/collections")["collections"]] == ["a b&c"]
        point = {"id": 1, "vector": [1, 2], "payload": {"data": "é"}}
        path = collection_path("a b&c", "points")
        assert connection.put(path, {"points": [point]}, wait="true")["status"] == "completed"
        assert connection.post(path, {"ids": [1], "with_payload": True})[0]["payload"] == {"data": "é"}
        assert connection.delete(collection_path("a b&c")) is True


def test_a_name_leads_nowhere_else(qdrant: QdrantServer) -> None:
    """Whatever a collection is called, the request stays below /collections."""
    before = len(qdrant.log_text())
    connection = Connection(parse_address(qdrant.url))
    names = [
        "../telemetry",
        "..",
        ".",
        "a/../../telemetry",
        "x?y=1",
        "x#y",
        "%2e%2e",
        "x\r\nGET / HTTP/1.1",
        "\0",
    ]
    for name in names:
        with pytest.raises(ServerProblem) as caught:
            connection.get(collection_path(name))
        assert caught.value.kind in ("missing", "refused", "not-qdrant"), name
    connection.close()
    assert not [path for _, path, _ in qdrant.requests(before) if path.startswith("/telemetry")]


def test_refused_no_host_and_the_wrong_scheme(qdrant: QdrantServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    problem = failing(Connection(parse_address(f"http://127.0.0.1:{free}"), Secret(KEY)))
    assert (problem.kind, problem.hint) == ("unreachable", "is the server running there?")
    problem = failing(Connection(parse_address("http://no-such-host.invalid"), Secret(KEY)))
    assert problem.kind == "unreachable" and "no such host" in problem.message
    problem = failing(Connection(parse_address("http://" + "a" * 70 + ".invalid"), Secret(KEY)))
    assert problem.kind == "unreachable"
    problem = failing(Connection(parse_address(qdrant.url.replace("http", "https")), Secret(KEY)))
    assert problem.kind == "tls" and problem.hint == "it may speak plain http: give an http:// address"
    problem = failing(Connection(parse_address(f"http://127.0.0.1:{qdrant.grpc_port}"), Secret(KEY)))
    assert problem.kind in ("not-qdrant", "cut") and "REST port" in str(problem.hint)


def test_keys(qdrant_with_keys: QdrantServer) -> None:
    address = parse_address(qdrant_with_keys.url)
    problem = failing(Connection(address))
    assert (problem.kind, problem.status) == ("key", 401) and "wants an API key" in problem.message
    problem = failing(Connection(address, Secret(KEY)))
    assert (problem.kind, problem.status) == ("key", 401) and "does not accept" in problem.message
    assert "--api-key-env" not in str(problem.hint)  # it was given
    reader = Connection(address, Secret(qdrant_with_keys.read_only_key or ""))
    assert reader.get("/collections") == {"collections": []}
    problem = failing(reader, lambda c: c.put(collection_path("x"), {}))
    assert (problem.kind, problem.status) == ("forbidden", 403)
    # a file or a variable ends with a line end
    with Connection(address, Secret(f"{qdrant_with_keys.api_key}\n")) as connection:
        assert connection.get("/collections") == {"collections": []}


@pytest.mark.parametrize("text", ["", " \n", f"{KEY}\r\nHost: evil", f"{KEY}\0", f"{KEY}é"])
def test_a_key_that_cannot_be_sent(text: str, qdrant: QdrantServer) -> None:
    connection = Connection(parse_address(qdrant.url), Secret(text))
    with connection, pytest.raises(UsageProblem) as caught:
        connection.get("/collections")
    told = traceback.TracebackException.from_exception(caught.value)
    assert KEY not in "".join(told.format())


def test_tls(start_qdrant: Callable[..., QdrantServer], monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = str(TLS / "cert.pem"), str(TLS / "key.pem")
    plain = start_qdrant()
    folder = plain.folder / "tls"
    folder.mkdir(mode=0o755)
    for name in (cert, key):
        (folder / Path(name).name).write_bytes(Path(name).read_bytes())
    plain.folder.chmod(0o755)
    plain.stop()
    plain.environ.update(
        QDRANT__SERVICE__ENABLE_TLS="true",
        QDRANT__TLS__CERT=str(folder / "cert.pem"),
        QDRANT__TLS__KEY=str(folder / "key.pem"),
    )
    monkeypatch.setattr(plain, "request", lambda *_: (200 if _accepts(plain.http_port) else 0, None))
    plain.start()
    address = parse_address(plain.url.replace("http://127.0.0.1", "https://localhost"))
    problem = failing(Connection(address, Secret(KEY)))
    assert problem.kind == "tls" and "not trusted" in problem.message and "SSL_CERT_FILE" in str(problem.hint)
    monkeypatch.setenv("SSL_CERT_FILE", cert)
    with Connection(address, Secret(KEY)) as connection:
        assert connection.version() == "1.16.3"
        assert connection.get("/collections") == {"collections": []}
    problem = failing(Connection(parse_address(plain.url), Secret(KEY)))
    assert problem.kind in ("cut", "not-qdrant")


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


RESULT = json.dumps({"result": {"collections": []}, "status": "ok"}).encode()
DEEP = b'{"result":' + b"[" * 200_000

NOT_QDRANT = {
    "a web page": http(b"<html>hello</html>", Content_Type="text/html"),
    "nothing": b"",
    "another protocol": b"220 mail.example.org ESMTP\r\n",
    "a page that is not there": http(b"<h1>404</h1>", status="404 Not Found"),
    "a form": http(b"", status="405 Method Not Allowed"),
    "json of somebody else": http(b'{"status": "green"}'),
    "a list": http(b"[1, 2]"),
    "half of its json": http(RESULT[:20]),
    "no text": http(b"\xff\xfe\x00"),
    "json without end": http(DEEP),
    "a body that is shorter than it says": http(RESULT, length=len(RESULT) + 5),
    "pieces that end early": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n" + RESULT[:10],
    "pieces of no size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + RESULT,
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000,
    "a thousand headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    "no status": b"HTTP/1.1 abc\r\n\r\n",
    "packed, and not": http(RESULT, Content_Encoding="gzip"),
    "packed, and cut": http(gzip.compress(RESULT)[:-4], Content_Encoding="gzip"),
    "an error of its own": http(b"<h1>\x1b[2J</h1>", status="502 Bad Gateway"),
    "a busy one": http(
        b'{"status":{"error":"too many\\n\\u001b[31mrequests"}}', status="429 Too Many Requests"
    ),
}


@pytest.mark.parametrize("what", NOT_QDRANT)
def test_what_is_no_qdrant(what: str, answering: Callable[..., Answering]) -> None:
    problem = failing(Connection(answering(NOT_QDRANT[what]).address, Secret(KEY)))
    expected = {
        "an error of its own": "server",
        "a busy one": "refused",
        "nothing": "cut",
        "a body that is shorter than it says": "cut",
        "pieces that end early": "cut",
        "pieces of no size": "cut",
        "packed, and cut": "cut",
    }.get(what, "not-qdrant")
    assert problem.kind == expected


def test_a_program_that_is_no_qdrant_by_name(answering: Callable[..., Answering]) -> None:
    for body in (
        b"{}",
        b'{"title": "elasticsearch", "version": "9"}',
        b'{"title": "qdrant", "version": 1}',
        b"[]",
    ):
        assert failing(Connection(answering(http(body)).address), Connection.version).kind == "not-qdrant"


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
)
def test_a_redirect_is_not_followed(status: str, answering: Callable[..., Answering]) -> None:
    elsewhere = answering(http(RESULT))
    first = answering(http(b"", status=status, Location=f"http://u:p@127.0.0.1:{elsewhere.port}/x?key={KEY}"))
    problem = failing(Connection(first.address, Secret(KEY)))
    assert problem.kind == "redirect" and f"http://127.0.0.1:{elsewhere.port}," in problem.message
    assert KEY.encode() in first.heard[0] and not elsewhere.heard


def test_no_proxy_of_the_environment_gets_the_key(
    answering: Callable[..., Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, real = answering(http(b"{}")), answering(http(RESULT))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    with Connection(real.address, Secret(KEY)) as connection:
        assert connection.get("/collections") == {"collections": []}
    assert not proxy.heard and KEY.encode() in real.heard[0]


def test_time_runs_out(answering: Callable[..., Answering], monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Connection(answering(b"", hold=True).address, Secret(KEY))
    began = time.monotonic()
    assert failing(silent, lambda c: c.get("/collections", timeout=0.2)).kind == "timeout"
    # a byte now and then is no answer either
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n" + b" " * 4000
    slow = Connection(answering(body, drip=0.002).address, Secret(KEY))
    assert failing(slow, lambda c: c.get("/collections", timeout=0.3)).kind == "timeout"
    assert time.monotonic() - began < 5


def test_an_answer_without_end_is_not_taken_in(
    answering: Callable[..., Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ANSWER", 1 << 20)
    plain = http(b'{"result":"' + b"a" * (2 << 20) + b'"}')
    packed = http(gzip.compress(b" " * (64 << 20)), Content_Encoding="gzip")
    for answer in (plain, packed):
        assert failing(Connection(answering(answer).address)).kind == "too-large"


def test_packed_answers_are_read(answering: Callable[..., Answering]) -> None:
    with Connection(answering(http(gzip.compress(RESULT), Content_Encoding="gzip")).address) as connection:
        assert connection.get("/collections") == {"collections": []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerAddress, "loopback", False)
        other = answering(http(RESULT))
        with Connection(other.address) as connection:
            connection.get("/collections")
    assert b"Accept-Encoding: gzip" in other.heard[0]


def test_a_server_that_was_restarted_in_between(start_qdrant: Callable[..., QdrantServer]) -> None:
    server = start_qdrant()
    with Connection(parse_address(server.url)) as connection:
        connection.put(collection_path("a"), {"vectors": {}})
        server.kill()
        assert failing(connection).kind == "unreachable"
        server.start()
        # writes as well: nothing was sent before
        assert connection.delete(collection_path("a")) is True
        server.kill()
        server.start()
        assert connection.put(collection_path("b"), {"vectors": {}}) is True


def test_an_answer_that_nobody_took_is_not_the_next_one(qdrant: QdrantServer) -> None:
    with Connection(parse_address(qdrant.url)) as connection:
        for _ in range(20):
            connection.send("GET", "/collections", None)
            with contextlib.suppress(ServerProblem):
                assert connection.get("/aliases") == {"aliases": []}
        assert connection.get("/aliases") == {"aliases": []}


def test_large_things_whole_and_cut(qdrant: QdrantServer) -> None:
    qdrant.result("PUT", "/collections/a", {"vectors": {"size": 64, "distance": "Dot"}})
    points = [{"id": i, "vector": [i] * 64, "payload": {"data": "x" * 1000}} for i in range(500)]
    qdrant.result("PUT", "/collections/a/points?wait=true", {"points": points})
    made = qdrant.result("POST", "/collections/a/snapshots")
    path = collection_path("a", "snapshots", made["name"])
    with Connection(parse_address(qdrant.url)) as connection:
        taken = io.BytesIO()
        got = connection.download(path, taken.write)
        assert (got.size, got.sha256) == (made["size"], made["checksum"]) and len(
            taken.getvalue()
        ) == got.size
        size = got.size
        up = collection_path("b", "snapshots", "upload")
        taken.seek(0)
        assert connection.upload(up, taken, size, priority="snapshot", checksum=got.sha256) is True
        assert connection.post(collection_path("b", "points", "count"), {})["count"] == 500
        taken.seek(0)
        problem = failing(connection, lambda c: c.upload(up, taken, size, checksum="0" * 64))
        assert problem.kind == "refused"
        taken.seek(0)
        assert failing(connection, lambda c: c.upload(up, taken, size + 1)).kind == "cut"
    with Proxy(qdrant.http_port) as proxy:
        proxy.cut(down=100_000, matching="GET .*snapshots/")
        connection = Connection(parse_address(proxy.url))
        assert failing(connection, lambda c: c.download(path, lambda piece: None)).kind == "cut"
        proxy.cut(up=100_000, matching="POST .*upload")
        taken.seek(0)
        assert failing(connection, lambda c: c.upload(up, taken, size)).kind == "cut"


def test_the_key_is_in_no_file_or_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret neither prints nor travels."""
    secret = Secret(KEY)
    assert repr(secret) == str(secret) == f"{secret}" == "***"
    assert secret == Secret(KEY) and secret != Secret("other") and KEY not in os.environ.values()
