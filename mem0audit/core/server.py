"""A Qdrant server's address and key, as qdrant-client understands what mem0 gives to it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn
from urllib.parse import urlsplit

from mem0audit.core.errors import UsageProblem

DEFAULT_PORT: Final = 6333
"""The client takes it for every address that names no port, https ones too (qdrant_client/qdrant_remote.py)."""


class ServerRead(NamedTuple):
    """How the points of a server are read: with their `vectors`; each collection as of one `instant`."""

    vectors: bool = False
    instant: bool = False


PAYLOADS: Final = ServerRead()
"""Page by page, the payloads alone."""


class Secret:
    """A text that is shown nowhere: not in a repr, a traceback, a copy, a pickle or a comparison that fails."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that sends it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens. `prefix` is "" or begins with a slash and does not end with one."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @property
    def url(self) -> str:
        """For printing and for configurations: no credentials are in it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"

    @property
    def loopback(self) -> bool:
        """Whether it is this machine by name or number, so that nothing leaves it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(url: str, *, https: bool | None = None, with_key: bool = False) -> ServerAddress:
    """The address in an url as QdrantClient(url=…) takes it: without a scheme `https` decides, and where that says
    nothing whether there is a key; without a port it is 6333; a path is a prefix. User, password and what
    follows a ? are not used, as the client uses none of them.

    Raises UsageProblem where that is no address.
    """
    secure = with_key if https is None else https
    text = url.strip()
    if "://" not in text:
        text = f"{'https' if secure else 'http'}://{text}"
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise UsageProblem("the server's address holds characters that no address has")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UsageProblem("the server's address is no url", _AS_IN) from None
    if parts.scheme not in ("http", "https"):
        raise UsageProblem(f"a Qdrant server is reached by http or https, not {parts.scheme}", _AS_IN)
    if not host:
        raise UsageProblem("the server's address names no host", _AS_IN)
    return ServerAddress(parts.scheme, host, port or DEFAULT_PORT, parts.path.rstrip("/"))


_AS_IN = "as in http://localhost:6333"
