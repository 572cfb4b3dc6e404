"""A Qdrant server over its REST interface.

REST by the standard library: read side by side from 1.16.3 on loopback, pages of 1000 payloads came faster through
http.client and json (100,000 points in 1.8 s) than through httpx with orjson (2.2 s), urllib3 (2.2 s), qdrant-client
(1.9 s, and 1.3 s to import it) or gRPC (2.2 s), and nothing needs to be installed beside us.

The key goes into one header of requests to one address and nowhere else: redirects are not followed, proxies of the
environment are not used, and no error, repr or traceback holds it.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import io
import json
import re
import secrets
import select
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import quote, urlencode

from mem0audit.core.errors import ServerProblem, UsageProblem
from mem0audit.core.model import Install
from mem0audit.core.server import Secret, ServerAddress, parse_address

loads: Callable[[bytes], Any] = json.loads
with suppress(ImportError):
    # of 1,536 floats in 0.06 ms, where json takes 0.37
    import orjson

    loads = orjson.loads

CONNECT_S: Final = 10.0
ANSWER_S: Final = 60.0
"""How long a server may think about, and take for, an ordinary answer."""
AGREE_S: Final = 30
"""How long the nodes of a cluster may take to agree on a collection that is made or removed."""
SILENCE_S: Final = 60.0
"""How long a download or an upload may stand still."""
MOST_ANSWER: Final = 256 << 20
"""Bytes of one answer that is JSON, unpacked. A page of points that is larger is asked for in smaller ones."""
PIECE: Final = 1 << 20
DOWNLOADED: Final = 64 << 10
"""Bytes of a download that must come within its timeout, each time."""
READ_AHEAD: Final = 256 << 10
LONGEST_WORD: Final = 300
"""Characters of what a server says that are passed on."""


class Downloaded(NamedTuple):
    """What a download brought: bytes, and their SHA-256 in hexadecimal."""

    size: int
    sha256: str


def collection_path(collection: str, *rest: str | int) -> str:
    """`/collections/NAME/…` with every part quoted: no name can lead elsewhere."""
    return "/collections/" + "/".join(quote(str(part), safe="") for part in (collection, *rest))


def agreed_path(collection: str) -> str:
    """`collection_path` for a call that makes or removes the collection: the nodes of a busy cluster get AGREE_S
    for it, where a server gives them 10 s by itself (1.16.3)."""
    return f"{collection_path(collection)}?timeout={AGREE_S}"


def connection_to(install: Install) -> Connection:
    """A connection to the server of an install that has one, and to the other nodes of its cluster that are named."""
    assert install.server_url is not None
    others = [Connection(parse_address(url), install.server_key) for url in install.nodes]
    return Connection(parse_address(install.server_url.value), install.server_key, others)


class Connection:
    """One connection to one server, opened when first used and again when the server closed it in between.

    Not for several threads at once. Every method raises ServerProblem (see its KINDS) where the server does not do
    what it is asked, UsageProblem for a key that cannot be sent. Nothing is ever sent twice.
    """

    def __init__(
        self, address: ServerAddress, key: Secret | None = None, others: Sequence[Connection] = ()
    ) -> None:
        self.address = address
        self._key = key
        self.others = tuple(others)
        """The other nodes of its cluster, where the user named them: what only the node that has a shard does."""
        self.silent: str | None = None
        """What was said of it when it gave no answer in time, where whoever asked will not wait for it again."""
        self._answered = False
        self._http: http.client.HTTPConnection | None = None
        self.end = 0.0
        """Until when the answer must have come, by time.monotonic()."""
        # On this machine packing costs more than it saves (an eighth of the speed); over a network it is the reverse.
        self._encoding = "identity" if address.loopback else "gzip"

    def __repr__(self) -> str:
        return f"Connection({self.address.url})"

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self, *self.others):
            each.close()

    def close(self) -> None:
        """Hangs up; a later request connects again."""
        if self._http is not None:
            self._http.close()
            self._http = None

    @property
    def may_only_read(self) -> bool:
        """Whether the key is a token (JWT) for reading only: what it says of itself, not asked of the server."""
        parts = ("" if self._key is None else self._key.reveal().strip()).split(".")
        if len(parts) != 3:
            return False
        with suppress(ValueError, RecursionError):
            claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            access = claims.get("access") if isinstance(claims, dict) else None
            if isinstance(access, list):  # by collection
                return bool(access) and all(
                    isinstance(one, dict) and one.get("access") == "r" for one in access
                )
            return access == "r"
        return False

    # --- questions and orders whose answer is Qdrant's JSON ---

    def get(self, path: str, *, timeout: float = ANSWER_S, **query: str | int) -> Any:
        """`result` of Qdrant's answer. `path` begins with a slash; `timeout` is in seconds."""
        return self._result("GET", _with_query(path, query), None, timeout)

    def post(self, path: str, body: Any = None, *, timeout: float = ANSWER_S, **query: str | int) -> Any:
        """`result` of the answer to a POST of `body` as JSON (none is sent where it is None)."""
        return self._result("POST", _with_query(path, query), body, timeout)

    def put(self, path: str, body: Any = None, *, timeout: float = ANSWER_S, **query: str | int) -> Any:
        """`result` of the answer to a PUT."""
        return self._result("PUT", _with_query(path, query), body, timeout)

    def delete(self, path: str, body: Any = None, *, timeout: float = ANSWER_S, **query: str | int) -> Any:
        """`result` of the answer to a DELETE."""
        return self._result("DELETE", _with_query(path, query), body, timeout)

    def version(self) -> str:
        """The server's version, as `GET /` says it (it needs no key). Raises "not-qdrant" where another program
        answers."""
        answer = _parsed(self._ask("GET", "/", None, ANSWER_S), self.address)
        version = answer.get("version") if isinstance(answer, dict) else None
        if not isinstance(version, str) or "qdrant" not in str(answer.get("title", "")).lower():
            raise self._not_qdrant("what answers there does not call itself Qdrant")
        return clean(version, 40)

    # --- large things ---

    def download(
        self, path: str, take: Callable[[bytes], object], *, timeout: float = SILENCE_S, **query: str | int
    ) -> Downloaded:
        """Gives the body of a GET to `take`, a piece at a time. A body that ends too early is "cut", as far as HTTP
        can tell: compare the digest where the server said one. `timeout` is how long it may stand still."""
        response = self._begin("GET", _with_query(path, query), None, timeout)
        digest, size = hashlib.sha256(), 0
        self.end = time.monotonic() + timeout
        with self._failing():
            while piece := response.read(DOWNLOADED):
                self.end = time.monotonic() + timeout
                size += len(piece)
                digest.update(piece)
                take(piece)
            if response.length:  # http.client says nothing where a body of known length ends early
                raise http.client.IncompleteRead(b"", response.length)
            self._done(response)
        return Downloaded(size, digest.hexdigest())

    def upload(
        self,
        path: str,
        file: BinaryIO,
        size: int,
        *,
        field: str = "snapshot",
        name: str = "snapshot",
        timeout: float = SILENCE_S,
        answer_timeout: float = ANSWER_S,
        **query: str | int,
    ) -> Any:
        """Sends `size` bytes of a file, as one of that `name`, as the one field of a form (multipart), and returns
        `result` of the answer.

        `timeout` is how long the sending may stand still, `answer_timeout` how long the server may think then.
        """
        boundary = secrets.token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()
        connection = self._connected(timeout)
        try:
            self._put_head(connection, "POST", _with_query(path, query))
            connection.putheader("Content-Type", f"multipart/form-data; boundary={boundary}")
            connection.putheader("Content-Length", str(len(head) + size + len(tail)))
            connection.endheaders(head)
            left = size
            while left:
                piece = file.read(min(PIECE, left))
                if not piece:
                    raise self._problem("cut", "the file to send became shorter meanwhile")
                left -= len(piece)
                connection.send(piece)
            connection.send(tail)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a server that refuses says why, and does not wait for the rest
        except OSError as error:
            raise self._of(error) from None
        except ServerProblem:
            self.close()
            raise
        response = self._answer(connection, answer_timeout)
        return result_of(self._body(response, answer_timeout), self.address)

    # --- inside ---

    def _result(self, method: str, path: str, body: Any, timeout: float) -> Any:
        return result_of(self._ask(method, path, body, timeout), self.address)

    def _ask(self, method: str, path: str, body: Any, timeout: float) -> bytes:
        """The body of the answer, unpacked."""
        return self._body(self._begin(method, path, body, timeout), timeout)

    def _begin(self, method: str, path: str, body: Any, timeout: float) -> http.client.HTTPResponse:
        self.send(method, path, body, timeout)
        assert self._http is not None
        return self._answer(self._http, timeout)

    def send(self, method: str, path: str, body: Any, timeout: float = ANSWER_S) -> None:
        """Sends a request, whose answer `receive` must take before the next one: the server works meanwhile. `body` is
        sent as JSON; bytes are JSON already."""
        data = None
        if body is not None:
            made = not isinstance(body, bytes)
            data = json.dumps(body, allow_nan=False, separators=(",", ":")).encode() if made else body
        connection = self._connected(timeout)
        with self._failing():
            self._put_head(connection, method, path)
            if data is not None:
                connection.putheader("Content-Type", "application/json")
            if data is not None or method in ("POST", "PUT"):
                connection.putheader("Content-Length", str(len(data or b"")))
            with suppress(BrokenPipeError, ConnectionResetError):  # a server that refuses says why
                connection.endheaders(data)

    def receive(self, timeout: float = ANSWER_S) -> bytes:
        """The body of the answer to what was sent; `result_of` reads it."""
        assert self._http is not None
        return self._body(self._answer(self._http, timeout), timeout)

    def _connected(self, timeout: float) -> http.client.HTTPConnection:
        now = self._http
        if now is not None and now.sock is not None and not _ended(now.sock):
            now.sock.settimeout(timeout)
            return now
        self.close()
        host, port = self.address.host, self.address.port
        made: http.client.HTTPConnection
        if self.address.scheme == "https":
            made = http.client.HTTPSConnection(
                host, port, timeout=CONNECT_S, context=ssl.create_default_context()
            )
        else:
            made = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        try:
            made.connect()
        except OSError as error:
            made.close()
            raise self._of(error, connecting=True) from None
        except UnicodeError:  # a label of the host's name that is empty or too long
            raise self._problem("unreachable", "that is no possible host name") from None
        assert made.sock is not None
        made.sock.settimeout(timeout)
        # what http.client asks of the socket of an answer is makefile alone
        made.response_class = lambda sock, *more, **named: http.client.HTTPResponse(  # type: ignore[assignment]
            _Timed(sock, self),  # type: ignore[arg-type]
            *more,
            **named,
        )
        self._http = made
        return made

    def _put_head(self, connection: http.client.HTTPConnection, method: str, path: str) -> None:
        try:
            connection.putrequest(method, self.address.prefix + path, skip_accept_encoding=True)
        except http.client.CannotSendRequest:
            # the answer before was not taken: it is not the answer to this
            self.close()
            raise self._problem("cut", "an answer was left unread") from None
        connection.putheader("Accept-Encoding", self._encoding)
        connection.putheader("User-Agent", "mem0audit")
        if self._key is not None:
            connection.putheader("api-key", checked_key(self._key).reveal())

    def _answer(self, connection: http.client.HTTPConnection, timeout: float) -> http.client.HTTPResponse:
        self.end = time.monotonic() + timeout
        with self._failing():
            response = connection.getresponse()
            self._answered = True
            if response.status == 200:
                return response
            said = b"" if 300 <= response.status < 400 else response.read(64 << 10)
            where = _host_of(response.headers.get("Location"))
        self.close()
        raise self._status(response.status, said, where)

    def _body(self, response: http.client.HTTPResponse, timeout: float) -> bytes:
        unpack = zlib.decompressobj(wbits=31) if response.headers.get("Content-Encoding") == "gzip" else None
        pieces: list[bytes] = []
        total = 0
        self.end = time.monotonic() + timeout
        with self._failing():
            while piece := response.read(PIECE):
                if unpack is not None:
                    piece = unpack.decompress(piece, MOST_ANSWER + 1 - total)
                total += len(piece)
                if total > MOST_ANSWER:
                    self.close()
                    raise self._problem("too-large", f"answers with more than {MOST_ANSWER >> 20} MB")
                pieces.append(piece)
            if response.length or (unpack is not None and not unpack.eof):
                raise http.client.IncompleteRead(b"")
            self._done(response)
        return b"".join(pieces)

    def _done(self, response: http.client.HTTPResponse) -> None:
        if response.will_close:
            self.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turns what http.client and zlib raise into one line; the connection is then of no more use."""
        try:
            yield
        except (OSError, http.client.HTTPException, zlib.error) as error:
            raise self._of(error) from None
        except ServerProblem:
            raise
        except BaseException:
            # `take` failed, or the user interrupts: what is left of the answer must not be taken for the next one
            self.close()
            raise

    def _of(self, error: Exception, *, connecting: bool = False) -> ServerProblem:
        self.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._problem("tls", f"its certificate is not trusted: {error.verify_message}", _TRUST)
        if isinstance(error, ssl.SSLError):
            plain = "WRONG_VERSION_NUMBER" in str(error.reason) or "RECORD_LAYER" in str(error.reason)
            hint = "it may speak plain http: give an http:// address" if plain else None
            what = (
                "no TLS there"
                if plain
                else f"TLS fails: {error.reason or error.strerror or 'no reason given'}"
            )
            return self._problem("tls", clean(what), hint)
        if isinstance(error, TimeoutError):
            what = f"no connection within {CONNECT_S:.0f} s" if connecting else "no answer in time"
            return self._problem("timeout", what, "is it overloaded, or is a firewall in between?")
        if isinstance(error, socket.gaierror):
            return self._problem("unreachable", f"no such host: {self.address.host}")
        if isinstance(error, ConnectionRefusedError):
            return self._problem("unreachable", "connection refused", "is the server running there?")
        if isinstance(error, (http.client.IncompleteRead, http.client.RemoteDisconnected, ConnectionError)):
            if not self._answered:  # the gRPC port, and one that wants https, do so
                return self._problem("cut", "the connection ended before there was an answer", _REST_PORT)
            return self._problem("cut", "the connection ended in the middle of an answer")
        if isinstance(error, http.client.HTTPException):
            return self._not_qdrant("what answers there does not speak HTTP")
        if isinstance(error, zlib.error):
            return self._not_qdrant("its packed answer does not unpack")
        if isinstance(error, OSError) and not connecting and error.errno not in _NO_ROUTE:
            return self._problem(
                "cut", f"the connection failed: {clean(error.strerror or 'no reason given')}"
            )
        reason = error.strerror if isinstance(error, OSError) else None
        return self._problem("unreachable", clean(reason or "cannot be reached").lower())

    def _status(self, status: int, said: bytes, where: str) -> ServerProblem:
        told = _told(said)
        if 300 <= status < 400:
            what = f"answers with a redirect to {where}, which is not followed"
            return self._problem("redirect", what, _DIRECT, status)
        if status == 401 or (status == 403 and not told):
            if self._key is None:
                return self._problem("key", "wants an API key", _KEY, status)
            return self._problem("key", "does not accept the API key", "is it this server's?", status)
        if status == 403:
            return self._problem("forbidden", f"the API key may not do this: {told}", status=status)
        if status == 404 and told:
            return self._problem("missing", told, status=status)
        if status in (404, 405) or (status < 500 and not told):
            return self._not_qdrant(f"answers {status} where a Qdrant server has something", status)
        if status >= 500:
            return self._problem("server", f"answers {status}{': ' + told if told else ''}", status=status)
        return self._problem("refused", told, _STRICT if _OF_STRICT_MODE.search(told) else None, status)

    def _problem(
        self, kind: str, what: str, hint: str | None = None, status: int | None = None
    ) -> ServerProblem:
        return ServerProblem(kind, f"{self.address.url}: {what}", hint, status)

    def _not_qdrant(self, why: str, status: int | None = None) -> ServerProblem:
        return _not_qdrant(self.address, why, status)


class _Timed:
    """A socket as http.client reads answers from it: every byte must come before `Connection.end`. (A socket's own
    timeout begins again with every byte.)"""

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self._sock = sock
        self._connection = connection

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self._sock, self._connection), READ_AHEAD)


class _TimedReads(io.RawIOBase):
    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self._sock = sock
        self._connection = connection
        self._raw = sock.makefile("rb", buffering=0)  # counts as a use of the socket, so that it stays open

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._connection.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


_REST_PORT: Final = "is it the REST port (6333) of a Qdrant server?"
_KEY: Final = "name the variable that holds it with --api-key-env"
_DIRECT: Final = "give the address it leads to, if it is yours"
_TRUST: Final = "SSL_CERT_FILE names a file with the certificate of your own authority"
_STRICT: Final = "that is the collection's strict mode, which stops mem0 too: mem0audit explain Q953"
_OF_STRICT_MODE: Final = re.compile(
    r"limit exceeded|index required|rate limit|exact search disabled|limit of .* reached", re.IGNORECASE
)
_NO_ROUTE: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)


def result_of(answer: bytes, address: ServerAddress) -> Any:
    """`result` of an answer's body. Raises ServerProblem "not-qdrant" where it has none."""
    parsed = _parsed(answer, address)
    if not isinstance(parsed, dict) or "result" not in parsed:
        raise _not_qdrant(address, "its answer is JSON, and not as a Qdrant server writes it")
    return parsed["result"]


def _parsed(answer: bytes, address: ServerAddress) -> Any:
    try:
        return loads(answer)
    except (ValueError, RecursionError):
        raise _not_qdrant(address, "its answer is no JSON, or ends in the middle") from None


def _not_qdrant(address: ServerAddress, why: str, status: int | None = None) -> ServerProblem:
    return ServerProblem("not-qdrant", f"{address.url}: {why}", _REST_PORT, status)


_MOST_AT_ONCE: Final = re.compile(r'Limit exceeded \d+ > (\d+) for "limit"')


def fewer(problem: ServerProblem, points: int) -> int | None:
    """How many points to ask for where a page of so many is refused: too large for us, or more than the collection's
    strict mode gives at once, which says how many that is (1.16.3). None where the problem is another one."""
    if problem.kind == "too-large" and points > 1:
        return max(1, points // 8)
    most = _MOST_AT_ONCE.search(problem.message) if problem.kind == "refused" else None
    return int(most[1]) if most is not None and 0 < int(most[1]) < points else None


def checked_key(key: Secret) -> Secret:
    """The key without the line end that files and variables put behind it.

    Raises UsageProblem, without the key, where it cannot be sent (http.client's own error would show it).
    """
    text = key.reveal().strip()
    if not text or not text.isascii() or not text.isprintable():
        raise UsageProblem("the API key is empty, or holds characters that no header may have")
    return key if text == key.reveal() else Secret(text)


def clean(text: object, longest: int = LONGEST_WORD) -> str:
    """What a server says, for one line: printable, and not longer than that."""
    line = " ".join(str(text).split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _told(said: bytes) -> str:
    """`status.error` of an answer, or what a server that is none of JSON says for 401; "" where it says nothing."""
    with suppress(ValueError, RecursionError):
        answer = json.loads(said)
        status = answer.get("status") if isinstance(answer, dict) else None
        if isinstance(status, Mapping) and isinstance(status.get("error"), str):
            return clean(status["error"])
    return ""


def _host_of(location: str | None) -> str:
    """Scheme and host of a place one is sent to: what stands behind may hold anything."""
    head, slashes, rest = (location or "").partition("//")
    if not slashes:
        return "another page"
    return clean(head + slashes + re.split(r"[/?#]", rest)[0].rpartition("@")[2], 100)


def _with_query(path: str, query: Mapping[str, str | int]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _ended(sock: socket.socket) -> bool:
    """Whether the other side has hung up, or says what nobody asked for: the next request must not go there."""
    try:
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True
