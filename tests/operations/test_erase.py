"""Deleting a scope's memories through mem0: what goes, what stays as it was, and what a kill leaves to be finished."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erase import Emptied, Erased, ErasePlan, ShortLived
from mem0audit.core.erasures import is_covered
from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.model import Install, Origin
from mem0audit.core.scopes import Scope
from mem0audit.install.host import this_host
from mem0audit.operations import erase
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.audit import audit
from mem0audit.operations.erase import apply_erase, plan_erase
from mem0audit.operations.erasures import erasures_on_record
from mem0audit.operations.mem0door import find_door
from mem0audit.operations.snapshot import create, plan_create
from mem0audit.report.erase import erase_plan_text
from mem0audit.report.screen import Screen
from mem0audit.stores import mem0api
from mem0audit.stores.ledger import Ledger
from tests.builders import RawHistory, RawPoints, StoreCopy, copy_store
from tests.operations.test_restore import in_child
from tests.report.test_json import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

CAROL = Scope("carol")


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path, pre_delete_all=True)


def install_of(store: StoreCopy, python: str | None = sys.executable) -> Install:
    return Install(
        Origin(str(store.history), "--history"),
        Origin(str(store.vectors), "--qdrant-path"),
        Origin("mem0", "mem0's default"),
        Origin(str(store.mem0_dir), "MEM0_DIR"),
        agent_python=python,
    )


def plan_of(store: StoreCopy, scope: Scope | None = CAROL, **more: Any) -> ErasePlan:
    return plan_erase(install_of(store), this_host(), scope=scope, only_this_store=True, **more)


def blobs(store: StoreCopy, collection: str = "mem0") -> dict[str, bytes]:
    """Every row as it lies on the disk, by its key."""
    return {key: blob for _, key, blob in RawPoints(store.vectors, collection).rows()}


def rows(store: StoreCopy) -> list[dict[str, Any]]:
    return [dict(row) for row in RawHistory(store.history).rows()]


def of_carol(store: StoreCopy) -> set[str]:
    points = RawPoints(store.vectors).points()
    return {i for i, p in points.items() if p.payload["user_id"] == "carol"}


class Killed:
    """A progress callback that kills its process when it is told of a phase, at the nth word of it."""

    def __init__(self, phase: str, nth: int = 1) -> None:
        self.phase, self.left = phase, nth

    def __call__(self, phase: str, _done: int | None, _total: int | None) -> None:
        self.left -= phase == self.phase
        if self.left == 0:
            os._exit(9)


def bytes_of(store: StoreCopy, *words: str) -> list[str]:
    """The files of the install that hold one of these words."""
    folders = store.history.parent, store.vectors
    return [
        str(path)
        for path in {p for folder in folders for p in folder.rglob("*") if p.is_file()}
        if any(word.encode() in path.read_bytes() for word in words)
    ]


@pytest.mark.thorough
def test_redacted_through_kills(store: StoreCopy, tmp_path: Path) -> None:
    """Stopped by an agent that starts before the texts are emptied, and killed after that is written: the receipt
    counts all runs, and says what nobody can search for any more."""
    host = this_host()
    carols = of_carol(store)
    log = rows(store)
    told = {t for r in log if r["memory_id"] in carols for t in (r["old_memory"], r["new_memory"]) if t}
    entities = sum(
        bool(carols & set(p.payload["linked_memory_ids"]))
        for p in RawPoints(store.vectors, "mem0_entities").points().values()
    )
    planned = plan_of(store, redact=True).redact
    assert planned is not None
    assert (planned.history, planned.messages) == (17, 2)

    class Starts:
        """An agent that is started before the texts are emptied."""

        running: subprocess.Popen[bytes] | None = None

        def __call__(self, phase: str, _done: int | None, _total: int | None) -> None:
            if phase == "sealing" and self.running is None:
                code = "import sys, time; f = open(sys.argv[1]); print(flush=True); time.sleep(60)"
                words = [sys.executable, "-c", code, str(store.history)]
                self.running = subprocess.Popen(words, stdout=subprocess.PIPE)
                assert self.running.stdout is not None
                self.running.stdout.readline()

    agent = Starts()
    with pytest.raises(
        Failed, match="the memories are deleted, and texts of theirs not all emptied"
    ) as failed:
        apply_erase(plan_of(store, redact=True), host, progress=agent)
    assert agent.running is not None
    agent.running.kill()
    agent.running.communicate()
    assert "the same command finishes it; without --redact it ends" in (failed.value.hint or "")
    assert not of_carol(store) and bytes_of(store, *told)
    without = plan_of(store)
    assert without.redact is None and "--redact" in without.warnings[-1]
    with pytest.raises(Refused, match="finished with the agent stopped"):
        plan_of(store, door=find_door(install_of(store), host))
    with pytest.raises(Refused) as refused:
        plan_of(store, Scope("bob"))
    assert refused.value.hint == "mem0audit delete --user carol --redact"
    plan = plan_of(store, redact=True)
    assert in_child(lambda: apply_erase(plan, host, progress=Killed("rebuilding the files")) and 0) == 9
    assert [r["new_memory"] for r in rows(store) if r["memory_id"] in carols and r["new_memory"]] == []

    plan = plan_of(store, None)  # as it was begun
    assert plan.redact is not None and plan.redact.history == 0
    done = apply_erase(plan, host, receipt=str(tmp_path / "receipt.json"))
    assert done.emptied is not None and done.after is not None
    assert (done.emptied.history, done.emptied.messages, done.emptied.files) == (17, 2, 3)
    # 17 + 2 texts and those of the entities were gone before this run could learn them
    assert (done.not_known, done.erased) == (19 + entities, False)
    assert bytes_of(store, *told, "SECRETCAROL") == []
    after = rows(store)
    assert [{**r, "rowid": 0} for r in after if r["memory_id"] not in carols] == [
        {**r, "rowid": 0} for r in log if r["memory_id"] not in carols
    ]
    receipt = (tmp_path / "receipt.json").read_text()
    said = check(receipt, "erasure-receipt")
    assert said["redacted"] == {
        "history_rows": 17,
        "messages": 2,
        "unattributed_rows": done.emptied.unattributed[0],
        "files_rebuilt": 3,
    }
    assert {one["kind"]: (one["before"], one["after"]) for one in said["places"]} == {
        "points": (8, 0),
        "entities": (entities, 0),
        "history": (9, 0),
        "messages": (2, 0),
    }
    assert (said["erased"], said["searched"]["texts_not_known"]) == (False, done.not_known)
    assert not [word for word in ("SECRET", *carols, *told) if word in receipt]
    with pytest.raises(UsageProblem, match="No deletion was cut off"):
        plan_of(store, None)


def test_what_cannot_be_redacted_is_refused_before_anything_is_deleted(store: StoreCopy) -> None:
    before = blobs(store)
    with pytest.raises(Refused, match="lies inside the vector store"):
        plan_of(store, snapshot=ShortLived(str(store.vectors / "snapshots"), 3600.0))
    log = RawHistory(store.history)
    log.run("CREATE TRIGGER t AFTER UPDATE ON history BEGIN SELECT 1; END")
    with pytest.raises(Refused, match="triggers"):
        plan_of(store, redact=True)
    assert plan_of(store).redact is None
    log.run("DROP TRIGGER t")
    other = store.vectors / "collection" / "other"
    shutil.copytree(store.vectors / "collection" / "mem0", other)
    meta = json.loads((store.vectors / "meta.json").read_text())
    meta["collections"]["other"] = meta["collections"]["mem0"]
    (store.vectors / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(Refused, match=r"8 memories of it would stay.*\(other\)"):
        plan_of(store, redact=True)
    assert blobs(store) == before


@pytest.mark.thorough
def test_killed_at_every_stage_and_then_finished(
    store: StoreCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything, in the middle, after the last memory, after the entities: the same command goes on, and the
    receipt counts all runs."""
    monkeypatch.setattr(mem0api, "AT_ONCE", 1)  # the worker does nothing more when we are gone
    host = this_host()
    install = install_of(store)
    audit(install, host)
    taken = create(plan_create(install, host, str(tmp_path / "snapshots")), host)
    carols = of_carol(store)
    points, entities = RawPoints(store.vectors).points(), RawPoints(store.vectors, "mem0_entities").points()
    before, log = blobs(store), rows(store)
    entity_blobs = blobs(store, "mem0_entities")
    kept = {key: blob for key, blob in before.items() if pickle.loads(base64.b64decode(key)) not in carols}

    def killed(phase: str, nth: int = 1) -> None:
        plan = plan_of(store, None if phase == "clearing entities" else CAROL)
        assert in_child(lambda: apply_erase(plan, host, progress=Killed(phase, nth)) and 0) == 9

    killed("opening the store with mem0")
    assert blobs(store) == before
    assert plan_of(store).resumed is None
    killed("deleting memories", 4)
    assert len(carols & set(RawPoints(store.vectors).points())) == len(carols) - 3
    resumed = plan_of(store).resumed
    assert resumed is not None and set(resumed.ids) == carols
    with pytest.raises(Refused, match="a deletion of user carol"):
        plan_of(store, Scope("bob"))
    killed("clearing entities", 2)
    assert not of_carol(store)
    assert len(RawPoints(store.vectors, "mem0_entities").points()) == len(entities) - 1

    done = apply_erase(plan_of(store), host, receipt=str(tmp_path / "receipt.json"))
    assert (done.memories, done.not_logged, done.resumed, done.overwritten) == (len(carols), 0, True, True)
    assert set(done.ids) == carols
    linked = {i: p for i, p in entities.items() if set(p.payload["linked_memory_ids"]) & carols}
    assert (done.entities, done.links) == (len(linked), 0)
    assert done.before.history_rows == sum(r["memory_id"] in carols for r in log)
    assert done.left.history_rows == done.before.history_rows + len(carols)
    assert done.left.messages == done.before.messages == 2
    assert [one.path for one in done.snapshots] == [str(taken.path)]

    # everybody else's memories, entities and history are as they were, to the byte
    assert blobs(store) == kept
    assert set(RawPoints(store.vectors, "mem0_entities").points()) == set(entities) - set(linked)
    assert blobs(store, "mem0_entities").items() <= entity_blobs.items()
    after = rows(store)
    assert after[: len(log)] == log
    assert {(r["memory_id"], r["event"]) for r in after[len(log) :]} == {(i, "DELETE") for i in carols}
    assert len(points) == len(before)

    # on record in the ledger and beside the snapshot, once; and the receipt says it without a word of theirs
    (erasure,) = erasures_on_record(install, str(tmp_path / "snapshots"), host).erasures
    assert is_covered(erasure, ("carol", "a", "b")) and not is_covered(erasure, ("bob", None, None))
    assert all(is_covered(erasure, (None, None, None), i) for i in carols)
    receipt = (tmp_path / "receipt.json").read_text()
    said = check(receipt, "erasure-receipt")
    assert (said["ids"], said["salt"]) == (list(erasure.ids), erasure.salt)
    assert not [word for word in ("carol", "SECRET", *carols) if word in receipt]
    assert (tmp_path / "receipt.json").stat().st_mode & 0o777 == 0o600
    # nothing is left to be finished; nothing of carol's is new to the audit; the seal knows of it
    with pytest.raises(UsageProblem, match="No deletion was cut off"):
        plan_of(store, None)
    codes = {finding.code for finding in audit(install, host).findings}
    assert not codes & {"D301", "D302", "D303", "D310", "D311", "E501", "E502", "H408"}


def test_the_plan_says_what_is_not_reached(store: StoreCopy, tmp_path: Path) -> None:
    points = RawPoints(store.vectors)
    found = points.points()
    mine = sorted(of_carol(store))
    some = found[mine[0]]
    other = next(i for i, p in found.items() if p.payload["user_id"] == "bob")
    points.put(other, {**found[other].payload, "data": " " + some.payload["data"].upper()})
    points.put(mine[1], {**found[mine[1]].payload, "user_id": " carol "})
    plan = plan_of(store)
    assert set(plan.ids) == set(mine)
    assert (plan.spelled_otherwise, plan.same_text_elsewhere) == (1, 1)
    assert "1 of them is stored under another spelling" in erase_plan_text(plan, Screen())
    assert "1 memory of other owners that says the same" in erase_plan_text(plan, Screen())
    alone = replace(plan, scope=None)  # of memories by their ids: another one may be the same owner's
    assert "1 memory besides that says the same" in erase_plan_text(alone, Screen())
    assert (plan.left.history_rows, plan.left.messages) == (9, 2)
    assert set(plan.entities) == set(plan.entities_deleted)
    assert len(plan.entities) == 3
    assert (plan.mem0, plan.own) == ("2.2.1", False)
    # what another user links too stays, less the links
    entity = next(iter(plan.entities))
    entities = RawPoints(store.vectors, "mem0_entities")
    payload = entities.points()[entity].payload
    entities.put(entity, {**payload, "linked_memory_ids": [*payload["linked_memory_ids"], other]})
    plan = plan_of(store)
    assert entity in plan.entities and entity not in plan.entities_deleted
    # one of hers that links only what is long gone goes as well
    entities.put(entity, {**payload, "user_id": "carol", "linked_memory_ids": ["gone-long-ago"]})
    assert entity in plan_of(store).entities_deleted


def test_single_memories(store: StoreCopy) -> None:
    one, two = sorted(of_carol(store))[:2]
    plan = plan_of(store, None, memory_ids=[one.upper(), two, "0000"])
    assert set(plan.ids) == {one, two}
    assert plan.left.messages == 0
    assert "Not in the store: 0000" in plan.warnings[0]
    with pytest.raises(CouldNotRead, match="nothing of"):
        plan_of(store, None, memory_ids=["11111111-1111-1111-1111-111111111111"])
    with pytest.raises(CouldNotRead, match="nothing of user nobody"):
        plan_of(store, Scope("nobody"))


def test_other_stores_of_the_machine(
    store: StoreCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path
) -> None:
    twin = copy_store("2.2.1", own_home / "twin", pre_delete_all=True)
    monkeypatch.setenv("MEM0_DIR", str(twin.folder))
    with pytest.raises(Refused, match="has memories in other stores too") as caught:
        plan_erase(install_of(store), this_host(), scope=CAROL)
    assert str(twin.vectors) in caught.value.message
    assert plan_erase(install_of(store), this_host(), scope=CAROL, only_this_store=True).ids


def test_mem0_1_leaves_entities_alone_and_says_so(
    store: StoreCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.operations.test_mem0door import environment_with

    python = environment_with(tmp_path / "venv", "1.0.11", "1.20.0")
    plan = plan_erase(install_of(store, python), this_host(), scope=CAROL, only_this_store=True)
    assert not plan.entities
    assert plan.warnings == ("mem0 1.0.11 knows no entities: 3 that mem0 2.x made of them stay.",)


def test_without_a_ledger_nothing_is_deleted(
    store: StoreCopy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/shm/mem0audit-none")
    with pytest.raises(Refused, match="kept on record in the ledger"):
        plan_of(store)


def test_a_damaged_collection_is_refused(store: StoreCopy) -> None:
    points = RawPoints(store.vectors)
    with points._connection() as connection:
        connection.execute("UPDATE points SET point = x'00' WHERE rowid = (SELECT max(rowid) FROM points)")
    with pytest.raises(Refused, match="do not decode"):
        plan_of(store)


@pytest.mark.thorough
def test_single_memories_again_and_after_a_kill(store: StoreCopy, tmp_path: Path) -> None:
    """One that is gone can be named again, alone or beside others, and the receipt of the run that deleted it stays."""
    host, receipt = this_host(), tmp_path / "receipt.json"
    one, two, *_ = sorted(of_carol(store))

    def delete(*ids: str) -> Erased:
        return apply_erase(plan_of(store, None, memory_ids=ids), host, receipt=str(receipt))

    assert (delete(one).memories, delete(one).ids) == (1, (one,))
    assert check(receipt.read_text(), "erasure-receipt")["removed"]["memories"] == 1
    text = erase_plan_text(plan_of(store, None, memory_ids=[one]), Screen(), to_do_it=True)
    assert f"--memory {one}" in text

    with ledgers.opened(install_of(store), host) as book:  # and was killed then
        assert isinstance(book, Ledger)
        begun = erase._begin(plan_of(store, None, memory_ids=[one, two]), book, 1.0, None)
    assert begun.ids == (two,)
    with pytest.raises(Refused, match="a deletion of 2 memories"):
        plan_of(store, None, memory_ids=[one, "0"])
    done = delete(one, two)
    assert (done.memories, done.resumed, set(done.ids)) == (1, True, {one, two})
    said = check(receipt.read_text(), "erasure-receipt")
    assert (said["removed"]["memories"], len(said["ids"])) == (1, 2)


def test_what_an_agent_adds_between_the_look_and_the_deletion(store: StoreCopy) -> None:
    """It is not called one that mem0 could not delete; and the same command takes it too."""
    plan = plan_of(store)
    RawPoints(store.vectors).put("11111111-1111-1111-1111-111111111111", {"data": "new", "user_id": "carol"})
    with pytest.raises(Failed, match="1 memory of it came after it was looked at") as said:
        apply_erase(plan, this_host())
    hint = said.value.hint or ""
    assert hint.startswith("the same command finishes it") and "stop that agent" in hint
    again = plan_of(store)
    assert again.resumed is not None and len(again.ids) == 1


def test_a_receipt_is_written_anew_where_it_says_something_new(store: StoreCopy, tmp_path: Path) -> None:
    """A run that only emptied texts, or whose verdict is another one, is not the earlier run's."""
    receipt, plan = tmp_path / "receipt.json", plan_of(store)
    done = Erased(
        plan.install, CAROL, 1.0, "ab" * 16, ("1",), 1, 0, 0, 0, plan.left, plan.left, "2.2.1", "1.20.0", "3", True,
        False, "",
    )  # fmt: skip
    erase._write_receipt(receipt, done)
    said = receipt.read_bytes()
    again = replace(done, ids=(), memories=0, at=2.0)
    erase._write_receipt(receipt, again)
    assert receipt.read_bytes() == said
    erase._write_receipt(receipt, replace(again, emptied=Emptied(3, 0, (0, 0), 2)))
    assert receipt.read_bytes() != said
    erase._write_receipt(receipt, replace(done, scope=Scope("bob"), memories=0))
    assert json.loads(receipt.read_text())["at"].endswith("00:00:01Z")
