"""The table of rules, how rules are named, and the pages: whole, wrapped, and true in what they print."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mem0audit.core.catalogue import CATALOGUE, Rule, closest, find, matches, page_lines, unknown_selectors
from tests.builders import MemoryBuilder

TABLE = """
B901 no-snapshot low
B902 old-snapshot medium
B903 damaged-snapshot high
B904 unsettled-snapshot low
B905 snapshot-with-erased high
B906 interrupted-operation high
B907 unpaired-backup medium
C601 duplicate-memory medium
C602 empty-memory medium
C603 foreign-payload medium
C604 repeated-text medium
D301 resurrected-memory high
D302 lost-memory critical
D303 unlogged-memory medium
D304 text-differs high
D305 stale-hash low
D306 time-differs low
D307 owner-differs high
D308 unreachable-owner high
D309 no-owner medium
D310 changed-outside-mem0 high
D311 rolled-back critical
E501 orphan-entity high
E502 dangling-link medium
E503 foreign-link high
E504 oversized-scope medium
H401 broken-chain medium
H402 event-without-add low
H403 event-after-delete medium
H404 unknown-event low
H405 log-younger medium
H406 mixed-offsets info
H407 locked-log-gap low
H408 log-rewritten high
I201 not-a-history high
I202 damaged-database critical
I203 hot-journal high
I204 old-history-schema low
I205 stranded-history high
I206 damaged-meta high
I207 unreadable-point high
I208 unsafe-pickle critical
I209 duplicate-rows high
I210 wrong-vector high
I211 dimension-mismatch high
I212 old-storage-format critical
I213 no-keyword-slot info
I214 slow-embedded-store info
I215 journal-mode info
L101 volatile-filesystem critical
L102 cleaned-directory high
L103 container-layer high
L104 private-tmp high
L105 default-path low
L106 store-missing critical
L107 several-stores medium
L108 shared-store high
L109 network-filesystem medium
L110 wiped-at-start critical
L111 readable-by-others high
L112 disk-nearly-full medium
L113 split-lifetimes high
Q951 collection-missing critical
Q952 collection-unhealthy high
Q953 read-only-or-strict medium
Q954 no-owner-index low
Q955 version-gap medium
S801 secret-in-store critical
S802 not-from-user low
S803 instruction-like info
S804 deleted-text-kept info
S805 telemetry-store info
T701 expired-memory medium
T702 superseded-memory low
T703 unconfirmed-memory info
T704 unused-memory info
T705 broken-supersession high
T706 wide-gap medium
"""

SNAPSHOT_COMMANDS = {"create", "list", "show", "verify", "restore", "keep", "expire", "import", "diff"}
COMMANDS = {
    *(
        "audit",
        "status",
        "explain",
        "show",
        "users",
        "log",
        "as-of",
        "new",
        "relocate",
        "recover",
        "repair",
        "prune",
    ),
    *("config", "demo", "snapshot", "schedule", "facts", "ledger", "review"),
    *("delete", "residue", "export"),
}
CODES = list(CATALOGUE)


def test_the_table_of_rules() -> None:
    """A code is never renumbered, reused or renamed; a severity changes on purpose only."""
    listed = [f"{r.code} {r.name} {r.severity.label}" for r in CATALOGUE.values()]
    assert listed == TABLE.split("\n")[1:-1]
    assert all(code == rule.code for code, rule in CATALOGUE.items())
    assert len({rule.name for rule in CATALOGUE.values()}) == len(CATALOGUE)


# --- how rules are named ---


@pytest.mark.parametrize(
    ("code", "selectors", "meant"),
    [
        ("D301", ["D301"], True),
        ("D301", ["d301"], True),
        ("D301", ["D"], True),
        ("D301", ["d3"], True),
        ("D301", [" D30 "], True),
        ("D301", ["H", "D"], True),
        ("D301", ["resurrected-memory"], True),
        ("D301", ["Resurrected-Memory"], True),
        ("D301", ["resurrected"], False),
        ("D301", ["D3010"], False),
        ("D301", ["301"], False),
        ("D301", ["I20"], False),
        ("D301", [""], False),
        ("D301", [" "], False),
        ("D301", [], False),
    ],
)
def test_matches(code: str, selectors: list[str], meant: bool) -> None:
    assert matches(code, selectors) is meant


def test_find_gives_rules_in_order() -> None:
    assert [rule.code for rule in find("I20")] == [f"I20{n}" for n in range(1, 10)]
    assert [rule.code for rule in find("lost-memory")] == ["D302"]
    assert find("X") == ()


def test_unknown_selectors_keep_their_spelling() -> None:
    assert unknown_selectors(["D", "l101", "Zz", "lost-memory", "D399", ""]) == ("Zz", "D399", "")


@pytest.mark.parametrize(
    ("selector", "first"),
    [
        ("D301x", "D301"),
        ("resurected-memory", "resurrected-memory"),
        ("lost_memory", "lost-memory"),
        ("hot-jurnal", "hot-journal"),
    ],
)
def test_closest(selector: str, first: str) -> None:
    assert closest(selector)[0] == first


def test_closest_may_have_nothing_to_say() -> None:
    assert closest("§§§§§§§§") == ()


# --- the pages ---


def texts(rule: Rule) -> Iterator[str]:
    yield from (rule.summary, rule.comes_about, rule.looks_like, rule.to_do)
    yield from (text for text in (rule.not_this, rule.threshold) if text is not None)


def command_lines(rule: Rule) -> list[str]:
    """The commands of a page, each in one piece: a backslash goes on with the next line."""
    lines = [line[4:] for text in texts(rule) for line in text.splitlines() if line.startswith("    ")]
    return "\n".join(lines).replace("\\\n", "").splitlines()


@pytest.mark.parametrize("code", CODES)
def test_page_is_whole(code: str) -> None:
    rule = CATALOGUE[code]
    for text in texts(rule):
        assert text.strip() == text.rstrip() or text.startswith("    ")
        assert len(text) >= 15
        for paragraph in text.splitlines():
            assert paragraph.strip()
            assert paragraph.isprintable()
    assert "\n" not in rule.summary
    assert rule.summary.endswith((".", "?"))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_page_fits(code: str, width: int) -> None:
    rule = CATALOGUE[code]
    lines = page_lines(rule, width)
    assert lines[0] == f"{code} {rule.name} ({rule.severity.label})"
    for line in lines:
        assert len(line) <= (
            100 if line.startswith("    ") and len(line) - len(line.lstrip()) < 21 else width
        )
        assert line == line.rstrip()
    # Wrapping loses no word.
    words = " ".join(texts(rule)).split()
    assert [w for w in words if w not in " ".join(lines).split()] == []


@pytest.mark.parametrize("code", CODES)
def test_page_says_how_it_comes_about_and_what_to_do(code: str) -> None:
    lines = page_lines(CATALOGUE[code])
    for title in ("How it comes about", "What it looks like", "What to do"):
        assert sum(line == title or line.startswith(f"{title}  ") for line in lines) == 1


@pytest.mark.parametrize("code", CODES)
def test_printed_commands_exist(code: str) -> None:
    rule = CATALOGUE[code]
    named = [line.removeprefix("sudo ") for line in command_lines(rule)]
    named = [line for line in named if line.startswith("mem0audit ")]
    named += re.findall(r"`(mem0audit [^`]*)`", "\n".join(texts(rule)))
    for line in named:
        words = line.split()
        assert words[1] in COMMANDS, line
        if words[1] == "snapshot":
            assert words[2] in SNAPSHOT_COMMANDS, line
        if words[1] == "explain":
            assert words[2] in CATALOGUE, line
        if "--select" in words:
            assert unknown_selectors(words[words.index("--select") + 1].split(",")) == (), line


@pytest.mark.parametrize("code", CODES)
def test_other_rules_that_a_page_names_exist(code: str) -> None:
    for text in texts(CATALOGUE[code]):
        assert set(re.findall(r"\b[BCDEHILQST]\d{3}\b", text)) <= set(CATALOGUE)


@pytest.mark.parametrize("code", CODES)
def test_no_page_deletes_a_lock_or_copies_a_live_file(code: str) -> None:
    for text in texts(CATALOGUE[code]):
        assert ".lock" not in text
    for line in command_lines(CATALOGUE[code]):
        assert not re.match(r"(docker exec \S+ )?cp .*\.(sqlite|db)\b", line), line


@pytest.mark.parametrize("code", ["L101", "L103", "L104", "L110"])
def test_taking_the_pair_out_comes_before_stopping(code: str) -> None:
    """Where stopping the agent deletes its store, a copy is out before anything stops or restarts."""
    lines = command_lines(CATALOGUE[code])
    copies = [i for i, line in enumerate(lines) if "VACUUM INTO" in line]
    stops = [
        i for i, line in enumerate(lines) if re.match(r"(systemctl|docker) (stop|restart|rm)|kill ", line)
    ]
    assert copies
    assert not stops or min(stops) > max(copies)
    before = CATALOGUE[code].to_do.split("VACUUM INTO")[0].lower()
    for sentence in re.split(r"(?<=[.:])\s", before):
        if re.search(r"\b(stop|restart)\b", sentence):
            assert "do not" in sentence or "before" in sentence, sentence


@pytest.mark.parametrize(
    ("code", "numbers"),
    [
        ("C601", ["2 to 9"]),
        ("C604", ["10 or more"]),
        ("D302", ["10"]),
        ("E502", ["one minute"]),
        ("E504", ["10,000"]),
        ("H405", ["10", "90 %"]),
        ("H407", ["3"]),
        ("I214", ["20,000"]),
        ("L112", ["1.1"]),
    ],
)
def test_thresholds_are_stated(code: str, numbers: list[str]) -> None:
    threshold = CATALOGUE[code].threshold
    assert threshold is not None
    for number in numbers:
        assert number in threshold


# --- printed lines, run ---


def shell(line: str, folder: Path) -> str:
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def line_with(code: str, word: str) -> str:
    (line,) = [line for line in command_lines(CATALOGUE[code]) if word in line]
    return line


def store(path: Path, rows: int) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        db.executemany("INSERT INTO points VALUES (?, ?)", ((f"id{n}", b"x" * 3000) for n in range(rows)))


def test_the_copy_with_python(tmp_path: Path) -> None:
    store(tmp_path / "source.sqlite", 50)
    line = line_with("L101", "SOURCE TARGET").replace("SOURCE TARGET", "source.sqlite target.sqlite")
    shell(line, tmp_path)
    with closing(sqlite3.connect(tmp_path / "target.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM points").fetchone() == (50,)


def test_reading_out_of_a_damaged_file(tmp_path: Path) -> None:
    store(tmp_path / "storage.sqlite", 300)
    with (tmp_path / "storage.sqlite").open("r+b") as file:
        file.seek(4096 * 100)
        file.write(b"\xff" * 4096)
    with closing(sqlite3.connect(tmp_path / "storage.sqlite")) as db, pytest.raises(sqlite3.DatabaseError):
        db.execute("SELECT count(length(id) + length(point)) FROM points").fetchone()
    shell(line_with("I202", ".dump"), tmp_path)
    verdict, count = shell(line_with("I202", "rescued.sqlite 'PRAGMA"), tmp_path).split()
    assert verdict == "ok"
    assert 290 <= int(count) < 300


@pytest.mark.root
def test_the_copy_out_of_a_private_tmp(tmp_path: Path) -> None:
    """The lines of L104 for doing it by hand, the inner ones typed into the shell that the first one opens."""
    private, backup = tmp_path / "private", tmp_path / "backup"
    private.mkdir()
    agent = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs tmpfs {private} && echo ready && exec sleep 60"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        inside = Path(f"/proc/{agent.pid}/root{private}/qdrant/collection/mem0")
        inside.mkdir(parents=True)
        store(tmp_path / "made.sqlite", 40)
        shutil.copy(tmp_path / "made.sqlite", inside / "storage.sqlite")
        (inside.parent.parent / "meta.json").write_text("{}")
        store(tmp_path / "history.db", 3)

        page = "\n".join(command_lines(CATALOGUE["L104"]))
        for printed, real in (
            ("/tmp/", f"{private}/"),
            ("~/.mem0/history.db", str(tmp_path / "history.db")),
            ("/srv/backup/mem0", str(backup)),
            ("PID", str(agent.pid)),
        ):
            page = page.replace(printed, real)
        by_hand = page.splitlines()
        enter, *lines = by_hand[by_hand.index(f"nsenter --target {agent.pid} --mount") :]
        leave = lines.index("exit")
        subprocess.run(enter.split(), input="\n".join(lines[: leave + 1]), text=True, check=True)
        for line in [line for line in lines[leave + 1 :] if not line.startswith(('"', " ", "sudo "))]:
            shell(line, tmp_path)
        assert not (inside.parent.parent.parent / "copy").exists()
    finally:
        agent.kill()
        agent.communicate()
    assert (backup / "qdrant/meta.json").read_text() == "{}"
    for file, rows in ((backup / "qdrant/collection/mem0/storage.sqlite", 40), (backup / "history.db", 3)):
        with closing(sqlite3.connect(file)) as db:
            assert db.execute("SELECT count(*) FROM points").fetchone() == (rows,)


def test_the_calls_that_clean_entities(tmp_path: Path) -> None:
    """What E503 prints for the agent does it, and leaves the rest of the entity as it was."""

    def run(code: str, **names: str) -> None:
        lines = command_lines(CATALOGUE[code])
        call = "\n".join(line for line in lines if not line.startswith("mem0audit "))
        for name, value in names.items():
            call = call.replace(name, value)
        exec(call, {"memory": install.memory})

    with MemoryBuilder(tmp_path) as install:
        gone = install.add("she moved to Quito", user_id="alice")
        kept = install.add("her sister lives in Quito", user_id="alice")
        orphan = install.plant_entity("Cuenca", [gone], user_id="alice")
        dangling = install.plant_entity("Quito", [gone, kept], user_id="alice")
        install.reopen()
        install.delete(gone)
        before = install.points("mem0_entities")
        assert set(before) == {orphan, dangling}
        run("E503", ENTITY_ID=dangling, OTHER_IDS=repr(kept))
        after = install.points("mem0_entities")
    assert after == {**before, dangling: {**before[dangling], "linked_memory_ids": [kept]}}
