"""How a move ends: finished, or found cut off and settled by the next one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mem0audit.core import relocate as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.errors import Failed, Refused
from mem0audit.core.model import Install, Origin
from mem0audit.core.relocate import CutOff, MoveIntent, OldState, Relocated
from mem0audit.core.restore import NotAnIntent, Piece, same, where
from mem0audit.core.snapshot import Manifest
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.interrupted import record, words
from mem0audit.operations.look import Progress
from mem0audit.operations.seal import explain
from mem0audit.operations.targets import in_use, refuse_holders
from mem0audit.stores import exchange, snapshots

WORK = "move"
"""What its staging folder is for, in errors."""
QDRANTS = ("meta.json", "collection")
"""What of an embedded folder is copied; `.lock` is made anew."""


# --- What a move that was cut off left ---------------------------------------------------------------------


def cut_off(staging: str) -> CutOff | None:
    """A move that was cut off, and what the next one does about it; None where there is none, or it is at work.

    Changes nothing, and raises nothing: what cannot be told is `problem`.
    """
    folder = Path(staging)
    if not os.path.lexists(folder):
        return None
    try:
        if exchange.at_work(folder, WORK):
            return None
        intent = read_intent(folder)
        if intent is None:
            return CutOff(staging, None, "clean")
        return CutOff(staging, intent.started_at, _course(intent))
    except Refused as problem:
        return CutOff(staging, None, "stuck", problem.message)
    except OSError as error:
        return CutOff(staging, None, "stuck", words(error))


def read_intent(folder: Path) -> MoveIntent | None:
    """The intent in a staging folder of this user's own; None where there is none. Raises Refused, OSError."""
    os.close(exchange.own_folder(folder, WORK))
    try:
        return core.parse_intent(snapshots.small_file(folder / core.INTENT))
    except FileNotFoundError:
        return None
    except (NotAnIntent, ValueError) as problem:
        raise Refused(
            f"{folder / core.INTENT}: {problem}", "look at that folder, and move it away by hand"
        ) from None


def _course(intent: MoveIntent) -> core.Course:
    new = [where(piece, exchange.found(piece)) for piece in intent.published]
    return core.decide(new, [_old(intent, piece) for piece in intent.retired], untouched=_untouched(intent))


def _old(intent: MoveIntent, piece: Piece) -> OldState:
    there = where(piece, exchange.found(piece))
    unchanged = there == "before" and old_sums(piece, intent.old_vectors) == dict(piece.sums)
    return core.old_state(there, os.path.lexists(piece.target), unchanged)


def old_sums(piece: Piece, vectors: str) -> dict[str, str]:
    """The sums of an old store, or of a part of one, where it lies: of a Qdrant folder only what is Qdrant's; of a log
    also the journals beside it. Raises OSError."""
    found = exchange.sums_of(Path(piece.target))
    if piece.target == vectors:
        return {path: s for path, s in found.items() if path.split("/")[0] in QDRANTS}
    if piece.half == "history":
        beside = [side for side in exchange.SIDES if os.path.lexists(piece.target + side)]
        found |= dict.fromkeys(beside, "is there")
    return found


def _untouched(intent: MoveIntent) -> bool:
    """Whether what is published holds the bytes that were proven."""
    for piece in intent.published:
        if where(piece, exchange.found(piece)) != "after":
            continue
        beside = any(os.path.lexists(piece.target + side) for side in exchange.SIDES)
        if beside or not exchange.same_sums(Path(piece.target), piece.sums):
            return False
    return True


def settle(
    folder: Path, there: bool, host: Host, say: Progress, *, ledger: bool
) -> tuple[CutOff | None, Relocated | None]:
    """Finishes or takes back what an earlier move left in its staging folder (locked), and clears that away.

    `there`: the folder was there before. Gives what was found, and what was moved where it was finished. Raises
    Refused, Failed.
    """
    try:
        intent = read_intent(folder)
        if intent is None:
            exchange.empty_staging([folder])
            return (CutOff(str(folder), None, "clean") if there else None), None
        say("an earlier move was cut off: settling it", None, None)
        refuse_holders([intent.old_history, intent.old_vectors, intent.history, intent.vectors], host)
        with _locks(intent):
            found = CutOff(str(folder), intent.started_at, _course(intent))
            if found.course == "stuck":
                raise Refused(
                    f"a move to {intent.vectors} was cut off, and both the old and the new place changed since: it "
                    "cannot be told which of them is to be kept",
                    f"look at {intent.old_vectors}, {intent.vectors} and {folder}, and move away the one that is not",
                )
            if found.course == "finish":
                exchange.forward(intent.pieces)
                return found, finish(intent, host, say, ledger=ledger)
            if found.course == "back":
                exchange.back(intent.published)
            exchange.empty_staging([folder])
            return found, None
    except exchange.InUse as problem:
        in_use(problem, None)
    except (OSError, sqlite3.Error) as error:
        raise Failed(
            f"an earlier move was cut off, and could not be settled: {words(error)}",
            "the same command tries again; keep the agent stopped until then",
        ) from None


@contextmanager
def _locks(intent: MoveIntent) -> Iterator[None]:
    """Qdrant's lock of every folder that the intent names and that is there. Raises InUse."""
    places = [
        intent.old_vectors,
        intent.vectors,
        *(p.staged for p in intent.published if p.half == "vectors"),
    ]
    with ExitStack() as stack:
        for place in dict.fromkeys(filter(None, places)):
            if os.path.lexists(f"{place}/.lock"):
                stack.enter_context(exchange.store_locked(Path(place)))
        yield


# --- How one ends ---------------------------------------------------------------------------------------------


def write_intent(intent: MoveIntent) -> None:
    """Writes the intent, on the disk before it returns. Raises OSError."""
    data = core.intent_text(intent).encode("ascii")
    exchange.write_in(Path(intent.staging), core.INTENT, data)


def take_back(intent: MoveIntent, error: OSError) -> None:
    """After a failure while names were given: everything as it was. Raises Failed, which says so."""
    try:
        exchange.back(intent.pieces)
        exchange.remove_staging([Path(intent.staging)])
    except OSError as second:
        raise Failed(
            f"{words(error)}; and then {words(second)}: it is neither finished nor taken back",
            "the same command does one of the two, whole: keep the agent stopped until then",
        ) from None
    raise Failed(f"{words(error)}; it was taken back, both stores are where they were") from None


def finish(intent: MoveIntent, host: Host, say: Progress, *, ledger: bool) -> Relocated:
    """Every store has its name: what was replaced is recorded, the ledger learns where the install lies, and the
    intent goes. Call it while nobody can open the new place. Raises Failed."""
    manifest = snapshot_core.parse_manifest(intent.manifest.encode("ascii"))
    replaced = tuple(p.aside for p in intent.retired if same(exchange.identity_of(p.aside), p.old))
    try:
        record(intent.history, replaced, intent.vectors, intent.started_at, WORK)
        warnings = _tell_ledger(intent, manifest, host, say, ledger=ledger)
        exchange.remove_staging([Path(intent.staging)])
    except OSError as error:
        raise Failed(
            f"all is moved, but that could not be written down: {words(error)}",
            "the same command finishes it",
        ) from None
    return Relocated(
        state="published" if intent.pair is not None else "moved",
        history=intent.history,
        vectors=intent.vectors,
        manifest=manifest,
        replaced=replaced,
        pair=intent.pair,
        history_moved=intent.history != intent.old_history,
        warnings=warnings,
    )


def install_at(manifest: Manifest, history: str, vectors: str) -> Install:
    """The install of a manifest, at other paths."""
    decided = "where it was moved"
    return Install(Origin(history, decided), Origin(vectors, decided), manifest.collection, manifest.mem0_dir)


def _tell_ledger(
    intent: MoveIntent, manifest: Manifest, host: Host, say: Progress, *, ledger: bool
) -> tuple[str, ...]:
    """The ledger of the old paths becomes that of the new ones, and its chain of seals hears of the move."""
    old = install_at(manifest, intent.old_history, intent.old_vectors)
    new = install_at(manifest, intent.history, intent.vectors)
    why = ledgers.moved(old, new, host, wanted=ledger)
    if why is not None:
        return (f"The ledger does not know of this move ({why}).",)
    detail = f"from {intent.old_vectors} to {intent.vectors}"
    outcome = explain(new, host, "relocate", detail, ledger=ledger, progress=say)
    if outcome is None or outcome.extended:
        return ()
    return (f"The chain of seals does not know of this move ({outcome.why}).",)
