"""What a restore is: its plan, the intent that makes it whole after any interruption, and its results.

In place both stores are staged beside their targets and then exchanged, piece by piece. What lies where is told
by the identity that a filesystem gives each file, and that a rename keeps: after a kill or a power cut, the intent
and the disk together say how far it came, and `decide` what is done about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Literal

from mem0audit.core.erasures import Covering
from mem0audit.core.model import Agent, Install, PointId
from mem0audit.core.snapshot import Manifest, NotAManifest, parse_manifest
from mem0audit.core.versions import can_read, log_at_start, oldest_client_that_reads, wipes_folder_at_start

FORMAT: Final = 1
KIND: Final = "mem0audit-restore"
INTENT: Final = "intent.json"
STAGING: Final = ".mem0audit-restoring"
"""The folder that a restore works in, beside its target, ends so."""

REPLACED: Final = re.compile(r"(replaced|restored)-\d{4}-\d{2}-\d{2}T\d{6}Z(-[1-9]\d{0,3})?", re.ASCII)
"""How the name of what a restore put aside goes on, after the name of what it was. `restored` is a copy that was
put in place, written to, and taken back."""

Half = Literal["history", "vectors"]
Where = Literal["before", "between", "after", "other"]
"""How far one piece is: untouched, moved aside and not followed yet, exchanged, or none of these."""
Course = Literal["clean", "finish", "back", "stuck"]
"""What is done about an interrupted restore: nothing was exchanged (only leftovers are cleared away), it is
finished, it is rolled back, or it cannot be told apart and is left as it is."""


@dataclass(frozen=True)
class Target:
    """One store of an install as a restore meets it. `path` is as it was named, `real` with its links followed.

    `way` is "rename" (the whole file or folder is exchanged) or "inside" (the folder is a mount point, so what is
    in it is). `staging` is the folder beside it, or in it, that the new one is made in.
    """

    half: Half
    path: str
    real: str
    way: Literal["rename", "inside"]
    exists: bool
    staging: str
    filesystem: str | None = None
    volatile: bool = False


@dataclass(frozen=True)
class Piece:
    """One file or folder that is exchanged. `old` and `new` are identities (see `same`); `old` None: none was there.

    `staged` None: the old one is only put aside (a journal that would be taken for the new file's). `sums` are the
    SHA-256 of the new files by path below it ("" for the file itself).
    """

    half: Half
    target: str
    staged: str | None
    aside: str
    old: str | None
    new: str | None
    sums: Mapping[str, str]

    @property
    def changed_aside(self) -> str:
        """Where the new one goes when it is taken back after somebody wrote to it."""
        folder, slash, name = self.aside.rpartition("/")
        return folder + slash + name.replace("replaced-", "restored-", 1)


@dataclass(frozen=True)
class Intent:
    """What was going to be exchanged with what; written before the first exchange, beside both stores.

    `history` and `vectors` are the live paths, `staging` the folders that hold the staged copies. `manifest` is
    the snapshot's own file, so that the result can be judged without the snapshot; where somebody was erased in the
    copies, with what they hold since. `erased` are the salts of the erasures that they were brought up to. `audited`:
    the result was found right, and from here on nothing is taken back.
    """

    snapshot: str
    started_at: str
    history: str
    vectors: str
    staging: tuple[str, ...]
    pieces: tuple[Piece, ...]
    manifest: str
    audited: bool = False
    erased: tuple[str, ...] = ()


class NotAnIntent(Exception):
    """The file says nothing that an intent says; one line."""


def intent_text(intent: Intent) -> str:
    """The intent file: JSON, ASCII."""
    body = {"kind": KIND, "format": FORMAT, **asdict(intent)}
    return json.dumps(body, indent=1, ensure_ascii=True) + "\n"


def parse_intent(data: bytes) -> Intent:
    """An intent file, read strictly. Raises NotAnIntent."""
    try:
        raw = json.loads(data.decode("ascii"))
        if raw.pop("kind") != KIND:
            raise NotAnIntent("is no intent of a restore")
        if raw.pop("format") != FORMAT:
            raise NotAnIntent("is of another version of mem0audit")
        pieces = tuple(Piece(**piece) for piece in raw.pop("pieces"))
        erased = tuple(raw.pop("erased", ()))
        intent = Intent(**{**raw, "pieces": pieces, "staging": tuple(raw["staging"]), "erased": erased})
        parse_manifest(intent.manifest.encode("ascii"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, NotAManifest):
        raise NotAnIntent("does not read") from None
    if not _sound(intent):
        raise NotAnIntent("names what no restore would touch")
    return intent


def _sound(intent: Intent) -> bool:
    """Whether every path is one that a restore of these two stores makes."""
    texts = [intent.snapshot, intent.history, intent.vectors, intent.started_at, *intent.staging]
    texts += intent.erased
    if not all(isinstance(text, str) for text in texts) or not isinstance(intent.audited, bool):
        return False
    for piece in intent.pieces:
        paths = [piece.target, piece.aside, *([piece.staged] if piece.staged is not None else [])]
        identities = [piece.old, piece.new]
        if not all(isinstance(p, str) and p.startswith("/") and ".." not in p.split("/") for p in paths):
            return False
        if not all(i is None or isinstance(i, str) for i in identities) or not isinstance(piece.sums, dict):
            return False
        stores = (intent.history, intent.vectors)
        if not any(piece.target == s or piece.target.startswith((s + "-", s + "/")) for s in stores):
            return False
        if piece.staged is not None and not piece.staged.startswith(tuple(f"{s}/" for s in intent.staging)):
            return False
        if not is_replaced_name(piece.aside):
            return False
    beside = (staging_beside(intent.history), staging_beside(intent.vectors), staging_inside(intent.vectors))
    return len(intent.staging) == 2 and set(intent.staging) <= set(beside)


def staging_beside(real: str) -> str:
    """The staging folder of a store (links followed), in the folder that it lies in."""
    folder, _, name = real.rpartition("/")
    return f"{folder}/.{name[:200]}{STAGING}"


def staging_inside(real: str) -> str:
    """The staging folder of a vector store that is itself a mount point."""
    return f"{real}/{STAGING}"


def is_replaced_name(path: str) -> bool:
    """Whether a path is named as what a restore puts aside: `…/history.db.replaced-2026-11-30T023000Z`, its
    journals too, or `collection.replaced-…` inside a folder that is a mount point."""
    name = path.rpartition("/")[2]
    for side in ("-wal", "-shm", "-journal"):
        name = name.removesuffix(side)
    return bool(REPLACED.fullmatch(".".join(name.split(".")[-1:])))


# --- How far it came ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """The identities of what lies at a piece's three places; None where nothing lies."""

    target: str | None
    staged: str | None
    aside: str | None


def same(one: str | None, other: str | None) -> bool:
    """Whether two identities are of the same file or folder, or both of none.

    An identity is an inode number and, after a colon, the handle that the kernel has for the file where it gives
    one: a number alone is used again as soon as a file is removed (seen at once with ext4).
    """
    if one is None or other is None:
        return one is other
    (inode, _, handle), (its_inode, _, its_handle) = one.partition(":"), other.partition(":")
    return inode == its_inode and (not handle or not its_handle or handle == its_handle)


def where(piece: Piece, found: Found) -> Where:
    """How far one piece is, by what lies where."""
    if piece.new is None:
        if same(found.target, piece.old):
            return "before"
        return "after" if same(found.aside, piece.old) else "other"
    if same(found.target, piece.new):
        return "after"
    if same(found.staged, piece.new):
        if same(found.target, piece.old):
            return "before"
        if found.target is None and piece.old is not None and same(found.aside, piece.old):
            return "between"
    return "other"


def is_behind(salts: Iterable[str], erased: Iterable[str], *, audited: bool) -> bool:
    """Whether one that was cut off must not be finished: its copies may hold somebody who was erased since."""
    return not audited and not set(salts) <= set(erased)


def decide(places: Sequence[Where], *, audited: bool, untouched: bool) -> Course:
    """What is done about an interrupted restore.

    `untouched`: what was exchanged and what is still staged are the bytes that were staged. A pair that is whole
    and new is kept, even where an agent has written to it since; a half is completed only with what was proven.
    """
    if all(one == "before" for one in places):
        return "clean"
    if audited:
        return "finish"
    if all(one == "after" for one in places):
        return "finish"
    if any(one == "other" for one in places):
        return "back"
    return "finish" if untouched else "back"


# --- What the commands plan and say ---------------------------------------------------------------


@dataclass(frozen=True)
class Interrupted:
    """A restore that was cut off. `course` is what the next `snapshot restore --in-place` does about it.

    `places` says of each piece (target path) how far it is. `problem`: why it cannot be told; then `course` is
    "stuck".
    """

    folder: str
    snapshot: str | None
    started_at: str | None
    course: Course
    places: tuple[tuple[str, Where], ...] = ()
    problem: str | None = None
    audited: bool = False
    erased: tuple[str, ...] = ()
    """The salts of the erasures that its copies were brought up to."""


@dataclass(frozen=True)
class ToErase:
    """What a copy holds of those who were erased since it was taken, in counts: by how many `erasures`, memories,
    entities that link nothing else and links of the others, rows of the log with text, messages.

    `unattributed` are (rows, memories) of the log that nobody can be found for: their text stays. `mem0` is the version
    that they are deleted under, None where none is needed; `own` where that is mem0audit's own, `user` the uid that it
    is run as where that is another than ours. `ids` are the points by collection, `ever` all memories that are known to
    have been theirs, `spared` those that were made after the erasure, `losing` the entities that lose links, by
    collection; `texts` (in no report) every text of theirs.
    """

    erasures: int = 0
    memories: int = 0
    entities: int = 0
    links: int = 0
    rows: int = 0
    messages: int = 0
    unattributed: tuple[int, int] = (0, 0)
    mem0: str | None = None
    interpreter: str | None = None
    how_found: str | None = None
    own: bool = False
    user: int | None = None
    not_read: tuple[str, ...] = ()
    """Other snapshots that could not be asked whose the rows are."""
    covering: Covering = field(default_factory=lambda: Covering(()), repr=False, compare=False)
    ids: Mapping[str, tuple[PointId, ...]] = field(default_factory=dict, repr=False)
    ever: frozenset[str] = field(default=frozenset(), repr=False)
    spared: frozenset[str] = field(default=frozenset(), repr=False)
    losing: Mapping[str, Mapping[PointId, tuple[str, ...]]] = field(default_factory=dict, repr=False)
    gone: Mapping[str, frozenset[PointId]] = field(default_factory=dict, repr=False)
    """Those of them that are deleted."""
    texts: tuple[str, ...] = field(default=(), repr=False)

    @property
    def anything(self) -> bool:
        """Something of theirs is in the copy."""
        return bool(self.memories or any(self.losing.values()) or self.rows or self.messages)

    @property
    def salts(self) -> tuple[str, ...]:
        """The salts of all erasures that were looked for."""
        return tuple(one.salt for one in self.covering.erasures)


@dataclass(frozen=True)
class RestorePlan:
    """What `snapshot restore` would do: into `to`, a new folder, or in place of an install's own stores.

    `needed_bytes` must be free in each place. `unseen` says why some processes could not be looked at: then the
    lock that Qdrant's client takes decides. `interrupted` is settled first.
    """

    snapshot: str
    manifest: Manifest
    to: str | None = None
    install: Install | None = None
    targets: tuple[Target, ...] = ()
    warnings: tuple[str, ...] = ()
    unseen: str | None = None
    interrupted: Interrupted | None = None
    ledger: bool = True
    """The ledger is read, and the restore put to its chain of seals."""
    not_read: tuple[str, ...] = ()
    """Records of erasures that could not be read, where the user said to go on without."""
    erase: ToErase = field(default_factory=ToErase)
    """Who was erased since, and is erased in the copies before they are put in place."""
    agent_python: str | None = None
    """The agent's Python, where it was named and there is no install."""
    lost: str | None = None
    """Why the snapshot cannot be read any more: then what was cut off is settled, and nothing begun."""


@dataclass(frozen=True)
class Restored:
    """What `snapshot restore` did. `history` and `vectors` are where both stores lie now, `replaced` what was put
    aside. `settled` is what was found of an interrupted restore, and `resumed` true where that was this one and it
    was only finished. `not_audited`: why the result was not compared with the manifest again."""

    snapshot: str
    manifest: Manifest
    history: str
    vectors: str
    in_place: bool
    replaced: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    settled: Interrupted | None = None
    resumed: bool = False
    not_audited: str | None = None
    behind: bool = False
    """It was finished, and somebody was erased since it was staged."""
    erased: ToErase | None = None
    """What was erased in it before it was put in place."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Kept:
    """One thing that was put aside, as recorded: its path and identity, when, and by what `work`: a "restore" (of
    which `snapshot`) or a "move" (then `snapshot` is the folder that it went to)."""

    path: str
    identity: str
    snapshot: str
    at: str
    work: str = "restore"


@dataclass(frozen=True)
class DiscardPlan:
    """What `--discard-replaced` removes: those of the record that are still there, with their sizes in bytes; `others`
    of it stay."""

    record: str
    kept: tuple[Kept, ...]
    sizes: tuple[int, ...]
    others: tuple[Kept, ...] = ()


def record_text(kept: Iterable[Kept]) -> str:
    """The record of what was put aside: JSON, ASCII."""
    return json.dumps({"kind": f"{KIND}-record", "kept": [asdict(one) for one in kept]}, indent=1) + "\n"


def parse_record(data: bytes) -> tuple[Kept, ...]:
    """A record, read strictly. Raises NotAnIntent."""
    try:
        raw = json.loads(data.decode("ascii"))
        if raw["kind"] != f"{KIND}-record":
            raise NotAnIntent("is no record of what restores put aside")
        kept = tuple(Kept(**one) for one in raw["kept"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NotAnIntent("does not read") from None
    if not all(
        isinstance(k.identity, str) and isinstance(k.path, str) and is_replaced_name(k.path) for k in kept
    ):
        raise NotAnIntent("names what no restore put aside")
    return kept


# --- What the agent will make of it -----------------------------------------------------------------


def warnings_for(
    manifest: Manifest,
    schema: str | None,
    config_keys: Iterable[str],
    agent: Agent | None,
    on_disk: bool | None,
) -> tuple[str, ...]:
    """What a user must know before the agent opens the restored stores, as sentences.

    `schema` is that of the snapshot's log, `config_keys` those of its meta.json; `agent` None: no agent is meant.
    """
    said = []
    if not manifest.pair:
        said.append(f"NOT A PAIR: its halves were not taken together ({manifest.unsettled_why}).")
    elif not manifest.settled:
        said.append(f"Not settled when it was taken: {manifest.unsettled_why}.")
    mem0 = agent.mem0_version if agent is not None else None
    client = agent.client_version if agent is not None else None
    oldest = oldest_client_that_reads(config_keys)
    if mem0 is None or client is None:
        said += _for_unknown(schema, oldest)
    if wipes_folder_at_start(mem0, on_disk):
        said.append(
            f"The agent's mem0 {mem0} deletes the vector folder each time it starts: set on_disk to true or update "
            "mem0 first (mem0audit explain L110)."
        )
    said += _of_the_log(mem0, schema)
    if client is not None and can_read(client, config_keys) is False:
        needed = f"{oldest} or later" if oldest is not None else "a later version"
        said.append(f"The agent's qdrant-client {client} cannot open these vectors: it takes {needed}.")
    return tuple(said)


def _for_unknown(schema: str | None, oldest: str | None) -> list[str]:
    """Where the agent's versions are not known: what is needed, in general."""
    needs = f"qdrant-client {oldest} or later" if oldest is not None else "a recent qdrant-client"
    log = {"10 columns": "mem0 0.1.100 or later", "7 columns": "mem0 0.0.2 to 0.1.99"}.get(
        schema or "", "any mem0 but 0.1.100 to 0.1.106"
    )
    return [f"To open it the agent needs {needs}, and {log} (--agent-python checks that)."]


def _of_the_log(mem0: str | None, schema: str | None) -> list[str]:
    fate = log_at_start(mem0, schema)
    if fate is None:
        return []
    what = {
        "migrated": f"The agent's mem0 {mem0} migrates this log ({schema}) at its next start.",
        "loses texts": f"The agent's mem0 {mem0} loses the texts and times of this log ({schema}) as it migrates it.",
        "hangs": f"The agent's mem0 {mem0} hangs as it migrates this log ({schema}): update it to 0.1.107 or later.",
        "fails": f"The agent's mem0 {mem0} cannot open this log ({schema}): its first start fails, and its second "
        "begins an empty log. Update it to 0.1.100 or later.",
    }
    return [what[fate]]
