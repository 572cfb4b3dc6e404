"""The manifest as text and back, strictly; digests that depend on nothing but what they digest."""

from __future__ import annotations

import dataclasses
import json
import random
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem0audit.core.model import HistoryRow, Origin, VectorFacts
from mem0audit.core.points import PointRecord
from mem0audit.core.snapshot import (
    HistoryDigest,
    Manifest,
    NotAManifest,
    SnapshotFile,
    checksum_text,
    manifest_text,
    name_of,
    parse_manifest,
    points_digest,
)

MANIFEST = Manifest(
    name="2026-11-29T023000Z",
    created_at="2026-11-29 02:30:00Z",
    history=Origin("/h é \ud800/history.db", "--history"),
    vectors=Origin("/q", "--qdrant-path"),
    collection=Origin("mem0", "mem0's default"),
    mem0_dir=Origin("/m", "mem0's default"),
    hostname="host",
    filesystems={"history": "ext4", "vectors": None},
    versions={"mem0audit": "0", "mem0ai": None},
    files=(SnapshotFile("history.db", 7, "0" * 64, "/h/history.db", None, "wal", "backup"),),
    counts={"memories": 1, "entities": None},
    points_digest="1" * 64,
    history_digest="",
    findings={"D301": 2},
    settled=False,
    unsettled_why="a memory is stored and not logged yet",
    tries=3,
    longest_hold_s=0.25,
)


def test_a_manifest_comes_back_as_it_was() -> None:
    text = manifest_text(MANIFEST)
    assert text.isascii()
    assert parse_manifest(text.encode("ascii")) == MANIFEST
    assert checksum_text(text.encode()) == f"{sha256(text.encode()).hexdigest()}  manifest.json\n"


def test_a_short_lived_one_names_its_end_and_no_other_does() -> None:
    assert "until" not in json.loads(manifest_text(MANIFEST))
    short = dataclasses.replace(MANIFEST, until="2026-12-01 07:18:06Z")
    assert parse_manifest(manifest_text(short).encode("ascii")) == short
    assert short.short_lived_until == 1796109486.0 and MANIFEST.short_lived_until is None
    with pytest.raises(NotAManifest, match="at a time that is none"):
        parse_manifest(manifest_text(dataclasses.replace(MANIFEST, until="soon")).encode("ascii"))


def test_every_field_is_needed_and_no_other_is_taken() -> None:
    raw = json.loads(manifest_text(MANIFEST))
    for key in raw:
        less = {k: v for k, v in raw.items() if k != key}
        with pytest.raises(NotAManifest):
            parse_manifest(json.dumps(less).encode())
    with pytest.raises(NotAManifest):
        parse_manifest(json.dumps({**raw, "more": 1}).encode())
    with pytest.raises(NotAManifest, match="newer mem0audit"):
        parse_manifest(json.dumps({**raw, "format": 3, "what": "comes then"}).encode())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([f.name for f in dataclasses.fields(Manifest)] + ["kind", "format"]), VALUES)
def test_any_value_is_taken_or_refused(field: str, value: Any) -> None:
    raw = {**json.loads(manifest_text(MANIFEST)), field: value}
    try:
        parse_manifest(json.dumps(raw).encode())
    except NotAManifest as problem:
        assert "\n" not in str(problem)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../b", "a//b", "", ".", "a/", "a\0b"])
def test_no_path_leads_outside(path: str) -> None:
    raw = json.loads(manifest_text(MANIFEST))
    raw["files"][0]["path"] = path
    with pytest.raises(NotAManifest, match="outside"):
        parse_manifest(json.dumps(raw).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(NotAManifest):
        parse_manifest(data)


def test_names() -> None:
    assert name_of(1_796_000_000.9) == "2026-11-30T005320Z"


def point(rowid: int, text: bytes = b"t", owner: Any = ("alice", None, None)) -> PointRecord:
    return PointRecord(rowid, text, 0, "2026", "2026", owner, None, VectorFacts(8, None, ("bm25",)))


def test_the_digest_of_points_knows_no_order_and_no_rowids() -> None:
    rows = {f"id{i}": point(i) for i in range(50)}
    shuffled = list(rows.items())
    random.Random(3).shuffle(shuffled)
    again = {k: v._replace(rowid=v.rowid + 1000) for k, v in shuffled}
    digest = points_digest([("mem0", rows)])
    assert points_digest([("mem0", again)]) == digest
    assert len(digest) == 64
    changes: list[Any] = [
        [("other", rows)],
        [("mem0", {**rows, "id7": point(7, b"u")})],
        [("mem0", {**rows, "id7": point(7, owner=("bob", None, None))})],
        [("mem0", {**rows, "id7": point(7, owner=({"a": 1}, None, None))})],
        [("mem0", {**rows, "id7": point(7)._replace(vector=VectorFacts(8, "zero"))})],
        [("mem0", {k: v for k, v in rows.items() if k != "id7"})],
        [("mem0", {**rows, "id50": point(50)})],
        [("mem0", {**{k: v for k, v in rows.items() if k != "id7"}, 7: point(7)})],
    ]
    digests = {points_digest(change) for change in changes}
    assert len(digests) == len(changes)
    assert digest not in digests


def row(rowid: int, **changes: Any) -> HistoryRow:
    made = HistoryRow(rowid, f"r{rowid % 100}", "m", None, "text", "ADD", "2026", None, 0, None, None)
    return made._replace(**changes)


def rows_digest(*pages: list[HistoryRow]) -> str:
    digest = HistoryDigest()
    for page in pages:
        digest.rows(page)
    return digest.hexdigest()


def test_the_digest_of_rows_knows_order_and_no_pages_or_rowids() -> None:
    one = [row(1), row(2), row(3)]
    digest = rows_digest(one)
    assert rows_digest(one[:1], one[1:]) == digest
    assert rows_digest([r._replace(rowid=r.rowid + 500) for r in one]) == digest
    others = [
        rows_digest([one[1], one[0], one[2]]),
        rows_digest(one[:2]),
        rows_digest([*one[:2], row(3, new_memory="other")]),
        rows_digest([*one[:2], row(3, new_memory=b"text")]),
        rows_digest([*one[:2], row(3, is_deleted=False)]),
        rows_digest([*one[:2], row(3, new_memory=None, old_memory="text")]),
        rows_digest([*one[:2], row(3, new_memory="lone \udc80")]),
        rows_digest([*one[:2], row(3, is_deleted=10**5000)]),
    ]
    assert len({digest, *others}) == len(others) + 1
