"""What an audit keeps of a point: digests, times and owner, never the text.

One record a point, small, because an install can hold a million of them. The key names are mem0's
(`data`, `hash`, `created_at`, …, as every release from 0.1 to 2.2 writes them; camelCase ones are
written by its TypeScript SDK).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from hashlib import md5
from typing import Any, NamedTuple

from mem0audit.core.model import KeepPoint, PointId, VectorFacts
from mem0audit.core.orders import may_be_order, order_in
from mem0audit.core.signs import FindSecrets, Secret, may_hold_secret, texts_in

OWNER_KEYS = ("user_id", "agent_id", "run_id")
CAMEL_KEYS = frozenset({"userId", "agentId", "runId", "createdAt", "updatedAt", "expirationDate"})

Owner = tuple[Any, Any, Any]
"""The scope of a memory: (user_id, agent_id, run_id) as stored; None where it names none."""

NO_TEXT = 1
"""No `data`, or one that is blank."""
STALE_HASH = 2
"""`hash` is there and is not the MD5 of `data`."""
CAMEL = 4
"""Keys of another SDK."""
TELEMETRY = 8
"""mem0's own telemetry point (`type` is `user_identity`)."""
NO_DATA = 16
"""No `data` key at all."""
LEMMATIZED = 32
"""Has `text_lemmatized`: mem0 2.0 or later wrote it last."""
MEM0_SHAPE = 64
"""Has text and a hash of a text, as every release from 0.0.16 on writes it."""
ODD_OWNER = 128
"""A scope id that is a list or a dict."""
LONGEST_SAID = 200
"""Characters of a role or an actor: what is longer is none."""

NOT_SAID = (None, None, None)
"""Of a memory that says nothing of where it came from."""


class Signs(NamedTuple):
    """What the wording and the origin of a point say against it.

    `said_by` is its role where that is not the user's, `order` how its text reads as an order to the agent (see
    `orders.order_in`), `secrets` the credentials in it, masked.
    """

    said_by: str | None
    order: str | None
    secrets: tuple[Secret, ...]


class PointRecord(NamedTuple):
    """A point of a memories' collection. `text` is the MD5 of `data`, None where there is none; `signs` are None
    where there are none, or nobody looked for them; `said` its role, actor_id and attributed_to."""

    rowid: int
    text: bytes | None
    flags: int
    created_at: Any
    updated_at: Any
    owner: Owner
    expires: Any
    vector: VectorFacts
    signs: Signs | None = None
    said: tuple[Any, Any, Any] = NOT_SAID


class EntityRecord(NamedTuple):
    """A point of an entities' collection: what it links and whose it is, and the credentials in its text."""

    rowid: int
    owner: Owner
    links: tuple[str, ...]
    vector: VectorFacts
    secrets: tuple[Secret, ...] = ()


def text_digest(text: str) -> bytes:
    """The MD5 of a memory's text, as mem0 computes its `hash` (of the UTF-8 bytes).

    Text that UTF-8 cannot hold (lone surrogates) is encoded so that equal texts stay equal.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    return md5(data, usedforsecurity=False).digest()


def owners_of(records: Iterable[PointRecord]) -> tuple[Owner, ...]:
    """Each owner once, in the order they come in; without those that are lists or dicts (`ODD_OWNER`)."""
    return tuple(dict.fromkeys([r.owner for r in records if not r.flags & ODD_OWNER]))


_WITHOUT_SECRETS = frozenset(
    (
        "data",
        "hash",
        "created_at",
        "updated_at",
        "text_lemmatized",
        "role",
        "attributed_to",
        "memory_type",
        *OWNER_KEYS,
    )
)
"""Keys that mem0 writes itself: no credential of somebody's, or (`text_lemmatized`) the text once more."""


def signs_of(payload: Mapping[str, Any], find: FindSecrets) -> Signs | None:
    """What a memory's wording and origin say against it: see `Signs`. The text is `data`; credentials are looked for
    in the caller's own metadata as well.

    mem0 writes `role` for infer=False (0.1.100 and later), `attributed_to` where the model gives it (2.0.0 and
    later); where there is neither, nothing is said of the origin.
    """
    data = payload.get("data")
    order = None
    secrets: tuple[Secret, ...] = ()
    if type(data) is str:
        if may_be_order(data):
            order = order_in(data)
        if may_hold_secret(data):
            secrets = find(data)
    if not _WITHOUT_SECRETS.issuperset(payload):
        for key, value in payload.items():
            if key not in _WITHOUT_SECRETS:
                for text in texts_in(value):
                    if may_hold_secret(text):
                        secrets += find(text)
    said_by = payload.get("role") or payload.get("attributed_to")
    if said_by == "user" or not isinstance(said_by, str):
        said_by = None
    if order is None and not secrets and said_by is None:
        return None
    return Signs(None if said_by is None else clipped(said_by, 50), order, tuple(dict.fromkeys(secrets)))


class MemoryKeeper:
    """Makes a `PointRecord` of each point. Equal owners are one object, shared between records.

    `find` looks for credentials; with it each text is judged by its wording too (`PointRecord.signs`).
    """

    def __init__(self, find: FindSecrets | None = None) -> None:
        self._owners: dict[Owner, Owner] = {}
        self._said: dict[tuple[Any, Any, Any], tuple[Any, Any, Any]] = {NOT_SAID: NOT_SAID}
        self._find = find

    def __call__(
        self, rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts
    ) -> PointRecord:
        """A point as read (see `model.KeepPoint`) in, its record out. Runs for every point: no calls to spare."""
        get = payload.get
        data = get("data")
        flags = 0
        text = None
        if type(data) is str:
            try:
                text = md5(data.encode(), usedforsecurity=False).digest()
                stored = get("hash")
                if stored is not None:
                    flags = MEM0_SHAPE if stored == text.hex() else MEM0_SHAPE | STALE_HASH
            except UnicodeEncodeError:
                # mem0 cannot hash such a text either, so there is no hash to compare with
                text = text_digest(data)
            if not data or data.isspace():
                flags |= NO_TEXT
        else:
            flags = NO_TEXT | NO_DATA if data is None else NO_TEXT
            if get("type") == "user_identity":
                flags |= TELEMETRY
        if "text_lemmatized" in payload:
            flags |= LEMMATIZED
        if not CAMEL_KEYS.isdisjoint(payload):
            flags |= CAMEL
        owner: Owner = (get("user_id"), get("agent_id"), get("run_id"))
        try:
            owner = self._owners.setdefault(owner, owner)
        except TypeError:
            flags |= ODD_OWNER  # a list or a dict: kept as it is
        created, updated = get("created_at"), get("updated_at")
        if updated == created:
            updated = created  # one string instead of two
        said = (get("role"), get("actor_id"), get("attributed_to"))
        try:
            said = self._said[said]
        except (KeyError, TypeError):
            said = self._as_said(said)
        signs = None if self._find is None else signs_of(payload, self._find)
        expires = get("expiration_date")
        return _new_record(
            PointRecord, (rowid, text, flags, created, updated, owner, expires, vector, signs, said)
        )

    def _as_said(self, given: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """What is no text, or a long one, is nothing that mem0 writes there."""
        role, actor, by = (one if type(one) is str and len(one) <= LONGEST_SAID else None for one in given)
        said = (role, actor, by)
        return self._said.setdefault(said, said)


_new_record = tuple.__new__  # what the class itself calls, without the call of its own


def entity_keeper(find: FindSecrets) -> KeepPoint[EntityRecord]:
    """`keep_entity` that looks for credentials too."""

    def keep(rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts) -> EntityRecord:
        record = keep_entity(rowid, point_id, payload, vector)
        data = payload.get("data")
        if type(data) is str and may_hold_secret(data) and (found := find(data)):
            return record._replace(secrets=found)
        return record

    return keep


def keep_entity(
    rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts
) -> EntityRecord:
    """A point of the entities' collection in (see `model.KeepPoint`), its record out.

    mem0 2.x writes `linked_memory_ids` as a list; anything else links nothing.
    """
    links = payload.get("linked_memory_ids")
    return EntityRecord(
        rowid,
        (payload.get("user_id"), payload.get("agent_id"), payload.get("run_id")),
        tuple(str(i) for i in links) if isinstance(links, (list, tuple)) else (),
        vector,
    )


def clipped(value: object, longest: int) -> str:
    """`value` as text of at most about `longest` characters, the beginning and how long it is. Never raises:
    a whole number can be too long for Python to spell."""
    try:
        text = value if isinstance(value, str) else str(value)
    except ValueError:
        return f"a number of {int.bit_length(value):,} bits" if isinstance(value, int) else "not shown"
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def owner_id(stored: Any) -> str | None:
    """An owner's id as it is asked for: without spaces around it, a whole number as its text, which is what mem0 2.x
    makes of what it is given. None for what is no id."""
    if isinstance(stored, bool) or not isinstance(stored, (str, int)):
        return None
    if isinstance(stored, int) and stored.bit_length() > 128:
        return None
    return str(stored).strip()


def normalised(word: str) -> PointId:
    """A point id as a user types it: a UUID in any spelling as lower-case text with dashes, an int as one.

    Anything else stays as it is: history can hold ids that no point can have.
    """
    text = word.strip()
    if text.isascii() and text.isdigit() and len(text) <= len(str(1 << 64)):
        return int(text)
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return text


def shown_owner(owner: Owner) -> str:
    """An owner for people: `user alice, agent a7`; `no owner` where it names none."""
    named = [
        f"{key[:-3]} {clipped(value, 100)}"
        for key, value in zip(OWNER_KEYS, owner, strict=True)
        if value is not None
    ]
    return ", ".join(named) or "no owner"
