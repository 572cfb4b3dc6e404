"""Pages of group I: whether the stores can be read."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import PAIR_FIRST, Rule, commands

RULES = (
    Rule(
        code="I201",
        name="not-a-history",
        severity=Severity.HIGH,
        summary="The file given as history is not mem0's log: no SQLite database, or one without a history "
        "table.",
        comes_about="The path is another file or a folder; mem0 made an empty database because the path was "
        "relative and its working directory changed; a migration of mem0 0.1.100 to 0.1.106 was killed and "
        "left the rows in history_old (I205); reset() of mem0 0.1.19 and older drops the table until the "
        "next start.",
        looks_like="Zero bytes, another header than SQLite's, or tables without `history`.",
        to_do="\n".join(
            (
                "See what the file is, and where the agent's own log lies:",
                commands("mem0audit log", "mem0audit status"),
                "Name the right one with --history, or in the configuration as history_db_path (absolute; ~ "
                "is not expanded by mem0).",
            )
        ),
        not_this="A SQLite file that is damaged: I202. A path where nothing is: the report says it could not "
        "be read.",
    ),
    Rule(
        code="I202",
        name="damaged-database",
        severity=Severity.CRITICAL,
        summary="SQLite says that the file is damaged: some memories or changes may not read any more.",
        comes_about="A backup made with cp while the agent wrote (95 of 100 such copies fail); a full disk or "
        "a dying one; a network file system; two processes on one folder; a -journal that was deleted or left "
        "behind when the file was copied.",
        looks_like="integrity_check is not ok, or reading breaks off. The finding says what still reads.",
        to_do="\n".join(
            (
                "If this is a copy, throw it away and make another one from the live store: "
                "`mem0audit explain L101`.",
                "If it is the live store: keep all its files as they are, -journal too, before more is written "
                "to them. Then stop the agent, unless its store goes with it (L103, L104), and copy once more.",
                commands("install -d -m 700 /srv/rescue", "cp -a /tmp/qdrant /srv/rescue/"),
                "Restore the newest good copy of both stores. Without one, read out of the copy what reads:",
                commands(
                    "cd /srv/rescue/qdrant/collection/mem0",
                    "sqlite3 storage.sqlite .dump | sed 's/^ROLLBACK.*/COMMIT;/' | sqlite3 rescued.sqlite",
                    "sqlite3 rescued.sqlite 'PRAGMA integrity_check; SELECT count(*) FROM points'",
                ),
                "and audit with rescued.sqlite in the place of storage.sqlite: what is missing then is D302, "
                "and its text is in the log.",
            )
        ),
        not_this="The file is whole, and single rows do not decode: I207.",
    ),
    Rule(
        code="I203",
        name="hot-journal",
        severity=Severity.HIGH,
        summary="The last writer died inside a transaction; the file is right only together with its journal.",
        comes_about="The agent was killed, or the machine lost power, while SQLite was writing. Any mem0 and "
        "any qdrant-client.",
        looks_like="A -journal that is not empty beside the database, and nobody who is writing. This audit "
        "read a private copy of both, rolled back.",
        to_do="\n".join(
            (
                "Never delete the -journal, and never copy the database without it: what is left then holds "
                "half of a transaction and looks whole.",
                "Keep a copy of both (nobody has them open), then start the agent: SQLite rolls back by "
                "itself.",
                commands("install -d -m 700 /srv/backup", "cp -a /tmp/qdrant /srv/backup/qdrant-before"),
                "Afterwards audit again: the memory that was being written may be without its log row (D303), "
                "or a deletion half done (D302).",
            )
        ),
    ),
    Rule(
        code="I204",
        name="old-history-schema",
        severity=Severity.LOW,
        summary="The log has the columns of an earlier mem0, which rewrites the table at its next start.",
        comes_about="Written by mem0 0.0.2 to 0.0.9 (7 columns) or 0.0.10 to 0.1.99 (9 columns), and not "
        "opened by a newer one since. Newer versions copy the rows into a new table: 0.1.107 and later keep "
        "all of a 9 column log, and lose texts and times of a 7 column log; 0.1.100 to 0.1.106 hang (I205). "
        "Columns and indexes that somebody added to the table are dropped silently.",
        looks_like="7 or 9 columns, or others than mem0 makes.",
        to_do="\n".join(
            (
                "Keep a copy before the next start of a newer mem0:",
                commands(
                    "sqlite3 -readonly -cmd '.timeout 30000' ~/.mem0/history.db "
                    "\"VACUUM INTO '/srv/backup/history.db'\""
                ),
                "A 7 column log: let a mem0 of 0.0.10 to 0.1.99 open it first, that one keeps the texts. Never "
                "open it with 0.1.100 to 0.1.106.",
            )
        ),
    ),
    Rule(
        code="I205",
        name="stranded-history",
        severity=Severity.HIGH,
        summary="A migration was interrupted: rows of the log lie in another table, where mem0 never looks.",
        comes_about="mem0 0.1.100 to 0.1.106 hang while they migrate a log of 0.1.99 or older; killed, they "
        "leave history_old, and the next start begins an empty log. Opening a newer log with 0.1.99 or older "
        "leaves old_history in the same way. A later migration can drop history_old for good.",
        looks_like="A table history_old or old_history with rows that `history` lacks. The memories they speak "
        "of show as unlogged (D303).",
        to_do="\n".join(
            (
                "Nothing is lost while that table stays. Do not change the agent's mem0 before its rows are back: a "
                "later migration can drop it. See what would go back; then stop the agent, and put it back:",
                commands(
                    "mem0audit recover --stranded-log --dry-run --to /srv/backup/mem0",
                    "mem0audit recover --stranded-log --to /srv/backup/mem0",
                ),
                "It takes a snapshot first. Then the rows go in as mem0 wrote them, in their order, below the present "
                "ones, in one transaction: no row is changed or removed, no event is made up, and the old table stays. "
                "Do not insert them yourself: behind the present ones they would make a deleted memory look live "
                "again. In an erasure count that table too: it holds texts.",
            )
        ),
    ),
    Rule(
        code="I206",
        name="damaged-meta",
        severity=Severity.HIGH,
        summary="meta.json does not say what lies in the folder: Qdrant will not open the store, or will show "
        "less than there is.",
        comes_about="Clients to 1.19.1 empty meta.json before they write it: a crash or a full disk there "
        "leaves it empty. A crash while a collection was deleted leaves its folder unlisted, and creating a "
        "collection of that name brings its points back. A collection that is listed without its folder opens "
        "as an empty one.",
        looks_like="meta.json missing or not JSON, a listed collection without folder, or a folder that is not "
        "listed. The points of every folder were read all the same.",
        to_do="\n".join(
            (
                "The memories are in collection/*/storage.sqlite, not in meta.json: do not delete anything. "
                + PAIR_FIRST,
                "meta.json missing or not JSON: put back a copy of it from the same configuration. Without one "
                "move the bad file aside and start the agent with its old collection name and dimensions: mem0 "
                "1.0.8 and later create the collection anew and find the points in its folder. Older ones "
                "delete the folder at start (L110): restore the file, or set on_disk first.",
                "An unlisted folder: leave it, or move it out, before anything creates a collection of that "
                "name. A listed collection without folder: look for the folder in your copies.",
                commands("python3 -m json.tool /tmp/qdrant/meta.json", "ls /tmp/qdrant/collection"),
            )
        ),
    ),
    Rule(
        code="I207",
        name="unreadable-point",
        severity=Severity.HIGH,
        summary="Single points do not decode: the whole store may refuse to open, the rest was audited.",
        comes_about="A damaged row, a foreign program that wrote into the file, or numpy values in a payload "
        "(clients to 1.6.9 took them; 1.9.2 and later then cannot open the store at all).",
        looks_like="A row of `points` whose blob is no pickle of a point.",
        to_do="\n".join(
            (
                PAIR_FIRST,
                "The log still has the text, if the point's id reads:",
                commands("mem0audit show MEMORY_ID"),
                "Restore a copy in which the row reads, or leave it: as long as the agent starts, nothing "
                "gets worse.",
            )
        ),
    ),
    Rule(
        code="I208",
        name="unsafe-pickle",
        severity=Severity.CRITICAL,
        summary="A point holds code: opening this store with Qdrant's client would run it.",
        comes_about="Points are Python pickles, and the client loads them without a check. mem0 and "
        "qdrant-client never write such names: somebody else wrote this row, or the store is from a stranger.",
        looks_like="The pickle names a function or class that qdrant-client never writes. It was not run here, "
        "and the finding prints only its name.",
        to_do="\n".join(
            (
                "Do not start an agent on this folder and do not load it in Python. An agent that has it open "
                "already has run it: treat its machine, its keys and its accounts as known to others.",
                "Keep a copy of the folder as evidence, find out where it came from, and restore a copy from "
                "before.",
            )
        ),
    ),
    Rule(
        code="I209",
        name="duplicate-rows",
        severity=Severity.HIGH,
        summary="Several rows for one point: an older or deleted version of a memory comes back at the next "
        "start.",
        comes_about="qdrant-client to 1.19.1 made the key of a row from Python's pickle, so another Python (3.7 "
        "to 3.8, 3.13 to 3.14) or another spelling of the same UUID made a second row; deleting then misses "
        "the first one. 1.20.0 removes all but the newest row whenever it opens the store, even when it then "
        "fails because another process has it.",
        looks_like="Two or more rows of `points` whose blobs have the same id. The highest row is the one that "
        "counts.",
        to_do="\n".join(
            (
                PAIR_FIRST,
                "Then give the agent qdrant-client 1.20.0 or later and restart it: it drops the older rows and "
                "keeps the newest.",
                "Memories that were deleted by such an agent and are still here are D301.",
            )
        ),
    ),
    Rule(
        code="I210",
        name="wrong-vector",
        severity=Severity.HIGH,
        summary="A memory's vector cannot be searched: none, wrong length, all zero, or not a number.",
        comes_about="An embedder that answered with zeros or NaN (a failed or mocked call); a file edited by "
        "hand. Clients accept zero vectors in all versions, NaN to 1.6.9. A server accepts zeros, no vector at all and "
        "what becomes NaN in 32 bits, never another length.",
        looks_like="There is no dense vector, or it has another length than the collection says, only zeros, or a NaN "
        "or infinite value. The text is intact. On a server looked at with audit --vectors only.",
        to_do="\n".join(
            (
                "Store the same text again, which embeds it anew:",
                commands('memory.update("MEMORY_ID", TEXT)', "mem0audit show MEMORY_ID"),
                "Run the call inside the agent. mem0 to 2.0.6 loses metadata of your own in an update.",
            )
        ),
    ),
    Rule(
        code="I211",
        name="dimension-mismatch",
        severity=Severity.HIGH,
        summary="The configured embedder makes vectors of another length than the collection has; the data is "
        "intact.",
        comes_about="The embedding model or its dimensions were changed. mem0 does not check at start: searches "
        "and new memories fail afterwards, get_all and delete go on. Some tools offer to delete the collection "
        "then. mem0 2.0.0 to 2.2.0 report and log such an add as done (D302).",
        looks_like="embedding_model_dims of the configuration and the size in meta.json differ, or the "
        "collection of the entities has another size than that of the memories.",
        to_do="\n".join(
            (
                "Nothing is lost. Put the old model and its dimensions back into the configuration:",
                commands("mem0audit config show"),
                "To change the model for good, make a new collection and add every text again; keep the old "
                "one until that is done. Never let a tool delete it to fix the error.",
            )
        ),
        not_this="Another model of the same length leaves no trace on disk: nobody can see that.",
    ),
    Rule(
        code="I212",
        name="old-storage-format",
        severity=Severity.CRITICAL,
        summary="The agent's qdrant-client cannot open this store; the memories are intact, do not delete it.",
        comes_about="A newer client wrote it once, and the agent runs an older one (a downgrade, another "
        "environment, a tool that brought its own). Clients refuse the whole folder for one key in meta.json "
        "that they do not know (1.3.2 and later): sparse_vectors came with 1.7.0, datatype with 1.9.0, "
        "multivector_config and modifier with 1.10.0, strict_mode_config with 1.13.0, metadata with 1.16.0, "
        "memory and payload with 1.19.0, id_tracker with 1.20.0. Or a client before 1.1.7 wrote it: storage.dbm.",
        looks_like="The agent's client answers `Extra inputs are not permitted` (ValidationError for "
        "CreateCollection) and changes nothing.",
        to_do="\n".join(
            (
                "Do not delete the folder, and do not edit meta.json. Install the client that the finding "
                "names, or a newer one, in the agent's environment, and start it again:",
                commands("pip install 'qdrant-client>=1.20'"),
                "storage.dbm: clients 1.1.7 to 1.19.1 convert it when they open the folder, and delete it "
                "then; 1.20.0 refuses it. Open a copy of the folder once with one of those:",
                commands("pip install 'qdrant-client==1.19.1'"),
            )
        ),
    ),
    Rule(
        code="I213",
        name="no-keyword-slot",
        severity=Severity.INFO,
        summary="This collection was made before mem0 2.0: keyword search beside the vectors is off.",
        comes_about="mem0 2.0.0 and later give a new collection a bm25 slot, and never add one to a collection "
        "that exists.",
        looks_like="No sparse vector `bm25` in meta.json.",
        to_do="Nothing has to be done. To have it, make a new collection with mem0 2.x and add the memories "
        "to it.",
    ),
    Rule(
        code="I214",
        name="slow-embedded-store",
        severity=Severity.INFO,
        summary="More points than embedded Qdrant is made for: starts are slow and all of them lie in memory.",
        comes_about="The client loads every point into the memory of the agent's process: 100,000 memories of "
        "1536 numbers took 30 s to open and over 8 GB (1.20.0).",
        looks_like="The client prints the same warning at its start.",
        to_do="Consider a Qdrant server. The local folder cannot be mounted into one, the points have to be "
        "copied; keep the folder until they are counted there.",
        threshold="More than 20,000 points in a collection, the client's own limit for its warning.",
    ),
    Rule(
        code="I215",
        name="journal-mode",
        severity=Severity.INFO,
        summary="How SQLite protects each file from a torn write, which decides how it may be copied.",
        comes_about="mem0 and qdrant-client use a rollback journal in every version. Somebody may have switched "
        "history.db to WAL, which is good for busy readers.",
        looks_like="Bytes 18 and 19 of the file's header. In WAL the newest changes are in the -wal file.",
        to_do="Nothing has to be done. Rollback: a reader that stays inside a transaction for more than 5 s "
        "makes the agent's write fail, so use no long SELECT. WAL: never copy the database without its -wal.",
    ),
)
