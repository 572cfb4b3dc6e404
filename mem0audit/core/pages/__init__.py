"""The pages of the rules, one module a group. `catalogue` puts them together."""

from __future__ import annotations

from dataclasses import dataclass

from mem0audit.core.model import Severity


@dataclass(frozen=True)
class Rule:
    """A rule and its page, for somebody in trouble at night.

    `summary` is one sentence: the state on disk and what it means. The other texts are paragraphs, a
    line each; a line that begins with four spaces is a command and is shown as it stands. `threshold`
    states the numbers the rule goes by. `planned` rules have a page, and no function yet.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    comes_about: str
    looks_like: str
    to_do: str
    not_this: str | None = None
    threshold: str | None = None
    planned: bool = False
