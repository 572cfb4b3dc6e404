"""How a rule speaks: a finding with the severity its catalogue entry gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.model import Finding, NotChecked, Severity
from mem0audit.core.points import clipped
from mem0audit.core.reading import Reading
from mem0audit.core.seal import SealCheck

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


def beside_the_seal(code: str) -> Callable[[Callable[[Reading, SealCheck], Iterable[Verdict]]], RuleFunction]:
    """A rule that compares with the last seal; where there is none or a store was not read whole it says so itself."""

    def rule_of(judge: Callable[[Reading, SealCheck], Iterable[Verdict]]) -> RuleFunction:
        @wraps(judge)
        def rule(r: Reading) -> Iterable[Verdict]:
            if isinstance(r.last_seal, NotChecked):
                return [NotChecked(code, r.last_seal.why, r.last_seal.gap)]
            if r.seal_check is not None:
                return judge(r, r.seal_check)
            missing = "the log" if not r.history_readable else "the vector store"
            return [NotChecked(code, f"{missing} could not be read whole")]

        return rule

    return rule_of


def finding(
    code: str,
    evidence: Mapping[str, Any],
    *,
    memory_id: str | None = None,
    path: str | None = None,
    subject: str | None = None,
    help: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    """A finding of rule `code`, as severe as its catalogue entry says unless told otherwise.

    Without `help` of its own it points to the repair, or to the rule's page.
    """
    way = f"mem0audit repair {code} --dry-run" if CATALOGUE[code].repaired else f"mem0audit explain {code}"
    return Finding(
        code=code,
        severity=CATALOGUE[code].severity if severity is None else severity,
        memory_id=memory_id,
        path=path,
        subject=None if subject is None else clipped(subject, 2 * LONGEST),
        evidence={key: _shown(value) for key, value in evidence.items()},
        help=help or way,
    )
