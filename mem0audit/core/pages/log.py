"""Pages of group H: the log itself."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import PAIR_FIRST, Rule, commands

RULES = (
    Rule(
        code="H401",
        name="broken-chain",
        severity=Severity.MEDIUM,
        summary="A change says it replaced a text that was not the one before: a row is missing or the text was "
        "changed outside the log.",
        comes_about="A row was removed by hand; an earlier update was cut after its point; the payload was "
        "edited and mem0 updated it later; two threads updated one memory at the same time (29 to 52 breaks in "
        "80 such updates).",
        looks_like="old_memory of an UPDATE or DELETE is not the new_memory of the row before it.",
        to_do="\n".join(
            (
                "The present memory is not affected. See the rows around it:",
                commands("mem0audit show MEMORY_ID"),
                "Nothing puts a lost row back. Many in a short time, from an agent with threads, are no "
                "tampering: let one thread write, or use a Qdrant server.",
            )
        ),
    ),
    Rule(
        code="H402",
        name="event-without-add",
        severity=Severity.LOW,
        summary="The log begins in the middle of this memory's life: its ADD row is missing.",
        comes_about="The memory was stored without its row (D303) and updated or deleted later; the log was "
        "lost, reset or restored in between; rows are stranded in history_old (I205).",
        looks_like="The first row of a memory id is an UPDATE or a DELETE.",
        to_do="Nothing has to be done. Where it comes from, for many at once:\n"
        + commands("mem0audit audit --select H405,I205,D303"),
    ),
    Rule(
        code="H403",
        name="event-after-delete",
        severity=Severity.MEDIUM,
        summary="The log goes on after the deletion of this memory: it was deleted and lived on.",
        comes_about="A deletion that the store undid at the next start (AsyncMemory.delete_all, I209) and the "
        "agent then updated the memory; vectors restored from before the deletion; rows put into the file by "
        "hand.",
        looks_like="An ADD or UPDATE row with a higher rowid than a DELETE row of the same id. A second DELETE is "
        "how D301 is repaired, and no fault.",
        to_do="\n".join(
            (
                "If it was to be deleted, it is not gone; see it, and delete it again as in D301:",
                commands("mem0audit show MEMORY_ID"),
            )
        ),
    ),
    Rule(
        code="H404",
        name="unknown-event",
        severity=Severity.LOW,
        summary="A row has an event that mem0 does not write, or names no memory.",
        comes_about="Another program writes into the log, or somebody edited it. mem0 writes ADD, UPDATE and "
        "DELETE in every version; a NONE never gets a row.",
        looks_like="`event` is another word or empty, or memory_id is empty.",
        to_do="See what it is, and who writes there; mem0 itself ignores such rows:\n"
        + commands("mem0audit log", "mem0audit status"),
    ),
    Rule(
        code="H405",
        name="log-younger",
        severity=Severity.MEDIUM,
        summary="The log begins after most of the memories it does not know: it was lost or reset, the memories "
        "are intact.",
        comes_about="history.db was in a container's layer and went with it; MEM0_DIR or HOME changed; another "
        "program with the same log called reset(); a reset() that failed in its second half; an interrupted "
        "migration (I205).",
        looks_like="Many points without a row, all stored before the first rows.",
        to_do="\n".join(
            (
                "Nothing needs repair, and nothing should be deleted. Look for the old log before it is "
                "cleaned away, in other homes and in history_old:",
                commands("mem0audit status", "mem0audit log"),
                PAIR_FIRST,
                "Then give the log a durable path (history_db_path). created_at can be set by callers, so this "
                "is judged by many memories together.",
            )
        ),
        threshold="At least 10 unlogged memories, and at least 90 % of the unlogged ones are older than the "
        "beginning of the log.",
    ),
    Rule(
        code="H406",
        name="mixed-offsets",
        severity=Severity.INFO,
        summary="The log has times with different UTC offsets: sorted as text they are not in order.",
        comes_about="mem0 to 1.0.6 wrote US/Pacific (-08:00 or -07:00, by season), 1.0.7 and later write UTC. "
        "get_history() of mem0 sorts by this text, and shows some old memories in the wrong order.",
        looks_like="More than one offset among the rows' times.",
        to_do="Nothing has to be done, and nothing should be rewritten. Order rows by rowid, times as instants.",
    ),
    Rule(
        code="H407",
        name="locked-log-gap",
        severity=Severity.LOW,
        summary="For a while memories were stored and the log took no rows: it was locked or could not be "
        "written.",
        comes_about="A reader held a transaction on history.db for more than 5 s (a backup, a database "
        "browser, one long SELECT); the disk was full; the file belonged to somebody else. mem0 2.x swallows "
        "the error and reports success.",
        looks_like="Unlogged memories of one stretch of time from which the log has no rows, with rows before "
        "and after.",
        to_do="\n".join(
            (
                "The memories are intact. Find what ran at that time and keep it off the live file:",
                commands("mem0audit status", "mem0audit audit --select D303 --verbose"),
            )
        ),
        not_this="The rows before are missing too: H405.",
        threshold="At least 3 unlogged memories in a stretch without any row, between two rows.",
    ),
    Rule(
        code="H408",
        name="log-rewritten",
        severity=Severity.HIGH,
        summary="Rows that were sealed have changed or gone: the past of the log was rewritten.",
        comes_about="Somebody edited history.db, or an older log was put in its place. Or mem0's reset() dropped it "
        "whole, which leaves no row that says so: then nothing of the sealed memories is there either, and what "
        "happened says it. What mem0's own migrations change is known and no finding.",
        looks_like="A row up to the last seal has other columns, is gone, or stands where none was. After a reset: one "
        "finding, with how many rows and memories were sealed.",
        to_do="\n".join(
            (
                "The log no longer tells what happened. Keep a copy of history.db as it is, see what the log says of "
                "the memory, and what its chain lacks:",
                commands("mem0audit show MEMORY_ID", "mem0audit audit --select H401,H402,H403"),
                "Snapshots from before hold the rows as they were. If the change was meant, let it stand with a "
                "reason:",
                commands('mem0audit audit --seal --accept "emptied the texts of carol"'),
            )
        ),
        not_this="The log ends earlier and the memories are older too: D311. What a seal cannot see: "
        "rows forged after it in the form that mem0 gives them.",
        threshold="Up to 50 rows are named one by one.",
    ),
)
