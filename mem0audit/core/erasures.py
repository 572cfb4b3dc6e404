"""The record of erasures: who was erased and when, without saying who.

An erasure covers every older memory of its scope, and every one of its ids, in any copy. It is kept in the ledger and
beside the snapshots (`erasures.json`), as salted digests: they show nothing by themselves, but do not hide a scope
from somebody who can guess it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from math import isfinite
from typing import Any, Final

from mem0audit.core.model import NotChecked
from mem0audit.core.points import OWNER_KEYS, Owner, owner_id
from mem0audit.core.snapshot import canonical

RECORD: Final = "erasures.json"
"""The file's name in a folder of snapshots."""
KIND: Final = "mem0audit-erasures"
FORMAT: Final = 1

_SALT: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class NotARecord(Exception):
    """The file does not say what a record of erasures says; one line, without anything from the stores."""


@dataclass(frozen=True)
class Erasure:
    """One erasure. `at` is when it was done, seconds since 1970; `salt` is hexadecimal (16 bytes).

    `scope` is the salted digest of what was named (a user, an agent, a run or several of them together), "" where only
    single memories were; `ids` are those of the memories that were deleted.
    """

    at: float
    salt: str
    scope: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class ErasureRecord:
    """Every erasure on record, oldest first. `read` are the places whose record could be read, `not_read` the others,
    each with why."""

    erasures: tuple[Erasure, ...]
    read: tuple[str, ...]
    not_read: tuple[NotChecked, ...] = ()

    @property
    def known(self) -> bool:
        """A record could be read, so that no erasure in it means that there was none."""
        return bool(self.read)

    def since(self, at: float) -> tuple[Erasure, ...]:
        """Those that a copy taken `at` (seconds since 1970) does not have yet."""
        return tuple(one for one in self.erasures if one.at >= at)


def make_erasure(at: float, salt: str, scope: Owner | None, ids: Iterable[str] = ()) -> Erasure:
    """An erasure of a scope (user, agent, run: None for what was not named) and of these memories.

    `at` is in seconds since 1970; `salt` are 32 random hexadecimal digits, new for each erasure. Raises ValueError for
    another salt, and where neither a scope nor an id is named.
    """
    if not _SALT.fullmatch(salt):
        raise ValueError("a salt is 32 hexadecimal digits")
    named = scope is not None and any(value is not None for value in scope)
    if scope is not None:
        user, agent, run = (value if (spelled := owner_id(value)) is None else spelled for value in scope)
        scope = (user, agent, run)
    digests = tuple(sorted({_digest(salt, "id", one) for one in ids}))
    if not named and not digests:
        raise ValueError("an erasure is of a scope or of memories")
    return Erasure(at, salt, _scope_digest(salt, scope) if scope is not None and named else "", digests)


def is_covered(erasure: Erasure, owner: Owner, memory_id: str | None = None) -> bool:
    """Whether an erasure is of this memory: of its id, or of a scope that its owner lies in.

    A memory of a user and an agent lies in the scope of the user, of the agent, and of both. A list as an owner's id
    means each of its members, as Qdrant's filters have it; spaces around an id are nothing, and a whole number is its
    text, as where memories are deleted.
    """
    if memory_id is not None and erasure.ids and _digest(erasure.salt, "id", memory_id) in erasure.ids:
        return True
    if not erasure.scope:
        return False
    return any(_scope_digest(erasure.salt, one) == erasure.scope for one in _scopes_of(owner))


def _scopes_of(owner: Owner) -> Iterator[Owner]:
    """Every scope that names a memory of this owner."""
    choices = []
    for value in owner:
        ids = value if isinstance(value, (list, tuple)) else (value,)
        spelled = [one for one in map(owner_id, ids) if one is not None]
        # as it is stored too: so it stands in the records of those who named it so
        choices.append((None, *spelled, *(one for one in ids if one is not None and one not in spelled)))
    for one in product(*choices):
        if any(value is not None for value in one):
            yield one


def _scope_digest(salt: str, scope: Owner) -> str:
    named = {key: value for key, value in zip(OWNER_KEYS, scope, strict=True) if value is not None}
    return _digest(salt, "scope", named)


def _digest(salt: str, what: str, value: Any) -> str:
    line = f"{what} {canonical(value)}".encode("utf-8", "surrogatepass")
    return sha256(bytes.fromhex(salt) + line).hexdigest()


def joined(*records: Sequence[Erasure]) -> tuple[Erasure, ...]:
    """All of them once, oldest first; of one that was put on record as it began and as it ended, the end."""
    by_salt: dict[str, Erasure] = {}
    for one in (one for record in records for one in record):
        there = by_salt.get(one.salt)
        if there is None or (one.at, one.scope, one.ids) > (there.at, there.scope, there.ids):
            by_salt[one.salt] = one
    return tuple(sorted(by_salt.values(), key=lambda e: (e.at, e.salt)))


# --- The file --------------------------------------------------------------------------------------


def erasures_text(erasures: Sequence[Erasure]) -> str:
    """The file: JSON, ASCII, with a checksum over what it lists."""
    listed = [{"at": e.at, "salt": e.salt, "scope": e.scope, "ids": list(e.ids)} for e in joined(erasures)]
    body = {"kind": KIND, "format": FORMAT, "erasures": listed, "sha256": _checksum(listed)}
    return json.dumps(body, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _checksum(listed: list[dict[str, Any]]) -> str:
    return sha256(json.dumps(listed, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def parse_erasures(data: bytes) -> tuple[Erasure, ...]:
    """The file read strictly. Raises NotARecord with one line; a newer format is named as one."""
    try:
        raw = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError):
        raise NotARecord("is no JSON") from None
    if not isinstance(raw, dict) or raw.get("kind") != KIND:
        raise NotARecord("is no record of erasures")
    number = raw.get("format")
    if type(number) is int and number > FORMAT:
        raise NotARecord(f"has format {number}, of a newer mem0audit: this one reads format {FORMAT}")
    if type(number) is not int or number != FORMAT:
        raise NotARecord("names no format that there was")
    if set(raw) != {"kind", "format", "erasures", "sha256"} or not isinstance(raw["erasures"], list):
        raise NotARecord("lists no erasures")
    found = tuple(_parsed(one) for one in raw["erasures"])
    if raw["sha256"] != _checksum(raw["erasures"]):
        raise NotARecord("is not what was written: its checksum differs")
    return found


def _parsed(raw: Any) -> Erasure:
    if not isinstance(raw, Mapping) or set(raw) != {"at", "salt", "scope", "ids"}:
        raise NotARecord("lists an erasure that is none")
    at, salt, scope, ids = raw["at"], raw["salt"], raw["scope"], raw["ids"]
    texts = isinstance(salt, str) and isinstance(scope, str) and isinstance(ids, list)
    if type(at) not in (int, float) or not isfinite(at) or not texts:
        raise NotARecord("lists an erasure that is none")
    if not _SALT.fullmatch(salt) or (scope and not _DIGEST.fullmatch(scope)) or not (scope or ids):
        raise NotARecord("lists an erasure that is none")
    if not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in ids):
        raise NotARecord("lists an erasure that is none")
    return Erasure(float(at), salt, scope, tuple(ids))
