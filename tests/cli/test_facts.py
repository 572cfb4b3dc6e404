"""`facts` as typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Ran, call
from tests.report.test_json import check


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def facts(home: Path, *words: str) -> Ran:
    return call(home, "facts", *words)


def test_a_life_of_an_attribute(home: Path) -> None:
    ran = facts(
        home, "remember", "alice", "employer", "Contoso", "--from", "2026-01-01", "--source", "her mail"
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "alice employer: Contoso holds since 2026-01-01 00:00:00Z.\n"
    assert (
        facts(home, "remember", "alice", "home", "-7d", "--from", "2026-01-01").code == 2
    )  # a flag, to click
    assert facts(home, "remember", "alice", "home", "--from", "2026-01-01", "--", "-7d").code == 0
    assert facts(home, "current", "alice", "employer").out == "Contoso\n"
    assert facts(home, "current", "alice").out == "employer: Contoso\nhome: -7d\n"
    planned = facts(home, "remember", "alice", "employer", "Fabrikam", "--from", "2099-10-01")
    assert planned.out == (
        "alice employer: Fabrikam is planned, and will hold from 2099-10-01 00:00:00Z.\n"
        "Until then Contoso, which ends there.\n"
    )
    assert facts(home, "current", "alice", "employer").out == "Contoso\n"
    for when, value in (
        ("2099-09-30T23:59:59", "Contoso"),
        ("2099-10-01T00:00:00", "Fabrikam"),
        ("2099-09-30", "Contoso"),
        ("-7d", "Contoso"),
    ):
        assert facts(home, "as-of", when, "alice", "employer").out == f"{value}\n"
    assert facts(home, "as-of", "2026-02-01").out == "alice employer: Contoso\nalice home: -7d\n"
    told = facts(home, "history", "alice", "employer").out.splitlines()
    assert told[0] == "alice employer"
    assert " ".join(told[1].split()) == "from 2026-01-01 00:00:00Z to 2099-10-01 00:00:00Z Contoso (her mail)"
    assert " ".join(told[2].split()) == "planned from 2099-10-01 00:00:00Z Fabrikam"


def test_no_value_prints_nothing_and_is_1(home: Path) -> None:
    for words in (("current", "alice"), ("current", "alice", "home"), ("as-of", "now"), ("history",)):
        ran = facts(home, *words)
        assert (ran.code, ran.out, ran.err) == (1, "", "")
    facts(home, "remember", "alice", "home", "Oslo", "--from", "2026-01-01")
    assert facts(home, "revoke", "alice", "home").code == 0
    for words in (("current", "alice"), ("current", "alice", "home"), ("as-of", "2025-12-31")):
        ran = facts(home, *words)
        assert (ran.code, ran.out, ran.err) == (1, "", "")
    assert facts(home, "history").code == 0


def test_revoking_beside_a_planned_value_says_what_it_will_do_and_asks(home: Path) -> None:
    facts(home, "remember", "api", "version", "1", "--from", "2026-01-01")
    facts(home, "remember", "api", "version", "2", "--from", "2099-01-01")
    ran = facts(home, "revoke", "api", "version", "--at", "2026-02-01")
    assert ran.code == 4
    assert "The planned value stays, and begins then" in ran.err
    assert "not confirmed" in ran.err
    assert facts(home, "as-of", "2026-03-01").out == "api version: 1\n"
    ran = facts(home, "revoke", "api", "version", "--at", "2026-02-01", "--yes")
    assert ran.code == 0
    assert "Planned still: 2 from 2099-01-01 00:00:00Z." in ran.out
    assert facts(home, "current", "api").code == 1
    assert facts(home, "as-of", "2099-01-01T00:00:00").out == "api version: 2\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("remember", "api", "version", "2", "--from", "2026-01-01"), 4, "does not come after the last one"),
        (("revoke", "api", "version", "--at", "2026-01-01"), 4, "not after the start"),
        (("revoke", "api", "owner"), 4, "no value is known"),
        (("remember", "api", "version", "2", "--from", "soon"), 2, "no time"),
        (("remember", " ", "version", "2"), 2, "is empty"),
        (("as-of", "later"), 2, "no time"),
    ],
)
def test_what_is_refused(home: Path, words: tuple[str, ...], code: int, said: str) -> None:
    facts(home, "remember", "api", "version", "1", "--from", "2026-01-01")
    ran = facts(home, *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert facts(home, "history").out.count("from ") == 1


def test_for_machines(home: Path) -> None:
    json = ("--format", "json")
    done = facts(home, "remember", "api", "version", "1", "--from", "2026-01-01", "--memory", "m1", *json)
    assert check(done.out, "facts-change")["fact"]["memory_id"] == "m1"
    done = facts(home, "remember", "api", "version", "2", "--from", "2026-02-01", *json)
    assert check(done.out, "facts-change")["closed"]["valid_to_s"] == 1_769_904_000
    found = check(facts(home, "current", "api", *json).out, "facts")
    assert [(f["value"], f["valid_to"]) for f in found["facts"]] == [("2", None)]
    assert len(check(facts(home, "history", *json).out, "facts")["facts"]) == 2
    ended = check(facts(home, "revoke", "api", "version", *json).out, "facts-change")
    assert ended["fact"]["valid_to"] is not None
    assert check(facts(home, "current", "api", *json).out, "facts")["facts"] == []


def test_values_cannot_forge_a_line(home: Path) -> None:
    facts(home, "remember", "a", "b", "x\nc: forged\x1b[2J", "--from", "2026-01-01")
    assert facts(home, "current", "a").out == "b: x\\nc: forged\\x1b[2J\n"


def test_what_is_said_fits_and_a_memory_nobody_knows_is_told(home: Path) -> None:
    def said(*words: str) -> list[str]:
        ran = call(home, "facts", *words, env={"COLUMNS": "60"})
        assert ran.code == 0
        lines = (ran.err + ran.out).splitlines()
        assert max(map(len, lines)) <= 60
        return " ".join(line.strip() for line in lines).split(". ")

    one, two = (f"{n}bc6f0a3-3a95-44f4-9941-9d268e54771{n}" for n in range(2))
    first = said("remember", "api", "owner", "ann " * 20, "--from", "2026-01-01", "--memory", one.upper())
    assert first[-1] == f"The ledger does not know {one} yet."
    planned = said("remember", "api", "owner", "ben", "--from", "2099-01-01", "--memory", two)
    assert planned[-1] == f"Memory {one} is not marked superseded: the ledger does not know {one} yet."
    assert "from 2026-01-01 00:00:00Z to 2099-01-01 00:00:00Z ann ann" in ". ".join(said("history"))
    ended = said("revoke", "api", "owner", "--yes")
    assert ended[1] == "The planned value stays, and begins then; between the two there is none"
    assert ended[-1] == "Planned still: ben from 2099-01-01 00:00:00Z."
