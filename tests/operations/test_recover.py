"""Memories that a log still has: found, attributed, added back once; and never what nobody lost or somebody erased."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core import recover as core
from mem0audit.core.erasures import make_erasure
from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.recover import Recovered, RecoverPlan
from mem0audit.install.config import Settings
from mem0audit.install.host import this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.audit import audit
from mem0audit.operations.mem0door import find_door
from mem0audit.operations.recover import Wanted, apply_recover, plan_recover
from tests.builders import MemoryBuilder, RawHistory, RawPoints
from tests.operations.embedder import Embedder, serving
from tests.operations.test_restore import agent, undisturbed
from tests.operations.test_snapshot import installed, take

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")

SALT = "ab" * 16
BOB = ("bob", None, None)


@pytest.fixture(scope="module")
def own() -> Iterator[Embedder]:
    with serving() as embedder:
        yield embedder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of mem0 2.2.1 with ids of its own: an audit looks for lost ones in every store that is open here."""
    folder = tmp_path_factory.mktemp("built")
    with MemoryBuilder(folder) as mem0:
        for n in range(4):
            mem0.add(f"Alice likes tea number {n}", user_id="alice")
        mem0.add("Bob drives a Volvo", user_id="bob", agent_id="a7", run_id="r1", metadata={"seen": [1, "x"]})
        moved = mem0.add("Bob lives in Oslo", user_id="bob")
        mem0.update(moved, "Bob lives in Bergen")
        mem0.add("Bob is here until May", user_id="bob", expiration_date="2031-05-01")
        mem0.delete(mem0.add("Bob had a cat", user_id="bob"))
        mem0.add(
            "Said by bobby", user_id="bob", name="bobby", metadata={"created_at": "2024-02-03T04:05:06+00:00"}
        )
        mem0.add("Carol knows it", agent_id="a9", role="assistant")
        mem0.add("Alice likes tea number 0", user_id="alice")  # twice
    return folder


class Store:
    """A copy of it, whose vectors can be wiped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = folder / "mem0_dir" / "history.db"
        self.vectors = folder / "qdrant"
        self.live = {str(i): p.payload for i, p in RawPoints(self.vectors).points().items()}

    def id_of(self, text: str) -> str:
        return next(i for i, p in self.live.items() if p["data"] == text)

    def wipe(self) -> None:
        shutil.rmtree(self.vectors)

    def seen(self) -> None:
        """By an audit: the ledger learns the owners."""
        undisturbed(lambda: audit(self.install(), this_host()))

    def install(self) -> Any:
        return replace(installed(self), agent_python=sys.executable, embedder_dims=8)

    def plan(
        self, wanted: Wanted | None = None, *, ledger: bool = True, snapshots: Path | None = None
    ) -> RecoverPlan:
        settings = Settings(snapshot_dir=str(snapshots) if snapshots else None)
        return undisturbed(
            lambda: plan_recover(
                self.install(),
                this_host(),
                wanted or Wanted(),
                settings=settings,
                ledger=ledger,
                pause=lambda _: None,
            )
        )

    def add_back(self, own: Embedder, wanted: Wanted | None = None, **options: Any) -> Recovered:
        plan = self.plan(wanted, **options)
        door = undisturbed(lambda: find_door(self.install(), this_host()))
        return undisturbed(lambda: apply_recover(plan, door, this_host(), own.config()))

    def points(self) -> list[dict[str, Any]]:
        return [p.payload for p in RawPoints(self.vectors).points().values()]


@pytest.fixture
def store(tmp_path: Path, built: Path) -> Store:
    shutil.copytree(built, tmp_path / "install")
    return Store(tmp_path / "install")


def owner(payload: dict[str, Any]) -> tuple[Any, Any, Any]:
    return payload.get("user_id"), payload.get("agent_id"), payload.get("run_id")


def said(payloads: Any) -> list[tuple[Any, Any]]:
    return sorted({(p["data"], owner(p)) for p in payloads}, key=repr)


def test_every_live_memory_is_back_once_and_found(tmp_path: Path, store: Store, own: Embedder) -> None:
    store.seen()
    store.wipe()
    rows = RawHistory(store.history).rows()
    plan = store.plan()
    assert plan.lost == len(store.live) == 10 and len(plan.memories) == 9 and plan.unknown == ()
    assert [one.why for one in plan.left_out] == ["twice"]
    assert {i.kind for i in plan.incidents} <= {"emptied", "emptied-at-reboot"}
    # the embedder fails half-way: what was added stays, the same command goes on
    own.left = 3
    with pytest.raises(Failed, match=r"^3 of 9 were added back, then: .*nothing is lost$") as caught:
        store.add_back(own)
    assert "the same command goes on" in str(caught.value.hint) and "likes" not in caught.value.message
    own.left = None
    own.asked.clear()
    assert len(store.points()) == 3
    # however few are left, they were lost for sure; one of the seven is another one's twin
    with closing(sqlite3.connect(next(Path(os.environ["XDG_STATE_HOME"]).rglob("*.sqlite")))) as book:
        assert book.execute("SELECT count(*) FROM recovered WHERE new_id IS NULL").fetchone() == (7,)
    done = store.add_back(own)
    assert len(done.added) == len(own.asked) == 6 and done.mem0 == "2.2.1"
    assert said(store.points()) == said(store.live.values())
    # in the order of the log, each with one row of its own, and none of the old ones touched
    now = RawHistory(store.history).rows()
    assert now[: len(rows)] == rows
    assert [row["new_memory"] for row in now[len(rows) :]] == [one.text for one in plan.memories]
    by_text = {p["data"]: p for p in store.points()}
    for old in store.live.values():
        new = by_text[old["data"]]
        assert new["created_at"] == old["created_at"] or old["data"].endswith("number 0")
        assert new.get("actor_id") == old.get("actor_id") and new["role"] == old["role"]
    # searchable, with the user's own embedder
    with MemoryBuilder(store.folder) as mem0:
        for text, user in (("Bob lives in Bergen", "bob"), ("Alice likes tea number 3", "alice")):
            first = mem0.memory.search(text, filters={"user_id": user})["results"][0]
            assert first["memory"] == text
    # a second run adds none, and an audit takes none of them for lost
    again = store.plan()
    assert not again.to_do and again.lost == 0 and again.memories == again.left_out == ()
    assert not {f.code for f in audit(store.install(), this_host()).findings} & {
        "D301",
        "D302",
        "D303",
        "C601",
    }
    sealed = audit(store.install(), this_host(), seal=True).seal
    assert sealed is not None and sealed.extended
    assert not any(name.startswith("D302") for name in sealed.accepted)
    # the ledger of that run is lost: none of them is added once more, for somebody else least of all
    for wanted in (Wanted(), Wanted(assign_user="mallory")):
        forgotten = store.plan(wanted, ledger=False)
        assert forgotten.memories == forgotten.unknown == ()
        assert [one.why for one in forgotten.left_out] == ["there"] * 10
    # killed after mem0 added one and before it was recorded: its text is there for its owner, and is not added again
    with closing(sqlite3.connect(next(Path(os.environ["XDG_STATE_HOME"]).rglob("*.sqlite")))) as book:
        book.execute("UPDATE recovered SET new_id = NULL WHERE old_id = ?", (store.id_of("Carol knows it"),))
        book.commit()
    left = store.plan()
    assert (left.lost, left.memories) == (1, ()) and left.to_do
    assert [one.why for one in left.left_out] == ["there"]
    done = store.add_back(own)
    assert (done.added, len(store.points()), store.plan().lost) == ((), 9, 0)
    # killed between mem0's two writes: it is there, with no row of its own
    there = next(
        str(i) for i, p in RawPoints(store.vectors).points().items() if p.payload["data"] == "Carol knows it"
    )
    with closing(sqlite3.connect(store.history)) as log, log:
        assert log.execute("DELETE FROM history WHERE memory_id = ?", (there,)).rowcount == 1
    assert store.plan().lost == 0


def test_without_the_ledger_the_unknown_ones_wait(store: Store) -> None:
    store.wipe()
    plan = store.plan()
    assert plan.memories == () and len(plan.unknown) == 10
    assert {one.owner_by for one in plan.unknown} == {"neither ledger, snapshot nor messages know it"}
    skipped = store.plan(Wanted(skip_unknown=True))
    assert skipped.unknown == () and {one.why for one in skipped.left_out} == {"owner"}
    bobs = tuple(i for i, p in store.live.items() if p.get("user_id") == "bob")
    plan = store.plan(Wanted(memories=bobs, assign_user="bob"))
    assert {one.memory_id for one in plan.memories} == set(bobs) and plan.unknown == ()
    assert {(one.owner, one.owner_by) for one in plan.memories} == {(("bob", None, None), "--assign-user")}


def test_a_snapshot_knows_owner_and_metadata_and_comes_first(tmp_path: Path, store: Store) -> None:
    taken = take(store, tmp_path / "snapshots")
    shutil.rmtree(os.environ["XDG_STATE_HOME"])
    store.wipe()
    plan = store.plan(snapshots=tmp_path / "snapshots")
    assert plan.snapshot is not None and plan.snapshot.path == taken.path
    assert {one.owner_by for one in plan.memories} == {f"snapshot {taken.manifest.name}"}
    by_text = {one.text: one for one in plan.memories}
    volvo, may = by_text["Bob drives a Volvo"], by_text["Bob is here until May"]
    assert volvo.owner == ("bob", "a7", "r1")
    created = store.live[volvo.memory_id]["created_at"]
    assert core.metadata_for(volvo, "2.2.1") == {"seen": [1, "x"], "created_at": created}
    assert core.metadata_for(volvo, "1.0.8") == {"seen": [1, "x"]}
    assert core.expiration_for(may, "2.2.1") == "2031-05-01" and core.expiration_for(may, "2.0.6") is None


def test_messages_prove_a_user_or_nothing(store: Store) -> None:
    def said_by(*messages: tuple[str, str]) -> RecoverPlan:
        with closing(sqlite3.connect(store.history)) as log:
            log.execute("DELETE FROM messages")
            add = "INSERT INTO messages VALUES (?, ?, 'user', 'hello', ?, '2026-01-01T00:00:00+00:00')"
            log.executemany(add, [(str(n), *one) for n, one in enumerate(messages)])
            log.commit()
        return store.plan(ledger=False)

    bobby = store.id_of("Said by bobby")
    store.wipe()
    plan = said_by(("agent_id=a7&user_id=bob", "bobby"), ("user_id=bob", "bobby"), ("user_id=alice", "al"))
    (one,) = plan.memories
    assert (one.memory_id, one.owner) == (bobby, ("bob", None, None))
    assert len(plan.unknown) == 9
    for other in (
        ("user_id=alice", "bobby"),
        ("user_id=a%3Db", "bobby"),
        ("user_id=a=b", "bobby"),
        ("", "bobby"),
    ):
        assert said_by(("user_id=bob", "bobby"), other).memories == ()


def test_the_ledger_and_a_snapshot_must_agree(tmp_path: Path, store: Store) -> None:
    store.seen()
    tea = store.id_of("Alice likes tea number 1")
    RawPoints(store.vectors).edit(tea, lambda payload: payload.update(user_id="mallory"))
    take_without = tmp_path / "snapshots"
    taken = take(store, take_without)
    with ledgers.opened(store.install(), this_host()) as book:
        book.note_owners({tea: ("alice", None, None)}, 1.0)  # type: ignore[union-attr]
    store.wipe()
    plan = store.plan(snapshots=take_without)
    (one,) = plan.unknown
    assert one.memory_id == tea
    assert one.owner_by == f"the ledger and {taken.manifest.name} name different owners"


def test_the_erased_never_come_back(store: Store) -> None:
    store.seen()
    carol = store.id_of("Carol knows it")
    with ledgers.opened(store.install(), this_host()) as book:
        book.add_erasure(make_erasure(9e9, SALT, ("bob", None, None)))  # type: ignore[union-attr]
        book.add_erasure(make_erasure(1.0, SALT[::-1], None, [carol]))  # type: ignore[union-attr]
        # alice was erased long before she said all this, and came back since
        book.add_erasure(make_erasure(1.0, "cd" * 16, ("alice", None, None)))  # type: ignore[union-attr]
    store.wipe()
    plan = store.plan()
    assert {one.owner for one in plan.memories} == {("alice", None, None)}
    assert sorted(one.why for one in plan.left_out) == ["erased"] * 5 + ["twice"]
    with pytest.raises(Refused, match="erased on request"):
        store.plan(Wanted(memories=(carol,)))
    # nor by giving them to the one who was erased
    with closing(sqlite3.connect(next(Path(os.environ["XDG_STATE_HOME"]).rglob("*.sqlite")))) as book:
        book.execute("DELETE FROM owners")
        book.commit()
    assert {one.why for one in store.plan(Wanted(assign_user="bob")).left_out} == {"erased"}


def test_what_may_have_been_deleted_is_listed_apart(store: Store) -> None:
    store.seen()
    tea = store.id_of("Alice likes tea number 2")
    RawPoints(store.vectors).remove(tea)
    plan = store.plan()
    assert (plan.lost, plan.memories) == (1, ())
    assert [(one.memory_id, one.why) for one in plan.left_out] == [(tea, "doubtful")]
    for wanted in (Wanted(doubtful=True), Wanted(memories=(tea.upper(),))):
        assert [one.memory_id for one in store.plan(wanted).memories] == [tea]


def test_one_that_was_deleted_or_overwritten(tmp_path: Path, store: Store, own: Embedder) -> None:
    store.seen()
    rows = RawHistory(store.history).rows()
    cat = next(row["memory_id"] for row in rows if row["event"] == "DELETE")
    bergen = store.id_of("Bob lives in Bergen")
    plan = store.plan(Wanted(memories=(cat, bergen)))
    assert [(one.text, one.state, one.owner) for one in plan.texts] == [
        ("Bob lives in Oslo", "overwritten", ("bob", None, None)),
        ("Bob had a cat", "deleted", None),
    ]
    # one text that the embedder does not take keeps no other back
    own.refused = {"Bob lives in Oslo"}
    done = store.add_back(own, Wanted(memories=(cat, bergen), assign_user="bob"))
    own.refused = set()
    assert [old for old, _ in done.added] == [cat] and [one for one, _ in done.failed] == [bergen]
    assert said(store.points()) == sorted({*said(store.live.values()), ("Bob had a cat", BOB)}, key=repr)
    (left,) = store.plan(Wanted(memories=(cat, bergen), assign_user="bob")).memories
    assert left.memory_id == bergen
    # as a snapshot has it
    taken = take(store, tmp_path / "snapshots").path
    with MemoryBuilder(store.folder) as mem0:
        mem0.update(bergen, "Bob lives in Rome")
        mem0.delete(bergen)
    (one,) = store.plan(Wanted(memories=(bergen,), snapshot=taken)).memories
    assert (one.text, one.owner_by) == ("Bob lives in Bergen", "the ledger")
    with pytest.raises(CouldNotRead, match="no memory nowhere"):
        store.plan(Wanted(memories=("nowhere",)))


def test_refused_while_it_is_in_use_and_without_what_it_needs(
    tmp_path: Path, store: Store, own: Embedder
) -> None:
    store.seen()
    before = RawHistory(store.history).rows()
    with agent(store) as pid:
        plan = store.plan()
        assert plan.running and plan.lost == 0
        store.wipe()
        plan = store.plan()
        door = find_door(store.install(), this_host())
        with pytest.raises(Refused, match=f"in use by pid {pid} "):
            apply_recover(plan, door, this_host(), own.config())
    assert RawHistory(store.history).rows() == before
    store.history.write_bytes(b"")
    with pytest.raises(CouldNotRead):
        store.plan()


def test_an_expiration_that_may_have_changed_since_is_not_known(tmp_path: Path, store: Store) -> None:
    store.seen()
    take(store, tmp_path / "snapshots")
    may = store.id_of("Bob is here until May")
    with MemoryBuilder(store.folder) as mem0:
        mem0.update(may, expiration_date=None)
    store.wipe()
    (one,) = (one for one in store.plan(snapshots=tmp_path / "snapshots").memories if one.memory_id == may)
    assert (one.expires, one.metadata_by is not None) == (None, True)


def test_an_owner_that_mem0_takes_no_more_waits(store: Store) -> None:
    store.seen()
    tea = store.id_of("Alice likes tea number 1")
    with ledgers.opened(store.install(), this_host()) as book:
        book.note_owners({tea: ("alice smith", None, None)}, 1.0)  # type: ignore[union-attr]
    store.wipe()
    (one,) = store.plan().unknown
    assert one.memory_id == tea and "without an owner that mem0 could be given" in one.owner_by


def test_texts_that_are_gone_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mem0audit.operations.recover.MANY", 1)  # as of many: in one pass over the log
    store.seen()
    store.wipe()
    with closing(sqlite3.connect(store.history)) as log:
        log.execute("UPDATE history SET new_memory = '' WHERE new_memory = 'Carol knows it'")
        log.commit()
    plan = store.plan()
    assert [one.why for one in plan.left_out] == ["no-text", "twice"]
