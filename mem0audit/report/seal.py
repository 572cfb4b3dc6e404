"""What came of sealing, in a line or two."""

from __future__ import annotations

from mem0audit.core.model import SealOutcome
from mem0audit.core.times import shown
from mem0audit.report.screen import Screen
from mem0audit.report.words import memories, plural


def seal_lines(outcome: SealOutcome, screen: Screen) -> list[str]:
    """Sealed, unchanged, or why not; what a new seal lets stand."""
    if outcome.unchanged:
        since = f"seal {outcome.number} of {shown(outcome.at or 0)}"
        return screen.wrap(f"Sealed before: both stores are as {since} has them.")
    if not outcome.extended:
        lines = screen.wrap(f"NOT SEALED: {outcome.why}.")
        if outcome.number is not None and (outcome.why or "").startswith("since seal"):
            accept = screen.command("audit", "--seal", "--accept", "REASON")
            lines.append(f"Once you know why, to let it stand:   {accept}")
        return lines
    said = (
        f"Sealed: seal {outcome.number}, {memories(outcome.memories)} and {plural(outcome.rows, 'change')}."
    )
    if outcome.accepted:
        few = ", ".join(outcome.accepted[:3])
        more = f" and {len(outcome.accepted) - 3:,} more" if len(outcome.accepted) > 3 else ""
        said += f" It lets stand: {few}{more}."
    return screen.wrap(said)
