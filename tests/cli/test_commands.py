"""Every command against real stores: what it says, how it ends, and that nothing changes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import call as run
from tests.report.test_json import check

READING = ("audit", "status", "users", "log", "show")
BAD = "x\x1b]0;owned\x07\n critical  L101 forged \u202e\x9b1m [bold]"


def flags(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


def fingerprint(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Every name below a folder with its bytes, times, mode and inode."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        at = path.lstat()
        data = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (data, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_mode, at.st_ino)
    return found


@pytest.fixture
def clean(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", tmp_path / "clean", pre_delete_all=True)


@pytest.fixture
def emptied(tmp_path: Path) -> StoreCopy:
    return copy_store("1.0.0", tmp_path / "emptied")


def an_id(store: StoreCopy) -> str:
    return str(next(iter(RawPoints(store.vectors).points())))


# --- audit --------------------------------------------------------------------------------------


def test_a_clean_install_is_two_lines_and_exit_0(tmp_path: Path, clean: StoreCopy) -> None:
    ran = run(tmp_path, "audit", *flags(clean), "--ignore", "L,T701,S802")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert "27 memories and" in lines[0]
    assert "changes agree." in lines[0]
    assert len(lines) <= 3
    assert run(tmp_path, "audit", *flags(clean), "--ignore", "L,T701,S802", "--quiet").out == ""


def test_a_clean_install_with_a_snapshot(tmp_path: Path, clean: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    assert run(tmp_path, "snapshot", "create", *flags(clean), "--to", str(folder)).code == 0
    (tmp_path / "mem0audit.toml").write_text(f"snapshot_dir = {json.dumps(str(folder))}\n")
    ran = run(tmp_path, "audit", *flags(clean), "--ignore", "L,T701,S802")
    assert (ran.code, ran.err) == (0, "")
    assert "changes agree. " in ran.out
    assert re.search(r"Last snapshot \d+ (s|min) ago\.", ran.out)
    told = json.loads(run(tmp_path, "audit", *flags(clean), "--format", "json").out)["snapshots"]
    assert [one["problems"] for one in told["snapshots"]] == [[]]


def test_status_says_what_was_kept_and_what_a_cut_off_run_left(tmp_path: Path, clean: StoreCopy) -> None:
    folder = tmp_path / "snapshots"
    (tmp_path / "mem0audit.toml").write_text(f"snapshot_dir = {json.dumps(str(folder))}\n")

    def told() -> str:
        return " ".join(run(tmp_path, "status", *flags(clean)).out.split())

    assert f"snapshots {folder}: none of this install" in told()
    assert run(tmp_path, "snapshot", "create", *flags(clean)).code == 0
    assert re.search(r"1, the last good one \d+ (s|min) ago, not verified", told())
    assert run(tmp_path, "snapshot", "verify").code == 0
    left = folder / ".taking-2026-11-30T010101Z"
    left.mkdir()
    assert re.search(r" (s|min) ago, verified", told())
    assert f"unfinished {left}" in told()
    given = json.loads(run(tmp_path, "status", *flags(clean), "--format", "json").out)
    assert given["snapshots"]["unfinished"] == [str(left)]
    assert given["interrupted"] is None
    assert "Removed what 1 run before it left" in run(tmp_path, "snapshot", "create", *flags(clean)).out
    assert "unfinished" not in told()


def test_an_emptied_install(tmp_path: Path, emptied: StoreCopy) -> None:
    ran = run(tmp_path, "audit", *flags(emptied))
    assert (ran.code, ran.err) == (1, "")
    assert "18 memories are gone" in ran.out
    assert "The store is empty." in ran.out
    assert ran.out.index("18 memories are gone") < ran.out.index("What happened") < ran.out.index("Findings")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--fail-on", "never"), 0),
        (("--fail-on", "critical"), 1),
        (("--select", "I213", "--fail-on", "low"), 0),
        (("--select", "I213", "--fail-on", "info"), 1),
        (("--ignore", "d,l", "--ignore", "Q"), 0),
        (("--select", "lost-memory"), 1),
        (("--select", "D30", "--ignore", "D302"), 0),
    ],
)
def test_exit_codes_follow_what_was_asked(
    tmp_path: Path, emptied: StoreCopy, words: tuple[str, ...], code: int
) -> None:
    text = run(tmp_path, "audit", *flags(emptied), *words)
    machine = run(tmp_path, "audit", *flags(emptied), *words, "--format", "json")
    assert text.code == machine.code == code
    assert check(machine.out, "report")["exit_code"] == code


def test_the_json_of_an_audit_fits_its_schema_and_holds_no_text(tmp_path: Path, emptied: StoreCopy) -> None:
    ran = run(tmp_path, "audit", *flags(emptied), "--format", "json")
    document = check(ran.out, "report")
    assert "SECRETCAROL" not in ran.out
    assert sum(f["code"] == "D302" for f in document["findings"]) == 18


def test_the_command_for_more_runs_as_printed(tmp_path: Path, emptied: StoreCopy) -> None:
    history = tmp_path / "my 'logs'" / "history.db"
    history.parent.mkdir()
    emptied.history.rename(history)
    named = ("--history", str(history), "--qdrant-path", str(emptied.vectors))
    ran = run(tmp_path, "audit", *named)
    command = next(line.strip() for line in ran.out.splitlines() if line.endswith(" --verbose"))
    command = command[command.index("mem0audit audit") :]
    again = run(tmp_path, *shlex.split(command)[1:])
    assert again.code == 1
    assert again.out.count("D302") and "more:" not in again.out
    assert all(i in again.out for i in lost_ids(tmp_path, named))


def lost_ids(home: Path, named: tuple[str, ...]) -> list[str]:
    document = json.loads(run(home, "audit", *named, "--format", "json").out)
    return [f["memory_id"] for f in document["findings"] if f["code"] == "D302"]


def test_nothing_there_is_never_clean(tmp_path: Path) -> None:
    gone = ("--history", str(tmp_path / "no.db"), "--qdrant-path", str(tmp_path / "no"))
    ran = run(tmp_path, "audit", *gone)
    assert ran.code == 3
    assert ran.out.startswith("No mem0 install found here. Nothing was audited.")
    assert "agree" not in ran.out
    assert check(run(tmp_path, "audit", *gone, "--format", "json").out, "report")["exit_code"] == 3


def test_an_unreadable_half_is_exit_3(tmp_path: Path, clean: StoreCopy) -> None:
    clean.history.write_bytes(b"no database at all, but long enough to have a header" * 40)
    ran = run(tmp_path, "audit", *flags(clean), "--ignore", "L,I,T,E,C")
    assert ran.code == 3
    assert "Whether memories are missing is not known" in " ".join(ran.out.split())
    assert str(clean.history) in ran.out


def test_settings_file_says_what_flags_do_not(tmp_path: Path, emptied: StoreCopy) -> None:
    (tmp_path / "mem0audit.toml").write_text(
        f'history = "{emptied.history}"\nqdrant_path = "{emptied.vectors}"\nselect = ["I213"]\n'
        'fail_on = "info"\n'
    )
    assert run(tmp_path, "audit").code == 1
    assert run(tmp_path, "audit", "--fail-on", "never").code == 0
    assert "18 memories" in run(tmp_path, "audit", "--select", "D302").out


# --- nothing changes ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("format_", ["text", "json"])
def test_reading_changes_nothing(tmp_path: Path, clean: StoreCopy, command: str, format_: str) -> None:
    words = [an_id(clean)] if command == "show" else []
    before = fingerprint(clean.folder)
    ran = run(tmp_path, command, *words, *flags(clean), "--format", format_)
    assert ran.err == ""
    assert ran.code in (0, 1)
    assert fingerprint(clean.folder) == before
    assert not (tmp_path / ".mem0").exists()


# --- the other commands -------------------------------------------------------------------------


def test_users_counts_owners_and_marks_who_cannot_be_reached(tmp_path: Path, clean: StoreCopy) -> None:
    points = RawPoints(clean.vectors)
    points.put(str(1_000), {"data": "t", "user_id": 7})
    points.put("7d2b4a3c-0000-4000-8000-000000000001", {"data": "t", "user_id": " alice"})
    points.put("7d2b4a3c-0000-4000-8000-000000000002", {"data": "t"})
    points.put("7d2b4a3c-0000-4000-8000-000000000003", {"data": "t", "user_id": BAD})
    ran = run(tmp_path, "users", *flags(clean))
    assert (ran.code, ran.err) == (0, "")
    assert '" alice"' in ran.out
    assert "7 (int)" in ran.out
    assert "no owner: no mem0 call lists it" in ran.out
    assert all(line.isprintable() for line in ran.out.split("\n"))
    document = check(run(tmp_path, "users", *flags(clean), "--format", "json").out, "users")
    assert document["memories"] == 31
    by_user = {json.dumps(u["user_id"]): u["memories"] for u in document["users"]}
    assert (by_user['"alice"'], by_user["7"], by_user["null"]) == (10, 1, 1)
    # bob has several scopes: their sum is in the totals
    assert sum(s["memories"] for s in document["scopes"] if s["user_id"] == "bob") == by_user['"bob"']


def test_show_has_the_point_the_log_and_the_findings(tmp_path: Path, clean: StoreCopy) -> None:
    memory_id = an_id(clean)
    for spelling in (memory_id, memory_id.upper(), memory_id.replace("-", "")):
        ran = run(tmp_path, "show", spelling, *flags(clean))
        assert (ran.code, ran.err) == (0, "")
        assert f"memory {memory_id}" in ran.out
        assert "collection mem0, row" in ran.out
        assert "ADD" in ran.out
    document = check(run(tmp_path, "show", memory_id, *flags(clean), "--format", "json").out, "show")
    assert document["history"][0]["event"] == "ADD"
    assert "data" not in document["stored"][0]["payload"]
    asked = run(tmp_path, "show", memory_id, *flags(clean), "--format", "json", "--text").out
    assert json.loads(asked)["stored"][0]["payload"]["data"]


def test_show_of_a_memory_that_only_the_log_has(tmp_path: Path, emptied: StoreCopy) -> None:
    memory_id = lost_ids(tmp_path, flags(emptied))[0]
    ran = run(tmp_path, "show", memory_id, *flags(emptied))
    assert ran.code == 0
    assert "not in the store" in ran.out
    assert "D302 lost-memory" in ran.out


def test_show_of_nothing_is_exit_3(tmp_path: Path, clean: StoreCopy) -> None:
    for word in ("7d2b4a3c-0000-4000-8000-000000000009", "12", "x\x1b[2J", "../../etc"):
        ran = run(tmp_path, "show", word, *flags(clean))
        assert (ran.code, ran.out) == (3, "")
        assert "in the store or the log" in ran.err
        assert "\x1b" not in ran.err


def test_show_finds_what_entities_link_a_memory(tmp_path: Path, clean: StoreCopy) -> None:
    entities = RawPoints(clean.vectors, "mem0_entities").points()
    linked = next(p.payload["linked_memory_ids"][0] for p in entities.values())
    assert "entity " in run(tmp_path, "show", linked, *flags(clean)).out


def test_hostile_text_stays_behind_its_margin(tmp_path: Path, clean: StoreCopy) -> None:
    memory_id = "7d2b4a3c-0000-4000-8000-000000000003"
    RawPoints(clean.vectors).put(memory_id, {"data": BAD, "user_id": BAD, BAD: {BAD: BAD}})
    for words in (("show", memory_id), ("audit", "--verbose"), ("users",)):
        ran = run(tmp_path, *words, *flags(clean))
        assert ran.code in (0, 1)
        assert all(line.isprintable() for line in ran.out.split("\n"))
        assert not any(line.startswith(" critical  L101 forged") for line in ran.out.split("\n"))


def test_log_answers_what_the_sqlite3_shell_is_opened_for(tmp_path: Path, clean: StoreCopy) -> None:
    ran = run(tmp_path, "log", *flags(clean))
    assert (ran.code, ran.err) == (0, "")
    assert "journal mode rollback" in ran.out
    assert "CREATE TABLE history (" in ran.out
    assert len(re.findall(r"^    memory_id  [0-9a-f-]{36}$", ran.out, re.M)) == 5
    assert len(re.findall(r"^    event  [A-Z]+$", ran.out, re.M)) == 5
    assert "newest" not in run(tmp_path, "log", *flags(clean), "-n", "0").out
    document = check(run(tmp_path, "log", *flags(clean), "-n", "2", "--format", "json").out, "log")
    assert len(document["newest"]) == 2
    assert document["newest"][0]["rowid"] > document["newest"][1]["rowid"]
    assert document["events"]["ADD"] == 30


def test_log_of_the_wrong_file(tmp_path: Path) -> None:
    import sqlite3

    wrong = tmp_path / "wrong.db"
    connection = sqlite3.connect(wrong)
    connection.execute("PRAGMA user_version=1")
    connection.close()
    ran = run(tmp_path, "log", "--history", str(wrong))
    assert ran.code == 3
    assert "none: this is the wrong file" in ran.out
    gone = run(tmp_path, "log", "--history", str(tmp_path / "gone.db"))
    assert (gone.code, gone.out) == (3, "")
    assert "gone.db" in gone.err


def test_status_names_every_place_with_what_decided_it(tmp_path: Path, clean: StoreCopy) -> None:
    ran = run(tmp_path, "status", *flags(clean))
    assert (ran.code, ran.err) == (0, "")
    for word in (str(clean.history), str(clean.vectors), "from --history", "from --qdrant-path", "open by"):
        assert word in ran.out
    document = check(run(tmp_path, "status", *flags(clean), "--format", "json").out, "status")
    assert {"history", "vectors"} <= {p["role"] for p in document["places"]}
    gone = run(tmp_path, "status", "--history", str(tmp_path / "no"), "--qdrant-path", str(tmp_path / "no2"))
    assert gone.code == 3
    assert "MISSING" in gone.out


def test_config(tmp_path: Path) -> None:
    example = run(tmp_path, "config", "example")
    assert example.code == 0
    (tmp_path / "mem0audit.toml").write_text(example.out)
    assert run(tmp_path, "config", "validate", "mem0audit.toml").code == 0
    (tmp_path / "mem0audit.toml").write_text('histry = "x"\n')
    bad = run(tmp_path, "config", "validate", "mem0audit.toml")
    assert bad.code == 2
    assert "histry" in bad.out
    assert run(tmp_path, "audit").code == 2
    (tmp_path / "mem0audit.toml").unlink()
    given = {
        "vector_store": {"provider": "qdrant", "config": {"path": "/x"}},
        "llm": {"api_key": "sk-SECRET"},
    }
    (tmp_path / "mem0.json").write_text(json.dumps(given))
    shown = run(tmp_path, "config", "show", "--config", "mem0.json")
    assert shown.code == 0
    assert "/x" in shown.out
    assert "sk-SECRET" not in shown.out
    machine = run(tmp_path, "config", "show", "--config", "mem0.json", "--format", "json").out
    assert "sk-SECRET" not in machine
    assert check(machine, "config")["install"]["vectors"]["value"] == "/x"


def test_explain_json(tmp_path: Path) -> None:
    document = check(run(tmp_path, "explain", "D3", "--format", "json").out, "explain")
    assert document["rules"][0]["code"] == "D301"


# --- -o -----------------------------------------------------------------------------------------


def test_output_goes_to_a_private_file_whole(tmp_path: Path, clean: StoreCopy) -> None:
    target = tmp_path / "report.json"
    ran = run(tmp_path, "audit", *flags(clean), "--format", "json", "-o", "report.json")
    assert ran.out == ""
    check(target.read_text(), "report")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(tmp_path).count("report.json") == 1
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".report")]
    coloured = run(tmp_path, "audit", *flags(clean), "-o", "report.txt", env={"FORCE_COLOR": "1"})
    assert coloured.out == ""
    assert "\x1b" not in (tmp_path / "report.txt").read_text()


def test_output_is_never_written_into_the_install(tmp_path: Path, clean: StoreCopy) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(clean.history)
    before = fingerprint(clean.folder)
    targets = [
        clean.history,
        Path(f"{clean.history}-journal"),
        clean.vectors / "report.json",
        clean.vectors / "collection" / "mem0" / "storage.sqlite",
        link,
    ]
    for command in READING:
        for target in targets if command == "audit" else targets[:1]:
            words = [an_id(clean)] if command == "show" else []
            ran = run(tmp_path, command, *words, *flags(clean), "-o", str(target))
            assert ran.code == 4, (command, target, ran)
            assert ran.err.startswith(f"mem0audit: -o {target}: "), ran.err
    assert fingerprint(clean.folder) == before


# --- demo ---------------------------------------------------------------------------------------


def test_demo_builds_audits_and_leaves_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    ran = run(tmp_path, "demo", env={"TMPDIR": str(temporary)})
    assert ran.code == 0, ran
    assert "4 memories are gone" in ran.out
    assert "Planted:" in ran.err
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / ".mem0").exists()
