"""Group L: each rule on a real place (a real mount, real rules, real permissions), and silent elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.model import Candidate, Holder, Origin
from mem0audit.core.rules import RULES
from mem0audit.install.host import this_host
from mem0audit.install.places import look_at
from mem0audit.operations.status import status
from tests.builders import MemoryBuilder, copy_store
from tests.rules.readings import reading_of
from tests.rules.support import Paths, codes, gaps, host, of, report_of

Build = Callable[..., MemoryBuilder]


@contextlib.contextmanager
def mounted(kind: str, point: Path, *options: str) -> Iterator[Path]:
    """A real mount, unmounted after. Needs root, which CI has."""
    if os.geteuid():
        pytest.fail("mounting needs root") if os.environ.get("CI") else pytest.skip("mounting needs root")
    point.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", kind, *options, kind, str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


def found(code: str, store: object, **changes: object) -> list[object]:
    return list(RULES[code](reading_of(store, **changes)))


@pytest.fixture
def install(durable: Path) -> Paths:
    """A consistent install in a durable, private folder."""
    copy = copy_store("2.2.1", durable)
    for base, folders, files in os.walk(durable):
        for name in folders:
            os.chmod(os.path.join(base, name), 0o700)
        for name in files:
            os.chmod(os.path.join(base, name), 0o600)
    return Paths(copy.history, copy.vectors)


def test_a_private_folder_on_a_disk_has_nothing_of_group_l(install: Paths) -> None:
    report = report_of(install, select=("L",), on=host(root="/"))
    told = codes(report)
    # a checkout below a cleaned /tmp is what the rules say it is
    under_cleaned = look_at(str(install.vectors), this_host()).cleaned is not None
    assert not told or (under_cleaned and set(told) == {"L102"}), told


@pytest.mark.root
def test_l101_a_store_on_a_tmpfs(install: Paths, durable: Path) -> None:
    with mounted("tmpfs", durable / "memory") as point:
        shutil.copytree(install.vectors, point / "qdrant")
        report = report_of(Paths(install.history, point / "qdrant"), select=("L101", "L113"))
        assert codes(report) == {"L101": 1}
        one = of(report, "L101")[0]
        assert one.subject == "vectors"
        assert one.evidence["filesystem"] == "tmpfs"
        assert one.evidence["mounted at"] == str(point)
    assert not codes(report_of(install, select=("L101",)))


def test_l102_a_directory_that_is_cleaned_at_boot(install: Paths, durable: Path) -> None:
    root = durable / "root"
    (root / "etc/tmpfiles.d").mkdir(parents=True)
    (root / "run/systemd/system").mkdir(parents=True)
    store = root / "tmp/qdrant"
    shutil.copytree(install.vectors, store)
    (root / "etc/tmpfiles.d/tmp.conf").write_text("D /tmp 1777 root root -\n")
    place = look_at("/tmp/qdrant", host(root=str(root)))
    told = found("L102", install, vectors_place=place)
    assert [f.evidence["cleaned"] for f in told] == ["at boot"]
    (root / "etc/tmpfiles.d/keep.conf").write_text("x /tmp/qdrant\n")
    (root / "etc/tmpfiles.d/tmp.conf").write_text("q /tmp 1777 root root 10d\n")
    assert not found("L102", install, vectors_place=look_at("/tmp/qdrant", host(root=str(root))))


@pytest.mark.root
def test_l103_and_l113_a_store_on_the_layer_of_a_container(install: Paths, durable: Path) -> None:
    """A real overlay as the root of a process in its own mount namespace, with the marks of a container."""
    if os.geteuid():
        pytest.fail("mounting needs root") if os.environ.get("CI") else pytest.skip("mounting needs root")
    for name in ("lower", "upper", "work", "merged"):
        (durable / name).mkdir()
    (durable / "lower/.dockerenv").touch()
    shutil.copytree(install.vectors, durable / "lower/data/qdrant")
    for name in ("proc", "volume"):
        (durable / "lower" / name).mkdir()
    volume = durable / "volume"
    shutil.copytree(install.history.parent, volume)
    script = f"""
set -e
mount -t overlay overlay -o lowerdir={durable}/lower,upperdir={durable}/upper,workdir={durable}/work {durable}/merged
mount --bind {volume} {durable}/merged/volume
mount --rbind /proc {durable}/merged/proc
mkdir {durable}/merged/old
cd {durable}/merged
pivot_root . old
exec /old{shutil.which("sleep")} 600
"""
    # The dynamic loader of `sleep` must be found in the new root as well.
    for library in ("/lib", "/lib64", "/usr"):
        if Path(library).exists():
            os.symlink(f"/old{library}", durable / "lower" / library.lstrip("/"))
    child = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", script])
    try:
        root = Path(f"/proc/{child.pid}/root")
        for _ in range(200):
            if (root / "data/qdrant").exists():
                break
            subprocess.run(["sleep", "0.05"], check=True)
        vectors = look_at(f"{root}/data/qdrant", this_host())
        log = look_at(f"{root}/volume/history.db", this_host())
        assert vectors.container_layer is True
        assert log.container_layer is False
        told = found("L103", install, vectors_place=vectors, history_place=log)
        assert [f.subject for f in told] == ["vectors"]
        assert [
            f.evidence["goes with the container"]
            for f in found("L113", install, vectors_place=vectors, history_place=log)
        ] == [vectors.path]
    finally:
        child.kill()
        child.wait()
    assert not found("L103", install)
    assert not found("L113", install)


@pytest.mark.root
def test_l104_the_agent_sees_another_tmp(install: Paths, durable: Path) -> None:
    """A process in its own mount namespace with a /tmp of its own, as PrivateTmp= makes it, holding a store."""
    if os.geteuid():
        pytest.fail("mounting needs root") if os.environ.get("CI") else pytest.skip("mounting needs root")
    holding = (
        "import sqlite3, sys, time\n"
        "c = [sqlite3.connect(path) for path in sys.argv[1:]]\n"
        "[x.execute('select * from sqlite_master').fetchall() for x in c]\n"
        "print('open', flush=True); time.sleep(600)"
    )
    own = Path("/tmp") / durable.name / "qdrant"
    inside = Paths(install.history, own)
    for vectors, expected in ((own, {"L104": 1}), (install.vectors, {})):
        steps = (
            "mount -t tmpfs tmpfs /tmp",
            f"mkdir -p '{own.parent}'",
            f"cp -R '{install.vectors}' '{own}'",
            f"exec '{os.path.realpath(sys.executable)}' -c \"$1\" "
            f"'{vectors}/collection/mem0/storage.sqlite' '{install.history}'",
        )
        child = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", " && ".join(steps), "sh", holding],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        try:
            assert child.stdout.readline().strip() == b"open"
            looked_at = inside if expected else install
            report = report_of(looked_at, select=("L104", "L106", "L108", "D302"))
            assert codes(report) == expected, report.findings
            if expected:
                assert of(report, "L104")[0].evidence["pid"] == child.pid
                assert of(report, "L104")[0].path == f"/proc/{child.pid}/root{own}"
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
    assert not codes(report_of(install, select=("L104",)))


def test_l105_the_default_folder(install: Paths) -> None:
    durable_place = {"path": "/tmp/qdrant", "volatile": False, "cleaned": None}
    assert len(found("L105", install, vectors_place=durable_place)) == 1
    assert not found("L105", install, vectors_place={**durable_place, "volatile": True})
    assert not found("L105", install)


def test_l106_live_memories_and_no_folder(build: Build) -> None:
    """With memories of its own: another test may hold a copy of a kept store, where they would be found."""
    agent = build()
    for i in range(4):
        agent.add(f"fact {i}", user_id="alice")
    agent.close()
    shutil.move(agent.vectors, agent.vectors.with_name("moved"))
    report = report_of(agent, select=("L106", "D302"))
    assert codes(report) == {"L106": 1, "D302": 4}
    assert of(report, "L106")[0].evidence["live memories in the log"] == 4


def test_l106_live_memories_and_no_collection(install: Paths) -> None:
    report = report_of(install, select=("L106",), collection="another")
    assert codes(report) == {"L106": 1}
    assert "mem0" in str(of(report, "L106")[0].evidence["collections there"])
    assert not codes(report_of(install, select=("L106",)))


def test_l107_half_an_install_where_ours_could_be(install: Paths) -> None:
    half = Candidate("vectors", "/tmp/qdrant", "mem0's default", "mem0audit audit --qdrant-path /tmp/qdrant")
    other = Candidate("history", "/root/.mem0/history.db", "mem0's default")
    assert len(found("L107", install, candidates=(half,))) == 1
    assert not found("L107", install, candidates=(half, other))
    assert not found("L107", install, candidates=(Candidate("vectors", "/x", "held by pid 9 (agent)"),))


def test_l107_a_stray_log_in_the_working_directory(install: Paths, durable: Path) -> None:
    work = durable / "work"
    work.mkdir()
    shutil.copy(install.history, work / "history.db")
    report = report_of(install, select=("L107",), on=host(cwd=str(work)))
    assert [f.path for f in of(report, "L107")] == [str(work / "history.db")]


def test_l108_is_about_one_log_and_two_stores(build: Build, tmp_path: Path) -> None:
    """See test_consistent.py for the same with the other store held by its own program."""
    shared = tmp_path / "home"
    one = build("one", history=shared / "history.db")
    one.add("of one", user_id="alice")
    one.close()
    two = build("two", history=shared / "history.db", vectors=tmp_path / "elsewhere" / "qdrant")
    two.add("of two", user_id="bob")
    two.close()
    report = report_of(one, select=("L108", "D302"), on=host(cwd=str(tmp_path / "elsewhere")))
    assert codes(report) == {"L108": 1}
    assert of(report, "L108")[0].evidence["memories of this log in it"] == 1


def test_l108_two_installs_in_one_folder(build: Build, tmp_path: Path) -> None:
    one = build("one")
    one.add("of one", user_id="alice")
    one.close()
    two = build("two", vectors=one.vectors, collection="theirs")
    two.add("of two", user_id="bob")
    two.close()
    report = report_of(one, select=("L108", "D"))
    assert codes(report) == {"L108": 1}
    assert of(report, "L108")[0].subject == "theirs"


def test_l109_a_network_filesystem(install: Paths) -> None:
    told = found(
        "L109", install, vectors_place={"network": True, "filesystem": "nfs4", "mount_point": "/srv"}
    )
    assert [f.evidence["filesystem"] for f in told] == ["nfs4"]
    assert not found("L109", install)


@pytest.mark.parametrize(
    ("mem0", "on_disk", "wiped"),
    [
        ("0.0.7", None, False),
        ("0.0.8", True, True),
        ("0.0.15", True, True),
        ("0.0.16", True, False),
        ("0.0.16", None, True),
        ("1.0.7", False, True),
        ("1.0.7", True, False),
        ("1.0.8", False, False),
        ("2.2.1", None, False),
    ],
)
def test_l110_the_agents_mem0_deletes_the_folder(
    install: Paths, mem0: str, on_disk: bool | None, wiped: bool
) -> None:
    assert bool(found("L110", install, mem0=mem0, install={"on_disk": on_disk})) is wiped


def test_l110_an_unknown_version_is_not_checked(install: Paths) -> None:
    told = found("L110", install, mem0=None)
    assert [type(v).__name__ for v in told] == ["NotChecked"]
    assert not told[0].gap


@pytest.mark.root
def test_l111_others_can_read_or_replace(install: Paths) -> None:
    """A folder of its own below /: the checkout may lie in a home that nobody else can enter."""
    import tempfile

    open_folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        os.chmod(open_folder, 0o755)
        shutil.copytree(install.vectors, open_folder / "qdrant")
        for base, _folders, files in os.walk(open_folder / "qdrant"):
            os.chmod(base, 0o755)
            for name in files:
                os.chmod(os.path.join(base, name), 0o644)
        report = report_of(Paths(install.history, open_folder / "qdrant"), select=("L111",))
        assert [f.subject for f in of(report, "L111")] == ["vectors"]
        os.chmod(open_folder, 0o700)  # mem0's own 0755 and 0644 below a private folder are silent
        assert not codes(report_of(Paths(install.history, open_folder / "qdrant"), select=("L111",)))
        os.chmod(open_folder, 0o777)
        os.chmod(open_folder / "qdrant", 0o700)
        report = report_of(Paths(install.history, open_folder / "qdrant"), select=("L111",))
        assert [list(f.evidence) for f in of(report, "L111")] == [["others may replace entries of"]]
    finally:
        shutil.rmtree(open_folder)


@pytest.mark.root
def test_l112_no_room_for_a_snapshot(install: Paths, durable: Path) -> None:
    with mounted("tmpfs", durable / "small", "-o", "size=300k") as point:
        shutil.copytree(install.vectors, point / "qdrant")
        (point / "ballast").write_bytes(b"x" * (os.statvfs(point).f_bavail * 4096 - 8192))
        vectors = look_at(str(point / "qdrant"), this_host())
        # as a small disk: what a tmpfs has free is no room for a snapshot anyway
        told = found(
            "L112",
            install,
            vectors_place=_with(vectors, volatile=False),
            history_place={"free_bytes": vectors.free_bytes},
        )
        assert len(told) == 1
        assert not found("L112", install)


def _with(place: object, **changes: object) -> object:
    import dataclasses

    return dataclasses.replace(place, **changes)  # type: ignore[type-var]


def test_l113_is_silent_where_l101_or_l102_speak(install: Paths) -> None:
    layers = {"vectors_place": {"container_layer": True}, "history_place": {"container_layer": False}}
    assert len(found("L113", install, **layers)) == 1
    layers["vectors_place"]["volatile"] = True
    assert not found("L113", install, **layers)


def test_a_holder_of_another_unit_is_named(install: Paths) -> None:
    holder = Holder(
        812, "python agent.py", "lock", ("/tmp/qdrant/.lock",), unit="agent.service", private_tmp=True
    )
    place = {"path": "/tmp/qdrant"}
    told = found("L104", install, holders=(holder,), holders_unseen=None, vectors_place=place)
    assert [(f.evidence["pid"], f.evidence["unit"]) for f in told] == [(812, "agent.service")]


@pytest.mark.root
def test_a_store_in_another_processes_tmp_is_read_there_and_not_ours(install: Paths, durable: Path) -> None:
    """SQLite resolves /proc/PID/root as "/": it would open our own file of the same name without a word."""
    if os.geteuid():
        pytest.fail("mounting needs root") if os.environ.get("CI") else pytest.skip("mounting needs root")
    theirs = copy_store("2.2.1", durable / "theirs", pre_delete_all=True)
    inside = durable / "seen"
    inside.mkdir()
    shutil.copytree(install.vectors, inside / "qdrant")  # ours, of the same name, with other memories
    shutil.copy(install.history, inside / "history.db")
    copying = f"cp -r {theirs.vectors} {theirs.history} {inside}"
    script = f"mount -t tmpfs tmpfs {inside} && {copying} && echo ok && exec sleep 60"
    child = subprocess.Popen(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline().strip() == b"ok"
        root = f"/proc/{child.pid}/root{inside}"
        report = report_of(Paths(f"{root}/history.db", f"{root}/qdrant"), select=("D", "H", "L101"))
        assert codes(report) == {"L101": 2}
        assert report.counts["memories"] == 27 != report_of(install, select=("D",)).counts["memories"]
        assert {f.path for f in of(report, "L101")} == {f"{root}/history.db", f"{root}/qdrant"}
        mixed = report_of(Paths(install.history, f"{root}/qdrant"), select=("D",))
        assert codes(mixed)["D301"] > 0  # carol's memories: deleted in our log, still in their store
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.root
def test_the_agents_private_store_is_what_is_audited(durable: Path) -> None:
    """PrivateTmp=: the path that the user names is there for the agent alone. No false "the memories are gone"."""
    if os.geteuid():
        pytest.fail("mounting needs root") if os.environ.get("CI") else pytest.skip("mounting needs root")
    theirs = copy_store("2.2.1", durable / "theirs")
    seen = durable / "seen"
    seen.mkdir()
    holding = (
        "import sqlite3, sys, time\n"
        "c = [sqlite3.connect(f'{sys.argv[1]}/{p}') for p in ('qdrant/collection/mem0/storage.sqlite', 'history.db')]\n"
        "[x.execute('select * from sqlite_master').fetchall() for x in c]\n"
        "print('open', flush=True); time.sleep(600)"
    )
    copying = f"mount -t tmpfs tmpfs {seen} && cp -r {theirs.vectors} {theirs.history} {seen}"
    script = f'{copying} && exec "{os.path.realpath(sys.executable)}" -c "$1" "{seen}"'
    child = subprocess.Popen(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", holding],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    named = Paths(seen / "history.db", seen / "qdrant")
    try:
        assert child.stdout.readline().strip() == b"open"
        report = report_of(named, select=("L106", "L101", "D", "H"))
        assert codes(report) == {"L101": 2}
        assert report.counts["memories"] == 19
        assert report.install.vectors is not None
        assert report.install.vectors.value == f"/proc/{child.pid}/root{seen}/qdrant"
        assert f"as pid {child.pid} sees it" in report.install.vectors.decided_by
        plain = replace(
            report.install,
            history=Origin(str(named.history), "--history"),
            vectors=Origin(str(named.vectors), "--qdrant-path"),
        )
        stands = status(plain, this_host()).places
        assert [(s.place.exists, s.place.path) for s in stands[:2]] == [
            (True, f"/proc/{child.pid}/root{seen}/history.db"),
            (True, f"/proc/{child.pid}/root{seen}/qdrant"),
        ]
        for command in ("users", "log", f"show {theirs.truth['ids']['alice'][0][0]}"):
            told = subprocess.run(
                [sys.executable, "-m", "mem0audit", *command.split(), "--history", str(named.history)]
                + ([] if command == "log" else ["--qdrant-path", str(named.vectors)]),
                capture_output=True,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            assert told.returncode == 0, (command, told.stdout, told.stderr)
        # a log that this process does not have open: its vectors are not that log's
        mixed = report_of(Paths(theirs.history, seen / "qdrant"), select=("L106", "D", "L108"))
        assert mixed.install.vectors is not None
        assert mixed.install.vectors.value == str(seen / "qdrant")
        told = [(f.code, f.path) for f in mixed.findings]
        assert told == [("L108", f"/proc/{child.pid}/root{seen}/qdrant")], mixed
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    gone = report_of(named, select=("L106", "D"))
    assert not gone.findings
    assert {what for what, _ in gaps(gone)} == {str(named.history), str(named.vectors)}
