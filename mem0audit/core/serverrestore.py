"""A restore onto a Qdrant server: what it meets, and what it notes before it changes anything."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from mem0audit.core.restore import NotAnIntent, Piece, is_replaced_name, staging_beside
from mem0audit.core.snapshot import CollectionCopy, CopyRole, safe_collection

FORMAT: Final = 1
KIND: Final = "mem0audit-server-restore"


@dataclass(frozen=True)
class ServerPiece:
    """One collection as a restore meets it: `name` on the server, `path` its file in the snapshot, `exists` whether it
    is there and will be replaced."""

    role: CopyRole
    name: str
    path: str
    exists: bool
    copy: CollectionCopy


@dataclass(frozen=True)
class ServerTarget:
    """The server that a snapshot is put onto. `folder` is where the snapshot of what is there goes, None for a restore
    into new collections."""

    url: str
    version: str
    collections: tuple[ServerPiece, ...]
    folder: str | None = None


@dataclass(frozen=True)
class ServerIntent:
    """What was going to be put in place of what; written before the first change, beside the log.

    `snapshot` is put back, `kept` is the snapshot of what was there (None where there was nothing), `names` are the
    collections on the server by their paths in the snapshot. `pieces` are those of the log. With `done` both stores
    were found to be the snapshot's.

    `erased` are the salts of the erasures that were looked for; with `copied` somebody was erased: what is put back is
    not the snapshot, but the copy of it in the staging folder.
    """

    snapshot: str
    kept: str | None
    started_at: str
    url: str
    history: str
    names: Mapping[str, str]
    pieces: tuple[Piece, ...]
    done: bool = False
    erased: tuple[str, ...] = ()
    copied: bool = False


def intent_text(intent: ServerIntent) -> str:
    """The intent file: JSON, ASCII."""
    return json.dumps({"kind": KIND, "format": FORMAT, **asdict(intent)}, indent=1, ensure_ascii=True) + "\n"


def parse_intent(data: bytes) -> ServerIntent:
    """An intent file, read strictly. Raises NotAnIntent."""
    try:
        raw = json.loads(data.decode("ascii"))
        if raw.pop("kind") != KIND:
            raise NotAnIntent("is no intent of a restore onto a server")
        if raw.pop("format") != FORMAT:
            raise NotAnIntent("is of another version of mem0audit")
        pieces = tuple(Piece(**piece) for piece in raw.pop("pieces"))
        intent = ServerIntent(**{**raw, "pieces": pieces, "erased": tuple(raw.pop("erased", ()))})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NotAnIntent("does not read") from None
    if not _sound(intent):
        raise NotAnIntent("names what no restore would touch")
    return intent


def _sound(intent: ServerIntent) -> bool:
    texts: list[Any] = [intent.snapshot, intent.started_at, intent.url, intent.history]
    texts += [*intent.erased, *([] if intent.kept is None else [intent.kept])]
    if not all(isinstance(text, str) for text in texts):
        return False
    if not isinstance(intent.done, bool) or not isinstance(intent.copied, bool):
        return False
    if not isinstance(intent.names, dict) or not all(
        isinstance(path, str) and isinstance(name, str) and safe_collection(name)
        for path, name in intent.names.items()
    ):
        return False
    staging = f"{staging_beside(intent.history)}/"
    for piece in intent.pieces:
        paths = [piece.target, piece.aside, *([] if piece.staged is None else [piece.staged])]
        if not all(isinstance(p, str) and p.startswith("/") and ".." not in p.split("/") for p in paths):
            return False
        if piece.target != intent.history and not piece.target.startswith(f"{intent.history}-"):
            return False
        if piece.staged is not None and not piece.staged.startswith(staging):
            return False
        if not is_replaced_name(piece.aside) or not isinstance(piece.sums, dict):
            return False
        if not all(i is None or isinstance(i, str) for i in (piece.old, piece.new)):
            return False
    return True


def alike(one: Any, other: Any) -> bool:
    """Whether two parameters of a collection say the same, as far as both say something: a newer server says more."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(alike(value, other[key]) for key, value in one.items() if key in other)
    return type(one) is type(other) and bool(one == other)


def cannot_take(snapshot: str, server: str) -> str | None:
    """Why a server of this version would not take a snapshot of that one; None where it may. Qdrant promises the same
    minor version, and one step up; it does not go down."""
    had, has = _minor(snapshot), _minor(server)
    if had is None or has is None or had == has:
        return None
    if has < had:
        return f"the server is Qdrant {server}, older than {snapshot}, which made the snapshot"
    return None


def far_newer(snapshot: str, server: str) -> bool:
    """Whether the server is more than one minor version newer: it may or may not take it."""
    had, has = _minor(snapshot), _minor(server)
    return had is not None and has is not None and has > (had[0], had[1] + 1)


def _minor(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return None if found is None else (int(found[1]), int(found[2]))
