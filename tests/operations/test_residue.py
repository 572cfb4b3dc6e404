"""What is left of somebody: counted as a plain search counts it, in every place, and nothing changed by looking."""

from __future__ import annotations

import gzip
import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.residue import FileSearch, Residue, goes_on
from mem0audit.core.retention import Policy, Standing
from mem0audit.core.scopes import Scope
from mem0audit.install.config import Settings
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from mem0audit.operations.export import export
from mem0audit.operations.residue import residue
from mem0audit.operations.restore import apply_restore, plan_restore
from mem0audit.report.residue import residue_text
from mem0audit.report.screen import Screen
from tests.builders import MemoryBuilder, RawHistory, RawPoints
from tests.operations.test_read_only import tree
from tests.operations.test_restore import undisturbed
from tests.operations.test_snapshot import installed, take

CAROL = Scope(user="carol")
SECRETS = [f"Carol keeps spare key number {n} under the flower pot of flat {n * 7}" for n in range(12)]
NEWER = "Carol has moved the spare key to her sister's house in Cuenca"
SHARED = "Everybody in this house is allergic to the peanuts in the blue bowl"
SHORT = "Carol: tea"
BOBS = "Bob mows the lawn on Saturdays when it does not rain in the morning"
SAID = "I am Carol, and I shall tell you where the spare keys of all my flats are"


def keep_what_is_deleted(builder: MemoryBuilder) -> None:
    """As any SQLite but Debian's does it by itself."""
    builder.memory.db.connection.execute("PRAGMA secure_delete = OFF")
    client = builder.memory.vector_store.client._client
    for collection in client.collections.values():
        collection.storage.storage.execute("PRAGMA secure_delete = OFF")


class World:
    """An install with memories of carol and bob, audited; and then carol's deleted, by an SQLite that keeps them."""

    def __init__(self, folder: Path) -> None:
        with MemoryBuilder(folder / "install") as agent:
            keep_what_is_deleted(agent)
            self.ids = [agent.add(text, user_id="carol") for text in (*SECRETS, SHARED, SHORT)]
            self.bobs = [agent.add(text, user_id="bob") for text in (BOBS, SHARED)]
            agent.update(self.ids[0], NEWER)
            agent.add_inferred([SAID], user_id="carol")
            agent.add_inferred(["Bob said that he likes the colour of the blue bowl"], user_id="bob")
            self.ids.append(next(i for i, p in agent.points().items() if p["data"] == SAID))
            agent.plant_entity("Cuenca, the house of her sister", self.ids[:1], user_id="carol")
            agent.plant_entity("the blue bowl", [self.ids[12], self.bobs[1]], user_id="bob")
            self.agent = agent
        self.folder, self.history, self.vectors = agent.folder, agent.history, agent.vectors
        shutil.copytree(agent.folder, folder / "before")
        agent.open()
        keep_what_is_deleted(agent)
        agent.delete_all(user_id="carol")
        agent.close()
        shutil.copytree(agent.folder, folder / "after")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("residue"))


class Install:
    """A copy of it at a path of its own."""

    def __init__(self, made: World, folder: Path) -> None:
        self.made, self.folder, self.ids = made, folder / "install", made.ids
        self.history, self.vectors = self.folder / "mem0_dir" / "history.db", self.folder / "qdrant"

    def be(self, state: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.made.folder.parent / state, self.folder)

    def look(self, **options: Any) -> Residue:
        wanted = {"scope": CAROL, **options}
        return residue(installed(self), this_host(), **wanted)

    @property
    def points(self) -> Path:
        return self.vectors / "collection" / "mem0" / "storage.sqlite"


@pytest.fixture
def store(made: World, tmp_path: Path) -> Install:
    """After the deletion; the ledger saw it before."""
    install = Install(made, tmp_path)
    install.be("before")
    audit(installed(install), this_host())
    install.be("after")
    return install


def rows(found: Residue) -> dict[str, int | None]:
    return {one.kind: one.count for one in found.rows}


def of(found: Residue, path: Path) -> FileSearch:
    return next(one for one in found.files if one.path == str(path))


def plain_count(path: Path, texts: Sequence[str]) -> int:
    data = path.read_bytes()
    return sum(
        len(re.findall(b"(?=" + re.escape(t.encode(way)) + b")", data))
        for t in texts
        for way in ("utf-8", "utf-16-le", "utf-16-be")
    )


def test_before_the_deletion_everything_is_counted(made: World, tmp_path: Path) -> None:
    install = Install(made, tmp_path)
    install.be("before")
    audit(installed(install), this_host())
    found = install.look()
    assert rows(found) == {
        "points": 15,
        "entities": 1,
        "shared entities": 1,
        "history": 16,
        "messages": 2,
    }
    assert found.remains
    assert found.fed_back == 2
    assert found.ids == 15


def test_a_text_too_short_to_be_searched_for_leaves_the_report_open(store: Install) -> None:
    """Emptied in its row, it may still stand in any file: nobody can say that it does not."""
    for texts, why in (
        (("yo",), "1 of 1 texts"),
        (("yo", "no such text in any of the files"), "1 of 2 texts"),
    ):
        found = store.look(scope=Scope("zed"), texts=texts, ledger=False)
        assert not found.remains
        assert found.texts == len(texts) - 1
        assert any(one.gap and one.what.startswith(why) for one in found.not_searched)
        assert "too short" in residue_text(found, Screen())


def test_what_lies_between_the_rows_of_a_page_can_be_cleared_too(made: World, tmp_path: Path) -> None:
    """A row that was deleted alone leaves no freed page."""
    install = Install(made, tmp_path)
    install.be("before")
    audit(installed(install), this_host())
    one = install.ids[3]
    key = next(key for _, key, blob in RawPoints(install.vectors).rows() if one.encode() in blob)
    with closing(sqlite3.connect(install.points)) as connection, connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("DELETE FROM points WHERE id = ?", (key,))
    found = install.look(scope=None, memory_ids=[one])
    seen = of(found, install.points)
    assert seen.whole and not seen.free
    assert "--clear-free-pages" in residue_text(found, Screen())
    # where rows of theirs are, nothing shows that there is more
    assert "--clear-free-pages" not in residue_text(install.look(), Screen())


def test_a_store_that_is_not_there_is_named(store: Install) -> None:
    """A path that was mistyped is no store without anything of theirs."""
    shutil.rmtree(store.vectors)
    found = store.look()
    assert any(one.gap and one.what == str(store.vectors) for one in found.not_searched)
    exported = export(installed(store), this_host(), CAROL)
    assert any(one.gap and one.what == str(store.vectors) for one in exported.not_read)


def test_after_the_deletion(store: Install) -> None:
    before = tree(store.folder)
    found = store.look()
    assert tree(store.folder) == before
    assert rows(found)["points"] == 0
    assert rows(found)["history"] == 16 + 15
    assert rows(found)["messages"] == 2
    assert found.unattributed == (0, 0)
    assert found.remains
    # the log's free pages hold nothing; the vectors' do, since whoever deleted did not overwrite
    texts = [*SECRETS, NEWER, SAID]
    points = of(found, store.points)
    assert points.whole == plain_count(store.points, texts) > len(SECRETS)
    assert points.free
    assert points.filled_pages
    history = of(found, store.history)
    assert history.whole == plain_count(store.history, [*texts, "noted"]) - plain_count(
        store.history, ["noted"]
    )
    assert history.free == 0


def test_pieces_of_deleted_rows_are_found(store: Install) -> None:
    """The beginning of each freed cell is written over by SQLite: what survives is a piece."""
    data = bytearray(store.points.read_bytes())
    text = next(t.encode() for t in SECRETS if t.encode() in data)
    whole = of(store.look(), store.points)
    times = data.count(text)
    store.points.write_bytes(bytes(data).replace(text, b"\xff\xff\xff" + text[3:]))
    cut = of(store.look(), store.points)
    assert (cut.texts, cut.whole) == (whole.texts - 1, whole.whole - times)
    assert cut.pieces == whole.pieces + times


def test_what_others_own_too_is_counted_apart(store: Install) -> None:
    found = of(store.look(), store.points)
    assert found.shared == plain_count(store.points, [SHARED])
    assert found.short == plain_count(store.points, [SHORT])
    # bob's own text is nothing of hers
    bob = store.look(scope=Scope(user="bob"))
    assert of(bob, store.points).whole == plain_count(
        store.points, [BOBS, "Bob said that he likes the colour of the blue bowl"]
    )


def test_every_file_is_searched_and_what_is_not_is_named(store: Install) -> None:
    (store.vectors / "left over.bak").write_bytes(b"x" * 11 + SECRETS[3].encode("utf-16-be"))
    (store.folder / "elsewhere").write_bytes(SECRETS[3].encode())
    (store.vectors / "link").symlink_to(store.folder / "elsewhere")
    copy = store.history.parent / ".history.db.mem0audit-clearing" / "history.db"
    copy.parent.mkdir()
    copy.write_bytes(SECRETS[6].encode())
    journal = Path(f"{store.points}-journal")
    journal.write_bytes(b"\0" * 512 + SECRETS[4].encode() + b"\0")
    packed = store.vectors / "old.gz"
    packed.write_bytes(gzip.compress(SECRETS[5].encode()))
    said: list[tuple[str, int | None, int | None]] = []
    found = store.look(progress=lambda *what: said.append(what))
    assert of(found, store.vectors / "left over.bak").whole == 1
    assert of(found, journal).whole == 1
    assert of(found, copy).whole == 1
    gaps = [n.what for n in found.not_searched if n.gap]
    assert str(store.vectors / "link") in gaps
    assert str(packed) in gaps
    searched = [(done, total) for phase, done, total in said if phase == "searching the files"]
    assert searched[0] == (0, searched[-1][1])
    assert searched[-1][0] == searched[-1][1] == sum(one.size_bytes for one in found.files)
    assert found.not_searched[-1].what == "everything else"
    assert not found.not_searched[-1].gap


def test_a_wal_holds_texts_too(store: Install) -> None:
    with closing(sqlite3.connect(store.history)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("UPDATE history SET new_memory = '' WHERE memory_id = ?", (store.ids[2],))
        connection.execute("UPDATE history SET old_memory = '' WHERE memory_id = ?", (store.ids[2],))
        connection.execute(
            "UPDATE messages SET content = ? WHERE session_scope LIKE '%carol%'", (SECRETS[2] + " wal",)
        )
        connection.commit()
        found = store.look()
        wal = of(found, Path(f"{store.history}-wal"))
        assert wal.whole == plain_count(
            Path(f"{store.history}-wal"), [*SECRETS[:2], *SECRETS[3:], NEWER, SAID, SECRETS[2] + " wal"]
        )
        assert wal.whole


def test_texts_that_are_no_utf8_and_long_ones(store: Install) -> None:
    long = " ".join(f"and then Carol said {n * 7919}" for n in range(2_000))
    log = RawHistory(store.history)
    log.add(store.ids[1], None, long, "UPDATE")
    log.run(
        "UPDATE history SET old_memory = CAST(? AS TEXT) WHERE rowid = (SELECT max(rowid) FROM history)",
        b"not \xff\xfe UTF-8, and still Carol's very own words",
    )
    found = store.look()
    assert rows(found)["history"] == 32
    assert of(found, store.history).pieces >= 1  # over many pages
    other = store.vectors / "more"
    other.write_bytes(b"not \xff\xfe UTF-8, and still Carol's very own words")
    assert of(store.look(), other).whole == 1


@pytest.mark.parametrize(
    ("spelled", "user"),
    [
        ("user_id=carol", "carol"),
        ("agent_id=a&user_id=carol", "carol"),
        ("user_id=c%26d%3D", "c&d="),
        ("user_id=c&d=", "c&d="),
        ("run_id=r&user_id= carol ", "carol"),
    ],
)
def test_messages_in_both_spellings(spelled: str, user: str) -> None:
    assert Scope(user=user).covers_messages(spelled)
    assert not Scope(user="other").covers_messages(spelled)
    assert not Scope(user=user, agent="b").covers_messages(spelled)


def test_single_memories(store: Install) -> None:
    found = store.look(scope=None, memory_ids=[store.ids[4]])
    assert rows(found)["history"] == 2
    assert found.texts == 1
    assert of(found, store.history).whole == plain_count(store.history, [SECRETS[4]]) >= 2
    assert "messages" in [n.what for n in found.not_searched]


def test_rows_of_nobody_and_no_ledger(store: Install) -> None:
    RawHistory(store.history).add("a-memory-of-nobody", None, "Somebody said so once", "ADD")
    assert store.look().unattributed == (1, 1)
    found = store.look(ledger=False)
    assert found.incomplete
    assert rows(found)["history"] == 0
    assert found.unattributed == (32, 16)


def test_nothing_is_called_searched_when_no_text_is_known(store: Install) -> None:
    found = store.look(scope=Scope(user="dora"))
    assert not found.remains
    assert found.incomplete
    assert found.texts == 0
    assert "the bytes of every file" in [n.what for n in found.not_searched]


def test_a_stranded_table_is_a_place(store: Install) -> None:
    with closing(sqlite3.connect(store.history)) as connection:
        connection.execute("CREATE TABLE history_old AS SELECT * FROM history")
        connection.commit()
    assert rows(store.look())["stranded"] == 31


def test_snapshots_and_exports_hold_it_and_say_until_when(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mem0audit.operations import residue as operation
    from mem0audit.operations.export import remember

    install = Install(made, tmp_path)
    install.be("before")
    folder = tmp_path / "snapshots"
    take(install, folder)
    install.be("after")
    exported = tmp_path / "carol.jsonl"
    exported.write_text(SECRETS[1])
    assert remember(installed(install), this_host(), str(exported)) is None
    monkeypatch.setattr(operation, "policies", lambda _host: {str(folder): Policy(last=2)})
    found = install.look(settings=Settings(snapshot_dir=str(folder)))
    snapshot, export = found.copies
    assert (snapshot.kind, snapshot.memories, snapshot.rows) == ("snapshot", 15, 18)
    assert re.fullmatch(r"until \d{4}-\d\d-\d\d, as scheduled", snapshot.until)
    assert sum(one.whole for one in snapshot.files) > 20
    assert export.kind == "export"
    assert sum(one.whole for one in export.files) == 1


def test_what_a_restore_put_aside_is_searched(made: World, tmp_path: Path) -> None:
    install, host = Install(made, tmp_path), this_host()
    install.be("after")
    audit(installed(install), host)
    path = take(install, tmp_path / "snapshots").path
    install.be("before")
    plan = undisturbed(lambda: plan_restore(path, host, install=installed(install)))
    undisturbed(lambda: apply_restore(plan, host))
    found = install.look(memory_ids=install.ids, scope=None)
    aside = {
        c.path.rsplit("/", 1)[1].split(".replaced-")[0]: c for c in found.copies if "put aside" in c.kind
    }
    assert aside["qdrant"].memories == 15
    assert aside["history.db"].rows == 16
    assert all(one.remains and "--discard-replaced" in one.until for one in aside.values())
    assert len(aside) == 2


def test_texts_are_known_from_snapshots_when_the_log_has_them_no_more(made: World, tmp_path: Path) -> None:
    install = Install(made, tmp_path)
    install.be("before")
    take(install, tmp_path / "snapshots")
    install.be("after")
    with closing(sqlite3.connect(install.history)) as connection:
        connection.execute("UPDATE history SET old_memory = '', new_memory = ''")
        connection.execute("UPDATE messages SET content = ''")
        connection.commit()
    found = install.look()
    assert rows(found)["history"] == 0
    assert of(found, install.points).whole  # the freed pages
    assert found.remains


def test_when_a_snapshot_goes() -> None:
    day = 86_400.0
    standings = [Standing(f"s{n}", n * day, "good") for n in range(1, 4)]
    assert goes_on(Policy(last=3), standings, 3 * day) == {
        "s1": "1970-01-05",
        "s2": "1970-01-06",
        "s3": "1970-01-07",
    }
    kept = [replace(standings[0], kept="court"), *standings[1:]]
    assert goes_on(Policy(daily=2), kept, 3 * day)["s1"] is None


@pytest.fixture(autouse=True)
def no_other_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stores of tests beside this one are not looked for."""
    from mem0audit.operations import residue as operation

    monkeypatch.setattr(operation, "find_candidates", lambda *_: ())
    yield


def test_the_policy_is_read_from_the_units_that_are_set_up(own_home: Path) -> None:
    from mem0audit.core.schedule import Nightly, Snapshot, service_of, service_text
    from mem0audit.operations.scheduled import policies

    folder = own_home / "snap shots 100%"
    wanted = Policy(last=3, daily=14, within="30d")
    schedule = Nightly(Snapshot(str(folder), wanted), ("/usr/bin/mem0audit",), (), "02:30", None)
    unit = own_home / ".config" / "systemd" / "user" / service_of("snapshot")
    unit.parent.mkdir(parents=True)
    unit.write_text(service_text(schedule))
    assert policies(this_host())[str(folder)] == wanted
