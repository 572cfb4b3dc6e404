"""Pages of group E: entities."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule

RULES = (
    Rule(
        code="E501",
        name="orphan-entity",
        severity=Severity.HIGH,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="E502",
        name="dangling-link",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="E503",
        name="foreign-link",
        severity=Severity.HIGH,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="E504",
        name="oversized-scope",
        severity=Severity.MEDIUM,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
)
