"""Reading commands against a real server: what they ask of it, what they say, and what they never say."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mem0audit.cli.options import Named
from mem0audit.cli.schedule import _install_words
from mem0audit.core.errors import ServerProblem, UsageProblem
from mem0audit.core.server import parse_address
from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.audit import audit
from mem0audit.stores.server import Connection
from mem0audit.stores.serverstore import ServerStore
from tests.builders import MemoryBuilder, RawHistory, RawPoints, StoreCopy, copy_store
from tests.cli.program import call as run
from tests.cli.program import run as started
from tests.qdrant_server import QdrantServer
from tests.report.test_json import check
from tests.rules.onserver import load, make_collection, on_server, server_report
from tests.rules.support import gaps, located
from tests.tcp_proxy import Proxy

KEY = "the-full-key"
READS = (
    ("GET", r"/"),
    ("GET", r"/collections"),
    ("GET", r"/aliases"),
    ("GET", r"/collections/[\w-]+"),
    ("GET", r"/collections/[\w-]+/cluster"),
    ("POST", r"/collections/[\w-]+/points"),
    ("POST", r"/collections/[\w-]+/points/scroll"),
)
"""Every call of a reading command: POST /points takes ids and gives points back (a write is a PUT of it)."""


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path / "install")


def flags(store: StoreCopy, url: str) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-url", url


def writes(server: QdrantServer, since: int, least: int) -> list[tuple[str, str]]:
    """The calls since then that are none of READS."""
    end = time.monotonic() + 5
    while len(server.requests(since)) < least and time.monotonic() < end:
        time.sleep(0.01)
    asked = server.requests(since)
    assert len(asked) >= least
    return [
        (method, path)
        for method, path, _ in asked
        if not any(method == m and re.fullmatch(p, path.partition("?")[0]) for m, p in READS)
    ]


def test_reading_commands_only_read(store: StoreCopy, qdrant: QdrantServer, tmp_path: Path) -> None:
    load(store.vectors, qdrant)
    make_collection(qdrant, "somebody-elses")
    lost = next(iter(RawPoints(store.vectors).points()))
    qdrant.result("POST", "/collections/mem0/points/delete?wait=true", {"points": [lost]})
    time.sleep(0.05)
    since = len(qdrant.log_text())
    named = flags(store, qdrant.url)
    run(tmp_path, "audit", *named)  # looks twice, and for the lost one in the other collection
    run(tmp_path, "audit", "--seal", *named)
    run(tmp_path, "status", *named)
    run(tmp_path, "users", *named)
    run(tmp_path, "show", lost, *named)
    run(tmp_path, "log", "--history", str(store.history))
    assert writes(qdrant, since, least=40) == []
    assert any("/collections/somebody-elses/points" in path for _, path, _ in qdrant.requests(since))


def test_a_look_at_a_server(store: StoreCopy, qdrant: QdrantServer, tmp_path: Path) -> None:
    load(store.vectors, qdrant)
    named = flags(store, qdrant.url)
    there = run(tmp_path, "audit", *named)
    assert re.search(rf"^vectors  {qdrant.url}\s+\d+ memories  10 entities  +Qdrant 1.16.3$", there.out, re.M)
    folder = ("--history", str(store.history), "--qdrant-path", str(store.vectors))
    document = check(run(tmp_path, "audit", *named, "--format", "json").out, "report")
    other = check(run(tmp_path, "audit", *folder, "--format", "json").out, "report")
    assert document["counts"] == other["counts"] and document["versions"] == {"qdrant": "1.16.3"}
    groups = "DHEC"
    assert [(f["code"], f["memory_id"]) for f in document["findings"] if f["code"][0] in groups] == [
        (f["code"], f["memory_id"]) for f in other["findings"] if f["code"][0] in groups
    ]
    ours = json.loads(run(tmp_path, "users", *named, "--format", "json").out)
    theirs = json.loads(run(tmp_path, "users", *folder, "--format", "json").out)
    assert ours["scopes"] == theirs["scopes"] and ours["memories"] == theirs["memories"]
    status = run(tmp_path, "status", *named)
    assert status.code == 0 and "no API key  Qdrant 1.16.3" in status.out
    assert re.search(r"mem0: about \d+ points, 8 dimensions, green", status.out)
    seen = check(run(tmp_path, "status", *named, "--format", "json").out, "status")["server"]
    assert [c["name"] for c in seen["collections"]] == ["mem0", "mem0_entities"]
    some = next(iter(RawPoints(store.vectors).points()))
    shown = run(tmp_path, "show", some, *named)
    assert "collection mem0\n" in shown.out and "8 dimensions" in shown.out and "row 0" not in shown.out


def test_what_is_held_of_somebody(store: StoreCopy, qdrant: QdrantServer, tmp_path: Path) -> None:
    load(store.vectors, qdrant)
    folder = ("--history", str(store.history), "--qdrant-path", str(store.vectors))

    def lines(*named: str) -> list[dict[str, Any]]:
        ran = run(tmp_path, "export", "--user", "alice", *named)
        assert ran.code == 0, ran.err
        told = [json.loads(line) for line in ran.out.splitlines()]
        return sorted(told[1:], key=lambda line: json.dumps(line, sort_keys=True))

    for named in (folder, flags(store, qdrant.url)):
        run(tmp_path, "audit", *named)  # so that there is a ledger
    assert lines(*flags(store, qdrant.url)) == lines(*folder)


def test_a_job_at_night_needs_the_key(store: StoreCopy, tmp_path: Path) -> None:
    config = tmp_path / "mem0.json"
    values = {"url": "http://q:6333", "api_key": KEY}
    config.write_text(json.dumps({"vector_store": {"provider": "qdrant", "config": values}}))
    config.chmod(0o600)
    host = dataclasses.replace(this_host(), environ={"THE_KEY": KEY}, cwd=str(tmp_path))

    def words(named: Named, settings: str = "") -> tuple[str, ...]:
        (tmp_path / "mem0audit.toml").write_text(settings)
        given = {f.name: getattr(named, f.name) for f in dataclasses.fields(Flags)}
        return _install_words(named, locate(Flags(**given), host), host)

    log = ("--history", str(store.history))
    by_config = words(Named(history=log[1], config="mem0.json"))
    assert by_config == ("--config", str(config), *log) and KEY not in by_config
    server = 'qdrant_url = "http://q:6333"\n'
    assert words(Named(history=log[1]), server) == (*log, "--qdrant-url", "http://q:6333")
    with pytest.raises(UsageProblem, match="a job that runs at night does not have"):
        words(Named(history=log[1]), server + 'api_key_env = "THE_KEY"\n')


def test_the_only_collection_is_taken_and_a_wrong_name_is_said(
    store: StoreCopy, qdrant: QdrantServer, tmp_path: Path
) -> None:
    load(store.vectors, qdrant)
    named = flags(store, qdrant.url)
    none = run(tmp_path, "users", *named, "--collection", "nope")
    assert none.code == 3 and "no collection nope" in none.err and "mem0" in none.err
    missing = run(tmp_path, "audit", *named, "--collection", "nope")
    assert missing.code == 1 and "Q951" in missing.out
    assert re.search(
        r"^collection +nope  from --collection  not there$",
        run(tmp_path, "status", *named, "--collection", "nope").out,
        re.M,
    )
    head = " ".join(missing.out.split())
    assert "no collection nope on" in head and "(mem0, mem0_entities): is the name right?" in head
    assert "The memories are gone" not in head


def test_the_key_is_said_nowhere(store: StoreCopy, qdrant_with_keys: QdrantServer, tmp_path: Path) -> None:
    load(store.vectors, qdrant_with_keys)
    url = qdrant_with_keys.url
    env = {"THE_KEY": KEY, "WRONG_KEY": "a-wrong-key"}
    config = tmp_path / "mem0.json"
    values = {"url": url, "api_key": KEY, "collection_name": "mem0"}
    config.write_text(json.dumps({"vector_store": {"provider": "qdrant", "config": values}}))
    by_flag = (*flags(store, url), "--api-key-env", "THE_KEY")
    by_file = ("--history", str(store.history), "--config", str(config))

    config.chmod(0o644)
    ran = run(tmp_path, "audit", *by_file, env=env)
    assert ran.code == 2 and "others can read it (mode 0644)" in ran.err
    config.chmod(0o600)
    told = ran.out + ran.err
    for named in (by_flag, by_file):
        for words in (["audit", "-v"], ["audit", "--format", "json"], ["status"], ["users"]):
            ran = run(tmp_path, *words, *named, env=env)
            assert ran.code in (0, 1), ran.err
            told += ran.out + ran.err
    told += run(tmp_path, "config", "show", "--config", str(config), env=env).out
    assert "API key from $THE_KEY" in told and f"API key from {config}" in told
    ran = run(tmp_path, "audit", *flags(store, url), "--select", "D", env=env)
    assert ran.code == 3 and "wants an API key; name the variable" in " ".join(ran.out.split())
    ran = run(tmp_path, "audit", *flags(store, url), "--api-key-env", "WRONG_KEY", "--select", "D", env=env)
    assert ran.code == 3 and "does not accept the API key" in " ".join(ran.out.split())
    told += ran.out + ran.err
    ran = run(tmp_path, "audit", *flags(store, url), "--api-key-env", "NO_KEY", env=env)
    assert ran.code == 2 and "the variable NO_KEY is not set" in ran.err
    assert KEY not in told and "a-wrong-key" not in told
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path != config]
    assert any(path.suffix == ".sqlite" for path in kept)
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]


# --- a server that fails ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[QdrantServer, Any]]:
    """A sound install of 2,500 memories, three pages, on a server of the module's own."""
    folder = tmp_path_factory.mktemp("large")
    with MemoryBuilder(folder) as agent:
        first = agent.add("likes tea", user_id="alice")
    (point,) = RawPoints(agent.vectors).points().values()
    ids = [f"00000000-0000-4000-8000-{i:012x}" for i in range(2499)]
    points = [{"id": memory_id, "vector": {}, "payload": point.payload} for memory_id in ids]
    columns = "old_memory, new_memory, event, created_at, updated_at, is_deleted, actor_id, role"
    with contextlib.closing(sqlite3.connect(agent.history)) as history, history:
        history.executemany(
            f"INSERT INTO history SELECT ?1, ?1, {columns} FROM history WHERE memory_id = ?2",
            [(memory_id, first) for memory_id in ids],
        )
    server = QdrantServer()
    try:
        server.start()
        load(agent.vectors, server)
        server.result("PUT", "/collections/mem0/points?wait=true", {"points": points})
        yield server, agent
    finally:
        server.remove()


SELECT = ("D", "Q951", "Q952", "I202", "E")


def test_a_whole_reading(large: tuple[QdrantServer, Any]) -> None:
    server, agent = large
    report = server_report(located(agent), server.url, select=SELECT)
    assert not report.findings and not gaps(report) and report.counts["memories"] == 2500


@pytest.mark.parametrize("down", [0, 60, 200, 1000, 50_000, 400_000, 650_000])
def test_a_connection_that_is_cut_is_never_clean(large: tuple[QdrantServer, Any], down: int) -> None:
    """Wherever the answers end, what is missing is said, and nothing that was only not read is called lost."""
    server, agent = large
    with Proxy(server.http_port) as proxy:
        proxy.cut(down=down)
        report = server_report(located(agent), proxy.url, select=SELECT)
        assert proxy.cuts
        url = proxy.url
    assert not report.findings and gaps(report)
    place = url if down < 50_000 else f"{url}/collections/mem0"
    assert any(what == place and "connection" in why for what, why in gaps(report)), gaps(report)
    read = report.counts["memories"]
    assert (read is None) == (down < 400_000), read
    if read:
        why = next(why for what, why in gaps(report) if what == place)
        assert f"{read:,} points were read before that" in why


def test_a_cut_at_the_second_look(large: tuple[QdrantServer, Any], tmp_path: Path) -> None:
    """A true fault, and a server that goes away before it can be looked at again: it is not called clean."""
    server, agent = large
    removed = f"00000000-0000-4000-8000-{7:012x}"
    point = server.result("POST", "/collections/mem0/points", {"ids": [removed], "with_payload": True})[0]
    server.result("POST", "/collections/mem0/points/delete?wait=true", {"points": [removed]})
    try:
        with Proxy(server.http_port) as proxy:
            install = on_server(located(agent), proxy.url)
            report = audit(
                install, this_host(), select=SELECT, keep=False, pause=lambda _: proxy.cut(down=500)
            )
            assert proxy.cuts and gaps(report) and not report.findings
            proxy.heal()
            report = audit(install, this_host(), select=SELECT, keep=False, pause=lambda _: None)
            assert [(f.code, f.memory_id) for f in report.findings] == [("D302", removed)]
    finally:
        server.result("PUT", "/collections/mem0/points?wait=true", {"points": [{**point, "vector": {}}]})


def test_a_slow_line(large: tuple[QdrantServer, Any]) -> None:
    server, agent = large
    with Proxy(server.http_port) as proxy:
        proxy.delay = 0.01
        report = server_report(located(agent), proxy.url, select=SELECT)
    assert not report.findings and not gaps(report) and report.counts["memories"] == 2500


def test_a_server_that_gives_no_answer_is_waited_for_once(
    large: tuple[QdrantServer, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once more for every other collection: each has its own minute."""
    server, _ = large
    for wait in (Connection.get, Connection.post):
        monkeypatch.setitem(wait.__kwdefaults__, "timeout", 0.3)
    monkeypatch.setattr(Connection.receive, "__defaults__", (0.3,))
    for name in ("somebody-elses", "mem0_entities"):
        make_collection(server, name)
    try:
        with Proxy(server.http_port) as proxy, Connection(parse_address(proxy.url)) as connection:
            store = ServerStore(connection, "mem0")
            collections = store.layout().collections
            assert len(collections) == 3
            asked = len(proxy.requests)
            server.freeze()
            for info in collections:
                problem = store.points(info, lambda *_: None).file.problem
                assert problem is not None and "no answer in time" in problem.detail
                with pytest.raises(ServerProblem, match="no answer in time"):
                    store.holding(info, ["00000000-0000-4000-8000-000000000000"])
            assert len(proxy.requests) == asked + 1
    finally:
        server.thaw()
        for name in ("somebody-elses", "mem0_entities"):
            server.result("DELETE", f"/collections/{name}")


def test_what_was_only_not_read_is_looked_for_nowhere(large: tuple[QdrantServer, Any]) -> None:
    server, agent = large
    make_collection(server, "somebody-elses")
    try:
        with Proxy(server.http_port) as proxy:
            proxy.cut(down=600_000, times=1)
            report = server_report(located(agent), proxy.url, select=SELECT)
            assert proxy.cuts and gaps(report) and not report.findings
            assert not any("/somebody-elses/" in path for _, path in proxy.requests)
    finally:
        server.result("DELETE", "/collections/somebody-elses")


def test_the_exit_code_of_what_could_not_be_read(large: tuple[QdrantServer, Any], tmp_path: Path) -> None:
    server, agent = large
    with Proxy(server.http_port) as proxy:
        proxy.cut(down=600_000)
        words = ("--history", str(agent.history), "--qdrant-url", proxy.url)
        ran = run(tmp_path, "audit", *words, "--select", "D,Q951", "--format", "json")
        assert ran.code == 3, ran.out
        assert any(one["gap"] for one in check(ran.out, "report")["not_checked"])
        ran = run(tmp_path, "audit", *words, "--select", "D,Q951")
        said = " ".join(ran.out.split())
        assert f"Now: see why {proxy.url}/collections/mem0 cannot be read (the connection ended" in said
        assert run(tmp_path, "users", *words).code == 3
        assert run(tmp_path, "show", f"00000000-0000-4000-8000-{1:012x}", *words).code == 3
        proxy.cut(down=0)
        assert run(tmp_path, "status", *words).code == 3


def test_a_server_that_dies_half_way(large: tuple[QdrantServer, Any]) -> None:
    server, agent = large
    killed: list[str] = []

    def progress(phase: str, done: int | None, total: int | None) -> None:
        if phase == "reading the log" and not killed:  # between the points and the second look
            killed.append(phase)
            server.kill()

    removed = RawHistory(agent.history)
    kept = removed.run("SELECT * FROM history WHERE memory_id LIKE '%000000000009'")
    removed.run("DELETE FROM history WHERE memory_id LIKE '%000000000009'")
    try:
        install = on_server(located(agent), server.url)
        report = audit(
            install, this_host(), select=SELECT, keep=False, progress=progress, pause=lambda _: None
        )
        assert killed and gaps(report) and not report.findings
        server.start()
        report = audit(install, this_host(), select=SELECT, keep=False, pause=lambda _: None)
        assert [f.code for f in report.findings] == ["D303"]
    finally:
        marks = ", ".join("?" * len(kept[0]))
        removed.run(f"INSERT INTO history VALUES ({marks})", *kept[0])
        if not server.running:
            server.start()


# --- an agent that writes meanwhile -------------------------------------------------------------


@contextlib.contextmanager
def writing(folder: Path, server: QdrantServer) -> Iterator[MemoryBuilder]:
    """An agent whose thread adds, updates and deletes all the time."""
    ended = threading.Event()
    written = 0
    with MemoryBuilder(folder, server=server.url) as agent:
        ids = [agent.add(f"memory {i}", user_id="alice") for i in range(20)]

        def write() -> None:
            nonlocal written
            while not ended.is_set():
                ids.append(agent.add(f"memory {written} of many", user_id="alice"))
                agent.update(ids[written % len(ids)], f"changed {written}")
                agent.delete(ids.pop(0))
                written += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield agent
        finally:
            ended.set()
            writer.join()
    assert written > 3


def test_no_false_finding_while_mem0_writes(tmp_path: Path, qdrant: QdrantServer) -> None:
    with writing(tmp_path, qdrant) as agent:
        for _ in range(4):
            install = on_server(located(agent), qdrant.url)
            report = audit(install, this_host(), select=SELECT, keep=False)
            assert not report.findings and not gaps(report)


@pytest.mark.thorough
def test_no_false_finding_as_of_one_instant_while_mem0_writes(tmp_path: Path, qdrant: QdrantServer) -> None:
    with writing(tmp_path / "agent", qdrant) as agent:
        words = ["--history", str(agent.history), "--qdrant-url", qdrant.url, "--select", "D,H,E,C,L106,I210"]
        for _ in range(1):
            done = started(tmp_path, "audit", "--consistent", "--vectors", "--format", "json", *words)
            report = json.loads(done.out)
            assert done.code == 0 and not report["findings"], report
            assert "I210" in report["checked"]
            assert "one instant" not in {one["what"] for one in report["not_checked"]}


def test_seals_work_the_same(tmp_path: Path, qdrant: QdrantServer) -> None:
    with MemoryBuilder(tmp_path / "install", server=qdrant.url) as agent:
        memory = agent.add("likes tea", user_id="alice")
        agent.add("likes rice", user_id="bob")
        install = on_server(located(agent), qdrant.url)

    def look(**options: Any) -> Any:
        return audit(install, this_host(), select=("D",), pause=lambda _: None, **options)

    assert look(seal=True).seal.extended
    assert look(seal=True).seal.unchanged
    change = {"payload": {"user_id": "mallory"}, "points": [memory]}
    qdrant.result("POST", "/collections/mem0/points/payload?wait=true", change)
    report = look(seal=True)
    assert [(f.code, f.memory_id) for f in report.findings] == [("D310", memory)]
    assert not report.seal.extended
