"""Pages of group H: the log itself."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule

RULES = (
    Rule(
        code="H401",
        name="broken-chain",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="H402",
        name="event-without-add",
        severity=Severity.LOW,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="H403",
        name="event-after-delete",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="H404",
        name="unknown-event",
        severity=Severity.LOW,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="H405",
        name="log-younger",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="H406",
        name="mixed-offsets",
        severity=Severity.INFO,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="H407",
        name="locked-log-gap",
        severity=Severity.LOW,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="H408",
        name="log-rewritten",
        severity=Severity.HIGH,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
)
