"""Group B, planted: snapshots that are missing, old, damaged, unsettled, or no pair."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.erasures import RECORD, Erasure, erasures_text, make_erasure
from mem0audit.core.model import Report
from mem0audit.core.snapshot import CHECKSUM, MANIFEST, checksum_text
from mem0audit.install.config import Settings
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.known import known_snapshots
from mem0audit.operations.marks import verify_and_record
from mem0audit.operations.snapshot import create, plan_create
from tests.builders import RawPoints, StoreCopy, copy_store
from tests.operations.test_restore import World, cut_off
from tests.operations.test_snapshot import scrolled
from tests.rules.support import host, of
from tests.rules.support import located as installed

DAY = 86_400


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1", tmp_path / "install")


def take(store: Any, folder: Path) -> Path:
    machine = this_host()
    return Path(create(plan_create(installed(store), machine, str(folder)), machine, ledger=False).path)


def audited(
    store: Any, folder: Path | None = None, *, after_days: float = 0, max_age: str | None = None
) -> Report:
    machine = host(now=this_host().now + after_days * DAY)
    install = installed(store)
    settings = Settings(snapshot_dir=None if folder is None else str(folder), snapshot_max_age=max_age)
    known = known_snapshots(install, machine, settings, ledger=False)
    cut = interrupted(install, machine)
    return audit(install, machine, select=["B"], snapshots=known, interrupted=cut, ledger=False)


def found(report: Report) -> dict[str, list[str]]:
    codes: dict[str, list[str]] = {}
    for finding in report.findings:
        codes.setdefault(finding.code, []).append(Path(finding.path or "").name)
    return codes


def edit(snapshot: Path, **changes: Any) -> None:
    """The manifest with other values, and a checksum that is right."""
    manifest = snapshot / MANIFEST
    text = json.dumps({**json.loads(manifest.read_text()), **changes}).encode()
    manifest.write_bytes(text)
    (snapshot / CHECKSUM).write_text(checksum_text(text))


def test_b901_no_snapshot(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    assert found(audited(store)) == {"B901": [""]}
    report = audited(store, folder)
    assert found(report) == {"B901": ["snapshots"]}
    assert of(report, "B901")[0].evidence["looked in"] == str(folder)
    take(store, folder)
    assert found(audited(store, folder)) == {}
    other = copy_store("1.0.0", tmp_path / "other")
    assert found(audited(other, folder)) == {"B901": ["snapshots"]}


def test_b901_is_silent_where_nobody_looked(store: StoreCopy) -> None:
    report = audit(installed(store), this_host(), select=["B"], ledger=False)
    assert report.findings == ()
    assert {n.what for n in report.not_checked if n.what.startswith("B90") and not n.gap} >= {"B901", "B902"}


def test_b901_is_not_said_of_a_folder_that_cannot_be_read(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    folder.symlink_to(folder)  # root may read every folder, but not this one
    report = audited(store, folder)
    assert found(report) == {}
    assert [n.why for n in report.not_checked if n.what == "B901" and n.gap]


def test_b902_old_snapshot(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    first = take(store, folder)
    assert found(audited(store, folder, after_days=6.9)) == {}
    report = audited(store, folder, after_days=7.1)
    assert found(report) == {"B902": [first.name]}
    assert of(report, "B902")[0].evidence["days old"] == 7.1
    assert found(audited(store, folder, after_days=1.1, max_age="1d")) == {"B902": [first.name]}
    second = take(store, folder)
    (second / "history.db").unlink()  # the newest counts for nothing where it is damaged
    assert found(audited(store, folder, after_days=7.1)) == {"B902": [first.name], "B903": [second.name]}


def test_b903_damaged_snapshot(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    good, cut, unread = (take(store, folder) for _ in range(3))
    with (cut / "history.db").open("r+b") as file:
        file.truncate(5000)
    (unread / MANIFEST).write_text("{}")
    report = audited(store, folder)
    assert found(report) == {"B903": [unread.name, cut.name]}
    assert "has 5,000 bytes" in str(of(report, "B903")[1].evidence["first"])
    assert of(report, "B903")[1].help == f"mem0audit snapshot verify {cut}"
    shutil.rmtree(good)
    assert "B901" not in found(audited(store, folder))


def test_b904_unsettled_snapshot(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    first, second = take(store, folder), take(store, folder)
    edit(second, settled=False, unsettled_why="the agent never held still")
    assert found(audited(store, folder)) == {"B904": [second.name]}
    take(store, folder)
    assert found(audited(store, folder)) == {}, "a settled one is newer"
    assert first.exists()


def test_b907_unpaired_backup(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    only = take(store, folder)
    edit(only, pair=False)
    assert found(audited(store, folder)) == {"B907": [only.name]}
    take(store, folder)
    assert found(audited(store, folder)) == {}, "a pair is newer"


def test_b903_says_what_verify_found(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    one = take(store, folder)
    with (one / "history.db").open("r+b") as file:
        file.seek(9000)
        file.write(b"\xff")
    assert found(audited(store, folder)) == {}, "names and sizes are right: a look in passing sees nothing"
    assert not verify_and_record(str(one), "default").verdict.good
    report = audited(store, folder)
    assert found(report) == {"B903": [one.name]}
    assert "its bytes are not those" in str(of(report, "B903")[0].evidence["first"])


def test_a_verified_snapshot_is_known_as_one(tmp_path: Path, store: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    one = take(store, folder)
    assert verify_and_record(str(one), "default").verdict.good
    known = audited(store, folder).snapshots
    assert known is not None
    assert known.newest_good is not None
    assert known.newest_good.verified_at is not None
    assert (known.newest_good.changes, known.newest_good.lost) == (
        json.loads((one / MANIFEST).read_text())["counts"]["changes"],
        0,
    )
    edit(one, hostname="elsewhere")  # another manifest than the one that was verified
    known = audited(store, folder).snapshots
    assert known is not None
    assert known.snapshots[0].verified_at is None


def test_a_pair_taken_after_a_loss_is_no_way_back_from_it(tmp_path: Path) -> None:
    store = copy_store("2.2.1", tmp_path, pre_delete_all=True)
    folder = tmp_path / "snapshots"
    before = take(store, folder)
    points = RawPoints(store.vectors)
    gone = list(points.points())[:12]
    for point_id in gone:
        points.remove(point_id)
    since = take(store, folder)
    known = audited(store, folder).snapshots
    assert known is not None and known.newest_good is not None
    assert (known.newest_good.name, known.newest_good.lost) == (since.name, len(gone))
    way_back = known.before_loss(len(gone))
    assert way_back is not None and way_back.name == before.name


SALT = "5" * 32


def test_b905_snapshot_with_erased(tmp_path: Path) -> None:
    store = copy_store("2.2.1-nlp", tmp_path / "install")  # has entities
    folder = tmp_path / "snapshots"
    entities = RawPoints(store.vectors, "mem0_entities")
    like = next(iter(entities.points().values()))
    for owner in ("alice", "only-an-entity"):  # counted where it is all that there is
        entities.put(
            str(uuid.uuid4()), {**like.payload, "linked_memory_ids": [], "user_id": owner}, like.vector
        )
    before = take(store, folder)
    later = this_host().now + 1
    points = scrolled(store.vectors, tmp_path / "scratch")["mem0"].values()
    hers = sum(payload.get("user_id") == "alice" for payload, _ in points)

    def erased(*erasures: Erasure) -> dict[str, list[str]]:
        (folder / RECORD).write_text(erasures_text(erasures))
        return found(audited(store, folder))

    assert erased(make_erasure(later, SALT, ("nobody", None, None))) == {}
    assert erased(make_erasure(later, SALT, ("alice", None, None))) == {"B905": [before.name]}
    assert of(audited(store, folder), "B905")[0].evidence["memories of somebody erased"] == hers > 0
    assert erased(make_erasure(later, SALT, ("only-an-entity", None, None))) == {"B905": [before.name]}
    assert erased(make_erasure(later - 1000, SALT, ("alice", None, None))) == {}, "the snapshot is newer"
    with closing(sqlite3.connect(store.history)) as log:
        (gone,) = log.execute("SELECT memory_id FROM history WHERE event = 'DELETE' LIMIT 1").fetchone()
    assert erased(make_erasure(later, SALT, None, [gone])) == {"B905": [before.name]}, (
        "its text is in the log"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="restores are Linux only")
def test_b906_interrupted_operation(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert found(audited(world.store)) == {"B901": [""]}
    cut_off(world, "restore.exchange", 2)
    report = audited(world.store)
    assert "B906" in found(report)
    (cut,) = of(report, "B906")
    assert cut.evidence["snapshot"] == world.snapshot
    assert "the next restore" in str(cut.evidence["then"])
    world.restore()
    assert "B906" not in found(audited(world.store))
