"""The pure part of a restore: how far it came, what is done about it, what the agent will make of it."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from mem0audit.core.model import Agent, Origin
from mem0audit.core.restore import (
    Found,
    Intent,
    NotAnIntent,
    Piece,
    decide,
    intent_text,
    is_replaced_name,
    parse_intent,
    parse_record,
    same,
    staging_beside,
    warnings_for,
    where,
)
from mem0audit.core.snapshot import Manifest, SnapshotFile, manifest_text

DATE = "2026-11-30T023000Z"


def manifest(**other: Any) -> Manifest:
    given: dict[str, Any] = {
        "name": DATE,
        "created_at": "2026-11-30 02:30:00Z",
        **{key: Origin("/x", "flag") for key in ("history", "vectors", "collection", "mem0_dir")},
        "hostname": "here",
        "filesystems": {},
        "versions": {"mem0ai": "2.2.1", "qdrant-client": "1.20.0"},
        "files": (SnapshotFile("history.db", 1, "0" * 64, "/x", None, "wal", "reflink"),),
        "counts": {"memories": 1},
        "points_digest": "0" * 64,
        "history_digest": "0" * 64,
        "findings": {},
        "settled": True,
        "unsettled_why": None,
        "tries": 1,
        "longest_hold_s": 0.1,
        **other,
    }
    return Manifest(**given)


def piece(**other: Any) -> Piece:
    given: dict[str, Any] = {
        "half": "history",
        "target": "/m/history.db",
        "staged": "/m/.history.db.mem0audit-restoring/history.db",
        "aside": f"/m/history.db.replaced-{DATE}",
        "old": "1:a",
        "new": "2:b",
        "sums": {"": "0" * 64},
        **other,
    }
    return Piece(**given)


def intent(**other: Any) -> Intent:
    given: dict[str, Any] = {
        "snapshot": f"/s/{DATE}",
        "started_at": DATE,
        "history": "/m/history.db",
        "vectors": "/q/qdrant",
        "staging": (staging_beside("/m/history.db"), staging_beside("/q/qdrant")),
        "pieces": (piece(),),
        "manifest": manifest_text(manifest()),
        **other,
    }
    return Intent(**given)


def test_an_intent_comes_back() -> None:
    for one in (intent(), intent(audited=True), intent(pieces=(piece(staged=None, new=None, sums={}),))):
        assert parse_intent(intent_text(one).encode()) == one


@pytest.mark.parametrize(
    "wrong",
    [
        {"pieces": (piece(target="/etc/passwd"),)},
        {"pieces": (piece(staged="/etc/passwd"),)},
        {"pieces": (piece(aside="/etc/passwd"),)},
        {"pieces": (piece(target="/m/history.db/../../etc/x"),)},
        {"pieces": (piece(old=5),)},
        {"history": "/etc/passwd"},
        {"staging": ("/m", "/q")},
        {"staging": (staging_beside("/m/history.db"),)},
        {"manifest": "{}"},
        {"audited": "yes"},
        {"snapshot": 5},
    ],
)
def test_what_no_restore_writes_is_not_believed(wrong: dict[str, Any]) -> None:
    with pytest.raises(NotAnIntent):
        parse_intent(intent_text(intent(**wrong)).encode())


def test_names_of_what_is_put_aside() -> None:
    for name in ("history.db", "qdrant", "collection", "a.b c"):
        for end in ("", "-2", "-wal", "-2-journal"):
            assert is_replaced_name(f"/m/{name}.replaced-{DATE}{end}")
        assert piece(aside=f"/m/{name}.replaced-{DATE}-3").changed_aside == f"/m/{name}.restored-{DATE}-3"
    for name in ("/m/history.db", "/m/history.db.replaced", f"/m/replaced-{DATE}x", "/m/x.replaced-2026"):
        assert not is_replaced_name(name)


def test_a_number_that_is_used_again_is_not_the_same() -> None:
    assert same("5:a", "5:a") and same("5:a", "5") and same(None, None)
    assert not same("5:a", "5:b") and not same("5", "6") and not same(None, "5")


def test_every_place_of_a_piece() -> None:
    """All that can lie at the three places; anything unforeseen is "other"."""
    foreseen = {
        ("old", "new", None): "before",
        (None, "new", "old"): "between",
        ("new", "old", None): "after",
        ("new", None, "old"): "after",
        ("new", None, None): "after",  # discarded since
    }
    what = {"old": "1:a", "new": "2:b", "strange": "3:c", None: None}
    for target, staged, aside in itertools.product(what, repeat=3):
        told = where(piece(), Found(what[target], what[staged], what[aside]))
        if (target, staged, aside) in foreseen:
            assert told == foreseen[target, staged, aside]
        if target == "strange" or (target is None and staged != "new"):
            assert told == "other"
    missing = piece(old=None)
    assert where(missing, Found(None, "2:b", None)) == "before"
    assert where(missing, Found("2:b", None, None)) == "after"
    assert where(missing, Found("3:c", "2:b", None)) == "other"


def test_what_is_done() -> None:
    def told(*places: Any, audited: bool = False, untouched: bool = True) -> str:
        return decide(places, audited=audited, untouched=untouched)

    assert told("before", "before") == "clean"
    assert told("before", "before", audited=True) == "clean"
    assert told("after", "after") == told("after", "after", untouched=False) == "finish"
    assert told("after", "before") == told("between", "before") == "finish"
    assert told("after", "before", untouched=False) == "back"
    assert told("after", "other") == told("other", "before") == "back"
    assert told("after", "other", audited=True) == "finish"


def test_a_record_with_other_names_is_not_believed() -> None:
    for text in (
        "{",
        "[]",
        '{"kind": "x", "kept": []}',
        '{"kind": "mem0audit-restore-record", "kept": [{}]}',
    ):
        with pytest.raises(NotAnIntent):
            parse_record(text.encode())
    hostile = (
        '{"kind": "mem0audit-restore-record", '
        '"kept": [{"path": "/etc", "identity": "1", "snapshot": "", "at": ""}]}'
    )
    with pytest.raises(NotAnIntent):
        parse_record(hostile.encode())


@pytest.mark.parametrize(
    ("mem0", "client", "schema", "on_disk", "says"),
    [
        ("2.2.1", "1.20.0", "10 columns", None, []),
        ("1.0.7", "1.20.0", "10 columns", None, ["deletes the vector folder"]),
        ("1.0.7", "1.20.0", "10 columns", True, []),
        ("0.1.40", "1.20.0", "10 columns", True, ["cannot open this log"]),
        ("0.1.104", "1.20.0", "9 columns", True, ["hangs"]),
        ("2.2.1", "1.20.0", "9 columns", None, ["migrates this log"]),
        ("2.2.1", "1.20.0", "7 columns", None, ["loses the texts"]),
        ("2.2.1", "1.15.1", "10 columns", None, ["cannot open these vectors: it takes 1.19.0 or later"]),
        (None, None, "10 columns", None, ["the agent needs qdrant-client 1.19.0 or later, and mem0 0.1.100"]),
    ],
)
def test_what_the_agent_makes_of_it(
    mem0: str | None, client: str | None, schema: str, on_disk: bool | None, says: list[str]
) -> None:
    told = warnings_for(
        manifest(), schema, ["vectors.size", "payload"], Agent(None, mem0, client, "test"), on_disk
    )
    assert len(told) == len(says)
    assert all(word in line for word, line in zip(says, told, strict=True))


def test_halves_that_are_no_pair_are_said() -> None:
    agent = Agent(None, "2.2.1", "1.20.0", "test")
    adopted = manifest(pair=False, settled=False, unsettled_why="the halves agree")
    (told,) = warnings_for(adopted, "10 columns", [], agent, None)
    assert told == "NOT A PAIR: its halves were not taken together (the halves agree)."
    (told,) = warnings_for(manifest(settled=False, unsettled_why="x"), "10 columns", [], agent, None)
    assert told == "Not settled when it was taken: x."
    assert dataclasses.replace(manifest(), pair=True) == manifest()
