"""Pages of group T: time."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule

RULES = (
    Rule(
        code="T701",
        name="expired-memory",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="T702",
        name="superseded-memory",
        severity=Severity.LOW,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="T703",
        name="unconfirmed-memory",
        severity=Severity.INFO,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="T704",
        name="unused-memory",
        severity=Severity.INFO,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="T705",
        name="broken-supersession",
        severity=Severity.HIGH,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="T706",
        name="wide-gap",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
)
