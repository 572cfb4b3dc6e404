"""What a move is: its plan, the intent that makes it whole after any interruption, and what it says.

The copies are proven while nobody has the stores open, before the intent is written. From then on nothing has to be
judged again: each new store gets its name, then each old one its dated name, all by renames. What lies where is told
as for a restore (see `core.restore`); `decide` says what is done about a move that was cut off.

A move to a Qdrant server will have another `Destination` than a folder: it begins with the same pair and the same stop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from mem0audit.core.model import Agent, Holder, Install
from mem0audit.core.restore import REPLACED, Half, NotAnIntent, Piece, Where, is_replaced_name
from mem0audit.core.snapshot import Manifest, NotAManifest, parse_manifest
from mem0audit.core.versions import wipes_folder_at_start
from mem0audit.core.words import shell_words

FORMAT: Final = 1
KIND: Final = "mem0audit-relocate"
INTENT: Final = "intent.json"
STAGING: Final = ".mem0audit-relocating"
"""The folder that a move works in, beside the new folder, ends so."""
PAIR: Final = ".pair"
"""The folder of the pair that is taken while the agent runs: the new folder's name, and this."""
HISTORY: Final = "history.db"
"""The name of the log at the new place, beside the new folder."""

Way = Literal["pair", "move", "publish"]
"""What a run does next: takes the pair beside the running agent, moves the stores of a stopped one, or publishes the
pair because the stores went with the agent."""
OldState = Literal["same", "changed", "aside", "gone"]
"""Of an old store after a move was cut off: as it was copied; written to since; under its dated name; not there."""
Course = Literal["clean", "finish", "back", "stuck"]
"""What is done about it: what it left is cleared away, it is finished, it is taken back, or it cannot be told."""


@dataclass(frozen=True)
class Destination:
    """Where the stores go, links followed: the new folder, and the log's new file where that moves too. `staging` is
    the folder that the move works in, `pair` the one with the snapshots that are taken before it."""

    vectors: str
    history: str | None
    staging: str
    pair: str


def destination(to: str, with_history: bool) -> Destination:
    """The places of a move to the folder `to` (absolute, links followed)."""
    folder, _, name = to.rpartition("/")
    return Destination(
        vectors=to,
        history=f"{folder}/{HISTORY}" if with_history else None,
        staging=f"{folder}/.{name[:200]}{STAGING}",
        pair=f"{folder}/{name[:200]}{PAIR}",
    )


# --- The intent -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MoveIntent:
    """What was going to be renamed to what, written when the copies were proven.

    `published` are the new stores, from the staging folder to their places; `retired` the old ones, from theirs to
    their dated names, with the sums that they had as they were copied. `history` and `vectors` are where both stores
    lie when it is done, `old_history` and `old_vectors` where they lay.
    """

    started_at: str
    staging: str
    history: str
    vectors: str
    old_history: str
    old_vectors: str
    published: tuple[Piece, ...]
    retired: tuple[Piece, ...]
    manifest: str
    pair: str | None = None
    """The snapshot that was published, where the old vectors were gone."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All of them, in their order."""
        return self.published + self.retired


def intent_text(intent: MoveIntent) -> str:
    """The intent file: JSON, ASCII."""
    return json.dumps({"kind": KIND, "format": FORMAT, **asdict(intent)}, indent=1, ensure_ascii=True) + "\n"


def parse_intent(data: bytes) -> MoveIntent:
    """An intent file, read strictly. Raises NotAnIntent."""
    try:
        raw = json.loads(data.decode("ascii"))
        if raw.pop("kind") != KIND:
            raise NotAnIntent("is no intent of a move")
        if raw.pop("format") != FORMAT:
            raise NotAnIntent("is of another version of mem0audit")
        published, retired = (tuple(Piece(**p) for p in raw.pop(key)) for key in ("published", "retired"))
        intent = MoveIntent(**raw, published=published, retired=retired)
        parse_manifest(intent.manifest.encode("ascii"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, NotAManifest):
        raise NotAnIntent("does not read") from None
    if not _sound(intent):
        raise NotAnIntent("names what no move would touch")
    return intent


def _sound(intent: MoveIntent) -> bool:
    """Whether every path is one that a move of these two stores makes."""
    texts = [intent.started_at, intent.staging, intent.history, intent.vectors, intent.old_history]
    if not all(isinstance(text, str) for text in (*texts, intent.old_vectors)):
        return False
    if not (intent.pair is None or isinstance(intent.pair, str)) or not _stem(intent.started_at):
        return False
    if intent.staging != destination(intent.vectors, False).staging:
        return False
    if not intent.published or not all(map(_plain, intent.pieces)):
        return False
    new = {intent.vectors, intent.history}
    if any(
        p.target not in new or (p.staged or "").rpartition("/")[0] != intent.staging for p in intent.published
    ):
        return False
    old = (intent.old_history, intent.old_vectors)
    return all(
        p.staged is None
        and p.aside.startswith(f"{p.target}.replaced-")
        and is_replaced_name(p.aside)
        and (p.target in old or p.target.startswith(f"{intent.old_vectors}/"))
        for p in intent.retired
    )


def _stem(text: str) -> bool:
    return REPLACED.fullmatch(f"replaced-{text}") is not None


def _plain(piece: Piece) -> bool:
    paths = [piece.target, piece.aside, *([piece.staged] if piece.staged is not None else [])]
    if not all(isinstance(p, str) and p.startswith("/") and ".." not in p.split("/") for p in paths):
        return False
    if not all(i is None or isinstance(i, str) for i in (piece.old, piece.new)):
        return False
    sums = piece.sums
    return isinstance(sums, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in sums.items())


# --- How far it came ----------------------------------------------------------------------------------


def old_state(where: Where, target_there: bool, unchanged: bool) -> OldState:
    """Of an old store, by what lies where (see core.restore.where) and, where it is still in its place, whether it
    holds the bytes that were copied."""
    if where == "after":
        return "aside"
    if where == "before" and target_there:
        return "same" if unchanged else "changed"
    return "gone"


def decide(new: Sequence[Where], old: Sequence[OldState], *, untouched: bool) -> Course:
    """What is done about a move that was cut off.

    `untouched`: the published copies hold the bytes that were proven. The copies are given up only where all the old
    stores are still in their places: where one is gone (a reboot took it), the copy is the last one there is.
    """
    if not all(one in ("before", "after") for one in new):
        # a copy is gone, or somebody made something of its name
        return "clean" if "after" not in new and set(old) <= {"same", "changed"} else "stuck"
    if "changed" not in old or "aside" in old:
        return "finish"
    if "gone" in old:
        return "stuck"
    return "back" if untouched else "stuck"


# --- What came in between -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Since:
    """How a store differs from the pair that was taken of it before: memories by number.

    `vanished` are gone although no row of the log deletes them: somebody emptied the store, or it is another one.
    """

    added: int
    changed: int
    removed: int
    vanished: int
    of: int
    """How many memories the pair has."""

    @property
    def another_store(self) -> bool:
        """Most of what the pair has is not there, and was not deleted."""
        return self.vanished * 2 > self.of


def since(was: Mapping[str, Any], now: Mapping[str, Any], deleted: frozenset[str] | set[str]) -> Since:
    """What changed from `was` to `now` (memory id -> what it holds); `deleted` are the ids that the log deletes."""
    gone = was.keys() - now.keys()
    return Since(
        added=len(now.keys() - was.keys()),
        changed=sum(1 for i in now.keys() & was.keys() if now[i] != was[i]),
        removed=len(gone & deleted),
        vanished=len(gone - deleted),
        of=len(was),
    )


@dataclass(frozen=True)
class Lost:
    """What was written between the pair and the stop, and went with the old stores.

    `rows` are the changes that the log has since, None where it went too; `memories` those of which the newest text
    is in the log alone, `deleted` those that were deleted since and are in the published vectors again.
    """

    taken_at: str
    rows: int | None = None
    memories: int = 0
    deleted: int = 0


# --- What the command plans and says --------------------------------------------------------------------


@dataclass(frozen=True)
class CutOff:
    """A move that was cut off. `problem`: why it cannot be told how far it came; then `course` is "stuck"."""

    folder: str
    started_at: str | None
    course: Course
    problem: str | None = None


@dataclass(frozen=True)
class LeftMove:
    """A move of an install that was cut off: from where to where (a folder, or the address of a server). `history` and
    `vectors` are where both stores lay; None where that is not known (nothing was moved then)."""

    cut: CutOff
    to: str
    history: str | None = None
    vectors: str | None = None
    with_history: bool = False

    @property
    def to_server(self) -> bool:
        """It went to a server: the old store is as it was, and what was carried lies there."""
        return "://" in self.to

    @property
    def command(self) -> str | None:
        """What settles it; None where that is not known."""
        if self.history is None or self.vectors is None:
            return None
        vectors = "--qdrant-url" if "://" in self.vectors else "--qdrant-path"
        to = "--to-url" if self.to_server else "--to"
        words = ["--history", self.history, vectors, self.vectors, to, self.to]
        return f"mem0audit relocate {shell_words(words)}{' --with-history' if self.with_history else ''}"


@dataclass(frozen=True)
class RelocatePlan:
    """What `relocate` would do. `install` is as it was named, `seen` as the agent has it (its stores may lie under
    another process's root); `to` is the new folder as it was named.

    `pair` is the newest good snapshot of an earlier run. `needed_bytes` must be free at the new place.
    """

    install: Install
    seen: Install
    to: str
    where: Destination
    way: Way
    agent: Agent
    holders: tuple[Holder, ...] = ()
    dies: bool = False
    """A store goes when the agent stops."""
    with_history: bool = False
    filesystem: str | None = None
    size_bytes: int = 0
    needed_bytes: int = 0
    free_bytes: int | None = None
    pair: str | None = None
    warnings: tuple[str, ...] = ()
    unseen: str | None = None
    cut_off: CutOff | None = None
    moved: bool = False
    """All is at the new place: only what a run that was cut off at its very end left is to be cleared away."""
    ledger: bool = True
    more: tuple[str, ...] = ()
    """What else was asked for, as flags: a command that is printed has them too."""


@dataclass(frozen=True)
class Relocated:
    """What `relocate` did.

    `state` is "waiting" (the pair is taken, the agent still runs), "moved", or "published" (the pair is at the new
    place, since the old stores went with the agent). `history` and `vectors` are where both stores lie now.
    """

    state: Literal["waiting", "moved", "published"]
    history: str
    vectors: str
    manifest: Manifest
    replaced: tuple[str, ...] = ()
    pair: str | None = None
    """The snapshot of both stores that was taken with the agent running, where it is still there."""
    holders: tuple[Holder, ...] = ()
    history_moved: bool = False
    since: Since | None = None
    lost: Lost | None = None
    warnings: tuple[str, ...] = ()
    settled: CutOff | None = None
    resumed: bool = False
    seconds: float = 0.0


def never_safe(agent: Agent) -> bool:
    """Whether the agent's mem0 deletes its folder at every start, whatever its configuration says."""
    return wipes_folder_at_start(agent.mem0_version, True) is True


def pieces_of(half: Half, target: str, stem: str, old: str | None, sums: Mapping[str, str]) -> Piece:
    """An old store, or a part of one, that gets its dated name."""
    return Piece(half, target, None, f"{target}.replaced-{stem}", old, None, sums)
