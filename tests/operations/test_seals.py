"""Seals: every change behind mem0's back is told, whatever follows it; what mem0 itself does never is."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.model import Severity
from mem0audit.core.seal import LastSeal
from mem0audit.install.host import this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.seal import explain
from mem0audit.stores.ledger import Ledger
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store
from tests.operations.sealed import WAYS, Install, audited, one, said, sealed
from tests.operations.test_snapshot import installed, take
from tests.rules.support import kinds

ROOT = Path(__file__).parents[2]
OPERATIONS = int(os.environ.get("MEM0AUDIT_SEAL_OPERATIONS", "150"))
"""How many random operations; `MEM0AUDIT_SEAL_OPERATIONS=1000 scripts/test tests/operations/test_seals.py`."""


WITH_SNAPSHOTS = ("text", "owner", "planted with a hash", "a row removed")
"""The changes that snapshots are taken after: one that finds a fault among the newest writes tries for seconds."""


@pytest.fixture(autouse=True)
def state_on_a_disk(durable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own home may lie on a tmpfs, where no ledger is kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(durable / "state"))


@pytest.fixture
def install(tmp_path: Path) -> Any:
    with Install(tmp_path) as made:
        yield made


# --- what must be told ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_change_behind_mem0s_back(install: Install, way: str) -> None:
    """Told at once, and still told after genuine writes, a restart, and more seals (of snapshots too) that are
    refused."""
    again = install.snapshot if way in WITH_SNAPSHOTS else lambda: sealed(install)
    assert again().number == 1
    assert said(audited(install)) == set()
    install.close()
    wanted = WAYS[way](install)
    assert said(audited(install)) == wanted
    install.open()
    install.work()
    assert said(audited(install)) == wanted
    refused = [sealed(install)]
    if way in WITH_SNAPSHOTS:
        refused.append(install.snapshot())
    for outcome in refused:
        assert (outcome.extended, outcome.number) == (False, 1)
    # of a pair with a fault among its newest writes nothing is named: that may be a write on its way
    whys = [str(outcome.why) for outcome in refused if outcome.why != "the pair is not settled"]
    assert refused[0].why == whys[0]
    assert all(why.startswith("since seal 1 nothing explains ") for why in whys)
    install.reopen()
    install.work()
    assert said(audited(install)) == wanted


@pytest.mark.parametrize(
    "way", ["owner", "planted with a hash", "removed", "a row's text", "a row removed", "reset"]
)
def test_what_is_accepted_is_quiet_and_nothing_else(install: Install, way: str) -> None:
    assert sealed(install).extended
    if way == "reset":
        wanted = {("H408", None)}
        install.reset()
        install.ids[4] = install.add("fact 4", user_id="alice")
        install.close()
    else:
        install.close()
        wanted = WAYS[way](install)
    accepted = sealed(install, accept="tried out")
    assert (accepted.extended, accepted.number) == (True, 2)
    names = {name.split()[0] for name in accepted.accepted}
    assert names == ({"reset"} if way == "reset" else {code for code, _ in wanted})
    assert said(audited(install)) == set()
    install.open()
    install.work() if way != "reset" else install.add("more", user_id="alice")
    assert sealed(install).number == 3
    with book_of(install) as book:
        assert [seal.reason for seal in book.seals()] == [None, "tried out", None]
    install.close()
    install.points.edit(install.ids[4], lambda p: p.update(user_id="eve"))
    assert said(audited(install)) == {("D310", install.ids[4])}


def test_a_text_changed_and_then_changed_by_mem0_itself(install: Install) -> None:
    """mem0's own update of the very memory does not wash it."""
    assert sealed(install).extended
    install.close()
    install.points.edit(install.ids[3], lambda p: p.update(data="forged"))
    install.points.edit(install.ids[5], lambda p: p.update(data="forged too"))
    install.points.edit(install.ids[4], lambda p: p.update(user_id="mallory"))
    install.open()
    install.update(install.ids[3], "fact 3")
    install.update(install.ids[4], "fact four")
    install.delete(install.ids[5])
    assert not install.snapshot().extended
    found = {f.memory_id: f.evidence["differs in"] for f in audited(install).findings}
    assert found == {install.ids[3]: "text", install.ids[4]: "user", install.ids[5]: "text"}


def test_what_a_seal_cannot_see(install: Install) -> None:
    """As the pages say: a planted memory with an ADD row of its own, and metadata before a genuine update."""
    assert sealed(install).extended
    install.close()
    planted = "7d1f0cf5-4b52-4a52-93a3-6e0e0a5b0f00"
    install.points.put(planted, {"data": "planted", "user_id": "alice"})
    install.log.add(planted, None, "planted", "ADD")
    install.points.edit(install.ids[3], lambda p: p.update(topic="coffee"))
    install.open()
    install.update(install.ids[3], "told again")
    assert said(audited(install)) == set()


@pytest.mark.parametrize("followed", [False, True])
def test_both_stores_rolled_back(install: Install, tmp_path: Path, followed: bool) -> None:
    install.close()
    kept = install.keep(tmp_path / "kept")
    install.open()
    for _ in range(3):
        install.work()
    assert install.snapshot().number == 1
    install.close()
    install.rollback(kept)
    report = audited(install)
    assert said(report) == {("D311", None)}
    assert one(report, "D311").evidence["sealed rows that are gone"] == 12
    install.open()
    if followed:
        install.work()
        assert not install.snapshot().extended
        install.reopen()
    report = audited(install)
    assert said(report) == {("D311", None)}
    assert one(report, "D311").evidence["the log ends after sealed row"] == 14
    assert not sealed(install).extended
    assert sealed(install, accept="put back on purpose").number == 2
    assert said(audited(install)) == set()


def test_only_the_vectors_rolled_back(install: Install, tmp_path: Path) -> None:
    install.close()
    kept = install.keep(tmp_path / "kept")
    install.open()
    install.work()
    assert sealed(install).extended
    install.close()
    shutil.rmtree(install.vectors)
    shutil.copytree(kept / "qdrant", install.vectors)
    report = audited(install)
    assert {code for code, _ in said(report)} == {"D310"}
    assert ("D310", install.ids[7]) in said(report)


def test_many_at_once_are_one_finding(install: Install) -> None:
    many = [install.add(f"one of many {n}", user_id="dora") for n in range(60)]
    assert sealed(install).extended
    install.close()
    for memory_id in many:
        install.points.remove(memory_id)
    found = one(audited(install), "D310")
    assert (found.memory_id, found.evidence["memories"]) == (None, "60")


# --- what must not ------------------------------------------------------------------------------------


def test_reset_is_an_incident_and_no_forgery_of_each_memory(install: Install) -> None:
    """One finding, so that an emptied install is no clean one; not one for each row and memory that went."""
    assert install.snapshot().extended
    install.reset()
    for _ in range(2):
        report = audited(install, select=("D", "H"))
        (finding,) = report.findings
        assert (finding.code, finding.severity, finding.memory_id) == ("H408", Severity.HIGH, None)
        assert finding.evidence["why"] == "none of them is there, and no sealed memory"
        assert kinds(report) == ["reset"]
        assert finding.code in report.incidents[0].codes
        install.add("a new beginning", user_id="alice")
    assert not install.snapshot().extended


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["0.1.40", "1.0.0", "1.0.11", "2.2.1", "2.2.1-nlp"])
def test_a_later_mem0_takes_over(tmp_path: Path, name: str) -> None:
    """It migrates the log, and goes on; none of that is a change behind its back. The first seal names what it
    found."""
    store = copy_store(name, tmp_path, pre_delete_all=True)
    first = sealed(store)
    assert (first.extended, first.number) == (True, 1)
    assert said(audited(store)) == set()
    before = RawHistory(store.history).run("SELECT * FROM history")
    with MemoryBuilder(store.folder, history=store.history, vectors=store.vectors) as agent:
        if name < "1":
            assert RawHistory(store.history).run("SELECT * FROM history") != before
        ids = list(agent.points())
        assert said(audited(agent)) == set()
        agent.update(ids[0], "told to a later version")
        agent.update(ids[1], metadata={"topic": "tea"})
        agent.delete(ids[2])
        agent.add("by a later version", user_id="alice")
        agent.delete_all(user_id="carol")
        assert said(audited(agent)) == set()
        assert take(agent, tmp_path / "snapshots").seal.number == 2
        assert said(audited(agent)) == set()


def test_the_first_seal_names_what_it_found(tmp_path: Path) -> None:
    store = copy_store("1.0.0", tmp_path)  # its delete_all dropped everybody's memories
    outcome = sealed(store)
    assert outcome.extended
    # some of them may be found in the store of a test that runs beside this one
    assert any(name.startswith("D302 ") for name in outcome.accepted)
    found = {f.code for f in audited(store, select=("D",)).findings}
    assert "D302" in found
    assert "D310" not in found
    assert sealed(store).unchanged


def test_a_log_of_seven_columns_that_loses_its_texts(tmp_path: Path) -> None:
    """mem0 0.1.107 and later keep of mem0 0.0.9's rows only ids and events: that is its doing."""
    with Install(tmp_path) as install:
        pass
    rows = install.log.rows()
    install.log.run("DROP TABLE history")
    install.log.run(
        "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, prev_value TEXT, new_value TEXT, event TEXT,"
        " timestamp DATETIME, is_deleted INTEGER)"
    )
    for row in rows:
        install.log.run(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(row["id"], row["memory_id"], row["old_memory"], row["new_memory"], row["event"]),
            *(row["created_at"], row["is_deleted"]),
        )
    assert sealed(install).extended
    assert said(audited(install)) == set()
    install.open()
    assert install.log.rows()[0]["new_memory"] is None
    assert said(audited(install)) == set()
    install.work()
    assert said(audited(install)) == set()
    assert install.snapshot().extended
    install.close()
    assert said(audited(install)) == set()
    install.log.run("DELETE FROM history WHERE memory_id = ?", install.ids[3])
    assert said(audited(install)) == {("H408", None)}


@pytest.mark.parametrize(
    ("mem0", "told"), [("1.0.11", False), (None, False), ("1.0.8", True), ("2.2.1", True)]
)
def test_times_and_agent_that_mem0_changes_without_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mem0: str | None, told: bool
) -> None:
    """A NONE event of mem0 1.0.9 to 1.0.11, in a store of theirs; a text is told whatever the version."""
    from mem0audit.core.model import Agent
    from mem0audit.operations import look

    monkeypatch.setattr(look, "whose_mem0", lambda *_: Agent(None, mem0, None, "the test says so"))
    store = copy_store("1.0.11", tmp_path)
    assert sealed(store).extended
    points = RawPoints(store.vectors)
    ids = [str(i) for i in points.points()]
    points.edit(
        ids[0], lambda p: p.update(updated_at="2026-11-30T00:00:00+00:00", agent_id="a7", run_id="r9")
    )
    assert said(audited(store)) == ({("D310", ids[0])} if told else set())
    points.edit(ids[1], lambda p: p.update(user_id="mallory"))
    assert ("D310", ids[1]) in said(audited(store))


def random_work(agent: MemoryBuilder, rng: random.Random, ids: list[str]) -> None:
    """One operation of mem0's."""
    what = rng.random()
    user = rng.choice(["alice", "bob", "carol"])
    if what < 0.45 or len(ids) < 3:
        ids.append(agent.add(f"fact {rng.random()}", user_id=user, metadata={"n": rng.randrange(5)}))
    elif what < 0.55:
        ids.extend(agent.add_inferred([f"inferred {rng.random()}" for _ in range(3)], user_id=user))
    elif what < 0.75:
        agent.update(rng.choice(ids), f"fact {rng.random()}")
    elif what < 0.80:
        agent.update(rng.choice(ids), metadata={"topic": rng.choice(["tea", "coffee"])})
    elif what < 0.97:
        agent.delete(ids.pop(rng.randrange(len(ids))))
    elif what < 0.98:
        agent.delete_all(user_id=user)
        ids[:] = list(agent.points())
    else:
        agent.reopen()


@pytest.mark.timeout(900)
def test_nothing_is_told_of_genuine_work(tmp_path: Path) -> None:
    """Random operations of mem0's with seals, snapshots and audits in between."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    ids: list[str] = []
    seals = 0
    with MemoryBuilder(tmp_path / "install") as agent:
        for number in range(OPERATIONS):
            random_work(agent, rng, ids)
            if number % 25 == 7:
                outcome = take(agent, tmp_path / "snapshots").seal
                assert outcome is not None
                assert outcome.why is None, seed
                seals += outcome.extended
            elif number % 25 == 14:
                outcome = sealed(agent)
                assert outcome.why is None, seed
                seals += outcome.extended
            elif number % 5 == 0:
                assert said(audited(agent)) == set(), seed
    assert seals >= OPERATIONS // 25
    with book_of(agent) as book:
        assert len(book.seals()) == seals
        assert isinstance(book.last_seal(), LastSeal)


WRITER = """
import random, sys
from pathlib import Path
from tests.builders import MemoryBuilder
from tests.operations.test_seals import random_work
rng, ids = random.Random(int(sys.argv[2])), []
with MemoryBuilder(sys.argv[1]) as agent:
    agent.add("the first", user_id="alice")
    print("ready", flush=True)
    while not Path(sys.argv[3]).exists():
        if len(ids) < 200:
            random_work(agent, rng, ids)
        else:
            agent.delete(ids.pop())
"""


@pytest.mark.thorough
def test_nothing_is_told_beside_a_writer_at_full_speed(tmp_path: Path) -> None:
    """Seals by snapshots (which are settled), and audits, while mem0 writes without a pause."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    folder, stop = tmp_path / "install", tmp_path / "stop"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(seed), str(stop)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"ready\n"
    store = PathsOf(folder)
    sealed_now = 0
    try:
        for number in itertools.count():
            if number >= 4 and (sealed_now >= 2 or number >= 40):
                break
            outcome = take(store, tmp_path / "snapshots").seal
            assert outcome is not None
            assert outcome.why in (None, "the pair is not settled"), (seed, outcome)
            sealed_now += outcome.extended
            assert said(audited_with_pause(store)) == set(), seed
        outcome = audited_with_pause(store, seal=True).seal
        assert outcome is not None
        assert outcome.why in (None, "the agent did not hold still: take it at a quieter minute"), seed
    finally:
        stop.touch()
        writer.communicate(timeout=300)
    assert writer.returncode == 0
    assert sealed_now >= 2
    assert said(audited(store)) == set(), seed
    assert sealed(store).why is None


class PathsOf:
    """A store that another process has open."""

    def __init__(self, folder: Path) -> None:
        self.history, self.vectors = folder / "mem0_dir/history.db", folder / "qdrant"


def audited_with_pause(store: Any, **options: Any) -> Any:
    from mem0audit.operations.audit import audit

    return audit(installed(store), this_host(), select=("D310", "D311", "H408"), **options)


# --- the chain ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def book_of(store: Any) -> Any:
    with ledgers.opened(installed(store), this_host()) as book:
        assert isinstance(book, Ledger)
        yield book


def test_each_seal_has_the_one_before(install: Install) -> None:
    for _ in range(3):
        install.work()
        assert sealed(install).extended
    assert sealed(install).unchanged
    with book_of(install) as book:
        seals = book.seals()
        assert [s.number for s in seals] == [1, 2, 3]
        assert seals[0].previous == b""
        assert [s.previous for s in seals[1:]] == [s.digest() for s in seals[:2]]
        assert seals[-1].rows == len(install.log.rows())
        assert seals[-1].last_row == install.log.rows()[-1]["id"]
        assert seals[-1].memories == len(install.points.points())


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE seals SET at = at + 1 WHERE number = 1",
        "UPDATE seals SET accepted = '[\"D310 x\"]' WHERE number = 2",
        "DELETE FROM seals WHERE number = 1",
        "DELETE FROM sealed_memories",
        "UPDATE sealed_memories SET parts = zeroblob(30) WHERE memory_id = (SELECT min(memory_id) FROM owners)",
        "UPDATE sealed_rows SET digests = zeroblob(length(digests))",
    ],
)
def test_a_chain_that_was_changed_is_said(install: Install, sql: str) -> None:
    for _ in range(3):
        install.work()
        assert sealed(install).extended
    with book_of(install) as book:
        path = book.path
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert db.execute(sql).rowcount >= 1
    report = audited(install)
    assert report.findings == ()
    (why,) = {(n.why, n.gap) for n in report.not_checked if n.what == "D310"}
    assert "was changed" in why[0]
    assert why[1]
    outcome = sealed(install)
    assert not outcome.extended
    assert "moved away" in str(outcome.why)


def test_our_own_restore_is_explained(install: Install, tmp_path: Path) -> None:
    """An operation of ours that puts an older pair in place says so in the chain, and audits are quiet."""
    taken = take(install, install.snapshots)
    for _ in range(3):
        install.work()
    assert sealed(install).number == 2
    install.close()
    for source, target in (("qdrant", install.vectors), ("history.db", install.history)):
        if target.is_dir():
            shutil.rmtree(target)
            shutil.copytree(Path(taken.path) / source, target)
        else:
            shutil.copyfile(Path(taken.path) / source, target)
    assert said(audited(install)) == {("D311", None)}
    outcome = explain(installed(install), this_host(), "restore", f"snapshot {taken.manifest.name}")
    assert outcome is not None
    assert (outcome.extended, outcome.number, outcome.accepted) == (True, 3, ())
    assert said(audited(install)) == set()
    with book_of(install) as book:
        entry = book.seals()[-1]
        assert (entry.kind, entry.reason) == ("restore", f"snapshot {taken.manifest.name}")
    install.open()
    install.work()
    assert install.snapshot().number == 4


def test_a_restore_of_what_was_never_sealed_is_recorded_by_name(install: Install) -> None:
    """The snapshot was taken when its seal was refused: restoring it does not make the change vanish unsaid."""
    assert sealed(install).extended
    install.close()
    install.points.edit(install.ids[3], lambda p: p.update(user_id="mallory"))
    taken = take(install, install.snapshots)
    assert taken.seal is not None
    assert not taken.seal.extended
    shutil.rmtree(install.vectors)
    shutil.copytree(Path(taken.path) / "qdrant", install.vectors)
    outcome = explain(installed(install), this_host(), "restore", "snapshot")
    assert outcome is not None
    assert outcome.accepted == (f"D310 {install.ids[3]} changed user",)


def test_without_a_chain_there_is_nothing_to_explain(install: Install) -> None:
    assert explain(installed(install), this_host(), "restore", "snapshot") is None
    audited(install)
    assert explain(installed(install), this_host(), "restore", "snapshot") is None
