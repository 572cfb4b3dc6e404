"""The three rules that compare with the last seal: what each says of its fault, and their silence without one.

Every kind of change, and what follows it, is in tests/operations/test_seals.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from mem0audit.core.model import NotChecked
from mem0audit.core.rules import RULES
from mem0audit.install.host import this_host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.look import look
from tests.operations.sealed import WAYS, Install, audited, one, said, sealed
from tests.operations.test_snapshot import installed
from tests.rules.support import of, report_of


@pytest.fixture
def install(tmp_path: Path, durable: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    monkeypatch.setenv("XDG_STATE_HOME", str(durable / "state"))
    with Install(tmp_path) as made:
        yield made


def test_d310_changed_outside_mem0(install: Install) -> None:
    assert sealed(install).extended
    assert of(report_of(install), "D310") == []
    install.close()
    WAYS["owner"](install)
    found = one(report_of(install), "D310")
    assert found.memory_id == install.ids[3]
    assert found.evidence["differs in"] == "user"
    assert found.evidence["since then"] == "changed, and no row explains it"
    assert found.path == str(install.vectors / "collection/mem0")
    # the owner's change is in no other rule's reach
    assert {f.code for f in report_of(install, select=("D", "H")).findings if f.memory_id} == {"D310"}


def test_d311_rolled_back(install: Install, tmp_path: Path) -> None:
    install.close()
    kept = install.keep(tmp_path / "kept")
    install.open()
    install.work()
    assert sealed(install).extended
    assert of(report_of(install), "D311") == []
    install.close()
    install.rollback(kept)
    found = one(report_of(install), "D311")
    assert found.evidence["sealed rows that are gone"] == 4
    assert found.evidence["the log ends after sealed row"] == 14
    assert found.evidence["memories that are not as sealed"] == 2
    # without the seal nothing tells: both stores agree
    assert {f.code for f in report_of(install, select=("D", "H")).findings} == {"D311"}


def test_h408_log_rewritten(install: Install) -> None:
    assert sealed(install).extended
    assert of(report_of(install), "H408") == []
    install.close()
    WAYS["a row's time"](install)
    install.log.run("DELETE FROM history WHERE memory_id = ?", install.ids[5])
    changed, gone = sorted(of(report_of(install), "H408"), key=lambda f: f.subject or "")
    assert (changed.memory_id, changed.evidence["why"]) == (install.ids[3], "changed since")
    assert changed.evidence["log row"] == 4
    assert (gone.memory_id, gone.evidence["why"]) == (None, "1 sealed rows are gone")
    assert gone.evidence["the first of them"] == 6


def test_many_rewritten_rows_are_named_up_to_a_number(install: Install) -> None:
    for n in range(60):
        install.add(f"more {n}", user_id="dora")
    assert sealed(install).extended
    install.close()
    install.log.run("UPDATE history SET actor_id = 'x' WHERE rowid > 10")
    found = of(audited(install), "H408")
    assert len(found) == 51
    assert found[-1].evidence["why"] == "14 more rows changed or put between"


@pytest.mark.parametrize("code", ["D310", "D311", "H408"])
def test_they_say_why_they_could_not_compare(install: Install, code: str) -> None:
    assert sealed(install).extended
    with ledgers.opened(installed(install), this_host()) as book:
        assert book is not None
        sealing = ledgers.sealing_of(book)
    assert not isinstance(sealing, NotChecked)
    whole = look(installed(install), this_host(), sealing=sealing)
    assert list(RULES[code](whole)) == []
    for changes, why in (({"timeline": None}, "the log"), ({"layout": None}, "the vector store")):
        (verdict,) = RULES[code](dataclasses.replace(whole, **changes))
        assert verdict == NotChecked(code, f"{why} could not be read whole")
    (verdict,) = RULES[code](look(installed(install), this_host()))
    assert verdict == NotChecked(code, "no seal yet", gap=False)


def test_a_log_that_does_not_read_is_no_rewritten_one(install: Install) -> None:
    assert sealed(install).extended
    install.close()
    install.history.write_bytes(b"no database at all" * 500)
    report = audited(install)
    assert said(report) == set()
    assert {n.what for n in report.not_checked if n.gap} >= {"D310", "D311", "H408"}
    assert sealed(install).why == "both stores could not be read whole"
