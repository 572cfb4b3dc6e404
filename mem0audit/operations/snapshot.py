"""Take a snapshot: both stores as a pair, beside the running agent."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from mem0audit import __version__
from mem0audit.core import snapshot as core
from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.model import (
    Agent,
    CollectionInfo,
    Finding,
    Install,
    NotChecked,
    Origin,
    Place,
    SealOutcome,
    Severity,
    StoreLayout,
)
from mem0audit.core.reading import Reading
from mem0audit.core.seal import Sealing
from mem0audit.core.snapshot import (
    Manifest,
    SnapshotFile,
    SnapshotPlan,
    Taken,
)
from mem0audit.core.times import instant, shown
from mem0audit.core.words import shell_word
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host, resolved, seen_through
from mem0audit.install.places import look_at
from mem0audit.install.processes import holders
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.copied import counted, counts, digests, judged
from mem0audit.operations.erasures import erasures_on_record, keep_beside
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, look, look_at_copy, no_progress
from mem0audit.operations.otherroots import as_the_agent_sees_it, brought_here, where_it_lies
from mem0audit.operations.seal import NOT_STILL, seal_reading
from mem0audit.stores import files, pair, snapshots
from mem0audit.stores.child import ChildFailed
from mem0audit.stores.embedded import STORAGE, EmbeddedStore
from mem0audit.stores.ledger import CannotUse, Ledger

ATTEMPTS: Final = 3
SLACK_BYTES: Final = 4 << 20
"""What the manifest, the folders and SQLite's own rounding take beside the copies."""

Key = tuple[str, "str | None", "str | None"]


# --- Create --------------------------------------------------------------------------------------


def plan_create(install: Install, host: Host, folder: str) -> SnapshotPlan:
    """What `create` would do. Changes nothing, and makes no folder.

    Raises Refused where it would be unsafe or cannot be a pair, CouldNotRead where a store is not there.
    """
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        raise Refused(
            f"the vector store is {what}: this version takes snapshots of embedded Qdrant folders only"
        )
    held = holders([install.history.value, install.vectors.value], host)
    install = as_the_agent_sees_it(install, held.holders, host)
    assert install.vectors is not None
    for role, path in (("history", install.history.value), ("vectors", install.vectors.value)):
        if seen_through(path, host)[0] is not None and os.geteuid():
            raise Refused(
                f"{path} lies under another process's root, which only root may enter",
                "run the same command with sudo",
            )
        place = look_at(path, host)
        if place.problem is not None:
            raise CouldNotRead(f"{path}: {place.problem}")
        if not place.exists:
            other = "the log" if role == "history" else "the vector store"
            raise CouldNotRead(
                f"{path} is not there: without {other} there is no pair to take",
                "where this install writes: mem0audit status",
            )
    where = checked_folder(folder, install, host)
    sources = _sources(install, host)
    sizes = [_size(source.path) for source in sources]
    total = sum(sizes)
    if sizes[0] > core.BY_PAGES_BYTES:
        raise Refused(
            f"{sources[0].path}: {sizes[0] / 1e9:.1f} GB; this version copies a log up to "
            f"{core.BY_PAGES_BYTES / 1e9:.0f} GB beside a running agent, so that it never waits for long",
            "with the agent stopped a plain copy of both is whole: cp -a",
        )
    needed = needed_bytes(sizes, where)
    return SnapshotPlan(
        install=install,
        folder=folder,
        name=core.name_of(host.now),
        sources=tuple((source.path, _target(source)) for source in sources),
        size_bytes=total,
        needed_bytes=needed,
        free_bytes=where.free_bytes,
        hold_s=pair.hold_bound(total),
        place=where,
        running=bool(held.holders) or not held.complete,
    )


def needed_bytes(sizes: Sequence[int], where: Place) -> int:
    """What must be free in the folder for snapshots while files of these sizes are taken. Raises Refused where it
    is not."""
    needed = sum(sizes) + max(sizes, default=0) + SLACK_BYTES
    if where.free_bytes is not None and where.free_bytes < needed:
        raise Refused(
            f"{where.path}: {where.free_bytes:,} bytes are free, a snapshot needs {needed:,} while it is taken",
            "name a folder with more room with --to",
        )
    return needed


def checked_folder(folder: str, install: Install, host: Host) -> Place:
    """The place of the folder for snapshots. Raises Refused."""
    if sys.platform == "win32":
        raise Refused("snapshots are taken on Linux and other Unix systems only")
    where = look_at(folder, host)
    if where.problem is not None:
        raise Refused(f"{folder}: {where.problem}", "name another folder with --to")
    if where.exists and not Path(host.at(folder)).is_dir():
        raise Refused(f"{folder}: is no folder", "name another one with --to")
    if where.volatile:
        raise Refused(
            f"{folder} lies on a {where.filesystem}, in memory: a snapshot there is gone at the next reboot",
            "name a folder on a disk with --to",
        )
    if install.vectors is None:
        return where
    store = resolved(install.vectors.value, host)
    real = resolved(folder, host)
    if real == store or real.startswith(store.rstrip("/") + "/"):
        raise Refused(f"{folder} lies inside the vector store", "name a folder elsewhere with --to")
    return where


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _sources(install: Install, host: Host) -> tuple[pair.Source, ...]:
    """Every file of the pair. Raises CouldNotRead, Refused."""
    assert install.vectors is not None
    folder = install.vectors.value
    layout = where_it_lies(
        folder,
        host,
        lambda path: EmbeddedStore(path).layout(),
        lambda problem: StoreLayout(folder, exists=True, problem=problem),
    )
    if layout.problem is not None:
        raise CouldNotRead(f"{layout.path}: {layout.problem.detail}")
    names = {info.name for info in layout.collections if info.has_folder}
    found = [pair.Source("history", install.history.value, "history")]
    for info in layout.collections:
        if info.legacy or info.closed:
            what = (
                "is a storage.dbm of qdrant-client before 1.1.7" if info.legacy else "cannot be looked into"
            )
            raise Refused(f"{info.path}: {what}, so that there is no whole pair to take")
        if info.has_folder:
            found.append(_source(info, names))
    return tuple(found)


def _source(info: CollectionInfo, names: set[str]) -> pair.Source:
    base = info.name[: -len(ENTITIES_SUFFIX)] if info.name.endswith(ENTITIES_SUFFIX) else ""
    path = os.path.join(info.path, STORAGE)  # noqa: PTH118 - the path as the user wrote it
    if base in names:
        return pair.Source("entities", path, info.name, info.dims, base)
    return pair.Source("memories", path, info.name, info.dims)


def _as_the_agent_names_it(install: Install, host: Host) -> Install:
    """Its paths as they are inside the agent's root: what leads through a process says nothing once that has ended."""

    def inner(origin: Origin) -> Origin:
        return replace(origin, value=seen_through(origin.value, host)[1])

    vectors = None if install.vectors is None else inner(install.vectors)
    return replace(install, history=inner(install.history), vectors=vectors)


def _source_of(source: pair.Source, install: Install) -> str:
    """The file's path as the install has it, wherever it was opened."""
    if source.role == "history":
        return install.history.value
    assert install.vectors is not None
    return os.path.join(install.vectors.value, "collection", source.name, STORAGE)  # noqa: PTH118


def _target(source: pair.Source) -> str:
    """Where a file lies in a snapshot."""
    if source.role == "history":
        return core.HISTORY
    return f"{core.VECTORS}/collection/{source.name}/{STORAGE}"


def create(
    plan: SnapshotPlan,
    host: Host,
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
    ledger: bool = True,
    until: float | None = None,
) -> Taken:
    """Takes the snapshot that was planned, beside the running agent; a short-lived one goes `until` then.

    Both stores are copied as of one instant, rebuilt without free pages, checked, audited as a pair and compared
    with the live install, and then published by one rename. Where there is a `ledger` (False: it is neither read nor
    written) the pair is sealed, if nothing in it is unexplained, and the folder is remembered. Raises Refused where
    another run works in the same folder or a file cannot be copied safely, Failed where nothing was published.
    """
    say = progress or no_progress
    named = _as_the_agent_names_it(plan.install, host)
    with ledgers.opened(named, host, wanted=ledger, make=True) as book:
        assert book is not None
        sealing = ledgers.sealing_of(book)
        beside_seal = sealing if isinstance(sealing, Sealing) else None
        read: list[Reading] = []

        def fill(hidden: Path, name: str, last: bool) -> Manifest | None:
            with brought_here(plan.install, host) as here:
                done = _take(
                    plan.install, here, host, hidden, name, now, say, beside_seal, last=last, until=until
                )
            if done is None:
                return None
            read[:] = [done[1]]
            return done[0]

        def beside(folder: Path) -> str | None:
            return keep_beside(folder, erasures_on_record(plan.install, None, host, ledger=ledger))

        taken = published(Path(plan.folder), now, fill, say, attempts=ATTEMPTS, beside=beside)
        if not ledger:
            return taken
        if isinstance(book, NotChecked) or isinstance(sealing, NotChecked):
            missing = book if isinstance(book, NotChecked) else sealing
            assert isinstance(missing, NotChecked)
            return replace(taken, seal=SealOutcome(False, f"there is no ledger: {missing.why}"))
        say("sealing", None, None)
        return replace(taken, seal=kept_in_ledger(book, sealing, taken, read[0]))


def kept_in_ledger(book: Ledger, sealing: Sealing, taken: Taken, reading: Reading | None) -> SealOutcome:
    """Writes to the ledger what a snapshot learned: where it lies, whose each memory is, and a seal. `reading` is None
    where both stores were never read without a write between them."""
    at = taken.manifest.taken_at
    try:
        book.note_folder(os.path.realpath(Path(taken.path).parent), at)
    except CannotUse as error:
        return SealOutcome(False, f"the ledger {error.why}")
    if reading is None:
        return SealOutcome(False, NOT_STILL)
    ledgers.note_seen(book, reading, at)
    return seal_reading(book, sealing, reading, at, settled=taken.manifest.settled)


def published(
    folder: Path,
    at: Callable[[], float],
    fill: Callable[[Path, str, bool], Manifest | None],
    say: Progress,
    *,
    attempts: int = 1,
    beside: Callable[[Path], str | None],
) -> Taken:
    """Makes a snapshot in a hidden folder, alone in the folder for snapshots, and publishes it by one rename.

    `fill` is called with the hidden folder, the snapshot's name and whether it is the last of the `attempts`; it
    returns the manifest that it wrote last, or None to be called again (never the last time). `at` gives the
    instant that names the snapshot, `beside` writes what is kept beside the snapshots and returns a note for the
    user, or None. Leftovers of runs that were cut off are removed first. Raises what `fill`
    raises for the user, Refused where another run works there, Failed where nothing was published.
    """
    started = time.monotonic()
    name = ""
    try:
        with files.snapshot_folder(folder):
            removed = files.remove_unfinished(folder)
            note = beside(folder)
            name = _free_name(folder, core.name_of(at()))
            for attempt in range(1, attempts + 1):
                hidden = files.begin_snapshot(folder, name)
                try:
                    manifest = fill(hidden, name, attempt == attempts)
                    if manifest is not None:
                        say("publishing", None, None)
                        files.publish_snapshot(hidden, folder / name)
                        path, notes = str(folder / name), (note,) if note else ()
                        return Taken(path, manifest, removed, time.monotonic() - started, notes)
                except BaseException:
                    with suppress(OSError):
                        files.abandon_snapshot(hidden)
                    raise
                files.abandon_snapshot(hidden)
    except pair.CannotTake as problem:
        _cannot(problem)
    except ChildFailed as error:
        raise Failed(f"the agent's root could not be entered ({error}); nothing was taken") from None
    except (OSError, sqlite3.Error) as error:
        if name and os.path.lexists(folder / name / core.MANIFEST):
            # The rename is done, and after a power cut it may turn out not to be.
            why = error.strerror if isinstance(error, OSError) else None
            raise Failed(
                f"{folder / name} was published, but its folder could not be written to the disk: "
                f"{(why or 'failed').lower()}",
                f"mem0audit snapshot verify {shell_word(str(folder / name))}",
            ) from None
        _failed(error, folder)
    raise AssertionError("the last attempt takes what there is")


def _free_name(folder: Path, name: str) -> str:
    taken = set(snapshots.names(folder))
    number = 1
    wanted = name
    while wanted in taken or os.path.lexists(folder / wanted):
        number += 1
        wanted = f"{name}-{number}"
    return wanted


def _cannot(problem: pair.CannotTake) -> NoReturn:
    line = f"{problem.path}: {problem.detail}; nothing was taken"
    if problem.kind == "hot":
        raise Refused(
            line, "start the agent once, which finishes or undoes it: mem0audit explain I203"
        ) from None
    if problem.kind == "damaged":
        raise Failed(line, "what still reads: mem0audit explain I202") from None
    if problem.kind in ("busy", "gone"):
        raise Failed(line, "try again at a quieter minute") from None
    raise CouldNotRead(line) from None


def _failed(error: OSError | sqlite3.Error, folder: Path) -> NoReturn:
    what = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, sqlite3.Error):
        text = str(error)
        full = "full" in text
        what = "No space left on device" if full else f"SQLite: {type(error).__name__}"
        if "malformed" in text:
            what = "the store is damaged (mem0audit explain I202)"
    raise Failed(
        f"{folder}: {(what or 'failed').lower() if isinstance(error, OSError) else what}; "
        "no snapshot was taken, earlier ones are as they were",
        "the same command begins again and removes what this one left",
    ) from None


def _take(
    install: Install,
    here: Install,
    host: Host,
    hidden: Path,
    name: str,
    now: Callable[[], float],
    say: Progress,
    sealing: Sealing | None,
    *,
    last: bool,
    until: float | None,
) -> tuple[Manifest, Reading] | None:
    """Fills the hidden folder and says what is in it; None where the pair differs from the live stores and can be
    tried again.

    `here` is the install by paths that its files can be opened at.
    """
    sources = _sources(here, host)
    assert install.vectors is not None
    assert here.vectors is not None
    say("copying both stores", None, None)
    meta = os.path.join(here.vectors.value, "meta.json")  # noqa: PTH118
    taken = pair.take_pair(sources, meta, hidden / "raw", now=now)
    at = now()
    if {s.path for s in _sources(here, host)} != {s.path for s in sources} and not last:
        return None  # a collection came or went meanwhile
    say("rebuilding the copies", None, None)
    for copied in taken.files:
        target = hidden / _target(copied.source)
        files.rebuild_database(copied.raw, target)
        wrong = snapshots.integrity(target)
        if wrong:
            raise pair.CannotTake(
                copied.source.path, "damaged", f"its copy fails integrity_check: {wrong[0]}"
            )
    if taken.meta is not None:
        files.write_new(hidden / core.META, taken.meta)
    else:
        files.make_folders(hidden / core.VECTORS)
    say("auditing the pair", None, None)
    held = holders([install.history.value, install.vectors.value], host)
    agent = whose_mem0(install, held.holders, host)
    agent = Agent(None, agent.mem0_version, agent.client_version, "manifest")
    created_at = shown(at)
    reading = look_at_copy(of_copy(install, hidden), agent, _instant(created_at), say, sealing)
    found = judged(reading)
    why = taken.unsettled_why
    # What a text is (C) changes with every write; that the stores disagree does not.
    faults = {_key(f) for f in found if f.severity > Severity.INFO and f.code[0] != "C"}
    if faults:
        say("comparing with the live stores", None, None)
        live = look(install, host, say)
        extra = faults - {_key(f) for f in judged(replace(live, elsewhere={}))}
        if extra and not last:
            return None
        if extra:
            counts = Counter(code for code, _, _ in extra)
            listed = ", ".join(f"{code} {count}" for code, count in sorted(counts.items()))
            why = why or f"the pair has findings that the live stores do not have: {listed}"
    files.sync_tree(hidden)
    manifest = _manifest(install, host, hidden, name, created_at, agent, reading, found, taken, why)
    manifest = replace(manifest, until=None if until is None else shown(until))
    write_manifest(hidden, manifest)
    return manifest, reading


def write_manifest(hidden: Path, manifest: Manifest) -> None:
    """The manifest and its checksum, the last files of a snapshot. Raises OSError."""
    text = core.manifest_text(manifest).encode("ascii")
    files.write_new(hidden / core.MANIFEST, text)
    files.write_new(hidden / core.CHECKSUM, core.checksum_text(text).encode("ascii"))


def _instant(text: str) -> float:
    """The instant that a manifest's time names."""
    return instant(text) or 0.0


def of_copy(install: Install, folder: Path) -> Install:
    """The same install with the paths of its copy."""
    return replace(
        install,
        history=Origin(str(folder / core.HISTORY), "the snapshot"),
        vectors=Origin(str(folder / core.VECTORS), "the snapshot"),
    )


def _key(finding: Finding) -> Key:
    return finding.code, finding.memory_id, finding.subject


def _manifest(
    install: Install,
    host: Host,
    hidden: Path,
    name: str,
    created_at: str,
    agent: Agent,
    reading: Reading,
    found: Sequence[Finding],
    taken: pair.Pair,
    why: str | None,
) -> Manifest:
    named = _as_the_agent_names_it(install, host)
    assert install.vectors is not None
    assert named.vectors is not None
    listed = []
    for copied in taken.files:
        path = _target(copied.source)
        size, sha = snapshots.digest(hidden / path)
        collection = None if copied.source.role == "history" else copied.source.name
        source = _source_of(copied.source, named)
        listed.append(SnapshotFile(path, size, sha, source, collection, copied.journal_mode, copied.way))
    if taken.meta is not None:
        size, sha = snapshots.digest(hidden / core.META)
        listed.append(
            SnapshotFile(core.META, size, sha, f"{named.vectors.value}/meta.json", None, None, "bytes")
        )
    points, history = digests(reading)
    return Manifest(
        name=name,
        created_at=created_at,
        history=named.history,
        vectors=named.vectors,
        collection=reading.install.collection,
        mem0_dir=install.mem0_dir,
        hostname=platform.node(),
        filesystems={
            "history": look_at(install.history.value, host).filesystem,
            "vectors": look_at(install.vectors.value, host).filesystem,
        },
        versions={
            "mem0audit": __version__,
            "mem0ai": agent.mem0_version,
            "qdrant-client": agent.client_version,
            "sqlite": sqlite3.sqlite_version,
        },
        files=tuple(sorted(listed, key=lambda file: file.path)),
        counts=counts(reading),
        points_digest=points,
        history_digest=history,
        findings=counted(found),
        settled=why is None,
        unsettled_why=why,
        tries=taken.tries,
        longest_hold_s=round(taken.longest_hold_s, 4),
    )
