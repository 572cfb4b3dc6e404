"""Pages of group C: content."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import INSIDE_AGENT, PAIR_FIRST, REPAIRED_AFTER_A_SNAPSHOT, Rule, commands

RULES = (
    Rule(
        code="C601",
        name="duplicate-memory",
        severity=Severity.MEDIUM,
        summary="The same text is stored several times for the same owner.",
        comes_about="The same add ran twice at the same time; add(infer=False) never looks for duplicates, so a "
        "retry after an error makes one; a normal add compares with the nearest few memories only, by hash "
        "(D305 misleads it).",
        looks_like="Several points with equal text and equal user, agent and run.",
        to_do="\n".join(
            (
                "One of them stays: one that the log knows, of these the one that most entities link, then the oldest. "
                "The others are deleted; copies with other metadata are left to you:",
                commands("mem0audit repair C601 --dry-run"),
                REPAIRED_AFTER_A_SNAPSHOT,
            )
        ),
        repaired=True,
        not_this="Ten copies or more for one user: C604.",
        threshold="2 to 9 copies of identical text with identical owner.",
    ),
    Rule(
        code="C602",
        name="empty-memory",
        severity=Severity.MEDIUM,
        summary="The memory has no text, or only blanks: it takes a place in every search and says nothing.",
        comes_about="An empty message was added with infer=False; something else than mem0 wrote the point.",
        looks_like="`data` is missing, empty or white space.",
        to_do="\n".join(
            (
                "See whether an earlier text is in the log, then delete or update it through mem0:",
                commands("mem0audit show MEMORY_ID", 'memory.delete("MEMORY_ID")'),
                INSIDE_AGENT,
            )
        ),
    ),
    Rule(
        code="C603",
        name="foreign-payload",
        severity=Severity.MEDIUM,
        summary="Written by another SDK with other key names: Python's mem0 finds it under no owner.",
        comes_about="mem0's TypeScript SDK writes userId, agentId, runId, createdAt. Both SDKs were pointed at "
        "one collection.",
        looks_like="camelCase keys in the payload, and no user_id, agent_id or run_id.",
        to_do="\n".join(
            (
                "Decide which SDK owns the collection. To bring such a memory over, add its text through "
                "Python for the same owner, and delete this one by its id:",
                commands(
                    "mem0audit show MEMORY_ID",
                    'memory.add(TEXT, user_id="…", infer=False)',
                    'memory.delete("MEMORY_ID")',
                ),
                INSIDE_AGENT,
            )
        ),
    ),
    Rule(
        code="C604",
        name="repeated-text",
        severity=Severity.MEDIUM,
        summary="One text is stored over and over for one user: something feeds it back.",
        comes_about="Heartbeats, prompts or recalled memories are added again as if a user had said them; a "
        "retry loop. In one report 97.8 % of 10,134 memories were of this kind.",
        looks_like="Many points of one user with equal text, whatever their agent and run. One finding a text, "
        "with its count.",
        to_do="\n".join(
            (
                "Find what adds it and stop that first, else it comes back:",
                commands("mem0audit audit --select C604 --verbose", "mem0audit log -n 20"),
                PAIR_FIRST,
                "Then delete all but one, by id, through mem0.",
                INSIDE_AGENT,
            )
        ),
        threshold="10 or more copies of one text over a user; fewer, with the same whole owner, are C601.",
    ),
)
