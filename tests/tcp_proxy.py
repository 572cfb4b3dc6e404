"""A TCP proxy in front of a server, for tests: delays, cuts and truncates what goes through, notes the requests."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from types import TracebackType

_REQUEST = re.compile(rb"^(GET|HEAD|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.[01]\r\n", re.MULTILINE)


class Proxy:
    """`with Proxy(port) as proxy:` listens on `proxy.url` and passes on to 127.0.0.1:port.

    `requests` are (method, path) of what went to the server, as far as it is HTTP. `cut(down=N)` ends every connection
    that is opened from now on, without a word, after N bytes of answers, `cut(up=N)` after N bytes of requests;
    `times` limits it to so many connections. `matching` picks the connections by a pattern in a request: the bytes
    count from that request on. `delay` is how long each piece is held, seconds.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[tuple[str, str]] = []
        self.delay = 0.0
        self.cuts = 0
        self._down: int | None = None
        self._up: int | None = None
        self._times: int | None = None
        self._matching: re.Pattern[bytes] | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def cut(
        self,
        *,
        down: int | None = None,
        up: int | None = None,
        times: int | None = None,
        matching: str | None = None,
    ) -> None:
        self._down, self._up, self._times = down, up, times
        self._matching = None if matching is None else re.compile(matching.encode())

    def heal(self) -> None:
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._listening.close()
        for one in list(self._open):
            _hang_up(one)

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                _hang_up(client)
                continue
            self._open |= {client, server}
            state = _Connection(client, server)
            for work in (self._upwards, self._downwards):
                threading.Thread(target=work, args=(state,), daemon=True).start()

    def _upwards(self, state: _Connection) -> None:
        for piece in _pieces(state.client):
            for method, path in _REQUEST.findall(piece):
                self.requests.append((method.decode(), path.decode()))
                hit = self._matching is None or self._matching.search(method + b" " + path)
                if hit and not state.armed:
                    state.armed, state.up, state.down = True, 0, 0
            state.up += len(piece)
            if state.armed and self._up is not None and self._may_cut() and state.up > self._up:
                self._send(state.server, piece[: max(0, len(piece) - (state.up - self._up))])
                self._cut(state)
                return
            if not self._send(state.server, piece):
                break
        _hang_up(state.server)

    def _downwards(self, state: _Connection) -> None:
        for piece in _pieces(state.server):
            state.down += len(piece)
            if state.armed and self._down is not None and self._may_cut() and state.down > self._down:
                self._send(state.client, piece[: max(0, len(piece) - (state.down - self._down))])
                self._cut(state)
                return
            if not self._send(state.client, piece):
                break
        _hang_up(state.client)

    def _may_cut(self) -> bool:
        return self._times is None or self._times > 0

    def _cut(self, state: _Connection) -> None:
        self.cuts += 1
        if self._times is not None:
            self._times -= 1
        _hang_up(state.client)
        _hang_up(state.server)

    def _send(self, to: socket.socket, piece: bytes) -> bool:
        if self.delay:
            time.sleep(self.delay)
        try:
            to.sendall(piece)
        except OSError:
            return False
        return True


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.armed = False
        self.up = self.down = 0


def _pieces(source: socket.socket):  # type: ignore[no-untyped-def]
    while True:
        try:
            piece = source.recv(65536)
        except OSError:
            return
        if not piece:
            return
        yield piece


def _hang_up(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
