from __future__ import annotations

import pytest

from mem0audit.core.model import Agent, Cleaning
from mem0audit.report import words
from tests.report.installs import HISTORY, HOLDER, place, private_tmp


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (4_100_000, "4.1 MB"),
        (99_950_000, "100 MB"),
        (999_960_000, "1.0 GB"),
        (1_600_000_000, "1.6 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes(count: int, wanted: str) -> None:
    assert words.size(count) == wanted


def test_times_are_utc_where_they_say_their_offset() -> None:
    assert words.stamp("2026-10-14T01:12:09.120000-08:00") == "2026-10-14 09:12:09Z"
    assert words.stamp("2026-10-14T09:12:09+00:00") == words.stamp("2026-10-14 01:12:09-0800")
    assert words.stamp("2026-10-14 01:12:09") == "2026-10-14 01:12:09"  # says no offset: as it is
    assert words.stamp("yesterday") == "yesterday"


def test_evidence_values() -> None:
    say = words.evidence_value
    assert say("rows", 12406) == "12,406"
    assert say("row", 8812) == "8812"
    assert say("pid", 4711) == "4711"
    assert say("size", 1_600_000_000) == "1.6 GB"
    assert say("folder", None) == "none"
    assert say("settled", False) == "no"
    assert say("share", 0.25) == "0.25"


@pytest.mark.parametrize(
    ("changes", "wanted", "lasts"),
    [
        ({}, "ext4, durable", True),
        ({"filesystem": "tmpfs", "volatile": True}, "tmpfs, GONE AT REBOOT", False),
        ({"filesystem": "overlay", "container_layer": True}, "overlay, GONE WITH THE CONTAINER", False),
        ({"exists": False}, "MISSING", False),
        ({"problem": "permission denied"}, "not readable: permission denied", None),
        ({"cleaned": Cleaning("f", "D /x", "at boot")}, "ext4, EMPTIED AT BOOT", False),
        ({"cleaned": Cleaning("f", "d /x 10d", "10d")}, "ext4, EMPTIED AFTER 10d", False),
        ({"volatile": None}, "ext4, not known whether it lasts", None),
        ({"container_layer": None}, "ext4, not known whether it lasts", None),
        ({"filesystem": "nfs4", "network": True}, "nfs4, network", True),
    ],
)
def test_durable_is_said_only_of_what_was_looked_at(
    changes: dict[str, object], wanted: str, lasts: bool | None
) -> None:
    assert words.ground(place(HISTORY, **changes)) == (wanted, lasts)


def test_a_private_tmp_is_not_durable() -> None:
    report = private_tmp()
    assert words.ground(report.places[1], report.holders)[1] is False
    assert words.ground(report.places[0], report.holders)[1] is True


def test_an_agent_that_cannot_be_seen_is_not_said_to_be_absent() -> None:
    agent = Agent(None, None, None, "x")
    assert words.agent_words(agent, ())[1] == "no process has it open"
    assert words.agent_words(agent, (), seen=False)[1] == "not visible whether it runs"
    assert words.agent_words(agent, (HOLDER,))[0] == ["pid 812 agent.service", "mem0 version not known"]
