"""Both stores copied, proven and named: what a move does while nobody has them open."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mem0audit import __version__
from mem0audit.core import relocate as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.model import Install, Origin
from mem0audit.core.moved import Begun
from mem0audit.core.reading import Reading
from mem0audit.core.relocate import Destination, Lost, MoveIntent, Relocated, RelocatePlan
from mem0audit.core.restore import Half, Piece
from mem0audit.core.snapshot import Manifest
from mem0audit.core.timeline import DELETE
from mem0audit.core.times import instant, shown
from mem0audit.core.words import shell_word, shell_words
from mem0audit.install.host import Host, resolved
from mem0audit.operations.copied import agent_of, counted, counts, digests, judged
from mem0audit.operations.discard import put_aside
from mem0audit.operations.interrupted import differs, words
from mem0audit.operations.leftmoves import note_begun, note_ended
from mem0audit.operations.look import Progress, look_at_copy
from mem0audit.operations.moves import QDRANTS, WORK, finish, install_at, settle, take_back, write_intent
from mem0audit.operations.relocatepair import (
    another_store,
    cleared,
    memories_of,
    owners_beside,
    seen_without_root,
    since_pair,
    wal_files,
)
from mem0audit.operations.restore import refuse_erased
from mem0audit.operations.targets import (
    check_owners,
    folder_owner,
    in_use,
    mounted_below,
    refuse_holders,
    strangers,
    target_of,
)
from mem0audit.operations.verify import verify
from mem0audit.stores import exchange, files, samerows, snapshots


def is_store(folder: str) -> bool:
    """Whether an embedded Qdrant store lies in a folder, or a part of one."""
    return any(os.path.lexists(f"{folder}/{name}") for name in QDRANTS)


def looks_moved(where: Destination, seen: Install, host: Host) -> bool:
    """Whether a store lies at the new place and none at the old one, or a link to the new one; the log too, where that
    moves."""
    assert seen.vectors is not None
    pairs = [(seen.vectors.value, where.vectors)]
    pairs += [(seen.history.value, where.history)] if where.history is not None else []
    if not all(not os.path.lexists(old) or leads_to(old, new, host) for old, new in pairs[1:]):
        return False
    gone = not is_store(seen.vectors.value) or leads_to(seen.vectors.value, where.vectors, host)
    return is_store(where.vectors) and gone and all(os.path.lexists(new) for _, new in pairs)


def leads_to(old: str, new: str, host: Host) -> bool:
    """Whether a link lies at `old` that leads to `new`."""
    try:
        return os.path.islink(old) and resolved(old, host) == new  # noqa: PTH114
    except OSError:
        return False


def was_moved(where: Destination, seen: Install, host: Host) -> bool:
    """Whether what lies at the new place was moved there from the old one: a move recorded that it put that aside."""
    assert seen.vectors is not None
    old = seen.vectors.value
    try:
        log = where.history or resolved(seen.history.value, host)
        olds = (
            f"{resolved(os.path.dirname(old), host)}/{os.path.basename(old)}",  # noqa: PTH119, PTH120
            resolved(old, host),
        )
    except OSError:
        return False
    new = replace(seen, history=Origin(log, "the move"), vectors=Origin(where.vectors, "the move"))
    begins = tuple(f"{one}{end}" for one in olds if one != where.vectors for end in (".replaced-", "/"))
    return any(one.work == WORK and one.path.startswith(begins) for one in put_aside(new, host))


def check_free(to: str, where: Destination, seen: Install) -> None:
    """Refuses names that are taken."""
    target = Path(where.vectors)
    assert seen.vectors is not None
    try:
        if is_store(where.vectors) and not is_store(seen.vectors.value):
            log, beside = seen.history.value, f"{target.parent}/{core.HISTORY}"
            if not os.path.lexists(log) and os.path.lexists(beside):
                log = beside
            raise Refused(
                f"{to} holds a store already, and {seen.vectors.value} is not there: it looks moved",
                f"mem0audit audit {shell_words(['--history', log, '--qdrant-path', to])}",
            )
        if is_store(where.vectors):
            raise Refused(
                f"{to} holds a store already, and {seen.vectors.value} is another one",
                "what was moved, and where the agent writes: mem0audit status",
            )
        if target.is_dir() and any(target.iterdir()):
            raise Refused(
                f"{to} is not empty: a store moves to a new or an empty folder", "name another one with --to"
            )
    except OSError as error:
        raise Refused(f"{to}: {(error.strerror or 'cannot be looked into').lower()}") from None
    if where.history is not None and os.path.lexists(where.history):
        raise Refused(
            f"{where.history} is there already, and the log would get that name", "name another --to"
        )


@dataclass(frozen=True)
class _Half:
    """One store on its way. `source` is the file or folder that is copied, `old` what is put aside when the new one
    has its name (None: it is gone), `target` the new name."""

    half: Half
    source: str
    target: str
    staged: str
    old: str | None
    inside: bool = False
    """The old folder is a mount point: what is in it is put aside, not the folder."""


def move(plan: RelocatePlan, host: Host, say: Progress, now: Callable[[], float]) -> Relocated:
    """Settles what was cut off, then moves the stores of a stopped agent, or publishes the pair where they are gone.

    `now` gives seconds since 1970. Raises Refused where somebody has them open or writes to them, Failed: the message
    says how it stands.
    """
    staging = Path(plan.where.staging)
    assert plan.install.vectors is not None
    if plan.ledger:
        names = (plan.install.history.value, plan.install.vectors.value)
        begun = Begun(*names, plan.where.vectors, plan.where.history is not None, now())
        note_begun(begun, plan.install, host)
    try:
        return _moved(plan, host, say, now)
    finally:
        if plan.ledger and not os.path.lexists(staging):
            note_ended(plan.where.vectors, plan.install, host)


def _moved(plan: RelocatePlan, host: Host, say: Progress, now: Callable[[], float]) -> Relocated:
    staging = Path(plan.where.staging)
    halves = [] if plan.cut_off is not None and plan.cut_off.course == "finish" else _halves(plan, host)
    owners = _owners(plan, halves)
    intent = None
    with ExitStack() as stack:
        try:
            exchange.make_parents(staging.parent, owners["vectors"][:2])
            there = stack.enter_context(exchange.staging(staging, WORK))
        except OSError as error:
            raise Failed(f"{words(error)}; nothing was changed") from None
        try:
            settled, finished = settle(staging, there, host, say, ledger=plan.ledger)
            if finished is not None:
                return cleared(replace(finished, settled=settled, resumed=True), plan, host)
            halves = halves or _halves(plan, host)
            check_free(plan.to, plan.where, plan.seen)
            done, intent = _copy_and_name(plan, halves, owners, host, say, now, stack)
            return cleared(replace(done, settled=settled), plan, host)
        except BaseException as error:
            if intent is None and exchange.identity_of(staging / core.INTENT) is None:
                with suppress(OSError):
                    exchange.remove_staging([staging] if staging.is_dir() else [])
            if isinstance(error, (OSError, sqlite3.Error)):
                raise Failed(
                    f"{words(error)}; nothing was changed", "the same command begins again"
                ) from None
            raise


def only_cleared(plan: RelocatePlan, host: Host, say: Progress, now: Callable[[], float]) -> Relocated:
    """Everything has its name and is written down: what the staging folder still holds goes, and it."""
    staging = Path(plan.where.staging)
    try:
        if os.path.lexists(staging):
            with exchange.staging(staging, WORK):
                exchange.remove_staging([staging])
    except OSError as error:
        raise Failed(f"all is moved; {words(error)}", "the same command clears that away") from None
    if plan.ledger:
        note_ended(plan.where.vectors, plan.install, host)
    history = plan.where.history or resolved(plan.seen.history.value, host)
    manifest, _ = _manifest(plan, plan.where.vectors, history, say, now)
    new = install_at(manifest, history, plan.where.vectors)
    done = Relocated(
        state="moved",
        history=history,
        vectors=plan.where.vectors,
        manifest=manifest,
        replaced=tuple(one.path for one in put_aside(new, host) if one.work == WORK),
        history_moved=plan.where.history is not None,
        settled=plan.cut_off,
        resumed=True,
    )
    return replace(done, pair=plan.pair)


def _halves(plan: RelocatePlan, host: Host) -> list[_Half]:
    """What is copied from where. Raises Refused, CouldNotRead."""
    assert plan.seen.vectors is not None
    staging = plan.where.staging
    new_log = f"{staging}/{core.HISTORY}"
    if plan.way == "publish":
        assert plan.pair is not None
        halves = [
            _Half(
                "vectors",
                f"{plan.pair}/{snapshot_core.VECTORS}",
                plan.where.vectors,
                f"{staging}/qdrant",
                None,
            )
        ]
    else:
        vectors = target_of("vectors", plan.seen.vectors.value, host)
        below = mounted_below(vectors.real, host)
        if below:
            raise Refused(f"{below[0]} is mounted inside the vector store, which cannot be moved with that")
        strangers(vectors)
        check_owners([vectors])
        inside = vectors.way == "inside"
        halves = [
            _Half("vectors", vectors.real, plan.where.vectors, f"{staging}/qdrant", vectors.real, inside)
        ]
    if plan.where.history is None:
        return halves
    path = plan.seen.history.value
    if os.path.lexists(path):
        log = target_of("history", path, host)
        check_owners([log])
        return [*halves, _Half("history", log.real, plan.where.history, new_log, log.real)]
    if plan.way != "publish":
        raise CouldNotRead(f"{path} is not there: without --with-history the vectors alone are moved")
    return [
        *halves,
        _Half("history", f"{plan.pair}/{snapshot_core.HISTORY}", plan.where.history, new_log, None),
    ]


def _owners(plan: RelocatePlan, halves: Sequence[_Half]) -> Mapping[str, tuple[int, int, int]]:
    """Owner, group and mode of what has no old store any more to take them from."""
    noted = owners_beside(Path(plan.where.pair)) if plan.way == "publish" else {}
    if os.geteuid():
        uid, gid = os.geteuid(), os.getegid()
    else:
        old = next((exchange.owner_of(Path(one.old)) for one in halves if one.old is not None), None)
        uid, gid = old or folder_owner(Path(plan.where.vectors).parent) or (0, 0)
    found = {"vectors": (uid, gid, 0o700), "history": (uid, gid, 0o600)}
    for half, (its_uid, its_gid, mode) in noted.items():
        found[half] = (its_uid, its_gid, mode) if os.geteuid() == 0 else (uid, gid, mode)
    return found


def _copy_and_name(
    plan: RelocatePlan,
    halves: Sequence[_Half],
    owners: Mapping[str, tuple[int, int, int]],
    host: Host,
    say: Progress,
    now: Callable[[], float],
    stack: ExitStack,
) -> tuple[Relocated, MoveIntent]:
    """Under Qdrant's locks: copies, proves, writes the intent, gives every store its name."""
    log = next((one for one in halves if one.half == "history"), None)
    vectors = next(one for one in halves if one.half == "vectors")
    if plan.way == "publish":
        assert plan.pair is not None
        _verified(plan, host, say)
    try:
        assert plan.seen.vectors is not None
        unseen = refuse_holders([plan.seen.history.value, plan.seen.vectors.value], host)
        for one in halves:
            if one.old is None:
                continue
            if one.half == "vectors":
                stack.enter_context(exchange.store_locked(Path(one.old)))
            _settle_journals(one)
        log_path = log.source if log is not None else resolved(plan.seen.history.value, host)
        before = _manifest(plan, vectors.source, log_path, say, now)
        came = None
        if plan.way == "move" and plan.pair is not None:
            came = since_pair(plan.pair, before[1], say)
            if came is not None and came.another_store:
                another_store(plan, came, vectors.source)
        sums = {one.half: _staged(one, plan, owners[one.half], say) for one in halves}
        stack.enter_context(exchange.store_locked(Path(vectors.staged)))
        staged_log = log.staged if log is not None else log_path
        say("auditing the copies", None, None)
        wrong = differs(before[0], staged_log, vectors.staged, say)
        if wrong:
            raise Failed(f"the copies are not what was copied ({wrong}); nothing was changed")
        refuse_holders([plan.seen.history.value, plan.seen.vectors.value], host)  # copying took its time
        lost = _lost(plan, before[1], log_path) if plan.way == "publish" else None
        with ExitStack() as held:
            _unchanged(halves, sums, held)
            target = Path(plan.where.vectors)
            if target.is_dir():
                exchange.remove_empty_folder(target)
            intent = _intent(plan, halves, sums, before[0], log_path, snapshot_core.name_of(now()))
            try:
                write_intent(intent)
                exchange.forward(intent.pieces)
            except OSError as error:
                take_back(intent, error)
        done = finish(intent, host, say, ledger=plan.ledger)
        return replace(done, since=came, lost=lost), intent
    except exchange.InUse as problem:
        in_use(problem, unseen)


def _verified(plan: RelocatePlan, host: Host, say: Progress) -> None:
    """Refuses a pair that is not what was written, or that somebody was erased since."""
    assert plan.pair is not None
    verdict = verify(plan.pair, "default", say)
    if verdict.manifest is None or not verdict.good:
        wrong = [f"{p.path}: {p.detail}" for p in verdict.problems] or [n.why for n in verdict.not_checked]
        raise Refused(
            f"{plan.pair} is not what was written ({wrong[0]}): it is not published",
            f"everything that is wrong with it: mem0audit snapshot verify {shell_word(plan.pair)}",
        )
    refuse_erased(verdict.manifest, plan.pair, plan.install, host, plan.ledger)


def _settle_journals(one: _Half) -> None:
    """What a writer that died left in journals is brought into its database, as the agent's next start would."""
    assert one.old is not None
    for path in [Path(one.old)] if one.half == "history" else _databases(Path(one.old)):
        exchange.settle_journals(path)
        left = [side for side in exchange.SIDES if os.path.lexists(f"{path}{side}")]
        if left:
            raise Refused(
                f"{path}{left[0]} is a journal that SQLite does not apply: the store is not whole without it",
                "mem0audit explain I202",
            )


def _databases(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("collection/**/*.sqlite") if path.is_file())


def _manifest(
    plan: RelocatePlan, vectors: str, log: str, say: Progress, now: Callable[[], float]
) -> tuple[Manifest, Reading]:
    """What both stores hold before they move, in the form in which a copy is compared with it."""
    versions = {
        "mem0audit": __version__,
        "mem0ai": plan.agent.mem0_version,
        "qdrant-client": plan.agent.client_version,
        "sqlite": sqlite3.sqlite_version,
    }
    created_at = shown(now())
    empty = Manifest(
        name=snapshot_core.name_of(instant(created_at) or 0.0),
        created_at=created_at,
        history=Origin(log, "the move"),
        vectors=Origin(vectors, "the move"),
        collection=plan.install.collection,
        mem0_dir=plan.install.mem0_dir,
        hostname=platform.node(),
        filesystems={},
        versions=versions,
        files=(),
        counts={},
        points_digest="",
        history_digest="",
        findings={},
        settled=True,
        unsettled_why=None,
        tries=1,
        longest_hold_s=0.0,
    )
    say("reading both stores", None, None)
    reading = look_at_copy(install_at(empty, log, vectors), agent_of(empty), empty.taken_at, say)
    if reading.layout is not None and reading.layout.problem is not None:
        raise CouldNotRead(f"{reading.layout.path}: {reading.layout.problem.detail}")
    points, rows = digests(reading)
    full = replace(
        empty,
        collection=reading.install.collection,
        counts=counts(reading),
        points_digest=points,
        history_digest=rows,
        findings=counted(judged(reading)),
    )
    return full, reading


def _staged(one: _Half, plan: RelocatePlan, owner: tuple[int, int, int], say: Progress) -> dict[str, str]:
    """Copies one half into the staging folder, with owner, mode and attributes; every byte and every row proven. Gives
    the sums by path below it. Raises Failed, Refused, OSError."""
    source, staged = Path(one.source), Path(one.staged)
    paths = _paths(one)
    modes = wal_files(plan) if one.old is None else frozenset()
    sums = {}
    for number, path in enumerate(paths):
        say(f"copying the {'log' if one.half == 'history' else 'vectors'}", number, len(paths))
        here, there = (source / path, staged / path) if path else (source, staged)
        sums[path] = exchange.stage_file(here, there)
        if exchange.sums_of(there)[""] != sums[path]:
            raise Failed(
                f"{there} does not hold what was written to it; nothing was changed", "check that disk"
            )
        if there.suffix in (".sqlite", ".db"):
            wrong = samerows.first_difference(here, there)
            if wrong and not wrong.startswith("not read"):  # a damaged one is moved as it is, byte for byte
                raise Failed(f"{there}: {wrong} than {here}; nothing was changed")
        if path in modes:
            files.set_journal_mode(there, "wal")
            sums[path] = exchange.sums_of(there)[""]
    if one.half == "vectors":
        files.make_folders(staged)
        exchange.make_lock(staged)
    old = Path(one.old) if one.old is not None else None
    exchange.take_after(staged, old, owner[:2], owner[2])
    if staged.is_dir():
        files.sync_tree(staged)
    return sums


def _paths(one: _Half) -> list[str]:
    """The files of one half, below its source; "" for the log. Raises Refused for what is no ordinary file."""
    if one.half == "history":
        return [""]
    sizes, odd = snapshots.tree(Path(one.source))
    for path, what in sorted(odd.items()):
        if path.split("/")[0] in QDRANTS and what != "is an empty folder":
            raise Refused(
                f"{one.source}/{path} {what}: it cannot be moved with the folder", "look at it first"
            )
    return [path for path in sorted(sizes) if path.split("/")[0] in QDRANTS]


def _unchanged(halves: Sequence[_Half], sums: Mapping[Half, Mapping[str, str]], held: ExitStack) -> None:
    """Refuses where somebody wrote to an old store while it was copied. Every old database is locked from here on, so
    that nobody does until it has its dated name. Raises Refused, InUse, OSError."""
    for one in halves:
        if one.old is None:
            continue
        found = {}
        for path in _paths(one):
            file = Path(one.old, path) if path else Path(one.old)
            if file.suffix in (".sqlite", ".db"):
                # Summed through the descriptor that has the lock: closing another one would let it go.
                found[path] = exchange.sum_of_open(held.enter_context(exchange.database_locked(file)))
                if any(os.path.lexists(f"{file}{side}") for side in exchange.SIDES):
                    found[path] = "has a journal"
            else:
                found[path] = exchange.sums_of(file)[""]
        if found != dict(sums[one.half]):
            raise Refused(
                f"{one.old} was written to while it was copied, by somebody who takes no lock of Qdrant's; nothing was "
                "changed",
                "stop what writes to it, and run this again",
            )


def _intent(
    plan: RelocatePlan,
    halves: Sequence[_Half],
    sums: Mapping[Half, Mapping[str, str]],
    manifest: Manifest,
    log: str,
    date: str,
) -> MoveIntent:
    number, stem = 1, date
    while any(os.path.lexists(p.aside) for p in _retired(halves, stem, {})):
        number += 1
        stem = f"{date}-{number}"
    published = tuple(
        Piece(
            one.half,
            one.target,
            one.staged,
            f"{one.target}.replaced-{stem}",
            None,
            exchange.identity_of(one.staged),
            sums[one.half],
        )
        for one in halves
    )
    by_half = {one.half: one for one in halves}
    vectors = by_half["vectors"]
    assert plan.install.vectors is not None
    return MoveIntent(
        started_at=stem,
        staging=plan.where.staging,
        history=by_half["history"].target if "history" in by_half else log,
        vectors=vectors.target,
        old_history=(by_half["history"].old or seen_without_root(plan.seen.history.value))
        if "history" in by_half
        else log,
        old_vectors=vectors.old or seen_without_root(plan.install.vectors.value),
        published=published,
        retired=tuple(_retired(halves, stem, sums)),
        manifest=snapshot_core.manifest_text(manifest),
        pair=plan.pair if plan.way == "publish" else None,
    )


def _retired(halves: Sequence[_Half], stem: str, sums: Mapping[Half, Mapping[str, str]]) -> list[Piece]:
    """The old stores that get a dated name."""
    pieces = []
    for one in halves:
        if one.old is None:
            continue
        names = [f"{one.old}/{name}" for name in QDRANTS] if one.inside else [one.old]
        for name in names:
            identity = exchange.identity_of(name)
            if identity is None:
                continue
            its = dict(sums.get(one.half, {}))
            if one.inside:
                below = name.removeprefix(f"{one.old}/")
                its = {
                    p.removeprefix(below).lstrip("/"): s for p, s in its.items() if p.split("/")[0] == below
                }
            pieces.append(core.pieces_of(one.half, name, stem, identity, its))
    return pieces


def _lost(plan: RelocatePlan, published: Reading, log: str) -> Lost:
    """What the log says that the published pair does not have. `published` is the pair's vectors read beside the log
    that stays or moves."""
    assert plan.pair is not None
    manifest = verify(plan.pair, "quick").manifest
    assert manifest is not None
    known = manifest.counts.get("changes")
    gone = not os.path.lexists(plan.seen.history.value)
    timeline = published.timeline
    if gone or timeline is None or known is None:
        return Lost(manifest.created_at)
    newer = timeline.rowids[known:]
    if not newer:
        return Lost(manifest.created_at, rows=0)
    touched = {i: one for i, one in timeline.memories.items() if one.top >= newer[0]}
    there = memories_of(published)
    return Lost(
        manifest.created_at,
        rows=len(newer),
        memories=sum(1 for one in touched.values() if one.live),
        deleted=sum(1 for i, one in touched.items() if one.last == DELETE and i in there),
    )
