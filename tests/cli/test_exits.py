from __future__ import annotations

from itertools import combinations

import pytest

from mem0audit.cli import exits
from mem0audit.cli.audit import FailOn
from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.model import NotChecked, Severity
from tests.report.installs import finding

ORDER = (70, 2, 4, 5, 1, 3)


def test_of_several_codes_the_first_of_the_table_wins() -> None:
    for first, second in combinations(ORDER, 2):
        assert exits.first_of([second, 0, first]) == first
    assert exits.first_of([]) == exits.first_of([0]) == 0


def test_errors_carry_the_codes_of_the_table() -> None:
    got = [error("x").exit_code for error in (UsageProblem, CouldNotRead, Refused, Failed)]
    assert got == [exits.USAGE, exits.NOT_READ, exits.REFUSED, exits.FAILED]


@pytest.mark.parametrize(
    ("fail_on", "codes", "gap", "nothing", "wanted"),
    [
        ("medium", (), False, False, 0),
        ("medium", ("L105",), False, False, 0),
        ("low", ("L105",), False, False, 1),
        ("medium", ("D303",), False, False, 1),
        ("critical", ("D301",), False, False, 0),
        ("never", ("D302",), False, False, 0),
        ("medium", (), True, False, 3),
        ("medium", ("D302",), True, False, 1),
        ("never", ("D302",), True, False, 3),
        ("medium", (), False, True, 3),
    ],
)
def test_an_audit_ends_with(
    fail_on: str, codes: tuple[str, ...], gap: bool, nothing: bool, wanted: int
) -> None:
    findings = [finding(code) for code in codes]
    items = [NotChecked("x", "y", gap=gap), NotChecked("L104", "not visible", gap=False)]
    assert exits.of_audit(findings, items, FailOn(fail_on).severity, nothing_found=nothing) == wanted


def test_every_severity_can_be_failed_on() -> None:
    assert {FailOn(s.label).severity for s in Severity} == set(Severity)
    assert FailOn.NEVER.severity is None
