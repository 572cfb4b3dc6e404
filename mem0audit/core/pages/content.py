"""Pages of group C: content."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule

RULES = (
    Rule(
        code="C601",
        name="duplicate-memory",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="C602",
        name="empty-memory",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="C603",
        name="foreign-payload",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="C604",
        name="repeated-text",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
)
