"""Machine reports: they fit their schemas, say nothing the schemas do not describe, and hold no text."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.model import (
    FileState,
    HistoryFile,
    HistoryRow,
    NotChecked,
    StrandedTable,
    VectorFacts,
)
from mem0audit.operations.status import Stand, Status
from mem0audit.report import json as report_json
from tests.report import installs
from tests.report.installs import SCREENS, finding, place, report

KINDS = (
    "report",
    "status",
    "users",
    "show",
    "log",
    "explain",
    "config",
    "snapshot",
    "snapshots",
    "verify",
    "snapshot-keep",
    "snapshot-expire",
    "schedule",
    "schedule-status",
    "snapshot-plan",
    "import-plan",
    "diff",
    "restore",
    "restore-plan",
    "relocate",
    "relocate-plan",
    "relocate-carry",
    "relocate-carry-plan",
    "discard",
    "delete-plan",
    "delete",
    "erasure-receipt",
    "recover",
    "repair-plan",
    "repair",
    "prune-plan",
    "prune",
    "recover-plan",
    "put-back-plan",
    "put-back",
    "residue",
    "residue-clear",
    "fact-file",
    *("ledger-status", "ledger-memory", "ledger-expire", "ledger-used"),
    *("review", "review-notes"),
    "export",
    "as-of",
    "as-of-diff",
    "new",
    "facts",
    "facts-change",
)
SECRET = "SECRETCAROL likes \x1b[31m red \ud800"


def schema(kind: str) -> dict[str, Any]:
    path = resources.files("mem0audit.report") / "schema" / f"{kind}-1.schema.json"
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def strict(node: Any) -> Any:
    """The schema with every property that it does not describe forbidden."""
    if isinstance(node, dict):
        closed = {k: strict(v) for k, v in node.items()}
        if "properties" in node and closed.get("additionalProperties") is True:
            closed["additionalProperties"] = False
        return closed
    return [strict(v) for v in node] if isinstance(node, list) else node


def check(text: str, kind: str) -> dict[str, Any]:
    assert text.isascii()
    assert text.endswith("}\n")
    document: dict[str, Any] = json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} is no JSON"))
    text.encode("utf-8")
    Draft202012Validator(schema(kind)).validate(document)
    Draft202012Validator(strict(schema(kind))).validate(document)
    return document


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_schemas(kind: str) -> None:
    Draft202012Validator.check_schema(schema(kind))
    assert "Additions only" in schema(kind)["description"]


@pytest.mark.parametrize("name", SCREENS)
def test_audits(name: str) -> None:
    given = SCREENS[name]()
    document = check(report_json.audit_json(given, 1), "report")
    assert document["schema"] == 1
    assert [f["code"] for f in document["findings"]] == [f.code for f in given.findings]
    assert document["counts"] == dict(given.counts)


def test_hostile_values_are_plain_json() -> None:
    given = report(
        findings=(finding("D304", memory_id=SECRET, evidence={"a\udc80": SECRET, "n": float("nan")}),),
        not_checked=(NotChecked("x\ud800", "y"),),
    )
    document = check(report_json.audit_json(given, 1), "report")
    assert document["findings"][0]["evidence"] == {
        "a\\udc80": "SECRETCAROL likes \x1b[31m red \\ud800",
        "n": "nan",
    }


def test_status() -> None:
    given = report()
    found = Status(
        install=given.install,
        places=(Stand("history", place(installs.HISTORY), "mem0's default"),),
        holders=given.holders,
        agent=given.agent,
        candidates=installs.nothing_found().candidates,
        versions={"mem0audit": "0"},
        not_checked=given.not_checked,
    )
    assert check(report_json.status_json(found), "status")["places"][0]["role"] == "history"


def test_explain_has_every_rule() -> None:
    document = check(report_json.explain_json(CATALOGUE.values()), "explain")
    assert [rule["code"] for rule in document["rules"]] == sorted(CATALOGUE)


def test_config() -> None:
    check(report_json.config_json(installs.install(), None, {"vector_store": {"config": {"n": 1}}}), "config")


ROW = HistoryRow(7, "r", "m", SECRET, SECRET, "UPDATE", "2026", None, 0, None, None)


def test_users() -> None:
    from mem0audit.operations.users import Scope, Users

    scopes = (
        Scope("alice", None, None, 3),
        Scope(7, None, "r", 2, "user is not text (int)"),
        Scope(["a"], {"b": 1}, float("nan"), 1),
    )
    found = Users(installs.install(), "mem0", scopes, (("alice", 3), (7, 2), (["a"], 1)), 6)
    document = check(report_json.users_json(found), "users")
    assert document["scopes"][1]["user_id"] == 7


def test_show_has_text_only_when_asked_for() -> None:
    from mem0audit.operations.show import Linking, Shown, Stored

    payload = {"data": SECRET, "user_id": "carol", "note": SECRET, "text_lemmatized": SECRET, "b": b"\xff"}
    found = Shown(
        memory_id="m",
        stored=(Stored("mem0", 3, payload, VectorFacts(8, None, ("bm25",))),),
        history=(ROW,),
        entities=(Linking("mem0_entities", 5, {"data": SECRET, "entity_type": "PROPER"}, 2),),
        findings=(finding("D301", memory_id="m", evidence={"row": 7}),),
    )
    without = report_json.show_json(found, text=False)
    assert "SECRETCAROL" not in without
    document = check(without, "show")
    assert document["stored"][0]["payload"] == {"user_id": "carol"}
    assert "note" in document["stored"][0]["payload_keys"]
    assert document["history"][0]["has_old_memory"] is True
    asked = check(report_json.show_json(found, text=True), "show")
    assert "SECRETCAROL" in asked["stored"][0]["payload"]["data"]
    assert "SECRETCAROL" in asked["history"][0]["old_memory"]


def test_log_has_text_only_when_asked_for() -> None:
    from mem0audit.operations.log import Log

    file = HistoryFile(
        file=FileState("/h.db", 4096, "rollback", "read-only"),
        schema="10 columns",
        columns=HistoryRow._fields[1:],
        tables={"history": 1, "messages": None},
        create_statements={"history": "CREATE TABLE history (id TEXT)"},
        stranded=(StrandedTable("history_old", 3, 2, frozenset("m")),),
    )
    found = Log(installs.install(), file, (ROW,), {"UPDATE": 1})
    without = report_json.log_json(found, text=False)
    assert "SECRETCAROL" not in without
    check(without, "log")
    assert "SECRETCAROL" in check(report_json.log_json(found, text=True), "log")["newest"][0]["new_memory"]
