"""Restores onto a Qdrant server of snapshots that are older than an erasure: nobody who was erased comes back, in any
byte of what the server then has, at any kill, with the ledger or with the snapshots alone."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import RECORD, erasures_text, parse_erasures
from mem0audit.core.errors import Failed, Refused
from mem0audit.core.model import Install
from mem0audit.core.needles import narrow_spellings
from mem0audit.core.restore import Restored, RestorePlan
from mem0audit.core.scopes import Scope
from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.erase import apply_erase, plan_erase
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.scratch import SCRATCH
from mem0audit.operations.serverrestore import apply_server_restore, plan_server_restore
from mem0audit.operations.serversnapshot import create_of_server, plan_server_create
from mem0audit.report.restore import restore_plan_json, restore_plan_text, restored_json, restored_text
from mem0audit.report.screen import Screen
from mem0audit.stores import exchange
from tests.builders import MemoryBuilder, RawHistory
from tests.operations.conftest import quicker
from tests.operations.erased import (
    BEFORE_ALL,
    BOBS,
    EARLIER,
    ENTITY,
    HERS,
    LINKS_LEFT,
    MINE,
    back,
    keep,
    no_door,
    tell,
)
from tests.operations.test_restore import at, die, in_child, steps
from tests.qdrant_server import QdrantServer
from tests.report.test_json import check

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only"),
]

# nearly what she said, and his own
NEARLY = HERS[0].replace("Carol hides", "Bob seeks")
LATER = "Carol came back, and wants to be reminded of her dentist on the first of March"
NAMES = ("mem0", "mem0_entities")
FRAGMENTS = [EARLIER[:30], BEFORE_ALL[:30], ENTITY[:30], *(f"Carol hides {t}" for t in ('"spare',))]
"""Pieces of hers that stand in no text of anybody else's."""


def count(path: Path, texts: list[str] = [*MINE, *FRAGMENTS]) -> int:  # noqa: B006 - it is only read
    """In how many places of a file these stand, as they are or as JSON has them."""
    data = path.read_bytes()
    ways = {way for one in texts for way in narrow_spellings(one)}
    return sum(data.count(way) for way in ways)


class Made:
    """An install on a server, from whose snapshots carol was erased since, with memories of hers that were deleted
    before these were taken, and one that she was remembered by afterwards."""

    def __init__(self, server: QdrantServer, folder: Path) -> None:
        self.server, self.folder, self.state = server, folder, folder / "state"
        agent = self.agent = MemoryBuilder(folder / "install", server=server.url)
        self.history, self.snapshots = agent.history, folder / "snapshots"
        self.told = tell(agent, folder, lambda: self.install, self.take, [*BOBS, NEARLY])
        self.theirs = self.of_others()
        apply_erase(
            plan_erase(self.install, this_host(), scope=Scope("carol"), only_this_store=True), this_host()
        )
        agent.open()
        self.later = agent.add(LATER, user_id="carol")
        agent.close()
        self.points = {name: self.scrolled(name) for name in NAMES}
        keep(folder)

    @property
    def install(self) -> Install:
        found = locate(Flags(history=str(self.history), qdrant_url=self.server.url), this_host())
        return replace(found, agent_python=sys.executable)

    def take(self) -> str:
        plan = plan_server_create(self.install, this_host(), str(self.snapshots))
        return create_of_server(plan, this_host()).path

    def scrolled(self, name: str) -> list[dict[str, Any]]:
        body = {"limit": 1000, "with_payload": True, "with_vector": True}
        points: list[dict[str, Any]] = self.server.result("POST", f"/collections/{name}/points/scroll", body)[
            "points"
        ]
        return sorted(points, key=lambda p: str(p["id"]))

    def of_others(self, base: str = "mem0", history: Path | str | None = None) -> tuple[Any, ...]:
        """All that is bob's: points with their vectors, entities (whose links may go), rows; how both are made."""
        points = [p for p in self.scrolled(base) if p["payload"].get("user_id") == "bob"]
        entities = [
            {**p, "payload": {**p["payload"], "linked_memory_ids": None}}
            for p in self.scrolled(f"{base}_entities")
            if p["payload"].get("user_id") == "bob"
        ]
        rows = [
            dict(r) for r in RawHistory(history or self.history).rows() if r["memory_id"] in self.told.bobs
        ]
        kinds = []
        for name in (base, f"{base}_entities"):
            info = self.server.result("GET", f"/collections/{name}")
            schema = {k: {**v, "points": None} for k, v in info["payload_schema"].items()}
            kinds.append((info["config"], schema))
        return points, entities, [{**r, "rowid": 0} for r in rows], kinds

    def again(self) -> Made:
        if not self.server.running:
            self.server.start()
        back(self.folder)
        for name in self.server.collections() - set(NAMES):
            self.server.result("DELETE", f"/collections/{name}")
        for name in NAMES:
            if name not in self.server.collections():
                continue
            path = f"/collections/{name}/points"
            self.server.result("POST", f"{path}/delete?wait=true", {"filter": {}})
            self.server.result("PUT", f"{path}?wait=true", {"points": self.points[name]})
        return self

    def plan(self, **options: Any) -> RestorePlan:
        install = options.pop("install", self.install)
        snapshot = options.pop("snapshot", self.told.snapshot)
        return plan_server_restore(snapshot, this_host(), install, **options)

    def restore(self, **options: Any) -> Restored:
        plan = self.plan(**options)
        return apply_server_restore(plan, this_host(), options.get("install", self.install))

    def text_of_hers(self, base: str = "mem0", history: Path | str | None = None) -> int:
        """In how many places of what is published any of hers stands: of the log, and of what the server has, by a
        snapshot that it takes of it now."""
        log = history or self.history
        places = [Path(f"{log}{side}") for side in ("", *exchange.SIDES)]
        found = sum(count(p) for p in places if p.exists())
        for name in (base, f"{base}_entities"):
            if name not in self.server.collections():
                continue
            said = self.server.result("POST", f"/collections/{name}/snapshots?wait=true")
            path = self.server.snapshots / name / said["name"]
            found += count(path)
            self.server.result("DELETE", f"/collections/{name}/snapshots/{said['name']}?wait=true")
        return found

    def left(self) -> set[str]:
        """What the server has beside the two collections: collections, and snapshots of any."""
        snapshots = {p.parent.name for p in self.server.snapshots.glob("*/*.snapshot")}
        return (self.server.collections() - set(NAMES)) | snapshots


def check_restored(made: Made, base: str = "mem0", history: Path | str | None = None) -> None:
    """Hers is gone in every byte; all of bob's is as the snapshot has it."""
    assert made.text_of_hers(base, history) == 0
    assert made.of_others(base, history) == made.theirs
    assert {p["payload"]["user_id"] for p in made.scrolled(base)} == {"bob"}
    entities = (p["payload"] for p in made.scrolled(f"{base}_entities"))
    links = {one["data"]: set(one["linked_memory_ids"]) for one in entities}
    assert links == {data: {made.told.bobs[n] for n in his} for data, his in LINKS_LEFT.items()}
    log = RawHistory(history or made.history).rows()
    texts = {t for r in log if r["memory_id"] in made.told.hers for t in (r["old_memory"], r["new_memory"])}
    assert texts <= {"", None}
    assert [r["event"] for r in log if r["memory_id"] == made.told.ids[0]] == ["ADD", "DELETE"]


@pytest.fixture(scope="module")
def built(qdrant_process: QdrantServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("servererase")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        quicker(patch)
        yield Made(qdrant_process, folder)
    for name in NAMES:
        qdrant_process.result("DELETE", f"/collections/{name}")


@pytest.fixture
def made(built: Made, qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(built.state))
    quicker(monkeypatch)
    return built.again()


def test_in_place_killed_at_its_end_and_finished(made: Made) -> None:
    """By the same command, with the copy that was made, though there is no mem0 any more."""
    assert count(Path(made.told.snapshot) / "server/mem0.snapshot", HERS) >= len(
        HERS
    )  # it can be found where it is
    was = made.scrolled("mem0")
    plan = made.plan()
    erase = plan.erase
    assert (erase.erasures, erase.memories, erase.entities, erase.links) == (1, 7, 1, 1)
    assert (erase.rows, erase.messages, erase.unattributed) == (11, 2, (0, 0))
    assert (erase.mem0, erase.own) == ("2.2.1", False)
    text = " ".join(restore_plan_text(plan, Screen()).split())
    assert "7 memories and 1 entity, deleted under mem0 2.2.1 (--agent-python)" in text
    assert check(restore_plan_json(plan), "restore-plan")["erase"]["memories"] == 7
    assert made.scrolled("mem0") == was and made.left() == set()
    killed("restore.exchange", 1, made, plan)
    found = interrupted(made.install, this_host())
    assert found is not None and found.course == "finish" and made.left() == set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mem0audit.operations.erasecopy.find_door_to_copy", no_door)
        done = made.restore()
    assert done.resumed and done.between == ()
    check_restored(made)
    check_nothing_left(made)
    assert (done.manifest.counts["memories"], done.manifest.counts["entities"]) == (6, 2)
    with made.agent as agent:
        agent.open()
        agent.update(agent.add("Bob is well", user_id="bob"), "Bob is very well")


def killed(name: str, number: int, made: Made, plan: RestorePlan) -> None:
    with steps(at(name, number, die)):
        work = lambda: apply_server_restore(plan, this_host(), made.install) and 0  # noqa: E731
        assert in_child(work) == -signal.SIGKILL


def check_nothing_left(made: Made) -> None:
    assert made.left() == set()
    assert not list(made.folder.glob("install/**/.*mem0audit-restoring"))


def test_elsewhere_with_the_snapshots_alone(
    made: Made, own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another home, no ledger, no install: into a new folder and new collections, under mem0audit's own mem0. Whose a
    row is that the record does not name, another snapshot says."""
    monkeypatch.setenv("XDG_STATE_HOME", str(own_home / "state"))
    shutil.rmtree(made.folder / "install")
    onto = locate(Flags(qdrant_url=made.server.url), this_host())
    record = made.snapshots / RECORD
    (known,) = parse_erasures(record.read_bytes())
    record.write_text(erasures_text([replace(known, ids=())]))
    erase = made.plan(install=onto, to=str(tmp_path / "new")).erase
    # the first one has the memory that was deleted before the second; of the other no snapshot knows anything
    assert (erase.rows, erase.unattributed, erase.not_read) == (9, (2, 1), ())
    record.write_text(erasures_text([known]))
    plan = made.plan(install=onto, to=str(tmp_path / "new"))
    done = apply_server_restore(plan, this_host(), onto)
    assert done.erased is not None and done.erased.own
    assert "less who was erased since" in restored_text(done, plan, Screen())
    assert check(restored_json(done, plan), "restore")["erased"]["memories"] == 7
    assert (done.erased.memories, done.erased.rows, done.erased.unattributed) == (7, 11, (0, 0))
    assert done.collection == f"mem0-{Path(made.told.snapshot).name.lower()}"
    check_restored(made, done.collection, done.history)
    assert made.left() == {done.collection, f"{done.collection}_entities"}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["history.db", "new"]


def test_refused_where_it_cannot_be_done(made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    was = [made.scrolled(name) for name in NAMES]

    monkeypatch.setattr("mem0audit.operations.erasecopy.find_door_to_copy", no_door)
    for options in ({}, {"to": str(tmp_path / "new")}):
        with pytest.raises(Refused, match=r"holds 7 memories of somebody who was erased since \(B905\)"):
            made.plan(**options)
    assert [made.scrolled(name) for name in NAMES] == was
    assert made.left() == set() and not list(tmp_path.iterdir())


def test_cut_off_while_it_is_made(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server dies, and we are killed: both stores are as they were. What lies on the server then goes with the next
    run by what was noted alone, as on another machine."""
    plan = made.plan()
    was = [made.scrolled(name) for name in NAMES]

    def step(this: str) -> None:
        if this == "server.carry":
            made.server.kill()

    with steps(step), pytest.raises(Failed, match="nothing was changed"):
        apply_server_restore(plan, this_host(), made.install)
    made.server.start()
    first = made.left()
    assert len(first) > 1 and all(name.startswith(SCRATCH) for name in first)
    monkeypatch.setattr("mem0audit.operations.scratch._machine", lambda: "00000000")
    killed("server.snapshot", 4, made, plan)  # two of what is there, two of the copy
    assert [made.scrolled(name) for name in NAMES] == was
    second = made.left()
    assert len(second) == 4 and not first & second
    assert any(made.server.snapshots.glob(f"{SCRATCH}*/*.snapshot"))
    monkeypatch.setattr("mem0audit.operations.scratch._machine", lambda: "11111111")
    done = made.restore()
    assert done.erased is not None and not done.resumed
    check_restored(made)
    check_nothing_left(made)


def test_one_that_was_cut_off_before_the_erasure_is_taken_back(made: Made) -> None:
    """What was to be put back holds her: it is never finished, and the restore begins again without her."""
    record = (made.snapshots / RECORD).read_bytes()
    (made.snapshots / RECORD).unlink()
    plan = made.plan(ledger=False, without_erasure_record=True)
    assert not plan.erase.anything
    with steps(at("restore.exchange", 1, die)):
        assert (
            in_child(lambda: apply_server_restore(plan, this_host(), made.install) and 0) == -signal.SIGKILL
        )
    assert made.text_of_hers()
    (made.snapshots / RECORD).write_bytes(record)
    plan = made.plan()
    assert plan.interrupted is not None and plan.interrupted.course == "back"
    done = apply_server_restore(plan, this_host(), made.install)
    assert done.settled is not None and done.settled.course == "back" and not done.resumed
    check_restored(made)
