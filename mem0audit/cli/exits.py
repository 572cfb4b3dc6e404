"""What the exit codes mean, and which one an audit ends with."""

from __future__ import annotations

from collections.abc import Iterable

from mem0audit.core.model import Finding, NotChecked, Severity

OK = 0
FINDINGS = 1
USAGE = 2
NOT_READ = 3
REFUSED = 4
FAILED = 5
BUG = 70
INTERRUPTED = 130

_FIRST = (BUG, USAGE, REFUSED, FAILED, FINDINGS, NOT_READ)


def first_of(codes: Iterable[int]) -> int:
    """The code that wins where several apply; 0 where none does."""
    given = set(codes)
    return next((code for code in _FIRST if code in given), OK)


def of_audit(
    findings: Iterable[Finding],
    not_checked: Iterable[NotChecked],
    fail_on: Severity | None,
    *,
    nothing_found: bool,
) -> int:
    """1 with a finding at or above `fail_on` (None: never), else 3 with a gap or without an install."""
    codes = []
    if fail_on is not None and any(f.severity >= fail_on for f in findings):
        codes.append(FINDINGS)
    if nothing_found or any(n.gap for n in not_checked):
        codes.append(NOT_READ)
    return first_of(codes)
