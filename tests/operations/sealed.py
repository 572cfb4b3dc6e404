"""An install with a chain of seals, and the ways in which somebody changes it behind mem0's back."""

from __future__ import annotations

import atexit
import functools
import hashlib
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mem0audit.core.model import Finding, Report, SealOutcome
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from tests.builders import MemoryBuilder, RawHistory, RawPoints
from tests.operations.test_snapshot import installed, take

SEALED = ("D310", "D311", "H408")


def audited(store: Any, *, select: tuple[str, ...] = SEALED, **options: Any) -> Report:
    """An audit of the rules that compare with the seal, beside this test's ledger."""
    return audit(installed(store), this_host(), select=select, pause=lambda _: None, **options)


def sealed(store: Any, accept: str | None = None) -> SealOutcome:
    outcome = audited(store, seal=True, accept=accept).seal
    assert outcome is not None
    return outcome


def said(report: Report) -> set[tuple[str, str | None]]:
    """(code, memory id) of every finding."""
    return {(f.code, f.memory_id) for f in report.findings}


def one(report: Report, code: str) -> Finding:
    (found,) = [f for f in report.findings if f.code == code]
    return found


@functools.cache
def _original() -> tuple[Path, list[str], tuple[str, bytes]]:
    """The folder of the install below, made once in this process; the ids; and the row of the one deleted."""
    place = Path(tempfile.mkdtemp(prefix="mem0audit-tests-sealed-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    with MemoryBuilder(place / "install") as agent:
        ids = [
            agent.add(f"fact {n}", user_id="alice" if n % 2 else "bob", metadata={"topic": "tea", "n": n})
            for n in range(12)
        ]
        agent.update(ids[10], "fact ten, told again")
    gone = RawPoints(agent.vectors).row_of(ids[11])
    with agent:
        agent.open()
        agent.delete(ids[11])
    return agent.folder, ids, gone


class Install(MemoryBuilder):
    """Twelve memories of two users, one of them changed and one deleted, sealed; the agent is open."""

    def __init__(self, folder: Path) -> None:
        kept, ids, self.gone_row = _original()
        self.ids = list(ids)
        shutil.copytree(kept, folder / "install")
        super().__init__(folder / "install")
        self.snapshots = folder / "snapshots"

    @property
    def points(self) -> RawPoints:
        return RawPoints(self.vectors)

    @property
    def log(self) -> RawHistory:
        return RawHistory(self.history)

    def work(self) -> None:
        """What an agent goes on to do, with memories that nobody touched."""
        self.add("a new fact", user_id="carol")
        self.update(self.ids[7], f"fact seven, {uuid.uuid4()}")
        self.delete(self.add("soon gone", user_id="carol"))

    def snapshot(self) -> SealOutcome:
        outcome = take(self, self.snapshots).seal
        assert outcome is not None
        return outcome

    def rollback(self, kept: Path) -> None:
        """Both stores as they were when they were kept."""
        for path, name in ((self.vectors, "qdrant"), (self.mem0_dir, "mem0_dir")):
            shutil.rmtree(path)
            shutil.copytree(kept / name, path)

    def keep(self, folder: Path) -> Path:
        shutil.copytree(self.vectors, folder / "qdrant")
        shutil.copytree(self.mem0_dir, folder / "mem0_dir")
        return folder


Tamper = Callable[[Install], "set[tuple[str, str | None]]"]
"""Changes a closed install, and says which findings must come of it."""


def _edit(change: Callable[[dict[str, Any]], None]) -> Tamper:
    def tamper(install: Install) -> set[tuple[str, str | None]]:
        install.points.edit(install.ids[3], change)
        return {("D310", install.ids[3])}

    return tamper


def _with_hash(text: str) -> dict[str, Any]:
    return {"data": text, "hash": hashlib.md5(text.encode()).hexdigest()}


def _plant(payload: dict[str, Any]) -> Tamper:
    def tamper(install: Install) -> set[tuple[str, str | None]]:
        planted = str(uuid.uuid4())
        install.points.put(planted, payload)
        return {("D310", planted)}

    return tamper


def _put_back(install: Install) -> set[tuple[str, str | None]]:
    install.points.put_row(*install.gone_row)
    return {("D310", install.ids[11])}


def _remove(install: Install) -> set[tuple[str, str | None]]:
    install.points.remove(install.ids[3])
    return {("D310", install.ids[3])}


def _log(sql: str, *who: int | str) -> Tamper:
    """A statement on history.db; `who` are the memories that H408 names, by number or id."""

    def tamper(install: Install) -> set[tuple[str, str | None]]:
        install.log.run(sql.replace("ID3", f"'{install.ids[3]}'"))
        return {("H408", install.ids[n] if isinstance(n, int) else n) for n in who} or {("H408", None)}

    return tamper


def _point_and_log(install: Install) -> set[tuple[str, str | None]]:
    """So that the two stores agree: the seal alone tells."""
    install.points.edit(install.ids[3], lambda p: p.update(_with_hash("forged in both")))
    install.log.run("UPDATE history SET new_memory = 'forged in both' WHERE memory_id = ?", install.ids[3])
    return {("D310", install.ids[3]), ("H408", install.ids[3])}


def _removed_from_both(install: Install) -> set[tuple[str, str | None]]:
    install.points.remove(install.ids[3])
    install.log.run("DELETE FROM history WHERE memory_id = ?", install.ids[3])
    return {("D310", install.ids[3]), ("H408", None)}


WAYS: dict[str, Tamper] = {
    "text": _edit(lambda p: p.update(data="forged")),
    "text with a forged hash": _edit(lambda p: p.update(_with_hash("forged"))),
    "owner": _edit(lambda p: p.update(user_id="mallory")),
    "owner taken away": _edit(lambda p: p.pop("user_id")),
    "agent": _edit(lambda p: p.update(agent_id="a7")),
    "run": _edit(lambda p: p.update(run_id="r1")),
    "metadata changed": _edit(lambda p: p.update(topic="coffee")),
    "metadata added": _edit(lambda p: p.update(role="system")),
    "metadata taken away": _edit(lambda p: p.pop("topic")),
    "hash": _edit(lambda p: p.update(hash="0" * 32)),
    "expiry": _edit(lambda p: p.update(expiration_date="2001-01-01")),
    "times": _edit(lambda p: p.update(created_at="2001-01-01T00:00:00+00:00")),
    "planted without a hash": _plant({"data": "planted", "user_id": "alice"}),
    "planted with a hash": _plant({**_with_hash("planted"), "user_id": "alice"}),
    "put back after its deletion": _put_back,
    "removed": _remove,
    "a row's text": _log("UPDATE history SET new_memory = 'forged' WHERE memory_id = ID3", 3),
    "a row's event": _log("UPDATE history SET event = 'UPDATE' WHERE memory_id = ID3", 3),
    "a row's time": _log("UPDATE history SET created_at = '2001-01-01' WHERE memory_id = ID3", 3),
    "a row's memory": _log("UPDATE history SET memory_id = 'other' WHERE memory_id = ID3", "other"),
    "a row removed": _log("DELETE FROM history WHERE memory_id = ID3"),
    "the last row removed": _log("DELETE FROM history WHERE rowid = (SELECT max(rowid) FROM history)"),
    "the first row removed": _log("DELETE FROM history WHERE rowid = (SELECT min(rowid) FROM history)"),
    "a row put before the others": _log(
        "INSERT INTO history (rowid, id, memory_id, new_memory, event) VALUES (-5, 'x', ID3, 'forged', 'ADD')",
        3,
    ),
    "every row removed": _log("DELETE FROM history"),
    "a point and its row": _point_and_log,
    "a point and its rows removed": _removed_from_both,
}
"""Every kind of change behind mem0's back."""
