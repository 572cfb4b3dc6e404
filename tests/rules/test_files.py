"""Group I: every state a file can be in, on stores that mem0 wrote."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mem0audit.core.rules import RULES
from tests.builders import QDRANT_STORES, MemoryBuilder, RawHistory, RawPoints, copy_store
from tests.rules.readings import reading_of
from tests.rules.support import Paths, codes, gaps, of, report_of

Build = Callable[..., MemoryBuilder]
SELECT = ("I",)


@pytest.fixture
def store(build: Build) -> MemoryBuilder:
    agent = build()
    agent.ids = [agent.add(f"memory {i}", user_id="alice") for i in range(3)]  # type: ignore[attr-defined]
    agent.close()
    return agent


def storage(agent: MemoryBuilder) -> Path:
    return agent.vectors / "collection/mem0/storage.sqlite"


def test_a_consistent_store_has_nothing_of_group_i(store: MemoryBuilder) -> None:
    assert not codes(report_of(store, select=SELECT))


@pytest.mark.parametrize("what", ["not SQLite", "zero bytes", "no history table", "a folder", "missing"])
def test_i201_not_a_history(store: MemoryBuilder, what: str) -> None:
    path = store.history
    path.unlink()
    if what == "not SQLite":
        path.write_bytes(b"this is a text, and no database" * 200)
    elif what == "zero bytes":
        path.touch()
    elif what == "no history table":
        connection = sqlite3.connect(path)
        connection.execute("create table other (x)")
        connection.close()
    elif what == "a folder":
        path.mkdir()
    report = report_of(store, select=("I", "D"))
    assert codes(report) == {"I201": 1}
    assert of(report, "I201")[0].path == str(path)
    assert report.counts["memories"] == 3
    assert report.counts["changes"] is None


@pytest.mark.parametrize("file", ["history", "storage"])
def test_i202_a_damaged_file(store: MemoryBuilder, file: str) -> None:
    with_many(store)
    path = store.history if file == "history" else storage(store)
    blob = bytearray(path.read_bytes())
    for page in range(4, len(blob) // 4096, 5):
        blob[page * 4096 : page * 4096 + 512] = b"\xa5" * 512
    path.write_bytes(bytes(blob))
    report = report_of(store, select=SELECT)
    assert codes(report)["I202"] == 1, report.findings
    assert of(report, "I202")[0].path == str(path)


def with_many(store: MemoryBuilder) -> None:
    store.open()
    for i in range(300):
        store.add(f"more {i} " + "x" * 500, user_id="alice")
    store.close()


def test_i203_the_last_writer_died_in_a_transaction(store: MemoryBuilder) -> None:
    """A real hot journal: a process with a spilled transaction is killed."""
    with_many(store)
    writer = (
        "import os, signal, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('pragma cache_size=1'); c.execute('begin immediate')\n"
        "c.execute('update history set new_memory = upper(new_memory) || hex(randomblob(200))')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", writer, str(store.history)], check=False)
    assert store.history.with_name("history.db-journal").stat().st_size > 512
    report = report_of(store, select=("I", "D"))
    assert codes(report) == {"I203": 1}
    assert report.counts["changes"] == 303


@pytest.mark.parametrize(("name", "schema"), [("0.1.40", "9 columns"), ("2.2.1", None)])
def test_i204_an_old_schema(name: str, schema: str | None, tmp_path: Path) -> None:
    report = report_of(copy_store(name, tmp_path), select=("I204",))
    assert [f.evidence["schema"] for f in of(report, "I204")] == ([schema] if schema else [])


def test_i205_a_stranded_table(store: MemoryBuilder) -> None:
    raw = RawHistory(store.history)
    raw.run("create table history_old as select * from history")
    assert not of(report_of(store, select=SELECT), "I205")
    raw.run("delete from history where rowid = 1")
    report = report_of(store, select=("I205", "D303"))
    assert codes(report) == {"I205": 1, "D303": 1}
    assert of(report, "I205")[0].evidence["rows that history lacks"] == 1
    assert of(report, "D303")[0].evidence["in the log"] == "in history_old only"


@pytest.mark.parametrize("meta", ["{broken", "[]", "missing", "unlisted", "no folder"])
def test_i206_meta_json_does_not_say_what_is_there(store: MemoryBuilder, meta: str) -> None:
    path = store.vectors / "meta.json"
    told = json.loads(path.read_text())
    if meta == "missing":
        path.unlink()
    elif meta == "unlisted":
        path.write_text(json.dumps({"collections": {}, "aliases": {}}))
    elif meta == "no folder":
        told["collections"]["ghost"] = told["collections"]["mem0"]
        path.write_text(json.dumps(told))
    else:
        path.write_text(meta)
    report = report_of(store, select=("I206", "D"))
    assert codes(report) == {"I206": 1}, report.findings
    assert report.counts["memories"] == 3


def test_i207_a_blob_that_does_not_decode(store: MemoryBuilder) -> None:
    raw = RawPoints(store.vectors)
    raw.put_row("gASVBAAAAAAAAABLBi4=", b"\x80\x04 garbage SECRET")
    report = report_of(store, select=("I", "D"))
    assert codes(report) == {"I207": 1}
    assert "SECRET" not in str(report.findings)
    assert report.counts["memories"] == 3


def test_i208_a_blob_that_would_run_code(store: MemoryBuilder, tmp_path: Path) -> None:
    proof = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {proof}",)

    RawPoints(store.vectors).put_row("x", pickle.dumps(Evil()))
    report = report_of(store, select=SELECT)
    assert codes(report) == {"I208": 1}
    assert "system" in str(of(report, "I208")[0].evidence["names"])
    assert not proof.exists()
    assert report.counts["memories"] == 3


def test_i208_is_silent_on_what_old_clients_write(tmp_path: Path) -> None:
    import shutil

    for name in ("1.1.7", "1.9.2", "1.9.2p1", "1.20.0", "1.4.0-python3.7"):
        shutil.copytree(QDRANT_STORES / name, tmp_path / name)
        report = report_of(Paths(tmp_path / "none.db", tmp_path / name), select=("I208", "I207"))
        assert not codes(report), (name, report.findings)


def test_i209_two_rows_for_one_id(store: MemoryBuilder) -> None:
    first = store.ids[0]  # type: ignore[attr-defined]
    raw = RawPoints(store.vectors)
    point = raw.points()[first]
    raw.put(first.upper(), dict(point.payload), point.vector)
    report = report_of(store, select=("I", "D"))
    assert codes(report) == {"I209": 1}
    assert of(report, "I209")[0].memory_id == first
    assert report.counts["memories"] == 3


@pytest.mark.parametrize(
    "vector",
    [{"": [0.0] * 8}, {"": [float("nan")] + [0.5] * 7}, {"": [0.5] * 5}, {}],
    ids=lambda v: str(v)[:12],
)
def test_i210_a_wrong_vector(store: MemoryBuilder, vector: dict[str, list[float]]) -> None:
    first = store.ids[0]  # type: ignore[attr-defined]
    raw = RawPoints(store.vectors)
    raw.put(first, dict(raw.points()[first].payload), vector)
    report = report_of(store, select=SELECT)
    assert codes(report) == {"I210": 1}
    assert of(report, "I210")[0].memory_id == first


def test_i211_the_embedder_has_other_dimensions(store: MemoryBuilder, tmp_path: Path) -> None:
    config = tmp_path / "mem0.json"
    for dims, fires in ((16, True), (8, False)):
        told = {"vector_store": {"provider": "qdrant", "config": {"embedding_model_dims": dims}}}
        config.write_text(json.dumps(told))
        report = report_of(store, select=("I211",), config=str(config))
        assert bool(codes(report)) is fires
    assert not codes(report_of(store, select=("I211",)))


def test_i212_the_agents_client_cannot_open_it(store: MemoryBuilder) -> None:
    rule = RULES["I212"]
    assert [f.code for f in rule(reading_of(store, client="1.15.1"))] == ["I212"]
    assert not list(rule(reading_of(store, client="1.20.0")))
    assert [type(v).__name__ for v in rule(reading_of(store, client=None))] == ["NotChecked"]


def test_i212_the_dbm_format_of_the_oldest_clients(store: MemoryBuilder) -> None:
    storage(store).rename(storage(store).with_name("storage.dbm"))
    report = report_of(store, select=("I212",))
    assert [f.evidence["storage"] for f in of(report, "I212")] == ["storage.dbm"]
    rule = RULES["I212"]
    assert [f.code for f in rule(reading_of(store, client="1.20.0"))] == ["I212"]
    assert not list(rule(reading_of(store, client="1.19.1")))  # converts it when it opens it


def test_i213_no_keyword_slot(tmp_path: Path, store: MemoryBuilder) -> None:
    assert len(of(report_of(copy_store("1.0.11", tmp_path), select=("I213",)), "I213")) == 1
    assert not of(report_of(store, select=("I213",)), "I213")


def test_i214_a_large_embedded_store(store: MemoryBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threshold is qdrant-client's own; 20,000 points are built by scripts/bench, not here."""
    from mem0audit.core.rules import files

    monkeypatch.setattr(files, "LOCAL_LIMIT", 2)
    assert len(of(report_of(store, select=("I214",)), "I214")) == 1
    monkeypatch.setattr(files, "LOCAL_LIMIT", 3)
    assert not of(report_of(store, select=("I214",)), "I214")


def test_i214_is_the_clients_threshold() -> None:
    from qdrant_client.local.qdrant_local import QdrantLocal

    from mem0audit.core.rules.files import LOCAL_LIMIT

    assert LOCAL_LIMIT == QdrantLocal.LARGE_DATA_THRESHOLD


def test_i215_the_journal_mode_of_each_file(store: MemoryBuilder) -> None:
    connection = sqlite3.connect(store.history)
    assert connection.execute("pragma journal_mode=wal").fetchone() == ("wal",)
    connection.close()
    report = report_of(store, select=("I215", "D"))
    assert {f.subject: f.evidence["mode"] for f in of(report, "I215")} == {
        "history": "wal",
        "mem0": "rollback",
    }
    assert not codes(report)


def test_a_file_without_permission_is_a_gap_and_no_fault(store: MemoryBuilder) -> None:
    """To root nothing is forbidden, so the audit runs without the capabilities that make it so."""
    os.chmod(store.history, 0)
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    done = subprocess.run(
        [
            *(plain if os.geteuid() == 0 else []),
            *(sys.executable, "-m", "mem0audit", "audit", "--history", str(store.history)),
            *("--qdrant-path", str(store.vectors), "--format", "json", "--select", "I,D"),
        ],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    assert any("permission" in gap["why"] for gap in report["not_checked"])
    assert report["counts"]["memories"] == 3
    assert report["counts"]["changes"] is None


def test_a_symlink_loop(store: MemoryBuilder) -> None:
    store.history.unlink()
    store.history.symlink_to(store.history)
    report = report_of(store, select=("I", "D"))
    assert not codes(report)
    assert any(what == str(store.history) for what, _why in gaps(report))
