"""Strange stores, read with the real command: a finding or one line that names file and cause, the right exit
code, never a traceback, never a hang, never memory text in what machines keep, and the rest still audited."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.builders import MemoryBuilder, RawHistory, RawPoints, key_of
from tests.cli.program import Ran, call, clean_environment, forked
from tests.speed import Allowance, slowness

SECRET = "SECRETCAROL"
SCHEMAS = {"audit": "report", "status": "status", "users": "users", "show": "show", "log": "log"}
WITHOUT_ROOTS_EYES = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
    "--",
)
"""Root that may look only where the modes let it."""


class Store:
    """A private copy of one small real install."""

    def __init__(self, source: Path, target: Path, ids: list[str]) -> None:
        shutil.copytree(source, target, symlinks=True)
        self.folder = target
        self.ids = ids
        self.history = target / "mem0_dir/history.db"
        self.vectors = target / "qdrant"
        self.collection = target / "qdrant/collection/mem0"
        self.points = self.collection / "storage.sqlite"
        self.entities = target / "qdrant/collection/mem0_entities"
        self.meta = target / "qdrant/meta.json"

    def words(self, command: str, *more: str) -> list[str]:
        """A command line about this install; `log` takes no folder."""
        folder = [] if command == "log" else ["--qdrant-path", str(self.vectors)]
        about = [self.ids[2]] if command == "show" else []
        return [command, *about, "--history", str(self.history), *folder, *more]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("made") / "install"
    with MemoryBuilder(folder) as memory:
        ids = [memory.add(f"{SECRET} likes {n}", user_id="carol") for n in range(5)]
        memory.update(ids[0], f"{SECRET} likes tea")
        memory.delete(ids[1])
        memory.plant_entity("Tea", [ids[2]], user_id="carol")
    return folder, ids


@pytest.fixture
def store(made: tuple[Path, list[str]], tmp_path: Path) -> Store:
    return Store(made[0], tmp_path / "install", made[1])


def decent(command: str, got: Ran) -> Any:
    """What every answer to every input must be; the JSON document where it is one."""
    assert got.code in (0, 1, 2, 3), got.err
    assert "Traceback" not in got.out + got.err
    assert not set("\x1b\x07\x00\u202e").intersection(got.out + got.err)
    assert got.err.count("\n") <= 3
    if got.out.startswith("{"):
        assert SECRET not in got.out
        document = json.loads(got.out, parse_constant=lambda c: pytest.fail(f"{c} is no JSON"))
        schema = resources.files("mem0audit.report") / "schema" / f"{SCHEMAS[command]}-1.schema.json"
        Draft202012Validator(json.loads(schema.read_text())).validate(document)
        return document
    if command not in ("show", "log"):
        assert SECRET not in got.out
    return None


def ask(store: Store, home: Path, command: str, *more: str) -> Any:
    """The JSON document of a command, run in this process."""
    return decent(command, call(home, *store.words(command, "--format", "json", *more)))


def all_commands(store: Store, home: Path) -> None:
    """Every command about an install, as text and as JSON."""
    for command in SCHEMAS:
        ask(store, home, command)
        decent(command, call(home, *store.words(command)))
    decent("audit", call(home, *store.words("audit", "--verbose")))


def found(document: Any, code: str) -> list[dict[str, Any]]:
    return [f for f in document["findings"] if f["code"] == code]


def gaps(document: Any) -> dict[str, str]:
    return {n["what"]: n["why"] for n in document["not_checked"]}


def blinded(store: Store, home: Path, command: str, *more: str) -> Ran:
    """The same as somebody whom modes stop."""
    if shutil.which("setpriv") is None:
        pytest.fail("setpriv is needed (util-linux)")
    before = WITHOUT_ROOTS_EYES if os.geteuid() == 0 else ()
    done = subprocess.run(
        [*before, sys.executable, "-m", "mem0audit", *store.words(command, *more)],
        env=clean_environment(home),
        cwd=home,
        capture_output=True,
        timeout=300,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode(), 0.0)


# --- Places ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_collection_that_may_not_be_looked_into_is_not_missing(
    store: Store, own_home: Path, mode: int
) -> None:
    was = store.collection.stat().st_mode
    store.collection.chmod(mode)
    try:
        document = decent("audit", blinded(store, own_home, "audit", "--format", "json"))
        shown = decent("show", blinded(store, own_home, "show", "--format", "json"))
    finally:
        store.collection.chmod(was)
    assert not [f for code in ("L106", "D302", "I206", "E501") for f in found(document, code)]
    assert document["incidents"] == []
    assert gaps(document)[str(store.points)] == "permission denied"
    assert document["counts"]["memories"] is None
    assert document["counts"]["entities"] == 1
    assert gaps(shown)[str(store.collection)].endswith("permission denied")


def test_links_that_lead_in_a_circle_hide_nothing_else(store: Store, own_home: Path) -> None:
    os.symlink("loop", store.collection.parent / "loop")
    os.symlink(".", store.collection.parent / "self")
    for name in "abcdefgh":
        (store.collection.parent / name).mkdir()
        for other in "abcdefgh":
            os.symlink(f"../{other}", store.collection.parent / name / other)
    began, within = time.process_time(), Allowance()
    document = ask(store, own_home, "audit")
    assert time.process_time() - began < within(10)
    assert document["counts"]["memories"] == 4
    assert [f["subject"] for f in found(document, "I206")] == []
    assert any("circle" in why for why in gaps(document).values())
    shutil.rmtree(store.collection)
    os.symlink("mem0", store.collection)
    document = ask(store, own_home, "audit")
    assert not found(document, "L106") + found(document, "D302")
    assert document["counts"]["memories"] is None


@pytest.mark.parametrize("which", ["history", "points", "meta"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "device"])
def test_something_else_where_a_file_is_expected(store: Store, own_home: Path, which: str, kind: str) -> None:
    path: Path = getattr(store, which)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.symlink(path.name if kind == "loop" else "/dev/zero", path)
    done = forked(own_home, *store.words("audit", "--format", "json"))
    assert done.cpu_s < 10 * slowness()
    document = decent("audit", done)
    assert done.code in (1, 3)
    named = {f["path"] for f in document["findings"]} | set(gaps(document))
    assert str(path if which != "meta" else store.vectors) in named
    assert document["counts"]["memories"] == (None if which == "points" else 4)
    assert document["counts"]["changes"] == (None if which == "history" else 7)
    if which == "points":
        shown = ask(store, own_home, "show")
        assert str(store.points) in gaps(shown)[str(store.collection)]


def test_a_file_cut_inside_its_last_page_is_damaged(store: Store, own_home: Path) -> None:
    os.truncate(store.history, store.history.stat().st_size - 1)
    document = ask(store, own_home, "audit")
    assert [f["evidence"]["is"] for f in found(document, "I202")] == ["cut off inside its last page"]
    assert decent("log", call(own_home, *store.words("log"))) is None


# --- Values ------------------------------------------------------------------------------------------


def odd_values() -> list[Any]:
    import datetime

    return [
        *(None, True, 1, float("nan"), float("inf"), 10**400, 10**5000, b"\xff\0", [], [1, [2]], {"a": [1]}),
        *((1, 2), {1, 2}, datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1), uuid.uuid4(), "", "  "),
        *(
            "x" * 2_000_000,
            "\0nul",
            "\ud800",
            "\x1b]0;pwn\x07\x1b[2J",
            "[bold red]x[/bold red]",
            "\u202etxet",
        ),
        *("line\nmem0audit: forged\r", "9999-99-99", "0001-01-01", "20200101"),
    ]


def put_many(store: Store, payloads: list[dict[str, Any]], collection: str = "mem0") -> None:
    from qdrant_client.http.models import PointStruct

    connection = sqlite3.connect(RawPoints(store.vectors, collection).file)
    for payload in payloads:
        point_id = str(uuid.uuid4())
        point = PointStruct.model_construct(id=point_id, vector={"": [0.1] * 8}, payload=payload)
        connection.execute("INSERT INTO points VALUES (?, ?)", (key_of(point_id), pickle.dumps(point, 4)))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("field", ["user_id", "created_at", "expiration_date", "data", "hash", "type"])
def test_odd_values_in_memories(store: Store, own_home: Path, field: str) -> None:
    usual = {"data": SECRET, "user_id": "bob", "hash": "x", "created_at": "2025-01-01T00:00:00+00:00"}
    put_many(store, [{**usual, field: value} for value in odd_values() for _ in range(2)])
    all_commands(store, own_home)
    text = call(own_home, *store.words("audit", "--verbose", "--agent-python", sys.executable)).out
    assert len(text) < 300_000
    assert len(call(own_home, *store.words("users")).out) < 100_000


@pytest.mark.parametrize("field", ["user_id", "linked_memory_ids"])
def test_odd_values_in_entities(store: Store, own_home: Path, field: str) -> None:
    usual = {"data": "Tea", "entity_type": "PROPER", "user_id": "bob", "linked_memory_ids": [store.ids[2]]}
    put_many(store, [{**usual, field: value} for value in odd_values()], "mem0_entities")
    all_commands(store, own_home)


@pytest.mark.parametrize("column", ["event", "memory_id", "created_at"])
def test_odd_values_in_the_log(store: Store, own_home: Path, column: str) -> None:
    log = RawHistory(store.history)
    for value in odd_values():
        if isinstance(value, (str, bytes, float)) and value != "\ud800":
            row = {"memory_id": store.ids[2], "event": "UPDATE", "created_at": None, column: value}
            log.add(row.pop("memory_id"), SECRET, SECRET, row.pop("event"), **row)
    log.run(f"UPDATE history SET {column} = CAST(x'eda080ff' AS TEXT) WHERE rowid = 3")
    all_commands(store, own_home)
    assert len(call(own_home, *store.words("audit", "--verbose")).out) < 300_000


def test_many_owners_are_listed_in_time(store: Store, own_home: Path) -> None:
    usual = {"data": SECRET, "created_at": "2025-01-01T00:00:00+00:00"}
    put_many(store, [{**usual, "user_id": f"u{n}", "run_id": f"r{n % 2}"} for n in range(12_000)])
    done = forked(own_home, *store.words("users"))
    assert done.code == 0
    assert done.cpu_s < 10 * slowness()


def test_code_in_a_collection_that_is_not_mem0s_is_found(store: Store, own_home: Path) -> None:
    """qdrant-client unpickles every collection of the folder at its start."""

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("echo pwned",)

    for name in ("others", "mem0migrations"):
        folder = store.collection.parent / name
        folder.mkdir()
        connection = sqlite3.connect(folder / "storage.sqlite")
        connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        connection.execute("INSERT INTO points VALUES (?, ?)", (key_of(1), pickle.dumps(Evil())))
        connection.commit()
        connection.close()
    (store.collection.parent / "broken").mkdir()
    (store.collection.parent / "broken/storage.sqlite").write_text("none")
    document = ask(store, own_home, "audit")
    assert sorted(f["subject"] for f in found(document, "I208")) == ["mem0migrations", "others"]
    assert "broken" in [f["evidence"]["what"] for f in found(document, "I202")]


# --- Tables ------------------------------------------------------------------------------------------


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_one_key_that_is_not_utf8_hides_no_other_point(store: Store, own_home: Path) -> None:
    change(store.points, "INSERT INTO points VALUES (CAST(x'ff' AS TEXT), x'00'), (x'ff', 5), (NULL, NULL)")
    document = ask(store, own_home, "audit")
    assert document["counts"]["memories"] == 4
    assert len(found(document, "I207")) == 3
    assert not found(document, "D302")
    all_commands(store, own_home)


COLUMNS = "id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted, actor_id, role"
ENDLESS = "AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS"


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB) WITHOUT ROWID",
        "CREATE TABLE points (id TEXT, point BLOB, rowid TEXT)",
        "CREATE TABLE points (id TEXT PRIMARY KEY, blob BLOB)",
        "CREATE VIRTUAL TABLE points USING fts5(id, point)",
        f"CREATE VIEW points {ENDLESS} id, x AS point, x AS rowid FROM r",
        "CREATE TABLE other (id)",
    ],
)
def test_tables_that_no_client_writes(store: Store, own_home: Path, statement: str) -> None:
    store.points.unlink()
    change(store.points, statement)
    if "rowid TEXT" in statement:
        change(store.points, "INSERT INTO points VALUES ('x', x'00', 'evil')")
    document = ask(store, own_home, "audit")
    assert [f["path"] for f in found(document, "I202")] == [str(store.points)]
    assert document["counts"]["memories"] is None
    assert not found(document, "D302") + found(document, "L106")
    all_commands(store, own_home)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id, event) WITHOUT ROWID",
        f"CREATE TABLE history ({COLUMNS}, rowid)",
        "CREATE TABLE history (id, memory_id)",
        f"CREATE VIRTUAL TABLE history USING fts5({COLUMNS})",
        f"CREATE VIEW history {ENDLESS} id, x AS memory_id, x AS event, x AS rowid FROM r",
        f"CREATE TABLE history ({COLUMNS.replace('old_memory', 'old_memory AS (hex(zeroblob(400000000)))')})",
    ],
)
def test_logs_that_no_mem0_writes(store: Store, own_home: Path, statement: str) -> None:
    store.history.unlink()
    change(store.history, statement, "CREATE TABLE messages (session_scope, rowid)")
    if "rowid)" in statement:
        change(
            store.history, "INSERT INTO history (id, memory_id, event, rowid) VALUES ('a', 'b', 'ADD', 'x')"
        )
    document = ask(store, own_home, "audit")
    assert document["counts"]["memories"] == 4
    if "zeroblob" not in statement:
        assert [f["path"] for f in found(document, "I201")] == [str(store.history)]
    all_commands(store, own_home)


def test_names_in_the_schema_that_are_no_text(store: Store, own_home: Path) -> None:
    change(
        store.history,
        'CREATE TABLE "\x1b[31m [bold]x" (a)',
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_master SET name = x'ff00fe' WHERE name = 'messages'",
    )
    all_commands(store, own_home)


def test_ids_as_typed(store: Store, own_home: Path) -> None:
    for word in ("1" * 5000, "x" * 50_000, "\udcff", "\x1b[31m", "../../etc/passwd", "-5", "[1, 2]"):
        words = store.words("show")
        got = call(own_home, "show", *words[2:], "--", word)
        decent("show", got)
        assert got.code == 3
        assert len(got.err) < 2000


# --- The machine -------------------------------------------------------------------------------------


def test_no_room_for_a_scratch_copy(store: Store, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `-wal` alone is read from a copy; where none can be made, that file is not read, and the rest is."""
    write = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)"
    write += (
        "; c.execute('PRAGMA journal_mode = wal'); c.execute('CREATE TABLE zz (a)'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", write, str(store.history)], check=False)
    Path(f"{store.history}-shm").unlink()
    assert ask(store, own_home, "audit")["counts"]["changes"] == 7
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/nonexistent"])
    monkeypatch.setattr("tempfile.tempdir", None)
    document = ask(store, own_home, "audit")
    assert "temporary folder" in gaps(document)[str(store.history)]
    assert document["counts"]["memories"] == 4
    assert document["exit_code"] in (1, 3)


def test_an_error_stream_that_is_full(own_home: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mem0audit", "audit", "--select", "ZZ"],
            env=clean_environment(own_home),
            stdout=subprocess.DEVNULL,
            stderr=full,
            timeout=300,
            check=False,
        )
    assert done.returncode == 2


# --- Configurations ----------------------------------------------------------------------------------

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bomb.yaml", BOMB + "vector_store: {provider: qdrant, config: {path: *m}}\n"),
        ("circle.yaml", "llm: &v {config: *v}\n"),
        ("many.yaml", "".join(f"k{n}: [{n}]\n" for n in range(60_000))),
        ("nul.json", '{"history_db_path": "/x\\u0000y"}'),
        ("half.json", '{"history_db_path": "/x\\ud800y"}'),
        ("code.yaml", "!!python/object/apply:os.system ['echo pwned']"),
    ],
)
def test_hostile_configurations(own_home: Path, name: str, text: str) -> None:
    path = own_home / name
    path.write_text(text)
    for words in (["audit", "--config"], ["config", "show", "--config"], ["config", "validate"]):
        got = forked(own_home, *words, str(path))
        assert got.code == 2, (words, got.out, got.err)
        assert "Traceback" not in got.err
        assert len(got.err) < 500


def test_pipes_as_configurations(own_home: Path) -> None:
    os.mkfifo(own_home / "mem0.yaml")
    assert forked(own_home, "config", "validate", "mem0.yaml").code == 2
    os.mkfifo(own_home / "mem0audit.toml")
    assert "is a pipe" in forked(own_home, "audit").err
    (own_home / "mem0audit.toml").unlink()
    (own_home / "mem0audit.toml").write_text('history = "a\\u0000"')
    assert forked(own_home, "audit").code == 2


def test_no_password_of_an_address_is_printed(own_home: Path) -> None:
    path = own_home / "mem0.json"
    url = f"http://u:{SECRET}@db:6333"
    path.write_text(json.dumps({"vector_store": {"config": {"url": url, "api_key": SECRET}}}))
    refused = forked(own_home, "audit", "--config", str(path))  # others can read the key in it
    assert refused.code == 2 and "chmod 600" in refused.err and SECRET not in refused.out + refused.err
    path.chmod(0o600)
    for words in (["config", "show"], ["status"], ["audit"], ["audit", "--format", "json"]):
        got = forked(own_home, *words, "--config", str(path))
        assert got.code in (0, 1, 3), got.err
        assert "db:6333" in got.out
        assert SECRET not in got.out + got.err
