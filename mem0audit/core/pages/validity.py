"""Pages of group T: time."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import REPAIRED_AFTER_A_SNAPSHOT, Rule, commands

_NOT_RECORDED = "This version does not record it yet, so this is not looked for."

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
                "All that mem0 hides by now, as a command for a timer:",
                commands("mem0audit prune --dry-run"),
            )
        ),
        repaired=True,
    ),
    Rule(
        code="T702",
        name="superseded-memory",
        severity=Severity.LOW,
        summary="A newer fact has replaced it, and it is still stored beside it.",
        comes_about="mem0 2.x only adds: a contradicting fact does not remove the old one.",
        looks_like="The ledger names a successor, and the point is there.",
        to_do=_NOT_RECORDED + " To remove an outdated fact now, delete it by id through mem0.",
        planned=True,
    ),
    Rule(
        code="T703",
        name="unconfirmed-memory",
        severity=Severity.INFO,
        summary="Nobody has confirmed it for longer than the review age.",
        comes_about="Facts age; mem0 records no confirmation.",
        looks_like="confirmed_at in the ledger is older than the review age, or empty.",
        to_do=_NOT_RECORDED,
        planned=True,
    ),
    Rule(
        code="T704",
        name="unused-memory",
        severity=Severity.INFO,
        summary="It was not retrieved for six months, where last use is recorded.",
        comes_about="mem0 does not record when a memory was used.",
        looks_like="last_used_at in the ledger is older than six months.",
        to_do=_NOT_RECORDED,
        threshold="Six months without use.",
        planned=True,
    ),
    Rule(
        code="T705",
        name="broken-supersession",
        severity=Severity.HIGH,
        summary="The fact that replaced this one is gone, so the outdated one is all that is left.",
        comes_about="The successor was deleted in mem0 after it was recorded in the ledger.",
        looks_like="The successor has no point or its last event is DELETE; or the ledger's foreign_key_check "
        "finds rows that hang.",
        to_do=_NOT_RECORDED,
        planned=True,
    ),
    Rule(
        code="T706",
        name="wide-gap",
        severity=Severity.MEDIUM,
        summary="Many more memories are stored than are valid: removals are behind.",
        comes_about="Expired and superseded memories were never pruned.",
        looks_like="The number of points is far above the number of valid facts in the ledger.",
        to_do=_NOT_RECORDED + " Expired ones show without it:\n" + commands("mem0audit audit --select T701"),
        planned=True,
    ),
)
