"""Pages of group E: entities."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import INSIDE_AGENT, REPAIRED_AFTER_A_SNAPSHOT, Rule, commands

_NOT_TOUCHED = (
    "mem0 2.0.0 to 2.2.1 clean entities only in a process that has used them: after an add with inference "
    "or a search. A script that only deletes or updates leaves them as they are."
)

RULES = (
    Rule(
        code="E501",
        name="orphan-entity",
        severity=Severity.HIGH,
        summary="Every memory this entity was made from is gone, and its text is still stored: a deletion left "
        "something behind.",
        comes_about=_NOT_TOUCHED + " reset() in such a process leaves the whole collection.",
        looks_like="A point of <collection>_entities whose linked_memory_ids name no point that is there.",
        to_do="\n".join(
            (
                "If the memory was deleted for a person, that erasure is not complete: an entity is a piece of "
                "the text (a name, a place), and `mem0audit delete` clears it with the rest. Else:",
                commands("mem0audit repair E501 --dry-run"),
                REPAIRED_AFTER_A_SNAPSHOT,
                "Entities of a memory that is lost and not deleted (D302) stay: a restore brings it back.",
            )
        ),
        repaired=True,
        not_this="Some of the linked memories are still there: E502.",
        threshold="A link counts as dead when its deletion is older than one minute: mem0 cleans up after it.",
    ),
    Rule(
        code="E502",
        name="dangling-link",
        severity=Severity.MEDIUM,
        summary="This entity still links a memory that is gone, beside others that are there.",
        comes_about=_NOT_TOUCHED,
        looks_like="Some ids of linked_memory_ids have no point.",
        to_do="\n".join(
            (
                "Searches ignore it, so there is no hurry. To take the dead links out of it:",
                commands("mem0audit repair E502 --dry-run"),
                REPAIRED_AFTER_A_SNAPSHOT,
            )
        ),
        repaired=True,
        threshold="A link counts when the DELETE of its memory is older than one minute.",
    ),
    Rule(
        code="E503",
        name="foreign-link",
        severity=Severity.HIGH,
        summary="An entity of one owner links a memory of another: a search of one can be led to the other.",
        comes_about="The memory was moved to another owner by update(metadata=…) of mem0 1.0.8 to 2.0.12 (then "
        "all its entities disagree and it is D307), or somebody edited a payload.",
        looks_like="Entity and memory both name a user, agent or run, and not the same one. A key that only one "
        "of them names is no difference.",
        to_do="\n".join(
            (
                "Look at the memory the finding names, and decide whose it is:",
                commands("mem0audit show MEMORY_ID"),
                "Then write the list without it, through mem0's own entity store:",
                commands(
                    'memory.entity_store.update(vector_id="ENTITY_ID",',
                    '  payload={"linked_memory_ids": [OTHER_IDS]})',
                ),
                INSIDE_AGENT,
            )
        ),
    ),
    Rule(
        code="E504",
        name="oversized-scope",
        severity=Severity.MEDIUM,
        summary="This owner has more entities than mem0 looks at: it never cleans the rest after a deletion.",
        comes_about="mem0 2.0.0 to 2.2.1 list at most 10,000 entities of a scope for each deleted memory, and "
        "deletes get slower with every one (311 ms each at 5,000).",
        looks_like="More entities with the same user, agent and run than that.",
        to_do="\n".join(
            (
                "After deletions of this owner, have what was left cleared:",
                commands("mem0audit repair E501 E502 --dry-run"),
            )
        ),
        threshold="More than 10,000 entities of one owner.",
    ),
)
