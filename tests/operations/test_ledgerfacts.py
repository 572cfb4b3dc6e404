"""Expiry, supersession, and what an agent gets of both, on real mem0 stores."""

from __future__ import annotations

import contextlib
import datetime as real_datetime
import json
import os
import shutil
import sqlite3
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mem0audit
from mem0audit import facts
from mem0audit.core.erase import ErasePlan
from mem0audit.core.errors import CouldNotRead, Refused, UsageProblem
from mem0audit.core.ledger import DAY_S
from mem0audit.core.model import Finding, Install
from mem0audit.core.moments import until
from mem0audit.core.repair import Wanted
from mem0audit.core.scopes import Scope
from mem0audit.install.host import Host, this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations import ledgerfacts
from mem0audit.operations import live as live_module
from mem0audit.operations.audit import audit
from mem0audit.operations.erase import apply_erase, plan_erase
from mem0audit.operations.export import export
from mem0audit.operations.repair import apply_repair, plan_repair
from mem0audit.operations.residue import residue
from mem0audit.report.erase import erase_plan_text, erased_text
from mem0audit.report.export import export_lines
from mem0audit.report.screen import Screen
from mem0audit.stores import ledger as ledger_store
from mem0audit.stores.ledger import Ledger
from mem0audit.stores.mem0api import Mem0Worker
from tests.builders import MemoryBuilder, RawPoints
from tests.operations.test_mem0door import install_at
from tests.operations.test_repair import Killed
from tests.operations.test_restore import agent, in_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memories are changed on Linux only")
TEXTS = {
    "old": "SECRET port 8080",
    "new": "SECRET port 9090",
    "newest": "SECRET port 7070",
    "tea": "SECRET tea",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("facts")
    with MemoryBuilder(folder) as running:
        ids = {
            name: running.add(
                text, user_id="alice", metadata={"own": name}, run_id="r" if name == "old" else None
            )
            for name, text in TEXTS.items()
        }
        ids["bob"] = running.add("SECRET port 8080", user_id="bob", role="assistant", name="bo")
    return folder, ids


class Store:
    """A copy of the built install, whose ledger an audit has filled."""

    def __init__(self, folder: Path, ids: dict[str, str]) -> None:
        self.folder, self.ids = folder, ids
        self.install: Install = install_at(folder, sys.executable)
        self.host: Host = replace(this_host(), now=time.time())
        self.audit()

    @property
    def vectors(self) -> Path:
        return self.folder / "qdrant"

    @property
    def history(self) -> Path:
        return self.folder / "mem0_dir" / "history.db"

    def audit(self, **more: Any) -> list[Finding]:
        given = {"select": ("T702", "T703", "T704", "T705", "T706"), **more}
        return list(audit(self.install, self.host, pause=lambda _: None, **given).findings)

    def codes(self, **more: Any) -> list[tuple[str, str | None]]:
        return [(f.code, f.memory_id) for f in self.audit(**more)]

    @contextlib.contextmanager
    def book(self) -> Iterator[Ledger]:
        with ledgers.opened(self.install, self.host) as book:
            assert isinstance(book, Ledger)
            yield book

    def live(self) -> set[str]:
        with self.book() as book, contextlib.closing(ledger_store.connect(book.path)) as db:
            return {i for (i,) in db.execute("SELECT id FROM live_memory")}

    def stored(self) -> set[str]:
        return set(RawPoints(self.vectors).points())

    def supersede(self, old: str, new: str) -> None:
        ledgerfacts.supersede(self.install, self.host, self.ids[old], self.ids[new])


@pytest.fixture
def store(built: tuple[Path, dict[str, str]], tmp_path: Path, own_home: Path) -> Store:
    folder = tmp_path / "install"
    shutil.copytree(built[0], folder)
    return Store(folder, built[1])


# --- facts of somebody -------------------------------------------------------------------------------


def tell(store: Store) -> None:
    """Three values of alice, one of bob, one of the api that is tied to a memory of hers."""
    for subject, attribute, value, tied in (
        ("alice", "home", "FACT Oslo", "tea"),
        ("alice", "home", "FACT Bergen", "newest"),
        ("alice", "employer", "FACT Contoso", None),
        ("bob", "home", "FACT Rome", "bob"),
        ("api", "port", "FACT 9090", "new"),
    ):
        store.host = replace(store.host, now=store.host.now + 1)
        tied_id = None if tied is None else store.ids[tied]
        facts.remember(
            *(subject, attribute, value),
            source="FACT mail",
            memory_id=tied_id,
            now=store.host.now,
            install=store.install,
        )


def told(store: Store) -> list[str]:
    return [fact.value for fact in facts.history(install=store.install)]


def facts_left(store: Store, **of: Any) -> list[int | None]:
    found = residue(store.install, store.host, **of)
    assert found.remains
    return [one.count for one in found.rows if one.kind == "facts"]


@pytest.mark.thorough
def test_what_the_ledger_was_told_of_somebody_is_exported_and_goes_with_them(store: Store) -> None:
    tell(store)

    def planned(**more: Any) -> ErasePlan:
        return plan_erase(store.install, store.host, only_this_store=True, **more)

    alice, run = Scope(user="alice"), Scope(user="alice", run="r")
    handed = export(store.install, store.host, alice)
    assert [fact.value for fact in handed.facts] == ["FACT Contoso", "FACT Oslo", "FACT Bergen", "FACT 9090"]
    lines = [json.loads(line) for line in export_lines(handed).splitlines()]
    assert (lines[-2]["kind"], lines[-2]["value"], lines[-1]["facts"]) == ("fact", "FACT 9090", 4)
    assert export(store.install, store.host, run).facts == ()
    assert (facts_left(store, scope=alice), facts_left(store, scope=run)) == ([4], [])
    # of a single memory what is known of the past stays, and is said
    tea = store.ids["tea"]
    assert facts_left(store, memory_ids=[tea]) == [1]
    assert planned(memory_ids=[tea], redact=True).facts_go
    plan = planned(memory_ids=[tea])
    assert "It leaves 1 fact of the ledger tied to them" in erase_plan_text(plan, Screen(width=200))
    done = apply_erase(plan, store.host)
    assert [(one.count, now) for one, now in done.places if one.kind == "facts"] == [(1, 1)]
    assert (done.facts, len(told(store))) == (0, 5)
    with store.book() as book:
        path = book.path
    plan = planned(scope=alice)
    assert "And from the ledger 4 facts put down of them" in erase_plan_text(plan, Screen(width=200))
    assert in_child(lambda: apply_erase(plan, store.host, progress=Killed("sealing")) and 0) == 9
    done = apply_erase(planned(), store.host)
    assert (done.resumed, done.facts, told(store)) == (True, 4, ["FACT Rome"])
    assert "\nRemoved from the ledger: 4 facts.\n" in erased_text(done, Screen(width=200))
    data = b"".join(one.read_bytes() for one in path.parent.iterdir())
    assert [word for word in (b"Oslo", b"Bergen", b"Contoso", b"9090", b"Rome") if word in data] == [b"Rome"]
    assert [one for one in residue(store.install, store.host, scope=alice).rows if one.kind == "facts"] == []
    # of nobody but the ledger
    facts.remember("ann", "home", "FACT Lima", now=store.host.now, install=store.install)
    assert planned(scope=Scope(user="ann")).facts == 1
    facts.remember("ann", "tea", "FACT", memory_id="gone", now=store.host.now, install=store.install)
    assert planned(memory_ids=["gone"], redact=True).facts == 1
    with pytest.raises(CouldNotRead):  # nothing would be done
        planned(memory_ids=["gone"])


# --- what an audit leaves, and sources ---------------------------------------------------------------


def test_an_audit_and_what_it_leaves(store: Store) -> None:
    with store.book() as book:
        rows = book.memories()
    assert set(rows) == set(store.ids.values())
    bob = rows[store.ids["bob"]]
    assert (bob.role, bob.actor_id, bob.source) == ("assistant", "bo", None)
    payload = RawPoints(store.vectors).points()[store.ids["tea"]].payload
    assert rows[store.ids["tea"]].confirmed_at == pytest.approx(
        real_datetime.datetime.fromisoformat(payload["created_at"]).timestamp()
    )
    assert store.codes() == []
    store.host = replace(store.host, now=store.host.now + 91 * DAY_S)
    (found,) = store.audit()
    assert (found.code, found.evidence["source not known"]) == ("T703", 5)
    with store.book() as book:
        data = b"".join(path.read_bytes() for path in book.path.parent.iterdir())
    assert not [text for text in TEXTS.values() if text.encode() in data]


def test_a_source_is_what_a_confirmation_needs(store: Store) -> None:
    tea = store.ids["tea"]
    with pytest.raises(Refused, match="not known, so it cannot be confirmed"):
        ledgerfacts.confirm(store.install, store.host, tea)
    later = replace(store.host, now=store.host.now + 500)
    done = ledgerfacts.confirm(store.install, later, tea.upper(), "https://wiki/tea")
    assert (done.fact.confirmed_at, done.fact.source) == (later.now, "https://wiki/tea")
    ledgerfacts.confirm(store.install, later, tea)
    ledgerfacts.note_source(store.install, later, tea, None)
    with pytest.raises(Refused):
        ledgerfacts.confirm(store.install, later, tea)
    for bad in ("", " ", "a\nb", "x" * 1001, "Unknown"):
        with pytest.raises(UsageProblem):
            ledgerfacts.checked_source(bad)
    with pytest.raises(CouldNotRead, match="no memory"):
        ledgerfacts.confirm(store.install, later, "7", "x")


def test_what_came_since_the_audit_is_found(store: Store) -> None:
    with MemoryBuilder(store.folder) as running:
        fresh = running.add("SECRET fresh", user_id="alice")
    assert ledgerfacts.note_source(store.install, store.host, fresh, "a file").fact.source == "a file"


# --- expiry ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-12-05", "2026-12-06T00:00:00+00:00"),
        ("2026-12-05T18:00Z", "2026-12-05T18:00:00+00:00"),
        ("2026-12-05 18:00:30+02:00", "2026-12-05T16:00:30+00:00"),
        ("2026-12-05T18:00", None),
        ("20261205", None),
        ("tomorrow", None),
        ("2026-02-30", None),
    ],
)
def test_moments(text: str, utc: str | None) -> None:
    wanted = None if utc is None else real_datetime.datetime.fromisoformat(utc).timestamp()
    assert until(text) == wanted


def found_at(running: MemoryBuilder, moment: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What mem0's own get_all gives with its clock at this moment."""
    from mem0.memory import main

    at = real_datetime.datetime.fromisoformat(moment)

    class Clock(real_datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return at.astimezone(tz)

    with monkeypatch.context() as patch:
        patch.setattr(main, "datetime", Clock)
        found = running.memory.get_all(filters={"user_id": "alice"})
    return {one["id"] for one in found["results"]}


def test_mem0_hides_it_once_its_day_is_over_and_we_from_the_second_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tea = store.ids["tea"]
    raw = RawPoints(store.vectors)
    before, others = raw.points()[tea], {i: b for _, i, b in raw.rows()}
    at = until("2126-12-05T18:00Z")
    plan = ledgerfacts.plan_expiry(store.install, store.host, tea, at)
    assert (plan.day, plan.mem0, plan.why_not) == ("2126-12-05", "2.2.1", None)
    assert ledgerfacts.apply_expiry(plan, store.host) == ()
    after = raw.points()[tea]
    assert after.vector == before.vector
    kept = {
        k: v
        for k, v in after.payload.items()
        if k not in ("expiration_date", "updated_at", "text_lemmatized")
    }
    assert kept == {k: v for k, v in before.payload.items() if k not in ("updated_at", "text_lemmatized")}
    changed = [i for _, i, b in raw.rows() if others[i] != b]
    assert changed == [raw.row_of(tea)[0]]
    with store.book() as book:
        assert book.memories([tea])[tea].expires_at == at
    store.audit()
    with store.book() as book:
        row = book.memories([tea])[tea]
    assert row.expires_at == at  # mem0's day is ours, and ours is to the second
    assert row.confirmed_at < store.host.now  # setting an end confirms nothing
    assert row.is_live(at - 1) and not row.is_live(at)  # type: ignore[operator]
    with MemoryBuilder(store.folder) as running:
        for moment, is_there in (
            ("2126-12-05T18:00:01+00:00", True),  # six hours late, never early
            ("2126-12-05T23:59:59+00:00", True),
            ("2126-12-05T23:00:00-07:00", False),
            ("2126-12-06T00:00:00+00:00", False),
        ):
            assert (tea in found_at(running, moment, monkeypatch)) is is_there, moment


def test_with_the_agent_running_the_ledger_alone_has_it(store: Store) -> None:
    tea = store.ids["tea"]
    with agent(store):
        plan = ledgerfacts.plan_expiry(store.install, store.host, tea, 1.0)
        assert plan.mem0 is None
        assert "in use by pid" in str(plan.why_not)
        ledgerfacts.apply_expiry(plan, store.host)
    store.audit()
    with store.book() as book:
        assert book.memories([tea])[tea].expires_at == 1.0


# --- supersession ----------------------------------------------------------------------------------------


def test_of_one_owner_and_not_by_what_is_outdated(store: Store) -> None:
    with pytest.raises(Refused, match="different owners"):
        store.supersede("old", "bob")
    store.supersede("old", "new")  # of another run, and the same user
    with pytest.raises(Refused, match="superseded itself"):
        store.supersede("new", "old")
    with pytest.raises(Refused, match="is superseded"):
        ledgerfacts.confirm(store.install, store.host, store.ids["old"], "x")
    assert store.codes() == [("T702", store.ids["old"])]
    ledgerfacts.supersede(store.install, store.host, store.ids["old"], None)
    assert store.codes() == []
    assert store.ids["old"] in store.live()


def test_the_agent_deletes_the_newer_one(store: Store) -> None:
    """A plain Memory.delete: the outdated fact is all that is left in mem0. It is said, and it is not live."""
    old, new = store.ids["old"], store.ids["new"]
    store.supersede("old", "new")
    with MemoryBuilder(store.folder) as running:
        running.delete(new)
        found = running.memory.get_all(filters={"user_id": "alice"})
        assert old in {one["id"] for one in found["results"]}
        left = mem0audit.live(found, running.memory)["results"]
        assert {one["id"] for one in left} == {store.ids["newest"], store.ids["tea"]}
    for _ in range(3):
        (finding,) = store.audit()
        assert (finding.code, finding.memory_id, finding.evidence["replaced by"]) == ("T705", old, new)
        assert finding.evidence["why"] == "what replaced it was deleted in mem0"
        assert old not in store.live()
    with MemoryBuilder(store.folder) as running:
        running.delete(old)
    assert store.codes() == []
    with store.book() as book:
        assert old not in book.memories()


@pytest.mark.parametrize("how", ["nulled", "row deleted", "point lost"])
def test_a_pointer_that_hangs_is_said_and_brings_nothing_back(store: Store, how: str) -> None:
    old, new = store.ids["old"], store.ids["new"]
    store.supersede("old", "new")
    with store.book() as book:
        path = book.path
    if how == "point lost":
        RawPoints(store.vectors).remove(new)
    else:
        with contextlib.closing(sqlite3.connect(path)) as db:  # with foreign keys off
            db.execute(
                "UPDATE memory SET superseded_by = NULL"
                if how == "nulled"
                else f"DELETE FROM memory WHERE id = '{new}'"
            )
            db.commit()
    why = {
        "nulled": "what replaced it is not known any more: the pointer was emptied",
        "row deleted": "what replaced it has no row in the ledger",
        "point lost": "what replaced it is not in the vector store",
    }
    (finding,) = store.audit()
    assert (finding.code, finding.memory_id, finding.evidence["why"]) == ("T705", old, why[how])
    for _ in range(2):
        store.audit()
        assert old not in store.live()


@pytest.mark.thorough
def test_deleting_the_newest_deletes_what_it_replaced_at_every_kill(store: Store) -> None:
    """Its point first: at no moment, and after no kill, is an outdated one stored without its successor."""
    ids = store.ids
    chain = [ids["old"], ids["new"], ids["newest"]]
    store.supersede("old", "new")
    store.supersede("new", "newest")
    seen = []

    def killed(plan: ErasePlan, phase: str, nth: int) -> int:
        # else the worker does what it was sent ahead, in the same order, before it ends
        Mem0Worker.delete_each = lambda self, ids: map(self.delete, ids)  # type: ignore[method-assign]
        return 1 if apply_erase(plan, store.host, progress=Killed(phase, nth)) else 0

    for phase, nth in (
        ("deleting memories", 2),
        ("deleting memories", 2),
    ):
        plan = plan_erase(store.install, store.host, memory_ids=(ids["newest"],))
        if not seen:
            assert list(plan.ids) == chain
            assert "2 memories that these replaced go with them" in " ".join(plan.warnings)
        assert in_child(lambda: killed(plan, phase, nth)) == 9  # noqa: B023
        stored = store.stored()
        seen.append([one in stored for one in chain])
        store.audit()
        assert store.live() & set(chain) <= {ids["newest"]}
    assert seen == [[False, True, True], [False, False, True]]
    apply_erase(plan_erase(store.install, store.host), store.host)
    with store.book() as book:
        assert set(book.memories()) == {ids["tea"], ids["bob"]}
    assert store.codes() == []


def test_a_repair_that_deletes_takes_what_was_replaced(store: Store, tmp_path: Path) -> None:
    ids = store.ids
    store.supersede("old", "new")
    RawPoints(store.vectors).edit(ids["new"], lambda p: p.update(expiration_date="2020-01-01"))
    wanted = Wanted(codes=frozenset({"T701"}))
    plan = plan_repair(store.install, store.host, wanted, folder=str(tmp_path / "s"))
    assert plan.todo.of("delete") == (ids["old"], ids["new"])
    done = apply_repair(plan, store.host)
    assert (done.changed.deleted, done.changed.remaining) == (2, ())
    assert store.stored() == {ids["newest"], ids["tea"], ids["bob"]}
    with store.book() as book:
        assert set(book.memories()) == store.stored()


def test_a_prune_inside_the_agent_takes_what_was_replaced(store: Store, tmp_path: Path) -> None:
    ids = store.ids
    store.supersede("old", "new")
    with MemoryBuilder(store.folder) as running:
        running.update(ids["new"], expiration_date="2020-01-01")
        done = mem0audit.prune(running.memory, to=str(tmp_path / "s"))
        assert set(running.points()) == {ids["newest"], ids["tea"], ids["bob"]}
    assert (done.plan.todo.of("delete"), done.changed.deleted) == ((ids["old"], ids["new"]), 2)
    with store.book() as book:
        assert set(book.memories()) == store.stored()


def test_of_copies_the_one_that_holds_stays(store: Store) -> None:
    with MemoryBuilder(store.folder) as running:
        again = running.add(TEXTS["new"], user_id="alice", metadata={"own": "new"})
    store.audit()
    store.supersede("new", "newest")
    plan = plan_repair(store.install, store.host, Wanted(codes=frozenset({"C601"})), folder="/nowhere")
    assert [(step.id, step.keeps) for step in plan.todo.steps] == [(store.ids["new"], again)]


def test_many_outdated_ones_are_a_wide_gap(store: Store) -> None:
    with MemoryBuilder(store.folder) as running:
        more = [running.add(f"SECRET {n}", user_id="alice") for n in range(12)]
    store.audit()
    with store.book() as book:
        for one in more[:9]:
            book.expire(one, 1.0)
    assert store.codes() == []
    with store.book() as book:
        book.supersede(more[10], store.ids["tea"], 1.0)
    (gap,) = [f for f in store.audit() if f.code == "T706"]
    assert (gap.evidence["stored"], gap.evidence["expired"], gap.evidence["live"]) == (17, 9, 7)


# --- for agents --------------------------------------------------------------------------------------------


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    books: dict[Any, Any] = {}
    monkeypatch.setattr(live_module, "_books", books)
    return books


watching: list[list[str]] = []
"""Where files that are opened are noted, while somebody wants that."""


def _note(event: str, args: tuple[Any, ...]) -> None:
    if watching and event in ("open", "sqlite3.connect"):
        watching[0].append(os.fsdecode(args[0]) if isinstance(args[0], bytes) else str(args[0]))


sys.addaudithook(_note)


def test_live_leaves_out_dates_and_records(store: Store, forgotten: dict[Any, Any]) -> None:
    ids, now = store.ids, time.time()
    store.supersede("old", "new")
    ledgerfacts.confirm(
        store.install,
        replace(store.host, now=until("2026-05-02T10:00Z")),
        ids["new"],
        "config.toml",  # type: ignore[arg-type]
    )
    with store.book() as book:
        book.expire(ids["newest"], now - 1)
    with MemoryBuilder(store.folder) as running:
        searched = running.memory.search(TEXTS["tea"], filters={"user_id": "alice"})
        opened: list[str] = []
        watching.append(opened)
        assert mem0audit.live(searched, running.memory)["results"][0]["id"] == ids["tea"]
        watching.clear()
        assert any(".sqlite" in path for path in opened)  # the ledger
        assert not [path for path in opened if str(store.folder) in path]
        answer = running.memory.get_all(filters={"user_id": "alice"})
        assert {one["id"] for one in answer["results"]} == {ids[n] for n in TEXTS}
        before = os.stat(running.history).st_mtime_ns, os.stat(running.vectors / "meta.json").st_mtime_ns
        found = mem0audit.live(answer, running.memory)
        for _ in range(3):
            mem0audit.live(answer["results"], running.memory)
        started = time.perf_counter()
        for _ in range(20):
            mem0audit.live(answer, running.memory)
        assert (time.perf_counter() - started) / 20 < 0.05
        assert before == (
            os.stat(running.history).st_mtime_ns,
            os.stat(running.vectors / "meta.json").st_mtime_ns,
        )
    today = real_datetime.datetime.now(real_datetime.timezone.utc).date().isoformat()
    assert {one["id"]: one["confirmed"] for one in found["results"]} == {
        ids["new"]: "2026-05-02",
        ids["tea"]: today,
    }
    assert "confirmed" not in answer["results"][0]
    with store.book() as book:
        assert book.memories([ids["new"]])[ids["new"]].last_used_at is None  # in batches
    live_module.write_uses()
    with store.book() as book:
        used = {i: f.last_used_at for i, f in book.memories().items() if f.last_used_at is not None}
        assert book.used_since() == pytest.approx(now, abs=60)
    assert set(used) == {ids["new"], ids["tea"]}
    store.host = replace(store.host, now=now + 184 * DAY_S)
    assert {f.code: f.evidence.get("not used for 183 days") for f in store.audit()}["T704"] == 3


def test_live_of_what_mem0_wrote_since(store: Store, forgotten: dict[Any, Any]) -> None:
    tea, long_ago = store.ids["tea"], "2026-01-02T00:00:00+00:00"
    paths = {"history": str(store.install.history.value), "qdrant_path": str(store.vectors)}
    items = [
        {"id": tea, "hash": "0" * 32, "updated_at": long_ago},
        {"id": "not known", "created_at": long_ago},
        {"id": "no time"},
        "no result",
    ]
    found = mem0audit.live(items, **paths)
    assert [one["confirmed"] for one in found[:3]] == ["2026-01-02", "2026-01-02", None]
    assert found[3] == "no result"
    assert mem0audit.live(None, **paths) is None
    assert mem0audit.live({"results": "odd"}, **paths) == {"results": "odd"}


@pytest.mark.parametrize("how", ["none", "damaged", "older", "locked", "no memory", "no config"])
def test_live_raises_nothing(store: Store, forgotten: dict[Any, Any], how: str, tmp_path: Path) -> None:
    with store.book() as book:
        path = book.path
    items = [{"id": store.ids["tea"]}]
    given: dict[str, Any] = {"history": str(store.install.history.value), "qdrant_path": str(store.vectors)}
    if how == "none":
        for one in path.parent.iterdir():
            one.unlink()
    elif how == "damaged":
        mem0audit.live(items, **given)  # it was found, and breaks then
        path.write_bytes(path.read_bytes()[:4096] + b"x" * 20_000)
    elif how == "older":
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA user_version = 3")
    elif how == "no memory":
        given = {"memory": object()}
    elif how == "no config":
        given = {"config": str(tmp_path / "none.yaml")}
    if how == "locked":
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("BEGIN EXCLUSIVE")
            mem0audit.live(items, **given)
            started = time.monotonic()
            live_module.write_uses()
            assert time.monotonic() - started < 2
        live_module.write_uses()
        with store.book() as book:
            assert book.memories()[store.ids["tea"]].last_used_at is not None
        return
    with pytest.warns(RuntimeWarning, match="nothing is left out"):
        found = mem0audit.live(items, **given)
    assert [one["id"] for one in found] == [store.ids["tea"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mem0audit.live(items, **given)


def test_json_lines(store: Store, tmp_path: Path) -> None:
    from mem0audit.cli.ledger import results_in

    answer = json.dumps({"results": [{"id": "a"}, {"id": 7}]})
    assert [one["id"] for one in results_in([answer, "", '{"id": "b"}'], bare=False)] == ["a", 7, "b"]
    assert [one["id"] for one in results_in(['"a"', "7", answer], bare=True)] == ["a", "7", "a", 7]
    for bad in ("{", '"a"', "[]", '{"id": null}', '{"id": ""}', "null", '{"results": 3}'):
        with pytest.raises(UsageProblem, match="line 2"):
            list(results_in(["", bad], bare=False))
