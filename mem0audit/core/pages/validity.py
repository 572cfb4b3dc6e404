"""Pages of group T: time."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import REPAIRED_AFTER_A_SNAPSHOT, Rule, commands

RULES = (
    Rule(
        code="T701",
        name="expired-memory",
        severity=Severity.MEDIUM,
        summary="Its expiration date has passed and it is still stored: mem0 hides it, and never deletes it.",
        comes_about="add(expiration_date=…) of mem0 2.0.10 and later only hides expired memories in search and "
        "get_all. Older versions do not know the date and still answer from them.",
        looks_like="expiration_date in the payload is before today (UTC, as mem0 counts).",
        to_do="\n".join(
            (
                "If expired is to mean gone, have them deleted; the log keeps the text (S804):",
                commands("mem0audit repair T701 --dry-run"),
                REPAIRED_AFTER_A_SNAPSHOT,
                "All that mem0 hides by now, and whose time in the ledger has come, as a command for a timer:",
                commands("mem0audit prune --dry-run"),
            )
        ),
        repaired=True,
    ),
    Rule(
        code="T702",
        name="superseded-memory",
        severity=Severity.LOW,
        summary="A newer memory has replaced it, and it is still stored beside it: mem0 still retrieves it.",
        comes_about="mem0 2.x only adds: a contradicting fact does not remove the old one. Somebody said which one is "
        "right (`mem0audit ledger supersede`), and mem0 does not know of it.",
        looks_like="The ledger names what replaced it, and both are stored.",
        to_do="\n".join(
            (
                "An agent that asks through mem0audit.live(memory.search(…)) does not get it. To remove it, and its "
                "text from what mem0 finds:",
                commands("mem0audit delete --memory MEMORY_ID"),
                "All that were added more than 180 days ago:",
                commands("mem0audit prune --dry-run"),
                "Deleting the newer one through mem0audit deletes this one with it, first.",
            )
        ),
    ),
    Rule(
        code="T703",
        name="unconfirmed-memory",
        severity=Severity.INFO,
        summary="Nobody has confirmed these memories for longer than the review age.",
        comes_about="Facts drift: a port, a person's job, a version. mem0 records no confirmation. At first each "
        "counts as confirmed when it was last added or updated by the log, so an old store shows all that is old.",
        looks_like="confirmed_at in the ledger is older than the review age, or empty; one finding with their number.",
        to_do="\n".join(
            (
                "Go through the oldest, a few a week; what nobody can trace can only be deleted:",
                commands("mem0audit review"),
            )
        ),
        threshold="90 days without a confirmation.",
    ),
    Rule(
        code="T704",
        name="unused-memory",
        severity=Severity.INFO,
        summary="These memories were not retrieved for six months.",
        comes_about="mem0 does not record when a memory was used. An agent that asks through "
        "mem0audit.live(memory.search(…)), or tells `mem0audit ledger used`, does.",
        looks_like="Added and last used longer ago, and use is recorded for as long; one finding with their number.",
        to_do="\n".join(
            (
                "Nothing has to be done: rarely used is not wrong. How many are live, expired, superseded, unused:",
                commands("mem0audit ledger status"),
                "If what nobody asks for is to go, with what has expired and been superseded:",
                commands("mem0audit prune --unused --dry-run"),
            )
        ),
        threshold="183 days without use.",
    ),
    Rule(
        code="T705",
        name="broken-supersession",
        severity=Severity.HIGH,
        summary="What replaced this memory is gone, so mem0 answers from the outdated one alone.",
        comes_about="The agent deleted the newer one in mem0 (Memory.delete knows nothing of the older one), it was "
        "lost, or somebody edited the ledger without foreign keys (SQLite has them off unless each connection asks).",
        looks_like="The ledger marks it as superseded, it is stored, and what replaced it has no point, no row, a last "
        "event DELETE, or is not named any more. The mark stays: it is never live again by itself.",
        to_do="\n".join(
            (
                "Decide which is true. If the fact is gone with its newer version, delete it too:",
                commands("mem0audit delete --memory MEMORY_ID"),
                "If it holds after all, say so; where from belongs to it:",
                commands("mem0audit ledger supersede MEMORY_ID --none"),
                "If another memory says what is true now:",
                commands("mem0audit ledger supersede MEMORY_ID NEWER_ID"),
            )
        ),
        not_this="Memories that are all gone although the log calls them live: D302.",
    ),
    Rule(
        code="T706",
        name="wide-gap",
        severity=Severity.MEDIUM,
        summary="Many more memories are stored than hold: removals are behind, and mem0 still finds the rest.",
        comes_about="Superseded memories are never removed by mem0, and expired ones only hidden (2.0.10 and later).",
        looks_like="Of the memories that are stored, many are superseded or expired by the ledger.",
        to_do="\n".join(
            (
                "Which they are, and the removal of the expired ones, and of those superseded ones that were added "
                "more than 180 days ago:",
                commands("mem0audit audit --select T701,T702", "mem0audit prune --dry-run"),
            )
        ),
        threshold="At least 10, and more than a fifth of what is stored.",
    ),
)
