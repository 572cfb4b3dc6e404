"""Pages of group S: secrets and provenance."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule, commands

RULES = (
    Rule(
        code="S801",
        name="secret-in-store",
        severity=Severity.CRITICAL,
        summary="A password, key or token is stored as a memory, or in what is kept of one.",
        comes_about="Somebody told it to the agent, or raw messages were added (infer=False). mem0 filters "
        "nothing in any version, and gives it back verbatim.",
        looks_like="A text has the form of a credential: a token with its mark (AKIA…, ghp_…, sk-…), a private key, "
        "a password in a URL, or a value after words like `the password is`. It is shown by its kind and length, "
        "never itself. Ids and digests, which mem0 writes, are none. What has no such form is not found.",
        to_do="\n".join(
            (
                "First change it where it is used: whoever could read the store, its snapshots or its log had it.",
                "Then have it deleted everywhere, with the agent stopped (--redact empties the log's text too):",
                commands("mem0audit delete --memory MEMORY_ID --redact --dry-run"),
                "In the log alone, of a memory that is gone: the same command with its id. In chat messages: of the "
                "whole scope, as `mem0audit residue --user USER` says. Snapshots keep it until they expire.",
                "So that it does not come again: have the agent extract from the user's own turns only, and never "
                "store credentials (mem0's custom prompts can say so; they are no guard).",
            )
        ),
    ),
    Rule(
        code="S802",
        name="not-from-user",
        severity=Severity.LOW,
        summary="The memory came from the assistant or a tool, not from the user.",
        comes_about="mem0 2.x extracts from assistant turns too; infer=False stores whatever role it is given. So "
        "what a web page or a file said can become a memory.",
        looks_like="role or attributed_to in the payload is not the user (mem0 writes role for infer=False from "
        "0.1.100 on, attributed_to from 2.0.0 on). Counted for each collection; each one that also reads as an order "
        "(S803) is high. A memory with neither says nothing of where it came from, and is not counted.",
        to_do="\n".join(
            (
                "Read those that are high, and ask the user whether they hold (`mem0audit show` names the role):",
                commands("mem0audit show MEMORY_ID"),
                "What prevents it: extract from user turns only. What nobody can vouch for is better deleted:",
                commands("mem0audit delete --memory MEMORY_ID --dry-run"),
            )
        ),
    ),
    Rule(
        code="S803",
        name="instruction-like",
        severity=Severity.INFO,
        summary="The text reads as a standing order to the agent, not as a fact.",
        comes_about="The user asked for it (`always answer in French`), a prompt was stored as a memory, or "
        "somebody planted it through what the agent read.",
        looks_like="Wording that speaks to the agent, tells it what to do from now on, sets aside what it was told, "
        "leaves checks out, allows everything beforehand, keeps things from the user, has others obeyed or sends "
        "things away; look-alike letters, invisible characters and long texts around it do not hide it. Quotations, "
        "stories, the rules of a firm and what was done once are left alone. It is judged by form, in English: an "
        "order put as a plain fact (`Marta speaks for me`), in rare words or in another language has none, and is "
        "not seen.",
        threshold="Measured. On the texts that it was built with: 64 of 64 attacks seen, 0 of 527 ordinary memories "
        "called one. On texts whose author had not seen it: 37 of 70, and 0 of 520.",
        to_do="\n".join(
            (
                "An order of the user's own is fine. Of one that is not, find out where it came from first:",
                commands("mem0audit show MEMORY_ID", "mem0audit delete --memory MEMORY_ID --dry-run"),
            )
        ),
    ),
    Rule(
        code="S804",
        name="deleted-text-kept",
        severity=Severity.INFO,
        summary="The text of deleted memories is still in the log, or in the chat messages beside it.",
        comes_about="By design of mem0, in every version: a DELETE row holds the whole old text, and the rows "
        "before it stay. mem0 2.0.0 and later also keep the last 10 messages of each session scope, which no "
        "deletion touches; reset() leaves them in 2.0.0 to 2.0.7.",
        looks_like="History rows with text of memories whose last event is DELETE; rows of `messages`. The owner "
        "of a history row is recorded nowhere once its memory is gone.",
        to_do="\n".join(
            (
                "For ordinary use this is the log doing its work. After a request for erasure it is text that "
                "is left: say so, and do not call the erasure complete.",
                "To see whose, and where else it is, and to empty it with the agent stopped (the rows stay, with "
                "their events and times; entities go too, files are rebuilt, every byte is searched):",
                commands(
                    "mem0audit residue --user alice", "mem0audit delete --user alice --redact --dry-run"
                ),
                "Or for single memories, the ids from `mem0audit log`:",
                commands("mem0audit delete --memory MEMORY_ID --redact --dry-run"),
                "No snapshot is taken first: it would hold the text as well (--snapshot-for 24h takes one for a "
                "day). Rows that nobody can be found for are counted and stay.",
            )
        ),
    ),
    Rule(
        code="S805",
        name="telemetry-store",
        severity=Severity.INFO,
        summary="mem0's own telemetry collection: an install id, no memories.",
        comes_about="mem0 0.1.89 and 0.1.92 to 1.0.5 make it even with telemetry off, 1.0.6 and later only with "
        "telemetry on: migrations_qdrant in MEM0_DIR, or a collection in your own server.",
        looks_like="A collection mem0migrations, mem0-migrations or mem0_migrations, with a point of type "
        "user_identity.",
        to_do="Nothing has to be done; it is counted apart. MEM0_TELEMETRY=False in the agent's environment "
        "stops it. If such a collection holds memories, a mem0 of 0.1.89 or 0.1.92 to 0.1.116 put them there: "
        "a second Memory made from one configuration used the wrong collection.",
    ),
)
