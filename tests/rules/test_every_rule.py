"""Every rule has a function, a page, and a test that plants its fault."""

from __future__ import annotations

import re
from pathlib import Path

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.rules import RULES

HERE = Path(__file__).parent


def test_every_rule_has_a_function() -> None:
    assert set(CATALOGUE) == set(RULES)


def test_every_rule_has_a_test_of_its_name() -> None:
    names = [
        name
        for file in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    ]
    without = [code for code in RULES if not any(code.lower() in name for name in names)]
    assert not without


def test_a_function_says_which_rule_it_is() -> None:
    assert not [code for code, rule in RULES.items() if not (rule.__doc__ or "").startswith(f"{code}: ")]
