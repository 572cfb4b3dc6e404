"""Pages of group B: snapshots."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule

RULES = (
    Rule(
        code="B901",
        name="no-snapshot",
        severity=Severity.LOW,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="B902",
        name="old-snapshot",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="B903",
        name="damaged-snapshot",
        severity=Severity.HIGH,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="B904",
        name="unsettled-snapshot",
        severity=Severity.LOW,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="B905",
        name="snapshot-with-erased",
        severity=Severity.HIGH,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="B906",
        name="interrupted-operation",
        severity=Severity.HIGH,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="B907",
        name="unpaired-backup",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
)
