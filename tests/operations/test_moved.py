"""After a move `status` says where the agent works: at the new place, or again at the old one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.model import Holder
from mem0audit.core.moved import Move, Seen, judge, moves_text, parse_moves, with_move
from mem0audit.install.host import Host, this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.moved import followed, note_moves
from mem0audit.operations.status import status
from mem0audit.report.json import status_json
from mem0audit.report.pages import status_text
from mem0audit.report.screen import Screen
from tests.builders import fork


@pytest.fixture
def host(durable: Path, own_home: Path) -> Host:
    environ = {**os.environ, "XDG_STATE_HOME": str(durable / "state")}
    return replace(this_host(), home=str(own_home), cwd=str(durable), environ=environ)


def store(folder: Path) -> Path:
    (folder / "collection" / "mem0").mkdir(parents=True)
    (folder / "collection" / "mem0" / "storage.sqlite").touch()
    (folder / "meta.json").write_text("{}")
    return folder


@contextmanager
def agent(folder: Path) -> Iterator[int]:
    """A process that has a store open, as an agent has."""
    file = str(folder / "collection/mem0/storage.sqlite")
    code = f"import sys; f = open({file!r}); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def said(host: Host, place: Path) -> tuple[str, str]:
    found = status(locate(Flags(qdrant_path=str(place)), host), host)
    document = json.loads(status_json(found))
    assert [one["verdict"] for one in document["moved"]] == [one.verdict for one in found.moved]
    return found.moved[0].verdict, status_text(found, Screen(width=100))


def test_where_the_agent_works_after_a_move(durable: Path, host: Host) -> None:
    old, new = durable / "old", store(durable / "new")
    install = locate(Flags(qdrant_path=str(old)), host)
    assert followed(install, host) == ((), None)
    move = Move("vectors", str(old), str(new), time.time())
    assert note_moves((move,), install, host) is None

    for place in (old, new):  # it is found from both
        verdict, text = said(host, place)
        assert verdict == "waiting" and f"{old} -> {new}" in text and "was not started since" in text
    with agent(new) as pid:
        verdict, text = said(host, old)
        assert verdict == "new" and f"pid {pid}" in text and "the agent has moved." in text
    os.utime(new / "meta.json", (move.at + 60, move.at + 60))
    assert said(host, new)[0] == "written"

    old.symlink_to(new)
    with agent(old):
        verdict, text = said(host, old)
        assert verdict == "new" and "through the link" in text
    old.unlink()

    store(old)
    verdict, text = said(host, new)
    assert (
        verdict == "old"
        and "SOMETHING IS AT THE OLD PLACE AGAIN" in text
        and "mem0audit help relocate" in text
    )
    with agent(old) as pid, agent(new):
        verdict, text = said(host, new)
        assert verdict == "old" and f"THE AGENT STARTED AGAIN AT THE OLD PLACE: pid {pid}" in text
    # an emptied mount point stays, and is no agent's
    for path in (old, *old.rglob("*")):
        os.utime(path, (move.at - 60, move.at - 60))
    assert said(host, new)[0] == "written"


def test_a_store_in_a_namespace_of_the_agents_own() -> None:
    move = Move("vectors", "/tmp/qdrant", "/srv/q", 10.0)
    held = Holder(8, "python", "lock", private_mounts=True)
    seen = Seen((), (held,), "nothing", None, None)
    assert judge(move, seen).verdict == "perhaps old"  # it may be anybody's /tmp/qdrant
    assert judge(replace(move, private=True), seen).verdict == "old"
    there = replace(seen, at_new=(Holder(9, "python", "lock"),))
    assert judge(move, there).verdict == "new"
    assert judge(replace(move, private=True), there).verdict == "old"
    unseen = Seen((), (), "nothing", None, None, complete=False)
    assert judge(move, unseen).verdict == "not known"


def test_a_move_back_ends_it(durable: Path, host: Host) -> None:
    there, back = Move("vectors", "/a", "/b", 1.0), Move("vectors", "/b", "/a", 2.0)
    assert with_move(with_move((), there), back) == (back,)
    log = Move("history", "/a", "/c", 3.0, private=True)
    assert parse_moves(moves_text((back, log)).encode()) == (back, log)
    for bad in (
        b"",
        b"{}",
        b"[]",
        b'{"kind": "mem0audit-moves", "format": 1, "moves": [{"half": 1}]}',
        b"\xff",
    ):
        with pytest.raises(ValueError):
            parse_moves(bad)


def test_a_record_that_does_not_read_is_said(durable: Path, host: Host) -> None:
    record = durable / "state" / "mem0audit" / "moves.json"
    record.parent.mkdir(parents=True)
    record.write_text("half")
    install = locate(Flags(qdrant_path=str(durable / "x")), host)
    moves, problem = followed(install, host)
    assert moves == () and problem is not None and "does not read" in problem.why
    assert any(one.what == "moves" for one in status(install, host).not_checked)
    assert note_moves((Move("vectors", "/a", str(durable / "x"), 1.0),), install, host) is None
    assert len(followed(install, host)[0]) == 1


def test_a_link_that_leads_to_nothing_is_no_agents(durable: Path, host: Host) -> None:
    """The store was named by a link, and moved from where that leads."""
    new, link = store(durable / "new"), durable / "link"
    link.symlink_to(durable / "old")
    install = locate(Flags(qdrant_path=str(link)), host)
    note_moves((Move("vectors", str(link), str(new), time.time() - 60),), install, host)
    assert said(host, link)[0] != "old"
    store(durable / "old")
    assert said(host, link)[0] == "old"


def test_two_at_once_are_both_remembered(durable: Path, host: Host) -> None:
    install = locate(Flags(qdrant_path=str(durable / "old")), host)
    pids = []
    for number in range(8):
        pid = fork()
        if pid == 0:
            for turn in range(10):
                note_moves((Move("vectors", f"/old/{number}.{turn}", "/new", 1.0),), install, host)
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8
    record = durable / "state/mem0audit/moves.json"
    assert len({move.old for move in parse_moves(record.read_bytes())}) == 80


def test_a_move_that_is_finished_again_keeps_its_time(durable: Path, host: Host) -> None:
    install = locate(Flags(qdrant_path=str(durable / "old")), host)
    for at in (1.0, 2.0):
        note_moves((Move("vectors", "/old", "/new", at),), install, host, made_before=True)
    (move,) = parse_moves((durable / "state/mem0audit/moves.json").read_bytes())
    assert move.at == 1.0
