"""Every point of a collection on a Qdrant server, a page at a time.

A scroll does nothing to a server: it takes no lock, and leaves no cursor behind. Under writes it is no point in time: 1
of 12 over 5,000 points written at full speed was as of one instant (1.16.3). Every point that stands still is in it,
once; what is written meanwhile may be in it or not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from mem0audit.core.errors import ServerProblem
from mem0audit.core.model import PointId
from mem0audit.stores.server import Connection, collection_path, fewer, result_of

PAGE: Final = 1000
"""Points a page: below 1,000 a scroll of 100,000 takes up to half as long again, above it little changes but memory."""
IDS_A_PAGE: Final = 10_000
LARGE_PAGE: Final = 8 << 20
"""Bytes of a page from which on the next ones are asked for with fewer points."""
PATIENCE_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""How long to wait, one after the other, when a server says 429: its limits are by the minute."""

# The end of an answer, behind every text of a point: where the next page begins, before the page is decoded.
_NEXT_PAGE: Final = re.compile(
    rb'"next_page_offset":(?:"([0-9a-f-]{36})"|(\d{1,20}))\}[^{}\[\]"]*"[^{}\[\]]*\}\s*$'
)
_TAIL: Final = 400


def pages(
    connection: Connection,
    name: str,
    at_once: int = PAGE,
    *,
    payload: bool = True,
    vectors: bool = False,
    every_copy: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[list[dict[str, Any]]]:
    """The points as the server gives them, `at_once` a page; fewer where they are large, or strict mode allows no more.

    The server makes the next page while this one is used, so that the connection may be used for nothing else
    meanwhile. With `every_copy` only what all copies of a shard have, each of which must answer. `pause` waits so many
    seconds. Raises ServerProblem.
    """
    path = collection_path(name, "points", "scroll") + ("?consistency=all" if every_copy else "")

    def ask(offset: PointId | None) -> None:
        body: dict[str, Any] = {"limit": limit, "with_payload": payload, "with_vector": vectors}
        if offset is not None:
            body["offset"] = offset
        connection.send("POST", path, body)

    limit = at_once
    offset: PointId | None = None
    begun: set[PointId] = set()
    waits = iter(PATIENCE_S)
    asked = False
    try:
        while True:
            if not asked:
                ask(offset)
            asked = False
            try:
                raw = connection.receive()
            except ServerProblem as problem:
                if problem.status == 429 and (wait := next(waits, None)) is not None:
                    pause(wait)
                elif (less := fewer(problem, limit)) is not None:
                    limit = less
                else:
                    raise
                continue
            waits = iter(PATIENCE_S)
            if len(raw) > LARGE_PAGE:
                limit = max(1, limit // 2)
            after = _after(raw)
            if after is not None:
                ask(after)
                asked = True
            result = result_of(raw, connection.address)
            if not isinstance(result, dict) or not isinstance(result.get("points"), list):
                raise odd_answer(connection)
            offset = result.get("next_page_offset")
            if offset is None and not asked:
                yield result["points"]
                return
            # A server that goes in circles would be read for ever.
            if not isinstance(offset, (str, int)) or offset in begun or (asked and after != offset):
                raise odd_answer(connection)
            begun.add(offset)
            if not asked:
                ask(offset)
                asked = True
            yield result["points"]
    finally:
        if asked:
            connection.close()  # an answer is on its way that nobody takes


def _after(raw: bytes) -> PointId | None:
    """The id that the next page begins with, from the last bytes of a page; None where they do not say it plainly."""
    found = _NEXT_PAGE.search(raw[-_TAIL:])
    if found is None:
        return None
    return int(found[2]) if found[1] is None else found[1].decode()


def odd_answer(connection: Connection) -> ServerProblem:
    """What is said where an answer is JSON, and makes no sense."""
    return ServerProblem(
        "not-qdrant", f"{connection.address.url}: its answer is not as a Qdrant server writes it"
    )
