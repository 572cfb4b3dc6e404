"""How a rule speaks: a finding with the severity its catalogue entry gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.model import Evidence, Finding, NotChecked
from mem0audit.core.reading import Reading

Verdict = Finding | NotChecked
RuleFunction = Callable[[Reading], Iterable[Verdict]]


def finding(
    code: str,
    evidence: Evidence,
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
        subject=subject,
        evidence=evidence,
        help=help or f"mem0audit explain {code}",
    )
