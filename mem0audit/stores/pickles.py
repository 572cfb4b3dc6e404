"""Points of an embedded Qdrant folder from their pickles, with an allow-list and a budget; no code runs.

qdrant-client's local mode pickles each point whole (one `PointStruct`) into a BLOB; loading that the
client's way runs whatever the pickle names. Here a name either stands for one of a few inert stand-ins
or is written down, and nothing is imported or called for it.

Three ways through a blob, each proven before it is taken, else the next:

1. *plain*: the head is what qdrant-client writes, the vector is one list of floats, the payload a flat
   dict of texts and other scalars. The floats are not built: their opcodes are checked by position, every
   opcode of the payload is looked at, and only the payload is unpickled.
2. *cut*: the same head and floats, any payload and any vectors beside (`bm25`): the floats are cut out and
   the rest goes through the restricted unpickler.
3. *whole*: everything else, at full cost.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import io
import math
import pickle
import re
import struct
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from mem0audit.core.model import PointId, VectorFacts

Decoded = tuple[PointId, dict[str, Any], VectorFacts]

MODELS: Final = "qdrant_client.http.models.models"
MAX_DEPTH: Final = 100
"""Containers inside each other in a payload; JSON writers and Qdrant's server stop near this too."""
SPARE_NODES: Final = 50_000
SPARE_TEXT: Final = 16 << 20
MAX_SHARED_TUPLES: Final = 16
MAX_NAMES: Final = 8


class UnreadablePoint(Exception):
    """A blob that does not decode, or whose `names` qdrant-client never writes (then it is unsafe).

    `reason` is one short line that never holds payload text.
    """

    def __init__(self, reason: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.names = names


class Opaque(str):
    """What stands in a payload for an object that is not JSON: inert, and JSON as its name."""

    __slots__ = ()


# --- Stand-ins for the classes that pickles name ---------------------------------------------------


class _Frozen(type):
    """BUILD sets attributes on whatever is on the stack, also on a class, for the whole process: refuse."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise pickle.UnpicklingError("a pickle sets an attribute of a class")


class _Model(metaclass=_Frozen):
    """A pydantic model. No `__setstate__`: then BUILD fills `__dict__` in C."""


class _PointStruct(_Model):
    pass


class _SparseVector(_Model):
    pass


class _Inert(metaclass=_Frozen):
    """An object of a known or unknown class: keeps what it was made from, calls nothing."""

    __slots__ = ("args", "state")
    called = "?"
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any, **_named: Any) -> _Inert:
        made = object.__new__(cls)
        made.args = args
        made.state = None
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Uuid(_Inert):
    __slots__ = ()
    called = "uuid.UUID"


class _Scalar(_Inert):
    __slots__ = ()
    called = "numpy scalar"


class _Array(_Inert):
    __slots__ = ()
    called = "numpy.ndarray"


class _Dtype(_Inert):
    __slots__ = ()
    called = "numpy.dtype"


class _Other(_Inert):
    __slots__ = ()
    called = "object"


class _Ordered(dict, metaclass=_Frozen):  # type: ignore[type-arg]
    pass


# Every name found in stores of qdrant-client 1.1.7 to 1.20.0 under Python 3.7 to 3.13 and both pydantics.
_KNOWN: Final[dict[tuple[str, str], Any]] = {
    (MODELS, "PointStruct"): _PointStruct,
    (MODELS, "SparseVector"): _SparseVector,
    ("uuid", "UUID"): _Uuid,
    ("uuid", "SafeUUID"): _Other,
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "date"): datetime.date,
    ("datetime", "time"): datetime.time,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    ("builtins", "set"): set,  # protocol 3 has no opcode for it
    ("builtins", "frozenset"): frozenset,
    ("__builtin__", "set"): set,
    ("__builtin__", "frozenset"): frozenset,
    ("collections", "OrderedDict"): _Ordered,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "scalar"): _Scalar,
    ("numpy._core.multiarray", "scalar"): _Scalar,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}(?:\.[A-Za-z_<][A-Za-z0-9_>]{0,60}){0,8}")


class _Unpickler(pickle.Unpickler):
    """Resolves names to stand-ins; collects those that qdrant-client never writes in `foreign`."""

    foreign: list[str] | None = None

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is not None:
            return known
        full = f"{module}.{name}"
        if self.foreign is None:
            self.foreign = []
        if len(self.foreign) < MAX_NAMES:
            self.foreign.append(full if _NAME.fullmatch(full) else "a name that is no Python name")
        return _Other


# --- Looking at the opcodes before anything is unpickled -------------------------------------------

_STEP = [0] * 256
"""Bytes an opcode takes with its argument, where that is fixed; 0 where it is not."""
for _size, _ops in (
    (1, b"N(.012)]}\x85\x86\x87tldaesubR\x81\x92\x93\x94\x8f\x90\x91\x88\x89oQ\x97\x98"),
    (2, b"Khq\x80"),
    (3, b"M"),
    (5, b"Jjr"),
    (9, b"G\x95"),
):
    for _op in _ops:
        _STEP[_op] = _size
_COUNTED: Final = {
    **dict.fromkeys(b"UC\x8c\x8a", 1),
    **dict.fromkeys(b"TXB\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}
_LINES: Final = {**dict.fromkeys(b"IFSVLgpP", 1), **dict.fromkeys(b"ci", 2)}
_EXTENSIONS: Final = b"\x82\x83\x84"
_TUPLES: Final = frozenset(b"t\x85\x86\x87")
# A memo entry made right after one of these holds no tuple.
_NO_TUPLE: Final = frozenset(b"NKMJGUCTXB\x8c\x8d\x8e\x96\x8a\x8bIFSVL]}\x8fld\x88\x89cR\x81\x92\x93\x91o)")
_FLOATS = re.compile(rb"(?:G.{8})+", re.DOTALL)


class _RefusedError(Exception):
    def __init__(self, reason: str, position: int, name: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position
        self.name = name


def _look(blob: bytes) -> None:
    """Refuse what would make the C unpickler allocate or hash without end, before it sees it.

    A memo index is an array index to it (`LONG_BINPUT 2**28` touches 4 GB), and hashing nested tuples that
    share their parts takes two to the power of their depth. Everything else is bounded by the blob's size.
    """
    at, size, steps = 0, len(blob), _STEP
    previous, shared, tuples = 0, 0, False
    memo: set[int] = set()
    suspects: set[int] = set()
    while at < size:
        op = blob[at]
        index, began = -1, at
        if op == 0x47:
            found = _FLOATS.match(blob, at)
            if found is None:
                return  # cut short: the unpickler says so
            at = found.end()
            previous = op
            continue
        step = steps[op]
        if step:
            if op == 0x94:
                index = len(memo)
            elif op == 0x71:
                index = blob[at + 1] if at + 1 < size else 0
            elif op == 0x72:
                index = int.from_bytes(blob[at + 1 : at + 5], "little")
            elif op == 0x2E:
                return
            elif op == 0x32:
                shared += 1
            elif suspects and op in b"hj":
                shared += int.from_bytes(blob[at + 1 : at + step], "little") in suspects
            elif op in _TUPLES:
                tuples = True
            at += step
        elif op in _COUNTED:
            width = _COUNTED[op]
            at += 1 + width + int.from_bytes(blob[at + 1 : at + 1 + width], "little")
            if at > size:
                raise _RefusedError("cut short", began)
        elif op in _LINES:
            start = at + 1
            for _ in range(_LINES[op]):
                at = blob.find(b"\n", at + 1)
                if at < 0:
                    return
            if op == 0x70 or op == 0x67:
                digits = blob[start:at]
                number = int(digits) if digits.isdigit() and len(digits) < 20 else size
                if op == 0x70:
                    index = number
                else:
                    shared += number in suspects
            at += 1
        elif op in _EXTENSIONS:
            raise _RefusedError("names an extension code", at, "an extension code of copyreg")
        else:
            raise _RefusedError("not a pickle", at)
        if index >= 0:
            if index > size:
                raise _RefusedError("a memo index beyond the row's size", began)
            memo.add(index)
            if tuples and previous not in _NO_TUPLE:
                suspects.add(index)
        if shared > MAX_SHARED_TUPLES:
            raise _RefusedError("nested tuples that share their parts", began)
        previous = op


def _load(blob: bytes) -> Any:
    """The object a blob holds, of stand-ins only."""
    refused: _RefusedError | None = None
    try:
        _look(blob)
    except _RefusedError as error:
        refused = error
        blob = blob[: max(error.position, 0)]  # what is named before that point would have run by then
    unpickler = _Unpickler(io.BytesIO(blob))
    try:
        loaded = unpickler.load()
    except Exception as error:  # noqa: BLE001 - the C unpickler raises nearly every kind on garbage
        names = list(dict.fromkeys(unpickler.foreign or ()))
        if refused is not None and refused.name:
            names.append(refused.name)
        if names:
            raise UnreadablePoint("names what qdrant-client never writes", tuple(names)) from None
        reason = refused.reason if refused else f"does not unpickle ({type(error).__name__})"
        raise UnreadablePoint(reason) from None
    if unpickler.foreign:
        raise UnreadablePoint(
            "names what qdrant-client never writes", tuple(dict.fromkeys(unpickler.foreign))
        )
    return loaded


# --- Plain values ----------------------------------------------------------------------------------

_NUMPY_CODES: Final = {
    "f8": "d", "f4": "f", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b",
    "u8": "Q", "u4": "I", "u2": "H", "u1": "B", "b1": "?",
}  # fmt: skip


def _numpy_values(dtype: Any, raw: Any) -> list[Any] | None:
    """Numbers from numpy's raw bytes, None where the type is not a plain number."""
    if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes) or not dtype.args:
        return None
    code = _NUMPY_CODES.get(str(dtype.args[0]))
    if code is None:
        return None
    state = dtype.state
    order = ">" if isinstance(state, tuple) and len(state) > 1 and state[1] == ">" else "<"
    width = struct.calcsize(order + code)
    if len(raw) % width:
        return None
    return list(struct.unpack(f"{order}{len(raw) // width}{code}", raw))


def _plain_inert(value: _Inert) -> Any:
    """The plain value behind a known stand-in, an `Opaque` for all others."""
    if isinstance(value, _Uuid):
        state = value.state
        number = state.get("int") if isinstance(state, dict) else None
        if isinstance(number, int) and 0 <= number < 1 << 128:
            return str(uuid.UUID(int=number))
    elif isinstance(value, _Scalar) and len(value.args) == 2:
        numbers = _numpy_values(*value.args)
        if numbers is not None and len(numbers) == 1:
            return numbers[0]
    elif isinstance(value, _Array):
        state = value.state
        if (
            isinstance(state, tuple)
            and len(state) == 5
            and isinstance(state[1], tuple)
            and len(state[1]) == 1
        ):
            numbers = _numpy_values(state[2], state[4])
            if numbers is not None:
                return numbers
    return Opaque(f"<{value.called}>")


class _Budget:
    """Counts what a value unfolds to: a shared part counts each time it is reached."""

    __slots__ = ("forbidden", "nodes", "text")

    def __init__(self, blob_size: int, forbidden: object = None) -> None:
        self.nodes = SPARE_NODES + 4 * blob_size
        self.text = SPARE_TEXT + 8 * blob_size
        self.forbidden = forbidden


class _ReachesVectorError(Exception):
    """The payload holds the very list whose floats were cut out."""


_SCALARS: Final = frozenset((str, int, float, bool, type(None)))
_AS_TEXT: Final[dict[type, Callable[[Any], str]]] = {
    datetime.datetime: datetime.datetime.isoformat,
    datetime.date: datetime.date.isoformat,
    datetime.time: datetime.time.isoformat,
    datetime.timedelta: str,
    datetime.timezone: str,
    decimal.Decimal: str,
}


def _plain(value: Any, budget: _Budget, depth: int) -> Any:
    """The value as JSON has it (sets and tuples as lists), unfolded within the budget."""
    budget.nodes -= 1
    if budget.nodes < 0:
        raise UnreadablePoint("a few bytes that unfold without end")
    kind = type(value)
    if kind in _SCALARS:
        if kind is str:
            budget.text -= len(value)
            if budget.text < 0:
                raise UnreadablePoint("a few bytes that unfold without end")
        elif kind is int and value.bit_length() > 4096:
            return Opaque("<a number of over 4096 bits>")
        return value
    if depth > MAX_DEPTH:
        raise UnreadablePoint(f"nested more than {MAX_DEPTH} deep")
    if value is budget.forbidden:
        raise _ReachesVectorError
    if kind is dict or kind is _Ordered:
        return {_key(key, budget): _plain(item, budget, depth + 1) for key, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        return [_plain(item, budget, depth + 1) for item in value]
    if kind is bytes or kind is bytearray:
        return Opaque(f"<{len(value)} bytes>")
    as_text = _AS_TEXT.get(kind)
    if as_text is not None:
        return as_text(value)
    if isinstance(value, _Inert):
        value = _plain_inert(value)
        return value if type(value) is Opaque else _plain(value, budget, depth + 1)
    return Opaque(f"<{getattr(kind, '__name__', 'object').lstrip('_')}>")


def _key(key: Any, budget: _Budget) -> str:
    if type(key) is not str:
        key = str(_plain(key, budget, MAX_DEPTH))
    budget.text -= len(key)
    return key  # type: ignore[no-any-return]


# --- Ids -------------------------------------------------------------------------------------------

_DASHED = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_UUID_SPELLINGS = re.compile(rf"(?:[0-9a-fA-F]{{32}}|{_DASHED}|\{{{_DASHED}\}}|urn:uuid:{_DASHED})")


def normalise_id(value: object) -> PointId:
    """A point id as qdrant-client 1.20 compares it: ints stay, a UUID in any spelling that Qdrant accepts
    becomes lower-case text with dashes, other text stays as it is. Raises UnreadablePoint for other types.
    """
    if type(value) is str:
        return str(uuid.UUID(value)) if _UUID_SPELLINGS.fullmatch(value) else value
    if type(value) is int:
        return value
    if isinstance(value, _Inert):
        plain = _plain_inert(value)
        if type(plain) in (str, int):
            return plain  # type: ignore[no-any-return]
    raise UnreadablePoint("a point id that is neither a whole number nor text")


def decode_key(key: object) -> PointId | None:
    """The id a row's key stands for, None where it does not decode.

    A key is base64 of the pickled id; protocol and spelling vary with the client and its Python, so that one
    id can have several keys. It names rows whose blob says nothing, and never decides identity.
    """
    if not isinstance(key, (str, bytes)) or len(key) > 4096:
        return None
    try:
        return normalise_id(_load(base64.b64decode(key, validate=True)))
    except (UnreadablePoint, binascii.Error, ValueError):
        return None


def candidate_keys(point_id: PointId) -> tuple[str, ...]:
    """The keys under which clients and Pythons so far store this id: protocols 2 to 5, UUID spellings,
    and UUID objects (qdrant-client up to 1.14.3)."""
    spellings: list[object] = [point_id]
    if isinstance(point_id, str) and _UUID_SPELLINGS.fullmatch(point_id):
        parsed = uuid.UUID(point_id)
        dashed, bare = str(parsed), parsed.hex
        spellings = [dashed, dashed.upper(), bare, bare.upper(), parsed]
        spellings += [f"urn:uuid:{dashed}", f"{{{dashed}}}"]
    keys = [
        base64.b64encode(pickle.dumps(spelling, protocol)).decode()
        for spelling in spellings
        for protocol in (4, 5, 3, 2)
    ]
    return tuple(dict.fromkeys(keys))


# --- Vectors ---------------------------------------------------------------------------------------

_FACTS: dict[tuple[int | None, str | None, tuple[str, ...]], VectorFacts] = {}


def _facts(dims: int | None, flaw: Any, names: tuple[str, ...] = ()) -> VectorFacts:
    """One shared instance for each distinct set of facts."""
    known = _FACTS.get((dims, flaw, names))
    if known is None:
        if len(_FACTS) > 1000:
            _FACTS.clear()
        known = _FACTS[dims, flaw, names] = VectorFacts(dims, flaw, names)
    return known


def _numbers(vector: Any) -> list[float] | None:
    """A dense vector's numbers, None where it is something else."""
    if type(vector) is list and set(map(type, vector)) == {float}:
        return vector
    if isinstance(vector, _Array):
        vector = _plain_inert(vector)
    if not isinstance(vector, (list, tuple)):
        return None
    numbers = [_plain_inert(item) if isinstance(item, _Scalar) else item for item in vector]
    if all(type(number) in (float, int, bool) for number in numbers):
        return numbers
    return None


def _flaw_of(numbers: list[float]) -> str | None:
    try:
        if not all(map(math.isfinite, numbers)):
            return "nan"
    except OverflowError:  # an int beyond every float
        return "nan"
    return None if any(numbers) else "zero"


def _dense(vector: Any) -> tuple[int | None, str | None]:
    """Length and flaw of a dense vector or a multivector (the length of its rows); (None, None) for others."""
    numbers = _numbers(vector)
    if numbers is not None:
        return len(numbers), _flaw_of(numbers)
    if isinstance(vector, (list, tuple)) and vector:
        rows = [_numbers(row) for row in vector]
        if all(row is not None for row in rows):
            flaws = {_flaw_of(row) for row in rows if row is not None}
            flaw = "nan" if "nan" in flaws else "zero" if flaws == {"zero"} else None
            return len(rows[0] or ()), flaw
    return None, None


def _vector_facts(vector: Any, cut: tuple[int, str | None] | None = None) -> VectorFacts:
    """Facts of a point's whole `vector` field; `cut` are dims and flaw of an unnamed vector cut out before."""
    if vector is None:
        return _facts(None, None)
    if not isinstance(vector, dict):
        dims, flaw = cut or _dense(vector)
        if dims is None:
            raise UnreadablePoint("a vector that is no list of numbers")
        return _facts(dims, flaw)
    dims, flaw = None, None
    names: list[str] = []
    for name, item in vector.items():
        if name == "":
            dims, found = cut or _dense(item)
            if dims is None and not isinstance(item, _SparseVector):
                raise UnreadablePoint("a vector that is no list of numbers")
        else:
            names.append(name if type(name) is str else "?")
            found = None if isinstance(item, _SparseVector) else _dense(item)[1]
        if found == "nan" or flaw is None:
            flaw = found
    return _facts(dims, flaw, tuple(names[:64]))


# --- Whole decode ----------------------------------------------------------------------------------


def _fields(point: Any) -> dict[str, Any]:
    if type(point) is not _PointStruct:
        raise UnreadablePoint("not a point")
    fields = point.__dict__.get("__dict__")
    if type(fields) is not dict or "id" not in fields:
        raise UnreadablePoint("a point without an id")
    return fields


def _payload(payload: Any, budget: _Budget) -> dict[str, Any]:
    if payload is None:
        return {}
    if not isinstance(payload, dict):
        raise UnreadablePoint("a payload that is no dict")
    if _SCALARS.issuperset(map(type, payload.values())) and all(type(key) is str for key in payload):
        longest = max((v.bit_length() for v in payload.values() if type(v) is int), default=0)
        if longest <= 4096 and sum(len(v) for v in payload.values() if type(v) is str) <= budget.text:
            return payload if type(payload) is dict else dict(payload)
    try:
        return _plain(payload, budget, 0)  # type: ignore[no-any-return]
    except (RecursionError, MemoryError):
        raise UnreadablePoint("nested too deep") from None


def decode_whole(blob: object) -> Decoded:
    """(normalised id, payload, vector facts) of any point qdrant-client 1.1.7 to 1.20 writes.

    The payload holds plain JSON values only: UUIDs, dates and decimals as text, sets and tuples as lists,
    numpy numbers as numbers, everything else as `Opaque` text. Raises UnreadablePoint.
    """
    if not isinstance(blob, bytes):
        raise UnreadablePoint("not a blob")
    fields = _fields(_load(blob))
    payload = _payload(fields.get("payload"), _Budget(len(blob)))
    return normalise_id(fields["id"]), payload, _vector_facts(fields.get("vector"))


class PointVectors(NamedTuple):
    """The numbers of a point's vectors as they lie on the disk: the unnamed dense one, and mem0's `bm25` as (indices,
    values); None where the point has none."""

    dense: list[float] | None
    keyword: tuple[list[int], list[float]] | None = None


def vectors_of(blob: object) -> PointVectors:
    """The vectors of one point (see `decode_whole`). Raises UnreadablePoint."""
    if not isinstance(blob, bytes):
        raise UnreadablePoint("not a blob")
    return _vectors_in(_fields(_load(blob)).get("vector"))


def _vectors_in(vector: Any) -> PointVectors:
    if not isinstance(vector, dict):
        return PointVectors(_numbers(vector))
    sparse = vector.get("bm25")
    fields = sparse.__dict__.get("__dict__") if isinstance(sparse, _SparseVector) else None
    keyword = None
    if isinstance(fields, dict):
        values, indices = _numbers(fields.get("values")), _numbers(fields.get("indices"))
        if values is None or indices is None or len(values) != len(indices):
            raise UnreadablePoint("a keyword vector that is none")
        keyword = [int(i) for i in indices], values
    return PointVectors(_numbers(vector.get("")), keyword)


class WholePoint(NamedTuple):
    """A point with all that it has: its normalised id, its payload as `decode_whole` gives it, its vectors."""

    id: PointId
    payload: dict[str, Any]
    vectors: PointVectors


def whole_point(blob: object) -> WholePoint:
    """One point with its vectors, decoded once (see `decode_whole`). Raises UnreadablePoint."""
    if not isinstance(blob, bytes):
        raise UnreadablePoint("not a blob")
    fields = _fields(_load(blob))
    payload = _payload(fields.get("payload"), _Budget(len(blob)))
    return WholePoint(normalise_id(fields["id"]), payload, _vectors_in(fields.get("vector")))


# --- The fast ways ---------------------------------------------------------------------------------

# What every PointStruct pickle starts with after PROTO and FRAME (pydantic 1 and 2, protocols 4 and 5).
_HEAD: Final = (
    b"\x8c\x20qdrant_client.http.models.models\x94\x8c\x0bPointStruct\x94\x93\x94)\x81\x94}\x94("
    b"\x8c\x08__dict__\x94}\x94(\x8c\x02id\x94"
)
_ID_AT: Final = 11 + len(_HEAD)
_AFTER_UUID: Final = _ID_AT + 38
# The vector field: a list, `{"": list}`, or a dict with more in it, its unnamed vector first.
_LIST: Final = b"\x8c\x06vector\x94]\x94"
_UNNAMED: Final = b"\x8c\x06vector\x94}\x94\x8c\x00\x94]\x94"
_SEVERAL: Final = b"\x8c\x06vector\x94}\x94(\x8c\x00\x94]\x94"
_PAYLOAD: Final = b"\x8c\x07payload\x94}\x94("
_AFTER_UNNAMED: Final = b"s" + _PAYLOAD
_HEX: Final = b"0123456789abcdef"
# After the payload: fields that pydantic keeps beside the point's own. The set's order varies.
_TAIL_2 = re.compile(
    rb"u\x8c\x12__pydantic_extra__\x94N\x8c\x17__pydantic_fields_set__\x94\x8f\x94\("
    rb"(?:h[\x07-\x0d]){3}\x90\x8c\x14__pydantic_private__\x94Nub\.",
    re.DOTALL,
)
_SHORT_TEXT, _TEXT, _SETITEMS, _MEMOIZE, _MARK, _APPENDS = 0x8C, 0x58, 0x75, 0x94, 0x28, 0x65
# Scalars of a payload that leave no memo entry: None, True, False, BININT1, BININT2, BININT, BINFLOAT.
_SMALL: Final = {0x4E: 1, 0x88: 1, 0x89: 1, 0x4B: 2, 0x4D: 3, 0x4A: 5, 0x47: 9}


_Batch = tuple[int, int, slice, bytes, slice]
"""A run of floats in a blob: where MARK is, where APPENDS is, every `G`, as many `G` as floats, and every byte after
one: the sign and the exponent's upper 7 bits."""


def _runs(dims: int, start: int) -> tuple[int, tuple[_Batch, ...]]:
    """The layout of a pickled list of `dims` floats at `start`: its length in bytes, and its batches; (0, ()) where
    it is not worth a form of its own.

    The pickler writes batches of up to 1000 as MARK, a BINFLOAT (`G` and 8 bytes) each, APPENDS.
    """
    batches = []
    at, left = start, dims
    while left:
        count = min(left, 1000)
        if count == 1:
            return 0, ()  # a last single float is written with APPEND: not worth a second form
        end = at + 1 + 9 * count
        batches.append((at, end, slice(at + 1, end, 9), b"G" * count, slice(at + 2, end, 9)))
        at = end + 1
        left -= count
    return at - start, tuple(batches)


def _count_floats(blob: bytes, at: int) -> int:
    """How many floats the list starting at `at` has; 0 where it is no plain list of floats."""
    total = 0
    while blob[at : at + 1] == b"(":
        found = _FLOATS.match(blob, at + 1, at + 1 + 9000)
        if found is None or blob[found.end() : found.end() + 1] != b"e":
            return 0
        count = (found.end() - at - 1) // 9
        total += count
        at = found.end() + 1
        if count < 1000:
            break
    return total


def _skip_int(blob: bytes, at: int) -> int:
    """Where the id's opcode ends when it is a whole number, 0 else."""
    size = {0x4B: 2, 0x4D: 3, 0x4A: 5}.get(blob[at], 0)
    if size:
        return at + size
    return at + 2 + blob[at + 1] if blob[at] == 0x8A else 0


def _exact_flaw(blob: bytes, batches: tuple[_Batch, ...]) -> str | None:
    """The flaw from the values themselves, for vectors whose first bytes leave it open."""
    return _flaw_of(_floats_in(blob, batches))


def point_decoder(dims: int | None = None) -> Callable[[Any], Decoded]:
    """A function from a row's blob to (normalised id, payload, vector facts), raising UnreadablePoint.

    `dims` is what meta.json says, a guess that saves time where it is right; every row is checked. What it
    returns equals `decode_whole`, at a fraction of the cost for what mem0 writes.
    """
    return _decoder(dims, with_vectors=False)


def whole_decoder(dims: int | None = None) -> Callable[[Any], WholePoint]:
    """The same with the vectors: what it returns equals `whole_point`."""
    return _decoder(dims, with_vectors=True)


def _decoder(dims: int | None, *, with_vectors: bool) -> Callable[[Any], Any]:
    otherwise: Callable[[Any], Any] = whole_point if with_vectors else decode_whole
    loads = pickle.loads
    heads: dict[int, bytes] = {}
    tails: set[bytes] = set()
    guess = dims if dims and dims > 1 else 0
    total, placed = 0, -1
    batches: tuple[_Batch, ...] = ()
    good = _facts(guess, None)

    def decode(blob: Any) -> Any:
        nonlocal guess, total, batches, placed, good
        try:
            size = len(blob)
            head = heads.get(size)
            if head is None:
                if len(heads) > 5000:
                    heads.clear()
                head = heads[size] = b"\x95" + (size - 11).to_bytes(8, "little") + _HEAD
            if blob[2:_ID_AT] != head or blob[0] != 0x80 or not 4 <= blob[1] <= 5:
                return otherwise(blob)
            # The id: a UUID as text in nearly every store of mem0's.
            if blob[_ID_AT] == _SHORT_TEXT and blob[_ID_AT + 1] == 36 and blob[_AFTER_UUID] == _MEMOIZE:
                raw = blob[_ID_AT + 2 : _AFTER_UUID]
                # a dash in each of the four places, and nothing but hexadecimal digits else
                if raw[8:24:5] == b"----" and raw.translate(None, _HEX) == b"----":
                    point_id: PointId = raw.decode("ascii")
                else:
                    point_id = normalise_id(raw.decode("utf-8", "surrogatepass"))
                at = _AFTER_UUID + 1
            else:
                at = _skip_int(blob, _ID_AT)
                if not at:
                    return otherwise(blob)
                point_id = loads(blob[:2] + blob[_ID_AT:at] + b".")
            # The vector: one list of floats, bare or under the empty name, alone or first of several.
            if blob[at : at + 16] == _UNNAMED:
                start, opening = at + 16, _AFTER_UNNAMED
            elif blob[at : at + 11] == _LIST:
                start, opening = at + 11, _PAYLOAD
            elif blob[at : at + 17] == _SEVERAL:
                start, opening = at + 17, b""
            else:
                return otherwise(blob)
            if start != placed:
                placed, (total, batches) = start, _runs(guess, start)
            if not total or blob[start + total] == _MARK or not _fits(blob, batches):
                guess = _count_floats(blob, start)
                total, batches = _runs(guess, start)
                good = _facts(guess, None)
                if not total or not _fits(blob, batches):
                    return otherwise(blob)
            # Zero, NaN and infinity from the byte after each G.
            flaw = None
            for _, _, _, _, uppers in batches:
                exponents = blob[uppers]
                if b"\x7f" in exponents or b"\xff" in exponents:
                    flaw = _exact_flaw(blob, batches)
                    break
            else:
                if blob[start + 2] in b"\x00\x80":
                    flaw = _exact_flaw(blob, batches)
            # The payload: walked opcode by opcode, then unpickled alone. No memo entry is ever fetched.
            after = start + total
            if opening and blob[after : after + len(opening)] == opening:
                at = after + len(opening)
                begin = at - 3
                texts_only = True
                while True:
                    op = blob[at]
                    if op == _SHORT_TEXT:
                        at += blob[at + 1] + 3
                        if blob[at - 1] != _MEMOIZE:
                            break
                    elif op == _SETITEMS:
                        tail = blob[at + 1 :]
                        if tail not in tails:
                            if len(tails) > 100 or not _TAIL_2.fullmatch(tail):
                                break
                            tails.add(tail)
                        payload = loads(b"\x80\x04" + blob[begin:at] + b"u.")
                        if texts_only or set(map(type, payload)) <= {str}:
                            if with_vectors:
                                return WholePoint(point_id, payload, PointVectors(_floats_in(blob, batches)))
                            return point_id, payload, good if flaw is None else _facts(guess, flaw)
                        break
                    elif op == _TEXT:
                        at += int.from_bytes(blob[at + 1 : at + 5], "little") + 6
                        if blob[at - 1] != _MEMOIZE:
                            break
                    elif op in _SMALL:
                        at += _SMALL[op]
                        texts_only = False
                    else:
                        break
            if with_vectors:
                return _whole_cut(blob, start, after, batches)
            return _decode_cut(blob, start, after, (guess, flaw))
        except (
            IndexError,
            OverflowError,
            UnicodeError,
            pickle.UnpicklingError,
            EOFError,
            ValueError,
            TypeError,
        ):
            return otherwise(blob)

    return decode


@cache
def _unpacker(count: int) -> Callable[[bytes], tuple[float, ...]]:
    """What takes so many floats out of a run of them, a `G` before each."""
    return struct.Struct(">" + "xd" * count).unpack


def _floats_in(blob: bytes, batches: tuple[_Batch, ...]) -> list[float]:
    """The floats themselves."""
    numbers: list[float] = []
    for mark, appends, _, marks, _ in batches:
        numbers += _unpacker(len(marks))(blob[mark + 1 : appends])
    return numbers


def _fits(blob: bytes, batches: tuple[_Batch, ...]) -> bool:
    """Whether these batches of floats are there, by the position of every opcode."""
    for mark, appends, all_marks, marks, _ in batches:
        if blob[all_marks] != marks or blob[mark] != _MARK or blob[appends] != _APPENDS:
            return False
    return True


def _decode_cut(blob: bytes, start: int, after: int, cut: tuple[int, str | None]) -> Decoded:
    """A point whose floats were looked at before."""
    fields, emptied = _without_floats(blob, start, after)
    if emptied is None:
        return decode_whole(blob)
    try:
        payload = _payload(fields.get("payload"), _Budget(len(blob), forbidden=emptied))
    except _ReachesVectorError:
        return decode_whole(blob)
    return normalise_id(fields["id"]), payload, _vector_facts(fields.get("vector"), cut)


def _whole_cut(blob: bytes, start: int, after: int, batches: tuple[_Batch, ...]) -> WholePoint:
    """The same for a point with its vectors."""
    fields, emptied = _without_floats(blob, start, after)
    if emptied is None:
        return whole_point(blob)
    try:
        payload = _payload(fields.get("payload"), _Budget(len(blob), forbidden=emptied))
    except _ReachesVectorError:
        return whole_point(blob)
    vectors = _vectors_in(fields.get("vector"))._replace(dense=_floats_in(blob, batches))
    return WholePoint(normalise_id(fields["id"]), payload, vectors)


def _without_floats(blob: bytes, start: int, after: int) -> tuple[dict[str, Any], list[Any] | None]:
    """A point's fields without the floats of its unnamed vector, and the list that they were in; None where there is
    no such list. Floats leave no memo entries, so that the rest keeps its meaning."""
    rest = blob[11:start] + blob[after:]
    fields = _fields(_load(blob[:2] + b"\x95" + len(rest).to_bytes(8, "little") + rest))
    vector = fields.get("vector")
    emptied = vector.get("") if isinstance(vector, dict) else vector
    return fields, emptied if type(emptied) is list and not emptied else None
