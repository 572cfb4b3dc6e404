"""What several files of rule tests use."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest

from mem0audit.core.model import Report
from tests.qdrant_server import QdrantServer
from tests.rules import support
from tests.rules.onserver import NoServerHoldsIt, found, load, server_report

GROUPS = "DHEC"
OF_SEALS = ("D310", "D311", "H408")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "folder_only: plants what no server can hold")


@pytest.fixture(scope="module")
def own_server() -> Iterator[QdrantServer]:
    """A server of the module's own: what is on it is left for the next test to write over."""
    server = QdrantServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def beside_a_server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, own_server: QdrantServer
) -> Iterator[None]:
    """Every store that a test of the module audits as a folder is audited on a server too: code for code the same. The
    rule that a test is named after must have found something there."""
    codes: set[str] = set()

    def report_of(store: Any, **options: Any) -> Report:
        report = support.report_of(store, **options)
        try:
            load(store.vectors, own_server, indexes=False)
        except NoServerHoldsIt:
            assert request.node.get_closest_marker("folder_only"), "no server holds what this test plants"
            return report
        assert not request.node.get_closest_marker("folder_only")
        machine = options.pop("on", None)
        changes = options.pop("install", None) or {}
        audited = {name: options.pop(name) for name in ("select", "ignore") if name in options}
        audited.setdefault("select", support.STORE_GROUPS)
        audited["ignore"] = (*audited.get("ignore", ()), *OF_SEALS)
        install = dataclasses.replace(support.located(store, machine, **options), **changes)
        there = server_report(install, own_server.url, machine, **audited)
        here = [pair for pair in found(report, GROUPS) if pair[0] not in OF_SEALS]
        assert found(there, GROUPS) == here
        codes.update(code for code, _ in here)
        return report

    monkeypatch.setattr(request.module, "report_of", report_of)
    yield
    named = re.match(r"test_([dhec]\d{3})_(?!is_silent)", request.node.name)
    assert named is None or named[1].upper() in codes, "found nothing on the server"
