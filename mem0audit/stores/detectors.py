"""Credentials in a text, by detect-secrets and by our own forms. No network: nothing found is ever tried out.

detect-secrets' forms of real tokens are used; what it guesses by entropy or by a word beside it is not: in sentences,
ids and digests (mem0 writes both) that is nearly everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any, Final

from mem0audit.core.signs import Secret, known_tokens, masked, may_hold_secret, named_values

LONGEST: Final = 200_000
"""Characters of a text that are searched."""
PIECE: Final = 2_000
"""Characters that are searched at once, so that no form takes long on a hostile text; pieces overlap by OVERLAP."""
OVERLAP: Final = 300
_BY_GUESS: Final = frozenset(
    {
        "Base64 High Entropy String",
        "Hex High Entropy String",
        "Secret Keyword",
        "Public IP (ipv4)",
    }
)


@cache
def _detectors() -> tuple[Any, ...]:
    """detect-secrets' plugins that know a form. 0.2 s to import, so only once there is something to look at."""
    import socket

    had = socket.has_ipv6
    # it imports urllib3, which would bind a socket to see whether there is IPv6: we open none, whatever for
    socket.has_ipv6 = False
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    finally:
        socket.has_ipv6 = had
    kinds: dict[str, Any] = get_mapping_from_secret_type_to_class()
    return tuple(plugin() for kind, plugin in sorted(kinds.items()) if kind not in _BY_GUESS)


def find_secrets(text: str) -> tuple[Secret, ...]:
    """The credentials in a text, each kind and value once, masked. Never raises."""
    found: dict[str, Secret] = {}
    for piece in _pieces(text[:LONGEST]):
        if not may_hold_secret(piece):
            continue
        for kind, value in chain(known_tokens(piece), _detected(piece), named_values(piece)):
            # two detectors may know one token, each a part of it
            if not any(value in other or other in value for other in found):
                found[value] = Secret(kind, masked(value))
    return tuple(dict.fromkeys(found.values()))


_OF_ALL_FORMS: Final = re.compile(
    r"[a-z0-9_\-+/=]{20}|://|eyJ|xox|_authToken|PRIVATE KEY|PuTTY|AKC|AP[0-9A-F]", re.IGNORECASE
)
"""What a text has that one of the detectors' forms is in: many name a key or a token, and few have one."""


def _detected(text: str) -> Iterator[tuple[str, str]]:
    if not _OF_ALL_FORMS.search(text):
        return
    for detector in _detectors():
        for value in detector.analyze_string(text):
            yield detector.secret_type, value


def _pieces(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for start in range(0, max(len(line) - OVERLAP, 1), PIECE - OVERLAP):
            yield line[start : start + PIECE]
