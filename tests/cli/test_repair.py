"""`mem0audit repair` as a user runs it: the plan, what is asked for, exit codes, JSON, and no memory text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import Ran, call
from tests.operations.test_restore import agent
from tests.report.test_json import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")
SECRETS = ("SECRETCAROL", "Quito", "vegetarian")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    """With two expired memories of carol, and one of another user."""
    store = copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)
    for one in of_carol(store)[:2]:
        RawPoints(store.vectors).edit(one, lambda p: p.update(expiration_date="2020-01-01"))
    return store


def of_carol(store: StoreCopy) -> list[str]:
    return sorted(i for i, p in RawPoints(store.vectors).points().items() if p.payload["user_id"] == "carol")


def repair(home: Path, store: StoreCopy, *more: str, width: str = "100") -> Ran:
    stores = "--history", str(store.history), "--qdrant-path", str(store.vectors)
    ran = call(home, "repair", *stores, *more, env={"COLUMNS": width})
    assert not [secret for secret in SECRETS if secret in ran.out + ran.err]
    assert "Traceback" not in ran.err
    return ran


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("foo",), "neither a rule nor an id"),
        (("",), "neither a rule nor an id"),
        (("D304",), "explain D304"),
        (("--yes",), "name what is to be repaired"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, store: StoreCopy, given: tuple[str, ...], says: str) -> None:
    ran = repair(tmp_path, store, *given)
    assert (ran.code, says in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("width", ["60", "100"])
def test_the_plan(tmp_path: Path, store: StoreCopy, width: str) -> None:
    before = store.history.read_bytes()
    ran = repair(tmp_path, store, width=width)
    assert ran.code == 0, ran.err
    assert "T701 expired-memory: 3 memories are deleted" in ran.out
    assert "no folder for snapshots is named" in " ".join(ran.out.split())
    prose = [line for line in ran.out.splitlines() if "--history" not in line]
    assert max(map(len, prose)) <= int(width)
    ran = repair(tmp_path, store, "expired-memory", "--dry-run", "--to", str(tmp_path / "s"), width=width)
    assert ran.out.splitlines()[-1].endswith(f"T701 --to {tmp_path / 's'}")
    assert store.history.read_bytes() == before and not (tmp_path / "s").exists()
    assert repair(tmp_path, store, "D301", "--yes").out == "Nothing to repair: no D301.\n"
    for more, says in (
        (("--yes",), "no folder for snapshots"),
        (("--to", "s"), "not confirmed: nothing was changed"),
    ):
        ran = repair(tmp_path, store, "T701", *more)
        assert (ran.code, says in ran.err) == (4, True), ran.err
    assert store.history.read_bytes() == before


def test_in_use(tmp_path: Path, store: StoreCopy) -> None:
    with agent(store) as pid:
        plan = repair(tmp_path, store, "T701", "--dry-run", "--to", "s")
        ran = repair(tmp_path, store, "T701", "--yes", "--to", "s")
    said = " ".join(plan.out.split())  # lines break where the paths let them
    assert (plan.code, f"in use by pid {pid}" in said, f"kill {pid}" in said) == (0, True, True)
    assert (ran.code, f"in use by pid {pid}" in ran.err, f"kill {pid}" in ran.err) == (4, True, True)


def test_done_for_one_id(tmp_path: Path, store: StoreCopy) -> None:
    one, other = of_carol(store)[:2]
    said = check(repair(tmp_path, store, one.upper(), "--format", "json", "--dry-run").out, "repair-plan")
    assert [step["id"] for step in said["steps"]] == [one] and said["blocked"] is not None
    ran = repair(tmp_path, store, one, "--yes", "--to", str(tmp_path / "s"), "--format", "json")
    assert ran.code == 0, ran.err
    said = check(ran.out, "repair")
    assert (said["done"]["deleted"], said["remaining"], said["undecided"]) == (1, [], [])
    assert Path(said["snapshot"]).parent == tmp_path / "s"
    left = of_carol(store)
    assert one not in left and other in left
