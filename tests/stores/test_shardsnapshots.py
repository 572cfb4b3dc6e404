"""Points of a real server as of one instant: what a scroll gives, nothing left, and what cannot be read is said."""

from __future__ import annotations

import io
import os
import signal
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.model import CollectionInfo, PointId, PointsRead, VectorFacts
from mem0audit.core.server import Secret, parse_address
from mem0audit.operations import scratch
from mem0audit.stores import files, serversnapshots
from mem0audit.stores.server import Connection
from mem0audit.stores.serverstore import ServerStore
from mem0audit.stores.shardsnapshots import InstantStore
from tests.operations.test_snapshot import in_child
from tests.qdrant_server import QdrantServer
from tests.rules.onserver import make_collection

ODD = {"n": 2**63 + 1, "m": -5, "f": 1.0, "g": 1e300, "none": None, "deep": [1, {"é\u2028": "\n"}]}
IDS: tuple[PointId, ...] = (1, 2, 3, 4, 5, 2**64 - 1, "5c56c793-69f3-4fbf-87e6-c4bf54c28c26")
VECTORS: dict[PointId, Any] = {
    1: {"": [0] * 8},
    2: {"": [1e39] * 8},
    3: {},
    4: {"bm25": {"indices": [1], "values": [1]}},
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where scratch folders are made."""
    made = tmp_path / "scratch"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.fixture
def server(qdrant: QdrantServer) -> Iterator[QdrantServer]:
    """One with every vector that a server takes and mem0 has no use for."""
    make_collection(qdrant, "mem0", indexes=False)
    points = [
        {"id": i, "vector": VECTORS.get(i, {"": [1] * 8}), "payload": {"data": str(i), **ODD}} for i in IDS
    ]
    qdrant.result("PUT", "/collections/mem0/points?wait=true", {"points": points})
    yield qdrant
    for name in on_server(qdrant):
        qdrant.result("DELETE", f"/collections/mem0/shards/0/snapshots/{name}?wait=true")


def keep(row: int, point_id: PointId, payload: Mapping[str, Any], vector: VectorFacts) -> Any:
    return row, point_id, dict(payload), (vector.dims, vector.flaw, sorted(vector.names))


def read(
    server: QdrantServer, *, vectors: bool = False, make: Callable[..., Connection] = Connection
) -> PointsRead[Any]:
    key = server.api_key and Secret(server.api_key)
    with make(parse_address(server.url), key) as connection, scratch.folder() as folder:
        store = InstantStore(connection, folder, vectors=vectors)
        (info,) = (one for one in store.layout().collections if one.name == "mem0")
        found = store.points(info, keep)
        assert not list(folder.iterdir())
        return found


def problem(found: PointsRead[Any]) -> str:
    assert found.file.problem is not None
    assert "data" not in found.file.problem.detail
    return found.file.problem.detail


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "log"}


@pytest.mark.parametrize("vectors", [False, True])
def test_it_gives_what_a_scroll_gives_and_leaves_nothing(
    server: QdrantServer, place: Path, *, vectors: bool
) -> None:
    with Connection(parse_address(server.url)) as connection:
        pages = ServerStore(connection, vectors=vectors)
        (info,) = pages.layout().collections
        wanted = pages.points(info, keep).rows
    assert set(wanted) == set(IDS) and wanted[5][2] == {"data": "5", **ODD}
    if vectors:
        flaws = {i: row[3] for i, row in wanted.items()}
        assert flaws[1] == (8, "zero", []) and flaws[2] == (8, "nan", []) and flaws[5] == (8, None, [])
        assert flaws[3] == (None, None, []) and flaws[4] == (None, None, ["bm25"])
    read(server)  # the server writes down what it has in memory
    before = tree(server.folder)
    found = read(server, vectors=vectors)
    assert found.file.problem is None and dict(found.rows) == dict(wanted)
    assert found.file.way == "shard snapshots"
    assert tree(server.folder) == before
    assert not list(place.iterdir())


def test_a_key_that_may_only_read(qdrant_with_keys: QdrantServer, place: Path) -> None:
    make_collection(qdrant_with_keys, "mem0", indexes=False)

    def with_the_other(address: Any, key: Any) -> Connection:
        assert qdrant_with_keys.read_only_key is not None
        return Connection(address, Secret(qdrant_with_keys.read_only_key))

    found = read(qdrant_with_keys, make=with_the_other)
    assert "--consistent needs one that may manage" in problem(found)
    assert read(qdrant_with_keys).file.problem is None and not list(place.iterdir())


def on_server(server: QdrantServer) -> list[str]:
    return [one["name"] for one in server.result("GET", "/collections/mem0/shards/0/snapshots")]


def test_no_room(server: QdrantServer, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda folder: 1 << 20)
    said = problem(read(server))
    assert f"{place} has 1 MB free" in said and "TMPDIR" in said
    assert not on_server(server) and not list(place.iterdir())


def edited(
    drop: str = "no such file",
    fill: str = "no such file",
    data: bytes = b"",
    more: tarfile.TarInfo | None = None,
) -> Callable[[bytes], bytes]:
    """A snapshot whose segments are without some files, have other bytes in some, and one more."""

    def edit(whole: bytes, inner: bool = False) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(whole)) as packed:
            members = packed.getmembers()
        parts = [more.tobuf()] if inner and more is not None else []
        ends = [one.offset for one in members[1:]] + [len(whole)]
        for member, end in zip(members, ends, strict=True):
            at, size = member.offset_data, end - member.offset_data
            if member.name.endswith(".tar"):
                segment = edit(whole[at : at + member.size], inner=True)
                member.size = len(segment)
                parts += [member.tobuf(tarfile.GNU_FORMAT), segment.ljust(-len(segment) // 512 * -512, b"\0")]
            elif fill in member.name:
                parts.append(whole[member.offset : at])
                parts.append((data * size)[:size] if len(data) == 1 else data.ljust(size, b"\0"))
            elif drop not in member.name or not inner:
                parts.append(whole[member.offset : end])
        return b"".join((*parts, bytes(1024)))

    return edit


def link(name: str, to: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, to
    return made


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (edited(fill="version.info", data=b"9.9.9"), "Data version 9.9.9 is newer than application version"),
        (edited(drop="id_tracker"), "finds 0 points in its snapshot: 7 of those that the server has"),
        (edited(fill="payload_storage/page_0", data=b"\xff"), "cannot read its snapshot"),
        (edited(more=link("segments/x", "/tmp")), "what no server packs"),
        (edited(more=tarfile.TarInfo("../x")), "what no server packs"),
        (edited(drop=""), "cannot read its snapshot"),
        (lambda whole: whole[:-5120], "no snapshot, or not a whole one"),
        (lambda whole: b"", "no snapshot, or not a whole one"),
        (lambda whole: link("x", "/tmp").tobuf() + whole, "what no server packs"),
    ],
    ids=["newer", "overlooked", "damaged", "link", "way out", "empty", "cut", "nothing", "outer link"],
)
def test_what_cannot_be_read_is_said_in_one_line(
    server: QdrantServer,
    place: Path,
    edit: Callable[[bytes], bytes],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    bring = serversnapshots.bring

    def edit_what_comes(*words: Any, **named: Any) -> Any:
        done = bring(*words, **named)
        words[2].write_bytes(edit(words[2].read_bytes()))
        return done

    monkeypatch.setattr(serversnapshots, "bring", edit_what_comes)
    line = problem(read(server))
    assert said in line and "\n" not in line and str(place) not in line and len(line) < 400
    assert not list(place.iterdir()) and not on_server(server)
    assert capfd.readouterr() == ("", "")


def test_a_collection_that_is_not_there_any_more(server: QdrantServer, place: Path) -> None:
    gone = CollectionInfo("gone", f"{server.url}/collections/gone", 8, listed=True, has_folder=True)
    with Connection(parse_address(server.url)) as connection, scratch.folder() as folder:
        assert "not there any more" in problem(InstantStore(connection, folder).points(gone, keep))


@pytest.mark.parametrize("step", ["server.snapshot", "server.taken", "snapshot.download.piece", "reading"])
def test_what_a_killed_run_left_is_removed_by_the_next(server: QdrantServer, place: Path, step: str) -> None:
    def killed() -> None:
        parent = os.getpid()
        files.step = lambda name: os.kill(parent, signal.SIGKILL) if name == step else None
        with Connection(parse_address(server.url)) as connection, scratch.folder() as folder:
            store = InstantStore(connection, folder)
            (info,) = store.layout().collections
            store.points(info, lambda *_: os.kill(parent, signal.SIGKILL))

    assert in_child(killed) == -signal.SIGKILL
    (left,) = place.iterdir()
    assert left.stat().st_mode & 0o777 == 0o700
    others = place / f"{left.name[:-12]}{'0' * 12}"
    others.symlink_to(left)
    alive = place / scratch.base_of("0" * 12)
    alive.mkdir()
    there = on_server(server)
    assert len(there) == (step != "reading")
    with Connection(parse_address("http://localhost:1")) as elsewhere:
        assert scratch.remove_left_folders(elsewhere) == ()
    assert [one.name for one in left.glob("*")] == (["remote.json"] if there else [])
    with Connection(parse_address(server.url)) as connection:
        said = scratch.remove_left_folders(connection)
    assert sorted(place.iterdir()) == sorted((others, alive))
    # whose it is that nobody knew the name of is not sure
    unknown = step == "server.snapshot"
    assert said == ((f"{server.url}/collections/mem0/shards/0/snapshots/{there[0]}",) if unknown else ())
    assert on_server(server) == (there if unknown else [])


def test_it_is_said_where_it_is_not_installed(
    server: QdrantServer,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from mem0audit.cli.main import main

    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    monkeypatch.setattr(
        sys,
        "argv",
        ["mem0audit", "audit", "--history", str(tmp_path / "h"), "--qdrant-url", server.url, "--consistent"],
    )
    assert main() == 2
    out, err = capfd.readouterr()
    assert not out and err.count("\n") == 2 and "pip install 'mem0audit[edge]'" in err
