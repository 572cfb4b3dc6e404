"""How a rule speaks: a finding with the severity its catalogue entry gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.model import Finding, NotChecked
from mem0audit.core.points import clipped
from mem0audit.core.reading import Reading

Verdict = Finding | NotChecked
RuleFunction = Callable[[Reading], Iterable[Verdict]]


LONGEST = 200
"""Characters of one value of evidence: an owner or a time in a store can be anything, 10 MB of text too."""


def _shown(value: Any) -> str | int | float | bool | None:
    """A value from a store as evidence: what is no plain value by its Python spelling, what is long cut."""
    if type(value) is str and len(value) <= LONGEST:
        return value  # nearly all of them, and there can be a million findings
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int) and abs(value) < 1 << 63:
        return value
    return clipped(value, LONGEST)


def finding(
    code: str,
    evidence: Mapping[str, Any],
    *,
    memory_id: str | None = None,
    path: str | None = None,
    subject: str | None = None,
    help: str | None = None,
) -> Finding:
    """A finding of rule `code`; without `help` of its own it points to the rule's page."""
    return Finding(
        code=code,
        severity=CATALOGUE[code].severity,
        memory_id=memory_id,
        path=path,
        subject=None if subject is None else clipped(subject, 2 * LONGEST),
        evidence={key: _shown(value) for key, value in evidence.items()},
        help=help or f"mem0audit explain {code}",
    )
