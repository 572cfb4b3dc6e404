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
from math import isfinite, prod
from typing import Any, Final

from mem0audit.core.model import NotChecked
from mem0audit.core.points import OWNER_KEYS, Owner, owner_id
from mem0audit.core.scopes import owner_of_session
from mem0audit.core.snapshot import Manifest, canonical
from mem0audit.core.times import instant

RECORD: Final = "erasures.json"
"""The file's name in a folder of snapshots."""
KIND: Final = "mem0audit-erasures"
FORMAT: Final = 1

SAME_S: Final = 60.0
"""A memory of a copy was made at most so long after the copy was begun; a later time is one that somebody gave it."""
MOST_SCOPES: Final = 100_000
"""An owner whose ids are lists lies in the scopes of every choice from them; of more choices only single ids count."""

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

    def for_copy(self, manifest: Manifest) -> tuple[Erasure, ...]:
        """Those that may cover what a copy holds (see `for_copy`)."""
        return for_copy(self.erasures, manifest)


def for_copy(erasures: Sequence[Erasure], manifest: Manifest) -> tuple[Erasure, ...]:
    """Those that may cover what a copy holds: the ones since it was taken; of a backup that was imported, whose time is
    only that of its newest file, all."""
    return tuple(one for one in erasures if one.at >= manifest.taken_at or not manifest.pair)


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
    """Every scope that names a memory of this owner, once."""
    choices: list[tuple[Any, ...]] = []
    for value in owner:
        ids = value if isinstance(value, (list, tuple)) else (value,)
        # as it is stored too: so it stands in the records of those who named it so
        spelled = {canonical(one): one for raw in ids for one in (owner_id(raw), raw) if one is not None}
        choices.append((None, *spelled.values()))
    if prod(map(len, choices)) > MOST_SCOPES:
        for place, several in enumerate(choices):
            for one in several[1:]:
                yield (*(None,) * place, one, *(None,) * (2 - place))
        return
    for scope in product(*choices):
        if any(value is not None for value in scope):
            yield scope


def made_at(created_at: object, manifest: Manifest) -> float | None:
    """When a memory of a copy was made (seconds since 1970); None where that is not known or later than the copy."""
    at = instant(created_at)
    return None if at is None or at > manifest.taken_at + SAME_S else at


class Covering:
    """What several erasures cover, asked for many memories: each different owner is hashed once an erasure, and each
    id once."""

    def __init__(self, erasures: Sequence[Erasure]) -> None:
        self.erasures = tuple(erasures)
        self._ids = [(one.salt, frozenset(one.ids)) for one in erasures if one.ids]
        self._latest: dict[str, float | None] = {}
        self.met: set[str] = set()
        """The salts of those that cover something that was asked for."""

    def has_id(self, memory_id: object) -> bool:
        """Whether this very memory was erased."""
        met = [salt for salt, ids in self._ids if _digest(salt, "id", str(memory_id)) in ids]
        self.met.update(met)
        return bool(met)

    def latest(self, owner: Owner) -> float | None:
        """When a scope that this owner lies in was erased last (seconds since 1970); None: never."""
        key = canonical(owner)
        if key not in self._latest:
            scopes = list(_scopes_of(owner)) if any(value is not None for value in owner) else []
            covering = [
                one
                for one in self.erasures
                if one.scope and any(_scope_digest(one.salt, scope) == one.scope for scope in scopes)
            ]
            self.met.update(one.salt for one in covering)
            self._latest[key] = max((one.at for one in covering), default=None)
        return self._latest[key]

    def covers(self, owner: Owner) -> bool:
        """Whether a scope that this owner lies in was erased."""
        return self.latest(owner) is not None

    def covers_messages(self, session: str) -> bool:
        """Whether a session scope of the `messages` table lies in a scope that was erased."""
        return self.covers(owner_of_session(session))

    def covers_memory(self, owner: Owner, memory_id: object, made_at: float | None) -> bool:
        """Whether a memory was erased: by its id, or as an older one of a scope that its owner lies in.

        `made_at` is when it was made (seconds since 1970); one whose time is not known counts as older.
        """
        at = self.latest(owner)
        return (at is not None and (made_at is None or made_at <= at)) or self.has_id(memory_id)


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
