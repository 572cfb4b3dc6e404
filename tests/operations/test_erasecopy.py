"""Restores of snapshots that are older than an erasure: nobody who was erased comes back, in any byte, at any kill,
with the ledger or with the snapshots alone; and nothing of others is lost."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import RECORD, erasures_text, make_erasure, parse_erasures
from mem0audit.core.errors import Refused
from mem0audit.core.restore import RestorePlan
from mem0audit.core.scopes import Scope
from mem0audit.install.host import this_host
from mem0audit.operations.erase import apply_erase, plan_erase
from mem0audit.operations.restore import apply_restore, plan_restore, refuse_erased
from mem0audit.operations.verify import show_snapshot
from mem0audit.report.restore import restore_plan_json, restore_plan_text, restored_json, restored_text
from mem0audit.report.screen import Screen
from mem0audit.stores import exchange
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store
from tests.operations.erased import LINKS_LEFT, MINE, back, keep, no_door, tell
from tests.operations.sealed import Install as Sealed
from tests.operations.sealed import audited, said
from tests.operations.test_residue import plain_count
from tests.operations.test_restore import TELLING, World, at, die, in_child, rows, steps, undisturbed
from tests.operations.test_snapshot import installed, take
from tests.report.test_json import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")


class Made:
    """An install from whose snapshots carol was erased since, with memories of hers that were deleted before these were
    taken: one that the ledger saw, and one that only the first snapshot has."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        agent = self.agent = MemoryBuilder(folder / "install")
        self.history, self.vectors = agent.history, agent.vectors
        self.snapshots = folder / "snapshots"
        self.told = tell(agent, folder, lambda: installed(self), lambda: take(self, self.snapshots).path)
        self.kept = blobs(self), rows_of_others(self), blobs(self, "mem0_entities")
        plan = undisturbed(
            lambda: plan_erase(
                self.install, this_host(), scope=Scope("carol"), only_this_store=True, redact=True
            )
        )
        apply_erase(plan, this_host())
        keep(folder)

    @property
    def install(self) -> Any:
        return replace(installed(self), agent_python=sys.executable)

    def again(self) -> Made:
        back(self.folder)
        return self

    def plan(self, **options: Any) -> RestorePlan:
        wanted = {"install": self.install, **options}
        return undisturbed(lambda: plan_restore(self.told.snapshot, this_host(), **wanted))

    def text_of_hers(self) -> int:
        """In how many places of the published stores any of her texts stands, whole or in pieces."""
        places = [self.history, *(Path(f"{self.history}{s}") for s in exchange.SIDES), self.vectors]
        return sum(plain_count(path, MINE) for place in places for path in every(place))


def every(place: Path) -> list[Path]:
    return [p for p in place.rglob("*") if p.is_file()] if place.is_dir() else [place] * place.exists()


def blobs(store: Any, collection: str = "mem0") -> dict[str, bytes]:
    raw = RawPoints(store.vectors, collection)
    points = raw.points()
    mine = {i for i, p in points.items() if p.payload.get("user_id") == "bob"}
    return {i: raw.row_of(i)[1] for i in mine}


def rows_of_others(store: Any) -> list[dict[str, Any]]:
    bobs = set(blobs(store))
    return [{**dict(r), "rowid": 0} for r in RawHistory(store.history).rows() if r["memory_id"] in bobs]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("erasecopy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield Made(folder)


@pytest.fixture
def made(built: Made, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(built.state))
    return built.again()


def check_others(made: Made, store: Any) -> None:
    """Everything of bob's is as the snapshot has it: memories and entities to the byte, but where carol was linked."""
    points, log, entities = made.kept
    assert blobs(store) == points
    assert rows_of_others(store) == log
    now = RawPoints(store.vectors, "mem0_entities").points()
    links = {p.payload["data"]: set(p.payload["linked_memory_ids"]) for p in now.values()}
    assert links == {data: {made.told.bobs[n] for n in his} for data, his in LINKS_LEFT.items()}
    same = blobs(store, "mem0_entities").items() & entities.items()
    assert len(same) == 1  # the shared one lost a link


class At:
    """A restored pair in another folder."""

    def __init__(self, folder: Path) -> None:
        self.history, self.vectors = folder / "history.db", folder / "qdrant"


# --- Restored ----------------------------------------------------------------------------------------


def test_in_place_nothing_of_hers_is_ever_published(made: Made) -> None:
    """At no step of it, from the plan to the last name."""
    assert plain_count(Path(made.told.snapshot) / "history.db", MINE)
    plan = made.plan()
    erase = plan.erase
    assert (erase.erasures, erase.memories, erase.entities, erase.links) == (1, 7, 1, 1)
    assert (erase.rows, erase.messages, erase.unattributed) == (11, 2, (0, 0))
    assert (erase.mem0, erase.own) == ("2.2.1", False)
    text = " ".join(restore_plan_text(plan, Screen()).split())
    assert "1 erasure is on record since it was taken. What is theirs goes from the copies" in text
    assert "7 memories and 1 entity, deleted under mem0 2.2.1 (--agent-python)" in text
    assert made.text_of_hers() == 0
    seen: list[str] = []

    def look(name: str) -> None:
        if name.startswith(("restore.", "redact.", "clear.")) and [name] != seen[-1:]:
            seen.append(name)
            assert made.text_of_hers() == 0, name

    with steps(look):
        done = undisturbed(lambda: apply_restore(plan, this_host()))
    assert {"redact.commit", "clear.vacuum", "restore.exchange", "restore.aside"} <= set(seen)
    assert made.text_of_hers() == 0
    check_others(made, made)
    log = RawHistory(made.history).rows()
    hers = made.told.hers
    assert {t for r in log if r["memory_id"] in hers for t in (r["old_memory"], r["new_memory"])} <= {
        "",
        None,
    }
    assert [r["event"] for r in log if r["memory_id"] == made.told.ids[0]] == ["ADD", "DELETE"]
    was = show_snapshot(None, made.told.snapshot).manifest
    assert was is not None and set(done.manifest.findings) <= set(was.findings)
    assert done.manifest.counts["memories"] == (was.counts["memories"] or 0) - 7
    assert "less who was erased since" in restored_text(done, plan, Screen())
    counted = check(restored_json(done, plan), "restore")["erased"]
    assert counted == check(restore_plan_json(plan), "restore-plan")["erase"]
    assert (counted["memories"], counted["history_rows"], counted["messages"]) == (7, 11, 2)
    with MemoryBuilder(made.agent.folder) as agent:
        assert set(agent.points()) >= set(made.told.bobs)
        assert not set(agent.points()) & hers
        agent.update(agent.add("Bob is well", user_id="bob"), "Bob is very well")


def test_elsewhere_with_the_snapshots_alone(
    made: Made, own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another home, no ledger, no install: what the deletion wrote beside the snapshots says whose each row was."""
    monkeypatch.setenv("XDG_STATE_HOME", str(own_home / "state"))
    shutil.rmtree(made.folder / "install")
    shutil.move(made.told.first, tmp_path / "first")  # not even the snapshot that has it as a memory
    plan = made.plan(install=None, to=str(tmp_path / "new"))
    assert (plan.erase.memories, plan.erase.rows, plan.erase.unattributed) == (7, 11, (0, 0))
    assert plan.erase.own  # nobody knows the agent: the format is what ours writes
    done = apply_restore(plan, this_host())
    new = At(tmp_path / "new")
    assert done.erased is not None
    assert sum(plain_count(p, MINE) for p in every(tmp_path / "new")) == 0
    check_others(made, new)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_rows_are_attributed_by_the_other_snapshots(
    made: Made, own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the record names the scope alone, as one of another version may."""
    monkeypatch.setenv("XDG_STATE_HOME", str(own_home / "state"))
    record = made.snapshots / RECORD
    (known,) = parse_erasures(record.read_bytes())
    record.write_text(erasures_text([replace(known, ids=())]))
    plan = made.plan(install=None, to=str(tmp_path / "new"))
    # the first one has the memory that was deleted before the second; of the other no snapshot knows anything
    assert (plan.erase.rows, plan.erase.unattributed) == (9, (2, 1))
    assert "Of 1 memory in its log (2 rows) nobody can say whose they were" in " ".join(
        restore_plan_text(plan, Screen()).split()
    )
    shutil.rmtree(made.told.first)
    assert made.plan(install=None, to=str(tmp_path / "new")).erase.unattributed == (4, 2)


# --- Cut off -----------------------------------------------------------------------------------------


def killed(at_step: str, number: int, work: Callable[[], Any]) -> None:
    with steps(at(at_step, number, die)):
        assert in_child(lambda: work() and 0) == -signal.SIGKILL


def test_killed_between_the_two_exchanges_and_finished(made: Made) -> None:
    plan = made.plan()
    killed("restore.exchange", 2, lambda: apply_restore(plan, this_host()))
    assert made.text_of_hers() == 0
    done = undisturbed(lambda: apply_restore(made.plan(), this_host()))
    assert done.resumed and done.settled is not None and done.settled.course == "finish"
    assert made.text_of_hers() == 0
    check_others(made, made)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_killed_at_every_step_and_finished(made: Made) -> None:
    """What is published is the old pair or the new one without her, at each; and the same command makes it whole."""
    seen: list[str] = []
    with steps(seen.append):
        undisturbed(lambda: apply_restore(made.plan(), this_host()))
    for name in sorted(set(seen)):
        if not name.startswith(("restore.", "redact.", "clear.", "scratch.")):
            continue
        for number in {1, 2, seen.count(name)} if name in TELLING else {1, seen.count(name)}:
            made.again()
            plan = made.plan()
            with steps(at(name, number, die)):
                code = in_child(lambda plan=plan: apply_restore(plan, this_host()) and 0)  # type: ignore[misc]
            assert code in (0, -signal.SIGKILL), (name, number)  # 0: it has no second
            assert made.text_of_hers() == 0, (name, number)
            done = undisturbed(lambda: apply_restore(made.plan(), this_host()))
            assert done.settled is None or done.settled.course in ("clean", "finish")
            assert made.text_of_hers() == 0, (name, number)
            check_others(made, made)
            assert not list(made.folder.glob("install/**/.*mem0audit-restoring")), (name, number)


def test_one_that_was_cut_off_before_the_erasure_is_taken_back(made: Made) -> None:
    """Its copies hold her: they are never finished, and the restore begins again without her."""
    record = (made.snapshots / RECORD).read_bytes()
    (made.snapshots / RECORD).unlink()
    plan = made.plan(ledger=False, without_erasure_record=True)
    assert not plan.erase.anything
    killed("restore.exchange", 2, lambda: apply_restore(plan, this_host()))
    (made.snapshots / RECORD).write_bytes(record)
    # no mem0 may do it here: then it is taken back at least
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mem0audit.operations.erasecopy.find_door_to_copy", no_door)
        stuck = made.plan()
        assert stuck.lost is not None and "B905" in stuck.lost
        assert stuck.interrupted is not None and stuck.interrupted.course == "back"
        copy = made.folder / "taken-back"
        shutil.copytree(made.folder / "kept" / "install", copy)
        with pytest.raises(Exception, match="is taken back"):
            apply_restore(stuck, this_host())
    assert made.text_of_hers() == 0
    assert rows(made.history) == rows(copy / "mem0_dir" / "history.db")
    shutil.rmtree(copy)


def test_a_kill_before_the_chain_of_seals_is_told(
    tmp_path: Path, durable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stores are restored and named; what is left to do is done by the next run, the chain too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(durable / "state"))
    with Sealed(tmp_path) as store:
        before = take(store, tmp_path / "snapshots").path
        store.add("later", user_id="alice")
        take(store, tmp_path / "snapshots")
        store.close()

        def restore() -> Any:
            plan = plan_restore(before, this_host(), install=installed(store))
            return undisturbed(lambda: apply_restore(plan, this_host()))

        restore()  # this process, which was the agent, is seen with what that puts aside
        for step, number in (("restore.aside", 2), ("restore.intent.remove", 1)):
            killed(step, number, restore)
            done = restore()
            assert done.settled is not None
            assert said(audited(store)) == set(), step


def test_a_cut_off_one_that_does_not_know_of_an_erasure(tmp_path: Path) -> None:
    """It is taken back, even where what is on record since is of nobody in it."""
    world = World(tmp_path)
    killed("restore.exchange", 2, world.restore)
    found = world.interrupted()
    assert found is not None and found.course == "finish"
    late = (
        plan_restore(world.snapshot, this_host(), to=str(tmp_path / "x"), ledger=False).manifest.taken_at + 60
    )
    (world.snapshots / RECORD).write_text(
        erasures_text([make_erasure(late, "ab" * 16, ("nobody", None, None))])
    )
    done = world.restore()
    assert done.settled is not None and done.settled.course == "back"
    assert not done.resumed and done.erased is None


# --- Under which mem0, and where not -----------------------------------------------------------------


def test_under_ours_where_the_agents_is_too_old_and_else_refused(made: Made, tmp_path: Path) -> None:
    from tests.operations.test_mem0door import environment_with

    old = environment_with(tmp_path / "old", "1.0.5", "1.20.0")
    plan = made.plan(install=replace(made.install, agent_python=old))
    assert (plan.erase.own, plan.erase.interpreter, plan.erase.mem0) == (True, sys.executable, "2.2.1")
    record = make_erasure(this_host().now + 60, "ab" * 16, ("carol", None, None))

    def planned(name: str) -> RestorePlan:
        store = copy_store(name, tmp_path / name, pre_delete_all=True)
        snapshot = take(store, tmp_path / name / "snapshots").path
        (tmp_path / name / "snapshots" / RECORD).write_text(erasures_text([record]))
        agents = replace(installed(store), agent_python=old)
        return undisturbed(lambda: plan_restore(snapshot, this_host(), install=agents, ledger=False))

    assert planned("1.0.11").erase.own
    with pytest.raises(
        Refused, match=r"holds \d+ memories of somebody who was erased since \(B905\)"
    ) as problem:
        planned("0.1.40")
    assert "under 1.0.8 or later only" in problem.value.message
    assert "the snapshot stays until you remove it" in (problem.value.hint or "")


def test_a_move_does_not_publish_a_pair_from_before_an_erasure(made: Made) -> None:
    manifest = show_snapshot(None, made.told.snapshot).manifest
    assert manifest is not None
    with pytest.raises(Refused, match="is older than an erasure") as problem:
        refuse_erased(manifest, made.told.snapshot, made.install, this_host(), True)
    assert f"mem0audit snapshot restore {made.told.snapshot} --to NEWDIR" in (problem.value.hint or "")


def test_an_imported_backup_is_judged_by_its_memories(made: Made, tmp_path: Path) -> None:
    """Its time is that of its newest file: copied after the erasure, it holds memories from before. What she was
    remembered by afterwards stays."""
    from mem0audit.operations.adopt import import_backup, plan_import
    from mem0audit.operations.backup import find_backup

    backup = tmp_path / "backup"
    shutil.copytree(Path(made.told.snapshot) / "qdrant", backup / "qdrant")
    shutil.copy(Path(made.told.snapshot) / "history.db", backup / "history.db")
    later = this_host().now + 5
    points = RawPoints(backup / "qdrant")
    points.edit(
        made.told.ids[0], lambda p: p.update(created_at="2999-01-01T00:00:00+00:00")
    )  # not to be believed
    at_ = parse_erasures((made.snapshots / RECORD).read_bytes())[0].at
    since = datetime.fromtimestamp(at_ + 2, timezone.utc).isoformat()
    new = str(uuid.uuid4())
    points.put(new, {"data": "Carol is back", "user_id": "carol", "created_at": since})
    for path in every(backup):
        os.utime(path, (later, later))
    host = replace(this_host(), now=later + 10)
    plan = plan_import(find_backup(str(backup), host), host, str(made.snapshots))
    imported = import_backup(plan, host).path
    manifest = show_snapshot(None, imported).manifest
    assert manifest is not None and not manifest.pair and manifest.taken_at > at_
    again = plan_restore(imported, host, install=made.install)
    assert again.erase.memories == 7
    assert again.erase.spared == {new}


def test_what_mem0_is_run_as_cannot_reach_what_is_put_in_place(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root runs it as another user")
    staging = tmp_path / "staging"
    (staging / "qdrant" / "collection").mkdir(parents=True)
    (staging / "history.db").write_text("one")
    (staging / "qdrant" / "collection" / "x").write_text("two")
    staging.chmod(0o700)
    with exchange.lent((staging / "history.db", staging / "qdrant"), (65534, 65534)) as (log, folder):
        assert staging.stat().st_mode & 0o777 == 0o711
        theirs = (folder / "collection" / "x").open("a")
        assert {p.stat().st_uid for p in (log.parent, log, folder, *folder.rglob("*"))} == {65534}
    with theirs:
        theirs.write("more")
    assert (staging / "qdrant" / "collection" / "x").read_text() == "two"
    assert {p.stat().st_uid for p in staging.rglob("*")} == {0}
    assert sorted(p.name for p in staging.iterdir()) == ["history.db", "qdrant"]
    assert staging.stat().st_mode & 0o777 == 0o700
    with (
        pytest.raises(OSError, match="no ordinary file"),
        exchange.lent((staging / "qdrant",), (65534, 65534)) as (folder,),
    ):
        (folder / "link").symlink_to("/etc/passwd")
    with suppress(OSError):
        exchange.remove_staging([staging])
    assert not staging.exists()
