"""How a restore ends: finished, taken back, or found cut off and settled by the next one."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from mem0audit.core import restore as core
from mem0audit.core import serverrestore
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.advice import stop_command
from mem0audit.core.errors import Failed, Mem0auditError, Refused
from mem0audit.core.model import Install, Origin
from mem0audit.core.restore import Intent, Interrupted, Kept, NotAnIntent, Restored
from mem0audit.core.serverrestore import ServerIntent
from mem0audit.core.snapshot import Manifest, SnapshotProblem
from mem0audit.install.host import Host, resolved
from mem0audit.install.processes import holders
from mem0audit.operations.copied import install_of
from mem0audit.operations.look import Progress
from mem0audit.operations.targets import in_use, named, refuse_in_use, targets_of
from mem0audit.operations.verify import compare
from mem0audit.stores import exchange, snapshots

# --- What a restore that was cut off left -----------------------------------------------------------------


def interrupted(install: Install, host: Host) -> Interrupted | None:
    """A restore of this install that was cut off, and what the next one does about it; None where there is none.

    Changes nothing. One that is at work just now was not cut off: None. Never raises for what cannot be looked at:
    `problem` says so.
    """
    if sys.platform != "linux":
        return None
    if install.vectors is None:
        return server_interrupted(install, host) if install.server_url is not None else None
    try:
        folders = [Path(t.staging) for t in targets_of(install, None, host)]
    except Refused:
        return None
    there = [folder for folder in folders if os.path.lexists(folder)]
    if not there:
        return None
    try:
        if any(exchange.at_work(folder) for folder in there):
            return None
        intent = read_intent(there)
        if intent is None:
            return Interrupted(str(there[0]), None, None, "clean")
        return _found(str(there[0]), intent)
    except Refused as problem:
        return Interrupted(str(there[0]), None, None, "stuck", problem=problem.message)
    except OSError as error:
        return Interrupted(str(there[0]), None, None, "stuck", problem=words(error))


def read_intent(folders: Sequence[Path]) -> Intent | None:
    """The intent in staging folders that are this user's own; the one that says more, of two. Raises Refused,
    OSError."""
    found: list[Intent] = []
    for folder in folders:
        if not os.path.lexists(folder):
            continue
        os.close(exchange.own_folder(folder))
        try:
            found.append(core.parse_intent(snapshots.small_file(folder / core.INTENT)))
        except FileNotFoundError:
            continue
        except (NotAnIntent, ValueError) as problem:
            raise Refused(
                f"{folder / core.INTENT}: {problem}", "look at that folder, and move it away by hand"
            ) from None
    others = [intent for intent in found if intent.staging != found[0].staging]
    if others:
        pairs = " and of ".join(f"{one.history} with {one.vectors}" for one in (found[0], others[0]))
        raise Refused(
            f"two restores were cut off here, of {pairs}",
            "settle the other one first, with --history and --qdrant-path of its own",
        )
    return max(found, key=lambda intent: intent.audited) if found else None


def server_interrupted(install: Install, host: Host) -> Interrupted | None:
    """A restore in place onto a server that was cut off; None where there is none or one is at work just now.

    Changes nothing, raises nothing: `problem` says what could not be looked at.
    """
    folder = Path(core.staging_beside(resolved(install.history.value, host)))
    if not os.path.lexists(folder):
        return None
    try:
        if exchange.at_work(folder):
            return None
        intent = read_server_intent(folder)
    except Refused as problem:
        return Interrupted(str(folder), None, None, "stuck", problem=problem.message)
    except OSError as error:
        return Interrupted(str(folder), None, None, "stuck", problem=words(error))
    if intent is None:
        return Interrupted(str(folder), None, None, "clean")
    places = tuple((piece.target, core.where(piece, exchange.found(piece))) for piece in intent.pieces)
    return Interrupted(
        str(folder),
        intent.snapshot,
        intent.started_at,
        "finish",
        places,
        audited=intent.done,
        erased=intent.erased,
    )


def read_server_intent(folder: Path) -> ServerIntent | None:
    """Raises Refused, OSError."""
    os.close(exchange.own_folder(folder))
    try:
        return serverrestore.parse_intent(snapshots.small_file(folder / core.INTENT))
    except FileNotFoundError:
        return None
    except (NotAnIntent, ValueError) as problem:
        raise Refused(
            f"{folder / core.INTENT}: {problem}", "look at that folder, and move it away by hand"
        ) from None


def cut_off_manifest(folders: Sequence[Path]) -> Manifest | None:
    """The manifest of the snapshot that was being restored, from the intent; None where there is none, or it does
    not read."""
    try:
        intent = read_intent(folders)
        return None if intent is None else snapshot_core.parse_manifest(intent.manifest.encode("ascii"))
    except (OSError, Refused, snapshot_core.NotAManifest, UnicodeEncodeError):
        return None


def _found(folder: str, intent: Intent) -> Interrupted:
    places = [core.where(piece, exchange.found(piece)) for piece in intent.pieces]
    mixed = len(set(places)) > 1 and "other" not in places
    course = core.decide(places, audited=intent.audited, untouched=not mixed or _untouched(intent, places))
    listed = tuple((piece.target, place) for piece, place in zip(intent.pieces, places, strict=True))
    return Interrupted(
        folder,
        intent.snapshot,
        intent.started_at,
        course,
        listed,
        audited=intent.audited,
        erased=intent.erased,
    )


def _untouched(intent: Intent, places: Sequence[core.Where]) -> bool:
    """Whether the new pieces, in place or still staged, hold the bytes that were staged."""
    for piece, place in zip(intent.pieces, places, strict=True):
        at = piece.target if place == "after" else piece.staged
        if at == intent.history and any(os.path.lexists(f"{at}{side}") for side in exchange.SIDES):
            return False  # what was written is still in a journal
        if piece.staged is not None and at is not None and not exchange.same_sums(Path(at), piece.sums):
            return False
    return True


def settle(
    folders: Sequence[Path],
    there: bool,
    host: Host,
    say: Progress,
    stack: ExitStack,
    newer: Callable[[Intent], Collection[str]],
    chain: Callable[[Restored], Restored],
) -> tuple[Interrupted | None, Restored | None]:
    """Finishes or takes back what an earlier restore left in these folders (locked), and clears it away.

    `there`: one of the folders was there before. `newer` gives the salts of the erasures that its copies must have had;
    one that lacks some is taken back unless it was audited already. `chain` is called before a finished one is
    forgotten. Gives what was found, and what is restored where it was finished. Raises Refused, Failed.
    """
    try:
        intent = read_intent(folders)
        if intent is None:
            exchange.empty_staging(folders)
            return (Interrupted(str(folders[0]), None, None, "clean") if there else None), None
        say("an earlier restore was cut off: settling it", None, None)
        every = list(folders)
        for other in map(Path, intent.staging):
            if other not in every and os.path.lexists(other):
                stack.enter_context(exchange.staging(other))
                every.append(other)
        refuse_in_use(install_of_intent(intent), host)
        with _store_locks(intent):
            _settle_journals(intent)
            found = _found(str(folders[0]), intent)
            salts = newer(intent)
            if found.course == "finish" and core.is_behind(salts, intent.erased, audited=intent.audited):
                found = replace(found, course="back")
            behind = not set(salts) <= set(intent.erased)
            return _settled(intent, found, every, folders, host, say, behind, chain)
    except exchange.InUse as problem:
        in_use(problem, None)
    except (OSError, sqlite3.Error) as error:
        raise Failed(
            f"an earlier restore was cut off, and could not be settled: {words(error)}",
            "the same command tries again; keep the agent stopped until then",
        ) from None


def install_of_intent(intent: Intent) -> Install:
    """The install that an intent is of."""
    return _install_at(intent.history, intent.vectors)


def restored_install(done: Restored) -> Install:
    """The install that was restored."""
    return _install_at(done.history, done.vectors)


def _install_at(history: str, vectors: str) -> Install:
    by = "the intent"
    return Install(Origin(history, by), Origin(vectors, by), Origin("mem0", by), Origin("/", by))


@contextmanager
def _store_locks(intent: Intent) -> Iterator[None]:
    """Qdrant's lock of every folder with one that the intent names, wherever it lies now. Raises InUse."""
    places = [Path(intent.vectors)]
    places += [Path(p.staged) for p in intent.pieces if p.half == "vectors" and p.staged is not None]
    with ExitStack() as stack:
        for place in places:
            if os.path.lexists(place / ".lock"):
                stack.enter_context(exchange.store_locked(place))
        yield


def _settle_journals(intent: Intent) -> None:
    """Brings what an agent that ran since, and died, left in journals into the log that it wrote to, old or new: no
    journal may lie beside another log than its own. One that cannot be brought in is put aside. Raises InUse, OSError.
    """
    exchange.settle_journals(Path(intent.history))
    ours = {p.target for p in intent.pieces if core.where(p, exchange.found(p)) == "before"}
    for piece in intent.pieces:
        if piece.target == intent.history:
            exchange.journals_aside(piece, ours)


def _settled(
    intent: Intent,
    found: Interrupted,
    every: Sequence[Path],
    wanted: Sequence[Path],
    host: Host,
    say: Progress,
    behind: bool,
    chain: Callable[[Restored], Restored],
) -> tuple[Interrupted, Restored | None]:
    manifest = snapshot_core.parse_manifest(intent.manifest.encode("ascii"))
    course = found.course
    why = None
    if course == "finish":
        exchange.forward(intent.pieces)
        if not intent.audited:
            places = [core.where(piece, exchange.found(piece)) for piece in intent.pieces]
            if not _untouched(intent, places):
                why = "it was written to after the restore was cut off"
            elif differs(manifest, intent.history, intent.vectors, say):
                course = "back"
            if course == "finish":
                intent = replace(intent, audited=True)
                write_intent(intent)
    if course == "finish":
        done = finish(manifest, intent, host, chain)
        return found, replace(done, not_audited=why, behind=behind)
    if course == "back":
        exchange.back(intent.pieces)
        _check_whole(intent)
        exchange.keep_what_changed(intent.pieces)
    exchange.empty_staging(every)
    extra = [folder for folder in every if folder not in wanted]
    if extra:
        exchange.remove_staging(extra)
    return replace(found, course=course), None


def _check_whole(intent: Intent) -> None:
    """After a rollback no half may be new beside one that is old. Raises Refused, with what lies where."""
    new = [
        p.target for p in intent.pieces if p.staged is not None and core.same(exchange.found(p).target, p.new)
    ]
    if new:
        raise Refused(
            f"{new[0]} is the restored one, and what it replaced is not there any more; the other half is not",
            f"move {new[0]} away yourself, and run this again: both are then restored",
        )


# --- How one ends -----------------------------------------------------------------------------------------


def write_intent(intent: Intent) -> None:
    """Writes the intent beside both stores, on the disk before it returns. Raises OSError."""
    data = core.intent_text(intent).encode("ascii")
    for folder in intent.staging:
        if os.path.isdir(folder):  # noqa: PTH112 - a folder in memory may be gone after a power cut
            exchange.write_in(Path(folder), core.INTENT, data)


def take_back(intent: Intent, error: BaseException) -> NoReturn:
    """After a failure: both stores as they were, and the error said so. Raises it, as Failed where it is one."""
    folders = [Path(folder) for folder in intent.staging]
    what = error.message if isinstance(error, Mem0auditError) else "stopped"
    if isinstance(error, (OSError, sqlite3.Error)):
        what = words(error)
    try:
        untouched = all(core.where(p, exchange.found(p)) == "before" for p in intent.pieces)
        if not untouched:
            _settle_journals(intent)
        exchange.back(intent.pieces)
        kept = exchange.keep_what_changed(intent.pieces)
    except (OSError, exchange.InUse) as second:
        why = words(second) if isinstance(second, OSError) else f"{second} was in use"
        raise Failed(
            f"{what}; and then {why}: it is neither finished nor taken back",
            "the same command does one of the two, whole: keep the agent stopped until then",
        ) from None
    with suppress(OSError):  # else the next run does it
        exchange.remove_staging(folders)
    also = f" (what was written meanwhile: {', '.join(kept)})" if kept else ""
    if isinstance(error, (OSError, sqlite3.Error, Failed)):
        how = "nothing was changed" if untouched else "it was taken back, both stores are as they were"
        raise Failed(f"{what}; {how}{also}") from None
    raise error


def finish(manifest: Manifest, intent: Intent, host: Host, chain: Callable[[Restored], Restored]) -> Restored:
    """What was replaced gets its dated name and is recorded, `chain` puts it to the chain of seals, and only then the
    intent goes: a run that is cut off before is finished by the next one. Raises Failed."""
    try:
        replaced = exchange.put_aside(intent.pieces)
        _record(intent, replaced)
        done = chain(_restored(manifest, intent, replaced, host))
        exchange.remove_staging([Path(folder) for folder in intent.staging if exchange.identity_of(folder)])
    except OSError as error:
        raise Failed(
            f"both stores are restored, but not all is put aside: {words(error)}",
            "the same command finishes it",
        ) from None
    return done


def _restored(manifest: Manifest, intent: Intent, replaced: Sequence[str], host: Host) -> Restored:
    shown = tuple(path for path in replaced if not path.endswith(exchange.SIDES))
    late = holders(shown, host).holders if shown else ()
    warnings = tuple(
        f"{named(holder)} still has a replaced store open: restart it ({stop_command(holder)})."
        for holder in late
    )
    return Restored(
        intent.snapshot,
        manifest,
        intent.history,
        intent.vectors,
        in_place=True,
        replaced=shown,
        warnings=warnings,
    )


def differs(manifest: Manifest, history: str, vectors: str, say: Progress) -> str | None:
    """What is different between the pair at these paths and the manifest; None where it is the same."""
    problems: list[SnapshotProblem] = []
    install = replace(
        install_of(manifest, Path("/")),
        history=Origin(history, "restored"),
        vectors=Origin(vectors, "restored"),
    )
    compare(manifest, install, problems, say)
    return f"{problems[0].path}: {problems[0].detail}" if problems else None


def words(error: OSError | sqlite3.Error) -> str:
    """What failed, in a few words; never anything from a store."""
    if isinstance(error, OSError):
        where = f" ({error.filename})" if isinstance(error.filename, str) else ""
        return (error.strerror or "failed").lower() + where
    return "no space left on device" if "full" in str(error) else f"SQLite: {type(error).__name__}"


# --- What was put aside ----------------------------------------------------------------------------------


def record_path(history: str) -> Path:
    """Where it is recorded what restores of the log at this path (links followed) put aside."""
    folder, name = os.path.split(history)
    return Path(folder, f".{name[:200]}.mem0audit-replaced.json")


def _record(intent: Intent, replaced: Sequence[str]) -> None:
    """Adds what was put aside to the record beside the log. Raises OSError."""
    folder = Path(intent.staging[0])
    text = _record_text(intent.history, replaced, intent.snapshot, intent.started_at, "restore")
    if (
        text is not None and folder.is_dir()
    ):  # in memory it may have gone with a power cut, and the log with it
        exchange.write_in(folder, "record", text, record_path(intent.history))


def record(history: str, replaced: Sequence[str], of: str, at: str, work: str) -> None:
    """Adds what a move put aside to the record beside the log. Raises OSError."""
    text = _record_text(history, replaced, of, at, work)
    path = record_path(history)
    if text is not None and path.parent.is_dir():  # a log that is not there may have no folder either
        exchange.write_in(path.parent, path.name, text)


def _record_text(history: str, replaced: Sequence[str], of: str, at: str, work: str) -> bytes | None:
    """The record with what is new in it, None where nothing is to be recorded. Raises OSError."""
    try:
        kept = {one.path: one for one in read_record(record_path(history))}
    except Refused:
        kept = {}  # not ours to read: begun anew
    for one in replaced:
        identity = exchange.identity_of(one)
        if identity is not None:
            kept[one] = Kept(one, identity, of, at, work)
    there = [one for one in kept.values() if core.same(exchange.identity_of(one.path), one.identity)]
    return core.record_text(there).encode("ascii") if there else None


def read_record(path: Path) -> tuple[Kept, ...]:
    """The record; () where there is none. Raises Refused where it does not read or another user could have
    written it, OSError."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return ()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Refused(f"{path}: is not this user's own record", "run it as the user who restored")
    try:
        return core.parse_record(snapshots.small_file(path))
    except (NotAnIntent, ValueError) as problem:
        raise Refused(f"{path}: {problem}", "remove what was replaced by hand") from None
