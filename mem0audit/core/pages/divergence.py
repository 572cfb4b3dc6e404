"""Pages of group D: where the two stores disagree."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import INSIDE_AGENT, PAIR_FIRST, REPAIRED_AFTER_A_SNAPSHOT, Rule, commands

RULES = (
    Rule(
        code="D301",
        name="resurrected-memory",
        severity=Severity.HIGH,
        summary="The log says deleted, the store still has it: the agent still answers from it.",
        comes_about="AsyncMemory.delete_all on an embedded store: it deletes all at once over one connection, "
        "reports success, and some points are back after a restart (every version tried, 0.1.114 to 2.2.1: 2 "
        "or 3 of 30, up to 36 of 300). Vectors restored from before the deletion. An older row of the same "
        "point that a client to 1.19.1 left (I209).",
        looks_like="The last history row is DELETE, and a point with the same id is in the collection.",
        to_do="\n".join(
            (
                "See it, and that it really was to be deleted:",
                commands("mem0audit show MEMORY_ID"),
                "Then have it deleted again; the log gets a second DELETE row, which is right:",
                commands("mem0audit repair D301 --dry-run"),
                REPAIRED_AFTER_A_SNAPSHOT,
                "The snapshot keeps it: what a person wants gone is deleted with `mem0audit delete`, which takes none.",
                "In the agent itself delete one at a time with the ordinary Memory, not AsyncMemory, and audit again "
                "after a restart.",
            )
        ),
        repaired=True,
        not_this="The log row was lost and the memory never deleted: H401 and H402 say so.",
    ),
    Rule(
        code="D302",
        name="lost-memory",
        severity=Severity.CRITICAL,
        summary="The log says it is remembered, and no store that was found has it.",
        comes_about="One memory alone: mem0 deletes the point first and logs second, so a crash or a locked log "
        "between the two leaves an unlogged deletion; mem0 2.0.0 to 2.2.0 log an add that the vector store "
        "refused; several threads on one embedded store lose acknowledged writes. Many at once: the folder was "
        "emptied (L101, L102, L110), a filtered delete_all of mem0 0.1.118 to 1.0.5 dropped everybody's, or "
        "older vectors were restored. The three look alike for one memory; the finding says which one the "
        "numbers favour.",
        looks_like="The last history row is ADD or UPDATE, and no point has that id, in any collection that "
        "was found.",
        to_do="\n".join(
            (
                "Read the incident above the findings first: what took them may take more.",
                PAIR_FIRST,
                "A snapshot from before brings both stores back, vectors and ids too, with the agent stopped "
                "(`mem0audit snapshot restore NAME --in-place`; what was written since is put aside, not lost). "
                "Without one the text is in the log. See whose they are and what cannot come back; then stop the "
                "agent, and add them again, through its mem0 and with your own embedder:",
                commands(
                    "mem0audit recover --dry-run",
                    "mem0audit recover --config mem0.yaml",
                ),
                "Without an embedder, keep the texts: `mem0audit recover --export FILE`. A single one, lost or deleted "
                "on purpose:",
                commands(
                    "mem0audit show MEMORY_ID", "mem0audit recover --memory MEMORY_ID --config mem0.yaml"
                ),
                "If it was meant to be deleted, leave it: nothing can be logged for it afterwards, and mem0 "
                "answers `not found`.",
            )
        ),
        not_this="The ids are in another store that shares the log: one L108, and nothing is lost.",
        threshold="From 10 missing memories on, the evidence favours one loss; below it, writes cut short.",
    ),
    Rule(
        code="D303",
        name="unlogged-memory",
        severity=Severity.MEDIUM,
        summary="The store has it, and the log has never heard of it. It works, it only has no history.",
        comes_about="The point is written first: a crash, or a log that was locked for 5 s, leaves it without "
        "its row, and a normal add of mem0 2.x still reports success. Another program emptied the shared log "
        "with reset() (L108); the log was lost or restored from before (H405); rows are stranded in "
        "history_old (I205).",
        looks_like="A point with text, and no history row with its id.",
        to_do="\n".join(
            (
                "Nothing has to be done: it is found, updated and deleted like any other.",
                commands("mem0audit show MEMORY_ID"),
                "Do not write an ADD row yourself. Many of one time are one event: H405 or H407 name it.",
            )
        ),
        not_this="Rows are there, and the first is not an ADD: H402.",
    ),
    Rule(
        code="D304",
        name="text-differs",
        severity=Severity.HIGH,
        summary="The stored text is not the one that was logged last: the agent answers with something the log "
        "does not know, or with something it replaced.",
        comes_about="An update was cut between the two writes (the store is newer); the payload was changed "
        "behind mem0's back (the hash is stale too, D305); one store was restored and the other was not: the "
        "finding says which is newer. Concurrent updates leave broken chains (H401), not this.",
        looks_like="The new_memory of the last row and `data` of the point differ.",
        to_do="\n".join(
            (
                "Look at both texts and decide which one is true:",
                commands("mem0audit show MEMORY_ID"),
                PAIR_FIRST,
                "Then store the true one through mem0, which writes point, hash, vector and row:",
                commands('memory.update("MEMORY_ID", TEXT)'),
                INSIDE_AGENT,
                "mem0 to 2.0.6 loses metadata of your own in an update.",
            )
        ),
    ),
    Rule(
        code="D305",
        name="stale-hash",
        severity=Severity.LOW,
        summary="The hash beside the text is not the text's: mem0's check for duplicates goes wrong.",
        comes_about="Updates of mem0 0.0.16 to 0.1.29 kept the old hash: ordinary there. Otherwise somebody "
        "changed the payload without mem0. mem0 2.x then drops an add of the old text silently, and takes the "
        "present text a second time.",
        looks_like="`hash` is not the MD5 of `data`.",
        to_do="\n".join(
            (
                "The same text, stored again with its own vectors, gets a new hash and one UPDATE row:",
                commands("mem0audit repair D305 --dry-run"),
                REPAIRED_AFTER_A_SNAPSHOT,
                "Refused before mem0 2.0.7, whose update loses metadata of your own.",
            )
        ),
        repaired=True,
        not_this="The text differs from the log as well: D304 first.",
    ),
    Rule(
        code="D306",
        name="time-differs",
        severity=Severity.LOW,
        summary="The times in the store and in the log are not the same instant.",
        comes_about="A write was cut between the stores, a payload was edited, or one store was restored. A "
        "NONE event of mem0 1.0.9 to 1.0.11 moves the payload's time without a row: that is silent here, and "
        "so are empty times (older DELETE rows, ADD rows of mem0 2.x).",
        looks_like="created_at or updated_at of the point and of the rows differ by more than a moment, compared "
        "as instants whatever their offsets.",
        to_do="\n".join(
            (
                "Nothing has to be done if the texts agree. Many of them together point to a restore:",
                commands("mem0audit show MEMORY_ID", "mem0audit audit --select D --verbose"),
            )
        ),
        not_this="The text differs: D304 says both times.",
    ),
    Rule(
        code="D307",
        name="owner-differs",
        severity=Severity.HIGH,
        summary="The memory now belongs to somebody else than the entities made from it say: it may have "
        "changed hands.",
        comes_about="update(metadata={'user_id': …}) moved a memory to another owner in mem0 1.0.8 to 2.0.12, "
        "and add(metadata=…) could name another one up to 2.0.15. The log has no owner and shows an UPDATE "
        "with unchanged text. Or somebody edited the payload.",
        looks_like="Every entity that links the memory names another user, agent or run. A key that only one "
        "side names is no difference: mem0 itself links like that.",
        to_do="\n".join(
            (
                "A person has to decide whose it is:",
                commands("mem0audit show MEMORY_ID"),
                "If it is in the wrong hands, it may have been shown to them already. Delete it by its id, and what "
                "entities link of it:",
                commands("mem0audit delete --memory MEMORY_ID --dry-run"),
                "Then add the text for its owner:",
                commands('memory.add(TEXT, user_id="…", infer=False)'),
                INSIDE_AGENT,
            )
        ),
        threshold="Two entities or more link the memory, and all of them name another owner.",
    ),
    Rule(
        code="D308",
        name="unreachable-owner",
        severity=Severity.HIGH,
        summary="The agent's mem0 cannot name this owner: get_all does not list the memory, and delete_all "
        "reports success and leaves it.",
        comes_about="mem0 to 1.0.11 stored owner ids as they came: numbers, blanks at the ends or inside. From "
        "2.0.0 on ids are trimmed and those with blanks inside refused, in delete_all from 2.0.10; from 2.0.12 "
        "numbers are turned into text. What is stored stays as it was, so nothing matches it any more.",
        looks_like="user_id, agent_id or run_id in the payload is a number, or has white space in it.",
        to_do="\n".join(
            (
                "An erasure of this owner that was reported done is not. Ours deletes by id, and reaches numbers and "
                "ids with blanks at their ends; one with blanks inside as it is stored, in quotes:",
                commands("mem0audit users", "mem0audit delete --user ID --dry-run"),
                "To keep it, add the text again under an id without blanks, and delete the old one then.",
            )
        ),
        not_this="No owner at all: D309. Where the agent's mem0 version is unknown this is not checked.",
    ),
    Rule(
        code="D309",
        name="no-owner",
        severity=Severity.MEDIUM,
        summary="The memory belongs to nobody: no call of mem0 lists it, and no deletion of a user reaches it.",
        comes_about="An UPDATE of mem0 0.0.10 and older dropped user_id, agent_id and run_id; or something else "
        "than mem0 wrote the point.",
        looks_like="The payload has text and none of the three ids.",
        to_do="\n".join(
            (
                "See what it is, and from whom it might be:",
                commands("mem0audit show MEMORY_ID"),
                "Then delete it, or add the text for its owner and delete it:",
                commands("mem0audit delete --memory MEMORY_ID --dry-run"),
            )
        ),
        not_this="Owners under camelCase keys (userId): C603.",
    ),
    Rule(
        code="D310",
        name="changed-outside-mem0",
        severity=Severity.HIGH,
        summary="A memory differs from what was sealed, and no history row since explains it: somebody changed "
        "it behind mem0's back.",
        comes_about="A payload edited through Qdrant, a file edited by hand, a planted or removed point, vectors "
        "put back without their log. A write that was cut short between mem0's two stores looks the same, and D302, "
        "D303 or D304 beside it say so.",
        looks_like="Text, owner, metadata or times are not those of the last seal, or the point is new or gone, and "
        "the log is silent: no ADD, UPDATE or DELETE of this memory since, or one that says something else.",
        to_do="\n".join(
            (
                "Look at the memory in both stores, and ask who or what writes there beside the agent:",
                commands("mem0audit show MEMORY_ID", "mem0audit status"),
                "Right it through mem0 (update, delete), or let it stand with a reason, for exactly this; the reason "
                "stays in the chain of seals:",
                commands('mem0audit audit --seal --accept "moved alice by hand, ticket 12"'),
                "Until then no new seal is made, not by `mem0audit snapshot create` either.",
            )
        ),
        not_this="What a seal cannot see: a planted memory that has a well-formed ADD row of its own; metadata "
        "changed in a memory that mem0 updated afterwards; vectors; anything from before the first seal. Who can "
        "write to the ledger can forge a seal. Changes of times, agent and run without a row are mem0's own "
        "in 1.0.9 to 1.0.11, and silent there.",
        threshold="From 50 memories that differ in the same way on, one finding with their number.",
    ),
    Rule(
        code="D311",
        name="rolled-back",
        severity=Severity.CRITICAL,
        summary="Both stores are older than the last seal: what was remembered since is gone, and what was "
        "deleted since is back.",
        comes_about="Both were put back from a copy, or the machine was set back to an older state.",
        looks_like="The log ends before the last sealed row and is as sealed up to there, and memories are not those "
        "of the seal.",
        to_do="\n".join(
            (
                "What was remembered since is in no store any more, and what was deleted since is back. See where the "
                "log ends now, who put a copy back, and whether a newer snapshot is there to restore:",
                commands("mem0audit log -n 20", "mem0audit snapshot list --to /srv/backup/mem0"),
                "If it was meant, begin again from there, with a reason:",
                commands('mem0audit audit --seal --accept "put back the copy of 2 May"'),
            )
        ),
        not_this="Only the log is shorter: H408. Only the vectors are older: D302, D301, D304, and D310. Neither "
        "store has anything of the seal: mem0 was reset, H408.",
    ),
)
