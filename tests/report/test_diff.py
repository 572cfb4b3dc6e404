"""The screen of `snapshot diff`: linear in what differs, and nothing in it is taken for ours."""

from __future__ import annotations

import time

from mem0audit.core.diff import Diff, DiffRecord, Side, compare
from mem0audit.report.diff import diff_json, diff_text
from mem0audit.report.screen import Screen
from tests.report.test_json import check


def diff_of(a: dict[str, DiffRecord], b: dict[str, DiffRecord], collection: str = "mem0") -> Diff:
    scopes, totals = compare(*({(collection, i): r for i, r in side.items()} for side in (a, b)))
    side = Side("snapshot", "/x", 0.0, True, len(a))
    return Diff(side, side, scopes, totals["unchanged"], totals=dict(totals))


def test_many_scopes_take_no_longer_each() -> None:
    many = {str(n): DiffRecord(b"x", (f"user {n}", None, None), b"m") for n in range(20_000)}
    started = time.process_time()
    text = diff_text(diff_of({}, many), Screen())
    assert time.process_time() - started < 10
    assert text.count("\n  + ") == 20_000


def test_owners_and_ids_of_any_kind() -> None:
    odd = {
        "\x1b[31m\nuser bob  9 added": DiffRecord(b"x", ("a\nb", None, None), b"m"),
        "listed": DiffRecord(b"x", (["a", {"b": float("nan")}], 7, None), b"m"),
        "\ud800": DiffRecord(None, (None, None, None), b"m"),
    }
    text = diff_text(diff_of(odd, {}), Screen())
    assert "\x1b" not in text and "\nuser bob" not in text and "no owner" in text
    document = check(diff_json(diff_of(odd, {})), "diff")
    assert document["counts"] == {"added": 0, "changed": 0, "removed": 3, "unchanged": 0}
    assert diff_of(odd, dict(odd)).scopes == ()


def test_the_first_ten_of_a_kind_unless_verbose() -> None:
    several = {str(n): DiffRecord(b"x", ("alice", None, None), b"m") for n in range(25)}
    text = diff_text(diff_of(several, {}), Screen())
    assert "  - … 15 more" in text and "--verbose" in text
    assert diff_text(diff_of(several, {}), Screen(verbose=True)).count("\n  - ") == 25
