"""A move that was cut off is said from both places, with what settles it; and nothing else begins before."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from mem0audit.core.errors import Refused
from mem0audit.core.model import Report
from mem0audit.core.moved import Begun, begun_text, parse_begun
from mem0audit.install.host import this_host
from mem0audit.operations import audit as audits
from mem0audit.operations.discard import plan_discard
from mem0audit.operations.ledger import ledger_folder
from mem0audit.operations.leftmoves import RECORD, left_moves, refuse_left_moves
from mem0audit.operations.status import status
from mem0audit.report.json import status_json
from mem0audit.report.pages import status_text
from mem0audit.report.screen import Screen
from mem0audit.report.text import audit_text
from tests.cli.program import call
from tests.operations.test_relocate import Copies, World, at
from tests.operations.test_restore import die, in_child, steps
from tests.operations.test_snapshot import installed
from tests.report.test_json import check

pytestmark = pytest.mark.usefixtures("own_home")


def cut(world: World, name: str, number: int) -> None:
    with steps(at(name, number, die)):
        assert in_child(lambda: world.move(ledger=True) and 0) < 0, (name, number)


def audited(place: object) -> Report:
    install, host = installed(place), this_host()
    left = left_moves(install, host)
    return audits.audit(install, host, left_moves=left, ledger=False, pause=lambda _: None)


def test_a_cut_off_move_is_said_from_both_places(durable: Path) -> None:
    copies = Copies(durable)
    host = this_host()
    for name, number, course in (
        ("restore.stage", 1, "clean"),
        ("restore.put", 2, "finish"),
        ("restore.aside", 2, "finish"),
        ("restore.intent.remove", 1, "finish"),
    ):
        world = copies.again()
        cut(world, name, number)
        half = course != "clean"
        for place in (world.store, world.new):
            found = status(installed(place), host)
            (left,) = found.left_moves
            assert (left.cut.course, left.to, left.with_history) == (course, str(world.to), True)
            words = shlex.split(left.command or "")
            assert words[:2] == ["mem0audit", "relocate"]
            flags = dict(zip(words[2:8:2], words[3:8:2], strict=True))
            assert flags == {
                "--history": str(world.store.history),
                "--qdrant-path": str(world.store.vectors),
                "--to": str(world.to),
            }
            said = " ".join(status_text(found, Screen(width=100)).split())
            assert "MOVE CUT OFF" in said and f"{left.command} --dry-run" in said
            assert ("keep the agent stopped" in said) == half
            (listed,) = check(status_json(found), "status")["moves_cut_off"]
            assert (listed["course"], listed["command"]) == (course, left.command)
            if course == "clean" and place is world.new:
                continue  # nothing is there to audit
            report = audited(place)
            (finding,) = (f for f in report.findings if f.code == "B906")
            assert (finding.path, finding.help) == (left.cut.folder, left.command)
            assert ("settle the move that was cut off" in audit_text(report, Screen(width=100))) == half
            if half:
                with pytest.raises(Refused, match="was cut off: it comes first") as refused:
                    refuse_left_moves(installed(place), host)
                assert refused.value.hint == left.command
        if half:
            with pytest.raises(Refused, match="was cut off: it comes first"):
                plan_discard(installed(world.new), host, "move")
            to, world.to = world.to, durable / "elsewhere/qdrant"
            with pytest.raises(Refused, match="was cut off: it comes first"):
                world.plan()
            world.to = to
        world.move(ledger=True)
        world.check_moved((name, number))
        assert status(installed(world.store), host).left_moves == ()
        assert status(installed(world.new), host).left_moves == ()
        record = Path(ledger_folder(host)) / RECORD
        assert parse_begun(record.read_bytes()) == ()


def test_nothing_else_begins_before_it_is_settled(durable: Path, own_home: Path) -> None:
    world = World(durable)
    cut(world, "restore.put", 2)
    flags = ("--history", str(world.store.history), "--qdrant-path", str(world.store.vectors))
    for words in (
        ("delete", "--user", "carol", "--agent-python", sys.executable, "--dry-run"),
        ("residue", "--clear-free-pages", "--dry-run"),
        ("relocate", "--to", str(durable / "elsewhere/qdrant"), "--dry-run"),
        ("relocate", "--discard-replaced", "--dry-run"),
    ):
        ran = call(own_home, *words, *flags)
        assert ran.code == 4 and f"a move to {world.to} was cut off: it comes first" in ran.err, words
    copies = call(own_home, "residue", "--user", "carol", *flags, "--format", "json")
    kinds = [one["kind"] for one in check(copies.out, "residue")["copies"]]
    assert "left by a move that was cut off" in kinds


def test_without_a_ledger_it_is_said_from_the_new_place(durable: Path) -> None:
    world = World(durable, with_history=False)
    with steps(at("restore.aside", 1, die)):
        assert in_child(lambda: world.move() and 0) < 0
    (left,) = left_moves(installed(world.new), this_host())
    assert left.command is not None and str(world.store.vectors) in left.command
    assert not (Path(ledger_folder(this_host())) / RECORD).exists()
    assert left_moves(installed(world.store), this_host()) == ()


def test_the_record_is_read_strictly() -> None:
    one = Begun("/tmp/history.db", "/tmp/qdrant", "/srv/qdrant", True, 1.0)
    assert parse_begun(begun_text([one]).encode()) == (one,)
    whole = json.loads(begun_text([one]))
    for change in (
        {"kind": "x"},
        {"format": 2},
        {"begun": [{}]},
        {"begun": [{**whole["begun"][0], "to": "x"}]},
    ):
        with pytest.raises(ValueError, match=r"another version|does not read"):
            parse_begun(json.dumps({**whole, **change}).encode())
