"""Group Q: a real server, and what only it can have wrong."""

from __future__ import annotations

import base64
import dataclasses
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.model import Agent, Report, Severity, ShardCopy
from mem0audit.core.reading import Reading
from mem0audit.core.rules.servers import NO_SERVER, RULES
from mem0audit.core.scopes import Scope
from mem0audit.core.server import Secret, ServerRead
from mem0audit.install.host import this_host
from mem0audit.operations.export import export
from mem0audit.operations.look import look
from mem0audit.operations.show import show
from tests.builders import MemoryBuilder, RawPoints, copy_store
from tests.qdrant_server import QdrantServer
from tests.rules.onserver import load, make_collection, on_server, server_report
from tests.rules.support import gaps, located, of, report_of

SELECT = ("Q", "D", "L106", "I")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return copy_store("2.2.1", tmp_path)


def report(store: Any, server: QdrantServer, **flags: Any) -> Report:
    return server_report(located(store, **flags), server.url, select=SELECT)


def q(report: Report) -> list[str]:
    return [f.code for f in report.findings if f.code[0] == "Q"]


def reading(store: Any, server: QdrantServer, **changes: Any) -> Reading:
    machine = this_host()
    return dataclasses.replace(look(on_server(located(store), server.url), machine), **changes)


def with_server_side(r: Reading, **changes: Any) -> Reading:
    (memories,) = r.memories
    assert memories.info.server is not None
    info = dataclasses.replace(memories.info, server=dataclasses.replace(memories.info.server, **changes))
    return dataclasses.replace(r, memories=(dataclasses.replace(memories, info=info),))


def verdicts(code: str, r: Reading) -> list[Any]:
    return [v for v in RULES[code](r) if hasattr(v, "code")]


def test_a_sound_server_has_no_finding(store: Any, qdrant: QdrantServer) -> None:
    load(store.vectors, qdrant)
    found = report(store, qdrant)
    assert not q(found) and not gaps(found)
    assert found.counts["memories"] == report_of(store).counts["memories"]
    assert found.versions["qdrant"] == "1.16.3"
    assert {"Q951", "Q952", "Q954"} <= set(found.checked)
    assert any(n.what == "one instant" for n in found.not_checked)


@pytest.mark.parametrize("instant", [False, True])
def test_i210_vectors_are_looked_at_where_that_is_asked_for(
    store: Any, qdrant: QdrantServer, *, instant: bool
) -> None:
    load(store.vectors, qdrant)
    some = qdrant.result("POST", "/collections/mem0/points/scroll", {"limit": 3})["points"]
    zero, huge, none = (one["id"] for one in some)
    body = {"points": [{"id": zero, "vector": {"": [0] * 8}}, {"id": huge, "vector": {"": [1e39] * 8}}]}
    qdrant.result("PUT", "/collections/mem0/points/vectors?wait=true", body)
    body = {"points": [none], "vector": [""]}
    qdrant.result("POST", "/collections/mem0/points/vectors/delete?wait=true", body)
    install, how = located(store), ServerRead(vectors=True, instant=instant)
    found = server_report(install, qdrant.url, select=SELECT, how=how)
    said = {f.memory_id: f.evidence.get("values") or f.evidence["dense vector"] for f in of(found, "I210")}
    assert said == {zero: "all zero", huge: "NaN or infinite", none: "none"}
    assert not gaps(found) and instant is not any(n.what == "one instant" for n in found.not_checked)
    found = server_report(install, qdrant.url, select=SELECT, how=ServerRead(instant=instant))
    assert not of(found, "I210")
    assert ("I210", False) in [(n.what, n.gap) for n in found.not_checked if "--vectors" in n.why]


def test_q951_the_collection_is_not_there(store: Any, qdrant: QdrantServer) -> None:
    make_collection(qdrant, "somebody-elses")
    make_collection(qdrant, "and-another")
    found = report(store, qdrant)
    (one,) = of(found, "Q951")
    assert one.evidence["collection"] == "mem0: not there"
    assert one.evidence["collections there"] == "and-another, somebody-elses"
    assert not of(found, "L106")
    assert len(of(found, "D302")) == one.evidence["live memories in the log"]
    assert [n.why for n in found.not_checked if n.what == "other collections"] == [
        "and-another, somebody-elses: left alone"
    ]


def test_a_name_that_no_collection_has_is_not_called_clean(store: Any, qdrant: QdrantServer) -> None:
    """Where the log has no live memory either there is nothing to miss, and nothing was read."""
    make_collection(qdrant, "real")
    make_collection(qdrant, "and-another")
    with closing(sqlite3.connect(store.history, isolation_level=None)) as log:
        log.execute("DELETE FROM history")
    found = report(store, qdrant, collection="typo")
    assert not q(found)
    assert gaps(found) == [("the collection typo", "not there; there are: and-another, real")]


def test_a_name_that_no_collection_has_keeps_nobody_from_being_told(store: Any, qdrant: QdrantServer) -> None:
    """What is held of somebody, and of one memory, is not said to be nothing."""
    load(store.vectors, qdrant)
    make_collection(qdrant, "and-another")
    install, host = on_server(located(store, collection="typo"), qdrant.url), this_host()
    exported = export(install, host, Scope("alice"), ledger=False)
    assert ("the collection typo", f"is not there, on {qdrant.url}") in [
        (n.what, n.why) for n in exported.not_read
    ]
    shown = show(install, host, sorted(RawPoints(store.vectors).points())[0])
    assert not shown.stored and "the collection typo" in [n.what for n in shown.not_checked]


def test_q951_an_empty_collection_and_an_alias(store: Any, qdrant: QdrantServer) -> None:
    make_collection(qdrant, "mem0")
    (one,) = of(report(store, qdrant), "Q951")
    assert one.evidence["collection"] == "mem0: no point in it" and one.severity is Severity.CRITICAL
    make_collection(qdrant, "real")
    actions = [{"create_alias": {"collection_name": "real", "alias_name": "other"}}]
    qdrant.result("POST", "/collections/aliases", {"actions": actions})
    (one,) = of(report(store, qdrant, collection="other"), "Q951")
    assert one.evidence["it is an alias of"] == "real"


def test_q951_is_silent_where_another_collection_has_them(store: Any, qdrant: QdrantServer) -> None:
    load(store.vectors, qdrant)
    make_collection(qdrant, "new")
    found = report(store, qdrant, collection="new")
    assert not of(found, "Q951") and not of(found, "D302")
    r = look(on_server(located(store, collection="new"), qdrant.url), this_host())
    assert set(r.elsewhere.values()) == {f"{qdrant.url}/collections/mem0"}


def test_q952_red_dead_and_too_few(store: Any, qdrant: QdrantServer) -> None:
    make_collection(qdrant, "mem0", replication_factor=2)
    r = reading(store, qdrant)
    (one,) = verdicts("Q952", r)
    assert one.severity is Severity.HIGH
    assert dict(one.evidence) == {"copies wanted": 2, "fewer than that": "shard 0 has 1"}
    r = with_server_side(r, replicas_wanted=1)
    assert not verdicts("Q952", r)
    (one,) = verdicts("Q952", with_server_side(r, status="yellow"))
    assert (one.severity, one.evidence["status"]) == (Severity.INFO, "yellow")
    (one,) = verdicts("Q952", with_server_side(r, status="red", error="No space left on device"))
    assert one.severity is Severity.HIGH and one.evidence["optimiser"] == "No space left on device"
    dead = (ShardCopy(0, "Active"), ShardCopy(0, "Dead", "42"))
    (one,) = verdicts("Q952", with_server_side(r, copies=dead))
    assert one.evidence["copies that are not active"] == "shard 0 Dead"


def test_q953_strict_mode(store: Any, qdrant: QdrantServer) -> None:
    load(store.vectors, qdrant)
    strict = {"enabled": True, "max_query_limit": 7, "unindexed_filtering_retrieve": False}
    qdrant.result("PATCH", "/collections/mem0", {"strict_mode_config": strict})
    found = report(store, qdrant)
    (one,) = of(found, "Q953")
    assert (one.evidence["most results at once"], one.evidence["mem0 asks for up to"]) == (7, 10_000)
    assert "filters on fields without an index" in one.evidence
    # the pages are as small as the server wants them, and everything is read
    assert not gaps(found) and not of(found, "D302")
    qdrant.result("PATCH", "/collections/mem0", {"strict_mode_config": {"enabled": False}})
    assert not of(report(store, qdrant), "Q953")


def test_q953_a_token_that_may_only_read(store: Any, start_qdrant: Callable[..., QdrantServer]) -> None:
    def token(**claims: Any) -> str:
        parts = [{"alg": "HS256"}, claims]
        packed = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        return ".".join([*packed, "signature"])

    server = start_qdrant()  # one that asks for no key takes any
    make_collection(server, "mem0")
    install = dataclasses.replace(
        on_server(located(store), server.url), server_key_from="/srv/mem0.yaml", config_file="/srv/mem0.yaml"
    )
    for claims, expected in (
        ({"access": "r"}, 1),
        ({"access": "m"}, 0),
        ({"access": [{"collection": "mem0", "access": "r"}]}, 1),
        ({"access": [{"collection": "mem0", "access": "rw"}]}, 0),
    ):
        key = Secret(token(**claims))
        r = look(dataclasses.replace(install, server_key=key), this_host())
        assert len(verdicts("Q953", r)) == expected, claims
    # the auditor's own key may well be one for reading
    mine = dataclasses.replace(install, server_key=Secret(token(access="r")), server_key_from="$KEY")
    assert not verdicts("Q953", look(mine, this_host()))


def test_q954_no_index(store: Any, qdrant: QdrantServer) -> None:
    load(store.vectors, qdrant)
    qdrant.result("DELETE", "/collections/mem0/index/agent_id?wait=true")
    (one,) = of(report(store, qdrant), "Q954")
    assert one.evidence["without an index"] == "agent_id"


def test_q954_what_mem0_makes_itself_has_them(tmp_path: Path, qdrant: QdrantServer) -> None:
    with MemoryBuilder(tmp_path, server=qdrant.url) as agent:
        agent.add("likes tea", user_id="alice")
        assert not q(report(agent, qdrant))


@pytest.mark.parametrize(
    ("client", "found"),
    [("1.15.1", 0), ("1.17.9", 0), ("1.18.0", 1), ("1.14.3", 1), ("2.16.3", 1), (None, None)],
)
def test_q955_versions(store: Any, qdrant: QdrantServer, client: str | None, found: int | None) -> None:
    make_collection(qdrant, "mem0")
    r = reading(store, qdrant, agent=Agent("/usr/bin/python3", "2.2.1", client, "the test says so"))
    verdict = list(RULES["Q955"](r))
    assert len(verdict) == (found if found is not None else 1)
    if found is None:
        assert not verdict[0].gap  # type: ignore[union-attr]


def test_a_folder_is_not_asked(store: Any) -> None:
    found = report_of(store, select=("Q", "D"))
    assert {n.what for n in found.not_checked if n.why == NO_SERVER} == set(RULES)
    assert not set(RULES) & set(found.checked)
