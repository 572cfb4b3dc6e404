"""Every rule by its code, and how people name rules: by code, the beginning of one, or name."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from mem0audit.core.pages import (
    Rule,
    content,
    divergence,
    entities,
    log,
    places,
    reading,
    secrets,
    servers,
    snapshots,
    validity,
)

__all__ = ["CATALOGUE", "Rule", "closest", "find", "matches", "page_lines", "unknown_selectors"]

_GROUPS = (places, reading, divergence, log, entities, content, validity, secrets, snapshots, servers)

CATALOGUE: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for rule in sorted((r for g in _GROUPS for r in g.RULES), key=lambda rule: rule.code)}
)
"""All rules, ordered by code. A code is never renumbered or used again."""


def matches(code: str, selectors: Iterable[str]) -> bool:
    """Whether a rule's code is meant by one of the selectors: a code, or the beginning of one ("D",
    "I20"), in any case; or a rule's whole name.
    """
    rule = CATALOGUE.get(code)
    for selector in selectors:
        wanted = selector.strip()
        if wanted and (code.startswith(wanted.upper()) or (rule is not None and rule.name == wanted.lower())):
            return True
    return False


def find(selector: str) -> tuple[Rule, ...]:
    """The rules a selector means, ordered by code; () if none. As `matches`."""
    return tuple(rule for code, rule in CATALOGUE.items() if matches(code, (selector,)))


def unknown_selectors(selectors: Iterable[str]) -> tuple[str, ...]:
    """The selectors that mean no rule, as they were given."""
    return tuple(selector for selector in selectors if not find(selector))


def closest(selector: str, count: int = 3) -> tuple[str, ...]:
    """Codes and names that look most like a selector that means no rule, the most alike first."""
    import difflib  # only once a word is wrong

    wanted = selector.strip()
    codes = difflib.get_close_matches(wanted.upper(), list(CATALOGUE), count, 0.7)
    by_name = {rule.name: rule.code for rule in CATALOGUE.values()}
    names = difflib.get_close_matches(wanted.lower(), list(by_name), count, 0.6)
    return tuple(dict.fromkeys((*codes, *names)))[:count]


_SECTIONS = (
    ("How it comes about", "comes_about"),
    ("What it looks like", "looks_like"),
    ("What to do", "to_do"),
    ("Not this rule", "not_this"),
    ("Threshold", "threshold"),
)
_COLUMN = 21
_NO_BREAK = "\u00a0"


def page_lines(rule: Rule, width: int = 100) -> tuple[str, ...]:
    """The page of a rule as plain lines of at most `width` columns (a command may be longer).

    Commands stand on lines of their own, whole, so that they can be copied.
    """
    lines = [f"{rule.code} {rule.name} ({rule.severity.label})", *textwrap.wrap(rule.summary, width)]
    for title, attribute in _SECTIONS:
        paragraphs = (getattr(rule, attribute) or "").splitlines()
        # Beside commands the text takes the whole width, else it stands in a column beside its title.
        wide = any(paragraph.startswith("    ") for paragraph in paragraphs)
        if wide:
            lines.append(title)
        indent = 2 if wide else _COLUMN
        for number, paragraph in enumerate(paragraphs):
            if paragraph.startswith("    "):
                lines.append(paragraph)
                continue
            first = title if number == 0 and not wide else ""
            wrapped = textwrap.wrap(
                # What stands in backticks is to be copied: it stays on one line.
                re.sub("`[^`]*`", lambda quoted: quoted[0].replace(" ", _NO_BREAK), paragraph),
                width,
                initial_indent=f"{first:<{indent}}",
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines += (line.replace(_NO_BREAK, " ") for line in wrapped)
    return tuple(lines)
