"""The demo: what it says it plants is what lies there, and what the audit finds, and nothing else is."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from mem0audit.core.errors import UsageProblem
from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations import demo
from mem0audit.operations.audit import audit
from mem0audit.operations.demo import PLANTED, DemoInstall, build_demo, demo_interpreter
from tests.builders import RawPoints, difference


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DemoInstall, list[str]]]:
    said: list[str] = []
    yield build_demo(tmp_path_factory.mktemp("demo"), say=said.append), said


def test_the_stores_hold_what_was_planted(built: tuple[DemoInstall, list[str]]) -> None:
    install, said = built
    found = difference(install.history, install.vectors, install.collection)
    assert {kind: len(ids) for kind, ids in found.items()} == {
        "resurrected": 3,
        "lost": 4,
        "unlogged": 1,
        "text": 2,
    }
    payloads = [point.payload for point in RawPoints(install.vectors).points().values()]
    assert Counter(p["user_id"] for p in payloads) == {"alice": 16, "bob": 13, "carol": 8}
    texts = Counter((p["user_id"], p["data"]) for p in payloads)
    assert [key for key, count in texts.items() if count > 1] == [("alice", "Prefers tea over coffee")]
    assert [p["expiration_date"] for p in payloads if p.get("expiration_date")] == ["2025-01-31"]
    assert install.mem0_version == metadata.version("mem0ai")
    assert len(said) == 4


def test_the_audit_finds_just_that(built: tuple[DemoInstall, list[str]]) -> None:
    install, _said = built
    host = this_host()
    report = audit(
        locate(Flags(history=install.history, qdrant_path=install.vectors), host), host, pause=lambda _s: None
    )
    about_content = Counter(f.code for f in report.findings if f.code[0] in "IDHECT" and f.severity > 0)
    planted = {code: int(what.split()[0]) for code, what in PLANTED}
    assert about_content == planted
    assert any(incident.kind == "vectors-older" for incident in report.incidents)
    assert not [n for n in report.not_checked if n.gap]


def test_everything_lies_in_the_folder(built: tuple[DemoInstall, list[str]]) -> None:
    install, _said = built
    folder = Path(install.vectors).parent
    assert sorted(path.name for path in folder.iterdir()) == ["copy-of-the-vectors.sqlite", "mem0", "qdrant"]
    assert all(
        Path(value).parent in (folder, folder / "mem0")
        for value in (install.history, install.vectors, install.mem0_dir)
    )


def test_without_mem0_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(demo.metadata, "version", missing)
    with pytest.raises(UsageProblem) as caught:
        build_demo(tmp_path)
    assert "scripts/mem0audit demo" in str(caught.value.hint)
    assert list(tmp_path.iterdir()) == []
    assert demo_interpreter("/agent/python") == "/agent/python"


def test_a_demo_install_is_plain_data(built: tuple[DemoInstall, list[str]]) -> None:
    install, _said = built
    assert dataclasses.asdict(install)["planted"] == PLANTED
