"""`audit --seal`, `--accept`, `--no-ledger`: what is said, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import Ran, call


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1", tmp_path / "store")


@pytest.fixture
def home(durable: Path) -> Path:
    return durable


def audit(home: Path, store: StoreCopy, *words: str) -> Ran:
    about = ("--history", str(store.history), "--qdrant-path", str(store.vectors), "--ignore", "L")
    return call(home, "audit", *about, *words)


def test_seal_change_refuse_accept(home: Path, store: StoreCopy) -> None:
    first = audit(home, store, "--seal")
    assert first.code == audit(home, store, "--no-ledger").code
    assert "\nSealed: seal 1, 19 memories and 47 changes." in first.out
    assert (
        audit(home, store, "--seal")
        .out.splitlines()[-1]
        .startswith("Sealed before: both stores are as seal 1")
    )
    assert (
        "seal"
        not in audit(home, store, "--quiet", "--seal").out.replace(str(store.folder.parent), "").lower()
    )

    points = RawPoints(store.vectors)
    changed = str(next(iter(points.points())))
    points.edit(changed, lambda p: p.update(user_id="mallory"))
    ran = audit(home, store)
    assert ran.code == 1
    assert "D310" in ran.out
    assert "NOT SEALED" not in ran.out
    for words in ((), ("--quiet",)):
        ran = audit(home, store, "--seal", *words)
        assert ran.code == 4
        assert f"NOT SEALED: since seal 1 nothing explains D310 {changed} changed user." in " ".join(
            ran.out.split()
        )
        assert "--seal --accept REASON\n" in ran.out
    ran = audit(home, store, "--seal", "--format", "json")
    said = json.loads(ran.out)
    assert (ran.code, said["exit_code"]) == (4, 4)
    assert said["seal"]["extended"] is False
    assert {f["code"] for f in said["findings"]} >= {"D310"}

    ran = audit(home, store, "--seal", "--accept", "moved by hand")
    assert "Sealed: seal 2" in ran.out
    assert "It lets stand: D310" in ran.out
    assert "D310" not in audit(home, store).out
    assert json.loads(audit(home, store, "--format", "json").out)["seal"] is None


def test_it_can_be_selected(home: Path, store: StoreCopy) -> None:
    ran = audit(home, store, "--select", "D310,D311,H408")
    assert ran.code == 0
    assert "no seal yet" in ran.out or "3 rules not checked" in ran.out


@pytest.mark.parametrize(
    "words",
    [
        ("--accept", "why"),
        ("--seal", "--accept", ""),
        ("--seal", "--accept", "  "),
        ("--seal", "--no-ledger"),
    ],
)
def test_what_makes_no_sense(home: Path, store: StoreCopy, words: tuple[str, ...]) -> None:
    ran = audit(home, store, *words)
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_no_ledger(home: Path, store: StoreCopy, tmp_path: Path) -> None:
    about = ("--history", str(store.history), "--qdrant-path", str(store.vectors))
    assert "no ledger" in audit(home, store, "--no-ledger", "--verbose").out
    assert call(home, "status", *about, "--no-ledger").code == 0
    ran = call(home, "snapshot", "create", *about, "--to", str(home / "snapshots"), "--no-ledger")
    assert ran.code == 0
    assert "eal" not in ran.out
    assert not (home / ".local").exists()


def test_a_snapshot_says_of_its_seal_in_a_line(home: Path, store: StoreCopy) -> None:
    about = (
        "--history",
        str(store.history),
        "--qdrant-path",
        str(store.vectors),
        "--to",
        str(home / "snapshots"),
    )
    ran = call(home, "snapshot", "create", *about)
    assert "\nSealed: seal 1, 19 memories and 47 changes.\n" in ran.out
    points = RawPoints(store.vectors)
    points.edit(next(iter(points.points())), lambda p: p.update(user_id="mallory"))
    ran = call(home, "snapshot", "create", *about, "--quiet")
    assert ran.code == 0
    assert "NOT SEALED: since seal 1 nothing explains D310" in ran.out
    said = json.loads(call(home, "snapshot", "create", *about, "--format", "json").out)
    assert said["seal"]["extended"] is False
    assert said["notes"] == []
    ran = call(home, "status", *about[:4])
    assert "1 seal, the last" in " ".join(ran.out.split())
    assert str(home / "snapshots") in ran.out
    assert json.loads(call(home, "status", *about[:4], "--format", "json").out)["ledger"]["seals"] == 1
