"""What is done about a move that was cut off, and what an intent may say."""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest

from mem0audit.core import relocate as core
from mem0audit.core.model import Origin
from mem0audit.core.relocate import MoveIntent, decide, intent_text, parse_intent, since
from mem0audit.core.restore import NotAnIntent, Piece
from mem0audit.core.snapshot import Manifest, manifest_text

NEW = ("before", "between", "after", "other")
OLD = ("same", "changed", "aside", "gone")
DATE = "2026-11-30T061208Z"


def test_the_last_copy_is_never_given_up() -> None:
    for new in itertools.product(NEW, repeat=2):
        for old in [(), *itertools.product(OLD, repeat=2)]:
            for untouched in (True, False):
                course = decide(new, old, untouched=untouched)  # type: ignore[arg-type]
                if course in ("clean", "back"):
                    # all the old stores are in their places
                    assert set(old) <= {"same", "changed"}, (new, old)
                if course == "back":
                    assert "changed" in old and untouched, (new, old)
                if course == "finish":
                    assert set(new) <= {"before", "after"}, (new, old)
                    # what was written to an old store is left behind only where one of them is put aside already
                    assert "changed" not in old or "aside" in old, (new, old)


def test_what_changed_since_the_pair() -> None:
    was = {"a": 1, "b": 2, "c": 3, "d": 4}
    found = since(was, {"a": 1, "b": 9, "e": 5}, {"c", "x"})
    assert (found.added, found.changed, found.removed, found.vanished, found.of) == (1, 1, 1, 1, 4)
    assert not found.another_store
    assert since(was, {}, {"a"}).another_store
    assert not since(was, {}, set(was)).another_store
    assert not since({}, {"a": 1}, set()).another_store


@pytest.fixture
def intent() -> MoveIntent:
    origin = Origin("/x", "a test")
    manifest = Manifest(
        name=DATE, created_at="2026-11-30 06:12:08Z", history=origin, vectors=origin, collection=origin,
        mem0_dir=origin, hostname="here", filesystems={}, versions={}, files=(), counts={}, points_digest="",
        history_digest="", findings={}, settled=True, unsettled_why=None, tries=1, longest_hold_s=0.0,
    )  # fmt: skip
    where = core.destination("/srv/agent/qdrant", True)
    assert where.history == "/srv/agent/history.db"
    return MoveIntent(
        started_at=DATE,
        staging=where.staging,
        history=where.history,
        vectors=where.vectors,
        old_history="/home/ann/.mem0/history.db",
        old_vectors="/tmp/qdrant",
        published=(
            Piece(
                "vectors", where.vectors, f"{where.staging}/qdrant", f"{where.vectors}.replaced-{DATE}", None, "7", {}
            ),
            Piece(
                "history", where.history, f"{where.staging}/history.db", f"{where.history}.replaced-{DATE}", None, "8",
                {"": "f00"},
            ),
        ),
        retired=(
            core.pieces_of("vectors", "/tmp/qdrant", DATE, "5", {"meta.json": "f00"}),
            core.pieces_of("history", "/home/ann/.mem0/history.db", DATE, "6", {"": "f00"}),
        ),
        manifest=manifest_text(manifest),
    )  # fmt: skip


def test_an_intent_comes_back_as_it_was_written(intent: MoveIntent) -> None:
    assert parse_intent(intent_text(intent).encode("ascii")) == intent
    inside = dataclasses.replace(
        intent, retired=(core.pieces_of("vectors", "/tmp/qdrant/meta.json", DATE, "5", {"": "f00"}),)
    )
    assert parse_intent(intent_text(inside).encode("ascii")) == inside


@pytest.mark.parametrize(
    "forged",
    [
        {"kind": "mem0audit-restore"},
        {"format": 2},
        {"staging": "/etc"},
        {"vectors": "/etc"},
        {"old_vectors": "/etc"},
        {"started_at": "../x"},
        {"published": []},
        {"manifest": "{}"},
        {"pair": 1},
        {"more": 1},
        {
            "retired": [
                {"half": "vectors", "target": "/etc", "staged": None, "aside": f"/etc.replaced-{DATE}"}
            ]
        },
    ],
)
def test_a_forged_intent_is_not_believed(intent: MoveIntent, forged: dict[str, object]) -> None:
    raw = json.loads(intent_text(intent)) | forged
    with pytest.raises(NotAnIntent):
        parse_intent(json.dumps(raw).encode("ascii"))


@pytest.mark.parametrize(
    ("which", "changes"),
    [
        ("published", {"target": "/etc/passwd"}),
        ("published", {"staged": "/etc/passwd"}),
        ("published", {"staged": "/srv/agent/.qdrant.mem0audit-relocating/../../../etc/passwd"}),
        ("retired", {"target": "/etc/passwd", "aside": f"/etc/passwd.replaced-{DATE}"}),
        ("retired", {"aside": "/etc/cron.d/x"}),
        ("retired", {"target": "/tmp/qdrant/../x", "aside": f"/tmp/qdrant/../x.replaced-{DATE}"}),
        ("retired", {"staged": "/srv/agent/.qdrant.mem0audit-relocating/x"}),
        ("retired", {"sums": [1]}),
        ("retired", {"old": 5}),
    ],
)
def test_a_forged_piece_is_not_believed(intent: MoveIntent, which: str, changes: dict[str, object]) -> None:
    raw = json.loads(intent_text(intent))
    raw[which][0] |= changes
    with pytest.raises(NotAnIntent):
        parse_intent(json.dumps(raw).encode("ascii"))
