"""`residue` and `export` as they are typed: what is printed, no text unasked, exit codes, files of 0600."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Ran, call
from tests.operations.test_residue import SECRETS, SHARED, Install, World
from tests.operations.test_restore import undisturbed
from tests.report.test_json import check


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("residue-cli"))


@pytest.fixture(autouse=True)
def no_other_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from mem0audit.operations import residue as operation

    monkeypatch.setattr(operation, "find_candidates", lambda *_: ())
    yield


class User:
    def __init__(self, made: World, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.store = Install(made, folder)
        self.store.be("before")
        assert self("audit", "--quiet").code in (0, 1)

    def __call__(self, *words: str) -> Ran:
        about = ("--history", str(self.store.history), "--qdrant-path", str(self.store.vectors))
        return call(self.home, *words, *about)


@pytest.fixture
def user(made: World, tmp_path: Path) -> User:
    return User(made, tmp_path)


def test_residue_for_people(user: User) -> None:
    user.store.be("after")
    ran = user("residue", "--user", "carol")
    assert ran.code == 1, ran.err
    assert ran.out.startswith("user carol (15 memories known): still readable.\n")
    for said in (
        "31  history, of 15 memories",
        "The agent can learn it again: mem0 reads the last 10 messages of a session",
        "ran without secure_delete",
        "everything else: free blocks of the disk",
        "residue --history",
    ):
        assert said in ran.out, said
    assert not any(text in ran.out + ran.err for text in (*SECRETS, SHARED))
    assert max(map(len, (line for line in ran.out.splitlines() if "/" not in line))) <= 100
    for word in ("clean", "erased"):
        assert word not in ran.out


def test_residue_for_machines(user: User) -> None:
    user.store.be("after")
    ran = user("residue", "--user", "carol", "--format", "json")
    document = check(ran.out, "residue")
    assert document["exit_code"] == ran.code == 1
    assert document["messages_fed_back"] == 2
    assert not any(text in ran.out for text in (*SECRETS, SHARED))


def test_what_nobody_can_be_asked(user: User) -> None:
    for words in (("--user", "*"), ("--user", " "), ("--user", ""), (), ("--user", "a", "--memory", "b")):
        assert user("residue", *words).code == 2, words
    assert user("residue", "--clear-free-pages", "--user", "carol").code == 2
    assert user("export").code == 2
    nobody = user("residue", "--user", "dora")
    assert nobody.code == 3
    assert "nothing found, but not everything could be looked at" in nobody.out


def test_clearing(user: User) -> None:
    user.store.be("after")
    plan = user("residue", "--clear-free-pages", "--dry-run", "--format", "json")
    assert check(plan.out, "residue-clear")["cleared"] is False
    assert user("residue", "--clear-free-pages").code == 4

    def clear() -> Ran:
        return user("residue", "--clear-free-pages", "--yes")

    ran = undisturbed(clear)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("Rebuilt 3 files; ")
    assert "freed page" not in user("residue", "--user", "carol").out


def test_export_is_all_of_hers_and_nothing_of_others(user: User) -> None:
    target = user.home / "carol.jsonl"
    ran = user("export", "--user", "carol", "-o", str(target))
    assert ran.code == 0, ran.err
    assert "15 memories, 16 log rows, 2 messages, 2 entities" in ran.err
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    assert "nothing of" not in ran.err
    nobody = user("export", "--user", "dora")
    assert nobody.code == 0
    assert "nothing of user dora is held in what was read" in nobody.err
    assert [json.loads(line)["kind"] for line in nobody.out.splitlines()] == ["export", "end"]
    lines = [check(f"{line}\n", "export") for line in target.read_text("ascii").splitlines()]
    assert [lines[0]["kind"], lines[-1]["kind"]] == ["export", "end"]
    assert lines[0]["scope"] == {"user_id": "carol"}
    of = {line["id"]: line for line in lines if line["kind"] == "memory"}
    assert set(of) == set(user.store.ids)
    assert [row["event"] for row in of[user.store.ids[0]]["history"]] == ["ADD", "UPDATE"]
    assert {one["stored"][0]["payload"]["data"] for one in of.values()} >= set(SECRETS[1:])
    shared = next(line for line in lines if line["kind"] == "entity" and "bowl" in line["payload"]["data"])
    assert shared["payload"]["linked_memory_ids"] == [user.store.ids[12]]
    text = target.read_text("ascii")
    assert "Bob mows" not in text
    assert not any(bob in text for bob in user.store.made.bobs)
    # after the deletion: the log and the messages; and the file is known to hold her texts
    user.store.be("after")
    later = user("export", "--user", "carol")
    assert len([line for line in later.out.splitlines() if '"kind": "memory"' in line]) == 15
    found = user("residue", "--user", "carol").out
    assert str(target) in found
    shutil.rmtree(user.store.folder)
    assert user("export", "--user", "carol").code == 3
