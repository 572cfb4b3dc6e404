"""The rules, one module a group of findings. A new rule is one function here and one catalogue entry."""

from __future__ import annotations

from mem0audit.core.rules import (
    changelog,
    content,
    divergence,
    entities,
    files,
    places,
    servers,
    snapshots,
    validity,
)
from mem0audit.core.rules.verdict import RuleFunction

RULES: dict[str, RuleFunction] = {
    **places.RULES,
    **files.RULES,
    **divergence.RULES,
    **changelog.RULES,
    **entities.RULES,
    **content.RULES,
    **validity.RULES,
    **snapshots.RULES,
    **servers.RULES,
}
"""Code to function, in the order of the catalogue's groups."""
