"""Credentials in a text, by detect-secrets and by our own forms. No network: nothing found is ever tried out.

detect-secrets' forms of real tokens are used; what it guesses by entropy or by a word beside it is not: in sentences,
ids and digests (mem0 writes both) that is nearly everything.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from mem0audit.core.signs import Secret, masked, plain_secrets

LONGEST: Final = 100_000
"""Characters of a text that are searched."""
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
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    kinds: dict[str, Any] = get_mapping_from_secret_type_to_class()
    return tuple(plugin() for kind, plugin in sorted(kinds.items()) if kind not in _BY_GUESS)


def find_secrets(text: str) -> tuple[Secret, ...]:
    """The credentials in a text, each kind and value once, masked. Never raises."""
    text = text[:LONGEST]
    found = dict.fromkeys(plain_secrets(text))
    for detector in _detectors():
        for line in text.splitlines():
            for value in detector.analyze_string(line):
                found[Secret(detector.secret_type, masked(value))] = None
    return tuple(found)
