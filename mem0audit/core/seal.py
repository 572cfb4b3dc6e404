"""Seals: what both stores were at a look, so that a later look can say what changed behind mem0's back.

A seal holds a digest of every history row, in their order, and of every memory, part by part; it is chained to the
seal before it. Rows newer than a seal explain what they say of their memory: an ADD that it is there, an UPDATE its
text, times and metadata, a DELETE that it is gone. What nothing explains is a difference.

A seal cannot see what a forger writes as mem0 does: a planted memory with an ADD row of its own, metadata changed in a
memory that mem0 updated afterwards, or anything from before the first seal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from mem0audit.core import versions
from mem0audit.core.model import HistoryRow, NotChecked, PointId, VectorFacts
from mem0audit.core.points import LEMMATIZED, MemoryKeeper, PointRecord
from mem0audit.core.signs import FindSecrets
from mem0audit.core.snapshot import canonical
from mem0audit.core.timeline import ADD, DELETE, UPDATE

PARTS: Final = ("text", "user", "agent or run", "metadata", "times")
"""What is told apart of a memory, in the order in which the digests stand."""
WHOLE_BYTES: Final = 7
"""For the whole payload; it stands first, and where it is as sealed its parts need no digests."""
PART_BYTES: Final = 5
"""For each part. Enough, since the digests are keyed: nobody can look for another text with the same one without the
ledger."""
ROW_BYTES: Final = 16
"""8 for a history row's id, 8 for all its columns."""

_OWN: Final = frozenset(("data", "user_id", "agent_id", "run_id", "created_at", "updated_at"))


# --- Digests ---------------------------------------------------------------------------------------

_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_TEXT: Final = frozenset((str,))


def _hash(key: bytes, size: int, spelled: str) -> bytes:
    return blake2b(spelled.encode("utf-8", "surrogatepass"), digest_size=size, key=key).digest()


def _part(key: bytes, value: Any) -> bytes:
    return _hash(key, PART_BYTES, canonical(value))


def _row_digest(key: bytes, value: Any) -> bytes:
    """Of what SQLite gives: text, numbers, bytes and None have one spelling each, which is quick to make."""
    return _hash(key, 8, repr(value))


def text_part(key: bytes, text: Any) -> bytes:
    """The digest of a memory's text, as it stands in `SealedPoint.parts` first."""
    return _part(key, text)


class SealedPoint(PointRecord):
    """A point's record with the digests of its parts."""

    parts: bytes


class SealKeeper(MemoryKeeper):
    """Makes a `SealedPoint` of each point. Used only where there is a seal or one is made: it takes longer.

    `known` are the memories of the last seal, as in `State.memories`.
    """

    def __init__(self, key: bytes, known: Mapping[str, bytes], find: FindSecrets | None = None) -> None:
        super().__init__(find)
        self.key = key
        self.known = known

    def __call__(
        self, rowid: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts
    ) -> PointRecord:
        """A point as read (see `model.KeepPoint`) in, its record out. Runs for every point: no calls to spare."""
        sealed: SealedPoint = tuple.__new__(SealedPoint, super().__call__(rowid, point_id, payload, vector))
        if _PLAIN.issuperset(map(type, payload.values())) and _TEXT.issuperset(map(type, payload)):
            spelled = repr(sorted(payload.items()))
        else:
            spelled = canonical(payload)
        whole = _hash(self.key, WHOLE_BYTES, spelled)
        was = self.known.get(point_id if type(point_id) is str else str(point_id))
        sealed.parts = was if was is not None and was.startswith(whole) else whole + _parts(self.key, payload)
        return sealed


def _parts(key: bytes, payload: Mapping[str, Any]) -> bytes:
    get = payload.get
    return b"".join(
        (
            text_part(key, get("data")),
            _part(key, get("user_id")),
            _part(key, (get("agent_id"), get("run_id"))),
            _part(key, {name: value for name, value in payload.items() if name not in _OWN}),
            _part(key, (get("created_at"), get("updated_at"))),
        )
    )


def _named(parts: bytes) -> dict[str, bytes]:
    """The digest of each part by its name."""
    return {
        name: parts[at : at + PART_BYTES]
        for name, at in zip(PARTS, range(WHOLE_BYTES, len(parts), PART_BYTES), strict=True)
    }


@dataclass(frozen=True)
class State:
    """What is sealed: `rows` are ROW_BYTES a history row in their order, `memories` maps an id to its parts.

    `schema` is the history's (a 7-column log loses texts and times when mem0 migrates it), `mem0` the agent's version
    where it is known, `last_row` the id of the last history row.
    """

    rows: bytes
    memories: Mapping[str, bytes]
    schema: str | None = None
    mem0: str | None = None
    last_row: str | None = None

    @property
    def row_count(self) -> int:
        """How many history rows."""
        return len(self.rows) // ROW_BYTES

    def digest(self) -> bytes:
        """One digest of all rows and memories (32 bytes)."""
        total = blake2b(self.rows, digest_size=32)
        total.update(len(self.rows).to_bytes(8, "big"))
        for memory_id in sorted(self.memories):
            total.update(self.memories[memory_id])
            total.update(memory_id.encode("utf-8", "surrogatepass") + b"\0")
        return total.digest()


@dataclass(frozen=True)
class Seal:
    """One entry of the chain. `at` is seconds since 1970; `kind` is "seal", or our own operation ("restore").

    `accepted` names what was unexplained and let stand, `reason` is what the user said to it. `state` is the digest
    of the state, `previous` that of the entry before (b"" for the first).
    """

    number: int
    at: float
    kind: str
    mem0: str | None
    schema: str | None
    rows: int
    last_row: str | None
    memories: int
    accepted: tuple[str, ...]
    reason: str | None
    state: bytes
    previous: bytes

    def digest(self) -> bytes:
        """What the next entry names as the one before it."""
        fields = (
            *(
                self.number,
                self.at,
                self.kind,
                self.mem0,
                self.schema,
                self.rows,
                self.last_row,
                self.memories,
            ),
            *(self.accepted, self.reason, self.state, self.previous),
        )
        return blake2b(canonical(fields).encode("utf-8", "surrogatepass"), digest_size=32).digest()


def chain_problem(seals: Sequence[Seal]) -> str | None:
    """What is wrong with a chain read back, oldest first; None where each entry follows from the one before."""
    previous = b""
    for number, seal in enumerate(seals, 1):
        if seal.number != number or seal.previous != previous:
            return f"seal {number} does not follow from the one before it"
        previous = seal.digest()
    return None


# --- What a new look finds --------------------------------------------------------------------------


@dataclass
class _NewRows:
    """The rows of one memory that are newer than the seal."""

    events: list[Any]
    first_old: bytes | None
    texts: set[bytes]
    emptied: bool = False


@dataclass(frozen=True)
class RowDifference:
    """A history row that is not as it was sealed ("changed"), or stands where none was ("put between")."""

    what: str
    rowid: int
    memory_id: str | None


class SealedRows:
    """Takes history rows (a `model.RowSink`) and lays them beside those that were sealed.

    `known` are the sealed rows, as in `State.rows`. Where they were of a log of 7 columns (`was_seven`) a row may have
    lost its texts and times since: mem0 0.1.107 and later keep of such a log ids and events only.
    """

    def __init__(self, key: bytes, known: bytes = b"", was_seven: bool = False) -> None:
        self.key = key
        self.known = known
        self.was_seven = was_seven
        self.digests = bytearray()
        self.new: dict[str, _NewRows] = {}
        self.differing: list[RowDifference] = []
        self.last: tuple[int, Any] | None = None
        """Rowid and id of the last row."""
        self.seen = 0
        """How many of the sealed rows are still there."""
        self._rest: dict[bytes, tuple[bytes, int]] | None = None
        self._highest = -1
        self._between: list[RowDifference] = []

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page; pages come in rowid order and never repeat a row."""
        for row in page:
            self._row(row)

    def _row(self, row: HistoryRow) -> None:
        key, position, known = self.key, len(self.digests), self.known
        self.last = (row[0], row[1])
        content = _row_digest(key, row[1:])
        if self._rest is None and known[position + 8 : position + ROW_BYTES] == content:
            # what nearly every row is: as it was sealed, its id among its columns
            self.digests += known[position : position + ROW_BYTES]
            self.seen += 1
            self._highest = position
            return
        row_id = _row_digest(key, row.id)
        self.digests += row_id + content
        if self._rest is None and position >= len(known):
            self._newer(row)
            return
        if self._rest is None:
            if known[position : position + 8] == row_id and self._is_migrated(row):
                self.seen += 1
                self._highest = position
                return
            self._rest = _by_id(known, position)
        found = self._rest.pop(row_id, None)
        if found is None:
            self._between.append(RowDifference("put between", row.rowid, _memory_id(row)))
            self._newer(row)
            return
        was, was_at = found
        self.seen += 1
        # what came before this row, and was not sealed, stands between sealed rows
        self.differing += self._between
        self._between = []
        if (was != content and not self._is_migrated(row)) or was_at < self._highest:
            self.differing.append(RowDifference("changed", row.rowid, _memory_id(row)))
        self._highest = max(self._highest, was_at)

    def _is_migrated(self, row: HistoryRow) -> bool:
        lost = (row.old_memory, row.new_memory, row.created_at, row.updated_at)
        return self.was_seven and all(value is None for value in lost)

    def _newer(self, row: HistoryRow) -> None:
        memory_id = _memory_id(row)
        if memory_id is None:
            return
        old = text_part(self.key, row.old_memory) if row.old_memory else None
        found = self.new.get(memory_id)
        if found is None:
            found = self.new[memory_id] = _NewRows([], old, set())
        found.events.append(row.event)
        if row.new_memory:
            found.texts.add(text_part(self.key, row.new_memory))
        elif row.event in (ADD, UPDATE):
            found.emptied = True

    def gone(self) -> tuple[int, ...]:
        """The places (from 0) of the sealed rows that are no longer there, in order."""
        if self._rest is not None:
            return tuple(sorted(place // ROW_BYTES for _, place in self._rest.values()))
        return tuple(range(len(self.digests) // ROW_BYTES, len(self.known) // ROW_BYTES))


def _memory_id(row: HistoryRow) -> str | None:
    value = row.memory_id
    return value if type(value) is str or value is None else str(value)


def _by_id(known: bytes, start: int) -> dict[bytes, tuple[bytes, int]]:
    """Sealed rows from a place on: the digest of the id -> (digest of the columns, place in bytes)."""
    return {
        known[at : at + 8]: (known[at + 8 : at + ROW_BYTES], at) for at in range(start, len(known), ROW_BYTES)
    }


@dataclass(frozen=True)
class PointDifference:
    """A memory that is not as it was sealed: "changed" in some parts, "planted" or "removed"."""

    memory_id: str
    what: str
    parts: tuple[str, ...] = ()
    rowid: int | None = None


@dataclass(frozen=True)
class SealCheck:
    """What nothing explains, beside the last seal. All empty: everything is explained.

    `reset`: nothing of what was sealed is left in either store, as after mem0's `reset()`. `rolled_back`: the log ends
    where it ended before, and the memories are not those of the seal: both stores are older.
    """

    seal: Seal
    points: tuple[PointDifference, ...] = ()
    rows: tuple[RowDifference, ...] = ()
    rows_gone: int = 0
    first_gone: int | None = None
    """Which of the sealed rows is the first that is gone, counted from 1."""
    rolled_back: bool = False
    reset: bool = False

    @property
    def unexplained(self) -> bool:
        """Something is."""
        return bool(self.points or self.rows or self.rows_gone or self.rolled_back or self.reset)

    def names(self) -> tuple[str, ...]:
        """What is unexplained, a name each: for a seal that accepts exactly that."""
        if self.reset:
            return ("reset",)
        if self.rolled_back:
            return (f"D311 {self.rows_gone} rows, {len(self.points)} memories",)
        found = [f"D310 {p.memory_id} {' '.join((p.what, *p.parts))}" for p in self.points]
        found += [f"H408 {row.what} {row.memory_id or ''}".rstrip() for row in self.rows]
        if self.rows_gone:
            found.append(f"H408 {self.rows_gone} rows gone")
        return tuple(found)


@dataclass(frozen=True)
class LastSeal:
    """The newest seal and its state, as the ledger gives them."""

    seal: Seal
    state: State


NO_SEAL: Final = NotChecked("seal", "no seal yet", gap=False)


@dataclass(frozen=True)
class Sealing:
    """How to look where there is a seal, or one is made: with which key, and beside which seal.

    `last` says why where there is none.
    """

    key: bytes = field(repr=False)
    last: LastSeal | NotChecked = NO_SEAL

    @property
    def known(self) -> Mapping[str, bytes]:
        """The memories of the last seal, as in `State.memories`."""
        return {} if isinstance(self.last, NotChecked) else self.last.state.memories

    def beside(self) -> SealedRows:
        """A sink for the rows of the log as it is now."""
        if isinstance(self.last, NotChecked):
            return SealedRows(self.key)
        state = self.last.state
        return SealedRows(self.key, state.rows, was_seven=state.schema == "7 columns")


def check(
    last: LastSeal, rows: SealedRows, points: Iterable[tuple[str, PointRecord]], mem0: str | None
) -> SealCheck:
    """What is not as it was sealed and is explained by nothing. `mem0` is the agent's version now, None if unknown.

    `points` are the memories as read with a `SealKeeper`, `rows` the log as read beside the sealed rows.
    """
    now: dict[str, SealedPoint] = {i: p for i, p in points if isinstance(p, SealedPoint)}
    gone = rows.gone()
    sealed = last.state.memories
    if last.state.rows and not rows.seen and (not sealed or now.keys().isdisjoint(sealed)):
        return SealCheck(last.seal, reset=True)
    ran = (last.seal.mem0, mem0)
    different = tuple(_differences(sealed, now, rows.new, ran))
    total = len(last.state.rows) // ROW_BYTES
    is_tail = bool(gone) and not rows.differing and gone[0] == total - len(gone)
    if is_tail and rows.seen and different:
        return SealCheck(last.seal, different, (), len(gone), gone[0] + 1, rolled_back=True)
    return SealCheck(last.seal, different, tuple(rows.differing), len(gone), gone[0] + 1 if gone else None)


def _differences(
    sealed: Mapping[str, bytes],
    now: Mapping[str, SealedPoint],
    new: Mapping[str, _NewRows],
    ran: tuple[str | None, str | None],
) -> Iterable[PointDifference]:
    without_row = versions.changes_times_without_row(*ran)
    moves_owner = versions.moves_owner_on_update(*ran)
    for memory_id, point in now.items():
        was, rows = sealed.get(memory_id), new.get(memory_id)
        if was is None:
            if rows is None or ADD not in rows.events:
                yield PointDifference(memory_id, "planted", rowid=point.rowid)
            continue
        if was == point.parts and (rows is None or rows.first_old is None):
            continue
        before, after = _named(was), _named(point.parts)
        parts = {name for name in PARTS if before[name] != after[name]}
        if rows is None:
            # mem0 1.0.9 to 1.0.11 write these on a NONE event; a point that 2.x wrote last is not from there
            if without_row and not point.flags & LEMMATIZED:
                parts -= {"times", "agent or run"}
        else:
            parts = _unexplained(parts, before["text"], after["text"], rows, moves_owner)
        if parts:
            ordered = tuple(name for name in PARTS if name in parts)
            yield PointDifference(memory_id, "changed", ordered, point.rowid)
    for memory_id in sealed.keys() - now.keys():
        rows = new.get(memory_id)
        if rows is None or DELETE not in rows.events:
            yield PointDifference(memory_id, "removed")
        elif _found_another_text(_named(sealed[memory_id])["text"], rows):
            yield PointDifference(memory_id, "changed", ("text",))


def _unexplained(
    parts: set[str], sealed: bytes, stored: bytes, rows: _NewRows, moves_owner: bool
) -> set[str]:
    """The parts that the rows newer than the seal do not explain; `sealed` and `stored` are the texts' digests."""
    if ADD in rows.events:
        return set()
    left = parts - {"metadata", "times"} if UPDATE in rows.events else parts
    if moves_owner:
        left -= {"user", "agent or run"}
    if "text" in left and (stored in rows.texts or rows.emptied):
        left.discard("text")
    if _found_another_text(sealed, rows):
        left.add("text")
    return left


def _found_another_text(sealed: bytes, rows: _NewRows) -> bool:
    """What mem0 found when it next changed the memory is not the text that was sealed. (Threads that change one
    memory at once see each other's texts too.)"""
    found = rows.first_old
    return found is not None and found != sealed and found not in rows.texts
