"""Questions that people ask before they do something, as how-to pages (see `howto`): what is said was tried.

Came back: AsyncMemory.delete_all and a delete_all of 250 under each version named, rows of two pickle protocols, restored
vectors. By hand: qdrant-client 1.20.0 and mem0 2.2.1 beside edits and readers. Server: 1.16.3, one and three nodes, each
command, and the files searched afterwards.
"""

# ruff: noqa: E501 (a paragraph is one line)

from __future__ import annotations

from typing import Final

CAME_BACK: Final = """\
First see what came back: the very memory (the same id), or another one that says the same.
    mem0audit show ID --timeline
    mem0audit audit --select D,I
The same id, and its timeline ends with DELETE (D301)
mem0 wrote the deletion into its log, and the point stayed or was put back. What does that: AsyncMemory.delete_all on an embedded store, whose points are back after a restart (0.1.114 to 2.2.1); vectors put back from a copy of before; several threads deleting at once; a qdrant-client before 1.20 under another Python than the one that wrote the point (I209). With the agent stopped this has it deleted again, through mem0:
    mem0audit repair D301 --dry-run
Afterwards delete one at a time with the ordinary Memory, not AsyncMemory, and look again after a restart.
The same id, and there is no DELETE
It was never deleted. delete_all stops after 100 memories in mem0 up to 2.0.14, and reports success; an owner that is stored with a space, or as a number, is not found by name. The first command marks those, the second shows all that is somebody's, however it is spelled:
    mem0audit users
    mem0audit delete --user ID --dry-run
Another id
It was learned again. mem0 2.x keeps the last ten chat messages of a session, gives them to the next extraction, and does not delete them with a memory; a prompt, a file or a tool of the agent's may say it too. What of it can still be read, and where:
    mem0audit residue --memory ID
    mem0audit residue --user ID
So that no restore brings it back
A snapshot of before holds it. A deletion by mem0's own delete stands only in the log that the restore replaces; one by mem0audit delete is on record beside the snapshots, and every restore leaves it out.
"""

BY_HAND: Final = """\
Not in the files, whether it runs or not. Through mem0 you may at any time, in the agent:
    memory.update("MEMORY_ID", "the text as it should be")
    memory.delete("MEMORY_ID")
Why not in the vectors (storage.sqlite)
The agent holds all of it in memory: it does not see the change before a restart, and writes over it when it changes that memory. A text that is changed there keeps its old vector and hash: search finds it by what it said before, and when mem0 2.x is told the old text again it takes it for known and drops it.
Why not in the log (history.db)
It is the only record of what happened, and what recover, as-of and every audit go by. A row that is gone or changed is found as a broken chain (H401, H402); a column or an index of your own is dropped when a newer mem0 brings the table up to date.
Why not even look with a program that keeps it open
A SELECT that is not read to its end, in a viewer or a shell, holds a lock: after five seconds the agent's write fails with "database is locked", and where that was its log, a memory without a row stays behind. QdrantClient(path=...) on a store that an agent has open fails, and some versions change the files first. These read beside the agent and hold nothing up:
    mem0audit log
    mem0audit show ID
    mem0audit as-of now --user ID
With the agent stopped
    mem0audit repair CODE --dry-run
    mem0audit delete --memory ID --dry-run
Both go through the agent's own mem0. If it was done by hand already, the audit says what it left; a seal notices the next time:
    mem0audit audit
    mem0audit audit --seal
"""

WRONG: Final = """\
No. A false statement that was stored looks like a true one: text, hash, vector and row in the log are all in order. No audit sees it, and this one does not claim to.
What can be seen
That a text was changed behind mem0's back: it differs from the log (D304) or from its own hash (D305), and with a seal even where log and store were both changed (D310, H408):
    mem0audit audit --seal
That it holds a credential, or is an order and not from the user (S801 to S803):
    mem0audit audit --select S
Who is said to have said it, when it came, and what it said before:
    mem0audit new --since 7d
    mem0audit show ID --timeline
    mem0audit as-of 2026-10-14 --user ID
What prevents it
Let mem0 extract from the user's own turns alone: what a web page, a tool or the assistant said can be anybody's. Never store a credential; a memory is read into every later prompt. Note where a fact is from when you put it down (facts remember --source). And read what was added, every morning, while somebody still knows:
    mem0audit schedule new --mail ann@example.org
You found one
Put it right through mem0 (update, or delete), and see what else came at that time:
    mem0audit as-of DATE --diff DATE2 --user ID
"""

ON_SERVER: Final = """\
Deleted is not gone there: a point is marked, and its bytes stay in two places and in every copy made meanwhile. What there is, in counts and by address:
    mem0audit residue --user ID
Below, U is a collection: the memories' first, then the entities' (NAME_entities). In a cluster one node is enough; the others do it too.
    U=http://10.0.0.5:6333/collections/mem0
In the segments
Qdrant writes one anew when a fifth of its points are deleted and a thousand are in it: for most agents never. Where the payload lies is a setting, and to change it has every segment written anew with what is live, whatever its size. A large collection takes minutes over its index, twice:
    curl -X PATCH "$U" -H "api-key: $QDRANT_KEY" -H 'content-type: application/json' -d '{"params": {"on_disk_payload": false}}'
Wait until its status is green, and set back what it was (true, unless you chose otherwise):
    curl "$U" -H "api-key: $QDRANT_KEY"
    curl -X PATCH "$U" -H "api-key: $QDRANT_KEY" -H 'content-type: application/json' -d '{"params": {"on_disk_payload": true}}'
In the write-ahead log
Every write stays there until newer ones have filled it, twice since one full piece is kept: 64 MB a shard as it comes, and no restart clears it. This fills it with 30 MB that change nothing, a key that no point has taken from no point. Three times, and some ten seconds later it is gone:
    head -c 30000000 /dev/zero | tr '\\0' x | sed 's/.*/{"keys": ["&"], "filter": {"must": [{"has_id": []}]}}/' | curl -X POST "$U/points/payload/delete?wait=true" -H "api-key: $QDRANT_KEY" -H 'content-type: application/json' -d @-
In its snapshots
They are of whole files: one that was taken after the deletion has the deleted points and the log, too, unless the two steps above came first. So has the pair that snapshot create takes of a server. residue names those that lie there; by that address one is removed:
    curl -X DELETE "$U/snapshots/FILE" -H "api-key: $QDRANT_KEY"
"""
