"""Credentials in a text: which texts are worth a search, and the forms that a sentence has.

The first look is a few searches for words, since it is made of every text of a store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Secret:
    """A credential that stands in a text: its kind, and the value masked (never the value)."""

    kind: str
    masked: str


@dataclass(frozen=True)
class MessageSecrets:
    """A credential in the chat messages of one session scope, and in how many of them."""

    scope: str
    secret: Secret
    count: int


FindSecrets = Callable[[str], tuple[Secret, ...]]
"""Text in, the credentials in it out; called only for texts that `may_hold_secret`."""


# --- What is looked at closely ----------------------------------------------------------------------

_LONG_RUN: Final = re.compile(r"[A-Za-z0-9_\-+/=]{20,}")
_OWN_FORMS: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}",
    re.IGNORECASE,
)
"""Ids and digests: MD5, SHA-1, SHA-256 and UUIDs, which mem0 itself writes, name a thing and open nothing."""


_IN_RUNS: Final = bytes(
    97 if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_-+/=") else 32 for code in range(256)
)
_RUN: Final = b"a" * 20


def may_hold_secret(text: str) -> bool:
    """Whether the text is worth a search for credentials: it names one, or has a run of characters like one."""
    lower = text.lower()
    if (  # written out, since this runs for every text
        ("pass" in lower and ("passw" in lower or "passcode" in lower or "passphrase" in lower))
        or "key" in lower
        or "token" in lower
        or "secret" in lower
        or "cred" in lower
        or "pwd" in lower
        or "pin " in lower
        or "://" in lower
    ):
        return True
    if _RUN in text.encode("utf-8", "surrogatepass").translate(_IN_RUNS):  # the same at a sixth of the cost
        return any(not _OWN_FORMS.fullmatch(run) for run in _LONG_RUN.findall(text)) or "-----begin" in lower
    return "-----begin" in lower


# --- Credentials in plain words ----------------------------------------------------------------------------

_NAMED: Final = re.compile(
    r"\b(?:pass(?:word|code|phrase|wd)|pwd|pin(?: code| number)?|api[ _-]?key"
    r"|(?:secret|access|private|encryption|licen[sc]e|auth|signing)[ _-]?(?:key|token)|secret|token|credentials?)s?\b"
    r"(?:[ ]+(?:for|to|of|on|at|in)[ ]+(?:the |his |her |their |my |our )?[\w.@'-]+(?: [\w.@'-]+){0,3}?)?"
    r"[ ]*(?:is|was|are|=|:|to be|set to|changed to|to)[ ]*[:=]?[ ]*"
    r"(?P<quote>[\"'`“]?)(?P<value>[^\s\"'`“”]{4,200})",
    re.IGNORECASE,
)
_KNOWN: Final[Mapping[str, re.Pattern[str]]] = {
    "Google API key": re.compile(r"\bAIza[0-9A-Za-z_\-]{35}\b"),
    "Anthropic key": re.compile(r"\bsk-ant-[0-9A-Za-z_\-]{20,}"),
    "OpenAI key": re.compile(r"\bsk-(?:proj-|svcacct-|admin-)?[0-9A-Za-z_\-]{32,}"),
    "Hugging Face token": re.compile(r"\bhf_[0-9A-Za-z]{30,}\b"),
    "GitHub token": re.compile(r"\b(?:github_pat_[0-9A-Za-z_]{30,}|gh[pousr]_[0-9A-Za-z]{30,})\b"),
    "Groq key": re.compile(r"\bgsk_[0-9A-Za-z]{40,}\b"),
    "mem0 key": re.compile(r"\bm0-[0-9A-Za-z]{30,}\b"),
    "bearer token": re.compile(r"\bBearer [0-9A-Za-z_\-.=+/]{20,}"),
    "password in a URL": re.compile(
        r"\b[a-z][a-z0-9+.\-]{1,20}://[^\s:/@]{0,60}:[^\s:/@]{3,80}@[^\s@]+", re.IGNORECASE
    ),
    "private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----"),
}
_NO_VALUE: Final = re.compile(
    r"(?:https?://|/|~/|\$\{?[A-Z_]+\}?$|<[^>]*>$|\*+$|x+$|\.+$|\[[^]]*\]$)", re.IGNORECASE
)
"""Where it is kept, or that it is not told: a path, an address, a variable, a placeholder."""


def known_tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, value) of the credentials of a text that are known by their form alone."""
    for kind, form in _KNOWN.items():
        for match in form.finditer(text):
            yield kind, match[0]


def named_values(text: str) -> Iterator[tuple[str, str]]:
    """(kind, value) of the credentials of a text that are known by the words before them ("the password is …").

    Only a value that looks like one counts: with a digit and a letter, or a sign within, or digits for a PIN. "The
    password is kept in a safe" is none.
    """
    for match in _NAMED.finditer(text):
        value = match["value"].rstrip(".,;:!?)")
        if _looks_secret(value, match[0].lower(), bool(match["quote"])):
            yield "named in the text", value


def _looks_secret(value: str, before: str, quoted: bool) -> bool:
    if _NO_VALUE.match(value) or _OWN_FORMS.fullmatch(value):
        return False
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    if not letters:
        return (
            before.startswith(("pin", "passcode", "password")) and 4 <= digits <= 12 and digits == len(value)
        )
    signs = sum(not c.isalnum() and c not in "-'_." for c in value)
    mixed = any(c.islower() for c in value[1:]) and any(c.isupper() for c in value[1:])
    if len(value) < 6:
        return False
    return bool(digits or signs or (mixed and len(value) >= 8) or (quoted and len(value) >= 6))


def masked(value: str) -> str:
    """A credential so that its owner knows which one it is and nobody can use it: the mark of its kind at most."""
    known = re.match(
        r"(?:AKIA|ASIA|gh[pousr]_|github_pat_|sk-ant-|sk-|xox[a-z]-|AIza|hf_|gsk_|m0-|eyJ|SG\.|[sr]k_(?:live|test)_|-----BEGIN)",
        value,
    )
    return f"{known[0] if known else ''}… ({len(value)} characters)"


def texts_in(value: Any, depth: int = 4) -> Iterable[str]:
    """Every text within a payload's value: itself, or those in its lists and dicts, a few levels down."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, Mapping):
        for one in value.values():
            yield from texts_in(one, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for one in value:
            yield from texts_in(one, depth - 1)
