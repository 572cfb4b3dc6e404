"""Times as a person types them: until when a fact holds."""

from __future__ import annotations

from mem0audit.core.ledger import hidden_from
from mem0audit.core.times import instant, utc_offset


def until(text: str) -> float | None:
    """Seconds since 1970 of the moment that `text` names: a day holds to its end in UTC, as mem0 counts; a time of day
    has to say its offset ("2026-12-05T18:00Z"). None for anything else."""
    word = text.strip()
    # the two dashes keep out what only newer Pythons read ("20261205")
    if len(word) == 10 and word[4] == word[7] == "-":
        return hidden_from(word)
    return instant(word) if utc_offset(word) is not None else None
