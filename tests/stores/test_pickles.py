"""The unpickler: what qdrant-client writes decodes exactly, and what nobody should load does nothing."""

from __future__ import annotations

import json
import os
import pickle
import random
import sqlite3
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from qdrant_client.http.models import PointStruct, SparseVector

from mem0audit.core.model import VectorFacts
from mem0audit.stores import pickles
from mem0audit.stores.pickles import (
    UnreadablePoint,
    decode_key,
    decode_whole,
    normalise_id,
    point_decoder,
    whole_decoder,
    whole_point,
)
from tests.speed import Allowance

DATA = Path(__file__).parent.parent / "data"
MODELS = b"cqdrant_client.http.models.models\n"


def blob_of(point_id: Any, vector: Any, payload: Any, protocol: int | None = None) -> bytes:
    """As qdrant-client's local persistence pickles a point."""
    return pickle.dumps(PointStruct.model_construct(id=point_id, vector=vector, payload=payload), protocol)


def vector(dims: int) -> list[float]:
    return [random.Random(dims).uniform(-1, 1) for _ in range(dims)]


def texts(dims: int) -> dict[str, Any]:
    return {
        "data": f"text {dims} \u00e9\u4e2d",
        "user_id": "alice",
        "hash": "0" * 32,
        "created_at": "2026-01-01",
    }


# --- The fast ways equal the whole decode ----------------------------------------------------------


def every_blob() -> list[tuple[str, bytes]]:
    found = []
    for path in sorted(DATA.rglob("storage.sqlite")):
        connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
        found += [
            (str(path), row[0]) for row in connection.execute("SELECT point FROM points ORDER BY rowid")
        ]
        connection.close()
    return found


def test_every_row_of_every_store_decodes_alike_by_all_ways() -> None:
    blobs = every_blob()
    assert len(blobs) > 700
    decoders = {dims: point_decoder(dims) for dims in (None, 8, 16)}
    with_vectors = whole_decoder()
    for path, blob in blobs:
        whole = decode_whole(blob)
        for dims, decode in decoders.items():
            assert repr(decode(blob)) == repr(whole), (path, dims)
        json.dumps(whole[1])
        assert repr(with_vectors(blob)) == repr(whole_point(blob)), path


PAYLOADS: list[dict[str, Any]] = [
    texts(1),
    {
        **texts(2),
        "n": 1,
        "big": 1 << 70,
        "f": 0.5,
        "none": None,
        "yes": True,
        "no": False,
        "h": 300,
        "m": -70000,
    },
    {**texts(3), "long": "x" * 300, "longer": "\u00e9" * 200},
    {"data": "y" * 70_000, "user_id": "alice"},
    {
        "linked_memory_ids": [str(uuid.UUID(int=n)) for n in range(30)],
        "data": "d",
        "nested": {"a": {"b": [1, {}]}},
    },
    {},
    {"one": "1"},
    {"": ""},
    {"nul": "a\0b", "surrogate": "\ud800 half", "escape": "\x1b[31m[bold]"},
]


@pytest.mark.parametrize("dims", [1, 2, 3, 8, 999, 1000, 1001, 1002, 1536, 2000, 2001, 3072, 7281, 12288])
def test_synthetic_points_decode_alike(dims: int) -> None:
    floats = vector(dims)
    sparse = SparseVector(indices=[3, 70_000], values=[0.5, 0.25])
    shapes = [
        floats,
        {"": floats},
        {"": floats, "bm25": sparse},
        {"bm25": sparse, "": floats},
        {"text": floats},
    ]
    decode, with_vectors = point_decoder(dims), whole_decoder()
    for shape in shapes:
        for payload in PAYLOADS:
            for point_id in (str(uuid.UUID(int=dims)), 7, 300, 1 << 40)[: 4 if dims < 1600 else 1]:
                blob = blob_of(point_id, shape, payload)
                got = decode(blob)
                assert got == decode_whole(blob)
                assert with_vectors(blob) == whole_point(blob)
                assert got[0] == point_id
                assert got[1] == payload
                named = isinstance(shape, dict) and "" not in shape
                names = tuple(n for n in shape if n) if isinstance(shape, dict) else ()
                assert got[2] == VectorFacts(None if named else dims, None, names)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol(protocol: int) -> None:
    for shape in (vector(8), {"": vector(8)}):
        blob = blob_of("01234567-89ab-cdef-0123-456789abcdef", shape, texts(1), protocol)
        assert point_decoder(8)(blob) == decode_whole(blob)
        assert decode_whole(blob) == (
            "01234567-89ab-cdef-0123-456789abcdef",
            texts(1),
            VectorFacts(8, None),
        )


def test_pydantic_1_and_texts_shared_between_values() -> None:
    shared = "the same object"
    blob = blob_of(1, vector(8), {"data": shared, "text_lemmatized": shared, "id": "id", "vector": "payload"})
    assert b"h" in blob
    assert point_decoder(8)(blob)[1] == {
        "data": shared, "text_lemmatized": shared, "id": "id", "vector": "payload"
    }  # fmt: skip


def test_a_payload_that_holds_the_vector_itself() -> None:
    floats = vector(8)
    for shape in (floats, {"": floats}):
        for payload in ({"data": "d", "v": floats}, {"data": "d", "deep": {"v": [floats]}}):
            blob = blob_of(1, shape, payload)
            assert point_decoder(8)(blob) == decode_whole(blob)
            assert decode_whole(blob)[1] == payload
            assert whole_decoder()(blob) == whole_point(blob)
    outer = {"": floats}
    blob = blob_of(1, outer, {"data": "d", "v": outer})
    assert point_decoder(8)(blob)[1] == {"data": "d", "v": outer}
    assert whole_decoder()(blob) == whole_point(blob)


@pytest.mark.parametrize("where", [0, 1, 999, 1000, 1535])
@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        (float("nan"), "nan"),
        (-float("nan"), "nan"),
        (float("inf"), "nan"),
        (-float("inf"), "nan"),
        (1.7e308, None),
        (-1.7e308, None),
        (5e-324, None),
        (0.0, None),
    ],
)
def test_flaws_are_found_wherever_they_are(where: int, value: float, flaw: str | None) -> None:
    floats = vector(1536)
    floats[where] = value
    for shape in (floats, {"": floats}, {"": floats, "bm25": SparseVector(indices=[], values=[])}):
        blob = blob_of(1, shape, texts(1))
        assert point_decoder(1536)(blob)[2].flaw == flaw
        assert decode_whole(blob)[2].flaw == flaw


def test_zero_vectors() -> None:
    for dims in (1, 2, 8, 1000, 1001, 1536):
        for zeros in ([0.0] * dims, [-0.0] * dims, [0] * dims):
            blob = blob_of(1, {"": zeros}, texts(1))
            assert point_decoder(dims)(blob)[2] == decode_whole(blob)[2] == VectorFacts(dims, "zero")
        almost = [0.0] * dims
        almost[-1] = 5e-324
        assert point_decoder(dims)(blob_of(1, almost, {}))[2] == VectorFacts(dims, None)


def test_vectors_of_other_kinds() -> None:
    cases: list[tuple[Any, VectorFacts]] = [
        (None, VectorFacts(None, None)),
        ([], VectorFacts(0, "zero")),
        ({}, VectorFacts(None, None)),
        ([1, 2, 3], VectorFacts(3, None)),
        ([1, 2.5, 3], VectorFacts(3, None)),
        ([[1.0, 2.0], [0.0, 0.0]], VectorFacts(2, None)),
        ([[0.0, 0.0]], VectorFacts(2, "zero")),
        ({"image": vector(4), "text": vector(8)}, VectorFacts(None, None, ("image", "text"))),
        ({"image": [float("nan")]}, VectorFacts(None, "nan", ("image",))),
    ]
    for shape, facts in cases:
        blob = blob_of(1, shape, texts(1))
        assert point_decoder(8)(blob)[2] == decode_whole(blob)[2] == facts
    with pytest.raises(UnreadablePoint, match="no list of numbers"):
        decode_whole(blob_of(1, "text", {}))


def test_the_dims_hint_may_be_wrong_and_may_change_from_row_to_row() -> None:
    decode = point_decoder(1536)
    for dims in (8, 1536, 16, 8, 3072, 1, 1000, 2000, 1536):
        assert decode(blob_of(1, {"": vector(dims)}, texts(1)))[2] == VectorFacts(dims, None)


def test_facts_are_shared() -> None:
    decode = point_decoder(8)
    first, second = (decode(blob_of(n, {"": vector(8)}, texts(n)))[2] for n in (1, 2))
    assert first is second


def test_a_python_value_that_hides_among_floats_is_seen() -> None:
    """Bytes that fit the length of a float but are other opcodes must not be cut out unseen."""
    floats = vector(1000)
    blob = bytearray(blob_of(1, {"": floats}, texts(1)))
    at = blob.index(b"]\x94(G") + 3 + 9 * 500
    hidden = b"\x8c\x02os\x8c\x03abc"[:9]
    blob[at : at + 9] = hidden
    with pytest.raises(UnreadablePoint):
        point_decoder(1000)(bytes(blob))
    hiding = blob_of(1, {"": [*floats[:500], "seven77", *floats[501:]]}, texts(1))  # 9 bytes of text opcode
    with pytest.raises(UnreadablePoint):
        point_decoder(1000)(hiding)


# --- Ids -------------------------------------------------------------------------------------------


def test_ids_are_normalised_as_the_client_does_it() -> None:
    from qdrant_client.local.utils import normalize_point_id

    canonical = "01234567-89ab-cdef-0123-456789abcdef"
    spellings = [
        canonical, canonical.upper(), canonical.replace("-", ""), f"urn:uuid:{canonical}", f"{{{canonical}}}",
        canonical[:-1] + "F", "not a uuid", canonical + " ", "0123456789abcdef-0123456789abcdef----", "",
        "01234567-89ab-cdef-0123-456789abcde\u0661", 5, 0, (1 << 64) - 1,
    ]  # fmt: skip
    for spelling in spellings:
        assert normalise_id(spelling) == normalize_point_id(spelling)
        for shape in (vector(8), {"": vector(8)}):
            assert point_decoder(8)(blob_of(spelling, shape, texts(1)))[0] == normalize_point_id(spelling)
    assert decode_whole(blob_of(uuid.UUID(canonical), vector(8), {}))[0] == canonical
    for odd in (None, 1.5, True, b"x", [1]):
        with pytest.raises(UnreadablePoint, match="point id"):
            decode_whole(blob_of(odd, vector(8), {}))


def test_keys_of_the_real_stores_decode_and_are_among_the_candidates() -> None:
    for path in sorted(DATA.rglob("storage.sqlite")):
        connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
        for key, blob in connection.execute("SELECT id, point FROM points"):
            point_id = decode_whole(blob)[0]
            assert decode_key(key) == point_id
            assert key in pickles.candidate_keys(point_id)
        connection.close()


@pytest.mark.parametrize(
    "key", [None, 5, 1.5, b"", "", "####", "gARLAS4", "YWJj", "x" * 10_000, b"\xff\xfe", "\udcff"]
)
def test_garbage_keys_are_no_id(key: object) -> None:
    assert decode_key(key) is None


# --- What is not JSON ------------------------------------------------------------------------------


def test_payloads_are_plain_json() -> None:
    import datetime
    import decimal

    import numpy

    number = uuid.UUID(int=5)
    payload = {
        "uuid": number,
        "when": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc),
        "day": datetime.date(2026, 1, 2),
        "long": datetime.timedelta(days=1),
        "money": decimal.Decimal("1.50"),
        "set": {1},
        "tuple": (1, 2),
        "bytes": b"abc",
        "scalar": numpy.float64(1.5),
        "count": numpy.int32(7),
        "array": numpy.array([1.0, 2.0]),
        "table": numpy.zeros((2, 2)),
        5: "five",
    }
    got = decode_whole(blob_of(1, vector(8), payload))[1]
    assert got == {
        "uuid": str(number),
        "when": "2026-01-02T03:04:05+00:00",
        "day": "2026-01-02",
        "long": "1 day, 0:00:00",
        "money": "1.50",
        "set": [1],
        "tuple": [1, 2],
        "bytes": "<3 bytes>",
        "scalar": 1.5,
        "count": 7,
        "array": [1.0, 2.0],
        "table": "<numpy.ndarray>",
        "5": "five",
    }
    json.dumps(got)
    assert isinstance(got["table"], pickles.Opaque)
    assert point_decoder(8)(blob_of(1, vector(8), payload))[1] == got


def test_vectors_of_numpy_floats() -> None:
    import numpy

    blob = blob_of(1, [numpy.float64(0.5)] * 8, {})
    assert decode_whole(blob)[2] == VectorFacts(8, None)
    assert decode_whole(blob_of(1, numpy.array([0.0, 0.0]), {}))[2] == VectorFacts(2, "zero")


# --- Hostile blobs ---------------------------------------------------------------------------------


def point_with(value: bytes, protocol: bytes = b"\x80\x04") -> bytes:
    """A point's pickle with raw opcodes as the payload's `evil` value."""
    fields = (
        b"}(X\x02\x00\x00\x00idK\x01X\x06\x00\x00\x00vectorNX\x07\x00\x00\x00payload}X\x04\x00\x00\x00evil"
    )
    return protocol + MODELS + b"PointStruct\n)\x81}X\x08\x00\x00\x00__dict__" + fields + value + b"susb."


class Payload:
    """Pickles to a call of `function`."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


UNSAFE = {
    "reduce": pickle.dumps(Payload(os.system, "touch PROOF")),
    "in a payload": blob_of(1, vector(8), {"x": Payload(os.system, "touch PROOF")}),
    "as the id": blob_of(Payload(os.system, "touch PROOF"), vector(8), {}),
    "as the vector": blob_of(1, Payload(os.system, "touch PROOF"), {}),
    "inside the vector": blob_of(1, [0.5, Payload(os.system, "touch PROOF")], {}),
    "as a payload key": blob_of(1, vector(8), {Payload(os.getcwd): 1}),
    "global": point_with(b"cos\nsystem\n(X\x0b\x00\x00\x00touch PROOFtR"),
    "inst": point_with(b"(X\x0b\x00\x00\x00touch PROOFios\nsystem\n"),
    "obj": point_with(b"(cos\nsystem\nX\x0b\x00\x00\x00touch PROOFo"),
    "eval": point_with(b"cbuiltins\neval\n(X\x10\x00\x00\x00open('PROOF','w')tR"),
    "stack global": point_with(b"\x8c\x02os\x8c\x06system\x93\x8c\x0btouch PROOF\x85R"),
    "dotted": point_with(b"\x8c\x08datetime\x8c\x12datetime.__class__\x93)\x81"),
    "newobj": point_with(b"csubprocess\nPopen\nX\x0b\x00\x00\x00touch PROOF\x85\x81"),
    "newobj_ex": point_with(b"csubprocess\nPopen\nX\x0b\x00\x00\x00touch PROOF\x85}\x92"),
    "build": point_with(b"cos\nenviron\n}X\x05\x00\x00\x00PROOFX\x01\x00\x00\x001sb"),
    "getattr": point_with(b"cbuiltins\ngetattr\n(cos\npath\nX\x02\x00\x00\x00ostR"),
    "ext1": point_with(b"\x82\x01"),
    "ext4": point_with(b"\x84\x01\x00\x00\x00"),
    "protocol 0": b"cos\nsystem\n(S'touch PROOF'\ntR.",
    "before a memo bomb": point_with(b"cos\nsystem\n(X\x0b\x00\x00\x00touch PROOFtRr\x00\x00\x00\x10"),
    "before garbage": point_with(b"cos\nsystem\n(X\x0b\x00\x00\x00touch PROOFtR")[:-8] + b"\xff\xff",
    "terminal escapes": point_with(b"c\x1b[2Jos\nsys[bold]tem\n)R"),
}
BROKEN = {
    "empty": b"",
    "text": b"hello",
    "only the head": blob_of(1, vector(8), {})[:100],
    "persistent id": point_with(b"Ppid\n"),
    "binary persistent id": point_with(b"NQ"),
    "build on a class": MODELS + b"PointStruct\n(N}X\x01\x00\x00\x00aK\x01stb.",
    "class as point": MODELS + b"PointStruct\n.",
    "build a class's dict": MODELS + b"PointStruct\n}X\x01\x00\x00\x00aK\x01sb.",
    "long binput": point_with(b"Kar\x00\x00\x00\x7f"),
    "small long binput": point_with(b"Kar\x00\x00\x00\x04"),
    "put": point_with(b"Kap134217728\n"),
    "negative put": point_with(b"Kap-5\n"),
    "binunicode8": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x",
    "bytearray8": b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + b"x",
    "binbytes8": b"\x80\x04\x8e" + struct.pack("<Q", (1 << 63) - 1) + b"x",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",
    "long4": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "negative long4": b"\x80\x02\x8b\xff\xff\xff\xff.",
    "nesting": b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "nesting in a payload": point_with(b"]" * 100_000 + b"a" * 99_999),
    "bad utf-8": point_with(b"X\x02\x00\x00\x00\xff\xfe"),
    "unhashable key": point_with(b"}]Nsa"),
    "get of nothing": point_with(b"hz"),
    "pop of nothing": b"0.",
    "stop of nothing": b".",
    "future protocol": b"\x80\x7f" + blob_of(1, vector(8), {})[2:],
    "not a point": pickle.dumps({"id": 1}),
    "a sparse vector": pickle.dumps(SparseVector(indices=[1], values=[0.5])),
    "no state": MODELS + b"PointStruct\n)\x81.",
    "state no dict": MODELS + b"PointStruct\n)\x81}X\x08\x00\x00\x00__dict__Nsb.",
    "no id": MODELS + b"PointStruct\n)\x81}X\x08\x00\x00\x00__dict__}sb.",
    "payload a list": blob_of(1, vector(8), ["x"]),
    "int not text": b"\x80\x04I" + b"9" * 10_000 + b"\n.",
}


def bombs() -> dict[str, bytes]:
    """A few bytes that unfold, or take an age to hash."""
    lists = b"]Ka" + b"a"
    for n in range(40):
        lists += b"q" + bytes([n + 10]) + b"]h" + bytes([n + 10]) + b"ah" + bytes([n + 10]) + b"a"
    dicts = b"}"
    for n in range(40):
        memo = bytes([n + 10])
        dicts += b"q" + memo + b"}K\x01h" + memo + b"sK\x02h" + memo + b"s"
    tuples = b")"
    for _ in range(60):
        tuples += b"2\x86"
    by_memo = b"Ka\x85"
    for n in range(60):
        memo = bytes([n + 10])
        by_memo += b"q" + memo + b"h" + memo + b"\x86"
    by_pop = b"Ka\x85"
    for n in range(60):
        memo = bytes([n + 10])
        by_pop += b"N0q" + memo + b"h" + memo + b"\x86"
    text = b"]X" + struct.pack("<I", 1 << 16) + b"y" * (1 << 16) + b"q\x0a0" + b"(" + b"h\x0a" * 60_000 + b"e"
    cycle = b"]q\x0ah\x0aa"
    return {
        "lists": point_with(lists),
        "dicts": point_with(dicts),
        "tuples as a key": point_with(b"}" + tuples + b"Ns"),
        "tuples by memo as a key": point_with(b"}" + by_memo + b"Ns"),
        "tuples behind a pop as a key": point_with(b"}" + by_pop + b"Ns"),
        "tuples in a set": point_with(b"\x8f(" + tuples + b"\x90"),
        "one text many times": point_with(text),
        "a list in itself": point_with(cycle),
    }


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_blobs_name_what_they_would_run_and_run_nothing(
    name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for decode in (decode_whole, point_decoder(8)):
        with pytest.raises(UnreadablePoint) as caught:
            decode(UNSAFE[name])
        assert caught.value.names
        assert "touch" not in caught.value.reason + "".join(caught.value.names)
        assert all(part.isprintable() and "[" not in part for part in caught.value.names)
    assert os.listdir(tmp_path) == []
    assert "PROOF" not in os.environ


def test_names_are_said() -> None:
    with pytest.raises(UnreadablePoint) as caught:
        decode_whole(UNSAFE["in a payload"])
    assert caught.value.names in {("posix.system",), ("os.system",)}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_blobs_do_not_decode_and_say_nothing_of_their_text(name: str) -> None:
    for decode in (decode_whole, point_decoder(8)):
        with pytest.raises(UnreadablePoint) as caught:
            decode(BROKEN[name])
        assert caught.value.names == ()
        assert len(caught.value.reason) < 80
    assert not hasattr(pickles._PointStruct, "a")


@pytest.mark.parametrize("name", bombs())
def test_bombs_end_at_once(name: str) -> None:
    blob = bombs()[name]
    begun, within = time.process_time(), Allowance()
    for decode in (decode_whole, point_decoder(8)):
        with pytest.raises(UnreadablePoint):
            decode(blob)
    assert time.process_time() - begun < within(2)


@pytest.mark.parametrize("blob", [None, 5, 1.5, "text", ""])
def test_values_that_are_no_blob(blob: object) -> None:
    for decode in (decode_whole, point_decoder(8)):
        with pytest.raises(UnreadablePoint):
            decode(blob)


def test_all_of_it_in_little_memory_without_importing_the_clients() -> None:
    """In a fresh process: every hostile blob through both decoders within 100 MB, nothing foreign imported."""
    code = """
import re, sys, pickle
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
blobs = pickle.load(sys.stdin.buffer)
from mem0audit.stores import pickles
before = peak()
raised = 0
for blob in blobs:
    for decode in (pickles.decode_whole, pickles.point_decoder(8)):
        try:
            decode(blob)
        except pickles.UnreadablePoint:
            raised += 1
grown = peak() - before
foreign = {"qdrant_client", "numpy", "pydantic", "mem0"} & set(sys.modules)
print(raised, grown // 1024, sorted(foreign))
"""
    blobs = [*UNSAFE.values(), *BROKEN.values(), *bombs().values()]
    run = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(blobs), capture_output=True, check=True, timeout=300
    )
    raised, grown, foreign = run.stdout.decode().split(maxsplit=2)
    assert int(raised) == 2 * len(blobs)
    assert int(grown) < 100
    assert foreign.strip() == "[]"


def test_random_damage_never_raises_anything_else_and_never_disagrees() -> None:
    rng = random.Random(5)
    sources = [
        blob_of(str(uuid.UUID(int=9)), {"": vector(8)}, texts(1)),
        blob_of(3, vector(1001), PAYLOADS[1]),
        blob_of(3, {"": vector(8), "bm25": SparseVector(indices=[1], values=[0.5])}, PAYLOADS[4]),
    ]
    agreed = 0
    for _ in range(4000):
        blob = bytearray(rng.choice(sources))
        for _ in range(rng.choice((1, 1, 2, 5))):
            blob[rng.randrange(len(blob))] = rng.randrange(256)
        if rng.random() < 0.2:
            del blob[rng.randrange(len(blob)) :]
        results = []
        for decode in (decode_whole, point_decoder(8), whole_point, whole_decoder()):
            try:
                results.append(repr(decode(bytes(blob))))
            except UnreadablePoint as error:
                results.append(repr(bool(error.names)))
        assert results[0] == results[1], bytes(blob)
        assert results[2] == results[3], bytes(blob)
        agreed += results[0].startswith("(")
    assert agreed > 300


def test_large_texts() -> None:
    blob = blob_of(1, {"": vector(8)}, {"data": "\u4e2d" * 3_500_000, "user_id": "a"})
    assert len(point_decoder(8)(blob)[1]["data"]) == 3_500_000
