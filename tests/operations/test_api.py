"""The package as a library: what the README shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mem0audit
from mem0audit.core.errors import CouldNotRead, UsageProblem
from tests.builders import copy_incident, copy_store
from tests.qdrant_server import QdrantServer
from tests.rules.onserver import load


def test_audit_by_paths(tmp_path: Path) -> None:
    store = copy_incident("vectors-older", tmp_path)
    report = mem0audit.audit(history=str(store.history), qdrant_path=str(store.vectors), select=["D301"])
    assert {f.memory_id for f in report.findings} == set(store.truth["expected"]["resurrected"])
    assert report.findings[0].severity.label == "high"
    assert report.incidents[0].kind == "vectors-older"


def test_locate_then_audit(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path)
    install = mem0audit.locate(history=str(store.history), qdrant_path=str(store.vectors))
    assert install.history.decided_by == "--history"
    assert mem0audit.audit(install, select=["D"]).counts["memories"] == 19


def test_a_server_with_its_vectors_as_of_one_instant(tmp_path: Path, qdrant: QdrantServer) -> None:
    store = copy_store("2.2.1", tmp_path)
    load(store.vectors, qdrant)

    def look(**how: bool) -> tuple[bool, bool]:
        report = mem0audit.audit(
            history=str(store.history), qdrant_url=qdrant.url, select=["I210"], ledger=False, **how
        )
        assert report.counts["memories"] == 19
        return "I210" in report.checked, "one instant" not in {n.what for n in report.not_checked}

    assert look() == (False, False)
    assert look(vectors=True, consistent=True) == (True, True)


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises((UsageProblem, CouldNotRead)) as told:
        mem0audit.locate(config=str(tmp_path / "none.yaml"))
    assert "none.yaml" in told.value.message


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import mem0audit, sys; print(sorted(m for m in sys.modules if m.split('.')[0] in "
    code += "('mem0', 'qdrant_client', 'typer', 'rich', 'yaml', 'sqlite3')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
