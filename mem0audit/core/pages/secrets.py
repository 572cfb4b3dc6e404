"""Pages of group S: secrets and provenance."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule

RULES = (
    Rule(
        code="S801",
        name="secret-in-store",
        severity=Severity.CRITICAL,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="S802",
        name="not-from-user",
        severity=Severity.LOW,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="S803",
        name="instruction-like",
        severity=Severity.INFO,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
        planned=True,
    ),
    Rule(
        code="S804",
        name="deleted-text-kept",
        severity=Severity.INFO,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
    Rule(
        code="S805",
        name="telemetry-store",
        severity=Severity.INFO,
        summary="",
        comes_about="",
        looks_like="",
        to_do="",
    ),
)
