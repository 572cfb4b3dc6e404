"""Words of a command line that we print."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def shell_word(value: str) -> str:
    r"""`value` quoted for a shell, so that a printed command runs as printed.

    What cannot be printed (a path with an escape in it) is written with `$'…'`, which bash, zsh and
    ksh turn back into the very bytes.
    """
    if value.isprintable():
        return shlex.quote(value)
    out = []
    for char in value:
        if char in "\\'":
            out.append("\\" + char)
        elif char.isprintable():
            out.append(char)
        else:
            out.extend(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
    return "$'" + "".join(out) + "'"


def shell_words(values: Iterable[str]) -> str:
    """Several words of a command line, each quoted as `shell_word` does."""
    return " ".join(map(shell_word, values))
