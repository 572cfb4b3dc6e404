"""Pages of group Q: Qdrant servers."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule

RULES = (
    Rule(
        code="Q951",
        name="collection-missing",
        severity=Severity.CRITICAL,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="Q952",
        name="collection-unhealthy",
        severity=Severity.HIGH,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="Q953",
        name="read-only-or-strict",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="Q954",
        name="no-owner-index",
        severity=Severity.LOW,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="Q955",
        name="version-gap",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
)
